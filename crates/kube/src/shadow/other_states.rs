//! The states that the other scheduler may have seen when it decided on a pod.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use portolan::cache::{Fork, Snapshot};
use portolan::model::{Generation, Name, Uid};

use super::recorder::{Binding, Rank, Seen, Since};
use super::verdict::OtherState;

/// The maximum number of bindings before a binding that are left out, and of those after it that are put in.
const NEAREST: usize = 32;
/// The maximum number of changes before which a version is tried.
const CHANGES: usize = 16;
/// The same with each of the less likely orders.
const FEW: usize = 4;
/// The maximum number of orders between the one by rank and the one by time. Even.
const BETWEEN: usize = 16;

/// An order in which a scheduler may decide on pods.
#[derive(Clone, Copy)]
enum Order {
    /// By priority, then by the time since which a pod is in the queue.
    ByRank,
    /// By the time alone.
    ByTime,
    /// Where the two disagree, a pod comes first if it entered the queue by this time.
    Until(Since),
}

/// A state, as a version with changes.
pub(super) struct State<'a> {
    version: &'a Arc<Snapshot>,
    earlier: Option<Duration>,
    /// Whether the version is one from after the binding.
    is_later: bool,
    put_in: Vec<&'a Binding>,
    left_out: Vec<&'a Binding>,
}

impl<'a> State<'a> {
    /// Returns the cluster in this state. O(changes × log n).
    pub(super) fn fork(&self) -> Fork {
        let mut fork = self.version.fork();
        for binding in &self.left_out {
            // The only error is that the pod has been deleted.
            let _ = fork.remove_pod(&binding.pod.uid);
        }
        for binding in &self.put_in {
            // The engine has accepted the pod, or refuses it for the same reason.
            let _ = fork.add_pod(&binding.bound);
        }
        fork
    }

    /// Returns whether the state differs from the one right before the binding.
    fn is_other(&self) -> bool {
        let is_changed = !self.put_in.is_empty() || !self.left_out.is_empty();
        is_changed || self.earlier.is_some() || self.is_later
    }

    /// Returns the key of the state among those of one binding.
    fn key(&self) -> (Generation, bool, Vec<&'a Uid>, Vec<&'a Uid>) {
        let uids = |bindings: &[&'a Binding]| bindings.iter().map(|one| &one.pod.uid).collect();
        (self.version.generation(), self.is_later, uids(&self.put_in), uids(&self.left_out))
    }

    /// Describes the state. The pods that are left out of a later version were not bound before, so they are no
    /// difference from the state right before the binding.
    pub(super) fn describe(&self) -> OtherState {
        let names = |bindings: &[&Binding]| bindings.iter().map(|one| name(one)).collect();
        OtherState {
            earlier: self.earlier,
            is_later: self.is_later,
            put_in: names(&self.put_in),
            left_out: if self.is_later { Vec::new() } else { names(&self.left_out) },
        }
    }
}

fn name(binding: &Binding) -> Name {
    format!("{}/{}", binding.pod.namespace(), binding.pod.name).into()
}

/// The changes and bindings around a binding.
pub(super) struct Around<'a> {
    pub(super) binding: &'a Binding,
    /// Those before it, the latest first, up to the beginning of the window.
    pub(super) before: Vec<&'a Seen>,
    /// Those after it, the earliest first, up to the end of the window.
    pub(super) after: Vec<&'a Seen>,
    /// The version at the end of the window.
    pub(super) last: &'a Arc<Snapshot>,
}

