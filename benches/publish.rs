//! Compares publishing and reading in the engine with common alternatives, in one process and on the same seeded work.
//!
//! `cargo bench --bench publish` first prints a table of pairs and then criterion's estimates. Two candidates
//! alternate, each turn yields one ratio, and the table shows the median of the ratios with their spread. The first row
//! compares the engine with itself: its deviation from 1 is noise. Above 1 the engine is faster.
//!
//! The engine also counts the bytes that it copies (feature `cost`, which this crate's tests enable), which costs about
//! 1 %.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group};
use portolan::model::{Name, Pod, Template, Uid, node, pod};
use portolan::{CommitPolicy, Config, Engine, Reader, Writer};
use portolan_testkit::measure::{Sorted, alternate, ratios};
use portolan_testkit::random::Random;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SIZES: [usize; 2] = [5_000, 100_000];
const PODS_PER_NODE: usize = 10;
const TURNS: usize = 41;

/// An engine filled with a cluster.
struct Ours {
    writer: Writer,
    reader: Reader,
    names: Vec<Name>,
    template: Arc<Template>,
    random: Random,
    made: u64,
}

impl Ours {
    fn new(nodes: usize) -> Ours {
        // The alternatives check nothing either.
        let config = Config { commit_check: CommitPolicy::Unchecked, ..Config::default() };
        let (mut writer, reader) = Engine::inline(config);
        let names: Vec<Name> = (0..nodes).map(|n| format!("node-{n:06}").into()).collect();
        for (n, name) in names.iter().enumerate() {
            let node = node(name.clone()).hostname().zone(format!("zone-{}", n % 3));
            writer.add_node(node.cpu(64_000).memory(256 << 30).build()).expect("the node is valid");
        }
        let template = pod("web").cpu(100).memory(500 << 20).label("app", "web").build().template;
        let mut ours = Ours { writer, reader, names, template, random: Random::new(1), made: 0 };
        for i in 0..nodes * PODS_PER_NODE {
            let pod = ours.pod(i % nodes);
            ours.writer.add_pod(pod).expect("the pod is valid");
        }
        ours.writer.publish();
        ours.writer.reclaim();
        ours
    }

    fn pod(&mut self, node: usize) -> Arc<Pod> {
        self.made += 1;
        let mut uid = [0; 16];
        uid[..8].copy_from_slice(&self.random.next_u64().to_le_bytes());
        uid[8..].copy_from_slice(&self.made.to_le_bytes());
        let mut pod = pod("web").uid("-").on(self.names[node].clone()).build();
        pod.uid = Uid::from_bytes(uid);
        pod.template = self.template.clone();
        Arc::new(pod)
    }

    /// Creates pods for various nodes while the time is not measured.
    fn pods(&mut self, count: usize) -> Vec<Arc<Pod>> {
        let nodes = self.names.len();
        (0..count)
            .map(|_| {
                let node = self.random.index(nodes);
                self.pod(node)
            })
            .collect()
    }

    fn assume_and_publish(&mut self, pods: &[Arc<Pod>]) {
        for pod in pods {
            self.writer.assume_pod(pod.clone()).expect("the pod is new");
            self.writer.publish();
        }
    }

    fn forget(&mut self, pods: &[Arc<Pod>]) {
        for pod in pods {
            self.writer.forget_pod(pod).expect("the pod is assumed");
        }
        self.writer.publish();
    }

    /// Measures assuming and publishing one pod, `count` times.
    fn time(&mut self, count: usize) -> Duration {
        let pods = self.pods(count);
        let started = Instant::now();
        self.assume_and_publish(&pods);
        let time = started.elapsed();
        self.forget(&pods);
        time
    }
}

/// A node as the alternatives store it.
#[derive(Clone)]
struct NodeInfo {
    requested_cpu: i64,
    requested_memory: i64,
    pods: Vec<Arc<Pod>>,
}

impl NodeInfo {
    fn add(&mut self, pod: &Arc<Pod>) {
        self.requested_cpu += 100;
        self.requested_memory += 500 << 20;
        self.pods.push(pod.clone());
    }
}

/// A map behind a lock, cloned for a consistent view.
struct Map(RwLock<HashMap<Name, NodeInfo>>);

/// A flat list of nodes, copied for each version.
struct Flat {
    current: RwLock<Arc<Vec<Arc<NodeInfo>>>>,
    index: HashMap<Name, usize>,
}

fn infos(ours: &mut Ours) -> Vec<NodeInfo> {
    (0..ours.names.len())
        .map(|n| NodeInfo {
            requested_cpu: 100 * PODS_PER_NODE as i64,
            requested_memory: (500 << 20) * PODS_PER_NODE as i64,
            pods: (0..PODS_PER_NODE).map(|_| ours.pod(n)).collect(),
        })
        .collect()
}

impl Map {
    fn new(ours: &mut Ours) -> Map {
        let infos = infos(ours);
        Map(RwLock::new(ours.names.iter().cloned().zip(infos).collect()))
    }

    fn change(&self, pod: &Arc<Pod>) {
        let mut map = self.0.write().expect("no thread panicked");
        if let Some(info) = pod.node_name.as_ref().and_then(|name| map.get_mut(name)) {
            info.add(pod);
        }
    }

    fn view(&self) -> HashMap<Name, NodeInfo> {
        self.0.read().expect("no thread panicked").clone()
    }
}

impl Flat {
    fn new(ours: &mut Ours) -> Flat {
        let nodes = infos(ours).into_iter().map(Arc::new).collect();
        let index = ours.names.iter().cloned().zip(0..).collect();
        Flat { current: RwLock::new(Arc::new(nodes)), index }
    }

