//! Random events over few names, so that they collide: what the fuzzer's bytes
//! and proptest's values both stand for.

use std::sync::Arc;

use arbitrary::Arbitrary;
use portolan::log::{Event, ObjectKey, Relist};
use portolan::model::{
    GodelPod, Movement, MovementOwner, MovementTask, Name, Node, NominatedNode, Object, ObjectKind,
    OwnerKey, OwnerReference, Pod, PodAffinity, Quantity, RecommendedNode, Template, Timestamp,
    Uid, Victim, node, pod,
};

/// What happens, in small numbers.
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
    /// As the first of all: the engine is one of Gödel's. Later: it is rebuilt.
    Godel,
    AssumeSaying(SayingSeed),
    AddSaying(SayingSeed),
    UpdateSaying(u8, SayingSeed),
    RelistSaying(Vec<SayingSeed>),
    PutMovement(MovementSeed),
    DeleteMovement(u8),
}

/// What a pod is made of.
#[derive(Arbitrary, Clone, Debug)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub(crate) struct PodSeed {
    uid: u8,
    node: u8,
    shape: u8,
}

/// What a pod with annotations is made of.
#[derive(Arbitrary, Clone, Debug)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub(crate) struct SayingSeed {
    pod: PodSeed,
    says: u8,
}

/// What a movement is made of: whose pods should go where, how many, and who came.
#[derive(Arbitrary, Clone, Debug)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub(crate) struct MovementSeed {
    name: u8,
    places: Vec<[u8; 4]>,
}

/// What a node is made of.
#[derive(Arbitrary, Clone, Debug)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub(crate) struct NodeSeed {
    name: u8,
    zone: u8,
    shape: u8,
}

/// One of a few uids, the empty one among them.
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

/// The pod of a seed.
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
        // Sums beside the edge of 64 bits.
        builder = builder.memory(i64::MAX / 2);
    }
    let mut pod = builder.build();
    pod.uid = uid(seed.uid);
    pod
}

/// The pod of a seed, of an owner, that follows a movement or goes in place of others.
fn make_saying(seed: &SayingSeed) -> Pod {
    let mut pod = make_pod(&seed.pod);
    let (says, bit) = (seed.says, |n: u8| seed.says >> n & 1 == 1);
    let mut spec = (**pod.template).clone();
    // Else it has no owner.
    match says % 3 {
        0 => spec.scheduling_group = Some("g".into()),
        1 => spec.owners = Box::new([replica_set()]),
        _ => {}
    }
    let victim =
        |n: u8| Victim { namespace: "n".into(), name: "v".into(), uid: uid(n).to_string().into() };
    let nominated_node = bit(2).then(|| NominatedNode {
        node: name(if bit(3) { seed.pod.node } else { says }),
        victims: [says, says / 16].map(victim).into(),
    });
    spec.godel = Some(Box::new(GodelPod {
        // One of another scheduler, where it names no node of its own.
        state: if bit(4) { "assumed".into() } else { "dispatched".into() },
        selected_scheduler: Some("s".into()),
        assumed_node: (bit(4) && !bit(2)).then(|| name(says)),
        nominated_node,
        movement: bit(5).then(|| movement_name(says)),
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
    let place = |[whose, node, desired, actual]: &[u8; 4]| {
        let (kind, name_of, uid_of) =
            if whose % 2 == 0 { ("PodGroup", "g", "") } else { ("ReplicaSet", "rs", "r") };
        let namespace = pod("p").build().namespace().clone();
        let owner =
            OwnerKey { kind: kind.into(), namespace, name: name_of.into(), uid: uid_of.into() };
        // The edge of 64 bits among them.
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

/// What an operation writes to the log, `step` being its clock; none where it
/// only looks.
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
        Op::AssumeSaying(seed) => {
            Event::AssumePod { pod: Arc::new(make_saying(seed)), decided_on: None }
        }
        Op::AddSaying(seed) => Event::AddPod(Arc::new(make_saying(seed))),
        Op::UpdateSaying(old, seed) => {
            Event::UpdatePod { old: uid(*old), pod: Arc::new(make_saying(seed)) }
        }
        Op::RelistSaying(seeds) => {
            Event::Relist(Arc::new(Relist::Pods(seeds.iter().map(make_saying).collect())))
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
