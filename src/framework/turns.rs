//! A lock that its thread can take again.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A lock that the thread that holds it can take again. Creating one does not allocate.
#[derive(Default)]
pub(super) struct Turns {
    held: Mutex<Held>,
    freed: Condvar,
}

#[derive(Default)]
struct Held {
    /// The number of the thread that took the last turn. It holds the lock while `turns` is not 0.
    by: usize,
    /// How many turns that thread has. They may end in any order.
    turns: usize,
}

/// The turn of a thread, until it is dropped. It stays on its thread, as a guard of a mutex does.
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    on_thread: PhantomData<MutexGuard<'a, ()>>,
}

/// Returns the number of this thread among those that have called this function.
pub(crate) fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        // Relaxed: only the numbers must differ.
        static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}

impl Turns {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the turns of other threads.
    pub(super) fn take(&self) -> Turn<'_> {
        let here = thread_number();
        let is_of_others = |held: &mut Held| held.turns > 0 && held.by != here;
        let held = self.freed.wait_while(self.held(), is_of_others);
        let mut held = held.unwrap_or_else(PoisonError::into_inner);
        held.by = here;
        held.turns += 1;
        Turn { turns: self, on_thread: PhantomData }
    }

    /// Returns whether it is the turn of this thread.
    pub(super) fn is_taken_here(&self) -> bool {
        let held = self.held();
        held.turns > 0 && held.by == thread_number()
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut held = self.turns.held();
        held.turns -= 1;
        if held.turns == 0 {
            drop(held);
            self.turns.freed.notify_one();
        }
    }
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Turns")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_turns_of_threads_do_not_overlap() {
        let (turns, inside) = (Turns::default(), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let outer = turns.take();
                        assert_eq!(inside.swap(1, Ordering::Relaxed), 0);
                        drop(turns.take());
                        std::thread::yield_now();
                        assert_eq!(inside.swap(0, Ordering::Relaxed), 1);
                        drop(outer);
                    }
                });
            }
        });
    }

    #[test]
    fn a_lock_is_held_until_its_last_turn_ends() {
        let turns = Turns::default();
        let (first, second) = (turns.take(), turns.take());
        drop(first);
        assert!(turns.is_taken_here());
        let is_free = || std::thread::scope(|scope| scope.spawn(|| turns.held().turns == 0).join());
        assert!(!is_free().unwrap());
        drop(second);
        assert!(is_free().unwrap());
    }
}
