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
    /// The ids of the shares of each device.
    shares: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    consumed: BTreeMap<Arc<str>, Amounts>,
    /// By device, with the uids of the claims.
    in_flight: BTreeMap<Arc<str>, Vec<(Arc<str>, DeviceResult)>>,
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
            || self.shares.contains_key(device)
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
    pub(crate) fn has_consumed(&self, device: &str) -> bool {
        self.consumed.contains_key(device)
            || self.pending(device).any(|result| result.share_id.is_some())
    }

    fn pending(&self, device: &str) -> impl Iterator<Item = &DeviceResult> {
        self.in_flight.get(device).into_iter().flatten().map(|(_, result)| result)
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
        self.shares.entry(result.device.clone()).or_default().insert(share.clone());
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
        if let Some(shares) = self.shares.get_mut(&result.device) {
            shares.remove(share);
            if shares.is_empty() {
                self.shares.remove(&result.device);
            }
        }
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
            let device = pool.in_flight.entry(result.device.clone()).or_default();
            device.push((claim.clone(), result.clone()));
        });
    }

    pub(super) fn release(
        &mut self,
        claim: &Arc<str>,
        allocation: &AllocationResult,
        log: &mut Log,
    ) {
        self.each(allocation, log, |pool, result| {
            let Some(device) = pool.in_flight.get_mut(&result.device) else { return };
            device.retain(|(pending, _)| pending != claim);
            if device.is_empty() {
                pool.in_flight.remove(&result.device);
            }
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
            let pool = self.0.entry(id.clone()).or_default();
            change(Arc::make_mut(pool), result);
            if pool.is_empty() {
                self.0.remove(&id);
            }
            log.add_usage(id);
        }
    }
}
