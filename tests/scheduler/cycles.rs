//! Scheduling cycles: pods are decided on, assumed, permitted and bound. Also several schedulers on one engine, gangs,
//! and what-if simulations.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::{Duration, Instant};

use portolan::cache::{Config, Engine, Event, Snapshot};
use portolan::model::{
    LabelSelector, Labels, Name, Pod, PodAffinity, PodAffinityTerm, PodBuilder, PodSpec, Quantity,
    Timestamp, Uid, node, pod,
};
use portolan::plugin::{Code, Cycle, Handle, Permit, Plugin, PreFilter, Status, default_plugin};
use portolan::scheduler::queue::{Place, QueueConfig, QueueFront, SchedulingQueue};
use portolan::scheduler::{
    BindError, BindingCycle, FilterCheck, InMemoryBinder, InMemoryEvictor, PreemptError,
};
use portolan::{
    Algorithm, AlgorithmConfig, Attempt, Binder, BinderError, Failure, Framework, Placement,
    Profiles, Scheduler, SchedulingLoop, WhatIf,
};
use portolan_testkit::draw::Draw;
use portolan_testkit::in_tree;
use portolan_testkit::plugin;
use proptest::prelude::*;

const GI: i64 = 1 << 30;
const ZONE: &str = "topology.kubernetes.io/zone";

/// Creates an engine that checks commits, and the handle of its schedulers.
pub(super) fn engine(nodes: usize, cpu: i64) -> (Engine, Handle) {
    let shared = Handle::default();
    let framework = Arc::new(Framework::default_profile_with(&shared));
    let check = FilterCheck::new(Profiles::one(framework));
    let engine = Engine::shared(Config { commit_check: check.into(), ..Config::default() });
    for n in 0..nodes {
        let zone = format!("z{}", n % 3);
        let node = node(format!("n{n}")).hostname().zone(zone).cpu(cpu).memory(64 * GI);
        engine.submit(Event::add_node(node.build())).unwrap().wait().unwrap().unwrap();
    }
    let handle = shared
        .with_binder(Arc::new(InMemoryBinder::new(engine.clone())))
        .with_evictor(Arc::new(InMemoryEvictor::new(engine.clone())));
    (engine, handle)
}

fn scheduler_of(engine: &Engine, framework: Framework, seed: u64) -> Scheduler {
    let config = AlgorithmConfig { percentage_of_nodes: 100, seed };
    let scheduler = Algorithm::new(framework, config, None);
    Scheduler::new(engine.clone(), Profiles::one(scheduler)).unwrap()
}

pub(super) fn scheduler(engine: &Engine, handle: &Handle, seed: u64) -> Scheduler {
    scheduler_of(engine, Framework::default_profile_with(handle), seed)
}

pub(super) fn now() -> Timestamp {
    Timestamp::from_secs(1)
}

pub(super) fn cpu(name: impl Into<Name>, cpu: i64) -> PodBuilder {
    pod(name).cpu(cpu).memory(GI)
}

pub(super) fn snapshot(engine: &Engine) -> Arc<Snapshot> {
    engine.reader().unwrap().snapshot()
}

fn overcommitted(engine: &Engine) -> Vec<String> {
    let snapshot = snapshot(engine);
    let over = snapshot.nodes().filter(|node| node.requested().cpu > node.allocatable().cpu);
    over.map(|node| node.name().to_string()).collect()
}

#[test]
fn a_pod_is_assumed_then_bound_then_confirmed() {
    let (engine, handle) = engine(3, 4_000);
    let mut scheduler = scheduler(&engine, &handle, 1);
    let pod = Arc::new(cpu("a", 100).build());
    let placement = scheduler.schedule(&pod, now()).unwrap();
    assert_eq!(snapshot(&engine).assumed_count(), 1);
    let mut binding = BindingCycle::new(engine.clone()).unwrap();
    binding.run(&placement, now).unwrap();
    let after = snapshot(&engine);
    assert_eq!((after.assumed_count(), after.pod_count()), (0, 1));
    assert_eq!(after.pod(&pod.uid).unwrap().node().name(), placement.node());
    let again = scheduler.schedule(&pod, now()).unwrap_err();
    assert!(matches!(again, Failure::Refused(_)), "{again}");
}

#[test]
fn a_pod_that_cannot_be_bound_is_forgotten() {
    let (engine, shared) = engine(1, 4_000);
    let refusing = InMemoryBinder::new(engine.clone()).refusing(|_, _| Some("no".to_owned()));
    let handle = shared.with_binder(Arc::new(refusing));
    let mut scheduler = scheduler(&engine, &handle, 1);
    let placement = scheduler.schedule(&Arc::new(cpu("a", 100).build()), now()).unwrap();
    let error = BindingCycle::new(engine.clone()).unwrap().run(&placement, now).unwrap_err();
    let BindError::Failed(status) = error else { panic!("{error}") };
    assert!(status.message().ends_with("no"), "{}", status.message());
    assert_eq!(snapshot(&engine).pod_count(), 0);
}

/// A binder that records its calls and answers each binding with one error.
struct Recording {
    calls: Mutex<Vec<&'static str>>,
    nominates: Result<(), BinderError>,
    binds: Result<(), BinderError>,
}

impl Recording {
    fn new(nominates: Result<(), BinderError>, binds: Result<(), BinderError>) -> Arc<Recording> {
        Arc::new(Recording { calls: Mutex::new(Vec::new()), nominates, binds })
    }

    fn calls(&self) -> Vec<&'static str> {
        self.calls.lock().unwrap().clone()
    }
}

impl Binder for Recording {
    fn bind(&self, _: &Pod, _: &Name) -> Result<(), BinderError> {
        self.calls.lock().unwrap().push("bind");
        self.binds.clone()
    }

