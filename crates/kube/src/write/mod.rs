//! Writes a scheduler's decisions to the API server: bindings, conditions and nominations, events, evictions, volumes,
//! resource claims.
//!
//! [`Writes`] starts all writers on one client. `ApiBinder`, `ApiEvictor`, `ApiVolumeBinder` and `ApiClaims` implement
//! the traits through which the engine's schedulers act, and block their callers, except for the evictor.
//! `StatusWriter` and [`EventRecorder`] work in the background and never block.
//!
//! Every write follows three rules:
//!
//! - It is sent only while the [`Fence`] is open, which leader election closes. The client checks that.
//! - It contains the uid of its object, so it cannot reach another object of the same name.
//! - It is repeated only if repeating is harmless. The client itself repeats nothing.
//!
//! The bodies equal those of kube-scheduler 1.36. Each file lists where they differ.
//!
//! Bindings have priority: statuses are limited to a few requests at once, and events may have a separate client with a
//! limited rate ([`WriteOptions::events`]).

mod bind;
#[cfg(test)]
mod bind_tests;
mod blocking;
mod bodies;
mod claim_counts;
mod claims;
#[cfg(test)]
mod claims_tests;
#[cfg(test)]
mod cluster_tests;
mod condition;
mod events;
#[cfg(test)]
mod events_tests;
mod evict;
#[cfg(test)]
mod evict_tests;
mod failure;
mod gate;
#[cfg(test)]
mod golden_tests;
mod hand_over;
mod occurrence;
mod series;
mod shard_gate;
mod status;
#[cfg(test)]
mod status_tests;
#[cfg(test)]
mod testing;
mod volume_checks;
mod volumes;
#[cfg(test)]
mod volumes_tests;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use portolan::cache::WeakEngine;
use portolan::model::{Name, Pod};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

pub(crate) use bind::{ApiBinder, Unbound};
pub(crate) use blocking::{Blocking, RuntimeEnded};
pub(crate) use claim_counts::register_claims;
pub(crate) use claims::ApiClaims;
pub use events::{EventFigures, EventLimits, EventRecorder};
pub(crate) use evict::ApiEvictor;
pub(crate) use failure::FailureReport;
pub(crate) use hand_over::HandOver;
pub use occurrence::Occurrence;
pub(crate) use shard_gate::ShardGate;
use status::StatusLimits;
pub(crate) use status::StatusWriter;
pub(crate) use volumes::ApiVolumeBinder;

use crate::api::Api;
use crate::debug::debug_by;
pub use crate::fence::Fence;
use crate::mirror::PodIndex;

/// The longest time that a write waits because the server asks for it.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Why the gate of the shards refuses a binding.
const NO_SHARD: &str =
    "another replica holds the shard of the node, or held it after the pod was placed";

/// Options of [`Writes`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct WriteOptions {
    /// The client for events, or `None` to use the client of all other writes. A separate client keeps events from
    /// delaying bindings, and its rate may be limited.
    pub events: Option<Api>,
    /// The name of this host, which events report after the scheduler's name.
    pub host: String,
    /// Limits of events.
    pub event_limits: EventLimits,
    /// Limits of statuses.
    pub(crate) status_limits: StatusLimits,
    /// Limits bindings to the nodes of some shards.
    pub(crate) gate: Option<ShardGate>,
}

/// All writers of a scheduler, which share a client and a fence.
#[derive(Clone)]
pub struct Writes {
    runtime: Handle,
    blocking: Blocking,
    api: Api,
    pods: Arc<PodIndex>,
    fence: Fence,
    status: StatusWriter,
    events: EventRecorder,
    gate: Option<ShardGate>,
    hand_over: Option<HandOver>,
    /// The number of pods that are being bound.
    active: watch::Sender<usize>,
}

/// The reports that were not written in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unwritten {
    /// Statuses of pods.
    pub statuses: usize,
    /// Events.
    pub events: usize,
}

