//! The unbounded stream of notes, and a bell to wait on as well: `crossbeam-channel`, with a stand-in under loom.
//!
//! A thread that waits for notes also waits for other conditions, under a lock that the stream does not know about. So
//! this module offers one wait for either, which takes nothing out. The guarantees are few:
//!
//! 1. Every entry sent comes out exactly once and in order, and sending it happens before receiving it.
//! 2. [`Bell::wait`] returns if the bell has been rung and not silenced since, if the stream has an entry, or if the
//!    stream's sender is gone, even if that happens between the caller's last check and the wait. It may also return
//!    spuriously.
//! 3. An event that ends one wait ends all of them, because waiting does not receive.

#[cfg(not(loom))]
pub use self::shipping::{Bell, Sender, Stream, stream};

#[cfg(loom)]
pub use self::stand_in::{Bell, Sender, Stream, stream};

/// The reason nothing came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nothing {
    /// The stream is empty now.
    Now,
    /// The stream is empty and the sender is gone.
    Ever,
}

impl Default for Bell {
    fn default() -> Bell {
        Bell::new()
    }
}

#[cfg(not(loom))]
#[expect(clippy::len_without_is_empty, reason = "lengths are for figures")]
mod shipping {
    use std::time::Instant;

    use crossbeam_channel::{self as channel, Receiver, RecvTimeoutError, Select, TryRecvError};

    use super::Nothing;

    /// The sending end.
    #[derive(Debug)]
    pub struct Sender<T>(channel::Sender<T>);

    /// The receiving end. Clones share the entries.
    #[derive(Clone, Debug)]
    pub struct Stream<T>(Receiver<T>);

    /// Creates both ends.
    pub fn stream<T>() -> (Sender<T>, Stream<T>) {
        let (sender, receiver) = channel::unbounded();
        (Sender(sender), Stream(receiver))
    }

    impl<T> Sender<T> {
        /// Sends an entry, and returns whether there is a receiver.
        pub fn send(&self, entry: T) -> bool {
            self.0.send(entry).is_ok()
        }

        /// How many entries wait.
        pub fn len(&self) -> usize {
            self.0.len()
        }
    }

    impl<T> Stream<T> {
        pub fn try_next(&self) -> Result<T, Nothing> {
            self.0.try_recv().map_err(|why| match why {
                TryRecvError::Empty => Nothing::Now,
                TryRecvError::Disconnected => Nothing::Ever,
            })
        }

        /// The next entry, waiting for it until `deadline`, or for ever without one.
        pub fn next_until(&self, deadline: Option<Instant>) -> Result<T, Nothing> {
            let Some(deadline) = deadline else { return self.0.recv().map_err(|_| Nothing::Ever) };
            self.0.recv_deadline(deadline).map_err(|why| match why {
                RecvTimeoutError::Timeout => Nothing::Now,
                RecvTimeoutError::Disconnected => Nothing::Ever,
            })
        }

        pub fn len(&self) -> usize {
            self.0.len()
        }
    }

    /// Wakes waiting threads. Several rings before a `silence` count as one.
    #[derive(Debug)]
    pub struct Bell {
        ring: channel::Sender<()>,
        rung: Receiver<()>,
    }

    impl Bell {
        pub fn new() -> Bell {
            let (ring, rung) = channel::bounded(1);
            Bell { ring, rung }
        }

        pub fn ring(&self) {
            // If the bell was already rung, the waiters are already woken.
            let _ = self.ring.try_send(());
        }

        /// Cancels the rings so far.
        pub fn silence(&self) {
            while self.rung.try_recv().is_ok() {}
        }

        /// Whether the bell has been rung and not silenced since.
        pub fn is_rung(&self) -> bool {
            !self.rung.is_empty()
        }

