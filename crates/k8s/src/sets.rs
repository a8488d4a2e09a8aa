//! Reads job sets and leader-worker sets as the jobs and stateful sets that their controllers create.

use std::sync::{Arc, OnceLock};

use super::controllers::{MAX_REPLICAS, Parts, build};
use super::defaults::Rules;
use super::error::{Path, ReadError};
use super::objects::named;
use super::prerequisite::Prerequisite;
use super::rollout::Job;
use super::set_parts::{
    GROUP_INDEX, GROUP_KEYS, GROUP_REVISION, GROUP_SET, JOBSET_KEYS, Role, SUBGROUP_KEYS, SetPart,
    SubGroups,
};
use super::storage::ClaimTemplate;
use super::wire::{Metadata, Text};
use super::wire_objects as wire;
use super::wire_pod::PodTemplate;
use super::workloads::{ControllerKind, PodController};
use portolan::model::{LabelSelector, Name, OwnerReference};

/// The largest number of jobs or groups of one object, above the limits of their controllers.
const MAX_PARTS: i64 = 100_000;

/// The largest number of jobs and groups of all objects of a reader, which takes about 1 GiB. A few bytes can ask for
/// [`MAX_PARTS`] of them.
const ALL_PARTS: usize = 250_000;

/// The number of names of pods that take as much memory as a part.
const NAMES: usize = 50;

/// The description of valid numbers of parts and of names.
const PARTS: &str = "a number with which the sets of the input have up to 250000 jobs and groups";
const DEPENDENCIES: &str = "a number of pods on which the jobs of an input may depend";

/// Adds parts to those of an input, or refuses the number with which there are too many.
fn charge(
    all: &mut usize,
    parts: usize,
    found: i64,
    (expected, path): (&'static str, &Path<'_>),
) -> Result<(), ReadError> {
    if parts > ALL_PARTS.saturating_sub(*all) {
        return Err(ReadError::value(path, &found.to_string(), expected));
    }
    *all += parts;
    Ok(())
}

/// The object that owns the controllers.
struct Set<'w> {
    meta: Metadata<'w>,
    name: Name,
    owner: OwnerReference,
    generated: Option<Arc<GeneratedSet>>,
}

/// A set without a name, which its parts share. Until it has one, the base takes its place in their names and labels.
#[derive(Debug, PartialEq)]
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
        for (_, value) in part.part.iter_mut().flat_map(|of| of.labels.iter_mut()) {
            *value = own(value);
        }
        if let Some(start) = part.part.as_mut().and_then(|of| of.start.as_mut()) {
            let renamed = start.pods.iter().map(|pod| match pod.strip_prefix(&**base) {
                Some(rest) => Name::from(format!("{name}{rest}")),
                None => pod.clone(),
            });
            start.pods = renamed.collect();
        }
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
            false => (named(&meta.name, path)?, None),
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

    /// Reads the template once, as that of a controller of the set, whose pods get labels of these keys.
    fn part(
        &self,
        template: Option<&PodTemplate<'w>>,
        job: Option<Job>,
        replicas: i64,
        keys: &[&'static str],
        (path, rules): (&Path<'_>, &mut Rules<'_>),
    ) -> Result<PodController, ReadError> {
        let name = Text(self.name.to_string().into());
        let (uid, generate_name) = Default::default();
        let meta = Metadata { uid, name, generate_name, ..self.meta.clone() };
        let kind = match job {
            Some(_) => ControllerKind::Job,
            None => ControllerKind::StatefulSet,
        };
        let parts = Parts { job, labels: keys, ..Parts::new(Some(&meta), template, replicas) };
        let mut part = build(kind, parts, path, rules)?;
        part.owners = [self.owner.clone()].into();
        part.is_derived = true;
        part.of_generated.clone_from(&self.generated);
        Ok(part)
    }
}

/// Returns a part with its own name, whose pods are selected by these of its labels.
fn named_part(
    part: &PodController,
    name: String,
    of_set: SetPart,
    selector: &[&str],
) -> PodController {
    let labels = of_set.labels.iter().filter(|(key, _)| selector.contains(key));
    let selector = LabelSelector::from_labels(labels.map(|(key, value)| (*key, &**value)));
    PodController { name: name.into(), selector, part: Some(Box::new(of_set)), ..part.clone() }
}

