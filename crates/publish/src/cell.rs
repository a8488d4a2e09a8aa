//! The contract of the publication cell: one writer replaces the current version, any number of readers take it.
//!
//! The contract is a trait so that several algorithms fit behind one reader type, and one suite measures and tests them
//! all. The trait is sealed, and only this crate can call its methods: the memory-safety arguments in the contract bind
//! implementers and callers, and foreign code could not be held to them.

pub(crate) mod sealed {
    //! The parts of a cell. `pub` in name only: no path leads here from outside the crate.

    use std::ops::Deref;
    use std::sync::Arc;

    use super::super::replaced::{Pins, Replaced};

    /// A publication algorithm: one writer, registered readers.
    pub trait Algorithm<T> {
        /// The single writer's end.
        type Writer: WriteEnd<T, ReadEnd = Self::Reader>;
        /// A registered reader's end.
        type Reader: ReadEnd<T> + 'static;

        /// Creates a cell whose current version is `first`.
        fn start(first: Arc<T>) -> Self::Writer;
    }

    /// The single writer's end of a cell.
    pub trait WriteEnd<T>: Send {
        /// The readers' end.
        type ReadEnd;

        /// Registers a reader. May allocate.
        fn reader(&self) -> Self::ReadEnd;

        /// Makes `next` the current version and returns the version it replaced, which pins may still reach.
        fn replace(&mut self, next: Arc<T>) -> Replaced<T>;

        /// Records in `pins` which replaced versions pins may reach. O(readers).
        ///
        /// A version that no pin reaches now is never reached again, because readers take only the current version.
        fn scan(&self, pins: &mut Pins);

        /// Ends the writer. `rest` holds the versions that pins still reach; the last owner of the cell frees them.
        fn leave(&mut self, rest: Vec<Replaced<T>>);
    }

    /// A registered reader's end of a cell. Dropping it ends the registration.
    pub trait ReadEnd<T>: Send {
        /// A pinned version. Stays on the thread that pinned it.
        type Guard<'a>: Deref<Target = T>
        where
            Self: 'a;

        /// Pins the current version briefly. Bounded steps; no lock, no allocation, no shared count.
        fn pin(&self) -> Self::Guard<'_>;

        /// Returns an owned handle to the current version, without a time limit. The reader keeps nothing.
        fn load(&self) -> Arc<T>;

        /// Releases any version kept between pins.
        fn rest(&mut self);

        /// Registers another reader. May allocate.
        fn another(&self) -> Self;
    }
}

/// Holds the current version.
///
/// An implementation guarantees:
///
/// 1. **No tearing.** A reader pins or takes only versions that were given to the cell, and sees them whole: everything
///    the writer did before handing a version over happens before the reader's first access.
/// 2. **Monotone.** The versions that one reader takes never go back. A read that happens after a replacement returns
///    that version or a later one.
/// 3. **Stable.** A version neither changes nor is freed while a guard or handle refers to it.
/// 4. **Wait-free for readers, never waiting for them.** A pin is a bounded number of steps without lock, allocation or
///    shared count. A replacement never waits for a reader. Implementations document their exceptions.
/// 5. **Exact.** The writer's side frees a replaced version exactly once: when the cell reports that no pin reaches it
///    and the writer's handle is the last. One atomic step both decides that the handle is the last and gives it up.
///    Weak handles can be upgraded until that step, and never afterwards.
///
/// [`RcuCell`](super::rcu::RcuCell) meets this contract without exceptions.
pub trait Cell<T>: sealed::Algorithm<T> {}

impl<T, C: sealed::Algorithm<T>> Cell<T> for C {}
