//! From decisions to a scheduler.
//!
//! | | what it is |
//! |---|---|
//! | [`queue`] | which pod is tried next: fed from the log of an engine, it hands out each pod with the event that its decision must not be older than |
//! | [`PodScheduler`] | the scheduling cycle: a node is decided on, the pod assumed there, and what it needs set aside; several on one engine never overcommit a node ([`FilterCheck`]) |
//! | [`BindingCycle`] | what becomes of a pod that is assumed: permit, PreBind, Bind, PostBind |
//! | [`SchedulingLoop`] | a pod's whole way, or that of all pods of a group, from the queue through both cycles, and back where it fails |
//! | [`PodScheduler::schedule_gang`] | pods that are placed together or not at all |
//! | [`WhatIf`], [`drain`] | what would be if: on forks, for any number of askers at once |
//!
//! What leaves the scheduler leaves by traits of the framework:
//! [`Binder`](crate::framework::Binder), [`Evictor`](crate::framework::Evictor),
//! [`VolumeBinder`](crate::framework::VolumeBinder). The ones here do it in the memory of
//! an engine: [`InMemoryBinder`], [`InMemoryEvictor`], [`InMemoryVolumeBinder`].
//!
//! ```
//! use std::sync::Arc;
//! use portolan::framework::{Framework, Handle, Scheduler, SchedulerConfig};
//! use portolan::model::{Timestamp, node, pod};
//! use portolan::scheduler::queue::{QueueConfig, QueueFront, SchedulingQueue};
//! use portolan::scheduler::{Attempt, FilterCheck, InMemoryBinder, Profiles, SchedulingLoop};
//! use portolan::{Config, Engine};
//!
//! // The commit check needs no binder: it only filters.
//! let handle = Handle::default();
//! let check = Arc::new(Framework::default_profile_with(&handle));
//! let commit_check = FilterCheck::new(Profiles::one(check)).into();
//! let engine = Engine::shared(Config { commit_check, ..Config::default() });
//! let handle = handle.with_binder(Arc::new(InMemoryBinder::new(engine.clone())));
//!
//! let framework = Arc::new(Framework::default_profile_with(&handle));
//! let queue = SchedulingQueue::new(framework.clone(), QueueConfig::default());
//! let queue = Arc::new(QueueFront::new(queue, engine.follow()?, engine.reader()?));
//! let scheduler = Scheduler::new(framework, SchedulerConfig::default(), None);
//! let mut scheduling = SchedulingLoop::new(engine.clone(), queue, Profiles::one(scheduler))?;
//!
//! engine.add_node(node("n1").cpu(4_000).memory(1 << 30).build())?;
//! engine.put_pending(pod("web-0").cpu(250).build())?.wait()??;
//! let clock = || Timestamp::from_secs(1);
//! if let Attempt::Placed(placement) = scheduling.schedule_one(None, clock)? {
//!     scheduling.bind(&placement, clock).map_err(|(error, _)| error)?;
//! }
//! assert_eq!(engine.reader()?.snapshot().pod_count(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod binder;
mod binding;
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
pub use commit::FilterCheck;
pub use cycle::{CycleError, CycleFigures, Placement, PodScheduler};
pub use evictor::InMemoryEvictor;
pub use gang::{GangError, GangPlacement};
pub use profiles::Profiles;
pub use scheduling_loop::{Attempt, SchedulingLoop, Unplaced};
pub use shared_reader::SharedReader;
pub use volumes::InMemoryVolumeBinder;
pub use what_if::{Placed, PreemptError, Stop, WhatIf};
