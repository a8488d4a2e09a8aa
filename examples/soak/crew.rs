//! The threads of the soak: each runs until it is stopped and checks its results.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use portolan::cache::{Dump, Engine, Event, Reader, Snapshot};
use portolan::model::{Generation, Name, Node, Pod, Quantity, Timestamp, node, pod};
use portolan::{Algorithm, AlgorithmConfig, Framework};

/// The number of nodes, except while some are removed.
pub(crate) const NODES: usize = 400;
/// The number of pods that each writer keeps.
pub(crate) const PODS_EACH: usize = 2_000;

/// Counts of the operations done.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) events: AtomicU64,
    pub(crate) removed: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) forks: AtomicU64,
    pub(crate) decisions: AtomicU64,
    pub(crate) panics: AtomicU64,
    /// Whether a check failed on some thread.
    pub(crate) failed: AtomicBool,
}

impl Counts {
    pub(crate) fn summary(&self) -> String {
        let [events, reads, forks, decisions, panics] =
            [&self.events, &self.reads, &self.forks, &self.decisions, &self.panics]
                .map(|count| count.load(Ordering::Relaxed));
        format!(
            "{events} events, {reads} reads, {forks} forks, {decisions} decisions, {panics} readers that panicked \
            with a pin"
        )
    }
}

/// Stops all threads when it is dropped.
pub(crate) struct Stop<'a>(pub(crate) &'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Records that its thread panicked.
struct Watch<'a>(&'a Counts);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.failed.store(true, Ordering::Relaxed);
        }
    }
}

fn is_running(stop: &AtomicBool) -> bool {
    !stop.load(Ordering::Relaxed)
}

fn make_node(n: usize, turn: usize) -> Node {
    let zone = (n + turn) % 3;
    node(format!("n{n}"))
        .hostname()
        .zone(format!("z{zone}"))
        .cpu(64_000)
        .memory(256 << 30)
        .resource("example.com/gpu", Quantity::whole(8))
        .label("turn", (turn % 7).to_string())
        .image([format!("image-{}", turn % 50)], 1 << 20)
        .build()
}

fn make_pod(writer: usize, n: usize, turn: usize) -> Pod {
    // Each pod has a unique name and recurring labels, and some have a unique claim.
    let mut builder = pod(format!("w{writer}-{n}-{turn}"))
        .label("app", &format!("app-{}", (n + turn) % 40))
        .cpu(10 + (turn % 5) as i64)
        .memory(1 << 20);
    if n.is_multiple_of(16) {
        builder = builder.claim(format!("claim-{writer}-{n}-{turn}"));
    }
    if n.is_multiple_of(8) {
        builder = builder.host_port(1_000 + (n % 50) as u16);
    }
    builder.on(format!("n{}", (n * 7 + turn * 13) % NODES)).build()
}

/// Submits an event, and returns its generation if it was accepted.
fn submit(engine: &Engine, counts: &Counts, event: Event) -> Option<Generation> {
    let ticket = engine.submit(event).expect("the engine is open");
    counts.events.fetch_add(1, Ordering::Relaxed);
    ticket.wait().expect("no fold has panicked").ok().map(|applied| applied.generation)
}

/// Writes through the log: pods are added, bound, changed and removed; nodes are changed, removed and added again.
/// Reads its own writes.
pub(crate) fn write(engine: &Engine, writer: usize, stop: &AtomicBool, counts: &Counts) {
    let _watch = Watch(counts);
    let reader = engine.reader().expect("no fold has panicked");
    for n in 0..NODES {
        submit(engine, counts, Event::AddNode(Arc::new(make_node(n, 0))));
    }
    let mut turn = 0;
    while is_running(stop) {
        for n in 0..PODS_EACH {
            if !is_running(stop) {
                return;
            }
            if turn > 0 {
                let uid = make_pod(writer, n, turn - 1).uid;
                let gone = submit(engine, counts, Event::RemovePod { uid, node: None });
                assert!(gone.is_some(), "a pod that was added does not exist");
                counts.removed.fetch_add(1, Ordering::Relaxed);
            }
            let pod = make_pod(writer, n, turn);
            let uid = pod.uid.clone();
            let event = Event::assume(pod.clone());
            let at = submit(engine, counts, event).expect("a new pod is accepted");
            let read = reader.at_least(at, None).expect("it is published");
            assert!(read.pod(&uid).is_some(), "a reader does not see an acknowledged event");
            let now = Timestamp::from_secs(turn as i64);
            submit(engine, counts, Event::FinishBinding { uid: uid.clone(), now });
            assert!(submit(engine, counts, Event::AddPod(Arc::new(pod))).is_some());
            let at = (writer + n * 31) % NODES;
            match n % 97 {
                // These may fail, because another writer may have been faster.
                0 => submit(engine, counts, Event::RemoveNode(name(at))),
                1 | 2 => submit(engine, counts, Event::AddNode(Arc::new(make_node(at, turn)))),
                _ => None,
            };
        }
        // Restores the nodes that were removed and not updated since.
        for n in 0..NODES {
            submit(engine, counts, Event::UpdateNode(Arc::new(make_node(n, turn))));
        }
        turn += 1;
    }
}

