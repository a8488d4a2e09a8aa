//! The optimistic commit: whether a placement that was decided on an older
//! version holds in the state as it is.

use std::sync::Arc;

use crate::framework::Framework;
use crate::model::Pod;
use crate::snapshot::Cluster;
use crate::state::{CommitCheck, RoomCheck};

use super::Profiles;

/// Asks the filters of the pod's profile again, of its node alone, in the state
/// that the writer is about to change. So what another scheduler did meanwhile to
/// the node, or, for affinity, spreading and claims, anywhere, is seen.
///
/// Costs a PreFilter and the filters of one node: well under a microsecond for a
/// pod without affinity. Not asked if nothing has happened since. A pod of no profile
/// here is checked by [`RoomCheck`].
#[derive(Clone)]
pub struct FilterCheck(Profiles<Arc<Framework>>);

impl FilterCheck {
    /// By the frameworks of these profiles.
    #[must_use]
    pub fn new(profiles: Profiles<Arc<Framework>>) -> FilterCheck {
        FilterCheck(profiles)
    }
}

impl CommitCheck for FilterCheck {
    fn check(&self, cluster: &Cluster, pod: &Pod, node: &str) -> Result<(), String> {
        // Of a pod of no profile here its resources and ports are known.
        let Some(framework) = self.0.get(pod) else { return RoomCheck.check(cluster, pod, node) };
        let Some(info) = cluster.node(node).filter(|info| info.node().is_some()) else {
            return Err(format!("node {node:?} is gone"));
        };
        // Plugins see the pod as it was decided on: on no node.
        let pod = Pod { node_name: None, ..pod.clone() };
        match framework.filter(cluster, &pod, info) {
            None => Ok(()),
            Some(status) => Err(status.message()),
        }
    }
}

impl std::fmt::Debug for FilterCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FilterCheck").field("profiles", &self.0.iter().count()).finish()
    }
}
