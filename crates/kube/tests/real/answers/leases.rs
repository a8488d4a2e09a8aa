//! The Lease of leader election.

use serde_json::{Value, json};

use crate::script::{Script, version};

fn lease(namespace: &str, holder: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "portolan", "namespace": namespace},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": 0,
            "acquireTime": "2026-11-22T18:57:01.000000Z", "renewTime": "2026-11-22T18:57:01.123456Z"},
    })
}

pub(super) fn run(to: &mut Script) {
    let namespace = to.namespace;
    let leases = to.path("coordination.k8s.io/v1/leases");
    let path = format!("{leases}/portolan");
    to.get(&path);
    let mut created = to.post(&leases, &lease(namespace, "a"));
    to.post(&leases, &lease(namespace, "b"));
    to.get(&path);

    let stale = created.clone();
    created["spec"]["renewTime"] = json!("2026-11-22T18:57:03.123456Z");
    let renewed = to.put(&path, &created);
    // The former version.
    let mut late = stale.clone();
    late["spec"]["holderIdentity"] = json!("b");
    to.put(&path, &late);
    // Without a version, or without a uid, or with another uid.
    let mut bare = lease(namespace, "b");
    to.put(&path, &bare);
    bare["metadata"]["resourceVersion"] = json!(version(&renewed));
    let renewed = to.put(&path, &bare);
    let mut other = renewed.clone();
    other["metadata"]["uid"] = json!("00000000-0000-0000-0000-000000000000");
    to.put(&path, &other);
    // Nothing changes.
    let same = to.put(&path, &renewed);
    assert_eq!(version(&same), version(&renewed));
    // A release, and fields that validation refuses.
    let change = |to: &mut Script, field: &str, value: Value| {
        let mut lease = to.get(&path);
        lease["spec"][field] = value;
        to.put(&path, &lease);
    };
    change(to, "holderIdentity", json!(""));
    change(to, "leaseDurationSeconds", json!(1));
    change(to, "leaseDurationSeconds", json!(0));
    change(to, "leaseTransitions", json!(-1));
    change(to, "leaseDurationSeconds", json!("15"));
    change(to, "renewTime", json!("2026-11-22T18:57:03Z"));
    change(to, "renewTime", json!("now"));

    let mut named = lease(namespace, "a");
    named["metadata"]["name"] = json!("other");
    to.put(&path, &named);
    // A PUT creates a Lease that does not exist, unless it names a version.
    to.put(&format!("{leases}/other"), &named);
    named["metadata"]["name"] = json!("third");
    named["metadata"]["resourceVersion"] = json!("1");
    to.put(&format!("{leases}/third"), &named);
    to.delete(&path, &Value::Null);
    to.put(&path, &renewed);
    to.post("/apis/coordination.k8s.io/v1/namespaces/nowhere/leases", &lease("nowhere", "a"));
}
