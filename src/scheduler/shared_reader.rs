//! One reader for the plugins of all threads.

use std::fmt;
use std::sync::Arc;

use crate::engine::Reader;
use crate::framework::Snapshots;
use crate::snapshot::Snapshot;
use crate::sync::{Mutex, lock};

/// A [`Reader`] that threads share: what a handle gives plugins outside of a cycle
/// ([`Handle::with_snapshots`](crate::framework::Handle::with_snapshots)).
///
/// A reader is one thread's, so this one is behind a lock, held for as long as it takes to
/// load a version. A thread that reads often has a reader of its own. Does not keep the
/// engine alive; of one that is gone it gives the last version.
///
/// ```
/// use std::sync::Arc;
/// use portolan::framework::Handle;
/// use portolan::log::Event;
/// use portolan::model::node;
/// use portolan::scheduler::SharedReader;
/// use portolan::{Config, Engine};
///
/// let engine = Engine::shared(Config::default());
/// let handle = Handle::default().with_snapshots(Arc::new(SharedReader::new(engine.reader()?)));
/// engine.submit(Event::add_node(node("n1").build()))?.wait()??;
/// assert_eq!(handle.snapshot().map(|snapshot| snapshot.len()), Some(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SharedReader(Mutex<Reader>);

impl SharedReader {
    /// Shares this reader.
    #[must_use]
    pub fn new(reader: Reader) -> SharedReader {
        SharedReader(Mutex::new(reader))
    }
}

impl Snapshots for SharedReader {
    fn snapshot(&self) -> Arc<Snapshot> {
        lock(&self.0).snapshot()
    }
}

impl fmt::Debug for SharedReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReader").finish_non_exhaustive()
    }
}
