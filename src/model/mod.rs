//! Cluster objects in the form the engine stores: plain data and arithmetic.
//!
//! Callers create these objects with the builders, or from Kubernetes JSON and YAML with the crate `portolan-k8s`.
//! Parsing, compiling and hashing therefore happen on the caller's thread, before submission, and never in the writer.
//! This module depends on neither the log, nor snapshots, nor threads.
//!
//! # Serialization
//!
//! With the feature `serde`, these types and [`Event`](crate::cache::Event) implement `Serialize` and `Deserialize`, so
//! that a log can be written and replayed: the same events give the same versions and the same rejections. The format
//! is the engine's own, not that of Kubernetes (which `portolan-k8s` reads):
//!
//! - Structs are maps of their fields and reject unknown fields; enums are the names of their variants. Labels,
//!   resource lists and scalar resources are maps, and quantities, uids and names are strings.
//! - Derived data is either not written or not trusted. Hashes, zones, the order of sorted lists and the split of node
//!   labels are derived again. Of a pod's requests only the sums are written; reading sums that contradict each other
//!   is an error.
//! - Pods that shared a template have separate templates after reading. The engine merges equal templates.
//! - An event for a custom store ([`Event::Custom`](crate::cache::Event::Custom)) cannot be serialized, because only
//!   the store knows its type: writing one is an error.
//! - The format may change with every version before 1.0. Read a log with the version that wrote it.

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
#[cfg(feature = "serde")]
mod serialized;
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
pub use change::{Change, Diff, Fact, NoNote, Note};
pub(crate) use custom::AnyEvent;
pub use custom::CustomEvent;
pub use error::EventError;
pub use generation::Generation;
pub use godel::{
    AbnormalPodState, CustomNodeResource, GodelPod, GroupMetric, Launcher, Movement, MovementOwner,
    MovementTask, NmNode, NodeMetrics, NodeResources, NominatedNode, OwnerKey, PodClass, PodState,
    Profile, RecommendedNode, Reservation, ReservationPhase, Usage, Victim,
};
pub use labels::{LabelLookup, Labels};
pub use migration::InTreePlugin;
pub use node::{HOSTNAME, Image, Node, NodeBuilder, NodeLabels, ZoneKey, node};
pub use objects::{Namespace, Object, ObjectKind, PodDisruptionBudget, Service, Workload};
pub(crate) use objects::{namespace_of, object_kinds};
pub use pod::{DEFAULT_SCHEDULER, Pod, PodBuilder, Timestamp, pod};
pub use pod_group::{PodGroup, PodGroupPhase, PodGroupState};
pub use quantity::{Quantity, QuantityError};
pub use requests::{
    Container, ContainerKind, ContainerStatus, NonZero, PodResources, Requests, ResourceList,
};
pub(crate) use resources::is_extended;
pub use resources::{
    Bytes, MilliCpu, ResourceOverflow, Resources, Scalars, is_label_key, is_label_value,
    is_scheduled_resource,
};
pub use selector::{LabelSelector, Operator, Requirement};
pub use storage::{
    AccessMode, ClaimReference, CsiDriver, CsiNode, CsiNodeDriver, CsiStorageCapacity,
    PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAttachment, VolumeBindingMode,
    VolumeMode,
};
pub use taint::{Taint, TaintEffect, Toleration, TolerationOperator};
pub use template::{
    ContainerRequests, GeneratedClaims, HostPort, OwnerReference, PodResourceClaim, PodSpec,
    PreemptionPolicy, Protocol, Template, VolumeSource,
};
pub use uid::Uid;
pub(crate) use uid::{key_hash, pod_name_hash};

/// A short string that many objects share, such as a namespace, a node name or a resource name.
pub type Name = std::sync::Arc<str>;
