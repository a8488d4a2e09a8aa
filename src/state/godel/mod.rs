//! Gödel's events: the states of its pods, reserved places, marks for deletion, and pod groups as its scheduling units.

mod deletions;
mod places;
mod pod_states;
mod preempting;
mod units;

pub(in crate::state) use places::PlaceClocks;
pub(in crate::state) use units::UnboundMembers;
