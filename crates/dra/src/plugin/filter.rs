//! Filter: allocates the claims of a pod on each node.

use std::sync::Arc;

use portolan::cache::NodeInfo;
use portolan::model::{Node, Pod};
use portolan::plugin::{Filter, Status};

use crate::allocator::{AllocateError, Allocation, Allocator, NodePools};
use crate::store::Devices;

use super::extended::{self, Special};
use super::state::{Chosen, PodState};
use super::{DynamicResources, binding, error, unresolvable};

/// The filter of one pod.
pub(super) struct NodeFilter<'a> {
    plugin: &'a DynamicResources,
    devices: &'a Devices,
    pod: &'a Pod,
    state: Arc<PodState>,
}

impl<'a> NodeFilter<'a> {
    pub(super) fn new(
        plugin: &'a DynamicResources,
        devices: &'a Devices,
        pod: &'a Pod,
        state: Arc<PodState>,
    ) -> NodeFilter<'a> {
        NodeFilter { plugin, devices, pod, state }
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
                    || binding::is_lost(
                        &of.claim,
                        self.plugin.binding_timeout,
                        || self.plugin.backend.now(),
                    ))
        };
        (0..self.state.claims.len()).filter(is_unavailable).collect()
    }

    fn allocate(&self, node: &Node, special: Option<Special>) -> Result<Chosen, Status> {
        let (claim, mappings) = special.map_or((None, Vec::new()), |Special { claim, mappings }| {
            (Some(claim), mappings)
        });
        let claims = self.state.claims.iter().filter(|of| of.is_to_allocate);
        let claims: Vec<_> = claims
            .map(|of| match &claim {
                Some(special) if of.is_special => special.clone(),
                _ => of.claim.clone(),
            })
            .collect();
        let allocator = Allocator {
            devices: self.devices,
            selectors: &*self.plugin.selectors,
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
}
