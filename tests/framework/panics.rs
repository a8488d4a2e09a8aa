//! Panicking plugins: only the attempt is lost.

use std::cmp::Ordering as Order;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use portolan::cache::{Chunk, Cluster, Config, Engine, Event, Freed, NodeInfo};
use portolan::model::{Generation, Name, Pod, PodBuilder, PodGroup, Timestamp, Uid, node, pod};
use portolan::plugin::{
    Bind, ClusterEvent, Code, Cycle, DefaultPreemption, Diagnosis, Eviction, Feasible, Filter,
    Handle, Hint, Measurement, NodeResourcesFit, Nomination, Permit, Plugin, PluginInfo, Point,
    PreFilter, PreFlight, PreScore, QueuedPod, Reads, Recorder, Score, ScoredNodes, Status,
    default_plugin,
};
use portolan::scheduler::queue::{PopError, QueueConfig, QueueFront, SchedulingQueue};
use portolan::scheduler::{FilterCheck, InMemoryBinder, InMemoryEvictor};
use portolan::{
    Algorithm, AlgorithmConfig, Binder, BinderError, Evictor, Failure, FitError, Framework,
    Profiles, SchedulingLoop,
};
use portolan_testkit::in_tree;
use portolan_testkit::plugin;

const GI: i64 = 1 << 30;

/// The point at which the plugin, or a component that it calls, panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    PreEnqueue,
    Compare,
    SortKey,
    Hint,
    PreFilter,
    Reads,
    Extend,
    AddPod,
    RemovePod,
    Filter,
    Reasons,
    Resolvable,
    AfterFilter,
    PostFilter,
    PreScore,
    NeedsNormalize,
    Score,
    Normalize,
    Reserve,
    Unreserve,
    Permit,
    Waits,
    PreFlight,
    PreBind,
    Bind,
    PostBind,
    Binder,
    Evictor,
    Recorder,
}

const ALL: [At; 29] = [
    At::PreEnqueue,
    At::Compare,
    At::SortKey,
    At::Hint,
    At::PreFilter,
    At::Reads,
    At::Extend,
    At::AddPod,
    At::RemovePod,
    At::Filter,
    At::Reasons,
    At::Resolvable,
    At::AfterFilter,
    At::PostFilter,
    At::PreScore,
    At::NeedsNormalize,
    At::Score,
    At::Normalize,
    At::Reserve,
    At::Unreserve,
    At::Permit,
    At::Waits,
    At::PreFlight,
    At::PreBind,
    At::Bind,
    At::PostBind,
    At::Binder,
    At::Evictor,
    At::Recorder,
];

impl At {
    /// Returns whether the plugin is only called there if the pod fits on no node.
    fn needs_full_cluster(self) -> bool {
        matches!(
            self,
            At::Reads
                | At::Extend
                | At::RemovePod
                | At::Reasons
                | At::Resolvable
                | At::PostFilter
                | At::Evictor
        )
    }

    /// Returns whether members of a pod group reach the point: they do not preempt, and are decided on a fork without
    /// nominated pods.
    fn is_reached_by_gangs(self) -> bool {
        !matches!(
            self,
            At::Hint
                | At::Reads
                | At::Extend
                | At::RemovePod
                | At::Resolvable
                | At::PostFilter
                | At::Evictor
        )
    }

    /// Returns the step that should be reported as the one that panicked.
    fn step(self) -> &'static str {
        match self {
            At::Compare | At::SortKey => "QueueSort",
            At::Hint => "QueueingHint",
            At::AddPod => "PreFilterExtensionAddPod",
            At::RemovePod => "PreFilterExtensionRemovePod",
            At::Extend => "PreFilterExtension",
            At::Filter | At::Reads | At::Reasons | At::Resolvable => "Filter",
            At::NeedsNormalize => "PreScore",
            At::Normalize => "ScoreExtensionNormalize",
            At::Waits => "Permit",
            At::PreFlight => "PreBindPreFlight",
            At::Binder => "Bind",
            At::Evictor => "PostFilter",
            At::PreEnqueue => "PreEnqueue",
            At::PreFilter => "PreFilter",
            At::AfterFilter => "AfterFilter",
            At::PostFilter => "PostFilter",
            At::PreScore => "PreScore",
            At::Score => "Score",
            At::Reserve => "Reserve",
            At::Unreserve => "Unreserve",
            At::Permit => "Permit",
            At::PreBind => "PreBind",
            At::Bind => "Bind",
            At::PostBind => "PostBind",
            At::Recorder => "record",
        }
    }

    /// Returns the plugin that should be reported as the one that panicked.
    fn plugin(self) -> &'static str {
        match self {
            At::Binder => "DefaultBinder",
            At::Evictor => "DefaultPreemption",
            At::Recorder => "Recorder",
            _ => "Bomb",
        }
    }
}

