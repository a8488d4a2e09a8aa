//! Devices and resource claims, from a server to the store.

use std::sync::Arc;

use portolan::cache::{Config, Engine, Event};
use portolan_apiserver::{ApiServer, PatchKind};
use portolan_dra::Devices;
use portolan_dra::model::{ResourceClaim, read};
use portolan_dra::store::DeviceEvent;
use serde_json::{Value, json};

use super::server::{options, until};
use crate::mirror::{Mirror, MirrorError};
use crate::testing::{api, apply, server};

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn slice(name: &str) -> Value {
    let pool = json!({"name": "n1", "generation": 1, "resourceSliceCount": 1});
    let spec = json!({"driver": "d", "pool": pool, "nodeName": "n1", "devices": [{"name": "gpu"}]});
    object("ResourceSlice", name, spec)
}

fn claim(name: &str) -> Value {
    let request = json!({"name": "r", "exactly": {"deviceClassName": "gpu"}});
    object("ResourceClaim", name, json!({"devices": {"requests": [request]}}))
}

fn start(server: &ApiServer, engine: &Engine) -> Mirror {
    let mut options = options(&[]);
    // The watches of a server that restarts end at once.
    options.pauses.short_watch = std::time::Duration::ZERO;
    Mirror::start(api(&server.url()), engine.clone(), Arc::default(), options).expect("a mirror")
}

fn engine() -> Engine {
    Engine::shared(Config::default().with_store(Devices::default()))
}

/// The names of the classes, slices and claims in the store.
fn names(engine: &Engine) -> [Vec<String>; 3] {
    let version = engine.reader().expect("open").snapshot();
    let devices = version.store::<Devices>().expect("the store");
    let classes = devices.classes().iter().map(|class| class.name().to_string());
    let slices = devices.slices().iter().map(|slice| slice.name().to_string());
    let claims = devices.claims().iter().map(|claim| claim.name().to_string());
    [classes.collect(), slices.collect(), claims.collect()]
}

#[tokio::test]
async fn devices_and_claims_reach_the_store_and_leave_it() {
    let (server, engine) = (server(), engine());
    server.create(&object("DeviceClass", "gpu", json!({}))).expect("created");
    server.create(&slice("s1")).expect("created");
    let mirror = start(&server, &engine);
    mirror.synced().await.expect("synced");
    assert_eq!(names(&engine), [vec!["gpu"], vec!["s1"], vec![]]);
    server.create(&claim("c1")).expect("created");
    let class = json!({"spec": {"extendedResourceName": "example.com/gpu"}});
    server.patch("DeviceClass", "", "gpu", PatchKind::Merge, &class).expect("patched");
    let supplies = || {
        let version = engine.reader().expect("open").snapshot();
        version
            .store::<Devices>()
            .expect("the store")
            .classes()
            .supplier("example.com/gpu")
            .is_some()
    };
    until("the changed class", supplies).await;
    until("the claim", || names(&engine)[2] == ["c1"]).await;
    server.delete("ResourceClaim", "default", "c1", &Value::Null).expect("deleted");
    server.delete("ResourceSlice", "", "s1", &Value::Null).expect("deleted");
    until("the end", || names(&engine) == [vec!["gpu"], vec![], vec![]]).await;
}

#[tokio::test]
async fn objects_that_a_list_lacks_are_removed() {
    let (server, engine) = (server(), engine());
    for name in ["c1", "c2"] {
        server.create(&claim(name)).expect("created");
        server.create(&slice(&name.replace('c', "s"))).expect("created");
    }
    let mirror = start(&server, &engine);
    mirror.synced().await.expect("synced");
    server.pause();
    server.delete("ResourceClaim", "default", "c1", &Value::Null).expect("deleted");
    server.delete("ResourceSlice", "", "s1", &Value::Null).expect("deleted");
    // The watches are lost, and their version is gone.
    server.forget_events();
    server.reset_connections();
    server.resume();
    until("the lists", || names(&engine) == [vec![], vec!["s2"], vec!["c2"]]).await;
    let unchanged: u64 = mirror.figures().iter().map(|kind| kind.unchanged).sum();
    assert_eq!(unchanged, 2, "known objects are not passed on again");
}

fn stored(version: u64) -> DeviceEvent {
    let mut claim = claim("c1");
    claim["metadata"] = json!({
        "name": "c1", "namespace": "default", "uid": "u-1", "resourceVersion": version.to_string(),
    });
    let claim: ResourceClaim = read(claim).expect("a claim");
    DeviceEvent::PutClaim(claim.into())
}

#[tokio::test]
async fn a_claim_that_was_written_after_a_list_survives_it() {
    for (version, expected) in [(1, vec![]), (1_000_000, vec!["c1"])] {
        let (server, engine) = (server(), engine());
        apply(&engine, Event::custom::<Devices>(stored(version)));
        let mirror = start(&server, &engine);
        mirror.synced().await.expect("synced");
        assert_eq!(names(&engine)[2], expected, "version {version}");
    }
}

#[tokio::test]
async fn an_engine_without_the_store_has_no_devices() {
    let server = server();
    let mut options = options(&[]);
    options.resources = vec![crate::api::Resource::RESOURCE_CLAIMS];
    let engine = Engine::shared(Config::default());
    let started = Mirror::start(api(&server.url()), engine, Arc::default(), options);
    let error = started.map(drop).expect_err("no store");
    assert!(matches!(error, MirrorError::UnknownKind("ResourceClaim")), "{error}");
}
