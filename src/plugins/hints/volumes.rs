//! The volume plugins: claims, volumes, classes and the capabilities of drivers.

use crate::model::{
    CsiNode, LabelLookup, Object, ObjectKind, PersistentVolume, PersistentVolumeClaim, Pod,
    VolumeBindingMode, VolumeSource,
};

use super::super::volumes::uses;
use super::nodes::seen;
use super::{
    ADD_OR_UPDATE, Actions, ClusterEvent, EventResource, Hint, Interest, NM_NODE, NODE, any, gone,
    on,
};

const POD: &[EventResource] = EventResource::PODS;
const CLAIM: &[EventResource] = &[EventResource::PersistentVolumeClaim];
const VOLUME: &[EventResource] = &[EventResource::PersistentVolume];
const CLASS: &[EventResource] = &[EventResource::StorageClass];
const CSI_NODE: &[EventResource] = &[EventResource::CsiNode];
const DRIVER: &[EventResource] = &[EventResource::CsiDriver];
const CAPACITY: &[EventResource] = &[EventResource::CsiStorageCapacity];
const ATTACHMENT: &[EventResource] = &[EventResource::VolumeAttachment];

/// Returns whether the pod uses this claim, including claims of generic ephemeral volumes.
fn uses_claim(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    claim.namespace == pod.template.namespace
        && uses(&pod.template.volumes, &pod.name).any(|used| used.claim == claim.name)
}

/// Returns whether the event concerns a claim that the pod uses.
fn is_of_its_claim(pod: &Pod, event: &ClusterEvent<'_>) -> bool {
    matches!(event.object(), (_, Some(Object::PersistentVolumeClaim(claim))) if uses_claim(pod, claim))
}

/// VolumeRestrictions.
pub(in crate::plugins) const RESTRICTIONS: &[Interest] =
    &[on(POD, Actions::DELETE), on(NODE, Actions::ADD), on(CLAIM, Actions::ADD)];

/// Queues the pod if a pod left that held one of its disks or claims, or if its claim was added.
pub(in crate::plugins) fn restrictions(
    pod: &Pod,
    event: &ClusterEvent<'_>,
    conflicts: impl Fn(&VolumeSource, &VolumeSource) -> bool,
) -> Hint {
    if event.node().is_some() {
        return Hint::Queue;
    }
    let Some(gone) = gone(event) else { return Hint::queue_if(is_of_its_claim(pod, event)) };
    let (wanted, freed) = (&pod.template, &gone.template);
    let disk =
        || wanted.volumes.iter().any(|disk| freed.volumes.iter().any(|o| conflicts(disk, o)));
    // Kube-scheduler also requires the same namespace for disks, so a disk freed in another namespace delays the pod by
    // up to five minutes there.
    let claim = || {
        wanted.namespace == freed.namespace
            && wanted.claims().any(|claim| freed.claims().any(|other| other == claim))
    };
    Hint::queue_if(disk() || claim())
}

/// NodeVolumeLimits.
pub(in crate::plugins) const LIMITS: &[Interest] = &[
    on(CSI_NODE, ADD_OR_UPDATE),
    on(POD, Actions::DELETE),
    on(CLAIM, Actions::ADD),
    on(ATTACHMENT, Actions::DELETE),
];

/// Queues the pod if a limit was raised or removed, if a volume was detached, or if the pod's claim was added.
pub(in crate::plugins) fn limits(pod: &Pod, event: &ClusterEvent<'_>) -> Hint {
    let attaches = |volumes: &[VolumeSource], pod: &str| {
        volumes.iter().any(|volume| volume.migration("").is_some())
            || uses(volumes, pod).next().is_some()
    };
    if let Some(gone) = gone(event) {
        return Hint::queue_if(attaches(&gone.template.volumes, &gone.name));
    }
    Hint::queue_if(match event.object() {
        (None, Some(Object::CsiNode(_))) => true,
        (Some(Object::CsiNode(old)), Some(Object::CsiNode(new))) => has_higher_limit(old, new),
        (_, Some(Object::PersistentVolumeClaim(claim))) => uses_claim(pod, claim),
        (Some(Object::VolumeAttachment(_)), None) => attaches(&pod.template.volumes, &pod.name),
        _ => false,
    })
}

