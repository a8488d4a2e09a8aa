//! What the extension points share in one cycle.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use portolan::model::Name;
use portolan::plugin::CycleState;

use crate::allocator::Allocation;
use crate::model::{DeviceResult, NodeSelector, ResourceClaim};

use super::NAME;
use super::backend::ContainerExtendedRequest;

/// A claim of a pod.
pub(super) struct ClaimState {
    pub(super) claim: Arc<ResourceClaim>,
    /// Whether devices must be allocated.
    pub(super) is_to_allocate: bool,
    /// Whether the claim is for extended resources.
    pub(super) is_special: bool,
}

impl ClaimState {
    /// Returns the nodes on which an allocated claim can be used.
    pub(super) fn node_selector(&self) -> Option<&NodeSelector> {
        self.claim.status.allocation.as_ref()?.node_selector.as_ref()
    }
}

/// What Filter chose on a node.
#[derive(Clone, Default)]
pub(super) struct Chosen {
    pub(super) allocation: Arc<Allocation>,
    /// The claim for extended resources with its requests.
    pub(super) special: Option<Arc<ResourceClaim>>,
    /// The requests of the special claim for each container.
    pub(super) mappings: Vec<ContainerExtendedRequest>,
}

/// The claims of a pod, and what was decided about them.
#[derive(Default)]
pub(super) struct PodState {
    /// The claims in the pod's order; the claim for extended resources is last.
    pub(super) claims: Vec<ClaimState>,
    /// The claims that are not available on some node.
    unavailable: Mutex<BTreeSet<usize>>,
    chosen: Mutex<HashMap<Name, Chosen>>,
    is_reserved: AtomicBool,
    /// The claim for extended resources that PreBind created.
    pub(super) created: OnceLock<ResourceClaim>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PodState {
    /// Returns the number of claims for which devices must be allocated.
    pub(super) fn to_allocate(&self) -> usize {
        self.claims.iter().filter(|of| of.is_to_allocate).count()
    }

    /// Returns whether the verdict on a node follows from the requests of the claims and the devices alone, and the
    /// choice of devices does not affect scores: all claims must be allocated, and no request has alternatives.
    pub(super) fn is_plain(&self) -> bool {
        self.claims.iter().all(|of| {
            let mut requests = of.claim.spec.devices.requests.iter();
            of.is_to_allocate
                && !of.is_special
                && requests.all(|request| request.first_available.is_empty())
        })
    }

    pub(super) fn add_unavailable(&self, claims: &[usize]) {
        lock(&self.unavailable).extend(claims);
    }

    pub(super) fn unavailable(&self) -> Vec<usize> {
        lock(&self.unavailable).iter().copied().collect()
    }

    pub(super) fn choose(&self, node: &Name, chosen: Chosen) {
        lock(&self.chosen).insert(node.clone(), chosen);
    }

    pub(super) fn chosen(&self, node: &str) -> Option<Chosen> {
        lock(&self.chosen).get(node).cloned()
    }

    /// Remembers that the claims are in flight. Relaxed: the steps of one pod do not run at once.
    pub(super) fn reserve(&self) {
        self.is_reserved.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_reserved(&self) -> bool {
        self.is_reserved.load(Ordering::Relaxed)
    }
}

/// The devices that Filter chose for a claim.
#[derive(Clone, Debug)]
pub struct ClaimDevices {
    /// The claim.
    pub claim: Arc<ResourceClaim>,
    /// The devices.
    pub devices: Vec<DeviceResult>,
}

/// Returns the devices that Filter chose on a node in this cycle, or `None` if it rejected the node or had nothing to
/// allocate.
#[must_use]
pub fn chosen_devices(state: &CycleState, node: &str) -> Option<Vec<ClaimDevices>> {
    let state = state.read::<PodState>(NAME)?;
    let chosen = state.chosen(node)?;
    let claims = state.claims.iter().filter(|of| of.is_to_allocate);
    let devices = claims.zip(&chosen.allocation.results).map(|(of, result)| ClaimDevices {
        claim: of.claim.clone(),
        devices: result.devices.results.clone(),
    });
    Some(devices.collect())
}
