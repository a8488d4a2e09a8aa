//! Reads the golden vectors: every object can be read, and the sums of our pods' requests equal those that
//! kube-scheduler's cache printed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::PathBuf;

use serde_json::Value;

use super::{node, object, pod};
use portolan::model::{Pod, Resources};

const FILES: [&str; 6] =
    ["scheduling", "scheduling-large", "profiles", "volumes", "preemption", "cache"];

/// Returns the scenarios of a file, or none, with a message, if the vectors are absent.
fn scenarios(file: &str) -> Vec<Value> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/vectors")
        .join(format!("{file}.jsonl.gz"));
    let Ok(found) = std::fs::File::open(&path) else {
        eprintln!("skipped: {} does not exist", path.display());
        return Vec::new();
    };
    let mut text = String::new();
    flate2::read::GzDecoder::new(found).read_to_string(&mut text).expect("gzip");
    text.lines().map(|line| serde_json::from_str(line).expect("json")).collect()
}

fn list<'v>(value: &'v Value, field: &str) -> impl Iterator<Item = &'v Value> {
    value[field].as_array().map(Vec::as_slice).unwrap_or_default().iter()
}

#[test]
fn every_object_of_the_golden_vectors_reads() {
    for file in FILES {
        let mut count = 0;
        for scenario in scenarios(file) {
            let id = &scenario["id"];
            let incoming = list(&scenario, "cases").map(|case| &case["pod"]);
            let ops = || list(&scenario, "ops");
            let op_pods = ops().flat_map(|op| [&op["pod"], &op["old"]]).filter(|v| !v.is_null());
            for value in list(&scenario, "pods").chain(incoming).chain(op_pods) {
                let read = pod(value).unwrap_or_else(|e| panic!("{file} {id}: {e}"));
                let uid = value["metadata"]["uid"].as_str().unwrap_or_default();
                assert_eq!(read.uid.to_string(), uid);
                count += 1;
            }
            let op_nodes = ops().flat_map(|op| [&op["node"], &op["oldNode"]]);
            for value in list(&scenario, "nodes").chain(op_nodes.filter(|v| v.is_object())) {
                node(value).unwrap_or_else(|e| panic!("{file} {id}: {e}"));
                count += 1;
            }
            for (field, kind) in [
                ("namespaces", "Namespace"),
                ("services", "Service"),
                ("replicaSets", "ReplicaSet"),
            ] {
                for value in list(&scenario, field) {
                    object(kind, value).unwrap_or_else(|e| panic!("{file} {id}: {e}"));
                    count += 1;
                }
            }
        }
        eprintln!("{file}: {count} objects");
    }
}

/// Sums by name, without zeros.
type Sums = BTreeMap<String, i64>;

fn add(sums: &mut Sums, resources: &Resources) {
    let fixed = [
        ("cpu", resources.cpu.0),
        ("memory", resources.memory.0),
        ("ephemeral-storage", resources.ephemeral_storage.0),
    ];
    for (name, amount) in fixed {
        *sums.entry(name.into()).or_default() += amount;
    }
    for (name, amount) in resources.scalars.iter() {
        *sums.entry(name.to_string()).or_default() += amount;
    }
}

fn printed(value: &Value) -> Sums {
    let fields = value.as_object().into_iter().flatten();
    fields.map(|(name, amount)| (name.clone(), amount.as_i64().expect("integer"))).collect()
}

fn without_zeros(mut sums: Sums) -> Sums {
    sums.retain(|_, amount| *amount != 0);
    sums
}

#[test]
fn sums_of_placed_requests_equal_those_of_the_cache() {
    let mut checked = 0;
    for scenario in scenarios("cache") {
        let id = &scenario["id"];
        let mut pods: BTreeMap<String, Pod> = BTreeMap::new();
        for op in list(&scenario, "ops") {
            if op["pod"].is_object() {
                let read = pod(&op["pod"]).expect("a pod");
                let version = op["pod"]["metadata"]["resourceVersion"].as_str().unwrap_or_default();
                pods.insert(format!("{}@{version}", read.uid), read);
            }
            let nodes = op["state"]["nodes"].as_object().into_iter().flatten();
            for (name, state) in nodes {
                let mut requested = Sums::new();
                let mut non_zero = Sums::new();
                for key in list(state, "pods") {
                    let pod = &pods[key.as_str().expect("text")];
                    let resources = &pod.template.resources;
                    add(&mut requested, &resources.placed);
                    *non_zero.entry("cpu".into()).or_default() += resources.placed_non_zero.cpu.0;
                    *non_zero.entry("memory".into()).or_default() +=
                        resources.placed_non_zero.memory.0;
                }
                let expected = without_zeros(printed(&state["requested"]));
                assert_eq!(without_zeros(requested), expected, "{id} {name}");
                let expected = without_zeros(printed(&state["nonZeroRequested"]));
                assert_eq!(without_zeros(non_zero), expected, "{id} {name}");
                checked += 1;
            }
        }
    }
    eprintln!("cache: {checked} sums");
}

