//! What has changed in the store, so that values derived from it can be kept.

use std::sync::Arc;

use super::PoolId;

/// The changes that verdicts on nodes depend on. A clone costs one reference count.
///
/// The list starts again after some thousand changes, so that its memory is bounded.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Entry>);

#[derive(Debug, Default)]
struct Entry {
    /// The pool whose usage has changed, or `None` if anything may have changed.
    pool: Option<PoolId>,
    before: Option<Log>,
    length: usize,
}

/// Drops the list in a loop: recursion could exceed the stack.
impl Drop for Entry {
    fn drop(&mut self) {
        let mut next = self.before.take();
        while let Some(mut entry) = next.and_then(|log| Arc::into_inner(log.0)) {
            next = entry.before.take();
        }
    }
}

impl Log {
    /// The number of changes after which the list starts again.
    const LONGEST: usize = 1 << 14;

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

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(name: &str) -> PoolId {
        PoolId { driver: "d".into(), pool: name.into() }
    }

    #[test]
    fn changes_since_an_earlier_state_are_listed() {
        let mut log = Log::default();
        let start = log.clone();
        assert_eq!(log.since(&start), Some(Vec::new()));
        log.add_usage(pool("a"));
        let middle = log.clone();
        log.add_usage(pool("b"));
        assert_eq!(log.since(&start), Some(vec![&pool("b"), &pool("a")]));
        assert_eq!(log.since(&middle), Some(vec![&pool("b")]));
        assert_eq!(middle.since(&log), None);
        log.add_other();
        assert_eq!(log.since(&middle), None);
    }

    #[test]
    fn a_fork_is_not_confused_with_its_origin() {
        let mut log = Log::default();
        let mut fork = log.clone();
        log.add_usage(pool("a"));
        fork.add_usage(pool("a"));
        assert_eq!(log.since(&fork), None);
    }

    #[test]
    fn a_long_list_starts_again() {
        let mut log = Log::default();
        let start = log.clone();
        for _ in 0..3 * Log::LONGEST {
            log.add_usage(pool("a"));
        }
        assert_eq!(log.since(&start), None);
        let now = log.clone();
        log.add_usage(pool("b"));
        assert_eq!(log.since(&now), Some(vec![&pool("b")]));
    }
}
