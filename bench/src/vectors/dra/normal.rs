//! Values without what differs by chance: resource versions, times, ids of shares, and how a quantity is written.

use std::collections::HashMap;

use portolan_dra::model::Amount;
use serde_json::{Map, Value, json};

/// Returns a value without empty parts, with canonical quantities and without what differs by chance.
pub(super) fn normal(value: &Value) -> Value {
    within(value.clone(), "")
}

fn within(value: Value, key: &str) -> Value {
    match value {
        Value::Object(map) => {
            let is_error = map.get("code").is_some_and(|code| code == "Error");
            let is_left_out = |name: &str| {
                matches!(name, "resourceVersion" | "allocationTimestamp")
                    || (is_error && name == "plugin")
            };
            let mut out = Map::new();
            for (name, value) in map.into_iter().filter(|(name, _)| !is_left_out(name)) {
                let value = match &*name {
                    "shareID" => json!("share"),
                    _ if matches!(key, "consumedCapacity" | "capacity.requests") => {
                        json!(quantity(value.as_str().unwrap_or_default()))
                    }
                    "requests" if key == "capacity" => within(value, "capacity.requests"),
                    _ => within(value, &name),
                };
                let is_empty = value.is_null()
                    || value.as_object().is_some_and(Map::is_empty)
                    || value.as_array().is_some_and(Vec::is_empty);
                if !is_empty {
                    out.insert(name, value);
                }
            }
            if out.is_empty() { Value::Null } else { Value::Object(out) }
        }
        Value::Array(list) => {
            let mut list: Vec<Value> = list.into_iter().map(|value| within(value, key)).collect();
            if key == "reasons" {
                list.sort_by_key(Value::to_string);
            }
            Value::Array(list)
        }
        other => other,
    }
}

fn quantity(text: &str) -> String {
    Amount::parse(text).map_or(text.to_owned(), |amount| amount.quantity().to_string())
}

/// Returns a line about a chosen device, with canonical quantities.
pub(super) fn line(line: &str) -> Value {
    let Some((head, amounts)) = line.split_once(" shared") else { return json!(line) };
    let amounts = amounts.trim().split(',').filter(|text| !text.is_empty());
    let mut amounts: Vec<String> = amounts
        .map(|text| match text.split_once('=') {
            Some((name, amount)) => format!("{name}={}", quantity(amount)),
            None => text.to_owned(),
        })
        .collect();
    amounts.sort();
    json!(format!("{head} shared {}", amounts.join(",")))
}

/// Remembers which share of the vectors is which share here.
pub(super) fn learn_shares(expected: &Value, found: &Value, shares: &mut HashMap<String, String>) {
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => {
            for (name, value) in expected {
                let Some(other) = found.get(name) else { continue };
                match (&**name, value.as_str(), other.as_str()) {
                    ("shareID", Some(theirs), Some(own)) => {
                        shares.insert(theirs.to_owned(), own.to_owned());
                    }
                    _ => learn_shares(value, other, shares),
                }
            }
        }
        (Value::Array(expected), Value::Array(found)) => {
            expected.iter().zip(found).for_each(|(a, b)| learn_shares(a, b, shares));
        }
        _ => {}
    }
}

/// Replaces the shares of the vectors by those here.
pub(super) fn rename_shares(value: &mut Value, shares: &HashMap<String, String>) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                match (&**name, value.as_str().and_then(|text| shares.get(text))) {
                    ("shareID", Some(own)) => *value = json!(own),
                    _ => rename_shares(value, shares),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|value| rename_shares(value, shares)),
        _ => {}
    }
}
