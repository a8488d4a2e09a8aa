//! The disruptions that budgets allow, computed as the disruption controller does
//! (pkg/controller/disruption/disruption.go), and the facts about pods that are needed for it.
//!
//! The budget of a manifest has no status. Its pods and their controllers are in the input, so the number of allowed
//! disruptions follows from `minAvailable` or `maxUnavailable`.

mod fact_changes;

use std::collections::{BTreeMap, HashMap};

use super::collect::Collected;
use super::defaults::{Defaulted, object};
use super::error::{Path, ReadError};
use super::node::name;
use super::pod::PodDraft;
use super::wire::QuantityText;
use super::wire_objects as wire;
use super::wire_pod;
use super::workloads::{ControllerKind, PodController};
use portolan::model::{
    LabelSelector, Name, Object, Pod, PodDisruptionBudget, Requests, Taint, Template, Uid,
};

pub use fact_changes::FactChanges;

/// An absolute number or a percentage (`intstr.IntOrString`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntOrPercent {
    /// A number.
    Int(i64),
    /// A percentage.
    Percent(i64),
}

impl IntOrPercent {
    /// Parses `3` or `25%`. Returns `None` for other texts and negative numbers.
    #[must_use]
    pub fn parse(text: &str) -> Option<IntOrPercent> {
        let number = |text: &str| text.parse::<i32>().ok().filter(|n| *n >= 0).map(i64::from);
        match text.strip_suffix('%') {
            Some(percent) => number(percent).map(IntOrPercent::Percent),
            None => number(text).map(IntOrPercent::Int),
        }
    }

    /// Reads a field that may be absent.
    pub(super) fn read(
        given: &Option<QuantityText<'_>>,
        path: &Path<'_>,
    ) -> Result<Option<IntOrPercent>, ReadError> {
        let Some(text) = given else { return Ok(None) };
        let expected = "a number of pods such as 2, or a percentage such as 25%";
        let read = IntOrPercent::parse(&text.0);
        read.map(Some).ok_or_else(|| ReadError::value(path, &text.0, expected))
    }

    /// Returns the number, or the percentage of `total`, rounded up or down.
    #[must_use]
    pub fn of(self, total: i64, round_up: bool) -> i64 {
        match self {
            IntOrPercent::Int(number) => number,
            IntOrPercent::Percent(percent) => {
                let product = percent.saturating_mul(total);
                product.saturating_add(if round_up { 99 } else { 0 }) / 100
            }
        }
    }
}

/// The limit of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The field `minAvailable`.
    MinAvailable(IntOrPercent),
    /// The field `maxUnavailable`.
    MaxUnavailable(IntOrPercent),
}

/// A disruption budget as its author wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetLimit {
    /// The namespace.
    pub namespace: Name,
    /// The name.
    pub name: Name,
    /// The selector of the pods.
    pub selector: LabelSelector,
    /// The limit, or `None` if the budget sets none and so allows no disruption.
    pub limit: Option<Limit>,
    /// Whether pods that are not ready are always evicted (`unhealthyPodEvictionPolicy: AlwaysAllow`).
    pub evicts_unhealthy: bool,
    /// Whether the budget has a status, which the disruption controller wrote.
    pub has_status: bool,
}

/// The numbers of pods of a template.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodCounts {
    all: i64,
    /// The pods that are ready and not being deleted.
    healthy: i64,
    /// The pods that are being deleted, which no controller counts.
    terminating: i64,
}

impl PodCounts {
    /// Counts a pod. A pod that is being deleted is not healthy.
    pub fn add(&mut self, is_ready: bool, is_terminating: bool) {
        self.all += 1;
        self.healthy += i64::from(is_ready && !is_terminating);
        self.terminating += i64::from(is_terminating);
    }

    /// Reverts [`PodCounts::add`] of the same values.
    pub fn remove(&mut self, is_ready: bool, is_terminating: bool) {
        self.all -= 1;
        self.healthy -= i64::from(is_ready && !is_terminating);
        self.terminating -= i64::from(is_terminating);
    }

    /// Returns whether there are no pods.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all == 0
    }
}

/// The pods of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// The number of healthy pods (`status.currentHealthy`).
    pub healthy: i64,
    /// The number of pods that must be healthy (`status.desiredHealthy`).
    pub desired: i64,
}

impl Health {
    /// Returns how many pods may be disrupted, which is negative if too few are healthy.
    #[must_use]
    pub fn margin(self) -> i64 {
        self.healthy - self.desired
    }
}

