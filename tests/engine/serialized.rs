//! Serialization of events: deserialized events are equal, and replaying them gives the same state.

use std::time::Duration;

use portolan::cache::{Config, Engine, Event, GodelConfig, Outcome, Writer};
use portolan::model::{
    AccessMode, ClaimReference, CsiDriver, CsiNode, CsiNodeDriver, CsiStorageCapacity, Generation,
    InTreePlugin, LabelSelector, Labels, NodeAffinity, NodeSelector, NodeSelectorTerm, Object,
    Operator, PersistentVolume, PersistentVolumeClaim, Pod, PodAffinity, PodAffinityTerm,
    PreferredSchedulingTerm, Quantity, Requirement, Service, StorageClass,
    TopologySpreadConstraint, Uid, UnsatisfiableAction, VolumeAttachment, VolumeSource,
    WeightedPodAffinityTerm, node, pod,
};
use portolan::{Algorithm, AlgorithmConfig, Framework};
use portolan_testkit::events::Op;
use portolan_testkit::random::Random;
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const CASES: u32 = if cfg!(miri) { 2 } else { 128 };
const STEPS: usize = if cfg!(miri) { 8 } else { 80 };

fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// Serializes a value and deserializes it again. The debug form also shows derived fields, such as hashes.
fn round_trip<T: Serialize + DeserializeOwned + std::fmt::Debug>(value: &T) -> T {
    let text = serde_json::to_string(value).unwrap();
    let again: T = read(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(format!("{again:?}"), format!("{value:?}"));
    again
}

fn writer() -> Writer {
    let godel = GodelConfig {
        reservations: Some(Duration::from_secs(40)),
        movements: true,
        preemption_marks: true,
        deletion_marks: true,
        unit_status: true,
        unfinished_ttl: Some(Duration::from_secs(70)),
        ..GodelConfig::new("godel")
    };
    let assumed_ttl = Some(Duration::from_secs(5));
    Engine::inline(Config { godel: Some(godel), assumed_ttl, ..Config::default() }).0
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_deserialized_log_gives_the_same_state(
        ops in prop::collection::vec(any::<Op>(), 1..STEPS),
    ) {
        let (mut live, mut replayed) = (writer(), writer());
        for (step, op) in (0..).zip(&ops) {
            let event = op.event(step, Generation(step));
            let again: Event = round_trip(&event);
            let outcome: Outcome = live.apply(&event);
            prop_assert_eq!(&replayed.apply(&again), &outcome);
            prop_assert_eq!(round_trip(&outcome), outcome);
        }
        prop_assert_eq!(live.cluster().dump(), replayed.cluster().dump());
        prop_assert_eq!(replayed.cluster().audit(), []);
    }

    #[test]
    fn a_mutated_log_is_refused_or_leaves_a_consistent_state(
        ops in prop::collection::vec(any::<Op>(), 1..STEPS),
        seed: u64,
    ) {
        let mut random = Random::new(seed);
        let mut writer = writer();
        for (step, op) in (0..).zip(&ops) {
            let mut value = serde_json::to_value(op.event(step, Generation(step))).unwrap();
            for _ in 0..random.below(3) {
                mutate(&mut value, &mut random);
            }
            if let Ok(event) = serde_json::from_value::<Event>(value) {
                // Rejecting it is as good as applying it.
                let _ = writer.apply(&event);
            }
        }
        prop_assert_eq!(writer.cluster().audit(), []);
        prop_assert_eq!(writer.rebuild().differences, []);
        let mut algorithm =
            Algorithm::new(Framework::default_profile(), AlgorithmConfig::default(), None);
        let _ = algorithm.schedule(writer.cluster(), &pod("next").cpu(100).build());
        prop_assert_eq!(algorithm.framework().handle().panics().latest(), []);
    }

    #[test]
    fn a_quantity_keeps_its_billionths(whole: i64, milli: i64) {
        let quantity = Quantity::whole(whole) + Quantity::milli(milli);
        prop_assert_eq!(round_trip(&quantity), quantity);
    }

    #[test]
    fn a_uid_keeps_its_text(text: String) {
        let uid = Uid::new(&text);
        prop_assert_eq!(round_trip(&uid), uid);
    }
}

/// Changes one value in a tree: replaces, removes or repeats it.
fn mutate(root: &mut Value, random: &mut Random) {
    let new = match random.below(5) {
        0 => {
            let numbers = [0, -1, 1, 100, i64::MAX, i64::MIN];
            Some(json!(numbers[random.index(numbers.len())]))
        }
        1 => Some([json!(null), json!(true), json!([]), json!({})][random.index(4)].clone()),
        2 => Some(json!(["", "n1", "default/p1", "kubernetes.io/hostname"][random.index(4)])),
        _ => None,
    };
    let mut left = random.below(count(root));
    visit(root, &mut left, &mut |value| match (value, &new) {
        (value, Some(new)) => *value = new.clone(),
        (Value::Array(items), None) if !items.is_empty() => {
            let at = random.index(items.len());
            match random.one_in(2) {
                true => drop(items.remove(at)),
                false => items.push(items[at].clone()),
            }
        }
        (Value::Object(map), None) if !map.is_empty() => {
            let key = map.keys().nth(random.index(map.len())).cloned();
            key.map(|key| map.remove(&key));
        }
        (Value::Number(number), None) => {
            *number = number.as_i64().map_or(1, |known| known.wrapping_neg() / 2).into();
        }
        _ => {}
    });
}

fn count(value: &Value) -> u64 {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(map) => map.values().map(count).sum::<u64>(),
        _ => 0,
    }
}

