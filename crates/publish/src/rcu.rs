//! Our own publication cell: one writer, and registered readers. While nothing is published, a reader's repeated pins
//! write nothing that other threads read.
//!
//! A reader announces in its own slot which version it may reach, and the writer frees versions that no slot names.
//! Announcing takes a fence. So a reader that pins one version repeatedly keeps it announced between its pins, and such
//! a pin is one load and one compare.
//!
//! # What it guarantees
//!
//! - A pin is a bounded number of steps, whatever other threads do: one load and one compare if the version is already
//!   announced; otherwise one store, one fence, one load and one more store. No lock, no allocation, no
//!   read-modify-write, no word that another reader writes.
//! - A replacement waits for nobody. A scan for pins is a fence and a load for each slot.
//! - Any number of readers may register and leave at any time, without a lock.
//! - There are no `SeqCst` accesses, only fences, so that loom models all of it.
//!
//! # What it costs
//!
//! - A reader that has pinned one version several times keeps it until its next pin after a publish. If it then stays
//!   idle forever, it keeps that one version forever, unless it is [released](super::Subscription::release). A reader
//!   that pins only occasionally keeps nothing.
//! - A reader that holds guards on two versions at once keeps every version replaced in the meantime.
//! - So does a reader that stops forever within the four steps of an announcement. All of this costs memory and blocks
//!   nobody; [`Figures::oldest_pinned`](super::Figures::oldest_pinned) shows it.
//! - Versions that are still pinned when the writer ends are freed with the last reader.
#![allow(unsafe_code)]
#![doc = ""]
#![doc = include_str!("rcu/protocol.md")]

#[cfg(loom)]
pub(crate) mod model;
mod reader;
mod slots;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use crossbeam_utils::CachePadded;

pub use self::reader::{RcuGuard, RcuReader};
use self::slots::{ALL, FREE, NONE, Slots};
use super::cell::sealed::{Algorithm, WriteEnd};
use super::replaced::{Pins, Replaced};
use crate::sync::{self, AtomicPtr, Mutex, Ordering, fenced, lock, ordering};

/// Selects this cell: `Publisher<T, RcuCell<T>>`.
pub struct RcuCell<T> {
    /// From `Arc::into_raw`; owns that count. On its own cache line: pins read it, publishes write it.
    current: CachePadded<AtomicPtr<T>>,
    slots: Slots,
    /// Versions that were pinned when the writer ended.
    left: Mutex<Vec<Replaced<T>>>,
    /// The cell owns versions, which its atomic pointer does not express.
    _owns: PhantomData<Arc<T>>,
}

/// The single writer's end of an [`RcuCell`].
pub struct RcuWriter<T> {
    cell: sync::Arc<RcuCell<T>>,
}

impl<T: Send + Sync + 'static> Algorithm<T> for RcuCell<T> {
    type Writer = RcuWriter<T>;
    type Reader = RcuReader<T>;

    fn start(first: Arc<T>) -> RcuWriter<T> {
        let current = AtomicPtr::new(Arc::into_raw(first).cast_mut());
        let cell = Self {
            current: CachePadded::new(current),
            slots: Slots::new(),
            left: Mutex::new(Vec::new()),
            _owns: PhantomData,
        };
        RcuWriter { cell: sync::Arc::new(cell) }
    }
}

impl<T: Send + Sync + 'static> WriteEnd<T> for RcuWriter<T> {
    type ReadEnd = RcuReader<T>;

    fn reader(&self) -> RcuReader<T> {
        RcuReader::new(&self.cell)
    }

    fn replace(&mut self, next: Arc<T>) -> Replaced<T> {
        // Relaxed: only this writer stores here, and there is one.
        let replaced = self.cell.current.load(Ordering::Relaxed);
        // Pairs with the loads in `reader`: a reader that sees the version sees it whole.
        let order = ordering!("rcu-replace", Release => Relaxed);
        self.cell.current.store(Arc::into_raw(next).cast_mut(), order);
        // SAFETY: the pointer in `current` came from `Arc::into_raw` and owns a count. That count passes to this
        // handle, once: the pointer is no longer in `current`, and nobody else takes one out while there is a writer.
        Replaced::new(unsafe { Arc::from_raw(replaced) })
    }

    fn look(&self, pins: &mut Pins) {
        pins.clear();
        // Pairs with the fence in `RcuReader::announce`; protocol.md argues the cases.
        fenced!("rcu-look-fence");
        for word in self.cell.slots.words() {
            // Pairs with the stores in `reader` that withdraw an announcement: a reader's accesses to a version before
            // it releases the version happen before the version is freed.
            match word.load(ordering!("rcu-look", Acquire => Relaxed)) {
                FREE | NONE => {}
                ALL => pins.add_all(),
                address => pins.add(address),
            }
        }
    }

    fn leave(&mut self, mut rest: Vec<Replaced<T>>) {
        // The lock guards a list that is consistent at every step.
        lock(&self.cell.left).append(&mut rest);
    }
}

impl<T> Drop for RcuCell<T> {
    fn drop(&mut self) {
        // Relaxed: this is the last owner of the cell, and its drop happens after all other accesses.
        let current = self.current.load(Ordering::Relaxed);
        // SAFETY: this gives up the count that `current` owns, once. Guards borrow readers, and readers share ownership
        // of the cell, so no guard is left.
        drop(unsafe { Arc::from_raw(current) });
        for replaced in lock(&self.left).drain(..) {
            // SAFETY: no reader is left, so no pin reaches the version.
            unsafe { replaced.free() };
        }
    }
}

impl<T> fmt::Debug for RcuCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RcuCell").field("slots", &self.slots).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for RcuWriter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RcuWriter").field("cell", &self.cell).finish()
    }
}
