//! Who may ask: anyone, or those who present a bearer token.
//!
//! The token is that of a file, or one that an API server reviews, as for `portolan run`. A page cannot add headers to
//! all of its requests, so it exchanges the token for a cookie: the random name of a login, which keeps the token in
//! memory. Each request of the cookie checks that token again, so a login ends with its token, at the latest after
//! twelve hours.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Take};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use futures_util::StreamExt;
use jiff::Timestamp;
use portolan_kube::process::{BearerError, BearerReviews, ConnectionState};
use serde_json::{Value, json};
use subtle::ConstantTimeEq;

use super::api::{fields, text};
use super::page;
use super::problem::Problem;
use crate::error::CommandError;

/// The path at which a token is exchanged for a cookie.
pub(super) const LOGIN: &str = "/api/v1/login";

/// Before the paths that an API server reviews: every user of a cluster may get its `/api/*`.
const REVIEWED: &str = "/portolan";

/// The shortest token of a file, in characters.
const SHORTEST: usize = 16;

/// The largest file of a token, in bytes.
const LARGEST: u64 = 64 << 10;

/// The time between two looks at the file of the token.
const LOOK: Duration = Duration::from_secs(1);

/// The time after which a login ends.
const LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);

/// The most logins. A further one ends the one that would end first.
const MOST: usize = 1_000;

/// Which tokens are accepted.
pub(super) enum Rule {
    /// No token is needed.
    Anyone,
    /// The token of a file.
    Token(TokenFile),
    /// Those of users to whom an API server grants the path.
    Reviewed(Box<BearerReviews>),
}

/// A file with a token.
pub(super) struct TokenFile {
    file: PathBuf,
    /// `None` if the file became unreadable or invalid: no token is accepted until it is valid again.
    token: RwLock<Option<String>>,
}

impl TokenFile {
    /// Reads the token of a file.
    pub(super) fn open(file: &Path) -> Result<TokenFile, CommandError> {
        let token = RwLock::new(Some(read(file)?));
        Ok(TokenFile { file: file.to_owned(), token })
    }

    fn is(&self, token: &str) -> bool {
        let known = self.token.read().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().is_some_and(|known| known.as_bytes().ct_eq(token.as_bytes()).into())
    }

    fn read_again(&self) {
        let read = read(&self.file);
        let mut known = self.token.write().unwrap_or_else(PoisonError::into_inner);
        match &read {
            Err(error) if known.is_some() => {
                tracing::warn!(%error, "no token is accepted until the file is valid");
            }
            Ok(token) if known.as_ref() != Some(token) => {
                tracing::info!(file = %self.file.display(), "the token was replaced");
            }
            _ => {}
        }
        *known = read.ok();
    }
}

fn read(file: &Path) -> Result<String, CommandError> {
    let failed = |error| CommandError::Open { file: file.to_owned(), error };
    let wrong = |what: String| CommandError::File { file: file.to_owned(), what };
    // A pipe would block, and is empty when it is read again.
    if !std::fs::metadata(file).map_err(failed)?.is_file() {
        return Err(wrong("pass a regular file, which is read again when it changes".to_owned()));
    }
    let mut token = String::new();
    let mut opened: Take<File> = File::open(file).map_err(failed)?.take(LARGEST + 1);
    opened.read_to_string(&mut token).map_err(failed)?;
    if token.len() as u64 > LARGEST {
        return Err(wrong(format!("a file with a token has at most {} KiB", LARGEST >> 10)));
    }
    let token = token.trim();
    if token.len() < SHORTEST {
        return Err(wrong(format!("the token must have at least {SHORTEST} characters")));
    }
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(wrong("the token must be one word of ASCII characters".to_owned()));
    }
    Ok(token.to_owned())
}

/// A token that was exchanged for a cookie.
struct Login {
    token: String,
    ends: Instant,
}

/// What a request presents.
#[derive(Clone)]
enum Credential {
    Token(String),
    /// The value of the cookie.
    Login(String),
}

/// Decides on requests.
pub(super) struct Access {
    rule: Rule,
    logins: Mutex<HashMap<String, Login>>,
    /// The name of the cookie. Browsers send a cookie to all ports of a host.
    cookie: String,
    /// Further attributes of the cookie.
    attributes: &'static str,
}

/// A name that nobody can guess.
pub(super) fn new_id() -> Result<String, Problem> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, format!("no random number: {error}"))
    })?;
    Ok(format!("{:032x}", u128::from_ne_bytes(random)))
}

impl Access {
    /// The access to a server at a port, if it has one.
    pub(super) fn new(rule: Rule, port: Option<u16>, is_encrypted: bool) -> Access {
        let port = port.map(|port| format!("-{port}")).unwrap_or_default();
        let (prefix, attributes) = match is_encrypted {
            true => ("__Host-", "Path=/; HttpOnly; SameSite=Strict; Secure"),
            false => ("", "Path=/; HttpOnly; SameSite=Strict"),
        };
        let cookie = format!("{prefix}portolan{port}");
        Access { rule, logins: Mutex::default(), cookie, attributes }
    }

