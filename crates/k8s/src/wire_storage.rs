//! The fields of claims, volumes and other storage objects that are read. See [`super::wire`].

use super::wire::{
    Amounts, LabelSelector, List, OwnerReference, QuantityText, Text, TextMap, Whole, wire,
};
use super::wire_pod::{AzureDisk, AzureFile, Cinder, Ebs, Gce, NodeSelector, Portworx, Vsphere};

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
}

wire! {
    struct PersistentVolume<'a> {
        metadata: Option<Metadata<'a>>,
        spec: Option<PersistentVolumeSpec<'a>>,
        status: Option<Phase<'a>>,
    }
}

wire! {
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
}

wire! {
    struct ClaimReference<'a> {
        namespace: Text<'a>,
        name: Text<'a>,
        uid: Text<'a>,
    }
}

wire! {
    struct VolumeNodeAffinity<'a> {
        required: Option<NodeSelector<'a>>,
    }
}

wire! {
    struct CsiSource<'a> {
        driver: Text<'a>,
        volume_handle: Text<'a>,
    }
}

wire! {
    struct Phase<'a> {
        phase: Text<'a>,
    }
}

wire! {
    struct PersistentVolumeClaim<'a> {
        metadata: Option<Metadata<'a>>,
        spec: Option<PersistentVolumeClaimSpec<'a>>,
        status: Option<Phase<'a>>,
    }
}

wire! {
    struct PersistentVolumeClaimSpec<'a> {
        access_modes: List<Text<'a>>,
        volume_mode: Text<'a>,
        storage_class_name: Option<Text<'a>>,
        resources: Option<super::wire::ResourceRequirements<'a>>,
        selector: Option<LabelSelector<'a>>,
        volume_name: Text<'a>,
    }
}

wire! {
    struct StorageClass<'a> {
        metadata: Option<Metadata<'a>>,
        provisioner: Text<'a>,
        volume_binding_mode: Text<'a>,
        allowed_topologies: List<TopologySelectorTerm<'a>>,
    }
}

wire! {
    struct TopologySelectorTerm<'a> {
        match_label_expressions: List<TopologySelectorRequirement<'a>>,
    }
}

wire! {
    struct TopologySelectorRequirement<'a> {
        key: Text<'a>,
        values: List<Text<'a>>,
    }
}

wire! {
    struct CsiNode<'a> {
        metadata: Option<Metadata<'a>>,
        spec: Option<CsiNodeSpec<'a>>,
    }
}

wire! {
    struct CsiNodeSpec<'a> {
        drivers: List<CsiNodeDriver<'a>>,
    }
}

wire! {
    struct CsiNodeDriver<'a> {
        name: Text<'a>,
        allocatable: Option<VolumeNodeResources<'a>>,
        topology_keys: List<Text<'a>>,
    }
}

wire! {
    struct VolumeNodeResources<'a> {
        count: Whole<u32>,
        #[serde(skip)]
        nothing: std::marker::PhantomData<&'a ()>,
    }
}

wire! {
    struct VolumeAttachment<'a> {
        metadata: Option<Metadata<'a>>,
        spec: Option<VolumeAttachmentSpec<'a>>,
    }
}

wire! {
    struct VolumeAttachmentSpec<'a> {
        attacher: Text<'a>,
        node_name: Text<'a>,
        source: Option<VolumeAttachmentSource<'a>>,
    }
}

wire! {
    struct VolumeAttachmentSource<'a> {
        persistent_volume_name: Text<'a>,
    }
}

wire! {
    struct CsiDriver<'a> {
        metadata: Option<Metadata<'a>>,
        spec: Option<CsiDriverSpec<'a>>,
    }
}

wire! {
    struct CsiDriverSpec<'a> {
        storage_capacity: Option<bool>,
        #[serde(skip)]
        nothing: std::marker::PhantomData<&'a ()>,
    }
}

wire! {
    struct CsiStorageCapacity<'a> {
        metadata: Option<Metadata<'a>>,
        storage_class_name: Text<'a>,
        node_topology: Option<LabelSelector<'a>>,
        capacity: Option<QuantityText<'a>>,
        maximum_volume_size: Option<QuantityText<'a>>,
    }
}
