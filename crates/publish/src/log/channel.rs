//! The bounded queue of the log: `crossbeam-channel`, with a stand-in under loom.
//!
//! Only the non-blocking operations are used. Our own code around the queue decides who waits and who is woken, and the
//! models cover that code. So a queue has to guarantee little:
//!
//! 1. Every accepted entry comes out exactly once, and entries of one thread come out in order.
//! 2. Pushing an entry happens before popping it.
//! 3. `push` fails only if the queue is full. `pop` and `is_empty` see an entry whose push happens before them (or is
//!    ordered before them by fences). They may miss a concurrent push.

#[cfg(not(loom))]
pub(crate) use self::shipping::Queue;

#[cfg(loom)]
pub(crate) use self::stand_in::Queue;

#[cfg(not(loom))]
mod shipping {
    use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

    /// A bounded queue that owns both ends of one channel.
    pub(crate) struct Queue<T> {
        sender: Sender<T>,
        receiver: Receiver<T>,
    }

    impl<T> Queue<T> {
        /// A queue for `capacity` entries, at least one.
        pub(crate) fn new(capacity: usize) -> Self {
            // A zero-capacity channel accepts an entry only while a receiver blocks on it, and ours never block.
            let (sender, receiver) = bounded(capacity.max(1));
            Self { sender, receiver }
        }

        /// Appends `entry`, or returns it if the queue is full.
        #[inline]
        pub(crate) fn push(&self, entry: T) -> Result<(), T> {
            self.sender.try_send(entry).map_err(TrySendError::into_inner)
        }

        /// Removes the oldest entry.
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

/// The weakest queue with these guarantees: the length is read without the lock, and may be stale.
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
            // Relaxed: guarantee 3 needs only the happens-before and the fences that exist anyway.
            self.len.load(Ordering::Relaxed)
        }

        pub(crate) fn capacity(&self) -> usize {
            self.capacity
        }
    }
}
