//! `portolan what-if --consolidate`: the nodes that can be removed together.

use std::collections::BTreeMap;

use crate::common::{file, portolan};
use serde_json::{Value, json};

fn node(name: &str, milli: u32, labels: Value) -> Value {
    let resources = json!({ "cpu": format!("{milli}m"), "memory": "64Gi", "pods": "110" });
    let mut node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } },
        "status": { "capacity": resources, "allocatable": resources },
    });
    let all = node["metadata"]["labels"].as_object_mut().expect("labels");
    all.extend(labels.as_object().expect("labels").clone());
    node
}

fn pod(name: &str, on: &str, milli: u32, app: &str, spec: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "d", "uid": name, "labels": { "app": app },
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "controller": true,
            }],
        },
        "spec": { "nodeName": on, "containers": [{
            "name": "c", "image": "i", "resources": { "requests": { "cpu": format!("{milli}m") } },
        }] },
    });
    let all = pod["spec"].as_object_mut().expect("a spec");
    all.extend(spec.as_object().expect("a spec").clone());
    pod
}

fn consolidate(name: &str, items: &[Value]) -> Value {
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": items });
    let folder = format!("consolidate-{name}");
    let from = file(&folder, "cluster.json", list.to_string().as_bytes());
    let run = portolan(&[
        "what-if",
        "--output",
        "json",
        "--cluster",
        &from,
        "--consolidate",
        "--budget",
        "600",
    ]);
    assert_eq!(run.code, 0, "{}{}", run.out, run.err);
    let answer: Value = serde_json::from_str(&run.out).expect("JSON");
    answer["consolidate"].clone()
}

fn names(found: &Value, key: &str) -> Vec<String> {
    let list = found[key].as_array().expect("a list");
    list.iter().map(|it| it["node"].as_str().expect("a node").to_owned()).collect()
}

fn why(found: &Value, node: &str) -> String {
    let list = found["remain"].as_array().expect("a list");
    let of = list.iter().find(|it| it["node"] == node);
    of.unwrap_or_else(|| panic!("{node} does not remain: {found}"))["why"]
        .as_str()
        .expect("a reason")
        .to_owned()
}

#[test]
fn nodes_are_emptied_together() {
    // Each node could be emptied alone, but only two of them together.
    let nodes = (0..4).map(|n| node(&format!("n{n}"), 1_000, json!({})));
    let pods = (0..4).map(|n| pod(&format!("p{n}"), &format!("n{n}"), 500, "web", json!({})));
    let items: Vec<Value> = nodes.chain(pods).collect();
    let found = consolidate("together", &items);
    assert_eq!((names(&found, "remove").len(), names(&found, "remain").len()), (2, 2), "{found}");
    assert_eq!(found["lower_bound"], json!({ "nodes": 2, "by": "cpu" }));
    assert_eq!(
        (found["moves"].as_array().map(Vec::len), &found["complete"]),
        (Some(2), &json!(true))
    );
}

#[test]
fn nodes_that_kubectl_would_not_empty_remain() {
    let mut bare = pod("bare", "n0", 10, "bare", json!({}));
    bare["metadata"].as_object_mut().expect("metadata").remove("ownerReferences");
    let local = json!({ "volumes": [{ "name": "v", "emptyDir": {} }] });
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": { "name": "keep", "namespace": "d" },
        "spec": { "selector": { "matchLabels": { "app": "kept" } }, "minAvailable": 1 },
    });
    let mut daemon = pod("agent", "n4", 500, "agent", json!({}));
    daemon["metadata"]["ownerReferences"][0]["kind"] = json!("DaemonSet");
    let items = [
        node("n0", 1_000, json!({})),
        node("n1", 1_000, json!({})),
        node("n2", 1_000, json!({})),
        node("n3", 1_000, json!({ "node-role.kubernetes.io/control-plane": "" })),
        node("n4", 1_000, json!({})),
        bare,
        pod("local", "n1", 10, "local", local),
        budget,
        pod("kept", "n2", 10, "kept", json!({})),
        daemon,
        pod("web", "n4", 100, "web", json!({})),
        pod("other", "n4", 10, "other", json!({})),
    ];
    let found = consolidate("fixed", &items);
    assert_eq!(names(&found, "remove"), ["n4"], "{found}");
    assert_eq!(found["lower_bound"]["nodes"], 4);
    for (node, says) in [
        ("n0", "d/bare is blocked: it has no controller"),
        ("n1", "local storage"),
        ("n2", "budget keep"),
        ("n3", "control plane"),
    ] {
        assert!(why(&found, node).contains(says), "{found}");
    }
}

