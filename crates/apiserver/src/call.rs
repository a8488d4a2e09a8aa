//! Maps the path and the method of an HTTP request to a verb on a resource.

use std::collections::BTreeMap;

use axum::http::Method;

use crate::error::ApiError;
use crate::resources::{self, Resource};
use crate::selectors::Selection;
use crate::store::Key;

/// A request for a resource.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) verb: &'static str,
    pub(crate) resource: &'static Resource,
    /// The plural, with the subresource after a slash.
    pub(crate) path: String,
    pub(crate) subresource: String,
    pub(crate) key: Key,
    pub(crate) query: BTreeMap<String, String>,
}

impl Call {
    pub(crate) fn parse(
        method: &Method,
        path: &str,
        query: BTreeMap<String, String>,
    ) -> Result<Self, ApiError> {
        let parts: Vec<String> =
            path.split('/').filter(|part| !part.is_empty()).map(decode_percent).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return Err(ApiError::no_such_path()),
        };
        let of_namespace = |plural: &str| ["status", "finalize"].contains(&plural);
        let (namespace, rest) = match rest {
            ["namespaces", namespace, plural, rest @ ..] if !of_namespace(plural) => {
                (*namespace, [&[*plural], rest].concat())
            }
            rest => ("", rest.to_vec()),
        };
        let (plural, name, subresource) = match rest.as_slice() {
            [plural] => (*plural, "", ""),
            [plural, name] => (*plural, *name, ""),
            [plural, name, subresource] => (*plural, *name, *subresource),
            _ => return Err(ApiError::no_such_path()),
        };
        let resource =
            resources::by_path(group, version, plural).ok_or_else(ApiError::no_such_path)?;
        // Only lists and watches may span all namespaces.
        let elsewhere = resource.namespaced && !name.is_empty();
        if (namespace.is_empty() && elsewhere) || (!namespace.is_empty() && !resource.namespaced) {
            return Err(ApiError::no_such_path());
        }
        let served = match subresource {
            "" => true,
            "status" => resource.status,
            "binding" => resource.kind == "Pod",
            _ => false,
        };
        if !served {
            return Err(ApiError::no_such_path());
        }
        let watches =
            query.get("watch").is_some_and(|watch| ["1", "true"].contains(&watch.as_str()));
        let verb = match (method.as_str(), name.is_empty()) {
            ("GET", true) if watches => "watch",
            ("GET", true) => "list",
            ("GET", false) => "get",
            ("POST", _) if subresource == "binding" => "create",
            ("POST", true) if !resource.namespaced || !namespace.is_empty() => "create",
            ("PUT", false) => "update",
            ("PATCH", false) => "patch",
            ("DELETE", false) if subresource.is_empty() => "delete",
            _ => return Err(ApiError::method_not_allowed()),
        };
        if (resource.review || subresource == "binding") && verb != "create" {
            return Err(ApiError::method_not_allowed());
        }
        let path = if subresource.is_empty() {
            plural.to_owned()
        } else {
            format!("{plural}/{subresource}")
        };
        let key = Key::new(namespace, name);
        Ok(Call { verb, resource, path, subresource: subresource.to_owned(), key, query })
    }

    pub(crate) fn writes(&self) -> bool {
        !["get", "list", "watch"].contains(&self.verb) && !self.resource.review
    }

    pub(crate) fn parameter(&self, name: &str) -> &str {
        self.query.get(name).map(String::as_str).unwrap_or_default()
    }

    /// The parameter `resourceVersion`; 0 if it is absent.
    pub(crate) fn version(&self) -> Result<u64, ApiError> {
        match self.parameter("resourceVersion") {
            "" => Ok(0),
            text => text.parse().map_err(|_| {
                let message = format!(
                    "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: invalid syntax"
                );
                ApiError::bad_request(message)
            }),
        }
    }

    pub(crate) fn selection(&self) -> Result<Selection, ApiError> {
        if !self.parameter("labelSelector").is_empty() {
            return Err(ApiError::bad_request("this server does not select by labels"));
        }
        Selection::new(self.resource, &self.key.namespace, self.parameter("fieldSelector"))
    }
}

fn decode_percent(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = || u8::from_str_radix(text.get(at + 1..at + 3)?, 16).ok();
        match (bytes[at] == b'%').then(escaped).flatten() {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(method: &str, path: &str) -> Result<(String, String, String, String), u16> {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let query = query.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
        let call =
            Call::parse(&method, path, query.into_iter().collect()).map_err(|error| error.code)?;
        Ok((call.verb.into(), call.path, call.key.namespace, call.key.name))
    }

    #[test]
    fn paths_map_to_verbs_on_resources() {
        for (method, path, verb, resource, namespace, name) in [
            ("GET", "/api/v1/pods", "list", "pods", "", ""),
            ("GET", "/api/v1/pods?watch=1", "watch", "pods", "", ""),
            ("GET", "/api/v1/namespaces/a/pods?watch=true", "watch", "pods", "a", ""),
            ("GET", "/api/v1/namespaces/a/pods/b", "get", "pods", "a", "b"),
            ("GET", "/api/v1/namespaces/a", "get", "namespaces", "", "a"),
            ("PUT", "/api/v1/namespaces/a/status", "update", "namespaces/status", "", "a"),
            ("POST", "/api/v1/namespaces/a/pods", "create", "pods", "a", ""),
            ("POST", "/api/v1/namespaces/a/pods/b/binding", "create", "pods/binding", "a", "b"),
            ("PATCH", "/api/v1/namespaces/a/pods/b/status", "patch", "pods/status", "a", "b"),
            (
                "PUT",
                "/apis/coordination.k8s.io/v1/namespaces/a/leases/b",
                "update",
                "leases",
                "a",
                "b",
            ),
            ("DELETE", "/api/v1/nodes/n", "delete", "nodes", "", "n"),
            (
                "POST",
                "/apis/authentication.k8s.io/v1/tokenreviews",
                "create",
                "tokenreviews",
                "",
                "",
            ),
            ("GET", "/api/v1/nodes/a%2Db", "get", "nodes", "", "a-b"),
        ] {
            let expected =
                (verb.to_owned(), resource.to_owned(), namespace.to_owned(), name.to_owned());
            assert_eq!(call(method, path), Ok(expected), "{method} {path}");
        }
    }

    #[test]
    fn other_paths_are_refused() {
        for (method, path, code) in [
            ("GET", "/api/v1/widgets", 404),
            ("GET", "/api/v2/pods", 404),
            ("GET", "/apis/apps/v1/pods", 404),
            ("GET", "/api/v1/pods/b", 404),
            ("GET", "/api/v1/namespaces/a/nodes", 404),
            ("GET", "/api/v1/namespaces/a/pods/b/log", 404),
            ("GET", "/api/v1/namespaces/a/configmaps/b/status", 404),
            ("POST", "/api/v1/pods", 405),
            ("GET", "/api/v1/namespaces/a/pods/b/binding", 405),
            ("GET", "/apis/authentication.k8s.io/v1/tokenreviews", 405),
            ("PATCH", "/api/v1/nodes", 405),
            ("DELETE", "/api/v1/nodes", 405),
        ] {
            assert_eq!(call(method, path), Err(code), "{method} {path}");
        }
    }
}
