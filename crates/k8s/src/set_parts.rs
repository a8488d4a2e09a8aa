//! The pods of job sets and leader-worker sets: their labels, exclusive placement, and their order.
//!
//! The controllers of these sets and the webhooks that they install complete a pod when it is created. The first pod of
//! a job or group is its leader. With exclusive placement, terms of affinity give the leader a topology domain of its
//! own, and the other pods are created when it has a node, with a node selector of the same domain.

use std::sync::Arc;

use super::own_labels;
use super::pod::PodDraft;
use super::prerequisite::Prerequisite;
use super::wire::Metadata;
use super::workloads::{ControllerKind, PodController};
use portolan::model::{
    LabelSelector, Name, Operator, PodAffinity, PodAffinityTerm, PodSpec, Requirement, TaintEffect,
    Toleration, TolerationOperator,
};

const JOB_KEY: &str = "jobset.sigs.k8s.io/job-key";
const PRIORITY: &str = "jobset.sigs.k8s.io/priority";
const JOBSET_NAME: &str = "jobset.sigs.k8s.io/jobset-name";
/// The labels of the pods of job sets (jobset_controller.go `labelAndAnnotateObject`, pod_webhook.go `Default`).
pub(super) const JOBSET_KEYS: [&str; 13] = [
    JOBSET_NAME,
    "jobset.sigs.k8s.io/jobset-uid",
    "jobset.sigs.k8s.io/replicatedjob-name",
    "jobset.sigs.k8s.io/restart-attempt",
    "jobset.sigs.k8s.io/replicatedjob-replicas",
    "jobset.sigs.k8s.io/global-replicas",
    "jobset.sigs.k8s.io/job-index",
    "jobset.sigs.k8s.io/job-global-index",
    "jobset.sigs.k8s.io/group-name",
    "jobset.sigs.k8s.io/group-replicas",
    "jobset.sigs.k8s.io/job-group-index",
    JOB_KEY,
    PRIORITY,
];
pub(super) const GROUP_SET: &str = "leaderworkerset.sigs.k8s.io/name";
pub(super) const GROUP_INDEX: &str = "leaderworkerset.sigs.k8s.io/group-index";
const GROUP_KEY: &str = "leaderworkerset.sigs.k8s.io/group-key";
const WORKER_INDEX: &str = "leaderworkerset.sigs.k8s.io/worker-index";
pub(super) const GROUP_REVISION: &str = "leaderworkerset.sigs.k8s.io/template-revision-hash";
const SUBGROUP_INDEX: &str = "leaderworkerset.sigs.k8s.io/subgroup-index";
const SUBGROUP_KEY: &str = "leaderworkerset.sigs.k8s.io/subgroup-key";
/// The labels of the pods of leader-worker sets (pod_webhook.go `Default`).
pub(super) const GROUP_KEYS: [&str; 5] =
    [GROUP_SET, GROUP_INDEX, GROUP_KEY, WORKER_INDEX, GROUP_REVISION];
pub(super) const SUBGROUP_KEYS: [&str; 7] =
    [GROUP_SET, GROUP_INDEX, GROUP_KEY, WORKER_INDEX, GROUP_REVISION, SUBGROUP_INDEX, SUBGROUP_KEY];

/// The role of a controller within its set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A job of a job set.
    Job,
    /// The leaders of all groups.
    Leaders,
    /// The workers of one group.
    Workers,
}

/// The subgroups of each group.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SubGroups {
    pub(super) size: usize,
    pub(super) of_group: usize,
    pub(super) topology: Option<Name>,
    pub(super) is_leader_excluded: bool,
}

impl SubGroups {
    /// pod_webhook.go `getSubGroupIndex`.
    fn index(&self, worker: usize) -> usize {
        let SubGroups { size, of_group, .. } = *self;
        let size = size.max(1);
        let is_leader_extra = (of_group - 1).is_multiple_of(size) && !of_group.is_multiple_of(size);
        if is_leader_extra { (worker - 1) / size } else { worker / size }
    }
}

