//! The flags of `portolan run` for its HTTP servers, and the servers that they start. `portolan serve` has some of them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use portolan_kube::api::{Api, Connection};
use portolan_kube::process::{
    CertificateSource, ListenAddress, ListenError, LiveScheduler, Lookup, RequestHeaders,
    SecureConfig, ServeError, Served,
};

use super::live;
use super::run::duration;
use super::settings::set;
use crate::error::CommandError;

/// kube-scheduler's port.
const PORT: u16 = 10259;

#[derive(Default, clap::Args)]
#[command(next_help_heading = "Serving")]
pub(super) struct Serving {
    /// Listen address for /healthz, /livez, /readyz, /metrics and /configz without encryption or authentication, or
    /// unix:PATH for a Unix socket; `none` disables it (default outside a pod: 127.0.0.1:10259).
    #[arg(long, value_name = "ADDRESS")]
    serve: Option<String>,
    /// Port for the same paths over HTTPS, with authentication and authorization by the API server; 0 disables it
    /// (default in a pod, or with another flag of HTTPS: 10259).
    #[arg(long, value_name = "PORT")]
    secure_port: Option<u16>,
    /// IP address of the secure port (default: all addresses).
    #[arg(long, value_name = "IP")]
    bind_address: Option<IpAddr>,
    /// Folder of kube-scheduler.crt and kube-scheduler.key; a self-signed certificate is written if both are missing
    /// (default without --tls-cert-file: a self-signed certificate in memory).
    #[arg(long, value_name = "DIR")]
    cert_dir: Option<PathBuf>,
    #[command(flatten)]
    certificate: Certificate,
    /// CA file for verifying client certificates (default: looked up in the cluster).
    #[arg(long, value_name = "FILE")]
    client_ca_file: Option<PathBuf>,
    #[command(flatten)]
    reviewers: Reviewers,
    /// Do not look up authorities with --authentication-kubeconfig.
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1, require_equals = true)]
    authentication_skip_lookup: Option<bool>,
    /// Start even if authorities cannot be looked up (default: true).
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1, require_equals = true)]
    authentication_tolerate_lookup_failure: Option<bool>,
    /// Time for which the review of a token is cached (default: 10s).
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    authentication_token_webhook_cache_ttl: Option<Duration>,
    /// Time for which a permission is cached (default: 10s).
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    authorization_webhook_cache_authorized_ttl: Option<Duration>,
    /// Time for which a refusal is cached (default: 10s).
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    authorization_webhook_cache_unauthorized_ttl: Option<Duration>,
    /// Paths that need no permission, separated by commas (default: /healthz,/readyz,/livez).
    #[arg(long, value_name = "PATHS", value_delimiter = ',')]
    authorization_always_allow_paths: Option<Vec<String>>,
    /// CA file for verifying front proxies (default: looked up in the cluster, with the names of their headers).
    #[arg(long, value_name = "FILE")]
    requestheader_client_ca_file: Option<PathBuf>,
    /// Common names of front proxies, separated by commas (default: any).
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    requestheader_allowed_names: Option<Vec<String>>,
    /// Headers with a user's name (default: x-remote-user).
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    requestheader_username_headers: Option<Vec<String>>,
    /// Headers with a user's uid (default: none).
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    requestheader_uid_headers: Option<Vec<String>>,
    /// Headers with a user's groups (default: x-remote-group).
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    requestheader_group_headers: Option<Vec<String>>,
    /// Prefixes of headers with further attributes of a user (default: x-remote-extra-).
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    requestheader_extra_headers_prefix: Option<Vec<String>>,
}

/// The files of a server's certificate.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Certificate {
    /// Serving certificate, followed by its issuers.
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    tls_cert_file: Option<PathBuf>,
    /// Private key of the serving certificate.
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,
}

impl Certificate {
    /// The files, if they are given.
    pub(crate) fn source(&self) -> Option<CertificateSource> {
        let (certificate, key) = (self.tls_cert_file.clone()?, self.tls_private_key_file.clone()?);
        Some(CertificateSource::Files { certificate, key })
    }
}

/// The API servers that review the users of a server.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Reviewers {
    /// Kubeconfig for TokenReviews (default: the service account in a pod, else none).
    #[arg(long, value_name = "FILE")]
    authentication_kubeconfig: Option<PathBuf>,
    /// Kubeconfig for SubjectAccessReviews (default: the service account in a pod, else none).
    #[arg(long, value_name = "FILE")]
    authorization_kubeconfig: Option<PathBuf>,
}

