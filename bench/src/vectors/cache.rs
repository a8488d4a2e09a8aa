//! Cache vectors: sequences of operations of the `Cache` interface, with state dumps.

use std::collections::BTreeSet;
use std::time::Duration;

use portolan::cache::{
    ChangeKind, ChangedSince, CommitPolicy, Config, Engine, Event, NodeDump, Snapshot, Writer,
};
use portolan::model::{EventError, Generation, Pod, Resources, Timestamp, Uid};
use serde_json::{Map, Value, json};

use super::Tally;

pub(super) fn run(scenario: &Value, strict: bool, tally: &mut Tally) -> Result<(), String> {
    let id = text(scenario, "id");
    let ttl = scenario["ttlMs"].as_u64().unwrap_or(0);
    // kube-scheduler's cache accepts every assume without a check.
    let config = Config {
        assumed_ttl: Some(Duration::from_millis(ttl)),
        commit_check: CommitPolicy::Unchecked,
        ..Config::default()
    };
    let (mut writer, reader) = Engine::inline(config);
    let mut last_state = Generation::ZERO;
    let ops = scenario["ops"].as_array().ok_or("\"ops\" is not a list")?;
    for (at, op) in ops.iter().enumerate() {
        let name = text(op, "op");
        let place = format!("{id} op {at} ({name})");
        let answer = apply(&mut writer, op).map_err(|why| format!("op {at}: {why}"))?;
        let mut differences = Vec::new();
        let mut compare = |field: &str, expected: Value, found: Value| {
            if expected != found {
                differences.push(format!("{field}: expected {expected}, found {found}"));
            }
        };
        let error = answer.as_ref().err().map(ToString::to_string);
        compare("error", json!(op.get("error").is_some_and(|e| e != "")), json!(error.is_some()));
        if let (Some(expected), Ok(Some(found))) = (op.get("bool"), &answer) {
            compare("bool", expected.clone(), json!(found));
        }
        compare("podCount", op["podCount"].clone(), json!(writer.cluster().pod_count()));
        compare("nodeCount", op["nodeCount"].clone(), json!(writer.cluster().node_count()));
        tally.case(&place, &differences);
        if let Some(expected) = op.get("state") {
            let generation = writer.publish();
            let snapshot = reader.snapshot();
            let found = state(&snapshot, last_state);
            last_state = generation;
            let mut differences = diff(expected, &found);
            if !strict && !differences.is_empty() {
                let (expected, stale) = without_stale(expected);
                differences = diff(&expected, &found);
                tally.stale += usize::from(stale && differences.is_empty());
            }
            tally.case(&format!("{id} state after op {at}"), &differences);
        }
    }
    Ok(())
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// Runs one operation; returns its error, or the answer if it is a query.
fn apply(writer: &mut Writer, op: &Value) -> Result<Result<Option<bool>, EventError>, String> {
    let pod = |key: &str| -> Result<Pod, String> {
        super::pod(&op[key]).map_err(|error| format!("{key}: {error}"))
    };
    let node = |key: &str| super::node(&op[key]).map_err(|error| format!("{key}: {error}"));
    let now = Timestamp::from_millis(op["atMs"].as_i64().unwrap_or(0));
    let known = |uid: &Uid| if uid.is_empty() { Err(EventError::EmptyUid) } else { Ok(()) };
    let done = match text(op, "op") {
        "assumePod" => writer.assume_pod(pod("pod")?).map(|_| None),
        "finishBinding" => {
            writer.apply(&Event::finish_binding(&pod("pod")?.uid, now)).map(|_| None)
        }
        "forgetPod" => writer.apply(&Event::forget(&pod("pod")?)).map(|_| None),
        "addPod" => writer.add_pod(pod("pod")?).map(|_| None),
        "updatePod" => writer.update_pod(&pod("old")?.uid, pod("pod")?).map(|_| None),
        "removePod" => writer.remove_pod(&pod("pod")?).map(|_| None),
        "isAssumedPod" => {
            let uid = pod("pod")?.uid;
            known(&uid)
                .map(|()| Some(writer.cluster().pod(&uid).is_some_and(|pod| pod.is_assumed())))
        }
        "getPod" => {
            let uid = pod("pod")?.uid;
            known(&uid).and_then(|()| match writer.cluster().pod(&uid) {
                Some(_) => Ok(None),
                None => Err(EventError::NotFound { uid }),
            })
        }
        "addNode" => writer.add_node(node("node")?).map(|_| None),
        "updateNode" => writer.update_node(node("node")?).map(|_| None),
        "removeNode" => writer.remove_node(text(&op["node"]["metadata"], "name")).map(|_| None),
        "cleanup" => writer.expire(now).map(|_| None),
        other => return Err(format!("unknown operation {other:?}")),
    };
    Ok(done)
}

/// The state without kube-scheduler's stale affinity entries, and whether there were any.
///
/// kube-scheduler removes a pod from its affinity lists according to the caller's object
/// instead of the stored one. If the caller's object has no affinity, the entry of the
/// removed pod stays. portolan removes pods by the stored object.
fn without_stale(state: &Value) -> (Value, bool) {
    let mut state = state.clone();
    let mut any = false;
    for (of_node, of_all) in
        [("podsWithAffinity", "affinityList"), ("podsWithRequiredAntiAffinity", "antiAffinityList")]
    {
        let mut emptied = BTreeSet::new();
        let Some(nodes) = state["nodes"].as_object_mut() else { continue };
        for (name, node) in nodes {
            let pods: BTreeSet<String> = node["pods"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|pod| Some(pod.as_str()?.split('@').next()?.to_owned()))
                .collect();
            let Some(list) = node[of_node].as_array_mut().filter(|list| !list.is_empty()) else {
                continue;
            };
            let before = list.len();
            let mut seen = BTreeSet::new();
            list.retain(|uid| {
                let uid = uid.as_str().unwrap_or_default().to_owned();
                pods.contains(&uid) && seen.insert(uid)
            });
            any |= list.len() < before;
            if list.is_empty() {
                emptied.insert(name.clone());
            }
        }
        if let Some(list) = state[of_all].as_array_mut() {
            list.retain(|node| !emptied.contains(node.as_str().unwrap_or_default()));
        }
    }
    (state, any)
}

/// A version in the format of the vectors.
fn state(snapshot: &Snapshot, since: Generation) -> Value {
    let dump = snapshot.dump();
    let names = |uids: &[Uid]| json!(uids.iter().map(ToString::to_string).collect::<Vec<_>>());
    let listed = |anti: bool| {
        let nodes = snapshot.nodes().filter(move |node| {
            if anti {
                node.pods_with_required_anti_affinity().next().is_some()
            } else {
                node.pods_with_affinity().next().is_some()
            }
        });
        json!(nodes.map(|node| node.name().to_string()).collect::<Vec<_>>())
    };
    let changed: BTreeSet<String> = match snapshot.changed_since(since) {
        Ok(ChangedSince::Changes(changes)) => changes
            .into_iter()
            .filter(|change| change.kind != ChangeKind::Removed)
            .map(|change| change.name.to_string())
            .collect(),
        // The vectors name versions that the snapshot contains.
        Ok(ChangedSince::Reset) | Err(_) => {
            snapshot.nodes().map(|node| node.name().to_string()).collect()
        }
    };
    let nodes: Map<String, Value> =
        dump.nodes.iter().map(|(name, node)| (name.clone(), self::node(node))).collect();
    json!({
        "assumed": names(&dump.assumed),
        "nodes": nodes,
        "snapshotOrder": dump.order,
        "affinityList": listed(false),
        "antiAffinityList": listed(true),
        "changedSinceLastSnapshot": changed,
        "usedPVCs": dump.used_claims,
    })
}

fn node(node: &NodeDump) -> Value {
    let mut pods: Vec<String> =
        node.pods.iter().map(|(uid, version)| format!("{uid}@{version}")).collect();
    pods.sort();
    let mut allocatable = resources(&node.allocatable);
    if node.has_node {
        allocatable.insert("pods".into(), json!(node.allowed_pods));
    }
    let uids = |uids: &[Uid]| {
        let mut uids: Vec<String> = uids.iter().map(ToString::to_string).collect();
        uids.sort();
        json!(uids)
    };
    json!({
        "hasNode": node.has_node,
        "pods": pods,
        "requested": resources(&node.requested),
        "nonZeroRequested": {
            "cpu": node.non_zero_requested.cpu.0,
            "memory": node.non_zero_requested.memory.0,
        },
        "allocatable": allocatable,
        "usedPorts": node.used_ports.keys().collect::<Vec<_>>(),
        "pvcRefCounts": node.claims,
        "imageStates": node.images.iter().map(|(name, (size, nodes))| {
            (name.clone(), json!([size, nodes]))
        }).collect::<Map<_, _>>(),
        "podsWithAffinity": uids(&node.with_affinity),
        "podsWithRequiredAntiAffinity": uids(&node.with_required_anti_affinity),
    })
}

fn resources(resources: &Resources) -> Map<String, Value> {
    let mut map = Map::new();
    map.insert("cpu".into(), json!(resources.cpu.0));
    map.insert("memory".into(), json!(resources.memory.0));
    map.insert("ephemeral-storage".into(), json!(resources.ephemeral_storage.0));
    for (name, amount) in resources.scalars.iter() {
        map.insert(name.to_string(), json!(amount));
    }
    map
}

/// The paths at which two states differ. Absent, null, zero and empty values are equal.
/// Lists are compared as sets, except the snapshot's orders.
fn diff(expected: &Value, found: &Value) -> Vec<String> {
    let mut differences = Vec::new();
    compare("", expected, found, &mut differences);
    differences
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Number(n) => n.as_i64() == Some(0),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.values().all(is_nothing),
        _ => false,
    }
}

fn compare(path: &str, expected: &Value, found: &Value, differences: &mut Vec<String>) {
    match (expected, found) {
        (a, b) if a == b || is_nothing(a) && is_nothing(b) => {}
        (Value::Object(a), Value::Object(b)) => {
            let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let none = Value::Null;
                let (a, b) = (a.get(key).unwrap_or(&none), b.get(key).unwrap_or(&none));
                // The presence of a node's entry is compared, even if the entry is empty.
                if path == "/nodes" && a.is_null() != b.is_null() {
                    differences.push(format!("{path}/{key}: expected {a}, found {b}"));
                } else {
                    compare(&format!("{path}/{key}"), a, b, differences);
                }
            }
        }
        (Value::Array(a), Value::Array(b))
            if !path.ends_with("Order") && !path.ends_with("List") =>
        {
            let sorted = |list: &[Value]| {
                let mut texts: Vec<String> = list.iter().map(ToString::to_string).collect();
                texts.sort();
                texts
            };
            if path.contains("imageStates") || sorted(a) != sorted(b) {
                differences.push(format!("{path}: expected {expected}, found {found}"));
            }
        }
        _ => differences.push(format!("{path}: expected {expected}, found {found}")),
    }
}
