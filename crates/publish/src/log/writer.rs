//! The log and its writer: any thread submits events, and the thread that holds the token folds them.
//!
//! One code path drains the log, and submitters take turns at it. It folds a batch of bounded size, publishes once, and
//! only then answers the batch's tickets. So a thread that has an outcome finds its event in the published version.
//!
//! A panic in the fold leaves the state in doubt. So it closes the log, answers every accepted event with `Closed`, and
//! then resumes on the thread where it happened. Other threads get errors and never panic because of it.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::channel::Queue;
use super::pace::{Pace, Watch};
use super::ticket::{Answer, ticket};
use super::token::{Held, PATIENCE, Token};
use super::{Ticket, TrySubmitError, Unavailable};
use crate::sync::{AtomicBool, Ordering, contain, mutated, spin_until};

/// The maximum number of events folded between two publishes.
const BATCH: usize = if cfg!(loom) { 2 } else { 256 };

/// The maximum capacity of a log, in events.
const MAX_CAPACITY: usize = 1 << 20;

/// The state of the single writer, which the log feeds with events.
///
/// The methods run under the writer token, on the thread that holds it. They must not submit to the same log and wait,
/// because the outcome would have to come from the waiting thread. A panic in a method closes the log permanently.
pub trait Fold {
    /// The type of submitted events.
    type Event;
    /// The type of outcomes that submitters receive.
    type Outcome;

    /// Applies one event. Events arrive in log order, each exactly once.
    fn fold(&mut self, event: Self::Event) -> Self::Outcome;

    /// Publishes folded events to readers. Called once per batch, before its tickets are answered.
    fn publish(&mut self);

    /// Does the work of a publish that outcomes need not wait for, such as freeing memory. Called once per batch, after
    /// its tickets are answered. Nothing by default.
    fn clean_up(&mut self) {}
}

/// A bounded log of events, with the writer that folds them.
///
/// Share it between threads by reference or in an `Arc`:
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
    queue: Queue<Entry<F>>,
    pub(super) token: Token<State<F>>,
    /// Set permanently when the log stops accepting events.
    closed: AtomicBool,
    /// The pace of recent batches, by which waiters choose how long to spin.
    pace: Pace,
}

struct Entry<F: Fold> {
    event: F::Event,
    answer: Option<Answer<F::Outcome>>,
}

/// The state that the token guards.
pub(super) struct State<F: Fold> {
    fold: F,
    /// Outcomes of the current batch; empty between batches. Kept to reuse its allocation.
    outcomes: Vec<(Answer<F::Outcome>, F::Outcome)>,
    /// Set when a fold has panicked: nothing may be folded any more.
    broken: bool,
    watch: Watch,
}

type Panic = Box<dyn Any + Send>;

impl<F: Fold> Log<F> {
    /// Creates a log over `fold`. The `capacity` is clamped to between 1 and 2^20 events, and is allocated at once.
    pub fn new(fold: F, capacity: usize) -> Self {
        Self {
            queue: Queue::new(capacity.clamp(1, MAX_CAPACITY)),
            token: Token::new(State {
                fold,
                outcomes: Vec::new(),
                broken: false,
                watch: Watch::default(),
            }),
            closed: AtomicBool::new(false),
            pace: Pace::new(),
        }
    }

    /// Submits `event`, waiting if the log is full, and returns a ticket for its outcome.
    ///
    /// Before this returns, the calling thread may fold and publish its own and other threads' events. A thread that
    /// waits because the log is full folds, too, which empties the log.
    ///
    /// # Errors
    ///
    /// `Closed` if the log is closed. `OwnThread` if the log is full and the calling thread holds the writer, since no
    /// other thread could empty the log.
    pub fn submit(&self, event: F::Event) -> Result<Ticket<F::Outcome>, Unavailable<F::Event>> {
        let (ticket, answer) = ticket();
        self.enter(Entry { event, answer: Some(answer) })?;
        Ok(self.paced(ticket))
    }

    /// Like [`submit`](Self::submit), but returns the event if the log is full.
    pub fn try_submit(
        &self,
        event: F::Event,
    ) -> Result<Ticket<F::Outcome>, TrySubmitError<F::Event>> {
        let (ticket, answer) = ticket();
        self.try_enter(Entry { event, answer: Some(answer) })
            .map_err(|error| error.map(|entry| entry.event))?;
        Ok(self.paced(ticket))
    }

    /// Configures how an unanswered ticket waits.
    fn paced(&self, ticket: Ticket<F::Outcome>) -> Ticket<F::Outcome> {
        if ticket.is_answered() {
            ticket
        } else {
            ticket.of_log(self.token.id(), self.pace.patience())
        }
    }

    /// Like [`submit`](Self::submit), for events whose outcome is not needed. Allocates nothing.
    pub fn post(&self, event: F::Event) -> Result<(), Unavailable<F::Event>> {
        self.enter(Entry { event, answer: None })
    }

    /// Like [`try_submit`](Self::try_submit), for events whose outcome is not needed.
    pub fn try_post(&self, event: F::Event) -> Result<(), TrySubmitError<F::Event>> {
        self.try_enter(Entry { event, answer: None })
            .map_err(|error| error.map(|entry| entry.event))
    }

