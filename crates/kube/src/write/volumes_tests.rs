//! The binding of volumes, as the API server receives it, and every way in which it fails.

use std::time::Duration;

use portolan::cache::{Config, Engine, Event};
use portolan::model::{ClaimReference, PersistentVolume, PersistentVolumeClaim, Pod, node, pod};
use portolan::plugin::{Assumed, PodInPreBind, PodVolumes, VolumeBinder};
use serde_json::{Value, json};

use super::testing::{Answer, Seen, World, ok, refused};
use super::volumes::{read_claim, read_volume};
use crate::testing::apply;

fn volume(claim: Value) -> Value {
    json!({
        "kind": "PersistentVolume", "apiVersion": "v1",
        "metadata": {"name": "pv-a", "uid": "u-pv", "resourceVersion": "10"},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local", "claimRef": claim,
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]},
            ]}]}},
        },
        "status": {"phase": "Available"},
    })
}

fn claim(annotations: Value, volume: &str) -> Value {
    json!({
        "kind": "PersistentVolumeClaim", "apiVersion": "v1",
        "metadata": {
            "name": "data", "namespace": "shop", "uid": "u-pvc", "resourceVersion": "20",
            "annotations": annotations,
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "local", "volumeName": volume,
            "resources": {"requests": {"storage": "1Gi"}},
        },
        "status": {"phase": "Pending"},
    })
}

fn parsed_volume(value: &Value) -> PersistentVolume {
    read_volume(value.to_string().as_bytes()).expect("a volume")
}

fn parsed_claim(value: &Value) -> PersistentVolumeClaim {
    read_claim(value.to_string().as_bytes()).expect("a claim")
}

fn reference() -> Value {
    json!({"kind": "PersistentVolumeClaim", "namespace": "shop", "name": "data", "uid": "u-pvc"})
}

fn fixed() -> PodVolumes {
    let before = parsed_volume(&volume(Value::Null));
    let claim =
        ClaimReference { namespace: "shop".into(), name: "data".into(), uid: "u-pvc".into() };
    let after = PersistentVolume { claim: Some(claim), ..before.clone() };
    let binding = Assumed { before: before.into(), after: after.into() };
    PodVolumes { bindings: vec![binding], ..PodVolumes::default() }
}

fn provisioned() -> PodVolumes {
    let before = parsed_claim(&claim(Value::Null, ""));
    let after = PersistentVolumeClaim { selected_node: "n1".into(), ..before.clone() };
    let claim = Assumed { before: before.into(), after: after.into() };
    PodVolumes { to_provision: vec![claim], ..PodVolumes::default() }
}

fn web() -> Pod {
    pod("web-0").namespace("shop").uid("u-1").build()
}

const LONG: Duration = Duration::from_secs(20);

struct Cluster {
    world: World,
    engine: Engine,
}

impl Cluster {
    /// A node n1, and the pod.
    fn new(script: impl Fn(&Seen, usize) -> Answer + Send + Sync + 'static) -> Cluster {
        let engine = Engine::shared(Config::default());
        let n1 = node("n1").label("kubernetes.io/hostname", "n1").build();
        apply(&engine, Event::add_node(n1));
        let world = World::new(script);
        world.add(&web());
        Cluster { world, engine }
    }

    fn bind(&self, volumes: &PodVolumes) -> Result<(), String> {
        self.bind_pod(&web(), "n1", volumes, LONG)
    }

    fn bind_pod(
        &self,
        pod: &Pod,
        node: &str,
        volumes: &PodVolumes,
        limit: Duration,
    ) -> Result<(), String> {
        let mut binder = self.world.writes.volume_binder(&self.engine.downgrade());
        binder.poll = Duration::from_millis(1);
        binder.bind(pod, &node.into(), volumes, limit, &PodInPreBind::default())
    }

    fn patches(&self) -> Vec<Seen> {
        self.world.seen().into_iter().filter(|seen| seen.method == "PATCH").collect()
    }
}

fn last(answers: &[Value], n: usize) -> Answer {
    let answer = &answers[n.min(answers.len() - 1)];
    if answer.is_null() { refused(404, "not found") } else { Answer::Json(200, answer.clone()) }
}

