//! Type-erased events for custom stores, so that the log does not depend on their types.

use std::any::{Any, TypeId};
use std::fmt;
use std::sync::Arc;

/// An event of any type, which identifies its store.
pub(crate) trait AnyEvent: Send + Sync {
    fn store(&self) -> TypeId;
    fn store_name(&self) -> &'static str;
    fn event(&self) -> &dyn Any;
    /// Returns whether the store may begin to supply an extended resource.
    fn may_supply(&self, resource: &str) -> bool;
}

/// A type-erased event for a store that was registered with [`Config::with_store`](crate::cache::Config::with_store).
///
/// [`CustomEvent::new`] creates it, and [`CustomEvent::event`] returns the typed event. A clone costs one reference
/// count.
#[derive(Clone)]
pub struct CustomEvent(Arc<dyn AnyEvent>);

impl CustomEvent {
    pub(crate) fn from_any(event: Arc<dyn AnyEvent>) -> CustomEvent {
        CustomEvent(event)
    }

    /// Returns the name of the store that the event changes (`Store::NAME`).
    #[must_use]
    pub fn store_name(&self) -> &'static str {
        self.0.store_name()
    }

    pub(crate) fn store(&self) -> TypeId {
        self.0.store()
    }

    pub(crate) fn any(&self) -> &dyn Any {
        self.0.event()
    }

    /// Returns whether the store may begin to supply an extended resource with this event.
    pub(crate) fn may_supply(&self, resource: &str) -> bool {
        self.0.may_supply(resource)
    }
}

impl fmt::Debug for CustomEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CustomEvent").field(&self.store_name()).finish()
    }
}