fn has_higher_limit(old: &CsiNode, new: &CsiNode) -> bool {
    let limit = |node: &CsiNode, name: &str| {
        node.drivers.iter().find(|driver| *driver.name == *name).and_then(|driver| driver.limit)
    };
    old.migrated != new.migrated
        || old.drivers.iter().any(|driver| {
            let (was, is) = (driver.limit, limit(new, &driver.name));
            was.is_some_and(|was| is.is_none_or(|is| is > was))
        })
}

/// VolumeBinding.
pub(in crate::plugins) const BINDING: &[Interest] = &[
    on(CLASS, ADD_OR_UPDATE),
    on(CLAIM, ADD_OR_UPDATE),
    on(VOLUME, ADD_OR_UPDATE),
    on(NODE, any(&[Actions::ADD, Actions::UPDATE_NODE_LABEL])),
    on(NM_NODE, ADD_OR_UPDATE),
    on(CSI_NODE, ADD_OR_UPDATE),
    on(DRIVER, Actions::UPDATE),
    on(CAPACITY, ADD_OR_UPDATE),
];

/// Queues the pod if its claim changed, or if a volume or the capacity to provision one may be available.
pub(in crate::plugins) fn binding(pod: &Pod, event: &ClusterEvent<'_>) -> Hint {
    if seen(pod.template.launcher, event).is_some() {
        return Hint::Queue;
    }
    Hint::queue_if(match event.object() {
        (_, Some(Object::PersistentVolume(_))) => true,
        (_, Some(Object::PersistentVolumeClaim(claim))) => uses_claim(pod, claim),
        (Some(Object::StorageClass(old)), Some(Object::StorageClass(new))) => {
            old.allowed_topologies != new.allowed_topologies
        }
        (Some(Object::CsiNode(old)), Some(Object::CsiNode(new))) => old.migrated != new.migrated,
        (Some(Object::CsiDriver(old)), Some(Object::CsiDriver(new))) => {
            old.storage_capacity && !new.storage_capacity
        }
        (Some(Object::CsiStorageCapacity(old)), Some(Object::CsiStorageCapacity(new))) => {
            new.largest > old.largest
        }
        (None, Some(object)) => object.kind() != ObjectKind::NmNode,
        _ => false,
    })
}

/// VolumeZone.
pub(in crate::plugins) const ZONE: &[Interest] = &[
    on(CLASS, Actions::ADD),
    on(NODE, any(&[Actions::ADD, Actions::UPDATE_NODE_LABEL])),
    on(NM_NODE, ADD_OR_UPDATE),
    on(CLAIM, ADD_OR_UPDATE),
    on(VOLUME, ADD_OR_UPDATE),
];

/// Queues the pod if its claim changed, if a volume was added or changed its zones, or if a class was added whose
/// volumes have no zone yet.
pub(in crate::plugins) fn zone(pod: &Pod, event: &ClusterEvent<'_>, keys: &[&str]) -> Hint {
    if seen(pod.template.launcher, event).is_some() {
        return Hint::Queue;
    }
    let zones = |volume: &PersistentVolume| -> Vec<Option<String>> {
        keys.iter().map(|key| LabelLookup::get(&volume.labels, key).map(str::to_owned)).collect()
    };
    Hint::queue_if(match event.object() {
        (_, Some(Object::PersistentVolumeClaim(claim))) => uses_claim(pod, claim),
        (None, Some(Object::PersistentVolume(_))) => true,
        (Some(Object::PersistentVolume(old)), Some(Object::PersistentVolume(new))) => {
            zones(old) != zones(new)
        }
        (None, Some(Object::StorageClass(class))) => {
            class.binding_mode == VolumeBindingMode::WaitForFirstConsumer
        }
        _ => false,
    })
}
