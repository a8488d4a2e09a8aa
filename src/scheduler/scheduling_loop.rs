//! The way of every pod: from the queue through its cycles, and back where it fails
//! (schedule_one.go `ScheduleOne`, `handleSchedulingFailure`).
//!
//! One loop is one thread's. Any number of them take pods from one
//! [`QueueFront`], each with a scheduler of its own on the same engine; where their
//! placements exclude each other the writer lets the first one in, and the other
//! decides anew. Binding is a step of its own, so that it can be done by another
//! loop, on another thread, or later: see [`SchedulingLoop::bind`].
//!
//! Pods of a group that lacks pods on nodes come out of the queue together, and are
//! placed together or not at all; each is bound for itself. If one of them cannot be
//! bound, the others stay, as in kube-scheduler, and it is tried again.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use crate::engine::Engine;
use crate::framework::{Algorithm, FitError, Framework, Nomination, PluginSet};
use crate::log::Event;
use crate::model::{EventError, Pod, Timestamp, Uid};

use super::gang::Refused;
use super::queue::{Place, PopError, Popped, QueueFront, Returned};
use super::{
    BindError, BindingCycle, CycleError, CycleFigures, NewSchedulerError, Placement, Profiles,
    Scheduler,
};

/// Takes pods from a queue, and places and binds them.
pub struct SchedulingLoop {
    queue: Arc<QueueFront>,
    scheduler: Scheduler,
    binding: BindingCycle,
}

/// What became of a pod that was taken from the queue.
#[derive(Debug)]
pub enum Attempt {
    /// It is assumed on a node, and to be bound by [`SchedulingLoop::bind`].
    Placed(Placement),
    /// It is back in the queue, or gone from it.
    Failed {
        /// The pod.
        pod: Pod,
        /// Why it was not placed.
        error: CycleError,
        /// Where it is now; none where it need not be tried any more.
        place: Option<Place>,
    },
    /// Pods of a group, which were tried together.
    Gang {
        /// Those that are assumed on their nodes, each to be bound: as many as the group
        /// lacks at least, or none.
        placed: Vec<Placement>,
        /// Those that are not.
        failed: Vec<Unplaced>,
    },
}

/// A pod of a group that was not placed.
#[derive(Debug)]
pub struct Unplaced {
    /// The pod.
    pub pod: Pod,
    /// Why it was not placed: its own error, or [`CycleError::PodGroup`] where only
    /// its group failed.
    pub error: CycleError,
    /// Where it is now; none where it need not be tried any more.
    pub place: Option<Place>,
}

impl Attempt {
    /// The pods that were placed and those that were not, be it one or a gang.
    #[must_use]
    pub fn into_parts(self) -> (Vec<Placement>, Vec<Unplaced>) {
        match self {
            Attempt::Placed(placement) => (vec![placement], Vec::new()),
            Attempt::Failed { pod, error, place } => {
                (Vec::new(), vec![Unplaced { pod, error, place }])
            }
            Attempt::Gang { placed, failed } => (placed, failed),
        }
    }
}

impl SchedulingLoop {
    /// A loop over this queue, which is to be fed by the engine's log; for pods of
    /// these profiles.
    ///
    /// # Errors
    ///
    /// As of [`Scheduler::new`].
    pub fn new(
        engine: Engine,
        queue: Arc<QueueFront>,
        profiles: Profiles<Algorithm>,
    ) -> Result<SchedulingLoop, NewSchedulerError> {
        let binding = BindingCycle::new(engine.clone())?;
        Ok(SchedulingLoop { queue, scheduler: Scheduler::new(engine, profiles)?, binding })
    }

    /// The queue.
    #[must_use]
    pub fn queue(&self) -> &Arc<QueueFront> {
        &self.queue
    }

    /// What came of its cycles so far.
    #[must_use]
    pub fn figures(&self) -> CycleFigures {
        self.scheduler.figures()
    }

