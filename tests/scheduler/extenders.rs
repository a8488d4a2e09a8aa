//! Extenders in the loops of a scheduler: pods that they reject are retried after any event, and they bind pods.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use portolan::Unplaced;
use portolan::cache::{Engine, Event, NodeInfo};
use portolan::model::{Name, Object, Pod, StorageClass, Timestamp, node, pod};
use portolan::plugin::{EXTENDER, Extender, ExtenderError, ExtenderFilter};
use portolan::scheduler::queue::PopError;
use portolan::scheduler::{InMemoryBinder, InMemoryEvictor};
use portolan::{Attempt, Binder, BinderError, Failure, Schedulers};

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
    let Ok(Attempt::Failed(Unplaced { error, .. })) = attempt(1) else { panic!("not tried") };
    let Failure::Fit(error) = &error else { panic!("{error}") };
    assert!(error.unschedulable_plugins.contains(EXTENDER));
    assert!(error.to_string().starts_with("0/1 nodes are available: preemption: "), "{error}");
    assert!(matches!(attempt(60), Err(PopError::Timeout)), "nothing has happened");
    gate.0.store(true, Ordering::Relaxed);
    // No plugin that rejects a pod is interested in this event.
    let class = StorageClass { name: "fast".into(), ..StorageClass::default() };
    submit(schedulers.engine(), Event::PutObject(Object::from(class)));
    assert!(matches!(attempt(120), Ok(Attempt::Placed(_))));
}

/// Prefers one node.
struct Prefers(&'static str);

impl Extender for Prefers {
    fn name(&self) -> &str {
        "prefers"
    }

    fn weight(&self) -> Option<i64> {
        Some(1_000)
    }

    fn prioritize(&self, _: &Pod, _: &[NodeInfo<'_>]) -> Result<Vec<(Name, i64)>, ExtenderError> {
        Ok(vec![(self.0.into(), 10)])
    }
}

#[test]
fn extenders_score_the_nodes_for_each_pod_of_a_batch() {
    let schedulers =
        Schedulers::builder().extenders([Arc::new(Prefers("n2")) as _]).build().unwrap();
    for (name, cpu) in [("n1", 64_000), ("n2", 1_000), ("n3", 64_000)] {
        let node = node(name).cpu(cpu).memory(1 << 30).pods(110).build();
        submit(schedulers.engine(), Event::add_node(node));
    }
    for n in 0..4 {
        submit(schedulers.engine(), Event::put_pending(pod(format!("p{n}")).cpu(100).build()));
    }
    let mut scheduling = schedulers.scheduling_loop().unwrap();
    let most = NonZeroUsize::new(4).unwrap();
    let attempts = scheduling.schedule_batch(most, Some(Instant::now()), clock(1)).unwrap();
    assert_eq!(attempts.len(), 4);
    for attempt in attempts {
        let Attempt::Placed(placement) = attempt else { panic!("not placed") };
        assert_eq!(&**placement.node(), "n2");
    }
}

/// Binds in the engine, or answers with an error.
#[derive(Default)]
struct Binding {
    /// Set once the engine exists.
    binder: OnceLock<InMemoryBinder>,
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
        self.calls.lock().unwrap().push((pod.name.clone(), node.clone()));
        let bind = || self.binder.get().expect("set").bind(pod, node);
        self.answer.clone().map_or_else(bind, Err)
    }
}

/// Binds one pod, and returns the error, whether the pod is on its node, and how often a plugin has bound it.
fn bound_by(answer: Option<BinderError>, is_ignorable: bool) -> (Option<String>, bool, usize) {
    let extender = Arc::new(Binding { answer, is_ignorable, ..Binding::default() });
    let plugin = Arc::new(AtomicUsize::new(0));
    let counted = plugin.clone();
    let schedulers = Schedulers::builder()
        .extenders([extender.clone() as Arc<dyn Extender>])
        .binder(move |engine| {
            let binder = InMemoryBinder::new(engine.upgrade().expect("open"));
            binder.refusing(move |_, _| {
                counted.fetch_add(1, Ordering::Relaxed);
                None
            })
        })
        .evictor(|engine| InMemoryEvictor::from(engine))
        .build()
        .unwrap();
    let engine = schedulers.engine().clone();
    assert!(extender.binder.set(InMemoryBinder::new(engine.clone())).is_ok());
    submit(&engine, Event::add_node(node("n1").cpu(1_000).memory(1 << 30).pods(110).build()));
    submit(&engine, Event::put_pending(pod("web").cpu(100).build()));
    let mut scheduling = schedulers.scheduling_loop().unwrap();
    let attempt = scheduling.schedule_one(Some(Instant::now()), clock(1));
    let Ok(Attempt::Placed(placement)) = attempt else { panic!("not placed") };
    let error = scheduling.bind(&placement, clock(1)).err().map(|(error, _)| error.to_string());
    assert_eq!(*extender.calls.lock().unwrap(), [("web".into(), "n1".into())]);
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
    assert_eq!(bound_by(unknown.clone(), false), kept, "a pod that may be bound stays assumed");
    assert_eq!(bound_by(unknown, true), kept, "and no plugin binds it");
    let refused = Some(BinderError::Refused("another shard".to_owned()));
    let not_tried = (Some("another shard".to_owned()), false, 0);
    assert_eq!(bound_by(refused, true), not_tried, "a refusal holds for the plugins too");
    assert_eq!(bound_by(failed(), true), (None, true, 1), "the Bind plugins bind instead");
}
