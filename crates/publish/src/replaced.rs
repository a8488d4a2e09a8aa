//! A version that was replaced, and what pins may still reach: between the two stands the decision to free it.
#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;

use crate::sync::{count_is_touched, mutated};

/// The writer's handle to a version that is no longer current, but that a pin may reach.
///
/// Dropping it frees nothing: what is forgotten is leaked and not pulled away from under a reader.
#[derive(Debug)]
pub struct Replaced<T> {
    version: ManuallyDrop<Arc<T>>,
}

impl<T> Replaced<T> {
    pub(super) fn new(version: Arc<T>) -> Self {
        Self { version: ManuallyDrop::new(version) }
    }

    /// Where the version is: no other version that exists is there.
    pub(super) fn address(&self) -> usize {
        Arc::as_ptr(&self.version).addr()
    }

    /// The version itself if the writer's handle is the last one, and the handle if it is not.
    ///
    /// Whether it is the last is decided in the step that makes it so: the count goes from one to none, after which no
    /// weak handle can be upgraded, or it stays as it is. A count that was only read decides nothing: a weak handle may
    /// be upgraded between that look and the drop.
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
        // What the former holders did with the version happens before this returns it: `Arc` orders that.
        Arc::try_unwrap(ManuallyDrop::into_inner(self.version)).map_err(Self::new)
    }

    /// Gives up the writer's handle; frees the version if it is the last.
    ///
    /// # Safety
    ///
    /// No pin may reach the version: [`Pins::reach`] has said so, asked of a look that began after the version was
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

/// What pins may reach, as one look over all readers found it. Empty for a cell whose pins are counted.
#[derive(Debug, Default)]
pub struct Pins {
    all: bool,
    only: Vec<usize>,
}

impl Pins {
    pub(super) fn clear(&mut self) {
        self.all = false;
        self.only.clear();
    }

    /// A reader may reach any version.
    pub(super) fn add_all(&mut self) {
        self.all = true;
    }

    /// A reader may reach the version at `address`.
    pub(super) fn add(&mut self, address: usize) {
        // Most readers are on the same version.
        if self.only.last() != Some(&address) {
            self.only.push(address);
        }
    }

    /// Whether a pin may reach `replaced`.
    pub(super) fn reach<T>(&self, replaced: &Replaced<T>) -> bool {
        self.all || self.only.contains(&replaced.address())
    }
}
