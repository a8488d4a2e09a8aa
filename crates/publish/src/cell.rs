//! The contract of the publication cell: one writer replaces the current version, any number of readers take it.
//!
//! It is a trait so that several algorithms can stand behind one reader and be measured and checked by one suite. It
//! is sealed, and what it consists of can be called by this crate alone: the contract carries arguments about memory
//! safety that neither a foreign implementation nor a foreign caller could be held to.

pub(crate) mod sealed {
    //! What a cell consists of. Public in name only: no path leads here from outside.

    use std::ops::Deref;
    use std::sync::Arc;

    use super::super::replaced::{Pins, Replaced};

    /// An algorithm by which one writer publishes to registered readers.
    pub trait Algorithm<T> {
        /// The one writer's end.
        type Writer: WriteEnd<T, ReadEnd = Self::Reader>;
        /// One registered reader's end.
        type Reader: ReadEnd<T> + 'static;

        /// A cell whose current version is `first`.
        fn start(first: Arc<T>) -> Self::Writer;
    }

    /// The one writer's end of a cell.
    pub trait WriteEnd<T>: Send {
        /// The readers' ends.
        type ReadEnd;

        /// Registers a reader. May allocate.
        fn reader(&self) -> Self::ReadEnd;

        /// Makes `next` the current version and gives the one it replaces, which pins may still reach.
        fn replace(&mut self, next: Arc<T>) -> Replaced<T>;

        /// Writes down in `pins` what pins may reach of the versions replaced so far. O(readers).
        ///
        /// What they do not reach now they never will again: readers take the current version only.
        fn look(&self, pins: &mut Pins);

        /// Ends the writer and leaves `rest`, the versions that pins still reach, to whoever ends last.
        fn leave(&mut self, rest: Vec<Replaced<T>>);
    }

    /// One registered reader's end of a cell; dropping it ends the registration.
    pub trait ReadEnd<T>: Send {
        /// A pinned version. Stays on the thread that pinned it.
        type Guard<'a>: Deref<Target = T>
        where
            Self: 'a;

        /// The current version, for a short look: bounded steps, no lock, no allocation, no shared count.
        fn pin(&self) -> Self::Guard<'_>;

        /// An owned handle to the current version, to be held as long as one likes. The reader keeps nothing.
        fn load(&self) -> Arc<T>;

        /// Lets go of what the reader may have kept from one pin to the next.
        fn rest(&mut self);

        /// Registers another reader. May allocate.
        fn another(&self) -> Self;
    }
}

/// A place that holds the current version.
///
/// What an implementation promises:
///
/// 1. **No tearing.** What is pinned or taken is a version that was once given to the cell, whole: everything its
///    maker did before handing it over happens before the reader's first look.
/// 2. **Monotone.** What one reader takes never goes back; and a taking that happens after a replacement gives that
///    version or a later one.
/// 3. **Stable.** What a guard or a handle refers to neither changes nor is freed while the guard or handle lives.
/// 4. **Wait-free for readers, never waiting for them.** A pin is a bounded number of steps without lock, allocation
///    or shared count; a replacement never waits for a reader. Exceptions are written at the implementation.
/// 5. **Exact.** A replaced version is freed by the writer's side, once: when no pin reaches it, which the cell reports,
///    and when the writer's handle is the last, which is decided in one step with giving it up. Weak handles can be
///    upgraded until then, and never afterwards.
///
/// [`RcuCell`](super::rcu::RcuCell) keeps this contract without exceptions.
pub trait Cell<T>: sealed::Algorithm<T> {}

impl<T, C: sealed::Algorithm<T>> Cell<T> for C {}
