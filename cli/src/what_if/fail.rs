//! Nodes that fail and do not return.
//!
//! The node lifecycle controller taints a failed node, and each pod is deleted after the time for which it tolerates
//! the taint (300 s unless the pod says otherwise). Disruption budgets do not apply. Controllers replace their pods at
//! that time, with two exceptions, because nothing confirms that the old pod has stopped:
//!
//! - A StatefulSet replaces a pod only when its object is gone.
//! - A pod that tolerates the taint forever is not deleted.
//!
//! The replacements of both wait until the Node has the taint `out-of-service` or is deleted, which cloud providers do
//! when the machine is gone. That is the second moment of the answer. The object of a deleted pod remains until then,
//! since no kubelet ends the pod. It counts for the anti-affinity and the claims of other pods, but not for their
//! spread.
//!
//! Pods of daemon sets and mirror pods end with their node, and pods without a controller are lost.

use std::collections::HashSet;

use portolan::cache::Event;
use portolan::model::{Name, Node, Pod, Taint, TaintEffect, Timestamp, Uid};
use portolan_k8s::PodFacts;

use crate::error::CommandError;
use crate::replacement::{Replacement, is_of_node, recreated};

use super::drain::{known, once};
use super::groups;
use super::record::{End, Record};
use super::world::World;

/// A pod that is deleted because its node has failed.
struct Deleted {
    /// For how many seconds it tolerates the failure.
    after: i64,
    pod: Pod,
    node: Name,
    /// Whether its object is deleted at once, although no kubelet confirms its end.
    is_gone: bool,
    /// Whether another pod takes its place now.
    is_replaced: bool,
}

/// Nodes that have failed.
#[derive(Default)]
pub(super) struct Failed {
    pub(super) nodes: Vec<Name>,
    /// The pods that are replaced when the Node objects are deleted, and their nodes.
    waiting: Vec<(Pod, Name)>,
    /// The pods that were on the nodes and are not deleted.
    remaining: HashSet<Uid>,
}

/// Fails the nodes at the same moment, and places the pods that are replaced while their Node objects exist.
pub(super) fn fail(
    names: &[String],
    facts: &PodFacts,
    world: &mut World,
) -> Result<Failed, CommandError> {
    let mut reader = world.reader()?;
    let mut failed = Failed::default();
    let mut deleted: Vec<Deleted> = Vec::new();
    for name in once(names) {
        let node = known(reader.refresh(), "--fail-node", &name)?;
        let taints = [TaintEffect::NoSchedule, TaintEffect::NoExecute]
            .map(|effect| Taint::new(Taint::UNREACHABLE, "", effect));
        let taints = node.taints.iter().cloned().chain(taints).collect();
        world.update(Node { taints, ..Node::clone(&node) })?;
        for info in reader.refresh().node(&name).iter().flat_map(|info| info.pods()) {
            let stays = facts.stays_on_failed_node(&info.uid());
            deleted.extend(failed.judge(info.to_pod(), &node, stays, &mut world.record));
        }
        failed.nodes.push(node.name.clone());
    }
    failed.waiting.sort_by_cached_key(|(pod, _)| pod.key());
    delete(deleted, &mut failed.remaining, world)?;
    Ok(failed)
}

/// Deletes pods in the order of their times, and places those that replace them.
fn delete(
    mut deleted: Vec<Deleted>,
    remaining: &mut HashSet<Uid>,
    world: &mut World,
) -> Result<(), CommandError> {
    deleted.sort_by_cached_key(|it| (it.after, it.pod.key()));
    // Pods with the same time are deleted together, before any of them is replaced.
    for together in deleted.chunk_by(|a, b| a.after == b.after) {
        for Deleted { pod, is_gone, .. } in together {
            world.remove(pod)?;
            remaining.remove(&pod.uid);
            if !is_gone {
                world.simulation.apply(pod, Event::add_pod(terminating(pod)))?;
            }
        }
        for Deleted { pod, node, is_replaced, .. } in together {
            match is_replaced {
                true => world.enter(&recreated(pod.clone()), Some(node))?,
                false => world.record.ends(pod, Some(node), End::Deleted),
            }
        }
        world.expire_permits()?;
    }
    Ok(())
}

/// The object of a deleted pod. Its replacement has the uid of the pod in this simulation.
fn terminating(pod: &Pod) -> Pod {
    let uid = Uid::new(&format!("{}/terminating", pod.uid));
    Pod { uid, deletion_time: Some(Timestamp(0)), ..pod.clone() }
}

