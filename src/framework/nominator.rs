//! Pods that wait for their node to be cleared for them (backend/queue/nominator.go).

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use crate::model::{Name, Pod, Uid};

/// Which pods are nominated to which nodes: preemption made, or is making, room
/// for them there. Shared by threads.
#[derive(Debug, Default)]
pub struct Nominator(RwLock<HashMap<Name, Vec<Pod>>>);

impl Nominator {
    /// Nominates a pod to a node, and to no other.
    pub fn add(&self, pod: Pod, node: Name) {
        let mut nodes = self.0.write().unwrap_or_else(PoisonError::into_inner);
        remove(&mut nodes, &pod.uid);
        nodes.entry(node).or_default().push(pod);
    }

    /// The pod is nominated to no node any more; which one it was.
    pub fn remove(&self, uid: &Uid) -> Option<Name> {
        // Hardly ever is a pod nominated, and every pod that is placed asks.
        if self.0.read().unwrap_or_else(PoisonError::into_inner).is_empty() {
            return None;
        }
        remove(&mut self.0.write().unwrap_or_else(PoisonError::into_inner), uid)
    }

    /// The node that the pod is nominated to.
    #[must_use]
    pub fn node_of(&self, uid: &Uid) -> Option<Name> {
        let nodes = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let found = nodes.iter().find(|(_, pods)| pods.iter().any(|pod| pod.uid == *uid));
        found.map(|(node, _)| node.clone())
    }

    /// The pods nominated to a node, in the order in which they came.
    #[must_use]
    pub fn pods_on(&self, node: &str) -> Vec<Pod> {
        let nodes = self.0.read().unwrap_or_else(PoisonError::into_inner);
        nodes.get(node).cloned().unwrap_or_default()
    }

    /// The pods to which this one must yield: nominated ones of its priority or
    /// above, by their nodes, in the order of those.
    pub(super) fn before(&self, pod: &Pod) -> Vec<(Name, Vec<Pod>)> {
        let nodes = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if nodes.is_empty() {
            return Vec::new();
        }
        let goes_first =
            |other: &&Pod| other.template.priority >= pod.template.priority && other.uid != pod.uid;
        let mut before: Vec<(Name, Vec<Pod>)> = nodes
            .iter()
            .map(|(node, pods)| (node.clone(), pods.iter().filter(goes_first).cloned().collect()))
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
