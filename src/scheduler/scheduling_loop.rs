//! Takes pods from the queue, runs their scheduling and binding cycles, and requeues those that fail (schedule_one.go
//! `ScheduleOne`, `handleSchedulingFailure`).
//!
//! A loop belongs to one thread. Any number of loops may take pods from one [`QueueFront`], each with its own scheduler
//! on the same engine. If two placements conflict, the writer accepts the first and the other pod is scheduled again.
//! Binding is a separate step, so that another loop, another thread or a later call can run it: see [`BindingLoop`].
//!
//! The pods of a group that needs more pods on nodes are popped together and are placed together or not at all. Each of
//! them is bound separately. If one of them cannot be bound, the others stay bound, as in kube-scheduler, and the
//! failed pod is retried.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Instant;

use crate::engine::Engine;
use crate::framework::{Algorithm, Failure, FitError, Framework, Nomination, PluginSet};
use crate::log::Event;
use crate::model::{EventError, Pod, Timestamp};

use super::gang::RefusedGang;
use super::placement::requeue;
use super::queue::{Place, PopError, Popped, QueueFront, Returned};
use super::{
    Begun, BindError, BindingLoop, BuildError, CycleFigures, Placement, Profiles, Scheduler,
};

/// Takes pods from a queue, places them and binds them.
///
/// ```
/// use portolan::cache::Event;
/// use portolan::model::{Timestamp, node, pod};
/// use portolan::Schedulers;
///
/// let schedulers = Schedulers::builder().build()?;
/// let engine = schedulers.engine();
/// engine.submit(Event::add_node(node("n1").cpu(1_000).memory(1 << 30).build()))?.wait()??;
/// engine.submit(Event::put_pending(pod("small").cpu(250).build()))?.wait()??;
/// engine.submit(Event::put_pending(pod("large").cpu(2_000).build()))?.wait()??;
///
/// let clock = || Timestamp::from_secs(1);
/// let mut scheduling = schedulers.scheduling_loop()?;
/// for _ in 0..2 {
///     // Pods that were not placed are back in the queue, until an event may help them.
///     let (placed, _) = scheduling.schedule_one(None, clock)?.into_parts();
///     for placement in &placed {
///         scheduling.bind(placement, clock).map_err(|(error, _)| error)?;
///     }
/// }
/// assert_eq!((scheduling.figures().placed, scheduling.figures().failed), (1, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SchedulingLoop {
    queue: Arc<QueueFront>,
    scheduler: Scheduler,
    binding: BindingLoop,
    /// When this loop sweeps the pods that have expired.
    next_sweep: Option<Timestamp>,
}

/// The outcome of one scheduling attempt.
#[derive(Debug)]
#[must_use = "placements that are dropped are withdrawn"]
#[non_exhaustive]
pub enum Attempt {
    /// The pod is assumed on a node and is ready for [`SchedulingLoop::bind`].
    Placed(Placement),
    /// The pod is back in the queue, or was removed from it.
    Failed(Unplaced),
    /// Pods of a group that were tried together.
    Gang {
        /// The pods assumed on nodes, each still to be bound. Either empty, or at least as many pods as the group
        /// lacks.
        placed: Vec<Placement>,
        /// The pods that were not placed.
        failed: Vec<Unplaced>,
    },
}

/// A pod that was not placed.
#[derive(Debug)]
pub struct Unplaced {
    /// The pod.
    pub pod: Pod,
    /// Why the pod was not placed: its own error, or [`Failure::PodGroup`] if only its group failed.
    pub error: Failure,
    /// The pod's place in the queue, or `None` if it is not retried.
    pub place: Option<Place>,
}

impl Attempt {
    /// Splits the attempt into placed and unplaced pods, for a single pod as for a gang.
    #[must_use]
    pub fn into_parts(self) -> (Vec<Placement>, Vec<Unplaced>) {
        match self {
            Attempt::Placed(placement) => (vec![placement], Vec::new()),
            Attempt::Failed(unplaced) => (Vec::new(), vec![unplaced]),
            Attempt::Gang { placed, failed } => (placed, failed),
        }
    }
}

impl SchedulingLoop {
    /// Creates a loop for pods of these profiles. The queue must be fed by the engine's log.
    ///
    /// # Errors
    ///
    /// Those of [`Scheduler::new`].
    pub fn new(
        engine: Engine,
        queue: Arc<QueueFront>,
        profiles: Profiles<Algorithm>,
    ) -> Result<SchedulingLoop, BuildError> {
        let binding = BindingLoop::new(engine.clone(), queue.clone())?;
        let scheduler = Scheduler::of_queue(engine, profiles, Some(&queue))?;
        Ok(SchedulingLoop { queue, scheduler, binding, next_sweep: None })
    }

