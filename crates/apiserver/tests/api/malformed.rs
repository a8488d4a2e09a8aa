//! Bodies with values of the wrong types.

use portolan_apiserver::{Kubelet, Options};
use serde_json::{Value, json};

use crate::support::{Client, client, eventually, node, pod, server_with};

const PODS: &str = "/api/v1/namespaces/default/pods";

/// Replaces each part of `body` in turn by each of some values of other types.
fn distorted(body: &Value) -> Vec<Value> {
    fn paths(value: &Value, path: String, all: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                map.iter().for_each(|(key, value)| paths(value, format!("{path}/{key}"), all))
            }
            Value::Array(items) => items
                .iter()
                .enumerate()
                .for_each(|(at, item)| paths(item, format!("{path}/{at}"), all)),
            _ => {}
        }
        all.push(path);
    }
    let mut all = Vec::new();
    paths(body, String::new(), &mut all);
    let values = [
        json!(null),
        json!("x"),
        json!(7),
        json!(-1),
        json!(u64::MAX),
        json!([]),
        json!([7]),
        json!({}),
        json!({"a": 1}),
    ];
    let distort = |path: &String, value: &Value| {
        let mut body = body.clone();
        *body.pointer_mut(path).unwrap() = value.clone();
        body
    };
    all.iter().flat_map(|path| values.iter().map(move |value| distort(path, value))).collect()
}

#[test]
fn malformed_bodies_do_not_harm_the_server() {
    let server = server_with(Options::default());
    let _kubelet = Kubelet::start(&server, Default::default());
    let mut client = client(&server);
    server.create(&node("n")).unwrap();
    let mut full = pod("a");
    full["metadata"]["labels"] = json!({"app": "a"});
    full["metadata"]["finalizers"] = json!(["example.com/x"]);
    full["metadata"]["ownerReferences"] = json!([{"kind": "Job", "uid": "u", "controller": true}]);
    full["spec"]["nodeName"] = "n".into();
    full["spec"]["tolerations"] = json!([{"key": "k"}]);
    full["spec"]["schedulingGates"] = json!([]);
    full["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
    full["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80}]);
    full["spec"]["containers"][0]["lifecycle"] = json!({"preStop": {"sleep": {"seconds": 1}}});
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    let path = format!("{PODS}/a");
    let send = |client: &mut Client, method: &str, path: &str, kind: &str, body: &Value| {
        let reply = client.request(method, path, kind, &body.to_string()).unwrap();
        assert!(
            // kube-apiserver also answers some of these requests with 500 and no reason.
            reply.code < 500 || path.ends_with("binding") || reply.body["reason"].is_null(),
            "{method} {path} {body}: {}",
            reply.body
        );
    };
    let patches = ["application/merge-patch+json", "application/strategic-merge-patch+json"];
    let bodies = distorted(&full);
    for body in &bodies {
        send(&mut client, "POST", PODS, "application/json", body);
        send(&mut client, "PUT", &path, "application/json", body);
        for kind in patches {
            send(&mut client, "PATCH", &path, kind, body);
        }
        send(&mut client, "DELETE", &path, "application/json", body);
        send(&mut client, "PATCH", &path, patches[0], &json!({"metadata": {"finalizers": null}}));
        send(&mut client, "DELETE", &path, "application/json", &json!({"gracePeriodSeconds": 0}));
    }
    server.create(&pod("b")).unwrap();
    for body in distorted(&status) {
        for kind in patches {
            send(&mut client, "PATCH", &format!("{PODS}/b/status"), kind, &body);
        }
    }
    for body in distorted(
        &json!({"metadata": {"name": "b", "labels": {"a": "b"}}, "target": {"kind": "Node", "name": "n"}}),
    ) {
        send(&mut client, "POST", &format!("{PODS}/b/binding"), "application/json", &body);
    }
    let options = json!({"gracePeriodSeconds": 1, "preconditions": {"uid": "u"}, "propagationPolicy": "Background"});
    for body in distorted(&options) {
        send(&mut client, "DELETE", &format!("{PODS}/b"), "application/json", &body);
    }
    let template =
        json!({"metadata": {"labels": {"app": "w"}}, "spec": {"containers": [{"name": "c"}]}});
    let web = json!({"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "w"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "w"}}, "template": template}});
    let workloads = "/apis/apps/v1/namespaces/default/deployments";
    for mut body in distorted(&web) {
        // Creating 2^64 pods would never end.
        if body["spec"]["replicas"].as_u64().is_some_and(|replicas| replicas > 10) {
            continue;
        }
        if body["metadata"]["name"].is_string() {
            body["metadata"]["name"] = format!("w{}", server.version()).into();
        }
        send(&mut client, "POST", workloads, "application/json", &body);
    }
    // The controllers and the kubelet still work.
    let mut last = web.clone();
    last["metadata"]["name"] = "last".into();
    server.create(&last).unwrap();
    let of_last = |pod: &Value| {
        pod["metadata"]["generateName"].as_str().is_some_and(|name| name.starts_with("last-"))
    };
    eventually("a pod", || server.objects("Pod").iter().any(of_last));
    let name = server.objects("Pod").into_iter().find(of_last).unwrap()["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    server.bind("default", &name, "n").unwrap();
    eventually("the pod's start", || {
        server.get("Pod", "default", &name).unwrap()["status"]["phase"] == "Running"
    });
}
