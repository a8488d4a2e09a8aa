//! A registered reader: its pins, and what it announces of them. See protocol.md for why that suffices.
//!
//! All that a pin needs to know of other pins of the same reader stands in plain cells: a reader is used by one thread
//! at a time. The word in the slot is what the writer sees of it:
//!
//! | guards on `main` | other guards | word |
//! |---|---|---|
//! | none, and `main` is not kept | none | `NONE` |
//! | some, or `main` is kept | none | the address of `main` |
//! | any | some | `ALL` |

use std::cell::Cell;
use std::fmt;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::RcuCell;
use super::slots::{ALL, FREE, NONE};
use crate::cell::sealed::ReadEnd;
use crate::sync::{self, AtomicUsize, Ordering, count_is_touched, fenced, mutated, ordering};

/// How many pins in a row must find the same version before a reader keeps it announced from one to the next.
///
/// So many fences are paid per version at most by who pins all the time; who pins less often per version keeps nothing.
const KEPT_AFTER: u32 = 2;

/// One registered reader of an [`RcuCell`].
pub struct RcuReader<T> {
    cell: sync::Arc<RcuCell<T>>,
    /// The word of this reader's slot, which stands in `cell`.
    word: NonNull<AtomicUsize>,
    /// The version that is announced by its address, or would be if it were not for guards on others; or null.
    main: Cell<*const T>,
    /// How many guards on `main` were made and dropped since it became `main`. Two numbers, since one that goes up with
    /// each pin and down with each drop would make every pin wait for the memory of the last.
    made: Cell<u64>,
    dropped: Cell<u64>,
    /// Guards on versions other than `main`.
    others: Cell<u64>,
    /// Whether `main` stays announced when its last guard drops.
    kept: Cell<bool>,
    /// What was announced last, not to be followed, and how often in a row it was.
    last: Cell<*const T>,
    repeated: Cell<u32>,
}

// SAFETY: the cell is shared by a `sync::Arc` and holds `Arc<T>`, so `T: Send + Sync` is what it takes to send a part of
// it. The pointers refer to the cell and to versions in it, not to anything of a thread. Guards borrow the reader, so
// there is none while it moves.
unsafe impl<T: Send + Sync> Send for RcuReader<T> {}

