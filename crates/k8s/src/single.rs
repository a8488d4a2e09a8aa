//! One object at a time, as an API server stores it: nothing is filled in, an
//! empty uid stays empty. For watches, tests and whoever has a parsed value.

use serde::Deserialize;
use serde_json::Value;

use super::defaults::Rules;
use super::error::{Cause, Path, ReadError};
use super::pod_group::{self, GroupKind};
use super::{movement, objects, reservation, storage, workloads};
use super::{wire_objects, wire_pod};
use portolan::model::{Node, NodeAffinity, Object, Pod};

/// Reads a pod. Of `apiVersion` and `kind` the latter is compared where it is
/// there. A pod that is in phase Succeeded or Failed is read as any other.
///
/// # Errors
///
/// A field of another type, or with a value that it cannot have.
pub fn pod(value: &Value) -> Result<Pod, ReadError> {
    expect_kind(value, "Pod")?;
    let wire: wire_pod::Pod<'_> = from_value(value)?;
    Ok(super::pod::read(&wire, &Path::Root, &mut Rules::stored())?.finish())
}

/// Reads a node, see [`pod`].
///
/// # Errors
///
/// See [`pod`].
pub fn node(value: &Value) -> Result<Node, ReadError> {
    expect_kind(value, "Node")?;
    let wire: wire_objects::Node<'_> = from_value(value)?;
    super::node::read(&wire, &Path::Root, &mut Rules::stored())
}

/// Reads a node affinity, as in `spec.affinity.nodeAffinity` of a pod.
///
/// # Errors
///
/// See [`pod`].
pub fn node_affinity(value: &Value) -> Result<NodeAffinity, ReadError> {
    let wire: wire_pod::NodeAffinity<'_> = from_value(value)?;
    Ok(super::affinity::node_affinity(&wire))
}

/// Reads an object of one of the kinds that have stores, beside pods and nodes.
/// Its kind is `kind` where the value names none.
///
/// # Errors
///
/// See [`pod`]; and where the kind is none of these.
pub fn object(kind: &str, value: &Value) -> Result<Object, ReadError> {
    const KINDS: &str = "one of Namespace, Service, ReplicationController, ReplicaSet, \
        StatefulSet, DaemonSet, PersistentVolume, PersistentVolumeClaim, StorageClass, CSINode, \
        VolumeAttachment, CSIDriver, CSIStorageCapacity, PodDisruptionBudget, PodGroup, \
        NMNode, CustomNodeResource, Reservation, Movement";
    let root = Path::Root;
    let rules = &mut Rules::stored();
    let kind = value.get("kind").and_then(Value::as_str).unwrap_or(kind);
    let workload = |controller: workloads::PodController| controller.workload();
    let workload = match kind {
        "Namespace" => {
            return objects::namespace(&from_value(value)?, &root).map(Object::from);
        }
        "Service" => {
            let namespace = |meta: &super::wire::Metadata<'_>| (&*meta.namespace).into();
            return objects::service(&from_value(value)?, &root, namespace).map(Object::from);
        }
        "PodDisruptionBudget" => {
            let namespace = |meta: &super::wire::Metadata<'_>| (&*meta.namespace).into();
            let budget = objects::budget(&from_value(value)?, &root, namespace);
            return budget.map(Object::from);
        }
        "PodGroup" => {
            let namespace = |meta: &super::wire::Metadata<'_>| (&*meta.namespace).into();
            let version = value.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
            let group = version.split_once('/').map_or("", |(group, _)| group);
            let kind = GroupKind::of(group).unwrap_or(GroupKind::Kubernetes);
            let group = pod_group::read(kind, &from_value(value)?, &root, namespace);
            return group.map(Object::from);
        }
        "Reservation" => {
            let reservation = reservation::read(&from_value(value)?, &root, rules);
            return reservation.map(Object::from);
        }
        "Movement" => return movement::read(&from_value(value)?, &root),
        "PersistentVolume" => return storage::persistent_volume(&from_value(value)?, &root),
        "PersistentVolumeClaim" => {
            return storage::persistent_volume_claim(&from_value(value)?, &root);
        }
        "StorageClass" => return storage::storage_class(&from_value(value)?, &root),
        "CSINode" => return storage::csi_node(&from_value(value)?, &root),
        "VolumeAttachment" => return storage::volume_attachment(&from_value(value)?, &root),
        "CSIDriver" => return storage::csi_driver(&from_value(value)?, &root),
        "CSIStorageCapacity" => return storage::csi_storage_capacity(&from_value(value)?, &root),
        "NMNode" => return super::node::nm_node(&from_value(value)?, &root),
        "CustomNodeResource" => {
            return super::node::custom_node_resource(&from_value(value)?, &root);
        }
        "ReplicationController" => {
            workload(workloads::replication_controller(&from_value(value)?, &root, rules)?)
        }
        "ReplicaSet" => workload(workloads::controller(
            workloads::ControllerKind::ReplicaSet,
            &from_value(value)?,
            &root,
            rules,
        )?),
        "StatefulSet" => workload(workloads::controller(
            workloads::ControllerKind::StatefulSet,
            &from_value(value)?,
            &root,
            rules,
        )?),
        "DaemonSet" => workload(workloads::controller(
            workloads::ControllerKind::DaemonSet,
            &from_value(value)?,
            &root,
            rules,
        )?),
        _ => None,
    };
    workload.map(Object::from).ok_or_else(|| {
        ReadError::new(&root, Cause::Kind { found: kind.to_owned(), expected: KINDS })
    })
}

fn expect_kind(value: &Value, expected: &'static str) -> Result<(), ReadError> {
    match value.get("kind").and_then(Value::as_str) {
        Some(found) if found != expected => {
            let cause = Cause::Kind { found: found.to_owned(), expected };
            Err(ReadError::new(&Path::Root, cause))
        }
        _ => Ok(()),
    }
}

fn from_value<'v, T: Deserialize<'v>>(value: &'v Value) -> Result<T, ReadError> {
    // Paths are tracked only once something is known to be wrong.
    T::deserialize(value).or_else(|_| {
        serde_path_to_error::deserialize(value).map_err(|error| {
            let path = error.path().to_string();
            ReadError::at(path, None, Cause::Syntax(error.into_inner().to_string()))
        })
    })
}
