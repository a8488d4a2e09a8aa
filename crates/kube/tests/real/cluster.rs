//! An etcd and a kube-apiserver of the test's own, on free ports of 127.0.0.1.
//!
//! Requests are authenticated by tokens and authorized by RBAC. There is no controller manager, so nothing but the API
//! server and the test writes. All processes are killed, and all files removed, when the value is dropped.

use std::cell::OnceCell;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use http::{Method, Request};
use http_body_util::BodyExt;
use kube::client::Body;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

/// The variable that names the directory of the programs.
const ASSETS: &str = "KUBEBUILDER_ASSETS";

/// The longest time for a server to start, and for any condition to become true.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The user of the scheduler: the service account of `deploy/manifests`.
pub(crate) const ACCOUNT: &str = "system:serviceaccount:kube-system:portolan";

/// A user of the cluster, by its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum User {
    /// Has all permissions.
    Admin,
    /// The service account of `deploy/manifests`.
    Scheduler,
    /// Has only the permissions of every authenticated user.
    Nobody,
}

impl User {
    fn token(self) -> &'static str {
        match self {
            User::Admin => "token-of-admin",
            User::Scheduler => "token-of-scheduler",
            User::Nobody => "token-of-nobody",
        }
    }
}

/// A process that is killed when it is dropped.
struct Process(Child);

