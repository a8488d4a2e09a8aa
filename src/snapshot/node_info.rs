//! Views of one node and of one placed pod (framework/types.go `NodeInfo`).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::{
    Bytes, CustomNodeResource, Generation, HostPort, Name, NmNode, Node, NodeResources, NonZero,
    Pod, PodClass, PodState, Resources, Scalars, Template, Timestamp, Uid,
};

use super::chunk::{Chunk, NodeSlot, SetId};
use super::cluster::{Cluster, ImageState, claim_key};
use super::lane::{Identity, Lane, PodRecord, TemplateId};
use super::victims::Victims;

/// A node with what is placed on it: a view, free to copy.
#[derive(Clone, Copy)]
pub struct NodeInfo<'a> {
    cluster: &'a Cluster,
    chunk: &'a Chunk,
    identity: &'a Identity,
    at: usize,
}

impl<'a> NodeInfo<'a> {
    pub(crate) fn new(cluster: &'a Cluster, chunk: &'a Chunk, at: usize) -> Option<NodeInfo<'a>> {
        Some(NodeInfo { cluster, chunk, identity: chunk.identity(at)?, at })
    }

    /// The node's number.
    #[must_use]
    pub fn slot(&self) -> NodeSlot {
        self.chunk.slot()[self.at]
    }

    /// The chunk that the node is in, and its lane there.
    #[must_use]
    pub fn place(&self) -> (&'a Chunk, usize) {
        (self.chunk, self.at)
    }

    /// The numbers of its taints and of its labels.
    pub(crate) fn sets(&self) -> (SetId, SetId) {
        (self.chunk.taint_set()[self.at], self.chunk.label_set()[self.at])
    }

    /// The node's name.
    #[must_use]
    pub fn name(&self) -> &'a Name {
        &self.identity.name
    }

    /// The node as scheduling reads it: its Node, its NMNode, or what both make
    /// together ([`NmNode::node`]); `None` for a ghost, which no list contains.
    #[must_use]
    pub fn node(&self) -> Option<&'a Arc<Node>> {
        self.identity.node.as_ref()
    }

    /// The Node that the kubelet reports, if there is one.
    #[must_use]
    pub fn kubelet_node(&self) -> Option<&'a Arc<Node>> {
        self.identity.kubelet_node()
    }

    /// The NMNode that a node manager reports, if there is one.
    #[must_use]
    pub fn nm_node(&self) -> Option<&'a Arc<NmNode>> {
        self.identity.parts.as_ref()?.nm_node.as_ref()
    }

    /// The schedulers that its Node and its NMNode give it to.
    pub fn schedulers(&self) -> impl Iterator<Item = &'a Name> + use<'a> {
        let of_node = self.kubelet_node().and_then(|node| node.scheduler.as_ref());
        let of_nm_node = self.nm_node().and_then(|node| node.scheduler.as_ref());
        of_node.into_iter().chain(of_nm_node)
    }

    /// The CustomNodeResource of its name, if there is one.
    #[must_use]
    pub fn custom_node_resource(&self) -> Option<&'a Arc<CustomNodeResource>> {
        self.identity.parts.as_ref()?.custom.as_ref()
    }

    pub(crate) fn is_ghost(&self) -> bool {
        self.identity.node.is_none()
    }

    /// The version, or fork, that it is of.
    #[must_use]
    pub fn cluster(&self) -> &'a Cluster {
        self.cluster
    }

    pub(crate) fn identity(&self) -> &'a Identity {
        self.identity
    }

    pub(crate) fn lane(&self) -> &'a Lane {
        self.chunk.lane(self.at)
    }

    /// When the node, or what is placed on it, was last touched.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.chunk.generation()[self.at]
    }

    /// What guaranteed pods may take: all pods, where nobody says otherwise.
    #[must_use]
    pub fn allocatable(&self) -> Resources {
        self.identity.node.as_ref().map(|node| node.allocatable.clone()).unwrap_or_default()
    }

    /// What pods of a class may take. A ghost has nothing for guaranteed ones.
    #[must_use]
    pub fn allocatable_of(&self, class: PodClass) -> Resources {
        match class {
            PodClass::Guaranteed => self.allocatable(),
            PodClass::BestEffort => self.chunk.account(class).allocatable_at(self.cluster, self.at),
        }
    }

    /// What there is in all: of its Node, else of its NMNode.
    #[must_use]
    pub fn capacity(&self) -> NodeResources {
        self.identity.node.as_ref().map(|node| node.capacity()).unwrap_or_default()
    }

    /// How many pods may run.
    #[must_use]
    pub fn allowed_pods(&self) -> i64 {
        self.chunk.allowed_pods()[self.at]
    }

    /// How many pods may run, of whatever class, if one of this class is to be
    /// among them.
    #[must_use]
    pub fn allowed_pods_of(&self, class: PodClass) -> i64 {
        self.chunk.account(class).allowed_pods()[self.at]
    }

    /// What guaranteed pods take. Scalars that are zero are left out.
    #[must_use]
    pub fn requested(&self) -> Resources {
        self.requested_of(PodClass::Guaranteed)
    }

    /// What pods of a class take. Scalars that are zero are left out.
    #[must_use]
    pub fn requested_of(&self, class: PodClass) -> Resources {
        self.chunk.account(class).requested_at(self.cluster, self.at)
    }

    /// What guaranteed pods take, with Kubernetes' defaults where a container asks
    /// for none.
    #[must_use]
    pub fn non_zero_requested(&self) -> NonZero {
        self.non_zero_requested_of(PodClass::Guaranteed)
    }

    /// The same of pods of a class.
    #[must_use]
    pub fn non_zero_requested_of(&self, class: PodClass) -> NonZero {
        self.chunk.account(class).non_zero_at(self.at)
    }

    /// What pods that hold places for others take, of all classes: part of what is
    /// requested (`GetGuaranteedReserved`). Ephemeral storage is left out. O(pods of the
    /// node).
    #[must_use]
    pub fn reserved(&self) -> Resources {
        let keeps_places = self.cluster.reservations().is_some();
        let reserved = self.sum_of(|pod| keeps_places && pod.template().is_placeholder());
        Resources { ephemeral_storage: Bytes(0), ..reserved }
    }

    /// What some of its pods take, of all classes. O(pods of the node).
    pub(crate) fn sum_of(&self, is_one: impl Fn(&PodInfo<'_>) -> bool) -> Resources {
        let mut sum = Resources::default();
        let mut scalars: BTreeMap<Name, i64> = BTreeMap::new();
        // Sums of one class are within 64 bits, those of two may not be.
        let add = |sum: &mut i64, amount: i64| *sum = sum.saturating_add(amount);
        for pod in self.pods().filter(is_one) {
            let takes = &pod.template().resources.placed;
            add(&mut sum.cpu.0, takes.cpu.0);
            add(&mut sum.memory.0, takes.memory.0);
            add(&mut sum.ephemeral_storage.0, takes.ephemeral_storage.0);
            for (name, amount) in takes.scalars.iter() {
                add(scalars.entry(name.clone()).or_default(), amount);
            }
        }
        Resources { scalars: Scalars::new(scalars), ..sum }
    }

    /// How many pods are on it, of all classes.
    #[must_use]
    pub fn pod_count(&self) -> usize {
        self.chunk.pods()[self.at] as usize
    }

    /// The pods on it, in no particular order.
    pub fn pods(self) -> impl ExactSizeIterator<Item = PodInfo<'a>> {
        let records = self.lane().pods.records().iter().enumerate();
        records.map(move |(index, record)| PodInfo { node: self, record, index })
    }

    /// The pods on it, the most important first, with sums of what they take. O(1);
    /// O(pods × log pods) for the first that asks since they changed, and O(64) for the
    /// first since those of a neighbour did.
    #[must_use]
    pub fn victims(self) -> Victims<'a> {
        Victims::new(self, self.chunk.victims(self))
    }

    /// The pods of one class on it that may be preempted, the most important first, with
    /// sums of what they take from the account of that class (`GetVictimCandidates`,
    /// `GetOccupiableResources`). Costs as [`NodeInfo::victims`].
    #[must_use]
    pub fn victims_of(self, class: PodClass) -> Victims<'a> {
        Victims::of_class(self, self.chunk.victims(self), class)
    }

    /// The pods with pod affinity or anti-affinity.
    pub fn pods_with_affinity(self) -> impl Iterator<Item = PodInfo<'a>> {
        let any = self.lane().with_affinity > 0;
        self.pods().filter(move |pod| any && pod.template().traits().affinity)
    }

    /// The pods with required anti-affinity.
    pub fn pods_with_required_anti_affinity(self) -> impl Iterator<Item = PodInfo<'a>> {
        let any = self.lane().with_required_anti_affinity > 0;
        self.pods().filter(move |pod| any && pod.template().traits().required_anti_affinity)
    }

    /// The host ports in use, each with the number of pods that use it.
    pub fn used_ports(self) -> impl ExactSizeIterator<Item = (&'a HostPort, u32)> {
        self.lane().ports.iter().map(|(port, users)| (port, *users))
    }

    /// The claims that its pods use, each as `namespace/name` with the number
    /// of volumes that name it.
    #[must_use]
    pub fn claims(&self) -> BTreeMap<Name, u32> {
        let mut claims = BTreeMap::new();
        if self.lane().with_claims > 0 {
            for pod in self.pods() {
                for claim in pod.template().claims() {
                    *claims.entry(claim_key(&pod.template().namespace, claim)).or_insert(0) += 1;
                }
            }
        }
        claims
    }

    /// The images that it has, by each of their names.
    pub fn images(self) -> impl Iterator<Item = (&'a Name, ImageState)> {
        let images = self.identity.node.iter().flat_map(|node| node.images.iter());
        images
            .flat_map(|image| image.names.iter())
            .filter_map(move |name| Some((name, self.cluster.image(name)?)))
    }

    /// The pod at this place among its pods.
    pub(crate) fn pod_at(self, index: usize) -> Option<PodInfo<'a>> {
        let record = self.lane().pods.records().get(index)?;
        Some(PodInfo { node: self, record, index })
    }

    pub(crate) fn find(self, key: [u8; 16], text: Option<&str>) -> Option<PodInfo<'a>> {
        let pods = &self.lane().pods;
        let at = pods.find(key, text)?;
        Some(PodInfo { node: self, record: &pods.records()[at], index: at })
    }
}

