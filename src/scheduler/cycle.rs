//! The scheduling cycle: decides on a node, assumes the pod there and reserves its resources (schedule_one.go
//! `schedulingCycle`).
//!
//! Any number of schedulers may run on one engine. Each decides on the newest version that it sees. If anything has
//! changed since that version, the writer checks the placement again ([`FilterCheck`](super::FilterCheck)), and a pod
//! whose placement no longer holds is scheduled again at once.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use crate::engine::{Engine, Reader, Registration};
use crate::framework::{
    Algorithm, Cycle, Decision, Failure, Framework, Measurement, Nomination, Permit,
};
use crate::log::{Event, Prepared, TryWaitError, Unavailable};
use crate::model::{EventError, Pod, Timestamp};
use crate::snapshot::{Cluster, PlacedChunk};
use crate::sync::mutated;

use super::placement::Home;
use super::queue::QueueFront;
use super::{BuildError, Placement, Profiles};

/// How often a pod is scheduled again before the conflict becomes its error. Normally each conflict means that another
/// pod was placed. The limit matters if the commit check runs other plugins than the cycle does, because the retries
/// would never end.
pub(super) const MAX_CONFLICTS: usize = 64;

/// Decides on a node for one pod after the other and assumes the pods there.
///
/// ```
/// use std::sync::Arc;
/// use portolan::cache::{Config, Engine, Event};
/// use portolan::model::{Timestamp, node, pod};
/// use portolan::{Algorithm, AlgorithmConfig, Framework, Profiles, Scheduler};
///
/// let engine = Engine::shared(Config::default());
/// engine.submit(Event::add_node(node("n1").cpu(1_000).memory(1 << 30).build()))?.wait()??;
///
/// let algorithm = Algorithm::new(Framework::default_profile(), AlgorithmConfig::default(), None);
/// let mut scheduler = Scheduler::new(engine, Profiles::one(algorithm))?;
/// let placement = scheduler.schedule(&Arc::new(pod("web-0").build()), Timestamp::from_secs(1))?;
/// assert_eq!(&**placement.node(), "n1");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Scheduler {
    pub(super) engine: Engine,
    registration: Registration,
    pub(super) reader: Reader,
    pub(super) profiles: Profiles<Algorithm>,
    pub(super) figures: CycleFigures,
    pub(super) home: Arc<Home>,
}

/// Counts the outcomes of one scheduler's cycles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CycleFigures {
    /// Pods that were placed.
    pub placed: u64,
    /// Pods that were not placed.
    pub failed: u64,
    /// Decisions that no longer held at commit, after which the pod was scheduled again.
    pub conflicts: u64,
}

impl<T> From<Unavailable<T>> for Failure {
    fn from(why: Unavailable<T>) -> Failure {
        match why {
            Unavailable::Closed(_) => Failure::Closed,
            Unavailable::OwnThread(_) => Failure::OwnThread,
        }
    }
}

impl<O> From<TryWaitError<O>> for Failure {
    fn from(why: TryWaitError<O>) -> Failure {
        match why {
            TryWaitError::OwnThread(_) => Failure::OwnThread,
            // Without a deadline, an answer is only missing if the engine is closed.
            TryWaitError::Closed | TryWaitError::Pending(_) => Failure::Closed,
        }
    }
}

impl Scheduler {
    /// Creates a scheduler for these profiles on an engine.
    ///
    /// # Errors
    ///
    /// The engine is unavailable, or its commit policy is `Unchecked` and it already has a scheduler.
    pub fn new(engine: Engine, profiles: Profiles<Algorithm>) -> Result<Scheduler, BuildError> {
        Scheduler::of_queue(engine, profiles, None)
    }

    /// Creates a scheduler of pods that a queue has given out.
    pub(super) fn of_queue(
        engine: Engine,
        profiles: Profiles<Algorithm>,
        queue: Option<&Arc<QueueFront>>,
    ) -> Result<Scheduler, BuildError> {
        let (reader, figures) = (engine.reader()?, CycleFigures::default());
        let home = Home::new(&engine, queue)?;
        let registration = engine.register_scheduler().ok_or(BuildError::Unchecked)?;
        Ok(Scheduler { engine, registration, reader, profiles, figures, home })
    }

    /// The engine.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns the scheduler's own reader.
    #[must_use]
    pub fn reader(&mut self) -> &mut Reader {
        &mut self.reader
    }

    /// Returns the framework of the pod's profile, or `None` if no profile serves the pod.
    #[must_use]
    pub fn framework(&self, pod: &Pod) -> Option<&Arc<Framework>> {
        self.profiles.get(pod).map(Algorithm::framework)
    }

    /// Returns the decision that the pod's next cycle would make, found node by node: see
    /// [`Algorithm::decide_by_nodes`]. `None` if no profile serves the pod.
    #[doc(hidden)]
    #[must_use]
    pub fn decide_by_nodes(&mut self, cycle: Cycle<'_>) -> Option<Result<Decision, Failure>> {
        self.take_section();
        self.profiles.get(cycle.pod).map(|scheduler| scheduler.decide_by_nodes(cycle))
    }

    /// Lets the searches of this scheduler begin in another section of the nodes than those of the engine's other
    /// schedulers. Called before each cycle, batch and gang, because schedulers are created and dropped.
    pub(super) fn take_section(&mut self) {
        let (index, of) = self.registration.position();
        self.profiles.iter_mut().for_each(|algorithm| algorithm.set_section(index, of));
    }

    /// Counts the outcomes of the cycles so far.
    #[must_use]
    pub fn figures(&self) -> CycleFigures {
        self.figures
    }

