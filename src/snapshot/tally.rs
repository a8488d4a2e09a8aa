//! Aggregates computed on first use and cached with the data they derive from: the pods of a chunk counted by labels,
//! the pods of a node sorted by importance, and the nodes numbered by hostname.
//!
//! Plugins that count pods by topology domain would otherwise visit every pod of the cluster in every cycle. Between
//! two cycles usually one node has changed: all other chunks still have their tally, in which pods with equal labels
//! are one count, and the old tally of the changed chunk still holds for the other lanes. Nothing here is computed
//! before it is requested, so writers do no work for it.
//!
//! A tally is stored in the version, where all readers share it, and an old one still serves the unchanged lanes of its
//! chunk; a [`PerChunk`](super::PerChunk) belongs to one reader and forgets whole chunks, so the two stay apart.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use crate::hash::Keyed;
use crate::model::HOSTNAME;

use super::chunk::{Chunk, Column, LANES, lanes};
use super::cluster::Cluster;
use super::known::known;
use super::lane::PodRecord;
use super::node_info::NodeInfo;
use super::victims::VictimIndex;

/// The pods of a chunk, counted by labels.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tally {
    /// By the number of the pods' labels.
    by_labels: Groups,
    /// The pods with affinity or anti-affinity, by the number of their template.
    affine: Groups,
    /// The lowest priority of a pod in each lane; `i32::MAX` for a lane without pods.
    lowest: Column<i32>,
    /// The minimum of `lowest`.
    least: i32,
}

/// Counts of pods by the number of their group, and by node.
#[derive(Debug, Default, PartialEq, Eq)]
struct Groups {
    /// Each number with the end of its range in `lanes`; sorted by number.
    ends: Vec<(u32, u32)>,
    lanes: Vec<InLane>,
}

/// The pods of one group on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InLane {
    pub(crate) lane: u8,
    /// Number of pods.
    pub(crate) pods: u32,
    /// Number of pods that are not being deleted.
    pub(crate) living: u32,
}

impl Groups {
    /// Combines counts, each given with its group's number.
    fn of(mut counts: Vec<(u32, InLane)>) -> Groups {
        counts.sort_unstable_by_key(|(number, of)| (*number, of.lane));
        let mut groups = Groups { ends: Vec::new(), lanes: Vec::with_capacity(counts.len()) };
        for group in counts.chunk_by(|a, b| a.0 == b.0) {
            groups.lanes.extend(group.chunk_by(|a, b| a.1.lane == b.1.lane).map(|same| {
                let sum = |count: fn(&InLane) -> u32| same.iter().map(|(_, of)| count(of)).sum();
                InLane {
                    lane: same[0].1.lane,
                    pods: sum(|of| of.pods),
                    living: sum(|of| of.living),
                }
            }));
            groups.ends.push((group[0].0, groups.lanes.len() as u32));
        }
        groups
    }

