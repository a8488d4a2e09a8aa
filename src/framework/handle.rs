//! The services that plugins use outside of a scheduling cycle (k8s.io/kube-scheduler/framework `Handle`).

use std::fmt;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;

use crate::model::{Name, NoNote, Note, Pod, Uid};
use crate::snapshot::Snapshot;

use super::activations::Activations;
use super::being_evicted::BeingEvicted;
use super::pre_bind::{InPreBind, PodsInPreBind};
use super::{
    Evictor, Extender, Nominator, Panics, PodGroups, PodInPreBind, VolumeBinder, WaitingPods,
    extender,
};

/// A binding as a future: the outcome of [`Binder::bind`].
pub type BindingFuture = Pin<Box<dyn Future<Output = Result<(), BinderError>> + Send>>;

/// Writes bindings of pods to nodes, for example to the API server.
pub trait Binder: Send + Sync {
    /// Binds a pod to a node. May block. A panic counts as a failed binding, after which the pod is tried again.
    ///
    /// # Errors
    ///
    /// Returns why the pod was not bound, or that the outcome is unknown.
    fn bind(&self, pod: &Pod, node: &Name) -> Result<(), BinderError>;

    /// Returns the same binding as a future, which needs no thread of its own, or `None` if only [`Binder::bind`] is
    /// supported (the default). Called for each pod that is about to be bound. Must be fast and must not block; nothing
    /// may be sent before the future is polled.
    fn request(&self, _pod: &Arc<Pod>, _node: &Name) -> Option<BindingFuture> {
        None
    }

    /// Announces that a pod will be bound to a node, so that others may prepare (`NominatedNodeNameForExpectation`).
    /// Called before the pod waits for its permits and PreBind runs, if either has work to do. May block. Does nothing
    /// by default.
    ///
    /// # Errors
    ///
    /// Returns why the nomination was not written. The binding cycle then fails.
    fn nominate(&self, _pod: &Pod, _node: &Name) -> Result<(), BinderError> {
        Ok(())
    }
}

/// Why a [`Binder`] did not bind a pod.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BinderError {
    /// The pod has changed or no longer exists, so it must not be bound as decided.
    #[error("{0}")]
    Conflict(String),
    /// It is not known whether the pod is bound, for instance because the API server did not answer. The pod stays
    /// assumed.
    #[error("{0}")]
    Unknown(String),
    /// This scheduler may not bind the pod to the node now, and has not tried. The pod is decided on again.
    #[error("{0}")]
    Refused(String),
    /// The pod is not bound. Another attempt may succeed.
    #[error("{0}")]
    Failed(String),
}

impl From<String> for BinderError {
    fn from(why: String) -> BinderError {
        BinderError::Failed(why)
    }
}

impl From<&str> for BinderError {
    fn from(why: &str) -> BinderError {
        BinderError::Failed(why.to_owned())
    }
}

/// Provides the current version of the cluster to plugins outside of a cycle (`SnapshotSharedLister`).
pub trait Snapshots: Send + Sync {
    /// Returns the latest published version.
    fn snapshot(&self) -> Arc<Snapshot>;
}

/// Lets plugins follow an engine's log (`SharedInformerFactory`).
pub(crate) trait Follow: Send + Sync {
    /// Returns a stream of the effects of all events from now on. If more than `limit` notes are pending, later notes
    /// are dropped and the stream ends with [`NoNote::Overflowed`]. Returns `None` if the engine was dropped, or if the
    /// calling thread is inside its writer.
    fn follow(&self, limit: NonZeroUsize) -> Option<Box<dyn Notes>>;
}

/// A stream of the effects of events, in log order and no earlier than readers see them: the interface of a
/// [`Follower`](crate::cache::Follower) for plugins. Dropping it ends the stream.
pub trait Notes: Send + Sync {
    /// Returns the next note without blocking.
    ///
    /// # Errors
    ///
    /// Returns an error if no note is pending, or if the stream has ended.
    fn try_next(&self) -> Result<Note, NoNote>;
}

/// The services that plugins share, passed to plugins when they are created: the pods that wait for permits or are in
/// PreBind, the nominated pods, the queue's pod groups, the binders of pods and volumes, the evictor, the extenders,
/// the published versions and the log.
///
/// Clones refer to the same data. All profiles of a configuration share one handle. The cluster and its stores are part
/// of each [`Cycle`](super::Cycle).
#[derive(Clone, Default)]
pub struct Handle {
    waiting: Arc<WaitingPods>,
    in_pre_bind: Arc<PodsInPreBind>,
    nominator: Arc<Nominator>,
    pod_groups: Arc<PodGroups>,
    panics: Arc<Panics>,
    activations: Arc<Activations>,
    being_evicted: Arc<BeingEvicted>,
    binder: Option<Arc<dyn Binder>>,
    volume_binder: Option<Arc<dyn VolumeBinder>>,
    evictor: Option<Arc<dyn Evictor>>,
    extenders: Arc<[Arc<dyn Extender>]>,
    snapshots: Option<Arc<dyn Snapshots>>,
    log: Option<Arc<dyn Follow>>,
}

