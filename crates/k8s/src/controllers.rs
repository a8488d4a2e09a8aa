//! Reads controllers that create pods: deployments, sets, jobs, replication controllers.

use super::defaults::Rules;
use super::error::{Path, ReadError};
use super::objects::named;
use super::own_labels::{self, COMPLETION_INDEX, JOB_NAME, JOB_UID};
use super::pod::template;
use super::rollout::{Job, UpdateStrategy};
use super::selector::label_selector;
use super::set_parts::SetPart;
use super::storage::ClaimTemplate;
use super::wire::Metadata;
use super::wire_objects as wire;
use super::wire_pod;
use super::workloads::{ControllerKind, PodController};
use portolan::model::{LabelSelector, Name};

/// The limit is beyond any real cluster. A larger number is a typo, and is rejected before it exhausts the memory.
pub(super) const MAX_REPLICAS: i64 = 10_000_000;

/// The common fields of the wire structs of all controllers.
pub(super) struct Parts<'w> {
    pub(super) meta: Metadata<'w>,
    pub(super) template: Option<&'w wire_pod::PodTemplate<'w>>,
    pub(super) replicas: i64,
    pub(super) selector: LabelSelector,
    pub(super) job: Option<Job>,
    /// Further labels that the pods get when they are created.
    pub(super) labels: &'w [&'static str],
}

impl<'w> Parts<'w> {
    pub(super) fn new(
        meta: Option<&Metadata<'w>>,
        template: Option<&'w wire_pod::PodTemplate<'w>>,
        replicas: i64,
    ) -> Parts<'w> {
        Parts {
            meta: meta.cloned().unwrap_or_default(),
            template,
            replicas,
            selector: LabelSelector::Nothing,
            job: None,
            labels: &[],
        }
    }
}

pub(super) fn controller(
    kind: ControllerKind,
    wire: &wire::Controller<'_>,
    path: &Path<'_>,
    rules: &mut Rules<'_>,
) -> Result<PodController, ReadError> {
    let no_spec = wire::ControllerSpec::default();
    let spec = wire.spec.as_ref().unwrap_or(&no_spec);
    let mut job = (kind == ControllerKind::Job).then(|| Job::read(spec, wire.status.as_ref()));
    if let Some(job) = job.as_mut().filter(|_| has_ended(wire)) {
        job.remaining = 0;
    }
    let replicas = match (kind, &job) {
        (ControllerKind::DaemonSet, _) => 0,
        (_, Some(job)) => job.at_once(spec),
        _ => spec.replicas.unwrap_or(1),
    };
    let spec_path = path.key("spec");
    let parts = Parts {
        selector: label_selector(spec.selector.as_ref(), &spec_path.key("selector"))?,
        job,
        ..Parts::new(wire.metadata.as_ref(), spec.template.as_ref(), replicas)
    };
    let mut template = spec.template.clone().unwrap_or_default();
    let is_set = kind == ControllerKind::StatefulSet;
    let claims = if is_set { claim_templates(spec, path, rules)? } else { Vec::new() };
    if let Some(spec) = &mut template.spec {
        // A claim replaces the volume with its name.
        let replaces = |volume: &str| claims.iter().any(|it| *it.claim.name == *volume);
        spec.volumes.0.retain(|volume| !replaces(&volume.name));
    }
    let mut controller = build(kind, Parts { template: Some(&template), ..parts }, path, rules)?;
    controller.update = UpdateStrategy::read(kind, spec, &spec_path)?;
    controller.is_ordered = is_set && &*spec.pod_management_policy != "Parallel";
    let first = spec.ordinals.as_ref().and_then(|ordinals| *ordinals.start).unwrap_or(0);
    controller.first = usize::try_from(first).unwrap_or(0);
    controller.claims = claims;
    let of_template = template.metadata.as_ref().filter(|_| rules.applies());
    controller.part = of_template.and_then(|meta| SetPart::of_template(kind, meta));
    Ok(controller)
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
    let read = Job::read(job, None);
    let replicas = if spec.suspend == Some(true) { 0 } else { read.at_once(job) };
    let parts = Parts {
        job: Some(read),
        ..Parts::new(wire.metadata.as_ref(), job.template.as_ref(), replicas)
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
        selector: LabelSelector::from_labels(super::node::labels(labels).iter()),
        ..Parts::new(wire.metadata.as_ref(), template, spec.replicas.unwrap_or(1))
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
        None => named(&parts.meta.name, path)?,
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
    let keys = if rules.applies() { keys(kind, &parts) } else { Vec::new() };
    let meta = &own_labels::reserve(meta, &keys);
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
        update: UpdateStrategy::Never,
        job: parts.job,
        is_ordered: false,
        recreates_groups: false,
        unsimulated: None,
        is_derived: false,
        generate_name,
        of_generated: None,
        part: None,
        first: 0,
        hash: String::new(),
        charge: None,
        refusal: None,
        claims: Vec::new(),
        draft,
    })
}

/// The keys of the labels that the pods get when they are created.
fn keys(kind: ControllerKind, parts: &Parts<'_>) -> Vec<&'static str> {
    let mut keys = own_labels::keys(kind).to_vec();
    keys.extend(parts.labels);
    if let Some(job) = &parts.job {
        if job.has_labels {
            keys.extend(JOB_NAME.into_iter().chain(JOB_UID));
        }
        keys.extend(job.is_indexed.then_some(COMPLETION_INDEX));
    }
    keys
}
