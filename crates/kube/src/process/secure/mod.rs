//! HTTPS with delegated authentication and authorization, as kube-scheduler serves it on its port 10259.
//!
//! A request is answered if its user may make it. Users are authenticated by client certificates and TokenReviews, and
//! authorized by SubjectAccessReviews, so the cluster's roles decide: a rule of `nonResourceURLs` grants `/metrics`.
//! Answers of the API server are kept for 10 s. Equal reviews are shared, and the number of reviews at once is limited,
//! with a reserve for users who were authenticated before. A request without credentials comes from `system:anonymous`,
//! and paths of probes need no rights.
//!
//! | answer | meaning |
//! |---|---|
//! | 401 | the credentials are invalid or could not be reviewed |
//! | 403 | the user may not make the request |
//! | 429 | too many other requests wait for reviews |
//! | 500 | the access could not be reviewed |
//!
//! Differences from kube-scheduler: HTTP/1.1 only, idle connections end after 32 s instead of 90 s, and the ConfigMap
//! of the cluster's authorities is read once a minute instead of being watched. Neither checks revocation lists.

mod authentication;
mod authorization;
mod bearer;
mod cache;
mod certificate;
#[cfg(test)]
mod flood_tests;
mod review;
mod reviews;
mod subject;
#[cfg(test)]
mod tests;
mod trust;
mod validity;

use std::fmt;
use std::io::ErrorKind;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::{Extension, Router};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

use authentication::{Authentication, User};
use authorization::{Authorization, Decision};
use certificate::ServingCertificate;
use reviews::Unreviewed;
use trust::Sources;

pub use bearer::{BearerError, BearerReviews};
pub use certificate::CertificateSource;
pub use trust::RequestHeaders;

use super::LiveScheduler;
use super::serve::connection_state::ConnectionState;
use super::serve::connections::{Bounds, Peer, serve};
use super::serve::refusals::{Reason, Refusals};
use super::serve::{Answers, Served, routes};
use crate::api::{Api, ApiError};
use crate::seldom::warn_seldom;

/// How often files and the ConfigMap are read again.
const REFRESH: Duration = Duration::from_secs(60);
/// How long an answer of the API server is kept.
const TTL: Duration = Duration::from_secs(10);
/// How often the ConfigMap is read until it was read for the first time.
const RETRY: Duration = Duration::from_secs(5);

/// Whether the authorities that no file gives are looked up in the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lookup {
    /// Authorities are looked up, and failures are retried (kube-scheduler's default).
    #[default]
    Tolerant,
    /// Authorities are looked up, and a failure at the start is an error
    /// (`--authentication-tolerate-lookup-failure=false`).
    Strict,
    /// Authorities are not looked up (`--authentication-skip-lookup`).
    Skip,
}

/// The settings of a server with encryption ([`Served::secure`]). The defaults are kube-scheduler's.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SecureConfig {
    /// The address to listen on. Port 0 selects a free port, and an unspecified address means all addresses.
    pub address: SocketAddr,
    /// The server's certificate.
    pub certificate: CertificateSource,
    /// The PEM file of the authority of clients' certificates. Without one, it is looked up in the cluster.
    pub client_ca: Option<PathBuf>,
    /// How front proxies name users.
    pub request_headers: RequestHeaders,
    /// The client that reviews tokens and looks up authorities. Without one, bearer tokens are ignored, and nothing is
    /// looked up.
    pub authentication: Option<Api>,
    /// Whether authorities are looked up.
    pub lookup: Lookup,
    /// How long the answer to a token is kept.
    pub token_ttl: Duration,
    /// The client that reviews accesses. Without one, only `always_allow_paths` and the group `system:masters` are
    /// allowed.
    pub authorization: Option<Api>,
    /// Paths that need no rights. One that ends with `*` matches every path with this prefix.
    pub always_allow_paths: Vec<String>,
    /// How long the permission to make a request is kept.
    pub authorized_ttl: Duration,
    /// How long the refusal of a request is kept.
    pub unauthorized_ttl: Duration,
}

impl SecureConfig {
    /// Returns kube-scheduler's defaults for an address: a self-signed certificate, and no client of the API server.
    #[must_use]
    pub fn new(address: SocketAddr) -> SecureConfig {
        SecureConfig {
            address,
            certificate: CertificateSource::SelfSigned,
            client_ca: None,
            request_headers: RequestHeaders::default(),
            authentication: None,
            lookup: Lookup::default(),
            token_ttl: TTL,
            authorization: None,
            always_allow_paths: ["/healthz", "/readyz", "/livez"].map(str::to_owned).into(),
            authorized_ttl: TTL,
            unauthorized_ttl: TTL,
        }
    }
}

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address is in use or not allowed.
    #[error("{address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why it cannot be listened on.
        error: std::io::Error,
    },
    /// A file of certificates or of a key cannot be used.
    #[error("{}: {why}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// Why it cannot be used.
        why: String,
    },
    /// A self-signed certificate cannot be made.
    #[error("cannot use the serving certificate: {0}")]
    Certificate(String),
    /// The operating system's random number generator failed. Random numbers hide bearer tokens in memory.
    #[error("the operating system's random number generator failed")]
    Random,
    /// The authorities of clients could not be looked up ([`Lookup::Strict`]).
    #[error("cannot look up the client certificate authorities: {0}")]
    Lookup(ApiError),
}

