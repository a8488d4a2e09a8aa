//! A whole scheduler and one fault at a time. The tests of the crate's modules cover every answer to each request.
//! These tests show that the modules interpret an answer in the same way.

use std::time::{Duration, Instant};

use crate::support::{
    PATIENCE, Process, TIMEOUT, client, condition, create_class, find, high_pod, limits, node,
    node_of, pod, runtime_of, server, until,
};
use futures_util::FutureExt;
use portolan::model::Uid;
use portolan_apiserver::{ApiServer, Effect, Fault, Write};
use portolan_kube::api::Limits;
use portolan_kube::mirror::KindFigures;
use portolan_kube::process::{LiveConfig, LiveScheduler};
use portolan_kube::write::Fence;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// A server with nodes, and a scheduler that leads.
struct World {
    process: Process,
    runtime: Runtime,
    server: ApiServer,
}

impl World {
    /// Starts a scheduler on nodes of 1 CPU.
    fn start(nodes: u32) -> World {
        World::with(nodes, limits(TIMEOUT))
    }

    fn with(nodes: u32, limits: Limits) -> World {
        let server = server();
        for n in 0..nodes {
            server.create(&node(&format!("n{n}"), 1_000)).expect("created");
        }
        let runtime = runtime_of(1);
        let mut process = Process::with(&runtime, &server, "ours", 1, limits);
        process.lead(&runtime);
        World { process, runtime, server }
    }

    fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds() {
            assert!(Instant::now() < deadline, "timed out: {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn fault(&self, fault: Fault) {
        self.server.set_faults(0, vec![fault]);
    }

    fn create(&self, name: &str, cpu: u64) -> Value {
        self.server.create(&pod(name, cpu)).expect("created")
    }

    fn node_of(&self, name: &str) -> Option<String> {
        node_of(&self.server, name)
    }

    /// Waits until a pod is bound, and returns its node.
    fn bound(&self, name: &str) -> String {
        self.until(name, || self.node_of(name).is_some());
        // A write is recorded after it was done.
        self.until("the record", || {
            let mut writes = self.server.writes().into_iter();
            writes.any(|write| {
                write.resource == "pods/binding" && write.name == name && write.applied
            })
        });
        self.node_of(name).expect("bound")
    }

    /// The writes of the scheduler to a resource.
    fn writes(&self, resource: &str) -> Vec<Write> {
        let is_ours = |write: &Write| write.user_agent == "ours" && write.resource == resource;
        self.server.writes().into_iter().filter(is_ours).collect()
    }

    /// The nodes that bindings of a pod named, in order, and whether each binding was applied.
    fn sent(&self, name: &str) -> Vec<(String, bool)> {
        let sent = self.writes("pods/binding").into_iter().filter(|write| write.name == name);
        let target = |write: &Write| write.body["target"]["name"].as_str().map(str::to_owned);
        sent.map(|write| (target(&write).expect("a node"), write.applied)).collect()
    }

    fn condition(&self, name: &str) -> Value {
        condition(&self.server, name)
    }

    /// The mirror's figures of pods.
    fn figures(&self) -> KindFigures {
        let figures = self.process.live.mirror().figures();
        figures.into_iter().find(|figures| figures.kind == "Pod").expect("pods")
    }

    fn knows(&self, uid: &str) -> bool {
        let reader = self.process.live.schedulers().engine().reader().expect("open");
        reader.snapshot().pod(&Uid::new(uid)).is_some()
    }
}

fn bindings(effect: Effect) -> Fault {
    Fault::new(effect).verb("create").resource("pods/binding")
}

#[test]
fn a_binding_whose_answer_is_lost_is_not_repeated_on_another_node() {
    for effect in [
        Effect::ResetAfter,
        Effect::HangAfter,
        Effect::timeout_after(),
        Effect::internal_error_after(),
    ] {
        let world = World::start(5);
        world.fault(bindings(effect.clone()));
        world.create("a", 100);
        let node = world.bound("a");
        // The event follows when the outcome is known.
        world.until("the event", || world.writes("events").iter().any(|write| write.applied));
        assert_eq!(world.sent("a"), [(node, true)], "{effect:?}");
        assert_eq!(world.process.live.figures().not_bound, 0, "{effect:?}");
    }
}

#[test]
fn a_binding_that_fails_three_times_is_reported_and_the_pod_is_retried() {
    let world = World::start(1);
    world.fault(bindings(Effect::internal_error()).limit(3));
    world.create("a", 100);
    world.until("the report", || world.condition("a")["reason"] == "SchedulerError");
    world.bound("a");
    assert_eq!(world.sent("a").len(), 4);
    assert_eq!(world.condition("a")["status"], "True");
}

#[test]
fn a_pod_whose_binding_is_delayed_stays_assumed() {
    let world = World::start(1);
    world.fault(bindings(Effect::too_many_requests(1)).limit(1));
    let first = world.create("a", 600);
    world.until("a binding", || !world.sent("a").is_empty());
    world.create("b", 600);
    world.until("the report", || world.condition("b")["reason"] == "Unschedulable");
    assert!(world.node_of("a").is_none() && world.knows(uid(&first)), "assumed and not bound");
    world.bound("a");
    let sent = world.writes("pods/binding");
    let waited = sent[1].at - sent[0].at;
    assert_eq!((sent.len(), world.node_of("b")), (2, None));
    assert!(waited >= Duration::from_millis(900), "{waited:?}");
}

#[test]
fn a_pod_that_another_scheduler_binds_meanwhile_frees_its_resources() {
    let world = World::start(1);
    let mut elsewhere = node("elsewhere", 1_000);
    elsewhere["spec"]["unschedulable"] = json!(true);
    world.server.create(&elsewhere).expect("created");
    world.fault(bindings(Effect::HangBefore).name("a"));
    world.create("a", 1_000);
    world.until("a placement", || world.process.live.figures().placed > 0);
    world.create("b", 1_000);
    world.until("the report", || world.condition("b")["reason"] == "Unschedulable");
    world.server.bind("default", "a", "elsewhere").expect("bound");
    assert_eq!(world.bound("b"), "n0");
    assert_eq!(world.bound("a"), "elsewhere");
    assert!(world.sent("a").iter().all(|(_, applied)| !applied));
}

#[test]
fn a_pod_that_is_deleted_during_its_binding_frees_its_resources() {
    let world = World::start(1);
    world.fault(bindings(Effect::Delay(Duration::from_millis(200))).name("a"));
    let first = world.create("a", 1_000);
    world.until("a placement", || world.process.live.figures().placed > 0);
    world.server.delete("Pod", "default", "a", &Value::Null).expect("deleted");
    world.create("b", 1_000);
    assert_eq!(world.bound("b"), "n0");
    assert!(!world.knows(uid(&first)));
}

#[test]
fn a_pod_that_takes_the_name_of_a_deleted_one_is_bound_by_its_own_uid() {
    let world = World::start(1);
    world.fault(bindings(Effect::Delay(Duration::from_millis(200))).name("a").limit(1));
    world.create("a", 1_000);
    world.until("a placement", || world.process.live.figures().placed > 0);
    world.server.delete("Pod", "default", "a", &Value::Null).expect("deleted");
    let second = world.create("a", 1_000);
    world.bound("a");
    let applied: Vec<_> =
        world.writes("pods/binding").into_iter().filter(|write| write.applied).collect();
    assert_eq!(applied.len(), 1);
    assert_eq!(applied[0].body["metadata"]["uid"], second["metadata"]["uid"]);
}

#[test]
fn a_watch_that_is_cut_off_resumes_and_only_one_that_expires_lists_again() {
    for (effect, relists) in [
        (Effect::EndStream, 1),
        (Effect::ResetStream, 1),
        (Effect::TruncateEvent, 1),
        (Effect::gone_event(), 2),
    ] {
        let world = World::start(2);
        world.create("before", 100);
        world.bound("before");
        world.fault(Fault::new(effect.clone()).verb("watch").resource("pods").name("a").limit(1));
        world.create("a", 100);
        world.bound("a");
        assert_eq!(world.server.faults_fired(), [1], "{effect:?}");
        // The pod may be bound before the end of a list is counted.
        world.until("the list", || world.figures().relists >= relists);
        assert_eq!((world.figures().relists, world.sent("a").len()), (relists, 1), "{effect:?}");
    }
    let world = World::start(2);
    world.server.reset_connections();
    world.create("a", 100);
    world.bound("a");
    assert_eq!(world.figures().relists, 1);
}

#[test]
fn a_server_that_restarts_with_an_empty_cache_loses_no_pod() {
    let world = World::start(5);
    for n in 0..20 {
        world.create(&format!("early-{n}"), 100);
    }
    world.server.restart(Duration::from_millis(100)).expect("restarted");
    for n in 0..20 {
        world.create(&format!("late-{n}"), 100);
    }
    for n in 0..20 {
        world.bound(&format!("early-{n}"));
        world.bound(&format!("late-{n}"));
    }
    world.until("the mirror", || world.process.differences(&world.server).is_empty());
}

#[test]
fn a_server_with_an_older_cache_does_not_lead_to_a_second_binding() {
    let world = World::start(2);
    // The scheduler neither sees new pods nor the end of its own bindings, also after it has connected again.
    let without_news = |name: &str, disconnect: &dyn Fn()| {
        world.server.stall_cache("Pod").expect("known");
        let created = world.create(name, 100);
        // A streamed list is a watch, too.
        world.fault(Fault::new(Effect::Delay(Duration::ZERO)).verb("watch").resource("pods"));
        disconnect();
        world.until("a new watch", || world.server.faults_fired()[0] > 0);
        let known = world.process.live.mirror().pods().get(&Uid::new(uid(&created)));
        assert_eq!(known, None, "{name}");
        world.server.resume_cache("Pod").expect("known");
        world.bound(name);
    };
    without_news("unseen", &|| world.server.reset_connections());
    without_news("late", &|| {
        world.server.restart(Duration::from_millis(10)).expect("restarted");
    });
    assert_eq!((world.sent("unseen").len(), world.sent("late").len()), (1, 1));
}

#[test]
fn a_lone_scheduler_reports_a_binding_that_conflicts() {
    let world = World::start(1);
    world.fault(bindings(Effect::conflict()).limit(1));
    world.create("a", 100);
    world.bound("a");
    let reports = world.writes("pods/status");
    let [report] = &reports[..] else { panic!("{} reports", reports.len()) };
    let condition = &report.body["status"]["conditions"][0];
    assert_eq!(condition["status"], "False");
    assert_eq!(condition["reason"], "SchedulerError");
}

#[test]
fn a_preemption_survives_faults_of_its_deletion() {
    for effect in [
        Effect::internal_error(),
        Effect::ResetBefore,
        Effect::ResetAfter,
        Effect::HangBefore,
        Effect::HangAfter,
        Effect::conflict(),
    ] {
        let world = World::start(1);
        create_class(&world.server, "high", 1_000);
        world.create("victim", 800);
        world.bound("victim");
        world.fault(Fault::new(effect.clone()).verb("delete").resource("pods").limit(1));
        world.server.create(&high_pod("preemptor", 800)).expect("created");
        world.until(&format!("{effect:?}"), || world.node_of("preemptor").is_some());
        assert_eq!(find(&world.server, "victim"), Value::Null, "{effect:?}");
        assert_eq!(world.server.faults_fired(), [1], "{effect:?}");
    }
}

#[test]
fn a_binding_that_waits_for_its_turn_is_not_sent_without_the_lease() {
    let mut narrow = limits(TIMEOUT);
    narrow.in_flight = 1;
    let world = World::with(2, narrow);
    world.fault(bindings(Effect::Delay(Duration::from_millis(100))));
    (0..8).for_each(|n| drop(world.create(&format!("a-{n}"), 100)));
    world.until("a binding", || world.writes("pods/binding").iter().any(|write| write.applied));
    world.process.fence.close();
    let before = world.writes("pods/binding").len();
    world.until("the others", || {
        let figures = world.process.live.figures();
        figures.not_bound > 0 && figures.bound + figures.not_bound >= 8
    });
    // One may have been under way.
    assert!(world.writes("pods/binding").len() <= before + 1);
}

fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().expect("a uid")
}

