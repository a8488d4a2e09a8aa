//! Exec plugins and replaced certificates, against servers on sockets.

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::api::{Api, Connection, Limits};
use crate::testing::{Authority, Folder, config, provider};

/// The longest time for which a test waits.
const PATIENCE_OF_TESTS: Duration = Duration::from_secs(60);

/// Reads the head of a request, and answers with a status and an empty JSON object.
async fn answer(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    status: impl Fn(&str) -> u16,
) -> bool {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return false,
        }
    }
    let status = status(&String::from_utf8_lossy(&head));
    let text = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}"
    );
    stream.write_all(text.as_bytes()).await.is_ok()
}

/// A server that accepts the tokens of this list, and its address.
async fn token_server(accepted: Arc<Mutex<Vec<String>>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let accepted = accepted.clone();
            tokio::spawn(async move {
                let status = |head: &str| {
                    let is_accepted =
                        |token: &String| head.contains(&format!("Bearer {token}\r\n"));
                    if accepted.lock().expect("no panic").iter().any(is_accepted) {
                        200
                    } else {
                        401
                    }
                };
                while answer(&mut stream, status).await {}
            });
        }
    });
    format!("http://{address}")
}

/// A kubeconfig with a plugin: a script of `sh`.
fn kubeconfig(folder: &Folder, server: &str, script: &str) -> Connection {
    let path = folder.path("config");
    let script = serde_json::to_string(script).expect("JSON");
    let text = format!(
        r#"{{"apiVersion": "v1", "kind": "Config", "current-context": "a",
        "contexts": [{{"name": "a", "context": {{"cluster": "a", "user": "a"}}}}],
        "clusters": [{{"name": "a", "cluster": {{"server": "{server}"}}}}],
        "users": [{{"name": "a", "user": {{"exec": {{
            "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", {script}],
            "env": [{{"name": "GREETING", "value": "hello"}}], "interactiveMode": "Never",
            "installHint": "install it"}}}}}}]}}"#
    );
    fs::write(&path, text).expect("written");
    Connection { kubeconfig: Some(path), ..Connection::default() }
}

/// A script that counts its runs in a file, and prints a token with their number.
fn counting(folder: &Folder, expires: &str) -> String {
    let runs = folder.path("runs");
    let runs = runs.display();
    let credential = format!(
        r#"{{\"apiVersion\": \"client.authentication.k8s.io/v1\", \"kind\": \"ExecCredential\", \"status\": {{\"token\": \"t$n\"{expires}}}}}"#
    );
    format!("echo run >> '{runs}'; n=$(wc -l < '{runs}' | tr -d ' '); echo \"{credential}\"")
}

/// A plugin that is a script of `sh`.
fn plugin(script: &str, timeout: Duration) -> Plugin {
    let exec = serde_json::json!({"command": "sh", "args": ["-c", script]});
    Plugin { exec: serde_json::from_value(exec).expect("valid"), timeouts: [timeout; 2] }
}

fn runs(folder: &Folder) -> usize {
    fs::read_to_string(folder.path("runs")).unwrap_or_default().lines().count()
}

async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let waits = async {
        while !holds().await {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE_OF_TESTS, waits).await.expect("in time");
}

