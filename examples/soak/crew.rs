//! The threads: what each does until it is stopped, and what it checks meanwhile.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use portolan::framework::{Algorithm, AlgorithmConfig, Framework};
use portolan::log::Event;
use portolan::model::{Generation, Name, Node, Pod, Quantity, Timestamp, node, pod};
use portolan::snapshot::{Dump, Snapshot};
use portolan::{Engine, Reader};

/// How many nodes there are, but for those that come and go.
pub(crate) const NODES: usize = 400;
/// How many pods each writer keeps there.
pub(crate) const PODS_EACH: usize = 2_000;

/// What was done.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) events: AtomicU64,
    pub(crate) removed: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) forks: AtomicU64,
    pub(crate) decisions: AtomicU64,
    pub(crate) panics: AtomicU64,
    /// A check failed on some thread.
    pub(crate) failed: AtomicBool,
}

impl Counts {
    pub(crate) fn summary(&self) -> String {
        let [events, reads, forks, decisions, panics] =
            [&self.events, &self.reads, &self.forks, &self.decisions, &self.panics]
                .map(|count| count.load(Ordering::Relaxed));
        format!(
            "{events} events, {reads} reads, {forks} forks, {decisions} decisions, {panics} readers \
             that panicked with a pin"
        )
    }
}

/// Stops all threads when the one that has it ends.
pub(crate) struct Stop<'a>(pub(crate) &'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Tells when its thread panics.
struct Watch<'a>(&'a Counts);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.failed.store(true, Ordering::Relaxed);
        }
    }
}

fn goes_on(stop: &AtomicBool) -> bool {
    !stop.load(Ordering::Relaxed)
}

