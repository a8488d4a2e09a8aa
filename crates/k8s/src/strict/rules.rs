//! The rules of the API server's validation that matter to scheduling (pkg/apis/*/validation).

use std::collections::BTreeMap;

use k8s_openapi::api::{apps, batch, core, policy};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use portolan::model::{Quantity, is_label_key, is_label_value};

use super::{Place, Sink, Step};
use crate::config::is_subdomain;
use crate::tree::{Spot, Tree};

const REQUIRED: &str = "Required value";

fn place(path: &[&str]) -> Place {
    path.iter().map(|key| Step::Key((*key).to_owned())).collect()
}

fn key(at: &[Step], keys: &[&str]) -> Place {
    let keys = keys.iter().map(|key| Step::Key((*key).to_owned()));
    at.iter().cloned().chain(keys).collect()
}

fn index(at: &[Step], list: &str, index: usize) -> Place {
    let mut place = key(at, &[list]);
    place.push(Step::Index(index));
    place
}

fn invalid(value: &str, why: &str) -> String {
    // A name may be a whole file by mistake.
    let start: String = value.chars().take(60).collect();
    let more = if start.len() < value.len() { "…" } else { "" };
    format!("Invalid value: \"{}{more}\": {why}", start.escape_debug())
}

/// The API server's `NotSupported`.
fn unsupported(value: &str, supported: &[&str]) -> String {
    let start: String = value.chars().take(60).collect();
    let supported: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
    let supported = supported.join(", ");
    format!("Unsupported value: \"{}\": supported values: {supported}", start.escape_debug())
}

/// Numbers that must not be negative.
fn not_negative(number: Option<i32>, at: &[Step], sink: &mut Sink<'_>) {
    if let Some(number @ ..0) = number {
        sink.add(at, invalid(&number.to_string(), "must be greater than or equal to 0"));
    }
}

fn name(meta: &ObjectMeta, sink: &mut Sink<'_>) {
    let name = meta.name.as_deref().unwrap_or_default();
    if !name.is_empty() && (name.len() > 253 || !is_subdomain(name)) {
        let why = "must be a lowercase RFC 1123 subdomain: lower case letters, digits, '-' and '.'";
        sink.add(&place(&["metadata", "name"]), invalid(name, why));
    }
    labels(meta.labels.as_ref(), &place(&["metadata", "labels"]), sink);
}

fn labels(labels: Option<&BTreeMap<String, String>>, at: &[Step], sink: &mut Sink<'_>) {
    for (label, value) in labels.into_iter().flatten() {
        if !is_label_key(label) {
            sink.add(&key(at, &[label]), invalid(label, "must be a label key"));
        } else if !is_label_value(value) {
            sink.add(&key(at, &[label]), invalid(value, "must be a label value"));
        }
    }
}

pub(super) fn pod(pod: &core::v1::Pod, sink: &mut Sink<'_>) {
    name(&pod.metadata, sink);
    match &pod.spec {
        Some(spec) => pod_spec(spec, &place(&["spec"]), sink),
        None => sink.add(&place(&["spec"]), REQUIRED),
    }
}

pub(super) fn node(node: &core::v1::Node, sink: &mut Sink<'_>) {
    name(&node.metadata, sink);
    let taints = node.spec.iter().filter_map(|spec| spec.taints.as_ref()).flatten();
    for (i, taint) in taints.enumerate() {
        if !EFFECTS.contains(&&*taint.effect) {
            let at = key(&index(&place(&["spec"]), "taints", i), &["effect"]);
            sink.add(&at, unsupported(&taint.effect, &EFFECTS));
        }
    }
}

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

