//! Views of one node and of one placed pod (framework/types.go `NodeInfo`).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::{
    Bytes, CustomNodeResource, Generation, HostPort, Launcher, Name, NmNode, Node, NodeResources,
    NonZero, Pod, PodClass, PodState, Resources, Scalars, Template, Timestamp, Uid,
};

use super::chunk::{Chunk, NodeSlot, SetId};
use super::cluster::{Cluster, ImageState, claim_key};
use super::lane::{Identity, Lane, PodRecord, TemplateId};
use super::victims::Victims;

/// A view of one node and the pods placed on it. Copying it is cheap.
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

    /// Returns the node's slot.
    #[must_use]
    pub fn slot(&self) -> NodeSlot {
        self.chunk.slot()[self.at]
    }

    /// Returns the node's chunk, and its lane in that chunk.
    #[must_use]
    pub fn place(&self) -> (&'a Chunk, usize) {
        (self.chunk, self.at)
    }

    /// Returns the numbers of the node's taint set and label set.
    pub(crate) fn sets(&self) -> (SetId, SetId) {
        (self.chunk.taint_set()[self.at], self.chunk.label_set()[self.at])
    }

    /// Returns the node's name.
    #[must_use]
    pub fn name(&self) -> &'a Name {
        &self.identity.name
    }

    /// Returns the node as scheduling reads it: its Node, its NMNode, or the combination of both ([`NmNode::node`]).
    /// `None` for a ghost, which appears in no list.
    #[must_use]
    pub fn node(&self) -> Option<&'a Arc<Node>> {
        self.identity.node.as_ref()
    }

    /// Returns the node as pods of this launcher see it. Pods of a node manager see the labels and taints of the
    /// NMNode, and no cordon; all other pods see those of the Node. If only one of the objects exists, all pods see
    /// that one, and the plugin PodLauncher rejects the pods that require the other.
    #[must_use]
    pub fn node_for(&self, launcher: Launcher) -> Option<&'a Arc<Node>> {
        let parts = self.identity.parts.as_ref().filter(|_| launcher == Launcher::NodeManager);
        parts.and_then(|parts| parts.managed.as_ref()).or(self.node())
    }

    /// Returns the Node that the kubelet reports, if there is one.
    #[must_use]
    pub fn kubelet_node(&self) -> Option<&'a Arc<Node>> {
        self.identity.kubelet_node()
    }

    /// Returns the NMNode that a node manager reports, if there is one.
    #[must_use]
    pub fn nm_node(&self) -> Option<&'a Arc<NmNode>> {
        self.identity.parts.as_ref()?.nm_node.as_ref()
    }

    /// Returns the schedulers that the node's Node and NMNode assign it to.
    pub fn schedulers(&self) -> impl Iterator<Item = &'a Name> + use<'a> {
        let node_scheduler = self.kubelet_node().and_then(|node| node.scheduler.as_ref());
        let nm_scheduler = self.nm_node().and_then(|node| node.scheduler.as_ref());
        node_scheduler.into_iter().chain(nm_scheduler)
    }

    /// Returns the CustomNodeResource with the node's name, if there is one.
    #[must_use]
    pub fn custom_node_resource(&self) -> Option<&'a Arc<CustomNodeResource>> {
        self.identity.parts.as_ref()?.custom.as_ref()
    }

    pub(crate) fn is_ghost(&self) -> bool {
        self.identity.node.is_none()
    }

    /// Returns the version or fork that the node belongs to.
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

    /// Returns the generation that last touched the node or its pods.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.chunk.generation()[self.at]
    }

    /// Returns the resources allocatable to guaranteed pods. Without Gödel semantics, every pod is guaranteed.
    #[must_use]
    pub fn allocatable(&self) -> Resources {
        self.identity.node.as_ref().map(|node| node.allocatable.clone()).unwrap_or_default()
    }

    /// Returns the resources allocatable to pods of a class. A ghost has none for guaranteed pods.
    #[must_use]
    pub fn allocatable_of(&self, class: PodClass) -> Resources {
        match class {
            PodClass::Guaranteed => self.allocatable(),
            PodClass::BestEffort => self.chunk.account(class).allocatable_at(self.cluster, self.at),
        }
    }

    /// Returns the total capacity reported by the Node, or by the NMNode if there is no Node.
    #[must_use]
    pub(crate) fn capacity(&self) -> NodeResources {
        self.identity.node.as_ref().map(|node| node.capacity()).unwrap_or_default()
    }

    /// Returns how many pods the node may run.
    #[must_use]
    pub fn allowed_pods(&self) -> i64 {
        self.chunk.allowed_pods()[self.at]
    }

    /// Returns how many pods of all classes the node may run if it is to run one of this class.
    #[must_use]
    pub fn allowed_pods_of(&self, class: PodClass) -> i64 {
        self.chunk.account(class).allowed_pods()[self.at]
    }

    /// Returns the requests of the guaranteed pods. Scalars that are zero are omitted.
    #[must_use]
    pub fn requested(&self) -> Resources {
        self.requested_of(PodClass::Guaranteed)
    }

    /// Returns the requests of the pods of a class. Scalars that are zero are omitted.
    #[must_use]
    pub fn requested_of(&self, class: PodClass) -> Resources {
        self.chunk.account(class).requested_at(self.cluster, self.at)
    }

    /// Returns the requests of the guaranteed pods, with Kubernetes' defaults for containers that request nothing.
    #[must_use]
    pub(crate) fn non_zero_requested(&self) -> NonZero {
        self.non_zero_requested_of(PodClass::Guaranteed)
    }

    /// Returns the requests of the pods of a class, with Kubernetes' defaults for containers that request nothing.
    #[doc(hidden)]
    #[must_use]
    pub fn non_zero_requested_of(&self, class: PodClass) -> NonZero {
        self.chunk.account(class).non_zero_at(self.at)
    }

    /// Returns the requests of placeholder pods of all classes, which are included in `requested`
    /// (`GetGuaranteedReserved`). Ephemeral storage is omitted. O(pods of the node).
    #[must_use]
    pub fn reserved(&self) -> Resources {
        let holds_reservations = self.cluster.reservations().is_some();
        let reserved = self.sum_of(|pod| holds_reservations && pod.template().is_placeholder());
        Resources { ephemeral_storage: Bytes(0), ..reserved }
    }

    /// Returns the requests of the pods that `is_one` selects, of all classes. O(pods of the node).
    pub(crate) fn sum_of(&self, is_one: impl Fn(&PodInfo<'_>) -> bool) -> Resources {
        let mut sum = Resources::default();
        let mut scalars: BTreeMap<Name, i64> = BTreeMap::new();
        // The sums of one class fit in 64 bits; the sums over two classes may not.
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

    /// Returns the number of pods of all classes on the node.
    #[must_use]
    pub fn pod_count(&self) -> usize {
        self.chunk.pods()[self.at] as usize
    }

    /// Returns the node's pods, in no particular order. [`NodeInfo::pod_count`] is their number.
    pub fn pods(self) -> impl Iterator<Item = PodInfo<'a>> {
        let records = self.lane().pods.record_blocks().flatten().enumerate();
        records.map(move |(index, record)| PodInfo { node: self, record, index })
    }

    /// Returns the node's pods, most important first, with sums of their requests. O(1). The first call after the
    /// node's pods changed costs O(pods × log pods), and the first after those of another node of the chunk changed
    /// O(64).
    #[must_use]
    pub fn victims(self) -> Victims<'a> {
        Victims::new(self, self.chunk.victims(self))
    }

    /// Returns the node's preemptible pods of one class, most important first, with sums of their requests in the
    /// account of that class (`GetVictimCandidates`, `GetOccupiableResources`). The cost is that of
    /// [`NodeInfo::victims`].
    #[must_use]
    pub fn victims_of(self, class: PodClass) -> Victims<'a> {
        Victims::of_class(self, self.chunk.victims(self), class)
    }

    /// Returns the node's pods with pod affinity or anti-affinity.
    #[doc(hidden)]
    pub fn pods_with_affinity(self) -> impl Iterator<Item = PodInfo<'a>> {
        let any = self.lane().with_affinity > 0;
        self.pods().filter(move |pod| any && pod.template().traits().affinity)
    }

    /// Returns the node's pods with required anti-affinity.
    #[doc(hidden)]
    pub fn pods_with_required_anti_affinity(self) -> impl Iterator<Item = PodInfo<'a>> {
        let any = self.lane().with_required_anti_affinity > 0;
        self.pods().filter(move |pod| any && pod.template().traits().required_anti_affinity)
    }

    /// Returns the host ports in use, each with the number of pods that use it.
    pub fn used_ports(self) -> impl ExactSizeIterator<Item = (&'a HostPort, u32)> {
        self.lane().ports.iter().map(|(port, users)| (port, *users))
    }

    /// Returns the claims that the node's pods use, each as `namespace/name` with the number of volumes that name it.
    #[must_use]
    pub(crate) fn claims(&self) -> BTreeMap<Name, u32> {
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

    /// Returns the node's images, under each of their names.
    pub(crate) fn images(self) -> impl Iterator<Item = (&'a Name, ImageState)> {
        let images = self.identity.node.iter().flat_map(|node| node.images.iter());
        images
            .flat_map(|image| image.names.iter())
            .filter_map(move |name| Some((name, self.cluster.image(name)?)))
    }

    /// Returns the pod at this index among the node's pods.
    pub(crate) fn pod_at(self, index: usize) -> Option<PodInfo<'a>> {
        let record = self.lane().pods.get(index)?;
        Some(PodInfo { node: self, record, index })
    }

    pub(crate) fn find(self, key: [u8; 16], text: Option<&str>) -> Option<PodInfo<'a>> {
        let pods = &self.lane().pods;
        let at = pods.find(key, text)?;
        Some(PodInfo { node: self, record: pods.get(at)?, index: at })
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

