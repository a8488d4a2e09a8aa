//! The scheduling queue.

mod backoff;
mod feed;
mod figures;
mod front;
mod heap;
mod in_flight;
mod moves;
mod operations;
mod pods;
mod scheduling_queue;

pub use backoff::QueueConfig;
pub use figures::{Cause, QueueFigures};
pub use front::{PopError, QueueFront};
pub use moves::PreCheck;
pub use scheduling_queue::{Place, QueueError, SchedulingQueue};
