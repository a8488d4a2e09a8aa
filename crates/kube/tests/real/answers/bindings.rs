//! Bindings and their conflicts.

use serde_json::{Value, json};

use super::{binding, node, pod};
use crate::script::{Script, uid, version};

pub(super) fn run(to: &mut Script) {
    let pods = to.path("pods");
    for name in ["bindings-1", "bindings-2"] {
        let mut node = node(name);
        node["metadata"]["labels"] = json!({"topology.kubernetes.io/zone": "z", "other": "label"});
        to.prepare("/api/v1/nodes", &node);
    }
    let bind = |to: &mut Script, pod: &Value, uid: &str, node: &str| {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let path = format!("{}/{name}", to.path("pods"));
        to.post(&format!("{path}/binding"), &binding(pod, uid, node));
        to.get(&path)
    };

    let first = to.post(&pods, &pod("first"));
    bind(to, &first, uid(&first), "bindings-1");
    bind(to, &first, uid(&first), "bindings-1");
    bind(to, &first, uid(&first), "bindings-2");
    bind(to, &first, "00000000-0000-0000-0000-000000000000", "bindings-1");

    let second = to.post(&pods, &pod("second"));
    bind(to, &second, "00000000-0000-0000-0000-000000000000", "bindings-1");
    bind(to, &second, "", "nowhere");

    // Labels, annotations and the version of a Binding, and targets that it must not have.
    let third = to.post(&pods, &pod("third"));
    let path = format!("{pods}/third/binding");
    let mut rich = binding(&third, uid(&third), "bindings-1");
    rich["metadata"]["resourceVersion"] = json!("1");
    to.post(&path, &rich);
    rich["metadata"]["resourceVersion"] = json!(version(&third));
    rich["metadata"]["labels"] = json!({"of": "binding"});
    rich["metadata"]["annotations"] = json!({"by": "scheduler"});
    let mut wrong = rich.clone();
    wrong["target"] = json!({"kind": "Pod", "name": "bindings-1"});
    to.post(&path, &wrong);
    wrong["target"] = json!({"kind": "Node"});
    to.post(&path, &wrong);
    let mut wrong = rich.clone();
    wrong["metadata"]["name"] = json!("other");
    to.post(&path, &wrong);
    wrong["metadata"]["name"] = json!("third");
    wrong["metadata"]["namespace"] = json!("default");
    to.post(&path, &wrong);
    to.post(&path, &rich);
    to.get(&format!("{pods}/third"));

    // A nomination ends with the binding.
    let nominated = to.post(&pods, &pod("nominated"));
    let conditions = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/2 nodes are available", "lastProbeTime": null,
        "lastTransitionTime": "2026-11-22T18:57:01Z"}]);
    let status = json!({"status": {"nominatedNodeName": "bindings-2", "conditions": conditions}});
    to.patch(&format!("{pods}/nominated/status"), &status);
    bind(to, &nominated, uid(&nominated), "bindings-2");

    let mut gated = pod("gated");
    gated["spec"]["schedulingGates"] = json!([{"name": "example.com/wait"}]);
    let gated = to.post(&pods, &gated);
    bind(to, &gated, uid(&gated), "bindings-1");

    let mut terminating = pod("terminating");
    terminating["metadata"]["finalizers"] = json!(["example.com/hold"]);
    let terminating = to.post(&pods, &terminating);
    to.delete(&format!("{pods}/terminating"), &Value::Null);
    bind(to, &terminating, uid(&terminating), "bindings-1");

    let gone = to.post(&pods, &pod("gone"));
    to.delete(&format!("{pods}/gone"), &Value::Null);
    bind(to, &gone, uid(&gone), "bindings-1");
    // Another pod of the name.
    to.post(&pods, &pod("gone"));
    bind(to, &gone, uid(&gone), "bindings-1");

    // A pod that is created on a node.
    let mut placed = pod("placed");
    placed["spec"]["nodeName"] = json!("bindings-2");
    let placed = to.post(&pods, &placed);
    bind(to, &placed, uid(&placed), "bindings-1");

    // A binding as an object of the namespace.
    to.prepare("/api/v1/nodes", &node("bindings-3"));
    let last = to.post(&pods, &pod("last"));
    let collection = to.path("bindings");
    to.post(&collection, &binding(&last, uid(&last), "bindings-3"));
    to.get(&format!("{pods}/last"));
    let mut no_such_namespace = binding(&last, uid(&last), "bindings-1");
    no_such_namespace["metadata"]["namespace"] = json!("nowhere");
    to.post("/api/v1/namespaces/nowhere/pods/last/binding", &no_such_namespace);
}
