//! Claims, as the API server receives them, and through the plugin against a server with the rules of a real one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use portolan::cache::{Config, Event};
use portolan::model::{Pod, Timestamp, node, pod};
use portolan::plugin::{Handle, PodInPreBind};
use portolan::{Framework, FrameworkError, Schedulers, SchedulingLoop};
use portolan_apiserver::{ApiServer, Effect, Fault};
use portolan_dra::Devices;
use portolan_dra::model::{ResourceClaim, read};
use portolan_dra::plugin::{
    ApiError, Backend, ClaimPart, ContainerExtendedRequest, ExtendedClaimStatus, FINALIZER,
};
use portolan_dra::store::DeviceEvent;
use portolan_k8s::config::Configuration;
use serde_json::{Value, json};

use super::testing::{Answer, Seen, World, refused};
use super::{ApiClaims, register_claims};
use crate::component_metrics::Scrape;
use crate::process::profiles;
use crate::testing::{apply, server};

const CLAIM: &str = "/apis/resource.k8s.io/v1/namespaces/shop/resourceclaims/gpu";

fn web() -> Pod {
    pod("web-0").namespace("shop").uid("u-1").build()
}

fn object() -> Value {
    json!({
        "kind": "ResourceClaim", "apiVersion": "resource.k8s.io/v1",
        "metadata": {
            "name": "gpu", "namespace": "shop", "uid": "u-c", "resourceVersion": "7",
            "labels": {"app": "ml"}, "finalizers": ["example.com/other"],
        },
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
    })
}

fn claim() -> ResourceClaim {
    read(object()).expect("a claim")
}

fn allocation() -> Value {
    let result = json!({"request": "r", "driver": "d", "pool": "n1", "device": "gpu-0"});
    json!({"devices": {"results": [result]}})
}

/// A server that answers each request with the claim.
fn world() -> World {
    World::new(|_, _| Answer::Json(200, object()))
}

/// The only request.
fn only(world: &World) -> Seen {
    let seen = world.seen();
    assert_eq!(seen.len(), 1, "{seen:#?}");
    seen[0].clone()
}

#[test]
fn a_claim_gets_finalizers_and_keeps_all_other_metadata() {
    let world = world();
    let mut claim = claim();
    claim.metadata.finalizers.push(FINALIZER.into());
    assert_eq!(world.writes.claims().update(&claim, ClaimPart::Metadata), Ok(self::claim()));
    let seen = only(&world);
    assert_eq!(seen.line(), format!("PATCH {CLAIM}"));
    assert_eq!(seen.format, "application/merge-patch+json");
    let finalizers = json!(["example.com/other", FINALIZER]);
    let metadata = json!({"uid": "u-c", "resourceVersion": "7", "finalizers": finalizers});
    assert_eq!(seen.body, json!({"metadata": metadata}));
}

#[test]
fn an_allocation_is_written_with_its_consumers() {
    let world = world();
    let mut claim = claim();
    claim.status.allocation = serde_json::from_value(allocation()).expect("an allocation");
    let consumer = json!({"resource": "pods", "name": "web-0", "uid": "u-1"});
    claim.status.reserved_for = vec![serde_json::from_value(consumer.clone()).expect("a consumer")];
    world.writes.claims().update(&claim, ClaimPart::Status).expect("written");
    let seen = only(&world);
    assert_eq!(seen.line(), format!("PATCH {CLAIM}/status"));
    assert_eq!(seen.format, "application/merge-patch+json");
    let expected = json!({
        "metadata": {"uid": "u-c", "resourceVersion": "7"},
        "status": {"allocation": allocation(), "reservedFor": [consumer]},
    });
    assert_eq!(seen.body, expected);
}

#[test]
fn an_allocation_is_removed_with_all_that_depends_on_it() {
    let world = world();
    world.writes.claims().update(&claim(), ClaimPart::Status).expect("written");
    let status = json!({"allocation": null, "reservedFor": null, "devices": null});
    assert_eq!(only(&world).body["status"], status);
}

