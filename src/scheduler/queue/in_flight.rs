//! Pods that are being tried, and what happened since each was popped
//! (backend/queue/active_queue.go `inFlightPods`, `inFlightEvents`).
//!
//! A pod is judged on a version. What happens after that may make it schedulable, and
//! would be lost: the pod is in no queue while it is tried. So events are kept while
//! any pod is in flight, and one that comes back in vain is asked about those since it
//! was popped. Events have consecutive numbers, a pod remembers the number of the first
//! one that is news to it, and the pods hang together in the order in which they were
//! popped: the oldest says which events nobody needs any more. All of that costs no
//! allocation a pod.

use std::collections::VecDeque;

use crate::framework::{Actions, ClusterEvent, EventResource};
use crate::model::{Change, Uid};

use super::heap::Slot;
use super::pods::{NONE, Pods};

/// What happened.
#[derive(Clone, Debug)]
pub(super) enum Happening {
    /// An event of the cluster.
    Event { resource: EventResource, action: Actions, change: Change },
    /// Somebody wants this pod to be tried (`ForceActivate`).
    Activated(Uid),
}

impl Happening {
    pub(super) fn of(event: &ClusterEvent<'_>) -> Happening {
        let ClusterEvent { resource, action, change } = *event;
        Happening::Event { resource, action, change: change.clone() }
    }
}

#[derive(Debug)]
pub(super) struct InFlight {
    /// The pod that was popped first, and the one popped last.
    oldest: Slot,
    newest: Slot,
    len: usize,
    /// The number of the first event that is kept.
    first: u64,
    events: VecDeque<Happening>,
}

impl Default for InFlight {
    fn default() -> InFlight {
        InFlight { oldest: NONE, newest: NONE, len: 0, first: 0, events: VecDeque::new() }
    }
}

impl InFlight {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many events are kept.
    pub(super) fn events(&self) -> usize {
        self.events.len()
    }

    /// A pod is popped.
    pub(super) fn push(&mut self, slot: Slot, pods: &mut Pods) {
        let newest = self.newest;
        let since = self.first + self.events.len() as u64;
        if let Some(entry) = pods.get_mut(slot) {
            (entry.before, entry.after, entry.since) = (newest, NONE, since);
        }
        match pods.get_mut(newest) {
            Some(before) => before.after = slot,
            None => self.oldest = slot,
        }
        self.newest = slot;
        self.len += 1;
    }

    /// Something happened; nobody will ask if no pod is in flight.
    pub(super) fn note(&mut self, happening: impl FnOnce() -> Happening) {
        if !self.is_empty() {
            self.events.push_back(happening());
        }
    }

    /// What happened since a pod was popped.
    pub(super) fn since(&self, since: u64) -> impl Iterator<Item = &Happening> {
        let known = usize::try_from(since.saturating_sub(self.first)).unwrap_or(usize::MAX);
        self.events.iter().skip(known)
    }

    /// A pod is in flight no more; what only it would have asked about goes.
    pub(super) fn remove(&mut self, slot: Slot, pods: &mut Pods) {
        let Some(entry) = pods.get(slot) else { return };
        let (before, after) = (entry.before, entry.after);
        match pods.get_mut(before) {
            Some(entry) => entry.after = after,
            None => self.oldest = after,
        }
        match pods.get_mut(after) {
            Some(entry) => entry.before = before,
            None => self.newest = before,
        }
        self.len -= 1;
        let end = self.first + self.events.len() as u64;
        let needed = pods.get(self.oldest).map_or(end, |oldest| oldest.since);
        while self.first < needed {
            self.events.pop_front();
            self.first += 1;
        }
    }
}
