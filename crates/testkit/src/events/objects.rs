//! Decodes node parts, disruption budgets, groups, owners and reservations from small numbers.

use std::sync::Arc;

use portolan::cache::{Event, ObjectKey};
use portolan::model::{
    Bytes, CustomNodeResource, GroupMetric, LabelSelector, Labels, MilliCpu, NmNode, NodeMetrics,
    Object, ObjectKind, Operator, PodClass, PodDisruptionBudget, PodGroup, PodGroupPhase, Quantity,
    Requirement, Reservation, ReservationPhase, ResourceList, Taint, TaintEffect, Timestamp, Usage,
    Workload,
};

use super::seeds::{PodSeed, group_name, node_name, pod_name, scheduler_name, uid};

/// A part of a node, a disruption budget or an owner of pods.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "proptest", derive(proptest_derive::Arbitrary))]
pub struct ObjectSeed {
    /// Selects one of the first 16 nodes for a part of a node; otherwise one of 12 names, the namespace and the kind.
    pub name: u8,
    /// Selects the zone of a part, or the labels that a budget selects.
    pub zone: u8,
    /// The amounts, or the form of selectors and labels.
    pub shape: u8,
}

/// A pod group.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "proptest", derive(proptest_derive::Arbitrary))]
pub struct GroupSeed {
    /// Selects one of 3 names.
    pub name: u8,
    /// Selects the minimum number of members and the phase.
    pub shape: u8,
}

/// A reservation.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "proptest", derive(proptest_derive::Arbitrary))]
pub struct ReservationSeed {
    /// The pod for which it is made.
    pub pod: PodSeed,
    /// Selects the phase, and the pod that uses the reservation.
    pub phase: u8,
}

/// Returns the name of one of the 16 nodes that pods are placed on, so that parts, nodes and pods refer to each other.
fn part_name(n: u8) -> String {
    node_name(n % 16).to_string()
}

pub(super) fn make_reservation(seed: &ReservationSeed) -> Object {
    Object::from(Reservation {
        phase: match seed.phase % 8 {
            0 => ReservationPhase::Matched,
            1 => ReservationPhase::TimeOut,
            2 => ReservationPhase::Pending,
            _ => ReservationPhase::Reserved,
        },
        owner: (seed.phase & 16 != 0).then(|| uid(seed.phase / 8)),
        ..Reservation::of(&seed.pod.pod())
    })
}

pub(super) fn reservation_key(n: u8) -> ObjectKey {
    let kind = ObjectKind::Reservation;
    ObjectKey { kind, namespace: "default".to_owned(), name: pod_name(n) }
}

pub(super) fn make_nm_node(seed: &ObjectSeed) -> Object {
    let shape = i64::from(seed.shape);
    let amounts = |cpu: i64, pods: i64| {
        let mut list = ResourceList::new([
            ("cpu", Quantity::milli(cpu)),
            ("pods", Quantity::whole(pods)),
            ("unknown", Quantity::whole(1)),
        ]);
        if shape & 1 != 0 {
            list.set("example.com/gpu", Quantity::whole(shape & 6));
        }
        list
    };
    let mut labels = vec![("kubernetes.io/hostname".to_owned(), part_name(seed.name))];
    if seed.zone % 5 != 4 {
        labels.push(("topology.kubernetes.io/zone".to_owned(), format!("z{}", seed.zone % 5)));
    }
    let capacity = if shape & 8 != 0 { amounts(shape * 10, 50) } else { ResourceList::default() };
    let mut nm_node = NmNode::new(part_name(seed.name))
        .with_labels(&Labels::new(labels))
        .with_resources(capacity, amounts(shape * 6, shape & 63));
    if shape & 32 != 0 {
        nm_node.taints = Box::new([Taint::new("nm", "v", TaintEffect::NoSchedule)]);
    }
    nm_node.scheduler = (shape & 64 != 0).then(|| scheduler_name(seed.shape));
    nm_node.into()
}

pub(super) fn make_custom(seed: &ObjectSeed) -> Object {
    let shape = i64::from(seed.shape);
    let mut list = ResourceList::new([("cpu", Quantity::milli(shape))]);
    if shape & 1 != 0 {
        list.set("pods", Quantity::whole(shape));
    }
    if shape & 2 != 0 {
        list.set("example.com/gpu", Quantity::whole(shape & 12));
        list.set("memory", Quantity::whole(shape << 20));
    }
    let mut custom = CustomNodeResource::new(part_name(seed.name), &list);
    custom.metrics = (shape & 4 != 0).then(|| Box::new(metrics(seed)));
    custom.into()
}

