//! The validation of events.k8s.io/v1 (kube-apiserver core/validation/events.go).

use serde_json::Value;

/// Returns what is refused in a new event, or in the change of one.
pub(crate) fn invalid(old: Option<&Value>, event: &Value) -> Vec<(&'static str, String)> {
    let text = |field: &str| event[field].as_str().unwrap_or_default();
    let mut wrong = Vec::new();
    if text("eventTime").is_empty() {
        // An event of the former API, or one that lacks its time.
        if old.is_none() {
            refuse(&mut wrong, "eventTime", "");
        }
    } else {
        let namespace = event["metadata"]["namespace"].as_str().unwrap_or_default();
        let is_free = ["default", "kube-system"].contains(&namespace);
        if event["regarding"]["namespace"].as_str().is_none_or(str::is_empty) && !is_free {
            refuse(&mut wrong, "involvedObject.namespace", "does not match event.namespace");
        }
        for (field, shown, longest) in [
            ("reportingInstance", "reportingInstance", 128),
            ("action", "action", 128),
            ("reason", "reason", 128),
            ("note", "message", 1024),
        ] {
            if text(field).is_empty() && field != "note" {
                refuse(&mut wrong, shown, "");
            }
            if text(field).len() > longest {
                refuse(&mut wrong, shown, &format!("can have at most {longest} characters"));
            }
        }
        let controller = text("reportingController");
        let is_name = |name: &str| {
            let is_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
            let is_inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            is_end(name.chars().next()) && is_end(name.chars().last()) && name.chars().all(is_inner)
        };
        if controller.is_empty() {
            refuse(&mut wrong, "reportingController", "");
            refuse(&mut wrong, "reportingController", "name part must be non-empty");
        }
        if !controller.split('/').all(is_name) {
            let form = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
                        with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
                        validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
            wrong.push(("reportingController", format!("Invalid value: {controller:?}: {form}")));
        }
    }
    let series = |event: &Value| event["series"].clone();
    if !series(event).is_null() && old.map(series) != Some(series(event)) {
        if event["series"]["count"].as_i64().unwrap_or(0) < 2 {
            refuse(&mut wrong, "series.count", "should be at least 2");
        }
        if event["series"]["lastObservedTime"].is_null() {
            refuse(&mut wrong, "series.lastObservedTime", "");
        }
    }
    match old {
        None => {
            if !["Normal", "Warning"].contains(&text("type")) {
                refuse(&mut wrong, "type", &format!("has invalid value: {}", text("type")));
            }
            if event["deprecatedCount"].as_i64().unwrap_or(0) != 0 {
                refuse(&mut wrong, "count", "needs to be unset");
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

/// Adds that a field is required, if the reason is empty, or else that its value, which is not quoted, is invalid.
fn refuse(wrong: &mut Vec<(&'static str, String)>, field: &'static str, why: &str) {
    let why = match why {
        "" => "Required value".to_owned(),
        why => format!("Invalid value: \"\": {why}"),
    };
    wrong.push((field, why));
}
