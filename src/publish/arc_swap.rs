//! The publication cell over `arc-swap`: what ships by default.
//!
//! Chosen for what it has been through in other people's programs. A pin is a load, a swap on a slot of the thread's
//! own, and a second load; its end is one compare-exchange on the same slot. No count that another thread writes is
//! touched.
//!
//! Its exceptions from the contract of [`Cell`]: a thread's first pin claims a node in a list that all of arc-swap
//! shares (an allocation, lock-free); a thread that has more than eight guards at once, or that collides with a
//! replacement, takes a slower path that bumps the version's count (bounded still). A replacement walks the nodes of
//! all threads that ever used arc-swap at the same time, and pays the debts it finds there, after which a replaced
//! version's strong count is exact: so [`Cell::quiet`] is "all of them".
//!
//! No checker of this crate sees into arc-swap: it stands outside the loom models, which run the same publisher over
//! a stand-in with the weakest behaviour that the contract allows.

use std::ops::Deref;
use std::sync::Arc;

use super::cell::{Cell, sealed};

/// The cell over [`arc_swap::ArcSwap`] with its default strategy.
#[derive(Debug)]
pub struct ArcSwapCell<T> {
    current: arc_swap::ArcSwap<T>,
}

/// A version pinned in an [`ArcSwapCell`].
#[derive(Debug)]
pub struct ArcSwapGuard<T> {
    guard: arc_swap::Guard<Arc<T>>,
}

impl<T> Deref for ArcSwapGuard<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> sealed::Sealed for ArcSwapCell<T> {}

impl<T: Send + Sync + 'static> Cell<T> for ArcSwapCell<T> {
    type Slot = ();
    type Guard<'a> = ArcSwapGuard<T>;

    fn new(first: Arc<T>) -> Self {
        Self { current: arc_swap::ArcSwap::new(first) }
    }

    fn register(&self) -> Self::Slot {}

    #[inline]
    fn pin<'a>(&'a self, _slot: &'a Self::Slot) -> Self::Guard<'a> {
        ArcSwapGuard { guard: self.current.load() }
    }

    #[inline]
    fn load(&self, _slot: &Self::Slot) -> Arc<T> {
        self.current.load_full()
    }

    fn replace(&self, next: Arc<T>) -> Arc<T> {
        self.current.swap(next)
    }

    fn quiet(&self) -> u64 {
        u64::MAX
    }
}
