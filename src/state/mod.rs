//! The state that only the writer accesses: the lifecycle of pods, and the fold of events over a draft.

mod audit;
pub(crate) mod commit;
mod custom;
mod godel;
mod lifecycle;
mod load;
mod noted;
mod preempting;
mod rebuild;
mod relist;
mod upsert;

pub(crate) use crate::snapshot::draft::Threads;
pub use audit::Difference;
pub(crate) use commit::RoomCheck;
pub use commit::{CommitCheck, CommitPolicy};
pub(crate) use lifecycle::State;
pub(crate) use load::LONGEST_RUN;
