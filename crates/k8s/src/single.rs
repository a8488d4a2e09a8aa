//! Reads one object as an API server stores it, from a tree. No defaults are filled in, and an empty uid stays empty.

use serde::Deserialize;
use serde_json::Value;

use super::collect::Kind;
use super::controllers;
use super::defaults::Rules;
use super::error::{Cause, Path, ReadError};

use super::tree::Spot;
use super::typed::{Origin, Typed};
use super::workloads::PodController;
use super::{movement, objects, pod_group, reservation, storage};
use super::{wire_objects, wire_pod};
use portolan::model::{Node, NodeAffinity, Object, Pod};

pub(super) fn pod_in(spot: &Spot<'_>) -> Result<Pod, ReadError> {
    expect_kind(spot, "Pod")?;
    pod_of(read(spot)?)
}

pub(super) fn pod_of(wire: wire_pod::Pod<'_>) -> Result<Pod, ReadError> {
    Ok(super::pod::read(&wire, &Path::Root, &mut Rules::stored())?.finish())
}

pub(super) fn node_in(spot: &Spot<'_>) -> Result<Node, ReadError> {
    expect_kind(spot, "Node")?;
    node_of(read(spot)?)
}

pub(super) fn node_of(wire: wire_objects::Node<'_>) -> Result<Node, ReadError> {
    super::node::read(&wire, &Path::Root, &mut Rules::stored())
}

/// Reads a node affinity, such as `spec.affinity.nodeAffinity` of a pod.
pub(super) fn node_affinity(value: &Value) -> Result<NodeAffinity, ReadError> {
    let spot = Spot::from(value);
    let wire: wire_pod::NodeAffinity<'_> = read(&spot)?;
    Ok(super::affinity::node_affinity(&wire))
}

/// Reads an object of one of the kinds that an engine stores besides pods and nodes.
pub(super) fn object_in(kind: &str, spot: &Spot<'_>) -> Result<Object, ReadError> {
    const KINDS: &str = "one of Namespace, Service, ReplicationController, ReplicaSet, \
        StatefulSet, DaemonSet, PersistentVolume, PersistentVolumeClaim, StorageClass, CSINode, \
        VolumeAttachment, CSIDriver, CSIStorageCapacity, PodDisruptionBudget, PodGroup, \
        NMNode, CustomNodeResource, Reservation, Movement";
    let of = |key| spot.get(key).and_then(Spot::text);
    let kind = of("kind").unwrap_or(kind);
    let (root, rules) = (&Path::Root, &mut Rules::stored());
    let unsupported =
        || ReadError::new(root, Cause::Kind { found: kind.to_owned(), expected: KINDS });
    let workload =
        |controller: PodController| controller.workload().map(Object::from).ok_or_else(unsupported);
    let known = Kind::named(of("apiVersion").unwrap_or_default(), kind).ok_or_else(unsupported)?;
    match known {
        Kind::PodDisruptionBudget => objects::budget(&read(spot)?, root, rules).map(Object::from),
        Kind::PersistentVolumeClaim => storage::claim(&read(spot)?, root).map(Object::from),
        Kind::StorageClass => storage::storage_class(&read(spot)?, root),
        Kind::ReplicationController => {
            workload(controllers::replication_controller(&read(spot)?, root, rules)?)
        }
        Kind::Controller(kind) => {
            workload(controllers::controller(*kind, &read(spot)?, root, rules)?)
        }
        kind => {
            let typed = Typed::new(spot, Path::Root, Origin::default());
            stored(kind, typed, root, rules)?.unwrap_or_else(|| Err(unsupported()))
        }
    }
}

/// Reads an object of a kind that an engine stores as it is. Returns nothing for other kinds. The outer error is that of
/// a type.
pub(super) fn stored(
    kind: &Kind,
    object: Typed<'_, '_>,
    path: &Path<'_>,
    rules: &mut Rules<'_>,
) -> Result<Option<Result<Object, ReadError>>, ReadError> {
    Ok(Some(match kind {
        Kind::Namespace => objects::namespace(&object.read()?, path, rules).map(Object::from),
        Kind::Service => objects::service(&object.read()?, path, rules).map(Object::from),
        Kind::PodGroup(kind) => {
            pod_group::read(*kind, &object.read()?, path, rules).map(Object::from)
        }
        Kind::Reservation => reservation::read(&object.read()?, path, rules).map(Object::from),
        Kind::Movement => movement::read(&object.read()?, path),
        Kind::NmNode => super::node::nm_node(&object.read()?, path),
        Kind::CustomNodeResource => super::node::custom_node_resource(&object.read()?, path),
        Kind::PersistentVolume => storage::persistent_volume(&object.read()?, path),
        Kind::CsiNode => storage::csi_node(&object.read()?, path),
        Kind::VolumeAttachment => storage::volume_attachment(&object.read()?, path),
        Kind::CsiDriver => storage::csi_driver(&object.read()?, path),
        Kind::CsiStorageCapacity => storage::csi_storage_capacity(&object.read()?, path),
        _ => return Ok(None),
    }))
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
