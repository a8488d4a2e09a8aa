//! Filter: allocates the claims of a pod on each node.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use portolan::cache::{Chunk, Cluster, LANES, NodeInfo};
use portolan::model::{Node, Pod};
use portolan::plugin::{Cycle, Filter, Status};

use crate::allocator::{AllocateError, Allocator, NodePools};
use crate::model::ResourceClaim;
use crate::store::Devices;

use super::extended::{self, Special};
use super::feasible::OfClaims;
use super::state::{Chosen, PodState};
use super::{DynamicResources, MAX_STEPS, binding, error, unresolvable};

/// The filter of one pod.
pub(super) struct NodeFilter<'a> {
    plugin: &'a DynamicResources,
    devices: &'a Devices,
    pod: &'a Pod,
    state: Arc<PodState>,
    /// The verdicts of earlier pods with equal claims.
    kept: Option<Arc<OfClaims>>,
    /// The verdicts on nodes that share all of their pools, by the addresses of the pools.
    shared: Mutex<HashMap<Vec<usize>, (NodePools, bool)>>,
}

/// Allocates the claims on a node that passed.
///
/// # Errors
///
/// Returns why the claims cannot be allocated there.
pub(super) fn choose(
    plugin: &DynamicResources,
    cycle: Cycle<'_>,
    state: &Arc<PodState>,
    node: &str,
) -> Result<(), Status> {
    let Some(node) = cycle.cluster.node(node).and_then(|node| node.node()) else { return Ok(()) };
    let devices = super::devices(cycle.cluster)?;
    NodeFilter::new(plugin, devices, cycle.pod, state.clone()).judge(node)
}

impl<'a> NodeFilter<'a> {
    pub(super) fn new(
        plugin: &'a DynamicResources,
        devices: &'a Devices,
        pod: &'a Pod,
        state: Arc<PodState>,
    ) -> NodeFilter<'a> {
        let kept = state.is_plain().then(|| plugin.feasibility.of(&state.claims));
        NodeFilter { plugin, devices, pod, state, kept, shared: Mutex::default() }
    }

    fn judge(&self, node: &Node) -> Result<(), Status> {
        let mut special = None;
        if let Some(of) = self.state.claims.iter().find(|of| of.is_special) {
            let has_user_claims = self.state.claims.len() > 1;
            match extended::on_node(self.devices, self.pod, &of.claim, node, has_user_claims)
                .map_err(unresolvable)?
            {
                None => return Ok(()),
                Some(claim) => special = Some(claim),
            }
        }
        let unavailable = self.unavailable(node);
        let chosen = match self.state.to_allocate() {
            0 => None,
            _ => Some(self.allocate(node, special)?),
        };
        if !unavailable.is_empty() {
            self.state.add_unavailable(&unavailable);
            return Err(unresolvable("resourceclaim not available on the node"));
        }
        if let Some(chosen) = chosen {
            self.state.choose(&node.name, chosen);
        }
        Ok(())
    }

    /// Returns the allocated claims that cannot be used on the node.
    fn unavailable(&self, node: &Node) -> Vec<usize> {
        let is_unavailable = |at: &usize| {
            let of = &self.state.claims[*at];
            !of.is_to_allocate
                && (of.node_selector().is_some_and(|selector| !selector.matches(node))
                    || binding::is_lost(&of.claim, self.plugin.binding_timeout, || {
                        self.plugin.backend.now()
                    }))
        };
        (0..self.state.claims.len()).filter(is_unavailable).collect()
    }

    fn allocate(&self, node: &Node, special: Option<Special>) -> Result<Chosen, Status> {
        let (claim, mappings) = special
            .map_or((None, Vec::new()), |Special { claim, mappings }| (Some(claim), mappings));
        let claims = self.state.claims.iter().filter(|of| of.is_to_allocate);
        let claims: Vec<_> = claims
            .map(|of| match &claim {
                Some(special) if of.is_special => special.clone(),
                _ => of.claim.clone(),
            })
            .collect();
        let allocator = self.allocator(&claims);
        let pools = NodePools::gather(self.devices.slices(), node);
        let found = allocator.allocate(node, &pools).map_err(|why| status(node, why))?;
        let allocation = found.ok_or_else(|| unresolvable("cannot allocate all claims"))?;
        Ok(Chosen { allocation: Arc::new(allocation), special: claim, mappings })
    }

    /// Returns whether plain claims ([`PodState::is_plain`]) can be allocated on the node: the verdict of
    /// [`Filter::filter`], without the choice of devices.
    fn fits(&self, node: &Node) -> Result<bool, Status> {
        let pools = NodePools::gather(self.devices.slices(), node);
        let addresses = pools.shared();
        let shared = || self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(addresses) = &addresses
            && let Some((_, fits)) = shared().get(addresses)
        {
            return Ok(*fits);
        }
        let claims: Vec<_> = self.state.claims.iter().map(|of| of.claim.clone()).collect();
        let fits = match self.allocator(&claims).fits(node, &pools) {
            Err(AllocateError::InvalidPools) => false,
            fits => fits.map_err(|why| status(node, why))?,
        };
        if let Some(addresses) = addresses {
            // The pools are kept, so that no other pool gets their addresses.
            shared().insert(addresses, (pools, fits));
        }
        Ok(fits)
    }

    fn allocator<'s>(&'s self, claims: &'s [Arc<ResourceClaim>]) -> Allocator<'s> {
        Allocator {
            devices: self.devices,
            selectors: &self.plugin.selectors,
            claims,
            max_steps: MAX_STEPS,
        }
    }
}

fn status(node: &Node, why: AllocateError) -> Status {
    match why {
        AllocateError::InvalidPools => unresolvable("invalid resource pools were encountered"),
        AllocateError::TooManySteps => {
            error(format!("node {}: timed out trying to allocate devices", node.name))
        }
        AllocateError::Failed(reason) => error(reason),
    }
}

impl Filter for NodeFilter<'_> {
    fn filter(&self, node: NodeInfo<'_>) -> Option<Status> {
        self.judge(node.node()?).err()
    }

    fn filter_chunk(&self, cluster: &Cluster, chunk: &Chunk, mask: u64) -> Result<u64, Status> {
        let lanes = (0..LANES).filter(|lane| mask >> lane & 1 == 1);
        let mut nodes = Vec::with_capacity(mask.count_ones() as usize);
        nodes.extend(lanes.filter_map(|lane| cluster.node_in(chunk, lane)));
        let passed = |passed: u64, info: &NodeInfo<'_>| passed | 1 << info.place().1;
        let Some(kept) = &self.kept else {
            let mut feasible = 0;
            for info in &nodes {
                match self.filter(*info) {
                    None => feasible = passed(feasible, info),
                    Some(status) if status.code.is_rejection() => {}
                    Some(status) => return Err(status),
                }
            }
            return Ok(feasible);
        };
        kept.follow(self.devices, cluster);
        let mut known = [None; LANES];
        kept.known(self.devices, &nodes, &mut known);
        let (mut feasible, mut new) = (0, Vec::new());
        for (info, known) in nodes.iter().zip(known) {
            let fits = match (known, info.node()) {
                (Some(fits), _) => fits,
                (None, Some(node)) => {
                    let fits = self.fits(node)?;
                    new.push((*info, fits));
                    fits
                }
                // A ghost is not judged.
                (None, None) => true,
            };
            if fits {
                feasible = passed(feasible, info);
            }
        }
        if !new.is_empty() {
            kept.keep(self.devices, &new);
        }
        Ok(feasible)
    }
}
