//! A registered reader: its pins, and what it announces about them. See protocol.md for why that suffices.
//!
//! One thread uses a reader at a time, so plain cells hold what a pin needs to know about the reader's other pins. The
//! writer sees only the word in the slot:
//!
//! | guards on `main` | other guards | word |
//! |---|---|---|
//! | none, and `main` is not kept | none | `NONE` |
//! | some, or `main` is kept | none | the address of `main` |
//! | any | some | `ALL` |
//!
//! While the reader loads a version, the word is `SINCE` an index that a scan has stored, perhaps not the latest one,
//! or `ALL` if `main` has guards.

use std::cell::Cell;
use std::fmt;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::RcuCell;
use super::slots::{ALL, FREE, NONE, since};
use crate::sync::{self, AtomicUsize, Ordering, count_is_touched, fenced, mutated, ordering};

/// How many pins in a row must find the same version before the reader keeps it announced between pins.
///
/// A reader that pins continuously pays at most this many fences per version. One that pins less often keeps nothing.
const KEPT_AFTER: u32 = 2;

/// One registered reader of an [`RcuCell`].
pub(crate) struct RcuReader<T> {
    cell: sync::Arc<RcuCell<T>>,
    /// The word of this reader's slot, which is part of `cell`.
    word: NonNull<AtomicUsize>,
    /// The version that the reader announces if it has no guards on other versions. Null if there is none.
    main: Cell<*const T>,
    /// How many guards on `main` were created and dropped since it became `main`. Two counters, because with one that
    /// each pin increments and each drop decrements, every pin would wait for the previous store.
    made: Cell<u64>,
    dropped: Cell<u64>,
    /// The number of guards on versions other than `main`.
    others: Cell<u64>,
    /// Whether `main` stays announced when its last guard drops.
    kept: Cell<bool>,
    /// The last version announced, and how often in a row. Never dereferenced.
    last: Cell<*const T>,
    repeated: Cell<u32>,
}

// SAFETY: the cell is shared by a `sync::Arc` and holds `Arc<T>`, so sending a share of it requires `T: Send + Sync`.
// The pointers refer to the cell and to versions in it, not to thread-bound data. Guards borrow the reader, so there is
// none while it moves.
unsafe impl<T: Send + Sync> Send for RcuReader<T> {}

/// A version pinned for brief access. Dereferences to the version, and ends the pin when dropped.
///
/// It cannot be sent to another thread, because a pin is announced on behalf of the thread that made it:
///
/// ```compile_fail,E0277
/// # use portolan_publish::{Pinned, Versioned};
/// # struct V(u64);
/// # impl Versioned for V { fn version(&self) -> u64 { self.0 } }
/// fn send<T: Send>() {}
/// send::<Pinned<'static, V>>();
/// ```
///
/// An owned version can:
///
/// ```
/// # struct V(u64);
/// fn send<T: Send>() {}
/// send::<std::sync::Arc<V>>();
/// ```
pub struct Pinned<'a, T> {
    // Not a reference: a reference would have to stay valid until the call that drops the guard returns.
    version: NonNull<T>,
    reader: &'a RcuReader<T>,
}

impl<T> RcuReader<T> {
    pub(super) fn new(cell: &sync::Arc<RcuCell<T>>) -> Self {
        Self {
            word: cell.slots.claim(),
            cell: sync::Arc::clone(cell),
            main: Cell::new(ptr::null()),
            made: Cell::new(0),
            dropped: Cell::new(0),
            others: Cell::new(0),
            kept: Cell::new(false),
            last: Cell::new(ptr::null()),
            repeated: Cell::new(0),
        }
    }

    fn word(&self) -> &AtomicUsize {
        // SAFETY: the word is part of a block of the cell's slots. The slots live as long as the cell, and this reader
        // shares ownership of the cell.
        unsafe { self.word.as_ref() }
    }

    /// Whether the current version is `main`, which is announced.
    ///
    /// Relaxed, since a yes reveals nothing new: `main` was loaded with acquire when it was announced. It has not been
    /// freed since, so its address still identifies it.
    #[inline]
    fn main_is_current(&self) -> bool {
        ptr::eq(self.cell.current.version.load(Ordering::Relaxed), self.main.get())
    }

    /// The current version, whole. The caller knows what is announced, and on which side of a fence.
    fn current(&self) -> NonNull<T> {
        // Pairs with the store in `replace`: the version is whole.
        let order = ordering!("rcu-current", Acquire => Relaxed);
        let current = self.cell.current.version.load(order);
        // SAFETY: `version` only holds pointers from `Arc::into_raw`, which are not null.
        unsafe { NonNull::new_unchecked(current) }
    }

    /// Announces that this reader may reach the current version and all later ones, or any version if `main` has
    /// guards. Returns the current one, which cannot be freed until the announcement is withdrawn. Releases `main` if
    /// it has no guards.
    fn announce(&self) -> NonNull<T> {
        if self.main_is_pinned() {
            // Relaxed: this releases nothing. Versions announced before stay announced.
            self.word().store(ALL, Ordering::Relaxed);
        } else {
            // Relaxed: with the fence below, this pairs with the store in `scan`. So the load after the fence finds the
            // version with this index or a later one.
            let index = self.cell.current.index.load(Ordering::Relaxed);
            self.withdraw(since(index + usize::from(mutated!("rcu-since-next"))));
        }
        // Pairs with the fence in `scan`. Either the writer's fence comes second, and it finds the announcement; or
        // ours does, and the load below finds the version that the writer made current before its fence.
        fenced!("rcu-announce-fence");
        self.current()
    }

    /// Takes all steps of an announcement but the last one, the store of the address.
    #[cfg(all(test, not(loom)))]
    pub(super) fn begin_announcement(&self) {
        self.announce();
    }

