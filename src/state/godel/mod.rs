//! Gödel's events: pod states, reservations, deletion marks, and pod groups as scheduling units.

mod deletions;
mod places;
mod pod_states;
mod units;

pub(in crate::state) use places::PlaceClocks;
pub(in crate::state) use units::UnboundMembers;
