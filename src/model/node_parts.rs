//! What a node may be made of beside a Node: an NMNode and a CustomNodeResource
//! of its name, as Gödel has them, and how they become one.

use super::{
    Labels, Name, Node, NodeLabels, NodeMetrics, NumaZone, PodClass, Quantity, ResourceList,
    Resources, Taint, Usage, ZoneKey,
};

/// What there is on a node: amounts of resources, and places for pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct NodeResources {
    /// Resources.
    pub resources: Resources,
    /// How many pods there is place for.
    pub pods: i64,
}

impl NodeResources {
    /// The first resource with a negative amount, if any.
    pub(crate) fn negative(&self) -> Option<Name> {
        let pods = || (self.pods < 0).then(|| "pods".into());
        self.resources.negative().or_else(pods)
    }
}

impl From<&ResourceList> for NodeResources {
    fn from(list: &ResourceList) -> NodeResources {
        NodeResources { resources: list.to_resources(), pods: list.pods() }
    }
}

/// A machine as its node manager reports it (`NMNode` of
/// node.godel.kubewharf.io/v1alpha1): pods that a node manager starts need one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(from = "super::serialized::NmNode"))]
pub struct NmNode {
    /// Its name: the same as the Node's, where the machine has both.
    pub name: Name,
    /// Its labels.
    pub labels: NodeLabels,
    /// Its zone, from the labels.
    #[cfg_attr(feature = "serde", serde(skip_serializing))]
    pub zone: ZoneKey,
    /// `spec.taints`.
    pub taints: Box<[Taint]>,
    /// `status.resourceCapacity`.
    pub capacity: ResourceList,
    /// `status.resourceAllocatable`.
    pub allocatable: ResourceList,
    /// The scheduler whose part of the nodes it is of, as a Node says it.
    pub scheduler: Option<Name>,
    /// `metadata.resourceVersion`, 0 where absent.
    pub resource_version: u64,
}

impl NmNode {
    /// One that reports nothing yet.
    pub fn new(name: impl Into<Name>) -> NmNode {
        NmNode {
            name: name.into(),
            labels: NodeLabels::default(),
            zone: ZoneKey::default(),
            taints: Box::default(),
            capacity: ResourceList::default(),
            allocatable: ResourceList::default(),
            scheduler: None,
            resource_version: 0,
        }
    }

    /// The same with these labels.
    #[must_use]
    pub fn with_labels(mut self, labels: &Labels) -> NmNode {
        self.labels = NodeLabels::new(labels);
        self.zone = ZoneKey::of(labels);
        self
    }

    /// The same with what it has, and what pods may take of it.
    #[must_use]
    pub fn with_resources(mut self, capacity: ResourceList, allocatable: ResourceList) -> NmNode {
        self.capacity = capacity;
        self.allocatable = allocatable;
        self
    }

