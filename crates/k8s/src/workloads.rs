//! Reads controllers that create pods (deployments, sets, jobs, replication controllers), and creates their pods.
//!
//! A file of manifests contains templates instead of pods. [`PodController::expand`] creates the pods that the
//! controllers would have created, but without random names.

use std::sync::Arc;

use super::defaults::Rules;
use super::error::{Path, ReadError};
use super::objects::named;
use super::pod::{PodDraft, template};
use super::selector::label_selector;
use super::sets::GeneratedSet;
use super::storage::ClaimTemplate;
use super::wire::Metadata;
use super::wire_objects as wire;
use super::wire_pod;
use portolan::model::{
    LabelSelector, Labels, Name, Node, NodeSelector, NodeSelectorTerm, ObjectKind, Operator,
    OwnerReference, PersistentVolumeClaim, Pod, Requests, Requirement, TaintEffect, Toleration,
    TolerationOperator, VolumeSource, Workload,
};

/// The kinds of controllers that create pods from a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ControllerKind {
    /// v1 ReplicationController.
    ReplicationController,
    /// apps/v1 ReplicaSet.
    ReplicaSet,
    /// apps/v1 StatefulSet.
    StatefulSet,
    /// apps/v1 Deployment.
    Deployment,
    /// apps/v1 DaemonSet.
    DaemonSet,
    /// batch/v1 Job.
    Job,
    /// batch/v1 CronJob, which stands for one of its jobs.
    CronJob,
}

impl ControllerKind {
    /// Returns the kind as Kubernetes writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            ControllerKind::ReplicationController => "ReplicationController",
            ControllerKind::ReplicaSet => "ReplicaSet",
            ControllerKind::StatefulSet => "StatefulSet",
            ControllerKind::Deployment => "Deployment",
            ControllerKind::DaemonSet => "DaemonSet",
            ControllerKind::Job => "Job",
            ControllerKind::CronJob => "CronJob",
        }
    }

    /// Returns the kind that owns the pods: deployments create replica sets, and cron jobs create jobs.
    #[must_use]
    pub fn of_owner(self) -> ControllerKind {
        match self {
            ControllerKind::Deployment => ControllerKind::ReplicaSet,
            ControllerKind::CronJob => ControllerKind::Job,
            kind => kind,
        }
    }

    fn api_version(self) -> &'static str {
        match self {
            ControllerKind::ReplicationController => "v1",
            ControllerKind::Job | ControllerKind::CronJob => "batch/v1",
            _ => "apps/v1",
        }
    }
}

/// A controller and the template of its pods.
#[derive(Clone, Debug)]
pub struct PodController {
    /// The kind of the controller.
    pub kind: ControllerKind,
    /// The namespace.
    pub namespace: Name,
    /// The name.
    pub name: Name,
    /// The uid, which may be empty.
    pub uid: Name,
    /// The desired number of pods. 0 for a daemon set, whose number depends on the nodes.
    pub replicas: usize,
    /// The labels of the controller itself.
    pub labels: Labels,
    /// The field `spec.selector`.
    pub selector: LabelSelector,
    /// The owners of the controller, such as the deployment of a replica set.
    pub owners: Box<[OwnerReference]>,
    /// Whether the controller is created by another one of the input, such as the jobs of a job set.
    pub(super) is_derived: bool,
    /// The field `metadata.generateName` of a controller without a name.
    pub(super) generate_name: Option<Name>,
    /// The set without a name that creates the controller.
    pub(super) of_generated: Option<Arc<GeneratedSet>>,
    pub(super) first: usize,
    /// The claims of each pod of a stateful set.
    pub(super) claims: Vec<ClaimTemplate>,
    pub(super) draft: PodDraft,
}

impl PodController {
    /// Returns the requests of the containers of its pods.
    #[must_use]
    pub fn requests(&self) -> &Requests {
        &self.draft.requests
    }