fn a_node(n: usize, turn: usize) -> Node {
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

fn a_pod(writer: usize, n: usize, turn: usize) -> Pod {
    // A name of its own each time, labels that come back, and sometimes a claim that never does.
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

/// Submits, and says whether it was accepted.
fn submit(engine: &Engine, counts: &Counts, event: Event) -> Option<Generation> {
    let ticket = engine.submit(event).expect("the engine is open");
    counts.events.fetch_add(1, Ordering::Relaxed);
    ticket.wait().expect("no fold has panicked").ok().map(|applied| applied.generation)
}

/// Writes through the log: its pods come, are bound, change and go; nodes change,
/// go and come back. Reads what it wrote.
pub(crate) fn write(engine: &Engine, writer: usize, stop: &AtomicBool, counts: &Counts) {
    let _watch = Watch(counts);
    let reader = engine.reader().expect("no fold has panicked");
    for n in 0..NODES {
        submit(engine, counts, Event::AddNode(Arc::new(a_node(n, 0))));
    }
    let mut turn = 0;
    while goes_on(stop) {
        for n in 0..PODS_EACH {
            if !goes_on(stop) {
                return;
            }
            if turn > 0 {
                let uid = a_pod(writer, n, turn - 1).uid;
                let gone = submit(engine, counts, Event::RemovePod { uid, node: None });
                assert!(gone.is_some(), "a pod that was written is not there");
                counts.removed.fetch_add(1, Ordering::Relaxed);
            }
            let pod = a_pod(writer, n, turn);
            let uid = pod.uid.clone();
            let event = Event::AssumePod { pod: Arc::new(pod.clone()), decided_on: None };
            let at = submit(engine, counts, event).expect("a new pod is accepted");
            let read = reader.at_least(at, None).expect("it is published");
            assert!(read.pod(&uid).is_some(), "an outcome that readers do not see");
            let now = Timestamp::from_secs(turn as i64);
            submit(engine, counts, Event::FinishBinding { uid: uid.clone(), now });
            assert!(submit(engine, counts, Event::AddPod(Arc::new(pod))).is_some());
            let at = (writer + n * 31) % NODES;
            match n % 97 {
                // Another writer may have been faster.
                0 => submit(engine, counts, Event::RemoveNode(name(at))),
                1 | 2 => submit(engine, counts, Event::AddNode(Arc::new(a_node(at, turn)))),
                _ => None,
            };
        }
        // Those that were removed and met by no update since.
        for n in 0..NODES {
            submit(engine, counts, Event::UpdateNode(Arc::new(a_node(n, turn))));
        }
        turn += 1;
    }
}

fn name(n: usize) -> Name {
    format!("n{n}").into()
}

fn assert_whole(snapshot: &Snapshot) {
    let pods: usize = snapshot.nodes().map(|node| node.pod_count()).sum();
    assert!(pods <= snapshot.pod_count(), "a pod is twice");
}

/// Takes versions in every way, holds some of them, and goes back never.
pub(crate) fn read(mut reader: Reader, seed: usize, stop: &AtomicBool, counts: &Counts) {
    let _watch = Watch(counts);
    let (mut last, mut known, mut turn) = (Generation::ZERO, Generation::ZERO, seed);
    let mut held: Vec<(Arc<Snapshot>, Dump)> = Vec::new();
    while goes_on(stop) {
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
        let uid = a_pod(0, turn % PODS_EACH, turn % 50).uid;
        let (at, _) = reader.get_pod(&uid);
        assert!(at >= known, "the live index went back");
        known = at;
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

/// Forks versions, forks the forks, and changes them.
pub(crate) fn fork(reader: Reader, stop: &AtomicBool, counts: &Counts) {
    let _watch = Watch(counts);
    let mut turn = 0;
    let mut kept = Vec::new();
    while goes_on(stop) {
        turn += 1;
        let snapshot = reader.snapshot();
        let before = snapshot.pod_count();
        let mut fork = snapshot.fork();
        for n in 0..50 {
            // A node may be gone, a pod be there.
            let _ = fork.add_pod(&a_pod(99, n, turn));
            let _ = fork.remove_pod(&a_pod(0, n, turn).uid);
        }
        let mut nested = fork.fork();
        let _ = nested.remove_node(&name(turn % NODES));
        assert!(nested.generation() != fork.generation() || nested.branch() != fork.branch());
        assert_eq!(snapshot.pod_count(), before, "a fork changed its base");
        if turn.is_multiple_of(64) {
            assert_eq!(nested.audit(), vec![]);
        }
        // Forks outlive the versions that they start at.
        kept.push(nested);
        if kept.len() > 4 {
            kept.remove(turn % 4);
        }
        counts.forks.fetch_add(1, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(2));
    }
}

/// Decides for pods on whatever version is current.
pub(crate) fn decide(mut reader: Reader, stop: &AtomicBool, counts: &Counts) {
    let _watch = Watch(counts);
    let config = AlgorithmConfig::default();
    let mut scheduler = Algorithm::new(Framework::default_profile(), config, None);
    let mut turn = 0;
    while goes_on(stop) {
        turn += 1;
        let pod = pod(format!("wanted-{turn}")).cpu(100 + turn % 9).memory(1 << 20).build();
        let snapshot = reader.refresh();
        if let Ok(decision) = scheduler.schedule(snapshot, &pod) {
            assert!(snapshot.node(&decision.node).is_some(), "a node that is not there");
        }
        counts.decisions.fetch_add(1, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(1));
    }
}

/// Again and again a reader that panics while it has pinned a version.
pub(crate) fn panic_while_pinned(reader: Reader, stop: &AtomicBool, counts: &Counts) {
    let _watch = Watch(counts);
    while goes_on(stop) {
        let dies = reader.clone();
        let died = catch_unwind(AssertUnwindSafe(move || {
            let _outer = dies.pin();
            thread::sleep(Duration::from_millis(1));
            let _inner = dies.pin();
            // Without the hook, which would print.
            std::panic::resume_unwind(Box::new(()));
        }));
        assert!(died.is_err());
        counts.panics.fetch_add(1, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(50));
    }
}
