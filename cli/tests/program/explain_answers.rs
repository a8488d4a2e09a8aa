//! The first line of an explanation is the answer: why the pod is not scheduled, or on how many nodes it fits.

use crate::common::{Run, file, portolan};
use serde_json::{Value, json};

fn node(name: &str, cpu: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": name },
        "status": { "allocatable": { "cpu": cpu, "memory": "16Gi", "pods": "110" } },
    })
}

fn pod(name: &str, cpu: &str, spec: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "d" },
        "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": cpu } } }] },
    });
    for (key, value) in spec.as_object().expect("fields") {
        pod["spec"][key] = value.clone();
    }
    pod
}

fn deleting(mut pod: Value) -> Value {
    pod["metadata"]["deletionTimestamp"] = json!("2026-11-27T00:00:00Z");
    pod
}

/// A pod of the replica set `web-1`, which belongs to the deployment `web`.
fn replica(name: &str, cpu: &str, spec: Value) -> Value {
    let mut pod = pod(name, cpu, spec);
    pod["metadata"]["labels"] = json!({ "pod-template-hash": "1" });
    pod["metadata"]["ownerReferences"] = json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "name": "web-1", "uid": "u", "controller": true }]);
    pod
}

fn explain(test: &str, items: &[Value], arguments: &[&str]) -> Run {
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": items });
    let cluster = file(&format!("answers-{test}"), "cluster.json", list.to_string().as_bytes());
    portolan(&[&["explain", "--cluster", &cluster], arguments].concat())
}

/// The first line about the pod d/new, and the whole answer.
fn answer(test: &str, items: &[Value]) -> (String, String) {
    let run = explain(test, items, &["--pod", "d/new", "--time-limit", "60"]);
    assert_eq!(run.code, 0, "{}", run.err);
    let first = run.out.lines().next().unwrap_or_default().to_owned();
    (first, run.out)
}

