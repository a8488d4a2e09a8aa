//! Failures of nodes in random clusters have the outcome of clusters without the nodes.

use std::collections::{BTreeMap, BTreeSet};

use clap::Parser;
use portolan::model::Name;
use serde_json::{Value, json};

use super::answer::Answer;
use super::difference::{Row, own};
use super::question::answer;
use super::tests::{Question, file};

const SLOTS: usize = 4;

/// A node with room for [`SLOTS`] pods.
fn node(n: usize) -> Value {
    let resources = json!({ "cpu": SLOTS.to_string(), "memory": "9Gi", "pods": "20" });
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": format!("n{n}"),
            "labels": {
                "kubernetes.io/hostname": format!("n{n}"),
                "topology.kubernetes.io/zone": format!("z{}", n % 3),
            },
        },
        "status": { "capacity": resources, "allocatable": resources },
    })
}

/// A pod of the controller `KIND/NAME`, which tolerates the failure for so long.
fn pod(name: &str, on: &str, owner: &str, seconds: Option<u32>, spec: &Value) -> Value {
    let (kind, of) = owner.split_once('/').unwrap_or_default();
    let cpu = if kind == "DaemonSet" { "0" } else { "1" };
    let toleration = json!({
        "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute",
    });
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": "d", "uid": name, "labels": { "app": of } },
        "spec": spec,
    });
    pod["spec"]["containers"] =
        json!([{ "name": "c", "image": "i", "resources": { "requests": { "cpu": cpu } } }]);
    pod["spec"]["nodeName"] = json!(on);
    pod["spec"]["tolerations"] = json!([toleration]);
    if let Some(seconds) = seconds {
        pod["spec"]["tolerations"][0]["tolerationSeconds"] = json!(seconds);
    }
    if !owner.is_empty() {
        pod["metadata"]["ownerReferences"] = json!([
            { "apiVersion": "apps/v1", "kind": kind, "name": of, "uid": of, "controller": true }
        ]);
    }
    pod
}

struct Random {
    nodes: Vec<Value>,
    /// The pods, with the moments at which they are replaced.
    pods: Vec<(u32, Value)>,
}

/// When the Node is deleted.
const LAST: u32 = u32::MAX;

/// Nodes and pods. The pods of a controller are pinned to a zone, or spread over zones with room for all, so that their
/// numbers do not depend on choices between nodes.
fn random(seed: u64) -> Random {
    let mut random = fastrand::Rng::with_seed(seed);
    let is_spread = seed.is_multiple_of(2);
    let nodes = random.usize(4..9);
    let mut free = vec![if is_spread { 1 } else { SLOTS }; nodes];
    let mut pods = Vec::new();
    for n in 0..nodes {
        pods.push((
            0,
            pod(&format!("agent-{n}"), &format!("n{n}"), "DaemonSet/agent", None, &json!({})),
        ));
    }
    for n in 0..random.usize(4..nodes * SLOTS) {
        let zone = random.usize(0..3);
        let at = (zone..nodes).step_by(3).find(|at| free[*at] > 0);
        let Some(at) = at else { continue };
        free[at] -= 1;
        let (kind, seconds) = match random.u32(0..8) {
            0 => ("StatefulSet", Some(300)),
            1 => ("ReplicaSet", None),
            2 => ("", Some(300)),
            _ => ("ReplicaSet", Some(random.u32(0..3) * 100)),
        };
        let owner = match (kind, is_spread) {
            ("", _) => String::new(),
            (_, true) => format!("{kind}/spread"),
            _ => format!("{kind}/{}{zone}", ["a", "b"][random.usize(0..2)]),
        };
        let spec = match is_spread {
            true => json!({ "topologySpreadConstraints": [{
                "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": { "matchLabels": { "app": "spread" } },
            }] }),
            false => {
                json!({ "nodeSelector": { "topology.kubernetes.io/zone": format!("z{zone}") } })
            }
        };
        let moment = match kind {
            "StatefulSet" => LAST,
            _ => seconds.unwrap_or(LAST),
        };
        pods.push((moment, pod(&format!("p{n:02}"), &format!("n{at}"), &owner, seconds, &spec)));
    }
    Random { nodes: (0..nodes).map(node).collect(), pods }
}

