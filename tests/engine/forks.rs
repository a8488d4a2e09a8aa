//! Forks beside a writer that keeps writing: forks never change, and find all of their pods.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use portolan::cache::{Cluster, Config, Engine, Event, Fork, Reader, Snapshot, Writer};
use portolan::model::{Node, Pod, Uid, node, pod};
use portolan_testkit::naive::{Naive, comparable};
use proptest::prelude::*;
use proptest_derive::Arbitrary;

const PODS: u8 = 24;
const NODES: u8 = 5;
/// Few cases under an interpreter.
const CASES: u32 = if cfg!(miri) { 2 } else { 64 };

fn a_pod(number: u8, on: u8) -> Pod {
    pod(format!("p{}", number % PODS)).cpu(100).on(format!("n{}", on % NODES)).build()
}

fn a_uid(number: u8) -> Uid {
    Uid::new(&format!("default/p{}", number % PODS))
}

fn a_node(number: u8) -> Node {
    node(format!("n{}", number % NODES)).zone(format!("z{}", number % 2)).cpu(4_000).build()
}

/// A change of the writer's cluster, or of a fork.
#[derive(Clone, Debug, Arbitrary)]
enum Op {
    #[proptest(weight = 4)]
    AddPod(u8, u8),
    #[proptest(weight = 4)]
    RemovePod(u8),
    AddNode(u8),
    RemoveNode(u8),
}

impl Op {
    fn events(&self, naive: &Naive) -> Vec<Event> {
        match *self {
            Op::AddPod(number, on) => {
                let pod = Arc::new(a_pod(number, on));
                // A fork replaces a pod that it already has.
                let known = naive.dump().nodes.into_values().any(|n| n.pods.contains_key(&pod.uid));
                let remove = Event::RemovePod { uid: pod.uid.clone(), node: None };
                known.then_some(remove).into_iter().chain([Event::AddPod(pod)]).collect()
            }
            Op::RemovePod(number) => vec![Event::RemovePod { uid: a_uid(number), node: None }],
            Op::AddNode(number) => vec![Event::AddNode(Arc::new(a_node(number)))],
            Op::RemoveNode(number) => {
                vec![Event::RemoveNode(format!("n{}", number % NODES).as_str().into())]
            }
        }
    }

    fn apply_to(&self, fork: &mut Fork) -> bool {
        match *self {
            Op::AddPod(number, on) => fork.add_pod(&a_pod(number, on)).is_ok(),
            Op::RemovePod(number) => fork.remove_pod(&a_uid(number)).is_ok(),
            Op::AddNode(number) => fork.add_node(a_node(number)).is_ok(),
            Op::RemoveNode(number) => fork.remove_node(&format!("n{}", number % NODES)).is_ok(),
        }
    }
}

#[derive(Clone, Debug, Arbitrary)]
enum Step {
    #[proptest(weight = 12)]
    Write(Op),
    #[proptest(weight = 6)]
    Publish,
    /// Holds the published version.
    Hold,
    Release(u8),
    /// Forks the published version, which is not held otherwise.
    #[proptest(weight = 2)]
    ForkPinned,
    /// Forks the unpublished state.
    ForkUnpublished,
    ForkHeld(u8),
    #[proptest(weight = 2)]
    Nest(u8),
    #[proptest(weight = 4)]
    Change(u8, Op),
    /// Keeps a version of a fork, and drops the fork; an engine goes on.
    Freeze(u8),
    /// An engine that begins with the published version, the unpublished state, a held version, a fork, or a version of
    /// such an engine.
    #[proptest(weight = 3)]
    Begin(u8),
    #[proptest(weight = 3)]
    Drop(u8),
}

/// A version, a fork, or an engine that began with a version.
enum Held {
    Version(Arc<Snapshot>),
    Fork(Box<Fork>),
    Engine(Engine),
}

impl Held {
    fn version(&self) -> Arc<Snapshot> {
        match self {
            Held::Version(version) => version.clone(),
            Held::Fork(fork) => fork.snapshot(),
            Held::Engine(engine) => engine.reader().unwrap().snapshot(),
        }
    }

    /// Applies the operation as the naive fold does.
    fn change(&mut self, op: &Op, naive: &mut Naive) {
        let events = op.events(naive);
        match self {
            Held::Version(_) => {}
            Held::Fork(fork) => {
                let accepted = events.iter().all(|event| naive.apply(event));
                assert_eq!(op.apply_to(fork), accepted, "{op:?}");
            }
            Held::Engine(engine) => {
                for event in events {
                    let accepted = naive.apply(&event);
                    let outcome = engine.submit(event).unwrap().wait().unwrap();
                    assert_eq!(outcome.is_ok(), accepted, "{op:?}");
                }
            }
        }
    }
}

/// Checks that the cluster equals the naive fold, and finds each of its pods by uid.
fn check(cluster: &Cluster, naive: &Naive) {
    let dump = naive.dump();
    for uid in (0..PODS).map(a_uid) {
        let found = cluster.pod(&uid).map(|pod| pod.node().name().to_string());
        let of_naive = dump.nodes.iter().find(|(_, node)| node.pods.contains_key(&uid));
        assert_eq!(found.as_ref(), of_naive.map(|(name, _)| name), "{uid}");
    }
    assert_eq!(comparable(cluster.dump()), dump);
    assert_eq!(cluster.audit(), vec![]);
}

struct Machine {
    writer: Writer,
    reader: Reader,
    now: Naive,
    published: Naive,
    held: Vec<(Arc<Snapshot>, Naive)>,
    forks: Vec<(Held, Naive)>,
}

impl Machine {
    fn new() -> Machine {
        let (writer, reader) = Engine::inline(Config::default());
        let (now, published) = (Naive::new(None), Naive::new(None));
        Machine { writer, reader, now, published, held: Vec::new(), forks: Vec::new() }
    }

