//! Models of the queue's hand-over, from the log through the follower to `pop`, and of threads waiting for it.
//!
//! They run all shipped code but the channels, which have a stand-in. Loom reports a lost wake-up as a deadlock.
#![cfg(loom)]

use std::sync::Arc;

use loom::thread;
use loom_tests::{Bound, explore};
use portolan::Framework;
use portolan::cache::{Config, Engine, Event, Reader, Writer};
use portolan::model::{Pod, Timestamp, pod};
use portolan::scheduler::queue::{PopError, QueueConfig, QueueFront, SchedulingQueue};

fn now() -> Timestamp {
    Timestamp::from_secs(1)
}

/// Creates a writer, a reader of its versions, and a queue that follows it.
fn fed_queue() -> (Writer, Reader, Arc<QueueFront>) {
    let (mut writer, reader) = Engine::inline(Config::default());
    let queue = SchedulingQueue::new(Framework::default_profile(), QueueConfig::default());
    let front = QueueFront::new(queue, writer.follow(), writer.reader());
    (writer, reader, Arc::new(front))
}

fn wanted(name: &str) -> Pod {
    pod(name.to_owned()).build()
}

fn pop(front: &QueueFront) -> Result<String, PopError> {
    front.pop(None, now).map(|popped| popped.pod.name.to_string())
}

#[test]
fn a_popped_pod_is_in_the_version_that_a_reader_takes() {
    explore("a_popped_pod_is_in_the_version_that_a_reader_takes", Bound::Exhaustive, || {
        let (mut writer, mut reader, front) = fed_queue();
        let popper = thread::spawn(move || {
            let popped = front.pop(None, now).unwrap();
            let decided_on = reader.refresh().generation();
            assert!(decided_on >= popped.generation, "{decided_on:?} is before the pod");
        });
        writer.apply(&Event::put_pending(wanted("p"))).unwrap();
        writer.publish();
        popper.join().unwrap();
    });
}

#[test]
fn each_pod_is_popped_once() {
    explore("each_pod_is_popped_once", Bound::ExhaustiveAtNight(3), || {
        let (mut writer, _, front) = fed_queue();
        let other = Arc::clone(&front);
        let popper = thread::spawn(move || pop(&other).unwrap());
        writer.apply(&Event::put_pending(wanted("p"))).unwrap();
        writer.apply(&Event::put_pending(wanted("q"))).unwrap();
        writer.publish();
        let mut popped = [pop(&front).unwrap(), popper.join().unwrap()];
        popped.sort_unstable();
        assert_eq!(popped, ["p", "q"]);
    });
}

#[test]
fn two_waiting_threads_pop_each_pod_once() {
    explore("two_waiting_threads_pop_each_pod_once", Bound::Preemptions(3), || {
        let (mut writer, _, front) = fed_queue();
        let poppers = [(); 2].map(|()| {
            let front = Arc::clone(&front);
            thread::spawn(move || pop(&front).unwrap())
        });
        writer.apply(&Event::put_pending(wanted("p"))).unwrap();
        writer.apply(&Event::put_pending(wanted("q"))).unwrap();
        writer.publish();
        let mut popped = poppers.map(|popper| popper.join().unwrap());
        popped.sort_unstable();
        assert_eq!(popped, ["p", "q"]);
    });
}

#[test]
fn a_pod_added_directly_wakes_a_waiting_thread() {
    explore("a_pod_added_directly_wakes_a_waiting_thread", Bound::Exhaustive, || {
        let (_writer, _, front) = fed_queue();
        let other = Arc::clone(&front);
        let popper = thread::spawn(move || pop(&other));
        front.add(wanted("p"), now()).unwrap();
        assert_eq!(popper.join().unwrap().unwrap(), "p");
    });
}

#[test]
fn closing_ends_every_pop() {
    explore("closing_ends_every_pop", Bound::Preemptions(3), || {
        let (_writer, _, front) = fed_queue();
        let poppers = [(); 2].map(|()| {
            let front = Arc::clone(&front);
            thread::spawn(move || pop(&front))
        });
        front.close();
        for popper in poppers {
            assert_eq!(popper.join().unwrap(), Err(PopError::Closed));
        }
        assert_eq!(pop(&front), Err(PopError::Closed));
    });
}

#[test]
fn closing_during_a_push_loses_no_wake_up() {
    explore("closing_during_a_push_loses_no_wake_up", Bound::ExhaustiveAtNight(3), || {
        let (mut writer, _, front) = fed_queue();
        let other = Arc::clone(&front);
        let popper = thread::spawn(move || match pop(&other) {
            Ok(name) => assert_eq!((name.as_str(), pop(&other)), ("p", Err(PopError::Closed))),
            Err(error) => assert_eq!(error, PopError::Closed),
        });
        writer.apply(&Event::put_pending(wanted("p"))).unwrap();
        writer.publish();
        front.close();
        popper.join().unwrap();
    });
}

#[test]
fn a_queue_outlives_the_engine_that_feeds_it() {
    explore("a_queue_outlives_the_engine_that_feeds_it", Bound::Exhaustive, || {
        let (writer, _, front) = fed_queue();
        let other = Arc::clone(&front);
        let popper = thread::spawn(move || pop(&other));
        drop(writer);
        front.add(wanted("p"), now()).unwrap();
        assert_eq!(popper.join().unwrap().unwrap(), "p");
    });
}
