//! Placing many pods at once, on several threads or on one.
//!
//! The result is the same as if the pods were placed one after the other. Three kinds of work differ in what they may
//! share:
//!
//! 1. *Looking up* the node, the template and the uid of each pod changes nothing, so all threads do it.
//! 2. *Numbers* of new templates depend on the order of the pods, so one thread assigns them.
//! 3. *Writing.* Pods on different chunks share no data, so each chunk is written by one thread, in the order of the
//!    pods. At the same time another thread enters the pods in the index of pods, sorted by hash, and in the counts of
//!    claims and groups.
//!
//! On one thread, this is still faster than placing the pods one by one, because each chunk and each part of the index
//! of pods is visited once.
//!
//! Only pods that cannot be refused are placed in this way. The first pod that could be refused, that is known, that a
//! custom store tracks, or whose node is unknown ends the run, and the caller applies it alone. Nothing is changed for
//! the pods after it.

use std::borrow::Borrow;
use std::sync::Arc;

use hashbrown::HashTable;
use rayon::prelude::*;

use crate::freeing;
use crate::model::{Generation, Name, Pod, Template, hash_of, key_hash, pod_name_hash};

use super::super::account::EPHEMERAL_STORAGE;
use super::super::chunk::{Chunk, NodeSlot, Place, lanes};
use super::super::cluster::Cluster;
use super::super::custom::PlacedPod;
use super::super::pod_index::{MAX_SLOTS, short};
use super::super::table::Interned;
use super::super::tree::{Threads, Tree};
use super::Draft;
use super::pods::{add, amounts, check_pod};

/// The largest number of pods that [`Draft::place_many`] places at once. Larger runs would share more cache lines, but
/// the caller holds the objects of a run in memory.
pub(crate) const MAX_RUN: usize = 1 << 17;

/// The most numbers that one run may take from a table. Each table has at least this many left.
const MAX_NUMBERS: usize = 1 << 17;

const _: () = assert!(MAX_SLOTS as usize + MAX_NUMBERS < EPHEMERAL_STORAGE as usize);

/// The generations of the pods of a run.
#[derive(Clone, Copy)]
pub(crate) enum Generations {
    /// All pods belong to the event of this generation.
    One(Generation),
    /// Each pod is an event of its own; the first one has this generation.
    From(Generation),
}

impl Generations {
    pub(crate) fn of(self, position: usize) -> Generation {
        match self {
            Generations::One(generation) => generation,
            Generations::From(first) => Generation(first.0 + position as u64),
        }
    }
}

/// The data that is kept about a cluster while many pods are added to it.
pub(crate) struct Filling {
    threads: Threads,
    /// An upper bound of every sum of every node. It grows with each pod, as if all pods were on one node.
    bound: i64,
    /// The listed nodes, once there are many pods. Adding pods does not move them.
    nodes: Option<Nodes>,
}

/// The listed nodes by name. A lookup touches fewer cache lines than one in the cluster's own trees, which exist in
/// many versions.
struct Nodes(HashTable<Listed>);

struct Listed {
    name: Name,
    slot: NodeSlot,
    chunk: u32,
    lane: u8,
}

impl Nodes {
    /// O(nodes).
    fn of(cluster: &Cluster) -> Nodes {
        let mut nodes = HashTable::with_capacity(cluster.counts.nodes);
        for (number, chunk) in cluster.chunks.iter().filter(|(_, chunk)| !chunk.is_ghosts()) {
            for lane in lanes(chunk.live()) {
                let Some(identity) = chunk.identity(lane) else { continue };
                let (name, slot) = (identity.name.clone(), chunk.slot()[lane]);
                let node = Listed { name, slot, chunk: number, lane: lane as u8 };
                let hash = |node: &Listed| hash_of(&*node.name);
                nodes.insert_unique(hash(&node), node, hash);
            }
        }
        Nodes(nodes)
    }

    fn find(&self, name: &Name) -> Option<(NodeSlot, Place)> {
        let node = self.0.find(hash_of(&**name), |node| node.name == *name)?;
        Some((node.slot, Place::new(node.chunk, usize::from(node.lane))))
    }
}

