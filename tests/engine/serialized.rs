//! Serialization of events: deserialized events are equal, and replaying them gives the same state.

use std::time::Duration;

use portolan::log::{Event, Outcome};
use portolan::model::{
    AccessMode, ClaimReference, CsiDriver, CsiNode, CsiNodeDriver, CsiStorageCapacity,
    InTreePlugin, LabelSelector, Labels, MicroTopology, NodeAffinity, NodeSelector,
    NodeSelectorTerm, NumaZone, Object, Operator, PersistentVolume, PersistentVolumeClaim, Pod,
    PodAffinity, PodAffinityTerm, PreferredSchedulingTerm, Quantity, Requirement, ResourceList,
    Service, StorageClass, TopologySpreadConstraint, Uid, UnsatisfiableAction, VolumeAttachment,
    VolumeSource, WeightedPodAffinityTerm, node, pod,
};
use portolan::{Config, Engine, Generation, GodelConfig, Writer};
use portolan_testkit::events::Op;
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

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
    #![proptest_config(ProptestConfig {
        cases: CASES,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

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
        prop_assert_eq!(live.dump(), replayed.dump());
        prop_assert_eq!(replayed.cluster().audit(), []);
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
            spec.micro_topology =
                MicroTopology::parse("1:cpu=2;0:cpu=1500m,memory=4Gi").ok().map(Box::new);
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
    let allocations = [("a/p/u".into(), ResourceList::new([("cpu", Quantity::milli(1))]))];
    let zone = NumaZone { id: 1, allocations: allocations.into(), ..NumaZone::default() };
    assert_eq!(round_trip(&zone), zone);
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
    let given: MicroTopology = read(r#"{"1":{"cpu":"1"},"0":{"memory":"1Gi","cpu":"2"}}"#).unwrap();
    assert_eq!(MicroTopology::parse("0:cpu=2,memory=1Gi;1:cpu=1").ok(), Some(given));
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
