//! Checks whether a pod's volumes are bound or can still be bound (volumebinding `checkBindings`). The texts of
//! failures are kube-scheduler's.

use bytes::Bytes;
use portolan::model::{Name, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use portolan::plugin::{Assumed, PodVolumes};

use super::volumes::{ApiVolumeBinder, SELECTED_NODE, metadata, read_claim, read_volume};
use crate::api::Resource;

impl ApiVolumeBinder {
    /// Returns whether all claims are bound. An object that cannot be read now is read again at the next check.
    ///
    /// # Errors
    ///
    /// The claims can no longer be bound for this node.
    pub(super) async fn are_bound(
        &self,
        pod: &Pod,
        node: &Name,
        volumes: &PodVolumes,
    ) -> Result<bool, String> {
        let missing = || format!("failed to get node {node:?}: node {node:?} not found");
        let node = self.node(node).ok_or_else(missing)?;
        if self.pods.get(&pod.uid).is_none() {
            return Err(format!("pod does not exist any more: pod {:?} not found", pod.name));
        }
        for binding in &volumes.bindings {
            if !self.is_claimed(&node, binding).await? {
                return Ok(false);
            }
        }
        for claim in &volumes.to_provision {
            if !self.is_provisioned(&node, claim).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Checks an existing volume and its claim.
    async fn is_claimed(
        &self,
        node: &Node,
        binding: &Assumed<PersistentVolume>,
    ) -> Result<bool, String> {
        let name = &binding.after.name;
        let Some(reference) = &binding.after.claim else { return Ok(true) };
        let volume = self.find(&Resource::PERSISTENT_VOLUMES.object("", name)).await;
        let claim = Resource::PERSISTENT_VOLUME_CLAIMS;
        let claim = self.find(&claim.object(&reference.namespace, &reference.name)).await;
        let key = format!("{}/{}", reference.namespace, reference.name);
        let is_missing = |found: &Found| matches!(found, Found::Missing);
        if is_missing(&volume) {
            return Err(format!("failed to check binding: {}", missing_volume(name)));
        }
        if is_missing(&claim) {
            return Err(format!("failed to check binding: {}", missing_claim(&key)));
        }
        let (Found::Object(volume), Found::Object(claim)) = (volume, claim) else {
            return Ok(false);
        };
        let volume = read_volume(&volume)?;
        check_affinity(&volume, node)?;
        if volume.claim.is_none_or(|claim| claim.uid.is_empty()) {
            return Err(format!("ClaimRef got reset for pv {name:?}"));
        }
        Ok(read_claim(&claim)?.is_bound)
    }

    /// Checks a claim that is being provisioned.
    async fn is_provisioned(
        &self,
        node: &Node,
        claim: &Assumed<PersistentVolumeClaim>,
    ) -> Result<bool, String> {
        let PersistentVolumeClaim { namespace, name, .. } = &*claim.after;
        let path = Resource::PERSISTENT_VOLUME_CLAIMS.object(namespace, name);
        let found = match self.find(&path).await {
            Found::Object(found) => found,
            Found::Later => return Ok(false),
            Found::Missing => {
                let why = missing_claim(&format!("{namespace}/{name}"));
                return Err(format!("failed to check provisioning pvc: {why}"));
            }
        };
        let Some(annotations) = metadata(&found)?.annotations else {
            return Err(format!("selectedNode annotation reset for PVC {name:?}"));
        };
        // A provisioner that fails removes the annotation, which asks the scheduler to decide again.
        if annotations.get(SELECTED_NODE).is_none_or(|selected| **selected != *node.name) {
            return Err(format!("provisioning failed for PVC {name:?}"));
        }
        let claim = read_claim(&found)?;
        if !claim.volume.is_empty() {
            let path = Resource::PERSISTENT_VOLUMES.object("", &claim.volume);
            // The claim may name its volume before the volume can be read.
            let Found::Object(volume) = self.find(&path).await else { return Ok(false) };
            check_affinity(&read_volume(&volume)?, node)?;
        }
        Ok(claim.is_bound)
    }

    async fn find(&self, path: &str) -> Found {
        match self.api.get(path).await {
            Ok(found) => Found::Object(found),
            Err(error) if error.is_not_found() => Found::Missing,
            Err(error) => {
                tracing::debug!(path, %error, "volumes cannot be checked");
                Found::Later
            }
        }
    }
}

enum Found {
    Object(Bytes),
    Missing,
    Later,
}

fn missing_volume(name: &str) -> String {
    format!("could not find v1.PersistentVolume {name:?}")
}

fn missing_claim(key: &str) -> String {
    format!("could not find v1.PersistentVolumeClaim {key:?}")
}

fn check_affinity(volume: &PersistentVolume, node: &Node) -> Result<(), String> {
    let Some(affinity) = &volume.node_affinity else { return Ok(()) };
    match affinity.matches(&node.name, &node.labels) {
        true => Ok(()),
        false => Err(format!(
            "pv {:?} node affinity doesn't match node {:?}: no matching NodeSelectorTerms",
            volume.name, node.name
        )),
    }
}
