//! Records events of pods (events.k8s.io/v1) by the rules of client-go.
//!
//! Recording never blocks: occurrences wait in a bounded queue, and are dropped if it is full. A few are written at
//! once. A write that did not reach the API server is tried up to 12 times, 10 s apart, and delays no other event
//! meanwhile. An event that the server refuses is dropped. The client of the sink may have its own limits
//! ([`Limits`](crate::api::Limits)), so that events do not take requests from bindings.
//!
//! Differences from client-go:
//!
//! - The number of events that are kept to recognize repetitions is bounded, see [`EventLimits::known`]. Bindings are
//!   not kept, since a pod is bound once.
//! - The name of an event is cut if it would be too long, where client-go uses a random name.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::sleep;

use super::occurrence::{EventBody, Occurrence, SeriesBody, SeriesPatch};
use super::series::{EventCache, Sweep, Sweeps, Write};
use super::{Fence, LONGEST_WAIT};
use crate::api::{Api, ApiError, Patch, Resource};
use crate::debug::debug_by;
use crate::lock::lock;
use crate::seldom::warn_seldom;

/// The time without bindings after which a scheduler is idle.
const IDLE: Duration = Duration::from_millis(20);

/// Limits of an [`EventRecorder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventLimits {
    /// The number of events that are written at once while pods are being bound.
    pub at_once: usize,
    /// The number of events that are written at once otherwise.
    pub at_once_when_idle: usize,
    /// The number of occurrences that may wait to be written for the first time. Further ones are dropped.
    pub queue: usize,
    /// The number of events that may wait to be written again. Further ones are dropped.
    pub retries: usize,
    /// The number of events that are kept for 6 minutes to recognize repetitions. A repetition of any other event is a
    /// new event.
    pub known: usize,
    /// The time between tries of a write that did not reach the server, to which up to a quarter is added at random.
    pub retry: Duration,
    /// The maximum number of tries of a write.
    pub tries: u32,
}

impl Default for EventLimits {
    fn default() -> EventLimits {
        EventLimits {
            at_once: 8,
            at_once_when_idle: 64,
            queue: 65_536,
            retries: 10_000,
            known: 50_000,
            retry: Duration::from_secs(10),
            tries: 12,
        }
    }
}

/// Counts the occurrences of an [`EventRecorder`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventFigures {
    /// Events and series that the API server accepted.
    pub sent: u64,
    /// Occurrences that were dropped because the queue was full or the writer had stopped.
    pub dropped: u64,
    /// Events that the server refused, or that could not be sent.
    pub failed: u64,
    /// Occurrences that were added to the count of a series without a write.
    pub counted: u64,
}

/// Records events. Clones share their queue.
#[derive(Clone)]
pub struct EventRecorder {
    queue: mpsc::Sender<Occurrence>,
    figures: Arc<Mutex<EventFigures>>,
    /// The occurrences that wait or are being written.
    open: watch::Sender<usize>,
    hurry: Arc<Notify>,
}

impl EventRecorder {
    /// Starts the tasks, which run until the fence is closed for good or all recorders are dropped. `host` is the name
    /// of this host, which events report.
    pub(super) fn start(
        runtime: &Handle,
        api: Api,
        fence: Fence,
        host: &str,
        limits: EventLimits,
        bindings: watch::Receiver<usize>,
    ) -> EventRecorder {
        let (queue, mut occurrences) = mpsc::channel(limits.queue.max(1));
        let figures = Arc::<Mutex<EventFigures>>::default();
        let cache = EventCache::new(limits.known);
        let host = host.into();
        let at_once = limits.at_once.max(1);
        let spare = limits.at_once_when_idle.clamp(at_once, Semaphore::MAX_PERMITS) - at_once;
        let at_once = Arc::new(Semaphore::new(at_once + spare));
        runtime.spawn(yield_to_bindings(at_once.clone(), spare, bindings));
        let retries = Arc::new(Semaphore::new(limits.retries));
        let (open, counting) = (watch::Sender::new(0), figures.clone());
        let hurry = Arc::new(Notify::new());
        let sink = Sink {
            api,
            fence,
            host,
            cache,
            limits,
            at_once,
            retries,
            open: open.clone(),
            hurry: hurry.clone(),
            figures: counting,
        };
        let sink = Arc::new(sink);
        let working = sink.clone();
        runtime.spawn(async move {
            tokio::select! {
                () = working.fence.lost() => {}
                () = working.work(&mut occurrences) => {}
            }
        });
        let closed = queue.downgrade();
        runtime.spawn(async move {
            tokio::select! {
                () = sink.fence.lost() => {}
                () = sink.sweep(&closed) => {}
            }
        });
        EventRecorder { queue, figures, open, hurry }
    }

