//! Filter: allocates the claims of a pod on each node.

use std::sync::Arc;

use portolan::cache::{Chunk, Cluster, LANES, NodeInfo};
use portolan::model::{Node, Pod};
use portolan::plugin::{Cycle, Filter, Status};

use crate::allocator::{AllocateError, Allocation, Allocator, NodePools};
use crate::store::Devices;

use super::extended::{self, Special};
use super::feasible::OfClaims;
use super::state::{Chosen, PodState};
use super::{DynamicResources, binding, error, unresolvable};

/// The filter of one pod.
pub(super) struct NodeFilter<'a> {
    plugin: &'a DynamicResources,
    devices: &'a Devices,
    pod: &'a Pod,
    state: Arc<PodState>,
    /// The verdicts of earlier pods with equal claims.
    kept: Option<Arc<OfClaims>>,
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
        NodeFilter { plugin, devices, pod, state, kept }
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
        let allocator = Allocator {
            devices: self.devices,
            selectors: &self.plugin.selectors,
            claims: &claims,
            max_steps: self.plugin.max_steps,
        };
        let pools = NodePools::gather(self.devices.slices(), node);
        let found = allocator.allocate(node, &pools);
        let allocation: Allocation = match found {
            Ok(Some(allocation)) => allocation,
            Ok(None) => return Err(unresolvable("cannot allocate all claims")),
            Err(AllocateError::InvalidPools) => {
                return Err(unresolvable("invalid resource pools were encountered"));
            }
            Err(AllocateError::TooManySteps) => {
                let name = &node.name;
                return Err(error(format!("node {name}: timed out trying to allocate devices")));
            }
            Err(AllocateError::Failed(reason)) => return Err(error(reason)),
        };
        Ok(Chosen { allocation: Arc::new(allocation), special: claim, mappings })
    }
}

impl Filter for NodeFilter<'_> {
    fn filter(&self, node: NodeInfo<'_>) -> Option<Status> {
        self.judge(node.node()?).err()
    }

    fn filter_chunk(&self, cluster: &Cluster, chunk: &Chunk, mask: u64) -> Result<u64, Status> {
        let lanes = (0..LANES).filter(|lane| mask >> lane & 1 == 1);
        let nodes = lanes.filter_map(|lane| cluster.node_in(chunk, lane));
        let nodes: Vec<NodeInfo<'_>> = nodes.collect();
        let mut known = [None; LANES];
        if let Some(kept) = &self.kept {
            kept.follow(self.devices, cluster);
            kept.known(self.devices, &nodes, &mut known);
        }
        let (mut passed, mut new) = (0, Vec::new());
        for (info, known) in nodes.iter().zip(known) {
            let passes = match known {
                Some(passes) => passes,
                None => {
                    let status = self.filter(*info);
                    if let Some(status) = status.as_ref().filter(|of| !of.code.is_rejection()) {
                        return Err(status.clone());
                    }
                    new.push((*info, status.is_none()));
                    status.is_none()
                }
            };
            passed |= u64::from(passes) << info.place().1;
        }
        if let Some(kept) = self.kept.as_ref().filter(|_| !new.is_empty()) {
            kept.keep(self.devices, &new);
        }
        Ok(passed)
    }
}
