//! Preemption candidates: the pods of a node sorted by importance, with suffix sums of their requests.
//!
//! For hundreds of nodes, preemption asks what would be free if all pods below a priority were evicted, and then
//! reprieves those pods one after the other. Gödel keeps the pods in splay trees, which rotate while they are read.
//! Here they are in one sorted array that never changes. Each entry stores the requests of its pod plus those of all
//! less important pods, so the sum over any contiguous run of pods is one subtraction. An index is built on first use
//! and cached with the node's pods (see `tally`), so writers do no work for it.
//!
//! Sums belong to one account. If all pods are requested, that is the account of guaranteed pods, and best-effort pods
//! contribute only to the number of pods. If the pods of one class are requested, it is the account of that class. If a
//! node has best-effort pods, each class has its own arrays.

use std::cmp::Reverse;
use std::ops::{Bound, RangeBounds};

use crate::model::{Bytes, MilliCpu, PodClass, PodState, Resources, Scalars, Timestamp};

use super::chunk::ResourceId;
use super::cluster::Cluster;
use super::node_info::{NodeInfo, PodInfo};

/// A node's preemptible pods, most important first.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct VictimIndex {
    entries: Box<[Entry]>,
    /// For each scalar resource that any of the pods requests: the requests of the pod at a position and all pods after
    /// it. There is one more position than there are pods.
    scalars: Vec<(ResourceId, Box<[i64]>)>,
    /// Whether no request is negative, so that a partial sum never exceeds the sum over all pods.
    is_plain: bool,
    /// Separate indexes of the guaranteed and the best-effort pods; `None` if all pods are guaranteed.
    by_class: Option<Box<[VictimIndex; 2]>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    priority: i32,
    /// The pod's index among the node's pods.
    place: u32,
    start: Option<Timestamp>,
    /// The requests of this pod and all after it.
    sums: Sums,
}

/// Sums wrap, as those of a node do; a result is exact if the true sum fits in 64 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    cpu: i64,
    memory: i64,
    ephemeral_storage: i64,
}

impl Sums {
    fn plus(self, other: Sums) -> Sums {
        Sums {
            cpu: self.cpu.wrapping_add(other.cpu),
            memory: self.memory.wrapping_add(other.memory),
            ephemeral_storage: self.ephemeral_storage.wrapping_add(other.ephemeral_storage),
        }
    }

    fn minus(self, other: Sums) -> Sums {
        Sums {
            cpu: self.cpu.wrapping_sub(other.cpu),
            memory: self.memory.wrapping_sub(other.memory),
            ephemeral_storage: self.ephemeral_storage.wrapping_sub(other.ephemeral_storage),
        }
    }

    fn of(resources: &Resources) -> Sums {
        Sums {
            cpu: resources.cpu.0,
            memory: resources.memory.0,
            ephemeral_storage: resources.ephemeral_storage.0,
        }
    }

    fn is_negative(self) -> bool {
        self.cpu < 0 || self.memory < 0 || self.ephemeral_storage < 0
    }
}

/// Returns a key that sorts pods by importance, most important first (`MoreImportantPod`): by priority, then by start
/// time. kube-scheduler substitutes the current time for a missing start time and reads the clock at every comparison,
/// so of two pods that have not started the later one in the list sorts first. `at` is the position in that list.
pub(crate) fn importance(
    priority: i32,
    start: Option<Timestamp>,
    at: u32,
) -> (Reverse<i32>, bool, Option<Timestamp>, u32) {
    let at = if start.is_none() { u32::MAX - at } else { at };
    (Reverse(priority), start.is_none(), start, at)
}

impl VictimIndex {
    /// Builds the index of a node. O(pods × log pods).
    pub(super) fn of(node: NodeInfo<'_>) -> VictimIndex {
        let mut is_mixed = false;
        let mut index = VictimIndex::ranked(node, PodClass::Guaranteed, |class| {
            is_mixed |= class == PodClass::BestEffort;
            true
        });
        let ranked = |class| VictimIndex::ranked(node, class, |other| other == class);
        index.by_class = is_mixed.then(|| Box::new(CLASSES.map(ranked)));
        index
    }

