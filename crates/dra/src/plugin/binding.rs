//! Binding conditions: what drivers must report of devices before a pod is bound.

use std::sync::Arc;
use std::time::Duration;

use portolan::model::Timestamp;

use crate::model::{AllocatedDeviceStatus, DeviceResult, ResourceClaim};

use super::time::parse_time;

/// How far the devices of a claim are prepared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    /// All binding conditions are true.
    Ready,
    /// Some binding conditions are not true yet.
    Waiting,
    /// A failure condition is true.
    Failed { reason: String, message: String },
}

/// Returns whether the allocation has binding conditions.
pub(super) fn has_conditions(claim: &ResourceClaim) -> bool {
    conditional(claim).next().is_some()
}

fn conditional(claim: &ResourceClaim) -> impl Iterator<Item = &DeviceResult> {
    let results = claim.status.allocation.iter().flat_map(|of| &of.devices.results);
    results.filter(|result| !result.binding_conditions.is_empty())
}

/// Returns the drivers of the devices with binding conditions.
pub(super) fn drivers(claim: &ResourceClaim) -> impl Iterator<Item = &Arc<str>> {
    conditional(claim).map(|result| &result.driver)
}

/// Returns how far the devices of a claim are prepared.
pub(super) fn readiness(claim: &ResourceClaim) -> Readiness {
    let mut readiness = Readiness::Ready;
    for result in conditional(claim) {
        let Some(status) = claim.status.devices.iter().find(|of| is_of(of, result)) else {
            readiness = Readiness::Waiting;
            continue;
        };
        let find = |kind: &str| {
            status.conditions.iter().find(|of| *of.kind == *kind && &*of.status == "True")
        };
        let failed = result.binding_failure_conditions.iter().find_map(|kind| find(kind));
        if let Some(failed) = failed {
            let (reason, message) = (failed.reason.to_string(), failed.message.to_string());
            return Readiness::Failed { reason, message };
        }
        if !result.binding_conditions.iter().all(|kind| find(kind).is_some()) {
            readiness = Readiness::Waiting;
        }
    }
    readiness
}

fn is_of(status: &AllocatedDeviceStatus, result: &DeviceResult) -> bool {
    status.driver == result.driver
        && status.pool == result.pool
        && status.device == result.device
        && status.share_id == result.share_id
}

/// Returns whether an allocated claim has waited too long for its binding conditions.
pub(super) fn is_timed_out(claim: &ResourceClaim, timeout: Duration, now: Timestamp) -> bool {
    let allocation = claim.status.allocation.as_ref();
    let allocated = allocation.and_then(|of| parse_time(of.allocation_timestamp.as_deref()?));
    allocated.is_some_and(|allocated| now.since(allocated) > timeout)
}

/// Returns whether the devices of an allocated claim have failed, or have not become ready in time.
pub(super) fn is_lost(
    claim: &ResourceClaim,
    timeout: Duration,
    now: impl Fn() -> Timestamp,
) -> bool {
    has_conditions(claim)
        && match readiness(claim) {
            Readiness::Ready => false,
            Readiness::Waiting => is_timed_out(claim, timeout, now()),
            Readiness::Failed { .. } => true,
        }
}
