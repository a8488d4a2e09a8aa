//! Shares the work of one decision between threads. No other module of the framework uses a thread pool.
//!
//! Waking a thread takes longer than judging a few chunks, and a woken thread may have to wait for a processor. So the
//! calling thread works alone until a worker runs: a worker that is awake keeps recording the time, and work is shared
//! with the workers that did so recently. They take ranges in turn with the calling thread until nothing is left, and
//! stay awake for a while, so that the next decision can share less work. A few items are worth it if the first one takes
//! long. Another program may interrupt a worker in the middle of a range; sharing backs off after that. No item depends
//! on another, so the results do not depend on the number of threads. A decision waits for the workers that it shares
//! work with, even if other work of the pool delays them.
//!
//! Short work wakes no worker, not even if decisions follow each other. On an idle machine that would pay off, but beside
//! one busy program a worker that polls takes a fifth of the scheduling thread's time.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

/// The work, at the calling thread's pace, from which waking workers pays off: 20 to 60 µs pass until they run.
///
/// Short in development builds and under a fuzzer, so that these share work.
const WORTH_WAKING: Duration =
    Duration::from_micros(if cfg!(any(debug_assertions, fuzzing)) { 1 } else { 100 });

/// The work, at the calling thread's pace, from which sharing it with workers that run pays off.
const WORTH_SHARING: Duration =
    Duration::from_micros(if cfg!(any(debug_assertions, fuzzing)) { 1 } else { 10 });

/// How long a worker stays awake after work was shared: longer than a scheduler's other steps between two decisions.
const AWAKE: Duration = Duration::from_millis(1);

/// A worker that has not recorded the time for this long does not run: the system runs another thread on its processor,
/// or the worker does other work of the pool.
///
/// Long in development builds, which are slow.
const LATELY: Duration = Duration::from_micros(if cfg!(debug_assertions) { 1_000 } else { 5 });

/// How long the items of one range take.
const RANGE: Duration = Duration::from_micros(4);

/// How many items the calling thread processes before it decides.
const TRIED: usize = 4;

/// The calling thread decides after one item if there are at most this many, or if the item takes [`AWAKE`].
const FEW: usize = 4 * TRIED;

/// How many times the time of few items is not taken after the first of them took less than [`WORTH_WAKING`]: taking it
/// costs as much as judging a chunk or two.
const UNTIMED: usize = 16;

/// How often the calling thread checks whether the others have finished before it sleeps.
const SPINS: usize = 2_000;

/// Development builds and fuzzers share work although that never pays off there.
const BACKS_OFF: bool = !cfg!(any(debug_assertions, fuzzing));

/// The smallest and the largest number of times that work is not shared after sharing did not pay off.
const PAUSES: RangeInclusive<usize> = 8..=1024;

/// The workers of a pool, which share the work of a scheduling thread.
pub(super) struct Workers {
    pool: Arc<rayon::ThreadPool>,
    idling: Arc<Idling>,
    /// By the logarithm of the microseconds that the calling thread alone would take: whether sharing pays off depends on
    /// them.
    backoffs: [Backoff; 16],
    /// How many more times the time of few items is not taken, by [`Timed`].
    untimed: [AtomicUsize; 2],
}

/// What is timed. Scores of plugins that are not local always are: they take longer than reading the clock.
#[derive(Clone, Copy)]
pub(super) enum Timed {
    Filters,
    LocalScores,
    OtherScores,
}

/// The workers between two shared decisions.
struct Idling {
    workers: Vec<Worker>,
    /// The number of times that work was shared.
    shared: AtomicUsize,
    /// Whether there is shared work that no thread has begun. A single item may take longer than [`AWAKE`].
    is_sharing: AtomicBool,
}

/// Keeps the workers awake for shared work.
struct Sharing<'a>(&'a Idling);

