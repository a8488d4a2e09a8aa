//! Shards, for several schedulers that each own a part of the nodes and of the pods and may exchange parts at any time.
//!
//! A shard is a part of the nodes, by their names, and a part of the pods. Both follow from the objects alone and are
//! the same in every process and on every platform, so schedulers that know nothing of each other agree on them. A
//! [`ShardSet`] is the set of shards that one scheduler holds. Its clones share the set, which the caller changes; the
//! scheduling cycle reads it once for each pod ([`Partition::Shards`](super::Partition::Shards)), and the queue parks
//! the pods of other shards (`SchedulingQueue::with_shards`).

use std::fmt::{self, Write};
use std::num::NonZeroU32;
use std::sync::{Arc, PoisonError, RwLock};

use crate::model::{NodeSelector, Operator, Pod};

/// The shards that a scheduler holds. Clones share the set.
#[derive(Clone)]
pub struct ShardSet {
    count: NonZeroU32,
    /// The held shards as bits. A lock, so that a thread that finds a shard also finds the state for which it was
    /// added.
    held: Arc<RwLock<u64>>,
}

impl ShardSet {
    /// The largest number of shards.
    pub const MAX: u32 = u64::BITS;

    /// Creates an empty set of `count` shards, or returns `None` if there are more than [`ShardSet::MAX`].
    #[must_use]
    pub fn new(count: NonZeroU32) -> Option<ShardSet> {
        (count.get() <= ShardSet::MAX).then(|| ShardSet { count, held: Arc::default() })
    }

    /// The number of shards, held or not.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count.get()
    }

    /// Returns the shard of a node, from 0, by its name.
    #[must_use]
    pub fn of_node(&self, name: &str) -> u32 {
        let mut hash = Fnv::new();
        hash.add(name.as_bytes());
        self.shard(&hash)
    }

    /// Returns the shard of a pod that is on no node.
    ///
    /// A pod that is nominated to a node, or that requires one node by its name, belongs to the shard of that node.
    /// Otherwise the shard follows from the uid of the pod's controller, so that one replica decides on all its pods,
    /// which often have affinity to each other or are spread. Without a controller, it follows from the pod's own uid.
    #[doc(hidden)]
    #[must_use]
    pub fn of_pod(&self, pod: &Pod) -> u32 {
        if let Some(node) = pod.nominated_node_name.as_deref().filter(|node| !node.is_empty()) {
            return self.of_node(node);
        }
        let affinity = pod.template.node_affinity.as_ref();
        if let Some(node) = affinity.and_then(|of| only_node(of.required.as_ref()?)) {
            return self.of_node(node);
        }
        let mut hash = Fnv::new();
        match pod.template.controller() {
            Some(owner) => hash.add(owner.uid.as_bytes()),
            // Writing to a hash does not fail.
            None => drop(write!(hash, "{}", pod.uid)),
        }
        self.shard(&hash)
    }

    fn shard(&self, hash: &Fnv) -> u32 {
        // The remainder is smaller than a `u32`.
        (hash.finish() % u64::from(self.count())) as u32
    }

    /// Returns whether the set contains the shard.
    #[must_use]
    pub fn holds(&self, shard: u32) -> bool {
        contains(self.mask(), shard)
    }

    /// Returns whether the set contains the node's shard.
    #[must_use]
    pub fn holds_node(&self, name: &str) -> bool {
        self.holds(self.of_node(name))
    }

    /// Returns whether the set contains the shard of a pod that is on no node.
    #[must_use]
    pub fn holds_pod(&self, pod: &Pod) -> bool {
        self.holds(self.of_pod(pod))
    }

    /// Returns the shards of the set, in ascending order.
    pub fn held(&self) -> impl Iterator<Item = u32> + use<> {
        let mask = self.mask();
        (0..self.count()).filter(move |shard| contains(mask, *shard))
    }

    /// Adds a shard. Everything that the caller did before is visible to a thread that finds the shard in the set.
    pub fn add(&self, shard: u32) {
        *self.held.write().unwrap_or_else(PoisonError::into_inner) |= bit(shard);
    }

    /// Removes a shard.
    pub fn remove(&self, shard: u32) {
        *self.held.write().unwrap_or_else(PoisonError::into_inner) &= !bit(shard);
    }

    /// Returns the set as bits, of which the lowest is shard 0.
    pub(super) fn mask(&self) -> u64 {
        *self.held.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the set of these bits contains the node's shard.
    pub(super) fn has_node(&self, mask: u64, name: &str) -> bool {
        contains(mask, self.of_node(name))
    }
}

fn bit(shard: u32) -> u64 {
    1_u64.checked_shl(shard).unwrap_or(0)
}

fn contains(mask: u64, shard: u32) -> bool {
    mask & bit(shard) != 0
}