impl std::fmt::Debug for NodeInfo<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeInfo")
            .field("name", self.name())
            .field("pods", &self.pod_count())
            .field("generation", &self.generation())
            .finish_non_exhaustive()
    }
}

/// Where a pod is: on which node, and at which place among its pods.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PodRef {
    pub(crate) slot: NodeSlot,
    pub(crate) index: usize,
}

/// A pod placed on a node: a view, free to copy.
#[derive(Clone, Copy)]
pub struct PodInfo<'a> {
    node: NodeInfo<'a>,
    record: &'a PodRecord,
    index: usize,
}

impl<'a> PodInfo<'a> {
    /// The pod's uid.
    #[must_use]
    pub fn uid(&self) -> Uid {
        self.node.lane().pods.uid(self.record)
    }

    /// Its name within its namespace.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.node.lane().pods.name(self.record)
    }

    /// Its namespace.
    #[must_use]
    pub fn namespace(&self) -> &'a Name {
        &self.template().namespace
    }

    /// What it shares with the pods of its template.
    #[must_use]
    pub fn template(&self) -> &'a Arc<Template> {
        let cluster = self.node.cluster;
        match cluster.template(self.record.template) {
            Some(template) => template,
            // A record names a template of its own version: the audit checks it.
            None => unreachable!("a placed pod's template is in its version"),
        }
    }

    pub(crate) fn template_id(&self) -> TemplateId {
        self.record.template
    }

    /// The number that pods of its namespace with the same labels share.
    pub(crate) fn labels_id(&self) -> u32 {
        self.node.cluster.pod_labels_of(self.record.template)
    }

    /// Where it is, until its node's pods change.
    pub(crate) fn spot(&self) -> PodRef {
        PodRef { slot: self.node.slot(), index: self.index }
    }

    /// The node that it is on.
    #[must_use]
    pub fn node(&self) -> NodeInfo<'a> {
        self.node
    }

    /// Whether it is assumed: placed here, and not yet confirmed.
    #[must_use]
    pub fn is_assumed(&self) -> bool {
        self.record.assumed
    }

    /// Whether it is bound, or assumed by this scheduler or another. A bound pod that
    /// was handed in with what led there is told apart where
    /// [`Config::godel`](crate::Config::godel) is given.
    #[must_use]
    pub fn state(&self) -> PodState {
        let godel = self.template().godel.as_ref();
        if self.is_assumed() || godel.is_some_and(|godel| godel.is_unbound()) {
            PodState::Assumed
        } else {
            PodState::Bound
        }
    }

    /// Its resource version.
    #[must_use]
    pub fn resource_version(&self) -> u64 {
        self.record.resource_version
    }

    /// When it started.
    #[must_use]
    pub fn start_time(&self) -> Option<Timestamp> {
        self.record.start_time()
    }

    /// When it was deleted: it is terminating.
    #[must_use]
    pub fn deletion_time(&self) -> Option<Timestamp> {
        self.record.deletion_time()
    }

    /// The pod as it was handed in, as far as the engine keeps it.
    #[must_use]
    pub fn to_pod(&self) -> Pod {
        Pod {
            uid: self.uid(),
            name: self.name().into(),
            template: self.template().clone(),
            resource_version: self.resource_version(),
            node_name: Some(self.node.name().clone()),
            nominated_node_name: None,
            creation_time: None,
            start_time: self.start_time(),
            deletion_time: self.deletion_time(),
        }
    }
}

impl std::fmt::Debug for PodInfo<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PodInfo")
            .field("uid", &self.uid())
            .field("name", &self.name())
            .field("node", self.node.name())
            .field("assumed", &self.is_assumed())
            .finish()
    }
}