fn pod_spec(spec: &core::v1::PodSpec, at: &[Step], sink: &mut Sink<'_>) {
    if spec.containers.is_empty() {
        sink.add(&key(at, &["containers"]), REQUIRED);
    }
    let lists =
        [("containers", Some(&spec.containers)), ("initContainers", spec.init_containers.as_ref())];
    for (list, containers) in lists {
        for (i, container) in containers.into_iter().flatten().enumerate() {
            if let Some(resources) = &container.resources {
                limits(resources, &key(&index(at, list, i), &["resources"]), sink);
            }
        }
    }
    let policy = spec.restart_policy.as_deref().unwrap_or("Always");
    if !matches!(policy, "Always" | "OnFailure" | "Never") {
        let what = unsupported(policy, &["Always", "OnFailure", "Never"]);
        sink.add(&key(at, &["restartPolicy"]), what);
    }
    for (i, toleration) in spec.tolerations.iter().flatten().enumerate() {
        let at = index(at, "tolerations", i);
        let operator = toleration.operator.as_deref().unwrap_or("");
        if !matches!(operator, "" | "Equal" | "Exists") {
            let mut what = unsupported(operator, &["Equal", "Exists"]);
            if matches!(operator, "Lt" | "Gt") {
                what += &unless("TaintTolerationComparisonOperators");
            }
            sink.add(&key(&at, &["operator"]), what);
        }
        let value = toleration.value.as_deref().unwrap_or("");
        if operator == "Exists" && !value.is_empty() {
            let why = "value must be empty when `operator` is 'Exists'";
            sink.add(&key(&at, &["operator"]), invalid(value, why));
        }
        if toleration.key.as_deref().unwrap_or("").is_empty() && operator != "Exists" {
            let why = "operator must be Exists when `key` is empty";
            sink.add(&key(&at, &["operator"]), invalid(operator, why));
        }
        let effect = toleration.effect.as_deref().unwrap_or("");
        if !effect.is_empty() && !EFFECTS.contains(&effect) {
            sink.add(&key(&at, &["effect"]), unsupported(effect, &EFFECTS));
        }
    }
    for (i, constraint) in spec.topology_spread_constraints.iter().flatten().enumerate() {
        let at = index(at, "topologySpreadConstraints", i);
        if constraint.max_skew <= 0 {
            let skew = constraint.max_skew.to_string();
            sink.add(&key(&at, &["maxSkew"]), invalid(&skew, "must be greater than zero"));
        }
        if constraint.topology_key.is_empty() {
            sink.add(&key(&at, &["topologyKey"]), "Required value: can not be empty");
        }
        if let Some(domains @ ..=0) = constraint.min_domains {
            let what = invalid(&domains.to_string(), "must be greater than zero");
            sink.add(&key(&at, &["minDomains"]), what);
        }
        let supported = ["DoNotSchedule", "ScheduleAnyway"];
        if !supported.contains(&&*constraint.when_unsatisfiable) {
            let what = unsupported(&constraint.when_unsatisfiable, &supported);
            sink.add(&key(&at, &["whenUnsatisfiable"]), what);
        }
        selector(constraint.label_selector.as_ref(), &key(&at, &["labelSelector"]), sink);
    }
    if let Some(found) = &spec.affinity {
        affinity(found, &key(at, &["affinity"]), sink);
    }
    labels(spec.node_selector.as_ref(), &key(at, &["nodeSelector"]), sink);
    for (field, gate) in GATED {
        let at = key(at, &[field]);
        if sink.root.at(&at).is_some_and(|spot| !matches!(spot.tree, Tree::Null)) {
            sink.add(&at, format!("dropped{}", unless(gate)));
        }
    }
}

/// The fields of pods that scheduling reads and that the API server drops, with their feature gates.
const GATED: [(&str, &str); 1] = [("schedulingGroup", "GenericWorkload")];

/// The condition of a feature gate that is off by default.
fn unless(gate: &str) -> String {
    format!(" unless the feature gate {gate} is on, which is off by default")
}

/// Whether the resource is not one of Kubernetes itself (pkg/apis/core/v1/helper `IsExtendedResourceName`).
fn is_extended(resource: &str) -> bool {
    resource.contains('/') && !resource.contains("kubernetes.io/")
}

/// Whether containers may request it (core/helper `IsStandardContainerResourceName`); names of a domain are checked
/// elsewhere.
fn is_of_containers(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory" | "ephemeral-storage")
        || resource.starts_with("hugepages-")
        || resource.contains('/')
}

fn is_whole(amount: Quantity) -> bool {
    amount.milli_value() % 1000 == 0
}