    /// The node that this makes, alone or with the Node of its name: what
    /// scheduling reads (Gödel: framework/api `getAllocatableResources`).
    ///
    /// With both, everything is the Node's but what pods may take: of a resource
    /// that the Node has, what the node manager keeps for itself goes off (its
    /// capacity less its allocatable, where it says both), never below zero; one
    /// that the Node lacks is the node manager's. A Node that names cpu, memory,
    /// ephemeral storage or pods as 0 counts as one that lacks it. O(resources).
    ///
    /// ```
    /// use portolan::model::{NmNode, Quantity, ResourceList, node};
    ///
    /// let cpu = |cores| ResourceList::new([("cpu", Quantity::whole(cores))]);
    /// let nm_node = NmNode::new("n1").with_resources(cpu(16), cpu(12));
    /// assert_eq!(nm_node.node(None).allocatable.cpu.0, 12_000);
    /// let kubelet = node("n1").cpu(10_000).build();
    /// assert_eq!(nm_node.node(Some(&kubelet)).allocatable.cpu.0, 6_000);
    /// ```
    #[must_use]
    pub fn node(&self, node: Option<&Node>) -> Node {
        let Some(node) = node else { return self.alone() };
        // Said in full: what pods may take is about to be another amount.
        let mut merged = Node { capacity: Some(Box::new(node.capacity())), ..node.clone() };
        let mut scalars: Vec<(Name, i64)> =
            merged.allocatable.scalars.iter().map(|(name, n)| (name.clone(), n)).collect();
        for (name, allocatable) in self.allocatable.iter() {
            let unit = unit_of(name);
            let offered = unit(allocatable);
            let kept = self.capacity.get(name).map_or(0, |has| (unit(has) - offered).max(0));
            let Resources { cpu, memory, ephemeral_storage, .. } = &mut merged.allocatable;
            let amount = match &**name {
                "cpu" => &mut cpu.0,
                "memory" => &mut memory.0,
                "ephemeral-storage" => &mut ephemeral_storage.0,
                "pods" => &mut merged.allowed_pods,
                _ => {
                    match scalars.iter_mut().find(|(known, _)| known == name) {
                        Some((_, amount)) => *amount = less(*amount, kept),
                        None => scalars.push((name.clone(), offered)),
                    }
                    continue;
                }
            };
            *amount = if *amount == 0 { offered } else { less(*amount, kept) };
        }
        merged.allocatable.scalars = super::Scalars::new(scalars);
        merged
    }

    /// A resource of which it reports less than nothing, if there is one.
    pub(crate) fn negative(&self) -> Option<Name> {
        [&self.capacity, &self.allocatable].into_iter().find_map(ResourceList::negative)
    }

    fn alone(&self) -> Node {
        let NodeResources { resources, pods } = NodeResources::from(&self.allocatable);
        Node {
            name: self.name.clone(),
            labels: self.labels.clone(),
            zone: self.zone.clone(),
            allocatable: resources,
            allowed_pods: pods,
            capacity: Some(Box::new(NodeResources::from(&self.capacity))),
            taints: self.taints.clone(),
            unschedulable: false,
            images: Box::default(),
            declared_features: Box::default(),
            scheduler: self.scheduler.clone(),
            resource_version: self.resource_version,
        }
    }
}

/// What of an amount is left when some of it is kept back: nothing at least.
fn less(amount: i64, kept: i64) -> i64 {
    amount.saturating_sub(kept).max(0)
}

/// How a quantity of a resource becomes an amount: thousandths of cpu, and whole
/// numbers of all else, rounded up.
fn unit_of(name: &str) -> fn(Quantity) -> i64 {
    if name == "cpu" { Quantity::milli_value } else { Quantity::value }
}

/// What an agent reports of a machine beside its Node (`CustomNodeResource` of
/// node.katalyst.kubewharf.io/v1alpha1): above all how much of what others have
/// reserved best-effort pods may take.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct CustomNodeResource {
    /// Its name: the node's.
    pub name: Name,
    /// `status.resources.allocatable`: what best-effort pods may take.
    pub allocatable: NodeResources,
    /// Its NUMA nodes, of `status.topologyZone`.
    pub numa: Box<[NumaZone]>,
    /// `status.nodeMetricStatus`: what its pods use. What that makes of the node says
    /// [`NodeInfo::load`](crate::snapshot::NodeInfo::load).
    pub metrics: Option<Box<NodeMetrics>>,
    /// `metadata.resourceVersion`, 0 where absent.
    pub resource_version: u64,
}

impl CustomNodeResource {
    /// One that offers this to best-effort pods.
    pub fn new(name: impl Into<Name>, allocatable: &ResourceList) -> CustomNodeResource {
        CustomNodeResource {
            name: name.into(),
            allocatable: allocatable.into(),
            numa: Box::default(),
            metrics: None,
            resource_version: 0,
        }
    }

