//! The audit: derives all data that follows from the objects again, and compares it.

use std::collections::BTreeSet;
use std::fmt;

use crate::model::ObjectKind;
use crate::snapshot::draft::Draft;
use crate::snapshot::{Cluster, Dump, NodeInfo, balanced};

/// A difference between a version and the data derived from its objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The location of the difference: a node, a pod or an index of the version.
    pub place: String,
    /// The value in the version.
    pub found: String,
    /// The value derived from the objects.
    pub expected: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: found {}, expected {}", self.place, self.found, self.expected)
    }
}

/// The differences found so far.
#[derive(Default)]
struct Differences(Vec<Difference>);

impl Differences {
    /// Records a difference if the values differ. Only differing values are formatted.
    fn note<T: PartialEq + fmt::Debug>(
        &mut self,
        place: impl fmt::Display,
        found: &T,
        expected: &T,
    ) {
        if found != expected {
            self.0.push(Difference {
                place: place.to_string(),
                found: format!("{found:?}"),
                expected: format!("{expected:?}"),
            });
        }
    }
}

impl Cluster {
    /// Rebuilds this version from its objects alone, with nodes in their order of arrival, and returns every
    /// difference. An empty result means that all sums, lists, indexes and orders are correct. A node may
    /// nevertheless be overcommitted, because pods that are already placed when they are added are never refused.
    /// O(n log n), plus the matching of disruption budgets for each pod.
    #[must_use]
    pub fn audit(&self) -> Vec<Difference> {
        let found = self.dump();
        let expected = self.rebuild(&found);
        let mut differences = Differences::default();
        self.compare_dumps(&found, &expected, &mut differences);
        self.everything().for_each(|node| self.audit_node(node, &mut differences));
        self.audit_reservations(&found, &mut differences);
        self.audit_counts(&found, &mut differences);
        self.audit_custom_stores(&expected, &mut differences);
        self.audit_objects(&mut differences);
        differences.0
    }

    fn rebuild(&self, found: &Dump) -> Dump {
        let (draft, _) = Draft::renewed(self, self.generation());
        let mut dump = draft.cluster.dump();
        dump.order.retain(|name| found.nodes.contains_key(name));
        dump
    }

    fn compare_dumps(&self, found: &Dump, expected: &Dump, differences: &mut Differences) {
        differences.note("order of nodes", &found.order, &expected.order);
        differences.note("assumed pods", &found.assumed, &expected.assumed);
        differences.note("used claims", &found.used_claims, &expected.used_claims);
        differences.note("members of pod groups", &found.group_members, &expected.group_members);
        differences.note("states of pod groups", &found.group_states, &expected.group_states);
        differences.note("suggestions", &found.suggestions, &expected.suggestions);
        differences.note("available nodes", &found.available, &expected.available);
        differences.note("evicted pods", &found.evicted, &expected.evicted);
        differences.note("preemption marks", &found.preemption_marks, &expected.preemption_marks);
        differences.note("marked pods", &found.marked, &expected.marked);
        differences.note("deletion marks", &found.deletion_marks, &expected.deletion_marks);
        let marks = self.deletion_marks().map_or(0, |marks| marks.len());
        differences.note("index of deletion marks", &found.deletion_marks.len(), &marks);
        differences.note("budgets of pods", &found.budgets, &expected.budgets);
        differences.note("budgets of owners", &found.owners, &expected.owners);
        // The node that reported an image's size first is not stored, so only the number of nodes can be derived.
        let nodes_of = |dump: &Dump| -> Vec<(String, usize)> {
            dump.images.iter().map(|(name, (_, nodes))| (name.clone(), *nodes)).collect()
        };
        differences.note("images", &nodes_of(found), &nodes_of(expected));
        let names: BTreeSet<&String> = found.nodes.keys().chain(expected.nodes.keys()).collect();
        for name in names {
            let (mut ours, mut theirs) =
                (found.nodes.get(name).cloned(), expected.nodes.get(name).cloned());
            for dump in [&mut ours, &mut theirs].into_iter().flatten() {
                dump.images.values_mut().for_each(|(size, _)| *size = 0);
            }
            differences.note(format_args!("node {name}"), &ours, &theirs);
        }
    }

