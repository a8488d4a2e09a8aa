//! Candidates for preemption, and the choice of the best one (`pickOneNodeForPreemption`).

use crate::model::{Name, Pod, Timestamp};

/// A node that passes once its victims are evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The node.
    pub node: Name,
    /// The pods to evict, the most important first.
    pub victims: Vec<Pod>,
    /// The number of victims whose eviction violates a disruption budget.
    pub violations: usize,
}

/// The criteria by which candidates are compared, the most important first. The smallest key is the best.
pub(super) type Key = (usize, i32, i64, usize, i64);

/// Returns the key of a candidate with this number of violations, whose victims have these priorities and start times,
/// the most important victim first.
pub(super) fn key(
    violations: usize,
    mut victims: impl ExactSizeIterator<Item = (i32, Option<Timestamp>)> + Clone,
) -> Key {
    let (count, all) = (victims.len(), victims.clone());
    let Some((highest, _)) = victims.next() else {
        // There are no victims.
        return (0, i32::MIN, 0, 0, 0);
    };
    // The offset makes the weights non-negative. Otherwise, of victims with a negative priority, more would count as
    // better than fewer.
    let weight = |priority: i32| i64::from(priority) + i64::from(i32::MAX) + 1;
    let earliest = all
        .clone()
        .filter(|(priority, _)| *priority == highest)
        .map(|(_, start)| start.map_or(i64::MAX, |start| start.0))
        .min();
    (
        violations,
        highest,
        all.map(|(priority, _)| weight(priority)).sum(),
        count,
        // The latest start is the best.
        i64::MAX.saturating_sub(earliest.unwrap_or(i64::MAX)),
    )
}

fn key_of(candidate: &Candidate) -> Key {
    let victims = candidate.victims.iter();
    key(candidate.violations, victims.map(|pod| (pod.template.priority, pod.start_time)))
}

/// Returns the indices of the best candidates. The criteria are, in this order: the fewest violations, the lowest
/// highest priority of a victim, the lowest sum of priorities, the fewest victims, and the latest start time of the
/// earliest victim with the highest priority.
#[doc(hidden)]
#[must_use]
pub fn pick(candidates: &[Candidate]) -> Vec<usize> {
    let best = candidates.iter().map(key_of).min();
    let ties =
        candidates.iter().enumerate().filter(|(_, candidate)| Some(key_of(candidate)) == best);
    ties.map(|(at, _)| at).collect()
}
