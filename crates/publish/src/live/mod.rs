//! An index of what is true now, for look-ups that want no version around them: key to small value.
//!
//! A version answers "what did the whole look like at one point". Many questions are smaller: where is this one thing,
//! is it there yet. For them a [`LiveIndex`] keeps two copies of a map (left-right): readers look into one while the
//! writer changes the other, then they change places. A look-up takes two steps on a line of the reader's own and
//! touches no count that others write.
//!
//! What it promises: an answer carries the version up to which the index had been fed when it was taken; for one
//! reader that number never goes back; an answer may be behind the published version, never ahead of it. The writer
//! never waits for a reader: where a reader is still inside the copy whose turn it is, the changes wait for the next
//! [`publish`](LiveIndex::publish). No step takes long: the map is thousands of small tables, of which a change
//! touches one.
//!
//! What it costs: every change is made twice, and everything is in memory twice: about 80 bytes a key where key and
//! value together take 24. Room for the largest number of changes between two publishes is kept.
//!
//! What it asks: `Hash` and `Eq` of the key must not panic and must give the same answer every time, or the two
//! copies would drift apart. Values are `Copy`, so that no foreign code runs while a reader is inside.

mod shards;

#[cfg(not(loom))]
#[path = "copies.rs"]
mod copies;
// left-right under loom uses loom's atomics with a fence that is weaker than its own, and keeps its data behind raw
// pointers that loom cannot watch: what a model would say of it is not true of what ships.
#[cfg(loom)]
#[path = "copies_loom.rs"]
mod copies;

use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;

use self::copies::{ReadCopy, WriteCopies};
use self::shards::{Change, hash_of};

/// A key of a live index: small, hashed and compared without surprises.
pub trait Key: Hash + Eq + Clone + Send + Sync + 'static {}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Key for K {}

/// A value of a live index: a few bytes.
pub trait Value: Copy + Send + Sync + 'static {}

impl<V: Copy + Send + Sync + 'static> Value for V {}

/// An answer, and the version up to which the index had been fed when it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Live<T> {
    /// All changes up to this version are in the answer, and none of a later one.
    pub version: u64,
    /// The answer.
    pub value: T,
}

/// The writer of the index is gone, and its content with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the writer of the live index is gone: look into the last version instead")]
pub struct Gone;

/// The writer's end: collects changes and shows them to readers.
///
/// One writer, by its type:
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
    /// Whether something was given that readers cannot see yet.
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

    /// Maps `key` to `value` from the next publish on, whatever it was mapped to before. Some 100 ns a copy.
    pub fn insert(&mut self, key: K, value: V) {
        self.behind = true;
        self.copies.append(Change::Insert { hash: hash_of(&key), key, value });
    }

    /// Maps `key` to nothing from the next publish on.
    pub fn remove(&mut self, key: K) {
        self.behind = true;
        self.copies.append(Change::Remove { hash: hash_of(&key), key });
    }

    /// Shows readers everything given so far, under the number `version`, unless one of them is in the way at this
    /// moment; says whether they can see it now. Never waits.
    ///
    /// After `false` the changes are kept, and the next call shows them too; who has nothing more to give should call
    /// again after a while, with the same number. A number lower than an earlier one counts as that earlier one.
    /// O(changes since the last two successful calls).
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

    /// Whether readers lack something that was given.
    pub fn is_behind(&self) -> bool {
        self.behind
    }

    /// A reader of its own. Takes a lock that a publish takes too, for a moment: keep readers, make them rarely.
    pub fn reader(&self) -> LiveReader<K, V> {
        LiveReader { copy: self.copies.reader(), _one_thread_at_a_time: PhantomData }
    }
}

impl<K: Key, V: Value> LiveReader<K, V> {
    /// What `key` is mapped to.
    pub fn get(&self, key: &K) -> Result<Live<Option<V>>, Gone> {
        let hash = hash_of(key);
        // The look-up ends before this returns, so no reader can be inside a copy for longer than one look-up.
        self.copy
            .look(|shards| Live { version: shards.version(), value: shards.get(hash, key) })
            .ok_or(Gone)
    }

    /// How many keys are mapped.
    pub fn len(&self) -> Result<Live<usize>, Gone> {
        self.copy.look(|shards| Live { version: shards.version(), value: shards.len() }).ok_or(Gone)
    }

    /// Whether no key is mapped.
    pub fn is_empty(&self) -> Result<Live<bool>, Gone> {
        self.len().map(|len| Live { version: len.version, value: len.value == 0 })
    }
}

impl<K: Key, V: Value> Clone for LiveReader<K, V> {
    /// Registers another reader; see [`LiveIndex::reader`] for what it costs.
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
