//! The steps from one state of a cluster to another. They take a fraction of the state's memory, and the state is rebuilt
//! from them when it is read. Pods are held as bytes, because a cluster has many.
//!
//! Decisions depend on the order of nodes and of the pods on a node, so a version is rebuilt by an engine, in the order in
//! which a relist changes it. Steps are used only if they have rebuilt the version once; nodes, pods, their orders, the
//! sizes of images, other objects and devices are then compared. Steps do not contain Gödel's stores and assumed pods:
//! such versions stay in memory.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use portolan::cache::{Cluster, Config, Engine, NodeInfo, PodInfo, Unavailable, Writer};
use portolan::model::{
    EventError, LabelSelector, Name, Node, Object, ObjectKind, Pod, Template, Timestamp, Uid, node,
};
use portolan_dra::Devices;
use portolan_dra::store::DeviceEvent;
use portolan_k8s::FactChanges;
use serde::{Deserialize, Serialize};

use super::packed::{Packed, PackedUid};
use super::view::State;
use crate::cluster::device_events;

/// What changes from one state to another.
pub(super) struct Steps {
    /// `None` if the facts are equal.
    facts: Option<FactChanges>,
    version: OfVersion,
}

/// What changes from one version to another, in the order in which it is applied.
struct OfVersion {
    /// In list order.
    nodes: Box<[Arc<Node>]>,
    removed_nodes: Box<[Name]>,
    removed_objects: Box<[ObjectKey]>,
    objects: Box<[Object]>,
    devices: Box<[DeviceEvent]>,
    /// Pods that leave before others come. Some of them return.
    left_before: Packed,
    pods: Pods,
    left_after: Packed,
}

/// A kind, a namespace and a name.
type ObjectKey = (ObjectKind, String, String);

/// Pods that are new or differ.
struct Pods {
    /// Each is a [`Placed`].
    all: Packed,
    nodes: Box<[Name]>,
    templates: Box<[Arc<Template>]>,
}

/// A pod, with the indexes of its node and template in the lists of [`Pods`].
#[derive(Serialize, Deserialize)]
struct Placed<'p> {
    #[serde(borrow)]
    uid: PackedUid<'p>,
    name: &'p str,
    node: usize,
    template: usize,
    resource_version: u64,
    start_time: Option<i64>,
    deletion_time: Option<i64>,
}