    /// Runs one scheduling cycle on the newest version: PreFilter to Score, assume, Reserve and Permit. If no node is
    /// feasible, runs PostFilter and records the resulting nomination. If a step after assume fails, the assumption and
    /// the reservations are undone.
    ///
    /// # Errors
    ///
    /// The pod is not placed, and only its nomination may remain.
    pub fn schedule(&mut self, pod: &Arc<Pod>, now: Timestamp) -> Result<Placement, Failure> {
        let started = self.start_of_attempt(pod);
        trace_span!(span, DEBUG, "scheduling_cycle", pod = %pod.key(), uid = %pod.uid, node = tracing::field::Empty, refusal = tracing::field::Empty);
        let placed = self.try_schedule(pod, now);
        match &placed {
            Ok(_placement) => {
                self.figures.placed += 1;
                trace_record!(span, node = _placement.node());
                trace_event!(DEBUG, "pod assumed");
            }
            Err(error) => {
                trace_record!(span, refusal = error);
                trace_event!(DEBUG, "pod refused");
                self.count_failure(pod, error, started);
            }
        }
        placed
    }

    /// Returns the time if the pod's profile has metrics.
    pub(super) fn start_of_attempt(&self, pod: &Pod) -> Option<Instant> {
        let is_recorded =
            self.framework(pod).is_some_and(|framework| framework.recorder().is_some());
        is_recorded.then(Instant::now)
    }

    /// Counts a failed attempt, and reports it to the metrics of the pod's profile.
    pub(super) fn count_failure(&mut self, pod: &Pod, error: &Failure, started: Option<Instant>) {
        self.figures.failed += 1;
        let recorder = self.framework(pod).and_then(|framework| framework.recorder());
        if let (Some(recorder), Some(started)) = (recorder, started) {
            recorder.record(Measurement::Attempt(error.result()), started.elapsed());
        }
    }

    fn try_schedule(&mut self, pod: &Arc<Pod>, now: Timestamp) -> Result<Placement, Failure> {
        // This check comes before anything is submitted. Otherwise the pod would be assumed and the caller could not
        // learn of it.
        if self.engine.is_within_writer() {
            return Err(Failure::OwnThread);
        }
        self.take_section();
        let Some(scheduler) = self.profiles.get_mut(pod) else {
            let name = pod.template.scheduler_name.as_deref().unwrap_or_default();
            return Err(Failure::NoProfile(name.to_owned()));
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
                recorder.record(Measurement::Algorithm, took);
            }
            let decision = match decided {
                Ok(decision) => decision,
                Err(error) => {
                    if let Failure::Fit(error) = &error {
                        nominate(scheduler.framework(), pod, &error.nomination);
                    }
                    return Err(error);
                }
            };
            // The generation of the version that the decision used: a generation that is read later may cover events
            // that the decision did not see.
            let decided_on = match mutated!("cycle-numbers-late") {
                true => self.engine.figures()?.published,
                false => snapshot.generation(),
            };
            let assumed = Arc::new(decision.place(Pod::clone(pod)));
            let placed = PlacedChunk::new(snapshot, (&assumed, pod), decision.slot);
            let prepared = placed.map(Prepared::new).unwrap_or_default();
            let event = Event::AssumePod {
                pod: assumed.clone(),
                decided_on: Some(decided_on),
                // This thread drops what the writer leaves.
                prepared: prepared.clone(),
            };
            match self.engine.submit(event)?.wait()? {
                Ok(_) => {}
                Err(EventError::Conflict { .. }) if conflicts < MAX_CONFLICTS => {
                    conflicts += 1;
                    self.figures.conflicts += 1;
                    trace_event!(DEBUG, node = %decision.node, %decided_on, conflicts, "conflict");
                    continue;
                }
                Err(error) => return Err(Failure::Refused(error)),
            }
            let framework = scheduler.framework().clone();
            let home = self.home.clone();
            let placed = Placement::assumed(assumed, (decision, state), framework, home, now);
            return self.reserve(placed, pod, snapshot, now);
        }
    }

    /// Runs Reserve and Permit for a pod that was just assumed. If one of them rejects it, the assumption is undone.
    pub(super) fn reserve(
        &self,
        mut placed: Placement,
        pod: &Pod,
        version: &Cluster,
        now: Timestamp,
    ) -> Result<Placement, Failure> {
        let Placement { decision, state, framework, .. } = &placed;
        framework.handle().nominator().remove(&pod.uid);
        let cycle = Cycle::new(version, pod, state);
        let permitted = framework
            .reserve(cycle, &decision.node)
            .and_then(|()| framework.permit(cycle, &decision.node, now));
        match permitted {
            Ok(Permit::Allow) => {}
            Ok(_) => {
                notify_waiting(framework, Cycle::new(&self.reader.pin(), pod, state));
                placed.waits = true;
            }
            Err(status) => {
                placed.undo(version, Some(&self.engine), now)?;
                return Err(Failure::rejected(status));
            }
        }
        Ok(placed)
    }
}

/// Notifies plugins that a pod waits for a permit, and gives them the newest version. A thread that deleted the pod
/// after it was assumed may have searched the waiting pods before this pod was added to them. In that case the pod is
/// missing from the version, and it is rejected here.
pub(super) fn notify_waiting(framework: &Framework, cycle: Cycle<'_>) {
    framework.waits(cycle);
    if cycle.cluster.pod(&cycle.pod.uid).is_none() {
        framework.handle().waiting_pods().reject(&cycle.pod.uid);
    }
}

/// Updates the nominator with the pod's new nomination.
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
