//! Feeds the queue from the log (eventhandlers.go).

use std::sync::Arc;

use crate::framework::{Actions, ClusterEvent, EventResource, WaitingPods};
use crate::model::{Change, Diff, Fact, Note, Object, Pod, Timestamp, Uid};
use crate::snapshot::Cluster;

use super::figures::Cause;
use super::{QueueError, SchedulingQueue};

impl SchedulingQueue {
    /// Applies the effect of an event. Pods that are on no node are added, updated and deleted at once; changes that
    /// may make other pods schedulable are left to [`SchedulingQueue::step`]. `cluster` must be a version that contains
    /// the event, which holds for any version that a reader loads after receiving the note. O(log n).
    ///
    /// # Errors
    ///
    /// The pod is refused. A pod of another scheduler or scheduler instance is ignored.
    #[doc(hidden)]
    pub fn take(
        &mut self,
        note: &Note,
        cluster: &Cluster,
        now: Timestamp,
    ) -> Result<(), QueueError> {
        self.generation = self.generation.max(note.generation);
        match &note.fact {
            Fact::Pending(pod) | Fact::Assumed(pod) if self.park(pod) => Ok(()),
            Fact::Pending(pod) => self.take_pending(pod, note, cluster, now),
            Fact::Assumed(pod) => {
                self.take_assumed(pod, cluster, now);
                Ok(())
            }
            Fact::NotPending(uid) => {
                self.forget_parked(uid);
                self.take_not_pending(uid);
                Ok(())
            }
            Fact::Changed(change) => {
                if let Change::Pod(diff) = change {
                    self.end_eviction(diff);
                    match (&diff.old, &diff.new) {
                        (_, Some(placed)) => self.forget_parked(&placed.uid),
                        (Some(gone), None) => self.unpark(&gone.uid, cluster, now),
                        (None, None) => {}
                    }
                }
                if let Change::Pod(Diff { new: Some(placed), .. }) = change
                    && let Some(queued) = self.end(&placed.uid, true).filter(is_nominated)
                    && queued.nominated_node_name != placed.node_name
                {
                    // It reserved resources on the node it was nominated to.
                    self.plan_release(queued);
                }
                self.take_of_group(change, cluster, now);
                for event in ClusterEvent::of(change) {
                    self.plan(&event, None);
                }
                Ok(())
            }
        }
    }

    /// Ends the eviction of a pod that is terminating or gone. Before the event is planned: a preemptor that finds the
    /// eviction unended is queued by the event.
    fn end_eviction(&self, diff: &Diff<Arc<Pod>>) {
        let is_running = |pod: &Arc<Pod>| pod.deletion_time.is_none();
        if let Some(pod) = diff.last().filter(|_| !diff.new.as_ref().is_some_and(is_running)) {
            self.profiles[0].framework.handle().being_evicted().end(&pod.uid);
        }
    }

    /// Updates the group that a change concerns.
    fn take_of_group(&mut self, change: &Change, cluster: &Cluster, now: Timestamp) {
        let last = match change {
            Change::Pod(diff) => {
                return diff.last().into_iter().for_each(|pod| self.pod_changed(pod, cluster, now));
            }
            Change::Object(diff) => diff.last(),
            Change::Node(_) | Change::Custom(_) => None,
        };
        if let Some(Object::PodGroup(group)) = last {
            for event in ClusterEvent::of(change) {
                let cause = Cause::Event(event.resource, event.action);
                self.group_changed((&group.namespace, &group.name), cause, cluster, now);
            }
        }
    }

    fn take_pending(
        &mut self,
        pod: &Arc<Pod>,
        note: &Note,
        cluster: &Cluster,
        now: Timestamp,
    ) -> Result<(), QueueError> {
        let old = self.get(&pod.uid).map(|queued| queued.pod.clone());
        match self.add(Pod::clone(pod), note.generation, cluster, now) {
            Err(QueueError::OtherScheduler { .. } | QueueError::NotDispatched { .. }) => {
                self.take_not_pending(&pod.uid);
                return Ok(());
            }
            put => put?,
        };
        let nominated = self.get(&pod.uid).and_then(|new| new.pod.nominated_node_name.clone());
        if let Some(old) = old.filter(is_nominated)
            && old.nominated_node_name != nominated
        {
            self.plan_release(old);
        }
        Ok(())
    }

    /// Replaces the object of a pod that an attempt has assumed and that may have returned to the queue since. Ignores
    /// pods that were assumed without this queue.
    fn take_assumed(&mut self, pod: &Arc<Pod>, cluster: &Cluster, now: Timestamp) {
        if self.get(&pod.uid).is_some() {
            // The profile of a pod that was placed is known.
            let _ = self.update(Pod::clone(pod), self.generation, cluster, now);
        }
    }

    /// Handles the deletion of a pod. If the pod waits for a permit, its permit is rejected, because the pod will not
    /// be bound. The engine has already ended its assumption.
    pub(super) fn take_not_pending(&mut self, uid: &Uid) {
        self.waiting_pods().reject(uid);
        if let Some(old) = self.delete(uid).filter(is_nominated) {
            self.plan_release(old);
        }
    }

    pub(super) fn waiting_pods(&self) -> &WaitingPods {
        self.profiles[0].framework.handle().waiting_pods()
    }

    /// Plans an event for the resources that a nominated pod reserved on its node. They become free for pods of at most
    /// its priority, as if the pod had left the node.
    pub(super) fn plan_release(&mut self, pod: Pod) {
        let priority = pod.template.priority;
        let change = Change::Pod(Diff { old: Some(Arc::new(pod)), new: None });
        let event = ClusterEvent {
            resource: EventResource::AssignedPod,
            action: Actions::DELETE,
            change: &change,
        };
        self.plan(&event, Some(Box::new(move |pod| pod.template.priority <= priority)));
    }
}

pub(super) fn is_nominated(pod: &Pod) -> bool {
    pod.nominated_node_name.as_ref().is_some_and(|node| !node.is_empty())
}
