//! Cordoned nodes (nodeunschedulable/node_unschedulable.go).

use super::hints::{self, ClusterEvent, Hint, Interest};
use crate::framework::{Code, Cycle, Filter, Incremental, Plugin, Point, PreFilter, Reads, Status};
use crate::model::{Pod, Taint, TaintEffect};
use crate::snapshot::{Chunk, Cluster, NodeInfo};

/// Rejects cordoned nodes, unless the pod tolerates the taint `node.kubernetes.io/unschedulable`.
#[derive(Clone, Copy, Debug)]
pub struct NodeUnschedulable;

const NAME: &str = "NodeUnschedulable";
const REASON: &str = "node(s) were unschedulable";

struct NotCordoned;

fn cordon() -> Taint {
    Taint::new(Taint::UNSCHEDULABLE, "", TaintEffect::NoSchedule)
}

impl Plugin for NodeUnschedulable {
    fn name(&self) -> &'static str {
        NAME
    }

    fn points(&self) -> &'static [Point] {
        &[Point::Filter]
    }

    fn is_by_template(&self, _: &Pod) -> bool {
        true
    }

    fn events(&self) -> &'static [Interest] {
        hints::nodes::TAINTS
    }

    fn queueing_hint(
        &self,
        pod: &Pod,
        event: &ClusterEvent<'_>,
        _: &Cluster,
    ) -> Result<Hint, Status> {
        Ok(hints::nodes::uncordoned(pod, event, &cordon()))
    }

    fn is_local(&self) -> bool {
        true
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        let pod = cycle.pod;
        let tolerations = &pod.template.tolerations;
        if tolerations.is_empty() {
            return Ok(PreFilter::Filter(Box::new(NotCordoned)));
        }
        let cordon = cordon();
        if tolerations.iter().any(|toleration| toleration.tolerates(&cordon)) {
            Ok(PreFilter::Skip)
        } else {
            Ok(PreFilter::Filter(Box::new(NotCordoned)))
        }
    }
}

impl Filter for NotCordoned {
    fn filter(&self, node: NodeInfo<'_>) -> Option<Status> {
        let (chunk, at) = node.place();
        (chunk.unschedulable() >> at & 1 == 1)
            .then(|| Status::new(Code::UnschedulableAndUnresolvable, NAME, REASON))
    }

    fn filter_chunk(&self, _: &Cluster, chunk: &Chunk, mask: u64) -> Result<u64, Status> {
        Ok(mask & !chunk.unschedulable())
    }

    fn only_reason(&self) -> Option<&'static str> {
        Some(REASON)
    }

    fn incremental(&self) -> Option<&dyn Incremental> {
        Some(self)
    }
}

impl Incremental for NotCordoned {
    fn reads(&self) -> Reads {
        Reads::Node
    }

    /// Evicting pods does not change the verdict on a node.
    fn resolvable(&self, _: &Cluster, _: &Chunk, _: u64) -> u64 {
        0
    }
}
