//! The effects of the controllers.

use std::time::Duration;

use portolan_apiserver::{ApiServer, Kubelet, PatchKind};
use serde_json::{Value, json};

use crate::support::{eventually, node, pod, server_with};

fn server() -> ApiServer {
    server_with(Default::default())
}

fn workload(kind: &str, replicas: u64) -> Value {
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "pause:1"}]}}}})
}

fn pods(server: &ApiServer) -> usize {
    server.objects("Pod").len()
}

#[test]
fn a_deployment_creates_its_pods() {
    let server = server();
    server.create(&workload("Deployment", 5)).unwrap();
    eventually("5 pods", || pods(&server) == 5);
    let set = &server.objects("ReplicaSet")[0];
    assert_eq!(set["metadata"]["ownerReferences"][0]["kind"], "Deployment");
    let hash = set["metadata"]["labels"]["pod-template-hash"].as_str().unwrap();
    for pod in server.objects("Pod") {
        let name = pod["metadata"]["name"].as_str().unwrap();
        assert!(name.starts_with(&format!("web-{hash}-")), "{name}");
        assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], set["metadata"]["uid"]);
        assert_eq!(pod["metadata"]["labels"]["app"], "web");
    }
    let scale = |replicas: u64| {
        let body = json!({"spec": {"replicas": replicas}});
        server.patch("Deployment", "default", "web", PatchKind::Merge, &body).unwrap();
    };
    scale(8);
    eventually("8 pods", || pods(&server) == 8);
    scale(2);
    eventually("2 pods", || pods(&server) == 2);
    eventually("the status", || {
        server.get("Deployment", "default", "web").unwrap()["status"]["replicas"] == 2
    });
    server.delete("Deployment", "default", "web", &Value::Null).unwrap();
    eventually("nothing left", || pods(&server) == 0 && server.objects("ReplicaSet").is_empty());
}

#[test]
fn a_replica_set_replaces_lost_pods() {
    let server = server();
    server.create(&node("n")).unwrap();
    let _kubelet = Kubelet::start(&server, Duration::ZERO);
    server.create(&workload("ReplicaSet", 3)).unwrap();
    eventually("3 pods", || pods(&server) == 3);
    let names: Vec<String> = server
        .objects("Pod")
        .iter()
        .map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned())
        .collect();
    server.delete("Pod", "default", &names[0], &Value::Null).unwrap();
    eventually("a new pod", || {
        pods(&server) == 3
            && server.objects("Pod").iter().all(|pod| pod["metadata"]["name"] != names[0].as_str())
    });
    for pod in server.objects("Pod") {
        server.bind("default", pod["metadata"]["name"].as_str().unwrap(), "n").unwrap();
    }
    eventually("ready replicas", || {
        server.get("ReplicaSet", "default", "web").unwrap()["status"]["readyReplicas"] == 3
    });
}

fn class(name: &str, provisioner: &str, mode: &str) -> Value {
    json!({"kind": "StorageClass", "apiVersion": "storage.k8s.io/v1", "metadata": {"name": name},
        "provisioner": provisioner, "volumeBindingMode": mode})
}

fn volume(name: &str, class: &str, size: &str) -> Value {
    json!({"kind": "PersistentVolume", "apiVersion": "v1", "metadata": {"name": name}, "spec": {
        "storageClassName": class, "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"],
        "local": {"path": "/mnt"}}})
}

fn claim(class: &str) -> Value {
    json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1", "metadata": {"name": "c"}, "spec": {
        "storageClassName": class, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})
}

fn volume_phase(server: &ApiServer, name: &str) -> Value {
    server
        .get("PersistentVolume", "", name)
        .map(|volume| volume["status"]["phase"].clone())
        .unwrap_or_default()
}

fn claim_of(server: &ApiServer) -> Value {
    server.get("PersistentVolumeClaim", "default", "c").unwrap_or_default()
}

