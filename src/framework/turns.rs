//! A lock that its thread can take again.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A lock that the thread that holds it can take again. Creating one does not allocate.
#[derive(Default)]
pub(super) struct Turns {
    lock: Mutex<()>,
    /// The number of the thread that holds the lock, or 0. Relaxed: only that thread stores its own number.
    holder: AtomicU64,
}

/// The turn of a thread, until it is dropped.
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    /// `None` if the thread held the lock already.
    guard: Option<MutexGuard<'a, ()>>,
}

/// Returns the number of this thread, which is unique in the process.
fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}

impl Turns {
    /// Waits for the turns of other threads.
    pub(super) fn take(&self) -> Turn<'_> {
        if self.is_taken_here() {
            return Turn { turns: self, guard: None };
        }
        let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.holder.store(thread_number(), Ordering::Relaxed);
        Turn { turns: self, guard: Some(guard) }
    }

    /// Returns whether it is the turn of this thread.
    pub(super) fn is_taken_here(&self) -> bool {
        self.holder.load(Ordering::Relaxed) == thread_number()
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.guard.is_some() {
            self.turns.holder.store(0, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Turns")
    }
}
