//! Time-outs of request bodies and of answers: slow clients do not occupy connections.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::BoxError;
use axum::body::HttpBody;
use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::connection_state::ConnectionState;
use super::refusals::{Reason, Refusals};

/// A stream that fails if the client does not read in time. The time is that of a whole answer: it begins when the
/// client first falls behind and ends when everything is sent, so a client that reads a byte now and then does not
/// extend it.
pub(super) struct Timed<S> {
    stream: S,
    limit: Duration,
    late: Option<Pin<Box<Sleep>>>,
    has_failed: bool,
    refusals: Refusals,
}

impl<S> Timed<S> {
    pub(super) fn new(stream: S, limit: Duration, refusals: Refusals) -> Timed<S> {
        Timed { stream, limit, late: None, has_failed: false, refusals }
    }

    fn in_time<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if !self.has_failed {
            if written.is_ready() && self.late.is_none() {
                return written;
            }
            let late = self.late.get_or_insert_with(|| Box::pin(sleep(self.limit)));
            if late.as_mut().poll(context).is_pending() {
                return written;
            }
            self.has_failed = true;
            self.refusals.count(Reason::Unread);
        }
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "answer not read in time")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Timed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Timed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.in_time(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.in_time(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// hyper flushes when it has written all that it has.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if flushed.is_ready() {
            self.late = None;
        }
        self.in_time(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = Pin::new(&mut self.stream).poll_shutdown(context);
        self.in_time(context, closed)
    }
}

/// The body of a request, which fails if it does not arrive in time. The time begins when the body is first awaited: a
/// handler may let requests wait before it reads them.
pub(super) struct Arriving {
    body: Incoming,
    limit: Duration,
    late: Option<Pin<Box<Sleep>>>,
    /// Kept when the whole body has arrived.
    state: Option<Arc<ConnectionState>>,
    refusals: Refusals,
}

impl Arriving {
    pub(super) fn new(
        body: Incoming,
        limit: Duration,
        state: Option<Arc<ConnectionState>>,
        refusals: Refusals,
    ) -> Arriving {
        let arriving = Arriving { body, limit, late: None, state, refusals };
        arriving.keep_if(arriving.body.is_end_stream());
        arriving
    }

    fn keep_if(&self, is_complete: bool) {
        if let Some(state) = self.state.as_ref().filter(|_| is_complete) {
            state.protect();
        }
    }
}

impl HttpBody for Arriving {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let arriving = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut arriving.body).poll_frame(context) {
            arriving.keep_if(frame.is_none() || arriving.body.is_end_stream());
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let limit = arriving.limit;
        let late = arriving.late.get_or_insert_with(|| Box::pin(sleep(limit)));
        ready!(late.as_mut().poll(context));
        arriving.refusals.count(Reason::Body);
        let late = io::Error::new(io::ErrorKind::TimedOut, "request body not in time");
        Poll::Ready(Some(Err(late.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
