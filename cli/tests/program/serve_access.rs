//! `portolan serve` with TLS and tokens: nothing is answered without a valid credential.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use portolan_apiserver::{ApiServer, Options, User};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};

use crate::common::{file, portolan};
use crate::serve::{Server, assert_matches, cluster};

const TOKEN: &str = "correct-horse-battery";

/// The time for a file to be read again, with a busy machine in mind.
const PATIENCE: Duration = Duration::from_secs(30);

/// The certificate of a server, in files.
struct Certificate {
    arguments: Vec<String>,
    trusted: Arc<ClientConfig>,
}

fn certificate(test: &str) -> Certificate {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("made");
    let certificate = file(test, "tls.crt", made.cert.pem().as_bytes());
    let key = file(test, "tls.key", made.signing_key.serialize_pem().as_bytes());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(made.cert.der().to_vec())).expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let arguments = ["--tls-cert-file", &certificate, "--tls-private-key-file", &key];
    Certificate { arguments: arguments.map(str::to_owned).into(), trusted: Arc::new(config) }
}

#[derive(Debug)]
struct Answer {
    code: u16,
    head: String,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find_map(|(found, value)| found.eq_ignore_ascii_case(name).then_some(value))
    }

    /// The name and the value of the cookie that is set.
    fn cookie(&self) -> String {
        let set = self.header("set-cookie").expect("a cookie");
        set.split(';').next().expect("a cookie").to_owned()
    }

    fn problem(&self) -> String {
        let problem: Value = serde_json::from_str(&self.body).expect("a problem document");
        assert_matches("Problem", &problem);
        assert_eq!(problem["status"], self.code);
        problem["detail"].as_str().expect("a text").to_owned()
    }
}

fn exchange(mut stream: impl Read + Write, request: &str) -> Answer {
    stream.write_all(request.as_bytes()).expect("sent");
    let mut text = Vec::new();
    // A server may close the connection without a `close_notify`.
    let _ = stream.read_to_end(&mut text);
    let text = String::from_utf8(text).expect("UTF-8");
    let (head, body) = text.split_once("\r\n\r\n").expect("an answer");
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a code");
    Answer { code, head: head.to_owned(), body: body.to_owned() }
}

/// A server, and how its client connects.
struct Client<'a> {
    server: &'a Server,
    tls: Option<&'a Arc<ClientConfig>>,
}

impl Client<'_> {
    fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        let port = self.server.address.rsplit(':').next().expect("a port");
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\nContent-Type: \
             application/json\r\nContent-Length: {}\r\n{headers}\r\n{body}",
            body.len()
        );
        let stream = TcpStream::connect(format!("127.0.0.1:{port}")).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        match self.tls {
            None => exchange(stream, &request),
            Some(tls) => {
                let name = ServerName::try_from("localhost").expect("a name");
                let connection = ClientConnection::new(tls.clone(), name).expect("a client");
                exchange(StreamOwned::new(connection, stream), &request)
            }
        }
    }

    fn get(&self, path: &str, headers: &str) -> Answer {
        self.ask("GET", path, headers, "")
    }

    fn log_in(&self, token: &str) -> Answer {
        self.ask("POST", "/api/v1/login", "", &json!({ "token": token }).to_string())
    }

    /// Waits until a request is answered with this status.
    fn until(&self, code: u16, headers: &str) {
        let end = Instant::now() + PATIENCE;
        while self.get("/api/v1/summary", headers).code != code {
            assert!(Instant::now() < end, "no status {code}");
            thread::sleep(Duration::from_millis(100));
        }
    }
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

fn with_token(test: &str) -> (String, Server) {
    let token = file(test, "token", format!("{TOKEN}\n").as_bytes());
    let server = Server::start(&["--cluster", &cluster(test), "--token-file", &token]);
    (token, server)
}

