//! How long plugins take.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Actions, Code, EventResource, Hint, Panics, Status};

/// A step that is timed: kube-scheduler's `extension_point` label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "they are the framework's steps by name")]
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
    /// As kube-scheduler's metrics name it.
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

/// What came of an attempt to schedule a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AttemptResult {
    /// It was bound.
    Scheduled,
    /// It was rejected.
    Unschedulable,
    /// Something failed.
    Error,
}

impl AttemptResult {
    /// As kube-scheduler's metrics name it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            AttemptResult::Scheduled => "scheduled",
            AttemptResult::Unschedulable => "unschedulable",
            AttemptResult::Error => "error",
        }
    }
}

/// Receives the duration and outcome of each step; its panics are caught. See
/// [`Framework::with_recorder`](super::Framework::with_recorder). Called by any
/// thread. Whoever does not want to hear of something leaves its method as it is.
pub trait Recorder: Send + Sync {
    /// All plugins of a step took so long for a pod, with this outcome (none for
    /// success).
    fn step(&self, step: Step, outcome: Option<Code>, took: Duration);

    /// One plugin took so long. A filter or a score is told of once for each 64
    /// nodes that it was asked of together, with success as its outcome.
    fn plugin(&self, plugin: &'static str, step: Step, outcome: Option<Code>, took: Duration);

    /// A node was looked for so long, and room for the pod where there was none.
    fn algorithm(&self, _took: Duration) {}

    /// An attempt to schedule a pod ended so, this long after it began. A scheduling
    /// cycle tells of those that fail in it, a binding cycle of all others.
    fn attempt(&self, _result: AttemptResult, _took: Duration) {}

    /// A pod from a queue was bound by this attempt, counted from 1, so long after it
    /// was ready to be tried for the first time, by the clock of the queue.
    fn scheduled(&self, _attempt: u32, _took: Duration) {}

    /// A pod waited so long for its permit, by the clock of who bound it, with this
    /// outcome (none for success).
    fn permit_wait(&self, _outcome: Option<Code>, _took: Duration) {}

    /// A queue acted so long on an event.
    fn event(&self, _resource: EventResource, _action: Actions, _took: Duration) {}

    /// A plugin took so long to say whether an event helps a pod.
    fn hint(
        &self,
        _plugin: &'static str,
        (_resource, _action): (EventResource, Actions),
        _hint: Hint,
        _took: Duration,
    ) {
    }
}

/// A recorder whose panics are caught: a panicking recorder loses only its own measurements.
pub(super) struct Guarded {
    recorder: Arc<dyn Recorder>,
    panics: Arc<Panics>,
}

impl Guarded {
    pub(super) fn new(recorder: Arc<dyn Recorder>, panics: Arc<Panics>) -> Guarded {
        Guarded { recorder, panics }
    }

    /// The same with other panics.
    pub(super) fn with_panics(self, panics: Arc<Panics>) -> Guarded {
        Guarded { panics, ..self }
    }

    fn hear(&self, of: &'static str, work: impl FnOnce(&dyn Recorder)) {
        self.panics.guard_or("Recorder", of, (), || work(&*self.recorder));
    }
}

impl Recorder for Guarded {
    fn step(&self, step: Step, outcome: Option<Code>, took: Duration) {
        self.hear("step", |recorder| recorder.step(step, outcome, took));
    }

    fn plugin(&self, plugin: &'static str, step: Step, outcome: Option<Code>, took: Duration) {
        self.hear("plugin", |recorder| recorder.plugin(plugin, step, outcome, took));
    }

    fn algorithm(&self, took: Duration) {
        self.hear("algorithm", |recorder| recorder.algorithm(took));
    }

    fn attempt(&self, result: AttemptResult, took: Duration) {
        self.hear("attempt", |recorder| recorder.attempt(result, took));
    }

    fn scheduled(&self, attempt: u32, took: Duration) {
        self.hear("scheduled", |recorder| recorder.scheduled(attempt, took));
    }

    fn permit_wait(&self, outcome: Option<Code>, took: Duration) {
        self.hear("permit_wait", |recorder| recorder.permit_wait(outcome, took));
    }

    fn event(&self, resource: EventResource, action: Actions, took: Duration) {
        self.hear("event", |recorder| recorder.event(resource, action, took));
    }

    fn hint(
        &self,
        plugin: &'static str,
        event: (EventResource, Actions),
        hint: Hint,
        took: Duration,
    ) {
        self.hear("hint", |recorder| recorder.hint(plugin, event, hint, took));
    }
}

/// Calls plugins: catches their panics, and times them if somebody listens.
#[derive(Clone, Copy)]
pub(super) struct Watch<'a> {
    pub(super) recorder: Option<&'a dyn Recorder>,
    pub(super) panics: &'a Panics,
}

impl Watch<'_> {
    /// What a plugin answers; an error status if it panics.
    pub(super) fn ask<T>(
        self,
        (plugin, step): (&'static str, Step),
        outcome: impl FnOnce(&Result<T, Status>) -> Option<Code>,
        work: impl FnOnce() -> Result<T, Status>,
    ) -> Result<T, Status> {
        let guarded = || self.panics.guard(plugin, step.as_str(), work);
        self.time((plugin, step), outcome, guarded)
    }

    /// As [`Watch::ask`], but does not catch panics ([`Panics::guard_all`] around it does). A call that panics is not
    /// timed.
    #[inline]
    pub(super) fn time<R>(
        self,
        (plugin, step): (&'static str, Step),
        outcome: impl FnOnce(&R) -> Option<Code>,
        work: impl FnOnce() -> R,
    ) -> R {
        let Some(recorder) = self.recorder else { return work() };
        let start = Instant::now();
        let result = work();
        recorder.plugin(plugin, step, outcome(&result), start.elapsed());
        result
    }

    /// Tells a plugin something to which it has no answer.
    pub(super) fn tell(self, (plugin, step): (&'static str, Step), work: impl FnOnce()) {
        // What went wrong is kept.
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

/// Times what all plugins of a step do, if somebody listens.
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
