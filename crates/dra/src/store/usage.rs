//! The devices that claims use.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portolan::model::Quantity;

use crate::model::{AllocationResult, DeviceResult};

use super::{Log, PoolId};

/// Amounts of capacities by name.
pub(super) type Amounts = BTreeMap<Arc<str>, Quantity>;

/// The devices of one pool that are in use.
///
/// Devices of stored claims form a set: if two claims use one device and one of them is freed, the device is free.
/// Devices of claims in flight are listed for each claim.
#[derive(Clone, Debug, Default)]
pub struct PoolUsage {
    dedicated: BTreeSet<Arc<str>>,
    shares: BTreeSet<(Arc<str>, Arc<str>)>,
    consumed: BTreeMap<Arc<str>, Amounts>,
    in_flight: Vec<(Arc<str>, DeviceResult)>,
}

impl PoolUsage {
    /// Returns whether a claim uses the device alone.
    #[must_use]
    pub fn is_dedicated(&self, device: &str) -> bool {
        self.dedicated.contains(device)
            || self.pending(device).any(|result| result.share_id.is_none())
    }

    /// Returns whether any claim uses the device.
    #[must_use]
    pub fn is_used(&self, device: &str) -> bool {
        self.dedicated.contains(device)
            || self.shares.iter().any(|(shared, _)| **shared == *device)
            || self.pending(device).next().is_some()
    }

    /// Returns how much of a capacity of the device is consumed.
    #[must_use]
    pub fn consumed(&self, device: &str, capacity: &str) -> Quantity {
        let stored = self.consumed.get(device).and_then(|amounts| amounts.get(capacity));
        let pending = self.pending(device).filter(|result| result.share_id.is_some());
        let pending = pending.filter_map(|result| result.consumed_capacity.get(capacity));
        pending.fold(stored.copied().unwrap_or_default(), |sum, amount| sum + amount.quantity())
    }

    /// Returns whether any capacity of the device is consumed.
    #[must_use]
    pub fn has_consumed(&self, device: &str) -> bool {
        self.consumed.contains_key(device)
            || self.pending(device).any(|result| result.share_id.is_some())
    }

    fn pending<'s>(&'s self, device: &'s str) -> impl Iterator<Item = &'s DeviceResult> {
        self.in_flight.iter().map(|(_, result)| result).filter(move |of| *of.device == *device)
    }

    fn is_empty(&self) -> bool {
        self.dedicated.is_empty()
            && self.shares.is_empty()
            && self.consumed.is_empty()
            && self.in_flight.is_empty()
    }

    fn add(&mut self, result: &DeviceResult) {
        let Some(share) = &result.share_id else {
            self.dedicated.insert(result.device.clone());
            return;
        };
        self.shares.insert((result.device.clone(), share.clone()));
        if result.consumed_capacity.is_empty() {
            return;
        }
        let sums = self.consumed.entry(result.device.clone()).or_default();
        for (name, amount) in &result.consumed_capacity {
            let sum = sums.entry(name.clone()).or_default();
            *sum = *sum + amount.quantity();
        }
    }

    fn remove(&mut self, result: &DeviceResult) {
        let Some(share) = &result.share_id else {
            self.dedicated.remove(&result.device);
            return;
        };
        self.shares.remove(&(result.device.clone(), share.clone()));
        let Some(sums) = self.consumed.get_mut(&result.device) else { return };
        for (name, amount) in &result.consumed_capacity {
            if let Some(sum) = sums.get_mut(name) {
                *sum = *sum - amount.quantity();
            }
        }
        if sums.values().all(|sum| sum.is_zero()) {
            self.consumed.remove(&result.device);
        }
    }
}

/// The devices in use, by pool.
#[derive(Clone, Default)]
pub struct Usage(imbl::HashMap<PoolId, Arc<PoolUsage>>);

impl Usage {
    /// Returns the devices of a pool that are in use, or `None` if there are none.
    #[must_use]
    pub fn pool(&self, pool: &PoolId) -> Option<&Arc<PoolUsage>> {
        self.0.get(pool)
    }

    pub(super) fn add(&mut self, allocation: &AllocationResult, log: &mut Log) {
        self.each(allocation, log, |pool, result| pool.add(result));
    }

    pub(super) fn remove(&mut self, allocation: &AllocationResult, log: &mut Log) {
        self.each(allocation, log, |pool, result| pool.remove(result));
    }

    pub(super) fn reserve(
        &mut self,
        claim: &Arc<str>,
        allocation: &AllocationResult,
        log: &mut Log,
    ) {
        self.each(allocation, log, |pool, result| {
            pool.in_flight.push((claim.clone(), result.clone()));
        });
    }

    pub(super) fn release(
        &mut self,
        claim: &Arc<str>,
        allocation: &AllocationResult,
        log: &mut Log,
    ) {
        self.each(allocation, log, |pool, _| {
            pool.in_flight.retain(|(pending, _)| pending != claim)
        });
    }

    /// Changes the pools of all devices that are not used for administration.
    fn each(
        &mut self,
        allocation: &AllocationResult,
        log: &mut Log,
        change: impl Fn(&mut PoolUsage, &DeviceResult),
    ) {
        for result in &allocation.devices.results {
            if result.admin_access == Some(true) {
                continue;
            }
            let id = PoolId { driver: result.driver.clone(), pool: result.pool.clone() };
            let mut pool = self.0.get(&id).cloned().unwrap_or_default();
            change(Arc::make_mut(&mut pool), result);
            log.add_usage(id.clone());
            match pool.is_empty() {
                true => drop(self.0.remove(&id)),
                false => drop(self.0.insert(id, pool)),
            }
        }
    }
}
