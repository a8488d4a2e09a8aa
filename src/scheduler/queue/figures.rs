//! The figures of the queue: pods by place, and incoming pods by cause (kube-scheduler's `pending_pods` and
//! `queue_incoming_pods_total`).

use std::fmt;

use crate::framework::{Actions, EventResource};

use super::Place;

/// What brings a pod into a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The pod appeared.
    PodAdd,
    /// The pod changed.
    PodUpdate,
    /// An attempt to schedule the pod failed.
    AttemptFailure,
    /// The pod's backoff is over.
    BackoffComplete,
    /// An attempt was requested for the pod.
    Activate,
    /// The pod waited for an event for too long.
    Timeout,
    /// An event may make the pod schedulable: this action on this resource.
    Event(EventResource, Actions),
}

impl fmt::Display for Cause {
    /// Writes the label that kube-scheduler's metrics use.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::PodAdd => f.write_str("UnscheduledPodAdd"),
            Cause::PodUpdate => f.write_str("UnscheduledPodUpdate"),
            Cause::AttemptFailure => f.write_str("ScheduleAttemptFailure"),
            Cause::BackoffComplete => f.write_str("BackoffComplete"),
            Cause::Activate => f.write_str("ForceActivate"),
            Cause::Timeout => f.write_str("UnschedulableTimeout"),
            Cause::Event(resource, action) => write!(f, "{}{action}", resource.as_str()),
        }
    }
}

impl Cause {
    const EVENTS: usize = 6;
    const COUNT: usize = Cause::EVENTS + EventResource::ALL.len() * Actions::COUNT;

    fn index(self) -> usize {
        match self {
            Cause::PodAdd => 0,
            Cause::PodUpdate => 1,
            Cause::AttemptFailure => 2,
            Cause::BackoffComplete => 3,
            Cause::Activate => 4,
            Cause::Timeout => 5,
            Cause::Event(resource, action) => {
                Cause::EVENTS + resource as usize * Actions::COUNT + action.index()
            }
        }
    }

    fn all() -> impl Iterator<Item = Cause> {
        use Cause::{Activate, AttemptFailure, BackoffComplete, PodAdd, PodUpdate, Timeout};
        let events = EventResource::ALL.into_iter().flat_map(|resource| {
            Actions::ALL.iter().map(move |action| Cause::Event(resource, action))
        });
        [PodAdd, PodUpdate, AttemptFailure, BackoffComplete, Activate, Timeout]
            .into_iter()
            .chain(events)
    }
}

/// Counts incoming pods by cause and place.
pub(super) struct Incoming(Box<[[u64; Place::QUEUES.len()]; Cause::COUNT]>);

impl Default for Incoming {
    fn default() -> Incoming {
        Incoming(Box::new([[0; Place::QUEUES.len()]; Cause::COUNT]))
    }
}

impl Incoming {
    pub(super) fn count(&mut self, cause: Cause, place: Place) {
        if let Some(at) = Place::QUEUES.iter().position(|queue| *queue == place) {
            self.0[cause.index()][at] += 1;
        }
    }

    /// Iterates over the counts that are not zero.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Cause, Place, u64)> {
        Cause::all().zip(self.0.iter()).flat_map(|(cause, counts)| {
            let counted = Place::QUEUES.into_iter().zip(*counts);
            counted.filter(|(_, n)| *n > 0).map(move |(place, n)| (cause, place, n))
        })
    }
}

/// The number of pods in each place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueFigures {
    /// Pods ready to be tried.
    pub active: usize,
    /// Pods backing off after a rejection or an error.
    pub backoff: usize,
    /// Pods waiting for an event.
    pub unschedulable: usize,
    /// Pods gated by a PreEnqueue plugin.
    pub gated: usize,
    /// Pods whose attempt is in progress.
    pub in_flight: usize,
    /// Placed pods whose binding is in progress.
    pub binding: usize,
    /// Events kept for the pods in flight.
    pub in_flight_events: usize,
    /// Events that were taken in and are not fully processed.
    pub backlog: usize,
}

impl QueueFigures {
    /// The number of pods that the queue knows.
    #[must_use]
    pub fn pods(&self) -> usize {
        let waiting = self.active + self.backoff + self.unschedulable + self.gated;
        waiting + self.in_flight + self.binding
    }
}