impl Process {
    fn has_ended(&mut self) -> bool {
        self.0.try_wait().is_ok_and(|status| status.is_some())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A directory that is removed when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("portolan-real-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a directory for temporary files");
        Folder(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).expect("written");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // FailureReport is harmless: the system removes temporary files later.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A running control plane.
pub(crate) struct Cluster {
    runtime: Runtime,
    admin: OnceCell<kube::Client>,
    /// The certificate of the authority that signed the server's.
    authority: Vec<u8>,
    // Dropped before etcd, and both before the folder.
    apiserver: Option<Process>,
    _etcd: Process,
    assets: PathBuf,
    etcd_port: u16,
    port: u16,
    folder: Folder,
}

/// Returns the directory of the programs, or prints that the test is skipped.
fn assets() -> Option<PathBuf> {
    let skipped = |why: String| {
        println!("SKIPPED: {why}");
        None
    };
    let Some(assets) = std::env::var_os(ASSETS) else {
        return skipped(format!("{ASSETS} does not name a directory with etcd and kube-apiserver"));
    };
    let assets = PathBuf::from(assets);
    match ["etcd", "kube-apiserver"].into_iter().find(|program| !assets.join(program).is_file()) {
        Some(program) => skipped(format!("{} has no {program}", assets.display())),
        None => Some(assets),
    }
}

impl Cluster {
    /// Starts a control plane and waits until it is ready. Returns `None`, and prints why, if the programs are missing.
    pub(crate) fn start() -> Option<Cluster> {
        let assets = assets()?;
        let runtime =
            Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        let folder = Folder::new();
        let authority = write_files(&folder);
        let [etcd_port, peer_port, port] = free_ports();
        let etcd = start_etcd(&assets, &folder, etcd_port, peer_port);
        let (apiserver, admin) = (None, OnceCell::new());
        let mut cluster = Cluster {
            runtime,
            admin,
            authority,
            apiserver,
            _etcd: etcd,
            assets,
            etcd_port,
            port,
            folder,
        };
        cluster.start_apiserver();
        Some(cluster)
    }

    fn start_apiserver(&mut self) {
        let file = |name: &str| self.folder.0.join(name).display().to_string();
        let options = [
            ("etcd-servers", format!("http://127.0.0.1:{}", self.etcd_port)),
            ("secure-port", self.port.to_string()),
            ("bind-address", "127.0.0.1".to_owned()),
            ("advertise-address", "127.0.0.1".to_owned()),
            ("endpoint-reconciler-type", "none".to_owned()),
            ("tls-cert-file", file("server.crt")),
            ("tls-private-key-file", file("server.key")),
            ("token-auth-file", file("tokens.csv")),
            ("authorization-mode", "RBAC".to_owned()),
            ("service-account-issuer", "https://kubernetes.default".to_owned()),
            ("service-account-key-file", file("accounts.pub")),
            ("service-account-signing-key-file", file("accounts.key")),
            ("service-cluster-ip-range", "10.0.0.0/24".to_owned()),
            ("audit-policy-file", file("policy.yaml")),
            ("audit-log-path", file("audit.log")),
        ];
        let mut command = Command::new(self.assets.join("kube-apiserver"));
        command.args(options.map(|(name, value)| format!("--{name}={value}")));
        self.apiserver = Some(spawn(command, &self.folder, "kube-apiserver.log"));
        let deadline = Instant::now() + PATIENCE;
        while !self.is_ready() {
            let ended = self.apiserver.as_mut().is_none_or(Process::has_ended);
            if ended || Instant::now() > deadline {
                let log = fs::read_to_string(self.folder.0.join("kube-apiserver.log"));
                panic!("kube-apiserver is not ready: {}", log.unwrap_or_default());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Whether the server is ready and has created the objects of every cluster.
    fn is_ready(&self) -> bool {
        let ok = |path: &str| self.get(path).0 == 200;
        let namespaces = ["default", "kube-system", "kube-public", "kube-node-lease"];
        ok("/readyz") && namespaces.iter().all(|name| ok(&format!("/api/v1/namespaces/{name}")))
    }

    /// Kills the API server. No request is answered until [`Cluster::revive`].
    pub(crate) fn kill(&mut self) {
        self.apiserver = None;
    }

    /// Starts the API server again on its port, with the same objects as before, and waits until it is ready.
    pub(crate) fn revive(&mut self) {
        self.start_apiserver();
    }

    /// Removes all former versions of objects from etcd, as its compaction does every 5 minutes.
    pub(crate) fn compact(&self) {
        let etcd = kube::Config::new(
            format!("http://127.0.0.1:{}", self.etcd_port).parse().expect("a URL"),
        );
        let _within = self.runtime.enter();
        let etcd = kube::Client::try_from(etcd).expect("a client");
        let post = |path: &str, body: Value| {
            let body = Body::from(body.to_string().into_bytes());
            let request = Request::post(path).body(body).expect("a request");
            self.runtime.block_on(async {
                let answer = etcd.send(request).await.expect("etcd answers");
                assert!(answer.status().is_success(), "{}", answer.status());
                let bytes = answer.into_body().collect().await.expect("a body").to_bytes();
                serde_json::from_slice::<Value>(&bytes).expect("JSON")
            })
        };
        let found = post("/v3/kv/range", json!({"key": "YQ=="}));
        let revision = found["header"]["revision"].clone();
        post("/v3/kv/compaction", json!({"revision": revision, "physical": true}));
    }

    /// The runtime of the clients.
    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// The configuration of a client of this user, or of none.
    pub(crate) fn config(&self, user: Option<User>) -> kube::Config {
        let url = format!("https://127.0.0.1:{}", self.port);
        let mut config = kube::Config::new(url.parse().expect("a URL"));
        config.root_cert = Some(vec![self.authority.clone()]);
        config.auth_info.token = user.map(|user| user.token().to_owned().into());
        config
    }

    /// Writes a kubeconfig of this user, and returns its path.
    pub(crate) fn kubeconfig(&self, user: User) -> PathBuf {
        let token = user.token();
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "real",
            "clusters": [{"name": "real", "cluster": {
                "server": format!("https://127.0.0.1:{}", self.port),
                "certificate-authority": self.folder.0.join("ca.crt"),
            }}],
            "users": [{"name": "user", "user": {"token": token}}],
            "contexts": [{"name": "real", "context": {"cluster": "real", "user": "user"}}],
        });
        self.folder.write(&format!("{token}.kubeconfig"), &config.to_string())
    }

    /// Sends a request of the administrator. The code is 0 if there is no answer.
    pub(crate) fn send(&self, method: Method, path: &str, body: &Value) -> (u16, Value) {
        let content_type = match method {
            Method::PATCH => "application/strategic-merge-patch+json",
            _ => "application/json",
        };
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = Request::builder().method(method).uri(path);
        let request = request.header("content-type", content_type).body(Body::from(body));
        self.exchange(request.expect("a request"))
    }

    fn exchange(&self, request: Request<Body>) -> (u16, Value) {
        let client = self.admin.get_or_init(|| {
            let _within = self.runtime.enter();
            let mut config = self.config(Some(User::Admin));
            config.default_retry = false;
            kube::Client::try_from(config).expect("a configuration")
        });
        self.runtime.block_on(async {
            let Ok(answer) = client.send(request).await else { return (0, Value::Null) };
            let code = answer.status().as_u16();
            let Ok(body) = answer.into_body().collect().await else { return (0, Value::Null) };
            let body = body.to_bytes();
            let text = || String::from_utf8_lossy(&body).into_owned().into();
            (code, serde_json::from_slice(&body).unwrap_or_else(|_| text()))
        })
    }

    /// Creates the object of a YAML document as the administrator.
    pub(crate) fn apply_yaml(&self, collection: &str, document: &str) {
        let request = Request::post(collection).header("content-type", "application/yaml");
        let request = request.body(Body::from(document.as_bytes().to_vec())).expect("a request");
        let (code, body) = self.exchange(request);
        assert_eq!(code, 201, "{collection}: {body}");
    }

    /// Reads as the administrator.
    pub(crate) fn get(&self, path: &str) -> (u16, Value) {
        self.send(Method::GET, path, &Value::Null)
    }

    /// Creates an object as the administrator.
    pub(crate) fn create(&self, collection: &str, object: &Value) -> Value {
        let (code, body) = self.send(Method::POST, collection, object);
        assert_eq!(code, 201, "{collection}: {body}");
        body
    }

    /// Returns the audit events of completed requests and of started watches so far.
    pub(crate) fn audited(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.folder.0.join("audit.log")).expect("an audit log");
        // The last line may be incomplete.
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

/// Writes certificates, keys, tokens and the audit policy. Returns the certificate of the authority.
fn write_files(folder: &Folder) -> Vec<u8> {
    let authority_key = KeyPair::generate().expect("a key");
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = authority.self_signed(&authority_key).expect("a certificate");
    folder.write("ca.crt", &certificate.pem());
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate().expect("a key");
    let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
    let server = CertificateParams::new(names).expect("names");
    let server = server.signed_by(&key, &issuer).expect("a certificate");
    folder.write("server.crt", &server.pem());
    folder.write("server.key", &key.serialize_pem());
    let accounts = KeyPair::generate().expect("a key");
    folder.write("accounts.key", &accounts.serialize_pem());
    folder.write("accounts.pub", &accounts.public_key_pem());
    let [admin, scheduler, nobody] = [User::Admin, User::Scheduler, User::Nobody].map(User::token);
    let groups = "system:serviceaccounts,system:serviceaccounts:kube-system";
    folder.write(
        "tokens.csv",
        &format!(
            "{admin},admin,1,\"system:masters\"\n{scheduler},{ACCOUNT},2,\"{groups}\"\n{nobody},nobody,3,\"\"\n"
        ),
    );
    let policy = json!({
        "apiVersion": "audit.k8s.io/v1", "kind": "Policy",
        "omitStages": ["RequestReceived"], "rules": [{"level": "Metadata"}],
    });
    folder.write("policy.yaml", &policy.to_string());
    certificate.der().to_vec()
}

fn start_etcd(assets: &Path, folder: &Folder, port: u16, peer_port: u16) -> Process {
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    let options = [
        ("data-dir", folder.0.join("etcd").display().to_string()),
        ("name", "etcd".to_owned()),
        ("listen-client-urls", url(port)),
        ("advertise-client-urls", url(port)),
        ("listen-peer-urls", url(peer_port)),
        ("initial-advertise-peer-urls", url(peer_port)),
        ("initial-cluster", format!("etcd={}", url(peer_port))),
        ("log-level", "warn".to_owned()),
    ];
    let mut command = Command::new(assets.join("etcd"));
    command.args(options.map(|(name, value)| format!("--{name}={value}")));
    // The data need not survive a crash of the machine.
    command.arg("--unsafe-no-fsync");
    spawn(command, folder, "etcd.log")
}

/// Starts a program that writes to a file in the folder.
fn spawn(mut command: Command, folder: &Folder, log: &str) -> Process {
    let log = File::options().create(true).append(true).open(folder.0.join(log)).expect("a file");
    let errors = log.try_clone().expect("a file");
    command.stdin(Stdio::null()).stdout(log).stderr(errors);
    let program = command.get_program().to_owned();
    Process(command.spawn().unwrap_or_else(|error| panic!("{}: {error}", program.display())))
}

/// Returns free ports.
fn free_ports<const N: usize>() -> [u16; N] {
    // All are bound at once, so that they differ.
    let bound = [(); N].map(|()| TcpListener::bind(("127.0.0.1", 0)).expect("a free port"));
    bound.map(|listener| listener.local_addr().expect("bound").port())
}
