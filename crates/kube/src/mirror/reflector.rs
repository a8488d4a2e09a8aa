//! Lists and watches one kind, as client-go's reflectors do.
//!
//! ```text
//!          ┌── streamed list ──┐ bookmark
//! start ──▶│   (4xx: pages)    ├─────────▶ watch ──▶ watch from the last version ──▶ …
//!          └───────▲───────────┘             │ 410, or a version that the server does not have
//!                  └─────────────────────────┘
//! ```
//!
//! A list is streamed by a watch that first sends the objects that exist. If the server does not support that, lists
//! are paginated. A watch that ends or fails is resumed at the last version, without a gap. An object that cannot be
//! read is reported and skipped: neither the list nor the watch fails.
//!
//! The first list, and each list after an expired version, is as new as the store itself. Other lists are at least as
//! new as the last version seen, so the mirror never returns to an older state.

mod lists;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tracing::{debug, info, warn};

use crate::api::{Api, ApiError, Lines, Refusal};
use crate::seldom::warn_seldom;

use super::MirrorError;
use super::backoff::{Backoff, Pauses};
use super::figures::{KindState, KindStatus};
use super::sink::{NotPut, Sink};
use super::submit::Stopped;
use super::wire::{Bookmark, Line, Meta, encode};

/// The number of objects after which a task yields.
const TURN: usize = 64;
/// The number of consecutive broken streamed lists after which lists are paginated.
const BROKEN: u32 = 3;
/// The longest pause that the server may ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The number of short watches after which an awaited version is listed instead.
const HURRIED: u32 = 3;

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    List,
    Watch,
}

/// Keeps a sink equal to the objects of one kind.
pub(super) struct Reflector<S> {
    api: Api,
    kind: Arc<KindState>,
    /// The path of all objects.
    path: String,
    /// `fieldSelector=…&`, or an empty string.
    selector: String,
    sink: S,
    pauses: Pauses,
    backoff: Backoff,
    awaited: watch::Receiver<u64>,
    next: Next,
    /// Whether the server can stream lists.
    streams_lists: bool,
    /// The number of consecutive streamed lists that broke before they were complete.
    broken_lists: u32,
    /// The version from which the next watch resumes; empty if a new list is needed.
    version: String,
    /// The number of short watches since somebody began to wait for a version.
    hurried: u32,
    /// The number of objects since the task last yielded.
    turn: usize,
}

impl<S: Sink> Reflector<S> {
    pub(super) fn new(
        api: Api,
        kind: Arc<KindState>,
        field_selector: Option<&str>,
        sink: S,
        pauses: &Pauses,
    ) -> Reflector<S> {
        let selector =
            field_selector.map(|selector| format!("fieldSelector={}&", encode(selector)));
        Reflector {
            api,
            path: kind.resource().collection(None),
            selector: selector.unwrap_or_default(),
            sink,
            pauses: pauses.clone(),
            backoff: Backoff::new(pauses),
            awaited: kind.awaited(),
            kind,
            next: Next::List,
            streams_lists: true,
            broken_lists: 0,
            version: String::new(),
            hurried: 0,
            turn: 0,
        }
    }

    /// Runs until the mirror has stopped.
    pub(super) async fn run(mut self) {
        loop {
            let done = match self.next {
                Next::List => self.list().await,
                Next::Watch => self.resume().await,
            };
            match done {
                Ok(()) => {}
                Err(MirrorError::Api(error)) => {
                    let pause = self.failed(&error);
                    self.pause(pause).await;
                }
                Err(_) => return,
            }
        }
    }

    /// Waits before the next try, or until somebody begins to wait for a version.
    async fn pause(&mut self, pause: Duration) {
        let end = Instant::now() + pause;
        self.awaited.mark_unchanged();
        while let Ok(changed) = timeout_at(end, self.awaited.changed()).await {
            // The state that is awaited lives as long as the reflector.
            if changed.is_ok() && self.is_hurried() {
                return;
            }
        }
    }

    /// Decides what to do after a failure, and returns how long to wait before that.
    fn failed(&mut self, error: &ApiError) -> Duration {
        let kind = self.kind.name();
        self.kind.count(|figures| {
            figures.watch_errors += 1;
            figures.last_error = Some(error.to_string());
        });
        let mut pause = self.backoff.pause();
        match error.code() {
            _ if error.is_gone() || is_too_large(error) => {
                info!(kind, %error, "listing again, since the version is not available");
                self.list_from("");
            }
            Some(404) => {
                if self.kind.status() != KindStatus::NotServed {
                    info!(kind, "the server does not serve this kind");
                }
                self.kind.set_status(KindStatus::NotServed);
                pause = self.pauses.slow;
            }
            Some(403) => {
                // A server that has just started may not know the roles yet, so this may pass soon.
                warn!(kind, %error, "reading this kind is forbidden");
                self.kind.set_status(KindStatus::Forbidden);
            }
            Some(401 | 408 | 429 | 500..) => self.warn(error),
            Some(_) => {
                // The request itself is refused, so it must not be repeated as it is.
                warn!(kind, %error, "listing again, since a request was refused");
                self.list_from("");
            }
            // Routine: a server sends no bookmarks for a kind that has never changed.
            None if matches!((error, &self.next), (ApiError::NoAnswer(_), Next::Watch)) => {
                info!(kind, %error, "resuming a watch");
            }
            None => {
                self.warn(error);
                if matches!(error, ApiError::Malformed(_)) {
                    // An event may have been lost.
                    self.next = Next::List;
                }
            }
        }
        let is_routine = error.is_gone()
            || matches!((error, self.next), (ApiError::NoAnswer(_), Next::Watch))
            // The status of the kind reports it.
            || (matches!(error.code(), Some(403 | 404)) && self.kind.status() != KindStatus::Synced);
        if !is_routine {
            self.kind.set_failure(Some(error.to_string()));
        }
        error.wait(pause, LONGEST_WAIT)
    }

