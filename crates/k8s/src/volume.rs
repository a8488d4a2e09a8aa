//! Reads the volumes that matter to scheduling. All others (config maps, secrets, empty directories) are left out, so
//! that pods of one template stay equal.

use super::node::name;
use super::wire_pod as wire;
use portolan::model::VolumeSource;

/// Returns the volume, or `None` if scheduling does not read it.
pub(super) fn read(volume: &wire::Volume<'_>) -> Option<VolumeSource> {
    let other =
        |kind: &str, handle| Some(VolumeSource::Other { kind: kind.into(), handle: name(handle) });
    if let Some(v) = &volume.persistent_volume_claim {
        let read_only = v.read_only.unwrap_or(false);
        return Some(VolumeSource::PersistentVolumeClaim { claim: name(&v.claim_name), read_only });
    }
    if volume.ephemeral.is_some() {
        return Some(VolumeSource::Ephemeral { volume: name(&volume.name) });
    }
    if let Some(v) = &volume.gce_persistent_disk {
        return Some(VolumeSource::GcePersistentDisk {
            disk: name(&v.pd_name),
            partition: v.partition.unwrap_or(0),
            read_only: v.read_only.unwrap_or(false),
        });
    }
    if let Some(v) = &volume.aws_elastic_block_store {
        return Some(VolumeSource::AwsElasticBlockStore {
            volume: name(&v.volume_id),
            read_only: v.read_only.unwrap_or(false),
        });
    }
    if let Some(v) = &volume.rbd {
        let mut monitors: Vec<_> = v.monitors.iter().map(name).collect();
        monitors.sort();
        return Some(VolumeSource::Rbd {
            monitors: monitors.into(),
            // SetDefaults_RBDVolumeSource. A stored volume always names its pool.
            pool: if v.pool.is_empty() { "rbd".into() } else { name(&v.pool) },
            image: name(&v.image),
            read_only: v.read_only.unwrap_or(false),
        });
    }
    if let Some(v) = &volume.iscsi {
        let read_only = v.read_only.unwrap_or(false);
        return Some(VolumeSource::Iscsi { iqn: name(&v.iqn), read_only });
    }
    if let Some(v) = &volume.csi {
        return Some(VolumeSource::Csi { driver: name(&v.driver) });
    }
    if let Some(v) = &volume.image {
        return Some(VolumeSource::Image { reference: name(&v.reference) });
    }
    if let Some(v) = &volume.azure_disk {
        return other("azureDisk", &v.disk_uri);
    }
    if let Some(v) = &volume.azure_file {
        return other("azureFile", &v.share_name);
    }
    if let Some(v) = &volume.cinder {
        return other("cinder", &v.volume_id);
    }
    if let Some(v) = &volume.vsphere_volume {
        return other("vsphereVolume", &v.volume_path);
    }
    volume.portworx_volume.as_ref().and_then(|v| other("portworxVolume", &v.volume_id))
}
