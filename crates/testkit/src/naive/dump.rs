//! Derives the complete contents of a version from its objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portolan::cache::{Dump, NodeDump, NodeLoad};
use portolan::model::{
    Bytes, HostPort, Labels, MilliCpu, Name, Node, NodeMetrics, NodeResources, NonZero, Pod,
    PodClass, PodDisruptionBudget, Quantity, Resources, Scalars, Uid,
};

use super::{Naive, Placed};

impl Naive {
    /// Returns the contents in the format of [`Cluster::dump`](portolan::cache::Cluster::dump), without the columns.
    #[must_use]
    pub fn dump(&self) -> Dump {
        let mut dump = Dump { order: self.order(), ..Dump::default() };
        let names = self.nodes.keys().chain(self.nm_nodes.keys()).chain(self.custom.keys());
        let names =
            names.chain(self.pods.values().filter_map(|placed| placed.pod.node_name.as_ref()));
        for name in names.collect::<BTreeSet<_>>() {
            let entry = dump.nodes.entry(name.to_string()).or_default();
            self.describe(name, entry);
        }
        for ((placeholder, pod, node), place) in &self.places {
            let key = format!("{placeholder} {pod} {node}");
            if place.matched.is_none() {
                let namespace = place.pod.namespace();
                let key_of_placeholder = format!("{namespace}/{placeholder}");
                dump.available_places.entry(key_of_placeholder).or_default().push(key.clone());
            }
            dump.reservations.insert(key, (place.matched.clone(), place.confirmed));
        }
        if self.godel.as_ref().is_some_and(|config| config.movements) {
            self.describe_movements(&mut dump);
        }
        if self.godel.as_ref().is_some_and(|config| config.preemption_marks) {
            self.describe_marks(&mut dump);
        }
        dump.deletion_marks.clone_from(&self.deletion_marks);
        for ((kind, namespace, name), owner) in &self.owners {
            let key = format!("{} {namespace}/{name}", kind.as_str());
            dump.owners.insert(key, self.budgets_for(namespace, &owner.labels));
        }
        for (image, (size, nodes)) in &self.images {
            dump.images.insert(image.to_string(), (*size, nodes.len()));
            for node in nodes {
                let entry = dump.nodes.entry(node.to_string()).or_default();
                entry.images.insert(image.to_string(), (*size, nodes.len()));
            }
        }
        let mut claims = BTreeSet::new();
        for (uid, Placed { pod, assumed, elsewhere, .. }) in &self.pods {
            let Some(node) = &pod.node_name else { continue };
            let entry = dump.nodes.entry(node.to_string()).or_default();
            count(entry, uid, pod);
            let budgets = self.budgets_for(pod.namespace(), &pod.template.labels);
            if !budgets.is_empty() {
                dump.budgets.insert(uid.clone(), budgets);
            }
            for claim in pod.template.claims().filter(|_| self.zone_of(node).is_some()) {
                claims.insert(format!("{}/{claim}", pod.namespace()));
            }
            if let Some((namespace, name)) = pod.group() {
                *dump.group_members.entry(format!("{namespace}/{name}")).or_insert(0) += 1;
            }
            if *assumed {
                dump.assumed.push(uid.clone());
            }
            if *elsewhere {
                dump.assumed_elsewhere.push(uid.clone());
            }
        }
        for ((namespace, name), group) in &self.groups {
            let key = format!("{namespace}/{name}");
            let placed = dump.group_members.get(&key).copied().unwrap_or(0);
            dump.group_states.insert(key, group.state(placed));
        }
        dump.used_claims = claims.into_iter().collect();
        dump
    }

    /// Writes the recommended nodes of movements, and the pods that follow the recommendations.
    fn describe_movements(&self, dump: &mut Dump) {
        type Sets = (u64, BTreeSet<Uid>, BTreeSet<Uid>);
        let mut all: BTreeMap<(String, String, String), Sets> = BTreeMap::new();
        for (name, movement) in &self.movements {
            for owner in &movement.owners {
                for recommended in &owner.nodes {
                    let id = (name.clone(), owner.owner.to_string(), recommended.node.to_string());
                    let actual = recommended.actual.iter().map(|task| task.uid.clone()).collect();
                    all.insert(id, (recommended.desired, actual, BTreeSet::new()));
                }
            }
            let evicted = movement.deleted.iter().map(|task| task.uid.clone()).collect();
            dump.evicted.insert(name.clone(), evicted);
        }
        for (uid, Placed { pod, .. }) in &self.pods {
            let movement = pod.template.godel.as_ref().and_then(|godel| godel.movement.as_ref());
            let (Some(movement), Some(owner)) = (movement, pod.template.owner_key()) else {
                continue;
            };
            let node = pod.node_name.as_ref().map(ToString::to_string).unwrap_or_default();
            let id = (movement.to_string(), owner.to_string(), node);
            all.entry(id).or_default().2.insert(uid.clone());
        }
        for ((movement, owner, node), (desired, actual, assumed)) in all {
            let count = actual.union(&assumed).count() as u64;
            if desired > count {
                let nodes = dump.available.entry(owner.clone()).or_default();
                let times = nodes.entry(node.clone()).or_insert(0);
                *times = times.saturating_add(desired - count);
            }
            if desired > 0 || count > 0 {
                let sets = (desired, actual.into_iter().collect(), assumed.into_iter().collect());
                dump.suggestions.insert(format!("{movement} {owner} {node}"), sets);
            }
        }
    }

