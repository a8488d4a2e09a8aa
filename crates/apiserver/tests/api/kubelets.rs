//! The writes of hollow kubelets.

use std::time::{Duration, Instant};

use portolan_apiserver::{ApiServer, Kubelet};
use serde_json::{Value, json};

use crate::support::{create_on, eventually, node, pod, server, uid};

fn phase(server: &ApiServer, name: &str) -> Value {
    server.get("Pod", "default", name).map(|pod| pod["status"]["phase"].clone()).unwrap_or_default()
}

/// Starts kubelets of a server that has the node n.
fn with_node(stop_after: Duration) -> (ApiServer, Kubelet) {
    let server = server();
    server.create(&node("n")).unwrap();
    let kubelet = Kubelet::start(&server, stop_after);
    (server, kubelet)
}

fn running(server: &ApiServer, name: &str, grace: u64) -> Value {
    let mut pod = pod(name);
    pod["spec"]["terminationGracePeriodSeconds"] = grace.into();
    create_on(server, &pod, "n");
    eventually("a running pod", || phase(server, name) == "Running");
    server.get("Pod", "default", name).unwrap()
}

#[test]
fn a_node_becomes_ready_and_keeps_its_existing_fields() {
    let server = server();
    let mut n = node("n");
    n["metadata"]["labels"] = json!({"zone": "z"});
    n["spec"] = json!({"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}, {"key": "x"}]});
    n["status"]["allocatable"] = json!({"cpu": "900m", "example.com/gpu": "2"});
    server.create(&n).unwrap();
    let _kubelet = Kubelet::start(&server, Duration::ZERO);
    eventually("a ready node", || {
        server.get("Node", "", "n").unwrap()["status"]["conditions"].is_array()
    });
    let n = server.get("Node", "", "n").unwrap();
    let conditions: Vec<_> = n["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| (&c["type"], &c["status"]))
        .collect();
    assert!(conditions.contains(&(&json!("Ready"), &json!("True"))));
    assert!(conditions.contains(&(&json!("MemoryPressure"), &json!("False"))));
    assert_eq!(n["status"]["allocatable"], json!({"cpu": "900m", "example.com/gpu": "2"}));
    assert_eq!(n["metadata"]["labels"]["kubernetes.io/hostname"], "n");
    assert_eq!(n["metadata"]["labels"]["zone"], "z");
    assert_eq!(n["spec"]["taints"], json!([{"key": "x"}]));
    // Later events do not reset allocatable resources.
    let body = json!({"status": {"allocatable": {"example.com/foo": "5"}}});
    server.patch_status("Node", "", "n", &body).unwrap();
    server.create(&node("m")).unwrap();
    eventually("another ready node", || {
        server.get("Node", "", "m").unwrap()["status"]["conditions"].is_array()
    });
    let n = server.get("Node", "", "n").unwrap();
    assert_eq!(n["status"]["allocatable"]["example.com/foo"], "5");
}

#[test]
fn a_bound_pod_runs() {
    let (server, _kubelet) = with_node(Duration::ZERO);
    let pod = running(&server, "a", 0);
    let conditions = pod["status"]["conditions"].as_array().unwrap();
    let types: Vec<_> =
        conditions.iter().map(|condition| condition["type"].as_str().unwrap()).collect();
    assert_eq!(
        types,
        ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
    );
    assert!(conditions.iter().all(|condition| condition["status"] == "True"));
    assert!(pod["status"]["startTime"].is_string() && pod["status"]["podIP"].is_string());
    let container = &pod["status"]["containerStatuses"][0];
    assert_eq!((&container["name"], &container["ready"]), (&json!("c"), &json!(true)));
    assert!(container["state"]["running"]["startedAt"].is_string());
    assert!(server.writes().iter().all(|write| write.user_agent == "direct"));
}

#[test]
fn pods_without_a_kubelet_do_not_run() {
    let (server, _kubelet) = with_node(Duration::ZERO);
    create_on(&server, &pod("b"), "ghost");
    server.create(&pod("c")).unwrap();
    running(&server, "a", 0);
    for name in ["b", "c"] {
        assert_eq!(phase(&server, name), "Pending");
    }
}

#[test]
fn a_deleted_pod_stops_and_is_then_removed() {
    let (server, _kubelet) = with_node(Duration::ZERO);
    let a = running(&server, "a", 30);
    let start = Instant::now();
    server.delete("Pod", "default", "a", &Value::Null).unwrap();
    eventually("the end of the pod", || server.get("Pod", "default", "a").is_err());
    assert!(start.elapsed() < Duration::from_secs(20));
    // A new pod may have the same name.
    let again = running(&server, "a", 30);
    assert_ne!(uid(&a), uid(&again));
}

#[test]
fn containers_are_killed_when_their_grace_period_ends() {
    let stop_after = Duration::from_secs(7200);
    let (server, _kubelet) = with_node(stop_after);
    let mut held = pod("a");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    create_on(&server, &held, "n");
    eventually("a running pod", || phase(&server, "a") == "Running");
    server.delete("Pod", "default", "a", &json!({"gracePeriodSeconds": 3600})).unwrap();
    // Once another pod runs, the kubelet has handled the deletion.
    running(&server, "b", 0);
    // The second deletion shortens the grace period.
    server.delete("Pod", "default", "a", &json!({"gracePeriodSeconds": 1})).unwrap();
    let start = Instant::now();
    eventually("the kill", || phase(&server, "a") == "Failed");
    assert!(start.elapsed() > Duration::from_millis(500));
    let pod = server.get("Pod", "default", "a").unwrap();
    assert_eq!(pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 137);
    eventually("the last deletion", || {
        server.get("Pod", "default", "a").unwrap()["metadata"]["deletionGracePeriodSeconds"] == 0
    });
    let open = json!({"metadata": {"finalizers": null}});
    server.patch("Pod", "default", "a", portolan_apiserver::PatchKind::Merge, &open).unwrap();
    assert!(server.get("Pod", "default", "a").is_err());
}

#[test]
fn a_stopped_kubelet_starts_nothing() {
    let server = server();
    server.create(&node("n")).unwrap();
    let kubelet = Kubelet::start(&server, Duration::ZERO);
    running(&server, "a", 0);
    kubelet.stop();
    create_on(&server, &pod("b"), "n");
    assert_eq!(phase(&server, "b"), "Pending");
    let _second = Kubelet::start(&server, Duration::ZERO);
    eventually("the pod after a new start", || phase(&server, "b") == "Running");
}

#[test]
fn a_pre_stop_sleep_delays_the_end() {
    let (server, _kubelet) = with_node(Duration::ZERO);
    let mut slow = pod("a");
    slow["spec"]["containers"][0]["lifecycle"] = json!({"preStop": {"sleep": {"seconds": 1}}});
    slow["metadata"]["finalizers"] = json!(["example.com/hold"]);
    create_on(&server, &slow, "n");
    eventually("a running pod", || phase(&server, "a") == "Running");
    let start = Instant::now();
    server.delete("Pod", "default", "a", &Value::Null).unwrap();
    eventually("the end of the pod", || phase(&server, "a") == "Succeeded");
    assert!(start.elapsed() >= Duration::from_secs(1));
    let pod = server.get("Pod", "default", "a").unwrap();
    assert_eq!(pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 0);
}

#[test]
fn kubelets_may_outlive_their_server() {
    let server = server();
    let kubelet = Kubelet::start(&server, Duration::ZERO);
    drop(server);
    kubelet.stop();
}
