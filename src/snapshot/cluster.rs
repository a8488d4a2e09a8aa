//! The root of a version, and the queries on it.

use std::collections::HashSet;
use std::ops::Deref;
use std::sync::Arc;

use crate::freeing::{Begin, End};
use crate::model::{
    Generation, LabelSelector, Labels, Launcher, Name, Node, PodAffinityTerm, PodGroupState, Taint,
    Template, Uid, hash_of, key_hash, pod_name_hash,
};
use crate::sync::mutated;

use super::chunk::{Chunk, NodeSlot, Place, lanes};
use super::cost;
use super::custom::CustomStores;
use super::hash_index::HashIndex;
use super::known::{ByNamespace, Known};
use super::lane::TemplateId;
use super::node_info::{NodeInfo, PodInfo};
use super::plan::PlanId;
use super::pod_index::PodLookup;
use super::stores::Objects;
use super::table::{Internable, Interned, Table};
use super::tally::Hosts;
use super::tree::{Marked, Tree};
use super::zones::{self, Round, Zones};

/// The cluster at one version, read by filters, scores and listers.
///
/// A `Cluster` is reached through a [`Snapshot`] (frozen), a [`Fork`](super::Fork) or the writer. Nodes are listed in
/// kube-scheduler's order: round robin over the zones in the order in which they were first seen, and in order of
/// arrival within a zone. A ghost, which is a node that is known only by its pods, appears in no list.
pub struct Cluster {
    /// `Begin` is the first field and `End` the last; the fields between them are freed in bounded steps.
    pub(super) _begin: Begin,
    pub(crate) generation: Generation,
    pub(crate) branch: u64,
    /// The plan that this state belongs to, until the writer adopts it.
    pub(crate) plan: Option<Arc<PlanId>>,
    pub(crate) counts: Counts,
    pub(crate) chunks: Tree<Chunk>,
    /// Maps the hashes of a pod's uid and, if it has names, name to the slots of the nodes that may hold the pod.
    pub(crate) lookup: PodLookup,
    /// State that placing a pod rarely changes.
    pub(crate) rest: triomphe::Arc<Rest>,
    /// Gödel's configuration and stores; `None` if Gödel semantics are disabled.
    pub(crate) godel: Option<triomphe::Arc<super::godel::Stores>>,
    /// The registered custom stores; `None` if there are none.
    pub(crate) custom: Option<triomphe::Arc<CustomStores>>,
    /// Number of child slots in all tree nodes allocated for this version and the earlier ones of its lineage; see
    /// [`crate::freeing`].
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
    /// Maps a slot to the chunk and lane of its node.
    pub(crate) places: Table<Place>,
    pub(crate) next_slot: u32,
    pub(crate) next_chunk: u32,
    /// Maps the hash of a name to a slot.
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
    /// Pod groups that have placed pods; the user count of a group is the number of those pods.
    pub(crate) groups: Interned<GroupKey>,
    pub(crate) images: Interned<ImageEntry>,
    /// The hostnames of the nodes, until a node is added, removed or renamed.
    pub(crate) hosts: Known<Hosts>,
    /// Until a label set or a template with affinity comes or goes.
    pub(crate) by_namespace: Known<ByNamespace>,
    pub(crate) removed: super::changes::Removed,
    /// Behind its own pointer, because there are many stores and their objects rarely change.
    pub(crate) objects: triomphe::Arc<Objects>,
    origin: Origin,
}

impl Rest {
    /// Returns the state for writing. It is copied first if another version shares it.
    pub(crate) fn make_mut(rest: &mut triomphe::Arc<Rest>) -> &mut Rest {
        if !rest.is_unique() {
            // A table or an index has one pointer, interned values and the zones have two.
            cost::copied::<Rest>(25);
        }
        triomphe::Arc::make_mut(rest)
    }
}

/// Templates by number. Only the writer knows how many pods use each.
#[derive(Clone, Default)]
pub(crate) struct Templates {
    pub(crate) table: Table<Kept>,
    pub(crate) index: HashIndex,
    pub(crate) next: u32,
    /// Identifies the templates with affinity or anti-affinity, as [`Interned::stamp`] does.
    pub(crate) affine: u64,
}

