//! Why a pod fits on no node, and the verdict of every plugin on every node.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::sync::Arc;

use rayon::prelude::*;

use crate::hash::Keyed;
use crate::model::{Name, Pod};
use crate::snapshot::{Chunk, Cluster, NodeInfo, NodeSlot, Recheck};

use super::filters::{Ask, nodes_of};
use super::rejections::Rejections;
use super::{Code, Cycle, CycleState, Feasible, Framework, NodeScore, Nomination, Status};

/// No node is feasible for the pod: counts the nodes by reason (`framework/types.go` `FitError`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FitError {
    /// The number of nodes in the cluster.
    pub nodes: usize,
    /// The number of nodes that gave each reason. A node may give several reasons.
    pub reasons: BTreeMap<String, usize>,
    /// The status of the plugin that rejected the pod in PreFilter, before any node was examined.
    pub pre_filter: Option<Status>,
    /// The status of PostFilter ([`Plugin::post_filter`]), which tried to make a node feasible, if it returned one.
    ///
    /// [`Plugin::post_filter`]: super::Plugin::post_filter
    pub post_filter: Option<Status>,
    /// The node to which the pod is now nominated.
    pub nomination: Nomination,
    /// The plugins that rejected the pod, on any node (`UnschedulablePlugins`). The pod waits for the events that these
    /// plugins wait for.
    pub unschedulable_plugins: BTreeSet<&'static str>,
    /// The plugins that returned [`Code::Pending`], which wait for an external component to do something for the pod
    /// (`PendingPlugins`).
    pub pending_plugins: BTreeSet<&'static str>,
}

impl FitError {
    /// Creates an error for a cluster of `nodes` nodes, without reasons.
    #[doc(hidden)]
    #[must_use]
    pub fn new(nodes: usize) -> FitError {
        FitError {
            nodes,
            reasons: BTreeMap::new(),
            pre_filter: None,
            post_filter: None,
            nomination: Nomination::Keep,
            unschedulable_plugins: BTreeSet::new(),
            pending_plugins: BTreeSet::new(),
        }
    }

    /// Creates the error of a pod that Reserve or Permit rejected after a node had been chosen.
    #[must_use]
    pub(crate) fn of_node(status: Status) -> FitError {
        let mut error = FitError::new(1);
        error.reasons = status.reasons.iter().map(|reason| (reason.clone(), 1)).collect();
        error.add_plugin(&status);
        error
    }

    /// Adds the plugin that rejected the pod (`AddPluginStatus`).
    pub(super) fn add_plugin(&mut self, status: &Status) {
        if status.plugin.is_empty() {
            return;
        }
        match status.code {
            Code::Pending => self.pending_plugins.insert(status.plugin),
            _ => self.unschedulable_plugins.insert(status.plugin),
        };
    }
}

