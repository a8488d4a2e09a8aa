//! Volumes that are bound to claims, or can be bound (volumebinding/volume_binding.go, binder.go;
//! component-helpers/storage/volume `FindMatchingVolume`).

use std::sync::Arc;
use std::time::Duration;

use crate::framework::{
    Assumed, Code, Cycle, Filter, Handle, Plugin, PluginInfo, PodVolumes, Point, PreFilter,
    PreFlight, Reads, Status, VolumeBinder,
};
use crate::model::{
    ClaimReference, Launcher, Name, Node, PersistentVolume, PersistentVolumeClaim, Pod,
    StorageClass, VolumeBindingMode,
};
use crate::snapshot::{Cluster, NodeInfo};

use super::hints::{self, ClusterEvent, Hint};
use super::volumes::{claim, is_for, is_reached, never, not_found, uses, volume};

/// Rejects nodes from which the pod's bound volumes are not accessible, and nodes for which its other claims cannot be
/// bound. Reserves volumes for those claims when the pod is assumed, and binds them before the pod is bound.
#[derive(Clone)]
pub struct VolumeBinding {
    handle: Handle,
    /// The limit on the time for binding a pod's volumes; 10 minutes by default.
    pub bind_timeout: Duration,
}

const NAME: &str = "VolumeBinding";
const NOT_REACHED: &str = "node(s) didn't match PersistentVolume's node affinity";
const NONE_TO_BIND: &str = "node(s) didn't find available persistent volumes to bind";
const NO_STORAGE: &str = "node(s) did not have enough free storage";
const NO_VOLUME: &str = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

impl VolumeBinding {
    /// Creates a plugin that reserves and binds through this handle's [`VolumeBinder`].
    #[must_use]
    pub fn new(handle: &Handle) -> VolumeBinding {
        VolumeBinding { handle: handle.clone(), bind_timeout: Duration::from_secs(600) }
    }

    fn binder(&self) -> Result<&Arc<dyn VolumeBinder>, Status> {
        self.handle.volume_binder().ok_or_else(|| {
            let reason =
                "the handle has no volume binder: create the plugin from a handle with one";
            Status::error(NAME, reason)
        })
    }
}

impl std::fmt::Debug for VolumeBinding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(NAME)
    }
}

struct Claims<'a> {
    cluster: &'a Cluster,
    /// The bound volumes, `None` for a volume that does not exist.
    bound: Vec<Option<&'a Arc<PersistentVolume>>>,
    /// Claims to be bound when the pod is placed, in ascending order of their requests, each with its class and the
    /// class's volumes.
    open: Vec<Open<'a>>,
    launcher: Launcher,
}

struct Open<'a> {
    claim: &'a Arc<PersistentVolumeClaim>,
    class: &'a Arc<StorageClass>,
    volumes: Vec<&'a Arc<PersistentVolume>>,
}

impl Plugin for VolumeBinding {
    fn info(&self) -> PluginInfo {
        PluginInfo::new(NAME, &[Point::PreFilter, Point::Filter, Point::Reserve, Point::PreBind])
            .events(hints::volumes::BINDING)
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
        Ok(hints::volumes::binding(pod, event))
    }

    fn acts_at_reserve(&self, pod: &Pod, _: &Cluster) -> bool {
        pod.template.claims().next().is_some()
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        Ok(match Claims::of(cycle.cluster, cycle.pod)? {
            None => PreFilter::Skip,
            Some(claims) => PreFilter::Filter(Box::new(claims)),
        })
    }

    /// Does nothing for a pod whose claims are all bound.
    fn reserve(&self, cycle: Cycle<'_>, node: &Name) -> Result<(), Status> {
        let Some(claims) = Claims::of(cycle.cluster, cycle.pod)? else { return Ok(()) };
        if claims.open.is_empty() {
            return Ok(());
        }
        let info = cycle.cluster.node(node).and_then(|info| info.node_for(claims.launcher));
        let Some(info) = info else {
            return Err(Status::error(NAME, format!("node {node:?} not found")));
        };
        let Ok(plan) = claims.plan(info) else {
            let reason = format!("node {node:?} does not have the pod's volumes");
            return Err(Status::error(NAME, reason));
        };
        let volumes = plan.volumes(node);
        self.binder()?.assume(&volumes).map_err(|why| Status::error(NAME, why))?;
        cycle.state.write(NAME, volumes);
        Ok(())
    }

