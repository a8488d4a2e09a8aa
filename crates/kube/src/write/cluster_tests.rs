//! The writers against an API server with the rules of a real one, which fails on demand.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use portolan::cache::{Config, Engine, Event};
use portolan::model::{ClaimReference, PersistentVolume, PersistentVolumeClaim, Pod, node};
use portolan::plugin::{Assumed, Nomination, PodInPreBind, PodVolumes, VolumeBinder};
use portolan::{Binder, BinderError};
use portolan_apiserver::{ApiServer, Effect, Fault};
use serde_json::{Value, json};

use super::bind::{ApiBinder, Waits};
use super::failure::{FailureReport, Reason};
use super::testing::{World, until};
use super::volumes::{read_claim, read_volume};
use crate::mirror::PendingStatus;
use crate::testing::{apply, server, unschedulable};

/// Creates a pod, which the mirror knows, and returns it.
fn create(server: &ApiServer, world: &World, name: &str) -> Pod {
    let created = server.create(&json!({
        "kind": "Pod", "apiVersion": "v1", "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "registry.example.com/pause:1"}],
        },
    }));
    let created = created.expect("created").to_string();
    let pod = portolan_k8s::pod_from_slice(created.as_bytes()).expect("a pod");
    world.add(&pod);
    pod
}

fn get(server: &ApiServer, kind: &str, name: &str) -> Value {
    let namespace = if kind == "PersistentVolume" { "" } else { "default" };
    server.get(kind, namespace, name).expect("found")
}

fn condition(server: &ApiServer, pod: &str, kind: &str) -> Value {
    let pod = get(server, "Pod", pod);
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|condition| condition["type"] == kind).unwrap_or_default()
}

/// Faults of bindings and of reads of pods, half of them after the work was done.
fn faults() -> Vec<Fault> {
    let bindings = [
        (Effect::HangAfter, 0.02),
        (Effect::HangBefore, 0.02),
        (Effect::ResetAfter, 0.1),
        (Effect::ResetBefore, 0.1),
        (Effect::timeout_after(), 0.1),
        (Effect::internal_error_after(), 0.1),
        (Effect::internal_error(), 0.1),
        (Effect::too_many_requests(0), 0.1),
        (Effect::CutBody(5), 0.1),
    ];
    let reads = [(Effect::ResetBefore, 0.1), (Effect::unavailable(), 0.1)];
    let bindings = bindings.map(|(effect, probability)| {
        Fault::new(effect).verb("create").resource("pods/binding").probability(probability)
    });
    let reads = reads.map(|(effect, probability)| {
        Fault::new(effect).verb("get").resource("pods").probability(probability)
    });
    bindings.into_iter().chain(reads).collect()
}

#[test]
fn a_binding_is_reported_as_it_happened_whatever_fails() {
    const PODS: usize = 240;
    let server = server();
    let world = World::of(server.address(), Duration::from_millis(400));
    let pods: Vec<Pod> =
        (0..PODS).map(|number| create(&server, &world, &format!("p{number}"))).collect();
    // Another scheduler takes some pods, and some are deleted.
    for number in (0..PODS).step_by(12) {
        server.bind("default", &format!("p{number}"), "other").expect("bound");
        let gone = format!("p{}", number + 1);
        server.delete("Pod", "default", &gone, &Value::Null).expect("deleted");
    }
    let before = server.write_count();
    server.set_faults(7, faults());
    let (first, longest) = (Duration::from_millis(1), Duration::from_millis(20));
    let waits = Waits { first, longest, asked: longest };
    let binder = ApiBinder { waits, ..world.writes.binder() };
    let (queue, outcomes) = (Mutex::new(pods.iter()), Mutex::new(HashMap::new()));
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                loop {
                    let Some(pod) = queue.lock().expect("queue").next() else { return };
                    let outcome = binder.bind(pod, &"n1".into());
                    outcomes.lock().expect("outcomes").insert(pod.name.clone(), outcome);
                }
            });
        }
    });
    server.set_faults(0, Vec::new());
    let mut bound = 0;
    for (number, pod) in pods.iter().enumerate() {
        let outcome = &outcomes.lock().expect("outcomes")[&pod.name];
        if number % 12 < 2 {
            assert!(matches!(outcome, Err(BinderError::Conflict(_))), "{}: {outcome:?}", pod.name);
            continue;
        }
        let node = &get(&server, "Pod", &pod.name)["spec"]["nodeName"];
        match outcome {
            Ok(()) => {
                assert_eq!(node, "n1", "{}", pod.name);
                bound += 1;
            }
            Err(BinderError::Failed(_)) => assert_eq!(node, &Value::Null, "{}", pod.name),
            other => panic!("{}: {other:?}", pod.name),
        }
    }
    assert!(bound > PODS * 3 / 4, "{bound} bound");
    let writes = server.writes().split_off(before);
    let applied = writes.iter().filter(|write| write.resource == "pods/binding" && write.applied);
    assert_eq!(applied.count(), bound);
    assert!(server.faults_fired().is_empty());
}

#[test]
fn a_status_does_not_reach_a_pod_that_was_created_again() {
    let server = server();
    let world = World::of(server.address(), Duration::from_secs(20));
    let old = create(&server, &world, "p");
    server.delete("Pod", "default", "p", &Value::Null).expect("deleted");
    let new = create(&server, &world, "p");
    assert_ne!(old.uid, new.uid);
    let status = world.writes.status();
    let failure = FailureReport::new(Reason::Unschedulable, "old", Nomination::Keep);
    status.report_failure(&old, failure);
    until(|| status.figures().failed == 1);
    assert_eq!(condition(&server, "p", "PodScheduled"), Value::Null);
    let nominated = world.writes.binder().nominate(&old, &"n1".into());
    assert!(matches!(nominated, Err(BinderError::Conflict(_))), "{nominated:?}");
    let bound = world.writes.binder().bind(&old, &"n1".into());
    assert!(matches!(bound, Err(BinderError::Conflict(_))), "{bound:?}");
}

