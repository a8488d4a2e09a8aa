//! Watches: one task per stream reads the events of a collection in batches and sends them as lines.
//!
//! Lines are sent in pieces of up to 64 KiB, so a burst of writes costs a watch one copy per event and few system
//! calls. A watch that falls behind the watch cache ends, as in kube-apiserver. Its client gets 410 when it resumes.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, interval_at, sleep, sleep_until};

use crate::connection::Peer;
use crate::error::ApiError;
use crate::faults::{Effect, Facts};
use crate::history::{Event, Happening};
use crate::resources::Resource;
use crate::selectors::Selection;
use crate::server::Shared;

/// The parameters of a watch.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) resource: &'static Resource,
    pub(crate) selection: Selection,
    /// The version after which events are sent, unless `initial` is set.
    pub(crate) version: u64,
    /// Whether to send the present objects first, as ADDED.
    pub(crate) initial: bool,
    /// Whether to send a bookmark after the present objects.
    pub(crate) initial_bookmark: bool,
    pub(crate) bookmarks: bool,
    pub(crate) timeout: Duration,
}

/// How long before its end a watch sends a bookmark, as in kube-apiserver.
const BEFORE_END: Duration = Duration::from_secs(2);

/// The number of pieces that may wait for the connection.
const QUEUE: usize = 16;
/// The size at which a piece is sent, in bytes.
const PIECE: usize = 64 * 1024;
/// The maximum number of events that are read at once.
const BATCH: usize = 1024;

impl Watch {
    /// Starts the stream.
    pub(crate) fn start(self, shared: Arc<Shared>, peer: Peer) -> mpsc::Receiver<Bytes> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        tokio::spawn(async move {
            let mut lines =
                Lines { shared: &shared, watch: &self, peer, sender, piece: BytesMut::new() };
            // An error ends the stream like any other end.
            let _ = self.run(&shared, &mut lines).await;
            let _ = lines.flush().await;
        });
        receiver
    }

    async fn run(&self, shared: &Shared, lines: &mut Lines<'_>) -> Result<(), Over> {
        let collection = shared.store.of(self.resource);
        let mut news = collection.subscribe();
        let mut position = self.version;
        if self.initial {
            let select = |object: &crate::store::Version| self.selection.selects(object);
            let listed = collection.list(
                &self.selection.namespace,
                None,
                usize::MAX,
                collection.stalled(),
                select,
            );
            let Ok((read, _)) = listed else { return Err(Over) };
            for object in &read.items {
                lines.event("ADDED", &object.body, &object.key.name).await?;
            }
            position = read.version;
            if self.initial_bookmark {
                lines.bookmark(position, true);
            }
            lines.flush().await?;
        }
        let end = sleep_until(Instant::now() + self.timeout);
        let mut end = std::pin::pin!(end);
        let last_bookmark = sleep_until(Instant::now() + self.timeout.saturating_sub(BEFORE_END));
        let mut last_bookmark = std::pin::pin!(last_bookmark);
        let mut is_last_sent = false;
        let mut is_bookmark_due = false;
        let every = shared
            .options
            .bookmark_every
            .clamp(Duration::from_millis(1), Duration::from_secs(86_400));
        let mut ticks = interval_at(Instant::now() + every, every);
        let mut first = true;
        loop {
            news.borrow_and_update();
            let (events, seen) = match collection.cached_since(position, BATCH) {
                Ok(read) => read,
                Err(too_old) if first && !self.initial => {
                    let message =
                        format!("too old resource version: {position} ({})", too_old.floor);
                    lines.error(&ApiError::expired(message));
                    return Ok(());
                }
                Err(_) => return Err(Over),
            };
            first = false;
            // The requested version may be ahead of the clock.
            let caught_up = events.is_empty();
            position = position.max(seen);
            for event in &events {
                if let Some((kind, body)) = self.seen_as(event) {
                    lines.event(kind, &body, &event.object.key.name).await?;
                }
            }
            lines.flush().await?;
            if !caught_up {
                continue;
            }
            if std::mem::take(&mut is_bookmark_due) {
                // All events up to `position` have been sent.
                lines.bookmark(position, false);
                lines.flush().await?;
            }
            tokio::select! {
                changed = news.changed() => changed.map_err(|_| Over)?,
                _ = ticks.tick(), if self.bookmarks => is_bookmark_due = true,
                () = &mut last_bookmark, if self.bookmarks && !is_last_sent => {
                    (is_last_sent, is_bookmark_due) = (true, true);
                }
                () = &mut end => return Ok(()),
                () = lines.sender.closed() => return Err(Over),
            }
        }
    }

    /// The type and body that the watch sends for an event. An object that enters the selection is ADDED; an object
    /// that leaves it is DELETED.
    fn seen_as(&self, event: &Event) -> Option<(&'static str, Bytes)> {
        let now = event.happening != Happening::Deleted && self.selection.selects(&event.object);
        let before = match &event.previous {
            _ if event.happening == Happening::Added => false,
            Some(previous) => self.selection.selects(previous),
            None => false,
        };
        match (before, now) {
            (false, true) => Some(("ADDED", event.object.body.clone())),
            (true, true) => Some(("MODIFIED", event.object.body.clone())),
            (true, false) if event.happening == Happening::Deleted => {
                Some(("DELETED", event.object.body.clone()))
            }
            (true, false) => Some(("DELETED", event.left())),
            (false, false) => None,
        }
    }
}

