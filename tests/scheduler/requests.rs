//! Bindings as futures: the same outcomes as those on threads that may block.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use portolan::cache::{Config, Engine, Event};
use portolan::model::{Name, Pod, Timestamp, Uid, node, pod};
use portolan::plugin::{
    Bind, BindingFuture, Code, Cycle, Extender, Handle, Measurement, Permit, Plugin, PreFlight,
    Recorder, Status,
};
use portolan::scheduler::queue::Place;
use portolan::scheduler::{Answered, Begun, BindError, BindRequest, BindingCycle, InMemoryEvictor};
use portolan::{
    Algorithm, AlgorithmConfig, Binder, BinderError, Framework, Placement, Profiles, Scheduler,
    Schedulers,
};
use portolan_testkit::plugin;

fn now() -> Timestamp {
    Timestamp::from_secs(1)
}

/// How a binder answers.
#[derive(Clone)]
enum Answer {
    Is(Result<(), BinderError>),
    Panic,
    Never,
}

/// A binder of both kinds, which counts the requests that were sent.
struct Both {
    answer: Answer,
    sent: Arc<AtomicUsize>,
}

impl Both {
    fn new(answer: Answer) -> Both {
        Both { answer, sent: Arc::default() }
    }
}

impl Binder for Both {
    fn bind(&self, _: &Pod, _: &Name) -> Result<(), BinderError> {
        self.sent.fetch_add(1, Ordering::Relaxed);
        match &self.answer {
            Answer::Is(answer) => answer.clone(),
            Answer::Panic => panic!("expected by the test"),
            Answer::Never => Err("a binding that never ends".into()),
        }
    }

    fn request(&self, _: &Arc<Pod>, _: &Name) -> Option<BindingFuture> {
        let (answer, sent) = (self.answer.clone(), self.sent.clone());
        let mut polls = 0;
        Some(Box::pin(poll_fn(move |_| {
            polls += 1;
            match &answer {
                _ if polls == 1 => {
                    sent.fetch_add(1, Ordering::Relaxed);
                    Poll::Pending
                }
                Answer::Is(answer) => Poll::Ready(answer.clone()),
                Answer::Panic => panic!("expected by the test"),
                Answer::Never => Poll::Pending,
            }
        })))
    }
}

/// A plugin that does one thing before the pod is bound.
#[derive(Clone, Copy, PartialEq)]
enum Before {
    Nothing,
    Permit,
    PreBind,
    FailedPreFlight,
    Bind,
}

struct Delays {
    before: Before,
    asked: Arc<AtomicUsize>,
}

impl Plugin for Delays {
    plugin!("Delays", Permit, PreBind, Bind);

    fn permit(&self, _: Cycle<'_>, _: &Name) -> Result<Permit, Status> {
        Ok(match self.before {
            Before::Permit => Permit::Wait(Duration::from_secs(10)),
            _ => Permit::Allow,
        })
    }

    fn pre_bind_pre_flight(&self, _: Cycle<'_>, _: &Name) -> Result<PreFlight, Status> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        match self.before {
            Before::PreBind => Ok(PreFlight::Work),
            Before::FailedPreFlight => Err(Status::new(Code::Error, "Delays", "no")),
            _ => Ok(PreFlight::Skip),
        }
    }

    fn bind(&self, _: Cycle<'_>, _: &Name) -> Result<Bind, Status> {
        Ok(if self.before == Before::Bind { Bind::Bound } else { Bind::Skip })
    }
}

/// An engine with one node, and a pod that is placed there by the default profile and perhaps another plugin, which is
/// the first one.
struct Bench {
    engine: Engine,
    placement: Option<Placement>,
    binding: BindingCycle,
}

impl Bench {
    fn new(handle: &Handle, first: Option<Delays>, recorder: Option<Arc<Notes>>) -> Bench {
        let engine = Engine::shared(Config::default());
        let node = node("n1").cpu(1_000).memory(1 << 30).build();
        engine.submit(Event::add_node(node)).unwrap().wait().unwrap().unwrap();
        let mut plugins = portolan::plugin::default_plugins(handle);
        if let Some(first) = first {
            plugins.insert(0, (Box::new(first), 0));
        }
        let mut framework = Framework::new(plugins).unwrap().with_handle(handle.clone());
        if let Some(recorder) = recorder {
            framework = framework.with_recorder(recorder, 1);
        }
        let algorithm = Algorithm::new(framework, AlgorithmConfig::default(), None);
        let mut scheduler = Scheduler::new(engine.clone(), Profiles::one(algorithm)).unwrap();
        let placement = scheduler.schedule(&Arc::new(pod("a").cpu(100).build()), now()).unwrap();
        let binding = BindingCycle::new(engine.clone()).unwrap();
        Bench { engine, placement: Some(placement), binding }
    }

