//! The resources that a scheduler reads and writes, and their paths.

/// A resource of the Kubernetes API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Resource {
    /// The kind of its objects, such as `Pod`.
    pub kind: &'static str,
    /// The group and version, such as `v1` or `storage.k8s.io/v1`.
    pub api_version: &'static str,
    /// The name in paths, such as `pods`.
    pub plural: &'static str,
    /// Whether its objects have namespaces.
    pub is_namespaced: bool,
}

macro_rules! resources {
    ($($name:ident: $kind:literal, $version:literal, $plural:literal, $scope:ident;)*) => {
        impl Resource {
            $(#[doc = concat!("`", $plural, "` of `", $version, "`.")]
            pub const $name: Resource = Resource {
                kind: $kind,
                api_version: $version,
                plural: $plural,
                is_namespaced: resources!(@$scope),
            };)*
        }
    };
    (@namespaced) => { true };
    (@cluster) => { false };
}

resources! {
    PODS: "Pod", "v1", "pods", namespaced;
    NODES: "Node", "v1", "nodes", cluster;
    NAMESPACES: "Namespace", "v1", "namespaces", cluster;
    SERVICES: "Service", "v1", "services", namespaced;
    REPLICATION_CONTROLLERS: "ReplicationController", "v1", "replicationcontrollers", namespaced;
    REPLICA_SETS: "ReplicaSet", "apps/v1", "replicasets", namespaced;
    STATEFUL_SETS: "StatefulSet", "apps/v1", "statefulsets", namespaced;
    DAEMON_SETS: "DaemonSet", "apps/v1", "daemonsets", namespaced;
    PRIORITY_CLASSES: "PriorityClass", "scheduling.k8s.io/v1", "priorityclasses", cluster;
    RUNTIME_CLASSES: "RuntimeClass", "node.k8s.io/v1", "runtimeclasses", cluster;
    POD_DISRUPTION_BUDGETS: "PodDisruptionBudget", "policy/v1", "poddisruptionbudgets", namespaced;
    PERSISTENT_VOLUMES: "PersistentVolume", "v1", "persistentvolumes", cluster;
    PERSISTENT_VOLUME_CLAIMS: "PersistentVolumeClaim", "v1", "persistentvolumeclaims", namespaced;
    STORAGE_CLASSES: "StorageClass", "storage.k8s.io/v1", "storageclasses", cluster;
    CSI_NODES: "CSINode", "storage.k8s.io/v1", "csinodes", cluster;
    CSI_DRIVERS: "CSIDriver", "storage.k8s.io/v1", "csidrivers", cluster;
    CSI_STORAGE_CAPACITIES: "CSIStorageCapacity", "storage.k8s.io/v1", "csistoragecapacities", namespaced;
    VOLUME_ATTACHMENTS: "VolumeAttachment", "storage.k8s.io/v1", "volumeattachments", cluster;
    DEVICE_CLASSES: "DeviceClass", "resource.k8s.io/v1", "deviceclasses", cluster;
    RESOURCE_SLICES: "ResourceSlice", "resource.k8s.io/v1", "resourceslices", cluster;
    RESOURCE_CLAIMS: "ResourceClaim", "resource.k8s.io/v1", "resourceclaims", namespaced;
    EVENTS: "Event", "events.k8s.io/v1", "events", namespaced;
    LEASES: "Lease", "coordination.k8s.io/v1", "leases", namespaced;
    TOKEN_REVIEWS: "TokenReview", "authentication.k8s.io/v1", "tokenreviews", cluster;
    SUBJECT_ACCESS_REVIEWS: "SubjectAccessReview", "authorization.k8s.io/v1", "subjectaccessreviews", cluster;
}

impl Resource {
    /// Returns the path of all objects, in one namespace or in all.
    #[must_use]
    pub fn collection(&self, namespace: Option<&str>) -> String {
        let root = if self.api_version.contains('/') { "apis" } else { "api" };
        match namespace.filter(|_| self.is_namespaced) {
            Some(namespace) => {
                format!("/{root}/{}/namespaces/{namespace}/{}", self.api_version, self.plural)
            }
            None => format!("/{root}/{}/{}", self.api_version, self.plural),
        }
    }

    /// Returns the path of an object. The namespace of an object without one is empty.
    #[must_use]
    pub fn object(&self, namespace: &str, name: &str) -> String {
        format!("{}/{name}", self.collection(Some(namespace)))
    }
}
