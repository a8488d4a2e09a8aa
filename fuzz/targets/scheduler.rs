//! The body of the fuzz target, shared by the fuzzer and `tests/fuzz_corpus.rs`: schedules random pods one after the
//! other on a random cluster, through the event log. In addition to the invariants of
//! [`checks`](portolan_testkit::checks), the decision must not depend on the number of threads, nor on what the
//! scheduler has cached.

use std::sync::{Arc, OnceLock};

use portolan::cache::{Config, Engine, Event, Snapshot, Writer};
use portolan::model::{Pod, Uid};
use portolan::plugin::Handle;
use portolan::{Algorithm, AlgorithmConfig, Failure, Framework};
use portolan_testkit::checks::{
    chunk_and_node_calls_agree, decided_by_nodes, incremental_filters_equal_rebuilt,
    verdicts_are_consistent,
};
use portolan_testkit::draw::Draw;
use portolan_testkit::sample::Checks;
use rayon::{ThreadPool, ThreadPoolBuilder};

/// The number of distinct pod templates that a cluster runs initially. Drawing a pod costs more than adding one.
const TEMPLATES: usize = 12;

/// Thread pools of 1, 2 and 8 threads, created once.
fn pools() -> &'static [Arc<ThreadPool>; 3] {
    static POOLS: OnceLock<[Arc<ThreadPool>; 3]> = OnceLock::new();
    POOLS.get_or_init(|| {
        [1, 2, 8].map(|n| Arc::new(ThreadPoolBuilder::new().num_threads(n).build().unwrap()))
    })
}

/// Writes an event through the log. Events that overflow a sum or add a known pod are refused.
fn write(engine: &Engine, event: Event) {
    // A refusal is a valid outcome.
    drop(engine.submit(event).unwrap().wait().unwrap());
}

/// Creates a cluster of `nodes` nodes, with gaps in its chunks and pods on its nodes. Everything is published as one
/// version, since publishing after every event would cost more than the checks.
fn cluster(draw: &mut Draw<'_>, nodes: usize) -> Engine {
    let engine = Engine::shared(Config { log_capacity: Some(4), ..Config::default() });
    let fill = |writer: &mut Writer| {
        for n in 0..nodes {
            writer.add_node(draw.node(n)).unwrap();
        }
        for _ in 0..draw.of(&[0, 4, 12]) {
            drop(writer.put_object(draw.object()));
        }
        let mut templates = Vec::with_capacity(TEMPLATES);
        for n in 0..nodes.min(40) * 2 {
            let node = format!("n{}", draw.below(nodes as u64));
            let pod = if n < TEMPLATES {
                templates.push(draw.pod(n));
                templates[n].clone()
            } else {
                let template: &Pod = &templates[draw.below(TEMPLATES as u64) as usize];
                Pod { uid: Uid::new(&format!("{}-{n}", template.uid)), ..template.clone() }
            };
            drop(writer.add_pod(pod.on(node)));
        }
        for n in 0..nodes {
            if draw.one_in(9) {
                writer.remove_node(format!("n{n}")).unwrap();
            }
        }
        writer.publish();
    };
    engine.with_writer(fill).unwrap();
    engine
}

/// Applies a random unrelated event.
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

/// Runs one input with a sample of the expensive checks.
#[allow(dead_code, reason = "replays run all checks")]
pub(crate) fn run(data: &[u8]) {
    run_checking(data, Checks::for_input(data));
}

/// Runs one input with all checks.
#[allow(dead_code, reason = "fuzzers run a sample of the checks")]
pub(crate) fn run_closely(data: &[u8]) {
    run_checking(data, Checks::All);
}

fn run_checking(data: &[u8], checks: Checks) {
    let mut draw = Draw::from_bytes(data);
    // Most clusters are small; a few have zones of two chunks.
    let nodes = match draw.below(32) {
        0 => 130,
        1 => 70,
        2 | 3 => 40,
        _ => draw.of(&[1, 2, 3, 3, 5, 5, 9, 20]),
    };
    // Many small zones give enough chunks for threads to share them.
    draw.zones = draw.of(&[1, 3, 3, 200]);
    let config = AlgorithmConfig {
        percentage_of_nodes: draw.of(&[100, 100, 100, 0, 30]),
        seed: draw.below(1 << 32),
    };
    let engine = cluster(&mut draw, nodes);
    let reader = engine.reader().unwrap();
    let handle = Handle::default();
    let scheduler = |pool| {
        let framework = Framework::default_profile_with(&handle);
        Algorithm::new(framework, config.clone(), pool)
    };
    let mut alone = scheduler(None);
    let mut uncached = scheduler(None);
    // With few chunks no work is shared, so one scheduler with a pool is enough.
    let some = if draw.zones * nodes as u64 >= 70 { 0..3 } else { 1..2 };
    let some = checks.choose(0, &pools()[some]);
    let mut pooled: Vec<Algorithm> =
        some.iter().map(|pool| scheduler(Some(pool.clone()))).collect();
    let templates: Vec<Pod> = (0..3).map(|n| draw.pod(n)).collect();
    for n in 0..draw.of(&[1, 2, 2, 6]) {
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
        // The numbers of this pod's checks start here.
        let check = 8 * (n as u64 + 1);
        if checks.include(check, 4) {
            chunk_and_node_calls_agree(&snapshot, &pod);
        }
        let found = verdicts_are_consistent(alone.framework(), &snapshot, &pod);
        let decided = decided_by_nodes(&mut alone, &snapshot, &pod);
        for pooled in &mut pooled {
            assert_eq!(pooled.schedule(&snapshot, &pod), decided, "with threads");
        }
        // A fork has its own lineage of versions, for which nothing is cached.
        assert_eq!(uncached.schedule(&snapshot.fork(), &pod), decided, "without a cache");
        if n % 3 == 0 && checks.include(check + 1, 4) {
            // The check draws from a clone, so that the remaining input is the same without the check.
            incremental_filters_equal_rebuilt(&mut draw.clone(), &snapshot, &pod, 3);
        }
        match decided {
            Ok(decision) => {
                assert!(found.nodes[&decision.node].status.is_none(), "the node is infeasible");
                write(&engine, Event::assume(pod.on(decision.node)));
            }
            Err(Failure::Plugin(status)) => assert!(!status.reasons.is_empty()),
            Err(_) => {}
        }
        disturb(&mut draw, &engine, &snapshot, nodes);
    }
    if checks.include(1, 4) {
        assert_eq!(engine.with_writer(|writer| writer.cluster().audit()).unwrap(), vec![]);
    }
}
