//! The other objects of a cluster that scheduling reads, beside pods and
//! nodes. Each kind has a store in the snapshot; more kinds come with the
//! plugins that read them.

use std::sync::Arc;

use super::storage::{
    CsiDriver, CsiNode, CsiStorageCapacity, PersistentVolume, PersistentVolumeClaim, StorageClass,
    VolumeAttachment,
};
use super::{
    CustomNodeResource, LabelSelector, Labels, Movement, Name, NmNode, PodGroup, Reservation,
};

/// A namespace: its labels are what namespace selectors see.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Namespace {
    /// Name.
    pub name: Name,
    /// Labels.
    pub labels: Labels,
}

/// A service: its selector spreads pods by default.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Service {
    /// Namespace.
    pub namespace: Name,
    /// Name.
    pub name: Name,
    /// `spec.selector`; an empty one selects nothing.
    pub selector: Labels,
}

/// A replica set, replication controller or stateful set, whose selector spreads the
/// pods that it owns; or a daemon set, whose selector spreads none.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Workload {
    /// Which of the kinds.
    pub kind: ObjectKind,
    /// Namespace.
    pub namespace: Name,
    /// Name.
    pub name: Name,
    /// Its own labels, which may be others than those of its pods.
    pub labels: Labels,
    /// `spec.selector`.
    pub selector: LabelSelector,
}

/// How many of some pods may be disrupted (policy/v1 `PodDisruptionBudget`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct PodDisruptionBudget {
    /// Namespace.
    pub namespace: Name,
    /// Name.
    pub name: Name,
    /// Which pods, of its namespace.
    pub selector: LabelSelector,
    /// `status.disruptionsAllowed`: how many more may go now.
    pub disruptions_allowed: i32,
    /// `status.disruptedPods`: names of pods that are on their way out, and
    /// counted already.
    pub disrupted_pods: Box<[Name]>,
}

impl PodDisruptionBudget {
    /// Whether the pod is one of those whose disruptions are counted.
    #[must_use]
    pub fn counts(&self, namespace: &str, name: &str, labels: &Labels) -> bool {
        *self.namespace == *namespace && self.selector.matches(labels) && !self.is_disrupted(name)
    }

    /// Whether the pod of its namespace is on its way out, and counted already.
    #[must_use]
    pub fn is_disrupted(&self, name: &str) -> bool {
        self.disrupted_pods.iter().any(|known| **known == *name)
    }
}

/// The kinds of [`Object`]s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum ObjectKind {
    /// v1 Namespace.
    Namespace,
    /// v1 Service.
    Service,
    /// v1 ReplicationController.
    ReplicationController,
    /// apps/v1 ReplicaSet.
    ReplicaSet,
    /// apps/v1 StatefulSet.
    StatefulSet,
    /// apps/v1 DaemonSet.
    DaemonSet,
    /// v1 PersistentVolume.
    PersistentVolume,
    /// v1 PersistentVolumeClaim.
    PersistentVolumeClaim,
    /// storage.k8s.io/v1 StorageClass.
    StorageClass,
    /// storage.k8s.io/v1 CSINode.
    CsiNode,
    /// storage.k8s.io/v1 VolumeAttachment.
    VolumeAttachment,
    /// storage.k8s.io/v1 CSIDriver.
    CsiDriver,
    /// storage.k8s.io/v1 CSIStorageCapacity.
    CsiStorageCapacity,
    /// policy/v1 PodDisruptionBudget.
    PodDisruptionBudget,
    /// PodGroup, of scheduling.k8s.io and others.
    PodGroup,
    /// node.godel.kubewharf.io/v1alpha1 NMNode: a part of the node of its name.
    NmNode,
    /// node.katalyst.kubewharf.io/v1alpha1 CustomNodeResource: a part of the node
    /// of its name.
    CustomNodeResource,
    /// scheduling.godel.kubewharf.io/v1alpha1 Reservation.
    Reservation,
    /// scheduling.godel.kubewharf.io/v1alpha1 Movement.
    Movement,
}

