//! The outcome of one accepted event, handed from whoever folds the event to whoever submitted it.
//!
//! One small allocation, shared by the two ends: [`Ticket`] at the submitter, [`Answer`] in the log. An answer that is
//! dropped without an outcome says so to its ticket, so no way of losing an event (a panic, a log that ends) can leave
//! a ticket waiting. The place is a lock and not an atomic: both ends meet there once, mostly without contention, and
//! the outcome may be of any type without `unsafe`.

use std::fmt;
use std::time::{Duration, Instant};

use super::TryWaitError;
use super::token::TokenId;
use crate::sync::{Arc, AtomicBool, Condvar, Mutex, Ordering, lock, mutated, spin_for, wait};

/// What the two ends share.
struct Shared<O> {
    /// Whether the place is no longer pending: a hint for those who spin or poll, who take the lock afterwards.
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
/// May be dropped without waiting; the event is folded all the same.
#[must_use = "a ticket is the only way to learn an event's outcome: `drop` it if you don't want to know"]
pub struct Ticket<O> {
    shared: Arc<Shared<O>>,
    /// How long to spin for the outcome.
    patience: Duration,
    /// The token of the log that the event is in: who holds it cannot wait.
    token: TokenId,
}

/// The log's end: gives the outcome, once.
pub(crate) struct Answer<O> {
    shared: Arc<Shared<O>>,
}

/// A ticket, and the answer that goes with it.
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
    /// Gives the outcome, and wakes the thread that waits for it.
    pub(crate) fn complete(self, outcome: O) {
        self.shared.answer(Place::Outcome(outcome));
        // The drop that follows finds the place answered, and leaves it.
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
        // Relaxed: a hint; who acts on it takes the lock, which orders the outcome and all that came before it.
        self.answered.store(true, Ordering::Relaxed);
        // After the lock, so that the woken thread does not run into it. The thread set `waiting` under the lock and
        // sleeps by the time we could take it, so it cannot miss this.
        if waiting && !mutated!("ticket-no-notify") {
            self.ready.notify_one();
        }
    }
}

impl<O> Ticket<O> {
    /// The same, of an event in the log that has this token; it spins for up to `patience` before it sleeps.
    pub(super) fn of_log(self, token: TokenId, patience: Duration) -> Self {
        Self { patience, token, ..self }
    }

    /// Waits for the outcome: spins about as long as the log's batches took lately, if a core is free for that, then
    /// sleeps.
    ///
    /// When it returns, readers see what the event did: a batch is published before its tickets are answered.
    /// `Closed` if the event was accepted and could not be folded, because the fold panicked; `OwnThread` if the
    /// calling thread holds the log's writer and would have to fold the event itself. Never `Pending`.
    pub fn wait(self) -> Result<O, TryWaitError<O>> {
        self.wait_for(None)
    }

    /// Waits for the outcome until `deadline`, and gives the ticket back when that passes first.
    pub fn wait_deadline(self, deadline: Instant) -> Result<O, TryWaitError<O>> {
        self.wait_for(Some(deadline))
    }

    /// The outcome if it is there already, or else the ticket back.
    pub fn try_outcome(self) -> Result<O, TryWaitError<O>> {
        if !self.is_answered() {
            return Err(TryWaitError::Pending(self));
        }
        let place = std::mem::replace(&mut *lock(&self.shared.place), Place::Lost);
        self.open(place)
    }

    /// Whether the outcome is there: then no other method waits.
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
    fn a_dropped_ticket_does_not_hold_its_answer_up() {
        let (ticket, answer) = ticket();
        drop(ticket);
        answer.complete(());
    }
}
