//! The steps from one state of a cluster to the next. They take a fraction of the state's memory, and the state is rebuilt
//! from them when it is read.
//!
//! Steps are used only if they have rebuilt the version once. The nodes, their list order, the pods and the devices are
//! then compared; other objects and the order of the pods on a node are not, and no answer may depend on that order.
//! Steps do not contain Gödel's stores and assumed pods: such versions are held whole.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use portolan::cache::{ChangeKind, Cluster, Fork, NodeInfo, PodInfo};
use portolan::model::{
    EventError, LabelSelector, Name, Node, Object, ObjectKind, Pod, Template, Timestamp, Uid,
};
use portolan_dra::Devices;
use portolan_dra::store::DeviceEvent;
use portolan_k8s::FactChanges;

use super::view::{Reading, State};
use crate::cluster::device_events;

/// What changes from one state to the next.
pub(super) struct Steps {
    /// `None` if the facts are equal.
    facts: Option<FactChanges>,
    version: OfVersion,
}

/// What changes from one version to the next, in the order in which it is applied.
struct OfVersion {
    removed_nodes: Box<[Name]>,
    /// In list order.
    nodes: Box<[Arc<Node>]>,
    removed_objects: Box<[(ObjectKind, String, String)]>,
    objects: Box<[Object]>,
    devices: Box<[DeviceEvent]>,
    /// The pods that are gone or have moved.
    removed_pods: Box<[Uid]>,
    pods: Pods,
}

/// Pods that are new or differ.
#[derive(Default)]
struct Pods {
    all: Vec<Placed>,
    /// The names of all pods, one after the other.
    names: String,
    nodes: Vec<Name>,
    templates: Vec<Arc<Template>>,
}

/// A pod. What several pods have in common is in the lists of [`Pods`].
struct Placed {
    uid: Uid,
    /// Where the name ends.
    name_end: u32,
    node: u32,
    template: u32,
    resource_version: u64,
    start_time: Option<Timestamp>,
    deletion_time: Option<Timestamp>,
}

impl Steps {
    /// The steps from one state to a later one, unless they would make another version. The cost is proportional to the
    /// difference and to the numbers of nodes, of other objects and of facts.
    pub(super) fn between(before: &Reading, after: &Reading) -> Option<Steps> {
        let version = OfVersion::between(before.cluster(), after.cluster())?;
        let facts = (!Arc::ptr_eq(before.facts(), after.facts()))
            .then(|| after.facts().changes_since(before.facts()))
            .filter(|changes| !changes.is_empty());
        Some(Steps { facts, version })
    }

    /// The number of steps, to which the cost of applying them is proportional.
    pub(super) fn len(&self) -> usize {
        self.facts.as_ref().map_or(0, FactChanges::len) + self.version.len()
    }

    /// Makes a state by the steps after another one. O(steps), and O(facts) if these differ. The facts lack the pods of
    /// classes, of which only the audit of the newest reading asks.
    pub(super) fn make(from: State, steps: &[Arc<Steps>]) -> Result<State, EventError> {
        if steps.is_empty() {
            return Ok(from);
        }
        let mut fork = from.cluster.fork();
        steps.iter().try_for_each(|steps| steps.version.apply(&mut fork))?;
        let mut changes = steps.iter().filter_map(|steps| steps.facts.as_ref()).peekable();
        let facts = match changes.peek() {
            None => from.facts,
            Some(_) => from.facts.after(changes).into(),
        };
        Ok(State { cluster: fork.snapshot(), facts })
    }
}

impl OfVersion {
    fn between(before: &Cluster, after: &Cluster) -> Option<OfVersion> {
        if after.godel().is_some() {
            return None;
        }
        let steps = OfVersion::of(before, after)?;
        let mut made = before.fork();
        steps.apply(&mut made).ok()?;
        is_equal(&made, after).then_some(steps)
    }