/// Five nodes. Three pods on three of them avoid each other by hostname.
fn pods_apart() -> Vec<Value> {
    let apart = json!({ "affinity": { "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [{
            "labelSelector": { "matchLabels": { "app": "db" } },
            "topologyKey": "kubernetes.io/hostname",
        }],
    } } });
    let nodes = (0..5).map(|n| node(&format!("n{n}"), 1_000, json!({})));
    let pods = (0..3).map(|n| pod(&format!("db-{n}"), &format!("n{n}"), 10, "db", apart.clone()));
    let rest = (3..5).map(|n| pod(&format!("p{n}"), &format!("n{n}"), 10, "p", json!({})));
    nodes.chain(pods).chain(rest).collect()
}

#[test]
fn the_bound_counts_pools_and_pods_that_avoid_each_other() {
    let mut items = Vec::new();
    for n in 0..6 {
        let pool = if n < 3 { "a" } else { "b" };
        items.push(node(&format!("n{n}"), 1_000, json!({ "pool": pool })));
        let selector = json!({ "nodeSelector": { "pool": pool } });
        items.push(pod(&format!("p{n}"), &format!("n{n}"), 150, pool, selector));
    }
    let found = consolidate("pools", &items);
    assert_eq!((&found["lower_bound"]["nodes"], names(&found, "remain").len()), (&json!(2), 2));
    let by = found["lower_bound"]["by"].as_str().expect("a reason");
    assert!(by.contains("cpu of 3 pods restricted to 3 nodes"), "{by}");
    let found = consolidate("apart", &pods_apart());
    assert_eq!(found["lower_bound"], json!({ "nodes": 3, "by": "anti-affinity" }), "{found}");
    assert_eq!(names(&found, "remain").len(), 3);
}

#[test]
fn pods_that_avoid_each_other_may_stay_on_one_node() {
    let mut items = pods_apart();
    for pod in items.iter_mut().filter(|item| item["kind"] == "Pod") {
        pod["spec"]["nodeName"] = json!("n0");
    }
    let found = consolidate("together", &items);
    assert_eq!(found["lower_bound"]["nodes"], 1, "{found}");
    assert_eq!(names(&found, "remain"), ["n0"], "{found}");
}

#[test]
fn pods_avoid_each_other_only_in_namespaces_that_their_term_selects() {
    let mut items = pods_apart();
    let term = json!({
        "labelSelector": { "matchLabels": { "app": "db" } },
        "topologyKey": "kubernetes.io/hostname",
        "namespaceSelector": { "matchExpressions": [{ "key": "team", "operator": "DoesNotExist" }] },
    });
    let anti_affinity = json!({ "requiredDuringSchedulingIgnoredDuringExecution": [term] });
    for pod in items.iter_mut().filter(|item| item["spec"]["affinity"].is_object()) {
        pod["spec"]["affinity"]["podAntiAffinity"] = anti_affinity.clone();
    }
    let bound = |items: &[Value]| consolidate("namespaces", items)["lower_bound"]["nodes"].clone();
    assert_eq!(bound(&items), 3);
    items.push(json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": "d", "labels": { "team": "x" } },
    }));
    assert_eq!(bound(&items), 1);
}