/// Changes the value at this position in the order of the tree.
fn visit(value: &mut Value, left: &mut u64, change: &mut impl FnMut(&mut Value)) {
    if *left == 0 {
        change(value);
    }
    *left = left.wrapping_sub(1);
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| visit(item, left, change)),
        Value::Object(map) => map.values_mut().for_each(|item| visit(item, left, change)),
        _ => {}
    }
}

fn requirement(operator: Operator) -> Requirement {
    Requirement::new("disk", operator, ["ssd", "nvme"])
}

fn term() -> NodeSelectorTerm {
    NodeSelectorTerm {
        match_expressions: [requirement(Operator::In), requirement(Operator::NotIn)].into(),
        match_fields: [Requirement::new("metadata.name", Operator::In, ["n1"])].into(),
        invalid: false,
    }
}

/// Creates a pod with every field that the random pods lack.
fn rich_pod() -> Pod {
    let affinity = || PodAffinityTerm {
        topology_key: "zone".into(),
        selector: LabelSelector::everything(),
        namespaces: ["a".into(), "b".into()].into(),
        namespace_selector: LabelSelector::Nothing,
    };
    let preferred = WeightedPodAffinityTerm { weight: 3, term: affinity() };
    pod("rich")
        .node_selector(Labels::new([("disk", "ssd"), ("", "")]))
        .node_affinity(NodeAffinity {
            required: Some(NodeSelector { terms: [term()].into() }),
            preferred: [PreferredSchedulingTerm { weight: 7, preference: term() }].into(),
        })
        .pod_affinity(PodAffinity { required: [affinity()].into(), preferred: [preferred].into() })
        .tolerate("dedicated")
        .volume(VolumeSource::Rbd {
            monitors: ["a".into(), "b".into()].into(),
            pool: "p".into(),
            image: "i".into(),
            read_only: true,
        })
        .spec(|spec| {
            spec.topology_spread = [TopologySpreadConstraint {
                max_skew: 1,
                topology_key: "zone".into(),
                when_unsatisfiable: UnsatisfiableAction::ScheduleAnyway,
                selector: LabelSelector::from_labels([("app", "web")]),
                min_domains: Some(2),
                honor_node_affinity: true,
                honor_node_taints: false,
                match_label_keys: ["rev".into()].into(),
            }]
            .into();
        })
        .build()
}

#[test]
fn a_deserialized_pod_equals_the_original() {
    let pod = rich_pod();
    let again = round_trip(&pod);
    assert_eq!(again, pod);
    assert_eq!(again.template, pod.template);
}

