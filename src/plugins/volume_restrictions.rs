//! Volumes that pods cannot share (volumerestrictions/volume_restrictions.go).

use crate::framework::{Code, Cycle, Filter, Plugin, PluginInfo, Point, PreFilter, Reads, Status};
use crate::model::{AccessMode, Name, Pod, VolumeSource};
use crate::snapshot::{Chunk, Cluster, NodeInfo};

use super::hints::{self, ClusterEvent, Hint};
use super::volumes::{claim, never, not_found};

/// Rejects nodes on which a disk of the pod is already mounted in a conflicting way. Rejects all nodes while another
/// pod uses a claim of the pod that only one pod may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VolumeRestrictions;

const NAME: &str = "VolumeRestrictions";
const DISK: &str = "node(s) had no available disk";
const IN_USE: &str = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";

#[derive(Clone)]
struct Restricted<'a> {
    disks: Vec<&'a VolumeSource>,
    /// Claims that only one pod may use.
    exclusive: Vec<&'a Name>,
    /// The number of uses of these claims.
    in_use: i64,
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

/// Returns whether both disks cannot be mounted on one node.
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
    fn info(&self) -> PluginInfo {
        PluginInfo::new(NAME, &[Point::PreFilter, Point::Filter])
            .events(hints::volumes::RESTRICTIONS)
    }

    /// A claim that only one pod may use is free for the first of several pods only.
    fn treats_template_alike(&self, pod: &Pod, _: &Cluster) -> bool {
        pod.template.claims().next().is_none()
    }

    fn queueing_hint(
        &self,
        pod: &Pod,
        event: &ClusterEvent<'_>,
        _: &Cluster,
    ) -> Result<Hint, Status> {
        Ok(hints::volumes::restrictions(pod, event, conflicts))
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        let (cluster, pod) = (cycle.cluster, cycle.pod);
        let template = &pod.template;
        let (mut exclusive, mut in_use) = (Vec::new(), 0);
        for name in template.claims() {
            let Some(claim) = claim(cluster, &template.namespace, name) else {
                return Err(never(NAME, not_found("persistentvolumeclaim", name)));
            };
            if claim.access_modes.contains(&AccessMode::ReadWriteOncePod) {
                exclusive.push(name);
                in_use += i64::from(cluster.is_claim_used(&template.namespace, name));
            }
        }
        let disks: Vec<_> = template.volumes.iter().filter(is_restricted).collect();
        Ok(match disks.is_empty() && in_use == 0 {
            true => PreFilter::Skip,
            false => PreFilter::Filter(Box::new(Restricted { disks, exclusive, in_use })),
        })
    }
}

impl Restricted<'_> {
    /// Counts the exclusive claims that a pod uses, matched by name; like kube-scheduler, this ignores the pod's
    /// namespace.
    fn uses(&self, pod: &Pod) -> i64 {
        pod.template.claims().filter(|claim| self.exclusive.contains(claim)).count() as i64
    }
}

impl Filter for Restricted<'_> {
    fn filter(&self, node: NodeInfo<'_>) -> Option<Status> {
        let conflict = !self.disks.is_empty()
            && node.pods().any(|pod| {
                let there = &pod.template().volumes;
                self.disks.iter().any(|wanted| there.iter().any(|other| conflicts(wanted, other)))
            });
        match (conflict, self.in_use > 0) {
            (true, _) => Some(Status::new(Code::Unschedulable, NAME, DISK)),
            (false, true) => Some(Status::new(Code::Unschedulable, NAME, IN_USE)),
            (false, false) => None,
        }
    }

    fn reads(&self) -> Reads {
        Reads::Pods
    }

    fn extend<'s>(&'s self) -> Option<Box<dyn Filter + 's>> {
        Some(Box::new(self.clone()))
    }

    fn add_pod(&mut self, pod: &Pod, _: NodeInfo<'_>) -> Result<(), Status> {
        self.in_use += self.uses(pod);
        Ok(())
    }

    fn remove_pod(&mut self, pod: &Pod, _: NodeInfo<'_>) -> Result<(), Status> {
        self.in_use -= self.uses(pod);
        Ok(())
    }

    fn resolvable(&self, _: &Cluster, _: &Chunk, rejected: u64) -> u64 {
        rejected
    }
}