#[tokio::test]
async fn a_plugin_runs_once_for_many_requests_and_again_when_its_token_is_refused() {
    let (folder, accepted) = (Folder::new(), Arc::new(Mutex::new(vec!["t1".to_owned()])));
    let server = token_server(accepted.clone()).await;
    // The token is about to expire, as those of some plugins always are.
    let soon = Timestamp::now() + Duration::from_secs(50);
    let expires = format!(r#", \"expirationTimestamp\": \"{soon}\""#);
    let connection = kubeconfig(&folder, &server, &counting(&folder, &expires));
    let api = connection.open(Limits::default()).await.expect("open");
    for _ in 0..20 {
        api.get("/api").await.expect("accepted");
    }
    assert_eq!(runs(&folder), 1);
    *accepted.lock().expect("no panic") = vec!["t2".to_owned()];
    until(async || api.get("/api").await.is_ok()).await;
    // Many requests were refused meanwhile.
    sleep(PAUSE + Duration::from_secs(1)).await;
    assert_eq!(runs(&folder), 2);
}

#[tokio::test]
async fn a_plugin_runs_again_when_its_token_expires() {
    let folder = Folder::new();
    let server = token_server(Arc::default()).await;
    let soon = Timestamp::now() + Duration::from_millis(50);
    let script = counting(&folder, &format!(r#", \"expirationTimestamp\": \"{soon}\""#));
    let begun = Instant::now();
    let api = kubeconfig(&folder, &server, &script).open(Limits::default()).await.expect("open");
    until(async || runs(&folder) >= 2).await;
    assert!(begun.elapsed() >= PAUSE, "a token that is expired already makes no hot loop");
    drop(api);
}

#[tokio::test]
async fn a_client_without_an_opened_connection_refuses_a_plugin() {
    let mut config = config("http://127.0.0.1:9");
    config.auth_info.exec = serde_json::from_value(serde_json::json!({"command": "x"})).ok();
    let error = Api::new(config, Limits::default()).expect_err("refused").to_string();
    assert!(error.contains("only Connection::open runs"), "{error}");
}

#[tokio::test]
async fn a_plugin_that_fails_is_named_and_its_output_is_not() {
    let folder = Folder::new();
    for (script, expected) in [
        ("echo s3cret; exit 3", "exec plugin sh: it failed (exit status: 3): install it"),
        ("echo '{s3cret: ['", "exec plugin sh: it printed no ExecCredential: install it"),
        ("echo '{\"status\": {}}'", "neither a token nor a certificate"),
        ("echo '{\"status\": {\"token\": \"\"}}'", "neither a token nor a certificate"),
        ("echo '{\"status\": {\"clientKeyData\": \"s3cret\"}}'", "a certificate or a key alone"),
        ("echo '{\"status\": {\"token\": \"s3cret\\u000ax\"}}'", "the token has a line break"),
        (
            "echo '{\"status\": {\"token\": \"s3cret\", \"expirationTimestamp\": \"s3cret\"}}'",
            "not a time",
        ),
        ("yes s3cret", "exec plugin sh: it "),
        // Only the beginning of the output is read.
        (
            "head -c 2000000 /dev/zero | tr '\\0' ' '; echo '{\"status\": {\"token\": \"s3cret\"}}'",
            "exec plugin sh: it ",
        ),
        ("test \"$GREETING\" = hello && echo s3cret >&2 && exit 4", "exit status: 4"),
        (
            "echo \"$KUBERNETES_EXEC_INFO\" | grep -q '\"interactive\":false' && exit 5",
            "exit status: 5",
        ),
    ] {
        let connection = kubeconfig(&folder, "http://127.0.0.1:9", script);
        let error = connection.open(Limits::default()).await.expect_err(script).to_string();
        assert!(error.contains(expected) && !error.contains("s3cret"), "{script}: {error}");
    }
}

#[tokio::test]
async fn a_plugin_that_hangs_is_ended() {
    let plugin = plugin("exec sleep 1000", Duration::from_millis(50));
    let error = plugin.run().await.err().expect("an error");
    assert_eq!(error, "exec plugin sh: it did not end within 0.05 s");
}

#[tokio::test]
async fn a_token_file_may_end_with_a_line_break_and_is_read_again() {
    let (folder, accepted) = (Folder::new(), Arc::new(Mutex::new(vec!["t1".to_owned()])));
    let server = token_server(accepted.clone()).await;
    let file = folder.path("token");
    fs::write(&file, "t1\n").expect("written");
    let mut config = config(&server);
    config.auth_info.token_file = Some(file.display().to_string());
    let client = Client::with(config.clone(), None, Duration::from_millis(10)).expect("a client");
    let is_accepted = async || {
        let request = http::Request::get("/api").body(kube::client::Body::empty()).expect("valid");
        client.get().send(request).await.is_ok_and(|answer| answer.status() == 200)
    };
    assert!(is_accepted().await);
    *accepted.lock().expect("no panic") = vec!["t2".to_owned()];
    fs::write(&file, "t2\n").expect("written");
    until(is_accepted).await;
    fs::write(&file, "t\n2").expect("written");
    let error = Client::with(config, None, CHECK_PERIOD).err().expect("an error").to_string();
    assert!(error.contains("the token has a line break"), "{error}");
}

/// Writes a new certificate, and its key.
fn write_pair(issuer: &Authority, paths: [&Path; 2]) {
    let (certificate, key) = issuer.issue(&["client"], "client", &[]);
    // The other file is replaced later, as by most tools: the pair does not match in between.
    fs::write(paths[0], certificate.pem()).expect("written");
    std::thread::sleep(Duration::from_millis(30));
    fs::write(paths[1], key.serialize_pem()).expect("written");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_is_replaced_is_used_for_the_next_requests() {
    let folder = Folder::new();
    let issuer = Authority::new();
    let mut roots = RootCertStore::empty();
    roots.add(issuer.0.der().clone()).expect("added");
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
    let (own, key) = issuer.issue(&["localhost", "127.0.0.1"], "server", &[]);
    let serving = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_client_cert_verifier(verifier.build().expect("a verifier"))
        .with_single_cert(vec![own.der().clone()], key.into())
        .expect("a configuration");
    let acceptor = TlsAcceptor::from(Arc::new(serving));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("an address");
    let seen: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let certificates = seen.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, seen) = (acceptor.clone(), seen.clone());
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let peer =
                    stream.get_ref().1.peer_certificates().expect("a certificate")[0].to_vec();
                let status = |_: &str| {
                    seen.lock().expect("no panic").push(peer.clone());
                    200
                };
                while answer(&mut stream, status).await {}
            });
        }
    });
    let (certificate, key) = (folder.path("client.crt"), folder.path("client.key"));
    write_pair(&issuer, [&certificate, &key]);
    let mut config = config(&format!("https://127.0.0.1:{}", address.port()));
    config.root_cert = Some(vec![issuer.0.der().to_vec()]);
    config.auth_info.client_certificate = Some(certificate.display().to_string());
    config.auth_info.client_key = Some(key.display().to_string());
    let client = Client::with(config, None, Duration::from_millis(10)).expect("a client");
    let get = async || {
        let request = http::Request::get("/api").body(kube::client::Body::empty()).expect("valid");
        let is_answered = client.get().send(request).await.is_ok();
        assert!(is_answered);
        certificates.lock().expect("no panic").last().cloned()
    };
    let first = get().await;
    assert_eq!(get().await, first);
    write_pair(&issuer, [&certificate, &key]);
    until(async || get().await != first).await;
    // Files that are gone change nothing.
    fs::remove_file(&certificate).expect("removed");
    sleep(Duration::from_millis(50)).await;
    assert!(get().await.is_some());
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_an_error() {
    let server = token_server(Arc::new(Mutex::new(vec![String::new()]))).await;
    let limits = Limits { body: 1, ..Limits::default() };
    let mut with_token = config(&server);
    with_token.auth_info.token = Some(String::new().into());
    let error =
        Api::new(with_token, limits).expect("a client").get("/api").await.expect_err("too large");
    assert!(error.to_string().contains("more than 1 bytes"), "{error}");
}

