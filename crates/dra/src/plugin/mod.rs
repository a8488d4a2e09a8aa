//! The plugin DynamicResources (`plugins/dynamicresources`).
//!
//! | file | contents |
//! |---|---|
//! | `mod.rs` | [`DynamicResources`] at its extension points |
//! | `backend.rs` | [`Backend`], by which the plugin acts on the cluster |
//! | `in_memory.rs` | backends of simulations |
//! | `find.rs` | the claims of a pod, and the checks of PreFilter |
//! | `state.rs` | what the extension points share in one cycle |
//! | `filter.rs`, `score.rs`, `post_filter.rs`, `pre_bind.rs` | one extension point each |
//! | `feasible.rs` | verdicts on nodes that are kept from one pod to the next |
//! | `extended.rs` | extended resources that device classes supply |
//! | `binding.rs` | binding conditions of devices |
//! | `hints.rs` | the events that may make a pod schedulable |
//! | `time.rs` | times as the API writes them |

mod backend;
mod binding;
mod extended;
mod feasible;
mod filter;
mod find;
mod hints;
mod in_memory;
mod post_filter;
mod pre_bind;
mod score;
mod state;
mod time;

use std::sync::Arc;
use std::time::Duration;

use portolan::cache::Cluster;
use portolan::model::{CustomEvent, Name, Pod};
use portolan::plugin::{
    ClusterEvent, Code, Cycle, Diagnosis, Feasible, Handle, Hint, Nomination, Plugin, PluginInfo,
    Point, PreFilter, PreFlight, PreScore, Status,
};

use crate::allocator::Selectors;
use crate::model::ResourceClaim;
use crate::store::{DeviceEvent, Devices, InFlight};

pub use backend::{ApiError, Backend, ClaimPart, ContainerExtendedRequest, ExtendedClaimStatus};
pub use in_memory::{DryRunBackend, InMemoryBackend};
pub use state::{ClaimDevices, chosen_devices};

use state::{Chosen, PodState};

/// The name of the plugin.
pub const NAME: &str = "DynamicResources";

/// The weight of its scores in kube-scheduler's default profile.
pub const WEIGHT: i64 = 2;

/// The finalizer of claims that are allocated.
pub const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

/// How many devices the search may try on one node. It stands for kube-scheduler's `filterTimeout`, and unlike a time it
/// makes decisions repeatable.
const MAX_STEPS: u64 = 10_000_000;

/// Allocates devices for the claims of pods.
///
/// The engine needs the store [`Devices`] for pods with claims. The plugin belongs before DefaultPreemption, with weight
/// [`WEIGHT`].
pub struct DynamicResources {
    handle: Handle,
    backend: Arc<dyn Backend>,
    selectors: Selectors,
    feasibility: feasible::Feasibility,
    /// How long a pod waits for the binding conditions of its devices.
    binding_timeout: Duration,
}

impl DynamicResources {
    /// Creates the plugin with kube-scheduler's default arguments.
    #[must_use]
    pub fn new(handle: &Handle, backend: Arc<dyn Backend>) -> DynamicResources {
        DynamicResources {
            handle: handle.clone(),
            backend,
            selectors: Selectors::default(),
            feasibility: feasible::Feasibility::default(),
            binding_timeout: Duration::from_secs(600),
        }
    }

    /// Sets how long a pod waits for the binding conditions of its devices.
    #[must_use]
    pub fn with_binding_timeout(self, binding_timeout: Duration) -> DynamicResources {
        DynamicResources { binding_timeout, ..self }
    }

    fn submit(&self, event: DeviceEvent) -> Result<(), Status> {
        self.backend.submit(event).map_err(error)
    }

    /// Returns the claims to allocate for a pod with the devices that Filter chose on the node.
    fn pending(
        &self,
        cycle: Cycle<'_>,
        state: &Arc<PodState>,
        node: &Name,
    ) -> Result<Vec<InFlight>, Status> {
        let to_allocate = state.to_allocate();
        if to_allocate == 0 {
            return Ok(Vec::new());
        }
        if state.chosen(node).is_none() {
            // The verdict on the node was kept from another pod.
            filter::choose(self, cycle, state, node)?;
        }
        let Some(Chosen { allocation, special, .. }) = state.chosen(node) else {
            let only_special = state.claims.iter().all(|of| of.is_special || !of.is_to_allocate);
            return match only_special {
                true => Ok(Vec::new()),
                false => Err(error("claim allocation not found for node")),
            };
        };
        let results = &allocation.results;
        if results.len() != to_allocate {
            return Err(error(format!(
                "internal error, have {} allocations, {to_allocate} claims to allocate, want {} \
                 claims",
                results.len(),
                state.claims.len()
            )));
        }
        let claims = state.claims.iter().filter(|of| of.is_to_allocate).map(|of| match special {
            Some(ref special) if of.is_special => special.clone(),
            _ => of.claim.clone(),
        });
        let pending = claims
            .zip(results)
            .map(|(claim, allocation)| InFlight { claim, allocation: allocation.clone() });
        Ok(pending.collect())
    }
}

fn error(reason: impl Into<String>) -> Status {
    Status::error(NAME, reason)
}

fn unresolvable(reason: impl Into<String>) -> Status {
    Status::new(Code::UnschedulableAndUnresolvable, NAME, reason)
}

