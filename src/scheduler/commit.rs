//! The optimistic commit: checks whether a placement decided on an older version still holds in the current state.

use std::borrow::Cow;
use std::sync::Arc;

use crate::framework::{Framework, Status};
use crate::model::Pod;
use crate::snapshot::{Cluster, NodeInfo, NodeSlot, Recheck};
use crate::state::{CommitCheck, RoomCheck};

use super::Profiles;

/// Runs the filters of the pod's profile again, on the chosen node only, against the state that the writer is about to
/// change. The check therefore sees what other schedulers did meanwhile to the node and, for affinity, topology spread
/// and claims, anywhere in the cluster.
///
/// The cost is one PreFilter and the filters of one node: well under a microsecond for a pod without affinity. The
/// writer skips the check if nothing has changed since the decision. If the node has not changed, only the plugins that
/// are not [local](crate::plugin::PluginInfo::local) are asked. A pod without a profile here gets the default check of [`CommitPolicy`](crate::cache::CommitPolicy).
#[derive(Clone)]
pub struct FilterCheck(Profiles<Arc<Framework>>);

impl FilterCheck {
    /// Creates a check that runs the frameworks of these profiles.
    #[must_use]
    pub fn new(profiles: Profiles<Arc<Framework>>) -> FilterCheck {
        FilterCheck(profiles)
    }
}

impl FilterCheck {
    /// Calls `filter` with the pod's framework, the pod and its node.
    fn filter(
        &self,
        (cluster, pod, node): (&Cluster, &Pod, &str),
        filter: impl FnOnce(&Framework, &Pod, NodeInfo<'_>) -> Option<Status>,
    ) -> Result<(), String> {
        // Without a profile, only the pod's resources and host ports can be checked.
        let Some(framework) = self.0.get(pod) else { return RoomCheck.check(cluster, pod, node) };
        let Some(info) = cluster.node(node).filter(|info| info.node().is_some()) else {
            return Err(format!("node {node:?} is gone"));
        };
        match filter(framework, &undecided(pod), info) {
            None => Ok(()),
            Some(status) => Err(status.message()),
        }
    }
}

/// Returns the pod as plugins saw it in its cycle: without a node.
fn undecided(pod: &Pod) -> Cow<'_, Pod> {
    match pod.node_name {
        None => Cow::Borrowed(pod),
        Some(_) => Cow::Owned(Pod { node_name: None, ..pod.clone() }),
    }
}

impl CommitCheck for FilterCheck {
    fn check(&self, cluster: &Cluster, pod: &Pod, node: &str) -> Result<(), String> {
        self.filter((cluster, pod, node), |framework, pod, node| {
            framework.filter(cluster, pod, node)
        })
    }

    fn check_again(&self, cluster: &Cluster, pod: &Pod, node: &str) -> Result<(), String> {
        self.filter((cluster, pod, node), |framework, pod, node| {
            framework.filter_again(cluster, pod, node)
        })
    }

    fn check_unchanged(&self, cluster: &Cluster, pod: &Pod, nodes: &[NodeSlot]) -> Recheck {
        let Some(framework) = self.0.get(pod) else {
            return RoomCheck.check_unchanged(cluster, pod, nodes);
        };
        let pod = undecided(pod);
        match framework.treats_template_alike(&pod, cluster) {
            true => framework.filter_each_again(cluster, &pod, nodes),
            false => Recheck::OneByOne,
        }
    }
}

impl std::fmt::Debug for FilterCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FilterCheck").field("profiles", &self.0.iter().count()).finish()
    }
}
