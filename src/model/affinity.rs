//! What pods ask of nodes' labels and of each other.

use super::{LabelLookup, LabelSelector, Name, Requirement};

/// One term of a node selector: all its expressions hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct NodeSelectorTerm {
    /// On labels.
    pub match_expressions: Box<[Requirement]>,
    /// On fields: `metadata.name` alone, `In` or `NotIn` with one value.
    pub match_fields: Box<[Requirement]>,
    /// An expression that the API server would have refused (a bad operator, a
    /// number that is none): the term is skipped, as kube-scheduler does.
    pub invalid: bool,
}

impl NodeSelectorTerm {
    /// Whether a node of this name with these labels matches. A term without
    /// any expression matches nothing.
    pub fn matches(&self, name: &str, labels: &(impl LabelLookup + ?Sized)) -> bool {
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

/// A node selector: one of its terms matches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct NodeSelector {
    /// The terms; without any nothing matches.
    pub terms: Box<[NodeSelectorTerm]>,
}

impl NodeSelector {
    /// Whether a node of this name with these labels matches.
    pub fn matches(&self, name: &str, labels: &(impl LabelLookup + ?Sized)) -> bool {
        self.terms.iter().any(|term| term.matches(name, labels))
    }
}

/// A node selector term with a weight.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct PreferredSchedulingTerm {
    /// 1 to 100.
    pub weight: i32,
    /// The term.
    pub preference: NodeSelectorTerm,
}

/// What a pod asks of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct NodeAffinity {
    /// Must match.
    pub required: Option<NodeSelector>,
    /// Should match.
    pub preferred: Box<[PreferredSchedulingTerm]>,
}

/// What a pod asks of the pods in one topology domain.
///
/// `matchLabelKeys` and `mismatchLabelKeys` are merged into the selector by
/// whoever reads the pod, as the API server does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct PodAffinityTerm {
    /// The node label whose value names the domain.
    pub topology_key: Name,
    /// Which pods.
    pub selector: LabelSelector,
    /// In these namespaces: the listed ones, or the pod's own where neither a
    /// list nor a selector is given.
    pub namespaces: Box<[Name]>,
    /// And in namespaces with such labels; `Nothing` where absent.
    pub namespace_selector: LabelSelector,
}

impl PodAffinityTerm {
    /// Whether a pod of this namespace with these labels is meant
    /// (`AffinityTerm.Matches`).
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
    /// 1 to 100.
    pub weight: i32,
    /// The term.
    pub term: PodAffinityTerm,
}

/// Pod affinity, or pod anti-affinity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct PodAffinity {
    /// Must hold.
    pub required: Box<[PodAffinityTerm]>,
    /// Should hold.
    pub preferred: Box<[WeightedPodAffinityTerm]>,
}

/// What happens where a spread constraint cannot be met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum UnsatisfiableAction {
    /// The node is refused.
    DoNotSchedule,
    /// The node scores lower.
    ScheduleAnyway,
}

/// How evenly pods are spread over domains.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct TopologySpreadConstraint {
    /// The greatest difference allowed, at least 1.
    pub max_skew: i32,
    /// The node label whose value names the domain.
    pub topology_key: Name,
    /// What happens where it cannot be met.
    pub when_unsatisfiable: UnsatisfiableAction,
    /// Which pods are counted.
    pub selector: LabelSelector,
    /// At least so many domains; none is 1.
    pub min_domains: Option<i32>,
    /// Only nodes that match the pod's node affinity count (default: yes).
    pub honor_node_affinity: bool,
    /// Only nodes whose taints the pod tolerates count (default: no).
    pub honor_node_taints: bool,
    /// Label keys whose values of the pod itself are added to the selector.
    pub match_label_keys: Box<[Name]>,
}
