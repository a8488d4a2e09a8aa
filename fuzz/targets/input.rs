//! The body of the fuzz target, shared by the fuzzer and the command-line program's tests: passes bytes to every
//! parser.
//!
//! The first byte selects the parser. Most parsers receive the remaining bytes unchanged. The last three instead make a
//! few changes to objects that have every field, which reaches deeper than random bytes do. Accepted objects are added
//! to an engine, and a few pods are evaluated there. A rejection must name its location. Time and memory are bounded by
//! the fuzzer's own limits.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use arbitrary::{Arbitrary, Unstructured};
use portolan::Framework;
use portolan::cache::{Config, Engine, Writer};
use portolan::model::{Node, Pod};
use portolan::plugin::Handle;
use portolan_k8s::config::{Configuration, Registry};
use serde_json::{Map, Value, json};

use crate::files::openb::{self, Arrival, Priorities};
use crate::files::{self, Wrong};
use crate::vectors::{self, Tally};
use portolan_testkit::sample::Checks;

const PARSERS: [fn(&[u8], Checks); 12] = [
    |bytes, checks| objects(portolan_k8s::read_json(bytes), bytes, checks),
    |bytes, checks| {
        text(bytes, checks, |text| objects(portolan_k8s::read_yaml(text), bytes, checks))
    },
    |bytes, checks| text(bytes, checks, |_| objects(portolan_k8s::read(bytes), bytes, checks)),
    |bytes, checks| text(bytes, checks, |text| configuration(text, checks)),
    vectors,
    nodes,
    pods,
    stored,
    scalars,
    grown_objects,
    grown_configuration,
    grown_vectors,
];

/// The numbers of the checks that most samples omit.
mod check {
    pub(super) const ALIASES: u64 = 0;
    pub(super) const YAML: u64 = 1;
    pub(super) const AUDIT: u64 = 2;
    pub(super) const STRICT: u64 = 3;
    pub(super) const PRIORITIES: u64 = 4;
}

/// Runs one input with a sample of the expensive checks. The first byte `0` selects the first parser.
#[allow(dead_code, reason = "replays run all checks")]
pub(crate) fn run(data: &[u8]) {
    run_checking(data, Checks::for_input(data));
}

/// Runs one input with all checks.
#[allow(dead_code, reason = "fuzzers run a sample of the checks")]
pub(crate) fn run_closely(data: &[u8]) {
    run_checking(data, Checks::All);
}

fn run_checking(data: &[u8], checks: Checks) {
    if let Some((choice, rest)) = data.split_first() {
        PARSERS[usize::from(choice.wrapping_sub(b'0')) % PARSERS.len()](rest, checks);
    }
}

/// Passes a text to a parser. A text with many aliases, up to the parser's limit, takes as long as fifty other inputs,
/// and fuzzers tend towards such texts.
fn text(bytes: &[u8], checks: Checks, read: impl Fn(&str)) {
    if let Ok(text) = std::str::from_utf8(bytes)
        && (text.matches('*').count() <= 16 || checks.include(check::ALIASES, 16))
    {
        read(text);
    }
}

/// Returns whether an input has this line, counted from 1. The end of the input counts as the line after the last
/// newline.
fn has_line(bytes: &[u8], line: u64) -> bool {
    // YAML also counts carriage returns.
    let ends = bytes.iter().filter(|byte| matches!(byte, b'\n' | b'\r')).count() as u64;
    (1..=ends + 1).contains(&line)
}

fn refused(error: &portolan_k8s::ReadError, bytes: &[u8]) {
    assert!(!error.cause().to_string().is_empty());
    match error.line() {
        Some(line) => assert!(has_line(bytes, line), "{error}: there is no line {line}"),
        // If the input is one object without a known kind, the error concerns the whole input.
        None => assert!(
            !error.path().is_empty()
                || matches!(
                    error.cause(),
                    portolan_k8s::Cause::NoKind | portolan_k8s::Cause::Kind { .. }
                ),
            "{error}: no location"
        ),
    }
}

fn objects(
    read: Result<portolan_k8s::Objects, portolan_k8s::ReadError>,
    bytes: &[u8],
    checks: Checks,
) {
    match read {
        Ok(objects) => admit(objects, checks),
        Err(error) => refused(&error, bytes),
    }
}

