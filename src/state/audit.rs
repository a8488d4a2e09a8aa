//! The deep audit: everything derived is derived again, and compared.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::model::{Generation, Object, ObjectKind, Pod};
use crate::snapshot::draft::Draft;
use crate::snapshot::{Cluster, Dump, GodelConfig, balanced};

/// Something that a version says and its objects do not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Where: a node, or a part of the whole.
    pub place: String,
    /// What the version says.
    pub found: String,
    /// What follows from its objects.
    pub expected: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: found {}, expected {}", self.place, self.found, self.expected)
    }
}

impl Cluster {
    /// Rebuilds this version from its objects alone, nodes in their order of
    /// arrival, and names each difference; none means that all sums, lists,
    /// indexes and orders are right. O(n log n), and the budgets about each pod.
    #[must_use]
    pub fn audit(&self) -> Vec<Difference> {
        let found = self.dump();
        let mut differences = Vec::new();
        let mut differ = |place: &str, found: &dyn fmt::Debug, expected: &dyn fmt::Debug| {
            let (found, expected) = (format!("{found:?}"), format!("{expected:?}"));
            if found != expected {
                differences.push(Difference { place: place.to_owned(), found, expected });
            }
        };
        let expected = self.rebuild(&found);
        differ("order of nodes", &found.order, &expected.order);
        differ("assumed pods", &found.assumed, &expected.assumed);
        differ("used claims", &found.used_claims, &expected.used_claims);
        differ("members of pod groups", &found.group_members, &expected.group_members);
        differ("states of pod groups", &found.group_states, &expected.group_states);
        differ("suggestions", &found.suggestions, &expected.suggestions);
        differ("available nodes", &found.available, &expected.available);
        differ("evicted pods", &found.evicted, &expected.evicted);
        differ("preemption marks", &found.preemption_marks, &expected.preemption_marks);
        differ("marked pods", &found.marked, &expected.marked);
        differ("deletion marks", &found.deletion_marks, &expected.deletion_marks);
        let marks = self.deletion_marks().map_or(0, |marks| marks.len());
        differ("index of deletion marks", &found.deletion_marks.len(), &marks);
        differ("budgets of pods", &found.budgets, &expected.budgets);
        differ("budgets of owners", &found.owners, &expected.owners);
        // Which node reported a size first is not kept: the count alone follows.
        let nodes_of = |dump: &Dump| -> Vec<(String, usize)> {
            dump.images.iter().map(|(name, (_, nodes))| (name.clone(), *nodes)).collect()
        };
        differ("images", &nodes_of(&found), &nodes_of(&expected));
        let names: BTreeSet<&String> = found.nodes.keys().chain(expected.nodes.keys()).collect();
        for name in names {
            let (mut ours, mut theirs) =
                (found.nodes.get(name).cloned(), expected.nodes.get(name).cloned());
            for dump in [&mut ours, &mut theirs].into_iter().flatten() {
                dump.images.values_mut().for_each(|(size, _)| *size = 0);
            }
            differ(&format!("node {name}"), &ours, &theirs);
        }
        for node in self.everything() {
            let reached = self.any_node(node.name()).map(|n| n.slot());
            differ(&format!("name of node {}", node.name()), &reached, &Some(node.slot()));
            for pod in node.pods() {
                let on = self.pod(&pod.uid()).map(|p| p.node().slot());
                differ(&format!("uid of pod {}", pod.uid()), &on, &Some(node.slot()));
            }
            let (chunk, at) = node.place();
            let bits = [
                chunk.with_affinity(),
                chunk.with_required_anti_affinity(),
                chunk.with_claims(),
                chunk.with_ports(),
            ]
            .map(|mask| mask >> at & 1 == 1);
            let derived = [
                node.pods().any(|p| p.template().traits().affinity),
                node.pods().any(|p| p.template().traits().required_anti_affinity),
                node.pods().any(|p| p.template().traits().claims),
                node.pods().any(|p| !p.template().host_ports.is_empty()),
            ];
            differ(&format!("marks of node {}", node.name()), &bits, &derived);
            let (requested, allocatable) = (node.requested(), node.allocatable());
            let balance = balanced(
                (requested.cpu.0, allocatable.cpu.0),
                (requested.memory.0, allocatable.memory.0),
            );
            let columns = (
                node.pod_count(),
                i64::from(chunk.balance()[at]),
                node.generation() <= self.generation(),
            );
            let expected = (node.pods().len(), balance, true);
            differ(&format!("columns of node {}", node.name()), &columns, &expected);
        }
        if let Some(places) = self.reservations() {
            let available = places.iter().filter(|place| place.is_available());
            let named: BTreeSet<(String, String)> = available
                .map(|place| (place.node().to_owned(), place.pod.uid.to_string()))
                .collect();
            let pods = self.everything().flat_map(|node| node.pods());
            let there: BTreeSet<(String, String)> = pods
                .map(|pod| (pod.node().name().to_string(), pod.uid().to_string()))
                .filter(|key| named.contains(key))
                .collect();
            differ("reserved places", &named, &there);
            let all: Vec<_> = places.iter().collect();
            differ("index of places", &found.reservations.len(), &all.len());
            let available: usize = found.available_places.values().map(Vec::len).sum();
            let expected = all.iter().filter(|place| place.is_available()).count();
            differ("index of available places", &available, &expected);
        }
        for (what, counted, follows) in self.uses() {
            differ(&format!("users of {what}"), &counted, &follows);
        }
        let listed = self.nodes().count();
        let all = self.everything().count();
        let pods: usize = self.everything().map(|node| node.pod_count()).sum();
        differ(
            "counts",
            &(self.len(), self.node_count(), self.pod_count(), self.assumed_count()),
            &(listed, all, pods, found.assumed.len()),
        );
        let parts = [ObjectKind::NmNode, ObjectKind::CustomNodeResource];
        differ(
            "parts of nodes",
            &[self.objects().nm_nodes.len(), self.objects().custom_node_resources.len()],
            &parts.map(|kind| self.object_keys(kind).len()),
        );
        differences
    }