#[test]
fn every_route_needs_a_token_except_logins_probes_and_the_files_of_the_page() {
    let (_, server) = with_token("routes");
    let client = Client { server: &server, tls: None };
    let document = client.ask("GET", "/api/v1/openapi.json", &bearer(TOKEN), "");
    let document: Value = serde_json::from_str(&document.body).expect("JSON");
    let paths = document["paths"].as_object().expect("paths");
    let mut refused = 0;
    for (path, operations) in paths {
        let is_open = path == "/healthz" || path == "/api/v1/login";
        let path = path.replace("{name}", "n1").replace("{id}", "x");
        for method in operations.as_object().expect("operations").keys() {
            let method = method.to_uppercase();
            for headers in
                ["", &bearer("wrong-horse-battery"), &bearer(""), "Cookie: portolan-0=x\r\n"]
            {
                let answer = client.ask(&method, &path, headers, "{}");
                if is_open {
                    assert_ne!(answer.code, 401, "{method} {path}: {answer:?}");
                    continue;
                }
                assert_eq!(answer.code, 401, "{method} {path} {headers:?}: {answer:?}");
                assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
                assert!(!answer.problem().is_empty());
                refused += 1;
            }
            if !is_open {
                let answer = client.ask(&method, &path, "Sec-Fetch-Site: cross-site\r\n", "{}");
                assert_eq!(answer.code, 403, "{method} {path}");
            }
        }
    }
    assert!(refused >= 4 * 12, "{refused}");
    assert_eq!(client.get("/api/v1/none", "").code, 401, "unknown paths are not revealed");
    for open in ["/", "/page/main.js", "/favicon.ico", "/healthz"] {
        assert_eq!(client.get(open, "").code, 200, "{open}");
    }
    assert_eq!(client.get("/api/v1/summary", &bearer(TOKEN)).code, 200);
}

#[test]
fn a_token_is_exchanged_for_a_cookie_until_the_logout() {
    let (_, server) = with_token("cookies");
    let client = Client { server: &server, tls: None };
    let state = |headers: &str| -> Value {
        let answer = client.get("/api/v1/login", headers);
        let answer = serde_json::from_str(&answer.body).expect("JSON");
        assert_matches("Login", &answer);
        answer
    };
    assert_eq!(state(""), json!({"is_admitted": false, "expires": null}));
    let wrong = client.log_in("wrong-horse-battery");
    assert_eq!((wrong.code, wrong.header("set-cookie")), (401, None));
    assert_eq!(client.ask("POST", "/api/v1/login", "", "{}").code, 422);
    let foreign = "Sec-Fetch-Site: cross-site\r\n";
    let body = json!({ "token": TOKEN }).to_string();
    assert_eq!(client.ask("POST", "/api/v1/login", foreign, &body).code, 403);

    let answer = client.log_in(TOKEN);
    assert_eq!(answer.code, 204);
    let set = answer.header("set-cookie").expect("a cookie").to_owned();
    assert!(set.ends_with("; Path=/; HttpOnly; SameSite=Strict; Max-Age=43200"), "{set}");
    let id = answer.cookie().split_once('=').expect("a value").1.to_owned();
    assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    assert_ne!(client.log_in(TOKEN).cookie(), answer.cookie(), "each login has an id of its own");

    let cookie = format!("Cookie: other=1; {}\r\n", answer.cookie());
    assert_eq!(client.get("/api/v1/summary", &cookie).code, 200);
    let drain = r#"{"drain": ["n1"]}"#;
    assert_eq!(client.ask("POST", "/api/v1/what-if", &cookie, drain).code, 200);
    let both = format!("{cookie}{foreign}");
    assert_eq!(client.ask("POST", "/api/v1/what-if", &both, drain).code, 403);
    assert!(state(&cookie)["expires"].is_string());
    assert_eq!(state(&bearer(TOKEN)), json!({"is_admitted": true, "expires": null}));

    let out = client.ask("DELETE", "/api/v1/login", &cookie, "");
    assert_eq!(out.code, 204);
    assert!(out.header("set-cookie").expect("a cookie").ends_with("; Max-Age=0"), "{out:?}");
    let ended = client.get("/api/v1/summary", &cookie);
    assert_eq!((ended.code, &*ended.problem()), (401, "the login has ended"));
}

