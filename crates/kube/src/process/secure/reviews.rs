//! Reviews by the API server: their answers are cached, equal ones are shared, and the number of others is limited.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::OnceCell;

use super::cache::Cache;
use crate::lock::lock;

/// The number of reviews in progress, as many as the client sends at once
/// ([`Connection::delegated`](crate::api::Connection::delegated)).
const LIMIT: usize = 64;
/// The number of these that strangers do not occupy.
const RESERVE: usize = 16;
/// The number of requests that wait for one review.
const WAITING: usize = 64;

/// Who asks for a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asker {
    /// A user that was authenticated.
    Known,
    /// Any client.
    Stranger,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unreviewed {
    /// Too many reviews are in progress, or too many requests wait for this one.
    TooMany,
    /// The review failed, or rejected the credentials.
    Failed(String),
}

impl From<String> for Unreviewed {
    fn from(why: String) -> Unreviewed {
        Unreviewed::Failed(why)
    }
}

impl fmt::Display for Unreviewed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unreviewed::TooMany => f.write_str("too many requests wait for reviews"),
            Unreviewed::Failed(why) => f.write_str(why),
        }
    }
}

/// The reviews of one kind, by question.
pub(super) struct Reviews<K: Eq + Hash, V> {
    cache: Cache<K, V>,
    in_progress: Mutex<HashMap<K, Review<V>>>,
}

struct Review<V> {
    answer: Answer<V>,
    waiting: usize,
}

type Answer<V> = Arc<OnceCell<Result<V, String>>>;

impl<K: Eq + Hash + Clone, V: Clone> Reviews<K, V> {
    pub(super) fn new() -> Reviews<K, V> {
        Reviews { cache: Cache::new(), in_progress: Mutex::default() }
    }

    /// Returns the cached answer, or else that of a review. Requests with the same question share one, which goes on
    /// until the last of them has gone. A review returns its answer and the time for which it is cached.
    ///
    /// # Errors
    ///
    /// See [`Unreviewed`]. The errors are not cached.
    pub(super) async fn get(
        &self,
        key: K,
        asker: Asker,
        review: impl Future<Output = Result<(V, Duration), String>>,
    ) -> Result<V, Unreviewed> {
        if let Some(known) = self.cache.get(&key) {
            return Ok(known);
        }
        let waiting = self.wait(key, asker).ok_or(Unreviewed::TooMany)?;
        let review = async {
            let (value, ttl) = review.await?;
            self.cache.put(waiting.key.clone(), value.clone(), ttl);
            Ok(value)
        };
        let answer = waiting.answer.get_or_init(|| review).await;
        answer.clone().map_err(Unreviewed::Failed)
    }

    /// Joins a review, or begins one. Returns `None` if there are too many.
    fn wait(&self, key: K, asker: Asker) -> Option<Waiting<'_, K, V>> {
        let mut in_progress = lock(&self.in_progress);
        let limit = match asker {
            Asker::Known => LIMIT,
            Asker::Stranger => LIMIT - RESERVE,
        };
        if in_progress.len() >= limit && !in_progress.contains_key(&key) {
            return None;
        }
        let new = || Review { answer: Answer::default(), waiting: 0 };
        let review = in_progress.entry(key.clone()).or_insert_with(new);
        if review.waiting >= WAITING {
            return None;
        }
        review.waiting += 1;
        Some(Waiting { reviews: self, key, answer: review.answer.clone() })
    }
}

/// A request that waits for a review.
struct Waiting<'a, K: Eq + Hash + Clone, V: Clone> {
    reviews: &'a Reviews<K, V>,
    key: K,
    answer: Answer<V>,
}

impl<K: Eq + Hash + Clone, V: Clone> Drop for Waiting<'_, K, V> {
    fn drop(&mut self) {
        let mut in_progress = lock(&self.reviews.in_progress);
        if let Some(review) = in_progress.get_mut(&self.key) {
            review.waiting -= 1;
            if review.waiting == 0 {
                in_progress.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;
    use tokio::sync::Notify;
    use tokio::time::timeout;

    const TTL: Duration = Duration::from_secs(10);

    fn never() -> impl Future<Output = Result<(u32, Duration), String>> {
        pending()
    }

    /// Waits for reviews that have no answer.
    async fn fill(reviews: &Reviews<u32, u32>, keys: impl Iterator<Item = u32>, asker: Asker) {
        let all = keys.map(|key| reviews.get(key, asker, never()));
        assert!(timeout(TTL, join_all(all)).await.is_err(), "no answer");
    }

    #[tokio::test]
    async fn equal_questions_share_a_review_and_its_answer() {
        let (reviews, asked, go) = (Reviews::new(), AtomicUsize::new(0), Notify::new());
        let ask = || {
            reviews.get("a", Asker::Stranger, async {
                asked.fetch_add(1, Ordering::Relaxed);
                go.notified().await;
                Err::<(u32, Duration), String>("failed".to_owned())
            })
        };
        let all = join_all((0..WAITING).map(|_| ask()));
        let more = async {
            let refused = ask().await;
            go.notify_one();
            refused
        };
        let (all, refused) = tokio::join!(all, more);
        assert!(all.iter().all(|answer| *answer == Err(Unreviewed::Failed("failed".to_owned()))));
        assert_eq!(refused, Err(Unreviewed::TooMany));
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        assert!(lock(&reviews.in_progress).is_empty());
        // An error is not cached, and an answer is.
        let answer = reviews.get("a", Asker::Stranger, ready(Ok((1, TTL))));
        assert_eq!(answer.await, Ok(1));
        assert_eq!(reviews.get("a", Asker::Stranger, never()).await, Ok(1));
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_leave_a_reserve_and_abandoned_reviews_end() {
        let reviews = Reviews::<u32, u32>::new();
        let strangers = fill(&reviews, 0..(LIMIT - RESERVE) as u32, Asker::Stranger);
        let others = async {
            tokio::task::yield_now().await;
            let refused = reviews.get(1_000, Asker::Stranger, ready(Ok((1, TTL)))).await;
            assert_eq!(refused, Err(Unreviewed::TooMany));
            let known = reviews.get(1_001, Asker::Known, ready(Ok((1, TTL)))).await;
            assert_eq!(known, Ok(1));
            // A cached answer needs no review.
            assert_eq!(reviews.get(1_001, Asker::Stranger, never()).await, Ok(1));
        };
        tokio::join!(strangers, others);
        assert!(lock(&reviews.in_progress).is_empty());
        let stranger = reviews.get(1_000, Asker::Stranger, ready(Ok((2, TTL)))).await;
        assert_eq!(stranger, Ok(2));
    }

    #[tokio::test(start_paused = true)]
    async fn another_request_continues_the_review_of_one_that_has_gone() {
        let reviews = Reviews::<u32, u32>::new();
        let gone = timeout(TTL, reviews.get(1, Asker::Stranger, never()));
        let (gone, answer) =
            tokio::join!(gone, reviews.get(1, Asker::Stranger, ready(Ok((3, TTL)))));
        assert!(gone.is_err());
        assert_eq!(answer, Ok(3));
    }
}
