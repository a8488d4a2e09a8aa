//! A queue that follows an engine's log, and is shared by threads.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use portolan::Framework;
use portolan::cache::{CommitPolicy, Config, Engine, Event, Reader, Relist, Writer};
use portolan::model::{
    Change, EventError, Fact, Generation, Labels, Namespace, NoNote, Note, Object, Pod, Timestamp,
    Uid, node, pod,
};
use portolan::plugin::PluginSet;
use portolan::scheduler::queue::{Place, PopError, QueueConfig, QueueFront, SchedulingQueue};

fn queue() -> SchedulingQueue {
    SchedulingQueue::new(Framework::default_profile(), QueueConfig::default())
}

fn uid(name: &str) -> Uid {
    Uid::new(&format!("default/{name}"))
}

/// Formats a note in a few words.
fn words(note: &Note) -> String {
    fn name<T>(object: &Option<T>, name: impl Fn(&T) -> String) -> String {
        object.as_ref().map_or("-".to_owned(), name)
    }
    let pod = |pod: &Arc<Pod>| format!("{}@{}", pod.name, pod.node_name.as_deref().unwrap_or(""));
    let what = match &note.fact {
        Fact::Pending(pending) => format!("pending {}", pod(pending)),
        Fact::Assumed(assumed) => format!("assumed {}", pod(assumed)),
        Fact::NotPending(uid) => format!("not pending {uid}"),
        Fact::Changed(Change::Pod(diff)) => {
            format!("{} {}", name(&diff.old, pod), name(&diff.new, pod))
        }
        Fact::Changed(Change::Node(diff)) => {
            let cpu = |node: &Arc<portolan::model::Node>| {
                format!("{}:{}", node.name, node.allocatable.cpu.0)
            };
            format!("{} {}", name(&diff.old, cpu), name(&diff.new, cpu))
        }
        Fact::Changed(Change::Object(diff)) => {
            let name_of = |object: &Object| object.name().to_string();
            format!("{} {}", name(&diff.old, name_of), name(&diff.new, name_of))
        }
        Fact::Changed(other) => format!("{other:?}"),
    };
    format!("{} {what}", note.generation)
}

#[test]
fn a_follower_beyond_its_limit_overflows_and_blocks_no_thread() {
    let (mut writer, _reader) = Engine::inline(Config::default());
    let limit = std::num::NonZeroUsize::new(3).unwrap();
    let (limited, unlimited) = (writer.follow_at_most(limit), writer.follow());
    for at in 0..3 {
        writer.add_node(node(format!("n{at}")).build()).unwrap();
    }
    writer.publish();
    assert_eq!(limited.len(), 3);
    assert_eq!(limited.next_until(None).unwrap().generation.0, 1);
    for at in 3..9 {
        writer.add_node(node(format!("n{at}")).build()).unwrap();
        writer.publish();
    }
    let notes = [(); 5].map(|()| limited.try_next().map(|note| note.generation.0));
    let (overflowed, closed) = (NoNote::Overflowed, NoNote::Closed);
    assert_eq!(notes, [Ok(2), Ok(3), Ok(4), Err(overflowed), Err(closed)]);
    assert_eq!(unlimited.len(), 9);
}

#[test]
fn a_follower_waits_until_its_deadline_for_a_note_or_the_end() {
    let (mut writer, _reader) = Engine::inline(Config::default());
    let follower = writer.follow();
    let soon = || Some(std::time::Instant::now() + std::time::Duration::from_millis(1));
    assert_eq!(follower.next_until(soon()).unwrap_err(), NoNote::Empty);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            [follower.next_until(None), follower.next_until(None)]
                .map(|note| note.map(|note| note.generation.0))
        });
        writer.add_node(node("n1").build()).unwrap();
        writer.publish();
        drop(writer);
        assert_eq!(waits.join().unwrap(), [Ok(1), Err(NoNote::Closed)]);
    });
}

