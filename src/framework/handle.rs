//! What plugins share with the framework that runs them, besides a cycle.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use crate::model::{Name, NoNote, Note, Pod};
use crate::snapshot::Snapshot;

use super::{Evictor, Nominator, Panics, PodGroups, VolumeBinder, WaitingPods};

/// Binds pods to nodes: where a decision leaves the scheduler.
pub trait Binder: Send + Sync {
    /// Binds a pod to a node.
    ///
    /// # Errors
    ///
    /// The pod is not bound, and why.
    fn bind(&self, pod: &Pod, node: &Name) -> Result<(), String>;
}

/// Gives the current version of the cluster to plugins outside of a cycle
/// (`SnapshotSharedLister`).
pub trait Snapshots: Send + Sync {
    /// The newest published version.
    fn snapshot(&self) -> Arc<Snapshot>;
}

/// Lets plugins follow the log of an engine (`SharedInformerFactory`).
pub trait Follow: Send + Sync {
    /// A stream of what events do from now on. If `limit` notes wait, later notes are lost and the stream ends with
    /// [`NoNote::Overflowed`]. `None` if the engine is gone, or this thread is within its writer.
    fn follow(&self, limit: NonZeroUsize) -> Option<Box<dyn Notes>>;
}

/// What events did, in the order of the log and no sooner than readers see it: a
/// [`Follower`](crate::log::Follower), as plugins see it. Dropping it ends it.
pub trait Notes: Send + Sync {
    /// The next note. Never waits.
    ///
    /// # Errors
    ///
    /// There is none now, or none will come.
    fn try_next(&self) -> Result<Note, NoNote>;
}

/// What plugins are given when they are made: the pods that wait for permits, the
/// pods that are nominated, the pod groups of the queue, and who binds pods and
/// volumes and evicts pods. Clones are the same handle; the
/// profiles of one configuration have one. The cluster and its stores come with
/// each [`Cycle`](super::Cycle).
#[derive(Clone, Default)]
pub struct Handle {
    waiting: Arc<WaitingPods>,
    nominator: Arc<Nominator>,
    pod_groups: Arc<PodGroups>,
    panics: Arc<Panics>,
    binder: Option<Arc<dyn Binder>>,
    volume_binder: Option<Arc<dyn VolumeBinder>>,
    evictor: Option<Arc<dyn Evictor>>,
    snapshots: Option<Arc<dyn Snapshots>>,
    log: Option<Arc<dyn Follow>>,
}

impl Handle {
    /// The same with this binder, for plugins that are made from now on.
    #[must_use]
    pub fn with_binder(self, binder: Arc<dyn Binder>) -> Handle {
        Handle { binder: Some(binder), ..self }
    }

    /// The same with this binder of volumes, for plugins that are made from now
    /// on.
    #[must_use]
    pub fn with_volume_binder(self, binder: Arc<dyn VolumeBinder>) -> Handle {
        Handle { volume_binder: Some(binder), ..self }
    }

    /// The same with this evictor, for plugins that are made from now on.
    #[must_use]
    pub fn with_evictor(self, evictor: Arc<dyn Evictor>) -> Handle {
        Handle { evictor: Some(evictor), ..self }
    }

    /// The same with these versions, for plugins that are made from now on.
    #[must_use]
    pub fn with_snapshots(self, snapshots: Arc<dyn Snapshots>) -> Handle {
        Handle { snapshots: Some(snapshots), ..self }
    }

    /// The same with this log, for plugins that are made from now on.
    #[must_use]
    pub fn with_log(self, log: Arc<dyn Follow>) -> Handle {
        Handle { log: Some(log), ..self }
    }

    /// A stream of what events do from now on, for state that a plugin derives from the log; `None` if the handle was
    /// given no log ([`Handle::with_log`]), if the engine is gone, or if the calling thread is within its writer, as in
    /// a commit check.
    ///
    /// Follow when the plugin is made, then read [`Handle::snapshot`], and pass over the notes up to its generation.
    /// Take the notes before the state is read, for example in PreFilter; a plugin that fell behind by more than
    /// `limit` notes starts again. State that forks and commit checks must see belongs in a
    /// [`Store`](crate::snapshot::Store).
    #[must_use]
    pub fn follow(&self, limit: NonZeroUsize) -> Option<Box<dyn Notes>> {
        self.log.as_ref()?.follow(limit)
    }

    /// The newest published version, for example for a hint, a permit or PreBind; none if the
    /// handle was given none ([`Handle::with_snapshots`]). It may be newer than the version
    /// of a cycle: within one, [`Cycle::cluster`](super::Cycle::cluster) is what was decided on.
    #[must_use]
    pub fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.snapshots.as_ref().map(|snapshots| snapshots.snapshot())
    }

    /// The pods that wait for a permit.
    #[must_use]
    pub fn waiting_pods(&self) -> &WaitingPods {
        &self.waiting
    }

    /// The pods that are nominated to nodes.
    #[must_use]
    pub fn nominator(&self) -> &Nominator {
        &self.nominator
    }

    /// The pod groups of the queue.
    #[must_use]
    pub fn pod_groups(&self) -> &PodGroups {
        &self.pod_groups
    }

    /// The panics of plugins that were caught.
    #[must_use]
    pub fn panics(&self) -> &Arc<Panics> {
        &self.panics
    }

    /// Who binds, if anybody does.
    #[must_use]
    pub fn binder(&self) -> Option<&Arc<dyn Binder>> {
        self.binder.as_ref()
    }

    /// Who binds volumes, if anybody does.
    #[must_use]
    pub fn volume_binder(&self) -> Option<&Arc<dyn VolumeBinder>> {
        self.volume_binder.as_ref()
    }

    /// Who evicts pods, if anybody does.
    #[must_use]
    pub fn evictor(&self) -> Option<&Arc<dyn Evictor>> {
        self.evictor.as_ref()
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("waiting", &self.waiting)
            .field("nominator", &self.nominator)
            .finish_non_exhaustive()
    }
}