/// Returns the number of jobs or groups of an object.
fn parts(all: &mut usize, number: Option<i64>, path: &Path<'_>) -> Result<i64, ReadError> {
    let number = number.unwrap_or(1);
    if number > MAX_PARTS {
        let expected = "a number up to 100000";
        return Err(ReadError::value(path, &number.to_string(), expected));
    }
    charge(all, usize::try_from(number).unwrap_or(0), number, (PARTS, path))?;
    Ok(number.max(0))
}

/// Returns the jobs of a job set, named `<set>-<replicated job>-<index>`, and adds their number to that of `all` parts.
pub(super) fn job_set(
    wire: &wire::JobSet<'_>,
    path: &Path<'_>,
    rules: &mut Rules<'_>,
    all: &mut usize,
) -> Result<Vec<PodController>, ReadError> {
    let meta = wire.metadata.clone().unwrap_or_default();
    let set = Set::new(&meta, "jobset.x-k8s.io/v1alpha2", "JobSet", path)?;
    let no_spec = wire::JobSetSpec::default();
    let spec = wire.spec.as_ref().unwrap_or(&no_spec);
    let spec_path = path.key("spec");
    let list = spec_path.key("replicatedJobs");
    let mut jobs: Vec<PodController> = Vec::new();
    // The jobs of each replicated job are those from its number to the next one.
    let mut firsts = Vec::with_capacity(spec.replicated_jobs.len());
    for (i, replicated) in spec.replicated_jobs.iter().enumerate() {
        let path = list.index(i);
        let template = replicated.template.as_ref().and_then(|template| template.spec.as_ref());
        let is_suspended = spec.suspend == Some(true) || has_ended(wire);
        let no_job = wire::ControllerSpec::default();
        let mut job = Job::read(template.unwrap_or(&no_job), None);
        let pods = template.filter(|_| !is_suspended).map_or(0, |template| job.at_once(template));
        // The default of JobSet's webhook, which is not that of jobs.
        job.is_indexed = template.is_none_or(|job| &*job.completion_mode != "NonIndexed");
        let pod_template = template.and_then(|job| job.template.as_ref());
        let of_job = (&path.key("template"), &mut *rules);
        let mut job = set.part(pod_template, Some(job), pods, &JOBSET_KEYS, of_job)?;
        job.unsimulated = (!spec.volume_claim_policies.is_empty()).then_some("volumeClaimPolicies");
        let replicas = parts(all, *replicated.replicas, &path.key("replicas"))?;
        too_many(replicas, pods, &path.key("replicas"))?;
        let start = start_of(wire, replicated, (&firsts, &jobs), all, &path)?;
        firsts.push((&*replicated.name, jobs.len()));
        for index in 0..replicas {
            let mut of_set = SetPart::new(Role::Job, job_labels(wire, &set, replicated, index));
            let of_template = replicated.template.as_ref().and_then(|it| it.metadata.as_ref());
            for meta in [Some(&meta), of_template].into_iter().flatten() {
                let Some(annotations) = &meta.annotations else { continue };
                if !annotations.jobset_topology.is_empty() {
                    of_set.topology = super::node::optional(&annotations.jobset_topology);
                    of_set.has_node_selector |= annotations.jobset_node_selector.is_some();
                }
            }
            of_set.start.clone_from(&start);
            let name = format!("{}-{}-{index}", set.name, &*replicated.name);
            jobs.push(named_part(&job, name, of_set, &JOBSET_KEYS));
        }
    }
    Ok(jobs)
}

fn has_ended(set: &wire::JobSet<'_>) -> bool {
    set.status.as_ref().is_some_and(|status| !status.terminal_state.is_empty())
}

