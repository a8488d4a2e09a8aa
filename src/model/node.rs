//! The node as callers submit it, and its builder.

use std::fmt;

use super::{LabelLookup, Labels, Name, NodeResources, Quantity, ResourceList, Resources, Taint};
use crate::hash::hash_of;

/// The label that identifies the node itself, usually by its name.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
const REGION: [&str; 2] =
    ["failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"];
const ZONE: [&str; 2] = ["failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"];

/// A node's labels: its hostname, and those that other nodes may share. A predicate on shared labels can thus be
/// evaluated once for all nodes that share them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeLabels {
    pub(crate) shared: Labels,
    hostname: Option<Name>,
}

impl NodeLabels {
    /// Separates the hostname from the other labels of the node called `node`. Usually both names are equal, and then
    /// they share their memory.
    #[must_use]
    pub fn new(labels: &Labels, node: &Name) -> NodeLabels {
        let hostname = labels.get(HOSTNAME);
        let shared = match hostname {
            Some(_) => labels.iter().filter(|(key, _)| *key != HOSTNAME).collect(),
            None => labels.clone(),
        };
        let name = |hostname: &str| match hostname == &**node {
            true => node.clone(),
            false => hostname.into(),
        };
        NodeLabels { shared, hostname: hostname.map(name) }
    }

    /// Returns the labels that other nodes may have too: all but the hostname.
    #[must_use]
    pub(crate) fn shared(&self) -> &Labels {
        &self.shared
    }

    /// Returns the value of the label `kubernetes.io/hostname`.
    #[must_use]
    pub fn hostname(&self) -> Option<&Name> {
        self.hostname.as_ref()
    }

    /// Returns the value of `key`, or `None` if the label is absent.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        match key {
            HOSTNAME => self.hostname.as_deref(),
            _ => self.shared.get(key),
        }
    }

    /// Returns an iterator over all labels, shared labels first.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.shared.iter().chain(self.hostname.as_deref().map(|name| (HOSTNAME, name)))
    }
}

impl LabelLookup for NodeLabels {
    fn get(&self, key: &str) -> Option<&str> {
        NodeLabels::get(self, key)
    }
}

/// A node's zone, derived from its region and zone labels (component-helpers/node/topology `GetZoneKey`).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct ZoneKey {
    /// The region; may be empty.
    pub region: Name,
    /// The zone; may be empty.
    pub zone: Name,
}

impl ZoneKey {
    /// Returns the zone that the labels specify. A beta label takes precedence over the current one even if its value
    /// is empty.
    #[must_use]
    pub(crate) fn of(labels: &(impl LabelLookup + ?Sized)) -> ZoneKey {
        let first = |keys: [&str; 2]| {
            keys.iter().find_map(|key| labels.get(key)).map(Name::from).unwrap_or_default()
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

/// A container image present on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Image {
    /// The names that refer to the image: tags and digests.
    pub names: Box<[Name]>,
    /// The size in bytes.
    pub size: i64,
}

/// A cluster node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(from = "super::serialized::Node"))]
pub struct Node {
    /// The name.
    pub name: Name,
    /// The labels.
    pub labels: NodeLabels,
    /// The zone, derived from the labels.
    #[cfg_attr(feature = "serde", serde(skip_serializing))]
    pub zone: ZoneKey,
    /// The resources that pods may request.
    pub allocatable: Resources,
    /// The maximum number of pods.
    pub allowed_pods: i64,
    /// The node's total capacity, or `None` if it equals the allocatable resources.
    pub capacity: Option<Box<NodeResources>>,
    /// The taints, in the order given.
    pub taints: Box<[Taint]>,
    /// Whether the node is cordoned.
    pub unschedulable: bool,
    /// The images present on the node.
    pub images: Box<[Image]>,
    /// The features that the kubelet declares, sorted.
    pub declared_features: Box<[Name]>,
    /// The scheduler whose partition the node belongs to (annotation `godel.bytedance.com/scheduler-name`).
    pub scheduler: Option<Name>,
    /// `metadata.resourceVersion`, or 0 if absent.
    pub resource_version: u64,
}

impl Node {
    /// Returns the node's total capacity, of which the allocatable resources are a part.
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

/// Starts building a node called `name`, with no resources and a limit of 110 pods.
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
    /// Sets the allocatable cpu, in milli-cores.
    #[must_use]
    pub fn cpu(self, milli: i64) -> Self {
        self.resource("cpu", Quantity::milli(milli))
    }

    /// Sets the allocatable memory, in bytes.
    #[must_use]
    pub fn memory(self, bytes: i64) -> Self {
        self.resource("memory", Quantity::whole(bytes))
    }

    /// Sets the maximum number of pods.
    #[must_use]
    pub fn pods(self, pods: i64) -> Self {
        self.resource("pods", Quantity::whole(pods))
    }

    /// Sets an allocatable resource by name.
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

    /// Sets the total capacity, which defaults to the allocatable resources.
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

    /// Cordons or uncordons the node.
    #[must_use]
    pub fn unschedulable(mut self, unschedulable: bool) -> Self {
        self.node.unschedulable = unschedulable;
        self
    }

    /// Assigns the node to the partition of `scheduler`.
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

    /// Builds the node.
    #[must_use]
    pub fn build(self) -> Node {
        let labels = Labels::new(self.labels);
        let mut node = self.node;
        node.labels = NodeLabels::new(&labels, &node.name);
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
    fn an_empty_beta_zone_label_takes_precedence() {
        let zone =
            |labels: &[(&str, &str)]| ZoneKey::of(&Labels::new(labels.iter().copied())).to_string();
        assert_eq!(zone(&[(ZONE[1], "z"), (REGION[1], "r")]), "r/z");
        assert_eq!(zone(&[(ZONE[0], "old"), (ZONE[1], "z")]), "old");
        assert_eq!(zone(&[(ZONE[0], ""), (ZONE[1], "z"), (REGION[1], "r")]), "r");
        assert_eq!(zone(&[]), "");
    }

    #[test]
    fn the_hostname_is_not_a_shared_label() {
        let labels = Labels::new([(HOSTNAME, "h"), ("name", "n"), ("zone", "z")]);
        let split = NodeLabels::new(&labels, &"n".into());
        assert_eq!((split.hostname().map(|name| &**name), split.shared().len()), (Some("h"), 2));
        assert_eq!(
            (split.get(HOSTNAME), split.get("zone"), split.get("x")),
            (Some("h"), Some("z"), None)
        );
        assert_eq!(split.iter().collect::<Labels>(), labels);
        let without = NodeLabels::new(split.shared(), &"n".into());
        assert_eq!((without.hostname(), without.shared()), (None, split.shared()));
    }

    #[test]
    fn a_hostname_that_is_the_name_takes_no_memory() {
        let node = node("n").hostname().build();
        assert!(node.labels.hostname().is_some_and(|hostname| Name::ptr_eq(hostname, &node.name)));
    }
}