/// A plugin that panics at one point for pods of one name, while it is armed.
#[derive(Clone)]
struct Bomb {
    at: At,
    armed: Arc<AtomicBool>,
}

impl Bomb {
    fn is_armed(&self, at: At) -> bool {
        self.at == at && self.armed.load(Ordering::Relaxed)
    }

    fn touch(&self, at: At, name: &str) {
        assert!(!(self.is_armed(at) && name.starts_with("boom")), "boom at {at:?}");
    }
}

impl Plugin for Bomb {
    fn info(&self) -> PluginInfo {
        let points: &[Point] = match self.at {
            At::Compare | At::SortKey => &Point::ALL,
            _ => &[
                Point::PreEnqueue,
                Point::PreFilter,
                Point::Filter,
                Point::PostFilter,
                Point::PreScore,
                Point::Score,
                Point::Reserve,
                Point::Permit,
                Point::PreBind,
                Point::Bind,
                Point::PostBind,
            ],
        };
        PluginInfo::new("Bomb", points).after_filter()
    }

    fn pre_enqueue(&self, pod: &Pod) -> Result<(), Status> {
        self.touch(At::PreEnqueue, &pod.name);
        Ok(())
    }

    fn compare(&self, one: &QueuedPod, other: &QueuedPod) -> Order {
        self.touch(At::Compare, &one.pod.name);
        self.touch(At::Compare, &other.pod.name);
        in_tree("PrioritySort").compare(one, other)
    }

    fn sort_key(&self, pod: &QueuedPod) -> Option<[i64; 2]> {
        self.touch(At::SortKey, &pod.pod.name);
        if self.at == At::SortKey { in_tree("PrioritySort").sort_key(pod) } else { None }
    }

    fn queueing_hint(&self, pod: &Pod, _: &ClusterEvent<'_>, _: &Cluster) -> Result<Hint, Status> {
        self.touch(At::Hint, &pod.name);
        Ok(Hint::Queue)
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        self.touch(At::PreFilter, &cycle.pod.name);
        let part = Part { bomb: self.clone(), pod: cycle.pod.name.clone() };
        Ok(PreFilter::Filter(Box::new(part)))
    }

    fn after_filter(
        &self,
        cycle: Cycle<'_>,
        _: &Feasible<'_>,
        _: &Diagnosis<'_>,
    ) -> Result<(), Status> {
        self.touch(At::AfterFilter, &cycle.pod.name);
        Ok(())
    }

    fn post_filter(&self, cycle: Cycle<'_>, _: &Diagnosis<'_>) -> (Nomination, Option<Status>) {
        self.touch(At::PostFilter, &cycle.pod.name);
        (
            Nomination::Keep,
            Some(Status::new(Code::Unschedulable, "Bomb", "preemption does not help")),
        )
    }

    fn pre_score<'a>(
        &'a self,
        cycle: Cycle<'a>,
        _: &'a Feasible<'a>,
    ) -> Result<PreScore<'a>, Status> {
        self.touch(At::PreScore, &cycle.pod.name);
        let part = Part { bomb: self.clone(), pod: cycle.pod.name.clone() };
        Ok(PreScore::Score(Box::new(part)))
    }

    fn reserve(&self, cycle: Cycle<'_>, _: &Name) -> Result<(), Status> {
        self.touch(At::Reserve, &cycle.pod.name);
        Ok(())
    }

    fn unreserve(&self, cycle: Cycle<'_>, _: &Name) {
        self.touch(At::Unreserve, &cycle.pod.name);
    }

    fn permit(&self, cycle: Cycle<'_>, _: &Name) -> Result<Permit, Status> {
        self.touch(At::Permit, &cycle.pod.name);
        let is_boom = cycle.pod.name.starts_with("boom");
        if is_boom && self.is_armed(At::Unreserve) {
            return Err(Status::new(Code::Unschedulable, "Bomb", "permit denied"));
        }
        Ok(match is_boom && self.is_armed(At::Waits) {
            true => Permit::Wait(Duration::from_secs(1)),
            false => Permit::Allow,
        })
    }

    fn waits(&self, cycle: Cycle<'_>) {
        self.touch(At::Waits, &cycle.pod.name);
    }

    fn pre_bind_pre_flight(&self, cycle: Cycle<'_>, _: &Name) -> Result<PreFlight, Status> {
        self.touch(At::PreFlight, &cycle.pod.name);
        Ok(PreFlight::Work)
    }

    fn pre_bind(&self, cycle: Cycle<'_>, _: &Name) -> Result<(), Status> {
        self.touch(At::PreBind, &cycle.pod.name);
        Ok(())
    }

    fn bind(&self, cycle: Cycle<'_>, _: &Name) -> Result<Bind, Status> {
        self.touch(At::Bind, &cycle.pod.name);
        Ok(Bind::Skip)
    }

    fn post_bind(&self, cycle: Cycle<'_>, _: &Name) {
        self.touch(At::PostBind, &cycle.pod.name);
    }
}