/// Adds all objects to an engine, as the command-line program does. An engine may refuse what a parser accepts, such as
/// a duplicate pod, and must remain consistent.
fn admit(mut objects: portolan_k8s::Objects, checks: Checks) {
    let replicas = objects.controllers.iter().map(|controller| controller.replicas);
    if replicas.fold(0, usize::saturating_add) <= 200 {
        objects.expand();
    }
    for defaulted in &objects.defaulted {
        assert!(!defaulted.to_string().is_empty());
    }
    let (mut writer, _) = Engine::inline(Config::default());
    for object in objects.objects {
        drop(writer.put_object(object));
    }
    for node in objects.nodes {
        drop(writer.add_node(node));
    }
    let (placed, pending): (Vec<Pod>, Vec<Pod>) =
        objects.pods.into_iter().partition(|pod| pod.node_name.is_some());
    for pod in placed {
        drop(writer.add_pod(pod));
    }
    place(&mut writer, pending, &PROFILE, checks);
}

/// Places the first few pods, each on its best node.
fn place(writer: &mut Writer, pods: Vec<Pod>, framework: &Framework, checks: Checks) {
    for mut pod in pods.into_iter().take(4) {
        writer.publish();
        let evaluation = framework.evaluate(writer.cluster(), &pod);
        if let Some(error) = &evaluation.rejected {
            assert!(!error.to_string().is_empty());
        }
        let fitting = evaluation.nodes.iter().filter(|(_, verdict)| verdict.status.is_none());
        let best = fitting.max_by_key(|(_, verdict)| verdict.total());
        pod.node_name = best.map(|(name, _)| name.clone());
        drop(writer.assume_pod(pod));
    }
    writer.publish();
    if checks.include(check::AUDIT, 4) {
        assert_eq!(writer.cluster().audit(), vec![]);
    }
}

fn configuration(text: &str, checks: Checks) {
    match Configuration::read(text, &Registry::in_tree(), &Handle::default()) {
        Ok(configuration) => {
            assert!(!configuration.profiles.is_empty());
            let (nodes, pods) = &*CLUSTER;
            let (mut writer, _) = Engine::inline(Config::default());
            for node in nodes {
                writer.add_node(node.clone()).expect("the catalogue's nodes are valid");
            }
            for profile in configuration.profiles.into_iter().take(2) {
                place(&mut writer, pods.clone(), &profile.framework, checks);
            }
        }
        Err(error) => {
            assert!(!error.what().is_empty());
            assert!(has_line(text.as_bytes(), error.line()), "{error}: line {}", error.line());
        }
    }
}

fn wrong(wrong: &Wrong, bytes: &[u8], may_lack_line: bool) {
    assert!(!wrong.what.is_empty());
    match wrong.line {
        Some(line) => assert!(has_line(bytes, line), "{}: there is no line {line}", wrong.what),
        None => assert!(may_lack_line, "{}: no location", wrong.what),
    }
}

fn vectors(bytes: &[u8], checks: Checks) {
    let bytes = match files::content(&mut { files::MOST }, bytes.to_vec()) {
        Ok(content) => content,
        Err(error) => return wrong(&error, bytes, true),
    };
    let scenarios = match vectors::scenarios(&bytes) {
        Ok(scenarios) => scenarios,
        Err(error) => return wrong(&error, &bytes, false),
    };
    let mut tally = Tally::default();
    for scenario in &scenarios {
        for strict in checks.choose(check::STRICT, &[false, true]) {
            if let Err(error) = scenario.run(*strict, &mut tally) {
                wrong(&error, &bytes, false);
            }
        }
    }
    assert!(tally.stale <= tally.passed && tally.differences.iter().all(|d| !d.is_empty()));
}

fn nodes(bytes: &[u8], checks: Checks) {
    match openb::nodes(bytes) {
        Ok(nodes) => admit_all(nodes, Vec::new(), checks),
        Err(error) => wrong(&error, bytes, false),
    }
}

fn pods(bytes: &[u8], checks: Checks) {
    let both = [Priorities::Alike, Priorities::ByQos];
    for priorities in checks.choose(check::PRIORITIES, &both) {
        match openb::pods(bytes, *priorities) {
            Ok(arrivals) => {
                let is_timed = |arrival: &Arrival| arrival.times.is_none_or(|(from, _)| from >= 0);
                assert!(arrivals.iter().all(is_timed));
                let nodes = vec![portolan::model::node("n1").cpu(1).build()];
                admit_all(nodes, arrivals, checks);
            }
            Err(error) => wrong(&error, bytes, false),
        }
    }
}

