//! Victims of preemption that are not bound yet.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use portolan::cache::{Config, Engine, Event};
use portolan::model::{Name, Timestamp, Uid, node, pod};
use portolan::plugin::{Code, Cycle, Eviction, Handle, Permit, Plugin, Point, PreFlight, Status};
use portolan::scheduler::queue::{Place, PopError, QueueConfig, QueueFront, SchedulingQueue};
use portolan::scheduler::{BindError, BindingLoop, InMemoryBinder};
use portolan::{
    Algorithm, AlgorithmConfig, Evictor, Framework, Placement, Profiles, SchedulingLoop,
};
use portolan_testkit::plugin;

/// Delays pods whose name starts with `low`.
struct Delays {
    point: Point,
    /// Signals that a pod is in PreBind.
    entered: Mutex<Sender<()>>,
    /// Ends PreBind.
    end: Mutex<Receiver<()>>,
}

impl Plugin for Delays {
    plugin!("Delays", Reserve, Permit, PreBind);

    fn permit(&self, cycle: Cycle<'_>, _: &Name) -> Result<Permit, Status> {
        Ok(match self.point == Point::Permit && cycle.pod.name.starts_with("low") {
            true => Permit::Wait(Duration::from_secs(600)),
            false => Permit::Allow,
        })
    }

    /// Delays the end of a pod that waits for a permit.
    fn unreserve(&self, _: Cycle<'_>, _: &Name) {
        if self.point == Point::Permit {
            self.entered.lock().unwrap().send(()).unwrap();
            self.end.lock().unwrap().recv().unwrap();
        }
    }

    fn pre_bind_pre_flight(&self, cycle: Cycle<'_>, _: &Name) -> Result<PreFlight, Status> {
        Ok(match self.point == Point::PreBind && cycle.pod.name.starts_with("low") {
            true => PreFlight::Work,
            false => PreFlight::Skip,
        })
    }

    /// Succeeds even if the pod is cancelled, like a plugin that does not check for it.
    fn pre_bind(&self, _: Cycle<'_>, _: &Name) -> Result<(), Status> {
        self.entered.lock().unwrap().send(()).unwrap();
        self.end.lock().unwrap().recv().unwrap();
        Ok(())
    }
}

/// Keeps evictions, so that their preemptors stay gated, and counts the victims that it would delete.
#[derive(Default)]
struct Keeps {
    deleted: AtomicUsize,
    evictions: Mutex<Vec<Eviction>>,
}

impl Evictor for Keeps {
    fn evict(&self, eviction: Eviction) {
        if let Some((victim, others)) = eviction.begin() {
            assert!(others.is_empty());
            self.deleted.fetch_add(usize::from(!eviction.withdraw(victim)), Ordering::Relaxed);
        }
        eviction.finish(Ok(()));
        self.evictions.lock().unwrap().push(eviction);
    }
}

struct Bench {
    engine: Engine,
    queue: Arc<QueueFront>,
    handle: Handle,
    keeps: Arc<Keeps>,
    scheduling: SchedulingLoop,
    entered: Receiver<()>,
    end: Sender<()>,
}

fn clock() -> Timestamp {
    Timestamp::from_secs(1)
}

impl Bench {
    /// A bench with one node, on which one pod fits.
    fn new(point: Point) -> Bench {
        let engine = Engine::shared(Config::default());
        let keeps = Arc::new(Keeps::default());
        let handle = Handle::default()
            .with_binder(Arc::new(InMemoryBinder::new(engine.clone())))
            .with_evictor(keeps.clone());
        let (enters, entered) = channel();
        let (end, ends) = channel();
        let delays = Delays { point, entered: Mutex::new(enters), end: Mutex::new(ends) };
        let mut plugins = portolan::plugin::default_plugins(&handle);
        plugins.push((Box::new(delays), 0));
        let framework = Framework::new(plugins).unwrap().with_handle(handle.clone());
        let algorithm = Algorithm::new(framework, AlgorithmConfig::default(), None);
        let queue = SchedulingQueue::new(algorithm.framework().clone(), QueueConfig::default());
        let (follower, reader) = (engine.follow().unwrap(), engine.reader().unwrap());
        let queue = Arc::new(QueueFront::new(queue, follower, reader));
        let scheduling =
            SchedulingLoop::new(engine.clone(), queue.clone(), Profiles::one(algorithm)).unwrap();
        let bench = Bench { engine, queue, handle, keeps, scheduling, entered, end };
        bench.put(Event::add_node(node("n").cpu(1_000).memory(1 << 30).build()));
        bench
    }

    fn put(&self, event: Event) {
        self.engine.submit(event).unwrap().wait().unwrap().unwrap();
    }

    fn pending(&self, name: &str, priority: i32) -> Uid {
        let pod = pod(name).cpu(800).priority(priority).build();
        let uid = pod.uid.clone();
        self.put(Event::put_pending(pod));
        uid
    }

    /// Places a pod of low priority, and returns a loop to bind it.
    fn place_low(&mut self) -> (Placement, BindingLoop) {
        self.pending("low", 1);
        let (placed, _) = self.scheduling.schedule_one(None, clock).unwrap().into_parts();
        let binding = BindingLoop::new(self.engine.clone(), self.queue.clone()).unwrap();
        (placed.into_iter().next().unwrap(), binding)
    }

