//! What the queue counts: pods by place, and pods that came by what brought them
//! (kube-scheduler's `pending_pods` and `queue_incoming_pods_total`).

use std::fmt;

use crate::framework::{Actions, EventResource};

use super::Place;

/// What brings a pod into a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It appeared.
    PodAdd,
    /// It changed.
    PodUpdate,
    /// It was tried in vain.
    AttemptFailure,
    /// It was left alone for long enough.
    BackoffComplete,
    /// Somebody wants it to be tried.
    Activate,
    /// It waited for an event for too long.
    Timeout,
    /// An event that may make it schedulable: this action on this resource.
    Event(EventResource, Actions),
}

impl fmt::Display for Cause {
    /// As kube-scheduler labels its metrics.
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

/// How many pods came where, and why.
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

    /// Those that are not zero.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Cause, Place, u64)> {
        Cause::all().zip(self.0.iter()).flat_map(|(cause, counts)| {
            let counted = Place::QUEUES.into_iter().zip(*counts);
            counted.filter(|(_, n)| *n > 0).map(move |(place, n)| (cause, place, n))
        })
    }
}

/// How many pods are where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueFigures {
    /// Ready to be tried.
    pub active: usize,
    /// Left alone for a while, after a rejection or an error.
    pub backoff: usize,
    /// Waiting for an event.
    pub unschedulable: usize,
    /// Kept from queueing.
    pub gated: usize,
    /// Being tried.
    pub in_flight: usize,
    /// Decided, and on their way to their nodes.
    pub binding: usize,
    /// Events that are kept for pods that are being tried.
    pub in_flight_events: usize,
    /// Events that were taken in and are not acted on to the end.
    pub backlog: usize,
}

impl QueueFigures {
    /// All pods that the queue knows.
    #[must_use]
    pub fn pods(&self) -> usize {
        let waiting = self.active + self.backoff + self.unschedulable + self.gated;
        waiting + self.in_flight + self.binding
    }
}
