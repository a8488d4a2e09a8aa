//! Volumes that are set aside for a pod on its way to a node.

use std::sync::Arc;
use std::time::Duration;

use crate::model::{Name, PersistentVolume, PersistentVolumeClaim, Pod};

/// An object, and what it is to become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assumed<T> {
    /// The object in the version that was decided on.
    pub before: Arc<T>,
    /// The same with what was decided.
    pub after: Arc<T>,
}

/// What a pod's open claims get on its node (volumebinding `PodVolumes`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodVolumes {
    /// Volumes that there are, each kept for the claim that
    /// [`PersistentVolume::claim`] names then.
    pub bindings: Vec<Assumed<PersistentVolume>>,
    /// Claims for which volumes are to be made, for the node that
    /// [`PersistentVolumeClaim::selected_node`] names then.
    pub to_provision: Vec<Assumed<PersistentVolumeClaim>>,
}

impl PodVolumes {
    /// Whether all of the pod's claims are bound as it is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bindings.is_empty() && self.to_provision.is_empty()
    }
}

/// Sets volumes aside, and binds them (volumebinding `SchedulerVolumeBinder`).
pub trait VolumeBinder: Send + Sync {
    /// From now on, later versions show the volumes as kept for their claims and
    /// the claims as waiting for the node: `AssumePodVolumes`. All of them, or
    /// none.
    ///
    /// # Errors
    ///
    /// An object has changed since, so that what was decided holds no more.
    fn assume(&self, volumes: &PodVolumes) -> Result<(), String>;

    /// Undoes that, as far as nothing newer is known of an object:
    /// `RevertAssumedPodVolumes`.
    fn revert(&self, volumes: &PodVolumes);

    /// Has the claims bound, and returns when they are: `BindPodVolumes`.
    ///
    /// # Errors
    ///
    /// They are not bound, or it took longer than this.
    fn bind(
        &self,
        pod: &Pod,
        node: &Name,
        volumes: &PodVolumes,
        timeout: Duration,
    ) -> Result<(), String>;
}
