//! An index of the current state, for lookups outside any version: key to small value.
//!
//! A version shows the whole state at one point. Many questions are smaller: where is this one entry, does it exist
//! yet. For these a [`LiveIndex`] keeps two copies of a map (left-right): readers use one copy while the writer changes
//! the other, and then the two swap. A lookup takes two steps on a cache line owned by the reader and touches no count
//! that other threads write.
//!
//! Promises: each answer carries the version up to which the index had been updated when the answer was taken. For one
//! reader that number never goes back. An answer may be behind the published version, never ahead of it. The writer
//! never waits for a reader: if a reader is still inside the copy that is to be changed, the changes wait for the next
//! [`publish`](LiveIndex::publish). No step takes long: the map consists of thousands of small tables, and a change
//! touches one of them.
//!
//! Cost: every change is applied twice, and everything is in memory twice: about 80 bytes per key if key and value
//! together take 24. The index also keeps the capacity for the largest number of changes between two publishes.
//!
//! Requirements: `Hash` and `Eq` of the key must not panic and must always give the same answer, or the two copies
//! would diverge. Values are `Copy`, so that no foreign code runs while a reader is inside a copy.

mod shards;

#[cfg(not(loom))]
#[path = "copies.rs"]
mod copies;
// Under loom, left-right uses loom's atomics with a weaker fence than its own, and keeps its data behind raw pointers
// that loom cannot watch. A model of it would prove nothing about the shipped code.
#[cfg(loom)]
#[path = "copies_loom.rs"]
mod copies;

use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;

use self::copies::{ReadCopy, WriteCopies};
use self::shards::{Change, hash_of};

/// A key of a live index: small, and with well-behaved `Hash` and `Eq`.
pub trait Key: Hash + Eq + Clone + Send + Sync + 'static {}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Key for K {}

/// A value of a live index: a few bytes.
pub trait Value: Copy + Send + Sync + 'static {}

impl<V: Copy + Send + Sync + 'static> Value for V {}

/// An answer, with the version up to which the index had been updated when the answer was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Live<T> {
    /// The answer reflects all changes up to this version, and no later ones.
    pub version: u64,
    /// The answer.
    pub value: T,
}

/// The writer of the index is gone, and the contents with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the writer of the live index is gone: read the last version instead")]
pub struct Gone;

/// The writer's end: collects changes and publishes them to readers.
///
/// The type ensures that there is one writer:
///
/// ```compile_fail,E0277
/// fn clone<T: Clone>() {}
/// clone::<portolan_publish::live::LiveIndex<u64, u32>>();
/// ```
///
/// ```
/// fn send<T: Send>() {}
/// send::<portolan_publish::live::LiveIndex<u64, u32>>();
/// ```
pub struct LiveIndex<K: Key, V: Value> {
    copies: WriteCopies<K, V>,
    version: u64,
    /// Whether there are changes that readers cannot see yet.
    behind: bool,
}

/// A reader of the index.
///
/// ```
/// fn send<T: Send + Clone>() {}
/// send::<portolan_publish::live::LiveReader<u64, u32>>();
/// ```
///
/// ```compile_fail,E0277
/// fn sync<T: Sync>() {}
/// sync::<portolan_publish::live::LiveReader<u64, u32>>();
/// ```
pub struct LiveReader<K: Key, V: Value> {
    copy: ReadCopy<K, V>,
    _one_thread_at_a_time: PhantomData<std::cell::Cell<()>>,
}

impl<K: Key, V: Value> LiveIndex<K, V> {
    /// An empty index at version 0.
    pub fn new() -> Self {
        Self { copies: WriteCopies::new(), version: 0, behind: false }
    }

    /// Maps `key` to `value` from the next publish on, replacing any earlier value. About 100 ns per copy.
    pub fn insert(&mut self, key: K, value: V) {
        self.behind = true;
        self.copies.append(Change::Insert { hash: hash_of(&key), key, value });
    }

    /// Removes `key` from the next publish on.
    pub fn remove(&mut self, key: K) {
        self.behind = true;
        self.copies.append(Change::Remove { hash: hash_of(&key), key });
    }

    /// Publishes all changes so far as `version`, unless a reader is in the way, and returns whether readers see them
    /// now.
    ///
    /// Never waits. O(changes since the last two successful calls).
    ///
    /// If it returns `false`, the changes are kept and the next call publishes them too. A caller with no further
    /// changes should call again later with the same version. A version lower than an earlier one counts as that
    /// earlier one.
    pub fn publish(&mut self, version: u64) -> bool {
        if version > self.version {
            self.version = version;
            self.behind = true;
            self.copies.append(Change::Version(version));
        }
        if self.behind {
            self.behind = !self.copies.try_publish();
        }
        !self.behind
    }

    /// Creates a reader. Briefly takes a lock that publishes also take, so create readers rarely and keep them.
    pub fn reader(&self) -> LiveReader<K, V> {
        LiveReader { copy: self.copies.reader(), _one_thread_at_a_time: PhantomData }
    }
}

impl<K: Key, V: Value> LiveReader<K, V> {
    /// Returns the value that `key` is mapped to.
    pub fn get(&self, key: &K) -> Result<Live<Option<V>>, Gone> {
        let hash = hash_of(key);
        // The lookup ends before this returns, so a reader is never inside a copy for longer than one lookup.
        self.copy
            .look(|shards| Live { version: shards.version(), value: shards.get(hash, key) })
            .ok_or(Gone)
    }

    /// Returns the number of keys.
    pub(crate) fn len(&self) -> Result<Live<usize>, Gone> {
        self.copy.look(|shards| Live { version: shards.version(), value: shards.len() }).ok_or(Gone)
    }
}

impl<K: Key, V: Value> Clone for LiveReader<K, V> {
    /// Registers another reader; see [`LiveIndex::reader`] for the cost.
    fn clone(&self) -> Self {
        Self { copy: self.copy.clone(), _one_thread_at_a_time: PhantomData }
    }
}

impl<K: Key, V: Value> Default for LiveIndex<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Key, V: Value> fmt::Debug for LiveIndex<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveIndex")
            .field("version", &self.version)
            .field("behind", &self.behind)
            .finish_non_exhaustive()
    }
}

impl<K: Key, V: Value> fmt::Debug for LiveReader<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveReader").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
