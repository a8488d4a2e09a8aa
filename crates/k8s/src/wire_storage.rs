//! The fields of claims, volumes and other storage objects that are read. See [`super::wire`].

use super::wire::{
    Amounts, LabelSelector, List, OwnerReference, QuantityText, Text, TextMap, Whole, objects, wire,
};
use super::wire_pod::{AzureDisk, AzureFile, Cinder, Ebs, Gce, NodeSelector, Portworx, Vsphere};

objects! {
    PersistentVolume { spec: PersistentVolumeSpec, status: Phase }
    PersistentVolumeClaim { spec: PersistentVolumeClaimSpec, status: Phase }
    CsiNode { spec: CsiNodeSpec }
    VolumeAttachment { spec: VolumeAttachmentSpec }
    CsiDriver { spec: CsiDriverSpec }
}

wire! {
    /// Metadata with the annotations, which other kinds do not need.
    struct Metadata<'a> {
        name: Text<'a>,
        namespace: Text<'a>,
        uid: Text<'a>,
        labels: TextMap<'a>,
        annotations: TextMap<'a>,
        creation_timestamp: Text<'a>,
        deletion_timestamp: Text<'a>,
        owner_references: List<OwnerReference<'a>>,
    }

    struct PersistentVolumeSpec<'a> {
        capacity: Amounts<'a>,
        access_modes: List<Text<'a>>,
        volume_mode: Text<'a>,
        storage_class_name: Text<'a>,
        claim_ref: Option<ClaimReference<'a>>,
        node_affinity: Option<VolumeNodeAffinity<'a>>,
        csi: Option<CsiSource<'a>>,
        gce_persistent_disk: Option<Gce<'a>>,
        aws_elastic_block_store: Option<Ebs<'a>>,
        azure_disk: Option<AzureDisk<'a>>,
        azure_file: Option<AzureFile<'a>>,
        cinder: Option<Cinder<'a>>,
        vsphere_volume: Option<Vsphere<'a>>,
        portworx_volume: Option<Portworx<'a>>,
    }

    struct ClaimReference<'a> {
        namespace: Text<'a>,
        name: Text<'a>,
        uid: Text<'a>,
    }

    struct VolumeNodeAffinity<'a> {
        required: Option<NodeSelector<'a>>,
    }

    struct CsiSource<'a> {
        driver: Text<'a>,
        volume_handle: Text<'a>,
    }

    struct Phase<'a> {
        phase: Text<'a>,
    }

    struct PersistentVolumeClaimSpec<'a> {
        access_modes: List<Text<'a>>,
        volume_mode: Text<'a>,
        storage_class_name: Option<Text<'a>>,
        resources: Option<super::wire::ResourceRequirements<'a>>,
        selector: Option<LabelSelector<'a>>,
        volume_name: Text<'a>,
    }

    struct StorageClass<'a> {
        metadata: Option<Metadata<'a>>,
        provisioner: Text<'a>,
        volume_binding_mode: Text<'a>,
        allowed_topologies: List<TopologySelectorTerm<'a>>,
    }

    struct TopologySelectorTerm<'a> {
        match_label_expressions: List<TopologySelectorRequirement<'a>>,
    }

    struct TopologySelectorRequirement<'a> {
        key: Text<'a>,
        values: List<Text<'a>>,
    }

    struct CsiNodeSpec<'a> {
        drivers: List<CsiNodeDriver<'a>>,
    }

    struct CsiNodeDriver<'a> {
        name: Text<'a>,
        allocatable: Option<VolumeNodeResources<'a>>,
        topology_keys: List<Text<'a>>,
    }

    struct VolumeNodeResources<'a> {
        count: Whole<u32>,
        #[serde(skip)]
        nothing: std::marker::PhantomData<&'a ()>,
    }

    struct VolumeAttachmentSpec<'a> {
        attacher: Text<'a>,
        node_name: Text<'a>,
        source: Option<VolumeAttachmentSource<'a>>,
    }

    struct VolumeAttachmentSource<'a> {
        persistent_volume_name: Text<'a>,
    }

    struct CsiDriverSpec<'a> {
        storage_capacity: Option<bool>,
        #[serde(skip)]
        nothing: std::marker::PhantomData<&'a ()>,
    }

    struct CsiStorageCapacity<'a> {
        metadata: Option<Metadata<'a>>,
        storage_class_name: Text<'a>,
        node_topology: Option<LabelSelector<'a>>,
        capacity: Option<QuantityText<'a>>,
        maximum_volume_size: Option<QuantityText<'a>>,
    }
}