    /// Builds the index of the preemptible pods whose class `keep` accepts, with the sums of `class`.
    fn ranked(
        node: NodeInfo<'_>,
        class: PodClass,
        mut keep: impl FnMut(PodClass) -> bool,
    ) -> VictimIndex {
        let mut entries: Vec<Entry> = Vec::with_capacity(node.pod_count());
        let mut with_scalars = Vec::new();
        let mut is_plain = true;
        for (place, pod) in node.pods().enumerate() {
            let template = pod.template();
            if !may_be_preempted(node.cluster(), pod) || !keep(template.class) {
                continue;
            }
            let nothing = Resources::default();
            let requests = match template.class == class {
                true => &template.resources.placed,
                false => &nothing,
            };
            let (place, sums) = (place as u32, Sums::of(requests));
            is_plain &= !sums.is_negative();
            for (name, amount) in requests.scalars.iter().filter(|(_, amount)| *amount != 0) {
                is_plain &= amount > 0;
                let resource = node.cluster().resource_id(name);
                with_scalars.extend(resource.map(|resource| (resource, place, amount)));
            }
            let (priority, start) = (template.priority, pod.start_time());
            entries.push(Entry { priority, place, start, sums });
        }
        entries.sort_unstable_by_key(|entry| importance(entry.priority, entry.start, entry.place));
        let mut sums = Sums::default();
        for entry in entries.iter_mut().rev() {
            sums = sums.plus(entry.sums);
            entry.sums = sums;
        }
        let scalars = sums_of_scalars(&entries, with_scalars);
        VictimIndex { entries: entries.into(), scalars, is_plain, by_class: None }
    }

    fn sums(&self, at: usize) -> Sums {
        self.entries.get(at).map_or(Sums::default(), |entry| entry.sums)
    }
}

/// The classes in the order of [`VictimIndex::by_class`].
const CLASSES: [PodClass; 2] = [PodClass::Guaranteed, PodClass::BestEffort];

/// Returns whether preemption may evict a pod. Kubernetes requires only a lower priority. Gödel never preempts a pod
/// that is not yet bound, nor a placeholder (framework/api/nodeinfo_podinfo.go). If reservations are enabled,
/// preempting a pod that would leave a reservation or reopen one would free no resources, so such a pod is excluded
/// too.
fn may_be_preempted(cluster: &Cluster, pod: PodInfo<'_>) -> bool {
    if cluster.godel().is_none() {
        return true;
    }
    let template = pod.template();
    let leaves_a_place = cluster.reservations().is_some() && template.keeps_its_room();
    pod.state() == PodState::Bound && !template.is_placeholder() && !leaves_a_place
}

/// Computes the suffix sums of scalar resources from (resource, index of the pod on the node, amount) triples.
fn sums_of_scalars(
    entries: &[Entry],
    mut amounts: Vec<(ResourceId, u32, i64)>,
) -> Vec<(ResourceId, Box<[i64]>)> {
    if amounts.is_empty() {
        return Vec::new();
    }
    amounts.sort_unstable();
    let same = amounts.chunk_by(|one, other| one.0 == other.0);
    let summed = same.map(|amounts| {
        let mut sums = vec![0; entries.len() + 1];
        for (at, entry) in entries.iter().enumerate().rev() {
            let found = amounts.binary_search_by_key(&entry.place, |(_, place, _)| *place);
            sums[at] = found.map_or(0, |found| amounts[found].2).wrapping_add(sums[at + 1]);
        }
        (amounts[0].0, sums.into())
    });
    summed.collect()
}

/// A contiguous run of a node's preemptible pods, sorted by importance. It is a view, and copying it is cheap.
///
/// With [`Config::godel`](crate::cache::Config::godel), only bound pods that hold no reservation are preemptible. Sums
/// are of one account: that of guaranteed pods, unless a class was requested ([`NodeInfo::victims_of`]).
///
/// ```
/// use portolan::cache::{Config, Engine};
/// use portolan::model::{MilliCpu, node, pod};
///
/// let (mut writer, reader) = Engine::inline(Config::default());
/// writer.add_node(node("n1").cpu(4_000).build())?;
/// writer.add_pod(pod("low").cpu(1_000).priority(1).on("n1").build())?;
/// writer.add_pod(pod("high").cpu(2_500).priority(9).on("n1").build())?;
/// writer.publish();
///
/// let snapshot = reader.snapshot();
/// let node = snapshot.node("n1").expect("a node");
/// let lower = node.victims().below(9);
/// assert_eq!(lower.len(), 1);
/// assert_eq!(lower.freed().cpu(), MilliCpu(1_000));
/// assert_eq!(lower.occupiable().cpu, MilliCpu(1_500));
/// # Ok::<(), portolan::model::EventError>(())
/// ```
#[derive(Clone, Copy)]
pub struct Victims<'a> {
    node: NodeInfo<'a>,
    index: &'a VictimIndex,
    /// The class whose account the sums belong to.
    class: PodClass,
    from: usize,
    to: usize,
}

