//! Counts pods by domain for all constraints of a pod at once.

use std::sync::Arc;

use crate::framework::Cycle;
use crate::model::{Generation, Labels};
use crate::snapshot::{Chunk, Cluster, Lineage, lanes};

use super::super::ledger::{Ledger, Part};
use super::super::topology::{Keys, Sums, Topology};
use super::constraints::{Constraint, MAX_CONSTRAINTS, Policy, reads};

/// The sets of pod labels that constraints count.
#[derive(Clone, Default)]
pub(super) struct Matched {
    /// The numbered label sets and the objects for which the sets hold.
    of: Option<(Lineage, u64, Generation)>,
    /// The numbers of the sets, sorted, each with the constraints that count it as a bit mask.
    sets: Arc<[(u32, u64)]>,
}

impl Matched {
    /// Finds the sets again if any pod has new labels, or if the default constraints may have changed. O(label sets).
    pub(super) fn follow(&mut self, cycle: Cycle<'_>, constraints: &[Constraint<'_>]) {
        let Cycle { cluster, pod, .. } = cycle;
        let (stamp, reads) = (cluster.pod_labels_stamp(), reads(cluster, pod));
        let is_known = |(lineage, known, objects): &(Lineage, u64, Generation)| {
            (*known, *objects) == (stamp, reads) && lineage.includes(cluster)
        };
        if self.of.as_ref().is_some_and(is_known) {
            return;
        }
        // An empty selector counts no pods.
        let counts = |c: &Constraint<'_>, labels: &Labels| {
            !c.selector.is_empty() && c.selector.matches(labels)
        };
        let sets = cluster.all_pod_labels().filter(|(_, of, _)| *of == pod.namespace());
        let sets = sets.filter_map(|(number, _, labels)| {
            let bits = constraints.iter().map(|constraint| u64::from(counts(constraint, labels)));
            let bits = bits.enumerate().fold(0, |bits, (at, bit)| bits | bit << at);
            (bits != 0).then_some((number, bits))
        });
        *self = Matched { of: Some((cluster.lineage(), stamp, reads)), sets: sets.collect() };
    }

    /// Calls `visit` for each lane of the chunk with living pods that are counted, with the bit mask of the
    /// constraints, the lane, and the number of pods.
    pub(super) fn each(
        &self,
        cluster: &Cluster,
        chunk: &Chunk,
        mut visit: impl FnMut(u64, usize, i64),
    ) {
        if self.sets.is_empty() {
            return;
        }
        chunk.tally(cluster).each_of(&self.sets, |bits, held| {
            let living = held.iter().filter(|held| held.living > 0);
            living.for_each(|held| visit(bits, usize::from(held.lane), i64::from(held.living)));
        });
    }
}

/// Returns the updated sums of a cycle's constraints: first the number of pods in each domain, one per constraint, and
/// then the number of nodes, one per constraint. The sums of constraints that are not in `wanted` stay 0.
pub(super) fn follow(
    ledger: &mut Ledger,
    cycle: Cycle<'_>,
    (constraints, matched): (&[Constraint<'_>], &Matched),
    (all_keys, wanted): (bool, u64),
) -> Keys {
    let mut counting = Counting::new(cycle, (constraints, matched), (all_keys, wanted));
    let start = |keys: &mut Keys| Counting::start(cycle.cluster, constraints, keys);
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
    matched: &'c Matched,
    policies: Vec<Policy<'c>>,
    wanted: u64,
    all_keys: bool,
}

impl<'c> Counting<'c> {
    fn new(
        cycle: Cycle<'c>,
        (constraints, matched): (&[Constraint<'_>], &'c Matched),
        (all_keys, wanted): (bool, u64),
    ) -> Counting<'c> {
        Counting {
            cycle,
            matched,
            policies: constraints.iter().map(|c| c.policy(cycle.pod)).collect(),
            wanted,
            all_keys,
        }
    }

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
        self.matched.each(cluster, chunk, |bits, lane, pods| {
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
