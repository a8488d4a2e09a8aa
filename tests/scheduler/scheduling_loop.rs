//! Pods move from the queue to nodes, and return to the queue if they fail.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Instant;

use portolan::Unplaced;
use portolan::cache::{Config, Engine, Event, Snapshot};
use portolan::model::{Pod, PodBuilder, Timestamp, Uid, node, pod};
use portolan::plugin::{Eviction, Handle, QueuedPod};
use portolan::scheduler::queue::{Place, PopError, QueueConfig, QueueFront, SchedulingQueue};
use portolan::scheduler::{FilterCheck, InMemoryBinder, InMemoryEvictor};
use portolan::{
    Algorithm, AlgorithmConfig, Attempt, Evictor, Framework, Placement, Profiles, SchedulingLoop,
};
use proptest::prelude::*;

const GI: i64 = 1 << 30;

/// An engine, its queue, and a manually advanced clock.
pub(super) struct Bench {
    pub(super) engine: Engine,
    handle: Handle,
    pub(super) queue: Arc<QueueFront>,
    now: Arc<AtomicI64>,
    /// If set, binding fails.
    fails: Arc<AtomicBool>,
}

impl Bench {
    fn new() -> Bench {
        Bench::with(QueueConfig::default())
    }

    pub(super) fn with(config: QueueConfig) -> Bench {
        let shared = Handle::default();
        let check = Arc::new(Framework::default_profile_with(&shared));
        let check = FilterCheck::new(Profiles::one(check));
        let engine = Engine::shared(Config { commit_check: check.into(), ..Config::default() });
        let fails = Arc::new(AtomicBool::new(false));
        let failing = fails.clone();
        let binder = InMemoryBinder::new(engine.clone())
            .refusing(move |_, _| failing.load(Ordering::Relaxed).then(|| "away".to_owned()));
        let handle = shared
            .with_binder(Arc::new(binder))
            .with_evictor(Arc::new(InMemoryEvictor::new(engine.clone())));
        let framework = Arc::new(Framework::default_profile_with(&handle));
        let queue = SchedulingQueue::new(framework, config);
        let (follower, reader) = (engine.follow().unwrap(), engine.reader().unwrap());
        let queue = Arc::new(QueueFront::new(queue, follower, reader));
        Bench { engine, handle, queue, now: Arc::new(AtomicI64::new(1_000)), fails }
    }

    pub(super) fn scheduling(&self, seed: u64) -> SchedulingLoop {
        let framework = Framework::default_profile_with(&self.handle);
        let config = AlgorithmConfig { percentage_of_nodes: 100, seed };
        let scheduler = Algorithm::new(framework, config, None);
        SchedulingLoop::new(self.engine.clone(), self.queue.clone(), Profiles::one(scheduler))
            .unwrap()
    }

    pub(super) fn clock(&self) -> impl Fn() -> Timestamp + use<> {
        let now = self.now.clone();
        move || Timestamp::from_secs(now.load(Ordering::Relaxed))
    }

    pub(super) fn passes(&self, seconds: i64) {
        self.now.fetch_add(seconds, Ordering::Relaxed);
    }

    pub(super) fn node(&self, name: &str, cpu: i64) {
        let node = node(name).hostname().cpu(cpu).memory(64 * GI).build();
        self.engine.submit(Event::add_node(node)).unwrap().wait().unwrap().unwrap();
    }

    pub(super) fn pending(&self, pod: PodBuilder) -> Uid {
        let pod = pod.build();
        let uid = pod.uid.clone();
        self.engine.submit(Event::put_pending(pod)).unwrap().wait().unwrap().unwrap();
        uid
    }

    pub(super) fn snapshot(&self) -> Arc<Snapshot> {
        self.engine.reader().unwrap().snapshot()
    }

    pub(super) fn place(&self, uid: &Uid) -> Option<Place> {
        self.queue.with(|queue, _| queue.place(uid))
    }