/// A request must not exceed its limit, and neither may be negative.
fn limits(resources: &core::v1::ResourceRequirements, at: &[Step], sink: &mut Sink<'_>) {
    let lists = [("requests", &resources.requests), ("limits", &resources.limits)];
    for (list, amounts) in lists {
        for (resource, amount) in amounts.iter().flatten() {
            if amount.0.starts_with('-') {
                let why = "must be greater than or equal to 0";
                sink.add(&key(at, &[list, resource]), invalid(&amount.0, why));
            } else if !is_of_containers(resource) {
                let what = invalid(resource, "must be a standard resource for containers");
                sink.add(&key(at, &[list, resource]), what);
            } else if is_extended(resource) && amount.0.parse().is_ok_and(|it| !is_whole(it)) {
                let what = invalid(&amount.0, "must be an integer");
                sink.add(&key(at, &[list, resource]), what);
            }
        }
    }
    for (resource, request) in resources.requests.iter().flatten() {
        let limit = resources.limits.as_ref().and_then(|limits| limits.get(resource));
        let both = limit.map(|limit| (request.0.parse(), limit.0.parse()));
        if let Some((Ok::<Quantity, _>(wants), Ok::<Quantity, _>(has))) = both
            && wants > has
        {
            let why = format!("must be less than or equal to {resource} limit");
            sink.add(&key(at, &["requests", resource]), invalid(&request.0, &why));
        }
    }
}

fn affinity(affinity: &core::v1::Affinity, at: &[Step], sink: &mut Sink<'_>) {
    if let Some(of_nodes) = &affinity.node_affinity {
        let at = key(at, &["nodeAffinity"]);
        if let Some(required) = &of_nodes.required_during_scheduling_ignored_during_execution {
            let at = key(&at, &["requiredDuringSchedulingIgnoredDuringExecution"]);
            if required.node_selector_terms.is_empty() {
                sink.add(&key(&at, &["nodeSelectorTerms"]), REQUIRED);
            }
            for (i, term) in required.node_selector_terms.iter().enumerate() {
                node_term(term, &index(&at, "nodeSelectorTerms", i), sink);
            }
        }
        let list = "preferredDuringSchedulingIgnoredDuringExecution";
        let preferred = &of_nodes.preferred_during_scheduling_ignored_during_execution;
        for (i, term) in preferred.iter().flatten().enumerate() {
            let at = index(&at, list, i);
            weight(term.weight, &at, sink);
            node_term(&term.preference, &key(&at, &["preference"]), sink);
        }
    }
    let of_pods = affinity.pod_affinity.as_ref().map(|it| {
        let preferred = &it.preferred_during_scheduling_ignored_during_execution;
        ("podAffinity", &it.required_during_scheduling_ignored_during_execution, preferred)
    });
    let against_pods = affinity.pod_anti_affinity.as_ref().map(|it| {
        let preferred = &it.preferred_during_scheduling_ignored_during_execution;
        ("podAntiAffinity", &it.required_during_scheduling_ignored_during_execution, preferred)
    });
    for (field, required, preferred) in of_pods.into_iter().chain(against_pods) {
        let at = key(at, &[field]);
        for (i, term) in required.iter().flatten().enumerate() {
            let list = "requiredDuringSchedulingIgnoredDuringExecution";
            pod_term(term, &index(&at, list, i), sink);
        }
        for (i, term) in preferred.iter().flatten().enumerate() {
            let at = index(&at, "preferredDuringSchedulingIgnoredDuringExecution", i);
            weight(term.weight, &at, sink);
            pod_term(&term.pod_affinity_term, &key(&at, &["podAffinityTerm"]), sink);
        }
    }
}

fn weight(weight: i32, at: &[Step], sink: &mut Sink<'_>) {
    if !(1..=100).contains(&weight) {
        let what = invalid(&weight.to_string(), "must be in the range 1-100");
        sink.add(&key(at, &["weight"]), what);
    }
}

