//! The objects that describe a Gödel node beside its Node, namely an NMNode and a CustomNodeResource of the same name,
//! and how they are merged.

use crate::model::{
    Labels, Name, Node, NodeLabels, NodeMetrics, PodClass, Quantity, ResourceList, Resources,
    Taint, Usage, ZoneKey,
};

/// The capacity of a node: amounts of resources and a number of pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct NodeResources {
    /// The resources.
    pub resources: Resources,
    /// The maximum number of pods.
    pub pods: i64,
}

impl NodeResources {
    /// Returns the first resource with a negative amount, or `None` if there is none.
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

/// A machine as its node manager reports it (`NMNode` of node.godel.kubewharf.io/v1alpha1). Pods that a node manager
/// starts require one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(from = "crate::model::serialized::NmNode"))]
pub struct NmNode {
    /// The name. It equals the Node's name if the machine has both objects.
    pub name: Name,
    /// The labels.
    pub labels: NodeLabels,
    /// The zone, derived from the labels.
    #[cfg_attr(feature = "serde", serde(skip_serializing))]
    pub zone: ZoneKey,
    /// `spec.taints`.
    pub taints: Box<[Taint]>,
    /// `status.resourceCapacity`.
    pub capacity: ResourceList,
    /// `status.resourceAllocatable`.
    pub allocatable: ResourceList,
    /// The scheduler whose partition the node belongs to, with the same meaning as for a Node.
    pub scheduler: Option<Name>,
    /// `metadata.resourceVersion`, or 0 if absent.
    pub resource_version: u64,
}

impl NmNode {
    /// Creates an NMNode that reports no resources yet.
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

    /// Sets the labels and the zone derived from them.
    #[must_use]
    pub fn with_labels(mut self, labels: &Labels) -> NmNode {
        self.labels = NodeLabels::new(labels, &self.name);
        self.zone = ZoneKey::of(labels);
        self
    }

    /// Sets the capacity and the allocatable resources.
    #[must_use]
    pub fn with_resources(mut self, capacity: ResourceList, allocatable: ResourceList) -> NmNode {
        self.capacity = capacity;
        self.allocatable = allocatable;
        self
    }

    /// Returns the node that scheduling reads, made from this object alone or merged with the Node of the same name
    /// (Gödel: framework/api `getAllocatableResources`).
    ///
    /// If both exist, everything except the allocatable resources is taken from the Node; pods of a node manager see
    /// the labels and taints of the NMNode ([`NodeInfo::node_for`](crate::cache::NodeInfo::node_for)). For a resource
    /// that the Node has, the amount that the node manager keeps for itself (its capacity minus its allocatable amount,
    /// if it reports both) is subtracted, but the result is never negative. A resource that the Node lacks is taken
    /// from the node manager. An amount of 0 for the Node's cpu, memory, ephemeral storage or pods counts as lacking.
    /// O(resources).
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
        // The capacity is set explicitly, because the allocatable amount that it defaults to is about to change.
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
        merged.allocatable.scalars = crate::model::Scalars::new(scalars);
        merged
    }

    /// Returns the merged node as pods of the node manager see it: with the labels, zone and taints of this object, and
    /// never cordoned.
    pub(crate) fn managed(&self, merged: &Node) -> Node {
        Node {
            labels: self.labels.clone(),
            zone: self.zone.clone(),
            taints: self.taints.clone(),
            unschedulable: false,
            ..merged.clone()
        }
    }

    /// Returns the name of a resource with a negative amount, or `None` if there is none.
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

/// Subtracts `kept` from `amount`; the result is never negative.
fn less(amount: i64, kept: i64) -> i64 {
    amount.saturating_sub(kept).max(0)
}

/// Returns the function that converts a quantity of the resource to an amount: thousandths for cpu, whole numbers for
/// everything else, both rounded up.
fn unit_of(name: &str) -> fn(Quantity) -> i64 {
    if name == "cpu" { Quantity::milli_value } else { Quantity::value }
}

/// An agent's report on a machine, in addition to its Node (`CustomNodeResource` of
/// node.katalyst.kubewharf.io/v1alpha1). Most importantly, it reports how much of the resources reserved by other pods
/// best-effort pods may use.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct CustomNodeResource {
    /// The name, which is the node's.
    pub name: Name,
    /// `status.resources.allocatable`: the resources that best-effort pods may use.
    pub allocatable: NodeResources,
    /// `status.nodeMetricStatus`: the measured usage of the node's pods.
    /// [`NodeInfo::load`](crate::cache::NodeInfo::load) derives the node's load from it.
    pub metrics: Option<Box<NodeMetrics>>,
    /// `metadata.resourceVersion`, or 0 if absent.
    pub resource_version: u64,
}

impl CustomNodeResource {
    /// Creates an object that offers `allocatable` to best-effort pods.
    pub fn new(name: impl Into<Name>, allocatable: &ResourceList) -> CustomNodeResource {
        CustomNodeResource {
            name: name.into(),
            allocatable: allocatable.into(),
            metrics: None,
            resource_version: 0,
        }
    }

    /// Returns the name of a resource with a negative amount (offered or in use), or `None` if there
    /// is none.
    pub(crate) fn negative(&self) -> Option<Name> {
        let in_use = || {
            let metrics = self.metrics.as_deref()?;
            [PodClass::Guaranteed, PodClass::BestEffort].into_iter().find_map(|class| {
                let Usage { cpu, memory } = metrics.of(class).usage;
                Resources { cpu, memory, ..Resources::default() }.negative()
            })
        };
        self.allocatable.negative().or_else(in_use)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{HOSTNAME, node};

    fn list(amounts: &[(&str, i64)]) -> ResourceList {
        ResourceList::new(amounts.iter().map(|(name, n)| (*name, Quantity::whole(*n))))
    }

    #[test]
    fn a_node_managers_share_is_subtracted_and_its_own_resources_are_added() {
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
        assert_eq!(
            merged.allocatable.memory.0, 100,
            "allocatable beyond the capacity keeps nothing"
        );
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

    /// Gödel distinguishes a resource with amount 0 from an absent one. For the resources that every node has, this
    /// engine stores only the amount.
    #[test]
    fn a_zero_amount_in_the_node_counts_as_absent() {
        let kubelet = node("n").cpu(0).resource("a.com/x", Quantity::whole(0)).build();
        let nm_node =
            NmNode::new("n").with_resources(list(&[]), list(&[("cpu", 2), ("a.com/x", 2)]));
        let merged = nm_node.node(Some(&kubelet));
        assert_eq!(merged.allocatable.cpu.0, 2_000);
        assert_eq!(merged.allocatable.scalars.get("a.com/x"), Some(0));
    }

    #[test]
    fn an_nm_node_alone_becomes_a_node() {
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