    fn nominate(&self, _: &Pod, _: &Name) -> Result<(), BinderError> {
        self.calls.lock().unwrap().push("nominate");
        self.nominates.clone()
    }
}

#[test]
fn a_pod_stays_assumed_if_its_binding_is_unknown_and_is_forgotten_after_a_conflict_or_a_refusal() {
    let text = |why: &str| format!("running Bind plugin \"DefaultBinder\": {why}");
    for (error, expected, assumed) in [
        (BinderError::Unknown("lost".into()), BindError::Unknown(text("lost")), 1),
        (BinderError::Conflict("gone".into()), BindError::Conflict(text("gone")), 0),
        (BinderError::Refused("theirs".into()), BindError::Refused(text("theirs")), 0),
    ] {
        let (engine, shared) = engine(1, 4_000);
        let binder = Recording::new(Ok(()), Err(error));
        let handle = shared.with_binder(binder.clone());
        let mut scheduler = scheduler(&engine, &handle, 1);
        let placement = scheduler.schedule(&Arc::new(cpu("a", 100).build()), now()).unwrap();
        let mut binding = BindingCycle::new(engine.clone()).unwrap();
        assert_eq!(binding.run(&placement, now), Err(expected));
        assert_eq!(snapshot(&engine).assumed_count(), assumed);
        assert_eq!(binder.calls(), ["bind"], "nothing delays the binding, so nothing is announced");
    }
}

#[test]
fn the_node_is_announced_before_a_pod_waits_and_a_failed_announcement_ends_the_cycle() {
    let refused = BinderError::Failed("no".into());
    for (nominates, calls, pods) in
        [(Ok(()), &["nominate", "bind"][..], 1), (Err(refused), &["nominate"][..], 0)]
    {
        let (engine, shared) = engine(1, 4_000);
        let binder = Recording::new(nominates, Ok(()));
        let handle = shared.with_binder(binder.clone());
        let (framework, undone) = slow(true, &handle);
        let mut scheduler = scheduler_of(&engine, framework, 1);
        let placement = scheduler.schedule(&Arc::new(cpu("a", 100).build()), now()).unwrap();
        handle.waiting_pods().get(&placement.pod.uid).unwrap().allow("Slow");
        let bound = BindingCycle::new(engine.clone()).unwrap().run(&placement, now);
        assert_eq!((bound.is_ok(), binder.calls()), (pods == 1, calls.to_vec()));
        assert_eq!(
            (snapshot(&engine).pod_count(), undone.load(Ordering::Relaxed)),
            (pods, 1 - pods)
        );
    }
}

/// A plugin that lets pods wait, or rejects them at Reserve.
struct Slow {
    reserves: bool,
    undone: Arc<AtomicUsize>,
}

impl Plugin for Slow {
    plugin!("Slow", Reserve, Permit);

    fn reserve(&self, _: Cycle<'_>, _: &Name) -> Result<(), Status> {
        match self.reserves {
            true => Ok(()),
            false => {
                Err(Status::new(portolan::plugin::Code::Unschedulable, "Slow", "no units remain"))
            }
        }
    }

    fn unreserve(&self, _: Cycle<'_>, _: &Name) {
        self.undone.fetch_add(1, Ordering::Relaxed);
    }

    fn permit(&self, _: Cycle<'_>, _: &Name) -> Result<Permit, Status> {
        Ok(Permit::Wait(Duration::from_secs(10)))
    }
}

fn slow(reserves: bool, handle: &Handle) -> (Framework, Arc<AtomicUsize>) {
    let undone = Arc::new(AtomicUsize::new(0));
    let slow = Slow { reserves, undone: undone.clone() };
    let plugins: Vec<(Box<dyn Plugin>, i64)> = vec![
        (Box::new(slow), 0),
        (Box::new(portolan::plugin::NodeResourcesFit::default()), 1),
        (default_plugin("DefaultBinder", handle).unwrap(), 0),
    ];
    (Framework::new(plugins).unwrap().with_handle(handle.clone()), undone)
}

#[test]
fn a_rejection_by_reserve_is_undone_and_names_the_plugin() {
    let (engine, handle) = engine(2, 4_000);
    let (framework, undone) = slow(false, &handle);
    let mut scheduler = scheduler_of(&engine, framework, 1);
    let error = scheduler.schedule(&Arc::new(cpu("a", 100).build()), now()).unwrap_err();
    let fit = error.fit().expect("a rejection");
    assert_eq!(fit.to_string(), "0/1 nodes are available: 1 no units remain.");
    assert!(fit.unschedulable_plugins.contains("Slow"));
    assert_eq!((undone.load(Ordering::Relaxed), snapshot(&engine).pod_count()), (1, 0));
}

#[test]
fn a_pod_waits_for_its_permit_until_its_deadline() {
    let (engine, handle) = engine(2, 4_000);
    let (framework, undone) = slow(true, &handle);
    let mut scheduler = scheduler_of(&engine, framework, 1);
    let mut binding = BindingCycle::new(engine.clone()).unwrap();
    let mut place = |name: &str| {
        let placement = scheduler.schedule(&Arc::new(cpu(name, 100).build()), now()).unwrap();
        assert!(placement.waits);
        placement
    };
    let (first, second) = (place("a"), place("b"));
    let at = |seconds| Timestamp::from_secs(seconds);
    assert_eq!(BindingCycle::is_permitted(&first, at(2)), None);
    handle.waiting_pods().get(&first.pod.uid).unwrap().allow("Slow");
    assert_eq!(BindingCycle::is_permitted(&first, at(2)), Some(true));
    binding.run(&first, || at(2)).unwrap();
    assert_eq!(BindingCycle::is_permitted(&second, at(11)), Some(false));
    let error = binding.run(&second, || at(11)).unwrap_err();
    assert!(matches!(error, BindError::Rejected(_)), "{error}");
    assert_eq!((undone.load(Ordering::Relaxed), snapshot(&engine).pod_count()), (1, 1));
}

