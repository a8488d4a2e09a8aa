//! The attendant: a dedicated thread that folds events, for callers that do not want submitters to fold.
//!
//! The attendant is one more holder of the token and runs the same code. While it runs, submitters wake it instead of
//! trying the token. That is cheaper for them, but the outcome comes from another thread, some 50 µs later if that
//! thread slept. The attendant ticks once per period, and ends with the log.

use std::fmt;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::SpawnError;
use super::pace::SLEEP;
use super::writer::{Fold, Log};
use crate::sync::{self, Ordering, contain, fenced, mutated, spin_for};

/// A thread that folds the events of one log. Dropping it closes the log and waits for the thread.
pub struct Attendant<F: Fold + Send + 'static>
where
    F::Event: Send,
    F::Outcome: Send,
{
    log: Arc<Log<F>>,
    thread: Option<sync::thread::JoinHandle<()>>,
}

impl<F: Fold + Send + 'static> Attendant<F>
where
    F::Event: Send,
    F::Outcome: Send,
{
    /// Starts a thread that folds the events of `log` until the log is closed, and calls [`Fold::tick`] once per
    /// `period`.
    ///
    /// A period that overflows the clock, such as [`Duration::MAX`], disables ticks. A log has at most one attendant: a
    /// second thread ends at once, but dropping its `Attendant` still closes the log.
    ///
    /// # Errors
    ///
    /// [`SpawnError::ZeroPeriod`] if the period is zero, [`SpawnError::Thread`] if the system cannot start a thread.
    pub fn spawn(log: Arc<Log<F>>, period: Duration) -> Result<Self, SpawnError> {
        if period.is_zero() {
            return Err(SpawnError::ZeroPeriod);
        }
        let attended = Arc::clone(&log);
        let thread = sync::thread::Builder::new()
            .name("portolan-writer".to_owned())
            // Nobody joins a thread whose attendant is dropped within a fold, so the thread keeps no payload.
            .spawn(move || contain(move || attended.attend(Some(period))))?;
        // The thread sets this too, and the first wins. Once this returns, submitters leave folding to it.
        let _ = log.attendant.set(thread.thread().clone());
        Ok(Self { log, thread: Some(thread) })
    }
}

impl<F: Fold + Send + 'static> Drop for Attendant<F>
where
    F::Event: Send,
    F::Outcome: Send,
{
    fn drop(&mut self) {
        // If the fold panics while the log is drained, the log is closed as well. A drop must not panic.
        contain(|| self.log.close());
        let Some(thread) = self.thread.take() else { return };
        // The last handle may be dropped from within a fold, by this thread or by another thread that holds the token.
        // Neither can wait for this thread to end.
        let is_this = thread.thread().id() == sync::thread::current().id();
        if !is_this && !self.log.token.is_held_here() {
            // A panic of the fold has closed the log, answered its tickets, and ended in the thread.
            let _ = thread.join();
        }
    }
}

impl<F: Fold + Send + 'static> fmt::Debug for Attendant<F>
where
    F::Event: Send,
    F::Outcome: Send,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attendant").field("log", &self.log).finish_non_exhaustive()
    }
}

/// Closes the log when the attendant's thread ends, even by a panic, because submitters rely on it to fold.
pub(super) struct ClosesLog<'a, F: Fold>(pub(super) &'a Log<F>);

impl<F: Fold> Drop for ClosesLog<'_, F> {
    fn drop(&mut self) {
        if !self.0.is_closed() {
            // The thread may be panicking already, and a second panic would end the process.
            contain(|| self.0.close());
        }
    }
}

impl<F: Fold> Log<F> {
    /// Folds on the calling thread until the log is closed. Ticks if `period` is given.
    pub(crate) fn attend(&self, period: Option<Duration>) {
        let me = sync::thread::current();
        if self.attendant.get_or_init(|| me.clone()).id() != me.id() {
            return;
        }
        // However this thread ends, nobody waits for it afterwards.
        let _closes = ClosesLog(self);
        let tick_after = |now: Instant| period.and_then(|period| now.checked_add(period));
        let mut next_tick = tick_after(Instant::now());
        // Submitters that came before the attendant was registered folded their events or left them to another holder.
        while !self.is_closed() {
            if !self.queue.is_empty() {
                self.serve(self.token.take());
            }
            let now = Instant::now();
            if next_tick.is_some_and(|due| now >= due) {
                // Counted from now, not from when the tick was due: after a pause one tick does the work of all.
                next_tick = tick_after(now);
                self.tick();
            }
            if spin_for(SLEEP, || !self.queue.is_empty() || self.is_closed()) {
                continue;
            }
            self.asleep.store(true, Ordering::Relaxed);
            // Pairs with the fence after a push (`Token::after_push`) and with the one in `close`. If our fence comes
            // first, the other thread sees `asleep` and unparks us, and a park after that unpark returns at once. If
            // the other fence comes first, we see its event, or that the log is closed, here.
            fenced!("attendant-fence");
            if self.queue.is_empty() && !self.is_closed() && !mutated!("attendant-sleeps-on") {
                sync::park(next_tick.map(|due| due.saturating_duration_since(Instant::now())));
            }
            self.asleep.store(false, Ordering::Relaxed);
        }
        // `close` drains the log itself, and later submitters see that it is closed: nothing is left to fold.
    }

    fn tick(&self) {
        let mut held = self.token.take();
        let ticked = self.run(&mut held.state, |fold| {
            fold.tick();
            fold.publish();
        });
        self.serve(held);
        if let Err(panic) = ticked {
            resume_unwind(panic);
        }
    }
}
