//! The evictions after which the pod would fit, regardless of the victims' priorities, and the pods whose end it waits
//! for.

use std::time::Instant;

use portolan::cache::{Cluster, NodeInfo, PodInfo};
use portolan::model::Pod;
use portolan::plugin::preemption::DryRun;
use portolan::plugin::{Cycle, CycleState};
use portolan::scheduler::drain::{self, Budgets, DrainOptions, Stays};
use portolan_k8s::Scaled;

use super::changes::{Change, try_edits};
use super::edit::{Edit, changed, without_pods};
use super::trial::{Rejection, Trial};

/// The plugins whose rejections evictions can resolve.
const HELPED: [&str; 6] = [
    "NodeResourcesFit",
    "NodePorts",
    "InterPodAffinity",
    "PodTopologySpread",
    "NodeVolumeLimits",
    "VolumeRestrictions",
];

/// Victims, those that terminate already, and objections to the eviction of the others, one text each.
struct Victims {
    pods: Vec<Pod>,
    terminating: Vec<Pod>,
    objections: Vec<String>,
}

impl Victims {
    fn of(cluster: &Cluster, pods: Vec<Pod>, budgets: Budgets) -> Victims {
        let (terminating, pods): (Vec<Pod>, Vec<Pod>) =
            pods.into_iter().partition(|pod| pod.deletion_time.is_some());
        let objections = objections(cluster, &pods, budgets);
        Victims { pods, terminating, objections }
    }

    /// The smaller, the better.
    fn cost(&self) -> (usize, usize, i64) {
        let priorities = self.pods.iter().map(|pod| i64::from(pod.template.priority)).sum();
        (self.objections.len(), self.pods.len(), priorities)
    }
}

