//! Cases of the volume plugins that the golden vectors do not cover: ephemeral volumes, storage capacities,
//! attachments, lost claims.

use std::sync::Arc;

use portolan::Framework;
use portolan::cache::{Cluster, Config, Engine, Event, Writer};
use portolan::model::{
    AccessMode, CsiDriver, CsiNode, CsiNodeDriver, CsiStorageCapacity, LabelSelector, Object,
    PersistentVolume, PersistentVolumeClaim, Pod, StorageClass, Uid, VolumeAttachment,
    VolumeBindingMode, VolumeSource, node, pod,
};
use portolan::plugin::{Cycle, CycleState, Handle, PreFlight};
use portolan::scheduler::InMemoryVolumeBinder;

const DRIVER: &str = "csi.example.com";
const GI: i64 = 1 << 30;

fn cluster(objects: Vec<Object>) -> Writer {
    let (mut writer, _) = Engine::inline(Config::default());
    for (name, zone) in [("a", "z1"), ("b", "z2")] {
        let node = node(name).hostname().zone(zone).cpu(8_000).memory(32 << 30);
        writer.add_node(node.build()).unwrap();
    }
    for object in objects {
        writer.put_object(object).unwrap();
    }
    writer
}

fn class(mode: VolumeBindingMode) -> Object {
    Object::from(StorageClass {
        name: "fast".into(),
        provisioner: DRIVER.into(),
        binding_mode: mode,
        ..StorageClass::default()
    })
}

fn claim(name: &str) -> PersistentVolumeClaim {
    PersistentVolumeClaim {
        namespace: "default".into(),
        name: name.into(),
        uid: format!("uid-{name}").into(),
        class: "fast".into(),
        request: 10 * GI,
        access_modes: Box::new([AccessMode::ReadWriteOnce]),
        ..PersistentVolumeClaim::default()
    }
}

fn bound(name: &str, volume: &str) -> PersistentVolumeClaim {
    PersistentVolumeClaim { volume: volume.into(), is_bound: true, ..claim(name) }
}

fn volume(name: &str) -> PersistentVolume {
    PersistentVolume {
        name: name.into(),
        class: "fast".into(),
        capacity: 20 * GI,
        csi: Some((DRIVER.into(), name.into())),
        ..PersistentVolume::default()
    }
}

/// Returns the reason why each node rejects the pod, by name, or a single reason if PreFilter rejects it.
fn verdicts(writer: &Writer, pod: &Pod) -> Vec<(String, String)> {
    verdicts_on(writer.cluster(), pod)
}

fn verdicts_on(cluster: &Cluster, pod: &Pod) -> Vec<(String, String)> {
    let found = Framework::default_profile().evaluate(cluster, pod);
    if let Some(status) = found.rejected.as_ref().and_then(|error| error.pre_filter.as_ref()) {
        return vec![("all".to_owned(), status.reasons.join(", "))];
    }
    let nodes = found.nodes.into_iter();
    nodes
        .map(|(name, verdict)| {
            let reasons = verdict.status.as_ref().map(|status| status.reasons.join(", "));
            (name.to_string(), reasons.unwrap_or_default())
        })
        .collect()
}

fn both(a: &str, b: &str) -> Vec<(String, String)> {
    vec![("a".to_owned(), a.to_owned()), ("b".to_owned(), b.to_owned())]
}

fn ephemeral() -> Pod {
    let mut pod = pod("p").volume(VolumeSource::Ephemeral { volume: "scratch".into() }).build();
    pod.uid = Uid::new("uid-of-p");
    pod
}

#[test]
fn an_ephemeral_volume_waits_for_a_claim_of_its_own_pod() {
    let pod = ephemeral();
    let writer = cluster(vec![class(VolumeBindingMode::WaitForFirstConsumer)]);
    let [(place, why)] = &verdicts(&writer, &pod)[..] else { panic!("rejected by PreFilter") };
    assert_eq!(place, "all");
    assert!(why.contains("persistentvolumeclaim \"p-scratch\" not found"), "{why}");

    let own = PersistentVolumeClaim { owner: "uid-of-p".into(), ..claim("p-scratch") };
    let mut writer = cluster(vec![class(VolumeBindingMode::WaitForFirstConsumer)]);
    writer.put_object(own).unwrap();
    assert_eq!(verdicts(&writer, &pod), both("", ""));

    let others = PersistentVolumeClaim { owner: "uid-of-q".into(), ..claim("p-scratch") };
    writer.put_object(others).unwrap();
    let [(_, why)] = &verdicts(&writer, &pod)[..] else { panic!("rejected by PreFilter") };
    assert_eq!(why, "PVC default/p-scratch was not created for pod default/p (pod is not owner)");
}

