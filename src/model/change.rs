//! The changes that events cause: an object before and after an event.

use std::sync::Arc;

use super::{CustomEvent, Generation, Node, Object, Pod, Uid};

/// An object before and after an event. `old` is `None` for a new object, and `new` is `None` for a removed one. Both
/// are shared, as an `Arc` or as an [`Object`].
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Diff<T> {
    /// The object before the event.
    pub old: Option<T>,
    /// The object after the event.
    pub new: Option<T>,
}

impl<T> Diff<T> {
    /// Returns the current object, or the last one if it was removed.
    #[must_use]
    pub(crate) fn last(&self) -> Option<&T> {
        self.new.as_ref().or(self.old.as_ref())
    }

    /// Returns both objects if the object existed before the event and still does.
    #[must_use]
    pub(crate) fn both(&self) -> Option<(&T, &T)> {
        Some((self.old.as_ref()?, self.new.as_ref()?))
    }
}

/// The change that an event caused. A clone costs two reference counts.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Change {
    /// A pod.
    Pod(Diff<Arc<Pod>>),
    /// A node.
    Node(Diff<Arc<Node>>),
    /// An object of another kind.
    Object(Diff<Object>),
    /// A custom store applied one of its own events. A change that a pod causes in a store is reported only as the
    /// change of the pod.
    #[cfg_attr(feature = "serde", serde(skip))]
    Custom(CustomEvent),
}

/// An effect of an event.
#[derive(Clone, Debug)]
pub enum Fact {
    /// An object appeared, changed or disappeared. An assumed pod is reported as new when it is confirmed, and not when
    /// it is assumed. Its removal is reported in any case, because its resources become free.
    Changed(Change),
    /// A pod that is not on a node appeared or changed.
    Pending(Arc<Pod>),
    /// The object of an assumed pod changed. The object names no node yet.
    Assumed(Arc<Pod>),
    /// A pod that was not on a node, or was only assumed on one, was deleted.
    NotPending(Uid),
}

/// An effect of an event, with its position in the log.
#[derive(Clone, Debug)]
pub struct Note {
    /// The first generation that contains the effect.
    pub generation: Generation,
    /// The effect.
    pub fact: Fact,
}

/// The reasons for which no note is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoNote {
    /// No further event has been published yet.
    #[error("no event has been published since the last one")]
    Empty,
    /// The follower fell behind by more notes than its limit, and the notes after this point are lost. This is returned
    /// once; then the stream is closed.
    #[error(
        "the follower fell behind and lost notes: follow again, from a snapshot and the pending pods"
    )]
    Overflowed,
    /// The engine was dropped, and every note has been received.
    #[error("the engine was dropped: no event will follow")]
    Closed,
}
