//! Reads the constraints of a pod on nodes and other pods: affinity, tolerations and topology spread.

use std::collections::HashSet;

use super::error::{Path, ReadError};
use super::node::{name, optional, taint_effect};
use super::selector::{label_selector, names, node_selector, node_selector_term};
use super::wire::Text;
use super::wire_pod as wire;
use portolan::model::{
    LabelSelector, Labels, Name, NodeAffinity, Operator, PodAffinity, PodAffinityTerm,
    PreferredSchedulingTerm, Requirement, Toleration, TolerationOperator, TopologySpreadConstraint,
    UnsatisfiableAction, WeightedPodAffinityTerm,
};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// The pod's own data, from which its terms are completed.
pub(super) struct Own<'p> {
    pub(super) namespace: &'p Name,
    pub(super) labels: &'p Labels,
}

pub(super) fn node_affinity(affinity: &wire::NodeAffinity<'_>) -> NodeAffinity {
    NodeAffinity {
        required: affinity
            .required_during_scheduling_ignored_during_execution
            .as_ref()
            .map(node_selector),
        preferred: affinity
            .preferred_during_scheduling_ignored_during_execution
            .iter()
            .map(|term| PreferredSchedulingTerm {
                weight: term.weight.unwrap_or_default(),
                preference: node_selector_term(&term.preference),
            })
            .collect(),
    }
}

pub(super) fn pod_affinity(
    affinity: &wire::PodAffinity<'_>,
    own: &Own<'_>,
    path: &Path<'_>,
) -> Result<PodAffinity, ReadError> {
    let required = path.key(REQUIRED);
    let preferred = path.key(PREFERRED);
    Ok(PodAffinity {
        required: affinity
            .required_during_scheduling_ignored_during_execution
            .iter()
            .enumerate()
            .map(|(i, term)| pod_affinity_term(term, own, &required.index(i)))
            .collect::<Result<_, _>>()?,
        preferred: affinity
            .preferred_during_scheduling_ignored_during_execution
            .iter()
            .enumerate()
            .map(|(i, weighted)| {
                let path = preferred.index(i);
                let term = pod_affinity_term(
                    &weighted.pod_affinity_term,
                    own,
                    &path.key("podAffinityTerm"),
                )?;
                Ok(WeightedPodAffinityTerm { weight: weighted.weight.unwrap_or_default(), term })
            })
            .collect::<Result<_, _>>()?,
    })
}

fn pod_affinity_term(
    term: &wire::PodAffinityTerm<'_>,
    own: &Own<'_>,
    path: &Path<'_>,
) -> Result<PodAffinityTerm, ReadError> {
    let selector = label_selector(term.label_selector.as_ref(), &path.key("labelSelector"))?;
    let selector = merge_keys(selector, &term.match_label_keys, Operator::In, own.labels);
    let selector = merge_keys(selector, &term.mismatch_label_keys, Operator::NotIn, own.labels);
    let namespaces = if term.namespaces.is_empty() && term.namespace_selector.is_none() {
        [own.namespace.clone()].into()
    } else {
        names(&term.namespaces).collect()
    };
    Ok(PodAffinityTerm {
        topology_key: name(&term.topology_key),
        selector,
        namespaces,
        namespace_selector: label_selector(
            term.namespace_selector.as_ref(),
            &path.key("namespaceSelector"),
        )?,
    })
}

/// `applyMatchLabelKeysAndMismatchLabelKeys`: adds a requirement on the pod's own value for each key that the pod has.
///
/// A stored pod already has these requirements, and keeps the values that it had at creation. The API server rejects
/// explicit requirements on such keys, so an existing one was merged before.
fn merge_keys(
    selector: LabelSelector,
    keys: &[Text<'_>],
    operator: Operator,
    own: &Labels,
) -> LabelSelector {
    let LabelSelector::All(requirements) = selector else { return LabelSelector::Nothing };
    if keys.is_empty() {
        return LabelSelector::All(requirements);
    }
    let mut requirements = Vec::from(requirements);
    let with_operator = requirements.iter().filter(|r| r.operator == operator);
    let mut merged: HashSet<Name> = with_operator.map(|r| r.key.clone()).collect();
    for key in keys {
        if let Some(value) = own.get(key).filter(|_| merged.insert(Name::from(&**key))) {
            requirements.push(Requirement::new(&**key, operator, [value]));
        }
    }
    LabelSelector::All(requirements.into())
}

pub(super) fn toleration(
    toleration: &wire::Toleration<'_>,
    path: &Path<'_>,
) -> Result<Toleration, ReadError> {
    Ok(Toleration {
        key: optional(&toleration.key),
        operator: match &*toleration.operator {
            "" | "Equal" => TolerationOperator::Equal,
            "Exists" => TolerationOperator::Exists,
            "Lt" | "Gt" => TolerationOperator::Numeric,
            other => {
                let expected = "one of Equal, Exists, Lt, Gt";
                return Err(ReadError::value(&path.key("operator"), other, expected));
            }
        },
        value: optional(&toleration.value),
        effect: taint_effect(&toleration.effect, path)?,
    })
}

pub(super) fn topology_spread(
    constraint: &wire::TopologySpreadConstraint<'_>,
    path: &Path<'_>,
) -> Result<TopologySpreadConstraint, ReadError> {
    let policy = |text: &str, field: &str, default: bool| match text {
        "" => Ok(default),
        "Honor" => Ok(true),
        "Ignore" => Ok(false),
        other => Err(ReadError::value(&path.key(field), other, "one of Honor, Ignore")),
    };
    Ok(TopologySpreadConstraint {
        max_skew: constraint.max_skew.unwrap_or_default(),
        topology_key: name(&constraint.topology_key),
        when_unsatisfiable: match &*constraint.when_unsatisfiable {
            "DoNotSchedule" => UnsatisfiableAction::DoNotSchedule,
            "ScheduleAnyway" => UnsatisfiableAction::ScheduleAnyway,
            other => {
                let expected = "one of DoNotSchedule, ScheduleAnyway";
                return Err(ReadError::value(&path.key("whenUnsatisfiable"), other, expected));
            }
        },
        selector: label_selector(constraint.label_selector.as_ref(), &path.key("labelSelector"))?,
        min_domains: *constraint.min_domains,
        honor_node_affinity: policy(&constraint.node_affinity_policy, "nodeAffinityPolicy", true)?,
        honor_node_taints: policy(&constraint.node_taints_policy, "nodeTaintsPolicy", false)?,
        match_label_keys: names(&constraint.match_label_keys).collect(),
    })
}