fn node_term(term: &core::v1::NodeSelectorTerm, at: &[Step], sink: &mut Sink<'_>) {
    for (i, found) in term.match_expressions.iter().flatten().enumerate() {
        let at = index(at, "matchExpressions", i);
        let count = found.values.as_ref().map_or(0, Vec::len);
        requirement(&found.key, &found.operator, count, Operators::OfNodes, &at, sink);
        let number = found.values.iter().flatten().next();
        if matches!(&*found.operator, "Gt" | "Lt")
            && number.is_none_or(|number| number.parse::<i64>().is_err())
        {
            let number = number.map_or("", String::as_str);
            sink.add(&key(&at, &["values"]), invalid(number, "must be one integer"));
        }
    }
    for (i, found) in term.match_fields.iter().flatten().enumerate() {
        let at = index(at, "matchFields", i);
        let count = found.values.as_ref().map_or(0, Vec::len);
        if !matches!(&*found.operator, "In" | "NotIn") {
            sink.add(&key(&at, &["operator"]), unsupported(&found.operator, &["In", "NotIn"]));
        } else if count != 1 {
            let what = "Required value: must be only one value when `operator` is 'In' or 'NotIn' \
                        for node field selector";
            sink.add(&key(&at, &["values"]), what);
        }
    }
}

fn pod_term(term: &core::v1::PodAffinityTerm, at: &[Step], sink: &mut Sink<'_>) {
    if term.topology_key.is_empty() {
        sink.add(&key(at, &["topologyKey"]), "Required value: can not be empty");
    }
    selector(term.label_selector.as_ref(), &key(at, &["labelSelector"]), sink);
    selector(term.namespace_selector.as_ref(), &key(at, &["namespaceSelector"]), sink);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operators {
    OfLabels,
    OfNodes,
}

fn requirement(
    label: &str,
    operator: &str,
    values: usize,
    operators: Operators,
    at: &[Step],
    sink: &mut Sink<'_>,
) {
    let supported: &[&str] = match operators {
        Operators::OfLabels => &["In", "NotIn", "Exists", "DoesNotExist"],
        Operators::OfNodes => &["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"],
    };
    if !supported.contains(&operator) {
        sink.add(&key(at, &["operator"]), unsupported(operator, supported));
    } else if matches!(operator, "In" | "NotIn") && values == 0 {
        let what = "Required value: must be specified when `operator` is 'In' or 'NotIn'";
        sink.add(&key(at, &["values"]), what);
    } else if matches!(operator, "Exists" | "DoesNotExist") && values > 0 {
        let what = "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
        sink.add(&key(at, &["values"]), what);
    }
    if !is_label_key(label) {
        sink.add(&key(at, &["key"]), invalid(label, "must be a label key"));
    }
}

fn selector(selector: Option<&LabelSelector>, at: &[Step], sink: &mut Sink<'_>) {
    let expressions = selector.and_then(|selector| selector.match_expressions.as_ref());
    for (i, found) in expressions.into_iter().flatten().enumerate() {
        let at = index(at, "matchExpressions", i);
        let count = found.values.as_ref().map_or(0, Vec::len);
        requirement(&found.key, &found.operator, count, Operators::OfLabels, &at, sink);
    }
}

fn template(
    template: Option<&core::v1::PodTemplateSpec>,
    of_set: Option<&LabelSelector>,
    at: &[Step],
    sink: &mut Sink<'_>,
) {
    let Some(template) = template else {
        sink.add(at, REQUIRED);
        return;
    };
    match &template.spec {
        Some(spec) => pod_spec(spec, &key(at, &["spec"]), sink),
        None => sink.add(&key(at, &["spec"]), REQUIRED),
    }
    let own = template.metadata.as_ref().and_then(|meta| meta.labels.as_ref());
    labels(own, &key(at, &["metadata", "labels"]), sink);
    let wanted = of_set.and_then(|selector| selector.match_labels.as_ref());
    let is_selected = wanted
        .into_iter()
        .flatten()
        .all(|(label, value)| own.and_then(|own| own.get(label)) == Some(value));
    if !is_selected {
        let what = "Invalid value: `selector` does not match template `labels`";
        sink.add(&key(at, &["metadata", "labels"]), what);
    }
}

/// The common part of the controllers whose selector is required.
fn set(
    meta: &ObjectMeta,
    of_set: &LabelSelector,
    pods: Option<&core::v1::PodTemplateSpec>,
    sink: &mut Sink<'_>,
) {
    name(meta, sink);
    let at = place(&["spec", "selector"]);
    if of_set.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
        && of_set.match_expressions.as_ref().is_none_or(Vec::is_empty)
    {
        sink.add(&at, "Required value: a selector that selects pods");
    }
    selector(Some(of_set), &at, sink);
    template(pods, Some(of_set), &place(&["spec", "template"]), sink);
}

/// Whether a specification is optional depends on the version of Kubernetes.
fn required<'a, T>(spec: impl Into<Option<&'a T>>) -> Option<&'a T> {
    spec.into()
}