fn ask(question: &[&str]) -> Answer {
    let question = ["x", "--cluster"].iter().chain(question).map(|text| (*text).to_owned());
    answer(&Question::parse_from(question).arguments).expect("an answer").0
}

/// The numbers of pods by controller.
fn counts(rows: &[Row]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for row in own(rows) {
        let owner = row.pod.template.controller();
        let owner = owner.map(|it| format!("{}/{}", it.kind, it.name)).unwrap_or_default();
        *counts.entry(owner).or_default() += 1;
    }
    counts
}

fn keys(rows: &[Row]) -> BTreeSet<Name> {
    own(rows).map(|row| row.pod.key()).collect()
}

#[test]
fn a_failure_ends_like_a_cluster_without_the_node() {
    let (mut placed, mut unplaced, mut waited) = (0, 0, 0);
    for seed in 0..40 {
        let Random { nodes, pods } = random(seed);
        let only = |pods: Vec<&Value>| pods.into_iter().cloned().collect::<Vec<Value>>();
        let all: Vec<Value> =
            [nodes.clone(), only(pods.iter().map(|(_, pod)| pod).collect())].concat();
        let cluster = file(&format!("failing-{seed}.json"), &all).display().to_string();
        let failed = ask(&[&cluster, "--fail-node", "n0"]);

        let is_there = |pod: &Value| pod["spec"]["nodeName"] == "n0";
        let stay = pods.iter().map(|(_, pod)| pod).filter(|pod| !is_there(pod)).collect();
        let without = [nodes[1..].to_vec(), only(stay)].concat();
        // Daemon set pods end with the node, and pods without a controller are lost.
        let is_replaced = |pod: &Value| {
            let kind = &pod["metadata"]["ownerReferences"][0]["kind"];
            is_there(pod) && !kind.is_null() && kind != "DaemonSet"
        };
        let replaced = pods.iter().filter(|(_, pod)| is_replaced(pod));
        let mut moved: Vec<(u32, Value)> = replaced.cloned().collect();
        moved.sort_by_key(|(moment, pod)| (*moment, pod["metadata"]["name"].to_string()));
        let moved: Vec<Value> = moved
            .into_iter()
            .map(|(_, mut pod)| {
                pod["spec"].as_object_mut().expect("a spec").remove("nodeName");
                pod
            })
            .collect();
        let without = file(&format!("without-{seed}.json"), &without).display().to_string();
        let moved = file(&format!("replaced-{seed}.json"), &moved).display().to_string();
        let fresh = ask(&[&without, "--pods", &moved]);

        let of = |answer: &Answer| {
            let last = answer.last();
            (counts(&last.placed), counts(&last.unplaced))
        };
        assert_eq!(of(&failed), of(&fresh), "seed {seed}");
        let bare = pods
            .iter()
            .filter(|(_, pod)| is_there(pod) && !pod["metadata"]["ownerReferences"].is_array());
        assert_eq!(own(&failed.last().lost).count(), bare.count(), "seed {seed}");
        placed += of(&fresh).0.values().sum::<usize>();
        unplaced += of(&fresh).1.values().sum::<usize>();
        waited += failed.waiting().len();
    }
    assert!(placed > 30 && unplaced > 5 && waited > 10, "{placed} {unplaced} {waited}");
}

#[test]
fn each_failure_is_that_of_the_node_alone() {
    let (mut harmed, mut lost) = (0, 0);
    for seed in 0..12 {
        let Random { nodes, pods } = random(seed);
        let pods: Vec<Value> = pods.into_iter().map(|(_, pod)| pod).collect();
        let cluster = file(&format!("each-{seed}.json"), &[nodes.clone(), pods].concat());
        let cluster = cluster.display().to_string();
        let each = ask(&[&cluster, "--each", "node"]).each.expect("failures");
        assert_eq!(each.failures.len(), nodes.len());
        for harm in each.failures {
            let alone = ask(&[&cluster, "--fail-node", &harm.name]);
            let last = alone.last();
            let found = (keys(&alone.now.unplaced), keys(&last.unplaced), keys(&last.lost));
            harmed += found.0.len() + found.1.len();
            lost += found.2.len();
            assert_eq!((harm.during, harm.after, harm.lost), found, "seed {seed}: {}", harm.name);
        }
    }
    assert!(harmed > 20 && lost > 5, "{harmed} {lost}");
}
