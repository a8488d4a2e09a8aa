//! Accepts connections, and limits their number and their time.
//!
//! Each connection is a task, from its TLS handshake to its end. If there are too many, one without an accepted request
//! is closed for a new one: the oldest of the client with the most such connections. Accepted requests protect their
//! connections, except for a reserve. A client that is not authenticated therefore delays no probe, whatever it sends
//! or does not read.

use std::convert::Infallible;
use std::io::ErrorKind;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use http::Request;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_rustls::TlsAcceptor;

use super::connection_state::{ConnectionState, Connections};
use super::host_check::local_only;
use super::listen::{Listener, Stream};
use super::refusals::{Reason, Refusals};
use super::timed::{Arriving, Timed};
use crate::seldom::warn_seldom;

/// The certificates that a client has presented, its own first. They are not verified yet, except that the client has
/// proved to hold the key of the first one.
#[derive(Clone)]
pub(in crate::process) struct Peer(pub(in crate::process) Arc<[CertificateDer<'static>]>);

/// Limits of connections.
#[derive(Clone, Copy)]
pub(in crate::process) struct Bounds {
    /// The maximum number of connections.
    pub(in crate::process) connections: usize,
    /// The number of these that accepted requests do not keep.
    pub(in crate::process) reserve: usize,
    /// The time from the acceptance to the end of the handshake.
    pub(in crate::process) handshake: Duration,
    /// The time until the whole head of the next request has arrived: from the acceptance for the first request,
    /// handshake included, and from the end of the previous answer for further ones.
    pub(in crate::process) head: Duration,
    /// The time from the moment at which the body of a request is awaited to its end. The extender's own limit is
    /// lower, and has an answer.
    pub(in crate::process) body: Duration,
    /// The time that a client has to read an answer, from the moment at which it is first behind.
    pub(in crate::process) write: Duration,
    /// The size of the largest head, and of the answers that are buffered beyond one, in bytes.
    pub(in crate::process) buffer: usize,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            connections: 512,
            reserve: 64,
            handshake: Duration::from_secs(10),
            // kube-scheduler's `ReadHeaderTimeout`.
            head: Duration::from_secs(32),
            body: Duration::from_secs(32),
            write: Duration::from_secs(30),
            buffer: 64 << 10,
        }
    }
}

/// Answers connections until the future is dropped. Accepted requests in progress are still answered. With encryption,
/// requests have a [`ConnectInfo`] with a [`Peer`], and an extension `Arc<ConnectionState>`: a handler that accepts
/// a request protects the connection. Without encryption, every request is accepted when all of it has arrived, and a
/// request to a loopback address must name the local host. A Unix socket is served without encryption.
pub(in crate::process) async fn serve(
    listener: impl Into<Listener>,
    tls: Option<TlsAcceptor>,
    router: Router,
    bounds: Bounds,
    refusals: Refusals,
) {
    let listener = listener.into();
    let mut connections = Connections::new(bounds.connections, bounds.reserve);
    let checked = local_only(router.clone());
    loop {
        let (stream, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // The client may have gone already.
                if error.kind() != ErrorKind::ConnectionAborted {
                    warn_seldom!(%error, "a connection was not accepted");
                    // The process may be out of file descriptors, which is temporary.
                    sleep(Duration::from_millis(100)).await;
                }
                continue;
            }
        };
        if let Some(reason) = connections.displace_one() {
            refusals.count(reason);
            if reason == Reason::Full {
                warn_seldom!("a connection was refused: all others have accepted requests");
                continue;
            }
            warn_seldom!("too many connections: one without an accepted request was closed");
        }
        // Also if all addresses are served.
        let is_checked = tls.is_none() && stream.is_loopback();
        let state = connections.state();
        let server = Server {
            tls: tls.clone(),
            router: if is_checked { checked.clone() } else { router.clone() },
            bounds,
            refusals: refusals.clone(),
            state: state.clone(),
            ending: connections.ending(),
        };
        let accepted = Instant::now();
        let task = match stream {
            Stream::Tcp(stream) => tokio::spawn(server.connection(stream, accepted)),
            #[cfg(unix)]
            Stream::Unix(stream) => tokio::spawn(server.answer(stream, None, accepted)),
        };
        connections.add(task.abort_handle(), from, state);
    }
}

/// The server's side of a connection.
struct Server {
    tls: Option<TlsAcceptor>,
    router: Router,
    bounds: Bounds,
    refusals: Refusals,
    state: Arc<ConnectionState>,
    /// Fails at the end of the server.
    ending: watch::Receiver<()>,
}