#[test]
fn a_reservation_is_removed_by_the_uid_of_its_pod() {
    let world = world();
    world.writes.claims().remove_reservation(&claim(), &web()).expect("written");
    let seen = only(&world);
    assert_eq!(seen.line(), format!("PATCH {CLAIM}/status"));
    assert_eq!(seen.format, "application/strategic-merge-patch+json");
    let expected = json!({
        "metadata": {"uid": "u-c"},
        "status": {"reservedFor": [{"$patch": "delete", "uid": "u-1"}]},
    });
    assert_eq!(seen.body, expected);
}

#[test]
fn a_claim_loses_its_finalizer_before_it_is_deleted() {
    let world = world();
    world.writes.claims().delete(&claim()).expect("deleted");
    assert_eq!(world.lines(), [format!("PATCH {CLAIM}"), format!("DELETE {CLAIM}")]);
    let seen = world.seen();
    let metadata = json!({"uid": "u-c", "$deleteFromPrimitiveList/finalizers": [FINALIZER]});
    assert_eq!(seen[0].body, json!({"metadata": metadata}));
    assert_eq!(seen[1].body["preconditions"], json!({"uid": "u-c"}));
}

#[test]
fn the_claim_for_extended_resources_is_created_and_named_in_the_status_of_its_pod() {
    let world = world();
    let mut claim = claim();
    claim.metadata.name = "".into();
    claim.metadata.generate_name = "web-0-extended-resources-".into();
    let claims = world.writes.claims();
    claims.create(&claim).expect("created");
    let mapping = ContainerExtendedRequest {
        container_name: "c".into(),
        resource_name: "example.com/gpu".into(),
        request_name: "container-0-request-0".into(),
    };
    let status =
        ExtendedClaimStatus { request_mappings: vec![mapping], resource_claim_name: "gpu".into() };
    claims.set_extended_status(&web(), &status).expect("written");
    let seen = world.seen();
    let path = "POST /apis/resource.k8s.io/v1/namespaces/shop/resourceclaims";
    assert_eq!(seen[0].line(), path);
    assert_eq!(seen[0].body["kind"], "ResourceClaim");
    assert_eq!(seen[0].body["metadata"]["generateName"], "web-0-extended-resources-");
    assert_eq!(seen[1].line(), "PATCH /api/v1/namespaces/shop/pods/web-0/status");
    let mapping = json!({
        "containerName": "c", "resourceName": "example.com/gpu",
        "requestName": "container-0-request-0",
    });
    let status = json!({"requestMappings": [mapping], "resourceClaimName": "gpu"});
    let expected =
        json!({"metadata": {"uid": "u-1"}, "status": {"extendedResourceClaimStatus": status}});
    assert_eq!(seen[1].body, expected);
}

#[test]
fn nothing_is_written_without_the_lease() {
    let world = world();
    world.fence.close();
    let (claims, claim) = (world.writes.claims(), claim());
    let no_lease = || ApiError::Other("this scheduler does not hold its lease".to_owned());
    assert_eq!(claims.create(&claim), Err(no_lease()));
    assert_eq!(claims.update(&claim, ClaimPart::Metadata), Err(no_lease()));
    assert_eq!(claims.update(&claim, ClaimPart::Status), Err(no_lease()));
    assert_eq!(claims.update(&claim, ClaimPart::Consumers), Err(no_lease()));
    assert_eq!(claims.remove_reservation(&claim, &web()), Err(no_lease()));
    assert_eq!(claims.delete(&claim), Err(no_lease()));
    assert_eq!(claims.set_extended_status(&web(), &Default::default()), Err(no_lease()));
    assert_eq!(world.lines(), Vec::<String>::new());
    assert_eq!(claims.get("shop", "gpu"), Ok(claim));
}

#[test]
fn a_wait_ends_with_the_lease() {
    let world = world();
    let (claims, pod) = (world.writes.claims(), PodInPreBind::default());
    assert_eq!(claims.wait(Duration::from_millis(1), &pod), Ok(()));
    world.fence.close();
    let waited = claims.wait(Duration::from_secs(3_600), &pod);
    assert_eq!(waited, Err("this scheduler does not hold its lease".to_owned()));
}

