//! The log.
mod event;
pub use event::{Applied, Event, ObjectKey, Outcome, Relist};
