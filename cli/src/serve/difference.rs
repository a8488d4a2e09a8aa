//! The difference between two readings: nodes, pods and disruption budgets, with the names of the fields that differ.

use std::collections::BTreeMap;
use std::sync::Arc;

use portolan::cache::{ChangeKind, NodeInfo, Snapshot};
use portolan::model::{Node, PodDisruptionBudget, Template, Uid};
use portolan_k8s::{BudgetLimit, Limit};
use serde_json::{Value, json};

use super::view::Reading;
use crate::columns::{Columns, Listed};
use crate::pod_list::PodList;

/// The most pods or budgets of a list that are named.
const MOST_NAMED: usize = 500;

/// The difference between two readings.
pub(super) struct Difference {
    columns: Columns,
    nodes: Changes<Listed>,
    pods: Pods,
    budgets: Changes<Allowed>,
}

/// The objects that differ.
struct Changes<T> {
    added: Vec<T>,
    removed: Vec<T>,
    changed: Vec<Changed<T>>,
}

/// An object before and after.
#[derive(serde::Serialize)]
struct Changed<T> {
    name: String,
    fields: Vec<&'static str>,
    before: T,
    after: T,
}

#[derive(Default)]
struct Pods {
    added: Vec<Moved>,
    removed: Vec<Moved>,
    moved: Vec<Moved>,
    /// The pods that stay on their nodes, or pending.
    changed: Vec<Moved>,
}

/// A pod with its nodes.
#[derive(serde::Serialize)]
struct Moved {
    pod: String,
    from: Option<String>,
    to: Option<String>,
    /// The fields of a pod that stays.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    fields: Vec<&'static str>,
}

/// A pod, with its node unless it is pending.
struct Place<'r> {
    pod: String,
    node: Option<String>,
    template: &'r Arc<Template>,
    is_terminating: bool,
}

/// A disruption budget by its name, as it is listed.
#[derive(serde::Serialize)]
struct Allowed {
    name: String,
    disruptions_allowed: i32,
}

impl Difference {
    /// The cost is proportional to the difference between readings that share memory, apart from a look at the
    /// resources of each node.
    pub(super) fn between(before: &Reading, after: &Reading) -> Difference {
        let (old, new) = (before.cluster(), after.cluster());
        let columns = Columns::of(new);
        let mut nodes = Changes::default();
        let (mut places_before, mut places_after) = (BTreeMap::new(), BTreeMap::new());
        for change in new.diff(old) {
            for (cluster, places) in [(old, &mut places_before), (new, &mut places_after)] {
                places.extend(cluster.node(&change.name).into_iter().flat_map(placed));
            }
            let find =
                |cluster: &'_ Snapshot| cluster.node(&change.name).map(|it| columns.node(it));
            match (old.node(&change.name), new.node(&change.name)) {
                (Some(before), Some(after)) => {
                    let fields = of_node(before, after);
                    nodes.change(&change.name, fields, columns.node(before), columns.node(after));
                }
                _ => match change.kind {
                    ChangeKind::Removed => nodes.removed.extend(find(old)),
                    _ => nodes.added.extend(find(new)),
                },
            }
        }
        places_before.extend(waiting(before.pending(), after.pending()));
        places_after.extend(waiting(after.pending(), before.pending()));
        let pods = Pods::of(&places_before, &places_after);
        Difference { columns, nodes, pods, budgets: budgets(before, after) }
    }

    /// The numbers of objects that differ.
    pub(super) fn summary(&self) -> Value {
        let Difference { nodes, pods, budgets, .. } = self;
        json!({
            "nodes": nodes.summary(),
            "pods": {
                "added": pods.added.len(),
                "removed": pods.removed.len(),
                "moved": pods.moved.len(),
                "changed": pods.changed.len(),
            },
            "budgets": budgets.summary(),
        })
    }

