//! Resource slices, by pool and by the nodes that may use them.

use std::sync::Arc;

use crate::model::ResourceSlice;

use super::pools::Views;

/// A pool of devices. Pools are ordered by driver, then by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId {
    /// The driver.
    pub driver: Arc<str>,
    /// The name of the pool.
    pub pool: Arc<str>,
}

impl PoolId {
    /// Returns the pool of a slice.
    #[must_use]
    pub fn of(slice: &ResourceSlice) -> PoolId {
        PoolId { driver: slice.spec.driver.clone(), pool: slice.spec.pool.name.clone() }
    }
}

/// All slices of a pool, sorted by name.
#[derive(Clone, Debug, Default)]
pub struct PoolSlices {
    slices: Vec<Arc<ResourceSlice>>,
    pub(super) views: Views,
}

impl PoolSlices {
    /// Returns the slices, sorted by name.
    #[must_use]
    pub fn slices(&self) -> &[Arc<ResourceSlice>] {
        &self.slices
    }

    /// Returns the slices of one generation.
    pub(crate) fn of_generation(
        &self,
        generation: i64,
    ) -> impl Iterator<Item = &Arc<ResourceSlice>> + Clone {
        self.slices.iter().filter(move |slice| slice.spec.pool.generation == generation)
    }

    /// Returns whether nodes that no slice names may use devices or counters of the pool.
    pub(crate) fn is_shared(&self) -> bool {
        self.slices.iter().any(|slice| node_of(slice).is_none())
    }
}

/// Returns the only node to which a slice matters, or `None` if it may matter to any node.
fn node_of(slice: &ResourceSlice) -> Option<&Arc<str>> {
    let name = slice.spec.node_name.as_ref().filter(|name| !name.is_empty());
    name.filter(|_| slice.spec.shared_counters.is_empty())
}

/// The resource slices.
#[derive(Clone, Default)]
pub struct Slices {
    by_name: imbl::HashMap<Arc<str>, Arc<ResourceSlice>>,
    pools: imbl::OrdMap<PoolId, Arc<PoolSlices>>,
    /// The pools with slices that name the node.
    of_node: imbl::HashMap<Arc<str>, imbl::OrdSet<PoolId>>,
    /// The pools with slices that may matter to any node.
    shared: imbl::OrdSet<PoolId>,
}

impl Slices {
    /// Returns the slice of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<ResourceSlice>> {
        self.by_name.get(name)
    }

    /// Returns all slices, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<ResourceSlice>> {
        self.by_name.values()
    }

    /// Returns the slices of a pool.
    #[must_use]
    pub fn pool(&self, pool: &PoolId) -> Option<&Arc<PoolSlices>> {
        self.pools.get(pool)
    }

    /// Returns the pools that may matter to the node of this name, each once and in order.
    pub fn pools_for(&self, node: &str) -> impl Iterator<Item = (&PoolId, &Arc<PoolSlices>)> {
        let own = self.of_node.get(node);
        let mut ids: Vec<&PoolId> = own.into_iter().flatten().chain(&self.shared).collect();
        if !self.shared.is_empty() {
            ids.sort();
            ids.dedup();
        }
        ids.into_iter().filter_map(|id| Some((id, self.pools.get(id)?)))
    }

    pub(super) fn put(&mut self, slice: Arc<ResourceSlice>) {
        self.delete(slice.name());
        self.by_name.insert(slice.name().clone(), slice.clone());
        let id = PoolId::of(&slice);
        if let Some(node) = node_of(&slice) {
            self.of_node.entry(node.clone()).or_default().insert(id.clone());
        }
        self.change(id, |pool| {
            let at = pool.slices.partition_point(|other| other.name() < slice.name());
            pool.slices.insert(at, slice);
        });
    }

    pub(super) fn delete(&mut self, name: &str) {
        let Some(slice) = self.by_name.remove(name) else { return };
        let id = PoolId::of(&slice);
        self.change(id.clone(), |pool| pool.slices.retain(|other| other.name() != slice.name()));
        let Some(node) = node_of(&slice) else { return };
        let names = |slice: &Arc<ResourceSlice>| node_of(slice) == Some(node);
        if self.pools.get(&id).is_some_and(|pool| pool.slices.iter().any(names)) {
            return;
        }
        if let Some(pools) = self.of_node.get_mut(node) {
            pools.remove(&id);
            if pools.is_empty() {
                self.of_node.remove(node);
            }
        }
    }

    fn change(&mut self, id: PoolId, change: impl FnOnce(&mut PoolSlices)) {
        let mut pool = self.pools.get(&id).map(|pool| PoolSlices::clone(pool)).unwrap_or_default();
        change(&mut pool);
        match pool.is_shared() {
            true => drop(self.shared.insert(id.clone())),
            false => drop(self.shared.remove(&id)),
        }
        match pool.slices.is_empty() {
            true => drop(self.pools.remove(&id)),
            false => drop(self.pools.insert(id, Arc::new(pool))),
        }
    }
}