    fn change_and_publish(&self, pod: &Arc<Pod>) {
        let mut next = Vec::clone(&self.view());
        if let Some(at) = pod.node_name.as_ref().and_then(|name| self.index.get(name)) {
            Arc::make_mut(&mut next[*at]).add(pod);
        }
        let next = Arc::new(next);
        let old = std::mem::replace(&mut *self.current.write().expect("no thread panicked"), next);
        drop(old);
    }

    fn view(&self) -> Arc<Vec<Arc<NodeInfo>>> {
        self.current.read().expect("no thread panicked").clone()
    }
}

fn timed(count: usize, mut work: impl FnMut()) -> Duration {
    let started = Instant::now();
    for _ in 0..count {
        work();
    }
    started.elapsed()
}

/// Alternates two candidates, starting each turn with the other one, and prints how much faster `ours` is. Each returns
/// the seconds that one piece of its work took.
fn pair(name: &str, mut ours: impl FnMut() -> f64, mut theirs: impl FnMut() -> f64) {
    let [ours, theirs] = alternate(TURNS, |_| ours(), |_| theirs());
    let [middle, low, high] = ratios(&theirs, &ours).median_and_spread();
    println!(
        "{name:<58} {:>10.3} {:>12.3} {middle:>9.2} [{low:.2}, {high:.2}]",
        Sorted::new(ours).quantile(0.5) * 1e6,
        Sorted::new(theirs).quantile(0.5) * 1e6,
    );
}

fn pairs() {
    const READS: usize = 20_000;
    println!(
        "{:<58} {:>10} {:>12} {:>9} [p10, p90]",
        "engine : alternative", "us, engine", "us, other", "ratio p50"
    );
    for nodes in SIZES {
        let cell = std::cell::RefCell::new(Ours::new(nodes));
        let (map, flat) = {
            let mut ours = cell.borrow_mut();
            (Map::new(&mut ours), Flat::new(&mut ours))
        };
        let publish = || cell.borrow_mut().time(64).as_secs_f64() / 64.0;
        let row = |what: &str| format!("{nodes} nodes, {what}");
        pair(&row("assume + publish : itself (noise)"), publish, publish);
        let views = if nodes > 10_000 { 1 } else { 8 };
        let each = |work: &dyn Fn(&Arc<Pod>)| {
            let pods = cell.borrow_mut().pods(views);
            let started = Instant::now();
            pods.iter().for_each(work);
            started.elapsed().as_secs_f64() / views as f64
        };
        pair(&row("assume + publish : change a locked map, clone it"), publish, || {
            each(&|pod| {
                map.change(pod);
                drop(black_box(map.view()));
            })
        });
        pair(&row("assume + publish : copy a flat list of Arcs"), publish, || {
            each(&|pod| flat.change_and_publish(pod))
        });
        pair(&row("assume + publish : change a locked map, no clone"), publish, || {
            each(&|pod| map.change(pod))
        });

        let reader = cell.borrow().reader.clone();
        let mut kept = cell.borrow().reader.clone();
        let read = |time: Duration| time.as_secs_f64() / READS as f64;
        let rival = || read(timed(READS, || drop(black_box(flat.view()))));
        let under_lock = || {
            read(timed(READS, || {
                black_box(flat.current.read().expect("no thread panicked").len());
            }))
        };
        let pin = || read(timed(READS, || drop(black_box(reader.pin()))));
        pair(&row("pin : itself (noise)"), pin, pin);
        pair(&row("pin : read under RwLock<Arc<_>>"), pin, under_lock);
        pair(
            &row("snapshot : clone from RwLock<Arc<_>>"),
            || read(timed(READS, || drop(black_box(reader.snapshot())))),
            rival,
        );
        pair(
            &row("refresh : clone from RwLock<Arc<_>>"),
            || {
                read(timed(READS, || {
                    black_box(kept.refresh());
                }))
            },
            rival,
        );
    }
}

fn publish(c: &mut Criterion) {
    let mut group = c.benchmark_group("assume_and_publish");
    for nodes in SIZES {
        let mut ours = Ours::new(nodes);
        group.bench_function(BenchmarkId::new("engine", nodes), |b| {
            b.iter_custom(|count| {
                // In batches, so that nodes do not fill up.
                let mut left = count as usize;
                let mut time = Duration::ZERO;
                while left > 0 {
                    let batch = left.min(1_024);
                    time += ours.time(batch);
                    left -= batch;
                }
                time
            });
        });
    }
    group.finish();
}

fn read(c: &mut Criterion) {
    let mut ours = Ours::new(SIZES[0]);
    let lock = Flat::new(&mut ours);
    let mut group = c.benchmark_group("read");
    group.bench_function("pin", |b| b.iter(|| drop(black_box(ours.reader.pin()))));
    group.bench_function("snapshot", |b| b.iter(|| drop(black_box(ours.reader.snapshot()))));
    let mut kept = ours.reader.clone();
    group.bench_function("refresh", |b| b.iter(|| black_box(kept.refresh()).generation()));
    group.bench_function("rwlock_arc_clone", |b| b.iter(|| drop(black_box(lock.view()))));
    group.finish();
}

criterion_group! {
    name = groups;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(2));
    targets = publish, read
}

fn main() {
    // Prints the table only for a plain measuring run, not for a test run, a list or selected criterion benchmarks.
    let is_filtered = std::env::args().skip(1).any(|argument| argument != "--bench");
    if !is_filtered {
        pairs();
    }
    groups();
    Criterion::default().configure_from_args().final_summary();
}