    fn write(&mut self, op: &Op) {
        for event in op.events(&self.now) {
            assert_eq!(self.writer.apply(&event).is_ok(), self.now.apply(&event), "{event:?}");
        }
    }

    fn publish(&mut self) {
        self.writer.publish();
        self.published = self.now.clone();
    }

    fn fork(&mut self, fork: Fork, naive: Naive) {
        self.forks.push((Held::Fork(Box::new(fork)), naive));
    }

    fn step(&mut self, step: &Step) {
        let at = |which: u8, len: usize| (len > 0).then(|| usize::from(which) % len);
        match step {
            Step::Write(op) => self.write(op),
            Step::Publish => self.publish(),
            Step::Hold => self.held.push((self.reader.snapshot(), self.published.clone())),
            Step::Release(which) => {
                if let Some(at) = at(*which, self.held.len()) {
                    let (version, naive) = self.held.swap_remove(at);
                    check(&version, &naive);
                }
            }
            Step::ForkPinned => {
                let fork = self.reader.pin().fork();
                self.fork(fork, self.published.clone());
            }
            Step::ForkUnpublished => {
                let fork = self.writer.cluster().fork();
                self.fork(fork, self.now.clone());
            }
            Step::ForkHeld(which) => {
                if let Some(at) = at(*which, self.held.len()) {
                    let (version, naive) = &self.held[at];
                    let fork = (version.fork(), naive.clone());
                    self.fork(fork.0, fork.1);
                }
            }
            Step::Nest(which) => {
                if let Some(at) = at(*which, self.forks.len()) {
                    let (fork, naive) = &self.forks[at];
                    let fork = (fork.version().fork(), naive.clone());
                    self.fork(fork.0, fork.1);
                }
            }
            Step::Change(which, op) => {
                if let Some(at) = at(*which, self.forks.len()) {
                    let (held, naive) = &mut self.forks[at];
                    held.change(op, naive);
                }
            }
            Step::Begin(which) => {
                let begin = |version: &Cluster| Engine::at(version, Config::default());
                let (which, from) = (which / 4, which % 4);
                let (engine, naive) = match (from, at(which, self.forks.len())) {
                    (0, _) => (begin(&self.reader.pin()), &self.published),
                    (1, _) => (begin(self.writer.cluster()), &self.now),
                    (2, _) if let Some(at) = at(which, self.held.len()) => {
                        (begin(&self.held[at].0), &self.held[at].1)
                    }
                    (_, Some(at)) => (begin(&self.forks[at].0.version()), &self.forks[at].1),
                    _ => return,
                };
                self.forks.push((Held::Engine(engine), naive.clone()));
            }
            Step::Freeze(which) => {
                if let Some(at) = at(*which, self.forks.len()) {
                    let (held, naive) = &self.forks[at];
                    let version = Held::Version(held.version());
                    match held {
                        Held::Engine(_) => self.forks.push((version, naive.clone())),
                        _ => self.forks[at].0 = version,
                    }
                }
            }
            Step::Drop(which) => {
                if let Some(at) = at(*which, self.forks.len()) {
                    let (fork, naive) = self.forks.swap_remove(at);
                    check(&fork.version(), &naive);
                }
            }
        }
    }

    fn finish(mut self) {
        self.publish();
        self.writer.reclaim();
        check(self.writer.cluster(), &self.now);
        for (version, naive) in &self.held {
            check(version, naive);
        }
        for (fork, naive) in &self.forks {
            check(&fork.version(), naive);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn forks_equal_the_naive_fold_while_the_writer_keeps_writing(
        steps in prop::collection::vec(any::<Step>(), 1..250),
    ) {
        let mut machine = Machine::new();
        (0..NODES).for_each(|n| machine.write(&Op::AddNode(n)));
        (0..PODS).for_each(|p| machine.write(&Op::AddPod(p, p)));
        machine.publish();
        steps.iter().for_each(|step| machine.step(step));
        machine.finish();
    }
}

#[test]
fn a_fork_outlives_all_pods_of_the_cluster() {
    let (mut writer, reader) = Engine::inline(Config::default());
    for number in 0..100 {
        writer.add_pod(pod(format!("p{number}")).on("n").build()).unwrap();
    }
    writer.publish();
    let fork = reader.pin().fork();
    for number in 0..100 {
        writer.remove_pod(&pod(format!("p{number}")).on("n").build()).unwrap();
        writer.publish();
    }
    writer.reclaim();
    let lost = (0..100).filter(|n| fork.pod(&Uid::new(&format!("default/p{n}"))).is_none());
    assert_eq!(lost.count(), 0);
}

#[test]
fn forks_on_other_threads_lose_no_pod() {
    let rounds = if cfg!(miri) { 3 } else { 300 };
    let (mut writer, reader) = Engine::inline(Config::default());
    for number in 0..PODS {
        writer.add_pod(a_pod(number, number)).unwrap();
    }
    writer.publish();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (reader, over) = (reader.clone(), &over);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let fork = reader.pin().fork();
                    let nested = fork.fork();
                    drop(fork);
                    std::thread::yield_now();
                    let placed = nested.dump().nodes.into_values().flat_map(|node| node.pods);
                    for (uid, _) in placed {
                        assert!(nested.pod(&uid).is_some(), "{uid}");
                    }
                }
            });
        }
        for _ in 0..rounds {
            for number in 0..PODS {
                writer.remove_pod(&a_pod(number, number)).unwrap();
                writer.publish();
            }
            for number in 0..PODS {
                writer.add_pod(a_pod(number, number)).unwrap();
                writer.publish();
            }
        }
        over.store(true, Ordering::Relaxed);
    });
}
