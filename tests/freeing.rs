//! Versions are freed in bounded pieces, measured without a clock: the amount that a publish frees depends on its
//! change, even after dropping a version that was held while the whole cluster changed.
//!
//! Two measures check each other: the references that tree nodes dropped, as counted by the trees, and the memory
//! blocks that were freed, as counted by the allocator, so that nothing is freed that no tree counts.

use std::sync::{Arc, Weak};

use portolan::cache::{Cluster, Config, Engine, Event, Snapshot, Writer, cost};
use portolan::model::{Node, Pod, Timestamp, node, pod};
use portolan_testkit::alloc::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting::new();

/// The sizes to measure. Debug builds measure smaller clusters; `ci/cost.sh` measures the full sizes.
const SIZES: &[usize] =
    if cfg!(debug_assertions) { &[5_000, 40_000] } else { &[5_000, 100_000, 1_000_000] };

/// The number of references that a publish may drop: those that its change replaces in the smallest cluster, and a
/// constant number of steps.
const DROPPED: u64 = 64 + 192;

/// The additional references for each level that the trees of a larger cluster have, because a change replaces paths of
/// that length.
const A_LEVEL: u64 = 40;

/// Returns the most references that a publish may drop in a cluster of this size.
fn dropped_at_most(nodes: usize) -> u64 {
    let levels = (nodes as f64 / SIZES[0] as f64).log(8.0).ceil();
    DROPPED + A_LEVEL * levels as u64
}
/// The number of references that an owner may drop on its own thread, plus one for each tree of a version.
const OWN: u64 = 512 + 64;
/// The number of memory blocks that may be freed with a reference: the object of a node and all of its fields.
const PIECES: u64 = 12;

/// Returns the references dropped and the blocks freed on this thread since the last call.
fn freed() -> (u64, u64) {
    (cost::take().dropped, ALLOCATOR.take().frees)
}

fn a_node(n: usize, version: usize) -> Node {
    let node = node(format!("n{n}")).hostname().zone(format!("z{}", n % 3)).cpu(64_000);
    node.label("version", format!("{version}")).build()
}

fn a_pod(n: usize, version: usize) -> Pod {
    let pod = pod(format!("p{n}-{version}")).on(format!("n{n}"));
    match n % 8 {
        0 => pod.label("own", &format!("{n}-{version}")).claim(format!("c{n}-{version}")).build(),
        _ => pod.build(),
    }
}

/// Creates a published cluster of nodes with one pod each.
fn engine(nodes: usize) -> Writer {
    let (mut writer, _) = Engine::inline(Config::default());
    for n in 0..nodes {
        writer.add_node(a_node(n, 0)).unwrap();
        writer.add_pod(a_pod(n, 0)).unwrap();
        if n % 512 == 0 {
            writer.publish();
        }
    }
    writer.publish();
    writer.reclaim();
    writer
}

/// Creates an engine in which nothing is left of the contents of the held version.
fn replaced(nodes: usize) -> (Writer, Arc<Snapshot>) {
    let mut writer = engine(nodes);
    let held = writer.snapshot();
    for n in 0..nodes {
        writer.update_node(a_node(n, 1)).unwrap();
        writer.remove_pod(&a_pod(n, 0)).unwrap();
        writer.add_pod(a_pod(n, 1)).unwrap();
        if n % 512 == 0 {
            writer.publish();
        }
    }
    writer.publish();
    writer.reclaim();
    assert_eq!((writer.figures().retired, writer.figures().backlog), (1, 0));
    (writer, held)
}

#[test]
fn a_publish_frees_its_change_and_a_constant() {
    for nodes in SIZES.iter().copied() {
        let (mut writer, held) = replaced(nodes);
        drop(held);
        let (mut publishes, mut most, mut all) = (0_u64, (0, 0), (0, 0));
        while writer.figures().retired + writer.figures().backlog > 0 {
            let pod = a_pod((publishes as usize * 7_919) % nodes, 2);
            freed();
            writer.assume_pod(pod.clone()).unwrap();
            writer.publish();
            let first = freed();
            writer.apply(&Event::forget(&pod)).unwrap();
            writer.publish();
            let second = freed();
            for step in [first, second] {
                most = (most.0.max(step.0), most.1.max(step.1));
                all = (all.0 + step.0, all.1 + step.1);
            }
            publishes += 2;
            assert!(publishes < nodes as u64, "the loop does not end: {:?}", writer.figures());
        }
        println!("{nodes} nodes: {publishes} publishes freed {all:?}, {most:?} at most");
        let limit = dropped_at_most(nodes);
        assert!(
            most.0 <= limit && most.1 <= PIECES * limit,
            "{nodes} nodes: {most:?} in one publish, limit {limit}"
        );
        assert!(all.0 > nodes as u64, "the held version freed too little: {all:?}");
        freed();
        assert_eq!(writer.reclaim(), 0);
        assert_eq!(freed().0, 0, "everything was freed before");
    }
}

