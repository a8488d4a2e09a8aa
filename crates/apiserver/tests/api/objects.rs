//! Rules of create, get, list, update, patch and delete.

use portolan_apiserver::{Options, User};
use serde_json::{Value, json};

use crate::support::{client, node, pod, server, server_with, uid};

const PODS: &str = "/api/v1/namespaces/default/pods";
const A: &str = "/api/v1/namespaces/default/pods/a";
const A_STATUS: &str = "/api/v1/namespaces/default/pods/a/status";
const B: &str = "/api/v1/namespaces/default/pods/b";

#[test]
fn a_created_pod_has_defaults_and_no_status_of_its_own() {
    let server = server();
    let mut body = pod("a");
    body["status"] = json!({"phase": "Running"});
    body["metadata"]["uid"] = "mine".into();
    let reply = client(&server).post(PODS, &body);
    assert_eq!(reply.code, 201);
    let pod = reply.body;
    assert_eq!((&pod["kind"], &pod["apiVersion"]), (&json!("Pod"), &json!("v1")));
    assert_eq!(pod["status"], json!({"phase": "Pending", "qosClass": "Burstable"}));
    assert_ne!(pod["metadata"]["uid"], "mine");
    assert_eq!(pod["metadata"]["generation"], 1);
    assert_eq!(pod["metadata"]["namespace"], "default");
    assert_eq!(pod["metadata"]["resourceVersion"], server.version().to_string());
    assert!(pod["metadata"]["creationTimestamp"].as_str().unwrap().ends_with('Z'));
    let spec = &pod["spec"];
    for (field, value) in [
        ("restartPolicy", json!("Always")),
        ("dnsPolicy", json!("ClusterFirst")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("schedulerName", json!("default-scheduler")),
        ("priority", json!(0)),
        ("preemptionPolicy", json!("PreemptLowerPriority")),
        ("serviceAccountName", json!("default")),
    ] {
        assert_eq!(spec[field], value, "{field}");
    }
    assert_eq!(spec["containers"][0]["imagePullPolicy"], "IfNotPresent");
    let tolerated: Vec<_> =
        spec["tolerations"].as_array().unwrap().iter().map(|t| t["key"].clone()).collect();
    assert_eq!(tolerated, ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]);
}

#[test]
fn priority_comes_from_the_class() {
    let server = server();
    let class = |name: &str, value: i64| {
        let metadata = json!({"name": name});
        json!({"kind": "PriorityClass", "apiVersion": "scheduling.k8s.io/v1", "metadata": metadata, "value": value})
    };
    server.create(&class("high", 1000)).unwrap();
    let with = |name: &str, class: &str| {
        let mut pod = pod(name);
        pod["spec"]["priorityClassName"] = class.into();
        pod
    };
    assert_eq!(server.create(&with("a", "high")).unwrap()["spec"]["priority"], 1000);
    let error = server.create(&with("b", "none")).unwrap_err();
    let text = "pods \"b\" is forbidden: no PriorityClass with name none was found";
    assert_eq!((error.code, error.message.as_str()), (403, text));
    let mut given = with("c", "high");
    given["spec"]["priority"] = 5.into();
    assert_eq!(server.create(&given).unwrap_err().code, 403);
    let mut default = class("default", 7);
    default["globalDefault"] = true.into();
    server.create(&default).unwrap();
    let pod = server.create(&pod("d")).unwrap();
    assert_eq!(pod["spec"]["priority"], 7);
    assert_eq!(pod["spec"]["priorityClassName"], "default");
}