    /// The queue.
    #[must_use]
    pub fn queue(&self) -> &Arc<QueueFront> {
        &self.queue
    }

    /// Counts the outcomes of this loop's scheduling cycles so far.
    #[must_use]
    pub fn figures(&self) -> CycleFigures {
        self.scheduler.figures()
    }

    /// Pops the next pod, waiting for one until `deadline`, and runs its scheduling cycle. If the pod belongs to a
    /// group that is scheduled together, runs one cycle for all waiting pods of the group. A pod that fails is back in
    /// the queue when this function returns, with the plugins that rejected it and the node that it was nominated to.
    ///
    /// # Errors
    ///
    /// No pod was ready before the deadline, or the queue is closed.
    pub fn schedule_one(
        &mut self,
        deadline: Option<Instant>,
        clock: impl Fn() -> Timestamp,
    ) -> Result<Attempt, PopError> {
        loop {
            let popped = self.pop(deadline, &clock)?;
            let mut tried = Tried::new(&self.queue, popped);
            trace_span!(
                _span,
                DEBUG,
                "scheduling_attempt",
                pod = %tried.popped[0].first.pod.key(),
                attempt = tried.popped[0].first.attempts,
                pods = 1 + tried.popped[0].siblings.len()
            );
            let now = clock();
            let pods = tried.start(now).pop().unwrap_or_default();
            let attempt = match &pods[..] {
                [] => continue,
                [pod] if self.scheduler.stands_alone(pod) => self.attempt(pod, now),
                pods => self.attempt_group(pods, now),
            };
            tried.end();
            return Ok(attempt);
        }
    }

    /// Like [`SchedulingLoop::schedule_one`], for the next pod and those that are ready behind it, at most `most` in
    /// all: their cycles share a commit ([`Scheduler::schedule_batch`]). Returns an attempt for each pod or group, in
    /// the order of the queue. Waits only for the first pod, so a pod that arrives alone is not delayed.
    ///
    /// # Errors
    ///
    /// Those of [`SchedulingLoop::schedule_one`].
    pub fn schedule_batch(
        &mut self,
        most: NonZeroUsize,
        deadline: Option<Instant>,
        clock: impl Fn() -> Timestamp,
    ) -> Result<Vec<Attempt>, PopError> {
        let popped = self.pop(deadline, &clock)?;
        let mut tried = Tried::new(&self.queue, popped);
        self.queue.pop_ready(most.get() - 1, &clock, &mut tried.popped);
        trace_span!(_span, DEBUG, "scheduling_attempt", pods = tried.popped.len());
        let now = clock();
        let popped = tried.start(now);
        let (mut attempts, mut alone) = (Vec::with_capacity(popped.len()), Vec::new());
        for mut pods in popped {
            match &pods[..] {
                [] => {}
                [pod] if self.scheduler.stands_alone(pod) => alone.append(&mut pods),
                pods => {
                    self.attempt_each(&mut alone, now, &mut attempts);
                    attempts.push(self.attempt_group(pods, now));
                }
            }
        }
        self.attempt_each(&mut alone, now, &mut attempts);
        tried.end();
        Ok(attempts)
    }

    /// Pops the next pod. While it waits for one, it sweeps the pods that have expired, whose resources the waiting
    /// pods may need ([`Config::assumed_ttl`](crate::cache::Config::assumed_ttl)).
    fn pop(
        &mut self,
        deadline: Option<Instant>,
        clock: impl Fn() -> Timestamp,
    ) -> Result<Popped, PopError> {
        let Some(period) = self.scheduler.engine().sweep_period() else {
            return self.queue.pop_together(deadline, clock);
        };
        loop {
            let now = clock();
            if self.next_sweep.is_none_or(|next| now >= next) {
                let nanos = i64::try_from(period.as_nanos()).unwrap_or(i64::MAX);
                self.next_sweep = Some(Timestamp(now.0.saturating_add(nanos)));
                // A closed engine expires nothing.
                let _ = self.scheduler.engine().submit(Event::Expire(now));
            }
            let wake = Instant::now().checked_add(period);
            match self.queue.pop_together(deadline.into_iter().chain(wake).min(), &clock) {
                Err(PopError::Timeout)
                    if deadline.is_none_or(|deadline| Instant::now() < deadline) => {}
                popped => return popped,
            }
        }
    }

