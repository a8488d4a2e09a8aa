//! The changes that events cause: an object before and after an event.

use std::sync::Arc;

use super::{Node, Object, Pod};

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
    pub fn last(&self) -> Option<&T> {
        self.new.as_ref().or(self.old.as_ref())
    }

    /// Returns both objects if the object existed before the event and still does.
    #[must_use]
    pub fn both(&self) -> Option<(&T, &T)> {
        Some((self.old.as_ref()?, self.new.as_ref()?))
    }
}

/// The change that an event caused. A clone costs two reference counts.
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
