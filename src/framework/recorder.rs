//! Recording how long plugins and scheduling steps take.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Actions, Code, CycleState, Evaluations, EventResource, Hint, Panics, Status};

/// A timed step: kube-scheduler's `extension_point` label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the variants are named after the framework's steps")]
#[non_exhaustive]
pub enum Step {
    PreFilter,
    PreFilterExtensionAddPod,
    PreFilterExtensionRemovePod,
    Filter,
    PostFilter,
    PreScore,
    Score,
    ScoreExtensionNormalize,
    Reserve,
    Unreserve,
    Permit,
    PreBindPreFlight,
    PreBind,
    Bind,
    PostBind,
}

impl Step {
    /// Returns the step's name in kube-scheduler's metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Step::PreFilter => "PreFilter",
            Step::PreFilterExtensionAddPod => "PreFilterExtensionAddPod",
            Step::PreFilterExtensionRemovePod => "PreFilterExtensionRemovePod",
            Step::Filter => "Filter",
            Step::PostFilter => "PostFilter",
            Step::PreScore => "PreScore",
            Step::Score => "Score",
            Step::ScoreExtensionNormalize => "ScoreExtensionNormalize",
            Step::Reserve => "Reserve",
            Step::Unreserve => "Unreserve",
            Step::Permit => "Permit",
            Step::PreBindPreFlight => "PreBindPreFlight",
            Step::PreBind => "PreBind",
            Step::Bind => "Bind",
            Step::PostBind => "PostBind",
        }
    }
}

/// The result of a scheduling attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum AttemptResult {
    /// The pod was bound.
    Scheduled,
    /// The pod was rejected.
    Unschedulable,
    /// The attempt ended with an error.
    Error,
}

impl AttemptResult {
    /// Returns the result's name in kube-scheduler's metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            AttemptResult::Scheduled => "scheduled",
            AttemptResult::Unschedulable => "unschedulable",
            AttemptResult::Error => "error",
        }
    }
}

/// Receives the durations and outcomes of steps. See [`Framework::with_recorder`](super::Framework::with_recorder).
///
/// Any thread may call the methods. Panics in them are caught. Measurements that a recorder does not need are ignored
/// by the default methods.
pub trait Recorder: Send + Sync {
    /// Receives the duration of all plugins of a step together for a pod, and their outcome (`None` for success).
    fn step(&self, step: Step, outcome: Option<Code>, took: Duration);

    /// Receives the duration of one plugin. Filters and scores that judge up to 64 nodes at once report once per call,
    /// with `None` as the outcome.
    fn plugin(&self, plugin: &'static str, step: Step, outcome: Option<Code>, took: Duration);

    /// Returns the counter of a plugin's evaluations at PreFilter, Filter, PreScore or Score, or `None` to count none.
    /// At Filter and Score, each node is an evaluation. Called when a framework is built.
    fn evaluations(&self, _plugin: &'static str, _step: Step) -> Option<Evaluations> {
        None
    }

    /// Receives the duration of the search for a node, including preemption if no node is feasible.
    fn algorithm(&self, _took: Duration) {}

    /// Receives the result of a scheduling attempt, and the time since it began. A scheduling cycle reports the
    /// attempts that fail in it, and a binding cycle reports all others.
    fn attempt(&self, _result: AttemptResult, _took: Duration) {}

    /// Receives the number of attempts, from 1, after which a pod of a queue was bound, and the time since it first
    /// became ready to be tried, by the queue's clock.
    fn scheduled(&self, _attempt: u32, _took: Duration) {}

    /// Is called if a pod was bound whose last attempt began because it had waited for an event for too long.
    fn scheduled_after_flush(&self) {}

    /// Receives how long a pod waited for its permit, by the clock of the code that binds it, and the outcome (`None`
    /// for success).
    fn permit_wait(&self, _outcome: Option<Code>, _took: Duration) {}

    /// Receives how long a queue took to process an event.
    fn event(&self, _resource: EventResource, _action: Actions, _took: Duration) {}

    /// Receives how long a plugin took to return its hint on an event.
    fn hint(
        &self,
        _plugin: &'static str,
        (_resource, _action): (EventResource, Actions),
        _hint: Hint,
        _took: Duration,
    ) {
    }
}

/// A recorder whose panics are caught. A panic in a recorder loses only its own measurement.
pub(super) struct Guarded {
    recorder: Arc<dyn Recorder>,
    panics: Arc<Panics>,
}

impl Guarded {
    pub(super) fn new(recorder: Arc<dyn Recorder>, panics: Arc<Panics>) -> Guarded {
        Guarded { recorder, panics }
    }