/// A template, and the number of its pods' label set.
#[derive(Clone)]
pub(crate) struct Kept {
    pub(crate) template: Arc<Template>,
    pub(crate) labels: u32,
}

/// The namespace and labels of a pod, which pod selectors match against.
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

/// The taints of a node, in the node's order.
#[derive(Clone)]
pub(crate) struct TaintSet(pub(crate) Arc<[Taint]>);

/// An image under one of its names, with the size reported by the first node that has it.
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

/// Returns the key of a claim: `namespace/name`.
pub(crate) fn claim_key(namespace: &str, claim: &str) -> Name {
    format!("{namespace}/{claim}").into()
}

/// An image as the ImageLocality plugin sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ImageState {
    /// Size in bytes, as reported by the first node that has the image.
    pub size: i64,
    /// Exact number of live nodes that have the image.
    pub nodes: usize,
}

/// A zone and the chunks of its nodes.
#[derive(Clone, Copy)]
pub struct ZoneInfo<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) zone: &'a super::zones::Zone,
}

impl<'a> ZoneInfo<'a> {
    /// Returns the zone's nodes in order of arrival.
    ///
    /// ```
    /// use portolan::cache::{Config, Engine};
    /// use portolan::model::node;
    ///
    /// let (mut writer, reader) = Engine::inline(Config::default());
    /// writer.add_node(node("n1").zone("a").build())?;
    /// writer.add_node(node("n2").zone("b").build())?;
    /// writer.publish();
    /// let snapshot = reader.snapshot();
    /// let names = snapshot.zones().flat_map(|zone| zone.nodes()).map(|node| node.name().to_string());
    /// assert_eq!(names.collect::<Vec<_>>(), ["n1", "n2"]);
    /// # Ok::<(), portolan::model::EventError>(())
    /// ```
    pub fn nodes(&self) -> impl Iterator<Item = NodeInfo<'a>> + use<'a> {
        let cluster = self.cluster;
        self.chunks().flat_map(move |chunk| {
            lanes(chunk.live).filter_map(move |lane| NodeInfo::new(cluster, chunk, lane))
        })
    }