    /// The access of anyone.
    pub(super) fn anyone() -> Access {
        Access::new(Rule::Anyone, None, false)
    }

    /// Reads the file of the token again and again.
    pub(super) async fn follow(self: Arc<Access>) {
        while let Rule::Token(_) = self.rule {
            tokio::time::sleep(LOOK).await;
            let access = self.clone();
            let read = move || {
                if let Rule::Token(file) = &access.rule {
                    file.read_again();
                }
            };
            // A panic is logged, and the next look follows.
            let _ = tokio::task::spawn_blocking(read).await;
        }
    }

    /// Returns whether a token gives access.
    async fn check(&self, token: &str, verb: &str, path: &str) -> Result<(), Problem> {
        match &self.rule {
            Rule::Anyone => Ok(()),
            Rule::Token(file) if file.is(token) => Ok(()),
            Rule::Token(_) => Err(invalid()),
            Rule::Reviewed(reviews) => {
                let path = format!("{REVIEWED}{path}");
                reviews.admit(token, verb, &path).await.map_err(|error| {
                    tracing::debug!(%error, "a request was refused");
                    match error {
                        BearerError::Unauthenticated(_) => invalid(),
                        BearerError::Forbidden { .. } => {
                            Problem::new(StatusCode::FORBIDDEN, error.to_string())
                        }
                        BearerError::TooMany => {
                            Problem::new(StatusCode::TOO_MANY_REQUESTS, error.to_string())
                        }
                        _ => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
                    }
                })
            }
        }
    }

    /// Returns whether a credential gives access.
    async fn admits(&self, given: &Credential, verb: &str, path: &str) -> Result<(), Problem> {
        match given {
            Credential::Token(token) => self.check(token, verb, path).await,
            Credential::Login(id) => {
                let (token, _) =
                    self.login(id).ok_or_else(|| unauthorized("the login has ended"))?;
                self.check(&token, verb, path).await
            }
        }
    }

    /// The credential of a request. A token precedes a cookie; other headers may be meant for a proxy.
    fn credential(&self, headers: &HeaderMap) -> Option<Credential> {
        bearer(headers).map_or_else(
            || self.cookie(headers).map(Credential::Login),
            |token| Some(Credential::Token(token)),
        )
    }

    fn cookie(&self, headers: &HeaderMap) -> Option<String> {
        let cookies = headers.get_all(COOKIE).iter().filter_map(|header| header.to_str().ok());
        let mut cookies = cookies.flat_map(|header| header.split(';'));
        cookies.find_map(|cookie| {
            let (name, value) = cookie.trim().split_once('=')?;
            (name == self.cookie).then(|| value.to_owned())
        })
    }

    /// The token of a login, and when it ends.
    fn login(&self, id: &str) -> Option<(String, Instant)> {
        let mut logins = self.logins();
        logins.retain(|_, login| login.ends > Instant::now());
        logins.get(id).map(|login| (login.token.clone(), login.ends))
    }

    fn logins(&self) -> MutexGuard<'_, HashMap<String, Login>> {
        self.logins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a token, and returns the value of its cookie.
    fn add(&self, token: String) -> Result<String, Problem> {
        let id = new_id()?;
        let mut logins = self.logins();
        if logins.len() >= MOST {
            let first = logins.iter().min_by_key(|(_, login)| login.ends);
            if let Some(first) = first.map(|(id, _)| id.clone()) {
                logins.remove(&first);
            }
        }
        logins.insert(id.clone(), Login { token, ends: Instant::now() + LIFETIME });
        Ok(id)
    }

    /// An answer that sets the cookie for some time.
    fn answer(&self, value: &str, age: Duration) -> Response {
        let Access { cookie, attributes, .. } = self;
        let set = format!("{cookie}={value}; {attributes}; Max-Age={}", age.as_secs());
        let mut response = StatusCode::NO_CONTENT.into_response();
        // The name and the value are hexadecimal and ASCII.
        if let Ok(set) = HeaderValue::try_from(set) {
            response.headers_mut().insert(SET_COOKIE, set);
        }
        response
    }
}

fn bearer(headers: &HeaderMap) -> Option<String> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
}

fn unauthorized(detail: &str) -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, detail)
}

fn invalid() -> Problem {
    unauthorized("the token is not valid")
}

/// The handlers of logins.
pub(super) fn login<S: Clone + Send + Sync + 'static>(access: Arc<Access>) -> MethodRouter<S> {
    get(shown).post(log_in).delete(log_out).with_state(access)
}