/// Creates pods with claims on a node of 1 CPU, and starts a scheduler. Nothing provisions volumes, so the pods wait for
/// as long as the binding may take.
fn with_claims(runtime: &Runtime, pods: &[&str], cpu: u64) -> (ApiServer, LiveScheduler) {
    let server = server();
    server.create(&node("n0", 1_000)).expect("created");
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "slow"},
        "provisioner": "example.com/slow", "volumeBindingMode": "WaitForFirstConsumer",
    });
    server.create(&class).expect("created");
    for &name in pods {
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "storageClassName": "slow", "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        });
        server.create(&claim).expect("created");
        let mut pod = pod(name, cpu);
        let source = json!({"claimName": name});
        pod["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": source}]);
        server.create(&pod).expect("created");
    }
    let mut live = runtime.block_on(async {
        let api = client(&server, "ours", limits(PATIENCE));
        LiveScheduler::start(api, Fence::opened(), LiveConfig::default()).expect("started")
    });
    runtime.block_on(live.mirror().synced()).expect("synced");
    live.begin().expect("begun");
    let has_node = |claim: &Value| {
        !claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"].is_null()
    };
    let all = || server.objects("PersistentVolumeClaim").iter().all(has_node);
    runtime.block_on(until("each claim has a node, and its pod waits", all));
    (server, live)
}

