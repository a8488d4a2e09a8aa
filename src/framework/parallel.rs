//! Shares the work of one decision between threads. No other module of the framework uses a thread pool.
//!
//! Waking a thread takes longer than judging a few chunks, and how long a chunk takes depends on the plugins, the pod
//! and the caches of the processor. So the calling thread begins alone. If the first items show that the rest takes long
//! enough, threads of the pool join in, and take ranges of the rest in turn with the calling thread until nothing is
//! left. No item depends on another, so the results do not depend on the number of threads. A decision waits for the
//! threads that it has woken, also if other work of the pool delays them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The remaining work, at the calling thread's pace, from which waking a thread pays off. Measured: a thread that sleeps
/// begins 20 to 60 µs after it is woken.
///
/// Short in development builds and under a fuzzer, so that these share work.
const WORTH_WAKING: Duration =
    Duration::from_micros(if cfg!(any(debug_assertions, fuzzing)) { 1 } else { 100 });

/// How long the items of one range take.
const RANGE: Duration = Duration::from_micros(4);

/// How many items the calling thread processes before it decides.
const TRIED: usize = 4;

/// This many items are not worth taking the time.
const FEW: usize = 2 * TRIED;

/// How often the calling thread checks whether the others have finished before it sleeps.
const SPINS: usize = 2_000;

/// The threads of a scheduling cycle: the calling thread, and those of a pool.
#[derive(Clone, Copy)]
pub(super) struct Threads<'a>(Option<&'a rayon::ThreadPool>);

impl<'a> Threads<'a> {
    pub(super) fn new(pool: Option<&'a rayon::ThreadPool>) -> Threads<'a> {
        Threads(pool.filter(|pool| pool.current_num_threads() > 1))
    }

    /// Calls `work` once for each item.
    pub(super) fn for_each<T: Send>(self, items: &mut [T], work: impl Fn(&mut T) + Sync) {
        if self.0.is_none() || items.len() <= FEW {
            return items.iter_mut().for_each(work);
        }
        let started = Instant::now();
        let (tried, rest) = items.split_at_mut(TRIED);
        tried.iter_mut().for_each(&work);
        self.share(rest, started.elapsed() / TRIED as u32, work);
    }

    /// Returns whether several threads should share `items` items that take this long each.
    pub(super) fn are_worthwhile(self, each: Duration, items: usize) -> bool {
        self.0.is_some() && worthwhile(each, items).is_some()
    }

    /// Begins items that the calling thread processes where they are, until it turns out that the rest should be shared.
    pub(super) fn try_alone(self) -> Trial<'a> {
        Trial { threads: self, started: None, tried: 0 }
    }

    /// Whether there is more than one thread.
    pub(super) fn are_several(self) -> bool {
        self.0.is_some()
    }

    /// Calls `work` once for each item. Several threads share the items if they take this long each.
    pub(super) fn share<T: Send>(
        self,
        items: &mut [T],
        each: Duration,
        work: impl Fn(&mut T) + Sync,
    ) {
        match (self.0, worthwhile(each, items.len())) {
            (Some(pool), Some(range)) => share(pool, items, range, &work),
            _ => items.iter_mut().for_each(work),
        }
    }
}

/// Items that the calling thread processes alone at first.
pub(super) struct Trial<'a> {
    threads: Threads<'a>,
    started: Option<Instant>,
    tried: usize,
}

impl Trial<'_> {
    /// Called before each item, with the number of items that are left. Returns how long an item takes, once, if several
    /// threads should share these.
    pub(super) fn should_share(&mut self, left: usize) -> Option<Duration> {
        if !self.threads.are_several() || self.tried > TRIED {
            return None;
        }
        let started = *self.started.get_or_insert_with(Instant::now);
        self.tried += 1;
        if self.tried <= TRIED {
            return None;
        }
        Some(started.elapsed() / TRIED as u32).filter(|each| worthwhile(*each, left).is_some())
    }
}

/// Returns how many items a thread takes at a time, if several threads should share items that take this long each.
fn worthwhile(each: Duration, items: usize) -> Option<usize> {
    let each = each.max(Duration::from_nanos(1));
    let is_worthwhile = each.saturating_mul(items as u32) >= WORTH_WAKING;
    is_worthwhile.then(|| (RANGE.as_nanos() / each.as_nanos()).max(1) as usize)
}

fn share<T: Send>(
    pool: &rayon::ThreadPool,
    items: &mut [T],
    range: usize,
    work: &(impl Fn(&mut T) + Sync),
) {
    let helpers = (pool.current_num_threads() - 1).min(items.len().div_ceil(range) - 1);
    let ranges = Mutex::new(items.chunks_mut(range));
    let next = || ranges.lock().unwrap_or_else(PoisonError::into_inner).next();
    let run = || {
        while let Some(range) = next() {
            range.iter_mut().for_each(work);
        }
    };
    let running = AtomicUsize::new(helpers);
    pool.in_place_scope(|scope| {
        for _ in 0..helpers {
            scope.spawn(|_| {
                run();
                // Relaxed: only tells the calling thread that it need not sleep. The scope orders the work.
                running.fetch_sub(1, Ordering::Relaxed);
            });
        }
        run();
        for _ in 0..SPINS {
            // Relaxed: see above.
            if running.load(Ordering::Relaxed) == 0 {
                break;
            }
            std::hint::spin_loop();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_item_is_processed_once_by_any_number_of_threads() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        for pool in [None, Some(&pool)] {
            for (len, pause) in [(0, 0), (5, 0), (1_000, 0), (100, 20)] {
                let mut items = vec![0; len];
                let slowly = |item: &mut usize| {
                    std::thread::sleep(Duration::from_micros(pause));
                    *item += 1;
                };
                Threads::new(pool).for_each(&mut items, slowly);
                Threads::new(pool).share(&mut items, Duration::from_micros(50), |item| *item += 1);
                assert_eq!(items, vec![2; len]);
            }
        }
    }

    #[test]
    fn only_long_work_is_shared() {
        let pays_off = WORTH_WAKING.as_nanos() as usize;
        assert_eq!(worthwhile(Duration::from_nanos(300), pays_off / 300), None);
        assert_eq!(worthwhile(Duration::from_nanos(300), pays_off / 300 + 1), Some(13));
        assert_eq!(worthwhile(Duration::from_micros(6), pays_off), Some(1));
        assert_eq!(worthwhile(Duration::ZERO, pays_off - 1), None);
    }
}