/// The labels of the pods of a job of a job set (jobset_controller.go `labelAndAnnotateObject`), except those that
/// depend on the job's name.
fn job_labels(
    wire: &wire::JobSet<'_>,
    set: &Set<'_>,
    replicated: &wire::ReplicatedJob<'_>,
    index: i64,
) -> Vec<(&'static str, String)> {
    let spec = wire.spec.as_ref();
    let all = || spec.iter().flat_map(|spec| spec.replicated_jobs.iter());
    let replicas = |job: &wire::ReplicatedJob<'_>| job.replicas.unwrap_or(1).max(0);
    let group = |job: &wire::ReplicatedJob<'_>| match &*job.group_name {
        "" => "default".to_owned(),
        name => name.to_owned(),
    };
    let own_group = group(replicated);
    let before = || all().take_while(|job| *job.name != *replicated.name);
    let in_group = |job: &&wire::ReplicatedJob<'_>| group(job) == own_group;
    let restarts = wire.status.as_ref().and_then(|status| *status.restarts).unwrap_or(0);
    let values = [
        set.name.to_string(),
        wire.metadata.as_ref().map(|meta| meta.uid.to_string()).unwrap_or_default(),
        replicated.name.to_string(),
        restarts.to_string(),
        replicas(replicated).to_string(),
        all().map(replicas).sum::<i64>().to_string(),
        index.to_string(),
        (before().map(replicas).sum::<i64>() + index).to_string(),
        own_group.clone(),
        all().filter(in_group).map(replicas).sum::<i64>().to_string(),
        (before().filter(in_group).map(replicas).sum::<i64>() + index).to_string(),
    ];
    JOBSET_KEYS.into_iter().zip(values).collect()
}

/// What must happen before the jobs of a replicated job are created: `startupPolicy` and `dependsOn`.
fn start_of(
    wire: &wire::JobSet<'_>,
    replicated: &wire::ReplicatedJob<'_>,
    (firsts, jobs): (&[(&str, usize)], &[PodController]),
    all: &mut usize,
    path: &Path<'_>,
) -> Result<Option<Prerequisite>, ReadError> {
    let mut pods_from = |at: usize| {
        let end = firsts.get(at + 1).map_or(jobs.len(), |(_, first)| *first);
        let jobs = jobs.get(firsts[at].1..end).unwrap_or_default().iter();
        let number: usize = jobs.clone().map(|job| job.replicas).sum();
        let found = i64::try_from(number).unwrap_or(i64::MAX);
        charge(all, number / NAMES, found, (DEPENDENCIES, path))?;
        let names = jobs.flat_map(|job| {
            job.numbers().take(job.replicas).map(|n| Name::from(format!("{}-{n}", job.name)))
        });
        Ok(names.collect::<Vec<Name>>())
    };
    let succeeded = |name: &str| {
        let statuses = wire.status.iter().flat_map(|status| status.replicated_jobs_status.iter());
        let mut statuses = statuses.filter(|status| *status.name == *name);
        statuses.next().and_then(|status| *status.succeeded).unwrap_or(0)
    };
    let Some(spec) = &wire.spec else { return Ok(None) };
    let mut pods = Vec::new();
    let mut is_completion = false;
    for dependency in replicated.depends_on.iter() {
        let replicas = spec.replicated_jobs.iter().find(|job| *job.name == *dependency.name);
        if replicas.is_some_and(|job| succeeded(&job.name) >= job.replicas.unwrap_or(1)) {
            continue;
        }
        if let Some(at) = firsts.iter().position(|(name, _)| **name == *dependency.name) {
            pods.extend(pods_from(at)?);
            is_completion |= &*dependency.status == "Complete";
        }
    }
    if !pods.is_empty() {
        let start = Prerequisite::running(pods.into(), "dependsOn");
        return Ok(Some(Prerequisite { is_completion, ..start }));
    }
    let order = spec.startup_policy.as_ref().map(|policy| &*policy.startup_policy_order);
    if order != Some("InOrder") || firsts.is_empty() {
        return Ok(None);
    }
    let before = pods_from(firsts.len() - 1)?;
    Ok(Some(Prerequisite::running(before.into(), "startupPolicyOrder InOrder")))
}

