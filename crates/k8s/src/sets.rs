//! Reads job sets and leader-worker sets as the jobs and stateful sets that their controllers create.

use std::sync::{Arc, OnceLock};

use super::defaults::Rules;
use super::error::{Path, ReadError};
use super::objects::named;
use super::wire::{Metadata, Text};
use super::wire_objects as wire;
use super::wire_pod::PodTemplate;
use super::workloads::{ControllerKind, MAX_REPLICAS, Parts, PodController, at_once, build};
use portolan::model::{LabelSelector, Name, OwnerReference};

/// The largest number of jobs or groups of one object, above the limits of their controllers.
const MAX_PARTS: i64 = 100_000;

/// The object that owns the controllers.
struct Set<'w> {
    meta: Metadata<'w>,
    name: Name,
    owner: OwnerReference,
    generated: Option<Arc<GeneratedSet>>,
}

/// A set without a name, which its parts share. Until it has one, the base takes its place in their names and labels.
#[derive(Debug)]
pub(super) struct GeneratedSet {
    base: Name,
    name: OnceLock<Name>,
}

impl GeneratedSet {
    /// Puts the set's name in the place of the base. `generate` makes a name for the first of the parts.
    pub(super) fn rename(&self, part: &mut PodController, generate: impl FnOnce(&Name) -> Name) {
        let base = &self.base;
        let name = self.name.get_or_init(|| generate(base));
        if let Some(rest) = part.name.strip_prefix(&**base) {
            part.name = format!("{name}{rest}").into();
        }
        for owner in part.owners.iter_mut().filter(|owner| owner.name == *base) {
            owner.name = name.clone();
        }
        let own = |value: &str| if *value == **base { name.to_string() } else { value.to_owned() };
        let labels = part.draft.spec.labels.iter();
        part.draft.spec.labels = labels.map(|(key, value)| (key.to_owned(), own(value))).collect();
        if let LabelSelector::All(requirements) = &mut part.selector {
            for requirement in requirements {
                for value in &mut requirement.values {
                    *value = own(value).into();
                }
            }
        }
    }
}

impl<'w> Set<'w> {
    fn new(
        meta: &Metadata<'w>,
        api_version: &str,
        kind: &str,
        path: &Path<'_>,
    ) -> Result<Self, ReadError> {
        let is_unnamed = meta.name.is_empty() && !meta.generate_name.is_empty();
        let (name, generated) = match is_unnamed {
            true => {
                let base = super::node::name(&meta.generate_name);
                (base.clone(), Some(Arc::new(GeneratedSet { base, name: OnceLock::new() })))
            }
            false => (named(meta, path)?, None),
        };
        let owner = OwnerReference {
            api_version: api_version.into(),
            kind: kind.into(),
            name: name.clone(),
            uid: super::node::name(&meta.uid),
            controller: true,
        };
        Ok(Set { meta: meta.clone(), name, owner, generated })
    }

    /// Reads the template once, as that of a controller of the set.
    fn part(
        &self,
        kind: ControllerKind,
        template: Option<&PodTemplate<'w>>,
        replicas: i64,
        path: &Path<'_>,
        rules: &mut Rules<'_>,
    ) -> Result<PodController, ReadError> {
        let name = Text(self.name.to_string().into());
        let (uid, generate_name) = Default::default();
        let meta = Metadata { uid, name, generate_name, ..self.meta.clone() };
        let selector = LabelSelector::Nothing;
        let parts = Parts { meta, template, replicas, first: 0, selector };
        let mut part = build(kind, parts, path, rules)?;
        part.owners = [self.owner.clone()].into();
        part.is_derived = true;
        part.of_generated.clone_from(&self.generated);
        Ok(part)
    }
}

/// Returns a part with its own name and labels, by which its pods are selected.
fn named_part(part: &PodController, name: String, labels: &[(&str, &str)]) -> PodController {
    let mut part = part.clone();
    part.name = name.into();
    let own = labels.iter().copied();
    part.draft.spec.labels = part.draft.spec.labels.iter().chain(own).collect();
    part.selector = LabelSelector::from_labels(labels.iter().copied());
    part
}

fn parts(number: Option<i64>, path: &Path<'_>) -> Result<i64, ReadError> {
    let number = number.unwrap_or(1);
    if number > MAX_PARTS {
        let expected = "a number up to 100000";
        return Err(ReadError::value(path, &number.to_string(), expected));
    }
    Ok(number.max(0))
}

