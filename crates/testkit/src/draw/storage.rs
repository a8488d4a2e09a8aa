//! Random volumes of pods, and the objects that they refer to.

use portolan::model::{
    AccessMode, ClaimReference, CsiDriver, CsiNode, CsiNodeDriver, CsiStorageCapacity,
    LabelSelector, Labels, Name, Namespace, NodeSelector, Object, ObjectKind, PersistentVolume,
    PersistentVolumeClaim, Service, StorageClass, VolumeAttachment, VolumeBindingMode,
    VolumeSource, Workload,
};

use super::Draw;

const DRIVERS: [&str; 2] = ["csi.example.com", "other.example.com"];
const CLASSES: [&str; 3] = ["fast", "slow", ""];
const CLAIMS: [&str; 4] = ["c0", "c1", "c2", "c3"];
const VOLUMES: [&str; 4] = ["v0", "v1", "v2", "v3"];

impl Draw<'_> {
    /// Draws a volume of a pod.
    pub(super) fn volume(&mut self) -> VolumeSource {
        let read_only = self.one_in(3);
        let disk: Name = self.of(&["d0", "d1"]).into();
        match self.below(12) {
            0 => VolumeSource::GcePersistentDisk { disk, partition: 0, read_only },
            1 => VolumeSource::AwsElasticBlockStore { volume: disk, read_only },
            2 => VolumeSource::Iscsi { iqn: disk, read_only },
            3 => VolumeSource::Rbd {
                monitors: Box::new(["m0".into()]),
                pool: "rbd".into(),
                image: disk,
                read_only,
            },
            4 => VolumeSource::Csi { driver: self.of(&DRIVERS).into() },
            5 => VolumeSource::Ephemeral { volume: "scratch".into() },
            _ => VolumeSource::PersistentVolumeClaim { claim: self.of(&CLAIMS).into(), read_only },
        }
    }

    fn mode(&mut self) -> AccessMode {
        self.of(&[
            AccessMode::ReadWriteOnce,
            AccessMode::ReadOnlyMany,
            AccessMode::ReadWriteMany,
            AccessMode::ReadWriteOncePod,
        ])
    }

    fn selects_nodes(&mut self) -> NodeSelector {
        NodeSelector { terms: (0..self.of(&[0, 1, 1])).map(|_| self.term()).collect() }
    }

    fn namespace(&mut self) -> Name {
        self.of(&["default", "default", "other"]).into()
    }

    fn claim(&mut self) -> PersistentVolumeClaim {
        let name = self.of(&CLAIMS);
        let is_bound = self.one_in(2);
        let volume = if is_bound || self.one_in(5) { self.of(&VOLUMES) } else { "" };
        PersistentVolumeClaim {
            namespace: self.namespace(),
            name: name.into(),
            uid: format!("uid-{name}").into(),
            request: self.of(&[0, 1, 10 << 30]),
            access_modes: Box::new([self.mode()]),
            class: self.of(&CLASSES).into(),
            selector: self.one_in(5).then(|| LabelSelector::from_labels([("tier", "gold")])),
            volume: volume.into(),
            is_bound,
            selected_node: self.of(&["", "", "n1"]).into(),
            is_lost: self.one_in(12),
            is_deleting: self.one_in(12),
            ..PersistentVolumeClaim::default()
        }
    }

    fn persistent_volume(&mut self) -> PersistentVolume {
        let name = self.of(&VOLUMES);
        let claim = self.one_in(2).then(|| {
            let claim = self.of(&CLAIMS);
            let uid = if self.one_in(3) { String::new() } else { format!("uid-{claim}") };
            ClaimReference { namespace: "default".into(), name: claim.into(), uid: uid.into() }
        });
        let zone = format!("z{}", self.below(4));
        let labels = match self.below(4) {
            0 => Labels::new([("topology.kubernetes.io/zone", &*zone)]),
            1 => Labels::new([("tier", "gold")]),
            _ => Labels::EMPTY,
        };
        PersistentVolume {
            name: name.into(),
            labels,
            capacity: self.of(&[0, 20 << 30, i64::MAX]),
            access_modes: Box::new([self.mode()]),
            class: self.of(&CLASSES).into(),
            claim,
            node_affinity: self.one_in(2).then(|| self.selects_nodes()),
            csi: self.one_in(2).then(|| (self.of(&DRIVERS).into(), name.into())),
            is_available: !self.one_in(3),
            is_deleting: self.one_in(12),
            ..PersistentVolume::default()
        }
    }

    /// Draws an object that is neither a node nor a pod.
    pub fn object(&mut self) -> Object {
        let node: Name = format!("n{}", self.below(40)).into();
        match self.below(12) {
            0 => Object::from(Namespace {
                name: self.namespace(),
                labels: Labels::new([("team", self.of(&["red", "blue"]))]),
            }),
            1 => Object::from(Service {
                namespace: self.namespace(),
                name: self.of(&["s0", "s1"]).into(),
                selector: Labels::new([("app", self.of(&["a", "b"]))]),
            }),
            2 => Object::from(Workload {
                kind: self.of(&[ObjectKind::ReplicaSet, ObjectKind::StatefulSet]),
                namespace: self.namespace(),
                name: self.of(&["w0", "w1"]).into(),
                labels: Labels::EMPTY,
                selector: LabelSelector::from_labels([("app", self.of(&["a", "b"]))]),
            }),
            3..6 => self.claim().into(),
            6 | 7 => self.persistent_volume().into(),
            8 => Object::from(StorageClass {
                name: self.of(&CLASSES[..2]).into(),
                provisioner: self.of(&["kubernetes.io/no-provisioner", DRIVERS[0]]).into(),
                binding_mode: self
                    .of(&[VolumeBindingMode::Immediate, VolumeBindingMode::WaitForFirstConsumer]),
                allowed_topologies: self.selects_nodes(),
            }),
            9 => Object::from(CsiNode {
                name: node,
                drivers: Box::new([CsiNodeDriver {
                    name: self.of(&DRIVERS).into(),
                    limit: self.of(&[None, Some(0), Some(1), Some(u32::MAX)]),
                    ..CsiNodeDriver::default()
                }]),
                migrated: match self.one_in(2) {
                    true => Box::new(["kubernetes.io/aws-ebs".into()]),
                    false => Box::default(),
                },
            }),
            10 => Object::from(VolumeAttachment {
                name: format!("a{}", self.below(8)).into(),
                attacher: self.of(&DRIVERS).into(),
                node,
                volume: self.of(&VOLUMES).into(),
            }),
            _ => match self.one_in(2) {
                true => Object::from(CsiDriver {
                    name: self.of(&DRIVERS).into(),
                    storage_capacity: self.one_in(2),
                }),
                false => Object::from(CsiStorageCapacity {
                    namespace: "default".into(),
                    name: self.of(&["k0", "k1"]).into(),
                    class: self.of(&CLASSES).into(),
                    nodes: LabelSelector::from_labels([("disk", "ssd")]),
                    largest: self.of(&[None, Some(0), Some(100 << 30)]),
                }),
            },
        }
    }
}