/// A version pinned in an [`RcuCell`].
pub struct RcuGuard<'a, T> {
    // Not a reference: it would have to stay good until the end of the call that drops the guard.
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
        // SAFETY: the word stands in a block of the cell's slots, which live as long as the cell, of which this reader
        // owns a part.
        unsafe { self.word.as_ref() }
    }

    /// Whether the current version is `main`, which is announced.
    ///
    /// Relaxed, since nothing new is learnt from a yes: `main` was loaded with acquire when it was announced. It has not
    /// been freed since, so what stands at its address is still itself.
    #[inline]
    fn main_is_current(&self) -> bool {
        ptr::eq(self.cell.current.load(Ordering::Relaxed), self.main.get())
    }

    /// The current version, whole. What is announced, and on which side of a fence, the caller knows.
    fn current(&self) -> NonNull<T> {
        // Pairs with the store in `replace`: the version is whole.
        let current = self.cell.current.load(ordering!("rcu-current", Acquire => Relaxed));
        // SAFETY: only pointers from `Arc::into_raw` stand in `current`, and those are not null.
        unsafe { NonNull::new_unchecked(current) }
    }

    /// Announces that any version may be reached, and gives the current one, which can't be freed from now on before
    /// that is withdrawn.
    fn announce(&self) -> NonNull<T> {
        // Relaxed: this lets go of nothing. Whatever was announced before is announced still.
        self.word().store(ALL, Ordering::Relaxed);
        // Pairs with the fence in `look`: of the two, either the writer's comes second, and finds the announcement; or
        // ours does, and then the load below finds what the writer had made current before its fence.
        fenced!("rcu-announce-fence");
        self.current()
    }

    /// Lets go of all versions but what `word` says.
    fn withdraw(&self, word: usize) {
        // Pairs with the load in `look`: what was done with those versions happens before they are freed.
        self.word().store(word, ordering!("rcu-withdraw", Release => Relaxed));
    }

    #[inline]
    fn count(counter: &Cell<u64>) {
        // Does not overflow: that many guards can't be made, not even by forgetting them.
        counter.set(counter.get() + 1);
    }

    fn guard(&self, version: NonNull<T>) -> RcuGuard<'_, T> {
        match ptr::eq(version.as_ptr(), self.main.get()) {
            true => Self::count(&self.made),
            false => Self::count(&self.others),
        }
        RcuGuard { version, reader: self }
    }

    /// A pin of a version that is not `main`.
    #[cold]
    fn pin_other(&self) -> RcuGuard<'_, T> {
        if self.others.get() > 0 {
            // All versions are announced, and the fence is behind us.
            return self.guard(self.current());
        }
        self.kept.set(false);
        let version = self.announce();
        if self.main_is_pinned() {
            // This is another one: all versions stay announced until its guard drops.
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

    /// Announces what guards are left for, where no guards on others may be left, or none on a `main` that is not kept.
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

    /// A handle of its own to `version`.
    ///
    /// # Safety
    ///
    /// The version is announced by this reader, and stays so during the call.
    unsafe fn handle(version: NonNull<T>) -> Arc<T> {
        // SAFETY: the pointer came from `Arc::into_raw`, as all that are ever current, and the version is not freed
        // while it is announced, so there is at least the writer's count.
        unsafe {
            count_is_touched();
            Arc::increment_strong_count(version.as_ptr());
            Arc::from_raw(version.as_ptr())
        }
    }

    #[cold]
    fn load_other(&self) -> Arc<T> {
        if self.others.get() > 0 {
            // SAFETY: all versions are announced, since before this load.
            return unsafe { Self::handle(self.current()) };
        }
        self.kept.set(false);
        let version = self.announce();
        if mutated!("rcu-count-late") {
            self.settle();
        }
        // SAFETY: all versions are announced, until `settle`.
        let handle = unsafe { Self::handle(version) };
        self.settle();
        handle
    }
}

impl<T: Send + Sync + 'static> ReadEnd<T> for RcuReader<T> {
    type Guard<'a> = RcuGuard<'a, T>;

    #[inline]
    fn pin(&self) -> RcuGuard<'_, T> {
        if self.main_is_current() {
            Self::count(&self.made);
            // SAFETY: `main` is what is current, and that is never null.
            let version = unsafe { NonNull::new_unchecked(self.main.get().cast_mut()) };
            return RcuGuard { version, reader: self };
        }
        self.pin_other()
    }

    #[inline]
    fn load(&self) -> Arc<T> {
        if self.main_is_current() {
            // SAFETY: `main` is what is current, so it is not null; it is announced, by its address or with all.
            return unsafe { Self::handle(NonNull::new_unchecked(self.main.get().cast_mut())) };
        }
        self.load_other()
    }

    fn rest(&mut self) {
        // Guards borrow the reader, so those that are counted still were forgotten, and nobody looks through them.
        self.dropped.set(self.made.get());
        self.others.set(0);
        self.kept.set(false);
        self.last.set(ptr::null());
        self.settle();
    }

    fn another(&self) -> Self {
        Self::new(&self.cell)
    }
}

impl<T> Deref for RcuGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the reader announces the version as long as this guard is counted, that is, until its drop, and the
        // writer frees no version that is announced.
        unsafe { self.version.as_ref() }
    }
}

impl<T> Drop for RcuGuard<'_, T> {
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
        // As in `rest`, no guard is left. Pairs with the claim of the next reader of this slot, and with `look`.
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

impl<T: fmt::Debug> fmt::Debug for RcuGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RcuGuard").field(&**self).finish()
    }
}
