//! Locks, atomics and threads: std's in a normal build, loom's in a model. Every other file takes them from here.
//!
//! A normal build gets std's types under their own names. A build with `--cfg loom` gets loom's types, so the models in
//! `loom-tests` run the shipped source and not a copy of it. The only operation without a loom
//! counterpart, a brief spin, is a function here with two bodies.
//!
//! Three rules follow. First, handles that the engine shares internally are the [`Arc`] from here, so that loom sees
//! leaks. The published *payload* is always a `std::sync::Arc`, since users need its `Weak` and `make_mut`; a model
//! that watches the payload puts a loom cell inside. Second, every ordering that a model can observe is written with
//! [`ordering!`] or [`fenced!`] under a name, so that the models can run against a mutant that weakens it. Third, a
//! fence is always sequentially consistent: loom models such fences exactly, but treats a sequentially consistent
//! *access* as acquire-release only.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;
use std::time::Duration;

#[cfg(not(loom))]
pub use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence},
    },
    thread,
};

#[cfg(loom)]
pub use loom::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence},
    },
    thread,
};

/// Whether the mutant of this name is running. Outside a loom build always `false`, at no cost.
#[cfg(not(loom))]
#[doc(hidden)]
#[macro_export]
macro_rules! __mutated {
    ($name:literal) => {
        false
    };
}

/// Whether the mutant of this name is running: the one that `PORTOLAN_MUTATION` names.
#[cfg(loom)]
#[doc(hidden)]
#[macro_export]
macro_rules! __mutated {
    ($name:literal) => {
        $crate::sync::is_mutated($name)
    };
}

/// A named ordering, and the weaker ordering that replaces it in the mutant of that name.
#[doc(hidden)]
#[macro_export]
macro_rules! __ordering {
    ($name:literal, $shipped:ident => $weaker:ident) => {
        if $crate::sync::mutated!($name) {
            $crate::sync::Ordering::$weaker
        } else {
            $crate::sync::Ordering::$shipped
        }
    };
}

/// A named sequentially consistent fence. The mutant of that name omits it. The mutant `<name>-acqrel` has an
/// acquire-release fence instead, which is outside the total order of such fences.
#[cfg(loom)]
#[doc(hidden)]
#[macro_export]
macro_rules! __fenced {
    ($name:literal) => {
        if $crate::sync::is_mutated(concat!($name, "-acqrel")) {
            $crate::sync::fence($crate::sync::Ordering::AcqRel)
        } else if !$crate::sync::mutated!($name) {
            $crate::sync::fence($crate::sync::Ordering::SeqCst)
        }
    };
}

/// A sequentially consistent fence. Its name is for models.
#[cfg(not(loom))]
#[doc(hidden)]
#[macro_export]
macro_rules! __fenced {
    ($name:literal) => {
        $crate::sync::fence($crate::sync::Ordering::SeqCst)
    };
}

pub use {__fenced as fenced, __mutated as mutated, __ordering as ordering};

/// Looks up the mutant's name once per process, so all models of a run use the same mutant.
#[cfg(loom)]
pub fn is_mutated(name: &str) -> bool {
    static MUTANT: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    MUTANT.get_or_init(|| std::env::var("PORTOLAN_MUTATION").ok()).as_deref() == Some(name)
}

/// Precedes each step that changes a version's handle count or decides by it. Loom does not see the counts of
/// `std::sync::Arc`. In a model this is a step of its own, so that loom tries all orders of such steps.
#[cfg(not(loom))]
#[inline]
pub fn count_is_touched() {}

#[cfg(loom)]
pub fn count_is_touched() {
    loom::lazy_static! {
        static ref COUNTS: AtomicUsize = AtomicUsize::new(0);
    }
    // Relaxed: adds no ordering that the shipped source lacks.
    COUNTS.fetch_add(1, Ordering::Relaxed);
}

/// Locks `mutex`, ignoring poison. Each caller states why its data is still consistent after a panic.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Locks `mutex` if it is free, ignoring poison as [`lock`] does.
pub fn try_lock<T: ?Sized>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(std::sync::TryLockError::WouldBlock) => None,
    }
}

