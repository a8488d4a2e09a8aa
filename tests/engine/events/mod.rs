//! Random events over few names, so that they collide.

use std::sync::Arc;

use portolan::log::{Event, ObjectKey, Relist};
use portolan::model::{
    Bytes, CustomNodeResource, Generation, GodelPod, GroupMetric, LabelSelector, Labels, MilliCpu,
    Movement, MovementOwner, MovementTask, Name, NmNode, Node, NodeMetrics, NominatedNode, Object,
    ObjectKind, Operator, OwnerKey, OwnerReference, Pod, PodAffinity, PodAffinityTerm, PodClass,
    PodDisruptionBudget, PodGroup, PodGroupPhase, Quantity, RecommendedNode, Requirement,
    Reservation, ReservationPhase, ResourceList, Taint, TaintEffect, Timestamp, Uid, Usage, Victim,
    Workload, node, pod,
};
use portolan::snapshot::Fork;
use proptest::prelude::*;
use proptest_derive::Arbitrary;

/// An operation whose arguments are small numbers.
#[derive(Clone, Debug, Arbitrary)]
#[allow(missing_docs)]
pub(crate) enum Op {
    Assume(Seed),
    AssumeAll(Seed, Seed, Seed),
    Preempt(Seed, [u8; 2]),
    MarkForDeletion(u8, u8),
    UnmarkForDeletion(u8, u8),
    AssignNode(u8, u8),
    UnassignNode(u8, u8),
    Finish(u8),
    Forget(u8, u8),
    Add(Seed),
    Update(u8, Seed),
    Remove(u8, u8),
    Pending(Seed),
    Reserve(Seed, u8),
    Unreserve(u8),
    PutMovement(MovementSeed),
    DeleteMovement(u8),
    RelistMovements(
        #[proptest(strategy = "prop::collection::vec(any::<MovementSeed>(), 0..4)")]
        Vec<MovementSeed>,
    ),
    AddNode(NodeSeed),
    UpdateNode(NodeSeed),
    RemoveNode(u8),
    PutNmNode(NodeSeed),
    DeleteNmNode(u8),
    PutCustom(NodeSeed),
    DeleteCustom(u8),
    RelistNmNodes(
        #[proptest(strategy = "prop::collection::vec(any::<NodeSeed>(), 0..12)")] Vec<NodeSeed>,
    ),
    RelistCustom(
        #[proptest(strategy = "prop::collection::vec(any::<NodeSeed>(), 0..12)")] Vec<NodeSeed>,
    ),
    Expire,
    RelistPods(#[proptest(strategy = "prop::collection::vec(any::<Seed>(), 0..12)")] Vec<Seed>),
    RelistNodes(
        #[proptest(strategy = "prop::collection::vec(any::<NodeSeed>(), 0..90)")] Vec<NodeSeed>,
    ),
    PutBudget(NodeSeed),
    DeleteBudget(u8),
    RelistBudgets(
        #[proptest(strategy = "prop::collection::vec(any::<NodeSeed>(), 0..12)")] Vec<NodeSeed>,
    ),
    PutGroup(u8, u8),
    SetGroupPhase(u8, u8),
    DeleteGroup(u8),
    RelistGroups(
        #[proptest(strategy = "prop::collection::vec(any::<[u8; 2]>(), 0..3)")] Vec<[u8; 2]>,
    ),
    PutOwner(NodeSeed),
    DeleteOwner(u8),
    RelistReservations(
        #[proptest(strategy = "prop::collection::vec(any::<Seed>(), 0..12)")] Vec<Seed>,
    ),
    RelistDaemonSets(
        #[proptest(strategy = "prop::collection::vec(any::<NodeSeed>(), 0..12)")] Vec<NodeSeed>,
    ),
}

/// The arguments of a movement.
#[derive(Clone, Debug, Arbitrary)]
#[allow(missing_docs)]
pub(crate) struct MovementSeed {
    pub name: u8,
    /// For each recommendation the owner, the node, the desired number of pods, and the pods that are already there.
    #[proptest(strategy = "prop::collection::vec(any::<[u8; 4]>(), 0..10)")]
    pub places: Vec<[u8; 4]>,
}

/// The arguments of a pod.
#[derive(Clone, Debug, Arbitrary)]
#[allow(missing_docs)]
pub(crate) struct Seed {
    pub uid: u8,
    pub node: u8,
    pub shape: u8,
}

/// The arguments of a node.
#[derive(Clone, Debug, Arbitrary)]
#[allow(missing_docs)]
pub(crate) struct NodeSeed {
    pub name: u8,
    pub zone: u8,
    pub shape: u8,
}

fn uid(n: u8) -> String {
    match n % 24 {
        0 => String::new(),
        n if n % 2 == 0 => format!("u{n}"),
        n => format!("00000000-0000-0000-0000-0000000000{n:02x}"),
    }
}

fn node_name(n: u8) -> String {
    format!("n{}", n % 80)
}

fn make_pod(seed: &Seed) -> Pod {
    let shape = seed.shape;
    let mut builder = pod(format!("p{}", seed.uid % 24))
        .resource_version(u64::from(shape))
        .label("app", if shape & 1 == 0 { "a" } else { "b" })
        .cpu(i64::from(shape) * 10)
        .priority(i32::from(shape % 3));
    if shape & 128 != 0 {
        builder = builder.started(Timestamp::from_secs(i64::from(shape & 3)));
    }
    if seed.node % 16 != 15 && !(seed.uid & 128 != 0 && seed.node & 1 != 0) {
        builder = builder.on(node_name(seed.node % 16));
    }
    if seed.uid & 128 != 0 {
        builder = builder.spec(|spec| {
            spec.godel = annotations(seed);
            spec.owners = (shape & 8 != 0).then(replica_set).into_iter().collect();
        });
    }
    if shape & 2 != 0 {
        builder = builder.request("example.com/gpu", Quantity::whole(i64::from(shape & 8)));
    }
    if shape & 4 != 0 {
        builder = builder.claim(format!("claim{}", shape & 3)).claim("claim1");
    }
    if shape & 16 != 0 {
        builder = builder
            .host_port(8000 + u16::from(shape & 1))
            .request("hugepages-2Mi", Quantity::whole(4));
    }
    let term = || PodAffinityTerm {
        topology_key: "zone".into(),
        selector: LabelSelector::from_labels([("app", "a")]),
        namespaces: ["default".into()].into(),
        namespace_selector: LabelSelector::Nothing,
    };
    if shape % 3 == 1 {
        builder = builder.group(format!("g{}", shape & 1));
    }
    if shape & 32 != 0 {
        builder = builder.pod_affinity(PodAffinity::default());
    }
    if shape & 64 != 0 {
        builder = builder.pod_anti_affinity(PodAffinity {
            required: Box::new([term()]),
            ..PodAffinity::default()
        });
    }
    if shape & 128 != 0 {
        builder = builder.class(PodClass::BestEffort);
    }
    if shape % 16 == 11 {
        builder = builder.spec(|spec| spec.resource_claims = ["device".into()].into());
    }
    let mut pod = builder.build();
    pod.uid = Uid::new(&uid(seed.uid));
    pod
}

/// Creates Gödel's annotations of a pod, which is assumed in most cases.
fn annotations(seed: &Seed) -> Option<Box<GodelPod>> {
    let node = Some(node_name(seed.node / 16).into());
    let (state, assumed_node) = match seed.shape % 5 {
        0 => ("dispatched", None),
        1 => ("", node),
        _ => ("assumed", node),
    };
    let selected_scheduler = (!state.is_empty()).then(|| "s".into());
    // The pod is nominated to its own node or to another one. A pod is either assumed or nominated.
    let nominated = (seed.uid & 32 != 0).then(|| NominatedNode {
        node: node_name(if seed.shape & 4 != 0 { seed.node % 16 } else { seed.node / 16 }).into(),
        victims: [seed.shape, seed.shape / 8].map(|n| victim(n % 4)).into(),
    });
    let assumed_node = assumed_node.filter(|_| nominated.is_none());
    let takes = |wanted: bool| wanted.then(|| format!("default/p{}-placeholder", seed.node % 24));
    let godel = GodelPod {
        state: state.into(),
        selected_scheduler,
        assumed_node,
        reserves: seed.shape & 1 != 0,
        reservation_index: Some("web".into()),
        matched_placeholder: takes(seed.shape & 2 != 0).map(Into::into),
        nominated_node: nominated,
        movement: (seed.uid & 64 != 0).then(|| movement_name(seed.shape)),
        ..GodelPod::default()
    };
    Some(Box::new(godel))
}

fn victim(n: u8) -> Victim {
    Victim { namespace: "default".into(), name: "v".into(), uid: uid(n).into() }
}

fn replica_set() -> OwnerReference {
    OwnerReference {
        api_version: "apps/v1".into(),
        kind: "ReplicaSet".into(),
        name: "rs".into(),
        uid: "r".into(),
        controller: true,
    }
}

fn movement_name(n: u8) -> Name {
    format!("m{}", n % 3).into()
}

fn make_movement(seed: &MovementSeed) -> Movement {
    let task = |n: u8| MovementTask {
        namespace: "default".into(),
        name: format!("p{}", n % 24).into(),
        uid: Uid::new(&uid(n)),
        node: node_name(n % 16).into(),
    };
    let owner = |n: u8| {
        let (kind, name, uid) = match n % 3 {
            0 => ("ReplicaSet", "rs".to_owned(), "r"),
            n => ("PodGroup", format!("g{}", n - 1), ""),
        };
        let (kind, name, uid) = (kind.into(), name.into(), uid.into());
        OwnerKey { kind, namespace: "default".into(), name, uid }
    };
    let recommendation = |[whose, node, desired, actual]: &[u8; 4]| MovementOwner {
        owner: owner(*whose),
        nodes: Box::new([RecommendedNode {
            node: node_name(node % 8).into(),
            desired: u64::from(desired % 16),
            // One task may be repeated.
            actual: (0..actual % 8).map(|i| task(actual / 8 + i % 6)).collect(),
        }]),
    };
    Movement {
        name: movement_name(seed.name),
        creator: format!("c{}", seed.name / 3).into(),
        deleted: (0..seed.name % 4).map(task).collect(),
        owners: seed.places.iter().map(recommendation).collect(),
        ..Movement::default()
    }
}

fn make_node(seed: &NodeSeed) -> Node {
    let shape = seed.shape;
    let mut builder = node(node_name(seed.name)).hostname().cpu(i64::from(shape) * 100);
    if seed.zone % 5 != 4 {
        builder = builder.zone(format!("z{}", seed.zone % 5));
    }
    if shape & 1 != 0 {
        builder = builder.resource("example.com/gpu", Quantity::whole(i64::from(shape & 6)));
    }
    if shape & 8 != 0 {
        builder = builder.image(["img:1", "img@sha256:1"], 1000 + i64::from(shape));
    }
    if shape & 16 != 0 {
        builder = builder.image(["other:1", "img:1"], 77);
    }
    if shape & 32 != 0 {
        builder = builder.taint(Taint::new("k", "v", TaintEffect::NoSchedule)).unschedulable(true);
    }
    if shape & 64 != 0 {
        builder = builder.scheduler(format!("s{}", shape & 1));
    }
    builder.build()
}

fn make_reservation(seed: &Seed, phase: u8) -> Object {
    Object::from(Reservation {
        phase: match phase % 8 {
            0 => ReservationPhase::Matched,
            1 => ReservationPhase::TimeOut,
            2 => ReservationPhase::Pending,
            _ => ReservationPhase::Reserved,
        },
        owner: (phase & 16 != 0).then(|| Uid::new(&uid(phase / 8))),
        ..Reservation::of(&make_pod(seed))
    })
}

/// Returns names of nodes on which pods are placed, so that parts, nodes and pods meet.
fn part_name(n: u8) -> String {
    format!("n{}", n % 16)
}

fn make_nm_node(seed: &NodeSeed) -> Object {
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
    let capacity = if shape & 8 != 0 { amounts(shape * 100, 50) } else { ResourceList::default() };
    let mut nm_node = NmNode::new(part_name(seed.name))
        .with_labels(&Labels::new(labels))
        .with_resources(capacity, amounts(shape * 60, shape & 63));
    if shape & 32 != 0 {
        nm_node.taints = Box::new([Taint::new("nm", "v", TaintEffect::NoSchedule)]);
    }
    nm_node.scheduler = (shape & 64 != 0).then(|| format!("s{}", shape & 1).into());
    nm_node.into()
}

fn make_custom(seed: &NodeSeed) -> Object {
    let shape = i64::from(seed.shape);
    let mut list = ResourceList::new([("cpu", Quantity::milli(shape * 10))]);
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

/// Creates metrics of some of the possible pods, each in one class or in both.
fn metrics(seed: &NodeSeed) -> NodeMetrics {
    let group = |class, n: u8| {
        let pods = (0..n % 8).map(|i| format!("default/p{}", (seed.shape / 8 + i * 3) % 24));
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

/// Returns one of few namespaces and names. Pods are in the first namespace.
fn object_name(n: u8) -> (&'static str, String) {
    (if n & 32 == 0 { "default" } else { "other" }, format!("o{}", n % 12))
}

fn make_budget(seed: &NodeSeed) -> Object {
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

fn phase(n: u8) -> PodGroupPhase {
    use PodGroupPhase::{
        Failed, Finished, Pending, PreScheduling, Running, Scheduled, Timeout, Unknown,
    };
    let phases = [Unknown, Pending, PreScheduling, Scheduled, Running, Finished, Failed, Timeout];
    phases[usize::from(n % 8)]
}

fn make_group([name, shape]: [u8; 2]) -> Object {
    let phase = (shape & 128 != 0).then(|| phase(shape));
    let group = PodGroup::new("default", format!("g{}", name & 1), u32::from(shape / 8 % 4));
    Object::from(PodGroup { phase, ..group })
}

fn owner_kind(n: u8) -> ObjectKind {
    if n & 64 == 0 { ObjectKind::DaemonSet } else { ObjectKind::ReplicaSet }
}

fn make_owner(seed: &NodeSeed) -> Object {
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

fn delete_named(kind: ObjectKind, n: u8) -> Event {
    let (namespace, name) = object_name(n);
    let key = ObjectKey { kind, namespace: namespace.to_owned(), name };
    Event::DeleteObject(Arc::new(key))
}

fn delete(kind: ObjectKind, n: u8) -> Event {
    let key = ObjectKey { kind, namespace: String::new(), name: part_name(n) };
    Event::DeleteObject(Arc::new(key))
}

fn relist(kind: ObjectKind, objects: impl Iterator<Item = Object>) -> Event {
    Event::Relist(Arc::new(Relist::Objects(kind, objects.collect())))
}

/// Returns no version, or the version before this step.
fn decided_on(seed: &Seed, step: u64) -> Option<Generation> {
    (seed.uid & 64 != 0).then_some(Generation(step))
}

/// Creates the event of an operation. The clock is derived from the step, and decisions are based on the version before
/// it.
pub(crate) fn event(op: &Op, step: u64) -> Event {
    let now = Timestamp::from_secs(step as i64 * 7);
    let other = |n: u8| (!n.is_multiple_of(3)).then(|| node_name(n % 16).into());
    match op {
        Op::Assume(seed) => {
            let decided_on = decided_on(seed, step);
            Event::AssumePod { pod: Arc::new(make_pod(seed)), decided_on }
        }
        Op::AssumeAll(a, b, c) => {
            let decided_on = decided_on(a, step);
            Event::AssumeAll { pods: [a, b, c].map(make_pod).into(), decided_on }
        }
        Op::Preempt(seed, victims) => {
            // No, one or two victims.
            let victims = victims[usize::from(seed.uid % 3)..].iter();
            Event::Preempt {
                pod: Arc::new(make_pod(seed)),
                victims: victims.map(|n| Uid::new(&uid(*n))).collect(),
                decided_on: None,
            }
        }
        Op::MarkForDeletion(victim, preemptor) => {
            let (victim, preemptor) = (Uid::new(&uid(*victim)), Uid::new(&uid(*preemptor)));
            Event::MarkForDeletion { victim, preemptor, now }
        }
        Op::UnmarkForDeletion(victim, preemptor) => {
            let (victim, preemptor) = (Uid::new(&uid(*victim)), Uid::new(&uid(*preemptor)));
            Event::UnmarkForDeletion { victim, preemptor }
        }
        Op::AssignNode(node, to) => {
            let scheduler = format!("s{}", to & 1).into();
            Event::AssignNode { node: node_name(node % 16).into(), scheduler }
        }
        Op::UnassignNode(node, from) => {
            let scheduler = format!("s{}", from & 1).into();
            Event::UnassignNode { node: node_name(node % 16).into(), scheduler }
        }
        Op::Finish(n) => Event::FinishBinding { uid: Uid::new(&uid(*n)), now },
        Op::Forget(n, node) => Event::ForgetPod { uid: Uid::new(&uid(*n)), node: other(*node) },
        Op::Add(seed) => Event::AddPod(Arc::new(make_pod(seed))),
        Op::Update(n, seed) => {
            let mut seed = seed.clone();
            if seed.shape % 4 != 0 {
                seed.uid = *n;
            }
            Event::UpdatePod { old: Uid::new(&uid(*n)), pod: Arc::new(make_pod(&seed)) }
        }
        Op::Remove(n, node) => Event::RemovePod { uid: Uid::new(&uid(*n)), node: other(*node) },
        Op::Pending(seed) => {
            let mut pod = make_pod(seed);
            if seed.node % 4 != 0 {
                pod.node_name = None;
            }
            Event::PutPending(Arc::new(pod))
        }
        Op::Reserve(seed, phase) => Event::PutObject(make_reservation(seed, *phase)),
        Op::RelistReservations(seeds) => {
            let listed = seeds.iter().map(|seed| make_reservation(seed, seed.node ^ seed.shape));
            relist(ObjectKind::Reservation, listed)
        }
        Op::Unreserve(n) => Event::DeleteObject(Arc::new(ObjectKey {
            kind: ObjectKind::Reservation,
            namespace: "default".into(),
            name: format!("p{}", n % 24),
        })),
        Op::PutMovement(seed) => Event::PutObject(make_movement(seed).into()),
        Op::DeleteMovement(n) => Event::DeleteObject(Arc::new(ObjectKey {
            kind: ObjectKind::Movement,
            namespace: String::new(),
            name: movement_name(*n).to_string(),
        })),
        Op::RelistMovements(seeds) => {
            let movements = seeds.iter().map(|seed| make_movement(seed).into());
            relist(ObjectKind::Movement, movements)
        }
        Op::AddNode(seed) => Event::AddNode(Arc::new(make_node(seed))),
        Op::UpdateNode(seed) => Event::UpdateNode(Arc::new(make_node(seed))),
        Op::RemoveNode(n) => Event::RemoveNode(node_name(*n).into()),
        Op::PutNmNode(seed) => Event::PutObject(make_nm_node(seed)),
        Op::DeleteNmNode(n) => delete(ObjectKind::NmNode, *n),
        Op::PutCustom(seed) => Event::PutObject(make_custom(seed)),
        Op::DeleteCustom(n) => delete(ObjectKind::CustomNodeResource, *n),
        Op::RelistNmNodes(seeds) => relist(ObjectKind::NmNode, seeds.iter().map(make_nm_node)),
        Op::RelistCustom(seeds) => {
            relist(ObjectKind::CustomNodeResource, seeds.iter().map(make_custom))
        }
        Op::PutBudget(seed) => Event::PutObject(make_budget(seed)),
        Op::DeleteBudget(n) => delete_named(ObjectKind::PodDisruptionBudget, *n),
        Op::RelistBudgets(seeds) => {
            relist(ObjectKind::PodDisruptionBudget, seeds.iter().map(make_budget))
        }
        Op::PutGroup(name, shape) => Event::PutObject(make_group([*name, *shape])),
        Op::SetGroupPhase(n, to) => Event::SetGroupPhase {
            namespace: "default".into(),
            name: format!("g{}", n & 1).into(),
            phase: phase(*to),
        },
        Op::DeleteGroup(n) => Event::DeleteObject(Arc::new(ObjectKey {
            kind: ObjectKind::PodGroup,
            namespace: "default".to_owned(),
            name: format!("g{}", n & 1),
        })),
        Op::RelistGroups(seeds) => {
            relist(ObjectKind::PodGroup, seeds.iter().map(|seed| make_group(*seed)))
        }
        Op::PutOwner(seed) => Event::PutObject(make_owner(seed)),
        Op::DeleteOwner(n) => delete_named(owner_kind(*n), *n),
        // The list may contain objects of another kind, in which case it removes nothing.
        Op::RelistDaemonSets(seeds) => relist(ObjectKind::DaemonSet, seeds.iter().map(make_owner)),
        Op::Expire => Event::Expire(now),
        Op::RelistPods(seeds) => {
            Event::Relist(Arc::new(Relist::Pods(seeds.iter().map(make_pod).collect())))
        }
        Op::RelistNodes(seeds) => Event::Relist(Arc::new(Relist::Nodes(
            seeds.iter().map(|seed| Arc::new(make_node(seed))).collect(),
        ))),
    }
}

/// Applies an event to a fork.
pub(crate) fn apply_to_fork(fork: &mut Fork, event: &Event) {
    let _ = match event {
        Event::AddPod(pod) | Event::AssumePod { pod, .. } | Event::UpdatePod { pod, .. } => {
            fork.add_pod(pod)
        }
        Event::Preempt { pod, victims, .. } => fork.preempt(pod, victims),
        Event::RemovePod { uid, .. } | Event::ForgetPod { uid, .. } => fork.remove_pod(uid),
        Event::AddNode(node) | Event::UpdateNode(node) => fork.add_node(Node::clone(node)),
        Event::RemoveNode(name) => fork.remove_node(name),
        Event::PutObject(object) => fork.put_object(object.clone()),
        Event::DeleteObject(key) => fork.delete_object(key.kind, &key.namespace, &key.name),
        _ => Ok(()),
    };
}
