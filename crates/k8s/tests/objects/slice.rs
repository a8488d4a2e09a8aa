//! Reading bytes gives the same result as reading the value that they encode: the same object, or the same error.

use std::fmt::Debug;

use portolan_k8s::{
    ReadError, node, node_from_slice, object, object_from_slice, pod, pod_from_slice,
};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::Value;

const POD: &str = include_str!("../../benches/pod.json");
/// Objects of most kinds, with every field that is read.
const CATALOGUE: &str = include_str!("../../../../fuzz/targets/input/objects.json");

/// Kinds that have stores, in addition to those of the catalogue.
const MORE: [&str; 7] = [
    r#"{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"name":"b","namespace":"n"},
        "spec":{"selector":{"matchLabels":{"b":"2","a":"1"}}},
        "status":{"disruptionsAllowed":1,"disruptedPods":{"q":"2026-01-01T00:00:00Z","p":"2026-01-01T00:00:00Z"}}}"#,
    r#"{"apiVersion":"scheduling.k8s.io/v1alpha1","kind":"PodGroup","metadata":{"name":"g","namespace":"n"},
        "spec":{"schedulingPolicy":{"gang":{"minCount":3}}}}"#,
    r#"{"apiVersion":"scheduling.x-k8s.io/v1alpha1","kind":"PodGroup","metadata":{"name":"g","namespace":"n"},
        "spec":{"minMember":3,"scheduleTimeoutSeconds":10},"status":{"phase":"Pending"}}"#,
    r#"{"apiVersion":"node.godel.kubewharf.io/v1alpha1","kind":"NMNode","metadata":{"name":"m"},
        "spec":{"taints":[{"key":"k","effect":"NoSchedule"}]},"status":{"resourceCapacity":{"memory":"1Gi","cpu":4}}}"#,
    r#"{"apiVersion":"node.katalyst.kubewharf.io/v1alpha1","kind":"CustomNodeResource","metadata":{"name":"m"},
        "status":{"resources":{"allocatable":{"cpu":"4"}},"topologyZone":[{"type":"Socket","name":"0","children":
        [{"type":"Numa","name":"0","resources":{"allocatable":{"cpu":"2"}},"allocations":[{"consumer":"n/p/u",
        "requests":{"cpu":"1"}}]}]}]}}"#,
    r#"{"apiVersion":"scheduling.godel.kubewharf.io/v1alpha1","kind":"Reservation","metadata":{"name":"r",
        "namespace":"n","annotations":{"godel.bytedance.com/reservation-index":"web"}},"spec":{"nodename":"n1",
        "template":{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]}}},
        "status":{"phase":"Reserved"}}"#,
    r#"{"apiVersion":"scheduling.godel.kubewharf.io/v1alpha1","kind":"Movement","metadata":{"name":"m"},
        "spec":{"creator":"c","deletedTasks":[{"name":"p","namespace":"n","uid":"u","node":"n1"}]}}"#,
];

/// Compares both ways of reading bytes that are JSON. Returns whether an object was read.
fn same(kind: &str, bytes: &[u8]) -> bool {
    same_but_for_errors(kind, bytes, |error| error)
}

/// Like [`same`], with these parts of the errors.
fn same_but_for_errors<E: PartialEq + Debug>(
    kind: &str,
    bytes: &[u8],
    part: fn(ReadError) -> E,
) -> bool {
    fn compare<T: PartialEq + Debug, E: PartialEq + Debug>(
        bytes: &[u8],
        ways: [Result<T, ReadError>; 2],
        part: fn(ReadError) -> E,
    ) -> bool {
        let [from_bytes, from_value] = ways.map(|read| read.map_err(part));
        assert_eq!(from_bytes, from_value, "{}", String::from_utf8_lossy(bytes));
        from_value.is_ok()
    }
    let value: Value = serde_json::from_slice(bytes).expect("JSON");
    match kind {
        "Pod" => compare(bytes, [pod_from_slice(bytes), pod(&value)], part),
        "Node" => compare(bytes, [node_from_slice(bytes), node(&value)], part),
        _ => compare(bytes, [object_from_slice(kind, bytes), object(kind, &value)], part),
    }
}

