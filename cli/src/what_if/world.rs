//! A simulated cluster with the record of its pods: creates pods, schedules them, and ends the pods of failed jobs, until
//! nothing is left to do at a moment.

use std::sync::Arc;

use portolan::cache::{Event, Reader, Snapshot};
use portolan::model::{Name, Node, Object, Pod, Template};

use crate::error::CommandError;
use crate::simulation::{Simulation, closed, event};

use super::record::{End, Record};

/// A simulated cluster, and the record of the pods that the simulation has touched.
pub(super) struct World {
    pub(super) simulation: Simulation,
    pub(super) record: Record,
}

impl World {
    pub(super) fn reader(&self) -> Result<Reader, CommandError> {
        self.simulation.engine.reader().map_err(closed)
    }

    /// The newest version of the cluster.
    pub(super) fn cluster(&self) -> Result<Arc<Snapshot>, CommandError> {
        Ok(self.reader()?.snapshot())
    }

    /// Applies an event that concerns this object.
    pub(super) fn apply(
        &self,
        of: Event,
        object: impl FnOnce() -> String,
    ) -> Result<(), CommandError> {
        let refused = |error| CommandError::Refused { object: object(), error };
        event(&self.simulation.engine, of)?.map(drop).map_err(refused)
    }

    pub(super) fn put(&self, object: Object) -> Result<(), CommandError> {
        let name = format!("{} {}", object.kind().as_str(), object.name());
        self.apply(Event::PutObject(object), || name)
    }

    /// Replaces a node's object.
    pub(super) fn update(&self, node: Node) -> Result<(), CommandError> {
        let name = node.name.clone();
        self.apply(Event::update_node(node), || format!("node {name}"))
    }

    /// Cordons or uncordons the node.
    pub(super) fn cordon(&self, node: &Node, unschedulable: bool) -> Result<(), CommandError> {
        self.update(Node { unschedulable, ..node.clone() })
    }

    /// Removes a pod from its node.
    pub(super) fn remove(&mut self, pod: &Pod) -> Result<(), CommandError> {
        self.simulation.remove(pod)
    }

    /// Removes a pod from the queue.
    pub(super) fn dequeue(&self, pod: &Pod) -> Result<(), CommandError> {
        self.simulation.apply(pod, Event::RemovePending(pod.uid.clone()))
    }

    /// Deletes a pod that waits.
    pub(super) fn delete_waiting(&mut self, pod: &Pod) -> Result<(), CommandError> {
        self.dequeue(pod)?;
        self.simulation.free_claims(pod)
    }

    /// Schedules and binds pods until nothing is left to do at this moment.
    pub(super) fn schedule(&mut self) -> Result<(), CommandError> {
        self.simulation.settle(&mut self.record)
    }

    /// See [`Simulation::expire_permits`].
    pub(super) fn expire_permits(&mut self) -> Result<(), CommandError> {
        self.simulation.expire_permits(&mut self.record)
    }

    /// Creates a pod that is new, or has left a node, and settles its effects. A pod that is being deleted is not
    /// scheduled (schedule_one.go `skipPodSchedule`).
    pub(super) fn enter(&mut self, pod: &Pod, from: Option<&Name>) -> Result<(), CommandError> {
        if pod.deletion_time.is_some() {
            self.record.ends(pod, None, End::Skipped);
            return Ok(());
        }
        self.create(pod, from)?;
        self.settle()
    }

    /// Adds a pod to the queue, unless its controller does not create it yet or the API server refuses it.
    fn create(&mut self, pod: &Pod, from: Option<&Name>) -> Result<(), CommandError> {
        let reader = self.reader()?;
        match self.record.creation.create(pod, from.is_some(), || reader.snapshot()) {
            Ok(pod) => {
                self.record.arrives(&pod, from);
                if self.record.is_scheduled(&pod) {
                    self.simulation.arrive(&pod)?;
                }
            }
            Err(why) => self.record.ends(pod, from, End::Uncreated(why)),
        }
        Ok(())
    }

    /// Schedules pods, ends the pods of jobs that have failed, and creates pods that waited for others, until nothing is
    /// left to do at this moment.
    pub(super) fn settle(&mut self) -> Result<(), CommandError> {
        loop {
            self.schedule()?;
            let failed = self.record.replacements.take_failed();
            let ready = self.record.creation.take_ready();
            if failed.is_empty() && ready.is_empty() {
                return Ok(());
            }
            for job in failed {
                self.end_job(&job)?;
                self.record.failed_jobs.push(job);
            }
            for pod in ready {
                self.create(&pod, None)?;
            }
        }
    }

    /// Ends the pods of a job that has failed, as its controller does.
    fn end_job(&mut self, (namespace, name): &(Name, Name)) -> Result<(), CommandError> {
        let is_of_job = |template: &Template| {
            let owner = template.controller();
            template.namespace == *namespace
                && owner.is_some_and(|owner| &*owner.kind == "Job" && owner.name == *name)
        };
        let now = self.cluster()?;
        let placed = now.nodes().flat_map(|node| node.pods());
        let placed = placed.filter(|it| is_of_job(it.template())).map(|pod| pod.to_pod());
        let placed: Vec<Pod> = placed.collect();
        let others = self.record.waiting().chain(self.record.uncreated());
        let others: Vec<Pod> = others.filter(|pod| is_of_job(&pod.template)).cloned().collect();
        for pod in placed {
            self.remove(&pod)?;
            let node = pod.node_name.clone().unwrap_or_default();
            let end = End::Lost(node.clone(), "its Job fails".to_owned());
            self.record.ends(&pod, Some(&node), end);
        }
        for pod in others {
            if self.simulation.queue.with(|queue, _| queue.get(&pod.uid).is_some()) {
                self.delete_waiting(&pod)?;
            }
            self.record.ends(&pod, None, End::Deleted);
        }
        Ok(())
    }

    /// Adds pods one after the other, as a replay does, and settles their effects.
    pub(super) fn arrive(&mut self, pods: &[Pod]) -> Result<(), CommandError> {
        for pod in pods {
            self.enter(&Pod { node_name: None, ..pod.clone() }, None)?;
        }
        self.expire_permits()
    }
}
