//! Which client certificates are trusted, and for what.
//!
//! A certificate authenticates its owner if it is signed by the clients' authority. If it is signed by the authority of
//! front proxies, it authenticates a proxy, which names the user in headers of the request.
//!
//! Without flags, both authorities and the names of the headers are those that the API server publishes in the ConfigMap
//! `kube-system/extension-apiserver-authentication`.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use http::HeaderMap;
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use serde::Deserialize;

use super::ServeError;
use super::authentication::User;
use super::certificate::parse;
use super::subject::Subject;
use crate::api::{Api, ApiError};

/// Where the API server publishes how it authenticates clients.
pub(super) const CONFIG_MAP: &str =
    "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";

/// How front proxies, such as the API server's aggregator, name the user of a request (`--requestheader-*`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestHeaders {
    /// The PEM file of the proxies' authority. Without one, all of this is looked up in the cluster.
    pub client_ca: Option<PathBuf>,
    /// Common names of the proxies' certificates. Empty trusts every certificate of the authority.
    pub allowed_names: Vec<String>,
    /// Headers with the user's name, of which the first that is present counts.
    pub username_headers: Vec<String>,
    /// Headers with the user's uid, of which the first that is present counts.
    pub uid_headers: Vec<String>,
    /// Headers with a group each.
    pub group_headers: Vec<String>,
    /// Beginnings of headers with further attributes of the user.
    pub extra_prefixes: Vec<String>,
}

impl Default for RequestHeaders {
    fn default() -> RequestHeaders {
        let one = |name: &str| vec![name.to_owned()];
        RequestHeaders {
            client_ca: None,
            allowed_names: Vec::new(),
            username_headers: one("x-remote-user"),
            uid_headers: Vec::new(),
            group_headers: one("x-remote-group"),
            extra_prefixes: one("x-remote-extra-"),
        }
    }
}

/// The authorities of client certificates.
#[derive(Default)]
pub(super) struct Trust {
    pub(super) clients: Option<Authority>,
    pub(super) proxies: Option<FrontProxies>,
}

/// Certificates that sign those of clients.
pub(super) struct Authority(Arc<dyn ClientCertVerifier>);

impl Authority {
    /// Reads the certificates of PEM text.
    pub(super) fn read(pem: &[u8], provider: &Arc<CryptoProvider>) -> Result<Authority, String> {
        let mut roots = RootCertStore::empty();
        for certificate in parse(pem)? {
            roots.add(certificate).map_err(|error| error.to_string())?;
        }
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
        verifier.map(Authority).map_err(|error| error.to_string())
    }

