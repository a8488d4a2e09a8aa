//! Tests the log's promises with real threads. The models explore the interleavings.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::*;

/// Keeps the events it folds, and shows how many of them are published.
#[derive(Default)]
struct Journal {
    events: Vec<u64>,
    published: Arc<AtomicU64>,
    publishes: usize,
}

/// An event that makes the fold panic.
const POISON: u64 = u64::MAX;

impl Fold for Journal {
    type Event = u64;
    /// The event's position in the order, from 1.
    type Outcome = u64;

    fn fold(&mut self, event: u64) -> u64 {
        if event == POISON {
            std::panic::panic_any("poisoned");
        }
        self.events.push(event);
        self.events.len() as u64
    }

    fn publish(&mut self) {
        self.publishes += 1;
        self.published.store(self.events.len() as u64, Ordering::Release);
    }
}

fn journal(capacity: usize) -> (Arc<Log<Journal>>, Arc<AtomicU64>) {
    let published = Arc::new(AtomicU64::new(0));
    let log =
        Log::new(Journal { published: Arc::clone(&published), ..Journal::default() }, capacity);
    (Arc::new(log), published)
}

/// Submits an event that no thread folds: this thread holds the token, and releases it without serving.
fn leave_in<F: Fold>(log: &Log<F>, event: F::Event) -> Ticket<F::Outcome> {
    let held = log.token.take();
    let ticket = log.submit(event).expect("the log is open");
    log.token.release(held);
    ticket
}

/// Submits `count` events from each of `threads` threads, and checks that each thread sees its own events.
fn submit_from(threads: u64, count: u64, log: &Arc<Log<Journal>>, published: &Arc<AtomicU64>) {
    let start = Barrier::new(threads as usize);
    thread::scope(|scope| {
        for name in 0..threads {
            let start = &start;
            scope.spawn(move || {
                start.wait();
                for number in 0..count {
                    let ticket = log.submit(name << 32 | number).expect("the log is open");
                    if number % 3 == 0 {
                        let place = ticket.wait().expect("it was folded");
                        assert!(
                            published.load(Ordering::Acquire) >= place,
                            "answered before it was published"
                        );
                    }
                }
            });
        }
    });
}

/// Asserts that every event occurs once, and each thread's events are in order.
fn assert_complete(events: &[u64], threads: u64, count: u64) {
    let mut next = HashMap::new();
    for event in events {
        let expected = next.entry(event >> 32).or_insert(0);
        assert_eq!(event & 0xffff_ffff, *expected);
        *expected += 1;
    }
    assert_eq!(next.len() as u64, threads);
    assert!(next.values().all(|&seen| seen == count));
}

#[test]
fn a_lone_submitter_folds_its_own_event() {
    let (log, published) = journal(4);
    let ticket = log.submit(7).expect("open");
    assert!(ticket.is_answered());
    assert_eq!(ticket.wait().ok(), Some(1));
    assert_eq!(published.load(Ordering::Relaxed), 1);
}

#[test]
fn threads_lose_nothing_keep_their_order_and_see_their_own_events() {
    for (threads, capacity) in [(2, 1024), (2, 2), (4, 1)] {
        let (log, published) = journal(capacity);
        submit_from(threads, 5_000, &log, &published);
        let events = log.with(|journal| journal.events.clone()).expect("no panic");
        assert_complete(&events, threads, 5_000);
        assert!(log.is_empty());
    }
}

#[test]
fn try_submit_and_try_post_return_the_event_if_the_log_is_full() {
    let (log, _) = journal(2);
    log.with(|_| {
        assert!(log.try_submit(1).is_ok());
        assert!(log.try_post(2).is_ok());
        assert!(matches!(log.try_submit(3), Err(TrySubmitError::Full(3))));
        assert!(matches!(log.try_post(4), Err(TrySubmitError::Full(4))));
    })
    .expect("no panic");
    // The token's holder folded the events that arrived meanwhile.
    assert!(log.is_empty());
    assert_eq!(log.with(|journal| journal.events.clone()), Ok(vec![1, 2]));
}

#[test]
fn one_publish_serves_a_batch() {
    let (log, _) = journal(1000);
    log.with(|_| (0..1000).for_each(|event| log.try_post(event).expect("there is room")))
        .expect("no panic");
    assert_eq!(log.with(|journal| (journal.events.len(), journal.publishes)), Ok((1000, 4)));
}