    /// Writes the victims of each preemptor.
    fn describe_marks(&self, dump: &mut Dump) {
        let mut marked = BTreeSet::new();
        for (uid, Placed { pod, .. }) in &self.pods {
            let nominated = pod.template.godel.as_ref();
            let nominated = nominated.and_then(|godel| godel.nominated_node.as_ref());
            let Some(nominated) = nominated.filter(|to| Some(&to.node) == pod.node_name.as_ref())
            else {
                continue;
            };
            for victim in nominated.victims.iter().filter(|victim| !victim.uid.is_empty()) {
                let key = format!("{} {}", nominated.node, victim.uid);
                let preemptors = dump.preemption_marks.entry(key).or_default();
                if !preemptors.contains(uid) {
                    preemptors.push(uid.clone());
                }
                marked.insert(Uid::new(&victim.uid));
            }
        }
        dump.marked = marked.into_iter().collect();
    }

    /// Writes the objects that a node consists of, and the resources that they offer to pods.
    pub(super) fn describe(&self, name: &Name, entry: &mut NodeDump) {
        let (node, nm_node) = (self.nodes.get(name), self.nm_nodes.get(name));
        let custom = self.custom.get(name);
        entry.has_node = node.is_some() || nm_node.is_some();
        entry.parts =
            [node.map(|_| "Node"), nm_node.map(|_| "NMNode"), custom.map(|_| "CustomNodeResource")]
                .into_iter()
                .flatten()
                .collect();
        let of_node = node.and_then(|node| node.scheduler.clone());
        let of_nm_node = nm_node.and_then(|nm_node| nm_node.scheduler.clone());
        entry.schedulers = of_node.into_iter().chain(of_nm_node).collect();
        let mut amounts = node.map(|node| amounts_of(node)).unwrap_or_default();
        for (resource, offered) in nm_node.iter().flat_map(|nm_node| nm_node.allocatable.iter()) {
            let unit = |q: Quantity| if **resource == *"cpu" { q.milli_value() } else { q.value() };
            let capacity = nm_node.and_then(|nm_node| nm_node.capacity.get(resource)).map(unit);
            let kept = capacity.map_or(0, |capacity| (capacity - unit(offered)).max(0));
            let merged = match amounts.get(resource) {
                Some(own) => (own - kept).max(0),
                None => unit(offered),
            };
            amounts.insert(resource.clone(), merged);
        }
        (entry.allocatable, entry.allowed_pods) = of_amounts(&amounts);
        if let Some(custom) = custom {
            let offered = &custom.allocatable;
            entry.best_effort.allocatable = without_zeros(&offered.resources);
            entry.best_effort.allowed_pods = offered.pods;
        }
        let metrics = custom.and_then(|custom| custom.metrics.as_deref());
        for (at, class) in [PodClass::Guaranteed, PodClass::BestEffort].into_iter().enumerate() {
            entry.load[at] = self.load(name, class, metrics);
        }
        entry.capacity = match (node, nm_node) {
            (Some(node), _) => node.capacity(),
            (None, Some(nm_node)) => NodeResources::from(&nm_node.capacity),
            (None, None) => NodeResources::default(),
        };
    }

    /// Returns the names of the budgets that match, found by testing every budget.
    fn budgets_for(&self, namespace: &str, labels: &Labels) -> Vec<String> {
        let covers = |budget: &&Arc<PodDisruptionBudget>| {
            *budget.namespace == *namespace
                && !labels.is_empty()
                && !budget.selector.is_empty()
                && budget.selector.matches(labels)
        };
        self.budgets.values().filter(covers).map(|budget| budget.name.to_string()).collect()
    }

    /// Returns the measured usage of a node, and the requests of its pods without measurements.
    fn load(&self, name: &Name, class: PodClass, metrics: Option<&NodeMetrics>) -> NodeLoad {
        let mut load = NodeLoad::default();
        let mut measured = BTreeSet::new();
        if let Some(metrics) = metrics {
            load.updated = metrics.updated;
            load.profiled = metrics.of(class).usage;
            measured.extend(metrics.of(class).pods());
        }
        for Placed { pod, .. } in self.pods.values() {
            let is_there = pod.node_name.as_ref() == Some(name) && pod.template.class == class;
            if is_there && !measured.contains(&pod.key()) {
                let placed = &pod.template.resources.placed;
                load.requested.cpu.0 += placed.cpu.0;
                load.requested.memory.0 += placed.memory.0;
            }
        }
        load
    }

