//! Drains nodes as `kubectl drain` does: all are cordoned first; then each is emptied in
//! turn. A pod whose budget allows no eviction is tried again when replacements of pods that
//! were evicted before it are placed.

use std::collections::HashSet;
use std::sync::Arc;

use portolan::log::Event;
use portolan::model::{EventError, Name, Node, Pod, Uid};
use portolan::scheduler::drain::{self, Budgets, DrainOptions, Stays};

use crate::error::Failure;
use crate::simulation::{Simulation, closed, event, recreated, refused};
use crate::text::count;

use super::record::Record;
use super::{Answer, Drained};

/// Cordons and drains the nodes, and places the evicted pods elsewhere.
pub(super) fn drain(
    names: &[String],
    options: DrainOptions,
    simulation: &mut Simulation,
    record: &mut Record,
    answer: &mut Answer,
) -> Result<(), Failure> {
    let mut reader = simulation.engine.reader().map_err(closed)?;
    for name in names {
        let known = reader.refresh().node(name).and_then(|info| info.node().cloned());
        let known = known.ok_or_else(|| {
            let error = EventError::NodeNotFound { name: name.as_str().into() };
            Failure::Usage(format!("--drain {name}: {error}: check the spelling"))
        })?;
        let node = Node { unschedulable: true, ..Node::clone(&known) };
        event(&simulation.engine, Event::UpdateNode(Arc::new(node)))?
            .map_err(|error| Failure::Refused { object: format!("node {name}"), error })?;
    }
    let mut budgets = Budgets::of(reader.refresh());
    let mut bare = 0;
    for name in names {
        let mut drain = Drain { node: name.as_str().into(), options, budgets: &mut budgets };
        let waits = drain.run(simulation, record, answer, &mut bare)?;
        answer.drained.push(Drained { node: name.clone(), waits });
    }
    if bare > 0 {
        let pods = count(bare, "evicted pod");
        answer.notes.push(format!("no controller would recreate {pods}"));
    }
    Ok(())
}

/// The drain of one node.
struct Drain<'a> {
    node: Name,
    options: DrainOptions,
    budgets: &'a mut Budgets,
}

impl Drain<'_> {
    /// Empties the node as far as possible. Returns how often it waited for replacements.
    fn run(
        &mut self,
        simulation: &mut Simulation,
        record: &mut Record,
        answer: &mut Answer,
        bare: &mut usize,
    ) -> Result<usize, Failure> {
        let mut reader = simulation.engine.reader().map_err(closed)?;
        let mut charged: Vec<Pod> = Vec::new();
        let (mut waits, mut held): (usize, HashSet<Uid>) = (0, HashSet::new());
        loop {
            let (going, blocked) = self.round(reader.refresh(), &mut charged);
            if going.is_empty() {
                let blocked = blocked.into_iter().map(|(pod, why)| (pod, self.node.clone(), why));
                answer.blocked.extend(blocked);
                return Ok(waits);
            }
            waits += usize::from(going.iter().any(|pod| held.contains(&pod.uid)));
            held = blocked.into_iter().map(|(pod, _)| pod.uid).collect();
            for pod in &going {
                let gone = event(&simulation.engine, Event::remove_pod(pod))?;
                gone.map_err(|error| refused(pod, error))?;
                *bare += usize::from(!pod.template.owners.iter().any(|owner| owner.controller));
            }
            for pod in going {
                let pod = recreated(pod);
                if record.is_scheduled(&pod) {
                    simulation.arrive(&pod)?;
                }
                record.arrives(pod, Some(self.node.clone()));
                simulation.settle(record)?;
            }
            simulation.let_permits_end(record)?;
            let now = reader.refresh();
            charged.retain(|pod| {
                let is_ready = now.pod(&pod.uid).is_some();
                if is_ready {
                    self.budgets.give_back(pod);
                }
                !is_ready
            });
        }
    }

    /// The pods that may be evicted now, and those that block the drain. Pods whose budget was
    /// charged are added to `charged`.
    fn round(
        &mut self,
        cluster: &portolan::Cluster,
        charged: &mut Vec<Pod>,
    ) -> (Vec<Pod>, Vec<(Pod, Stays)>) {
        let (mut going, mut blocked) = (Vec::new(), Vec::new());
        let Some(info) = cluster.node(&self.node) else { return (going, blocked) };
        let mut pods: Vec<_> = info.pods().collect();
        pods.sort_by(|a, b| (a.namespace(), a.name()).cmp(&(b.namespace(), b.name())));
        for info in pods {
            let pod = info.to_pod();
            match drain::stays(&info, self.options) {
                Some(why) if why.is_in_the_way() => blocked.push((pod, why)),
                Some(_) => {}
                // A terminating pod is evicted without charging a budget.
                None if info.deletion_time().is_some() => going.push(pod),
                None => match self.budgets.take(&info) {
                    Ok(()) => {
                        charged.push(pod.clone());
                        going.push(pod);
                    }
                    Err(budget) => blocked.push((pod, Stays::Budget(budget))),
                },
            }
        }
        (going, blocked)
    }
}