impl<'a> Sharing<'a> {
    fn begin(idling: &'a Idling) -> Sharing<'a> {
        // Relaxed, here and below: see `Workers::wake`.
        idling.is_sharing.store(true, Ordering::Relaxed);
        Sharing(idling)
    }
}

impl Drop for Sharing<'_> {
    fn drop(&mut self) {
        self.0.is_sharing.store(false, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct Worker {
    is_awake: AtomicBool,
    /// When the worker's thread last polled for work; set once it was woken for the first time.
    polled: OnceLock<Arc<LastPoll>>,
}

/// When a thread last polled for work, in nanoseconds of [`clock`]. It belongs to the thread: a thread that is awake for
/// several schedulers runs nested loops, and only the innermost polls.
type LastPoll = CachePadded<AtomicU64>;

std::thread_local! {
    static POLLED: Arc<LastPoll> = Arc::default();
}

/// Exponential backoff after sharing did not pay off.
///
/// Only the scheduling thread uses it. Atomic because [`Workers`] is shared with the pool's threads.
#[derive(Default)]
struct Backoff {
    /// How many times work is not shared, and how many of these remain.
    pause: AtomicUsize,
    left: AtomicUsize,
}

/// Returns the nanoseconds since the first call in this process.
fn clock() -> u64 {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    nanos(BEGIN.get_or_init(Instant::now).elapsed())
}

const fn nanos(time: Duration) -> u64 {
    time.as_nanos() as u64
}

impl Workers {
    pub(super) fn new(pool: Arc<rayon::ThreadPool>) -> Workers {
        let workers = (0..pool.current_num_threads()).map(|_| Worker::default()).collect();
        let (shared, is_sharing) = (AtomicUsize::new(0), AtomicBool::new(false));
        let idling = Arc::new(Idling { workers, shared, is_sharing });
        Workers { pool, idling, backoffs: Default::default(), untimed: Default::default() }
    }

    fn backoff(&self, alone: Duration) -> &Backoff {
        let micros = alone.as_micros().max(1).ilog2() as usize;
        &self.backoffs[micros.min(self.backoffs.len() - 1)]
    }

    /// Returns the number of workers that look for work at this moment.
    fn running(&self) -> usize {
        let since = clock().saturating_sub(nanos(LATELY));
        self.idling.workers.iter().filter(|worker| worker.has_polled(since)).count()
    }

    /// Wakes the workers, or keeps them awake.
    fn wake(&self) {
        // Relaxed, here and below: a wrong answer costs time only, and the pool orders the data.
        self.idling.shared.fetch_add(1, Ordering::Relaxed);
        self.wake_sleeping();
    }

    fn wake_sleeping(&self) {
        if !self.idling.workers.iter().all(|worker| worker.is_awake.load(Ordering::Relaxed)) {
            let idling = self.idling.clone();
            self.pool.spawn_broadcast(move |worker| idling.stay_awake(worker.index()));
        }
    }
}

impl Worker {
    fn has_polled(&self, since: u64) -> bool {
        // Relaxed: see `Workers::wake`.
        self.is_awake.load(Ordering::Relaxed)
            && self.polled.get().is_some_and(|polled| polled.load(Ordering::Relaxed) >= since)
    }
}

impl Backoff {
    /// Returns whether work should be shared now.
    fn take_turn(&self) -> bool {
        // Relaxed, here and below: see the type.
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.saturating_sub(1), Ordering::Relaxed);
        left == 0
    }

    /// Records whether sharing took no longer than the calling thread alone would have taken.
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
        let Some(worker) = self.workers.get(worker) else { return };
        if worker.is_awake.swap(true, Ordering::Relaxed) {
            return;
        }
        let polled = worker.polled.get_or_init(|| POLLED.with(Arc::clone));
        let (mut shared, mut since) = (self.shared.load(Ordering::Relaxed), clock());
        loop {
            // Takes microseconds in a pool of a hundred threads.
            rayon::yield_now();
            let now = clock();
            polled.store(now, Ordering::Relaxed);
            let shared_now = self.shared.load(Ordering::Relaxed);
            if shared_now != shared || self.is_sharing.load(Ordering::Relaxed) {
                (shared, since) = (shared_now, now);
            } else if now.saturating_sub(since) > nanos(AWAKE) {
                break;
            }
        }
        worker.is_awake.store(false, Ordering::Relaxed);
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
    pub(super) fn for_each<T: Send>(
        self,
        timed: Timed,
        items: &mut [T],
        work: impl Fn(&mut T) + Sync,
    ) {
        let mut trial = self.try_alone(timed);
        for at in 0..items.len() {
            if let Some(each) = trial.should_share(items.len() - at) {
                return self.share(&mut items[at..], each, work);
            }
            work(&mut items[at]);
        }
    }

    /// Returns whether several threads should share `items` items that take this long each.
    pub(super) fn are_worthwhile(self, each: Duration, items: usize) -> bool {
        self.worthwhile(each, items).is_some()
    }

    /// Begins items that the calling thread processes where they are, until it turns out that the rest should be shared.
    pub(super) fn try_alone(self, timed: Timed) -> Trial<'a> {
        // `Timed::OtherScores` has no countdown: it is always timed.
        let untimed = self.0.and_then(|workers| workers.untimed.get(timed as usize));
        Trial { threads: self, untimed, started: None, tried: 0, is_decided: !self.are_several() }
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
                share(workers, items, (each, range), &work);
                if BACKS_OFF {
                    workers.backoff(alone).record(started.elapsed() <= alone);
                }
            }
            _ => items.iter_mut().for_each(work),
        }
    }

    /// Returns how many items a thread takes at a time, if several threads should share items that take this long each.
    /// Otherwise counts down the backoff.
    fn worthwhile(self, each: Duration, items: usize) -> Option<usize> {
        // A worker that waits for others executes other work of the pool, which may take long.
        let workers = self.0.filter(|workers| workers.pool.current_thread_index().is_none())?;
        // The calling thread takes the first range.
        let range = range_of(each, items, WORTH_SHARING).filter(|range| *range < items)?;
        let alone = each.saturating_mul(items as u32);
        if !workers.backoff(alone).take_turn() {
            return None;
        }
        (alone >= WORTH_WAKING || workers.running() > 0).then_some(range)
    }
}

