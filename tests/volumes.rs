//! What the golden vectors do not ask of the volume plugins: ephemeral volumes,
//! storage capacities, attachments, lost claims.

use portolan::framework::Framework;
use portolan::model::{
    AccessMode, CsiDriver, CsiNode, CsiStorageCapacity, LabelSelector, Name, Object,
    PersistentVolume, PersistentVolumeClaim, Pod, StorageClass, Uid, VolumeAttachment,
    VolumeBindingMode, VolumeSource, node, pod,
};
use portolan::{Config, Engine, Writer};

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
    Object::StorageClass(StorageClass {
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

/// Why each node rejects the pod, by name; or why all do at once.
fn verdicts(writer: &Writer, pod: &Pod) -> Vec<(String, String)> {
    let found = Framework::default_profile().evaluate(writer.cluster(), pod);
    if let Some(status) = found.rejected.as_ref().and_then(|error| error.pre_filter.as_ref()) {
        return vec![("all".to_owned(), status.reasons.join(", "))];
    }
    let nodes = found.nodes.into_iter();
    nodes
        .map(|(name, verdict)| {
            let reasons = verdict.status.map(|status| status.reasons.join(", "));
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
fn an_ephemeral_volume_waits_for_its_claim_and_takes_no_other_pods() {
    let pod = ephemeral();
    let writer = cluster(vec![class(VolumeBindingMode::WaitForFirstConsumer)]);
    let [(place, why)] = &verdicts(&writer, &pod)[..] else { panic!("rejected at once") };
    assert_eq!(place, "all");
    assert!(why.contains("persistentvolumeclaim \"p-scratch\" not found"), "{why}");

    let own = PersistentVolumeClaim { owner: "uid-of-p".into(), ..claim("p-scratch") };
    let mut writer = cluster(vec![class(VolumeBindingMode::WaitForFirstConsumer)]);
    writer.put_object(Object::PersistentVolumeClaim(own)).unwrap();
    assert_eq!(verdicts(&writer, &pod), both("", ""));

    let others = PersistentVolumeClaim { owner: "uid-of-q".into(), ..claim("p-scratch") };
    writer.put_object(Object::PersistentVolumeClaim(others)).unwrap();
    let [(_, why)] = &verdicts(&writer, &pod)[..] else { panic!("rejected at once") };
    assert_eq!(why, "PVC default/p-scratch was not created for pod default/p (pod is not owner)");
}

#[test]
fn a_claim_that_is_lost_or_going_is_no_claim() {
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
        let writer = cluster(vec![
            class(VolumeBindingMode::WaitForFirstConsumer),
            Object::PersistentVolumeClaim(claim),
        ]);
        assert_eq!(verdicts(&writer, &pod), [("all".to_owned(), says.to_owned())]);
    }
}

#[test]
fn a_driver_that_tells_what_it_has_is_asked_for_room() {
    let pod = pod("p").claim("c").build();
    let driver =
        |storage_capacity| Object::CsiDriver(CsiDriver { name: DRIVER.into(), storage_capacity });
    let capacity = |zone: &str, largest: i64| {
        Object::CsiStorageCapacity(CsiStorageCapacity {
            namespace: "kube-system".into(),
            name: format!("in-{zone}").into(),
            class: "fast".into(),
            nodes: LabelSelector::from_labels([("topology.kubernetes.io/zone", zone)]),
            largest: Some(largest),
        })
    };
    let mut writer = cluster(vec![
        class(VolumeBindingMode::WaitForFirstConsumer),
        Object::PersistentVolumeClaim(claim("c")),
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
fn attachments_count_and_what_pods_share_counts_once() {
    let too_many = "node(s) exceed max volume count";
    let limits = |name: &str, limit| {
        let drivers: Box<[(Name, Option<u32>)]> = Box::new([(DRIVER.into(), Some(limit))]);
        Object::CsiNode(CsiNode { name: name.into(), drivers })
    };
    let mut objects = vec![class(VolumeBindingMode::Immediate), limits("a", 2), limits("b", 1)];
    for n in 0..3 {
        objects.push(Object::PersistentVolume(volume(&format!("v{n}"))));
        objects.push(Object::PersistentVolumeClaim(bound(&format!("c{n}"), &format!("v{n}"))));
    }
    let mut writer = cluster(objects);
    writer.add_pod(pod("there-a").claim("c0").on("a").build()).unwrap();
    writer.add_pod(pod("there-b").claim("c0").on("b").build()).unwrap();
    let wants = |claim: &str| pod("wants").claim(claim).build();
    assert_eq!(verdicts(&writer, &wants("c1")), both("", too_many));
    assert_eq!(verdicts(&writer, &wants("c0")), both("", ""), "it is attached already");
    let attachment = |volume: &str| {
        Object::VolumeAttachment(VolumeAttachment {
            name: format!("att-{volume}").into(),
            attacher: DRIVER.into(),
            node: "a".into(),
            volume: volume.into(),
        })
    };
    // That of a volume that a pod there uses is that volume's.
    writer.put_object(attachment("v0")).unwrap();
    assert_eq!(verdicts(&writer, &wants("c1")), both("", too_many));
    writer.put_object(attachment("v2")).unwrap();
    assert_eq!(verdicts(&writer, &wants("c1")), both(too_many, too_many));
}
