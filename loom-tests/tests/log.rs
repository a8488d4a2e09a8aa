//! The log and the writer token: nothing is left lying, nothing is lost.
#![cfg(loom)]

use std::sync::Arc as StdArc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loom::sync::Arc;
use loom::thread;
use portolan::log::{Fold, Log};

/// Counts events, and tells what each found before it.
struct Count {
    folded: usize,
    published: Arc<loom::sync::atomic::AtomicUsize>,
}

impl Fold for Count {
    type Event = usize;
    type Outcome = usize;

    fn fold(&mut self, event: usize) -> usize {
        self.folded += event;
        self.folded
    }

    fn publish(&mut self) {
        self.published.store(self.folded, loom::sync::atomic::Ordering::Release);
    }
}

fn log(capacity: usize) -> Arc<Log<Count>> {
    let published = Arc::new(loom::sync::atomic::AtomicUsize::new(0));
    Arc::new(Log::new(Count { folded: 0, published }, capacity))
}

/// Runs a model, and fails where it explored one execution only.
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

#[test]
fn two_submitters_both_get_their_outcome() {
    explore("two_submitters_both_get_their_outcome", || {
        let log = log(4);
        let other = log.clone();
        let thread = thread::spawn(move || other.submit(1).unwrap().wait().unwrap());
        let mine = log.submit(10).unwrap().wait().unwrap();
        let theirs = thread.join().unwrap();
        assert!(matches!((mine, theirs), (10, 11) | (11, 1)), "{mine} {theirs}");
        assert!(log.is_empty());
        log.with(|count| assert_eq!(count.folded, 11)).unwrap();
    });
}

#[test]
fn who_has_an_outcome_finds_it_published() {
    explore("who_has_an_outcome_finds_it_published", || {
        let log = log(4);
        let published = log.with(|count| count.published.clone()).unwrap();
        let other = log.clone();
        let seen = published.clone();
        let thread = thread::spawn(move || {
            let outcome = other.submit(1).unwrap().wait().unwrap();
            assert!(seen.load(loom::sync::atomic::Ordering::Acquire) >= outcome);
        });
        let outcome = log.submit(10).unwrap().wait().unwrap();
        assert!(published.load(loom::sync::atomic::Ordering::Acquire) >= outcome);
        thread.join().unwrap();
    });
}

#[test]
fn nobody_leaves_an_event_lying() {
    explore("nobody_leaves_an_event_lying", || {
        let log = log(4);
        let other = log.clone();
        let thread = thread::spawn(move || other.post(1).unwrap());
        log.post(10).unwrap();
        thread.join().unwrap();
        // Nobody waited for an outcome, and still nothing is left.
        assert!(log.is_empty());
    });
}

#[test]
fn a_full_log_loses_nothing() {
    explore("a_full_log_loses_nothing", || {
        let log = log(1);
        let other = log.clone();
        let thread = thread::spawn(move || other.submit(1).unwrap().wait().unwrap());
        log.post(10).unwrap();
        log.post(100).unwrap();
        thread.join().unwrap();
        log.with(|count| assert_eq!(count.folded, 111)).unwrap();
    });
}

#[test]
fn closing_answers_every_accepted_event() {
    explore("closing_answers_every_accepted_event", || {
        let log = log(2);
        let other = log.clone();
        let thread = thread::spawn(move || match other.submit(1) {
            Ok(ticket) => assert_eq!(ticket.wait().unwrap(), 1),
            Err(closed) => assert_eq!(closed.0, 1),
        });
        log.close();
        thread.join().unwrap();
        assert!(log.is_empty());
    });
}
