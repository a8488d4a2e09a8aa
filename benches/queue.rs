//! Measures the scheduling queue: adding, trying and removing a pod, and processing an event while many pods wait.
//!
//! Pods have a few priorities and share templates, as in a real cluster. The first three rows measure one pod while
//! `size` others are queued. The last two measure one event while many pods are unschedulable: an event whose hint
//! skips every pod, and one that moves all pods.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use portolan::Framework;
use portolan::cache::{Config, Engine, Snapshot};
use portolan::model::{Change, Diff, Generation, Node, Pod, Template, Timestamp, Uid, node, pod};
use portolan::plugin::{ClusterEvent, PluginSet};
use portolan::scheduler::queue::{QueueConfig, SchedulingQueue};
use portolan_testkit::random::Random;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SIZES: [usize; 2] = [1_000, 100_000];
const WAITING: usize = 10_000;

/// Creates pods with distinct uids.
struct Pods {
    templates: Vec<Arc<Template>>,
    random: Random,
    made: u64,
}

impl Pods {
    fn new() -> Pods {
        let template = |priority| pod("web").cpu(100).priority(priority).build().template;
        Pods { templates: (0..8).map(template).collect(), random: Random::new(1), made: 0 }
    }

    fn next(&mut self) -> Pod {
        self.made += 1;
        let mut uid = [0; 16];
        uid[..8].copy_from_slice(&self.random.next_u64().to_le_bytes());
        uid[8..].copy_from_slice(&self.made.to_le_bytes());
        let template = &self.templates[self.random.index(8)];
        Pod {
            uid: Uid::from_bytes(uid),
            name: template.namespace.clone(),
            template: template.clone(),
            resource_version: 0,
            node_name: None,
            nominated_node_name: None,
            creation_time: None,
            start_time: None,
            deletion_time: None,
            claim_statuses: None,
            finished: false,
        }
    }
}

fn empty() -> Arc<Snapshot> {
    Engine::inline(Config::default()).1.snapshot()
}

fn now(at: u64) -> Timestamp {
    Timestamp(1_000_000_000 + at as i64)
}

fn filled(pods: &mut Pods, size: usize, cluster: &Snapshot) -> SchedulingQueue {
    let mut queue = SchedulingQueue::new(Framework::default_profile(), QueueConfig::default());
    for _ in 0..size {
        let pod = pods.next();
        queue.add(pod, Generation(1), cluster, now(pods.made)).expect("the pod is valid");
    }
    queue
}

fn one_pod(c: &mut Criterion) {
    let cluster = empty();
    let mut group = c.benchmark_group("queue/pod");
    group.throughput(Throughput::Elements(1));
    for size in SIZES {
        let mut pods = Pods::new();
        let mut queue = filled(&mut pods, size, &cluster);
        group.bench_function(BenchmarkId::new("add pop done", size), |b| {
            b.iter(|| {
                let pod = pods.next();
                queue.add(pod, Generation(1), &cluster, now(pods.made)).expect("the pod is valid");
                let popped = queue.pop(now(pods.made)).expect("a pod is active");
                queue.done(&popped.pod.uid);
                black_box(popped.attempts)
            });
        });
        let rejected = Framework::default_profile().plugin_set(["NodeResourcesFit"]);
        group.bench_function(BenchmarkId::new("pop fail activate", size), |b| {
            b.iter(|| {
                let popped = queue.pop(now(pods.made)).expect("a pod is active");
                let (uid, at) = (popped.pod.uid, now(pods.made));
                let none = PluginSet::EMPTY;
                let failed =
                    queue.add_unschedulable_if_not_present(&uid, rejected, none, &cluster, at);
                queue.activate(&uid, at);
                black_box(failed.is_ok())
            });
        });
        // Creating the pod is included in the first row.
        group.bench_function(BenchmarkId::new("create the pod", size), |b| {
            b.iter(|| black_box(pods.next()));
        });
    }
    group.finish();
}

/// A queue in which many pods wait for resources.
fn waiting(pods: &mut Pods, cluster: &Snapshot) -> SchedulingQueue {
    let mut queue = filled(pods, WAITING, cluster);
    let rejected = Framework::default_profile().plugin_set(["NodeResourcesFit"]);
    for _ in 0..WAITING {
        let popped = queue.pop(now(pods.made)).expect("a pod is active");
        let (uid, none) = (popped.pod.uid, PluginSet::EMPTY);
        queue
            .add_unschedulable_if_not_present(&uid, rejected, none, cluster, now(pods.made))
            .expect("the pod was popped");
    }
    assert_eq!(queue.figures().unschedulable, WAITING);
    queue
}

fn move_all(c: &mut Criterion) {
    let cluster = empty();
    let mut group = c.benchmark_group("queue/event");
    group.throughput(Throughput::Elements(WAITING as u64));
    group.sample_size(20);
    let appears = |node: Node| Change::Node(Diff { old: None, new: Some(Arc::new(node)) });
    let full = appears(node("full").cpu(50).build());
    let free = appears(node("free").cpu(64_000).build());
    let mut pods = Pods::new();
    let mut queue = waiting(&mut pods, &cluster);
    group.bench_function("skips every pod", |b| {
        b.iter(|| {
            for event in ClusterEvent::of(&full) {
                queue.move_all(&event, None, &cluster, now(pods.made));
            }
        });
    });
    group.bench_function("moves all pods", |b| {
        b.iter_batched_ref(
            || waiting(&mut Pods::new(), &cluster),
            |queue| {
                for event in ClusterEvent::of(&free) {
                    queue.move_all(&event, None, &cluster, now(0));
                }
                assert_eq!(queue.figures().unschedulable, 0);
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

criterion_group!(benches, one_pod, move_all);
criterion_main!(benches);