#[test]
fn pods_that_avoid_each_other_by_hostname_give_no_bound_if_a_node_has_no_hostname() {
    let mut items = pods_apart();
    items[0]["metadata"]["labels"] = json!({});
    let found = consolidate("without-hostname", &items);
    assert_eq!(found["lower_bound"]["nodes"], 1, "{found}");
    assert_ne!(found["lower_bound"]["by"], "anti-affinity", "{found}");
}

#[test]
fn the_bound_by_anti_affinity_is_that_of_the_pods_on_the_most_nodes() {
    let mut items = pods_apart();
    let mut single = items[7].clone();
    single["metadata"]["name"] = json!("single");
    single["metadata"]["uid"] = json!("single");
    single["metadata"]["labels"]["tier"] = json!("single");
    single["spec"]["nodeName"] = json!("n4");
    items.push(single);
    let found = consolidate("several", &items);
    assert!(found["lower_bound"]["nodes"].as_u64() >= Some(3), "{found}");
}

#[test]
fn a_node_without_a_hostname_on_which_the_pods_cannot_run_does_not_change_their_bound() {
    let mut items = pods_apart();
    for item in &mut items {
        match item["kind"] == "Node" {
            true => item["metadata"]["labels"]["pool"] = json!("a"),
            false => item["spec"]["nodeSelector"] = json!({ "pool": "a" }),
        }
    }
    let mut other = node("n5", 1_000, json!({}));
    other["metadata"]["labels"] = json!({});
    items.push(other);
    let found = consolidate("other-pool", &items);
    assert_eq!(found["lower_bound"], json!({ "nodes": 3, "by": "anti-affinity" }), "{found}");
}

/// The fewest nodes on which pods of these sizes fit, if a pod with a pool runs on its nodes
/// only.
fn fewest(nodes: &[(u32, bool)], pods: &[(u32, bool)]) -> u32 {
    fn fits(free: &mut [(u32, bool)], pods: &[(u32, bool)]) -> bool {
        let Some(((size, special), rest)) = pods.split_first() else { return true };
        for at in 0..free.len() {
            let (room, is_special) = free[at];
            if room >= *size && (is_special || !special) {
                free[at].0 -= size;
                let fit = fits(free, rest);
                free[at].0 += size;
                if fit {
                    return true;
                }
            }
        }
        false
    }
    let subsets = 0_u32..1 << nodes.len();
    let possible = subsets.filter(|set| {
        let kept = nodes.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1);
        let mut kept: Vec<(u32, bool)> = kept.map(|(_, node)| *node).collect();
        fits(&mut kept, pods)
    });
    possible.map(u32::count_ones).min().expect("all nodes")
}

