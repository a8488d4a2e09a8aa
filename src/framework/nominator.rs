//! Pods that wait until preemption has freed their node (`backend/queue/nominator.go`).

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use crate::model::{Name, Pod, Uid};
use crate::snapshot::draft::check_pod;
use crate::sync::{AtomicUsize, Ordering};

/// The nodes to which pods are nominated: preemption has evicted, or is evicting, victims there. Shared between
/// threads.
#[derive(Debug, Default)]
pub struct Nominator {
    nominations: RwLock<Nominations>,
    /// The number of nominated pods. Every cycle asks for nominations, and they are rare: a load does not take the
    /// cache line from other schedulers as a read lock would. Relaxed suffices, since a cycle that misses a nomination
    /// is one that came before it.
    count: AtomicUsize,
}

pub(super) type OnNode = (Name, Vec<Arc<Pod>>);

#[derive(Debug, Default)]
struct Nominations {
    by_node: BTreeMap<Name, Vec<Arc<Pod>>>,
    by_uid: HashMap<Uid, Name>,
}

impl Nominator {
    /// Nominates a pod to a node, and withdraws its earlier nomination. Ignores a pod that the engine refuses on
    /// every node, for example one with an empty uid. O(log nodes + pods on the nodes).
    pub fn add(&self, pod: Pod, node: Name) {
        if check_pod(&pod).is_err() {
            return;
        }
        self.change(|nominations| {
            nominations.remove(&pod.uid);
            nominations.by_uid.insert(pod.uid.clone(), node.clone());
            nominations.by_node.entry(node).or_default().push(Arc::new(pod));
        });
    }

    /// Withdraws the pod's nomination, and returns the node it was nominated to. O(log nodes + pods on the node).
    pub fn remove(&self, uid: &Uid) -> Option<Name> {
        if self.is_empty() {
            return None;
        }
        self.change(|nominations| nominations.remove(uid))
    }

    fn change<R>(&self, change: impl FnOnce(&mut Nominations) -> R) -> R {
        let mut nominations = self.nominations.write().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&mut nominations);
        self.count.store(nominations.by_uid.len(), Ordering::Relaxed);
        changed
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    fn read(&self) -> RwLockReadGuard<'_, Nominations> {
        self.nominations.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the node that the pod is nominated to.
    #[must_use]
    pub fn node_of(&self, uid: &Uid) -> Option<Name> {
        if self.is_empty() {
            return None;
        }
        self.read().by_uid.get(uid).cloned()
    }

    /// Returns the pods nominated to a node, in the order of their nominations.
    #[must_use]
    pub fn pods_on(&self, node: &str) -> Vec<Pod> {
        if self.is_empty() {
            return Vec::new();
        }
        let nominations = self.read();
        let pods = nominations.by_node.get(node).into_iter().flatten();
        pods.map(|pod| Pod::clone(pod)).collect()
    }

    /// Returns the nominated pods of the same or a higher priority, which take precedence over this pod, by node. The
    /// nodes are sorted by name. O(nominated pods).
    pub(super) fn before(&self, pod: &Pod) -> Vec<OnNode> {
        if self.is_empty() {
            return Vec::new();
        }
        let takes_precedence = |other: &&Arc<Pod>| {
            other.template.priority >= pod.template.priority && other.uid != pod.uid
        };
        let nominations = self.read();
        let before = nominations.by_node.iter().map(|(node, pods)| {
            (node.clone(), pods.iter().filter(takes_precedence).cloned().collect())
        });
        before.filter(|(_, pods): &OnNode| !pods.is_empty()).collect()
    }
}

impl Nominations {
    fn remove(&mut self, uid: &Uid) -> Option<Name> {
        let node = self.by_uid.remove(uid)?;
        if let Some(pods) = self.by_node.get_mut(&node) {
            pods.retain(|pod| pod.uid != *uid);
            if pods.is_empty() {
                self.by_node.remove(&node);
            }
        }
        Some(node)
    }
}
