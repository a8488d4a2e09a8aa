//! Which candidate it is to be (`pickOneNodeForPreemption`).

use super::Candidate;

/// What speaks for a candidate, the most important first: the smaller the
/// better.
fn key(candidate: &Candidate) -> (usize, i32, i64, usize, i64) {
    let victims = &candidate.victims;
    let Some(first) = victims.first() else {
        // Nobody has to go.
        return (0, i32::MIN, 0, 0, 0);
    };
    let highest = first.template.priority;
    // So that ever so many low priorities weigh more than none.
    let weight = |priority: i32| i64::from(priority) + i64::from(i32::MAX) + 1;
    let earliest = victims
        .iter()
        .filter(|pod| pod.template.priority == highest)
        .map(|pod| pod.start_time.map_or(i64::MAX, |start| start.0))
        .min();
    (
        candidate.violations,
        highest,
        victims.iter().map(|pod| weight(pod.template.priority)).sum(),
        victims.len(),
        // The latest is the best.
        i64::MAX.saturating_sub(earliest.unwrap_or(i64::MAX)),
    )
}

/// The positions of the candidates that are the best: those with the fewest
/// violations; of these with the lowest highest priority of a victim; the smallest
/// sum of priorities; the fewest victims; whose victim of the highest priority
/// started last.
#[must_use]
pub fn pick(candidates: &[Candidate]) -> Vec<usize> {
    let best = candidates.iter().map(key).min();
    let equals = candidates.iter().enumerate().filter(|(_, it)| Some(key(it)) == best);
    equals.map(|(at, _)| at).collect()
}

/// The best candidate, the first of several.
#[must_use]
pub fn best(mut candidates: Vec<Candidate>) -> Option<Candidate> {
    let first = *pick(&candidates).first()?;
    Some(candidates.swap_remove(first))
}
