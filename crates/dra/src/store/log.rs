//! What has changed in the store, so that values derived from it can be kept.

use std::sync::Arc;

use super::PoolId;

/// The changes that verdicts on nodes depend on. A clone costs one reference count.
///
/// The list grows to [`Log::LONGEST`] changes and then starts again, so that its memory is bounded.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Entry>);

#[derive(Debug, Default)]
struct Entry {
    /// The pool whose usage has changed, or `None` if anything may have changed.
    pool: Option<PoolId>,
    before: Option<Log>,
    length: usize,
}

impl Log {
    const LONGEST: usize = 1024;

    /// Adds a change of the devices in use of a pool.
    pub(super) fn add_usage(&mut self, pool: PoolId) {
        self.add(Some(pool));
    }

    /// Adds a change of classes or slices.
    pub(super) fn add_other(&mut self) {
        self.add(None);
    }

    fn add(&mut self, pool: Option<PoolId>) {
        let is_full = self.0.length >= Log::LONGEST;
        let (before, length) = match is_full {
            true => (None, 0),
            false => (Some(self.clone()), self.0.length + 1),
        };
        // After a restart, earlier logs are no longer found.
        *self = Log(Arc::new(Entry { pool, before, length }));
    }

    /// Returns whether both are the same state of the same store.
    #[must_use]
    pub fn is_same(&self, other: &Log) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the pools whose usage has changed since an earlier state, or `None` if anything may have changed.
    /// O(changes).
    #[must_use]
    pub fn since(&self, earlier: &Log) -> Option<Vec<&PoolId>> {
        let mut pools = Vec::new();
        let mut at = self;
        while !at.is_same(earlier) {
            pools.push(at.0.pool.as_ref()?);
            at = at.0.before.as_ref()?;
        }
        Some(pools)
    }
}
