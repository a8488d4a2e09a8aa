//! Parks the pods of shards that other schedulers hold ([`ShardSet`]).
//!
//! A parked pod is in no place of the queue and is never popped. It is kept, because the scheduler may get its shard at
//! any time, and the cluster does not report the pod again then. Parking ends no assumption: a pod whose binding is in
//! flight keeps its resources until the outcome is known, whichever shard it belongs to meanwhile.

use std::collections::HashMap;
use std::sync::Arc;

use crate::framework::ShardSet;
use crate::model::{Pod, Timestamp, Uid};
use crate::snapshot::Cluster;

use super::SchedulingQueue;
use super::pods::Entry;

/// The pods of other shards.
#[derive(Debug)]
pub(super) struct Parked {
    shards: ShardSet,
    pods: HashMap<Uid, Arc<Pod>>,
}

impl SchedulingQueue {
    /// Restricts an empty queue to the pods of the shards in this set. Pods of other shards are parked. Call
    /// [`SchedulingQueue::reassign`] after each change of the set.
    #[must_use]
    pub(crate) fn with_shards(mut self, shards: ShardSet) -> SchedulingQueue {
        self.parked = Some(Parked { shards, pods: HashMap::new() });
        self
    }

    /// Returns the number of parked pods.
    #[doc(hidden)]
    #[must_use]
    pub fn parked(&self) -> usize {
        self.parked.as_ref().map_or(0, |parked| parked.pods.len())
    }

    /// Applies a change of the set of shards: parks the pods whose shard has left the set, and adds the parked pods
    /// whose shard is in it. A pod in flight is parked as if it was deleted. A parked pod that is assumed is added when
    /// its assumption ends. O(pods).
    pub fn reassign(&mut self, cluster: &Cluster, now: Timestamp) {
        let Some(parked) = &self.parked else { return };
        let entries = (0..self.pods.slot_bound()).filter_map(|slot| self.pods.get(slot));
        let is_foreign =
            |entry: &&Entry| !entry.deleted && !parked.shards.holds_pod(&entry.queued.pod);
        let leaving = entries.filter(is_foreign).filter_map(|entry| {
            let mut pod = entry.queued.pod.clone();
            // A nomination that an attempt of this scheduler made or cleared may never reach the cluster, and no
            // scheduler would try a pod that is parked because of it. If it does, the pod's next object parks it.
            if entry.is_nomination_unconfirmed
                && (pod.nominated_node_name.take().is_none() || parked.shards.holds_pod(&pod))
            {
                return None;
            }
            Some(Arc::new(pod))
        });
        let leaving: Vec<Arc<Pod>> = leaving.collect();
        let returning = parked.pods.values().filter(|pod| parked.shards.holds_pod(pod));
        let mut returning: Vec<Arc<Pod>> = returning.cloned().collect();
        for pod in &leaving {
            self.park(pod);
        }
        // The order in which a single scheduler would have received them.
        returning.sort_by_cached_key(|pod| (pod.resource_version, pod.uid.to_string()));
        returning.iter().for_each(|pod| self.unpark(&pod.uid, cluster, now));
    }

    /// Parks a pod, or its newer object, and returns `true` if it belongs to a shard of another scheduler.
    pub(super) fn park(&mut self, pod: &Arc<Pod>) -> bool {
        let has_profile = self.profile_of(pod).is_some();
        let Some(parked) = &mut self.parked else { return false };
        if parked.shards.holds_pod(pod) || !has_profile {
            parked.pods.remove(&pod.uid);
            return false;
        }
        parked.pods.insert(pod.uid.clone(), pod.clone());
        self.take_not_pending(&pod.uid);
        true
    }

    /// Adds a parked pod to the queue if its shard is in the set and nothing assumes the pod.
    pub(super) fn unpark(&mut self, uid: &Uid, cluster: &Cluster, now: Timestamp) {
        let Some(parked) = &mut self.parked else { return };
        let is_ours = |pod: &Arc<Pod>| parked.shards.holds_pod(pod) && cluster.pod(uid).is_none();
        if !parked.pods.get(uid).is_some_and(is_ours) {
            return;
        }
        if let Some(pod) = parked.pods.remove(uid) {
            let generation = self.generation;
            // The pod's profile is known, and the log has refused pods without a uid.
            let _ = self.add(Pod::clone(&pod), generation, cluster, now);
        }
    }

    /// Forgets a parked pod that was deleted or is on a node.
    pub(super) fn forget_parked(&mut self, uid: &Uid) {
        if let Some(parked) = &mut self.parked {
            parked.pods.remove(uid);
        }
    }
}
