//! Differences between versions.

use std::collections::{BTreeMap, HashMap};

use crate::hash::Keyed;
use crate::model::{Generation, Name, Uid};

use super::chunk::{LANES, NodeSlot, lanes};
use super::cluster::Cluster;
use super::lane::Identity;
use super::node_info::{NodeInfo, PodInfo};
use super::table::Table;

/// Number of node removals that a version remembers.
const KEPT: u32 = 4096;

/// How a node differs between two versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeKind {
    /// The node was added.
    Added,
    /// The node or its pods changed. [`Cluster::changed_since`] compares no contents, so they may have changed back.
    Changed,
    /// The node was removed.
    Removed,
}

/// A node that differs between two versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeChange {
    /// The node's slot, in the version that has the node.
    pub slot: NodeSlot,
    /// The node's name.
    pub name: Name,
    /// How the node differs.
    pub kind: ChangeKind,
}

/// The nodes that changed since a generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangedSince {
    /// The changed nodes in no particular order, except that removed nodes come first.
    Changes(Vec<NodeChange>),
    /// The generation is older than the removals that the version remembers: read all nodes again.
    Reset,
}

/// The generation passed to [`Cluster::changed_since`] is newer than the version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("generation {since} is newer than this version, {generation}: take a newer version")]
pub struct FutureGeneration {
    /// The generation that was passed.
    pub since: Generation,
    /// The generation of the version.
    pub generation: Generation,
}

/// The nodes that were removed recently.
#[derive(Clone, Default)]
pub(crate) struct Removed {
    entries: Table<Removal>,
    first: u32,
    next: u32,
    /// Removals up to this generation may have been forgotten.
    forgotten: Generation,
}

#[derive(Clone)]
struct Removal {
    at: Generation,
    /// The generation in which the node had been added.
    added: Generation,
    slot: NodeSlot,
    name: Name,
}

impl Removal {
    /// Returns whether the removed node had this name.
    fn is_of(&self, name: &Name) -> bool {
        #[cfg(test)]
        tests::COMPARED.set(tests::COMPARED.get() + 1);
        self.name == *name
    }
}

impl Removed {
    /// Returns an empty list for a lineage that remembers no removal before `generation`.
    pub(crate) fn forgotten_until(generation: Generation) -> Removed {
        Removed { forgotten: generation, ..Removed::default() }
    }

    pub(crate) fn push(&mut self, at: Generation, slot: NodeSlot, identity: &Identity) {
        if self.next.wrapping_sub(self.first) >= KEPT {
            if let Some(oldest) = self.entries.get(self.first) {
                self.forgotten = oldest.at;
            }
            self.entries.remove(self.first);
            self.first = self.first.wrapping_add(1);
        }
        let removal = Removal { at, added: identity.added, slot, name: identity.name.clone() };
        self.entries.set(self.next, removal);
        self.next = self.next.wrapping_add(1);
    }
}

/// Returns whether two nodes of one name are equal: their objects, and their pods in any order. O(pods × log pods),
/// or O(1) if the versions share the node.
fn is_equal(one: NodeInfo<'_>, other: NodeInfo<'_>) -> bool {
    let is_same_object =
        std::ptr::eq(one.identity(), other.identity()) || has_equal_objects(one, other);
    is_same_object && (std::ptr::eq(one.lane(), other.lane()) || has_equal_pods(one, other))
}

fn has_equal_objects(one: NodeInfo<'_>, other: NodeInfo<'_>) -> bool {
    one.kubelet_node() == other.kubelet_node()
        && one.nm_node() == other.nm_node()
        && one.custom_node_resource() == other.custom_node_resource()
}

