//! Probes are answered while 1,000 hostile connections of each kind are open. `ci/floods.sh` prints the measurements.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::routing::{get, post};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::authentication::Authentication;
use super::authorization::Authorization;
use super::certificate::{CertificateSource, ServingCertificate};
use super::trust::Trust;
use super::{AnyClient, Gate, guarded, tls};
use crate::api::{Api, Connection, Limits};
use crate::process::serve::connections::{Bounds, serve};
use crate::process::serve::refusals::{Reason, Refusals};
use crate::testing::{provider, tls_client};

/// The longest time of a probe. It is a second on an idle machine; tests share one.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest time until the server is full.
const FILLING: Duration = Duration::from_secs(120);
/// Hostile clients that connect at the same time.
const AT_ONCE: usize = 64;
/// The address of probes and clients.
const LOCAL: [u8; 4] = [127, 0, 0, 1];
/// A further address of the loopback device, if it has one.
const OTHER: [u8; 4] = [127, 0, 0, if cfg!(target_os = "linux") { 2 } else { 1 }];
/// The only valid credentials.
const USER: &str = "Authorization: Bearer valid\r\n";
const PROBES: usize = 20;
const CONNECTIONS: usize = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The TLS handshake does not begin.
    SlowHandshake,
    /// The same, from one other address, and each client connects again as soon as it is disconnected.
    Reconnecting,
    /// The head of a request never ends.
    SlowHead,
    /// The body of a request never ends.
    SlowBody,
    /// A large answer of an open path is not read.
    UnreadAnswers,
    /// Each request has another bearer token, which is invalid.
    RandomTokens,
    /// Each request has another bearer token, whose review has no answer.
    SlowTokens,
    /// Each request has no credentials and another path.
    RandomPaths,
}

impl Kind {
    const ALL: [Kind; 8] = [
        Kind::SlowHandshake,
        Kind::Reconnecting,
        Kind::SlowHead,
        Kind::SlowBody,
        Kind::UnreadAnswers,
        Kind::RandomTokens,
        Kind::SlowTokens,
        Kind::RandomPaths,
    ];

    /// Whether the clients hold their connections as long as they can.
    fn stays_connected(self) -> bool {
        use Kind::{Reconnecting, SlowHandshake, SlowHead, UnreadAnswers};
        matches!(self, SlowHandshake | Reconnecting | SlowHead | UnreadAnswers)
    }

    fn request(self, number: usize) -> String {
        let get =
            |path: &str, header: &str| format!("GET {path} HTTP/1.1\r\nHost: test\r\n{header}\r\n");
        match self {
            Kind::SlowHandshake | Kind::Reconnecting => String::new(),
            Kind::SlowHead => "GET /livez HTTP/1.1\r\nHost: test\r\nX-Slow: ".to_owned(),
            Kind::SlowBody => {
                let header = "Content-Length: 1000000\r\nAuthorization: Bearer slow";
                format!("POST /livez HTTP/1.1\r\nHost: test\r\n{header}\r\n\r\n")
            }
            Kind::UnreadAnswers => get("/large", ""),
            Kind::RandomTokens => {
                get("/metrics", &format!("Authorization: Bearer random-{number}\r\n"))
            }
            Kind::SlowTokens => {
                get("/metrics", &format!("Authorization: Bearer slow-{number}\r\n"))
            }
            Kind::RandomPaths => get(&format!("/path-{number}"), ""),
        }
    }
}

/// A server with the settings of `portolan run`.
struct World {
    address: SocketAddr,
    client: Arc<ClientConfig>,
    refusals: Refusals,
    tasks: Vec<JoinHandle<()>>,
}

impl World {
    async fn start(bounds: Bounds) -> World {
        let (api_server, api) = api_server().await;
        let trust = Trust { clients: None, proxies: None };
        // Nothing is cached, so each request of the known user needs reviews.
        let authentication = Authentication::new(trust, Some(client(&api).await), Duration::ZERO);
        let paths = ["/livez", "/large"].map(str::to_owned);
        let no_time = (Duration::ZERO, Duration::ZERO);
        let refusals = Refusals::default();
        let gate = Gate {
            authentication: authentication.expect("random numbers"),
            authorization: Authorization::new(Some(client(&api).await), &paths, no_time),
            refusals: refusals.clone(),
        };
        let large = Bytes::from(vec![b'.'; 1 << 20]);
        let router = Router::new()
            .route("/livez", get(|| async { "ok" }))
            .route("/metrics", get(|| async { "metrics" }))
            .route("/large", get(|| async { large }));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let source = CertificateSource::SelfSigned;
        let certificate = ServingCertificate::new(&source, address.ip(), provider());
        let certificate = Arc::new(certificate.expect("made"));
        let current = certificate.current.read().expect("no panic").cert[0].clone();
        let client = tls_client(current, None);
        let clients = Arc::new(AnyClient(provider()));
        let acceptor = tls(provider(), Some(clients), certificate).expect("valid");
        let router = guarded(router, Arc::new(gate));
        let server = serve(listener, Some(acceptor), router, bounds, refusals.clone());
        let tasks = vec![api_server, tokio::spawn(server)];
        World { address, client, refusals, tasks }
    }

