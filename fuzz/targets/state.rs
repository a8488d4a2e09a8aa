//! The target's body, mounted by the fuzzer and by `tests/fuzz_corpus.rs`:
//! random events against the naive fold, with held snapshots, forks and an
//! audit.

use std::sync::Arc;
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use portolan::log::{Event, Relist};
use portolan::model::{Name, Node, Pod, PodAffinity, Quantity, Timestamp, Uid, node, pod};
use portolan::snapshot::{Dump, Fork};
use portolan::state::State;
use portolan::state::naive::Naive;

#[derive(Arbitrary, Debug)]
enum Op {
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

#[derive(Arbitrary, Debug)]
struct PodSeed {
    uid: u8,
    node: u8,
    shape: u8,
}

#[derive(Arbitrary, Debug)]
struct NodeSeed {
    name: u8,
    zone: u8,
    shape: u8,
}

fn uid(n: u8) -> Uid {
    Uid::new(&match n % 16 {
        0 => String::new(),
        n if n % 2 == 0 => format!("u{n}"),
        n => format!("00000000-0000-0000-0000-0000000000{n:02x}"),
    })
}

fn name(n: u8) -> Name {
    format!("n{}", n % 72).into()
}

fn make_pod(seed: &PodSeed) -> Pod {
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

fn event(op: &Op, step: i64) -> Option<Event> {
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

fn comparable(mut dump: Dump) -> Dump {
    for node in dump.nodes.values_mut() {
        node.columns.clear();
    }
    dump
}

/// Runs one input.
pub(crate) fn run(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let ttl = Some(Duration::from_secs(30));
    let mut state = State::new(ttl, None);
    let mut naive = Naive::new(ttl);
    let mut held = Vec::new();
    let mut forks: Vec<(Fork, Dump)> = Vec::new();
    let mut step = 0;
    while !input.is_empty() && step < 400 {
        let Ok(op) = Op::arbitrary(&mut input) else { break };
        step += 1;
        match (&op, event(&op, step)) {
            (_, Some(event)) => {
                let answer = state.apply(&event, &mut ());
                // The naive fold sums without a bound.
                let beyond = matches!(answer, Err(portolan::model::EventError::Overflow { .. }))
                    || matches!(&answer, Err(portolan::model::EventError::Together(why))
                        if matches!(**why, portolan::model::EventError::Overflow { .. }))
                    || answer.as_ref().is_ok_and(|applied| !applied.rejected.is_empty());
                if beyond {
                    return;
                }
                assert_eq!(answer.is_ok(), naive.apply(&event), "{event:?}");
                // Long inputs cost most of their time here.
                if step <= 32 || step % 8 == 0 {
                    assert_eq!(comparable(state.cluster().dump()), naive.dump(), "after {event:?}");
                }
            }
            (Op::Hold, _) => held.push((state.freeze(), state.cluster().dump())),
            (Op::Drop, _) if !held.is_empty() => drop(held.remove(0)),
            (Op::Fork(seeds), _) if forks.len() < 4 => {
                let mut fork = state.cluster().fork();
                for seed in seeds {
                    // Refusals are part of the input.
                    drop(fork.add_pod(&make_pod(seed)));
                }
                assert_eq!(fork.audit(), vec![]);
                let dump = fork.dump();
                forks.push((fork, dump));
            }
            _ => {}
        }
        let oldest = held.first().map_or(state.cluster().generation(), |(s, _)| s.generation());
        state.set_horizon(oldest);
    }
    assert_eq!(comparable(state.cluster().dump()), naive.dump());
    assert_eq!(state.cluster().audit(), vec![]);
    for (snapshot, dump) in &held {
        assert_eq!(&snapshot.dump(), dump);
    }
    for (fork, dump) in &forks {
        assert_eq!(&fork.dump(), dump);
    }
}
