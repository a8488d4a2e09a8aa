//! Shares the work of one decision between threads. No other module of the framework uses a thread pool.
//!
//! Waking a thread takes longer than judging a few chunks, and how long a chunk takes depends on the plugins, the pod
//! and the caches of the processor. So the calling thread begins alone. If the first items show that the rest takes long
//! enough, the threads of the pool join in, and take ranges of the rest in turn with the calling thread until nothing is
//! left. They then stay awake for a while, so that the next decision can share less work. No item depends on another, so
//! the results do not depend on the number of threads. A decision waits for the threads that it has woken, even if
//! other work of the pool delays them.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The remaining work, at the calling thread's pace, from which waking a thread pays off. Measured: a thread that sleeps
/// begins 20 to 60 µs after it is woken.
///
/// Short in development builds and under a fuzzer, so that these share work.
const WORTH_WAKING: Duration =
    Duration::from_micros(if cfg!(any(debug_assertions, fuzzing)) { 1 } else { 100 });

/// The remaining work, at the calling thread's pace, from which sharing with workers that are awake pays off.
const WORTH_SHARING: Duration =
    Duration::from_micros(if cfg!(any(debug_assertions, fuzzing)) { 1 } else { 10 });

/// How long a thread stays awake after the last work: longer than a scheduler's other steps between two decisions.
const AWAKE: Duration = Duration::from_millis(1);

/// Development builds and fuzzers share work although that never pays off there.
const BACKS_OFF: bool = !cfg!(any(debug_assertions, fuzzing));

/// The smallest and the largest number of times that work is not shared after sharing did not pay off.
const PAUSES: RangeInclusive<usize> = 8..=1024;

/// How long the items of one range take.
const RANGE: Duration = Duration::from_micros(4);

/// How many items the calling thread processes before it decides.
const TRIED: usize = 4;

/// This many items are not worth taking the time.
const FEW: usize = 4 * TRIED;

/// How often the calling thread checks whether the others have finished before it sleeps.
const SPINS: usize = 2_000;

/// How often a worker looks for work before it looks at the clock.
const SPINS_PER_CHECK: usize = 64;

/// The workers of a pool, which share the work of a scheduling thread.
pub(super) struct Workers {
    pool: Arc<rayon::ThreadPool>,
    idling: Arc<Idling>,
    /// By the logarithm of the microseconds that the calling thread alone would take: whether sharing pays off depends on
    /// them.
    backoffs: [Backoff; 16],
}

/// Exponential backoff after sharing did not pay off, for example because other programs use the processors.
///
/// Only the scheduling thread uses it. Atomic because the thread lends the workers to themselves.
#[derive(Default)]
struct Backoff {
    /// How many times work is not shared, and how many of these remain.
    pause: AtomicUsize,
    left: AtomicUsize,
}

/// The workers between two shared decisions.
struct Idling {
    is_awake: Vec<AtomicBool>,
    /// The number of times that work was shared.
    shared: AtomicUsize,
}

impl Workers {
    pub(super) fn new(pool: Arc<rayon::ThreadPool>) -> Workers {
        let is_awake = (0..pool.current_num_threads()).map(|_| AtomicBool::new(false)).collect();
        let idling = Arc::new(Idling { is_awake, shared: AtomicUsize::new(0) });
        Workers { pool, idling, backoffs: Default::default() }
    }

    fn threads(&self) -> usize {
        self.idling.is_awake.len()
    }

    fn backoff(&self, alone: Duration) -> &Backoff {
        let micros = alone.as_micros().max(1).ilog2() as usize;
        &self.backoffs[micros.min(self.backoffs.len() - 1)]
    }

    fn are_awake(&self) -> bool {
        // Relaxed: a wrong answer costs time only.
        self.idling.is_awake.iter().all(|is_awake| is_awake.load(Ordering::Relaxed))
    }

    /// Wakes the workers, or keeps them awake.
    fn wake(&self) {
        // Relaxed, here and below: the counters order no data; the pool does.
        self.idling.shared.fetch_add(1, Ordering::Relaxed);
        if !self.are_awake() {
            let idling = self.idling.clone();
            self.pool.spawn_broadcast(move |worker| idling.stay_awake(worker.index()));
        }
    }
}

impl Backoff {
    /// Returns whether work should be shared now. After sharing took longer than the calling thread alone would have, it
    /// is not shared the next times.
    fn take_turn(&self) -> bool {
        // Relaxed, here and below: see the type.
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.saturating_sub(1), Ordering::Relaxed);
        left == 0
    }

    fn record(&self, paid_off: bool) {
        let pause = match paid_off {
            true => 0,
            false => {
                let pause = 2 * self.pause.load(Ordering::Relaxed);
                pause.clamp(*PAUSES.start(), *PAUSES.end())
            }
        };
        self.pause.store(pause, Ordering::Relaxed);
        self.left.store(pause, Ordering::Relaxed);
    }
}

impl Idling {
    /// Executes work of the pool on this worker until none was shared for [`AWAKE`].
    fn stay_awake(&self, worker: usize) {
        let Some(is_awake) = self.is_awake.get(worker) else { return };
        if is_awake.swap(true, Ordering::Relaxed) {
            return;
        }
        let (mut shared, mut since) = (self.shared.load(Ordering::Relaxed), Instant::now());
        while since.elapsed() < AWAKE {
            for _ in 0..SPINS_PER_CHECK {
                rayon::yield_now();
                std::hint::spin_loop();
            }
            let now = self.shared.load(Ordering::Relaxed);
            if now != shared {
                (shared, since) = (now, Instant::now());
            }
        }
        is_awake.store(false, Ordering::Relaxed);
    }
}

/// The threads of a scheduling cycle: the calling thread, and the workers.
#[derive(Clone, Copy)]
pub(super) struct Threads<'a>(Option<&'a Workers>);

