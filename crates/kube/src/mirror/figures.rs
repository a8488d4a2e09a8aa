//! The state of each reflector, and the figures made of it.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::api::Resource;

/// The progress of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KindStatus {
    /// The first list has not been applied yet.
    Listing,
    /// The first list has been applied, and changes follow.
    Synced,
    /// The server does not serve the kind (404). It is retried rarely. The mirror counts as synced without it.
    NotServed,
    /// The server forbids reading the kind (403). It is retried rarely. The mirror is not synced without it.
    Forbidden,
}

/// The figures of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KindFigures {
    /// The kind, such as `Pod`.
    pub kind: &'static str,
    /// The progress.
    pub status: KindStatus,
    /// The number of objects.
    pub objects: usize,
    /// The number of complete lists, including the first.
    pub relists: u64,
    /// The number of lists and watches that failed. A watch that the server ends in order has not failed.
    pub watch_errors: u64,
    /// The number of objects that could not be read. An object counts each time that it is received.
    pub skipped: u64,
    /// The number of objects that were known already, or differed from the known ones only in fields that scheduling
    /// does not read. The engine does not receive them.
    pub unchanged: u64,
    /// The number of changes that the engine refused.
    pub refused: u64,
    /// The last resource version, or 0 before the first list.
    pub resource_version: u64,
    /// The time since the server last sent an object or a bookmark of this kind.
    pub age: Option<Duration>,
    /// The reason of the last failure.
    pub last_error: Option<String>,
}

/// The state that a reflector reports.
pub(super) struct KindState {
    resource: Resource,
    board: Arc<Signal>,
    status: AtomicU8,
    objects: AtomicUsize,
    relists: AtomicU64,
    watch_errors: AtomicU64,
    skipped: AtomicU64,
    unchanged: AtomicU64,
    refused: AtomicU64,
    version: AtomicU64,
    last_line: Mutex<Option<Instant>>,
    last_error: Mutex<Option<String>>,
    /// The version that someone waits for, or 0.
    awaited: watch::Sender<u64>,
}

/// Wakes the tasks that wait for a state.
pub(super) struct Signal {
    changed: watch::Sender<()>,
    is_stopped: AtomicBool,
}

/// The states of all kinds.
pub(super) struct Board {
    signal: Arc<Signal>,
    kinds: Vec<Arc<KindState>>,
}

impl Board {
    pub(super) fn new(resources: &[Resource]) -> Board {
        let signal = Arc::new(Signal {
            changed: watch::Sender::new(()),
            is_stopped: AtomicBool::new(false),
        });
        let state = |resource: &Resource| Arc::new(KindState::new(*resource, signal.clone()));
        Board { kinds: resources.iter().map(state).collect(), signal }
    }

    pub(super) fn kinds(&self) -> &[Arc<KindState>] {
        &self.kinds
    }

    /// Returns whether no more events reach the engine.
    pub(super) fn is_stopped(&self) -> bool {
        // Pairs with the Release in `stop`: everything that the mirror did before it stopped is visible.
        self.signal.is_stopped.load(Ordering::Acquire)
    }

    pub(super) fn stop(&self) {
        // Pairs with the Acquire in `is_stopped`.
        self.signal.is_stopped.store(true, Ordering::Release);
        self.signal.changed.send_replace(());
    }

    /// Waits until the condition holds or the mirror has stopped.
    pub(super) async fn wait_until(&self, condition: impl Fn() -> bool) {
        let mut changed = self.signal.changed.subscribe();
        // The sender lives in `self`, so it is never closed.
        while !condition() && !self.is_stopped() && changed.changed().await.is_ok() {}
    }
}

impl KindState {
    fn new(resource: Resource, board: Arc<Signal>) -> KindState {
        KindState {
            resource,
            board,
            status: AtomicU8::new(0),
            objects: AtomicUsize::new(0),
            relists: AtomicU64::new(0),
            watch_errors: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            unchanged: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            version: AtomicU64::new(0),
            last_line: Mutex::new(None),
            last_error: Mutex::new(None),
            awaited: watch::Sender::new(0),
        }
    }

    pub(super) fn resource(&self) -> &Resource {
        &self.resource
    }