/// Why a state was not rebuilt.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotRebuilt {
    #[error("the engine failed: {0}")]
    Engine(#[from] Unavailable),
    #[error("a step was refused: {0}")]
    Refused(#[from] EventError),
    #[error("the bytes of a step are damaged: {0}")]
    Damaged(#[from] postcard::Error),
}

impl Steps {
    /// The steps from one state to another, unless they would make another version. The cost is proportional to the
    /// difference and to the numbers of nodes, of other objects and of facts.
    pub(super) fn between(before: &State, after: &State) -> Option<Steps> {
        let version = OfVersion::between(&before.cluster, &after.cluster)?;
        let facts = (!Arc::ptr_eq(&before.facts, &after.facts))
            .then(|| after.facts.changes_since(&before.facts))
            .filter(|changes| !changes.is_empty());
        Some(Steps { facts, version })
    }

    /// The number of steps, to which the cost of applying them is proportional.
    pub(super) fn len(&self) -> usize {
        self.facts.as_ref().map_or(0, FactChanges::len) + self.version.len()
    }

    /// Rebuilds a state from another one. O(steps), and O(facts) if these differ. The facts lack
    /// [`PodFacts::classes`](portolan_k8s::PodFacts::classes), which only the audit of the newest reading needs.
    pub(super) fn rebuild(from: State, steps: &[Arc<Steps>]) -> Result<State, NotRebuilt> {
        if steps.is_empty() {
            return Ok(from);
        }
        let rebuilt = Engine::at(&from.cluster, Config::default()).with_writer(|writer| {
            steps.iter().try_for_each(|steps| steps.version.apply(writer))?;
            writer.publish();
            Ok::<_, NotRebuilt>(writer.snapshot())
        });
        let cluster = rebuilt??;
        let mut changes = steps.iter().filter_map(|steps| steps.facts.as_ref()).peekable();
        let facts = match changes.peek() {
            None => from.facts,
            Some(_) => from.facts.after(changes).into(),
        };
        Ok(State { cluster, facts })
    }
}

impl OfVersion {
    fn between(before: &Cluster, after: &Cluster) -> Option<OfVersion> {
        if after.godel().is_some() || after.assumed_count() > 0 {
            return None;
        }
        let names = differing(before, after);
        let steps = OfVersion::of(before, after, &names)?;
        let is_rebuilt = Engine::at(before, Config::default())
            .with_writer(|writer| steps.apply(writer).is_ok() && is_equal(writer.cluster(), after));
        is_rebuilt.is_ok_and(|it| it).then_some(steps)
    }

    /// The steps, of which the pods are on the nodes with these names.
    fn of(before: &Cluster, after: &Cluster, names: &BTreeSet<Name>) -> Option<OfVersion> {
        let of_ghosts = [of_ghosts(before), of_ghosts(after)];
        let of_node = |name| [on(name, before, &of_ghosts[0]), on(name, after, &of_ghosts[1])];
        let of_nodes: Vec<[Vec<PodInfo<'_>>; 2]> = names.iter().map(of_node).collect();
        let uids = |at: usize| -> HashSet<Uid> {
            of_nodes.iter().flat_map(|pods| &pods[at]).map(PodInfo::uid).collect()
        };
        let stays = &uids(0) & &uids(1);
        let (mut left_before, mut left_after, mut put) = (vec![], vec![], vec![]);
        for [old, new] in &of_nodes {
            let of_node = OfNode::of(old, new, &stays);
            left_before.extend(of_node.left_before);
            left_after.extend(of_node.left_after);
            put.extend(of_node.put);
        }
        let packed = |uids: Vec<Uid>| Packed::of(uids.into_iter().map(PackedUid::from)).ok();
        let pods = Pods::of(&put).ok()?;
        let object =
            |of: &Cluster, name: &Name| of.node(name).and_then(|node| node.node().cloned());
        let differs = |name: &&Name| object(before, name) != object(after, name);
        let (exist, removed): (Vec<&Name>, Vec<&Name>) =
            names.iter().filter(differs).partition(|name| after.node(name).is_some());
        let put: HashSet<&Name> = exist.into_iter().collect();
        let mut nodes = Vec::new();
        if !put.is_empty() {
            let put = after.nodes().filter(|node| put.contains(node.name()));
            nodes.extend(put.filter_map(|node| node.node().cloned()));
        }
        let mut removed_nodes: Vec<Name> = removed.into_iter().cloned().collect();
        if let Some(first) = with_first_sizes(&nodes, after) {
            removed_nodes.push(first.name.clone());
            nodes.insert(0, first.into());
        }
        let (removed_objects, objects) = objects_between(before, after);
        Some(OfVersion {
            nodes: nodes.into(),
            removed_nodes: removed_nodes.into(),
            removed_objects: removed_objects.into(),
            objects: objects.into(),
            devices: devices_between(before, after)?.into(),
            left_before: packed(left_before)?,
            pods,
            left_after: packed(left_after)?,
        })
    }

    fn len(&self) -> usize {
        let OfVersion { nodes, removed_nodes, removed_objects, objects, devices, .. } = self;
        let others = nodes.len() + removed_nodes.len() + removed_objects.len() + objects.len();
        let left = self.left_before.len() + self.left_after.len();
        others + devices.len() + left + self.pods.all.len()
    }

    /// Applies the steps to the version that they begin with, or to one that equals it.
    fn apply(&self, to: &mut Writer) -> Result<(), NotRebuilt> {
        for (kind, namespace, name) in &self.removed_objects {
            to.delete_object(*kind, namespace, name)?;
        }
        for object in &self.objects {
            to.put_object(object.clone())?;
        }
        for event in &self.devices {
            to.change::<Devices>(event.clone())?;
        }
        for node in &self.nodes {
            to.update_node(node.clone())?;
        }
        for name in &self.removed_nodes {
            to.remove_node(name.clone())?;
        }
        remove(&self.left_before, to)?;
        for pod in self.pods.iter() {
            let pod = pod?;
            match to.cluster().pod(&pod.uid) {
                Some(_) => to.update_pod(&pod.uid.clone(), pod)?,
                None => to.add_pod(pod)?,
            };
        }
        remove(&self.left_after, to)
    }
}

fn remove(pods: &Packed, from: &mut Writer) -> Result<(), NotRebuilt> {
    for uid in pods.iter::<PackedUid<'_>>() {
        let uid = uid?.into();
        let known = from.cluster().pod(&uid).map(|pod| pod.to_pod());
        from.remove_pod(&known.ok_or(EventError::NotFound { uid })?)?;
    }
    Ok(())
}

/// The steps of the pods of one node.
struct OfNode<'p, 'c> {
    left_before: Vec<Uid>,
    put: Vec<&'p PodInfo<'c>>,
    left_after: Vec<Uid>,
}

impl<'p, 'c> OfNode<'p, 'c> {
    /// The steps from the old list to the new one. `stays` has the pods that stay on some node.
    ///
    /// A pod that comes is appended, and the last pod takes the position of one that leaves. A relist updates pods, then
    /// adds others, and then removes pods. If that does not explain the new list, the end that differs is built anew.
    fn of(old: &[PodInfo<'c>], new: &'p [PodInfo<'c>], stays: &HashSet<Uid>) -> OfNode<'p, 'c> {
        OfNode::by_relist(old, new, stays).unwrap_or_else(|| {
            let is_same = |(old, new): &(&PodInfo<'_>, &PodInfo<'_>)| is_revision(old, new);
            let same = old.iter().zip(new).take_while(is_same).count();
            let differs = |(old, new): &(&PodInfo<'_>, &PodInfo<'_>)| !has_same_object(old, new);
            let revised = old[..same].iter().zip(&new[..same]).filter(differs);
            let put = revised.map(|(_, new)| new).chain(&new[same..]).collect();
            let left_before = old[same..].iter().rev().map(PodInfo::uid).collect();
            OfNode { left_before, put, left_after: Vec::new() }
        })
    }

    fn by_relist(
        old: &[PodInfo<'c>],
        new: &'p [PodInfo<'c>],
        stays: &HashSet<Uid>,
    ) -> Option<OfNode<'p, 'c>> {
        let uids: HashSet<Uid> = new.iter().map(PodInfo::uid).collect();
        let left: Vec<usize> =
            (0..old.len()).filter(|at| !uids.contains(&old[*at].uid())).collect();
        let left_after: Vec<Uid> = left.iter().map(|at| old[*at].uid()).collect();
        // The positions of the old pods, and behind them of those that come.
        let mut list: Vec<usize> = (0..new.len() + left.len()).collect();
        for leaving in &left {
            let at = list.iter().position(|at| at == leaving)?;
            list.swap_remove(at);
        }
        let mut come = vec![None; list.len().saturating_sub(old.len() - left.len())];
        let mut put = Vec::new();
        for (pod, at) in new.iter().zip(list) {
            match old.get(at) {
                Some(old) if !is_revision(old, pod) => return None,
                Some(old) => put.extend((!has_same_object(old, pod)).then_some(pod)),
                None => *come.get_mut(at - old.len())? = Some(pod),
            }
        }
        let come = come.into_iter().collect::<Option<Vec<&PodInfo<'_>>>>()?;
        let has_moved = |uid: &Uid| stays.contains(uid);
        if left_after.iter().any(has_moved) {
            return None;
        }
        put.extend(come);
        Some(OfNode { left_before: Vec::new(), put, left_after })
    }
}

impl Pods {
    /// The pods of a node must come one after the other.
    fn of(pods: &[&PodInfo<'_>]) -> postcard::Result<Pods> {
        let (mut nodes, mut templates): (Vec<Name>, Vec<Arc<Template>>) = (vec![], vec![]);
        let mut known = HashMap::new();
        let all = Packed::of(pods.iter().map(|pod| {
            let node = pod.node().name();
            if nodes.last() != Some(node) {
                nodes.push(node.clone());
            }
            let template = *known.entry(Arc::as_ptr(pod.template())).or_insert_with(|| {
                templates.push(pod.template().clone());
                templates.len() - 1
            });
            Placed {
                uid: pod.uid().into(),
                name: pod.name(),
                node: nodes.len() - 1,
                template,
                resource_version: pod.resource_version(),
                start_time: pod.start_time().map(|time| time.0),
                deletion_time: pod.deletion_time().map(|time| time.0),
            }
        }))?;
        Ok(Pods { all, nodes: nodes.into(), templates: templates.into() })
    }

    fn iter(&self) -> impl Iterator<Item = postcard::Result<Pod>> {
        fn at<T>(list: &[T], index: usize) -> postcard::Result<&T> {
            list.get(index).ok_or(postcard::Error::DeserializeBadEncoding)
        }
        self.all.iter().map(|placed| {
            let placed: Placed<'_> = placed?;
            Ok(Pod {
                uid: placed.uid.into(),
                name: placed.name.into(),
                template: at(&self.templates, placed.template)?.clone(),
                resource_version: placed.resource_version,
                node_name: Some(at(&self.nodes, placed.node)?.clone()),
                nominated_node_name: None,
                creation_time: None,
                start_time: placed.start_time.map(Timestamp),
                deletion_time: placed.deletion_time.map(Timestamp),
                claim_statuses: None,
                finished: false,
            })
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

/// The names of the nodes that may differ, whether they exist or not. O(nodes + pods of nodes that were touched), or
/// O(pods) if a node is missing.
fn differing(before: &Cluster, after: &Cluster) -> BTreeSet<Name> {
    let mut names: BTreeSet<Name> = BTreeSet::new();
    for version in [before, after] {
        names.extend(of_ghosts(version).into_keys().cloned());
    }
    let gone = before.nodes().filter(|node| after.node(node.name()).is_none());
    let differs = |node: &NodeInfo<'_>| {
        before.node(node.name()).is_none_or(|before| !node.is_interchangeable(before))
    };
    names.extend(gone.chain(after.nodes().filter(differs)).map(|node| node.name().clone()));
    names
}

/// A node with the images that these nodes report with other sizes than the version has. An engine keeps the size that it
/// learns first.
fn with_first_sizes(nodes: &[Arc<Node>], of: &Cluster) -> Option<Node> {
    let reported = nodes.iter().flat_map(|node| &node.images);
    let reported = reported.flat_map(|image| image.names.iter().map(|name| (name, image.size)));
    let known: BTreeMap<&Name, i64> = reported
        .filter_map(|(name, size)| {
            Some((name, of.image_size(name).filter(|known| *known != size)?))
        })
        .collect();
    // No node of a cluster has this name.
    let node = known
        .into_iter()
        .fold(node("first sizes"), |node, (name, size)| node.image([name.clone()], size));
    let node = node.build();
    (!node.images.is_empty()).then_some(node)
}

/// The pods on a node, whether it exists or not, in their order.
fn on<'c>(
    node: &Name,
    cluster: &'c Cluster,
    of_ghosts: &BTreeMap<&Name, Vec<PodInfo<'c>>>,
) -> Vec<PodInfo<'c>> {
    let of_ghost = of_ghosts.get(node).into_iter().flatten().copied();
    cluster.node(node).into_iter().flat_map(NodeInfo::pods).chain(of_ghost).collect()
}

/// Whether an update leaves the pod at its position.
fn is_revision(old: &PodInfo<'_>, new: &PodInfo<'_>) -> bool {
    old.uid() == new.uid() && old.name() == new.name() && old.template() == new.template()
}

fn has_same_object(one: &PodInfo<'_>, other: &PodInfo<'_>) -> bool {
    one.name() == other.name()
        && one.template() == other.template()
        && one.resource_version() == other.resource_version()
        && one.start_time() == other.start_time()
        && one.deletion_time() == other.deletion_time()
}

/// The keys of the other objects that are gone, and those that are new or differ. O(objects) if any may.
fn objects_between(before: &Cluster, after: &Cluster) -> (Vec<ObjectKey>, Vec<Object>) {
    let (mut gone, mut put) = (Vec::new(), Vec::new());
    if std::ptr::eq(before.objects(), after.objects()) {
        return (gone, put);
    }
    for kind in ObjectKind::ALL {
        let mut known: HashSet<(String, String)> = before.object_keys(kind).into_iter().collect();
        for (namespace, name) in after.object_keys(kind) {
            let new = after.object(kind, &namespace, &name);
            if new != before.object(kind, &namespace, &name) {
                put.extend(new);
            }
            known.remove(&(namespace, name));
        }
        gone.extend(known.into_iter().map(|(namespace, name)| (kind, namespace, name)));
    }
    (gone, put)
}

/// What changes in the store of devices, unless only one version has such a store.
fn devices_between(before: &Cluster, after: &Cluster) -> Option<Vec<DeviceEvent>> {
    match (before.store::<Devices>(), after.store::<Devices>()) {
        (Ok(before), Ok(after)) if std::ptr::eq(before, after) => Some(Vec::new()),
        (Ok(before), Ok(after)) => Some(device_events(before, after)),
        (before, after) => (before.is_ok() == after.is_ok()).then(Vec::new),
    }
}

/// Whether a rebuilt version is the real one. O(nodes + pods of nodes that were touched), or O(pods) if a node is missing.
fn is_equal(rebuilt: &Cluster, real: &Cluster) -> bool {
    let counts = |of: &Cluster| [of.len(), of.node_count(), of.pod_count(), of.assumed_count()];
    let is_same_node = |(one, other): (NodeInfo<'_>, NodeInfo<'_>)| one.is_interchangeable(other);
    let ghosts = |of| of_ghosts(of).into_values().flatten();
    let is_same_pod = |(one, other): (PodInfo<'_>, PodInfo<'_>)| {
        one.node().name() == other.node().name()
            && one.uid() == other.uid()
            && has_same_object(&one, &other)
    };
    counts(rebuilt) == counts(real)
        && rebuilt.nodes().zip(real.nodes()).all(is_same_node)
        && ghosts(rebuilt).zip(ghosts(real)).all(is_same_pod)
        && objects_between(rebuilt, real) == (vec![], vec![])
        && devices_between(rebuilt, real).is_some_and(|events| events.is_empty())
}

#[cfg(test)]
mod tests {
    use portolan::model::{PodDisruptionBudget, pod};

    use super::*;

    /// Nodes a and b with an image and pods, empty nodes c and d, and pods on x, which does not exist.
    fn writer() -> Writer {
        let (mut writer, _) = Engine::inline(Config::default());
        for (name, size) in [("a", 1), ("b", 2), ("c", 0), ("d", 0)] {
            let node = node(name).cpu(8_000);
            let node = if size == 0 { node } else { node.image(["image"], size) };
            writer.add_node(node.build()).expect("accepted");
        }
        for (name, node) in [("p", "a"), ("q", "a"), ("g", "x"), ("h", "x")] {
            writer.add_pod(on(name, node)).expect("accepted");
        }
        writer.put_object(budget(1)).expect("accepted");
        writer
    }

    fn on(name: &str, node: &str) -> Pod {
        pod(name).uid(name).cpu(100).on(node).build()
    }

    fn budget(disruptions_allowed: i32) -> PodDisruptionBudget {
        let (namespace, name) = ("default".into(), "budget".into());
        PodDisruptionBudget { namespace, name, disruptions_allowed, ..Default::default() }
    }

    fn add_again(pod: &Pod, to: &mut Writer) {
        to.remove_pod(pod).expect("accepted");
        to.add_pod(pod.clone()).expect("accepted");
    }

    fn renew(pod: Pod, of: &mut Writer) {
        let newer = Pod { resource_version: 7, ..pod.clone() };
        of.update_pod(&pod.uid, newer).expect("accepted");
    }

    #[test]
    fn versions_are_equal_only_if_decisions_cannot_tell_them_apart() {
        type Change = (&'static str, fn(&mut Writer));
        let changes: [Change; 8] = [
            ("the order of nodes", |to| {
                to.remove_node("c").expect("accepted");
                to.add_node(node("c").cpu(8_000).build()).expect("accepted");
            }),
            ("the size of an image", |to| {
                for (name, sizes) in [("a", &[][..]), ("b", &[]), ("b", &[2]), ("a", &[1])] {
                    let with = |node: portolan::model::NodeBuilder, size: &i64| {
                        node.image(["image"], *size)
                    };
                    let node = sizes.iter().fold(node(name).cpu(8_000), with);
                    to.update_node(node.build()).expect("accepted");
                }
            }),
            ("a node", |to| {
                to.update_node(node("d").cpu(9_000).build()).expect("accepted");
            }),
            ("the order of pods", |to| add_again(&on("p", "a"), to)),
            ("a pod", |to| renew(on("p", "a"), to)),
            ("the order of pods without a node", |to| add_again(&on("g", "x"), to)),
            ("a pod without a node", |to| renew(on("g", "x"), to)),
            ("an object", |to| {
                to.put_object(budget(2)).expect("accepted");
            }),
        ];
        let (real, same) = (writer(), writer());
        assert!(is_equal(same.cluster(), real.cluster()));
        for (what, change) in changes {
            let mut other = writer();
            change(&mut other);
            assert!(!is_equal(other.cluster(), real.cluster()), "{what}");
        }
    }
}