    /// Waits for the token, and runs `work` on the writer's state.
    ///
    /// Events that are in the log at the time of the call are folded first, so a thread finds its own earlier events
    /// applied. `work` must publish its changes itself if readers are to see them. It must not call this again, nor
    /// wait for an event that it submits. This also works after [`close`](Self::close).
    ///
    /// # Errors
    ///
    /// `Closed` if a fold has panicked. `OwnThread` if the calling thread already holds the writer.
    ///
    /// # Panics
    ///
    /// A panic in `work`, or in a fold that this call runs, closes the log and resumes here.
    pub fn with<R>(&self, work: impl FnOnce(&mut F) -> R) -> Result<R, Unavailable> {
        if self.token.is_held_here() {
            return Err(Unavailable::OwnThread(()));
        }
        // Before taking the token: events that arrive while we wait are not ours to fold first.
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

    /// Stops accepting events and folds the accepted ones.
    ///
    /// When it returns, every event whose submission had returned has its outcome. If the calling thread holds the
    /// writer, it folds them when it releases the writer.
    pub fn close(&self) {
        // Relaxed: a submitter that misses this pushes its event and tries the token, as in an open log. An event whose
        // submission happened before this call is either answered or in the log when this thread gets the token.
        self.closed.store(true, Ordering::Relaxed);
        if !self.token.is_held_here() {
            // A thread that has promised to take the token may relieve this one.
            while !self.serve(self.token.take()) {}
        }
    }

    /// Whether the log has stopped accepting events.
    pub fn is_closed(&self) -> bool {
        // Relaxed: a hint; see `close`.
        self.closed.load(Ordering::Relaxed)
    }

    /// Whether the calling thread already holds the writer, further up its stack.
    pub fn is_held_here(&self) -> bool {
        self.token.is_held_here()
    }

    /// The number of events that are in the log and not yet folded.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether no event is waiting to be folded.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The number of events that fit in the log.
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
            // The holder may be emptying the log right now. If not, empty it ourselves: every thread that waits for
            // room also works for it, so a full log never blocks everyone.
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
        if self.token.is_held_here() {
            // This thread folds it when it releases the token.
            return Ok(());
        }
        self.token.after_push();
        match self.token.try_take() {
            Some(held) => drop(self.serve(held)),
            None if self.token.is_tired() => drop(self.serve(self.token.take())),
            // The holder sees the push when it leaves; `token` has the argument.
            None => {}
        }
        Ok(())
    }

    /// Folds the events in the log and releases the token. Strands no event. Returns whether all events that were in the
    /// log have their outcomes; otherwise another thread folds the rest.
    fn serve<'a>(&'a self, mut held: Held<'a, State<F>>) -> bool {
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
                    let Some(kept) = self.token.leave_to_others(held) else {
                        return ended(panicked, false);
                    };
                    held = kept;
                    self.token.tire();
                }
            }
            self.token.release(held);
            if self.queue.is_empty() || mutated!("token-no-second-look") {
                break;
            }
            held = match self.token.try_take() {
                Some(held) => held,
                None => return ended(panicked, false),
            };
        }
        ended(panicked, true)
    }

    /// Folds, publishes and answers one batch. Returns the number of events.
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
                // Only now: a thread that has an outcome must find its event in the published version.
                outcomes.drain(..).for_each(|(answer, outcome)| answer.complete(outcome));
                match catch_unwind(AssertUnwindSafe(|| fold.clean_up())) {
                    Ok(()) => Ok(folded),
                    Err(panic) => Err(self.break_down(state, panic)),
                }
            }
            Err(panic) => Err(self.break_down(state, panic)),
        }
    }

    /// Runs `work` on the fold. Returns `None` if the fold has panicked before.
    fn run<R>(
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

    /// Handles a panic: stops folding and accepting events. Events of the same batch that were folded but not published
    /// are lost to their submitters, like the rest.
    fn break_down(&self, state: &mut State<F>, panic: Panic) -> Panic {
        state.broken = true;
        // Relaxed: as in `close`. The caller drains the log and releases the token.
        self.closed.store(true, Ordering::Relaxed);
        state.outcomes.clear();
        panic
    }
}

impl<F: Fold> Drop for Log<F> {
    /// Folds the accepted events that are still in the log.
    fn drop(&mut self) {
        let Self { queue, token, .. } = self;
        let state = token.get_mut();
        if state.broken {
            return;
        }
        // A panic in the fold ends here. Its message has been printed, no thread is left to receive it, and the
        // remaining entries answer their tickets when they are dropped.
        contain(|| {
            let mut outcomes = Vec::new();
            while let Some(entry) = queue.pop() {
                let outcome = state.fold.fold(entry.event);
                outcomes.extend(entry.answer.map(|answer| (answer, outcome)));
            }
            if outcomes.is_empty() {
                return;
            }
            state.fold.publish();
            outcomes.into_iter().for_each(|(answer, outcome)| answer.complete(outcome));
            state.fold.clean_up();
        });
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

/// Returns `is_done`, or goes on with a panic of the fold.
fn ended(panicked: Option<Panic>, is_done: bool) -> bool {
    match panicked {
        Some(panic) => resume_unwind(panic),
        None => is_done,
    }
}
