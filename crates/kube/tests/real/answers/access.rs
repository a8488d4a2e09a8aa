//! Answers to requests that are not authenticated, or not allowed. The server in memory has neither authentication nor
//! authorization. These answers are therefore compared with the form of its other errors.

use http::Method;
use serde_json::{Value, json};

use super::pod;
use crate::cluster::{Cluster, User};
use crate::script::Script;

pub(super) fn check(cluster: &Cluster) {
    let steps = |mut config: kube::Config, token: Option<&str>| {
        if let Some(token) = token {
            config.auth_info.token = Some(token.to_owned().into());
        }
        let handle = cluster.runtime().handle().clone();
        let mut script = Script::new(handle, config, "default", Box::new(|| ()));
        script.get("/api/v1/nodes");
        script.watch("/api/v1/pods?watch=true", |_| false);
        script.post("/api/v1/namespaces/default/pods", &pod("a"));
        script.send(Method::DELETE, "/api/v1/nodes/missing", &[], Vec::new());
        script.steps
    };
    for step in steps(cluster.config(None), Some("not a token")) {
        let body = match step.answer.get("lines") {
            Some(lines) => lines[0].clone(),
            None => step.answer["body"].clone(),
        };
        let unauthorized = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "Unauthorized", "reason": "Unauthorized", "code": 401});
        assert_eq!((&step.answer["code"], &body), (&json!(401), &unauthorized), "{}", step.request);
    }
    let refused = |config: kube::Config, user: &str| {
        let expected = [
            ("", "nodes", r#"cannot list resource "nodes" in API group "" at the cluster scope"#),
            ("", "pods", r#"cannot watch resource "pods" in API group "" at the cluster scope"#),
            (
                "",
                "pods",
                r#"cannot create resource "pods" in API group "" in the namespace "default""#,
            ),
            (
                "missing",
                "nodes",
                r#"cannot delete resource "nodes" in API group "" at the cluster scope"#,
            ),
        ];
        for (step, (name, kind, why)) in steps(config, None).into_iter().zip(expected) {
            let body = match step.answer.get("lines") {
                Some(lines) => &lines[0],
                None => &step.answer["body"],
            };
            let named = if name.is_empty() { String::new() } else { format!(" \"{name}\"") };
            let message = format!("{kind}{named} is forbidden: User \"{user}\" {why}");
            let mut details = json!({"kind": kind});
            if !name.is_empty() {
                details["name"] = name.into();
            }
            let status: Value = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": message, "reason": "Forbidden", "details": details, "code": 403});
            assert_eq!((&step.answer["code"], body), (&json!(403), &status), "{}", step.request);
        }
    };
    refused(cluster.config(Some(User::Nobody)), "nobody");
    refused(cluster.config(None), "system:anonymous");
}
