//! Connections that the server can reset while a request is under way.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use futures_util::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

/// A handle that resets a connection.
#[derive(Clone, Debug)]
pub(crate) struct Peer(Arc<Switch>);

#[derive(Debug, Default)]
struct Switch {
    reset: AtomicBool,
    waker: AtomicWaker,
}

impl Peer {
    /// Resets the connection: the client sees a reset, not the end of the stream.
    pub(crate) fn reset(&self) {
        self.0.reset.store(true, Ordering::Release);
        self.0.waker.wake();
    }
}

/// All open connections.
#[derive(Debug, Default)]
pub(crate) struct Connections(Mutex<Vec<Weak<Switch>>>);

impl Connections {
    fn add(&self, switch: &Arc<Switch>) {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() == open.capacity() {
            open.retain(|switch| switch.strong_count() > 0);
        }
        open.push(Arc::downgrade(switch));
    }

    pub(crate) fn reset_all(&self) {
        let open = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        open.iter().filter_map(Weak::upgrade).for_each(|switch| Peer(switch).reset());
    }
}

/// Accepts connections with TCP_NODELAY, as kube-apiserver does.
#[derive(Debug)]
pub(crate) struct Acceptor {
    pub(crate) listener: TcpListener,
    pub(crate) connections: Arc<Connections>,
}

impl Listener for Acceptor {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    // A failure costs only latency.
                    let _ = stream.set_nodelay(true);
                    let switch = Arc::new(Switch::default());
                    self.connections.add(&switch);
                    return (Connection { stream, switch }, peer);
                }
                // The process is out of file descriptors, or the client has disconnected. Both pass.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    switch: Arc<Switch>,
}

impl Connected<IncomingStream<'_, Acceptor>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Acceptor>) -> Self {
        Peer(stream.io().switch.clone())
    }
}

impl Connection {
    fn check(&self) -> io::Result<()> {
        if self.switch.reset.load(Ordering::Acquire) {
            // If this fails, the client sees the end of the stream instead of a reset.
            let _ = self.stream.set_zero_linger();
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Ok(())
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.switch.waker.register(context.waker());
        self.check()?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