/// The part that a controller has in a set.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SetPart {
    pub(super) role: Role,
    /// The labels of all pods of the controller.
    pub(super) labels: Vec<(&'static str, String)>,
    /// The key of the topology domain that each job or group has for itself.
    pub(super) topology: Option<Name>,
    /// Whether the domain of a job is chosen by labels that somebody has put on nodes.
    pub(super) has_node_selector: bool,
    pub(super) subgroups: Option<SubGroups>,
    /// What must happen before the controller is created.
    pub(super) start: Option<Prerequisite>,
}

impl SetPart {
    pub(super) fn new(role: Role, labels: Vec<(&'static str, String)>) -> SetPart {
        SetPart {
            role,
            labels,
            topology: None,
            has_node_selector: false,
            subgroups: None,
            start: None,
        }
    }

    /// Returns the part of a controller that a set has created, whose template has the set's labels already.
    pub(super) fn of_template(kind: ControllerKind, meta: &Metadata<'_>) -> Option<Box<SetPart>> {
        let annotations = meta.annotations.as_ref()?;
        let has_label = |key: &str| meta.labels.iter().any(|(known, _)| **known == *key);
        let (role, topology) = match kind {
            ControllerKind::Job if has_label(JOB_KEY) => (Role::Job, &annotations.jobset_topology),
            ControllerKind::StatefulSet if has_label(WORKER_INDEX) => {
                (Role::Leaders, &annotations.group_topology)
            }
            ControllerKind::StatefulSet if has_label(GROUP_SET) => {
                (Role::Workers, &annotations.group_topology)
            }
            _ => return None,
        };
        let topology = super::node::optional(topology);
        let has_node_selector = annotations.jobset_node_selector.is_some();
        Some(Box::new(SetPart { topology, has_node_selector, ..SetPart::new(role, Vec::new()) }))
    }

    /// Returns what must happen before the controller creates the pod with this number.
    pub(super) fn prerequisite(
        &self,
        controller: &PodController,
        number: usize,
    ) -> Option<Prerequisite> {
        let leader = |name: Name, field| {
            let topology = self.topology.clone().filter(|_| !self.has_node_selector);
            Some(Prerequisite { topology, ..Prerequisite::running(Arc::new([name]), field) })
        };
        match (self.role, &self.topology) {
            (Role::Job, Some(_)) if number > 0 && !self.has_node_selector => {
                let name = format!("{}-0", controller.name);
                leader(name.into(), "alpha.jobset.sigs.k8s.io/exclusive-topology")
            }
            (Role::Workers, Some(_)) => {
                leader(controller.name.clone(), "leaderworkerset.sigs.k8s.io/exclusive-topology")
            }
            _ => self.start.clone(),
        }
    }

    /// Completes a pod as the set's controller and webhook do.
    pub(super) fn complete(
        &self,
        controller: &PodController,
        number: usize,
        name: &str,
        draft: &mut PodDraft,
    ) {
        let mut labels = self.labels.clone();
        match self.role {
            Role::Job => self.complete_job(controller, number, labels, draft),
            Role::Leaders => {
                let key = sha1(&format!("{}/{name}", controller.namespace));
                labels.extend([
                    (GROUP_INDEX, number.to_string()),
                    (GROUP_KEY, key.clone()),
                    (WORKER_INDEX, "0".to_owned()),
                ]);
                own_labels::set(&mut draft.spec, &labels);
                if let Some(topology) = &self.topology {
                    claim_domain(&mut draft.spec, topology, GROUP_KEY, &key);
                }
                if let Some(of) = self.subgroups.as_ref().filter(|it| !it.is_leader_excluded) {
                    of.join(name, 0, &mut draft.spec);
                }
            }
            Role::Workers => {
                let key = sha1(&format!("{}/{}", controller.namespace, controller.name));
                labels.extend([(GROUP_KEY, key), (WORKER_INDEX, number.to_string())]);
                own_labels::set(&mut draft.spec, &labels);
                if let Some(of) = &self.subgroups {
                    of.join(&controller.name, of.index(number), &mut draft.spec);
                }
            }
        }
    }

    fn complete_job(
        &self,
        controller: &PodController,
        number: usize,
        mut labels: Vec<(&'static str, String)>,
        draft: &mut PodDraft,
    ) {
        let PodController { namespace, name, .. } = controller;
        let key = sha1(&format!("{namespace}/{name}"));
        labels.push((JOB_KEY, key.clone()));
        let priority = draft.priority.unwrap_or(0).to_string();
        if !self.has_node_selector {
            labels.push((PRIORITY, priority.clone()));
        }
        own_labels::set(&mut draft.spec, &labels);
        let Some(topology) = &self.topology else { return };
        let spec = &mut draft.spec;
        if self.has_node_selector {
            let job = format!("{namespace}_{name}");
            let own = ("alpha.jobset.sigs.k8s.io/namespaced-job", job.as_str());
            spec.node_selector = spec.node_selector.iter().chain([own]).collect();
            let toleration = Toleration {
                key: Some("alpha.jobset.sigs.k8s.io/no-schedule".into()),
                operator: TolerationOperator::Exists,
                value: None,
                effect: Some(TaintEffect::NoSchedule),
            };
            spec.tolerations = spec.tolerations.iter().cloned().chain([toleration]).collect();
        } else if number == 0 {
            claim_domain_of_job(spec, topology, &key, &priority);
        }
    }
}

impl SubGroups {
    /// Adds a pod of the group with this leader to a subgroup.
    fn join(&self, leader: &str, index: usize, spec: &mut PodSpec) {
        let key = sha1(&format!("{leader}/{index}"));
        let labels = [(SUBGROUP_INDEX, index.to_string()), (SUBGROUP_KEY, key.clone())];
        own_labels::set(spec, &labels);
        if let Some(topology) = &self.topology {
            claim_domain(spec, topology, SUBGROUP_KEY, &key);
        }
    }
}

/// pod_webhook.go `SetExclusiveAffinities` of LeaderWorkerSet.
fn claim_domain(spec: &mut PodSpec, topology: &Name, label: &str, key: &str) {
    let has = |affinity: &Option<Box<PodAffinity>>| {
        let mut terms = affinity.iter().flat_map(|it| it.required.iter());
        terms.any(|term| term.topology_key == *topology)
    };
    if has(&spec.pod_affinity) && has(&spec.pod_anti_affinity) {
        return;
    }
    let namespaces: Box<[Name]> = [spec.namespace.clone()].into();
    let term = |requirements: Vec<Requirement>| PodAffinityTerm {
        topology_key: topology.clone(),
        selector: LabelSelector::All(requirements.into()),
        namespaces: namespaces.clone(),
        namespace_selector: LabelSelector::Nothing,
    };
    require(&mut spec.pod_affinity, [term(vec![same(label, key)])]);
    require(&mut spec.pod_anti_affinity, [term(other(label, key).into())]);
}

/// pod_webhook.go `setExclusiveAffinities` of JobSet: exclusive among pods of the same priority.
fn claim_domain_of_job(spec: &mut PodSpec, topology: &Name, key: &str, priority: &str) {
    let term = |requirements: Vec<Requirement>| PodAffinityTerm {
        topology_key: topology.clone(),
        selector: LabelSelector::All(requirements.into()),
        namespaces: Box::default(),
        namespace_selector: LabelSelector::everything(),
    };
    require(&mut spec.pod_affinity, [term(vec![same(JOB_KEY, key)])]);
    // Pods of JobSet before 0.11 have no label of their priority, and exclude pods of any priority.
    let own = Requirement::new(PRIORITY, Operator::In, [priority]);
    let none = Requirement::new(PRIORITY, Operator::DoesNotExist, [""; 0]);
    let terms = [own, none].map(|of| term(other(JOB_KEY, key).into_iter().chain([of]).collect()));
    require(&mut spec.pod_anti_affinity, terms);
}

fn same(label: &str, key: &str) -> Requirement {
    Requirement::new(label, Operator::In, [key])
}

fn other(label: &str, key: &str) -> [Requirement; 2] {
    let exists = Requirement::new(label, Operator::Exists, [""; 0]);
    [exists, Requirement::new(label, Operator::NotIn, [key])]
}

fn require<const N: usize>(affinity: &mut Option<Box<PodAffinity>>, terms: [PodAffinityTerm; N]) {
    let affinity = affinity.get_or_insert_default();
    affinity.required = affinity.required.iter().cloned().chain(terms).collect();
}

/// Returns the hexadecimal SHA-1 hash of a name, by which both sets identify jobs and groups.
fn sha1(text: &str) -> String {
    sha1_smol::Sha1::from(text).digest().to_string()
}