fn admit_all(nodes: Vec<Node>, arrivals: Vec<Arrival>, checks: Checks) {
    let (mut writer, _) = Engine::inline(Config::default());
    for node in nodes {
        drop(writer.add_node(node));
    }
    let pods = arrivals.into_iter().map(|arrival| arrival.pod).collect();
    place(&mut writer, pods, &PROFILE, checks);
}

/// The kinds that have stores, and the names of their lists in vectors.
const KINDS: [(&str, &str); 12] = [
    ("Namespace", "namespaces"),
    ("Service", "services"),
    ("ReplicationController", "replicationControllers"),
    ("ReplicaSet", "replicaSets"),
    ("StatefulSet", "statefulSets"),
    ("PersistentVolume", "persistentVolumes"),
    ("PersistentVolumeClaim", "persistentVolumeClaims"),
    ("StorageClass", "storageClasses"),
    ("CSINode", "csiNodes"),
    ("VolumeAttachment", "volumeAttachments"),
    ("CSIDriver", "csiDrivers"),
    ("CSIStorageCapacity", "csiStorageCapacities"),
];

/// Reads bytes, as an API server sends them, as an object of every kind.
fn stored(bytes: &[u8], checks: Checks) {
    let (mut writer, _) = Engine::inline(Config::default());
    // An error that concerns the whole object has no path.
    let check_error = |error: &portolan_k8s::ReadError| assert!(!error.to_string().is_empty());
    match portolan_k8s::node_from_slice(bytes) {
        Ok(node) => drop(writer.add_node(node)),
        Err(error) => check_error(&error),
    }
    for (kind, _) in KINDS {
        match portolan_k8s::object_from_slice(kind, bytes) {
            Ok(object) => drop(writer.put_object(object)),
            Err(error) => check_error(&error),
        }
    }
    match portolan_k8s::pod_from_slice(bytes) {
        Ok(pod) => {
            drop(writer.add_pod(pod.clone()));
            place(&mut writer, vec![pod], &PROFILE, checks);
        }
        Err(error) => check_error(&error),
    }
}

/// Reads the lines of a text as quantities, times, and parts of selectors.
fn scalars(bytes: &[u8], checks: Checks) {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.split('\n');
    let mut next = || lines.next().unwrap_or_default();
    let requirement = |key: &str, operator: &str, value: &str| json!({"key": key, "operator": operator, "values": [value]});
    let (time, amount, port) = (next(), next(), next().parse::<i64>().unwrap_or(0));
    let (key, operator, value) = (next(), next(), next());
    let selector = json!({
        "matchLabels": {key: value},
        "matchExpressions": [requirement(next(), next(), next())],
    });
    let term = json!({"matchExpressions": [requirement(key, operator, value)],
        "matchFields": [requirement(next(), next(), next())]});
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": next(), "namespace": next(), "uid": next(), "resourceVersion": next(),
            "creationTimestamp": time, "labels": {key: value}},
        "spec": {"nodeName": next(),
            "containers": [{"resources": {"requests": {"cpu": amount, next(): amount}},
                "ports": [{"hostPort": port, "protocol": next(), "hostIP": next()}]}],
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                    {"nodeSelectorTerms": [term]}},
                "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                    [{"topologyKey": next(), "labelSelector": selector, "matchLabelKeys": [key]}]}},
            "tolerations": [{"key": key, "operator": next(), "value": value, "effect": next()}]}});
    let node = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n", "labels": {key: value}},
        "status": {"allocatable": {"cpu": amount, "memory": next()}}});
    for object in [pod, node] {
        let text = object.to_string();
        objects(portolan_k8s::read_json(text.as_bytes()), text.as_bytes(), checks);
    }
}

/// Objects of all kinds, with every field that the parsers read.
static CATALOGUE: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let list: Value = serde_json::from_str(include_str!("input/objects.json")).expect("JSON");
    list["items"].as_array().cloned().expect("a list")
});

/// The nodes and pods among the catalogue's first objects, used to evaluate configurations.
static CLUSTER: LazyLock<(Vec<Node>, Vec<Pod>)> = LazyLock::new(|| {
    let catalogue = CATALOGUE.iter().take(6).cloned().collect::<Vec<_>>();
    let text = Value::Array(catalogue).to_string();
    let objects = portolan_k8s::read_json(text.as_bytes()).expect("the catalogue is valid");
    (objects.nodes, objects.pods)
});

/// The profile that evaluates parsed objects. It keeps no state from one evaluation to the next.
static PROFILE: LazyLock<Framework> = LazyLock::new(Framework::default_profile);