    /// Returns the workload that owns its pods, if the kind is a workload.
    #[must_use]
    pub fn workload(&self) -> Option<Workload> {
        let kind = match self.kind {
            ControllerKind::ReplicationController => ObjectKind::ReplicationController,
            ControllerKind::ReplicaSet => ObjectKind::ReplicaSet,
            ControllerKind::StatefulSet => ObjectKind::StatefulSet,
            ControllerKind::DaemonSet => ObjectKind::DaemonSet,
            _ => return None,
        };
        Some(self.workload_of(kind, self.labels.clone()))
    }

    /// Returns the replica set that a deployment creates. It has the name of the deployment and the labels of its pods
    /// (deployment/sync.go `getNewReplicaSet`).
    #[must_use]
    pub fn replica_set(&self) -> Option<Workload> {
        (self.kind == ControllerKind::Deployment)
            .then(|| self.workload_of(ObjectKind::ReplicaSet, self.draft.spec.labels.clone()))
    }

    fn workload_of(&self, kind: ObjectKind, labels: Labels) -> Workload {
        Workload {
            kind,
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            labels,
            selector: self.selector.clone(),
        }
    }

    /// Returns the ordinals of a stateful set, or as many numbers as the controller has pods.
    #[must_use]
    pub fn ordinals(&self) -> std::ops::Range<usize> {
        match self.kind {
            ControllerKind::StatefulSet => self.first..self.first.saturating_add(self.replicas),
            _ => 0..self.replicas,
        }
    }

    /// Returns the claims that a stateful set creates for the pod with this ordinal, named
    /// `<template>-<set>-<ordinal>`. The other kinds create none.
    pub(super) fn claims_of_ordinal(
        &self,
        ordinal: usize,
    ) -> impl Iterator<Item = PersistentVolumeClaim> {
        self.claims.iter().map(move |ClaimTemplate { claim, .. }| {
            let name: Name = format!("{}-{}-{ordinal}", claim.name, self.name).into();
            PersistentVolumeClaim { name, namespace: self.namespace.clone(), ..claim.clone() }
        })
    }

