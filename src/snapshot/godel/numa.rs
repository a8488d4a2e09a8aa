//! The NUMA topology of a node, and its remaining resources.
//!
//! The topology is a view that each query computes from the node's CustomNodeResource and the pods on the node. Nothing
//! of it is stored, so it has no cost elsewhere, and its result does not depend on the order of events. (Gödel stores
//! it, and loses the pods' part when the CustomNodeResource is removed and added again.)

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{Name, PodClass, Quantity, Resources};

use crate::snapshot::node_info::NodeInfo;

/// The NUMA nodes of a node, with their allocations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumaTopology {
    /// The NUMA nodes by number.
    pub numas: BTreeMap<u32, NumaStatus>,
    /// The allocations of pods, by `namespace/name/uid`. They may refer to NUMA nodes that are not in
    /// [`NumaTopology::numas`].
    pub allocations: BTreeMap<String, NumaAllocation>,
    /// The total requests of the guaranteed pods that are not bound to a NUMA node
    /// (`GetResourcesRequestsOfSharedCoresPods`). [`NumaTopology::unused`] returns the resources that they may share.
    pub shared_requests: Resources,
}

/// A NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumaStatus {
    /// The socket that the NUMA node belongs to.
    pub socket: u32,
    /// Its resources, by name.
    pub resources: BTreeMap<Name, NumaResource>,
}

/// A resource of a NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumaResource {
    /// The total allocatable amount.
    pub allocatable: Quantity,
    /// The remaining amount; negative if more was allocated than exists.
    pub available: Quantity,
    /// The pods with an allocation, by `namespace/name/uid`.
    pub users: BTreeSet<String>,
}

/// A pod's allocation on NUMA nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumaAllocation {
    /// Whether the agent on the machine reports the allocation; otherwise the pod's annotation does.
    pub by_agent: bool,
    /// The amounts by NUMA node and resource.
    pub numas: BTreeMap<u32, BTreeMap<Name, Quantity>>,
}

impl NumaTopology {
    /// Returns the total amount of a resource on the NUMA nodes where no pod has an allocation of it. Pods that are not
    /// bound to a NUMA node may share this amount.
    #[doc(hidden)]
    #[must_use]
    pub fn unused(&self, resource: &str) -> Quantity {
        let all = self.numas.values().filter_map(|numa| numa.resources.get(resource));
        let unused = all.filter(|resource| resource.users.is_empty());
        unused.fold(Quantity::default(), |sum, resource| sum + resource.allocatable)
    }

    /// Returns the NUMA nodes of a socket on which no pod has cpu or memory.
    #[doc(hidden)]
    pub fn free_numas(&self, socket: u32) -> impl Iterator<Item = u32> {
        let is_free = |numa: &NumaStatus| {
            let is_unused =
                |name| numa.resources.get(name).is_none_or(|found| found.users.is_empty());
            is_unused("cpu") && is_unused("memory")
        };
        let of_socket = self.numas.iter().filter(move |(_, numa)| numa.socket == socket);
        of_socket.filter(move |(_, numa)| is_free(numa)).map(|(id, _)| *id)
    }

    fn allocate(&mut self, pod: &str, numa: u32, resource: &Name, amount: Quantity) {
        if amount.is_zero() {
            return;
        }
        let allocation = self.allocations.entry(pod.to_owned()).or_default();
        allocation.numas.entry(numa).or_default().insert(resource.clone(), amount);
        // A NUMA node that the machine does not report has no resources to subtract from.
        let Some(numa) = self.numas.get_mut(&numa) else { return };
        let found = numa.resources.entry(resource.clone()).or_default();
        found.available = found.available - amount;
        found.users.insert(pod.to_owned());
    }
}

impl NodeInfo<'_> {
    /// Computes the NUMA topology. The agent's report of a pod's allocation takes precedence over the pod's annotation.
    /// The topology is empty without a CustomNodeResource and without pods that have such an annotation.
    /// O(NUMA nodes + pods).
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
                given
                    .iter()
                    .for_each(|(name, amount)| topology.allocate(pod, zone.id, name, amount));
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
                amounts.iter().for_each(|(name, q)| topology.allocate(&key, numa, name, *q));
            }
        }
        topology
    }
}