#[test]
fn a_follower_gets_the_effects_of_events_in_order() {
    let (mut writer, _) = Engine::inline(Config::default());
    writer.add_node(node("before").build()).unwrap();
    let follower = writer.follow();
    let space = |labels| Namespace { name: "ns".into(), labels };
    writer.add_node(node("n").cpu(1).build()).unwrap();
    writer.update_node(node("n").cpu(2).build()).unwrap();
    writer.apply(&Event::put_pending(pod("a").build())).unwrap();
    writer.assume_pod(pod("a").on("n").build()).unwrap();
    writer.apply(&Event::put_pending(pod("a").build())).unwrap();
    writer.add_pod(pod("a").on("n").build()).unwrap();
    writer.update_pod(&uid("a"), pod("a").cpu(1).on("n").build()).unwrap();
    writer.remove_pod(&pod("unknown").build()).unwrap_err();
    writer.assume_pod(pod("b").on("n").build()).unwrap();
    writer.apply(&Event::forget(&pod("b").on("n").build())).unwrap();
    writer.apply(&Event::RemovePending(uid("b"))).unwrap();
    writer.put_object(space(Labels::EMPTY)).unwrap();
    writer.put_object(space(Labels::new([("k", "v")]))).unwrap();
    writer.relist(Relist::Pods(vec![pod("c").on("n").build()])).unwrap();
    writer.relist(Relist::Nodes(Vec::new())).unwrap();
    assert_eq!(follower.try_next().unwrap_err(), NoNote::Empty, "no version is published");
    writer.publish();
    let notes: Vec<String> =
        std::iter::from_fn(|| follower.try_next().ok()).map(|n| words(&n)).collect();
    assert_eq!(
        notes,
        [
            "2 - n:1",
            "3 n:1 n:2",
            "4 pending a@",
            // Assuming a pod has no note, and neither does a stale update of an assumed pod.
            "6 assumed a@",
            "7 - a@n",
            "8 a@n a@n",
            "11 b@n -",
            "12 not pending default/b",
            "13 - ns",
            "14 ns ns",
            "15 - c@n",
            "15 a@n -",
            "16 before:0 -",
            "16 n:2 -",
        ]
    );
    drop(writer);
    assert_eq!(follower.try_next().unwrap_err(), NoNote::Closed);
}

#[test]
fn pending_pods_are_not_part_of_a_version() {
    let (mut writer, reader) = Engine::inline(Config::default());
    writer.apply(&Event::put_pending(pod("a").build())).unwrap();
    let placed = writer.apply(&Event::put_pending(pod("b").on("n").build()));
    assert!(matches!(placed, Err(EventError::HasNodeName { .. })));
    assert_eq!(writer.apply(&Event::RemovePending(Uid::new(""))), Err(EventError::EmptyUid));
    assert_eq!(writer.publish(), Generation(3));
    assert_eq!(reader.pin().pod_count(), 0);
}

#[test]
fn a_dropped_follower_is_forgotten() {
    let (mut writer, _) = Engine::inline(Config::default());
    let (gone, stays) = (writer.follow(), writer.follow());
    drop(gone);
    for _ in 0..2 {
        writer.add_node(node("n").build()).unwrap();
        writer.publish();
    }
    assert_eq!(stays.len(), 2);
}

/// An engine, and a queue that is fed manually.
struct Fed {
    writer: Writer,
    reader: Reader,
    follower: portolan::cache::Follower,
    queue: SchedulingQueue,
    now: Timestamp,
    fit: PluginSet,
}

impl Fed {
    fn new() -> Fed {
        let config = Config { commit_check: CommitPolicy::Unchecked, ..Config::default() };
        let (mut writer, reader) = Engine::inline(config);
        let follower = writer.follow();
        let framework = Framework::default_profile();
        let fit = framework.plugin_set(["NodeResourcesFit"]);
        let queue = SchedulingQueue::new(framework, QueueConfig::default());
        Fed { writer, reader, follower, queue, now: Timestamp::from_secs(100), fit }
    }

    fn feed(&mut self) {
        self.writer.publish();
        while let Ok(note) = self.follower.try_next() {
            let version = self.reader.snapshot();
            assert!(
                version.generation() >= note.generation,
                "readers see the events of their notes"
            );
            self.queue.take(&note, &version, self.now).unwrap();
            while self.queue.step(1, &version, self.now) {}
        }
    }

