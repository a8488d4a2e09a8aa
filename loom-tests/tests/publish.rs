//! Publication: no wake-up is lost, versions never go back.
#![cfg(loom)]

use std::sync::Arc as StdArc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loom::thread;
use portolan::publish::{Publisher, Subscription, Versioned};

struct Number(u64);

impl Versioned for Number {
    fn version(&self) -> u64 {
        self.0
    }
}

fn explore(name: &str, model: impl Fn() + Sync + Send + 'static) {
    let executions = StdArc::new(AtomicUsize::new(0));
    let counted = executions.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let executions = executions.load(Ordering::Relaxed);
    println!("MODEL {name}: {executions} executions");
    assert!(executions > 1, "{name} explored nothing");
}

fn start() -> (Publisher<Number>, Subscription<Number>) {
    let publisher: Publisher<Number> = Publisher::new(StdArc::new(Number(0)));
    let subscription = publisher.subscribe();
    (publisher, subscription)
}

#[test]
fn who_waits_for_a_version_is_woken() {
    explore("who_waits_for_a_version_is_woken", || {
        let (mut publisher, subscription) = start();
        let waiter = thread::spawn(move || subscription.at_least(1, None).unwrap().version());
        publisher.publish(StdArc::new(Number(1))).unwrap();
        assert_eq!(waiter.join().unwrap(), 1);
    });
}

#[test]
fn who_waits_is_told_that_the_publisher_is_gone() {
    explore("who_waits_is_told_that_the_publisher_is_gone", || {
        let (publisher, subscription) = start();
        let waiter = thread::spawn(move || subscription.at_least(1, None).is_err());
        drop(publisher);
        assert!(waiter.join().unwrap());
    });
}

#[test]
fn a_reader_never_sees_an_older_version_than_before() {
    explore("a_reader_never_sees_an_older_version_than_before", || {
        let (mut publisher, mut subscription) = start();
        let reader = thread::spawn(move || {
            let held = subscription.snapshot();
            let pinned = subscription.pin().version();
            assert!(held.version() <= pinned);
            let announced = subscription.published();
            let first = subscription.refresh().version();
            let second = subscription.refresh().version();
            assert!(announced <= first && first <= second);
            assert!(first <= subscription.snapshot().version());
        });
        publisher.publish(StdArc::new(Number(1))).unwrap();
        publisher.publish(StdArc::new(Number(2))).unwrap();
        reader.join().unwrap();
    });
}