/// Returns measurements of some pods. A pod may be measured in one class or in both.
fn metrics(seed: &ObjectSeed) -> NodeMetrics {
    let group = |class, n: u8| {
        let pods = (0..n % 8).map(|i| format!("default/{}", pod_name(seed.shape / 8 + i * 3)));
        let usage = Usage { cpu: MilliCpu(i64::from(n) * 10), memory: Bytes(i64::from(n)) };
        GroupMetric { class, usage, pods: pods.map(Into::into).collect() }
    };
    let updated = (seed.zone & 1 != 0).then(|| Timestamp::from_secs(i64::from(seed.zone)));
    let groups = [
        group(PodClass::Guaranteed, seed.zone),
        group(PodClass::BestEffort, seed.shape),
        group(PodClass::Guaranteed, seed.shape / 2),
    ];
    NodeMetrics::new(updated, groups)
}

/// Returns one of two namespaces and one of 12 names. Pods are in the namespace `default`.
fn object_name(n: u8) -> (&'static str, String) {
    (if n & 32 == 0 { "default" } else { "other" }, format!("o{}", n % 12))
}

pub(super) fn make_budget(seed: &ObjectSeed) -> Object {
    let (namespace, name) = object_name(seed.name);
    let app = if seed.zone & 1 == 0 { "a" } else { "b" };
    let selector = match seed.shape % 6 {
        0 => LabelSelector::Nothing,
        1 => LabelSelector::everything(),
        2 => LabelSelector::All([Requirement::new("app", Operator::NotIn, [app])].into()),
        3 => LabelSelector::from_labels([("app", app), ("own", "x")]),
        _ => LabelSelector::from_labels([("app", app)]),
    };
    Object::from(PodDisruptionBudget {
        namespace: namespace.into(),
        name: name.into(),
        selector,
        disruptions_allowed: i32::from(seed.shape & 3),
        ..PodDisruptionBudget::default()
    })
}

pub(super) fn phase(n: u8) -> PodGroupPhase {
    use PodGroupPhase::{
        Failed, Finished, Pending, PreScheduling, Running, Scheduled, Timeout, Unknown,
    };
    let phases = [Unknown, Pending, PreScheduling, Scheduled, Running, Finished, Failed, Timeout];
    phases[usize::from(n % 8)]
}

pub(super) fn group_key(n: u8) -> ObjectKey {
    let name = group_name(1 + n % 3).unwrap_or_default().to_owned();
    ObjectKey { kind: ObjectKind::PodGroup, namespace: "default".to_owned(), name }
}

pub(super) fn make_group(seed: &GroupSeed) -> Object {
    let phase = (seed.shape & 128 != 0).then(|| phase(seed.shape));
    let key = group_key(seed.name);
    let group = PodGroup::new(key.namespace, key.name, u32::from(seed.shape / 8 % 4));
    Object::from(PodGroup { phase, ..group })
}

pub(super) fn owner_kind(n: u8) -> ObjectKind {
    if n & 64 == 0 { ObjectKind::DaemonSet } else { ObjectKind::ReplicaSet }
}

pub(super) fn make_owner(seed: &ObjectSeed) -> Object {
    let (namespace, name) = object_name(seed.name);
    let labels = match seed.shape % 4 {
        0 => Labels::EMPTY,
        1 => Labels::new([("app", "a")]),
        2 => Labels::new([("app", "b"), ("own", "x")]),
        _ => Labels::new([("own", "x")]),
    };
    Object::from(Workload {
        kind: owner_kind(seed.name),
        namespace: namespace.into(),
        name: name.into(),
        labels,
        selector: LabelSelector::Nothing,
    })
}

pub(super) fn delete_named(kind: ObjectKind, n: u8) -> Event {
    let (namespace, name) = object_name(n);
    let key = ObjectKey { kind, namespace: namespace.to_owned(), name };
    Event::DeleteObject(Arc::new(key))
}

pub(super) fn delete_part(kind: ObjectKind, n: u8) -> Event {
    let key = ObjectKey { kind, namespace: String::new(), name: part_name(n) };
    Event::DeleteObject(Arc::new(key))
}