/// Returns the stateful sets of a leader-worker set: one of the leaders, named like the set, and one of the workers of
/// each group, named like the group's leader. Adds the number of groups to that of `all` parts.
pub(super) fn leader_worker_set(
    wire: &wire::LeaderWorkerSet<'_>,
    path: &Path<'_>,
    rules: &mut Rules<'_>,
    all: &mut usize,
) -> Result<Vec<PodController>, ReadError> {
    let meta = wire.metadata.clone().unwrap_or_default();
    let set = Set::new(&meta, "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", path)?;
    let no_spec = wire::LeaderWorkerSetSpec::default();
    let spec = wire.spec.as_ref().unwrap_or(&no_spec);
    let no_template = wire::LeaderWorkerTemplate::default();
    let group = spec.leader_worker_template.as_ref().unwrap_or(&no_template);
    let spec_path = path.key("spec");
    let template_path = spec_path.key("leaderWorkerTemplate");
    let replicas = parts(all, *spec.replicas, &spec_path.key("replicas"))?;
    let workers = group.size.unwrap_or(1).saturating_sub(1).max(0);
    too_many(replicas, workers, &template_path.key("size"))?;
    let annotations = meta.annotations.clone().unwrap_or_default();
    let topology = super::node::optional(&annotations.group_topology);
    let subgroups = group.sub_group_policy.as_ref().map(|policy| SubGroups {
        size: policy.sub_group_size.map_or(1, |size| usize::try_from(size).unwrap_or(1)),
        of_group: usize::try_from(workers).unwrap_or(0) + 1,
        topology: super::node::optional(&annotations.subgroup_topology),
        is_leader_excluded: &*policy.policy_type == "LeaderExcluded",
    });
    let keys = if subgroups.is_some() { &SUBGROUP_KEYS[..] } else { &GROUP_KEYS };
    let part = |role, index: Option<i64>, start| {
        let index = index.map(|index| (GROUP_INDEX, index.to_string()));
        let name = [(GROUP_SET, set.name.to_string()), (GROUP_REVISION, "1".to_owned())];
        let labels = name.into_iter().chain(index).collect();
        let (topology, subgroups) = (topology.clone(), subgroups.clone());
        SetPart { topology, subgroups, start, ..SetPart::new(role, labels) }
    };
    let claim_list = template_path.key("volumeClaimTemplates");
    let claims = (group.volume_claim_templates.iter().enumerate())
        .map(|(i, template)| ClaimTemplate::read(template, &claim_list.index(i)))
        .collect::<Result<Vec<_>, _>>()?;
    let leaders = group.leader_template.as_ref().or(group.worker_template.as_ref());
    let mut leaders = set.part(leaders, None, replicas, keys, (&template_path, &mut *rules))?;
    leaders.claims.clone_from(&claims);
    leaders.recreates_groups =
        &*group.restart_policy != "None" && &*group.restart_policy != "Default";
    let of_leaders = part(Role::Leaders, None, None);
    let mut sets = vec![named_part(&leaders, set.name.to_string(), of_leaders, &[GROUP_SET])];
    if workers == 0 {
        return Ok(sets);
    }
    let worker = group.worker_template.as_ref();
    let worker = set.part(worker, None, workers, keys, (&template_path, rules))?;
    for index in 0..replicas {
        let name = format!("{}-{index}", set.name);
        let start = (&*spec.startup_policy == "LeaderReady").then(|| {
            let leader = Name::from(name.as_str());
            Prerequisite::running([leader].into(), "startupPolicy LeaderReady")
        });
        let of_workers = part(Role::Workers, Some(index), start);
        let mut workers = named_part(&worker, name, of_workers, &[GROUP_SET, GROUP_INDEX]);
        workers.claims.clone_from(&claims);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_limited_over_all_documents_and_inputs() {
        let set = "apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\nmetadata: {name: a}\n\
                   spec: {replicas: 2}\n";
        let mut reader = crate::Reader::new();
        reader.collected.parts = ALL_PARTS - 5;
        reader.read(set.as_bytes()).expect("2 of 5");
        let three = [set; 3].join("---\n");
        let error = reader.read(three.as_bytes()).expect_err("6 of 3");
        assert!(error.to_string().contains("up to 250000 jobs and groups"), "{error}");
        assert_eq!(reader.collected.parts, ALL_PARTS - 3);
        // Others are not affected.
        assert!(crate::read(three.as_bytes()).is_ok());
        assert!(reader.read(set.as_bytes()).is_ok());
    }
}