#[test]
fn with_finds_ones_own_events_folded() {
    let (log, _) = journal(64);
    thread::scope(|scope| {
        for name in 0..2_u64 {
            let log = &log;
            scope.spawn(move || {
                for number in 0..2_000 {
                    let event = name << 32 | number;
                    log.post(event).expect("open");
                    let found = log
                        .with(|journal| journal.events.iter().rev().any(|&folded| folded == event));
                    assert_eq!(found, Ok(true));
                }
            });
        }
    });
}

#[test]
fn closing_answers_accepted_events_and_refuses_later_ones() {
    let (log, _) = journal(16);
    thread::scope(|scope| {
        let submitters: Vec<_> = (0..3_u64)
            .map(|_| {
                scope.spawn(|| {
                    let mut accepted = 0;
                    while let Ok(ticket) = log.submit(accepted) {
                        accepted += 1;
                        if accepted % 2 == 0 {
                            ticket.wait().expect("accepted, so folded");
                        }
                    }
                    accepted
                })
            })
            .collect();
        while log.with(|journal| journal.events.len()).expect("no panic") < 1_000 {
            thread::yield_now();
        }
        log.close();
        let accepted: u64 =
            submitters.into_iter().map(|thread| thread.join().expect("no panic")).sum();
        assert_eq!(log.with(|journal| journal.events.len() as u64), Ok(accepted));
        assert!(log.is_empty());
    });
    assert!(matches!(log.submit(9), Err(Unavailable::Closed(9))));
    assert!(matches!(log.try_submit(9), Err(TrySubmitError::Closed(9))));
}

#[test]
fn a_panic_in_the_fold_closes_the_log_and_blocks_no_thread() {
    let (log, _) = journal(16);
    let mut tickets = Vec::new();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        log.with(|_| {
            tickets
                .extend([1, POISON, 2].map(|event| log.try_submit(event).expect("there is room")))
        })
    }));
    assert!(panicked.is_err(), "the panic resumes in the thread that held the token");
    for ticket in tickets {
        assert!(matches!(ticket.wait(), Err(TryWaitError::Closed)));
    }
    assert!(log.is_closed() && log.is_empty());
    assert!(matches!(log.submit(3), Err(Unavailable::Closed(3))));
    assert_eq!(log.with(|_| ()), Err(Unavailable::Closed(())));
    log.close();
}

#[test]
fn other_threads_get_errors_for_a_panic_and_never_panic() {
    let (log, _) = journal(4);
    let outcomes = thread::scope(|scope| {
        let others: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    catch_unwind(AssertUnwindSafe(|| {
                        let mut event = 0;
                        while let Ok(ticket) = log.submit(event) {
                            event += 1;
                            let _ = ticket.wait();
                        }
                    }))
                    .is_ok()
                })
            })
            .collect();
        let mine =
            catch_unwind(AssertUnwindSafe(|| log.submit(POISON).map(|ticket| ticket.wait())))
                .is_ok();
        let mut fine: Vec<bool> =
            others.into_iter().map(|thread| thread.join().expect("caught")).collect();
        fine.push(mine);
        fine
    });
    // Exactly one thread folded the poison.
    assert_eq!(outcomes.iter().filter(|fine| !**fine).count(), 1);
}

#[test]
fn dropping_the_log_folds_what_it_accepted() {
    let (log, published) = journal(16);
    let ticket = leave_in(&log, 1);
    assert!(!ticket.is_answered());
    drop(log);
    assert_eq!(ticket.wait().ok(), Some(1));
    assert_eq!(published.load(Ordering::Relaxed), 1);
}

#[test]
fn a_tired_holder_is_relieved_and_events_stay_in_order() {
    // The threads flood the log and never wait. Without relief the first holder would fold for all of them.
    let (log, _) = journal(512);
    thread::scope(|scope| {
        for name in 0..3_u64 {
            let log = &log;
            scope.spawn(move || {
                (0..50_000).for_each(|number| log.post(name << 32 | number).expect("open"))
            });
        }
    });
    let events = log.with(|journal| std::mem::take(&mut journal.events)).expect("no panic");
    assert_complete(&events, 3, 50_000);
}

