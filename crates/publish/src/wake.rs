//! Waking tasks from the writer's thread.
//!
//! A waker is the executor's code. The writer calls it while it holds its state, so a panic there must not unwind
//! through the writer, which would leave later waiters asleep and accepted events stranded.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// Wakes a task. A panic of the waker ends here; the panic hook has reported it.
pub(crate) fn wake(waker: Waker) {
    // The waker is consumed, so nothing that it left half-done is used again.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
        // The payload's destructor may panic, too.
        std::mem::forget(panic);
    }
}

/// Wakers for tests.
#[cfg(all(test, not(loom)))]
pub(crate) mod test {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    /// Counts the calls of its wakers.
    #[derive(Debug, Default)]
    pub(crate) struct Woken(AtomicUsize);

    impl Woken {
        pub(crate) fn count(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Its wakers panic.
    pub(crate) struct Panics;

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("the waker of a test panics");
        }
    }
}
