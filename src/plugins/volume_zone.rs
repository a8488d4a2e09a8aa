//! Zones of volumes (volumezone/volume_zone.go).

use crate::framework::{Cycle, Filter, Plugin, PluginInfo, Point, PreFilter, Reads, Status};
use crate::model::{Launcher, Node, Pod, VolumeBindingMode, VolumeSource};
use crate::snapshot::{Cluster, NodeInfo};

use super::hints::{self, ClusterEvent, Hint};
use super::volumes::{claim, never, not_found, uses, volume};

/// Rejects nodes outside the zones and regions in the labels of the pod's volumes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VolumeZone;

const NAME: &str = "VolumeZone";
const REASON: &str = "node(s) had no available volume zone";

/// Each label key with the key that replaces it; a current key maps to itself.
const KEYS: [(&str, &str); 4] = [
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("topology.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("topology.kubernetes.io/region", "topology.kubernetes.io/region"),
];

/// The label keys of the pod's volumes, each with the values that a node may have.
struct Zones<'a> {
    keys: Vec<(&'static str, &'static str, Vec<&'a str>)>,
    launcher: Launcher,
}

impl Plugin for VolumeZone {
    fn info(&self) -> PluginInfo {
        PluginInfo::new(NAME, &[Point::PreFilter, Point::Filter]).events(hints::volumes::ZONE)
    }

    /// The claim of a generic ephemeral volume is named after the pod.
    fn treats_template_alike(&self, pod: &Pod, _: &Cluster) -> bool {
        let volumes = &pod.template.volumes;
        !volumes.iter().any(|volume| matches!(volume, VolumeSource::Ephemeral { .. }))
    }

    fn queueing_hint(
        &self,
        pod: &Pod,
        event: &ClusterEvent<'_>,
        _: &Cluster,
    ) -> Result<Hint, Status> {
        let keys = KEYS.map(|(key, _)| key);
        Ok(hints::volumes::zone(pod, event, &keys))
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        let (cluster, pod) = (cycle.cluster, cycle.pod);
        let reject = |why: String| Err(never(NAME, why));
        let mut zones = Vec::new();
        for used in uses(&pod.template.volumes, &pod.name) {
            let Some(claim) = claim(cluster, pod.namespace(), &used.claim) else {
                return reject(not_found("persistentvolumeclaim", &used.claim));
            };
            if claim.volume.is_empty() {
                if claim.class.is_empty() {
                    let why = "PersistentVolumeClaim had no pv name and storageClass name";
                    return reject(why.to_owned());
                }
                match cluster.objects().storage_classes.get("", &claim.class) {
                    None => {
                        let kind = "storageclass.storage.k8s.io";
                        return reject(not_found(kind, &claim.class));
                    }
                    Some(class) if class.binding_mode == VolumeBindingMode::Immediate => {
                        return reject("PersistentVolume had no name".to_owned());
                    }
                    // The volume is not provisioned yet and has no zone.
                    Some(_) => continue,
                }
            }
            let Some(volume) = volume(cluster, &claim.volume) else {
                return reject(not_found("persistentvolume", &claim.volume));
            };
            for (key, newer) in KEYS {
                if let Some(values) = volume.labels.get(key) {
                    zones.push((key, newer, values.split("__").collect()));
                }
            }
        }
        match zones.is_empty() {
            true => Ok(PreFilter::Skip),
            false => Ok(PreFilter::Filter(Box::new(Zones {
                keys: zones,
                launcher: pod.template.launcher,
            }))),
        }
    }
}

impl Zones<'_> {
    fn has(&self, node: &Node) -> bool {
        // A node without any zone label matches every zone.
        KEYS.iter().all(|(key, _)| node.labels.get(key).is_none())
            || self.keys.iter().all(|(key, newer, values)| {
                let value = node.labels.get(key).or_else(|| node.labels.get(newer));
                value.is_some_and(|value| values.contains(&value))
            })
    }
}

impl Filter for Zones<'_> {
    fn filter(&self, node: NodeInfo<'_>) -> Option<Status> {
        let has = node.node_for(self.launcher).is_some_and(|node| self.has(node));
        (!has).then(|| never(NAME, REASON))
    }

    fn only_reason(&self) -> Option<&'static str> {
        Some(REASON)
    }

    fn reads(&self) -> Reads {
        Reads::Node
    }
}