        /// Waits for a ring or an entry in `beside`, until the deadline `until` if there is one.
        pub fn wait<T>(&self, beside: Option<&Stream<T>>, until: Option<Instant>) {
            let mut select = Select::new();
            select.recv(&self.rung);
            if let Some(Stream(receiver)) = beside {
                select.recv(receiver);
            }
            match until {
                // The caller checks for itself whether the time ran out.
                Some(until) => drop(select.ready_deadline(until)),
                None => drop(select.ready()),
            }
        }
    }
}

/// A waiting thread registers with both the bell and the stream, and either wakes it. Time stands still, so deadlines
/// are ignored: a lost wake-up is a deadlock, which loom reports.
#[cfg(loom)]
mod stand_in {
    use std::collections::VecDeque;
    use std::time::Instant;

    use super::Nothing;
    use crate::sync::thread::{self, Thread};
    use crate::sync::{Arc, Mutex, lock};

    #[derive(Debug)]
    struct Shared<T> {
        entries: VecDeque<T>,
        receivers: usize,
        is_closed: bool,
        waiting: Vec<Thread>,
    }

    #[derive(Debug)]
    pub struct Sender<T>(Arc<Mutex<Shared<T>>>);

    #[derive(Debug)]
    pub struct Stream<T>(Arc<Mutex<Shared<T>>>);

    pub fn stream<T>() -> (Sender<T>, Stream<T>) {
        let shared = Shared {
            entries: VecDeque::new(),
            receivers: 1,
            is_closed: false,
            waiting: Vec::new(),
        };
        let shared = Arc::new(Mutex::new(shared));
        (Sender(shared.clone()), Stream(shared))
    }

    fn wake(waiting: &mut Vec<Thread>) {
        waiting.drain(..).for_each(|thread| thread.unpark());
    }

    impl<T> Sender<T> {
        pub fn send(&self, entry: T) -> bool {
            let mut shared = lock(&self.0);
            if shared.receivers == 0 {
                return false;
            }
            shared.entries.push_back(entry);
            wake(&mut shared.waiting);
            true
        }

        pub fn len(&self) -> usize {
            lock(&self.0).entries.len()
        }
    }

    impl<T> Drop for Sender<T> {
        fn drop(&mut self) {
            let mut shared = lock(&self.0);
            shared.is_closed = true;
            wake(&mut shared.waiting);
        }
    }

    impl<T> Stream<T> {
        pub fn try_next(&self) -> Result<T, Nothing> {
            let mut shared = lock(&self.0);
            let nothing = if shared.is_closed { Nothing::Ever } else { Nothing::Now };
            shared.entries.pop_front().ok_or(nothing)
        }

        pub fn len(&self) -> usize {
            lock(&self.0).entries.len()
        }
    }

    impl<T> Clone for Stream<T> {
        fn clone(&self) -> Stream<T> {
            lock(&self.0).receivers += 1;
            Stream(self.0.clone())
        }
    }

    impl<T> Drop for Stream<T> {
        fn drop(&mut self) {
            lock(&self.0).receivers -= 1;
        }
    }

    #[derive(Debug)]
    pub struct Bell(Mutex<Rung>);

    #[derive(Debug)]
    struct Rung {
        is_rung: bool,
        waiting: Vec<Thread>,
    }

    impl Bell {
        pub fn new() -> Bell {
            Bell(Mutex::new(Rung { is_rung: false, waiting: Vec::new() }))
        }

        pub fn ring(&self) {
            let mut rung = lock(&self.0);
            rung.is_rung = true;
            wake(&mut rung.waiting);
        }

        pub fn silence(&self) {
            lock(&self.0).is_rung = false;
        }

        pub fn wait<T>(&self, beside: Option<&Stream<T>>, _until: Option<Instant>) {
            {
                let mut rung = lock(&self.0);
                if rung.is_rung {
                    return;
                }
                rung.waiting.push(thread::current());
            }
            if let Some(Stream(stream)) = beside {
                let mut shared = lock(stream);
                if shared.is_closed || !shared.entries.is_empty() {
                    return;
                }
                shared.waiting.push(thread::current());
            }
            thread::park();
        }
    }
}
