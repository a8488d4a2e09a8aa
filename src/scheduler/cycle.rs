//! The scheduling cycle: a node is decided on, the pod assumed there, and what it
//! needs set aside (schedule_one.go `schedulingCycle`).
//!
//! Any number of schedulers may run on one engine. Each decides on the newest
//! version it sees; the writer checks a placement again if anything has happened
//! since ([`FilterCheck`](super::FilterCheck)), and where it does not hold any more
//! the pod is decided on anew, at once.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use crate::engine::{Engine, Reader, Registration};
use crate::framework::{
    Algorithm, AttemptResult, Cycle, CycleState, Decision, FitError, Framework, Nomination, Permit,
    ScheduleError, Status,
};
use crate::log::{Event, TryWaitError, Unavailable};
use crate::model::{EventError, Name, Pod, Timestamp};
use crate::sync::mutated;

use super::Profiles;

/// So often a pod is decided on again before its conflict is its error. Each conflict is
/// somebody else's success, unless the commit check asks other plugins than the cycle
/// does: then it would never end.
pub(super) const MOST_CONFLICTS: usize = 64;

/// Decides on pods and assumes them, one after the other.
pub struct Scheduler {
    engine: Engine,
    _registration: Registration,
    pub(super) reader: Reader,
    pub(super) profiles: Profiles<Algorithm>,
    pub(super) figures: CycleFigures,
}

/// What came of the cycles of one scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CycleFigures {
    /// Pods that were placed.
    pub placed: u64,
    /// Pods that were not.
    pub failed: u64,
    /// Decisions that did not hold when they were to be committed: the pod was
    /// decided on again.
    pub conflicts: u64,
}

/// A pod that is assumed on a node, with what it needs set aside: what a binding
/// cycle begins with.
pub struct Placement {
    /// The pod, with its node.
    pub pod: Arc<Pod>,
    /// The decision.
    pub decision: Decision,
    /// What plugins keep for it.
    pub state: CycleState,
    /// Whether it has to wait for a permit.
    pub waits: bool,
    pub(super) framework: Arc<Framework>,
}

impl Placement {
    /// The node.
    #[must_use]
    pub fn node(&self) -> &Name {
        &self.decision.node
    }
}

impl fmt::Debug for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Placement")
            .field("pod", &self.pod.uid)
            .field("node", self.node())
            .field("waits", &self.waits)
            .finish_non_exhaustive()
    }
}

/// Why there is no new scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NewSchedulerError {
    /// The engine broke down.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The engine has another scheduler, and its commit policy is `Unchecked`: the two would place pods in the same
    /// room.
    #[error(
        "the engine has another scheduler and checks no placements: set `Config::commit_check` to \
         `Room` or to a check"
    )]
    Unchecked,
}

/// Why a pod was not placed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CycleError {
    /// No node was decided on, or it did not do in the end.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// The engine refused the pod on its node, or again and again on one node after
    /// the other.
    #[error(transparent)]
    Assume(EventError),
    /// The pod names a scheduler that has no profile here.
    #[error("no profile is for scheduler {0:?}: add one, or leave the pod to that scheduler")]
    NoProfile(String),
    /// The pod would do, but its pod group was not placed; with what the group waits for.
    #[error("pod group is unschedulable, {0}")]
    PodGroup(String),
    /// The engine is closed.
    #[error("the engine is closed: no pod can be placed any more")]
    Closed,
    /// The calling thread is within [`Engine::with_writer`].
    #[error("this thread holds the writer and would wait for itself: schedule after it")]
    OwnThread,
}

impl CycleError {
    pub(super) fn rejected(status: Status) -> CycleError {
        match status.code.is_rejection() {
            true => ScheduleError::Fit(Box::new(FitError::of_node(status))).into(),
            false => ScheduleError::Plugin(status).into(),
        }
    }

    /// What came of the attempt, as kube-scheduler counts it.
    #[must_use]
    pub fn result(&self) -> AttemptResult {
        match self {
            CycleError::Schedule(ScheduleError::Fit(_) | ScheduleError::NoNodes) => {
                AttemptResult::Unschedulable
            }
            _ => AttemptResult::Error,
        }
    }

    /// Why the pod fits nowhere, if that is it.
    #[must_use]
    pub fn fit(&self) -> Option<&FitError> {
        match self {
            CycleError::Schedule(ScheduleError::Fit(error)) => Some(error),
            _ => None,
        }
    }
}

impl<T> From<Unavailable<T>> for CycleError {
    fn from(why: Unavailable<T>) -> CycleError {
        match why {
            Unavailable::Closed(_) => CycleError::Closed,
            Unavailable::OwnThread(_) => CycleError::OwnThread,
        }
    }
}

impl<O> From<TryWaitError<O>> for CycleError {
    fn from(why: TryWaitError<O>) -> CycleError {
        match why {
            TryWaitError::OwnThread(_) => CycleError::OwnThread,
            TryWaitError::Closed | TryWaitError::Pending(_) => CycleError::Closed,
        }
    }
}

impl Scheduler {
    /// A scheduler on this engine, with its profiles.
    ///
    /// # Errors
    ///
    /// The engine broke down; or it checks nothing and another scheduler exists.
    pub fn new(
        engine: Engine,
        profiles: Profiles<Algorithm>,
    ) -> Result<Scheduler, NewSchedulerError> {
        let (reader, figures) = (engine.reader()?, CycleFigures::default());
        let _registration = engine.register_scheduler().ok_or(NewSchedulerError::Unchecked)?;
        Ok(Scheduler { engine, _registration, reader, profiles, figures })
    }

