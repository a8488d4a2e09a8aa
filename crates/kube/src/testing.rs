//! What the tests of several modules share.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use portolan::cache::{Engine, Event};
use portolan_apiserver::{ApiServer, Options};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
};
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{default_provider, kx_group};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;

use crate::api::{Api, Limits};
use crate::mirror::Condition;

/// A folder that is removed at the end of a test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("portolan-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&path).expect("created");
        Folder(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An authority that signs certificates.
pub(crate) struct Authority(pub(crate) CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Authority {
        Authority::until(2060)
    }

    /// An authority that is valid until this year.
    pub(crate) fn until(year: i32) -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().expect("a key");
        Authority(CertifiedIssuer::self_signed(params, key).expect("an authority"))
    }

    pub(crate) fn issue(
        &self,
        hosts: &[&str],
        name: &str,
        groups: &[&str],
    ) -> (rcgen::Certificate, KeyPair) {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).expect("names");
        params.distinguished_name = DistinguishedName::new();
        for group in groups {
            params.distinguished_name.push(DnType::OrganizationName, *group);
        }
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        (params.signed_by(&key, &self.0).expect("signed"), key)
    }
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(default_provider())
}

/// A client's side of TLS: with the certificate that it trusts, and perhaps with one of its own for the group
/// `system:masters`.
pub(crate) fn tls_client(
    trusted: CertificateDer<'static>,
    own: Option<&Authority>,
) -> Arc<ClientConfig> {
    // Without optimizations, this group costs less than the default one.
    let kx_groups = vec![kx_group::SECP256R1];
    let mut roots = RootCertStore::empty();
    roots.add(trusted).expect("a certificate");
    let provider = CryptoProvider { kx_groups, ..default_provider() };
    let config = ClientConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots);
    let mut config = match own {
        None => config.with_no_client_auth(),
        Some(authority) => {
            let (certificate, key) = authority.issue(&[], "front-proxy", &["system:masters"]);
            let chain = vec![certificate.der().clone()];
            config.with_client_auth_cert(chain, key.into()).expect("matching")
        }
    };
    config.resumption = Resumption::disabled();
    Arc::new(config)
}

pub(crate) fn server() -> ApiServer {
    ApiServer::start(Options::default()).expect("a server")
}

/// Creates the node n1.
pub(crate) fn create_node(server: &ApiServer) {
    let amounts = json!({"cpu": "8", "memory": "8Gi", "pods": "110"});
    let status = json!({"capacity": amounts, "allocatable": amounts});
    let node =
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": status});
    server.create(&node).expect("created");
}

pub(crate) fn config(url: &str) -> kube::Config {
    kube::Config::new(url.parse().expect("a URL"))
}

/// Returns a client. Call it within a runtime.
pub(crate) fn api(url: &str) -> Api {
    Api::new(config(url), Limits::default()).expect("a client")
}

/// A pod's condition `PodScheduled` with the reason of an attempt that found no node.
pub(crate) fn unschedulable(status: &str, message: &str) -> Condition {
    Condition {
        status: status.into(),
        reason: "Unschedulable".into(),
        message: message.into(),
        last_transition_time: None,
        observed_generation: None,
    }
}

/// Applies an event, which the engine must accept.
pub(crate) fn apply(engine: &Engine, event: Event) {
    engine.submit(event).expect("open").wait().expect("open").expect("applied");
}

/// Waits without a time limit, which the caller has.
pub(crate) async fn until(is_done: impl Fn() -> bool) {
    while !is_done() {
        tokio::task::yield_now().await;
    }
}
