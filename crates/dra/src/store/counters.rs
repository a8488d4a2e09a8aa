//! Counters that the devices of a pool share.

use std::collections::BTreeMap;
use std::sync::Arc;

use portolan::model::Quantity;

use crate::model::{Device, ResourceSlice};

use super::PoolUsage;

/// Amounts by counter set and counter.
pub(crate) type Counters<'a> = BTreeMap<(&'a str, &'a str), Quantity>;

/// Returns what the devices in use, also those of other nodes, leave of each counter. May be negative. The slices are
/// those of one generation.
pub(crate) fn available<'a>(
    slices: impl Iterator<Item = &'a Arc<ResourceSlice>> + Clone,
    usage: Option<&PoolUsage>,
) -> Counters<'a> {
    let mut left = Counters::new();
    for set in slices.clone().flat_map(|slice| &slice.spec.shared_counters) {
        for (name, counter) in &set.counters {
            left.insert((&set.name, name), counter.value.quantity());
        }
    }
    let Some(usage) = usage else { return left };
    for device in slices.flat_map(|slice| &slice.spec.devices) {
        if !device.consumes_counters.is_empty() && usage.is_used(&device.name) {
            change(&mut left, device, |left, amount| left - amount);
        }
    }
    left
}

/// Reserves the counters of a device if enough is left of each. No device is allocated while any counter of the pool is
/// overdrawn.
pub(crate) fn take<'a>(left: &mut Counters<'a>, device: &'a Device) -> bool {
    let is_enough = left.values().all(|left| !left.is_negative())
        && consumed(device)
            .all(|(counter, amount)| left.get(&counter).is_some_and(|left| *left >= amount));
    if is_enough {
        change(left, device, |left, amount| left - amount);
    }
    is_enough
}

/// Undoes [`take`].
pub(crate) fn give_back<'a>(left: &mut Counters<'a>, device: &'a Device) {
    change(left, device, |left, amount| left + amount);
}

fn change<'a>(left: &mut Counters<'a>, device: &'a Device, by: fn(Quantity, Quantity) -> Quantity) {
    for (counter, amount) in consumed(device) {
        if let Some(left) = left.get_mut(&counter) {
            *left = by(*left, amount);
        }
    }
}

/// Returns what a device consumes of each counter.
fn consumed(device: &Device) -> impl Iterator<Item = ((&str, &str), Quantity)> {
    device.consumes_counters.iter().flat_map(|set| {
        set.counters.iter().map(|(name, of)| ((&*set.counter_set, &**name), of.value.quantity()))
    })
}
