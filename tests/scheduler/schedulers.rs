//! Schedulers from one builder: engine, commit check, queue, profiles, binder and evictor.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use portolan::cache::{Chunk, Cluster, CommitPolicy, Config, Engine, Event, NodeInfo};
use portolan::model::{
    EventError, LabelSelector, Labels, Name, Pod, PodAffinity, PodAffinityTerm, PodBuilder, Taint,
    TaintEffect, Timestamp, node, pod,
};
use portolan::plugin::{Cycle, Filter, Handle, Plugin, Point, PreFilter, Status, default_plugins};
use portolan::scheduler::queue::{PopError, QueueError};
use portolan::scheduler::{InMemoryBinder, InMemoryEvictor};
use portolan::{
    Algorithm, AlgorithmConfig, Attempt, Binder, BinderError, BuildError, Framework,
    FrameworkError, Profiles, Scheduler, Schedulers, SchedulingLoop,
};
use portolan_testkit::plugin;

fn clock() -> Timestamp {
    Timestamp::from_secs(1)
}

fn add_node(engine: &Engine, name: &str) {
    let node = node(name).cpu(1_000).memory(1 << 30).pods(110).build();
    engine.submit(Event::add_node(node)).unwrap().wait().unwrap().unwrap();
}

fn put(engine: &Engine, pod: Pod) {
    engine.submit(Event::put_pending(pod)).unwrap().wait().unwrap().unwrap();
}

