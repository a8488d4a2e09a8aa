//! The authorities of client certificates: those of clients, and those of front proxies.
//!
//! A certificate authenticates its owner if it is signed by the clients' authority. If it is signed by the authority of
//! front proxies, it authenticates a proxy, which names the user in headers of the request.
//!
//! Without flags, both authorities and the names of the headers are those that the API server publishes in the
//! ConfigMap `kube-system/extension-apiserver-authentication`.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue};
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
use super::validity::Validity;
use crate::api::{Api, ApiError};

/// The ConfigMap in which the API server publishes how it authenticates clients.
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
    /// Headers with the user's name. The first that is present is used.
    pub username_headers: Vec<String>,
    /// Headers with the user's uid. The first that is present is used.
    pub uid_headers: Vec<String>,
    /// Headers with a group each.
    pub group_headers: Vec<String>,
    /// Prefixes of headers with further attributes of the user.
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

/// Certificates that sign those of clients, each with its validity period.
pub(super) struct Authority(Vec<(Validity, Arc<dyn ClientCertVerifier>)>);

impl Authority {
    /// Reads the certificates of PEM text.
    pub(super) fn read(pem: &[u8], provider: &Arc<CryptoProvider>) -> Result<Authority, String> {
        let mut anchors = Vec::new();
        for certificate in parse(pem)? {
            let validity = Validity::of(&certificate)
                .ok_or("the validity of the certificate cannot be read")?;
            let mut roots = RootCertStore::empty();
            roots.add(certificate).map_err(|error| error.to_string())?;
            let builder =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
            anchors.push((validity, builder.build().map_err(|error| error.to_string())?));
        }
        Ok(Authority(anchors))
    }

    /// Verifies a client's certificates, its own first, and returns the subject of its own.
    pub(super) fn verify(&self, chain: &[CertificateDer<'static>]) -> Result<Subject, String> {
        let (own, rest) = chain.split_first().ok_or("no certificate")?;
        let now = UnixTime::now();
        // webpki does not check the validity period of an authority's own certificate, but Go does.
        let valid = self.0.iter().filter(|(validity, _)| validity.contains(now));
        let mut why = "no certificate of the authority is valid at this time".to_owned();
        for (_, verifier) in valid {
            match verifier.verify_client_cert(own, rest, now) {
                Ok(_) => return Subject::of(own),
                Err(error) => why = error.to_string(),
            }
        }
        Err(format!("client certificate: {why}"))
    }
}

/// The front proxies that may name users.
pub(super) struct FrontProxies {
    pub(super) authority: Authority,
    pub(super) headers: RequestHeaders,
}

impl FrontProxies {
    /// Verifies that a proxy made the connection.
    pub(super) fn verify(&self, chain: &[CertificateDer<'static>]) -> Result<(), String> {
        let proxy = self.authority.verify(chain)?.common_name;
        let allowed = &self.headers.allowed_names;
        match allowed.is_empty() || allowed.contains(&proxy) {
            true => Ok(()),
            false => Err(format!("front proxy {proxy:?} is not allowed")),
        }
    }

    /// Returns the user that a verified proxy names, or `None` if it names none.
    ///
    /// # Errors
    ///
    /// A header of the user is not UTF-8.
    pub(super) fn user(&self, headers: &HeaderMap) -> Result<Option<User>, String> {
        let all = |names: &[String]| -> Result<Vec<String>, String> {
            let mut found = Vec::new();
            for name in names.iter().filter(|name| !name.is_empty()) {
                for value in headers.get_all(name).iter().filter(|value| !value.is_empty()) {
                    found.push(text(name, value)?);
                }
            }
            Ok(found)
        };
        let Some(name) = all(&self.headers.username_headers)?.into_iter().next() else {
            return Ok(None);
        };
        let uid = all(&self.headers.uid_headers)?.into_iter().next().unwrap_or_default();
        let groups = all(&self.headers.group_headers)?;
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        // An empty prefix would match every header.
        for prefix in self.headers.extra_prefixes.iter().filter(|prefix| !prefix.is_empty()) {
            let prefix = prefix.to_lowercase();
            for (header, value) in headers {
                if let Some(key) = header.as_str().strip_prefix(&prefix) {
                    let value = text(header.as_str(), value)?;
                    extra.entry(unescape(key)).or_default().push(value);
                }
            }
        }
        Ok(Some(User { name, uid, groups, extra }))
    }
}

/// Returns the value of a header.
fn text(name: &str, value: &HeaderValue) -> Result<String, String> {
    let text = str::from_utf8(value.as_bytes());
    text.map(str::to_owned).map_err(|_| format!("front proxy: header {name:?} is not UTF-8"))
}

/// Decodes percent escapes, such as `%2f`, in the key of an attribute. Invalid text stays as it is.
fn unescape(key: &str) -> String {
    let decoded = crate::api::unescape(key).and_then(|bytes| String::from_utf8(bytes).ok());
    decoded.unwrap_or_else(|| key.to_owned())
}

/// The sources of trusted authorities.
pub(super) struct Sources {
    pub(super) client_ca: Option<PathBuf>,
    pub(super) headers: RequestHeaders,
    /// The client that looks up the authorities that no file provides.
    pub(super) lookup: Option<Api>,
    pub(super) provider: Arc<CryptoProvider>,
}

impl Sources {
    /// Returns whether there is nothing to read: neither a file nor the ConfigMap.
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

