//! The root of a version, and everything that is read from it.

use std::ops::Deref;
use std::sync::Arc;

use crate::freeing::{Begin, End};
use crate::model::{
    Generation, LabelSelector, Labels, Name, Pod, PodGroupState, Taint, Template, Uid, ZoneKey,
    hash_of, key_hash,
};

use super::chunk::{Chunk, NodeSlot, Place, lanes};
use super::hash_index::HashIndex;
use super::lane::TemplateId;
use super::leases::Leases;
use super::node_info::{NodeInfo, PodInfo};
use super::pod_index::Uids;
use super::stores::Objects;
use super::table::{Internable, Interned, Table};
use super::tally::{Hosts, KnownHosts};
use super::tree::{Marked, Tree};
use super::zones::{Round, Zones};

/// The cluster at one version: what filters, scores and listers read.
///
/// Reached through a [`Snapshot`] (frozen), a [`Fork`](super::Fork) or the
/// writer. Nodes come in kube-scheduler's list order: round robin over the
/// zones in the order in which they were first seen, and in order of arrival
/// within a zone. A node that was removed while pods remain on it (a ghost) is
/// in no list.
pub struct Cluster {
    /// First and last: what is between them is freed in bounded steps.
    pub(super) _begin: Begin,
    pub(crate) generation: Generation,
    pub(crate) branch: u64,
    pub(crate) counts: Counts,
    pub(crate) chunks: Tree<Chunk>,
    /// From a uid's hash to the slots of nodes that may have the pod.
    pub(crate) uids: Uids,
    /// What placing a pod seldom changes.
    pub(crate) rest: triomphe::Arc<Rest>,
    /// How pods in Gödel's states count, where they do.
    pub(crate) godel: Option<triomphe::Arc<super::godel::Stores>>,
    /// Slots of tree nodes made for this version and all before it in its line; see [`crate::freeing`].
    pub(crate) made: u64,
    pub(super) _end: End,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) nodes: usize,
    pub(crate) ghosts: usize,
    pub(crate) pods: usize,
    pub(crate) assumed: usize,
}

#[derive(Clone, Default)]
pub(crate) struct Rest {
    /// Where the node with a slot is.
    pub(crate) places: Table<Place>,
    pub(crate) next_slot: u32,
    pub(crate) next_chunk: u32,
    /// From a name's hash to a slot.
    pub(crate) names: HashIndex,
    pub(crate) zones: Zones,
    /// See [`Cluster::layout`].
    pub(crate) layout: u64,
    pub(crate) templates: Templates,
    pub(crate) pod_labels: Interned<PodLabels>,
    pub(crate) taints: Interned<TaintSet>,
    pub(crate) labels: Interned<Labels>,
    pub(crate) resources: Interned<Name>,
    pub(crate) claims: Interned<Name>,
    /// Pod groups that placed pods are of; the users of one are those pods.
    pub(crate) groups: Interned<GroupKey>,
    pub(crate) images: Interned<ImageEntry>,
    pub(crate) hosts: KnownHosts,
    pub(crate) removed: super::changes::Removed,
    /// Apart: there are many stores, and their objects seldom change.
    pub(crate) objects: triomphe::Arc<Objects>,
    /// Where forks count themselves; every engine has its own.
    pub(crate) leases: Arc<Leases>,
}

/// Templates by number. How many pods use each only the writer knows.
#[derive(Clone, Default)]
pub(crate) struct Templates {
    pub(crate) table: Table<Kept>,
    pub(crate) index: HashIndex,
    pub(crate) next: u32,
}

/// A template, and the number of its pods' labels.
#[derive(Clone)]
pub(crate) struct Kept {
    pub(crate) template: Arc<Template>,
    pub(crate) labels: u32,
}

/// What selectors of pods look at: the namespace and the labels.
#[derive(Clone)]
pub(crate) struct PodLabels {
    pub(crate) namespace: Name,
    pub(crate) labels: Labels,
}

/// The namespace and name of a pod group.
#[derive(Clone)]
pub(crate) struct GroupKey {
    pub(crate) namespace: Name,
    pub(crate) name: Name,
}

/// The taints of a node, in their order.
#[derive(Clone)]
pub(crate) struct TaintSet(pub(crate) Arc<[Taint]>);

/// An image by one of its names, with the size that its first node reported.
#[derive(Clone)]
pub(crate) struct ImageEntry {
    pub(crate) name: Name,
    pub(crate) size: i64,
}