impl ServeError {
    fn file(file: &Path, why: &dyn fmt::Display) -> ServeError {
        ServeError::File { file: file.to_owned(), why: why.to_string() }
    }
}

impl Served {
    /// Starts to serve HTTPS to authorized users.
    ///
    /// # Errors
    ///
    /// See [`ServeError`].
    pub async fn secure(
        config: SecureConfig,
        scheduler: &LiveScheduler,
    ) -> Result<Served, ServeError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let address = config.address.ip();
        let certificate = ServingCertificate::new(&config.certificate, address, provider.clone())?;
        let certificate = Arc::new(certificate);
        let lookup = config.authentication.clone().filter(|_| config.lookup != Lookup::Skip);
        let sources = Sources {
            client_ca: config.client_ca,
            headers: config.request_headers,
            lookup,
            provider: provider.clone(),
        };
        let mut trust = sources.read_files()?;
        if config.lookup == Lookup::Strict {
            sources.look_up(&mut trust).await.map_err(ServeError::Lookup)?;
        }
        let is_complete = config.lookup == Lookup::Strict || sources.lookup.is_none();
        let authentication = Authentication::new(trust, config.authentication, config.token_ttl)
            .map_err(|_| ServeError::Random)?;
        let ttls = (config.authorized_ttl, config.unauthorized_ttl);
        let paths = &config.always_allow_paths;
        let authorization = Authorization::new(config.authorization, paths, ttls);
        let gate = Arc::new(Gate {
            authentication,
            authorization,
            refusals: scheduler.refusals().clone(),
        });

        let (listener, address) = bind(config.address).await?;
        let clients = Arc::new(AnyClient(provider.clone()));
        let tls = tls(provider, Some(clients), certificate.clone())?;
        let router = guarded(routes(Answers::of(scheduler)), gate.clone());
        let refusals = scheduler.refusals().clone();
        let served = serve(listener, Some(tls), router, Bounds::default(), refusals);
        let served = tokio::spawn(served);
        let refreshed = refresh(certificate, sources, gate, is_complete);
        Ok(Served::new(address.into(), vec![served, tokio::spawn(refreshed)]))
    }

    /// Starts to serve other routes over HTTPS, with the same bounds for connections. Clients are not asked for
    /// certificates, and the routes must authenticate them: every request has an extension `Arc<ConnectionState>`, with
    /// which the handler of a request that it accepts protects the connection.
    ///
    /// # Errors
    ///
    /// See [`ServeError`].
    pub async fn encrypted(
        address: SocketAddr,
        certificate: &CertificateSource,
        routes: Router,
    ) -> Result<Served, ServeError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let certificate = ServingCertificate::new(certificate, address.ip(), provider.clone())?;
        let certificate = Arc::new(certificate);
        let (listener, address) = bind(address).await?;
        let tls = tls(provider, None, certificate.clone())?;
        let served = serve(listener, Some(tls), routes, Bounds::default(), Refusals::default());
        let reloaded = async move {
            loop {
                sleep(REFRESH).await;
                reload(&certificate);
            }
        };
        Ok(Served::new(address.into(), vec![tokio::spawn(served), tokio::spawn(reloaded)]))
    }
}

/// Listens on an address, and returns it with the port that was selected. Any unspecified address, such as `0.0.0.0`,
/// means all addresses of both families, as in kube-scheduler, unless the system restricts IPv6 sockets to IPv6
/// (`net.ipv6.bindv6only`).
async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), ServeError> {
    let bound = async {
        if address.ip().is_unspecified() {
            let all = SocketAddr::from((Ipv6Addr::UNSPECIFIED, address.port()));
            match TcpListener::bind(all).await {
                // The system may lack IPv6.
                Err(error) if error.kind() != ErrorKind::AddrInUse => {}
                bound => return bound,
            }
        }
        TcpListener::bind(address).await
    };
    let listen = |error| ServeError::Listen { address, error };
    let listener = bound.await.map_err(listen)?;
    let selected = listener.local_addr().map_err(listen)?;
    Ok((listener, selected))
}

/// The server's side of TLS. Without `clients`, no certificate of a client is asked for.
fn tls(
    provider: Arc<CryptoProvider>,
    clients: Option<Arc<AnyClient>>,
    certificate: Arc<ServingCertificate>,
) -> Result<TlsAcceptor, ServeError> {
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| ServeError::Certificate(error.to_string()))?;
    let config = match clients {
        Some(clients) => config.with_client_cert_verifier(clients),
        None => config.with_no_client_auth(),
    };
    let mut config = config.with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Reads the files of the certificate again.
fn reload(certificate: &ServingCertificate) {
    if let Err(error) = certificate.reload() {
        tracing::warn!(%error, "serving certificate not read again");
    }
}

