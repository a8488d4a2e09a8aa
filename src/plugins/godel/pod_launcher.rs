//! Launchers of pods (Gödel: plugins/podlauncher/pod_launcher.go).

use crate::framework::{
    Code, Cycle, Filter, Plugin, PluginInfo, Point, PreFilter, Reads, Status, each_lane,
};
use crate::model::{Launcher, Pod};
use crate::plugins::hints::{self, ClusterEvent, Hint};
use crate::snapshot::{Chunk, Cluster, NodeInfo};

/// Rejects nodes that lack the object of the pod's launcher: a Node for the kubelet, an NMNode for a node manager. Pods
/// of the kubelet skip the filter if no NMNode exists, because then all nodes are Nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PodLauncher;

const NAME: &str = "PodLauncher";
const NO_KUBELET: &str = "launcher kubelet doesn't exist on this node";
const NO_NODE_MANAGER: &str = "launcher node-manager doesn't exist on this node";

struct Launched(Launcher);

impl Plugin for PodLauncher {
    fn info(&self) -> PluginInfo {
        PluginInfo::new(NAME, &[Point::Filter]).events(hints::nodes::LAUNCHERS).local()
    }

    fn queueing_hint(
        &self,
        pod: &Pod,
        event: &ClusterEvent<'_>,
        _: &Cluster,
    ) -> Result<Hint, Status> {
        Ok(hints::nodes::launched(pod, event))
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        let launcher = cycle.pod.template.launcher;
        if launcher == Launcher::Unknown {
            let (namespace, name) = (cycle.pod.namespace(), &cycle.pod.name);
            let reason = format!("pod launcher is empty for pod {namespace}/{name}");
            return Err(Status::new(Code::Error, NAME, reason));
        }
        if launcher == Launcher::Kubelet && cycle.cluster.objects().nm_nodes.len == 0 {
            return Ok(PreFilter::Skip);
        }
        Ok(PreFilter::Filter(Box::new(Launched(launcher))))
    }
}

impl Launched {
    fn is_on(&self, node: NodeInfo<'_>) -> bool {
        match self.0 {
            Launcher::Kubelet => node.kubelet_node().is_some(),
            Launcher::NodeManager => node.nm_node().is_some(),
            Launcher::Unknown => false,
        }
    }

    fn reason(&self) -> &'static str {
        match self.0 {
            Launcher::NodeManager => NO_NODE_MANAGER,
            Launcher::Kubelet | Launcher::Unknown => NO_KUBELET,
        }
    }
}

impl Filter for Launched {
    fn filter(&self, node: NodeInfo<'_>) -> Option<Status> {
        (!self.is_on(node))
            .then(|| Status::new(Code::UnschedulableAndUnresolvable, NAME, self.reason()))
    }

    fn filter_chunk(&self, cluster: &Cluster, chunk: &Chunk, mask: u64) -> Result<u64, Status> {
        let is_on = |at| cluster.node_in(chunk, at).is_some_and(|node| self.is_on(node));
        Ok(each_lane(mask, is_on))
    }

    fn only_reason(&self) -> Option<&'static str> {
        Some(self.reason())
    }

    fn reads(&self) -> Reads {
        Reads::Node
    }
}
