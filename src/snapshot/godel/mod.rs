//! Gödel's stores: what is derived from pods, and from objects that speak of pods.
//!
//! They hang off the root beside the node table, behind one pointer that is null
//! while [`Config::godel`](crate::Config::godel) is not given: an engine without it
//! copies, counts and looks at nothing of them. Each store is a field that is there
//! or not, as the configuration says, is persistent like all else under the root,
//! and has a generation of its own, which is a position in the log like any other:
//! nothing that is dropped and made again repeats one.
//!
//! How they hear of pods: of an event that State or a Fork is about to apply, all
//! that can be refused is checked first, against the state before it; then the draft
//! applies it, and tells the stores from the two places through which every pod
//! comes and goes, `place` and `displace`. A store sees the node table as it is after
//! the change, and its own content as it was before. Nothing that a store does there
//! can fail, so an event is in all stores or in none; and since forks change pods
//! through the same two places, their stores follow as the writer's do.
//!
//! What a pod says to movements and preemption marks is in its template and its node, and
//! goes in and out by one function, so that what is taken away is what was added.
//! Gödel's two-level stores give an inner one that is dropped and made again its first
//! generations once more, and its snapshots miss it; here a version is the whole store,
//! shared where it did not change, and nothing is ever brought up to date.
//!
//! Why a pod goes matters to reservations alone, so those that take one away say it
//! ([`Leaving`]). Clocks are the writer's: a store knows what may expire, and the
//! state when.

mod deletions;
pub(super) mod draft;
mod load;
mod marks;
mod movements;
mod numa;
mod reservations;

use std::time::Duration;

use crate::model::Name;

use super::cluster::Cluster;

pub use deletions::{DeletionMark, DeletionMarks};
pub use load::NodeLoad;
pub use marks::{PreemptionMark, PreemptionMarks};
pub(crate) use movements::SuggestionId;
pub use movements::{Movements, SuggestedMovement, Suggestion};
pub use numa::{NumaAllocation, NumaResource, NumaStatus, NumaTopology};
pub(crate) use reservations::PlaceId;
pub use reservations::{Reservations, ReservedPlace};

/// What makes an engine one of Gödel's: for whom it counts pods, and which stores it
/// keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GodelConfig {
    /// What pods name as their scheduler. An assumed pod counts where it names this,
    /// `default-scheduler` or nothing.
    pub scheduler_type: Name,
    /// The name of this scheduler instance (`ComponentName`): the dispatcher writes it to
    /// the annotation `selected-scheduler`. Queues then take only the pods that are
    /// dispatched to this instance. Without a name they take all pending pods.
    pub component: Option<Name>,
    /// How long a pod that was assumed here lives if its binding does not finish: the
    /// binder's rule, 15 minutes there. The clock starts with the first time that the log
    /// carries after the assume. None or zero is for ever, the rule of Gödel's schedulers.
    pub unfinished_ttl: Option<Duration>,
    /// Keeps reservations: how long the place of a pod that goes is held before a
    /// Reservation confirms it (`--reservation-ttl`; Gödel's default is a minute), at most
    /// [`Config::assumed_ttl`](crate::Config::assumed_ttl). Zero is for ever, none keeps
    /// no reservations.
    pub reservations: Option<Duration>,
    /// Keeps what Movements suggest and who follows them (feature `SupportRescheduling`).
    pub movements: bool,
    /// Keeps whom nominated pods go in place of (`PreemptionStore`).
    pub preemption_marks: bool,
    /// Keeps which bound pods are about to be deleted, as the binder marks them
    /// (`DeletedMarkerStore`).
    pub deletion_marks: bool,
    /// Keeps a pod group scheduled once enough of its members were bound here, until its
    /// object is updated (the binder's `SetUnitSchedulingStatus`).
    pub unit_status: bool,
}

impl GodelConfig {
    /// For pods that name this scheduler, with no stores.
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

    /// The same for the scheduler instance of this name.
    ///
    /// ```
    /// use portolan::GodelConfig;
    ///
    /// let config = GodelConfig::new("godel-scheduler").with_component("scheduler-0");
    /// assert_eq!(config.component.as_deref(), Some("scheduler-0"));
    /// ```
    #[must_use]
    pub fn with_component(self, component: impl Into<Name>) -> GodelConfig {
        GodelConfig { component: Some(component.into()), ..self }
    }
}

/// Why a pod leaves its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// It was deleted: where it reserves, its place is held.
    Deleted,
    /// It was not placed after all: the place that it took is held again.
    Withdrawn,
    /// Another object of it takes its place; or, in a fork, it just is not there.
    Gone,
}

/// The stores under the root.
#[derive(Clone)]
pub(crate) struct Stores {
    pub(crate) config: std::sync::Arc<GodelConfig>,
    pub(crate) reservations: Option<Reservations>,
    /// These behind pointers of their own: a change of one copies none of the others.
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
    /// Which of Gödel's schedulers this is, and what it keeps; none where it is none.
    #[must_use]
    pub fn godel(&self) -> Option<&GodelConfig> {
        self.godel.as_ref().map(|stores| &*stores.config)
    }

    /// The places that are held for pods to come; none where they are not kept.
    #[must_use]
    pub fn reservations(&self) -> Option<&Reservations> {
        self.godel.as_ref()?.reservations.as_ref()
    }

    /// What Movements suggest, and who follows them; none where that is not kept.
    #[must_use]
    pub fn movements(&self) -> Option<&Movements> {
        self.godel.as_ref()?.movements.as_deref()
    }

    /// Which pods go in place of which others; none where that is not kept.
    #[must_use]
    pub fn preemption_marks(&self) -> Option<&PreemptionMarks> {
        self.godel.as_ref()?.preemption_marks.as_deref()
    }

    /// Which bound pods are about to be deleted; none unless
    /// [`GodelConfig::deletion_marks`] is set.
    #[must_use]
    pub fn deletion_marks(&self) -> Option<&DeletionMarks> {
        self.godel.as_ref()?.deletion_marks.as_deref()
    }
}