/// The filter and the scorer of a [`Bomb`].
struct Part {
    bomb: Bomb,
    pod: Name,
}

impl Filter for Part {
    fn filter(&self, _: NodeInfo<'_>) -> Option<Status> {
        self.bomb.touch(At::Filter, &self.pod);
        let rejects = self.bomb.is_armed(At::Hint) || self.bomb.is_armed(At::Resolvable);
        let rejects = rejects || self.bomb.is_armed(At::Reasons);
        rejects.then(|| Status::new(Code::Unschedulable, "Bomb", "the bomb is armed"))
    }

    fn only_reason(&self) -> Option<&'static str> {
        self.bomb.touch(At::Reasons, &self.pod);
        None
    }

    fn reads(&self) -> Reads {
        self.bomb.touch(At::Reads, &self.pod);
        Reads::Anything
    }

    fn extend<'s>(&'s self) -> Option<Box<dyn Filter + 's>> {
        self.bomb.touch(At::Extend, &self.pod);
        Some(Box::new(Part { bomb: self.bomb.clone(), pod: self.pod.clone() }))
    }

    fn add_pod(&mut self, _: &Pod, _: NodeInfo<'_>) -> Result<(), Status> {
        self.bomb.touch(At::AddPod, &self.pod);
        Ok(())
    }

    fn remove_pod(&mut self, _: &Pod, _: NodeInfo<'_>) -> Result<(), Status> {
        self.bomb.touch(At::RemovePod, &self.pod);
        Ok(())
    }

    fn resolvable(&self, _: &Cluster, _: &Chunk, rejected: u64) -> u64 {
        self.bomb.touch(At::Resolvable, &self.pod);
        rejected
    }
}

impl Score for Part {
    fn score(&self, _: NodeInfo<'_>) -> Result<i64, Status> {
        self.bomb.touch(At::Score, &self.pod);
        Ok(50)
    }

    fn needs_normalize(&self) -> bool {
        self.bomb.touch(At::NeedsNormalize, &self.pod);
        true
    }

    fn normalize(&self, _: &ScoredNodes<'_>, _: &mut [i64]) -> Result<(), Status> {
        self.bomb.touch(At::Normalize, &self.pod);
        Ok(())
    }
}

/// An in-memory binder that touches the bomb first.
struct After<T>(Bomb, T);

impl Binder for After<InMemoryBinder> {
    fn bind(&self, pod: &Pod, node: &Name) -> Result<(), BinderError> {
        self.0.touch(At::Binder, &pod.name);
        self.1.bind(pod, node)
    }
}

impl Evictor for After<InMemoryEvictor> {
    fn evict(&self, eviction: Eviction) {
        self.0.touch(At::Evictor, &eviction.preemptor().name);
        self.1.evict(eviction);
    }
}

impl Recorder for Bomb {
    fn record(&self, _: Measurement, _: Duration) {
        self.touch(At::Recorder, "boom");
    }
}

/// An engine, its queue and one scheduling loop, with a bomb among the plugins.
struct Bench {
    engine: Engine,
    handle: Handle,
    queue: Arc<QueueFront>,
    scheduling: SchedulingLoop,
    bomb: Bomb,
    now: Arc<AtomicI64>,
}

