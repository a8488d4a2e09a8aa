//! Drains nodes as `kubectl drain` does: all are cordoned first; then each is emptied in
//! turn. A pod whose budget allows no eviction is tried again when replacements of pods that
//! were evicted before it are placed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use portolan::cache::{Cluster, PodInfo};
use portolan::model::{Name, Node, Pod, Uid};
use portolan::scheduler::drain::{self, DrainOptions, Stays};

use crate::error::CommandError;
use crate::names::did_you_mean;
use crate::replacement::{Replacement, recreated};
use crate::text::first_names;

use super::answer::{Answer, Drained};
use super::aside::Aside;
use super::budgets::{Limits, Refused};
use super::record::{End, Record};
use super::world::World;
use super::{Blocked, groups};

/// The outcome of a node's drain.
#[derive(Default)]
pub(super) struct Outcome {
    /// The number of pods that were evicted.
    pub(super) evicted: usize,
    /// How often the drain waited until replacements of evicted pods were placed, because a
    /// budget allowed no further eviction.
    pub(super) waits: usize,
    /// The pods that block the drain.
    pub(super) blocked: Vec<(Pod, Stays)>,
}

/// The effect of a budget on the drains.
#[derive(Default)]
pub(super) struct BudgetUse {
    /// How often a drain waited for the budget and went on.
    pub(super) waits: usize,
    /// The pods that it keeps from being evicted.
    pub(super) blocked: Vec<Pod>,
    /// The evicted pods of the budget whose replacements have no node.
    missing: usize,
    /// The evicted pods of the budget that have no controller.
    lost: usize,
}

/// Drains that share the budgets.
pub(super) struct Drains<'c> {
    options: DrainOptions,
    pub(super) limits: Limits<'c>,
    uses: BTreeMap<usize, BudgetUse>,
    /// The pods that a budget keeps on their nodes, and the budget.
    held: HashMap<Uid, usize>,
    /// The evicted pods.
    evicted: Vec<Pod>,
    aside: Aside,
    /// Whether daemon set pods, pods without a controller and pods with local data were found.
    met: [bool; 3],
}

/// The options that kubectl needs, in the order of [`Drains::met`].
const FLAGS: [&str; 3] = ["--ignore-daemonsets", "--force", "--delete-emptydir-data"];

/// The node, or an error with similar names.
pub(super) fn known(
    cluster: &Cluster,
    option: &str,
    name: &str,
) -> Result<Arc<Node>, CommandError> {
    let found = cluster.node(name).and_then(|info| info.node().cloned());
    found.ok_or_else(|| {
        let near = did_you_mean(name, cluster.nodes().map(|node| &**node.name()));
        CommandError::Usage(format!("{option} {name}: node {name} does not exist: {near}"))
    })
}

/// The names without repetitions.
pub(super) fn once(names: &[String]) -> Vec<String> {
    let mut known = HashSet::new();
    names.iter().filter(|name| known.insert(*name)).cloned().collect()
}

/// Cordons the nodes of `--drain`.
pub(super) fn cordon_all(names: &[String], world: &World) -> Result<Vec<Name>, CommandError> {
    let mut reader = world.reader()?;
    let names = once(names);
    for name in &names {
        let node = known(reader.refresh(), "--drain", name)?;
        world.cordon(&node, true)?;
    }
    Ok(names.into_iter().map(Name::from).collect())
}

impl<'c> Drains<'c> {
    pub(super) fn new(options: DrainOptions, limits: Limits<'c>) -> Drains<'c> {
        Drains {
            options,
            limits,
            uses: BTreeMap::new(),
            held: HashMap::new(),
            evicted: Vec::new(),
            aside: Aside::default(),
            met: [false; 3],
        }
    }

    /// Drains cordoned nodes one after the other, as far as possible. May be called again, when pods that were being
    /// deleted have ended. Returns the pods that block the drains.
    pub(super) fn drain(
        &mut self,
        nodes: &[Name],
        world: &mut World,
        answer: &mut Answer,
    ) -> Result<Vec<Blocked>, CommandError> {
        let mut blocked = Vec::new();
        for (at, node) in nodes.iter().enumerate() {
            let done = self.run(node, world)?;
            blocked.extend(done.blocked.into_iter().map(|(pod, why)| (pod, node.clone(), why)));
            match answer.drained.get_mut(at) {
                Some(known) => known.waits += done.waits,
                None => answer.drained.push(Drained { node: node.clone(), waits: done.waits }),
            }
        }
        self.end(world)?;
        Ok(blocked)
    }

    /// Ends a series of calls of [`Drains::run`]: other nodes than the cordoned ones may change now.
    pub(super) fn end(&mut self, world: &mut World) -> Result<(), CommandError> {
        self.aside.put_back(world)
    }

    /// The options that `kubectl drain` needs for the same drains.
    pub(super) fn kubectl_flags(&self) -> Vec<&'static str> {
        FLAGS.into_iter().zip(self.met).filter_map(|(flag, met)| met.then_some(flag)).collect()
    }

