//! PreBind: stores allocations and reservations in the claims, and waits for binding conditions.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use portolan::model::{Name, Pod, Timestamp};
use portolan::plugin::{Cycle, Status};

use crate::model::{AllocationResult, ConsumerReference, ResourceClaim};
use crate::store::DeviceEvent;

use super::backend::{ApiError, ClaimPart, ExtendedClaimStatus};
use super::binding::{self, Readiness};
use super::state::{Chosen, PodState};
use super::time::write_time;
use super::{DynamicResources, FINALIZER, NAME, devices, error, extended};

/// The number of attempts to write a claim that changes concurrently.
const TRIES: usize = 5;
/// The interval at which claims are read while a pod waits for binding conditions.
const POLL: Duration = Duration::from_secs(5);

pub(super) fn pre_bind(
    plugin: &DynamicResources,
    cycle: Cycle<'_>,
    node: &Name,
) -> Result<(), Status> {
    let Some(state) = cycle.state.read::<PodState>(NAME) else { return Ok(()) };
    let chosen = state.chosen(node);
    let mut allocations = chosen.iter().flat_map(|chosen| chosen.allocation.results.iter());
    let mut bound = Vec::with_capacity(state.claims.len());
    for of in &state.claims {
        let allocation = if of.is_to_allocate { allocations.next() } else { None };
        if of.is_special && chosen.is_none() {
            // The node supplies the extended resources.
            continue;
        }
        if of.claim.is_reserved_for(cycle.pod) {
            bound.push(of.claim.clone());
            continue;
        }
        let special = chosen.as_ref().filter(|_| of.is_special);
        let claim = match special {
            Some(chosen) => create_special(plugin, cycle.pod, &state, &of.claim, chosen)?,
            None => ResourceClaim::clone(&of.claim),
        };
        let claim = Arc::new(bind(plugin, cycle.pod, claim, allocation).map_err(error)?);
        let reserved = of.claim.metadata.uid.clone();
        plugin.submit(DeviceEvent::Allocated { claim: claim.clone(), reserved })?;
        if let Some(chosen) = special {
            set_extended_status(plugin, cycle.pod, &claim, chosen)?;
        }
        bound.push(claim);
    }
    wait_for_conditions(plugin, cycle.pod, node, &bound)
}

/// Creates the claim for extended resources, unless it exists.
fn create_special(
    plugin: &DynamicResources,
    pod: &Pod,
    state: &PodState,
    known: &ResourceClaim,
    chosen: &Chosen,
) -> Result<ResourceClaim, Status> {
    if &**known.name() != extended::SPECIAL_NAME {
        return Ok(known.clone());
    }
    let spec = chosen.special.as_ref().map_or_else(|| known.spec.clone(), |of| of.spec.clone());
    let new = extended::new_claim(pod, spec);
    let created =
        plugin.backend.create(&new).map_err(|why| error(format!("create claim: {why}")))?;
    // Set once: PreBind runs once for each reservation.
    let _ = state.created.set(created.clone());
    Ok(created)
}

fn set_extended_status(
    plugin: &DynamicResources,
    pod: &Pod,
    claim: &ResourceClaim,
    chosen: &Chosen,
) -> Result<(), Status> {
    if chosen.mappings.is_empty() {
        return Err(error(format!(
            "nil or empty request mappings, no update of pod {}/{} ExtendedResourceClaimStatus",
            pod.namespace(),
            pod.name
        )));
    }
    let status = ExtendedClaimStatus {
        request_mappings: chosen.mappings.clone(),
        resource_claim_name: claim.name().clone(),
    };
    plugin.backend.set_extended_status(pod, &status).map_err(|why| {
        let (namespace, name) = (pod.namespace(), &pod.name);
        error(format!("update pod {namespace}/{name} ExtendedResourceClaimStatus: {why}"))
    })
}

