//! From decisions to a scheduler.

mod binder;
mod binding;
mod commit;
mod cycle;
mod evictor;
mod profiles;
mod volumes;

pub use binder::InMemoryBinder;
pub use binding::{BindError, BindingCycle};
pub use commit::FilterCheck;
pub use cycle::{CycleError, CycleFigures, Placement, PodScheduler};
pub use evictor::InMemoryEvictor;
pub use profiles::Profiles;
pub use volumes::InMemoryVolumeBinder;
