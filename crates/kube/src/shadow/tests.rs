//! The recorder and the judge on single events, with clocks that are set.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use portolan::cache::{Config, Engine, Event};
use portolan::model::{Node, Pod, node, pod};
use portolan::plugin::Handle;
use portolan::{Algorithm, AlgorithmConfig};
use portolan_dra::plugin::DryRunBackend;
use portolan_k8s::config::Configuration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::mirror::{Condition, Observer};
use crate::process::profiles::{framework, registry};

use super::counts::Counts;
use super::judge::{Judge, KEPT, Observed};
use super::recorder::{Binding, Nominated, Recorder, Seen};
use super::verdict::{Judgement, Verdict};

const WINDOW: Duration = Duration::from_secs(2);

struct World {
    engine: Engine,
    recorder: RefCell<Recorder>,
    /// The condition of the pods, or `None` if it is not known.
    condition: Arc<Mutex<Option<Option<Condition>>>>,
    seen: Receiver<Seen>,
    begun: Instant,
    version: RefCell<u64>,
}

impl World {
    fn new() -> World {
        let engine = Engine::shared(Config::default());
        let (sender, seen) = crossbeam_channel::unbounded();
        let condition = Arc::new(Mutex::new(Some(None)));
        let known = condition.clone();
        let recorder = Recorder::new(
            engine.reader().expect("open"),
            Arc::new(["default-scheduler".into()]),
            Box::new(move |_| known.lock().expect("not poisoned").clone()),
            Arc::new(AtomicBool::new(true)),
            sender,
            Arc::new(Counts::new()),
        );
        let (recorder, version) = (RefCell::new(recorder), RefCell::new(0));
        World { engine, recorder, condition, seen, begun: Instant::now(), version }
    }

    fn event(&self, event: Event) {
        self.recorder.borrow_mut().before(&event);
        crate::testing::apply(&self.engine, event);
    }

    fn next_version(&self) -> u64 {
        *self.version.borrow_mut() += 1;
        *self.version.borrow()
    }

    fn node(&self, name: &str, cpu: i64) {
        self.event(Event::add_node(self.sized(name, cpu)));
    }

    fn sized(&self, name: &str, cpu: i64) -> Node {
        let sized = node(name).cpu(cpu).memory(8 << 30).pods(100);
        sized.resource_version(self.next_version()).build()
    }

    fn pod(&self, name: &str) -> Pod {
        let version = self.next_version();
        let sized = pod(name).namespace("default").uid(name).cpu(500).memory(1 << 20);
        sized.resource_version(version).build()
    }

    fn put(&self, name: &str) {
        self.event(Event::put_pod(self.pod(name)));
    }

    /// A pending pod that is nominated.
    fn nominate(&self, name: &str, node: &str) {
        let nominated = Pod { nominated_node_name: Some(node.into()), ..self.pod(name) };
        self.event(Event::put_pod(nominated));
    }

    fn bind(&self, name: &str, node: &str) {
        self.event(Event::put_pod(self.pod(name).on(node)));
    }

    /// The entries that the recorder has sent since the last call, as if they had been seen after this time.
    fn seen(&self, after: Duration) -> Vec<Seen> {
        let at = |seen| match seen {
            Seen::Binding(binding) => {
                let mut binding = Arc::into_inner(binding).expect("not shared");
                binding.at = self.begun + after;
                Seen::Binding(Arc::new(binding))
            }
            Seen::Change { version, .. } => Seen::Change { at: self.begun + after, version },
        };
        self.seen.try_iter().map(at).collect()
    }

    fn bindings(&self) -> Vec<Arc<Binding>> {
        let bindings = self.seen(Duration::ZERO).into_iter();
        bindings
            .filter_map(|seen| match seen {
                Seen::Binding(binding) => Some(binding),
                Seen::Change { .. } => None,
            })
            .collect()
    }

    fn condition(&self, status: &str, message: &str) {
        let condition = crate::testing::unschedulable(status, message);
        *self.condition.lock().expect("not poisoned") = Some(Some(condition));
    }

    fn judge(&self) -> (Judge, UnboundedReceiver<Judgement>) {
        let (handle, name) = (Handle::default(), "default-scheduler".into());
        let framework =
            framework(Configuration::DEFAULT, &registry(Arc::new(DryRunBackend)), &handle, &name)
                .expect("valid");
        let framework = framework.with_handle(handle.clone());
        let settings = AlgorithmConfig { percentage_of_nodes: 0, seed: 0 };
        let algorithm = Algorithm::new(framework, settings, None);
        let (judgements, receiver) = unbounded_channel();
        let judge = Judge {
            schedulers: HashMap::from([(name, Observed { algorithm, percentage: 0 })]),
            window: WINDOW,
            handle,
            nominated: Nominated::default(),
            reader: self.engine.reader().expect("open"),
            incoming: crossbeam_channel::never(),
            ahead: None,
            seen: VecDeque::new(),
            open: VecDeque::new(),
            counts: Arc::new(Counts::new()),
            judgements,
        };
        (judge, receiver)
    }
}

/// Judges what a channel contains, as the judge's thread does.
fn run(judge: Judge, seen: Vec<Seen>) {
    let (sender, incoming) = crossbeam_channel::unbounded();
    seen.into_iter().for_each(|seen| sender.send(seen).expect("open"));
    drop(sender);
    Judge { incoming, ..judge }.run();
}