    /// Takes the next pod, waiting for one until `deadline`, and runs its scheduling
    /// cycle; or takes the next group, and runs that of all of its pods that wait. A pod
    /// that fails is back in the queue when this returns, with the plugins that rejected
    /// it, and with the node that it was nominated to.
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
            let popped = self.queue.pop_together(deadline, &clock)?;
            let pods = self.living(popped);
            let now = clock();
            let attempt = match &pods[..] {
                [] => continue,
                [pod] if self.scheduler.stands_alone(pod) => self.attempt(pod, now),
                pods => self.attempt_group(pods, now),
            };
            return Ok(attempt);
        }
    }

    /// Those of the pods that are to be placed: one that is terminating is not any more
    /// (`skipPodSchedule`).
    fn living(&self, popped: Popped) -> Vec<Arc<Pod>> {
        let mut pods = Vec::with_capacity(1 + popped.siblings.len());
        for queued in popped.into_members() {
            match queued.pod.deletion_time {
                Some(_) => self.queue.with(|queue, _| queue.done(&queued.pod.uid)),
                None => pods.push(Arc::new(queued.pod)),
            }
        }
        pods
    }

    fn attempt(&mut self, pod: &Arc<Pod>, now: Timestamp) -> Attempt {
        match self.scheduler.schedule(pod, now) {
            Ok(placement) => {
                self.rally_for([&placement], now);
                Attempt::Placed(placement)
            }
            Err(error) => {
                let place = self.hand_back(pod, &error, now);
                Attempt::Failed { pod: Pod::clone(pod), error, place }
            }
        }
    }

    fn attempt_group(&mut self, pods: &[Arc<Pod>], now: Timestamp) -> Attempt {
        let (placed, left_over) = match self.scheduler.schedule_group(pods, now) {
            Ok(gang) => (gang.placed, gang.left_over),
            Err(refused) => {
                let failed = self.hand_back_group(pods, &refused, now);
                return Attempt::Gang { placed: Vec::new(), failed };
            }
        };
        self.rally_for(&placed, now);
        // The group does without these: each fails for itself.
        let failed = left_over.into_iter().map(|(position, error)| {
            let pod = Pod::clone(&pods[position]);
            let place = self.hand_back(&pod, &error, now);
            Unplaced { pod, error, place }
        });
        let failed = failed.collect();
        Attempt::Gang { placed, failed }
    }

    /// Pods that wait for a permit may have asked for their siblings to be tried.
    fn rally_for<'a>(&self, placed: impl IntoIterator<Item = &'a Placement>, now: Timestamp) {
        if placed.into_iter().any(|placement| placement.waits) {
            self.queue.with(|queue, _| queue.tick(0, now));
        }
    }

    /// Gives all pods of a group back to the queue at once, each with its own error or
    /// with that of the group.
    fn hand_back_group(
        &self,
        pods: &[Arc<Pod>],
        refused: &Refused,
        now: Timestamp,
    ) -> Vec<Unplaced> {
        let mut errors: Vec<CycleError> = vec![refused.told(); pods.len()];
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

    /// Gives a pod back to the queue. One that the engine has already, or whose
    /// scheduler is none of ours, is not tried again.
    fn hand_back(&self, pod: &Pod, error: &CycleError, now: Timestamp) -> Option<Place> {
        let uid = &pod.uid;
        if is_over(error) {
            self.queue.with(|queue, _| queue.done(uid));
            return None;
        }
        if let Some(fit) = error.fit() {
            self.tell_nomination(pod, &fit.nomination, now);
        }
        let framework = self.scheduler.framework(pod);
        let (rejected, waits) = rejectors(framework, error.fit());
        self.requeue(uid, rejected, waits, now)
    }

    /// Says in the log to which node the pod is nominated, as the API server would:
    /// the queue hears of it before the pod is back. A pod that was deleted during its
    /// cycle is nominated nowhere, and one that was updated keeps its newer object.
    fn tell_nomination(&self, pod: &Pod, nomination: &Nomination, now: Timestamp) {
        self.queue.tend(|| now);
        let latest = self.queue.with(|queue, _| queue.latest(&pod.uid).cloned());
        let Some(pod) = latest else {
            if let Some(framework) = self.scheduler.framework(pod) {
                framework.handle().nominator().remove(&pod.uid);
            }
            return;
        };
        let node = match nomination {
            Nomination::Keep => return,
            Nomination::Clear => None,
            Nomination::Node(node) => Some(node.clone()),
        };
        if node != pod.nominated_node_name {
            let told = Pod { nominated_node_name: node, ..pod };
            // In an engine that is closed nobody is nominated any more.
            let ticket = self.scheduler.engine().submit(Event::put_pending(told));
            let _ = ticket.map(|ticket| ticket.wait());
        }
    }

    fn requeue(
        &self,
        uid: &Uid,
        rejected: PluginSet,
        waits: PluginSet,
        now: Timestamp,
    ) -> Option<Place> {
        // A pod that the queue does not know any more was deleted.
        self.queue.with(|queue, version| {
            queue.add_unschedulable_if_not_present(uid, rejected, waits, version, now).ok()?
        })
    }

    /// The binding cycle of a pod that was placed, by this loop or another one of the
    /// same queue. Waits for the pod's permit.
    ///
    /// # Errors
    ///
    /// The pod is not bound: it is forgotten, and where it is in the queue now.
    pub fn bind(
        &mut self,
        placement: &Placement,
        clock: impl Fn() -> Timestamp,
    ) -> Result<(), (BindError, Option<Place>)> {
        let uid = &placement.pod.uid;
        self.queue.with(|queue, _| queue.release(uid));
        match self.binding.run(placement, &clock) {
            Ok(()) => {
                self.record_scheduled(placement, &clock);
                self.queue.with(|queue, _| queue.done(uid));
                Ok(())
            }
            Err(error) => {
                let fit = match &error {
                    BindError::Rejected(fit) => Some(&**fit),
                    _ => None,
                };
                let (rejected, waits) = rejectors(Some(&placement.framework), fit);
                let place = self.requeue(uid, rejected, waits, clock());
                Err((error, place))
            }
        }
    }
}

impl SchedulingLoop {
    /// Tells how often the pod was tried, and since when, if somebody listens.
    fn record_scheduled(&self, placement: &Placement, clock: impl Fn() -> Timestamp) {
        let Some(recorder) = placement.framework.recorder() else { return };
        let known = self.queue.with(|queue, _| {
            let queued = queue.get(&placement.pod.uid)?;
            Some((queued.attempts, queued.first_attempt?))
        });
        if let Some((attempts, first)) = known {
            recorder.scheduled(attempts, clock().since(first));
        }
    }
}

/// Whether a pod with this error is not to be tried again: the engine has it already, or
/// its scheduler is none of ours.
fn is_over(error: &CycleError) -> bool {
    use CycleError::{Assume, Closed, NoProfile};
    matches!(error, Assume(EventError::AlreadyInCache { .. }) | NoProfile(_) | Closed)
}

/// Who rejected a pod, and who waits for something; nobody where it was an error.
fn rejectors(framework: Option<&Arc<Framework>>, fit: Option<&FitError>) -> (PluginSet, PluginSet) {
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