impl BudgetLimit {
    /// Returns the health of the budget's pods, from the numbers of pods of each template. Templates without pods, and
    /// those that the budget does not cover, are ignored. O(templates).
    ///
    /// Returns `None` if no disruption is allowed, regardless of which pods are healthy: the budget has no limit or
    /// covers no pods, or the scale of a controller cannot be known.
    pub fn health<'p>(
        &self,
        pods: impl IntoIterator<Item = (&'p Template, PodCounts)>,
        scales: &Scales,
    ) -> Option<Health> {
        let limit = self.limit?;
        let mut sum = PodCounts::default();
        let mut owned: HashMap<Scaled, i64> = HashMap::new();
        for (template, counts) in pods {
            if counts.is_empty()
                || template.namespace != self.namespace
                || !self.selector.matches(&template.labels)
            {
                continue;
            }
            sum.all += counts.all;
            sum.healthy += counts.healthy;
            if let Some(scaled) = scales.scaled(template) {
                *owned.entry(scaled).or_default() += counts.all - counts.terminating;
            }
        }
        let scale = || -> Option<i64> {
            owned.iter().map(|(scaled, pods)| scales.replicas(scaled, *pods)).sum()
        };
        let (expected, desired) = match limit {
            Limit::MaxUnavailable(most) => {
                let expected = scale()?;
                (expected, (expected - most.of(expected, true)).max(0))
            }
            Limit::MinAvailable(IntOrPercent::Int(least)) => (sum.all, least),
            Limit::MinAvailable(least) => {
                let expected = scale()?;
                (expected, least.of(expected, true))
            }
        };
        (expected > 0).then_some(Health { healthy: sum.healthy, desired })
    }
}

/// A controller whose number of pods counts: kind, namespace and name.
pub type Scaled = (Name, Name, Name);

/// The desired numbers of pods of the controllers, which the percentages of budgets refer to.
#[derive(Clone, Debug, Default)]
pub struct Scales {
    replicas: HashMap<Scaled, i64>,
    /// The deployment of each replica set.
    deployments: HashMap<(Name, Name), Name>,
}

impl Scales {
    /// Returns the scales of these controllers.
    #[must_use]
    pub fn of(controllers: &[PodController]) -> Scales {
        let mut scales = Scales::default();
        for controller in controllers {
            let key = (controller.namespace.clone(), controller.name.clone());
            let mut owners = controller.owners.iter().filter(|owner| owner.controller);
            let deployment = owners.find(|owner| &*owner.kind == "Deployment");
            if let Some(deployment) = deployment {
                scales.deployments.insert(key.clone(), deployment.name.clone());
            }
            if controller.kind == ControllerKind::Deployment {
                // The replica set that `Objects::expand` creates has the name of the deployment.
                scales.deployments.entry(key.clone()).or_insert_with(|| key.1.clone());
            }
            let kind = controller.kind.as_str();
            scales.set(kind, &key.0, &key.1, controller.replicas);
        }
        scales
    }

    /// Sets the number of pods of a controller.
    pub fn set(&mut self, kind: &str, namespace: &Name, name: &Name, replicas: usize) {
        let replicas = i64::try_from(replicas).unwrap_or(i64::MAX);
        self.replicas.insert((kind.into(), namespace.clone(), name.clone()), replicas);
    }

    /// Returns the controller that decides about the number of pods with this template: the deployment if a replica
    /// set belongs to one.
    #[must_use]
    pub fn scaled(&self, template: &Template) -> Option<Scaled> {
        let owner = template.controller()?;
        let key = (template.namespace.clone(), owner.name.clone());
        match self.deployments.get(&key) {
            Some(deployment) if &*owner.kind == "ReplicaSet" => {
                Some(("Deployment".into(), key.0, deployment.clone()))
            }
            _ => Some((owner.kind.clone(), key.0, key.1)),
        }
    }

    /// Returns the desired number of pods of a controller, or the number of its known pods if it is not in the input.
    /// Jobs and daemon sets have no scale.
    fn replicas(&self, scaled: &Scaled, pods: i64) -> Option<i64> {
        match &*scaled.0 {
            "Job" | "DaemonSet" | "Node" => None,
            _ => Some(self.replicas.get(scaled).copied().unwrap_or(pods)),
        }
    }
}

/// Facts about the pods of the input that the scheduler does not read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodFacts {
    /// The pods of which some fact is not the default.
    pods: HashMap<Uid, Facts>,
    /// The phases of the finished pods, by namespace and name.
    finished: BTreeMap<(Name, Name), Name>,
    /// The pods that name each class, by the class's kind and name.
    classes: BTreeMap<(&'static str, Name), Vec<Uid>>,
}

