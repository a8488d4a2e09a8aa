//! The changes that would make a pod fit. Each is applied as it is printed, and the pod is evaluated again on all
//! nodes.

use std::collections::HashSet;
use std::time::Instant;

use portolan::model::{Name, UnsatisfiableAction};
use portolan::plugin::Evaluation;

use super::edit::Edit;
use super::propose::edits;
use super::trial::{RejectedNodes, Trial};
use super::{evictions, requests};

/// A change, or two together, and the nodes that the pod then fits on.
#[derive(Clone, Debug)]
pub(super) struct Change {
    /// One edit, or two.
    pub(super) edits: Vec<Edit>,
    /// The nodes that the pod fits on after the change.
    pub(super) nodes: Vec<Name>,
    /// Other nodes for which the same edit also makes the pod fit.
    pub(super) others: Vec<Name>,
    /// Whether all alternatives were tried: false if the time was too short.
    pub(super) is_complete: bool,
    /// Objections to the change.
    pub(super) notes: Vec<String>,
}

/// The changes found.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// The smallest change comes first, and of equal changes the one that helps most nodes.
    pub(super) all: Vec<Change>,
    /// Whether pairs of changes were tried, since no single change helps.
    pub(super) are_pairs_tried: bool,
    /// Whether all nodes and evictions, and all pairs if pairs are tried, were tried within the time limit.
    pub(super) is_complete: bool,
}

impl Change {
    /// The instructions in one text.
    pub(super) fn what(&self) -> String {
        let edits: Vec<String> = self.edits.iter().map(Edit::to_string).collect();
        edits.join("; and ")
    }

    fn cost(&self) -> usize {
        self.edits.iter().map(Edit::cost).sum::<usize>() + 10 * self.notes.len()
    }
}