    fn reject(&mut self, name: &str) {
        let popped = self.queue.pop(self.now).unwrap();
        assert_eq!(&*popped.pod.name, name);
        let (uid, none) = (popped.pod.uid, PluginSet::EMPTY);
        let version = self.reader.snapshot();
        self.queue
            .add_unschedulable_if_not_present(&uid, self.fit, none, &version, self.now)
            .unwrap();
    }
}

#[test]
fn a_pod_carries_the_event_that_queued_it() {
    let mut fed = Fed::new();
    fed.writer.apply(&Event::put_pending(pod("a").cpu(1_000).build())).unwrap();
    fed.feed();
    assert_eq!(fed.queue.get(&uid("a")).unwrap().generation, Generation(1));
    fed.reject("a");
    fed.writer.add_node(node("n").cpu(100).build()).unwrap();
    fed.feed();
    assert_eq!(fed.queue.place(&uid("a")), Some(Place::Unschedulable), "the node is too small");
    fed.writer.update_node(node("n").cpu(2_000).build()).unwrap();
    fed.feed();
    let popped = fed.queue.pop(fed.now).unwrap();
    assert_eq!(popped.generation, Generation(3));
    assert_eq!(fed.reader.pin().node("n").unwrap().allocatable().cpu.0, 2_000);
}

#[test]
fn a_placed_pod_leaves_the_queue() {
    let mut fed = Fed::new();
    fed.writer.apply(&Event::put_pending(pod("a").build())).unwrap();
    fed.feed();
    fed.writer.add_pod(pod("a").on("n").build()).unwrap();
    fed.feed();
    assert_eq!(fed.queue.figures().pods(), 0);
}

#[test]
fn a_forgotten_pod_wakes_others_but_not_itself() {
    let mut fed = Fed::new();
    for name in ["a", "b"] {
        fed.writer.apply(&Event::put_pending(pod(name).cpu(1).build())).unwrap();
    }
    fed.feed();
    fed.reject("a");
    fed.reject("b");
    fed.writer.assume_pod(pod("a").cpu(1).on("n").build()).unwrap();
    fed.writer.apply(&Event::forget(&pod("a").cpu(1).on("n").build())).unwrap();
    fed.feed();
    assert_eq!(fed.queue.place(&uid("a")), Some(Place::Unschedulable));
    assert_eq!(fed.queue.place(&uid("b")), Some(Place::Backoff));
}

#[test]
fn a_withdrawn_nomination_wakes_pods_of_equal_or_lower_priority() {
    let mut fed = Fed::new();
    let nominated = |node: &str| {
        let mut pod = pod("nominated").priority(5).cpu(1).build();
        pod.nominated_node_name = Some(node.into());
        pod
    };
    for name in [("high", 9), ("low", 5)].map(|(name, p)| pod(name).priority(p).cpu(1).build()) {
        fed.writer.apply(&Event::put_pending(name)).unwrap();
    }
    fed.feed();
    fed.reject("high");
    fed.reject("low");
    fed.writer.apply(&Event::put_pending(nominated("n1"))).unwrap();
    fed.feed();
    assert_eq!(fed.queue.place(&uid("low")), Some(Place::Unschedulable));
    fed.writer.apply(&Event::put_pending(nominated("n2"))).unwrap();
    fed.feed();
    assert_eq!(fed.queue.place(&uid("low")), Some(Place::Backoff));
    assert_eq!(fed.queue.place(&uid("high")), Some(Place::Unschedulable));
}

fn front(engine: &Engine) -> QueueFront {
    QueueFront::new(queue(), engine.follow().unwrap(), engine.reader().unwrap())
}

/// Returns a clock of the queue that starts at `start`.
fn clock(start: Instant) -> impl Fn() -> Timestamp {
    move || Timestamp(1_000_000_000_000 + start.elapsed().as_nanos() as i64)
}

const SOON: Duration = Duration::from_millis(20);

