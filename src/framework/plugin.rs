//! The traits of plugins.

use std::cmp::Ordering;
use std::time::Duration;

use crate::model::{Name, Pod};
use crate::snapshot::{Chunk, Cluster, Column, Freed, NodeInfo, lanes};

use super::{
    ClusterEvent, Code, Cycle, Diagnosis, Hint, Interest, Point, QueuedPod, Reasons, Status,
    dispatch,
};

/// What a plugin answers to a pod before any node is looked at.
pub enum PreFilter<'a> {
    /// It has nothing to say of this pod: its filter is left out.
    Skip,
    /// It judges each node.
    Filter(Box<dyn Filter + 'a>),
    /// It judges these nodes, and no other node will do.
    Only(Vec<Name>, Box<dyn Filter + 'a>),
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

/// To which node a pod is nominated after [`Plugin::post_filter`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Nomination {
    /// To the one that it was nominated to, if any (`ModeNoop`).
    #[default]
    Keep,
    /// To none.
    Clear,
    /// To this one.
    Node(Name),
}

/// Whether a pod may be bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    /// It may.
    Allow,
    /// It is to wait to be allowed, this long at most and never longer than 15
    /// minutes; see [`WaitingPods`](super::WaitingPods).
    Wait(Duration),
}

/// Whether a plugin has something to do before a pod is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreFlight {
    /// It has.
    Work,
    /// It has not: its [`Plugin::pre_bind`] is left out.
    Skip,
}

/// What a plugin did for a pod that is to be bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bind {
    /// It bound the pod.
    Bound,
    /// It leaves the pod to the next plugin.
    Skip,
}

/// A plugin: shared by threads, stateless between pods unless it says otherwise.
///
/// It is asked at the extension points that it names, and need not care for the
/// others. Success is `Ok`; a status is a rejection if its code is one
/// ([`Code::is_rejection`](super::Code::is_rejection)) and an error that ends the
/// cycle if not. A panic counts as an error ([`Panics`](super::Panics)).
pub trait Plugin: Send + Sync {
    /// Its name, as in kube-scheduler's configuration.
    fn name(&self) -> &'static str;

    /// The extension points that it has something for. A plugin with
    /// [`Point::Filter`] or [`Point::Score`] is asked for its filter or score by
    /// [`Plugin::pre_filter`] and [`Plugin::pre_score`], whether or not it names
    /// those points, too.
    fn points(&self) -> &'static [Point];

    /// Whether what it says of a node follows from the node and from the pod's
    /// template alone: not from other nodes, other objects, or time. Its verdicts,
    /// and its scores where they need no normalising, are then kept until the
    /// node changes. A pod that names its node is left out of this.
    fn is_local(&self) -> bool {
        false
    }

    /// Whether pods of a [`PodGroup`](crate::model::PodGroup) are to be tried together:
    /// the queue hands them out so, and counts them
    /// ([`Handle::pod_groups`](super::Handle::pod_groups)), if any plugin of the
    /// profile says that.
    fn gathers_groups(&self) -> bool {
        false
    }

    /// Whether the pod may queue.
    fn pre_enqueue(&self, _pod: &Pod) -> Result<(), Status> {
        Ok(())
    }

    /// Which of two pods is tried first: `Less` for the first one.
    fn compare(&self, _one: &QueuedPod, _other: &QueuedPod) -> Ordering {
        Ordering::Equal
    }

    /// A key that orders pods as [`Plugin::compare`] does: equal keys where that
    /// says `Equal`. With it a queue compares numbers and calls nobody. A plugin has
    /// one for every pod, or for none.
    fn sort_key(&self, _pod: &QueuedPod) -> Option<[i64; 2]> {
        None
    }

