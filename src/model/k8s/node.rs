//! Nodes, and what they share with pods: metadata and resource lists.

use super::defaults::{Rules, amount};
use super::error::{Cause, Path, ReadError};
use super::selector::names;
use super::time;
use super::wire::{Amounts, Metadata, Text, TextMap};
use super::wire_objects as wire;
use crate::model::{
    Labels, Name, Node, Quantity, ResourceList, Taint, TaintEffect, Timestamp, node,
};

const EFFECT: &str = "one of NoSchedule, PreferNoSchedule, NoExecute";

/// A node as it is stored, or with the defaults that `rules` say.
pub(super) fn read(
    wire: &wire::Node<'_>,
    path: &Path<'_>,
    rules: &mut Rules<'_>,
) -> Result<Node, ReadError> {
    let meta = wire.metadata.clone().unwrap_or_default();
    rules.about("Node", "", &meta.name);
    let metadata = path.key("metadata");
    if meta.name.is_empty() {
        return Err(ReadError::new(&metadata.key("name"), Cause::Missing));
    }
    let mut builder = node(name(&meta.name))
        .resource_version(resource_version(&meta, &metadata)?)
        .allocatable(ResourceList::default());
    for (key, value) in meta.labels.iter() {
        builder = builder.label(&**key, &**value);
    }
    if let Some(spec) = &wire.spec {
        let spec_path = path.key("spec");
        let taints = spec_path.key("taints");
        builder = builder.unschedulable(spec.unschedulable.unwrap_or(false));
        for (i, taint) in spec.taints.iter().enumerate() {
            let path = taints.index(i);
            let effect = taint_effect(&taint.effect, &path)?
                .ok_or_else(|| ReadError::value(&path.key("effect"), "", EFFECT))?;
            builder =
                builder.taint(Taint { key: name(&taint.key), value: name(&taint.value), effect });
        }
    }
    if let Some(status) = &wire.status {
        let status_path = path.key("status");
        let mut allocatable = resource_list(&status.allocatable, &status_path.key("allocatable"))?;
        if allocatable.is_empty() && !status.capacity.is_empty() && rules.applies() {
            allocatable = resource_list(&status.capacity, &status_path.key("capacity"))?;
            rules.note("status.allocatable", amount(&allocatable));
        }
        builder =
            builder.allocatable(allocatable).declared_features(names(&status.declared_features));
        for image in status.images.iter() {
            builder = builder.image(names(&image.names), image.size_bytes.unwrap_or(0));
        }
    }
    Ok(builder.build())
}

/// An effect; none where the text is empty.
pub(super) fn taint_effect(text: &str, path: &Path<'_>) -> Result<Option<TaintEffect>, ReadError> {
    match text {
        "" => Ok(None),
        "NoSchedule" => Ok(Some(TaintEffect::NoSchedule)),
        "PreferNoSchedule" => Ok(Some(TaintEffect::PreferNoSchedule)),
        "NoExecute" => Ok(Some(TaintEffect::NoExecute)),
        other => Err(ReadError::value(&path.key("effect"), other, EFFECT)),
    }
}

/// Quantities by name. A negative one is an error.
pub(super) fn resource_list(
    amounts: &Amounts<'_>,
    path: &Path<'_>,
) -> Result<ResourceList, ReadError> {
    let mut list = ResourceList::default();
    for (key, text) in amounts.iter() {
        let text: &str = &text.0;
        let quantity: Quantity = text
            .parse()
            .map_err(|cause: crate::model::QuantityError| ReadError::new(&path.key(key), cause))?;
        if quantity.is_negative() {
            return Err(ReadError::new(&path.key(key), Cause::Negative(text.to_owned())));
        }
        list.set(name(key), quantity);
    }
    Ok(list)
}

pub(super) fn resource_version(meta: &Metadata<'_>, path: &Path<'_>) -> Result<u64, ReadError> {
    let text: &str = &meta.resource_version;
    if text.is_empty() {
        return Ok(0);
    }
    let decimal = text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| decimal).ok_or_else(|| {
        ReadError::value(&path.key("resourceVersion"), text, "a decimal number of 64 bits")
    })
}

/// A time; none where the text is empty.
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

/// A name; none where the text is empty.
pub(super) fn optional(text: &Text<'_>) -> Option<Name> {
    (!text.is_empty()).then(|| name(text))
}
