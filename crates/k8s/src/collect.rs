//! The objects read so far, before references between them are resolved.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::admission::{AllTraits, Quota};
use super::budgets::{self, BudgetLimit, PodFacts};
use super::defaults::{Defaulted, Rules};
use super::devices::DeviceObjects;
use super::error::{Cause, Path, ReadError};
use super::limit_range::LimitRange;
use super::objects::{self, PriorityClass, RuntimeClass};
use super::pod::PodDraft;
use super::pod_group::GroupKind;
use super::read::Skipped;
use super::wire::Metadata;
use super::workloads::{ControllerKind, PodController};
use super::{sets, storage, wire_objects, wire_pod, wire_storage};
use portolan::model::{Name, Node, Object, Pod, Template};

/// The kinds that are distinguished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Pod,
    Node,
    Namespace,
    Service,
    ReplicationController,
    Controller(ControllerKind),
    CronJob,
    JobSet,
    LeaderWorkerSet,
    PriorityClass,
    RuntimeClass,
    LimitRange,
    ResourceQuota,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    CsiNode,
    VolumeAttachment,
    CsiDriver,
    CsiStorageCapacity,
    DeviceClass,
    ResourceSlice,
    ResourceClaim,
    ResourceClaimTemplate,
    PodDisruptionBudget,
    PodGroup(GroupKind),
    NmNode,
    CustomNodeResource,
    Reservation,
    Movement,
    /// `v1 List`, or a typed list.
    List,
    Other(String),
}

/// The API groups and names of the kinds that are read.
static KINDS: [(&str, &str, Kind); 37] = [
    ("", "Pod", Kind::Pod),
    ("", "Node", Kind::Node),
    ("", "Namespace", Kind::Namespace),
    ("", "Service", Kind::Service),
    ("", "ReplicationController", Kind::ReplicationController),
    ("apps", "ReplicaSet", Kind::Controller(ControllerKind::ReplicaSet)),
    ("apps", "StatefulSet", Kind::Controller(ControllerKind::StatefulSet)),
    ("apps", "Deployment", Kind::Controller(ControllerKind::Deployment)),
    ("apps", "DaemonSet", Kind::Controller(ControllerKind::DaemonSet)),
    ("batch", "Job", Kind::Controller(ControllerKind::Job)),
    ("batch", "CronJob", Kind::CronJob),
    ("jobset.x-k8s.io", "JobSet", Kind::JobSet),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet", Kind::LeaderWorkerSet),
    ("scheduling.k8s.io", "PriorityClass", Kind::PriorityClass),
    ("node.k8s.io", "RuntimeClass", Kind::RuntimeClass),
    ("", "LimitRange", Kind::LimitRange),
    ("", "ResourceQuota", Kind::ResourceQuota),
    ("", "PersistentVolume", Kind::PersistentVolume),
    ("", "PersistentVolumeClaim", Kind::PersistentVolumeClaim),
    ("storage.k8s.io", "StorageClass", Kind::StorageClass),
    ("storage.k8s.io", "CSINode", Kind::CsiNode),
    ("storage.k8s.io", "VolumeAttachment", Kind::VolumeAttachment),
    ("storage.k8s.io", "CSIDriver", Kind::CsiDriver),
    ("storage.k8s.io", "CSIStorageCapacity", Kind::CsiStorageCapacity),
    ("resource.k8s.io", "DeviceClass", Kind::DeviceClass),
    ("resource.k8s.io", "ResourceSlice", Kind::ResourceSlice),
    ("resource.k8s.io", "ResourceClaim", Kind::ResourceClaim),
    ("resource.k8s.io", "ResourceClaimTemplate", Kind::ResourceClaimTemplate),
    ("policy", "PodDisruptionBudget", Kind::PodDisruptionBudget),
    ("scheduling.k8s.io", "PodGroup", Kind::PodGroup(GroupKind::Kubernetes)),
    ("scheduling.x-k8s.io", "PodGroup", Kind::PodGroup(GroupKind::Coscheduling)),
    ("scheduling.sigs.k8s.io", "PodGroup", Kind::PodGroup(GroupKind::Coscheduling)),
    ("scheduling.godel.kubewharf.io", "PodGroup", Kind::PodGroup(GroupKind::Godel)),
    ("scheduling.godel.kubewharf.io", "Reservation", Kind::Reservation),
    ("scheduling.godel.kubewharf.io", "Movement", Kind::Movement),
    ("node.godel.kubewharf.io", "NMNode", Kind::NmNode),
    ("node.katalyst.kubewharf.io", "CustomNodeResource", Kind::CustomNodeResource),
];

impl Kind {
    pub(super) fn of(api_version: &str, kind: &str) -> Kind {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        match KINDS.iter().find(|(of, name, _)| (*of, *name) == (group, kind)) {
            Some((.., known)) => known.clone(),
            None if kind.ends_with("List") => Kind::List,
            None => Kind::Other(kind.to_owned()),
        }
    }