impl ObjectKind {
    /// All kinds.
    pub const ALL: [ObjectKind; 19] = [
        ObjectKind::Namespace,
        ObjectKind::Service,
        ObjectKind::ReplicationController,
        ObjectKind::ReplicaSet,
        ObjectKind::StatefulSet,
        ObjectKind::DaemonSet,
        ObjectKind::PersistentVolume,
        ObjectKind::PersistentVolumeClaim,
        ObjectKind::StorageClass,
        ObjectKind::CsiNode,
        ObjectKind::VolumeAttachment,
        ObjectKind::CsiDriver,
        ObjectKind::CsiStorageCapacity,
        ObjectKind::PodDisruptionBudget,
        ObjectKind::PodGroup,
        ObjectKind::NmNode,
        ObjectKind::CustomNodeResource,
        ObjectKind::Reservation,
        ObjectKind::Movement,
    ];

    /// Whether its objects are parts of nodes, kept with them and in no store of
    /// their own.
    #[must_use]
    pub fn is_node_part(self) -> bool {
        matches!(self, ObjectKind::NmNode | ObjectKind::CustomNodeResource)
    }

    /// As Kubernetes writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            ObjectKind::Namespace => "Namespace",
            ObjectKind::Service => "Service",
            ObjectKind::ReplicationController => "ReplicationController",
            ObjectKind::ReplicaSet => "ReplicaSet",
            ObjectKind::StatefulSet => "StatefulSet",
            ObjectKind::DaemonSet => "DaemonSet",
            ObjectKind::PersistentVolume => "PersistentVolume",
            ObjectKind::PersistentVolumeClaim => "PersistentVolumeClaim",
            ObjectKind::StorageClass => "StorageClass",
            ObjectKind::CsiNode => "CSINode",
            ObjectKind::VolumeAttachment => "VolumeAttachment",
            ObjectKind::CsiDriver => "CSIDriver",
            ObjectKind::CsiStorageCapacity => "CSIStorageCapacity",
            ObjectKind::PodDisruptionBudget => "PodDisruptionBudget",
            ObjectKind::PodGroup => "PodGroup",
            ObjectKind::NmNode => "NMNode",
            ObjectKind::CustomNodeResource => "CustomNodeResource",
            ObjectKind::Reservation => "Reservation",
            ObjectKind::Movement => "Movement",
        }
    }
}

/// An object of any of the kinds. It is shared: a clone costs one reference count, and
/// stores keep what they are given, without a copy. It is made of a plain object or of
/// a shared one (`budget.into()`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Object {
    /// A namespace.
    Namespace(Arc<Namespace>),
    /// A service.
    Service(Arc<Service>),
    /// A replica set, replication controller, stateful set or daemon set.
    Workload(Arc<Workload>),
    /// v1 PersistentVolume.
    PersistentVolume(Arc<PersistentVolume>),
    /// v1 PersistentVolumeClaim.
    PersistentVolumeClaim(Arc<PersistentVolumeClaim>),
    /// storage.k8s.io/v1 StorageClass.
    StorageClass(Arc<StorageClass>),
    /// storage.k8s.io/v1 CSINode.
    CsiNode(Arc<CsiNode>),
    /// storage.k8s.io/v1 VolumeAttachment.
    VolumeAttachment(Arc<VolumeAttachment>),
    /// storage.k8s.io/v1 CSIDriver.
    CsiDriver(Arc<CsiDriver>),
    /// storage.k8s.io/v1 CSIStorageCapacity.
    CsiStorageCapacity(Arc<CsiStorageCapacity>),
    /// policy/v1 PodDisruptionBudget.
    PodDisruptionBudget(Arc<PodDisruptionBudget>),
    /// A pod group.
    PodGroup(Arc<PodGroup>),
    /// An NMNode.
    NmNode(Arc<NmNode>),
    /// A CustomNodeResource.
    CustomNodeResource(Arc<CustomNodeResource>),
    /// A place that is held on a node.
    Reservation(Arc<Reservation>),
    /// A round of rescheduling.
    Movement(Arc<Movement>),
}

