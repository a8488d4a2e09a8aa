//! Our own publication cell: one writer, and registered readers. While nothing is published, a reader's repeated pins
//! write nothing that other threads read.
//!
//! A reader announces in its own slot which version it may reach, and the writer frees versions that no slot names.
//! Announcing takes a fence. So a reader that pins one version repeatedly keeps it announced between its pins, and such
//! a pin is one load and one compare.
//!
//! # What it guarantees
//!
//! - A reader takes only versions that were given to the cell, and sees them whole: everything the writer did before
//!   handing a version over happens before the reader's first access. A version neither changes nor is freed while a
//!   guard or handle refers to it.
//! - The versions that one reader takes never go back. A read that happens after a replacement returns that version or
//!   a later one.
//! - The writer's side frees a replaced version exactly once: when no pin reaches it and the writer's handle is the last.
//!   One atomic step both decides that the handle is the last and gives it up. Weak handles can be upgraded until that
//!   step, and never afterwards.
//! - A pin is a bounded number of steps, whatever other threads do: one load and one compare if the version is already
//!   announced; otherwise at most three loads, two stores and one fence. No lock, no allocation, no read-modify-write,
//!   no word that another reader writes.
//! - A replacement waits for nobody. A scan for pins is a fence, a store, and a load for each slot and each block.
//! - Any number of readers may register and leave at any time, without a lock.
//! - There are no `SeqCst` accesses, only fences, so that loom models all of it.
//!
//! # What it costs
//!
//! - A reader that has pinned one version several times keeps it until its next pin after a publish. If it then stays
//!   idle forever, it keeps that one version forever, unless it is [released](super::Subscription::release). A reader
//!   that pins only occasionally keeps nothing.
//! - A reader that holds guards on two versions at once keeps every version replaced in the meantime.
//! - A reader that stops forever within the steps of an announcement keeps every version that is replaced after the
//!   last scan before its first step. All of this costs memory and blocks nobody;
//!   [`Figures::oldest_pinned`](super::Figures::oldest_pinned) shows it.
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

pub use self::reader::Pinned;
pub(crate) use self::reader::RcuReader;
use self::slots::{Announced, LAST, Slots};
use super::replaced::{Pins, Replaced};
use crate::sync::{self, AtomicPtr, AtomicUsize, Mutex, Ordering, fenced, lock, ordering};

/// Holds the current version.
pub(crate) struct RcuCell<T> {
    /// On its own cache line: pins read it, publishes write it.
    current: CachePadded<Current<T>>,
    slots: Slots,
    /// Versions that were pinned when the writer ended.
    left: Mutex<Vec<Replaced<T>>>,
    /// The cell owns versions, which its atomic pointer does not express.
    _owns: PhantomData<Arc<T>>,
}

struct Current<T> {
    /// From `Arc::into_raw`; owns that count.
    version: AtomicPtr<T>,
    /// The index of `version`, or of an earlier one: the number of versions that were replaced before the last scan.
    index: AtomicUsize,
}

/// The single writer's end of an [`RcuCell`].
pub(crate) struct RcuWriter<T> {
    cell: sync::Arc<RcuCell<T>>,
    /// The number of versions that were replaced, at most [`LAST`].
    replaced: usize,
}

impl<T> RcuWriter<T> {
    /// Creates a cell whose current version is `first`.
    pub(crate) fn new(first: Arc<T>) -> RcuWriter<T> {
        let version = AtomicPtr::new(Arc::into_raw(first).cast_mut());
        let current = Current { version, index: AtomicUsize::new(0) };
        let cell = RcuCell {
            current: CachePadded::new(current),
            slots: Slots::new(),
            left: Mutex::new(Vec::new()),
            _owns: PhantomData,
        };
        RcuWriter { cell: sync::Arc::new(cell), replaced: 0 }
    }

    /// Registers a reader. May allocate.
    pub(crate) fn reader(&self) -> RcuReader<T> {
        RcuReader::new(&self.cell)
    }