impl<'a> Threads<'a> {
    pub(super) fn new(workers: Option<&'a Workers>) -> Threads<'a> {
        Threads(workers)
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
        self.worthwhile(each, items).is_some()
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
        match (self.0, self.worthwhile(each, items.len())) {
            (Some(workers), Some(range)) => {
                let (started, alone) = (Instant::now(), each.saturating_mul(items.len() as u32));
                share(workers, items, range, &work);
                if BACKS_OFF {
                    workers.backoff(alone).record(started.elapsed() <= alone);
                }
            }
            _ => items.iter_mut().for_each(work),
        }
    }

    /// Returns how many items a thread takes at a time, if several threads should share items that take this long each.
    fn worthwhile(self, each: Duration, items: usize) -> Option<usize> {
        // A worker that waits for others executes other work of the pool, which may take long.
        let workers = self.0.filter(|workers| workers.pool.current_thread_index().is_none())?;
        let least = match workers.are_awake() {
            true => WORTH_SHARING,
            false => WORTH_WAKING,
        };
        let alone = each.saturating_mul(items as u32);
        range_of(each, items, least).filter(|_| workers.backoff(alone).take_turn())
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
        let is_too_few = self.started.is_none() && left <= FEW;
        if !self.threads.are_several() || self.tried > TRIED || is_too_few {
            return None;
        }
        let started = *self.started.get_or_insert_with(Instant::now);
        self.tried += 1;
        if self.tried <= TRIED {
            return None;
        }
        Some(started.elapsed() / TRIED as u32)
            .filter(|each| self.threads.are_worthwhile(*each, left))
    }
}

/// Returns how many items a thread takes at a time, if all of them together take this long at least.
fn range_of(each: Duration, items: usize, least: Duration) -> Option<usize> {
    let each = each.max(Duration::from_nanos(1));
    let is_worthwhile = each.saturating_mul(items as u32) >= least;
    is_worthwhile.then(|| (RANGE.as_nanos() / each.as_nanos()).max(1) as usize)
}

fn share<T: Send>(
    workers: &Workers,
    items: &mut [T],
    range: usize,
    work: &(impl Fn(&mut T) + Sync),
) {
    workers.wake();
    let helpers = workers.threads().min(items.len().div_ceil(range) - 1);
    let ranges = Mutex::new(items.chunks_mut(range));
    let next = || ranges.lock().unwrap_or_else(PoisonError::into_inner).next();
    let run = || {
        while let Some(range) = next() {
            range.iter_mut().for_each(work);
        }
    };
    let running = AtomicUsize::new(helpers);
    workers.pool.in_place_scope(|scope| {
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
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let workers = Workers::new(Arc::new(pool));
        for workers in [None, Some(&workers)] {
            for (len, pause) in [(0, 0), (5, 0), (1_000, 0), (100, 20)] {
                let mut items = vec![0; len];
                let slowly = |item: &mut usize| {
                    std::thread::sleep(Duration::from_micros(pause));
                    *item += 1;
                };
                Threads::new(workers).for_each(&mut items, slowly);
                Threads::new(workers)
                    .share(&mut items, Duration::from_micros(50), |item| *item += 1);
                assert_eq!(items, vec![2; len]);
            }
        }
    }

    #[test]
    fn only_long_work_is_shared() {
        let least = Duration::from_micros(100);
        assert_eq!(range_of(Duration::from_nanos(300), 333, least), None);
        assert_eq!(range_of(Duration::from_nanos(300), 334, least), Some(13));
        assert_eq!(range_of(Duration::from_micros(6), 100_000, least), Some(1));
        assert_eq!(range_of(Duration::ZERO, 99_999, least), None);
    }

    #[test]
    fn workers_fall_asleep_and_are_woken() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let workers = Workers::new(Arc::new(pool));
        let is_any_awake =
            || workers.idling.is_awake.iter().any(|is_awake| is_awake.load(Ordering::Relaxed));
        for _ in 0..3 {
            Threads::new(Some(&workers)).share(&mut [0; 64], AWAKE, |item| *item += 1);
            while is_any_awake() {
                std::thread::yield_now();
            }
        }
        assert_eq!(workers.idling.shared.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn sharing_backs_off_after_it_did_not_pay_off() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let workers = Workers::new(Arc::new(pool));
        let [short, long] =
            [20, 5_000].map(|micros| workers.backoff(Duration::from_micros(micros)));
        let pause = |of: &Backoff| (0..).take_while(|_| !of.take_turn()).count();
        assert_eq!(pause(short), 0);
        for expected in [8, 16, 32] {
            short.record(false);
            assert_eq!((pause(long), pause(short)), (0, expected));
        }
        short.record(true);
        assert_eq!(pause(short), 0);
        (0..20).for_each(|_| long.record(false));
        assert_eq!((pause(short), pause(long)), (0, *PAUSES.end()));
    }

    #[test]
    fn all_workers_are_awake_together() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        let workers = Workers::new(Arc::new(pool));
        let started = Instant::now();
        // On a busy machine, a worker leaves before another has come, and is woken again.
        while !workers.are_awake() {
            assert!(started.elapsed() < Duration::from_secs(30), "a worker is not woken");
            Threads::new(Some(&workers)).share(&mut [0; 64], AWAKE, |item| *item += 1);
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_worker_does_not_share_its_own_work() {
        let pool = Arc::new(rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap());
        let workers = Workers::new(pool.clone());
        let mut items = [0; 64];
        pool.install(|| Threads::new(Some(&workers)).share(&mut items, AWAKE, |item| *item += 1));
        assert_eq!((items, workers.idling.shared.load(Ordering::Relaxed)), ([1; 64], 0));
    }
}
