//! The changes that would make a pod fit, each verified by running the filters on all nodes.

use std::collections::HashSet;
use std::time::Instant;

use portolan::model::Name;

use super::steps::{Step, steps};
use super::trial::{Rejection, Trial};
use super::{evictions, requests};

/// A change, or two together, and the nodes that the pod then fits on.
#[derive(Clone, Debug)]
pub(super) struct Change {
    /// The kind of change, or of both.
    pub(super) kinds: Vec<&'static str>,
    /// The change as an instruction, or both.
    pub(super) steps: Vec<String>,
    /// The nodes that the pod fits on after the change.
    pub(super) nodes: Vec<Name>,
    /// Whether these are all such nodes: false if the time was too short to try every node.
    pub(super) is_complete: bool,
    /// Objections to the change.
    pub(super) notes: Vec<String>,
}

/// The changes found.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// The changes that help most nodes come first, but evictions last.
    pub(super) all: Vec<Change>,
    /// Whether pairs of changes were tried, since no single change helps.
    pub(super) are_pairs_tried: bool,
    /// Whether all pairs that may help were tried.
    pub(super) is_complete: bool,
}

impl Change {
    pub(super) fn single(kind: &'static str, what: String, nodes: Vec<Name>) -> Change {
        let (kinds, steps) = (vec![kind], vec![what]);
        Change { kinds, steps, nodes, is_complete: true, notes: Vec::new() }
    }

    /// The instructions in one text.
    pub(super) fn what(&self) -> String {
        self.steps.join("; and ")
    }
}

/// Finds single changes, and pairs of changes if there are none. Evictions and pairs are tried
/// until the deadline.
pub(super) fn find(trial: Trial<'_>, deadline: Instant) -> Changes {
    let rejections = trial.rejections();
    let all = singles(trial, &rejections, deadline);
    if !all.is_empty() {
        return Changes { all, are_pairs_tried: false, is_complete: true };
    }
    let (mut all, is_complete) = pairs(trial, &rejections, deadline);
    sort(&mut all);
    Changes { all, are_pairs_tried: true, is_complete }
}

fn sort(changes: &mut [Change]) {
    let is_eviction = |change: &Change| change.kinds.contains(&"evict");
    changes.sort_by_key(|change| (is_eviction(change), std::cmp::Reverse(change.nodes.len())));
}

fn singles(trial: Trial<'_>, rejections: &[Rejection<'_>], deadline: Instant) -> Vec<Change> {
    let mut all: Vec<Change> = Vec::new();
    for step in steps(trial, rejections) {
        let nodes = step.apply(trial).fitting();
        // A larger change must help more nodes than the parts of it.
        let is_part = |change: &Change| change.kinds == ["label"] && step.kind == "node-affinity";
        let most = all.iter().filter(|change| is_part(change)).map(|change| change.nodes.len());
        if nodes.len() > most.max().unwrap_or(0) {
            all.push(Change::single(step.kind, step.what(&nodes), nodes));
        }
    }
    all.extend(requests::changes(trial, rejections));
    all.extend(evictions::change(trial, rejections, deadline));
    sort(&mut all);
    all
}

/// Pairs of changes, and whether all were tried: after each change, the single changes that
/// help then.
fn pairs(trial: Trial<'_>, rejections: &[Rejection<'_>], deadline: Instant) -> (Vec<Change>, bool) {
    let mut all = Vec::new();
    let mut known: HashSet<[String; 2]> = HashSet::new();
    for first in steps(trial, rejections) {
        if Instant::now() >= deadline {
            return (all, false);
        }
        let then = first.apply(trial);
        for second in singles(then, &then.rejections(), deadline) {
            let pair = pair(&first, second);
            let mut key = [pair.steps[0].clone(), pair.steps[1].clone()];
            key.sort();
            if known.insert(key) {
                all.push(pair);
            }
        }
    }
    (all, true)
}

fn pair(first: &Step, second: Change) -> Change {
    let Change { kinds, steps, nodes, .. } = &second;
    Change {
        kinds: [&[first.kind], &kinds[..]].concat(),
        steps: [&[first.what(nodes)], &steps[..]].concat(),
        ..second
    }
}
