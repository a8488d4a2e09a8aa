//! Random clusters, for the tests of readings.

use portolan_testkit::random::Random;
use serde_json::{Value, json};

use super::Input;

pub(crate) fn input(objects: &[Value]) -> Input {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    Input::of(portolan_k8s::read(list.to_string().as_bytes()).expect("a valid list"))
}

fn object(api: &str, kind: &str, name: String, fields: Value) -> Value {
    let mut object = json!({"apiVersion": api, "kind": kind, "metadata": {"name": name}});
    let into = object.as_object_mut().expect("an object");
    into.extend(fields.as_object().expect("fields").clone());
    object
}

fn one_of(random: &mut Random, names: &[&'static str]) -> &'static str {
    names[random.index(names.len())]
}

/// A cluster with most objects of any other random cluster, in other states.
pub(crate) fn random_objects(random: &mut Random) -> Vec<Value> {
    let mut objects = Vec::new();
    let mut add = |object| objects.push(object);
    for n in 0..12 {
        if !random.one_in(8) {
            let zone = ["a", "b"][random.index(2)];
            let labels = json!({"topology.kubernetes.io/zone": zone});
            add(json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": format!("n{n}"), "labels": labels},
                "spec": {"unschedulable": random.one_in(6)},
                "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110"}},
            }));
        }
    }
    for p in 0..60 {
        let containers =
            json!([{"name": "c", "image": "c", "resources": {"requests": {"cpu": "100m"}}}]);
        let mut spec = json!({"containers": containers, "priority": random.below(2)});
        if random.one_in(2) {
            // Some of the nodes do not exist.
            spec["nodeName"] = json!(format!("n{}", random.below(13)));
        }
        if random.one_in(4) {
            spec["resourceClaims"] =
                json!([{"name": "d", "resourceClaimName": format!("c{}", p % 4)}]);
        }
        if !random.one_in(5) {
            let phase = ["Running", "Pending", "Succeeded"][random.index(3)];
            add(json!({
                "apiVersion": "v1", "kind": "Pod", "spec": spec, "status": {"phase": phase},
                "metadata": {
                    "name": format!("p{p}"), "labels": {"app": one_of(random, &["x", "y"])},
                    "resourceVersion": (1 + random.below(2)).to_string(),
                },
            }));
        }
    }
    // A device has one user.
    let first = random.index(4);
    for n in 0..4 {
        if random.one_in(2) {
            let selector = json!({"matchLabels": {"app": one_of(random, &["x", "y"])}});
            let spec = json!({"spec": {"maxUnavailable": random.below(3), "selector": selector}});
            add(object("policy/v1", "PodDisruptionBudget", format!("b{n}"), spec));
        }
        if random.one_in(2) {
            let spec = json!({"spec": {"storageClassName": one_of(random, &["s", "t"])}});
            add(object("v1", "PersistentVolumeClaim", format!("v{n}"), spec));
        }
        if !random.one_in(3) {
            let device = format!("d{}", (n + first) % 4);
            let results = json!([{"request": "r", "driver": "x", "pool": "p", "device": device}]);
            let allocation = json!({"allocation": {"devices": {"results": results}}});
            add(object(
                "resource.k8s.io/v1",
                "ResourceClaim",
                format!("c{n}"),
                json!({"status": allocation}),
            ));
        }
        if random.one_in(2) {
            let spec = json!({"spec": {"driver": "x", "pool": {"name": "p", "generation": random.below(2), "resourceSliceCount": 1}, "allNodes": true, "devices": [{"name": "d0"}]}});
            add(object("resource.k8s.io/v1", "ResourceSlice", format!("s{n}"), spec));
        }
    }
    objects
}
