//! Tests of schedulers: queues, cycles, gangs and binding. `tests/engine/main.rs` lists the tests that have binaries of
//! their own, and the reasons.

mod batch_commits;
mod batch_storms;
mod batches;
mod cycles;
mod dispatch;
mod extenders;
mod gangs;
mod hostile;
mod hostnames;
#[cfg(feature = "metrics")]
mod metrics;
mod placements;
mod pre_bind;
mod preemption;
mod queue;
mod queue_feed;
mod queue_model;
mod requests;
mod reserve_in_fork;
mod schedulers;
mod scheduling_loop;
mod sections;
mod shards;
mod steps;
#[cfg(feature = "tracing")]
mod tracing;
mod waking;
