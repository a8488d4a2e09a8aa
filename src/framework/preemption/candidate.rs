//! Candidates, and which of them is the best (`pickOneNodeForPreemption`).

use crate::model::{Name, Pod, Timestamp};

/// A node that will do once these pods are gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The node.
    pub node: Name,
    /// The pods that have to go, the most important first.
    pub victims: Vec<Pod>,
    /// How many of them their disruption budgets do not let go.
    pub violations: usize,
}

/// What speaks for a candidate, the most important first: the smaller the
/// better.
pub(super) type Key = (usize, i32, i64, usize, i64);

/// Of a candidate with these violations, whose victims have these priorities and
/// starts; the most important one comes first.
pub(super) fn key(
    violations: usize,
    mut victims: impl ExactSizeIterator<Item = (i32, Option<Timestamp>)> + Clone,
) -> Key {
    let (count, all) = (victims.len(), victims.clone());
    let Some((highest, _)) = victims.next() else {
        // Nobody has to go.
        return (0, i32::MIN, 0, 0, 0);
    };
    // So that ever so many low priorities weigh more than none.
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
        // The latest is the best.
        i64::MAX.saturating_sub(earliest.unwrap_or(i64::MAX)),
    )
}

fn key_of(candidate: &Candidate) -> Key {
    let victims = candidate.victims.iter();
    key(candidate.violations, victims.map(|pod| (pod.template.priority, pod.start_time)))
}

/// The positions of the candidates that are the best: those with the fewest
/// violations; of these with the lowest highest priority of a victim; the smallest
/// sum of priorities; the fewest victims; whose victim of the highest priority
/// started last.
#[must_use]
pub fn pick(candidates: &[Candidate]) -> Vec<usize> {
    let best = candidates.iter().map(key_of).min();
    let equals = candidates.iter().enumerate().filter(|(_, it)| Some(key_of(it)) == best);
    equals.map(|(at, _)| at).collect()
}

/// The best candidate, the first of several.
#[must_use]
pub fn best(mut candidates: Vec<Candidate>) -> Option<Candidate> {
    let first = *pick(&candidates).first()?;
    Some(candidates.swap_remove(first))
}
