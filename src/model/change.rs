//! What an event changed: an object as it was, and as it is.

use std::sync::Arc;

use super::{Node, Object, Pod};

/// An object before and after an event. One that appeared has no `old`, one that
/// is gone no `new`. Each is shared, be it as an `Arc` or as an [`Object`].
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
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
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Change {
    /// A pod.
    Pod(Diff<Arc<Pod>>),
    /// A node.
    Node(Diff<Arc<Node>>),
    /// An object of another kind.
    Object(Diff<Object>),
}
