//! The binding cycle: what becomes of a pod that is assumed on a node
//! (schedule_one.go `bindingCycle`).
//!
//! It may run on any thread, and as late as one likes: the pod is counted on its
//! node meanwhile. Whatever fails on the way, the pod is not there any more
//! afterwards, and nothing is set aside for it.

use std::fmt;

use crate::engine::{Engine, Reader};
use crate::framework::{AttemptResult, Bind, Code, Cycle, FitError, PreFlight, Status};
use crate::log::{Event, TryWaitError, Unavailable};
use crate::model::Timestamp;

use super::Placement;

/// Binds pods, one after the other: one for each thread that does.
pub struct BindingCycle {
    engine: Engine,
    reader: Reader,
}

/// Why a pod was not bound.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// A plugin rejected it, or its permit was refused.
    #[error(transparent)]
    Rejected(Box<FitError>),
    /// A plugin failed.
    #[error(transparent)]
    Failed(Status),
    /// The engine is closed.
    #[error("the engine is closed: no pod can be bound any more")]
    Closed,
    /// The calling thread is within [`Engine::with_writer`].
    #[error("this thread holds the writer and would wait for itself: bind after it")]
    OwnThread,
}

impl BindError {
    /// What came of the attempt, as kube-scheduler counts it.
    #[must_use]
    pub fn result(&self) -> AttemptResult {
        match self {
            BindError::Rejected(_) => AttemptResult::Unschedulable,
            BindError::Failed(_) | BindError::Closed | BindError::OwnThread => AttemptResult::Error,
        }
    }
}

impl From<Status> for BindError {
    fn from(status: Status) -> BindError {
        match status.code.is_rejection() {
            true => BindError::Rejected(Box::new(FitError::of_node(status))),
            false => BindError::Failed(status),
        }
    }
}

impl<T> From<Unavailable<T>> for BindError {
    fn from(why: Unavailable<T>) -> BindError {
        match why {
            Unavailable::Closed(_) => BindError::Closed,
            Unavailable::OwnThread(_) => BindError::OwnThread,
        }
    }
}

impl<O> From<TryWaitError<O>> for BindError {
    fn from(why: TryWaitError<O>) -> BindError {
        match why {
            TryWaitError::OwnThread(_) => BindError::OwnThread,
            TryWaitError::Closed | TryWaitError::Pending(_) => BindError::Closed,
        }
    }
}

impl BindingCycle {
    /// On this engine.
    ///
    /// # Errors
    ///
    /// The engine broke down.
    pub fn new(engine: Engine) -> Result<BindingCycle, Unavailable> {
        let reader = engine.reader()?;
        Ok(BindingCycle { engine, reader })
    }

    /// Whether the pod may be bound by now, without waiting for it: `None` while it
    /// waits for a permit. For who has a clock of its own; [`BindingCycle::run`]
    /// waits by itself.
    #[must_use]
    pub fn is_permitted(placement: &Placement, now: Timestamp) -> Option<bool> {
        let waiting = placement.framework.handle().waiting_pods().get(&placement.pod.uid);
        let Some(waiting) = waiting.filter(|_| placement.waits) else { return Some(true) };
        waiting.outcome(now).map(|outcome| outcome.is_ok())
    }

    /// The cycle: waits for the pod's permit, makes ready what it needs, binds it,
    /// and starts its time to live.
    ///
    /// # Errors
    ///
    /// The pod is not bound, and forgotten; with [`BindError::OwnThread`] nothing was
    /// tried, and it is still assumed.
    pub fn run(
        &mut self,
        placement: &Placement,
        clock: impl Fn() -> Timestamp,
    ) -> Result<(), BindError> {
        let bound = self.try_run(placement, clock);
        if let (Some(recorder), Some(took)) =
            (placement.framework.recorder(), placement.state.elapsed())
        {
            let result = bound.as_ref().err().map_or(AttemptResult::Scheduled, BindError::result);
            recorder.attempt(result, took);
        }
        bound
    }

    fn try_run(
        &mut self,
        placement: &Placement,
        clock: impl Fn() -> Timestamp,
    ) -> Result<(), BindError> {
        if self.engine.is_within_writer() {
            return Err(BindError::OwnThread);
        }
        let Placement { pod, framework, state, .. } = placement;
        let node = placement.node();
        let permitted = match placement.waits {
            true => framework.wait_on_permit(pod, &clock),
            false => Ok(()),
        };
        let snapshot = self.reader.refresh();
        let cycle = Cycle::new(snapshot, pod, state);
        let bound = permitted
            .and_then(|()| framework.pre_bind_pre_flight(cycle, node))
            .and_then(|flight| match flight {
                PreFlight::Work => framework.pre_bind(cycle, node),
                PreFlight::Skip => Ok(()),
            })
            .and_then(|()| match framework.bind(cycle, node)? {
                Bind::Bound => Ok(()),
                Bind::Skip => {
                    let reason = "no plugin binds the pod: add one, such as DefaultBinder";
                    Err(Status { code: Code::Error, plugin: "", reasons: vec![reason.to_owned()] })
                }
            });
        if let Err(status) = bound {
            framework.unreserve(cycle, node);
            // Where the pod is gone already, or was added meanwhile, there is nothing
            // to forget.
            let _ = self.engine.submit(Event::forget(pod))?.wait()?;
            return Err(status.into());
        }
        // The same holds of the clock of a pod that is confirmed.
        let _ = self.engine.submit(Event::finish_binding(&pod.uid, clock()))?.wait()?;
        framework.post_bind(cycle, node);
        Ok(())
    }
}

impl fmt::Debug for BindingCycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BindingCycle").finish_non_exhaustive()
    }
}