    /// Iterates over the numbers, each with its counts, sorted by lane.
    fn iter(&self) -> impl Iterator<Item = (u32, &[InLane])> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|(_, end)| *end));
        let ranges = self.ends.iter().zip(starts);
        ranges.map(|((number, end), start)| (*number, &self.lanes[start as usize..*end as usize]))
    }

    /// Returns the counts of one number, sorted by lane. O(log n).
    fn get(&self, number: u32) -> &[InLane] {
        let Ok(at) = self.ends.binary_search_by_key(&number, |(of, _)| *of) else { return &[] };
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before].1);
        &self.lanes[start as usize..self.ends[at].1 as usize]
    }

    /// Calls `visit` for each value of `wanted` whose number, by which they are sorted, has counts.
    fn each_of<T>(
        &self,
        wanted: &[T],
        number: impl Fn(&T) -> u32,
        mut visit: impl FnMut(&T, &[InLane]),
    ) {
        // A search costs about as much as a few steps of an iteration.
        if wanted.len() <= self.ends.len() / 8 {
            let held = wanted.iter().map(|value| (value, self.get(number(value))));
            held.filter(|(_, lanes)| !lanes.is_empty())
                .for_each(|(value, held)| visit(value, held));
            return;
        }
        let mut wanted = wanted.iter().peekable();
        for (of, held) in self.iter() {
            while wanted.next_if(|value| number(value) < of).is_some() {}
            if let Some(value) = wanted.next_if(|value| number(value) == of) {
                visit(value, held);
            }
        }
    }

    /// Returns these counts with the lanes in `which` replaced by those of `newer`, which has no others.
    fn with(&self, newer: &Groups, which: u64) -> Groups {
        let mut groups = Groups {
            ends: Vec::with_capacity(self.ends.len() + newer.ends.len()),
            lanes: Vec::with_capacity(self.lanes.len() + newer.lanes.len()),
        };
        let (mut old, mut new) = (self.iter().peekable(), newer.iter().peekable());
        while let Some(number) = match (old.peek(), new.peek()) {
            (Some((old, _)), Some((new, _))) => Some(*old.min(new)),
            (Some((number, _)), None) | (None, Some((number, _))) => Some(*number),
            (None, None) => None,
        } {
            let old = old.next_if(|(of, _)| *of == number).map_or(&[][..], |(_, lanes)| lanes);
            let new = new.next_if(|(of, _)| *of == number).map_or(&[][..], |(_, lanes)| lanes);
            let start = groups.lanes.len();
            replace_lanes(&mut groups.lanes, old, new, which);
            if groups.lanes.len() > start {
                groups.ends.push((number, groups.lanes.len() as u32));
            }
        }
        groups
    }
}

/// Returns the lanes in `which` that have pods, each with its pods, a block at a time. Their memory is often in no cache:
/// here the loads for one node do not wait for those of another.
fn read(chunk: &Chunk, which: u64) -> Vec<(usize, &[PodRecord])> {
    let mut nodes = Vec::with_capacity(which.count_ones() as usize);
    // A node without pods is not read.
    let filled = lanes(which).filter(|lane| chunk.pods()[*lane] > 0);
    nodes.extend(
        filled.flat_map(|lane| chunk.lane(lane).pods.record_blocks().map(move |part| (lane, part))),
    );
    let first = nodes.iter().filter_map(|(_, records)| records.first());
    std::hint::black_box(first.fold(0, |sum, record| sum ^ record.template));
    nodes
}

/// Counts one pod of a group. Pods of one group are usually adjacent on their node.
fn count(counts: &mut Vec<(u32, InLane)>, number: u32, lane: u8, is_living: bool) {
    match counts.last_mut() {
        Some((of, last)) if (*of, last.lane) == (number, lane) => {
            last.pods += 1;
            last.living += u32::from(is_living);
        }
        _ => counts.push((number, InLane { lane, pods: 1, living: u32::from(is_living) })),
    }
}

/// Appends the counts of one group, with those of the lanes in `which` taken from `new`. `new` has no other lanes, and
/// both are sorted by lane.
fn replace_lanes(all: &mut Vec<InLane>, mut old: &[InLane], mut new: &[InLane], which: u64) {
    for changed in lanes(which) {
        let (before, rest) = old.split_at(old.partition_point(|of| usize::from(of.lane) < changed));
        all.extend_from_slice(before);
        old = match rest {
            [first, rest @ ..] if usize::from(first.lane) == changed => rest,
            rest => rest,
        };
        if let [first, rest @ ..] = new
            && usize::from(first.lane) == changed
        {
            all.push(*first);
            new = rest;
        }
    }
    all.extend_from_slice(old);
}

impl Tally {
    /// Counts the pods of the lanes in `which`.
    fn of(cluster: &Cluster, chunk: &Chunk, which: u64) -> Tally {
        let nodes = read(chunk, which);
        let (mut pods, mut affine) = (Vec::with_capacity(nodes.len()), Vec::new());
        // Pods of the same template are usually adjacent.
        let mut last = (u32::MAX, 0, i32::MAX);
        let mut lowest = [i32::MAX; LANES];
        for (lane, records) in nodes {
            let has_affinity = chunk.with_affinity() >> lane & 1 == 1;
            for record in records {
                if record.template != last.0 {
                    let priority =
                        cluster.template(record.template).map(|template| template.priority);
                    let labels = cluster.pod_labels_of(record.template);
                    last = (record.template, labels, priority.unwrap_or(i32::MAX));
                }
                lowest[lane] = lowest[lane].min(last.2);
                let is_living = record.deletion_time().is_none();
                count(&mut pods, last.1, lane as u8, is_living);
                let template = has_affinity.then(|| cluster.template(record.template)).flatten();
                if template.is_some_and(|template| template.traits().affinity) {
                    count(&mut affine, record.template, lane as u8, is_living);
                }
            }
        }
        Tally::new(Groups::of(pods), Groups::of(affine), lowest)
    }

