//! Threads for bindings that block, which start when they are needed.
//!
//! A binding may wait for minutes, for a permit or for a volume, and must not delay another one. Each therefore has a
//! thread, up to a limit. A thread that finds no further binding for a while ends. If as many jobs wait for a thread as
//! there may be threads, no further pod is popped (see `pressure.rs`), except for jobs that may take minutes: these
//! must not delay other pods.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use portolan::Placement;

use super::pressure::Level;
use super::threads::{Ends, Threads};
use crate::lock::lock;

/// The time after which a thread without work ends.
const IDLE: Duration = Duration::from_secs(30);

/// A job of a [`Pool`].
pub(super) trait Job: Send + 'static {
    /// Whether the job may take minutes. Scheduling continues regardless of the number of such jobs that wait.
    fn is_long(&self) -> bool;
}

impl Job for Placement {
    fn is_long(&self) -> bool {
        let template = &self.pod.template;
        self.waits || template.claims().next().is_some() || !template.resource_claims.is_empty()
    }
}

/// Runs jobs, each on a thread of its own, up to a limit. Dropping it lets the threads end after the jobs that wait.
pub(super) struct Pool<J: Job>(Arc<Shared<J>>);

/// Runs jobs. Each thread has its own.
pub(super) type Work<J> = Box<dyn FnMut(J) + Send>;

struct Shared<J> {
    name: &'static str,
    most: usize,
    /// Makes the work of a thread, or `None` if no more work can be done.
    make: Box<dyn Fn() -> Option<Work<J>> + Send + Sync>,
    threads: Threads,
    state: Mutex<State<J>>,
    /// Notified of each job, and of the end.
    changed: Condvar,
}

struct State<J> {
    jobs: VecDeque<J>,
    /// The number of threads that wait for a job, including threads that were notified of one and have not taken it.
    idle: usize,
    running: usize,
    is_closed: bool,
    /// The number of jobs in `jobs` that are not long.
    short: usize,
    level: Level,
}

impl<J: Job> Pool<J> {
    /// Creates a pool without threads. `make` makes the work of each thread.
    pub(super) fn new(
        threads: &Threads,
        name: &'static str,
        most: usize,
        make: impl Fn() -> Option<Work<J>> + Send + Sync + 'static,
    ) -> Pool<J> {
        let level = threads.alarm().pressure().level(most);
        let state =
            State { jobs: VecDeque::new(), idle: 0, running: 0, is_closed: false, short: 0, level };
        Pool(Arc::new(Shared {
            name,
            most,
            make: Box::new(make),
            threads: threads.clone(),
            state: Mutex::new(state),
            changed: Condvar::new(),
        }))
    }

    /// Adds a job. Never blocks for long.
    pub(super) fn put(&self, job: J) {
        let mut state = lock(&self.0.state);
        state.push(job);
        self.grow_by_one(&mut state);
        drop(state);
        self.0.changed.notify_one();
    }

    /// Starts a thread if a job waits because one could not be started before.
    pub(super) fn grow(&self) {
        self.grow_by_one(&mut lock(&self.0.state));
    }

    fn grow_by_one(&self, state: &mut State<J>) {
        if state.jobs.len() <= state.idle || state.running >= self.0.most {
            return;
        }
        let Some(work) = (self.0.make)() else { return };
        let shared = self.0.clone();
        match self.0.threads.spawn(self.0.name, Ends::Freely, move || shared.run(work)) {
            Ok(()) => state.running += 1,
            Err(error) => tracing::warn!(%error, "a pod waits for a thread"),
        }
    }
}

impl<J: Job> State<J> {
    fn push(&mut self, job: J) {
        self.short += usize::from(!job.is_long());
        self.jobs.push_back(job);
        self.level.set(self.short);
    }

    fn pop(&mut self) -> Option<J> {
        let job = self.jobs.pop_front()?;
        self.short -= usize::from(!job.is_long());
        self.level.set(self.short);
        Some(job)
    }
}

impl<J: Job> Drop for Pool<J> {
    fn drop(&mut self) {
        lock(&self.0.state).is_closed = true;
        self.0.changed.notify_all();
    }
}

