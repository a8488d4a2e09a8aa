//! Delivers the outcome of one accepted event from the thread that folds it to the thread that submitted it.
//!
//! Both ends share one small allocation: the submitter has the [`Ticket`], and the log has the [`Answer`]. An answer
//! that is dropped without an outcome marks its ticket as lost. So no way of losing an event (a panic, a log that ends)
//! can leave a ticket waiting. The outcome is behind a lock and not an atomic: each end takes the lock about once,
//! mostly without contention, and the outcome can have any type without `unsafe`.
//!
//! The submitter blocks its thread ([`Ticket::wait`]) or awaits the ticket in a task. One ticket has one owner, so at
//! most one of the two waits, and the place holds a single waiter.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::TryWaitError;
use super::token::TokenId;
use crate::sync::{Arc, AtomicBool, Condvar, Mutex, Ordering, lock, mutated, spin_for, wait, wake};

/// The state that both ends share.
struct Shared<O> {
    /// Whether the place is no longer pending. A hint for threads that spin or poll; they take the lock afterwards.
    answered: AtomicBool,
    place: Mutex<Place<O>>,
    ready: Condvar,
}

enum Place<O> {
    Pending(Waiter),
    Outcome(O),
    Lost,
}

/// The waiter that the answer wakes.
enum Waiter {
    Nobody,
    Thread,
    Task(Waker),
}

/// The submitter's end: waits for the outcome of one accepted event.
///
/// [`wait`](Self::wait) blocks the thread. A ticket is also a [`Future`] with the same output, for any executor:
///
/// ```
/// use portolan_publish::log::{Fold, Log};
///
/// struct Sum(u64);
/// impl Fold for Sum {
///     type Event = u64;
///     type Outcome = u64;
///     fn fold(&mut self, event: u64) -> u64 { self.0 += event; self.0 }
///     fn publish(&mut self) {}
/// }
///
/// async fn add(log: &Log<Sum>, event: u64) -> Option<u64> {
///     log.try_submit(event).ok()?.await.ok()
/// }
///
/// # use std::task::{Context, Poll, Waker};
/// let log = Log::new(Sum(0), 64);
/// let mut task = std::pin::pin!(add(&log, 7));
/// // No other thread holds the writer, so `try_submit` has folded the event, and the first poll finds the outcome.
/// assert_eq!(task.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(Some(7)));
/// ```
///
/// A ticket may be dropped without waiting, even after it was polled; its event is folded anyway. Its task may then be
/// woken once unnecessarily.
///
/// # As a future
///
/// - Only the outcome is awaited. [`Log::submit`](super::Log::submit) itself may fold events on the calling thread and
///   waits while the log is full; [`Log::try_submit`](super::Log::try_submit) does not wait.
/// - A task that holds the log's writer gets `Poll::Pending` and not `OwnThread`: its thread is not blocked, so it can
///   still return from the writer and fold the event.
/// - The thread that folds calls the task's waker, after the batch is published and while it holds the writer. A waker
///   should do no more than schedule its task. If it panics, the panic hook runs, the writer continues, and the task
///   may not be woken.
/// - A ticket that is polled again after it was ready returns `Closed`.
#[must_use = "a ticket is the only way to get an event's outcome: `drop` it to ignore the outcome"]
pub struct Ticket<O> {
    shared: Arc<Shared<O>>,
    /// How long to spin for the outcome.
    patience: Duration,
    /// The token of the log that accepted the event. The token's holder cannot wait for this ticket.
    token: TokenId,
}

/// The log's end: delivers the outcome, once.
pub(crate) struct Answer<O> {
    shared: Arc<Shared<O>>,
}

pub(crate) fn ticket<O>() -> (Ticket<O>, Answer<O>) {
    let shared = Arc::new(Shared {
        answered: AtomicBool::new(false),
        place: Mutex::new(Place::Pending(Waiter::Nobody)),
        ready: Condvar::new(),
    });
    (
        Ticket { shared: Arc::clone(&shared), patience: Duration::ZERO, token: TokenId::NONE },
        Answer { shared },
    )
}

impl<O> Answer<O> {
    /// Delivers the outcome and wakes the waiting thread or task.
    pub(crate) fn complete(self, outcome: O) {
        self.shared.answer(Place::Outcome(outcome));
        // The drop that follows finds the place answered and leaves it.
    }
}

impl<O> Drop for Answer<O> {
    fn drop(&mut self) {
        // Relaxed: only this end writes it.
        if !self.shared.answered.load(Ordering::Relaxed) {
            self.shared.answer(Place::Lost);
        }
    }
}

impl<O> Shared<O> {
    fn answer(&self, answer: Place<O>) {
        let before = std::mem::replace(&mut *lock(&self.place), answer);
        // Relaxed: a hint. A thread that acts on it takes the lock, which orders the outcome and everything before it.
        self.answered.store(true, Ordering::Relaxed);
        // Outside the lock, so that the woken thread does not block on it. A thread notes under the lock that it waits,
        // and was asleep before we could take the lock, so it cannot miss this. A task leaves its waker under the lock.
        match before {
            Place::Pending(Waiter::Thread) if !mutated!("ticket-no-notify") => {
                self.ready.notify_one();
            }
            Place::Pending(Waiter::Task(waker)) if !mutated!("ticket-no-wake") => wake(waker),
            _ => {}
        }
    }
}

