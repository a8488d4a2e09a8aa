//! Decides whether a user may make a request, by SubjectAccessReviews.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::authentication::User;
use super::review::review;
use super::reviews::{Asker, Reviews, Unreviewed};
use crate::api::{Api, Resource};

/// A group whose members may do anything.
const PRIVILEGED: &str = "system:masters";
/// The longest path and verb, in bytes, whose decision is kept: clients determine their length.
const LONGEST: usize = 10_000;

/// The decision on a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Allowed,
    /// Forbidden, for a reason that may be empty.
    Denied(String),
}

/// Decides on requests, and keeps the decisions for a few seconds.
pub(super) struct Authorization {
    api: Option<Api>,
    allowed_paths: Vec<String>,
    ttl_allowed: Duration,
    ttl_denied: Duration,
    reviews: Reviews<String, Decision>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AccessSpec<'a> {
    non_resource_attributes: Attributes<'a>,
    user: &'a str,
    #[serde(skip_serializing_if = "slice_is_empty")]
    groups: &'a [String],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    extra: &'a BTreeMap<String, Vec<String>>,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
}

#[derive(Serialize)]
struct Attributes<'a> {
    path: &'a str,
    verb: &'a str,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct AccessStatus {
    allowed: bool,
    denied: bool,
    reason: String,
}

fn slice_is_empty(groups: &&[String]) -> bool {
    groups.is_empty()
}

impl Authorization {
    pub(super) fn new(
        api: Option<Api>,
        allowed_paths: &[String],
        (ttl_allowed, ttl_denied): (Duration, Duration),
    ) -> Authorization {
        let plain = |path: &String| path.trim_start_matches('/').to_owned();
        let allowed_paths = allowed_paths.iter().map(plain).collect();
        Authorization { api, allowed_paths, ttl_allowed, ttl_denied, reviews: Reviews::new() }
    }

    /// Decides on a request of a path. Without a client of the API server, only paths that are always allowed, and the
    /// group `system:masters`, are allowed.
    pub(super) async fn decide(
        &self,
        user: &User,
        verb: &str,
        path: &str,
    ) -> Result<Decision, Unreviewed> {
        if user.groups.iter().any(|group| group == PRIVILEGED) || self.always_allows(path) {
            return Ok(Decision::Allowed);
        }
        let Some(api) = &self.api else { return Ok(Decision::Denied(String::new())) };
        let User { name, uid, groups, extra } = user;
        let non_resource_attributes = Attributes { path, verb };
        let spec = AccessSpec { non_resource_attributes, user: name, groups, extra, uid };
        let key = serde_json::to_string(&spec).map_err(|error| format!("a body: {error}"))?;
        let review = async {
            let status: AccessStatus = review(api, Resource::SUBJECT_ACCESS_REVIEWS, &spec)
                .await
                .map_err(|error| error.to_string())?;
            let (decision, ttl) = match status.allowed && !status.denied {
                true => (Decision::Allowed, self.ttl_allowed),
                false => (Decision::Denied(status.reason), self.ttl_denied),
            };
            let is_short = path.len() + verb.len() < LONGEST;
            Ok((decision, if is_short { ttl } else { Duration::ZERO }))
        };
        let asker = if user.is_anonymous() { Asker::Stranger } else { Asker::Known };
        self.reviews.get(key, asker, review).await
    }

    /// Returns whether a path needs no decision. A path that ends with `*` matches every path with this prefix.
    pub(super) fn always_allows(&self, path: &str) -> bool {
        let path = path.trim_start_matches('/');
        self.allowed_paths.iter().any(|allowed| match allowed.strip_suffix('*') {
            Some(prefix) => path.starts_with(prefix),
            None => path == allowed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_an_api_server_only_known_paths_and_privileged_groups_are_allowed() {
        let paths = ["/healthz".to_owned(), "livez".to_owned(), "/open/*".to_owned()];
        let ttl = (Duration::ZERO, Duration::ZERO);
        let authorization = Authorization::new(None, &paths, ttl);
        let mut user = User::anonymous();
        for (path, is_allowed) in [
            ("/healthz", true),
            ("/livez", true),
            ("/open/door", true),
            ("/healthz/ping", false),
            ("/opened", false),
            ("/metrics", false),
            ("/", false),
        ] {
            let decision = authorization.decide(&user, "get", path).await.expect("no request");
            assert_eq!(decision == Decision::Allowed, is_allowed, "{path}");
        }
        user.groups.push("system:masters".to_owned());
        let decision = authorization.decide(&user, "get", "/metrics").await.expect("no request");
        assert_eq!(decision, Decision::Allowed);
    }
}
