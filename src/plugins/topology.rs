//! Sums by topology domain: what InterPodAffinity and PodTopologySpread count.
//!
//! Nodes with equal labels share one numbered set, so a key is looked up once a
//! set and not once a node; only the hostname, which every node has for itself,
//! is looked up by node.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::model::HOSTNAME;
use crate::snapshot::{Chunk, Cluster, NodeInfo};

/// The number of a domain: of one value of a topology key.
pub(super) type Domain = u32;

const NONE: Domain = u32::MAX;

/// The domains of one topology key.
pub(super) struct Topology<'a> {
    pub(super) key: &'a str,
    /// By the number of a node's label set; [`NONE`] where the key is missing.
    sets: Vec<Domain>,
    /// By value.
    domains: HashMap<&'a str, Domain, FixedState>,
    /// Whether each node has a value of its own.
    is_own: bool,
}

impl<'a> Topology<'a> {
    pub(super) fn new(cluster: &'a Cluster, key: &'a str) -> Topology<'a> {
        let mut topology = Topology {
            key,
            sets: Vec::new(),
            domains: HashMap::default(),
            is_own: key == HOSTNAME,
        };
        if topology.is_own {
            for value in cluster.nodes().filter_map(|node| node.node()?.labels.get(HOSTNAME)) {
                topology.number(value);
            }
            return topology;
        }
        for (set, labels) in cluster.label_sets() {
            let domain = labels.get(key).map_or(NONE, |value| topology.number(value));
            if topology.sets.len() <= set as usize {
                topology.sets.resize(set as usize + 1, NONE);
            }
            topology.sets[set as usize] = domain;
        }
        topology
    }

    fn number(&mut self, value: &'a str) -> Domain {
        let next = self.domains.len() as Domain;
        *self.domains.entry(value).or_insert(next)
    }

    /// How many values the key has; domains are below this.
    pub(super) fn len(&self) -> usize {
        self.domains.len()
    }

    /// The domain of a lane; none where the node lacks the key.
    pub(super) fn domain_in(
        &self,
        cluster: &Cluster,
        chunk: &Chunk,
        lane: usize,
    ) -> Option<Domain> {
        if self.is_own {
            let value = cluster.node_in(chunk, lane)?.node()?.labels.get(HOSTNAME)?;
            return self.domains.get(value).copied();
        }
        let domain = self.sets.get(chunk.label_set()[lane] as usize)?;
        (*domain != NONE).then_some(*domain)
    }

    /// The domain of a node; none where it lacks the key.
    pub(super) fn domain(&self, node: NodeInfo<'_>) -> Option<Domain> {
        let (chunk, lane) = node.place();
        self.domain_in(node.cluster(), chunk, lane)
    }
}

/// A sum for each domain of a key.
pub(super) struct Sums<'a> {
    pub(super) topology: Topology<'a>,
    sums: Vec<i64>,
    /// Whether anything was added, were it to nothing.
    pub(super) is_touched: bool,
}

impl<'a> Sums<'a> {
    pub(super) fn new(topology: Topology<'a>) -> Sums<'a> {
        let sums = vec![0; topology.len()];
        Sums { topology, sums, is_touched: false }
    }

    pub(super) fn add(&mut self, domain: Domain, amount: i64) {
        self.sums[domain as usize] += amount;
        self.is_touched = true;
    }

    pub(super) fn get(&self, domain: Domain) -> i64 {
        self.sums[domain as usize]
    }
}

/// The sums of several keys, each key once.
#[derive(Default)]
pub(super) struct Keys<'a>(pub(super) Vec<Sums<'a>>);

impl<'a> Keys<'a> {
    /// The position of a key.
    pub(super) fn at(&mut self, cluster: &'a Cluster, key: &'a str) -> usize {
        self.0.iter().position(|sums| sums.topology.key == key).unwrap_or_else(|| {
            self.0.push(Sums::new(Topology::new(cluster, key)));
            self.0.len() - 1
        })
    }

    pub(super) fn is_touched(&self) -> bool {
        self.0.iter().any(|sums| sums.is_touched)
    }
}
