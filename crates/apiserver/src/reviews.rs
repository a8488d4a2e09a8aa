//! Token and access reviews.

use serde_json::{Value, json};

use crate::resources::Resource;
use crate::server::User;

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