impl Failed {
    /// Decides what becomes of a pod that tolerates the failure for `stays` seconds, or forever. Returns it if it is
    /// deleted before the Node is.
    fn judge(
        &mut self,
        pod: Pod,
        node: &Node,
        stays: Option<i64>,
        record: &mut Record,
    ) -> Option<Deleted> {
        self.remaining.insert(pod.uid.clone());
        let mut out_of_service =
            node.taints.iter().filter(|taint| *taint.key == *Taint::OUT_OF_SERVICE);
        // The objects of such a node's pods are deleted once the pods are, whatever these tolerate (gc_controller.go
        // `gcTerminating`).
        let is_gone = out_of_service.clone().next().is_some();
        let is_forced = out_of_service.any(|taint| {
            let mut tolerations = pod.template.tolerations.iter();
            taint.effect == TaintEffect::NoExecute && !tolerations.any(|it| it.tolerates(taint))
        });
        let is_terminating = pod.deletion_time.is_some();
        let replacement = match is_terminating {
            true => record.replacements.of(&pod),
            false => record.replacements.disrupted(&pod),
        };
        let name = &node.name;
        let deleted = |pod, after, is_replaced| {
            Some(Deleted { after, pod, node: name.clone(), is_gone, is_replaced })
        };
        match replacement {
            _ if is_of_node(&pod.template) => {
                if !is_terminating {
                    record.ends(&pod, Some(name), End::Deleted);
                }
                None
            }
            Replacement::WhenGone if is_terminating && is_gone => deleted(pod, 0, true),
            // The replacement exists already, if there is one.
            _ if is_terminating && is_gone => deleted(pod, 0, false),
            Replacement::WhenGone if is_terminating => {
                self.waiting.push((pod, name.clone()));
                None
            }
            _ if is_terminating => None,
            Replacement::Never(why) => {
                let why = format!("its node has failed, {why}");
                record.ends(&pod, Some(name), End::Lost(name.clone(), why));
                None
            }
            _ if is_forced => deleted(pod, 0, true),
            replacement => match stays {
                Some(after) if is_gone || replacement == Replacement::AtOnce => {
                    deleted(pod, after, true)
                }
                _ => {
                    let forever = if stays.is_none() {
                        " and the pod tolerates it without a limit"
                    } else {
                        ""
                    };
                    let taint = format!(" or has the taint {}", Taint::OUT_OF_SERVICE);
                    let or = if is_gone { "" } else { &taint };
                    let why = format!(
                        "node {name} has failed{forever}: replaced when the Node is deleted{or}"
                    );
                    record.ends(&pod, Some(name), End::Unreachable(why));
                    self.waiting.push((pod, name.clone()));
                    None
                }
            },
        }
    }

    /// Ends the pods that have been placed on the nodes since they failed, because they tolerate the taints.
    pub(super) fn end_placed(&mut self, world: &mut World) -> Result<(), CommandError> {
        let cluster = world.cluster()?;
        for name in &self.nodes {
            let pods = cluster.node(name).into_iter().flat_map(|info| info.pods());
            let pods = pods.filter(|pod| pod.deletion_time().is_none()).map(|pod| pod.to_pod());
            for pod in pods.filter(|pod| !self.remaining.contains(&pod.uid)) {
                let why = format!("node {name} has failed, and the pod tolerates its taints");
                world.record.ends(&pod, None, End::Unreachable(why));
                self.waiting.push((pod, name.clone()));
            }
        }
        Ok(())
    }

    /// Deletes the objects of the nodes, and replaces the pods that have waited for it.
    pub(super) fn delete(self, world: &mut World) -> Result<(), CommandError> {
        remove_nodes(&self.nodes, world)?;
        let mut ended = Vec::new();
        for (pod, node) in self.waiting {
            match world.record.replacements.of(&pod) {
                Replacement::Never(why) => {
                    world.record.ends(&pod, Some(&node), End::Lost(node.clone(), why.to_owned()));
                }
                _ => ended.push(Pod { node_name: Some(node), ..pod }),
            }
        }
        for pod in groups::with_groups(ended, world)? {
            let node = pod.node_name.clone();
            world.enter(&recreated(pod), node.as_ref())?;
        }
        world.settle()?;
        world.expire_permits()
    }
}

/// Deletes the nodes that still exist, with all pods that are on them. Pods of daemon sets end with their node.
pub(super) fn remove_nodes(names: &[Name], world: &mut World) -> Result<(), CommandError> {
    let mut reader = world.reader()?;
    for name in names {
        let Some(info) = reader.refresh().node(name) else { continue };
        let pods: Vec<Pod> = info.pods().map(|pod| pod.to_pod()).collect();
        for pod in pods {
            world.remove(&pod)?;
            if is_of_node(&pod.template) || pod.deletion_time.is_some() {
                world.record.ends(&pod, Some(name), End::Deleted);
            }
        }
        world.apply(Event::RemoveNode(name.clone()), || format!("node {name}"))?;
    }
    Ok(())
}
