//! Cordoned nodes (nodeunschedulable/node_unschedulable.go).

use std::cell::LazyCell;

use super::hints::{self, ClusterEvent, Hint};
use crate::framework::{
    Code, Cycle, Filter, Plugin, PluginInfo, Point, PreFilter, Reads, Status, each_lane,
};
use crate::model::{Launcher, Pod, Taint, TaintEffect};
use crate::snapshot::{Chunk, Cluster, NodeInfo};

/// Rejects cordoned nodes, unless the pod tolerates the taint `node.kubernetes.io/unschedulable`. Pods of a node
/// manager may use a cordoned node that has an NMNode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeUnschedulable;

const NAME: &str = "NodeUnschedulable";
const REASON: &str = "node(s) were unschedulable";

struct NotCordoned(Launcher);

fn cordon() -> Taint {
    Taint::new(Taint::UNSCHEDULABLE, "", TaintEffect::NoSchedule)
}

impl Plugin for NodeUnschedulable {
    fn info(&self) -> PluginInfo {
        PluginInfo::new(NAME, &[Point::Filter]).events(hints::nodes::TAINTS).local()
    }

    fn queueing_hint(
        &self,
        pod: &Pod,
        event: &ClusterEvent<'_>,
        _: &Cluster,
    ) -> Result<Hint, Status> {
        Ok(hints::nodes::uncordoned(pod, event, &cordon()))
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        let template = &cycle.pod.template;
        let cordon = LazyCell::new(cordon);
        if template.tolerations.iter().any(|toleration| toleration.tolerates(&cordon)) {
            return Ok(PreFilter::Skip);
        }
        Ok(PreFilter::Filter(Box::new(NotCordoned(template.launcher))))
    }
}

impl Filter for NotCordoned {
    fn filter(&self, node: NodeInfo<'_>) -> Option<Status> {
        (node.node_for(self.0).is_some_and(|node| node.unschedulable))
            .then(|| Status::new(Code::UnschedulableAndUnresolvable, NAME, REASON))
    }

    fn filter_chunk(&self, cluster: &Cluster, chunk: &Chunk, mask: u64) -> Result<u64, Status> {
        let cordoned = mask & chunk.unschedulable();
        if cordoned == 0 || cluster.has_columns_for(self.0) {
            return Ok(mask & !cordoned);
        }
        let passes = |node| self.filter(node).is_none();
        let uncordoned =
            each_lane(cordoned, |lane| cluster.node_in(chunk, lane).is_some_and(passes));
        Ok(mask & !cordoned | uncordoned)
    }

    fn only_reason(&self) -> Option<&'static str> {
        Some(REASON)
    }

    fn reads(&self) -> Reads {
        Reads::Node
    }
}