/// Returns the result of `work`, or `None` if it hangs.
fn ends<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> Option<R> {
    let (done, result) = mpsc::channel();
    thread::spawn(move || done.send(work()));
    result.recv_timeout(Duration::from_secs(20)).ok()
}

#[test]
fn waiting_for_the_writer_is_refused_within_the_writer() {
    let answers = ends(|| {
        let (log, _) = journal(2);
        let (within, ticket) = log
            .with(|_| {
                let ticket = match log.submit(1).expect("there is room").wait() {
                    Err(TryWaitError::OwnThread(ticket)) => ticket,
                    other => panic!("{other:?}"),
                };
                let ticket = match ticket.wait_deadline(Instant::now() + Duration::from_secs(3600))
                {
                    Err(TryWaitError::OwnThread(ticket)) => ticket,
                    other => panic!("{other:?}"),
                };
                log.post(2).expect("there is room");
                (
                    (
                        log.with(|_| ()),
                        log.submit(3).map(drop),
                        log.post(4),
                        matches!(log.try_post(5), Err(TrySubmitError::Full(5))),
                    ),
                    ticket,
                )
            })
            .expect("no panic");
        (within, ticket.wait().ok(), log.with(|journal| journal.events.clone()))
    });
    let refused = (
        Err(Unavailable::OwnThread(())),
        Err(Unavailable::OwnThread(3)),
        Err(Unavailable::OwnThread(4)),
        true,
    );
    assert_eq!(answers, Some((refused, Some(1), Ok(vec![1, 2]))));
}

#[test]
fn with_first_folds_the_events_submitted_before() {
    let (log, _) = journal(4);
    drop(leave_in(&log, 1));
    assert_eq!(log.with(|journal| journal.events.clone()), Ok(vec![1]));
}

#[test]
fn the_capacity_is_clamped() {
    assert_eq!(Log::new(Jobs, 0).capacity(), 1);
    assert_eq!(Log::new(Jobs, usize::MAX).capacity(), 1 << 20);
}

#[test]
fn a_log_that_is_closed_within_its_writer_folds_what_it_accepted() {
    let folded = ends(|| {
        let (log, _) = journal(4);
        let ticket = log.with(|_| {
            let ticket = log.submit(7).expect("open");
            log.close();
            assert!(matches!(log.post(8), Err(Unavailable::Closed(8))));
            ticket
        });
        ticket.expect("no panic").wait().ok()
    });
    assert_eq!(folded, Some(Some(1)));
}

/// A fold that runs its events.
struct Jobs;

impl Fold for Jobs {
    type Event = Box<dyn FnOnce() + Send>;
    type Outcome = ();

    fn fold(&mut self, job: Self::Event) {
        job();
    }

    fn publish(&mut self) {}
}

/// A fold that runs its events, and whose publishes take long.
struct SlowJobs;

impl Fold for SlowJobs {
    type Event = Box<dyn FnOnce() + Send>;
    type Outcome = ();

    fn fold(&mut self, job: Self::Event) {
        job();
    }

    fn publish(&mut self) {
        (0..200).for_each(|_| thread::yield_now());
    }
}

#[test]
fn a_close_that_another_thread_relieves_waits_until_all_events_have_outcomes() {
    // The last batch is folded by the other thread.
    const EVENTS: usize = 4 * 256 + 200;
    for keeps in [Duration::ZERO, Duration::from_millis(10)].into_iter().cycle().take(20) {
        let log = Arc::new(Log::new(SlowJobs, 2 * EVENTS));
        let (wants, wanted) = mpsc::channel();
        let (closed, is_closed) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let of_other = Arc::clone(&log);
            let other = scope.spawn(move || {
                wanted.recv().expect("an event is folded");
                // Holds the token, and so the remaining events, until the other thread has closed the log or should have.
                let _ = of_other.with(|_| is_closed.recv_timeout(keeps));
            });
            let held = log.token.take();
            let job = move || {
                let _ = wants.send(());
                (0..100).for_each(|_| thread::yield_now());
            };
            let mut tickets = vec![log.submit(Box::new(job)).expect("open")];
            tickets.extend((1..EVENTS).map(|_| log.submit(Box::new(|| {})).expect("open")));
            log.token.release(held);
            log.close();
            let pending = tickets.iter().filter(|ticket| !ticket.is_answered()).count();
            assert_eq!(pending, 0, "events without an outcome");
            let _ = closed.send(());
            other.join().expect("no panic");
        });
    }
}

