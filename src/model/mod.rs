//! Cluster objects as the engine keeps them: pure data and arithmetic.
//!
//! A caller builds these (by hand, with the builders, or from Kubernetes JSON
//! and YAML by the crate `portolan-k8s`), so all parsing, compiling and hashing is
//! paid by whoever submits an object and never by the writer. Nothing here
//! knows of the log, of snapshots or of threads.

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
mod storage;
mod taint;
mod template;
mod uid;

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
pub use resources::{
    Bytes, MilliCpu, ResourceOverflow, Resources, Scalars, is_label_key, is_label_value,
    is_scheduled_resource,
};
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
