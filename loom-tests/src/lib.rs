//! Shared code of the models: a runner that counts executions, and payloads that detect invalid accesses.
//!
//! Empty unless built with `--cfg loom`.
#![allow(unsafe_code)]
#![cfg(loom)]

use std::panic::Location;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};

use loom::cell::UnsafeCell;
use loom::thread::{self, Thread};
use portolan_publish::Versioned;

/// How far a model is explored.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// Every possible execution.
    Exhaustive,
    /// Every execution with at most this many preemptions.
    Preemptions(usize),
    /// Like `Preemptions`, or like `Exhaustive` if the variable `PORTOLAN_EXHAUSTIVE` is set, as it is every night: for
    /// models that take long.
    ExhaustiveAtNight(usize),
}

impl Bound {
    /// Returns the largest number of preemptions, or `None` to explore every execution.
    fn preemptions(self) -> Option<usize> {
        match self {
            Bound::Exhaustive => None,
            Bound::Preemptions(most) => Some(most),
            Bound::ExhaustiveAtNight(most) => {
                std::env::var_os("PORTOLAN_EXHAUSTIVE").is_none().then_some(most)
            }
        }
    }
}

/// Explores `model` and reports the number of executions. Fails if there was only one, which explores nothing.
#[track_caller]
pub fn explore(name: &str, bound: Bound, model: impl Fn() + Send + Sync + 'static) {
    let executions = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&executions);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = bound.preemptions();
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let executions = executions.load(Ordering::Relaxed);
    let bound = match bound.preemptions() {
        Some(most) => format!("at most {most} preemptions"),
        None => "exhaustive".to_owned(),
    };
    println!("MODEL {name}: {executions} executions, {bound}");
    assert!(executions > 1, "{name} at {} explored one execution only", Location::caller());
}

/// A version whose contents loom watches. The model fails if a read is not ordered after the version's creation.
#[derive(Debug)]
pub struct Watched {
    version: u64,
    content: UnsafeCell<u64>,
}

impl Watched {
    /// Creates a version with this number.
    pub fn new(version: u64) -> Arc<Self> {
        let watched = Self { version, content: UnsafeCell::new(0) };
        // A separate write, so that there is something a reader could miss.
        // SAFETY: nobody else has it yet.
        watched.content.with_mut(|content| unsafe { *content = version });
        Arc::new(watched)
    }

    /// Returns the contents, and asserts that they are whole.
    pub fn check(&self) -> u64 {
        // SAFETY: versions are not written after their creation; loom fails the model if one is.
        let content = self.content.with(|content| unsafe { *content });
        assert_eq!(content, self.version, "a torn version");
        content
    }
}

// SAFETY: written only before it is shared, which the models check.
unsafe impl Sync for Watched {}

impl Versioned for Watched {
    fn version(&self) -> u64 {
        self.version
    }
}

/// Replaces the contents of a freed version.
const FREED: u64 = u64::MAX;

/// A version that detects an access after it was freed, a free that is not ordered after an access, and a second free.
///
/// For pinned versions. The count orders an access through a counted handle before the free, but loom does not see the
/// count. So such a handle must return to the thread that frees.
#[derive(Debug)]
pub struct Canary(Watched);

impl Canary {
    /// Returns the contents, and asserts that they are whole.
    pub fn check(&self) -> u64 {
        self.0.check()
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        // SAFETY: freed means that nobody else has it; loom fails the model if somebody does.
        self.0.content.with_mut(|content| unsafe {
            assert_ne!(*content, FREED, "freed twice");
            *content = FREED;
        });
    }
}

impl Versioned for Canary {
    fn version(&self) -> u64 {
        self.0.version
    }
}

/// Creates canaries and keeps their memory until the end, so that a late access finds that it is late.
#[derive(Debug, Default)]
pub struct Canaries(Vec<Weak<Canary>>);

impl Canaries {
    /// Creates a version with the next number, starting at 1.
    pub fn next(&mut self) -> Arc<Canary> {
        let watched = Watched::new(self.0.len() as u64 + 1);
        let canary = Arc::new(Canary(Arc::into_inner(watched).expect("nobody else has it")));
        self.0.push(Arc::downgrade(&canary));
        canary
    }

    /// The number of versions that are not freed.
    pub fn alive(&self) -> usize {
        self.0.iter().filter(|canary| canary.strong_count() > 0).count()
    }
}

/// An object that threads read until it ends. The model fails if a read is not ordered before the end.
#[derive(Debug, Default)]
pub struct Looked(UnsafeCell<()>);

impl Looked {
    /// Reads the object.
    pub fn look(&self) {
        self.0.with(|_| ());
    }

    /// Ends the object. Nobody may read it afterwards.
    pub fn end(&self) {
        self.0.with_mut(|_| ());
    }
}

// SAFETY: the cell is empty and exists only so that loom tracks accesses to it.
unsafe impl Sync for Looked {}

/// Unparks the thread that runs a task.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs `task` on this thread, which parks while the task is pending. A lost wake-up is a deadlock, which loom reports.
pub fn block_on<F: Future>(task: F) -> F::Output {
    let mut task = pin!(task);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match task.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
