//! Objects of any kinds beside an engine: listed once, and followed by watches.
//!
//! Each object is parsed when it changes. A reading of all of them is a merge of the parsed objects. The kinds are at
//! different versions of the server, as in a mirror: an object may refer to one that is not known yet.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};

use portolan_k8s::Reader;
use serde_json::value::RawValue;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::figures::{Board, KindState, KindStatus, StopOnDrop};
use super::reflector::Reflector;
use super::sink::{NotPut, Sink};
use super::submit::Stopped;
use super::wire::Meta;
use super::{MirrorError, Pauses};
use crate::api::{Api, Resource};
use crate::debug::debug_by;
use crate::lock::lock;

/// Keeps the objects of some kinds equal to those of an API server, until it is dropped.
pub struct Copies {
    board: Arc<Board>,
    /// In the order of the board's kinds.
    kinds: Vec<Arc<Copied>>,
    tasks: Vec<JoinHandle<()>>,
}

/// The namespace and name of an object.
type Key = (String, String);

/// The objects of a kind: the version of each, and what was read.
type Copied = Mutex<BTreeMap<Key, (String, Reader)>>;

/// A kind that is not read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unread {
    /// The name of the resource, such as `pods`.
    pub plural: &'static str,
    /// Why the server does not answer, or `None` if only some objects cannot be read.
    pub why: Option<String>,
}

impl Copies {
    /// Starts to list and watch the kinds on the current tokio runtime.
    ///
    /// # Errors
    ///
    /// There is no runtime.
    pub fn start(
        api: &Api,
        resources: &[Resource],
        pauses: &Pauses,
    ) -> Result<Copies, MirrorError> {
        let runtime = Handle::try_current().map_err(|_| MirrorError::NoRuntime)?;
        let board = Arc::new(Board::new(resources));
        let kinds: Vec<Arc<Copied>> = board.kinds().iter().map(|_| Arc::default()).collect();
        let tasks = board.kinds().iter().zip(&kinds).map(|(kind, copied)| {
            let sink = CopySink { kind: kind.clone(), copied: copied.clone(), listed: None };
            let reflector = Reflector::new(api.clone(), kind.clone(), None, sink, pauses);
            let ends = StopOnDrop(board.clone());
            runtime.spawn(async move {
                let _ends = ends;
                reflector.run().await;
            })
        });
        let tasks = tasks.collect();
        Ok(Copies { board, kinds, tasks })
    }

    /// Waits until every kind was listed, is forbidden or is not served.
    ///
    /// # Errors
    ///
    /// A list failed for another reason, or a task has panicked.
    pub async fn listed(&self) -> Result<(), MirrorError> {
        let is_listed = |kind: &Arc<KindState>| kind.status() != KindStatus::Listing;
        let is_done = || self.board.kinds().iter().all(is_listed) || self.failure().is_some();
        self.board.wait_until(is_done).await;
        match self.failure() {
            Some(failure) => Err(MirrorError::Failed(failure)),
            None if self.board.is_stopped() => Err(MirrorError::Stopped),
            None => Ok(()),
        }
    }

    /// Returns a handle that waits for changes from now on.
    #[must_use]
    pub fn changes(&self) -> Changes {
        Changes(self.board.changes())
    }

    /// Returns all objects, kind by kind, sorted by namespace and name. O(objects).
    #[must_use]
    pub fn read(&self) -> Reader {
        let mut reader = Reader::new();
        for kind in &self.kinds {
            for (_, object) in lock(kind).values_mut() {
                reader.extend(object);
            }
        }
        reader
    }

    /// Returns why objects may be out of date: a list or watch fails, and is repeated.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.board.kinds().iter().find_map(|kind| {
            let failure = kind.failure()?;
            Some(format!("{}: {failure}", kind.resource().collection(None)))
        })
    }

    /// Returns the kinds of which no objects or not all objects are read.
    #[must_use]
    pub fn unread(&self) -> Vec<Unread> {
        let unread = self.board.kinds().iter().filter_map(|kind| {
            let figures = kind.figures();
            let plural = kind.resource().plural;
            match figures.status {
                KindStatus::Forbidden | KindStatus::NotServed => {
                    Some(Unread { plural, why: Some(figures.last_error.unwrap_or_default()) })
                }
                _ if figures.skipped > 0 => Some(Unread { plural, why: None }),
                _ => None,
            }
        });
        unread.collect()
    }
}

/// Waits for changes of [`Copies`].
#[derive(Debug)]
pub struct Changes(watch::Receiver<bool>);

impl Changes {
    /// Waits until objects or failures have changed since the last call. Returns `false` if nothing follows the server
    /// any more.
    pub async fn wait(&mut self) -> bool {
        self.0.changed().await.is_ok() && !*self.0.borrow()
    }

    /// Ignores the changes until now.
    pub fn skip(&mut self) {
        self.0.mark_unchanged();
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

debug_by!(Copies, it, kinds: it.kinds.len());

/// Parses and keeps the objects of a kind.
struct CopySink {
    kind: Arc<KindState>,
    copied: Arc<Copied>,
    /// The objects of the list that is being received, or `None` outside a list.
    listed: Option<HashSet<Key>>,
}

fn key(meta: &Meta<'_>) -> Key {
    (meta.namespace.to_string(), meta.name.to_string())
}

impl CopySink {
    fn note(&mut self, key: &Key) {
        if let Some(listed) = &mut self.listed {
            listed.insert(key.clone());
        }
    }

    /// Reports a change, unless the list to which it belongs is not complete.
    fn changed(&self) {
        if self.listed.is_none() {
            self.kind.notify();
        }
    }

    /// Reads an object, which need not name its kind.
    fn parse(&self, object: &RawValue) -> Result<Reader, NotPut> {
        let Resource { kind, api_version, .. } = self.kind.resource();
        let list = format!(
            r#"{{"apiVersion":"{api_version}","kind":"{kind}List","items":[{}]}}"#,
            object.get()
        );
        let mut reader = Reader::new();
        reader.read_json(list.as_bytes()).map_err(NotPut::Unreadable)?;
        Ok(reader)
    }
}

impl Sink for CopySink {
    fn begin(&mut self) {
        self.listed = Some(HashSet::new());
    }

    async fn put(&mut self, object: &RawValue, meta: &Meta<'_>) -> Result<(), NotPut> {
        let key = key(meta);
        if key.1.is_empty() {
            return Err(NotPut::Lacks("metadata.name"));
        }
        self.note(&key);
        let version = &*meta.resource_version;
        let is_known = |(known, _): &(String, Reader)| !version.is_empty() && known == version;
        if lock(&self.copied).get(&key).is_some_and(is_known) {
            return Ok(());
        }
        let read = self.parse(object)?;
        lock(&self.copied).insert(key, (version.to_owned(), read));
        self.changed();
        Ok(())
    }

    fn keep(&mut self, meta: &Meta<'_>) {
        self.note(&key(meta));
        self.changed();
    }

    async fn delete(&mut self, meta: &Meta<'_>) -> Result<(), Stopped> {
        lock(&self.copied).remove(&key(meta));
        self.changed();
        Ok(())
    }

    async fn end(&mut self, _: u64) -> Result<(), Stopped> {
        if let Some(listed) = self.listed.take() {
            lock(&self.copied).retain(|key, _| listed.contains(key));
        }
        self.changed();
        Ok(())
    }
}