/// Stores the allocation, if any, and the reservation for the pod. Returns the stored claim.
fn bind(
    plugin: &DynamicResources,
    pod: &Pod,
    mut claim: ResourceClaim,
    allocation: Option<&Arc<AllocationResult>>,
) -> Result<ResourceClaim, String> {
    let key = claim.key();
    let mut result = write(plugin, pod, claim.clone(), allocation);
    for _ in 1..TRIES {
        let Err((_, ApiError::Conflict(_))) = &result else { break };
        wait(plugin, pod, Duration::from_millis(10))?;
        let read = plugin.backend.get(claim.namespace(), claim.name());
        claim = read.map_err(|why| format!("get updated claim {key} after conflict: {why}"))?;
        result = write(plugin, pod, claim.clone(), allocation);
    }
    result.map_err(|(step, why)| match step {
        "" => why.to_string(),
        step => format!("{step} to claim {key}: {why}"),
    })
}

fn wait(plugin: &DynamicResources, pod: &Pod, duration: Duration) -> Result<(), String> {
    let in_pre_bind = plugin.handle.pod_in_pre_bind(&pod.uid).unwrap_or_default();
    plugin.backend.wait(duration, &in_pre_bind)
}

/// Writes a claim once. An error comes with the name of the step, which is empty if the claim itself is the reason.
fn write(
    plugin: &DynamicResources,
    pod: &Pod,
    mut claim: ResourceClaim,
    allocation: Option<&Arc<AllocationResult>>,
) -> Result<ResourceClaim, (&'static str, ApiError)> {
    let refused = |what: &str| {
        let reason = format!("claim {} got {what} in the meantime", claim.key());
        Err(("", ApiError::Other(reason)))
    };
    if !claim.metadata.deletion_timestamp.is_empty() {
        return refused("deleted");
    }
    if allocation.is_none() && is_in_flight(plugin, &claim) {
        // A pod of the same gang stores the allocation.
        let reason = format!("claim {} is in the process of being allocated", claim.key());
        return Err(("", ApiError::Conflict(reason)));
    }
    match (allocation, &claim.status.allocation) {
        (Some(_), Some(_)) => return refused("allocated elsewhere"),
        (None, None) => return refused("deallocated elsewhere"),
        _ => {}
    }
    if let Some(allocation) = allocation {
        if !claim.metadata.finalizers.iter().any(|finalizer| &**finalizer == FINALIZER) {
            claim.metadata.finalizers.push(FINALIZER.into());
            let updated = plugin.backend.update(&claim, ClaimPart::Metadata);
            claim = updated.map_err(|why| ("add finalizer", why))?;
        }
        let mut allocation = AllocationResult::clone(allocation);
        let now = || Some(write_time(plugin.backend.now()).into());
        allocation.allocation_timestamp = allocation.allocation_timestamp.or_else(now);
        claim.status.allocation = Some(allocation.into());
    }
    claim.status.reserved_for.push(ConsumerReference {
        api_group: Arc::default(),
        resource: "pods".into(),
        name: pod.name.clone(),
        uid: pod.uid.to_string().into(),
    });
    let (step, written) = match allocation {
        Some(_) => {
            ("add allocation and reservation", plugin.backend.update(&claim, ClaimPart::Status))
        }
        None => ("add reservation", plugin.backend.update(&claim, ClaimPart::Consumers)),
    };
    written.map_err(|why| (step, why))
}

fn is_in_flight(plugin: &DynamicResources, claim: &ResourceClaim) -> bool {
    let snapshot = plugin.handle.snapshot();
    let devices = snapshot.as_ref().and_then(|snapshot| devices(snapshot).ok());
    devices.is_some_and(|devices| devices.claims().in_flight(&claim.metadata.uid).is_some())
}

