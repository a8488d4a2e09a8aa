//! Counts pods by domain for all constraints of a pod at once.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::framework::Cycle;
use crate::model::{Labels, Name, Pod};
use crate::snapshot::{Chunk, Cluster, Lineage, lanes};

use super::super::ledger::{FEW, Ledger, Part, Selection};
use super::super::topology::{Keys, Sums, Topology};
use super::constraints::{Constraint, MAX_CONSTRAINTS, Policy, reads};

/// The sets of pod labels that constraints count: their numbers, sorted, each with the constraints as a bit mask.
#[derive(Clone, Default)]
pub(super) struct Sets(Arc<[(u32, u64)]>);

impl Sets {
    /// Calls `visit` for each lane of the chunk with living pods that are counted, with the bit mask of the
    /// constraints, the lane, and the number of pods.
    pub(super) fn each(
        &self,
        cluster: &Cluster,
        chunk: &Chunk,
        mut visit: impl FnMut(u64, usize, i64),
    ) {
        if self.0.is_empty() {
            return;
        }
        chunk.tally(cluster).each_of(&self.0, |bits, held| {
            let living = held.iter().filter(|held| held.living > 0);
            living.for_each(|held| visit(*bits, usize::from(held.lane), i64::from(held.living)));
        });
    }
}

/// Returns whether the counted sets are those of the cycle's version.
fn is_current(matched: &Selection<Sets>, Cycle { cluster, pod, .. }: Cycle<'_>) -> bool {
    matched.is_current(cluster, cluster.pod_labels_stamp(), reads(cluster, pod))
}