/// Items that the calling thread processes alone at first.
pub(super) struct Trial<'a> {
    threads: Threads<'a>,
    /// How many more times the time of few such items is not taken, unless it always is.
    untimed: Option<&'a AtomicUsize>,
    started: Option<Instant>,
    /// The number of items processed since `started`.
    tried: usize,
    is_decided: bool,
}

impl Trial<'_> {
    /// Called before each item, with the number of items that are left. Returns how long an item takes, once, if several
    /// threads should share these.
    pub(super) fn should_share(&mut self, left: usize) -> Option<Duration> {
        if self.is_decided {
            return None;
        }
        let Some(started) = self.started else {
            self.is_decided = left <= 1 || (left <= FEW && self.is_untimed());
            self.started = (!self.is_decided).then(Instant::now);
            return None;
        };
        self.tried += 1;
        if self.tried != 1 && self.tried != TRIED {
            return None;
        }
        let each = started.elapsed() / self.tried as u32;
        let are_few = self.tried == 1 && left < FEW;
        self.is_decided = are_few || self.tried == TRIED || each >= AWAKE;
        if are_few && each < WORTH_WAKING {
            // Relaxed: only the scheduling thread uses it.
            self.untimed.inspect(|untimed| untimed.store(UNTIMED, Ordering::Relaxed));
            return None;
        }
        Some(each).filter(|each| self.is_decided && self.threads.are_worthwhile(*each, left))
    }

    /// Counts down.
    fn is_untimed(&self) -> bool {
        let Some(untimed) = self.untimed else { return false };
        let left = untimed.load(Ordering::Relaxed);
        untimed.store(left.saturating_sub(1), Ordering::Relaxed);
        left > 0
    }
}

/// Returns how many items a thread takes at a time, if all of them together take this long at least.
fn range_of(each: Duration, items: usize, least: Duration) -> Option<usize> {
    let each = each.max(Duration::from_nanos(1));
    let is_worthwhile = each.saturating_mul(items as u32) >= least;
    is_worthwhile.then(|| (RANGE.as_nanos() / each.as_nanos()).max(1) as usize)
}

