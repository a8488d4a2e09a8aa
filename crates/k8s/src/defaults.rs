//! Fills in the defaults of the API server, and reports them.
//!
//! A scheduler does not see a manifest as it was written: defaulting and admission come first. Reading a file therefore
//! returns both the objects as they would have been stored, and a list of all values that were filled in, which a
//! program can print.

use std::fmt;

use super::error::{Path, ReadError};
use super::wire::ResourceRequirements;
use portolan::model::{
    Name, Quantity, Requests, ResourceList, Taint, TaintEffect, Toleration, TolerationOperator,
};

/// A value that was filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defaulted {
    /// The kind, namespace and name of the object: `Pod shop/web-0`.
    pub object: String,
    /// The field: `spec.priority`.
    pub field: String,
    /// The value that was filled in.
    pub value: String,
}

impl fmt::Display for Defaulted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} = {}", self.object, self.field, self.value)
    }
}

/// Whether defaults are filled in, and where they are reported.
pub(super) struct Rules<'r> {
    report: Option<&'r mut Vec<Defaulted>>,
    object: String,
}

impl<'r> Rules<'r> {
    /// Creates the rules for stored objects, which are read as they are.
    pub(super) fn stored() -> Rules<'static> {
        Rules { report: None, object: String::new() }
    }

    /// Creates the rules that fill in defaults and add them to `report`.
    pub(super) fn apply(report: &'r mut Vec<Defaulted>) -> Rules<'r> {
        Rules { report: Some(report), object: String::new() }
    }

    pub(super) fn applies(&self) -> bool {
        self.report.is_some()
    }

    /// Returns the namespace of an object, which defaults to "default".
    pub(super) fn namespace(&self, namespace: &str) -> Name {
        if namespace.is_empty() && self.applies() { "default".into() } else { namespace.into() }
    }

    /// Sets the object of the reports that follow.
    pub(super) fn about(&mut self, kind: &str, namespace: &str, name: &str) {
        if self.applies() {
            self.object = object(kind, namespace, name);
        }
    }

    pub(super) fn note(&mut self, field: impl Into<String>, value: impl fmt::Display) {
        if let Some(report) = &mut self.report {
            report.push(Defaulted {
                object: self.object.clone(),
                field: field.into(),
                value: value.to_string(),
            });
        }
    }
}

pub(super) fn object(kind: &str, namespace: &str, name: &str) -> String {
    if name.is_empty() {
        kind.to_owned()
    } else if namespace.is_empty() {
        format!("{kind} {name}")
    } else {
        format!("{kind} {namespace}/{name}")
    }
}

/// Reads requests and limits. A request that a container does not specify defaults to the limit (`SetDefaults_Pod`).
/// Without defaults, the limits are not read.
pub(super) fn container_resources(
    resources: Option<&ResourceRequirements<'_>>,
    field: &str,
    path: &Path<'_>,
    rules: &mut Rules<'_>,
) -> Result<(ResourceList, ResourceList), ReadError> {
    let mut limits = ResourceList::default();
    let Some(resources) = resources else { return Ok((ResourceList::default(), limits)) };
    let path = path.key("resources");
    let mut requests = super::node::resource_list(&resources.requests, &path.key("requests"))?;
    if rules.applies() && !resources.limits.is_empty() {
        limits = super::node::resource_list(&resources.limits, &path.key("limits"))?;
        for (name, limit) in limits.iter() {
            if requests.get(name).is_none() {
                requests.set(name.clone(), limit);
                rules.note(format!("{field}.resources.requests.{name}"), limit);
            }
        }
    }
    Ok((requests, limits))
}

/// `defaultPodRequests` (KEP-2837): if the pod has limits of its own, its requests default to the aggregate CPU and
/// memory requests of its containers, and then to its limits.
pub(super) fn pod_level_requests(
    requests: &mut Requests,
    limits: &ResourceList,
    rules: &mut Rules<'_>,
) {
    if limits.is_empty() || !rules.applies() {
        return;
    }
    let mut pod_level = requests.pod_level.clone().unwrap_or_default();
    // Huge pages cannot be overcommitted: their request is the limit.
    let from_containers = requests
        .aggregate()
        .iter()
        .filter(|(name, _)| matches!(&***name, "cpu" | "memory"))
        .map(|(name, q)| (name.clone(), q))
        .collect::<Vec<_>>();
    let from_limits = limits
        .iter()
        .filter(|(name, _)| Requests::is_pod_level(name))
        .map(|(name, q)| (name.clone(), q));
    for (name, quantity) in from_containers.into_iter().chain(from_limits) {
        if pod_level.get(&name).is_none() {
            rules.note(format!("spec.resources.requests.{name}"), quantity);
            pod_level.set(name, quantity);
        }
    }
    requests.pod_level = Some(pod_level);
}

/// The admission plugin DefaultTolerationSeconds: a pod tolerates a node that is not ready or unreachable for some
/// time.
pub(super) fn tolerations(tolerations: &mut Vec<Toleration>, rules: &mut Rules<'_>) {
    if !rules.applies() {
        return;
    }
    for key in [Taint::NOT_READY, Taint::UNREACHABLE] {
        let tolerated = tolerations.iter().any(|t| {
            t.key.as_deref().is_none_or(|k| k == key)
                && t.effect.is_none_or(|effect| effect == TaintEffect::NoExecute)
        });
        if !tolerated {
            tolerations.push(Toleration {
                key: Some(key.into()),
                operator: TolerationOperator::Exists,
                value: None,
                effect: Some(TaintEffect::NoExecute),
            });
            rules.note("spec.tolerations", format_args!("{key}:NoExecute"));
        }
    }
}

/// Formats quantities for a report.
pub(super) fn amount(list: &ResourceList) -> String {
    let amounts: Vec<String> =
        list.iter().map(|(name, quantity): (_, Quantity)| format!("{name}={quantity}")).collect();
    amounts.join(",")
}
