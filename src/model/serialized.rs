//! The serialized forms of types with invariants, which are restored during deserialization.
//!
//! The input comes from files, so derived values are never trusted: templates are hashed, lists are sorted, zones are
//! derived from labels, and sums of requests that contradict each other are refused. Every value that the builders
//! construct can be serialized and deserialized, including values that the engine rejects, because a replay must reject
//! the same events.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::{Serialize, Serializer};

use super::{
    Image, InTreePlugin, Labels, Name, NodeLabels, NodeResources, NonZero, Operator, PodSpec,
    Quantity, ResourceList, Resources, Scalars, Taint, Template, Uid, Usage, ZoneKey,
};

/// The serialized form of a node, without the derived zone.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Node {
    name: Name,
    labels: Labels,
    allocatable: Resources,
    allowed_pods: i64,
    capacity: Option<Box<NodeResources>>,
    taints: Box<[Taint]>,
    unschedulable: bool,
    images: Box<[Image]>,
    #[serde(deserialize_with = "sorted")]
    declared_features: Box<[Name]>,
    scheduler: Option<Name>,
    resource_version: u64,
}

impl From<Node> for super::Node {
    fn from(node: Node) -> super::Node {
        super::Node {
            zone: ZoneKey::of(&node.labels),
            labels: NodeLabels::new(&node.labels, &node.name),
            name: node.name,
            allocatable: node.allocatable,
            allowed_pods: node.allowed_pods,
            capacity: node.capacity,
            taints: node.taints,
            unschedulable: node.unschedulable,
            images: node.images,
            declared_features: node.declared_features,
            scheduler: node.scheduler,
            resource_version: node.resource_version,
        }
    }
}

/// The serialized form of an NMNode, without the derived zone.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NmNode {
    name: Name,
    labels: Labels,
    taints: Box<[Taint]>,
    capacity: ResourceList,
    allocatable: ResourceList,
    scheduler: Option<Name>,
    resource_version: u64,
}

impl From<NmNode> for super::NmNode {
    fn from(node: NmNode) -> super::NmNode {
        super::NmNode {
            zone: ZoneKey::of(&node.labels),
            labels: NodeLabels::new(&node.labels, &node.name),
            name: node.name,
            taints: node.taints,
            capacity: node.capacity,
            allocatable: node.allocatable,
            scheduler: node.scheduler,
            resource_version: node.resource_version,
        }
    }
}

/// The serialized form of a requirement, with its values in any order.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Requirement {
    key: Name,
    operator: Operator,
    values: Vec<Name>,
}

impl From<Requirement> for super::Requirement {
    fn from(requirement: Requirement) -> super::Requirement {
        super::Requirement::new(requirement.key, requirement.operator, requirement.values)
    }
}

/// The serialized form of a profile, with its pods in any order.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Profile {
    usage: Usage,
    pods: Vec<Name>,
}

impl From<Profile> for super::Profile {
    fn from(Profile { usage, mut pods }: Profile) -> super::Profile {
        pods.sort();
        pods.dedup();
        super::Profile { usage, pods: pods.into() }
    }
}

/// The serialized form of a pod's requests. The containers that they were computed from are not written, so they cannot
/// be computed again; sums that contradict each other are refused.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PodResources {
    placed: Resources,
    placed_non_zero: NonZero,
    incoming: Resources,
    scored: Resources,
}

/// Why the sums of a pod's requests cannot be those of one pod.
#[derive(Debug, thiserror::Error)]
pub(super) enum Contradiction {
    #[error(
        "the pod requests {resource} {placed} and, with defaults, less ({with_defaults}): write the \
         log again"
    )]
    BelowRequest { resource: &'static str, placed: i64, with_defaults: i64 },
    #[error(
        "the pod is scheduled with {resource} {incoming} and scored with {scored}, although no \
         default exists: write the log again"
    )]
    OtherScore { resource: Name, incoming: i64, scored: i64 },
}