/// The results of looking up a pod.
struct Found {
    slot: NodeSlot,
    place: Place,
    /// The number of the template; `None` if it has none yet, or if the pod before this one has the same.
    template: Option<u32>,
    /// The hash of the uid.
    hash: u64,
    /// The hash of the name; 0 if the index has no names.
    name_hash: u64,
    /// The largest amount that the pod adds to a sum.
    amount: i64,
    /// At most this many numbers are taken for the pod, in any table.
    numbers: usize,
}

impl Filling {
    /// O(chunks), or O(1) if there are no pods.
    pub(crate) fn of(cluster: &Cluster, threads: Threads) -> Filling {
        let chunks = cluster.chunks.iter().filter(|_| cluster.counts.pods > 0);
        let bound = chunks.map(|(_, chunk)| largest(chunk)).max().unwrap_or(0);
        Filling { threads, bound, nodes: None }
    }

    /// Counts a pod that was added alone.
    pub(crate) fn count(&mut self, pod: &Pod) {
        self.bound = self.bound.saturating_add(amount(pod));
    }
}

/// Returns the largest requested amount in a chunk.
fn largest(chunk: &Chunk) -> i64 {
    chunk.amounts().flatten().copied().max().unwrap_or(0)
}

impl Draft {
    /// Returns whether [`Draft::place_many`] may be called: no store but custom ones follows each pod.
    pub(crate) fn places_many(&self) -> bool {
        self.cluster.godel.is_none() && self.users.is_some()
    }

    /// Adds the first pods of a list, which are not assumed, and returns their number. The pod after them, if
    /// there is one, has to be checked and applied alone. O(pods × log n).
    pub(crate) fn place_many<P: Borrow<Pod> + Sync>(
        &mut self,
        pods: &[P],
        generations: Generations,
        filling: &mut Filling,
    ) -> usize {
        if pods.len() > MAX_RUN || !self.places_many() || !self.has_room() {
            return 0;
        }
        if filling.nodes.is_none() && pods.len() >= MAX_RUN.min(self.cluster.counts.nodes) {
            filling.nodes = Some(Nodes::of(&self.cluster));
        }
        let found = self.look_up(pods, filling);
        let by_hash = sorted_by_hash(&found, |found| found.hash, filling.threads);
        let Some((found, by_hash)) = self.run(found, by_hash, pods, filling) else {
            return 0;
        };
        let pods = &pods[..found.len()];
        let here = freeing::made();
        let templates = self.number_templates(pods, &found, generations);
        let numbered = freeing::made().wrapping_sub(here);
        // The other side does not touch the chunks.
        let mut chunks = std::mem::take(&mut self.cluster.chunks);
        let resources = self.cluster.rest.resources.clone();
        let writing = Writing { pods, found: &found, templates: &templates, generations };
        let threads = filling.threads;
        let mut write = || writing.write(&mut chunks, &resources, threads);
        let mut count = || {
            let before = freeing::made();
            self.count_many(pods, &found, (&by_hash, threads), generations);
            freeing::made().wrapping_sub(before)
        };
        let (in_chunks, counted) = match threads {
            Threads::One => (write(), count()),
            Threads::Pool => rayon::join(write, count),
        };
        self.cluster.chunks = chunks;
        // The caller counts what this thread allocates.
        let made = numbered + in_chunks + counted;
        self.cluster.made += made.saturating_sub(freeing::made().wrapping_sub(here));
        self.begin(generations.of(pods.len() - 1));
        found.len()
    }

    /// Looks up each pod, up to the first one that may be refused, that a custom store tracks, or whose node is not
    /// listed.
    fn look_up<P: Borrow<Pod> + Sync>(&self, pods: &[P], filling: &Filling) -> Vec<Found> {
        let look_up = |at: usize| {
            let last = at.checked_sub(1).map(|last| &pods[last].borrow().template);
            look_up(&self.cluster, filling.nodes.as_ref(), pods[at].borrow(), last)
        };
        match filling.threads {
            Threads::One => (0..pods.len()).map_while(look_up).collect(),
            Threads::Pool => {
                let found = (0..pods.len()).into_par_iter().with_min_len(64).map(look_up);
                let found: Vec<Option<Found>> = found.collect();
                found.into_iter().map_while(|found| found).collect()
            }
        }
    }