    /// The engine.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// A reader of the engine.
    #[must_use]
    pub fn reader(&mut self) -> &mut Reader {
        &mut self.reader
    }

    /// The framework of the pod's profile.
    #[must_use]
    pub fn framework(&self, pod: &Pod) -> Option<&Arc<Framework>> {
        self.profiles.get(pod).map(Algorithm::framework)
    }

    /// What the next cycle of the pod would decide, found node by node: see
    /// [`Algorithm::decide_by_nodes`]. None without a profile for the pod.
    #[must_use]
    pub fn decide_by_nodes(&self, cycle: Cycle<'_>) -> Option<Result<Decision, ScheduleError>> {
        self.profiles.get(cycle.pod).map(|scheduler| scheduler.decide_by_nodes(cycle))
    }

    /// What came of the cycles so far.
    #[must_use]
    pub fn figures(&self) -> CycleFigures {
        self.figures
    }

    /// One cycle, on the newest version: PreFilter to Score, assume, Reserve,
    /// Permit; and PostFilter where no node will do, with the nomination that comes
    /// of it noted. What fails after the pod was assumed is undone.
    ///
    /// # Errors
    ///
    /// The pod is not placed, and nothing is left of it but maybe a nomination.
    pub fn schedule(&mut self, pod: &Arc<Pod>, now: Timestamp) -> Result<Placement, CycleError> {
        let is_recorded = self.framework(pod).is_some_and(|of| of.recorder().is_some());
        let started = is_recorded.then(Instant::now);
        let placed = self.try_schedule(pod, now);
        match &placed {
            Ok(_) => self.figures.placed += 1,
            Err(_) => self.figures.failed += 1,
        }
        if let (Err(error), Some(started)) = (&placed, started)
            && let Some(recorder) = self.framework(pod).and_then(|of| of.recorder())
        {
            recorder.attempt(error.result(), started.elapsed());
        }
        placed
    }

    fn try_schedule(&mut self, pod: &Arc<Pod>, now: Timestamp) -> Result<Placement, CycleError> {
        // Before anything is submitted: the pod would be assumed, and nobody here to know it.
        if self.engine.is_within_writer() {
            return Err(CycleError::OwnThread);
        }
        let Some(scheduler) = self.profiles.get_mut(pod) else {
            let name = pod.template.scheduler_name.as_deref().unwrap_or_default();
            return Err(CycleError::NoProfile(name.to_owned()));
        };
        let mut conflicts = 0;
        loop {
            let snapshot = &*self.reader.pin();
            let state = scheduler.state();
            let cycle = Cycle::new(snapshot, pod, &state);
            let decided = scheduler.decide(cycle);
            if let (Some(recorder), Some(took)) =
                (scheduler.framework().recorder(), state.elapsed())
            {
                recorder.algorithm(took);
            }
            let decision = match decided {
                Ok(decision) => decision,
                Err(error) => {
                    if let ScheduleError::Fit(error) = &error {
                        nominate(scheduler.framework(), pod, &error.nomination);
                    }
                    return Err(error.into());
                }
            };
            // That of the very version that was decided on: one that is read afterwards
            // may contain what the decision did not see.
            let decided_on = match mutated!("cycle-numbers-late") {
                true => self.engine.figures()?.published,
                false => snapshot.generation(),
            };
            let assumed = Arc::new(decision.place(Pod::clone(pod)));
            let event = Event::AssumePod { pod: assumed.clone(), decided_on: Some(decided_on) };
            match self.engine.submit(event)?.wait()? {
                Ok(_) => {}
                Err(EventError::Conflict { .. }) if conflicts < MOST_CONFLICTS => {
                    conflicts += 1;
                    self.figures.conflicts += 1;
                    continue;
                }
                Err(error) => return Err(CycleError::Assume(error)),
            }
            let framework = scheduler.framework();
            framework.handle().nominator().remove(&pod.uid);
            let permitted = framework
                .reserve(cycle, &decision.node)
                .and_then(|()| framework.permit(cycle, &decision.node, now));
            let waits = match permitted {
                Ok(permit) => permit != Permit::Allow,
                Err(status) => {
                    framework.unreserve(cycle, &decision.node);
                    self.engine
                        .submit(Event::forget(&assumed))?
                        .wait()?
                        .map_err(CycleError::Assume)?;
                    return Err(CycleError::rejected(status));
                }
            };
            let framework = framework.clone();
            if waits {
                tell_waits(&framework, Cycle::new(&self.reader.pin(), pod, &state));
            }
            return Ok(Placement { pod: assumed, decision, state, waits, framework });
        }
    }
}

/// Tells plugins that a pod waits, with the newest version. Who deleted the pod after it
/// was assumed may have looked for it among the waiting pods before it was one of them:
/// then it is not in the version any more, and is rejected here.
pub(super) fn tell_waits(framework: &Framework, cycle: Cycle<'_>) {
    framework.waits(cycle);
    if cycle.cluster.pod(&cycle.pod.uid).is_none() {
        framework.handle().waiting_pods().reject(&cycle.pod.uid);
    }
}

/// Notes to which node the pod is nominated from now on.
fn nominate(framework: &Framework, pod: &Pod, nomination: &Nomination) {
    let nominator = framework.handle().nominator();
    match nomination {
        Nomination::Keep => {}
        Nomination::Clear => drop(nominator.remove(&pod.uid)),
        Nomination::Node(node) => {
            let pod = Pod { nominated_node_name: Some(node.clone()), ..pod.clone() };
            nominator.add(pod, node.clone());
        }
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler").field("figures", &self.figures).finish_non_exhaustive()
    }
}
