//! HTTPS with authentication and authorization by an API server.

use std::fs;

use portolan_apiserver::{ApiServer, Effect, Fault, Options, User};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::*;
use crate::process::LiveConfig;
use crate::testing::{Authority, Folder, api, tls_client};
use crate::write::Fence;

/// A cluster, and a scheduler that serves HTTPS.
struct World {
    server: ApiServer,
    served: Served,
    scheduler: LiveScheduler,
    /// The file of the certificate that the scheduler gives itself.
    certificate: PathBuf,
    _folder: Folder,
}

impl World {
    async fn start(configure: impl FnOnce(&ApiServer, &mut SecureConfig)) -> World {
        World::try_start(configure).await.expect("served")
    }

    async fn try_start(
        configure: impl FnOnce(&ApiServer, &mut SecureConfig),
    ) -> Result<World, ServeError> {
        let user = |name: &str, allowed| User {
            token: format!("token-of-{name}"),
            name: name.to_owned(),
            allowed,
        };
        let users = vec![user("prometheus", true), user("eva", false)];
        let server = ApiServer::start(Options { users, ..Options::default() }).expect("a server");
        let api = api(&server.url());
        let config = LiveConfig::default();
        let scheduler =
            LiveScheduler::start(api.clone(), Fence::opened(), config).expect("started");
        let (mut secure, own) = (SecureConfig::new(([127, 0, 0, 1], 0).into()), Folder::new());
        secure.certificate = CertificateSource::Folder(own.path(""));
        (secure.authentication, secure.authorization) = (Some(api.clone()), Some(api));
        configure(&server, &mut secure);
        let certificate = match &secure.certificate {
            CertificateSource::Folder(folder) => folder.join("kube-scheduler.crt"),
            _ => PathBuf::new(),
        };
        let served = Served::secure(secure, &scheduler).await?;
        Ok(World { server, served, scheduler, certificate, _folder: own })
    }

    async fn get(&self, path: &str, headers: &str) -> Answer {
        get(self.address(), &self.tls(None), path, headers).await
    }

    /// A client's side of TLS that trusts the certificate that the scheduler gave itself.
    fn tls(&self, own: Option<&Authority>) -> Arc<ClientConfig> {
        tls_client(CertificateDer::from_pem_file(&self.certificate).expect("a certificate"), own)
    }

    fn address(&self) -> SocketAddr {
        self.served.address().tcp().expect("TCP")
    }

    /// Counts the reviews of tokens and of accesses.
    fn reviews(&self) -> (usize, usize) {
        let reviews = self.server.reviews();
        let tokens = reviews.iter().filter(|review| review["kind"] == "TokenReview").count();
        (tokens, reviews.len() - tokens)
    }
}

#[derive(Debug)]
struct Answer {
    code: u16,
    head: String,
    body: String,
}

impl Answer {
    /// The error of `metav1.Status`, whose code must be that of the answer.
    fn message(&self) -> String {
        let status: Value = serde_json::from_str(&self.body).expect("a Status");
        assert_eq!((&status["kind"], &status["code"]), (&json!("Status"), &json!(self.code)));
        assert!(self.head.contains("content-type: application/json"), "{}", self.head);
        status["message"].as_str().expect("a message").to_owned()
    }
}

