//! Resolves references between the objects that were read, as the admission plugins Priority and RuntimeClass do.

use std::collections::{BTreeMap, HashSet};

use super::budgets::{self, BudgetLimit, PodFacts};
use super::collect::{Collected, Entry};
use super::defaults::{Defaulted, amount, object};
use super::objects::{PriorityClass, RuntimeClass};
use super::pod::PodDraft;
use super::workloads::PodController;
use portolan::model::{Name, Node, Object, Pod, PreemptionPolicy};

/// The objects of all inputs, in the order of the inputs.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Objects {
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The pods, without those in phase Succeeded or Failed.
    pub pods: Vec<Pod>,
    /// Objects of the other kinds that an engine stores, including the workloads of `controllers`.
    pub objects: Vec<Object>,
    /// The controllers, which create pods from a template, see [`Objects::expand`].
    pub controllers: Vec<PodController>,
    /// The priority classes.
    pub priority_classes: Vec<PriorityClass>,
    /// The runtime classes.
    pub runtime_classes: Vec<RuntimeClass>,
    /// The number of skipped objects, by kind.
    pub skipped: BTreeMap<String, usize>,
    /// The number of pods in phase Succeeded or Failed.
    pub finished_pods: usize,
    /// The values that were filled in.
    pub defaulted: Vec<Defaulted>,
    /// The limits of the disruption budgets in `objects`.
    pub budget_limits: Vec<BudgetLimit>,
    /// Facts about the pods beyond those that the scheduler reads.
    pub facts: PodFacts,
}

impl Objects {
    /// Adds the pods that the controllers would have created, and returns their number.
    ///
    /// A controller is expanded only if no pod in the input belongs to it. A deployment is expanded only if it also has
    /// no replica set in the input, and then gets a replica set of its own name. Daemon sets create pods for `nodes`.
    pub fn expand(&mut self) -> usize {
        let key = |kind: &str, namespace: &Name, name: &Name| {
            (kind.to_owned(), namespace.clone(), name.clone())
        };
        let mut owners = HashSet::new();
        for pod in &self.pods {
            for owner in pod.template.owners.iter().filter(|owner| owner.controller) {
                owners.insert(key(&owner.kind, pod.namespace(), &owner.name));
            }
        }
        for controller in &self.controllers {
            for owner in controller.owners.iter().filter(|owner| owner.controller) {
                owners.insert(key(&owner.kind, &controller.namespace, &owner.name));
            }
        }
        let before = self.pods.len();
        for controller in &self.controllers {
            let own = key(controller.kind.as_str(), &controller.namespace, &controller.name);
            let replica_set = controller.replica_set();
            let set_key = replica_set.as_ref().map(|set| key(set.kind.as_str(), &own.1, &own.2));
            if owners.contains(&own) || set_key.is_some_and(|key| owners.contains(&key)) {
                continue;
            }
            self.pods.extend(controller.expand(&self.nodes));
            self.objects.extend(replica_set.map(Object::from));
        }
        self.pods.len() - before
    }
}

