//! A replaced version, and the pins that may still reach it: together they decide when the version is freed.
#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;

use crate::sync::{count_is_touched, mutated};

/// The writer's handle to a version that is no longer current, but that a pin may reach.
///
/// Dropping it frees nothing: a forgotten handle leaks its version and never frees it under a reader.
#[derive(Debug)]
pub(crate) struct Replaced<T> {
    version: ManuallyDrop<Arc<T>>,
    index: usize,
}

impl<T> Replaced<T> {
    /// `index` is the number of versions that were replaced before this one.
    pub(super) fn new(version: Arc<T>, index: usize) -> Self {
        Self { version: ManuallyDrop::new(version), index }
    }

    /// The address of the version, which is unique among existing versions.
    pub(super) fn address(&self) -> usize {
        Arc::as_ptr(&self.version).addr()
    }

    /// Returns the version itself if the writer's handle is the last one, and the handle otherwise.
    ///
    /// One atomic step both decides that the handle is the last and gives it up: the count goes from one to zero, after
    /// which no weak handle can be upgraded, or it stays unchanged. Merely reading the count decides nothing, because a
    /// weak handle may be upgraded between the read and the drop.
    ///
    /// # Safety
    ///
    /// As for [`free`](Self::free).
    pub(super) unsafe fn into_last(self) -> Result<T, Self> {
        if mutated!("retired-by-count") && Arc::strong_count(&self.version) == 1 {
            count_is_touched();
            let last = Arc::into_inner(ManuallyDrop::into_inner(self.version));
            return Ok(last.expect("the count was one"));
        }
        count_is_touched();
        // `Arc` ensures that the former holders' accesses to the version happen before this returns it.
        let Self { version, index } = self;
        Arc::try_unwrap(ManuallyDrop::into_inner(version)).map_err(|held| Self::new(held, index))
    }

    /// Gives up the writer's handle. Frees the version if that was the last handle.
    ///
    /// # Safety
    ///
    /// No pin may reach the version: [`Pins::reach`] returned `false` for a scan that began after the version was
    /// replaced.
    pub(super) unsafe fn free(self) {
        count_is_touched();
        drop(ManuallyDrop::into_inner(self.version));
    }
}

impl<T> Deref for Replaced<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.version
    }
}

/// The versions that pins may reach, as found by one scan of all readers.
#[derive(Debug)]
pub(crate) struct Pins {
    /// The least index from which on all versions may be reached.
    since: usize,
    only: Vec<usize>,
}

impl Default for Pins {
    fn default() -> Self {
        Self { since: usize::MAX, only: Vec::new() }
    }
}

impl Pins {
    pub(super) fn clear(&mut self) {
        self.since = usize::MAX;
        self.only.clear();
    }

    /// Records that a reader may reach any version with this index or a greater one.
    pub(super) fn add_since(&mut self, index: usize) {
        self.since = self.since.min(index);
    }

    /// Records that a reader may reach the version at `address`.
    pub(super) fn add(&mut self, address: usize) {
        // Most readers are on the same version.
        if self.only.last() != Some(&address) {
            self.only.push(address);
        }
    }

    /// Whether a pin may reach `replaced`.
    pub(super) fn reach<T>(&self, replaced: &Replaced<T>) -> bool {
        self.since <= replaced.index || self.only.contains(&replaced.address())
    }
}