#[test]
fn a_replaced_token_ends_logins_and_streams() {
    let (token, server) = with_token("replaced");
    let client = Client { server: &server, tls: None };
    let cookie = format!("Cookie: {}\r\n", client.log_in(TOKEN).cookie());
    let mut stream = TcpStream::connect(&server.address).expect("connected");
    let request = "GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
    let events = format!("{request}{cookie}\r\n");
    stream.write_all(events.as_bytes()).expect("sent");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    let mut lines = BufReader::new(stream).lines().map(|line| line.expect("no time-out"));
    // The reading, and that there is no failure.
    for _ in 0..2 {
        assert!(lines.any(|line| line.starts_with("data:")), "the first events");
    }

    let other = "another-horse-battery";
    std::fs::write(&token, other).expect("written");
    client.until(200, &bearer(other));
    for old in [&bearer(TOKEN), &cookie] {
        assert_eq!(client.get("/api/v1/summary", old).code, 401);
    }
    // The stream is kept alive by comments, and the first of them ends it, and with it the connection.
    let end = Instant::now() + PATIENCE;
    for line in lines {
        assert!(!line.starts_with("data:"), "{line}");
        assert!(Instant::now() < end, "the stream does not end");
    }

    for invalid in ["too short", "two words of a token"] {
        std::fs::write(&token, invalid).expect("written");
        client.until(401, &bearer(other));
        assert_eq!(client.log_in(invalid).code, 401);
        std::fs::write(&token, other).expect("written");
        client.until(200, &bearer(other));
    }
    // A pipe has no token, and does not block the server.
    std::fs::remove_file(&token).expect("removed");
    assert!(std::process::Command::new("mkfifo").arg(&token).status().expect("mkfifo").success());
    client.until(401, &bearer(other));
    std::fs::remove_file(&token).expect("removed");
    std::fs::write(&token, other).expect("written");
    client.until(200, &bearer(other));
}

#[test]
fn an_address_on_a_network_needs_encryption_and_authentication() {
    let tls = certificate("needs");
    let token = file("needs", "token", TOKEN.as_bytes());
    let short = file("needs", "short", b"0123456789");
    let tls: Vec<&str> = tls.arguments.iter().map(String::as_str).collect();
    let exposed = "needs --tls-cert-file and --tls-private-key-file, and --token-file or \
                   --authentication-kubeconfig";
    for (listen, arguments, what) in [
        ("0.0.0.0:0", vec![], exposed),
        ("0.0.0.0:0", vec!["--token-file", &token], exposed),
        ("[::]:0", tls.clone(), exposed),
        ("192.0.2.1:8090", tls.clone(), exposed),
        ("0.0.0.0:0", [&tls[..], &["--token-file", &short]].concat(), "at least 16 characters"),
        ("0.0.0.0:0", [&tls[..], &["--token-file", "/none"]].concat(), "/none: "),
        ("127.0.0.1:0", vec!["--tls-cert-file", &token], "--tls-private-key-file"),
        (
            "127.0.0.1:0",
            vec!["--tls-cert-file", &token, "--tls-private-key-file", &token],
            "contains no PEM certificate",
        ),
        (
            "127.0.0.1:0",
            vec!["--token-file", &token, "--authentication-kubeconfig", "a"],
            "cannot be used with",
        ),
        ("unix:/tmp/socket", tls.clone(), "a socket is not encrypted"),
    ] {
        let refused = portolan(&[&["serve", "--listen", listen], &arguments[..]].concat());
        assert_eq!(refused.code, 2, "{listen} {arguments:?}");
        assert!(refused.err.contains(what), "{listen} {arguments:?}: {}", refused.err);
    }
}

