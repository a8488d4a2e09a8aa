//! Guarantees of kube-scheduler's queue beside those of `queue_model`, one claim per test
//! (backend/queue/scheduling_queue_test.go, of which no text is used).

use std::sync::Arc;

use portolan::cache::{Config, Engine, Snapshot};
use portolan::model::{Change, Diff, Generation, Name, Pod, Timestamp, Uid, node, pod};
use portolan::plugin::{
    Actions, ClusterEvent, Code, EventResource, Handle, Interest, Nomination, Plugin, PluginSet,
    Status,
};
use portolan::scheduler::queue::{Cause, Place, QueueConfig, QueueError, SchedulingQueue};
use portolan::{Framework, FrameworkError};
use portolan_testkit::in_tree;
use portolan_testkit::plugin;

/// A plugin that rejects pods.
struct Fit;

impl Plugin for Fit {
    plugin!("Fit", Filter; .events(&[
        Interest { resources: &[EventResource::Node], actions: Actions::ADD },
        Interest { resources: EventResource::PODS, actions: Actions::DELETE },
        Interest { resources: EventResource::PODS, actions: Actions::UPDATE_POD_TOLERATION },
    ]));
}

/// A queue with a manually advanced clock.
struct Test {
    queue: SchedulingQueue,
    cluster: Arc<Snapshot>,
    now: Timestamp,
    fit: PluginSet,
    handle: Handle,
}

impl Test {
    fn new() -> Test {
        Test::with(QueueConfig::default())
    }

    fn with(config: QueueConfig) -> Test {
        let plugins: Vec<(Box<dyn Plugin>, i64)> =
            vec![(in_tree("PrioritySort"), 0), (in_tree("SchedulingGates"), 0), (Box::new(Fit), 0)];
        let handle = Handle::default();
        let framework = Framework::new(plugins).unwrap().with_handle(handle.clone());
        let fit = framework.plugin_set(["Fit"]);
        Test {
            queue: SchedulingQueue::new(framework, config),
            cluster: Engine::inline(Config::default()).1.snapshot(),
            now: Timestamp::from_secs(1_000),
            fit,
            handle,
        }
    }

    fn add(&mut self, pod: Pod) -> Place {
        self.queue.add(pod, Generation(1), &self.cluster, self.now).unwrap()
    }

    fn update(&mut self, pod: Pod) -> Place {
        self.queue.update(pod, Generation(2), &self.cluster, self.now).unwrap()
    }

    fn pop(&mut self) -> Option<String> {
        self.queue.pop(self.now).map(|popped| popped.pod.name.to_string())
    }

    fn fail(&mut self, name: &str, by: PluginSet) -> Option<Place> {
        let (uid, none) = (uid(name), PluginSet::EMPTY);
        self.queue
            .add_unschedulable_if_not_present(&uid, by, none, &self.cluster, self.now)
            .unwrap()
    }

    /// Adds a pod that is tried and rejected.
    fn rejected(&mut self, pod: Pod) {
        let name = pod.name.clone();
        self.add(pod);
        assert_eq!(self.pop().as_deref(), Some(&*name));
        assert_eq!(self.fail(&name, self.fit), Some(Place::Unschedulable));
    }

    fn happen(&mut self, change: &Change) {
        for event in ClusterEvent::of(change) {
            self.queue.move_all(&event, None, &self.cluster, self.now);
        }
    }

    fn advance(&mut self, millis: i64) {
        self.now.0 += millis * 1_000_000;
    }

    fn place(&self, name: &str) -> Option<Place> {
        self.queue.place(&uid(name))
    }
}

fn uid(name: &str) -> Uid {
    Uid::new(&format!("default/{name}"))
}

fn plain(name: &str) -> Pod {
    pod(name.to_owned()).build()
}

fn node_added(name: &str) -> Change {
    Change::Node(Diff { old: None, new: Some(Arc::new(node(name).build())) })
}