impl<'a> Victims<'a> {
    pub(super) fn new(node: NodeInfo<'a>, index: &'a VictimIndex) -> Victims<'a> {
        let class = PodClass::Guaranteed;
        Victims { node, index, class, from: 0, to: index.entries.len() }
    }

    pub(super) fn of_class(
        node: NodeInfo<'a>,
        index: &'a VictimIndex,
        class: PodClass,
    ) -> Victims<'a> {
        let (index, has_any) = match (&index.by_class, class) {
            (Some(by_class), PodClass::Guaranteed) => (&by_class[0], true),
            (Some(by_class), PodClass::BestEffort) => (&by_class[1], true),
            (None, class) => (index, class == PodClass::Guaranteed),
        };
        let to = if has_any { index.entries.len() } else { 0 };
        Victims { node, index, class, from: 0, to }
    }

    /// Returns the node of these pods.
    #[must_use]
    pub fn node(&self) -> NodeInfo<'a> {
        self.node
    }

    /// Returns the pods of this run with a lower priority than `priority`. O(log n).
    #[must_use]
    pub fn below(self, priority: i32) -> Victims<'a> {
        self.within(..priority)
    }

    /// Returns the pods of this run with a priority in the range. O(log n).
    #[must_use]
    pub fn within(self, priorities: impl RangeBounds<i32>) -> Victims<'a> {
        let entries = &self.index.entries[self.from..self.to];
        let above = |entry: &Entry| match priorities.end_bound() {
            Bound::Included(end) => entry.priority > *end,
            Bound::Excluded(end) => entry.priority >= *end,
            Bound::Unbounded => false,
        };
        let not_below = |entry: &Entry| match priorities.start_bound() {
            Bound::Included(start) => entry.priority >= *start,
            Bound::Excluded(start) => entry.priority > *start,
            Bound::Unbounded => true,
        };
        let from = self.from + entries.partition_point(above);
        let to = self.from + entries.partition_point(not_below);
        Victims { from, to: to.max(from), ..self }
    }

    /// Returns the number of pods.
    #[must_use]
    pub fn len(&self) -> usize {
        self.to - self.from
    }

    /// Returns whether there are no pods.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.from == self.to
    }

    /// Returns the pods, most important first: by priority, then by start time. Pods that have not started come last in
    /// their priority.
    pub fn pods(self) -> impl ExactSizeIterator<Item = PodInfo<'a>> + DoubleEndedIterator {
        (0..self.len()).map(move |at| self.pod(at))
    }

    /// Returns the pod at index `at`, which must be below [`Victims::len`].
    pub(crate) fn pod(&self, at: usize) -> PodInfo<'a> {
        match self.node.pod_at(self.entry(at).place as usize) {
            Some(pod) => pod,
            // The index is discarded before a node's pods change.
            None => unreachable!("the pods of an index are on its node"),
        }
    }

    /// Returns the priority and start time of the pod at this index.
    pub(crate) fn rank(&self, at: usize) -> (i32, Option<Timestamp>) {
        let entry = self.entry(at);
        (entry.priority, entry.start)
    }

    fn entry(&self, at: usize) -> &'a Entry {
        &self.index.entries[self.from..self.to][at]
    }

    /// Returns the total requests of these pods, which evicting them would free. O(1), plus one allocation if they
    /// request scalar resources.
    #[must_use]
    pub fn freed(&self) -> Freed<'a> {
        let scalars = self.index.scalars.iter();
        Freed {
            index: self.index,
            pods: self.len(),
            sums: self.index.sums(self.from).minus(self.index.sums(self.to)),
            scalars: scalars.map(|(_, sums)| sums[self.from].wrapping_sub(sums[self.to])).collect(),
        }
    }

    /// Returns the most that a pod of the class could request on the node if these pods were evicted
    /// (`GetOccupiableResources`): the class's allocatable resources less the requests of its other pods. The number of
    /// pods is not part of it; see [`Victims::occupiable_pods`]. An amount is negative if the other pods exceed what is
    /// allocatable. The class is `Guaranteed` unless another was requested. O(scalar resources of the node).
    #[doc(hidden)]
    #[must_use]
    pub fn occupiable(&self) -> Resources {
        let allocatable = self.node.allocatable_of(self.class);
        let (chunk, at) = self.node.place();
        let account = chunk.account(self.class);
        let freed = self.freed();
        let left = |allocatable: i64, requested: i64, freed: i64| {
            allocatable.saturating_sub(requested.wrapping_sub(freed))
        };
        let scalars = allocatable.scalars.iter().map(|(name, has)| {
            let resource = self.node.cluster().resource_id(name);
            let column = resource.and_then(|resource| account.requested_scalar(resource));
            let freed = resource.map_or(0, |resource| freed.scalar(resource));
            (name.clone(), left(has, column.map_or(0, |column| column[at]), freed))
        });
        let sums = freed.sums;
        let (cpu, memory) = (account.requested_cpu()[at], account.requested_memory()[at]);
        let storage = account.requested_ephemeral_storage()[at];
        Resources {
            cpu: MilliCpu(left(allocatable.cpu.0, cpu, sums.cpu)),
            memory: Bytes(left(allocatable.memory.0, memory, sums.memory)),
            ephemeral_storage: Bytes(left(
                allocatable.ephemeral_storage.0,
                storage,
                sums.ephemeral_storage,
            )),
            scalars: Scalars::new(scalars),
        }
    }

    /// Returns how many more pods the node could run if these pods were evicted and one of the new pods were of the
    /// class.
    #[doc(hidden)]
    #[must_use]
    pub fn occupiable_pods(&self) -> i64 {
        let others = self.node.pod_count() - self.len();
        self.node.allowed_pods_of(self.class).saturating_sub(others as i64)
    }

    /// Returns whether no pod on the node has a negative request.
    pub(crate) fn is_plain(&self) -> bool {
        self.index.is_plain
    }
}

