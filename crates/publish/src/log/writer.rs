//! The log with its writer: events go in from any thread, and whoever holds the token folds them.
//!
//! One path drains the log, whatever the mode: a batch of bounded size is folded, published once, and only then are its
//! tickets answered, so that a thread that has its outcome finds it in what readers see. Threads that submit do that
//! by turns; an [`Attendant`](super::Attendant) is a thread that does nothing else.
//!
//! A panic in the fold leaves a state that nobody can vouch for. It closes the log, answers everything accepted with
//! `Closed`, and then goes on in the thread in which it happened; other threads get errors and never panic for it.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::OnceLock;

use super::channel::Queue;
use super::pace::{Pace, Watch};
use super::ticket::{Answer, ticket};
use super::token::{Held, PATIENCE, Token};
use super::{Ticket, TrySubmitError, Unavailable};
use crate::sync::{self, AtomicBool, Ordering, fenced, mutated, spin_until};

/// How many events are folded between two publishes, at most.
const BATCH: usize = if cfg!(loom) { 2 } else { 256 };

/// The most room that a log has, in events.
const MOST_CAPACITY: usize = 1 << 20;

/// What the log feeds: the one writer's state.
///
/// Its methods run under the writer token, on whichever thread holds it. They must not submit to the same log and wait
/// (the outcome would have to come from the thread that waits). A panic in one closes the log for good.
pub trait Fold {
    /// What is submitted.
    type Event;
    /// What a submitter learns about its event.
    type Outcome;

    /// Takes one event in. Events come in the order of the log, each exactly once.
    fn fold(&mut self, event: Self::Event) -> Self::Outcome;

    /// Shows readers what was folded: called once a batch, before the batch's tickets are answered, and after a tick.
    fn publish(&mut self);

    /// Does what is due with time and without an event. Called by an attendant, once a period.
    fn tick(&mut self) {}
}

/// A bounded log of events, and the writer that folds them.
///
/// Shared between threads by reference or in an `Arc`:
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
/// let log = Log::new(Sum(0), 64);
/// std::thread::scope(|scope| {
///     scope.spawn(|| log.submit(1).map(|ticket| ticket.wait()));
///     scope.spawn(|| log.post(2));
/// });
/// assert_eq!(log.submit(4)?.wait().ok(), Some(7));
/// # Ok::<(), portolan_publish::log::Unavailable<u64>>(())
/// ```
pub struct Log<F: Fold> {
    pub(super) queue: Queue<Entry<F>>,
    pub(super) token: Token<State<F>>,
    /// Set for good when nothing more is accepted.
    closed: AtomicBool,
    /// The thread that does the folding, where there is one. Submitters then wake it and leave the token alone.
    pub(super) attendant: OnceLock<sync::thread::Thread>,
    /// Set while the attendant sleeps or is about to.
    pub(super) asleep: AtomicBool,
    /// What waiters guess by how long they will have to.
    pace: Pace,
}

pub(super) struct Entry<F: Fold> {
    event: F::Event,
    answer: Option<Answer<F::Outcome>>,
}

/// What the token guards.
pub(super) struct State<F: Fold> {
    fold: F,
    /// Outcomes of the current batch; empty between batches. Kept for its memory.
    outcomes: Vec<(Answer<F::Outcome>, F::Outcome)>,
    /// A fold has panicked: nothing may be folded any more.
    broken: bool,
    watch: Watch,
}

/// What a panic carries.
pub(super) type Panic = Box<dyn Any + Send>;

impl<F: Fold> Log<F> {
    /// A log with room for `capacity` events over `fold`: at least one, and at most 2^20, since the room is allocated.
    pub fn new(fold: F, capacity: usize) -> Self {
        Self {
            queue: Queue::new(capacity.clamp(1, MOST_CAPACITY)),
            token: Token::new(State {
                fold,
                outcomes: Vec::new(),
                broken: false,
                watch: Watch::default(),
            }),
            closed: AtomicBool::new(false),
            attendant: OnceLock::new(),
            asleep: AtomicBool::new(false),
            pace: Pace::new(),
        }
    }

    /// Puts `event` in the log, waiting for room if there is none; the ticket gives its outcome.
    ///
    /// The calling thread may fold and publish, its own event and others', before this returns. Waiting for room is
    /// folding, too: a full log is emptied by those who wait for it. `OwnThread` if there is no room and the calling
    /// thread holds the writer: nobody else could make any.
    pub fn submit(&self, event: F::Event) -> Result<Ticket<F::Outcome>, Unavailable<F::Event>> {
        let (ticket, answer) = ticket();
        self.enter(Entry { event, answer: Some(answer) })?;
        Ok(self.paced(ticket))
    }

