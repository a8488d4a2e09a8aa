//! The certificate of the server: read from files, which are read again when they are replaced, or self-signed.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use jiff::{Timestamp, ToSpan, tz::TimeZone};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::ServeError;

/// The source of the server's certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CertificateSource {
    /// A self-signed certificate, made at the start and kept in memory.
    #[default]
    SelfSigned,
    /// The files `kube-scheduler.crt` and `kube-scheduler.key` of a folder (`--cert-dir`). If neither exists, a
    /// self-signed certificate is written to them.
    Folder(PathBuf),
    /// PEM files (`--tls-cert-file` and `--tls-private-key-file`).
    Files {
        /// The certificate, followed by those of its issuers.
        certificate: PathBuf,
        /// The private key.
        key: PathBuf,
    },
}

/// The certificate that the server presents.
#[derive(Debug)]
pub(super) struct ServingCertificate {
    pub(super) current: RwLock<Arc<CertifiedKey>>,
    files: Option<(PathBuf, PathBuf)>,
    provider: Arc<CryptoProvider>,
}

impl ServingCertificate {
    /// Reads the certificate, or makes one for `localhost` and this address.
    pub(super) fn new(
        source: &CertificateSource,
        address: IpAddr,
        provider: Arc<CryptoProvider>,
    ) -> Result<ServingCertificate, ServeError> {
        let (certificate, key) = match source {
            CertificateSource::Files { certificate, key } => (certificate.clone(), key.clone()),
            CertificateSource::Folder(folder) => {
                let files = (folder.join("kube-scheduler.crt"), folder.join("kube-scheduler.key"));
                if !files.0.exists() && !files.1.exists() {
                    write(&self_signed(address)?, &files)?;
                }
                files
            }
            CertificateSource::SelfSigned => {
                let (certificate, key) = self_signed(address)?;
                let failed = |error: rustls::Error| ServeError::Certificate(error.to_string());
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes());
                let key = key.map_err(|error| ServeError::Certificate(error.to_string()))?;
                let chain = vec![certificate.der().clone()];
                let current = CertifiedKey::from_der(chain, key, &provider).map_err(failed)?;
                let current = RwLock::new(Arc::new(current));
                return Ok(ServingCertificate { current, files: None, provider });
            }
        };
        let current = RwLock::new(Arc::new(read(&certificate, &key, &provider)?));
        Ok(ServingCertificate { current, files: Some((certificate, key)), provider })
    }

    /// Reads the files again. The certificate stays in use if they are invalid, for instance because only one of them
    /// has been replaced so far.
    pub(super) fn reload(&self) -> Result<(), ServeError> {
        let Some((certificate, key)) = &self.files else { return Ok(()) };
        let read = read(certificate, key, &self.provider)?;
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if current.cert != read.cert {
            tracing::info!(file = %certificate.display(), "serving certificate replaced");
            *current = Arc::new(read);
        }
        Ok(())
    }
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

fn read(
    certificate: &Path,
    key: &Path,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, ServeError> {
    let failed = |file: &Path, error: &dyn std::fmt::Display| ServeError::file(file, error);
    let chain = certificates(certificate)?;
    let private = fs::read(key).map_err(|error| failed(key, &error))?;
    let private = PrivateKeyDer::from_pem_slice(&private).map_err(|error| failed(key, &error))?;
    CertifiedKey::from_der(chain, private, provider).map_err(|error| failed(key, &error))
}

/// Reads the certificates of a PEM file, which must contain at least one.
pub(super) fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, ServeError> {
    let text = fs::read(file).map_err(|error| ServeError::file(file, &error))?;
    parse(&text).map_err(|why| ServeError::file(file, &why))
}

/// Reads the certificates of PEM text, which must contain at least one.
pub(super) fn parse(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    match read {
        Ok(chain) if chain.is_empty() => Err("contains no PEM certificate".to_owned()),
        Ok(chain) => Ok(chain),
        Err(error) => Err(error.to_string()),
    }
}

/// Makes a certificate that is valid for a year, and returns it with its key as PEM text.
fn self_signed(address: IpAddr) -> Result<(rcgen::Certificate, String), ServeError> {
    let failed = |error: rcgen::Error| ServeError::Certificate(error.to_string());
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    if !address.is_unspecified() && !address.is_loopback() {
        names.push(address.to_string());
    }
    let mut params = CertificateParams::new(names).map_err(failed)?;
    let now = Timestamp::now();
    let name = format!("localhost@{}", now.as_second());
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let today = now.to_zoned(TimeZone::UTC).date();
    // A slow clock and time zones make a difference of at most a day.
    let days = [today.saturating_sub(1.day()), today.saturating_add(366.days())];
    let [before, after] = days.map(|day| {
        // Each part of a valid date is in range.
        let part = |number: i8| u8::try_from(number).unwrap_or(1);
        rcgen::date_time_ymd(i32::from(day.year()), part(day.month()), part(day.day()))
    });
    (params.not_before, params.not_after) = (before, after);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate().map_err(failed)?;
    Ok((params.self_signed(&key).map_err(failed)?, key.serialize_pem()))
}

fn write(
    (certificate, key): &(rcgen::Certificate, String),
    files: &(PathBuf, PathBuf),
) -> Result<(), ServeError> {
    if let Some(folder) = files.0.parent() {
        fs::create_dir_all(folder).map_err(|error| ServeError::file(folder, &error))?;
    }
    let new = |file: &Path, text: &str, mode: u32| {
        create(file, text, mode).map_err(|error| ServeError::file(file, &error))
    };
    new(&files.1, key, 0o600)?;
    new(&files.0, &certificate.pem(), 0o644)
}

/// Creates a file that only its owner can write, and with mode 600 only its owner can read.
fn create(file: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
    #[cfg(not(unix))]
    let _ = mode;
    options.open(file)?.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_certificate_is_read_again_and_half_of_a_pair_is_not() {
        let folder = crate::testing::Folder::new();
        let address = IpAddr::from([192, 0, 2, 1]);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let source = CertificateSource::Folder(folder.path(""));
        let serving = ServingCertificate::new(&source, address, provider).expect("made");
        let current = || serving.current.read().expect("not poisoned").cert.clone();
        let first = current();

        let (certificate, key) = self_signed(address).expect("made");
        fs::write(folder.path("kube-scheduler.crt"), certificate.pem()).expect("written");
        assert!(serving.reload().is_err(), "the key belongs to the previous certificate");
        assert_eq!(current(), first);
        fs::write(folder.path("kube-scheduler.key"), key).expect("written");
        serving.reload().expect("a pair");
        assert_eq!(current(), [certificate.der().clone()]);
    }
}
