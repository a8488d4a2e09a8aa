//! The events that may make a pod schedulable.

use portolan::cache::Cluster;
use portolan::model::Pod;
use portolan::plugin::{Actions, ClusterEvent, EventResource, Hint, Interest};

use crate::model::ResourceClaim;
use crate::store::{DeviceEvent, Devices};

use super::find;

/// New nodes, nodes with other labels or resources, pods with generated claims, and changes of classes, slices and
/// claims.
pub(super) const EVENTS: &[Interest] = &[
    Interest {
        resources: &[EventResource::Node],
        actions: Actions::ADD.or(Actions::UPDATE_NODE_LABEL).or(Actions::UPDATE_NODE_ALLOCATABLE),
    },
    Interest {
        resources: &[EventResource::UnscheduledPod],
        actions: Actions::UPDATE_POD_GENERATED_RESOURCE_CLAIM,
    },
    Interest { resources: &[EventResource::Custom], actions: Actions::ALL },
];

pub(super) fn hint(pod: &Pod, event: &ClusterEvent<'_>, cluster: &Cluster) -> Hint {
    let Ok(devices) = cluster.store::<Devices>() else { return Hint::Queue };
    let Some(event) = event.custom::<Devices>() else {
        return match event.resource {
            EventResource::Node => Hint::Queue,
            EventResource::UnscheduledPod => {
                let changed = event.pod().and_then(|diff| diff.new.as_ref());
                let is_own = changed.is_some_and(|changed| changed.uid == pod.uid);
                Hint::queue_if(is_own && find::claims_of(devices, pod).is_ok())
            }
            // Events of other stores do not matter.
            _ => Hint::Skip,
        };
    };
    match event {
        DeviceEvent::PutClass(_) | DeviceEvent::PutSlice(_) => Hint::Queue,
        DeviceEvent::PutClaim(claim)
        | DeviceEvent::UpdateClaim(claim)
        | DeviceEvent::Allocated { claim, .. } => on_claim(pod, claim, devices),
        // The devices are free again.
        DeviceEvent::Release(_) => Hint::queue_if(find::claims_of(devices, pod).is_ok()),
        // Kube-scheduler's hint ignores deletions, so such a pod waits for another event.
        DeviceEvent::DeleteClaim { namespace, name, .. } => Hint::queue_if(
            devices.claims().was_freed_by_deletion(namespace, name)
                && find::claims_of(devices, pod).is_ok(),
        ),
        DeviceEvent::DeleteClass(_) | DeviceEvent::DeleteSlice(_) | DeviceEvent::Reserve(_) => {
            Hint::Skip
        }
    }
}

/// A claim of the pod itself may help, and so does any claim that no longer uses its devices.
fn on_claim(pod: &Pod, claim: &ResourceClaim, devices: &Devices) -> Hint {
    let Ok(claims) = find::claims_of(devices, pod) else { return Hint::Skip };
    if devices.claims().was_freed(claim) {
        return Hint::Queue;
    }
    Hint::queue_if(claims.iter().any(|own| own.metadata.uid == claim.metadata.uid))
}
