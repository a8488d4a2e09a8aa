//! The dispatcher assigns each pod to one scheduler: the queues of a Gödel engine with a component name accept only
//! pods that name it.

use std::collections::BTreeMap;
use std::time::Instant;

use portolan::cache::{Config, Engine, Event, GodelConfig, Relist, Writer};
use portolan::model::{GodelPod, Pod, Template, Timestamp, node, pod};
use portolan::scheduler::queue::{Place, QueueConfig, QueueError, QueueFront, SchedulingQueue};
use portolan::{Algorithm, AlgorithmConfig, Framework};

const NOW: Timestamp = Timestamp(100_000_000_000);

/// The engine and the queue of one scheduler instance.
struct Instance {
    component: String,
    writer: Writer,
    queue: QueueFront,
    scheduler: Algorithm,
}

impl Instance {
    fn new(config: GodelConfig, queue: SchedulingQueue) -> Instance {
        let component = config.component.as_deref().unwrap_or_default().to_owned();
        let config = Config { godel: Some(config), ..Config::default() };
        let (mut writer, reader) = Engine::inline(config);
        let queue = QueueFront::new(queue, writer.follow(), reader);
        let framework = Framework::default_profile();
        let scheduler = Algorithm::new(framework, AlgorithmConfig::default(), None);
        Instance { component, writer, queue, scheduler }
    }

    fn named(component: &str) -> Instance {
        Instance::new(
            GodelConfig { component: Some(component.into()), ..GodelConfig::new("godel") },
            queue(),
        )
    }

    fn place(&mut self, pod: &Pod) -> Option<Place> {
        self.writer.publish();
        self.queue.tend(|| NOW);
        self.queue.with(|queue, _| queue.place(&pod.uid))
    }

    /// Schedules and assumes one pod, and returns the object that the API server then has.
    fn schedule(&mut self) -> Option<Pod> {
        self.writer.publish();
        let popped = self.queue.pop(Some(Instant::now()), || NOW).ok()?;
        let decision = self.scheduler.schedule(self.writer.cluster(), &popped.pod).unwrap();
        self.writer.assume_pod(popped.pod.clone().on(decision.node.clone())).unwrap();
        let godel = GodelPod {
            state: "assumed".into(),
            selected_scheduler: Some(self.component.as_str().into()),
            assumed_node: Some(decision.node),
            ..GodelPod::default()
        };
        Some(annotated(popped.pod, Some(godel)))
    }
}

fn queue() -> SchedulingQueue {
    SchedulingQueue::new(Framework::default_profile(), QueueConfig::default())
}

fn annotated(pod: Pod, godel: Option<GodelPod>) -> Pod {
    let mut spec = (**pod.template).clone();
    spec.godel = godel.map(Box::new);
    Pod { template: Template::new(spec), ..pod }
}

fn dispatched(name: &str, to: &str) -> Pod {
    let godel = GodelPod {
        state: "dispatched".into(),
        selected_scheduler: Some(to.into()),
        ..GodelPod::default()
    };
    annotated(pod(name).cpu(10).build(), Some(godel))
}

