//! Persistent volumes, claims, and the objects that determine on which nodes volumes are accessible.

use super::{LabelSelector, Labels, Name, NodeSelector, VolumeSource};

/// An access mode of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum AccessMode {
    /// Read-write by one node.
    ReadWriteOnce,
    /// Read-only by many nodes.
    ReadOnlyMany,
    /// Read-write by many nodes.
    ReadWriteMany,
    /// Read-write by one pod in the cluster.
    ReadWriteOncePod,
}

/// How a volume is presented to a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum VolumeMode {
    /// Mounted as a file system.
    #[default]
    Filesystem,
    /// Passed through as a block device.
    Block,
}

/// A persistent volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct PersistentVolume {
    /// The name.
    pub name: Name,
    /// The labels.
    pub labels: Labels,
    /// `spec.capacity.storage`, in bytes.
    pub capacity: i64,
    /// `spec.accessModes`.
    pub access_modes: Box<[AccessMode]>,
    /// `spec.volumeMode`.
    pub volume_mode: VolumeMode,
    /// The name of the storage class; empty if there is none.
    pub class: Name,
    /// `spec.claimRef`.
    pub claim: Option<ClaimReference>,
    /// The nodes from which the volume is accessible; `None` means all nodes.
    pub node_affinity: Option<NodeSelector>,
    /// The CSI driver and the volume's handle in the driver.
    pub csi: Option<(Name, Name)>,
    /// The in-tree source, if a CSI driver has taken over its plugin (`VolumeSource::migration`).
    pub in_tree: Option<VolumeSource>,
    /// Whether the phase is `Available`.
    pub is_available: bool,
    /// Whether the object is being deleted.
    pub is_deleting: bool,
}

/// The claim that a volume is bound to or reserved for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct ClaimReference {
    /// The namespace.
    pub namespace: Name,
    /// The name.
    pub name: Name,
    /// The uid; empty if the volume is reserved for any claim of this name.
    pub uid: Name,
}

/// A persistent volume claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct PersistentVolumeClaim {
    /// The namespace.
    pub namespace: Name,
    /// The name.
    pub name: Name,
    /// The uid.
    pub uid: Name,
    /// The uid of the pod that controls the claim; empty if there is none.
    pub owner: Name,
    /// `spec.resources.requests.storage`, in bytes.
    pub request: i64,
    /// `spec.accessModes`.
    pub access_modes: Box<[AccessMode]>,
    /// `spec.volumeMode`.
    pub volume_mode: VolumeMode,
    /// The name of the storage class; empty if there is none.
    pub class: Name,
    /// Selects the volumes that may be bound.
    pub selector: Option<LabelSelector>,
    /// `spec.volumeName`; empty if unset.
    pub volume: Name,
    /// Whether binding to the volume is complete.
    pub is_bound: bool,
    /// The node for which a volume is being provisioned; empty if there is none.
    pub selected_node: Name,
    /// Whether the phase is `Lost`: the claim's volume no longer exists.
    pub is_lost: bool,
    /// Whether the object is being deleted.
    pub is_deleting: bool,
}

/// When a claim is bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum VolumeBindingMode {
    /// As soon as the claim is created.
    #[default]
    Immediate,
    /// When the first pod that uses the claim is scheduled.
    WaitForFirstConsumer,
}

/// A storage class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct StorageClass {
    /// The name.
    pub name: Name,
    /// The provisioner; `kubernetes.io/no-provisioner` provisions no volumes.
    pub provisioner: Name,
    /// `volumeBindingMode`.
    pub binding_mode: VolumeBindingMode,
    /// The nodes for which volumes can be provisioned; a selector without terms means all nodes.
    pub allowed_topologies: NodeSelector,
}

/// The CSI drivers installed on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct CsiNode {
    /// The name of the node.
    pub name: Name,
    /// The drivers.
    pub drivers: Box<[CsiNodeDriver]>,
    /// The in-tree plugins whose volumes are served by CSI drivers on this node (annotation
    /// `storage.alpha.kubernetes.io/migrated-plugins`).
    pub migrated: Box<[Name]>,
}

/// A CSI driver on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct CsiNodeDriver {
    /// The name of the driver.
    pub name: Name,
    /// The maximum number of the driver's volumes on the node, or `None` if unlimited.
    pub limit: Option<u32>,
    /// The node labels that define the topology from which a volume provisioned for the node is accessible.
    pub topology_keys: Box<[Name]>,
}

/// The attachment, actual or requested, of a volume to a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct VolumeAttachment {
    /// The name.
    pub name: Name,
    /// The CSI driver.
    pub attacher: Name,
    /// The node.
    pub node: Name,
    /// The persistent volume; empty for an inline volume.
    pub volume: Name,
}

/// A CSI driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct CsiDriver {
    /// The name.
    pub name: Name,
    /// Whether the driver publishes its capacity as [`CsiStorageCapacity`] objects.
    pub storage_capacity: bool,
}

/// The capacity that a CSI driver can provision in one topology segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct CsiStorageCapacity {
    /// The namespace.
    pub namespace: Name,
    /// The name.
    pub name: Name,
    /// The name of the storage class.
    pub class: Name,
    /// The nodes in the segment; `Nothing` if absent.
    pub nodes: LabelSelector,
    /// The size in bytes of the largest volume that can be provisioned: `maximumVolumeSize` if present, otherwise
    /// `capacity`.
    pub largest: Option<i64>,
}
