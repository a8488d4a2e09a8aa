//! The store of devices and claims in an engine.

use std::sync::Arc;

use portolan::cache::{Config, Engine, Store, Writer};
use portolan::model::{Generation, Pod, PodResourceClaim, Quantity, node, pod};
use portolan::plugin::{Handle, Plugin};
use portolan_dra::model::{AllocationResult, ResourceClaim, read};
use portolan_dra::plugin::DryRunBackend;
use portolan_dra::store::{DeviceEvent, InFlight, PoolId};
use portolan_dra::{Devices, DynamicResources};
use serde_json::json;

fn with_claim(name: &str) -> Pod {
    let claim = PodResourceClaim { name: "gpu".into(), ..PodResourceClaim::default() };
    pod(name).cpu(100).spec(|spec| spec.resource_claims = [claim].into()).build()
}

fn writer() -> Writer {
    Engine::inline(Config::default().with_store(Devices::default())).0
}

fn claim(name: &str, allocation: Option<&AllocationResult>) -> Arc<ResourceClaim> {
    claim_of(name, name, "", allocation)
}

fn claim_of(
    name: &str,
    uid: &str,
    version: &str,
    allocation: Option<&AllocationResult>,
) -> Arc<ResourceClaim> {
    let metadata =
        json!({"name": name, "namespace": "default", "uid": uid, "resourceVersion": version});
    let claim = json!({"metadata": metadata, "status": {"allocation": allocation}});
    Arc::new(read(claim).unwrap())
}

fn device(name: &str) -> AllocationResult {
    let result = json!({"request": "r", "driver": "d", "pool": "p", "device": name});
    serde_json::from_value(json!({"devices": {"results": [result]}})).unwrap()
}

fn devices(writer: &Writer) -> &Devices {
    writer.cluster().store::<Devices>().unwrap()
}

fn put(writer: &mut Writer, claim: Arc<ResourceClaim>) {
    writer.change::<Devices>(DeviceEvent::PutClaim(claim)).unwrap();
}

fn is_used(writer: &Writer, device: &str) -> bool {
    let pool = PoolId { driver: "d".into(), pool: "p".into() };
    devices(writer).claims().usage().pool(&pool).is_some_and(|usage| usage.is_used(device))
}

fn reserve(name: &str, of: &str) -> DeviceEvent {
    reserve_for(claim(name, None), of)
}

fn reserve_for(claim: Arc<ResourceClaim>, of: &str) -> DeviceEvent {
    DeviceEvent::Reserve(vec![InFlight { claim, allocation: Arc::new(device(of)) }])
}

fn delete(name: &str) -> DeviceEvent {
    DeviceEvent::DeleteClaim { namespace: "default".into(), name: name.into(), uid: None }
}

#[test]
fn pods_with_claims_are_placed_only_with_the_store() {
    let (mut without, _) = Engine::inline(Config::default());
    let mut with = writer();
    for writer in [&mut without, &mut with] {
        writer.add_node(node("n").cpu(1_000).build()).unwrap();
    }
    assert!(without.assume_pod(with_claim("a").on("n")).is_err());
    assert!(with.assume_pod(with_claim("a").on("n")).is_ok());
}

#[test]
fn a_device_is_reserved_once() {
    let mut writer = writer();
    writer.change::<Devices>(reserve("a", "gpu-0")).unwrap();
    let refused = writer.change::<Devices>(reserve("b", "gpu-0")).unwrap_err();
    let text = "Devices: claim default/b: device d/p/gpu-0 is in use";
    assert_eq!(refused.to_string(), text);
    writer.change::<Devices>(DeviceEvent::Release("a".into())).unwrap();
    assert!(!is_used(&writer, "gpu-0"));
    writer.change::<Devices>(reserve("b", "gpu-0")).unwrap();
}

