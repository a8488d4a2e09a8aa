//! The objects other than pods and nodes that scheduling depends on.
//!
//! The macro `object_kinds` contains the table of all kinds. It generates the types in this file, the stores of a
//! version, and the resources for whose events plugins can register.

use std::sync::Arc;

use super::storage::{
    CsiDriver, CsiNode, CsiStorageCapacity, PersistentVolume, PersistentVolumeClaim, StorageClass,
    VolumeAttachment,
};
use super::{
    CustomNodeResource, LabelSelector, Labels, Movement, Name, NmNode, PodGroup, Reservation,
};

/// A namespace, whose labels are matched by namespace selectors.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Namespace {
    /// Name.
    pub name: Name,
    /// Labels.
    pub labels: Labels,
}

/// A service, whose selector determines the pods that are spread by default.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Service {
    /// Namespace.
    pub namespace: Name,
    /// Name.
    pub name: Name,
    /// `spec.selector`. An empty selector selects no pods.
    pub selector: Labels,
}

/// A ReplicaSet, ReplicationController or StatefulSet, whose selector determines the pods that are spread by default,
/// or a DaemonSet, whose pods are not spread.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Workload {
    /// The kind of the workload.
    pub kind: ObjectKind,
    /// Namespace.
    pub namespace: Name,
    /// Name.
    pub name: Name,
    /// The labels of the workload itself, which may differ from those of its pods.
    pub labels: Labels,
    /// `spec.selector`.
    pub selector: LabelSelector,
}

/// A limit on the voluntary disruptions of the pods that a selector matches (policy/v1 `PodDisruptionBudget`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct PodDisruptionBudget {
    /// Namespace.
    pub namespace: Name,
    /// Name.
    pub name: Name,
    /// The selector of the pods, in the budget's namespace.
    pub selector: LabelSelector,
    /// `status.disruptionsAllowed`: the number of pods that may currently be disrupted.
    pub disruptions_allowed: i32,
    /// `status.disruptedPods`: the names of the pods whose disruption is in progress and already counted.
    pub disrupted_pods: Box<[Name]>,
}

impl PodDisruptionBudget {
    /// Returns `true` if disrupting the pod counts against the budget: the pod is in its namespace, matches its
    /// selector and is not already counted.
    #[must_use]
    pub(crate) fn counts(&self, namespace: &str, name: &str, labels: &Labels) -> bool {
        *self.namespace == *namespace && self.selector.matches(labels) && !self.is_disrupted(name)
    }

    /// Returns `true` if the disruption of this pod of the budget's namespace is in progress and already counted.
    #[must_use]
    pub(crate) fn is_disrupted(&self, name: &str) -> bool {
        self.disrupted_pods.iter().any(|known| **known == *name)
    }
}

/// Calls a macro with the table of kinds. To add a kind without special rules, add a row here.
///
/// A row consists of the kind, its name in Kubernetes, its documentation, and the way in which its objects are stored:
///
/// - `object(SCOPE) TYPE in STORE "DOCUMENTATION"`: objects with their own type and store. The scope is `namespaced` or
///   `cluster`.
/// - `workload TYPE in STORE "DOCUMENTATION"`: workloads, several kinds of which share a type.
/// - `part TYPE`: parts of nodes, which are stored with their nodes.
///
/// The special rules of a kind, such as the index of budgets, the reservations of Reservations or the suggestions of
/// Movements, are implemented elsewhere.
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
                "DaemonSets, which own pods but whose selectors do not spread them.";
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
                "PodDisruptionBudgets. [`Cluster::budgets_for`](super::Cluster::budgets_for) returns those of a pod.";
            PodGroup "PodGroup" "PodGroup, of scheduling.k8s.io and others."
                object(namespaced) PodGroup in pod_groups
                "PodGroups. [`Cluster::placed_members`](super::Cluster::placed_members) counts the placed pods of one.";
            NmNode "NMNode"
                "node.godel.kubewharf.io/v1alpha1 NMNode, a part of the node with the same name."
                part NmNode;
            CustomNodeResource "CustomNodeResource"
                "node.katalyst.kubewharf.io/v1alpha1 CustomNodeResource, a part of the node with the same name."
                part CustomNodeResource;
            Reservation "Reservation" "scheduling.godel.kubewharf.io/v1alpha1 Reservation."
                object(namespaced) Reservation in reservations
                "Reservations. [`Cluster::reservations`](super::Cluster::reservations) returns the reserved places.";
            Movement "Movement" "scheduling.godel.kubewharf.io/v1alpha1 Movement."
                object(cluster) Movement in movements
                "Movements. [`Cluster::movements`](super::Cluster::movements) returns their suggestions.";
        }
    };
}

pub(crate) use object_kinds;

/// Returns the namespace of an object, which is empty for cluster-scoped kinds.
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
        /// The kinds of objects other than pods and Nodes.
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

            /// Returns `true` if objects of this kind are parts of nodes, which are stored with their nodes instead of
            /// in a store of their own.
            #[must_use]
            pub fn is_node_part(self) -> bool {
                matches!(self, $($(| ObjectKind::$part)?)*)
            }

            /// Returns the name of the kind in Kubernetes.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(ObjectKind::$kind => $name,)*
                }
            }
        }

        const COUNT: usize = [$($name),*].len();

        /// An object of any kind other than pod and Node. Created from an object or an [`Arc`] of one by `into`.
        ///
        /// The object is shared: a clone costs one reference count, and stores do not copy it.
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
            /// Returns the kind of the object.
            #[must_use]
            pub fn kind(&self) -> ObjectKind {
                match self {
                    Object::Workload(workload) => workload.kind,
                    $($(Object::$type(_) => ObjectKind::$type,)?)*
                    $($(Object::$part(_) => ObjectKind::$part,)?)*
                }
            }

            /// Returns the namespace of the object, which is empty for cluster-scoped kinds.
            #[must_use]
            pub fn namespace(&self) -> &str {
                match self {
                    Object::Workload(workload) => &workload.namespace,
                    $($(Object::$type(object) => namespace_of!($scope object),)?)*
                    $($(Object::$part(_) => "",)?)*
                }
            }

            /// Returns the name of the object.
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

/// Implements the conversions from each type and from an `Arc` of it.
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
