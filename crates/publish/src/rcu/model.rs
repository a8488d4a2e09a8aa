//! The cell by itself, for models of it: with a publisher around, other fences would hide that one of its own is missing.

use std::ops::Deref;
use std::sync::{Arc, Weak};

use super::{RcuCell, RcuReader, RcuWriter};
use crate::cell::sealed::{Algorithm, ReadEnd, WriteEnd};
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

/// The writer's end, and the versions that it replaced and has not freed.
pub struct CellWriter<T: Send + Sync + 'static> {
    writer: RcuWriter<T>,
    replaced: Vec<Replaced<T>>,
}

/// A registered reader.
pub struct CellReader<T: Send + Sync + 'static>(RcuReader<T>);

impl<T: Send + Sync + 'static> CellWriter<T> {
    /// A cell with a first version.
    pub fn new(first: Arc<T>) -> Self {
        Self { writer: RcuCell::start(first), replaced: Vec::new() }
    }

    /// Registers a reader.
    pub fn reader(&self) -> CellReader<T> {
        CellReader(self.writer.reader())
    }

    /// Makes `next` current.
    pub fn replace(&mut self, next: Arc<T>) {
        self.replaced.push(self.writer.replace(next));
    }

    /// Gives up the handles to all replaced versions that no pin reaches.
    pub fn free(&mut self) {
        let mut pins = Pins::default();
        self.writer.look(&mut pins);
        let all = std::mem::take(&mut self.replaced);
        let (reached, free): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|version| pins.reach(version));
        self.replaced = reached;
        for version in free {
            // SAFETY: replaced before the look, which found no pin that reaches it.
            unsafe { version.free() };
        }
    }

    /// How many versions are replaced and not freed.
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

    /// An owned handle to the current version.
    pub fn load(&self) -> Arc<T> {
        self.0.load()
    }

    /// Keeps nothing.
    pub fn rest(&mut self) {
        self.0.rest();
    }

    /// Registers another reader.
    pub fn another(&self) -> Self {
        Self(self.0.another())
    }
}