/// A pool with the shared device `s`, the device `d`, and the devices `p0` and `p1`, of which one can be used.
fn writer_with_pool() -> Writer {
    let mut writer = writer();
    let counters = |value: &str| json!({"slots": {"value": value}});
    let consumes = |value: &str| json!([{"counterSet": "set", "counters": counters(value)}]);
    let pool = json!({"name": "p", "generation": 1, "resourceSliceCount": 2});
    let devices = json!([
        {
            "name": "s",
            "allowMultipleAllocations": true,
            "capacity": {"memory": {"value": "10"}},
        },
        {"name": "d"},
        {"name": "p0", "consumesCounters": consumes("3")},
        {"name": "p1", "consumesCounters": consumes("3")},
    ]);
    let sets = json!([{"name": "set", "counters": counters("5")}]);
    for (name, key, value) in
        [("devices", "devices", devices), ("counters", "sharedCounters", sets)]
    {
        let slice = json!({
            "metadata": {"name": name},
            "spec": {"driver": "d", "pool": pool, "allNodes": true, key: value},
        });
        writer.change::<Devices>(DeviceEvent::PutSlice(Arc::new(read(slice).unwrap()))).unwrap();
    }
    writer
}

/// A result of each claim `c0`, `c1`, ...: a device, and what is consumed of its memory if it is shared.
fn pending(results: &[(&str, Option<&str>)]) -> Vec<InFlight> {
    let in_flight = |(at, (device, memory)): (usize, &(&str, Option<&str>))| {
        let mut result = json!({"request": "r", "driver": "d", "pool": "p", "device": device});
        if let Some(memory) = memory {
            result["shareID"] = json!(at.to_string());
            result["consumedCapacity"] = json!({"memory": memory});
        }
        let allocation = json!({"devices": {"results": [result]}});
        InFlight {
            claim: claim(&format!("c{at}"), None),
            allocation: serde_json::from_value(allocation).unwrap(),
        }
    };
    results.iter().enumerate().map(in_flight).collect()
}

#[test]
fn reservations_do_not_exceed_limits() {
    for (results, refusal) in [
        (&[("s", Some("6")), ("s", Some("4"))][..], None),
        (&[("s", Some("6")), ("s", Some("5"))], Some("c1: device d/p/s lacks capacity memory")),
        (&[("s", Some("1")), ("s", None)], Some("c1: device d/p/s is in use")),
        (&[("s", None), ("s", Some("1"))], Some("c1: device d/p/s is in use")),
        (&[("d", None), ("p0", None)], None),
        (&[("d", None), ("d", None)], Some("c1: device d/p/d is in use")),
        (&[("p0", None), ("p1", None)], Some("c1: device d/p/p1 lacks counters")),
        (&[("x", Some("1"))], Some("c0: device d/p/x does not exist")),
    ] {
        let refusal = refusal.map(|text| format!("Devices: claim default/{text}"));
        let together = writer_with_pool().change::<Devices>(DeviceEvent::Reserve(pending(results)));
        assert_eq!(together.err().map(|why| why.to_string()), refusal, "together: {results:?}");
        let mut writer = writer_with_pool();
        let each = pending(results).into_iter().map(|of| DeviceEvent::Reserve(vec![of]));
        let each = each.map(|event| writer.change::<Devices>(event)).find_map(Result::err);
        assert_eq!(each.map(|why| why.to_string()), refusal, "one by one: {results:?}");
    }
}

#[test]
fn administration_does_not_use_devices() {
    let mut writer = writer_with_pool();
    writer.change::<Devices>(DeviceEvent::Reserve(pending(&[("p0", None)]))).unwrap();
    let mut admin = pending(&[("x", None), ("p0", None), ("p1", None)]);
    admin.remove(0);
    for of in &mut admin {
        Arc::make_mut(&mut of.allocation).devices.results[0].admin_access = Some(true);
    }
    writer.change::<Devices>(DeviceEvent::Reserve(admin)).unwrap();
}

