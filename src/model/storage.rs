//! Claims, volumes, and what decides where they can be.

use super::{LabelSelector, Labels, Name, NodeSelector, VolumeSource};

/// A way in which a volume can be mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum AccessMode {
    /// By one node, to read and write.
    ReadWriteOnce,
    /// By many nodes, to read.
    ReadOnlyMany,
    /// By many nodes, to read and write.
    ReadWriteMany,
    /// By one pod of the cluster, to read and write.
    ReadWriteOncePod,
}

/// Whether a volume is mounted or handed through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum VolumeMode {
    /// With a file system.
    #[default]
    Filesystem,
    /// As a block device.
    Block,
}

/// A persistent volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct PersistentVolume {
    /// Name.
    pub name: Name,
    /// Labels.
    pub labels: Labels,
    /// `spec.capacity.storage`, in bytes.
    pub capacity: i64,
    /// `spec.accessModes`.
    pub access_modes: Box<[AccessMode]>,
    /// `spec.volumeMode`.
    pub volume_mode: VolumeMode,
    /// The name of its class; empty for none.
    pub class: Name,
    /// `spec.claimRef`.
    pub claim: Option<ClaimReference>,
    /// The nodes from which it can be reached; none is all.
    pub node_affinity: Option<NodeSelector>,
    /// The CSI driver and the volume's handle in it.
    pub csi: Option<(Name, Name)>,
    /// What it is made of, where a CSI driver took that over from Kubernetes
    /// ([`VolumeSource::migration`]).
    pub in_tree: Option<VolumeSource>,
    /// Whether its phase is Available.
    pub is_available: bool,
    /// Whether it is being deleted.
    pub is_deleting: bool,
}

/// The claim that a volume is bound to, or kept for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct ClaimReference {
    /// Namespace.
    pub namespace: Name,
    /// Name.
    pub name: Name,
    /// Uid; empty where the volume is kept for any claim of the name.
    pub uid: Name,
}

/// A claim to a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct PersistentVolumeClaim {
    /// Namespace.
    pub namespace: Name,
    /// Name.
    pub name: Name,
    /// Uid.
    pub uid: Name,
    /// The uid of the pod that owns it as its controller; empty for none.
    pub owner: Name,
    /// `spec.resources.requests.storage`, in bytes.
    pub request: i64,
    /// `spec.accessModes`.
    pub access_modes: Box<[AccessMode]>,
    /// `spec.volumeMode`.
    pub volume_mode: VolumeMode,
    /// The name of its class; empty for none.
    pub class: Name,
    /// Which volumes may be bound.
    pub selector: Option<LabelSelector>,
    /// `spec.volumeName`; empty for none.
    pub volume: Name,
    /// Whether the volume is bound to it for good.
    pub is_bound: bool,
    /// The node for which a volume is being made; empty for none.
    pub selected_node: Name,
    /// Whether its phase is Lost: its volume is gone.
    pub is_lost: bool,
    /// Whether it is being deleted.
    pub is_deleting: bool,
}

/// When a claim is bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum VolumeBindingMode {
    /// At once.
    #[default]
    Immediate,
    /// When a pod that uses it is placed.
    WaitForFirstConsumer,
}

/// A class of volumes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct StorageClass {
    /// Name.
    pub name: Name,
    /// What makes its volumes; `kubernetes.io/no-provisioner` makes none.
    pub provisioner: Name,
    /// `volumeBindingMode`.
    pub binding_mode: VolumeBindingMode,
    /// Nodes for which volumes can be made; no term is all nodes.
    pub allowed_topologies: NodeSelector,
}

/// The CSI drivers of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct CsiNode {
    /// The node's name.
    pub name: Name,
    /// Its drivers.
    pub drivers: Box<[CsiNodeDriver]>,
    /// The in-tree plugins whose volumes drivers serve here: annotation
    /// `storage.alpha.kubernetes.io/migrated-plugins`.
    pub migrated: Box<[Name]>,
}

/// A CSI driver on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct CsiNodeDriver {
    /// The driver.
    pub name: Name,
    /// How many volumes of it the node can have, if that is limited.
    pub limit: Option<u32>,
    /// The node's labels that say from where a volume made for it is reached.
    pub topology_keys: Box<[Name]>,
}

/// A volume that is attached to a node, or is to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct VolumeAttachment {
    /// Name.
    pub name: Name,
    /// The CSI driver.
    pub attacher: Name,
    /// The node.
    pub node: Name,
    /// The persistent volume; empty for an inline one.
    pub volume: Name,
}

/// A CSI driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct CsiDriver {
    /// Name.
    pub name: Name,
    /// Whether it tells by [`CsiStorageCapacity`] what it can make.
    pub storage_capacity: bool,
}

/// How much a CSI driver can make where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct CsiStorageCapacity {
    /// Namespace.
    pub namespace: Name,
    /// Name.
    pub name: Name,
    /// The class.
    pub class: Name,
    /// For which nodes; `Nothing` where absent.
    pub nodes: LabelSelector,
    /// The largest volume that can be made: `maximumVolumeSize`, or else
    /// `capacity`, in bytes.
    pub largest: Option<i64>,
}
