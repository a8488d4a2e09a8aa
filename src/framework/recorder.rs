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

/// What took time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Measurement {
    /// All plugins of a step together for a pod, with their outcome (`None` for success).
    Step(Step, Option<Code>),
    /// One plugin. Filters and scores that judge up to 64 nodes at once report once per call, with `None` as the
    /// outcome.
    Plugin(&'static str, Step, Option<Code>),
    /// The search for a node, including preemption if no node is feasible.
    Algorithm,
    /// A scheduling attempt. A scheduling cycle reports the attempts that fail in it, and a binding cycle reports all
    /// others.
    Attempt(AttemptResult),
    /// A pod of a queue was bound. The time since it first became ready to be tried, by the queue's clock.
    Scheduled {
        /// The number of attempts, from 1.
        attempts: u32,
        /// Whether the last attempt began because the pod had waited for an event for too long.
        was_flushed: bool,
    },
    /// The wait for a permit, by the clock of the code that binds the pod, with its outcome (`None` for success).
    PermitWait(Option<Code>),
    /// A queue's processing of an event.
    Event(EventResource, Actions),
    /// A plugin's hint on an event.
    Hint(&'static str, (EventResource, Actions), Hint),
}

/// Receives the durations and outcomes of steps. See [`Framework::with_recorder`](super::Framework::with_recorder).
///
/// Any thread may call the methods. Panics in them are caught.
pub trait Recorder: Send + Sync {
    /// Receives a duration.
    fn record(&self, what: Measurement, took: Duration);

    /// Returns the counter of a plugin's evaluations at PreFilter, Filter, PreScore or Score, or `None` to count none.
    /// At Filter and Score, each node is an evaluation. Called when a framework is built.
    fn evaluations(&self, _plugin: &'static str, _step: Step) -> Option<Evaluations> {
        None
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
}

impl Recorder for Guarded {
    fn record(&self, what: Measurement, took: Duration) {
        self.panics.guard_or("Recorder", "record", (), || self.recorder.record(what, took));
    }

    fn evaluations(&self, plugin: &'static str, step: Step) -> Option<Evaluations> {
        let found = || self.recorder.evaluations(plugin, step);
        self.panics.guard_or("Recorder", "evaluations", None, found)
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
        recorder.record(Measurement::Plugin(plugin, step, outcome(&result)), start.elapsed());
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
    recorder.record(Measurement::Step(step, outcome(&result)), start.elapsed());
    result
}