#[test]
fn stored_allocations_replace_reservations() {
    let mut writer = writer();
    put(&mut writer, claim("a", None));
    writer.change::<Devices>(reserve("a", "gpu-0")).unwrap();
    let stored = claim("a", Some(&device("gpu-0")));
    let event = DeviceEvent::Allocated { claim: stored, reserved: "a".into() };
    writer.change::<Devices>(event).unwrap();
    assert!(is_used(&writer, "gpu-0"));
    put(&mut writer, claim("a", None));
    assert!(!is_used(&writer, "gpu-0"));
}

#[test]
fn held_versions_keep_their_claims() {
    let (mut writer, reader) = Engine::inline(Config::default().with_store(Devices::default()));
    put(&mut writer, claim("a", None));
    writer.publish();
    let held = reader.snapshot();
    writer.change::<Devices>(reserve("a", "gpu-0")).unwrap();
    writer.publish();
    let in_flight = |devices: &Devices| devices.claims().in_flight("a").is_some();
    assert!(!in_flight(held.store::<Devices>().unwrap()));
    assert!(in_flight(reader.snapshot().store::<Devices>().unwrap()));
    assert!(in_flight(reader.snapshot().fork().store::<Devices>().unwrap()));
}

#[test]
fn an_older_version_of_a_claim_is_ignored() {
    let mut writer = writer();
    put(&mut writer, object("a", "10", None));
    put(&mut writer, object("a", "9", None));
    let known = devices(&writer).claims().get(&"default".into(), &"a".into()).unwrap();
    assert_eq!(&*known.metadata.resource_version, "10");
}

/// Returns the claim `a` with this uid, version and allocation.
fn object(uid: &str, version: &str, allocation: Option<&str>) -> Arc<ResourceClaim> {
    claim_of("a", uid, version, allocation.map(device).as_ref())
}

/// Applies events, and returns the uid of the claim `a`, and whether gpu-0 is in use.
fn after(events: impl IntoIterator<Item = DeviceEvent>) -> (Option<String>, bool) {
    let mut writer = writer();
    for event in events {
        writer.change::<Devices>(event).unwrap();
    }
    let uid = devices(&writer)
        .claims()
        .get(&"default".into(), &"a".into())
        .map(|of| of.metadata.uid.to_string());
    (uid, is_used(&writer, "gpu-0"))
}

#[test]
fn a_late_answer_does_not_restore_a_deleted_claim() {
    for late in [
        DeviceEvent::Allocated { claim: object("1", "2", Some("gpu-0")), reserved: "1".into() },
        DeviceEvent::UpdateClaim(object("1", "2", Some("gpu-0"))),
    ] {
        let put = DeviceEvent::PutClaim(object("1", "1", None));
        let reserve = reserve_for(object("1", "1", None), "gpu-0");
        assert_eq!(after([put, reserve, delete("a"), late]), (None, false));
    }
}

#[test]
fn a_late_answer_does_not_replace_a_new_claim() {
    let put = |uid: &str, version: &str| DeviceEvent::PutClaim(object(uid, version, None));
    let late =
        DeviceEvent::Allocated { claim: object("1", "3", Some("gpu-0")), reserved: "1".into() };
    let reserve = reserve_for(object("1", "1", None), "gpu-0");
    let found = after([put("1", "1"), reserve, put("2", "2"), late]);
    assert_eq!(found, (Some("2".to_owned()), false));
}

#[test]
fn a_claim_that_is_created_for_a_reservation_is_stored_unless_it_was_deleted() {
    let reserve = || reserve_for(object("pod", "", None), "gpu-0");
    let allocated = || DeviceEvent::Allocated {
        claim: object("1", "2", Some("gpu-0")),
        reserved: "pod".into(),
    };
    let put = || DeviceEvent::PutClaim(object("1", "1", None));
    let created = Some("1".to_owned());
    assert_eq!(after([reserve(), allocated()]), (created.clone(), true));
    assert_eq!(after([reserve(), put(), allocated()]), (created, true));
    assert_eq!(after([reserve(), put(), delete("a"), allocated()]), (None, false));
}

