//! Bindings that wait for nothing but an answer: tasks of the runtime, of which a limited number runs at once.
//!
//! A task takes the next request as soon as it has an answer, so a backlog of placements needs no further wake-ups. The
//! answers go to a channel, because the end of a binding calls plugins and waits for the engine, neither of which
//! belongs on a thread of the runtime.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use crossbeam_channel::Sender;
use portolan::scheduler::{Answered, BindRequest};
use tokio::runtime::Handle;

use super::threads::Alarm;

/// Why a request is given up.
const ENDED: &str = "the tokio runtime of the API server's client has ended: keep it until the scheduler has stopped";

/// The requests that wait or are in flight. The receiver of the answers is disconnected when this and all requests have
/// ended.
pub(super) struct Requests(Arc<Shared>);

struct Shared {
    runtime: Handle,
    most: usize,
    answers: Sender<Answered>,
    alarm: Alarm,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<BindRequest>,
    in_flight: usize,
}

impl Requests {
    /// Sends up to `most` requests at once.
    pub(super) fn new(
        runtime: &Handle,
        most: usize,
        answers: Sender<Answered>,
        alarm: &Alarm,
    ) -> Requests {
        Requests(Arc::new(Shared {
            runtime: runtime.clone(),
            most,
            answers,
            alarm: alarm.clone(),
            state: Mutex::default(),
        }))
    }

    /// Sends a request as soon as fewer than the limit are in flight. Never blocks.
    pub(super) fn start(&self, request: BindRequest) {
        let mut state = self.0.state();
        if state.in_flight >= self.0.most {
            state.waiting.push_back(request);
            return;
        }
        state.in_flight += 1;
        drop(state);
        let flight = Flight { shared: self.0.clone(), request: Some(request) };
        // If the runtime has ended, the task is dropped at once.
        self.0.runtime.spawn(flight.run());
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Every critical section leaves a valid state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the request that waits longest. If there is none, a request less is in flight.
    fn next(&self) -> Option<BindRequest> {
        let mut state = self.state();
        let next = state.waiting.pop_front();
        state.in_flight -= usize::from(next.is_none());
        next
    }

    fn answer(&self, answer: Answered) {
        // The receiver lives until the senders are dropped, unless its thread has panicked.
        let _ = self.answers.send(answer);
    }
}

/// A task that sends one request after the other. If it is dropped before its end, its request and those that wait are
/// given up.
struct Flight {
    shared: Arc<Shared>,
    request: Option<BindRequest>,
}

impl Flight {
    async fn run(mut self) {
        while let Some(request) = &mut self.request {
            let answer = request.await;
            self.shared.answer(answer);
            self.request = self.shared.next();
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if thread::panicking() {
            self.shared.alarm.sound();
        }
        while let Some(request) = self.request.take() {
            if let Some(answer) = request.abandon(ENDED) {
                self.shared.answer(answer);
            }
            self.request = self.shared.next();
        }
    }
}
