//! From decisions to a scheduler.

mod commit;
mod cycle;
mod evictor;
mod profiles;
mod volumes;

pub use commit::FilterCheck;
pub use cycle::{CycleError, CycleFigures, Placement, PodScheduler};
pub use evictor::InMemoryEvictor;
pub use profiles::Profiles;
pub use volumes::InMemoryVolumeBinder;