/// The facts about a pod.
#[derive(Clone, Debug, PartialEq)]
struct Facts {
    is_ready: bool,
    /// Whether all containers were started.
    has_started: bool,
    deletion_cost: i32,
    /// The seconds that the pod stays on a failed node. `None` is forever.
    stays: Option<i64>,
    /// The requests of the containers if the pod is without a node.
    requests: Option<Box<Requests>>,
}

/// The seconds that the API server adds to pods without a toleration of their own (DefaultTolerationSeconds).
const DEFAULT_SECONDS: i64 = 300;

impl Facts {
    const DEFAULT: Facts = Facts {
        is_ready: true,
        has_started: true,
        deletion_cost: 0,
        stays: Some(DEFAULT_SECONDS),
        requests: None,
    };

    /// Reads the facts that a pod's object has.
    fn read(pod: &wire_pod::Pod<'_>) -> Facts {
        let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter());
        let is_not_ready =
            |it: &wire_pod::Condition<'_>| &*it.condition_type == "Ready" && &*it.status != "True";
        let has_started = pod.status.as_ref().is_none_or(|status| &*status.phase != "Pending");
        let annotations = pod.metadata.iter().filter_map(|meta| meta.annotations.as_ref());
        let mut costs = annotations.filter_map(|it| it.deletion_cost.parse().ok());
        let tolerations = pod.spec.iter().flat_map(|spec| spec.tolerations.iter());
        Facts {
            is_ready: has_started && !conditions.any(is_not_ready),
            has_started,
            deletion_cost: costs.find(|cost| *cost != 0).unwrap_or(0),
            stays: seconds_on_failed_node(tolerations),
            requests: None,
        }
    }
}

impl PodFacts {
    fn of(&self, pod: &Uid) -> &Facts {
        self.pods.get(pod).unwrap_or(&Facts::DEFAULT)
    }

    /// Returns `false` if the status of the pod says that it is not ready.
    #[must_use]
    pub fn is_ready(&self, pod: &Uid) -> bool {
        self.of(pod).is_ready
    }

    /// Returns `false` if the pod is in phase Pending, in which no budget protects it from an eviction.
    #[must_use]
    pub fn has_started(&self, pod: &Uid) -> bool {
        self.of(pod).has_started
    }

    /// Returns the cost of deleting the pod before others of its controller, which its annotation sets.
    #[must_use]
    pub fn deletion_cost(&self, pod: &Uid) -> i32 {
        self.of(pod).deletion_cost
    }

    /// Returns how many seconds the pod stays on a node that is unreachable, or `None` if it tolerates that forever.
    #[must_use]
    pub fn stays_on_failed_node(&self, pod: &Uid) -> Option<i64> {
        self.of(pod).stays
    }

    /// Returns the requests of the pod's containers, or `None` if the pod has a node or no manifest of its own.
    #[must_use]
    pub fn requests(&self, pod: &Uid) -> Option<&Requests> {
        self.of(pod).requests.as_deref()
    }

    /// Returns an iterator over the pods that have finished, by namespace and name, with their phases `Succeeded` or
    /// `Failed`. They are not among the pods that were read.
    pub fn finished(&self) -> impl Iterator<Item = (&(Name, Name), &Name)> {
        self.finished.iter()
    }

    pub(super) fn has_finished(&self, namespace: &Name, name: &Name) -> bool {
        self.finished.contains_key(&(namespace.clone(), name.clone()))
    }

    pub(super) fn read_requests(&mut self, pod: &PodDraft) {
        if pod.node_name.is_none() {
            let facts = self.pods.entry(Uid::new(&pod.uid)).or_insert(Facts::DEFAULT);
            facts.requests = Some(Box::new(pod.requests.clone()));
        }
    }

    pub(super) fn read_finished(&mut self, namespace: Name, name: &str, phase: &str) {
        self.finished.insert((namespace, name.into()), phase.into());
    }

    /// Returns the priority classes and runtime classes that pods name, by kind and name, with these pods.
    #[must_use]
    pub fn classes(&self) -> &BTreeMap<(&'static str, Name), Vec<Uid>> {
        &self.classes
    }

    /// Reads a pod's object, before its requests.
    pub(super) fn read(&mut self, uid: &str, pod: &wire_pod::Pod<'_>) {
        let facts = Facts::read(pod);
        if facts != Facts::DEFAULT {
            self.pods.insert(Uid::new(uid), facts);
        }
        if let Some(spec) = &pod.spec {
            let classes = [
                ("PriorityClass", &spec.priority_class_name),
                ("RuntimeClass", &spec.runtime_class_name),
            ];
            for (kind, class) in classes.into_iter().filter(|(_, class)| !class.is_empty()) {
                self.classes.entry((kind, name(class))).or_default().push(Uid::new(uid));
            }
        }
    }

