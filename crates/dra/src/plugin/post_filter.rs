//! PostFilter: frees a claim that is allocated where the pod cannot run.

use portolan::model::Pod;
use portolan::plugin::{Code, Cycle, Status};

use crate::model::{ResourceClaim, ResourceClaimStatus};
use crate::store::DeviceEvent;

use super::backend::ClaimPart;
use super::state::PodState;
use super::{DynamicResources, NAME, error};

pub(super) fn post_filter(plugin: &DynamicResources, cycle: Cycle<'_>) -> Status {
    let unschedulable = |reason: &str| Status::new(Code::Unschedulable, NAME, reason);
    // If an earlier plugin has ended PreFilter, there is no state.
    let Some(state) = cycle.state.read::<PodState>(NAME) else { return error("not found") };
    if state.claims.is_empty() {
        return unschedulable("no new claims to deallocate");
    }
    for at in state.unavailable() {
        let Some(of) = state.claims.get(at) else { continue };
        if !is_reserved_for_others(&of.claim, cycle.pod) {
            return match deallocate(plugin, &of.claim) {
                Ok(()) => unschedulable("deallocation of ResourceClaim completed"),
                Err(status) => status,
            };
        }
    }
    let left_over = state.claims.iter().find(|of| of.is_special && is_stored(&of.claim));
    if let Some(of) = left_over {
        return match delete(plugin, &of.claim) {
            Ok(()) => unschedulable("deletion of ResourceClaim completed"),
            Err(status) => status,
        };
    }
    unschedulable("still not schedulable")
}

fn is_reserved_for_others(claim: &ResourceClaim, pod: &Pod) -> bool {
    let uid = pod.uid.to_string();
    claim.status.reserved_for.iter().any(|consumer| *consumer.uid != *uid)
}

/// Returns whether a claim is stored by the API server. One for extended resources is created in PreBind.
pub(super) fn is_stored(claim: &ResourceClaim) -> bool {
    &**claim.name() != super::extended::SPECIAL_NAME
}

fn deallocate(plugin: &DynamicResources, claim: &ResourceClaim) -> Result<(), Status> {
    let free = ResourceClaim { status: ResourceClaimStatus::default(), ..claim.clone() };
    let freed =
        plugin.backend.update(&free, ClaimPart::Status).map_err(|why| error(why.to_string()))?;
    plugin.submit(DeviceEvent::UpdateClaim(freed.into()))
}

fn delete(plugin: &DynamicResources, claim: &ResourceClaim) -> Result<(), Status> {
    plugin.backend.delete(claim).map_err(|why| error(why.to_string()))?;
    let (namespace, name) = (claim.namespace().clone(), claim.name().clone());
    let uid = Some(claim.metadata.uid.clone());
    plugin.submit(DeviceEvent::DeleteClaim { namespace, name, uid })
}
