//! Sums by topology domain: what InterPodAffinity and PodTopologySpread count.
//!
//! Nodes with equal labels share one numbered set, so a key is looked up once a
//! set and not once a node; hostnames, which every node has for itself, are
//! numbered once for all cycles. Pods are taken from the tallies of chunks, by
//! their labels: what a cycle costs grows with the chunks and with the pods that
//! are counted, not with those that are not.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::FixedState;

use crate::model::{HOSTNAME, Name};
use crate::snapshot::{Chunk, Cluster, Hosts, NodeInfo};

/// The number of a domain: of one value of a topology key.
pub(super) type Domain = u32;

const NONE: Domain = Hosts::NONE;

/// The domains of one topology key.
pub(super) struct Topology<'a> {
    pub(super) key: Name,
    domains: Domains<'a>,
}

enum Domains<'a> {
    /// Each node has a value of its own, mostly.
    Hosts(&'a Hosts),
    /// By the number of a node's label set; [`NONE`] where the key is missing.
    Sets(Vec<Domain>, usize),
}

impl<'a> Topology<'a> {
    pub(super) fn new(cluster: &'a Cluster, key: &Name) -> Topology<'a> {
        if **key == *HOSTNAME {
            return Topology { key: key.clone(), domains: Domains::Hosts(cluster.hosts()) };
        }
        let mut numbers: HashMap<&str, Domain, FixedState> = HashMap::default();
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

    /// How many values the key has; domains are below this.
    pub(super) fn len(&self) -> usize {
        match &self.domains {
            Domains::Hosts(hosts) => hosts.len(),
            Domains::Sets(_, len) => *len,
        }
    }

    /// Whether it is the topology of single nodes.
    pub(super) fn is_of_hosts(&self) -> bool {
        matches!(self.domains, Domains::Hosts(_))
    }

    /// The domain of a lane; none where the node lacks the key.
    pub(super) fn domain_in(&self, chunk: &Chunk, lane: usize) -> Option<Domain> {
        let domain = match &self.domains {
            Domains::Hosts(hosts) => hosts.get(chunk.slot()[lane].0),
            Domains::Sets(sets, _) => *sets.get(chunk.label_set()[lane] as usize)?,
        };
        (domain != NONE).then_some(domain)
    }

    /// The domain of a node; none where it lacks the key.
    pub(super) fn domain(&self, node: NodeInfo<'_>) -> Option<Domain> {
        let (chunk, lane) = node.place();
        self.domain_in(chunk, lane)
    }
}

/// A sum for each domain of a key.
///
/// A clone shares what was counted when it was made, and keeps what is added to
/// it since for itself.
#[derive(Clone)]
pub(super) struct Sums<'a> {
    pub(super) topology: Arc<Topology<'a>>,
    sums: Arc<Vec<i64>>,
    /// What a clone adds: a handful, for the domains of one node.
    changes: Vec<(Domain, i64)>,
    /// Whether anything was added, were it to nothing.
    pub(super) is_touched: bool,
}

impl<'a> Sums<'a> {
    pub(super) fn new(topology: Topology<'a>) -> Sums<'a> {
        let sums = Arc::new(vec![0; topology.len()]);
        Sums { topology: Arc::new(topology), sums, changes: Vec::new(), is_touched: false }
    }

    pub(super) fn add(&mut self, domain: Domain, amount: i64) {
        self.is_touched = true;
        if let Some(sums) = Arc::get_mut(&mut self.sums) {
            sums[domain as usize] += amount;
            return;
        }
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

    /// The sum over all domains.
    pub(super) fn total(&self) -> i64 {
        self.sums.iter().sum::<i64>() + self.changes.iter().map(|(_, change)| change).sum::<i64>()
    }

    /// The domains that a clone changed.
    pub(super) fn changed(&self) -> impl Iterator<Item = Domain> {
        self.changes.iter().map(|(domain, _)| *domain)
    }
}

/// The sums of several keys, each key once.
#[derive(Clone, Default)]
pub(super) struct Keys<'a>(pub(super) Vec<Sums<'a>>);

impl<'a> Keys<'a> {
    /// The position of a key.
    pub(super) fn at(&mut self, cluster: &'a Cluster, key: &Name) -> usize {
        let known = self.0.iter().position(|sums| sums.topology.key == *key);
        known.unwrap_or_else(|| {
            self.0.push(Sums::new(Topology::new(cluster, key)));
            self.0.len() - 1
        })
    }

    pub(super) fn is_touched(&self) -> bool {
        self.0.iter().any(|sums| sums.is_touched)
    }
}

/// What was decided about numbered things, each decided when it is first met.
pub(super) struct Decided<T> {
    /// 0 for what was not met; else the position in `values`, counted from 1.
    known: Vec<u32>,
    values: Vec<T>,
}

impl<T> Default for Decided<T> {
    fn default() -> Decided<T> {
        Decided { known: Vec::new(), values: Vec::new() }
    }
}

impl<T: PartialEq> Decided<T> {
    /// What was decided about this one.
    pub(super) fn get(&mut self, number: u32, decide: impl FnOnce() -> T) -> &T {
        let at = number as usize;
        if self.known.len() <= at {
            self.known.resize(at + 1, 0);
        }
        if self.known[at] == 0 {
            let value = decide();
            // Most decisions are alike.
            let position = self.values.iter().take(8).position(|known| *known == value);
            let position = position.unwrap_or_else(|| {
                self.values.push(value);
                self.values.len() - 1
            });
            self.known[at] = position as u32 + 1;
        }
        &self.values[self.known[at] as usize - 1]
    }
}
