//! The contract of the publication cell: one writer replaces the current version, any number of readers take it.
//!
//! It is a trait so that several algorithms can stand behind one reader and be measured and checked by one suite, and
//! it is sealed because the contract below carries memory safety arguments that a foreign implementation could not be
//! held to.

use std::ops::Deref;
use std::sync::Arc;

/// Keeps [`Cell`] to this crate.
pub(crate) mod sealed {
    /// Implemented by the cells of this crate.
    pub trait Sealed {}
}

/// A place that holds the current version.
///
/// What an implementation promises:
///
/// 1. **No tearing.** [`pin`](Cell::pin) and [`load`](Cell::load) give a version that was once given to
///    [`new`](Cell::new) or [`replace`](Cell::replace), whole: everything its maker did before handing it over
///    happens before the reader's first look.
/// 2. **Monotone.** What one thread takes never goes back; and a taking that happens after a `replace` gives that
///    version or a later one.
/// 3. **Stable.** What a guard or a handle refers to neither changes nor is freed while the guard or handle lives.
/// 4. **Wait-free for readers, never waiting for them.** `pin` is a bounded number of steps without lock, allocation
///    or shared count (exceptions are written at the implementation); `replace` never waits for a reader.
/// 5. **Exact counts.** Once [`quiet`](Cell::quiet) exceeds the ordinal of a replaced version, the strong count of its
///    handle is the number of its holders, and nobody can become one except by cloning a handle.
pub trait Cell<T>: sealed::Sealed + Send + Sync {
    /// What one registered reader has of its own: nothing, or the slot in which it announces its pins.
    type Slot: Send;

    /// A pinned version; at most as long-lived as the slot it is announced in.
    type Guard<'a>: Deref<Target = T>
    where
        Self: 'a;

    /// A cell whose current version is `first`.
    fn new(first: Arc<T>) -> Self;

    /// Registers a reader. May take a lock and allocate; dropping the slot ends the registration.
    fn register(&self) -> Self::Slot;

    /// The current version, for a short look: bounded steps, no lock, no allocation, no shared count.
    fn pin<'a>(&'a self, slot: &'a Self::Slot) -> Self::Guard<'a>;

    /// An owned handle to the current version, to be held as long as one likes.
    fn load(&self, slot: &Self::Slot) -> Arc<T>;

    /// Makes `next` the current version and gives the one it replaces. One thread at a time: the writer's.
    fn replace(&self, next: Arc<T>) -> Arc<T>;

    /// How many of the versions replaced so far, counted from the first, no pin can reach any more.
    ///
    /// `u64::MAX` where a replaced version's count is exact as soon as `replace` returns.
    fn quiet(&self) -> u64;
}
