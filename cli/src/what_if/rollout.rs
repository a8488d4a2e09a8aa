//! Rollouts: controllers of the cluster that are applied again with another template.
//!
//! A pod counts as available when it has a node, and is not reported as unready. A rollout that cannot go on hangs, as
//! in a cluster: nothing rolls it back.

use std::collections::{BTreeMap, HashSet};

use portolan::model::{Name, Object, Pod, Uid};
use portolan_k8s::{ControllerKind, IntOrPercent, PodController, PodFacts, UpdateStrategy};
use serde::Serialize;

use crate::cluster::{Added, Contents};
use crate::error::CommandError;
use crate::replacement::ordinal;

use super::answer::Answer;
use super::claims::claims;
use super::scale::{delete_pod, rank};
use super::volumes;
use super::world::World;
use crate::targets::{Finder, Reference};

/// The rollout of a controller.
#[derive(Serialize)]
pub(super) struct Rollout {
    /// Kind, namespace and name.
    pub(super) controller: String,
    /// The number of pods of the new template in the end.
    pub(super) pods: usize,
    /// The number of them that run.
    pub(super) done: usize,
    /// Why the rollout does not start or hangs, if it does.
    pub(super) why: Option<String>,
    #[serde(rename = "started")]
    pub(super) is_started: bool,
}

impl Rollout {
    pub(super) fn hangs(&self) -> bool {
        self.is_started && self.why.is_some()
    }

    /// A clause about a rollout that does not end.
    pub(super) fn problem(&self) -> Option<String> {
        let Rollout { controller, pods, done, why, is_started } = self;
        let why = why.as_ref()?;
        Some(match is_started {
            true => format!("rollout of {controller} hangs after {done} of {pods} pods: {why}"),
            false => format!("rollout of {controller} does not start: {why}"),
        })
    }
}

/// Rolls out added controllers whose template differs from the controller in the cluster. Removes their pods from
/// `added`.
pub(super) fn run(
    contents: &Contents,
    added: &mut Added,
    world: &mut World,
    answer: &mut Answer,
) -> Result<(), CommandError> {
    if added.controllers.is_empty() {
        return Ok(());
    }
    let all = contents.controllers();
    let of_cluster = &all[..all.len() - added.controllers.len()];
    let scales = contents.scales();
    for new in added.controllers.clone() {
        let cluster = world.cluster()?;
        let named = format!("{}/{}", new.kind.as_str().to_lowercase(), new.name);
        let Ok(reference) = Reference::parse(&named) else { continue };
        let namespace = Some(&*new.namespace);
        let finder = Finder { controllers: &[], scales, namespace };
        let Ok(target) = finder.find("", &reference, world.record.candidates(&cluster)) else {
            continue;
        };
        let mut old = target.pods;
        let own: HashSet<Uid> = own_pods(&new, &added.pods).map(|pod| pod.uid.clone()).collect();
        old.retain(|pod| pod.deletion_time.is_none() && !own.contains(&pod.uid));
        if old.is_empty() || !is_changed(&new, of_cluster, &old) {
            continue;
        }
        let mut roll = Roll {
            new: &new,
            facts: contents.facts(),
            old,
            fresh: Vec::new(),
            world: &mut *world,
            answer: &mut *answer,
        };
        let controller =
            format!("{} {}/{}", new.kind.as_str().to_lowercase(), new.namespace, new.name);
        let started = match (new.kind, new.update) {
            (ControllerKind::Job, _) => Err("the template of a Job is immutable"),
            (ControllerKind::Deployment, UpdateStrategy::Never) => Err("it is paused"),
            (_, UpdateStrategy::Never) => {
                Err("its pods keep their template until they are deleted")
            }
            (_, UpdateStrategy::OnDelete) => Err("updateStrategy OnDelete"),
            (_, UpdateStrategy::Recreate) => {
                added.pods.retain(|pod| !own.contains(&pod.uid));
                Ok(roll.recreate()?)
            }
            (kind, UpdateStrategy::RollingUpdate { max_surge, max_unavailable, partition }) => {
                let (own_pods, others): (Vec<Pod>, Vec<Pod>) =
                    added.pods.drain(..).partition(|pod| own.contains(&pod.uid));
                added.pods = others;
                let most = (max_surge, max_unavailable);
                Ok(match kind {
                    ControllerKind::StatefulSet => {
                        roll.ordinals(own_pods, max_unavailable, partition)?
                    }
                    ControllerKind::DaemonSet => roll.daemons(own_pods, most)?,
                    _ => roll.replicas(most)?,
                })
            }
            _ => Err("its updateStrategy is not known"),
        };
        let rollout = match started {
            Err(why) => Rollout {
                controller,
                pods: roll.old.len(),
                done: 0,
                why: Some(why.to_owned()),
                is_started: false,
            },
            Ok(pods) => {
                let (done, why) = (roll.running(&roll.fresh)?, roll.why(pods)?);
                Rollout { controller, pods, done, why, is_started: true }
            }
        };
        answer.rollouts.push(rollout);
    }
    world.expire_permits()
}

