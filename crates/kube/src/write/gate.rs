//! Lets one request per pod pass at a time, and keeps only the newest one that waits (KEP-5229).

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

use portolan::model::Uid;
use tokio::sync::{Notify, Semaphore};

use crate::lock::lock;

/// The requests of all pods that wait or are in flight.
///
/// Requests leave in the order in which their pods first waited. A pod that is in flight is skipped until its request
/// ends. The limit bounds the number of waiting pods, and thus the memory.
pub(super) struct Gate<T> {
    state: Mutex<State<T>>,
    /// One permit for each entry of the order.
    ready: Semaphore,
    /// Notified when a request in flight has ended, or is to end soon.
    changed: Notify,
    limit: usize,
}

struct State<T> {
    pods: HashMap<Uid, Slot<T>>,
    order: VecDeque<Uid>,
    waiting: usize,
}

/// A pod with a request that waits or is in flight.
struct Slot<T> {
    waiting: Option<T>,
    is_in_flight: bool,
    /// Whether someone waits for the end of the request in flight.
    is_wanted: bool,
    is_queued: bool,
}

impl<T> Slot<T> {
    fn empty() -> Slot<T> {
        Slot { waiting: None, is_in_flight: false, is_wanted: false, is_queued: false }
    }
}

/// The result of [`Gate::put`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    /// The request waits.
    Waits,
    /// The request waits in place of an older one.
    Replaced,
    /// Too many pods wait, so the request was dropped.
    Dropped,
}

/// The right to send a request for a pod. Dropping it lets the next request pass.
pub(super) struct Held<'a, T> {
    gate: &'a Gate<T>,
    uid: Uid,
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        self.gate.end(&self.uid);
    }
}

impl<T> Held<'_, T> {
    /// Waits until someone waits for the end of this request.
    pub(super) async fn wanted(&self) {
        let is_wanted = |state: &mut State<T>| {
            state.pods.get(&self.uid).is_none_or(|slot| slot.is_wanted).then_some(())
        };
        self.gate.until(is_wanted).await;
    }
}

impl<T> Gate<T> {
    pub(super) fn new(limit: usize) -> Gate<T> {
        let state = State { pods: HashMap::new(), order: VecDeque::new(), waiting: 0 };
        let (ready, changed) = (Semaphore::new(0), Notify::new());
        Gate { state: Mutex::new(state), ready, changed, limit: limit.max(1) }
    }

    /// Adds a request. If a request of the same pod waits, it is replaced by the result of `merge`. Never blocks.
    pub(super) fn put(&self, uid: &Uid, request: T, merge: impl FnOnce(T, T) -> T) -> Put {
        let mut state = lock(&self.state);
        let is_full = state.waiting >= self.limit;
        let known = state.pods.get_mut(uid);
        if let Some(slot) = known
            && let Some(older) = slot.waiting.take()
        {
            slot.waiting = Some(merge(older, request));
            return Put::Replaced;
        }
        if is_full {
            return Put::Dropped;
        }
        state.pods.entry(uid.clone()).or_insert_with(Slot::empty).waiting = Some(request);
        state.waiting += 1;
        self.queue(&mut state, uid);
        Put::Waits
    }

    /// Appends a pod to the order if it has a request that may pass.
    fn queue(&self, state: &mut State<T>, uid: &Uid) {
        let Some(slot) = state.pods.get_mut(uid) else { return };
        if slot.waiting.is_some() && !slot.is_in_flight && !slot.is_queued {
            slot.is_queued = true;
            state.order.push_back(uid.clone());
            self.ready.add_permits(1);
        }
    }

    /// Waits for the next request that may pass.
    pub(super) async fn next(&self) -> (T, Held<'_, T>) {
        loop {
            match self.ready.acquire().await {
                Ok(permit) => permit.forget(),
                // The semaphore is never closed.
                Err(_) => std::future::pending().await,
            }
            let mut state = lock(&self.state);
            let Some(uid) = state.order.pop_front() else { continue };
            let Some(slot) = state.pods.get_mut(&uid) else { continue };
            slot.is_queued = false;
            if slot.is_in_flight {
                continue;
            }
            match slot.waiting.take() {
                Some(request) => {
                    slot.is_in_flight = true;
                    state.waiting -= 1;
                    return (request, Held { gate: self, uid });
                }
                None => drop(state.pods.remove(&uid)),
            }
        }
    }

