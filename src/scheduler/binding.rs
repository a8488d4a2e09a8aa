//! The binding cycle: takes an assumed pod from its permit to its node (schedule_one.go `bindingCycle`).
//!
//! The cycle may run on any thread and at any later time; the pod is counted on its node meanwhile. If any step fails,
//! the pod is forgotten and its reservations are released.
//!
//! [`BindingCycle::run`] blocks until the pod is bound. A pod that waits for nothing but the answer to a request needs
//! no thread: [`BindingCycle::begin`] returns the request as a future, and [`BindingCycle::finish`] takes its answer.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::engine::{Engine, Reader};
use crate::framework::{
    self, AttemptResult, Bind, Cycle, FitError, InPreBind, Measurement, Point, PreFlight, Status,
};
use crate::log::{Event, Outcome, Ticket, TryWaitError, Unavailable};
use crate::model::Timestamp;

use super::Placement;

/// Binds one pod after the other. Each binding thread needs its own.
pub struct BindingCycle {
    engine: Engine,
    reader: Reader,
}

/// The result of [`BindingCycle::begin`].
#[derive(Debug)]
#[must_use = "the binding ends if this is dropped"]
pub enum Begun {
    /// The binding waits for the answer to a request only.
    Request(BindRequest),
    /// The binding may block: run the cycle on a thread ([`BindingCycle::run`]).
    Blocks(Placement),
}

/// A binding cycle that waits for the answer to its request: a future that returns the answer, for
/// [`BindingCycle::finish`]. If it is dropped after it was polled, it is not known whether the pod is bound, and the
/// pod stays assumed. To handle this outcome, use [`BindRequest::abandon`].
#[must_use = "nothing is sent before the request is polled"]
pub struct BindRequest {
    /// `None` after the future has returned the answer.
    placement: Option<Placement>,
    request: framework::BindRequest,
}

impl BindRequest {
    /// Abandons the request. If it was sent, it is not known whether the pod is bound. Returns `None` if the future has
    /// returned the answer.
    pub fn abandon(self, why: &str) -> Option<Answered> {
        let bound = match self.request.is_started() {
            true => Ok(Bind::Unknown(why.to_owned())),
            false => Err(Status::error("", why)),
        };
        Some(Answered { placement: self.placement?, bound })
    }
}

/// Polled again after it has returned the answer, it stays pending.
impl Future for BindRequest {
    type Output = Answered;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answered> {
        if self.placement.is_none() {
            return Poll::Pending;
        }
        self.placement.iter().for_each(Placement::may_be_bound);
        let bound = std::task::ready!(Pin::new(&mut self.request).poll(context));
        let Some(placement) = self.placement.take() else { return Poll::Pending };
        if !matches!(bound, Ok(Bind::Bound | Bind::Unknown(_))) {
            placement.is_not_bound();
        }
        Poll::Ready(Answered { placement, bound })
    }
}

impl fmt::Debug for BindRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BindRequest").field("placement", &self.placement).finish_non_exhaustive()
    }
}

/// The answer to a [`BindRequest`]. If it is dropped, a pod that is bound stays assumed without a time to live.
#[derive(Debug)]
#[must_use = "the binding ends with `finish`"]
pub struct Answered {
    pub(super) placement: Placement,
    bound: Result<Bind, Status>,
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
    /// This scheduler may not bind the pod to the node now ([`Bind::Refused`]). The pod is decided on again.
    #[error("{0}")]
    Refused(String),
    /// The engine is closed, or the queue was closed before the pod got its permit.
    #[error("the engine or the queue is closed: no more pods can be bound")]
    Closed,
    /// The calling thread is inside [`Engine::with_writer`].
    #[error("this thread holds the writer and would wait for itself: bind after releasing it")]
    OwnThread,
    /// The placement was bound or withdrawn before, or another thread is doing so.
    #[error("the placement was bound or withdrawn before: schedule the pod again")]
    Ended,
}

