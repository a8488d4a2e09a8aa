//! Lets bindings pass to the nodes of the shards that this process holds, and knows when the last one of a shard that is
//! given up has ended.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use portolan::framework::ShardSet;
use tokio::sync::Notify;

/// Permission to bind to the nodes of some shards. Clones share it.
///
/// A process gives a shard up in two steps: no further binding to its nodes begins, and those that have begun end. Only
/// then may another process bind to these nodes, so no two processes ever count on the same room.
#[derive(Clone)]
pub struct ShardGate(Arc<Inner>);

struct Inner {
    shards: ShardSet,
    /// The bindings in flight of each shard.
    in_flight: Mutex<Vec<u32>>,
    left: Notify,
}

/// A binding in flight.
pub(super) struct Turn {
    gate: ShardGate,
    shard: u32,
}

impl ShardGate {
    /// Creates a gate for the shards of this set.
    #[must_use]
    pub fn new(shards: ShardSet) -> ShardGate {
        let in_flight = Mutex::new(vec![0; shards.count() as usize]);
        ShardGate(Arc::new(Inner { shards, in_flight, left: Notify::new() }))
    }

    /// The shards that this process holds.
    #[must_use]
    pub fn shards(&self) -> &ShardSet {
        &self.0.shards
    }

    /// Begins a binding to a node, unless the node belongs to a shard of another process.
    pub(super) fn enter(&self, node: &str) -> Option<Turn> {
        let shard = self.0.shards.of_node(node);
        let mut in_flight = self.in_flight();
        let count = in_flight.get_mut(shard as usize).filter(|_| self.0.shards.holds(shard))?;
        *count += 1;
        Some(Turn { gate: self.clone(), shard })
    }

    /// Removes a shard from the set. After that, no binding to its nodes begins.
    pub(crate) fn give_up(&self, shard: u32) {
        // Under the lock, so that each binding either sees this or is counted.
        let _in_flight = self.in_flight();
        self.0.shards.remove(shard);
    }

    /// Returns whether no binding to the nodes of the shard is in flight.
    pub(crate) fn is_drained(&self, shard: u32) -> bool {
        self.in_flight().get(shard as usize).is_none_or(|count| *count == 0)
    }

    /// Waits until one of these shards is drained, and for ever if there is none.
    pub(crate) async fn drained(&self, shards: &[u32]) {
        loop {
            // Created before the counts are read, so that no change is missed.
            let left = self.0.left.notified();
            if shards.iter().any(|shard| self.is_drained(*shard)) {
                return;
            }
            left.await;
        }
    }

    fn in_flight(&self) -> MutexGuard<'_, Vec<u32>> {
        // Each change is of one number.
        self.0.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(count) = self.gate.in_flight().get_mut(self.shard as usize) {
            *count -= 1;
        }
        self.gate.0.left.notify_waiters();
    }
}

impl fmt::Debug for ShardGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardGate")
            .field("shards", &self.0.shards)
            .field("in_flight", &self.in_flight().iter().sum::<u32>())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;

    #[tokio::test]
    async fn a_shard_is_drained_when_its_last_binding_has_ended_and_none_begins() {
        let shards = NonZeroU32::new(2).and_then(ShardSet::new).expect("few");
        let gate = ShardGate::new(shards.clone());
        let shard = shards.of_node("n");
        assert!(gate.enter("n").is_none(), "not held yet");
        shards.add(shard);
        let (first, second) = (gate.enter("n").expect("held"), gate.enter("n").expect("held"));
        gate.give_up(shard);
        assert!(gate.enter("n").is_none() && !gate.is_drained(shard));
        let drained = gate.clone();
        let waits = tokio::spawn(async move { drained.drained(&[shard]).await });
        drop(first);
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        drop(second);
        waits.await.expect("drained");
    }
}