#[test]
fn the_answer_is_possible_and_lies_between_the_bound_and_the_nodes_that_there_are() {
    let mut at_best = 0;
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let nodes: Vec<(u32, bool)> =
            (0..random.usize(2..6)).map(|_| (random.u32(5..11) * 100, random.bool())).collect();
        let mut free: Vec<u32> = nodes.iter().map(|(size, _)| *size).collect();
        let mut pods: Vec<(u32, bool, usize)> = Vec::new();
        for _ in 0..random.usize(1..8) {
            let (at, size) = (random.usize(0..nodes.len()), random.u32(1..6) * 100);
            if free[at] >= size {
                free[at] -= size;
                pods.push((size, nodes[at].1 && random.bool(), at));
            }
        }
        let mut items: Vec<Value> = nodes
            .iter()
            .enumerate()
            .map(|(at, (size, special))| {
                let labels = if *special { json!({ "pool": "special" }) } else { json!({}) };
                node(&format!("n{at}"), *size, labels)
            })
            .collect();
        items.extend(pods.iter().enumerate().map(|(n, (size, special, at))| {
            let selector = json!({ "nodeSelector": { "pool": "special" } });
            let spec = if *special { selector } else { json!({}) };
            pod(&format!("p{n}"), &format!("n{at}"), *size, &format!("app{n}"), spec)
        }));
        let found = consolidate("random", &items);
        let bound = found["lower_bound"]["nodes"].as_u64().expect("a number") as u32;
        let sizes: Vec<(u32, bool)> =
            pods.iter().map(|(size, special, _)| (*size, *special)).collect();
        let best = fewest(&nodes, &sizes);
        let remain = names(&found, "remain");
        assert!(bound <= best, "seed {seed}: {found} {best}");
        assert!(remain.len() as u32 >= best, "seed {seed}: {found} {best}");
        at_best += u32::from(remain.len() as u32 == best);
        // The moves lead to a cluster in which each pod has a place on a node that remains.
        let mut on: BTreeMap<String, usize> =
            pods.iter().enumerate().map(|(n, (.., at))| (format!("d/p{n}"), *at)).collect();
        for moved in found["moves"].as_array().expect("moves") {
            let number = |key: &str| -> usize {
                moved[key].as_str().expect("a node")[1..].parse().expect("a number")
            };
            let was = on.insert(moved["pod"].as_str().expect("a pod").to_owned(), number("to"));
            assert_eq!(was, Some(number("from")), "seed {seed}");
        }
        let mut used = vec![0; nodes.len()];
        for (n, (size, special, _)) in pods.iter().enumerate() {
            let at = on[&format!("d/p{n}")];
            used[at] += size;
            assert!(remain.contains(&format!("n{at}")), "seed {seed}: {found}");
            assert!(nodes[at].1 || !special, "seed {seed}: {found}");
        }
        assert!(
            used.iter().zip(&nodes).all(|(used, node)| *used <= node.0),
            "seed {seed}: {found}"
        );
    }
    assert!(at_best >= 36, "{at_best} of 40 answers are the best possible");
}

#[test]
fn many_pods_leave_few_nodes_above_the_bound() {
    let mut random = fastrand::Rng::with_seed(7);
    let mut items = Vec::new();
    for n in 0..40 {
        items.push(node(&format!("n{n}"), 16_000, json!({})));
        for p in 0..30 {
            let size = random.u32(1..8) * 50;
            items.push(pod(
                &format!("p{n}-{p}"),
                &format!("n{n}"),
                size,
                &format!("a{size}"),
                json!({}),
            ));
        }
    }
    let found = consolidate("many", &items);
    let bound = found["lower_bound"]["nodes"].as_u64().expect("a number");
    let remain = names(&found, "remain").len() as u64;
    assert!(bound < 20 && remain <= bound + 1, "{remain} remain, bound {bound}");
}

#[test]
fn the_report_says_what_remains_and_why() {
    let nodes = (0..3).map(|n| node(&format!("n{n}"), 1_000, json!({})));
    let pods = (0..3).map(|n| pod(&format!("p{n}"), &format!("n{n}"), 600, "web", json!({})));
    let items: Vec<Value> = nodes.chain(pods).collect();
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": items });
    let from = file("consolidate-report", "cluster.json", list.to_string().as_bytes());
    let run = portolan(&["what-if", "--cluster", &from, "--consolidate"]);
    let line = "0 of 3 nodes can be removed, 3 remain; at least 2 needed: cpu\n";
    assert!(run.out.starts_with(line), "{}", run.out);
    assert!(run.out.contains("Insufficient cpu"), "{}", run.out);
    let two = ["n0", "n1"].map(|n| [node(n, 1_000, json!({})), pod(n, n, 200, "web", json!({}))]);
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": two.concat() });
    let pair = file("consolidate-report", "two.json", list.to_string().as_bytes());
    let run = portolan(&["what-if", "--cluster", &pair, "--consolidate"]);
    assert!(run.out.contains("1 of 2 nodes can be removed, 1 remains; at least 1"), "{}", run.out);
    let run = portolan(&["what-if", "--cluster", &from, "--consolidate", "--time-limit", "0"]);
    assert!(run.out.contains("; the time ran out: raise --time-limit\n"), "{}", run.out);
    let run = portolan(&["what-if", "--cluster", &from, "--consolidate", "--budget", "long"]);
    assert_eq!(run.code, 2);
    assert!(run.err.contains("seconds from 0 to 86400"), "{}", run.err);
}