fn name(n: usize) -> Name {
    format!("n{n}").into()
}

fn assert_whole(snapshot: &Snapshot) {
    let pods: usize = snapshot.nodes().map(|node| node.pod_count()).sum();
    assert!(pods <= snapshot.pod_count(), "a pod occurs twice");
}

/// Obtains versions in every way, holds some of them, and checks that generations never decrease.
pub(crate) fn read(mut reader: Reader, seed: usize, stop: &AtomicBool, counts: &Counts) {
    let _watch = Watch(counts);
    let (mut last, mut turn) = (Generation::ZERO, seed);
    let mut held: Vec<(Arc<Snapshot>, Dump)> = Vec::new();
    while is_running(stop) {
        turn += 1;
        {
            let outer = reader.pin();
            let inner = reader.pin();
            assert!(last <= outer.generation() && outer.generation() <= inner.generation());
            last = inner.generation();
        }
        let refreshed = reader.refresh();
        assert!(refreshed.generation() >= last, "a kept version is older than a pin");
        last = refreshed.generation();
        match turn % 512 {
            0 => {
                let snapshot = reader.snapshot();
                assert_whole(&snapshot);
                if held.len() == 3 {
                    let (held, dump) = held.remove(0);
                    assert!(held.dump() == dump, "a held version changed");
                }
                held.push((snapshot.clone(), snapshot.dump()));
            }
            100 => reader.release(),
            200 => reader = reader.clone(),
            300 => thread::sleep(Duration::from_millis(1)),
            _ => {}
        }
        counts.reads.fetch_add(1, Ordering::Relaxed);
        if turn.is_multiple_of(64) {
            thread::yield_now();
        }
    }
}

/// Forks versions and forks, and changes them.
pub(crate) fn fork(reader: Reader, stop: &AtomicBool, counts: &Counts) {
    let _watch = Watch(counts);
    let mut turn = 0;
    let mut kept = Vec::new();
    while is_running(stop) {
        turn += 1;
        let snapshot = reader.snapshot();
        let before = snapshot.pod_count();
        let mut fork = snapshot.fork();
        for n in 0..50 {
            // These may fail, because a node may be missing or a pod may exist.
            let _ = fork.add_pod(&make_pod(99, n, turn));
            let _ = fork.remove_pod(&make_pod(0, n, turn).uid);
        }
        let mut nested = fork.fork();
        let _ = nested.remove_node(&name(turn % NODES));
        assert!(nested.generation() != fork.generation() || nested.branch() != fork.branch());
        assert_eq!(snapshot.pod_count(), before, "a fork changed its base");
        if turn.is_multiple_of(64) {
            assert_eq!(nested.audit(), vec![]);
        }
        // Forks outlive the versions that they were created from.
        kept.push(nested);
        if kept.len() > 4 {
            kept.remove(turn % 4);
        }
        counts.forks.fetch_add(1, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(2));
    }
}

/// Decides on pods on the current version.
pub(crate) fn decide(mut reader: Reader, stop: &AtomicBool, counts: &Counts) {
    let _watch = Watch(counts);
    let config = AlgorithmConfig::default();
    let mut scheduler = Algorithm::new(Framework::default_profile(), config, None);
    let mut turn = 0;
    while is_running(stop) {
        turn += 1;
        let pod = pod(format!("wanted-{turn}")).cpu(100 + turn % 9).memory(1 << 20).build();
        let snapshot = reader.refresh();
        if let Ok(decision) = scheduler.schedule(snapshot, &pod) {
            assert!(snapshot.node(&decision.node).is_some(), "the node does not exist");
        }
        counts.decisions.fetch_add(1, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(1));
    }
}

/// Repeatedly runs a reader that panics while it pins a version.
pub(crate) fn panic_while_pinned(reader: Reader, stop: &AtomicBool, counts: &Counts) {
    let _watch = Watch(counts);
    while is_running(stop) {
        let dies = reader.clone();
        let died = catch_unwind(AssertUnwindSafe(move || {
            let _outer = dies.pin();
            thread::sleep(Duration::from_millis(1));
            let _inner = dies.pin();
            // Bypasses the panic hook, which would print.
            std::panic::resume_unwind(Box::new(()));
        }));
        assert!(died.is_err());
        counts.panics.fetch_add(1, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(50));
    }
}
