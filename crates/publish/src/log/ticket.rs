//! Delivers the outcome of one accepted event from the thread that folds it to the thread that submitted it.
//!
//! Both ends share one small allocation: the submitter has the [`Ticket`], and the log has the [`Answer`]. An answer
//! that is dropped without an outcome marks its ticket as lost. So no way of losing an event (a panic, a log that ends)
//! can leave a ticket waiting. The outcome is behind a lock and not an atomic: each end takes the lock about once,
//! mostly without contention, and the outcome can have any type without `unsafe`.

use std::fmt;
use std::time::{Duration, Instant};

use super::TryWaitError;
use super::token::TokenId;
use crate::sync::{Arc, AtomicBool, Condvar, Mutex, Ordering, lock, mutated, spin_for, wait};

/// The state that both ends share.
struct Shared<O> {
    /// Whether the place is no longer pending. A hint for threads that spin or poll; they take the lock afterwards.
    answered: AtomicBool,
    place: Mutex<Place<O>>,
    ready: Condvar,
}

enum Place<O> {
    Pending { waiting: bool },
    Outcome(O),
    Lost,
}

/// The submitter's end: waits for the outcome of one accepted event.
///
/// A ticket may be dropped without waiting; its event is folded anyway.
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

/// Creates a ticket and its answer.
pub(crate) fn ticket<O>() -> (Ticket<O>, Answer<O>) {
    let shared = Arc::new(Shared {
        answered: AtomicBool::new(false),
        place: Mutex::new(Place::Pending { waiting: false }),
        ready: Condvar::new(),
    });
    (
        Ticket { shared: Arc::clone(&shared), patience: Duration::ZERO, token: TokenId::NONE },
        Answer { shared },
    )
}

impl<O> Answer<O> {
    /// Delivers the outcome and wakes the waiting thread.
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
        let mut place = lock(&self.place);
        let waiting = matches!(*place, Place::Pending { waiting: true });
        *place = answer;
        drop(place);
        // Relaxed: a hint. A thread that acts on it takes the lock, which orders the outcome and everything before it.
        self.answered.store(true, Ordering::Relaxed);
        // Outside the lock, so that the woken thread does not block on it. The waiter set `waiting` under the lock and
        // was asleep before we could take the lock, so it cannot miss this.
        if waiting && !mutated!("ticket-no-notify") {
            self.ready.notify_one();
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

    /// Whether the outcome is available. If so, no method waits.
    pub fn is_answered(&self) -> bool {
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
                Place::Pending { .. } => *place = Place::Pending { waiting: true },
                answer => break answer,
            }
            let limit =
                match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                    Some(left) if left.is_zero() => {
                        *place = Place::Pending { waiting: false };
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
            Place::Pending { .. } => Err(TryWaitError::Pending(self)),
        }
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

    #[test]
    fn a_ticket_gives_its_outcome_once_it_is_there() {
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
    fn a_deadline_in_the_past_gives_the_ticket_back() {
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
    fn a_dropped_ticket_does_not_block_its_answer() {
        let (ticket, answer) = ticket();
        drop(ticket);
        answer.complete(());
    }
}