#[test]
fn a_pod_created_on_a_node_gets_its_topology_labels() {
    let server = server();
    let mut zone = node("n");
    zone["metadata"]["labels"] =
        json!({"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r", "x": "y"});
    server.create(&zone).unwrap();
    let mut assigned = pod("a");
    assigned["spec"]["nodeName"] = "n".into();
    assigned["metadata"]["labels"] = json!({"topology.kubernetes.io/region": "mine"});
    let labels = server.create(&assigned).unwrap()["metadata"]["labels"].clone();
    assert_eq!(
        labels,
        json!({"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "mine"})
    );
}

#[test]
fn volumes_and_claims_have_their_first_fields() {
    let server = server();
    let volume = server
        .create(&json!({"kind": "PersistentVolume", "apiVersion": "v1", "metadata": {"name": "pv"},
            "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "local": {"path": "/mnt"}}}))
        .unwrap();
    assert_eq!(volume["spec"]["volumeMode"], "Filesystem");
    assert_eq!(volume["spec"]["persistentVolumeReclaimPolicy"], "Retain");
    assert_eq!(volume["metadata"]["finalizers"], json!(["kubernetes.io/pv-protection"]));
    assert_eq!(volume["metadata"].get("generation"), None);
    assert_eq!(volume["status"]["phase"], "Pending");
    assert!(volume["status"]["lastPhaseTransitionTime"].is_string());
    let claim = server
        .create(&json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1", "metadata": {"name": "c"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}))
        .unwrap();
    assert_eq!(claim["spec"]["volumeMode"], "Filesystem");
    assert_eq!(claim["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    assert_eq!(claim["status"], json!({"phase": "Pending"}));
}

#[test]
fn refused_creations_name_the_reason() {
    let server = server();
    let mut client = client(&server);
    server.create(&pod("a")).unwrap();
    let mut refused = |path: &str, body: Value, code: u16, message: &str| {
        let reply = client.post(path, &body);
        assert_eq!(reply.code, code, "{}", reply.body);
        assert!(reply.message().starts_with(message), "{}", reply.message());
        assert_eq!(reply.body["kind"], "Status");
        assert_eq!(reply.body["status"], "Failure");
    };
    refused(PODS, pod("a"), 409, "pods \"a\" already exists");
    refused(PODS, pod("A"), 422, "Pod \"A\" is invalid: metadata.name: Invalid value: \"A\"");
    refused(PODS, pod(""), 422, "Pod \"\" is invalid: metadata.name: Required value");
    refused(PODS, node("b"), 400, "the kind in the data (Node)");
    refused("/api/v1/namespaces/none/pods", pod("b"), 404, "namespaces \"none\" not found");
    let mut elsewhere = pod("b");
    elsewhere["metadata"]["namespace"] = "kube-system".into();
    refused(PODS, elsewhere, 400, "the namespace of the provided object");
    let empty = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "b"}, "spec": {}});
    refused(PODS, empty, 422, "Pod \"b\" is invalid: spec.containers: Required value");
    refused(
        "/api/v1/namespaces/default/pods?dryRun=All",
        pod("b"),
        400,
        "this server does not support dryRun",
    );
    let reply = client.request("POST", PODS, "application/vnd.kubernetes.protobuf", "k8s").unwrap();
    assert_eq!(reply.code, 415);
    assert_eq!(client.request("POST", PODS, "application/json", "{").unwrap().code, 400);
}

#[test]
fn names_are_generated() {
    let server = server();
    let mut body = pod("");
    body["metadata"] = json!({"generateName": "web-"});
    let first =
        client(&server).post(PODS, &body).body["metadata"]["name"].as_str().unwrap().to_owned();
    let second = server.create(&body).unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    assert!(first.starts_with("web-") && first.len() == 9 && first != second);
    assert_eq!(server.writes()[0].name, first);
}

#[test]
fn an_update_needs_the_latest_version() {
    let server = server();
    let mut client = client(&server);
    let old = server.create(&node("n")).unwrap();
    let mut new = old.clone();
    new["metadata"]["labels"]["a"] = "1".into();
    let reply = client.put("/api/v1/nodes/n", &new);
    assert_eq!((reply.code, &reply.body["metadata"]["labels"]["a"]), (200, &json!("1")));
    let reply = client.put("/api/v1/nodes/n", &new);
    assert_eq!(
        (reply.code, reply.message()),
        (
            409,
            "Operation cannot be fulfilled on nodes \"n\": the object has been modified; please apply your changes to \
             the latest version and try again"
        )
    );
    new["metadata"]["resourceVersion"] = "".into();
    new["metadata"]["labels"]["a"] = "2".into();
    assert_eq!(client.put("/api/v1/nodes/n", &new).code, 200);
    new["metadata"]["uid"] = "other".into();
    assert_eq!(client.put("/api/v1/nodes/n", &new).code, 409);
    assert_eq!(client.put("/api/v1/nodes/m", &new).code, 400);
    new["metadata"]["name"] = "m".into();
    assert_eq!(client.put("/api/v1/nodes/m", &new).code, 404);
}

#[test]
fn a_lease_update_requires_its_version_and_put_creates_a_lease() {
    let server = server();
    let mut client = client(&server);
    let path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/s";
    let lease = json!({"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": {"name": "s"},
        "spec": {"holderIdentity": "a", "renewTime": "2026-01-01T00:00:00.000000Z"}});
    let created = client.put(path, &lease);
    assert_eq!(created.code, 201);
    let reply = client.put(path, &lease);
    assert_eq!(reply.code, 422);
    assert!(reply.message().contains("must be specified for an update"), "{}", reply.message());
    let mut new = created.body;
    new["spec"]["holderIdentity"] = "b".into();
    assert_eq!(client.put(path, &new).code, 200);
    new["spec"]["holderIdentity"] = "c".into();
    assert_eq!(client.put(path, &new).code, 409);
}

#[test]
fn the_status_is_written_only_through_its_subresource() {
    let server = server();
    let mut client = client(&server);
    let a = server.create(&pod("a")).unwrap();
    let both = json!({"metadata": {"labels": {"x": "1"}}, "status": {"phase": "Running"}});
    let main = client.patch(A, &both).body;
    assert_eq!(main["metadata"]["labels"]["x"], "1");
    assert_eq!(main["status"]["phase"], "Pending");
    let both = json!({"metadata": {"labels": {"x": "2"}}, "spec": {"priority": 3}, "status": {"phase": "Running"}});
    let status = client.patch(A_STATUS, &both).body;
    assert_eq!(status["metadata"]["labels"]["x"], "1");
    assert_eq!(status["status"]["phase"], "Running");
    assert_eq!(status["spec"], a["spec"]);
    assert_eq!(status["metadata"]["generation"], 1);
    assert_eq!(client.get(A_STATUS).body["status"]["phase"], "Running");
}

#[test]
fn a_patch_may_require_a_uid_and_a_version() {
    let server = server();
    let mut client = client(&server);
    let a = server.create(&pod("a")).unwrap();
    let patch = |uid: &str| json!({"metadata": {"uid": uid}, "status": {"nominatedNodeName": "n"}});
    assert_eq!(client.patch(A_STATUS, &patch(&uid(&a))).code, 200);
    let reply = client.patch(A_STATUS, &patch("other"));
    let text = "Pod \"a\" is invalid: metadata.uid: Invalid value: \"other\": field is immutable";
    assert_eq!((reply.code, reply.message()), (422, text));
    let versioned =
        json!({"metadata": {"resourceVersion": "1"}, "status": {"nominatedNodeName": "m"}});
    assert_eq!(client.patch(A_STATUS, &versioned).code, 409);
    let json_patch =
        client.request("PATCH", A_STATUS, "application/json-patch+json", "[]").unwrap();
    assert_eq!(json_patch.code, 415);
    assert_eq!(client.patch(&format!("{PODS}/b/status"), &patch("")).code, 404);
}

#[test]
fn a_patch_that_changes_nothing_gets_no_version() {
    let server = server();
    let mut client = client(&server);
    server.create(&pod("a")).unwrap();
    let patch = json!({"status": {"conditions": [{"type": "PodScheduled", "status": "False", "lastProbeTime": null}]}});
    let first = client.patch(A_STATUS, &patch).body;
    let second = client.patch(A_STATUS, &patch).body;
    assert_eq!(first["metadata"]["resourceVersion"], second["metadata"]["resourceVersion"]);
}

#[test]
fn changes_of_immutable_pod_fields_are_refused() {
    let server = server();
    let mut client = client(&server);
    let mut tolerant = pod("a");
    tolerant["spec"]["tolerations"] = json!([{"key": "k", "operator": "Exists"}]);
    server.create(&tolerant).unwrap();
    let mut refused = |patch: Value| {
        let reply = client.merge(A, &patch);
        assert_eq!(reply.code, 422, "{}", reply.body);
    };
    refused(json!({"spec": {"nodeName": "n"}}));
    refused(json!({"spec": {"priority": 9}}));
    refused(json!({"spec": {"schedulingGates": [{"name": "g"}]}}));
    refused(json!({"spec": {"tolerations": []}}));
    refused(json!({"metadata": {"uid": "other"}}));
    let image =
        json!({"spec": {"containers": [{"name": "c", "image": "registry.example.com/pause:2"}]}});
    let changed = client.patch(A, &image);
    assert_eq!((changed.code, &changed.body["metadata"]["generation"]), (200, &json!(2)));
    let label = client.merge(A, &json!({"metadata": {"labels": {"x": "1"}, "generation": 9}}));
    assert_eq!((label.code, &label.body["metadata"]["generation"]), (200, &json!(2)));
}

#[test]
fn a_pod_without_a_node_is_removed_at_once_and_a_bound_one_gets_its_grace_period() {
    let server = server();
    let mut client = client(&server);
    server.create(&pod("a")).unwrap();
    server.create(&pod("b")).unwrap();
    assert_eq!(client.delete(A, &Value::Null).code, 200);
    assert_eq!(client.get(A).code, 404);
    server.bind("default", "b", "n").unwrap();
    let deleted = client.delete(B, &Value::Null).body;
    assert_eq!(deleted["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(deleted["metadata"]["generation"], 2);
    let again = client.delete(B, &json!({"gracePeriodSeconds": 60})).body;
    assert_eq!(again["metadata"]["resourceVersion"], deleted["metadata"]["resourceVersion"]);
    let same = client.delete(B, &json!({"gracePeriodSeconds": 30})).body;
    assert_eq!(same["metadata"]["resourceVersion"], deleted["metadata"]["resourceVersion"]);
    let shorter = client.delete(B, &json!({"gracePeriodSeconds": 5})).body;
    assert_eq!(shorter["metadata"]["deletionGracePeriodSeconds"], 5);
    assert!(
        shorter["metadata"]["deletionTimestamp"].as_str()
            <= deleted["metadata"]["deletionTimestamp"].as_str()
    );
    assert_eq!(client.delete(B, &json!({"gracePeriodSeconds": 0})).code, 200);
    assert_eq!(client.get(B).code, 404);
}

#[test]
fn finalizers_hold_an_object() {
    let server = server();
    let mut client = client(&server);
    let mut body = pod("a");
    body["metadata"]["finalizers"] = json!(["example.com/x"]);
    server.create(&body).unwrap();
    let deleted = client.delete(A, &Value::Null).body;
    assert!(deleted["metadata"]["deletionTimestamp"].is_string());
    let added = client.merge(A, &json!({"metadata": {"finalizers": ["example.com/x", "b/c"]}}));
    assert_eq!(added.code, 422);
    assert_eq!(client.merge(A, &json!({"metadata": {"finalizers": null}})).code, 200);
    assert_eq!(client.get(A).code, 404);
}

#[test]
fn deletions_have_preconditions() {
    let server = server();
    let mut client = client(&server);
    let a = server.create(&pod("a")).unwrap();
    let reply = client.delete(A, &json!({"preconditions": {"uid": "other"}}));
    assert_eq!(reply.code, 409);
    let text = format!(
        "Operation cannot be fulfilled on Pod \"a\": the UID in the precondition (other) does not match the UID in \
         record ({}). The object might have been deleted and then recreated",
        uid(&a)
    );
    assert_eq!(reply.message(), text);
    assert_eq!(client.delete(A, &json!({"preconditions": {"resourceVersion": "1"}})).code, 409);
    assert_eq!(client.delete(A, &json!({"preconditions": {"uid": uid(&a)}})).code, 200);
    assert_eq!(client.delete(A, &Value::Null).code, 404);
}

#[test]
fn reviews_use_the_configured_users() {
    let user =
        |token: &str, name: &str, allowed| User { token: token.into(), name: name.into(), allowed };
    let users = vec![user("t1", "alice", true), user("t2", "bob", false)];
    let server = server_with(Options { users, ..Options::default() });
    let mut client = client(&server);
    let mut token = |token: &str| {
        let body = json!({"spec": {"token": token}});
        client.post("/apis/authentication.k8s.io/v1/tokenreviews", &body).body["status"].clone()
    };
    assert_eq!(token("t1")["user"]["username"], "alice");
    assert_eq!(token("t9")["authenticated"], false);
    let mut access = |user: &str| {
        let body = json!({"spec": {"user": user, "nonResourceAttributes": {"path": "/metrics", "verb": "get"}}});
        client.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", &body).body["status"]["allowed"].clone()
    };
    assert_eq!(
        (access("alice"), access("bob"), access("eve")),
        (json!(true), json!(false), json!(false))
    );
}

#[test]
fn every_write_of_a_client_is_recorded() {
    let server = server();
    server.create(&pod("a")).unwrap();
    let mut client = client(&server);
    client.get(PODS);
    client.post(PODS, &pod("a"));
    let patch = json!({"status": {"nominatedNodeName": "n"}});
    client.patch(A_STATUS, &patch);
    let writes = server.writes();
    let brief: Vec<_> = writes
        .iter()
        .map(|w| (w.verb, w.resource.as_str(), w.name.as_str(), w.code, w.applied))
        .collect();
    assert_eq!(
        brief,
        [
            ("create", "pods", "a", 201, true),
            ("create", "pods", "a", 409, false),
            ("patch", "pods/status", "a", 200, true)
        ]
    );
    assert_eq!(writes[2].body, patch);
    assert_eq!((writes[0].user_agent.as_str(), writes[2].user_agent.as_str()), ("direct", "test"));
    assert!(writes[0].at <= writes[1].at && writes[2].namespace == "default" && writes[2].answered);
    assert_eq!(server.write_count(), 3);
    assert_eq!(server.take_writes().len(), 3);
    assert!(server.writes().is_empty());
}

#[test]
fn health_is_served() {
    let server = server();
    let mut client = client(&server);
    for path in ["/healthz", "/livez", "/readyz"] {
        assert_eq!((client.get(path).code, client.get(path).body), (200, json!("ok")));
    }
    assert_eq!(client.get("/nothing").code, 404);
}