    /// Attempts single pods in one batch, and removes them from the list.
    fn attempt_each(
        &mut self,
        pods: &mut Vec<Arc<Pod>>,
        now: Timestamp,
        attempts: &mut Vec<Attempt>,
    ) {
        let results = self.scheduler.schedule_batch(pods, now);
        for (pod, result) in pods.drain(..).zip(results) {
            attempts.push(self.ended(&pod, result, now));
        }
    }

    fn attempt(&mut self, pod: &Arc<Pod>, now: Timestamp) -> Attempt {
        let result = self.scheduler.schedule(pod, now);
        self.ended(pod, result, now)
    }

    /// Ends the attempt of a pod: it is placed, or returns to the queue.
    fn ended(&self, pod: &Arc<Pod>, result: Result<Placement, Failure>, now: Timestamp) -> Attempt {
        match result {
            Ok(placement) => {
                self.flush_group_calls([&placement], now);
                Attempt::Placed(placement)
            }
            Err(error) => {
                let place = self.return_to_queue(pod, &error, now);
                Attempt::Failed(Unplaced { pod: Pod::clone(pod), error, place })
            }
        }
    }

    fn attempt_group(&mut self, pods: &[Arc<Pod>], now: Timestamp) -> Attempt {
        let (placed, left_over) = match self.scheduler.schedule_group(pods, now) {
            Ok(gang) => (gang.placed, gang.left_over),
            Err(refused) => {
                let failed = self.return_group_to_queue(pods, &refused, now);
                return Attempt::Gang { placed: Vec::new(), failed };
            }
        };
        self.flush_group_calls(&placed, now);
        // The group does not need these pods, so each fails with its own error.
        let failed = left_over.into_iter().map(|(position, error)| {
            let pod = Pod::clone(&pods[position]);
            let place = self.return_to_queue(&pod, &error, now);
            Unplaced { pod, error, place }
        });
        let failed = failed.collect();
        Attempt::Gang { placed, failed }
    }

    /// Plugins may have asked the queue to activate the siblings of a pod that waits for a permit.
    fn flush_group_calls<'a>(
        &self,
        placed: impl IntoIterator<Item = &'a Placement>,
        now: Timestamp,
    ) {
        if placed.into_iter().any(|placement| placement.waits) {
            self.queue.with(|queue, _| queue.tick(0, now));
        }
    }

    /// Returns all pods of a group to the queue at once, each with its own error or with the group's error.
    fn return_group_to_queue(
        &self,
        pods: &[Arc<Pod>],
        refused: &RefusedGang,
        now: Timestamp,
    ) -> Vec<Unplaced> {
        let mut errors: Vec<Failure> = vec![refused.error_of_others(); pods.len()];
        for (position, error) in &refused.members {
            errors[*position] = error.clone();
        }
        let (mut over, mut returned) = (Vec::new(), Vec::new());
        for (pod, error) in pods.iter().zip(&errors) {
            if is_over(error) {
                over.push(&pod.uid);
                continue;
            }
            let (unschedulable, pending) = rejectors(self.scheduler.framework(pod), error.fit());
            returned.push(Returned { uid: pod.uid.clone(), unschedulable, pending });
        }
        let mut places = self.queue.with(|queue, version| {
            over.into_iter().for_each(|uid| queue.done(uid));
            queue.return_group(&returned, version, now).into_iter()
        });
        let failed = pods.iter().zip(errors).map(|(pod, error)| {
            let place = if is_over(&error) { None } else { places.next().flatten() };
            Unplaced { pod: Pod::clone(pod), error, place }
        });
        failed.collect()
    }

    /// Returns a pod to the queue. A pod that the engine already has, or whose scheduler has no profile here, is not
    /// retried.
    fn return_to_queue(&self, pod: &Pod, error: &Failure, now: Timestamp) -> Option<Place> {
        let uid = &pod.uid;
        if is_over(error) {
            self.queue.with(|queue, _| queue.done(uid));
            return None;
        }
        if let Some(fit) = error.fit() {
            self.record_nomination(pod, &fit.nomination, now);
        }
        let framework = self.scheduler.framework(pod);
        let (rejected, waits) = rejectors(framework, error.fit());
        requeue(&self.queue, uid, rejected, waits, now)
    }

    /// Records the pod's nomination in the queue before the pod returns. A pod that was deleted during its cycle loses
    /// its nomination, and a pod that was updated keeps its newer object.
    fn record_nomination(&self, pod: &Pod, nomination: &Nomination, now: Timestamp) {
        self.queue.tend(|| now);
        let node = match nomination {
            Nomination::Keep => None,
            Nomination::Clear => Some(None),
            Nomination::Node(node) => Some(Some(node.clone())),
        };
        let is_known = self.queue.with(|queue, _| {
            let is_known = queue.latest(&pod.uid).is_some();
            if let Some(node) = node {
                queue.record_nomination(&pod.uid, node);
            }
            is_known
        });
        if !is_known && let Some(framework) = self.scheduler.framework(pod) {
            framework.handle().nominator().remove(&pod.uid);
        }
    }

    /// Runs the binding cycle of a placed pod, and waits for its permit. The pod may have been placed by any loop of
    /// the same queue. See [`BindingLoop::bind`], for binding on other threads.
    ///
    /// # Errors
    ///
    /// Those of [`BindingLoop::bind`].
    pub fn bind(
        &mut self,
        placement: &Placement,
        clock: impl Fn() -> Timestamp,
    ) -> Result<(), (BindError, Option<Place>)> {
        self.binding.bind(placement, clock)
    }

    /// Begins to bind a placed pod. See [`BindingLoop::begin`].
    pub fn begin(&mut self, placement: Placement) -> Begun {
        let begun = self.binding.begin(placement);
        self.binding.release();
        begun
    }
}