    fn unreserve(&self, cycle: Cycle<'_>, _: &Name) {
        if let (Some(binder), Some(volumes)) =
            (self.handle.volume_binder(), cycle.state.read::<PodVolumes>(NAME))
        {
            cycle.state.delete(NAME);
            binder.revert(&volumes);
        }
    }

    fn pre_bind_pre_flight(&self, cycle: Cycle<'_>, _: &Name) -> Result<PreFlight, Status> {
        Ok(match cycle.state.read::<PodVolumes>(NAME) {
            Some(_) => PreFlight::Work,
            None => PreFlight::Skip,
        })
    }

    fn pre_bind(&self, cycle: Cycle<'_>, node: &Name) -> Result<(), Status> {
        let Some(volumes) = cycle.state.read::<PodVolumes>(NAME) else { return Ok(()) };
        let in_pre_bind = self.handle.pod_in_pre_bind(&cycle.pod.uid).unwrap_or_default();
        let binder = self.binder()?;
        let bound = binder.bind(cycle.pod, node, &volumes, self.bind_timeout, &in_pre_bind);
        bound.map_err(|why| Status::error(NAME, why))
    }
}

impl<'a> Claims<'a> {
    /// Returns the pod's claims, or `None` if it has none.
    fn of(cluster: &'a Cluster, pod: &Pod) -> Result<Option<Claims<'a>>, Status> {
        let reject = |why: String| Err(never(NAME, why));
        let mut claims = Vec::new();
        for used in uses(&pod.template.volumes, &pod.name) {
            let name = &used.claim;
            let Some(claim) = claim(cluster, pod.namespace(), name) else {
                return reject(match used.is_ephemeral {
                    true => format!(
                        "waiting for ephemeral volume controller to create the \
                         persistentvolumeclaim {name:?}"
                    ),
                    false => not_found("persistentvolumeclaim", name),
                });
            };
            if claim.is_lost {
                return reject(format!(
                    "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {:?}",
                    &*claim.volume
                ));
            }
            if claim.is_deleting {
                return reject(format!("persistentvolumeclaim {name:?} is being deleted"));
            }
            if used.is_ephemeral && !is_for(claim, pod) {
                return reject(format!(
                    "PVC {}/{name} was not created for pod {}/{} (pod is not owner)",
                    claim.namespace,
                    pod.namespace(),
                    pod.name
                ));
            }
            claims.push(claim);
        }
        if claims.is_empty() {
            return Ok(None);
        }
        let (mut bound, mut open) = (Vec::new(), Vec::new());
        for claim in claims {
            if claim.is_bound {
                bound.push(volume(cluster, &claim.volume));
                continue;
            }
            // A claim whose class does not exist is bound immediately (pv_helpers.go `IsDelayBindingMode`).
            match cluster.objects().storage_classes.get("", &claim.class) {
                Some(class)
                    if class.binding_mode == VolumeBindingMode::WaitForFirstConsumer
                        && claim.volume.is_empty() =>
                {
                    open.push(Open { claim, class, volumes: Vec::new() });
                }
                _ => return reject("pod has unbound immediate PersistentVolumeClaims".into()),
            }
        }
        open.sort_by_key(|open| open.claim.request);
        for open in &mut open {
            let volumes = cluster.objects().persistent_volumes.iter();
            open.volumes = volumes.filter(|volume| volume.class == open.claim.class).collect();
            open.volumes.sort_by(|a, b| (a.capacity, &a.name).cmp(&(b.capacity, &b.name)));
        }
        Ok(Some(Claims { cluster, bound, open, launcher: pod.template.launcher }))
    }
}

fn is_kept_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    volume.claim.as_ref().is_some_and(|reference| {
        (&reference.namespace, &reference.name) == (&claim.namespace, &claim.name)
            && (reference.uid.is_empty() || reference.uid == claim.uid)
    })
}

/// Returns the volume to bind to a claim for a pod on this node: the one reserved for the claim, or else the smallest
/// that matches.
fn find<'a>(
    open: &Open<'a>,
    node: &Node,
    taken: &[(&Open<'a>, &'a Arc<PersistentVolume>)],
) -> Option<&'a Arc<PersistentVolume>> {
    let claim = open.claim;
    let mut smallest = None;
    for volume in &open.volumes {
        let kept = is_kept_for(volume, claim);
        if taken.iter().any(|(_, taken)| taken.name == volume.name)
            || (volume.claim.is_some() && !kept)
            || volume.capacity < claim.request
            || volume.volume_mode != claim.volume_mode
            || volume.is_deleting
        {
            continue;
        }
        let is_reached = is_reached(volume, &node.name, &node.labels);
        if kept {
            return is_reached.then_some(volume);
        }
        let selected = claim.selector.as_ref().is_none_or(|s| s.matches(&volume.labels));
        let has_modes = claim.access_modes.iter().all(|mode| volume.access_modes.contains(mode));
        if smallest.is_none() && volume.is_available && selected && is_reached && has_modes {
            // The volumes are sorted by capacity.
            smallest = Some(*volume);
        }
    }
    smallest
}

