//! Cluster objects as the engine keeps them: pure data and arithmetic.
//!
//! A caller builds these (by hand, with the builders, or from Kubernetes JSON
//! and YAML under the feature `k8s`), so all parsing, compiling and hashing is
//! paid by whoever submits an object and never by the writer. Nothing here
//! knows of the log, of snapshots or of threads.

mod affinity;
mod change;
mod custom;
mod error;
mod generation;
mod godel;
mod labels;
mod migration;
mod node;
mod objects;
mod pod;
mod pod_group;
mod quantity;
mod requests;
mod resources;
mod selector;
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
pub use change::{Change, Diff, Fact, NoNote, Note};
pub(crate) use custom::AnyEvent;
pub use custom::CustomEvent;
pub use error::EventError;
pub use generation::Generation;
pub use godel::{
    AbnormalPodState, CustomNodeResource, GodelPod, GroupMetric, Launcher, MicroTopology,
    MicroTopologyError, Movement, MovementOwner, MovementTask, NmNode, NodeMetrics, NodeResources,
    NominatedNode, NumaZone, OwnerKey, PodClass, PodState, Profile, RecommendedNode, Reservation,
    ReservationPhase, Usage, Victim,
};
pub use labels::{LabelLookup, Labels};
pub use migration::InTreePlugin;
pub(crate) use node::HOSTNAME;
pub use node::{Image, Node, NodeBuilder, NodeLabels, ZoneKey, node};
pub use objects::{Namespace, Object, ObjectKind, PodDisruptionBudget, Service, Workload};
pub(crate) use objects::{namespace_of, object_kinds};
pub use pod::{Pod, PodBuilder, Timestamp, pod};
pub use pod_group::{PodGroup, PodGroupPhase, PodGroupState};
pub use quantity::{Quantity, QuantityError};
pub use requests::{
    Container, ContainerKind, ContainerStatus, NonZero, PodResources, Requests, ResourceList,
};
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
