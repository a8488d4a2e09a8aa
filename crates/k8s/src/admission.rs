//! Limit ranges and resource quotas, as the admission plugins LimitRanger and ResourceQuota apply them to new pods.
//!
//! The usage of a quota is computed from the pods of the input and not read from its status, so that it changes with
//! them. Pods in phase Succeeded or Failed are not charged.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Write;
use std::sync::Arc;

use super::defaults::Rules;
use super::error::{Path, ReadError};
use super::limit_range::LimitRange;
use super::node::{name, quantities};
use super::pod::PodDraft;
use super::wire_objects as wire;
use super::workloads::PodController;
use portolan::model::{
    Container, Name, Pod, Quantity, Requests, ResourceList, Uid, is_scheduled_resource,
};

/// The limits of a pod's containers, and those of the pod itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Limits {
    /// The limits of each container of the pod's requests.
    pub(super) containers: Vec<ResourceList>,
    pub(super) pod_level: ResourceList,
}

impl Limits {
    /// component-helpers/resource `PodLimits`.
    pub(super) fn total(&self, requests: &Requests) -> ResourceList {
        let containers = requests.containers.iter().zip(&self.containers);
        let containers = containers.map(|(container, limits)| Container {
            kind: container.kind,
            requests: limits.clone(),
            ..Container::default()
        });
        let of_limits = Requests { containers: containers.collect(), ..Requests::default() };
        let mut total = of_limits.aggregate();
        for (name, limit) in self.pod_level.iter().filter(|(name, _)| Requests::is_pod_level(name))
        {
            total.set(name.clone(), limit);
        }
        for (name, overhead) in requests.overhead.iter() {
            // Overhead alone sets no limit.
            if let Some(limit) = total.get(name) {
                total.set(name.clone(), limit + overhead);
            }
        }
        total
    }
}

/// The fields of a pod on which quotas depend, and which the scheduler does not read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Traits {
    limits: Vec<(Name, Quantity)>,
    class: Option<Name>,
    has_deadline: bool,
    crosses_namespaces: bool,
}

impl Traits {
    fn of(draft: &PodDraft) -> Traits {
        let limits = draft.limits.total(&draft.requests);
        Traits {
            limits: limits.iter().map(|(name, limit)| (name.clone(), limit)).collect(),
            class: draft.priority_class.clone(),
            has_deadline: draft.has_deadline,
            crosses_namespaces: draft.crosses_namespaces,
        }
    }
}

/// The traits of the pods that were read, except those without any. Equal ones are shared.
#[derive(Clone, Debug, Default)]
pub(super) struct AllTraits {
    of_pods: HashMap<Uid, Arc<Traits>>,
    distinct: HashSet<Arc<Traits>>,
}

impl AllTraits {
    pub(super) fn read(&mut self, draft: &PodDraft) {
        let traits = Traits::of(draft);
        if traits == Traits::default() {
            return;
        }
        let shared = self.distinct.get(&traits).cloned().unwrap_or_else(|| {
            let new = Arc::new(traits);
            self.distinct.insert(new.clone());
            new
        });
        self.of_pods.insert(Uid::new(&draft.uid), shared);
    }

    pub(super) fn merge(&mut self, other: AllTraits) {
        self.of_pods.extend(other.of_pods);
        self.distinct.extend(other.distinct);
    }
}

/// The quantities that a pod is charged for.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Charge {
    usage: ResourceList,
    is_best_effort: bool,
    traits: Traits,
    /// The containers without a request or limit, by the resource that a quota may require.
    lacking: BTreeMap<String, BTreeSet<Name>>,
}

/// The resources that each container must name if a quota has them (evaluator/core/pods.go `validationSet`).
const REQUIRED: [&str; 2] = ["cpu", "memory"];

impl Charge {
    fn new(requests: &ResourceList, traits: Traits) -> Charge {
        let one = Quantity::whole(1);
        let mut usage = ResourceList::new([("count/pods", one), ("pods", one)]);
        for (name, request) in requests.iter() {
            if matches!(&**name, "cpu" | "memory" | "ephemeral-storage")
                || name.starts_with("hugepages-")
            {
                usage.set(name.clone(), request);
            }
            if is_scheduled_resource(name) {
                usage.set(format!("requests.{name}"), request);
            }
        }
        for (name, limit) in &traits.limits {
            if matches!(&**name, "cpu" | "memory" | "ephemeral-storage") {
                usage.set(format!("limits.{name}"), *limit);
            }
        }
        let is_given =
            |(name, amount): (&Name, Quantity)| REQUIRED.contains(&&**name) && !amount.is_zero();
        let is_best_effort = !requests.iter().any(is_given)
            && !traits.limits.iter().any(|(name, limit)| is_given((name, *limit)));
        Charge { usage, is_best_effort, traits, lacking: BTreeMap::new() }
    }

