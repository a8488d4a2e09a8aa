//! The traits of plugins.

use crate::model::{Name, Pod};
use crate::snapshot::{Chunk, Cluster, Column, NodeInfo, lanes};

use super::{Reasons, Status};

/// What a plugin answers to a pod before any node is looked at.
pub enum PreFilter<'a> {
    /// It has nothing to say of this pod: its filter is left out.
    Skip,
    /// It judges each node.
    Filter(Box<dyn Filter + 'a>),
    /// It judges these nodes, and no other node will do.
    Only(Vec<Name>, Box<dyn Filter + 'a>),
    /// No node will do.
    Reject(Status),
}

/// What a plugin answers to a pod before any node is scored.
pub enum PreScore<'a> {
    /// It does not score this pod.
    Skip,
    /// Every feasible node has this score, normalised already.
    All(i64),
    /// It scores each node.
    Score(Box<dyn Score + 'a>),
}

/// A plugin: stateless between pods, shared by threads.
pub trait Plugin: Send + Sync {
    /// Its name, as in kube-scheduler's configuration.
    fn name(&self) -> &'static str;

    /// Whether what it says of a node follows from the node and from the pod's
    /// template alone: not from other nodes, other objects, or time. Its verdicts,
    /// and its scores where they need no normalising, are then kept until the
    /// node changes. A pod that names its node is left out of this.
    fn is_local(&self) -> bool {
        false
    }

    /// What it has to filter for this pod. The answer is the pod's own state
    /// for the cycle: computed once, read by any number of threads.
    fn pre_filter<'a>(&'a self, _cluster: &'a Cluster, _pod: &'a Pod) -> PreFilter<'a> {
        PreFilter::Skip
    }

    /// What it has to score for this pod, of the nodes that passed all filters.
    fn pre_score<'a>(
        &'a self,
        _cluster: &'a Cluster,
        _pod: &'a Pod,
        _feasible: &'a Feasible<'a>,
    ) -> PreScore<'a> {
        PreScore::Skip
    }
}

/// The nodes that passed all filters, of those that were looked at.
pub struct Feasible<'a> {
    cluster: &'a Cluster,
    chunks: Vec<(&'a Chunk, u64)>,
}

impl<'a> Feasible<'a> {
    /// These lanes of these chunks of the cluster.
    #[must_use]
    pub fn new(cluster: &'a Cluster, chunks: Vec<(&'a Chunk, u64)>) -> Feasible<'a> {
        Feasible { cluster, chunks }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.chunks.iter().map(|(_, mask)| mask.count_ones() as usize).sum()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.chunks.iter().all(|(_, mask)| *mask == 0)
    }

    /// The chunks that have some, each with a mask of their lanes.
    pub fn chunks(&self) -> impl Iterator<Item = (&'a Chunk, u64)> {
        self.chunks.iter().copied()
    }

    /// The nodes, in no particular order.
    pub fn nodes(&self) -> impl Iterator<Item = NodeInfo<'a>> {
        let nodes = self
            .chunks
            .iter()
            .flat_map(|(chunk, mask)| lanes(*mask).map(|lane| self.cluster.node_in(chunk, lane)));
        nodes.flatten()
    }
}

/// Judges nodes for one pod.
pub trait Filter: Send + Sync {
    /// Why the node is rejected; none where it passes.
    fn filter(&self, node: NodeInfo<'_>) -> Option<Status>;

    /// Which of the lanes in `mask` pass: the same answer for 64 nodes at once.
    fn filter_chunk(&self, cluster: &Cluster, chunk: &Chunk, mask: u64) -> u64 {
        each_lane(mask, |lane| {
            cluster.node_in(chunk, lane).is_some_and(|node| self.filter(node).is_none())
        })
    }

    /// The reason that every rejected node gets, where there is but one.
    fn only_reason(&self) -> Option<&'static str> {
        None
    }

    /// Which of the lanes in `mask` pass, as [`Filter::filter_chunk`] says it,
    /// and the reasons of those that do not.
    fn count_reasons(
        &self,
        cluster: &Cluster,
        chunk: &Chunk,
        mask: u64,
        reasons: &mut Reasons,
    ) -> u64 {
        let passed = self.filter_chunk(cluster, chunk, mask);
        let rejected = mask & !passed;
        match self.only_reason() {
            Some(reason) => reasons.add(reason, rejected.count_ones() as usize),
            None => {
                let nodes = lanes(rejected).filter_map(|lane| cluster.node_in(chunk, lane));
                for reason in nodes.filter_map(|node| self.filter(node)).flat_map(|s| s.reasons) {
                    reasons.add(reason, 1);
                }
            }
        }
        passed
    }
}

/// Scores nodes for one pod.
pub trait Score: Send + Sync {
    /// The node's score, before normalisation.
    fn score(&self, node: NodeInfo<'_>) -> i64;

    /// The scores of the lanes in `mask`: the same answer for 64 nodes at once.
    /// Other lanes of `scores` may be left with anything.
    fn score_chunk(&self, cluster: &Cluster, chunk: &Chunk, mask: u64, scores: &mut Column<i64>) {
        each_lane(mask, |lane| {
            if let Some(node) = cluster.node_in(chunk, lane) {
                scores[lane] = self.score(node);
            }
            false
        });
    }

    /// Whether scores need [`Score::normalize`] to be from 0 to 100.
    fn needs_normalize(&self) -> bool {
        false
    }

    /// Brings the scores of all feasible nodes to 0 up to 100. Called only
    /// where [`Score::needs_normalize`] says so.
    fn normalize(&self, _scores: &mut [i64]) {}
}

/// The lanes of `mask` for which `holds`.
pub(crate) fn each_lane(mask: u64, mut holds: impl FnMut(usize) -> bool) -> u64 {
    let mut left = mask;
    let mut held = 0;
    while left != 0 {
        let lane = left.trailing_zeros() as usize;
        left &= left - 1;
        held |= u64::from(holds(lane)) << lane;
    }
    held
}

/// Kube-scheduler's helper (plugins/helper/normalize_score.go): the largest
/// score becomes 100, the others in proportion; `reverse` turns them over.
pub(crate) fn normalize_to_largest(scores: &mut [i64], reverse: bool) {
    let largest = scores.iter().copied().max().unwrap_or(0);
    for score in scores {
        let share = if largest == 0 { 0 } else { *score * 100 / largest };
        *score = match (reverse, largest) {
            (true, _) => 100 - share,
            (false, 0) => *score,
            (false, _) => share,
        };
    }
}
