//! The live index under loom: one copy behind a lock, so that code built on the index compiles and runs in a model.
//!
//! It gives the same answers and checks nothing of `left-right`: every publish succeeds immediately.

use super::shards::{Change, Shards};
use super::{Key, Value};
use crate::sync::{Arc, Mutex, lock};

pub(super) struct WriteCopies<K: Key, V: Value> {
    shown: Arc<Mutex<Option<Shards<K, V>>>>,
    changes: Vec<Change<K, V>>,
}

impl<K: Key, V: Value> WriteCopies<K, V> {
    pub(super) fn new() -> Self {
        Self { shown: Arc::new(Mutex::new(Some(Shards::new()))), changes: Vec::new() }
    }

    pub(super) fn append(&mut self, change: Change<K, V>) {
        self.changes.push(change);
    }

    pub(super) fn try_publish(&mut self) -> bool {
        let mut shown = lock(&self.shown);
        if let Some(shards) = shown.as_mut() {
            self.changes.drain(..).for_each(|change| shards.apply(change));
        }
        true
    }

    pub(super) fn reader(&self) -> ReadCopy<K, V> {
        ReadCopy { shown: Arc::clone(&self.shown) }
    }
}

impl<K: Key, V: Value> Drop for WriteCopies<K, V> {
    fn drop(&mut self) {
        *lock(&self.shown) = None;
    }
}

pub(super) struct ReadCopy<K: Key, V: Value> {
    shown: Arc<Mutex<Option<Shards<K, V>>>>,
}

impl<K: Key, V: Value> ReadCopy<K, V> {
    pub(super) fn look<R>(&self, look: impl FnOnce(&Shards<K, V>) -> R) -> Option<R> {
        lock(&self.shown).as_ref().map(look)
    }
}

impl<K: Key, V: Value> Clone for ReadCopy<K, V> {
    fn clone(&self) -> Self {
        Self { shown: Arc::clone(&self.shown) }
    }
}