    /// Returns the names of the listed nodes, round robin over the zones.
    pub(super) fn order(&self) -> Vec<String> {
        let longest = self.zones.iter().map(|(_, names)| names.len()).max().unwrap_or(0);
        (0..longest)
            .flat_map(|round| self.zones.iter().filter_map(move |(_, names)| names.get(round)))
            .map(ToString::to_string)
            .collect()
    }
}

/// Returns an engine's dump without the columns, which [`Naive::dump`] does not compute.
#[must_use]
pub fn comparable(mut dump: Dump) -> Dump {
    for node in dump.nodes.values_mut() {
        node.columns.clear();
    }
    dump
}

/// Returns the allocatable amounts of a Node. A zero amount of a resource that every node has counts as absent.
fn amounts_of(node: &Node) -> BTreeMap<Name, i64> {
    let Resources { cpu, memory, ephemeral_storage, scalars } = &node.allocatable;
    let fixed = [
        ("cpu", cpu.0),
        ("memory", memory.0),
        ("ephemeral-storage", ephemeral_storage.0),
        ("pods", node.allowed_pods),
    ];
    let fixed = fixed.into_iter().filter(|(_, amount)| *amount != 0);
    let scalars = scalars.iter().map(|(name, amount)| (name.clone(), amount));
    fixed.map(|(name, amount)| (name.into(), amount)).chain(scalars).collect()
}

/// The inverse of [`amounts_of`], without zeros.
fn of_amounts(amounts: &BTreeMap<Name, i64>) -> (Resources, i64) {
    let amount = |name: &str| amounts.get(name).copied().unwrap_or(0);
    let has_field = |name: &str| ["cpu", "memory", "ephemeral-storage", "pods"].contains(&name);
    let scalars = amounts.iter().filter(|(name, amount)| !has_field(name) && **amount != 0);
    let resources = Resources {
        cpu: MilliCpu(amount("cpu")),
        memory: Bytes(amount("memory")),
        ephemeral_storage: Bytes(amount("ephemeral-storage")),
        scalars: Scalars::new(scalars.map(|(name, amount)| (name.clone(), *amount))),
    };
    (resources, amount("pods"))
}

/// Returns the resources without scalars of amount zero.
fn without_zeros(resources: &Resources) -> Resources {
    let named = resources.scalars.iter().filter(|(_, amount)| *amount != 0);
    let scalars = Scalars::new(named.map(|(name, amount)| (name.clone(), amount)));
    Resources { scalars, ..resources.clone() }
}

/// Adds a pod to the sums and lists of its node.
fn count(entry: &mut NodeDump, uid: &Uid, pod: &Pod) {
    entry.pods.insert(uid.clone(), pod.resource_version);
    let spec = &pod.template;
    let (requested, non_zero) = match spec.class {
        PodClass::Guaranteed => (&mut entry.requested, &mut entry.non_zero_requested),
        PodClass::BestEffort => {
            (&mut entry.best_effort.requested, &mut entry.best_effort.non_zero_requested)
        }
    };
    let Resources { cpu, memory, ephemeral_storage, scalars } = &spec.resources.placed;
    requested.cpu.0 += cpu.0;
    requested.memory.0 += memory.0;
    requested.ephemeral_storage.0 += ephemeral_storage.0;
    let mut sums: BTreeMap<Name, i64> =
        requested.scalars.iter().map(|(name, n)| (name.clone(), n)).collect();
    for (name, amount) in scalars.iter() {
        *sums.entry(name.clone()).or_insert(0) += amount;
    }
    sums.retain(|_, sum| *sum != 0);
    requested.scalars = Scalars::new(sums);
    let NonZero { cpu, memory } = spec.resources.placed_non_zero;
    non_zero.cpu = MilliCpu(non_zero.cpu.0 + cpu.0);
    non_zero.memory.0 += memory.0;
    for HostPort { ip, protocol, port } in &spec.host_ports {
        *entry.used_ports.entry(format!("{ip}/{}/{port}", protocol.as_str())).or_insert(0) += 1;
    }
    for claim in spec.claims() {
        *entry.claims.entry(format!("{}/{claim}", spec.namespace)).or_insert(0) += 1;
    }
    if spec.pod_affinity.is_some() || spec.pod_anti_affinity.is_some() {
        entry.with_affinity.push(uid.clone());
    }
    if spec.required_anti_affinity().next().is_some() {
        entry.with_required_anti_affinity.push(uid.clone());
    }
}