    /// Records an occurrence. Never blocks. If the queue is full, the occurrence is dropped.
    pub fn record(&self, occurrence: Occurrence) {
        // Counted first, so that a fast worker does not count below 0.
        self.open.send_modify(|open| *open += 1);
        if self.queue.try_send(occurrence).is_err() {
            self.open.send_modify(|open| *open -= 1);
            lock(&self.figures).dropped += 1;
        }
    }

    /// Waits until all occurrences so far are written, or were given up. Events that wait for their next try are tried
    /// at once.
    pub(super) async fn flush(&self) {
        self.hurry.notify_waiters();
        // The sender lives as long as `self`.
        let _ = self.open.subscribe().wait_for(|open| *open == 0).await;
    }

    /// The occurrences that wait or are being written.
    pub(super) fn open(&self) -> usize {
        *self.open.borrow()
    }

    /// Counts the occurrences so far.
    #[must_use]
    pub fn figures(&self) -> EventFigures {
        *lock(&self.figures)
    }
}

struct Sink {
    api: Api,
    fence: Fence,
    host: Box<str>,
    cache: EventCache,
    limits: EventLimits,
    at_once: Arc<Semaphore>,
    retries: Arc<Semaphore>,
    open: watch::Sender<usize>,
    /// Ends the pauses before further tries.
    hurry: Arc<Notify>,
    figures: Arc<Mutex<EventFigures>>,
}

/// The result of a try.
enum Tried {
    Sent,
    /// The server refused the event.
    Refused(ApiError),
    /// The event may be accepted later.
    Later(ApiError),
}

impl Sink {
    async fn work(self: &Arc<Sink>, occurrences: &mut mpsc::Receiver<Occurrence>) {
        loop {
            let Some(write) = self.next(occurrences).await else { return };
            // Further occurrences wait in the queue until this one may be sent, which limits the number of tasks.
            let Ok(turn) = self.at_once.clone().acquire_owned().await else { return };
            let sink = self.clone();
            tokio::spawn(async move {
                tokio::select! {
                    () = sink.fence.lost() => {}
                    () = sink.deliver(&write, turn) => {}
                }
                sink.open.send_modify(|open| *open -= 1);
            });
        }
    }

    /// Counts occurrences until one has to be written.
    async fn next(&self, occurrences: &mut mpsc::Receiver<Occurrence>) -> Option<Write> {
        loop {
            let event = occurrences.recv().await?;
            let now = event.time;
            match self.cache.observe(event, now) {
                Some(write) => return Some(write),
                None => {
                    lock(&self.figures).counted += 1;
                    self.open.send_modify(|open| *open -= 1);
                }
            }
        }
    }

    /// Writes an event. Holds a permit only during a try; each retry acquires a new one.
    async fn deliver(&self, write: &Write, mut turn: OwnedSemaphorePermit) {
        let mut waiting = None;
        let mut tries = 1;
        loop {
            let tried = self.send(write).await;
            drop(turn);
            let drop_it = |error: &ApiError| {
                let key = &write.event.key;
                warn_seldom!(reason = key.reason, pod = %key.name, %error, "event dropped");
                lock(&self.figures).failed += 1;
            };
            let error = match tried {
                Tried::Sent => {
                    lock(&self.figures).sent += 1;
                    return;
                }
                Tried::Refused(error) => return drop_it(&error),
                Tried::Later(error) => error,
            };
            waiting = waiting.or_else(|| self.retries.clone().try_acquire_owned().ok());
            if tries >= self.limits.tries || waiting.is_none() {
                return drop_it(&error);
            }
            tries += 1;
            let retry = error.wait(self.limits.retry, LONGEST_WAIT);
            tokio::select! {
                () = sleep(retry + retry.mul_f64(jitter() / 4.0)) => {}
                () = self.hurry.notified() => {}
            }
            let Ok(next) = self.at_once.clone().acquire_owned().await else { return };
            turn = next;
        }
    }