/// The pods that belong to the controller.
fn own_pods<'p>(of: &'p PodController, pods: &'p [Pod]) -> impl Iterator<Item = &'p Pod> {
    pods.iter().filter(|pod| of.owns(&pod.template))
}

/// Whether the cluster has another template of the controller: its own, that of a replica set of a deployment, or, if
/// neither is in the input, pods with other images or requests.
fn is_changed(new: &PodController, of_cluster: &[PodController], pods: &[Pod]) -> bool {
    let is_same = |it: &&PodController| {
        (it.kind, &it.namespace, &it.name) == (new.kind, &new.namespace, &new.name)
    };
    if let Some(known) = of_cluster.iter().find(is_same) {
        return !new.has_template_of(known);
    }
    let owners = pods.iter().flat_map(|pod| pod.template.owners.iter());
    let owners: HashSet<&Name> = owners.filter(|it| it.controller).map(|it| &it.name).collect();
    let is_owner = |set: &PodController| {
        set.kind == ControllerKind::ReplicaSet
            && set.namespace == new.namespace
            && owners.contains(&set.name)
    };
    if let Some(set) = of_cluster.iter().find(|set| is_owner(set)) {
        return !new.has_template_of(set);
    }
    let Some(like) = new.pod(0) else { return false };
    let of = |pod: &Pod| (pod.template.images.clone(), pod.template.resources.incoming.clone());
    pods.iter().any(|pod| of(pod) != of(&like))
}

/// A rollout that is under way.
struct Roll<'r> {
    new: &'r PodController,
    facts: &'r PodFacts,
    /// The pods of old templates.
    old: Vec<Pod>,
    /// The pods of the new template.
    fresh: Vec<Pod>,
    world: &'r mut World,
    answer: &'r mut Answer,
}

