//! The verdict on a binding of another scheduler, and the evidence for it.

use std::fmt;
use std::time::Duration;

use portolan::model::{Name, Uid};
use portolan::plugin::NodeScore;

/// How a binding of another scheduler compares with portolan's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Verdict {
    /// The node is the only one with the highest score.
    Agreed,
    /// The node is one of several with the highest score. kube-scheduler chooses one of them at random.
    Tied,
    /// Another node has a higher score, but a failed attempt had nominated the pod to its node, where it passes the
    /// filters, so nodes were not scored.
    Nominated,
    /// Another node has a higher score, but the scheduler scores a part of the nodes (`percentageOfNodesToScore`), and
    /// on the state right before the binding, a part of this size exists in which the node is the best one. This does
    /// not show that the scheduler scored such a part. Such a part exists for each feasible node that is not among the
    /// last ones, so compare [`Judgement::rank`].
    Sampled,
    /// The node is among the best ones on another state, which the scheduler may have seen: [`Judgement::state`].
    Concurrent,
    /// The node passes the filters, another node has a higher score, and no other class explains it.
    Disagreed,
    /// A filter rejects the node, and no other class explains it.
    Infeasible,
    /// The pod cannot be judged, because a plugin failed or because it uses resource claims.
    Undecided,
}

impl Verdict {
    /// All verdicts, in the order of their declaration.
    pub const ALL: [Verdict; 8] = [
        Verdict::Agreed,
        Verdict::Tied,
        Verdict::Nominated,
        Verdict::Sampled,
        Verdict::Concurrent,
        Verdict::Disagreed,
        Verdict::Infeasible,
        Verdict::Undecided,
    ];

    /// Returns the name in reports and metrics, such as `agreed`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Agreed => "agreed",
            Verdict::Tied => "tied",
            Verdict::Nominated => "nominated",
            Verdict::Sampled => "sampled",
            Verdict::Concurrent => "concurrent",
            Verdict::Disagreed => "disagreed",
            Verdict::Infeasible => "infeasible",
            Verdict::Undecided => "undecided",
        }
    }

    /// Returns whether the node is among the best ones on the state right before the binding.
    #[must_use]
    pub fn is_agreement(self) -> bool {
        matches!(self, Verdict::Agreed | Verdict::Tied)
    }

    /// Returns whether portolan would have decided otherwise and nothing explains it.
    #[must_use]
    pub fn is_unexplained(self) -> bool {
        matches!(self, Verdict::Disagreed | Verdict::Infeasible)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A feasible node with its scores.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeTotal {
    /// The node.
    pub node: Name,
    /// The sum of the weighted scores.
    pub total: i64,
    /// The score of each plugin that scores the pod.
    pub scores: Vec<NodeScore>,
}

/// How a state differs from the one right before the binding. Pods are written as `namespace/name`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OtherState {
    /// The time by which the state is earlier, if it is the one before another change.
    pub earlier: Option<Duration>,
    /// Whether nodes and objects other than pods are those at the end of the window.
    pub is_later: bool,
    /// Pods that were bound later and are counted on their nodes.
    pub put_in: Vec<Name>,
    /// Pods that were bound before and are not counted.
    pub left_out: Vec<Name>,
}

/// The number of pods of each list that are named.
const WRITTEN: usize = 3;

impl fmt::Display for OtherState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if let Some(earlier) = self.earlier {
            parts.push(format!("{} ms earlier", earlier.as_millis()));
        }
        if self.is_later {
            parts.push("with later changes of nodes and objects".to_owned());
        }
        for (what, pods) in [("with", &self.put_in), ("without", &self.left_out)] {
            if !pods.is_empty() {
                let named = pods.iter().take(WRITTEN).map(|pod| &**pod).collect::<Vec<_>>();
                let more = match pods.len().saturating_sub(WRITTEN) {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                parts.push(format!("{what} {}{more}", named.join(", ")));
            }
        }
        f.write_str(&parts.join(", "))
    }
}

/// The comparison of one binding. Scores and counts of nodes refer to the state right before the binding.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Judgement {
    /// The pod's namespace.
    pub namespace: Name,
    /// The pod's name.
    pub name: Name,
    /// The pod's uid.
    pub uid: Uid,
    /// `metadata.resourceVersion` of the pod with its node, which orders bindings as the API server did.
    pub resource_version: u64,
    /// The scheduler's name (`spec.schedulerName`).
    pub scheduler: Name,
    /// The node to which the scheduler bound the pod.
    pub node: Name,
    /// The verdict.
    pub verdict: Verdict,
    /// The state on which the node is among the best ones, for [`Verdict::Concurrent`].
    pub state: Option<OtherState>,
    /// The number of nodes.
    pub nodes: usize,
    /// The number of feasible nodes.
    pub feasible: usize,
    /// The number of nodes with the highest score.
    pub best_nodes: usize,
    /// The rank of the scheduler's node by score: the number of feasible nodes with a higher score, plus 1. `None` if
    /// the node is not feasible.
    pub rank: Option<usize>,
    /// The scores of the scheduler's node, if it is feasible.
    pub theirs: Option<NodeTotal>,
    /// The scores of a node with the highest score: the scheduler's node if it is one of them, else the first one by
    /// name. `None` if no node is feasible.
    pub best: Option<NodeTotal>,
    /// Why the scheduler's node is rejected, or why the pod cannot be judged.
    pub reason: Option<String>,
    /// The time from the first sight of the pending pod to the sight of its binding. `None` if the pod was pending
    /// before the shadow started.
    pub waited: Option<Duration>,
    /// The time that portolan's own decision took on this state.
    pub decision: Duration,
}
