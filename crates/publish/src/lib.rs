//! From one writer to any number of readers: the current version, and an index of what is true now.
//!
//! Two structures, for two questions. **Which consistent whole do I decide on?** A [`Publisher`] makes a whole version
//! current by one swap, and a [`Subscription`] takes it. **Where is this one thing at this moment?** A
//! [`live::LiveIndex`] answers single look-ups without a version around them. Both are generic over what they carry
//! and know nothing of clusters.
//!
//! # What publication promises
//!
//! - **Publish** ([`Publisher::publish`]): after it returns, every taking that happens later gives this version or a newer
//!   one. It never waits for a reader. Numbers only grow; a version that is not newer is given back.
//! - **Pin** ([`Subscription::pin`]): a whole version, for a short look, in a bounded number of steps: no lock, no
//!   allocation, no count that other threads write. Guards stay on their thread and may nest; what one subscription
//!   sees never goes back. A reader that pins one version again and again keeps it until its next pin after a publish,
//!   or until it says that it will be idle ([`Subscription::release`]).
//! - **Snapshot** ([`Subscription::snapshot`]): the same as an owned handle, `Send` and without limit in time. Holding one
//!   holds nothing up; it costs the memory that its version does not share with others.
//! - **Refresh** ([`Subscription::refresh`]): a version kept by the reader; one load and one compare when nothing changed.
//! - **At least** ([`Subscription::at_least`]): read one's own writes. Wakes when the number is reached, at the deadline,
//!   or with `Closed` when the publisher is gone. No wake-up is lost, and a publish that nobody waits for pays one
//!   fence and one load for that.
//! - **Retire**: the publisher keeps a handle to every replaced version until nobody else has one, and frees it then, so
//!   no reader ever frees a version while the publisher lives, and a weak handle can be upgraded until then. Each publish
//!   looks at a constant number of versions; [`Publisher::reclaim`] looks at all. A publisher that stays idle frees
//!   nothing until its next call. A reader that stops for ever costs memory and holds nobody up; [`Figures`] shows it.
//! - **Free**: a large version is freed over many publishes. Each publish drops a number of references that follows the
//!   change it publishes ([`Versioned::made`]), enough that the backlog always gets shorter. [`Publisher::reclaim_some`]
//!   does more of it, and [`Publisher::reclaim`] all at once.
//!
//! # Which cell
//!
//! A publisher is generic over the [cell](cell::Cell) that holds the current version, and one suite of tests runs over
//! all of them. The default is [`RcuCell`](rcu::RcuCell), for these reasons in this order:
//!
//! 1. It is the one that can be checked: loom runs its source, and each of its orderings and fences is shown to be
//!    needed. [`ArcSwapCell`](arc_swap::ArcSwapCell) stands outside loom's sight, and its crate has an open report of
//!    unsoundness (its issue 210).
//! 2. Its contract has no exceptions: no first pin that allocates, no ninth guard that counts.
//! 3. A pin costs about a quarter of the other's, and a publish less (`cargo bench --bench read`).
//!
//! What the other does better: a reader that pinned and then rests never holds a version, and needs not say that it
//! rests.
//!
//! # What it does not
//!
//! Two pins may see two versions: a decision takes one. A subscription is `Send` and not `Sync`: one a thread.
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

#[cfg(all(feature = "arc-swap", not(loom)))]
pub mod arc_swap;
pub mod cell;
pub mod freeing;
#[doc(hidden)]
pub mod hash;
#[cfg(feature = "left-right")]
pub mod live;
pub mod log;
mod publisher;
pub mod rcu;
mod reader;
mod replaced;
mod retired;
mod signal;
#[doc(hidden)]
pub mod sync;

pub use self::publisher::{Figures, Publisher};
pub use self::reader::{Pinned, Subscription};

/// The cell that publishers use unless told otherwise.
pub type DefaultCell<T> = self::rcu::RcuCell<T>;

/// A thing that is published, version after version.
pub trait Versioned: Send + Sync + 'static {
    /// The number of this version, at most `2^63 - 1`: grows with every version that one publisher publishes, and
    /// never changes.
    fn version(&self) -> u64;

    /// Child slots allocated for this version and all earlier ones; never decreases. A slot is one reference from a tree
    /// node to a child. Each publish frees slightly more than that while a backlog exists.
    ///
    /// A type that is freed as a whole has nothing to count, and keeps the 0 of the default.
    fn made(&self) -> u64 {
        0
    }
}

/// Why a wait for a version ended without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    /// The deadline passed first.
    #[error("the version was not published before the deadline: wait longer or take an older one")]
    Timeout,
    /// The publisher is gone, and the version will never be published.
    #[error("the publisher is gone and never published this version: take the last one")]
    Closed,
}

/// A version that was not published because it is not newer than the published one; gives it back.
#[derive(thiserror::Error)]
#[error("publish a version newer than {published}, not {}", version.version())]
pub struct NotNewer<T: Versioned> {
    /// What was to be published.
    pub version: Arc<T>,
    /// The number of the version that is current.
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
mod tests;

/// What the loom models reach beyond the public face. Not for anybody else.
#[cfg(loom)]
#[doc(hidden)]
pub mod __model {
    pub use crate::log::model::*;
    pub use crate::rcu::model::*;
}