    pub(super) fn name(&self) -> &'static str {
        self.resource.kind
    }

    // Figures need no order among themselves, so their accesses are relaxed. Tasks wait for `status` and `version`.

    pub(super) fn status(&self) -> KindStatus {
        // Pairs with the Release in `set_status`: the list that synced the kind has been applied.
        match self.status.load(Ordering::Acquire) {
            1 => KindStatus::Synced,
            2 => KindStatus::NotServed,
            3 => KindStatus::Forbidden,
            _ => KindStatus::Listing,
        }
    }

    /// Returns whether the kind no longer delays readiness. Every API server has pods and nodes: a 404 for them comes
    /// from another server at its address.
    pub(super) fn is_ready(&self) -> bool {
        match self.status() {
            KindStatus::Synced => true,
            KindStatus::NotServed => ![Resource::PODS, Resource::NODES].contains(&self.resource),
            _ => false,
        }
    }

    /// Changes the status. A kind that was synced stays so, as its objects are still known.
    pub(super) fn set_status(&self, status: KindStatus) {
        let number = match status {
            KindStatus::Listing => 0,
            KindStatus::Synced => 1,
            KindStatus::NotServed => 2,
            KindStatus::Forbidden => 3,
        };
        if self.status() != KindStatus::Synced {
            // Pairs with the Acquire in `status`.
            self.status.store(number, Ordering::Release);
            self.board.changed.send_replace(());
        }
    }

    pub(super) fn version(&self) -> u64 {
        // Pairs with the Release in `set_version`: the events up to the version have been passed on.
        self.version.load(Ordering::Acquire)
    }

    /// Records a version up to which all events have been passed on.
    pub(super) fn set_version(&self, version: u64) {
        // Pairs with the Acquire in `version`.
        self.version.store(version, Ordering::Release);
        let awaited = *self.awaited.borrow();
        if awaited != 0 && version >= awaited {
            self.awaited.send_if_modified(|awaited| {
                let is_reached = *awaited <= version;
                if is_reached {
                    *awaited = 0;
                }
                is_reached
            });
            self.board.changed.send_replace(());
        }
    }

    /// Asks the reflector to reach this version soon.
    pub(super) fn hurry(&self, version: u64) {
        self.awaited.send_if_modified(|awaited| {
            let is_later = *awaited < version;
            *awaited = version.max(*awaited);
            is_later
        });
    }

    pub(super) fn awaited(&self) -> watch::Receiver<u64> {
        self.awaited.subscribe()
    }

    pub(super) fn set_objects(&self, objects: usize) {
        self.objects.store(objects, Ordering::Relaxed);
    }

    pub(super) fn relisted(&self) {
        self.relists.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn failed(&self, why: String) {
        self.watch_errors.fetch_add(1, Ordering::Relaxed);
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
    }

    pub(super) fn skipped(&self) {
        self.skipped.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn unchanged(&self) {
        self.unchanged.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of changes that the engine refused.
    pub(super) fn refusals(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub(super) fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn heard(&self) {
        let now = Some(Instant::now());
        *self.last_line.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    pub(super) fn figures(&self) -> KindFigures {
        let last_line = *self.last_line.lock().unwrap_or_else(PoisonError::into_inner);
        KindFigures {
            kind: self.name(),
            status: self.status(),
            objects: self.objects.load(Ordering::Relaxed),
            relists: self.relists.load(Ordering::Relaxed),
            watch_errors: self.watch_errors.load(Ordering::Relaxed),
            skipped: self.skipped.load(Ordering::Relaxed),
            unchanged: self.unchanged.load(Ordering::Relaxed),
            refused: self.refusals(),
            resource_version: self.version(),
            age: last_line.map(|at| at.elapsed()),
            last_error: self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_that_is_not_served_is_ready_and_a_forbidden_one_is_not() {
        let board = Board::new(&[Resource::CSI_NODES]);
        let kind = &board.kinds()[0];
        assert!(!kind.is_ready());
        kind.set_status(KindStatus::Forbidden);
        assert!(!kind.is_ready());
        kind.set_status(KindStatus::NotServed);
        assert!(kind.is_ready());
    }

    #[test]
    fn a_kind_stays_synced() {
        let board = Board::new(&[Resource::PODS]);
        let kind = &board.kinds()[0];
        kind.set_status(KindStatus::Synced);
        kind.set_status(KindStatus::Forbidden);
        assert_eq!(kind.status(), KindStatus::Synced);
    }
}