impl Server {
    async fn connection(self, stream: TcpStream, accepted: Instant) {
        // A failure only delays small answers.
        let _ = stream.set_nodelay(true);
        let Some(tls) = &self.tls else { return self.answer(stream, None, accepted).await };
        match timeout_at(accepted + self.bounds.handshake, tls.accept(stream)).await {
            Ok(Ok(stream)) => {
                let (_, session) = stream.get_ref();
                let peer = Peer(session.peer_certificates().unwrap_or_default().into());
                self.answer(stream, Some(peer), accepted).await;
            }
            Ok(Err(error)) => {
                self.refusals.count(Reason::Handshake);
                tracing::debug!(%error, "TLS handshake failed");
            }
            Err(_) => {
                self.refusals.count(Reason::Handshake);
                tracing::debug!("TLS handshake not in time");
            }
        }
    }

    async fn answer(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        peer: Option<Peer>,
        accepted: Instant,
    ) {
        let Server { router, bounds, refusals, state, mut ending, .. } = self;
        let router = TowerToHyperService::new(router);
        let service = service_fn(|request: Request<Incoming>| {
            let in_flight = state.begin();
            let plain = peer.is_none().then(|| state.clone());
            let mut request =
                request.map(|body| Arriving::new(body, bounds.body, plain, refusals.clone()));
            if let Some(peer) = &peer {
                request.extensions_mut().insert(ConnectInfo(peer.clone()));
                request.extensions_mut().insert(state.clone());
            }
            let answer = router.call(request);
            async move {
                let answer = answer.await?;
                // The request ends when the server has taken all of the body, which owns this.
                Ok::<_, Infallible>(answer.map(|body: Body| {
                    body.map_err(move |error| {
                        let _ = &in_flight;
                        error
                    })
                }))
            }
        });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(bounds.head);
        builder.max_buf_size(bounds.buffer);
        let stream = Timed::new(stream, bounds.write, refusals.clone());
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
        let mut connection = pin!(async {
            tokio::select! {
                ended = connection.as_mut() => return ended,
                _ = ending.changed() => {}
            }
            // A request in progress is answered, and no further one.
            connection.as_mut().graceful_shutdown();
            connection.await
        });
        // hyper measures the time of a head from the first byte that it awaits, after the handshake.
        let ended = match timeout_at(accepted + bounds.head, &mut connection).await {
            Ok(ended) => ended,
            Err(_) if state.has_begun() => connection.await,
            Err(_) => {
                refusals.count(Reason::Head);
                tracing::debug!("the head of the first request not in time");
                return;
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::sync::Notify;
    use tokio::task::JoinHandle;
    use tokio::time::timeout;

    const LONG: Duration = Duration::from_secs(20);

    struct World {
        address: SocketAddr,
        server: JoinHandle<()>,
        /// A request of `/slow` has arrived.
        arrived: Arc<Notify>,
        /// Lets one request of `/slow` go on.
        go: Arc<Notify>,
        refusals: Refusals,
    }

    impl World {
        async fn start(connections: usize, head: Duration, tls: Option<TlsAcceptor>) -> World {
            let bounds =
                Bounds { connections, reserve: 0, handshake: LONG, head, ..Bounds::default() };
            World::with(bounds, tls).await
        }

        async fn with(bounds: Bounds, tls: Option<TlsAcceptor>) -> World {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            let address = listener.local_addr().expect("an address");
            let go = Arc::new(Notify::new());
            let arrived = Arc::new(Notify::new());
            let gates = (arrived.clone(), go.clone());
            let slow = move || {
                let (arrived, go) = gates.clone();
                async move {
                    arrived.notify_one();
                    go.notified().await;
                    "slow"
                }
            };
            let upload = slow.clone();
            let upload = |body: axum::body::Bytes| async move {
                assert_eq!(body, "body");
                upload().await
            };
            let large = || async { ".".repeat(32 << 20) + "end" };
            let router = Router::new()
                .route("/", get(|| async { "ok" }))
                .route("/slow", get(slow).post(upload))
                .route("/large", get(large));
            let refusals = Refusals::default();
            let server = tokio::spawn(serve(listener, tls, router, bounds, refusals.clone()));
            World { address, server, arrived, go, refusals }
        }

        async fn connect(&self) -> TcpStream {
            TcpStream::connect(self.address).await.expect("connected")
        }

        /// Sends a request on a new connection.
        async fn ask(&self, path: &str) -> TcpStream {
            let mut stream = self.connect().await;
            ask(&mut stream, path).await;
            stream
        }
    }

    async fn ask(stream: &mut TcpStream, path: &str) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("sent");
    }

    /// Reads until the text ends so, or the connection ends.
    async fn read(stream: &mut TcpStream, end: &str) -> bool {
        let mut text = Vec::new();
        while !text.ends_with(end.as_bytes()) {
            match timeout(LONG, stream.read_buf(&mut text)).await.expect("in time") {
                Ok(1..) => {}
                _ => return false,
            }
        }
        true
    }

    /// Waits until the server has closed the connection.
    async fn closed(stream: &mut TcpStream) -> bool {
        let mut rest = Vec::new();
        timeout(LONG, stream.read_to_end(&mut rest)).await.is_ok()
    }

    #[tokio::test]
    async fn a_connection_without_a_whole_head_is_closed_in_time() {
        let world = World::start(8, Duration::from_millis(300), None).await;
        let mut silent = world.connect().await;
        let mut partial = world.connect().await;
        partial.write_all(b"GET / HTTP/1.1\r\nHost:").await.expect("sent");
        let mut idle = world.ask("/").await;
        assert!(read(&mut idle, "ok").await);
        // The connection is kept for a further request.
        ask(&mut idle, "/").await;
        assert!(read(&mut idle, "ok").await);
        let mut slow = world.ask("/slow").await;
        for stream in [&mut silent, &mut partial, &mut idle] {
            assert!(closed(stream).await);
        }
        // The answer may take longer than the head.
        sleep(Duration::from_millis(400)).await;
        world.go.notify_one();
        assert!(read(&mut slow, "slow").await);
    }

    #[tokio::test]
    async fn the_oldest_connection_without_a_request_makes_way() {
        let world = World::start(3, LONG * 2, None).await;
        let mut slow = world.ask("/slow").await;
        let mut first = world.connect().await;
        let mut second = world.ask("/").await;
        assert!(read(&mut second, "ok").await);
        let mut third = world.ask("/").await;
        assert!(read(&mut third, "ok").await);
        assert!(closed(&mut first).await);
        // The younger ones are kept.
        ask(&mut second, "/").await;
        assert!(read(&mut second, "ok").await);
        world.go.notify_one();
        assert!(read(&mut slow, "slow").await);
    }

    #[tokio::test]
    async fn a_connection_is_refused_if_all_others_have_requests() {
        let world = World::start(1, LONG * 2, None).await;
        let mut slow = world.ask("/slow").await;
        world.arrived.notified().await;
        let mut refused = world.connect().await;
        assert!(closed(&mut refused).await);
        // The end of the server waits for the answer.
        world.server.abort();
        let _ = world.server.await;
        world.go.notify_one();
        assert!(read(&mut slow, "slow").await);
        // No further request is answered.
        assert!(closed(&mut slow).await);
    }

    fn acceptor() -> TlsAcceptor {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("made");
        let key = rustls::pki_types::PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .expect("a configuration");
        TlsAcceptor::from(Arc::new(config))
    }

    #[tokio::test]
    async fn a_handshake_has_its_time_from_the_acceptance() {
        let bounds = Bounds { handshake: Duration::from_millis(100), ..Bounds::default() };
        let world = World::with(bounds, Some(acceptor())).await;
        let mut silent = world.connect().await;
        assert!(closed(&mut silent).await);
        assert_eq!(world.refusals.of(Reason::Handshake), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_of_the_first_head_begins_with_the_acceptance() {
        let connections = Connections::new(1, 0);
        let (state, ending) = (connections.state(), connections.ending());
        let (server, mut client) = tokio::io::duplex(64);
        let bounds = Bounds::default();
        let refusals = Refusals::default();
        let (router, counted) = (Router::new(), refusals.clone());
        let server_side = Server { tls: None, router, bounds, refusals: counted, state, ending };
        let accepted = Instant::now();
        // The handshake.
        tokio::time::advance(bounds.handshake).await;
        let answer = tokio::spawn(server_side.answer(server, None, accepted));
        client.write_all(b"GET / HTTP/1.1\r\n").await.expect("sent");
        answer.await.expect("no panic");
        assert_eq!(refusals.of(Reason::Head), 1);
        let waited = accepted.elapsed();
        assert!(waited < bounds.head + Duration::from_millis(100), "{waited:?}");
    }

    #[tokio::test]
    async fn an_answer_that_is_not_read_ends_in_time() {
        let bounds = Bounds { write: Duration::from_millis(300), ..Bounds::default() };
        let world = World::with(bounds, None).await;
        let mut unread = world.ask("/large").await;
        // A client that reads a little is not in time either.
        for _ in 0..40 {
            let _ = unread.read(&mut [0; 16]).await;
            sleep(Duration::from_millis(50)).await;
            if world.refusals.of(Reason::Unread) > 0 {
                break;
            }
        }
        assert_eq!(world.refusals.of(Reason::Unread), 1);
        // One that reads gets all of it.
        let world = World::with(Bounds { write: LONG, ..bounds }, None).await;
        let mut whole = world.ask("/large").await;
        assert!(read(&mut whole, "end").await);
    }

    #[tokio::test]
    async fn a_request_is_accepted_when_its_body_has_arrived() {
        for (header, part, body) in [
            ("Content-Length: 4", "bo", "body"),
            ("Transfer-Encoding: chunked", "4\r\nbody\r\n", "4\r\nbody\r\n0\r\n\r\n"),
        ] {
            let world = World::start(1, LONG * 2, None).await;
            let mut partial = world.connect().await;
            let head = format!("POST /slow HTTP/1.1\r\nHost: localhost\r\n{header}\r\n\r\n");
            partial.write_all(format!("{head}{part}").as_bytes()).await.expect("sent");
            sleep(Duration::from_millis(200)).await;
            // The part does not protect its connection.
            let mut whole = world.connect().await;
            assert!(closed(&mut partial).await);
            whole.write_all(format!("{head}{body}").as_bytes()).await.expect("sent");
            world.arrived.notified().await;
            let mut refused = world.connect().await;
            assert!(closed(&mut refused).await);
            world.go.notify_one();
            assert!(read(&mut whole, "slow").await);
            assert_eq!([Reason::Displaced, Reason::Full].map(|r| world.refusals.of(r)), [1, 1]);
        }
    }

    #[tokio::test]
    async fn a_body_ends_in_time() {
        let bounds = Bounds { body: Duration::from_millis(100), ..Bounds::default() };
        let world = World::with(bounds, None).await;
        let mut partial = world.connect().await;
        let head = "POST /slow HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n";
        partial.write_all(format!("{head}bo").as_bytes()).await.expect("sent");
        assert!(closed(&mut partial).await);
        assert_eq!(world.refusals.of(Reason::Body), 1);
    }

    #[tokio::test]
    async fn accepted_requests_leave_a_reserve() {
        let bounds = Bounds { connections: 2, reserve: 1, ..Bounds::default() };
        let world = World::with(bounds, None).await;
        let mut first = world.ask("/slow").await;
        world.arrived.notified().await;
        let mut second = world.ask("/slow").await;
        world.arrived.notified().await;
        let mut probe = world.ask("/").await;
        assert!(read(&mut probe, "ok").await);
        assert!(closed(&mut second).await);
        world.go.notify_waiters();
        assert!(read(&mut first, "slow").await);
    }

    #[tokio::test]
    async fn a_server_of_all_addresses_checks_the_host_of_requests_to_the_local_one() {
        let Ok(listener) = TcpListener::bind("[::]:0").await else { return };
        let port = listener.local_addr().expect("an address").port();
        let router = Router::new().route("/", get(|| async { "ok" }));
        tokio::spawn(serve(listener, None, router, Bounds::default(), Refusals::default()));
        for address in ["127.0.0.1", "::1"] {
            let address: std::net::IpAddr = address.parse().expect("an address");
            // A machine may lack one of the families.
            let Ok(mut stream) = TcpStream::connect((address, port)).await else { continue };
            let request = b"GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
            stream.write_all(request).await.expect("sent");
            let mut text = String::new();
            timeout(LONG, stream.read_to_string(&mut text)).await.expect("in time").expect("text");
            assert!(text.starts_with("HTTP/1.1 403"), "{address}: {text}");
        }
    }

    #[tokio::test]
    async fn connections_that_have_ended_are_no_reason_to_close_others() {
        let world = World::start(2, LONG * 2, None).await;
        let mut kept = world.ask("/").await;
        assert!(read(&mut kept, "ok").await);
        for _ in 0..4 {
            let mut short = world.ask("/").await;
            assert!(read(&mut short, "ok").await);
            short.shutdown().await.expect("ended");
            assert!(closed(&mut short).await);
        }
        ask(&mut kept, "/").await;
        assert!(read(&mut kept, "ok").await);
        assert_eq!(world.refusals.of(Reason::Displaced), 0);
    }
}
