//! Stops all writes once this process may no longer be the active scheduler.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::sleep;

/// Closed for good.
const LOST: u64 = 0;
/// Not opened yet: a deadline that has always passed.
const NOT_YET: u64 = 1;
/// Open without a deadline.
const ALWAYS: u64 = u64::MAX;

/// Permission to write, which leader election grants for a limited time and revokes for good.
///
/// The permission is a deadline and not a flag. A process that was stopped, or whose timers are late, therefore finds
/// the fence closed when it resumes, even if no other task has run yet. The deadline must lie before the end of the
/// lease by the time that a request may take on the network: the fence is checked before a request is sent, and while
/// its connection is being made, and a request that has been sent cannot be recalled.
///
/// Ordering: [`Fence::open_until`], [`Fence::open`] and [`Fence::close`] are release operations, and
/// [`Fence::may_write`] is an acquire operation. A thread that may write therefore sees everything that was done before
/// the permission was given, such as the first complete mirror of a new leader. Once `close` has returned, `may_write`
/// returns `false` on every thread that synchronizes with the return. Clones share the permission.
#[derive(Clone)]
pub struct Fence(Arc<Inner>);

struct Inner {
    /// The origin of the deadline.
    origin: Instant,
    /// Nanoseconds from the origin to the deadline, or one of the constants.
    deadline: AtomicU64,
    is_lost: watch::Sender<bool>,
}

impl Fence {
    /// Creates a fence that is closed until it is opened.
    #[must_use]
    pub fn closed() -> Fence {
        let deadline = AtomicU64::new(NOT_YET);
        let is_lost = watch::Sender::new(false);
        Fence(Arc::new(Inner { origin: Instant::now(), deadline, is_lost }))
    }

    /// Creates an open fence, for a scheduler without leader election.
    #[must_use]
    pub fn opened() -> Fence {
        let fence = Fence::closed();
        fence.open();
        fence
    }

    /// Opens the fence without a deadline. Returns `false` if the fence is closed for good.
    pub fn open(&self) -> bool {
        self.set(ALWAYS)
    }

    /// Opens the fence until `deadline`, which replaces an earlier deadline. Returns `false` if the fence is closed for
    /// good.
    pub fn open_until(&self, deadline: Instant) -> bool {
        let after = deadline.saturating_duration_since(self.0.origin).as_nanos();
        self.set(u64::try_from(after).unwrap_or(ALWAYS).clamp(NOT_YET, ALWAYS - 1))
    }

    fn set(&self, deadline: u64) -> bool {
        let open = |known| (known != LOST).then_some(deadline);
        self.0.deadline.fetch_update(Ordering::Release, Ordering::Relaxed, open).is_ok()
    }

    /// Closes the fence for good: the lease was lost, or the process is stopping. Writers that wait for an answer give
    /// up.
    pub fn close(&self) {
        self.0.deadline.store(LOST, Ordering::Release);
        self.0.is_lost.send_replace(true);
    }

    /// Returns whether a request may be sent now.
    #[must_use]
    pub fn may_write(&self) -> bool {
        self.left().is_some()
    }

    /// Returns how long requests may still be sent, if the fence is open.
    fn left(&self) -> Option<Duration> {
        match self.0.deadline.load(Ordering::Acquire) {
            LOST => None,
            ALWAYS => Some(Duration::MAX),
            deadline => {
                let left = Duration::from_nanos(deadline).checked_sub(self.0.origin.elapsed())?;
                Some(left).filter(|left| !left.is_zero())
            }
        }
    }

    /// Waits until no request may be sent: until the deadline, which may be moved meanwhile, or until the fence is
    /// closed for good.
    pub async fn expired(&self) {
        while let Some(left) = self.left() {
            tokio::select! {
                () = self.lost() => {}
                () = sleep(left) => {}
            }
        }
    }

    /// Returns whether the fence is closed for good.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.0.deadline.load(Ordering::Acquire) == LOST
    }

    /// Waits until the fence is closed for good.
    pub async fn lost(&self) {
        // The sender lives as long as `self`, so the wait does not fail.
        let _ = self.0.is_lost.subscribe().wait_for(|is_lost| *is_lost).await;
    }

    /// Waits, and returns `false` if the fence was closed for good meanwhile.
    pub(crate) async fn pause(&self, wait: Duration) -> bool {
        tokio::select! {
            () = self.lost() => false,
            () = sleep(wait) => true,
        }
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fence")
            .field("may_write", &self.may_write())
            .field("is_lost", &self.is_lost())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_that_has_passed_closes_the_fence_without_a_timer() {
        let fence = Fence::closed();
        assert!(!fence.may_write());
        assert!(fence.open_until(Instant::now() + Duration::from_secs(3_600)));
        assert!(fence.may_write());
        assert!(fence.open_until(Instant::now()));
        assert!(!fence.may_write() && !fence.is_lost());
    }

    #[tokio::test]
    async fn a_fence_expires_at_its_last_deadline_or_when_it_is_closed() {
        let fence = Fence::closed();
        fence.expired().await;
        let began = Instant::now();
        let first = Duration::from_millis(20);
        fence.open_until(began + first);
        let (moved, second) = (fence.clone(), Duration::from_millis(60));
        let mut expired = std::pin::pin!(fence.expired());
        tokio::select! {
            biased;
            () = &mut expired => panic!("before the deadline"),
            () = tokio::task::yield_now() => {}
        }
        moved.open_until(began + second);
        expired.await;
        assert!(began.elapsed() >= second && !fence.may_write());

        let fence = Fence::opened();
        let mut expired = std::pin::pin!(fence.expired());
        tokio::select! {
            biased;
            () = &mut expired => panic!("open"),
            () = tokio::task::yield_now() => {}
        }
        fence.close();
        expired.await;
    }

    #[tokio::test]
    async fn a_lost_fence_is_never_opened_again() {
        let (fence, other) = (Fence::opened(), Fence::opened());
        let clone = fence.clone();
        clone.close();
        assert!(!fence.may_write() && fence.is_lost());
        assert!(!fence.open() && !fence.open_until(Instant::now() + Duration::from_secs(9)));
        assert!(!fence.may_write());
        fence.lost().await;
        assert!(other.may_write());
    }
}