impl BindError {
    /// Returns the attempt's result as kube-scheduler's metrics label it.
    #[must_use]
    pub(crate) fn result(&self) -> AttemptResult {
        match self {
            BindError::Rejected(_) => AttemptResult::Unschedulable,
            BindError::Failed(_)
            | BindError::Conflict(_)
            | BindError::Unknown(_)
            | BindError::Refused(_)
            | BindError::Closed
            | BindError::OwnThread
            | BindError::Ended => AttemptResult::Error,
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
    #[doc(hidden)]
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
    /// ([`Binder::nominate`](crate::Binder::nominate)). If the engine closes after Bind, the pod is bound without a
    /// time to live. If it closes while the pod waits for its permit, the wait ends within a tenth of a second.
    ///
    /// # Errors
    ///
    /// The pod is not bound, and it is forgotten. After [`BindError::Unknown`] it is still assumed. After
    /// [`BindError::OwnThread`] nothing was tried, and the placement can be bound later.
    pub fn run(
        &mut self,
        placement: &Placement,
        clock: impl Fn() -> Timestamp,
    ) -> Result<(), BindError> {
        self.run_after(placement, clock, || ())
    }

    /// Like [`BindingCycle::run`], and calls `claimed` when no other cycle and no withdrawal can begin.
    pub(super) fn run_after(
        &mut self,
        placement: &Placement,
        clock: impl Fn() -> Timestamp,
        claimed: impl FnOnce(),
    ) -> Result<(), BindError> {
        observed(placement, || {
            self.claim(placement)?;
            claimed();
            // Held until the pod is bound or forgotten.
            let mut in_pre_bind = None;
            let bound = self.bind(placement, &clock, &mut in_pre_bind);
            let finished = self.settle(placement, bound, in_pre_bind.as_ref(), &clock)?;
            self.end(placement, finished);
            Ok(())
        })
    }

    /// Claims the placement for one cycle or withdrawal.
    fn claim(&self, placement: &Placement) -> Result<(), BindError> {
        if self.engine.is_within_writer() {
            return Err(BindError::OwnThread);
        }
        if placement.claim() { Ok(()) } else { Err(BindError::Ended) }
    }

    /// Begins the cycle of a pod that waits for nothing but the answer to a request: it needs no permit, PreBind has no
    /// work to do, and its Bind plugin offers a future. Any other pod is returned. Never blocks.
    #[doc(hidden)]
    pub fn begin(&mut self, mut placement: Placement) -> Begun {
        let Placement { pod, framework, state, waits, .. } = &placement;
        // The blocking cycle of a placement that has ended returns its error.
        if *waits || placement.is_ended() {
            return Begun::Blocks(placement);
        }
        let Some(request) = framework.request_bind(pod, placement.node(), state) else {
            return Begun::Blocks(placement);
        };
        let cycle = Cycle::new(self.reader.refresh(), pod, state);
        match framework.pre_bind_pre_flight(cycle, placement.node()) {
            Ok(PreFlight::Skip) => {
                Begun::Request(BindRequest { placement: Some(placement), request })
            }
            flight => {
                placement.flight = Some(flight);
                Begun::Blocks(placement)
            }
        }
    }

    /// Ends the cycles of these pods, each with the outcome of [`BindingCycle::run`]. Their events are submitted
    /// together. Calls PostBind and Unreserve, and waits for the engine before each, so it may block for a short time.
    /// If no plugin extends PostBind, the time to live of a bound pod may start after the return.
    #[doc(hidden)]
    pub fn finish(
        &mut self,
        answers: impl IntoIterator<Item = Answered>,
        clock: impl Fn() -> Timestamp,
    ) -> Vec<(Placement, Result<(), BindError>)> {
        let answers = answers.into_iter().map(|Answered { placement, bound }| {
            let finished = self.settle(&placement, bound, None, &clock);
            (placement, finished)
        });
        let settled: Vec<_> = answers.collect();
        let ended = settled.into_iter().map(|(placement, finished)| {
            let bound = observed(&placement, || {
                // A thread that waits for the writer spins, so it waits only if a plugin may notice.
                let has_plugins = placement.framework.has_plugins_at(Point::PostBind);
                self.end(&placement, finished?.filter(|_| has_plugins));
                Ok(())
            });
            (placement, bound)
        });
        ended.collect()
    }

    /// Runs the cycle up to Bind.
    fn bind(
        &mut self,
        placement: &Placement,
        clock: impl Fn() -> Timestamp,
        in_pre_bind: &mut Option<InPreBind>,
    ) -> Result<Bind, Status> {
        let Placement { pod, framework, state, .. } = placement;
        let node = placement.node();
        let flight = self.announce(placement)?;
        if placement.waits || flight == PreFlight::Work {
            *in_pre_bind = Some(framework.handle().enter_pre_bind(&pod.uid));
        }
        if placement.waits {
            let engine = &self.engine;
            framework.wait_on_permit_while(pod, &clock, || !engine.is_closed())?;
        }
        let cycle = Cycle::new(self.reader.refresh(), pod, state);
        if flight == PreFlight::Work {
            framework.pre_bind(cycle, node)?;
        }
        if let Some(in_pre_bind) = in_pre_bind {
            in_pre_bind.finish().map_err(|cause| Status::error("", &*cause))?;
        }
        placement.may_be_bound();
        framework.bind(cycle, node)
    }

    /// Starts the time to live of a bound pod, or undoes the placement. Returns the ticket of the pod's event.
    fn settle(
        &mut self,
        placement: &Placement,
        bound: Result<Bind, Status>,
        in_pre_bind: Option<&InPreBind>,
        clock: impl Fn() -> Timestamp,
    ) -> Result<Option<Ticket<Outcome>>, BindError> {
        placement.end();
        let Placement { pod, framework, state, .. } = placement;
        let error = match bound {
            // The pod is bound, whatever the outcome: a confirmed pod has no time to live, and a closed engine expires
            // none.
            Ok(Bind::Bound) => {
                return Ok(self.engine.submit(Event::finish_binding(&pod.uid, clock())).ok());
            }
            Ok(Bind::Skip) => {
                let reason = "no plugin binds the pod: add one, such as DefaultBinder";
                BindError::Failed(Status::error("", reason))
            }
            Ok(Bind::Conflict(why)) => BindError::Conflict(why),
            Ok(Bind::Refused(why)) => BindError::Refused(why),
            // The pod may be bound, so freeing its resources could overcommit the node.
            Ok(Bind::Unknown(why)) => return Err(BindError::Unknown(why)),
            Err(status) => status.into(),
        };
        framework.unreserve(Cycle::new(self.reader.refresh(), pod, state), placement.node());
        if let Some(in_pre_bind) = in_pre_bind {
            in_pre_bind.begin_forget();
        }
        // Forgetting fails if the pod was deleted or confirmed meanwhile; then there is nothing to forget.
        let _ = self.engine.submit(Event::forget(pod))?.wait()?;
        Err(error)
    }

    /// Runs PostBind once the engine knows that the pod is bound.
    fn end(&mut self, placement: &Placement, finished: Option<Ticket<Outcome>>) {
        let Placement { pod, framework, state, .. } = placement;
        let _ = finished.map(Ticket::wait);
        framework.post_bind(Cycle::new(self.reader.refresh(), pod, state), placement.node());
    }

    /// Withdraws a placement before its binding cycle: releases the pod's reservations and forgets the pod. Calls
    /// `claimed` when no cycle and no other withdrawal can begin.
    ///
    /// # Errors
    ///
    /// The engine is unavailable, or the placement's binding cycle has begun or ended.
    pub(super) fn withdraw_after(
        &mut self,
        placement: &Placement,
        clock: impl Fn() -> Timestamp,
        claimed: impl FnOnce(),
    ) -> Result<(), BindError> {
        self.claim(placement)?;
        claimed();
        let version = self.reader.refresh();
        Ok(placement.undo(version, Some(&self.engine), clock())?)
    }

    /// Lets the engine free the version that the last cycle used. Call it before a thread waits for its next pod.
    pub(crate) fn release(&mut self) {
        self.reader.release();
    }

    /// Asks whether PreBind has work to do. If it has, or if the pod waits for a permit, the binder announces the node.
    fn announce(&mut self, placement: &Placement) -> Result<PreFlight, Status> {
        let Placement { pod, framework, state, waits, flight, .. } = placement;
        let node = placement.node();
        let flight = match flight {
            Some(flight) => flight.clone(),
            None => {
                let cycle = Cycle::new(self.reader.refresh(), pod, state);
                framework.pre_bind_pre_flight(cycle, node)
            }
        }?;
        if let Some(binder) = framework.handle().binder()
            && (*waits || flight == PreFlight::Work)
        {
            binder.nominate(pod, node).map_err(|error| Status::error("", error.to_string()))?;
        }
        Ok(flight)
    }
}

/// Runs a cycle, or its end, and reports its outcome.
fn observed(
    placement: &Placement,
    cycle: impl FnOnce() -> Result<(), BindError>,
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
    let bound = cycle();
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
        recorder.record(Measurement::Attempt(result), took);
    }
    bound
}

impl fmt::Debug for BindingCycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BindingCycle").finish_non_exhaustive()
    }
}
