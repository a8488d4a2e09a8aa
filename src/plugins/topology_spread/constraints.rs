//! The constraints of a pod: its own, or the default ones.

use std::borrow::Cow;
use std::sync::OnceLock;

use crate::framework::Status;
use crate::model::{
    Generation, HOSTNAME, LabelSelector, Name, Operator, Pod, Requirement, Template,
    TopologySpreadConstraint, UnsatisfiableAction,
};
use crate::snapshot::{Chunk, Cluster, Lineage};

use super::super::node_affinity::Required;
use super::super::taint_toleration::Tolerated;
use super::NAME;

/// The largest number of constraints of a pod, because each occupies one bit.
pub(super) const MAX_CONSTRAINTS: usize = 64;

const ZONE: &str = "topology.kubernetes.io/zone";

/// The constraints of pods without constraints of their own.
#[derive(Clone, Debug, Default)]
pub(super) enum Defaults {
    /// The defaults of kube-scheduler.
    #[default]
    System,
    /// These constraints, with selectors derived from services and owners.
    List(Vec<TopologySpreadConstraint>),
}

/// Returns the pod's constraints with this action. `selector` returns the selector for default constraints.
///
/// # Errors
///
/// The pod has more constraints than the bit masks can hold.
pub(super) fn constraints<'a>(
    defaults: &'a Defaults,
    pod: &'a Pod,
    action: UnsatisfiableAction,
    selector: impl FnOnce() -> Option<LabelSelector>,
) -> Result<Vec<Constraint<'a>>, Status> {
    let own = &pod.template.topology_spread;
    let defaults = match defaults {
        Defaults::System if action == UnsatisfiableAction::DoNotSchedule => &[],
        Defaults::System => system_defaults(),
        Defaults::List(list) => &list[..],
    };
    let all = if own.is_empty() { defaults } else { own };
    let wanted = || all.iter().filter(|constraint| constraint.when_unsatisfiable == action);
    let count = wanted().count();
    if count > MAX_CONSTRAINTS {
        let why = format!(
            "pods with more than {MAX_CONSTRAINTS} topology spread constraints with the same action are not supported: {count}"
        );
        return Err(Status::error(NAME, why));
    }
    if count == 0 || !own.is_empty() {
        return Ok(wanted().map(|constraint| Constraint::new(constraint, pod)).collect());
    }
    let Some(selector) = selector() else { return Ok(Vec::new()) };
    let default = |constraint| Constraint {
        selector: Cow::Owned(selector.clone()),
        ..Constraint::new(constraint, pod)
    };
    Ok(wanted().map(default).collect())
}

/// Soft spreading over hosts and zones (plugin.go `systemDefaultConstraints`).
fn system_defaults() -> &'static [TopologySpreadConstraint] {
    static DEFAULTS: OnceLock<[TopologySpreadConstraint; 2]> = OnceLock::new();
    DEFAULTS.get_or_init(|| {
        [(HOSTNAME, 3), (ZONE, 5)].map(|(key, max_skew)| TopologySpreadConstraint {
            max_skew,
            topology_key: key.into(),
            when_unsatisfiable: UnsatisfiableAction::ScheduleAnyway,
            selector: LabelSelector::Nothing,
            min_domains: None,
            honor_node_affinity: true,
            honor_node_taints: false,
            match_label_keys: Box::default(),
        })
    })
}

/// Returns the selector of the pods that belong together with those of a template: the union of the selectors of all
/// services that select them and of the workload that owns them (helper/spread.go `DefaultSelector`). Returns `None` if
/// there are neither.
fn default_selector(cluster: &Cluster, template: &Template) -> Option<LabelSelector> {
    let namespace = &template.namespace;
    let mut labels = std::collections::BTreeMap::new();
    let mut services: Vec<_> = cluster
        .objects()
        .services
        .iter()
        .filter(|service| service.namespace == *namespace && !service.selector.is_empty())
        .filter(|service| service.selector.iter().all(|(k, v)| template.labels.get(k) == Some(v)))
        .collect();
    // The selectors all match the pod's labels and therefore never contradict each other, so their order does not
    // matter.
    services.sort_by(|a, b| a.name.cmp(&b.name));
    for service in services {
        labels.extend(service.selector.iter().map(|(k, v)| (k.to_owned(), v.to_owned())));
    }
    let mut more: Vec<Requirement> = Vec::new();
    let owner = template.controller();
    let workload = owner.and_then(|owner| {
        let objects = cluster.objects();
        let store = match (&*owner.api_version, &*owner.kind) {
            ("v1", "ReplicationController") => &objects.replication_controllers,
            ("apps/v1", "ReplicaSet") => &objects.replica_sets,
            ("apps/v1", "StatefulSet") => &objects.stateful_sets,
            _ => return None,
        };
        store.get(namespace, &owner.name)
    });
    if let Some(workload) = workload
        && let LabelSelector::All(requirements) = &workload.selector
    {
        more.extend(requirements.iter().cloned());
    }
    let mut all: Vec<Requirement> =
        labels.into_iter().map(|(k, v)| Requirement::new(k, Operator::In, [v])).collect();
    all.extend(more);
    (!all.is_empty()).then(|| LabelSelector::All(all.into()))
}