    fn new(by_labels: Groups, affine: Groups, lowest: Column<i32>) -> Tally {
        let least = lowest.iter().copied().min().unwrap_or(i32::MAX);
        Tally { by_labels, affine, lowest, least }
    }

    /// Returns this tally with the lanes in `which` replaced by those of `newer`. The counts of the other lanes stay
    /// valid, because their pods keep the numbers of their labels and templates.
    fn with(&self, newer: &Tally, which: u64) -> Tally {
        let mut lowest = self.lowest;
        lanes(which).for_each(|lane| lowest[lane] = newer.lowest[lane]);
        let by_labels = self.by_labels.with(&newer.by_labels, which);
        Tally::new(by_labels, self.affine.with(&newer.affine, which), lowest)
    }

    /// Returns the numbers of the sets of pod labels (see [`Cluster::pod_labels`]), each with the nodes that have such
    /// pods.
    pub(crate) fn by_labels(&self) -> impl Iterator<Item = (u32, &[InLane])> {
        self.by_labels.iter()
    }

    /// Calls `visit` for each set of pod labels in `sets` that pods of the chunk have, with the value of the set and
    /// the nodes that have such pods. `sets` is sorted by number.
    pub(crate) fn each_of<T>(&self, sets: &[(u32, T)], mut visit: impl FnMut(&T, &[InLane])) {
        self.by_labels.each_of(sets, |(number, _)| *number, |(_, value), held| visit(value, held));
    }

    /// Calls `visit` for each of these templates with affinity or anti-affinity that pods of the chunk have, with its
    /// number and the nodes that have such pods. `templates` is sorted.
    pub(crate) fn each_affine_of(&self, templates: &[u32], mut visit: impl FnMut(u32, &[InLane])) {
        self.affine.each_of(templates, |number| *number, |number, held| visit(*number, held));
    }

    /// Returns the numbers of the templates with affinity or anti-affinity, each with the nodes that have such pods.
    pub(crate) fn affine(&self) -> impl Iterator<Item = (u32, &[InLane])> {
        self.affine.iter()
    }

    /// Returns the lanes with pods of a lower priority than `priority`.
    pub(crate) fn lanes_below(&self, priority: i32) -> u64 {
        if self.least >= priority {
            return 0;
        }
        let below = self.lowest.iter().enumerate().map(|(lane, lowest)| (lane, *lowest < priority));
        below.fold(0, |lanes, (lane, is_below)| lanes | u64::from(is_below) << lane)
    }
}

/// The cached tally of a chunk and victim indexes of its nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tallied {
    known: OnceLock<Arc<Counted>>,
    /// The cache of an older state of the chunk while it is still useful, with the lanes that have changed since.
    older: Option<(Arc<Counted>, u64)>,
}

/// The aggregates of one state of a chunk, each computed on first use.
#[derive(Debug, Default)]
struct Counted {
    tally: OnceLock<Tally>,
    victims: OnceLock<Box<VictimLanes>>,
}

type VictimLanes = Column<OnceLock<Arc<VictimIndex>>>;

/// If more lanes than this have changed, updating an older tally is no cheaper than a new count.
const MAX_CHANGED: u32 = LANES as u32 / 2;

impl Counted {
    /// Returns the cache for a state in which the lanes in `changed` have changed. Per-lane values of the other lanes
    /// are reused.
    fn without(&self, changed: u64) -> Counted {
        let counted = Counted::default();
        if let Some(victims) = self.victims.get() {
            let stays = |lane: usize| changed >> lane & 1 == 0;
            let kept = |lane: usize| match stays(lane) {
                true => victims[lane].clone(),
                false => OnceLock::new(),
            };
            counted.victims.get_or_init(|| Box::new(std::array::from_fn(kept)));
        }
        counted
    }
}

