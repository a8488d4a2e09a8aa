//! The attendant: a thread that does nothing but fold, for those who want no submitter to do it.
//!
//! It is one more holder of the token and runs the same code. While it attends, submitters wake it instead of trying
//! the token (which costs them less, and their outcome a hop to another thread, some 50 µs if it slept). It ticks once
//! a period, and it ends with the log.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::SpawnError;
use super::pace::SLEEP;
use super::writer::{Fold, Log};
use crate::sync::{self, Ordering, fenced, mutated, spin_for};

/// A thread that folds the events of one log. Dropping it closes the log, and waits for the thread.
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
    /// Starts a thread that attends to `log` until it is closed and calls [`Fold::tick`] once a `period`.
    ///
    /// A log that has an attendant gets no second one: the new thread ends at once, and dropping what this returns
    /// closes the log all the same. A period that overflows the clock, such as [`Duration::MAX`], means no
    /// ticks. Fails if the period is zero, or the system gives no thread.
    pub fn spawn(log: Arc<Log<F>>, period: Duration) -> Result<Self, SpawnError> {
        if period.is_zero() {
            return Err(SpawnError::ZeroPeriod);
        }
        let attended = Arc::clone(&log);
        let thread = sync::thread::Builder::new()
            .name("portolan-writer".to_owned())
            .spawn(move || attended.attend(Some(period)))?;
        // Here as well as by the thread, whichever comes first: once this returns, submitters leave folding to it.
        let _ = log.attendant.set(thread.thread().clone());
        Ok(Self { log, thread: Some(thread) })
    }

    /// The log that is attended to.
    pub fn log(&self) -> &Arc<Log<F>> {
        &self.log
    }
}

impl<F: Fold + Send + 'static> Drop for Attendant<F>
where
    F::Event: Send,
    F::Outcome: Send,
{
    fn drop(&mut self) {
        // A panic of the fold while the rest is drained closes the log just as well, and a drop must not panic.
        let _ = catch_unwind(AssertUnwindSafe(|| self.log.close()));
        let Some(thread) = self.thread.take() else { return };
        // The last handle may be dropped from within a fold, by the thread itself or by another one that holds the
        // token: neither can wait for the thread's end.
        let is_this = thread.thread().id() == sync::thread::current().id();
        if !is_this && !self.log.token.is_held_here() {
            // A panic of the fold has closed the log and answered its tickets; there is nobody here to pass it to.
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

/// Closes the log when the attendant's thread ends, by a panic too: submitters have left the folding to it.
pub(super) struct ClosesLog<'a, F: Fold>(pub(super) &'a Log<F>);

impl<F: Fold> Drop for ClosesLog<'_, F> {
    fn drop(&mut self) {
        if !self.0.is_closed() {
            // The thread may be panicking already, and a second panic would end the process.
            let _ = catch_unwind(AssertUnwindSafe(|| self.0.close()));
        }
    }
}

impl<F: Fold> Log<F> {
    /// Folds on the calling thread until the log is closed; ticks where there is a period.
    pub(crate) fn attend(&self, period: Option<Duration>) {
        let me = sync::thread::current();
        if self.attendant.get_or_init(|| me.clone()).id() != me.id() {
            return;
        }
        // However this thread ends, nobody waits for it afterwards.
        let _closes = ClosesLog(self);
        let tick_after = |now: Instant| period.and_then(|period| now.checked_add(period));
        let mut next_tick = tick_after(Instant::now());
        // A submitter that came before the attendant was known did its event itself, or left it to another holder.
        while !self.is_closed() {
            if !self.queue.is_empty() {
                self.serve(self.token.take());
            }
            let now = Instant::now();
            if next_tick.is_some_and(|due| now >= due) {
                // From now and not from when it was due: after a pause one tick does the work of all.
                next_tick = tick_after(now);
                self.tick();
            }
            if spin_for(SLEEP, || !self.queue.is_empty() || self.is_closed()) {
                continue;
            }
            self.asleep.store(true, Ordering::Relaxed);
            // Pairs with the fence after a push (`Token::after_push`) and with the one in `close`. If ours comes first, the other thread
            // sees `asleep` and unparks us, and a park that comes after its unpark returns at once. If the other's
            // comes first, we see its event, or its closing, here.
            fenced!("attendant-fence");
            if self.queue.is_empty() && !self.is_closed() && !mutated!("attendant-sleeps-on") {
                sync::park(next_tick.map(|due| due.saturating_duration_since(Instant::now())));
            }
            self.asleep.store(false, Ordering::Relaxed);
        }
        // Closing drains the log itself, and later submitters see that it is closed: nothing is left to us.
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