/// Reads files and the ConfigMap again, so that certificates can be replaced. If this fails, the previous contents stay
/// in use.
async fn refresh(
    certificate: Arc<ServingCertificate>,
    sources: Sources,
    gate: Arc<Gate>,
    mut is_complete: bool,
) {
    let mut wait = if is_complete { REFRESH } else { Duration::ZERO };
    loop {
        sleep(wait).await;
        reload(&certificate);
        wait = REFRESH;
        if sources.is_empty() {
            continue;
        }
        let read = match sources.read_files() {
            Ok(mut trust) => match sources.look_up(&mut trust).await {
                Ok(()) => Ok(trust),
                // The authorities of the files are used even if the look-up fails.
                Err(error) => Err((ServeError::Lookup(error), (!is_complete).then_some(trust))),
            },
            Err(error) => Err((error, None)),
        };
        match read {
            Ok(trust) => {
                is_complete = true;
                gate.authentication.set_trust(trust);
            }
            Err((error, trust)) => {
                tracing::warn!(%error, "client certificates: authorities not read");
                if let Some(trust) = trust {
                    gate.authentication.set_trust(trust);
                }
                wait = if is_complete { REFRESH } else { RETRY };
            }
        }
    }
}

/// Decides on requests.
struct Gate {
    authentication: Authentication,
    authorization: Authorization,
    refusals: Refusals,
}

impl Gate {
    /// Answers a request that cannot wait for a review.
    fn too_many(&self, reason: Reason) -> Response {
        self.refusals.count(reason);
        warn_seldom!(?reason, "too many requests wait for reviews");
        let what = "too many requests wait for reviews, please try again later";
        let mut response = refusal(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", what);
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        response
    }
}

/// Puts the gate before all routes, and before paths without one.
fn guarded(router: Router, gate: Arc<Gate>) -> Router {
    let absent = || async { (StatusCode::NOT_FOUND, "404 page not found\n") };
    router.fallback(absent).layer(from_fn_with_state(gate, admit))
}

async fn admit(
    State(gate): State<Arc<Gate>>,
    ConnectInfo(Peer(chain)): ConnectInfo<Peer>,
    Extension(state): Extension<Arc<ConnectionState>>,
    mut request: Request,
    next: Next,
) -> Response {
    let user = match gate.authentication.user(request.headers(), &chain).await {
        Ok(user) => user,
        // Every user may read these paths, so the answer to a probe does not depend on other clients.
        Err(Unreviewed::TooMany) if gate.authorization.always_allows(request.uri().path()) => {
            User::anonymous()
        }
        Err(Unreviewed::TooMany) => return gate.too_many(Reason::TokenReviews),
        Err(error) => {
            warn_seldom!(%error, "a request was not authenticated");
            return refusal(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized");
        }
    };
    request.headers_mut().remove(AUTHORIZATION);
    let (verb, path) = (request.method().as_str().to_lowercase(), request.uri().path());
    let mut response = match gate.authorization.decide(&user, &verb, path).await {
        Ok(Decision::Allowed) => {
            // An unknown client must not protect its connection, not even for a path that is always allowed.
            if !user.is_anonymous() {
                state.protect();
            }
            next.run(request).await
        }
        Err(Unreviewed::TooMany) => gate.too_many(Reason::AccessReviews),
        Ok(Decision::Denied(reason)) => {
            let what = format!("User {:?} cannot {verb} path {path:?}", user.name);
            let what = match reason.is_empty() {
                true => format!("forbidden: {}", escape(&what)),
                false => format!("forbidden: {}: {reason}", escape(&what)),
            };
            refusal(StatusCode::FORBIDDEN, "Forbidden", &what)
        }
        Err(error) => {
            warn_seldom!(%error, user = user.name, path, "access not reviewed");
            let what = format!("Internal Server Error: {path:?}: {error}\n");
            let mut response = Response::new(Body::from(escape(&what)));
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            plain(&mut response, "text/plain; charset=utf-8");
            response
        }
    };
    // No cache on the way to the client may keep an answer that other users must not see.
    let private = HeaderValue::from_static("no-cache, private");
    response.headers_mut().entry(CACHE_CONTROL).or_insert(private);
    response
}

/// Escapes HTML, so that no browser renders an error as a page.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// An error in the API server's format (`metav1.Status`).
fn refusal(code: StatusCode, reason: &str, message: &str) -> Response {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "details": {}, "code": code.as_u16(),
    });
    let mut response = Response::new(Body::from(status.to_string() + "\n"));
    *response.status_mut() = code;
    plain(&mut response, "application/json");
    response
}

/// Sets the type of a body, and forbids browsers to guess another one.
fn plain(response: &mut Response, content_type: &'static str) {
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

/// Accepts every client certificate whose key the client has, and connections without one. Which authority signed it is
/// checked for each request, because the authorities may change, and because an unknown certificate is 401 and not a
/// failed handshake.
#[derive(Debug)]
struct AnyClient(Arc<CryptoProvider>);

impl ClientCertVerifier for AnyClient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
