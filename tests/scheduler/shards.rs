//! A scheduler that holds some of the shards of nodes and pods. The set of shards may change at any time.

use std::num::NonZeroU32;
use std::sync::Arc;

use portolan::Unplaced;
use portolan::cache::Event;
use portolan::model::{Pod, PreemptionPolicy, Timestamp, Uid, node, pod};
use portolan::plugin::{Nomination, ShardSet};
use portolan::scheduler::queue::Place;
use portolan::{Attempt, Placement, Schedulers, SchedulingLoop};

fn clock() -> Timestamp {
    Timestamp::from_secs(1)
}

/// A scheduler with two shards, neither of which it holds at first, and a node in each.
struct World {
    shards: ShardSet,
    schedulers: Schedulers,
    scheduling: SchedulingLoop,
}

impl World {
    fn new() -> World {
        let shards = ShardSet::new(NonZeroU32::new(2).unwrap()).unwrap();
        let schedulers = Schedulers::builder().shards(shards.clone()).build().unwrap();
        let scheduling = schedulers.scheduling_loop().unwrap();
        let world = World { shards, schedulers, scheduling };
        for shard in 0..2 {
            world.submit(Event::add_node(node(&*world.node_in(shard)).cpu(1_000).build()));
        }
        world
    }

    fn submit(&self, event: Event) {
        self.schedulers.engine().submit(event).unwrap().wait().unwrap().unwrap();
    }

    fn node_in(&self, shard: u32) -> String {
        (0..).map(|n| format!("n{n}")).find(|name| self.shards.of_node(name) == shard).unwrap()
    }

    /// A pod of this shard.
    fn pod_in(&self, shard: u32, cpu: i64) -> Pod {
        let pods = (0..).map(|n| pod(format!("p{n}")).cpu(cpu).build());
        pods.into_iter().find(|pod| self.shards.of_pod(pod) == shard).unwrap()
    }

    /// The place of a pod in the queue, after all events were taken in.
    fn place(&self, uid: &Uid) -> Option<Place> {
        self.schedulers.queue().tend(clock);
        self.schedulers.queue().with(|queue, _| queue.place(uid))
    }

    fn parked(&self) -> usize {
        self.schedulers.queue().tend(clock);
        self.schedulers.queue().with(|queue, _| queue.parked())
    }

    fn hold(&self, shard: u32) {
        self.shards.add(shard);
        self.reassign();
    }

    fn release(&self, shard: u32) {
        self.shards.remove(shard);
        self.reassign();
    }

    fn reassign(&self) {
        self.schedulers.queue().with(|queue, version| queue.reassign(version, clock()));
    }

    fn placed(&mut self) -> Placement {
        match self.scheduling.schedule_one(Some(std::time::Instant::now()), clock).unwrap() {
            Attempt::Placed(placement) => placement,
            other => panic!("{other:?}"),
        }
    }

    /// Tries a pod that fits nowhere, and returns how its nomination changes.
    fn rejected(&mut self) -> Nomination {
        match self.scheduling.schedule_one(Some(std::time::Instant::now()), clock).unwrap() {
            Attempt::Failed(Unplaced { error, .. }) => error.fit().unwrap().nomination.clone(),
            other => panic!("{other:?}"),
        }
    }

    fn is_assumed(&self, uid: &Uid) -> bool {
        let version = self.schedulers.engine().reader().unwrap().snapshot();
        version.pod(uid).is_some_and(|pod| pod.is_assumed())
    }
}

fn nominated(pod: &Pod, node: &str) -> Pod {
    Pod { nominated_node_name: Some(node.into()), ..pod.clone() }
}