/// A cluster that answers reads of the volume and of the claim in this order, and the last one again. `null` is 404.
fn cluster(volumes: Vec<Value>, claims: Vec<Value>) -> Cluster {
    Cluster::new(move |seen, n| match seen {
        _ if seen.is("GET", "/pv-a") => last(&volumes, n),
        _ if seen.is("GET", "/data") => last(&claims, n),
        _ => ok(),
    })
}

fn completed() -> Value {
    json!({"pv.kubernetes.io/bind-completed": "yes"})
}

fn selected() -> Value {
    json!({"volume.kubernetes.io/selected-node": "n1"})
}

fn both() -> Value {
    json!({
        "volume.kubernetes.io/selected-node": "n1", "pv.kubernetes.io/bind-completed": "yes",
    })
}

#[test]
fn an_existing_volume_gets_its_claim() {
    let claims = vec![claim(Value::Null, ""), claim(Value::Null, ""), claim(completed(), "pv-a")];
    let cluster = cluster(vec![volume(Value::Null), volume(reference())], claims);
    cluster.bind(&fixed()).expect("bound");
    let patches = cluster.patches();
    assert_eq!(patches.len(), 1);
    assert_eq!(patches[0].line(), "PATCH /api/v1/persistentvolumes/pv-a");
    assert_eq!(patches[0].format, "application/merge-patch+json");
    let expected = json!({
        "metadata": {
            "uid": "u-pv", "resourceVersion": "10",
            "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"},
        },
        "spec": {"claimRef": {
            "kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": "shop",
            "name": "data", "uid": "u-pvc", "resourceVersion": "20",
        }},
    });
    assert_eq!(patches[0].body, expected);
}

#[test]
fn a_volume_that_is_reserved_by_name_is_not_marked_as_bound_by_us() {
    let by_name = json!({"namespace": "shop", "name": "data"});
    let known = volume(by_name);
    let cluster =
        cluster(vec![known.clone(), volume(reference())], vec![claim(completed(), "pv-a")]);
    let mut volumes = fixed();
    volumes.bindings[0].before = parsed_volume(&known).into();
    cluster.bind(&volumes).expect("bound");
    assert_eq!(cluster.patches()[0].body["metadata"]["annotations"], Value::Null);
}

#[test]
fn a_claim_to_be_provisioned_gets_its_node() {
    let claims = vec![claim(Value::Null, ""), claim(selected(), ""), claim(both(), "pv-a")];
    let cluster = cluster(vec![Value::Null, volume(reference())], claims);
    cluster.bind(&provisioned()).expect("bound");
    let patches = cluster.patches();
    let path = "PATCH /api/v1/namespaces/shop/persistentvolumeclaims/data";
    assert_eq!((patches.len(), patches[0].line()), (1, path.to_owned()));
    let expected = json!({"metadata": {
        "uid": "u-pvc", "resourceVersion": "20",
        "annotations": {"volume.kubernetes.io/selected-node": "n1"},
    }});
    assert_eq!(patches[0].body, expected);
}

#[test]
fn what_is_as_decided_already_is_not_written() {
    let cluster = cluster(vec![volume(reference())], vec![claim(both(), "pv-a")]);
    cluster.bind(&fixed()).expect("bound");
    cluster.bind(&provisioned()).expect("bound");
    assert!(cluster.patches().is_empty());
}

#[test]
fn objects_that_have_changed_are_conflicts() {
    let modified = |what: &str| {
        format!(
            "Operation cannot be fulfilled on {what}: the object has been modified; please apply your changes to the \
             latest version and try again"
        )
    };
    let taken = volume(json!({"namespace": "shop", "name": "other", "uid": "u-9"}));
    let cluster = self::cluster(vec![taken], vec![claim(Value::Null, "")]);
    let expected = modified("persistentvolumes \"pv-a\"");
    assert_eq!(cluster.bind(&fixed()), Err(expected));
    let elsewhere = claim(json!({"volume.kubernetes.io/selected-node": "n2"}), "");
    let cluster = self::cluster(vec![], vec![elsewhere]);
    let expected = modified("persistentvolumeclaims \"data\"");
    assert_eq!(cluster.bind(&provisioned()), Err(expected));
    assert!(cluster.patches().is_empty());

    let cluster = Cluster::new(|seen, _| match &*seen.method {
        "GET" => Answer::Json(200, claim(Value::Null, "")),
        _ => refused(409, "the text of the server"),
    });
    assert_eq!(cluster.bind(&provisioned()), Err("the text of the server".to_owned()));
}

