//! The claims of a pod (`resourceclaim.Name`), and the checks of PreFilter.

use std::sync::Arc;

use portolan::model::{Pod, PodResourceClaim};
use portolan::plugin::Status;

use crate::model::ResourceClaim;
use crate::store::Devices;

use super::state::{ClaimState, PodState};
use super::{error, extended, unresolvable};

/// Returns the claims of a pod in the order of its spec, or why they cannot be found. The first error is returned.
pub(super) fn claims_of(devices: &Devices, pod: &Pod) -> Result<Vec<Arc<ResourceClaim>>, String> {
    let key = || format!("{}/{}", pod.namespace(), pod.name);
    let entries = &pod.template.resource_claims;
    let mut claims = Vec::with_capacity(entries.len());
    for entry in entries {
        let Some(name) = claim_name(pod, entry, &key)? else { continue };
        let namespace = pod.namespace();
        let claim = devices.claims().get(namespace, name);
        let claim =
            claim.ok_or_else(|| format!("could not find ResourceClaim \"{namespace}/{name}\""))?;
        if !claim.metadata.deletion_timestamp.is_empty() {
            return Err(format!("resourceclaim \"{name}\" is being deleted"));
        }
        if entry.claim.is_none() && !claim.metadata.is_controlled_by(pod) {
            return Err(format!(
                "ResourceClaim {} was not created for Pod {} (Pod is not owner)",
                claim.key(),
                key()
            ));
        }
        claims.push(claim.clone());
    }
    Ok(claims)
}

/// Returns the name of the claim of an entry, or `None` if the entry needs none.
fn claim_name<'a>(
    pod: &'a Pod,
    entry: &'a PodResourceClaim,
    key: &dyn Fn() -> String,
) -> Result<Option<&'a Arc<str>>, String> {
    if let Some(claim) = &entry.claim {
        return Ok(Some(claim));
    }
    if entry.template.is_none() {
        return Err(format!(
            "pod \"{}\", spec.resourceClaim \"{}\": none of the supported fields are set",
            key(),
            entry.name
        ));
    }
    let mut statuses = pod.claim_statuses.iter().flat_map(|statuses| statuses.iter());
    match statuses.find(|(name, _)| *name == entry.name) {
        None => Err(format!("pod \"{}\": ResourceClaim not created yet", key())),
        Some((_, generated)) => Ok(generated.as_ref()),
    }
}

/// Returns the state of a pod's cycle.
///
/// # Errors
///
/// Returns why the pod cannot be scheduled on any node.
pub(super) fn state(devices: &Devices, pod: &Pod) -> Result<PodState, Status> {
    let user = claims_of(devices, pod).map_err(unresolvable)?;
    let user = user.into_iter().map(|claim| (claim, false));
    let special = extended::special_claim(devices, pod).map(|claim| (claim, true));
    let mut state = PodState::default();
    for (claim, is_special) in user.chain(special) {
        // Two entries of a pod may name one claim, which is allocated once.
        let is_same = |known: &ClaimState| known.claim.name() == claim.name();
        if state.claims.iter().any(is_same) {
            continue;
        }
        let is_to_allocate = claim.status.allocation.is_none();
        if is_to_allocate {
            check(devices, &claim)?;
        }
        state.claims.push(ClaimState { claim, is_to_allocate, is_special });
    }
    Ok(state)
}

/// Checks that a claim may be allocated now.
fn check(devices: &Devices, claim: &ResourceClaim) -> Result<(), Status> {
    let key = claim.key();
    if devices.claims().in_flight(&claim.metadata.uid).is_some() {
        let reason = format!("resource claim {key} is in the process of being allocated");
        return Err(unresolvable(reason));
    }
    let check_class = |request: &str, class: &str| match class {
        "" => Err(error(format!("request {request}: unsupported request type"))),
        class if devices.classes().get(class).is_none() => {
            let reason = format!("request {request}: device class {class} does not exist");
            Err(unresolvable(reason))
        }
        _ => Ok(()),
    };
    for request in &claim.spec.devices.requests {
        match &request.exactly {
            Some(exactly) => check_class(&request.name, &exactly.device_class_name)?,
            None if request.first_available.is_empty() => {
                let name = &request.name;
                let reason = format!("resource claim {key}, request {name}: unknown request type");
                return Err(unresolvable(reason));
            }
            None => {
                for sub in &request.first_available {
                    let name = format!("{}/{}", request.name, sub.name);
                    check_class(&name, &sub.exactly.device_class_name)?;
                }
            }
        }
    }
    Ok(())
}