    /// Returns the claims that are created with a pod of the controller: those of a stateful set, and those of generic
    /// ephemeral volumes, which the pod owns.
    pub fn claims<'c>(
        &'c self,
        pod: &'c Pod,
    ) -> impl Iterator<Item = PersistentVolumeClaim> + use<'c> {
        let ordinal = pod.name.rsplit_once('-').and_then(|(_, ordinal)| ordinal.parse().ok());
        let of_set = ordinal.into_iter().flat_map(|ordinal| self.claims_of_ordinal(ordinal));
        let ephemeral = self.draft.claims.iter();
        let uid = pod.uid.to_string();
        of_set.chain(ephemeral.map(move |claim| claim.of_pod(&self.namespace, &pod.name, &uid)))
    }

    /// Creates the pods of the controller, named `<name>-<i>` (`<name>-<node>` for a daemon set) and owned by it (by
    /// the replica set for a deployment).
    ///
    /// A daemon set creates a pod for each node that it may run on. The other kinds ignore `nodes`. O(pods): all pods
    /// share one template, except those of a daemon set.
    #[must_use]
    pub fn expand(&self, nodes: &[Node]) -> Vec<Pod> {
        if self.kind == ControllerKind::DaemonSet {
            return nodes.iter().filter_map(|node| self.daemon(node)).collect();
        }
        self.numbered(self.ordinals())
    }

    /// Creates the pods with these numbers of a controller that is not a daemon set.
    pub(super) fn numbered(&self, numbers: impl Iterator<Item = usize>) -> Vec<Pod> {
        let owned = self.owned(self.draft.clone());
        if self.kind == ControllerKind::StatefulSet {
            // Each pod has labels and claims of its own.
            return numbers.map(|i| self.ordinal(&owned, i)).collect();
        }
        let pod = owned.finish();
        numbers.map(|i| self.called(pod.clone(), format!("{}-{i}", self.name))).collect()
    }

    /// Creates a pod of a stateful set (statefulset/stateful_set_utils.go `newVersionedStatefulSetPod`).
    fn ordinal(&self, owned: &PodDraft, i: usize) -> Pod {
        let mut draft = owned.clone();
        let name = format!("{}-{i}", self.name);
        let index = i.to_string();
        let own = [
            ("apps.kubernetes.io/pod-index", index.as_str()),
            ("statefulset.kubernetes.io/pod-name", name.as_str()),
        ];
        draft.spec.labels = draft.spec.labels.iter().chain(own).collect();
        if !self.claims.is_empty() {
            let claims = self.claims_of_ordinal(i).map(|claim| {
                VolumeSource::PersistentVolumeClaim { claim: claim.name, read_only: false }
            });
            draft.spec.volumes = claims.chain(draft.spec.volumes.iter().cloned()).collect();
        }
        self.called(draft.finish(), name)
    }

    /// Creates the pod of a daemon set for a node, or `None` if the set does not run on it.
    pub(super) fn daemon_on(&self, node: &Node) -> Option<Pod> {
        (self.kind == ControllerKind::DaemonSet).then(|| self.daemon(node))?
    }

    fn called(&self, mut pod: Pod, name: String) -> Pod {
        pod.uid = portolan::model::Uid::new(&format!("{}/{name}", self.namespace));
        pod.name = name.into();
        pod
    }

    fn owned(&self, mut draft: PodDraft) -> PodDraft {
        let kind = self.kind.of_owner();
        draft.spec.owners = [OwnerReference {
            api_version: kind.api_version().into(),
            kind: kind.as_str().into(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            controller: true,
        }]
        .into();
        draft
    }

    /// daemon/util `nodeShouldRunDaemonPod` and `ReplaceDaemonSetPodNodeNameNodeAffinity`.
    fn daemon(&self, node: &Node) -> Option<Pod> {
        let mut draft = self.owned(self.draft.clone());
        add_daemon_tolerations(&mut draft);
        let spec = &mut draft.spec;
        let fits = draft.node_name.as_ref().is_none_or(|name| *name == node.name)
            && spec.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value))
            && (spec.node_affinity.as_ref())
                .and_then(|affinity| affinity.required.as_ref())
                .is_none_or(|required| required.matches(&node.name, &node.labels))
            && node.taints.iter().all(|taint| {
                taint.effect == TaintEffect::PreferNoSchedule
                    || spec.tolerations.iter().any(|t| t.tolerates(taint))
            });
        if !fits {
            return None;
        }
        pin(spec, &node.name);
        draft.node_name = None;
        Some(self.called(draft.finish(), format!("{}-{}", self.name, node.name)))
    }
}

/// Replaces the fields of each required term by "metadata.name In [node]".
fn pin(spec: &mut portolan::model::PodSpec, node: &Name) {
    let affinity = spec.node_affinity.get_or_insert_default();
    let fields: Box<[Requirement]> =
        [Requirement::new("metadata.name", Operator::In, [node.clone()])].into();
    match &mut affinity.required {
        Some(required) if !required.terms.is_empty() => {
            for term in &mut required.terms {
                term.match_fields = fields.clone();
            }
        }
        required => {
            let term = NodeSelectorTerm { match_fields: fields, ..NodeSelectorTerm::default() };
            *required = Some(NodeSelector { terms: [term].into() });
        }
    }
}