    fn with(binder: Both) -> Bench {
        Bench::new(&Handle::default().with_binder(Arc::new(binder)), None, None)
    }

    fn begin(&mut self) -> Begun {
        self.binding.begin(self.placement.take().unwrap())
    }

    fn request(&mut self) -> BindRequest {
        match self.begin() {
            Begun::Request(request) => request,
            Begun::Blocks(_) => panic!("the binding needs no thread"),
        }
    }

    fn finish(&mut self, answer: Answered) -> Result<(), BindError> {
        let mut finished = self.binding.finish([answer], now);
        assert_eq!(finished.len(), 1);
        finished.remove(0).1
    }

    /// The numbers of pods and of assumed pods.
    fn counts(&self) -> (usize, usize) {
        let snapshot = self.engine.reader().unwrap().snapshot();
        (snapshot.pod_count(), snapshot.assumed_count())
    }

    /// Whether a pod whose node does not confirm it expires.
    fn expires(&self) -> bool {
        let late = Timestamp::from_secs(1_000_000);
        self.engine.submit(Event::Expire(late)).unwrap().wait().unwrap().unwrap();
        self.counts() == (0, 0)
    }
}

fn poll(request: &mut BindRequest) -> Poll<Answered> {
    Pin::new(request).poll(&mut Context::from_waker(Waker::noop()))
}

fn answer(mut request: BindRequest) -> Answered {
    loop {
        if let Poll::Ready(answered) = poll(&mut request) {
            assert!(poll(&mut request).is_pending(), "polled after its answer");
            return answered;
        }
    }
}

#[test]
fn a_request_has_the_outcome_of_the_binding_that_blocks() {
    let why = "why".to_owned();
    for given in [
        Answer::Is(Ok(())),
        Answer::Is(Err(BinderError::Conflict(why.clone()))),
        Answer::Is(Err(BinderError::Unknown(why.clone()))),
        Answer::Is(Err(BinderError::Refused(why.clone()))),
        Answer::Is(Err(BinderError::Failed(why))),
        Answer::Panic,
    ] {
        let mut blocks = Bench::with(Both::new(given.clone()));
        let placement = blocks.placement.take().unwrap();
        let expected = blocks.binding.run(&placement, now);
        let mut bench = Bench::with(Both::new(given));
        let answered = answer(bench.request());
        assert_eq!(bench.finish(answered), expected);
        assert_eq!(bench.counts(), blocks.counts(), "{expected:?}");
        assert_eq!(bench.expires(), blocks.expires(), "{expected:?}");
    }
}

#[test]
fn a_binding_that_may_block_is_not_a_request_and_asks_no_plugin_twice() {
    for before in
        [Before::Nothing, Before::Permit, Before::PreBind, Before::FailedPreFlight, Before::Bind]
    {
        let handle = Handle::default().with_binder(Arc::new(Both::new(Answer::Is(Ok(())))));
        let count = Arc::new(AtomicUsize::new(0));
        let mut bench = Bench::new(&handle, Some(Delays { before, asked: count.clone() }), None);
        let Begun::Blocks(placement) = bench.begin() else { panic!("Delays may block") };
        if let Some(waiting) = handle.waiting_pods().get(&placement.pod.uid) {
            waiting.allow("Delays");
        }
        let bound = bench.binding.run(&placement, now);
        assert_eq!(bound.is_ok(), before != Before::FailedPreFlight, "{bound:?}");
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }
}

struct Binds(bool);

impl Extender for Binds {
    fn name(&self) -> &str {
        "binds"
    }

    fn is_interested(&self, _: &Pod) -> bool {
        self.0
    }

    fn is_binder(&self) -> bool {
        true
    }

    fn bind(&self, _: &Pod, _: &Name) -> Result<(), BinderError> {
        Ok(())
    }
}

#[test]
fn an_extender_binds_the_pods_that_it_is_interested_in_on_a_thread() {
    for is_interested in [false, true] {
        let binder = Both::new(Answer::Is(Ok(())));
        let sent = binder.sent.clone();
        let handle = Handle::default().with_binder(Arc::new(binder));
        let handle = handle.with_extenders([Arc::new(Binds(is_interested)) as Arc<dyn Extender>]);
        let mut bench = Bench::new(&handle, None, None);
        let bound = match bench.begin() {
            Begun::Request(request) => {
                assert!(!is_interested);
                let answered = answer(request);
                bench.finish(answered)
            }
            Begun::Blocks(placement) => {
                assert!(is_interested);
                bench.binding.run(&placement, now)
            }
        };
        assert_eq!((bound, sent.load(Ordering::Relaxed)), (Ok(()), usize::from(!is_interested)));
    }
}

