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
//! `out-of-service`. The simulation continues to that moment. Pods of daemon sets and mirror pods end with their node,
//! and pods without a controller are lost.

use portolan::log::Event;
use portolan::model::{Name, Node, Pod, Taint, TaintEffect};
use portolan_k8s::PodFacts;

use crate::error::Failure;
use crate::simulation::{Simulation, closed, event, recreated, refused};
use crate::text::count;

use super::drain::{is_bare, known, once, update};
use super::record::Record;
use super::{Answer, enter};

/// The taint of the node lifecycle controller.
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// When a pod is replaced, counted from the failure.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum When {
    After(i64),
    NodeDeleted,
}

/// Fails the nodes at the same moment, and places the pods that are replaced.
pub(super) fn fail(
    names: &[String],
    facts: &PodFacts,
    simulation: &mut Simulation,
    record: &mut Record,
    answer: &mut Answer,
) -> Result<(), Failure> {
    let mut reader = simulation.engine.reader().map_err(closed)?;
    let mut pods: Vec<(When, Pod, Name)> = Vec::new();
    let names = once(names);
    for name in &names {
        let node = known(reader.refresh(), "--fail-node", name)?;
        let taints = [TaintEffect::NoSchedule, TaintEffect::NoExecute]
            .map(|effect| Taint::new(UNREACHABLE, "", effect));
        let taints = node.taints.iter().cloned().chain(taints).collect();
        update(&simulation.engine, Node { taints, ..Node::clone(&node) })?;
        for info in reader.refresh().node(name).iter().flat_map(|info| info.pods()) {
            let pod = info.to_pod();
            let when = match (owner(&pod), facts.stays_on_failed_node(&pod.uid)) {
                (Some("StatefulSet"), _) | (_, None) => When::NodeDeleted,
                (_, Some(seconds)) => When::After(seconds),
            };
            pods.push((when, pod, node.name.clone()));
        }
        answer.failed.push(name.clone());
    }
    pods.sort_by(|(a, one, _), (b, other, _)| {
        (a, one.namespace(), &one.name).cmp(&(b, other.namespace(), &other.name))
    });
    let (mut of_sets, mut tolerant) = (0, 0);
    // Pods with the same time are deleted together, before any of them is replaced.
    for together in pods.chunk_by(|(a, ..), (b, ..)| a == b) {
        if together.first().is_some_and(|(when, ..)| *when == When::NodeDeleted) {
            remove_nodes(&names, simulation, record)?;
        }
        for (_, pod, _) in together {
            // A pod of a node that was deleted is gone already.
            if reader.refresh().pod(&pod.uid).is_some() {
                let gone = event(&simulation.engine, Event::remove_pod(pod))?;
                gone.map_err(|error| refused(pod, error))?;
            }
        }
        for (when, pod, node) in together {
            match owner(pod) {
                Some("DaemonSet" | "Node") => {
                    record.is_gone(&pod.uid);
                    continue;
                }
                _ if is_bare(pod) => {
                    answer.lost.push((pod.clone(), node.clone()));
                    continue;
                }
                Some("StatefulSet") => of_sets += 1,
                _ if *when == When::NodeDeleted => tolerant += 1,
                _ => {}
            }
            enter(simulation, record, recreated(pod.clone()), Some(node.clone()))?;
        }
        simulation.expire_permits(record)?;
    }
    remove_nodes(&names, simulation, record)?;
    simulation.settle(record)?;
    let waits = |pods: usize, what: &str, more: &str| {
        (pods > 0).then(|| {
            format!(
                "replaced only when the failed node is deleted or has the taint \
                 node.kubernetes.io/out-of-service: {}{more}",
                count(pods, what)
            )
        })
    };
    answer.notes.extend(waits(of_sets, "StatefulSet pod", ""));
    answer.notes.extend(waits(tolerant, "pod", " with an unlimited toleration of the failure"));
    Ok(())
}

/// Deletes the nodes that still exist, with all pods that are on them. Pods of daemon sets end with their node.
pub(super) fn remove_nodes(
    names: &[String],
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
            if matches!(owner(&pod), Some("DaemonSet" | "Node")) {
                record.is_gone(&pod.uid);
            }
        }
        let name: Name = name.as_str().into();
        event(&simulation.engine, Event::RemoveNode(name.clone()))?
            .map_err(|error| Failure::Refused { object: format!("node {name}"), error })?;
    }
    Ok(())
}

/// The kind of the pod's controller.
fn owner(pod: &Pod) -> Option<&str> {
    pod.template.owners.iter().find(|owner| owner.controller).map(|owner| &*owner.kind)
}