#[test]
fn lost_and_terminating_claims_are_rejected() {
    let pod = pod("p").claim("c").build();
    for (claim, says) in [
        (
            PersistentVolumeClaim { is_lost: true, ..bound("c", "gone") },
            "persistentvolumeclaim \"c\" bound to non-existent persistentvolume \"gone\"",
        ),
        (
            PersistentVolumeClaim { is_deleting: true, ..claim("c") },
            "persistentvolumeclaim \"c\" is being deleted",
        ),
    ] {
        let writer =
            cluster(vec![class(VolumeBindingMode::WaitForFirstConsumer), Object::from(claim)]);
        assert_eq!(verdicts(&writer, &pod), [("all".to_owned(), says.to_owned())]);
    }
}

#[test]
fn capacity_is_checked_if_the_driver_reports_it() {
    let pod = pod("p").claim("c").build();
    let driver =
        |storage_capacity| Object::from(CsiDriver { name: DRIVER.into(), storage_capacity });
    let capacity = |zone: &str, largest: i64| {
        Object::from(CsiStorageCapacity {
            namespace: "kube-system".into(),
            name: format!("in-{zone}").into(),
            class: "fast".into(),
            nodes: LabelSelector::from_labels([("topology.kubernetes.io/zone", zone)]),
            largest: Some(largest),
        })
    };
    let mut writer = cluster(vec![
        class(VolumeBindingMode::WaitForFirstConsumer),
        Object::from(claim("c")),
        driver(true),
    ]);
    let none = "node(s) did not have enough free storage";
    assert_eq!(verdicts(&writer, &pod), both(none, none));
    writer.put_object(capacity("z1", 10 * GI)).unwrap();
    writer.put_object(capacity("z2", 10 * GI - 1)).unwrap();
    assert_eq!(verdicts(&writer, &pod), both("", none));
    writer.put_object(driver(false)).unwrap();
    assert_eq!(verdicts(&writer, &pod), both("", ""));
}

#[test]
fn attachments_count_and_shared_volumes_count_once() {
    let too_many = "node(s) exceed max volume count";
    let limits = |name: &str, limit| {
        let driver =
            CsiNodeDriver { name: DRIVER.into(), limit: Some(limit), ..CsiNodeDriver::default() };
        Object::from(CsiNode {
            name: name.into(),
            drivers: Box::new([driver]),
            ..CsiNode::default()
        })
    };
    let mut objects = vec![class(VolumeBindingMode::Immediate), limits("a", 2), limits("b", 1)];
    for n in 0..3 {
        objects.push(Object::from(volume(&format!("v{n}"))));
        objects.push(Object::from(bound(&format!("c{n}"), &format!("v{n}"))));
    }
    let mut writer = cluster(objects);
    writer.add_pod(pod("there-a").claim("c0").on("a").build()).unwrap();
    writer.add_pod(pod("there-b").claim("c0").on("b").build()).unwrap();
    let wants = |claim: &str| pod("wants").claim(claim).build();
    assert_eq!(verdicts(&writer, &wants("c1")), both("", too_many));
    assert_eq!(verdicts(&writer, &wants("c0")), both("", ""), "the volume is already attached");
    let attachment = |volume: &str| {
        Object::from(VolumeAttachment {
            name: format!("att-{volume}").into(),
            attacher: DRIVER.into(),
            node: "a".into(),
            volume: volume.into(),
        })
    };
    // An attachment of a volume that a pod on the node uses does not count again.
    writer.put_object(attachment("v0")).unwrap();
    assert_eq!(verdicts(&writer, &wants("c1")), both("", too_many));
    writer.put_object(attachment("v2")).unwrap();
    assert_eq!(verdicts(&writer, &wants("c1")), both(too_many, too_many));
}

