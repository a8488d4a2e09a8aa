//! Nodes that fail and do not return.
//!
//! The node lifecycle controller taints a failed node, and each pod is deleted after the time for which it tolerates
//! the taint (300 s unless the pod says otherwise). Disruption budgets do not apply. Controllers replace their pods at
//! that time, with two exceptions, because nothing confirms that the old pod has stopped:
//!
//! - A StatefulSet replaces a pod only when its object is gone.
//! - A pod that tolerates the taint forever is not deleted.
//!
//! Both wait until the Node is deleted, as cloud providers do when the machine is gone, or has the taint
//! `out-of-service`. That is the second moment of the answer. Pods of daemon sets and mirror pods end with their node, and
//! pods without a controller are lost.

use portolan::log::Event;
use portolan::model::{Name, Node, Pod, Taint, TaintEffect};
use portolan_k8s::PodFacts;

use crate::error::Failure;
use crate::replacement::{Replacement, recreated};
use crate::simulation::{Simulation, closed, event, refused};

use super::drain::{known, once, update};
use super::record::{End, Record};
use super::{enter, groups, key, settle};

/// The taint of the node lifecycle controller.
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// Nodes that have failed.
#[derive(Default)]
pub(super) struct Failed {
    pub(super) nodes: Vec<Name>,
    /// The pods that are replaced when the Node objects are deleted, and their nodes.
    waiting: Vec<(Pod, Name)>,
}

/// Fails the nodes at the same moment, and places the pods that are replaced while their Node objects exist.
pub(super) fn fail(
    names: &[String],
    facts: &PodFacts,
    simulation: &mut Simulation,
    record: &mut Record,
) -> Result<Failed, Failure> {
    let mut reader = simulation.engine.reader().map_err(closed)?;
    let mut failed = Failed::default();
    let mut deleted: Vec<(i64, Pod, Name)> = Vec::new();
    for name in once(names) {
        let node = known(reader.refresh(), "--fail-node", &name)?;
        let taints = [TaintEffect::NoSchedule, TaintEffect::NoExecute]
            .map(|effect| Taint::new(UNREACHABLE, "", effect));
        let taints = node.taints.iter().cloned().chain(taints).collect();
        update(&simulation.engine, Node { taints, ..Node::clone(&node) })?;
        for info in reader.refresh().node(&name).iter().flat_map(|info| info.pods()) {
            let pod = info.to_pod();
            let stays = facts.stays_on_failed_node(&pod.uid);
            let on = Some(&node.name);
            let replacement = match pod.deletion_time {
                Some(_) => record.replacements.of(&pod),
                None => record.replacements.disrupted(&pod),
            };
            match replacement {
                // The object of a pod that is being deleted is gone with the Node.
                Replacement::WhenGone if pod.deletion_time.is_some() && !is_of_node(&pod) => {
                    failed.waiting.push((pod, node.name.clone()));
                }
                _ if pod.deletion_time.is_some() => {}
                _ if is_of_node(&pod) => record.ends(&pod, on, End::Deleted),
                Replacement::Never(why) => {
                    let why = format!("its node has failed, {why}");
                    record.ends(&pod, on, End::Lost(node.name.clone(), why));
                }
                Replacement::AtOnce if stays.is_some() => {
                    let seconds = stays.unwrap_or_default();
                    deleted.push((seconds, pod, node.name.clone()));
                }
                replacement => {
                    let why = why_waits(&node.name, replacement);
                    record.ends(&pod, on, End::Unreachable(why));
                    failed.waiting.push((pod, node.name.clone()));
                }
            }
        }
        failed.nodes.push(node.name.clone());
    }
    deleted.sort_by(|(a, one, _), (b, other, _)| (a, key(one)).cmp(&(b, key(other))));
    failed.waiting.sort_by_key(|(pod, _)| key(pod));
    // Pods with the same time are deleted together, before any of them is replaced.
    for together in deleted.chunk_by(|(a, ..), (b, ..)| a == b) {
        for (_, pod, _) in together {
            let gone = event(&simulation.engine, Event::remove_pod(pod))?;
            gone.map_err(|error| refused(pod, error))?;
        }
        for (_, pod, node) in together {
            enter(simulation, record, &recreated(pod.clone()), Some(node))?;
        }
        simulation.expire_permits(record)?;
    }
    Ok(failed)
}

/// Why a pod of a failed node is not replaced yet.
fn why_waits(node: &Name, replacement: Replacement) -> String {
    let tolerates = match replacement {
        Replacement::WhenGone => "",
        _ => " and the pod tolerates it without a limit",
    };
    format!(
        "node {node} has failed{tolerates}: replaced when the Node is deleted or has the taint \
         node.kubernetes.io/out-of-service"
    )
}

impl Failed {
    /// Deletes the objects of the nodes, and replaces the pods that have waited for it.
    pub(super) fn delete(
        self,
        simulation: &mut Simulation,
        record: &mut Record,
    ) -> Result<(), Failure> {
        remove_nodes(&self.nodes, simulation, record)?;
        let on = |(pod, node): (Pod, Name)| Pod { node_name: Some(node), ..pod };
        let ended: Vec<Pod> = self.waiting.into_iter().map(on).collect();
        for pod in groups::with_groups(ended, simulation, record)? {
            let node = pod.node_name.clone();
            enter(simulation, record, &recreated(pod), node.as_ref())?;
        }
        settle(simulation, record)?;
        simulation.expire_permits(record)
    }
}

/// Deletes the nodes that still exist, with all pods that are on them. Pods of daemon sets end with their node.
pub(super) fn remove_nodes(
    names: &[Name],
    simulation: &Simulation,
    record: &mut Record,
) -> Result<(), Failure> {
    let mut reader = simulation.engine.reader().map_err(closed)?;
    for name in names {
        let Some(info) = reader.refresh().node(name) else { continue };
        let pods: Vec<Pod> = info.pods().map(|pod| pod.to_pod()).collect();
        for pod in pods {
            let gone = event(&simulation.engine, Event::remove_pod(&pod))?;
            gone.map_err(|error| refused(&pod, error))?;
            if is_of_node(&pod) || pod.deletion_time.is_some() {
                record.ends(&pod, Some(name), End::Deleted);
            }
        }
        event(&simulation.engine, Event::RemoveNode(name.clone()))?
            .map_err(|error| Failure::Refused { object: format!("node {name}"), error })?;
    }
    Ok(())
}

/// Whether the pod ends with its node: it is of a daemon set, or a mirror pod.
fn is_of_node(pod: &Pod) -> bool {
    let owner = pod.template.owners.iter().find(|owner| owner.controller);
    matches!(owner.map(|owner| &*owner.kind), Some("DaemonSet" | "Node"))
}