    /// Returns the recorder with another record of panics.
    pub(super) fn with_panics(self, panics: Arc<Panics>) -> Guarded {
        Guarded { panics, ..self }
    }

    fn call(&self, method: &'static str, work: impl FnOnce(&dyn Recorder)) {
        self.panics.guard_or("Recorder", method, (), || work(&*self.recorder));
    }
}

impl Recorder for Guarded {
    fn step(&self, step: Step, outcome: Option<Code>, took: Duration) {
        self.call("step", |recorder| recorder.step(step, outcome, took));
    }

    fn plugin(&self, plugin: &'static str, step: Step, outcome: Option<Code>, took: Duration) {
        self.call("plugin", |recorder| recorder.plugin(plugin, step, outcome, took));
    }

    fn evaluations(&self, plugin: &'static str, step: Step) -> Option<Evaluations> {
        let found = || self.recorder.evaluations(plugin, step);
        self.panics.guard_or("Recorder", "evaluations", None, found)
    }

    fn algorithm(&self, took: Duration) {
        self.call("algorithm", |recorder| recorder.algorithm(took));
    }

    fn attempt(&self, result: AttemptResult, took: Duration) {
        self.call("attempt", |recorder| recorder.attempt(result, took));
    }

    fn scheduled(&self, attempt: u32, took: Duration) {
        self.call("scheduled", |recorder| recorder.scheduled(attempt, took));
    }

    fn scheduled_after_flush(&self) {
        self.call("scheduled_after_flush", |recorder| recorder.scheduled_after_flush());
    }

    fn permit_wait(&self, outcome: Option<Code>, took: Duration) {
        self.call("permit_wait", |recorder| recorder.permit_wait(outcome, took));
    }

    fn event(&self, resource: EventResource, action: Actions, took: Duration) {
        self.call("event", |recorder| recorder.event(resource, action, took));
    }

    fn hint(
        &self,
        plugin: &'static str,
        event: (EventResource, Actions),
        hint: Hint,
        took: Duration,
    ) {
        self.call("hint", |recorder| recorder.hint(plugin, event, hint, took));
    }
}

/// Calls plugins: catches their panics, and times the calls if there is a recorder.
#[derive(Clone, Copy)]
pub(super) struct Watch<'a> {
    pub(super) recorder: Option<&'a dyn Recorder>,
    /// Decides at each call whether it is recorded.
    pub(super) state: &'a CycleState,
    pub(super) panics: &'a Panics,
}

impl Watch<'_> {
    /// Calls a plugin and returns its result, or an error status if it panics.
    pub(super) fn ask<T>(
        self,
        (plugin, step): (&'static str, Step),
        outcome: impl FnOnce(&Result<T, Status>) -> Option<Code>,
        work: impl FnOnce() -> Result<T, Status>,
    ) -> Result<T, Status> {
        let guarded = || self.panics.guard(plugin, step.as_str(), work);
        self.time((plugin, step), outcome, guarded)
    }

    /// Calls a plugin as [`Watch::ask`] does, but does not catch panics: the caller does, with [`Panics::guard_all`]. A
    /// call that panics is not timed.
    #[inline]
    pub(super) fn time<R>(
        self,
        (plugin, step): (&'static str, Step),
        outcome: impl FnOnce(&R) -> Option<Code>,
        work: impl FnOnce() -> R,
    ) -> R {
        let Some(recorder) = self.recorder.filter(|_| self.times_plugins()) else { return work() };
        let start = Instant::now();
        let result = work();
        recorder.plugin(plugin, step, outcome(&result), start.elapsed());
        result
    }

    /// Returns whether the durations of single plugins are recorded for this pod.
    pub(super) fn times_plugins(self) -> bool {
        self.recorder.is_some() && self.state.records_plugin_metrics()
    }

    /// Calls a plugin that returns nothing.
    pub(super) fn notify(self, (plugin, step): (&'static str, Step), work: impl FnOnce()) {
        // The panic, if any, has been recorded.
        let _ = self.ask(
            (plugin, step),
            |_| None,
            || {
                work();
                Ok(())
            },
        );
    }
}

/// Times all plugins of a step together if there is a recorder.
pub(super) fn timed_step<R>(
    recorder: Option<&dyn Recorder>,
    step: Step,
    outcome: impl FnOnce(&R) -> Option<Code>,
    work: impl FnOnce() -> R,
) -> R {
    let Some(recorder) = recorder else { return work() };
    let start = Instant::now();
    let result = work();
    recorder.step(step, outcome(&result), start.elapsed());
    result
}
