//! The claims that controllers create with their pods: of stateful sets and of generic ephemeral volumes.

use crate::common::{file, portolan};
use serde_json::{Value, json};

fn node(name: &str, zone: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone } },
        "status": { "allocatable": { "cpu": "4", "memory": "16Gi", "pods": "110" } },
    })
}

/// A class whose volumes exist only in a zone.
fn class(name: &str, zone: &str, is_default: bool) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": { "name": name, "annotations": {
            "storageclass.kubernetes.io/is-default-class": is_default.to_string(),
        } },
        "provisioner": "example.com/disk", "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{ "matchLabelExpressions": [
            { "key": "topology.kubernetes.io/zone", "values": [zone] },
        ] }],
    })
}

fn claim_spec(class: Option<&str>) -> Value {
    let mut spec = json!({
        "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } },
    });
    if let Some(class) = class {
        spec["storageClassName"] = json!(class);
    }
    spec
}

fn with_ephemeral(class: Option<&str>) -> Value {
    json!({
        "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1" } } }],
        "volumes": [{ "name": "scratch", "ephemeral": {
            "volumeClaimTemplate": { "spec": claim_spec(class) },
        } }],
    })
}

fn pod(name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "d" }, "spec": spec })
}

fn ask(test: &str, cluster: &[Value], more: &[&str]) -> (i32, Value) {
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": cluster });
    let cluster = file(&format!("claims-{test}"), "cluster.json", list.to_string().as_bytes());
    let run = portolan(&[&["what-if", "-o", "json", "-f", &cluster], more].concat());
    let found = serde_json::from_str(&run.out)
        .unwrap_or_else(|error| panic!("{error}: {}{}", run.out, run.err));
    (run.code, found)
}

fn pods(test: &str, pods: &[Value]) -> String {
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": pods });
    file(&format!("claims-{test}"), "pods.json", list.to_string().as_bytes())
}

#[test]
fn claims_of_ephemeral_volumes_are_created_with_their_pods() {
    let cluster =
        [node("a", "z1"), node("b", "z2"), class("fast", "z1", false), class("usual", "z2", true)];
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web", "namespace": "d" },
        "spec": {
            "replicas": 2, "selector": { "matchLabels": { "app": "web" } },
            "template": { "metadata": { "labels": { "app": "web" } }, "spec": with_ephemeral(Some("fast")) },
        },
    });
    let all = pods("pods", &[pod("one", with_ephemeral(None)), deployment]);
    let (code, found) = ask("pods", &cluster, &["--pods", &all]);
    assert_eq!(code, 0, "{found:#}");
    let mut placed: Vec<(&str, &str)> = found["placed"]
        .as_array()
        .unwrap()
        .iter()
        .map(|placed| (placed["pod"].as_str().unwrap(), placed["to"].as_str().unwrap()))
        .collect();
    placed.sort_unstable();
    // The default class has volumes in zone z2 alone.
    assert_eq!(placed, [("d/one", "b"), ("d/web-0", "a"), ("d/web-1", "a")]);
    // A claim of this name that the pod does not own belongs to somebody else.
    let mut foreign = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": "one-scratch", "namespace": "d" },
    });
    foreign["spec"] = claim_spec(Some("usual"));
    let one = pods("foreign", &[pod("one", with_ephemeral(None))]);
    let (code, found) = ask("foreign", &[&cluster[..], &[foreign]].concat(), &["--pods", &one]);
    assert_eq!(code, 1);
    let why = found["unplaced"][0]["why"].as_str().unwrap();
    assert!(why.contains("was not created for pod"), "{why}");
    // A missing class is named.
    let missing = pods("missing", &[pod("one", with_ephemeral(Some("none")))]);
    let (code, found) = ask("missing", &cluster, &["--pods", &missing]);
    assert_eq!(code, 1, "{found:#}");
    let warning = found["input"]["warnings"][0].to_string();
    assert!(warning.contains("StorageClass \\\"none\\\" is not in the input"), "{warning}");
}

#[test]
fn a_stateful_set_that_grows_gets_claims() {
    let spec = json!({
        "replicas": 1, "serviceName": "db", "selector": { "matchLabels": { "app": "db" } },
        "template": {
            "metadata": { "labels": { "app": "db" } },
            "spec": { "containers": [{ "name": "c", "volumeMounts": [{ "name": "data", "mountPath": "/d" }] }] },
        },
        "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": claim_spec(Some("fast")) }],
    });
    let set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": { "name": "db", "namespace": "d", "uid": "s" }, "spec": spec,
    });
    let mut claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "data-db-0", "namespace": "d",
            "annotations": { "pv.kubernetes.io/bind-completed": "yes" },
        },
    });
    claim["spec"] = claim_spec(Some("fast"));
    claim["spec"]["volumeName"] = json!("pv0");
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "pv0" },
        "spec": {
            "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
            "csi": { "driver": "example.com/disk", "volumeHandle": "h" },
            "claimRef": { "namespace": "d", "name": "data-db-0" },
        },
    });
    let db0 = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "db-0", "namespace": "d", "uid": "p0", "labels": { "app": "db" },
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "s", "controller": true }],
        },
        "spec": { "nodeName": "b", "containers": [{ "name": "c" }], "volumes": [
            { "name": "data", "persistentVolumeClaim": { "claimName": "data-db-0" } },
        ] },
    });
    let without =
        [node("a", "z1"), node("b", "z2"), class("fast", "z1", false), claim, volume, db0];
    let with = [&without[..], &[set]].concat();
    let mut immediate = with.clone();
    immediate[2]["volumeBindingMode"] = json!("Immediate");
    for (test, cluster) in
        [("set", &with[..]), ("no-set", &without[..]), ("immediate", &immediate[..])]
    {
        let (code, found) = ask(test, cluster, &["--scale", "sts/db=3"]);
        assert_eq!(code, 0, "{test}: {found:#}");
        // The new claims are not bound, so their class decides.
        let to: Vec<&str> = found["placed"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["to"].as_str().unwrap())
            .collect();
        assert_eq!(to, ["a", "a"], "{test}: {found:#}");
    }
    // The claim of a pod that the set had before is used again, with its volume.
    let mut again = with.clone();
    let mut claim = again[3].clone();
    claim["metadata"]["name"] = json!("data-db-1");
    claim["spec"]["volumeName"] = json!("pv1");
    let mut volume = again[4].clone();
    volume["metadata"]["name"] = json!("pv1");
    volume["spec"]["claimRef"]["name"] = json!("data-db-1");
    volume["spec"]["nodeAffinity"] = json!({ "required": { "nodeSelectorTerms": [{ "matchExpressions": [
        { "key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z2"] },
    ] }] } });
    again.extend([claim, volume]);
    let (code, found) = ask("again", &again, &["--scale", "sts/db=2"]);
    assert_eq!((code, &found["placed"][0]["to"]), (0, &json!("b")), "{found:#}");
}
