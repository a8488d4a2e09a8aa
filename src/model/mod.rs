//! Cluster objects as the engine keeps them: pure data and arithmetic.
//!
//! A caller builds these (by hand, with the builders, or from Kubernetes JSON
//! and YAML under the feature `k8s`), so all parsing, compiling and hashing is
//! paid by whoever submits an object and never by the writer. Nothing here
//! knows of the log, of snapshots or of threads.
//!
//! # Serialization
//!
//! With the feature `serde`, these types and [`Event`](crate::log::Event) implement
//! `Serialize` and `Deserialize`, so that a log can be written and replayed: the same
//! events give the same versions, also those that were refused. This is the engine's own
//! form and not Kubernetes' (that is the feature `k8s`):
//!
//! - Structs are maps of their fields and reject unknown fields; enums have their
//!   variants' names. Labels, resource lists and scalar resources are maps, and
//!   quantities, uids and names are strings.
//! - Derived data is not written, or not trusted: hashes, zones, the order of sorted
//!   lists and the split of node labels are made anew from what they derive from.
//! - Pods that share a template have a template each after reading; the engine merges
//!   equal ones again.
//! - The form may change with every version before 1.0. Read a log with the version that
//!   wrote it.

mod affinity;
mod change;
mod class;
mod error;
mod generation;
mod godel;
mod labels;
mod load;
mod migration;
mod movement;
mod node;
mod node_parts;
mod numa;
mod objects;
mod pod;
mod pod_group;
mod quantity;
mod requests;
mod reservation;
mod resources;
mod selector;
#[cfg(feature = "serde")]
mod serialized;
mod storage;
mod taint;
mod template;
mod uid;

#[cfg(feature = "k8s")]
pub mod k8s;

pub(crate) use crate::hash::{hash_of, stable_hash_of};
pub use affinity::{
    NodeAffinity, NodeSelector, NodeSelectorTerm, PodAffinity, PodAffinityTerm,
    PreferredSchedulingTerm, TopologySpreadConstraint, UnsatisfiableAction,
    WeightedPodAffinityTerm,
};
pub use change::{Change, Diff};
pub use class::{Launcher, PodClass};
pub use error::EventError;
pub use generation::Generation;
pub use godel::{AbnormalPodState, GodelPod, NominatedNode, OwnerKey, PodState, Victim};
pub use labels::{LabelLookup, Labels};
pub use load::{GroupMetric, NodeMetrics, Profile, Usage};
pub use migration::InTreePlugin;
pub use movement::{Movement, MovementOwner, MovementTask, RecommendedNode};
pub(crate) use node::HOSTNAME;
pub use node::{Image, Node, NodeBuilder, NodeLabels, ZoneKey, node};
pub use node_parts::{CustomNodeResource, NmNode, NodeResources};
pub use numa::{MicroTopology, MicroTopologyError, NumaZone};
pub use objects::{Namespace, Object, ObjectKind, PodDisruptionBudget, Service, Workload};
pub use pod::{Pod, PodBuilder, Timestamp, pod};
pub use pod_group::{PodGroup, PodGroupPhase, PodGroupState};
pub use quantity::{Quantity, QuantityError};
pub use requests::{
    Container, ContainerKind, ContainerStatus, NonZero, PodResources, Requests, ResourceList,
};
pub use reservation::{Reservation, ReservationPhase};
#[cfg(feature = "k8s")]
pub(crate) use resources::is_scalar;
pub use resources::{Bytes, MilliCpu, ResourceOverflow, Resources, Scalars};
pub(crate) use resources::{is_extended, is_native};
pub use selector::{LabelSelector, Operator, Requirement};
pub use storage::{
    AccessMode, ClaimReference, CsiDriver, CsiNode, CsiNodeDriver, CsiStorageCapacity,
    PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAttachment, VolumeBindingMode,
    VolumeMode,
};
pub use taint::{Taint, TaintEffect, Toleration, TolerationOperator};
pub use template::{
    HostPort, OwnerReference, PodSpec, PreemptionPolicy, Protocol, Template, Volume, VolumeSource,
};
pub use uid::Uid;
pub(crate) use uid::key_hash;

/// A short string that many objects share: a namespace, a node name, a
/// resource name.
pub type Name = std::sync::Arc<str>;