/// Returns all counted sets. O(label sets of the namespace), unless they are known.
fn all_sets(
    matched: &mut Selection<Sets>,
    cycle: Cycle<'_>,
    constraints: &[Constraint<'_>],
) -> Sets {
    if !is_current(matched, cycle) {
        let Cycle { cluster, pod, .. } = cycle;
        let sets = cluster.pod_labels_in(pod.namespace());
        let sets = Sets(counted(constraints, sets).collect());
        *matched = Selection::new(cluster, cluster.pod_labels_stamp(), reads(cluster, pod), sets);
    }
    matched.all.clone()
}

/// Returns the counted sets that pods of these chunks have, and possibly more.
pub(super) fn sets_within<'c>(
    matched: &mut Selection<Sets>,
    cycle: Cycle<'c>,
    constraints: &[Constraint<'_>],
    chunks: impl Iterator<Item = &'c Chunk> + Clone,
) -> Sets {
    if chunks.clone().nth(FEW).is_some() || is_current(matched, cycle) {
        return all_sets(matched, cycle, constraints);
    }
    let Cycle { cluster, pod, .. } = cycle;
    let numbers = chunks.flat_map(|chunk| chunk.tally(cluster).by_labels());
    let numbers: BTreeSet<u32> = numbers.map(|(number, _)| number).collect();
    let sets = numbers.into_iter().filter_map(|number| {
        let (namespace, labels) = cluster.pod_labels(number)?;
        (namespace == pod.namespace()).then_some((number, labels))
    });
    Sets(counted(constraints, sets).collect())
}

/// Returns the label sets of the pod's namespace that constraints count, each with these constraints as a bit mask.
fn counted<'s>(
    constraints: &[Constraint<'_>],
    sets: impl Iterator<Item = (u32, &'s Labels)>,
) -> impl Iterator<Item = (u32, u64)> {
    // An empty selector counts no pods.
    let counts = |constraint: &Constraint<'_>, labels: &Labels| {
        !constraint.selector.is_empty() && constraint.selector.matches(labels)
    };
    sets.filter_map(move |(number, labels)| {
        let bits = constraints.iter().map(|constraint| u64::from(counts(constraint, labels)));
        let bits = bits.enumerate().fold(0, |bits, (at, bit)| bits | bit << at);
        (bits != 0).then_some((number, bits))
    })
}

/// The numbers of nodes by domain, for constraints that include all nodes. They follow from the layout alone, so all
/// templates share them.
#[derive(Default)]
pub(super) struct AllNodes {
    /// The lineage and the layout that were counted.
    of: Option<(Lineage, u64)>,
    /// The sums of each list of topology keys. A node counts only if it has all keys of the list.
    by_keys: Vec<(Vec<Name>, Keys)>,
}

/// The largest number of lists of keys to keep sums for.
const MAX_LISTS: usize = 16;

impl AllNodes {
    /// Returns the number of nodes in each domain, one sum per constraint. O(1), or O(nodes) after the layout has
    /// changed.
    pub(super) fn follow(&mut self, cluster: &Cluster, constraints: &[Constraint<'_>]) -> &Keys {
        let of = Some((cluster.lineage(), cluster.layout()));
        if self.of != of {
            *self = AllNodes { of, by_keys: Vec::new() };
        }
        let keys = constraints.iter().map(|constraint| constraint.key);
        let known = self.by_keys.iter().position(|(known, _)| known.iter().eq(keys.clone()));
        let at = known.unwrap_or_else(|| {
            if self.by_keys.len() == MAX_LISTS {
                self.by_keys.clear();
            }
            self.by_keys.push((keys.cloned().collect(), count_all(cluster, constraints)));
            self.by_keys.len() - 1
        });
        &self.by_keys[at].1
    }
}

fn topologies(cluster: &Cluster, constraints: &[Constraint<'_>]) -> Keys {
    let sums = |c: &Constraint<'_>| Sums::new(Arc::new(Topology::new(cluster, c.key)));
    Keys(constraints.iter().map(sums).collect())
}

fn count_all(cluster: &Cluster, constraints: &[Constraint<'_>]) -> Keys {
    let mut keys = topologies(cluster, constraints);
    for (_, _, chunk) in cluster.chunk_list() {
        let having = |live, sums: &Sums| sums.topology.having(chunk, live);
        let live = keys.0.iter().fold(chunk.live(), having);
        for sums in &mut keys.0 {
            let topology = sums.topology.clone();
            topology.each(chunk, live, |domain, lanes| {
                if let Some(domain) = domain {
                    sums.count(domain, i64::from(lanes.count_ones()));
                }
            });
        }
    }
    keys
}

/// What a cycle's constraints count.
pub(super) struct Wanted<'a> {
    pub(super) constraints: &'a [Constraint<'a>],
    /// Which nodes each of the constraints includes.
    pub(super) policies: Vec<Policy<'a>>,
    /// Whether only nodes that have all topology keys count.
    pub(super) all_keys: bool,
    /// The constraints whose pods are counted, as a bit mask. The sums of the others stay 0.
    pub(super) pods: u64,
    /// Whether nodes are counted, too.
    pub(super) nodes: bool,
}

/// Returns the updated sums of a cycle's constraints: the number of pods in each domain, one sum per constraint, and if
/// wanted also the number of nodes, one sum per constraint.
pub(super) fn follow(
    ledger: &mut Ledger,
    matched: &mut Selection<Sets>,
    cycle: Cycle<'_>,
    wanted: &Wanted<'_>,
) -> (Keys, Keys) {
    let Cycle { cluster, pod, .. } = cycle;
    let visited = Cell::new(0);
    let mut counting = Counting { cycle, wanted, matched, visited: &visited, sets: None };
    let start = |keys: &mut Keys| {
        // All chunks are counted.
        visited.set(FEW);
        *keys = topologies(cluster, wanted.constraints);
        if wanted.nodes {
            let nodes = keys.0.iter().map(|sums| Sums::new(sums.topology.clone()));
            let nodes: Vec<Sums> = nodes.collect();
            keys.0.extend(nodes);
        }
    };
    let count = |keys: &mut Keys, chunk: &Chunk, part: &mut Part| {
        if wanted.nodes || wanted.pods != 0 {
            counting.count(keys, chunk, part);
        }
    };
    let (keys, _) = ledger.follow(cluster, reads(cluster, pod), start, count);
    let (pods, nodes) = keys.0.split_at(wanted.constraints.len());
    (Keys(pods.to_vec()), Keys(nodes.to_vec()))
}

pub(super) fn policies<'p>(constraints: &[Constraint<'_>], pod: &'p Pod) -> Vec<Policy<'p>> {
    constraints.iter().map(|constraint| constraint.policy(pod)).collect()
}

/// Returns the bit mask of all constraints.
pub(super) fn all(constraints: &[Constraint<'_>]) -> u64 {
    u64::MAX >> (MAX_CONSTRAINTS - constraints.len())
}

/// Counts the pods of each wanted constraint by domain, in the sums at the constraint's position, on the nodes that
/// the constraint includes. The sums of nodes follow those of pods.
struct Counting<'c> {
    cycle: Cycle<'c>,
    wanted: &'c Wanted<'c>,
    matched: &'c mut Selection<Sets>,
    /// The number of chunks that were counted.
    visited: &'c Cell<usize>,
    /// The counted sets, once more than [`FEW`] chunks were counted.
    sets: Option<Sets>,
}

impl Counting<'_> {
    /// Returns the nodes of a chunk that each constraint includes.
    fn included(&self, keys: &Keys, chunk: &Chunk) -> Vec<u64> {
        let having = |live, sums: &Sums| sums.topology.having(chunk, live);
        let sums = &keys.0[..self.wanted.policies.len()];
        let live = match self.wanted.all_keys {
            true => sums.iter().fold(chunk.live(), having),
            false => chunk.live(),
        };
        let include = |(policy, sums): (&Policy<'_>, &Sums)| {
            sums.topology.having(chunk, policy.includes(self.cycle.cluster, chunk, live))
        };
        self.wanted.policies.iter().zip(sums).map(include).collect()
    }

    fn count(&mut self, keys: &Keys, chunk: &Chunk, part: &mut Part) {
        let cluster = self.cycle.cluster;
        let mut included = None;
        if self.wanted.nodes {
            let masks = included.insert(self.included(keys, chunk)).iter().enumerate();
            for (at, mask) in masks {
                keys.0[at].topology.each(chunk, *mask, |domain, lanes| {
                    if let Some(domain) = domain {
                        part.add(
                            self.wanted.policies.len() + at,
                            domain,
                            i64::from(lanes.count_ones()),
                        );
                    }
                });
            }
        }
        self.visited.update(|visited| visited + 1);
        let constraints = self.wanted.constraints;
        let sets = match self.visited.get() > FEW {
            true => {
                let all = || all_sets(self.matched, self.cycle, constraints);
                self.sets.get_or_insert_with(all).clone()
            }
            false => sets_within(self.matched, self.cycle, constraints, std::iter::once(chunk)),
        };
        sets.each(cluster, chunk, |bits, lane, pods| {
            // Few chunks have pods that are counted.
            let included = included.get_or_insert_with(|| self.included(keys, chunk));
            for at in lanes(bits & self.wanted.pods) {
                if included[at] >> lane & 1 == 1
                    && let Some(domain) = keys.0[at].topology.domain_in(chunk, lane)
                {
                    part.add(at, domain, pods);
                }
            }
        });
    }
}
