//! The other objects of a cluster that scheduling reads, beside pods and nodes.
//!
//! One table, `object_kinds`, has all kinds. From it follow the types here, the stores of a version, and what plugins
//! can register for.

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

/// Calls a macro with the table of the kinds: the one place where a kind is named that is kept as most are.
///
/// A row has the kind, its name in Kubernetes, its documentation, and how its objects are kept:
///
/// - `object(SCOPE) TYPE in STORE "DOCUMENTATION"`: objects of a type of their own in a store of their own. The scope
///   is `namespaced` or `cluster`.
/// - `workload TYPE in STORE "DOCUMENTATION"`: workloads, several kinds of one type.
/// - `part TYPE`: parts of nodes, kept with their nodes.
///
/// What else is done with an object of a kind (the index of budgets, the places of Reservations, the suggestions of
/// Movements) is written where it is done.
macro_rules! object_kinds {
    ($callback:ident) => {
        $callback! {
            Namespace "Namespace" "v1 Namespace."
                object(cluster) Namespace in namespaces "Namespaces.";
            Service "Service" "v1 Service."
                object(namespaced) Service in services "Services.";
            ReplicationController "ReplicationController" "v1 ReplicationController."
                workload Workload in replication_controllers "ReplicationControllers.";
            ReplicaSet "ReplicaSet" "apps/v1 ReplicaSet."
                workload Workload in replica_sets "ReplicaSets.";
            StatefulSet "StatefulSet" "apps/v1 StatefulSet."
                workload Workload in stateful_sets "StatefulSets.";
            DaemonSet "DaemonSet" "apps/v1 DaemonSet."
                workload Workload in daemon_sets
                "DaemonSets: owners of pods, whose selectors spread none.";
            PersistentVolume "PersistentVolume" "v1 PersistentVolume."
                object(cluster) PersistentVolume in persistent_volumes "PersistentVolumes.";
            PersistentVolumeClaim "PersistentVolumeClaim" "v1 PersistentVolumeClaim."
                object(namespaced) PersistentVolumeClaim in persistent_volume_claims
                "PersistentVolumeClaims.";
            StorageClass "StorageClass" "storage.k8s.io/v1 StorageClass."
                object(cluster) StorageClass in storage_classes "StorageClasses.";
            CsiNode "CSINode" "storage.k8s.io/v1 CSINode."
                object(cluster) CsiNode in csi_nodes "CSINodes.";
            VolumeAttachment "VolumeAttachment" "storage.k8s.io/v1 VolumeAttachment."
                object(cluster) VolumeAttachment in volume_attachments "VolumeAttachments.";
            CsiDriver "CSIDriver" "storage.k8s.io/v1 CSIDriver."
                object(cluster) CsiDriver in csi_drivers "CSIDrivers.";
            CsiStorageCapacity "CSIStorageCapacity" "storage.k8s.io/v1 CSIStorageCapacity."
                object(namespaced) CsiStorageCapacity in csi_storage_capacities
                "CSIStorageCapacities.";
            PodDisruptionBudget "PodDisruptionBudget" "policy/v1 PodDisruptionBudget."
                object(namespaced) PodDisruptionBudget in pod_disruption_budgets
                "PodDisruptionBudgets. [`Cluster::budgets_for`](super::Cluster::budgets_for) finds those of a pod.";
            PodGroup "PodGroup" "PodGroup, of scheduling.k8s.io and others."
                object(namespaced) PodGroup in pod_groups
                "PodGroups. [`Cluster::placed_members`](super::Cluster::placed_members) counts the placed pods of one.";
            NmNode "NMNode"
                "node.godel.kubewharf.io/v1alpha1 NMNode: a part of the node of its name."
                part NmNode;
            CustomNodeResource "CustomNodeResource"
                "node.katalyst.kubewharf.io/v1alpha1 CustomNodeResource: a part of the node of its name."
                part CustomNodeResource;
            Reservation "Reservation" "scheduling.godel.kubewharf.io/v1alpha1 Reservation."
                object(namespaced) Reservation in reservations
                "Reservations. [`Cluster::reservations`](super::Cluster::reservations) has the places that they hold.";
            Movement "Movement" "scheduling.godel.kubewharf.io/v1alpha1 Movement."
                object(cluster) Movement in movements
                "Movements. [`Cluster::movements`](super::Cluster::movements) has what they suggest.";
        }
    };
}

pub(crate) use object_kinds;

/// The namespace of an object, or an empty one.
macro_rules! namespace_of {
    (cluster $object:ident) => {{
        let _ = $object;
        ""
    }};
    (namespaced $object:ident) => {
        &$object.namespace
    };
}

pub(crate) use namespace_of;

macro_rules! define_kinds {
    ($(
        $kind:ident $name:literal $doc:literal
        $(object($scope:ident) $type:ident in $field:ident $stores:literal)?
        $(workload $workload:ident in $workloads:ident $kept:literal)?
        $(part $part:ident)?;
    )*) => {
        /// The kinds of [`Object`]s.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[non_exhaustive]
        pub enum ObjectKind {
            $(
                #[doc = $doc]
                $kind,
            )*
        }

        impl ObjectKind {
            /// All kinds.
            pub const ALL: [ObjectKind; COUNT] = [$(ObjectKind::$kind),*];

            /// Whether its objects are parts of nodes, kept with them and in no store of
            /// their own.
            #[must_use]
            pub fn is_node_part(self) -> bool {
                matches!(self, $($(| ObjectKind::$part)?)*)
            }

            /// As Kubernetes writes it.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(ObjectKind::$kind => $name,)*
                }
            }
        }

        const COUNT: usize = [$($name),*].len();

        /// An object of any of the kinds. It is shared: a clone costs one reference count, and
        /// stores keep what they are given, without a copy. It is made of a plain object or of
        /// a shared one (`budget.into()`).
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[non_exhaustive]
        pub enum Object {
            /// A ReplicationController, ReplicaSet, StatefulSet or DaemonSet.
            Workload(Arc<Workload>),
            $($(
                #[doc = $doc]
                $type(Arc<$type>),
            )?)*
            $($(
                #[doc = $doc]
                $part(Arc<$part>),
            )?)*
        }

        impl Object {
            /// Its kind.
            #[must_use]
            pub fn kind(&self) -> ObjectKind {
                match self {
                    Object::Workload(workload) => workload.kind,
                    $($(Object::$type(_) => ObjectKind::$type,)?)*
                    $($(Object::$part(_) => ObjectKind::$part,)?)*
                }
            }

            /// Its namespace; empty for an object of the cluster.
            #[must_use]
            pub fn namespace(&self) -> &str {
                match self {
                    Object::Workload(workload) => &workload.namespace,
                    $($(Object::$type(object) => namespace_of!($scope object),)?)*
                    $($(Object::$part(_) => "",)?)*
                }
            }

            /// Its name.
            #[must_use]
            pub fn name(&self) -> &Name {
                match self {
                    Object::Workload(workload) => &workload.name,
                    $($(Object::$type(object) => &object.name,)?)*
                    $($(Object::$part(object) => &object.name,)?)*
                }
            }
        }

        into_object! { Workload $($($type)?)* $($($part)?)* }
    };
}

/// Of each type, plain objects and shared ones.
macro_rules! into_object {
    ($($type:ident)*) => {$(
        impl From<$type> for Object {
            fn from(object: $type) -> Object {
                Object::$type(Arc::new(object))
            }
        }

        impl From<Arc<$type>> for Object {
            fn from(object: Arc<$type>) -> Object {
                Object::$type(object)
            }
        }
    )*};
}

object_kinds!(define_kinds);
