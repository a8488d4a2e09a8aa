//! The evictions after which the pod would fit, regardless of the victims' priorities.

use std::time::Instant;

use portolan::framework::preemption::DryRun;
use portolan::framework::{Cycle, CycleState};
use portolan::model::Pod;
use portolan::scheduler::drain::{self, Budgets, DrainOptions, Stays};
use portolan::{Cluster, Fork, NodeInfo, PodInfo};

use super::changes::Change;
use super::steps::changed;
use super::trial::{Rejection, Trial};
use crate::text::count;

/// The plugins whose rejections evictions can resolve.
const HELPED: [&str; 6] = [
    "NodeResourcesFit",
    "NodePorts",
    "InterPodAffinity",
    "PodTopologySpread",
    "NodeVolumeLimits",
    "VolumeRestrictions",
];

/// The victims on one node, the most important first.
struct Victims {
    pods: Vec<Pod>,
    /// Objections to their eviction, one text each.
    objections: Vec<String>,
}

impl Victims {
    /// The smaller, the better.
    fn cost(&self) -> (usize, usize, i64) {
        let priorities = self.pods.iter().map(|pod| i64::from(pod.template.priority)).sum();
        (self.objections.len(), self.pods.len(), priorities)
    }
}

/// The evictions with the fewest objections and victims, and the number of nodes on which
/// evictions would help. Nodes are tried until the deadline, those with the fewest pods first.
pub(super) fn change(
    trial: Trial<'_>,
    rejections: &[Rejection<'_>],
    deadline: Instant,
) -> Option<Change> {
    let helped = rejections.iter().filter(|found| found.is_only_by(&HELPED));
    let mut nodes: Vec<NodeInfo<'_>> =
        helped.map(|found| found.node).filter(|node| node.pod_count() > 0).collect();
    nodes.sort_by_key(|node| node.pod_count());
    // All pods of a node are candidates: those of lower priority than the highest one.
    let above = changed(trial.pod, |spec| spec.priority = i32::MAX);
    let state = CycleState::default();
    let cycle = Cycle::new(trial.cluster, &above, &state);
    let filters = trial.framework.pre_filter(cycle);
    let dry_run = DryRun::new(cycle, &filters);
    let budgets = Budgets::of(trial.cluster);
    let (mut on, mut is_complete) = (Vec::new(), true);
    let mut best: Option<(Victims, &str)> = None;
    for node in nodes {
        if Instant::now() >= deadline {
            is_complete = false;
            break;
        }
        let Ok(candidate) = dry_run.on(node) else { continue };
        let is_evictable =
            |pod: &Pod| trial.cluster.pod(&pod.uid).is_some_and(|pod| is_evictable(&pod));
        let pods = match candidate.victims.iter().all(is_evictable) {
            true => Some(candidate.victims),
            false => evictable_victims(trial, node),
        };
        let Some(pods) = pods else { continue };
        let objections = objections(trial.cluster, &pods, budgets.clone());
        let victims = Victims { pods, objections };
        let is_better = best.as_ref().is_none_or(|(best, _)| victims.cost() < best.cost());
        if is_better && !fits_without(trial, node, &victims.pods) {
            continue;
        }
        on.push(node.name().clone());
        if is_better {
            best = Some((victims, node.name()));
        }
    }
    let (Victims { pods, objections }, node) = best?;
    let what = format!("evict {} from node {node}", listed(&pods));
    Some(Change { notes: objections, is_complete, ..Change::single("evict", what, on) })
}

/// Maximum number of victims that are listed.
const LISTED: usize = 10;

fn listed(pods: &[Pod]) -> String {
    let names = pods.iter().take(LISTED).map(|pod| format!("{}/{}", pod.namespace(), pod.name));
    let names = names.collect::<Vec<_>>().join(", ");
    match pods.len().saturating_sub(LISTED) {
        0 => names,
        more => format!("{names} and {}", count(more, "other pod")),
    }
}

/// Whether an evicted pod leaves its node. Pods of daemon sets return, and mirror pods stay.
fn is_evictable(pod: &PodInfo<'_>) -> bool {
    !matches!(stays(pod), Some(Stays::DaemonSet | Stays::Mirror))
}

fn stays(pod: &PodInfo<'_>) -> Option<Stays> {
    drain::stays(pod, DrainOptions::default())
}

/// The objections to the evictions that `kubectl drain` would raise.
fn objections(cluster: &Cluster, victims: &[Pod], mut budgets: Budgets) -> Vec<String> {
    let mut objections = Vec::new();
    for victim in victims {
        let Some(pod) = cluster.pod(&victim.uid) else { continue };
        let name = format!("{}/{}", victim.namespace(), victim.name);
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

fn without(trial: Trial<'_>, pods: &[Pod]) -> Option<Fork> {
    let mut fork = trial.cluster.fork();
    for pod in pods {
        fork.remove_pod(&pod.uid).ok()?;
    }
    Some(fork)
}

fn fits_without(trial: Trial<'_>, node: NodeInfo<'_>, pods: &[Pod]) -> bool {
    let fork = without(trial, pods);
    fork.is_some_and(|fork| Trial { cluster: &fork, ..trial }.fits_on(node.name()))
}

/// The node's evictable pods whose removal makes it accept the pod: all are removed, and then pods return while the pod
/// still fits, the most important first.
fn evictable_victims(trial: Trial<'_>, node: NodeInfo<'_>) -> Option<Vec<Pod>> {
    let evictable = node.pods().filter(is_evictable);
    let mut pods: Vec<Pod> = evictable.map(|pod| pod.to_pod()).collect();
    pods.sort_by_key(|pod| (std::cmp::Reverse(pod.template.priority), pod.start_time));
    let mut fork = without(trial, &pods)?;
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