/// Popped pods, which return to the queue if a panic, for example of the caller's clock, ends their attempt.
struct Tried {
    queue: Arc<QueueFront>,
    popped: Vec<Popped>,
    pods: Vec<Arc<Pod>>,
    now: Timestamp,
}

impl Tried {
    fn new(queue: &Arc<QueueFront>, first: Popped) -> Tried {
        let now = first.first.queued;
        Tried { queue: queue.clone(), popped: vec![first], pods: Vec::new(), now }
    }

    /// Starts the attempt. Returns the pods, those that were popped together in one list, without the terminating ones,
    /// which are removed from the queue (`skipPodSchedule`).
    fn start(&mut self, now: Timestamp) -> Vec<Vec<Arc<Pod>>> {
        self.now = now;
        let members = |popped: Popped| {
            let mut pods = Vec::with_capacity(1 + popped.siblings.len());
            for queued in popped.into_members() {
                match queued.pod.deletion_time {
                    Some(_) => self.queue.with(|queue, _| queue.done(&queued.pod.uid)),
                    None => pods.push(Arc::new(queued.pod)),
                }
            }
            pods
        };
        let popped: Vec<_> = std::mem::take(&mut self.popped).into_iter().map(members).collect();
        self.pods = popped.iter().flatten().cloned().collect();
        popped
    }

    /// The attempt has ended: its pods are placed or back in the queue.
    fn end(mut self) {
        self.pods.clear();
    }
}

impl Drop for Tried {
    fn drop(&mut self) {
        let popped = self.popped.iter().flat_map(|popped| {
            std::iter::once(&popped.first).chain(&popped.siblings).map(|queued| &queued.pod)
        });
        for pod in popped.chain(self.pods.iter().map(|pod| &**pod)) {
            // The placements of the attempt were dropped before, and their pods have returned.
            requeue(&self.queue, &pod.uid, PluginSet::EMPTY, PluginSet::EMPTY, self.now);
        }
    }
}

/// Returns whether a pod that failed with this error is not retried: the engine already has it, its scheduler has no
/// profile here, or the engine is closed.
fn is_over(error: &Failure) -> bool {
    use Failure::{Closed, NoProfile, Refused};
    matches!(error, Refused(EventError::AlreadyInCache { .. }) | NoProfile(_) | Closed)
}

/// Returns the plugins that rejected the pod and the plugins that wait for something; both sets are empty after an
/// error.
pub(super) fn rejectors(
    framework: Option<&Arc<Framework>>,
    fit: Option<&FitError>,
) -> (PluginSet, PluginSet) {
    let (Some(framework), Some(fit)) = (framework, fit) else {
        return (PluginSet::EMPTY, PluginSet::EMPTY);
    };
    let unschedulable = fit.unschedulable_plugins.iter().copied();
    let pending = fit.pending_plugins.iter().copied();
    (framework.plugin_set(unschedulable), framework.plugin_set(pending))
}

impl fmt::Debug for SchedulingLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SchedulingLoop").field("figures", &self.figures()).finish_non_exhaustive()
    }
}
