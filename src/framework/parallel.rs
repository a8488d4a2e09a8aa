//! Processes many chunks in parallel. No other module of the framework uses a thread pool.

use rayon::prelude::*;

use super::Status;

/// The number of chunks from which the pool is used. Measured: for 512 nodes the pool is slower than the calling
/// thread.
const WORTH_THE_POOL: usize = 64;

/// The threads of a scheduling cycle: the calling thread, and a pool for large clusters.
#[derive(Clone, Copy)]
pub(super) struct Threads<'a>(Option<&'a rayon::ThreadPool>);

impl<'a> Threads<'a> {
    pub(super) fn new(pool: Option<&'a rayon::ThreadPool>) -> Threads<'a> {
        Threads(pool.filter(|pool| pool.current_num_threads() > 1))
    }

    /// Returns the results of `work` in the order of the items. `work` is called for every item, even after an error,
    /// and the error of the first item in order is returned. Neither the result nor the calls therefore depend on the
    /// number of threads.
    pub(super) fn try_map<T: Sync, R: Send>(
        self,
        items: &[T],
        work: impl Fn(&T) -> Result<R, Status> + Sync,
    ) -> Result<Vec<R>, Status> {
        if let Some((pool, part)) = self.pool_for(items.len()) {
            let all: Vec<Result<R, Status>> =
                pool.install(|| items.par_iter().with_min_len(part).map(&work).collect());
            return all.into_iter().collect();
        }
        let mut results = Vec::with_capacity(items.len());
        let mut failed = None;
        for item in items {
            match work(item) {
                Ok(result) => results.push(result),
                Err(status) => drop(failed.get_or_insert(status)),
            }
        }
        failed.map_or(Ok(results), Err)
    }

    /// Returns whether several threads share this many items.
    pub(super) fn share(self, items: usize) -> bool {
        self.pool_for(items).is_some()
    }

    /// Returns the pool and the minimum number of items per thread, if the pool is worthwhile for this many items.
    fn pool_for(self, items: usize) -> Option<(&'a rayon::ThreadPool, usize)> {
        let pool = self.0.filter(|_| items >= WORTH_THE_POOL)?;
        Some((pool, items.div_ceil(pool.current_num_threads() * 4)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn all_items_run_and_the_first_error_in_order_is_returned() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let items: Vec<usize> = (0..3 * WORTH_THE_POOL).collect();
        for pool in [None, Some(&pool)] {
            let calls = AtomicUsize::new(0);
            let threads = Threads::new(pool);
            let failed: Result<Vec<usize>, Status> = threads.try_map(&items, |item| {
                calls.fetch_add(1, Ordering::Relaxed);
                match item % 5 {
                    3 => Err(Status::error("", item.to_string())),
                    _ => Ok(*item),
                }
            });
            assert_eq!(failed, Err(Status::error("", "3")));
            assert_eq!(calls.into_inner(), items.len());
            assert_eq!(
                threads.try_map(&items, |item| Ok(item + 1)),
                Ok((1..=items.len()).collect())
            );
        }
    }
}