#[test]
fn pods_that_wait_for_volumes_do_not_delay_each_other() {
    let runtime = Runtime::new().expect("a runtime");
    let (_server, live) = with_claims(&runtime, &["a", "b", "c"], 100);
    runtime.block_on(live.stop(Duration::ZERO));
}

#[test]
fn a_victim_that_waits_for_its_volumes_is_not_deleted() {
    let runtime = Runtime::new().expect("a runtime");
    let (server, live) = with_claims(&runtime, &["low"], 800);
    create_class(&server, "high", 1_000);
    let high = server.create(&high_pod("high", 800)).expect("created");
    runtime.block_on(until("bound", || node_of(&server, "high").as_deref() == Some("n0")));
    let note = |reason: &str| {
        let is = |of: &Value| of["reason"] == reason && of["regarding"]["name"] == "low";
        server.objects("Event").into_iter().find(is).unwrap_or_default()["note"].clone()
    };
    let preempted =
        format!("Preempted by pod {} on node n0 (in kube-scheduler memory).", uid(&high));
    let failed = "running PreBind plugin \"VolumeBinding\": binding volumes: context canceled";
    for (reason, expected) in [("Preempted", &*preempted), ("FailedScheduling", failed)] {
        runtime.block_on(until(reason, || !note(reason).is_null()));
        assert_eq!(note(reason), expected);
    }
    let deletions = server.writes().into_iter().filter(|write| write.verb == "delete").count();
    assert_eq!(deletions, 0);
    let low = server.get("Pod", "default", "low").expect("it exists");
    assert_eq!(low["spec"]["nodeName"], Value::Null);
    assert_eq!(low["metadata"]["deletionTimestamp"], Value::Null);
    runtime.block_on(live.stop(Duration::ZERO));
}

#[test]
fn a_scheduler_whose_engine_or_mirror_has_ended_has_failed() {
    let ends: [fn(&World); 2] = [
        |world| world.process.live.schedulers().engine().close(),
        |world| world.runtime.block_on(world.process.live.mirror().stop()),
    ];
    for end in ends {
        let world = World::start(1);
        let failed = async || world.process.live.failed().await;
        assert_eq!(world.runtime.block_on(async { failed().now_or_never() }), None);
        end(&world);
        let failed = async { tokio::time::timeout(PATIENCE, failed()).await };
        assert!(world.runtime.block_on(failed).is_ok());
    }
}