static CONFIGURATION: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("input/configuration.json")).expect("JSON"));

/// One change at a position that is found by descending from the root.
#[derive(Arbitrary, Debug)]
struct Change<'a> {
    path: [u8; 8],
    edit: Edit<'a>,
}

#[derive(Arbitrary, Debug)]
enum Edit<'a> {
    Remove,
    Null,
    Empty,
    Wrap,
    Repeat(u8),
    Number(i64),
    Small(i8),
    Fraction(f64),
    Known(u8),
    Text(&'a str),
    Rename(&'a str),
    Swap(u8),
}

const KNOWN: [&str; 40] = [
    "n1",
    "n2",
    "shop",
    "web",
    "app",
    "zone",
    "z1",
    "fast",
    "pv",
    "data",
    "high",
    "kata",
    "ebs",
    "In",
    "NotIn",
    "Exists",
    "DoesNotExist",
    "Gt",
    "Lt",
    "Equal",
    "NoSchedule",
    "NoExecute",
    "0",
    "-1",
    "1e400",
    "9223372036854775807",
    "-9223372036854775808",
    "8Ei",
    "1n",
    "100m",
    ".5",
    "1677-09-21T00:12:44Z",
    "2262-04-11T23:47:16.854775807Z",
    "Succeeded",
    "Pod",
    "PodList",
    "system-node-critical",
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "",
];

impl Change<'_> {
    fn apply(&self, root: &mut Value) {
        let mut at = root;
        let mut path = self.path.iter();
        loop {
            let last = path.len() <= 1;
            let step = usize::from(*path.next().unwrap_or(&0));
            let length = match &*at {
                Value::Array(list) => list.len(),
                Value::Object(map) => map.len(),
                _ => 0,
            };
            if length == 0 {
                return self.change(at);
            }
            // Most changes apply to a leaf, or to its parent.
            if last || step >= 240 {
                return self.within(at, step % length);
            }
            let next = match at {
                Value::Array(list) => list.get_mut(step % length),
                Value::Object(map) => map.values_mut().nth(step % length),
                _ => None,
            };
            let Some(next) = next else { return };
            at = next;
        }
    }

    fn within(&self, parent: &mut Value, index: usize) {
        match (&self.edit, parent) {
            (Edit::Remove, Value::Array(list)) => drop(list.remove(index)),
            (Edit::Repeat(times), Value::Array(list)) => {
                let one = list[index].clone();
                list.extend(std::iter::repeat_n(one, usize::from(*times) % 4));
            }
            (Edit::Swap(other), Value::Array(list)) => {
                let other = usize::from(*other) % list.len();
                list.swap(index, other);
            }
            (Edit::Remove | Edit::Rename(_), Value::Object(map)) => {
                let key = map.keys().nth(index).cloned().unwrap_or_default();
                let value = map.remove(&key).unwrap_or_default();
                if let Edit::Rename(name) = self.edit {
                    // A YAML key has at most 1,024 characters.
                    map.insert(name.chars().take(200).collect(), value);
                }
            }
            (_, Value::Array(list)) => self.change(&mut list[index]),
            (_, Value::Object(map)) => {
                if let Some(value) = map.values_mut().nth(index) {
                    self.change(value);
                }
            }
            (_, value) => self.change(value),
        }
    }

    fn change(&self, value: &mut Value) {
        *value = match &self.edit {
            Edit::Remove | Edit::Null => Value::Null,
            Edit::Empty if value.is_array() => json!([]),
            Edit::Empty if value.is_object() => json!({}),
            Edit::Empty => json!(""),
            Edit::Wrap | Edit::Repeat(_) | Edit::Swap(_) => json!([value.take()]),
            Edit::Number(number) => json!(number),
            Edit::Small(number) => json!(number),
            Edit::Fraction(number) => json!(number),
            Edit::Known(which) => json!(KNOWN[usize::from(*which) % KNOWN.len()]),
            Edit::Text(text) | Edit::Rename(text) => json!(text),
        };
    }
}

/// Returns a few of the catalogue's objects with changes.
fn some(input: &mut Unstructured<'_>) -> arbitrary::Result<Vec<Value>> {
    let mut list = Vec::new();
    for _ in 0..input.int_in_range(1..=4)? {
        list.push(input.choose(&CATALOGUE)?.clone());
    }
    let mut list = Value::Array(list);
    for _ in 0..input.int_in_range(0..=12)? {
        Change::arbitrary(input)?.apply(&mut list);
    }
    Ok(list.as_array_mut().map(std::mem::take).unwrap_or_default())
}

