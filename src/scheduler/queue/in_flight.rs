//! The pods in flight, and the events since each of them was popped (backend/queue/active_queue.go `inFlightPods`,
//! `inFlightEvents`).
//!
//! A pod is decided on a version. An event after that version may make the pod schedulable, but the pod is in no queue
//! during its attempt, so the event would be lost. Events are therefore kept while any pod is in flight, and a pod that
//! returns unplaced is checked against those since its pop. Events have consecutive numbers, each pod stores the number
//! of the first event after its pop, and the pods form a linked list in the order of their pops: the oldest pod
//! determines which events can be dropped. This needs no allocation per pod.
//!
//! A pod that is never returned must not keep all later events, so these are limited in number and age. A pod that
//! returns after events since its pop were dropped is treated as if one of them had helped: it backs off and is tried
//! again.

use std::collections::VecDeque;
use std::time::Duration;

use crate::framework::{Actions, ClusterEvent, EventResource};
use crate::model::{Change, Timestamp, Uid};

use super::heap::Slot;
use super::pods::{NONE, Pods};

/// An event that is kept for the pods in flight.
#[derive(Clone, Debug)]
pub(super) enum QueueEvent {
    /// An event of the cluster.
    Event { resource: EventResource, action: Actions, change: Change },
    /// An attempt was requested for this pod (`ForceActivate`).
    Activated(Uid),
}

impl QueueEvent {
    pub(super) fn of(event: &ClusterEvent<'_>) -> QueueEvent {
        let ClusterEvent { resource, action, change } = *event;
        QueueEvent::Event { resource, action, change: change.clone() }
    }
}

/// The largest number of events that are kept.
const MAX_EVENTS: usize = 1 << 16;

#[derive(Debug)]
pub(super) struct InFlight {
    /// The pods that were popped first and last.
    oldest: Slot,
    newest: Slot,
    len: usize,
    /// The number of the first event that is kept.
    first: u64,
    events: VecDeque<(Timestamp, QueueEvent)>,
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

    /// The number of events that are kept.
    pub(super) fn events(&self) -> usize {
        self.events.len()
    }

    /// Appends a popped pod.
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

    /// Records an event, unless no pod is in flight and it can never be needed. Drops the events that are older than
    /// `max_age`, and the oldest ones if there are too many.
    pub(super) fn note(
        &mut self,
        now: Timestamp,
        max_age: Duration,
        recorded: impl FnOnce() -> QueueEvent,
    ) {
        if self.is_empty() {
            return;
        }
        self.events.push_back((now, recorded()));
        while self.events.len() > MAX_EVENTS
            || self.events.front().is_some_and(|(at, _)| now.since(*at) > max_age)
        {
            self.events.pop_front();
            self.first += 1;
        }
    }

    /// Iterates over the events from number `since` on. Returns `None` if some of them were dropped, or are older than
    /// `max_age`.
    pub(super) fn since(
        &self,
        since: u64,
        now: Timestamp,
        max_age: Duration,
    ) -> Option<impl Iterator<Item = &QueueEvent>> {
        let known = usize::try_from(since.checked_sub(self.first)?).unwrap_or(usize::MAX);
        let is_old = self.events.get(known).is_some_and(|(at, _)| now.since(*at) > max_age);
        (!is_old).then(|| self.events.iter().skip(known).map(|(_, event)| event))
    }

    /// Iterates over all events that are kept.
    #[cfg(feature = "metrics")]
    pub(super) fn all(&self) -> impl Iterator<Item = &QueueEvent> {
        self.events.iter().map(|(_, event)| event)
    }

    /// Removes a pod, and drops the events that only this pod needed.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_limited_in_number_and_age() {
        let event = || QueueEvent::Activated("p".into());
        let mut in_flight = InFlight { len: 1, ..InFlight::default() };
        let (start, age) = (Timestamp::from_secs(0), Duration::from_secs(300));
        for _ in 0..=MAX_EVENTS {
            in_flight.note(start, age, event);
        }
        assert_eq!(in_flight.events(), MAX_EVENTS);
        assert!(in_flight.since(0, start, age).is_none());
        assert!(in_flight.since(1, start, age).is_some());
        assert!(in_flight.since(1, Timestamp::from_secs(301), age).is_none());
        in_flight.note(Timestamp::from_secs(301), age, event);
        assert_eq!(in_flight.events(), 1);
        let since = in_flight.since(MAX_EVENTS as u64 + 1, Timestamp::from_secs(301), age);
        assert_eq!(since.map(Iterator::count), Some(1));
    }
}