#[test]
fn a_claim_takes_the_smallest_volume_that_satisfies_it() {
    let server = server();
    server.create(&class("local", "kubernetes.io/no-provisioner", "Immediate")).unwrap();
    for (name, class, size) in [
        ("large", "local", "10Gi"),
        ("fits", "local", "2Gi"),
        ("small", "local", "1Mi"),
        ("other", "x", "1Gi"),
    ] {
        server.create(&volume(name, class, size)).unwrap();
    }
    eventually("an available volume", || volume_phase(&server, "fits") == "Available");
    server.create(&claim("local")).unwrap();
    eventually("a bound claim", || claim_of(&server)["status"]["phase"] == "Bound");
    let claim = claim_of(&server);
    assert_eq!(claim["spec"]["volumeName"], "fits");
    assert_eq!(claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"], "yes");
    assert_eq!(volume_phase(&server, "fits"), "Bound");
    let reference = &server.get("PersistentVolume", "", "fits").unwrap()["spec"]["claimRef"];
    assert_eq!(reference["uid"], claim["metadata"]["uid"]);
    server.delete("PersistentVolumeClaim", "default", "c", &Value::Null).unwrap();
    eventually("a released volume", || volume_phase(&server, "fits") == "Released");
    assert!(claim_of(&server).is_null());
}

#[test]
fn a_waiting_claim_is_bound_when_a_volume_names_it() {
    let server = server();
    server.create(&class("local", "kubernetes.io/no-provisioner", "WaitForFirstConsumer")).unwrap();
    server.create(&volume("pv", "local", "1Gi")).unwrap();
    let claim = server.create(&claim("local")).unwrap();
    eventually("an available volume", || volume_phase(&server, "pv") == "Available");
    assert_eq!(claim_of(&server)["status"]["phase"], "Pending");
    let reference = json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": "default", "name": "c",
        "uid": claim["metadata"]["uid"]});
    let body = json!({"spec": {"claimRef": reference}});
    server.patch("PersistentVolume", "", "pv", PatchKind::Merge, &body).unwrap();
    eventually("a bound claim", || claim_of(&server)["status"]["phase"] == "Bound");
    eventually("a bound volume", || volume_phase(&server, "pv") == "Bound");
}

#[test]
fn a_claim_that_a_pod_uses_is_not_removed() {
    let server = server();
    server.create(&claim("none")).unwrap();
    let mut user = pod("a");
    user["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
    server.create(&user).unwrap();
    server.delete("PersistentVolumeClaim", "default", "c", &Value::Null).unwrap();
    // A later action of the controllers shows that they have handled the deletion.
    server.create(&workload("ReplicaSet", 1)).unwrap();
    eventually("a later pod", || pods(&server) == 2);
    assert!(claim_of(&server)["metadata"]["deletionTimestamp"].is_string());
    server.delete("Pod", "default", "a", &Value::Null).unwrap();
    eventually("the removal", || claim_of(&server).is_null());
}

#[test]
fn a_claim_is_annotated_for_its_provisioner() {
    let server = server();
    server.create(&class("dyn", "example.com/prov", "WaitForFirstConsumer")).unwrap();
    server.create(&claim("dyn")).unwrap();
    let selected =
        json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n"}}});
    server.patch("PersistentVolumeClaim", "default", "c", PatchKind::Merge, &selected).unwrap();
    let annotation = "volume.kubernetes.io/storage-provisioner";
    eventually("the annotation", || {
        claim_of(&server)["metadata"]["annotations"][annotation] == "example.com/prov"
    });
    assert_eq!(claim_of(&server)["status"]["phase"], "Pending");
}

#[test]
fn a_budget_counts_its_healthy_pods() {
    let server = server();
    server.create(&node("n")).unwrap();
    let _kubelet = Kubelet::start(&server, Duration::ZERO);
    server
        .create(&json!({"kind": "PodDisruptionBudget", "apiVersion": "policy/v1", "metadata": {"name": "b"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}}))
        .unwrap();
    for name in ["a", "b", "c"] {
        let mut pod = pod(name);
        pod["metadata"]["labels"] = json!({"app": if name == "c" { "db" } else { "web" }});
        server.create(&pod).unwrap();
        server.bind("default", name, "n").unwrap();
    }
    let status = || server.get("PodDisruptionBudget", "default", "b").unwrap()["status"].clone();
    eventually("an allowed disruption", || status()["disruptionsAllowed"] == 1);
    assert_eq!((&status()["expectedPods"], &status()["currentHealthy"]), (&json!(2), &json!(2)));
    server.delete("Pod", "default", "a", &json!({"gracePeriodSeconds": 0})).unwrap();
    eventually("none allowed", || status()["disruptionsAllowed"] == 0);
}
