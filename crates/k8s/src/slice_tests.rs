//! Reading pods and nodes directly from bytes gives the same as reading them through a tree.

use std::collections::BTreeMap;
use std::fmt::Debug;

use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::Value;

use super::error::ReadError;
use super::single::{node_in, node_of, pod_in, pod_of};
use super::slice::{direct, value};
use super::{object_from_slice, pod_from_slice};

const POD: &str = include_str!("../tests/objects/pod.json");
/// Objects of most kinds, with every field that is read.
const CATALOGUE: &str = include_str!("../../../fuzz/targets/input/objects.json");

/// Reads bytes both ways, and compares what is read directly. Returns whether the tree was read, and whether that was
/// necessary.
fn read(kind: &str, bytes: &[u8]) -> [bool; 2] {
    fn compare<T: PartialEq + Debug>(
        direct: Result<T, ReadError>,
        tree: Result<Result<T, ReadError>, ReadError>,
    ) -> [bool; 2] {
        let read = [matches!(tree, Ok(Ok(_))), direct.is_err()];
        // A skipped number may be out of range, and a skipped escape may be an unpaired surrogate.
        if let (Ok(direct), Ok(tree)) = (direct, tree) {
            assert_eq!(Ok(direct), tree);
        }
        read
    }
    let tree = value(bytes);
    match kind {
        "Pod" => compare(direct(bytes, kind).and_then(pod_of), tree.map(|tree| pod_in(&tree))),
        _ => compare(direct(bytes, kind).and_then(node_of), tree.map(|tree| node_in(&tree))),
    }
}

/// Returns the objects from which the tests start.
fn objects() -> Vec<Value> {
    let list: Value = serde_json::from_str(CATALOGUE).expect("JSON");
    let pod = serde_json::from_str(POD).expect("JSON");
    let all = list["items"].as_array().expect("a list").iter().cloned().chain([pod]);
    all.filter(|object| matches!(kind_of(object), "Pod" | "Node")).collect()
}

fn kind_of(object: &Value) -> &str {
    object["kind"].as_str().expect("a kind")
}

#[test]
fn usual_objects_are_read_directly() {
    for value in objects() {
        assert_eq!(read(kind_of(&value), value.to_string().as_bytes()), [true, false], "{value}");
    }
    let nulls = br#"{"kind":null,"apiVersion":null,"metadata":{"name":"a","labels":null,"uid":null},"spec":null}"#;
    assert_eq!(read("Pod", nulls), read("Node", nulls));
}

#[test]
fn objects_have_the_given_kind_unless_they_name_theirs() {
    let bytes = br#"{"metadata":{"name":"a"},"provisioner":"p"}"#;
    assert!(
        ["StorageClass", "Namespace"].iter().all(|kind| object_from_slice(kind, bytes).is_ok())
    );
    assert!(["Deployment", "Pod"].iter().all(|kind| object_from_slice(kind, bytes).is_err()));
    assert_eq!([read("Pod", bytes), read("Node", bytes)], [[true, false]; 2]);
    let late = br#"{"metadata":{"name":"a"},"spec":{"minMember":2},"kind":"PodGroup",
        "apiVersion":"scheduling.x-k8s.io/v1alpha1"}"#;
    assert!(object_from_slice("Service", late).is_ok());
    assert_eq!([read("Pod", late), read("Node", late)], [[false, true]; 2]);
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
        assert!(read("Pod", bytes.as_bytes())[0], "{bytes}");
    }
    let kinds =
        br#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"g"},"kind":"Namespace"}"#;
    assert!(object_from_slice("PodGroup", kinds).is_ok());
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

/// A change of a field or of an item of a list.
#[derive(Clone, Debug)]
enum Change {
    Replace(&'static str),
    Remove,
    /// Repeats it with another value, before or after the first.
    Repeat(&'static str, bool),
    Rename(&'static str),
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

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => select(&VALUES[..]).prop_map(Change::Replace),
        1 => Just(Change::Remove),
        3 => (select(&VALUES[..]), any::<bool>())
            .prop_map(|(value, before)| Change::Repeat(value, before)),
        1 => select(&KEYS[..]).prop_map(Change::Rename),
    ]
}

/// Writes JSON, with changes of its parts. The parts are counted in preorder.
#[derive(Default)]
struct Writer {
    changes: BTreeMap<usize, Change>,
    reverse: bool,
    parts: usize,
}

impl Writer {
    fn text(&mut self, value: &Value) -> String {
        let (mut parts, ends): (Vec<(Option<&str>, &Value)>, _) = match value {
            Value::Array(list) => (list.iter().map(|value| (None, value)).collect(), ['[', ']']),
            Value::Object(map) => {
                (map.iter().map(|(key, value)| (Some(&**key), value)).collect(), ['{', '}'])
            }
            scalar => return scalar.to_string(),
        };
        if self.reverse {
            parts.reverse();
        }
        let parts: Vec<_> =
            parts.into_iter().flat_map(|(key, value)| self.part(key, value)).collect();
        format!("{}{}{}", ends[0], parts.join(","), ends[1])
    }

    fn part(&mut self, key: Option<&str>, value: &Value) -> Vec<String> {
        let change = self.changes.get(&self.parts).cloned();
        self.parts += 1;
        let value = self.text(value);
        let name = key.map(|key| format!("{}:", Value::from(key))).unwrap_or_default();
        let with = |value: &str| format!("{name}{value}");
        match change {
            None => vec![with(&value)],
            Some(Change::Replace(other)) => vec![with(other)],
            Some(Change::Remove) => Vec::new(),
            Some(Change::Repeat(other, true)) => vec![with(other), with(&value)],
            Some(Change::Repeat(other, false)) => vec![with(&value), with(other)],
            Some(Change::Rename(other)) if key.is_some() => {
                vec![format!("{}:{value}", Value::from(other))]
            }
            Some(Change::Rename(_)) => vec![value],
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changed_objects_read_the_same(
        object in select(objects()),
        reverse in any::<bool>(),
        changes in proptest::collection::vec((any::<Index>(), change()), 0..4),
    ) {
        let mut whole = Writer::default();
        whole.text(&object);
        let changes = changes.into_iter().map(|(at, change)| (at.index(whole.parts), change)).collect();
        let text = Writer { changes, reverse, parts: 0 }.text(&object);
        read(kind_of(&object), text.as_bytes());
    }

    #[test]
    fn damaged_bytes_read_the_same_or_are_refused(
        object in select(objects()),
        at in any::<Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = object.to_string().into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        read(kind_of(&object), &bytes);
        bytes.truncate(at);
        assert_eq!(read(kind_of(&object), &bytes), [false, true]);
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