#[test]
fn conditions_that_others_wrote_survive_a_status() {
    let server = server();
    let world = World::of(server.address(), Duration::from_secs(20));
    let pod = create(&server, &world, "p");
    let others = json!({"status": {"conditions": [
        {"type": "example.com/before", "status": "True"},
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no"},
        {"type": "example.com/after", "status": "True"},
    ]}});
    server.patch_status("Pod", "default", "p", &others).expect("patched");
    let known = PendingStatus { nominated: None, scheduled: Some(unschedulable("False", "no")) };
    world.edit(&pod, |pod| pod.pending = Some(Box::new(known)));
    let failure = FailureReport::new(Reason::SchedulerError, "broken", Nomination::Keep);
    world.writes.status().report_failure(&pod, failure);
    until(|| world.writes.status().figures().sent == 1);
    let conditions = get(&server, "Pod", "p")["status"]["conditions"].clone();
    let kinds: Vec<&Value> =
        conditions.as_array().expect("a list").iter().map(|condition| &condition["type"]).collect();
    assert_eq!(kinds, ["example.com/before", "PodScheduled", "example.com/after"]);
    assert_eq!(conditions[1]["message"], "broken");
    assert_eq!(conditions[1]["reason"], "SchedulerError");
}

/// An engine with the node n1.
fn engine() -> Engine {
    let engine = Engine::shared(Config::default());
    let n1 = node("n1").label("kubernetes.io/hostname", "n1").build();
    apply(&engine, Event::add_node(n1));
    engine
}

fn create_claim(server: &ApiServer, provisioner: &str) {
    let class = json!({
        "kind": "StorageClass", "apiVersion": "storage.k8s.io/v1", "metadata": {"name": "c"},
        "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer",
    });
    let claim = json!({
        "kind": "PersistentVolumeClaim", "apiVersion": "v1", "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "c",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    server.create(&class).expect("created");
    server.create(&claim).expect("created");
}

fn create_volume(server: &ApiServer, claim: Value) {
    let volume = json!({
        "kind": "PersistentVolume", "apiVersion": "v1", "metadata": {"name": "pv-a"},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "storageClassName": "c", "hostPath": {"path": "/mnt"}, "claimRef": claim,
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]},
            ]}]}},
        },
    });
    server.create(&volume).expect("created");
    until(|| get(server, "PersistentVolume", "pv-a")["status"]["phase"] != "Pending");
}

fn known_claim(server: &ApiServer) -> PersistentVolumeClaim {
    let claim = get(server, "PersistentVolumeClaim", "data").to_string();
    read_claim(claim.as_bytes()).expect("a claim")
}

fn bind(world: &World, engine: &Engine, pod: &Pod, volumes: &PodVolumes) -> Result<(), String> {
    let mut binder = world.writes.volume_binder(&engine.downgrade());
    binder.poll = Duration::from_millis(5);
    binder.bind(pod, &"n1".into(), volumes, Duration::from_secs(20), &PodInPreBind::default())
}

#[test]
fn an_existing_volume_is_bound_with_the_volume_controller() {
    let (server, engine) = (server(), engine());
    let world = World::of(server.address(), Duration::from_secs(20));
    let pod = create(&server, &world, "p");
    create_claim(&server, "kubernetes.io/no-provisioner");
    create_volume(&server, Value::Null);
    let volume = get(&server, "PersistentVolume", "pv-a").to_string();
    let before = read_volume(volume.as_bytes()).expect("a volume");
    let claim = known_claim(&server);
    let (namespace, name, uid) = (claim.namespace, claim.name, claim.uid);
    let reference = Some(ClaimReference { namespace, name, uid });
    let after = PersistentVolume { claim: reference, ..before.clone() };
    let binding = Assumed { before: Arc::new(before), after: Arc::new(after) };
    let volumes = PodVolumes { bindings: vec![binding], ..PodVolumes::default() };
    bind(&world, &engine, &pod, &volumes).expect("bound");
    assert!(known_claim(&server).is_bound);
    assert_eq!(&*known_claim(&server).volume, "pv-a");
    // A second attempt finds the volume as it should be.
    let before = server.write_count();
    bind(&world, &engine, &pod, &volumes).expect("bound");
    assert_eq!(server.write_count(), before);
}

#[test]
fn a_volume_is_provisioned_for_the_selected_node() {
    let (server, engine) = (server(), engine());
    let world = World::of(server.address(), Duration::from_secs(20));
    let pod = create(&server, &world, "p");
    create_claim(&server, "example.com/prov");
    let before = known_claim(&server);
    let after = PersistentVolumeClaim { selected_node: "n1".into(), ..before.clone() };
    let claim = Assumed { before: Arc::new(before), after: Arc::new(after) };
    let volumes = PodVolumes { to_provision: vec![claim], ..PodVolumes::default() };
    thread::scope(|scope| {
        let bound = scope.spawn(|| bind(&world, &engine, &pod, &volumes));
        until(|| &*known_claim(&server).selected_node == "n1");
        // The provisioner creates the volume.
        let claim = get(&server, "PersistentVolumeClaim", "data");
        let uid = &claim["metadata"]["uid"];
        create_volume(&server, json!({"namespace": "default", "name": "data", "uid": uid}));
        bound.join().expect("no panic").expect("bound");
    });
    assert!(known_claim(&server).is_bound);
}
