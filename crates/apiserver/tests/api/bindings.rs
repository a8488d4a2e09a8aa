//! Rules of binding.

use serde_json::{Value, json};

use crate::support::{binding, client, node, pod, server, uid};

const PATH: &str = "/api/v1/namespaces/default/pods/a/binding";

#[test]
fn a_binding_places_the_pod_in_one_write() {
    let server = server();
    let mut zone = node("n1");
    zone["metadata"]["labels"]["topology.kubernetes.io/zone"] = "z".into();
    server.create(&zone).unwrap();
    let a = server.create(&pod("a")).unwrap();
    server
        .patch_status("Pod", "default", "a", &json!({"status": {"nominatedNodeName": "n1"}}))
        .unwrap();
    let before = server.version();
    let mut body = binding("a", &uid(&a), "n1");
    body["metadata"]["annotations"] = json!({"example.com/decision": "7"});
    let reply = client(&server).post(PATH, &body);
    let success = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    assert_eq!((reply.code, reply.body), (201, success));
    assert_eq!(server.version(), before + 1);
    let bound = server.get("Pod", "default", "a").unwrap();
    assert_eq!(bound["spec"]["nodeName"], "n1");
    assert_eq!(bound["status"]["nominatedNodeName"], Value::Null);
    assert_eq!(bound["metadata"]["annotations"]["example.com/decision"], "7");
    assert_eq!(bound["metadata"]["labels"]["topology.kubernetes.io/zone"], "z");
    assert_eq!(bound["metadata"]["generation"], 1);
    let condition = &bound["status"]["conditions"][0];
    assert_eq!(condition["type"], "PodScheduled");
    assert_eq!(condition["status"], "True");
    assert_eq!(condition.get("observedGeneration"), None);
    assert!(condition.get("lastProbeTime").is_some_and(Value::is_null));
}

#[test]
fn a_binding_replaces_the_condition_of_a_failure() {
    let server = server();
    server.create(&pod("a")).unwrap();
    let failed = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "m"});
    server
        .patch_status("Pod", "default", "a", &json!({"status": {"conditions": [failed]}}))
        .unwrap();
    server.bind("default", "a", "n1").unwrap();
    let bound = server.get("Pod", "default", "a").unwrap();
    let conditions = bound["status"]["conditions"].as_array().unwrap();
    assert_eq!(conditions.len(), 1);
    assert_eq!(conditions[0]["status"], "True");
    assert_eq!(conditions[0].get("reason"), None);
}

#[test]
fn a_second_binding_is_a_conflict_that_names_the_node() {
    let server = server();
    let a = server.create(&pod("a")).unwrap();
    let mut client = client(&server);
    assert_eq!(client.post(PATH, &binding("a", &uid(&a), "n1")).code, 201);
    for node in ["n1", "n2"] {
        let reply = client.post(PATH, &binding("a", &uid(&a), node));
        assert_eq!((reply.code, &reply.body["reason"]), (409, &json!("Conflict")));
        let text = r#"Operation cannot be fulfilled on pods/binding "a": pod a is already assigned to node "n1""#;
        assert_eq!(reply.message(), text);
        assert_eq!(reply.body["details"], json!({"name": "a", "kind": "pods/binding"}));
    }
    assert_eq!(server.get("Pod", "default", "a").unwrap()["spec"]["nodeName"], "n1");
}

#[test]
fn a_binding_with_another_uid_is_a_conflict() {
    let server = server();
    let a = server.create(&pod("a")).unwrap();
    let reply = client(&server).post(PATH, &binding("a", "other", "n1"));
    assert_eq!((reply.code, &reply.body["details"]["kind"]), (409, &json!("pods")));
    let text =
        format!("Precondition failed: UID in precondition: other, UID in object meta: {}", uid(&a));
    assert!(reply.message().ends_with(&text), "{}", reply.message());
    assert_eq!(server.get("Pod", "default", "a").unwrap()["spec"].get("nodeName"), None);
}

#[test]
fn a_terminating_pod_is_not_bound() {
    let server = server();
    let mut held = pod("a");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    let a = server.create(&held).unwrap();
    server.delete("Pod", "default", "a", &Value::Null).unwrap();
    let reply = client(&server).post(PATH, &binding("a", &uid(&a), "n1"));
    let why = "pod a is being deleted, cannot be assigned to a host";
    let text = format!("Operation cannot be fulfilled on pods/binding \"a\": {why}");
    assert_eq!((reply.code, reply.message()), (409, text.as_str()));
}

#[test]
fn a_gated_pod_is_not_bound() {
    let server = server();
    let mut gated = pod("a");
    gated["spec"]["schedulingGates"] = json!([{"name": "example.com/quota"}]);
    let a = server.create(&gated).unwrap();
    assert_eq!(a["status"]["conditions"][0]["reason"], "SchedulingGated");
    let mut client = client(&server);
    let reply = client.post(PATH, &binding("a", &uid(&a), "n1"));
    let text = r#"Operation cannot be fulfilled on pods/binding "a": pod a has non-empty .spec.schedulingGates"#;
    assert_eq!((reply.code, reply.message()), (409, text));
    let open = client
        .merge("/api/v1/namespaces/default/pods/a", &json!({"spec": {"schedulingGates": null}}));
    assert_eq!((open.code, &open.body["metadata"]["generation"]), (200, &json!(2)));
    assert_eq!(client.post(PATH, &binding("a", &uid(&a), "n1")).code, 201);
    let bound = server.get("Pod", "default", "a").unwrap();
    assert_eq!(bound["status"]["conditions"][0]["status"], "True");
}

#[test]
fn bindings_of_missing_pods_and_wrong_names_are_refused() {
    let server = server();
    let mut client = client(&server);
    let reply = client.post(PATH, &binding("a", "u", "n1"));
    assert_eq!((reply.code, reply.message()), (404, "pods \"a\" not found"));
    server.create(&pod("a")).unwrap();
    assert_eq!(client.post(PATH, &binding("b", "", "n1")).code, 400);
    assert_eq!(client.post(PATH, &binding("a", "", "")).code, 500);
}

#[test]
fn one_of_several_concurrent_bindings_wins() {
    let server = server();
    let a = server.create(&pod("a")).unwrap();
    let address = server.address();
    let codes: Vec<u16> = std::thread::scope(|scope| {
        let bind = |index: usize| {
            let body = binding("a", &uid(&a), &format!("n{index}"));
            move || crate::support::Client::new(address).post(PATH, &body).code
        };
        let threads: Vec<_> = (0..8).map(|index| scope.spawn(bind(index))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(codes.iter().filter(|code| **code == 201).count(), 1);
    assert_eq!(codes.iter().filter(|code| **code == 409).count(), 7);
}