impl Tallied {
    /// Records that the pods of a lane are about to change.
    pub(super) fn forget(&mut self, lane: usize) {
        if let Some(known) = self.known.take()
            && (self.older.is_none() || known.tally.get().is_some())
        {
            self.older = Some((known, 0));
        }
        if let Some((_, changed)) = &mut self.older {
            *changed |= 1 << lane;
            if changed.count_ones() > MAX_CHANGED {
                self.older = None;
            }
        }
    }

    #[inline]
    fn counted(&self) -> &Counted {
        let counted: &Arc<Counted> = known(&self.known, || {
            let older = self.older.as_ref();
            let counted = older.map(|(older, changed)| older.without(*changed));
            Arc::new(counted.unwrap_or_default())
        });
        counted
    }

    /// Returns the tally of `chunk`, which owns this cache. O(1) if cached. Otherwise
    /// O(pods of the changed lanes + nodes of the chunk), or O(pods of the chunk) if there is no older tally.
    #[inline]
    pub(super) fn get(&self, cluster: &Cluster, chunk: &Chunk) -> &Tally {
        known(&self.counted().tally, || {
            let older = self.older.as_ref();
            let tally = older.and_then(|(older, changed)| Some((older.tally.get()?, *changed)));
            match tally {
                None => Tally::of(cluster, chunk, chunk.live()),
                Some((older, changed)) => {
                    older.with(&Tally::of(cluster, chunk, chunk.live() & changed), changed)
                }
            }
        })
    }

    /// Returns the pods of a node of the chunk, sorted by importance. O(1) if cached. Otherwise O(pods of the node ×
    /// log pods of the node), plus O(nodes of the chunk) for the first call since any of the nodes changed.
    #[inline]
    pub(super) fn victims(&self, node: NodeInfo<'_>) -> &VictimIndex {
        let (_, lane) = node.place();
        let victims = &self.counted().victims;
        let lanes = known(victims, || Box::new(std::array::from_fn(|_| OnceLock::new())));
        let index: &Arc<VictimIndex> = known(&lanes[lane], || Arc::new(VictimIndex::of(node)));
        index
    }
}

/// The hostnames of nodes, as numbers.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    /// The number of each node's hostname by slot; [`Hosts::NONE`] if the node has no hostname label.
    by_slot: Vec<u32>,
    bound: usize,
    /// Whether several nodes have one hostname.
    are_shared: bool,
}

impl Hosts {
    pub(crate) const NONE: u32 = u32::MAX;

    /// Numbers the hostnames. If a node's hostname is its name, as the kubelet sets it, the number is the node's slot,
    /// and the node need not be read.
    pub(super) fn of(cluster: &Cluster) -> Hosts {
        let all = || cluster.chunk_list().map(|(_, _, chunk)| chunk);
        let last = all().flat_map(|chunk| lanes(chunk.live()).map(|lane| chunk.slot()[lane].0));
        let slots = last.max().map_or(0, |slot| slot + 1);
        let mut by_slot = vec![Hosts::NONE; slots as usize];
        let mut others: HashMap<&str, u32, Keyed> = HashMap::default();
        let mut are_shared = false;
        for chunk in all() {
            let own = chunk.live() & chunk.hosts();
            for slot in lanes(own).map(|lane| chunk.slot()[lane].0) {
                by_slot[slot as usize] = slot;
            }
            for lane in lanes(chunk.live() & !own) {
                let node = chunk.identity(lane).and_then(|identity| identity.node.as_ref());
                let Some(name) = node.and_then(|node| node.labels.get(HOSTNAME)) else { continue };
                let next = slots + others.len() as u32;
                let known = Hosts::slot_of(cluster, name).or_else(|| others.get(name).copied());
                are_shared |= known.is_some();
                by_slot[chunk.slot()[lane].0 as usize] = known.unwrap_or_else(|| {
                    others.insert(name, next);
                    next
                });
            }
        }
        Hosts { by_slot, bound: slots as usize + others.len(), are_shared }
    }

    /// Returns whether several nodes have one hostname.
    pub(crate) fn are_shared(&self) -> bool {
        self.are_shared
    }

