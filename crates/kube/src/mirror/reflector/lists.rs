//! Lists: streamed by a watch, or in pages.

use tokio::time::timeout;
use tracing::{debug, info};

use super::{BROKEN, Next, Reflector, bookmark, parse};
use crate::api::{ApiError, Lines};
use crate::mirror::MirrorError;
use crate::mirror::figures::KindStatus;
use crate::mirror::sink::Sink;
use crate::mirror::submit::Stopped;
use crate::mirror::wire::{Meta, Page, encode};

/// The number of objects per page, as in client-go.
const PAGE: usize = 500;

impl<S: Sink> Reflector<S> {
    /// Lists all objects, and continues with the watch if the list was streamed.
    pub(super) async fn list(&mut self) -> Result<(), MirrorError> {
        if self.streams_lists && self.broken_lists < BROKEN {
            let path = format!(
                "{}?{}watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&\
                 allowWatchBookmarks=true&resourceVersion={}&timeoutSeconds={}",
                self.path,
                self.selector,
                encode(&self.version),
                self.pauses.watch_seconds(),
            );
            match self.api.watch(&path).await {
                Ok(lines) => {
                    self.broken_lists += 1;
                    return self.streamed_list(lines).await;
                }
                Err(error) if refuses_streams(&error) => {
                    info!(kind = self.kind.name(), %error, "lists are paginated from now on");
                    self.streams_lists = false;
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.paginated_list().await
    }

    /// Reads the objects that a watch sends first, and then the watch.
    async fn streamed_list(&mut self, mut lines: Lines) -> Result<(), MirrorError> {
        self.sink.begin();
        let mut is_first = true;
        loop {
            let Ok(line) = timeout(self.pauses.list_silence, lines.next()).await else {
                if is_first {
                    let why = "no part of the list arrived in time".to_owned();
                    return Err(ApiError::NoAnswer(why).into());
                }
                // A server that ignores the parameter never ends the list.
                info!(
                    kind = self.kind.name(),
                    "lists are paginated, since the server does not end a streamed list"
                );
                self.streams_lists = false;
                return Ok(());
            };
            let Some(line) = line? else {
                let why = "the watch ended before the list was complete".to_owned();
                return Err(ApiError::NoAnswer(why).into());
            };
            is_first = false;
            self.kind.heard();
            let line = parse(&line)?;
            if line.action == "BOOKMARK" {
                let bookmark = bookmark(line.object)?;
                if bookmark.ends_initial_events() {
                    self.end_list(bookmark.metadata.resource_version).await?;
                    return self.follow(lines).await.map(|_| ());
                }
            } else {
                self.change(&line).await?;
            }
        }
    }

    async fn paginated_list(&mut self) -> Result<(), MirrorError> {
        self.sink.begin();
        let mut next = String::new();
        let mut limit = format!("limit={PAGE}");
        let version = loop {
            let mut path = format!("{}?{}{limit}", self.path, self.selector);
            if !next.is_empty() {
                path = format!("{path}&continue={}", encode(&next));
            }
            let body = match self.api.get(&path).await {
                Err(error) if error.is_gone() && !next.is_empty() => {
                    // The version of the pages has expired, so the list starts again as a single page.
                    self.sink.begin();
                    next.clear();
                    limit = "limit=0".to_owned();
                    continue;
                }
                body => body?,
            };
            self.kind.heard();
            let page: Page<'_> = serde_json::from_slice(&body)
                .map_err(|error| ApiError::Malformed(format!("a list: {error}")))?;
            for object in page.items.unwrap_or_default() {
                let meta = Meta::of(object, self.kind.resource());
                self.put(object, &meta).await?;
            }
            next = page.metadata.next;
            if next.is_empty() {
                break page.metadata.resource_version;
            }
        };
        self.end_list(version).await?;
        Ok(())
    }

    /// Completes a list of this version.
    async fn end_list(&mut self, version: String) -> Result<(), Stopped> {
        self.sink.end(version.parse().unwrap_or(0)).await?;
        self.kind.count(|figures| figures.relists += 1);
        self.next = Next::Watch;
        (self.hurried, self.broken_lists) = (0, 0);
        self.saw(version);
        debug!(kind = self.kind.name(), version = self.version, "the list is applied");
        self.kind.set_status(KindStatus::Synced);
        Ok(())
    }
}

/// Returns whether the server refuses streamed lists, rather than the client or the kind.
fn refuses_streams(error: &ApiError) -> bool {
    let is_other = matches!(error.code(), Some(401 | 403 | 404 | 408 | 410 | 429));
    matches!(error.code(), Some(400..500)) && !is_other && !error.is_gone()
}
