//! `--remove` and `--scale`: controllers that lose or gain pods.

use std::collections::{HashMap, HashSet};

use portolan::model::{Name, Object, Pod, PodSpec, Template, Uid, VolumeSource};
use portolan_k8s::{PodController, PodFacts};

use crate::error::CommandError;
use crate::replacement::{is_bare, ordinal, recreated};
use crate::targets::{Finder, Reference, Removal, Scale, Target};
use crate::text::count;

use super::answer::{Answer, Scaled};
use super::claims::{claims, renamed};
use super::record::End;
use super::world::World;
use super::{groups, volumes};

/// Deletes controllers with their pods, or single pods, at once, as `kubectl delete` does: a pod that
/// has a controller is recreated.
pub(super) fn remove(
    removals: &[Removal],
    finder: &Finder<'_>,
    world: &mut World,
    answer: &mut Answer,
) -> Result<(), CommandError> {
    let cluster = world.cluster()?;
    let mut returning = Vec::new();
    let mut deleted: HashSet<Uid> = HashSet::new();
    // Nothing recreates the pods of an owner that is deleted too.
    let mut removals: Vec<&Removal> = removals.iter().collect();
    removals.sort_by_key(|it| match it.kind() {
        "Deployment" => 0,
        "Pod" => 2,
        _ => 1,
    });
    for removal in removals {
        let targets = match removal {
            Removal::Named(reference) => {
                vec![finder.find("--remove", reference, world.record.candidates(&cluster))?]
            }
            Removal::Labeled(of) => {
                finder.labeled("--remove", of, world.record.candidates(&cluster))?
            }
        };
        for target in targets {
            // A deployment recreates the replica set, and any controller its pods.
            let owners = target.controller.iter().flat_map(|it| it.owners.iter());
            let is_recreated =
                removal.kind() == "ReplicaSet" && owners.into_iter().any(|it| it.controller);
            if !is_recreated {
                world.record.replacements.remove(removal.kind(), &target.namespace, &target.name);
            }
            // A pod that is being deleted ends in any case.
            for pod in target.pods.into_iter().filter(|pod| pod.deletion_time.is_none()) {
                if !deleted.insert(pod.uid.clone()) {
                    continue;
                }
                let from = delete_pod(&pod, world)?;
                match is_recreated || (removal.kind() == "Pod" && !is_bare(&pod)) {
                    true => returning.push(Pod { node_name: from, ..pod }),
                    false => answer.removed.push((pod, from)),
                }
            }
        }
    }
    for pod in groups::with_groups(returning, world)? {
        let from = pod.node_name.clone();
        world.enter(&recreated(pod), from.as_ref())?;
    }
    world.settle()?;
    world.expire_permits()
}

/// Deletes a pod from its node, or from the queue. Returns its node.
pub(super) fn delete_pod(pod: &Pod, world: &mut World) -> Result<Option<Name>, CommandError> {
    match &pod.node_name {
        Some(_) => world.remove(pod)?,
        None if world.record.is_uncreated(&pod.uid) => {}
        None => world.delete_waiting(pod)?,
    }
    world.record.ends(pod, pod.node_name.as_ref(), End::Deleted);
    Ok(pod.node_name.clone())
}

/// Refuses a replica set whose owner would scale it back.
fn refuse_owned(of: &Reference, target: &Target<'_>) -> Result<(), CommandError> {
    let owners = target.controller.iter().flat_map(|it| it.owners.iter());
    match owners.into_iter().find(|owner| owner.controller && of.kind == "ReplicaSet") {
        Some(owner) => Err(CommandError::Usage(format!(
            "--scale: {} {}/{} belongs to {} {}, which would scale it back: scale that",
            of.kind, target.namespace, target.name, owner.kind, owner.name
        ))),
        None => Ok(()),
    }
}

