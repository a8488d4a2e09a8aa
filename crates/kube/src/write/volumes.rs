//! Binds the volumes of pods through the API server (volumebinding/binder.go).
//!
//! Volumes are reserved in the engine, as [`InMemoryVolumeBinder`] does. Binding writes the decision: an existing
//! volume gets its claim (`spec.claimRef`), and a claim to be provisioned gets its node (annotation
//! `volume.kubernetes.io/selected-node`). Then the persistent volume controller and the provisioner bind the claims,
//! and [`super::volume_checks`] checks every second whether they have. Writes are not undone if binding fails, and a
//! later attempt finds them.
//!
//! Differences from kube-scheduler 1.36:
//!
//! - A JSON merge patch with `metadata.uid` and `metadata.resourceVersion` replaces the update of the whole object, of
//!   which only a part is kept. The API server refuses it for the same conflicts.
//! - The object is read first, for its version. If a field that scheduling reads has changed since the decision,
//!   binding fails with the text of a conflict. If the object already matches the decision, nothing is written.
//! - The checks read objects from the API server, where kube-scheduler reads its informers.
//! - Node affinities of in-tree volumes are not translated to those of their CSI drivers for the checks.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use portolan::cache::WeakEngine;
use portolan::model::{
    ClaimReference, Name, Node, Object, PersistentVolume, PersistentVolumeClaim, Pod,
};
use portolan::plugin::{Assumed, PodInPreBind, PodVolumes, Snapshots, VolumeBinder};
use portolan::scheduler::{InMemoryVolumeBinder, SharedReader};
use serde_json::{Value, json};
use tokio::time::{interval, timeout};

use super::Fence;
use super::blocking::Blocking;
use super::bodies::{Metadata, claim_ref, volume_patch};
use crate::api::{Api, NO_LEASE, Patch, Resource};
use crate::mirror::PodIndex;

pub(super) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";

/// Binds volumes through an API server.
///
/// [`VolumeBinder::bind`] blocks for as long as provisioning takes, up to its timeout. Call it on threads of its own
/// and not on threads of the runtime, where blocking panics. Does not keep the engine alive.
#[derive(Clone)]
pub(crate) struct ApiVolumeBinder {
    blocking: Blocking,
    pub(super) api: Api,
    pub(super) pods: Arc<PodIndex>,
    fence: Fence,
    /// `None` if the engine was gone already.
    reader: Option<Arc<SharedReader>>,
    reservations: InMemoryVolumeBinder,
    pub(super) poll: Duration,
}

impl ApiVolumeBinder {
    pub(super) fn new(
        blocking: Blocking,
        api: Api,
        pods: Arc<PodIndex>,
        fence: Fence,
        engine: &WeakEngine,
    ) -> ApiVolumeBinder {
        let reservations = InMemoryVolumeBinder::from(engine);
        let reader = engine.upgrade().and_then(|engine| engine.reader().ok());
        let reader = reader.map(|reader| Arc::new(SharedReader::new(reader)));
        let poll = Duration::from_secs(1);
        ApiVolumeBinder { blocking, api, pods, fence, reader, reservations, poll }
    }

    /// Returns a node of the engine.
    pub(super) fn node(&self, name: &str) -> Option<Arc<Node>> {
        let snapshot = self.reader.as_ref()?.snapshot();
        snapshot.node(name).and_then(|info| info.node().cloned())
    }

    async fn bind_volumes(
        &self,
        pod: &Pod,
        node: &Name,
        volumes: &PodVolumes,
        limit: Duration,
    ) -> Result<(), String> {
        for binding in &volumes.bindings {
            self.set_claim(binding).await?;
        }
        for claim in &volumes.to_provision {
            self.select_node(claim).await?;
        }
        let bound = async {
            let mut ticks = interval(self.poll);
            // The first tick is now, and kube-scheduler waits before its first check.
            ticks.tick().await;
            loop {
                ticks.tick().await;
                if self.are_bound(pod, node, volumes).await? {
                    return Ok(());
                }
            }
        };
        tokio::select! {
            () = self.fence.lost() => Err(NO_LEASE.to_owned()),
            bound = timeout(limit, bound) => {
                let bound = bound.unwrap_or_else(|_| Err("context deadline exceeded".to_owned()));
                bound.map_err(|why| format!("binding volumes: {why}"))
            }
        }
    }