impl Writes {
    /// Starts the writers of statuses and events on the runtime. They stop when the fence is closed for good.
    pub(crate) fn start(
        runtime: &Handle,
        api: Api,
        pods: Arc<PodIndex>,
        fence: Fence,
        options: WriteOptions,
    ) -> Writes {
        let WriteOptions { events, host, event_limits, status_limits, gate } = options;
        // A request may wait for its turn until after the deadline, so the fence is checked again then.
        let fenced = |api: Api| api.with_permission(fence.clone());
        let api = fenced(api);
        let events_api = events.map_or_else(|| api.clone(), fenced);
        let active = watch::Sender::new(0);
        let bindings = active.subscribe();
        let events =
            EventRecorder::start(runtime, events_api, fence.clone(), &host, event_limits, bindings);
        let status = StatusWriter::start(
            runtime,
            api.clone(),
            pods.clone(),
            fence.clone(),
            events.clone(),
            status_limits,
        );
        let hand_over =
            gate.as_ref().map(|gate| HandOver::new(gate.shards().clone(), status.clone()));
        Writes {
            runtime: runtime.clone(),
            blocking: Blocking::new(runtime),
            api,
            pods,
            fence,
            status,
            events,
            gate,
            hand_over,
            active,
        }
    }

    /// Waits until all statuses and events that were reported so far are written or given up, or until the time is
    /// over. Returns at once if the fence is closed: then they are lost.
    ///
    /// # Errors
    ///
    /// Returns how many are left.
    pub async fn flush(&self, limit: Duration) -> Result<(), Unwritten> {
        let flushed = async { tokio::join!(self.status.flush(), self.events.flush()) };
        let is_flushed = tokio::select! {
            biased;
            () = self.fence.expired() => false,
            flushed = timeout(limit, flushed) => flushed.is_ok(),
        };
        match is_flushed {
            true => Ok(()),
            false => {
                Err(Unwritten { statuses: self.status.unwritten(), events: self.events.open() })
            }
        }
    }

    /// The permission to write.
    #[must_use]
    pub fn fence(&self) -> &Fence {
        &self.fence
    }

    /// The writer of pods' statuses.
    pub(crate) fn status(&self) -> &StatusWriter {
        &self.status
    }

    /// The recorder of events.
    #[must_use]
    pub fn events(&self) -> &EventRecorder {
        &self.events
    }

    /// Returns a binder.
    pub(crate) fn binder(&self) -> ApiBinder {
        ApiBinder {
            blocking: self.blocking.clone(),
            api: self.api.clone(),
            fence: self.fence.clone(),
            status: self.status.clone(),
            events: self.events.clone(),
            gate: self.gate.clone(),
            waits: bind::Waits::DEFAULT,
            active: self.active.clone(),
        }
    }

    /// Returns a new evictor. Call [`ApiEvictor::set_queue`] on it or on a clone once the queue exists.
    pub(crate) fn evictor(&self) -> ApiEvictor {
        let Writes { runtime, api, fence, status, events, hand_over, .. } = self.clone();
        ApiEvictor::new(runtime, api, fence, status, events, hand_over)
    }

    /// Hands pods over to other replicas, if there are several shards.
    pub(crate) fn hand_over(&self) -> Option<&HandOver> {
        self.hand_over.as_ref()
    }

    /// Hands a pod over. Returns whether the API server has accepted the nomination. Blocks.
    pub(crate) fn nominate_for(&self, to: &HandOver, pod: &Pod, node: &Name) -> bool {
        self.blocking.run(to.nominate(pod, node)).unwrap_or(false)
    }

    /// Returns a new writer of resource claims. Call [`ApiClaims::set_engine`] on it or on a clone once the engine
    /// exists.
    pub(crate) fn claims(&self) -> ApiClaims {
        let Writes { blocking, api, fence, events, .. } = self.clone();
        ApiClaims::new(blocking, api, fence, events)
    }

    /// Returns a binder of volumes, which reserves them in this engine.
    pub(crate) fn volume_binder(&self, engine: &WeakEngine) -> ApiVolumeBinder {
        let Writes { blocking, api, pods, fence, .. } = self.clone();
        ApiVolumeBinder::new(blocking, api, pods, fence, engine)
    }
}

debug_by!(Writes, it, fence: it.fence, status: it.status, events: it.events);

/// Formats a time as `metav1.MicroTime`: UTC, in microseconds.
pub(crate) fn micros(time: Timestamp) -> String {
    format!("{time:.6}")
}

/// Returns the longest prefix of at most `most` bytes.
pub(crate) fn prefix(text: &str, most: usize) -> &str {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
