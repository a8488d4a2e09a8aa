//! Volumes of Kubernetes' own plugins, which CSI drivers took over
//! (k8s.io/csi-translation-lib).

use super::{Name, VolumeSource};

/// A volume plugin of Kubernetes that a CSI driver stands in for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InTreePlugin {
    /// Its name, which classes have as their provisioner.
    pub name: &'static str,
    /// The CSI driver.
    pub driver: &'static str,
    /// A volume's field in the Kubernetes API.
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
    /// The plugin of this name, if a driver took it over.
    #[must_use]
    pub fn of_name(name: &str) -> Option<InTreePlugin> {
        PLUGINS.iter().find(|plugin| plugin.name == name).copied()
    }

    /// Whether a node needs no annotation for it: Portworx' migration cannot be
    /// turned off (1.36).
    #[must_use]
    pub fn is_always_migrated(self) -> bool {
        self.name == "kubernetes.io/portworx-volume"
    }
}

impl VolumeSource {
    /// The in-tree plugin that the volume was of, and its handle in the CSI
    /// driver. `zones` are those of a persistent volume: its zone label, empty
    /// without one.
    ///
    /// An Azure file share is told by its name alone, not by its account.
    #[must_use]
    pub fn migration(&self, zones: &str) -> Option<(InTreePlugin, Name)> {
        let of_field = |field: &str| PLUGINS.iter().find(|plugin| plugin.field == field).copied();
        match self {
            VolumeSource::AwsElasticBlockStore { volume, .. } => {
                // aws://zone/vol-1 and vol-1 are one volume.
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

/// A disk of one zone, or, with several, of their region
/// (plugins/gce_pd.go).
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
    fn volumes_become_their_drivers() {
        let ebs = VolumeSource::AwsElasticBlockStore {
            volume: "aws://eu-1a/vol-7".into(),
            read_only: false,
        };
        let of = |source: &VolumeSource, zones| {
            source.migration(zones).map(|(plugin, handle)| (plugin.driver, handle.to_string()))
        };
        assert_eq!(of(&ebs, ""), Some(("ebs.csi.aws.com", "vol-7".into())));
        assert_eq!(
            of(&disk("d"), "eu-west1-b"),
            Some(("pd.csi.storage.gke.io", "projects/UNSPECIFIED/zones/eu-west1-b/disks/d".into()))
        );
        assert_eq!(
            of(&disk("d"), "eu-west1-b__eu-west1-c").map(|(_, handle)| handle),
            Some("projects/UNSPECIFIED/regions/eu-west1/disks/d".into())
        );
        assert_eq!(of(&other("cinder", "c"), ""), Some(("cinder.csi.openstack.org", "c".into())));
        assert_eq!(of(&other("nfs", "n"), ""), None);
    }
}
