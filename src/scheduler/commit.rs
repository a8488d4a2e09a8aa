//! The optimistic commit: checks whether a placement decided on an older version still holds in the current state.

use std::sync::Arc;

use crate::framework::{Cycle, CycleState, Framework};
use crate::model::Pod;
use crate::snapshot::{Cluster, NodeSlot, Recheck};
use crate::state::{CommitCheck, RoomCheck};

use super::Profiles;

/// Runs the filters of the pod's profile again, on the chosen node only, against the state that the writer is about to
/// change. The check therefore sees what other schedulers did meanwhile to the node and, for affinity, topology spread
/// and claims, anywhere in the cluster.
///
/// The cost is one PreFilter and the filters of one node: well under a microsecond for a pod without affinity. The
/// writer skips the check if nothing has changed since the decision, or nothing that the filters read: if the node has
/// not changed and every plugin that is not [local](crate::plugin::PluginInfo::local) skips the pod. A pod without a
/// profile here gets the default check of [`CommitPolicy`](crate::cache::CommitPolicy).
#[derive(Clone)]
pub struct FilterCheck(Profiles<Arc<Framework>>);

impl FilterCheck {
    /// Creates a check that runs the frameworks of these profiles.
    #[must_use]
    pub fn new(profiles: Profiles<Arc<Framework>>) -> FilterCheck {
        FilterCheck(profiles)
    }
}

impl CommitCheck for FilterCheck {
    fn check(&self, cluster: &Cluster, pod: &Pod, node: &str) -> Result<(), String> {
        // Without a profile, only the pod's resources and host ports can be checked.
        let Some(framework) = self.0.get(pod) else { return RoomCheck.check(cluster, pod, node) };
        let Some(info) = cluster.node(node).filter(|info| info.node().is_some()) else {
            return Err(format!("node {node:?} is gone"));
        };
        // Plugins must see the pod as it was decided: without a node.
        let pod = Pod { node_name: None, ..pod.clone() };
        match framework.filter(cluster, &pod, info) {
            None => Ok(()),
            Some(status) => Err(status.message()),
        }
    }

    /// No local plugin is asked, so the answer is cheap.
    fn is_local(&self, cluster: &Cluster, pod: &Pod) -> bool {
        let Some(framework) = self.0.get(pod) else { return RoomCheck.is_local(cluster, pod) };
        let pod = Pod { node_name: None, ..pod.clone() };
        framework.filters_locally(Cycle::new(cluster, &pod, &CycleState::default()))
    }

    fn check_unchanged(&self, cluster: &Cluster, pod: &Pod, nodes: &[NodeSlot]) -> Recheck {
        if self.is_local(cluster, pod) {
            return Recheck::Valid;
        }
        let Some(framework) = self.0.get(pod) else { return Recheck::OneByOne };
        let pod = Pod { node_name: None, ..pod.clone() };
        if !framework.treats_template_alike(&pod) {
            return Recheck::OneByOne;
        }
        let state = CycleState::default();
        let filters = framework.pre_filter(Cycle::new(cluster, &pod, &state));
        filters.still_pass(nodes).map_or(Recheck::OneByOne, Recheck::Each)
    }
}

impl std::fmt::Debug for FilterCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FilterCheck").field("profiles", &self.0.iter().count()).finish()
    }
}
