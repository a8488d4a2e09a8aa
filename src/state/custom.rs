//! Events for stores of a user's own. Here because the log does not know what a store is.

use crate::log::Event;
use crate::model::CustomEvent;
use crate::snapshot::Store;

impl Event {
    /// Changes a store that was registered with [`Config::with_store`](crate::Config::with_store).
    ///
    /// Refused if the store is not registered ([`EventError::UnknownStore`](crate::model::EventError::UnknownStore)),
    /// if its check refuses the event (`StoreRefused`), if it panics (`StorePanicked`), or if it has failed before
    /// (`StoreFailed`).
    #[must_use]
    pub fn custom<S: Store>(event: S::Event) -> Event {
        Event::Custom(CustomEvent::new::<S>(event))
    }
}
