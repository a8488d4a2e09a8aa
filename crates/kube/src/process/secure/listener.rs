//! Accepts TLS connections. Handshakes run beside each other, so that a slow client delays no other one.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The time that a client has for its handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Handshakes at once. Further clients wait in the listener's backlog.
const HANDSHAKES: usize = 128;

/// Accepts connections whose handshake is complete. Dropping it stops accepting.
pub(super) struct TlsListener {
    address: SocketAddr,
    accepted: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
    task: JoinHandle<()>,
}

impl TlsListener {
    pub(super) fn start(listener: TcpListener, config: ServerConfig) -> io::Result<TlsListener> {
        let address = listener.local_addr()?;
        let (ready, accepted) = mpsc::channel(1);
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let task = tokio::spawn(accept(listener, acceptor, ready));
        Ok(TlsListener { address, accepted, task })
    }
}

impl Drop for TlsListener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    ready: mpsc::Sender<(TlsStream<TcpStream>, SocketAddr)>,
) {
    let handshakes = Arc::new(Semaphore::new(HANDSHAKES));
    loop {
        // The semaphore is never closed.
        let Ok(permit) = handshakes.clone().acquire_owned().await else { return };
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                // The process is out of file descriptors, or the client has gone. Both pass.
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (acceptor, ready) = (acceptor.clone(), ready.clone());
        tokio::spawn(async move {
            let _permit = permit;
            // It only delays small answers.
            let _ = stream.set_nodelay(true);
            match timeout(HANDSHAKE, acceptor.accept(stream)).await {
                // The error says that the listener was dropped.
                Ok(Ok(stream)) => drop(ready.send((stream, peer)).await),
                Ok(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake failed"),
                Err(_) => tracing::debug!(%peer, "TLS handshake not in time"),
            }
        });
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        match self.accepted.recv().await {
            Some(accepted) => accepted,
            // The accepting task ends with this listener.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

/// The certificates that a client has presented, its own first. They are not verified yet, except that the client has
/// the key of the first one.
#[derive(Clone)]
pub(super) struct Peer(pub(super) Arc<[CertificateDer<'static>]>);

impl Connected<IncomingStream<'_, TlsListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, TlsListener>) -> Peer {
        let (_, session) = stream.io().get_ref();
        Peer(session.peer_certificates().unwrap_or_default().into())
    }
}
