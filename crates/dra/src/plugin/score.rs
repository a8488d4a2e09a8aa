//! Score: prefers nodes on which earlier alternatives of requests are allocated.

use std::sync::Arc;

use portolan::cache::NodeInfo;
use portolan::plugin::{Cycle, Feasible, PreScore, Score, ScoredNodes, Status};

use super::NAME;
use super::state::PodState;
use crate::model::ResourceClaim;

struct Alternatives {
    state: Arc<PodState>,
    /// The score of the claims that were allocated before.
    allocated: i64,
}

pub(super) fn pre_score<'a>(cycle: Cycle<'a>, feasible: &'a Feasible<'a>) -> PreScore<'a> {
    let Some(state) = cycle.state.read::<PodState>(NAME) else { return PreScore::All(0) };
    if state.is_plain() {
        // No request has alternatives.
        return PreScore::All(0);
    }
    let allocated =
        state.claims.iter().filter(|of| !of.is_to_allocate).map(|of| score_of(&of.claim)).sum();
    let score = Alternatives { state, allocated };
    let is_zero = feasible.nodes().all(|node| score.of(node) == 0);
    if is_zero { PreScore::All(0) } else { PreScore::Score(Box::new(score)) }
}

/// Returns the score of an allocated claim: 8 for each request with alternatives, less the index of the chosen one.
fn score_of(claim: &ResourceClaim) -> i64 {
    let Some(allocation) = &claim.status.allocation else { return 0 };
    let requests = &claim.spec.devices.requests;
    let chosen = requests.iter().filter_map(|request| {
        let results = allocation.devices.results.iter();
        let mut subs = results.filter_map(|result| result.request.split_once('/'));
        let (_, sub) = subs.find(|(name, _)| **name == *request.name)?;
        let index = request.first_available.iter().position(|of| *of.name == *sub)?;
        i64::try_from(index).ok()
    });
    chosen.map(|index| 8 - index).sum()
}

impl Alternatives {
    fn of(&self, node: NodeInfo<'_>) -> i64 {
        let chosen = self.state.chosen(node.name());
        chosen.map_or(0, |chosen| chosen.allocation.score + self.allocated)
    }
}

impl Score for Alternatives {
    fn score(&self, node: NodeInfo<'_>) -> Result<i64, Status> {
        Ok(self.of(node))
    }

    fn needs_normalize(&self) -> bool {
        true
    }

    fn normalize(&self, _: &ScoredNodes<'_>, scores: &mut [i64]) -> Result<(), Status> {
        let largest = scores.iter().copied().max().unwrap_or(0);
        for score in scores {
            *score = if largest == 0 { 0 } else { *score * 100 / largest };
        }
        Ok(())
    }
}
