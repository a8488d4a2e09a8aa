//! `portolan what-if`: failures of nodes and zones, at both moments and each in turn.

use crate::common::{file, portolan};
use serde_json::{Value, json};

fn node(name: &str, zone: &str) -> Value {
    let resources = json!({ "cpu": "1", "memory": "4Gi", "pods": "10" });
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "labels": {
            "kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone,
        } },
        "status": { "capacity": resources, "allocatable": resources },
    })
}

fn pod(name: &str, on: &str, cpu: &str, kind: &str) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": "d", "uid": name, "labels": { "app": name } },
        "spec": { "nodeName": on, "containers": [
            { "name": "c", "image": "i", "resources": { "requests": { "cpu": cpu } } }
        ] },
    });
    if !kind.is_empty() {
        pod["metadata"]["ownerReferences"] = json!([
            { "apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "u", "controller": true }
        ]);
    }
    pod
}

fn cluster(name: &str, items: &[Value]) -> String {
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": items });
    file(&format!("failures-{name}"), "cluster.json", list.to_string().as_bytes())
}

fn ask(arguments: &[&str]) -> (i32, Value) {
    let all: Vec<&str> =
        ["what-if", "--output", "json", "-f"].iter().chain(arguments).copied().collect();
    let run = portolan(&all);
    let answer = serde_json::from_str(&run.out)
        .unwrap_or_else(|error| panic!("{error}: {}{}", run.out, run.err));
    (run.code, answer)
}

fn first_line(arguments: &[&str]) -> (i32, String) {
    let run = portolan(&[&["what-if", "-f"], arguments].concat());
    (run.code, run.out.lines().next().unwrap_or_default().to_owned())
}

#[test]
fn a_deleted_pod_counts_for_anti_affinity_until_its_node_is_deleted() {
    let mut web = pod("web", "n0", "100m", "ReplicaSet");
    web["spec"]["affinity"] = json!({ "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [{
            "labelSelector": { "matchLabels": { "app": "web" } },
            "topologyKey": "topology.kubernetes.io/zone",
        }],
    } });
    let from = cluster("terminating", &[node("n0", "z"), node("n1", "z"), web]);
    let (code, answer) = ask(&[&from, "--fail-node", "n0"]);
    assert_eq!((code, &answer["waiting"][0]["pod"]), (1, &json!("d/web")), "{answer}");
    let why = answer["waiting"][0]["why"].as_str().expect("a reason");
    assert!(why.contains("1 node(s) didn't match pod anti-affinity rules"), "{why}");
    assert_eq!(answer["placed"], json!([{ "pod": "d/web", "from": "n0", "to": "n1" }]));
}

#[test]
fn pods_that_are_placed_on_a_failed_node_do_not_run() {
    let mut web = pod("web", "n0", "300m", "ReplicaSet");
    web["spec"]["tolerations"] = json!([
        { "operator": "Exists", "effect": "NoSchedule" },
        { "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute",
          "tolerationSeconds": 30 },
    ]);
    let term = json!({ "matchExpressions": [
        { "key": "kubernetes.io/hostname", "operator": "In", "values": ["n0"] },
    ] });
    web["spec"]["affinity"] = json!({ "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": 100, "preference": term }],
    } });
    let mut all = pod("all", "n0", "100m", "ReplicaSet");
    all["spec"]["tolerations"] = json!([{ "operator": "Exists" }]);
    let from = cluster("placed", &[node("n0", "z"), node("n1", "z"), web, all]);
    let (code, answer) = ask(&[&from, "--fail-node", "n0"]);
    assert_eq!(code, 1, "{answer}");
    for list in ["waiting", "placed"] {
        let rows = answer[list].as_array().expect("a list").iter();
        let mut pods: Vec<&str> = rows.filter_map(|row| row["pod"].as_str()).collect();
        pods.sort_unstable();
        assert_eq!(pods, ["d/all", "d/web"], "{list}: {answer}");
    }
}

#[test]
fn each_node_fails_in_turn_and_the_worst_is_first() {
    let items = [
        node("n0", "z0"),
        node("n1", "z0"),
        node("n2", "z1"),
        pod("a", "n0", "600m", "ReplicaSet"),
        pod("b", "n1", "300m", "ReplicaSet"),
        pod("c", "n1", "300m", "StatefulSet"),
        pod("d", "n2", "300m", "ReplicaSet"),
    ];
    let from = cluster("each", &items);
    let (code, answer) = ask(&[&from, "--each", "node"]);
    let row = |name: &str, pods: &[&str], after: &[&str]| json!({ "name": name, "nodes": [name], "during": pods, "after": after, "lost": [] });
    let rows = json!([row("n1", &["d/c"], &[]), row("n0", &[], &[]), row("n2", &[], &[])]);
    assert_eq!((code, &answer["each"]["failures"]), (1, &rows), "{answer}");
    let line = "2 of 3 nodes can fail without an unschedulable pod; worst: n1: 1 pod";
    assert_eq!(first_line(&[&from, "--each", "node"]), (1, line.to_owned()));
    let line = "1 of 2 zones can fail without an unschedulable pod; worst: z0: 2 pods";
    assert_eq!(first_line(&[&from, "--each", "zone"]), (1, line.to_owned()));
    // Other changes come first, and the failures do not affect each other.
    let scaled = [&*from, "--each", "node", "--remove", "sts/c"];
    let line = "3 of 3 nodes can fail without an unschedulable pod";
    assert_eq!(first_line(&scaled), (0, line.to_owned()));
}

#[test]
fn failures_that_lose_pods_do_harm_unless_it_is_accepted() {
    let mut alone = node("n1", "z");
    alone["metadata"]["labels"]
        .as_object_mut()
        .expect("labels")
        .remove("topology.kubernetes.io/zone");
    let from = cluster("each-lost", &[node("n0", "z"), alone.clone(), pod("bare", "n0", "1m", "")]);
    let line = "1 of 2 nodes can fail without an unschedulable or lost pod; worst: n0: 1 pod";
    assert_eq!(first_line(&[&from, "--each", "node"]), (1, line.to_owned()));
    let line = "2 of 2 nodes can fail without an unschedulable pod";
    assert_eq!(first_line(&[&from, "--each", "node", "--force"]), (0, line.to_owned()));
    let line = "1 of 1 zone can fail without an unschedulable pod; 1 node is in no zone";
    assert_eq!(first_line(&[&from, "--each", "zone", "--force"]), (0, line.to_owned()));
    let from = cluster("each-no-zone", &[alone]);
    let run = portolan(&["what-if", "-f", &from, "--each", "zone"]);
    assert_eq!(run.code, 2, "{}", run.out);
    assert!(run.err.contains("no node has the label topology.kubernetes.io/zone"), "{}", run.err);
}