/// Finds single changes, and pairs of changes if there are none. Evictions, alternatives and pairs are tried until the
/// deadline.
pub(super) fn find(
    trial: Trial<'_>,
    evaluation: &Evaluation,
    rejected: &[RejectedNodes<'_>],
    deadline: Instant,
) -> Changes {
    let rejected = RejectedNodes::in_attempt(evaluation, rejected);
    let (all, is_complete) = singles(trial, &rejected, deadline);
    if !all.is_empty() {
        return Changes { all, are_pairs_tried: false, is_complete };
    }
    let (mut all, are_pairs_complete) = pairs(trial, &rejected, deadline);
    sort(&mut all);
    Changes { all, are_pairs_tried: true, is_complete: is_complete && are_pairs_complete }
}

fn sort(changes: &mut [Change]) {
    changes.sort_by_cached_key(|change| {
        (change.cost(), std::cmp::Reverse(change.nodes.len()), change.what())
    });
}

/// The change if the pod fits on a node after these edits.
pub(super) fn try_edits(trial: Trial<'_>, edits: Vec<Edit>) -> Option<Change> {
    let nodes = fitting(trial, &edits)?;
    let change = Change { edits, nodes, others: Vec::new(), is_complete: true, notes: Vec::new() };
    (!change.nodes.is_empty()).then_some(change)
}

fn fitting(trial: Trial<'_>, edits: &[Edit]) -> Option<Vec<Name>> {
    match edits.split_first() {
        None => Some(trial.fitting()),
        Some((first, others)) => fitting(first.apply(trial)?.trial(trial), others),
    }
}

/// Maximum number of alternative nodes that are tried for an edit of a node.
const ALTERNATIVES: usize = 10;

/// The number of nodes that are edited together first in the search for those that an edit helps. Most often, these
/// suffice; each further time, twice as many are edited.
const EDITED: usize = 128;

/// The change by an edit of the pod, or by an edit of one of the nodes of a proposal that helps; and whether all nodes
/// were tried if none is found.
fn single(trial: Trial<'_>, edit: Edit, deadline: Instant) -> (Option<Change>, bool) {
    let Some(nodes) = edit.nodes() else { return (try_edits(trial, vec![edit]), true) };
    let mut found: Option<Change> = None;
    // The edit of a node can add a domain that keeps the pod from the other nodes.
    let is_alone = trial
        .pod
        .template
        .topology_spread
        .iter()
        .any(|constraint| constraint.when_unsatisfiable == UnsatisfiableAction::DoNotSchedule);
    let cut = |found: Option<Change>| found.map(|found| Change { is_complete: false, ..found });
    let (mut left, mut many) = (nodes, if is_alone { 1 } else { EDITED });
    while !left.is_empty() {
        if is_alone && Instant::now() >= deadline {
            return (cut(found), false);
        }
        let (nodes, others) = left.split_at(many.min(left.len()));
        (left, many) = (others, if is_alone { 1 } else { 2 * many });
        let edited: HashSet<&Name> = nodes.iter().collect();
        let helped = fitting(trial, &[edit.of(nodes)]).unwrap_or_default();
        for node in helped.into_iter().filter(|node| edited.contains(node)) {
            if found.is_some() && Instant::now() >= deadline {
                return (cut(found), true);
            }
            let change = try_edits(trial, vec![edit.of(std::slice::from_ref(&node))]);
            match (&mut found, change) {
                (None, change) => found = change,
                (Some(found), Some(_)) if found.others.len() < ALTERNATIVES => {
                    found.others.push(node);
                }
                (Some(_), None) => {}
                (Some(_), Some(_)) => return (found, true),
            }
        }
    }
    (found, true)
}

/// The single changes that help, and whether all nodes and evictions were tried.
fn singles(
    trial: Trial<'_>,
    rejected: &[RejectedNodes<'_>],
    deadline: Instant,
) -> (Vec<Change>, bool) {
    let (mut all, mut are_all_tried): (Vec<Change>, bool) = (Vec::new(), true);
    for edit in edits(trial, rejected) {
        let (change, is_tried) = single(trial, edit, deadline);
        are_all_tried &= is_tried;
        let Some(change) = change else { continue };
        // A larger change must help more nodes than the parts of it.
        let is_part = |part: &&Change| change.edits[0].includes(&part.edits[0]);
        let most = all.iter().filter(is_part).map(|part| part.nodes.len()).max();
        if change.nodes.len() > most.unwrap_or(0) {
            all.push(change);
        }
    }
    all.extend(requests::changes(trial, rejected));
    let (eviction, is_complete) = evictions::change(trial, rejected, deadline);
    all.extend(eviction);
    sort(&mut all);
    (all, are_all_tried && is_complete)
}

/// Maximum number of nodes on which a pair is tried.
const PAIRED: usize = 3;

/// Pairs of changes, and whether all were tried: after each change, the single changes that
/// help then.
fn pairs(
    trial: Trial<'_>,
    rejected: &[RejectedNodes<'_>],
    deadline: Instant,
) -> (Vec<Change>, bool) {
    let mut all = Vec::new();
    let mut known: HashSet<[String; 2]> = HashSet::new();
    for first in edits(trial, rejected) {
        if Instant::now() >= deadline {
            return (all, false);
        }
        // A proposal for nodes edits all of them here, and only one of them in the pair.
        let Some(edited) = first.apply(trial) else { continue };
        let then = edited.trial(trial);
        let evaluation = then.framework.evaluate(then.cluster, then.pod);
        let rejected = RejectedNodes::of(then, &evaluation);
        let rejected = RejectedNodes::in_attempt(&evaluation, &rejected);
        for second in singles(then, &rejected, deadline).0 {
            let is_edited = |node: &&Name| first.nodes().is_none_or(|nodes| nodes.contains(node));
            let pair = second.nodes.iter().filter(is_edited).take(PAIRED).find_map(|node| {
                let edits = [&[first.of(std::slice::from_ref(node))], &second.edits[..]].concat();
                try_edits(trial, edits)
            });
            let Some(pair) = pair else { continue };
            let mut key = [pair.edits[0].to_string(), pair.edits[1].to_string()];
            key.sort();
            if known.insert(key) {
                let Change { notes, is_complete, .. } = second;
                all.push(Change { notes, is_complete, ..pair });
            }
        }
    }
    // The last proposals may have been left out for lack of time.
    (all, Instant::now() < deadline)
}