    pub(super) fn json(mut self, from: u64, to: u64) -> Value {
        let summary = self.summary();
        let Changes { added, removed, changed } = &mut self.budgets;
        added.truncate(MOST_NAMED);
        removed.truncate(MOST_NAMED);
        changed.truncate(MOST_NAMED);
        let named = |mut pods: Vec<Moved>| {
            pods.sort_by(|one, other| one.pod.cmp(&other.pod));
            pods.truncate(MOST_NAMED);
            pods
        };
        json!({
            "from": from,
            "to": to,
            "summary": summary,
            "resources": self.columns.json(),
            "nodes": self.nodes.json(),
            "pods": {
                "added": named(self.pods.added),
                "removed": named(self.pods.removed),
                "moved": named(self.pods.moved),
                "changed": named(self.pods.changed),
            },
            "budgets": self.budgets.json(),
        })
    }
}

impl<T> Default for Changes<T> {
    fn default() -> Changes<T> {
        Changes { added: Vec::new(), removed: Vec::new(), changed: Vec::new() }
    }
}

impl<T: serde::Serialize> Changes<T> {
    /// Adds an object if a field differs: others, such as the resource version, may.
    fn change(&mut self, name: &str, fields: Vec<&'static str>, before: T, after: T) {
        if !fields.is_empty() {
            self.changed.push(Changed { name: name.to_owned(), fields, before, after });
        }
    }

    fn summary(&self) -> Value {
        let Changes { added, removed, changed } = self;
        json!({ "added": added.len(), "removed": removed.len(), "changed": changed.len() })
    }

    fn json(&self) -> Value {
        let Changes { added, removed, changed } = self;
        json!({ "added": added, "removed": removed, "changed": changed })
    }
}

/// The names of the fields that differ.
fn differing(fields: &[(&'static str, bool)]) -> Vec<&'static str> {
    fields.iter().filter(|(_, differs)| *differs).map(|(name, _)| *name).collect()
}

fn of_node(before: NodeInfo<'_>, after: NodeInfo<'_>) -> Vec<&'static str> {
    let nodes = before.node().zip(after.node());
    let differs = |in_field: fn(&Node, &Node) -> bool| nodes.is_some_and(|(a, b)| in_field(a, b));
    differing(&[
        ("labels", differs(|a, b| a.labels != b.labels)),
        ("taints", differs(|a, b| a.taints != b.taints)),
        ("is_cordoned", differs(|a, b| a.unschedulable != b.unschedulable)),
        (
            "allocatable",
            before.allocatable() != after.allocatable()
                || differs(|a, b| a.allowed_pods != b.allowed_pods),
        ),
        ("capacity", differs(|a, b| a.capacity != b.capacity)),
        ("requested", before.requested() != after.requested()),
        ("pods", before.pod_count() != after.pod_count()),
        ("images", differs(|a, b| a.images != b.images)),
        ("declared_features", differs(|a, b| a.declared_features != b.declared_features)),
    ])
}

/// The differences of the disruption budgets. O(budgets).
fn budgets(before: &Reading, after: &Reading) -> Changes<Allowed> {
    let (before, after) = (Budget::all(before), Budget::all(after));
    let mut changes = Changes::default();
    for (name, new) in &after {
        match before.get(name) {
            None => changes.added.push(new.listed(name)),
            Some(old) => {
                changes.change(name, old.fields(new), old.listed(name), new.listed(name));
            }
        }
    }
    let gone = before.iter().filter(|(name, _)| !after.contains_key(*name));
    changes.removed.extend(gone.map(|(name, old)| old.listed(name)));
    changes
}

/// A disruption budget, and what its author wrote.
struct Budget<'r> {
    budget: &'r PodDisruptionBudget,
    limit: Option<&'r BudgetLimit>,
}

impl Budget<'_> {
    fn all(of: &Reading) -> BTreeMap<String, Budget<'_>> {
        let all = of.cluster().objects().pod_disruption_budgets.iter();
        let key = |namespace: &str, name: &str| format!("{namespace}/{name}");
        let all = all
            .map(|budget| (key(&budget.namespace, &budget.name), Budget { budget, limit: None }));
        let mut all: BTreeMap<_, _> = all.collect();
        for limit in of.budget_limits() {
            if let Some(budget) = all.get_mut(&key(&limit.namespace, &limit.name)) {
                budget.limit = Some(limit);
            }
        }
        all
    }

    fn listed(&self, name: &str) -> Allowed {
        Allowed { name: name.to_owned(), disruptions_allowed: self.budget.disruptions_allowed }
    }

    fn fields(&self, new: &Budget<'_>) -> Vec<&'static str> {
        let limit = |of: &Budget<'_>| -> Option<(Option<Limit>, bool)> {
            of.limit.map(|limit| (limit.limit, limit.evicts_unhealthy))
        };
        let (a, b) = (self.budget, new.budget);
        differing(&[
            ("selector", a.selector != b.selector),
            ("limit", limit(self) != limit(new)),
            ("disruptions_allowed", a.disruptions_allowed != b.disruptions_allowed),
        ])
    }
}