/// The stream has ended.
#[derive(Debug)]
struct Over;

struct Lines<'a> {
    shared: &'a Shared,
    watch: &'a Watch,
    peer: Peer,
    sender: mpsc::Sender<Bytes>,
    piece: BytesMut,
}

impl Lines<'_> {
    /// Sends an event, subject to faults.
    async fn event(&mut self, kind: &str, body: &Bytes, name: &str) -> Result<(), Over> {
        let facts = Facts { verb: "watch", resource: self.watch.resource.plural, name };
        match self.shared.faults.of_event(facts) {
            None => self.put(kind, body),
            Some(Effect::EndStream) => return Err(Over),
            Some(Effect::ResetStream) => {
                self.flush().await?;
                // Let the client receive the previous events before the reset.
                sleep(Duration::from_millis(10)).await;
                self.peer.reset();
                self.sender.closed().await;
                return Err(Over);
            }
            Some(Effect::DelayEvent(delay)) => {
                self.flush().await?;
                sleep(delay).await;
                self.put(kind, body);
            }
            Some(Effect::DuplicateEvent) => {
                self.put(kind, body);
                self.put(kind, body);
            }
            Some(Effect::TruncateEvent) => {
                let start = self.piece.len();
                self.put(kind, body);
                self.piece.truncate(start + (self.piece.len() - start) / 2);
                return Err(Over);
            }
            Some(Effect::EventError(error)) => {
                self.error(&error);
                return Err(Over);
            }
            // `of_event` returns no other effects.
            Some(_) => self.put(kind, body),
        }
        if self.piece.len() >= PIECE { self.flush().await } else { Ok(()) }
    }

    fn put(&mut self, kind: &str, body: &Bytes) {
        self.piece.reserve(body.len() + 128);
        self.piece.put_slice(b"{\"type\":\"");
        self.piece.put_slice(kind.as_bytes());
        self.piece.put_slice(b"\",\"object\":");
        put_object(&mut self.piece, self.watch.resource, body);
        self.piece.put_slice(b"}\n");
    }

    fn line(&mut self, line: &Value) {
        self.piece.put_slice(line.to_string().as_bytes());
        self.piece.put_slice(b"\n");
    }

    fn bookmark(&mut self, version: u64, end_of_initial: bool) {
        let mut metadata = json!({"resourceVersion": version.to_string()});
        if end_of_initial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let (kind, version) = (self.watch.resource.kind, self.watch.resource.api_version());
        let object = json!({"kind": kind, "apiVersion": version, "metadata": metadata});
        self.line(&json!({"type": "BOOKMARK", "object": object}));
    }

    fn error(&mut self, error: &ApiError) {
        self.line(&error_line(error));
    }

    async fn flush(&mut self) -> Result<(), Over> {
        if self.piece.is_empty() {
            return Ok(());
        }
        self.shared.unpaused().await;
        self.sender.send(self.piece.split().freeze()).await.map_err(|_| Over)
    }
}

/// The line in which a watch reports an error.
pub(crate) fn error_line(error: &ApiError) -> Value {
    json!({"type": "ERROR", "object": error.status()})
}

/// Writes an object with `kind` and `apiVersion`.
pub(crate) fn put_object(out: &mut BytesMut, resource: &Resource, body: &Bytes) {
    out.put_slice(b"{\"kind\":\"");
    out.put_slice(resource.kind.as_bytes());
    out.put_slice(b"\",\"apiVersion\":\"");
    if !resource.group.is_empty() {
        out.put_slice(resource.group.as_bytes());
        out.put_slice(b"/");
    }
    out.put_slice(resource.version.as_bytes());
    out.put_slice(b"\",");
    // A body always has metadata.
    out.put_slice(&body[1..]);
}
