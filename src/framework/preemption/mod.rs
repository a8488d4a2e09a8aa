//! Preemption: finds a node that passes without some of its pods, and the least important pods whose eviction suffices
//! (framework/preemption).
//!
//! Each node that may pass with fewer pods is tried: from the sums of its pods' requests if the filters read nothing
//! else, otherwise on a fork. If not all nodes are tried, the pod's uid determines where the search starts, so a replay
//! tries the same nodes; kube-scheduler starts at random.

mod candidate;
mod dry_run;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::model::stable_hash_of;
use crate::snapshot::{NodeInfo, PodInfo, Snapshot, lanes};

use super::extender::{self, no_victim};
use super::{Cycle, Diagnosis, Handle, PREEMPTION, Reasons, Status};

pub use candidate::{Candidate, pick};
pub use dry_run::DryRun;
use dry_run::Found;
pub(crate) use dry_run::best_found;

const NO_VICTIMS: &str = "No preemption victims found for incoming pod";

/// The result of a search for candidates.
pub(crate) struct Search {
    /// The best candidate found, among those that the extenders kept.
    pub(crate) best: Option<Candidate>,
    /// Whether there were candidates and the extenders kept none of them.
    pub(crate) is_emptied: bool,
    /// The reasons why other nodes are not candidates, with the number of nodes for each.
    pub(crate) reasons: Reasons,
    /// The number of nodes that gave a reason.
    pub(crate) rejected: usize,
}

impl Search {
    /// Tries the nodes that may pass without some of their pods. `enough` maps the number of these nodes to the number
    /// of candidates after which the search stops, if at least one of them violates no disruption budget. The extenders
    /// of the handle then choose among the candidates.
    ///
    /// # Errors
    ///
    /// Returns an error if a plugin or an extender fails, or if nodes that an extender rejected are the only
    /// candidates: they pass the plugins without the removal of any pod.
    pub(crate) fn run(
        cycle: Cycle<'_>,
        diagnosis: &Diagnosis<'_>,
        handle: &Handle,
        enough: impl Fn(usize) -> usize,
    ) -> Result<Search, Status> {
        let mut reasons = Reasons::default();
        let Possible { with_lower, listed, without } =
            Possible::of(diagnosis, cycle.pod.template.priority);
        reasons.add(NO_VICTIMS, without);
        let mut rejected = without;
        let run =
            DryRun::new(cycle, diagnosis.filters()).with_being_evicted(handle.being_evicted());
        let enough = enough(with_lower.len() + without);
        let offset = stable_hash_of(&cycle.pod.uid.stable_key()) as usize % listed.max(1);
        let (before, after) =
            with_lower.split_at(with_lower.partition_point(|(position, _)| *position < offset));
        let (mut free, mut violating) = (Vec::new(), Vec::new());
        let mut unneeded = BTreeSet::new();
        for (_, node) in after.iter().chain(before) {
            match run.find_or_count(*node, &mut reasons)? {
                Some(found) if found.is_empty() => {
                    unneeded.insert(no_victim(node.name()));
                }
                Some(found) if found.is_free() => free.push(found),
                Some(found) => violating.push(found),
                None => rejected += 1,
            }
            if !free.is_empty() && free.len() + violating.len() >= enough {
                break;
            }
        }
        let found = free.into_iter().chain(violating);
        if !handle.extenders().is_empty() && extender::supports_preemption(handle, cycle.pod) {
            let candidates: Vec<Candidate> = found.map(Found::into_candidate).collect();
            let are_found = !candidates.is_empty();
            let mut left = extender::preempt(handle, cycle, candidates)?;
            let best = pick(&left).first().map(|at| left.swap_remove(*at));
            if best.is_some() || are_found {
                return Ok(Search { is_emptied: best.is_none(), best, reasons, rejected });
            }
        } else if let Some(best) = best_found(found) {
            return Ok(Search { best: Some(best), is_emptied: false, reasons, rejected });
        }
        match aggregate(unneeded) {
            Some(errors) => Err(Status::error(PREEMPTION, errors)),
            None => Ok(Search { best: None, is_emptied: false, reasons, rejected }),
        }
    }
}

/// Returns whether a victim of lower priority than the pod is terminating on the node or is being evicted from it, or
/// whether a pod of lower priority has ended since the cycle's version. If a victim is being evicted, the pod is tried
/// again if that eviction fails.
pub(crate) fn has_terminating_victim(
    Cycle { cluster, pod, .. }: Cycle<'_>,
    node: NodeInfo<'_>,
    handle: &Handle,
) -> bool {
    let lower = || node.pods().filter(|it| it.template().priority < pod.template.priority);
    let is_terminating =
        |it: PodInfo<'_>| it.template().is_preempted && it.deletion_time().is_some();
    let awaits = |it: PodInfo<'_>| handle.being_evicted().awaits(&it.uid(), &pod.uid);
    if lower().any(|it| is_terminating(it) || awaits(it)) {
        return true;
    }
    // After the question above: an eviction ends once the log's newest version has the victim's end. The event of that
    // end, which is newer than this attempt, queues the pod.
    let newer = |now: &Arc<Snapshot>| {
        now.branch() == cluster.branch() && now.generation() > cluster.generation()
    };
    let Some(now) = handle.snapshot().filter(newer) else { return false };
    let has_ended = |it: PodInfo<'_>| now.pod(&it.uid()).is_none_or(is_terminating);
    lower().any(|it| it.deletion_time().is_none() && has_ended(it))
}

/// Joins error messages as apimachinery's `NewAggregate` does.
fn aggregate(errors: BTreeSet<String>) -> Option<String> {
    let mut errors: Vec<String> = errors.into_iter().collect();
    match errors.len() {
        0 | 1 => errors.pop(),
        _ => Some(format!("[{}]", errors.join(", "))),
    }
}

/// The nodes that may pass without some of their pods.
struct Possible<'a> {
    /// Those with pods of lower priority, each with its position among `listed` nodes.
    with_lower: Vec<(usize, NodeInfo<'a>)>,
    /// The number of nodes in chunks that have pods of lower priority on any node. The pod's uid determines one of them
    /// as the start of the search.
    listed: usize,
    /// The number of nodes without pods of lower priority.
    without: usize,
}

impl<'a> Possible<'a> {
    fn of(diagnosis: &Diagnosis<'a>, priority: i32) -> Possible<'a> {
        let cluster = diagnosis.filters().cycle.cluster;
        let mut possible = Possible { with_lower: Vec::new(), listed: 0, without: 0 };
        for (chunk, mask) in diagnosis.resolvable().filter(|(_, mask)| *mask != 0) {
            let count = |lanes: u64| lanes.count_ones() as usize;
            let below = chunk.tally(cluster).lanes_below(priority);
            possible.without += count(mask & !below);
            if below == 0 {
                continue;
            }
            let nodes = lanes(mask & below).filter_map(|lane| {
                let before = count(mask & ((1 << lane) - 1));
                Some((possible.listed + before, cluster.node_in(chunk, lane)?))
            });
            possible.with_lower.extend(nodes);
            possible.listed += count(mask);
        }
        possible
    }
}
