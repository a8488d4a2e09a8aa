//! Deletions with preconditions, of pods with and without a node.

use serde_json::{Value, json};

use super::{binding, node, pod};
use crate::script::{Script, uid};

fn only(uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}})
}

pub(super) fn run(to: &mut Script) {
    let pods = to.path("pods");
    to.prepare("/api/v1/nodes", &node("deletions-1"));
    let other = "00000000-0000-0000-0000-000000000000";

    // A pod without a node is removed at once.
    let pending = to.post(&pods, &pod("pending"));
    let path = format!("{pods}/pending");
    to.delete(&path, &only(other));
    to.delete(&path, &only(uid(&pending)));
    to.delete(&path, &only(uid(&pending)));
    to.get(&path);

    let bound = |to: &mut Script, name: &str, change: &dyn Fn(&mut Value)| {
        let mut object = pod(name);
        change(&mut object);
        let created = to.post(&to.path("pods"), &object);
        let path = format!("{}/{name}/binding", to.path("pods"));
        to.post(&path, &binding(&created, uid(&created), "deletions-1"));
        let bound = to.get(&format!("{}/{name}", to.path("pods")));
        to.catch_up(&bound);
        created
    };
    // A pod on a node gets its grace period, which a later deletion may shorten.
    let graceful = bound(to, "graceful", &|_| {});
    let path = format!("{pods}/graceful");
    to.delete(&path, &only(other));
    to.delete(&path, &only(uid(&graceful)));
    to.get(&path);
    to.delete(&path, &only(uid(&graceful)));
    to.delete(&path, &json!({"gracePeriodSeconds": 40}));
    to.delete(&path, &json!({"gracePeriodSeconds": 5}));
    to.get(&path);
    to.patch(&format!("{path}/status"), &json!({"status": {"nominatedNodeName": "deletions-1"}}));
    to.delete(&path, &json!({"gracePeriodSeconds": 0}));
    to.get(&path);

    // A grace period in the pod, and one in the query.
    bound(to, "brief", &|pod| pod["spec"]["terminationGracePeriodSeconds"] = json!(3));
    to.delete(&format!("{pods}/brief"), &Value::Null);
    bound(to, "asked", &|_| {});
    to.delete(&format!("{pods}/asked?gracePeriodSeconds=7"), &Value::Null);
    bound(to, "none", &|pod| pod["spec"]["terminationGracePeriodSeconds"] = json!(0));
    to.delete(&format!("{pods}/none"), &Value::Null);
    to.get(&format!("{pods}/none"));
    // A pod that has ended needs no grace period.
    bound(to, "ended", &|_| {});
    let ended =
        to.patch(&format!("{pods}/ended/status"), &json!({"status": {"phase": "Succeeded"}}));
    to.catch_up(&ended);
    to.delete(&format!("{pods}/ended"), &Value::Null);
    to.get(&format!("{pods}/ended"));

    // Finalizers keep a pod without a grace period.
    let mut held = pod("held");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    to.post(&pods, &held);
    to.delete(&format!("{pods}/held"), &Value::Null);
    to.delete(&format!("{pods}/held"), &Value::Null);
    to.merge(
        &format!("{pods}/held"),
        &json!({"metadata": {"finalizers": ["example.com/hold", "example.com/new"]}}),
    );
    to.merge(&format!("{pods}/held"), &json!({"metadata": {"finalizers": null}}));
    to.get(&format!("{pods}/held"));

    to.delete(&format!("{pods}/missing"), &only(other));
    let kept = to.post(&pods, &pod("versioned"));
    let stale = json!({"preconditions": {"uid": uid(&kept), "resourceVersion": "1"}});
    to.delete(&format!("{pods}/versioned"), &stale);
    to.delete(&format!("{pods}/versioned"), &json!({"gracePeriodSeconds": "soon"}));

    // Kinds without a grace period.
    to.delete("/api/v1/nodes/deletions-1", &Value::Null);
    to.delete("/api/v1/nodes/deletions-1", &Value::Null);
    let configmap = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
    let configmaps = to.path("configmaps");
    to.post(&configmaps, &configmap);
    to.delete(&format!("{configmaps}/c"), &Value::Null);
}
