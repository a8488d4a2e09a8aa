//! Events of events.k8s.io: creation, series and validation.

use serde_json::{Value, json};

use crate::script::Script;

fn event(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "eventTime": "2026-11-22T18:57:01.123456Z",
        "reportingController": "default-scheduler", "reportingInstance": "default-scheduler-host",
        "action": "Scheduling", "reason": "FailedScheduling", "type": "Warning",
        "note": "0/1 nodes are available",
        "regarding": {"kind": "Pod", "namespace": namespace, "name": "a", "apiVersion": "v1",
            "uid": "11111111-1111-1111-1111-111111111111", "resourceVersion": "7"},
    })
}

pub(super) fn run(to: &mut Script) {
    let events = to.path("events.k8s.io/v1/events");
    let namespace = to.namespace;
    to.post(&events, &event(namespace, "a.1"));
    to.post(&events, &event(namespace, "a.1"));
    to.get(&format!("{events}/a.1"));
    to.get(&format!("{}/a.1", to.path("events")));

    // A series, as client-go's recorder patches it: a strategic merge patch.
    let series = |count: u32| json!({"series": {"count": count, "lastObservedTime": "2026-11-22T18:58:01.123456Z"}});
    to.patch(&format!("{events}/a.1"), &series(2));
    to.patch(&format!("{events}/a.1"), &series(3));
    to.merge(&format!("{events}/a.1"), &series(4));
    to.merge(&format!("{events}/a.1"), &json!({"note": "another"}));
    to.patch(&format!("{events}/missing"), &series(2));
    to.patch(&format!("{events}/a.1"), &json!({"series": {"count": 1, "lastObservedTime": null}}));

    // Fields that validation refuses.
    let refused = |to: &mut Script, name: &str, field: &str, value: Value| {
        let mut event = event(namespace, name);
        event[field] = value;
        to.post(&events, &event);
    };
    refused(to, "b.1", "eventTime", Value::Null);
    refused(to, "b.2", "reportingController", json!(""));
    refused(to, "b.3", "reportingController", json!("not a name"));
    refused(to, "b.4", "reportingInstance", json!(""));
    refused(to, "b.5", "reportingInstance", json!("x".repeat(129)));
    refused(to, "b.6", "action", json!(""));
    refused(to, "b.7", "action", json!("x".repeat(129)));
    refused(to, "b.8", "reason", json!(""));
    refused(to, "b.9", "reason", json!("x".repeat(129)));
    refused(to, "b.10", "note", json!("x".repeat(1025)));
    refused(to, "b.11", "note", json!("é".repeat(512)));
    refused(to, "b.12", "type", json!("Fatal"));
    refused(to, "b.13", "type", json!(""));
    refused(to, "b.14", "deprecatedCount", json!(1));
    refused(
        to,
        "b.15",
        "series",
        json!({"count": 1, "lastObservedTime": "2026-11-22T18:58:01.123456Z"}),
    );
    refused(to, "b.16", "series", json!({"count": 2}));
    refused(to, "b.17", "regarding", json!({"kind": "Pod", "namespace": "default", "name": "a"}));
    refused(to, "b.18", "regarding", json!({"kind": "Node", "name": "n1"}));
    refused(to, "b.19", "related", json!({"kind": "Node", "name": "n1"}));
    refused(to, "B.20", "note", json!("an invalid name"));
    refused(to, "b.21", "eventTime", json!("yesterday"));

    // Other namespaces: one that differs from the path's, one that does not exist, one that is terminating.
    to.post("/apis/events.k8s.io/v1/namespaces/default/events", &event(namespace, "c.1"));
    to.post("/apis/events.k8s.io/v1/namespaces/nowhere/events", &event("nowhere", "c.2"));
    let ends =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "events-ends"}});
    to.post("/api/v1/namespaces", &ends);
    to.post("/apis/events.k8s.io/v1/namespaces/events-ends/events", &event("events-ends", "c.3"));
    to.delete("/api/v1/namespaces/events-ends", &Value::Null);
    to.get("/api/v1/namespaces/events-ends");
    to.post("/apis/events.k8s.io/v1/namespaces/events-ends/events", &event("events-ends", "c.4"));
    to.patch("/apis/events.k8s.io/v1/namespaces/events-ends/events/c.3", &series(2));
    to.post("/api/v1/namespaces/events-ends/pods", &super::pod("late"));
    to.delete("/api/v1/namespaces/events-ends", &Value::Null);
}
