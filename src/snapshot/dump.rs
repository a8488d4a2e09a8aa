//! A complete dump of a version, for comparison with another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::{
    Name, NodeResources, NonZero, ObjectKind, PodClass, PodDisruptionBudget, PodGroupState,
    PodState, Resources, Scalars, Timestamp, Uid,
};

use super::cluster::{Cluster, ImageState};
use super::godel::NodeLoad;
use super::godel::{
    DeletionMarks, Movements, PreemptionMarks, Reservations, ReservedPlace, Suggestion,
};
use super::node_info::NodeInfo;
use super::table::{Internable, Interned};

/// The complete contents of a version, in a form that can be compared and printed (`Cache.Dump`, ghosts included).
#[doc(hidden)]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dump {
    /// Nodes and ghosts by name.
    pub nodes: BTreeMap<String, NodeDump>,
    /// The names of the listed nodes, in list order.
    pub order: Vec<String>,
    /// The assumed pods.
    pub assumed: Vec<Uid>,
    /// The pods that another scheduler has assumed.
    pub assumed_elsewhere: Vec<Uid>,
    /// Claims in use, each as `namespace/name`.
    pub used_claims: Vec<String>,
    /// Size in bytes and number of nodes of each image, by name.
    pub images: BTreeMap<String, (i64, usize)>,
    /// Reservations, current and past, keyed as `placeholder namespace/pod node`, each with the pod that took it and
    /// whether a Reservation object confirms it.
    pub reservations: BTreeMap<String, (Option<Uid>, bool)>,
    /// The reservations that are available, by `namespace/placeholder`.
    pub available_places: BTreeMap<String, Vec<String>>,
    /// Suggestions of Movements, keyed as `movement kind/namespace/name/uid node`: the desired number of pods, the pods
    /// reported as moved, and the placed pods that follow.
    pub suggestions: BTreeMap<String, (u64, Vec<Uid>, Vec<Uid>)>,
    /// The number of further pods requested, by owner and node.
    pub available: BTreeMap<String, BTreeMap<String, u64>>,
    /// The pods that each Movement evicts, by the movement's name.
    pub evicted: BTreeMap<String, Vec<Uid>>,
    /// Victims and their preemptors, keyed as `node uid`.
    pub preemption_marks: BTreeMap<String, Vec<Uid>>,
    /// All victims.
    pub marked: Vec<Uid>,
    /// Pods marked for deletion, with the preemptor and the time at which the mark expires.
    pub deletion_marks: BTreeMap<Uid, (Uid, Timestamp)>,
    /// The number of placed pods of each pod group, by `namespace/name`.
    pub group_members: BTreeMap<String, usize>,
    /// The state of each pod group, by `namespace/name`.
    pub group_states: BTreeMap<String, PodGroupState>,
    /// The names of the disruption budgets that match each placed pod; pods without a budget are omitted.
    pub budgets: BTreeMap<Uid, Vec<String>>,
    /// The names of the disruption budgets that match each owner of pods; the key is `Kind namespace/name`.
    pub owners: BTreeMap<String, Vec<String>>,
    /// The custom stores by name, each as [`Store::dump`](super::Store::dump) writes it, or the failure of a store that
    /// failed.
    pub stores: Vec<(&'static str, String)>,
}

