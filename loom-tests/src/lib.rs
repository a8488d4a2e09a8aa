//! What the models have in common: a run that counts its executions, and payloads that notice what they should not see.
//!
//! Empty unless built with `--cfg loom`.
#![allow(unsafe_code)]
#![cfg(loom)]

use std::panic::Location;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use loom::cell::UnsafeCell;
use portolan_publish::Versioned;

/// How far a model is explored.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// Every execution there is.
    Exhaustive,
    /// Every execution with at most this many preemptions.
    Preemptions(usize),
}

/// Explores `model` and reports the number of executions. A model that had only one explored nothing, and fails.
#[track_caller]
pub fn explore(name: &str, bound: Bound, model: impl Fn() + Send + Sync + 'static) {
    let executions = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&executions);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = match bound {
        Bound::Exhaustive => None,
        Bound::Preemptions(most) => Some(most),
    };
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let executions = executions.load(Ordering::Relaxed);
    println!("MODEL {name}: {executions} executions, {bound:?}");
    assert!(executions > 1, "{name} at {} explored one execution only", Location::caller());
}

/// A version whose content loom watches: reading it without an order after its making is a failure of the model.
#[derive(Debug)]
pub struct Watched {
    version: u64,
    content: UnsafeCell<u64>,
}

impl Watched {
    /// A version of this number.
    pub fn new(version: u64) -> Arc<Self> {
        let watched = Self { version, content: UnsafeCell::new(0) };
        // A write of its own, so that there is something a reader could miss.
        // SAFETY: nobody else has it yet.
        watched.content.with_mut(|content| unsafe { *content = version });
        Arc::new(watched)
    }

    /// The content, which must be whole.
    pub fn check(&self) -> u64 {
        // SAFETY: versions are not written after their making; loom fails the model if this were not so.
        let content = self.content.with(|content| unsafe { *content });
        assert_eq!(content, self.version, "a torn version");
        content
    }
}

// SAFETY: written only before it is shared, which is what the models check.
unsafe impl Sync for Watched {}

impl Versioned for Watched {
    fn version(&self) -> u64 {
        self.version
    }
}

/// What is in the place of the content of a version that was freed.
const FREED: u64 = u64::MAX;

/// A version that notices when it is looked at after it was freed, or without an order before that, or freed twice.
///
/// For versions that are pinned. What orders a look through a counted handle before the free is the count, which loom
/// does not see: such a handle must come back to the thread that frees.
#[derive(Debug)]
pub struct Canary(Watched);

impl Canary {
    /// The content, which must be whole.
    pub fn check(&self) -> u64 {
        self.0.check()
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        // SAFETY: freed means that nobody else has it; loom fails the model if this were not so.
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

/// Makes canaries, and keeps the memory they are in until the end, so that a look too late finds that it is.
#[derive(Debug, Default)]
pub struct Canaries(Vec<Weak<Canary>>);

impl Canaries {
    /// A version with the next number, from 1.
    pub fn next(&mut self) -> Arc<Canary> {
        let watched = Watched::new(self.0.len() as u64 + 1);
        let canary = Arc::new(Canary(Arc::into_inner(watched).expect("nobody else has it")));
        self.0.push(Arc::downgrade(&canary));
        canary
    }

    /// How many are not freed.
    pub fn alive(&self) -> usize {
        self.0.iter().filter(|canary| canary.strong_count() > 0).count()
    }
}

/// Something that is looked at until it ends. Ending it without an order after each look is a failure of the model.
#[derive(Debug, Default)]
pub struct Looked(UnsafeCell<()>);

impl Looked {
    /// A look.
    pub fn look(&self) {
        self.0.with(|_| ());
    }

    /// From now on nobody looks.
    pub fn end(&self) {
        self.0.with_mut(|_| ());
    }
}

// SAFETY: there is nothing inside; the cell is there for what loom notices.
unsafe impl Sync for Looked {}