/// The end of pods that are terminating, if that suffices on a node. Otherwise the evictions with the fewest objections
/// and victims. Nodes are tried until the deadline, those with the fewest pods first; `false` if some were not tried.
pub(super) fn change(
    trial: Trial<'_>,
    rejections: &[Rejection<'_>],
    deadline: Instant,
) -> (Option<Change>, bool) {
    let helped = rejections.iter().filter(|found| found.is_only_by(&HELPED));
    let mut nodes: Vec<NodeInfo<'_>> =
        helped.map(|found| found.node).filter(|node| node.pod_count() > 0).collect();
    nodes.sort_by_key(|node| node.pod_count());
    let in_time = |_: &&NodeInfo<'_>| Instant::now() < deadline;
    let mut waits = nodes.iter().take_while(in_time).filter_map(|node| wait(trial, *node));
    if let Some(change) = waits.next() {
        return (Some(change), true);
    }
    // All pods of a node are candidates: those of lower priority than the highest one.
    let above = changed(trial.pod, |spec| spec.priority = i32::MAX);
    let state = CycleState::default();
    let cycle = Cycle::new(trial.cluster, &above, &state);
    let filters = trial.framework.pre_filter(cycle);
    let dry_run = DryRun::new(cycle, &filters);
    let budgets = Budgets::of(trial.cluster);
    let own = trial.scales.scaled(&trial.pod.template);
    let is_victim = |pod: PodInfo<'_>| is_victim(trial, own.as_ref(), &pod);
    let mut is_complete = true;
    let mut best: Option<(Victims, NodeInfo<'_>)> = None;
    for node in nodes {
        if Instant::now() >= deadline {
            is_complete = false;
            break;
        }
        let Ok(candidate) = dry_run.on(node) else { continue };
        let of = |pod: &Pod| trial.cluster.pod(&pod.uid);
        let pods = match candidate.victims.iter().all(|pod| of(pod).is_some_and(is_victim)) {
            true => Some(candidate.victims),
            false => victims(trial, node, is_victim),
        };
        let Some(pods) = pods else { continue };
        let victims = Victims::of(trial.cluster, pods, budgets.clone());
        let is_better = best.as_ref().is_none_or(|(best, _)| victims.cost() < best.cost());
        let all = || victims.pods.iter().chain(&victims.terminating);
        if is_better && fits_without(trial, node, all()) {
            best = Some((victims, node));
        }
    }
    let change = best.and_then(|(Victims { pods, terminating, objections }, node)| {
        let edit = Edit::Evict { node: node.name().clone(), pods, terminating };
        let change = try_edits(trial, vec![edit])?;
        Some(Change { notes: objections, is_complete, ..change })
    });
    (change, is_complete)
}

/// The end of the pods that are terminating on the node, if the pod fits after it.
fn wait(trial: Trial<'_>, node: NodeInfo<'_>) -> Option<Change> {
    let is_terminating = |pod: PodInfo<'_>| pod.deletion_time().is_some();
    node.pods().find(|pod| is_terminating(*pod))?;
    let terminating = victims(trial, node, is_terminating)?;
    let node = node.name().clone();
    try_edits(trial, vec![Edit::Evict { node, pods: Vec::new(), terminating }])
}

/// Whether the eviction of a pod makes place: pods of daemon sets return, and mirror pods stay. A replica of the pod's
/// own controller would only take its turn.
fn is_victim(trial: Trial<'_>, own: Option<&Scaled>, pod: &PodInfo<'_>) -> bool {
    let is_sibling = own.is_some() && trial.scales.scaled(pod.template()).as_ref() == own;
    let stays = matches!(stays(pod), Some(Stays::DaemonSet | Stays::Mirror));
    pod.deletion_time().is_some() || !(stays || is_sibling)
}

fn stays(pod: &PodInfo<'_>) -> Option<Stays> {
    drain::stays(pod, DrainOptions::default())
}

/// The objections to the evictions that `kubectl drain` would raise.
fn objections(cluster: &Cluster, victims: &[Pod], mut budgets: Budgets) -> Vec<String> {
    let mut objections = Vec::new();
    for victim in victims {
        let Some(pod) = cluster.pod(&victim.uid) else { continue };
        let name = victim.key();
        match stays(&pod) {
            Some(Stays::Bare) => {
                objections.push(format!("{name} has no controller: nothing recreates it"));
            }
            Some(Stays::LocalStorage) => {
                objections.push(format!("{name} has local storage, which is lost"));
            }
            _ => {}
        }
        if let Err(budget) = budgets.charge(&pod) {
            objections.push(format!("{name}: disruption budget {budget} allows no eviction now"));
        }
    }
    objections
}

fn fits_without<'p>(
    trial: Trial<'_>,
    node: NodeInfo<'_>,
    pods: impl IntoIterator<Item = &'p Pod>,
) -> bool {
    let fork = without_pods(trial.cluster, pods);
    fork.is_some_and(|fork| Trial { cluster: &fork, ..trial }.fits_on(node.name()))
}

/// The node's pods among the candidates whose removal makes it accept the pod: all are removed, and then pods return
/// while the pod still fits, those that are not terminating and the most important first.
fn victims(
    trial: Trial<'_>,
    node: NodeInfo<'_>,
    is_candidate: impl Fn(PodInfo<'_>) -> bool,
) -> Option<Vec<Pod>> {
    let candidates = node.pods().filter(|pod| is_candidate(*pod));
    let mut pods: Vec<Pod> = candidates.map(|pod| pod.to_pod()).collect();
    pods.sort_by_key(|pod| {
        let priority = std::cmp::Reverse(pod.template.priority);
        (pod.deletion_time.is_some(), priority, pod.start_time)
    });
    let mut fork = without_pods(trial.cluster, &pods)?;
    if !(Trial { cluster: &fork, ..trial }).fits_on(node.name()) {
        return None;
    }
    let mut victims = Vec::new();
    for pod in pods {
        fork.add_pod(&pod).ok()?;
        if !(Trial { cluster: &fork, ..trial }).fits_on(node.name()) {
            fork.remove_pod(&pod.uid).ok()?;
            victims.push(pod);
        }
    }
    Some(victims)
}
