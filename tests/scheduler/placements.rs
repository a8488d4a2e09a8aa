//! Placements that are dropped: the pod is forgotten and returns to the queue, whatever dropped it.

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use portolan::cache::Event;
use portolan::model::{Name, Object, Pod, PodGroup, Timestamp, Uid, node, pod};
use portolan::plugin::{BindingFuture, Cycle, Handle, Permit, Plugin, Status, default_plugins};
use portolan::scheduler::queue::Place;
use portolan::scheduler::{Begun, BindError, InMemoryEvictor};
use portolan::{Attempt, Binder, BinderError, Framework, Placement, Schedulers, SchedulingLoop};
use portolan_testkit::plugin;

/// Counts reservations, and lets the pods whose names begin with `wait` wait for a permit.
#[derive(Clone, Default)]
struct Counts(Arc<AtomicUsize>);

impl Plugin for Counts {
    plugin!("Counts", Reserve, Permit);

    fn reserve(&self, _: Cycle<'_>, _: &Name) -> Result<(), Status> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn unreserve(&self, _: Cycle<'_>, _: &Name) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    fn permit(&self, cycle: Cycle<'_>, _: &Name) -> Result<Permit, Status> {
        match cycle.pod.name.starts_with("wait") {
            true => Ok(Permit::Wait(Duration::from_secs(600))),
            false => Ok(Permit::Allow),
        }
    }
}

/// A binder whose requests are answered by the second poll.
struct Slow;

impl Binder for Slow {
    fn bind(&self, _: &Pod, _: &Name) -> Result<(), BinderError> {
        Ok(())
    }

    fn request(&self, _: &Arc<Pod>, _: &Name) -> Option<BindingFuture> {
        let mut polls = 0;
        Some(Box::pin(std::future::poll_fn(move |_| {
            polls += 1;
            if polls == 1 { Poll::Pending } else { Poll::Ready(Err("no".into())) }
        })))
    }
}

struct World {
    schedulers: Schedulers,
    scheduling: SchedulingLoop,
    reserved: Arc<AtomicUsize>,
    now: AtomicI64,
}

impl World {
    /// Creates a node with resources for ten pods, and these pending pods.
    fn new(names: &[&str]) -> World {
        let counts = Counts::default();
        let reserved = counts.0.clone();
        let profile = move |handle: &Handle| {
            let mut plugins = default_plugins(handle);
            plugins.push((Box::new(counts), 0));
            Framework::new(plugins)
        };
        let builder = Schedulers::builder().profile("default-scheduler", profile);
        let builder = builder.binder(|_| Slow).evictor(|engine| InMemoryEvictor::from(engine));
        let schedulers = builder.build().unwrap();
        let scheduling = schedulers.scheduling_loop().unwrap();
        let world = World { schedulers, scheduling, reserved, now: AtomicI64::new(1) };
        world.submit(Event::add_node(node("n").cpu(1_000).memory(1 << 30).build()));
        for name in names {
            world.submit(Event::put_pending(pod(*name).cpu(100).build()));
        }
        world
    }

    fn submit(&self, event: Event) {
        self.schedulers.engine().submit(event).unwrap().wait().unwrap().unwrap();
    }

    fn placed(&mut self) -> Vec<Placement> {
        let now = Timestamp::from_secs(self.now.load(Ordering::Relaxed));
        let most = NonZeroUsize::new(16).unwrap();
        let attempts = self.scheduling.schedule_batch(most, Some(Instant::now()), || now);
        attempts.unwrap().into_iter().flat_map(|attempt| attempt.into_parts().0).collect()
    }

    /// The assumed pods, the reservations, and the places of pods in the queue.
    fn state(&self, names: &[&str]) -> (usize, usize, Vec<Option<Place>>) {
        self.schedulers.queue().tend(|| Timestamp::from_secs(1));
        let places = names.iter().map(|name| {
            let uid = Uid::new(&format!("default/{name}"));
            self.schedulers.queue().with(|queue, _| queue.place(&uid))
        });
        let snapshot = self.schedulers.engine().reader().unwrap().snapshot();
        (snapshot.assumed_count(), self.reserved.load(Ordering::Relaxed), places.collect())
    }

    fn handle(&self) -> Handle {
        self.schedulers.profiles().iter().next().unwrap().handle().clone()
    }
}

const PODS: [&str; 3] = ["a", "b", "wait"];
const BACK: Option<Place> = Some(Place::ErrorBackoff);

/// Drops three placements in some way, and checks that the pods return and are placed again.
fn withdrawn_by(drops: impl FnOnce(Vec<Placement>)) {
    let mut world = World::new(&PODS);
    let placed = world.placed();
    assert_eq!(world.state(&PODS), (3, 3, vec![Some(Place::InFlight); 3]));
    drops(placed);
    assert_eq!(world.state(&PODS), (0, 0, vec![BACK; 3]));
    assert!(world.handle().waiting_pods().all().is_empty());
    let figures = world.schedulers.queue().with(|queue, _| queue.figures());
    assert_eq!((figures.in_flight, figures.binding, figures.in_flight_events), (0, 0, 0));
    world.now.store(60, Ordering::Relaxed);
    assert_eq!(world.placed().len(), 3);
}