    /// Connects with a small buffer, so that an answer that is not read soon blocks.
    async fn connect(&self, from: [u8; 4]) -> std::io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((from, 0).into())?;
        socket.set_recv_buffer_size(4_096)?;
        socket.connect(self.address).await
    }

    async fn encrypt(&self, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from("localhost").expect("a name");
        TlsConnector::from(self.client.clone()).connect(name, stream).await
    }

    /// Sends a request on a new connection. Returns the answer, or as much of it as arrived.
    async fn answer(&self, path: &str, header: &str) -> String {
        let mut answer = Vec::new();
        let all = async {
            let mut stream = self.encrypt(self.connect(LOCAL).await?).await?;
            let request =
                format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{header}\r\n");
            stream.write_all(request.as_bytes()).await?;
            stream.read_to_end(&mut answer).await
        };
        // A server may close the connection without a `close_notify`.
        let _ = timeout(PATIENCE, all).await;
        String::from_utf8_lossy(&answer).into_owned()
    }

    async fn is_answered(&self, path: &str, header: &str) -> bool {
        self.answer(path, header).await.starts_with("HTTP/1.1 200")
    }

    /// Runs a hostile client until the server closes the connection.
    async fn attack(&self, kind: Kind, number: usize, connecting: &Semaphore) {
        let permit = connecting.acquire().await;
        if kind == Kind::Reconnecting {
            drop(permit);
            while let Ok(mut raw) = self.connect(OTHER).await {
                let _ = raw.read(&mut [0]).await;
            }
            return;
        }
        let Ok(mut raw) = self.connect(LOCAL).await else { return };
        if kind == Kind::SlowHandshake {
            drop(permit);
            let _ = raw.read(&mut [0]).await;
            return;
        }
        let Ok(mut stream) = self.encrypt(raw).await else { return };
        drop(permit);
        let _ = stream.write_all(kind.request(number).as_bytes()).await;
        match kind {
            Kind::SlowHead | Kind::SlowBody => {
                while stream.write_all(b"x").await.is_ok() && stream.flush().await.is_ok() {
                    sleep(Duration::from_secs(1)).await;
                }
            }
            Kind::UnreadAnswers => sleep(Duration::from_secs(3_600)).await,
            // Refused clients ask again.
            _ => {
                let mut buffer = [0; 4_096];
                while stream.read(&mut buffer).await.is_ok_and(|count| count > 0) {
                    sleep(Duration::from_secs(1)).await;
                    let _ = stream.write_all(kind.request(number).as_bytes()).await;
                }
            }
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// An API server that reviews. One token and its user are valid, and some reviews have no answer.
async fn api_server() -> (JoinHandle<()>, String) {
    let review = |body: String| async move {
        let mut review: Value = serde_json::from_str(&body).expect("a review");
        let token = review["spec"]["token"].as_str().unwrap_or_default().to_owned();
        if token.starts_with("slow") {
            std::future::pending::<()>().await;
        }
        // As slow as an API server.
        sleep(Duration::from_millis(20)).await;
        let user = json!({"username": "prometheus"});
        let is_allowed = review["spec"]["user"] == "prometheus";
        review["status"] = match review["kind"] == "TokenReview" {
            true if token == "valid" => json!({"authenticated": true, "user": user}),
            true => json!({"authenticated": false}),
            false => json!({"allowed": is_allowed}),
        };
        review.to_string()
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let router = Router::new().fallback(post(review));
    let server = async { axum::serve(listener, router).await.expect("served") };
    (tokio::spawn(server), url)
}

/// A client with the limits of [`Connection::delegated`].
async fn client(url: &str) -> Api {
    let burst = 400.try_into().expect("positive");
    let timeout = Duration::from_secs(10);
    let limits = Limits { in_flight: 64, qps: Some(200.0), burst, timeout, ..Limits::default() };
    Connection::unauthenticated(url).open(limits).await.expect("a client")
}

/// The resident memory of this process in MiB, or 0 if the system does not report it.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1_024
}

/// The number of hostile connections: 1,000, or as many as fit into the limit of open files, beside those of the server
/// and of other tests.
fn connections() -> usize {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let files = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    CONNECTIONS.min(files.unwrap_or(256).saturating_sub(200) / 2)
}

/// Probes the server while hostile clients connect, and afterwards. Returns the line of the table.
async fn flood(kind: Kind) -> String {
    let (count, before) = (connections(), resident());
    // Half of the clients find no place, also if few files can be open.
    let all = Bounds::default();
    let limit = all.connections.min(count / 2);
    let bounds =
        Bounds { connections: limit, reserve: limit * all.reserve / all.connections, ..all };
    let world = Arc::new(World::start(bounds).await);
    assert!(world.is_answered("/metrics", USER).await, "{kind:?}: before the flood");
    let (connecting, opened) = (Arc::new(Semaphore::new(AT_ONCE)), Arc::new(AtomicUsize::new(0)));
    let mut hostile = JoinSet::new();
    for number in 0..count {
        let (world, connecting, opened) = (world.clone(), connecting.clone(), opened.clone());
        hostile.spawn(async move {
            opened.fetch_add(1, Ordering::Relaxed);
            world.attack(kind, number, &connecting).await;
        });
    }
    let mut times = Vec::new();
    let mut last = 0;
    // Some probes follow the last connection. On a busy machine, it is accepted later.
    let start = Instant::now();
    let is_full =
        |world: &World| !kind.stays_connected() || world.refusals.of(Reason::Displaced) > 0;
    while times.len() < PROBES || last < PROBES / 2 || !is_full(&world) {
        assert!(start.elapsed() < FILLING, "{kind:?}: no connection was displaced");
        let start = Instant::now();
        assert!(world.is_answered("/livez", "").await, "{kind:?}: probe {}", times.len());
        times.push(start.elapsed());
        let is_open =
            opened.load(Ordering::Relaxed) == count && connecting.available_permits() == AT_ONCE;
        last += usize::from(is_open);
        sleep(Duration::from_millis(20)).await;
    }
    let start = Instant::now();
    assert!(world.is_answered("/metrics", USER).await, "{kind:?}: a user who is known");
    let known = start.elapsed();
    let (after, displaced) = (resident(), world.refusals.of(Reason::Displaced));
    hostile.shutdown().await;
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_secs_f64() * 1e3;
    let name = format!("{kind:?}");
    let reviews = [Reason::TokenReviews, Reason::AccessReviews];
    let reviews: u64 = reviews.into_iter().map(|reason| world.refusals.of(reason)).sum();
    format!(
        "{name:<15} {count:>11} {:>6} {:>7.1} {:>7.1} {:>10.1} {:>9} {reviews:>7} {before:>10} {after:>9}",
        times.len(),
        at(50),
        at(100),
        known.as_secs_f64() * 1e3,
        displaced,
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_cannot_wait_for_a_review_are_refused_and_probes_are_not() {
    let world = Arc::new(World::start(Bounds::default()).await);
    assert!(world.is_answered("/metrics", USER).await);
    let mut waiting = JoinSet::new();
    for number in 0..64 {
        let world = world.clone();
        let header = format!("Authorization: Bearer slow-{number}\r\n");
        waiting.spawn(async move {
            // All places are taken sooner or later, although the request below takes one at first.
            while world.answer("/metrics", &header).await.starts_with("HTTP/1.1 429") {
                sleep(Duration::from_millis(20)).await;
            }
        });
    }
    let stranger = "Authorization: Bearer random\r\n";
    let mut refused = String::new();
    for _ in 0..200 {
        refused = world.answer("/metrics", stranger).await;
        if refused.starts_with("HTTP/1.1 429") {
            break;
        }
        sleep(Duration::from_millis(20)).await;
    }
    assert!(refused.starts_with("HTTP/1.1 429"), "{refused}");
    assert!(refused.contains("retry-after: 1\r\n"), "{refused}");
    assert!(refused.contains("\"reason\":\"TooManyRequests\""), "{refused}");
    assert!(world.refusals.of(Reason::TokenReviews) > 0);
    assert!(world.is_answered("/livez", stranger).await, "a probe");
    assert!(world.is_answered("/metrics", USER).await, "a token that was valid");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_are_answered_during_floods() {
    let start = Instant::now();
    println!(
        "flood           connections probes  p50 ms  max ms metrics ms displaced     429 before MiB after MiB"
    );
    for kind in Kind::ALL {
        println!("{}", flood(kind).await);
    }
    println!("in {:.1} s; the memory includes the clients'", start.elapsed().as_secs_f64());
}