    /// Tries to write an event once. A series is a patch, or is created if its event has expired.
    async fn send(&self, write: &Write) -> Tried {
        let key = &write.event.key;
        let name = write.event.name();
        let series = write.series.map(SeriesBody::of);
        if let Some(series) = &series {
            let path = Resource::EVENTS.object(&key.namespace, &name);
            match self.api.patch(&path, Patch::Strategic, &SeriesPatch { series }).await {
                Ok(_) => return Tried::Sent,
                Err(error) if error.is_not_found() => {}
                Err(error) => return tried(error),
            }
        }
        let path = Resource::EVENTS.collection(Some(&key.namespace));
        let body = EventBody::new(&write.event, &name, &self.host, series.as_ref());
        match self.api.create(&path, &body).await {
            Ok(_) => Tried::Sent,
            // The event was created after the patch had not found it.
            Err(error) if error.is_conflict() && series.is_some() => Tried::Later(error),
            // The answer to an earlier try was lost.
            Err(error) if error.is_conflict() => Tried::Sent,
            Err(error) => tried(error),
        }
    }

    /// Ends events and series that are over, and refreshes the other series, until all recorders are dropped.
    async fn sweep(&self, recorders: &mpsc::WeakSender<Occurrence>) {
        let mut sweeps = Sweeps::start();
        loop {
            let sweep = sweeps.next().await;
            if recorders.upgrade().is_none() {
                return;
            }
            match sweep {
                Sweep::Finish => {
                    for write in self.cache.finished(Timestamp::now()) {
                        match self.send(&write).await {
                            Tried::Later(_) => {}
                            Tried::Sent | Tried::Refused(_) => self.cache.forget(&write),
                        }
                    }
                }
                Sweep::Refresh => {
                    for write in self.cache.series() {
                        // A refresh that fails is repeated with the next one.
                        self.send(&write).await;
                    }
                }
            }
        }
    }
}

/// Holds back a number of permits while pods are being bound, until no scheduler is left.
async fn yield_to_bindings(
    at_once: Arc<Semaphore>,
    spare: usize,
    mut bindings: watch::Receiver<usize>,
) {
    while bindings.wait_for(|bindings| *bindings > 0).await.is_ok() {
        // One by one, so that the events that wait get every other permit meanwhile.
        let mut held = Vec::new();
        for _ in 0..spare {
            let Ok(permit) = at_once.clone().acquire_owned().await else { return };
            held.push(permit);
        }
        loop {
            if bindings.wait_for(|bindings| *bindings == 0).await.is_err() {
                return;
            }
            // Between two bindings of a backlog, there may be none for a moment.
            sleep(IDLE).await;
            if *bindings.borrow() == 0 {
                break;
            }
        }
        drop(held);
    }
}

/// A refusal is final, unless the server asks to wait. Other errors may be temporary.
fn tried(error: ApiError) -> Tried {
    match &error {
        ApiError::Refused(refusal) if refusal.retry_after.is_none() => Tried::Refused(error),
        ApiError::Invalid(_) => Tried::Refused(error),
        _ => Tried::Later(error),
    }
}

/// A number in `0.0..1.0` that spreads the tries of several processes.
fn jitter() -> f64 {
    f64::from(Timestamp::now().subsec_nanosecond() % 1_000_000) / 1e6
}

debug_by!(EventRecorder, it, figures: it.figures());

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bindings_hold_back_all_but_a_few_events() {
        let (at_once, bindings) = (Arc::new(Semaphore::new(10)), watch::Sender::new(0));
        let task = tokio::spawn(yield_to_bindings(at_once.clone(), 8, bindings.subscribe()));
        let until = async |permits: usize| {
            while at_once.available_permits() != permits {
                sleep(Duration::from_millis(1)).await;
            }
        };
        for _ in 0..2 {
            bindings.send_modify(|bindings| *bindings += 3);
            until(2).await;
            bindings.send_modify(|bindings| *bindings -= 3);
            until(10).await;
        }
        // Nothing is left of it when the scheduler has ended.
        bindings.send_modify(|bindings| *bindings += 1);
        until(2).await;
        drop(bindings);
        task.await.expect("no panic");
        until(10).await;
    }
}
