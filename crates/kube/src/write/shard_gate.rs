//! Allows bindings to the nodes of the shards that this process holds, and reports when the last binding of a shard
//! that is given up has ended.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use portolan::model::Uid;
use portolan::plugin::ShardSet;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::debug::debug_by;
use crate::lock::lock;

/// Permission to bind to the nodes of some shards. Clones share it.
///
/// A process gives a shard up in two steps: no further binding to its nodes begins, and those that have begun end. Only
/// then may another process bind to these nodes, so no two processes ever use the same free capacity. A pod that was
/// placed before the process took the shard is refused once: the previous holder may have used the capacity since.
#[derive(Clone)]
pub(crate) struct ShardGate(Arc<Inner>);

struct Inner {
    shards: ShardSet,
    bindings: Mutex<Vec<Bindings>>,
    left: Notify,
    /// How long a binding whose outcome is not known may still be applied.
    doubt: OnceLock<Duration>,
}

/// The bindings to the nodes of a shard.
#[derive(Default)]
struct Bindings {
    in_flight: u32,
    /// Until when a binding that has ended may still be applied.
    doubtful_until: Option<Instant>,
    /// The pods that were placed before the shard was taken and have not tried to bind since.
    refused: HashSet<Uid>,
}

/// A binding in flight. If it is dropped before it is [settled](Turn::settle), it may still be applied.
pub(super) struct Turn {
    gate: ShardGate,
    shard: u32,
    is_settled: bool,
}

impl Turn {
    /// Records that the binding is applied, or never will be.
    pub(super) fn settle(&mut self) {
        self.is_settled = true;
    }
}

impl ShardGate {
    /// Creates a gate for the shards of this set.
    pub(crate) fn new(shards: ShardSet) -> ShardGate {
        let bindings = (0..shards.count()).map(|_| Bindings::default()).collect();
        let bindings = Mutex::new(bindings);
        ShardGate(Arc::new(Inner { shards, bindings, left: Notify::new(), doubt: OnceLock::new() }))
    }

    /// The shards that this process holds.
    pub(crate) fn shards(&self) -> &ShardSet {
        &self.0.shards
    }

    /// Sets how long to wait for a binding whose outcome is not known. Only the first call has an effect.
    pub(crate) fn set_doubt(&self, doubt: Duration) {
        // Set already.
        let _ = self.0.doubt.set(doubt);
    }

    /// Begins a binding to a node, unless the node belongs to a shard of another process, or the pod was placed before
    /// this process took the shard.
    pub(super) fn enter(&self, pod: &Uid, node: &str) -> Option<Turn> {
        let shard = self.0.shards.of_node(node);
        let mut all = lock(&self.0.bindings);
        let bindings = all.get_mut(shard as usize).filter(|_| self.0.shards.holds(shard))?;
        if bindings.refused.remove(pod) {
            return None;
        }
        bindings.in_flight += 1;
        Some(Turn { gate: self.clone(), shard, is_settled: false })
    }

    /// Adds a shard to the set. Refuses once each pod in `refused` that is to be bound to a node of the shard.
    pub(crate) fn begin(&self, shard: u32, refused: HashSet<Uid>) {
        if let Some(bindings) = lock(&self.0.bindings).get_mut(shard as usize) {
            bindings.refused = refused;
            self.0.shards.add(shard);
        }
    }

    /// Removes a shard from the set. After that, no binding to its nodes begins.
    pub(crate) fn give_up(&self, shard: u32) {
        // Under the lock, so that each binding either sees this or is counted.
        let _bindings = lock(&self.0.bindings);
        self.0.shards.remove(shard);
    }

    /// Returns whether no binding to the nodes of the shard is in flight or may still be applied.
    pub(crate) fn is_drained(&self, shard: u32) -> bool {
        let all = lock(&self.0.bindings);
        let Some(bindings) = all.get(shard as usize) else { return true };
        let is_doubtful = bindings.doubtful_until.is_some_and(|until| Instant::now() < until);
        bindings.in_flight == 0 && !is_doubtful
    }

    /// Waits until the last binding of one of these shards has ended and it is drained. Does not wake up when the time
    /// for which a binding may still be applied is over.
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
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(bindings) = lock(&self.gate.0.bindings).get_mut(self.shard as usize) {
            bindings.in_flight -= 1;
            if !self.is_settled {
                let doubt = self.gate.0.doubt.get().copied().unwrap_or_default();
                bindings.doubtful_until = Some(Instant::now() + doubt);
            }
        }
        self.gate.0.left.notify_waiters();
    }
}

debug_by!(ShardGate, it, shards: it.0.shards);

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;

    fn gate() -> (ShardGate, u32) {
        let shards = NonZeroU32::new(2).and_then(ShardSet::new).expect("few");
        let shard = shards.of_node("n");
        (ShardGate::new(shards), shard)
    }

    #[tokio::test]
    async fn a_shard_is_drained_when_its_last_binding_has_ended_and_none_begins() {
        let (gate, shard) = gate();
        let enter = || gate.enter(&"u".into(), "n");
        assert!(enter().is_none(), "not held yet");
        gate.begin(shard, HashSet::new());
        let (first, second) = (enter().expect("held"), enter().expect("held"));
        gate.give_up(shard);
        assert!(enter().is_none() && !gate.is_drained(shard));
        let drained = gate.clone();
        let waits = tokio::spawn(async move { drained.drained(&[shard]).await });
        drop(first);
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        drop(second);
        waits.await.expect("drained");
    }

    #[test]
    fn a_pod_that_was_placed_before_the_shard_was_taken_is_refused_once() {
        let (gate, shard) = gate();
        gate.begin(shard, HashSet::from(["old".into(), "older".into()]));
        let enters = |uid: &str| gate.enter(&uid.into(), "n").is_some();
        assert_eq!(["new", "old", "old"].map(enters), [true, false, true]);
        gate.give_up(shard);
        gate.begin(shard, HashSet::from(["new".into()]));
        assert_eq!(["older", "new", "new"].map(enters), [true, false, true]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_binding_whose_outcome_is_open_is_waited_for() {
        let (gate, shard) = gate();
        gate.set_doubt(Duration::from_secs(5));
        gate.begin(shard, HashSet::new());
        let mut settled = gate.enter(&"a".into(), "n").expect("held");
        settled.settle();
        drop(settled);
        assert!(gate.is_drained(shard));
        drop(gate.enter(&"b".into(), "n"));
        assert!(!gate.is_drained(shard));
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(gate.is_drained(shard));
    }
}