fn placed(node: NodeInfo<'_>) -> impl Iterator<Item = (Uid, Place<'_>)> {
    node.pods().map(move |pod| {
        let place = Place {
            pod: format!("{}/{}", pod.namespace(), pod.name()),
            node: Some(node.name().to_string()),
            template: pod.template(),
            is_terminating: pod.deletion_time().is_some(),
        };
        (pod.uid(), place)
    })
}

/// The pending pods that may not be pending in the other list.
fn waiting<'r>(pods: &'r PodList, other: &PodList) -> impl Iterator<Item = (Uid, Place<'r>)> {
    pods.without_shared(other).map(|pod| {
        let place = Place {
            pod: pod.key().to_string(),
            node: None,
            template: &pod.template,
            is_terminating: pod.deletion_time.is_some(),
        };
        (pod.uid.clone(), place)
    })
}

impl Place<'_> {
    /// The fields of a pod that differ, besides its node.
    fn fields(&self, new: &Place<'_>) -> Vec<&'static str> {
        let (a, b) = (self.template, new.template);
        let mut fields = Vec::new();
        if !Arc::ptr_eq(a, b) {
            fields = differing(&[
                ("requests", a.resources != b.resources),
                ("labels", a.labels != b.labels),
                ("priority", a.priority != b.priority),
                ("tolerations", a.tolerations != b.tolerations),
                ("scheduling_gates", a.scheduling_gates != b.scheduling_gates),
            ]);
        }
        fields.extend((self.is_terminating != new.is_terminating).then_some("is_terminating"));
        fields
    }
}

impl Pods {
    fn of(before: &BTreeMap<Uid, Place<'_>>, after: &BTreeMap<Uid, Place<'_>>) -> Pods {
        let mut pods = Pods::default();
        let moved = |pod: &str, [from, to]: [Option<&Place<'_>>; 2], fields| {
            let node = |of: Option<&Place<'_>>| of.and_then(|place| place.node.clone());
            Moved { pod: pod.to_owned(), from: node(from), to: node(to), fields }
        };
        for (uid, new) in after {
            let old = before.get(uid);
            let fields = match old {
                Some(old) if old.node == new.node => old.fields(new),
                _ => Vec::new(),
            };
            let list = match old {
                None => &mut pods.added,
                Some(old) if old.node != new.node => &mut pods.moved,
                Some(_) if fields.is_empty() => continue,
                Some(_) => &mut pods.changed,
            };
            list.push(moved(&new.pod, [old, Some(new)], fields));
        }
        let gone = before.iter().filter(|(uid, _)| !after.contains_key(uid));
        let gone = gone.map(|(_, old)| moved(&old.pod, [Some(old), None], Vec::new()));
        pods.removed = gone.collect();
        pods
    }
}
