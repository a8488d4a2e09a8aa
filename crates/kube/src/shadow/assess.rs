//! The feasible nodes of a pod on a version, with their scores.

use portolan::Framework;
use portolan::cache::{Cluster, NodeInfo};
use portolan::model::Pod;
use portolan::plugin::{Cycle, CycleState, Feasible, Status, num_feasible_nodes_to_find};

use super::verdict::NodeTotal;

/// How a node compares with the other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// No node has a higher score.
    Best,
    /// No node has a higher score in a sample of the size that kube-scheduler scores.
    BestOfSample,
    /// Feasible, and another node has a higher score.
    Worse,
    /// Rejected by a filter, or unknown.
    Infeasible,
}

/// A pod on a version.
#[derive(Debug)]
pub(super) struct Assessed {
    pub(super) feasible: Vec<NodeTotal>,
    pub(super) standing: Standing,
    /// Why the node is rejected.
    pub(super) reason: Option<String>,
}

impl Assessed {
    pub(super) fn of(&self, node: &str) -> Option<&NodeTotal> {
        self.feasible.iter().find(|one| *one.node == *node)
    }

    /// Returns the number of feasible nodes with a higher score than this one, plus 1.
    pub(super) fn rank(&self, node: &str) -> Option<usize> {
        let total = self.of(node)?.total;
        Some(self.feasible.iter().filter(|one| one.total > total).count() + 1)
    }

    /// Returns the nodes with the highest score.
    pub(super) fn best(&self) -> impl Iterator<Item = &NodeTotal> {
        let highest = self.feasible.iter().map(|one| one.total).max();
        self.feasible.iter().filter(move |one| Some(one.total) == highest)
    }
}

/// Evaluates a pod on all nodes and compares `node` with the others. `percentage` is `percentageOfNodesToScore`.
/// O(nodes × plugins).
///
/// # Errors
///
/// Returns the status of a plugin that failed.
pub(super) fn assess(
    framework: &Framework,
    cluster: &Cluster,
    pod: &Pod,
    node: &str,
    percentage: u8,
) -> Result<Assessed, Status> {
    let state = CycleState::default();
    let cycle = Cycle::new(cluster, pod, &state);
    let filters = framework.pre_filter(cycle);
    let rejected = |status: &Status| Assessed {
        feasible: Vec::new(),
        standing: Standing::Infeasible,
        reason: Some(format!("{}: {status}", status.plugin)),
    };
    if let Some(status) = filters.rejected() {
        return match status.code.is_rejection() {
            true => Ok(rejected(status)),
            false => Err(status.clone()),
        };
    }
    let mut reason = match cluster.node(node) {
        Some(_) => None,
        None => Some("the node is unknown".to_owned()),
    };
    let mut passed = Vec::new();
    for judged in cluster.nodes() {
        match filters.filter_with_nominated(judged) {
            None => passed.push(judged),
            Some(status) if !status.code.is_rejection() => return Err(status),
            Some(status) if **judged.name() == *node => reason = rejected(&status).reason,
            Some(_) => {}
        }
    }
    let feasible = score(framework, cycle, &Feasible::of(cluster, passed))?;
    let mut assessed = Assessed { feasible, standing: Standing::Infeasible, reason };
    let Some(theirs) = assessed.of(node).map(|theirs| theirs.total) else { return Ok(assessed) };
    let enough = num_feasible_nodes_to_find(cluster.len(), percentage);
    assessed.standing = if assessed.best().any(|best| *best.node == *node) {
        Standing::Best
    } else if enough >= assessed.feasible.len() {
        Standing::Worse
    } else if is_best_of_sample(framework, cycle, &assessed.feasible, (node, theirs), enough)? {
        Standing::BestOfSample
    } else {
        Standing::Worse
    };
    Ok(assessed)
}

/// Returns whether a sample of `enough` feasible nodes exists in which no node has a higher score than `node`. Which
/// nodes kube-scheduler samples depends on the timing of its threads, so any sample counts.
///
/// Scores are normalized over the sample, and thus differ from those over all nodes. If the scores over all nodes do
/// not suffice, the most promising sample is therefore scored separately: the node and the nodes with the lowest
/// scores.
fn is_best_of_sample(
    framework: &Framework,
    cycle: Cycle<'_>,
    feasible: &[NodeTotal],
    (node, total): (&str, i64),
    enough: usize,
) -> Result<bool, Status> {
    if feasible.iter().filter(|one| one.total <= total).count() >= enough {
        return Ok(true);
    }
    let mut others: Vec<&NodeTotal> = feasible.iter().filter(|one| *one.node != *node).collect();
    others.sort_by_key(|one| one.total);
    let sample = others.iter().take(enough.saturating_sub(1)).map(|one| &*one.node).chain([node]);
    let sample = sample.filter_map(|name| cycle.cluster.node(name));
    let scored = score(framework, cycle, &Feasible::of(cycle.cluster, sample))?;
    let highest = scored.iter().map(|one| one.total).max();
    Ok(scored.iter().any(|one| *one.node == *node && Some(one.total) == highest))
}

/// Scores these nodes, sorted by name.
fn score<'a>(
    framework: &'a Framework,
    cycle: Cycle<'a>,
    feasible: &'a Feasible<'a>,
) -> Result<Vec<NodeTotal>, Status> {
    let nodes: Vec<NodeInfo<'_>> = feasible.nodes().collect();
    if nodes.is_empty() {
        return Ok(Vec::new());
    }
    let scores = framework.pre_score(cycle, feasible)?.score(&nodes)?;
    let mut scored: Vec<NodeTotal> = nodes
        .iter()
        .zip(scores)
        .map(|(node, scores)| {
            let total = scores.iter().map(|score| score.weighted).sum();
            NodeTotal { node: node.name().clone(), total, scores }
        })
        .collect();
    scored.sort_by(|a, b| a.node.cmp(&b.node));
    Ok(scored)
}
