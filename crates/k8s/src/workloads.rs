//! Controllers that create pods (deployments, sets, jobs, replication controllers), and the pods that they create.
//!
//! A file of manifests contains templates instead of pods. [`PodController::expand`] creates the pods that the
//! controllers would have created, but without random names.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::admission::Charge;
use super::generated;
use super::own_labels::{self, COMPLETION_INDEX, JOB_NAME, JOB_UID, POD_INDEX, POD_NAME};
use super::pod::PodDraft;
use super::prerequisite::Prerequisite;
use super::rollout::{Job, UpdateStrategy};
use super::set_parts::SetPart;
use super::sets::GeneratedSet;
use super::storage::ClaimTemplate;
use portolan::model::{
    LabelSelector, Labels, Name, Node, ObjectKind, Operator, OwnerReference, PersistentVolumeClaim,
    Pod, PodSpec, Requests, Requirement, Template, Uid, VolumeSource, Workload,
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

    pub(super) fn api_version(self) -> &'static str {
        match self {
            ControllerKind::ReplicationController => "v1",
            ControllerKind::Job | ControllerKind::CronJob => "batch/v1",
            _ => "apps/v1",
        }
    }
}

/// A controller and the template of its pods.
#[derive(Clone, Debug, PartialEq)]
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
    /// How pods of an old template are replaced.
    pub update: UpdateStrategy,
    /// The fields of a job, or of a cron job's jobs.
    pub job: Option<Job>,
    /// Whether the controller creates each pod only when the one before it runs (`podManagementPolicy: OrderedReady`).
    pub is_ordered: bool,
    /// Whether all pods of a group are created again when one is lost: the leaders of a leader-worker set whose restart
    /// policy requires that.
    pub recreates_groups: bool,
    /// A field of the set that creates the controller which changes the pods and is not read.
    pub unsimulated: Option<&'static str>,
    /// Whether the controller is created by another one of the input, such as the jobs of a job set.
    pub(super) is_derived: bool,
    /// The field `metadata.generateName` of a controller without a name.
    pub(super) generate_name: Option<Name>,
    /// The set without a name that creates the controller.
    pub(super) of_generated: Option<Arc<GeneratedSet>>,
    /// The part that the controller has in a job set or leader-worker set.
    pub(super) part: Option<Box<SetPart>>,
    pub(super) first: usize,
    /// The hash of the template, which the pods of deployments, daemon sets and stateful sets have as a label.
    pub(super) hash: String,
    /// What each pod is charged for, if its namespace has quotas.
    pub(super) charge: Option<Arc<Charge>>,
    /// Why the API server refuses its pods, if it does.
    pub(super) refusal: Option<Arc<str>>,
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

    /// Returns whether its pods have resource claims.
    #[must_use]
    pub fn has_resource_claims(&self) -> bool {
        !self.draft.spec.resource_claims.is_empty()
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
        Some(self.workload_of(kind, self.labels.clone(), self.selector.clone()))
    }

    /// Returns the replica set that a deployment creates. It has the name of the deployment, and the labels and the
    /// hash of its pods (deployment/sync.go `getNewReplicaSet`).
    #[must_use]
    pub fn replica_set(&self) -> Option<Workload> {
        if self.kind != ControllerKind::Deployment {
            return None;
        }
        let mut spec = PodSpec { labels: self.draft.spec.labels.clone(), ..PodSpec::default() };
        own_labels::set(&mut spec, &self.own_labels());
        let mut selector = self.selector.clone();
        if let LabelSelector::All(requirements) = &mut selector {
            let hash = Name::from(self.hash.as_str());
            let own = Requirement::new(own_labels::TEMPLATE_HASH, Operator::In, [hash]);
            *requirements = requirements.iter().cloned().chain([own]).collect();
        }
        Some(self.workload_of(ObjectKind::ReplicaSet, spec.labels, selector))
    }

    fn workload_of(&self, kind: ObjectKind, labels: Labels, selector: LabelSelector) -> Workload {
        let (namespace, name) = (self.namespace.clone(), self.name.clone());
        Workload { kind, namespace, name, labels, selector }
    }

    /// Returns whether both controllers create equal pods, as far as their templates are read.
    #[must_use]
    pub fn has_template_of(&self, other: &PodController) -> bool {
        let read = |of: &PodController| {
            let PodDraft { mut spec, requests, limits, priority, .. } = of.draft.clone();
            own_labels::forget_hash(&mut spec);
            (spec, requests, limits, priority)
        };
        read(self) == read(other)
    }

    /// Sets the hash of the template.
    pub(super) fn hash_template(&mut self) {
        let mut hasher = DefaultHasher::new();
        let PodDraft { mut spec, requests, limits, .. } = self.draft.clone();
        own_labels::forget_hash(&mut spec);
        spec.hash(&mut hasher);
        format!("{requests:?}{limits:?}").hash(&mut hasher);
        self.hash = generated::text(hasher.finish(), 10);
    }

    /// Returns the ordinals of a stateful set, or as many numbers as the controller has pods.
    #[must_use]
    pub fn ordinals(&self) -> std::ops::Range<usize> {
        match self.kind {
            ControllerKind::StatefulSet => self.first..self.first.saturating_add(self.replicas),
            _ => 0..self.replicas,
        }
    }

    /// Returns the numbers that its pods may have: the ordinals of a stateful set, the missing indexes of a job, or any
    /// numbers.
    pub(super) fn numbers(&self) -> Box<dyn Iterator<Item = usize> + '_> {
        match (&self.job, self.kind) {
            (Some(job), _) if job.is_indexed => Box::new(job.missing()),
            (_, ControllerKind::StatefulSet) => Box::new(self.ordinals()),
            _ => Box::new(0..),
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
    /// the replica set for a deployment), with the labels that the controller adds.
    ///
    /// A daemon set creates a pod for each node that it may run on. The other kinds ignore `nodes`. O(pods): all pods
    /// share one template, unless they have labels or claims of their own.
    #[must_use]
    pub fn expand(&self, nodes: &[Node]) -> Vec<Pod> {
        if self.kind == ControllerKind::DaemonSet {
            return nodes.iter().filter_map(|node| self.daemon_on(node)).collect();
        }
        self.numbered(self.numbers().take(self.replicas))
    }

    /// Whether pods may have a [`PodController::prerequisite`], or the API server may refuse them.
    pub(super) fn is_created_in_steps(&self) -> bool {
        self.is_ordered || self.part.is_some() || self.charge.is_some() || self.refusal.is_some()
    }

    /// Returns whether pods may have a [`PodController::prerequisite`].
    #[must_use]
    pub fn has_order(&self) -> bool {
        self.is_ordered || self.part.is_some()
    }

    /// Returns the kind of the owner of the pods: deployments create replica sets, and cron jobs create jobs.
    #[must_use]
    pub fn owner_kind(&self) -> ControllerKind {
        match self.kind {
            ControllerKind::Deployment => ControllerKind::ReplicaSet,
            ControllerKind::CronJob => ControllerKind::Job,
            kind => kind,
        }
    }

    /// Returns whether pods of this template belong to the controller, or to a replica set or job that it creates under
    /// its own name.
    #[must_use]
    pub fn owns(&self, template: &Template) -> bool {
        let kind = self.owner_kind().as_str();
        template.namespace == self.namespace
            && template.controller().is_some_and(|of| &*of.kind == kind && of.name == self.name)
    }

    /// Creates the pod with this number, which is the ordinal or index if the pods have one.
    #[must_use]
    pub fn pod(&self, number: usize) -> Option<Pod> {
        self.numbered(std::iter::once(number)).pop()
    }

    /// Returns what must happen before the controller creates a pod, if anything must.
    #[must_use]
    pub fn prerequisite(&self, pod: &Pod) -> Option<Prerequisite> {
        let number: usize = pod.name.rsplit_once('-')?.1.parse().ok()?;
        if let Some(part) = &self.part {
            return part.prerequisite(self, number);
        }
        if !self.is_ordered || number <= self.first {
            return None;
        }
        let before = Name::from(format!("{}-{}", self.name, number - 1));
        Some(Prerequisite::running([before].into(), "podManagementPolicy OrderedReady"))
    }

    /// Creates the pods with these numbers of a controller that is not a daemon set.
    pub(super) fn numbered(&self, numbers: impl Iterator<Item = usize>) -> Vec<Pod> {
        let owned = self.owned();
        let is_indexed = self.job.as_ref().is_some_and(|job| job.is_indexed);
        if self.kind == ControllerKind::StatefulSet || is_indexed || self.part.is_some() {
            return numbers.map(|number| self.create(&owned, number)).collect();
        }
        let pod = owned.finish();
        numbers.map(|i| self.called(pod.clone(), format!("{}-{i}", self.name))).collect()
    }

    /// Creates a pod that has labels and claims of its own (statefulset/stateful_set_utils.go
    /// `newVersionedStatefulSetPod`, job/indexed_job_utils.go `addCompletionIndexLabel`).
    fn create(&self, owned: &PodDraft, number: usize) -> Pod {
        let mut draft = owned.clone();
        let name = format!("{}-{number}", self.name);
        let index = number.to_string();
        let mut labels: Vec<(&'static str, String)> = Vec::new();
        match self.kind {
            ControllerKind::StatefulSet => {
                labels.extend([(POD_INDEX, index), (POD_NAME, name.clone())]);
            }
            _ if self.job.as_ref().is_some_and(|job| job.is_indexed) => {
                labels.push((COMPLETION_INDEX, index));
            }
            _ => {}
        }
        own_labels::set(&mut draft.spec, &labels);
        if let Some(part) = &self.part {
            part.complete(self, number, &name, &mut draft);
        }
        if !self.claims.is_empty() {
            let claims = self.claims_of_ordinal(number).map(|claim| {
                VolumeSource::PersistentVolumeClaim { claim: claim.name, read_only: false }
            });
            draft.spec.volumes = claims.chain(draft.spec.volumes.iter().cloned()).collect();
        }
        self.called(draft.finish(), name)
    }

    /// The labels that all of its pods get, apart from those of its template.
    pub(super) fn own_labels(&self) -> Vec<(&'static str, String)> {
        match (self.kind, &self.job) {
            (ControllerKind::Deployment, _) => {
                vec![(own_labels::TEMPLATE_HASH, self.hash.clone())]
            }
            (ControllerKind::DaemonSet, _) => {
                vec![(own_labels::REVISION_HASH, self.hash.clone())]
            }
            (ControllerKind::StatefulSet, _) => {
                // The name of the revision.
                vec![(own_labels::REVISION_HASH, format!("{}-{}", self.name, self.hash))]
            }
            (_, Some(job)) if job.has_labels => {
                let uid = match &*self.uid {
                    // The API server would have made one.
                    "" => format!("{}.{}", self.namespace, self.name),
                    uid => uid.to_owned(),
                };
                let names = JOB_NAME.map(|key| (key, self.name.to_string()));
                JOB_UID.map(|key| (key, uid.clone())).into_iter().chain(names).collect()
            }
            _ => Vec::new(),
        }
    }

    pub(super) fn called(&self, mut pod: Pod, name: String) -> Pod {
        pod.uid = Uid::new(&format!("{}/{name}", self.namespace));
        pod.name = name.into();
        pod
    }

    /// The template as a pod that the controller owns.
    pub(super) fn owned(&self) -> PodDraft {
        let mut draft = self.draft.clone();
        let kind = self.owner_kind();
        draft.spec.owners = [OwnerReference {
            api_version: kind.api_version().into(),
            kind: kind.as_str().into(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            controller: true,
        }]
        .into();
        own_labels::set(&mut draft.spec, &self.own_labels());
        draft
    }
}