/// Both pods have anti-affinity in their zone, and were decided on the same version, for different nodes of one zone.
#[test]
fn the_second_of_two_exclusive_placements_conflicts() {
    let (engine, handle) = engine(6, 4_000);
    let lonely = |name: &str| {
        let term = PodAffinityTerm {
            topology_key: ZONE.into(),
            selector: LabelSelector::from_labels([("app", "lonely")]),
            namespaces: Box::new(["default".into()]),
            namespace_selector: LabelSelector::Nothing,
        };
        let apart = PodAffinity { required: Box::new([term]), ..PodAffinity::default() };
        cpu(name, 100).label("app", "lonely").pod_anti_affinity(apart).build()
    };
    let before = snapshot(&engine).generation();
    let assume = |pod: Pod, node: &str| {
        let event = portolan::cache::Event::assume(pod.on(node)).decided_on(before);
        engine.submit(event).unwrap().wait().unwrap()
    };
    assert!(assume(lonely("a"), "n0").is_ok());
    let conflict = assume(lonely("b"), "n3").unwrap_err();
    assert!(
        matches!(&conflict, portolan::model::EventError::Conflict { node, .. } if **node == *"n3"),
        "{conflict}"
    );
    assert!(assume(lonely("c"), "n1").is_ok(), "another zone");
    // A scheduler decides on the current version, and finds the remaining zone.
    let placed = scheduler(&engine, &handle, 1).schedule(&Arc::new(lonely("d")), now()).unwrap();
    assert!(["n2", "n5"].contains(&&**placed.node()), "{}", placed.node());
}

