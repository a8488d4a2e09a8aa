//! Reads claims, volumes and the other storage objects that restrict the nodes of a volume.

use super::error::{Path, ReadError};
use super::node::{labels, name, quantities, quantity};
use super::objects::named;
use super::selector::{label_selector, node_selector};
use super::wire::{List, QuantityText, Text};
use super::{volume, wire_pod, wire_storage as wire};
use portolan::model::{
    AccessMode, ClaimReference, CsiDriver, CsiNode, CsiNodeDriver, CsiStorageCapacity, Name,
    NodeSelector, NodeSelectorTerm, Object, Operator, PersistentVolume, PersistentVolumeClaim,
    Quantity, Requirement, StorageClass, VolumeAttachment, VolumeBindingMode, VolumeMode,
    VolumeSource,
};

type Meta<'a> = wire::Metadata<'a>;

/// Returns the namespace, which defaults to `default`.
fn namespace(meta: &Meta<'_>) -> Name {
    if meta.namespace.is_empty() { "default".into() } else { name(&meta.namespace) }
}

fn access_modes(modes: &List<Text<'_>>, path: &Path<'_>) -> Result<Box<[AccessMode]>, ReadError> {
    let path = path.key("accessModes");
    let one = |text: &Text<'_>| match &**text {
        "ReadWriteOnce" => Ok(AccessMode::ReadWriteOnce),
        "ReadOnlyMany" => Ok(AccessMode::ReadOnlyMany),
        "ReadWriteMany" => Ok(AccessMode::ReadWriteMany),
        "ReadWriteOncePod" => Ok(AccessMode::ReadWriteOncePod),
        other => Err(ReadError::value(&path, other, "an access mode")),
    };
    modes.iter().map(one).collect()
}

fn volume_mode(text: &Text<'_>, path: &Path<'_>) -> Result<VolumeMode, ReadError> {
    match &**text {
        "" | "Filesystem" => Ok(VolumeMode::Filesystem),
        "Block" => Ok(VolumeMode::Block),
        other => Err(ReadError::value(&path.key("volumeMode"), other, "Filesystem or Block")),
    }
}

/// Parses a number of bytes, rounded up.
fn bytes(text: &Option<QuantityText<'_>>, path: &Path<'_>) -> Result<Option<i64>, ReadError> {
    text.as_ref().map(|text| quantity(text, path).map(Quantity::value)).transpose()
}

/// Returns the source of a volume if it is an in-tree plugin that was migrated to a CSI driver.
fn in_tree(spec: &wire::PersistentVolumeSpec<'_>) -> Option<VolumeSource> {
    volume::read(&wire_pod::Volume {
        gce_persistent_disk: spec.gce_persistent_disk.clone(),
        aws_elastic_block_store: spec.aws_elastic_block_store.clone(),
        azure_disk: spec.azure_disk.clone(),
        azure_file: spec.azure_file.clone(),
        cinder: spec.cinder.clone(),
        vsphere_volume: spec.vsphere_volume.clone(),
        portworx_volume: spec.portworx_volume.clone(),
        ..wire_pod::Volume::default()
    })
}

pub(super) fn persistent_volume(
    wire: &wire::PersistentVolume<'_>,
    path: &Path<'_>,
) -> Result<Object, ReadError> {
    let meta = wire.metadata.clone().unwrap_or_default();
    let spec = wire.spec.clone().unwrap_or_default();
    let path_spec = path.key("spec");
    let capacity = quantities(&spec.capacity, &path_spec.key("capacity"))?;
    Ok(Object::from(PersistentVolume {
        name: named(&meta.name, path)?,
        labels: labels(&meta.labels),
        capacity: capacity.get("storage").map_or(0, Quantity::value),
        access_modes: access_modes(&spec.access_modes, &path_spec)?,
        volume_mode: volume_mode(&spec.volume_mode, &path_spec)?,
        class: name(&spec.storage_class_name),
        claim: spec.claim_ref.as_ref().map(|claim| ClaimReference {
            namespace: name(&claim.namespace),
            name: name(&claim.name),
            uid: name(&claim.uid),
        }),
        node_affinity: spec
            .node_affinity
            .as_ref()
            .and_then(|affinity| affinity.required.as_ref())
            .map(node_selector),
        csi: spec.csi.as_ref().map(|csi| (name(&csi.driver), name(&csi.volume_handle))),
        in_tree: in_tree(&spec),
        is_available: wire.status.as_ref().is_some_and(|status| &*status.phase == "Available"),
        is_deleting: !meta.deletion_timestamp.is_empty(),
    }))
}

