//! The publication cell built on the `arc-swap` crate, with which the tests compare our own cell.
//!
//! arc-swap is widely used, and its readers need no registration. A pin is a load, a swap on a slot owned by the
//! thread, and a second load. Dropping the guard is one compare-exchange on the same slot. Neither touches a count that
//! another thread writes.
//!
//! It departs from the contract of [`Cell`](super::cell::Cell) in these points. A thread's first pin claims a node in a
//! list shared by all users of arc-swap in the process; that allocates, and is lock-free. A thread that holds more than
//! eight guards, or collides with a replacement, takes a slower path that increments the version's count; the path is
//! still bounded. A replacement walks the nodes of all threads that ever used arc-swap concurrently and pays the debts
//! it finds there. After that a replaced version's strong count is exact, so a scan for pins finds none.
//!
//! No checker of this crate sees inside arc-swap, and the loom models exclude it.
//!
//! With `RwLock<()>` as its strategy this cell is the reference for the other cells: a lock around a count, whose
//! replacements do wait for readers.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use arc_swap::strategy::Strategy;
use arc_swap::{ArcSwapAny, DefaultStrategy};

use super::cell::sealed::{Algorithm, ReadEnd, WriteEnd};
use super::replaced::{Pins, Replaced};

/// Selects this cell: `Publisher<T, ArcSwapCell<T>>`.
#[derive(Debug)]
pub(crate) struct ArcSwapCell<T, S: Strategy<Arc<T>> = DefaultStrategy> {
    current: ArcSwapAny<Arc<T>, S>,
}

/// The writer's end and the readers' end of an [`ArcSwapCell`].
pub(crate) struct ArcSwapEnd<T, S: Strategy<Arc<T>> = DefaultStrategy> {
    cell: Arc<ArcSwapCell<T, S>>,
}

/// A version pinned in an [`ArcSwapCell`].
pub(crate) struct ArcSwapGuard<T, S: Strategy<Arc<T>> = DefaultStrategy> {
    guard: arc_swap::Guard<Arc<T>, S>,
}

impl<T, S: Strategy<Arc<T>>> Deref for ArcSwapGuard<T, S> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T, S> Algorithm<T> for ArcSwapCell<T, S>
where
    T: Send + Sync + 'static,
    S: Strategy<Arc<T>> + Default + Send + Sync + 'static,
{
    type Writer = ArcSwapEnd<T, S>;
    type Reader = ArcSwapEnd<T, S>;

    fn start(first: Arc<T>) -> Self::Writer {
        let current = ArcSwapAny::with_strategy(first, S::default());
        ArcSwapEnd { cell: Arc::new(Self { current }) }
    }
}

impl<T, S> WriteEnd<T> for ArcSwapEnd<T, S>
where
    T: Send + Sync + 'static,
    S: Strategy<Arc<T>> + Default + Send + Sync + 'static,
{
    type ReadEnd = Self;

    fn reader(&self) -> Self {
        self.another()
    }

    fn replace(&mut self, next: Arc<T>) -> Replaced<T> {
        Replaced::new(self.cell.current.swap(next), 0)
    }

    fn scan(&self, pins: &mut Pins) {
        pins.clear();
    }

    fn leave(&mut self, rest: Vec<Replaced<T>>) {
        debug_assert!(rest.is_empty(), "no scan finds a pin");
    }
}

impl<T, S> ReadEnd<T> for ArcSwapEnd<T, S>
where
    T: Send + Sync + 'static,
    S: Strategy<Arc<T>> + Send + Sync + 'static,
{
    type Guard<'a> = ArcSwapGuard<T, S>;

    #[inline]
    fn pin(&self) -> ArcSwapGuard<T, S> {
        ArcSwapGuard { guard: self.cell.current.load() }
    }

    #[inline]
    fn load(&self) -> Arc<T> {
        self.cell.current.load_full()
    }

    fn rest(&mut self) {}

    fn another(&self) -> Self {
        Self { cell: Arc::clone(&self.cell) }
    }
}

impl<T, S: Strategy<Arc<T>>> fmt::Debug for ArcSwapEnd<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArcSwapEnd").finish_non_exhaustive()
    }
}

impl<T: fmt::Debug, S: Strategy<Arc<T>>> fmt::Debug for ArcSwapGuard<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ArcSwapGuard").field(&**self).finish()
    }
}