/// Returns the generation of the newest object that the default constraints of this pod depend on.
pub(super) fn reads(cluster: &Cluster, pod: &Pod) -> Generation {
    if !pod.template.topology_spread.is_empty() {
        return Generation::ZERO;
    }
    let objects = cluster.objects();
    let workloads =
        [&objects.replication_controllers, &objects.replica_sets, &objects.stateful_sets];
    let newest = workloads.iter().map(|store| store.generation()).max().unwrap_or_default();
    newest.max(objects.services.generation())
}

/// Returns whether any service or workload could select pods of the template.
pub(super) fn may_be_selected(cluster: &Cluster, template: &Template) -> bool {
    !template.owners.is_empty() || !cluster.objects().services.is_empty()
}

/// The default selector for the pods of one template, cached until a service or a workload changes, because there may
/// be thousands of those.
#[derive(Default)]
pub(super) struct Selected {
    key: Option<(Lineage, Generation)>,
    selector: Option<LabelSelector>,
}

impl Selected {
    pub(super) fn follow(&mut self, cluster: &Cluster, pod: &Pod) -> Option<LabelSelector> {
        let key = Some((cluster.lineage(), reads(cluster, pod)));
        if self.key != key {
            *self = Selected { key, selector: default_selector(cluster, &pod.template) };
        }
        self.selector.clone()
    }
}

/// A constraint as it applies to one pod.
pub(super) struct Constraint<'a> {
    pub(super) key: &'a Name,
    pub(super) max_skew: i64,
    pub(super) min_domains: usize,
    pub(super) selector: Cow<'a, LabelSelector>,
    honor_node_affinity: bool,
    pub(super) honor_node_taints: bool,
}

impl<'a> Constraint<'a> {
    fn new(constraint: &'a TopologySpreadConstraint, pod: &Pod) -> Constraint<'a> {
        let labels = &pod.template.labels;
        let keys = constraint.match_label_keys.iter();
        let values: Vec<Requirement> = keys
            .filter_map(|key| Some((key, labels.get(key)?)))
            .map(|(key, value)| Requirement::new(key.clone(), Operator::In, [value]))
            .collect();
        let selector = match &constraint.selector {
            LabelSelector::All(requirements) if !values.is_empty() => {
                Cow::Owned(LabelSelector::All(requirements.iter().cloned().chain(values).collect()))
            }
            selector => Cow::Borrowed(selector),
        };
        Constraint {
            key: &constraint.topology_key,
            max_skew: i64::from(constraint.max_skew),
            min_domains: constraint.min_domains.map_or(1, |n| usize::try_from(n).unwrap_or(1)),
            selector,
            honor_node_affinity: constraint.honor_node_affinity,
            honor_node_taints: constraint.honor_node_taints,
        }
    }

    /// Returns which nodes count for the pod.
    pub(super) fn policy<'p>(&self, pod: &'p Pod) -> Policy<'p> {
        let affinity = self.honor_node_affinity.then(|| Required::of(&pod.template)).flatten();
        let taints = self.honor_node_taints.then(|| Tolerated::of(&pod.template));
        Policy { affinity, taints }
    }
}

/// Which nodes count (`nodeAffinityPolicy`, `nodeTaintsPolicy`).
pub(super) struct Policy<'p> {
    affinity: Option<Required<'p>>,
    taints: Option<Tolerated<'p>>,
}

impl Policy<'_> {
    pub(super) fn includes_all(&self) -> bool {
        self.affinity.is_none() && self.taints.is_none()
    }

    pub(super) fn includes(&self, cluster: &Cluster, chunk: &Chunk, mask: u64) -> u64 {
        let affine = self.affinity.as_ref().map_or(mask, |a| a.matching(cluster, chunk, mask));
        self.taints.as_ref().map_or(affine, |t| t.tolerating(cluster, chunk, affine))
    }
}