#[test]
fn refusals_are_told_apart() {
    let answer = |code: u16, reason: &'static str, message: &'static str| {
        let world = World::new(move |_, _| {
            let body =
                json!({"kind": "Status", "code": code, "reason": reason, "message": message});
            Answer::Json(code, body)
        });
        world.writes.claims().update(&claim(), ClaimPart::Metadata).expect_err("refused")
    };
    let text = |text: &str| text.to_owned();
    assert_eq!(answer(409, "Conflict", "modified"), ApiError::Conflict(text("modified")));
    assert_eq!(answer(409, "AlreadyExists", "exists"), ApiError::Other(text("exists")));
    assert_eq!(answer(404, "NotFound", "none"), ApiError::NotFound(text("none")));
    let replaced = "metadata.uid: Invalid value: \"u-c\": field is immutable";
    assert_eq!(answer(422, "Invalid", replaced), ApiError::NotFound(text(replaced)));
    assert_eq!(answer(422, "Invalid", "spec"), ApiError::Other(text("spec")));
    let gone = World::new(|_, _| refused(404, "none"));
    assert_eq!(gone.writes.claims().delete(&claim()), Ok(()));
    let broken = World::new(|_, _| Answer::Json(200, json!({"metadata": 1})));
    let error = broken.writes.claims().get("shop", "gpu").expect_err("unreadable");
    assert!(error.to_string().contains("cannot be read: a resource claim"), "{error}");
}

#[test]
fn events_of_the_plugin_are_recorded() {
    let world = world();
    world.writes.claims().record(&web(), "BindingConditionsPending", "waiting");
    let event = &world.wait(1)[0].body;
    let found = (&event["type"], &event["reason"], &event["action"], &event["note"]);
    let [normal, reason, action, note] =
        ["Normal", "BindingConditionsPending", "Scheduling", "waiting"].map(Value::from);
    assert_eq!(found, (&normal, &reason, &action, &note));
}

#[test]
fn changes_of_the_store_need_an_engine() {
    let world = world();
    let claims = world.writes.claims();
    let event = || DeviceEvent::DeleteClass("gpu".into());
    assert_eq!(claims.submit(event()), Err("the engine does not exist".to_owned()));
    let schedulers = Schedulers::builder().build().expect("a scheduler");
    claims.set_engine(&schedulers.engine().downgrade());
    let refused = claims.submit(event()).expect_err("no store");
    assert!(refused.contains("Devices"), "{refused}");
}

/// A scheduler with the plugin, and a server. The engine has the node n1 with 2 devices.
struct Cluster {
    server: ApiServer,
    schedulers: Schedulers,
    scheduling: SchedulingLoop,
    /// Each attempt comes long after the one before.
    attempts: i64,
    _world: World,
}

fn framework(handle: &Handle, claims: &ApiClaims) -> Result<Framework, FrameworkError> {
    let registry = profiles::registry(Arc::new(claims.clone()));
    profiles::framework(Configuration::DEFAULT, &registry, handle, &"default-scheduler".into())
}

impl Cluster {
    fn new() -> Cluster {
        let server = server();
        let world = World::of(server.address(), Duration::from_secs(20));
        let claims = world.writes.claims();
        let (binder, evictor, volumes) =
            (world.writes.binder(), world.writes.evictor(), world.writes.clone());
        let plugin = claims.clone();
        let builder = Schedulers::builder()
            .config(Config::default().with_store(Devices::default()))
            .profile("default-scheduler", move |handle| framework(handle, &plugin))
            .binder(|_| binder)
            .volume_binder(move |engine| volumes.volume_binder(engine))
            .evictor(|_| evictor);
        let schedulers = builder.build().expect("a scheduler");
        let engine = schedulers.engine();
        claims.set_engine(&engine.downgrade());
        let n1 = node("n1").cpu(64_000).memory(1 << 38).build();
        apply(engine, Event::add_node(n1));
        let class = json!({"metadata": {"name": "gpu"}, "spec": {}});
        let slice = json!({"metadata": {"name": "n1-gpu"}, "spec": {
            "driver": "d", "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
            "nodeName": "n1", "devices": [{"name": "gpu-0"}, {"name": "gpu-1"}]}});
        let class = DeviceEvent::PutClass(Arc::new(read(class).expect("a class")));
        let slice = DeviceEvent::PutSlice(Arc::new(read(slice).expect("a slice")));
        apply(engine, Event::custom::<Devices>(class));
        apply(engine, Event::custom::<Devices>(slice));
        let scheduling = schedulers.scheduling_loop().expect("open");
        Cluster { server, schedulers, scheduling, attempts: 0, _world: world }
    }

