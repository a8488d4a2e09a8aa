//! The creation of pods by controllers: in which order, and whether the API server admits them.
//!
//! A pod that may not be created yet is held until its prerequisite holds, or until a quota has room for it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use portolan::cache::{Cluster, Snapshot};
use portolan::model::{Name, Pod, PodSpec, Template, Uid, VolumeBindingMode};
use portolan_k8s::{Admission, PodController};

use crate::cluster::Contents;

/// The namespace and name of an object.
type Key = (Name, Name);

/// The pods that controllers create, and those that they are about to create.
#[derive(Clone, Default)]
pub(crate) struct Creation {
    /// The controllers that create their pods in an order, by kind, namespace and name.
    ordered: HashMap<(Name, Name, Name), PodController>,
    pub(crate) admission: Admission,
    /// The leader-worker sets that create all pods of a group again when one ends, by namespace and name.
    groups: HashSet<Key>,
    /// The pods of the input that do not exist yet.
    new: HashSet<Uid>,
    /// The nodes of the pods that run, if their controller creates them in an order.
    running: HashMap<Key, Name>,
    /// The pods that are created after another one, by that one.
    held: HashMap<Key, Vec<Pod>>,
    /// The pods that a quota has refused.
    refused: Vec<Pod>,
    /// The held pods that may be created by now.
    ready: Vec<Pod>,
}

fn key(pod: &Pod) -> Key {
    (pod.namespace().clone(), pod.name.clone())
}

impl Creation {
    /// The controllers of an input, of which these pods do not exist yet.
    pub(crate) fn new(
        controllers: &[PodController],
        admission: Admission,
        new: HashSet<Uid>,
    ) -> Creation {
        let ordered = controllers.iter().filter(|controller| controller.has_order());
        let ordered = ordered.map(|it| {
            ((it.kind.as_str().into(), it.namespace.clone(), it.name.clone()), it.clone())
        });
        let groups = controllers.iter().filter(|it| it.recreates_groups);
        Creation {
            groups: groups.map(|it| (it.namespace.clone(), it.name.clone())).collect(),
            ordered: ordered.collect(),
            admission,
            new,
            ..Creation::default()
        }
    }

    /// As [`Creation::new`], with the pods that run in a cluster.
    pub(crate) fn of(contents: &Contents, cluster: &Cluster) -> Creation {
        let (admission, new) = (contents.admission().clone(), contents.created().clone());
        let mut creation = Creation::new(contents.controllers(), admission, new);
        if creation.ordered.is_empty() {
            return creation;
        }
        for info in cluster.nodes().flat_map(|node| node.pods()) {
            let is_ready = contents.facts().is_ready(&info.uid()) && info.deletion_time().is_none();
            if is_ready && creation.controller(info.template()).is_some() {
                creation.runs(&info.to_pod(), info.node().name());
            }
        }
        creation
    }

    /// The state in which the held and refused pods are to be created anew.
    pub(crate) fn restarted(&self) -> Creation {
        let (held, refused, ready) = Default::default();
        Creation { held, refused, ready, ..self.clone() }
    }

    /// The pods among these that do not exist yet.
    #[cfg(feature = "cluster")]
    pub(crate) fn new_of(&self, pods: &[Pod]) -> HashSet<Uid> {
        let uids = pods.iter().map(|pod| &pod.uid);
        uids.filter(|uid| self.new.contains(*uid)).cloned().collect()
    }

    /// Whether pods may be held.
    pub(crate) fn is_needed(&self) -> bool {
        !self.new.is_empty()
    }

    /// The controller of the pod, if it creates its pods in an order.
    fn controller(&self, template: &Template) -> Option<&PodController> {
        if self.ordered.is_empty() {
            return None;
        }
        let owner = template.controller()?;
        self.ordered.get(&(owner.kind.clone(), template.namespace.clone(), owner.name.clone()))
    }

    /// Whether all pods of a group of the leader-worker set are created again when one ends.
    pub(crate) fn recreates_groups(&self, namespace: &Name, set: &str) -> bool {
        self.groups.contains(&(namespace.clone(), Name::from(set)))
    }

    /// Adds pods that do not exist yet.
    pub(crate) fn expect(&mut self, pods: &[Pod]) {
        self.new.extend(pods.iter().map(|pod| pod.uid.clone()));
    }

