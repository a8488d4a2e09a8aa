//! A node as a caller hands it to the engine, and its builder.

use std::fmt;

use super::{LabelLookup, Labels, Name, NodeResources, Quantity, ResourceList, Resources, Taint};
use crate::hash::hash_of;

/// The label that names the node itself.
pub(crate) const HOSTNAME: &str = "kubernetes.io/hostname";
const REGION: [&str; 2] =
    ["failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"];
const ZONE: [&str; 2] = ["failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"];

/// A node's labels, in two parts: what it shares with others, and what is its
/// own (its hostname), so that a predicate can be decided once per shared part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeLabels {
    shared: Labels,
    own: Labels,
}

impl NodeLabels {
    /// Splits a node's labels.
    #[must_use]
    pub fn new(labels: &Labels) -> NodeLabels {
        let own = |(key, _): &(&str, &str)| *key == HOSTNAME;
        NodeLabels {
            shared: labels.iter().filter(|label| !own(label)).collect(),
            own: labels.iter().filter(own).collect(),
        }
    }

    /// The labels that other nodes may have too.
    #[must_use]
    pub fn shared(&self) -> &Labels {
        &self.shared
    }

    /// The labels that name this node.
    #[must_use]
    pub fn own(&self) -> &Labels {
        &self.own
    }

    /// The value under `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.shared.get(key).or_else(|| self.own.get(key))
    }

    /// All labels, the shared ones first.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.shared.iter().chain(self.own.iter())
    }
}

impl LabelLookup for NodeLabels {
    fn get(&self, key: &str) -> Option<&str> {
        NodeLabels::get(self, key)
    }
}

/// The zone of a node, by its region and zone labels
/// (component-helpers/node/topology `GetZoneKey`).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct ZoneKey {
    /// Region, maybe empty.
    pub region: Name,
    /// Zone, maybe empty.
    pub zone: Name,
}

impl ZoneKey {
    /// The zone that these labels name: the beta label if present, even empty,
    /// else the one of today.
    #[must_use]
    pub fn of(labels: &(impl LabelLookup + ?Sized)) -> ZoneKey {
        let first = |keys: [&str; 2]| {
            keys.iter().find_map(|key| labels.get(key)).unwrap_or_default().into()
        };
        ZoneKey { region: first(REGION), zone: first(ZONE) }
    }

    pub(crate) fn hash64(&self) -> u64 {
        hash_of(self)
    }
}

impl fmt::Display for ZoneKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&*self.region, &*self.zone) {
            ("", zone) => f.pad(zone),
            (region, "") => f.pad(region),
            (region, zone) => write!(f, "{region}/{zone}"),
        }
    }
}

/// A container image that a node has, under each of its names.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Image {
    /// Its names: tags and digests.
    pub names: Box<[Name]>,
    /// Its size in bytes.
    pub size: i64,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(from = "super::serialized::Node"))]
pub struct Node {
    /// Its name.
    pub name: Name,
    /// Its labels.
    pub labels: NodeLabels,
    /// Its zone, from the labels.
    #[cfg_attr(feature = "serde", serde(skip_serializing))]
    pub zone: ZoneKey,
    /// What pods may take.
    pub allocatable: Resources,
    /// How many pods may run.
    pub allowed_pods: i64,
    /// What there is of it in all; none where that is what pods may take.
    pub capacity: Option<Box<NodeResources>>,
    /// Taints, in the order given.
    pub taints: Box<[Taint]>,
    /// Cordoned.
    pub unschedulable: bool,
    /// Images.
    pub images: Box<[Image]>,
    /// Features that the kubelet declares, sorted.
    pub declared_features: Box<[Name]>,
    /// The scheduler whose part of the nodes it is of (annotation
    /// `godel.bytedance.com/scheduler-name`).
    pub scheduler: Option<Name>,
    /// `metadata.resourceVersion`, 0 where absent.
    pub resource_version: u64,
}

impl Node {
    /// What there is in all, of which what pods may take is a part.
    #[must_use]
    pub fn capacity(&self) -> NodeResources {
        let allocatable =
            || NodeResources { resources: self.allocatable.clone(), pods: self.allowed_pods };
        self.capacity.as_deref().cloned().unwrap_or_else(allocatable)
    }
}

/// Builds a [`Node`], see [`node`].
#[derive(Clone, Debug)]
pub struct NodeBuilder {
    node: Node,
    labels: Vec<(String, String)>,
    allocatable: ResourceList,
    capacity: Option<ResourceList>,
}

/// Starts a node called `name`, with no resources, and 110 pods.
///
/// ```
/// use portolan::model::node;
///
/// let node = node("n1").cpu(4_000).memory(32 << 30).zone("z1").build();
/// assert_eq!(node.allowed_pods, 110);
/// assert_eq!(&*node.zone.zone, "z1");
/// ```
pub fn node(name: impl Into<Name>) -> NodeBuilder {
    NodeBuilder {
        node: Node {
            name: name.into(),
            labels: NodeLabels::default(),
            zone: ZoneKey::default(),
            allocatable: Resources::default(),
            allowed_pods: 0,
            capacity: None,
            taints: Box::default(),
            unschedulable: false,
            images: Box::default(),
            declared_features: Box::default(),
            scheduler: None,
            resource_version: 0,
        },
        labels: Vec::new(),
        allocatable: ResourceList::new([("pods", Quantity::whole(110))]),
        capacity: None,
    }
}