/// Binds an existing volume whose claim is never complete, after these changes.
fn fails(volumes: Vec<Value>, claims: Vec<Value>) -> String {
    cluster(volumes, claims).bind(&fixed()).expect_err("fails")
}

#[test]
fn failures_of_an_existing_volume_have_kube_schedulers_texts() {
    let open = || claim(Value::Null, "");
    assert_eq!(
        fails(vec![volume(Value::Null), Value::Null], vec![open()]),
        "binding volumes: failed to check binding: could not find v1.PersistentVolume \"pv-a\"",
    );
    assert_eq!(
        fails(vec![volume(Value::Null), volume(reference())], vec![open(), Value::Null]),
        "binding volumes: failed to check binding: could not find v1.PersistentVolumeClaim \"shop/data\"",
    );
    assert_eq!(
        fails(vec![volume(Value::Null)], vec![open()]),
        "binding volumes: ClaimRef got reset for pv \"pv-a\"",
    );
    let cluster = cluster(vec![volume(Value::Null), volume(reference())], vec![open()]);
    let n2 = node("n2").label("kubernetes.io/hostname", "n2").build();
    apply(&cluster.engine, Event::add_node(n2));
    assert_eq!(
        cluster.bind_pod(&web(), "n2", &fixed(), LONG).expect_err("fails"),
        "binding volumes: pv \"pv-a\" node affinity doesn't match node \"n2\": no matching NodeSelectorTerms",
    );
}

#[test]
fn failures_of_provisioning_have_kube_schedulers_texts() {
    let fails = |claims: Vec<Value>| {
        cluster(vec![volume(reference())], claims).bind(&provisioned()).expect_err("fails")
    };
    let open = || claim(Value::Null, "");
    assert_eq!(
        fails(vec![open(), Value::Null]),
        "binding volumes: failed to check provisioning pvc: could not find v1.PersistentVolumeClaim \"shop/data\"",
    );
    assert_eq!(
        fails(vec![open()]),
        "binding volumes: selectedNode annotation reset for PVC \"data\""
    );
    let reset = claim(json!({"other": "annotation"}), "");
    assert_eq!(fails(vec![open(), reset]), "binding volumes: provisioning failed for PVC \"data\"");
}

#[test]
fn binding_ends_if_the_node_or_the_pod_is_gone() {
    let cluster = cluster(vec![volume(reference())], vec![claim(Value::Null, "")]);
    assert_eq!(
        cluster.bind_pod(&web(), "n3", &fixed(), LONG).expect_err("fails"),
        "binding volumes: failed to get node \"n3\": node \"n3\" not found",
    );
    let elsewhere = Pod { uid: "u-2".into(), ..web() };
    assert_eq!(
        cluster.bind_pod(&elsewhere, "n1", &fixed(), LONG).expect_err("fails"),
        "binding volumes: pod does not exist any more: pod \"web-0\" not found",
    );
}

#[test]
fn binding_ends_after_its_timeout_or_with_the_lease() {
    let open = || cluster(vec![volume(reference())], vec![claim(Value::Null, "")]);
    let bound = open().bind_pod(&web(), "n1", &fixed(), Duration::from_millis(20));
    assert_eq!(bound, Err("binding volumes: context deadline exceeded".to_owned()));
    let cluster = open();
    cluster.world.fence.close();
    let no_lease = Err("this scheduler does not hold its lease".to_owned());
    assert_eq!(cluster.bind(&fixed()), no_lease);
    let cluster = self::cluster(vec![volume(Value::Null)], vec![claim(Value::Null, "")]);
    cluster.world.fence.open_until(std::time::Instant::now());
    assert_eq!(
        (cluster.bind(&fixed()), cluster.bind(&provisioned())),
        (no_lease.clone(), no_lease)
    );
    assert!(cluster.patches().is_empty());
}

#[test]
fn an_object_that_cannot_be_read_now_is_read_again() {
    let script = |seen: &Seen, n: usize| match seen {
        _ if seen.is("GET", "/pv-a") && n == 1 => refused(500, "etcd"),
        _ if seen.is("GET", "/pv-a") && n == 2 => Answer::Broken,
        _ if seen.is("GET", "/pv-a") => Answer::Json(200, volume(reference())),
        _ => Answer::Json(200, claim(completed(), "pv-a")),
    };
    Cluster::new(script).bind(&fixed()).expect("bound");
}
