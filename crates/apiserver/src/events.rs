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
