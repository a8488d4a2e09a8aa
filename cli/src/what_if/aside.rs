//! Pods that no eviction from a cordoned node can help.
//!
//! Each pod that leaves a node makes the queue try all pods again that were rejected for their resources, as in
//! kube-scheduler. While thousands of nodes are drained, that is quadratic, and useless: the freed resources are on
//! cordoned nodes. Pods whose verdicts depend on nothing but the node are therefore taken from the queue, and return
//! when another node may have changed. Each is tried again then, so its outcome and its message are those of the queue.

use portolan::model::{Pod, Taint, TaintEffect};
use portolan::plugin::{Cycle, CycleState, Point};
use portolan::scheduler::queue::Place;

use crate::error::CommandError;

use super::world::World;

/// The pods that are set aside, in the order in which they were rejected.
#[derive(Default)]
pub(super) struct Aside(Vec<Pod>);

impl Aside {
    /// Sets the pods aside that were rejected since the last call.
    pub(super) fn take(&mut self, world: &mut World) -> Result<(), CommandError> {
        for uid in world.record.take_rejected() {
            let waiting = world.simulation.queue.with(|queue, _| {
                let is_waiting = queue.place(&uid) == Some(Place::Unschedulable);
                queue.get(&uid).filter(|_| is_waiting).map(|queued| queued.pod.clone())
            });
            let Some(pod) = waiting.filter(|pod| pod.nominated_node_name.is_none()) else {
                continue;
            };
            if needs_open_node(&pod, world)? {
                world.dequeue(&pod)?;
                self.0.push(pod);
            }
        }
        Ok(())
    }

    /// Returns the pods to the queue, and settles them.
    pub(super) fn put_back(&mut self, world: &mut World) -> Result<(), CommandError> {
        // A pod has ended by now if its job has failed.
        for pod in self.0.drain(..).filter(|pod| !world.record.has_ended(&pod.uid)) {
            world.simulation.arrive(&pod)?;
        }
        world.settle()
    }
}

/// Whether only a change of a node that is not cordoned can help the pod.
fn needs_open_node(pod: &Pod, world: &World) -> Result<bool, CommandError> {
    let cordon = Taint::new(Taint::UNSCHEDULABLE, "", TaintEffect::NoSchedule);
    let Some((framework, _)) = world.record.profiles.get(pod) else { return Ok(false) };
    let rejects_cordoned = |of: &str| of == "NodeUnschedulable";
    let mut filters = framework.plugins_at(Point::Filter);
    if pod.template.group().is_some()
        || pod.template.tolerations.iter().any(|it| it.tolerates(&cordon))
        || !filters.any(|(plugin, _)| rejects_cordoned(plugin.info().name()))
    {
        return Ok(false);
    }
    let cluster = world.cluster()?;
    let state = CycleState::default();
    Ok(framework.pre_filter(Cycle::new(&cluster, pod, &state)).are_local())
}
