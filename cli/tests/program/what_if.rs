//! `portolan what-if`: nodes that can be removed together, and drains of many nodes.

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

fn cluster(name: &str, items: &[Value]) -> String {
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": items });
    file(name, "cluster.json", list.to_string().as_bytes())
}

fn consolidate(name: &str, items: &[Value]) -> Value {
    let from = cluster(name, items);
    let options = ["--output", "json", "--consolidate", "--time-limit", "600"];
    let run = portolan(&[&["what-if", "--cluster", &from], &options[..]].concat());
    assert_eq!(run.code, 0, "{}{}", run.out, run.err);
    let answer: Value = serde_json::from_str(&run.out).expect("JSON");
    answer["consolidate"].clone()
}

fn names(found: &Value, key: &str) -> Vec<String> {
    let list = found[key].as_array().expect("a list");
    list.iter().map(|it| it["node"].as_str().expect("a node").to_owned()).collect()
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
fn a_drain_of_a_full_cluster_tries_each_pod_a_few_times() {
    let attempts = |nodes: usize| {
        let name = |n: usize| format!("n{n:02}");
        let mut items: Vec<Value> = (0..nodes).map(|n| node(&name(n), 1_000, json!({}))).collect();
        for n in 0..nodes {
            items.push(pod(&format!("a{n:02}"), &name(n), 500, "a", json!({})));
            items.push(pod(&format!("b{n:02}"), &name(n), 500, "b", json!({})));
        }
        let cluster = cluster("attempts", &items);
        let metrics = file("attempts", "metrics.txt", b"");
        let all: Vec<String> = (0..nodes / 2).map(name).collect();
        let drained = all.iter().map(String::as_str);
        let options = ["what-if", "--cluster", &cluster, "--metrics-file", &metrics, "--drain"];
        let run = portolan(&options.into_iter().chain(drained).collect::<Vec<_>>());
        assert_eq!(
            run.out.lines().next(),
            Some(&*format!("{nodes} pods unschedulable")),
            "{}",
            run.err
        );
        let text = std::fs::read_to_string(&metrics).expect("metrics");
        let mut counts =
            text.lines().filter(|line| line.starts_with("scheduler_schedule_attempts_total{"));
        let count = counts.next().and_then(|line| line.rsplit_once(' ')).expect("a count").1;
        count.parse::<usize>().expect("a number")
    };
    // Each evicted pod is tried when it arrives, and those of all nodes but the last once more at the end.
    assert_eq!((attempts(10), attempts(40)), (10 + 8, 40 + 38));
}
