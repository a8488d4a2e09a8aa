//! Sums by topology domain, as counted by InterPodAffinity and PodTopologySpread.
//!
//! Nodes with equal labels share a numbered label set, so a key is looked up once per set and not once per node.
//! Hostnames, which are unique to each node, are numbered once for all cycles. Pods are counted by the tallies of
//! chunks, which group them by labels, and a [`Ledger`](super::ledger::Ledger) keeps the sums from one cycle to the
//! next.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::FixedState;

use crate::framework::{each_lane, each_same};
use crate::hash::Keyed;
use crate::model::{HOSTNAME, Name};
use crate::snapshot::{Chunk, Cluster, Column, Hosts, NodeInfo, lanes};

/// The number of a domain, that is, of one value of a topology key.
pub(super) type Domain = u32;

const NONE: Domain = Hosts::NONE;

/// The domains of one topology key, valid as long as the layout of the lineage does not change ([`Cluster::layout`]).
pub(super) struct Topology {
    pub(super) key: Name,
    domains: Domains,
}

enum Domains {
    /// For hostnames, of which nodes rarely share a value.
    Hosts(Arc<Hosts>),
    /// The domains by label set number, [`NONE`] if the key is missing, and the number of domains.
    Sets(Vec<Domain>, usize),
}

impl Topology {
    pub(super) fn new(cluster: &Cluster, key: &Name) -> Topology {
        if **key == *HOSTNAME {
            return Topology { key: key.clone(), domains: Domains::Hosts(cluster.hosts().clone()) };
        }
        let mut numbers: HashMap<&str, Domain, Keyed> = HashMap::default();
        let mut sets = Vec::new();
        for (set, labels) in cluster.label_sets() {
            let domain = labels.get(key).map_or(NONE, |value| {
                let next = numbers.len() as Domain;
                *numbers.entry(value).or_insert(next)
            });
            if sets.len() <= set as usize {
                sets.resize(set as usize + 1, NONE);
            }
            sets[set as usize] = domain;
        }
        Topology { key: key.clone(), domains: Domains::Sets(sets, numbers.len()) }
    }

    /// Returns an exclusive upper bound of the domains.
    pub(super) fn bound(&self) -> usize {
        match &self.domains {
            Domains::Hosts(hosts) => hosts.bound(),
            Domains::Sets(_, len) => *len,
        }
    }

    /// Returns whether the domains are single nodes.
    pub(super) fn is_of_hosts(&self) -> bool {
        matches!(self.domains, Domains::Hosts(_))
    }

    /// Returns whether a domain may contain several nodes.
    fn has_shared_domains(&self) -> bool {
        match &self.domains {
            Domains::Hosts(hosts) => hosts.are_shared(),
            Domains::Sets(..) => true,
        }
    }

    /// Returns the domain of a lane, or `None` if the node lacks the key.
    pub(super) fn domain_in(&self, chunk: &Chunk, lane: usize) -> Option<Domain> {
        let domain = match &self.domains {
            Domains::Hosts(hosts) => hosts.get(chunk.slot()[lane].0),
            Domains::Sets(sets, _) => *sets.get(chunk.label_set()[lane] as usize)?,
        };
        (domain != NONE).then_some(domain)
    }

    /// Returns the domain of a node, or `None` if it lacks the key.
    pub(super) fn domain(&self, node: NodeInfo<'_>) -> Option<Domain> {
        let (chunk, lane) = node.place();
        self.domain_in(chunk, lane)
    }

    /// Returns the lanes of `mask` whose nodes have the key.
    pub(super) fn having(&self, chunk: &Chunk, mask: u64) -> u64 {
        if self.is_of_hosts() {
            return each_lane(mask, |lane| self.domain_in(chunk, lane).is_some());
        }
        each_same(chunk.label_set(), mask, |lane, lanes| match self.domain_in(chunk, lane) {
            Some(_) => lanes,
            None => 0,
        })
    }

    /// Calls `visit` with each domain of these lanes and the mask of its lanes. A domain may be visited more than once.
    pub(super) fn each(
        &self,
        chunk: &Chunk,
        mask: u64,
        mut visit: impl FnMut(Option<Domain>, u64),
    ) {
        if self.is_of_hosts() {
            lanes(mask).for_each(|lane| visit(self.domain_in(chunk, lane), 1 << lane));
            return;
        }
        each_same(chunk.label_set(), mask, |lane, lanes| {
            visit(self.domain_in(chunk, lane), lanes);
            0
        });
    }
}

/// A sum for each domain of a key.
///
/// A clone shares the sums counted so far, and keeps later additions to itself.
#[derive(Clone)]
pub(super) struct Sums {
    pub(super) topology: Arc<Topology>,
    sums: Arc<Vec<i64>>,
    total: i64,
    /// The additions of a clone: a few, for the domains of one node.
    changes: Vec<(Domain, i64)>,
}

