//! Answers of the API server that are kept for a few seconds.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::lock::lock;

/// The number of answers that are kept, as in kube-scheduler.
const LIMIT: usize = 8_192;

/// Answers by question, each with the moment at which it expires. The questions come from clients, so the number of
/// answers is limited: a new answer replaces the one that expires first.
pub(super) struct Cache<K, V> {
    entries: Mutex<Entries<K, V>>,
    limit: usize,
}

struct Entries<K, V> {
    by_key: HashMap<K, (Instant, V)>,
    /// When expired answers are dropped again.
    sweep: Instant,
}

impl<K: Eq + Hash + Clone, V: Clone> Cache<K, V> {
    pub(super) fn new() -> Cache<K, V> {
        Cache::with_limit(LIMIT)
    }

    fn with_limit(limit: usize) -> Cache<K, V> {
        let entries = Entries { by_key: HashMap::new(), sweep: Instant::now() };
        Cache { entries: Mutex::new(entries), limit }
    }

    /// Returns the answer, unless it has expired.
    pub(super) fn get(&self, key: &K) -> Option<V> {
        let entries = &mut lock(&self.entries).by_key;
        match entries.get(key) {
            Some((until, value)) if Instant::now() < *until => Some(value.clone()),
            Some(_) => {
                entries.remove(key);
                None
            }
            None => None,
        }
    }

    /// Keeps an answer for `ttl`, and drops expired answers at most once per `ttl`. O(1) on average, or O(answers) if
    /// the cache is full.
    pub(super) fn put(&self, key: K, value: V, ttl: Duration) {
        if ttl.is_zero() {
            return;
        }
        let now = Instant::now();
        let Entries { by_key: entries, sweep } = &mut *lock(&self.entries);
        if *sweep <= now {
            entries.retain(|_, (until, _)| now < *until);
            *sweep = now + ttl;
        }
        if entries.len() >= self.limit && !entries.contains_key(&key) {
            entries.retain(|_, (until, _)| now < *until);
            let first = entries.iter().min_by_key(|(_, (until, _))| *until);
            if entries.len() >= self.limit
                && let Some(first) = first.map(|(key, _)| key.clone())
            {
                entries.remove(&first);
            }
        }
        entries.insert(key, (now + ttl, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    const TTL: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_kept_for_its_time_and_no_longer() {
        let cache = Cache::new();
        cache.put("a", 1, TTL);
        cache.put("b", 2, Duration::ZERO);
        advance(TTL - Duration::from_millis(1)).await;
        assert_eq!((cache.get(&"a"), cache.get(&"b")), (Some(1), None));
        advance(Duration::from_millis(1)).await;
        assert_eq!(cache.get(&"a"), None);
        assert!(lock(&cache.entries).by_key.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn expired_answers_are_dropped_although_nobody_asks_for_them() {
        let cache = Cache::new();
        cache.put("a", 1, TTL);
        cache.put("b", 2, TTL);
        advance(TTL).await;
        cache.put("c", 3, TTL);
        assert_eq!(lock(&cache.entries).by_key.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_cache_replaces_the_answer_that_expires_first() {
        let cache = Cache::with_limit(2);
        cache.put("a", 1, TTL);
        advance(Duration::from_secs(1)).await;
        cache.put("b", 2, TTL);
        cache.put("c", 3, TTL);
        assert_eq!((cache.get(&"a"), cache.get(&"b"), cache.get(&"c")), (None, Some(2), Some(3)));
        // A new answer to a known question replaces no other.
        cache.put("b", 4, TTL);
        assert_eq!((cache.get(&"b"), cache.get(&"c")), (Some(4), Some(3)));
    }
}
