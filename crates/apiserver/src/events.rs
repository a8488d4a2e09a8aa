//! Core events and those of events.k8s.io are the same objects with different field names. The server stores the
//! latter.

use serde_json::{Value, json};

/// The names of a field in `v1` and in `events.k8s.io/v1`.
const NAMES: [(&str, &str); 8] = [
    ("count", "deprecatedCount"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("involvedObject", "regarding"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("reportingInstance", "reportingInstance"),
];

/// Turns a core event into the stored form.
pub(crate) fn to_stored(event: &mut Value) {
    rename(event, |(core, stored)| (core, stored));
}

/// Turns a stored event into the core form.
pub(crate) fn to_core(event: &mut Value) {
    rename(event, |(core, stored)| (stored, core));
    // Core events always have these.
    if let Some(event) = event.as_object_mut() {
        for field in ["reportingComponent", "reportingInstance"] {
            event.entry(field).or_insert_with(|| json!(""));
        }
    }
}

/// Returns what events.k8s.io/v1 refuses in a new event, or in the change of one (kube-apiserver
/// core/validation/events.go).
pub(crate) fn invalid(old: Option<&Value>, event: &Value) -> Vec<(&'static str, String)> {
    let text = |field: &str| event[field].as_str().unwrap_or_default();
    let mut wrong = Vec::new();
    let mut refuse = |field: &'static str, why: &str| {
        let why = match why {
            "" => "Required value".to_owned(),
            why => format!("Invalid value: \"\": {why}"),
        };
        wrong.push((field, why));
    };
    if text("eventTime").is_empty() {
        // An event of the former API, or one that lacks its time.
        if old.is_none() {
            refuse("eventTime", "");
        }
    } else {
        let namespace = event["metadata"]["namespace"].as_str().unwrap_or_default();
        let is_free = ["default", "kube-system"].contains(&namespace);
        if event["regarding"]["namespace"].as_str().is_none_or(str::is_empty) && !is_free {
            refuse("involvedObject.namespace", "does not match event.namespace");
        }
        for (field, shown, longest) in [
            ("reportingInstance", "reportingInstance", 128),
            ("action", "action", 128),
            ("reason", "reason", 128),
            ("note", "message", 1024),
        ] {
            if text(field).is_empty() && field != "note" {
                refuse(shown, "");
            }
            if text(field).len() > longest {
                refuse(shown, &format!("can have at most {longest} characters"));
            }
        }
        if text("reportingController").is_empty() {
            refuse("reportingController", "");
        }
    }
    let series = |event: &Value| event["series"].clone();
    if !series(event).is_null() && old.map(series) != Some(series(event)) {
        if event["series"]["count"].as_i64().unwrap_or(0) < 2 {
            refuse("series.count", "should be at least 2");
        }
        if event["series"]["lastObservedTime"].is_null() {
            refuse("series.lastObservedTime", "");
        }
    }
    match old {
        None => {
            if !["Normal", "Warning"].contains(&text("type")) {
                refuse("type", &format!("has invalid value: {}", text("type")));
            }
            if event["deprecatedCount"].as_i64().unwrap_or(0) != 0 {
                refuse("count", "needs to be unset");
            }
        }
        Some(old) => {
            for (field, shown) in [
                ("reason", "reason"),
                ("note", "message"),
                ("type", "type"),
                ("action", "action"),
                ("reportingController", "reportingController"),
                ("reportingInstance", "reportingInstance"),
            ] {
                if old[field] != event[field] {
                    let why = format!("Invalid value: {}: field is immutable", event[field]);
                    wrong.push((shown, why));
                }
            }
        }
    }
    wrong
}

fn rename(
    event: &mut Value,
    names: impl Fn((&'static str, &'static str)) -> (&'static str, &'static str),
) {
    let Some(event) = event.as_object_mut() else { return };
    for (from, to) in NAMES.map(names) {
        if let Some(value) = event.remove(from) {
            event.insert(to.into(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_event_survives_the_stored_form() {
        let core = json!({"message": "m", "involvedObject": {"name": "p"}, "count": 2, "reason": "R",
            "reportingComponent": "c", "reportingInstance": "i"});
        let mut event = core.clone();
        to_stored(&mut event);
        assert_eq!(
            event,
            json!({"note": "m", "regarding": {"name": "p"}, "deprecatedCount": 2, "reason": "R",
                "reportingController": "c", "reportingInstance": "i"})
        );
        to_core(&mut event);
        assert_eq!(event, core);
    }
}
