//! Finds objects whose kind does not exist in their version: a Deployment of `v1`, a `pod`.
//!
//! Only the groups of the kinds that are read are known. A kind of another group may be a custom resource, unless the
//! name of the group has no dot or ends in `.k8s.io`: those groups are reserved for Kubernetes, so a built-in kind in
//! one of them is a mistake.

use super::Step;
use crate::collect::Kind;

/// The kinds of dynamic resource allocation.
const DEVICES: &[&str] =
    &["DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"];

/// The kinds of each version.
const KINDS: [(&str, &[&str]); 15] = [
    (
        "v1",
        &[
            "Binding",
            "ComponentStatus",
            // The configuration of kubectl, which directories may contain.
            "Config",
            "ConfigMap",
            "Endpoints",
            "Event",
            "LimitRange",
            "List",
            "Namespace",
            "Node",
            "PersistentVolume",
            "PersistentVolumeClaim",
            "Pod",
            "PodTemplate",
            "ReplicationController",
            "ResourceQuota",
            "Secret",
            "Service",
            "ServiceAccount",
            "Status",
        ],
    ),
    ("apps/v1", &["ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"]),
    ("batch/v1", &["CronJob", "Job"]),
    ("policy/v1", &["Eviction", "PodDisruptionBudget"]),
    ("scheduling.k8s.io/v1", &["PriorityClass"]),
    ("node.k8s.io/v1", &["RuntimeClass"]),
    (
        "storage.k8s.io/v1",
        &[
            "CSIDriver",
            "CSINode",
            "CSIStorageCapacity",
            "StorageClass",
            "VolumeAttachment",
            "VolumeAttributesClass",
        ],
    ),
    ("storage.k8s.io/v1beta1", &["VolumeAttributesClass"]),
    ("storage.k8s.io/v1alpha1", &["VolumeAttributesClass"]),
    ("resource.k8s.io/v1", DEVICES),
    ("resource.k8s.io/v1beta2", DEVICES),
    ("resource.k8s.io/v1beta1", DEVICES),
    ("events.k8s.io/v1", &["Event"]),
    ("events.k8s.io/v1beta1", &["Event"]),
    ("audit.k8s.io/v1", &["Event"]),
];

/// All kinds with their versions.
fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    KINDS.iter().flat_map(|(version, kinds)| kinds.iter().map(move |kind| (*version, *kind)))
}

/// Returns whether a built-in kind of this name is read. A skipped object of such a kind is one of another API group.
#[must_use]
pub fn is_read(kind: &str) -> bool {
    all().any(|(version, known)| known == kind && Kind::of(version, known).name().is_some())
}

fn group(version: &str) -> &str {
    version.split_once('/').map_or("", |(group, _)| group)
}

/// Returns the field to correct and the defect if the kind does not exist in the version. A kind that is unknown
/// everywhere may exist in a version that is not known.
pub(super) fn unserved(api_version: &str, kind: &str) -> Option<(Step, String)> {
    // An empty list.
    let kind = kind.strip_suffix("List").filter(|item| !item.is_empty()).unwrap_or(kind);
    if all().any(|known| known == (api_version, kind)) {
        return None;
    }
    let of = group(api_version);
    let is_reserved = !of.contains('.') || of.ends_with(".k8s.io");
    let home = all().find(|(_, known)| *known == kind).filter(|_| is_reserved);
    let (field, remedy) = match home {
        Some((version, _)) => ("apiVersion", Some(format!("use {version}"))),
        None if KINDS.iter().any(|(version, _)| *version == api_version) => {
            ("kind", similar(api_version, kind))
        }
        None => return None,
    };
    let remedy = remedy.map(|remedy| format!(": {remedy}")).unwrap_or_default();
    let what = format!("no matches for kind {kind:?} in version {api_version:?}{remedy}");
    Some((Step::Key(field.to_owned()), what))
}

/// A question with the most similar kind, preferably of this version.
fn similar(api_version: &str, kind: &str) -> Option<String> {
    let lower = kind.to_lowercase();
    let distance = |known: &str| strsim::damerau_levenshtein(&lower, &known.to_lowercase());
    let near = all()
        .map(|(version, known)| (distance(known), version != api_version, version, known))
        .filter(|(distance, .., known)| *distance <= 1 + kind.len().min(known.len()) / 4);
    let (_, is_elsewhere, version, known) = near.min()?;
    Some(match is_elsewhere {
        true => format!("did you mean {known} of {version}?"),
        false => format!("did you mean {known}?"),
    })
}