#[test]
fn pods_enter_and_leave_the_queue_with_their_shard_without_a_newer_object() {
    let world = World::new();
    let pods = [world.pod_in(0, 100), world.pod_in(1, 100)];
    pods.iter().for_each(|pod| world.submit(Event::put_pending(pod.clone())));
    let places = || [world.place(&pods[0].uid), world.place(&pods[1].uid)];
    assert_eq!((places(), world.parked()), ([None, None], 2));
    world.hold(1);
    assert_eq!((places(), world.parked()), ([None, Some(Place::Active)], 1));
    world.hold(0);
    world.release(1);
    assert_eq!((places(), world.parked()), ([Some(Place::Active), None], 1));
    // A nomination moves a pod to the shard of the node.
    world.submit(Event::put_pending(nominated(&pods[0], &world.node_in(1))));
    world.submit(Event::put_pending(nominated(&pods[1], &world.node_in(0))));
    assert_eq!((places(), world.parked()), ([None, Some(Place::Active)], 1));
}

#[test]
fn parked_pods_that_were_deleted_or_bound_are_dropped() {
    let world = World::new();
    let pods = [world.pod_in(0, 100), world.pod_in(1, 100)];
    pods.iter().for_each(|pod| world.submit(Event::put_pending(pod.clone())));
    assert_eq!(world.parked(), 2);
    world.submit(Event::RemovePending(pods[0].uid.clone()));
    world.submit(Event::add_pod(pods[1].clone().on(world.node_in(1))));
    assert_eq!(world.parked(), 0);
    world.hold(0);
    world.hold(1);
    assert_eq!((world.place(&pods[0].uid), world.place(&pods[1].uid)), (None, None));
}

#[test]
fn a_pod_whose_binding_is_in_flight_keeps_its_resources_when_its_shard_is_released() {
    let mut world = World::new();
    world.hold(0);
    world.hold(1);
    let pod = nominated(&world.pod_in(1, 800), &world.node_in(0));
    world.submit(Event::put_pending(pod.clone()));
    let placement = world.placed();
    assert_eq!(**placement.node(), *world.node_in(0));
    // The nomination is gone, so the pod belongs to shard 1 again.
    world.submit(Event::put_pending(Pod { nominated_node_name: None, ..pod.clone() }));
    world.release(1);
    assert!(world.is_assumed(&pod.uid) && world.parked() == 1);
    world.scheduling.bind(&placement, clock).unwrap();
    world.hold(1);
    assert_eq!((world.place(&pod.uid), world.parked()), (None, 0), "bound");
}

#[test]
fn a_parked_pod_that_is_not_bound_is_retried_when_its_shard_is_held_again() {
    for is_back_before in [false, true] {
        let mut world = World::new();
        world.hold(0);
        world.hold(1);
        let pod = world.pod_in(1, 800);
        world.submit(Event::put_pending(pod.clone()));
        let placement = world.placed();
        world.release(1);
        assert_eq!((world.parked(), world.is_assumed(&pod.uid)), (1, true));
        let mut binding = world.schedulers.binding_loop().unwrap();
        if is_back_before {
            world.hold(1);
            assert_eq!(world.parked(), 1, "it is still assumed");
        }
        binding.withdraw(&placement, clock);
        if !is_back_before {
            assert_eq!((world.place(&pod.uid), world.parked()), (None, 1));
            world.hold(1);
        }
        assert!(!world.is_assumed(&pod.uid));
        assert!(world.place(&pod.uid).is_some(), "{is_back_before}");
        assert_eq!(world.parked(), 0);
    }
}

#[test]
fn a_withdrawn_pod_on_a_node_of_another_shard_backs_off() {
    let mut world = World::new();
    world.hold(0);
    let fill = pod("fill").cpu(1_000).build().on(world.node_in(0));
    world.submit(Event::add_pod(Arc::new(fill)));
    let pod = world.pod_in(0, 800);
    world.submit(Event::put_pending(pod.clone()));
    let placement = world.placed();
    assert_eq!(**placement.node(), *world.node_in(1), "its own node is full");
    let mut binding = world.schedulers.binding_loop().unwrap();
    assert_eq!(binding.withdraw(&placement, clock), Some(Place::ErrorBackoff));
    assert!(!world.is_assumed(&pod.uid));
    // The pod is not retried in a loop.
    assert!(world.scheduling.schedule_one(Some(std::time::Instant::now()), clock).is_err());
    world.submit(Event::put_pending(nominated(&pod, placement.node())));
    assert_eq!((world.place(&pod.uid), world.parked()), (None, 1), "handed over");
}