#[test]
fn ports_claims_and_affinity_equal_those_of_the_cache() {
    let (mut stale, mut compared) = (0, 0);
    for scenario in scenarios("cache") {
        let id = &scenario["id"];
        let mut pods: BTreeMap<String, Pod> = BTreeMap::new();
        for op in list(&scenario, "ops") {
            if op["pod"].is_object() {
                let read = pod(&op["pod"]).expect("a pod");
                let version = op["pod"]["metadata"]["resourceVersion"].as_str().unwrap_or_default();
                pods.insert(format!("{}@{version}", read.uid), read);
            }
            for (name, state) in op["state"]["nodes"].as_object().into_iter().flatten() {
                let (mut with_affinity, mut with_anti) = (Vec::new(), Vec::new());
                let (mut claims, mut ports) = (Sums::new(), BTreeSet::new());
                for key in list(state, "pods") {
                    let pod = &pods[key.as_str().expect("text")];
                    let template = &pod.template;
                    if template.pod_affinity.is_some() || template.pod_anti_affinity.is_some() {
                        with_affinity.push(pod.uid.to_string());
                    }
                    if template.required_anti_affinity().next().is_some() {
                        with_anti.push(pod.uid.to_string());
                    }
                    for claim in template.claims() {
                        *claims.entry(format!("{}/{claim}", pod.namespace())).or_default() += 1;
                    }
                    for port in &template.host_ports {
                        ports.insert(format!(
                            "{}/{}/{}",
                            port.ip,
                            port.protocol.as_str(),
                            port.port
                        ));
                    }
                }
                // kube-scheduler's list also keeps pods that were forgotten, or updated by an object without the
                // affinity that they had when they were added. Our list never has more pods.
                let theirs = texts(&state["podsWithAffinity"]);
                assert!(with_affinity.iter().all(|uid| theirs.contains(uid)), "{id} {name}");
                stale += usize::from(theirs.len() != with_affinity.len());
                let theirs = texts(&state["podsWithRequiredAntiAffinity"]);
                assert!(with_anti.iter().all(|uid| theirs.contains(uid)), "{id} {name}");
                stale += usize::from(theirs.len() != with_anti.len());
                compared += 1;
                assert_eq!(printed(&state["pvcRefCounts"]), claims, "{id} {name}");
                // kube-scheduler keeps a set, from which the first of two users of a port removes it.
                let theirs = texts(&state["usedPorts"]);
                assert!(theirs.iter().all(|port| ports.contains(port)), "{id} {name}: {theirs:?}");
            }
        }
    }
    eprintln!("cache: {compared} nodes, {stale} stale affinity lists");
    // Only a few of thousands may differ: the lists are right elsewhere.
    assert!(stale * 20 <= compared);
}

fn texts(value: &Value) -> Vec<String> {
    let values = value.as_array().into_iter().flatten();
    values.map(|text| text.as_str().expect("text").to_owned()).collect()
}

#[test]
fn allocatable_equals_that_of_the_cache() {
    for scenario in scenarios("cache") {
        let mut nodes = BTreeMap::new();
        for op in list(&scenario, "ops") {
            let failed = !op["error"].is_null();
            if let (Some(read), false) = (op["node"].is_object().then(|| node(&op["node"])), failed)
            {
                let read = read.expect("a node");
                nodes.insert(read.name.to_string(), read);
            }
            for (name, state) in op["state"]["nodes"].as_object().into_iter().flatten() {
                if state["hasNode"] == Value::Bool(true) {
                    let node = &nodes[name];
                    let mut ours = Sums::new();
                    add(&mut ours, &node.allocatable);
                    ours.insert("pods".into(), node.allowed_pods);
                    let expected = without_zeros(printed(&state["allocatable"]));
                    assert_eq!(without_zeros(ours), expected, "{} {name}", scenario["id"]);
                }
            }
        }
    }
}