/// The complete contents of a node or ghost.
#[doc(hidden)]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeDump {
    /// Whether the node exists; otherwise this is a ghost.
    pub has_node: bool,
    /// The kinds of the objects that make up the node. A ghost has at most a CustomNodeResource.
    pub parts: Vec<&'static str>,
    /// The schedulers that its Node and its NMNode assign it to.
    pub schedulers: Vec<Name>,
    /// Pods with their resource versions, by uid.
    pub pods: BTreeMap<Uid, u64>,
    /// The pods' requests.
    pub requested: Resources,
    /// The pods' requests, with defaults for containers that request nothing.
    pub non_zero_requested: NonZero,
    /// The resources allocatable to pods.
    pub allocatable: Resources,
    /// How many pods may run.
    pub allowed_pods: i64,
    /// The total resources, and the total number of pods.
    pub capacity: NodeResources,
    /// The account of best-effort pods.
    pub best_effort: AccountDump,
    /// The usage of guaranteed and of best-effort pods, as far as it is known.
    pub load: [NodeLoad; 2],
    /// Host ports in use, as `ip/protocol/port`, with the number of their users.
    pub used_ports: BTreeMap<String, u32>,
    /// Claims in use, with the number of volumes that name them.
    pub claims: BTreeMap<String, u32>,
    /// Size in bytes and number of nodes of each image, by name.
    pub images: BTreeMap<String, (i64, usize)>,
    /// Pods with affinity.
    pub with_affinity: Vec<Uid>,
    /// Pods with required anti-affinity.
    pub with_required_anti_affinity: Vec<Uid>,
    /// Taints, labels, the cordon flag and allocatable amounts, as read from the columns.
    pub columns: String,
}

/// The resources allocatable to pods of a class, and their requests.
#[doc(hidden)]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountDump {
    /// The pods' requests.
    pub requested: Resources,
    /// The pods' requests, with defaults for containers that request nothing.
    pub non_zero_requested: NonZero,
    /// The resources allocatable to these pods.
    pub allocatable: Resources,
    /// How many pods of all classes may run if one of them is of this class.
    pub allowed_pods: i64,
}

/// User counts by number.
pub(crate) type Uses = BTreeMap<u32, u32>;

impl Cluster {
    /// Dumps the whole version. O(n), plus one budget lookup for each pod and each owner.
    #[doc(hidden)]
    #[must_use]
    pub fn dump(&self) -> Dump {
        let mut dump = Dump {
            order: self.nodes().map(|node| node.name().to_string()).collect(),
            used_claims: self.used_claims().map(ToString::to_string).collect(),
            stores: self.custom.as_ref().map(|stores| stores.dump()).unwrap_or_default(),
            ..Dump::default()
        };
        for (_, image) in self.rest.images.iter() {
            if let Some(ImageState { size, nodes }) = self.image(&image.name) {
                dump.images.insert(image.name.to_string(), (size, nodes));
            }
        }
        if let Some(places) = self.reservations() {
            places.write(&mut dump);
        }
        if let Some(movements) = self.movements() {
            movements.write(&mut dump);
            for movement in self.objects().movements.iter() {
                let evicted = movement.deleted.iter().map(|pod| pod.uid.clone());
                dump.evicted.insert(movement.name.to_string(), evicted.collect());
            }
        }
        if let Some(marks) = self.preemption_marks() {
            marks.write(&mut dump);
        }
        if let Some(marks) = self.deletion_marks() {
            marks.write(&mut dump);
        }
        for (number, group) in self.rest.groups.iter() {
            let members = self.rest.groups.users(number) as usize;
            dump.group_members.insert(format!("{}/{}", group.namespace, group.name), members);
        }
        for group in self.objects().pod_groups.iter() {
            let state = self.group_state(&group.namespace, &group.name);
            dump.group_states.insert(format!("{}/{}", group.namespace, group.name), state);
        }
        let names = |budgets: Vec<&Arc<PodDisruptionBudget>>| -> Vec<String> {
            budgets.iter().map(|budget| budget.name.to_string()).collect()
        };
        for kind in ObjectKind::ALL.iter().filter(|kind| self.objects().workloads(**kind).is_some())
        {
            for (namespace, name) in self.object_keys(*kind) {
                let budgets = names(self.budgets_of_owner(*kind, &namespace, &name));
                dump.owners.insert(format!("{} {namespace}/{name}", kind.as_str()), budgets);
            }
        }
        for node in self.everything() {
            for pod in node.pods() {
                let budgets = self.budgets_for(pod.namespace(), &pod.template().labels);
                if !budgets.is_empty() {
                    dump.budgets.insert(pod.uid(), names(budgets));
                }
            }
            dump.assumed.extend(node.pods().filter(|p| p.is_assumed()).map(|p| p.uid()));
            if self.godel.is_some() {
                let assumed = node.pods().filter(|pod| pod.state() == PodState::Assumed);
                let elsewhere = assumed.filter(|pod| !pod.is_assumed());
                dump.assumed_elsewhere.extend(elsewhere.map(|pod| pod.uid()));
            }
            dump.nodes.insert(node.name().to_string(), node.dump());
        }
        dump.assumed.sort();
        dump.assumed_elsewhere.sort();
        dump.used_claims.sort();
        dump.marked.sort();
        dump
    }

