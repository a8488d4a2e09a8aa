//! The kinds that the server serves, and the API conventions that each follows.

/// One kind: its path and its API conventions.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) namespaced: bool,
    /// `status` can only be written through the subresource.
    pub(crate) status: bool,
    /// Changes of the specification increment `metadata.generation`.
    pub(crate) generation: bool,
    /// An update may leave out `metadata.resourceVersion`.
    pub(crate) unconditional_update: bool,
    /// A PUT creates an object that does not exist.
    pub(crate) create_on_update: bool,
    /// The kind is a review, which is answered but not stored.
    pub(crate) review: bool,
    /// Fields that a field selector may name, besides `metadata.name` and `metadata.namespace`.
    pub(crate) fields: &'static [&'static str],
}

impl Resource {
    /// The plural with its group: `pods`, `leases.coordination.k8s.io`.
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.plural.to_owned()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

const fn namespaced(group: &'static str, plural: &'static str, kind: &'static str) -> Resource {
    Resource {
        group,
        version: "v1",
        plural,
        kind,
        namespaced: true,
        status: false,
        generation: false,
        unconditional_update: true,
        create_on_update: false,
        review: false,
        fields: &[],
    }
}

const fn cluster(group: &'static str, plural: &'static str, kind: &'static str) -> Resource {
    Resource { namespaced: false, ..namespaced(group, plural, kind) }
}

const fn review(group: &'static str, plural: &'static str, kind: &'static str) -> Resource {
    Resource { review: true, ..cluster(group, plural, kind) }
}

impl Resource {
    const fn with_status(self) -> Self {
        Resource { status: true, ..self }
    }

    const fn with_generation(self) -> Self {
        Resource { generation: true, ..self }
    }

    const fn conditional(self) -> Self {
        Resource { unconditional_update: false, ..self }
    }

    const fn create_on_update(self) -> Self {
        Resource { create_on_update: true, ..self }
    }

    const fn selectable(self, fields: &'static [&'static str]) -> Self {
        Resource { fields, ..self }
    }
}

const EVENT_FIELDS: &[&str] =
    &["reason", "type", "regarding.name", "regarding.namespace", "regarding.uid"];

/// All kinds.
pub(crate) static TABLE: [Resource; 28] = [
    namespaced("", "pods", "Pod").with_status().with_generation().selectable(&[
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "status.nominatedNodeName",
        "status.phase",
        "status.podIP",
    ]),
    cluster("", "nodes", "Node").with_status().selectable(&["spec.unschedulable"]),
    cluster("", "namespaces", "Namespace").with_status().selectable(&["status.phase"]),
    namespaced("", "services", "Service").with_status().selectable(&["spec.type"]),
    cluster("", "persistentvolumes", "PersistentVolume").with_status(),
    namespaced("", "persistentvolumeclaims", "PersistentVolumeClaim").with_status(),
    namespaced("", "replicationcontrollers", "ReplicationController")
        .with_status()
        .with_generation(),
    namespaced("events.k8s.io", "events", "Event").create_on_update().selectable(EVENT_FIELDS),
    namespaced("", "configmaps", "ConfigMap"),
    namespaced("", "secrets", "Secret"),
    namespaced("", "serviceaccounts", "ServiceAccount"),
    namespaced("apps", "replicasets", "ReplicaSet").with_status().with_generation(),
    namespaced("apps", "statefulsets", "StatefulSet").with_status().with_generation(),
    namespaced("apps", "deployments", "Deployment").with_status().with_generation(),
    namespaced("policy", "poddisruptionbudgets", "PodDisruptionBudget")
        .with_status()
        .with_generation()
        .conditional(),
    cluster("storage.k8s.io", "storageclasses", "StorageClass"),
    cluster("storage.k8s.io", "csinodes", "CSINode").conditional(),
    cluster("storage.k8s.io", "csidrivers", "CSIDriver").conditional(),
    namespaced("storage.k8s.io", "csistoragecapacities", "CSIStorageCapacity"),
    cluster("storage.k8s.io", "volumeattachments", "VolumeAttachment").with_status().conditional(),
    cluster("scheduling.k8s.io", "priorityclasses", "PriorityClass").with_generation(),
    namespaced("coordination.k8s.io", "leases", "Lease").conditional().create_on_update(),
    namespaced("resource.k8s.io", "resourceclaims", "ResourceClaim").with_status(),
    namespaced("resource.k8s.io", "resourceclaimtemplates", "ResourceClaimTemplate"),
    cluster("resource.k8s.io", "resourceslices", "ResourceSlice")
        .with_generation()
        .selectable(&["spec.driver", "spec.nodeName"]),
    cluster("resource.k8s.io", "deviceclasses", "DeviceClass").with_generation(),
    review("authentication.k8s.io", "tokenreviews", "TokenReview"),
    review("authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview"),
];

macro_rules! named {
    ($($function:ident $plural:literal;)*) => {
        $(pub(crate) fn $function() -> &'static Resource {
            by_plural($plural).expect("the table has every kind that the server itself uses")
        })*
    };
}

named! {
    pods "pods";
    nodes "nodes";
    namespaces "namespaces";
    priority_classes "priorityclasses";
    storage_classes "storageclasses";
    claims "persistentvolumeclaims";
    volumes "persistentvolumes";
    budgets "poddisruptionbudgets";
    deployments "deployments";
    replica_sets "replicasets";
    resource_claims "resourceclaims";
    resource_claim_templates "resourceclaimtemplates";
}

/// The resource under a path; the core group is "".
pub(crate) fn by_path(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    TABLE.iter().find(|r| r.group == group && r.version == version && r.plural == plural)
}

/// The first resource with a plural.
pub(crate) fn by_plural(plural: &str) -> Option<&'static Resource> {
    TABLE.iter().find(|r| r.plural == plural)
}

/// The first resource with a kind (`Pod`), a plural (`pods`), or a plural with its group
/// (`leases.coordination.k8s.io`).
pub(crate) fn by_name(name: &str) -> Option<&'static Resource> {
    TABLE.iter().find(|r| r.kind == name || r.plural == name || r.qualified() == name)
}

/// The resource of an object.
pub(crate) fn by_kind(api_version: &str, kind: &str) -> Option<&'static Resource> {
    TABLE.iter().find(|r| r.kind == kind && r.api_version() == api_version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_found_by_every_name() {
        for resource in &TABLE {
            assert_eq!(
                by_path(resource.group, resource.version, resource.plural).unwrap().kind,
                resource.kind
            );
            assert_eq!(
                by_kind(&resource.api_version(), resource.kind).unwrap().plural,
                resource.plural
            );
        }
        assert_eq!(by_name("leases.coordination.k8s.io").unwrap().kind, "Lease");
        assert_eq!(by_name("Event").unwrap().group, "events.k8s.io");
        assert!(by_name("Widget").is_none());
    }
}