fn drain(scheduling: &mut SchedulingLoop) -> usize {
    let mut bound = 0;
    loop {
        match scheduling.schedule_one(Some(Instant::now()), clock) {
            Ok(Attempt::Placed(placement)) => {
                scheduling.bind(&placement, clock).map_err(|(error, _)| error).unwrap();
                bound += 1;
            }
            Ok(_) => {}
            Err(PopError::Timeout) => return bound,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn schedulers_on_two_threads_do_not_overcommit_a_node() {
    const ROOM: usize = 40;
    let schedulers = Schedulers::builder().build().unwrap();
    let engine = schedulers.engine();
    for at in 0..4 {
        add_node(engine, &format!("n{at}"));
    }
    for at in 0..2 * ROOM {
        put(engine, pod(format!("p{at}")).cpu(100).build());
    }
    let bound: usize = std::thread::scope(|scope| {
        let threads = [0, 1].map(|_| {
            let mut scheduling = schedulers.scheduling_loop().unwrap();
            scope.spawn(move || drain(&mut scheduling))
        });
        threads.map(|thread| thread.join().unwrap()).into_iter().sum()
    });
    let snapshot = engine.reader().unwrap().snapshot();
    assert_eq!((bound, snapshot.pod_count()), (ROOM, ROOM));
    assert!(snapshot.nodes().all(|node| node.requested().cpu.0 == 1_000));
}

#[test]
fn each_loop_begins_in_a_section_of_its_own_and_the_last_one_has_all_nodes() {
    let algorithm = AlgorithmConfig { percentage_of_nodes: 10, ..AlgorithmConfig::default() };
    let schedulers = Schedulers::builder().algorithm(algorithm).build().unwrap();
    let engine = schedulers.engine();
    for at in 0..600 {
        add_node(engine, &format!("n{at}"));
    }
    let place = |scheduling: &mut SchedulingLoop, pods: usize| {
        for _ in 0..pods {
            // The pod fills a node.
            let name = engine.figures().unwrap().published.to_string();
            put(engine, pod(name).cpu(1_000).build());
        }
        let (batch, mut positions) = (NonZeroUsize::new(16).unwrap(), Vec::new());
        while let Ok(attempts) = scheduling.schedule_batch(batch, Some(Instant::now()), clock) {
            for attempt in attempts {
                let Attempt::Placed(placement) = attempt else { panic!("not placed") };
                positions.push(placement.node()[1..].parse::<usize>().unwrap());
                scheduling.bind(&placement, clock).map_err(|(error, _)| error).unwrap();
            }
        }
        assert_eq!(positions.len(), pods);
        positions
    };
    let mut first = schedulers.scheduling_loop().unwrap();
    let mut second = schedulers.scheduling_loop().unwrap();
    // A turn of the sections has 1,024 events, which only the last pods of this test exceed.
    assert!(place(&mut first, 20).iter().all(|at| *at < 300));
    assert!(place(&mut second, 20).iter().all(|at| *at >= 300));
    let mut third = schedulers.scheduling_loop().unwrap();
    assert!(place(&mut second, 10).iter().all(|at| (200..400).contains(at)));
    assert!(place(&mut third, 10).iter().all(|at| *at >= 400));
    // The next loop takes the place of one that has ended.
    drop(first);
    assert!(place(&mut second, 10).iter().all(|at| *at < 300));
    let mut fourth = schedulers.scheduling_loop().unwrap();
    assert!(place(&mut fourth, 10).iter().all(|at| *at < 200));
    drop((second, third));
    let rest = place(&mut fourth, 520);
    assert!(rest.iter().any(|at| *at < 300) && rest.iter().any(|at| *at >= 300));
}

/// A plugin that lives as long as its framework.
struct Flag(#[expect(dead_code, reason = "counted, not read")] Arc<()>);

impl Plugin for Flag {
    plugin!("Flag");
}

fn with_flag(handle: &Handle, flag: Arc<()>) -> Result<Framework, FrameworkError> {
    let mut plugins = default_plugins(handle);
    plugins.push((Box::new(Flag(flag)), 0));
    Framework::new(plugins)
}

#[test]
fn everything_is_freed_with_the_last_handle() {
    let alive = Arc::new(());
    let flag: Weak<()> = Arc::downgrade(&alive);
    let builder = Schedulers::builder();
    let schedulers = builder.profile("mine", |handle| with_flag(handle, alive)).build().unwrap();
    let engine = schedulers.engine();
    add_node(engine, "n1");
    let wanted = pod("p").scheduler_name("mine").cpu(100).build();
    put(engine, wanted);
    let mut scheduling = schedulers.scheduling_loop().unwrap();
    assert_eq!(drain(&mut scheduling), 1);
    let weak = engine.downgrade();
    drop((scheduling, schedulers));
    assert!(weak.upgrade().is_none(), "the engine is kept alive by its own parts");
    assert_eq!(flag.strong_count(), 0, "the framework is kept alive");
}

#[test]
fn pods_of_other_schedulers_are_not_queued() {
    let schedulers = Schedulers::builder().build().unwrap();
    let engine = schedulers.engine();
    add_node(engine, "n1");
    let other = pod("p").scheduler_name("other").build();
    put(engine, other);
    assert_eq!(drain(&mut schedulers.scheduling_loop().unwrap()), 0);
}

#[test]
fn an_unchecked_engine_has_one_scheduler_at_a_time() {
    let config = || Config { commit_check: CommitPolicy::Unchecked, ..Config::default() };
    let schedulers = Schedulers::builder().config(config()).build().unwrap();
    let first = schedulers.scheduling_loop().unwrap();
    assert!(matches!(schedulers.scheduling_loop(), Err(BuildError::Unchecked)));
    drop(first);
    schedulers.scheduling_loop().unwrap();

    // Without the builder, through a clone and a weak handle.
    let engine = Engine::shared(config());
    let scheduler = || {
        let framework = Framework::default_profile();
        Profiles::one(Algorithm::new(framework, AlgorithmConfig::default(), None))
    };
    let _first = Scheduler::new(engine.clone(), scheduler()).unwrap();
    let again = engine.downgrade().upgrade().unwrap();
    let refused = Scheduler::new(again, scheduler());
    assert!(matches!(refused, Err(BuildError::Unchecked)));
}

#[test]
fn placements_are_checked_by_the_filters_of_their_profile() {
    let schedulers = Schedulers::builder().build().unwrap();
    let engine = schedulers.engine();
    let tainted = node("n1").cpu(1_000).memory(1 << 30).taint(Taint {
        key: "only".into(),
        value: "others".into(),
        effect: TaintEffect::NoSchedule,
    });
    engine.submit(Event::add_node(tainted.build())).unwrap().wait().unwrap().unwrap();
    let placed = pod("p").cpu(100).build().on("n1");
    let refused = engine.submit(Event::assume(placed)).unwrap().wait().unwrap();
    assert!(matches!(refused, Err(EventError::Conflict { .. })), "{refused:?}");
}

#[test]
fn a_builder_fills_the_handle_and_uses_its_config() {
    let schedulers = Schedulers::builder().build().unwrap();
    for framework in schedulers.profiles().iter() {
        let handle = framework.handle();
        assert!(handle.binder().is_some() && handle.volume_binder().is_some());
        assert!(handle.evictor().is_some() && handle.snapshot().is_some());
    }
    let zero = Config { sweep_period: Some(Duration::ZERO), ..Config::default() };
    assert!(Schedulers::builder().config(zero).build().is_ok(), "a loop sweeps once a millisecond");
}

#[test]
fn a_binder_of_ones_own_has_no_evictor_or_volume_binder_in_memory() {
    /// Binds pods somewhere else.
    struct Elsewhere;

    impl Binder for Elsewhere {
        fn bind(&self, _: &Pod, _: &Name) -> Result<(), BinderError> {
            Ok(())
        }
    }

    let refused = Schedulers::builder().binder(|_| Elsewhere).build();
    assert!(matches!(refused, Err(BuildError::NoEvictor(name)) if *name == *"default-scheduler"));
    // A profile that preempts no pods needs no evictor.
    let calm = |handle: &Handle| {
        let none: [&str; 0] = [];
        Framework::default_profile_with(handle).with_plugins_at(Point::PostFilter, &none)
    };
    let builder = Schedulers::builder().binder(|_| Elsewhere).profile("calm", calm);
    for framework in builder.build().unwrap().profiles().iter() {
        let handle = framework.handle();
        assert!(handle.evictor().is_none() && handle.volume_binder().is_none());
    }
}

#[test]
fn a_waiting_loop_frees_the_resources_of_expired_pods() {
    let assumed_ttl = Some(Duration::from_secs(30));
    let config = Config { assumed_ttl, ..Config::default() };
    let schedulers = Schedulers::builder().config(config).build().unwrap();
    let engine = schedulers.engine();
    add_node(engine, "n1");
    let lost = pod("lost").cpu(800).build().on("n1");
    for event in [
        Event::assume(lost.clone()),
        Event::finish_binding(&lost.uid, clock()),
        Event::put_pending(pod("next").cpu(800).build()),
    ] {
        engine.submit(event).unwrap().wait().unwrap().unwrap();
    }
    let mut scheduling = schedulers.scheduling_loop().unwrap();
    let mut schedule = |seconds| {
        let deadline = Instant::now() + Duration::from_secs(60);
        scheduling.schedule_one(Some(deadline), || Timestamp::from_secs(seconds)).unwrap()
    };
    assert!(matches!(schedule(1), Attempt::Failed(_)));
    let attempt = schedule(60);
    assert!(matches!(&attempt, Attempt::Placed(_)), "{attempt:?}");
}

#[test]
fn a_pod_added_during_the_build_is_queued() {
    let builder = Schedulers::builder().binder(|engine| {
        let engine = engine.upgrade().expect("the engine exists while it is built");
        put(&engine, pod("early").cpu(100).build());
        InMemoryBinder::new(engine)
    });
    let schedulers = builder.evictor(|engine| InMemoryEvictor::from(engine)).build().unwrap();
    add_node(schedulers.engine(), "n1");
    assert_eq!(drain(&mut schedulers.scheduling_loop().unwrap()), 1);
}

#[test]
fn a_profile_that_fails_for_its_own_reason_fails_the_build_with_it() {
    let broken = |_: &Handle| Err(FrameworkError::Other("line 3: no such plugin".to_owned()));
    let failed = Schedulers::builder().profile("a", broken).build();
    assert_eq!(failed.unwrap_err().to_string(), "profile \"a\": line 3: no such plugin");
}

#[test]
fn build_errors_are_typed() {
    let default = |handle: &Handle| Ok(Framework::default_profile_with(handle));
    let twice = Schedulers::builder().profile("a", default).profile("a", default).build();
    assert!(matches!(twice, Err(BuildError::Duplicate(name)) if *name == *"a"));
    let empty = Schedulers::builder().profile("a", |_| Framework::new(Vec::new())).build();
    assert!(matches!(empty, Err(BuildError::Queue(QueueError::NoQueueSort { .. }))));
    let broken = |handle: &Handle| {
        let twice = [default_plugins(handle), default_plugins(handle)];
        Framework::new(twice.into_iter().flatten().collect())
    };
    let broken = Schedulers::builder().profile("a", broken).build();
    assert!(matches!(
        broken,
        Err(BuildError::Framework { error: FrameworkError::Duplicate(_), .. })
    ));
}

/// A function that is called once.
type Beside = Box<dyn FnOnce() + Send>;

/// A local plugin that counts the nodes that are examined alone, as a commit check does, and that calls a function once,
/// during the first decision.
#[derive(Clone, Default)]
struct CountsChecks {
    checks: Arc<AtomicU64>,
    beside: Arc<Mutex<Option<Beside>>>,
}

impl Plugin for CountsChecks {
    plugin!("CountsChecks", PreFilter, Filter; .local());

    fn treats_template_alike(&self, _: &Pod, _: &Cluster) -> bool {
        true
    }

    fn pre_filter<'a>(&'a self, _: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        let beside = self.beside.lock().unwrap().take();
        if let Some(beside) = beside {
            beside();
        }
        Ok(PreFilter::Filter(Box::new(self.clone())))
    }
}

impl Filter for CountsChecks {
    fn filter(&self, _: NodeInfo<'_>) -> Option<Status> {
        self.checks.fetch_add(1, Ordering::Relaxed);
        None
    }

    fn filter_chunk(&self, _: &Cluster, _: &Chunk, mask: u64) -> Result<u64, Status> {
        Ok(mask)
    }
}

/// Schedulers of a cluster with a node in each of the zones `a` and `b`, which have separate chunks. Both nodes are in
/// one region.
fn two_zones(plugin: &CountsChecks) -> Schedulers {
    let own = plugin.clone();
    let profile = move |handle: &Handle| {
        let mut plugins = default_plugins(handle);
        plugins.push((Box::new(own), 0));
        Framework::new(plugins)
    };
    let schedulers = Schedulers::builder().profile("default-scheduler", profile).build().unwrap();
    for zone in ["a", "b"] {
        let node = node(zone).zone(zone).label("region", "r").hostname();
        let node = node.cpu(1_000).memory(1 << 30).pods(110).build();
        schedulers.engine().submit(Event::add_node(node)).unwrap().wait().unwrap().unwrap();
    }
    schedulers
}

/// A pod that only the node in this zone can run.
fn pod_in(zone: &str, name: impl Into<Name>) -> PodBuilder {
    pod(name).cpu(100).node_selector(Labels::new([("kubernetes.io/hostname", zone)]))
}

impl CountsChecks {
    /// Adds a pod during the first decision.
    fn add_beside(&self, engine: &Engine, pod: Pod) {
        let engine = engine.clone();
        *self.beside.lock().unwrap() = Some(Box::new(move || {
            engine.submit(Event::add_pod(pod)).unwrap().wait().unwrap().unwrap();
        }));
    }

    /// Returns the number of checks. The pod must have been added.
    fn checks(&self) -> u64 {
        assert!(self.beside.lock().unwrap().is_none(), "no event came in between");
        self.checks.load(Ordering::Relaxed)
    }
}

#[test]
fn a_batch_beside_other_events_is_checked_only_in_the_chunks_that_they_changed() {
    let plugin = CountsChecks::default();
    let schedulers = two_zones(&plugin);
    let engine = schedulers.engine();
    for (at, zone) in ["a", "a", "a", "b"].into_iter().enumerate() {
        put(engine, pod_in(zone, format!("p{at}")).build());
    }
    plugin.add_beside(engine, pod("beside").cpu(100).on("b").build());
    let mut scheduling = schedulers.scheduling_loop().unwrap();
    let batch = NonZeroUsize::new(4).unwrap();
    let attempts = scheduling.schedule_batch(batch, Some(Instant::now()), clock).unwrap();
    assert!(attempts.iter().all(|attempt| matches!(attempt, Attempt::Placed(_))));
    assert_eq!(attempts.len(), 4);
    assert_eq!(plugin.checks(), 1);
    assert_eq!(engine.with_writer(|writer| writer.cluster().audit()).unwrap(), vec![]);
}

#[test]
fn a_pod_beside_another_event_is_checked_only_if_the_event_changed_its_chunk() {
    for (zone, checks) in [("a", 0), ("b", 1)] {
        let plugin = CountsChecks::default();
        let schedulers = two_zones(&plugin);
        put(schedulers.engine(), pod_in(zone, "p").build());
        plugin.add_beside(schedulers.engine(), pod("beside").cpu(100).on("b").build());
        let mut scheduling = schedulers.scheduling_loop().unwrap();
        let attempt = scheduling.schedule_one(Some(Instant::now()), clock).unwrap();
        assert!(matches!(attempt, Attempt::Placed(_)), "{attempt:?}");
        assert_eq!(plugin.checks(), checks);
    }
}

#[test]
fn a_pod_is_refused_for_an_event_in_another_chunk_that_a_filter_reads() {
    let plugin = CountsChecks::default();
    let schedulers = two_zones(&plugin);
    put(schedulers.engine(), pod_in("a", "p").label("app", "x").build());
    let term = PodAffinityTerm {
        topology_key: "region".into(),
        selector: LabelSelector::from_labels([("app", "x")]),
        namespaces: Box::new(["default".into()]),
        namespace_selector: LabelSelector::Nothing,
    };
    let refuses = PodAffinity { required: Box::new([term]), ..PodAffinity::default() };
    plugin
        .add_beside(schedulers.engine(), pod("beside").pod_anti_affinity(refuses).on("b").build());
    let mut scheduling = schedulers.scheduling_loop().unwrap();
    let attempt = scheduling.schedule_one(Some(Instant::now()), clock).unwrap();
    assert!(matches!(attempt, Attempt::Failed(..)), "{attempt:?}");
    assert!(plugin.checks() <= 1, "the event came in during the first decision");
}