    /// Returns the user counts of each table of interned values: the table's name, the recorded counts by number, and
    /// the counts recomputed from nodes and templates.
    pub(crate) fn uses(&self) -> [(&'static str, Uses, Uses); 4] {
        fn counted<V: Internable>(all: &Interned<V>) -> Uses {
            all.iter().map(|(number, _)| (number, all.users(number))).collect()
        }
        let [mut taints, mut labels, mut pod_labels, mut resources] = [const { Uses::new() }; 4];
        let use_one = |uses: &mut Uses, number: u32| *uses.entry(number).or_insert(0) += 1;
        let mut use_scalars = |scalars: &Scalars| {
            for number in scalars.iter().filter_map(|(name, _)| self.resource_id(name)) {
                use_one(&mut resources, number);
            }
        };
        for node in self.everything() {
            if let Some(listed) = node.node() {
                let (of_taints, of_labels) = node.sets();
                use_one(&mut taints, of_taints);
                use_one(&mut labels, of_labels);
                use_scalars(&listed.allocatable.scalars);
            }
            if let Some(custom) = node.custom_node_resource() {
                use_scalars(&custom.allocatable.resources.scalars);
            }
        }
        for (_, kept) in self.rest.templates.table.iter() {
            use_one(&mut pod_labels, kept.labels);
            use_scalars(&kept.template.resources.placed.scalars);
        }
        let rest = &self.rest;
        [
            ("taints", counted(&rest.taints), taints),
            ("labels of nodes", counted(&rest.labels), labels),
            ("labels of pods", counted(&rest.pod_labels), pod_labels),
            ("resources", counted(&rest.resources), resources),
        ]
    }

    /// Returns all nodes and ghosts, in no particular order.
    pub(crate) fn everything(&self) -> impl Iterator<Item = NodeInfo<'_>> {
        self.chunks.iter().flat_map(move |(_, chunk)| {
            super::chunk::lanes(chunk.live).filter_map(move |lane| NodeInfo::new(self, chunk, lane))
        })
    }
}

impl Reservations {
    /// Writes the reservations as lookups find them, so that an entry missing from an index is missing from the dump.
    fn write(&self, dump: &mut Dump) {
        let key = |place: &ReservedPlace| {
            format!("{} {} {}", place.placeholder, place.pod.key(), place.node())
        };
        let mut keys = BTreeSet::new();
        for place in self.iter() {
            let (namespace, name) = (place.pod.namespace(), &place.pod.name);
            if let Some(place) = self.get(&place.placeholder, (namespace, name), place.node()) {
                dump.reservations.insert(key(place), (place.matched.clone(), place.confirmed));
            }
            keys.insert(place.placeholder_key());
        }
        for (namespace, placeholder) in keys {
            let mut available: Vec<String> =
                self.available(namespace, placeholder).map(|place| key(place)).collect();
            available.sort();
            if !available.is_empty() {
                dump.available_places.insert(format!("{namespace}/{placeholder}"), available);
            }
        }
    }
}

impl Movements {
    fn write(&self, dump: &mut Dump) {
        for suggestion in self.iter() {
            let Suggestion { movement, owner, node, desired, .. } = &**suggestion;
            let sets = (*desired, suggestion.actual().to_vec(), suggestion.assumed().to_vec());
            dump.suggestions.insert(format!("{movement} {owner} {node}"), sets);
        }
        for owner in self.owners() {
            let nodes = self.available_nodes(owner);
            let nodes = nodes.into_iter().map(|(node, times)| (node.to_string(), times));
            dump.available.insert(owner.to_string(), nodes.collect());
        }
    }
}

