//! Schedulers: queues, cycles, gangs and binding. `tests/engine/main.rs` lists which tests have a binary of their own,
//! and why.

mod cycles;
mod dispatch;
mod gangs;
#[cfg(feature = "metrics")]
mod metrics;
mod queue;
mod queue_feed;
mod queue_model;
mod schedulers;
mod scheduling_loop;
#[cfg(feature = "tracing")]
mod tracing;
