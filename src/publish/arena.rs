//! The publication cell of the loom models: the weakest one that still meets the contract.
//!
//! arc-swap cannot be put under loom, and a lock in its place would give the models orderings that the contract does
//! not promise. So: versions are appended to an arena and never freed before the model ends, and an index is stored
//! with release and loaded with acquire. Nothing more is ordered than "a version is whole when it is seen". That
//! checks our protocol around the cell; it says nothing about when a cell frees.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use super::cell::{Cell, sealed};
use crate::sync::{AtomicUsize, ordering};

/// How many versions a model may publish.
const CAPACITY: usize = 8;

/// An append-only arena of versions, and the index of the current one.
#[derive(Debug)]
pub struct ArenaCell<T> {
    // std's `OnceLock` is invisible to loom: it neither switches threads nor orders anything.
    versions: [OnceLock<Arc<T>>; CAPACITY],
    current: AtomicUsize,
}

/// A version pinned in an [`ArenaCell`].
#[derive(Debug)]
pub struct ArenaGuard<'a, T> {
    version: &'a T,
}

impl<T> Deref for ArenaGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.version
    }
}

impl<T> ArenaCell<T> {
    fn current(&self) -> &Arc<T> {
        // Pairs with the store in `replace`: who sees the index sees the version behind it whole.
        let index = self.current.load(ordering!("cell-load", Acquire => Relaxed));
        self.versions[index].get().expect("an index is stored after its version")
    }
}

impl<T> sealed::Sealed for ArenaCell<T> {}

impl<T: Send + Sync + 'static> Cell<T> for ArenaCell<T> {
    type Slot = ();
    type Guard<'a> = ArenaGuard<'a, T>;

    fn new(first: Arc<T>) -> Self {
        let versions = [const { OnceLock::new() }; CAPACITY];
        let _ = versions[0].set(first);
        Self { versions, current: AtomicUsize::new(0) }
    }

    fn register(&self) -> Self::Slot {}

    fn pin<'a>(&'a self, _slot: &'a Self::Slot) -> Self::Guard<'a> {
        ArenaGuard { version: self.current() }
    }

    fn load(&self, _slot: &Self::Slot) -> Arc<T> {
        Arc::clone(self.current())
    }

    fn replace(&self, next: Arc<T>) -> Arc<T> {
        let replaced = Arc::clone(self.current());
        let next_index = self.versions.iter().take_while(|version| version.get().is_some()).count();
        let _ = self.versions[next_index].set(next);
        // Pairs with the load in `current`.
        self.current.store(next_index, ordering!("cell-store", Release => Relaxed));
        replaced
    }

    fn quiet(&self) -> u64 {
        u64::MAX
    }
}