/// Returns whether this request has access, and when the login of its cookie ends.
async fn shown(State(access): State<Arc<Access>>, headers: HeaderMap) -> Response {
    let is_admitted = match (&access.rule, access.credential(&headers)) {
        (Rule::Anyone, _) => true,
        (_, Some(given)) => access.admits(&given, "get", LOGIN).await.is_ok(),
        (_, None) => false,
    };
    let login = access.cookie(&headers).filter(|_| is_admitted).and_then(|id| access.login(&id));
    let ends = login.and_then(|(_, ends)| {
        Timestamp::now().checked_add(ends.saturating_duration_since(Instant::now())).ok()
    });
    let ends = ends.map(|at| at.to_string());
    text(json!({ "is_admitted": is_admitted, "expires": ends }).to_string())
}

async fn log_in(
    State(access): State<Arc<Access>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Problem> {
    let fields = fields(&headers, &body)?;
    let (Some(Value::String(token)), 1) = (fields.get("token"), fields.len()) else {
        return Err(Problem::invalid("the body must have the field \"token\", a text"));
    };
    access.check(token, "get", LOGIN).await?;
    let id = access.add(token.clone())?;
    Ok(access.answer(&id, LIFETIME))
}

async fn log_out(State(access): State<Arc<Access>>, headers: HeaderMap) -> Response {
    if let Some(id) = access.cookie(&headers) {
        access.logins().remove(&id);
    }
    access.answer("", Duration::ZERO)
}

/// Refuses requests without access, except those for the page's files, for logins and for the state of the server.
pub(super) async fn admit(
    State(access): State<Arc<Access>>,
    mut request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path();
    let is_open = page::is_of(path) || path == LOGIN || path == "/healthz";
    if is_open && !matches!(access.rule, Rule::Anyone) {
        return next.run(request).await;
    }
    let (verb, path) = (request.method().as_str().to_lowercase(), path.to_owned());
    let given = access.credential(request.headers());
    let given = match (&access.rule, given) {
        (Rule::Anyone, _) => None,
        (_, None) => return unauthorized("a token is needed").into_response(),
        (_, Some(given)) => match access.admits(&given, &verb, &path).await {
            Ok(()) => Some(given),
            Err(problem) => return problem.into_response(),
        },
    };
    // With encryption only: otherwise, a whole request protects its connection.
    if let Some(state) = request.extensions().get::<Arc<ConnectionState>>() {
        state.protect();
    }
    for name in [AUTHORIZATION, COOKIE] {
        request.headers_mut().remove(name);
    }
    let response = next.run(request).await;
    match given.filter(|_| is_stream(&response)) {
        None => response,
        // A stream ends with its credential, at the latest when the connection is kept alive by a comment.
        Some(given) => response.map(|body| {
            let frames = body.into_data_stream().take_while(move |_| {
                let (access, given) = (access.clone(), given.clone());
                let (verb, path) = (verb.clone(), path.clone());
                async move { access.admits(&given, &verb, &path).await.is_ok() }
            });
            Body::from_stream(frames)
        }),
    }
}

fn is_stream(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(all: &[(axum::http::HeaderName, &'static str)]) -> HeaderMap {
        all.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn a_credential_is_a_bearer_token_or_the_cookie_of_this_port() {
        let access = Access::new(Rule::Anyone, Some(443), true);
        let found = |all| match access.credential(&headers(all)) {
            Some(Credential::Token(token)) => format!("token {token}"),
            Some(Credential::Login(id)) => format!("login {id}"),
            None => String::new(),
        };
        assert_eq!(found(&[(AUTHORIZATION, "bearer abc")]), "token abc");
        assert_eq!(found(&[(AUTHORIZATION, "Basic abc")]), "");
        let proxy = [(AUTHORIZATION, "Basic abc"), (COOKIE, "__Host-portolan-443=c1")];
        assert_eq!(found(&proxy), "login c1");
        assert_eq!(found(&[(COOKIE, "a=b; __Host-portolan-443=c1; d")]), "login c1");
        assert_eq!(found(&[(COOKIE, "portolan-443=c1"), (COOKIE, "__Host-portolan-80=c2")]), "");
        let both = [(AUTHORIZATION, "Bearer abc"), (COOKIE, "__Host-portolan-443=c1")];
        assert_eq!(found(&both), "token abc");
    }

    #[test]
    fn the_oldest_login_ends_when_there_are_too_many() {
        let access = Access::anyone();
        let ids: Vec<String> =
            (0..=MOST).map(|n| access.add(n.to_string()).expect("random")).collect();
        assert_eq!(access.logins().len(), MOST);
        assert!(access.login(&ids[0]).is_none());
        assert_eq!(access.login(&ids[1]).expect("kept").0, "1");
    }

    #[test]
    fn a_login_ends_after_its_time() {
        let access = Access::anyone();
        let id = access.add("abc".to_owned()).expect("random");
        let now = Instant::now();
        access.logins().get_mut(&id).expect("kept").ends = now;
        assert!(access.login(&id).is_none());
        assert!(access.logins().is_empty());
    }
}
