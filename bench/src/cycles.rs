//! The measured cycles of one scheduler of `sched`: pods one by one, in batches, or in gangs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use portolan::model::{Pod, Timestamp};
use portolan::{Failure, Placement, Scheduler};

use portolan_cli::CommandError;
use portolan_cli::histogram;

use super::nofit::Changes;

/// How a scheduler processes its pods.
pub(super) struct Work {
    /// The pods per gang, if the pods are gangs.
    pub(super) gang: Option<usize>,
    /// The pods per batch; 1 schedules them one by one.
    pub(super) batch: usize,
    /// The changes before each attempt, for pods that fit nowhere.
    pub(super) changes: Option<Changes>,
}

/// The pods to place. Several schedulers take pods from it, as from a queue, so that all of them work until the end.
pub(super) struct Supply<'p> {
    pods: &'p [Arc<Pod>],
    taken: AtomicUsize,
}

impl<'p> Supply<'p> {
    pub(super) fn new(pods: &'p [Arc<Pod>]) -> Supply<'p> {
        Supply { pods, taken: AtomicUsize::new(0) }
    }

    /// Returns the next pods: `most` of them, or those that are left.
    fn take(&self, most: usize) -> Option<&'p [Arc<Pod>]> {
        // Relaxed: the counter only divides the pods, which do not change.
        let from = self.taken.fetch_add(most, Ordering::Relaxed);
        let taken = self.pods.get(from..)?;
        (!taken.is_empty()).then(|| &taken[..most.min(taken.len())])
    }
}

/// The measurements of one scheduler.
pub(super) struct Measured {
    pub(super) cycles: Histogram<u64>,
    pub(super) failed: u64,
    pub(super) conflicts: u64,
    pub(super) spent: Duration,
}

impl Measured {
    /// Adds the measurements of a scheduler that ran at the same time.
    pub(super) fn add(&mut self, other: Measured) {
        // Both histograms have the same range.
        let _ = self.cycles.add(&other.cycles);
        self.failed += other.failed;
        self.conflicts += other.conflicts;
        self.spent = self.spent.max(other.spent);
    }
}

/// Schedules pods until none is left.
pub(super) fn work(
    scheduler: &mut Scheduler,
    pods: &Supply<'_>,
    work: &mut Work,
) -> Result<Measured, CommandError> {
    let mut measured =
        Measured { cycles: histogram()?, failed: 0, conflicts: 0, spent: Duration::ZERO };
    let before = scheduler.figures().conflicts;
    let started = Instant::now();
    match work {
        Work { gang: Some(gang), .. } => place_gangs(scheduler, pods, *gang, &mut measured),
        Work { batch: 1, .. } => place_singles(scheduler, pods, work, &mut measured)?,
        _ => place_batches(scheduler, pods, work, &mut measured)?,
    }
    measured.spent = started.elapsed();
    measured.conflicts = scheduler.figures().conflicts - before;
    Ok(measured)
}

fn place_singles(
    scheduler: &mut Scheduler,
    pods: &Supply<'_>,
    work: &mut Work,
    measured: &mut Measured,
) -> Result<(), CommandError> {
    while let Some([pod]) = pods.take(1) {
        if let Some(changes) = &mut work.changes {
            changes.next()?;
        }
        let from = Instant::now();
        let placed = scheduler.schedule(pod, Timestamp(0));
        let placed = schedule_after_preemption(scheduler, pod, placed);
        measured.cycles.saturating_record(from.elapsed().as_nanos() as u64);
        measured.failed += u64::from(placed.is_err());
        keep(placed);
    }
    Ok(())
}

/// Leaves a placed pod assumed, because pods are not bound here.
fn keep(placed: Result<Placement, Failure>) {
    if let Ok(placed) = placed {
        placed.keep_assumed();
    }
}

/// The most preemptions for one pod, so that schedulers that evict each other's pods terminate.
const MAX_PREEMPTIONS: usize = 64;

/// Schedules the pod again as long as victims are evicted for it. Another scheduler may use the resources that they
/// release, so that the pod has to preempt again.
fn schedule_after_preemption(
    scheduler: &mut Scheduler,
    pod: &Arc<Pod>,
    mut placed: Result<Placement, Failure>,
) -> Result<Placement, Failure> {
    for _ in 0..MAX_PREEMPTIONS {
        let Some(again) = after_preemption(scheduler, pod, &placed) else { break };
        placed = scheduler.schedule(&again, Timestamp(0));
    }
    placed
}

/// The pod with the node that it is nominated for, if victims were evicted for it.
fn after_preemption(
    scheduler: &Scheduler,
    pod: &Arc<Pod>,
    placed: &Result<Placement, Failure>,
) -> Option<Arc<Pod>> {
    placed.as_ref().err()?.fit().filter(|fit| fit.post_filter.is_none())?;
    let node = scheduler.framework(pod)?.handle().nominator().node_of(&pod.uid)?;
    Some(Arc::new(Pod { nominated_node_name: Some(node), ..Pod::clone(pod) }))
}

fn place_gangs(scheduler: &mut Scheduler, pods: &Supply<'_>, gang: usize, measured: &mut Measured) {
    while let Some(gang) = pods.take(gang) {
        let from = Instant::now();
        let placed = scheduler.schedule_gang(gang, gang.len(), Timestamp(0));
        measured.cycles.saturating_record(from.elapsed().as_nanos() as u64);
        measured.failed += if placed.is_err() { gang.len() as u64 } else { 0 };
        let placed = placed.into_iter().flat_map(|gang| gang.placed);
        placed.for_each(|placed| drop(placed.keep_assumed()));
    }
}

fn place_batches(
    scheduler: &mut Scheduler,
    pods: &Supply<'_>,
    work: &mut Work,
    measured: &mut Measured,
) -> Result<(), CommandError> {
    while let Some(batch) = pods.take(work.batch) {
        if let Some(changes) = &mut work.changes {
            changes.next()?;
        }
        let from = Instant::now();
        let placed = scheduler.schedule_batch(batch, Timestamp(0));
        // Pods for which victims were evicted are scheduled again, one by one.
        let placed: Vec<_> = (batch.iter().zip(placed))
            .map(|(pod, placed)| schedule_after_preemption(scheduler, pod, placed))
            .collect();
        let took = from.elapsed().as_nanos() as u64 / batch.len() as u64;
        measured.cycles.saturating_record_n(took, batch.len() as u64);
        measured.failed += placed.iter().filter(|placed| placed.is_err()).count() as u64;
        placed.into_iter().for_each(keep);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pod_is_taken_once() {
        let pod = |n: usize| Arc::new(portolan::model::pod(format!("p{n}")).build());
        let pods: Vec<Arc<Pod>> = (0..7).map(pod).collect();
        let supply = Supply::new(&pods);
        let taken: Vec<usize> =
            std::iter::from_fn(|| supply.take(3)).map(<[Arc<Pod>]>::len).collect();
        assert_eq!(taken, [3, 3, 1]);
        assert!(supply.take(1).is_none());
    }
}