/// Returns the objects from which the tests start.
fn objects() -> Vec<Value> {
    let list: Value = serde_json::from_str(CATALOGUE).expect("JSON");
    let listed = list["items"].as_array().expect("a list").clone();
    let more = MORE.into_iter().chain([POD]).map(|text| serde_json::from_str(text).expect("JSON"));
    listed.into_iter().chain(more).collect()
}

fn kind_of(object: &Value) -> &str {
    object["kind"].as_str().expect("a kind")
}

#[test]
fn bytes_and_values_read_the_same() {
    let kinds_without_store = ["Deployment", "Job", "PriorityClass", "RuntimeClass", "ConfigMap"];
    for value in objects() {
        let kind = kind_of(&value);
        let read = same(kind, value.to_string().as_bytes());
        assert_eq!(read, !kinds_without_store.contains(&kind), "{kind}");
    }
}

#[test]
fn items_of_a_list_have_the_given_kind() {
    let bytes = br#"{"metadata":{"name":"a"},"provisioner":"p"}"#;
    assert!(same("StorageClass", bytes) && same("Namespace", bytes));
    assert!(same("Pod", bytes) && same("Node", bytes));
    assert!(!same("Deployment", bytes));
}

#[test]
fn the_kind_may_be_in_any_position() {
    let late = br#"{"metadata":{"name":"a"},"spec":{"minMember":2},"kind":"PodGroup",
        "apiVersion":"scheduling.x-k8s.io/v1alpha1"}"#;
    assert!(same("Service", late));
    assert!(!same("Pod", late) && !same("Node", late));
    let pod = br#"{"metadata":{"name":"a"},"kind":"Pod"}"#;
    assert!(same("Pod", pod) && !same("Node", pod));
}

#[test]
fn the_last_of_repeated_fields_counts() {
    for bytes in [
        r#"{"kind":"Node","kind":"Pod","metadata":{"name":"a"},"metadata":{"name":"b"}}"#,
        r#"{"kind":"Pod","kind":5,"metadata":{"name":"a"}}"#,
        r#"{"metadata":{"name":"a","labels":{"k":"1","j":"0","k":"2"}}}"#,
        r#"{"spec":{"containers":[{"resources":{"requests":{"cpu":"x","cpu":"1"}}}]}}"#,
        r#"{"spec":{"affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":
            [{"labelSelector":{"matchLabels":{"a":"1","a":"2"}}}]}}}}"#,
    ] {
        assert!(same("Pod", bytes.as_bytes()), "{bytes}");
    }
    let group = br#"{"apiVersion":"scheduling.k8s.io/v1","kind":"PodGroup","metadata":{"name":"g"},
        "spec":{"minMember":2},"apiVersion":"scheduling.x-k8s.io/v1"}"#;
    assert!(same("PodGroup", group));
    let kinds =
        br#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"g"},"kind":"Namespace"}"#;
    assert!(same("PodGroup", kinds));
}

#[test]
fn null_is_absent() {
    let bytes = br#"{"kind":null,"apiVersion":null,"metadata":{"name":"a","labels":null,"uid":null},"spec":null}"#;
    for kind in ["Pod", "Node", "Service", "PodGroup"] {
        assert!(same(kind, bytes), "{kind}");
    }
}

#[test]
fn errors_name_the_field() {
    let path = |bytes: &str| pod_from_slice(bytes.as_bytes()).unwrap_err().path().to_owned();
    let of_type = r#"{"spec":{"containers":[{},{"ports":[{"hostPort":"80"}]}]}}"#;
    assert_eq!(path(of_type), "spec.containers[1].ports[0].hostPort");
    let of_value = r#"{"spec":{"containers":[{"resources":{"requests":{"cpu":"1x"}}}]}}"#;
    assert_eq!(path(of_value), "spec.containers[0].resources.requests.cpu");
    let of_syntax = pod_from_slice(b"{\"spec\":\n{\"nodeName\": n1}}").unwrap_err();
    assert_eq!((of_syntax.path(), of_syntax.line()), ("spec.nodeName", Some(2)));
    assert_eq!(path("{} {}"), "");
    assert_eq!(path(""), "");
}