#[tokio::test]
async fn a_plugin_that_hangs_does_not_run_on() {
    let folder = Folder::new();
    let pid = folder.path("pid");
    let script = format!("echo $$ > '{}'; exec sleep 1000", pid.display());
    assert!(plugin(&script, Duration::from_secs(2)).run().await.is_err());
    let pid = fs::read_to_string(pid).expect("begun").trim().to_owned();
    let is_running = || {
        // A zombie has ended.
        let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !status.is_empty() && !status.contains(") Z ")
    };
    until(async || !is_running()).await;
}

#[tokio::test]
async fn a_plugin_gets_the_cluster_and_the_environment_that_the_kubeconfig_names() {
    let plugin = |is_given: bool, script: &str| {
        let mut exec: ExecConfig = serde_json::from_value(serde_json::json!({
            "command": "sh", "args": ["-c", script], "provideClusterInfo": is_given,
            "env": [{"name": "KEPT", "value": "a"}, {"name": "DROPPED", "value": "b"}],
        }))
        .expect("valid");
        exec.drop_env = Some(vec!["DROPPED".to_owned()]);
        exec.cluster = Some(kube::config::ExecAuthCluster {
            server: Some("https://s3rver".to_owned()),
            ..Default::default()
        });
        Plugin { exec, timeouts: [PATIENCE_OF_TESTS; 2] }
    };
    let grep = "echo \"$KUBERNETES_EXEC_INFO\" | grep -q s3rver";
    let credential = "echo '{\"status\": {\"token\": \"t\"}}'";
    assert!(plugin(true, &format!("{grep} && {credential}")).run().await.is_ok());
    assert!(plugin(false, &format!("{grep} || {credential}")).run().await.is_ok());
    let script = format!("[ \"$KEPT$DROPPED\" = a ] && {credential}");
    assert!(plugin(false, &script).run().await.is_ok());
}

