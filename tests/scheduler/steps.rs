//! How often a cycle calls plugins: a regression of the caches shows here without a clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use portolan::cache::{Chunk, Cluster, Column, Config, Engine, Event, NodeInfo};
use portolan::model::{Labels, Pod, Timestamp, Uid, node, pod};
use portolan::plugin::{
    Code, Cycle, Feasible, Filter, Handle, Plugin, PreFilter, PreScore, Score, Status,
    default_plugins,
};
use portolan::{Algorithm, AlgorithmConfig, Framework, Placement, Profiles, Scheduler};
use portolan_testkit::plugin;

const NODES: usize = 5_000;
/// 1,667 nodes in each of three zones, 64 in a chunk.
const CHUNKS: u64 = 81;
/// 500 nodes are examined, 167 of each zone, which are at most four chunks.
const IN_REACH: u64 = 12;
/// The number of nodes with the label `pool=few`. They are in the first chunks of their zones.
const FEW: usize = 30;
/// Twice as many pods as it takes to examine all nodes.
const WARM: usize = 20;

/// The number of calls, and of nodes that were asked about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Calls {
    pre_filter: u64,
    filter_chunk: u64,
    pre_score: u64,
    score_chunk: u64,
    filtered: u64,
    scored: u64,
}

/// A local plugin that counts its calls. It rejects the nodes for pods in the namespace `no`.
#[derive(Clone, Default)]
struct Counter(Arc<[AtomicU64; 6]>);

impl Counter {
    fn count(&self, at: usize, n: u32) {
        self.0[at].fetch_add(n.into(), Ordering::Relaxed);
    }

    fn take(&self) -> Calls {
        let [pre_filter, filter_chunk, pre_score, score_chunk, filtered, scored] =
            [0, 1, 2, 3, 4, 5].map(|at: usize| self.0[at].swap(0, Ordering::Relaxed));
        Calls { pre_filter, filter_chunk, pre_score, score_chunk, filtered, scored }
    }
}

impl Plugin for Counter {
    plugin!("Counter", PreFilter, Filter, PreScore, Score; .local());

    fn treats_template_alike(&self, _: &Pod, _: &Cluster) -> bool {
        true
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        self.count(0, 1);
        Ok(PreFilter::Filter(Box::new(Counting { counter: self, pod: cycle.pod })))
    }

    fn pre_score<'a>(
        &'a self,
        cycle: Cycle<'a>,
        _: &'a Feasible<'a>,
    ) -> Result<PreScore<'a>, Status> {
        self.count(2, 1);
        Ok(PreScore::Score(Box::new(Counting { counter: self, pod: cycle.pod })))
    }
}

struct Counting<'a> {
    counter: &'a Counter,
    pod: &'a Pod,
}

impl Filter for Counting<'_> {
    fn filter(&self, _: NodeInfo<'_>) -> Option<Status> {
        let rejects = &**self.pod.namespace() == "no";
        rejects.then(|| Status::new(Code::Unschedulable, "Counter", "no"))
    }

    fn filter_chunk(&self, _: &Cluster, _: &Chunk, mask: u64) -> Result<u64, Status> {
        self.counter.count(1, 1);
        self.counter.count(4, mask.count_ones());
        Ok(if &**self.pod.namespace() == "no" { 0 } else { mask })
    }
}

impl Score for Counting<'_> {
    fn score(&self, _: NodeInfo<'_>) -> Result<i64, Status> {
        Ok(0)
    }

    fn score_chunk(
        &self,
        _: &Cluster,
        _: &Chunk,
        mask: u64,
        _: &mut Column<i64>,
    ) -> Result<(), Status> {
        self.counter.count(3, 1);
        self.counter.count(5, mask.count_ones());
        Ok(())
    }
}

struct Bench {
    engine: Engine,
    scheduler: Scheduler,
    counter: Counter,
    made: usize,
}

impl Bench {
    fn new() -> Bench {
        let engine = Engine::shared(Config::default());
        for n in 0..NODES {
            let node = node(format!("n{n}")).zone(format!("z{}", n % 3)).cpu(4_000);
            let node = node.label("pool", if n < FEW { "few" } else { "most" });
            submit(&engine, Event::add_node(node.memory(32 << 30).pods(110).build()));
        }
        let counter = Counter::default();
        let mut plugins = default_plugins(&Handle::default());
        plugins.push((Box::new(counter.clone()), 1));
        let framework = Framework::new(plugins).unwrap();
        let algorithm = Algorithm::new(framework, AlgorithmConfig::default(), None);
        let scheduler = Scheduler::new(engine.clone(), Profiles::one(algorithm)).unwrap();
        Bench { engine, scheduler, counter, made: 0 }
    }