/// Removes the pods of controllers that become smaller, and returns the new pods of those that
/// become larger.
pub(super) fn scale(
    wanted: &[Scale],
    finder: &Finder<'_>,
    facts: &PodFacts,
    world: &mut World,
    answer: &mut Answer,
) -> Result<Vec<Pod>, CommandError> {
    let mut new = Vec::new();
    for Scale { of, replicas } in wanted {
        let cluster = world.cluster()?;
        let target = finder.find("--scale", of, world.record.candidates(&cluster))?;
        refuse_owned(of, &target)?;
        let Target { namespace, controller, mut pods, .. } = target;
        // A terminating pod is replaced already.
        pods.retain(|pod| pod.deletion_time.is_none());
        let from = pods.len();
        let name = format!("{}/{namespace}/{}", of.kind, of.name);
        // A job runs no more pods than it has completions left (job_controller.go `manageJob`).
        let left = controller.and_then(|it| it.job.as_ref()).map_or(usize::MAX, |it| it.remaining);
        if *replicas > left {
            let why = match left {
                0 => "no pods: it is suspended or has finished".to_owned(),
                _ => {
                    let completions = count(left, "completion");
                    format!("{} at most: it has {completions} left", count(left, "pod"))
                }
            };
            answer.notes.push(format!("{name} runs {why}"));
        }
        let replicas = (*replicas).min(left);
        answer.scaled.push(Scaled { controller: name, from, to: replicas });
        world.record.replacements.scale(of.kind, &namespace, &of.name, replicas);
        if replicas >= from {
            let more = more(of, &namespace, controller, &pods, replicas - from)?;
            let claims =
                more.iter().flat_map(|pod| claims(controller, pods.first(), pod, &cluster));
            let mut objects: Vec<Object> = claims.map(Object::from).collect();
            volumes::bind(&mut objects, &cluster);
            for object in objects {
                world.put(object)?;
            }
            let admission = &mut world.record.creation.admission;
            match (controller, pods.first()) {
                (Some(controller), _) => admission.expect(controller, &more),
                (None, Some(like)) => admission.expect_like(like, &more),
                (None, None) => {}
            }
            new.extend(more);
            continue;
        }
        rank(of.kind, &mut pods, facts);
        for pod in pods.drain(..from - replicas) {
            let from = delete_pod(&pod, world)?;
            answer.removed.push((pod, from));
        }
        world.settle()?;
    }
    world.expire_permits()?;
    Ok(new)
}

/// Sorts pods in the order of their deletion.
///
/// A stateful set deletes the highest ordinal. The other controllers rank as
/// `ActivePodsWithRanks` of pkg/controller/controller_utils.go does: pods without a node, pods
/// that are not ready, those with a low deletion cost, those on nodes with more pods of the
/// controller, and new ones. The files have neither restarts nor the times of readiness, and
/// the controller's rounding of ages needs the current time; both are left out.
pub(super) fn rank(kind: &str, pods: &mut [Pod], facts: &PodFacts) {
    if kind == "StatefulSet" {
        pods.sort_by_key(|pod| std::cmp::Reverse(ordinal(&pod.name)));
        return;
    }
    let mut on: HashMap<Name, usize> = HashMap::new();
    for node in pods.iter().filter_map(|pod| pod.node_name.clone()) {
        *on.entry(node).or_default() += 1;
    }
    pods.sort_by_cached_key(|pod| {
        let together = pod.node_name.as_ref().and_then(|node| on.get(node)).copied();
        (
            pod.node_name.is_some(),
            facts.is_ready(&pod.uid),
            facts.deletion_cost(&pod.uid),
            std::cmp::Reverse(together.unwrap_or(0)),
            // The engine keeps the creation time of pending pods only. A pod without a time is
            // new.
            std::cmp::Reverse(pod.start_time.or(pod.creation_time).map_or(i64::MAX, |at| at.0)),
            pod.uid.to_string(),
        )
    });
}

/// New pods of a controller: from its template, or copies of one of its pods if the controller is not in the input.
fn more(
    of: &Reference,
    namespace: &Name,
    controller: Option<&PodController>,
    pods: &[Pod],
    number: usize,
) -> Result<Vec<Pod>, CommandError> {
    let taken: std::collections::HashSet<&str> = pods.iter().map(|pod| &*pod.name).collect();
    if number == 0 {
        return Ok(Vec::new());
    }
    let named = |like: &Pod, name: String| {
        let mut spec = PodSpec::clone(&like.template);
        for volume in &mut spec.volumes {
            if let VolumeSource::PersistentVolumeClaim { claim, .. } = volume
                && let Some(own) = renamed(claim, like, &name)
            {
                *claim = own;
            }
        }
        Pod {
            uid: Uid::new(&format!("{namespace}/{name}")),
            name: name.into(),
            template: Template::new(spec),
            creation_time: None,
            nominated_node_name: None,
            ..recreated(like.clone())
        }
    };
    match (controller, pods) {
        (Some(controller), _) => {
            // Enough pods to find free names among them.
            let mut controller = controller.clone();
            controller.replicas = number.saturating_add(pods.len());
            let all = controller.expand(&[]);
            Ok(all.into_iter().filter(|pod| !taken.contains(&*pod.name)).take(number).collect())
        }
        (None, [like, ..]) => {
            let names = (0_usize..).map(|n| format!("{}-{n}", of.name));
            let free = names.filter(|name| !taken.contains(&**name)).take(number);
            Ok(free.map(|name| named(like, name)).collect())
        }
        (None, []) => Err(CommandError::Usage(format!(
            "--scale {}/{}: the controller is not in the input and has no pods: add it to --cluster",
            of.kind, of.name
        ))),
    }
}