    /// Releases all versions except those that `word` announces.
    fn withdraw(&self, word: usize) {
        // Pairs with the load in `scan`: this reader's accesses to those versions happen before they are freed.
        self.word().store(word, ordering!("rcu-withdraw", Release => Relaxed));
    }

    #[inline]
    fn count(counter: &Cell<u64>) {
        // Cannot overflow: nobody can create that many guards, not even by forgetting them.
        counter.set(counter.get() + 1);
    }

    fn guard(&self, version: NonNull<T>) -> Pinned<'_, T> {
        match ptr::eq(version.as_ptr(), self.main.get()) {
            true => Self::count(&self.made),
            false => Self::count(&self.others),
        }
        Pinned { version, reader: self }
    }

    /// Pins a version that is not `main`.
    #[cold]
    fn pin_other(&self) -> Pinned<'_, T> {
        if self.others.get() > 0 {
            // All versions are already announced, and the fence has run.
            return self.guard(self.current());
        }
        self.kept.set(false);
        let version = self.announce();
        if self.main_is_pinned() {
            // A different version: all versions stay announced until its guard drops.
            return self.guard(version);
        }
        self.main.set(version.as_ptr());
        self.made.set(0);
        self.dropped.set(0);
        self.withdraw(version.addr().get());
        let repeated = match ptr::eq(version.as_ptr(), self.last.replace(version.as_ptr())) {
            true => self.repeated.get().saturating_add(1),
            false => 1,
        };
        self.repeated.set(repeated);
        self.kept.set(repeated >= KEPT_AFTER);
        self.guard(version)
    }

    #[inline]
    fn main_is_pinned(&self) -> bool {
        self.made.get() != self.dropped.get()
    }

    /// Announces what is still reached after the last guard on others, or on an unkept `main`, may have dropped.
    #[cold]
    fn settle(&self) {
        if !self.main_is_pinned() && !self.kept.get() {
            self.main.set(ptr::null());
        }
        if self.others.get() > 0 {
            return;
        }
        match NonNull::new(self.main.get().cast_mut()) {
            Some(main) => self.withdraw(main.addr().get()),
            None => self.withdraw(NONE),
        }
    }

    /// Creates an owned handle to `version`.
    ///
    /// # Safety
    ///
    /// The version is announced by this reader, and stays announced during the call.
    unsafe fn handle(version: NonNull<T>) -> Arc<T> {
        // SAFETY: the pointer came from `Arc::into_raw`, like every pointer that is ever current. The version is not
        // freed while it is announced, so it has at least the writer's count.
        unsafe {
            count_is_touched();
            Arc::increment_strong_count(version.as_ptr());
            Arc::from_raw(version.as_ptr())
        }
    }

    #[cold]
    fn load_other(&self) -> Arc<T> {
        if self.others.get() > 0 {
            // SAFETY: all versions have been announced since before this load.
            return unsafe { Self::handle(self.current()) };
        }
        self.kept.set(false);
        let version = self.announce();
        if mutated!("rcu-count-late") {
            self.settle();
        }
        // SAFETY: the version is announced, until `settle`.
        let handle = unsafe { Self::handle(version) };
        self.settle();
        handle
    }
}

impl<T> RcuReader<T> {
    /// Pins the current version briefly.
    #[inline]
    pub(crate) fn pin(&self) -> Pinned<'_, T> {
        if self.main_is_current() {
            Self::count(&self.made);
            // SAFETY: `main` is the current version, which is never null.
            let version = unsafe { NonNull::new_unchecked(self.main.get().cast_mut()) };
            return Pinned { version, reader: self };
        }
        self.pin_other()
    }

    /// Returns an owned handle to the current version. The reader keeps nothing.
    #[inline]
    pub(crate) fn load(&self) -> Arc<T> {
        if self.main_is_current() {
            // SAFETY: `main` is the current version, so it is not null. It is announced, by its address or by `ALL`.
            return unsafe { Self::handle(NonNull::new_unchecked(self.main.get().cast_mut())) };
        }
        self.load_other()
    }

    /// Releases any version kept between pins.
    pub(crate) fn rest(&mut self) {
        // Guards borrow the reader, so guards that are still counted were forgotten, and nobody uses them.
        self.dropped.set(self.made.get());
        self.others.set(0);
        self.kept.set(false);
        self.last.set(ptr::null());
        self.settle();
    }

    /// Registers another reader. May allocate.
    pub(crate) fn another(&self) -> Self {
        Self::new(&self.cell)
    }
}

impl<T> Deref for Pinned<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the reader announces the version while this guard is counted, that is, until the guard drops, and the
        // writer frees no announced version.
        unsafe { self.version.as_ref() }
    }
}

impl<T> Drop for Pinned<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let reader = self.reader;
        if ptr::eq(self.version.as_ptr(), reader.main.get()) {
            RcuReader::<T>::count(&reader.dropped);
            if reader.kept.get() || reader.main_is_pinned() {
                return;
            }
        } else {
            let others = reader.others.get() - 1;
            reader.others.set(others);
            if others > 0 {
                return;
            }
        }
        reader.settle();
    }
}

impl<T> Drop for RcuReader<T> {
    fn drop(&mut self) {
        // As in `rest`, no guard is left. Pairs with the claim of the next reader of this slot, and with `scan`.
        self.withdraw(FREE);
    }
}

impl<T> fmt::Debug for RcuReader<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RcuReader")
            .field("guards", &(self.made.get() - self.dropped.get()))
            .field("others", &self.others.get())
            .field("kept", &self.kept.get())
            .finish_non_exhaustive()
    }
}

impl<T: fmt::Debug> fmt::Debug for Pinned<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pinned").field(&**self).finish()
    }
}
