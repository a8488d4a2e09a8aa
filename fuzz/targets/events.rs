//! Random events over a few names, so that names collide. Both the fuzzer's bytes and proptest's values are decoded to
//! these events.

use std::sync::Arc;

use arbitrary::Arbitrary;
use portolan::log::{Event, ObjectKey, Relist};
use portolan::model::{
    GodelPod, Movement, MovementOwner, MovementTask, Name, Node, NominatedNode, Object, ObjectKind,
    OwnerKey, OwnerReference, Pod, PodAffinity, Quantity, RecommendedNode, Template, Timestamp,
    Uid, Victim, node, pod,
};

/// An operation, encoded in small numbers.
#[derive(Arbitrary, Clone, Debug)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub(crate) enum Op {
    Assume(PodSeed),
    AssumeAll([PodSeed; 3]),
    Finish(u8),
    Forget(u8, Option<u8>),
    Add(PodSeed),
    Update(u8, PodSeed),
    Remove(u8, Option<u8>),
    PutNode(NodeSeed),
    RemoveNode(u8),
    Expire,
    RelistPods(Vec<PodSeed>),
    RelistNodes(Vec<NodeSeed>),
    Hold,
    Drop,
    Fork(Vec<PodSeed>),
    /// As the first operation, enables Gödel semantics; later, rebuilds the engine.
    Godel,
    AssumeAnnotated(AnnotatedPodSeed),
    AddAnnotated(AnnotatedPodSeed),
    UpdateAnnotated(u8, AnnotatedPodSeed),
    RelistAnnotated(Vec<AnnotatedPodSeed>),
    PutMovement(MovementSeed),
    DeleteMovement(u8),
}

/// The encoding of a pod.
#[derive(Arbitrary, Clone, Debug)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub(crate) struct PodSeed {
    uid: u8,
    node: u8,
    shape: u8,
}

/// The encoding of a pod with Gödel annotations.
#[derive(Arbitrary, Clone, Debug)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub(crate) struct AnnotatedPodSeed {
    pod: PodSeed,
    annotations: u8,
}

/// The encoding of a movement: owners, nodes, the number of pods requested there, and the pods already placed.
#[derive(Arbitrary, Clone, Debug)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub(crate) struct MovementSeed {
    name: u8,
    places: Vec<[u8; 4]>,
}

/// The encoding of a node.
#[derive(Arbitrary, Clone, Debug)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub(crate) struct NodeSeed {
    name: u8,
    zone: u8,
    shape: u8,
}

/// Returns one of 16 uids, including the empty one.
pub(crate) fn uid(n: u8) -> Uid {
    Uid::new(&match n % 16 {
        0 => String::new(),
        n if n % 2 == 0 => format!("u{n}"),
        n => format!("00000000-0000-0000-0000-0000000000{n:02x}"),
    })
}

fn name(n: u8) -> Name {
    format!("n{}", n % 72).into()
}

/// Returns the pod of a seed.
pub(crate) fn make_pod(seed: &PodSeed) -> Pod {
    let bit = |n: u8| seed.shape >> n & 1 == 1;
    let mut builder = pod(format!("p{}", seed.uid % 16))
        .resource_version(seed.shape.into())
        .cpu(i64::from(seed.shape));
    if seed.node != u8::MAX {
        builder = builder.on(name(seed.node));
    }
    if bit(0) {
        builder = builder.claim("shared").claim(format!("own-{}", seed.uid % 4));
    }
    if bit(1) {
        builder = builder.host_port(8000 + u16::from(seed.uid % 2));
    }
    if bit(2) {
        builder = builder.request("example.com/gpu", Quantity::whole(seed.shape.into()));
    }
    if bit(3) {
        builder = builder.pod_affinity(PodAffinity::default());
    }
    if bit(4) {
        // Some sums come close to the limit of 64 bits, or exceed it.
        builder = builder.memory(i64::MAX / 2);
    }
    let mut pod = builder.build();
    pod.uid = uid(seed.uid);
    pod
}

/// Returns the pod of a seed, with an owner and annotations: it may follow a movement, or preempt victims.
fn make_annotated_pod(seed: &AnnotatedPodSeed) -> Pod {
    let mut pod = make_pod(&seed.pod);
    let (annotations, bit) = (seed.annotations, |n: u8| seed.annotations >> n & 1 == 1);
    let mut spec = (**pod.template).clone();
    // The remaining pods have no owner.
    match annotations % 3 {
        0 => spec.scheduling_group = Some("g".into()),
        1 => spec.owners = Box::new([replica_set()]),
        _ => {}
    }
    let victim =
        |n: u8| Victim { namespace: "n".into(), name: "v".into(), uid: uid(n).to_string().into() };
    let nominated_node = bit(2).then(|| NominatedNode {
        node: name(if bit(3) { seed.pod.node } else { annotations }),
        victims: [annotations, annotations / 16].map(victim).into(),
    });
    spec.godel = Some(Box::new(GodelPod {
        // If no node is named, the pod is another scheduler's.
        state: if bit(4) { "assumed".into() } else { "dispatched".into() },
        selected_scheduler: Some("s".into()),
        assumed_node: (bit(4) && !bit(2)).then(|| name(annotations)),
        nominated_node,
        movement: bit(5).then(|| movement_name(annotations)),
        ..GodelPod::default()
    }));
    pod.template = Template::new(spec);
    pod
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
    format!("m{}", n / 64).into()
}

