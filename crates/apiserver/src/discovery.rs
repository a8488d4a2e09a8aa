//! Discovery documents, and token and access reviews.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::resources::{Resource, TABLE};
use crate::server::User;

/// The document at a path, if the path is not that of a resource.
pub(crate) fn document(path: &str) -> Option<Value> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    match parts.as_slice() {
        ["version"] => Some(json!({
            "major": "1", "minor": "36", "gitVersion": "v1.36.2", "gitCommit": "", "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "", "platform": "linux/amd64",
        })),
        ["api"] => Some(
            json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}),
        ),
        ["api", "v1"] => Some(resource_list("", "v1")),
        ["apis"] => {
            let groups: Vec<Value> =
                groups().into_iter().map(|(name, version)| group(name, version)).collect();
            Some(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
        }
        ["apis", name] => groups().get(name).map(|version| {
            let mut group = group(name, version);
            group["kind"] = "APIGroup".into();
            group["apiVersion"] = "v1".into();
            group
        }),
        ["apis", name, version] if groups().get(name) == Some(version) => {
            Some(resource_list(name, version))
        }
        _ => None,
    }
}

fn groups() -> BTreeMap<&'static str, &'static str> {
    TABLE.iter().filter(|r| !r.group.is_empty()).map(|r| (r.group, r.version)).collect()
}

fn group(name: &str, version: &str) -> Value {
    let version = json!({"groupVersion": format!("{name}/{version}"), "version": version});
    json!({"name": name, "versions": [version], "preferredVersion": version})
}

fn resource_list(group: &str, version: &str) -> Value {
    let of_group = TABLE.iter().filter(|r| r.group == group && r.version == version);
    let resources: Vec<Value> = of_group.clone().flat_map(entries).collect();
    let group_version = of_group.map(Resource::api_version).next().unwrap_or_default();
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources})
}

fn entries(resource: &Resource) -> Vec<Value> {
    let entry = |name: String, kind: &str, verbs: &[&str]| {
        let singular = kind.to_lowercase();
        json!({
            "name": name, "singularName": singular, "namespaced": resource.namespaced, "kind": kind, "verbs": verbs,
        })
    };
    if resource.review {
        return vec![entry(resource.plural.into(), resource.kind, &["create"])];
    }
    let verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    let mut entries = vec![entry(resource.plural.into(), resource.kind, &verbs)];
    if resource.status {
        entries.push(entry(
            format!("{}/status", resource.plural),
            resource.kind,
            &["get", "patch", "update"],
        ));
    }
    if resource.kind == "Pod" {
        entries.push(entry("pods/binding".into(), "Binding", &["create"]));
    }
    entries
}

/// Answers a token or access review. A user is allowed everything or nothing.
pub(crate) fn review(resource: &Resource, users: &[User], mut body: Value) -> Value {
    body["kind"] = resource.kind.into();
    body["apiVersion"] = resource.api_version().into();
    let spec = &body["spec"];
    body["status"] = if resource.kind == "TokenReview" {
        match users.iter().find(|user| spec["token"] == user.token.as_str()) {
            Some(user) => {
                json!({"authenticated": true, "user": {"username": user.name, "uid": user.name, "groups": []}})
            }
            None => json!({"authenticated": false, "error": "invalid bearer token"}),
        }
    } else {
        let allowed = users.iter().any(|user| user.allowed && spec["user"] == user.name.as_str());
        json!({"allowed": allowed})
    };
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_group_is_discovered() {
        for resource in &TABLE {
            let path = match resource.group {
                "" => "/api/v1".to_owned(),
                group => format!("/apis/{group}/{}", resource.version),
            };
            let list = document(&path).unwrap();
            assert_eq!(list["groupVersion"], resource.api_version());
            let names = list["resources"].as_array().unwrap();
            assert!(
                names.iter().any(|entry| entry["name"] == resource.plural),
                "{}",
                resource.plural
            );
        }
        assert_eq!(document("/apis/widgets.example.com"), None);
        assert_eq!(document("/apis/apps/v2"), None);
    }
}
