//! Gödel's stores: state derived from pods, and from objects that refer to pods.
//!
//! The stores hang off the root beside the node table, behind one pointer that is null unless
//! [`Config::godel`](crate::cache::Config::godel) is set. An engine without it copies, counts and reads nothing of
//! them. Each store is a field that is present or absent as configured, is persistent like everything else under the
//! root, and has its own generation. That generation is a position in the log like any other, so a store that is
//! dropped and created again never repeats one.
//!
//! Stores learn of pods as follows. Before State or a Fork applies an event, everything that could refuse it is checked
//! against the state before the event. The draft then applies the event, and notifies the stores from the two functions
//! through which all pods are added and removed, `place` and `displace`. A store sees the node table after the change
//! and its own content before the change. Nothing that a store does there can fail, so an event is applied to all
//! stores or to none. Forks change pods through the same two functions, so their stores follow as the writer's do.
//!
//! What a pod contributes to movements and preemption marks is determined by its template and its node, and one
//! function both adds and removes it, so exactly what was added is removed. Gödel's two-level stores assign repeated
//! generations to an inner store that is dropped and created again, and its snapshots miss the change. Here a version
//! has the whole store, sharing what did not change, and no snapshot is ever updated.
//!
//! Only reservations depend on why a pod is removed, so the callers that remove one pass the reason ([`Leaving`]).
//! Clocks belong to the writer: a store knows what can expire, and the state knows when.

mod deletions;
pub(super) mod draft;
mod load;
mod marks;
mod movements;
mod reservations;

use std::time::Duration;

use crate::model::Name;

use super::cluster::Cluster;

pub use deletions::{DeletionMark, DeletionMarks};
pub use load::NodeLoad;
pub use marks::{PreemptionMark, PreemptionMarks};
pub(crate) use movements::SuggestionId;
pub use movements::{Movements, SuggestedMovement, Suggestion};
pub(crate) use reservations::PlaceId;
pub use reservations::{Reservations, ReservedPlace};

/// The configuration of Gödel semantics: the scheduler type whose assumed pods count, and the stores to maintain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GodelConfig {
    /// The scheduler name that pods use for this scheduler. An assumed pod counts if it names this, `default-scheduler`
    /// or nothing.
    pub scheduler_type: Name,
    /// The name of this scheduler instance (`ComponentName`), which the dispatcher writes to the annotation
    /// `selected-scheduler`. If it is set, queues accept only the pods that are dispatched to this instance; otherwise
    /// they accept all pending pods.
    pub component: Option<Name>,
    /// How long a pod that was assumed here lives if its binding does not finish. This is the binder's rule, with 15
    /// minutes there. The time starts with the first time that the log carries after the assume. `None` or zero means
    /// forever, which is the rule of Gödel's schedulers.
    pub unfinished_ttl: Option<Duration>,
    /// Enables reservations, and sets how long the reservation of a deleted pod lasts until a Reservation confirms it
    /// (`--reservation-ttl`; Gödel's default is one minute). It is at most
    /// [`Config::assumed_ttl`](crate::cache::Config::assumed_ttl). Zero means forever; `None` disables reservations.
    pub reservations: Option<Duration>,
    /// Maintains the suggestions of Movements and the pods that follow them (feature `SupportRescheduling`).
    pub movements: bool,
    /// Maintains the victims of nominated pods (`PreemptionStore`).
    pub preemption_marks: bool,
    /// Maintains the marks of bound pods that are about to be deleted, which the binder sets (`DeletedMarkerStore`).
    pub deletion_marks: bool,
    /// Keeps a pod group scheduled after enough of its members were bound here, until its object is updated (the
    /// binder's `SetUnitSchedulingStatus`).
    pub unit_status: bool,
}

impl GodelConfig {
    /// Creates a configuration for pods that name this scheduler, with all stores disabled.
    pub fn new(scheduler_type: impl Into<Name>) -> GodelConfig {
        GodelConfig {
            scheduler_type: scheduler_type.into(),
            component: None,
            unfinished_ttl: None,
            reservations: None,
            movements: false,
            preemption_marks: false,
            deletion_marks: false,
            unit_status: false,
        }
    }
}

/// The reason for removing a pod from its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// The pod was deleted. If it reserves, its resources stay reserved.
    Deleted,
    /// The pod was not placed after all. The reservation that it took becomes available again.
    Withdrawn,
    /// Another object of the pod replaces it, or, in a fork, the pod is removed without any consequence.
    Gone,
}

/// The stores under the root.
#[derive(Clone)]
pub(crate) struct Stores {
    pub(crate) config: std::sync::Arc<GodelConfig>,
    pub(crate) reservations: Option<Reservations>,
    /// Each of these is behind its own pointer, so that changing one copies none of the others.
    pub(crate) movements: Option<triomphe::Arc<Movements>>,
    pub(crate) preemption_marks: Option<triomphe::Arc<PreemptionMarks>>,
    pub(crate) deletion_marks: Option<triomphe::Arc<DeletionMarks>>,
}

impl Stores {
    pub(crate) fn new(config: GodelConfig) -> Stores {
        Stores {
            reservations: config.reservations.map(|_| Reservations::default()),
            movements: config.movements.then(triomphe::Arc::default),
            preemption_marks: config.preemption_marks.then(triomphe::Arc::default),
            deletion_marks: config.deletion_marks.then(triomphe::Arc::default),
            config: std::sync::Arc::new(config),
        }
    }
}

impl Cluster {
    /// Returns the Gödel configuration, or `None` if Gödel semantics are disabled.
    #[must_use]
    pub fn godel(&self) -> Option<&GodelConfig> {
        self.godel.as_ref().map(|stores| &*stores.config)
    }

    /// Returns the reservations for future pods, or `None` if [`GodelConfig::reservations`] is not set.
    #[must_use]
    pub fn reservations(&self) -> Option<&Reservations> {
        self.godel.as_ref()?.reservations.as_ref()
    }

    /// Returns the suggestions of Movements and the pods that follow them, or `None` unless [`GodelConfig::movements`]
    /// is set.
    #[must_use]
    pub fn movements(&self) -> Option<&Movements> {
        self.godel.as_ref()?.movements.as_deref()
    }

    /// Returns the victims with their preemptors, or `None` unless [`GodelConfig::preemption_marks`] is set.
    #[must_use]
    pub fn preemption_marks(&self) -> Option<&PreemptionMarks> {
        self.godel.as_ref()?.preemption_marks.as_deref()
    }

    /// Returns the marks of bound pods that are about to be deleted, or `None` unless [`GodelConfig::deletion_marks`]
    /// is set.
    #[must_use]
    pub fn deletion_marks(&self) -> Option<&DeletionMarks> {
        self.godel.as_ref()?.deletion_marks.as_deref()
    }
}