impl std::fmt::Debug for Victims<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.pods()).finish()
    }
}

/// The total requests of some pods of a node in one account (see [`Victims`]), and the number of those pods.
#[derive(Clone, Debug)]
pub struct Freed<'a> {
    index: &'a VictimIndex,
    pods: usize,
    sums: Sums,
    /// Sums in the order of the index's scalar resources.
    scalars: Vec<i64>,
}

impl Freed<'_> {
    /// Returns the number of pods.
    #[must_use]
    pub fn pods(&self) -> usize {
        self.pods
    }

    /// Returns the requested cpu.
    #[must_use]
    pub fn cpu(&self) -> MilliCpu {
        MilliCpu(self.sums.cpu)
    }

    /// Returns the requested memory.
    #[must_use]
    pub fn memory(&self) -> Bytes {
        Bytes(self.sums.memory)
    }

    /// Returns the requested ephemeral storage.
    #[must_use]
    pub fn ephemeral_storage(&self) -> Bytes {
        Bytes(self.sums.ephemeral_storage)
    }

    /// Returns the requested amount of the scalar resource with this number, see
    /// [`Cluster::resource_id`](super::Cluster::resource_id).
    #[must_use]
    pub fn scalar(&self, resource: u32) -> i64 {
        let scalars = self.index.scalars.iter().zip(&self.scalars);
        scalars.into_iter().find(|((id, _), _)| *id == resource).map_or(0, |(_, sum)| *sum)
    }

    /// Subtracts the pod at index `at` of `victims`, which must be of the same node.
    pub(crate) fn keep(&mut self, victims: Victims<'_>, at: usize) {
        let at = victims.from + at;
        self.pods -= 1;
        self.sums = self.sums.minus(self.requests(at));
        for ((_, of), sum) in self.index.scalars.iter().zip(&mut self.scalars) {
            *sum = sum.wrapping_sub(of[at].wrapping_sub(of[at + 1]));
        }
    }

    /// Adds the pod at index `at` of `victims` back.
    pub(crate) fn let_go(&mut self, victims: Victims<'_>, at: usize) {
        let at = victims.from + at;
        self.pods += 1;
        self.sums = self.sums.plus(self.requests(at));
        for ((_, of), sum) in self.index.scalars.iter().zip(&mut self.scalars) {
            *sum = sum.wrapping_add(of[at].wrapping_sub(of[at + 1]));
        }
    }

    /// Returns the requests of the pod at a position of the index.
    fn requests(&self, at: usize) -> Sums {
        self.index.sums(at).minus(self.index.sums(at + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{Config, Engine};
    use crate::model::{Pod, Quantity, Uid, node, pod};

    fn named(name: &str, priority: i32, start: Option<i64>) -> Pod {
        let pod = pod(name).priority(priority).on("n");
        match start {
            Some(start) => pod.started(Timestamp(start)).build(),
            None => pod.build(),
        }
    }

    fn names(victims: Victims<'_>) -> Vec<&str> {
        victims.pods().map(|pod| pod.name()).collect()
    }

    #[test]
    fn pods_that_have_not_started_come_last_in_reverse_order() {
        let (mut writer, _) = Engine::inline(Config::default());
        writer.add_node(node("n").build()).unwrap();
        for pod in [
            named("a", 1, None),
            named("b", 1, Some(7)),
            named("c", 2, None),
            named("d", 1, Some(3)),
            named("e", 1, None),
            named("f", 1, Some(3)),
        ] {
            writer.add_pod(pod).unwrap();
        }
        let victims = writer.cluster().node("n").unwrap().victims();
        assert_eq!(names(victims), ["c", "d", "f", "b", "e", "a"]);
        assert_eq!(names(victims.below(2)), ["d", "f", "b", "e", "a"]);
        assert_eq!(names(victims.within(2..=2)), ["c"]);
        assert!(victims.within(3..).is_empty() && victims.below(1).is_empty());
    }

    /// An index belongs to its version, and a change of one node does not discard another node's index.
    #[test]
    fn an_index_is_reused_until_its_own_node_changes() {
        let (mut writer, reader) = Engine::inline(Config::default());
        for name in ["a", "b"] {
            writer.add_node(node(name).build()).unwrap();
            writer.add_pod(pod(format!("on-{name}")).cpu(100).on(name).build()).unwrap();
        }
        writer.publish();
        let first = reader.snapshot();
        let index = |cluster: &crate::cache::Cluster, name: &str| {
            std::ptr::from_ref(cluster.node(name).unwrap().victims().index)
        };
        let (a, b) = (index(&first, "a"), index(&first, "b"));
        writer.add_pod(pod("more").cpu(20).on("a").build()).unwrap();
        writer.publish();
        let second = reader.snapshot();
        assert_eq!(index(&second, "b"), b);
        assert_ne!(index(&second, "a"), a);
        assert_eq!(index(&first, "a"), a);
        let freed =
            |cluster: &crate::cache::Cluster| cluster.node("a").unwrap().victims().freed().cpu().0;
        assert_eq!((freed(&first), freed(&second)), (100, 120));
        // Computing tallies in between does not discard the indexes.
        for (_, _, chunk) in second.chunk_list() {
            assert_eq!(chunk.tally(&second).by_labels().count(), 1);
        }
        let mut fork = second.fork();
        fork.remove_pod(&Uid::new("default/on-a")).unwrap();
        assert_eq!((freed(&fork), freed(&second)), (20, 120));
        assert_eq!(index(&fork, "b"), b);
    }

    #[test]
    fn reprieved_pods_are_subtracted_and_added_back() {
        let (mut writer, _) = Engine::inline(Config::default());
        writer.add_node(node("n").build()).unwrap();
        for (n, gpus) in [3, 0, 5].into_iter().enumerate() {
            let gpus = Quantity::whole(gpus);
            let pod = pod(format!("p{n}")).priority(n as i32).cpu(1 << n);
            writer.add_pod(pod.request("example.com/gpu", gpus).on("n").build()).unwrap();
        }
        let cluster = writer.cluster();
        let gpu = cluster.resource_id("example.com/gpu").unwrap();
        let lower = cluster.node("n").unwrap().victims().below(2);
        let mut freed = lower.freed();
        let seen = |freed: &Freed<'_>| (freed.pods(), freed.cpu().0, freed.scalar(gpu));
        assert_eq!(seen(&freed), (2, 3, 3));
        freed.keep(lower, 1);
        assert_eq!(seen(&freed), (1, 2, 0));
        freed.keep(lower, 0);
        assert_eq!(seen(&freed), (0, 0, 0));
        freed.let_go(lower, 1);
        assert_eq!(seen(&freed), (1, 1, 3));
        assert!(lower.is_plain());
    }
}