#[test]
fn deserialized_storage_objects_equal_the_originals() {
    let modes: Box<[AccessMode]> = [AccessMode::ReadWriteOnce, AccessMode::ReadOnlyMany].into();
    let volume = PersistentVolume {
        name: "pv".into(),
        labels: Labels::new([("topology.kubernetes.io/zone", "z1")]),
        capacity: 1 << 40,
        access_modes: modes.clone(),
        claim: Some(ClaimReference { namespace: "a".into(), name: "c".into(), uid: "u".into() }),
        node_affinity: Some(NodeSelector { terms: [term()].into() }),
        csi: Some(("driver".into(), "handle".into())),
        in_tree: Some(VolumeSource::Other { kind: "cinder".into(), handle: "h".into() }),
        ..PersistentVolume::default()
    };
    let claim = PersistentVolumeClaim {
        name: "c".into(),
        access_modes: modes,
        selector: Some(LabelSelector::everything()),
        ..PersistentVolumeClaim::default()
    };
    let driver = CsiNodeDriver { limit: Some(25), ..CsiNodeDriver::default() };
    let objects: [Object; 8] = [
        volume.into(),
        claim.into(),
        StorageClass { name: "sc".into(), ..StorageClass::default() }.into(),
        CsiNode { drivers: [driver].into(), ..CsiNode::default() }.into(),
        VolumeAttachment { node: "n1".into(), ..VolumeAttachment::default() }.into(),
        CsiDriver { storage_capacity: true, ..CsiDriver::default() }.into(),
        CsiStorageCapacity { largest: Some(-1), ..CsiStorageCapacity::default() }.into(),
        Service { namespace: "a".into(), name: "s".into(), selector: Labels::EMPTY }.into(),
    ];
    for object in objects {
        assert_eq!(round_trip(&object), object);
    }
    let plugin = InTreePlugin::of_name("kubernetes.io/cinder").unwrap();
    assert_eq!(round_trip(&plugin), plugin);
}

#[test]
fn derived_data_is_recomputed() {
    let labels = [("topology.kubernetes.io/zone", "z1"), ("kubernetes.io/hostname", "n1")];
    let built = labels
        .into_iter()
        .fold(node("n1"), |node, (key, value)| node.label(key, value))
        .declared_features(["a", "b"])
        .build();
    let mut wrong = built.clone();
    wrong.zone.zone = "z9".into();
    wrong.declared_features.reverse();
    let text = serde_json::to_string(&wrong).unwrap();
    assert_eq!(read::<portolan::model::Node>(&text).unwrap(), built);

    let unsorted = r#"{"key":"disk","operator":"In","values":["ssd","nvme","ssd"]}"#;
    assert_eq!(read::<Requirement>(unsorted).unwrap(), requirement(Operator::In));
    let profile = r#"{"usage":{"cpu":1,"memory":2},"pods":["b/x","a/x","b/x"]}"#;
    let profile: portolan::model::Profile = read(profile).unwrap();
    assert!(profile.has("a", "x") && profile.has("b", "x") && profile.pods().len() == 2);
    let labels: Labels = read(r#"{"b":"2","a":"1"}"#).unwrap();
    assert_eq!(labels, Labels::new([("a", "1"), ("b", "2")]));
}

#[test]
fn requests_that_contradict_each_other_are_refused() {
    let gpu = Quantity::whole(2);
    let pod = pod("p").cpu(500).memory(1 << 30).request("example.com/gpu", gpu).build();
    let written = serde_json::to_value(&pod).unwrap();
    let changed = |path: &str, value: i64| {
        let mut changed = written.clone();
        *changed.pointer_mut(path).expect(path) = json!(value);
        serde_json::from_value::<Pod>(changed).map_err(|error| error.to_string())
    };
    let at = |rest: &str| format!("/template/resources/{rest}");
    assert_eq!(changed(&at("placed/cpu"), 500).as_ref(), Ok(&pod));
    for (path, value, why) in [
        ("placed/cpu", 501, "the pod requests cpu 501 and, with defaults, less (500)"),
        ("placed_non_zero/memory", 1, "the pod requests memory 1073741824 and"),
        (
            "incoming/scalars/example.com~1gpu",
            0,
            "scheduled with example.com/gpu 0 and scored with 2",
        ),
        ("scored/ephemeral_storage", 7, "scheduled with ephemeral-storage 0 and scored with 7"),
    ] {
        let error = changed(&at(path), value).unwrap_err();
        assert!(error.contains(why), "{path}: {error}");
    }
    // The engine rejects negative amounts, also in a replay.
    assert!(changed(&at("placed/cpu"), -1).is_ok());
}

#[test]
fn errors_name_the_cause() {
    let message = |text: &str| read::<Event>(text).unwrap_err();
    assert!(message(r#"{"RemoveNod":"n1"}"#).contains("unknown variant `RemoveNod`"));
    let key = r#"{"DeleteObject":{"kind":"Service","namespace":"a","name":"s","uid":"u"}}"#;
    assert!(message(key).contains("unknown field `uid`"));
    let quantity = read::<Quantity>(r#""2 cores""#).unwrap_err();
    assert!(quantity.starts_with(r#"quantity "2 cores" is not a number"#), "{quantity}");
    let plugin = read::<InTreePlugin>(r#""kubernetes.io/nfs""#).unwrap_err();
    assert!(plugin.contains("is not an in-tree volume plugin"), "{plugin}");
}