    /// Adds the facts about other pods.
    pub fn merge(&mut self, other: PodFacts) {
        self.pods.extend(other.pods);
        self.finished.extend(other.finished);
        for (class, pods) in other.classes {
            self.classes.entry(class).or_default().extend(pods);
        }
    }
}

/// tainteviction `getMinTolerationTime`.
fn seconds_on_failed_node<'t, 'a: 't>(
    tolerations: impl Iterator<Item = &'t wire_pod::Toleration<'a>>,
) -> Option<i64> {
    let tolerates = |it: &&wire_pod::Toleration<'_>| {
        matches!(&*it.effect, "" | "NoExecute")
            && match &*it.operator {
                "Exists" => matches!(&*it.key, "" | Taint::UNREACHABLE),
                _ => *it.key == *Taint::UNREACHABLE && it.value.is_empty(),
            }
    };
    let mut matching = tolerations.filter(tolerates).peekable();
    if matching.peek().is_none() {
        return Some(DEFAULT_SECONDS);
    }
    matching.filter_map(|it| *it.toleration_seconds).map(|seconds| seconds.max(0)).min()
}

/// Reads the limit of a budget.
pub(super) fn limit(
    wire: &wire::PodDisruptionBudget<'_>,
    path: &Path<'_>,
    budget: &PodDisruptionBudget,
) -> Result<BudgetLimit, ReadError> {
    let no_spec = wire::PodDisruptionBudgetSpec::default();
    let spec = wire.spec.as_ref().unwrap_or(&no_spec);
    let path = path.key("spec");
    let least = IntOrPercent::read(&spec.min_available, &path.key("minAvailable"))?;
    let most = IntOrPercent::read(&spec.max_unavailable, &path.key("maxUnavailable"))?;
    Ok(BudgetLimit {
        namespace: budget.namespace.clone(),
        name: budget.name.clone(),
        selector: budget.selector.clone(),
        // The API server refuses both.
        limit: most.map(Limit::MaxUnavailable).or(least.map(Limit::MinAvailable)),
        evicts_unhealthy: &*spec.unhealthy_pod_eviction_policy == "AlwaysAllow",
        has_status: wire.status.as_ref().is_some_and(|it| it.disruptions_allowed.is_some()),
    })
}

