//! Limits on the number of volumes attached to a node (nodevolumelimits/csi.go).

use std::collections::BTreeMap;

use crate::framework::{Code, Cycle, Filter, Plugin, PluginInfo, Point, PreFilter, Reads, Status};
use crate::model::{CsiNode, InTreePlugin, Name, PersistentVolumeClaim, Pod, VolumeSource};
use crate::snapshot::{Chunk, Cluster, NodeInfo};

use super::hints::{self, ClusterEvent, Hint};
use super::volumes::{claim, never, use_of, volume};

/// Rejects nodes on which the pod's volumes would exceed the number that a CSI driver can attach.
///
/// Volumes of in-tree plugins are counted on nodes that have migrated the plugin to a CSI driver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeVolumeLimits;

const NAME: &str = "NodeVolumeLimits";
const TOO_MANY: &str = "node(s) exceed max volume count";

/// A volume's driver and handle. A volume is attached once, however many pods use it.
type Volume = (Name, Name);

/// A volume to be counted on nodes whose driver serves it.
struct Attached {
    volume: Volume,
    /// The volume's in-tree plugin, which the node must have migrated.
    plugin: Option<InTreePlugin>,
}

impl Attached {
    /// Returns the volume to count on this node, or `None` if no driver of the node serves it.
    fn on(&self, node: &CsiNode) -> Option<&Volume> {
        let is_served = self.plugin.is_none_or(|plugin| {
            plugin.is_always_migrated() || node.migrated.iter().any(|name| **name == *plugin.name)
        });
        is_served.then_some(&self.volume)
    }

    fn migrated((plugin, handle): (InTreePlugin, Name)) -> Attached {
        Attached { volume: (plugin.driver.into(), handle), plugin: Some(plugin) }
    }

    /// Returns the volume of a claim, or `None` if no CSI driver attaches it. A claim that is not bound yet counts as a
    /// separate volume.
    fn of_claim(cluster: &Cluster, claim: &PersistentVolumeClaim) -> Option<Attached> {
        if let Some(volume) = volume(cluster, &claim.volume).filter(|_| !claim.volume.is_empty()) {
            if let Some(volume) = &volume.csi {
                return Some(Attached { volume: volume.clone(), plugin: None });
            }
            let zones = ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"];
            let zones = zones.iter().find_map(|key| volume.labels.get(key)).unwrap_or_default();
            return volume.in_tree.as_ref()?.migration(zones).map(Attached::migrated);
        }
        let class = cluster.objects().storage_classes.get("", &claim.class)?;
        let own: Name = format!("unbound-{}/{}", claim.namespace, claim.name).into();
        match InTreePlugin::of_name(&class.provisioner) {
            Some(plugin) => Some(Attached::migrated((plugin, own))),
            None if class.provisioner.is_empty() => None,
            None => Some(Attached { volume: (class.provisioner.clone(), own), plugin: None }),
        }
    }

    /// Returns the volume that a pod uses, or `None` if its claim does not exist.
    fn of_pod(
        cluster: &Cluster,
        namespace: &str,
        pod: &str,
        source: &VolumeSource,
    ) -> Option<Attached> {
        match use_of(source, pod) {
            Some(used) => Attached::of_claim(cluster, claim(cluster, namespace, &used.claim)?),
            None => source.migration("").map(Attached::migrated),
        }
    }
}

/// The volumes that the pod needs attached.
struct Limited(Vec<Attached>);

impl Plugin for NodeVolumeLimits {
    fn info(&self) -> PluginInfo {
        PluginInfo::new(NAME, &[Point::PreFilter, Point::Filter]).events(hints::volumes::LIMITS)
    }

    fn treats_template_alike(&self, _: &Pod, _: &Cluster) -> bool {
        true
    }

    fn queueing_hint(
        &self,
        pod: &Pod,
        event: &ClusterEvent<'_>,
        _: &Cluster,
    ) -> Result<Hint, Status> {
        Ok(hints::volumes::limits(pod, event))
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        let (cluster, pod) = (cycle.cluster, cycle.pod);
        let namespace = pod.namespace();
        let mut wanted = Vec::new();
        let mut any = false;
        for source in &pod.template.volumes {
            let attached = Attached::of_pod(cluster, namespace, &pod.name, source);
            any |= attached.is_some();
            wanted.extend(attached);
            let Some(used) = use_of(source, &pod.name) else { continue };
            any = true;
            if claim(cluster, namespace, &used.claim).is_none() {
                let name = &used.claim;
                let what = format!(
                    "looking up PVC {namespace}/{name}: persistentvolumeclaim {name:?} not found"
                );
                return Err(never(NAME, what));
            }
        }
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
            limits.drivers.iter().find(|known| known.name == *driver).and_then(|known| known.limit)
        };
        let mut wanted: Vec<&Volume> = self.0.iter().filter_map(|new| new.on(limits)).collect();
        if wanted.iter().all(|(driver, _)| limit(driver).is_none()) {
            return None;
        }
        wanted.sort();
        wanted.dedup();
        let mut there: Vec<Volume> = Vec::new();
        for pod in node.pods().filter(|pod| !pod.template().volumes.is_empty()) {
            for source in &pod.template().volumes {
                let attached = Attached::of_pod(cluster, pod.namespace(), pod.name(), source);
                there.extend(attached.and_then(|attached| attached.on(limits).cloned()));
            }
        }
        there.sort();
        there.dedup();
        let mut counts: BTreeMap<&Name, u32> = BTreeMap::new();
        let new = wanted.into_iter().filter(|volume| !there.contains(volume));
        for (driver, _) in new.clone() {
            counts.insert(driver, 0);
        }
        for (driver, _) in there.iter().chain(new) {
            if let Some(count) = counts.get_mut(driver) {
                *count += 1;
            }
        }
        // Counts attachments whose volumes no pod on this node uses, or no longer uses.
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

    fn reads(&self) -> Reads {
        Reads::Pods
    }

    fn resolvable(&self, _: &Cluster, _: &Chunk, rejected: u64) -> u64 {
        rejected
    }
}
