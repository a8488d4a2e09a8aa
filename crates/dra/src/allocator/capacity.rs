//! The capacity that a request consumes of a device.

use std::collections::BTreeMap;
use std::sync::Arc;

use portolan::model::Quantity;

use crate::model::{Amount, Capacity, CapacityRequirements, Device, RequestPolicy, ValidRange};
use crate::store::PoolUsage;

/// Amounts of capacities by name.
pub(super) type Amounts = BTreeMap<Arc<str>, Amount>;

/// Returns what a request consumes of a device, or `None` if the device lacks a requested capacity, a policy does not
/// permit the amount, or too little is left. A device that does not allow several allocations is not consumed:
/// the amounts are then empty.
///
/// `pending` is what this attempt has consumed of the device so far.
pub(super) fn consumption(
    device: &Device,
    requested: Option<&CapacityRequirements>,
    usage: Option<&PoolUsage>,
    pending: Option<&BTreeMap<Arc<str>, Quantity>>,
) -> Option<Amounts> {
    let requested = requested.map(|requested| &requested.requests);
    let mut names = requested.into_iter().flat_map(BTreeMap::keys);
    if !names.all(|name| device.capacity.contains_key(name)) {
        return None;
    }
    let mut consumed = Amounts::new();
    for (name, capacity) in &device.capacity {
        let amount = wanted(requested.and_then(|requested| requested.get(name)), capacity);
        if violates(&amount, capacity.request_policy.as_ref()) {
            return None;
        }
        let mut sum = amount.quantity();
        if device.is_shared() {
            sum = sum + usage.map_or_else(Quantity::default, |of| of.consumed(&device.name, name));
            sum = sum + pending.and_then(|of| of.get(name)).copied().unwrap_or_default();
        }
        if sum > capacity.value.quantity() {
            return None;
        }
        if device.is_shared() {
            consumed.insert(name.clone(), amount);
        }
    }
    Some(consumed)
}

/// Returns the amount that a request consumes of a capacity, rounded up by the policy.
fn wanted(requested: Option<&Amount>, capacity: &Capacity) -> Amount {
    let policy = capacity.request_policy.as_ref();
    let Some(requested) = requested else {
        let default = policy.and_then(|policy| policy.default.as_ref());
        return default.unwrap_or(&capacity.value).clone();
    };
    let Some(policy) = policy else { return requested.clone() };
    if let Some(ValidRange { min: Some(min), step, .. }) = &policy.valid_range {
        if requested.quantity() < min.quantity() {
            return min.clone();
        }
        return match step {
            Some(step) => stepped(requested, min.quantity(), step.quantity()),
            None => requested.clone(),
        };
    }
    let mut valid = policy.valid_values.iter();
    let next = valid.find(|value| value.quantity() >= requested.quantity());
    next.unwrap_or(requested).clone()
}

/// Returns the least amount of `min` plus a multiple of `step` that is at least the requested amount.
fn stepped(requested: &Amount, min: Quantity, step: Quantity) -> Amount {
    let beyond = (requested.quantity() - min).nanos();
    match step.nanos() {
        ..=0 => requested.clone(),
        step if beyond % step == 0 => requested.clone(),
        step => {
            let missing = step - beyond % step;
            Amount::binary(requested.quantity() + from_nanos(missing))
        }
    }
}

/// Returns the quantity of this number of billionths.
fn from_nanos(nanos: i128) -> Quantity {
    format!("{nanos}n").parse().unwrap_or_default()
}

/// Returns whether a policy does not permit an amount.
fn violates(amount: &Amount, policy: Option<&RequestPolicy>) -> bool {
    let Some(policy) = policy else { return false };
    if policy.default.as_ref() == Some(amount) {
        return false;
    }
    let quantity = amount.quantity();
    if let Some(range) = &policy.valid_range {
        let limit = |amount: &Option<Amount>| amount.as_ref().map(Amount::quantity);
        let min = limit(&range.min).unwrap_or_default();
        let is_between = limit(&range.step)
            .is_some_and(|step| step.nanos() > 0 && (quantity - min).nanos() % step.nanos() != 0);
        return is_between || limit(&range.max).is_some_and(|max| quantity > max);
    }
    !policy.valid_values.is_empty()
        && !policy.valid_values.iter().any(|value| value.quantity() == quantity)
}