    fn submit(&self, event: DeviceEvent) {
        apply(self.schedulers.engine(), Event::custom::<Devices>(event));
    }

    fn claim(&self, name: &str) -> ResourceClaim {
        let claim = self.server.get("ResourceClaim", "default", name).expect("found");
        read(claim).expect("a claim")
    }

    fn add_claim(&self, name: &str) {
        let mut object = object();
        object["metadata"] = json!({"name": name});
        self.server.create(&object).expect("created");
        self.submit(DeviceEvent::PutClaim(self.claim(name).into()));
    }

    /// Adds a pod that uses these claims.
    fn add_pod(&self, name: &str, claims: &[&str]) {
        let entry = |claim: &&str| json!({"name": claim, "resourceClaimName": claim});
        let entries: Vec<Value> = claims.iter().map(entry).collect();
        let created = self.server.create(&json!({
            "kind": "Pod", "apiVersion": "v1", "metadata": {"name": name},
            "spec": {
                "resourceClaims": entries,
                "containers": [{"name": "c", "image": "registry.example.com/pause:1"}],
            },
        }));
        let created = created.expect("created");
        let pod = portolan_k8s::pod_from_slice(created.to_string().as_bytes()).expect("a pod");
        apply(self.schedulers.engine(), Event::put_pending(pod));
    }

    /// Schedules the next pod and binds it.
    fn schedule(&mut self) -> Result<(), String> {
        self.attempts += 1;
        let now = Timestamp::from_secs(1_000 * self.attempts);
        let deadline = Instant::now() + Duration::from_secs(20);
        let attempt = self.scheduling.schedule_one(Some(deadline), || now).expect("a pod");
        let (placed, failed) = attempt.into_parts();
        if let Some(failed) = failed.first() {
            return Err(failed.error.to_string());
        }
        let bound = self.scheduling.bind(&placed[0], || now);
        bound.map_err(|(error, _)| error.to_string())
    }

    fn node(&self, pod: &str) -> Value {
        self.server.get("Pod", "default", pod).expect("found")["spec"]["nodeName"].clone()
    }

    fn consumers(&self, claim: &str) -> Vec<String> {
        let claim = self.claim(claim);
        claim.status.reserved_for.iter().map(|consumer| consumer.name.to_string()).collect()
    }

    /// The requests that wrote claims since the last call, each with its code.
    fn written(&self) -> Vec<String> {
        let writes = self.server.take_writes();
        let of_claims = writes.iter().filter(|write| {
            write.resource.starts_with("resourceclaims") && write.user_agent != "direct"
        });
        let line = |write: &portolan_apiserver::Write| {
            format!("{} {} {} {}", write.verb, write.resource, write.name, write.code)
        };
        of_claims.map(line).collect()
    }

    fn fail(&self, effect: Effect, resource: &str, nth: u64) {
        let fault = Fault::new(effect).verb("patch").resource(resource).nth(nth);
        self.server.set_faults(0, vec![fault]);
    }
}

#[test]
fn a_claim_is_allocated_and_reserved_before_its_pod_is_bound() {
    let mut cluster = Cluster::new();
    cluster.add_claim("a");
    cluster.add_pod("p", &["a"]);
    assert_eq!(cluster.schedule(), Ok(()));
    assert_eq!(cluster.node("p"), "n1");
    let claim = cluster.claim("a");
    let allocation = claim.status.allocation.as_ref().expect("allocated");
    assert_eq!(&*allocation.devices.results[0].device, "gpu-0");
    assert!(allocation.allocation_timestamp.is_some());
    assert_eq!(claim.metadata.finalizers, [FINALIZER.into()]);
    assert_eq!(cluster.consumers("a"), ["p"]);
    let written = ["patch resourceclaims a 200", "patch resourceclaims/status a 200"];
    assert_eq!(cluster.written(), written);
    // Another pod of the same claim is added to its consumers.
    cluster.add_pod("q", &["a"]);
    assert_eq!(cluster.schedule(), Ok(()));
    assert_eq!(cluster.consumers("a"), ["p", "q"]);
    assert_eq!(cluster.written(), ["patch resourceclaims/status a 200"]);
}

