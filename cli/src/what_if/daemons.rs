//! The pods that daemon sets create on new nodes.

use std::collections::{BTreeMap, BTreeSet};

use portolan::Framework;
use portolan::cache::{Cluster, Event};
use portolan::model::{
    Name, Node, NodeSelectorTerm, Object, Operator, Pod, PodSpec, Requirement, Template, Uid,
};
use portolan_dra::Devices;
use portolan_dra::store::DeviceEvent;
use portolan_k8s::{ControllerKind, PodController};

use crate::error::CommandError;
use crate::replacement::recreated;
use crate::resource_claims::uses_devices;

use super::model::New;
use super::world::World;

/// The plugins whose rejection means that a daemon set creates no pod for the node (daemon/daemon_controller.go
/// `NodeShouldRunDaemonPod`). A pod that another plugin rejects is created and pending.
const ELIGIBILITY: [&str; 4] = ["NodeName", "NodeUnschedulable", "NodeAffinity", "TaintToleration"];

/// The daemon sets of the files, and those known only from their pods.
pub(super) struct Daemons {
    sets: Vec<PodController>,
    seen: Vec<Pod>,
    framework: Framework,
    /// The new nodes whose volume limits are not known.
    pub(super) without_limits: BTreeSet<Name>,
}

impl Daemons {
    /// No daemon sets.
    pub(super) fn none() -> Daemons {
        Daemons {
            sets: Vec::new(),
            seen: Vec::new(),
            framework: Framework::default_profile(),
            without_limits: BTreeSet::new(),
        }
    }

    pub(super) fn of(
        cluster: &Cluster,
        controllers: impl Iterator<Item = PodController>,
    ) -> Daemons {
        let sets = controllers.filter(|it| it.kind == ControllerKind::DaemonSet);
        let sets: Vec<PodController> = sets.collect();
        let mut seen: BTreeMap<(Name, Name), Pod> = BTreeMap::new();
        for pod in cluster.nodes().flat_map(|node| node.pods()) {
            let owners = pod.template().owners.iter();
            let mut owner = owners.filter(|owner| owner.controller && &*owner.kind == "DaemonSet");
            let Some(owner) = owner.next() else { continue };
            let key = (pod.namespace().clone(), owner.name.clone());
            let is_known = sets.iter().any(|set| (&set.namespace, &set.name) == (&key.0, &key.1));
            if !is_known && !seen.contains_key(&key) {
                seen.insert(key, recreated(pod.to_pod()));
            }
        }
        let seen = seen.into_values().collect();
        Daemons { sets, seen, ..Daemons::none() }
    }

    /// Adds a node with the pods that the daemon sets create on it. Returns the number of those that fit; the others
    /// are pending.
    pub(super) fn join(&mut self, new: New, world: &mut World) -> Result<usize, CommandError> {
        let node = new.node;
        if !new.has_limits {
            self.without_limits.insert(node.name.clone());
        }
        let of = || format!("node {}", node.name);
        world.apply(Event::add_node(node.clone()), of)?;
        let claims = self.sets.iter().flat_map(|set| {
            let pods = set.expand(std::slice::from_ref(&node));
            pods.iter().flat_map(|pod| set.claims(pod)).map(Object::from).collect::<Vec<_>>()
        });
        for object in new.objects.into_iter().chain(claims) {
            world.apply(Event::PutObject(object), of)?;
        }
        // Without claims in the cluster, no pod uses the devices.
        for slice in new.slices.into_iter().filter(|_| world.simulation.claims.is_some()) {
            let event = DeviceEvent::PutSlice(slice.into());
            world.apply(Event::custom::<Devices>(event), of)?;
        }
        let mut reader = world.reader()?;
        let mut placed = 0;
        for pod in self.on(&node) {
            let cluster = reader.refresh();
            let Some(info) = cluster.node(&node.name) else { continue };
            match self.framework.filter(cluster, &pod, info) {
                None if !uses_devices(&pod.template, cluster) => {
                    let pod = pod.on(node.name.clone());
                    world.apply(Event::add_pod(pod), of)?;
                    placed += 1;
                }
                Some(status) if ELIGIBILITY.contains(&status.plugin) => {}
                // The scheduler allocates devices, or says why the pod waits.
                _ => world.enter(&pod, None)?,
            }
        }
        Ok(placed)
    }

    /// The pods that the daemon sets create for the node if they may run on it.
    fn on(&self, node: &Node) -> Vec<Pod> {
        let of_sets = self.sets.iter().flat_map(|set| set.expand(std::slice::from_ref(node)));
        of_sets.chain(self.seen.iter().map(|pod| moved(pod, &node.name))).collect()
    }
}

/// The pod that a daemon set creates for a node, like its pod for another node: their affinities differ in the node
/// that they name.
fn moved(pod: &Pod, node: &Name) -> Pod {
    let mut spec = PodSpec::clone(&pod.template);
    let fields: Box<[Requirement]> =
        [Requirement::new("metadata.name", Operator::In, [node.clone()])].into();
    let affinity = spec.node_affinity.get_or_insert_default();
    let required = affinity.required.get_or_insert_default();
    match required.terms.is_empty() {
        true => {
            let term = NodeSelectorTerm { match_fields: fields, ..NodeSelectorTerm::default() };
            required.terms = [term].into();
        }
        false => required.terms.iter_mut().for_each(|it| it.match_fields = fields.clone()),
    }
    let name = format!("{}-{node}", pod.name);
    Pod {
        uid: Uid::new(&format!("{}/{name}", pod.namespace())),
        name: name.into(),
        template: Template::new(spec),
        ..pod.clone()
    }
}