#[test]
fn events_are_kept_only_while_an_older_pod_is_in_flight() {
    let mut test = Test::new();
    for name in ["a", "b"] {
        test.add(plain(name));
    }
    test.pop();
    test.happen(&node_added("n1"));
    test.pop();
    test.happen(&node_added("n2"));
    assert_eq!(test.queue.figures().in_flight_events, 2);
    test.queue.done(&uid("a"));
    assert_eq!(test.queue.figures().in_flight_events, 1);
    test.queue.done(&uid("b"));
    test.happen(&node_added("n3"));
    assert_eq!(test.queue.figures().in_flight_events, 0);
}

#[test]
fn an_event_without_interested_plugins_is_not_kept() {
    let mut test = Test::new();
    test.add(plain("a"));
    test.pop();
    let change = Change::Node(Diff { old: Some(Arc::new(node("n").build())), new: None });
    test.happen(&change);
    assert_eq!(test.queue.figures().in_flight_events, 0);
}

#[test]
fn without_pop_from_backoff_a_pod_completes_its_backoff() {
    let config = QueueConfig { pop_from_backoff: false, ..QueueConfig::default() };
    let mut test = Test::with(config);
    test.rejected(plain("a"));
    test.happen(&node_added("n"));
    assert_eq!(test.pop(), None);
    test.advance(1_000);
    test.queue.flush_backoff_completed(usize::MAX, test.now);
    assert_eq!(test.pop(), None, "the end of the backoff is exclusive");
    test.advance(1);
    test.queue.flush_backoff_completed(usize::MAX, test.now);
    assert_eq!(test.pop().as_deref(), Some("a"));
}

#[test]
fn a_rejection_resets_the_count_of_errors_only() {
    let mut test = Test::new();
    test.add(plain("a"));
    for by in [PluginSet::EMPTY, PluginSet::EMPTY, test.fit] {
        test.advance(60_000);
        test.queue.flush_backoff_completed(usize::MAX, test.now);
        test.pop();
        test.fail("a", by);
    }
    let queued = test.queue.get(&uid("a")).unwrap();
    assert_eq!((queued.consecutive_errors, queued.unschedulable_count, queued.attempts), (0, 1, 3));
}

#[test]
fn unschedulable_pods_are_retried_after_five_minutes() {
    let mut test = Test::new();
    test.rejected(plain("old"));
    test.advance(100_000);
    test.rejected(plain("young"));
    test.advance(200_000);
    test.queue.flush_unschedulable_leftover(&test.cluster, test.now);
    assert_eq!(test.place("old"), Some(Place::Unschedulable), "exactly five minutes have passed");
    test.advance(1);
    test.queue.flush_unschedulable_leftover(&test.cluster, test.now);
    assert_eq!(test.place("old"), Some(Place::Active));
    assert_eq!(test.place("young"), Some(Place::Unschedulable));
}

#[test]
fn ticks_flush_unschedulable_pods_every_half_minute() {
    let mut test = Test::new();
    test.rejected(plain("a"));
    test.queue.tick(8, test.now);
    assert_eq!(test.queue.next_due(), Some(Timestamp(test.now.0 + 30_000_000_000)));
    test.advance(301_000);
    test.queue.tick(8, test.now);
    while test.queue.step(8, &test.cluster, test.now) {}
    assert_eq!(test.place("a"), Some(Place::Active));
}

fn gated(name: &str) -> Pod {
    pod(name.to_owned()).spec(|spec| spec.scheduling_gates = Box::new(["hold".into()])).build()
}

#[test]
fn a_gated_pod_waits_until_its_gates_are_removed() {
    let mut test = Test::new();
    assert_eq!(test.add(gated("a")), Place::Gated);
    test.happen(&node_added("n"));
    test.advance(400_000);
    test.queue.flush_unschedulable_leftover(&test.cluster, test.now);
    assert_eq!(test.pop(), None);
    assert_eq!(test.update(plain("a")), Place::Active);
    assert_eq!(test.queue.get(&uid("a")).unwrap().gating_plugin, PluginSet::EMPTY);
}

