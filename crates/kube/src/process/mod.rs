//! A scheduler as a process: leader election, scheduling and binding threads, start and end.

mod election;
mod live;
pub(crate) mod profiles;
mod serve;

pub use election::{Election, ElectionConfig, ElectionError};
pub use live::{LiveConfig, LiveFigures, LiveScheduler, StartError};
pub use serve::Served;
