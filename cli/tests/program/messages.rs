//! `explain` and `what-if` give the messages that `run` writes to the conditions of pods.

use portolan_apiserver::ApiServer;
use serde_json::{Value, json};

use crate::common::{file, portolan};
use crate::live::{SHORT, run};
use crate::running::{self, create, create_pod, is_bound, until};

/// Two nodes, one with a taint.
fn cluster() -> ApiServer {
    let server = running::cluster(&[("n1", "8"), ("n2", "8")]);
    let mut second = server.get("Node", "", "n2").expect("a node");
    second["spec"]["taints"] = json!([{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]);
    server.update(&second).expect("a node");
    for (name, value, policy) in
        [("high", 1_000, "PreemptLowerPriority"), ("never", 1_000, "Never")]
    {
        create(
            &server,
            json!({
                "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
                "value": value, "preemptionPolicy": policy,
            }),
        );
    }
    for (class, mode) in [("now", "Immediate"), ("later", "WaitForFirstConsumer")] {
        create(
            &server,
            json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": class},
                "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": mode,
            }),
        );
        create(
            &server,
            json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {"name": class, "namespace": "default"},
                "spec": {
                    "storageClassName": class, "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            }),
        );
    }
    server
}

/// The pods that no node takes: the name, the request of CPU, and other fields.
fn failures() -> Vec<(&'static str, &'static str, Value)> {
    let claim = |name: &str| json!({"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": name}}]});
    let tolerations = json!([{"key": "dedicated", "operator": "Exists"}]);
    let term = |app: &str| json!([{"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}]);
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let spread = |key: &str| {
        json!({"topologySpreadConstraints": [{
            "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchExpressions": [
                {"key": "app", "operator": "In", "values": ["filler", "spread"]},
            ]},
        }]})
    };
    vec![
        ("large", "9", json!({})),
        ("large-anywhere", "9", json!({"tolerations": tolerations})),
        ("elsewhere", "1", json!({"nodeSelector": {"zone": "y"}})),
        ("here", "9", json!({"nodeSelector": {"kubernetes.io/hostname": "n1"}})),
        ("equal", "4", json!({})),
        ("higher-but-never", "4", json!({"priorityClassName": "never"})),
        ("higher", "9", json!({"priorityClassName": "high", "tolerations": tolerations})),
        ("no-claim", "1", claim("none")),
        ("unbound-now", "1", claim("now")),
        ("unbound-later", "1", claim("later")),
        ("apart", "1", json!({"affinity": {"podAntiAffinity": {required: term("filler")}}})),
        ("together", "1", json!({"affinity": {"podAffinity": {required: term("none")}}})),
        ("port", "1", json!({"ports": [{"containerPort": 80, "hostPort": 80}]})),
        ("no-domain", "1", spread("rack")),
        ("spread", "1", spread("kubernetes.io/hostname")),
        ("gated", "1", json!({"schedulingGates": [{"name": "example.com/wait"}]})),
    ]
}

/// The message of the pod's condition.
fn written(server: &ApiServer, name: &str) -> Option<String> {
    let pod = server.get("Pod", "default", name).expect("the pod");
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let scheduled = conditions.into_iter().find(|it| it["type"] == "PodScheduled");
    scheduled.and_then(|it| it["message"].as_str().map(str::to_owned))
}

#[test]
fn explain_and_what_if_give_the_message_that_the_scheduler_writes() {
    let server = cluster();
    let running = run(&server, &SHORT);
    let ports = json!([{"containerPort": 80, "hostPort": 80}]);
    create_pod(&server, "filler", "6", json!({"ports": ports}));
    until("bound", || is_bound(&server, "filler"));
    for (name, cpu, spec) in failures() {
        create_pod(&server, name, cpu, spec);
        until(name, || written(&server, name).is_some() || is_bound(&server, name));
        assert!(!is_bound(&server, name), "{name} fits");
    }
    drop(running);
    let mut objects = Vec::new();
    for kind in
        ["Namespace", "Node", "PriorityClass", "StorageClass", "PersistentVolumeClaim", "Pod"]
    {
        objects.extend(server.objects(kind));
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    let dumped = file("messages", "cluster.json", list.to_string().as_bytes());
    let url = server.url();
    let mut differ = Vec::new();
    for source in [["--cluster", &dumped], ["--master", &url]] {
        let json = |arguments: &[&str]| -> Value {
            let run = portolan(&[arguments, &source, &["-o", "json"]].concat());
            serde_json::from_str(&run.out).unwrap_or_else(|_| panic!("{}", run.err))
        };
        let (answer, groups) = (json(&["what-if"]), json(&["explain", "--pending"]));
        for (name, ..) in failures() {
            let written = json!(written(&server, name));
            let key = format!("default/{name}");
            let explained = json(&["explain", "--pod", name]);
            let pending = answer["pending"].as_array().expect("pods");
            let pending = pending.iter().find(|it| it["pod"] == *key).map(|it| &it["why"]);
            let all = groups["groups"].as_array().expect("groups");
            let group = all.iter().find(|it| it["pods"] == json!([key])).map(|it| &it["message"]);
            for (command, found) in [
                ("explain", Some(&explained["message"])),
                ("what-if", pending),
                ("explain --pending", group),
            ] {
                if found != Some(&written) {
                    differ
                        .push(format!("{} {command} {name}:\n  {found:?}\n  {written}", source[0]));
                }
            }
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}
