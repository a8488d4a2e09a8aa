//! Passes events from the reflectors' tasks to the engine, on a separate thread.
//!
//! `Engine::submit` may wait for space in the log, or fold events on the calling thread, neither of which belongs on a
//! runtime's thread. A reflector waits asynchronously when the channel is full, so a slow engine slows down reading
//! from the network. At most [`IN_FLIGHT`] tickets are held.
//!
//! An [`Observer`] sees each event before it is submitted, when the published version contains all earlier ones and
//! nothing else. The thread then waits for each outcome.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use portolan::cache::{Engine, Event, Outcome, Ticket};
use portolan::model::{EventError, Pod};
use tokio::sync::{mpsc, oneshot};
use tracing::warn;

use super::figures::{Board, KindState, StopOnDrop};
use super::pods::PodIndex;

/// The number of events that may wait for the thread.
const CHANNEL: usize = 1024;
/// The number of events whose outcome is not known yet: a multiple of the engine's batch size, so that batches fill up.
const IN_FLIGHT: usize = 1024;

/// The mirror has been stopped, or the engine accepts no more events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stopped;

/// Sees the events of a mirror, on the thread that submits them.
pub(crate) trait Observer: Send {
    /// Called before an event is submitted, when all earlier events are in the published version.
    fn before(&mut self, event: &Event);
}

enum Work {
    Event(Arc<KindState>, Event),
    /// Answered when the outcomes of all events before it are known.
    Flush(oneshot::Sender<()>),
}

/// The reflectors' end of the channel. Clones share it.
#[derive(Clone)]
pub(super) struct Events(mpsc::Sender<Work>);

impl Events {
    /// Starts the thread. It ends when all clones have been dropped, after it has submitted the remaining events.
    ///
    /// # Errors
    ///
    /// The system could not start a thread.
    pub(super) fn start(
        engine: Engine,
        pods: Arc<PodIndex>,
        board: Arc<Board>,
        observer: Option<Box<dyn Observer>>,
    ) -> std::io::Result<(Events, JoinHandle<()>)> {
        let (sender, receiver) = mpsc::channel(CHANNEL);
        let thread =
            thread::Builder::new().name("portolan-mirror".to_owned()).spawn(move || {
                let _stopped = StopOnDrop(board);
                Submitter { engine, pods, tickets: VecDeque::new(), observer }.run(receiver);
            })?;
        Ok((Events(sender), thread))
    }

    /// Passes an event on. Events of one task keep their order.
    pub(super) async fn send(&self, kind: &Arc<KindState>, event: Event) -> Result<(), Stopped> {
        self.0.send(Work::Event(kind.clone(), event)).await.map_err(|_| Stopped)
    }

    /// Waits until all events that this task has sent are in the published version.
    pub(super) async fn flush(&self) -> Result<(), Stopped> {
        let (sender, receiver) = oneshot::channel();
        self.0.send(Work::Flush(sender)).await.map_err(|_| Stopped)?;
        receiver.await.map_err(|_| Stopped)
    }
}

/// An event whose outcome is not known yet.
struct InFlight {
    kind: Arc<KindState>,
    /// The pod of an upsert.
    pod: Option<Arc<Pod>>,
    ticket: Ticket<Outcome>,
}

struct Submitter {
    engine: Engine,
    pods: Arc<PodIndex>,
    tickets: VecDeque<InFlight>,
    observer: Option<Box<dyn Observer>>,
}

impl Submitter {
    fn run(mut self, mut receiver: mpsc::Receiver<Work>) {
        loop {
            let work = match receiver.try_recv() {
                Ok(work) => work,
                Err(_) => {
                    // Nothing to do: take the outcomes, and then wait.
                    if self.settle(0).is_err() {
                        return;
                    }
                    match receiver.blocking_recv() {
                        Some(work) => work,
                        None => return,
                    }
                }
            };
            let done = match work {
                Work::Event(kind, event) => self
                    .observe(&event)
                    .and_then(|()| self.submit(kind, event))
                    .and_then(|()| self.settle(IN_FLIGHT)),
                Work::Flush(answer) => self.settle(0).map(|()| {
                    // The task that asked may have been stopped.
                    let _ = answer.send(());
                }),
            };
            if done.is_err() {
                return;
            }
        }
    }

    fn observe(&mut self, event: &Event) -> Result<(), Stopped> {
        if self.observer.is_some() {
            self.settle(0)?;
        }
        if let Some(observer) = &mut self.observer {
            observer.before(event);
        }
        Ok(())
    }

    fn submit(&mut self, kind: Arc<KindState>, event: Event) -> Result<(), Stopped> {
        let pod = match &event {
            Event::PutPod(pod) => Some(pod.clone()),
            _ => None,
        };
        let ticket = self.engine.submit(event).map_err(|_| Stopped)?;
        self.tickets.push_back(InFlight { kind, pod, ticket });
        Ok(())
    }

    /// Takes outcomes until at most `left` events are in flight.
    fn settle(&mut self, left: usize) -> Result<(), Stopped> {
        while self.tickets.len() > left {
            let Some(InFlight { kind, pod, ticket }) = self.tickets.pop_front() else { break };
            match ticket.wait().map_err(|_| Stopped)? {
                Ok(applied) => {
                    for (name, why) in &applied.rejected {
                        kind.count(|figures| figures.refused += 1);
                        warn!(kind = kind.name(), name, %why, "the engine refused an object of a list");
                    }
                }
                Err(why) => self.refused(&kind, pod, &why),
            }
        }
        Ok(())
    }

    /// Handles an event that the engine refused. A refused pod is passed on again with its next version or list.
    fn refused(&self, kind: &KindState, pod: Option<Arc<Pod>>, why: &EventError) {
        match pod {
            Some(pod) => {
                kind.count(|figures| figures.refused += 1);
                let name = format!("{}/{}", pod.namespace(), pod.name);
                warn!(kind = kind.name(), name, %why, "the engine refused a pod");
                self.pods.distrust(&pod.uid, pod.resource_version);
            }
            // Deletions are sent without checking whether the engine has the object.
            None if is_absence(why) => {}
            None => {
                kind.count(|figures| figures.refused += 1);
                warn!(kind = kind.name(), %why, "the engine refused a change");
            }
        }
    }
}

fn is_absence(why: &EventError) -> bool {
    matches!(
        why,
        EventError::NotFound { .. }
            | EventError::NodeNotFound { .. }
            | EventError::ObjectNotFound { .. }
    )
}
