//! Node selectors and node affinity (nodeaffinity/node_affinity.go).

use super::hints::{self, ClusterEvent, Hint};
use crate::framework::{
    Code, Cycle, Feasible, Filter, Plugin, PluginInfo, Point, PreFilter, PreScore, Reads, Score,
    ScoredNodes, Status, each_lane, each_same, normalize_to_largest,
};
use crate::model::{
    self, HOSTNAME, LabelLookup, Labels, Launcher, Name, NodeSelector, NodeSelectorTerm, Operator,
    Pod, PodSpec, PreferredSchedulingTerm,
};
use crate::snapshot::{Chunk, Cluster, Column, NodeInfo, lanes};

/// Rejects nodes that do not match the pod's node selector or required node affinity, and prefers nodes that match its
/// preferred terms.
#[derive(Clone, Debug, Default)]
pub struct NodeAffinity {
    /// The affinity that applies to every pod in addition to its own (`addedAffinity`).
    pub added: model::NodeAffinity,
}

const NAME: &str = "NodeAffinity";
const ADDED: &str = "node(s) didn't match scheduler-enforced node affinity";
const REASON: &str = "node(s) didn't match Pod's node affinity/selector";

/// The node requirements of a pod.
pub(super) struct Required<'a> {
    added: Option<&'a NodeSelector>,
    selector: &'a Labels,
    affinity: Option<&'a NodeSelector>,
    launcher: Launcher,
    /// Whether all nodes with the same label set get the same verdict.
    by_set: bool,
}

struct Preferred<'a> {
    terms: Vec<&'a PreferredSchedulingTerm>,
    launcher: Launcher,
    by_set: bool,
}

/// Returns whether a term reads the node's name or hostname.
fn is_own(term: &NodeSelectorTerm) -> bool {
    !term.match_fields.is_empty() || term.match_expressions.iter().any(|r| &*r.key == HOSTNAME)
}

/// Returns whether a node matches a pod's selector and required affinity.
pub(super) fn is_required(
    selector: &Labels,
    affinity: Option<&NodeSelector>,
    name: &str,
    labels: &(impl LabelLookup + ?Sized),
) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
        && affinity.is_none_or(|affinity| affinity.matches(name, labels))
}

impl Plugin for NodeAffinity {
    fn info(&self) -> PluginInfo {
        PluginInfo::new(NAME, &[Point::PreFilter, Point::Filter, Point::PreScore, Point::Score])
            .events(hints::nodes::LABELS)
            .local()
    }

    fn queueing_hint(
        &self,
        pod: &Pod,
        event: &ClusterEvent<'_>,
        _: &Cluster,
    ) -> Result<Hint, Status> {
        let Some(node) = hints::nodes::seen(pod.template.launcher, event) else {
            return Ok(Hint::Skip);
        };
        let required = Required::with(&pod.template, self.added.required.as_ref());
        let matches = |node: &model::Node| {
            required.as_ref().is_none_or(|required| {
                required.is_added(&node.name, &node.labels)
                    && required.matches(&node.name, &node.labels)
            })
        };
        Ok(Hint::queue_if(hints::nodes::starts_to_match(&node, matches)))
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        let added = self.added.required.as_ref();
        let Some(filter) = Required::with(&cycle.pod.template, added) else {
            return Ok(PreFilter::Skip);
        };
        match filter.affinity.map(named) {
            Some(Some(names)) if names.is_empty() => Err(Status::new(
                Code::UnschedulableAndUnresolvable,
                NAME,
                "pod affinity terms conflict",
            )),
            Some(Some(names)) => Ok(PreFilter::Only(names, Box::new(filter))),
            _ => Ok(PreFilter::Filter(Box::new(filter))),
        }
    }

    fn pre_score<'a>(
        &'a self,
        cycle: Cycle<'a>,
        _: &'a Feasible<'a>,
    ) -> Result<PreScore<'a>, Status> {
        let pod = cycle.pod;
        let affinity = pod.template.node_affinity.as_ref();
        let own = affinity.map_or(&[][..], |affinity| &*affinity.preferred);
        let terms: Vec<_> = self.added.preferred.iter().chain(own).collect();
        if terms.is_empty() {
            return Ok(PreScore::Skip);
        }
        let by_set = !terms.iter().any(|term| is_own(&term.preference));
        Ok(PreScore::Score(Box::new(Preferred { terms, launcher: pod.template.launcher, by_set })))
    }
}