#[test]
fn partial_reclaims_are_bounded_and_end() {
    const STEPS: usize = 1_000;
    for nodes in SIZES.iter().copied() {
        let (mut writer, held) = replaced(nodes);
        drop(held);
        let (mut rounds, mut most) = (0, (0, 0));
        loop {
            freed();
            let more = writer.reclaim_some(STEPS);
            let step = freed();
            most = (most.0.max(step.0), most.1.max(step.1));
            rounds += 1;
            if !more {
                break;
            }
            assert!(rounds < nodes, "the loop does not end: {:?}", writer.figures());
        }
        println!("{nodes} nodes: {rounds} rounds, {most:?} at most");
        assert!(most.0 <= STEPS as u64, "{nodes} nodes: {most:?}");
        assert!(most.1 <= PIECES * STEPS as u64, "{nodes} nodes: {most:?}");
        assert_eq!((writer.figures().retired, writer.figures().backlog), (0, 0));
        freed();
        assert_eq!(writer.reclaim(), 0);
        assert_eq!(freed().0, 0, "everything was freed before");
    }
}

/// Publishes until all versions that are not held are freed, and returns the number of publishes.
fn publish_until_all_is_freed(writer: &mut Writer) -> usize {
    let pod = a_pod(0, usize::MAX);
    for publishes in (0..).step_by(2) {
        if writer.figures().retired + writer.figures().backlog == 0 {
            return publishes;
        }
        writer.assume_pod(pod.clone()).unwrap();
        writer.publish();
        writer.apply(&Event::forget(&pod)).unwrap();
        writer.publish();
        assert!(publishes < 100_000, "the loop does not end: {:?}", writer.figures());
    }
    unreachable!("the loop returns or panics")
}

#[test]
fn a_backlog_does_not_grow_while_each_publish_replaces_everything() {
    let nodes = 2_000;
    let (mut writer, held) = replaced(nodes);
    drop(held);
    let alone = publish_until_all_is_freed(&mut writer);
    let (mut writer, held) = replaced(nodes);
    drop(held);
    for round in 2..12 {
        for n in 0..nodes {
            writer.update_node(a_node(n, round)).unwrap();
            writer.remove_pod(&a_pod(n, round - 1)).unwrap();
            writer.add_pod(a_pod(n, round)).unwrap();
        }
        writer.publish();
        assert_eq!(writer.figures().retired, 0);
    }
    let after = publish_until_all_is_freed(&mut writer);
    assert!(after <= alone && alone > 10, "{alone} publishes alone, {after} after large ones");
}

#[test]
fn sweeps_alone_free_a_held_version() {
    let (mut writer, held) = replaced(2_000);
    drop(held);
    let mut sweeps = 0;
    while writer.figures().retired + writer.figures().backlog > 0 {
        freed();
        writer.expire(Timestamp::from_secs(sweeps)).unwrap();
        let (dropped, pieces) = freed();
        assert!(dropped <= OWN && pieces <= PIECES * OWN, "{dropped} references, {pieces} pieces");
        sweeps += 1;
        assert!(sweeps < 1_000, "the loop does not end: {:?}", writer.figures());
    }
    assert!(sweeps > 1);
}

/// Waits until all objects are freed, and panics if they are not.
fn await_freed<T>(weak: &[Weak<T>]) {
    let start = std::time::Instant::now();
    while weak.iter().any(|weak| weak.strong_count() > 0) {
        assert!(start.elapsed().as_secs() < 120, "something is never freed");
        std::thread::yield_now();
    }
}

fn objects(cluster: &Cluster) -> Vec<Weak<Node>> {
    cluster.nodes().filter_map(|node| node.node().map(Arc::downgrade)).collect()
}

#[test]
fn the_last_holder_of_a_large_version_frees_little_itself() {
    let mut writer = engine(20_000);
    let held = writer.snapshot();
    let nodes = objects(&held);
    for n in 0..20_000 {
        writer.remove_pod(&a_pod(n, 0)).unwrap();
        writer.remove_node(format!("n{n}")).unwrap();
    }
    writer.publish();
    drop(writer);
    assert!(nodes.iter().all(|node| node.strong_count() > 0));
    freed();
    drop(held);
    let (dropped, pieces) = freed();
    assert!(dropped <= OWN && pieces <= PIECES * OWN, "{dropped} references, {pieces} pieces");
    await_freed(&nodes);
}

#[test]
fn large_forks_and_engines_are_freed_the_same_way() {
    let writer = engine(20_000);
    let nodes = objects(writer.cluster());
    let mut fork = writer.cluster().fork();
    for n in 0..20_000 {
        fork.add_node(a_node(n, 1)).unwrap();
    }
    let of_fork: Vec<_> = fork.nodes().filter_map(|node| node.node().map(Arc::downgrade)).collect();
    freed();
    drop(fork);
    let (dropped, pieces) = freed();
    assert!(dropped <= OWN && pieces <= PIECES * OWN, "{dropped} references, {pieces} pieces");
    await_freed(&of_fork);
    assert!(nodes.iter().all(|node| node.strong_count() > 0));
    freed();
    drop(writer);
    let (dropped, pieces) = freed();
    assert!(
        dropped <= 2 * OWN && pieces <= PIECES * 2 * OWN,
        "{dropped} references, {pieces} pieces"
    );
    await_freed(&nodes);
}