    fn place_of(&self, uid: &Uid) -> Option<Place> {
        self.queue.tend(clock);
        self.queue.with(|queue, _| queue.place(uid))
    }
}

/// Places a pod, binds it on another thread, and preempts it with another pod, before or after the end of PreBind.
fn preempt(point: Point, has_ended: bool) -> (Bench, Uid, Result<(), BindError>) {
    let mut bench = Bench::new(point);
    let (placement, mut binding) = bench.place_low();
    let low = placement.pod.uid.clone();
    let bound = thread::scope(|scope| {
        let bound = scope.spawn(|| binding.bind(&placement, clock));
        if point == Point::PreBind {
            bench.entered.recv().unwrap();
        }
        if has_ended {
            bench.end.send(()).unwrap();
            while bench.handle.pod_in_pre_bind(&low).is_some() {
                thread::yield_now();
            }
        }
        bench.pending("high", 9);
        let (placed, failed) = bench.scheduling.schedule_one(None, clock).unwrap().into_parts();
        assert_eq!((placed.len(), failed.len()), (0, 1));
        // The preemptor is back in the queue, and gated, when the victim's resources are freed.
        if point == Point::Permit {
            bench.entered.recv().unwrap();
            bench.end.send(()).unwrap();
        } else if !has_ended {
            let cause = bench.handle.pod_in_pre_bind(&low).and_then(|pod| pod.cause());
            assert_eq!(cause.as_deref(), Some("preempted by DefaultPreemption"));
            bench.end.send(()).unwrap();
        }
        bound.join().unwrap().map_err(|(error, _)| error)
    });
    (bench, low, bound)
}

/// Leaves the pods assumed, because the plugin delays Unreserve, and returns their names.
fn high(placed: Vec<Placement>) -> Vec<String> {
    placed.into_iter().map(|placed| placed.keep_assumed().name.to_string()).collect()
}

#[test]
fn a_victim_that_is_not_bound_returns_to_the_queue() {
    for (point, why) in [
        (Point::PreBind, "preempted by DefaultPreemption"),
        (Point::Permit, "waiting on permit for pod: preempted"),
    ] {
        let (mut bench, low, bound) = preempt(point, false);
        let Err(BindError::Failed(status)) = bound else { panic!("{bound:?}") };
        assert_eq!((status.code, &*status.message()), (Code::Error, why));
        assert_eq!(bench.keeps.deleted.load(Ordering::Relaxed), 0);
        assert_eq!(bench.place_of(&low), Some(Place::ErrorBackoff));
        bench.keeps.evictions.lock().unwrap().clear();
        // The deadline only bounds a test that fails.
        let deadline = Some(Instant::now() + Duration::from_secs(30));
        let (placed, _) = bench.scheduling.schedule_one(deadline, clock).unwrap().into_parts();
        assert_eq!(high(placed), ["high"]);
        assert!(bench.handle.pod_in_pre_bind(&low).is_none());
    }
}

#[test]
fn a_victim_whose_pre_bind_has_ended_is_evicted() {
    let (bench, _, bound) = preempt(Point::PreBind, true);
    assert_eq!(bound, Ok(()));
    assert_eq!(bench.keeps.deleted.load(Ordering::Relaxed), 1);
}

/// The victim's binding cycle has ended the wait, and its resources are not freed yet.
#[test]
fn another_attempt_does_not_delete_a_victim_that_is_about_to_be_forgotten() {
    let mut bench = Bench::new(Point::Permit);
    let (placement, mut binding) = bench.place_low();
    thread::scope(|scope| {
        let bound = scope.spawn(|| binding.bind(&placement, clock));
        bench.pending("high", 9);
        let attempt = |bench: &mut Bench| {
            let deadline = Some(Instant::now() + Duration::from_secs(30));
            let attempt = bench.scheduling.schedule_one(deadline, clock).unwrap();
            assert!(attempt.into_parts().0.is_empty());
        };
        attempt(&mut bench);
        bench.entered.recv().unwrap();
        bench.keeps.evictions.lock().unwrap().drain(..).for_each(|eviction| eviction.retry());
        attempt(&mut bench);
        bench.end.send(()).unwrap();
        assert!(bound.join().unwrap().is_err());
    });
    assert_eq!(bench.keeps.evictions.lock().unwrap().len(), 1, "it was chosen again");
    assert_eq!(bench.keeps.deleted.load(Ordering::Relaxed), 0);
}

/// All binding threads may be taken, so that the victim's binding cycle does not run for a long time.
#[test]
fn a_preemptor_is_not_retried_before_its_withdrawn_victim_has_left() {
    let mut bench = Bench::new(Point::Permit);
    let (placement, mut binding) = bench.place_low();
    bench.pending("high", 9);
    drop(bench.scheduling.schedule_one(None, clock).unwrap());
    bench.keeps.evictions.lock().unwrap().clear();
    let now = Some(Instant::now());
    assert_eq!(bench.scheduling.schedule_one(now, clock).err(), Some(PopError::Timeout));
    bench.end.send(()).unwrap();
    binding.bind(&placement, clock).unwrap_err();
    let (placed, _) = bench.scheduling.schedule_one(None, clock).unwrap().into_parts();
    assert_eq!(high(placed), ["high"]);
}