#[test]
fn an_update_keeps_the_place_in_the_queue_and_a_failed_attempt_does_not() {
    let world = World::new();
    world.node("n1", 8_000);
    world.put("first");
    world.put("second");
    // An update without another condition, and one whose condition is not known.
    world.put("first");
    *world.condition.lock().expect("not poisoned") = None;
    world.put("first");
    *world.condition.lock().expect("not poisoned") = Some(None);
    for name in ["first", "second"] {
        world.bind(name, "n1");
    }
    let [first, second] = &world.bindings()[..] else { panic!("2 bindings") };
    assert!(first.rank < second.rank, "{:?} and {:?}", first.rank, second.rank);

    world.put("third");
    world.put("fourth");
    world.condition("False", "0/1 nodes");
    world.put("third");
    for name in ["third", "fourth"] {
        world.bind(name, "n1");
    }
    let [third, fourth] = &world.bindings()[..] else { panic!("2 bindings") };
    assert!(third.rank > fourth.rank, "{:?} and {:?}", third.rank, fourth.rank);
}

#[test]
fn a_nomination_counts_only_if_it_came_with_a_failed_attempt() {
    let world = World::new();
    world.node("n1", 8_000);
    let was_nominated = |name: &str| {
        world.bind(name, "n1");
        world.bindings()[0].was_nominated
    };
    let none = || *world.condition.lock().expect("not poisoned") = Some(None);

    world.put("preemptor");
    world.condition("False", "0/1 nodes");
    world.nominate("preemptor", "n1");
    world.nominate("preemptor", "n1");
    assert!(was_nominated("preemptor"));

    none();
    world.put("chosen");
    world.nominate("chosen", "n1");
    assert!(!was_nominated("chosen"), "the node that was chosen");

    none();
    world.put("retried");
    world.condition("False", "0/1 nodes");
    world.put("retried");
    world.nominate("retried", "n1");
    assert!(!was_nominated("retried"), "the attempt before failed without a nomination");

    none();
    world.put("again");
    world.nominate("again", "n1");
    world.condition("False", "permission denied");
    world.nominate("again", "n1");
    assert!(was_nominated("again"), "the attempt with the nomination failed");
}

/// Binds a pod after 1 s to the smaller node, of which the size changes to `then` at a time within the window, and to
/// `back` after it. The judge lags behind.
fn with_a_change(at: u64, then: i64, back: i64) -> Judgement {
    let world = World::new();
    world.node("n1", 8_000);
    world.node("n2", 4_000);
    let (judge, mut judgements) = world.judge();
    world.put("a");
    let mut seen = world.seen(Duration::ZERO);
    world.bind("a", "n2");
    seen.extend(world.seen(Duration::from_secs(1)));
    world.event(Event::update_node(world.sized("n2", then)));
    seen.extend(world.seen(Duration::from_secs(at)));
    world.event(Event::update_node(world.sized("n2", back)));
    seen.extend(world.seen(Duration::from_secs(10)));
    run(judge, seen);
    judgements.try_recv().expect("judged")
}

#[test]
fn later_changes_are_those_of_the_window() {
    // A change at the end of the window, after 3 s, ends it before the next one is taken from the channel.
    for at in [2, 3] {
        let within = with_a_change(at, 16_000, 4_000);
        assert_eq!(within.verdict, Verdict::Concurrent);
        assert!(within.state.is_some_and(|state| state.is_later));
        assert_eq!(with_a_change(at, 4_001, 16_000).verdict, Verdict::Disagreed);
    }
}

#[test]
fn a_sample_on_another_state_is_no_explanation() {
    let world = World::new();
    world.node("small", 100);
    (0..5).for_each(|n| world.node(&format!("large-{n}"), 32_000));
    (0..110).for_each(|n| world.node(&format!("node-{n}"), 4_000));
    let (judge, mut judgements) = world.judge();
    world.put("a");
    world.put("b");
    world.seen(Duration::ZERO);
    world.bind("a", "small");
    world.bind("b", "node-0");
    // With this change, a sample exists in which the node is the best one for `a`.
    world.event(Event::update_node(world.sized("small", 4_000)));
    run(judge, world.seen(Duration::from_secs(1)));
    let found = [judgements.try_recv(), judgements.try_recv()].map(|one| one.expect("judged"));
    let mut verdicts = found.map(|one| (one.name.to_string(), one.verdict, one.rank));
    verdicts.sort();
    let expected =
        [("a".into(), Verdict::Infeasible, None), ("b".into(), Verdict::Sampled, Some(6))];
    assert_eq!(verdicts, expected);
}

#[test]
fn a_full_window_ends_early() {
    let world = World::new();
    world.node("n1", 8_000);
    world.node("n2", 7_000);
    let (mut judge, mut judgements) = world.judge();
    world.put("first");
    world.put("second");
    // With `first` on n1, n2 is the best node for `second`.
    world.bind("second", "n2");
    world.bind("first", "n1");
    let seen = world.seen(Duration::from_secs(1));
    let change = Seen::Change { at: seen[0].at(), version: seen[0].version().clone() };
    seen.into_iter().for_each(|seen| judge.take(seen));
    let mut verdict = None;
    for _ in 0..2 * KEPT {
        judge.take(change.clone());
        assert!(judge.seen.len() < KEPT, "{}", judge.seen.len());
        if let Ok(judgement) = judgements.try_recv()
            && &*judgement.name == "second"
        {
            verdict = Some(judgement.verdict);
        }
    }
    assert!(judge.open.is_empty());
    assert_eq!(verdict, Some(Verdict::Concurrent), "judged on what was seen until then");
}
