//! Whether devices can be reserved.
//!
//! Several schedulers may decide on the same version, so the limits are checked again in the writer's state. What one
//! event reserves is checked as a whole: a device belongs to one claim, unless it allows several allocations; the
//! claims that share a device consume at most its capacity; and the devices of a pool consume at most its counters.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use portolan::model::Quantity;

use crate::model::{Device, DeviceResult};

use super::counters::{self, Counters};
use super::{Devices, InFlight, PoolId, PoolSlices, PoolUsage};

/// The pools that an event reserves devices of.
type Pools<'a> = BTreeMap<PoolId, Pool<'a>>;

/// A pool, with the devices that the results before have reserved.
struct Pool<'a> {
    slices: Option<&'a PoolSlices>,
    usage: Option<&'a PoolUsage>,
    dedicated: BTreeSet<&'a str>,
    /// What is consumed of the capacities of each shared device.
    shared: BTreeMap<&'a str, BTreeMap<&'a str, Quantity>>,
    /// What is left of the counters of each generation.
    counters: BTreeMap<i64, Counters<'a>>,
}

/// Returns the reason for which devices cannot be reserved.
pub(super) fn check(devices: &Devices, pending: &[InFlight]) -> Result<(), String> {
    let mut pools = Pools::new();
    let mut uids = BTreeSet::new();
    for InFlight { claim, allocation } in pending {
        let (key, uid) = (claim.key(), &claim.metadata.uid);
        super::has_uid(claim)?;
        if devices.claims.in_flight(uid).is_some() || !uids.insert(uid) {
            return Err(format!("claim {key} is in the process of being allocated"));
        }
        if let Some(known) = devices.claims.get(claim.namespace(), claim.name()) {
            if known.metadata.uid != *uid {
                return Err(format!("claim {key} was deleted and created again"));
            }
            if known.status.allocation.is_some() {
                return Err(format!("claim {key} is allocated"));
            }
        }
        for result in &allocation.devices.results {
            if result.admin_access == Some(true) {
                continue;
            }
            let id = PoolId { driver: result.driver.clone(), pool: result.pool.clone() };
            let pool = pools.entry(id).or_insert_with_key(|id| Pool::new(devices, id));
            pool.reserve(result).map_err(|why| {
                let DeviceResult { driver, pool, device, .. } = result;
                format!("claim {key}: device {driver}/{pool}/{device} {why}")
            })?;
        }
    }
    Ok(())
}

impl<'a> Pool<'a> {
    fn new(devices: &'a Devices, id: &PoolId) -> Pool<'a> {
        Pool {
            slices: devices.slices.pool(id).map(|slices| &**slices),
            usage: devices.claims.usage().pool(id).map(|usage| &**usage),
            dedicated: BTreeSet::new(),
            shared: BTreeMap::new(),
            counters: BTreeMap::new(),
        }
    }

    /// Reserves the device of a result, or returns why it cannot be reserved.
    fn reserve(&mut self, result: &'a DeviceResult) -> Result<(), String> {
        let (name, usage) = (&*result.device, self.usage);
        let is_dedicated =
            self.dedicated.contains(name) || usage.is_some_and(|of| of.is_dedicated(name));
        let is_used = is_dedicated
            || self.shared.contains_key(name)
            || usage.is_some_and(|of| of.is_used(name));
        let is_shared = result.share_id.is_some();
        if is_dedicated || is_used && !is_shared {
            return Err("is in use".to_owned());
        }
        let device = self.slices.and_then(|slices| slices.device(name));
        if !is_used && let Some((device, generation)) = device {
            self.reserve_counters(device, generation)?;
        }
        if !is_shared {
            self.dedicated.insert(name);
            return Ok(());
        }
        let Some((device, _)) = device else { return Err("does not exist".to_owned()) };
        let sums = self.shared.entry(name).or_default();
        for (capacity, amount) in &result.consumed_capacity {
            let sum = sums.entry(capacity).or_default();
            *sum = *sum + amount.quantity();
            let stored = usage.map_or_else(Quantity::default, |of| of.consumed(name, capacity));
            let limit = device.capacity.get(capacity).map(|limit| limit.value.quantity());
            if limit.is_none_or(|limit| stored + *sum > limit) {
                return Err(format!("lacks capacity {capacity}"));
            }
        }
        Ok(())
    }

    fn reserve_counters(&mut self, device: &'a Device, generation: i64) -> Result<(), String> {
        let Some(slices) = self.slices.filter(|_| !device.consumes_counters.is_empty()) else {
            return Ok(());
        };
        let left = match self.counters.entry(generation) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                new.insert(counters::available(slices.of_generation(generation), self.usage))
            }
        };
        match counters::take(left, device) {
            true => Ok(()),
            false => Err("lacks counters".to_owned()),
        }
    }
}

impl PoolSlices {
    /// Returns the newest device of this name, and its generation. O(devices of the pool).
    fn device(&self, name: &str) -> Option<(&Device, i64)> {
        let found = self.slices().iter().filter_map(|slice| {
            let device = slice.spec.devices.iter().find(|device| *device.name == *name)?;
            Some((device, slice.spec.pool.generation))
        });
        found.max_by_key(|(_, generation)| *generation)
    }
}
