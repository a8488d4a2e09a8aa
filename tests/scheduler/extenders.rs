//! Extenders in the loops of a scheduler: pods that they reject are retried after any event, and they bind pods.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use portolan::framework::{
    BinderError, EXTENDER, Extender, ExtenderError, ExtenderFilter, ScheduleError,
};
use portolan::log::Event;
use portolan::model::{Name, Object, Pod, StorageClass, Timestamp, node, pod};
use portolan::scheduler::queue::PopError;
use portolan::scheduler::{Attempt, CycleError, InMemoryBinder, Schedulers, SchedulingLoop};
use portolan::{Engine, NodeInfo};

fn clock(seconds: i64) -> impl Fn() -> Timestamp {
    move || Timestamp::from_secs(seconds)
}

fn submit(engine: &Engine, event: Event) {
    engine.submit(event).unwrap().wait().unwrap().unwrap();
}

/// Creates schedulers with one node, and one pending pod.
fn with_one_pod(extender: Arc<dyn Extender>) -> Schedulers {
    let schedulers = Schedulers::builder().extenders([extender]).build().unwrap();
    let node = node("n1").cpu(1_000).memory(1 << 30).pods(110).build();
    submit(schedulers.engine(), Event::add_node(node));
    submit(schedulers.engine(), Event::put_pending(pod("web").cpu(100).build()));
    schedulers
}

/// Rejects all nodes until it is opened.
#[derive(Default)]
struct Gate(AtomicBool);

impl Extender for Gate {
    fn name(&self) -> &str {
        "gate"
    }

    fn is_filter(&self) -> bool {
        true
    }

    fn filter(&self, _: &Pod, nodes: &[NodeInfo<'_>]) -> Result<ExtenderFilter, ExtenderError> {
        let mut answer = ExtenderFilter::default();
        if self.0.load(Ordering::Relaxed) {
            answer.passed = nodes.iter().map(|node| node.name().clone()).collect();
        }
        Ok(answer)
    }
}

#[test]
fn any_event_retries_a_pod_that_an_extender_rejected() {
    let gate = Arc::new(Gate::default());
    let schedulers = with_one_pod(gate.clone());
    let mut scheduling = schedulers.scheduling_loop().unwrap();
    let mut attempt = |at| scheduling.schedule_one(Some(Instant::now()), clock(at));
    let Ok(Attempt::Failed { error, .. }) = attempt(1) else { panic!("not tried") };
    let CycleError::Schedule(ScheduleError::Fit(error)) = &error else { panic!("{error}") };
    assert!(error.unschedulable_plugins.contains(EXTENDER));
    assert!(error.to_string().starts_with("0/1 nodes are available: preemption: "), "{error}");
    assert!(matches!(attempt(60), Err(PopError::Timeout)), "nothing has happened");
    gate.0.store(true, Ordering::Relaxed);
    // No plugin that rejects a pod is interested in this event.
    let class = StorageClass { name: "fast".into(), ..StorageClass::default() };
    submit(schedulers.engine(), Event::put_object(Object::from(class)));
    assert!(matches!(attempt(120), Ok(Attempt::Placed(_))));
}

/// Binds, or does not.
struct Binding {
    binder: InMemoryBinder,
    answer: Option<BinderError>,
    is_ignorable: bool,
    calls: Mutex<Vec<(Name, Name)>>,
}

impl Extender for Binding {
    fn name(&self) -> &str {
        "binding"
    }

    fn is_ignorable(&self) -> bool {
        self.is_ignorable
    }

    fn is_binder(&self) -> bool {
        true
    }

    fn bind(&self, pod: &Pod, node: &Name) -> Result<(), BinderError> {
        use portolan::framework::Binder;
        self.calls.lock().unwrap().push((pod.name.clone(), node.clone()));
        self.answer.clone().map_or_else(|| self.binder.bind(pod, node), Err)
    }
}

/// Binds one pod, and returns the error, and whether the pod is on its node.
fn bound_by(answer: Option<BinderError>, is_ignorable: bool) -> (Option<String>, bool, usize) {
    // The extender binds in the engine that is built with it.
    let late: Arc<std::sync::OnceLock<Binding>> = Arc::default();
    struct Late(Arc<std::sync::OnceLock<Binding>>, bool);
    impl Extender for Late {
        fn name(&self) -> &str {
            "late"
        }
        fn is_ignorable(&self) -> bool {
            self.1
        }
        fn is_binder(&self) -> bool {
            true
        }
        fn bind(&self, pod: &Pod, node: &Name) -> Result<(), BinderError> {
            self.0.get().expect("set").bind(pod, node)
        }
    }
    let plugin = Arc::new(AtomicUsize::new(0));
    let counted = plugin.clone();
    let schedulers = Schedulers::builder()
        .extenders([Arc::new(Late(late.clone(), is_ignorable)) as Arc<dyn Extender>])
        .binder(move |engine| {
            let binder = InMemoryBinder::new(engine.upgrade().expect("open"));
            binder.refusing(move |_, _| {
                counted.fetch_add(1, Ordering::Relaxed);
                None
            })
        })
        .build()
        .unwrap();
    let engine = schedulers.engine().clone();
    let binder = InMemoryBinder::new(engine.clone());
    let calls = Mutex::default();
    assert!(late.set(Binding { binder, answer, is_ignorable, calls }).is_ok());
    submit(&engine, Event::add_node(node("n1").cpu(1_000).memory(1 << 30).pods(110).build()));
    submit(&engine, Event::put_pending(pod("web").cpu(100).build()));
    let mut scheduling: SchedulingLoop = schedulers.scheduling_loop().unwrap();
    let Ok(Attempt::Placed(placement)) = scheduling.schedule_one(Some(Instant::now()), clock(1))
    else {
        panic!("not placed")
    };
    let error = scheduling.bind(&placement, clock(1)).err().map(|(error, _)| error.to_string());
    let calls = late.get().unwrap().calls.lock().unwrap().clone();
    assert_eq!(calls, [("web".into(), "n1".into())]);
    let is_placed = engine.reader().unwrap().snapshot().pod_count() == 1;
    (error, is_placed, plugin.load(Ordering::Relaxed))
}

#[test]
fn an_extender_binds_in_place_of_the_plugins() {
    assert_eq!(bound_by(None, false), (None, true, 0));
    let failed = || Some(BinderError::Failed("failed bind, code 500".to_owned()));
    assert_eq!(bound_by(failed(), false), (Some("failed bind, code 500".to_owned()), false, 0));
    let conflict = Some(BinderError::Conflict("the pod is gone".to_owned()));
    assert_eq!(bound_by(conflict, false), (Some("the pod is gone".to_owned()), false, 0));
    let unknown = Some(BinderError::Unknown("no answer".to_owned()));
    let kept = (Some("no answer".to_owned()), true, 0);
    assert_eq!(bound_by(unknown, false), kept, "a pod that may be bound stays assumed");
    assert_eq!(bound_by(failed(), true), (None, true, 1), "the Bind plugins bind instead");
}
