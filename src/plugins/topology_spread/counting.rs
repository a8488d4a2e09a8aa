//! Counting pods by domain, for as many constraints as a pod has at once.

use std::sync::Arc;

use crate::framework::Cycle;
use crate::model::{Name, Pod};
use crate::snapshot::{Chunk, Cluster, lanes};

use super::super::ledger::{Ledger, Part};
use super::super::topology::{Decided, Keys, Sums, Topology};
use super::constraints::{Constraint, MOST, Policy, reads};

/// Which constraints count pods: a bit for each, by the number of the pods' labels.
pub(super) struct Matched<'c> {
    namespace: Name,
    constraints: &'c [Constraint<'c>],
    pub(super) decided: Decided<u64>,
}

impl<'c> Matched<'c> {
    pub(super) fn new(pod: &Pod, constraints: &'c [Constraint<'c>]) -> Matched<'c> {
        let namespace = pod.namespace().clone();
        Matched { namespace, constraints, decided: Decided::default() }
    }

    pub(super) fn bits(&mut self, cluster: &Cluster, number: u32) -> u64 {
        let Matched { namespace, constraints, decided } = self;
        *decided.get(number, || {
            let of = cluster.pod_labels(number);
            let Some((_, labels)) = of.filter(|(its, _)| *its == namespace) else { return 0 };
            // An empty selector counts no pod.
            let counts = |c: &Constraint<'_>| !c.selector.is_empty() && c.selector.matches(labels);
            let counts = constraints.iter().map(|constraint| u64::from(counts(constraint)));
            counts.enumerate().fold(0, |bits, (at, bit)| bits | bit << at)
        })
    }

    /// Tells of each lane of the chunk that has living pods that are counted: the
    /// bits, the lane, how many there are.
    fn each(&mut self, cluster: &Cluster, chunk: &Chunk, mut tell: impl FnMut(u64, usize, i64)) {
        for (number, lanes) in chunk.tally(cluster).groups() {
            let bits = self.bits(cluster, number);
            if bits != 0 {
                let living = lanes.iter().filter(|of| of.living > 0);
                living.for_each(|of| tell(bits, usize::from(of.lane), i64::from(of.living)));
            }
        }
    }
}

/// The sums of a cycle's constraints, brought up to date: how many pods each domain
/// has, one for each constraint, and after them how many nodes, as many again. Those of
/// constraints that `wanted` does not name stay 0.
pub(super) fn follow(
    ledger: &mut Ledger,
    cycle: Cycle<'_>,
    constraints: &[Constraint<'_>],
    (all_keys, wanted): (bool, u64),
) -> Keys {
    let mut counting = Counting::new(cycle, constraints, (all_keys, wanted));
    let start = |keys: &mut Keys| Counting::start(cycle.cluster, constraints, keys);
    let count = |keys: &mut Keys, chunk: &Chunk, part: &mut Part| {
        if wanted != 0 {
            counting.count(keys, chunk, part);
        }
    };
    ledger.follow(cycle.cluster, reads(cycle.cluster, cycle.pod), start, count).0.clone()
}

/// A bit for each constraint.
pub(super) fn all(constraints: &[Constraint<'_>]) -> u64 {
    u64::MAX >> (MOST - constraints.len())
}

/// Counts pods by domain, each constraint that `wanted` names in the sums at its
/// position: on nodes that it includes, and that have all keys if `all_keys` says
/// so. After the sums of pods come those of nodes, one for each constraint, too.
struct Counting<'c> {
    cycle: Cycle<'c>,
    matched: Matched<'c>,
    policies: Vec<Policy<'c>>,
    wanted: u64,
    all_keys: bool,
}

impl<'c> Counting<'c> {
    fn new(
        cycle: Cycle<'c>,
        constraints: &'c [Constraint<'c>],
        (all_keys, wanted): (bool, u64),
    ) -> Counting<'c> {
        Counting {
            cycle,
            matched: Matched::new(cycle.pod, constraints),
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