/// Waits on `condvar`, for at most `limit` if given. May return spuriously.
pub fn wait<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    limit: Option<Duration>,
) -> MutexGuard<'a, T> {
    use std::sync::PoisonError;
    match limit {
        None => condvar.wait(guard).unwrap_or_else(PoisonError::into_inner),
        Some(limit) => condvar.wait_timeout(guard, limit).unwrap_or_else(PoisonError::into_inner).0,
    }
}

/// Tries `done` repeatedly for a few microseconds, and returns whether it became true.
///
/// For waits that usually end at once: a parked thread costs its waker a system call and itself some 50 µs.
pub fn spin_until(done: impl FnMut() -> bool) -> bool {
    spin_for(Duration::ZERO, done)
}

/// Tries `done` for a few microseconds, then for up to `limit` more if a core is free, and returns whether it became
/// true.
///
/// A longer spin takes a core from threads that have work. So the process spins on at most all cores but one; that one
/// is left to the thread that all of them wait for.
#[cfg(not(loom))]
pub fn spin_for(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    /// Calls of `done` between two clock reads; a few microseconds.
    const LOOKS: usize = 64;
    let mut spin = || {
        (0..LOOKS).any(|_| {
            let done = done();
            if !done {
                std::hint::spin_loop();
            }
            done
        })
    };
    if spin() {
        return true;
    }
    let Some(_seat) = (!limit.is_zero()).then(Seat::take).flatten() else { return false };
    let started = std::time::Instant::now();
    while started.elapsed() < limit {
        if spin() {
            return true;
        }
    }
    false
}

/// Permission to spin. There is one fewer than there are cores.
#[cfg(not(loom))]
struct Seat;

#[cfg(not(loom))]
impl Seat {
    fn take() -> Option<Seat> {
        static SEATS: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
        let seats =
            *SEATS.get_or_init(|| thread::available_parallelism().map_or(0, |n| n.get() - 1));
        // Relaxed, here and below: a count that guards no data.
        if TAKEN.fetch_add(1, Ordering::Relaxed) < seats {
            return Some(Seat);
        }
        TAKEN.fetch_sub(1, Ordering::Relaxed);
        None
    }
}

/// The number of seats taken.
#[cfg(not(loom))]
static TAKEN: AtomicUsize = AtomicUsize::new(0);

#[cfg(not(loom))]
impl Drop for Seat {
    fn drop(&mut self) {
        TAKEN.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Under loom one check is enough: spinning explores nothing that parking does not.
#[cfg(loom)]
pub fn spin_for(_limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    done()
}

/// Wakes a task from the writer's thread.
///
/// A waker is the executor's code, and the writer calls it while it holds its state. A panic that unwound through the
/// writer would leave later waiters asleep and accepted events without an outcome. It is therefore caught here, after
/// the panic hook has reported it.
pub fn wake(waker: Waker) {
    // The waker is consumed, so nothing that it left half-done is used again.
    contain(|| waker.wake());
}

/// Runs `work`. A panic ends here, after the panic hook has reported it. Each caller states why its data is still
/// consistent after a panic.
pub fn contain(work: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
        discard_panic(panic);
    }
}

/// Drops the payload of a caught panic, and never panics.
///
/// The payload is of a type of the code that panicked, so its destructor may panic, too, and so may the destructor of
/// the next payload. The first of these panics is caught, and the next payload is leaked.
fn discard_panic(payload: Box<dyn Any + Send>) {
    if let Err(next) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(next);
    }
}

/// Returns the message of a caught panic, and discards its payload. The message is empty if the payload is not a
/// string.
pub fn panic_message(payload: Box<dyn Any + Send>) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    let text = text.unwrap_or_default().to_owned();
    discard_panic(payload);
    text
}

/// Wakers for tests.
#[cfg(all(test, not(loom)))]
pub(crate) mod wakers {
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

    /// Panics when its waker is called.
    pub(crate) struct Panics;

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("the waker of a test panics");
        }
    }
}