/// Returns the only nodes that the terms allow by name, or `None` if all names are allowed. Names are intersected
/// within a term and united over terms; one term without names allows all nodes.
fn named(affinity: &NodeSelector) -> Option<Vec<Name>> {
    let mut all: Vec<Name> = Vec::new();
    for term in &affinity.terms {
        let mut names: Option<Vec<Name>> = None;
        let by_name = term
            .match_fields
            .iter()
            .filter(|r| &*r.key == "metadata.name" && r.operator == Operator::In);
        for requirement in by_name {
            names = Some(match names {
                None => requirement.values.to_vec(),
                Some(known) => {
                    known.into_iter().filter(|name| requirement.values.contains(name)).collect()
                }
            });
        }
        all.extend(names?);
    }
    all.sort();
    all.dedup();
    (!affinity.terms.is_empty()).then_some(all)
}

impl Required<'_> {
    /// Returns whether the node matches the added affinity.
    fn is_added(&self, name: &str, labels: &(impl LabelLookup + ?Sized)) -> bool {
        self.added.is_none_or(|added| added.matches(name, labels))
    }

    fn matches(&self, name: &str, labels: &(impl LabelLookup + ?Sized)) -> bool {
        is_required(self.selector, self.affinity, name, labels)
    }
}

impl<'a> Required<'a> {
    /// Returns the requirements of this pod spec itself, or `None` if it has none.
    pub(super) fn of(spec: &'a PodSpec) -> Option<Required<'a>> {
        Required::with(spec, None)
    }

    fn with(spec: &'a PodSpec, added: Option<&'a NodeSelector>) -> Option<Required<'a>> {
        let selector = &spec.node_selector;
        let affinity = spec.node_affinity.as_ref().and_then(|a| a.required.as_ref());
        if selector.is_empty() && affinity.is_none() && added.is_none() {
            return None;
        }
        let mut terms = affinity.into_iter().chain(added).flat_map(|affinity| &affinity.terms);
        let by_set = selector.get(HOSTNAME).is_none() && !terms.any(is_own);
        Some(Required { added, selector, affinity, launcher: spec.launcher, by_set })
    }

    /// Returns the lanes of nodes that match.
    pub(super) fn matching(&self, cluster: &Cluster, chunk: &Chunk, mask: u64) -> u64 {
        if !self.by_set || !cluster.has_columns_for(self.launcher) {
            return each_lane(mask, |lane| {
                cluster.node_in(chunk, lane).is_some_and(|node| self.filter(node).is_none())
            });
        }
        each_same(chunk.label_set(), mask, |lane, all| {
            let labels = cluster.label_set(chunk.label_set()[lane]);
            if self.is_added("", labels) && self.matches("", labels) { all } else { 0 }
        })
    }
}

impl Filter for Required<'_> {
    fn filter(&self, node: NodeInfo<'_>) -> Option<Status> {
        let node = node.node_for(self.launcher);
        let is_added = node.is_some_and(|node| self.is_added(&node.name, &node.labels));
        let matches = node.is_some_and(|node| self.matches(&node.name, &node.labels));
        let reason = match (is_added, matches) {
            (false, _) => ADDED,
            (true, false) => REASON,
            (true, true) => return None,
        };
        Some(Status::new(Code::UnschedulableAndUnresolvable, NAME, reason))
    }

    fn filter_chunk(&self, cluster: &Cluster, chunk: &Chunk, mask: u64) -> Result<u64, Status> {
        Ok(self.matching(cluster, chunk, mask))
    }

    fn only_reason(&self) -> Option<&'static str> {
        self.added.is_none().then_some(REASON)
    }

    fn reads(&self) -> Reads {
        Reads::Node
    }
}

impl Preferred<'_> {
    fn weight(&self, name: &str, labels: &(impl LabelLookup + ?Sized)) -> i64 {
        let matching = self.terms.iter().filter(|term| term.preference.matches(name, labels));
        matching.map(|term| i64::from(term.weight)).sum()
    }
}

impl Score for Preferred<'_> {
    fn score(&self, node: NodeInfo<'_>) -> Result<i64, Status> {
        Ok(node.node_for(self.launcher).map_or(0, |node| self.weight(&node.name, &node.labels)))
    }

    fn score_chunk(
        &self,
        cluster: &Cluster,
        chunk: &Chunk,
        mask: u64,
        scores: &mut Column<i64>,
    ) -> Result<(), Status> {
        if self.by_set && cluster.has_columns_for(self.launcher) {
            each_same(chunk.label_set(), mask, |lane, all| {
                let weight = self.weight("", cluster.label_set(chunk.label_set()[lane]));
                lanes(all).for_each(|lane| scores[lane] = weight);
                0
            });
            return Ok(());
        }
        for lane in lanes(mask) {
            let node = cluster.node_in(chunk, lane).and_then(|node| node.node_for(self.launcher));
            scores[lane] = node.map_or(0, |node| self.weight(&node.name, &node.labels));
        }
        Ok(())
    }

    fn needs_normalize(&self) -> bool {
        true
    }

    fn normalize(&self, _: &ScoredNodes<'_>, scores: &mut [i64]) -> Result<(), Status> {
        normalize_to_largest(scores, false);
        Ok(())
    }
}