/// Returns whether a claim names a storage class, which may be empty, or a volume. Others get the default class.
pub(super) fn has_class(claim: &wire::PersistentVolumeClaim<'_>) -> bool {
    let annotations = claim.metadata.iter().flat_map(|meta| meta.annotations.iter());
    let mut keys = annotations.map(|(key, _)| &**key);
    let of_spec = |spec: &wire::PersistentVolumeClaimSpec<'_>| {
        spec.storage_class_name.is_some() || !spec.volume_name.is_empty()
    };
    claim.spec.as_ref().is_some_and(of_spec)
        || keys.any(|key| key == "volume.beta.kubernetes.io/storage-class")
}

/// Returns whether claims without a class get this one.
pub(super) fn is_default(class: &wire::StorageClass<'_>) -> bool {
    const KEYS: [&str; 2] = [
        "storageclass.kubernetes.io/is-default-class",
        "storageclass.beta.kubernetes.io/is-default-class",
    ];
    let mut annotations = class.metadata.iter().flat_map(|meta| meta.annotations.iter());
    annotations.any(|(key, value)| KEYS.contains(&&**key) && &**value == "true")
}

/// A claim that is created for each pod of a template. Its name is that of the template, or of the volume.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ClaimTemplate {
    pub(super) claim: PersistentVolumeClaim,
    /// Whether the claim gets the default storage class.
    pub(super) is_classless: bool,
}

impl ClaimTemplate {
    pub(super) fn read(
        wire: &wire::PersistentVolumeClaim<'_>,
        path: &Path<'_>,
    ) -> Result<ClaimTemplate, ReadError> {
        Ok(ClaimTemplate { claim: claim(wire, path)?, is_classless: !has_class(wire) })
    }

    /// Reads the template of a generic ephemeral volume, or returns `None` for a volume of another kind.
    pub(super) fn of_volume(
        volume: &wire_pod::Volume<'_>,
        path: &Path<'_>,
    ) -> Option<Result<ClaimTemplate, ReadError>> {
        let template = volume.ephemeral.as_ref()?.volume_claim_template.as_ref()?;
        let metadata = template.metadata.clone().unwrap_or_default();
        let metadata = Some(Meta { name: volume.name.clone(), ..metadata });
        let named = wire::PersistentVolumeClaim { metadata, ..template.clone() };
        Some(ClaimTemplate::read(&named, &path.key("ephemeral").key("volumeClaimTemplate")))
    }

    /// Returns the claim of a generic ephemeral volume of a pod (controller/volume/ephemeral): it is named
    /// `<pod>-<volume>`, and the pod owns it.
    pub(super) fn of_pod(&self, namespace: &Name, pod: &str, uid: &str) -> PersistentVolumeClaim {
        PersistentVolumeClaim {
            namespace: namespace.clone(),
            name: format!("{pod}-{}", self.claim.name).into(),
            owner: uid.into(),
            ..self.claim.clone()
        }
    }
}

pub(super) fn claim(
    wire: &wire::PersistentVolumeClaim<'_>,
    path: &Path<'_>,
) -> Result<PersistentVolumeClaim, ReadError> {
    let meta = wire.metadata.clone().unwrap_or_default();
    let spec = wire.spec.clone().unwrap_or_default();
    let path_spec = path.key("spec");
    let annotation = |key: &str| {
        meta.annotations.iter().find(|(known, _)| **known == *key).map(|(_, value)| value)
    };
    let requests = spec.resources.unwrap_or_default().requests;
    let requests = quantities(&requests, &path_spec.key("resources").key("requests"))?;
    let class = annotation("volume.beta.kubernetes.io/storage-class");
    let owner = meta.owner_references.iter().find(|owner| owner.controller == Some(true));
    let selector = spec.selector.as_ref();
    Ok(PersistentVolumeClaim {
        namespace: namespace(&meta),
        name: named(&meta.name, path)?,
        uid: name(&meta.uid),
        owner: owner.map(|owner| name(&owner.uid)).unwrap_or_default(),
        request: requests.get("storage").map_or(0, Quantity::value),
        access_modes: access_modes(&spec.access_modes, &path_spec)?,
        volume_mode: volume_mode(&spec.volume_mode, &path_spec)?,
        class: class.or(spec.storage_class_name.as_ref()).map(name).unwrap_or_default(),
        selector: match selector {
            None => None,
            some => Some(label_selector(some, &path_spec.key("selector"))?),
        },
        volume: name(&spec.volume_name),
        is_bound: !spec.volume_name.is_empty()
            && annotation("pv.kubernetes.io/bind-completed").is_some(),
        selected_node: annotation("volume.kubernetes.io/selected-node")
            .map(name)
            .unwrap_or_default(),
        is_lost: wire.status.as_ref().is_some_and(|status| &*status.phase == "Lost"),
        is_deleting: !meta.deletion_timestamp.is_empty(),
    })
}