/// daemon/util `AddOrUpdateDaemonPodTolerations`.
fn add_daemon_tolerations(draft: &mut PodDraft) {
    use TaintEffect::{NoExecute, NoSchedule};
    const ALWAYS: [(&str, TaintEffect); 6] = [
        ("node.kubernetes.io/not-ready", NoExecute),
        ("node.kubernetes.io/unreachable", NoExecute),
        ("node.kubernetes.io/disk-pressure", NoSchedule),
        ("node.kubernetes.io/memory-pressure", NoSchedule),
        ("node.kubernetes.io/pid-pressure", NoSchedule),
        ("node.kubernetes.io/unschedulable", NoSchedule),
    ];
    let on_host_network =
        draft.host_network.then_some(("node.kubernetes.io/network-unavailable", NoSchedule));
    let mut tolerations = Vec::from(std::mem::take(&mut draft.spec.tolerations));
    for (key, effect) in ALWAYS.into_iter().chain(on_host_network) {
        let toleration = Toleration {
            key: Some(key.into()),
            operator: TolerationOperator::Exists,
            value: None,
            effect: Some(effect),
        };
        if !tolerations.contains(&toleration) {
            tolerations.push(toleration);
        }
    }
    draft.spec.tolerations = tolerations.into();
}

/// The limit is beyond any real cluster. A larger number is a typo, and is rejected before it exhausts the memory.
pub(super) const MAX_REPLICAS: i64 = 10_000_000;

/// The common fields of the wire structs of all controllers.
pub(super) struct Parts<'w> {
    pub(super) meta: Metadata<'w>,
    pub(super) template: Option<&'w wire_pod::PodTemplate<'w>>,
    pub(super) replicas: i64,
    pub(super) first: i64,
    pub(super) selector: LabelSelector,
}

pub(super) fn controller(
    kind: ControllerKind,
    wire: &wire::Controller<'_>,
    path: &Path<'_>,
    rules: &mut Rules<'_>,
) -> Result<PodController, ReadError> {
    let no_spec = wire::ControllerSpec::default();
    let spec = wire.spec.as_ref().unwrap_or(&no_spec);
    let replicas = match kind {
        ControllerKind::DaemonSet => 0,
        ControllerKind::Job if spec.suspend == Some(true) || has_ended(wire) => 0,
        ControllerKind::Job => {
            at_once(spec, wire.status.as_ref().and_then(|status| *status.succeeded).unwrap_or(0))
        }
        _ => spec.replicas.unwrap_or(1),
    };
    let parts = Parts {
        meta: wire.metadata.clone().unwrap_or_default(),
        template: spec.template.as_ref(),
        replicas,
        first: spec.ordinals.as_ref().and_then(|o| *o.start).unwrap_or(0),
        selector: label_selector(spec.selector.as_ref(), &path.key("spec").key("selector"))?,
    };
    let claims = claim_templates(spec, path, rules)?;
    if claims.is_empty() || kind != ControllerKind::StatefulSet {
        return build(kind, parts, path, rules);
    }
    // A claim replaces the volume with its name.
    let mut template = spec.template.clone().unwrap_or_default();
    if let Some(spec) = &mut template.spec {
        let replaces = |volume: &str| claims.iter().any(|it| *it.claim.name == *volume);
        spec.volumes.0.retain(|volume| !replaces(&volume.name));
    }
    let parts = Parts { template: Some(&template), ..parts };
    Ok(PodController { claims, ..build(kind, parts, path, rules)? })
}

/// Returns the number of pods of a job that run at once, when `succeeded` are done.
pub(super) fn at_once(spec: &wire::ControllerSpec<'_>, succeeded: i64) -> i64 {
    let parallelism = spec.parallelism.unwrap_or(1);
    spec.completions
        .map_or(parallelism, |completions| completions.saturating_sub(succeeded).min(parallelism))
}

fn claim_templates(
    spec: &wire::ControllerSpec<'_>,
    path: &Path<'_>,
    rules: &Rules<'_>,
) -> Result<Vec<ClaimTemplate>, ReadError> {
    let spec_path = path.key("spec");
    let list = spec_path.key("volumeClaimTemplates");
    let claims = spec.volume_claim_templates.iter().enumerate().map(|(i, template)| {
        // A stored set that is read for its selector needs no claims.
        rules.applies().then(|| ClaimTemplate::read(template, &list.index(i))).transpose()
    });
    claims.filter_map(Result::transpose).collect()
}