fn no_spec(meta: &ObjectMeta, sink: &mut Sink<'_>) {
    name(meta, sink);
    sink.add(&place(&["spec"]), REQUIRED);
}

pub(super) fn deployment(found: &apps::v1::Deployment, sink: &mut Sink<'_>) {
    let spec = required::<apps::v1::DeploymentSpec>(&found.spec);
    let Some(spec) = spec else { return no_spec(&found.metadata, sink) };
    not_negative(spec.replicas, &place(&["spec", "replicas"]), sink);
    set(&found.metadata, &spec.selector, Some(&spec.template), sink);
}

pub(super) fn replica_set(found: &apps::v1::ReplicaSet, sink: &mut Sink<'_>) {
    let spec = required::<apps::v1::ReplicaSetSpec>(&found.spec);
    let Some(spec) = spec else { return no_spec(&found.metadata, sink) };
    not_negative(spec.replicas, &place(&["spec", "replicas"]), sink);
    set(&found.metadata, &spec.selector, spec.template.as_ref(), sink);
}

pub(super) fn stateful_set(found: &apps::v1::StatefulSet, sink: &mut Sink<'_>) {
    let spec = required::<apps::v1::StatefulSetSpec>(&found.spec);
    let Some(spec) = spec else { return no_spec(&found.metadata, sink) };
    not_negative(spec.replicas, &place(&["spec", "replicas"]), sink);
    let start = spec.ordinals.as_ref().and_then(|ordinals| ordinals.start);
    not_negative(start, &place(&["spec", "ordinals", "start"]), sink);
    set(&found.metadata, &spec.selector, Some(&spec.template), sink);
}

pub(super) fn daemon_set(found: &apps::v1::DaemonSet, sink: &mut Sink<'_>) {
    let spec = required::<apps::v1::DaemonSetSpec>(&found.spec);
    let Some(spec) = spec else { return no_spec(&found.metadata, sink) };
    set(&found.metadata, &spec.selector, Some(&spec.template), sink);
}

pub(super) fn replication_controller(found: &core::v1::ReplicationController, sink: &mut Sink<'_>) {
    let spec = required::<core::v1::ReplicationControllerSpec>(&found.spec);
    let Some(spec) = spec else { return no_spec(&found.metadata, sink) };
    name(&found.metadata, sink);
    not_negative(spec.replicas, &place(&["spec", "replicas"]), sink);
    template(spec.template.as_ref(), None, &place(&["spec", "template"]), sink);
}

/// Checks a job. If `has_default` is set, the restart policy may be absent.
fn job_spec(spec: &batch::v1::JobSpec, has_default: bool, at: &[Step], sink: &mut Sink<'_>) {
    not_negative(spec.parallelism, &key(at, &["parallelism"]), sink);
    not_negative(spec.completions, &key(at, &["completions"]), sink);
    let at = key(at, &["template"]);
    template(Some(&spec.template), None, &at, sink);
    let policy = spec.template.spec.as_ref().and_then(|pod| pod.restart_policy.as_deref());
    let is_valid = policy.map_or(has_default, |it| matches!(it, "OnFailure" | "Never"));
    if !is_valid {
        let at = key(&at, &["spec", "restartPolicy"]);
        match policy {
            Some(policy) => sink.add(&at, unsupported(policy, &["OnFailure", "Never"])),
            None => sink.add(&at, "Required value: valid values: OnFailure, Never"),
        }
    }
}

