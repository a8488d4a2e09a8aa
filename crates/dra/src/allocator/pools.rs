//! The pools of a node (`pools_incubating.go`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portolan::model::{Node, Quantity};

use crate::model::{Device, ResourceSlice};
use crate::store::{PoolId, PoolSlices, Slices};

/// Whether the devices of a pool may be allocated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolState {
    /// All slices are known, and they are consistent.
    Complete,
    /// Some slices of the newest generation are not known.
    Incomplete,
    /// The slices contradict each other, for this reason.
    Invalid(String),
}

/// A pool as one node sees it.
#[derive(Clone, Debug)]
pub struct NodePool {
    /// The driver and the name of the pool.
    pub id: PoolId,
    /// Whether the devices may be allocated.
    pub state: PoolState,
    /// The slices with devices that concern the node, of the newest generation among them, sorted by name.
    pub slices: Vec<Arc<ResourceSlice>>,
    /// The generation of these slices.
    pub generation: i64,
    /// All slices of the pool.
    pub all: Arc<PoolSlices>,
}

/// The pools of a node, in the order in which the search tries them: by driver and name, and pools that contain
/// binding conditions last.
#[derive(Clone, Debug, Default)]
pub struct NodePools {
    pools: Vec<NodePool>,
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
        let mut pools: Vec<NodePool> =
            pools.filter_map(|(id, pool)| NodePool::gather(id, pool, node)).collect();
        // Stable, so that both parts remain sorted by driver and name.
        pools.sort_by_key(NodePool::has_binding_conditions);
        NodePools { pools }
    }

    /// Returns the pools in the order of the search.
    #[must_use]
    pub fn pools(&self) -> &[NodePool] {
        &self.pools
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

impl NodePool {
    fn gather(id: &PoolId, pool: &Arc<PoolSlices>, node: &Node) -> Option<NodePool> {
        let concerned = || pool.slices().iter().filter(|slice| slice.concerns(node));
        let generation = concerned().map(|slice| slice.spec.pool.generation).max()?;
        let is_current = |slice: &&Arc<ResourceSlice>| slice.spec.pool.generation == generation;
        let kept: Vec<&Arc<ResourceSlice>> = concerned().filter(is_current).collect();
        let expected = kept.first()?.spec.pool.resource_slice_count;
        let is_all = |count: usize| i64::try_from(count) == Ok(expected);
        let mut state = PoolState::Complete;
        if !is_all(kept.len()) {
            if pool.slices().iter().any(|slice| slice.spec.pool.generation > generation) {
                return None;
            }
            if !is_all(pool.slices().iter().filter(is_current).count()) {
                state = PoolState::Incomplete;
            }
        }
        if state == PoolState::Complete
            && let Err(reason) =
                check(kept.iter().copied(), pool.slices().iter().filter(is_current))
        {
            state = PoolState::Invalid(reason);
        }
        let with_devices = |slice: &&Arc<ResourceSlice>| slice.spec.shared_counters.is_empty();
        let slices = kept.into_iter().filter(with_devices).cloned().collect();
        Some(NodePool { id: id.clone(), state, slices, generation, all: pool.clone() })
    }

    fn has_binding_conditions(&self) -> bool {
        let mut devices = self.slices.iter().flat_map(|slice| &slice.spec.devices);
        devices.any(|device| !device.binding_conditions.is_empty())
    }

    /// Returns all slices of the generation, also those of other nodes.
    pub(super) fn current(&self) -> impl Iterator<Item = &Arc<ResourceSlice>> + Clone {
        self.all.of_generation(self.generation)
    }
}

/// Checks that the names of devices that concern the node are unique, that counter sets are unique, and that all devices
/// of the pool consume counters that exist.
fn check<'a>(
    kept: impl Iterator<Item = &'a Arc<ResourceSlice>>,
    slices: impl Iterator<Item = &'a Arc<ResourceSlice>> + Clone,
) -> Result<(), String> {
    let mut sets: BTreeMap<&str, BTreeMap<&str, Quantity>> = BTreeMap::new();
    for set in slices.clone().flat_map(|slice| &slice.spec.shared_counters) {
        let counters = set.counters.iter().map(|(name, of)| (&**name, of.value.quantity()));
        if sets.insert(&set.name, counters.collect()).is_some() {
            return Err(format!("duplicate counter set name {}", set.name));
        }
    }
    let mut names = BTreeSet::new();
    for device in kept.flat_map(|slice| &slice.spec.devices) {
        if !names.insert(&device.name) {
            return Err(format!("duplicate device name {}", device.name));
        }
    }
    for device in slices.flat_map(|slice| &slice.spec.devices) {
        for consumed in &device.consumes_counters {
            let set = &consumed.counter_set;
            let Some(counters) = sets.get(&**set) else {
                return Err(format!("device {}: counter set {set} does not exist", device.name));
            };
            for counter in consumed.counters.keys() {
                if !counters.contains_key(&**counter) {
                    let device = &device.name;
                    return Err(format!("device {device}: counter {set}/{counter} does not exist"));
                }
            }
        }
    }
    Ok(())
}