fn framework(bomb: &Bomb, handle: &Handle) -> Framework {
    let mut plugins: Vec<(Box<dyn Plugin>, i64)> = vec![
        (Box::new(bomb.clone()), 1),
        (Box::new(NodeResourcesFit::default()), 1),
        (default_plugin("GangScheduling", handle).unwrap(), 0),
        (Box::new(DefaultPreemption::new(handle)), 0),
        (default_plugin("DefaultBinder", handle).unwrap(), 0),
    ];
    if !matches!(bomb.at, At::Compare | At::SortKey) {
        plugins.push((in_tree("PrioritySort"), 0));
    }
    let framework = Framework::new(plugins).unwrap().with_handle(handle.clone());
    match bomb.at {
        At::Recorder => framework.with_recorder(Arc::new(bomb.clone()), 1),
        _ => framework,
    }
}

impl Bench {
    fn new(at: At) -> Bench {
        let bomb = Bomb { at, armed: Arc::default() };
        let shared = Handle::default();
        let check = FilterCheck::new(Profiles::one(Arc::new(framework(&bomb, &shared))));
        let config = Config { commit_check: check.into(), ..Config::default() };
        let engine = Engine::shared(config);
        let handle = shared
            .with_binder(Arc::new(After(bomb.clone(), InMemoryBinder::new(engine.clone()))))
            .with_evictor(Arc::new(After(bomb.clone(), InMemoryEvictor::new(engine.clone()))));
        let queue = SchedulingQueue::new(framework(&bomb, &handle), QueueConfig::default());
        let (follower, reader) = (engine.follow().unwrap(), engine.reader().unwrap());
        let queue = Arc::new(QueueFront::new(queue, follower, reader));
        let config = AlgorithmConfig { percentage_of_nodes: 100, seed: 1 };
        let scheduler = Algorithm::new(framework(&bomb, &handle), config, None);
        let scheduling =
            SchedulingLoop::new(engine.clone(), queue.clone(), Profiles::one(scheduler)).unwrap();
        let now = Arc::new(AtomicI64::new(1_000));
        Bench { engine, handle, queue, scheduling, bomb, now }
    }

    fn clock(&self) -> impl Fn() -> Timestamp + use<> {
        let now = self.now.clone();
        move || Timestamp::from_secs(now.load(Ordering::Relaxed))
    }

    fn submit(&self, event: Event) {
        self.engine.submit(event).unwrap().wait().unwrap().unwrap();
    }

    fn node(&self, name: &str, cpu: i64) {
        let node = node(name).hostname().cpu(cpu).memory(64 * GI).build();
        self.submit(Event::AddNode(Arc::new(node)));
    }

    fn pending(&self, pod: PodBuilder) {
        self.submit(Event::PutPending(Arc::new(pod.memory(GI).build())));
    }

    /// Schedules and binds pods until none is ready, and returns the errors of failed attempts. Fails if a panic
    /// escapes from the loop.
    fn settle(&mut self) -> Vec<String> {
        let mut failed = Vec::new();
        for _ in 0..20 {
            let clock = self.clock();
            let attempt = catch_unwind(AssertUnwindSafe(|| {
                self.scheduling.schedule_one(Some(Instant::now()), &clock)
            }));
            let attempt = attempt.unwrap_or_else(|_| {
                panic!("the panic at {:?} escaped from the loop", self.bomb.at)
            });
            let (placed, unplaced) = match attempt {
                Ok(attempt) => attempt.into_parts(),
                Err(PopError::Timeout) => break,
                Err(error) => panic!("{error}"),
            };
            failed.extend(unplaced.into_iter().map(|failure| failure.error.to_string()));
            for placement in &placed {
                // The clock is past the deadline of the pod's permit.
                let late = || Timestamp(clock().0 + 2_000_000_000);
                let bound = catch_unwind(AssertUnwindSafe(|| {
                    self.scheduling.bind(placement, late).map_err(|(error, _)| error.to_string())
                }));
                let bound = bound.unwrap_or_else(|_| {
                    panic!("the panic at {:?} escaped from bind", self.bomb.at)
                });
                failed.extend(bound.err());
            }
        }
        failed
    }

    fn names(&self) -> Vec<String> {
        let snapshot = self.engine.reader().unwrap().snapshot();
        let pods = snapshot.nodes().flat_map(|node| node.pods().collect::<Vec<_>>());
        let mut names: Vec<String> = pods.map(|pod| pod.name().to_string()).collect();
        names.sort();
        names
    }
}

