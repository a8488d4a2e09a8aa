//! Functions shared by the volume plugins: a pod's claims and their volumes.

use std::sync::Arc;

use crate::framework::{Code, Status};
use crate::model::{LabelLookup, Name, PersistentVolume, PersistentVolumeClaim, Pod, VolumeSource};
use crate::snapshot::Cluster;

/// A claim that a pod uses, and whether it belongs to a generic ephemeral volume.
pub(super) struct Use {
    pub(super) claim: Name,
    pub(super) is_ephemeral: bool,
}

/// Returns the claim that a volume of the named pod uses, if any.
pub(super) fn use_of(volume: &VolumeSource, pod: &str) -> Option<Use> {
    let is_ephemeral = matches!(volume, VolumeSource::Ephemeral { .. });
    volume.claim(pod).map(|claim| Use { claim, is_ephemeral })
}

/// Iterates over the claims that the volumes of the named pod use.
pub(super) fn uses<'a>(
    volumes: &'a [VolumeSource],
    pod: &'a str,
) -> impl Iterator<Item = Use> + use<'a> {
    volumes.iter().filter_map(move |volume| use_of(volume, pod))
}

pub(super) fn claim<'a>(
    cluster: &'a Cluster,
    namespace: &str,
    name: &str,
) -> Option<&'a Arc<PersistentVolumeClaim>> {
    cluster.objects().persistent_volume_claims.get(namespace, name)
}

pub(super) fn volume<'a>(cluster: &'a Cluster, name: &str) -> Option<&'a Arc<PersistentVolume>> {
    cluster.objects().persistent_volumes.get("", name)
}

/// Returns a status that rejects the pod and that preemption cannot resolve.
pub(super) fn never(plugin: &'static str, reason: impl Into<String>) -> Status {
    Status::new(Code::UnschedulableAndUnresolvable, plugin, reason)
}

pub(super) fn not_found(kind: &str, name: &str) -> String {
    format!("{kind} {name:?} not found")
}

/// Returns whether the volume is accessible from a node with these labels (helpers `CheckNodeAffinity`).
pub(super) fn is_reached(
    volume: &PersistentVolume,
    node: &str,
    labels: &(impl LabelLookup + ?Sized),
) -> bool {
    volume.node_affinity.as_ref().is_none_or(|affinity| affinity.matches(node, labels))
}

/// Returns whether the claim was created for this pod's ephemeral volume (component-helpers `VolumeIsForPod`).
pub(super) fn is_for(claim: &PersistentVolumeClaim, pod: &Pod) -> bool {
    let uid = pod.uid.to_string();
    *claim.namespace == **pod.namespace() && *claim.owner == *uid
}