#[test]
fn several_schedulers_never_overcommit_a_node() {
    let (engine, handle) = engine(8, 2_000);
    let conflicts: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                // All schedulers break ties in the same way, so that they conflict.
                let mut scheduler = scheduler(&engine, &handle, 7);
                scope.spawn(move || {
                    for n in 0..10 {
                        let pod = cpu(format!("p{thread}-{n}"), 400).build();
                        scheduler.schedule(&Arc::new(pod), now()).unwrap().keep_assumed();
                    }
                    scheduler.figures().conflicts
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    println!("{conflicts} conflicts");
    assert_eq!(overcommitted(&engine), [""; 0]);
    // All nodes are full: five pods of 400m on each of eight nodes.
    assert_eq!(snapshot(&engine).pod_count(), 40);
    let more = scheduler(&engine, &handle, 1).schedule(&Arc::new(cpu("more", 400).build()), now());
    assert!(more.unwrap_err().fit().is_some());
}

fn members(count: usize, size: i64) -> Vec<Arc<Pod>> {
    (0..count).map(|n| Arc::new(cpu(format!("member-{n}"), size).build())).collect()
}

#[test]
fn a_gang_is_placed_completely_or_not_at_all() {
    let (engine, handle) = engine(3, 1_000);
    let mut scheduler = scheduler(&engine, &handle, 1);
    let error = scheduler.schedule_gang(&members(4, 800), 4, now()).unwrap_err();
    assert!(matches!(error, Failure::TooFew { found: 3, wanted: 4, .. }), "{error}");
    assert_eq!(snapshot(&engine).pod_count(), 0);
    let error = scheduler.schedule_gang(&members(2, 800), 4, now()).unwrap_err();
    assert_eq!(error, Failure::Incomplete(2, 4));
    let gang = scheduler.schedule_gang(&members(4, 800), 3, now()).unwrap();
    assert_eq!((gang.placed.len(), gang.left_over.len()), (3, 1));
    assert_eq!(snapshot(&engine).assumed_count(), 3);
    assert_eq!(overcommitted(&engine), [""; 0]);
}

/// A plugin that reserves for all pods except one.
struct Picky;

impl Plugin for Picky {
    plugin!("Picky", Reserve);

    fn reserve(&self, cycle: Cycle<'_>, _: &Name) -> Result<(), Status> {
        match &*cycle.pod.name == "member-2" {
            true => Err(Status::new(
                portolan::plugin::Code::Unschedulable,
                "Picky",
                "the pod is not accepted",
            )),
            false => Ok(()),
        }
    }
}

#[test]
fn a_gang_is_placed_without_a_failed_member_if_enough_remain() {
    let (engine, handle) = engine(8, 1_000);
    let framework = || {
        let mut plugins = portolan::plugin::default_plugins(&handle);
        plugins.push((Box::new(Picky), 0));
        Framework::new(plugins).unwrap().with_handle(handle.clone())
    };
    let mut scheduler = scheduler_of(&engine, framework(), 1);
    let error = scheduler.schedule_gang(&members(8, 800), 8, now()).unwrap_err();
    let Failure::Member { position: 2, name, .. } = &error else { panic!("{error}") };
    assert_eq!((&**name, snapshot(&engine).pod_count()), ("default/member-2", 0));
    assert!(error.to_string().starts_with("pod \"default/member-2\": "), "{error}");

    let gang = scheduler.schedule_gang(&members(8, 800), 7, now()).unwrap();
    assert_eq!((gang.placed.len(), gang.left_over.len(), gang.left_over[0].0), (7, 1, 2));
    let left = snapshot(&engine);
    assert_eq!(left.assumed_count(), 7);
    assert!(left.nodes().all(|node| node.pods().all(|pod| pod.name() != "member-2")));
}

#[test]
fn a_gang_fails_if_a_required_member_cannot_be_reserved() {
    let (engine, handle) = engine(3, 1_000);
    let (framework, undone) = slow(false, &handle);
    let error =
        scheduler_of(&engine, framework, 1).schedule_gang(&members(3, 800), 3, now()).unwrap_err();
    assert!(matches!(error, Failure::Member { position: 0, .. }), "{error}");
    assert_eq!((undone.load(Ordering::Relaxed), snapshot(&engine).pod_count()), (3, 0));
}

#[test]
fn gangs_of_two_schedulers_are_never_split() {
    let (engine, handle) = engine(5, 1_000);
    let placed: Vec<usize> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|thread| {
                let mut scheduler = scheduler(&engine, &handle, 7);
                scope.spawn(move || {
                    let pods: Vec<Arc<Pod>> = (0..3)
                        .map(|n| Arc::new(cpu(format!("g{thread}-{n}"), 800).build()))
                        .collect();
                    let gang = scheduler.schedule_gang(&pods, 3, now());
                    let placed = gang.into_iter().flat_map(|gang| gang.placed);
                    placed.map(Placement::keep_assumed).collect::<Vec<_>>().len()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(placed.iter().sum::<usize>(), 3, "{placed:?}");
    assert_eq!(snapshot(&engine).pod_count(), 3);
}

#[test]
fn simulations_do_not_change_the_engine() {
    let (engine, _) = engine(2, 1_000);
    let add = |pod: PodBuilder, node: &str| {
        engine.submit(Event::add_pod(pod.on(node).build())).unwrap().wait().unwrap().unwrap();
    };
    add(cpu("low", 800).priority(1).label("app", "low"), "n0");
    add(cpu("high", 800).priority(8), "n1");
    let before = snapshot(&engine);
    let framework = Arc::new(Framework::default_profile());
    let what_if = || WhatIf::new(&before, framework.clone(), AlgorithmConfig::default());

    let mut asked = what_if();
    let small: Vec<Pod> = (0..3).map(|n| cpu(format!("s{n}"), 150).build()).collect();
    assert!(asked.can_schedule(&small[0]).is_ok());
    let negative = cpu("negative", -10).build();
    assert!(matches!(asked.can_schedule(&negative), Err(Failure::Refused(_))), "as by the engine");
    let placed: Vec<_> = small.iter().map(|pod| asked.schedule(pod)).collect();
    assert_eq!(placed.iter().filter(|it| it.is_ok()).count(), 2);
    assert!(asked.schedule(&cpu("s3", 150).build()).is_err());
    assert_eq!(what_if().fit_more(&small[0], 10).into_values().sum::<usize>(), 2);

    // Preempt, and undo it.
    let mut asked = what_if();
    let wants = cpu("wants", 900).priority(5).build();
    let tried: Result<(), &str> = asked.transaction(|inner| {
        let candidate = inner.preempt(&wants).unwrap();
        assert_eq!((&*candidate.node, candidate.victims.len()), ("n0", 1));
        assert_eq!(inner.pod_count(), 2);
        Err("undo")
    });
    assert_eq!(tried, Err("undo"));
    assert_eq!(asked.pod_count(), 2);
    assert!(asked.pod(&wants.uid).is_none());
    assert!(matches!(asked.preempt(&small[0]), Err(PreemptError::Fits)));
    let weak = cpu("weak", 900).priority(0).build();
    assert!(matches!(asked.preempt(&weak), Err(PreemptError::NoCandidate(_))));
    assert_eq!(before.pod_count(), 2);
}

/// A plugin that changes the engine whenever a pod is decided on.
struct Meddles(Engine);

impl Plugin for Meddles {
    plugin!("Meddles", PreFilter);

    fn pre_filter<'a>(&'a self, _: Cycle<'a>) -> Result<portolan::plugin::PreFilter<'a>, Status> {
        let node = node("other").unschedulable(true).build();
        self.0.submit(Event::update_node(node)).unwrap().wait().unwrap().unwrap();
        Ok(portolan::plugin::PreFilter::Skip)
    }
}

struct Never;

impl portolan::cache::CommitCheck for Never {
    fn check(&self, _: &portolan::cache::Cluster, _: &Pod, _: &str) -> Result<(), String> {
        Err("never".to_owned())
    }
}

#[test]
fn a_check_that_always_refuses_ends_in_an_error() {
    let config = Config { commit_check: Never.into(), ..Config::default() };
    let engine = Engine::shared(config);
    engine
        .submit(Event::add_node(node("n").cpu(4_000).memory(GI).build()))
        .unwrap()
        .wait()
        .unwrap()
        .unwrap();
    let plugins: Vec<(Box<dyn Plugin>, i64)> =
        vec![(Box::new(Meddles(engine.clone())), 0), (in_tree("NodeUnschedulable"), 0)];
    let mut scheduler = scheduler_of(&engine, Framework::new(plugins).unwrap(), 1);
    let error = scheduler.schedule(&Arc::new(cpu("p", 100).build()), now()).unwrap_err();
    assert!(matches!(error, Failure::Refused(_)), "{error}");
    assert!(error.to_string().contains("never"), "{error}");
    let error = scheduler.schedule_gang(&members(2, 100), 2, now()).unwrap_err();
    assert!(error.to_string().contains("never"), "{error}");
    assert_eq!((scheduler.figures().conflicts, snapshot(&engine).pod_count()), (128, 0));
}

/// The placements that the driver has yet to bind.
#[derive(Default)]
struct Flight(Vec<Placement>);

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Random schedules of several schedulers with failing binds, deletions, expiries and conflicts.
    #[test]
    fn no_pod_is_lost_or_bound_twice_and_no_node_overcommitted(
        steps in prop::collection::vec((0..8_u8, 0..6_usize), 1..80),
        seed in any::<u64>(),
    ) {
        let (engine, shared) = engine(4, 1_000);
        let fails = Arc::new(AtomicUsize::new(0));
        let failing = fails.clone();
        let binder = InMemoryBinder::new(engine.clone()).refusing(move |_, _| {
            (failing.load(Ordering::Relaxed) == 1).then(|| "the cluster is away".to_owned())
        });
        let handle = shared.with_binder(Arc::new(binder));
        let mut schedulers = [scheduler(&engine, &handle, seed), scheduler(&engine, &handle, seed ^ 1)];
        let mut binding = BindingCycle::new(engine.clone()).unwrap();
        let mut flight = Flight::default();
        let (mut created, mut bound) = (0, Vec::new());
        for (step, with) in steps {
            match step {
                0..4 => {
                    let size = [100, 200, 400, 700, 900, 1_000][with];
                    let pod = Arc::new(cpu(format!("p{created}"), size).build());
                    created += 1;
                    match schedulers[with % 2].schedule(&pod, now()) {
                        Ok(placement) => flight.0.push(placement),
                        Err(Failure::Fit(_)) => {}
                        Err(error) => prop_assert!(false, "{error}"),
                    }
                }
                4 | 5 if !flight.0.is_empty() => {
                    let placement = flight.0.remove(with % flight.0.len());
                    fails.store(usize::from(step == 5), Ordering::Relaxed);
                    let done = binding.run(&placement, now);
                    prop_assert_eq!(done.is_ok(), step == 4);
                    let there = snapshot(&engine).pod(&placement.pod.uid).is_some();
                    prop_assert_eq!(there, step == 4);
                    if there {
                        bound.push(placement.pod.clone());
                    }
                }
                6 if !bound.is_empty() => {
                    let pod = bound.remove(with % bound.len());
                    engine.submit(Event::remove_pod(&pod)).unwrap().wait().unwrap().unwrap();
                }
                7 => {
                    let pods: Vec<Arc<Pod>> = (0..3)
                        .map(|n| Arc::new(cpu(format!("g{created}-{n}"), 300).build()))
                        .collect();
                    created += 1;
                    let before = snapshot(&engine).assumed_count();
                    let placed = schedulers[with % 2].schedule_gang(&pods, 3, now());
                    let after = snapshot(&engine).assumed_count();
                    prop_assert_eq!(after - before, if placed.is_ok() { 3 } else { 0 });
                    flight.0.extend(placed.into_iter().flat_map(|gang| gang.placed));
                }
                _ => {}
            }
            prop_assert_eq!(overcommitted(&engine), Vec::<String>::new());
            let now = snapshot(&engine);
            prop_assert_eq!(now.assumed_count(), flight.0.len());
            prop_assert_eq!(now.pod_count(), flight.0.len() + bound.len());
        }
    }
}

/// Creates a scheduler whose pods wait for the plugin Slow, and that preempts.
fn patient(engine: &Engine, handle: &Handle) -> Scheduler {
    let slow = Slow { reserves: true, undone: Arc::default() };
    let plugins: Vec<(Box<dyn Plugin>, i64)> = vec![
        (in_tree("PrioritySort"), 0),
        (Box::new(slow), 0),
        (Box::new(portolan::plugin::NodeResourcesFit::default()), 1),
        (Box::new(portolan::plugin::DefaultPreemption::new(handle)), 0),
        (default_plugin("DefaultBinder", handle).unwrap(), 0),
    ];
    scheduler_of(engine, Framework::new(plugins).unwrap().with_handle(handle.clone()), 1)
}

#[test]
fn scheduling_within_the_writer_is_refused_and_assumes_nothing() {
    let (engine, handle) = engine(1, 1_000);
    let mut scheduler = patient(&engine, &handle);
    let pod = Arc::new(cpu("a", 100).build());
    let placed = engine.with_writer(|_| scheduler.schedule(&pod, now())).unwrap();
    assert_eq!(placed.unwrap_err(), Failure::OwnThread);
    let gang = engine
        .with_writer(|_| scheduler.schedule_gang(std::slice::from_ref(&pod), 1, now()))
        .unwrap();
    assert!(gang.is_err());
    assert_eq!(snapshot(&engine).pod_count(), 0);
    let placement = scheduler.schedule(&pod, now()).unwrap();
    handle.waiting_pods().get(&pod.uid).unwrap().allow("Slow");
    let mut binding = BindingCycle::new(engine.clone()).unwrap();
    let bound = engine.with_writer(|_| binding.run(&placement, now)).unwrap();
    assert_eq!(bound.unwrap_err(), BindError::OwnThread);
    assert_eq!(snapshot(&engine).assumed_count(), 1, "the pod is bound later");
    binding.run(&placement, now).unwrap();
}

/// Creates a scheduling loop with its queue, whose pods wait for the plugin Slow.
fn waiting_loop(engine: &Engine, handle: &Handle, plugin: impl Plugin + 'static) -> SchedulingLoop {
    let mut plugin = Some(plugin);
    let framework = |plugin: Option<Box<dyn Plugin>>| {
        let plugin =
            plugin.unwrap_or_else(|| Box::new(Slow { reserves: true, undone: Arc::default() }));
        let plugins: Vec<(Box<dyn Plugin>, i64)> = vec![
            (in_tree("PrioritySort"), 0),
            (plugin, 0),
            (Box::new(portolan::plugin::NodeResourcesFit::default()), 1),
            (default_plugin("DefaultBinder", handle).unwrap(), 0),
        ];
        Framework::new(plugins).unwrap().with_handle(handle.clone())
    };
    let queue = SchedulingQueue::new(framework(None), QueueConfig::default());
    let (follower, reader) = (engine.follow().unwrap(), engine.reader().unwrap());
    let queue = Arc::new(QueueFront::new(queue, follower, reader));
    let plugin = plugin.take().map(|plugin| Box::new(plugin) as Box<dyn Plugin>);
    let scheduler = Algorithm::new(framework(plugin), AlgorithmConfig::default(), None);
    SchedulingLoop::new(engine.clone(), queue, Profiles::one(scheduler)).unwrap()
}

fn slowly() -> Slow {
    Slow { reserves: true, undone: Arc::default() }
}

/// Deletes the object of a pod that waits for its permit, or may already be in binding, and checks the outcome.
fn deleted_while_in_flight(is_allowed: bool, delete: impl Fn(&Engine, &Pod)) {
    let (engine, handle) = engine(1, 1_000);
    let mut scheduling = waiting_loop(&engine, &handle, slowly());
    engine.submit(Event::put_pending(cpu("a", 800).build())).unwrap().wait().unwrap().unwrap();
    let attempt = scheduling.schedule_one(Some(Instant::now()), now).unwrap();
    let Attempt::Placed(placement) = attempt else { panic!("{attempt:?}") };
    if is_allowed {
        handle.waiting_pods().get(&placement.pod.uid).unwrap().allow("Slow");
    }
    delete(&engine, &placement.pod);
    assert_eq!(snapshot(&engine).pod_count(), 0, "its resources are freed immediately");
    scheduling.queue().tend(now);
    assert_eq!(BindingCycle::is_permitted(&placement, now()), Some(is_allowed));
    let (error, place) = scheduling.bind(&placement, now).unwrap_err();
    assert_eq!(place, None, "{error}");
    assert!(handle.waiting_pods().all().is_empty());
    assert_eq!(scheduling.queue().with(|queue, _| queue.place(&placement.pod.uid)), None);
    assert_eq!(snapshot(&engine).pod_count(), 0);
}

/// Places a pod that waits for a permit nobody gives, by a clock that stands still, and binds it while `close` runs.
fn closed_while_waiting(close: impl FnOnce(&Engine, &QueueFront)) -> (BindError, usize) {
    let (engine, handle) = engine(1, 1_000);
    let mut scheduling = waiting_loop(&engine, &handle, slowly());
    engine.submit(Event::put_pending(cpu("a", 800).build())).unwrap().wait().unwrap().unwrap();
    let attempt = scheduling.schedule_one(Some(Instant::now()), now).unwrap();
    let Attempt::Placed(placement) = attempt else { panic!("{attempt:?}") };
    let queue = scheduling.queue().clone();
    let (asked, is_asked) = mpsc::channel();
    let clock = || {
        let _ = asked.send(());
        now()
    };
    let bound = std::thread::scope(|scope| {
        let bound = scope.spawn(|| scheduling.bind(&placement, clock));
        is_asked.recv().unwrap();
        close(&engine, &queue);
        bound.join().unwrap()
    });
    assert!(handle.waiting_pods().all().is_empty());
    (bound.unwrap_err().0, snapshot(&engine).pod_count())
}

#[test]
fn closing_the_queue_or_the_engine_ends_the_wait_for_a_permit() {
    assert_eq!(closed_while_waiting(|_, queue| queue.close()), (BindError::Closed, 0));
    // A closed engine forgets no pod.
    assert_eq!(closed_while_waiting(|engine, _| engine.close()), (BindError::Closed, 1));
}

/// A plugin that closes the queue during Permit, before the pod waits.
struct Closes(Arc<OnceLock<Arc<QueueFront>>>);

impl Plugin for Closes {
    plugin!("Closes", Permit);

    fn permit(&self, _: Cycle<'_>, _: &Name) -> Result<Permit, Status> {
        self.0.get().expect("set").close();
        Ok(Permit::Wait(Duration::from_secs(60)))
    }
}

#[test]
fn a_pod_that_is_placed_while_the_queue_is_closed_does_not_wait_for_its_permit() {
    let (engine, handle) = engine(1, 1_000);
    let queue = Arc::<OnceLock<_>>::default();
    let mut scheduling = waiting_loop(&engine, &handle, Closes(queue.clone()));
    queue.get_or_init(|| scheduling.queue().clone());
    engine.submit(Event::put_pending(cpu("a", 800).build())).unwrap().wait().unwrap().unwrap();
    let attempt = scheduling.schedule_one(Some(Instant::now()), now).unwrap();
    let Attempt::Placed(placement) = attempt else { panic!("{attempt:?}") };
    let (error, place) = scheduling.bind(&placement, now).unwrap_err();
    assert_eq!((error, place), (BindError::Closed, Some(Place::ErrorBackoff)));
    assert_eq!(snapshot(&engine).pod_count(), 0);
}

#[test]
fn a_pod_deleted_in_flight_frees_its_resources_and_is_woken() {
    for is_allowed in [false, true] {
        deleted_while_in_flight(is_allowed, |engine, pod| {
            engine.submit(Event::RemovePending(pod.uid.clone())).unwrap().wait().unwrap().unwrap();
        });
        deleted_while_in_flight(is_allowed, |engine, pod| {
            engine.submit(Event::remove_pod(pod)).unwrap().wait().unwrap().unwrap();
        });
    }
}

/// A plugin that deletes the pod during Permit, before the pod waits.
struct Deletes(Engine);

impl Plugin for Deletes {
    plugin!("Deletes", Permit);

    fn permit(&self, cycle: Cycle<'_>, _: &Name) -> Result<Permit, Status> {
        self.0
            .submit(Event::RemovePending(cycle.pod.uid.clone()))
            .unwrap()
            .wait()
            .unwrap()
            .unwrap();
        Ok(Permit::Wait(Duration::from_secs(600)))
    }
}

#[test]
fn a_pod_deleted_before_it_waits_does_not_wait() {
    let (engine, handle) = engine(1, 1_000);
    let mut scheduling = waiting_loop(&engine, &handle, Deletes(engine.clone()));
    engine.submit(Event::put_pending(cpu("a", 800).build())).unwrap().wait().unwrap().unwrap();
    let attempt = scheduling.schedule_one(Some(Instant::now()), now).unwrap();
    let Attempt::Placed(placement) = attempt else { panic!("{attempt:?}") };
    assert_eq!(BindingCycle::is_permitted(&placement, now()), Some(false));
    assert!(scheduling.bind(&placement, now).is_err());
    assert_eq!(snapshot(&engine).pod_count(), 0);
}

#[test]
fn a_deleted_pending_object_removes_an_assumed_pod_but_not_an_added_one() {
    let engine = Engine::shared(Config::default());
    engine
        .with_writer(|writer| {
            writer.add_node(node("n").cpu(1_000).memory(1 << 30).build()).unwrap();
            writer.assume_pod(cpu("assumed", 100).build().on("n")).unwrap();
            writer.add_pod(cpu("added", 100).build().on("n")).unwrap();
        })
        .unwrap();
    let removed = |name| {
        let ticket = engine.submit(Event::RemovePending(Uid::new(name))).unwrap();
        ticket.wait().unwrap().unwrap().removed
    };
    assert_eq!(["default/assumed", "default/added", "default/unknown"].map(removed), [1, 0, 0]);
    let snapshot = engine.reader().unwrap().snapshot();
    let names: Vec<_> = snapshot.nodes().flat_map(|node| node.pods()).collect();
    assert_eq!(names.iter().map(|pod| pod.name()).collect::<Vec<_>>(), ["added"]);
    assert!(snapshot.audit().is_empty());
}

/// A binder that binds a pod and closes the engine before it returns.
struct ClosesEngine(Engine);

impl Binder for ClosesEngine {
    fn bind(&self, _: &Pod, _: &Name) -> Result<(), BinderError> {
        self.0.close();
        Ok(())
    }
}

#[test]
fn a_pod_that_was_bound_before_the_engine_closed_is_reported_as_bound() {
    let (engine, shared) = engine(1, 1_000);
    let handle = shared.with_binder(Arc::new(ClosesEngine(engine.clone())));
    let placement =
        scheduler(&engine, &handle, 1).schedule(&Arc::new(cpu("a", 100).build()), now()).unwrap();
    assert_eq!(BindingCycle::new(engine.clone()).unwrap().run(&placement, now), Ok(()));
}

/// A plugin that records the names of the pods that are decided on.
struct Names(Arc<Mutex<Vec<Name>>>);

impl Plugin for Names {
    plugin!("Names", PreFilter);

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        self.0.lock().unwrap().push(cycle.pod.name.clone());
        Ok(PreFilter::Skip)
    }
}

#[test]
fn copies_of_a_placed_pod_have_names_of_their_own_and_fit_on_any_node() {
    let (engine, handle) = engine(2, 1_000);
    let like = cpu("web", 400).on("n0").build();
    engine.submit(Event::add_pod(like.clone())).unwrap().wait().unwrap().unwrap();
    let names = Arc::default();
    let mut plugins = portolan::plugin::default_plugins(&handle);
    plugins.push((Box::new(Names(Arc::clone(&names))), 0));
    let framework = Arc::new(Framework::new(plugins).unwrap());
    let mut what_if = WhatIf::new(&snapshot(&engine), framework, AlgorithmConfig::default());
    let fit = what_if.fit_more(&like, 10);
    assert_eq!(fit, [("n0".into(), 1), ("n1".into(), 2)].into());
    let names: Vec<String> = names.lock().unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(names, ["web-0", "web-1", "web-2", "web-3"]);
}

/// Numbers of copies that are computed from a node's free resources are those of copies placed one by one.
#[test]
fn copies_are_counted_as_they_would_be_placed() {
    let mut computed = 0;
    for seed in 0..400 {
        let mut draw = Draw::from(seed);
        let (mut writer, _) = Engine::inline(Config::default());
        for n in 0..1 + draw.below(40) as usize {
            writer.add_node(draw.node(n)).unwrap();
        }
        for n in 0..draw.below(120) as usize {
            // The engine refuses sums that are too large.
            let _ = writer.add_pod(draw.pod(n).on(format!("n{}", draw.below(40))));
        }
        let plain = |draw: &mut Draw<'_>| {
            let like = pod("like").cpu(draw.of(&[0, 1, 100, 1_000])).memory(draw.of(&[0, 1, GI]));
            let like = like.request("example.com/gpu", Quantity::whole(draw.below(3) as i64));
            let disk = draw.one_in(4).then_some(("disk", "ssd"));
            like.node_selector(Labels::new(disk)).build()
        };
        let like = if seed % 2 == 0 { draw.pod(1_000) } else { plain(&mut draw) };
        let framework = Arc::new(Framework::default_profile());
        let config = AlgorithmConfig::default();
        let mut what_if = WhatIf::new(writer.cluster(), framework, config);
        // Only computed numbers exceed the limit.
        computed += usize::from(!what_if.fit_more(&like, 0).is_empty());
        let fit = what_if.fit_more(&like, usize::MAX);
        let mut placed: BTreeMap<Name, usize> = BTreeMap::new();
        let copies = (0..).map_while(|n| {
            let (uid, name) = (Uid::new(&format!("c/{n}")), format!("c-{n}").into());
            what_if.schedule(&Pod { uid, name, node_name: None, ..like.clone() }).ok()
        });
        copies.for_each(|decided| *placed.entry(decided.node).or_default() += 1);
        assert_eq!(fit, placed, "seed {seed}: {like:?}");
    }
    assert!(computed > 100, "{computed}");
}

#[test]
fn the_member_of_the_highest_priority_is_placed_first() {
    let (engine, handle) = engine(1, 1_000);
    let low = Arc::new(cpu("low", 800).build());
    let high = Arc::new(cpu("high", 800).priority(5).build());
    let gang =
        scheduler(&engine, &handle, 1).schedule_gang(&[low, high.clone()], 1, now()).unwrap();
    let placed: Vec<&Uid> = gang.placed.iter().map(|placement| &placement.pod.uid).collect();
    assert_eq!(placed, [&high.uid]);
}

#[test]
fn a_gang_withdraws_the_nominations_of_its_members() {
    let (engine, handle) = engine(1, 1_000);
    let gang = members(2, 100);
    handle.nominator().add(Pod::clone(&gang[1]), "n0".into());
    let _ = scheduler(&engine, &handle, 1).schedule_gang(&gang, 2, now()).unwrap();
    assert_eq!(handle.nominator().node_of(&gang[1].uid), None);
}

#[test]
fn an_unsupported_member_is_named_in_the_error_of_its_gang() {
    let (engine, handle) = engine(1, 1_000);
    let claims = |spec: &mut PodSpec| spec.resource_claims = [Default::default()].into();
    let gang = [cpu("a", 100), cpu("b", 100).spec(claims)].map(|pod| Arc::new(pod.build()));
    let error = scheduler(&engine, &handle, 1).schedule_gang(&gang, 2, now()).unwrap_err();
    assert!(matches!(error, Failure::Member { position: 1, .. }), "{error}");
}

/// A plugin that lets all pods wait except `member-2`, which it rejects, and records the pods whose reservations it
/// undoes.
struct Undoes(Arc<Mutex<Vec<Name>>>);

impl Plugin for Undoes {
    plugin!("Undoes", Reserve, Permit);

    fn unreserve(&self, cycle: Cycle<'_>, _: &Name) {
        self.0.lock().unwrap().push(cycle.pod.name.clone());
    }

    fn permit(&self, cycle: Cycle<'_>, _: &Name) -> Result<Permit, Status> {
        match &*cycle.pod.name == "member-2" {
            true => Err(Status::new(Code::Unschedulable, "Undoes", "the pod is not accepted")),
            false => Ok(Permit::Wait(Duration::from_secs(600))),
        }
    }
}

#[test]
fn a_rejected_gang_is_undone_in_reverse_order_without_waiting_for_permits() {
    let (engine, handle) = engine(3, 1_000);
    let undone = Arc::default();
    let plugins: Vec<(Box<dyn Plugin>, i64)> = vec![
        (Box::new(Undoes(Arc::clone(&undone))), 0),
        (Box::new(portolan::plugin::NodeResourcesFit::default()), 1),
    ];
    let framework = Framework::new(plugins).unwrap().with_handle(handle.clone());
    let mut scheduler = scheduler_of(&engine, framework, 1);
    let (sender, outcome) = mpsc::channel();
    std::thread::spawn(move || sender.send(scheduler.schedule_gang(&members(3, 800), 3, now())));
    // The clock stands still, so no permit expires.
    let outcome = outcome.recv_timeout(Duration::from_secs(60)).expect("the gang waits");
    assert!(matches!(outcome, Err(Failure::Member { position: 2, .. })));
    let undone: Vec<String> = undone.lock().unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(undone, ["member-2", "member-1", "member-0"]);
    assert!(handle.waiting_pods().all().is_empty());
    assert_eq!(snapshot(&engine).pod_count(), 0);
}

#[test]
fn a_profile_without_gangs_schedules_the_pods_of_a_group_one_by_one() {
    let (engine, handle) = engine(1, 1_000);
    let mut scheduling = waiting_loop(&engine, &handle, slowly());
    let member = cpu("a", 100).group("unknown").build();
    engine.submit(Event::put_pending(member)).unwrap().wait().unwrap().unwrap();
    let attempt = scheduling.schedule_one(Some(Instant::now()), now).unwrap();
    assert!(matches!(attempt, Attempt::Placed(_)), "{attempt:?}");
}

#[test]
fn a_waiting_victim_is_preempted_and_an_allowed_one_is_evicted() {
    for decided in [None, Some(true), Some(false)] {
        let is_allowed = decided == Some(true);
        let (engine, handle) = engine(1, 1_000);
        let mut scheduler = patient(&engine, &handle);
        let low = scheduler.schedule(&Arc::new(cpu("low", 800).build()), now()).unwrap();
        let waiting = handle.waiting_pods().get(&low.pod.uid).unwrap();
        match decided {
            Some(true) => assert!(waiting.allow("Slow")),
            Some(false) => assert!(waiting.reject("Other", "no")),
            None => {}
        }
        let high = Arc::new(cpu("high", 800).priority(9).build());
        let error = scheduler.schedule(&high, now()).unwrap_err();
        assert_eq!(error.fit().unwrap().post_filter, None, "{error}");
        assert_eq!(&*handle.nominator().node_of(&high.uid).unwrap(), "n0");
        assert_eq!(BindingCycle::is_permitted(&low, now()), Some(is_allowed));
        // An allowed victim is asked to terminate, and a waiting one is already removed.
        assert_eq!(snapshot(&engine).pod_count(), usize::from(!is_allowed));
        let error = BindingCycle::new(engine.clone()).unwrap().run(&low, now).unwrap_err();
        // A preempted pod is tried again after its backoff, and a rejected one after an event.
        assert_eq!(matches!(error, BindError::Rejected(_)), decided == Some(false), "{error}");
        assert_eq!(snapshot(&engine).pod_count(), 0, "the node has no pods");
        assert_eq!(&**scheduler.schedule(&high, now()).unwrap().node(), "n0");
    }
}
