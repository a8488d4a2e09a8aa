//! Creates pods, schedules them, and ends the pods of failed jobs, until nothing is left to do at a moment.

use portolan::cache::Event;
use portolan::model::{Name, Pod, Template};

use crate::error::CommandError;
use crate::simulation::{Simulation, closed, event, refused};

use super::record::{End, Record};

/// Creates a pod that is new, or has left a node, and settles its effects. A pod that is being deleted is not scheduled
/// (schedule_one.go `skipPodSchedule`).
pub(super) fn enter(
    simulation: &mut Simulation,
    record: &mut Record,
    pod: &Pod,
    from: Option<&Name>,
) -> Result<(), CommandError> {
    if pod.deletion_time.is_some() {
        record.ends(pod, None, End::Skipped);
        return Ok(());
    }
    create(simulation, record, pod, from)?;
    settle(simulation, record)
}

/// Adds a pod to the queue, unless its controller does not create it yet or the API server refuses it.
fn create(
    simulation: &mut Simulation,
    record: &mut Record,
    pod: &Pod,
    from: Option<&Name>,
) -> Result<(), CommandError> {
    let reader = simulation.engine.reader().map_err(closed)?;
    match record.creation.create(pod, from.is_some(), || reader.snapshot()) {
        Ok(pod) => {
            record.arrives(&pod, from);
            if record.is_scheduled(&pod) {
                simulation.arrive(&pod)?;
            }
        }
        Err(why) => record.ends(pod, from, End::Uncreated(why)),
    }
    Ok(())
}

/// Schedules pods, ends the pods of jobs that have failed, and creates pods that waited for others, until nothing is
/// left to do at this moment.
pub(super) fn settle(simulation: &mut Simulation, record: &mut Record) -> Result<(), CommandError> {
    loop {
        simulation.settle(record)?;
        let failed = record.replacements.take_failed();
        let ready = record.creation.take_ready();
        if failed.is_empty() && ready.is_empty() {
            return Ok(());
        }
        for job in failed {
            end_job(&job, simulation, record)?;
            record.failed_jobs.push(job);
        }
        for pod in ready {
            create(simulation, record, &pod, None)?;
        }
    }
}

/// Ends the pods of a job that has failed, as its controller does.
fn end_job(
    (namespace, name): &(Name, Name),
    simulation: &mut Simulation,
    record: &mut Record,
) -> Result<(), CommandError> {
    let is_of_job = |template: &Template| {
        let owner = template.controller();
        template.namespace == *namespace
            && owner.is_some_and(|owner| &*owner.kind == "Job" && owner.name == *name)
    };
    let now = simulation.engine.reader().map_err(closed)?.snapshot();
    let placed = now.nodes().flat_map(|node| node.pods()).filter(|it| is_of_job(it.template()));
    let placed: Vec<Pod> = placed.map(|pod| pod.to_pod()).collect();
    let others = record.waiting().chain(record.uncreated());
    let others: Vec<Pod> = others.filter(|pod| is_of_job(&pod.template)).cloned().collect();
    for pod in placed {
        let gone = event(&simulation.engine, Event::remove_pod(&pod))?;
        gone.map_err(|error| refused(&pod, error))?;
        let node = pod.node_name.clone().unwrap_or_default();
        record.ends(&pod, Some(&node), End::Lost(node.clone(), "its Job fails".to_owned()));
    }
    for pod in others {
        if simulation.queue.with(|queue, _| queue.get(&pod.uid).is_some()) {
            let gone = event(&simulation.engine, Event::RemovePending(pod.uid.clone()))?;
            gone.map_err(|error| refused(&pod, error))?;
        }
        record.ends(&pod, None, End::Deleted);
    }
    Ok(())
}

/// Adds pods one after the other, as a replay does, and settles their effects.
pub(super) fn arrive(
    simulation: &mut Simulation,
    record: &mut Record,
    pods: &[Pod],
) -> Result<(), CommandError> {
    for pod in pods {
        enter(simulation, record, &Pod { node_name: None, ..pod.clone() }, None)?;
    }
    simulation.expire_permits(record)
}
