//! The labels that controllers add to their pods.
//!
//! Some of their values are known only when a pod is created, such as the hash of the template or an index, but terms
//! of the template may refer to them by `matchLabelKeys`. The template is therefore read with [`LATER`] as the value of
//! each label, and [`set`] replaces it in the labels and in the terms.

use std::borrow::Cow;

use super::wire::{Metadata, Text};
use super::workloads::ControllerKind;
use portolan::model::{LabelSelector, Name, PodAffinity, PodSpec, Requirement};

/// Stands for a value that is not known yet. It is not a valid value of a label.
pub(super) const LATER: &str = "\0";

pub(super) const TEMPLATE_HASH: &str = "pod-template-hash";
pub(super) const REVISION_HASH: &str = "controller-revision-hash";
pub(super) const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
pub(super) const POD_INDEX: &str = "apps.kubernetes.io/pod-index";
pub(super) const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
/// The labels of a job's name and uid, each with its older form.
pub(super) const JOB_NAME: [&str; 2] = ["batch.kubernetes.io/job-name", "job-name"];
pub(super) const JOB_UID: [&str; 2] = ["batch.kubernetes.io/controller-uid", "controller-uid"];

/// Returns the keys of the labels that a controller of the kind adds. Jobs have keys of their own.
pub(super) fn keys(kind: ControllerKind) -> &'static [&'static str] {
    match kind {
        ControllerKind::Deployment => &[TEMPLATE_HASH],
        ControllerKind::DaemonSet => &[REVISION_HASH],
        ControllerKind::StatefulSet => &[POD_INDEX, REVISION_HASH, POD_NAME],
        _ => &[],
    }
}

/// Returns the metadata of a template with labels of these keys.
pub(super) fn reserve<'w>(meta: &Metadata<'w>, keys: &[&'static str]) -> Metadata<'w> {
    let mut meta = meta.clone();
    for key in keys {
        let later = Text(Cow::Borrowed(LATER));
        meta.labels.0.push((Text(Cow::Borrowed(*key)), later));
    }
    meta
}

/// Sets labels of a pod, also in the terms that refer to them.
pub(super) fn set<K: AsRef<str>>(spec: &mut PodSpec, labels: &[(K, String)]) {
    if labels.is_empty() {
        return;
    }
    let own = labels.iter().map(|(key, value)| (key.as_ref(), value.as_str()));
    spec.labels = spec.labels.iter().chain(own).collect();
    for requirement in requirements(spec) {
        let own = labels.iter().find(|(key, _)| key.as_ref() == &*requirement.key);
        let later = requirement.values.iter_mut().filter(|value| &***value == LATER);
        for (value, (_, own)) in later.zip(own.into_iter().cycle()) {
            *value = Name::from(own.as_str());
        }
    }
}

/// Returns the requirements of all terms of pod affinity and anti-affinity.
fn requirements(spec: &mut PodSpec) -> impl Iterator<Item = &mut Requirement> {
    let both = [&mut spec.pod_affinity, &mut spec.pod_anti_affinity].into_iter().flatten();
    both.flat_map(|affinity| {
        let PodAffinity { required, preferred } = &mut **affinity;
        let preferred = preferred.iter_mut().map(|weighted| &mut weighted.term);
        required.iter_mut().chain(preferred)
    })
    .flat_map(|term| match &mut term.selector {
        LabelSelector::All(requirements) => requirements.iter_mut(),
        LabelSelector::Nothing => [].iter_mut(),
    })
}

/// Removes the labels that the deployment controller adds to a replica set's template, so that both templates can be
/// compared.
pub(super) fn forget_hash(spec: &mut PodSpec) {
    let others = spec.labels.iter().filter(|(key, _)| *key != TEMPLATE_HASH);
    spec.labels = others.collect();
    for requirement in requirements(spec).filter(|it| &*it.key == TEMPLATE_HASH) {
        requirement.values = [Name::from(LATER)].into();
    }
}