    /// Writes the claim of a volume.
    async fn set_claim(&self, volume: &Assumed<PersistentVolume>) -> Result<(), String> {
        let Assumed { before, after } = volume;
        let Some(reference) = &after.claim else { return Ok(()) };
        let path = Resource::PERSISTENT_VOLUMES.object("", &after.name);
        let found = self.get(&path).await?;
        let known = read_volume(&found)?;
        if known.claim == after.claim {
            return Ok(());
        }
        if known != **before {
            return Err(conflict("persistentvolumes", &after.name));
        }
        let metadata = metadata(&found)?;
        let claim_path = Resource::PERSISTENT_VOLUME_CLAIMS;
        let claim_path = claim_path.object(&reference.namespace, &reference.name);
        let claim = self.get(&claim_path).await?;
        let claim = self::metadata(&claim)?;
        if *claim.uid != *reference.uid {
            return Err(conflict("persistentvolumeclaims", &reference.name));
        }
        let mark = Some((BOUND_BY_CONTROLLER, "yes")).filter(|_| !is_for(before, reference));
        let mut patch = volume_patch(&metadata, mark);
        patch["spec"] = json!({"claimRef": claim_ref(reference, &claim.resource_version)});
        self.patch(&path, &patch).await
    }

    /// Writes the node of a claim.
    async fn select_node(&self, claim: &Assumed<PersistentVolumeClaim>) -> Result<(), String> {
        let Assumed { before, after } = claim;
        let path = Resource::PERSISTENT_VOLUME_CLAIMS.object(&after.namespace, &after.name);
        let found = self.get(&path).await?;
        let known = read_claim(&found)?;
        if known.uid == after.uid && known.selected_node == after.selected_node {
            return Ok(());
        }
        if known != **before {
            return Err(conflict("persistentvolumeclaims", &after.name));
        }
        let metadata = metadata(&found)?;
        let node = Some((SELECTED_NODE, &*after.selected_node));
        self.patch(&path, &volume_patch(&metadata, node)).await
    }

    async fn get(&self, path: &str) -> Result<Bytes, String> {
        self.api.get(path).await.map_err(|error| error.to_string())
    }

    async fn patch(&self, path: &str, body: &Value) -> Result<(), String> {
        let patched = self.api.patch(path, Patch::Merge, body).await;
        patched.map(drop).map_err(|error| error.to_string())
    }
}

/// Returns whether the volume is reserved for the claim, by its uid or by its name alone (`IsVolumeBoundToClaim`).
fn is_for(volume: &PersistentVolume, claim: &ClaimReference) -> bool {
    volume.claim.as_ref().is_some_and(|known| {
        let is_same_name = known.namespace == claim.namespace && known.name == claim.name;
        is_same_name && (known.uid.is_empty() || known.uid == claim.uid)
    })
}

/// The API server's text for an object that is not as expected.
fn conflict(resource: &str, name: &str) -> String {
    format!(
        "Operation cannot be fulfilled on {resource} {name:?}: the object has been modified; please apply your changes \
         to the latest version and try again"
    )
}

pub(super) fn metadata(object: &[u8]) -> Result<Metadata<'_>, String> {
    #[derive(serde::Deserialize)]
    struct Answer<'a> {
        #[serde(borrow)]
        metadata: Metadata<'a>,
    }
    let answer: Result<Answer<'_>, _> = serde_json::from_slice(object);
    answer.map(|answer| answer.metadata).map_err(|error| error.to_string())
}

pub(super) fn read_volume(bytes: &[u8]) -> Result<PersistentVolume, String> {
    match portolan_k8s::object_from_slice("PersistentVolume", bytes) {
        Ok(Object::PersistentVolume(volume)) => Ok(Arc::unwrap_or_clone(volume)),
        Ok(_) => Err("the API server's answer is not a PersistentVolume".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

pub(super) fn read_claim(bytes: &[u8]) -> Result<PersistentVolumeClaim, String> {
    match portolan_k8s::object_from_slice("PersistentVolumeClaim", bytes) {
        Ok(Object::PersistentVolumeClaim(claim)) => Ok(Arc::unwrap_or_clone(claim)),
        Ok(_) => Err("the API server's answer is not a PersistentVolumeClaim".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

impl VolumeBinder for ApiVolumeBinder {
    fn assume(&self, volumes: &PodVolumes) -> Result<(), String> {
        self.reservations.assume(volumes)
    }

    fn revert(&self, volumes: &PodVolumes) {
        self.reservations.revert(volumes);
    }

    fn bind(
        &self,
        pod: &Pod,
        node: &Name,
        volumes: &PodVolumes,
        timeout: Duration,
        in_pre_bind: &PodInPreBind,
    ) -> Result<(), String> {
        let bound = self.blocking.run(async {
            tokio::select! {
                bound = self.bind_volumes(pod, node, volumes, timeout) => bound,
                _ = in_pre_bind.cancelled() => Err("binding volumes: context canceled".to_owned()),
            }
        });
        bound.map_err(|ended| ended.to_string())?
    }
}
