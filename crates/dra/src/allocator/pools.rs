//! The pools of a node in the order of the search.

use std::sync::Arc;

use portolan::model::Node;

use crate::model::{Device, ResourceSlice};
use crate::store::{NodePool, PoolId, PoolState, Slices};

/// The pools of a node, in the order in which the search tries them: by driver and name, and pools that contain
/// binding conditions last.
#[derive(Clone, Debug, Default)]
pub struct NodePools {
    pools: Vec<Arc<NodePool>>,
}

/// A device that the search may try.
#[derive(Clone, Copy)]
pub(super) struct Candidate<'a> {
    /// The index of the pool.
    pub(super) pool: usize,
    pub(super) id: &'a PoolId,
    pub(super) slice: &'a Arc<ResourceSlice>,
    pub(super) device: &'a Device,
    /// The index of the device in the slice.
    pub(super) index: usize,
}

impl NodePools {
    /// Gathers the pools of a node. O(slices that may concern the node).
    #[must_use]
    pub fn gather(slices: &Slices, node: &Node) -> NodePools {
        let pools = slices.pools_for(&node.name);
        let mut pools: Vec<Arc<NodePool>> =
            pools.filter_map(|(id, pool)| pool.of_node(id, node)).collect();
        // Stable, so that both parts remain sorted by driver and name.
        pools.sort_by_key(|pool| pool.has_binding_conditions);
        NodePools { pools }
    }

    /// Returns the pools in the order of the search.
    #[must_use]
    pub fn pools(&self) -> &[Arc<NodePool>] {
        &self.pools
    }

    /// Returns the addresses of the pools if all nodes with these pools can use the same devices.
    pub(crate) fn shared(&self) -> Option<Vec<usize>> {
        let address = |pool: &Arc<NodePool>| pool.is_shared.then_some(Arc::as_ptr(pool).addr());
        self.pools.iter().map(address).collect()
    }

    /// Returns the devices of all complete pools in the order of the search.
    pub(super) fn candidates(&self) -> Vec<Candidate<'_>> {
        let complete = self.pools.iter().enumerate();
        let complete = complete.filter(|(_, pool)| pool.state == PoolState::Complete);
        complete
            .flat_map(|(at, pool)| {
                pool.slices.iter().flat_map(move |slice| {
                    slice.spec.devices.iter().enumerate().map(move |(index, device)| Candidate {
                        pool: at,
                        id: &pool.id,
                        slice,
                        device,
                        index,
                    })
                })
            })
            .collect()
    }
}