#[test]
fn pop_ends_at_its_deadline_or_when_the_queue_is_closed() {
    let engine = Engine::shared(Config::default());
    let front = front(&engine);
    let now = clock(Instant::now());
    assert_eq!(front.pop(Some(Instant::now() + SOON), &now).unwrap_err(), PopError::Timeout);
    std::thread::scope(|scope| {
        let waiting: Vec<_> =
            (0..3).map(|_| scope.spawn(|| front.pop(None, &now).unwrap_err())).collect();
        front.close();
        for waiting in waiting {
            assert_eq!(waiting.join().unwrap(), PopError::Closed);
        }
    });
}

#[test]
fn a_queue_outlives_its_engine() {
    let engine = Engine::shared(Config::default());
    let front = front(&engine);
    let now = clock(Instant::now());
    drop(engine.submit(Event::put_pending(pod("a").build())).unwrap());
    drop(engine);
    assert_eq!(&*front.pop(None, &now).unwrap().pod.name, "a");
    let from = Instant::now();
    assert_eq!(front.pop(Some(from + SOON), &now).unwrap_err(), PopError::Timeout);
    front.add(pod("b").build(), now()).unwrap();
    assert_eq!(&*front.pop(None, &now).unwrap().pod.name, "b");
}

/// Some threads pop and fail pods, and others submit pods and nodes: every pod is popped, no pod is popped twice, and
/// no thread sleeps while a pod is ready.
#[test]
fn threads_share_all_pods_and_miss_none() {
    const PODS: usize = 2_000;
    const THREADS: usize = 3;
    let engine = Engine::shared(Config::default());
    let front = front(&engine);
    let now = clock(Instant::now());
    let done = AtomicUsize::new(0);
    let popped = std::sync::Mutex::new(BTreeSet::new());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let reader = engine.reader().unwrap();
                loop {
                    let queued = match front.pop(None, &now) {
                        Ok(queued) => queued,
                        Err(PopError::Closed) => return,
                        Err(why) => panic!("{why}"),
                    };
                    assert!(reader.generation() >= queued.generation);
                    let uid = queued.pod.uid.clone();
                    assert!(popped.lock().unwrap().insert(uid.clone()), "{uid} is popped twice");
                    // On its first attempt each pod returns, rejected by a plugin whose events do occur.
                    if queued.attempts == 1 {
                        popped.lock().unwrap().remove(&uid);
                        front.with(|queue, version| {
                            queue.activate(&uid, now());
                            let none = PluginSet::EMPTY;
                            let at = now();
                            let by = Framework::default_profile().plugin_set(["NodeName"]);
                            queue
                                .add_unschedulable_if_not_present(&uid, by, none, version, at)
                                .unwrap();
                        });
                        continue;
                    }
                    front.with(|queue, _| queue.done(&uid));
                    // Relaxed suffices: the thread that counts the last pod closes the queue, and no other memory
                    // depends on the counter.
                    if done.fetch_add(1, Ordering::Relaxed) + 1 == PODS {
                        front.close();
                    }
                }
            });
        }
        for half in 0..2 {
            let (engine, front, now) = (&engine, &front, &now);
            scope.spawn(move || {
                for n in (0..PODS).filter(|n| n % 2 == half) {
                    let made = pod(format!("p{n}")).build();
                    match n % 5 {
                        0 => drop(front.add(made, now()).unwrap()),
                        _ => drop(engine.submit(Event::put_pending(made)).unwrap()),
                    }
                    if n % 50 == 0 {
                        drop(
                            engine.submit(Event::add_node(node(format!("n{n}")).build())).unwrap(),
                        );
                    }
                }
            });
        }
    });
    assert_eq!(done.into_inner(), PODS);
    assert_eq!(front.with(|queue, _| queue.figures().pods()), 0);
}

#[test]
fn a_thread_that_tends_the_queue_handles_events() {
    let engine = Engine::shared(Config::default());
    let front = front(&engine);
    for n in 0..200 {
        let event = Event::PutPending(Arc::new(pod(format!("p{n}")).build()));
        drop(engine.submit(event).unwrap());
    }
    front.tend(|| Timestamp::from_secs(1));
    assert_eq!(front.with(|queue, _| queue.figures().active), 200);
}
