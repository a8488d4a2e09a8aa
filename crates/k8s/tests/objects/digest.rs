//! Texts with the same digest are read as the same object, and updates that change nothing that is read have the same
//! digest.

use portolan_k8s::{Digest, ReadError, node_from_slice, pod_from_slice};
use portolan_testkit::alloc::Counting;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::value::RawValue;
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

const POD: &str = include_str!("pod.json");
/// Objects of most kinds, with every field that is read.
const CATALOGUE: &str = include_str!("../../../../fuzz/targets/input/objects.json");

/// Fields of pods that are in neither file. Those of containers and lists of the spec are hashed as they are written.
fn more() -> Value {
    json!({
        "metadata": {"name": "a", "generateName": "a-", "namespace": "n", "uid": "u-1", "resourceVersion": "7",
            "generation": 2, "finalizers": ["f"], "deletionTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {"godel.bytedance.com/pod-state": "dispatched", "other": "x",
                "katalyst.kubewharf.io/qos_level": "shared_cores", "godel.bytedance.com/pod-launcher": "kubelet"}},
        "spec": {"schedulingGates": [{"name": "g"}], "resourceClaims": [{"name": "c"}], "overhead": {"cpu": "1m"},
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
            "initContainers": [{"name": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": "2"}}}],
            "resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "4"}},
            "ephemeralContainers": [{"name": "e"}], "schedulingGroup": {"podGroupName": "g"}},
        "status": {"phase": "Pending", "nominatedNodeName": "n1", "startTime": "2026-01-01T00:00:00Z",
            "conditions": [
                {"type": "PodResizePending", "status": "True", "reason": "Infeasible", "message": "m"},
                {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "m"},
                {"type": "Ready", "status": "False", "reason": "r", "message": "m"}],
            "containerStatuses": [{"name": "c", "ready": true, "allocatedResources": {"cpu": "2"},
                "resources": {"requests": {"cpu": "5"}}}],
            "initContainerStatuses": [{"name": "i", "allocatedResources": {"cpu": "3"},
                "resources": {"requests": {"cpu": "3"}}}],
            "resources": {"requests": {"cpu": "9"}}, "allocatedResources": {"cpu": "8"}}})
}

fn pod_digest(json: &str) -> Option<Digest> {
    portolan_k8s::pod_digest(raw(json))
}

fn node_digest(json: &str) -> Option<Digest> {
    portolan_k8s::node_digest(raw(json))
}

fn raw(json: &str) -> &RawValue {
    serde_json::from_str(json).expect("JSON")
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Pod,
    Node,
}

impl Kind {
    fn digest(self, json: &str) -> Option<Digest> {
        match self {
            Kind::Pod => pod_digest(json),
            Kind::Node => node_digest(json),
        }
    }

    /// Reads an object and describes it without its resource version. The hash of a template is one of its contents.
    fn read(self, json: &str) -> Result<String, ReadError> {
        let bytes = json.as_bytes();
        Ok(match self {
            Kind::Pod => {
                let mut pod = pod_from_slice(bytes)?;
                pod.resource_version = 0;
                format!("{pod:?} {:?}", *pod.template)
            }
            Kind::Node => {
                let mut node = node_from_slice(bytes)?;
                node.resource_version = 0;
                format!("{node:?}")
            }
        })
    }
}

fn objects() -> Vec<(Kind, Value)> {
    let catalogue: Value = serde_json::from_str(CATALOGUE).expect("JSON");
    let items = catalogue["items"].as_array().expect("a list");
    let kind = |value: &Value| match value["kind"].as_str() {
        Some("Pod") => Some(Kind::Pod),
        Some("Node") => Some(Kind::Node),
        _ => None,
    };
    let known = items.iter().filter_map(|value| Some((kind(value)?, value.clone())));
    let pod = serde_json::from_str(POD.trim_end()).expect("JSON");
    [(Kind::Pod, pod), (Kind::Pod, more())].into_iter().chain(known).collect()
}

/// Returns the JSON pointers of all values within a value.
fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
    let mut within = |key: &str, value: &Value| {
        let key = key.replace('~', "~0").replace('/', "~1");
        let at = format!("{at}/{key}");
        found.push(at.clone());
        pointers(value, &at, found);
    };
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| within(key, value)),
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(i, value)| within(&i.to_string(), value));
        }
        _ => {}
    }
}

/// The number of ways to change a value.
const WAYS: usize = 9;

