//! Requests that cannot be read, and paths that are not served.

use http::Method;
use serde_json::{Value, json};

use super::pod;
use crate::script::Script;

pub(super) fn run(to: &mut Script) {
    let pods = to.path("pods");
    let json = ("content-type", "application/json");
    let post = |to: &mut Script, headers: &[(&str, &str)], body: &str| {
        to.send(Method::POST, &pods, headers, body.as_bytes().to_vec());
    };
    post(to, &[json], "");
    post(to, &[json], "{");
    post(to, &[json], "not JSON");
    post(to, &[json], "[]");
    post(to, &[json], r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"a"}}"#);
    post(to, &[json], r#"{"apiVersion":"v2","kind":"Pod","metadata":{"name":"a"}}"#);
    post(to, &[json], r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":[]}"#);
    post(to, &[("content-type", "text/plain")], "{}");
    post(to, &[("content-type", "application/cbor-seq")], "{}");
    post(to, &[], &pod("without-a-type").to_string());
    to.send(Method::GET, &pods, &[("accept", "text/html")], Vec::new());
    to.send(Method::GET, &pods, &[("accept", "text/html, application/json;q=0.5")], Vec::new());
    to.send(Method::GET, &pods, &[("accept", "*/*")], Vec::new());
    to.send(Method::GET, &pods, &[], Vec::new());

    // Objects that validation refuses.
    let change = |to: &mut Script, name: &str, change: &dyn Fn(&mut Value)| {
        let mut object = pod(name);
        change(&mut object);
        to.post(&pods, &object);
    };
    change(to, "Not-A-Name", &|_| {});
    change(to, "", &|_| {});
    change(to, "no-containers", &|pod| pod["spec"]["containers"] = json!([]));
    change(to, "nameless", &|pod| {
        drop(pod["spec"]["containers"][0].as_object_mut().map(|c| c.remove("name")))
    });
    change(to, "versioned", &|pod| pod["metadata"]["resourceVersion"] = json!("7"));
    change(to, "elsewhere", &|pod| pod["metadata"]["namespace"] = json!("default"));
    change(to, "gated", &|pod| {
        pod["spec"]["schedulingGates"] = json!([{"name": "example.com/a"}]);
        pod["spec"]["nodeName"] = json!("n1");
    });
    change(to, "classless", &|pod| pod["spec"]["priorityClassName"] = json!("missing"));
    change(to, "prioritized", &|pod| pod["spec"]["priority"] = json!(7));
    change(to, "kept", &|_| {});

    // Patches.
    let path = format!("{pods}/kept");
    let patch = |to: &mut Script, content_type: &str, body: &str| {
        let body = body.as_bytes().to_vec();
        to.send(Method::PATCH, &path, &[("content-type", content_type)], body);
    };
    let strategic = "application/strategic-merge-patch+json";
    patch(to, "application/json", "{}");
    patch(to, strategic, "{");
    patch(to, strategic, "[]");
    patch(to, "application/merge-patch+json", "[]");
    patch(to, strategic, r#"{"spec":{"$patch":"wrong"}}"#);
    to.put(&path, &pod("another-name"));
    to.delete(&path, &json!([]));

    // Paths and methods.
    to.get(&format!("{pods}/missing"));
    to.get("/api/v1/nodes/missing");
    to.get("/api/v1/namespaces/missing");
    to.get("/apis/policy/v1/namespaces/malformed/poddisruptionbudgets/missing");
    to.get("/apis/storage.k8s.io/v1/csinodes/missing");
    to.get("/api/v1/widgets");
    to.get("/api/v1/namespaces/malformed/widgets/a");
    to.get(&format!("{path}/widget"));
    to.put(&pods, &pod("a"));
    to.patch("/api/v1/nodes", &json!({}));
    to.post("/api/v1/namespaces/nowhere/pods", &pod("a"));
    to.get("/healthz");
    to.get("/readyz");
    to.get("/livez");
}
