//! The publication cell over `arc-swap`: a second opinion, and the other one to choose.
//!
//! It has been through a lot in other people's programs, and needs no reader to be registered. A pin is a load, a swap
//! on a slot of the thread's own, and a second load; its end is one compare-exchange on the same slot. No count that
//! another thread writes is touched.
//!
//! Its exceptions from the contract of [`Cell`](super::cell::Cell): a thread's first pin claims a node in a list that
//! all of arc-swap shares (an allocation, lock-free); a thread that has more than eight guards at once, or that
//! collides with a replacement, takes a slower path that bumps the version's count (bounded still). A replacement walks
//! the nodes of all threads that ever used arc-swap at the same time, and pays the debts it finds there, after which a
//! replaced version's strong count is exact: so a look at its pins finds none.
//!
//! No checker of this crate sees into arc-swap: it stands outside the loom models.
//!
//! With `RwLock<()>` as its strategy (a feature of arc-swap, for the tests of this crate alone) it is the reference that
//! the others are compared with: a lock around a count, where a replacement does wait for readers.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use arc_swap::strategy::Strategy;
use arc_swap::{ArcSwapAny, DefaultStrategy};

use super::cell::sealed::{Algorithm, ReadEnd, WriteEnd};
use super::replaced::{Pins, Replaced};

/// The cell of this module, as an algorithm to choose: `Publisher<T, ArcSwapCell<T>>`.
#[derive(Debug)]
pub struct ArcSwapCell<T, S: Strategy<Arc<T>> = DefaultStrategy> {
    current: ArcSwapAny<Arc<T>, S>,
}

/// The writer's and the readers' ends of an [`ArcSwapCell`].
pub struct ArcSwapEnd<T, S: Strategy<Arc<T>> = DefaultStrategy> {
    cell: Arc<ArcSwapCell<T, S>>,
}

/// A version pinned in an [`ArcSwapCell`].
pub struct ArcSwapGuard<T, S: Strategy<Arc<T>> = DefaultStrategy> {
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
        Replaced::new(self.cell.current.swap(next))
    }

    fn look(&self, pins: &mut Pins) {
        pins.clear();
    }

    fn leave(&mut self, rest: Vec<Replaced<T>>) {
        debug_assert!(rest.is_empty(), "no look finds a pin");
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