/// Changes the value at a pointer.
fn change(object: &mut Value, pointer: &str, way: usize) {
    let Some((parent, key)) = pointer.rsplit_once('/') else { return };
    let key = key.replace("~1", "/").replace("~0", "~");
    if way == 0 {
        match object.pointer_mut(parent) {
            Some(Value::Object(map)) => drop(map.remove(&key)),
            Some(Value::Array(list)) => {
                if let Some(at) = key.parse().ok().filter(|at| *at < list.len()) {
                    list.remove(at);
                }
            }
            _ => {}
        }
        return;
    }
    let Some(value) = object.pointer_mut(pointer) else { return };
    *value = match (way, value.take()) {
        (1, _) => Value::Null,
        (2, _) => json!({}),
        (3, _) => json!([]),
        (4, Value::Array(mut list)) => {
            list.reverse();
            list.push(Value::Null);
            Value::Array(list)
        }
        (5, Value::String(text)) => Value::String(text + "x"),
        (6, Value::String(_)) => json!("2027-02-03T04:05:06Z"),
        (7, Value::String(_)) => json!("17"),
        (8, Value::Bool(flag)) => json!(!flag),
        (8, Value::Number(number)) => json!(number.as_i64().unwrap_or(0) + 1),
        (_, Value::Array(mut list)) => {
            let first = list.first().cloned();
            list.extend(first);
            Value::Array(list)
        }
        (_, Value::Object(mut map)) => {
            map.insert("added".to_owned(), json!("x"));
            Value::Object(map)
        }
        (_, value) => value,
    };
}

/// Asserts that a change is not dropped if it changes the object. Returns whether it is dropped.
fn check(kind: Kind, before: &str, after: &Value) -> bool {
    let after = after.to_string();
    let digest = kind.digest(&after);
    let is_dropped = digest.is_some() && digest == kind.digest(before);
    if is_dropped {
        let (old, new) = (kind.read(before), kind.read(&after));
        let is_of_version = |result: &Result<String, ReadError>| {
            result.as_ref().is_err_and(|error| error.path() == "metadata.resourceVersion")
        };
        if !is_of_version(&old) && !is_of_version(&new) {
            assert_eq!(old.map_err(drop), new.map_err(drop), "{before}\n{after}");
        }
    }
    is_dropped
}

#[test]
fn no_single_change_of_a_field_that_is_read_is_dropped() {
    for (kind, object) in objects() {
        let (mut dropped, mut kept) = (0, 0);
        let mut all = Vec::new();
        pointers(&object, "", &mut all);
        let before = object.to_string();
        for pointer in &all {
            for way in 0..WAYS {
                let mut after = object.clone();
                change(&mut after, pointer, way);
                *if check(kind, &before, &after) { &mut dropped } else { &mut kept } += 1;
            }
        }
        assert!(dropped > 10 && kept > 10, "{dropped} dropped, {kept} kept");
    }
}

proptest! {
    #[test]
    fn no_changes_of_fields_that_are_read_are_dropped(
        object in any::<Index>(),
        changes in prop::collection::vec((any::<Index>(), 0..WAYS, any::<bool>()), 1..8),
    ) {
        let objects = objects();
        let (kind, object) = object.get(&objects);
        let (mut before, mut after) = (object.clone(), object.clone());
        for (pointer, way, is_before) in changes {
            let target = if is_before { &mut before } else { &mut after };
            let mut all = Vec::new();
            pointers(target, "", &mut all);
            if !all.is_empty() {
                change(target, pointer.get::<String>(&all), way);
            }
        }
        check(*kind, &before.to_string(), &after);
    }
}

/// Returns the object with one value replaced.
fn with(object: &Value, pointer: &str, value: Value) -> String {
    let mut object = object.clone();
    let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
    match object.pointer_mut(parent).expect("a parent") {
        Value::Array(list) => list.push(value),
        parent => parent[key.replace("~1", "/")] = value,
    }
    object.to_string()
}

#[test]
fn updates_of_a_pod_that_change_nothing_that_is_read_have_its_digest() {
    let pod: Value = serde_json::from_str(POD.trim_end()).expect("JSON");
    let digest = pod_digest(&pod.to_string());
    assert!(digest.is_some());
    let condition =
        |name: &str, status: &str| json!({"type": name, "status": status, "message": "m"});
    for (pointer, value) in [
        ("/metadata/resourceVersion", json!("184467232")),
        ("/metadata/generation", json!(3)),
        ("/metadata/managedFields", json!([])),
        ("/metadata/finalizers", json!(["f"])),
        ("/metadata/annotations/example.com~1restarted-at", json!("now")),
        ("/spec/ephemeralContainers", json!([{"name": "debug"}])),
        ("/spec/terminationGracePeriodSeconds", json!(60)),
        ("/status/phase", json!("Pending")),
        ("/status/podIP", json!("10.0.0.1")),
        ("/status/qosClass", json!("Burstable")),
        ("/status/observedGeneration", json!(3)),
        ("/status/conditions/-", condition("Ready", "False")),
        (
            "/status/conditions",
            json!([condition("PodScheduled", "True"), condition("Ready", "True")]),
        ),
        ("/status/containerStatuses/0/ready", json!(false)),
        ("/status/containerStatuses/0/restartCount", json!(7)),
        ("/status/containerStatuses/0/state", json!({"waiting": {"reason": "CrashLoopBackOff"}})),
        ("/status/containerStatuses/0/lastState", json!({"terminated": {"exitCode": 1}})),
    ] {
        assert_eq!(pod_digest(&with(&pod, pointer, value)), digest, "{pointer}");
    }
    for (pointer, value) in [
        ("/metadata/labels/added", json!("x")),
        ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
        ("/metadata/ownerReferences", json!([])),
        ("/metadata/annotations/godel.bytedance.com~1pod-state", json!("dispatched")),
        ("/spec/nodeName", json!("n2")),
        ("/spec/priority", json!(7)),
        ("/spec/containers/0/resources/requests/cpu", json!("300m")),
        ("/status/startTime", json!("2026-03-14T09:26:55Z")),
        ("/status/nominatedNodeName", json!("n2")),
        ("/status/phase", json!("Succeeded")),
        ("/status/phase", json!("Failed")),
        (
            "/status/conditions/-",
            json!({"type": "PodResizePending", "status": "True", "reason": "Infeasible"}),
        ),
        ("/status/conditions/-", condition("DisruptionTarget", "True")),
        ("/status/containerStatuses/0/resources/requests/cpu", json!("300m")),
        ("/status/containerStatuses/0/allocatedResources/cpu", json!("300m")),
        ("/status/resources", json!({"requests": {"cpu": "1"}})),
    ] {
        assert_ne!(pod_digest(&with(&pod, pointer, value)), digest, "{pointer}");
    }
}