/// Returns the jobs of a job set, named `<set>-<replicated job>-<index>`.
pub(super) fn job_set(
    wire: &wire::JobSet<'_>,
    path: &Path<'_>,
    rules: &mut Rules<'_>,
) -> Result<Vec<PodController>, ReadError> {
    let meta = wire.metadata.clone().unwrap_or_default();
    let set = Set::new(&meta, "jobset.x-k8s.io/v1alpha2", "JobSet", path)?;
    let no_spec = wire::JobSetSpec::default();
    let spec = wire.spec.as_ref().unwrap_or(&no_spec);
    let has_ended = wire.status.as_ref().is_some_and(|status| !status.terminal_state.is_empty());
    let spec_path = path.key("spec");
    let list = spec_path.key("replicatedJobs");
    let mut jobs = Vec::new();
    for (i, replicated) in spec.replicated_jobs.iter().enumerate() {
        let path = list.index(i);
        let template = replicated.template.as_ref().and_then(|template| template.spec.as_ref());
        let is_suspended = spec.suspend == Some(true)
            || template.is_some_and(|job| job.suspend == Some(true))
            || has_ended;
        let pods = template.map_or(0, |job| at_once(job, 0));
        let pods = if is_suspended { 0 } else { pods };
        let pod_template = template.and_then(|job| job.template.as_ref());
        let job =
            set.part(ControllerKind::Job, pod_template, pods, &path.key("template"), rules)?;
        let replicas = parts(*replicated.replicas, &path.key("replicas"))?;
        too_many(replicas, pods, &path.key("replicas"))?;
        for index in 0..replicas {
            let index = index.to_string();
            let labels = [
                ("jobset.sigs.k8s.io/jobset-name", &*set.name),
                ("jobset.sigs.k8s.io/replicatedjob-name", &*replicated.name),
                ("jobset.sigs.k8s.io/job-index", &*index),
            ];
            let name = format!("{}-{}-{index}", set.name, &*replicated.name);
            jobs.push(named_part(&job, name, &labels));
        }
    }
    Ok(jobs)
}

/// Returns the stateful sets of a leader-worker set: one of the leaders, named like the set, and one of the workers of
/// each group, named like the group's leader.
pub(super) fn leader_worker_set(
    wire: &wire::LeaderWorkerSet<'_>,
    path: &Path<'_>,
    rules: &mut Rules<'_>,
) -> Result<Vec<PodController>, ReadError> {
    let meta = wire.metadata.clone().unwrap_or_default();
    let set = Set::new(&meta, "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", path)?;
    let no_spec = wire::LeaderWorkerSetSpec::default();
    let spec = wire.spec.as_ref().unwrap_or(&no_spec);
    let no_template = wire::LeaderWorkerTemplate::default();
    let group = spec.leader_worker_template.as_ref().unwrap_or(&no_template);
    let spec_path = path.key("spec");
    let template_path = spec_path.key("leaderWorkerTemplate");
    let replicas = parts(*spec.replicas, &spec_path.key("replicas"))?;
    let workers = group.size.unwrap_or(1).saturating_sub(1).max(0);
    too_many(replicas, workers, &template_path.key("size"))?;
    let leaders = group.leader_template.as_ref().or(group.worker_template.as_ref());
    let kind = ControllerKind::StatefulSet;
    let leaders = set.part(kind, leaders, replicas, &template_path, rules)?;
    let labels = [
        ("leaderworkerset.sigs.k8s.io/name", &*set.name),
        ("leaderworkerset.sigs.k8s.io/worker-index", "0"),
    ];
    let mut sets = vec![named_part(&leaders, set.name.to_string(), &labels)];
    if workers == 0 {
        return Ok(sets);
    }
    let worker = set.part(kind, group.worker_template.as_ref(), workers, &template_path, rules)?;
    for index in 0..replicas {
        let index = index.to_string();
        let labels = [
            ("leaderworkerset.sigs.k8s.io/name", &*set.name),
            ("leaderworkerset.sigs.k8s.io/group-index", &*index),
        ];
        let mut workers = named_part(&worker, format!("{}-{index}", set.name), &labels);
        // Ordinal 0 is the leader.
        workers.first = 1;
        sets.push(workers);
    }
    Ok(sets)
}

/// Refuses a product that is beyond any real cluster.
fn too_many(parts: i64, pods: i64, path: &Path<'_>) -> Result<(), ReadError> {
    let product = parts.saturating_mul(pods.max(1));
    if product > MAX_REPLICAS {
        let expected = "a number with which the set has up to 10000000 pods";
        return Err(ReadError::value(path, &product.to_string(), expected));
    }
    Ok(())
}