    /// Returns the next attempt, if a pod is ready.
    pub(super) fn attempt(&self, scheduling: &mut SchedulingLoop) -> Option<Attempt> {
        match scheduling.schedule_one(Some(Instant::now()), self.clock()) {
            Ok(attempt) => Some(attempt),
            Err(PopError::Timeout) => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Schedules and binds until every ready pod has failed once, and returns the number of bound pods.
    pub(super) fn settle(&self, scheduling: &mut SchedulingLoop) -> usize {
        let mut bound = 0;
        // A pod in backoff is popped if no other is ready, but each only once.
        let mut failed = BTreeSet::new();
        while let Some(attempt) = self.attempt(scheduling) {
            let (placed, unplaced) = attempt.into_parts();
            for placement in &placed {
                bound += usize::from(scheduling.bind(placement, self.clock()).is_ok());
            }
            if unplaced.iter().any(|failure| !failed.insert(failure.pod.name.to_string())) {
                break;
            }
        }
        bound
    }
}

pub(super) fn cpu(name: impl Into<portolan::model::Name>, cpu: i64) -> PodBuilder {
    pod(name).cpu(cpu).memory(GI)
}

#[test]
fn a_pod_that_fits_on_no_node_waits_for_a_suitable_node() {
    let bench = Bench::new();
    let mut scheduling = bench.scheduling(1);
    bench.node("small", 1_000);
    let uid = bench.pending(cpu("large", 3_000));
    let Some(Attempt::Failed(Unplaced { error, place, .. })) = bench.attempt(&mut scheduling)
    else {
        panic!("the pod fits on no node")
    };
    assert!(error.to_string().starts_with("0/1 nodes are available: 1 Insufficient cpu."));
    assert_eq!((place, bench.place(&uid)), (Some(Place::Unschedulable), place));
    assert!(bench.attempt(&mut scheduling).is_none());
    // Another small node does not help. A large one does, after the backoff.
    bench.node("small-too", 1_000);
    assert!(bench.attempt(&mut scheduling).is_none());
    bench.node("large", 4_000);
    bench.passes(2);
    assert_eq!(bench.settle(&mut scheduling), 1);
    assert_eq!(&**bench.snapshot().pod(&uid).unwrap().node().name(), "large");
    assert_eq!(bench.place(&uid), None);
}

#[test]
fn a_batch_contains_the_pods_of_a_burst() {
    let bench = Bench::new();
    let mut scheduling = bench.scheduling(1);
    bench.node("n1", 1_000);
    for n in 0..60 {
        bench.pending(cpu(format!("p{n}"), 10));
    }
    let mut batch = |most| {
        let most = NonZeroUsize::new(most).unwrap();
        scheduling.schedule_batch(most, Some(Instant::now()), bench.clock()).unwrap().len()
    };
    assert_eq!([batch(50), batch(50)], [50, 10]);
}

#[test]
fn a_pod_that_cannot_be_bound_is_retried() {
    let bench = Bench::new();
    let mut scheduling = bench.scheduling(1);
    bench.node("n", 1_000);
    let uid = bench.pending(cpu("p", 100));
    bench.fails.store(true, Ordering::Relaxed);
    let Some(Attempt::Placed(placement)) = bench.attempt(&mut scheduling) else {
        panic!("the pod fits")
    };
    let (error, place) = scheduling.bind(&placement, bench.clock()).unwrap_err();
    assert!(error.to_string().ends_with("away"), "{error}");
    assert_eq!(place, Some(Place::ErrorBackoff));
    assert_eq!(bench.snapshot().pod_count(), 0);
    bench.fails.store(false, Ordering::Relaxed);
    assert!(bench.attempt(&mut scheduling).is_none(), "the pod backs off after an error");
    bench.passes(2);
    assert_eq!(bench.settle(&mut scheduling), 1);
    assert!(bench.snapshot().pod(&uid).is_some());
}

#[test]
fn a_preemptor_returns_and_is_placed() {
    let bench = Bench::new();
    let mut scheduling = bench.scheduling(1);
    bench.node("n", 1_000);
    let low = bench.pending(cpu("low", 800).priority(1));
    assert_eq!(bench.settle(&mut scheduling), 1);
    let high = bench.pending(cpu("high", 800).priority(9));
    let Some(Attempt::Failed(Unplaced { place, .. })) = bench.attempt(&mut scheduling) else {
        panic!("the victim still exists")
    };
    // The eviction occurred while the preemptor was still in its cycle.
    assert_eq!(place, Some(Place::Backoff));
    assert!(bench.snapshot().pod(&low).is_none());
    assert_eq!(&*bench.handle.nominator().node_of(&high).unwrap(), "n");
    bench.passes(2);
    assert_eq!(bench.settle(&mut scheduling), 1);
    assert!(bench.snapshot().pod(&high).is_some());
}

#[test]
fn a_deleted_pod_is_not_retried() {
    let bench = Bench::new();
    let mut scheduling = bench.scheduling(1);
    bench.node("n", 1_000);
    let uid = bench.pending(cpu("large", 3_000));
    assert!(bench.attempt(&mut scheduling).is_some());
    bench.engine.submit(Event::RemovePending(uid.clone())).unwrap().wait().unwrap().unwrap();
    bench.node("large", 4_000);
    bench.passes(400);
    assert_eq!(bench.settle(&mut scheduling), 0);
    assert_eq!(bench.place(&uid), None);
    // A terminating pod is skipped.
    let going = bench.pending(cpu("going", 100).deleted(Timestamp(1)));
    assert!(bench.attempt(&mut scheduling).is_none());
    assert_eq!(bench.place(&going), None);
}

#[test]
fn loops_of_several_threads_share_a_queue() {
    let bench = Bench::new();
    for n in 0..6 {
        bench.node(&format!("n{n}"), 2_000);
    }
    for n in 0..60 {
        bench.pending(cpu(format!("p{n}"), 200));
    }
    let bound: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let mut scheduling = bench.scheduling(5);
                let bench = &bench;
                scope.spawn(move || bench.settle(&mut scheduling))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(bound, 60);
    let after = bench.snapshot();
    assert_eq!(after.pod_count(), 60);
    assert!(after.nodes().all(|node| node.requested().cpu <= node.allocatable().cpu));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// Whatever fails, every pod is either bound, in flight or in the queue.
    #[test]
    fn every_pod_is_in_exactly_one_place(
        steps in prop::collection::vec((0..9_u8, 0..6_usize), 1..120),
        seed in any::<u64>(),
    ) {
        let bench = Bench::new();
        let mut loops = [bench.scheduling(seed), bench.scheduling(seed ^ 1)];
        bench.node("n0", 1_000);
        let mut nodes = 1;
        let mut pods: BTreeSet<String> = BTreeSet::new();
        let mut flight: Vec<Placement> = Vec::new();
        let uid = |name: &str| Uid::new(&format!("default/{name}"));
        for (at, (step, with)) in steps.into_iter().enumerate() {
            match step {
                0 | 1 => {
                    let size = [100, 200, 400, 700, 900, 1_100][with];
                    let name = format!("p{at}");
                    bench.pending(cpu(name.as_str(), size).priority([0, 0, 0, 5, 9, 9][with]));
                    pods.insert(name);
                }
                2..5 => {
                    if let Some(Attempt::Placed(placement)) =
                        bench.attempt(&mut loops[with % 2])
                    {
                        flight.push(placement);
                    }
                }
                5 | 6 if !flight.is_empty() => {
                    let placement = flight.remove(with % flight.len());
                    let there = bench.snapshot().pod(&placement.pod.uid).is_some();
                    bench.fails.store(step == 6, Ordering::Relaxed);
                    let bound = loops[with % 2].bind(&placement, bench.clock());
                    bench.fails.store(false, Ordering::Relaxed);
                    // A placement that was preempted in the meantime cannot be bound.
                    prop_assert_eq!(bound.is_ok(), step == 5 && there);
                }
                7 => {
                    bench.node(&format!("n{nodes}"), 1_000);
                    nodes += 1;
                }
                8 => {
                    let names: Vec<&String> = pods.iter().collect();
                    if let Some(name) = names.get(with).map(|name| (*name).clone()) {
                        let placed = bench.snapshot().pod(&uid(&name)).map(|pod| pod.to_pod());
                        match placed {
                            // A pod in flight is not deleted here, because its binding has yet to end.
                            Some(_) if flight.iter().any(|placement| *placement.pod.name == *name) => continue,
                            Some(pod) => drop(bench.engine.submit(Event::remove_pod(&pod)).unwrap().wait()),
                            None => drop(bench.engine.submit(Event::RemovePending(uid(&name))).unwrap().wait()),
                        }
                        pods.remove(&name);
                    }
                }
                _ => bench.passes(with as i64),
            }
            bench.queue.tend(bench.clock());
            let snapshot = bench.snapshot();
            for node in snapshot.nodes() {
                prop_assert!(node.requested().cpu <= node.allocatable().cpu, "{}", node.name());
            }
            // Victims of preemption are not recreated in this test.
            pods.retain(|name| {
                let flying = flight.iter().any(|placement| *placement.pod.name == **name);
                let there = snapshot.pod(&uid(name)).is_some();
                let queued = bench.place(&uid(name)).is_some();
                flying || there || queued
            });
            for name in &pods {
                let flying = flight.iter().any(|placement| *placement.pod.name == **name);
                let bound = snapshot.pod(&uid(name)).is_some_and(|pod| !pod.is_assumed());
                let waits = bench.place(&uid(name)).is_some_and(|place| {
                    !matches!(place, Place::InFlight | Place::Binding)
                });
                prop_assert!(
                    u8::from(flying) + u8::from(bound) + u8::from(waits) == 1,
                    "{name}: in flight {flying}, bound {bound}, queued {waits}"
                );
            }
        }
    }
}

/// A popped pod has the generation of its event.
#[test]
fn a_popped_pod_is_decided_on_a_version_that_includes_its_event() {
    let bench = Bench::new();
    bench.node("n", 1_000);
    let pod: Pod = cpu("p", 100).build();
    let applied = bench.engine.submit(Event::put_pending(pod)).unwrap().wait().unwrap().unwrap();
    let popped = bench.queue.pop(None, bench.clock()).unwrap();
    assert_eq!(popped.generation, applied.generation);
    assert!(bench.snapshot().generation() >= popped.generation);
}

/// An evictor that answers for each victim, and may keep the eviction.
struct Keeping {
    engine: portolan::cache::WeakEngine,
    fails: bool,
    kept: std::sync::Mutex<Vec<portolan::plugin::Eviction>>,
}

impl portolan::Evictor for Keeping {
    fn evict(&self, eviction: portolan::plugin::Eviction) {
        let evicted = eviction.run(|victim| {
            if self.fails {
                return Err("the API server refused".to_owned());
            }
            let engine = self.engine.upgrade().ok_or("no engine")?;
            let ticket = engine.submit(Event::remove_pod(victim)).map_err(|e| e.to_string())?;
            ticket.wait().map(drop).map_err(|e| e.to_string())
        });
        assert_eq!(evicted.is_err(), self.fails);
        match self.fails {
            true => drop(eviction),
            false => self.kept.lock().unwrap().push(eviction),
        }
    }
}

#[test]
fn a_preemptor_is_retried_when_its_victims_are_deleted_or_cannot_be_deleted() {
    for fails in [false, true] {
        let schedulers = portolan::Schedulers::builder()
            .evictor(move |engine| Keeping {
                engine: engine.clone(),
                fails,
                kept: std::sync::Mutex::default(),
            })
            .build()
            .unwrap();
        let engine = schedulers.engine();
        let clock = || Timestamp::from_secs(1);
        let submit = |event| engine.submit(event).unwrap().wait().unwrap().unwrap();
        submit(Event::add_node(node("n1").cpu(1_000).memory(1 << 30).build()));
        for name in ["low-a", "low-b"] {
            submit(Event::add_pod(pod(name).cpu(500).priority(1).on("n1").build()));
        }
        submit(Event::put_pending(pod("high").cpu(1_000).priority(9).build()));
        let mut scheduling = schedulers.scheduling_loop().unwrap();
        let (placed, failed) = scheduling.schedule_one(None, clock).unwrap().into_parts();
        assert_eq!((placed.len(), failed.len()), (0, 1));
        // After the longest backoff. The deadline only bounds a test that fails.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        let later = || Timestamp::from_secs(60);
        let (placed, failed) = scheduling.schedule_one(Some(deadline), later).unwrap().into_parts();
        let names: Vec<&str> = placed.iter().map(|placement| &*placement.pod.name).collect();
        match fails {
            false => assert_eq!(names, ["high"]),
            true => assert_eq!(&*failed[0].pod.name, "high"),
        }
    }
}

/// A watch event may have been sent before the nomination was written to the API server.
#[test]
fn a_nomination_outlives_older_objects_until_an_object_confirms_it() {
    let bench = Bench::new();
    bench.node("n", 1_000);
    let put = |event| bench.engine.submit(event).unwrap().wait().unwrap().unwrap();
    put(Event::add_pod(cpu("low", 800).priority(1).on("n").build()));
    let high = bench.pending(cpu("high", 800).priority(9));
    let mut scheduling = bench.scheduling(1);
    let nominated = || {
        bench.queue.tend(bench.clock());
        let node = |queued: &QueuedPod| queued.pod.nominated_node_name.clone();
        bench.queue.with(|queue, _| queue.get(&high).and_then(node))
    };
    let (placed, failed) = bench.attempt(&mut scheduling).unwrap().into_parts();
    assert_eq!((placed.len(), failed.len()), (0, 1));
    assert_eq!(nominated().as_deref(), Some("n"));

    let object = |label: &str, node: Option<&str>| {
        let mut pod = cpu("high", 800).priority(9).label("tier", label).build();
        pod.nominated_node_name = node.map(Into::into);
        Event::put_pending(pod)
    };
    put(object("older", None));
    assert_eq!(nominated().as_deref(), Some("n"));
    put(object("confirms", Some("n")));
    assert_eq!(nominated().as_deref(), Some("n"));
    put(object("cleared", None));
    assert_eq!(nominated(), None);
}

/// A preemptor of higher priority withdraws the nominations of others to its node.
#[test]
fn an_update_does_not_restore_a_withdrawn_nomination() {
    let bench = Bench::new();
    bench.node("n", 1_000);
    let put = |event| bench.engine.submit(event).unwrap().wait().unwrap().unwrap();
    put(Event::add_pod(cpu("low", 800).priority(1).on("n").build()));
    let high = bench.pending(cpu("high", 800).priority(9));
    drop(bench.attempt(&mut bench.scheduling(1)).unwrap());
    let nominator = bench.handle.nominator();
    assert_eq!(nominator.remove(&high).as_deref(), Some("n"));

    put(Event::put_pending(cpu("high", 800).priority(9).label("tier", "new").build()));
    bench.queue.tend(bench.clock());
    assert_eq!(nominator.node_of(&high), None);
    let node = |queued: &QueuedPod| queued.pod.nominated_node_name.clone();
    assert_eq!(bench.queue.with(|queue, _| queue.get(&high).map(node)), Some(None));
}

#[test]
fn a_pod_that_changes_during_its_binding_is_retried_with_its_new_object() {
    let bench = Bench::new();
    bench.node("n", 1_000);
    let uid = bench.pending(cpu("p", 100));
    let mut scheduling = bench.scheduling(1);
    let (placed, _) = bench.attempt(&mut scheduling).unwrap().into_parts();
    let changed = cpu("p", 100).label("tier", "new").build();
    bench.engine.submit(Event::put_pending(changed)).unwrap().wait().unwrap().unwrap();
    bench.fails.store(true, Ordering::Relaxed);
    scheduling.bind(&placed[0], bench.clock()).unwrap_err();
    bench.queue.tend(bench.clock());
    let has_label = |queued: &QueuedPod| queued.pod.template.labels.get("tier").is_some();
    assert_eq!(bench.queue.with(|queue, _| queue.get(&uid).map(has_label)), Some(true));
}

struct Counting(Arc<AtomicI64>);

impl Evictor for Counting {
    fn evict(&self, _: Eviction) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Deletes no victim.
struct Ending(fn(&Eviction));

impl Evictor for Ending {
    fn evict(&self, eviction: Eviction) {
        (self.0)(&eviction);
    }
}

#[test]
fn a_preemptor_is_retried_unless_its_eviction_succeeds_without_a_retry_request() {
    let is_retried = |end: fn(&Eviction)| {
        let builder = portolan::Schedulers::builder();
        let schedulers = builder.evictor(move |_| Ending(end)).build().unwrap();
        let submit = |event| schedulers.engine().submit(event).unwrap().wait().unwrap().unwrap();
        submit(Event::add_node(node("n1").cpu(1_000).memory(1 << 30).build()));
        submit(Event::add_pod(pod("low").cpu(500).priority(1).on("n1").build()));
        submit(Event::put_pending(pod("high").cpu(1_000).priority(9).build()));
        let mut scheduling = schedulers.scheduling_loop().unwrap();
        let mut attempt =
            |at| scheduling.schedule_one(Some(Instant::now()), || Timestamp::from_secs(at));
        assert!(matches!(attempt(1), Ok(Attempt::Failed(_))));
        // After the longest backoff.
        match attempt(60) {
            Ok(attempt) => assert!(matches!(attempt, Attempt::Failed(_))),
            Err(error) => {
                assert_eq!(error, PopError::Timeout);
                return false;
            }
        }
        true
    };
    assert!(!is_retried(|eviction| {
        let _ = eviction.begin();
        eviction.ungate();
        eviction.finish(Ok(()));
    }));
    assert!(is_retried(|eviction| {
        let _ = eviction.begin();
        eviction.ungate();
        eviction.retry();
        eviction.finish(Ok(()));
    }));
    assert!(is_retried(|eviction| eviction.finish(Err(&"no".to_owned()))));
    // As after a panic.
    assert!(is_retried(|eviction| drop(eviction.begin())), "never finished");
}

#[test]
fn victims_that_are_terminating_already_are_not_evicted_again() {
    let evicted = Arc::new(AtomicI64::new(0));
    let counting = evicted.clone();
    let schedulers =
        portolan::Schedulers::builder().evictor(move |_| Counting(counting)).build().unwrap();
    let engine = schedulers.engine();
    let submit = |event| engine.submit(event).unwrap().wait().unwrap().unwrap();
    submit(Event::add_node(node("n1").cpu(1_000).memory(1 << 30).build()));
    let mut low = pod("low").cpu(500).priority(1).on("n1").build();
    low.deletion_time = Some(Timestamp::from_secs(1));
    submit(Event::add_pod(low));
    submit(Event::put_pending(pod("high").cpu(1_000).priority(9).build()));
    let mut scheduling = schedulers.scheduling_loop().unwrap();
    let clock = || Timestamp::from_secs(1);
    let (_, failed) = scheduling.schedule_one(None, clock).unwrap().into_parts();
    // It is nominated all the same, and is not gated.
    let fit = failed[0].error.fit().unwrap();
    assert!(matches!(&fit.nomination, portolan::plugin::Nomination::Node(n) if **n == *"n1"));
    assert_eq!(failed[0].place, Some(Place::Unschedulable));
    assert_eq!(evicted.load(Ordering::Relaxed), 0);
}

#[test]
fn a_nominated_pod_that_is_bound_elsewhere_frees_the_resources_that_it_reserved() {
    let bench = Bench::new();
    bench.node("n", 1_000);
    bench.node("small", 10);
    let put = |event| bench.engine.submit(event).unwrap().wait().unwrap().unwrap();
    put(Event::add_pod(cpu("low", 800).priority(1).on("n").build()));
    bench.pending(cpu("high", 800).priority(9));
    let mut scheduling = bench.scheduling(1);
    let (_, failed) = bench.attempt(&mut scheduling).unwrap().into_parts();
    assert_eq!(failed.len(), 1);
    // The nominated pod must not take the resources itself while the other one is tried.
    let taken = bench.queue.pop(Some(Instant::now()), bench.clock());
    let other = bench.pending(cpu("other", 500).priority(5));
    let (placed, failed) = bench.attempt(&mut scheduling).unwrap().into_parts();
    assert_eq!((placed.len(), failed.len()), (0, 1), "{taken:?}");
    assert_eq!(bench.place(&other), Some(Place::Unschedulable));

    // Another scheduler, which may overcommit nodes, binds the nominated pod.
    put(Event::add_pod(cpu("high", 800).priority(9).on("small").build()));
    bench.queue.tend(bench.clock());
    assert_ne!(bench.place(&other), Some(Place::Unschedulable));
}
