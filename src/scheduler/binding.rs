//! The binding cycle: takes an assumed pod from its permit to its node (schedule_one.go `bindingCycle`).
//!
//! The cycle may run on any thread and at any later time; the pod is counted on its node meanwhile. If any step fails,
//! the pod is forgotten and its reservations are released.

use std::fmt;

use crate::engine::{Engine, Reader};
use crate::framework::{AttemptResult, Bind, Cycle, FitError, PreFlight, Status};
use crate::log::{Event, TryWaitError, Unavailable};
use crate::model::Timestamp;

use super::Placement;

/// Binds one pod after the other. Each binding thread needs its own.
pub struct BindingCycle {
    engine: Engine,
    reader: Reader,
}

/// Why a pod was not bound.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// A plugin rejected the pod, or its permit was denied.
    #[error(transparent)]
    Rejected(Box<FitError>),
    /// A plugin failed.
    #[error(transparent)]
    Failed(Status),
    /// The pod has changed since the decision, or it no longer exists ([`Bind::Conflict`]).
    #[error("{0}")]
    Conflict(String),
    /// It is not known whether the pod is bound ([`Bind::Unknown`]). The pod is still assumed.
    #[error("{0}")]
    Unknown(String),
    /// The engine is closed.
    #[error("the engine is closed: no more pods can be bound")]
    Closed,
    /// The calling thread is inside [`Engine::with_writer`].
    #[error("this thread holds the writer and would wait for itself: bind after releasing it")]
    OwnThread,
}

impl BindError {
    /// Returns the attempt's result as kube-scheduler's metrics label it.
    #[must_use]
    pub fn result(&self) -> AttemptResult {
        match self {
            BindError::Rejected(_) => AttemptResult::Unschedulable,
            BindError::Failed(_)
            | BindError::Conflict(_)
            | BindError::Unknown(_)
            | BindError::Closed
            | BindError::OwnThread => AttemptResult::Error,
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
    /// Creates a binding cycle on an engine.
    ///
    /// # Errors
    ///
    /// The engine is unavailable.
    pub fn new(engine: Engine) -> Result<BindingCycle, Unavailable> {
        let reader = engine.reader()?;
        Ok(BindingCycle { engine, reader })
    }

    /// Returns whether the pod may be bound, or `None` while it waits for a permit. Never blocks; for callers that
    /// drive their own clock. [`BindingCycle::run`] blocks instead.
    #[must_use]
    pub fn is_permitted(placement: &Placement, now: Timestamp) -> Option<bool> {
        let waiting = placement.framework.handle().waiting_pods().get(&placement.pod.uid);
        let Some(waiting) = waiting.filter(|_| placement.waits) else { return Some(true) };
        waiting.outcome(now).map(|outcome| outcome.is_ok())
    }

    /// Runs the cycle: waits for the pod's permit, runs PreBind and Bind, and starts the time to live of the
    /// assumption. If there is anything to wait for, the node is announced first
    /// ([`Binder::nominate`](crate::framework::Binder::nominate)). If the engine closes after Bind, the pod is bound
    /// without a time to live.
    ///
    /// # Errors
    ///
    /// The pod is not bound, and it is forgotten. After [`BindError::Unknown`] it is still assumed, and so it is after
    /// [`BindError::OwnThread`], when nothing was tried.
    pub fn run(
        &mut self,
        placement: &Placement,
        clock: impl Fn() -> Timestamp,
    ) -> Result<(), BindError> {
        trace_span!(
            span,
            DEBUG,
            "binding_cycle",
            pod = %placement.pod.key(),
            uid = %placement.pod.uid,
            node = %placement.node(),
            refusal = tracing::field::Empty
        );
        let bound = self.try_run(placement, clock);
        match &bound {
            Ok(()) => trace_event!(DEBUG, "pod bound"),
            Err(_error) => {
                trace_record!(span, refusal = _error);
                trace_event!(DEBUG, "pod not bound");
            }
        }
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
        let flight = self.announce(placement);
        let permitted = flight.and_then(|flight| {
            if placement.waits {
                framework.wait_on_permit(pod, &clock)?;
            }
            Ok(flight)
        });
        let cycle = Cycle::new(self.reader.refresh(), pod, state);
        let bound = permitted
            .and_then(|flight| match flight {
                PreFlight::Work => framework.pre_bind(cycle, node),
                PreFlight::Skip => Ok(()),
            })
            .and_then(|()| framework.bind(cycle, node));
        let error = match bound {
            Ok(Bind::Bound) => None,
            Ok(Bind::Skip) => {
                let reason = "no plugin binds the pod: add one, such as DefaultBinder";
                Some(BindError::Failed(Status::error("", reason)))
            }
            Ok(Bind::Conflict(why)) => Some(BindError::Conflict(why)),
            // Whoever frees the resources of a pod that is bound after all overcommits its node.
            Ok(Bind::Unknown(why)) => return Err(BindError::Unknown(why)),
            Err(status) => Some(status.into()),
        };
        if let Some(error) = error {
            framework.unreserve(cycle, node);
            // Forgetting fails if the pod was deleted or confirmed meanwhile; then there is nothing to forget.
            let _ = self.engine.submit(Event::forget(pod))?.wait()?;
            return Err(error);
        }
        // The pod is bound, whatever the outcome: a confirmed pod has no time to live, and a closed engine expires none.
        let finished = Event::finish_binding(&pod.uid, clock());
        let _ = self.engine.submit(finished).map(|ticket| ticket.wait());
        framework.post_bind(cycle, node);
        Ok(())
    }

    /// Gives a placement up before its cycle: releases the pod's reservations and forgets the pod.
    ///
    /// # Errors
    ///
    /// The engine is unavailable.
    pub fn withdraw(
        &mut self,
        placement: &Placement,
        clock: impl Fn() -> Timestamp,
    ) -> Result<(), BindError> {
        if self.engine.is_within_writer() {
            return Err(BindError::OwnThread);
        }
        let Placement { pod, framework, state, .. } = placement;
        if placement.waits {
            framework.handle().waiting_pods().reject(&pod.uid);
            // Returns at once and removes the pod from the waiting ones, whatever the outcome.
            let _ = framework.wait_on_permit(pod, clock);
        }
        let cycle = Cycle::new(self.reader.refresh(), pod, state);
        framework.unreserve(cycle, placement.node());
        // Forgetting fails if the pod was deleted or confirmed meanwhile; then there is nothing to forget.
        let _ = self.engine.submit(Event::forget(pod))?.wait()?;
        Ok(())
    }

    /// Lets the engine free the version that the last cycle used. Call it before a thread waits for its next pod.
    pub fn release(&mut self) {
        self.reader.release();
    }

    /// Asks whether PreBind has work to do. If it has, or if the pod waits for a permit, the binder announces the node.
    fn announce(&mut self, placement: &Placement) -> Result<PreFlight, Status> {
        let Placement { pod, framework, state, waits, .. } = placement;
        let node = placement.node();
        let cycle = Cycle::new(self.reader.refresh(), pod, state);
        let flight = framework.pre_bind_pre_flight(cycle, node)?;
        if let Some(binder) = framework.handle().binder()
            && (*waits || flight == PreFlight::Work)
        {
            binder.nominate(pod, node).map_err(|error| Status::error("", error.to_string()))?;
        }
        Ok(flight)
    }
}

impl fmt::Debug for BindingCycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BindingCycle").finish_non_exhaustive()
    }
}