#[test]
fn a_claim_with_another_uid_frees_the_devices_of_the_old_one() {
    let put = |uid: &str, version: &str, of: Option<&str>| {
        DeviceEvent::PutClaim(object(uid, version, of))
    };
    // Also if its version is older.
    for version in ["9", "1"] {
        let new = || put("2", version, None);
        let found = after([put("1", "5", Some("gpu-0")), new()]);
        assert_eq!(found, (Some("2".to_owned()), false));
        let reserve = reserve_for(object("1", "5", None), "gpu-0");
        let found = after([put("1", "5", None), reserve, new()]);
        assert_eq!(found, (Some("2".to_owned()), false));
    }
}

#[test]
fn an_allocation_that_an_update_replaces_is_no_longer_in_use() {
    let mut writer = writer();
    let mut put = |version: &str, of: Option<&str>| {
        let claim = object("1", version, of);
        put(&mut writer, claim.clone());
        let was_freed = devices(&writer).claims().was_freed(&claim);
        (["gpu-0", "gpu-1"].map(|device| is_used(&writer, device)), was_freed)
    };
    assert_eq!(put("1", Some("gpu-0")), ([true, false], false));
    assert_eq!(put("2", Some("gpu-0")), ([true, false], false));
    assert_eq!(put("3", Some("gpu-1")), ([false, true], true));
    assert_eq!(put("4", Some("gpu-1")), ([false, true], false));
    assert_eq!(put("5", None), ([false, false], true));
}

#[test]
fn a_version_that_freed_nothing_stays_so_after_later_changes() {
    let mut writer = writer();
    let versions = [None, None, Some("gpu-0"), None, None].into_iter().zip(1..);
    let versions: Vec<Arc<ResourceClaim>> =
        versions.map(|(of, version)| object("1", &version.to_string(), of)).collect();
    let was_freed = |writer: &Writer| {
        let claims = devices(writer).claims();
        versions.iter().map(|claim| claims.was_freed(claim)).collect::<Vec<bool>>()
    };
    for claim in &versions[..3] {
        put(&mut writer, claim.clone());
    }
    // Hints are evaluated later, when the claim may be allocated.
    assert_eq!(was_freed(&writer), [false; 5]);
    for claim in &versions[3..] {
        put(&mut writer, claim.clone());
        assert_eq!(was_freed(&writer), [false, false, false, true, false]);
    }
    writer.change::<Devices>(delete("a")).unwrap();
    // It is no longer known which version of a deleted claim freed its devices.
    assert_eq!(was_freed(&writer), [true, true, false, true, true]);
}

#[test]
fn claims_without_uid_are_refused() {
    let claim = || object("", "1", None);
    for event in [
        DeviceEvent::PutClaim(claim()),
        DeviceEvent::UpdateClaim(claim()),
        reserve_for(claim(), "gpu-0"),
        DeviceEvent::Allocated { claim: claim(), reserved: "1".into() },
    ] {
        let refused = writer().change::<Devices>(event).unwrap_err();
        assert_eq!(refused.to_string(), "Devices: claim default/a has no uid");
    }
}

#[test]
fn a_claim_that_was_created_again_is_not_reserved_for_the_old_one() {
    let mut writer = writer();
    put(&mut writer, object("2", "2", None));
    let refused = writer.change::<Devices>(reserve_for(object("1", "1", None), "gpu-0"));
    let text = "Devices: claim default/a was deleted and created again";
    assert_eq!(refused.unwrap_err().to_string(), text);
}