#[test]
fn the_first_line_names_what_keeps_the_pod_from_being_scheduled() {
    let a = || node("a", "4");
    let gates = json!({ "schedulingGates": [{ "name": "example.com/wait" }] });
    let gated = "Scheduling is blocked due to non-empty scheduling gates";
    let other = "no profile has schedulerName \"volcano\": pass --profile, or --config with such a \
                 profile";
    let claims = json!({ "resourceClaims": [{ "name": "gpu", "resourceClaimName": "g" }] });
    let volume =
        json!({ "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "none" } }] });
    for (test, new, first) in [
        ("gated", pod("new", "1", gates), format!("not scheduled: {gated}")),
        (
            "other",
            pod("new", "1", json!({ "schedulerName": "volcano" })),
            format!("not scheduled: {other}"),
        ),
        (
            "deleting",
            deleting(pod("new", "1", json!({}))),
            "not scheduled: skip schedule deleting pod: d/new".to_owned(),
        ),
        (
            "resource-claims",
            pod("new", "1", claims),
            "not evaluated: pods with resource claims are not supported: gpu".to_owned(),
        ),
        (
            "claim",
            pod("new", "1", volume),
            "not scheduled: rejected by VolumeRestrictions: persistentvolumeclaim \"none\" not found"
                .to_owned(),
        ),
        (
            "runs",
            pod("new", "1", json!({ "nodeName": "a" })),
            "runs on node a; as if it were pending: fits on 1 of 1 node".to_owned(),
        ),
        (
            "terminating",
            deleting(pod("new", "1", json!({ "nodeName": "a" }))),
            "is being deleted on node a; as if it were pending: fits on 1 of 1 node".to_owned(),
        ),
        ("fits", pod("new", "1", json!({})), "fits on 1 of 1 node".to_owned()),
        (
            "preempts",
            pod("new", "4", json!({ "priority": 9 })),
            "fits on 0 of 1 node; preemption would evict d/low from node a".to_owned(),
        ),
    ] {
        let low = pod("low", "1", json!({ "nodeName": "a" }));
        let (found, whole) = answer(test, &[a(), low, new]);
        assert_eq!(found, format!("pod d/new: {first}"), "{test}: {whole}");
    }
}

#[test]
fn the_filters_of_a_pod_that_pre_filter_rejects_are_not_hidden() {
    let volume =
        json!({ "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "none" } }] });
    let items = [node("a", "1"), node("b", "8"), pod("new", "2", volume)];
    let run = explain("hidden", &items, &["--pod", "d/new", "-o", "json"]);
    let found: Value = serde_json::from_str(&run.out).expect("one JSON object");
    let plugins = |node: &str| -> Vec<String> {
        let all = found["nodes"][node]["rejections"].as_array().expect("rejections").iter();
        all.map(|it| it["plugin"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let b = plugins("b");
    assert!(b.contains(&"VolumeBinding".to_owned()) && !b.contains(&"NodeResourcesFit".to_owned()));
    assert!(plugins("a").contains(&"NodeResourcesFit".to_owned()), "{found}");
    assert_eq!(found["fits_on"], 0);
}

#[test]
fn a_terminating_pod_is_waited_for_and_not_evicted() {
    let low = deleting(pod("low", "4", json!({ "nodeName": "a" })));
    let (_, whole) = answer("wait", &[node("a", "4"), low.clone(), pod("new", "2", json!({}))]);
    assert!(whole.contains("  - wait: frees a when d/low has terminated (1 node)\n"), "{whole}");
    assert!(!whole.contains("evict"), "{whole}");
    // Preemption does not evict it either.
    let high = pod("new", "2", json!({ "priority": 9 }));
    let (first, whole) = answer("wait-high", &[node("a", "4"), low.clone(), high]);
    let says = "pod d/new: fits on 0 of 1 node; preemption frees a when d/low has terminated";
    assert_eq!(first, says, "{whole}");
    // Another pod must go, too.
    let small = deleting(pod("low", "2", json!({ "nodeName": "a" })));
    let other = replica("other", "2", json!({ "nodeName": "a" }));
    let items = [node("a", "4"), small, other, pod("new", "4", json!({}))];
    let (_, whole) = answer("wait-both", &items);
    assert!(
        whole.contains("  - evict d/other from node a, when d/low has terminated (1 node)\n"),
        "{whole}"
    );
    // The victim was preempted for the nominated pod.
    let mut victim = low;
    victim["status"] = json!({ "phase": "Running", "conditions": [{ "type": "DisruptionTarget",
        "status": "True", "reason": "PreemptionByScheduler" }] });
    let mut preemptor = pod("new", "2", json!({ "priority": 9 }));
    preemptor["status"] = json!({ "nominatedNodeName": "a" });
    let (first, whole) = answer("nominated", &[node("a", "4"), victim, preemptor]);
    assert_eq!(first, "pod d/new: fits on 0 of 1 node; nominated to node a", "{whole}");
    let message = "preemption: not eligible due to a terminating pod on the nominated node.";
    assert!(whole.contains(message), "{whole}");
    assert!(whole.contains("frees a when d/low has terminated"), "{whole}");
}

#[test]
fn replicas_of_the_same_controller_are_not_evicted() {
    let on_a = |name: &str| replica(name, "2", json!({ "nodeName": "a" }));
    let items = [node("a", "4"), on_a("web-1-a"), on_a("web-1-b"), replica("new", "2", json!({}))];
    let (_, whole) = answer("siblings", &items);
    assert!(!whole.contains("evict"), "{whole}");
    let mut other = pod("other", "2", json!({ "nodeName": "a" }));
    other["metadata"]["ownerReferences"] = json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "name": "db-1", "uid": "v", "controller": true }]);
    let items = [node("a", "4"), on_a("web-1-a"), other, replica("new", "2", json!({}))];
    let (_, whole) = answer("others", &items);
    assert!(whole.contains("evict d/other from node a (1 node)"), "{whole}");
}

#[test]
fn labels_of_kubelets_are_not_proposed() {
    let mut a = node("a", "4");
    a["metadata"]["labels"] = json!({ "topology.kubernetes.io/zone": "y", "disk": "ssd" });
    let selecting = |key: &str, value: &str| json!({ "nodeSelector": { key: value } });
    let zone = pod("new", "1", selecting("topology.kubernetes.io/zone", "z"));
    let (_, whole) = answer("owned", &[a.clone(), zone]);
    let has = "no node has topology.kubernetes.io/zone=z; the cluster has \
               topology.kubernetes.io/zone=y\n";
    assert!(whole.contains(has) && !whole.contains("label node"), "{whole}");
    assert!(whole.contains("remove topology.kubernetes.io/zone=z from"), "{whole}");
    let (_, whole) = answer("typo", &[a, pod("new", "1", selecting("disk", "SSD"))]);
    assert!(whole.contains("no node has disk=SSD; the cluster has disk=ssd\n"), "{whole}");
    // The smallest change comes first.
    let changes = "fit:\n  - in the nodeSelector, change disk=SSD to disk=ssd (1 node)\n";
    assert!(whole.contains(changes), "{whole}");
    assert!(whole.contains("label node a disk=SSD instead of disk=ssd (1 node)"), "{whole}");
}

fn deployment(replicas: usize) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web", "namespace": "d" },
        "spec": { "replicas": replicas, "selector": { "matchLabels": { "app": "web" } }, "template": {
            "metadata": { "labels": { "app": "web" } },
            "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": "3" } } }] },
        } },
    })
}