    pub(super) fn of_draft(draft: &PodDraft) -> Charge {
        let mut requests = draft.requests.aggregate();
        let pod_level = draft.requests.pod_level.iter().flat_map(ResourceList::iter);
        for (name, request) in pod_level.filter(|(name, _)| Requests::is_pod_level(name)) {
            requests.set(name.clone(), request);
        }
        for (name, overhead) in draft.requests.overhead.iter() {
            let sum = requests.get(name).unwrap_or_default() + overhead;
            requests.set(name.clone(), sum);
        }
        let mut charge = Charge::new(&requests, Traits::of(draft));
        let containers = draft.requests.containers.iter().zip(&draft.limits.containers);
        for ((container, limits), called) in containers.zip(&draft.container_names) {
            for resource in REQUIRED {
                let mut note = |text: String| {
                    charge.lacking.entry(text).or_default().insert(called.clone());
                };
                if container.requests.get(resource).is_none() {
                    note(resource.to_owned());
                    note(format!("requests.{resource}"));
                }
                if limits.get(resource).is_none() {
                    note(format!("limits.{resource}"));
                }
            }
        }
        charge
    }

    /// The charge of a pod that exists.
    fn of_pod(pod: &Pod, all: &AllTraits) -> Charge {
        let placed = &pod.template.resources.placed;
        let native = [
            ("cpu", Quantity::milli(placed.cpu.0)),
            ("memory", Quantity::whole(placed.memory.0)),
            ("ephemeral-storage", Quantity::whole(placed.ephemeral_storage.0)),
        ];
        let native = native.map(|(name, amount)| (Name::from(name), amount));
        let scalars = placed.scalars.iter();
        let scalars = scalars.map(|(name, amount)| (name.clone(), Quantity::whole(amount)));
        let requests = native.into_iter().filter(|(_, amount)| !amount.is_zero()).chain(scalars);
        let traits = all.of_pods.get(&pod.uid).map(|it| Traits::clone(it)).unwrap_or_default();
        Charge::new(&ResourceList::new(requests), traits)
    }
}

/// A scope of a quota: only pods that it matches are charged.
#[derive(Clone, Debug, PartialEq)]
struct Scope {
    name: Name,
    operator: Name,
    values: Vec<Name>,
}

impl Scope {
    /// evaluator/core/pods.go `podMatchesScopeFunc`.
    fn matches(&self, charge: &Charge) -> bool {
        let Traits { class, has_deadline, crosses_namespaces, .. } = &charge.traits;
        match &*self.name {
            "Terminating" => *has_deadline,
            "NotTerminating" => !has_deadline,
            "BestEffort" => charge.is_best_effort,
            "NotBestEffort" => !charge.is_best_effort,
            "CrossNamespacePodAffinity" => *crosses_namespaces,
            "PriorityClass" => match &*self.operator {
                "In" => class.as_ref().is_some_and(|class| self.values.contains(class)),
                "NotIn" => class.as_ref().is_none_or(|class| !self.values.contains(class)),
                "DoesNotExist" => class.is_none(),
                _ => class.is_some(),
            },
            _ => false,
        }
    }
}

/// A resource quota and its usage by pods.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Quota {
    namespace: Name,
    name: Name,
    hard: ResourceList,
    scopes: Vec<Scope>,
    used: ResourceList,
}