impl<J: Job> Shared<J> {
    fn run(&self, mut work: Work<J>) {
        while let Some(job) = self.next() {
            work(job);
        }
    }

    /// Waits for a job, or returns `None` if the thread ends.
    fn next(&self) -> Option<J> {
        let mut state = lock(&self.state);
        let mut is_over = false;
        loop {
            if let Some(job) = state.pop() {
                return Some(job);
            }
            if is_over || state.is_closed {
                state.running -= 1;
                return None;
            }
            state.idle += 1;
            let waited = self.changed.wait_timeout(state, IDLE);
            let (waited, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            (state, is_over) = (waited, timeout.timed_out());
            state.idle -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::threads::Alarm;
    use super::*;
    use std::sync::{Barrier, mpsc};
    use std::time::Instant;

    impl Job for () {
        fn is_long(&self) -> bool {
            false
        }
    }

    /// Even jobs are long.
    impl Job for u32 {
        fn is_long(&self) -> bool {
            self.is_multiple_of(2)
        }
    }

    #[test]
    fn scheduling_waits_for_short_jobs_that_wait_for_a_thread() {
        let threads = Threads::new(Alarm::new());
        let (step, steps) = mpsc::channel();
        let steps = Arc::new(Mutex::new(steps));
        let make = move || {
            let steps = steps.clone();
            let work = move |_: u32| steps.lock().expect("steps").recv().expect("a step");
            Some(Box::new(work) as Work<u32>)
        };
        let pool = Pool::new(&threads, "test", 1, make);
        let pressure = threads.alarm().pressure();
        (0..100).for_each(|job| pool.put(2 * job));
        assert!(pressure.wait(Instant::now()), "long jobs do not count");
        pool.put(1);
        assert!(!pressure.wait(Instant::now()), "a short job waits behind them");
        (0..101).for_each(|_| step.send(()).expect("received"));
        assert!(pressure.wait(Instant::now() + Duration::from_secs(60)));
        drop(pool);
        threads.join();
    }

    #[test]
    fn jobs_that_wait_for_each_other_all_run() {
        let threads = Threads::new(Alarm::new());
        let barrier = Arc::new(Barrier::new(5));
        let waits = barrier.clone();
        let make = move || {
            let barrier = waits.clone();
            let work = move |()| {
                barrier.wait();
            };
            Some(Box::new(work) as Work<()>)
        };
        let pool = Pool::new(&threads, "test", 4, make);
        for _ in 0..3 {
            (0..4).for_each(|_| pool.put(()));
            barrier.wait();
        }
        drop(pool);
        threads.join();
    }

    #[test]
    fn no_more_threads_run_than_the_limit_and_no_job_is_lost() {
        let threads = Threads::new(Alarm::new());
        let (done, jobs) = mpsc::channel();
        let made = Arc::new(Mutex::new(0));
        let counted = made.clone();
        let make = move || {
            *counted.lock().expect("a count") += 1;
            let done = done.clone();
            Some(Box::new(move |job: u32| done.send(job).expect("received")) as Work<u32>)
        };
        let pool = Pool::new(&threads, "test", 2, make);
        (0..1_000).for_each(|job| pool.put(job));
        drop(pool);
        threads.join();
        let mut done: Vec<u32> = jobs.try_iter().collect();
        done.sort_unstable();
        assert_eq!(done, (0..1_000).collect::<Vec<_>>());
        assert!((1..=2).contains(&*made.lock().expect("a count")));
    }

    #[test]
    fn a_job_whose_thread_could_not_be_made_gets_one_later() {
        let threads = Threads::new(Alarm::new());
        let (done, jobs) = mpsc::channel();
        let fails = Arc::new(Mutex::new(true));
        let failing = fails.clone();
        let make = move || {
            let done = done.clone();
            let work = Box::new(move |()| done.send(()).expect("received")) as Work<()>;
            (!*failing.lock().expect("a flag")).then_some(work)
        };
        let pool = Pool::new(&threads, "test", 2, make);
        pool.put(());
        assert!(jobs.try_recv().is_err());
        *fails.lock().expect("a flag") = false;
        pool.grow();
        assert_eq!(jobs.recv(), Ok(()));
        drop(pool);
        threads.join();
    }
}