/// Disks of the in-tree plugin count towards the limit of its CSI driver, on nodes that have migrated.
#[test]
fn migrated_volumes_count_on_nodes_with_the_driver() {
    let ebs = |volume: &str| VolumeSource::AwsElasticBlockStore {
        volume: volume.into(),
        read_only: false,
    };
    let limits = |name: &str, migrated: &[&str]| {
        let driver = "ebs.csi.aws.com".into();
        let driver = CsiNodeDriver { name: driver, limit: Some(1), ..CsiNodeDriver::default() };
        let migrated = migrated.iter().map(|&name| name.into()).collect();
        Object::from(CsiNode { name: name.into(), drivers: Box::new([driver]), migrated })
    };
    let of_plugin =
        PersistentVolume { csi: None, in_tree: Some(ebs("aws://z1/vol-1")), ..volume("v1") };
    let mut writer = cluster(vec![
        class(VolumeBindingMode::Immediate),
        limits("a", &["kubernetes.io/aws-ebs"]),
        limits("b", &[]),
        Object::from(of_plugin),
        Object::from(bound("c1", "v1")),
    ]);
    for node in ["a", "b"] {
        writer.add_pod(pod(format!("on-{node}")).claim("c1").on(node).build()).unwrap();
    }
    let too_many = "node(s) exceed max volume count";
    let wants = |volume: &str| pod("wants").volume(ebs(volume)).build();
    assert_eq!(
        verdicts(&writer, &wants("vol-1")),
        both("", ""),
        "the volume is already in use there"
    );
    assert_eq!(verdicts(&writer, &wants("vol-2")), both(too_many, ""));
}

/// Volumes of a pod from Reserve to PreBind, with an engine.
#[test]
fn reserved_volumes_are_visible_to_the_next_pod_and_can_be_unreserved() {
    let mut zonal = volume("zonal");
    zonal.is_available = true;
    zonal.access_modes = Box::new([AccessMode::ReadWriteOnce]);
    let driver = CsiNodeDriver {
        name: DRIVER.into(),
        topology_keys: Box::new(["topology.kubernetes.io/zone".into()]),
        ..CsiNodeDriver::default()
    };
    let engine = Engine::shared(Config::default());
    for (name, zone) in [("a", "z1"), ("b", "z2")] {
        let node = node(name).hostname().zone(zone).cpu(8_000).memory(32 << 30);
        engine.submit(Event::add_node(node.build())).unwrap().wait().unwrap().unwrap();
    }
    let objects = [
        class(VolumeBindingMode::WaitForFirstConsumer),
        Object::from(zonal),
        Object::from(claim("first")),
        Object::from(claim("second")),
        Object::from(CsiNode {
            name: "b".into(),
            drivers: Box::new([driver]),
            ..CsiNode::default()
        }),
    ];
    for object in objects {
        engine.submit(Event::PutObject(object)).unwrap().wait().unwrap().unwrap();
    }
    let handle =
        Handle::default().with_volume_binder(Arc::new(InMemoryVolumeBinder::new(engine.clone())));
    let framework = Framework::default_profile_with(&handle);
    let now = || engine.with_writer(|writer| writer.snapshot()).unwrap();
    let volume = |name: &str| now().objects().persistent_volumes.get("", name).cloned();
    let stored_claim =
        |name: &str| now().objects().persistent_volume_claims.get("default", name).cloned();
    let (first, second) = (pod("p").claim("first").build(), pod("q").claim("second").build());
    let before = now();
    let node = "b".into();

    // The first pod reserves the existing volume. Unreserving it twice is harmless.
    let state = CycleState::default();
    let cycle = Cycle::new(&before, &first, &state);
    for _ in 0..2 {
        framework.reserve(cycle, &node).unwrap();
        let kept = volume("zonal").unwrap().claim.clone().map(|claim| claim.name);
        assert_eq!(kept, Some("first".into()));
        framework.unreserve(cycle, &node);
        framework.unreserve(cycle, &node);
        assert_eq!(volume("zonal").unwrap().claim, None);
    }
    framework.reserve(cycle, &node).unwrap();

    // A decision on the previous version finds that the volume has changed.
    let other = CycleState::default();
    let error = framework.reserve(Cycle::new(&before, &second, &other), &node).unwrap_err();
    assert!(error.message().contains("\"zonal\" has changed"), "{}", error.message());
    // With the current version a volume is provisioned in the zone of the node.
    let after = now();
    let late = Cycle::new(&after, &second, &other);
    framework.reserve(late, &node).unwrap();
    assert_eq!(stored_claim("second").unwrap().selected_node, node);
    for cycle in [cycle, late] {
        let flight = framework.pre_bind_pre_flight(cycle, &node).unwrap();
        assert_eq!(flight, PreFlight::Work);
        framework.pre_bind(cycle, &node).unwrap();
    }
    assert_eq!(&*stored_claim("first").unwrap().volume, "zonal");
    let made = stored_claim("second").unwrap();
    assert!(made.is_bound && &*made.volume == "pvc-uid-second", "{made:?}");
    let not_reached = "node(s) didn't match PersistentVolume's node affinity";
    let seen = verdicts_on(&now(), &second);
    assert_eq!(seen, both(not_reached, ""), "the volume is in the zone of b");
}