    /// Ends the run before the first pod that is known, has the uid of an earlier one, or might exceed a limit. Returns
    /// `None` if that is the first pod.
    fn run<P: Borrow<Pod> + Sync>(
        &self,
        mut found: Vec<Found>,
        mut by_hash: Vec<u64>,
        pods: &[P],
        filling: &mut Filling,
    ) -> Option<(Vec<Found>, Vec<u64>)> {
        let is_known = |at: u32| {
            let (key, text) = pods[at as usize].borrow().uid.key();
            let is_on = |slot| self.cluster.at_slot(NodeSlot(slot))?.find(key, text);
            let lookup = &self.cluster.lookup;
            lookup.find(found[at as usize].hash, |slot| is_on(slot).is_some()).is_some()
        };
        let known = match filling.threads {
            _ if self.cluster.counts.pods == 0 => None,
            Threads::One => {
                by_hash.iter().map(|entry| *entry as u32).filter(|at| is_known(*at)).min()
            }
            Threads::Pool => {
                let known = by_hash.par_iter().with_min_len(64).map(|entry| *entry as u32);
                known.filter(|at| is_known(*at)).min()
            }
        };
        // Positions ascend among equal hashes. Different uids with one hash are rare enough to end the run, too.
        let twins = by_hash.windows(2).filter(|pair| pair[0] >> 32 == pair[1] >> 32);
        let twins = twins.map(|pair| pair[1] as u32).min();
        let mut end = known.into_iter().chain(twins).min().map_or(found.len(), |at| at as usize);
        let (mut bound, mut numbers) = (filling.bound, 0);
        for (at, found) in found[..end].iter().enumerate() {
            numbers += found.numbers;
            match bound.checked_add(found.amount) {
                Some(sum) if numbers <= MAX_NUMBERS => bound = sum,
                _ => {
                    end = at;
                    break;
                }
            }
        }
        filling.bound = bound;
        if end < found.len() {
            found.truncate(end);
            by_hash.retain(|entry| (*entry as u32 as usize) < end);
        }
        (end > 0).then_some((found, by_hash))
    }

    /// Returns the number of each pod's template, and adds the pod to the template's users. New templates get numbers
    /// in the order of the pods.
    fn number_templates<P: Borrow<Pod>>(
        &mut self,
        pods: &[P],
        found: &[Found],
        generations: Generations,
    ) -> Vec<u32> {
        let mut numbers: Vec<u32> = Vec::with_capacity(pods.len());
        for (at, (pod, found)) in pods.iter().zip(found).enumerate() {
            let template = &pod.borrow().template;
            let last = at.checked_sub(1);
            let is_same = |last: &usize| Arc::ptr_eq(&pods[*last].borrow().template, template);
            let known = found.template.or_else(|| last.filter(is_same).map(|last| numbers[last]));
            let number = match known {
                Some(number) => {
                    self.use_template(number);
                    number
                }
                None => {
                    self.begin(generations.of(at));
                    // Cannot fail: enough numbers are left, which was checked before the run.
                    self.acquire_template(template).unwrap_or_default()
                }
            };
            numbers.push(number);
        }
        numbers
    }

    /// Adds the pods to the index of pods and to the counts of pods, claims and groups. Reads no chunk.
    fn count_many<P: Borrow<Pod>>(
        &mut self,
        pods: &[P],
        found: &[Found],
        (by_hash, threads): (&[u64], Threads),
        generations: Generations,
    ) {
        for entry in by_hash {
            let Found { hash, slot, .. } = found[*entry as u32 as usize];
            self.cluster.lookup.insert(hash, slot.0, &mut self.departures);
        }
        if self.cluster.lookup.has_names() {
            for entry in sorted_by_hash(found, |found| found.name_hash, threads) {
                let Found { name_hash, slot, .. } = found[entry as u32 as usize];
                self.cluster.lookup.insert(name_hash, slot.0, &mut self.departures);
            }
        }
        self.cluster.counts.pods += pods.len();
        for (at, pod) in pods.iter().enumerate() {
            let template = &pod.borrow().template;
            if template.traits().claims || template.group().is_some() {
                self.begin(generations.of(at));
                if template.traits().claims {
                    self.use_claims(template);
                }
                self.join_group(template);
            }
        }
    }
}

/// Returns the hashes of the pods, as far as the index of pods uses them, above their positions; in the order of that
/// index.
fn sorted_by_hash(found: &[Found], hash: impl Fn(&Found) -> u64, threads: Threads) -> Vec<u64> {
    let entry = |(found, at): (&Found, u32)| u64::from(short(hash(found))) << 32 | u64::from(at);
    let mut by_hash: Vec<u64> = found.iter().zip(0..).map(entry).collect();
    sort(&mut by_hash, threads);
    by_hash
}