#[test]
fn an_address_on_a_network_is_served_with_tls_to_holders_of_the_token() {
    let tls = certificate("network");
    let token = file("network", "token", TOKEN.as_bytes());
    let mut arguments: Vec<&str> = tls.arguments.iter().map(String::as_str).collect();
    arguments.extend(["--token-file", &token]);
    let server = Server::at("0.0.0.0:0", &arguments);
    assert!(server.line.starts_with("https://"), "{}", server.line);
    let client = Client { server: &server, tls: Some(&tls.trusted) };
    assert_eq!(client.get("/", "").code, 200);
    assert_eq!(client.get("/api/v1/summary", "").code, 401);
    assert_eq!(client.get("/api/v1/summary", &bearer(TOKEN)).code, 200);
    let answer = client.log_in(TOKEN);
    let set = answer.header("set-cookie").expect("a cookie");
    assert!(set.starts_with("__Host-portolan-0=") && set.contains("; Secure"), "{set}");
    let cookie = format!("Cookie: {}\r\n", answer.cookie());
    assert_eq!(client.get("/api/v1/summary", &cookie).code, 200);

    let port = server.address.rsplit(':').next().expect("a port");
    let mut plain = TcpStream::connect(format!("127.0.0.1:{port}")).expect("connected");
    plain.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
}

#[test]
fn a_loopback_address_can_have_a_certificate_alone() {
    let tls = certificate("alone");
    let arguments: Vec<&str> = tls.arguments.iter().map(String::as_str).collect();
    let server = Server::start(&arguments);
    let client = Client { server: &server, tls: Some(&tls.trusted) };
    assert_eq!(client.get("/api/v1/summary", "").code, 200);
    let state: Value = serde_json::from_str(&client.get("/api/v1/login", "").body).expect("JSON");
    assert_eq!(state, json!({"is_admitted": true, "expires": null}));
}

#[test]
fn an_api_server_reviews_tokens_and_accesses() {
    let user = |name: &str, allowed| User {
        token: format!("token-of-{name}"),
        name: name.to_owned(),
        allowed,
    };
    let users = vec![user("ada", true), user("eva", false)];
    let api = ApiServer::start(Options { users, ..Options::default() }).expect("a server");
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": api.url()}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    });
    let kubeconfig = file("reviews", "kubeconfig", kubeconfig.to_string().as_bytes());
    let flags =
        ["--authentication-kubeconfig", &kubeconfig, "--authorization-kubeconfig", &kubeconfig];
    let server = Server::start(&[&["--cluster", &cluster("reviews")], &flags[..]].concat());
    let client = Client { server: &server, tls: None };
    let summary = |headers: &str| client.get("/api/v1/summary", headers);
    assert_eq!(summary("").code, 401);
    assert_eq!(summary(&bearer("token-of-nobody")).code, 401);
    let refused = summary(&bearer("token-of-eva"));
    assert_eq!(refused.code, 403);
    let why = "user \"eva\" cannot get path \"/portolan/api/v1/summary\"";
    assert_eq!(refused.problem(), why);
    assert_eq!(client.log_in("token-of-eva").code, 403);
    assert_eq!(summary(&bearer("token-of-ada")).code, 200);
    let cookie = format!("Cookie: {}\r\n", client.log_in("token-of-ada").cookie());
    assert_eq!(summary(&cookie).code, 200);
    let reviewed = api.reviews();
    let asks = |review: &Value| {
        review["spec"]["user"] == "ada"
            && review["spec"]["nonResourceAttributes"]
                == json!({"path": "/portolan/api/v1/login", "verb": "get"})
    };
    assert!(reviewed.iter().any(asks), "{reviewed:?}");
    // The tokens expire: known answers are kept for 10 seconds.
    api.set_users(Vec::new());
    client.until(401, &cookie);
    client.until(401, &bearer("token-of-ada"));
}
