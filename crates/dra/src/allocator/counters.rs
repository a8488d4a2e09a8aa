//! Counters that the devices of a pool share.

use std::collections::BTreeMap;

use portolan::model::Quantity;

use crate::model::Device;
use crate::store::PoolUsage;

use super::NodePool;

/// Amounts by counter set and counter.
pub(super) type Counters<'a> = BTreeMap<(&'a str, &'a str), Quantity>;

/// Returns what the devices in use, also those of other nodes, leave of each counter. May be negative.
pub(super) fn available<'a>(pool: &'a NodePool, usage: Option<&PoolUsage>) -> Counters<'a> {
    let mut left = Counters::new();
    for set in pool.current().flat_map(|slice| &slice.spec.shared_counters) {
        for (name, counter) in &set.counters {
            left.insert((&set.name, name), counter.value.quantity());
        }
    }
    let Some(usage) = usage else { return left };
    for device in pool.current().flat_map(|slice| &slice.spec.devices) {
        if !device.consumes_counters.is_empty() && usage.is_used(&device.name) {
            for (counter, amount) in consumed(device) {
                if let Some(left) = left.get_mut(&counter) {
                    *left = *left - amount;
                }
            }
        }
    }
    left
}

/// Returns what a device consumes of each counter.
pub(super) fn consumed(device: &Device) -> impl Iterator<Item = ((&str, &str), Quantity)> {
    device.consumes_counters.iter().flat_map(|set| {
        let of = |(name, counter)| {
            let (name, counter): (&std::sync::Arc<str>, &crate::model::Counter) = (name, counter);
            ((&*set.counter_set, &**name), counter.value.quantity())
        };
        set.counters.iter().map(of)
    })
}
