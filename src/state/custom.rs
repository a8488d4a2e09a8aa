//! The constructor of events for custom stores. It is not in the module `log`, which does not depend on stores.

use crate::log::Event;
use crate::model::CustomEvent;
use crate::snapshot::Store;

impl Event {
    /// Applies an event to a store that was registered with [`Config::with_store`](crate::cache::Config::with_store)
    /// ([`Event::Custom`]).
    ///
    /// Rejected if the store is not registered ([`EventError::UnknownStore`](crate::model::EventError::UnknownStore)),
    /// if its check rejects the event (`StoreRefused`), if it panics (`StorePanicked`), or if it has already failed
    /// (`StoreFailed`).
    #[must_use]
    pub fn custom<S: Store>(event: S::Event) -> Event {
        Event::Custom(CustomEvent::new::<S>(event))
    }
}
