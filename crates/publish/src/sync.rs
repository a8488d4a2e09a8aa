//! The one file that knows loom: every other file takes its locks, atomics and threads from here.
//!
//! A normal build gets std's types under their own names. A build with `--cfg loom` gets loom's, so that the models in
//! `loom-tests` run the shipping source and not a copy of it. What loom has no counterpart for (a park with a
//! time-out, a spin that means "soon") is a function here with two bodies.
//!
//! Three rules follow. Handles that the engine shares internally are [`Arc`] from here, so that loom sees leaks; the
//! *payload* that is published is always `std::sync::Arc`, since it is data and users need `Weak` and `make_mut` of it
//! (a model that wants it watched puts a loom cell inside). Every ordering that a model can watch is written with
//! [`ordering!`] or [`fenced!`], under a name, so that the models can be run against a mutant in which it is weaker.
//! And a fence is always sequentially consistent: loom models such fences exactly, but treats a sequentially
//! consistent *access* as acquire-release only.

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

/// Whether the mutant of this name is being run: always `false`, and free, outside a loom build.
#[cfg(not(loom))]
#[doc(hidden)]
#[macro_export]
macro_rules! __mutated {
    ($name:literal) => {
        false
    };
}

/// Whether the mutant of this name is being run: the one that `PORTOLAN_MUTATION` names.
#[cfg(loom)]
#[doc(hidden)]
#[macro_export]
macro_rules! __mutated {
    ($name:literal) => {
        $crate::sync::is_mutated($name)
    };
}

/// An ordering with a name, and what it is weakened to in the mutant of that name.
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

/// A sequentially consistent fence with a name, absent in the mutant of that name; in the mutant `<name>-acqrel` it is
/// there, and outside the one order of all such fences.
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

/// A sequentially consistent fence; its name is for models.
#[cfg(not(loom))]
#[doc(hidden)]
#[macro_export]
macro_rules! __fenced {
    ($name:literal) => {
        $crate::sync::fence($crate::sync::Ordering::SeqCst)
    };
}

pub use {__fenced as fenced, __mutated as mutated, __ordering as ordering};

/// Looks the mutant's name up once a process: every model of one run meets the same mutant.
#[cfg(loom)]
pub fn is_mutated(name: &str) -> bool {
    static MUTANT: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    MUTANT.get_or_init(|| std::env::var("PORTOLAN_MUTATION").ok()).as_deref() == Some(name)
}

/// Stands before each step that changes or decides by the count of a version's handles. Those are `std::sync::Arc`s,
/// which loom does not see: in a model this is a step of its own, so that loom tries all orders of such steps.
#[cfg(not(loom))]
#[inline]
pub fn count_is_touched() {}

#[cfg(loom)]
pub fn count_is_touched() {
    loom::lazy_static! {
        static ref COUNTS: AtomicUsize = AtomicUsize::new(0);
    }
    // Relaxed: orders nothing that the shipped source does not order.
    COUNTS.fetch_add(1, Ordering::Relaxed);
}

/// Locks `mutex`, also when a thread panicked while it held it: each user says why its data is still whole.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Locks `mutex` if it is free; poison is ignored as in [`lock`].
pub fn try_lock<T: ?Sized>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(std::sync::TryLockError::WouldBlock) => None,
    }
}

/// Waits on `condvar`, for at most `limit` where there is one. May return for no reason, as every such wait.
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

/// Tries `done` again and again for a few microseconds, and says whether it became true.
///
/// For waits that mostly end at once: a thread that parks costs its waker a system call and itself some 50 µs.
pub fn spin_until(done: impl FnMut() -> bool) -> bool {
    spin_for(Duration::ZERO, done)
}

/// Tries `done` for a few microseconds, then for up to `limit` more if a core is free for that, and says whether it
/// became true.
///
/// A spin of more than a moment takes a core from threads that have work. So no more threads of the process spin than
/// there are cores beside one, which is left to the thread that they all wait for.
#[cfg(not(loom))]
pub fn spin_for(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    /// Looks at `done` between two looks at the clock; some microseconds.
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

/// The leave to spin: there is one for each core but one.
#[cfg(not(loom))]
struct Seat;

#[cfg(not(loom))]
impl Seat {
    fn take() -> Option<Seat> {
        static SEATS: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
        let seats =
            *SEATS.get_or_init(|| thread::available_parallelism().map_or(0, |n| n.get() - 1));
        // Relaxed, here and below: a count, through which nothing is reached.
        if TAKEN.fetch_add(1, Ordering::Relaxed) < seats {
            return Some(Seat);
        }
        TAKEN.fetch_sub(1, Ordering::Relaxed);
        None
    }
}

/// Seats that are taken.
#[cfg(not(loom))]
static TAKEN: AtomicUsize = AtomicUsize::new(0);

#[cfg(not(loom))]
impl Drop for Seat {
    fn drop(&mut self) {
        TAKEN.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Under loom one look is enough: spinning explores nothing that parking does not.
#[cfg(loom)]
pub fn spin_for(_limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    done()
}

/// Parks the current thread until it is unparked, or for at most `limit`. May return for no reason.
#[cfg(not(loom))]
pub fn park(limit: Option<Duration>) {
    match limit {
        Some(limit) => thread::park_timeout(limit),
        None => thread::park(),
    }
}

/// Time stands still in a model: a park ends by an unpark alone, so that a lost wake-up is a deadlock that loom reports.
#[cfg(loom)]
pub fn park(_limit: Option<Duration>) {
    thread::park();
}