    /// Verifies a client's certificates, its own first, and returns the subject of its own.
    pub(super) fn verify(&self, chain: &[CertificateDer<'static>]) -> Result<Subject, String> {
        let (own, rest) = chain.split_first().ok_or("no certificate")?;
        let verified = self.0.verify_client_cert(own, rest, UnixTime::now());
        verified.map_err(|error| format!("client certificate: {error}"))?;
        Subject::of(own)
    }
}

/// The front proxies that may name users.
pub(super) struct FrontProxies {
    pub(super) authority: Authority,
    pub(super) headers: RequestHeaders,
}

impl FrontProxies {
    /// Returns the user that a proxy names, or `None` if it names none.
    pub(super) fn user(
        &self,
        headers: &HeaderMap,
        chain: &[CertificateDer<'static>],
    ) -> Result<Option<User>, String> {
        let proxy = self.authority.verify(chain)?.common_name;
        let allowed = &self.headers.allowed_names;
        if !allowed.is_empty() && !allowed.contains(&proxy) {
            return Err(format!("front proxy {proxy:?} is not allowed"));
        }
        let all = |names: &[String]| -> Vec<String> {
            let found = names.iter().flat_map(|name| headers.get_all(name));
            let text = found.filter_map(|value| value.to_str().ok());
            text.filter(|text| !text.is_empty()).map(str::to_owned).collect()
        };
        let Some(name) = all(&self.headers.username_headers).into_iter().next() else {
            return Ok(None);
        };
        let uid = all(&self.headers.uid_headers).into_iter().next().unwrap_or_default();
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for prefix in &self.headers.extra_prefixes {
            let prefix = prefix.to_lowercase();
            for (header, value) in headers {
                if let (Some(key), Ok(value)) =
                    (header.as_str().strip_prefix(&prefix), value.to_str())
                {
                    extra.entry(unescape(key)).or_default().push(value.to_owned());
                }
            }
        }
        Ok(Some(User { name, uid, groups: all(&self.headers.group_headers), extra }))
    }
}

/// Decodes `%2f` and its like in the key of an attribute. Invalid text stays as it is.
fn unescape(key: &str) -> String {
    let mut bytes = Vec::with_capacity(key.len());
    let mut rest = key.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = (*first == b'%').then(|| after.get(..2)).flatten();
        let digits = digits.and_then(|digits| str::from_utf8(digits).ok());
        match (first, digits.and_then(|digits| u8::from_str_radix(digits, 16).ok())) {
            (_, Some(byte)) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            (b'%', None) => return key.to_owned(),
            (byte, None) => {
                bytes.push(*byte);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| key.to_owned())
}

/// What to read trust from.
pub(super) struct Sources {
    pub(super) client_ca: Option<PathBuf>,
    pub(super) headers: RequestHeaders,
    /// The client that looks up what no file gives.
    pub(super) lookup: Option<Api>,
    pub(super) provider: Arc<CryptoProvider>,
}

impl Sources {
    /// Returns whether something may change: a file, or the ConfigMap.
    pub(super) fn is_empty(&self) -> bool {
        self.client_ca.is_none() && self.headers.client_ca.is_none() && self.lookup.is_none()
    }

    /// Reads the files.
    pub(super) fn read_files(&self) -> Result<Trust, ServeError> {
        let read = |file: &PathBuf| {
            let pem = fs::read(file).map_err(|error| ServeError::file(file, &error))?;
            Authority::read(&pem, &self.provider).map_err(|why| ServeError::file(file, &why))
        };
        let clients = self.client_ca.as_ref().map(read).transpose()?;
        let proxies = self.headers.client_ca.as_ref().map(read).transpose()?;
        let headers = || self.headers.clone();
        let proxies = proxies.map(|authority| FrontProxies { authority, headers: headers() });
        Ok(Trust { clients, proxies })
    }

    /// Looks up what no file gives. A cluster without the ConfigMap publishes nothing.
    pub(super) async fn look_up(&self, trust: &mut Trust) -> Result<(), ApiError> {
        let Some(api) = &self.lookup else { return Ok(()) };
        if trust.clients.is_some() && trust.proxies.is_some() {
            return Ok(());
        }
        let body = match api.get(CONFIG_MAP).await {
            Ok(body) => body,
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => return Err(error),
        };
        let malformed = |why: String| ApiError::Malformed(format!("{CONFIG_MAP}: {why}"));
        let ConfigMap { data } =
            serde_json::from_slice(&body).map_err(|error| malformed(error.to_string()))?;
        let authority = |key: &str| match data.get(key).filter(|pem| !pem.is_empty()) {
            None => Ok(None),
            Some(pem) => Authority::read(pem.as_bytes(), &self.provider)
                .map(Some)
                .map_err(|why| malformed(format!("{key}: {why}"))),
        };
        let list = |key: &str| -> Result<Vec<String>, ApiError> {
            let Some(text) = data.get(key).filter(|text| !text.is_empty()) else {
                return Ok(Vec::new());
            };
            serde_json::from_str(text).map_err(|error| malformed(format!("{key}: {error}")))
        };
        if trust.clients.is_none() {
            trust.clients = authority("client-ca-file")?;
        }
        if trust.proxies.is_none()
            && let Some(authority) = authority("requestheader-client-ca-file")?
        {
            let headers = RequestHeaders {
                client_ca: None,
                allowed_names: list("requestheader-allowed-names")?,
                username_headers: list("requestheader-username-headers")?,
                uid_headers: list("requestheader-uid-headers")?,
                group_headers: list("requestheader-group-headers")?,
                extra_prefixes: list("requestheader-extra-headers-prefix")?,
            };
            trust.proxies = Some(FrontProxies { authority, headers });
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct ConfigMap {
    #[serde(default)]
    data: BTreeMap<String, String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_attributes_are_decoded() {
        assert_eq!(unescape("scopes"), "scopes");
        assert_eq!(unescape("example.com%2fproject"), "example.com/project");
        for kept in ["100%", "%zz", "%", "%f", "%ff"] {
            assert_eq!(unescape(kept), kept);
        }
    }
}