/// Why a claim cannot be bound on a node.
enum Lack {
    Volume,
    Storage,
}

/// How the open claims would be bound on a node.
#[derive(Default)]
struct Plan<'c, 'a> {
    bindings: Vec<(&'c Open<'a>, &'a Arc<PersistentVolume>)>,
    to_provision: Vec<&'c Open<'a>>,
}

impl Plan<'_, '_> {
    /// Returns the assumed states of the volumes and claims.
    fn volumes(&self, node: &Name) -> PodVolumes {
        let binding = |(open, volume): &(&Open<'_>, &Arc<PersistentVolume>)| {
            let claim = ClaimReference {
                namespace: open.claim.namespace.clone(),
                name: open.claim.name.clone(),
                uid: open.claim.uid.clone(),
            };
            let after = PersistentVolume { claim: Some(claim), ..PersistentVolume::clone(volume) };
            Assumed { before: Arc::clone(volume), after: Arc::new(after) }
        };
        let provision = |open: &&Open<'_>| {
            let after = PersistentVolumeClaim {
                selected_node: node.clone(),
                ..PersistentVolumeClaim::clone(open.claim)
            };
            Assumed { before: open.claim.clone(), after: Arc::new(after) }
        };
        PodVolumes {
            bindings: self.bindings.iter().map(binding).collect(),
            to_provision: self.to_provision.iter().map(provision).collect(),
        }
    }
}

impl<'a> Claims<'a> {
    /// Plans how the open claims would be bound for a pod on this node: to existing volumes or to provisioned ones.
    fn plan(&self, node: &Node) -> Result<Plan<'_, 'a>, Lack> {
        let mut plan = Plan::default();
        for open in &self.open {
            if !open.claim.selected_node.is_empty() {
                if open.claim.selected_node != node.name {
                    return Err(Lack::Volume);
                }
                plan.to_provision.push(open);
                continue;
            }
            match find(open, node, &plan.bindings) {
                Some(volume) => plan.bindings.push((open, volume)),
                None => plan.to_provision.push(open),
            }
        }
        for open in &plan.to_provision {
            let class = open.class;
            let topologies = &class.allowed_topologies;
            let allowed =
                topologies.terms.is_empty() || topologies.matches(&node.name, &node.labels);
            if class.provisioner.is_empty() || *class.provisioner == *NO_PROVISIONER || !allowed {
                return Err(Lack::Volume);
            }
            if !self.has_room(open, node) {
                return Err(Lack::Storage);
            }
        }
        Ok(plan)
    }

    /// Returns whether the class's driver reports enough capacity for the volume on the node, or does not report
    /// capacity at all.
    fn has_room(&self, open: &Open<'_>, node: &Node) -> bool {
        let objects = self.cluster.objects();
        let driver = objects.csi_drivers.get("", &open.class.provisioner);
        if driver.is_none_or(|driver| !driver.storage_capacity) {
            return true;
        }
        objects.csi_storage_capacities.iter().any(|capacity| {
            capacity.class == open.class.name
                && capacity.largest.is_some_and(|largest| largest >= open.claim.request)
                && capacity.nodes.matches(&node.labels)
        })
    }
}

impl Filter for Claims<'_> {
    fn filter(&self, node: NodeInfo<'_>) -> Option<Status> {
        let node = node.node_for(self.launcher)?;
        let mut reasons = Vec::new();
        let bound = self.bound.iter().flatten();
        if bound.clone().any(|volume| !is_reached(volume, &node.name, &node.labels)) {
            reasons.push(NOT_REACHED.to_owned());
        }
        match self.plan(node) {
            Ok(_) => {}
            Err(Lack::Volume) => reasons.push(NONE_TO_BIND.to_owned()),
            Err(Lack::Storage) => reasons.push(NO_STORAGE.to_owned()),
        }
        if self.bound.iter().any(Option::is_none) {
            reasons.push(NO_VOLUME.to_owned());
        }
        let code = Code::UnschedulableAndUnresolvable;
        (!reasons.is_empty()).then_some(Status { code, plugin: NAME, reasons })
    }

    fn reads(&self) -> Reads {
        Reads::Node
    }
}
