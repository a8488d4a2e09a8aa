//! Publication from one writer to any number of readers: a [`Publisher`] makes a whole version current with one atomic
//! swap, and a [`Subscription`] reads it. Both are generic over their contents and know nothing of clusters.
//!
//! # What publication promises
//!
//! - **Publish** ([`Publisher::publish`]): after it returns, every later read returns this version or a newer one. It
//!   never waits for a reader. Version numbers only grow; a version that is not newer is returned to the caller.
//! - **Pin** ([`Subscription::pin`]): gives brief access to a whole version in a bounded number of steps: no lock, no
//!   allocation, no count that other threads write. Guards stay on their thread and may nest. The versions that one
//!   subscription sees never go back. A reader that pins one version repeatedly keeps it until its next pin after a
//!   publish, or until it calls [`Subscription::release`] before going idle.
//! - **Snapshot** ([`Subscription::snapshot`]): returns an owned handle, `Send` and without a time limit. Holding one
//!   delays nobody; it costs the memory that its version does not share with others.
//! - **Refresh** ([`Subscription::refresh`]): returns a version that the reader keeps. One load and one compare if
//!   nothing changed.
//! - **At least** ([`Subscription::at_least`]): lets a thread read its own writes. It returns when the version number
//!   is reached, at the deadline, or with `Closed` when the publisher is gone. No wake-up is lost. A publish without
//!   waiters pays one fence and one load for this. [`Subscription::reached`] is the same for tasks: a future.
//! - **Retire**: the publisher keeps a handle to every replaced version until nobody else has one, and then frees the
//!   version. So no reader ever frees a version while the publisher lives, and a weak handle can be upgraded until
//!   then. Each publish examines a constant number of versions; [`Publisher::reclaim`] examines all of them. An idle
//!   publisher frees nothing until its next call. A reader that stops forever costs memory and blocks nobody;
//!   [`Figures`] shows it.
//! - **Free**: a large version is freed over many publishes. Each publish drops a number of references proportional to
//!   the change it publishes ([`Versioned::made`]), enough that the backlog always shrinks. [`Publisher::reclaim_some`]
//!   frees more, and [`Publisher::reclaim`] frees everything at once.
//!
//! # Why our own cell
//!
//! Its algorithm is in `src/rcu/protocol.md`. The reasons for it, in this order:
//!
//! 1. It can be model-checked: loom runs its source, and a mutant shows that each of its orderings and fences is
//!    needed. Loom cannot see inside arc-swap, which also has an open unsoundness report (its issue 210).
//! 2. Its contract has no exceptions: no pin allocates, and nested guards cost the same as the first
//!    (the first pin of arc-swap allocates, and its ninth guard increments the count).
//! 3. A pin costs less than one of arc-swap (`cargo bench --bench read`).
//!
//! arc-swap has one advantage: an idle reader never holds a version, and does not need to call `release`.
//!
//! # Limits
//!
//! Two pins may see two versions, so use one pin per decision. A subscription is `Send` and not `Sync`: use one per
//! thread.
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//! use portolan_publish::{Publisher, Subscription, Versioned};
//!
//! struct Fleet { version: u64, ships: Vec<&'static str> }
//! impl Versioned for Fleet {
//!     fn version(&self) -> u64 { self.version }
//! }
//!
//! let mut publisher: Publisher<Fleet> = Publisher::new(Arc::new(Fleet { version: 0, ships: vec![] }));
//! let reader: Subscription<Fleet> = publisher.subscribe();
//! let held = reader.snapshot();
//!
//! publisher.publish(Arc::new(Fleet { version: 1, ships: vec!["Pinta"] }))?;
//! assert_eq!(reader.pin().ships, ["Pinta"]);
//! assert!(held.ships.is_empty());
//! assert_eq!(publisher.figures().oldest_held, Some(0));
//! # Ok::<(), portolan_publish::NotNewer<Fleet>>(())
//! ```

use std::fmt;
use std::sync::Arc;

#[doc(hidden)]
pub mod freeing;
#[doc(hidden)]
pub mod hash;
pub mod log;
mod publisher;
mod rcu;
mod reader;
mod replaced;
mod retired;
mod signal;
#[doc(hidden)]
pub mod sync;

pub use self::publisher::{Figures, Publisher};
pub use self::rcu::Pinned;
pub use self::reader::Subscription;
pub use self::signal::Reached;

/// A type that is published version by version.
pub trait Versioned: Send + Sync + 'static {
    /// The version number, at most `2^63 - 1`. It grows with every version that one publisher publishes, and never
    /// changes.
    fn version(&self) -> u64;

    /// Child slots allocated for this version and all earlier ones; never decreases.
    ///
    /// A slot is one reference from a tree node to a child. Each publish frees slightly more than the slots allocated
    /// since the last one while a backlog exists.
    ///
    /// A type that is freed as a whole has no slots to count, and keeps the default of 0.
    fn made(&self) -> u64 {
        0
    }
}

/// The reason a wait for a version failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    /// The deadline passed first.
    #[error("the version was not published before the deadline: wait longer or take an older one")]
    Timeout,
    /// The publisher is gone, and the version will never be published.
    #[error("the publisher is gone and never published this version: take the last one")]
    Closed,
}

/// Rejects a version that is not newer than the current one, and returns it.
#[derive(thiserror::Error)]
#[error("publish a version newer than {published}, not {}", version.version())]
pub struct NotNewer<T: Versioned> {
    /// The version that was rejected.
    pub version: Arc<T>,
    /// The number of the current version.
    pub published: u64,
}

impl<T: Versioned> fmt::Debug for NotNewer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NotNewer")
            .field("version", &self.version.version())
            .field("published", &self.published)
            .finish()
    }
}

#[cfg(all(test, not(loom)))]
mod promises;

/// Internals that the loom models use. Not part of the public API.
#[cfg(loom)]
#[doc(hidden)]
pub mod __model {
    pub use crate::log::model::*;
    pub use crate::rcu::model::*;
}
