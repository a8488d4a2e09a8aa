//! Bindings that only wait for an answer: tasks of the runtime, a limited number of which run at once.
//!
//! A task takes the next request as soon as it has an answer, so waiting requests need no further wake-ups. If as many
//! wait as may be in flight, no further pod is popped (see `pressure.rs`), because requests are sent in their order.
//! The answers go to a channel, because the end of a binding calls plugins and waits for the engine, neither of which
//! belongs on a thread of the runtime.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::thread;

use portolan::scheduler::{Answered, BindRequest};
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedSender;

use super::pressure::Level;
use super::threads::Alarm;
use crate::lock::lock;

/// Why a request is abandoned.
const ENDED: &str = "the tokio runtime of the API server's client has ended: keep it until the scheduler has stopped";

/// The requests that wait or are in flight. The receiver of the answers is disconnected when this and all requests have
/// ended.
pub(super) struct Requests(Arc<Shared>);

struct Shared {
    runtime: Handle,
    most: usize,
    answers: UnboundedSender<Answered>,
    alarm: Alarm,
    state: Mutex<State>,
}

struct State {
    waiting: VecDeque<BindRequest>,
    in_flight: usize,
    level: Level,
}

impl Requests {
    /// Sends up to `most` requests at once. Scheduling pauses while as many more wait.
    pub(super) fn new(
        runtime: &Handle,
        most: usize,
        answers: UnboundedSender<Answered>,
        alarm: &Alarm,
    ) -> Requests {
        let level = alarm.pressure().level(most);
        Requests(Arc::new(Shared {
            runtime: runtime.clone(),
            most,
            answers,
            alarm: alarm.clone(),
            state: Mutex::new(State { waiting: VecDeque::new(), in_flight: 0, level }),
        }))
    }

    /// Sends a request as soon as fewer than the limit are in flight. Never blocks.
    pub(super) fn start(&self, request: BindRequest) {
        let mut state = lock(&self.0.state);
        if state.in_flight >= self.0.most {
            state.waiting.push_back(request);
            state.set_level();
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
    /// Returns the request that has waited longest. If no request waits, one fewer is in flight.
    fn next(&self) -> Option<BindRequest> {
        let mut state = lock(&self.state);
        let next = state.waiting.pop_front();
        state.set_level();
        state.in_flight -= usize::from(next.is_none());
        next
    }

    fn answer(&self, answer: Answered) {
        // The receiver lives until the senders are dropped, unless its thread has panicked.
        let _ = self.answers.send(answer);
    }
}

impl State {
    fn set_level(&mut self) {
        self.level.set(self.waiting.len());
    }
}

/// A task that sends one request after the other. If it is dropped early, its request and the waiting requests are
/// abandoned.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, poll_fn};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::task::Poll;

    use portolan::cache::Event;
    use portolan::model::{Name, Pod, Timestamp, node, pod};
    use portolan::plugin::BindingFuture;
    use portolan::scheduler::{Begun, BindError, InMemoryEvictor};
    use portolan::{Binder, BinderError, Schedulers};
    use tokio::runtime::{Builder, Runtime};
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    /// A binder that answers with futures of this function.
    struct With<F>(F);

    impl<F: Fn() -> BindingFuture + Send + Sync> Binder for With<F> {
        fn bind(&self, _: &Pod, _: &Name) -> Result<(), BinderError> {
            Err("only requests are expected".into())
        }

        fn request(&self, _: &Arc<Pod>, _: &Name) -> Option<BindingFuture> {
            Some((self.0)())
        }
    }

    fn now() -> Timestamp {
        Timestamp::from_secs(1)
    }

    fn runtime() -> Runtime {
        Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
    }

    /// Starts a request for each of this many pods, with at most two in flight.
    fn start(
        runtime: &Runtime,
        pods: usize,
        binds: impl Fn() -> BindingFuture + Send + Sync + 'static,
    ) -> (Schedulers, Requests, UnboundedReceiver<Answered>) {
        let builder = Schedulers::builder().binder(|_| With(binds));
        let builder = builder.evictor(|engine| InMemoryEvictor::from(engine));
        let schedulers = builder.build().expect("valid");
        let engine = schedulers.engine();
        drop(engine.submit(Event::add_node(node("n1").cpu(64_000).build())).expect("open"));
        for n in 0..pods {
            let pod = pod(format!("pod-{n}")).cpu(1).build();
            drop(engine.submit(Event::put_pending(pod)).expect("open"));
        }
        let (answers, answered) = unbounded_channel();
        let requests = Requests::new(runtime.handle(), 2, answers, &Alarm::new());
        let mut scheduling = schedulers.scheduling_loop().expect("a loop");
        for _ in 0..pods {
            let attempt = scheduling.schedule_one(None, now).expect("a pod");
            let placement = attempt.into_parts().0.remove(0);
            match scheduling.begin(placement) {
                Begun::Request(request) => requests.start(request),
                Begun::Blocks(_) => panic!("the binding needs no thread"),
            }
        }
        (schedulers, requests, answered)
    }

    #[test]
    fn each_request_is_answered_and_no_more_are_in_flight_than_the_limit() {
        let (in_flight, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let highest = most.clone();
        let binds = move || {
            let (in_flight, most, mut polls) = (in_flight.clone(), most.clone(), 0);
            Box::pin(poll_fn(move |context| {
                polls += 1;
                match polls {
                    // The counts are read after the channel has passed the answers.
                    1 => drop(most.fetch_max(
                        in_flight.fetch_add(1, Ordering::Relaxed) + 1,
                        Ordering::Relaxed,
                    )),
                    4 => {
                        in_flight.fetch_sub(1, Ordering::Relaxed);
                        return Poll::Ready(Ok(()));
                    }
                    _ => {}
                }
                context.waker().wake_by_ref();
                Poll::Pending
            })) as BindingFuture
        };
        let runtime = runtime();
        let (_schedulers, requests, mut answered) = start(&runtime, 100, binds);
        drop(requests);
        assert_eq!(std::iter::from_fn(|| answered.blocking_recv()).count(), 100);
        assert!((1..=2).contains(&highest.load(Ordering::Relaxed)));
    }

    #[test]
    fn a_runtime_that_ends_gives_up_all_requests() {
        let (sent, is_sent) = mpsc::channel();
        let binds = move || {
            let sent = sent.clone();
            Box::pin(async move {
                sent.send(()).expect("received");
                pending().await
            }) as BindingFuture
        };
        let runtime = runtime();
        let (schedulers, requests, mut answered) = start(&runtime, 5, binds);
        (0..2).for_each(|_| is_sent.recv().expect("sent"));
        drop(runtime);
        drop(requests);
        let answers: Vec<Answered> = std::iter::from_fn(|| answered.blocking_recv()).collect();
        let mut binding = schedulers.binding_loop().expect("a loop");
        let finished = binding.finish(answers, now);
        let count = |is: fn(&BindError) -> bool| {
            let errors = finished.iter().filter_map(|finished| finished.bound.as_ref().err());
            errors.filter(|(error, _)| is(error)).count()
        };
        let unknown = count(|error| matches!(error, BindError::Unknown(_)));
        let failed = count(|error| matches!(error, BindError::Failed(_)));
        assert_eq!((finished.len(), unknown, failed), (5, 2, 3));
    }
}