#[test]
fn skipped_fields_are_only_checked_for_syntax() {
    let pod = pod_from_slice(br#"{"metadata":{"name":"a","x":1e999,"y":"\ud800"}}"#).unwrap();
    assert_eq!(&*pod.name, "a");
    assert!(pod_from_slice(b"{\"metadata\":{\"x\":\"\xff\"}}").is_err());
    assert!(pod_from_slice(b"{\"metadata\":{\"x\":[1,]}}").is_err());
}

/// A JSON tree in which a key can be repeated.
#[derive(Clone, Debug)]
enum Json {
    Scalar(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    fn of(value: &Value) -> Json {
        match value {
            Value::Array(list) => Json::List(list.iter().map(Json::of).collect()),
            Value::Object(map) => Json::Object(
                map.iter().map(|(key, value)| (key.clone(), Json::of(value))).collect(),
            ),
            scalar => Json::Scalar(scalar.to_string()),
        }
    }

    fn write(&self, text: &mut String) {
        match self {
            Json::Scalar(scalar) => text.push_str(scalar),
            Json::List(list) => {
                text.push('[');
                for (i, one) in list.iter().enumerate() {
                    text.push_str(if i > 0 { "," } else { "" });
                    one.write(text);
                }
                text.push(']');
            }
            Json::Object(fields) => {
                text.push('{');
                for (i, (key, value)) in fields.iter().enumerate() {
                    text.push_str(if i > 0 { "," } else { "" });
                    text.push_str(&Value::from(&**key).to_string());
                    text.push(':');
                    value.write(text);
                }
                text.push('}');
            }
        }
    }

    fn size(&self) -> usize {
        1 + match self {
            Json::Scalar(_) => 0,
            Json::List(list) => list.iter().map(Json::size).sum(),
            Json::Object(fields) => fields.iter().map(|(_, value)| value.size()).sum(),
        }
    }

    /// Returns part `at`, counted in preorder.
    fn part(&mut self, at: usize) -> &mut Json {
        let mut at = at;
        let mut here = self;
        while at > 0 {
            at -= 1;
            let parts: Vec<&mut Json> = match here {
                Json::Scalar(_) => Vec::new(),
                Json::List(list) => list.iter_mut().collect(),
                Json::Object(fields) => fields.iter_mut().map(|(_, value)| value).collect(),
            };
            let mut next = None;
            for part in parts {
                let size = part.size();
                if at < size {
                    next = Some(part);
                    break;
                }
                at -= size;
            }
            here = next.expect("a part within the size");
        }
        here
    }
}

#[derive(Clone, Debug)]
enum Mutation {
    Replace(&'static str),
    Remove(Index),
    Reverse,
    /// Repeats a key with another value, before or after the first.
    Repeat(Index, &'static str, bool),
    Rename(Index, &'static str),
    Add(&'static str, &'static str),
}

const VALUES: [&str; 23] = [
    "null",
    "true",
    "0",
    "-1",
    "1",
    "1.5",
    "-0",
    "1e3",
    "65536",
    "2147483648",
    "18446744073709551616",
    r#""""#,
    r#""x""#,
    r#""1""#,
    r#""100m""#,
    r#""-1""#,
    r#""In""#,
    r#""Pod""#,
    r#""\u00e9\n""#,
    "[]",
    "{}",
    "[null]",
    r#"{"cpu":"1"}"#,
];
const KEYS: [&str; 12] = [
    "kind",
    "apiVersion",
    "metadata",
    "spec",
    "status",
    "name",
    "labels",
    "requests",
    "cpu",
    "Name",
    "x",
    "",
];

fn mutation() -> impl Strategy<Value = Mutation> {
    prop_oneof![
        3 => select(&VALUES[..]).prop_map(Mutation::Replace),
        1 => any::<Index>().prop_map(Mutation::Remove),
        1 => Just(Mutation::Reverse),
        3 => (any::<Index>(), select(&VALUES[..]), any::<bool>())
            .prop_map(|(at, value, before)| Mutation::Repeat(at, value, before)),
        1 => (any::<Index>(), select(&KEYS[..])).prop_map(|(at, key)| Mutation::Rename(at, key)),
        1 => (select(&KEYS[..]), select(&VALUES[..])).prop_map(|(key, value)| Mutation::Add(key, value)),
    ]
}

fn mutate(json: &mut Json, mutation: &Mutation) {
    let scalar = |text: &str| Json::of(&serde_json::from_str(text).expect("JSON"));
    match (mutation, json) {
        (Mutation::Replace(value), json) => *json = scalar(value),
        (Mutation::Remove(at), Json::List(list)) if !list.is_empty() => {
            list.remove(at.index(list.len()));
        }
        (Mutation::Remove(at), Json::Object(fields)) if !fields.is_empty() => {
            fields.remove(at.index(fields.len()));
        }
        (Mutation::Reverse, Json::List(list)) => list.reverse(),
        (Mutation::Reverse, Json::Object(fields)) => fields.reverse(),
        (Mutation::Repeat(at, value, before), Json::Object(fields)) if !fields.is_empty() => {
            let key = fields[at.index(fields.len())].0.clone();
            let place = if *before { 0 } else { fields.len() };
            fields.insert(place, (key, scalar(value)));
        }
        (Mutation::Rename(at, key), Json::Object(fields)) if !fields.is_empty() => {
            let at = at.index(fields.len());
            fields[at].0 = (*key).to_owned();
        }
        (Mutation::Add(key, value), Json::Object(fields)) => {
            fields.push(((*key).to_owned(), scalar(value)));
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mutated_objects_read_the_same(
        object in select(objects()),
        mutations in proptest::collection::vec((any::<Index>(), mutation()), 0..4),
    ) {
        let mut json = Json::of(&object);
        for (at, mutation) in &mutations {
            let size = json.size();
            mutate(json.part(at.index(size)), mutation);
        }
        let mut text = String::new();
        json.write(&mut text);
        match mutations.len() {
            0 | 1 => same(kind_of(&object), text.as_bytes()),
            // Of several faults, the one that is found first depends on the order of the fields.
            _ => same_but_for_errors(kind_of(&object), text.as_bytes(), drop),
        };
    }

    #[test]
    fn damaged_bytes_read_the_same_or_are_refused(
        object in select(objects()),
        at in any::<Index>(),
        byte in any::<u8>(),
        cut in any::<bool>(),
    ) {
        let mut bytes = object.to_string().into_bytes();
        let at = at.index(bytes.len());
        if cut {
            bytes.truncate(at);
        } else {
            bytes[at] = byte;
        }
        let kind = kind_of(&object);
        if serde_json::from_slice::<Value>(&bytes).is_ok() {
            same(kind, &bytes);
        } else {
            let refused = match kind {
                "Pod" => pod_from_slice(&bytes).is_err(),
                "Node" => node_from_slice(&bytes).is_err(),
                _ => object_from_slice(kind, &bytes).is_err(),
            };
            // A skipped number may be out of range, and a skipped escape may be an unpaired surrogate, but both must be
            // complete.
            prop_assert!(refused || !cut);
        }
    }
}

#[test]
fn only_skipped_fields_may_be_nested_deeply() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let metadata = format!(r#"{{"name":"a","namespace":"d","uid":"u","managedFields":{deep}}}"#);
    assert!(pod_from_slice(format!(r#"{{"metadata":{metadata}}}"#).as_bytes()).is_ok());
    let read = format!(r#"{{"metadata":{{"name":"a","labels":{deep}}}}}"#);
    assert!(pod_from_slice(read.as_bytes()).is_err());
}