impl TryFrom<PodResources> for super::PodResources {
    type Error = Contradiction;

    fn try_from(sums: PodResources) -> Result<super::PodResources, Contradiction> {
        let PodResources { placed, placed_non_zero, incoming, scored } = sums;
        let sums = super::PodResources { placed, placed_non_zero, incoming, scored };
        // The engine rejects a pod with a negative request, whose sums may have any relation, and a replay must reject
        // it, too.
        match sums.negative() {
            Some(_) => Ok(sums),
            None => sums.contradiction().map_or(Ok(sums), Err),
        }
    }
}

impl super::PodResources {
    /// Returns a relation between the sums that no pod has. Defaults and pod-level requests exist only for cpu, memory
    /// and huge pages, and no default lowers a request.
    fn contradiction(&self) -> Option<Contradiction> {
        let (placed, non_zero) = (&self.placed, &self.placed_non_zero);
        let cpu = ("cpu", placed.cpu.0, non_zero.cpu.0);
        let memory = ("memory", placed.memory.0, non_zero.memory.0);
        let below = [cpu, memory].into_iter().find(|(_, placed, non_zero)| non_zero < placed);
        if let Some((resource, placed, with_defaults)) = below {
            return Some(Contradiction::BelowRequest { resource, placed, with_defaults });
        }
        let (incoming, scored) = (&self.incoming, &self.scored);
        let other = |resource: &Name, incoming: i64, scored: i64| {
            let resource = resource.clone();
            (incoming != scored).then_some(Contradiction::OtherScore { resource, incoming, scored })
        };
        let names = incoming.scalars.iter().chain(scored.scalars.iter()).map(|(name, _)| name);
        let amount = |of: &Resources, name: &Name| of.scalars.get(name).unwrap_or(0);
        other(&"ephemeral-storage".into(), incoming.ephemeral_storage.0, scored.ephemeral_storage.0)
            .or_else(|| {
                let mut names = names.filter(|name| !super::Requests::is_pod_level(name));
                names.find_map(|name| other(name, amount(incoming, name), amount(scored, name)))
            })
    }
}

/// Deserializes names and sorts them.
pub(super) fn sorted<'de, D: Deserializer<'de>>(from: D) -> Result<Box<[Name]>, D::Error> {
    let mut names = Box::<[Name]>::deserialize(from)?;
    names.sort();
    Ok(names)
}

impl Serialize for Template {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        PodSpec::serialize(self, to)
    }
}

impl<'de> Deserialize<'de> for Template {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Template, D::Error> {
        PodSpec::deserialize(from).map(Template::of)
    }
}

impl Serialize for Labels {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Labels, D::Error> {
        BTreeMap::<String, String>::deserialize(from).map(Labels::new)
    }
}

impl Serialize for NodeLabels {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        // Collected first, because some formats write the length first, which a chained iterator does not know.
        to.collect_map(self.iter().collect::<BTreeMap<_, _>>())
    }
}

impl Serialize for Scalars {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Scalars {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Scalars, D::Error> {
        BTreeMap::<Name, i64>::deserialize(from).map(Scalars::new)
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Quantity, D::Error> {
        let text = String::deserialize(from)?;
        Quantity::from_str(&text).map_err(Error::custom)
    }
}

impl Serialize for Uid {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Uid {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Uid, D::Error> {
        String::deserialize(from).map(|text| Uid::new(&text))
    }
}

impl Serialize for InTreePlugin {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name)
    }
}

impl<'de> Deserialize<'de> for InTreePlugin {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<InTreePlugin, D::Error> {
        let name = String::deserialize(from)?;
        let known = InTreePlugin::of_name(&name);
        known.ok_or_else(|| D::Error::custom(UnknownPlugin { name }))
    }
}

/// The error for a name that is not that of an in-tree volume plugin.
#[derive(Debug, thiserror::Error)]
#[error("{name:?} is not an in-tree volume plugin that a CSI driver replaces")]
struct UnknownPlugin {
    name: String,
}