impl Quota {
    pub(super) fn read(
        wire: &wire::ResourceQuota<'_>,
        path: &Path<'_>,
        rules: &Rules<'_>,
    ) -> Result<Quota, ReadError> {
        let meta = wire.metadata.clone().unwrap_or_default();
        let spec = wire.spec.clone().unwrap_or_default();
        let always = |scope: &super::wire::Text<'_>| Scope {
            name: name(scope),
            operator: "Exists".into(),
            values: Vec::new(),
        };
        let selected = spec.scope_selector.iter().flat_map(|it| it.match_expressions.iter());
        let selected = selected.map(|it| Scope {
            name: name(&it.scope_name),
            operator: name(&it.operator),
            values: it.values.iter().map(name).collect(),
        });
        Ok(Quota {
            namespace: rules.namespace(&meta.namespace),
            name: super::objects::named(&meta.name, path)?,
            hard: quantities(&spec.hard, &path.key("spec").key("hard"))?,
            scopes: spec.scopes.iter().map(always).chain(selected).collect(),
            used: ResourceList::default(),
        })
    }

    /// Whether the quota charges a pod.
    fn matches(&self, namespace: &Name, charge: &Charge) -> bool {
        self.namespace == *namespace && self.scopes.iter().all(|scope| scope.matches(charge))
    }

    /// The part of the usage of a pod that the quota limits.
    fn charged<'c>(&'c self, charge: &'c Charge) -> impl Iterator<Item = (&'c Name, Quantity)> {
        let usage = charge.usage.iter().filter(|(_, amount)| !amount.is_zero());
        usage.filter(|(name, _)| self.hard.get(name).is_some())
    }

    /// Why the quota refuses a pod (plugin/resourcequota/controller.go `CheckRequest`).
    fn refusal(&self, namespace: &Name, charge: &Charge) -> Option<String> {
        if !self.matches(namespace, charge) {
            return None;
        }
        let quota = &self.name;
        let lacking =
            charge.lacking.iter().filter(|(resource, _)| self.hard.get(resource).is_some());
        let lacking: Vec<String> = lacking
            .map(|(resource, containers)| {
                let containers: Vec<&str> = containers.iter().map(|name| &**name).collect();
                format!("{resource} for: {}", containers.join(","))
            })
            .collect();
        if !lacking.is_empty() {
            return Some(format!("failed quota: {quota}: must specify {}", lacking.join("; ")));
        }
        let [mut requested, mut used, mut limited] = [const { String::new() }; 3];
        for (name, amount) in self.charged(charge) {
            let known = self.used.get(name).unwrap_or_default();
            let hard = self.hard.get(name).unwrap_or_default();
            if known + amount <= hard {
                continue;
            }
            for (text, amount) in
                [(&mut requested, amount), (&mut used, known), (&mut limited, hard)]
            {
                let comma = if text.is_empty() { "" } else { "," };
                let _ = write!(text, "{comma}{name}={}", amount_text(name, amount));
            }
        }
        let is_exceeded = !requested.is_empty();
        is_exceeded.then(|| {
            format!(
                "exceeded quota: {quota}, requested: {requested}, used: {used}, limited: {limited}"
            )
        })
    }

    fn add(&mut self, namespace: &Name, charge: &Charge, sign: i64) {
        if !self.matches(namespace, charge) {
            return;
        }
        let charged: Vec<(Name, Quantity)> =
            self.charged(charge).map(|(name, amount)| (name.clone(), amount)).collect();
        for (name, amount) in charged {
            let used = self.used.get(&name).unwrap_or_default();
            self.used.set(name, if sign < 0 { used - amount } else { used + amount });
        }
    }
}

/// Writes an amount as manifests usually do: amounts of bytes with a binary suffix if that is shorter.
pub(super) fn amount_text(resource: &str, amount: Quantity) -> String {
    const SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let decimal = amount.to_string();
    let is_bytes = ["memory", "storage", "hugepages"].iter().any(|part| resource.contains(part));
    if !is_bytes || Quantity::whole(amount.value()) != amount {
        return decimal;
    }
    let (mut value, mut suffix) = (amount.value(), 0);
    while value != 0 && value % 1024 == 0 && suffix + 1 < SUFFIXES.len() {
        value /= 1024;
        suffix += 1;
    }
    let binary = format!("{value}{}", SUFFIXES[suffix]);
    if binary.len() < decimal.len() { binary } else { decimal }
}

/// Decides whether new pods are admitted, and counts the usage of quotas.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Admission {
    quotas: Vec<Quota>,
    charges: HashMap<Uid, Arc<Charge>>,
    refusals: HashMap<Uid, Arc<str>>,
    /// The pods that exist.
    charged: HashSet<Uid>,
}

impl Admission {
    /// Admits a new pod and charges it to the quotas. A pod that exists is not charged again. O(quotas).
    ///
    /// # Errors
    ///
    /// Returns the reason of the API server, without the name of the pod, if a limit range or a quota refuses it.
    pub fn admit(&mut self, pod: &Pod) -> Result<(), String> {
        if let Some(why) = self.refusals.get(&pod.uid) {
            return Err(format!("forbidden: {why}"));
        }
        let Some(charge) = self.charges.get(&pod.uid) else { return Ok(()) };
        if self.charged.contains(&pod.uid) {
            return Ok(());
        }
        let namespace = pod.namespace();
        if let Some(why) = self.quotas.iter().find_map(|quota| quota.refusal(namespace, charge)) {
            return Err(format!("forbidden: {why}"));
        }
        self.quotas.iter_mut().for_each(|quota| quota.add(namespace, charge, 1));
        self.charged.insert(pod.uid.clone());
        Ok(())
    }