fn has_equal_pods(one: NodeInfo<'_>, other: NodeInfo<'_>) -> bool {
    fn sorted<'a>(node: NodeInfo<'a>) -> Vec<(Uid, PodInfo<'a>)> {
        let mut pods: Vec<_> = node.pods().map(|pod| (pod.uid(), pod)).collect();
        pods.sort_by(|(one, _), (other, _)| one.cmp(other));
        pods
    }
    let is_equal = |((_, one), (_, other)): (&(Uid, PodInfo<'_>), &(Uid, PodInfo<'_>))| {
        is_equal_pod(*one, *other)
    };
    one.pod_count() == other.pod_count() && sorted(one).iter().zip(&sorted(other)).all(is_equal)
}

fn is_equal_pod(one: PodInfo<'_>, other: PodInfo<'_>) -> bool {
    one.is_assumed() == other.is_assumed() && one.to_pod() == other.to_pod()
}

impl NodeInfo<'_> {
    /// Returns whether decisions cannot tell two nodes of one name apart: their objects and pods are equal, and so are the
    /// order of the pods and the sizes of the images. O(pods + images × log n), or O(1) if the versions share the node.
    #[doc(hidden)]
    #[must_use]
    pub fn is_interchangeable(self, other: NodeInfo<'_>) -> bool {
        let has_equal_sizes = || {
            let sizes = self.images().map(|(name, image)| (name, image.size));
            sizes.eq(other.images().map(|(name, image)| (name, image.size)))
        };
        // An image keeps its size while a node has it, so it has one size in versions that share this node.
        let is_same_object = std::ptr::eq(self.identity(), other.identity())
            || (has_equal_objects(self, other) && has_equal_sizes());
        let has_same_pods = || {
            self.pod_count() == other.pod_count()
                && self.pods().zip(other.pods()).all(|(one, other)| is_equal_pod(one, other))
        };
        is_same_object && (std::ptr::eq(self.lane(), other.lane()) || has_same_pods())
    }
}

impl Cluster {
    /// Returns the nodes that were added, touched or removed after generation `since`. The cost is proportional to
    /// their number. Contents are not compared: [`Cluster::diff`] does that, for two versions.
    ///
    /// A node that was both added and removed in between is omitted. A node that was removed and added again under the
    /// same name appears as removed and as added, or as changed if its remaining pods preserved its slot.
    ///
    /// # Errors
    ///
    /// Returns an error if `since` is newer than this version, which then lacks the changes in between.
    pub fn changed_since(&self, since: Generation) -> Result<ChangedSince, FutureGeneration> {
        if since > self.generation {
            return Err(FutureGeneration { since, generation: self.generation });
        }
        let removed = &self.rest.removed;
        if since < removed.forgotten {
            return Ok(ChangedSince::Reset);
        }
        // The removed nodes, newest first, and whether a node of the same slot and name exists again. A node that took
        // over a slot was added after `since`, so no two of them have the same slot.
        let mut removals: Vec<(&Removal, bool)> = Vec::new();
        let mut by_slot: HashMap<NodeSlot, usize, Keyed> = HashMap::default();
        let mut at = removed.next;
        while at != removed.first {
            at = at.wrapping_sub(1);
            let Some(removal) = removed.entries.get(at).filter(|removal| removal.at > since) else {
                break;
            };
            if removal.added <= since {
                by_slot.insert(removal.slot, removals.len());
                removals.push((removal, false));
            }
        }
        let mut changes = Vec::new();
        for (_, chunk) in self.chunks.newer_than(since) {
            if chunk.is_ghosts() {
                continue;
            }
            for at in lanes(chunk.live).filter(|at| chunk.generation()[*at] > since) {
                let Some(identity) = chunk.identity(at) else { continue };
                let slot = chunk.slot()[at];
                let removal = by_slot.get(&slot).map(|at| &mut removals[*at]);
                let kind = match removal.filter(|(removal, _)| removal.is_of(&identity.name)) {
                    Some((_, exists_again)) => {
                        *exists_again = true;
                        ChangeKind::Changed
                    }
                    None if identity.added > since => ChangeKind::Added,
                    None => ChangeKind::Changed,
                };
                changes.push(NodeChange { slot, name: identity.name.clone(), kind });
            }
        }
        let removed = removals.into_iter().filter(|(_, exists_again)| !exists_again);
        let removed = removed.map(|(removal, _)| NodeChange {
            slot: removal.slot,
            name: removal.name.clone(),
            kind: ChangeKind::Removed,
        });
        Ok(ChangedSince::Changes(removed.chain(changes).collect()))
    }

