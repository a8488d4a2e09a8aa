//! In-tree volume plugins and the CSI drivers that have replaced them (k8s.io/csi-translation-lib).

use super::{Name, VolumeSource};

/// An in-tree volume plugin that a CSI driver has replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InTreePlugin {
    /// The name, which storage classes use as their provisioner.
    pub name: &'static str,
    /// The CSI driver.
    pub driver: &'static str,
    /// The name of the volume field in the Kubernetes API.
    field: &'static str,
}

const PLUGINS: [InTreePlugin; 7] = [
    plugin("kubernetes.io/aws-ebs", "ebs.csi.aws.com", "awsElasticBlockStore"),
    plugin("kubernetes.io/gce-pd", "pd.csi.storage.gke.io", "gcePersistentDisk"),
    plugin("kubernetes.io/cinder", "cinder.csi.openstack.org", "cinder"),
    plugin("kubernetes.io/azure-disk", "disk.csi.azure.com", "azureDisk"),
    plugin("kubernetes.io/azure-file", "file.csi.azure.com", "azureFile"),
    plugin("kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com", "vsphereVolume"),
    plugin("kubernetes.io/portworx-volume", "pxd.portworx.com", "portworxVolume"),
];

const fn plugin(name: &'static str, driver: &'static str, field: &'static str) -> InTreePlugin {
    InTreePlugin { name, driver, field }
}

impl InTreePlugin {
    /// Returns the plugin called `name`, or `None` if no CSI driver has replaced it.
    #[must_use]
    pub fn of_name(name: &str) -> Option<InTreePlugin> {
        PLUGINS.iter().find(|plugin| plugin.name == name).copied()
    }

    /// Returns `true` if the plugin is migrated on every node, without an annotation: Portworx's migration cannot be
    /// turned off (1.36).
    #[must_use]
    pub(crate) fn is_always_migrated(self) -> bool {
        self.name == "kubernetes.io/portworx-volume"
    }
}

impl VolumeSource {
    /// Returns the volume's in-tree plugin and the volume's handle in the CSI driver, or `None` if the volume is not
    /// migrated. `zones` is the zone label of a persistent volume, or empty without one.
    ///
    /// An Azure file share is identified by its name alone, without its account.
    #[must_use]
    pub(crate) fn migration(&self, zones: &str) -> Option<(InTreePlugin, Name)> {
        let of_field = |field: &str| PLUGINS.iter().find(|plugin| plugin.field == field).copied();
        match self {
            VolumeSource::AwsElasticBlockStore { volume, .. } => {
                // `aws://zone/vol-1` and `vol-1` denote the same volume.
                let handle = volume.rsplit('/').next().unwrap_or(volume);
                Some((of_field("awsElasticBlockStore")?, handle.into()))
            }
            VolumeSource::GcePersistentDisk { disk, .. } => {
                Some((of_field("gcePersistentDisk")?, gce_handle(disk, zones).into()))
            }
            VolumeSource::Other { kind, handle } => Some((of_field(kind)?, handle.clone())),
            _ => None,
        }
    }
}

/// Returns the handle of a zonal disk or, if there are several zones, of a regional disk (plugins/gce_pd.go).
fn gce_handle(disk: &str, zones: &str) -> String {
    let place = match zones.split_once("__") {
        None if zones.is_empty() => "zones/UNSPECIFIED".to_owned(),
        None => format!("zones/{zones}"),
        Some((zone, _)) => {
            let region = zone.rsplit_once('-').map_or(zone, |(region, _)| region);
            format!("regions/{region}")
        }
    };
    format!("projects/UNSPECIFIED/{place}/disks/{disk}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn other(kind: &str, handle: &str) -> VolumeSource {
        VolumeSource::Other { kind: kind.into(), handle: handle.into() }
    }

    fn disk(name: &str) -> VolumeSource {
        VolumeSource::GcePersistentDisk { disk: name.into(), partition: 0, read_only: false }
    }

    #[test]
    fn in_tree_volumes_are_translated_to_csi_handles() {
        let ebs = VolumeSource::AwsElasticBlockStore {
            volume: "aws://eu-1a/vol-7".into(),
            read_only: false,
        };
        let handle_of = |source: &VolumeSource, zones| {
            source.migration(zones).map(|(plugin, handle)| (plugin.driver, handle.to_string()))
        };
        assert_eq!(handle_of(&ebs, ""), Some(("ebs.csi.aws.com", "vol-7".into())));
        assert_eq!(
            handle_of(&disk("d"), "eu-west1-b"),
            Some(("pd.csi.storage.gke.io", "projects/UNSPECIFIED/zones/eu-west1-b/disks/d".into()))
        );
        assert_eq!(
            handle_of(&disk("d"), "eu-west1-b__eu-west1-c").map(|(_, handle)| handle),
            Some("projects/UNSPECIFIED/regions/eu-west1/disks/d".into())
        );
        assert_eq!(
            handle_of(&other("cinder", "c"), ""),
            Some(("cinder.csi.openstack.org", "c".into()))
        );
        assert_eq!(handle_of(&other("nfs", "n"), ""), None);
    }
}