#[test]
fn a_controller_stands_for_its_pending_pod_or_its_next_replica() {
    let first = |test: &str, items: &[Value], pod: &[&str]| {
        let run = explain(test, items, &[&["--pod"], pod].concat());
        assert_eq!(run.code, 0, "{}", run.err);
        (run.out.lines().next().unwrap_or_default().to_owned(), run.out)
    };
    let items = [node("a", "4"), deployment(2)];
    // The input has none of its pods, so both are created.
    for name in [&["deploy/web"][..], &["deployments/d/web"], &["Deployment/web", "-n", "d"]] {
        let (line, whole) = first("controller", &items, name);
        assert_eq!(line, "pod d/web-0: fits on 1 of 1 node", "{whole}");
        assert!(whole.contains("d/web-0 is the first of 2 pending pods of Deployment d/web"));
    }
    let placed = replica("web-1-a", "3", json!({ "nodeName": "a" }));
    let mut set = deployment(1);
    set["kind"] = json!("ReplicaSet");
    set["metadata"]["name"] = json!("web-1");
    let items = [node("a", "4"), placed.clone(), set];
    let (line, whole) = first("replica", &items, &["rs/web-1"]);
    assert_eq!(line, "pod d/web-1-0: fits on 0 of 1 node", "{whole}");
    assert!(whole.contains("evaluated as if it had one more replica"), "{whole}");
    // Its template is not known, but one of its pods is.
    let (line, whole) = first("unknown", &[node("a", "4"), placed], &["deploy/web"]);
    assert_eq!(
        line, "pod d/web-1-a: runs on node a; as if it were pending: fits on 1 of 1 node",
        "{whole}"
    );
    let run = explain("missing", &[node("a", "4"), deployment(1)], &["--pod", "deploy/wbe"]);
    let says = "--pod deploy/wbe: not found: did you mean web?";
    assert!(run.code == 2 && run.err.contains(says), "{}", run.err);
}

#[test]
fn pending_pods_are_grouped_by_controller_and_cause() {
    let gated = pod("gated", "1", json!({ "schedulingGates": [{ "name": "example.com/wait" }] }));
    let items = [
        node("a", "2"),
        deployment(3),
        pod("small", "1", json!({})),
        gated,
        deleting(pod("gone", "1", json!({}))),
        pod("placed", "1", json!({ "nodeName": "a" })),
    ];
    let run = explain("pending", &items, &["--pending"]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.out.starts_with("6 pods pending, of which 1 fits alone\n"), "{}", run.out);
    let run = explain("pending", &items, &["--pending", "-o", "json"]);
    let found: Value = serde_json::from_str(&run.out).expect("one JSON object");
    let groups: Vec<(&str, usize, u64, &str)> = found["groups"]
        .as_array()
        .expect("groups")
        .iter()
        .map(|it| {
            let pods = it["pods"].as_array().expect("pods").len();
            let message = it["message"].as_str().unwrap_or_default();
            (it["of"].as_str().unwrap(), pods, it["fits_on"].as_u64().unwrap(), message)
        })
        .collect();
    let cpu = "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, \
               preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
    let expected = [
        ("Deployment d/web", 3, 0, cpu),
        ("Pod d/gated", 1, 0, "Scheduling is blocked due to non-empty scheduling gates"),
        ("Pod d/gone", 1, 0, "skip schedule deleting pod: d/gone"),
        ("Pod d/small", 1, 1, ""),
    ];
    let mut sorted = groups.clone();
    sorted.sort_by_key(|(of, pods, ..)| (std::cmp::Reverse(*pods), *of));
    assert_eq!(sorted, expected);
    assert_eq!(groups[0].1, 3, "most pods come first");
    assert_eq!(found["pending"], 6);
    let csv = explain("pending", &items, &["--pending", "-o", "csv", "-n", "d"]).out;
    assert!(csv.starts_with("pods,of,fits_on,message\n3,"), "{csv}");
    let none = explain("pending", &items, &["--pending", "-n", "elsewhere"]);
    assert!(none.out.starts_with("no pods are pending"), "{}", none.out);
    let wrong = explain("pending", &items, &["--pending", "--pod", "d/small"]);
    assert_eq!(wrong.code, 2);
}
