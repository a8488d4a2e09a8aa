//! Preemption: the search for a node that passes without some of its pods, and for the pods whose eviction matters
//! least (framework/preemption).
//!
//! Each node that may pass with fewer pods is tried: by the sums of what its pods request if the filters read nothing
//! else, otherwise on a fork. Which nodes are tried first, if not all are, follows from the pod's uid, so that a replay
//! tries the same ones; kube-scheduler starts at random.

mod candidate;
mod dry_run;
#[cfg(test)]
mod tests;

use crate::model::stable_hash_of;
use crate::snapshot::{NodeInfo, lanes};

use super::{Cycle, Diagnosis, Reasons, Status};

pub use candidate::{Candidate, best, pick};
pub use dry_run::DryRun;
pub(crate) use dry_run::best_found;

const NO_VICTIMS: &str = "No preemption victims found for incoming pod";

/// The outcome of a search for candidates.
pub(crate) struct Search {
    /// The best candidate that was found.
    pub(crate) best: Option<Candidate>,
    /// Why other nodes are no candidates, with their numbers.
    pub(crate) reasons: Reasons,
    /// How many nodes `reasons` counts.
    pub(crate) rejected: usize,
}

impl Search {
    /// Searches the nodes that may pass without some of their pods. `enough` returns how many candidates end the
    /// search of so many nodes, if one of them violates no disruption budget.
    ///
    /// # Errors
    ///
    /// A plugin failed.
    pub(crate) fn run(
        cycle: Cycle<'_>,
        diagnosis: &Diagnosis<'_>,
        enough: impl Fn(usize) -> usize,
    ) -> Result<Search, Status> {
        let mut reasons = Reasons::default();
        let (nodes, mut rejected) = with_lower(cycle, diagnosis);
        reasons.add(NO_VICTIMS, rejected);
        let run = DryRun::new(cycle, diagnosis.filters());
        let enough = enough(nodes.len() + rejected);
        let offset = stable_hash_of(&cycle.pod.uid.stable_key()) as usize % nodes.len().max(1);
        let (mut free, mut violating) = (Vec::new(), Vec::new());
        for at in 0..nodes.len() {
            match run.find(nodes[(offset + at) % nodes.len()]) {
                Ok(found) if found.is_free() => free.push(found),
                Ok(found) => violating.push(found),
                Err(status) if status.code.is_rejection() => {
                    rejected += 1;
                    status.reasons.into_iter().for_each(|reason| reasons.add(reason, 1));
                }
                Err(status) => return Err(status),
            }
            if !free.is_empty() && free.len() + violating.len() >= enough {
                break;
            }
        }
        let best = best_found(free.into_iter().chain(violating));
        Ok(Search { best, reasons, rejected })
    }
}

/// The nodes that may pass without some of their pods and that may have pods of lower
/// priority, and how many of the former have none for certain.
fn with_lower<'a>(cycle: Cycle<'a>, diagnosis: &Diagnosis<'a>) -> (Vec<NodeInfo<'a>>, usize) {
    let (cluster, priority) = (cycle.cluster, cycle.pod.template.priority);
    let (mut nodes, mut without) = (Vec::new(), 0);
    for (chunk, mask) in diagnosis.resolvable().filter(|(_, mask)| *mask != 0) {
        if chunk.tally(cluster).lowest_priority() >= priority {
            without += mask.count_ones() as usize;
            continue;
        }
        nodes.extend(lanes(mask).filter_map(|lane| cluster.node_in(chunk, lane)));
    }
    (nodes, without)
}
