//! Events for stores that users add to the engine.
//!
//! The log carries such an event without knowing its type: the store does.

use std::any::{Any, TypeId};
use std::fmt;
use std::sync::Arc;

/// An event of any store, with the store that it is for.
pub(crate) trait AnyEvent: Send + Sync {
    /// The type of the store.
    fn store(&self) -> TypeId;
    /// The store's name, for messages.
    fn store_name(&self) -> &'static str;
    /// The event.
    fn event(&self) -> &dyn Any;
}

/// A change of a store that was registered with [`Config::with_store`](crate::Config::with_store), its type erased.
/// Made by [`CustomEvent::new`], read by [`CustomEvent::event`]. A clone costs one reference count.
#[derive(Clone)]
pub struct CustomEvent(Arc<dyn AnyEvent>);

impl CustomEvent {
    pub(crate) fn from_any(event: Arc<dyn AnyEvent>) -> CustomEvent {
        CustomEvent(event)
    }

    /// The name of the store that it changes (`Store::NAME`).
    #[must_use]
    pub fn store_name(&self) -> &'static str {
        self.0.store_name()
    }

    /// The type of the store.
    pub(crate) fn store(&self) -> TypeId {
        self.0.store()
    }

    pub(crate) fn any(&self) -> &dyn Any {
        self.0.event()
    }
}

impl fmt::Debug for CustomEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CustomEvent").field(&self.store_name()).finish()
    }
}