pub(super) fn storage_class(
    wire: &wire::StorageClass<'_>,
    path: &Path<'_>,
) -> Result<Object, ReadError> {
    let meta = wire.metadata.clone().unwrap_or_default();
    let binding_mode = match &*wire.volume_binding_mode {
        "" | "Immediate" => VolumeBindingMode::Immediate,
        "WaitForFirstConsumer" => VolumeBindingMode::WaitForFirstConsumer,
        other => {
            let path = path.key("volumeBindingMode");
            return Err(ReadError::value(&path, other, "Immediate or WaitForFirstConsumer"));
        }
    };
    let requirement = |wire: &wire::TopologySelectorRequirement<'_>| {
        Requirement::new(name(&wire.key), Operator::In, wire.values.iter().map(name))
    };
    let term = |wire: &wire::TopologySelectorTerm<'_>| NodeSelectorTerm {
        match_expressions: wire.match_label_expressions.iter().map(requirement).collect(),
        ..NodeSelectorTerm::default()
    };
    Ok(Object::from(StorageClass {
        name: named(&meta.name, path)?,
        provisioner: name(&wire.provisioner),
        binding_mode,
        allowed_topologies: NodeSelector {
            terms: wire.allowed_topologies.iter().map(term).collect(),
        },
    }))
}

pub(super) fn csi_node(wire: &wire::CsiNode<'_>, path: &Path<'_>) -> Result<Object, ReadError> {
    let meta = wire.metadata.clone().unwrap_or_default();
    let spec = wire.spec.clone().unwrap_or_default();
    let drivers = spec.drivers.iter().map(|driver| CsiNodeDriver {
        name: name(&driver.name),
        limit: driver.allocatable.as_ref().and_then(|allocatable| *allocatable.count),
        topology_keys: driver.topology_keys.iter().map(name).collect(),
    });
    let key = "storage.alpha.kubernetes.io/migrated-plugins";
    let migrated = meta.annotations.iter().find(|(known, _)| **known == *key);
    let migrated = migrated.iter().flat_map(|(_, plugins)| plugins.split(','));
    Ok(Object::from(CsiNode {
        name: named(&meta.name, path)?,
        drivers: drivers.collect(),
        migrated: migrated.filter(|plugin| !plugin.is_empty()).map(Name::from).collect(),
    }))
}

pub(super) fn volume_attachment(
    wire: &wire::VolumeAttachment<'_>,
    path: &Path<'_>,
) -> Result<Object, ReadError> {
    let meta = wire.metadata.clone().unwrap_or_default();
    let spec = wire.spec.clone().unwrap_or_default();
    Ok(Object::from(VolumeAttachment {
        name: named(&meta.name, path)?,
        attacher: name(&spec.attacher),
        node: name(&spec.node_name),
        volume: name(&spec.source.unwrap_or_default().persistent_volume_name),
    }))
}

pub(super) fn csi_driver(wire: &wire::CsiDriver<'_>, path: &Path<'_>) -> Result<Object, ReadError> {
    let meta = wire.metadata.clone().unwrap_or_default();
    let storage_capacity = wire.spec.as_ref().and_then(|spec| spec.storage_capacity);
    Ok(Object::from(CsiDriver {
        name: named(&meta.name, path)?,
        storage_capacity: storage_capacity.unwrap_or(false),
    }))
}

pub(super) fn csi_storage_capacity(
    wire: &wire::CsiStorageCapacity<'_>,
    path: &Path<'_>,
) -> Result<Object, ReadError> {
    let meta = wire.metadata.clone().unwrap_or_default();
    let largest = bytes(&wire.maximum_volume_size, &path.key("maximumVolumeSize"))?;
    let capacity = bytes(&wire.capacity, &path.key("capacity"))?;
    Ok(Object::from(CsiStorageCapacity {
        namespace: namespace(&meta),
        name: named(&meta.name, path)?,
        class: name(&wire.storage_class_name),
        nodes: label_selector(wire.node_topology.as_ref(), &path.key("nodeTopology"))?,
        largest: largest.or(capacity),
    }))
}
