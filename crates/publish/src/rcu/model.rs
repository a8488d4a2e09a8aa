//! The bare cell, for its models. Inside a publisher, other fences would mask a missing fence of the cell.

use std::ops::Deref;
use std::sync::{Arc, Weak};

use super::{RcuReader, RcuWriter};
use crate::replaced::{Pins, Replaced};
use crate::sync::count_is_touched;

/// Upgrades a weak handle, in a step that loom sees.
pub fn upgrade<T>(weak: &Weak<T>) -> Option<Arc<T>> {
    count_is_touched();
    weak.upgrade()
}

/// Drops a handle, in a step that loom sees.
pub fn release<T>(version: Arc<T>) {
    count_is_touched();
    drop(version);
}

/// The writer's end, with the versions that were replaced and not yet freed.
pub struct CellWriter<T: Send + Sync + 'static> {
    writer: RcuWriter<T>,
    replaced: Vec<Replaced<T>>,
}

/// A registered reader.
pub struct CellReader<T: Send + Sync + 'static>(RcuReader<T>);

impl<T: Send + Sync + 'static> CellWriter<T> {
    /// Creates a cell whose current version is `first`.
    pub fn new(first: Arc<T>) -> Self {
        Self { writer: RcuWriter::new(first), replaced: Vec::new() }
    }

    /// Registers a reader.
    pub fn reader(&self) -> CellReader<T> {
        CellReader(self.writer.reader())
    }

    /// Makes `next` the current version.
    pub fn replace(&mut self, next: Arc<T>) {
        self.replaced.push(self.writer.replace(next));
    }

    /// Gives up the handles to all replaced versions that no pin reaches.
    pub fn free(&mut self) {
        let mut pins = Pins::default();
        self.writer.scan(&mut pins);
        let all = std::mem::take(&mut self.replaced);
        let (reached, free): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|version| pins.reach(version));
        self.replaced = reached;
        for version in free {
            // SAFETY: the version was replaced before the scan, and the scan found no pin that reaches it.
            unsafe { version.free() };
        }
    }

    /// The number of versions that are replaced and not freed.
    pub fn retired(&self) -> usize {
        self.replaced.len()
    }
}

impl<T: Send + Sync + 'static> Drop for CellWriter<T> {
    fn drop(&mut self) {
        self.free();
        self.writer.leave(std::mem::take(&mut self.replaced));
    }
}

impl<T: Send + Sync + 'static> CellReader<T> {
    /// Pins the current version.
    pub fn pin(&self) -> impl Deref<Target = T> {
        self.0.pin()
    }

    /// Returns an owned handle to the current version.
    pub fn load(&self) -> Arc<T> {
        self.0.load()
    }

    /// Releases any version kept between pins.
    pub fn rest(&mut self) {
        self.0.rest();
    }

    /// Registers another reader.
    pub fn another(&self) -> Self {
        Self(self.0.another())
    }
}
