//! Disks that pods cannot share (volumerestrictions/volume_restrictions.go).

use crate::framework::{Code, Cycle, Filter, Plugin, Point, PreFilter, Status};
use crate::model::{AccessMode, VolumeSource};
use crate::snapshot::NodeInfo;

use super::volumes::{claim, never, not_found};

/// Rejects nodes on which a disk that the pod mounts is mounted in a way that
/// does not go with it; and all nodes while another pod uses a claim that but
/// one pod may use.
#[derive(Clone, Copy, Debug)]
pub struct VolumeRestrictions;

const NAME: &str = "VolumeRestrictions";
const DISK: &str = "node(s) had no available disk";
const IN_USE: &str = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";

struct Restricted<'a> {
    disks: Vec<&'a VolumeSource>,
    /// A claim for one pod is in use.
    is_in_use: bool,
}

fn is_restricted(volume: &&VolumeSource) -> bool {
    matches!(
        volume,
        VolumeSource::GcePersistentDisk { .. }
            | VolumeSource::AwsElasticBlockStore { .. }
            | VolumeSource::Rbd { .. }
            | VolumeSource::Iscsi { .. }
    )
}

/// Whether both cannot be mounted on one node.
fn conflicts(wanted: &VolumeSource, there: &VolumeSource) -> bool {
    use VolumeSource::{AwsElasticBlockStore, GcePersistentDisk, Iscsi, Rbd};
    match (wanted, there) {
        (
            GcePersistentDisk { disk, read_only, .. },
            GcePersistentDisk { disk: other, read_only: other_read_only, .. },
        ) => disk == other && !(*read_only && *other_read_only),
        (AwsElasticBlockStore { volume, .. }, AwsElasticBlockStore { volume: other, .. }) => {
            volume == other
        }
        (Iscsi { iqn, read_only }, Iscsi { iqn: other, read_only: other_read_only }) => {
            iqn == other && !(*read_only && *other_read_only)
        }
        (
            Rbd { monitors, pool, image, read_only },
            Rbd {
                monitors: other_monitors,
                pool: other_pool,
                image: other_image,
                read_only: other_read_only,
            },
        ) => {
            monitors.iter().any(|monitor| other_monitors.contains(monitor))
                && (pool, image) == (other_pool, other_image)
                && !(*read_only && *other_read_only)
        }
        _ => false,
    }
}

impl Plugin for VolumeRestrictions {
    fn name(&self) -> &'static str {
        NAME
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreFilter, Point::Filter]
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        let (cluster, pod) = (cycle.cluster, cycle.pod);
        let template = &pod.template;
        let mut is_in_use = false;
        for name in template.claims() {
            let Some(claim) = claim(cluster, &template.namespace, name) else {
                return Err(never(NAME, not_found("persistentvolumeclaim", name)));
            };
            is_in_use |= claim.access_modes.contains(&AccessMode::ReadWriteOncePod)
                && cluster.is_claim_used(&template.namespace, name);
        }
        let disks: Vec<_> = template.volumes.iter().filter(is_restricted).collect();
        match disks.is_empty() && !is_in_use {
            true => Ok(PreFilter::Skip),
            false => Ok(PreFilter::Filter(Box::new(Restricted { disks, is_in_use }))),
        }
    }
}

impl Filter for Restricted<'_> {
    fn filter(&self, node: NodeInfo<'_>) -> Option<Status> {
        let conflict = !self.disks.is_empty()
            && node.pods().any(|pod| {
                let there = &pod.template().volumes;
                self.disks.iter().any(|wanted| there.iter().any(|other| conflicts(wanted, other)))
            });
        match (conflict, self.is_in_use) {
            (true, _) => Some(Status::new(Code::Unschedulable, NAME, DISK)),
            (false, true) => Some(Status::new(Code::Unschedulable, NAME, IN_USE)),
            (false, false) => None,
        }
    }
}
