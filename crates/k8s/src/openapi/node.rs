//! Nodes. See [`super`].

use k8s_openapi::api::core::v1 as api;

use super::meta::{list, metadata, optional, optional_amounts, text, texts};
use crate::error::ReadError;
use crate::wire::{List, Text, Whole};
use crate::wire_objects as wire;

pub(super) fn lend(node: &api::Node) -> Result<wire::Node<'_>, ReadError> {
    Ok(wire::Node {
        metadata: Some(metadata(&node.metadata)?),
        spec: node.spec.as_ref().map(|spec| wire::NodeSpec {
            taints: list(&spec.taints, |taint| wire::Taint {
                key: text(&taint.key),
                value: optional(&taint.value),
                effect: text(&taint.effect),
            }),
            unschedulable: spec.unschedulable,
        }),
        status: node.status.as_ref().map(|status| wire::NodeStatus {
            allocatable: optional_amounts(&status.allocatable),
            capacity: optional_amounts(&status.capacity),
            images: list(&status.images, |image| wire::Image {
                names: texts(&image.names),
                size_bytes: Whole(image.size_bytes),
            }),
            declared_features: declared_features(status),
        }),
    })
}

k8s_openapi::k8s_if_ge_1_35! {
    fn declared_features(status: &api::NodeStatus) -> List<Text<'_>> {
        texts(&status.declared_features)
    }
}

k8s_openapi::k8s_if_le_1_34! {
    fn declared_features(_: &api::NodeStatus) -> List<Text<'_>> {
        List::default()
    }
}
