//! Reads nodes, and the metadata and resource lists that nodes and pods share.

use super::defaults::{Rules, amount};
use super::error::{Cause, Path, ReadError};
use super::objects::named;
use super::selector::names;
use super::time;
use super::wire::{Amounts, Metadata, QuantityText, Text, TextMap};
use super::wire_objects as wire;
use portolan::model::{
    CustomNodeResource, GroupMetric, Labels, Name, NmNode, Node, NodeMetrics, Object, PodClass,
    Quantity, QuantityError, ResourceList, Resources, Taint, TaintEffect, Timestamp, Usage,
    is_scheduled_resource, node,
};

const EFFECT: &str = "one of NoSchedule, PreferNoSchedule, NoExecute";

/// The name of a node that has only a base for it, which is the same for equal bases.
fn generate(meta: &Metadata<'_>) -> Option<Name> {
    let base = optional(&meta.generate_name)?;
    Some(super::generated::Generated::default().name(&Name::default(), &base))
}

/// Reads a node as it is stored, or with defaults if `rules` apply them.
pub(super) fn read(
    wire: &wire::Node<'_>,
    path: &Path<'_>,
    rules: &mut Rules<'_>,
) -> Result<Node, ReadError> {
    let meta = wire.metadata.clone().unwrap_or_default();
    rules.about("Node", "", &meta.name);
    let metadata = path.key("metadata");
    let generated = rules.applies().then(|| generate(&meta)).flatten();
    let Some(called) = optional(&meta.name).or(generated) else {
        return Err(ReadError::new(&metadata.key("name"), Cause::Missing));
    };
    let mut builder = node(called)
        .resource_version(resource_version(&meta, &metadata)?)
        .allocatable(ResourceList::default());
    for (key, value) in meta.labels.iter() {
        builder = builder.label(&**key, &**value);
    }
    if let Some(scheduler) = scheduler(&meta) {
        builder = builder.scheduler(scheduler);
    }
    if let Some(spec) = &wire.spec {
        let spec_path = path.key("spec");
        builder = builder.unschedulable(spec.unschedulable.unwrap_or(false));
        for taint in taints(&spec.taints, &spec_path.key("taints"))? {
            builder = builder.taint(taint);
        }
    }
    if let Some(status) = &wire.status {
        let status_path = path.key("status");
        let mut allocatable = resource_list(&status.allocatable, &status_path.key("allocatable"))?;
        let capacity = resource_list(&status.capacity, &status_path.key("capacity"))?;
        if allocatable.is_empty() && !capacity.is_empty() && rules.applies() {
            allocatable = capacity.clone();
            rules.note("status.allocatable", amount(&allocatable));
        }
        if !capacity.is_empty() {
            builder = builder.capacity(capacity);
        }
        builder =
            builder.allocatable(allocatable).declared_features(names(&status.declared_features));
        for image in status.images.iter() {
            builder = builder.image(names(&image.names), image.size_bytes.unwrap_or(0));
        }
    }
    Ok(builder.build())
}

/// Reads the NMNode of a node manager, as it is stored.
pub(super) fn nm_node(wire: &wire::NmNode<'_>, path: &Path<'_>) -> Result<Object, ReadError> {
    let meta = wire.metadata.clone().unwrap_or_default();
    let metadata = path.key("metadata");
    let (spec, status) =
        (wire.spec.clone().unwrap_or_default(), wire.status.clone().unwrap_or_default());
    let status_path = path.key("status");
    let amounts = |amounts, field| resource_list(amounts, &status_path.key(field));
    let mut nm_node =
        NmNode::new(named(&meta.name, path)?).with_labels(&labels(&meta.labels)).with_resources(
            amounts(&status.resource_capacity, "resourceCapacity")?,
            amounts(&status.resource_allocatable, "resourceAllocatable")?,
        );
    nm_node.taints = taints(&spec.taints, &path.key("spec").key("taints"))?.into();
    nm_node.resource_version = resource_version(&meta, &metadata)?;
    nm_node.scheduler = scheduler(&meta);
    Ok(nm_node.into())
}

fn scheduler(meta: &Metadata<'_>) -> Option<Name> {
    meta.annotations.as_ref().and_then(|annotations| optional(&annotations.scheduler_name))
}

/// Reads a CustomNodeResource, as it is stored.
pub(super) fn custom_node_resource(
    wire: &wire::CustomNodeResource<'_>,
    path: &Path<'_>,
) -> Result<Object, ReadError> {
    let meta = wire.metadata.clone().unwrap_or_default();
    let status = wire.status.clone().unwrap_or_default();
    let status_path = path.key("status");
    let resources = status.resources.clone().unwrap_or_default();
    let allocatable =
        resource_list(&resources.allocatable, &status_path.key("resources").key("allocatable"))?;
    let mut custom = CustomNodeResource::new(named(&meta.name, path)?, &allocatable);
    custom.resource_version = resource_version(&meta, &path.key("metadata"))?;
    if let Some(measured) = &status.node_metric_status {
        let path = status_path.key("nodeMetricStatus");
        custom.metrics = Some(Box::new(node_metrics(measured, &path)?));
    }
    Ok(custom.into())
}