fn devices(cluster: &Cluster) -> Result<&Devices, Status> {
    cluster.store::<Devices>().map_err(|failure| error(failure.to_string()))
}

impl Plugin for DynamicResources {
    fn info(&self) -> PluginInfo {
        const POINTS: &[Point] = &[
            Point::PreEnqueue,
            Point::PreFilter,
            Point::Filter,
            Point::PostFilter,
            Point::PreScore,
            Point::Score,
            Point::Reserve,
            Point::PreBind,
        ];
        PluginInfo::new(NAME, POINTS).events(hints::EVENTS)
    }

    fn treats_template_alike(&self, pod: &Pod, cluster: &Cluster) -> bool {
        !self.acts_at_reserve(pod, cluster)
    }

    fn acts_at_reserve(&self, pod: &Pod, cluster: &Cluster) -> bool {
        match cluster.store::<Devices>() {
            Ok(devices) => devices.serves(&pod.template),
            // Without the store, no device class supplies extended resources.
            Err(_) => !pod.template.resource_claims.is_empty(),
        }
    }

    fn pre_enqueue(&self, pod: &Pod) -> Result<(), Status> {
        if pod.template.resource_claims.is_empty() {
            return Ok(());
        }
        let Some(snapshot) = self.handle.snapshot() else { return Ok(()) };
        find::claims_of(devices(&snapshot)?, pod).map(drop).map_err(unresolvable)
    }

    fn queueing_hint(
        &self,
        pod: &Pod,
        event: &ClusterEvent<'_>,
        cluster: &Cluster,
    ) -> Result<Hint, Status> {
        Ok(hints::hint(pod, event, cluster))
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        // PostFilter finds the state even if the pod is rejected here.
        cycle.state.write(NAME, PodState::default());
        if self.treats_template_alike(cycle.pod, cycle.cluster) {
            return Ok(PreFilter::Skip);
        }
        let devices = devices(cycle.cluster)?;
        let state = find::state(devices, cycle.pod)?;
        let is_idle = state.claims.is_empty();
        cycle.state.write(NAME, state);
        if is_idle {
            return Ok(PreFilter::Skip);
        }
        let state = cycle.state.read::<PodState>(NAME).ok_or_else(|| error("not found"))?;
        Ok(PreFilter::Filter(Box::new(filter::NodeFilter::new(self, devices, cycle.pod, state))))
    }

    fn post_filter(&self, cycle: Cycle<'_>, _: &Diagnosis<'_>) -> (Nomination, Option<Status>) {
        (Nomination::Keep, Some(post_filter::post_filter(self, cycle)))
    }

    fn pre_score<'a>(
        &'a self,
        cycle: Cycle<'a>,
        feasible: &'a Feasible<'a>,
    ) -> Result<PreScore<'a>, Status> {
        Ok(score::pre_score(cycle, feasible))
    }

    fn reserve(&self, cycle: Cycle<'_>, node: &Name) -> Result<(), Status> {
        let Some(state) = cycle.state.read::<PodState>(NAME) else { return Ok(()) };
        let pending = self.pending(cycle, &state, node)?;
        if !pending.is_empty() {
            self.submit(DeviceEvent::Reserve(pending))?;
            state.reserve();
        }
        Ok(())
    }

    /// In a fork, claims are allocated at once, so that the next pods can share them.
    fn reserve_in_fork(&self, cycle: Cycle<'_>, node: &Name) -> Result<Vec<CustomEvent>, Status> {
        let Some(state) = cycle.state.read::<PodState>(NAME) else { return Ok(Vec::new()) };
        let pending = self.pending(cycle, &state, node)?;
        if pending.is_empty() {
            return Ok(Vec::new());
        }
        let is_stored = |of: &&InFlight| post_filter::is_stored(&of.claim);
        let allocated = pending.iter().filter(is_stored).map(|of| {
            let mut claim = ResourceClaim::clone(&of.claim);
            claim.status.allocation = Some(of.allocation.clone());
            let reserved = claim.metadata.uid.clone();
            DeviceEvent::Allocated { claim: claim.into(), reserved }
        });
        let allocated: Vec<DeviceEvent> = allocated.collect();
        let events = std::iter::once(DeviceEvent::Reserve(pending)).chain(allocated);
        Ok(events.map(CustomEvent::new::<Devices>).collect())
    }

    fn unreserve(&self, cycle: Cycle<'_>, _: &Name) {
        let Some(state) = cycle.state.read::<PodState>(NAME) else { return };
        for of in &state.claims {
            let claim: &ResourceClaim = &of.claim;
            if of.is_to_allocate && state.is_reserved() {
                // An error means that the engine has ended.
                let _ = self.backend.submit(DeviceEvent::Release(claim.metadata.uid.clone()));
            }
            match of.is_special {
                true => pre_bind::delete_special(self, &state),
                false => pre_bind::remove_reservation(self, claim, cycle.pod),
            }
        }
    }

    fn pre_bind_pre_flight(&self, cycle: Cycle<'_>, _: &Name) -> Result<PreFlight, Status> {
        let state = cycle.state.read::<PodState>(NAME);
        let is_idle = state.is_none_or(|state| state.claims.is_empty());
        Ok(if is_idle { PreFlight::Skip } else { PreFlight::Work })
    }

    fn pre_bind(&self, cycle: Cycle<'_>, node: &Name) -> Result<(), Status> {
        pre_bind::pre_bind(self, cycle, node)
    }
}