/// Returns the only node that the terms allow by its name, as DaemonSets require theirs.
fn only_node(required: &NodeSelector) -> Option<&str> {
    let [term] = &required.terms[..] else { return None };
    let by_name = term
        .match_fields
        .iter()
        .find(|of| &*of.key == "metadata.name" && of.operator == Operator::In);
    match &by_name?.values[..] {
        [name] => Some(name),
        _ => None,
    }
}

/// FNV-1a with 64 bits and the finalizer of MurmurHash3, whose low bits depend on all bits of the text.
struct Fnv(u64);

impl Fnv {
    fn new() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        let mut hash = self.0;
        hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash = (hash ^ hash >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        hash ^ hash >> 33
    }
}

impl Write for Fnv {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.add(text.as_bytes());
        Ok(())
    }
}

impl PartialEq for ShardSet {
    /// Returns whether both are handles to the same set. Does not compare the shards in them.
    fn eq(&self, other: &ShardSet) -> bool {
        Arc::ptr_eq(&self.held, &other.held)
    }
}

impl Eq for ShardSet {}

impl fmt::Debug for ShardSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardSet")
            .field("count", &self.count)
            .field("held", &self.held().collect::<Vec<_>>())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Name, NodeAffinity, NodeSelectorTerm, OwnerReference, Requirement, pod};

    fn shards(count: u32) -> ShardSet {
        NonZeroU32::new(count).and_then(ShardSet::new).unwrap()
    }

    /// A new release must agree with the replicas of the old one during an update.
    #[test]
    fn shards_of_names_never_change() {
        let of = shards(64);
        let found = ["", "a", "node-0", "node-1", "ip-10-0-3-17.eu-west-1.compute.internal"]
            .map(|name| of.of_node(name));
        assert_eq!(found, FIXED);
        let uuid = "01234567-89ab-cdef-0123-456789abcdef";
        let of_uid = of.of_pod(&pod("p").uid(uuid).build());
        assert_eq!(of_uid, of.of_node(uuid), "a uid is hashed as text");
    }

    const FIXED: [u32; 5] = [38, 27, 45, 5, 40];

    #[test]
    fn shards_have_similar_sizes() {
        for count in [2, 3, 7, 64] {
            let of = shards(count);
            let mut sizes = vec![0_u32; count as usize];
            (0..64_000).for_each(|n| sizes[of.of_node(&format!("node-{n}")) as usize] += 1);
            let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
            assert!(most - least < 64_000 / count / 4, "{count}: {sizes:?}");
        }
    }

    #[test]
    fn a_pod_belongs_to_the_shard_of_its_node_its_controller_or_itself() {
        let of = shards(64);
        let owned = |name: &str, owner: &str| {
            let reference = OwnerReference {
                api_version: "apps/v1".into(),
                kind: "ReplicaSet".into(),
                name: "web".into(),
                uid: owner.into(),
                controller: true,
            };
            pod(name).spec(|spec| spec.owners = [reference].into()).build()
        };
        assert_eq!(of.of_pod(&owned("a", "u-web")), of.of_pod(&owned("b", "u-web")));
        assert_eq!(of.of_pod(&owned("a", "u-web")), of.of_node("u-web"));
        let alone = pod("a").uid("u-a").build();
        assert_eq!(of.of_pod(&alone), of.of_node("u-a"));
        let nominated = Pod { nominated_node_name: Some("n7".into()), ..owned("a", "u-web") };
        assert_eq!(of.of_pod(&nominated), of.of_node("n7"));
        let cleared = Pod { nominated_node_name: Some("".into()), ..owned("a", "u-web") };
        assert_eq!(of.of_pod(&cleared), of.of_node("u-web"));
        let by_name = |names: &[&str]| {
            let requirement = Requirement {
                key: "metadata.name".into(),
                operator: Operator::In,
                values: names.iter().map(|name| Name::from(*name)).collect(),
            };
            let term = NodeSelectorTerm {
                match_fields: [requirement].into(),
                ..NodeSelectorTerm::default()
            };
            let required = Some(NodeSelector { terms: [term].into() });
            pod("a").uid("u-a").node_affinity(NodeAffinity { required, preferred: [].into() })
        };
        assert_eq!(of.of_pod(&by_name(&["n7"]).build()), of.of_node("n7"));
        assert_eq!(of.of_pod(&by_name(&["n7", "n8"]).build()), of.of_node("u-a"));
    }

    #[test]
    fn clones_share_the_set() {
        let set = shards(5);
        let clone = set.clone();
        [1, 4, 70].into_iter().for_each(|shard| set.add(shard));
        set.remove(1);
        assert_eq!(clone.held().collect::<Vec<_>>(), [4]);
        assert!(clone.holds(4) && !clone.holds(1) && !clone.holds(70));
        assert_eq!((clone == set, set == shards(5)), (true, false));
        assert_eq!(ShardSet::new(NonZeroU32::new(65).unwrap()), None);
    }
}
