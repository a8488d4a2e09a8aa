//! The errors of the API: `Status` objects with the codes, reasons and messages of kube-apiserver.

use std::fmt;

use serde_json::{Value, json};

use crate::resources::Resource;

/// The error of a refused request.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    /// The HTTP status code.
    pub code: u16,
    /// The machine-readable reason: `Conflict`, `NotFound`, `Expired`. Empty if kube-apiserver gives none.
    pub reason: &'static str,
    /// The human-readable message. Messages of bindings and conflicts equal those of Kubernetes.
    pub message: String,
    /// The field `details`, or null.
    pub details: Value,
    /// The token by which an expired list can continue at the latest version.
    pub next: Option<String>,
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.code, self.reason, self.message)
    }
}

impl std::error::Error for ApiError {}

impl ApiError {
    /// The `Status` object.
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if let Some(next) = &self.next {
            status["metadata"]["continue"] = next.as_str().into();
        }
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        status
    }

    /// The value of the header `Retry-After`, in seconds.
    pub(crate) fn retry_after(&self) -> Option<u64> {
        self.details["retryAfterSeconds"].as_u64()
    }

    pub(crate) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        ApiError { code, reason, message: message.into(), details: Value::Null, next: None }
    }

    fn about(mut self, resource: &Resource, name: &str) -> Self {
        self.details = details(resource.plural, resource.group, name);
        self
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        ApiError::new(400, "BadRequest", message)
    }

    pub(crate) fn not_found(resource: &Resource, name: &str) -> Self {
        ApiError::new(404, "NotFound", format!("{} \"{name}\" not found", resource.qualified()))
            .about(resource, name)
    }

    /// The path is not served.
    pub(crate) fn no_such_path() -> Self {
        let message = "the server could not find the requested resource";
        ApiError { details: json!({}), ..ApiError::new(404, "NotFound", message) }
    }

    pub(crate) fn already_exists(resource: &Resource, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", resource.qualified());
        ApiError::new(409, "AlreadyExists", message).about(resource, name)
    }

    /// A conflict on `what`, a resource or a subresource such as `pods/binding`.
    pub(crate) fn conflict(what: &str, group: &str, name: &str, why: impl fmt::Display) -> Self {
        let qualified = if group.is_empty() { what.to_owned() } else { format!("{what}.{group}") };
        let message = format!("Operation cannot be fulfilled on {qualified} \"{name}\": {why}");
        ApiError { details: details(what, group, name), ..ApiError::new(409, "Conflict", message) }
    }

    /// An update has another resourceVersion than the stored object.
    pub(crate) fn modified(resource: &Resource, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        ApiError::conflict(resource.plural, resource.group, name, why)
    }

    pub(crate) fn forbidden(resource: &Resource, name: &str, why: impl fmt::Display) -> Self {
        let message = format!("{} \"{name}\" is forbidden: {why}", resource.qualified());
        ApiError::new(403, "Forbidden", message).about(resource, name)
    }

    /// A field has a value that validation refuses.
    pub(crate) fn invalid(
        resource: &Resource,
        name: &str,
        field: &str,
        why: impl fmt::Display,
    ) -> Self {
        ApiError::all_invalid(resource, name, &[(field, why.to_string())])
    }

    /// Fields have values that validation refuses. Names each field and why it is refused.
    pub(crate) fn all_invalid(resource: &Resource, name: &str, wrong: &[(&str, String)]) -> Self {
        // Events of both groups are validated as core events.
        let group = if resource.kind == "Event" { "" } else { resource.group };
        let kind = resource.kind;
        ApiError::invalid_values(kind, group, name, wrong)
    }

    /// The parameters of a list or watch contradict each other.
    pub(crate) fn invalid_options(wrong: &[(&str, String)]) -> Self {
        ApiError::invalid_values("ListOptions", "meta.k8s.io", "", wrong)
    }

    fn invalid_values(kind: &str, group: &str, name: &str, wrong: &[(&str, String)]) -> Self {
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let cause = |(field, why): &(&str, String)| {
            let kinds = [
                ("Invalid value", "FieldValueInvalid"),
                ("Required value", "FieldValueRequired"),
                ("Forbidden", "FieldValueForbidden"),
                ("Unsupported value", "FieldValueNotSupported"),
                ("Duplicate value", "FieldValueDuplicate"),
                ("Too many", "FieldValueTooMany"),
            ];
            let reason = kinds.iter().find(|(start, _)| why.starts_with(start));
            json!({"message": why, "field": field, "reason": reason.map(|(_, reason)| reason)})
        };
        let causes: Vec<Value> = wrong.iter().map(cause).collect();
        let mut list: Vec<String> =
            wrong.iter().map(|(field, why)| format!("{field}: {why}")).collect();
        let message = match list.len() {
            1 => list.remove(0),
            _ => format!("[{}]", list.join(", ")),
        };
        let message = format!("{qualified} \"{name}\" is invalid: {message}");
        let mut details = details(kind, group, name);
        details["causes"] = causes.into();
        ApiError { details, ..ApiError::new(422, "Invalid", message) }
    }

    /// A resourceVersion that is no longer in the watch cache.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        ApiError::new(410, "Expired", message)
    }

    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        ApiError { details: json!({}), ..ApiError::new(405, "MethodNotAllowed", message) }
    }

    pub(crate) fn too_many_requests(seconds: u64) -> Self {
        let error =
            ApiError::new(429, "TooManyRequests", "too many requests, please try again later");
        ApiError { details: json!({"retryAfterSeconds": seconds}), ..error }
    }

    /// The client asks for a version that the server has not seen yet.
    pub(crate) fn too_large_version(asked: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let details = json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        });
        ApiError { details, ..ApiError::new(504, "Timeout", message) }
    }
}

fn details(plural: &str, group: &str, name: &str) -> Value {
    let mut details = json!({"kind": plural});
    if !name.is_empty() {
        details["name"] = name.into();
    }
    if !group.is_empty() {
        details["group"] = group.into();
    }
    details
}
