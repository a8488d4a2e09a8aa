//! How many volumes a node can have attached (nodevolumelimits/csi.go).

use std::collections::BTreeMap;

use crate::framework::{Code, Cycle, Filter, Plugin, Point, PreFilter, Status};
use crate::model::{Name, PersistentVolumeClaim};
use crate::snapshot::{Cluster, NodeInfo};

use super::volumes::{claim, never, uses, volume};

/// Rejects nodes on which the pod's volumes would be more than a CSI driver can
/// attach.
///
/// In-tree volumes that are migrated to a CSI driver are not translated, so not
/// counted.
#[derive(Clone, Copy, Debug)]
pub struct NodeVolumeLimits;

const NAME: &str = "NodeVolumeLimits";
const TOO_MANY: &str = "node(s) exceed max volume count";

/// Driver and handle: what is attached once, whoever uses it.
type Volume = (Name, Name);

struct Limited(Vec<Volume>);

/// The volume of a claim; none where no CSI driver attaches it. One that is not
/// bound yet counts as one of its own.
fn attached(cluster: &Cluster, claim: &PersistentVolumeClaim) -> Option<Volume> {
    if let Some(volume) = volume(cluster, &claim.volume).filter(|_| !claim.volume.is_empty()) {
        return volume.csi.clone();
    }
    let class = cluster.objects().storage_classes.get("", &claim.class)?;
    let own = format!("unbound-{}/{}", claim.namespace, claim.name);
    (!class.provisioner.is_empty()).then(|| (class.provisioner.clone(), own.into()))
}

impl Plugin for NodeVolumeLimits {
    fn name(&self) -> &'static str {
        NAME
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreFilter, Point::Filter]
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        let (cluster, pod) = (cycle.cluster, cycle.pod);
        let namespace = pod.namespace();
        let mut wanted = Vec::new();
        let mut any = false;
        for used in uses(&pod.template.volumes, &pod.name) {
            any = true;
            let Some(claim) = claim(cluster, namespace, &used.claim) else {
                let name = &used.claim;
                let what = format!(
                    "looking up PVC {namespace}/{name}: persistentvolumeclaim {name:?} not found"
                );
                return Err(never(NAME, what));
            };
            wanted.extend(attached(cluster, claim));
        }
        wanted.sort();
        wanted.dedup();
        match any {
            true => Ok(PreFilter::Filter(Box::new(Limited(wanted)))),
            false => Ok(PreFilter::Skip),
        }
    }
}

impl Filter for Limited {
    fn filter(&self, node: NodeInfo<'_>) -> Option<Status> {
        let cluster = node.cluster();
        let objects = cluster.objects();
        let limits = objects.csi_nodes.get("", node.name())?;
        let limit = |driver: &Name| {
            limits.drivers.iter().find(|(name, _)| name == driver).and_then(|(_, limit)| *limit)
        };
        if self.0.iter().all(|(driver, _)| limit(driver).is_none()) {
            return None;
        }
        let mut there: Vec<Volume> = Vec::new();
        for pod in node.pods().filter(|pod| !pod.template().volumes.is_empty()) {
            for used in uses(&pod.template().volumes, pod.name()) {
                let claim = claim(cluster, pod.namespace(), &used.claim);
                there.extend(claim.and_then(|claim| attached(cluster, claim)));
            }
        }
        there.sort();
        there.dedup();
        let mut counts: BTreeMap<&Name, u32> = BTreeMap::new();
        let new = self.0.iter().filter(|volume| !there.contains(volume));
        for (driver, _) in new.clone() {
            counts.insert(driver, 0);
        }
        for (driver, _) in there.iter().chain(new) {
            if let Some(count) = counts.get_mut(driver) {
                *count += 1;
            }
        }
        // Attachments of volumes that no pod here uses, or uses no more.
        let attachments = objects.volume_attachments.iter();
        for attachment in attachments.filter(|attachment| attachment.node == *node.name()) {
            let csi = volume(cluster, &attachment.volume).and_then(|volume| volume.csi.clone());
            if let Some(volume) = csi
                && !there.contains(&volume)
                && let Some(count) = counts.get_mut(&attachment.attacher)
            {
                *count += 1;
            }
        }
        counts
            .iter()
            .any(|(driver, count)| limit(driver).is_some_and(|limit| *count > limit))
            .then(|| Status::new(Code::Unschedulable, NAME, TOO_MANY))
    }

    fn only_reason(&self) -> Option<&'static str> {
        Some(TOO_MANY)
    }
}
