//! Node affinity, pod affinity and topology spread constraints.

use super::{LabelLookup, LabelSelector, Name, Requirement};

/// One term of a node selector, which matches if all its expressions match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct NodeSelectorTerm {
    /// The requirements on labels.
    pub match_expressions: Box<[Requirement]>,
    /// The requirements on fields: only `metadata.name`, with `In` or `NotIn` and one value.
    pub match_fields: Box<[Requirement]>,
    /// Whether an expression is one that the API server would have refused (an invalid operator, or a value that is not
    /// a number). Like kube-scheduler, the engine skips such a term.
    pub invalid: bool,
}

impl NodeSelectorTerm {
    /// Returns `true` if a node with this name and these labels matches. A term without expressions matches nothing.
    pub(crate) fn matches(&self, name: &str, labels: &(impl LabelLookup + ?Sized)) -> bool {
        struct Fields<'a>(&'a str);
        impl LabelLookup for Fields<'_> {
            fn get(&self, key: &str) -> Option<&str> {
                (key == "metadata.name").then_some(self.0)
            }
        }
        let empty = self.match_expressions.is_empty() && self.match_fields.is_empty();
        !(self.invalid || empty)
            && self.match_expressions.iter().all(|r| r.matches(labels))
            && self.match_fields.iter().all(|r| r.matches(&Fields(name)))
    }
}

/// A node selector, which matches if one of its terms matches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct NodeSelector {
    /// The terms. A selector without terms matches nothing.
    pub terms: Box<[NodeSelectorTerm]>,
}

impl NodeSelector {
    /// Returns `true` if a node with this name and these labels matches.
    pub fn matches(&self, name: &str, labels: &(impl LabelLookup + ?Sized)) -> bool {
        self.terms.iter().any(|term| term.matches(name, labels))
    }
}

/// A node selector term with a weight.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct PreferredSchedulingTerm {
    /// The weight, from 1 to 100.
    pub weight: i32,
    /// The term.
    pub preference: NodeSelectorTerm,
}

/// A pod's affinity to nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct NodeAffinity {
    /// The selector that a node must match.
    pub required: Option<NodeSelector>,
    /// The weighted terms that a node should match.
    pub preferred: Box<[PreferredSchedulingTerm]>,
}

/// One term of a pod's affinity to, or anti-affinity against, the pods in a topology domain.
///
/// Code that reads the pod merges `matchLabelKeys` and `mismatchLabelKeys` into the selector, as the API server does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct PodAffinityTerm {
    /// The node label whose value identifies the topology domain.
    pub topology_key: Name,
    /// Selects pods by their labels.
    pub selector: LabelSelector,
    /// The namespaces of the selected pods. If it is empty and `namespace_selector` is `Nothing`, no pod is selected.
    /// Kubernetes uses the pod's own namespace if a term has neither; the crate `portolan-k8s` adds it when it reads a
    /// pod.
    pub namespaces: Box<[Name]>,
    /// Selects further namespaces by their labels; `Nothing` if absent.
    pub namespace_selector: LabelSelector,
}

impl PodAffinityTerm {
    /// Returns `true` if the term selects a pod with this namespace and these labels (`AffinityTerm.Matches`).
    pub fn matches(
        &self,
        namespace: &str,
        namespace_labels: &(impl LabelLookup + ?Sized),
        labels: &(impl LabelLookup + ?Sized),
    ) -> bool {
        (self.namespaces.iter().any(|n| **n == *namespace)
            || self.namespace_selector.matches(namespace_labels))
            && self.selector.matches(labels)
    }
}

/// A pod affinity term with a weight.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct WeightedPodAffinityTerm {
    /// The weight, from 1 to 100.
    pub weight: i32,
    /// The term.
    pub term: PodAffinityTerm,
}

/// Pod affinity, or pod anti-affinity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct PodAffinity {
    /// The terms that must hold.
    pub required: Box<[PodAffinityTerm]>,
    /// The weighted terms that should hold.
    pub preferred: Box<[WeightedPodAffinityTerm]>,
}

/// The action if a spread constraint cannot be satisfied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum UnsatisfiableAction {
    /// The node is filtered out.
    DoNotSchedule,
    /// The node's score is reduced.
    ScheduleAnyway,
}

/// A constraint on how evenly pods are spread over topology domains.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct TopologySpreadConstraint {
    /// The largest allowed difference between domains, at least 1.
    pub max_skew: i32,
    /// The node label whose value identifies the topology domain.
    pub topology_key: Name,
    /// The action if the constraint cannot be satisfied.
    pub when_unsatisfiable: UnsatisfiableAction,
    /// Selects the pods to count.
    pub selector: LabelSelector,
    /// The minimum number of eligible domains; `None` means 1.
    pub min_domains: Option<i32>,
    /// Whether only nodes that match the pod's node affinity are counted (default: yes).
    pub honor_node_affinity: bool,
    /// Whether only nodes whose taints the pod tolerates are counted (default: no).
    pub honor_node_taints: bool,
    /// The label keys whose values on the incoming pod are added to the selector.
    pub match_label_keys: Box<[Name]>,
}