impl Handle {
    /// The requests to try pods again.
    pub(crate) fn activations(&self) -> &Activations {
        &self.activations
    }

    /// The victims whose eviction has begun, until the log reports their end.
    pub(crate) fn being_evicted(&self) -> &BeingEvicted {
        &self.being_evicted
    }

    /// Sets the binder, for plugins created with the returned handle.
    #[must_use]
    pub fn with_binder(self, binder: Arc<dyn Binder>) -> Handle {
        Handle { binder: Some(binder), ..self }
    }

    /// Sets the volume binder, for plugins created with the returned handle.
    #[must_use]
    pub fn with_volume_binder(self, binder: Arc<dyn VolumeBinder>) -> Handle {
        Handle { volume_binder: Some(binder), ..self }
    }

    /// Sets the evictor, for plugins created with the returned handle.
    #[must_use]
    pub fn with_evictor(self, evictor: Arc<dyn Evictor>) -> Handle {
        Handle { evictor: Some(evictor), ..self }
    }

    /// Sets the extenders, which every framework with the returned handle calls, in this order; ignorable ones come
    /// last.
    #[must_use]
    pub fn with_extenders(self, extenders: impl IntoIterator<Item = Arc<dyn Extender>>) -> Handle {
        Handle { extenders: extender::in_order(extenders), ..self }
    }

    /// Sets the source of published versions, for plugins created with the returned handle.
    #[must_use]
    pub fn with_snapshots(self, snapshots: Arc<dyn Snapshots>) -> Handle {
        Handle { snapshots: Some(snapshots), ..self }
    }

    /// Sets the log to follow, for plugins created with the returned handle.
    #[must_use]
    pub(crate) fn with_log(self, log: Arc<dyn Follow>) -> Handle {
        Handle { log: Some(log), ..self }
    }

    /// Returns a stream of the effects of all events from now on, for state that a plugin derives from the log. Returns
    /// `None` if the handle has no log, if the engine was dropped, or if the calling thread is inside its writer, as in
    /// a commit check.
    ///
    /// Call this when the plugin is created, then read [`Handle::snapshot`], and skip the notes up to the snapshot's
    /// generation. Process the pending notes before reading the derived state, for example in PreFilter. A plugin that
    /// fell behind by more than `limit` notes must start again. State that forks and commit checks must see belongs in
    /// a [`Store`](crate::cache::Store).
    #[must_use]
    pub fn follow(&self, limit: NonZeroUsize) -> Option<Box<dyn Notes>> {
        self.log.as_ref()?.follow(limit)
    }

    /// Returns the latest published version, for example for a hint, a permit or PreBind, or `None` if the handle has
    /// no source of versions ([`Handle::with_snapshots`]). The version may be newer than a cycle's
    /// [`Cycle::cluster`](super::Cycle::cluster), on which the decision was made.
    #[must_use]
    pub fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.snapshots.as_ref().map(|snapshots| snapshots.snapshot())
    }

    /// Returns the pods that wait for a permit.
    #[must_use]
    pub fn waiting_pods(&self) -> &WaitingPods {
        &self.waiting
    }

    /// Returns the pod with this uid if it is in PreBind.
    #[doc(hidden)]
    #[must_use]
    pub fn pod_in_pre_bind(&self, uid: &Uid) -> Option<Arc<PodInPreBind>> {
        self.in_pre_bind.get(uid)
    }

    /// Counts a pod among those in PreBind until the returned guard is dropped.
    pub(crate) fn enter_pre_bind(&self, uid: &Uid) -> InPreBind {
        self.in_pre_bind.add(uid)
    }

    /// Returns the nominated pods.
    #[must_use]
    pub fn nominator(&self) -> &Nominator {
        &self.nominator
    }

    /// Returns the status of the queue's pod groups.
    #[doc(hidden)]
    #[must_use]
    pub fn pod_groups(&self) -> &PodGroups {
        &self.pod_groups
    }

    /// Returns the panics of plugins that were caught.
    #[must_use]
    pub fn panics(&self) -> &Arc<Panics> {
        &self.panics
    }

    /// Returns the binder, if one is set.
    #[must_use]
    pub fn binder(&self) -> Option<&Arc<dyn Binder>> {
        self.binder.as_ref()
    }

    /// Returns the volume binder, if one is set.
    #[must_use]
    pub fn volume_binder(&self) -> Option<&Arc<dyn VolumeBinder>> {
        self.volume_binder.as_ref()
    }

    /// Returns the evictor, if one is set.
    #[must_use]
    pub fn evictor(&self) -> Option<&Arc<dyn Evictor>> {
        self.evictor.as_ref()
    }

    /// Returns the extenders in the order in which they are called.
    #[must_use]
    pub fn extenders(&self) -> &[Arc<dyn Extender>] {
        &self.extenders
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