#[test]
fn an_abandoned_request_is_unknown_once_it_was_sent() {
    let mut unsent = Bench::with(Both::new(Answer::Never));
    let answered = unsent.request().abandon("ended").expect("no answer yet");
    assert!(matches!(unsent.finish(answered), Err(BindError::Failed(_))));
    assert_eq!(unsent.counts(), (0, 0));

    let mut sent = Bench::with(Both::new(Answer::Never));
    let mut request = sent.request();
    assert!(poll(&mut request).is_pending());
    let answered = request.abandon("ended").expect("no answer yet");
    assert_eq!(sent.finish(answered), Err(BindError::Unknown("ended".to_owned())));
    assert_eq!(sent.counts(), (1, 1));
}

/// The steps and results that were recorded.
#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl Recorder for Notes {
    fn record(&self, what: Measurement, _: Duration) {
        if !matches!(what, Measurement::Algorithm) {
            self.0.lock().unwrap().push(format!("{what:?}"));
        }
    }
}

#[test]
fn a_request_is_recorded_as_a_binding_that_blocks() {
    let notes = |begins: bool, binds: Result<(), BinderError>| {
        let handle = Handle::default().with_binder(Arc::new(Both::new(Answer::Is(binds))));
        let notes = Arc::new(Notes::default());
        let mut bench = Bench::new(&handle, None, Some(notes.clone()));
        match begins {
            true => {
                let answered = answer(bench.request());
                let _ = bench.finish(answered);
            }
            false => {
                let placement = bench.placement.take().unwrap();
                let _ = bench.binding.run(&placement, now);
            }
        }
        std::mem::take(&mut *notes.0.lock().unwrap())
    };
    for binds in [Ok(()), Err(BinderError::Failed("no".to_owned()))] {
        let recorded = notes(true, binds.clone());
        assert!(
            recorded.iter().any(|note| note.starts_with("Plugin(\"DefaultBinder\", Bind")),
            "{recorded:?}"
        );
        assert_eq!(recorded, notes(false, binds));
    }
}

/// Refuses one pod, and binds by requests only.
struct Refuses;

impl Binder for Refuses {
    fn bind(&self, _: &Pod, _: &Name) -> Result<(), BinderError> {
        Err("only requests are expected".into())
    }

    fn request(&self, pod: &Arc<Pod>, _: &Name) -> Option<BindingFuture> {
        let is_refused = &*pod.name == "pod-1";
        let answer = if is_refused { Err("no".into()) } else { Ok(()) };
        Some(Box::pin(std::future::ready(answer)))
    }
}

#[test]
fn several_requests_end_together_and_their_pods_leave_the_queue_or_return() {
    let builder = Schedulers::builder().binder(|_| Refuses);
    let schedulers = builder.evictor(|engine| InMemoryEvictor::from(engine)).build().unwrap();
    let engine = schedulers.engine();
    let node = node("n1").cpu(1_000).memory(1 << 30).build();
    engine.submit(Event::add_node(node)).unwrap().wait().unwrap().unwrap();
    for n in 0..3 {
        let pod = pod(format!("pod-{n}")).cpu(100).build();
        engine.submit(Event::put_pending(pod)).unwrap().wait().unwrap().unwrap();
    }
    let mut scheduling = schedulers.scheduling_loop().unwrap();
    let answers = (0..3).map(|_| {
        let (mut placed, _) = scheduling.schedule_one(None, now).unwrap().into_parts();
        match scheduling.begin(placed.remove(0)) {
            Begun::Request(request) => answer(request),
            Begun::Blocks(_) => panic!("the binding needs no thread"),
        }
    });
    let answers: Vec<Answered> = answers.collect();
    let finished = schedulers.binding_loop().unwrap().finish(answers, now);
    let queued = |uid: &Uid| schedulers.queue().with(|queue, _| queue.get(uid).is_some());
    let outcomes = finished.iter().map(|finished| {
        let pod = &finished.placement.pod;
        let place = finished.bound.as_ref().err().map(|(_, place)| *place);
        (&*pod.name, place, queued(&pod.uid))
    });
    let mut outcomes: Vec<_> = outcomes.collect();
    outcomes.sort_unstable();
    let expected = [
        ("pod-0", None, false),
        ("pod-1", Some(Some(Place::ErrorBackoff)), true),
        ("pod-2", None, false),
    ];
    assert_eq!(outcomes, expected);
}