impl<O> Ticket<O> {
    /// Attaches the log's token and the time to spin before sleeping.
    pub(super) fn of_log(self, token: TokenId, patience: Duration) -> Self {
        Self { patience, token, ..self }
    }

    /// Waits for the outcome.
    ///
    /// Spins for about the time of a few recent batches, if a core is free for that, and then sleeps. When it returns,
    /// readers see the effect of the event: a batch is published before its tickets are answered.
    ///
    /// # Errors
    ///
    /// `Closed` if the event was accepted but not folded, because the fold panicked. `OwnThread` if the calling thread
    /// holds the log's writer and would itself have to fold the event. Never `Pending`.
    pub fn wait(self) -> Result<O, TryWaitError<O>> {
        self.wait_for(None)
    }

    /// Like [`wait`](Self::wait), but returns the ticket as `Pending` if `deadline` passes first.
    pub fn wait_deadline(self, deadline: Instant) -> Result<O, TryWaitError<O>> {
        self.wait_for(Some(deadline))
    }

    /// Returns the outcome if there is one, or else the ticket.
    pub fn try_outcome(self) -> Result<O, TryWaitError<O>> {
        if !self.is_answered() {
            return Err(TryWaitError::Pending(self));
        }
        let place = std::mem::replace(&mut *lock(&self.shared.place), Place::Lost);
        self.open(place)
    }

    /// Returns whether the outcome is available. If so, no method waits.
    pub(crate) fn is_answered(&self) -> bool {
        // Relaxed: see `Shared::answer`.
        self.shared.answered.load(Ordering::Relaxed)
    }

    fn wait_for(self, deadline: Option<Instant>) -> Result<O, TryWaitError<O>> {
        if !self.is_answered() && self.token.is_held_here() {
            return Err(TryWaitError::OwnThread(self));
        }
        spin_for(self.patience, || self.is_answered());
        let mut place = lock(&self.shared.place);
        let answer = loop {
            match std::mem::replace(&mut *place, Place::Lost) {
                // An earlier poll left the waker of a task that no longer waits. Its drop is the executor's code, so it
                // runs outside the lock.
                Place::Pending(Waiter::Task(waker)) => {
                    *place = Place::Pending(Waiter::Nobody);
                    drop(place);
                    drop(waker);
                    place = lock(&self.shared.place);
                    continue;
                }
                Place::Pending(_) => *place = Place::Pending(Waiter::Thread),
                answer => break answer,
            }
            let limit =
                match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                    Some(left) if left.is_zero() => {
                        *place = Place::Pending(Waiter::Nobody);
                        drop(place);
                        return Err(TryWaitError::Pending(self));
                    }
                    limit => limit,
                };
            place = wait(&self.shared.ready, place, limit);
        };
        drop(place);
        self.open(answer)
    }

    fn open(self, place: Place<O>) -> Result<O, TryWaitError<O>> {
        match place {
            Place::Outcome(outcome) => Ok(outcome),
            Place::Lost => Err(TryWaitError::Closed),
            Place::Pending(_) => Err(TryWaitError::Pending(self)),
        }
    }
}

impl<O> Future for Ticket<O> {
    type Output = Result<O, TryWaitError<O>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if !self.is_answered() {
            // A waker's clone and drop are the executor's code, so they run outside the lock.
            let latest = Waiter::Task(context.waker().clone());
            let mut place = lock(&self.shared.place);
            if let Place::Pending(waiter) = &mut *place {
                let keeps_first =
                    mutated!("ticket-keeps-first-waker") && matches!(waiter, Waiter::Task(_));
                let replaced = if keeps_first { latest } else { std::mem::replace(waiter, latest) };
                drop(place);
                drop(replaced);
                return Poll::Pending;
            }
        }
        let answer = std::mem::replace(&mut *lock(&self.shared.place), Place::Lost);
        Poll::Ready(match answer {
            Place::Outcome(outcome) => Ok(outcome),
            Place::Lost | Place::Pending(_) => Err(TryWaitError::Closed),
        })
    }
}

