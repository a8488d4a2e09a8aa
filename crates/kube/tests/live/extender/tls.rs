//! TLS between a scheduler and its extender.

use std::io::{BufRead, BufReader, Read, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::server::WebPkiClientVerifier;

use super::stub::extender;
use super::world::outcome;
use crate::support::{self, Process, limits, runtime};

/// A certificate for this name, with its key, both as PEM.
struct Identity {
    certificate: rcgen::Certificate,
    key: rcgen::KeyPair,
}

impl Identity {
    fn new(name: &str) -> Identity {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
        Identity { certificate: made.cert, key: made.signing_key }
    }

    fn pem(&self) -> (String, String) {
        let encode = |pem: String| STANDARD.encode(pem);
        (encode(self.certificate.pem()), encode(self.key.serialize_pem()))
    }
}

/// Starts a service over TLS that passes node n2, and requires the client's certificate.
fn encrypted(server: &Identity, client: &Identity) -> SocketAddr {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(client.certificate.der().clone()).expect("a root");
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
    let key = PrivateKeyDer::Pkcs8(server.key.serialize_der().into());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_client_cert_verifier(verifier.build().expect("a verifier"))
        .with_single_cert(vec![server.certificate.der().clone()], key)
        .expect("a configuration");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let config = Arc::new(config);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let Ok(connection) = rustls::ServerConnection::new(config.clone()) else { continue };
            let mut stream = rustls::StreamOwned::new(connection, stream);
            let mut read = BufReader::new(&mut stream);
            let mut line = String::new();
            // Fails if the handshake does.
            while read.read_line(&mut line).is_ok_and(|count| count > 2) {
                line.clear();
            }
            if stream.conn.is_handshaking() {
                // Unread bytes would reset the connection before the client has read the alert.
                let _ = stream.sock.read_to_end(&mut Vec::new());
                continue;
            }
            let body = r#"{"NodeNames":["n2"]}"#;
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            let _ = stream.write_all((head + body).as_bytes());
        }
    });
    address
}

#[test]
fn services_are_verified_as_configured() {
    let (server, client) = (Identity::new("gpu.example.com"), Identity::new("scheduler"));
    let address = encrypted(&server, &client);
    let ((ca, _), (certificate, key)) = (server.pem(), client.pem());
    let outcome = |tls: &str, further: &str| {
        let fields = format!(
            "filterVerb: filter, nodeCacheCapable: true, {further} tlsConfig: {{certData: {certificate}, \
             keyData: {key}, {tls}}}"
        );
        outcome(&extender(address, &fields).replace("http://", "https://"))
    };
    let named = "serverName: gpu.example.com";
    assert_eq!(outcome(&format!("caData: {ca}, {named}"), "").as_deref(), Ok("n2"));
    assert_eq!(outcome("insecure: true", "").as_deref(), Ok("n2"));
    assert_eq!(outcome("", "enableHTTPS: true,").as_deref(), Ok("n2"));
    // The certificate is not that of 127.0.0.1, that of another authority, or not known.
    let (other, _) = Identity::new("gpu.example.com").pem();
    for tls in [format!("caData: {ca}"), format!("caData: {other}, {named}"), named.to_owned()] {
        let (_, message) = outcome(&tls, "").expect_err("not verified");
        assert!(message.contains("certificate"), "{message}");
    }
    // The client has no certificate.
    let fields = format!("filterVerb: filter, tlsConfig: {{caData: {ca}, {named}}}");
    let anonymous = extender(address, &fields).replace("http://", "https://");
    // With TLS 1.3 the refusal follows the handshake. If the connection is closed before the request is sent, the error
    // says only that.
    let refused = || self::outcome(&anonymous).expect_err("not verified").1;
    assert!((0..20).any(|_| refused().contains("CertificateRequired")), "{}", refused());
}

#[test]
fn a_private_key_is_not_shown_with_the_configuration() {
    let (runtime, server) = (runtime(), support::server());
    let (certificate, key) = Identity::new("scheduler").pem();
    let any = SocketAddr::from(([127, 0, 0, 1], 1));
    let shown = |fields: &str| {
        let (limits, text) = (limits(Duration::from_secs(1)), extender(any, fields));
        let process = Process::configured(&runtime, &server, "scheduler", 1, limits, &text);
        let shown = process.live.configuration().to_string();
        process.fence.close();
        runtime.block_on(process.live.stop(Duration::ZERO));
        shown
    };
    let secret = shown(&format!("tlsConfig: {{certData: {certificate}, keyData: {key}}}"));
    assert!(!secret.contains(&key) && secret.contains("use keyFile"), "{secret}");
    assert!(shown("filterVerb: filter").contains("filterVerb: filter"));
}
