//! The volumes of pods. See [`super`].

use k8s_openapi::api::core::v1 as api;

use super::meta::{optional, text};
use crate::wire::{List, Whole};
use crate::wire_pod as wire;

pub(super) fn volume(volume: &api::Volume) -> wire::Volume<'_> {
    wire::Volume {
        name: text(&volume.name),
        persistent_volume_claim: volume.persistent_volume_claim.as_ref().map(|claim| {
            wire::ClaimVolume { claim_name: text(&claim.claim_name), read_only: claim.read_only }
        }),
        ephemeral: volume.ephemeral.as_ref().map(|_| wire::EphemeralVolume::default()),
        empty_dir: volume.empty_dir.as_ref().map(|_| wire::Empty::default()),
        gce_persistent_disk: volume.gce_persistent_disk.as_ref().map(|disk| wire::Gce {
            pd_name: text(&disk.pd_name),
            partition: Whole(disk.partition),
            read_only: disk.read_only,
        }),
        aws_elastic_block_store: volume.aws_elastic_block_store.as_ref().map(|store| wire::Ebs {
            volume_id: text(&store.volume_id),
            read_only: store.read_only,
        }),
        rbd: volume.rbd.as_ref().map(|rbd| wire::Rbd {
            monitors: List(rbd.monitors.iter().map(|monitor| text(monitor)).collect()),
            pool: optional(&rbd.pool),
            image: text(&rbd.image),
            read_only: rbd.read_only,
        }),
        iscsi: (volume.iscsi.as_ref())
            .map(|iscsi| wire::Iscsi { iqn: text(&iscsi.iqn), read_only: iscsi.read_only }),
        csi: volume.csi.as_ref().map(|csi| wire::Csi { driver: text(&csi.driver) }),
        image: (volume.image.as_ref())
            .map(|image| wire::ImageVolume { reference: optional(&image.reference) }),
        azure_disk: (volume.azure_disk.as_ref())
            .map(|disk| wire::AzureDisk { disk_uri: text(&disk.disk_uri) }),
        azure_file: (volume.azure_file.as_ref())
            .map(|file| wire::AzureFile { share_name: text(&file.share_name) }),
        cinder: (volume.cinder.as_ref())
            .map(|cinder| wire::Cinder { volume_id: text(&cinder.volume_id) }),
        vsphere_volume: (volume.vsphere_volume.as_ref())
            .map(|disk| wire::Vsphere { volume_path: text(&disk.volume_path) }),
        portworx_volume: (volume.portworx_volume.as_ref())
            .map(|found| wire::Portworx { volume_id: text(&found.volume_id) }),
    }
}