    /// Releases the charge of a pod that is gone. Returns whether it had one.
    pub fn release(&mut self, pod: &Pod) -> bool {
        let was_charged = self.charged.remove(&pod.uid);
        if let Some(charge) = self.charges.get(&pod.uid).filter(|_| was_charged) {
            let namespace = pod.namespace();
            self.quotas.iter_mut().for_each(|quota| quota.add(namespace, charge, -1));
        }
        was_charged
    }

    /// Returns whether there are no quotas, and no pods that a limit range refuses.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.quotas.is_empty() && self.refusals.is_empty()
    }

    /// Adds pods that a controller creates, so that they can be admitted. O(pods).
    pub fn expect(&mut self, controller: &PodController, pods: &[Pod]) {
        for pod in pods {
            if let Some(charge) = &controller.charge {
                self.charges.insert(pod.uid.clone(), charge.clone());
            }
            if let Some(why) = &controller.refusal {
                self.refusals.insert(pod.uid.clone(), why.clone());
            }
        }
    }

    /// Adds pods that are copies of another one. O(pods).
    pub fn expect_like(&mut self, like: &Pod, pods: &[Pod]) {
        if let Some(charge) = self.charges.get(&like.uid).cloned() {
            self.charges.extend(pods.iter().map(|pod| (pod.uid.clone(), charge.clone())));
        }
    }

    /// Adds the pods of another input. Its quotas are known already, see [`crate::Reader::finish_together`].
    pub fn extend(&mut self, other: &Admission) {
        self.charges.extend(other.charges.iter().map(|(uid, it)| (uid.clone(), it.clone())));
        self.refusals.extend(other.refusals.iter().map(|(uid, why)| (uid.clone(), why.clone())));
    }

    /// Adds pods that may be admitted, unless they are known.
    pub(super) fn know<'p>(&mut self, pods: impl Iterator<Item = &'p Pod>, all: &AllTraits) {
        if self.quotas.is_empty() {
            return;
        }
        for pod in pods {
            let charge = || Arc::new(Charge::of_pod(pod, all));
            self.charges.entry(pod.uid.clone()).or_insert_with(charge);
        }
    }

    /// Charges the pods that exist.
    pub(super) fn charge<'p>(&mut self, pods: impl Iterator<Item = &'p Pod>, all: &AllTraits) {
        if self.quotas.is_empty() {
            return;
        }
        for pod in pods {
            let charge = Arc::new(Charge::of_pod(pod, all));
            let namespace = pod.namespace();
            self.quotas.iter_mut().for_each(|quota| quota.add(namespace, &charge, 1));
            self.charges.insert(pod.uid.clone(), charge);
            self.charged.insert(pod.uid.clone());
        }
    }
}

/// The limit ranges and quotas of all inputs.
#[derive(Default)]
pub(super) struct Policies {
    pub(super) ranges: Vec<LimitRange>,
    pub(super) quotas: Vec<Quota>,
}

impl Policies {
    /// Returns the admission with the usage of no pods.
    pub(super) fn admission(&self) -> Admission {
        Admission { quotas: self.quotas.clone(), ..Admission::default() }
    }

    /// Completes the template of new pods, and returns their charge and why they are refused, if they are.
    pub(super) fn apply(&self, draft: &mut PodDraft) -> (Option<Arc<Charge>>, Option<Arc<str>>) {
        let ranges = || self.ranges.iter().filter(|it| it.namespace == draft.spec.namespace);
        let ranges: Vec<&LimitRange> = ranges().collect();
        ranges.iter().for_each(|range| range.complete(draft));
        let refusal = ranges.iter().find_map(|range| range.refusal(draft)).map(Arc::from);
        let is_limited = self.quotas.iter().any(|it| it.namespace == draft.spec.namespace);
        (is_limited.then(|| Arc::new(Charge::of_draft(draft))), refusal)
    }

    /// As [`Policies::apply`], for a single pod.
    pub(super) fn apply_to(&self, draft: &mut PodDraft, admission: &mut Admission) {
        let (charge, refusal) = self.apply(draft);
        let uid = Uid::new(&draft.uid);
        admission.charges.extend(charge.map(|charge| (uid.clone(), charge)));
        admission.refusals.extend(refusal.map(|why| (uid, why)));
    }
}
