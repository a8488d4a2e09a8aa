//! Commit checks, which decide whether a placement is still valid when the writer is about to assume it.

use crate::model::{Generation, Pod};
use crate::snapshot::plan::Recheck;
use crate::snapshot::{Cluster, NodeInfo, NodeSlot};

/// Decides whether a placement still fits when the writer is about to assume it. The caller supplies the
/// implementation, because the state depends on no plugin.
pub trait CommitCheck: Send + Sync {
    /// Checks whether `pod` may be placed on `node` in the complete current state. Called unless the placement was
    /// decided on the current version.
    ///
    /// # Errors
    ///
    /// Returns a human-readable reason if the pod does not fit.
    fn check(&self, cluster: &Cluster, pod: &Pod, node: &str) -> Result<(), String>;

    /// Like [`CommitCheck::check`], which is the default. A scheduler has decided on the node on an earlier version, and
    /// the node has not changed since.
    ///
    /// # Errors
    ///
    /// Those of [`CommitCheck::check`].
    fn check_again(&self, cluster: &Cluster, pod: &Pod, node: &str) -> Result<(), String> {
        self.check(cluster, pod, node)
    }

    /// Checks placements of pods of this pod's template on several nodes at once. A scheduler has checked each of them
    /// on an earlier version, and nothing has happened to the nodes since. The default is [`Recheck::OneByOne`].
    fn check_unchanged(&self, _cluster: &Cluster, _pod: &Pod, _nodes: &[NodeSlot]) -> Recheck {
        Recheck::OneByOne
    }
}

/// The check that the writer makes before it assumes a pod.
///
/// The check is skipped only if the assume names the current version as the one on which it was decided: nothing has
/// happened since then, so a single comparison suffices. An assume that names no version is always checked.
#[derive(Default)]
#[non_exhaustive]
pub enum CommitPolicy {
    /// The node exists and has enough free resources, a free pod slot and all of the pod's host ports.
    /// O(resources + host ports of the node).
    #[default]
    Room,
    /// No check: an assume is a statement of fact, as in kube-scheduler's cache. Use it for a single scheduler that
    /// decides and assumes in turn, and for replays of decisions. With two schedulers, it allows nodes to be
    /// overcommitted.
    Unchecked,
    /// A custom check, such as the filters of the pods' profiles
    /// ([`FilterCheck`](crate::scheduler::FilterCheck)).
    Check(Box<dyn CommitCheck>),
}

impl CommitPolicy {
    /// Returns which placements of pods of this template are still valid, see [`CommitCheck::check_unchanged`].
    pub(super) fn check_unchanged(
        &self,
        cluster: &Cluster,
        pod: &Pod,
        nodes: &[NodeSlot],
    ) -> Recheck {
        match self {
            CommitPolicy::Room | CommitPolicy::Unchecked => Recheck::Valid,
            CommitPolicy::Check(check) => check.check_unchanged(cluster, pod, nodes),
        }
    }

    /// Returns the reason for which the placement on a node is refused. The node's slot is given if it has one, and
    /// `since` if a scheduler decided on this generation.
    pub(super) fn check(
        &self,
        cluster: &Cluster,
        pod: &Pod,
        (node, slot): (&str, Option<NodeSlot>),
        since: Option<Generation>,
    ) -> Result<(), String> {
        match self {
            CommitPolicy::Room => {
                has_room(slot.and_then(|slot| cluster.node_by_slot(slot)), pod, node)
            }
            CommitPolicy::Unchecked => Ok(()),
            CommitPolicy::Check(check) => {
                let is_unchanged = |slot| {
                    since.is_some_and(|at| cluster.is_unchanged_since(slot, &pod.template, at))
                };
                match slot.is_some_and(is_unchanged) {
                    true => check.check_again(cluster, pod, node),
                    false => check.check(cluster, pod, node),
                }
            }
        }
    }
}

impl<C: CommitCheck + 'static> From<C> for CommitPolicy {
    fn from(check: C) -> CommitPolicy {
        CommitPolicy::Check(Box::new(check))
    }
}

impl std::fmt::Debug for CommitPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            CommitPolicy::Room => "Room",
            CommitPolicy::Unchecked => "Unchecked",
            CommitPolicy::Check(_) => "Check(..)",
        })
    }
}

/// The check of [`CommitPolicy::Room`]: the rules of NodeResourcesFit with its default arguments and of NodePorts,
/// applied to the account of the pod's class.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoomCheck;

impl CommitCheck for RoomCheck {
    fn check(&self, cluster: &Cluster, pod: &Pod, node: &str) -> Result<(), String> {
        has_room(cluster.node(node), pod, node)
    }

    fn check_unchanged(&self, _: &Cluster, _: &Pod, _: &[NodeSlot]) -> Recheck {
        Recheck::Valid
    }
}

fn has_room(info: Option<NodeInfo<'_>>, pod: &Pod, node: &str) -> Result<(), String> {
    let Some(info) = info else { return Err(format!("node {node:?} is gone")) };
    match shortage(info, pod) {
        None => Ok(()),
        Some(shortage) => Err(shortage),
    }
}

/// Returns the reason for which the node cannot take one more pod, or `None` if it can.
fn shortage(node: NodeInfo<'_>, pod: &Pod) -> Option<String> {
    let (chunk, at) = node.place();
    let account = chunk.account(pod.template.class);
    if account.allowed_pods()[at] <= node.pod_count() as i64 {
        return Some("Too many pods".to_owned());
    }
    let requested = &pod.template.resources.incoming;
    // Neither `allocatable` nor `taken` is negative.
    let exceeds = |requested: i64, allocatable: i64, taken: i64| {
        requested > 0 && requested > allocatable.saturating_sub(taken)
    };
    let fixed = [
        ("cpu", requested.cpu.0, account.allocatable_cpu()[at], account.requested_cpu()[at]),
        (
            "memory",
            requested.memory.0,
            account.allocatable_memory()[at],
            account.requested_memory()[at],
        ),
        (
            "ephemeral-storage",
            requested.ephemeral_storage.0,
            account.allocatable_ephemeral_storage()[at],
            account.requested_ephemeral_storage()[at],
        ),
    ];
    for (name, requested, allocatable, taken) in fixed {
        if exceeds(requested, allocatable, taken) {
            return Some(format!("Insufficient {name}"));
        }
    }
    for (name, requested) in requested.scalars.iter() {
        let resource = node.cluster().resource_id(name);
        let at_lane = |column: Option<&[i64; crate::snapshot::LANES]>| column.map_or(0, |c| c[at]);
        let allocatable = at_lane(resource.and_then(|id| account.allocatable_scalar(id)));
        let taken = at_lane(resource.and_then(|id| account.requested_scalar(id)));
        let is_supplied = || allocatable == 0 && node.cluster().supplies(name);
        if exceeds(requested, allocatable, taken) && !is_supplied() {
            return Some(format!("Insufficient {name}"));
        }
    }
    let ports = &pod.template.host_ports;
    let taken =
        |(used, _): &(&crate::model::HostPort, u32)| ports.iter().any(|port| port.conflicts(used));
    let taken = node.used_ports().find(taken).filter(|_| !ports.is_empty());
    taken.map(|(port, _)| format!("host port {} is taken", port.port))
}