pub(super) fn cron_job(
    wire: &wire::CronJob<'_>,
    path: &Path<'_>,
    rules: &mut Rules<'_>,
) -> Result<PodController, ReadError> {
    let no_spec = wire::CronJobSpec::default();
    let spec = wire.spec.as_ref().unwrap_or(&no_spec);
    let no_job = wire::ControllerSpec::default();
    let job = spec.job_template.as_ref().and_then(|job| job.spec.as_ref()).unwrap_or(&no_job);
    let is_suspended = spec.suspend == Some(true) || job.suspend == Some(true);
    let parts = Parts {
        meta: wire.metadata.clone().unwrap_or_default(),
        template: job.template.as_ref(),
        replicas: if is_suspended { 0 } else { at_once(job, 0) },
        first: 0,
        selector: LabelSelector::Nothing,
    };
    let spec_path = path.key("spec");
    build(ControllerKind::CronJob, parts, &spec_path.key("jobTemplate"), rules)
}

/// Returns whether a job is complete or has failed.
fn has_ended(job: &wire::Controller<'_>) -> bool {
    let conditions = job.status.iter().flat_map(|status| status.conditions.iter());
    conditions.into_iter().any(|condition| {
        matches!(&*condition.condition_type, "Complete" | "Failed") && &*condition.status == "True"
    })
}

pub(super) fn replication_controller(
    wire: &wire::ReplicationController<'_>,
    path: &Path<'_>,
    rules: &mut Rules<'_>,
) -> Result<PodController, ReadError> {
    let no_spec = wire::ReplicationControllerSpec::default();
    let spec = wire.spec.as_ref().unwrap_or(&no_spec);
    let template = spec.template.as_ref();
    // The selector of a replication controller defaults to the template's labels.
    let labels = match template.and_then(|t| t.metadata.as_ref()) {
        Some(meta) if spec.selector.is_empty() => &meta.labels,
        _ => &spec.selector,
    };
    let parts = Parts {
        meta: wire.metadata.clone().unwrap_or_default(),
        template,
        replicas: spec.replicas.unwrap_or(1),
        first: 0,
        selector: LabelSelector::from_labels(super::node::labels(labels).iter()),
    };
    build(ControllerKind::ReplicationController, parts, path, rules)
}

pub(super) fn build(
    kind: ControllerKind,
    parts: Parts<'_>,
    path: &Path<'_>,
    rules: &mut Rules<'_>,
) -> Result<PodController, ReadError> {
    let generate_name = super::node::optional(&parts.meta.generate_name)
        .filter(|_| parts.meta.name.is_empty() && rules.applies());
    let name = match generate_name {
        Some(_) => Name::default(),
        None => named(&parts.meta, path)?,
    };
    let namespace = rules.namespace(&parts.meta.namespace);
    rules.about(kind.as_str(), &namespace, &name);
    let (no_meta, no_spec) = (Metadata::default(), wire_pod::PodSpec::default());
    let meta = parts.template.and_then(|t| t.metadata.as_ref()).unwrap_or(&no_meta);
    let spec = parts.template.and_then(|t| t.spec.as_ref()).unwrap_or(&no_spec);
    let spec_path = path.key("spec");
    if parts.replicas > MAX_REPLICAS {
        let found = parts.replicas.to_string();
        let expected = "a number of pods up to 10000000";
        return Err(ReadError::value(&spec_path.key("replicas"), &found, expected));
    }
    let mut draft = template(meta, spec, namespace.clone(), &spec_path.key("template"), rules)?;
    // Names of pods come from their controller.
    draft.name = Name::default();
    let count = |n: i64| usize::try_from(n).unwrap_or(0);
    Ok(PodController {
        kind,
        namespace,
        name,
        uid: super::node::name(&parts.meta.uid),
        replicas: count(parts.replicas),
        labels: super::node::labels(&parts.meta.labels),
        selector: parts.selector,
        owners: super::pod::owners(&parts.meta),
        is_derived: false,
        generate_name,
        of_generated: None,
        first: count(parts.first),
        claims: Vec::new(),
        draft,
    })
}
