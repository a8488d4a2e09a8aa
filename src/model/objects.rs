//! The other objects of a cluster that scheduling reads, beside pods and
//! nodes. Each kind has a store in the snapshot; more kinds come with the
//! plugins that read them.

use super::{LabelSelector, Labels, Name};

/// A namespace: its labels are what namespace selectors see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Name.
    pub name: Name,
    /// Labels.
    pub labels: Labels,
}

/// A service: its selector spreads pods by default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Namespace.
    pub namespace: Name,
    /// Name.
    pub name: Name,
    /// `spec.selector`; an empty one selects nothing.
    pub selector: Labels,
}

/// A replica set, replication controller or stateful set: its selector spreads
/// the pods that it owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Which of the kinds.
    pub kind: ObjectKind,
    /// Namespace.
    pub namespace: Name,
    /// Name.
    pub name: Name,
    /// `spec.selector`.
    pub selector: LabelSelector,
}

/// The kinds of [`Object`]s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
}

impl ObjectKind {
    /// All kinds.
    pub const ALL: [ObjectKind; 5] = [
        ObjectKind::Namespace,
        ObjectKind::Service,
        ObjectKind::ReplicationController,
        ObjectKind::ReplicaSet,
        ObjectKind::StatefulSet,
    ];

    /// As Kubernetes writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            ObjectKind::Namespace => "Namespace",
            ObjectKind::Service => "Service",
            ObjectKind::ReplicationController => "ReplicationController",
            ObjectKind::ReplicaSet => "ReplicaSet",
            ObjectKind::StatefulSet => "StatefulSet",
        }
    }
}

/// An object of any of the kinds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Object {
    /// A namespace.
    Namespace(Namespace),
    /// A service.
    Service(Service),
    /// A replica set, replication controller or stateful set.
    Workload(Workload),
}

impl Object {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> ObjectKind {
        match self {
            Object::Namespace(_) => ObjectKind::Namespace,
            Object::Service(_) => ObjectKind::Service,
            Object::Workload(workload) => workload.kind,
        }
    }

    /// Its namespace; empty for an object of the cluster.
    #[must_use]
    pub fn namespace(&self) -> &str {
        match self {
            Object::Namespace(_) => "",
            Object::Service(service) => &service.namespace,
            Object::Workload(workload) => &workload.namespace,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &Name {
        match self {
            Object::Namespace(namespace) => &namespace.name,
            Object::Service(service) => &service.name,
            Object::Workload(workload) => &workload.name,
        }
    }
}
