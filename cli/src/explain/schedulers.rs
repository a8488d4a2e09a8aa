//! The schedulers of the configuration, and why one of them does not place a pod now.

use std::sync::Arc;

use portolan::cache::{Cluster, Snapshot};
use portolan::model::{Name, Pod};
use portolan::plugin::{Cycle, CycleState, Handle, Nomination, Snapshots};
use portolan::{Algorithm, AlgorithmConfig, Failure, Framework, Profiles};
use portolan_dra::plugin::DryRunBackend;

use super::Inquiry;
use crate::cluster::Godel;
use crate::error::CommandError;
use crate::policy;

/// Why a pod is not placed now.
#[derive(Clone, Debug)]
pub(super) struct Why {
    /// The text of the pod's condition or event.
    pub(super) message: String,
    pub(super) cause: Cause,
    /// The change of the pod's nomination.
    pub(super) nomination: Nomination,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The pod is not tried: it is being deleted, no profile is responsible for it, or it may not be queued.
    NotTried,
    /// A plugin rejected the pod before any node was examined.
    PreFilter,
    /// No node is feasible.
    NoNode,
    /// A plugin failed.
    Failed,
}

/// The schedulers of a configuration.
pub(super) struct Schedulers {
    profiles: Profiles<Arc<Framework>>,
    handle: Handle,
    godel: Godel,
    pub(super) notes: Vec<String>,
}

/// The snapshots of a cluster that does not change.
pub(crate) struct Unchanging(pub(crate) Arc<Snapshot>);

impl Snapshots for Unchanging {
    fn snapshot(&self) -> Arc<Snapshot> {
        self.0.clone()
    }
}

impl Schedulers {
    /// The schedulers of a cluster that does not change.
    pub(super) fn new(
        inquiry: Inquiry<'_>,
        cluster: Arc<Snapshot>,
    ) -> Result<Schedulers, CommandError> {
        let handle = Handle::default().with_snapshots(Arc::new(Unchanging(cluster)));
        let policies = inquiry.rules.config.policies(&handle, Arc::new(DryRunBackend))?;
        let is_for_all = policies.are_for_all(&inquiry.rules.godel);
        let profiles = policies.profiles.into_iter().map(|profile| {
            let name = if is_for_all { String::new() } else { profile.scheduler_name };
            (Name::from(name), Arc::new(profile.framework))
        });
        let (profiles, godel) = (Profiles::by_name(profiles), Godel::clone(&inquiry.rules.godel));
        Ok(Schedulers { profiles, handle, godel, notes: policies.notes })
    }

    /// Records the groups and the nominations of the pods without a node.
    pub(super) fn prepare<'p>(
        &self,
        cluster: &Cluster,
        waiting: impl Iterator<Item = &'p Pod> + Clone,
    ) {
        self.handle.pod_groups().fill(cluster, waiting.clone());
        for pod in waiting {
            if let Some(node) = &pod.nominated_node_name {
                self.handle.nominator().add(pod.clone(), node.clone());
            }
        }
    }

    /// The framework of the pod's profile, or of the first profile if no profile schedules the pod.
    pub(super) fn framework_of(&self, pod: &Pod) -> Option<&Arc<Framework>> {
        self.profiles.get(pod).or_else(|| self.profiles.iter().next())
    }

    /// Why the pod is not placed on this cluster, or `None` if it is. A pod that is tried is decided on as a cluster's
    /// scheduler does, so the message is the same.
    pub(super) fn why(&self, cluster: &Cluster, pod: &Pod) -> Option<Why> {
        let not_tried = |cause, message| Some(Why { message, cause, nomination: Nomination::Keep });
        if pod.deletion_time.is_some() {
            let message = format!("skip schedule deleting pod: {}", pod.key());
            return not_tried(Cause::NotTried, message);
        }
        let Some(framework) = self.profiles.get(pod) else {
            return not_tried(Cause::NotTried, policy::no_profile(pod));
        };
        if let Some(message) = policy::why_not_queued(framework, pod, &self.godel) {
            return not_tried(Cause::NotTried, message);
        }
        let config = AlgorithmConfig { percentage_of_nodes: 100, seed: 1 };
        let state = CycleState::default();
        // The handle has no evictor, so no pod is evicted.
        let decided = Algorithm::new(framework.clone(), config, None)
            .decide(Cycle::new(cluster, pod, &state));
        let error = decided.err()?;
        let message = error.to_string();
        let (cause, nomination) = match error {
            Failure::Fit(fit) if fit.pre_filter.is_some() => (Cause::PreFilter, fit.nomination),
            Failure::Fit(fit) => (Cause::NoNode, fit.nomination),
            Failure::NoNodes => (Cause::NoNode, Nomination::Keep),
            _ => (Cause::Failed, Nomination::Keep),
        };
        Some(Why { message, cause, nomination })
    }
}