impl Internable for TaintSet {
    fn hash64(&self) -> u64 {
        hash_of(&*self.0)
    }
    fn same(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Internable for PodLabels {
    fn hash64(&self) -> u64 {
        hash_of(&(&*self.namespace, self.labels.hash64()))
    }
    fn same(&self, other: &Self) -> bool {
        self.namespace == other.namespace && self.labels == other.labels
    }
}

impl GroupKey {
    pub(crate) fn hash_of(namespace: &str, name: &str) -> u64 {
        hash_of(&(namespace, name))
    }
}

impl Internable for GroupKey {
    fn hash64(&self) -> u64 {
        GroupKey::hash_of(&self.namespace, &self.name)
    }
    fn same(&self, other: &Self) -> bool {
        self.namespace == other.namespace && self.name == other.name
    }
}

impl Internable for Labels {
    fn hash64(&self) -> u64 {
        Labels::hash64(self)
    }
    fn same(&self, other: &Self) -> bool {
        self == other
    }
}

impl Internable for Name {
    fn hash64(&self) -> u64 {
        hash_of(&**self)
    }
    fn same(&self, other: &Self) -> bool {
        self == other
    }
}

impl Internable for ImageEntry {
    fn hash64(&self) -> u64 {
        self.name.hash64()
    }
    fn same(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

pub(crate) const MARK_AFFINITY: u8 = 1;
pub(crate) const MARK_REQUIRED_ANTI_AFFINITY: u8 = 2;

impl Marked for Chunk {
    fn marks(&self) -> u8 {
        u8::from(self.affinity != 0) * MARK_AFFINITY
            | u8::from(self.required_anti_affinity != 0) * MARK_REQUIRED_ANTI_AFFINITY
    }
}

/// The key of a claim: namespace and name.
pub(crate) fn claim_key(namespace: &str, claim: &str) -> Name {
    format!("{namespace}/{claim}").into()
}

/// An image as ImageLocality sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageState {
    /// Its size in bytes, as the first node that has it reported.
    pub size: i64,
    /// How many live nodes have it, exactly.
    pub nodes: usize,
}

/// A zone, with its nodes in chunks.
#[derive(Clone, Copy)]
pub struct ZoneInfo<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) zone: &'a super::zones::Zone,
}

impl<'a> ZoneInfo<'a> {
    /// Region and zone.
    #[must_use]
    pub fn key(&self) -> &'a ZoneKey {
        &self.zone.key
    }

    /// How many nodes it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.zone.nodes
    }

    /// Whether it has none; such a zone is in no list.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.zone.nodes == 0
    }

    /// Its chunks: their live lanes, chunk after chunk and lowest first, are
    /// the zone's nodes in order of arrival.
    pub fn chunks(&self) -> impl Iterator<Item = &'a Chunk> + Clone + use<'a> {
        let cluster = self.cluster;
        self.zone.chunks.iter().filter_map(move |(_, id)| cluster.chunks.get(*id))
    }
}

impl Cluster {
    pub(crate) fn empty() -> Cluster {
        Cluster {
            _begin: Begin,
            generation: Generation::ZERO,
            branch: 0,
            counts: Counts::default(),
            chunks: Tree::default(),
            uids: Uids::new(),
            rest: triomphe::Arc::new(Rest::default()),
            godel: None,
            made: 0,
            _end: End,
        }
    }

    /// The same version once more. O(1).
    pub(crate) fn share(&self) -> Cluster {
        Cluster {
            _begin: Begin,
            generation: self.generation,
            branch: self.branch,
            counts: self.counts,
            chunks: self.chunks.clone(),
            uids: self.uids.share(),
            rest: self.rest.clone(),
            godel: self.godel.clone(),
            made: self.made,
            _end: End,
        }
    }

    /// The generation of this version: it is the fold of that many events.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Which line of versions this is of: 0 for the writer's, another number,
    /// unique in the process, for each fork's. Generations compare within one.
    #[must_use]
    pub fn branch(&self) -> u64 {
        self.branch
    }

    /// How many nodes are listed. `O(1)`.
    #[must_use]
    pub fn len(&self) -> usize {
        self.counts.nodes
    }

