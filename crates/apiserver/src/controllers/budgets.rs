//! The status of disruption budgets, which preemption reads.
//!
//! The expected number of pods is the number of existing pods; the scales of their controllers are not read.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{has_ended, is_deleted, is_ready, namespaces_of, write};
use crate::resources;
use crate::selectors::label_selector_matches;
use crate::store::{Key, Store};
use crate::verbs::Part;

/// Updates the budgets that have changed and those in the namespaces of changed pods.
pub(super) fn reconcile(
    store: &Store,
    changed: &BTreeSet<Key>,
    all: &BTreeSet<Key>,
    pods: &BTreeSet<Key>,
) {
    if all.is_empty() {
        return;
    }
    let namespaces = namespaces_of(pods);
    for key in all
        .iter()
        .filter(|key| changed.contains(key) || namespaces.contains(key.namespace.as_str()))
    {
        set_status(store, key);
    }
}

fn set_status(store: &Store, key: &Key) {
    let Some(budget) = store.of(resources::budgets()).get(key) else { return };
    let budget = &*budget.value;
    let selector = &budget["spec"]["selector"];
    let (_, pods) = store.of(resources::pods()).objects();
    let (mut expected, mut healthy) = (0, 0);
    for pod in pods
        .iter()
        .filter(|pod| pod.version.key.namespace == key.namespace && !has_ended(&pod.value))
    {
        if label_selector_matches(selector, &pod.value["metadata"]["labels"]) {
            expected += 1;
            healthy += u64::from(is_ready(&pod.value) && !is_deleted(&pod.value));
        }
    }
    let spec = &budget["spec"];
    let desired = match (
        number(&spec["minAvailable"], expected),
        number(&spec["maxUnavailable"], expected),
    ) {
        (Some(least), _) => least,
        (None, Some(most)) => expected.saturating_sub(most),
        (None, None) => 0,
    };
    let allowed = if expected == 0 { 0 } else { healthy.saturating_sub(desired) };
    let status = json!({
        "observedGeneration": budget["metadata"]["generation"], "expectedPods": expected, "currentHealthy": healthy,
        "desiredHealthy": desired, "disruptionsAllowed": allowed,
    });
    if budget["status"] != status {
        write(store, resources::budgets(), key, Part::Status, &json!({"status": status}));
    }
}

/// A number, or a percentage of `all`, rounded up.
fn number(value: &Value, all: u64) -> Option<u64> {
    match value {
        Value::String(text) => match text.strip_suffix('%') {
            Some(percent) => Some(percent.parse::<u64>().ok()?.saturating_mul(all).div_ceil(100)),
            None => text.parse().ok(),
        },
        _ => value.as_u64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_rounded_up() {
        assert_eq!(number(&json!("50%"), 5), Some(3));
        assert_eq!(number(&json!(2), 5), Some(2));
        assert_eq!(number(&Value::Null, 5), None);
    }
}