impl<O> fmt::Debug for Ticket<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("answered", &self.is_answered()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::thread;

    use super::*;
    use crate::sync::wakers::{Panics, Woken};

    fn poll<O>(ticket: &mut Ticket<O>, woken: &Arc<Woken>) -> Poll<Result<O, TryWaitError<O>>> {
        let waker = Waker::from(Arc::clone(woken));
        Pin::new(ticket).poll(&mut Context::from_waker(&waker))
    }

    #[test]
    fn a_ticket_returns_its_outcome_when_it_is_available() {
        let (ticket, answer) = ticket();
        let Err(TryWaitError::Pending(ticket)) = ticket.try_outcome() else {
            panic!("answered too early")
        };
        answer.complete(7);
        assert!(ticket.is_answered());
        assert!(matches!(ticket.try_outcome(), Ok(7)));
    }

    #[test]
    fn a_dropped_answer_closes_its_ticket() {
        let (ticket, answer) = ticket::<u32>();
        drop(answer);
        assert!(matches!(ticket.wait(), Err(TryWaitError::Closed)));
    }

    #[test]
    fn a_deadline_in_the_past_returns_the_ticket() {
        let (ticket, answer) = ticket();
        let past = Instant::now() - Duration::from_secs(1);
        let Err(TryWaitError::Pending(ticket)) = ticket.wait_deadline(past) else {
            panic!("answered too early")
        };
        let Err(TryWaitError::Pending(ticket)) = ticket.wait_deadline(past) else {
            panic!("the first wait took something")
        };
        answer.complete("late");
        assert!(matches!(ticket.wait_deadline(past), Ok("late")));
    }

    #[test]
    fn an_outcome_wakes_the_thread_that_waits() {
        for round in 0..200 {
            let (ticket, answer) = ticket();
            let waiter = thread::spawn(move || ticket.wait());
            if round % 2 == 0 {
                thread::yield_now();
            }
            answer.complete(round);
            assert_eq!(waiter.join().expect("the waiter does not panic").ok(), Some(round));
        }
    }

    #[test]
    fn a_task_gets_its_outcome_after_its_last_waker_is_woken() {
        let (mut ticket, answer) = ticket();
        let (first, last) = (Arc::new(Woken::default()), Arc::new(Woken::default()));
        assert!(poll(&mut ticket, &first).is_pending());
        assert!(poll(&mut ticket, &last).is_pending());
        answer.complete(7);
        assert_eq!((first.count(), last.count()), (0, 1));
        assert!(matches!(poll(&mut ticket, &last), Poll::Ready(Ok(7))));
        assert!(matches!(poll(&mut ticket, &last), Poll::Ready(Err(TryWaitError::Closed))));
    }

    #[test]
    fn an_answered_ticket_takes_no_waker() {
        let (mut ticket, answer) = ticket();
        answer.complete(7);
        let woken = Arc::new(Woken::default());
        assert!(matches!(poll(&mut ticket, &woken), Poll::Ready(Ok(7))));
        assert_eq!((woken.count(), Arc::strong_count(&woken)), (0, 1));
    }

    #[test]
    fn a_dropped_answer_wakes_and_closes_its_task() {
        let (mut ticket, answer) = ticket::<u32>();
        let woken = Arc::new(Woken::default());
        assert!(poll(&mut ticket, &woken).is_pending());
        drop(answer);
        assert_eq!(woken.count(), 1);
        assert!(matches!(poll(&mut ticket, &woken), Poll::Ready(Err(TryWaitError::Closed))));
    }

    #[test]
    fn a_polled_ticket_can_still_be_waited_for() {
        let (mut ticket, answer) = ticket();
        let woken = Arc::new(Woken::default());
        assert!(poll(&mut ticket, &woken).is_pending());
        let waiter = thread::spawn(move || ticket.wait());
        // The waiting thread drops the waker, unless the answer is earlier.
        answer.complete(7);
        assert!(matches!(waiter.join().expect("the waiter does not panic"), Ok(7)));
    }

    /// Notes when it is dropped whether the ticket's lock is free, as a waker needs that submits an event and folds.
    struct Dropped {
        shared: Arc<Shared<u32>>,
        found_free: Arc<AtomicBool>,
    }

    impl std::task::Wake for Dropped {
        fn wake(self: Arc<Self>) {}
    }

    impl Drop for Dropped {
        fn drop(&mut self) {
            self.found_free.store(self.shared.place.try_lock().is_ok(), Ordering::Relaxed);
        }
    }

    #[test]
    fn a_wait_drops_the_waker_of_an_earlier_poll_outside_the_lock() {
        let (mut ticket, answer) = ticket::<u32>();
        let found_free = Arc::new(AtomicBool::new(false));
        let shared = Arc::clone(&ticket.shared);
        let waker = Waker::from(Arc::new(Dropped { shared, found_free: Arc::clone(&found_free) }));
        assert!(Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker)).is_pending());
        drop(waker);
        let past = Instant::now() - Duration::from_secs(1);
        assert!(matches!(ticket.wait_deadline(past), Err(TryWaitError::Pending(_))));
        assert!(found_free.load(Ordering::Relaxed));
        drop(answer);
    }

    #[test]
    fn a_panicking_waker_does_not_stop_the_writer() {
        let (mut ticket, answer) = ticket();
        let waker = Waker::from(Arc::new(Panics));
        assert!(Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker)).is_pending());
        answer.complete(7);
        assert!(matches!(ticket.wait(), Ok(7)));
    }

    #[test]
    fn a_dropped_ticket_does_not_block_its_answer() {
        let (ticket, answer) = ticket();
        drop(ticket);
        answer.complete(());
    }
}