    /// Whether no node is listed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counts.nodes == 0
    }

    /// How many nodes there are, ghosts included (`Cache.NodeCount`).
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.counts.nodes + self.counts.ghosts
    }

    /// How many pods there are, those on ghosts included (`Cache.PodCount`).
    #[must_use]
    pub fn pod_count(&self) -> usize {
        self.counts.pods
    }

    /// How many pods are assumed.
    #[must_use]
    pub fn assumed_count(&self) -> usize {
        self.counts.assumed
    }

    /// All nodes in list order.
    pub fn nodes(&self) -> impl Iterator<Item = NodeInfo<'_>> {
        Round::new(self)
    }

    /// The zones in the order in which they were first seen.
    pub fn zones(&self) -> impl Iterator<Item = ZoneInfo<'_>> {
        self.rest.zones.list().map(|zone| ZoneInfo { cluster: self, zone })
    }

    /// All chunks in the order of their zones, each with its number and the
    /// generation that last touched it. Number and generation together name
    /// what is in a chunk: within one line of versions nothing else has both.
    pub(crate) fn chunk_list(&self) -> impl Iterator<Item = (u32, Generation, &Chunk)> {
        let ids = self.rest.zones.list().flat_map(|zone| zone.chunks.iter().map(|(_, id)| *id));
        ids.filter_map(|id| {
            let (chunk, newest) = self.chunks.get_newest(id)?;
            Some((id, newest, chunk))
        })
    }

    /// All of it that does not change while the layout stays: see
    /// [`Cluster::layout`].
    pub(crate) fn chunk_ids(&self) -> impl Iterator<Item = (usize, u32)> {
        let zones = self.rest.zones.list().enumerate();
        zones.flat_map(|(zone, of)| of.chunks.iter().map(move |(_, id)| (zone, *id)))
    }

    /// Names, within a line of versions, which chunks there are in which zones,
    /// which of their lanes are in use, and the labels of the nodes there and their
    /// schedulers.
    pub(crate) fn layout(&self) -> u64 {
        self.rest.layout
    }

    /// The entries of [`Cluster::chunk_list`] that were touched after a generation,
    /// by number. O(chunks found × log chunks).
    pub(crate) fn chunks_newer_than(
        &self,
        generation: Generation,
    ) -> impl Iterator<Item = (u32, Generation, &Chunk)> {
        let newer = self.chunks.newer_than(generation).with_newest();
        newer.filter(|(_, _, chunk)| !chunk.is_ghosts())
    }

    /// An entry of [`Cluster::chunk_list`] by its number. O(log chunks).
    pub(crate) fn listed_chunk(&self, id: u32) -> Option<(Generation, &Chunk)> {
        self.chunks.get_newest(id).map(|(chunk, newest)| (newest, chunk))
    }

    /// The listed chunks that have nodes with pods with pod affinity or
    /// anti-affinity.
    pub(crate) fn chunks_with_affinity(&self) -> impl Iterator<Item = &Chunk> {
        self.marked_chunks(MARK_AFFINITY)
    }

    /// The same of required anti-affinity.
    pub(crate) fn chunks_with_required_anti_affinity(&self) -> impl Iterator<Item = &Chunk> {
        self.marked_chunks(MARK_REQUIRED_ANTI_AFFINITY)
    }

    fn marked_chunks(&self, mark: u8) -> impl Iterator<Item = &Chunk> {
        let marked = self.chunks.marked(mark).map(|(_, chunk)| chunk);
        marked.filter(|chunk| !chunk.is_ghosts())
    }

    /// The entry of [`Cluster::chunk_list`] for the chunk of a node.
    pub(crate) fn chunk_of(&self, node: NodeInfo<'_>) -> Option<(u32, Generation, &Chunk)> {
        let id = self.rest.places.get(node.slot().0)?.chunk;
        let (chunk, newest) = self.chunks.get_newest(id)?;
        Some((id, newest, chunk))
    }

    /// Numbers of chunks are below this.
    pub(crate) fn most_chunks(&self) -> usize {
        self.rest.next_chunk as usize
    }

    /// The line of versions that this one is of.
    pub(crate) fn line(&self) -> Lineage {
        Lineage { leases: self.rest.leases.clone(), branch: self.branch }
    }

    /// The node called `name`; `None` for a ghost. O(log n).
    #[must_use]
    pub fn node(&self, name: &str) -> Option<NodeInfo<'_>> {
        self.any_node(name).filter(|info| !info.is_ghost())
    }

    /// The node with this slot; `None` for a ghost. O(log n).
    #[must_use]
    pub fn node_by_slot(&self, slot: NodeSlot) -> Option<NodeInfo<'_>> {
        self.at_slot(slot).filter(|info| !info.is_ghost())
    }

    /// The node or ghost called `name`.
    pub(crate) fn any_node(&self, name: &str) -> Option<NodeInfo<'_>> {
        let mut found = None;
        self.rest.names.find(hash_of(name), |slot| {
            found = self.at_slot(NodeSlot(slot)).filter(|info| **info.name() == *name);
            found.is_some()
        });
        found
    }

    pub(crate) fn at_slot(&self, slot: NodeSlot) -> Option<NodeInfo<'_>> {
        let place = *self.rest.places.get(slot.0)?;
        NodeInfo::new(self, self.chunks.get(place.chunk)?, place.lane)
    }

    /// The node in a lane of a chunk of this cluster.
    #[must_use]
    pub fn node_in<'a>(&'a self, chunk: &'a Chunk, lane: usize) -> Option<NodeInfo<'a>> {
        NodeInfo::new(self, chunk, lane)
    }

    /// The nodes with pods that have pod affinity or anti-affinity, in no
    /// particular order. O(nodes found × log n).
    pub fn nodes_with_affinity(&self) -> impl Iterator<Item = NodeInfo<'_>> {
        self.marked(MARK_AFFINITY, |chunk| chunk.affinity)
    }

    /// The nodes with pods that have required anti-affinity, in no particular
    /// order. O(nodes found × log n).
    pub fn nodes_with_required_anti_affinity(&self) -> impl Iterator<Item = NodeInfo<'_>> {
        self.marked(MARK_REQUIRED_ANTI_AFFINITY, |chunk| chunk.required_anti_affinity)
    }

    fn marked(&self, mark: u8, mask: impl Fn(&Chunk) -> u64) -> impl Iterator<Item = NodeInfo<'_>> {
        self.chunks.marked(mark).filter(|(_, chunk)| !chunk.is_ghosts()).flat_map(
            move |(_, chunk)| {
                lanes(mask(chunk)).filter_map(move |lane| NodeInfo::new(self, chunk, lane))
            },
        )
    }

    /// The pod with this uid, on whatever node or ghost. O(log n + pods of the
    /// node).
    #[must_use]
    pub fn pod(&self, uid: &Uid) -> Option<PodInfo<'_>> {
        let (key, text) = uid.key();
        let mut found = None;
        self.uids.find(key_hash(key), |slot| {
            found = self.at_slot(NodeSlot(slot)).and_then(|node| node.find(key, text));
            found.is_some()
        });
        found
    }

    /// The pods whose labels match, on nodes and ghosts, that `filter` accepts
    /// (the old `List` and `FilteredList`). The selector is decided once per
    /// template. O(pods).
    pub fn pods<'a, F>(
        &'a self,
        selector: &LabelSelector,
        mut filter: F,
    ) -> impl Iterator<Item = PodInfo<'a>> + use<'a, F>
    where
        F: FnMut(&PodInfo<'a>) -> bool + 'a,
    {
        let templates = &self.rest.templates;
        let mut matching = vec![0_u64; templates.next as usize / 64 + 1];
        for (id, kept) in templates.table.iter() {
            if selector.matches(&kept.template.labels) {
                matching[id as usize / 64] |= 1 << (id % 64);
            }
        }
        self.chunks
            .iter()
            .flat_map(move |(_, chunk)| {
                lanes(chunk.live).filter_map(move |lane| NodeInfo::new(self, chunk, lane))
            })
            .flat_map(|node| node.pods())
            .filter(move |pod| {
                let id = pod.template_id();
                matching[id as usize / 64] >> (id % 64) & 1 == 1 && filter(pod)
            })
    }

    /// The namespace and the labels that pods of equal ones share, by number.
    pub(crate) fn pod_labels(&self, number: u32) -> Option<(&Name, &Labels)> {
        self.rest.pod_labels.get(number).map(|of| (&of.namespace, &of.labels))
    }

    /// The number of the labels of a template's pods.
    pub(crate) fn pod_labels_of(&self, template: TemplateId) -> u32 {
        self.rest.templates.table.get(template).map_or(u32::MAX, |kept| kept.labels)
    }

    /// The hostnames of the nodes. O(1), or O(nodes) after a node came, went or
    /// was renamed.
    pub(crate) fn hosts(&self) -> &Arc<Hosts> {
        self.rest.hosts.get(self)
    }

    /// The labels that nodes share, with the numbers that their columns say.
    pub(crate) fn label_sets(&self) -> impl Iterator<Item = (u32, &Labels)> {
        self.rest.labels.iter()
    }

    /// The template with this number.
    pub(crate) fn template(&self, id: TemplateId) -> Option<&Arc<Template>> {
        self.rest.templates.table.get(id).map(|kept| &kept.template)
    }

    /// The taints of nodes whose column says this number.
    #[must_use]
    pub fn taint_set(&self, set: u32) -> &[Taint] {
        self.rest.taints.get(set).map_or(&[], |set| &set.0)
    }

    /// The different sets of taints that nodes have, if there are no more than
    /// `most`.
    pub(crate) fn taint_sets(&self, most: usize) -> Option<impl Iterator<Item = &[Taint]>> {
        let sets = &self.rest.taints;
        (sets.len() <= most).then(|| sets.iter().map(|(_, set)| &*set.0))
    }

    /// The labels that all nodes share whose column says this number.
    #[must_use]
    pub fn label_set(&self, set: u32) -> &Labels {
        self.rest.labels.get(set).unwrap_or(const { &Labels::EMPTY })
    }

    /// The number of a scalar resource, by which chunks have their columns;
    /// `None` where neither a node nor a placed pod names it.
    #[must_use]
    pub fn resource_id(&self, name: &str) -> Option<u32> {
        self.rest.resources.find(hash_of(name), |known| **known == *name)
    }

    /// The scalar resource with this number.
    #[must_use]
    pub fn resource_name(&self, id: u32) -> Option<&Name> {
        self.rest.resources.get(id)
    }

    /// The image called `name` (a tag or a digest). O(log n).
    #[must_use]
    pub fn image(&self, name: &str) -> Option<ImageState> {
        let images = &self.rest.images;
        let id = images.find(hash_of(name), |image| *image.name == *name)?;
        Some(ImageState { size: images.get(id)?.size, nodes: images.users(id) as usize })
    }

    /// Whether a pod on a listed node uses the claim (`IsPVCUsedByPods`). O(log
    /// n).
    #[must_use]
    pub fn is_claim_used(&self, namespace: &str, claim: &str) -> bool {
        let key = claim_key(namespace, claim);
        self.rest.claims.find(hash_of(&*key), |known| *known == key).is_some()
    }

    /// The claims that pods on listed nodes use, each as `namespace/name`, in
    /// no particular order.
    pub fn used_claims(&self) -> impl Iterator<Item = &Name> {
        self.rest.claims.iter().map(|(_, key)| key)
    }

    /// How many pods of a pod group are on nodes, the assumed ones included. O(log n).
    #[must_use]
    pub fn placed_members(&self, namespace: &str, name: &str) -> usize {
        let groups = &self.rest.groups;
        let found = groups.find(GroupKey::hash_of(namespace, name), |known| {
            *known.namespace == *namespace && *known.name == *name
        });
        found.map_or(0, |number| groups.users(number) as usize)
    }

    /// How a pod group stands in this version, by its phase and by its pods that are
    /// placed ([`PodGroup::state`](crate::model::PodGroup::state)). A version knows no
    /// clock: that a group is late says its phase here, or a queue, see
    /// [`SchedulingQueue::group_status`](crate::scheduler::queue::SchedulingQueue::group_status).
    /// Nothing is kept of a group that is gone. O(log n).
    #[must_use]
    pub fn group_state(&self, namespace: &str, name: &str) -> PodGroupState {
        match self.objects().pod_groups.get(namespace, name) {
            Some(group) => group.state(self.placed_members(namespace, name)),
            None => PodGroupState::Unknown,
        }
    }

    /// The status of the unit that a pod belongs to (Gödel's `GetUnitSchedulingStatus`):
    /// that of its pod group, or Unknown for a pod of no group, wherever that pod is.
    /// Gödel keeps no status of units of a single pod. O(log n).
    #[must_use]
    pub fn unit_state(&self, pod: &Pod) -> PodGroupState {
        match pod.group() {
            Some((namespace, name)) => self.group_state(namespace, name),
            None => PodGroupState::Unknown,
        }
    }

    /// The stores of the other objects.
    #[must_use]
    pub fn objects(&self) -> &Objects {
        &self.rest.objects
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster")
            .field("generation", &self.generation)
            .field("branch", &self.branch)
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

/// A line of versions: of an engine's writer, or of one of its forks.
#[derive(Clone, Debug)]
pub(crate) struct Lineage {
    /// Every engine has its own, and holding it keeps its address from another.
    leases: Arc<Leases>,
    branch: u64,
}

impl PartialEq for Lineage {
    fn eq(&self, other: &Lineage) -> bool {
        Arc::ptr_eq(&self.leases, &other.leases) && self.branch == other.branch
    }
}

/// A frozen version of the cluster; see [`Cluster`] for what can be read.
///
/// While its engine lives, the engine frees it. Afterwards the last holder does, as the holder of a
/// [`Fork`](super::Fork) frees what only the fork has: a fraction of a millisecond of work where it is dropped. What is
/// larger, a thread called `portolan-free` finishes, which ends when it has nothing to do; where no thread can be
/// started, or 64 others wait for it, the holder does all of it.
#[derive(Debug)]
pub struct Snapshot(pub(crate) Cluster);

impl Deref for Snapshot {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.0
    }
}
