//! What an event changed: an object as it was, and as it is.

use std::sync::Arc;

use super::{CustomEvent, Generation, Node, Object, Pod, Uid};

/// An object before and after an event. One that appeared has no `old`, one that
/// is gone no `new`. Each is shared, be it as an `Arc` or as an [`Object`].
#[derive(Clone, Debug)]
pub struct Diff<T> {
    /// As it was.
    pub old: Option<T>,
    /// As it is.
    pub new: Option<T>,
}

impl<T> Diff<T> {
    /// The object as it is, or as it was last.
    #[must_use]
    pub fn last(&self) -> Option<&T> {
        self.new.as_ref().or(self.old.as_ref())
    }

    /// Both, where the object was there before and still is.
    #[must_use]
    pub fn both(&self) -> Option<(&T, &T)> {
        Some((self.old.as_ref()?, self.new.as_ref()?))
    }
}

/// What an event changed. A clone costs two reference counts.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Change {
    /// A pod.
    Pod(Diff<Arc<Pod>>),
    /// A node.
    Node(Diff<Arc<Node>>),
    /// An object of another kind.
    Object(Diff<Object>),
    /// A store that was registered with the engine, by an event of its own. That pods come and go changes stores, too;
    /// it shows as the change of the pod.
    Custom(CustomEvent),
}

/// What an event did, for those who follow the log.
#[derive(Clone, Debug)]
pub enum Fact {
    /// An object appeared, changed or went. Of pods those that are on a node: what
    /// is only assumed is none yet, and one that is confirmed appears.
    Changed(Change),
    /// A pod that is on no node appeared or changed.
    Pending(Arc<Pod>),
    /// A pod that was on no node, or only assumed on one, is deleted.
    NotPending(Uid),
}

/// What an event did, and where it is in the log.
#[derive(Clone, Debug)]
pub struct Note {
    /// The first generation that contains it.
    pub generation: Generation,
    /// What it did.
    pub fact: Fact,
}

/// Why there is no note now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoNote {
    /// Nothing more has happened yet.
    #[error("no event has been published since the last one")]
    Empty,
    /// The follower fell behind by more notes than its limit, and the notes after this point are lost. Said once; then
    /// the stream is closed.
    #[error(
        "the follower fell behind and lost notes: follow again, from a snapshot and the pending pods"
    )]
    Overflowed,
    /// The engine is gone, and everything was received.
    #[error("the engine is gone: no event will come")]
    Closed,
}