/// Reads the metrics of pods. An unknown QoS level counts as guaranteed (`GetResourceTypeFromQoS`). Metrics of the node
/// as a whole are not read.
fn node_metrics(
    wire: &wire::NodeMetricStatus<'_>,
    path: &Path<'_>,
) -> Result<NodeMetrics, ReadError> {
    let list = path.key("groupMetric");
    let groups = wire.group_metric.iter().enumerate().map(|(i, group)| {
        let usage = resource_list(&group.generic_usage, &list.index(i).key("genericUsage"))?;
        let Resources { cpu, memory, .. } = usage.to_resources();
        Ok(GroupMetric {
            class: PodClass::of(Some(&group.qos_level), None),
            usage: Usage { cpu, memory },
            pods: group.pod_list.iter().map(name).collect(),
        })
    });
    let groups = groups.collect::<Result<Vec<_>, ReadError>>()?;
    Ok(NodeMetrics::new(timestamp(&wire.update_time, &path.key("updateTime"))?, groups))
}

fn taints(taints: &[wire::Taint<'_>], path: &Path<'_>) -> Result<Vec<Taint>, ReadError> {
    let one = |(i, taint): (usize, &wire::Taint<'_>)| {
        let path = path.index(i);
        let effect = taint_effect(&taint.effect, &path)?
            .ok_or_else(|| ReadError::value(&path.key("effect"), "", EFFECT))?;
        Ok(Taint { key: name(&taint.key), value: name(&taint.value), effect })
    };
    taints.iter().enumerate().map(one).collect()
}

/// Parses a taint effect. Returns `None` if the text is empty.
pub(super) fn taint_effect(text: &str, path: &Path<'_>) -> Result<Option<TaintEffect>, ReadError> {
    match text {
        "" => Ok(None),
        "NoSchedule" => Ok(Some(TaintEffect::NoSchedule)),
        "PreferNoSchedule" => Ok(Some(TaintEffect::PreferNoSchedule)),
        "NoExecute" => Ok(Some(TaintEffect::NoExecute)),
        other => Err(ReadError::value(&path.key("effect"), other, EFFECT)),
    }
}

/// Reads the requests of a pod or the resources of a node. A negative quantity is an error. Names that kube-scheduler
/// ignores are left out (framework/types.go `Resource.Add`), which no API server stores.
pub(super) fn resource_list(
    amounts: &Amounts<'_>,
    path: &Path<'_>,
) -> Result<ResourceList, ReadError> {
    quantities_of(amounts, path, is_scheduled_resource)
}

/// Reads quantities of any name. A negative quantity is an error.
pub(super) fn quantities(
    amounts: &Amounts<'_>,
    path: &Path<'_>,
) -> Result<ResourceList, ReadError> {
    quantities_of(amounts, path, |_| true)
}

/// Parses all quantities, including those that `keep` drops, so that every invalid quantity is an error.
fn quantities_of(
    amounts: &Amounts<'_>,
    path: &Path<'_>,
    keep: impl Fn(&str) -> bool,
) -> Result<ResourceList, ReadError> {
    let mut list = ResourceList::default();
    for (key, text) in amounts.iter() {
        let amount = quantity(text, &path.key(key))?;
        if amount.is_negative() {
            return Err(ReadError::new(&path.key(key), Cause::Negative(text.0.to_string())));
        }
        if keep(key) {
            list.set(name(key), amount);
        }
    }
    Ok(list)
}

/// Parses a quantity. White space around it is dropped, as in apimachinery `Quantity.UnmarshalJSON`.
pub(super) fn quantity(text: &QuantityText<'_>, path: &Path<'_>) -> Result<Quantity, ReadError> {
    let parsed = text.0.trim().parse();
    parsed.map_err(|cause: QuantityError| ReadError::new(path, cause))
}

pub(super) fn resource_version(meta: &Metadata<'_>, path: &Path<'_>) -> Result<u64, ReadError> {
    let text: &str = &meta.resource_version;
    if text.is_empty() {
        return Ok(0);
    }
    let decimal = text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| decimal).ok_or_else(|| {
        ReadError::value(&path.key("resourceVersion"), text, "a decimal number of at most 64 bits")
    })
}

/// Parses a time. Returns `None` if the text is empty.
pub(super) fn timestamp(text: &str, path: &Path<'_>) -> Result<Option<Timestamp>, ReadError> {
    if text.is_empty() {
        return Ok(None);
    }
    time::parse(text).map(Some).ok_or_else(|| ReadError::value(path, text, "an RFC 3339 time"))
}

pub(super) fn labels(map: &TextMap<'_>) -> Labels {
    map.iter().map(|(key, value)| (&**key, &**value)).collect()
}

pub(super) fn name(text: &Text<'_>) -> Name {
    Name::from(&**text)
}

/// Returns the text as a name, or `None` if it is empty.
pub(super) fn optional(text: &Text<'_>) -> Option<Name> {
    (!text.is_empty()).then(|| name(text))
}