    fn of(before: &Cluster, after: &Cluster) -> Option<OfVersion> {
        let mut removed_nodes = Vec::new();
        let mut put_nodes: HashSet<Name> = HashSet::new();
        let (mut removed_pods, mut pods) = (Vec::new(), Pods::default());
        let mut templates = HashMap::new();
        let (of_ghosts_before, of_ghosts) = (of_ghosts(before), of_ghosts(after));
        let ghosts = of_ghosts_before.keys().chain(of_ghosts.keys()).copied();
        let mut names: BTreeSet<Name> = ghosts.cloned().collect();
        for change in after.diff(before) {
            let object = |of: &Cluster| of.node(&change.name).and_then(|node| node.node().cloned());
            if change.kind == ChangeKind::Removed {
                removed_nodes.push(change.name.clone());
            } else if object(before) != object(after) {
                put_nodes.insert(change.name.clone());
            }
            names.insert(change.name);
        }
        for name in &names {
            let known: HashMap<Uid, PodInfo<'_>> = on(name, before, &of_ghosts_before).collect();
            let mut stays: HashSet<Uid> = HashSet::new();
            for (uid, pod) in on(name, after, &of_ghosts) {
                let is_same = known.get(&uid).is_some_and(|old| has_same_object(old, &pod));
                stays.insert(uid);
                if !is_same {
                    pods.push(&pod, &mut templates)?;
                }
            }
            removed_pods.extend(known.into_keys().filter(|uid| !stays.contains(uid)));
        }
        let mut nodes = Vec::new();
        if !put_nodes.is_empty() {
            let put = after.nodes().filter(|node| put_nodes.contains(node.name()));
            nodes.extend(put.filter_map(|node| node.node().cloned()));
        }
        let (mut removed_objects, mut objects) = (Vec::new(), Vec::new());
        for &kind in kinds(before, after) {
            let mut known: HashSet<(String, String)> =
                before.object_keys(kind).into_iter().collect();
            for (namespace, name) in after.object_keys(kind) {
                let new = after.object(kind, &namespace, &name);
                if new != before.object(kind, &namespace, &name) {
                    objects.extend(new);
                }
                known.remove(&(namespace, name));
            }
            let gone = known.into_iter().map(|(namespace, name)| (kind, namespace, name));
            removed_objects.extend(gone);
        }
        Some(OfVersion {
            removed_nodes: removed_nodes.into(),
            nodes: nodes.into(),
            removed_objects: removed_objects.into(),
            objects: objects.into(),
            devices: devices_between(before, after)?.into(),
            removed_pods: removed_pods.into(),
            pods: pods.fitted(),
        })
    }

    fn len(&self) -> usize {
        let OfVersion { removed_nodes, nodes, removed_objects, objects, .. } = self;
        let others = removed_nodes.len() + nodes.len() + removed_objects.len() + objects.len();
        others + self.devices.len() + self.removed_pods.len() + self.pods.all.len()
    }

    /// Applies the steps to a fork of the version that they begin with, or of one that equals it.
    fn apply(&self, fork: &mut Fork) -> Result<(), EventError> {
        for name in &self.removed_nodes {
            fork.remove_node(name)?;
        }
        for node in &self.nodes {
            fork.add_node(Node::clone(node))?;
        }
        for (kind, namespace, name) in &self.removed_objects {
            fork.delete_object(*kind, namespace, name)?;
        }
        for object in &self.objects {
            fork.put_object(object.clone())?;
        }
        for event in &self.devices {
            fork.change::<Devices>(event.clone())?;
        }
        for uid in &self.removed_pods {
            fork.remove_pod(uid)?;
        }
        self.pods.iter().try_for_each(|pod| fork.add_pod(&pod))
    }
}

