//! The two copies of the live index, kept in step by `left-right`.
//!
//! Three restrictions apply. The writer publishes only with `try_publish`, so a reader that is slow or not scheduled
//! delays changes but never the writer. A reader's guard never leaves this file, so nobody can create or drop a reader
//! while holding one; that would deadlock against a publisher that waits. And both copies are in step before the first
//! reader exists, so left-right never copies one whole side to the other.

use left_right::{Absorb, ReadHandle, WriteHandle};

use super::shards::{Change, Shards};
use super::{Key, Value};

impl<K: Key, V: Value> Absorb<Change<K, V>> for Shards<K, V> {
    fn absorb_first(&mut self, change: &mut Change<K, V>, _other: &Self) {
        self.apply(change.clone());
    }

    fn absorb_second(&mut self, change: Change<K, V>, _other: &Self) {
        self.apply(change);
    }

    fn sync_with(&mut self, first: &Self) {
        self.clone_from(first);
    }
}

/// The writer's end of both copies. Its drop waits for readers to leave, which takes them at most one lookup.
pub(super) struct WriteCopies<K: Key, V: Value> {
    write: WriteHandle<Shards<K, V>, Change<K, V>>,
}

impl<K: Key, V: Value> WriteCopies<K, V> {
    pub(super) fn new() -> Self {
        let (mut write, _) = left_right::new_from_empty(Shards::new());
        // Before its second publish left-right copies one whole side to the other, and before its first it applies
        // changes unlogged. Do both here, while there is nothing to copy and no reader to wait for.
        write.publish();
        write.publish();
        Self { write }
    }

    pub(super) fn append(&mut self, change: Change<K, V>) {
        self.write.append(change);
    }

    pub(super) fn try_publish(&mut self) -> bool {
        self.write.try_publish()
    }

    pub(super) fn reader(&self) -> ReadCopy<K, V> {
        ReadCopy { read: (*self.write).clone() }
    }
}

/// A reader's end.
pub(super) struct ReadCopy<K: Key, V: Value> {
    read: ReadHandle<Shards<K, V>>,
}

impl<K: Key, V: Value> ReadCopy<K, V> {
    /// Runs `look` on the copy that readers currently use. Returns `None` if the writer is gone.
    #[inline]
    pub(super) fn look<R>(&self, look: impl FnOnce(&Shards<K, V>) -> R) -> Option<R> {
        self.read.enter().map(|shards| look(&shards))
    }
}

impl<K: Key, V: Value> Clone for ReadCopy<K, V> {
    fn clone(&self) -> Self {
        Self { read: self.read.clone() }
    }
}