    /// Returns how this version differs from `base`, sorted by name. A node is changed if one of its objects or pods
    /// differs: a pod that was added and removed again leaves no difference. Neither does another position in the list
    /// order, nor a generation.
    ///
    /// O(touched × log n + their pods × log pods), because subtrees that both versions share are skipped.
    #[must_use]
    pub fn diff(&self, base: &Cluster) -> Vec<NodeChange> {
        let mut ours = BTreeMap::new();
        let mut theirs = BTreeMap::new();
        self.chunks.diff(&base.chunks, &mut |_, our, their| {
            for (side, cluster, chunk) in [(&mut ours, self, our), (&mut theirs, base, their)] {
                let Some(chunk) = chunk else { continue };
                let nodes = (0..LANES).filter_map(|at| NodeInfo::new(cluster, chunk, at));
                side.extend(nodes.filter(|node| !node.is_ghost()).map(|node| (node.name(), node)));
            }
        });
        let change = |node: &NodeInfo<'_>, kind| NodeChange {
            slot: node.slot(),
            name: node.name().clone(),
            kind,
        };
        let mut changes = Vec::new();
        for (name, node) in &ours {
            match theirs.get(name) {
                None => changes.push(change(node, ChangeKind::Added)),
                Some(before) if !is_equal(*node, *before) => {
                    changes.push(change(node, ChangeKind::Changed));
                }
                Some(_) => {}
            }
        }
        let removed = theirs.iter().filter(|(name, _)| !ours.contains_key(*name));
        changes.extend(removed.map(|(_, node)| change(node, ChangeKind::Removed)));
        changes.sort_by(|a, b| a.name.cmp(&b.name));
        changes
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::cache::{Config, Engine};
    use crate::model::{node, pod};

    thread_local! {
        /// The number of nodes that were compared with a removal.
        pub(super) static COMPARED: Cell<usize> = const { Cell::new(0) };
    }

    #[test]
    fn changes_are_found_with_at_most_one_comparison_per_node() {
        const NODES: usize = 2_000;
        let (mut writer, _) = Engine::inline(Config::default());
        let name = |n: usize| Name::from(format!("n{n}"));
        for n in 0..NODES {
            writer.add_node(node(name(n)).build()).unwrap();
            writer.add_pod(pod(format!("p{n}")).on(name(n)).build()).unwrap();
        }
        let since = writer.publish();
        // Of every four nodes, one is updated, one replaced under its name, one removed, and one is untouched.
        for n in 0..NODES {
            if n % 4 == 0 {
                writer.update_node(node(name(n)).cpu(1).build()).unwrap();
            }
            if matches!(n % 4, 1 | 2) {
                writer.remove_node(name(n)).unwrap();
            }
            if n % 4 == 1 {
                writer.add_node(node(name(n)).build()).unwrap();
            }
        }
        COMPARED.set(0);
        let changed = writer.cluster().changed_since(since);
        assert!(COMPARED.get() <= NODES, "{}", COMPARED.get());
        let Ok(ChangedSince::Changes(changes)) = changed else { panic!("{changed:?}") };
        let kinds = |kind| changes.iter().filter(|change| change.kind == kind).count();
        let (changed, removed) = (kinds(ChangeKind::Changed), kinds(ChangeKind::Removed));
        assert_eq!((changed, removed, changes.len()), (NODES / 2, NODES / 4, NODES / 4 * 3));
        assert!(changes[..removed].iter().all(|change| change.kind == ChangeKind::Removed));
    }
}
