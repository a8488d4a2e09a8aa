//! The server's part in scheduling: the writes of a scheduler, in order, with controllers and hollow kubelets.

use std::time::Duration;

use portolan_apiserver::{ApiServer, Kubelet, Options};
use serde_json::{Value, json};

use crate::support::{Client, binding, client, eventually, node, pod, server_with, uid};

const PODS: &str = "/api/v1/namespaces/default/pods";

fn cluster() -> (ApiServer, Kubelet, Client) {
    let server = server_with(Options::default());
    for name in ["n1", "n2"] {
        server.create(&node(name)).unwrap();
    }
    let kubelet = Kubelet::start(&server, Duration::ZERO);
    let client = client(&server);
    (server, kubelet, client)
}

fn is_running(server: &ApiServer, name: &str) -> bool {
    server.get("Pod", "default", name).is_ok_and(|pod| pod["status"]["phase"] == "Running")
}

fn bind(server: &ApiServer, client: &mut Client, name: &str, node: &str) {
    let pod = server.get("Pod", "default", name).unwrap();
    let reply = client.post(&format!("{PODS}/{name}/binding"), &binding(name, &uid(&pod), node));
    assert_eq!(reply.code, 201, "{}", reply.body);
    eventually("a running pod", || is_running(server, name));
}

fn types(pod: &Value) -> Vec<&str> {
    let conditions = pod["status"]["conditions"].as_array().unwrap();
    conditions.iter().map(|condition| condition["type"].as_str().unwrap()).collect()
}

#[test]
fn a_preempted_pod_frees_its_node_for_the_preemptor() {
    let (server, _kubelet, mut client) = cluster();
    for (name, value) in [("high", 1000), ("low", 10)] {
        let class = json!({"kind": "PriorityClass", "apiVersion": "scheduling.k8s.io/v1", "metadata": {"name": name},
            "value": value});
        server.create(&class).unwrap();
        let mut pod = pod(name);
        pod["spec"]["priorityClassName"] = name.into();
        pod["spec"]["terminationGracePeriodSeconds"] = 0.into();
        server.create(&pod).unwrap();
    }
    bind(&server, &mut client, "low", "n1");

    let failed = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "m",
        "observedGeneration": 1, "lastProbeTime": null, "lastTransitionTime": "2026-11-22T12:00:00Z"});
    let status = json!({"status": {"conditions": [failed], "nominatedNodeName": "n1"}});
    let nominated = client.patch(&format!("{PODS}/high/status"), &status).body;
    assert_eq!(nominated["status"]["nominatedNodeName"], "n1");
    assert_eq!(nominated["status"]["conditions"][0], failed);

    let kubelets =
        ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];
    let order: Vec<Value> =
        kubelets.iter().chain(&["DisruptionTarget"]).map(|kind| json!({"type": kind})).collect();
    let target =
        json!({"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"});
    let status = json!({"status": {"$setElementOrder/conditions": order, "conditions": [target]}});
    let victim = client.patch(&format!("{PODS}/low/status"), &status);
    assert_eq!(victim.code, 200, "{}", victim.body);
    assert_eq!(types(&victim.body), [&kubelets[..], &["DisruptionTarget"]].concat());
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid(&victim.body)}});
    assert_eq!(client.delete(&format!("{PODS}/low"), &options).code, 200);
    assert!(server.get("Pod", "default", "low").is_err());

    bind(&server, &mut client, "high", "n1");
    let high = server.get("Pod", "default", "high").unwrap();
    assert_eq!(high["status"].get("nominatedNodeName"), None);
    assert_eq!(types(&high), kubelets);
}

#[test]
fn a_scheduler_binds_a_volume_by_an_update() {
    let (server, _kubelet, mut client) = cluster();
    let class = json!({"kind": "StorageClass", "apiVersion": "storage.k8s.io/v1", "metadata": {"name": "local"},
        "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"});
    let volume = json!({"kind": "PersistentVolume", "apiVersion": "v1", "metadata": {"name": "pv"}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "local",
        "local": {"path": "/mnt"}}});
    let claim = json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1", "metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "local", "resources": {"requests": {"storage": "1Gi"}}}});
    let mut user = pod("v");
    user["spec"]["volumes"] =
        json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
    let created = [&class, &volume, &claim, &user].map(|object| server.create(object).unwrap());
    eventually("an available volume", || {
        server.get("PersistentVolume", "", "pv").unwrap()["status"]["phase"] == "Available"
    });

    let mut volume = client.get("/api/v1/persistentvolumes/pv").body;
    let mut stale = volume.clone();
    volume["metadata"]["annotations"] = json!({"pv.kubernetes.io/bound-by-controller": "yes"});
    volume["spec"]["claimRef"] = json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": "default",
        "name": "data", "uid": uid(&created[2]), "resourceVersion": created[2]["metadata"]["resourceVersion"]});
    assert_eq!(client.put("/api/v1/persistentvolumes/pv", &volume).code, 200);
    stale["spec"]["claimRef"] = json!({"namespace": "default", "name": "other"});
    assert_eq!(client.put("/api/v1/persistentvolumes/pv", &stale).code, 409);
    let claim = || server.get("PersistentVolumeClaim", "default", "data").unwrap();
    eventually("a bound claim", || claim()["status"]["phase"] == "Bound");
    assert_eq!(claim()["spec"]["volumeName"], "pv");
    assert_eq!(claim()["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"], "yes");
    bind(&server, &mut client, "v", "n2");
}
