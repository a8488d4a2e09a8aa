//! Host ports (nodeports/node_ports.go).

use super::hints::{self, ClusterEvent, Hint};
use crate::framework::{Code, Cycle, Filter, Plugin, PluginInfo, Point, PreFilter, Reads, Status};
use crate::model::{HostPort, Pod};
use crate::snapshot::{Chunk, Cluster, NodeInfo};

/// Rejects nodes on which a host port of the pod is already in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodePorts;

const NAME: &str = "NodePorts";
const REASON: &str = "node(s) didn't have free ports for the requested pod ports";

struct Wanted<'a>(&'a [HostPort]);

impl Plugin for NodePorts {
    fn info(&self) -> PluginInfo {
        PluginInfo::new(NAME, &[Point::PreFilter, Point::Filter])
            .events(hints::nodes::PORTS)
            .local()
    }

    fn queueing_hint(
        &self,
        pod: &Pod,
        event: &ClusterEvent<'_>,
        _: &Cluster,
    ) -> Result<Hint, Status> {
        Ok(hints::nodes::ports(pod, event))
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        let pod = cycle.pod;
        match &*pod.template.host_ports {
            [] => Ok(PreFilter::Skip),
            ports => Ok(PreFilter::Filter(Box::new(Wanted(ports)))),
        }
    }
}

impl Wanted<'_> {
    fn conflict(&self, node: NodeInfo<'_>) -> bool {
        node.used_ports().any(|(used, _)| self.0.iter().any(|port| port.conflicts(used)))
    }
}

impl Filter for Wanted<'_> {
    fn filter(&self, node: NodeInfo<'_>) -> Option<Status> {
        self.conflict(node).then(|| Status::new(Code::Unschedulable, NAME, REASON))
    }

    fn filter_chunk(&self, cluster: &Cluster, chunk: &Chunk, mask: u64) -> Result<u64, Status> {
        let taken = crate::framework::each_lane(mask & chunk.with_ports(), |lane| {
            cluster.node_in(chunk, lane).is_some_and(|node| self.conflict(node))
        });
        Ok(mask & !taken)
    }

    fn only_reason(&self) -> Option<&'static str> {
        Some(REASON)
    }

    fn reads(&self) -> Reads {
        Reads::Pods
    }

    fn resolvable(&self, _: &Cluster, _: &Chunk, rejected: u64) -> u64 {
        rejected
    }
}
