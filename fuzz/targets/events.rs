//! Random events over few names, so that they collide: what the fuzzer's bytes
//! and proptest's values both stand for.

use std::sync::Arc;

use arbitrary::Arbitrary;
use portolan::log::{Event, Relist};
use portolan::model::{Name, Node, Pod, PodAffinity, Quantity, Timestamp, Uid, node, pod};

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
}

/// What a pod is made of.
#[derive(Arbitrary, Clone, Debug)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub(crate) struct PodSeed {
    uid: u8,
    node: u8,
    shape: u8,
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
        Op::Hold | Op::Drop | Op::Fork(_) => return None,
    })
}
