//! What the volume plugins have in common: a pod's claims and their volumes.

use std::sync::Arc;

use crate::framework::{Code, Status};
use crate::model::{LabelLookup, Name, PersistentVolume, PersistentVolumeClaim, Pod, VolumeSource};
use crate::snapshot::Cluster;

/// A claim that a pod uses: its name, and whether it is that of a generic
/// ephemeral volume.
pub(super) struct Use {
    pub(super) claim: Name,
    pub(super) is_ephemeral: bool,
}

/// The claim that a volume of a pod of this name uses, if it does.
pub(super) fn use_of(volume: &VolumeSource, pod: &str) -> Option<Use> {
    match volume {
        VolumeSource::PersistentVolumeClaim { claim, .. } => {
            Some(Use { claim: claim.clone(), is_ephemeral: false })
        }
        VolumeSource::Ephemeral { volume } => {
            Some(Use { claim: format!("{pod}-{volume}").into(), is_ephemeral: true })
        }
        _ => None,
    }
}

/// The claims that a pod of this name uses, by its volumes.
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

/// Every node is rejected for the pod, for good.
pub(super) fn never(plugin: &'static str, reason: impl Into<String>) -> Status {
    Status::new(Code::UnschedulableAndUnresolvable, plugin, reason)
}

pub(super) fn not_found(kind: &str, name: &str) -> String {
    format!("{kind} {name:?} not found")
}

/// Whether a node with these labels reaches the volume (helpers
/// `CheckNodeAffinity`).
pub(super) fn is_reached(
    volume: &PersistentVolume,
    node: &str,
    labels: &(impl LabelLookup + ?Sized),
) -> bool {
    volume.node_affinity.as_ref().is_none_or(|affinity| affinity.matches(node, labels))
}

/// Whether the claim is the ephemeral volume's of this pod
/// (component-helpers `VolumeIsForPod`).
pub(super) fn is_for(claim: &PersistentVolumeClaim, pod: &Pod) -> bool {
    let uid = pod.uid.to_string();
    *claim.namespace == **pod.namespace() && *claim.owner == *uid
}