    /// All kinds fail at once if the server cannot be reached.
    fn warn(&self, error: &ApiError) {
        warn_seldom!(kind = self.kind.name(), %error, "a list or watch failed");
    }

    fn list_from(&mut self, version: &str) {
        self.next = Next::List;
        version.clone_into(&mut self.version);
    }

    /// Watches from the last version.
    async fn resume(&mut self) -> Result<(), MirrorError> {
        self.hurried = if self.is_hurried() { self.hurried + 1 } else { 0 };
        if self.hurried > HURRIED {
            // The server sends no bookmark at the end of a watch.
            let awaited = self.awaited.borrow().to_string();
            self.list_from(&awaited);
            return Ok(());
        }
        let seconds = match self.hurried {
            0 => self.pauses.watch_seconds(),
            _ => self.pauses.hurried_watch.as_secs().max(1),
        };
        let path = format!(
            "{}?{}watch=true&allowWatchBookmarks=true&resourceVersion={}&timeoutSeconds={seconds}",
            self.path,
            self.selector,
            encode(&self.version),
        );
        let start = Instant::now();
        let lines = self.api.watch(&path).await?;
        self.kind.set_failure(None);
        if self.follow(lines).await? == 0 && start.elapsed() < self.pauses.short_watch {
            let why = "a watch ended at once without an event".to_owned();
            return Err(ApiError::NoAnswer(why).into());
        }
        Ok(())
    }

    /// Returns whether somebody waits for a version that has not been seen.
    fn is_hurried(&mut self) -> bool {
        *self.awaited.borrow_and_update() > self.kind.version()
    }

    /// Passes on the changes of a watch until it ends, or until somebody waits for a version. Returns the number of
    /// lines, plus one if the end was not the server's.
    async fn follow(&mut self, mut lines: Lines) -> Result<u64, MirrorError> {
        let mut heard = 0;
        loop {
            let line = tokio::select! {
                biased;
                line = lines.next() => line?,
                changed = self.awaited.changed() => {
                    // The state that is awaited lives as long as the reflector.
                    if changed.is_ok() && self.is_hurried() {
                        debug!(kind = self.kind.name(), "resuming the watch to see a version soon");
                        return Ok(heard + 1);
                    }
                    continue;
                }
            };
            let Some(line) = line else { return Ok(heard) };
            heard += 1;
            self.kind.heard();
            let line = parse(&line)?;
            if line.action == "BOOKMARK" {
                let version = bookmark(line.object)?.metadata.resource_version;
                self.saw(version);
            } else if let Some(version) = self.change(&line).await? {
                self.saw(version);
            }
        }
    }

    /// Records a version up to which all changes were passed on.
    fn saw(&mut self, version: String) {
        if let Ok(number) = version.parse() {
            self.kind.set_version(number);
        }
        if !version.is_empty() {
            self.version = version;
        }
    }

    /// Passes on a change and returns its version, or `None` if the line is of an unknown type.
    async fn change(&mut self, line: &Line<'_>) -> Result<Option<String>, MirrorError> {
        let meta = || Meta::of(line.object, self.kind.resource());
        let meta = match &*line.action {
            "ADDED" | "MODIFIED" => {
                let meta = meta();
                self.put(line.object, &meta).await?;
                meta
            }
            "DELETED" => {
                let meta = meta();
                self.sink.delete(&meta).await?;
                meta
            }
            "ERROR" => {
                let refusal = Refusal::of_watch(line.object.get().as_bytes())?;
                return Err(ApiError::from(refusal).into());
            }
            action => {
                warn!(kind = self.kind.name(), action, "skipping an event of an unknown type");
                return Ok(None);
            }
        };
        Ok(Some(meta.resource_version.into_owned()))
    }

    async fn put(&mut self, object: &RawValue, meta: &Meta<'_>) -> Result<(), Stopped> {
        self.turn += 1;
        if self.turn.is_multiple_of(TURN) {
            tokio::task::yield_now().await;
        }
        match self.sink.put(object, meta).await {
            Ok(()) => Ok(()),
            Err(NotPut::Stopped) => Err(Stopped),
            Err(NotPut::Unreadable(error)) => {
                self.skip(meta, error.path(), &error);
                Ok(())
            }
            Err(NotPut::Malformed(error)) => {
                self.skip(meta, "", &error);
                Ok(())
            }
            Err(NotPut::Lacks(field)) => {
                self.skip(meta, field, &"the field is required");
                Ok(())
            }
        }
    }

    fn skip(&mut self, meta: &Meta<'_>, field: &str, error: &dyn fmt::Display) {
        self.kind.count(|figures| figures.skipped += 1);
        let (kind, namespace, name) = (self.kind.name(), &*meta.namespace, &*meta.name);
        warn!(kind, namespace, name, field, %error, "skipping an object that cannot be read");
        self.sink.keep(meta);
    }
}

fn parse(line: &[u8]) -> Result<Line<'_>, ApiError> {
    serde_json::from_slice(line)
        .map_err(|error| ApiError::Malformed(format!("a line of a watch: {error}")))
}

fn bookmark(object: &RawValue) -> Result<Bookmark, ApiError> {
    serde_json::from_str(object.get())
        .map_err(|error| ApiError::Malformed(format!("a bookmark: {error}")))
}

/// Returns whether the server does not have the version yet (`NewTooLargeResourceVersionError`). After a restore of the
/// store it may never have it.
fn is_too_large(error: &ApiError) -> bool {
    const MESSAGE: &str = "Too large resource version";
    matches!(error, ApiError::Refused(refusal) if refusal.message.contains(MESSAGE))
}
