//! What only the writer has: the lifecycle of pods, and the fold of events over
//! a draft.

mod audit;
mod commit;
mod deletions;
mod lifecycle;
pub mod naive;
mod noted;
mod places;
mod pod_states;
mod preempting;
mod rebuild;
mod relist;
mod units;

pub use audit::Difference;
pub use commit::{CommitCheck, CommitPolicy, RoomCheck};
pub use lifecycle::{Observer, State};
