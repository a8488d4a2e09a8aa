//! Namespaces, services, priority and runtime classes.

use super::defaults::Rules;
use super::error::{Cause, Path, ReadError};
use super::node::{labels, name, resource_list};
use super::pod::preemption_policy;
use super::resolve::labeled;
use super::selector::label_selector;
use super::wire::Text;
use super::wire_objects as wire;
use portolan::model::{
    Labels, Name, Namespace, PodDisruptionBudget, PreemptionPolicy, ResourceList, Service,
    Toleration,
};

/// A priority class, to which pods refer by `priorityClassName`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriorityClass {
    /// The name of the class.
    pub name: Name,
    /// The priority of its pods.
    pub value: i32,
    /// Whether pods without a priority class use this one.
    pub global_default: bool,
    /// The preemption policy of its pods.
    pub preemption_policy: Option<PreemptionPolicy>,
}

/// A runtime class: the overhead of its pods beyond their containers, and constraints on their nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeClass {
    /// The name of the class.
    pub name: Name,
    /// The field `overhead.podFixed`.
    pub overhead: Option<ResourceList>,
    /// The field `scheduling.nodeSelector`, which is merged into the node selector of the pods.
    pub node_selector: Labels,
    /// The field `scheduling.tolerations`, which is added to the tolerations of the pods.
    pub tolerations: Vec<Toleration>,
}

/// Returns the name of an object, or an error if it is empty.
pub(super) fn named(text: &Text<'_>, path: &Path<'_>) -> Result<Name, ReadError> {
    if text.is_empty() {
        return Err(ReadError::new(&path.key("metadata").key("name"), Cause::Missing));
    }
    Ok(name(text))
}

pub(super) fn namespace(
    wire: &wire::Bare<'_>,
    path: &Path<'_>,
    rules: &Rules<'_>,
) -> Result<Namespace, ReadError> {
    let meta = wire.metadata.clone().unwrap_or_default();
    let namespace = Namespace { name: named(&meta.name, path)?, labels: labels(&meta.labels) };
    Ok(if rules.applies() { labeled(namespace) } else { namespace })
}

pub(super) fn service(
    wire: &wire::Service<'_>,
    path: &Path<'_>,
    rules: &mut Rules<'_>,
) -> Result<Service, ReadError> {
    let meta = wire.metadata.clone().unwrap_or_default();
    let name = named(&meta.name, path)?;
    let selector = wire.spec.as_ref().map(|spec| labels(&spec.selector)).unwrap_or_default();
    let namespace = rules.namespace(&meta.namespace);
    if meta.namespace.is_empty() {
        rules.about("Service", &namespace, &name);
        rules.note("metadata.namespace", &namespace);
    }
    Ok(Service { namespace, name, selector })
}

pub(super) fn budget(
    wire: &wire::PodDisruptionBudget<'_>,
    path: &Path<'_>,
    rules: &Rules<'_>,
) -> Result<PodDisruptionBudget, ReadError> {
    let meta = wire.metadata.clone().unwrap_or_default();
    let spec = wire.spec.clone().unwrap_or_default();
    let status = wire.status.clone().unwrap_or_default();
    let mut disrupted_pods: Box<[Name]> =
        status.disrupted_pods.iter().map(|(pod, _)| name(pod)).collect();
    // Go iterates over the map in key order.
    disrupted_pods.sort_unstable();
    Ok(PodDisruptionBudget {
        namespace: rules.namespace(&meta.namespace),
        name: named(&meta.name, path)?,
        selector: label_selector(spec.selector.as_ref(), &path.key("spec").key("selector"))?,
        disruptions_allowed: status.disruptions_allowed.unwrap_or(0),
        disrupted_pods,
    })
}

pub(super) fn priority_class(
    wire: &wire::PriorityClass<'_>,
    path: &Path<'_>,
) -> Result<PriorityClass, ReadError> {
    let meta = wire.metadata.clone().unwrap_or_default();
    Ok(PriorityClass {
        name: named(&meta.name, path)?,
        value: wire.value.unwrap_or_default(),
        global_default: wire.global_default.unwrap_or(false),
        preemption_policy: preemption_policy(
            &wire.preemption_policy,
            &path.key("preemptionPolicy"),
        )?,
    })
}

pub(super) fn runtime_class(
    wire: &wire::RuntimeClass<'_>,
    path: &Path<'_>,
) -> Result<RuntimeClass, ReadError> {
    let meta = wire.metadata.clone().unwrap_or_default();
    let overhead_path = path.key("overhead").key("podFixed").to_string();
    let overhead = match &wire.overhead {
        Some(overhead) => {
            let path = Path::Key(&Path::Root, &overhead_path);
            Some(resource_list(&overhead.pod_fixed, &path)?)
        }
        None => None,
    };
    let mut class = RuntimeClass {
        name: named(&meta.name, path)?,
        overhead,
        node_selector: Labels::EMPTY,
        tolerations: Vec::new(),
    };
    if let Some(scheduling) = &wire.scheduling {
        let parent = path.key("scheduling");
        let list_path = parent.key("tolerations");
        class.node_selector = labels(&scheduling.node_selector);
        for (i, toleration) in scheduling.tolerations.iter().enumerate() {
            class.tolerations.push(super::affinity::toleration(toleration, &list_path.index(i))?);
        }
    }
    Ok(class)
}