    /// Returns the kind of this name in the group, or else in any group.
    pub(super) fn named(api_version: &str, kind: &str) -> Option<&'static Kind> {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let mut named = KINDS.iter().filter(|(_, name, _)| *name == kind);
        let first = named.clone().next();
        named.find(|(of, ..)| *of == group).or(first).map(|(.., known)| known)
    }

    /// Returns the kind of a typed list's items, or `None` for `v1 List`, whose items name their own kind.
    pub(super) fn of_items(api_version: &str, list: &str) -> Option<Kind> {
        list.strip_suffix("List").filter(|kind| !kind.is_empty()).map(|k| Kind::of(api_version, k))
    }

    /// Returns the name of a kind that is read, or `None` for lists and other kinds.
    pub(super) fn name(&self) -> Option<&'static str> {
        KINDS.iter().find(|(.., known)| known == self).map(|(_, name, _)| *name)
    }

    pub(super) fn is_list(&self) -> bool {
        *self == Kind::List
    }
}

/// A pod, or a draft that lacks its priority or overhead.
#[derive(Clone, Debug)]
pub(super) enum Entry {
    Done(Pod),
    Open(Box<PodDraft>),
}

/// The templates read so far, which pods with equal templates share.
#[derive(Clone, Debug, Default)]
pub(super) struct Templates(HashSet<Arc<Template>>);