impl Roll<'_> {
    /// The number of pods that are available.
    fn running(&self, pods: &[Pod]) -> Result<usize, CommandError> {
        let now = self.world.cluster()?;
        let is_ready = |pod: &&Pod| {
            let has_changed = self.world.record.has_arrived(&pod.uid);
            now.pod(&pod.uid).is_some() && (has_changed || self.facts.is_ready(&pod.uid))
        };
        Ok(pods.iter().filter(is_ready).count())
    }

    /// Why the rollout does not end, if it does not: the first pod without a node.
    fn why(&self, pods: usize) -> Result<Option<String>, CommandError> {
        if self.running(&self.fresh)? >= pods {
            return Ok(None);
        }
        for pod in &self.fresh {
            if self.running(std::slice::from_ref(pod))? == 0 {
                return Ok(Some(self.world.record.why(&pod.uid)));
            }
        }
        Ok(Some("the old pods are not available".to_owned()))
    }

    /// Deletes the first old pods in the order of the controller.
    fn delete(&mut self, number: usize) -> Result<(), CommandError> {
        rank(self.new.kind.as_str(), &mut self.old, self.facts);
        for pod in self.old.drain(..number.min(self.old.len())) {
            let from = delete_pod(&pod, self.world)?;
            self.answer.removed.push((pod, from));
        }
        self.world.settle()
    }

    /// Creates a pod of the new template, in the place of an old one if one is given.
    fn add(&mut self, pod: Pod, from: Option<&Name>) -> Result<(), CommandError> {
        self.world.record.creation.admission.expect(self.new, std::slice::from_ref(&pod));
        if from.is_none() {
            self.world.record.creation.expect(std::slice::from_ref(&pod));
        }
        let now = self.world.cluster()?;
        let new = claims(Some(self.new), None, &pod, &now).into_iter();
        let mut objects: Vec<Object> = new.map(Object::from).collect();
        volumes::bind(&mut objects, &now);
        for object in objects {
            self.world.put(object)?;
        }
        self.world.enter(&pod, from)?;
        self.fresh.push(pod);
        Ok(())
    }

    /// Creates as many further replicas, with names that no other pod of the controller has.
    fn add_replicas(&mut self, number: usize) -> Result<(), CommandError> {
        let known =
            self.old.iter().chain(&self.fresh).chain(self.answer.removed.iter().map(|it| &it.0));
        let taken: HashSet<Uid> = known.map(|pod| pod.uid.clone()).collect();
        let pods = (0..).map_while(|number| self.new.pod(number));
        let free: Vec<Pod> = pods.filter(|pod| !taken.contains(&pod.uid)).take(number).collect();
        free.into_iter().try_for_each(|pod| self.add(pod, None))
    }

    /// Returns the number of pods in the end, as the other strategies do.
    fn recreate(&mut self) -> Result<usize, CommandError> {
        self.delete(self.old.len())?;
        self.add_replicas(self.new.replicas)?;
        Ok(self.new.replicas)
    }

    /// A deployment (deployment/rolling.go).
    fn replicas(&mut self, most: (IntOrPercent, IntOrPercent)) -> Result<usize, CommandError> {
        let all = self.new.replicas;
        let of = |amount: IntOrPercent, round_up| {
            let total = i64::try_from(all).unwrap_or(i64::MAX);
            usize::try_from(amount.of(total, round_up)).unwrap_or(0)
        };
        let (surge, mut unavailable) = (of(most.0, true), of(most.1, false));
        if surge == 0 && unavailable == 0 {
            unavailable = 1;
        }
        let least = all.saturating_sub(unavailable);
        // Replicas change before the template.
        self.delete(self.old.len().saturating_sub(all))?;
        loop {
            let total = self.old.len() + self.fresh.len();
            let more = all.saturating_add(surge).saturating_sub(total);
            let more = more.min(all.saturating_sub(self.fresh.len()));
            self.add_replicas(more)?;
            let fresh = self.running(&self.fresh)?;
            let old = self.running(&self.old)?;
            let total = self.old.len() + self.fresh.len();
            let pending = self.fresh.len() - fresh;
            let fewer = total.saturating_sub(least).saturating_sub(pending);
            // Old pods that are not available are deleted first.
            let unhealthy = (self.old.len() - old).min(fewer);
            let healthy = (fresh + old).saturating_sub(least).min(fewer - unhealthy).min(old);
            self.delete(unhealthy + healthy)?;
            if more == 0 && unhealthy + healthy == 0 {
                return Ok(all);
            }
        }
    }

    /// A stateful set, from the highest ordinal (statefulset/stateful_set_control.go `updateStatefulSet`). `missing`
    /// are the pods that it lacks.
    fn ordinals(
        &mut self,
        missing: Vec<Pod>,
        most: IntOrPercent,
        partition: usize,
    ) -> Result<usize, CommandError> {
        let all = self.new.ordinals();
        let total = i64::try_from(all.len()).unwrap_or(i64::MAX);
        let most = usize::try_from(most.of(total, true)).unwrap_or(1).max(1);
        let (kept, gone): (Vec<Pod>, Vec<Pod>) = std::mem::take(&mut self.old)
            .into_iter()
            .partition(|pod| ordinal(&pod.name).is_some_and(|it| all.contains(&it)));
        self.old = gone;
        self.delete(self.old.len())?;
        for pod in missing {
            self.add(pod, None)?;
        }
        let mut updated: BTreeMap<usize, Pod> =
            kept.into_iter().filter_map(|pod| Some((ordinal(&pod.name)?, pod))).collect();
        let mut updated = updated.split_off(&partition);
        let pods = self.fresh.len() + updated.len();
        while self.fresh.len() - self.running(&self.fresh)? < most
            && let Some((ordinal, old)) = updated.pop_last()
        {
            let Some(new) = self.new.pod(ordinal) else { continue };
            // The pod keeps its identity.
            let new = Pod { uid: old.uid.clone(), ..new };
            let from = self.end(&old)?;
            self.add(new, from.as_ref())?;
        }
        Ok(pods)
    }

    /// A daemon set, node by node (daemon/update.go `rollingUpdate`). `missing` are the pods that it lacks.
    fn daemons(
        &mut self,
        missing: Vec<Pod>,
        (surge, unavailable): (IntOrPercent, IntOrPercent),
    ) -> Result<usize, CommandError> {
        for pod in missing {
            self.add(pod, None)?;
        }
        let total = i64::try_from(self.old.len() + self.fresh.len()).unwrap_or(i64::MAX);
        let of = |amount: IntOrPercent| usize::try_from(amount.of(total, true)).unwrap_or(0);
        let (surge, unavailable) = (of(surge), of(unavailable));
        let most = surge.max(unavailable).max(1);
        let mut old = std::mem::take(&mut self.old).into_iter();
        let mut pods = self.fresh.len() + old.len();
        while self.fresh.len() - self.running(&self.fresh)? < most
            && let Some(pod) = old.next()
        {
            let now = self.world.cluster()?;
            let node = pod.node_name.as_ref().and_then(|node| now.node(node));
            let node = node.and_then(|node| node.node().cloned());
            let new = node.as_ref().and_then(|node| self.new.daemon_on(node));
            let Some(new) = new else {
                let from = self.end(&pod)?;
                self.answer.removed.push((pod, from));
                pods -= 1;
                continue;
            };
            // The old pod may have been created here, with the same name.
            let new = Pod { uid: Uid::new(&format!("{}/new", new.uid)), ..new };
            if surge > 0 {
                self.add(new, None)?;
                if self.running(&self.fresh)? < self.fresh.len() {
                    continue;
                }
                let from = self.end(&pod)?;
                self.answer.removed.push((pod, from));
            } else {
                let from = self.end(&pod)?;
                self.answer.removed.push((pod, from));
                self.add(new, None)?;
            }
        }
        Ok(pods)
    }

    /// Deletes a pod that another one replaces. Returns its node.
    fn end(&mut self, pod: &Pod) -> Result<Option<Name>, CommandError> {
        delete_pod(pod, self.world)
    }
}
