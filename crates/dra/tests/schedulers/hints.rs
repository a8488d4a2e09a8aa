//! Which events of the store requeue pods.

use std::sync::Arc;

use portolan::cache::Event;
use portolan::model::{Change, CustomEvent, Pod, Quantity, pod};
use portolan::plugin::{ClusterEvent, Hint, QueueingHints, Snapshots};
use portolan_dra::Devices;
use portolan_dra::model::read;
use portolan_dra::store::DeviceEvent;
use serde_json::{Value, json};

use super::live::Live;

/// Applies an event, and returns whether it requeues a pod that the plugin rejected.
fn helps(live: &Arc<Live>, plugin: &str, pod: &Pod, event: DeviceEvent) -> bool {
    let submitted = live.engine.submit(Event::custom::<Devices>(event.clone()));
    submitted.unwrap().wait().unwrap().unwrap();
    let framework = live.framework();
    let (hints, rejector) = (QueueingHints::new(&framework), framework.plugin_set([plugin]));
    let (change, cluster) = (Change::Custom(CustomEvent::new::<Devices>(event)), live.snapshot());
    ClusterEvent::of(&change).any(|event| {
        let concerned = hints.concerned(event.resource, event.action);
        !concerned.intersection(rejector).is_empty()
            && hints.ask(&framework, rejector, pod, &event, &cluster) == Hint::Queue
    })
}

fn claim(name: &str, status: &Value) -> DeviceEvent {
    let metadata = json!({"name": name, "namespace": "default", "uid": name});
    DeviceEvent::PutClaim(Arc::new(read(json!({"metadata": metadata, "status": status})).unwrap()))
}

fn delete(name: &str) -> DeviceEvent {
    DeviceEvent::DeleteClaim { namespace: "default".into(), name: name.into(), uid: None }
}

#[test]
fn a_pod_waits_for_the_deletion_of_an_allocated_claim() {
    let live = Live::new(1, &[]);
    live.put_claim("own", &json!({}));
    let pod = live.pod("p", "own");
    let result = json!({"request": "r", "driver": "d", "pool": "p", "device": "gpu-0"});
    let allocated = json!({"allocation": {"devices": {"results": [result]}}});
    let is_asked = |event| helps(&live, "DynamicResources", &pod, event);
    assert!(!is_asked(claim("free", &json!({}))));
    assert!(!is_asked(claim("used", &allocated)));
    assert!(!is_asked(delete("free")));
    assert!(is_asked(delete("used")));
    // The pod's own claim is missing.
    is_asked(claim("used", &allocated));
    is_asked(delete("own"));
    assert!(!is_asked(delete("used")));
}

#[test]
fn a_pod_waits_for_the_class_that_supplies_its_extended_resource() {
    let live = Live::new(1, &[]);
    let class = |name: &str, resource: Option<&str>| {
        let spec = json!({"extendedResourceName": resource});
        let class = json!({"metadata": {"name": name}, "spec": spec});
        DeviceEvent::PutClass(Arc::new(read(class).unwrap()))
    };
    let explicit = pod("a").request("example.com/gpu", Quantity::whole(1)).build();
    let implicit =
        pod("b").request("deviceclass.resource.kubernetes.io/gpu", Quantity::whole(1)).build();
    let is_asked = |pod, event| helps(&live, "NodeResourcesFit", pod, event);
    for (event, expected) in [
        (class("other", Some("example.com/other")), [false, false]),
        (class("gpu", None), [false, true]),
        (class("named", Some("example.com/gpu")), [true, false]),
        (DeviceEvent::DeleteClass("gpu".into()), [false, false]),
    ] {
        let asked = [&explicit, &implicit].map(|pod| is_asked(pod, event.clone()));
        assert_eq!(asked, expected, "{event:?}");
    }
}
