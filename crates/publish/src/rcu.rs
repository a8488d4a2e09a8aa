//! Our own publication cell: one writer, registered readers, and a pin that writes nothing that others read as long
//! as nothing is published.
//!
//! A reader announces in a slot of its own which version it may reach, and the writer frees what no slot names. To
//! announce takes a fence; so a reader that pins one version again and again keeps it announced between its pins, and
//! such a pin is one load and one compare.
//!
//! # What it gives
//!
//! - A pin is a bounded number of steps, whatever the others do: one load and one compare of a version that is
//!   announced already; otherwise one store, one fence, one load and one store more. No lock, no allocation, no
//!   read-modify-write, no word that another reader writes.
//! - A replacement waits for nobody; a look at the pins is a fence and a load for each slot.
//! - Readers register and leave at any time, without a lock, and there may be any number.
//! - It knows no `SeqCst` access, only fences, so that loom sees all of it.
//!
//! # What it costs
//!
//! - A reader that has pinned one version several times keeps it until its next pin after a publish. One that then
//!   rests for ever keeps that one version for ever, unless it says that it rests. A reader that looks now and
//!   then keeps nothing.
//! - A reader that has guards on two versions at once keeps every version that is replaced meanwhile.
//! - So does one that stops for ever within the four steps of an announcement. All of this costs memory and holds
//!   nobody up; [`Figures::oldest_pinned`](super::Figures::oldest_pinned) shows it.
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

/// The cell of this module, as an algorithm to choose: `Publisher<T, RcuCell<T>>`.
pub struct RcuCell<T> {
    /// Came from `Arc::into_raw`, and owns that count. On a line of its own: pins read it, publishes write it.
    current: CachePadded<AtomicPtr<T>>,
    slots: Slots,
    /// What was pinned when the writer ended.
    left: Mutex<Vec<Replaced<T>>>,
    /// It owns versions, whatever its atomic pointer looks like.
    _owns: PhantomData<Arc<T>>,
}

/// The one writer's end of an [`RcuCell`].
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
        // Pairs with the loads in `reader`: who sees the version sees it whole.
        let order = ordering!("rcu-replace", Release => Relaxed);
        self.cell.current.store(Arc::into_raw(next).cast_mut(), order);
        // SAFETY: what stands in `current` came from `Arc::into_raw` and owns a count. That count passes to this handle,
        // once: the pointer stands there no more, and nobody else takes one out while there is a writer.
        Replaced::new(unsafe { Arc::from_raw(replaced) })
    }

    fn look(&self, pins: &mut Pins) {
        pins.clear();
        // Pairs with the fence in `RcuReader::announce`; the cases are argued in protocol.md.
        fenced!("rcu-look-fence");
        for word in self.cell.slots.words() {
            // Pairs with the stores in `reader` that withdraw an announcement: what the reader did with a version before
            // it let go of it happens before the version is freed.
            match word.load(ordering!("rcu-look", Acquire => Relaxed)) {
                FREE | NONE => {}
                ALL => pins.add_all(),
                address => pins.add(address),
            }
        }
    }

    fn leave(&mut self, mut rest: Vec<Replaced<T>>) {
        // The lock guards a list that is whole at every step.
        lock(&self.cell.left).append(&mut rest);
    }
}

impl<T> Drop for RcuCell<T> {
    fn drop(&mut self) {
        // Relaxed: this is the last owner of the cell, and happens after all others.
        let current = self.current.load(Ordering::Relaxed);
        // SAFETY: the count that `current` owns, given up once, here. Guards borrow readers, and readers own a part of
        // the cell, so none is left.
        drop(unsafe { Arc::from_raw(current) });
        for replaced in lock(&self.left).drain(..) {
            // SAFETY: no reader is left, so no pin is.
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