impl Pods {
    /// Adds a pod, unless there are too many. Those of a node come one after the other.
    fn push(&mut self, pod: &PodInfo<'_>, known: &mut HashMap<*const Template, u32>) -> Option<()> {
        let template = match known.entry(Arc::as_ptr(pod.template())) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                self.templates.push(pod.template().clone());
                *new.insert(u32::try_from(self.templates.len() - 1).ok()?)
            }
        };
        let node = pod.node().name();
        if self.nodes.last() != Some(node) {
            self.nodes.push(node.clone());
        }
        self.names.push_str(pod.name());
        self.all.push(Placed {
            uid: pod.uid(),
            name_end: u32::try_from(self.names.len()).ok()?,
            node: u32::try_from(self.nodes.len() - 1).ok()?,
            template,
            resource_version: pod.resource_version(),
            start_time: pod.start_time(),
            deletion_time: pod.deletion_time(),
        });
        Some(())
    }

    /// The same pods without spare memory.
    fn fitted(mut self) -> Pods {
        self.all.shrink_to_fit();
        self.names.shrink_to_fit();
        self.nodes.shrink_to_fit();
        self.templates.shrink_to_fit();
        self
    }

    fn iter(&self) -> impl Iterator<Item = Pod> {
        let mut begin = 0;
        self.all.iter().map(move |placed| {
            let end = placed.name_end as usize;
            let name = &self.names[begin..end];
            begin = end;
            Pod {
                uid: placed.uid.clone(),
                name: name.into(),
                template: self.templates[placed.template as usize].clone(),
                resource_version: placed.resource_version,
                node_name: Some(self.nodes[placed.node as usize].clone()),
                nominated_node_name: None,
                creation_time: None,
                start_time: placed.start_time,
                deletion_time: placed.deletion_time,
                claim_statuses: None,
                finished: false,
            }
        })
    }
}

/// The pods on nodes that do not exist, by these nodes. O(pods) if there are any.
fn of_ghosts(cluster: &Cluster) -> BTreeMap<&Name, Vec<PodInfo<'_>>> {
    let mut by = BTreeMap::new();
    if cluster.node_count() > cluster.len() {
        for pod in cluster.pods(&LabelSelector::everything(), |pod| pod.node().node().is_none()) {
            by.entry(pod.node().name()).or_insert_with(Vec::new).push(pod);
        }
    }
    by
}

/// The pods on nodes that do not exist, which are in no difference of versions.
fn uids_of_ghosts(cluster: &Cluster) -> HashSet<(&Name, Uid)> {
    let of_ghosts = of_ghosts(cluster).into_iter();
    of_ghosts.flat_map(|(name, pods)| pods.into_iter().map(move |pod| (name, pod.uid()))).collect()
}

/// The pods on a node, whether it exists or not.
fn on<'c>(
    node: &Name,
    cluster: &'c Cluster,
    of_ghosts: &BTreeMap<&Name, Vec<PodInfo<'c>>>,
) -> impl Iterator<Item = (Uid, PodInfo<'c>)> {
    let of_ghost = of_ghosts.get(node).into_iter().flatten().copied().collect::<Vec<_>>();
    let of_node = cluster.node(node).into_iter().flat_map(NodeInfo::pods);
    of_node.chain(of_ghost).map(|pod| (pod.uid(), pod))
}

fn has_same_object(one: &PodInfo<'_>, other: &PodInfo<'_>) -> bool {
    one.name() == other.name()
        && one.template() == other.template()
        && one.resource_version() == other.resource_version()
        && one.start_time() == other.start_time()
        && one.deletion_time() == other.deletion_time()
}

/// The kinds of objects that may differ.
fn kinds(before: &Cluster, after: &Cluster) -> &'static [ObjectKind] {
    match std::ptr::eq(before.objects(), after.objects()) {
        true => &[],
        false => &ObjectKind::ALL,
    }
}

/// What changes in the store of devices, unless only one version has such a store.
fn devices_between(before: &Cluster, after: &Cluster) -> Option<Vec<DeviceEvent>> {
    match (before.store::<Devices>(), after.store::<Devices>()) {
        (Ok(before), Ok(after)) if std::ptr::eq(before, after) => Some(Vec::new()),
        (Ok(before), Ok(after)) => Some(device_events(before, after)),
        (before, after) => (before.is_ok() == after.is_ok()).then(Vec::new),
    }
}

/// Whether a version that was made by steps is the real one.
fn is_equal(made: &Cluster, real: &Cluster) -> bool {
    let counts = |of: &Cluster| (of.node_count(), of.pod_count(), of.assumed_count());
    counts(made) == counts(real)
        && real.diff(made).is_empty()
        && uids_of_ghosts(real) == uids_of_ghosts(made)
        && real.nodes().map(|node| node.name()).eq(made.nodes().map(|node| node.name()))
        && devices_between(made, real).is_some_and(|events| events.is_empty())
}