/// Schedules a pod for which the plugin panics at this point, beside other pods, and checks the outcome of all.
fn survives(at: At, gang: bool) {
    let case = format!("{at:?}, gang: {gang}");
    let mut bench = Bench::new(at);
    bench.node("n0", 1_000);
    bench.pending(pod("low").cpu(600));
    assert_eq!(bench.settle(), [""; 0], "{case}");
    let is_full = at.needs_full_cluster();
    if !is_full {
        bench.node("n1", 4_000);
        bench.node("n2", 4_000);
    }
    if at == At::AddPod {
        // All other pods yield to this one.
        let nominated = pod("nominated").cpu(100).priority(1_000).build();
        bench.handle.nominator().add(nominated, "n1".into());
    }
    bench.bomb.armed.store(true, Ordering::Relaxed);
    if gang {
        bench.submit(Event::PutObject(PodGroup::new("default", "g", 2).into()));
        for name in ["boom-0", "calm-1"] {
            bench.pending(pod(name).cpu(600).priority(10).group("g"));
        }
    } else {
        bench.pending(pod("boom").cpu(600).priority(10));
    }
    bench.pending(pod("other").cpu(100));
    let mut failed = bench.settle();
    // A change that may help, so that hints run.
    bench.node("n3", 8_000);
    bench.now.fetch_add(20, Ordering::Relaxed);
    failed.extend(bench.settle());

    // Other pods were scheduled in the meantime, unless the point stops all of them.
    let stopped_all = matches!(at, At::Hint | At::Reasons | At::Resolvable);
    let names = bench.names();
    assert!(stopped_all || names.iter().any(|name| name == "other"), "{case}: {names:?}");
    let panics = bench.handle.panics().clone();
    if !gang || at.is_reached_by_gangs() {
        let reported = panics.latest().into_iter().find(|panic| panic.plugin == at.plugin());
        let reported = reported.unwrap_or_else(|| panic!("{case}: no panic was reported"));
        assert_eq!(reported.text, format!("boom at {at:?}"), "{case}");
        assert!(at == At::Recorder || reported.step == at.step(), "{case}: {reported}");
    }
    // No pod stays assumed or in flight.
    let snapshot = bench.engine.reader().unwrap().snapshot();
    assert_eq!(snapshot.assumed_count(), 0, "{case}");
    let figures = bench.queue.with(|queue, _| queue.figures());
    assert_eq!((figures.in_flight, figures.binding), (0, 0), "{case}");

    // Once the plugin no longer panics, all pods that it delayed are scheduled.
    bench.bomb.armed.store(false, Ordering::Relaxed);
    bench.handle.nominator().remove(&Uid::new("default/nominated"));
    bench.node("n4", 8_000);
    for _ in 0..3 {
        bench.now.fetch_add(60, Ordering::Relaxed);
        bench.settle();
    }
    let mut wanted = match gang {
        true => vec!["boom-0", "calm-1", "other"],
        false => vec!["boom", "other"],
    };
    // The low pod may have been preempted, if the plugin allowed it.
    if bench.names().iter().any(|name| name == "low") {
        wanted.insert(wanted.len() - 1, "low");
    }
    assert_eq!(bench.names(), wanted, "{case}: {failed:?}");
    let snapshot = bench.engine.reader().unwrap().snapshot();
    assert_eq!(snapshot.assumed_count(), 0, "{case}");
    let differences = bench.engine.with_writer(|writer| writer.cluster().audit()).unwrap();
    assert!(differences.is_empty(), "{case}: {differences:?}");
}