fn make_movement(seed: &MovementSeed) -> Object {
    let task = |n: u8| MovementTask {
        namespace: "n".into(),
        name: "p".into(),
        uid: uid(n),
        node: name(n),
    };
    let place = |[owner_kind, node, desired, actual]: &[u8; 4]| {
        let (kind, name_of, uid_of) =
            if owner_kind % 2 == 0 { ("PodGroup", "g", "") } else { ("ReplicaSet", "rs", "r") };
        let namespace = pod("p").build().namespace().clone();
        let owner =
            OwnerKey { kind: kind.into(), namespace, name: name_of.into(), uid: uid_of.into() };
        // Include the largest 64-bit number.
        let desired = if *desired == u8::MAX { u64::MAX } else { (desired % 4).into() };
        let actual = (0..actual % 4).map(|i| task((actual / 4).wrapping_add(i))).collect();
        let nodes = Box::new([RecommendedNode { node: name(*node), desired, actual }]);
        MovementOwner { owner, nodes }
    };
    Object::from(Movement {
        name: movement_name(seed.name),
        deleted: (0..seed.name % 4).map(task).collect(),
        owners: seed.places.iter().map(place).collect(),
        ..Movement::default()
    })
}

fn make_node(seed: &NodeSeed) -> Node {
    let mut builder = node(name(seed.name)).hostname().cpu(i64::from(seed.shape) * 10);
    if seed.zone < 200 {
        builder = builder.zone(format!("z{}", seed.zone % 5));
    }
    if seed.shape & 1 == 1 {
        builder = builder.image(["a:1", "a@1"], i64::from(seed.shape));
    }
    if seed.shape & 2 == 2 {
        builder = builder.resource("example.com/gpu", Quantity::whole(i64::from(seed.shape & 4)));
    }
    builder.build()
}

/// Returns the event of an operation, with `step` as its clock, or `None` if the operation writes nothing.
pub(crate) fn event(op: &Op, step: i64) -> Option<Event> {
    let now = Timestamp::from_secs(step * 7);
    Some(match op {
        Op::Assume(seed) => Event::AssumePod { pod: Arc::new(make_pod(seed)), decided_on: None },
        Op::AssumeAll(seeds) => {
            Event::AssumeAll { pods: seeds.iter().map(make_pod).collect(), decided_on: None }
        }
        Op::Finish(n) => Event::FinishBinding { uid: uid(*n), now },
        Op::Forget(n, node) => Event::ForgetPod { uid: uid(*n), node: node.map(name) },
        Op::Add(seed) => Event::AddPod(Arc::new(make_pod(seed))),
        Op::Update(old, seed) => Event::UpdatePod { old: uid(*old), pod: Arc::new(make_pod(seed)) },
        Op::Remove(n, node) => Event::RemovePod { uid: uid(*n), node: node.map(name) },
        Op::PutNode(seed) => Event::AddNode(Arc::new(make_node(seed))),
        Op::RemoveNode(n) => Event::RemoveNode(name(*n)),
        Op::Expire => Event::Expire(now),
        Op::RelistPods(seeds) => {
            Event::Relist(Arc::new(Relist::Pods(seeds.iter().map(make_pod).collect())))
        }
        Op::RelistNodes(seeds) => Event::Relist(Arc::new(Relist::Nodes(
            seeds.iter().map(|seed| Arc::new(make_node(seed))).collect(),
        ))),
        Op::AssumeAnnotated(seed) => {
            Event::AssumePod { pod: Arc::new(make_annotated_pod(seed)), decided_on: None }
        }
        Op::AddAnnotated(seed) => Event::AddPod(Arc::new(make_annotated_pod(seed))),
        Op::UpdateAnnotated(old, seed) => {
            Event::UpdatePod { old: uid(*old), pod: Arc::new(make_annotated_pod(seed)) }
        }
        Op::RelistAnnotated(seeds) => {
            Event::Relist(Arc::new(Relist::Pods(seeds.iter().map(make_annotated_pod).collect())))
        }
        Op::PutMovement(seed) => Event::PutObject(make_movement(seed)),
        Op::DeleteMovement(n) => Event::DeleteObject(Arc::new(ObjectKey {
            kind: ObjectKind::Movement,
            namespace: String::new(),
            name: movement_name(*n).to_string(),
        })),
        Op::Hold | Op::Drop | Op::Fork(_) | Op::Godel => return None,
    })
}