#[test]
fn a_heartbeat_of_a_node_has_its_digest() {
    let node = json!({"metadata": {"name": "n1", "resourceVersion": "1", "labels": {"a": "b"}},
        "spec": {"podCIDR": "10.0.0.0/24"},
        "status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}],
            "allocatable": {"cpu": "4"}, "images": [{"names": ["a"], "sizeBytes": 1}]}});
    let digest = node_digest(&node.to_string());
    assert!(digest.is_some());
    for (pointer, value) in [
        ("/metadata/resourceVersion", json!("2")),
        ("/status/conditions/0/lastHeartbeatTime", json!("2026-01-01T00:05:00Z")),
        ("/status/volumesInUse", json!(["v"])),
    ] {
        assert_eq!(node_digest(&with(&node, pointer, value)), digest, "{pointer}");
    }
    for (pointer, value) in [
        ("/metadata/labels/a", json!("c")),
        ("/spec/unschedulable", json!(true)),
        ("/spec/taints", json!([{"key": "k", "effect": "NoSchedule"}])),
        ("/status/allocatable/cpu", json!("8")),
        ("/status/images/0/sizeBytes", json!(2)),
        ("/status/declaredFeatures", json!(["f"])),
    ] {
        assert_ne!(node_digest(&with(&node, pointer, value)), digest, "{pointer}");
    }
}

#[test]
fn unusual_texts_have_no_digest() {
    for text in [
        "[]",
        "null",
        "17",
        r#"{"\u006detadata":{}}"#,
        r#"{"kind":"Node","metadata":{}}"#,
        r#"{"metadata":{"uid":"a","uid":"b"}}"#,
        r#"{"metadata":{},"metadata":{}}"#,
        r#"{"status":{"phase":1}}"#,
        r#"{"status":{"conditions":{}}}"#,
    ] {
        assert_eq!(pod_digest(text), None, "{text}");
    }
    assert!(pod_digest(r#"{"apiVersion":"v1","kind":"Pod","metadata":{}}"#).is_some());
    assert_eq!(
        pod_digest(r#"{"kind":"Pod","metadata":{"uid":"a"}}"#),
        pod_digest(r#" { "metadata" : {"uid":"a"} } "#),
        "the items of a list have no kind",
    );
}

#[test]
fn texts_that_differ_only_in_their_division_into_fields_have_different_digests() {
    let pods = [
        r#"{"metadata":{"name":"ab","namespace":"c"}}"#,
        r#"{"metadata":{"name":"a","namespace":"bc"}}"#,
        r#"{"metadata":{"name":"ab"},"spec":{}}"#,
        r#"{"metadata":{"name":"ab"},"spec":null}"#,
        r#"{"metadata":{"name":"ab"},"status":{}}"#,
        r#"{"status":{"containerStatuses":[{},{}]}}"#,
        r#"{"status":{"containerStatuses":[{}]}}"#,
        r#"{"status":{"containerStatuses":[]}}"#,
        r#"{"status":{"initContainerStatuses":[]}}"#,
    ];
    let digests: Vec<_> = pods.iter().map(|pod| pod_digest(pod).expect(pod)).collect();
    for (i, one) in digests.iter().enumerate() {
        assert!(!digests[..i].contains(one), "{}", pods[i]);
    }
}

#[test]
fn a_digest_allocates_nothing() {
    let pod = POD.trim_end();
    assert!(pod_digest(pod).is_some(), "the key is drawn");
    let json = raw(pod);
    let before = ALLOCATOR.counts().allocations;
    assert!(portolan_k8s::pod_digest(json).is_some());
    let digest = ALLOCATOR.counts().allocations - before;
    drop(pod_from_slice(pod.as_bytes()));
    let read = ALLOCATOR.counts().allocations - before - digest;
    assert!(digest == 0 && read > 20, "{digest} and {read} allocations");
}
