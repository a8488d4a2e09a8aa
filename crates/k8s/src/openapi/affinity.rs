//! The affinity, tolerations and topology spread of pods. See [`super`].

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as api_meta;

use super::meta::{list, optional, text, text_map, texts};
use crate::wire::{LabelSelector, List, Requirement, Whole};
use crate::wire_pod as wire;

pub(super) fn affinity(affinity: &api::Affinity) -> wire::Affinity<'_> {
    let pod_affinity = affinity.pod_affinity.as_ref().map(|terms| {
        pod_terms(
            &terms.required_during_scheduling_ignored_during_execution,
            &terms.preferred_during_scheduling_ignored_during_execution,
        )
    });
    let pod_anti_affinity = affinity.pod_anti_affinity.as_ref().map(|terms| {
        pod_terms(
            &terms.required_during_scheduling_ignored_during_execution,
            &terms.preferred_during_scheduling_ignored_during_execution,
        )
    });
    wire::Affinity {
        node_affinity: affinity.node_affinity.as_ref().map(node_affinity),
        pod_affinity,
        pod_anti_affinity,
    }
}

fn node_affinity(affinity: &api::NodeAffinity) -> wire::NodeAffinity<'_> {
    wire::NodeAffinity {
        required_during_scheduling_ignored_during_execution: affinity
            .required_during_scheduling_ignored_during_execution
            .as_ref()
            .map(|selector| wire::NodeSelector {
                node_selector_terms: List(
                    selector.node_selector_terms.iter().map(node_selector_term).collect(),
                ),
            }),
        preferred_during_scheduling_ignored_during_execution: list(
            &affinity.preferred_during_scheduling_ignored_during_execution,
            |term| wire::PreferredSchedulingTerm {
                weight: Whole(Some(term.weight)),
                preference: node_selector_term(&term.preference),
            },
        ),
    }
}

fn node_selector_term(term: &api::NodeSelectorTerm) -> wire::NodeSelectorTerm<'_> {
    wire::NodeSelectorTerm {
        match_expressions: list(&term.match_expressions, node_requirement),
        match_fields: list(&term.match_fields, node_requirement),
    }
}

fn node_requirement(found: &api::NodeSelectorRequirement) -> Requirement<'_> {
    Requirement {
        key: text(&found.key),
        operator: text(&found.operator),
        values: texts(&found.values),
    }
}

fn pod_terms<'a>(
    required: &'a Option<Vec<api::PodAffinityTerm>>,
    preferred: &'a Option<Vec<api::WeightedPodAffinityTerm>>,
) -> wire::PodAffinity<'a> {
    wire::PodAffinity {
        required_during_scheduling_ignored_during_execution: list(required, pod_term),
        preferred_during_scheduling_ignored_during_execution: list(preferred, |weighted| {
            wire::WeightedPodAffinityTerm {
                weight: Whole(Some(weighted.weight)),
                pod_affinity_term: pod_term(&weighted.pod_affinity_term),
            }
        }),
    }
}

fn pod_term(term: &api::PodAffinityTerm) -> wire::PodAffinityTerm<'_> {
    wire::PodAffinityTerm {
        topology_key: text(&term.topology_key),
        label_selector: term.label_selector.as_ref().map(label_selector),
        namespaces: texts(&term.namespaces),
        namespace_selector: term.namespace_selector.as_ref().map(label_selector),
        match_label_keys: texts(&term.match_label_keys),
        mismatch_label_keys: texts(&term.mismatch_label_keys),
    }
}

fn label_selector(selector: &api_meta::LabelSelector) -> LabelSelector<'_> {
    LabelSelector {
        match_labels: text_map(&selector.match_labels),
        match_expressions: list(&selector.match_expressions, |found| Requirement {
            key: text(&found.key),
            operator: text(&found.operator),
            values: texts(&found.values),
        }),
    }
}

pub(super) fn toleration(toleration: &api::Toleration) -> wire::Toleration<'_> {
    wire::Toleration {
        key: optional(&toleration.key),
        operator: optional(&toleration.operator),
        value: optional(&toleration.value),
        effect: optional(&toleration.effect),
        toleration_seconds: Whole(toleration.toleration_seconds),
    }
}

pub(super) fn topology_spread(
    constraint: &api::TopologySpreadConstraint,
) -> wire::TopologySpreadConstraint<'_> {
    wire::TopologySpreadConstraint {
        max_skew: Whole(Some(constraint.max_skew)),
        topology_key: text(&constraint.topology_key),
        when_unsatisfiable: text(&constraint.when_unsatisfiable),
        label_selector: constraint.label_selector.as_ref().map(label_selector),
        min_domains: Whole(constraint.min_domains),
        node_affinity_policy: optional(&constraint.node_affinity_policy),
        node_taints_policy: optional(&constraint.node_taints_policy),
        match_label_keys: texts(&constraint.match_label_keys),
    }
}