impl NodeBuilder {
    /// Allocatable cpu, in milli-cores.
    #[must_use]
    pub fn cpu(self, milli: i64) -> Self {
        self.resource("cpu", Quantity::milli(milli))
    }

    /// Allocatable memory, in bytes.
    #[must_use]
    pub fn memory(self, bytes: i64) -> Self {
        self.resource("memory", Quantity::whole(bytes))
    }

    /// How many pods may run.
    #[must_use]
    pub fn pods(self, pods: i64) -> Self {
        self.resource("pods", Quantity::whole(pods))
    }

    /// Any allocatable resource.
    #[must_use]
    pub fn resource(mut self, name: impl Into<Name>, quantity: Quantity) -> Self {
        self.allocatable.set(name, quantity);
        self
    }

    /// Replaces all allocatable resources.
    #[must_use]
    pub fn allocatable(mut self, allocatable: ResourceList) -> Self {
        self.allocatable = allocatable;
        self
    }

    /// What there is in all; without it as much as pods may take.
    #[must_use]
    pub fn capacity(mut self, capacity: ResourceList) -> Self {
        self.capacity = Some(capacity);
        self
    }

    /// Adds a label.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.push((key.into(), value.into()));
        self
    }

    /// Sets the zone label.
    #[must_use]
    pub fn zone(self, zone: impl Into<String>) -> Self {
        self.label(ZONE[1], zone)
    }

    /// Sets the hostname label to the node's name, as the kubelet does.
    #[must_use]
    pub fn hostname(self) -> Self {
        let name = self.node.name.to_string();
        self.label(HOSTNAME, name)
    }

    /// Adds a taint.
    #[must_use]
    pub fn taint(mut self, taint: Taint) -> Self {
        let mut taints = Vec::from(std::mem::take(&mut self.node.taints));
        taints.push(taint);
        self.node.taints = taints.into();
        self
    }

    /// Cordons it, or not.
    #[must_use]
    pub fn unschedulable(mut self, unschedulable: bool) -> Self {
        self.node.unschedulable = unschedulable;
        self
    }

    /// Gives it to the part of this scheduler.
    #[must_use]
    pub fn scheduler(mut self, scheduler: impl Into<Name>) -> Self {
        self.node.scheduler = Some(scheduler.into());
        self
    }

    /// Adds an image.
    #[must_use]
    pub fn image<N: Into<Name>>(mut self, names: impl IntoIterator<Item = N>, size: i64) -> Self {
        let mut images = Vec::from(std::mem::take(&mut self.node.images));
        images.push(Image { names: names.into_iter().map(Into::into).collect(), size });
        self.node.images = images.into();
        self
    }

    /// Sets the features that the kubelet declares.
    #[must_use]
    pub fn declared_features<N: Into<Name>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        let mut names: Vec<Name> = names.into_iter().map(Into::into).collect();
        names.sort();
        self.node.declared_features = names.into();
        self
    }

    /// Sets the resource version.
    #[must_use]
    pub fn resource_version(mut self, version: u64) -> Self {
        self.node.resource_version = version;
        self
    }

    /// The node.
    #[must_use]
    pub fn build(self) -> Node {
        let labels = Labels::new(self.labels);
        let mut node = self.node;
        node.labels = NodeLabels::new(&labels);
        node.zone = ZoneKey::of(&labels);
        node.allocatable = self.allocatable.to_resources();
        node.allowed_pods = self.allocatable.pods();
        if let Some(capacity) = self.capacity.filter(|capacity| *capacity != self.allocatable) {
            node.capacity = Some(Box::new(NodeResources::from(&capacity)));
        }
        node
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beta_zone_label_counts_where_it_is_present_even_empty() {
        let zone =
            |labels: &[(&str, &str)]| ZoneKey::of(&Labels::new(labels.iter().copied())).to_string();
        assert_eq!(zone(&[(ZONE[1], "z"), (REGION[1], "r")]), "r/z");
        assert_eq!(zone(&[(ZONE[0], "old"), (ZONE[1], "z")]), "old");
        assert_eq!(zone(&[(ZONE[0], ""), (ZONE[1], "z"), (REGION[1], "r")]), "r");
        assert_eq!(zone(&[]), "");
    }

    #[test]
    fn the_hostname_is_a_nodes_own_label() {
        let labels = Labels::new([(HOSTNAME, "h"), ("name", "n"), ("zone", "z")]);
        let split = NodeLabels::new(&labels);
        assert_eq!((split.own().len(), split.shared().len()), (1, 2));
        assert_eq!((split.get(HOSTNAME), split.get("zone")), (Some("h"), Some("z")));
    }
}
