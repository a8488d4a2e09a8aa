//! Gödel's objects, and the data that Gödel stores in annotations of pods and nodes.

mod class;
mod load;
mod movement;
mod node_parts;
mod pod;
mod reservation;

pub use class::{Launcher, PodClass};
pub use load::{GroupMetric, NodeMetrics, Profile, Usage};
pub use movement::{Movement, MovementOwner, MovementTask, RecommendedNode};
pub use node_parts::{CustomNodeResource, NmNode, NodeResources};
pub use pod::{AbnormalPodState, GodelPod, NominatedNode, OwnerKey, PodState, Victim};
pub use reservation::{Reservation, ReservationPhase};