    /// Like [`submit`](Self::submit), but gives the event back where it would have to wait for room.
    pub fn try_submit(
        &self,
        event: F::Event,
    ) -> Result<Ticket<F::Outcome>, TrySubmitError<F::Event>> {
        let (ticket, answer) = ticket();
        self.try_enter(Entry { event, answer: Some(answer) })
            .map_err(|error| error.map(|entry| entry.event))?;
        Ok(self.paced(ticket))
    }

    /// The ticket, which knows how to wait if it has to.
    fn paced(&self, ticket: Ticket<F::Outcome>) -> Ticket<F::Outcome> {
        if ticket.is_answered() {
            ticket
        } else {
            ticket.of_log(self.token.id(), self.pace.patience())
        }
    }

    /// Like [`submit`](Self::submit), for an event whose outcome nobody wants to know: nothing is allocated.
    pub fn post(&self, event: F::Event) -> Result<(), Unavailable<F::Event>> {
        self.enter(Entry { event, answer: None })
    }

    /// Like [`try_submit`](Self::try_submit), for an event whose outcome nobody wants to know.
    pub fn try_post(&self, event: F::Event) -> Result<(), TrySubmitError<F::Event>> {
        self.try_enter(Entry { event, answer: None })
            .map_err(|error| error.map(|entry| entry.event))
    }

    /// Runs `work` on the writer's state, under the token, which it waits for.
    ///
    /// Everything that was in the log at the time of the call is folded first, so a thread finds its own events taken in. What
    /// `work` changes it also publishes, if readers shall see it. Possible after [`close`](Self::close), too; an
    /// error when a fold has panicked, or when the calling thread holds the writer already: `work` must not call this
    /// again, nor wait for an event that it submits. A panic in `work` counts as one in a fold.
    pub fn with<R>(&self, work: impl FnOnce(&mut F) -> R) -> Result<R, Unavailable> {
        if self.token.is_held_here() {
            return Err(Unavailable::OwnThread(()));
        }
        // Before the token: what comes in while we wait is not ours to wait for.
        let batches = self.queue.len().div_ceil(BATCH);
        let mut held = self.token.take();
        let drained = (0..batches).try_for_each(|_| self.batch(&mut held.state).map(|_| ()));
        let done = drained.and_then(|()| self.run(&mut held.state, work));
        self.serve(held);
        match done {
            Ok(Some(result)) => Ok(result),
            Ok(None) => Err(Unavailable::Closed(())),
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Accepts nothing more, and folds what was accepted. When it returns, every event whose submission had returned
    /// has its outcome. If the calling thread holds the writer, it folds them when it lets go of it.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        // Pairs with two fences. With the attendant's, between `asleep` and its last look: either it sees that the log is
        // closed, or we see that it sleeps and wake it. And with the one after a push (`Token::after_push`): if the
        // submitter's comes first, the drain below sees its event; if ours does, it sees `closed` after its own, knows
        // that the attendant may be gone, and tries the token itself.
        fenced!("close-fence");
        self.wake_attendant();
        if !self.token.is_held_here() {
            self.serve(self.token.take());
        }
    }

    /// Whether nothing more is accepted.
    pub fn is_closed(&self) -> bool {
        // Relaxed: who needs more than a hint has a fence before it.
        self.closed.load(Ordering::Relaxed)
    }

    /// Whether the calling thread holds the writer, from further up its own stack.
    pub fn is_held_here(&self) -> bool {
        self.token.is_held_here()
    }

    /// How many events are in the log and not folded yet.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether no event waits to be folded.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// For how many events there is room.
    pub fn capacity(&self) -> usize {
        self.queue.capacity()
    }

    fn enter(&self, entry: Entry<F>) -> Result<(), Unavailable<F::Event>> {
        let mut entry = entry;
        loop {
            entry = match self.try_enter(entry) {
                Ok(()) => return Ok(()),
                Err(TrySubmitError::Closed(entry)) => return Err(Unavailable::Closed(entry.event)),
                Err(TrySubmitError::Full(entry)) => entry,
            };
            // Somebody may be making room this moment. If not, make it ourselves: nobody waits for room without
            // working for it, so a full log can't be one that all wait for.
            if self.token.is_held_here() {
                return Err(Unavailable::OwnThread(entry.event));
            }
            if !spin_until(|| self.queue.len() < self.queue.capacity()) {
                self.serve(self.token.take());
            }
        }
    }

    fn try_enter(&self, entry: Entry<F>) -> Result<(), TrySubmitError<Entry<F>>> {
        if self.is_closed() {
            return Err(TrySubmitError::Closed(entry));
        }
        self.queue.push(entry).map_err(TrySubmitError::Full)?;
        self.attend_to_push();
        Ok(())
    }

    /// Sees to it that somebody folds what the caller has just pushed.
    fn attend_to_push(&self) {
        if self.token.is_held_here() {
            // We shall, when we leave.
            return;
        }
        self.token.after_push();
        // After the fence: if this is still open, closing will see the push; see `close`.
        if self.attendant.get().is_some() && !self.is_closed() {
            return self.wake_attendant();
        }
        match self.token.try_take() {
            Some(held) => self.serve(held),
            None if self.token.is_tired() => self.serve(self.token.take()),
            // The holder sees the push when it leaves: argued in `token`.
            None => {}
        }
    }

    fn wake_attendant(&self) {
        let Some(attendant) = self.attendant.get() else { return };
        // Relaxed: the caller's fence orders it after the push, and pairs with the fence that the attendant has
        // between this flag and its look at the log. The swap lets one of many submitters pay for the wake-up.
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            attendant.unpark();
        }
    }