impl Object {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> ObjectKind {
        match self {
            Object::Namespace(_) => ObjectKind::Namespace,
            Object::Service(_) => ObjectKind::Service,
            Object::Workload(workload) => workload.kind,
            Object::PersistentVolume(_) => ObjectKind::PersistentVolume,
            Object::PersistentVolumeClaim(_) => ObjectKind::PersistentVolumeClaim,
            Object::StorageClass(_) => ObjectKind::StorageClass,
            Object::CsiNode(_) => ObjectKind::CsiNode,
            Object::VolumeAttachment(_) => ObjectKind::VolumeAttachment,
            Object::CsiDriver(_) => ObjectKind::CsiDriver,
            Object::CsiStorageCapacity(_) => ObjectKind::CsiStorageCapacity,
            Object::PodDisruptionBudget(_) => ObjectKind::PodDisruptionBudget,
            Object::PodGroup(_) => ObjectKind::PodGroup,
            Object::NmNode(_) => ObjectKind::NmNode,
            Object::CustomNodeResource(_) => ObjectKind::CustomNodeResource,
            Object::Reservation(_) => ObjectKind::Reservation,
            Object::Movement(_) => ObjectKind::Movement,
        }
    }

    /// Its namespace; empty for an object of the cluster.
    #[must_use]
    pub fn namespace(&self) -> &str {
        match self {
            Object::Namespace(_)
            | Object::PersistentVolume(_)
            | Object::StorageClass(_)
            | Object::CsiNode(_)
            | Object::VolumeAttachment(_)
            | Object::CsiDriver(_)
            | Object::NmNode(_)
            | Object::CustomNodeResource(_)
            | Object::Movement(_) => "",
            Object::Service(service) => &service.namespace,
            Object::Workload(workload) => &workload.namespace,
            Object::PersistentVolumeClaim(object) => &object.namespace,
            Object::CsiStorageCapacity(object) => &object.namespace,
            Object::PodDisruptionBudget(object) => &object.namespace,
            Object::PodGroup(object) => &object.namespace,
            Object::Reservation(object) => &object.namespace,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &Name {
        match self {
            Object::Namespace(namespace) => &namespace.name,
            Object::Service(service) => &service.name,
            Object::Workload(workload) => &workload.name,
            Object::PersistentVolume(object) => &object.name,
            Object::PersistentVolumeClaim(object) => &object.name,
            Object::StorageClass(object) => &object.name,
            Object::CsiNode(object) => &object.name,
            Object::VolumeAttachment(object) => &object.name,
            Object::CsiDriver(object) => &object.name,
            Object::CsiStorageCapacity(object) => &object.name,
            Object::PodDisruptionBudget(object) => &object.name,
            Object::PodGroup(object) => &object.name,
            Object::NmNode(object) => &object.name,
            Object::CustomNodeResource(object) => &object.name,
            Object::Reservation(object) => &object.name,
            Object::Movement(object) => &object.name,
        }
    }
}

/// Of each kind, plain objects and shared ones.
macro_rules! into_object {
    ($($kind:ident)*) => {$(
        impl From<$kind> for Object {
            fn from(object: $kind) -> Object {
                Object::$kind(Arc::new(object))
            }
        }

        impl From<Arc<$kind>> for Object {
            fn from(object: Arc<$kind>) -> Object {
                Object::$kind(object)
            }
        }
    )*};
}

into_object! {
    Namespace
    Service
    Workload
    PersistentVolume
    PersistentVolumeClaim
    StorageClass
    CsiNode
    VolumeAttachment
    CsiDriver
    CsiStorageCapacity
    PodDisruptionBudget
    PodGroup
    NmNode
    CustomNodeResource
    Reservation
    Movement
}