impl Reviewers {
    /// Whether a flag is given.
    pub(crate) fn is_given(&self) -> bool {
        self.authentication_kubeconfig.is_some() || self.authorization_kubeconfig.is_some()
    }

    /// The client that reviews tokens, and the client that reviews accesses.
    pub(crate) async fn connect(&self) -> Result<[Option<Api>; 2], CommandError> {
        let authentication = Connection::delegated(self.authentication_kubeconfig.as_deref());
        let authorization = Connection::delegated(self.authorization_kubeconfig.as_deref());
        let both = [authentication.await.map_err(live)?, authorization.await.map_err(live)?];
        if both[1].is_none() {
            tracing::warn!(
                "access is not reviewed, so requests that need a permission are only allowed for system:masters: use \
                 --authorization-kubeconfig"
            );
        }
        Ok(both)
    }
}

/// The failure to start a server, with what to do if another process has its address.
pub(crate) fn not_secured(error: &ServeError, remedy: &str) -> CommandError {
    match error {
        ServeError::Listen { .. } => CommandError::Usage(format!("{error}: {remedy}")),
        _ => CommandError::Usage(error.to_string()),
    }
}

/// Reads an address to listen on without encryption.
pub(super) fn address(text: &str) -> Result<Option<ListenAddress>, CommandError> {
    match text {
        "none" => Ok(None),
        _ => text.parse().map(Some).map_err(|_| {
            let example = "write an address such as 127.0.0.1:10259, unix:PATH, or none";
            CommandError::Usage(format!("--serve {text}: {example}"))
        }),
    }
}

/// The failure to listen on the address of an option.
pub(crate) fn not_served(
    option: &str,
    address: &ListenAddress,
    error: &ListenError,
) -> CommandError {
    CommandError::Usage(format!("{option} {address}: {error}: choose another address"))
}

/// The addresses to listen on.
#[derive(Debug, PartialEq, Eq)]
struct Addresses {
    plain: Option<ListenAddress>,
    secure: Option<SocketAddr>,
}

