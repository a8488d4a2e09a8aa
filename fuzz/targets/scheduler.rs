//! The target's body, mounted by the fuzzer and by `tests/fuzz_corpus.rs`: a
//! random cluster, written through the log, and random pods one after the other.
//! Besides what [`checks`](super::checks) asserts, the decision is the same with
//! any number of threads, and the same by a scheduler that remembers nothing.

use std::sync::{Arc, OnceLock};

use portolan::framework::{Framework, Handle, ScheduleError, Scheduler, SchedulerConfig};
use portolan::log::Event;
use portolan::model::{Pod, Uid};
use portolan::{Config, Engine, Snapshot};
use rayon::{ThreadPool, ThreadPoolBuilder};

use super::checks::{adds_up, decided_by_nodes, same_of_chunks_and_nodes, told_is_made_anew};
use super::draw::Draw;

/// Pools of 1, 2 and 8 threads, made once.
fn pools() -> &'static [Arc<ThreadPool>; 3] {
    static POOLS: OnceLock<[Arc<ThreadPool>; 3]> = OnceLock::new();
    POOLS.get_or_init(|| {
        [1, 2, 8].map(|n| Arc::new(ThreadPoolBuilder::new().num_threads(n).build().unwrap()))
    })
}

/// Writes an event, and says whether it was accepted: sums of more than 64 bits
/// and pods that are known are not.
fn write(engine: &Engine, event: Event) -> bool {
    engine.submit(event).unwrap().wait().unwrap().is_ok()
}

/// A cluster of so many nodes, with holes in its chunks and pods on its nodes.
fn cluster(draw: &mut Draw<'_>, nodes: usize) -> Engine {
    let engine = Engine::shared(Config::default());
    for n in 0..nodes {
        assert!(write(&engine, Event::AddNode(Arc::new(draw.node(n)))));
    }
    for _ in 0..draw.of(&[0, 4, 12]) {
        write(&engine, Event::PutObject(draw.object()));
    }
    for n in 0..nodes.min(40) * 2 {
        let node = format!("n{}", draw.below(nodes as u64));
        write(&engine, Event::AddPod(Arc::new(draw.pod(n).on(node))));
    }
    for n in 0..nodes {
        if draw.one_in(9) {
            assert!(write(&engine, Event::RemoveNode(format!("n{n}").into())));
        }
    }
    engine
}

/// Something else happens.
fn disturb(draw: &mut Draw<'_>, engine: &Engine, snapshot: &Snapshot, nodes: usize) {
    let n = draw.below(nodes as u64) as usize;
    let event = match draw.below(6) {
        0 => Event::UpdateNode(Arc::new(draw.node(n))),
        1 => Event::RemoveNode(format!("n{n}").into()),
        2 => Event::PutObject(draw.object()),
        3 => {
            let Some(pod) = snapshot.nodes().filter_map(|node| node.pods().next()).nth(n) else {
                return;
            };
            Event::RemovePod { uid: pod.uid(), node: None }
        }
        _ => return,
    };
    write(engine, event);
}

/// Runs one input.
pub(crate) fn run(data: &[u8]) {
    let mut draw = Draw::from_bytes(data);
    let nodes = draw.of(&[1, 2, 3, 5, 9, 9, 20, 40, 70, 130]);
    // With many small zones there are enough chunks for a pool of threads.
    draw.zones = draw.of(&[1, 3, 3, 200]);
    let config = SchedulerConfig {
        percentage_of_nodes: draw.of(&[100, 100, 100, 0, 30]),
        seed: draw.below(1 << 32),
    };
    let engine = cluster(&mut draw, nodes);
    let reader = engine.reader().unwrap();
    let handle = Handle::default();
    let scheduler = |pool| {
        let framework = Framework::default_profile_with(&handle);
        Scheduler::new(framework, config.clone(), pool)
    };
    let mut alone = scheduler(None);
    let mut forgets = scheduler(None);
    let mut pooled = pools().each_ref().map(|pool| scheduler(Some(pool.clone())));
    let templates: Vec<Pod> = (0..3).map(|n| draw.pod(n)).collect();
    for n in 0..6 {
        let template = draw.of(&[0, 0, 1, 2]);
        let mut pod =
            Pod { uid: Uid::new(&format!("default/new-{n}")), ..templates[template].clone() };
        match draw.below(12) {
            0 => pod.nominated_node_name = Some(format!("n{}", draw.below(nodes as u64)).into()),
            1 => {
                let node = format!("n{}", draw.below(nodes as u64));
                handle.nominator().add(draw.pod(2_000 + n), node.into());
            }
            _ => {}
        }
        let snapshot = reader.snapshot();
        same_of_chunks_and_nodes(&snapshot, &pod);
        let found = adds_up(alone.framework(), &snapshot, &pod);
        let decided = decided_by_nodes(&mut alone, &snapshot, &pod);
        for pooled in &mut pooled {
            assert_eq!(pooled.schedule(&snapshot, &pod), decided, "by threads");
        }
        // A fork is a line of versions of its own, of which nothing is known.
        assert_eq!(forgets.schedule(&snapshot.fork(), &pod), decided, "by memory");
        if n % 3 == 0 {
            told_is_made_anew(&mut draw, &snapshot, &pod, 3);
        }
        match decided {
            Ok(decision) => {
                assert!(found.nodes[&decision.node].status.is_none(), "a node that is rejected");
                write(
                    &engine,
                    Event::AssumePod { pod: Arc::new(pod.on(decision.node)), decided_on: None },
                );
            }
            Err(ScheduleError::Plugin(status)) => assert!(!status.reasons.is_empty()),
            Err(_) => {}
        }
        disturb(&mut draw, &engine, &snapshot, nodes);
    }
    assert_eq!(engine.with_writer(|writer| writer.cluster().audit()).unwrap(), vec![]);
}