#[test]
fn a_deletion_frees_devices_that_were_allocated_or_reserved() {
    let mut writer = writer();
    let freed = |writer: &Writer, name: &str| {
        devices(writer).claims().was_freed_by_deletion(&"default".into(), &name.into())
    };
    put(&mut writer, claim("a", Some(&device("gpu-0"))));
    for name in ["b", "c"] {
        put(&mut writer, claim(name, None));
    }
    writer.change::<Devices>(reserve("b", "gpu-1")).unwrap();
    for (name, expected) in [("a", true), ("a", false), ("b", true), ("c", false)] {
        writer.change::<Devices>(delete(name)).unwrap();
        assert_eq!(freed(&writer, name), expected, "{name}");
    }
    // Another claim has been deleted since.
    assert!(freed(&writer, "a"));
}

#[test]
fn a_claim_that_takes_the_name_of_an_allocated_one_frees_its_devices() {
    let mut writer = writer();
    let mut was_freed = |uid: &str, allocation: Option<&str>| {
        let claim = object(uid, "", allocation);
        put(&mut writer, claim.clone());
        devices(&writer).claims().was_freed(&claim)
    };
    assert!(!was_freed("1", Some("gpu-0")));
    assert!(was_freed("2", None));
    assert!(!was_freed("3", None));
}

#[test]
fn the_newest_class_supplies_an_extended_resource() {
    let mut writer = writer();
    for (name, created) in [("b", "2026-01-01T00:00:00Z"), ("a", "2026-01-01T00:00:00Z"), ("c", "")]
    {
        let class = json!({
            "metadata": {"name": name, "creationTimestamp": created},
            "spec": {"extendedResourceName": "example.com/gpu"},
        });
        writer.change::<Devices>(DeviceEvent::PutClass(Arc::new(read(class).unwrap()))).unwrap();
    }
    let supplier = |writer: &Writer, resource: &str| {
        devices(writer).classes().supplier(resource).map(|class| class.name().to_string())
    };
    assert_eq!(supplier(&writer, "example.com/gpu").as_deref(), Some("a"));
    let implicit = "deviceclass.resource.kubernetes.io/c";
    assert_eq!(supplier(&writer, implicit).as_deref(), Some("c"));
    writer.change::<Devices>(DeviceEvent::DeleteClass("a".into())).unwrap();
    assert_eq!(supplier(&writer, "example.com/gpu").as_deref(), Some("b"));
}

#[test]
fn only_pods_that_are_allocated_devices_concern_the_store() {
    let mut writer = writer();
    let plain = pod("a").cpu(100).build();
    let scalar = pod("b").request("example.com/gpu", Quantity::whole(1)).build();
    let plugin = DynamicResources::new(&Handle::default(), Arc::new(DryRunBackend));
    let concerned = |writer: &Writer, since: Generation| {
        let (cluster, devices) = (writer.cluster(), devices(writer));
        [&plain, &scalar, &with_claim("c")].map(|pod| {
            assert_eq!(devices.serves(&pod.template), plugin.acts_at_reserve(pod, cluster));
            assert_ne!(devices.serves(&pod.template), plugin.treats_template_alike(pod, cluster));
            (devices.serves(&pod.template), devices.concerns(&pod.template, since))
        })
    };
    let (no, yes) = ((false, false), (true, true));
    let start = writer.cluster().generation();
    assert_eq!(concerned(&writer, start), [no, no, yes]);
    let class = json!({
        "metadata": {"name": "gpu"},
        "spec": {"extendedResourceName": "example.com/gpu"},
    });
    writer.change::<Devices>(DeviceEvent::PutClass(Arc::new(read(class).unwrap()))).unwrap();
    assert_eq!(concerned(&writer, start), [no, yes, yes]);
    let before = writer.cluster().generation();
    writer.change::<Devices>(DeviceEvent::DeleteClass("gpu".into())).unwrap();
    // A verdict from before the deletion may rely on the class.
    assert_eq!(concerned(&writer, before), [no, (false, true), yes]);
    assert_eq!(concerned(&writer, writer.cluster().generation()), [no, no, yes]);
}