#[test]
fn a_dropped_placement_is_withdrawn() {
    withdrawn_by(drop);
}

#[test]
fn a_thread_that_panics_withdraws_its_placements() {
    withdrawn_by(|placed| {
        let panics = std::thread::spawn(move || {
            let _placed = placed;
            panic!("expected");
        });
        assert!(panics.join().is_err());
    });
}

#[test]
fn pods_that_were_popped_return_if_the_clock_panics() {
    let mut panics = 0;
    for after in 0..6 {
        let mut world = World::new(&PODS);
        let reads = AtomicUsize::new(0);
        let clock = || match reads.fetch_add(1, Ordering::Relaxed) == after {
            true => panic!("expected"),
            false => Timestamp::from_secs(1),
        };
        world.schedulers.queue().tend(|| Timestamp::from_secs(1));
        let (most, deadline) = (NonZeroUsize::new(2).unwrap(), Some(Instant::now()));
        let attempt = || drop(world.scheduling.schedule_batch(most, deadline, clock));
        panics += usize::from(catch_unwind(AssertUnwindSafe(attempt)).is_err());
        let (assumed, reserved, places) = world.state(&PODS);
        assert_eq!((assumed, reserved), (0, 0), "{after}");
        let is_queued = |place: &Option<Place>| matches!(*place, Some(Place::Active) | BACK);
        assert!(places.iter().all(is_queued), "{after}: {places:?}");
    }
    assert!(panics > 2, "before, between and after the pods were popped: {panics}");
}

#[test]
fn a_placement_that_was_bound_or_withdrawn_is_left_alone() {
    let mut world = World::new(&["a", "b"]);
    let [a, b] = world.placed().try_into().unwrap();
    let now = || Timestamp::from_secs(1);
    world.scheduling.bind(&a, now).unwrap();
    let mut binding = world.schedulers.binding_loop().unwrap();
    assert_eq!(binding.withdraw(&b, now), BACK);
    let expected = (1, 1, vec![None, BACK]);
    assert_eq!(world.state(&["a", "b"]), expected);
    // Neither can be bound or withdrawn again.
    for placement in [&a, &b] {
        assert_eq!(world.scheduling.bind(placement, now), Err((BindError::Ended, None)));
        assert_eq!(binding.withdraw(placement, now), None);
    }
    let Begun::Blocks(a) = binding.begin(a) else { panic!("nothing is sent again") };
    drop((a, b));
    assert_eq!(world.state(&["a", "b"]), expected);
}

#[test]
fn a_pod_stays_assumed_if_it_may_be_bound() {
    let names = ["unsent", "sent", "refused"];
    let mut world = World::new(&names);
    let context = &mut Context::from_waker(Waker::noop());
    for (placement, polls) in world.placed().into_iter().zip(0..) {
        let Begun::Request(request) = world.scheduling.begin(placement) else { panic!("a future") };
        let mut request = pin!(request);
        for _ in 0..polls {
            let _ = request.as_mut().poll(context);
        }
    }
    assert_eq!(world.state(&names), (1, 1, vec![BACK, None, BACK]));
}

#[test]
fn a_kept_placement_leaves_the_queue_and_not_the_node() {
    let mut world = World::new(&["a"]);
    let pod = world.placed().remove(0).keep_assumed();
    assert_eq!(pod.node_name.as_deref(), Some("n"));
    assert_eq!(world.state(&["a"]), (1, 1, vec![None]));
}

#[test]
fn a_placement_may_outlive_its_engine() {
    for closes in [true, false] {
        let mut world = World::new(&["a", "wait"]);
        let placed = world.placed();
        let reserved = world.reserved.clone();
        if closes {
            world.schedulers.engine().close();
            drop(placed);
            let (_, reserved, places) = world.state(&["a", "wait"]);
            assert_eq!((reserved, places), (0, vec![None, None]), "nothing is retried");
            continue;
        }
        let handle = world.handle();
        drop(world);
        drop(placed);
        assert_eq!(reserved.load(Ordering::Relaxed), 0);
        assert!(handle.waiting_pods().all().is_empty());
    }
}

#[test]
fn a_placement_may_be_dropped_within_the_writer() {
    let mut world = World::new(&["a"]);
    let placed = world.placed();
    world.schedulers.engine().with_writer(|_| drop(placed)).unwrap();
    assert_eq!(world.state(&["a"]), (0, 0, vec![BACK]));
}

#[test]
fn a_dropped_gang_is_withdrawn() {
    let mut world = World::new(&[]);
    world.submit(Event::PutObject(Object::from(PodGroup::new("default", "g", 2))));
    for name in ["m0", "m1"] {
        world.submit(Event::put_pending(pod(name).cpu(100).group("g").build()));
    }
    let now = || Timestamp::from_secs(1);
    let attempt = world.scheduling.schedule_one(Some(Instant::now()), now).unwrap();
    assert!(matches!(&attempt, Attempt::Gang { placed, .. } if placed.len() == 2), "{attempt:?}");
    drop(attempt);
    let (assumed, reserved, _) = world.state(&[]);
    assert_eq!((assumed, reserved), (0, 0));
    world.now.store(60, Ordering::Relaxed);
    assert_eq!(world.placed().len(), 2);
}