impl Sums {
    pub(super) fn new(topology: Arc<Topology>) -> Sums {
        let sums = Arc::new(vec![0; topology.bound()]);
        Sums { topology, sums, total: 0, changes: Vec::new() }
    }

    /// Adds to the shared sums. Returns whether the total, or a sum that other nodes may read, has become positive or
    /// is not positive any more.
    pub(super) fn count(&mut self, domain: Domain, amount: i64) -> bool {
        let has_crossed = |before: i64, after: i64| (before > 0) != (after > 0);
        let total = self.total;
        self.total += amount;
        let sum = &mut Arc::make_mut(&mut self.sums)[domain as usize];
        let before = *sum;
        *sum += amount;
        has_crossed(total, self.total)
            || has_crossed(before, *sum) && self.topology.has_shared_domains()
    }

    /// Adds to this clone only.
    pub(super) fn add(&mut self, domain: Domain, amount: i64) {
        self.total += amount;
        match self.changes.iter_mut().find(|(changed, _)| *changed == domain) {
            Some((_, change)) => *change += amount,
            None => self.changes.push((domain, amount)),
        }
    }

    pub(super) fn get(&self, domain: Domain) -> i64 {
        let sum = self.sums[domain as usize];
        match &self.changes[..] {
            [] => sum,
            changes => {
                let mine = changes.iter().filter(|(changed, _)| *changed == domain);
                sum + mine.map(|(_, change)| change).sum::<i64>()
            }
        }
    }

    /// Returns the lanes of `mask` whose domain has a positive sum.
    pub(super) fn positive(&self, chunk: &Chunk, mask: u64) -> u64 {
        if let (Domains::Hosts(hosts), []) = (&self.topology.domains, &self.changes[..]) {
            let slots = chunk.slot();
            return each_lane(mask, |lane| {
                // The number of a missing hostname is out of bounds.
                let sum = self.sums.get(hosts.get(slots[lane].0) as usize);
                sum.is_some_and(|sum| *sum > 0)
            });
        }
        let mut positive = 0;
        self.topology.each(chunk, mask, |domain, lanes| {
            if domain.is_some_and(|domain| self.get(domain) > 0) {
                positive |= lanes;
            }
        });
        positive
    }

    /// Adds to the score of each of these lanes the sum of its domain.
    pub(super) fn add_to(&self, chunk: &Chunk, mask: u64, scores: &mut Column<i64>) {
        if let (Domains::Hosts(hosts), []) = (&self.topology.domains, &self.changes[..]) {
            let slots = chunk.slot();
            for lane in lanes(mask) {
                // The number of a missing hostname is out of bounds.
                let sum = self.sums.get(hosts.get(slots[lane].0) as usize);
                scores[lane] += sum.copied().unwrap_or(0);
            }
            return;
        }
        self.topology.each(chunk, mask, |domain, all| {
            let sum = domain.map_or(0, |domain| self.get(domain));
            match (sum, all == mask) {
                (0, _) => {}
                // Lanes outside of the mask may have any score.
                (_, true) => scores.iter_mut().for_each(|score| *score += sum),
                (_, false) => lanes(all).for_each(|lane| scores[lane] += sum),
            }
        });
    }

    /// Returns the sum over all domains.
    pub(super) fn total(&self) -> i64 {
        self.total
    }

    /// Iterates over the domains that this clone changed.
    pub(super) fn changed(&self) -> impl Iterator<Item = Domain> {
        self.changes.iter().map(|(domain, _)| *domain)
    }
}

/// The sums of several keys, at most one per key.
#[derive(Clone, Default)]
pub(super) struct Keys(pub(super) Vec<Sums>);

impl Keys {
    /// Returns the position of a key, and adds the key if it is missing.
    pub(super) fn at(&mut self, cluster: &Cluster, key: &Name) -> usize {
        let known = self.0.iter().position(|sums| sums.topology.key == *key);
        known.unwrap_or_else(|| {
            self.0.push(Sums::new(Arc::new(Topology::new(cluster, key))));
            self.0.len() - 1
        })
    }

    /// Returns the lanes of `mask` of which some key's domain has a positive sum.
    pub(super) fn positive(&self, chunk: &Chunk, mask: u64) -> u64 {
        self.0.iter().fold(0, |found, sums| found | sums.positive(chunk, mask & !found))
    }
}

/// A cache of decisions by number, each made on the first lookup.
pub(super) struct Decided<T>(HashMap<u32, T, FixedState>);

impl<T> Default for Decided<T> {
    fn default() -> Decided<T> {
        Decided(HashMap::default())
    }
}

impl<T> Decided<T> {
    /// Returns the decision for this number, and makes it on the first lookup.
    pub(super) fn get(&mut self, number: u32, decide: impl FnOnce() -> T) -> &T {
        self.0.entry(number).or_insert_with(decide)
    }
}