impl PreemptionMarks {
    fn write(&self, dump: &mut Dump) {
        for (node, mark) in self.iter() {
            let preemptors = self.preemptors(node, &mark.victim).to_vec();
            dump.preemption_marks.insert(format!("{node} {}", mark.victim), preemptors);
        }
        dump.marked.extend(self.victims().filter(|victim| self.is_marked(victim)).cloned());
    }
}

impl DeletionMarks {
    /// Writes the marks as lookups find them, so that an entry missing from the index is missing from the dump.
    fn write(&self, dump: &mut Dump) {
        let found = self.iter().filter_map(|mark| self.get(&mark.victim));
        let described =
            found.map(|mark| (mark.victim.clone(), (mark.preemptor.clone(), mark.until)));
        dump.deletion_marks.extend(described);
    }
}

impl NodeInfo<'_> {
    fn dump(&self) -> NodeDump {
        let sorted = |mut uids: Vec<Uid>| {
            uids.sort();
            uids
        };
        let (chunk, at) = self.place();
        let mut allocatable = self.allocatable();
        allocatable.scalars = crate::model::Scalars::new(
            allocatable
                .scalars
                .iter()
                .filter(|(_, amount)| *amount != 0)
                .map(|(name, amount)| (name.clone(), amount)),
        );
        let class = PodClass::BestEffort;
        NodeDump {
            has_node: self.node().is_some(),
            parts: [
                self.kubelet_node().map(|_| "Node"),
                self.nm_node().map(|_| ObjectKind::NmNode.as_str()),
                self.custom_node_resource().map(|_| ObjectKind::CustomNodeResource.as_str()),
            ]
            .into_iter()
            .flatten()
            .collect(),
            schedulers: self.schedulers().cloned().collect(),
            capacity: self.capacity(),
            load: [PodClass::Guaranteed, PodClass::BestEffort].map(|class| self.load(class)),
            best_effort: AccountDump {
                requested: self.requested_of(class),
                non_zero_requested: self.non_zero_requested_of(class),
                allocatable: self.allocatable_of(class),
                allowed_pods: self.allowed_pods_of(class),
            },
            pods: self.pods().map(|pod| (pod.uid(), pod.resource_version())).collect(),
            requested: self.requested(),
            non_zero_requested: self.non_zero_requested(),
            allocatable,
            allowed_pods: self.allowed_pods(),
            used_ports: self
                .used_ports()
                .map(|(port, users)| {
                    (format!("{}/{}/{}", port.ip, port.protocol.as_str(), port.port), users)
                })
                .collect(),
            claims: self.claims().into_iter().map(|(key, n)| (key.to_string(), n)).collect(),
            images: self
                .images()
                .map(|(name, image)| (name.to_string(), (image.size, image.nodes)))
                .collect(),
            with_affinity: sorted(self.pods_with_affinity().map(|pod| pod.uid()).collect()),
            with_required_anti_affinity: sorted(
                self.pods_with_required_anti_affinity().map(|pod| pod.uid()).collect(),
            ),
            columns: self.node().map_or_else(String::new, |_| {
                let cluster = self.cluster();
                format!(
                    "{:?} {:?} cordoned {} cpu {} memory {} storage {} scalars {:?}",
                    cluster.taint_set(chunk.taint_set()[at]),
                    cluster.label_set(chunk.label_set()[at]),
                    chunk.unschedulable() >> at & 1,
                    chunk.allocatable_cpu()[at],
                    chunk.allocatable_memory()[at],
                    chunk.allocatable_ephemeral_storage()[at],
                    self.allocatable()
                        .scalars
                        .iter()
                        .map(|(name, _)| {
                            let id = cluster.resource_id(name);
                            id.and_then(|id| chunk.allocatable_scalar(id)).map_or(0, |c| c[at])
                        })
                        .collect::<Vec<i64>>(),
                )
            }),
        }
    }
}
