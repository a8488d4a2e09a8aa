//! Replay without the scheduling queue: pods are decided in file order, each once. Used if
//! no pod can preempt or wait for another.

use std::time::Instant;

use portolan::cache::Event;
use portolan::model::Pod;
use portolan::plugin::{AttemptResult, Measurement, Recorder};
use portolan::{Algorithm, Decision, Failure};

use crate::error::CommandError;
use crate::simulation::{closed, refused};

use super::follower::State;
use super::meter::Waiting;
use super::run::Replay;

pub(super) fn run(replay: &mut Replay<'_>, mut scheduler: Algorithm) -> Result<(), CommandError> {
    for at in 0..replay.arrivals {
        replay.check_wanted()?;
        lasts(replay, at, Some(at + 1))?;
        if let Some(error) = place(replay, &mut scheduler, at)? {
            let reasons: Vec<String> = match error {
                Failure::Fit(fit) => fit.reasons.into_keys().collect(),
                other => vec![other.to_string()],
            };
            replay.meter.wait(at, Some(&reasons));
            replay.note_failed_at(at, reasons);
        }
        let failed = replay.outcome.failed;
        replay
            .meter
            .sample((at + 1) as f64, || Waiting { unschedulable: failed, ..Waiting::default() });
        replay.bar.inc(1);
    }
    lasts(replay, replay.arrivals, None)
}

/// Reports how long the state after this many arrivals lasts to the follower, if there is one.
fn lasts(replay: &Replay<'_>, at: usize, until: Option<usize>) -> Result<(), CommandError> {
    replay.lasts(at as f64, until.map(|until| until as f64), &|cluster| {
        let arrived = replay.workload.arrivals.iter().zip(&replay.outcome.fates).take(at);
        let left = arrived.filter(|(_, fate)| fate.node.is_none());
        let pending = left.map(|(arrival, _)| arrival.pod.clone()).collect();
        State { cluster, pending, claims: None, creation: replay.workload.creation.clone() }
    })
}

/// One cycle; returns the error if the pod cannot be placed.
fn place(
    replay: &mut Replay<'_>,
    scheduler: &mut Algorithm,
    at: usize,
) -> Result<Option<Failure>, CommandError> {
    let pod = &replay.workload.arrivals[at].pod;
    let started = Instant::now();
    let decided = match scheduler.framework().pre_enqueue(pod) {
        Ok(()) => decide(replay, scheduler, pod),
        // Scheduling gates are never removed during a replay.
        Err(status) => Err(status.into()),
    };
    let assumed = match &decided {
        Ok(decision) => {
            let pod = decision.place(pod.clone());
            let assumed = replay
                .engine
                .submit(Event::assume(pod))
                .map_err(|_| closed("the log is closed"))?;
            Some(assumed.wait().map_err(closed)?)
        }
        Err(_) => None,
    };
    let took = started.elapsed();
    replay.note_cycle(pod, decided.as_ref().ok().map(|d| &d.node), took);
    match (decided, assumed) {
        (Ok(decision), Some(assumed)) => {
            assumed.map_err(|error| refused(pod, error))?;
            // The confirmation by the API server: the pod is bound.
            let bound = decision.place(pod.clone());
            replay
                .event(Event::AddPod(std::sync::Arc::new(bound)))?
                .map_err(|error| refused(pod, error))?;
            if let Some(recorder) = scheduler.framework().recorder() {
                let took = started.elapsed();
                recorder.record(Measurement::Attempt(AttemptResult::Scheduled), took);
                recorder.record(Measurement::Scheduled { attempts: 1, was_flushed: false }, took);
            }
            replay.outcome.placed += 1;
            replay.outcome.fates[at].node = Some(decision.node.clone());
            replay.meter.add_pod(pod, &decision.node);
            replay.outcome.placements[at] = Some(decision.node);
            Ok(None)
        }
        (Err(error), _) => Ok(Some(error)),
        (Ok(_), None) => Ok(None),
    }
}

fn decide(
    replay: &mut Replay<'_>,
    scheduler: &mut Algorithm,
    pod: &Pod,
) -> Result<Decision, Failure> {
    let is_recorded = scheduler.framework().recorder().is_some();
    let started = is_recorded.then(Instant::now);
    let decided = scheduler.schedule(replay.reader.refresh(), pod);
    if let (Some(recorder), Some(started)) = (scheduler.framework().recorder(), started) {
        record(recorder, &decided, started);
    }
    decided
}

/// Records a decision; for a placed pod, the rest is recorded when it is bound.
fn record(recorder: &dyn Recorder, decided: &Result<Decision, Failure>, started: Instant) {
    let took = started.elapsed();
    recorder.record(Measurement::Algorithm, took);
    match decided {
        Ok(_) => {}
        Err(Failure::Fit(_) | Failure::NoNodes) => {
            recorder.record(Measurement::Attempt(AttemptResult::Unschedulable), took);
        }
        Err(_) => recorder.record(Measurement::Attempt(AttemptResult::Error), took),
    }
}
