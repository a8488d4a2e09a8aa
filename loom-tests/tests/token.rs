//! Models of the log and its token: no accepted event is stranded, lost, or answered before readers can see it.
#![cfg(loom)]

use std::sync::Arc;
use std::sync::atomic::AtomicUsize as StdAtomicUsize;

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread::{self, ThreadId};
use loom_tests::{Bound, explore};
use portolan_publish::log::{Fold, Log, TrySubmitError, Unavailable};

/// Counts the events it folds, and shows the count when it publishes.
struct Counter {
    folded: Vec<u32>,
    /// The thread that folded each event.
    by: Vec<ThreadId>,
    shown: Arc<AtomicUsize>,
}

impl Fold for Counter {
    type Event = u32;
    type Outcome = usize;

    fn fold(&mut self, event: u32) -> usize {
        self.folded.push(event);
        self.by.push(thread::current().id());
        self.folded.len()
    }

    fn publish(&mut self) {
        // Relaxed: the ticket must provide the ordering.
        self.shown.store(self.folded.len(), Ordering::Relaxed);
    }
}

/// Creates a log, with the count that readers see.
fn log(capacity: usize) -> (Arc<Log<Counter>>, Arc<AtomicUsize>) {
    let shown = Arc::new(AtomicUsize::new(0));
    (
        Arc::new(Log::new(
            Counter { folded: Vec::new(), by: Vec::new(), shown: Arc::clone(&shown) },
            capacity,
        )),
        shown,
    )
}

/// Asserts that each of `events` was folded once and that the log is empty.
fn assert_folded(log: &Log<Counter>, events: &[u32]) {
    assert!(log.is_empty(), "an event is stranded");
    let mut folded = log.with(|counter| counter.folded.clone()).unwrap();
    folded.sort_unstable();
    assert_eq!(folded, events);
}

#[test]
fn hand_over_leaves_nothing_in_the_log() {
    // Fire and forget: no thread waits, so only the protocol gets the events folded.
    explore("hand_over_leaves_nothing_in_the_log", Bound::Preemptions(4), || {
        let (log, _) = log(4);
        let other = Arc::clone(&log);
        let submitter = thread::spawn(move || other.post(1).unwrap());
        log.post(2).unwrap();
        submitter.join().unwrap();
        assert_folded(&log, &[1, 2]);
    });
}

#[test]
fn hand_over_between_three_leaves_nothing_in_the_log() {
    explore("hand_over_between_three_leaves_nothing_in_the_log", Bound::Preemptions(2), || {
        let (log, _) = log(4);
        let submitters = [1, 2].map(|event| {
            let log = Arc::clone(&log);
            thread::spawn(move || log.post(event).unwrap())
        });
        log.post(3).unwrap();
        for submitter in submitters {
            submitter.join().unwrap();
        }
        assert_folded(&log, &[1, 2, 3]);
    });
}

#[test]
fn both_submitters_see_their_own_outcome() {
    explore("both_submitters_see_their_own_outcome", Bound::Preemptions(3), || {
        let (log, shown) = log(4);
        let (other, other_shown) = (Arc::clone(&log), Arc::clone(&shown));
        let submitter = thread::spawn(move || {
            let place = other.submit(1).unwrap().wait().unwrap();
            assert!(
                other_shown.load(Ordering::Relaxed) >= place,
                "answered before it was published"
            );
            place
        });
        let place = log.submit(2).unwrap().wait().unwrap();
        assert!(shown.load(Ordering::Relaxed) >= place, "answered before it was published");
        let other_place = submitter.join().unwrap();
        assert_eq!(place + other_place, 3, "two places in one order");
        assert_folded(&log, &[1, 2]);
    });
}

#[test]
fn full_log_back_pressure_loses_nothing() {
    explore("full_log_back_pressure_loses_nothing", Bound::Preemptions(2), || {
        let (log, _) = log(1);
        let other = Arc::clone(&log);
        let submitter = thread::spawn(move || {
            other.post(1).unwrap();
            other.post(2).unwrap();
        });
        log.post(3).unwrap();
        log.post(4).unwrap();
        submitter.join().unwrap();
        assert_folded(&log, &[1, 2, 3, 4]);
    });
}

#[test]
fn a_refused_event_is_returned() {
    explore("a_refused_event_is_returned", Bound::Preemptions(3), || {
        let (log, _) = log(1);
        let other = Arc::clone(&log);
        let submitter = thread::spawn(move || other.try_post(1).is_ok());
        let accepted = match log.try_post(2) {
            Ok(()) => true,
            Err(TrySubmitError::Full(event)) => {
                assert_eq!(event, 2);
                false
            }
            Err(TrySubmitError::Closed(_)) => panic!("nobody closed the log"),
        };
        let other_accepted = submitter.join().unwrap();
        let expected: Vec<u32> = [(1, other_accepted), (2, accepted)]
            .into_iter()
            .filter_map(|(event, accepted)| accepted.then_some(event))
            .collect();
        assert_folded(&log, &expected);
    });
}

#[test]
fn a_tired_holder_is_relieved_and_leaves_nothing_behind() {
    // A batch holds two events and patience is one batch. So a holder with five events is tired after two. If another
    // thread has promised to take the token, the holder leaves after two more, and that thread folds the fifth.
    let relieved = Arc::new(StdAtomicUsize::new(0));
    let counted = Arc::clone(&relieved);
    let name = "a_tired_holder_is_relieved_and_leaves_nothing_behind";
    explore(name, Bound::Preemptions(3), move || {
        let (log, _) = log(8);
        let other = Arc::clone(&log);
        let holder = thread::current().id();
        let submitter = thread::spawn(move || other.post(9).unwrap());
        log.with(|_| (1..=5).for_each(|event| log.try_post(event).unwrap_or_default())).unwrap();
        submitter.join().unwrap();
        assert_folded(&log, &[1, 2, 3, 4, 5, 9]);
        let by = log.with(|counter| counter.by.clone()).unwrap();
        let last = log.with(|counter| counter.folded.iter().position(|&event| event == 5)).unwrap();
        if last.is_some_and(|at| by[at] != holder) {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    assert!(relieved.load(Ordering::Relaxed) > 0, "nobody was ever relieved");
}

#[test]
fn close_answers_every_accepted_event() {
    explore("close_answers_every_accepted_event", Bound::Preemptions(3), || {
        let (log, _) = log(4);
        let other = Arc::clone(&log);
        let submitter = thread::spawn(move || match other.submit(1) {
            Ok(ticket) => {
                ticket.wait().unwrap();
                true
            }
            Err(Unavailable::Closed(event)) => {
                assert_eq!(event, 1);
                false
            }
            Err(other) => panic!("{other}"),
        });
        let ticket = log.submit(2).unwrap();
        log.close();
        assert!(ticket.wait().is_ok());
        let accepted = submitter.join().unwrap();
        assert_folded(&log, if accepted { &[1, 2] } else { &[2] });
        assert!(log.post(3).is_err());
    });
}