    /// Which events may make a pod schedulable that it rejected, or let one queue
    /// that it gated (`EventsToRegister`). On any other event the pod is left alone.
    fn events(&self) -> &'static [Interest] {
        Interest::EVERYTHING
    }

    /// Whether one of those events may make this pod schedulable, which it rejected
    /// (`QueueingHintFn`). The version contains the event. O(1), or the queue pays it
    /// for each pod that waits.
    ///
    /// # Errors
    ///
    /// It cannot tell; the pod is tried again then.
    fn queueing_hint(
        &self,
        _pod: &Pod,
        _event: &ClusterEvent<'_>,
        _cluster: &Cluster,
    ) -> Result<Hint, Status> {
        Ok(Hint::Queue)
    }

    /// What it has to filter for this pod. The answer is the pod's own state
    /// for the cycle: computed once, read by any number of threads.
    ///
    /// # Errors
    ///
    /// No node will do. After `UnschedulableAndUnresolvable` no other plugin is
    /// asked; after `Unschedulable` all are, since removing pods may help; any
    /// other code ends the cycle.
    fn pre_filter<'a>(&'a self, _cycle: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        Ok(PreFilter::Skip)
    }

    /// Whether [`Plugin::after_filter`] is to be called. Read once, when the framework is
    /// made.
    fn has_after_filter(&self) -> bool {
        false
    }

    /// Told of the nodes that passed all filters, in every cycle, whether there are none,
    /// one or many, and whether or not nodes are scored afterwards (the `PostFilter` of
    /// Kubernetes 1.17 and of Gödel's framework, which cannot change the nodes). Comes before
    /// [`Plugin::post_filter`] and [`Plugin::pre_score`].
    ///
    /// The nodes are those that were found before the search ended: the nominated or
    /// preferred node alone if it passed, otherwise as many as are enough. The diagnosis
    /// gives the status of any node when it is asked for it, also of one that the search did
    /// not look at.
    ///
    /// # Errors
    ///
    /// Any status ends the cycle.
    fn after_filter(
        &self,
        _cycle: Cycle<'_>,
        _feasible: &Feasible<'_>,
        _diagnosis: &Diagnosis<'_>,
    ) -> Result<(), Status> {
        Ok(())
    }

    /// No node will do: tries to change that, by preemption for one. The status
    /// tells what came of it, none being success.
    ///
    /// Success, an error and `UnschedulableAndUnresolvable` end the round of
    /// plugins; after `Unschedulable` the next one is asked.
    fn post_filter(
        &self,
        _cycle: Cycle<'_>,
        _diagnosis: &Diagnosis<'_>,
    ) -> (Nomination, Option<Status>) {
        (Nomination::Keep, None)
    }

    /// What it has to score for this pod, of the nodes that passed all filters.
    ///
    /// # Errors
    ///
    /// Any status ends the cycle.
    fn pre_score<'a>(
        &'a self,
        _cycle: Cycle<'a>,
        _feasible: &'a Feasible<'a>,
    ) -> Result<PreScore<'a>, Status> {
        Ok(PreScore::Skip)
    }

    /// What it scores with if it is enabled at Score and not at PreScore: then
    /// kube-scheduler's `Score` finds no state of a PreScore. Most plugins compute it
    /// on the spot; a plugin whose PreScore would skip scores 0.
    ///
    /// # Errors
    ///
    /// It cannot score without its PreScore. Any status ends the cycle.
    fn score_alone<'a>(
        &'a self,
        cycle: Cycle<'a>,
        feasible: &'a Feasible<'a>,
    ) -> Result<PreScore<'a>, Status> {
        self.pre_score(cycle, feasible)
    }

    /// The pod is assumed on the node: sets aside what the node does not count.
    ///
    /// # Errors
    ///
    /// The pod cannot be placed there; [`Plugin::unreserve`] is called then.
    fn reserve(&self, _cycle: Cycle<'_>, _node: &Name) -> Result<(), Status> {
        Ok(())
    }

    /// Undoes what [`Plugin::reserve`] did, if it did anything: the pod will not
    /// go there. May be called twice, and without a reserve before it.
    fn unreserve(&self, _cycle: Cycle<'_>, _node: &Name) {}

    /// Whether the pod may be bound now.
    ///
    /// # Errors
    ///
    /// It may not be bound at all.
    fn permit(&self, _cycle: Cycle<'_>, _node: &Name) -> Result<Permit, Status> {
        Ok(Permit::Allow)
    }

    /// The pod is among those that wait for permits now, because this plugin or
    /// another one wants it to. The version may be newer than that of
    /// [`Plugin::permit`], and what came in between may be all that it waits for.
    fn waits(&self, _cycle: Cycle<'_>) {}

    /// Whether there will be anything for [`Plugin::pre_bind`] to do.
    ///
    /// # Errors
    ///
    /// It cannot be told; the code is to be `Error`.
    fn pre_bind_pre_flight(&self, _cycle: Cycle<'_>, _node: &Name) -> Result<PreFlight, Status> {
        Ok(PreFlight::Work)
    }

    /// Makes ready what the pod needs on its node.
    ///
    /// # Errors
    ///
    /// The pod is not bound.
    fn pre_bind(&self, _cycle: Cycle<'_>, _node: &Name) -> Result<(), Status> {
        Ok(())
    }

    /// Binds the pod.
    ///
    /// # Errors
    ///
    /// The pod is not bound.
    fn bind(&self, _cycle: Cycle<'_>, _node: &Name) -> Result<Bind, Status> {
        Ok(Bind::Skip)
    }

    /// The pod is bound.
    fn post_bind(&self, _cycle: Cycle<'_>, _node: &Name) {}
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

    /// The nodes, chunk by chunk.
    pub fn nodes(&self) -> impl Iterator<Item = NodeInfo<'a>> {
        let nodes = self
            .chunks
            .iter()
            .flat_map(|(chunk, mask)| lanes(*mask).map(|lane| self.cluster.node_in(chunk, lane)));
        nodes.flatten()
    }
}

/// The nodes whose scores are normalized, in the order of the scores. Nodes are looked up
/// only when they are asked for.
pub struct ScoredNodes<'a>(Source<'a>);