    /// The budgets that the drains have waited for or are blocked by, by name. `blocked` are the pods that block them.
    pub(super) fn uses(
        &mut self,
        blocked: &[Blocked],
        cluster: &Cluster,
        record: &Record,
    ) -> BTreeMap<String, BudgetUse> {
        let mut uses = std::mem::take(&mut self.uses);
        for (pod, ..) in blocked {
            if let Some(at) = self.held.get(&pod.uid) {
                uses.entry(*at).or_default().blocked.push(pod.clone());
            }
        }
        if uses.values().any(|of| !of.blocked.is_empty()) {
            for pod in &self.evicted {
                let is_lost = record.has_ended(&pod.uid);
                if !is_lost && cluster.pod(&pod.uid).is_some() {
                    continue;
                }
                for at in self.limits.covering(cluster, &pod.template).iter() {
                    let Some(of) = uses.get_mut(at) else { continue };
                    of.lost += usize::from(is_lost);
                    of.missing += usize::from(!is_lost);
                }
            }
        }
        uses.into_iter().map(|(at, of)| (self.limits.name(at), of)).collect()
    }

    /// Evicts the pods of a cordoned node as far as possible: those that are on it now, as `kubectl drain` lists them
    /// once. A replacement that tolerates the cordon may return. Call [`Drains::end`] after the last node.
    pub(super) fn run(&mut self, node: &Name, world: &mut World) -> Result<Outcome, CommandError> {
        let mut reader = world.reader()?;
        let mut outcome = Outcome::default();
        self.note_kinds(reader.refresh(), node);
        let listed = reader.refresh().node(node).into_iter().flat_map(|info| info.pods());
        let mut listed: HashSet<Uid> = listed.map(|pod| pod.uid()).collect();
        loop {
            self.limits.follow(reader.refresh(), &mut world.record);
            let (going, blocked) = self.round(reader.refresh(), (node, &listed), &world.record);
            if going.is_empty() {
                outcome.blocked = blocked;
                return Ok(outcome);
            }
            let waited: HashSet<usize> =
                going.iter().filter_map(|pod| self.held.remove(&pod.uid)).collect();
            outcome.waits += usize::from(!waited.is_empty());
            for budget in waited {
                self.uses.entry(budget).or_default().waits += 1;
            }
            outcome.evicted += going.len();
            for pod in &going {
                listed.remove(&pod.uid);
            }
            self.aside.take(world)?;
            for pod in &going {
                world.remove(pod)?;
            }
            let ended = groups::with_groups(going.clone(), world)?;
            self.evicted.extend(going);
            for pod in ended {
                let node = pod.node_name.as_ref().unwrap_or(node);
                let preemptions = world.record.preemptions;
                match world.record.replacements.disrupted(&pod) {
                    Replacement::Never(why) => {
                        let end = End::Lost(node.clone(), format!("evicted, {why}"));
                        world.record.ends(&pod, Some(node), end);
                        world.settle()?;
                    }
                    _ => world.enter(&recreated(pod.clone()), Some(node))?,
                }
                if world.record.preemptions > preemptions {
                    self.aside.put_back(world)?;
                }
            }
            world.expire_permits()?;
        }
    }

    /// The listed pods that may be evicted now, and those that block the drain. A pod that is being deleted is not
    /// evicted: the drain waits for its end.
    fn round(
        &mut self,
        cluster: &Cluster,
        (node, listed): (&Name, &HashSet<Uid>),
        record: &Record,
    ) -> (Vec<Pod>, Vec<(Pod, Stays)>) {
        let (mut going, mut blocked) = (Vec::new(), Vec::new());
        let Some(info) = cluster.node(node) else { return (going, blocked) };
        let is_meant =
            |pod: &PodInfo<'_>| pod.deletion_time().is_none() && listed.contains(&pod.uid());
        let mut pods: Vec<_> = info.pods().filter(is_meant).collect();
        pods.sort_by(|a, b| (a.namespace(), a.name()).cmp(&(b.namespace(), b.name())));
        let mut taken = HashMap::new();
        for info in pods {
            match drain::stays(info.template(), self.options) {
                Some(why) if why.is_in_the_way() => blocked.push((info.to_pod(), why)),
                Some(_) => {}
                None => match self.limits.evict(&info, cluster, record, &mut taken) {
                    Ok(()) => going.push(info.to_pod()),
                    Err(refused) => {
                        if let Refused::Budget(at) = refused {
                            self.held.insert(info.uid(), at);
                        }
                        blocked.push((info.to_pod(), self.limits.stays(&refused)));
                    }
                },
            }
        }
        (going, blocked)
    }

    fn note_kinds(&mut self, cluster: &Cluster, node: &Name) {
        for pod in cluster.node(node).iter().flat_map(|info| info.pods()) {
            let stays = drain::stays(pod.template(), DrainOptions::default());
            self.met[0] |= stays == Some(Stays::DaemonSet);
            self.met[1] |= stays == Some(Stays::Bare);
            let goes = !matches!(stays, Some(Stays::DaemonSet | Stays::Mirror));
            self.met[2] |= goes && pod.template().has_local_storage;
        }
    }
}

/// Why a budget blocks a drain, and the remedy.
pub(super) fn why_blocked(of: &BudgetUse) -> String {
    let pods: Vec<Name> = of.blocked.iter().map(Pod::key).collect();
    let reason = match (of.missing, of.lost) {
        (0, 0) => "it allows no disruption: add replicas, wait until pods are ready, or relax it",
        (0, _) => "no controller recreates the pods that were evicted: create them, or relax it",
        _ => "the replacements of pods that were evicted find no node: add nodes or free resources",
    };
    format!("{}: {reason}", first_names(&pods))
}