/// Tests each point separately, so that a failure does not hide the others.
fn survive_all(gang: bool) {
    let failed = ALL.into_iter().filter(|at| catch_unwind(|| survives(*at, gang)).is_err());
    let failed: Vec<At> = failed.collect();
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn a_panic_at_any_point_loses_no_pod_and_is_reported() {
    survive_all(false);
}

#[test]
fn a_panic_at_any_point_loses_no_pod_of_a_gang() {
    survive_all(true);
}

#[test]
fn a_panic_in_the_commit_check_only_refuses_the_placement() {
    let bomb = Bomb { at: At::Filter, armed: Arc::new(AtomicBool::new(true)) };
    let handle = Handle::default();
    let check = FilterCheck::new(Profiles::one(Arc::new(framework(&bomb, &handle))));
    let config = Config { commit_check: check.into(), ..Config::default() };
    let engine = Engine::shared(config);
    engine.submit(Event::add_node(node("n").cpu(1_000).build())).unwrap().wait().unwrap().unwrap();
    let assume = |name: &str| {
        let pod = Arc::new(pod(name).cpu(100).build().on("n"));
        let event = Event::assume(pod).decided_on(Generation::ZERO);
        engine.submit(event).unwrap().wait().unwrap()
    };
    let refused = assume("boom").unwrap_err().to_string();
    assert!(refused.contains("panicked in Filter: boom at Filter"), "{refused}");
    assume("calm").unwrap();
    assert_eq!(handle.panics().count(), 1);
}

#[test]
fn a_panic_on_a_pool_thread_is_an_error_of_the_cycle() {
    let (mut writer, reader) = Engine::inline(Config::default());
    for n in 0..5_000 {
        writer.add_node(node(format!("n{n}")).cpu(1_000).build()).unwrap();
    }
    writer.publish();
    for at in [At::Filter, At::Score, At::Normalize] {
        let bomb = Bomb { at, armed: Arc::new(AtomicBool::new(true)) };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let config = AlgorithmConfig { percentage_of_nodes: 100, seed: 1 };
        let framework = framework(&bomb, &Handle::default());
        let mut scheduler = Algorithm::new(framework, config, Some(Arc::new(pool)));
        let boom = pod("boom").cpu(100).build();
        let error = scheduler.schedule(&reader.snapshot(), &boom).unwrap_err().to_string();
        assert!(error.contains("\"Bomb\""), "{error}");
        assert!(error.contains(&format!("panicked in {}: boom at {at:?}", at.step())), "{error}");
        bomb.armed.store(false, Ordering::Relaxed);
        scheduler.schedule(&reader.snapshot(), &boom).unwrap();
    }
}

/// A plugin that rejects nodes named "bad", and panics once, in one of its methods.
struct Once {
    at: &'static str,
    armed: AtomicBool,
}

struct OnceFilter<'a>(&'a Once);

impl Once {
    fn pass(&self, at: &str) {
        assert!(self.at != at || !self.armed.swap(false, Ordering::Relaxed), "once");
    }
}

impl Plugin for Once {
    plugin!("Once", PreFilter, Filter);

    fn pre_filter<'a>(&'a self, _: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        Ok(PreFilter::Filter(Box::new(OnceFilter(self))))
    }
}

impl Filter for OnceFilter<'_> {
    fn filter(&self, node: NodeInfo<'_>) -> Option<Status> {
        let is_bad = node.name().starts_with("bad");
        is_bad.then(|| Status::new(Code::Unschedulable, "Once", "bad"))
    }

    fn only_reason(&self) -> Option<&'static str> {
        self.0.pass("reasons");
        None
    }

    fn reads(&self) -> Reads {
        Reads::Amounts
    }

    fn filter_without(&self, node: NodeInfo<'_>, _: &Freed<'_>) -> Option<Status> {
        self.0.pass("filter_without");
        self.filter(node)
    }

    fn passes_without(&self, _: NodeInfo<'_>, _: &Freed<'_>) -> bool {
        self.0.pass("passes_without");
        true
    }

    fn resolvable(&self, _: &Cluster, _: &Chunk, rejected: u64) -> u64 {
        self.0.pass("resolvable");
        rejected
    }
}

/// The outcome of one decision with full nodes of these names.
struct Outcome {
    error: Failure,
    panics: Vec<String>,
    pods: usize,
}

impl Outcome {
    fn fit(&self) -> &FitError {
        let Failure::Fit(fit) = &self.error else { panic!("{}", self.error) };
        fit
    }
}

fn decided_once(at: &'static str, names: &[String]) -> Outcome {
    let engine = Engine::shared(Config::default());
    for name in names {
        let node = node(name.clone()).cpu(1_000).memory(1 << 30).pods(10).build();
        engine.submit(Event::add_node(node)).unwrap().wait().unwrap().unwrap();
        let low = pod(format!("low-{name}")).cpu(900).on(name.clone()).build();
        engine.submit(Event::add_pod(low)).unwrap().wait().unwrap().unwrap();
    }
    let handle = Handle::default().with_evictor(Arc::new(InMemoryEvictor::new(engine.clone())));
    let plugins: Vec<(Box<dyn Plugin>, i64)> = vec![
        (Box::new(Once { at, armed: AtomicBool::new(true) }), 0),
        (Box::new(NodeResourcesFit::default()), 1),
        (Box::new(DefaultPreemption::new(&handle)), 0),
    ];
    let framework = Framework::new(plugins).unwrap().with_handle(handle.clone());
    let config = AlgorithmConfig { percentage_of_nodes: 100, seed: 1 };
    let reader = engine.reader().unwrap();
    let wanted = pod("p").cpu(500).priority(10).build();
    let decided = Algorithm::new(framework, config, None).schedule(&reader.snapshot(), &wanted);
    let panics = handle.panics().latest().iter().map(ToString::to_string).collect();
    Outcome { error: decided.unwrap_err(), panics, pods: reader.snapshot().pod_count() }
}