/// Calls `work` once for each item, with the workers that run, and with more of them as they begin to.
fn share<T: Send>(
    workers: &Workers,
    items: &mut [T],
    (each, range): (Duration, usize),
    work: &(impl Fn(&mut T) + Sync),
) {
    let sharing = Sharing::begin(&workers.idling);
    workers.wake();
    let all = workers.idling.workers.len();
    let ranges = Mutex::new(items.chunks_mut(range));
    let lock = || ranges.lock().unwrap_or_else(PoisonError::into_inner);
    let run = |range: &mut [T]| range.iter_mut().for_each(work);
    let unfinished = AtomicUsize::new(0);
    workers.pool.in_place_scope(|scope| {
        let mut helpers = 0;
        loop {
            let (next, left) = {
                let mut ranges = lock();
                (ranges.next(), ranges.len())
            };
            let Some(next) = next else { break };
            if helpers < all && left > 0 {
                let running = workers.running();
                if running == 0 && each >= AWAKE {
                    // They may have fallen asleep in the moment in which they were woken.
                    workers.wake_sleeping();
                }
                // This may count a worker that was just given a job; its second job finds no range.
                for _ in 0..running.min(all - helpers).min(left) {
                    helpers += 1;
                    // Relaxed, here and below: only tells the calling thread that it need not sleep. The scope orders
                    // the work.
                    unfinished.fetch_add(1, Ordering::Relaxed);
                    scope.spawn(|_| {
                        while let Some(next) = { lock().next() } {
                            run(next);
                        }
                        unfinished.fetch_sub(1, Ordering::Relaxed);
                    });
                }
            }
            run(next);
        }
        drop(sharing);
        for _ in 0..SPINS {
            if unfinished.load(Ordering::Relaxed) == 0 {
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
                Threads::new(workers).for_each(Timed::Filters, &mut items, slowly);
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

    fn any_awake(workers: &Workers) -> bool {
        workers.idling.workers.iter().any(|worker| worker.is_awake.load(Ordering::Relaxed))
    }

    #[test]
    fn workers_fall_asleep_and_are_woken() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let workers = Workers::new(Arc::new(pool));
        for _ in 0..3 {
            Threads::new(Some(&workers)).share(&mut [0; 64], AWAKE, |item| *item += 1);
            while any_awake(&workers) {
                std::thread::yield_now();
            }
            assert_eq!(workers.running(), 0);
        }
        assert_eq!(workers.idling.shared.load(Ordering::Relaxed), 3);
    }

    fn one_thread() -> Arc<rayon::ThreadPool> {
        Arc::new(rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap())
    }

    #[test]
    fn a_worker_runs_if_it_is_awake_and_polled_lately() {
        let workers = Workers::new(one_thread());
        let [worker] = &workers.idling.workers[..] else { panic!("one thread") };
        worker.is_awake.store(true, Ordering::Relaxed);
        assert_eq!(workers.running(), 0, "it has not polled yet");
        let polled = worker.polled.get_or_init(Arc::default);
        while clock() <= nanos(LATELY) {
            std::hint::spin_loop();
        }
        assert_eq!(workers.running(), 0, "it has not polled lately");
        polled.store(u64::MAX, Ordering::Relaxed);
        assert_eq!(workers.running(), 1);
        worker.is_awake.store(false, Ordering::Relaxed);
        assert_eq!(workers.running(), 0, "it sleeps");
    }

    #[test]
    fn a_worker_of_two_schedulers_looks_for_both() {
        let pool = one_thread();
        let [one, other] = [(); 2].map(|()| Workers::new(pool.clone()));
        // Each call returns, because no work is shared.
        pool.install(|| [&one, &other].map(|workers| workers.idling.stay_awake(0)));
        let polled = [&one, &other].map(|workers| workers.idling.workers[0].polled.get().unwrap());
        assert!(Arc::ptr_eq(polled[0], polled[1]));
        assert!(!any_awake(&one) && !any_awake(&other));
    }

    /// Shares items until a worker takes part.
    fn share_until_a_worker_runs(workers: &Workers) {
        let started = Instant::now();
        loop {
            let threads = Mutex::new(std::collections::HashSet::new());
            Threads::new(Some(workers)).share(&mut [0; 64], AWAKE, |item| {
                *item += 1;
                threads.lock().unwrap().insert(std::thread::current().id());
                std::thread::sleep(Duration::from_micros(100));
            });
            if threads.into_inner().unwrap().len() > 1 {
                return;
            }
            assert!(started.elapsed() < Duration::from_secs(60), "no worker is woken");
        }
    }

    #[test]
    fn workers_take_part() {
        for threads in [1, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            share_until_a_worker_runs(&Workers::new(Arc::new(pool)));
        }
    }

    #[test]
    fn workers_take_part_if_an_item_takes_longer_than_they_stay_awake() {
        let workers = Workers::new(one_thread());
        let (here, started) = (std::thread::current().id(), Instant::now());
        let mut threads = [here; 20];
        while threads.iter().all(|thread| *thread == here) {
            assert!(started.elapsed() < Duration::from_secs(10), "no worker takes part");
            // Expected to take less, so that a worker that fell asleep is not woken again.
            Threads::new(Some(&workers)).share(&mut threads, AWAKE / 2, |thread| {
                *thread = std::thread::current().id();
                std::thread::sleep(2 * AWAKE);
            });
        }
        assert!(!workers.idling.is_sharing.load(Ordering::Relaxed));
    }

    /// Returns whether `len` items are shared if each takes this long.
    fn are_shared(workers: &Workers, len: usize, each: Duration) -> bool {
        let before = workers.idling.shared.load(Ordering::Relaxed);
        // Not backed off by an earlier call.
        workers.backoffs.iter().for_each(|backoff| backoff.record(true));
        Threads::new(Some(workers))
            .for_each(Timed::Filters, &mut vec![(); len], |()| std::thread::sleep(each));
        workers.idling.shared.load(Ordering::Relaxed) > before
    }

    #[test]
    fn few_items_are_shared_if_the_first_takes_long() {
        let workers = Workers::new(one_thread());
        for (len, is_shared) in [(0, false), (1, false), (2, false), (3, true), (FEW, true)] {
            assert_eq!(are_shared(&workers, len, WORTH_WAKING), is_shared, "{len} items");
        }
    }

    /// Returns how many of `len` items the calling thread processes before they are shared, if they are and each takes
    /// this long.
    fn alone(workers: &Workers, timed: Timed, len: usize, each: Duration) -> Option<usize> {
        let mut trial = Threads::new(Some(workers)).try_alone(timed);
        (0..len).find(|at| {
            let spent = each * *at as u32;
            trial.started = trial.started.and_then(|_| Instant::now().checked_sub(spent));
            trial.should_share(len - at).is_some()
        })
    }

    #[test]
    fn the_calling_thread_decides_after_one_item_or_after_four() {
        let workers = Workers::new(one_thread());
        for (len, each, expected) in [
            (FEW, WORTH_WAKING, Some(1)),
            (FEW + 1, AWAKE, Some(1)),
            (FEW + 1, AWAKE / 2, Some(TRIED)),
            (10 * FEW, WORTH_WAKING, Some(TRIED)),
        ] {
            assert_eq!(alone(&workers, Timed::Filters, len, each), expected, "{len} {each:?}");
        }
    }

    #[test]
    fn few_short_items_make_the_next_ones_untimed_but_not_for_long() {
        let workers = Workers::new(one_thread());
        let alone = |timed, each| alone(&workers, timed, FEW, each);
        let long = Duration::from_secs(1);
        for untimed in &workers.untimed {
            untimed.store(UNTIMED, Ordering::Relaxed);
        }
        for timed in [Timed::Filters, Timed::LocalScores] {
            assert!((0..UNTIMED).all(|_| alone(timed, long).is_none()));
            assert_eq!(alone(timed, long), Some(1));
        }
        assert_eq!(alone(Timed::OtherScores, long), Some(1));
        let mut trial = Threads::new(Some(&workers)).try_alone(Timed::Filters);
        trial.should_share(FEW);
        trial.started = Some(Instant::now() + long);
        assert_eq!(trial.should_share(FEW - 1), None);
        assert_eq!(workers.untimed[Timed::Filters as usize].load(Ordering::Relaxed), UNTIMED);
        assert_eq!(alone(Timed::OtherScores, long), Some(1));
    }

    #[test]
    fn schedulers_share_the_workers_of_one_pool() {
        let pool = Arc::new(rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap());
        let schedulers = [Workers::new(pool.clone()), Workers::new(pool)];
        std::thread::scope(|scope| {
            for workers in &schedulers {
                scope.spawn(|| (0..20).for_each(|_| share_until_a_worker_runs(workers)));
            }
        });
    }

    #[test]
    fn sharing_backs_off_after_it_did_not_pay_off() {
        let workers = Workers::new(one_thread());
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
    fn a_worker_does_not_share_its_own_work() {
        let pool = Arc::new(rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap());
        let workers = Workers::new(pool.clone());
        let mut items = [0; 64];
        pool.install(|| Threads::new(Some(&workers)).share(&mut items, AWAKE, |item| *item += 1));
        assert_eq!((items, workers.idling.shared.load(Ordering::Relaxed)), ([1; 64], 0));
    }
}
