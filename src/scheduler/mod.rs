//! From decisions to a scheduler.
//!
//! [`queue`] says which pod is tried next. It is fed from the log of an engine, and
//! hands out each pod with the event that its decision must not be older than.

mod binder;
mod binding;
mod commit;
mod cycle;
pub mod drain;
mod evictor;
mod gang;
mod profiles;
pub mod queue;
mod volumes;
mod what_if;

pub use binder::InMemoryBinder;
pub use binding::{BindError, BindingCycle};
pub use commit::FilterCheck;
pub use cycle::{CycleError, CycleFigures, Placement, PodScheduler};
pub use evictor::InMemoryEvictor;
pub use gang::{GangError, GangPlacement};
pub use profiles::Profiles;
pub use volumes::InMemoryVolumeBinder;
pub use what_if::{Placed, PreemptError, Stop, WhatIf};