/// The priority classes that every cluster has.
const SYSTEM_CLASSES: [(&str, i32); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

/// Resolves the references of all objects. O(objects).
pub(super) fn resolve(mut read: Collected) -> Objects {
    let mut report = std::mem::take(&mut read.defaulted);
    let classes = Classes {
        priority: read.priority_classes.iter().map(|c| (&*c.name, c)).collect(),
        // Of several global defaults the one with the lowest value is used, as in the admission plugin.
        default: read.priority_classes.iter().filter(|c| c.global_default).min_by_key(|c| c.value),
        runtime: read.runtime_classes.iter().map(|c| (&*c.name, c)).collect(),
    };
    let mut pods = Vec::with_capacity(read.pods.len());
    for entry in std::mem::take(&mut read.pods) {
        pods.push(match entry {
            Entry::Done(pod) => pod,
            Entry::Open(mut draft) => {
                let about = object("Pod", &draft.spec.namespace, &draft.name);
                classes.complete(&mut draft, &about, &mut report);
                read.templates.share(draft.finish())
            }
        });
    }
    for controller in &mut read.controllers {
        let about = object(controller.kind.as_str(), &controller.namespace, &controller.name);
        classes.complete(&mut controller.draft, &about, &mut report);
    }
    budgets::complete(&mut read, &pods, &mut report);
    let workloads = read.controllers.iter().filter_map(PodController::workload);
    read.objects.extend(workloads.map(Object::from));
    Objects {
        nodes: read.nodes,
        pods,
        objects: read.objects,
        controllers: read.controllers,
        priority_classes: read.priority_classes,
        runtime_classes: read.runtime_classes,
        skipped: read.skipped,
        finished_pods: read.finished_pods,
        defaulted: report,
        budget_limits: read.budget_limits,
        facts: read.facts,
    }
}

struct Classes<'c> {
    priority: BTreeMap<&'c str, &'c PriorityClass>,
    default: Option<&'c PriorityClass>,
    runtime: BTreeMap<&'c str, &'c RuntimeClass>,
}

impl Classes<'_> {
    fn complete(&self, draft: &mut PodDraft, about: &str, report: &mut Vec<Defaulted>) {
        let mut note = |field: &str, value: String| {
            report.push(Defaulted { object: about.to_owned(), field: field.to_owned(), value });
        };
        if draft.priority.is_none() {
            let (priority, policy, why) = self.priority(draft.priority_class.as_deref());
            draft.priority = Some(priority);
            note("spec.priority", format!("{priority}{why}"));
            if let (None, Some(PreemptionPolicy::Never)) = (draft.preemption_policy, policy) {
                note("spec.preemptionPolicy", "Never".to_owned());
            }
            draft.preemption_policy = draft.preemption_policy.or(policy);
        }
        let Some(name) = draft.runtime_class.as_deref() else { return };
        let Some(class) = self.runtime.get(name) else {
            if !draft.has_overhead {
                note("spec.overhead", format!("none: runtime class {name:?} is not in the input"));
            }
            return;
        };
        if let (false, Some(overhead)) = (draft.has_overhead, &class.overhead) {
            note("spec.overhead", amount(overhead));
            draft.requests.overhead = overhead.clone();
            draft.has_overhead = true;
        }
        let spec = &mut draft.spec;
        if !class.node_selector.is_empty() {
            // The pod's own values win. The admission plugin rejects a pod whose values conflict with its class.
            spec.node_selector =
                class.node_selector.iter().chain(spec.node_selector.iter()).collect();
            note("spec.nodeSelector", format!("{:?}", spec.node_selector));
        }
        let mut tolerations = Vec::from(std::mem::take(&mut spec.tolerations));
        let mut known: HashSet<_> = tolerations.iter().cloned().collect();
        for toleration in &class.tolerations {
            if known.insert(toleration.clone()) {
                tolerations.push(toleration.clone());
                note("spec.tolerations", toleration.key.as_deref().unwrap_or("*").to_owned());
            }
        }
        spec.tolerations = tolerations.into();
    }

    /// Returns the priority and preemption policy of a class, and a suffix for the report that names their source.
    fn priority(&self, class: Option<&str>) -> (i32, Option<PreemptionPolicy>, String) {
        let Some(name) = class else {
            return match self.default {
                Some(class) => {
                    let why = format!(" (the global default, {})", class.name);
                    (class.value, class.preemption_policy, why)
                }
                None => (0, None, String::new()),
            };
        };
        if let Some(class) = self.priority.get(name) {
            return (class.value, class.preemption_policy, format!(" ({name})"));
        }
        match SYSTEM_CLASSES.iter().find(|(system, _)| *system == name) {
            Some((_, value)) => (*value, None, format!(" ({name})")),
            None => (0, None, format!(" (priority class {name:?} is not in the input)")),
        }
    }
}