    /// Folds what is in the log, lets go of the token, and leaves nothing behind for which nobody answers.
    pub(super) fn serve<'a>(&'a self, mut held: Held<'a, State<F>>) {
        let mut panicked = None;
        let mut batches = 0;
        loop {
            loop {
                match self.batch(&mut held.state) {
                    Ok(0) => break,
                    Ok(_) => batches += 1,
                    Err(panic) => panicked = Some(panic),
                }
                if batches >= PATIENCE {
                    held = match self.token.leave_to_others(held) {
                        Some(held) => held,
                        None => return panicked.map_or((), |panic| resume_unwind(panic)),
                    };
                    self.token.tire();
                }
            }
            self.token.release(held);
            if self.queue.is_empty() || mutated!("token-no-second-look") {
                break;
            }
            held = match self.token.try_take() {
                Some(held) => held,
                None => break,
            };
        }
        if let Some(panic) = panicked {
            resume_unwind(panic);
        }
    }

    /// Folds, publishes and answers one batch; says of how many events.
    fn batch(&self, state: &mut State<F>) -> Result<usize, Panic> {
        if state.broken {
            // Dropping an entry answers its ticket.
            return Ok(std::iter::from_fn(|| self.queue.pop()).take(BATCH).count());
        }
        if self.queue.is_empty() {
            return Ok(0);
        }
        let State { fold, outcomes, watch, .. } = state;
        let begun = self.pace.begin(watch);
        let folded = catch_unwind(AssertUnwindSafe(|| {
            let mut folded = 0;
            while folded < BATCH {
                let Some(entry) = self.queue.pop() else { break };
                folded += 1;
                let outcome = fold.fold(entry.event);
                if let Some(answer) = entry.answer {
                    match mutated!("ticket-before-publish") {
                        true => answer.complete(outcome),
                        false => outcomes.push((answer, outcome)),
                    }
                }
            }
            if folded > 0 {
                fold.publish();
            }
            folded
        }));
        self.pace.end(begun);
        match folded {
            Ok(folded) => {
                // Only now: who has an outcome finds the event in what readers see.
                outcomes.drain(..).for_each(|(answer, outcome)| answer.complete(outcome));
                Ok(folded)
            }
            Err(panic) => Err(self.break_down(state, panic)),
        }
    }

    /// Runs `work` on the fold; `None` if that has panicked before.
    pub(super) fn run<R>(
        &self,
        state: &mut State<F>,
        work: impl FnOnce(&mut F) -> R,
    ) -> Result<Option<R>, Panic> {
        if state.broken {
            return Ok(None);
        }
        let State { fold, .. } = state;
        catch_unwind(AssertUnwindSafe(|| work(fold)))
            .map(Some)
            .map_err(|panic| self.break_down(state, panic))
    }

    /// After a panic: nothing is folded or accepted any more. What was folded in the same batch and not published is
    /// lost to its submitters like the rest.
    fn break_down(&self, state: &mut State<F>, panic: Panic) -> Panic {
        state.broken = true;
        self.closed.store(true, Ordering::Relaxed);
        // No fence of its own: the caller drains the log and lets go of the token, and the fence of that letting go
        // pairs with the one after a push. Either the look that follows it sees the push, or the submitter sees that
        // the log is closed and does not rely on an attendant.
        state.outcomes.clear();
        panic
    }
}

impl<F: Fold> Drop for Log<F> {
    /// Folds what was accepted and is still in the log.
    fn drop(&mut self) {
        let Self { queue, token, .. } = self;
        let state = token.get_mut();
        if state.broken {
            return;
        }
        // A panic in the fold ends here: its message is out, there is nobody left to tell, and the entries that remain
        // answer their tickets when they are dropped.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            let mut outcomes = Vec::new();
            while let Some(entry) = queue.pop() {
                let outcome = state.fold.fold(entry.event);
                outcomes.extend(entry.answer.map(|answer| (answer, outcome)));
            }
            if !outcomes.is_empty() {
                state.fold.publish();
            }
            outcomes.into_iter().for_each(|(answer, outcome)| answer.complete(outcome));
        }));
    }
}

impl<F: Fold> fmt::Debug for Log<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log")
            .field("len", &self.len())
            .field("capacity", &self.capacity())
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}