    /// Looks up the authorities that no file provides. A cluster without the ConfigMap publishes none.
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
pub(super) mod tests {
    use super::*;
    use crate::testing::{self, provider};

    /// An authority that is valid until this year, and a certificate that it signed.
    pub(in super::super) fn signed(until: i32) -> (String, Vec<CertificateDer<'static>>) {
        let authority = testing::Authority::until(until);
        let (own, _) = authority.issue(&[], "proxy", &[]);
        (authority.0.pem(), vec![own.der().clone()])
    }

    #[test]
    fn an_expired_authority_is_not_trusted_and_others_beside_it_are() {
        let ((expired, old), (valid, new)) = (signed(2020), signed(2060));
        let read = |pem: &str| Authority::read(pem.as_bytes(), &provider()).expect("read");
        let refused = read(&expired).verify(&old).expect_err("expired");
        assert!(refused.contains("valid at this time"), "{refused}");
        let both = read(&(expired + &valid));
        assert_eq!(both.verify(&new).expect("trusted").common_name, "proxy");
        assert!(both.verify(&old).is_err());
        let two = read(&(valid + &signed(2060).0));
        assert!(two.verify(&new).is_ok(), "each authority counts");
    }

    #[test]
    fn headers_of_proxies_are_utf_8_and_an_empty_prefix_matches_none() {
        let (pem, chain) = signed(2060);
        let authority = Authority::read(pem.as_bytes(), &provider()).expect("read");
        let names = RequestHeaders {
            extra_prefixes: vec![String::new(), "X-Remote-Extra-".to_owned()],
            group_headers: vec![String::new(), "x-remote-group".to_owned()],
            ..RequestHeaders::default()
        };
        let proxies = FrontProxies { authority, headers: names };
        proxies.verify(&chain).expect("a proxy");
        let user = |given: &[(&'static str, &[u8])]| {
            let mut headers = HeaderMap::new();
            for (name, value) in given {
                headers.append(*name, HeaderValue::from_bytes(value).expect("a value"));
            }
            proxies.user(&headers)
        };
        let name = ("x-remote-user", "jürgen".as_bytes());
        let found = user(&[name, ("accept", b"*/*"), ("x-remote-extra-a", "ö".as_bytes())]);
        let found = found.expect("valid").expect("a user");
        assert_eq!(found.name, "jürgen");
        assert_eq!(found.extra, BTreeMap::from([("a".to_owned(), vec!["ö".to_owned()])]));
        assert_eq!(user(&[("x-remote-user", b"")]), Ok(None));
        for header in ["x-remote-user", "x-remote-group", "x-remote-extra-a"] {
            let error = user(&[(header, b"\xff"), name]).expect_err("refused");
            assert!(error.contains(header), "{error}");
        }
    }

    #[test]
    fn keys_of_attributes_are_decoded() {
        assert_eq!(unescape("scopes"), "scopes");
        assert_eq!(unescape("example.com%2fproject"), "example.com/project");
        for kept in ["100%", "%zz", "%", "%f", "%ff"] {
            assert_eq!(unescape(kept), kept);
        }
    }
}