enum Source<'a> {
    Feasible(&'a Feasible<'a>),
    Listed(&'a [NodeInfo<'a>]),
}

impl<'a> ScoredNodes<'a> {
    pub(super) fn feasible(nodes: &'a Feasible<'a>) -> ScoredNodes<'a> {
        ScoredNodes(Source::Feasible(nodes))
    }

    pub(super) fn listed(nodes: &'a [NodeInfo<'a>]) -> ScoredNodes<'a> {
        ScoredNodes(Source::Listed(nodes))
    }

    /// The nodes, one for each score.
    pub fn iter(&self) -> impl Iterator<Item = NodeInfo<'a>> {
        let (feasible, listed) = match self.0 {
            Source::Feasible(nodes) => (Some(nodes), &[][..]),
            Source::Listed(nodes) => (None, nodes),
        };
        feasible.into_iter().flat_map(Feasible::nodes).chain(listed.iter().copied())
    }
}

/// Which data of a node's pods a verdict depends on: whether preemption can compute the verdict without some of the
/// pods, or has to try it on a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// None: the verdict stays whichever pods go.
    Node,
    /// The number of pods and the sums of their requests: see [`Incremental::filter_without`].
    Amounts,
    /// More than that, visible on a fork. [`Incremental::add_pod`] and [`Incremental::remove_pod`] do not fail, so the
    /// filter need not be told of the pods of a node that other filters reject.
    Pods,
    /// Unknown data: every node is tried on a fork.
    Anything,
}

/// Judges nodes for one pod. [`Filter::filter`] suffices; [`Filter::filter_chunk`] serves large clusters.
pub trait Filter: Send + Sync {
    /// Why the node is rejected; none where it passes. A status whose code is no
    /// rejection ends the cycle.
    fn filter(&self, node: NodeInfo<'_>) -> Option<Status>;

    /// Which of the lanes in `mask` pass: the same answer for 64 nodes at once.
    ///
    /// # Errors
    ///
    /// The status of the first lane with one that is no rejection.
    fn filter_chunk(&self, cluster: &Cluster, chunk: &Chunk, mask: u64) -> Result<u64, Status> {
        let mut passed = mask;
        for lane in lanes(mask) {
            if let Some(status) = cluster.node_in(chunk, lane).and_then(|node| self.filter(node)) {
                if !status.code.is_rejection() {
                    return Err(status);
                }
                passed &= !(1 << lane);
            }
        }
        Ok(passed)
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
    ) -> Result<u64, Status> {
        let passed = self.filter_chunk(cluster, chunk, mask)?;
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
        Ok(passed)
    }

    /// The filter itself, if it implements [`Incremental`]: then preemption need not try every node on a fork.
    fn incremental(&self) -> Option<&dyn Incremental> {
        None
    }
}

/// A [`Filter`] that tells how its verdicts change when pods come to a node and go. All methods are optional; a filter
/// without this trait is taken to read [anything](Reads::Anything).
pub trait Incremental: Filter {
    /// Which pod data of a node its verdict depends on.
    fn reads(&self) -> Reads {
        Reads::Anything
    }