    /// Returns the zone's chunks. Their live lanes, chunk after chunk and lowest first, are the zone's nodes in order
    /// of arrival.
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
            plan: None,
            counts: Counts::default(),
            chunks: Tree::default(),
            lookup: PodLookup::new(false),
            rest: triomphe::Arc::new(Rest::default()),
            godel: None,
            custom: None,
            made: 0,
            _end: End,
        }
    }

    /// Returns another handle to the same version. O(1).
    pub(crate) fn share(&self) -> Cluster {
        Cluster {
            _begin: Begin,
            generation: self.generation,
            branch: self.branch,
            plan: self.plan.clone(),
            counts: self.counts,
            chunks: self.chunks.clone(),
            lookup: self.lookup.share(),
            rest: self.rest.clone(),
            godel: self.godel.clone(),
            custom: self.custom.clone(),
            made: self.made,
            _end: End,
        }
    }

    /// Returns the generation of this version, which is the number of events folded into it.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Returns the branch of this version: a number unique in the process for each fork, and for each engine that began
    /// with a version ([`Engine::at`](crate::cache::Engine::at)); 0 for all other engines. Only generations of the same
    /// branch of an engine are comparable.
    #[must_use]
    pub fn branch(&self) -> u64 {
        self.branch
    }

    /// Returns the number of listed nodes. O(1).
    #[must_use]
    pub fn len(&self) -> usize {
        self.counts.nodes
    }

    /// Returns whether no node is listed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counts.nodes == 0
    }

    /// Returns the number of nodes, ghosts included (`Cache.NodeCount`).
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.counts.nodes + self.counts.ghosts
    }

    /// Returns the number of pods, those on ghosts included (`Cache.PodCount`).
    #[must_use]
    pub fn pod_count(&self) -> usize {
        self.counts.pods
    }

    /// Returns the number of assumed pods.
    #[must_use]
    pub fn assumed_count(&self) -> usize {
        self.counts.assumed
    }

    /// Returns all nodes in list order.
    pub fn nodes(&self) -> impl Iterator<Item = NodeInfo<'_>> {
        Round::new(self)
    }

    /// Returns the zones in the order in which they were first seen.
    pub fn zones(&self) -> impl Iterator<Item = ZoneInfo<'_>> {
        self.rest.zones.list().map(|zone| ZoneInfo { cluster: self, zone })
    }

    /// Returns all chunks in zone order, each with its number and the generation that last touched it. Within one
    /// lineage, the pair of number and generation identifies the contents of a chunk.
    pub(crate) fn chunk_list(&self) -> impl Iterator<Item = (u32, Generation, &Chunk)> {
        let ids = self.rest.zones.list().flat_map(|zone| zone.chunks.iter().map(|(_, id)| *id));
        ids.filter_map(|id| {
            let (chunk, newest) = self.chunks.get_newest(id)?;
            Some((id, newest, chunk))
        })
    }

    /// Returns the part of [`Cluster::chunk_list`] that is constant while the layout is: the index of the zone and the
    /// number of each chunk. See [`Cluster::layout`].
    pub(crate) fn chunk_ids(&self) -> impl Iterator<Item = (usize, u32)> {
        let zones = self.rest.zones.list().enumerate();
        zones.flat_map(|(index, zone)| zone.chunks.iter().map(move |(_, id)| (index, *id)))
    }

    /// Returns the identifier of the layout within a lineage: the chunks of each zone, their lanes in use, and the
    /// labels and schedulers of their nodes. Equal identifiers mean equal layouts.
    pub(crate) fn layout(&self) -> u64 {
        self.rest.layout
    }

    /// Returns the entries of [`Cluster::chunk_list`] touched after `generation`, by number.
    /// O(chunks found × log chunks).
    pub(crate) fn chunks_newer_than(
        &self,
        generation: Generation,
    ) -> impl Iterator<Item = (u32, Generation, &Chunk)> {
        let newer = self.chunks.newer_than(generation).with_newest();
        newer.filter(|(_, _, chunk)| !chunk.is_ghosts())
    }

    /// Returns the entry of [`Cluster::chunk_list`] with this number. O(log chunks).
    pub(crate) fn listed_chunk(&self, id: u32) -> Option<(Generation, &Chunk)> {
        self.chunks.get_newest(id).map(|(chunk, newest)| (newest, chunk))
    }

    /// Returns the listed chunks with nodes that run pods with pod affinity or anti-affinity.
    pub(crate) fn chunks_with_affinity(&self) -> impl Iterator<Item = &Chunk> {
        self.marked_chunks(MARK_AFFINITY)
    }

    /// Returns the listed chunks with nodes that run pods with required anti-affinity.
    pub(crate) fn chunks_with_required_anti_affinity(&self) -> impl Iterator<Item = &Chunk> {
        self.marked_chunks(MARK_REQUIRED_ANTI_AFFINITY)
    }

    fn marked_chunks(&self, mark: u8) -> impl Iterator<Item = &Chunk> {
        let marked = self.chunks.marked(mark).map(|(_, chunk)| chunk);
        marked.filter(|chunk| !chunk.is_ghosts())
    }

    /// Returns the entry of [`Cluster::chunk_list`] for the chunk of `node`.
    pub(crate) fn chunk_of(&self, node: NodeInfo<'_>) -> Option<(u32, Generation, &Chunk)> {
        let id = self.rest.places.get(node.slot().0)?.chunk;
        let (chunk, newest) = self.chunks.get_newest(id)?;
        Some((id, newest, chunk))
    }

    /// Returns whether this slot has a node, no node of its chunk has changed since a generation of this branch, and the
    /// verdicts of local plugins on pods of this template depend on no store. O(log n).
    pub(crate) fn is_unchanged_since(
        &self,
        slot: NodeSlot,
        template: &Template,
        since: Generation,
    ) -> bool {
        let place = self.rest.places.get(slot.0);
        let found = place.and_then(|place| self.chunks.get_newest(place.chunk));
        self.godel.is_none()
            && !self.concerns_stores(template, since)
            && found.is_some_and(|(chunk, newest)| {
                !chunk.is_ghosts() && (newest <= since || mutated!("commit-overlooks-changes"))
            })
    }

    /// Returns an exclusive upper bound of the chunk numbers.
    pub(crate) fn chunk_bound(&self) -> usize {
        self.rest.next_chunk as usize
    }

    pub(crate) fn lineage(&self) -> Lineage {
        Lineage { origin: self.rest.origin, branch: self.branch }
    }

    /// Returns the node called `name`, or `None` if it is unknown or a ghost. O(log n).
    #[must_use]
    pub fn node(&self, name: &str) -> Option<NodeInfo<'_>> {
        self.any_node(name).filter(|info| !info.is_ghost())
    }

    /// Returns the node with this slot, or `None` if it is unknown or a ghost. O(log n).
    #[doc(hidden)]
    #[must_use]
    pub fn node_by_slot(&self, slot: NodeSlot) -> Option<NodeInfo<'_>> {
        self.at_slot(slot).filter(|info| !info.is_ghost())
    }

    /// Returns the node or ghost called `name`.
    pub(crate) fn any_node(&self, name: &str) -> Option<NodeInfo<'_>> {
        let mut found = None;
        self.rest.names.find(hash_of(name), |slot| {
            found = self.at_slot(NodeSlot(slot)).filter(|info| **info.name() == *name);
            found.is_some()
        });
        found
    }

    /// Returns the node or ghost called `name`. Looking it up is cheaper if `slot` is its slot.
    pub(crate) fn any_node_at(&self, slot: Option<NodeSlot>, name: &str) -> Option<NodeInfo<'_>> {
        let expected = slot.and_then(|slot| self.at_slot(slot));
        expected.filter(|info| **info.name() == *name).or_else(|| self.any_node(name))
    }

    pub(crate) fn template_number(&self, template: &Arc<Template>) -> Option<u32> {
        let templates = &self.rest.templates;
        templates.index.find(template.hash64(), |number| {
            let known = templates.table.get(number).map(|kept| &kept.template);
            known.is_some_and(|known| Arc::ptr_eq(known, template) || known == template)
        })
    }

    /// Replaces the labels and the zone of each node that nobody else holds by equal ones of this cluster's nodes, or
    /// of the nodes before it, so that they share their memory. O(nodes × log n).
    pub(crate) fn share_with<'a>(&self, nodes: impl IntoIterator<Item = &'a mut Arc<Node>>) {
        let Rest { labels, zones, .. } = &*self.rest;
        let (mut new_labels, mut new_zones) = (HashSet::new(), HashSet::new());
        for node in nodes.into_iter().filter_map(Arc::get_mut) {
            let (shared, zone) = (&mut node.labels.shared, &mut node.zone);
            let number = labels.find(shared.hash64(), |known| known.same(shared));
            let known = number.and_then(|number| labels.get(number));
            match known.or_else(|| new_labels.get(shared)) {
                Some(known) => *shared = known.clone(),
                None => drop(new_labels.insert(shared.clone())),
            }
            let known = zones.find(zone).and_then(|number| zones.get(number)).map(|zone| &zone.key);
            match known.or_else(|| new_zones.get(zone)) {
                Some(known) => *zone = known.clone(),
                None => drop(new_zones.insert(zone.clone())),
            }
        }
    }

    pub(crate) fn at_slot(&self, slot: NodeSlot) -> Option<NodeInfo<'_>> {
        let place = *self.rest.places.get(slot.0)?;
        NodeInfo::new(self, self.chunks.get(place.chunk)?, place.lane())
    }

    /// Returns the node in lane `lane` of `chunk`, which must be a chunk of this cluster.
    #[must_use]
    pub fn node_in<'a>(&'a self, chunk: &'a Chunk, lane: usize) -> Option<NodeInfo<'a>> {
        NodeInfo::new(self, chunk, lane)
    }

    /// Returns the nodes that run pods with pod affinity or anti-affinity, in list order
    /// (`HavePodsWithAffinityList`). O(found × log found + chunks of their zones × log n).
    pub fn nodes_with_affinity(&self) -> impl Iterator<Item = NodeInfo<'_>> {
        let zones = self.chunks_with_affinity().map(|chunk| chunk.zone);
        zones::in_list_order(self, zones, |chunk| chunk.affinity)
    }

    /// Returns the nodes that run pods with required anti-affinity, in list order
    /// (`HavePodsWithRequiredAntiAffinityList`). The cost is that of [`Cluster::nodes_with_affinity`].
    #[doc(hidden)]
    pub fn nodes_with_required_anti_affinity(&self) -> impl Iterator<Item = NodeInfo<'_>> {
        let zones = self.chunks_with_required_anti_affinity().map(|chunk| chunk.zone);
        zones::in_list_order(self, zones, |chunk| chunk.required_anti_affinity)
    }

    /// Returns the nodes that `mask` selects in each chunk, in list order. O(found × log found + chunks × log n).
    pub(crate) fn nodes_in_list_order<'a>(
        &'a self,
        mask: impl Fn(&'a Chunk) -> u64,
    ) -> impl Iterator<Item = NodeInfo<'a>> {
        zones::in_list_order(self, self.rest.zones.ids(), mask)
    }

    /// Returns the pod with this uid, on any node or ghost. O(log n + pods of the node).
    #[must_use]
    pub fn pod(&self, uid: &Uid) -> Option<PodInfo<'_>> {
        let (key, text) = uid.key();
        let mut found = None;
        self.lookup.find(key_hash(key), |slot| {
            found = self.at_slot(NodeSlot(slot)).and_then(|node| node.find(key, text));
            found.is_some()
        });
        found
    }

    /// Returns the pod with this namespace and name, on any node or ghost. If the deletion of an earlier pod of that
    /// name has not arrived yet, there are two; the one with the greatest resource version is returned. O(log n + pods
    /// of the node) with [`Config::pod_names`](crate::cache::Config::pod_names), and O(pods) otherwise.
    #[must_use]
    pub fn pod_named(&self, namespace: &str, name: &str) -> Option<PodInfo<'_>> {
        let rank = |pod: &PodInfo<'_>| (pod.resource_version(), pod.uid());
        self.pods_named(namespace, name).into_iter().max_by_key(rank)
    }

    /// Returns all pods with this namespace and name. There is rarely more than one.
    pub(crate) fn pods_named(&self, namespace: &str, name: &str) -> Vec<PodInfo<'_>> {
        let is_named = |pod: &PodInfo<'_>| pod.name() == name && **pod.namespace() == *namespace;
        if !self.lookup.has_names() {
            return self.everything().flat_map(|node| node.pods()).filter(is_named).collect();
        }
        let mut slots = Vec::new();
        self.lookup.find(pod_name_hash(namespace, name), |slot| {
            if !slots.contains(&slot) {
                slots.push(slot);
            }
            false
        });
        let nodes = slots.into_iter().filter_map(|slot| self.at_slot(NodeSlot(slot)));
        nodes.flat_map(|node| node.pods()).filter(is_named).collect()
    }

    /// Returns the pods, including those on ghosts, that match the label selector and that `filter` accepts (`List` and
    /// `FilteredList` in earlier versions of kube-scheduler). The selector is evaluated once per template. O(pods).
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

    pub(crate) fn pod_labels(&self, number: u32) -> Option<(&Name, &Labels)> {
        self.rest.pod_labels.get(number).map(|set| (&set.namespace, &set.labels))
    }

    /// Returns all numbered label sets of pods, by number, each with its namespace.
    pub(crate) fn all_pod_labels(&self) -> impl Iterator<Item = (u32, &Name, &Labels)> {
        self.rest.pod_labels.iter().map(|(number, set)| (number, &set.namespace, &set.labels))
    }

    /// Returns the numbered label sets of pods of a namespace, by number. O(label sets), or O(all label sets and
    /// templates) after one has come or gone.
    pub(crate) fn pod_labels_in(&self, namespace: &str) -> impl Iterator<Item = (u32, &Labels)> {
        let numbers = self.by_namespace().labels.get(namespace).into_iter().flatten();
        numbers.filter_map(|number| Some((*number, self.pod_labels(*number)?.1)))
    }

    /// Returns the numbered label sets of pods in namespaces that these terms select or list, by number. If a term
    /// selects namespaces, these are all label sets. The cost is that of [`Cluster::pod_labels_in`].
    pub(crate) fn pod_labels_of_terms<'t>(
        &self,
        terms: impl Iterator<Item = &'t PodAffinityTerm> + Clone,
    ) -> impl Iterator<Item = (u32, &Name, &Labels)> {
        let selects = |term: &PodAffinityTerm| term.namespace_selector != LabelSelector::Nothing;
        let mut numbers: Vec<u32> = match terms.clone().any(selects) {
            true => self.all_pod_labels().map(|(number, ..)| number).collect(),
            false => {
                let mut listed: Vec<&Name> = terms.flat_map(|term| &term.namespaces).collect();
                listed.sort_unstable();
                listed.dedup();
                let by = &self.by_namespace().labels;
                listed.iter().filter_map(|of| by.get(*of)).flatten().copied().collect()
            }
        };
        numbers.sort_unstable();
        numbers.into_iter().filter_map(|number| {
            let (namespace, labels) = self.pod_labels(number)?;
            Some((number, namespace, labels))
        })
    }

    fn by_namespace(&self) -> &ByNamespace {
        self.rest.by_namespace.get(|| ByNamespace::of(self))
    }

    /// Identifies the numbered label sets of pods: with the same stamp, all are the same.
    pub(crate) fn pod_labels_stamp(&self) -> u64 {
        self.rest.pod_labels.stamp()
    }

    /// Returns the number of the label set of a template's pods.
    pub(crate) fn pod_labels_of(&self, template: TemplateId) -> u32 {
        self.rest.templates.table.get(template).map_or(u32::MAX, |kept| kept.labels)
    }

    /// Returns the hostnames of the nodes. O(1), or O(nodes) after a node was added, removed or renamed.
    pub(crate) fn hosts(&self) -> &Arc<Hosts> {
        self.rest.hosts.get(|| Hosts::of(self))
    }

    /// Returns whether the columns of the chunks hold what pods of this launcher see of the nodes
    /// ([`NodeInfo::node_for`]). They hold what pods of the kubelet see.
    pub(crate) fn has_columns_for(&self, launcher: Launcher) -> bool {
        launcher != Launcher::NodeManager || self.objects().nm_nodes.len == 0
    }

    /// Returns the label sets that nodes share, with their numbers in the columns.
    pub(crate) fn label_sets(&self) -> impl Iterator<Item = (u32, &Labels)> {
        self.rest.labels.iter()
    }

    pub(crate) fn template(&self, id: TemplateId) -> Option<&Arc<Template>> {
        self.rest.templates.table.get(id).map(|kept| &kept.template)
    }

    /// Identifies the [`Cluster::affine_templates`]: with the same stamp, all are the same.
    pub(crate) fn affine_stamp(&self) -> u64 {
        self.rest.templates.affine
    }

    /// Returns the templates of placed pods with affinity or anti-affinity, by number. O(templates).
    pub(crate) fn affine_templates(&self) -> impl Iterator<Item = (TemplateId, &Arc<Template>)> {
        let all = self.rest.templates.table.iter().map(|(id, kept)| (id, &kept.template));
        all.filter(|(_, template)| template.traits().affinity)
    }

    /// Returns the [`Cluster::affine_templates`] with a term that may select pods of the namespace, by number.
    pub(crate) fn affine_templates_about(
        &self,
        namespace: &str,
    ) -> impl Iterator<Item = (TemplateId, &Arc<Template>)> {
        let numbers = self.by_namespace().affine(namespace).into_iter();
        numbers.filter_map(|number| Some((number, self.template(number)?)))
    }

    /// Returns the taints with this number in [`Chunk::taint_set`].
    #[must_use]
    pub(crate) fn taint_set(&self, set: u32) -> &[Taint] {
        self.rest.taints.get(set).map_or(&[], |set| &set.0)
    }

    /// Returns the distinct sets of taints on nodes, or `None` if there are more than `most`.
    pub(crate) fn taint_sets(&self, most: usize) -> Option<impl Iterator<Item = &[Taint]>> {
        let sets = &self.rest.taints;
        (sets.len() <= most).then(|| sets.iter().map(|(_, set)| &*set.0))
    }

    /// Returns the labels with this number in [`Chunk::label_set`].
    #[must_use]
    pub(crate) fn label_set(&self, set: u32) -> &Labels {
        self.rest.labels.get(set).unwrap_or(const { &Labels::EMPTY })
    }

    /// Returns the number of a scalar resource, which identifies its columns in chunks. `None` if neither a node nor a
    /// placed pod names the resource.
    #[must_use]
    pub fn resource_id(&self, name: &str) -> Option<u32> {
        self.rest.resources.find(hash_of(name), |known| **known == *name)
    }

    /// Returns the name of the scalar resource with this number.
    #[must_use]
    pub(crate) fn resource_name(&self, id: u32) -> Option<&Name> {
        self.rest.resources.get(id)
    }

    /// Returns the image called `name` (a tag or a digest). O(log n).
    #[must_use]
    pub(crate) fn image(&self, name: &str) -> Option<ImageState> {
        let images = &self.rest.images;
        let id = images.find(hash_of(name), |image| *image.name == *name)?;
        Some(ImageState { size: images.get(id)?.size, nodes: images.users(id) as usize })
    }

    /// Returns the size of the image called `name`, as ImageLocality sees it. O(log n).
    #[doc(hidden)]
    #[must_use]
    pub fn image_size(&self, name: &str) -> Option<i64> {
        self.image(name).map(|image| image.size)
    }

    /// Returns whether a pod on a listed node uses the claim (`IsPVCUsedByPods`). O(log n).
    #[doc(hidden)]
    #[must_use]
    pub fn is_claim_used(&self, namespace: &str, claim: &str) -> bool {
        let key = claim_key(namespace, claim);
        self.rest.claims.find(hash_of(&*key), |known| *known == key).is_some()
    }

    /// Returns the claims that pods on listed nodes use, each as `namespace/name`, in no particular order.
    pub(crate) fn used_claims(&self) -> impl Iterator<Item = &Name> {
        self.rest.claims.iter().map(|(_, key)| key)
    }

    /// Returns the number of the group's pods that are placed on nodes, assumed ones included. O(log n).
    #[must_use]
    pub fn placed_members(&self, namespace: &str, name: &str) -> usize {
        let groups = &self.rest.groups;
        let found = groups.find(GroupKey::hash_of(namespace, name), |known| {
            *known.namespace == *namespace && *known.name == *name
        });
        found.map_or(0, |number| groups.users(number) as usize)
    }

    /// Returns the state of a pod group in this version, derived from its phase and its placed pods
    /// ([`PodGroup::state`](crate::model::PodGroup::state)). A version has no clock, so a timeout shows only in the
    /// group's phase here; a queue also checks the time. The state of a group that does not exist is
    /// `Unknown`. O(log n).
    #[must_use]
    pub fn group_state(&self, namespace: &str, name: &str) -> PodGroupState {
        match self.objects().pod_groups.get(namespace, name) {
            Some(group) => group.state(self.placed_members(namespace, name)),
            None => PodGroupState::Unknown,
        }
    }

    /// Returns the stores of the other objects.
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

/// A sequence of versions: that of an engine's writer, of one of its forks, or of an engine that began with one of them.
/// A [`Plan`](super::Plan) belongs to the lineage of the writer, with which it shares all state that placing pods does
/// not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lineage {
    origin: Origin,
    branch: u64,
}

/// The number of an engine that began empty, or was rebuilt. Engines that begin with one of its versions share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Origin(u64);

impl Default for Origin {
    fn default() -> Origin {
        Origin(super::table::next_stamp())
    }
}

/// A frozen version of the cluster; see [`Cluster`] for its queries.
///
/// While the engine lives, it frees its snapshots. Afterwards the last holder does, just as the holder of a
/// [`Fork`](super::Fork) frees what only the fork owns: dropping does at most a fraction of a millisecond of work in
/// place. A thread called `portolan-free` frees the rest and ends when it runs out of work. If no thread can be
/// started, or 64 owners already have work queued on it, the dropping thread does all of the work.
#[derive(Debug)]
pub struct Snapshot(pub(crate) Cluster);

impl Deref for Snapshot {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.0
    }
}