fn sort<T: Ord + Send>(list: &mut [T], threads: Threads) {
    match threads {
        Threads::One => list.sort_unstable(),
        Threads::Pool => list.par_sort_unstable(),
    }
}

/// Looks up a pod, which follows one with the template `last`. Returns `None` if adding it may be refused, or if its
/// node is not listed.
fn look_up(
    cluster: &Cluster,
    nodes: Option<&Nodes>,
    pod: &Pod,
    last: Option<&Arc<Template>>,
) -> Option<Found> {
    let name = pod.node_name.as_ref().filter(|name| !name.is_empty())?;
    check_pod(pod).ok()?;
    if cluster.custom.as_ref().is_some_and(|stores| stores.track(&PlacedPod::on(pod, name))) {
        return None;
    }
    let (key, _) = pod.uid.key();
    let spec = &**pod.template;
    let (slot, place) = match nodes {
        Some(nodes) => nodes.find(name)?,
        None => listed(cluster, name)?,
    };
    let is_as_before = last.is_some_and(|last| Arc::ptr_eq(last, &pod.template));
    let template = if is_as_before { None } else { cluster.template_number(&pod.template) };
    Some(Found {
        slot,
        place,
        template,
        hash: key_hash(key),
        name_hash: match cluster.lookup.has_names() {
            true => pod_name_hash(pod.namespace(), &pod.name),
            false => 0,
        },
        amount: amount(pod),
        numbers: 1 + spec.volumes.len() + spec.resources.placed.scalars.len(),
    })
}

/// Returns the largest amount that a pod adds to a sum.
fn amount(pod: &Pod) -> i64 {
    let resources = &pod.template.resources;
    let (placed, non_zero) = (&resources.placed, &resources.placed_non_zero);
    let amounts = [
        placed.cpu.0,
        placed.memory.0,
        placed.ephemeral_storage.0,
        non_zero.cpu.0,
        non_zero.memory.0,
    ];
    let scalars = placed.scalars.iter().map(|(_, amount)| amount);
    amounts.into_iter().chain(scalars).max().unwrap_or(0)
}

fn listed(cluster: &Cluster, name: &Name) -> Option<(NodeSlot, Place)> {
    let mut found = None;
    cluster
        .rest
        .names
        .find(hash_of(&**name), |slot| {
            found = cluster.rest.places.get(slot).copied().filter(|place| {
                let chunk = cluster.chunks.get(place.chunk);
                let identity = chunk.and_then(|chunk| chunk.identity(place.lane()));
                identity.is_some_and(|known| known.name == *name && known.node.is_some())
            });
            found.is_some()
        })
        .and_then(|slot| Some((NodeSlot(slot), found?)))
}

/// The data to write to the chunks.
struct Writing<'a, P> {
    pods: &'a [P],
    found: &'a [Found],
    templates: &'a [u32],
    generations: Generations,
}

impl<P: Borrow<Pod> + Sync> Writing<'_, P> {
    /// Adds each pod to its lane. Returns the number of child slots in the tree nodes that were allocated.
    fn write(&self, chunks: &mut Tree<Chunk>, resources: &Interned<Name>, threads: Threads) -> u64 {
        let mut order: Vec<(u32, u32)> =
            self.found.iter().zip(0..).map(|(found, at)| (found.place.chunk, at)).collect();
        sort(&mut order, threads);
        let parts: Vec<&[(u32, u32)]> = order.chunk_by(|one, next| one.0 == next.0).collect();
        let numbers: Vec<u32> = parts.iter().map(|part| part[0].0).collect();
        chunks.update_all(&numbers, threads, |chunk, part| {
            let mut newest = Generation::ZERO;
            for (_, at) in parts[part] {
                let at = *at as usize;
                newest = self.generations.of(at);
                let (pod, lane) = (self.pods[at].borrow(), self.found[at].place.lane());
                let pods = &mut chunk.lane_mut(lane).pods;
                pods.reserve_for(pod);
                pods.push(pod, self.templates[at], false);
                add(chunk, lane, newest, &amounts(resources, &pod.template), 1);
            }
            newest
        })
    }
}
