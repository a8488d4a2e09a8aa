//! Models of the optimistic commit: of conflicting placements decided concurrently, exactly one is assumed.
#![cfg(loom)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loom::thread;
use loom_tests::{Bound, explore};
use portolan::cache::{Config, Engine, Event, Outcome};
use portolan::model::{
    EventError, LabelSelector, Pod, PodAffinity, PodAffinityTerm, Timestamp, node, pod,
};
use portolan::plugin::Handle;
use portolan::scheduler::FilterCheck;
use portolan::scheduler::queue::{QueueConfig, QueueFront, SchedulingQueue};
use portolan::{Algorithm, AlgorithmConfig, Failure, Framework, Profiles, Scheduler};

const ZONE: &str = "topology.kubernetes.io/zone";

/// Creates an engine that checks commits, with one node per cpu amount, all in one zone.
fn engine(nodes: &[i64]) -> Engine {
    engine_in(|_| "z".to_owned(), nodes)
}

/// Creates an engine with each node in a zone, and therefore a chunk, of its own.
fn engine_with_zones(nodes: &[i64]) -> Engine {
    engine_in(|n| format!("z{n}"), nodes)
}

fn engine_in(zone: impl Fn(usize) -> String, nodes: &[i64]) -> Engine {
    let framework = Arc::new(Framework::default_profile());
    let check = FilterCheck::new(Profiles::one(framework));
    let engine = Engine::shared(Config { commit_check: check.into(), ..Config::default() });
    for (n, &cpu) in nodes.iter().enumerate() {
        let node = node(format!("n{n}")).hostname().zone(zone(n)).cpu(cpu).memory(1 << 30);
        engine.submit(Event::add_node(node.build())).unwrap().wait().unwrap().unwrap();
    }
    engine
}

fn wanted(name: &str) -> Pod {
    pod(name.to_owned()).cpu(1_000).build()
}

/// Creates a pod with anti-affinity to pods of its kind in its zone.
fn apart(name: &str) -> Pod {
    let term = PodAffinityTerm {
        topology_key: ZONE.into(),
        selector: LabelSelector::from_labels([("app", "web")]),
        namespaces: Box::new(["default".into()]),
        namespace_selector: LabelSelector::Nothing,
    };
    let apart = PodAffinity { required: Box::new([term]), ..PodAffinity::default() };
    pod(name.to_owned()).label("app", "web").pod_anti_affinity(apart).build()
}

/// Commits two pods from two threads, both decided on the current version, and asserts that exactly one is assumed.
fn commit_both(nodes: &[i64], pods: [(Pod, &'static str); 2]) {
    let engine = engine(nodes);
    let version = engine.reader().unwrap().generation();
    let [one, two] = pods.map(|(pod, node)| (engine.clone(), pod.on(node)));
    let commit = move |(engine, pod): (Engine, Pod)| {
        let event = Event::assume(pod).decided_on(version);
        engine.submit(event).unwrap().wait().unwrap()
    };
    let committer = thread::spawn(move || commit(one));
    let outcomes = [commit(two), committer.join().unwrap()];
    let is_conflict = |outcome: &Outcome| matches!(outcome, Err(EventError::Conflict { .. }));
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1, "{outcomes:?}");
    assert_eq!(outcomes.iter().filter(|outcome| is_conflict(outcome)).count(), 1, "{outcomes:?}");
    assert_eq!(engine.reader().unwrap().snapshot().assumed_count(), 1);
}

#[test]
fn the_second_of_two_pods_for_the_last_resources_conflicts() {
    explore(
        "the_second_of_two_pods_for_the_last_resources_conflicts",
        Bound::Preemptions(3),
        || {
            commit_both(&[1_000], [(wanted("p"), "n0"), (wanted("q"), "n0")]);
        },
    );
}

#[test]
fn the_second_of_two_mutually_exclusive_pods_conflicts() {
    // On two nodes: a check of the pod's own node alone finds no conflict.
    explore("the_second_of_two_mutually_exclusive_pods_conflicts", Bound::Preemptions(3), || {
        commit_both(&[1_000, 1_000], [(apart("p"), "n0"), (apart("q"), "n1")]);
    });
}

/// Creates a scheduler for this engine.
fn scheduler(engine: &Engine) -> Scheduler {
    let framework = Framework::default_profile_with(&Handle::default());
    let scheduler = Algorithm::new(framework, AlgorithmConfig::default(), None);
    Scheduler::new(engine.clone(), Profiles::one(scheduler)).unwrap()
}

fn now() -> Timestamp {
    Timestamp::from_secs(1)
}

#[test]
fn two_schedulers_never_overcommit() {
    let met = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&met);
    explore("two_schedulers_never_overcommit", Bound::Preemptions(3), move || {
        let engine = engine(&[1_000]);
        let schedulers = [scheduler(&engine), scheduler(&engine)];
        let schedule = |mut scheduler: Scheduler, pod: Pod| {
            let placed = scheduler.schedule(&Arc::new(pod), now());
            let placed = placed.map(|placed| drop(placed.keep_assumed()));
            (placed, scheduler.figures().conflicts)
        };
        let [one, two] = schedulers;
        let other = thread::spawn(move || schedule(one, wanted("p")));
        let outcomes = [schedule(two, wanted("q")), other.join().unwrap()];
        let placed = outcomes.iter().filter(|(placed, _)| placed.is_ok()).count();
        let unfit = outcomes.iter().filter_map(|(placed, _)| placed.as_ref().err()?.fit()).count();
        assert_eq!((placed, unfit), (1, 1), "{outcomes:?}");
        let snapshot = engine.reader().unwrap().snapshot();
        assert_eq!(snapshot.node("n0").unwrap().requested().cpu.0, 1_000);
        counted.fetch_add(outcomes.iter().map(|(_, met)| *met as usize).sum(), Ordering::Relaxed);
    });
    assert!(met.load(Ordering::Relaxed) > 0, "the schedulers never met");
}

