//! Measures one decision: filters and scores against every node, on one thread.
//!
//! Pods with the same template let a scheduler reuse its verdicts on unchanged chunks, whereas pods with distinct
//! templates make it evaluate every node again. For comparison, the last row evaluates each node separately, as a
//! plugin without chunk calls would.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use portolan::cache::{Cluster, Config, Engine, Snapshot};
use portolan::model::{LabelSelector, Pod, PodAffinity, PodAffinityTerm, Uid, node, pod};
use portolan::plugin::{
    Cycle, CycleState, NodeResourcesBalancedAllocation, NodeResourcesFit, Plugin, PreFilter,
    PreScore,
};
use portolan::{Algorithm, AlgorithmConfig, Framework};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Nodes of several sizes in three zones, and `pods` pods, of which 2 in 5 have the label.
fn cluster(nodes: usize, pods: usize) -> Arc<Snapshot> {
    let (mut writer, reader) = Engine::inline(Config::default());
    for n in 0..nodes {
        let cpu = [4_000, 8_000, 16_000, 64_000][n % 4];
        let node = node(format!("n{n}")).hostname().zone(format!("z{}", n % 3));
        writer.add_node(node.cpu(cpu).memory(cpu << 22).build()).expect("the node is valid");
    }
    for p in 0..pods {
        let app = if p % 5 < 2 { "near" } else { "far" };
        let pod = pod(format!("p{p}")).label("app", app).cpu(100).memory(100 << 20);
        writer.add_pod(pod.on(format!("n{}", p % nodes)).build()).expect("the pod is valid");
    }
    writer.publish();
    reader.snapshot()
}

fn resources() -> Framework {
    Framework::new(vec![
        (Box::new(NodeResourcesFit::default()) as Box<dyn Plugin>, 1),
        (Box::new(NodeResourcesBalancedAllocation::default()), 1),
    ])
    .expect("the names and weights are valid")
}

fn scheduler(framework: Framework) -> Algorithm {
    let config = AlgorithmConfig { percentage_of_nodes: 100, seed: 1 };
    Algorithm::new(framework, config, None)
}

/// Pods with distinct templates.
fn distinct_pods(count: i64) -> Vec<Pod> {
    (0..count).map(|i| pod(format!("d{i}")).cpu(100 + i).memory(200 << 20).build()).collect()
}

/// Evaluates each node separately.
fn by_nodes(cluster: &Cluster, pod: &Pod) -> i64 {
    let plugins: [&dyn Plugin; 2] =
        [&NodeResourcesFit::default(), &NodeResourcesBalancedAllocation::default()];
    let mut best = i64::MIN;
    let none = portolan::plugin::Feasible::new(cluster, Vec::new());
    let state = CycleState::default();
    let cycle = Cycle::new(cluster, pod, &state);
    let (mut filters, mut scores) = (Vec::new(), Vec::new());
    for plugin in plugins {
        if let Ok(PreFilter::Filter(filter)) = plugin.pre_filter(cycle) {
            filters.push(filter);
        }
        if let Ok(PreScore::Score(score)) = plugin.pre_score(cycle, &none) {
            scores.push(score);
        }
    }
    for node in cluster.nodes() {
        if filters.iter().all(|filter| filter.filter(node).is_none()) {
            best = best.max(scores.iter().filter_map(|score| score.score(node).ok()).sum());
        }
    }
    best
}

fn decide(c: &mut Criterion) {
    for nodes in [5_000, 100_000] {
        let cluster = cluster(nodes, nodes);
        let same = pod("same").cpu(500).memory(1 << 30).build();
        let pods = distinct_pods(512);
        let mut group = c.benchmark_group("decide");
        for (name, framework) in
            [("resources", resources as fn() -> Framework), ("default", Framework::default_profile)]
        {
            group.bench_function(BenchmarkId::new(format!("{name}, same template"), nodes), |b| {
                let mut scheduler = scheduler(framework());
                b.iter(|| scheduler.schedule(black_box(&cluster), black_box(&same)).is_ok());
            });
            group.bench_function(
                BenchmarkId::new(format!("{name}, distinct templates"), nodes),
                |b| {
                    let mut scheduler = scheduler(framework());
                    let mut next = pods.iter().cycle();
                    b.iter(|| {
                        scheduler.schedule(black_box(&cluster), next.next().unwrap()).is_ok()
                    });
                },
            );
        }
        group.bench_function(BenchmarkId::new("resources, node by node", nodes), |b| {
            b.iter(|| by_nodes(black_box(&cluster), black_box(&same)));
        });
        group.finish();
    }
}

fn near(c: &mut Criterion) {
    let cluster = cluster(5_000, 5_000);
    let term = PodAffinityTerm {
        topology_key: "topology.kubernetes.io/zone".into(),
        selector: LabelSelector::from_labels([("app", "near")]),
        namespaces: Box::new(["default".into()]),
        namespace_selector: LabelSelector::Nothing,
    };
    let affinity = PodAffinity { required: Box::new([term]), ..PodAffinity::default() };
    let wants = pod("wants").cpu(100).memory(100 << 20).pod_affinity(affinity).build();
    let mut scheduler = scheduler(Framework::default_profile());
    c.bench_function("affinity to 2,000 of 5,000 pods/5000", |b| {
        b.iter(|| {
            let pod = Pod { uid: Uid::new("default/wants"), ..wants.clone() };
            scheduler.schedule(black_box(&cluster), &pod).is_ok()
        });
    });
}

/// The victim index of a node with 110 pods: building it, and asking how much a pod would free; compared with summing
/// over every pod.
fn victims(c: &mut Criterion) {
    let (mut writer, reader) = Engine::inline(Config::default());
    writer.add_node(node("n").cpu(64_000).build()).expect("the node is valid");
    for p in 0..110 {
        let pod = pod(format!("p{p}")).cpu(100 + p).priority(p as i32 * 7 % 10);
        writer.add_pod(pod.on("n").build()).expect("the pod is valid");
    }
    writer.publish();
    let snapshot = reader.snapshot();
    let changed = || {
        let mut fork = snapshot.fork();
        fork.remove_pod(&Uid::new("default/p0")).expect("the pod exists");
        fork
    };
    let mut group = c.benchmark_group("victim index of 110 pods");
    group.bench_function("build the index", |b| {
        let pods =
            |fork: &mut portolan::cache::Fork| fork.node("n").map(|node| node.victims().len());
        b.iter_batched_ref(changed, pods, BatchSize::SmallInput);
    });
    let node = snapshot.node("n").expect("the node exists");
    group.bench_function("query the index", |b| {
        b.iter(|| black_box(node).victims().below(black_box(5)).freed().cpu());
    });
    group.bench_function("scan the pods", |b| {
        b.iter(|| -> i64 {
            let lower = black_box(node).pods().map(|pod| pod.template());
            let lower = lower.filter(|template| template.priority < black_box(5));
            lower.map(|template| template.resources.placed.cpu.0).sum()
        });
    });
    group.finish();
}

criterion_group!(benches, decide, near, victims);
criterion_main!(benches);