fn bad(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("bad{n}")).collect()
}

fn full() -> Vec<String> {
    vec!["full".to_owned()]
}

#[test]
fn a_panic_while_counting_reasons_hides_no_plugin() {
    let left = decided_once("reasons", &[bad(64), full()].concat());
    let plugins: Vec<&str> = left.fit().unschedulable_plugins.iter().copied().collect();
    assert_eq!(plugins, ["NodeResourcesFit", "Once"]);
    assert_eq!(left.panics.len(), 1, "{:?}", left.panics);
}

#[test]
fn a_panic_on_one_node_does_not_prevent_preemption_on_another() {
    let left = decided_once("resolvable", &[bad(1), full()].concat());
    assert_eq!(left.fit().nomination, Nomination::Node("full".into()));
    assert_eq!((left.panics.len(), left.pods), (1, 1), "{:?}", left.panics);
}

#[test]
fn a_panic_in_a_dry_run_by_amounts_preempts_no_pod_on_a_rejected_node() {
    let left = decided_once("filter_without", &bad(2));
    assert_eq!(left.fit().nomination, Nomination::Clear);
    assert_eq!((left.panics.len(), left.pods), (1, 2), "{:?}", left.panics);
}

#[test]
fn a_panic_while_reprieving_a_victim_keeps_it_a_victim() {
    let left = decided_once("passes_without", &full());
    assert_eq!(left.fit().nomination, Nomination::Node("full".into()));
    assert_eq!((left.panics.len(), left.pods), (1, 0), "{:?}", left.panics);
}

/// A plugin whose filters and scores panic when they are dropped.
struct DropsBadly(&'static str);

impl Plugin for DropsBadly {
    plugin!(self => self.0, Filter, Score);

    fn pre_filter<'a>(&'a self, _: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        Ok(PreFilter::Filter(Box::new(Fragile)))
    }

    fn pre_score<'a>(&'a self, _: Cycle<'a>, _: &'a Feasible<'a>) -> Result<PreScore<'a>, Status> {
        Ok(PreScore::Score(Box::new(Fragile)))
    }
}

struct Fragile;

impl Filter for Fragile {
    fn filter(&self, _: NodeInfo<'_>) -> Option<Status> {
        None
    }
}

impl Score for Fragile {
    fn score(&self, _: NodeInfo<'_>) -> Result<i64, Status> {
        Ok(0)
    }
}

impl Drop for Fragile {
    fn drop(&mut self) {
        panic!("dropping panics");
    }
}

#[test]
fn filters_and_scores_that_panic_when_dropped_do_not_affect_the_decision() {
    let (mut writer, _) = Engine::inline(Config::default());
    for name in ["n", "m"] {
        writer.add_node(node(name).cpu(1_000).build()).unwrap();
    }
    let plugins: Vec<(Box<dyn Plugin>, i64)> = vec![
        (Box::new(DropsBadly("First")), 1),
        (Box::new(NodeResourcesFit::default()), 1),
        (Box::new(DropsBadly("Second")), 1),
    ];
    let framework = Arc::new(Framework::new(plugins).unwrap());
    let mut algorithm = Algorithm::new(framework.clone(), AlgorithmConfig::default(), None);
    let decision = algorithm.schedule(writer.cluster(), &pod("p").cpu(100).build()).unwrap();
    assert_eq!(decision.feasible, 2);
    let latest = framework.handle().panics().latest();
    let mut panicked: Vec<_> = latest.iter().map(|panic| (panic.step, panic.plugin)).collect();
    panicked.sort_unstable();
    let expected = ["Filter", "Score"].map(|step| [(step, "First"), (step, "Second")]);
    assert_eq!(panicked, expected.as_flattened());
}
