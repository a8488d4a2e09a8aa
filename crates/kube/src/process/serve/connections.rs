//! Accepts connections, and limits their number and their idle time.
//!
//! Each connection is a task, from its TLS handshake to its end. If there are too many, the oldest one without a
//! request is closed for a new one, so clients that connect and send nothing delay no probe.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::ConnectInfo;
use bytes::Bytes;
use http::Request;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::seldom::warn_seldom;

/// The certificates that a client has presented, its own first. They are not verified yet, except that the client has
/// proved to hold the key of the first one.
#[derive(Clone)]
pub(in crate::process) struct Peer(pub(in crate::process) Arc<[CertificateDer<'static>]>);

/// Limits of connections.
#[derive(Clone, Copy)]
pub(in crate::process) struct Bounds {
    /// The maximum number of connections.
    connections: usize,
    /// The time that a client has for its handshake.
    handshake: Duration,
    /// The time until the whole head of the next request has arrived. Idle time counts.
    head: Duration,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            connections: 512,
            handshake: Duration::from_secs(10),
            // kube-scheduler's `ReadHeaderTimeout`.
            head: Duration::from_secs(32),
        }
    }
}

/// Answers connections until the future is dropped. Requests in progress are still answered. With encryption, requests
/// have a [`ConnectInfo`] with a [`Peer`].
pub(in crate::process) async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    router: Router,
    bounds: Bounds,
) {
    let mut connections = Connections { limit: bounds.connections, open: VecDeque::new() };
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
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
        if !connections.make_way() {
            warn_seldom!("a connection was refused: all others have requests");
            continue;
        }
        let is_busy = Arc::<AtomicBool>::default();
        let work = connection(stream, tls.clone(), router.clone(), bounds, is_busy.clone());
        let task = tokio::spawn(work).abort_handle();
        connections.open.push_back(Connection { task, is_busy });
    }
}

/// An accepted connection.
struct Connection {
    task: AbortHandle,
    /// Whether it has a request that is not answered yet.
    is_busy: Arc<AtomicBool>,
}

impl Connection {
    fn is_busy(&self) -> bool {
        // Relaxed: no data is shared through the flag.
        self.is_busy.load(Ordering::Relaxed)
    }
}

/// The accepted connections, the oldest first, with some that have ended.
struct Connections {
    limit: usize,
    open: VecDeque<Connection>,
}

impl Connections {
    /// Returns whether one more connection is allowed. Closes the oldest one without a request if there are too many.
    fn make_way(&mut self) -> bool {
        if self.open.len() >= self.limit {
            self.open.retain(|connection| !connection.task.is_finished());
        }
        if self.open.len() < self.limit {
            return true;
        }
        let oldest = self.open.iter().position(|connection| !connection.is_busy());
        let oldest = oldest.and_then(|at| self.open.remove(at));
        oldest.inspect(|connection| connection.task.abort()).is_some()
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        let idle = self.open.iter().filter(|connection| !connection.is_busy());
        idle.for_each(|connection| connection.task.abort());
    }
}

async fn connection(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    router: Router,
    bounds: Bounds,
    is_busy: Arc<AtomicBool>,
) {
    // A failure only delays small answers.
    let _ = stream.set_nodelay(true);
    let Some(tls) = tls else { return answer(stream, None, router, bounds, is_busy).await };
    match timeout(bounds.handshake, tls.accept(stream)).await {
        Ok(Ok(stream)) => {
            let (_, session) = stream.get_ref();
            let peer = Peer(session.peer_certificates().unwrap_or_default().into());
            answer(stream, Some(peer), router, bounds, is_busy).await;
        }
        Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => tracing::debug!("TLS handshake not in time"),
    }
}

async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Option<Peer>,
    router: Router,
    bounds: Bounds,
    is_busy: Arc<AtomicBool>,
) {
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        if let Some(peer) = &peer {
            request.extensions_mut().insert(ConnectInfo(peer.clone()));
        }
        let busy = Busy::new(is_busy.clone());
        let answer = router.call(request);
        async move {
            Ok::<_, std::convert::Infallible>(
                answer.await?.map(|body| Answer { body, _busy: busy }),
            )
        }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(bounds.head);
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "a connection ended");
    }
}

/// Marks a connection as busy until it is dropped.
struct Busy(Arc<AtomicBool>);

impl Busy {
    fn new(is_busy: Arc<AtomicBool>) -> Busy {
        is_busy.store(true, Ordering::Relaxed);
        Busy(is_busy)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// The body of an answer, whose connection is busy until the server has taken all of it.
struct Answer {
    body: Body,
    _busy: Busy,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::Notify;
    use tokio::task::JoinHandle;

    const LONG: Duration = Duration::from_secs(20);

    struct World {
        address: SocketAddr,
        server: JoinHandle<()>,
        /// Lets one request of `/slow` go on.
        go: Arc<Notify>,
    }

    impl World {
        async fn start(connections: usize, head: Duration, tls: Option<TlsAcceptor>) -> World {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            let address = listener.local_addr().expect("an address");
            let go = Arc::new(Notify::new());
            let gate = go.clone();
            let slow = || async move {
                gate.notified().await;
                "slow"
            };
            let router = Router::new().route("/", get(|| async { "ok" })).route("/slow", get(slow));
            let bounds = Bounds { connections, handshake: LONG, head };
            let server = tokio::spawn(serve(listener, tls, router, bounds));
            World { address, server, go }
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
        let request = format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("sent");
    }

    /// Reads until the text ends so, or the connection ends.
    async fn read(stream: &mut TcpStream, end: &str) -> bool {
        let mut text = Vec::new();
        while !text.ends_with(end.as_bytes()) {
            let mut byte = [0];
            match timeout(LONG, stream.read(&mut byte)).await.expect("in time") {
                Ok(1) => text.push(byte[0]),
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
        // The request has arrived by then.
        sleep(Duration::from_millis(200)).await;
        let mut refused = world.connect().await;
        assert!(closed(&mut refused).await);
        // The end of the server waits for the answer.
        world.server.abort();
        let _ = world.server.await;
        world.go.notify_one();
        assert!(read(&mut slow, "slow").await);
    }

    #[tokio::test]
    async fn a_handshake_that_does_not_begin_makes_way() {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("made");
        let key = rustls::pki_types::PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .expect("a configuration");
        let tls = TlsAcceptor::from(Arc::new(config));
        let world = World::start(2, LONG * 2, Some(tls)).await;
        let (mut first, mut second) = (world.connect().await, world.connect().await);
        let _third = world.connect().await;
        assert!(closed(&mut first).await);
        let _fourth = world.connect().await;
        assert!(closed(&mut second).await);
    }
}
