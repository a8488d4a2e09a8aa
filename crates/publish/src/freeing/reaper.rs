//! A background thread, one per process, that frees the parts that owners leave behind. It runs while there is
//! something to free.
//!
//! This file has the only lock of the module. Owners that drop a version or a fork take it. The writer never does: what
//! its steps free goes to its backlog.

use std::mem;
use std::sync::{Mutex, PoisonError};

use super::Part;
use crate::sync::contain;

type Left = Vec<Box<dyn Part>>;

/// At most this many owners queue work; others free in place. Without a limit, fast droppers exhaust memory.
const MAX_OWNERS: usize = 64;

struct Queue {
    left: Vec<Left>,
    running: bool,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue { left: Vec::new(), running: false });

fn queue<R>(change: impl FnOnce(&mut Queue) -> R) -> R {
    // Each change is one assignment, so the queue stays consistent after a panic.
    change(&mut QUEUE.lock().unwrap_or_else(PoisonError::into_inner))
}

#[cfg(any(test, feature = "cost"))]
thread_local! {
    static HANDED_OVER: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The number of times this thread handed parts over since the last call.
#[cfg(any(test, feature = "cost"))]
pub fn take_handed_over() -> usize {
    HANDED_OVER.take()
}

/// Frees `parts` on the background thread, or on the calling thread if the queue is full or no thread can be started.
pub(crate) fn hand_over(parts: Left) {
    if parts.is_empty() {
        return;
    }
    #[cfg(any(test, feature = "cost"))]
    HANDED_OVER.set(HANDED_OVER.get() + 1);
    let mut mine = Some(parts);
    let start = queue(|queue| {
        if queue.left.len() < MAX_OWNERS {
            queue.left.extend(mine.take());
            return !mem::replace(&mut queue.running, true);
        }
        false
    });
    drop(mine);
    if start {
        let thread = std::thread::Builder::new().name("portolan-free".into());
        if thread.spawn(free_all).is_err() {
            free_all();
        }
    }
}

fn free_all() {
    let next = || {
        queue(|queue| {
            queue.running = !queue.left.is_empty();
            queue.left.pop()
        })
    };
    while let Some(parts) = next() {
        // A destructor that panics must not leave the queue without a thread.
        contain(|| drop(parts));
    }
}