impl Serving {
    /// Returns the addresses to listen on. Without flags, a pod serves HTTPS as kube-scheduler does. Outside a pod,
    /// users cannot be authenticated, so plain HTTP is served to the local host only.
    fn addresses(&self, is_in_cluster: bool) -> Result<Addresses, CommandError> {
        let is_secure = self.secure_port.is_some()
            || self.bind_address.is_some()
            || self.cert_dir.is_some()
            || self.certificate.tls_cert_file.is_some()
            || self.client_ca_file.is_some()
            || self.reviewers.is_given();
        let plain = match self.serve.as_deref() {
            Some(text) => address(text)?,
            None if is_secure || is_in_cluster => None,
            None => Some(SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)).into()),
        };
        let address = self.bind_address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let port = self.secure_port.unwrap_or(PORT);
        let is_secure = is_secure || (is_in_cluster && self.serve.is_none());
        let secure = (is_secure && port > 0).then(|| SocketAddr::from((address, port)));
        if let Some(flag) = self.only_for_https().filter(|_| secure.is_none()) {
            return Err(CommandError::Usage(format!("{flag} needs HTTPS: add --secure-port")));
        }
        Ok(Addresses { plain, secure })
    }

    /// Returns a flag that is given and has no meaning without HTTPS.
    fn only_for_https(&self) -> Option<&'static str> {
        [
            (self.certificate.tls_private_key_file.is_some(), "--tls-private-key-file"),
            (self.authentication_skip_lookup.is_some(), "--authentication-skip-lookup"),
            (
                self.authentication_tolerate_lookup_failure.is_some(),
                "--authentication-tolerate-lookup-failure",
            ),
            (self.authorization_always_allow_paths.is_some(), "--authorization-always-allow-paths"),
            (self.requestheader_client_ca_file.is_some(), "--requestheader-client-ca-file"),
            (self.requestheader_allowed_names.is_some(), "--requestheader-allowed-names"),
        ]
        .into_iter()
        .find_map(|(is_given, flag)| is_given.then_some(flag))
    }

    /// Starts the servers. They end when the result is dropped.
    pub(super) async fn start(
        &self,
        scheduler: &LiveScheduler,
    ) -> Result<Vec<Served>, CommandError> {
        let Addresses { plain, secure } = self.addresses(Connection::is_in_cluster())?;
        let mut served = Vec::new();
        if let Some(address) = plain {
            let started = Served::start(address.clone(), scheduler).await;
            served.push(started.map_err(|error| not_served("--serve", &address, &error))?);
        }
        if let Some(address) = secure {
            let config = self.config(address).await?;
            let remedy = "choose another --secure-port or --bind-address";
            let started = Served::secure(config, scheduler).await;
            served.push(started.map_err(|error| not_secured(&error, remedy))?);
        }
        Ok(served)
    }

    async fn config(&self, address: SocketAddr) -> Result<SecureConfig, CommandError> {
        let mut config = SecureConfig::new(address);
        config.certificate = match (self.certificate.source(), &self.cert_dir) {
            (Some(files), _) => files,
            (None, Some(folder)) => CertificateSource::Folder(folder.clone()),
            (None, None) => CertificateSource::SelfSigned,
        };
        config.client_ca = self.client_ca_file.clone();
        config.request_headers = self.request_headers();
        [config.authentication, config.authorization] = self.reviewers.connect().await?;
        config.lookup = match self.authentication_tolerate_lookup_failure {
            _ if self.authentication_skip_lookup == Some(true) => Lookup::Skip,
            Some(false) => Lookup::Strict,
            _ => Lookup::Tolerant,
        };
        let ttl = self.authorization_webhook_cache_unauthorized_ttl.as_ref();
        set(&mut config.unauthorized_ttl, ttl);
        let ttl = self.authorization_webhook_cache_authorized_ttl.as_ref();
        set(&mut config.authorized_ttl, ttl);
        set(&mut config.token_ttl, self.authentication_token_webhook_cache_ttl.as_ref());
        set(&mut config.always_allow_paths, self.authorization_always_allow_paths.as_ref());
        if config.authentication.is_none() {
            tracing::warn!(
                "bearer tokens are ignored and authorities are not looked up: use --authentication-kubeconfig"
            );
        }
        Ok(config)
    }

    fn request_headers(&self) -> RequestHeaders {
        let mut headers = RequestHeaders::default();
        headers.client_ca = self.requestheader_client_ca_file.clone();
        set(&mut headers.allowed_names, self.requestheader_allowed_names.as_ref());
        set(&mut headers.username_headers, self.requestheader_username_headers.as_ref());
        set(&mut headers.uid_headers, self.requestheader_uid_headers.as_ref());
        set(&mut headers.group_headers, self.requestheader_group_headers.as_ref());
        set(&mut headers.extra_prefixes, self.requestheader_extra_headers_prefix.as_ref());
        headers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_serves_https_and_any_other_process_serves_its_host() {
        let addresses = |serving: &Serving, is_in_cluster| {
            let found = serving.addresses(is_in_cluster).expect("valid");
            let plain = found.plain.map(|address| address.to_string());
            (plain, found.secure.map(|address| address.to_string()))
        };
        let some = |text: &str| Some(text.to_owned());
        let (local, all) = (some("127.0.0.1:10259"), some("0.0.0.0:10259"));
        let nothing = Serving::default();
        assert_eq!(addresses(&nothing, true), (None, all.clone()));
        assert_eq!(addresses(&nothing, false), (local, None));

        let plain = Serving { serve: some("127.0.0.1:80"), ..Serving::default() };
        let none = Serving { serve: some("none"), ..Serving::default() };
        let zero = Serving { secure_port: Some(0), ..Serving::default() };
        for is_in_cluster in [true, false] {
            assert_eq!(addresses(&plain, is_in_cluster), (some("127.0.0.1:80"), None));
            assert_eq!(addresses(&none, is_in_cluster), (None, None));
            assert_eq!(addresses(&zero, is_in_cluster), (None, None));
        }
        // As kubeadm starts kube-scheduler, in a pod without a service account.
        let kubeadm = Serving {
            bind_address: Some(Ipv4Addr::LOCALHOST.into()),
            reviewers: Reviewers {
                authentication_kubeconfig: Some("scheduler.conf".into()),
                ..Reviewers::default()
            },
            ..Serving::default()
        };
        assert_eq!(addresses(&kubeadm, false), (None, some("127.0.0.1:10259")));
        let paths = Some(vec!["/metrics".to_owned()]);
        let open = Serving { authorization_always_allow_paths: paths, ..Serving::default() };
        assert!(open.addresses(true).is_ok());
        let refused = open.addresses(false).expect_err("served without HTTPS").to_string();
        assert!(refused.contains("--authorization-always-allow-paths needs HTTPS"), "{refused}");
        let socket = Serving { serve: some("unix:/run/s"), ..Serving::default() };
        assert_eq!(addresses(&socket, false), (some("unix:/run/s"), None));
        let both = Serving { secure_port: Some(443), ..plain };
        assert_eq!(addresses(&both, false), (some("127.0.0.1:80"), some("0.0.0.0:443")));
    }
}