    /// Replaces the pod's waiting request by the result of `amend`, waits until the request in flight has ended, and
    /// takes its turn. The waiting request passes after that.
    pub(super) async fn hold(&self, uid: &Uid, amend: impl FnOnce(T) -> Option<T>) -> Held<'_, T> {
        // Requests that are added while this one waits are newer, and stay as they are.
        let mut amend = Some(amend);
        self.until(|State { pods, waiting: count, .. }| {
            let slot = pods.entry(uid.clone()).or_insert_with(Slot::empty);
            if let Some(amend) = amend.take()
                && let Some(waiting) = slot.waiting.take()
            {
                slot.waiting = amend(waiting);
                *count -= usize::from(slot.waiting.is_none());
            }
            if !std::mem::replace(&mut slot.is_in_flight, true) {
                return Some(Held { gate: self, uid: uid.clone() });
            }
            // Only the first one notifies, since it is notified itself.
            if !std::mem::replace(&mut slot.is_wanted, true) {
                self.changed.notify_waiters();
            }
            None
        })
        .await
    }

    /// Checks the state now and after each change, until there is a result.
    async fn until<R>(&self, mut check: impl FnMut(&mut State<T>) -> Option<R>) -> R {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Registered before the check, so that a change between the check and the wait is not missed.
            changed.as_mut().enable();
            if let Some(result) = check(&mut lock(&self.state)) {
                return result;
            }
            changed.await;
        }
    }

    fn end(&self, uid: &Uid) {
        {
            let mut state = lock(&self.state);
            let Some(slot) = state.pods.get_mut(uid) else { return };
            (slot.is_in_flight, slot.is_wanted) = (false, false);
            match slot.waiting {
                Some(_) => self.queue(&mut state, uid),
                // A queued pod is removed when its turn comes.
                None if slot.is_queued => {}
                None => drop(state.pods.remove(uid)),
            }
        }
        self.changed.notify_waiters();
    }

    /// Waits until no request waits or is in flight.
    pub(super) async fn idle(&self) {
        self.until(|state| (unended(state) == 0).then_some(())).await;
    }

    /// The number of requests that wait or are in flight.
    pub(super) fn unended(&self) -> usize {
        unended(&lock(&self.state))
    }

    /// The number of requests that wait.
    pub(super) fn waiting(&self) -> usize {
        lock(&self.state).waiting
    }
}

fn unended<T>(state: &State<T>) -> usize {
    state.waiting + state.pods.values().filter(|slot| slot.is_in_flight).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uid(name: &str) -> Uid {
        Uid::new(name)
    }

    fn newer(_: i32, newer: i32) -> i32 {
        newer
    }

    #[tokio::test]
    async fn a_newer_request_replaces_the_one_that_waits() {
        let gate = Gate::new(9);
        assert_eq!(gate.put(&uid("a"), 1, newer), Put::Waits);
        let (first, held) = gate.next().await;
        assert_eq!(gate.put(&uid("a"), 2, newer), Put::Waits);
        assert_eq!(gate.put(&uid("a"), 3, newer), Put::Replaced);
        gate.put(&uid("b"), 9, newer);
        // Pod a is in flight, so b passes.
        assert_eq!((first, gate.next().await.0), (1, 9));
        drop(held);
        assert_eq!(gate.next().await.0, 3);
        assert_eq!(gate.waiting(), 0);
        assert!(lock(&gate.state).pods.is_empty());
    }

    #[tokio::test]
    async fn holding_amends_the_waiting_request_and_lets_it_pass_afterwards() {
        let gate = Gate::new(9);
        gate.put(&uid("a"), 1, newer);
        let held = gate.hold(&uid("a"), |waiting| Some(waiting + 10)).await;
        gate.put(&uid("b"), 2, newer);
        assert_eq!((gate.waiting(), gate.next().await.0), (2, 2));
        drop(held);
        assert_eq!(gate.next().await.0, 11);
    }

    #[tokio::test]
    async fn holding_discards_the_waiting_request_and_waits_for_the_one_in_flight() {
        let gate = Gate::new(9);
        gate.put(&uid("a"), 1, newer);
        let (_, in_flight) = gate.next().await;
        gate.put(&uid("a"), 2, newer);
        let a = uid("a");
        let mut holding = std::pin::pin!(gate.hold(&a, |_| None));
        tokio::select! {
            biased;
            _ = &mut holding => panic!("the request in flight has not ended"),
            () = tokio::task::yield_now() => {}
        }
        assert_eq!(gate.waiting(), 0);
        drop(in_flight);
        let held = holding.await;
        gate.put(&uid("a"), 3, newer);
        gate.put(&uid("b"), 4, newer);
        assert_eq!(gate.next().await.0, 4);
        drop(held);
        assert_eq!(gate.next().await.0, 3);
    }

    #[tokio::test]
    async fn a_request_in_flight_learns_that_it_is_waited_for() {
        let gate = Gate::new(9);
        gate.put(&uid("a"), 1, newer);
        let (_, in_flight) = gate.next().await;
        let a = uid("a");
        let mut holding = std::pin::pin!(gate.hold(&a, Some));
        {
            let mut wanted = std::pin::pin!(in_flight.wanted());
            tokio::select! {
                biased;
                () = &mut wanted => panic!("nobody waits yet"),
                () = tokio::task::yield_now() => {}
            }
            tokio::select! {
                biased;
                _ = &mut holding => panic!("the request in flight has not ended"),
                () = &mut wanted => {}
            }
        }
        drop(in_flight);
        drop(holding.await);
    }

    #[tokio::test]
    async fn a_waiting_request_is_merged_with_a_newer_one() {
        let gate = Gate::new(9);
        gate.put(&uid("a"), 1, newer);
        gate.put(&uid("a"), 2, |older, newer| 10 * older + newer);
        assert_eq!(gate.next().await.0, 12);
    }

    #[tokio::test]
    async fn a_full_gate_drops_new_pods_and_accepts_newer_requests_of_known_ones() {
        let gate = Gate::new(2);
        gate.put(&uid("a"), 1, newer);
        gate.put(&uid("b"), 2, newer);
        assert_eq!(gate.put(&uid("c"), 3, newer), Put::Dropped);
        assert_eq!(gate.put(&uid("a"), 4, newer), Put::Replaced);
        assert_eq!(gate.next().await.0, 4);
        assert_eq!(gate.put(&uid("c"), 5, newer), Put::Waits);
    }
}
