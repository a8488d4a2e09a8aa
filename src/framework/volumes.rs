//! Volumes that are reserved for a pod until it is bound.

use std::sync::Arc;
use std::time::Duration;

use crate::model::{Name, PersistentVolume, PersistentVolumeClaim, Pod};

use super::PodInPreBind;

/// An object before and after a scheduling decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assumed<T> {
    /// The object in the version that the decision was made on.
    pub before: Arc<T>,
    /// The object with the decision applied.
    pub after: Arc<T>,
}

/// The volumes for a pod's unbound claims on its node (volumebinding `PodVolumes`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodVolumes {
    /// Existing volumes. In `after`, [`PersistentVolume::claim`] names the claim that the volume is reserved for.
    pub bindings: Vec<Assumed<PersistentVolume>>,
    /// Claims whose volumes must be provisioned. In `after`, [`PersistentVolumeClaim::selected_node`] names the node.
    pub to_provision: Vec<Assumed<PersistentVolumeClaim>>,
}

/// Reserves volumes for pods and binds them (volumebinding `SchedulerVolumeBinder`).
pub trait VolumeBinder: Send + Sync {
    /// Reserves the volumes for their claims, and selects the node for the claims to be provisioned, in all later
    /// versions of the cluster (`AssumePodVolumes`). Either all objects are changed, or none.
    ///
    /// # Errors
    ///
    /// Returns an error if an object has changed since the decision, which invalidates the decision.
    fn assume(&self, volumes: &PodVolumes) -> Result<(), String>;

    /// Undoes [`VolumeBinder::assume`] for each object that has not been updated since (`RevertAssumedPodVolumes`).
    fn revert(&self, volumes: &PodVolumes);

    /// Binds the claims, and returns when they are bound (`BindPodVolumes`).
    ///
    /// # Errors
    ///
    /// Returns an error if the claims cannot be bound, if binding takes longer than `timeout`, or soon after the pod
    /// was cancelled.
    fn bind(
        &self,
        pod: &Pod,
        node: &Name,
        volumes: &PodVolumes,
        timeout: Duration,
        in_pre_bind: &PodInPreBind,
    ) -> Result<(), String>;
}
