//! `portolan-bench sched --queue`: pods are popped from a scheduling queue, decided, assumed
//! and bound in memory. A cycle is the time from the pop to the binding.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use portolan::SchedulingLoop;
use portolan::cache::Event;
use portolan::model::{Pod, Timestamp};
use portolan::scheduler::queue::PopError;
use serde_json::{Value, json};

use portolan_cli::CommandError;
use portolan_cli::closed;
use portolan_cli::histogram;

use super::measure::{Bench, overcommitted};
use super::processes;
use super::results::cycle_us;
use super::sched::Arguments;
use super::workloads::Shape;

pub(super) fn measure(
    bench: &Bench,
    (shape, schedulers): (Shape, u16),
    arguments: &Arguments,
    pods: Vec<Arc<Pod>>,
) -> Result<Value, CommandError> {
    let (count, queue) = (pods.len(), bench.queue()?);
    let loops: Result<Vec<_>, _> = (0..schedulers).map(|_| bench.scheduling_loop(&queue)).collect();
    let started = Instant::now();
    for pod in pods {
        // The outcome is not needed: the queue receives the pod.
        drop(bench.engine.submit(Event::put_pending(pod)).map_err(closed)?);
    }
    let fed = started.elapsed();
    let clock = move || {
        let nanoseconds = i64::try_from(started.elapsed().as_nanos()).unwrap_or(i64::MAX);
        Timestamp(Timestamp::from_secs(1_000).0.saturating_add(nanoseconds))
    };
    let left = AtomicUsize::new(count);
    let batch = NonZeroUsize::new(arguments.batch.into()).unwrap_or(NonZeroUsize::MIN);
    if arguments.wait {
        processes::wait()?;
    }
    let started = Instant::now();
    let drive = |mut scheduling| {
        let left = &left;
        move || drive(&mut scheduling, left, batch, clock)
    };
    let mut drives = loops?.into_iter().map(drive);
    let done: Vec<_> = match schedulers {
        1 => drives.next().map(|mut drive| drive()).into_iter().collect::<Result<_, _>>()?,
        _ => std::thread::scope(|scope| {
            let threads: Vec<_> = drives.map(|drive| scope.spawn(drive)).collect();
            let broke = || CommandError::Panicked("a scheduler thread");
            let ended = threads.into_iter().map(|t| t.join().unwrap_or_else(|_| Err(broke())));
            ended.collect::<Result<_, _>>()
        })?,
    };
    let ended = done.iter().map(|driven: &Driven| driven.ended).max().unwrap_or(started);
    let spent = ended.duration_since(started);
    let mut cycles = histogram()?;
    let (mut failed, mut conflicts) = (0, 0);
    for driven in &done {
        let _ = cycles.add(&driven.cycles);
        failed += driven.failed;
        conflicts += driven.conflicts;
    }
    let per_second = |time: Duration| (count as f64 / time.as_secs_f64().max(1e-9)).round();
    Ok(json!({
        "workload": format!("{}, queued and bound", shape.name()),
        "nodes": arguments.nodes,
        "init": arguments.init(),
        "pods": count,
        "schedulers": schedulers,
        "batch": arguments.batch,
        "seed": arguments.seed,
        "percentage_of_nodes": arguments.percentage_of_nodes,
        "failed": failed,
        "cycles_per_second": per_second(spent),
        "cycle_us": cycle_us(&cycles),
        "conflicts": conflicts,
        "submitted_per_second": per_second(fed),
        "overcommitted": overcommitted(&bench.engine)?,
    }))
}

/// What one scheduler did.
struct Driven {
    /// The nanoseconds of each cycle.
    cycles: Histogram<u64>,
    /// The failed attempts.
    failed: u64,
    conflicts: u64,
    /// The end of the last attempt, after which the scheduler may have waited for a pod in vain.
    ended: Instant,
}

/// Schedules until no pod is left.
fn drive(
    scheduling: &mut SchedulingLoop,
    left: &AtomicUsize,
    batch: NonZeroUsize,
    clock: impl Fn() -> Timestamp + Copy,
) -> Result<Driven, CommandError> {
    let mut cycles = histogram()?;
    let mut failed = 0;
    let mut ended = Instant::now();
    // The timeout ends the run if the remaining pods are unschedulable.
    let patience = Duration::from_millis(500);
    // Relaxed: the counter orders no other memory.
    while left.load(Ordering::Relaxed) > 0 {
        let from = Instant::now();
        let deadline = Some(from + patience);
        let attempts = match batch.get() {
            1 => scheduling.schedule_one(deadline, clock).map(|attempt| vec![attempt]),
            _ => scheduling.schedule_batch(batch, deadline, clock),
        };
        let attempts = match attempts {
            Ok(attempts) => attempts,
            Err(PopError::Timeout | PopError::Closed) => break,
            Err(error) => return Err(closed(error)),
        };
        // A gang is one cycle.
        let mut done = 0;
        for attempt in attempts {
            let (placed, unplaced) = attempt.into_parts();
            failed += unplaced.len() as u64;
            done += u64::from(!placed.is_empty());
            for placement in placed {
                match scheduling.bind(&placement, clock) {
                    Ok(()) => drop(left.fetch_sub(1, Ordering::Relaxed)),
                    Err(_) => failed += 1,
                }
            }
        }
        if let Some(each) = (from.elapsed().as_nanos() as u64).checked_div(done) {
            cycles.saturating_record_n(each, done);
        }
        ended = Instant::now();
    }
    Ok(Driven { cycles, failed, conflicts: scheduling.figures().conflicts, ended })
}
