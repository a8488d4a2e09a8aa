//! A reader that the plugins of all threads share.

use std::fmt;
use std::sync::Arc;

use crate::engine::Reader;
use crate::framework::Snapshots;
use crate::snapshot::Snapshot;
use crate::sync::{Mutex, lock};

/// A [`Reader`] that threads share. A handle gives it to plugins that read outside of a cycle
/// ([`Handle::with_snapshots`](crate::plugin::Handle::with_snapshots)).
///
/// A reader belongs to one thread, so this type keeps one behind a lock, which it holds only while it loads a version.
/// A thread that reads often should have its own reader. Does not keep the engine alive; when the engine is gone, the
/// last version is returned.
///
/// ```
/// use std::sync::Arc;
/// use portolan::cache::{Config, Engine, Event};
/// use portolan::model::node;
/// use portolan::plugin::Handle;
/// use portolan::scheduler::SharedReader;
///
/// let engine = Engine::shared(Config::default());
/// let handle = Handle::default().with_snapshots(Arc::new(SharedReader::new(engine.reader()?)));
/// engine.submit(Event::add_node(node("n1").build()))?.wait()??;
/// assert_eq!(handle.snapshot().map(|snapshot| snapshot.len()), Some(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SharedReader(Mutex<Reader>);

impl SharedReader {
    /// Wraps this reader.
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