#[test]
fn two_engines_on_one_watch_schedule_each_pod_once() {
    let mut instances = ["s-0", "s-1"].map(Instance::named);
    for instance in &mut instances {
        instance.writer.add_node(node("n").cpu(64_000).build()).unwrap();
    }
    let mut objects: BTreeMap<String, Pod> = BTreeMap::new();
    for n in 0..60 {
        let name = format!("p{n:02}");
        let object = match n % 6 {
            0 => pod(&*name).cpu(10).build(),
            5 => dispatched(&name, "s-9"),
            n => dispatched(&name, ["s-0", "s-1"][n % 2]),
        };
        objects.insert(name, object);
    }
    // Each engine receives the objects by a different path, and twice.
    for object in objects.values() {
        instances[0].writer.apply(&Event::put_pending(object.clone())).unwrap();
        instances[1].writer.update_pod(&object.uid, object.clone()).unwrap();
    }
    for instance in &mut instances {
        instance.writer.relist(Relist::Pods(objects.values().cloned().collect())).unwrap();
    }
    let mut scheduled: BTreeMap<String, Vec<String>> = BTreeMap::new();
    loop {
        let by: Vec<_> = instances
            .iter_mut()
            .map(|instance| (instance.component.clone(), instance.schedule()))
            .collect();
        if by.iter().all(|(_, pod)| pod.is_none()) {
            break;
        }
        for (component, pod) in
            by.into_iter().filter_map(|(component, pod)| Some((component, pod?)))
        {
            scheduled.entry(pod.name.to_string()).or_default().push(component);
            for instance in &mut instances {
                instance.writer.update_pod(&pod.uid, pod.clone()).unwrap();
            }
            objects.insert(pod.name.to_string(), pod);
        }
    }
    for (n, (name, object)) in objects.iter().enumerate() {
        let expected = match n % 6 {
            0 | 5 => None,
            n => Some(vec![["s-0", "s-1"][n % 2].to_owned()]),
        };
        assert_eq!(scheduled.get(name), expected.as_ref(), "{name} {object:?}");
    }
    for instance in &instances {
        assert_eq!(instance.writer.cluster().pod_count(), 40);
    }
}

#[test]
fn a_queue_follows_the_dispatcher() {
    let mut instance = Instance::named("s-0");
    let mut put = |object: Pod| {
        instance.writer.update_pod(&object.uid, object.clone()).unwrap();
        instance.place(&object)
    };
    let pending = pod("p").cpu(10).build();
    assert_eq!(put(pending.clone()), None, "the pod is not dispatched yet");
    assert_eq!(put(dispatched("p", "s-0")), Some(Place::Active));
    assert_eq!(put(dispatched("p", "s-1")), None, "the pod is dispatched to another scheduler");
    assert_eq!(put(dispatched("p", "s-0")), Some(Place::Active));
    assert_eq!(put(pending), None, "the pod is no longer dispatched");
    // The combination of annotations is not a valid state.
    let godel = |state: &str, node: Option<&str>| GodelPod {
        state: state.into(),
        selected_scheduler: Some("s-0".into()),
        assumed_node: node.map(Into::into),
        ..GodelPod::default()
    };
    assert_eq!(put(annotated(pod("p").build(), Some(godel("", None)))), None);
    assert_eq!(put(annotated(pod("p").build(), Some(godel("dispatched", Some("n"))))), None);
    assert_eq!(put(annotated(pod("p").build(), Some(godel("assumed", Some("n"))))), None);
    // The binder rejects the pod, and it is requeued.
    assert_eq!(put(dispatched("p", "s-0")), Some(Place::Active));
}

#[test]
fn a_pod_added_directly_must_be_dispatched_too() {
    let instance = Instance::named("s-0");
    let add = |pod: Pod| instance.queue.add(pod, NOW);
    let refused = add(dispatched("p", "s-1")).unwrap_err();
    assert!(
        matches!(&refused, QueueError::NotDispatched { component, .. } if **component == *"s-0")
    );
    assert_eq!(add(dispatched("p", "s-0")), Ok(Place::Active));
}

#[test]
fn queues_of_one_engine_may_belong_to_several_instances() {
    let config = GodelConfig { component: Some("s-0".into()), ..GodelConfig::new("godel") };
    let mut instance = Instance::new(config, queue().with_component("s-1"));
    let (own, other) = (dispatched("own", "s-1"), dispatched("other", "s-0"));
    for pod in [&own, &other] {
        instance.writer.apply(&Event::put_pending(pod.clone())).unwrap();
    }
    assert_eq!((instance.place(&own), instance.place(&other)), (Some(Place::Active), None));
}

#[test]
fn without_a_component_name_all_pending_pods_are_queued() {
    let mut instance = Instance::new(GodelConfig::new("godel"), queue());
    for object in [pod("p").build(), dispatched("q", "s-1")] {
        instance.writer.apply(&Event::put_pending(object.clone())).unwrap();
        assert_eq!(instance.place(&object), Some(Place::Active));
    }
}