    /// A resource of which it reports less than nothing, if there is one: offered,
    /// of a NUMA node, or in use.
    pub(crate) fn negative(&self) -> Option<Name> {
        let of_numa = || {
            self.numa.iter().find_map(|zone| {
                let given = zone.allocations.iter().map(|(_, given)| given);
                [&zone.allocatable].into_iter().chain(given).find_map(ResourceList::negative)
            })
        };
        let in_use = || {
            let metrics = self.metrics.as_deref()?;
            [PodClass::Guaranteed, PodClass::BestEffort].into_iter().find_map(|class| {
                let Usage { cpu, memory } = metrics.of(class).usage;
                Resources { cpu, memory, ..Resources::default() }.negative()
            })
        };
        self.allocatable.negative().or_else(of_numa).or_else(in_use)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{HOSTNAME, node};
    use super::*;

    fn list(amounts: &[(&str, i64)]) -> ResourceList {
        ResourceList::new(amounts.iter().map(|(name, n)| (*name, Quantity::whole(*n))))
    }

    #[test]
    fn what_a_node_manager_keeps_goes_off_and_what_only_it_has_is_added() {
        let kubelet = node("n")
            .cpu(10_000)
            .memory(100)
            .resource("a.com/x", Quantity::whole(8))
            .resource("a.com/y", Quantity::whole(3))
            .hostname()
            .build();
        let nm_node = NmNode::new("n").with_resources(
            list(&[("cpu", 16), ("memory", 50), ("a.com/x", 9), ("pods", 20)]),
            list(&[("cpu", 12), ("memory", 60), ("a.com/x", 0), ("a.com/z", 5), ("pods", 15)]),
        );
        let merged = nm_node.node(Some(&kubelet));
        assert_eq!(merged.allocatable.cpu.0, 6_000);
        assert_eq!(merged.allocatable.memory.0, 100, "more than it has is nothing kept");
        assert_eq!(merged.allowed_pods, 105);
        let scalar = |name| merged.allocatable.scalars.get(name);
        assert_eq!(scalar("a.com/x"), Some(0), "never below zero");
        assert_eq!((scalar("a.com/y"), scalar("a.com/z")), (Some(3), Some(5)));
        assert_eq!((merged.capacity(), merged.labels), (kubelet.capacity(), kubelet.labels));
    }

    #[test]
    fn without_a_capacity_nothing_is_kept() {
        let kubelet = node("n").cpu(10_000).build();
        let nm_node = NmNode::new("n").with_resources(list(&[]), list(&[("cpu", 1)]));
        assert_eq!(nm_node.node(Some(&kubelet)).allocatable.cpu.0, 10_000);
    }

    /// Gödel tells a resource of amount 0 from one that is not named; of those that
    /// every node has this engine keeps the amount alone.
    #[test]
    fn a_zero_of_the_nodes_own_counts_as_not_named() {
        let kubelet = node("n").cpu(0).resource("a.com/x", Quantity::whole(0)).build();
        let nm_node =
            NmNode::new("n").with_resources(list(&[]), list(&[("cpu", 2), ("a.com/x", 2)]));
        let merged = nm_node.node(Some(&kubelet));
        assert_eq!(merged.allocatable.cpu.0, 2_000);
        assert_eq!(merged.allocatable.scalars.get("a.com/x"), Some(0));
    }

    #[test]
    fn alone_it_is_what_it_says() {
        let labels = Labels::new([(HOSTNAME, "h"), ("topology.kubernetes.io/zone", "z")]);
        let nm_node = NmNode::new("n")
            .with_labels(&labels)
            .with_resources(list(&[("cpu", 4)]), list(&[("cpu", 3), ("pods", 7)]));
        let alone = nm_node.node(None);
        assert_eq!((alone.allocatable.cpu.0, alone.allowed_pods), (3_000, 7));
        assert_eq!(alone.capacity().resources.cpu.0, 4_000);
        assert_eq!((&*alone.zone.zone, alone.labels.get(HOSTNAME)), ("z", Some("h")));
    }
}
