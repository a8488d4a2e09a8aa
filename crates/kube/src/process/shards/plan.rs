//! Decides a replica's next actions on the Leases of the shards: a pure function of the Leases as the replica sees
//! them.
//!
//! - A shard that nobody holds is taken at once by a replica that has fewer than its share, and by any other replica
//!   one lease duration later. A shard of a dead replica is thus always taken over.
//! - A replica with at least 2 shards fewer than another one asks for as many as make both equal, by an annotation.
//! - The holder gives a shard up if the replica that asks still has at least 2 fewer, and removes the request
//!   otherwise. A shard that was given up is reserved for the replica that asked, for one lease duration. The next one
//!   is given up for this replica only after it has taken the first, so a replica that has died leaves at most one
//!   shard at a time without a holder.
//!
//! Each shard that is given up reduces the sum of the squares of the counts, so shards do not go back and forth. At
//! rest, the counts of any two replicas differ by at most 1.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::super::lease::Holder;

/// A shard's Lease as a replica sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct View {
    pub(super) holder: Holder,
    /// The replica that asks for the shard.
    pub(super) wanted_by: Option<String>,
    /// Whether this replica holds the Lease and is giving it up.
    pub(super) is_ending: bool,
    /// Whether this replica could not use the shard and leaves it to others for a time. Meanwhile it asks for none.
    pub(super) is_avoided: bool,
    /// Whether this replica recently failed to take the Lease, and ignores the shard for a while: a Lease that cannot
    /// be taken must not keep the replica from asking for others.
    pub(super) has_failed: bool,
}

/// An action on the shard with this index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Take a shard that nobody holds, or whose Lease unexpectedly names this replica.
    Take(usize),
    /// Ask the holder for the shard.
    Ask(usize),
    /// Give the shard up.
    GiveUp(usize),
    /// Remove the request for the shard.
    Decline(usize),
}

/// Counts of shards by replica.
#[derive(Default)]
struct Counts<'a>(BTreeMap<&'a str, usize>);

impl<'a> Counts<'a> {
    fn of(&self, replica: &str) -> usize {
        self.0.get(replica).copied().unwrap_or(0)
    }

    fn add(&mut self, replica: &'a str) {
        *self.0.entry(replica).or_default() += 1;
    }

    fn take(&mut self, replica: &str) {
        if let Some(count) = self.0.get_mut(replica) {
            *count = count.saturating_sub(1);
        }
    }
}

/// Returns the next actions of the replica `me`. `first` is the shard with which it begins: replicas that begin with
/// different shards rarely try to take the same one. O(shards²).
pub(super) fn plan(
    me: &str,
    views: &[View],
    first: usize,
    lease_duration: Duration,
) -> Vec<Action> {
    let mut actions = take(me, views, first, lease_duration);
    if actions.is_empty() {
        actions = give_up(me, views);
        if !views.iter().any(|view| view.is_avoided) {
            actions.extend(ask(me, views, first));
        }
    }
    actions
}

/// The replicas that are known to live: those that hold a shard or ask for one, and this one.
fn live<'a>(me: &'a str, views: &'a [View]) -> BTreeSet<&'a str> {
    let mut live = BTreeSet::from([me]);
    for view in views {
        if let Holder::Other(holder) = &view.holder {
            live.insert(holder);
        }
        live.extend(view.wanted_by.as_deref());
    }
    live
}

fn take(me: &str, views: &[View], first: usize, lease_duration: Duration) -> Vec<Action> {
    let share = views.len().div_ceil(live(me, views).len());
    let mut mine = views.iter().filter(|view| view.holder == Holder::Us && !view.is_ending).count();
    let mut taken = Vec::new();
    for at in (0..views.len()).map(|at| (at + first) % views.len()) {
        let View { holder, wanted_by, is_avoided, has_failed, .. } = &views[at];
        let Holder::Nobody(since) = holder else { continue };
        let is_mine = match wanted_by.as_deref() {
            _ if *is_avoided || *has_failed => false,
            Some(by) if by == me => true,
            Some(_) if *since < lease_duration => false,
            _ => mine < share || *since >= lease_duration,
        };
        if is_mine {
            mine += 1;
            taken.push(Action::Take(at));
        }
    }
    taken
}

/// Answers the requests for this replica's shards. Requests remain if their replica has not yet taken a shard that was
/// given up for it.
fn give_up(me: &str, views: &[View]) -> Vec<Action> {
    let mut counts = Counts::default();
    for view in views {
        match (&view.holder, view.wanted_by.as_deref()) {
            (Holder::Us, _) if !view.is_ending => counts.add(me),
            (Holder::Other(holder), _) => counts.add(holder),
            // Given up for this replica.
            (_, Some(by)) => counts.add(by),
            _ => {}
        }
    }
    let is_given_up = |view: &&View| view.is_ending || matches!(view.holder, Holder::Nobody(_));
    let given_up = views.iter().filter(is_given_up);
    let mut served: BTreeSet<&str> =
        given_up.filter_map(|view| view.wanted_by.as_deref()).collect();
    let mut answers = Vec::new();
    for (at, view) in views.iter().enumerate() {
        let Some(by) = view.wanted_by.as_deref() else { continue };
        if view.holder != Holder::Us || view.is_ending {
            continue;
        }
        if by == me || counts.of(me) < counts.of(by) + 2 {
            answers.push(Action::Decline(at));
        } else if served.insert(by) {
            counts.take(me);
            counts.add(by);
            answers.push(Action::GiveUp(at));
        }
    }
    answers
}

/// Asks for shards as if every request of another replica had been granted.
fn ask(me: &str, views: &[View], first: usize) -> Vec<Action> {
    let mut counts = Counts::default();
    for view in views {
        match (&view.holder, view.wanted_by.as_deref()) {
            (_, Some(by)) => counts.add(by),
            (Holder::Us, None) => counts.add(me),
            (Holder::Other(holder), None) => counts.add(holder),
            (Holder::Nobody(_), None) => {}
        }
    }
    let mut left: Vec<(usize, &str)> = Vec::new();
    for at in (0..views.len()).map(|at| (at + first) % views.len()) {
        if let (Holder::Other(holder), None) = (&views[at].holder, &views[at].wanted_by) {
            left.push((at, holder));
        }
    }
    let mut asked = Vec::new();
    while let Some((at, holder)) = left.iter().copied().max_by_key(|(_, of)| counts.of(of))
        && counts.of(holder) >= counts.of(me) + 2
    {
        counts.take(holder);
        counts.add(me);
        left.retain(|(other, _)| *other != at);
        asked.push(Action::Ask(at));
    }
    asked
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
