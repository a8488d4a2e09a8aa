//! The parts of a scheduler: queue, scheduling cycle, binding cycle, gangs and what-if questions. The types that every
//! scheduler needs are at the crate's root.
//!
//! | item | purpose |
//! |---|---|
//! | [`Schedulers`] | builds engine, commit check, queue, profiles, binder and evictor in one expression; start here |
//! | [`queue`] | decides which pod is scheduled next; fed by an engine's log. It returns each pod with the event that a decision must not be older than |
//! | [`Scheduler`] | the scheduling cycle: decides on a node, assumes the pod there and reserves what it needs. Several schedulers on one engine do not overcommit a node; with [`FilterCheck`], they do not violate other filters either |
//! | [`BindingCycle`] | the binding cycle of an assumed pod: Permit, PreBind, Bind, PostBind |
//! | [`SchedulingLoop`] | takes a pod or a gang from the queue through both cycles, and returns it to the queue on failure |
//! | [`BindingLoop`] | binds placed pods on a thread of its own |
//! | [`Scheduler::schedule_batch`] | schedules pods in a row, with one commit for all of them |
//! | [`Scheduler::schedule_gang`] | places pods together or not at all |
//! | [`WhatIf`], [`drain`] | answers what-if questions on forks, on any number of threads |
//!
//! The scheduler acts on a cluster through traits of the framework: [`Binder`](crate::Binder),
//! [`Evictor`](crate::Evictor), [`VolumeBinder`](crate::plugin::VolumeBinder). The implementations here act in an
//! engine's memory: [`InMemoryBinder`], [`InMemoryEvictor`], [`InMemoryVolumeBinder`].
//!
//! ```
//! use portolan::cache::Event;
//! use portolan::model::{Timestamp, node, pod};
//! use portolan::{Attempt, Schedulers};
//!
//! let schedulers = Schedulers::builder().build()?;
//! let engine = schedulers.engine();
//! engine.submit(Event::add_node(node("n1").cpu(4_000).memory(1 << 30).build()))?.wait()??;
//! engine.submit(Event::put_pending(pod("web-0").cpu(250).build()))?.wait()??;
//!
//! let clock = || Timestamp::from_secs(1);
//! let mut scheduling = schedulers.scheduling_loop()?;
//! if let Attempt::Placed(placement) = scheduling.schedule_one(None, clock)? {
//!     scheduling.bind(&placement, clock).map_err(|(error, _)| error)?;
//! }
//! assert_eq!(engine.reader()?.snapshot().pod_count(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod batch;
mod binder;
mod binding;
mod binding_loop;
pub(crate) mod builder;
mod commit;
pub(crate) mod cycle;
pub mod drain;
mod engine_log;
mod evictor;
mod gang;
pub(crate) mod placement;
pub(crate) mod profiles;
pub mod queue;
pub(crate) mod scheduling_loop;
mod shared_reader;
mod volumes;
pub(crate) mod what_if;

pub use binder::InMemoryBinder;
pub use binding::{Answered, Begun, BindError, BindRequest, BindingCycle};
pub use binding_loop::{BindingLoop, Finished};
pub(crate) use builder::BuildError;
#[cfg(doc)]
use builder::Schedulers;
pub use commit::FilterCheck;
pub use cycle::CycleFigures;
pub(crate) use cycle::Scheduler;
pub(crate) use engine_log::EngineLog;
pub use evictor::InMemoryEvictor;
pub use gang::GangPlacement;
pub(crate) use placement::Placement;
pub(crate) use profiles::Profiles;
pub(crate) use scheduling_loop::SchedulingLoop;
pub use shared_reader::SharedReader;
pub use volumes::InMemoryVolumeBinder;
pub use what_if::PreemptError;
pub(crate) use what_if::WhatIf;

pub use crate::framework::preemption::Candidate;