    /// Creates a pod, or holds it. Returns the pod as it is stored, or why it is not created. A pod that exists is
    /// returned as it is, unless it `ends` now and is created again.
    pub(crate) fn create(
        &mut self,
        pod: &Pod,
        ends: bool,
        cluster: impl FnOnce() -> Arc<Snapshot>,
    ) -> Result<Pod, String> {
        if ends {
            self.is_gone(pod);
        } else if !self.new.contains(&pod.uid) {
            return Ok(pod.clone());
        }
        let created = self.after_others(pod, cluster)?;
        if let Err(why) = self.admission.admit(pod) {
            self.new.insert(pod.uid.clone());
            self.refused.push(pod.clone());
            return Err(why);
        }
        self.new.remove(&pod.uid);
        Ok(created)
    }

    /// The pod with what it takes over from the pods that were created before it, or why it is not created yet.
    fn after_others(
        &mut self,
        pod: &Pod,
        cluster: impl FnOnce() -> Arc<Snapshot>,
    ) -> Result<Pod, String> {
        let found = self.controller(&pod.template).and_then(|it| it.prerequisite(pod));
        let Some(prerequisite) = found else { return Ok(pod.clone()) };
        let of = |name: &Name| (pod.namespace().clone(), name.clone());
        let is_missing =
            |it: &&Name| prerequisite.is_completion || !self.running.contains_key(&of(it));
        if let Some(missing) = prerequisite.pods.iter().find(is_missing) {
            self.new.insert(pod.uid.clone());
            self.held.entry(of(missing)).or_default().push(pod.clone());
            return Err(prerequisite.to_string());
        }
        let Some(topology) = &prerequisite.topology else { return Ok(pod.clone()) };
        let node = prerequisite.pods.first().and_then(|leader| self.running.get(&of(leader)));
        let node = node.and_then(|node| cluster().node(node).and_then(|node| node.node().cloned()));
        let Some(value) = node.as_ref().and_then(|node| node.labels.get(topology)) else {
            return Err(format!("node does not have topology label: {topology}"));
        };
        let own = [(&**topology, value)];
        let mut spec = PodSpec::clone(&pod.template);
        spec.node_selector = spec.node_selector.iter().chain(own).collect();
        Ok(Pod { template: Template::new(spec), ..pod.clone() })
    }

    /// Notes that a pod runs on a node.
    pub(crate) fn runs(&mut self, pod: &Pod, node: &Name) {
        if self.controller(&pod.template).is_some() {
            let key = key(pod);
            self.ready.extend(self.held.remove(&key).unwrap_or_default());
            self.running.insert(key, node.clone());
        }
    }

    /// Notes that a pod has left its node.
    pub(crate) fn stops(&mut self, pod: &Pod) {
        if !self.running.is_empty() {
            self.running.remove(&key(pod));
        }
    }

    /// Notes that a pod is gone.
    pub(crate) fn is_gone(&mut self, pod: &Pod) {
        self.stops(pod);
        if self.admission.release(pod) {
            self.ready.append(&mut self.refused);
        }
    }

    /// Forgets a pod that will not be created.
    pub(crate) fn forget(&mut self, pod: &Pod) {
        self.new.remove(&pod.uid);
        let held = self.held.values_mut().chain([&mut self.refused, &mut self.ready]);
        held.for_each(|pods| pods.retain(|held| held.uid != pod.uid));
    }

    /// The held pods that may be created by now.
    pub(crate) fn take_ready(&mut self) -> Vec<Pod> {
        std::mem::take(&mut self.ready)
    }
}

/// Why a pod that names its node never runs, if it does not: a claim of it is bound only when a scheduler has selected
/// a node for the pod, and no scheduler sees the pod.
pub(crate) fn unbound_claim(pod: &Pod, cluster: &Cluster) -> Option<String> {
    let objects = cluster.objects();
    let names = pod.template.volumes.iter().filter_map(|volume| volume.claim(&pod.name));
    let mut claims =
        names.filter_map(|name| objects.persistent_volume_claims.get(pod.namespace(), &name));
    let waits = claims.find(|claim| {
        let class = objects.storage_classes.get("", &claim.class);
        let waits =
            class.is_some_and(|it| it.binding_mode == VolumeBindingMode::WaitForFirstConsumer);
        waits && claim.volume.is_empty() && claim.selected_node.is_empty()
    })?;
    Some(format!(
        "never runs: it names its node, so no scheduler selects a node for claim {}, which is not bound \
         (WaitForFirstConsumer)",
        waits.name
    ))
}