    fn rebuild(&self, found: &Dump) -> Dump {
        let mut draft = Draft::new();
        draft.begin(Generation(1));
        if let Some(config) = self.godel() {
            // Places are not made anew: the pods that hold them are there.
            draft.keep_stores(GodelConfig { reservations: None, ..config.clone() });
            for movement in self.objects().movements.iter() {
                let _ = draft.put_object(&Object::Movement(movement.clone()));
            }
        }
        for zone in self.zones() {
            for chunk in zone.chunks() {
                for node in crate::snapshot::chunk::lanes(chunk.live())
                    .filter_map(|at| self.node_in(chunk, at))
                {
                    if let Some(node) = node.kubelet_node() {
                        draft.put_node(Arc::clone(node));
                    }
                    if let Some(nm_node) = node.nm_node() {
                        let part = Object::NmNode(nm_node.clone());
                        // What was accepted once is again, or the dumps differ.
                        let _ = draft.put_object(&part);
                    }
                }
            }
        }
        let objects = self.objects();
        for group in objects.pod_groups.iter() {
            let _ = draft.put_object(&Object::PodGroup(group.clone()));
        }
        for budget in objects.pod_disruption_budgets.iter() {
            let _ = draft.put_object(&Object::PodDisruptionBudget(budget.clone()));
        }
        let owners = ObjectKind::ALL.iter().filter_map(|kind| objects.workloads(*kind));
        for owner in owners.flat_map(|store| store.iter()) {
            let _ = draft.put_object(&Object::Workload(owner.clone()));
        }
        for node in self.everything() {
            if let Some(custom) = node.custom_node_resource() {
                let part = Object::CustomNodeResource(custom.clone());
                let _ = draft.put_object(&part);
            }
            for pod in node.pods() {
                let assumed = pod.is_assumed();
                let pod: Pod = pod.to_pod();
                draft.place(&pod, node.name(), None, assumed);
            }
        }
        for mark in self.deletion_marks().into_iter().flat_map(|marks| marks.iter()) {
            // Only bound pods are marked.
            if draft.check_mark(&mark.victim).is_ok() {
                draft.mark(mark.clone());
            }
        }
        let mut dump = draft.cluster.dump();
        dump.order.retain(|name| found.nodes.contains_key(name));
        dump
    }
}