/// Computes the disruptions that budgets without a status allow. O(pods + templates × such budgets).
pub(super) fn complete(read: &mut Collected, pods: &[Pod], report: &mut Vec<Defaulted>) {
    if read.budget_limits.iter().all(|budget| budget.has_status) {
        return;
    }
    let scales = Scales::of(&read.controllers);
    let limits: HashMap<(&Name, &Name), &BudgetLimit> =
        read.budget_limits.iter().map(|it| ((&it.namespace, &it.name), it)).collect();
    let mut counts: HashMap<&Template, PodCounts> = HashMap::new();
    for pod in pods {
        let is_placed = pod.node_name.as_ref().is_some_and(|node| !node.is_empty());
        let is_ready = is_placed && read.facts.is_ready(&pod.uid);
        counts.entry(&pod.template).or_default().add(is_ready, pod.deletion_time.is_some());
    }
    for entry in &mut read.objects {
        let Object::PodDisruptionBudget(budget) = entry else { continue };
        let Some(limit) = limits.get(&(&budget.namespace, &budget.name)) else { continue };
        if limit.has_status {
            continue;
        }
        let pods = counts.iter().map(|(template, counts)| (*template, *counts));
        let allowed = limit.health(pods, &scales).map_or(0, |health| health.margin().max(0));
        let allowed = i32::try_from(allowed).unwrap_or(i32::MAX);
        report.push(Defaulted {
            object: object("PodDisruptionBudget", &budget.namespace, &budget.name),
            field: "status.disruptionsAllowed".to_owned(),
            value: allowed.to_string(),
        });
        *entry = PodDisruptionBudget {
            disruptions_allowed: allowed,
            ..PodDisruptionBudget::clone(budget)
        }
        .into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods(count: usize, ready: usize) -> String {
        let pod = |n: usize| {
            let ready = if n < ready { "True" } else { "False" };
            format!(
                "---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: web-{n}\n  labels: {{app: web}}\n  \
                 ownerReferences: [{{kind: ReplicaSet, name: web, controller: true}}]\n\
                 spec: {{nodeName: n, containers: [{{name: c}}]}}\n\
                 status: {{conditions: [{{type: Ready, status: \"{ready}\"}}]}}\n"
            )
        };
        (0..count).map(pod).collect()
    }

    fn allowed(limit: &str, replicas: usize, ready: usize) -> i32 {
        let text = format!(
            "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {{name: b}}\n\
             spec: {{selector: {{matchLabels: {{app: web}}}}, {limit}}}\n---\n\
             apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {{name: web}}\n\
             spec: {{replicas: {replicas}, template: {{metadata: {{labels: {{app: web}}}}}}}}\n{}",
            pods(replicas, ready)
        );
        let objects = super::super::read(text.as_bytes()).unwrap();
        let budget = objects.objects.iter().find_map(|object| match object {
            Object::PodDisruptionBudget(budget) => Some(budget.disruptions_allowed),
            _ => None,
        });
        budget.unwrap()
    }

    #[test]
    fn numbers_and_percentages_are_rounded_as_by_the_disruption_controller() {
        assert_eq!(allowed("minAvailable: 2", 5, 5), 3);
        assert_eq!(allowed("minAvailable: \"2\"", 5, 4), 2);
        // 50 % of 5 is rounded up in both cases.
        assert_eq!(allowed("minAvailable: 50%", 5, 5), 2);
        assert_eq!(allowed("maxUnavailable: 50%", 5, 5), 3);
        assert_eq!(allowed("maxUnavailable: 50%", 5, 3), 1);
        assert_eq!(allowed("maxUnavailable: 1", 5, 3), 0);
        assert_eq!(allowed("maxUnavailable: 9", 5, 3), 3);
        assert_eq!(allowed("maxUnavailable: 0", 5, 5), 0);
        assert_eq!(allowed("status: {}", 5, 5), 0);
    }

    #[test]
    fn percentages_refer_to_the_scale_of_the_deployment() {
        let text = format!(
            "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {{name: b}}\n\
             spec: {{selector: {{matchLabels: {{app: web}}}}, minAvailable: 50%}}\n---\n\
             apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {{name: web, ownerReferences: \
             [{{kind: Deployment, name: top, controller: true}}]}}\nspec: {{replicas: 3}}\n---\n\
             apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: top}}\nspec: {{replicas: 8}}\n{}",
            pods(5, 5)
        );
        let objects = super::super::read(text.as_bytes()).unwrap();
        let scales = Scales::of(&objects.controllers);
        let mut one = PodCounts::default();
        one.add(true, false);
        let pods = || objects.pods.iter().map(|pod| (&*pod.template, one));
        let health = objects.budget_limits[0].health(pods(), &scales);
        assert_eq!(health, Some(Health { healthy: 5, desired: 4 }));
    }

    #[test]
    fn a_status_is_kept_and_bad_limits_are_refused() {
        let budget = |spec: &str, status: &str| {
            format!(
                "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {{name: b}}\n\
                 spec: {{selector: {{matchLabels: {{app: web}}}}, {spec}}}\nstatus: {{{status}}}\n{}",
                pods(4, 4)
            )
        };
        let objects =
            super::super::read(budget("minAvailable: 1", "disruptionsAllowed: 2").as_bytes());
        let objects = objects.unwrap().objects;
        let Object::PodDisruptionBudget(found) = &objects[0] else { panic!("{objects:?}") };
        assert_eq!(found.disruptions_allowed, 2);
        for bad in ["minAvailable: many", "maxUnavailable: -1", "maxUnavailable: 5x%"] {
            let error = super::super::read(budget(bad, "").as_bytes()).unwrap_err().to_string();
            assert!(error.contains("such as 25%"), "{error}");
        }
    }

    #[test]
    fn pods_stay_on_failed_nodes_as_long_as_they_tolerate_it() {
        let text = |tolerations: &str| {
            format!(
                "apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\n\
                 spec: {{tolerations: [{tolerations}]}}"
            )
        };
        let stays = |tolerations: &str| {
            let objects = super::super::read(text(tolerations).as_bytes()).unwrap();
            objects.facts.stays_on_failed_node(&objects.pods[0].uid)
        };
        let key = "key: node.kubernetes.io/unreachable, operator: Exists";
        assert_eq!(stays(""), Some(300));
        assert_eq!(
            stays(&format!("{{{key}, effect: NoExecute, tolerationSeconds: 30}}")),
            Some(30)
        );
        assert_eq!(stays(&format!("{{{key}}}")), None);
        assert_eq!(stays("{operator: Exists}, {operator: Exists, tolerationSeconds: 9}"), Some(9));
        assert_eq!(stays("{operator: Exists, effect: NoSchedule}"), Some(300));
        assert_eq!(stays(&format!("{{{key}, tolerationSeconds: -5}}")), Some(0));
    }
}