#[test]
fn a_pod_that_lost_its_nomination_is_not_parked_before_its_object_shows_it() {
    let mut world = World::new();
    world.hold(0);
    let pod = nominated(&world.pod_in(1, 5_000), &world.node_in(0));
    world.submit(Event::put_pending(pod.clone()));
    assert_eq!(world.rejected(), Nomination::Clear);
    // If the cluster still has the nomination, the holder of shard 1 has parked the pod, too.
    world.reassign();
    assert_eq!((world.place(&pod.uid), world.parked()), (Some(Place::Unschedulable), 0));
    world.submit(Event::put_pending(Pod { nominated_node_name: None, ..pod.clone() }));
    assert_eq!((world.place(&pod.uid), world.parked()), (None, 1));
}

#[test]
fn a_pod_that_preempts_on_a_node_other_than_its_nominated_one_is_nominated_there() {
    let mut world = World::new();
    world.hold(0);
    world.hold(1);
    let fill = pod("fill").cpu(900).priority(9).build().on(world.node_in(0));
    world.submit(Event::add_pod(fill));
    let low = pod("low").cpu(900).priority(1).build().on(world.node_in(1));
    world.submit(Event::add_pod(low));
    let high = pod("high").cpu(500).priority(5).build();
    world.submit(Event::put_pending(nominated(&high, &world.node_in(0))));
    assert_eq!(world.rejected(), Nomination::Node(world.node_in(1).into()));
}

/// If all victims are terminating already, the nomination is not written to the cluster.
#[test]
fn a_pod_that_only_this_scheduler_nominated_is_parked_without_the_nomination() {
    for released in [0, 1] {
        let mut world = World::new();
        world.hold(0);
        world.hold(1);
        let mut low = pod("low").cpu(900).priority(1).build().on(world.node_in(0));
        low.deletion_time = Some(clock());
        world.submit(Event::add_pod(low));
        world.submit(Event::add_pod(pod("fill").cpu(900).priority(9).build().on(world.node_in(1))));
        let high = pod(&*world.pod_in(1, 0).name).cpu(500).priority(5).build();
        world.submit(Event::put_pending(high.clone()));
        assert_eq!(world.rejected(), Nomination::Node(world.node_in(0).into()));
        world.release(released);
        assert_eq!(world.parked(), 0, "its other shard is still held");
        world.release(1 - released);
        assert_eq!((world.place(&high.uid), world.parked()), (None, 1));
        world.hold(0);
        assert_eq!(world.parked(), 1, "its nomination is not known to the cluster");
        world.hold(1);
        assert!(world.place(&high.uid).is_some());
    }
}

#[test]
fn a_pod_that_fits_nowhere_and_cannot_preempt_loses_its_nomination_unless_victims_terminate() {
    for is_terminating in [false, true] {
        let mut world = World::new();
        world.hold(0);
        let node = world.node_in(0);
        let mut low = pod("low").cpu(900).spec(|spec| spec.is_preempted = true).build();
        low.deletion_time = is_terminating.then(clock);
        world.submit(Event::add_pod(low.on(&*node)));
        let never = pod(&*world.pod_in(1, 0).name).cpu(5_000).priority(9);
        let never = never.spec(|spec| spec.preemption_policy = PreemptionPolicy::Never).build();
        world.submit(Event::put_pending(nominated(&never, &node)));
        let expected = if is_terminating { Nomination::Keep } else { Nomination::Clear };
        assert_eq!(world.rejected(), expected);
    }
}