#[test]
fn the_writers_of_two_logs_may_call_each_other() {
    let (outer, _) = journal(4);
    let (inner, _) = journal(4);
    let found = outer.with(|_| {
        let place = inner.submit(5).expect("open").wait().ok();
        (place, inner.with(|journal| journal.events.len()), outer.with(|_| ()))
    });
    assert_eq!(found, Ok((Some(1), Ok(1), Err(Unavailable::OwnThread(())))));
    assert_eq!(outer.with(|_| ()), Ok(()));
}

#[test]
fn the_handles_are_send_and_sync() {
    fn shared<T: Send + Sync>() {}
    shared::<Log<Journal>>();
    shared::<Ticket<u64>>();
}

/// The payload of a panic. Its destructor panics, and so does that of the next payload.
struct Bomb(u8);

impl Drop for Bomb {
    fn drop(&mut self) {
        if let Some(left) = self.0.checked_sub(1) {
            std::panic::panic_any(Bomb(left));
        }
    }
}

/// Panics with a [`Bomb`] on every event.
struct Explodes;

impl Fold for Explodes {
    type Event = ();
    type Outcome = ();

    fn fold(&mut self, (): ()) {
        std::panic::panic_any(Bomb(2));
    }

    fn publish(&mut self) {}
}

type Tickets = Arc<Mutex<Vec<Ticket<()>>>>;

/// A fold that reports, in each clean-up, whether these tickets have been answered. Panics then if its event is `true`.
struct Cleans {
    tickets: Tickets,
    cleaned: mpsc::Sender<bool>,
    panics: bool,
}

impl Fold for Cleans {
    type Event = bool;
    type Outcome = ();

    fn fold(&mut self, panics: bool) {
        self.panics = panics;
    }

    fn publish(&mut self) {}

    fn clean_up(&mut self) {
        let tickets = self.tickets.lock().expect("no panic");
        let _ = self.cleaned.send(tickets.iter().all(Ticket::is_answered));
        drop(tickets);
        if self.panics {
            std::panic::panic_any("cannot clean up");
        }
    }
}

/// A log in which an event waits, the event's ticket, and the clean-ups.
fn to_clean(panics: bool) -> (Log<Cleans>, Tickets, mpsc::Receiver<bool>) {
    let tickets = Tickets::default();
    let (cleaned, cleanings) = mpsc::channel();
    let log = Log::new(Cleans { tickets: Arc::clone(&tickets), cleaned, panics: false }, 4);
    tickets.lock().expect("no panic").push(leave_in(&log, panics));
    (log, tickets, cleanings)
}

#[test]
fn a_batch_is_cleaned_up_once_after_its_tickets_are_answered() {
    let (log, _tickets, cleanings) = to_clean(false);
    assert_eq!(log.with(|_| ()), Ok(()));
    assert_eq!(cleanings.try_iter().collect::<Vec<_>>(), [true]);
    let (log, _tickets, cleanings) = to_clean(false);
    drop(log);
    assert_eq!(cleanings.try_iter().collect::<Vec<_>>(), [true], "in the drop of the log");
}

#[test]
fn a_panic_while_cleaning_up_closes_the_log_but_keeps_the_outcomes() {
    let (log, tickets, _cleanings) = to_clean(true);
    assert!(!returns(|| assert_eq!(log.with(|_| ()), Ok(()))));
    let ticket = tickets.lock().expect("no panic").pop().expect("one event");
    assert!(matches!(ticket.wait(), Ok(())));
    assert!(matches!(log.post(false), Err(Unavailable::Closed(false))));
    assert!(matches!(log.with(|_| ()), Err(Unavailable::Closed(()))));
}

/// Returns whether `work` returns, and forgets the payload if it panics.
fn returns(work: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(work)).map_err(std::mem::forget).is_ok()
}

#[test]
fn a_payload_that_panics_when_dropped_does_not_leave_the_drop_of_a_log() {
    let log = Log::new(Explodes, 4);
    let ticket = leave_in(&log, ());
    assert!(returns(|| drop(log)));
    assert!(matches!(ticket.wait(), Err(TryWaitError::Closed)));
}