    /// Why the node would be rejected without pods that take `freed` in total: what [`Filter::filter`] returns on a
    /// fork without them. Called only if [`Incremental::reads`] returns [`Reads::Node`] or [`Reads::Amounts`].
    fn filter_without(&self, node: NodeInfo<'_>, _freed: &Freed<'_>) -> Option<Status> {
        self.filter(node)
    }

    /// Whether [`Incremental::filter_without`] returns `None`.
    fn passes_without(&self, node: NodeInfo<'_>, freed: &Freed<'_>) -> bool {
        self.filter_without(node, freed).is_none()
    }

    /// A copy for [`Incremental::add_pod`] and [`Incremental::remove_pod`] to change
    /// (`PreFilterExtensions`). None if verdicts follow from the node that the filter is
    /// given, so that it need not be told of pods that come and go.
    fn extend<'s>(&'s self) -> Option<Box<dyn Incremental + 's>> {
        None
    }

    /// What if this pod were on this node? The node, of a fork, has it already.
    ///
    /// # Errors
    ///
    /// Any status ends the cycle.
    fn add_pod(&mut self, _pod: &Pod, _node: NodeInfo<'_>) -> Result<(), Status> {
        Ok(())
    }

    /// What if this pod were not on this node? The node, of a fork, lacks it
    /// already.
    ///
    /// # Errors
    ///
    /// Any status ends the cycle.
    fn remove_pod(&mut self, _pod: &Pod, _node: NodeInfo<'_>) -> Result<(), Status> {
        Ok(())
    }

    /// The lanes of `rejected`, all of which the filter rejects, that may pass without some of their pods: those whose
    /// status is `Unschedulable`.
    fn resolvable(&self, cluster: &Cluster, chunk: &Chunk, rejected: u64) -> u64 {
        unschedulable(cluster, chunk, rejected, |node| self.filter(node))
    }
}

/// The lanes of `rejected` whose status is `Unschedulable`.
pub(super) fn unschedulable(
    cluster: &Cluster,
    chunk: &Chunk,
    rejected: u64,
    status: impl Fn(NodeInfo<'_>) -> Option<Status>,
) -> u64 {
    each_lane(rejected, |lane| {
        let status = cluster.node_in(chunk, lane).and_then(&status);
        status.is_some_and(|status| status.code == Code::Unschedulable)
    })
}

/// Scores nodes for one pod.
pub trait Score: Send + Sync {
    /// The node's score, before normalisation.
    ///
    /// # Errors
    ///
    /// Any status ends the cycle.
    fn score(&self, node: NodeInfo<'_>) -> Result<i64, Status>;

    /// The scores of the lanes in `mask`: the same answer for 64 nodes at once.
    /// Other lanes of `scores` may be left with anything.
    ///
    /// # Errors
    ///
    /// The status of the first lane with one.
    fn score_chunk(
        &self,
        cluster: &Cluster,
        chunk: &Chunk,
        mask: u64,
        scores: &mut Column<i64>,
    ) -> Result<(), Status> {
        for lane in lanes(mask) {
            if let Some(node) = cluster.node_in(chunk, lane) {
                scores[lane] = self.score(node)?;
            }
        }
        Ok(())
    }

    /// Whether scores need [`Score::normalize`] to be from 0 to 100.
    fn needs_normalize(&self) -> bool {
        false
    }

    /// Brings the scores of all feasible nodes to [`MIN_NODE_SCORE`](super::MIN_NODE_SCORE)
    /// up to [`MAX_NODE_SCORE`](super::MAX_NODE_SCORE) (`NormalizeScore` with its
    /// `NodeScoreList`). The scores are in the order of the nodes. Called only if
    /// [`Score::needs_normalize`] returns true.
    ///
    /// # Errors
    ///
    /// Any status ends the cycle.
    fn normalize(&self, _nodes: &ScoredNodes<'_>, _scores: &mut [i64]) -> Result<(), Status> {
        Ok(())
    }
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

/// Asks once about the lanes of `mask` that share a number: of the first of them, for
/// all. What is answered is put together. Nodes of a chunk are of one zone, and there
/// mostly of one make.
pub(crate) fn each_same(
    numbers: &Column<u32>,
    mask: u64,
    mut answer: impl FnMut(usize, u64) -> u64,
) -> u64 {
    let (mut left, mut answers) = (mask, 0);
    while left != 0 {
        let first = left.trailing_zeros() as usize;
        let same = dispatch::same_number(numbers, numbers[first]) & left;
        answers |= answer(first, same);
        left &= !same;
    }
    answers
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
