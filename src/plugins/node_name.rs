//! Pods that name a node (nodename/node_name.go).

use super::hints;
use crate::framework::{Code, Cycle, Filter, Plugin, PluginInfo, Point, PreFilter, Reads, Status};
use crate::model::Name;
use crate::snapshot::NodeInfo;

/// Rejects all nodes other than the one that the pod names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeName;

const NAME: &str = "NodeName";
const REASON: &str = "node(s) didn't match the requested node name";

struct Named<'a>(&'a Name);

impl Plugin for NodeName {
    fn info(&self) -> PluginInfo {
        PluginInfo::new(NAME, &[Point::Filter]).events(hints::nodes::NODE_NAME).local()
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        let pod = cycle.pod;
        match &pod.node_name {
            Some(name) if !name.is_empty() => Ok(PreFilter::Filter(Box::new(Named(name)))),
            _ => Ok(PreFilter::Skip),
        }
    }
}

impl Filter for Named<'_> {
    fn filter(&self, node: NodeInfo<'_>) -> Option<Status> {
        (node.name() != self.0)
            .then(|| Status::new(Code::UnschedulableAndUnresolvable, NAME, REASON))
    }

    fn only_reason(&self) -> Option<&'static str> {
        Some(REASON)
    }

    fn reads(&self) -> Reads {
        Reads::Node
    }
}