    /// Returns pods of one template that have not been scheduled yet.
    fn pods(&mut self, template: &Pod, count: usize) -> Vec<Arc<Pod>> {
        let first = self.made;
        self.made += count;
        let uid = |n| Uid::new(&format!("00000000-0000-0000-0000-{n:012}"));
        (first..first + count).map(|n| Arc::new(Pod { uid: uid(n), ..template.clone() })).collect()
    }

    /// Schedules a pod, and returns whether it was placed.
    fn schedule(&mut self, pod: &Arc<Pod>) -> bool {
        self.scheduler.schedule(pod, Timestamp(0)).map(Placement::keep_assumed).is_ok()
    }

    /// Places as many pods as it takes to fill all caches.
    fn warm_up(&mut self, template: &Pod) {
        for pod in self.pods(template, WARM) {
            assert!(self.schedule(&pod));
        }
        self.counter.take();
    }
}

fn submit(engine: &Engine, event: Event) {
    engine.submit(event).unwrap().wait().unwrap().unwrap();
}

/// Each placement changes one chunk, and plugins are asked about it when a later search reaches it.
fn expect_one_chunk_per_placement(placed: usize, calls: Calls) {
    let most = (placed + WARM) as u64;
    assert!(calls.filter_chunk <= most && calls.score_chunk <= most, "{calls:?}, limit {most}");
}

/// In a chunk that has changed, plugins are asked only about the nodes that have.
fn expect_one_node_per_placement(placed: usize, calls: Calls) {
    let most = (placed + WARM) as u64;
    assert!(calls.filtered <= most && calls.scored <= most, "{calls:?}, limit {most}");
}

#[test]
fn cycles_ask_local_plugins_once_about_each_changed_node() {
    let mut bench = Bench::new();
    let template = pod("p").cpu(100).memory(1 << 28).build();
    bench.warm_up(&template);
    for pod in bench.pods(&template, 200) {
        assert!(bench.schedule(&pod));
    }
    let calls = bench.counter.take();
    assert_eq!((calls.pre_filter, calls.pre_score), (200, 200));
    expect_one_chunk_per_placement(200, calls);
    expect_one_node_per_placement(200, calls);
}

#[test]
fn a_batch_of_one_template_is_prepared_once() {
    let mut bench = Bench::new();
    let template = pod("p").cpu(100).memory(1 << 28).build();
    bench.warm_up(&template);
    for _ in 0..10 {
        let batch = bench.pods(&template, 50);
        for placed in bench.scheduler.schedule_batch(&batch, Timestamp(0)) {
            placed.unwrap().keep_assumed();
        }
    }
    let calls = bench.counter.take();
    assert_eq!((calls.pre_filter, calls.pre_score), (10, 10));
    expect_one_chunk_per_placement(500, calls);
    expect_one_node_per_placement(500, calls);
}

#[test]
fn a_new_template_is_evaluated_on_the_nodes_in_reach_alone() {
    let mut bench = Bench::new();
    for cpu in 1..=50 {
        let pod = bench.pods(&pod("p").cpu(cpu).memory(1 << 28).build(), 1).remove(0);
        assert!(bench.schedule(&pod));
        let calls = bench.counter.take();
        let reached = calls.filter_chunk.max(calls.score_chunk);
        assert!(reached <= IN_REACH, "{calls:?}");
    }
}

#[test]
fn templates_of_single_pods_leave_the_results_of_other_templates_cached() {
    let mut bench = Bench::new();
    let template = pod("p").cpu(100).memory(1 << 28).build();
    bench.warm_up(&template);
    let few = Labels::new([("pool", "few")]);
    for cpu in 1..=300 {
        let single = pod("p").cpu(cpu).memory(1 << 20).node_selector(few.clone()).build();
        let single = bench.pods(&single, 1).remove(0);
        assert!(bench.schedule(&single));
    }
    bench.counter.take();
    for pod in bench.pods(&template, WARM) {
        assert!(bench.schedule(&pod));
    }
    // The single pods changed one chunk of each zone.
    expect_one_chunk_per_placement(3, bench.counter.take());
}

#[test]
fn a_retry_of_a_pod_that_fits_nowhere_examines_what_changed_and_counts_its_reasons_once() {
    let mut bench = Bench::new();
    let template = pod("p").namespace("no").cpu(100).build();
    let pod = bench.pods(&template, 1).remove(0);
    assert!(!bench.schedule(&pod));
    bench.counter.take();
    for n in 0..10 {
        let changed = node(format!("n{n}")).zone(format!("z{}", n % 3)).cpu(5_000).build();
        submit(&bench.engine, Event::update_node(changed));
        assert!(!bench.schedule(&pod));
        let calls = bench.counter.take();
        assert!(calls.filter_chunk <= CHUNKS + 1, "{calls:?}");
        assert_eq!((calls.pre_filter, calls.pre_score, calls.score_chunk), (1, 0, 0));
    }
}
