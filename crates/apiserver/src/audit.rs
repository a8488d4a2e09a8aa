//! A record of every write of clients, as an audit log at the level Request.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::Value;

/// One write.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Write {
    /// The time since the server started.
    pub at: Duration,
    /// create, update, patch or delete.
    pub verb: &'static str,
    /// The plural, and the subresource after a slash: `pods`, `pods/binding`.
    pub resource: String,
    /// Empty for cluster-scoped kinds.
    pub namespace: String,
    /// The name, which may be generated. Empty if a request without a name was refused.
    pub name: String,
    /// The request body. Null if it was empty or not JSON.
    pub body: Value,
    /// The status code of the response. If a fault suppressed the response: the code it would have had, or 0 if the
    /// write was not done.
    pub code: u16,
    /// Whether the write was done. With a fault, a write may be done although the response was an error.
    pub applied: bool,
    /// Whether a response was sent. Only faults count: the server does not notice that a client disconnects.
    pub answered: bool,
    /// The header `User-Agent`; `direct` for a call in the process.
    pub user_agent: String,
}

#[derive(Debug)]
pub(crate) struct Audit {
    start: Instant,
    /// The writes, without their bodies, which are parsed when the record is read.
    entries: Mutex<Vec<(Write, Bytes)>>,
}

impl Audit {
    pub(crate) fn new() -> Self {
        Audit { start: Instant::now(), entries: Mutex::new(Vec::new()) }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Write, Bytes)>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a write at the present time.
    pub(crate) fn record(&self, mut write: Write, body: Bytes) {
        let mut entries = self.lock();
        // Under the lock, so that times never run backwards.
        write.at = self.start.elapsed();
        entries.push((write, body));
    }

    /// Removes the writes so far.
    pub(crate) fn take(&self) -> Vec<Write> {
        let taken = std::mem::take(&mut *self.lock());
        // The bodies are parsed without the lock.
        taken.iter().map(write).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// The writes so far.
    pub(crate) fn writes(&self) -> Vec<Write> {
        self.lock().iter().map(write).collect()
    }
}

fn write((write, body): &(Write, Bytes)) -> Write {
    Write { body: serde_json::from_slice(body).unwrap_or_default(), ..write.clone() }
}
