//! Binds placed pods, and takes them from the queue or returns them to it (schedule_one.go `handleBindingCycleError`).

use std::fmt;
use std::sync::Arc;

use crate::engine::Engine;
use crate::framework::{CLOSED_QUEUE, Measurement, PluginSet};
use crate::log::Unavailable;
use crate::model::Timestamp;

use super::placement::requeue;
use super::queue::{Place, QueueFront};
use super::scheduling_loop::rejectors;
use super::{Answered, Begun, BindError, BindingCycle, Placement};

/// Binds pods that scheduling loops of the same queue have placed. A loop belongs to one thread; a binding may wait for
/// permits, for volumes and for the binder, so use as many loops as pods should be bound at once.
pub struct BindingLoop {
    queue: Arc<QueueFront>,
    cycle: BindingCycle,
}

/// A pod whose binding has ended.
#[derive(Debug)]
#[non_exhaustive]
pub struct Finished {
    /// The pod and the node of its binding.
    pub placement: Placement,
    /// Whether the pod was bound, or why not, with its place in the queue.
    pub bound: Result<(), (BindError, Option<Place>)>,
}

impl BindingLoop {
    /// Creates a loop that binds pods of this queue. The queue must be fed by the engine's log.
    ///
    /// # Errors
    ///
    /// The engine is unavailable.
    #[doc(hidden)]
    pub fn new(engine: Engine, queue: Arc<QueueFront>) -> Result<BindingLoop, Unavailable> {
        Ok(BindingLoop { queue, cycle: BindingCycle::new(engine)? })
    }

    /// Runs the binding cycle of a placed pod, and waits for its permit. The pod may have been placed by any loop of
    /// the same queue.
    ///
    /// # Errors
    ///
    /// The pod is not bound. It is forgotten by the engine, and the error carries its place in the queue. After
    /// [`BindError::Unknown`], the pod stays assumed and leaves the queue. After [`BindError::OwnThread`] and
    /// [`BindError::Ended`], nothing has changed.
    pub fn bind(
        &mut self,
        placement: &Placement,
        clock: impl Fn() -> Timestamp,
    ) -> Result<(), (BindError, Option<Place>)> {
        let queue = &self.queue;
        let bound = self.cycle.run_after(placement, &clock, || {
            queue.with(|queue, _| queue.release(&placement.pod.uid));
            if queue.is_closed() {
                // Closing has ended the waits that had begun. This pod may have been placed later.
                placement.framework.handle().waiting_pods().close(&placement.pod.uid);
            }
        });
        let bound = match bound {
            Err(BindError::Failed(status)) if status.plugin == CLOSED_QUEUE => {
                Err(BindError::Closed)
            }
            bound => bound,
        };
        self.end(placement, bound, clock)
    }

    /// Begins to bind a placed pod, and returns the request if the pod waits for nothing but its answer. The pod may
    /// have been placed by any loop of the same queue. Never blocks. See [`BindingCycle::begin`].
    #[doc(hidden)]
    pub fn begin(&mut self, placement: Placement) -> Begun {
        if !placement.is_ended() {
            // Events are no longer recorded for a pod that is being bound.
            self.queue.with(|queue, _| queue.release(&placement.pod.uid));
        }
        self.cycle.begin(placement)
    }

    /// Takes the answers to requests that any loop of the same queue has begun. Each outcome is that of
    /// [`BindingLoop::bind`]. May block for a short time.
    pub fn finish(
        &mut self,
        answers: impl IntoIterator<Item = Answered>,
        clock: impl Fn() -> Timestamp,
    ) -> Vec<Finished> {
        let finished = self.cycle.finish(answers, &clock).into_iter().map(|(placement, bound)| {
            let bound = self.end(&placement, bound, &clock);
            Finished { placement, bound }
        });
        finished.collect()
    }

    /// Takes the pod from the queue, or returns it there.
    fn end(
        &self,
        placement: &Placement,
        bound: Result<(), BindError>,
        clock: impl Fn() -> Timestamp,
    ) -> Result<(), (BindError, Option<Place>)> {
        let uid = &placement.pod.uid;
        match bound {
            Ok(()) => {
                self.record_scheduled(placement, &clock);
                self.queue.with(|queue, _| queue.done(uid));
                Ok(())
            }
            // Nothing was tried, and the placement can be bound later or is being bound by another thread.
            Err(error @ (BindError::OwnThread | BindError::Ended)) => Err((error, None)),
            Err(error @ BindError::Unknown(_)) => {
                self.queue.with(|queue, _| queue.done(uid));
                Err((error, None))
            }
            Err(error) => {
                let fit = match &error {
                    BindError::Rejected(fit) => Some(&**fit),
                    _ => None,
                };
                let (rejected, waits) = rejectors(Some(&placement.framework), fit);
                let place = requeue(&self.queue, uid, rejected, waits, clock());
                Err((error, place))
            }
        }
    }

    /// Withdraws a placement without binding the pod: releases its reservations, forgets the pod and returns it to the
    /// queue, where it backs off as after an error. Returns its place, or `None` if it is not retried or if the
    /// placement's binding cycle has begun or ended.
    pub fn withdraw(
        &mut self,
        placement: &Placement,
        clock: impl Fn() -> Timestamp,
    ) -> Option<Place> {
        let (uid, queue) = (&placement.pod.uid, &self.queue);
        let release = || queue.with(|queue, _| queue.release(uid));
        match self.cycle.withdraw_after(placement, &clock, release) {
            Ok(()) => requeue(queue, uid, PluginSet::EMPTY, PluginSet::EMPTY, clock()),
            // Nothing has changed.
            Err(BindError::OwnThread | BindError::Ended) => None,
            Err(_) => {
                queue.with(|queue, _| queue.done(uid));
                None
            }
        }
    }

    /// Lets the engine free the version that the last binding used. Call it before a thread waits for its next pod.
    pub fn release(&mut self) {
        self.cycle.release();
    }

    /// Reports the number of attempts and the time since the first one, if a recorder is set.
    fn record_scheduled(&self, placement: &Placement, clock: impl Fn() -> Timestamp) {
        let Some(recorder) = placement.framework.recorder() else { return };
        let known = self.queue.with(|queue, _| {
            let queued = queue.get(&placement.pod.uid)?;
            Some((queued.attempts, queued.first_attempt?, queued.was_flushed))
        });
        if let Some((attempts, first, was_flushed)) = known {
            recorder.record(Measurement::Scheduled { attempts, was_flushed }, clock().since(first));
        }
    }
}

impl fmt::Debug for BindingLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BindingLoop").finish_non_exhaustive()
    }
}