impl<'a> Around<'a> {
    /// Returns the first state that is accepted. The most likely ones are tried first, and none twice.
    pub(super) fn find(
        &self,
        mut is_accepted: impl FnMut(&State<'a>) -> bool,
    ) -> Option<State<'a>> {
        let is_candidate = |later: &&Binding| {
            // The scheduler cannot have decided on a pod that did not exist yet.
            later.appeared.is_none_or(|appeared| appeared < self.binding.at)
        };
        let is_recent = |one: &&Binding| !self.was_first(one);
        let earlier: Vec<&Binding> = bindings(&self.before).filter(is_recent).collect();
        let later: Vec<&Binding> = bindings(&self.after).filter(is_candidate).collect();
        let orders = self.orders(&earlier, &later);
        let (ends, between) = orders.split_at(2);
        let before_changes = |orders: &'_ [Order], most| {
            let of = orders.iter().map(|order| self.before_changes(order, &later, most));
            of.flatten().collect::<Vec<_>>()
        };
        let plain = |put_in: &[&'a Binding], left_out: &[&'a Binding]| State {
            version: &self.binding.version,
            earlier: None,
            is_later: false,
            put_in: put_in.to_vec(),
            left_out: left_out.to_vec(),
        };
        let (last, next) = (first(&earlier), first(&later));
        let mut states = orders
            .iter()
            .map(|order| self.in_order(order, &earlier, &later))
            .chain(std::iter::once_with(|| before_changes(ends, CHANGES)).flatten())
            .chain(std::iter::once_with(|| self.with_later_changes(&ends[0], &later)).flatten())
            .chain((1..=last.len()).map(|count| plain(&[], &last[..count])))
            .chain((1..=next.len()).map(|count| plain(&next[..count], &[])))
            .chain(last.iter().skip(1).map(|one| plain(&[], &[*one])))
            .chain(next.iter().skip(1).map(|one| plain(&[*one], &[])))
            .chain(std::iter::once_with(|| before_changes(between, FEW)).flatten());
        let mut known = HashSet::new();
        states.find(|state| state.is_other() && known.insert(state.key()) && is_accepted(state))
    }

    /// Returns the orders in which the scheduler may have decided on the pods of the window: by priority and then by
    /// time in the queue, as with a backlog; by time alone, as without one; and at most 16 orders between the two.
    ///
    /// A pod of higher priority that entered the queue later precedes this one if it entered before the decision on
    /// this one. A pod of lower priority that entered earlier precedes it if the decision on that pod came before this
    /// one entered. Neither time is known, so each such pod that was bound shortly before or after gives an order: all
    /// such pods up to its time precede.
    fn orders(&self, earlier: &[&Binding], later: &[&Binding]) -> Vec<Order> {
        let Rank { priority, since } = self.binding.rank;
        let is_open = |one: &&&Binding| {
            let by_priority = one.rank.priority.cmp(&priority);
            let is_equal = by_priority == Ordering::Equal;
            !is_equal && by_priority != one.rank.since.cmp(&since) && !self.was_first(one)
        };
        let nearest = |bindings: &[&Binding]| -> Vec<Since> {
            let open = bindings.iter().filter(is_open).take(BETWEEN / 2);
            open.map(|one| one.rank.since).collect()
        };
        let times = nearest(earlier).into_iter().chain(nearest(later));
        [Order::ByRank, Order::ByTime].into_iter().chain(times.map(Order::Until)).collect()
    }

    /// Returns whether a pod was bound before this one existed.
    fn was_first(&self, one: &Binding) -> bool {
        self.binding.appeared.is_some_and(|appeared| one.at <= appeared)
    }

    fn precedes(&self, order: &Order, one: &Binding) -> bool {
        if self.was_first(one) {
            return true;
        }
        let (this, other) = (self.binding.rank, one.rank);
        match order {
            Order::ByRank => other < this,
            Order::ByTime => other.since < this.since,
            Order::Until(time) => {
                let by_priority = other.priority.cmp(&this.priority);
                let by_time = other.since.cmp(&this.since);
                match by_priority {
                    Ordering::Equal => by_time == Ordering::Less,
                    _ if by_priority == by_time => by_time == Ordering::Less,
                    _ => other.since <= *time,
                }
            }
        }
    }

    /// Counts the pods that precede this one in an order, and no others of the window.
    fn in_order(&self, order: &Order, earlier: &[&'a Binding], later: &[&'a Binding]) -> State<'a> {
        let precedes = |one: &&Binding| self.precedes(order, one);
        State {
            version: &self.binding.version,
            earlier: None,
            is_later: false,
            put_in: later.iter().copied().filter(precedes).collect(),
            left_out: earlier.iter().copied().filter(|one| !precedes(one)).collect(),
        }
    }

    /// The versions before recent changes, with the pods that were bound since and precede this one.
    fn before_changes(&self, order: &Order, later: &[&'a Binding], most: usize) -> Vec<State<'a>> {
        let is_possible = |at: Instant| self.binding.appeared.is_none_or(|appeared| appeared <= at);
        let precedes = |one: &&Binding| self.precedes(order, one);
        let mut states = Vec::new();
        let mut since: Vec<&Binding> = later.iter().copied().filter(precedes).collect();
        for (seen, count) in self.before.iter().zip(1..) {
            match seen {
                Seen::Binding(binding) => since.extend(Some(&**binding).filter(precedes)),
                Seen::Change { at, version } if is_possible(*at) && states.len() < most => {
                    states.push(State {
                        version,
                        earlier: Some(self.binding.at.saturating_duration_since(*at)),
                        is_later: false,
                        put_in: since.clone(),
                        left_out: bindings(&self.before[count..])
                            .filter(|one| !precedes(one))
                            .collect(),
                    });
                }
                Seen::Change { .. } => {}
            }
        }
        states
    }

    /// The version at the end of the window without this pod and the pods bound after it, except for those that precede
    /// it in the queue. Watches of different kinds have no common order, so the scheduler may have seen a change of a
    /// node that the mirror saw after the binding.
    fn with_later_changes(&self, order: &Order, later: &[&'a Binding]) -> Option<State<'a>> {
        let is_change = |seen: &&&Seen| matches!(seen, Seen::Change { .. });
        self.after.iter().find(is_change)?;
        let precedes = |one: &&Binding| self.precedes(order, one);
        let put_in: Vec<&Binding> = later.iter().copied().filter(precedes).collect();
        let is_left = |one: &&Binding| !put_in.iter().any(|other| std::ptr::eq(*other, *one));
        let left_out = bindings(&self.after).filter(is_left).chain([self.binding]).collect();
        Some(State { version: self.last, earlier: None, is_later: true, put_in, left_out })
    }
}

fn bindings<'a>(seen: &[&'a Seen]) -> impl Iterator<Item = &'a Binding> {
    seen.iter().filter_map(|seen| match seen {
        Seen::Binding(binding) => Some(&**binding),
        Seen::Change { .. } => None,
    })
}

fn first<'s, 'a>(bindings: &'s [&'a Binding]) -> &'s [&'a Binding] {
    &bindings[..bindings.len().min(NEAREST)]
}
