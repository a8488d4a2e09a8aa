//! The bounded queue of the log: `crossbeam-channel`, and a stand-in of ours under loom.
//!
//! Only its non-blocking half is used. Who waits, for room or for events, and who is woken, is decided in our own code
//! beside it, where the models see it; so a queue has to promise little:
//!
//! 1. What is accepted comes out exactly once, and what one thread puts in comes out in its order.
//! 2. An entry happens before its coming out.
//! 3. `push` refuses only when the queue is full, `pop` and `is_empty` see an entry whose push happens before them (or is
//!    ordered before them by fences). What another thread pushes at the same moment they may miss.

#[cfg(not(loom))]
pub(crate) use self::shipping::Queue;

#[cfg(loom)]
pub(crate) use self::stand_in::Queue;

#[cfg(not(loom))]
mod shipping {
    use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

    /// A bounded queue over one channel, whose two ends live and end together.
    pub(crate) struct Queue<T> {
        sender: Sender<T>,
        receiver: Receiver<T>,
    }

    impl<T> Queue<T> {
        /// A queue for `capacity` entries, at least one.
        pub(crate) fn new(capacity: usize) -> Self {
            // A channel without capacity would accept nothing unless a receiver waited in it, and ours never wait.
            let (sender, receiver) = bounded(capacity.max(1));
            Self { sender, receiver }
        }

        /// Appends `entry`, or gives it back when there is no room.
        #[inline]
        pub(crate) fn push(&self, entry: T) -> Result<(), T> {
            self.sender.try_send(entry).map_err(TrySendError::into_inner)
        }

        /// Takes the oldest entry.
        #[inline]
        pub(crate) fn pop(&self) -> Option<T> {
            self.receiver.try_recv().ok()
        }

        #[inline]
        pub(crate) fn is_empty(&self) -> bool {
            self.receiver.is_empty()
        }

        pub(crate) fn len(&self) -> usize {
            self.receiver.len()
        }

        pub(crate) fn capacity(&self) -> usize {
            self.sender.capacity().unwrap_or(usize::MAX)
        }
    }
}

/// The weakest queue that keeps the promises above: the length is read without the lock, and may be out of date.
#[cfg(loom)]
mod stand_in {
    use std::collections::VecDeque;

    use crate::sync::{AtomicUsize, Mutex, Ordering, lock};

    pub(crate) struct Queue<T> {
        entries: Mutex<VecDeque<T>>,
        len: AtomicUsize,
        capacity: usize,
    }

    impl<T> Queue<T> {
        pub(crate) fn new(capacity: usize) -> Self {
            Self {
                entries: Mutex::new(VecDeque::new()),
                len: AtomicUsize::new(0),
                capacity: capacity.max(1),
            }
        }

        pub(crate) fn push(&self, entry: T) -> Result<(), T> {
            let mut entries = lock(&self.entries);
            if entries.len() == self.capacity {
                return Err(entry);
            }
            entries.push_back(entry);
            self.len.store(entries.len(), Ordering::Relaxed);
            Ok(())
        }

        pub(crate) fn pop(&self) -> Option<T> {
            if self.is_empty() {
                return None;
            }
            let mut entries = lock(&self.entries);
            let entry = entries.pop_front();
            self.len.store(entries.len(), Ordering::Relaxed);
            entry
        }

        pub(crate) fn is_empty(&self) -> bool {
            self.len() == 0
        }

        pub(crate) fn len(&self) -> usize {
            // Relaxed: promise 3 asks for no more than the happens-before and the fences that are there anyway.
            self.len.load(Ordering::Relaxed)
        }

        pub(crate) fn capacity(&self) -> usize {
            self.capacity
        }
    }
}
