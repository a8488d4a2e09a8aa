//! Pods that wait until preemption has freed their node (`backend/queue/nominator.go`).

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use crate::model::{Name, Pod, Uid};

/// The nodes to which pods are nominated: preemption has evicted, or is evicting, victims there. Shared between
/// threads.
#[derive(Debug, Default)]
pub struct Nominator(RwLock<HashMap<Name, Vec<Pod>>>);

impl Nominator {
    /// Nominates a pod to a node, and withdraws its earlier nomination.
    pub fn add(&self, pod: Pod, node: Name) {
        let mut nodes = self.0.write().unwrap_or_else(PoisonError::into_inner);
        remove(&mut nodes, &pod.uid);
        nodes.entry(node).or_default().push(pod);
    }

    /// Withdraws the pod's nomination, and returns the node it was nominated to.
    pub fn remove(&self, uid: &Uid) -> Option<Name> {
        // Called for every placed pod, but nominations are rare, so the common case takes only a read lock.
        if self.0.read().unwrap_or_else(PoisonError::into_inner).is_empty() {
            return None;
        }
        remove(&mut self.0.write().unwrap_or_else(PoisonError::into_inner), uid)
    }

    /// Returns the node that the pod is nominated to.
    #[must_use]
    pub fn node_of(&self, uid: &Uid) -> Option<Name> {
        let nodes = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let found = nodes.iter().find(|(_, pods)| pods.iter().any(|pod| pod.uid == *uid));
        found.map(|(node, _)| node.clone())
    }

    /// Returns the pods nominated to a node, in the order of their nominations.
    #[must_use]
    pub fn pods_on(&self, node: &str) -> Vec<Pod> {
        let nodes = self.0.read().unwrap_or_else(PoisonError::into_inner);
        nodes.get(node).cloned().unwrap_or_default()
    }

    /// Returns the nominated pods of the same or a higher priority, which take precedence over this pod, by node. The
    /// nodes are sorted by name.
    pub(super) fn before(&self, pod: &Pod) -> Vec<(Name, Vec<Pod>)> {
        let nodes = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if nodes.is_empty() {
            return Vec::new();
        }
        let takes_precedence =
            |other: &&Pod| other.template.priority >= pod.template.priority && other.uid != pod.uid;
        let mut before: Vec<(Name, Vec<Pod>)> = nodes
            .iter()
            .map(|(node, pods)| {
                (node.clone(), pods.iter().filter(takes_precedence).cloned().collect())
            })
            .filter(|(_, pods): &(Name, Vec<Pod>)| !pods.is_empty())
            .collect();
        before.sort_by(|a, b| a.0.cmp(&b.0));
        before
    }
}

fn remove(nodes: &mut HashMap<Name, Vec<Pod>>, uid: &Uid) -> Option<Name> {
    let (node, pods) = nodes.iter_mut().find(|(_, pods)| pods.iter().any(|p| p.uid == *uid))?;
    let node = node.clone();
    pods.retain(|pod| pod.uid != *uid);
    if pods.is_empty() {
        nodes.remove(&node);
    }
    Some(node)
}
