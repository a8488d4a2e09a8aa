//! The pools of devices as nodes see them (`pools_incubating.go`).
//!
//! A node sees the slices that concern it. Most nodes see the same slices of a pool that is attached to a network, so what
//! a node sees is kept with the slices, once for all nodes that see the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};

use portolan::model::{Node, Quantity};

use crate::model::ResourceSlice;

use super::{PoolId, PoolSlices};

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

/// A pool as some nodes see it.
#[derive(Debug)]
pub struct NodePool {
    /// The driver and the name of the pool.
    pub id: PoolId,
    /// Whether the devices may be allocated.
    pub state: PoolState,
    /// The slices with devices that concern the nodes, of the newest generation among them, sorted by name.
    pub slices: Vec<Arc<ResourceSlice>>,
    /// All slices of that generation, also those of other nodes.
    pub(crate) current: Vec<Arc<ResourceSlice>>,
    pub(crate) has_binding_conditions: bool,
    /// Whether all nodes that see these slices can use the same devices.
    pub(crate) is_shared: bool,
}

/// The largest number of views that are kept for a pool.
const MOST: usize = 64;

/// What nodes see of the slices of a pool, by the slices that concern them.
#[derive(Debug, Default)]
pub(super) struct Views(RwLock<Vec<View>>);

type View = (Box<[bool]>, Option<Arc<NodePool>>);

/// The copy is for other slices.
impl Clone for Views {
    fn clone(&self) -> Views {
        Views::default()
    }
}

impl PoolSlices {
    /// Returns the pool as the node sees it, or `None` if no slice concerns the node. O(slices), and O(devices) if no
    /// node has seen these slices before.
    #[must_use]
    pub fn of_node(&self, id: &PoolId, node: &Node) -> Option<Arc<NodePool>> {
        let concerned: Box<[bool]> =
            self.slices().iter().map(|slice| slice.concerns(node)).collect();
        let views = self.views.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, pool)) = views.iter().find(|(of, _)| *of == concerned) {
            return pool.clone();
        }
        drop(views);
        let pool = NodePool::gather(id, self.slices(), &concerned).map(Arc::new);
        let mut views = self.views.0.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have added it, whose pool is the one that all nodes share.
        if let Some((_, pool)) = views.iter().find(|(of, _)| *of == concerned) {
            return pool.clone();
        }
        if views.len() < MOST {
            views.push((concerned, pool.clone()));
        }
        pool
    }
}

impl NodePool {
    fn gather(id: &PoolId, slices: &[Arc<ResourceSlice>], concerned: &[bool]) -> Option<NodePool> {
        let concerned = || {
            let all = slices.iter().zip(concerned);
            all.filter(|(_, is_concerned)| **is_concerned).map(|(slice, _)| slice)
        };
        let generation = concerned().map(|slice| slice.spec.pool.generation).max()?;
        let is_current = |slice: &&Arc<ResourceSlice>| slice.spec.pool.generation == generation;
        let kept: Vec<&Arc<ResourceSlice>> = concerned().filter(is_current).collect();
        let current: Vec<Arc<ResourceSlice>> = slices.iter().filter(is_current).cloned().collect();
        let expected = kept.first()?.spec.pool.resource_slice_count;
        let is_all = |count: usize| i64::try_from(count) == Ok(expected);
        let mut state = PoolState::Complete;
        if !is_all(kept.len()) {
            if slices.iter().any(|slice| slice.spec.pool.generation > generation) {
                return None;
            }
            if !is_all(current.len()) {
                state = PoolState::Incomplete;
            }
        }
        if state == PoolState::Complete
            && let Err(reason) = check(kept.iter().copied(), current.iter())
        {
            state = PoolState::Invalid(reason);
        }
        let with_devices = |slice: &&Arc<ResourceSlice>| slice.spec.shared_counters.is_empty();
        let slices: Vec<Arc<ResourceSlice>> =
            kept.into_iter().filter(with_devices).cloned().collect();
        let mut devices = slices.iter().flat_map(|slice| &slice.spec.devices);
        let has_binding_conditions = devices.any(|device| !device.binding_conditions.is_empty());
        let is_shared = slices.iter().all(|slice| {
            slice.spec.node_name.is_none() && slice.spec.per_device_node_selection != Some(true)
        });
        let id = id.clone();
        Some(NodePool { id, state, slices, current, has_binding_conditions, is_shared })
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

#[cfg(test)]
mod tests {
    use portolan::model::node;
    use serde_json::json;

    use super::*;
    use crate::store::Slices;

    fn slices() -> Slices {
        let mut slices = Slices::default();
        for (name, key, value) in [
            ("a", "allNodes", json!(true)),
            ("b", "nodeName", json!("n1")),
            ("c", "allNodes", json!(true)),
        ] {
            let pool = json!({"name": "p", "generation": 1, "resourceSliceCount": 3});
            let mut spec = json!({"driver": "d", "pool": pool, "devices": [{"name": name}]});
            spec[key] = value;
            let slice = json!({"metadata": {"name": name}, "spec": spec});
            slices.put(Arc::new(serde_json::from_value(slice).unwrap()));
        }
        slices
    }

    fn view(slices: &Slices, node_name: &str) -> Arc<NodePool> {
        let node = node(node_name).build();
        let (id, pool) = slices.pools_for(node_name).next().unwrap();
        pool.of_node(id, &node).unwrap()
    }

    #[test]
    fn nodes_that_see_the_same_slices_share_a_pool() {
        let slices = slices();
        let [n1, n2, n3] = ["n1", "n2", "n3"].map(|name| view(&slices, name));
        assert!(Arc::ptr_eq(&n2, &n3) && !Arc::ptr_eq(&n1, &n2));
        assert_eq!([n1.slices.len(), n2.slices.len()], [3, 2]);
        assert_eq!([n1.is_shared, n2.is_shared], [false, true]);
    }

    #[test]
    fn a_changed_slice_changes_what_nodes_see() {
        let mut slices = slices();
        assert_eq!(view(&slices, "n2").state, PoolState::Complete);
        slices.delete("c");
        assert_eq!(view(&slices, "n2").state, PoolState::Incomplete);
    }
}
