//! Reads one object as an API server stores it. No defaults are filled in, and an empty uid stays empty. Intended for
//! watches, tests and callers that already have a parsed value.

use serde::Deserialize;
use serde_json::Value;

use super::collect::Kind;
use super::controllers;
use super::defaults::Rules;
use super::error::{Cause, Path, ReadError};
use super::pod_group::{self, GroupKind};
use super::tree::Spot;
use super::typed::{Origin, Typed};
use super::workloads::{ControllerKind, PodController};
use super::{movement, objects, reservation, storage};
use super::{wire_objects, wire_pod};
use portolan::model::{Node, NodeAffinity, Object, Pod};

/// Reads a pod. `kind` is checked if it is present, and `apiVersion` is ignored. Pods in phase Succeeded or Failed are
/// read like any other, and marked as finished.
///
/// # Errors
///
/// A field has the wrong type or an invalid value, or the kind is not Pod.
pub fn pod(value: &Value) -> Result<Pod, ReadError> {
    pod_in(&value.into())
}

pub(super) fn pod_in(spot: &Spot<'_>) -> Result<Pod, ReadError> {
    expect_kind(spot, "Pod")?;
    pod_of(read(spot)?)
}

pub(super) fn pod_of(wire: wire_pod::Pod<'_>) -> Result<Pod, ReadError> {
    Ok(super::pod::read(&wire, &Path::Root, &mut Rules::stored())?.finish())
}

/// Reads a node, see [`pod`].
///
/// # Errors
///
/// See [`pod`].
pub fn node(value: &Value) -> Result<Node, ReadError> {
    node_in(&value.into())
}

pub(super) fn node_in(spot: &Spot<'_>) -> Result<Node, ReadError> {
    expect_kind(spot, "Node")?;
    node_of(read(spot)?)
}

pub(super) fn node_of(wire: wire_objects::Node<'_>) -> Result<Node, ReadError> {
    super::node::read(&wire, &Path::Root, &mut Rules::stored())
}

/// Reads a node affinity, such as `spec.affinity.nodeAffinity` of a pod.
///
/// # Errors
///
/// See [`pod`].
pub fn node_affinity(value: &Value) -> Result<NodeAffinity, ReadError> {
    let spot = Spot::from(value);
    let wire: wire_pod::NodeAffinity<'_> = read(&spot)?;
    Ok(super::affinity::node_affinity(&wire))
}

/// Reads an object of one of the kinds that an engine stores besides pods and nodes. `kind` is used if the value does
/// not name its own kind.
///
/// # Errors
///
/// See [`pod`]. It is also an error if the engine does not store objects of the kind.
pub fn object(kind: &str, value: &Value) -> Result<Object, ReadError> {
    object_in(kind, &value.into())
}

pub(super) fn object_in(kind: &str, spot: &Spot<'_>) -> Result<Object, ReadError> {
    const KINDS: &str = "one of Namespace, Service, ReplicationController, ReplicaSet, \
        StatefulSet, DaemonSet, PersistentVolume, PersistentVolumeClaim, StorageClass, CSINode, \
        VolumeAttachment, CSIDriver, CSIStorageCapacity, PodDisruptionBudget, PodGroup, \
        NMNode, CustomNodeResource, Reservation, Movement";
    let of = |key| spot.get(key).and_then(Spot::text);
    let kind = of("kind").unwrap_or(kind);
    let root = &Path::Root;
    let rules = &mut Rules::stored();
    let unsupported =
        || ReadError::new(root, Cause::Kind { found: kind.to_owned(), expected: KINDS });
    let workload =
        |controller: PodController| controller.workload().map(Object::from).ok_or_else(unsupported);
    let of_kind =
        |kind| workload(controllers::controller(kind, &read(spot)?, root, &mut Rules::stored())?);
    match kind {
        "Namespace" => objects::namespace(&read(spot)?, root, rules).map(Object::from),
        "Service" => objects::service(&read(spot)?, root, rules).map(Object::from),
        "PodDisruptionBudget" => objects::budget(&read(spot)?, root, rules).map(Object::from),
        "PodGroup" => {
            // The API version distinguishes the kinds of pod groups.
            let kind = match Kind::of(of("apiVersion").unwrap_or_default(), "PodGroup") {
                Kind::PodGroup(kind) => kind,
                _ => GroupKind::Kubernetes,
            };
            pod_group::read(kind, &read(spot)?, root, rules).map(Object::from)
        }
        "Reservation" => reservation::read(&read(spot)?, root, rules).map(Object::from),
        "Movement" => movement::read(&read(spot)?, root),
        "PersistentVolume" => storage::persistent_volume(&read(spot)?, root),
        "PersistentVolumeClaim" => storage::claim(&read(spot)?, root).map(Object::from),
        "StorageClass" => storage::storage_class(&read(spot)?, root),
        "CSINode" => storage::csi_node(&read(spot)?, root),
        "VolumeAttachment" => storage::volume_attachment(&read(spot)?, root),
        "CSIDriver" => storage::csi_driver(&read(spot)?, root),
        "CSIStorageCapacity" => storage::csi_storage_capacity(&read(spot)?, root),
        "NMNode" => super::node::nm_node(&read(spot)?, root),
        "CustomNodeResource" => super::node::custom_node_resource(&read(spot)?, root),
        "ReplicationController" => {
            workload(controllers::replication_controller(&read(spot)?, root, rules)?)
        }
        "ReplicaSet" => of_kind(ControllerKind::ReplicaSet),
        "StatefulSet" => of_kind(ControllerKind::StatefulSet),
        "DaemonSet" => of_kind(ControllerKind::DaemonSet),
        _ => Err(unsupported()),
    }
}

fn expect_kind(spot: &Spot<'_>, expected: &'static str) -> Result<(), ReadError> {
    match spot.get("kind").and_then(Spot::text) {
        Some(found) if found != expected => {
            let cause = Cause::Kind { found: found.to_owned(), expected };
            Err(ReadError::new(&Path::Root, cause))
        }
        _ => Ok(()),
    }
}

/// Reads the fields of a kind into its wire struct.
fn read<'v, T: Deserialize<'v>>(spot: &'v Spot<'v>) -> Result<T, ReadError> {
    Typed::new(spot, Path::Root, Origin::default()).read()
}
