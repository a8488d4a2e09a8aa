//! The upsert of a pod: one event for whatever a watch reports.
//!
//! The other events of pods are those of kube-scheduler's cache, which refuse a pod in the wrong state, so their sender
//! must know what the cache has. An upsert compares the object with the state instead, by the rules of kube-scheduler's
//! event handlers (pkg/scheduler/eventhandlers.go, 1.36). Resource versions are compared as integers, which Kubernetes
//! guarantees since 1.35 (KEP-5504); 0 stands for an unknown version.

use std::sync::Arc;

use crate::log::Applied;
use crate::model::{EventError, Pod, PodState, Uid};
use crate::snapshot::draft::node_of;
use crate::snapshot::godel::Leaving;

use super::lifecycle::State;

impl State {
    pub(super) fn put_pod(
        &mut self,
        pod: &Arc<Pod>,
        applied: &mut Applied,
    ) -> Result<(), EventError> {
        let uid = &pod.uid;
        if uid.is_empty() {
            return Err(EventError::EmptyUid);
        }
        let known = self.draft.pod(uid);
        if known.is_some_and(|known| self.draft.holds(&known)) {
            return Err(EventError::HoldsPlace { uid: uid.clone() });
        }
        let is_known = known.is_some();
        let replaced = self.replaced_by(pod);
        // The object of an assumed pod is a scheduler's, and must not keep the pod from being confirmed.
        let added = known.filter(|known| !known.is_assumed());
        let versions = replaced.iter().filter_map(|uid| self.draft.pod(uid)).chain(added);
        let newest = versions.map(|known| known.resource_version()).max().unwrap_or(0);
        let given = pod.resource_version;
        if given != 0 && given < newest {
            return Err(EventError::Stale { uid: uid.clone(), known: newest, given });
        }
        if pod.finished {
            self.drop_replaced(&replaced, applied);
            if is_known {
                self.remove_pod(uid, None)?;
                applied.removed += 1;
            } else {
                self.remove_pending(uid)?;
            }
            return Ok(());
        }
        let placed = self.draft.as_placed(pod);
        match node_of(&placed) {
            Ok(node) => {
                let leaving = if is_known { Some(uid) } else { replaced.first() };
                let leaving = leaving.and_then(|uid| self.draft.pod(uid)).map(|pod| pod.pod_ref());
                // A reservation takes over the resources of a pod that leaves one.
                let leaving = leaving.filter(|gone| is_known || !self.draft.is_succeeded(*gone));
                self.draft.check_place(&placed, node, leaving)?;
                self.drop_replaced(&replaced, applied);
                match self.relist_pod(&placed)? {
                    Some(true) => applied.added = 1,
                    Some(false) => applied.updated = 1,
                    None => {}
                }
                Ok(())
            }
            Err(_) => {
                self.check_pending(pod)?;
                self.drop_replaced(&replaced, applied);
                self.put_unbound(pod, applied)
            }
        }
    }

    /// Applies an object without a node. A pod that was assumed here stays so until it terminates, because the object
    /// may be older than the decision.
    fn put_unbound(&mut self, pod: &Arc<Pod>, applied: &mut Applied) -> Result<(), EventError> {
        let is_terminating = pod.deletion_time.is_some();
        if self.has_pod_states() && !is_terminating {
            return self.unplace(&pod.uid, pod, applied);
        }
        let stays_bound = self.has_pod_states();
        let leaves = self.draft.pod(&pod.uid).filter(|known| {
            !(known.is_assumed() || stays_bound && known.state() == PodState::Bound)
        });
        if let Some(pod_ref) = leaves.map(|known| known.pod_ref()) {
            self.displace(&pod.uid, pod_ref, Leaving::Withdrawn);
            applied.removed += 1;
        }
        if is_terminating {
            applied.removed += usize::from(self.remove_pending(&pod.uid)?);
            return Ok(());
        }
        self.put_pending(pod)
    }

    /// Returns the other pods with the namespace and name of a pod, which therefore no longer exist. Pods without an
    /// index of names are not compared.
    fn replaced_by(&self, pod: &Pod) -> Vec<Uid> {
        if !self.cluster().lookup.has_names() {
            return Vec::new();
        }
        let others = self.cluster().pods_named(pod.namespace(), &pod.name).into_iter();
        let others = others.filter(|other| !self.draft.holds(other)).map(|other| other.uid());
        others.filter(|uid| *uid != pod.uid).collect()
    }

    fn drop_replaced(&mut self, replaced: &[Uid], applied: &mut Applied) {
        for uid in replaced {
            // Each of them is known and holds no reservation, so this cannot fail.
            applied.removed += usize::from(self.remove_pod(uid, None).is_ok());
        }
    }
}
