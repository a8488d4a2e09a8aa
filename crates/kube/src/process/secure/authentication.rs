//! Finds out who makes a request: by a front proxy, a client certificate or a bearer token, in this order.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};

use super::cache::Cache;
use super::review::review;
use super::trust::Trust;
use crate::api::{Api, Resource};

const ANONYMOUS: &str = "system:anonymous";
const UNAUTHENTICATED: &str = "system:unauthenticated";
const AUTHENTICATED: &str = "system:authenticated";

/// A user, as the API server knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct User {
    #[serde(rename = "username")]
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) groups: Vec<String>,
    pub(super) extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// The user of a request without credentials.
    pub(super) fn anonymous() -> User {
        let groups = vec![UNAUTHENTICATED.to_owned()];
        User { name: ANONYMOUS.to_owned(), groups, ..User::default() }
    }

    /// Adds the group of all users.
    fn authenticated(mut self) -> User {
        let is_known = |group: &String| group == AUTHENTICATED || group == UNAUTHENTICATED;
        if self.name != ANONYMOUS && !self.groups.iter().any(is_known) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }
}

/// Authenticates requests.
pub(super) struct Authentication {
    trust: RwLock<Arc<Trust>>,
    tokens: Option<Tokens>,
}

impl Authentication {
    /// Reviews tokens with this client. Without one, a token counts for nothing.
    pub(super) fn new(trust: Trust, api: Option<Api>, ttl: Duration) -> Authentication {
        let tokens = api.map(|api| Tokens { api, ttl, cache: Cache::new() });
        Authentication { trust: RwLock::new(Arc::new(trust)), tokens }
    }

    /// Replaces the authorities of client certificates.
    pub(super) fn set_trust(&self, trust: Trust) {
        *self.trust.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(trust);
    }

    /// Returns the user. A request without credentials is anonymous.
    ///
    /// # Errors
    ///
    /// There are credentials, and none of them is valid.
    pub(super) async fn user(
        &self,
        headers: &HeaderMap,
        chain: &[CertificateDer<'static>],
    ) -> Result<User, String> {
        let trust = self.trust.read().unwrap_or_else(PoisonError::into_inner).clone();
        let mut errors = Vec::new();
        if !chain.is_empty() {
            let proxied = trust.proxies.as_ref().map(|proxies| proxies.user(headers, chain));
            let own = || {
                let subject = trust.clients.as_ref()?.verify(chain);
                Some(subject.map(|subject| {
                    let name = Some(subject.common_name).filter(|name| !name.is_empty())?;
                    Some(User { name, groups: subject.organizations, ..User::default() })
                }))
            };
            for found in [proxied, own()].into_iter().flatten() {
                match found {
                    Ok(Some(user)) => return Ok(user.authenticated()),
                    Ok(None) => {}
                    Err(error) => errors.push(error),
                }
            }
        }
        if let (Some(tokens), Some(token)) = (&self.tokens, bearer(headers)) {
            match tokens.user(token).await {
                Ok(user) => return Ok(user.authenticated()),
                Err(error) => errors.push(error),
            }
        }
        match errors.is_empty() {
            true => Ok(User::anonymous()),
            false => Err(errors.join("; ")),
        }
    }
}

/// Returns the token of the header `Authorization`.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut words = headers.get(AUTHORIZATION)?.to_str().ok()?.trim().split(' ');
    let scheme = words.next()?;
    let token = words.next().filter(|token| !token.is_empty());
    token.filter(|_| scheme.eq_ignore_ascii_case("bearer"))
}

/// Asks the API server whose a token is.
struct Tokens {
    api: Api,
    ttl: Duration,
    cache: Cache<String, Option<User>>,
}

#[derive(Serialize)]
struct TokenSpec<'a> {
    token: &'a str,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct TokenStatus {
    authenticated: bool,
    user: User,
    error: String,
}

impl Tokens {
    async fn user(&self, token: &str) -> Result<User, String> {
        let invalid = || "invalid bearer token".to_owned();
        let key = token.to_owned();
        if let Some(known) = self.cache.get(&key) {
            return known.ok_or_else(invalid);
        }
        let status: TokenStatus = review(&self.api, Resource::TOKEN_REVIEWS, &TokenSpec { token })
            .await
            .map_err(|error| format!("token review: {error}"))?;
        if !status.authenticated && !status.error.is_empty() {
            // Like kube-scheduler: the token may be valid a moment later.
            return Err(format!("token review: {}", status.error));
        }
        let user = status.authenticated.then_some(status.user);
        self.cache.put(key, user.clone(), self.ttl);
        user.ok_or_else(invalid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_follows_the_word_bearer() {
        for (value, token) in [
            ("Bearer abc", Some("abc")),
            ("  bearer abc def ", Some("abc")),
            ("Bearer", None),
            ("Bearer  abc", None),
            ("Basic abc", None),
            ("", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, value.parse().expect("a value"));
            assert_eq!(bearer(&headers), token, "{value:?}");
        }
        assert_eq!(bearer(&HeaderMap::new()), None);
    }

    #[test]
    fn every_user_but_the_anonymous_one_is_authenticated() {
        let user = User { name: "eva".to_owned(), ..User::default() }.authenticated();
        assert_eq!(user.groups, ["system:authenticated"]);
        assert_eq!(user.clone().authenticated(), user);
        assert_eq!(User::anonymous().authenticated(), User::anonymous());
    }
}
