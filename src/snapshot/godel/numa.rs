//! The NUMA topology of a node, and what is left of it.
//!
//! A view that is made when it is asked for, from the node's CustomNodeResource and
//! from the pods that are on the node: nothing of it is kept, so that nothing is
//! paid for it elsewhere, and no order of events can make it say something else.
//! (Gödel keeps it, and loses the pods' part when the CustomNodeResource is removed
//! and added again.)

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{Name, PodClass, Quantity, Resources};

use crate::snapshot::node_info::NodeInfo;

/// The NUMA nodes of a node, with what is taken of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumaTopology {
    /// By number.
    pub numas: BTreeMap<u32, NumaStatus>,
    /// What pods have, by `namespace/name/uid`; also of NUMA nodes that are not
    /// among [`NumaTopology::numas`].
    pub allocations: BTreeMap<String, NumaAllocation>,
    /// What guaranteed pods request that are bound to no NUMA node, in all
    /// (`GetResourcesRequestsOfSharedCoresPods`): see [`NumaTopology::unused`] for what
    /// they may share.
    pub shared_requests: Resources,
}

/// One NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumaStatus {
    /// The socket that it belongs to.
    pub socket: u32,
    /// Its resources.
    pub resources: BTreeMap<Name, NumaResource>,
}

/// A resource of a NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumaResource {
    /// What may be taken of it in all.
    pub allocatable: Quantity,
    /// What of that is left; less than nothing where more was given than there is.
    pub available: Quantity,
    /// Who has some of it.
    pub users: BTreeSet<String>,
}

/// What a pod has of NUMA nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumaAllocation {
    /// Whether the agent on the machine says so; else the pod's annotation does.
    pub by_agent: bool,
    /// By NUMA node and resource.
    pub numas: BTreeMap<u32, BTreeMap<Name, Quantity>>,
}

impl NumaTopology {
    /// How much of a resource is on NUMA nodes where nobody has any of it: what pods
    /// that are bound to none may share.
    #[must_use]
    pub fn unused(&self, resource: &str) -> Quantity {
        let all = self.numas.values().filter_map(|numa| numa.resources.get(resource));
        let unused = all.filter(|resource| resource.users.is_empty());
        unused.fold(Quantity::default(), |sum, resource| sum + resource.allocatable)
    }

    /// The NUMA nodes of a socket where nobody has cpu or memory.
    pub fn free_numas(&self, socket: u32) -> impl Iterator<Item = u32> {
        let is_free = |numa: &NumaStatus| {
            let of = |name| numa.resources.get(name).is_none_or(|found| found.users.is_empty());
            of("cpu") && of("memory")
        };
        let of_socket = self.numas.iter().filter(move |(_, numa)| numa.socket == socket);
        of_socket.filter(move |(_, numa)| is_free(numa)).map(|(id, _)| *id)
    }

    fn give(&mut self, pod: &str, numa: u32, resource: &Name, amount: Quantity) {
        if amount.is_zero() {
            return;
        }
        let allocation = self.allocations.entry(pod.to_owned()).or_default();
        allocation.numas.entry(numa).or_default().insert(resource.clone(), amount);
        // A NUMA node that the machine does not report has nothing to take from.
        let Some(numa) = self.numas.get_mut(&numa) else { return };
        let found = numa.resources.entry(resource.clone()).or_default();
        found.available = found.available - amount;
        found.users.insert(pod.to_owned());
    }
}

impl NodeInfo<'_> {
    /// The NUMA topology, made anew: where the agent says what a pod has, that
    /// counts, else what the pod's own annotation says. Empty without a
    /// CustomNodeResource and such pods. O(NUMA nodes + pods).
    #[must_use]
    pub fn numa(&self) -> NumaTopology {
        let mut topology = NumaTopology::default();
        let zones = self.custom_node_resource().map_or(&[][..], |custom| &custom.numa);
        for zone in zones {
            let whole = |quantity| NumaResource {
                allocatable: quantity,
                available: quantity,
                users: BTreeSet::new(),
            };
            let resources =
                zone.allocatable.iter().map(|(name, quantity)| (name.clone(), whole(quantity)));
            let numa = NumaStatus { socket: zone.socket, resources: resources.collect() };
            topology.numas.insert(zone.id, numa);
        }
        for zone in zones {
            for (pod, given) in &zone.allocations {
                topology.allocations.entry(pod.to_string()).or_default().by_agent = true;
                given.iter().for_each(|(name, amount)| topology.give(pod, zone.id, name, amount));
            }
        }
        topology.shared_requests = self.sum_of(|pod| {
            let template = pod.template();
            template.class == PodClass::Guaranteed && !template.numa_binding
        });
        for pod in self.pods() {
            let Some(given) = &pod.template().micro_topology else { continue };
            let key = format!("{}/{}/{}", pod.namespace(), pod.name(), pod.uid());
            if topology.allocations.get(&key).is_some_and(|known| known.by_agent) {
                continue;
            }
            for (numa, amounts) in given.iter() {
                amounts.iter().for_each(|(name, q)| topology.give(&key, numa, name, *q));
            }
        }
        topology
    }
}