pub(super) fn job(found: &batch::v1::Job, sink: &mut Sink<'_>) {
    let spec = required::<batch::v1::JobSpec>(&found.spec);
    let Some(spec) = spec else { return no_spec(&found.metadata, sink) };
    name(&found.metadata, sink);
    job_spec(spec, false, &place(&["spec"]), sink);
}

pub(super) fn cron_job(found: &batch::v1::CronJob, sink: &mut Sink<'_>) {
    let spec = required::<batch::v1::CronJobSpec>(&found.spec);
    let Some(spec) = spec else { return no_spec(&found.metadata, sink) };
    name(&found.metadata, sink);
    let at = place(&["spec", "jobTemplate", "spec"]);
    match &spec.job_template.spec {
        Some(job) => job_spec(job, false, &at, sink),
        None => sink.add(&at, REQUIRED),
    }
}

pub(super) fn persistent_volume(found: &core::v1::PersistentVolume, sink: &mut Sink<'_>) {
    name(&found.metadata, sink);
    let affinity = found.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    let Some(required) = affinity.and_then(|affinity| affinity.required.as_ref()) else { return };
    let at = place(&["spec", "nodeAffinity", "required"]);
    for (i, term) in required.node_selector_terms.iter().enumerate() {
        node_term(term, &index(&at, "nodeSelectorTerms", i), sink);
    }
}

pub(super) fn budget(found: &policy::v1::PodDisruptionBudget, sink: &mut Sink<'_>) {
    name(&found.metadata, sink);
    let of_pods = found.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    selector(of_pods, &place(&["spec", "selector"]), sink);
    let both = found
        .spec
        .as_ref()
        .filter(|spec| spec.max_unavailable.is_some() && spec.min_available.is_some());
    let policy = found.spec.as_ref().and_then(|spec| spec.unhealthy_pod_eviction_policy.as_deref());
    if let Some(policy) = policy.filter(|it| !matches!(*it, "AlwaysAllow" | "IfHealthyBudget")) {
        let what = unsupported(policy, &["AlwaysAllow", "IfHealthyBudget"]);
        sink.add(&place(&["spec", "unhealthyPodEvictionPolicy"]), what);
    }
    if both.is_some() {
        let what = "Invalid value: minAvailable and maxUnavailable cannot be both set";
        sink.add(&place(&["spec"]), what);
    }
}

/// A field of a custom resource that must not be negative.
fn not_negative_at(root: &Spot<'_>, at: &[Step], sink: &mut Sink<'_>) {
    if let Some(Tree::Integer(number @ ..0)) = root.at(at).map(|spot| &spot.tree) {
        sink.add(at, invalid(&number.to_string(), "must be greater than or equal to 0"));
    }
}

pub(super) fn job_set(root: &Spot<'_>, sink: &mut Sink<'_>) {
    let list = root.get("spec").and_then(|spec| spec.get("replicatedJobs"));
    let Some(Tree::List(jobs)) = list.map(|list| &list.tree) else {
        sink.add(&place(&["spec", "replicatedJobs"]), REQUIRED);
        return;
    };
    for i in 0..jobs.len() {
        let at = index(&place(&["spec"]), "replicatedJobs", i);
        not_negative_at(root, &key(&at, &["replicas"]), sink);
        let at = key(&at, &["template"]);
        let read: Option<batch::v1::JobTemplateSpec> = sink.read(&at);
        if let Some(spec) = read.and_then(|template| template.spec) {
            // The set's webhook sets OnFailure.
            job_spec(&spec, true, &key(&at, &["spec"]), sink);
        }
    }
}

pub(super) fn leader_worker_set(root: &Spot<'_>, sink: &mut Sink<'_>) {
    not_negative_at(root, &place(&["spec", "replicas"]), sink);
    let of_group = place(&["spec", "leaderWorkerTemplate"]);
    not_negative_at(root, &key(&of_group, &["size"]), sink);
    for field in ["leaderTemplate", "workerTemplate"] {
        let at = key(&of_group, &[field]);
        let read: Option<core::v1::PodTemplateSpec> = sink.read(&at);
        if let Some(read) = read {
            template(Some(&read), None, &at, sink);
        }
    }
}
