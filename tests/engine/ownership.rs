//! Ownership: when the last handles are dropped, everything is freed.

use std::sync::{Arc, OnceLock, Weak};

use portolan::cache::{Config, Engine, Event};
use portolan::model::{Name, Pod, PodDisruptionBudget, Timestamp, node, pod};
use portolan::plugin::{
    DefaultPreemption, Eviction, Handle, NodeResourcesFit, Plugin, PodInPreBind, PodVolumes,
    VolumeBinder, VolumeBinding, default_plugin,
};
use portolan::scheduler::queue::{QueueConfig, QueueFront, SchedulingQueue};
use portolan::scheduler::{FilterCheck, InMemoryBinder, InMemoryEvictor, InMemoryVolumeBinder};
use portolan::{
    Algorithm, AlgorithmConfig, Attempt, Binder, BinderError, Evictor, Framework, Profiles,
    SchedulingLoop,
};
use portolan_testkit::in_tree;
use portolan_testkit::plugin;

/// A plugin that lives as long as the framework.
struct Flag {
    _alive: Arc<()>,
}

impl Plugin for Flag {
    plugin!("Flag");
}

/// A binder that gets its engine after the framework was created, which is the only way for an engine and its commit
/// check to share a framework.
struct Late<T>(OnceLock<T>);

impl<T> Default for Late<T> {
    fn default() -> Late<T> {
        Late(OnceLock::new())
    }
}

impl Binder for Late<InMemoryBinder> {
    fn bind(&self, pod: &Pod, node: &Name) -> Result<(), BinderError> {
        self.0.get().ok_or("no engine")?.bind(pod, node)
    }
}

impl Evictor for Late<InMemoryEvictor> {
    fn evict(&self, eviction: Eviction) {
        if let Some(evictor) = self.0.get() {
            evictor.evict(eviction);
        }
    }
}

impl VolumeBinder for Late<InMemoryVolumeBinder> {
    fn assume(&self, volumes: &PodVolumes) -> Result<(), String> {
        self.0.get().ok_or("no engine")?.assume(volumes)
    }

    fn revert(&self, volumes: &PodVolumes) {
        if let Some(binder) = self.0.get() {
            binder.revert(volumes);
        }
    }

    fn bind(
        &self,
        pod: &Pod,
        node: &Name,
        volumes: &PodVolumes,
        timeout: std::time::Duration,
        in_pre_bind: &PodInPreBind,
    ) -> Result<(), String> {
        self.0.get().ok_or("no engine")?.bind(pod, node, volumes, timeout, in_pre_bind)
    }
}

fn now() -> Timestamp {
    Timestamp::from_secs(1)
}

/// Runs a complete scheduler around one framework until it has bound a pod, and returns weak references to the
/// framework and to an object of the engine.
fn run() -> (Weak<()>, Weak<PodDisruptionBudget>) {
    let alive = Arc::new(());
    let binder = Arc::new(Late::<InMemoryBinder>::default());
    let evictor = Arc::new(Late::<InMemoryEvictor>::default());
    let volumes = Arc::new(Late::<InMemoryVolumeBinder>::default());
    let handle = Handle::default()
        .with_binder(binder.clone())
        .with_evictor(evictor.clone())
        .with_volume_binder(volumes.clone());
    let framework = Framework::new(vec![
        (in_tree("PrioritySort"), 0),
        (Box::new(Flag { _alive: alive.clone() }), 0),
        (Box::new(NodeResourcesFit::default()), 1),
        (Box::new(DefaultPreemption::new(&handle)), 0),
        (Box::new(VolumeBinding::new(&handle)), 0),
        (default_plugin("DefaultBinder", &handle).unwrap(), 0),
    ]);
    let framework = framework.unwrap();
    let framework = Arc::new(framework.with_handle(handle));
    let check = FilterCheck::new(Profiles::one(framework.clone()));
    let engine = Engine::shared(Config { commit_check: check.into(), ..Config::default() });
    let _ = binder.0.set(InMemoryBinder::new(engine.clone()));
    let _ = evictor.0.set(InMemoryEvictor::new(engine.clone()));
    let _ = volumes.0.set(InMemoryVolumeBinder::new(engine.clone()));
    let queue = SchedulingQueue::new(framework.clone(), QueueConfig::default());
    let (follower, reader) = (engine.follow().unwrap(), engine.reader().unwrap());
    let queue = Arc::new(QueueFront::new(queue, follower, reader));
    let scheduler = Algorithm::new(framework, AlgorithmConfig::default(), None);
    let mut scheduling =
        SchedulingLoop::new(engine.clone(), queue, Profiles::one(scheduler)).unwrap();
    let budget =
        Arc::new(PodDisruptionBudget { name: "b".into(), ..PodDisruptionBudget::default() });
    let object = Arc::downgrade(&budget);
    engine.with_writer(|writer| writer.put_object(budget).map(drop)).unwrap().unwrap();
    engine.submit(Event::add_node(node("n").cpu(1_000).build())).unwrap().wait().unwrap().unwrap();
    engine.submit(Event::put_pending(pod("a").cpu(100).build())).unwrap().wait().unwrap().unwrap();
    let attempt = scheduling.schedule_one(None, now).unwrap();
    let Attempt::Placed(placement) = attempt else { panic!("{attempt:?}") };
    scheduling.bind(&placement, now).unwrap();
    let snapshot = engine.reader().unwrap().snapshot();
    assert_eq!((snapshot.pod_count(), snapshot.assumed_count()), (1, 0));
    (Arc::downgrade(&alive), object)
}

#[test]
fn an_engine_is_freed_although_its_check_refers_to_its_binder() {
    let (alive, object) = run();
    assert_eq!(alive.strong_count(), 0, "the framework");
    assert_eq!(object.strong_count(), 0, "the engine's state");
}

#[test]
fn a_binder_of_a_dropped_engine_returns_an_error() {
    let engine = Engine::shared(Config::default());
    let binder = InMemoryBinder::new(engine.clone());
    drop(engine);
    let error = binder.bind(&pod("a").build(), &"n".into()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the engine is gone: keep a handle to it while pods are being bound"
    );
}