/// The location of a pod: its node's slot and its index among the node's pods.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PodRef {
    pub(crate) slot: NodeSlot,
    pub(crate) index: usize,
}

/// A view of a pod placed on a node. Copying it is cheap.
#[derive(Clone, Copy)]
pub struct PodInfo<'a> {
    node: NodeInfo<'a>,
    record: &'a PodRecord,
    index: usize,
}

impl<'a> PodInfo<'a> {
    /// Returns the pod's uid.
    #[must_use]
    pub fn uid(&self) -> Uid {
        self.node.lane().pods.uid(self.index, self.record)
    }

    /// Returns the pod's name within its namespace.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.node.lane().pods.name(self.index)
    }

    /// Returns the pod's namespace.
    #[must_use]
    pub fn namespace(&self) -> &'a Name {
        &self.template().namespace
    }

    /// Returns the template that the pod shares with identical pods.
    #[must_use]
    pub fn template(&self) -> &'a Arc<Template> {
        let cluster = self.node.cluster;
        match cluster.template(self.record.template) {
            Some(template) => template,
            // A record only names templates of its own version; the audit checks this.
            None => unreachable!("a placed pod's template is in its version"),
        }
    }

    /// Returns the number of the pod's template in this version.
    #[doc(hidden)]
    #[must_use]
    pub fn template_id(&self) -> TemplateId {
        self.record.template
    }

    /// Returns the number shared by pods of the same namespace with the same labels.
    pub(crate) fn labels_id(&self) -> u32 {
        self.node.cluster.pod_labels_of(self.record.template)
    }

    /// Returns the pod's location, which is valid until the pods of its node change.
    pub(crate) fn pod_ref(&self) -> PodRef {
        PodRef { slot: self.node.slot(), index: self.index }
    }

    /// Returns the node that the pod is on.
    #[must_use]
    pub fn node(&self) -> NodeInfo<'a> {
        self.node
    }

    /// Returns whether the pod is assumed: placed here but not yet confirmed.
    #[must_use]
    pub fn is_assumed(&self) -> bool {
        self.node.lane().pods.is_assumed(self.index)
    }

    /// Returns whether the pod is bound, or assumed by this scheduler or another. A bound pod that still carries the
    /// annotations of its earlier states is reported as bound only if [`Config::godel`](crate::cache::Config::godel) is
    /// set.
    #[must_use]
    pub fn state(&self) -> PodState {
        let godel = self.template().godel.as_ref();
        if self.is_assumed() || godel.is_some_and(|godel| godel.is_unbound()) {
            PodState::Assumed
        } else {
            PodState::Bound
        }
    }

    /// Returns the pod's resource version.
    #[must_use]
    pub fn resource_version(&self) -> u64 {
        self.record.resource_version
    }

    /// Returns when the pod started.
    #[must_use]
    pub fn start_time(&self) -> Option<Timestamp> {
        self.record.start_time()
    }

    /// Returns when the pod was deleted; a pod with a deletion time is terminating.
    #[must_use]
    pub fn deletion_time(&self) -> Option<Timestamp> {
        self.record.deletion_time()
    }

    /// Returns the pod as it was submitted, except for the fields that the engine does not keep.
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
            claim_statuses: None,
            finished: false,
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