#[test]
fn a_claim_that_has_changed_is_read_and_written_again() {
    let mut cluster = Cluster::new();
    cluster.add_claim("a");
    let labels = json!({"metadata": {"labels": {"x": "1"}}});
    let kind = portolan_apiserver::PatchKind::Merge;
    cluster.server.patch("ResourceClaim", "default", "a", kind, &labels).expect("patched");
    cluster.add_pod("p", &["a"]);
    cluster.fail(Effect::conflict(), "resourceclaims/status", 1);
    assert_eq!(cluster.schedule(), Ok(()));
    assert_eq!((cluster.node("p"), cluster.consumers("a")), ("n1".into(), vec!["p".to_owned()]));
    let written = [
        "patch resourceclaims a 409",
        "patch resourceclaims a 200",
        "patch resourceclaims/status a 409",
        "patch resourceclaims/status a 200",
    ];
    assert_eq!(cluster.written(), written);
}

#[test]
fn a_claim_that_another_scheduler_has_allocated_is_left_alone() {
    let mut cluster = Cluster::new();
    cluster.add_claim("a");
    let status = json!({"status": {"allocation": allocation()}});
    cluster.server.patch_status("ResourceClaim", "default", "a", &status).expect("patched");
    cluster.add_pod("p", &["a"]);
    let error = cluster.schedule().expect_err("not bound");
    assert!(error.contains("claim default/a got allocated elsewhere in the meantime"), "{error}");
    assert_eq!(cluster.node("p"), Value::Null);
    assert_eq!(json!(cluster.claim("a").status), status["status"]);
}

#[test]
fn a_claim_that_is_allocated_by_hand_is_only_reserved() {
    let mut cluster = Cluster::new();
    let mut object = object();
    object["metadata"] = json!({"name": "a"});
    cluster.server.create(&object).expect("created");
    // The model has no such field.
    let mut allocation = allocation();
    allocation["devices"]["results"][0]["ofALaterVersion"] = true.into();
    let status = json!({"status": {"allocation": allocation}});
    cluster.server.patch_status("ResourceClaim", "default", "a", &status).expect("patched");
    cluster.submit(DeviceEvent::PutClaim(cluster.claim("a").into()));
    cluster.add_pod("p", &["a"]);
    assert_eq!(cluster.schedule(), Ok(()));
    assert_eq!((cluster.node("p"), cluster.consumers("a")), ("n1".into(), vec!["p".to_owned()]));
    assert_eq!(cluster.written(), ["patch resourceclaims/status a 200"]);
    let stored = cluster.server.get("ResourceClaim", "default", "a").expect("found");
    assert_eq!(stored["status"]["allocation"], allocation);
}

#[test]
fn a_failure_half_way_releases_the_claims_that_were_written() {
    let mut cluster = Cluster::new();
    cluster.add_claim("a");
    cluster.add_claim("b");
    cluster.add_pod("p", &["a", "b"]);
    cluster.fail(Effect::internal_error(), "resourceclaims/status", 2);
    let error = cluster.schedule().expect_err("not bound");
    let text = "add allocation and reservation to claim default/b: ";
    assert!(error.contains(text), "{error}");
    assert_eq!(cluster.node("p"), Value::Null);
    // The allocation stays for the next attempt, without a consumer.
    assert!(cluster.claim("a").status.allocation.is_some());
    assert_eq!(cluster.consumers("a"), Vec::<String>::new());
    assert!(cluster.claim("b").status.allocation.is_none());
    assert_eq!(cluster.schedule(), Ok(()));
    assert_eq!(cluster.node("p"), "n1");
    let consumers = [cluster.consumers("a"), cluster.consumers("b")];
    assert_eq!(consumers, [["p"], ["p"]]);
}

