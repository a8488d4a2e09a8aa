//! Authenticates the user of a request by a front proxy, a client certificate or a bearer token, in this order.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use ring::digest::SHA256_OUTPUT_LEN;
use ring::error::Unspecified;
use ring::hmac;
use ring::rand::SystemRandom;
use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};

use super::cache::Cache;
use super::review::review;
use super::reviews::{Asker, Reviews, Unreviewed};
use super::subject::Subject;
use super::trust::Trust;
use crate::api::{Api, Resource};

/// How long the review of a token that was valid does not count among those of strangers.
const KNOWN: Duration = Duration::from_secs(3_600);
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

    /// Returns whether the request had no credentials.
    pub(super) fn is_anonymous(&self) -> bool {
        self.name == ANONYMOUS
    }

    /// Adds the group of all users.
    fn authenticated(mut self) -> User {
        let is_known = |group: &String| group == AUTHENTICATED || group == UNAUTHENTICATED;
        if !self.is_anonymous() && !self.groups.iter().any(is_known) {
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
    /// Reviews tokens with this client. Without one, bearer tokens are ignored.
    ///
    /// # Errors
    ///
    /// The operating system's random number generator failed.
    pub(super) fn new(
        trust: Trust,
        api: Option<Api>,
        ttl: Duration,
    ) -> Result<Authentication, Unspecified> {
        let tokens = api.map(|api| Tokens::new(api, ttl)).transpose()?;
        Ok(Authentication { trust: RwLock::new(Arc::new(trust)), tokens })
    }

    /// Replaces the authorities of client certificates.
    pub(super) fn set_trust(&self, trust: Trust) {
        *self.trust.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(trust);
    }

    /// Returns the user. A request without credentials is anonymous.
    ///
    /// # Errors
    ///
    /// There are credentials, and none of them is valid, or too many tokens wait for reviews.
    pub(super) async fn user(
        &self,
        headers: &HeaderMap,
        chain: &[CertificateDer<'static>],
    ) -> Result<User, Unreviewed> {
        let trust = self.trust.read().unwrap_or_else(PoisonError::into_inner).clone();
        let mut errors = Vec::new();
        if !chain.is_empty() {
            if let Some(proxies) = &trust.proxies {
                match proxies.verify(chain) {
                    // If the proxy's headers are invalid, the proxy is not taken for the user.
                    Ok(()) => {
                        if let Some(user) = proxies.user(headers)? {
                            return Ok(user.authenticated());
                        }
                    }
                    Err(error) => errors.push(error),
                }
            }
            match trust.clients.as_ref().map(|clients| clients.verify(chain)) {
                Some(Ok(Subject { common_name: name, organizations: groups }))
                    if !name.is_empty() =>
                {
                    return Ok(User { name, groups, ..User::default() }.authenticated());
                }
                Some(Err(error)) => errors.push(error),
                Some(Ok(_)) | None => {}
            }
        }
        if let (Some(tokens), Some(token)) = (&self.tokens, bearer(headers)) {
            match tokens.user(token).await {
                Ok(user) => return Ok(user),
                Err(Unreviewed::Failed(error)) => errors.push(error),
                Err(Unreviewed::TooMany) => return Err(Unreviewed::TooMany),
            }
        }
        match errors.is_empty() {
            true => Ok(User::anonymous()),
            false => Err(errors.join("; ").into()),
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

/// Asks the API server for the user of a token.
pub(super) struct Tokens {
    api: Api,
    ttl: Duration,
    /// Keyed by the tokens' authentication codes, so that no token is in memory after its request.
    reviews: Reviews<[u8; SHA256_OUTPUT_LEN], Option<User>>,
    /// Tokens that were valid.
    known: Cache<[u8; SHA256_OUTPUT_LEN], ()>,
    /// Known to this process alone.
    key: hmac::Key,
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
    pub(super) fn new(api: Api, ttl: Duration) -> Result<Tokens, Unspecified> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())?;
        Ok(Tokens { api, ttl, reviews: Reviews::new(), known: Cache::new(), key })
    }

    /// Returns the authentication code that is the token's key in the cache.
    fn code(&self, token: &str) -> [u8; SHA256_OUTPUT_LEN] {
        let mut code = [0; SHA256_OUTPUT_LEN];
        // SHA-256 has this length.
        code.copy_from_slice(hmac::sign(&self.key, token.as_bytes()).as_ref());
        code
    }

    /// Returns the user of a token, in the group of all users.
    pub(super) async fn user(&self, token: &str) -> Result<User, Unreviewed> {
        let key = self.code(token);
        let asker = self.known.get(&key).map_or(Asker::Stranger, |()| Asker::Known);
        let review = async {
            let status: TokenStatus =
                review(&self.api, Resource::TOKEN_REVIEWS, &TokenSpec { token })
                    .await
                    .map_err(|error| format!("token review: {error}"))?;
            if !status.authenticated && !status.error.is_empty() {
                // Like kube-scheduler: the token may be valid a moment later.
                return Err(format!("token review: {}", status.error));
            }
            if status.authenticated {
                self.known.put(key, (), KNOWN);
            }
            Ok((status.authenticated.then_some(status.user), self.ttl))
        };
        let user = self.reviews.get(key, asker, review).await?;
        let user = user.ok_or_else(|| Unreviewed::Failed("invalid bearer token".to_owned()))?;
        Ok(user.authenticated())
    }
}

#[cfg(test)]
mod tests {
    use super::super::trust::tests::signed;
    use super::super::trust::{Authority, FrontProxies, RequestHeaders};
    use super::*;
    use crate::testing::provider;
    use http::HeaderValue;

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

    #[tokio::test]
    async fn a_proxy_with_invalid_headers_does_not_make_the_request_itself() {
        let (pem, chain) = signed(2060);
        let authority = || Authority::read(pem.as_bytes(), &provider()).expect("read");
        let proxies = FrontProxies { authority: authority(), headers: RequestHeaders::default() };
        let trust = Trust { clients: Some(authority()), proxies: Some(proxies) };
        let authentication = Authentication::new(trust, None, Duration::ZERO).expect("no keys");
        let mut headers = HeaderMap::new();
        let user = authentication.user(&headers, &chain).await.expect("a client");
        assert_eq!(user.name, "proxy");
        let invalid = HeaderValue::from_bytes(b"m\xfcller").expect("a value");
        headers.insert("x-remote-user", invalid);
        let refused = authentication.user(&headers, &chain).await.expect_err("refused").to_string();
        assert!(refused.contains("not UTF-8"), "{refused}");
        headers.insert("x-remote-user", HeaderValue::from_static("eva"));
        let user = authentication.user(&headers, &chain).await.expect("a user");
        assert_eq!(user.name, "eva");
    }

    #[tokio::test]
    async fn the_code_of_a_token_depends_on_the_token_and_the_process() {
        let api = crate::testing::api("http://127.0.0.1:1");
        let tokens = || Tokens::new(api.clone(), Duration::from_secs(10)).expect("random numbers");
        let (one, other) = (tokens(), tokens());
        assert_eq!(one.code("a"), one.code("a"));
        assert_ne!(one.code("a"), one.code("b"));
        assert_ne!(one.code("a"), other.code("a"));
    }

    #[test]
    fn every_user_but_the_anonymous_one_is_authenticated() {
        let user = User { name: "eva".to_owned(), ..User::default() }.authenticated();
        assert_eq!(user.groups, ["system:authenticated"]);
        assert_eq!(user.clone().authenticated(), user);
        assert_eq!(User::anonymous().authenticated(), User::anonymous());
    }
}