#[test]
fn a_certificate_of_a_plugin_is_used_with_its_key() {
    let apply = |text: &str, auth: &mut AuthInfo| {
        serde_json::from_str::<Credential>(text).expect("valid").apply(auth);
    };
    let mut auth = AuthInfo::default();
    apply(r#"{"token": "t", "clientCertificateData": "one"}"#, &mut auth);
    assert!(auth.token.is_some() && auth.client_certificate_data.is_none());
    apply(r#"{"clientCertificateData": "one", "clientKeyData": "two"}"#, &mut auth);
    assert_eq!(auth.client_certificate_data, Some(BASE64_STANDARD.encode("one")));
    assert!(auth.client_key_data.is_some());
}

#[tokio::test]
async fn a_refusal_of_credentials_that_were_renewed_meanwhile_is_ignored() {
    let new = || {
        let config = config("http://127.0.0.1:9");
        kube::Client::try_from(config).expect("a client")
    };
    let client =
        Client { current: Arc::new(ArcSwap::from_pointee(new())), refused: Arc::default() };
    let old = client.get();
    client.current.store(Arc::new(new()));
    client.refused(&old);
    assert!(client.refused.notified().now_or_never().is_none());
    client.refused(&client.get());
    assert!(client.refused.notified().now_or_never().is_some());
}

#[tokio::test]
async fn credentials_are_renewed_a_tenth_of_their_time_early() {
    let expires = Timestamp::now() + Duration::from_secs(1_000);
    let status = format!(r#"{{"token": "t", "expirationTimestamp": "{expires}"}}"#);
    let script = format!("echo '{{\"status\": {status}}}'");
    let found = plugin(&script, PATIENCE_OF_TESTS).run().await.expect("credentials");
    let left = found.lasts(Timestamp::now()).expect("they expire").as_secs();
    assert!((800..=900).contains(&left), "{left} s");
}

#[tokio::test]
async fn a_plugin_that_fails_is_not_run_again_without_a_pause() {
    let folder = Folder::new();
    let script = format!("echo run >> '{}'; exit 1", folder.path("runs").display());
    let plugin = plugin(&script, PATIENCE_OF_TESTS);
    let (token, renew_at) = (Some("t".to_owned()), Some(Timestamp::now()));
    let found = Credential { token, renew_at, ..Credential::default() };
    let config = config("http://127.0.0.1:9");
    let every = Duration::from_millis(200);
    let _client = Client::with(config, Some((plugin, found)), every).expect("a client");
    sleep(5 * every).await;
    assert!((1..=6).contains(&runs(&folder)), "{} runs", runs(&folder));
}
