//! From decisions to a scheduler.
//!
//! | | what it is |
//! |---|---|
//! | [`Schedulers`] | engine, commit check, queue, profiles, binder and evictor, made in one expression; start here |
//! | [`queue`] | which pod is tried next: fed from the log of an engine, it hands out each pod with the event that its decision must not be older than |
//! | [`Scheduler`] | the scheduling cycle: a node is decided on, the pod assumed there, and what it needs set aside; several on one engine never overcommit a node ([`FilterCheck`]) |
//! | [`BindingCycle`] | what becomes of a pod that is assumed: permit, PreBind, Bind, PostBind |
//! | [`SchedulingLoop`] | a pod's whole way, or that of all pods of a group, from the queue through both cycles, and back where it fails |
//! | [`Scheduler::schedule_gang`] | pods that are placed together or not at all |
//! | [`WhatIf`], [`drain`] | what would be if: on forks, for any number of askers at once |
//!
//! What leaves the scheduler leaves by traits of the framework:
//! [`Binder`](crate::framework::Binder), [`Evictor`](crate::framework::Evictor),
//! [`VolumeBinder`](crate::framework::VolumeBinder). The ones here do it in the memory of
//! an engine: [`InMemoryBinder`], [`InMemoryEvictor`], [`InMemoryVolumeBinder`].
//!
//! ```
//! use portolan::model::{Timestamp, node, pod};
//! use portolan::scheduler::{Attempt, Schedulers};
//!
//! let schedulers = Schedulers::builder().build()?;
//! let engine = schedulers.engine();
//! engine.add_node(node("n1").cpu(4_000).memory(1 << 30).build())?;
//! engine.put_pending(pod("web-0").cpu(250).build())?.wait()??;
//!
//! let clock = || Timestamp::from_secs(1);
//! let mut scheduling = schedulers.scheduling_loop()?;
//! if let Attempt::Placed(placement) = scheduling.schedule_one(None, clock)? {
//!     scheduling.bind(&placement, clock).map_err(|(error, _)| error)?;
//! }
//! assert_eq!(engine.reader()?.snapshot().pod_count(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod binder;
mod binding;
mod builder;
mod commit;
mod cycle;
pub mod drain;
mod evictor;
mod gang;
mod profiles;
pub mod queue;
mod scheduling_loop;
mod shared_reader;
mod volumes;
mod what_if;

pub use binder::InMemoryBinder;
pub use binding::{BindError, BindingCycle};
pub use builder::{BuildError, Schedulers, SchedulersBuilder};
pub use commit::FilterCheck;
pub use cycle::{CycleError, CycleFigures, NewSchedulerError, Placement, Scheduler};
pub use evictor::InMemoryEvictor;
pub use gang::{GangError, GangPlacement};
pub use profiles::Profiles;
pub use scheduling_loop::{Attempt, SchedulingLoop, Unplaced};
pub use shared_reader::SharedReader;
pub use volumes::InMemoryVolumeBinder;
pub use what_if::{Placed, PreemptError, Stop, WhatIf};