#[test]
fn an_update_of_an_unschedulable_pod_moves_it_only_if_it_concerns_its_rejectors() {
    let mut test = Test::new();
    test.rejected(plain("a"));
    let labelled = pod("a").label("k", "v");
    assert_eq!(test.update(labelled.clone().build()), Place::Unschedulable);
    assert_eq!(test.update(labelled.tolerate("t").build()), Place::Backoff);
}

#[test]
fn an_update_of_a_pod_in_flight_counts_when_it_returns() {
    let mut test = Test::new();
    test.add(plain("a"));
    test.pop();
    let tolerant = pod("a").tolerate("t").build();
    assert_eq!(test.update(tolerant.clone()), Place::InFlight);
    assert_eq!(test.fail("a", test.fit), Some(Place::Backoff));
    assert_eq!(test.queue.get(&uid("a")).unwrap().pod, tolerant, "the pod returns with its update");
}

#[test]
fn a_pod_that_was_not_popped_cannot_be_returned() {
    let mut test = Test::new();
    test.add(plain("a"));
    let failed = |test: &mut Test, name| {
        let none = PluginSet::EMPTY;
        test.queue
            .add_unschedulable_if_not_present(&uid(name), none, none, &test.cluster, test.now)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(failed(&mut test, "a"), "pod default/a is already present in the active queue");
    let unknown = failed(&mut test, "b");
    assert_eq!(unknown, "pod default/b is not in the scheduling queue: add it first");
}

#[test]
fn forgetting_a_pod_does_not_wake_the_pod_itself() {
    let mut test = Test::new();
    test.rejected(plain("a"));
    test.rejected(plain("b"));
    let left = Arc::new(plain("a").on("n"));
    test.happen(&Change::Pod(Diff { old: Some(left), new: None }));
    assert_eq!(test.place("a"), Some(Place::Unschedulable));
    assert_eq!(test.place("b"), Some(Place::Backoff));
}

#[test]
fn a_pre_check_excludes_pods() {
    let mut test = Test::new();
    test.rejected(pod("low").priority(1).build());
    test.rejected(pod("high").priority(9).build());
    let change = node_added("n");
    for event in ClusterEvent::of(&change) {
        let check = Box::new(|pod: &Pod| pod.template.priority <= 5);
        test.queue.move_all(&event, Some(check), &test.cluster, test.now);
    }
    assert_eq!(test.place("low"), Some(Place::Backoff));
    assert_eq!(test.place("high"), Some(Place::Unschedulable));
}

#[test]
fn a_nomination_holds_until_it_is_changed() {
    let mut test = Test::new();
    let on = |test: &Test, node: &str| test.handle.nominator().pods_on(node).len();
    test.add(plain("a"));
    test.queue.nominate(&uid("a"), &Nomination::Node("n1".into()));
    test.update(pod("a").priority(3).build());
    assert_eq!(test.handle.nominator().pods_on("n1")[0].template.priority, 3);
    let mut elsewhere = plain("a");
    elsewhere.nominated_node_name = Some("n2".into());
    test.update(elsewhere);
    assert_eq!((on(&test, "n1"), on(&test, "n2")), (0, 1));
    test.update(plain("a"));
    assert_eq!(on(&test, "n2"), 0);
    test.queue.nominate(&uid("a"), &Nomination::Node("n3".into()));
    test.queue.delete(&uid("a"));
    assert_eq!(on(&test, "n3"), 0);
}

#[test]
fn a_pod_uses_the_profile_that_it_names() {
    let framework = || {
        let plugins: Vec<(Box<dyn Plugin>, i64)> = vec![(in_tree("PrioritySort"), 0)];
        Arc::new(Framework::new(plugins).unwrap())
    };
    let cluster = Engine::inline(Config::default()).1.snapshot();
    let pod_of = |name: &str| {
        let name: Name = name.into();
        pod("a").scheduler_name(name).build()
    };
    let profiles = [("default-scheduler".into(), framework()), ("batch".into(), framework())];
    let mut queue = SchedulingQueue::with_profiles(profiles, QueueConfig::default()).unwrap();
    let mut add = |pod| queue.add(pod, Generation(1), &cluster, Timestamp(0));
    assert_eq!(add(pod_of("batch")), Ok(Place::Active));
    assert_eq!(add(plain("b")), Ok(Place::Active));
    assert_eq!(add(pod_of("")), Ok(Place::Active), "the default");
    let refused = add(pod_of("other"));
    assert!(matches!(refused, Err(QueueError::OtherScheduler { .. })), "{refused:?}");
    let none = SchedulingQueue::with_profiles([], QueueConfig::default());
    assert!(matches!(none, Err(QueueError::NoProfile)));
}

/// A plugin that only sorts queues.
struct Sorts(&'static str);

impl Plugin for Sorts {
    plugin!(self => self.0, QueueSort);
}

#[test]
fn exactly_one_plugin_sorts_a_queue() {
    let framework = |names: &[&'static str]| {
        let plugin = |name: &&'static str| (Box::new(Sorts(name)) as Box<dyn Plugin>, 0);
        Framework::new(names.iter().map(plugin).collect())
    };
    let several = framework(&["a", "b"]).err();
    assert_eq!(several, Some(FrameworkError::QueueSort { first: "a", second: "b" }));
    let shared = |names: &[&'static str]| Arc::new(framework(names).unwrap());
    let queue = |first: Arc<Framework>, second: Arc<Framework>| {
        let profiles = [("first".into(), first), ("second".into(), second)];
        SchedulingQueue::with_profiles(profiles, QueueConfig::default()).err()
    };
    assert_eq!(queue(shared(&["a"]), shared(&["a"])), None);
    let scheduler: Name = "second".into();
    let none = QueueError::NoQueueSort { scheduler: scheduler.clone() };
    assert_eq!(queue(shared(&["a"]), shared(&[])), Some(none));
    let other = QueueError::OtherQueueSort { scheduler, sorts: "a", other: "b" };
    assert_eq!(queue(shared(&["a"]), shared(&["b"])), Some(other));
}

/// A plugin that names no events, as a custom plugin may.
struct Silent;

impl Plugin for Silent {
    plugin!("Silent", PreEnqueue, Filter);
    fn pre_enqueue(&self, pod: &Pod) -> Result<(), Status> {
        match pod.template.labels.get("hold") {
            Some(_) => Err(Status::new(Code::Error, "Silent", "the gate fails")),
            None => Ok(()),
        }
    }
}

#[test]
fn a_plugin_without_events_gets_all_and_a_failing_gate_gates_the_pod() {
    let plugins: Vec<(Box<dyn Plugin>, i64)> =
        vec![(in_tree("PrioritySort"), 0), (Box::new(Silent), 0)];
    let framework = Framework::new(plugins).unwrap();
    let silent = framework.plugin_set(["Silent"]);
    let mut test =
        Test { queue: SchedulingQueue::new(framework, Default::default()), ..Test::new() };
    assert_eq!(test.add(pod("held").label("hold", "").build()), Place::Gated);
    test.add(plain("a"));
    test.pop();
    test.fail("a", silent);
    let change = Change::Node(Diff { old: Some(Arc::new(node("n").build())), new: None });
    test.happen(&change);
    assert_eq!(test.place("a"), Some(Place::Backoff));
}

#[test]
fn incoming_pods_are_counted_by_cause_and_place() {
    let mut test = Test::new();
    test.rejected(plain("a"));
    test.happen(&node_added("n"));
    let counted: Vec<_> = test.queue.incoming().collect();
    let node_add = Cause::Event(EventResource::Node, Actions::ADD);
    assert_eq!(
        counted,
        [
            (Cause::PodAdd, Place::Active, 1),
            (Cause::AttemptFailure, Place::Unschedulable, 1),
            (node_add, Place::Backoff, 1),
        ]
    );
    assert_eq!(node_add.to_string(), "NodeAdd");
    assert_eq!(test.queue.figures().backoff, 1);
}