    /// Checks the indexes by which a node and its pods are found, and its columns.
    fn audit_node(&self, node: NodeInfo<'_>, differences: &mut Differences) {
        let name = node.name();
        let reached = self.any_node(name).map(|n| n.slot());
        differences.note(format_args!("name of node {name}"), &reached, &Some(node.slot()));
        for pod in node.pods() {
            let slot = self.pod(&pod.uid()).map(|p| p.node().slot());
            differences.note(format_args!("uid of pod {}", pod.uid()), &slot, &Some(node.slot()));
            if self.lookup.has_names() {
                let named = self.pods_named(pod.namespace(), pod.name());
                let is_named = named.iter().any(|named| named.uid() == pod.uid());
                differences.note(format_args!("name of pod {}", pod.uid()), &is_named, &true);
            }
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
        differences.note(format_args!("marks of node {name}"), &bits, &derived);
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
        let expected = (node.pods().count(), balance, true);
        differences.note(format_args!("columns of node {name}"), &columns, &expected);
    }

    fn audit_reservations(&self, found: &Dump, differences: &mut Differences) {
        let Some(places) = self.reservations() else { return };
        let available = places.iter().filter(|place| place.is_available());
        let reserved: BTreeSet<(String, String)> =
            available.map(|place| (place.node().to_owned(), place.pod.uid.to_string())).collect();
        let pods = self.everything().flat_map(|node| node.pods());
        let placed: BTreeSet<(String, String)> = pods
            .map(|pod| (pod.node().name().to_string(), pod.uid().to_string()))
            .filter(|key| reserved.contains(key))
            .collect();
        differences.note("placeholder pods of reservations", &reserved, &placed);
        let all: Vec<_> = places.iter().collect();
        differences.note("index of reservations", &found.reservations.len(), &all.len());
        let available: usize = found.available_places.values().map(Vec::len).sum();
        let expected = all.iter().filter(|place| place.is_available()).count();
        differences.note("index of available reservations", &available, &expected);
    }

    /// Checks the users of interned values, and the counts of nodes and pods.
    fn audit_counts(&self, found: &Dump, differences: &mut Differences) {
        for (what, counted, follows) in self.uses() {
            differences.note(format_args!("users of {what}"), &counted, &follows);
        }
        let listed = self.nodes().count();
        let all = self.everything().count();
        let pods: usize = self.everything().map(|node| node.pod_count()).sum();
        differences.note(
            "counts",
            &(self.len(), self.node_count(), self.pod_count(), self.assumed_count()),
            &(listed, all, pods, found.assumed.len()),
        );
    }

    fn audit_custom_stores(&self, expected: &Dump, differences: &mut Differences) {
        // Two stores may have the same name, so they are matched by position.
        for ((name, found), (_, expected)) in self.store_dumps().zip(&expected.stores) {
            let place = format!("store {name}");
            match found {
                // The rebuilt store may panic with the same message.
                Err(panic) => differences.note(place, &Some(panic), &None),
                Ok(found) => differences.note(place, &found, expected),
            }
        }
    }

    /// Checks the indexes of the object stores, and the counts of node parts.
    fn audit_objects(&self, differences: &mut Differences) {
        for kind in ObjectKind::ALL.iter().filter(|kind| !kind.is_node_part()) {
            let keys = self.objects().keys(*kind);
            let reached = keys
                .iter()
                .filter(|(namespace, name)| self.objects().contains(*kind, namespace, name));
            let place = format!("index of {kind} objects", kind = kind.as_str());
            differences.note(place, &reached.count(), &keys.len());
        }
        let parts = [ObjectKind::NmNode, ObjectKind::CustomNodeResource];
        differences.note(
            "parts of nodes",
            &[self.objects().nm_nodes.len, self.objects().custom_node_resources.len],
            &parts.map(|kind| self.object_keys(kind).len()),
        );
    }
}