impl Templates {
    /// Returns the pod with its template replaced by the shared one that is equal to it.
    pub(super) fn share(&mut self, mut pod: Pod) -> Pod {
        match self.0.get(&pod.template) {
            Some(known) => pod.template = known.clone(),
            None => {
                self.0.insert(pod.template.clone());
            }
        }
        pod
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Collected {
    pub(super) nodes: Vec<Node>,
    pub(super) deleted_nodes: Vec<Name>,
    pub(super) pods: Vec<Entry>,
    pub(super) objects: Vec<Object>,
    pub(super) devices: DeviceObjects,
    pub(super) controllers: Vec<PodController>,
    /// The number of jobs and groups of job sets and leader-worker sets in this input and all earlier ones.
    pub(super) parts: usize,
    pub(super) priority_classes: Vec<PriorityClass>,
    pub(super) runtime_classes: Vec<RuntimeClass>,
    /// The default storage classes: creation times and names.
    pub(super) default_classes: Vec<(String, Name)>,
    /// The indices of the claims in `objects` that name no storage class.
    pub(super) classless: Vec<usize>,
    /// The number of objects that were read, by kind.
    pub(super) read: BTreeMap<&'static str, usize>,
    pub(super) skipped: Skipped,
    pub(super) finished_pods: usize,
    /// The uids of the finished pods, to recognize further copies.
    pub(super) finished_uids: Vec<String>,
    pub(super) defaulted: Vec<Defaulted>,
    pub(super) templates: Templates,
    pub(super) budget_limits: Vec<BudgetLimit>,
    pub(super) facts: PodFacts,
    pub(super) limit_ranges: Vec<LimitRange>,
    pub(super) quotas: Vec<Quota>,
    /// The traits of the pods on which quotas depend.
    pub(super) traits: AllTraits,
}

impl Collected {
    pub(super) fn pod(
        &mut self,
        wire: &wire_pod::Pod<'_>,
        path: &Path<'_>,
    ) -> Result<(), ReadError> {
        let is_unnamed = |meta: &Metadata<'_>| meta.name.is_empty();
        let is_generated = |meta: &Metadata<'_>| !meta.generate_name.is_empty();
        if wire.metadata.as_ref().is_none_or(|meta| is_unnamed(meta) && !is_generated(meta)) {
            return Err(ReadError::new(&path.key("metadata").key("name"), Cause::Missing));
        }
        let phase = wire.status.as_ref().map_or("", |status| &*status.phase);
        if super::pod::has_ended(phase) {
            self.finished_pods += 1;
            if let Some(meta) = &wire.metadata {
                let namespace = Rules::apply(&mut self.defaulted).namespace(&meta.namespace);
                self.facts.read_finished(namespace, &meta.name, phase);
            }
            self.finished_uids
                .push(wire.metadata.as_ref().map_or_else(String::new, |meta| meta.uid.to_string()));
            return Ok(());
        }
        let draft = super::pod::read(wire, path, &mut Rules::apply(&mut self.defaulted))?;
        self.facts.read(&draft.uid, wire);
        self.traits.read(&draft);
        let open = draft.name.is_empty()
            || draft.priority.is_none()
            || (draft.runtime_class.is_some() && !draft.has_overhead)
            || !draft.claims.is_empty();
        self.pods.push(if open {
            Entry::Open(Box::new(draft))
        } else {
            self.facts.read_requests(&draft);
            Entry::Done(self.templates.share(draft.finish()))
        });
        Ok(())
    }

    pub(super) fn node(
        &mut self,
        wire: &wire_objects::Node<'_>,
        path: &Path<'_>,
    ) -> Result<(), ReadError> {
        let rules = &mut Rules::apply(&mut self.defaulted);
        let node = super::node::read(wire, path, rules)?;
        if wire.metadata.as_ref().is_some_and(|meta| !meta.deletion_timestamp.is_empty()) {
            self.deleted_nodes.push(node.name.clone());
        }
        self.nodes.push(node);
        Ok(())
    }

    pub(super) fn budget(
        &mut self,
        wire: &wire_objects::PodDisruptionBudget<'_>,
        path: &Path<'_>,
    ) -> Result<(), ReadError> {
        let rules = &mut Rules::apply(&mut self.defaulted);
        let budget = objects::budget(wire, path, rules)?;
        self.budget_limits.push(budgets::limit(wire, path, &budget)?);
        self.objects.push(budget.into());
        Ok(())
    }

    pub(super) fn job_set(
        &mut self,
        wire: &wire_objects::JobSet<'_>,
        path: &Path<'_>,
    ) -> Result<(), ReadError> {
        let rules = &mut Rules::apply(&mut self.defaulted);
        self.controllers.extend(sets::job_set(wire, path, rules, &mut self.parts)?);
        Ok(())
    }

    pub(super) fn leader_worker_set(
        &mut self,
        wire: &wire_objects::LeaderWorkerSet<'_>,
        path: &Path<'_>,
    ) -> Result<(), ReadError> {
        let rules = &mut Rules::apply(&mut self.defaulted);
        self.controllers.extend(sets::leader_worker_set(wire, path, rules, &mut self.parts)?);
        Ok(())
    }

    pub(super) fn claim(
        &mut self,
        wire: &wire_storage::PersistentVolumeClaim<'_>,
        path: &Path<'_>,
    ) -> Result<(), ReadError> {
        if !storage::has_class(wire) {
            self.classless.push(self.objects.len());
        }
        self.objects.push(storage::claim(wire, path)?.into());
        Ok(())
    }

    pub(super) fn storage_class(
        &mut self,
        wire: &wire_storage::StorageClass<'_>,
        path: &Path<'_>,
    ) -> Result<(), ReadError> {
        let class = storage::storage_class(wire, path)?;
        if storage::is_default(wire) {
            let created = wire.metadata.as_ref().map(|meta| meta.creation_timestamp.to_string());
            self.default_classes.push((created.unwrap_or_default(), class.name().clone()));
        }
        self.objects.push(class);
        Ok(())
    }

    /// Counts an object that was read.
    pub(super) fn count(&mut self, kind: &Kind) {
        if let Some(name) = kind.name() {
            *self.read.entry(name).or_default() += 1;
        }
    }

    pub(super) fn skip(&mut self, kind: &str) {
        *self.skipped.entry(kind.to_owned()).or_default() += 1;
    }

    /// Appends the objects of a later input, which keeps them. Its pods share the templates from now on.
    pub(super) fn extend(&mut self, later: &mut Collected) {
        later.templates = Templates::default();
        for entry in &mut later.pods {
            if let Entry::Done(pod) = entry {
                *pod = self.templates.share(pod.clone());
            }
        }
        self.merge(later.clone());
    }

    /// Appends the objects of a later input.
    pub(super) fn merge(&mut self, other: Collected) {
        self.nodes.extend(other.nodes);
        self.deleted_nodes.extend(other.deleted_nodes);
        self.pods.reserve(other.pods.len());
        for entry in other.pods {
            self.pods.push(match entry {
                Entry::Done(pod) => Entry::Done(self.templates.share(pod)),
                open @ Entry::Open(_) => open,
            });
        }
        let before = self.objects.len();
        self.objects.extend(other.objects);
        self.devices.extend(other.devices);
        self.classless.extend(other.classless.iter().map(|at| before + at));
        self.default_classes.extend(other.default_classes);
        self.controllers.extend(other.controllers);
        self.parts = other.parts;
        self.priority_classes.extend(other.priority_classes);
        self.runtime_classes.extend(other.runtime_classes);
        for (kind, count) in other.read {
            *self.read.entry(kind).or_default() += count;
        }
        for (kind, count) in other.skipped {
            *self.skipped.entry(kind).or_default() += count;
        }
        self.finished_pods += other.finished_pods;
        self.finished_uids.extend(other.finished_uids);
        self.defaulted.extend(other.defaulted);
        self.budget_limits.extend(other.budget_limits);
        self.facts.merge(other.facts);
        self.limit_ranges.extend(other.limit_ranges);
        self.quotas.extend(other.quotas);
        self.traits.merge(other.traits);
    }
}