/// Waits until the binding conditions of all devices are true, and counts the wait for each driver.
fn wait_for_conditions(
    plugin: &DynamicResources,
    pod: &Pod,
    node: &Name,
    bound: &[Arc<ResourceClaim>],
) -> Result<(), Status> {
    let conditional: Vec<&Arc<ResourceClaim>> =
        bound.iter().filter(|claim| binding::has_conditions(claim)).collect();
    if conditional.is_empty() {
        return Ok(());
    }
    let message = format!("waiting for binding conditions for device on node {node}");
    plugin.backend.record(pod, "BindingConditionsPending", &message);
    let start = plugin.backend.now();
    let ended = poll_conditions(plugin, pod, &conditional, start);
    let status = ended.as_ref().map_or_else(|(status, _)| *status, |()| "success");
    let waited = plugin.backend.now().since(start);
    let drivers: BTreeSet<&Arc<str>> =
        conditional.iter().flat_map(|claim| binding::drivers(claim)).collect();
    for driver in drivers {
        plugin.backend.count_wait(pod, driver, status, waited);
    }
    ended.map_err(|(_, why)| why)
}

/// Reads the claims until the binding conditions of all devices are true. An error comes with the status of the wait.
fn poll_conditions(
    plugin: &DynamicResources,
    pod: &Pod,
    conditional: &[&Arc<ResourceClaim>],
    start: Timestamp,
) -> Result<(), (&'static str, Status)> {
    let broken = |why: Status| ("error", why);
    loop {
        let mut is_ready = true;
        for claim in conditional {
            let name = claim.name();
            let newest = newest(plugin, claim).map_err(broken)?;
            match binding::readiness(&newest) {
                Readiness::Ready => {}
                Readiness::Failed { reason, message } => {
                    let why = error(format!(
                        "device binding failed: claim={name}, reason={reason}, \
                         message=\"{message}\""
                    ));
                    return Err(("failed", why));
                }
                Readiness::Waiting => {
                    let now = plugin.backend.now();
                    if binding::is_timed_out(&newest, plugin.binding_timeout, now) {
                        let why = error(format!("device binding timeout: claim={name}"));
                        return Err(("timeout", why));
                    }
                    is_ready = false;
                }
            }
        }
        if is_ready {
            return Ok(());
        }
        if plugin.backend.now().since(start) >= plugin.binding_timeout {
            return Err(("timeout", error("device binding timeout: context deadline exceeded")));
        }
        wait(plugin, pod, POLL).map_err(|why| broken(error(why)))?;
    }
}

/// Returns the newest known state of a claim.
fn newest(
    plugin: &DynamicResources,
    claim: &Arc<ResourceClaim>,
) -> Result<Arc<ResourceClaim>, Status> {
    let Some(snapshot) = plugin.handle.snapshot() else {
        let read = plugin.backend.get(claim.namespace(), claim.name());
        return read.map(Arc::new).map_err(|why| error(why.to_string()));
    };
    let known = devices(&snapshot)?.claims().get(claim.namespace(), claim.name()).cloned();
    known.ok_or_else(|| error(format!("could not find ResourceClaim \"{}\"", claim.key())))
}

/// Removes the reservation for a pod that is not bound. The allocation remains. Errors are ignored: the claim's
/// controller removes reservations of deleted pods.
pub(super) fn remove_reservation(plugin: &DynamicResources, claim: &ResourceClaim, pod: &Pod) {
    let Ok(stored) = plugin.backend.get(claim.namespace(), claim.name()) else { return };
    if stored.status.allocation.is_none() || !stored.is_reserved_for(pod) {
        return;
    }
    if let Ok(changed) = plugin.backend.remove_reservation(&stored, pod) {
        let _ = plugin.backend.submit(DeviceEvent::UpdateClaim(changed.into()));
    }
}

/// Deletes the claim for extended resources that PreBind created, if it did. Errors are ignored, as in
/// [`remove_reservation`].
pub(super) fn delete_special(plugin: &DynamicResources, state: &PodState) {
    let Some(created) = state.created.get() else { return };
    if plugin.backend.delete(created).is_ok() {
        let (namespace, name) = (created.namespace().clone(), created.name().clone());
        let uid = Some(created.metadata.uid.clone());
        let _ = plugin.backend.submit(DeviceEvent::DeleteClaim { namespace, name, uid });
    }
}