#[test]
fn a_reservation_whose_answer_was_lost_is_removed() {
    let mut cluster = Cluster::new();
    cluster.add_claim("a");
    cluster.add_pod("p", &["a"]);
    cluster.fail(Effect::internal_error_after(), "resourceclaims/status", 1);
    cluster.schedule().expect_err("not bound");
    assert!(cluster.claim("a").status.allocation.is_some());
    assert_eq!(cluster.consumers("a"), Vec::<String>::new());
    assert_eq!(cluster.schedule(), Ok(()));
    assert_eq!((cluster.node("p"), cluster.consumers("a")), ("n1".into(), vec!["p".to_owned()]));
}

#[test]
fn a_restart_of_the_server_between_two_writes_costs_one_attempt() {
    let mut cluster = Cluster::new();
    cluster.add_claim("a");
    cluster.add_pod("p", &["a"]);
    cluster.fail(Effect::ResetBefore, "resourceclaims/status", 1);
    cluster.schedule().expect_err("not bound");
    assert_eq!(cluster.claim("a").metadata.finalizers, [FINALIZER.into()]);
    assert!(cluster.claim("a").status.allocation.is_none());
    cluster.server.restart(Duration::from_millis(5)).expect("restarted");
    assert_eq!(cluster.schedule(), Ok(()));
    assert_eq!((cluster.node("p"), cluster.consumers("a")), ("n1".into(), vec!["p".to_owned()]));
}

/// Returns the value of a sample of the metrics of claims.
fn sample(name: &str) -> f64 {
    let mut scrape = Scrape::new(|| ());
    register_claims(scrape.registry());
    let text = scrape.text();
    let found = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    found.unwrap_or_else(|| panic!("{name} in {text}"))
}

#[test]
fn waits_for_binding_conditions_are_counted_by_driver() {
    for (driver, condition, status) in [("a", "ready", "success"), ("b", "broken", "failed")] {
        let mut cluster = Cluster::new();
        cluster.add_claim("a");
        let mut allocation = allocation();
        let result = &mut allocation["devices"]["results"][0];
        result["driver"] = driver.into();
        result["bindingConditions"] = json!(["ready"]);
        result["bindingFailureConditions"] = json!(["broken"]);
        let patch = |status: Value| {
            let patch = json!({ "status": status });
            cluster.server.patch_status("ResourceClaim", "default", "a", &patch).expect("patched");
        };
        patch(json!({ "allocation": allocation }));
        cluster.submit(DeviceEvent::PutClaim(cluster.claim("a").into()));
        // The scheduler learns of the condition in PreBind.
        let conditions = json!([{"type": condition, "status": "True"}]);
        let report =
            json!({"driver": driver, "pool": "n1", "device": "gpu-0", "conditions": conditions});
        patch(json!({"devices": [report]}));
        cluster.add_pod("p", &["a"]);
        assert_eq!(cluster.schedule().is_ok(), status == "success");
        let labels =
            format!("profile=\"default-scheduler\",driver=\"{driver}\",status=\"{status}\"");
        let name = "scheduler_dra_bindingconditions";
        assert_eq!(sample(&format!("{name}_allocations_total{{{labels}}}")), 1.0);
        assert_eq!(sample(&format!("{name}_wait_duration_seconds_count{{{labels}}}")), 1.0);
    }
}

#[test]
fn a_claim_for_extended_resources_is_deleted_although_it_is_protected() {
    let cluster = Cluster::new();
    let claims = cluster._world.writes.claims();
    let mut claim = claim();
    claim.metadata = serde_json::from_value(json!({
        "generateName": "p-extended-resources-", "namespace": "default",
    }))
    .expect("metadata");
    let created = claims.create(&claim).expect("created");
    assert!(sample("scheduler_resourceclaim_creates_total{status=\"success\"}") >= 1.0);
    assert!(created.name().starts_with("p-extended-resources-"), "{}", created.name());
    let mut protected = created.clone();
    protected.metadata.finalizers.push(FINALIZER.into());
    claims.update(&protected, ClaimPart::Metadata).expect("updated");
    claims.delete(&created).expect("deleted");
    assert!(cluster.server.objects("ResourceClaim").is_empty());
    claims.delete(&created).expect("deleted already");
}