async fn get(address: SocketAddr, tls: &Arc<ClientConfig>, path: &str, headers: &str) -> Answer {
    let stream = TcpStream::connect(address).await.expect("the server listens");
    let name = ServerName::try_from("localhost").expect("a name");
    let connector = TlsConnector::from(tls.clone());
    let mut stream = connector.connect(name, stream).await.expect("a handshake");
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut text = String::new();
    // A server may close the connection without a `close_notify`.
    let _ = stream.read_to_string(&mut text).await;
    let (head, body) = text.split_once("\r\n\r\n").expect("an answer");
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a code");
    Answer { code, head: head.to_lowercase(), body: body.to_owned() }
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_are_open_and_metrics_need_a_permission() {
    let world = World::start(|_, _| {}).await;
    for path in ["/livez", "/healthz"] {
        assert_eq!(world.get(path, "").await.code, 200, "{path}");
    }
    assert_eq!(world.reviews(), (0, 0));

    let anonymous = world.get("/metrics", "").await;
    assert_eq!(anonymous.code, 403);
    let what = "forbidden: User \"system:anonymous\" cannot get path \"/metrics\"";
    assert_eq!(anonymous.message(), what);
    let denied = world.get("/metrics", &bearer("token-of-eva")).await;
    assert_eq!(denied.code, 403);
    assert_eq!(denied.message(), "forbidden: User \"eva\" cannot get path \"/metrics\"");
    let unknown = world.get("/livez", &bearer("stolen")).await;
    assert_eq!((unknown.code, unknown.message().as_str()), (401, "Unauthorized"));
    let absent = world.get("/debug/pprof/a&b", "").await;
    assert_eq!(absent.code, 403);
    assert!(absent.message().ends_with("\"/debug/pprof/a&amp;b\""), "{absent:?}");

    let allowed = world.get("/metrics", &bearer("token-of-prometheus")).await;
    assert_eq!(allowed.code, 200);
    assert!(allowed.body.contains("scheduler_pending_pods"), "{}", allowed.body);
    assert!(allowed.head.contains("cache-control: no-cache, private"), "{}", allowed.head);
    assert_eq!(world.get("/configz", &bearer("token-of-prometheus")).await.code, 200);
    assert_eq!(world.get("/none", &bearer("token-of-prometheus")).await.code, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_of_the_api_server_are_cached() {
    let world = World::start(|_, config| config.unauthorized_ttl = Duration::ZERO).await;
    let (token, denied) = (bearer("token-of-prometheus"), bearer("token-of-eva"));
    for _ in 0..3 {
        assert_eq!(world.get("/metrics", &token).await.code, 200);
    }
    assert_eq!(world.reviews(), (1, 1));
    for n in 1..=3 {
        assert_eq!(world.get("/metrics", &denied).await.code, 403);
        assert_eq!(world.reviews(), (2, 1 + n));
    }
    // The rejection of a token is never cached, because the answer may change.
    for n in 3..=5 {
        assert_eq!(world.get("/metrics", &bearer("stolen")).await.code, 401);
        assert_eq!(world.reviews().0, n);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_api_server_neither_grants_nor_denies_access() {
    let world = World::start(|_, _| {}).await;
    let failing = |resource: &str| Fault::new(Effect::conflict()).verb("create").resource(resource);
    world.server.set_faults(0, vec![failing("subjectaccessreviews")]);
    let failed = world.get("/metrics", &bearer("token-of-prometheus")).await;
    assert_eq!(failed.code, 500);
    assert!(failed.body.starts_with("Internal Server Error: \"/metrics\""), "{}", failed.body);
    assert_eq!(world.get("/livez", "").await.code, 200);
    world.server.set_faults(0, vec![failing("tokenreviews")]);
    assert_eq!(world.get("/metrics", &bearer("token-of-eva")).await.code, 401);
    // A transient failure is retried.
    let once = Fault::new(Effect::internal_error()).verb("create").resource("subjectaccessreviews");
    world.server.set_faults(0, vec![once.limit(1)]);
    assert_eq!(world.get("/metrics", &bearer("token-of-prometheus")).await.code, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_api_server_to_ask_only_open_paths_are_served() {
    let world = World::start(|_, config| {
        (config.authentication, config.authorization) = (None, None);
        config.always_allow_paths = vec!["/metrics".to_owned()];
    })
    .await;
    assert_eq!(world.get("/metrics", "").await.code, 200);
    assert_eq!(world.get("/metrics", &bearer("token-of-prometheus")).await.code, 200);
    let refused = world.get("/livez", &bearer("token-of-prometheus")).await;
    assert_eq!(refused.code, 403);
    assert!(refused.message().contains("\"system:anonymous\""), "{refused:?}");
    assert_eq!(world.reviews(), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_certificate_authenticates_its_subject() {
    let (folder, clients, servers) = (Folder::new(), Authority::new(), Authority::new());
    let file = |name: &str, text: &str| {
        fs::write(folder.path(name), text).expect("written");
        folder.path(name)
    };
    let world = World::start(|_, config| {
        let (certificate, key) = servers.issue(&["localhost"], "scheduler", &[]);
        config.certificate = CertificateSource::Files {
            certificate: file("tls.crt", &certificate.pem()),
            key: file("tls.key", &key.serialize_pem()),
        };
        config.client_ca = Some(file("ca.crt", &clients.0.pem()));
        config.lookup = Lookup::Skip;
    })
    .await;
    let (at, trusted) = (world.address(), servers.0.der());
    let privileged = get(at, &tls_client(trusted.clone(), Some(&clients)), "/metrics", "").await;
    assert_eq!(privileged.code, 200, "{privileged:?}");
    assert_eq!(world.reviews(), (0, 0), "system:masters may do anything");
    let stranger = tls_client(trusted.clone(), Some(&Authority::new()));
    assert_eq!(get(at, &stranger, "/livez", "").await.code, 401);
    // Another way to authenticate counts.
    let token = bearer("token-of-prometheus");
    assert_eq!(get(at, &stranger, "/metrics", &token).await.code, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_authorities_of_the_cluster_are_looked_up() {
    let (clients, proxies) = (Authority::new(), Authority::new());
    let publish = |server: &ApiServer| {
        let data = json!({
            "client-ca-file": clients.0.pem(),
            "requestheader-allowed-names": "[\"front-proxy\"]",
            "requestheader-client-ca-file": proxies.0.pem(),
            "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
            "requestheader-group-headers": "[\"X-Remote-Group\"]",
            "requestheader-username-headers": "[\"X-Remote-User\"]",
        });
        let metadata =
            json!({"name": "extension-apiserver-authentication", "namespace": "kube-system"});
        let map =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
        server.create(&map).expect("created");
    };
    let world = World::start(|server, config| {
        publish(server);
        config.lookup = Lookup::Strict;
    })
    .await;
    let at = world.address();
    assert_eq!(get(at, &world.tls(Some(&clients)), "/metrics", "").await.code, 200);
    let proxy = world.tls(Some(&proxies));
    let user = |name: &str| format!("X-Remote-User: {name}\r\nX-Remote-Group: team\r\n");
    assert_eq!(get(at, &proxy, "/metrics", &user("prometheus")).await.code, 200);
    let spec = world.server.reviews().pop().expect("a review")["spec"].clone();
    assert_eq!(spec["user"], "prometheus");
    assert_eq!(spec["groups"], json!(["team", "system:authenticated"]));
    assert_eq!(spec["nonResourceAttributes"], json!({"path": "/metrics", "verb": "get"}));
    // Names are UTF-8.
    assert_eq!(get(at, &proxy, "/metrics", &user("jürgen")).await.code, 403);
    let spec = world.server.reviews().pop().expect("a review")["spec"].clone();
    assert_eq!(spec["user"], "jürgen");
    let denied = get(at, &proxy, "/metrics", &user("eva")).await;
    assert_eq!(denied.message(), "forbidden: User \"eva\" cannot get path \"/metrics\"");
    // Headers count only if a front proxy sent them.
    assert_eq!(world.get("/metrics", &user("prometheus")).await.code, 403);
    // A proxy is not a user: its certificate is not signed by the clients' authority.
    assert_eq!(get(at, &proxy, "/livez", "").await.code, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lookup_that_fails_is_tolerated_unless_it_must_succeed() {
    let failing = |server: &ApiServer| {
        let fault = Fault::new(Effect::conflict()).verb("get").resource("configmaps");
        server.set_faults(0, vec![fault]);
    };
    let world = World::start(|server, _| failing(server)).await;
    assert_eq!(world.get("/livez", "").await.code, 200);
    let strict = World::try_start(|server, config| {
        failing(server);
        config.lookup = Lookup::Strict;
    });
    assert!(matches!(strict.await.err(), Some(ServeError::Lookup(_))));
    // It is not a failure if the cluster publishes nothing.
    let world = World::start(|_, config| config.lookup = Lookup::Strict).await;
    assert_eq!(world.get("/livez", "").await.code, 200);
    world.scheduler.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_without_a_certificate_gets_one() {
    let folder = Folder::new();
    let start = || {
        World::start(|_, config| {
            config.certificate = CertificateSource::Folder(folder.path(""));
        })
    };
    let world = start().await;
    assert_eq!(world.get("/livez", "").await.code, 200);
    let files = || ["crt", "key"].map(|end| folder.path(&format!("kube-scheduler.{end}")));
    let texts = || files().map(|file| fs::read_to_string(file).expect("written"));
    let before = texts();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::metadata(&files()[1]).expect("a key").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    drop(world);
    // The next start uses the same.
    start().await;
    assert_eq!(texts(), before);
    fs::remove_file(&files()[1]).expect("removed");
    let world = World::try_start(|_, config| {
        config.certificate = CertificateSource::Folder(folder.path(""));
    });
    let error = world.await.err().expect("half of a pair").to_string();
    assert!(error.contains("kube-scheduler.key"), "{error}");
}