impl fmt::Display for FitError {
    /// Writes kube-scheduler's message.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0/{} nodes are available:", self.nodes)?;
        if let Some(status) = &self.pre_filter {
            write!(f, " {status}.")?;
        } else {
            let mut reasons: Vec<String> =
                self.reasons.iter().map(|(reason, n)| format!("{n} {reason}")).collect();
            reasons.sort();
            if !reasons.is_empty() {
                write!(f, " {}.", reasons.join(", "))?;
            }
        }
        match &self.post_filter {
            Some(status) if !status.reasons.is_empty() => write!(f, " {status}"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for FitError {}

/// The verdicts of all plugins on all nodes for one pod.
#[derive(Clone, Debug, Default)]
pub struct Evaluation {
    /// Why the pod fits on no node, if it does not.
    pub rejected: Option<FitError>,
    /// Why the pod could not be evaluated: the status of a plugin that failed.
    pub failed: Option<Status>,
    /// The verdict on each node; nodes with equal verdicts share one. If PreFilter rejected the pod, each node has the
    /// status of PreFilter, followed by those of the plugins that accepted the pod and reject the node.
    pub nodes: BTreeMap<Name, Arc<Verdict>>,
}

/// The verdicts of all plugins on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Verdict {
    /// The status of the first plugin that rejects the node, or `None` if the node is feasible.
    pub status: Option<Status>,
    /// The statuses of the remaining plugins that reject the node. Scheduling stops at the first one.
    pub further: Vec<Status>,
    /// The scores of a feasible node, one for each plugin that scores the pod.
    pub scores: Vec<NodeScore>,
}

impl Verdict {
    fn rejection(statuses: Vec<Status>) -> Verdict {
        let mut statuses = statuses.into_iter();
        Verdict { status: statuses.next(), further: statuses.collect(), scores: Vec::new() }
    }

    /// Returns the sum of the weighted scores.
    #[must_use]
    pub fn total(&self) -> i64 {
        self.scores.iter().map(|score| score.weighted).sum()
    }
}

impl Framework {
    /// Returns the status of the first plugin that rejects the node for the pod, or `None` if the node is feasible.
    #[must_use]
    pub fn filter(&self, cluster: &Cluster, pod: &Pod, node: NodeInfo<'_>) -> Option<Status> {
        let state = CycleState::default();
        self.pre_filter(Cycle::new(cluster, pod, &state)).filter_with_nominated(node)
    }

    /// Like [`Framework::filter`] on a node that passed on an earlier version and has not changed since: asks only the
    /// plugins that are not local, unless pods are nominated that take precedence over this one.
    pub(crate) fn filter_again(
        &self,
        cluster: &Cluster,
        pod: &Pod,
        node: NodeInfo<'_>,
    ) -> Option<Status> {
        let state = CycleState::default();
        let filters = self.pre_filter_of(Cycle::new(cluster, pod, &state), Ask::NotLocal);
        match filters.has_nominated() {
            true => self.filter(cluster, pod, node),
            false => filters.filter(node),
        }
    }

    /// Returns for each of these nodes what [`Framework::filter_again`] would, for pods of this pod's template that are
    /// placed one after the other.
    pub(crate) fn filter_each_again(
        &self,
        cluster: &Cluster,
        pod: &Pod,
        nodes: &[NodeSlot],
    ) -> Recheck {
        let state = CycleState::default();
        let filters = self.pre_filter_of(Cycle::new(cluster, pod, &state), Ask::NotLocal);
        match filters.are_local() {
            true => Recheck::Valid,
            false => filters.still_pass(nodes).map_or(Recheck::OneByOne, Recheck::Each),
        }
    }

    /// Asks every plugin about every node, one node at a time, on the threads of rayon's global pool, which must not wait
    /// for this thread. Meant for diagnosis and tests, not for scheduling. O(nodes × plugins).
    #[must_use]
    pub fn evaluate(&self, cluster: &Cluster, pod: &Pod) -> Evaluation {
        let state = CycleState::default();
        let cycle = Cycle::new(cluster, pod, &state);
        let filters = self.pre_filter(cycle);
        let mut evaluation = Evaluation::default();
        if let Some(status) = filters.rejected() {
            if !status.code.is_rejection() {
                evaluation.failed = Some(status.clone());
                return evaluation;
            }
            evaluation.rejected = Some(Rejections::new(&filters).error);
            evaluation.nodes = self.verdicts_after(status, cluster, pod);
            return evaluation;
        }
        let chunks: Vec<&Chunk> = cluster.zones().flat_map(|zone| zone.chunks()).collect();
        let judge = |chunk: &&Chunk| -> ChunkVerdicts {
            let (mut feasible, mut distinct) = (0, Vec::new());
            let nodes = nodes_of(cluster, chunk, chunk.live()).map(|(lane, node)| {
                let statuses = filters.filter_all(node);
                feasible |= u64::from(statuses.is_empty()) << lane;
                let known = distinct.iter().position(|known| *known == statuses);
                let at = known.unwrap_or_else(|| {
                    distinct.push(statuses);
                    distinct.len() - 1
                });
                (node.name().clone(), at)
            });
            ChunkVerdicts { nodes: nodes.collect(), distinct, feasible }
        };
        let judged: Vec<ChunkVerdicts> = chunks.par_iter().map(judge).collect();
        let mut first = judged.iter().flat_map(|of| &of.distinct).filter_map(|of| of.first());
        evaluation.failed = first.find(|status| !status.code.is_rejection()).cloned();
        let feasible = chunks.into_iter().zip(judged.iter().map(|of| of.feasible)).collect();
        let feasible = Feasible::new(cluster, feasible);
        let mut scores = Vec::new();
        if feasible.is_empty() {
            evaluation.rejected = Some(Rejections::new(&filters).error);
        } else {
            let nodes: Vec<NodeInfo<'_>> = feasible.nodes().collect();
            match self.pre_score(cycle, &feasible).and_then(|scores| scores.score(&nodes)) {
                Err(status) => evaluation.failed = Some(status),
                Ok(of_nodes) => scores = of_nodes,
            }
        }
        // The scores are in the order of the feasible nodes in `judged`.
        let mut scores = scores.into_iter();
        let mut shared = Shared::default();
        let mut verdicts = Vec::with_capacity(cluster.len());
        for ChunkVerdicts { nodes, distinct, .. } in judged {
            let rejection = |statuses: Vec<Status>| {
                (!statuses.is_empty()).then(|| shared.verdict(Verdict::rejection(statuses)))
            };
            let rejections: Vec<Option<Arc<Verdict>>> =
                distinct.into_iter().map(rejection).collect();
            verdicts.extend(nodes.into_iter().map(|(name, at)| {
                let scored = || {
                    let scores = scores.next().unwrap_or_default();
                    shared.verdict(Verdict { scores, ..Verdict::default() })
                };
                (name, rejections[at].clone().unwrap_or_else(scored))
            }));
        }
        evaluation.nodes = verdicts.into_iter().collect();
        evaluation
    }

    /// Returns the verdicts on the nodes for a pod that PreFilter rejected with this status: the statuses of PreFilter,
    /// and those of the filters of all plugins that accepted the pod.
    fn verdicts_after(
        &self,
        status: &Status,
        cluster: &Cluster,
        pod: &Pod,
    ) -> BTreeMap<Name, Arc<Verdict>> {
        let mut statuses = vec![status.clone()];
        loop {
            let rejectors = statuses.iter().map(|status| status.plugin).collect();
            let state = CycleState::default();
            let cycle = Cycle::new(cluster, pod, &state);
            let filters = self.pre_filter_of(cycle, Ask::AllBut(&rejectors));
            let is_failed = match filters.rejected() {
                Some(status) if status.code.is_rejection() => {
                    statuses.push(status.clone());
                    continue;
                }
                rejected => rejected.is_some(),
            };
            let mut shared = Shared::default();
            let verdict = |node: NodeInfo<'_>| {
                // After a failure, the filters are not known.
                let of_node = if is_failed { Vec::new() } else { filters.filter_all(node) };
                let statuses = statuses.iter().cloned().chain(of_node).collect();
                (node.name().clone(), shared.verdict(Verdict::rejection(statuses)))
            };
            return cluster.nodes().map(verdict).collect();
        }
    }
}

/// The verdicts on the nodes of a chunk, without scores.
struct ChunkVerdicts {
    /// Each node with the index of its statuses.
    nodes: Vec<(Name, usize)>,
    /// The statuses of the plugins that reject a node; none if it is feasible.
    distinct: Vec<Vec<Status>>,
    /// The lanes of the feasible nodes.
    feasible: u64,
}

/// Distinct verdicts.
#[derive(Default)]
struct Shared(HashSet<Arc<Verdict>, Keyed>);

impl Shared {
    /// The verdict that equals this one.
    fn verdict(&mut self, verdict: Verdict) -> Arc<Verdict> {
        match self.0.get(&verdict) {
            Some(known) => known.clone(),
            None => {
                let verdict = Arc::new(verdict);
                self.0.insert(verdict.clone());
                verdict
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{Config, Engine};
    use crate::framework::Code;
    use crate::model::{VolumeSource, node, pod};

    #[test]
    fn nodes_share_equal_verdicts_and_no_others() {
        let (mut writer, _) = Engine::inline(Config::default());
        for n in 0..300 {
            let made = node(format!("n{n}")).cpu(1_000 * (1 + n % 3)).memory(1 << 30).pods(9);
            writer.add_node(made.build()).expect("accepted");
        }
        let pod = pod("p").cpu(1_500).memory(1 << 20).build();
        let found = Framework::default_profile().evaluate(writer.cluster(), &pod);
        let distinct: HashSet<*const Verdict> = found.nodes.values().map(Arc::as_ptr).collect();
        assert_eq!(distinct.len(), 3);
        for (name, verdict) in &found.nodes {
            let kind: usize = name[1..].parse::<usize>().expect("a number") % 3;
            let first = &found.nodes[&Name::from(format!("n{kind}"))];
            assert!(Arc::ptr_eq(verdict, first), "{name}");
            assert_eq!(verdict.status.is_some(), kind == 0, "{name}");
            // Of cpu, a quarter or half is left, and 99 % of memory.
            let fit = verdict.scores.iter().find(|score| score.plugin == "NodeResourcesFit");
            assert_eq!(fit.map(|score| score.raw), [None, Some(62), Some(74)][kind], "{name}");
        }
        // PreFilter rejects a pod whose claim does not exist.
        let volume = VolumeSource::PersistentVolumeClaim { claim: "none".into(), read_only: false };
        let pod = crate::model::pod("p").cpu(100).volume(volume).build();
        let found = Framework::default_profile().evaluate(writer.cluster(), &pod);
        let distinct: HashSet<*const Verdict> = found.nodes.values().map(Arc::as_ptr).collect();
        assert_eq!((found.nodes.len(), distinct.len()), (300, 1));
    }

    #[test]
    fn the_message_is_kube_schedulers() {
        let mut error = FitError::new(3);
        assert_eq!(error.to_string(), "0/3 nodes are available:");
        error.reasons =
            [("Too many pods".to_owned(), 10), ("Insufficient cpu".to_owned(), 2)].into();
        let text = "0/3 nodes are available: 10 Too many pods, 2 Insufficient cpu.";
        assert_eq!(error.to_string(), text);
        let nowhere = "preemption: 0/3 nodes are available: 3 No preemption victims found.";
        error.post_filter = Some(Status::new(Code::Unschedulable, "DefaultPreemption", nowhere));
        assert_eq!(error.to_string(), format!("{text} {nowhere}"));
        error.pre_filter =
            Some(Status::new(Code::UnschedulableAndUnresolvable, "", "no such claim"));
        assert_eq!(error.to_string(), format!("0/3 nodes are available: no such claim. {nowhere}"));
    }
}