    /// Makes `next` the current version and returns the version it replaced, which pins may still reach.
    pub(crate) fn replace(&mut self, next: Arc<T>) -> Replaced<T> {
        let version = &self.cell.current.version;
        // Relaxed: only this writer stores here, and there is one.
        let replaced = version.load(Ordering::Relaxed);
        // Pairs with the loads in `reader`: a reader that sees the version sees it whole.
        let order = ordering!("rcu-replace", Release => Relaxed);
        version.store(Arc::into_raw(next).cast_mut(), order);
        let index = self.replaced;
        self.replaced = (index + 1).min(LAST);
        // SAFETY: the pointer in `current` came from `Arc::into_raw` and owns a count. That count passes to this
        // handle, once: the pointer is no longer in `current`, and nobody else takes one out while there is a writer.
        Replaced::new(unsafe { Arc::from_raw(replaced) }, index)
    }

    /// Records in `pins` which replaced versions pins may reach. O(readers).
    ///
    /// A version that no pin reaches now is never reached again, because readers take only the current version.
    pub(crate) fn scan(&self, pins: &mut Pins) {
        pins.clear();
        // Pairs with the fence in `RcuReader::announce`; protocol.md argues the cases.
        fenced!("rcu-scan-fence");
        // Relaxed: with the fence above, this pairs with the load of the index before the fence in `announce`. A reader
        // that sees the index finds the version that was current at the fence above, or a later one.
        self.cell.current.index.store(self.replaced, Ordering::Relaxed);
        for word in self.cell.slots.words() {
            // Pairs with the stores in `reader` that withdraw an announcement: a reader's accesses to a version before
            // it releases the version happen before the version is freed.
            match Announced::of(word.load(ordering!("rcu-scan", Acquire => Relaxed))) {
                Announced::Nothing => {}
                Announced::Since(index) => pins.add_since(index),
                Announced::Address(address) => pins.add(address),
            }
        }
    }

    /// Ends the writer. `rest` holds the versions that pins still reach; the last owner of the cell frees them.
    pub(crate) fn leave(&mut self, mut rest: Vec<Replaced<T>>) {
        // The lock guards a list that is consistent at every step.
        lock(&self.cell.left).append(&mut rest);
    }
}

impl<T> Drop for RcuCell<T> {
    fn drop(&mut self) {
        // Relaxed: this is the last owner of the cell, and its drop happens after all other accesses.
        let current = self.current.version.load(Ordering::Relaxed);
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn scan(writer: &RcuWriter<u64>) -> Pins {
        let mut pins = Pins::default();
        writer.scan(&mut pins);
        pins
    }

    #[test]
    fn a_reader_that_is_loading_a_version_keeps_only_that_one_and_later_ones() {
        let mut writer = RcuWriter::new(Arc::new(0));
        let reader: RcuReader<u64> = writer.reader();
        let older: Vec<_> = (1..4).map(|next| writer.replace(Arc::new(next))).collect();
        scan(&writer);
        reader.begin_announcement();
        let later: Vec<_> = (4..7).map(|next| writer.replace(Arc::new(next))).collect();
        let pins = scan(&writer);
        assert!(older.iter().all(|version| !pins.reach(version)));
        assert!(later.iter().all(|version| pins.reach(version)));
        // The next version that it loads releases all of them.
        assert_eq!(*reader.load(), 6);
        let pins = scan(&writer);
        assert!(!later.iter().any(|version| pins.reach(version)));
        // With a guard on an older version, it keeps that one, too.
        let guard = reader.pin();
        let replaced = writer.replace(Arc::new(7));
        reader.begin_announcement();
        assert!(scan(&writer).reach(&replaced));
        assert_eq!(*guard, 6);
        drop(guard);
        drop(reader);
        let pins = scan(&writer);
        for version in older.into_iter().chain(later).chain([replaced]) {
            assert!(!pins.reach(&version));
            // SAFETY: no reader is left.
            unsafe { version.free() };
        }
    }

    #[test]
    fn the_earliest_of_two_loading_readers_decides_which_versions_are_kept() {
        let mut writer = RcuWriter::new(Arc::new(0));
        let (first, second): (RcuReader<u64>, RcuReader<u64>) = (writer.reader(), writer.reader());
        let older = writer.replace(Arc::new(1));
        scan(&writer);
        first.begin_announcement();
        let replaced = writer.replace(Arc::new(2));
        scan(&writer);
        second.begin_announcement();
        let pins = scan(&writer);
        assert_eq!((pins.reach(&older), pins.reach(&replaced)), (false, true));
        drop((first, second));
        let pins = scan(&writer);
        for version in [older, replaced] {
            assert!(!pins.reach(&version));
            // SAFETY: no reader is left.
            unsafe { version.free() };
        }
    }
}