    /// Returns the slot of the node with this name if its hostname is the same.
    fn slot_of(cluster: &Cluster, hostname: &str) -> Option<u32> {
        let (chunk, lane) = cluster.node(hostname)?.place();
        (chunk.hosts() >> lane & 1 == 1).then(|| chunk.slot()[lane].0)
    }

    /// Returns the number of the hostname of the node with this slot.
    pub(crate) fn get(&self, slot: u32) -> u32 {
        self.by_slot.get(slot as usize).copied().unwrap_or(Hosts::NONE)
    }

    /// Returns an exclusive upper bound of the numbers.
    pub(crate) fn bound(&self) -> usize {
        self.bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    use crate::cache::{Config, Engine};
    use crate::model::{
        LabelSelector, Pod, PodAffinity, PodAffinityTerm, Timestamp, Uid, node, pod,
    };

    #[test]
    fn label_sets_are_found_by_search_and_by_iteration() {
        let (mut writer, _) = Engine::inline(Config::default());
        for n in 0..4 {
            writer.add_node(node(format!("n{n}")).pods(110).build()).unwrap();
        }
        for p in 0..90 {
            let pod = pod(format!("p{p}")).label("app", &(p % 30).to_string());
            writer.add_pod(pod.on(format!("n{}", p % 4)).build()).unwrap();
        }
        let cluster = writer.cluster();
        let (_, _, chunk) = cluster.chunk_list().next().unwrap();
        let tally = chunk.tally(cluster);
        let all: Vec<(u32, Vec<InLane>)> =
            tally.by_labels().map(|(number, lanes)| (number, lanes.to_vec())).collect();
        assert_eq!(all.len(), 30);
        let found = |sets: &[u32]| {
            let sets: Vec<(u32, u32)> = sets.iter().map(|number| (*number, *number)).collect();
            let mut found = Vec::new();
            tally.each_of(&sets, |number, lanes| found.push((*number, lanes.to_vec())));
            found
        };
        // A few are searched, and many are compared with all.
        for few in all.chunks(3) {
            let numbers: Vec<u32> = few.iter().map(|(number, _)| *number).collect();
            assert_eq!(found(&numbers), few);
        }
        let numbers: Vec<u32> = all.iter().map(|(number, _)| *number).collect();
        assert_eq!(found(&numbers), all);
        let unused = numbers.iter().max().unwrap() + 1;
        assert_eq!(found(&[unused]), []);
        let with_unused: Vec<u32> = numbers.iter().copied().chain([unused]).collect();
        assert_eq!(found(&with_unused), all);
    }

    /// Returns each set of pod labels and node with the counts of pods and living pods, as read from the tallies.
    fn counted(cluster: &Cluster) -> Vec<(String, String, u32, u32)> {
        let mut all = Vec::new();
        for (_, _, chunk) in cluster.chunk_list() {
            for (labels, lanes) in chunk.tally(cluster).by_labels() {
                let (namespace, labels) = cluster.pod_labels(labels).unwrap();
                for InLane { lane, pods, living } in lanes {
                    let node = cluster.node_in(chunk, usize::from(*lane)).unwrap().name();
                    let key = format!("{namespace}/{}", labels.get("app").unwrap_or(""));
                    all.push((key, node.to_string(), *pods, *living));
                }
            }
        }
        all.sort();
        all
    }

    #[test]
    fn a_tally_belongs_to_its_version() {
        let (mut writer, reader) = Engine::inline(Config::default());
        for name in ["a", "b"] {
            writer.add_node(node(name).cpu(8_000).build()).unwrap();
        }
        let web = |name: &str, cpu| pod(name).label("app", "web").cpu(cpu);
        writer.add_pod(web("one", 100).on("a").build()).unwrap();
        writer.add_pod(web("two", 200).on("a").deleted(Timestamp(1)).build()).unwrap();
        writer.add_pod(web("three", 300).on("b").build()).unwrap();
        writer.publish();
        let key = |app: &str| format!("default/{app}");
        let row = |app: &str, node: &str, pods, living| (key(app), node.to_owned(), pods, living);
        let first = reader.snapshot();
        assert_eq!(counted(&first), [row("web", "a", 2, 1), row("web", "b", 1, 1)]);
        // The draft of the writer has a cached tally and is changed in place.
        assert_eq!(counted(writer.cluster()).len(), 2);
        writer.add_pod(pod("four").label("app", "db").on("b").build()).unwrap();
        assert_eq!(counted(writer.cluster())[0], row("db", "b", 1, 1));
        writer.add_pod(pod("five").label("app", "db").on("b").build()).unwrap();
        assert_eq!(counted(writer.cluster())[0], row("db", "b", 2, 2));
        let deleted: Pod = pod("four").label("app", "db").on("b").deleted(Timestamp(9)).build();
        writer.update_pod(&Uid::new("default/four"), deleted).unwrap();
        assert_eq!(counted(writer.cluster())[0], row("db", "b", 2, 1));
        writer.remove_pod(&pod("four").on("b").build()).unwrap();
        writer.remove_pod(&pod("five").on("b").build()).unwrap();
        writer.remove_node("a").unwrap();
        assert_eq!(counted(writer.cluster()), [row("web", "b", 1, 1)]);
        assert_eq!(counted(&first), [row("web", "a", 2, 1), row("web", "b", 1, 1)]);
        // A fork counts its own pods, and the version it started from is unaffected.
        let mut fork = first.fork();
        assert_eq!(counted(&fork).len(), 2);
        fork.remove_pod(&Uid::new("default/three")).unwrap();
        assert_eq!(counted(&fork), [row("web", "a", 2, 1)]);
        assert_eq!(counted(&first).len(), 2);
    }

    #[test]
    fn all_pods_of_a_node_are_counted() {
        let (mut writer, _) = Engine::inline(Config::default());
        writer.add_node(node("a").cpu(8_000).build()).unwrap();
        for n in 0..200 {
            writer.add_pod(pod(format!("p{n}")).label("app", "web").on("a").build()).unwrap();
        }
        let all = ("default/web".to_owned(), "a".to_owned(), 200, 200);
        assert_eq!(counted(writer.cluster()), [all]);
    }

    fn apart() -> PodAffinityTerm {
        PodAffinityTerm {
            topology_key: HOSTNAME.into(),
            selector: LabelSelector::Nothing,
            namespaces: Box::default(),
            namespace_selector: LabelSelector::Nothing,
        }
    }

    proptest! {
        #[test]
        fn an_updated_tally_equals_a_recount(
            steps in prop::collection::vec((0..8_u8, 0..40_usize, 0..90_usize, any::<bool>()), 1..120),
        ) {
            let (mut writer, _) = Engine::inline(Config::default());
            for n in 0..40 {
                writer.add_node(node(format!("n{n}")).build()).unwrap();
            }
            let made = |n: usize| {
                let priority = n as i32 % 7;
                let made = pod(format!("p{n}")).label("app", ["a", "b", "c"][n % 3]);
                let made = made.priority(priority).on(format!("n{}", n % 40));
                match n % 4 {
                    0 => made.deleted(Timestamp(1)),
                    1 => made.pod_anti_affinity(PodAffinity {
                        required: Box::new([apart()]),
                        ..PodAffinity::default()
                    }),
                    _ => made,
                }
                .build()
            };
            for (step, at, n, asks) in steps {
                // The engine refuses each step that is invalid in the current state.
                match step {
                    0..4 => drop(writer.add_pod(made(n))),
                    4 | 5 => drop(writer.remove_pod(&made(n))),
                    6 => drop(writer.remove_node(format!("n{at}"))),
                    _ => drop(writer.add_node(node(format!("n{at}")).build())),
                }
                if asks {
                    let cluster = writer.cluster();
                    for (_, _, chunk) in cluster.chunk_list() {
                        let recount = Tally::of(cluster, chunk, chunk.live());
                        prop_assert_eq!(chunk.tally(cluster), &recount);
                    }
                }
            }
        }
    }

    #[test]
    fn hosts_belong_to_their_version() {
        let (mut writer, reader) = Engine::inline(Config::default());
        let host = |name: &str, host: &str| node(name).label(HOSTNAME, host).build();
        writer.add_node(host("a", "x")).unwrap();
        writer.add_node(host("b", "x")).unwrap();
        writer.add_node(node("c").build()).unwrap();
        writer.publish();
        let first = reader.snapshot();
        writer.add_node(host("d", "y")).unwrap();
        // The older version is queried first; the newer one has its own hosts.
        let hosts = |cluster: &Cluster| {
            ["a", "b", "c", "d"]
                .map(|name| cluster.node(name).map(|node| cluster.hosts().get(node.slot().0)))
        };
        let none = Some(Hosts::NONE);
        let [a, b, c, d] = hosts(&first);
        assert_eq!((a, c, d), (b, none, None));
        let [a, b, c, d] = hosts(writer.cluster());
        assert_eq!((a, c), (b, none));
        assert!(d != a && d != none);
        writer.update_node(host("a", "z")).unwrap();
        let [a, b, ..] = hosts(writer.cluster());
        assert_ne!(a, b);
        writer.update_node(node("b").build()).unwrap();
        assert_eq!(hosts(writer.cluster())[1], none);
    }

    #[test]
    fn nodes_share_a_hostname_that_is_the_name_of_one_of_them() {
        let (mut writer, _) = Engine::inline(Config::default());
        let host = |name: &str, host: &str| node(name).label(HOSTNAME, host).build();
        let named = [("a", "a"), ("b", "a"), ("c", "d"), ("d", "e"), ("f", "d"), ("g", "e")];
        let shared = |writer: &crate::cache::Writer| {
            let cluster = writer.cluster();
            let number = |name| cluster.hosts().get(cluster.node(name).unwrap().slot().0);
            let numbers = named.map(|(name, _)| number(name));
            assert!(numbers.iter().all(|number| (*number as usize) < cluster.hosts().bound()));
            numbers.map(|number| numbers.iter().position(|other| *other == number).unwrap())
        };
        for (name, label) in named {
            writer.add_node(host(name, label)).unwrap();
        }
        // Node d is not the host called d.
        assert_eq!(shared(&writer), [0, 0, 2, 3, 2, 3]);
        writer.update_node(host("d", "d")).unwrap();
        assert_eq!(shared(&writer), [0, 0, 2, 2, 2, 5]);
        writer.update_node(host("a", "e")).unwrap();
        assert_eq!(shared(&writer), [0, 1, 2, 2, 2, 0]);
    }

    #[test]
    fn nodes_keep_their_hostnames_when_others_are_removed() {
        let (mut writer, _) = Engine::inline(Config::default());
        let name = |n: usize| format!("n{n}");
        for n in 0..4 * LANES {
            let hostname = if n % 3 == 0 { "shared".to_owned() } else { name(n) };
            writer.add_node(node(name(n)).label(HOSTNAME, hostname).build()).unwrap();
        }
        let place = |writer: &crate::cache::Writer, n: usize| {
            let (chunk, lane) = writer.cluster().node(&name(n)).unwrap().place();
            (chunk.sequence, lane)
        };
        let kept = || (0..4 * LANES).filter(|n| n % 4 == 3);
        let before: Vec<_> = kept().map(|n| place(&writer, n)).collect();
        for n in (0..4 * LANES).filter(|n| n % 4 != 3) {
            writer.remove_node(name(n)).unwrap();
        }
        assert_ne!(kept().map(|n| place(&writer, n)).collect::<Vec<_>>(), before);
        let cluster = writer.cluster();
        let host = |n: usize| cluster.hosts().get(cluster.node(&name(n)).unwrap().slot().0);
        for n in kept() {
            let same = kept().filter(|other| host(*other) == host(n)).count();
            assert_eq!(same, if n % 3 == 0 { kept().filter(|n| n % 3 == 0).count() } else { 1 });
            assert_ne!(host(n), Hosts::NONE);
        }
        for chunk in cluster.chunk_list().map(|(_, _, chunk)| chunk) {
            let own = |lane: &usize| {
                let node = chunk.identity(*lane).unwrap().node.as_ref().unwrap();
                node.labels.get(HOSTNAME) == Some(&*node.name)
            };
            let all = lanes(chunk.live()).filter(own).fold(0, |mask, lane| mask | 1_u64 << lane);
            assert_eq!(chunk.hosts() & chunk.live(), all);
        }
    }
}