/// Returns whether a YAML parser reads the characters of a JSON text unchanged.
fn is_plain(text: &str) -> bool {
    text.chars().all(|c| (' '..='~').contains(&c))
}

/// Creates an object by moving these fields, which `json!` would serialize and parse again.
fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    Value::Object(
        fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<Map<_, _>>(),
    )
}

fn grown_objects(bytes: &[u8], checks: Checks) {
    let mut input = Unstructured::new(bytes);
    let Ok(list) = some(&mut input) else { return };
    let list = [("kind", "List".into()), ("apiVersion", "v1".into()), ("items", list.into())];
    let text = object(list).to_string();
    let from_json = portolan_k8s::read_json(text.as_bytes());
    if checks.include(check::YAML, 16) {
        let from_yaml = portolan_k8s::read_yaml(&text);
        if let Err(error) = &from_yaml {
            refused(error, text.as_bytes());
        }
        if let (Ok(json), true) = (&from_json, is_plain(&text)) {
            let yaml = from_yaml
                .unwrap_or_else(|error| panic!("JSON text is not valid YAML: {error}: {text}"));
            assert_eq!(format!("{json:?}"), format!("{yaml:?}"));
        }
    }
    objects(from_json, text.as_bytes(), checks);
}

fn grown_configuration(bytes: &[u8], checks: Checks) {
    let mut input = Unstructured::new(bytes);
    let mut value = CONFIGURATION.clone();
    for _ in 0..input.int_in_range(0..=12).unwrap_or(0) {
        let Ok(change) = Change::arbitrary(&mut input) else { break };
        change.apply(&mut value);
    }
    configuration(&value.to_string(), checks);
}

const OPERATIONS: [&str; 13] = [
    "assumePod",
    "finishBinding",
    "forgetPod",
    "addPod",
    "updatePod",
    "removePod",
    "isAssumedPod",
    "getPod",
    "addNode",
    "updateNode",
    "removeNode",
    "cleanup",
    "",
];

fn grown_vectors(bytes: &[u8], checks: Checks) {
    let mut input = Unstructured::new(bytes);
    let Ok(scenario) = scenario(&mut input) else { return };
    vectors(scenario.to_string().as_bytes(), checks);
}

fn scenario(input: &mut Unstructured<'_>) -> arbitrary::Result<Value> {
    let mut kinds = BTreeMap::<String, Vec<Value>>::new();
    for object in some(input)? {
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        kinds.entry(kind).or_default().push(object);
    }
    let mut of = |kind| kinds.remove(kind).unwrap_or_default();
    let (nodes, pods) = (of("Node"), of("Pod"));
    let mut value = if input.arbitrary()? {
        let case = |pod: &Value| object([("pod", pod.clone()), ("nodes", json!({}))]);
        let cases: Vec<_> = pods.iter().map(case).collect();
        let mut value = object([
            ("id", "s".into()),
            ("cases", cases.into()),
            ("nodes", nodes.into()),
            ("pods", pods.into()),
        ]);
        for (kind, list) in KINDS {
            value[list] = of(kind).into();
        }
        value
    } else {
        let mut operations = Vec::new();
        for at in 0..input.int_in_range(0..=12)? {
            let op = *input.choose(&OPERATIONS)?;
            let mut operation = json!({"op": op, "atMs": at * 9_000});
            let empty = [Value::Null];
            let pod = input.choose(if pods.is_empty() { &empty } else { &pods })?;
            let node = input.choose(if nodes.is_empty() { &empty } else { &nodes })?;
            // Any other field would be parsed but not used.
            if op.ends_with("Node") {
                operation["node"] = node.clone();
            } else {
                operation["pod"] = pod.clone();
            }
            if op == "updatePod" {
                operation["old"] = pod.clone();
            }
            if input.ratio(1, 4)? {
                operation["state"] = json!({"nodes": {"n1": {"pods": ["u-web-0@7"],
                    "podsWithAffinity": ["u-web-0", "gone"]}}, "affinityList": ["n1"]});
            }
            operations.push(operation);
        }
        object([("id", "c".into()), ("ttlMs", 20_000.into()), ("ops", operations.into())])
    };
    for _ in 0..input.int_in_range(0..=3)? {
        Change::arbitrary(input)?.apply(&mut value);
    }
    Ok(value)
}