/// Two schedulers with a batch each. Returns the number of placed pods and the errors.
fn schedule_batches(engine: &Engine, batches: [[&'static str; 2]; 2]) -> (usize, Vec<Failure>) {
    let schedulers = [scheduler(engine), scheduler(engine)];
    let schedule = |mut scheduler: Scheduler, names: [&'static str; 2]| {
        let placed = scheduler.schedule_batch(&names.map(|name| Arc::new(wanted(name))), now());
        let kept =
            placed.into_iter().map(|placed| placed.map(|placed| drop(placed.keep_assumed())));
        kept.collect::<Vec<_>>()
    };
    let ([one, two], [first, second]) = (schedulers, batches);
    let other = thread::spawn(move || schedule(one, first));
    let mut results = schedule(two, second);
    results.extend(other.join().unwrap());
    let placed = results.iter().filter(|result| result.is_ok()).count();
    (placed, results.into_iter().filter_map(Result::err).collect())
}

#[test]
fn two_batches_never_overcommit() {
    explore("two_batches_never_overcommit", Bound::Preemptions(2), || {
        let engine = engine_with_zones(&[1_000, 1_000, 1_000]);
        let (placed, errors) = schedule_batches(&engine, [["a", "b"], ["c", "d"]]);
        assert_eq!((placed, errors.iter().filter_map(Failure::fit).count()), (3, 1));
        let snapshot = engine.reader().unwrap().snapshot();
        assert!(snapshot.nodes().all(|node| node.requested().cpu.0 == 1_000));
        assert_eq!(snapshot.audit(), vec![]);
    });
}

#[test]
fn a_pod_in_two_batches_is_placed_once() {
    explore("a_pod_in_two_batches_is_placed_once", Bound::Preemptions(2), || {
        let engine = engine_with_zones(&[4_000, 4_000, 4_000, 4_000]);
        let (placed, errors) = schedule_batches(&engine, [["a", "b"], ["b", "c"]]);
        assert_eq!(placed, 3);
        let is_known =
            |error: &Failure| matches!(error, Failure::Refused(EventError::AlreadyInCache { .. }));
        assert!(errors.iter().all(is_known), "{errors:?}");
        let snapshot = engine.reader().unwrap().snapshot();
        assert_eq!((snapshot.assumed_count(), snapshot.audit()), (3, vec![]));
    });
}

#[test]
fn a_pod_is_decided_on_a_version_with_all_earlier_events() {
    explore("a_pod_is_decided_on_a_version_with_all_earlier_events", Bound::Preemptions(2), || {
        let engine = engine(&[]);
        let queue = SchedulingQueue::new(Framework::default_profile(), QueueConfig::default());
        let (follower, reader) = (engine.follow().unwrap(), engine.reader().unwrap());
        let front = QueueFront::new(queue, follower, reader);
        let mut scheduler = scheduler(&engine);
        let submitter = thread::spawn({
            let engine = engine.clone();
            move || {
                drop(
                    engine
                        .submit(Event::add_node(node("n0").cpu(1_000).memory(1 << 30).build()))
                        .unwrap(),
                );
                drop(engine.submit(Event::put_pending(wanted("p"))).unwrap());
            }
        });
        let popped = front.pop(None, now).unwrap();
        let placement = scheduler.schedule(&Arc::new(popped.pod), now()).unwrap();
        assert_eq!(placement.keep_assumed().node_name.as_deref(), Some("n0"));
        submitter.join().unwrap();
    });
}
