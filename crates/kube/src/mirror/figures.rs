//! The state of each reflector, and the figures made of it.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::api::Resource;
use crate::lock::lock;

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
    board: watch::Sender<bool>,
    /// Without `age`.
    figures: Mutex<KindFigures>,
    last_line: Mutex<Option<Instant>>,
    /// Why the kind is not followed at the moment.
    failure: Mutex<Option<String>>,
    /// The version that someone waits for, or 0.
    awaited: watch::Sender<u64>,
}

/// The states of all kinds.
pub(super) struct Board {
    /// Whether no more events reach the engine. Notified of each change of a state that tasks wait for.
    is_stopped: watch::Sender<bool>,
    kinds: Vec<Arc<KindState>>,
}

/// Stops a mirror when it is dropped, even if its task or thread panics.
pub(super) struct StopOnDrop(pub(super) Arc<Board>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.is_stopped.send_replace(true);
    }
}

impl Board {
    pub(super) fn new(resources: &[Resource]) -> Board {
        let is_stopped = watch::Sender::new(false);
        let state = |resource: &Resource| Arc::new(KindState::new(*resource, is_stopped.clone()));
        Board { kinds: resources.iter().map(state).collect(), is_stopped }
    }

    pub(super) fn kinds(&self) -> &[Arc<KindState>] {
        &self.kinds
    }

    /// Returns a receiver that wakes at each change of a state that tasks wait for.
    pub(super) fn changes(&self) -> watch::Receiver<bool> {
        self.is_stopped.subscribe()
    }

    /// Returns whether no more events reach the engine.
    pub(super) fn is_stopped(&self) -> bool {
        *self.is_stopped.borrow()
    }

    /// Waits until the condition holds or the mirror has stopped.
    pub(super) async fn wait_until(&self, condition: impl Fn() -> bool) {
        let mut changed = self.is_stopped.subscribe();
        // The sender lives in `self`, so it is never closed.
        while !condition() && !self.is_stopped() && changed.changed().await.is_ok() {}
    }
}

impl KindState {
    fn new(resource: Resource, board: watch::Sender<bool>) -> KindState {
        let figures = KindFigures {
            kind: resource.kind,
            status: KindStatus::Listing,
            objects: 0,
            relists: 0,
            watch_errors: 0,
            skipped: 0,
            unchanged: 0,
            refused: 0,
            resource_version: 0,
            age: None,
            last_error: None,
        };
        let (figures, awaited) = (Mutex::new(figures), watch::Sender::new(0));
        let (last_line, failure) = Default::default();
        KindState { resource, board, figures, last_line, failure, awaited }
    }

    pub(super) fn resource(&self) -> &Resource {
        &self.resource
    }

    pub(super) fn name(&self) -> &'static str {
        self.resource.kind
    }

    pub(super) fn status(&self) -> KindStatus {
        lock(&self.figures).status
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
        if self.status() != KindStatus::Synced {
            lock(&self.figures).status = status;
            self.board.send_modify(|_| ());
        }
    }

    pub(super) fn version(&self) -> u64 {
        lock(&self.figures).resource_version
    }

    /// Records a version up to which all events have been passed on.
    pub(super) fn set_version(&self, version: u64) {
        lock(&self.figures).resource_version = version;
        let awaited = *self.awaited.borrow();
        if awaited != 0 && version >= awaited {
            self.awaited.send_if_modified(|awaited| {
                let is_reached = *awaited <= version;
                if is_reached {
                    *awaited = 0;
                }
                is_reached
            });
            self.board.send_modify(|_| ());
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

    /// Changes figures that no task waits for.
    pub(super) fn count(&self, count: impl FnOnce(&mut KindFigures)) {
        count(&mut lock(&self.figures));
    }

    /// Returns the number of changes that the engine refused.
    pub(super) fn refusals(&self) -> u64 {
        lock(&self.figures).refused
    }

    pub(super) fn heard(&self) {
        *lock(&self.last_line) = Some(Instant::now());
        self.set_failure(None);
    }

    /// Records that a request failed, or that the server answers again.
    pub(super) fn set_failure(&self, failure: Option<String>) {
        let mut known = lock(&self.failure);
        if *known != failure {
            *known = failure;
            drop(known);
            self.notify();
        }
    }

    /// Returns why the kind is not followed at the moment.
    pub(super) fn failure(&self) -> Option<String> {
        lock(&self.failure).clone()
    }

    /// Wakes the tasks that wait for a state.
    pub(super) fn notify(&self) {
        self.board.send_modify(|_| ());
    }

    pub(super) fn figures(&self) -> KindFigures {
        let age = lock(&self.last_line).map(|at| at.elapsed());
        KindFigures { age, ..lock(&self.figures).clone() }
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
