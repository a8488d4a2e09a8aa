//! Measures publishing and reading in an engine. `benches/rivals.rs` and `benches/read.rs` compare them with
//! alternatives.
//!
//! The engine also counts the bytes that it copies (feature `cost`, which this crate's tests enable), which costs about
//! 1 %.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use portolan::cache::{CommitPolicy, Config, Engine, Event, Reader, Writer};
use portolan::model::{Pod, Template, node, pod};
use portolan_testkit::random::Random;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const PODS_PER_NODE: usize = 10;

/// Creates pods that share a template.
struct Pods {
    template: Arc<Template>,
    made: usize,
}

impl Pods {
    fn on(&mut self, node: usize) -> Arc<Pod> {
        self.made += 1;
        let pod = pod(format!("pod-{}", self.made)).on(format!("node-{node:06}")).build();
        Arc::new(Pod { template: self.template.clone(), ..pod })
    }
}

fn cluster(nodes: usize) -> (Writer, Reader, Pods) {
    let config = Config { commit_check: CommitPolicy::Unchecked, ..Config::default() };
    let (mut writer, reader) = Engine::inline(config);
    for n in 0..nodes {
        let node = node(format!("node-{n:06}")).hostname().zone(format!("zone-{}", n % 3));
        writer.add_node(node.cpu(64_000).memory(256 << 30).build()).expect("the node is valid");
    }
    let template = pod("web").cpu(100).memory(500 << 20).label("app", "web").build().template;
    let mut pods = Pods { template, made: 0 };
    for i in 0..nodes * PODS_PER_NODE {
        writer.add_pod(pods.on(i % nodes)).expect("the pod is valid");
    }
    writer.publish();
    writer.reclaim();
    (writer, reader, pods)
}

fn publish(c: &mut Criterion) {
    let mut group = c.benchmark_group("assume_and_publish");
    for nodes in [5_000, 100_000] {
        let (mut writer, _, mut pods) = cluster(nodes);
        let mut random = Random::new(1);
        group.bench_function(BenchmarkId::new("engine", nodes), |b| {
            b.iter_custom(|count| {
                let mut time = Duration::ZERO;
                for _ in 0..count {
                    let pod = pods.on(random.index(nodes));
                    let started = Instant::now();
                    writer.assume_pod(pod.clone()).expect("the pod is new");
                    writer.publish();
                    time += started.elapsed();
                    // So that nodes do not fill up.
                    writer.apply(&Event::forget(&pod)).expect("the pod is assumed");
                    writer.publish();
                }
                time
            });
        });
    }
    group.finish();
}

fn read(c: &mut Criterion) {
    let (_writer, mut reader, _) = cluster(5_000);
    let mut group = c.benchmark_group("read");
    group.bench_function("pin", |b| b.iter(|| drop(black_box(reader.pin()))));
    group.bench_function("snapshot", |b| b.iter(|| drop(black_box(reader.snapshot()))));
    group.bench_function("refresh", |b| b.iter(|| black_box(reader.refresh()).generation()));
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(2));
    targets = publish, read
}
criterion_main!(benches);
