//! Taints and tolerations (tainttoleration/taint_toleration.go).

use super::hints::{self, ClusterEvent, Hint};
use crate::framework::{
    Code, Cycle, Feasible, Filter, Plugin, PluginInfo, Point, PreFilter, PreScore, Reads, Score,
    ScoredNodes, Status, each_lane, each_same, normalize_to_largest,
};
use crate::model::{Launcher, Pod, PodSpec, Taint, TaintEffect, Toleration};
use crate::snapshot::{Chunk, Cluster, Column, LANES, NodeInfo, lanes};

/// Rejects nodes with a taint that the pod does not tolerate, and prefers nodes with fewer untolerated
/// `PreferNoSchedule` taints.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaintToleration;

const NAME: &str = "TaintToleration";
const REASON: &str = "node(s) had untolerated taint(s)";

/// The largest number of taint sets that PreScore inspects before it falls back to scoring nodes.
const FEW: usize = 64;

/// The tolerations of a pod.
pub(super) struct Tolerated<'a> {
    tolerations: &'a [Toleration],
    launcher: Launcher,
}

/// Returns whether a taint that repels pods is tolerated by none of these tolerations.
fn has_untolerated(tolerations: &[Toleration], taints: &[Taint]) -> bool {
    taints
        .iter()
        .filter(|taint| taint.effect != TaintEffect::PreferNoSchedule)
        .any(|taint| !tolerations.iter().any(|toleration| toleration.tolerates(taint)))
}

struct Avoided<'a> {
    /// The tolerations that may tolerate a `PreferNoSchedule` taint.
    tolerations: Vec<&'a Toleration>,
    launcher: Launcher,
}

impl Plugin for TaintToleration {
    fn info(&self) -> PluginInfo {
        PluginInfo::new(NAME, &[Point::Filter, Point::PreScore, Point::Score])
            .events(hints::nodes::TAINTS)
            .local()
    }

    fn queueing_hint(
        &self,
        pod: &Pod,
        event: &ClusterEvent<'_>,
        _: &Cluster,
    ) -> Result<Hint, Status> {
        Ok(hints::nodes::tolerated(pod, event, has_untolerated))
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        Ok(PreFilter::Filter(Box::new(Tolerated::of(&cycle.pod.template))))
    }

    /// Kube-scheduler's `Score` reads the state of PreScore and fails without it.
    fn score_alone<'a>(
        &'a self,
        _: Cycle<'a>,
        _: &'a Feasible<'a>,
    ) -> Result<PreScore<'a>, Status> {
        let reason = "failed to read \"PreScoreTaintToleration\" from cycleState: not found";
        Err(Status::error(NAME, reason))
    }

    fn pre_score<'a>(
        &'a self,
        cycle: Cycle<'a>,
        _: &'a Feasible<'a>,
    ) -> Result<PreScore<'a>, Status> {
        let (cluster, pod) = (cycle.cluster, cycle.pod);
        let prefers =
            |t: &&Toleration| t.effect.is_none_or(|effect| effect == TaintEffect::PreferNoSchedule);
        let tolerations = pod.template.tolerations.iter().filter(prefers).collect();
        let avoided = Avoided { tolerations, launcher: pod.template.launcher };
        // If no node has a taint to avoid, all nodes get the best score.
        let none = |taints| avoided.count(taints) == 0;
        if cluster.has_columns_for(avoided.launcher)
            && cluster.taint_sets(FEW).is_some_and(|mut sets| sets.all(none))
        {
            return Ok(PreScore::All(100));
        }
        Ok(PreScore::Score(Box::new(avoided)))
    }
}

impl<'a> Tolerated<'a> {
    pub(super) fn of(spec: &'a PodSpec) -> Tolerated<'a> {
        Tolerated { tolerations: &spec.tolerations, launcher: spec.launcher }
    }

    /// Returns the lanes of nodes whose taints are tolerated.
    pub(super) fn tolerating(&self, cluster: &Cluster, chunk: &Chunk, mask: u64) -> u64 {
        if !cluster.has_columns_for(self.launcher) {
            return each_lane(mask, |lane| {
                cluster.node_in(chunk, lane).is_some_and(|node| self.filter(node).is_none())
            });
        }
        let rejected = each_same(chunk.taint_set(), mask & chunk.tainted(), |lane, all| {
            let taints = cluster.taint_set(chunk.taint_set()[lane]);
            if has_untolerated(self.tolerations, taints) { all } else { 0 }
        });
        mask & !rejected
    }
}

impl Filter for Tolerated<'_> {
    fn filter(&self, node: NodeInfo<'_>) -> Option<Status> {
        let taints = node.node_for(self.launcher).map_or(&[][..], |node| &node.taints);
        has_untolerated(self.tolerations, taints)
            .then(|| Status::new(Code::UnschedulableAndUnresolvable, NAME, REASON))
    }

    fn filter_chunk(&self, cluster: &Cluster, chunk: &Chunk, mask: u64) -> Result<u64, Status> {
        Ok(self.tolerating(cluster, chunk, mask))
    }

    fn only_reason(&self) -> Option<&'static str> {
        Some(REASON)
    }

    fn reads(&self) -> Reads {
        Reads::Node
    }
}

impl Avoided<'_> {
    fn count(&self, taints: &[Taint]) -> i64 {
        let avoided = taints
            .iter()
            .filter(|taint| taint.effect == TaintEffect::PreferNoSchedule)
            .filter(|taint| !self.tolerations.iter().any(|toleration| toleration.tolerates(taint)));
        avoided.count() as i64
    }
}

impl Score for Avoided<'_> {
    fn score(&self, node: NodeInfo<'_>) -> Result<i64, Status> {
        Ok(node.node_for(self.launcher).map_or(0, |node| self.count(&node.taints)))
    }

    fn score_chunk(
        &self,
        cluster: &Cluster,
        chunk: &Chunk,
        mask: u64,
        scores: &mut Column<i64>,
    ) -> Result<(), Status> {
        *scores = [0; LANES];
        if !cluster.has_columns_for(self.launcher) {
            for lane in lanes(mask) {
                let node = cluster.node_in(chunk, lane);
                scores[lane] = node.map_or(Ok(0), |node| self.score(node))?;
            }
            return Ok(());
        }
        each_same(chunk.taint_set(), mask & chunk.tainted(), |lane, all| {
            let avoided = self.count(cluster.taint_set(chunk.taint_set()[lane]));
            lanes(all).for_each(|lane| scores[lane] = avoided);
            0
        });
        Ok(())
    }

    fn needs_normalize(&self) -> bool {
        true
    }

    fn normalize(&self, _: &ScoredNodes<'_>, scores: &mut [i64]) -> Result<(), Status> {
        normalize_to_largest(scores, true);
        Ok(())
    }
}
