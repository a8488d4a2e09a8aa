//! Counts pods by domain for all constraints of a pod at once.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::framework::Cycle;
use crate::model::Labels;
use crate::snapshot::{Chunk, Cluster, lanes};

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
            living.for_each(|held| visit(bits, usize::from(held.lane), i64::from(held.living)));
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

/// Returns the updated sums of a cycle's constraints: first the number of pods in each domain, one per constraint, and
/// then the number of nodes, one per constraint. The sums of constraints that are not in `wanted` stay 0.
pub(super) fn follow(
    ledger: &mut Ledger,
    cycle: Cycle<'_>,
    (constraints, matched): (&[Constraint<'_>], &mut Selection<Sets>),
    (all_keys, wanted): (bool, u64),
) -> Keys {
    let visited = Cell::new(0);
    let mut counting = Counting {
        cycle,
        constraints,
        matched,
        visited: &visited,
        sets: None,
        policies: constraints.iter().map(|c| c.policy(cycle.pod)).collect(),
        wanted,
        all_keys,
    };
    let start = |keys: &mut Keys| {
        // All chunks are counted.
        visited.set(FEW);
        Counting::start(cycle.cluster, constraints, keys);
    };
    let count = |keys: &mut Keys, chunk: &Chunk, part: &mut Part| {
        if wanted != 0 {
            counting.count(keys, chunk, part);
        }
    };
    ledger.follow(cycle.cluster, reads(cycle.cluster, cycle.pod), start, count).0.clone()
}

/// Returns the bit mask of all constraints.
pub(super) fn all(constraints: &[Constraint<'_>]) -> u64 {
    u64::MAX >> (MAX_CONSTRAINTS - constraints.len())
}

/// Counts the pods of each constraint in `wanted` by domain, in the sums at the constraint's position. Only nodes that
/// the constraint includes are counted and, if `all_keys` is set, only nodes that have all topology keys. The sums of
/// nodes follow those of pods, one per constraint.
struct Counting<'c> {
    cycle: Cycle<'c>,
    constraints: &'c [Constraint<'c>],
    matched: &'c mut Selection<Sets>,
    /// The number of chunks that were counted.
    visited: &'c Cell<usize>,
    /// The counted sets, once more than [`FEW`] chunks were counted.
    sets: Option<Sets>,
    policies: Vec<Policy<'c>>,
    wanted: u64,
    all_keys: bool,
}

impl Counting<'_> {
    fn start(cluster: &Cluster, constraints: &[Constraint<'_>], keys: &mut Keys) {
        let topology = |c: &Constraint<'_>| Sums::new(Arc::new(Topology::new(cluster, c.key)));
        keys.0.extend(constraints.iter().map(topology));
        let nodes: Vec<Sums> = keys.0.iter().map(|sums| Sums::new(sums.topology.clone())).collect();
        keys.0.extend(nodes);
    }

    fn count(&mut self, keys: &Keys, chunk: &Chunk, part: &mut Part) {
        let cluster = self.cycle.cluster;
        let constraints = self.policies.len();
        let topology = |at: usize| &keys.0[at].topology;
        let mut live = chunk.live();
        if self.all_keys {
            live = (0..constraints).fold(live, |live, at| topology(at).having(chunk, live));
        }
        let mut masks = vec![0; constraints];
        for at in lanes(self.wanted) {
            let included = self.policies[at].includes(cluster, chunk, live);
            masks[at] = topology(at).having(chunk, included);
            topology(at).each(chunk, masks[at], |domain, lanes| {
                if let Some(domain) = domain {
                    part.add(constraints + at, domain, i64::from(lanes.count_ones()));
                }
            });
        }
        self.visited.update(|visited| visited + 1);
        let of_chunk;
        let sets = match self.visited.get() > FEW {
            true => {
                let all = || all_sets(self.matched, self.cycle, self.constraints);
                self.sets.get_or_insert_with(all)
            }
            false => {
                let chunk = std::iter::once(chunk);
                of_chunk = sets_within(self.matched, self.cycle, self.constraints, chunk);
                &of_chunk
            }
        };
        sets.each(cluster, chunk, |bits, lane, pods| {
            for at in lanes(bits & self.wanted) {
                if masks[at] >> lane & 1 == 1
                    && let Some(domain) = topology(at).domain_in(chunk, lane)
                {
                    part.add(at, domain, pods);
                }
            }
        });
    }
}
