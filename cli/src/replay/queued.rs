//! Replay through the scheduling queue, on a simulated clock: pods wait by priority, are
//! retried after events that may help, are preempted, and wait for their pod group
//! ([`crate::simulation`]). A preempted pod runs for its whole duration again.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use portolan::model::{Name, Pod, Timestamp, Uid};
use portolan::{Framework, Profiles};

use crate::creation::Creation;
use crate::error::CommandError;
use crate::replacement::Replacement;
use crate::simulation::{Observer, Rejection, Simulation, closed};
use crate::text::count;

use super::follower::State;
use super::meter::Waiting;
use super::run::Replay;
use super::{Mode, Source};

/// The placements of a pod so far.
#[derive(Default)]
struct History {
    has_arrived: bool,
    node: Option<Name>,
    /// The number of placements; an end event applies only to the latest one.
    runs: u32,
    has_ended: bool,
    /// The reasons of the last failed attempt.
    reasons: Vec<String>,
}

impl History {
    /// Whether the pod exists without a node.
    fn is_left(&self) -> bool {
        self.has_arrived && self.node.is_none() && !self.has_ended
    }
}

struct Queued<'r, 'w> {
    simulation: Simulation,
    frameworks: Profiles<Arc<Framework>>,
    record: Record<'r, 'w>,
}

/// The record of the replay so far.
struct Record<'r, 'w> {
    replay: &'r mut Replay<'w>,
    /// The arriving pods, then the pods placed before the replay.
    pods: Vec<&'w Pod>,
    by_uid: HashMap<Uid, usize>,
    histories: Vec<History>,
    /// The arrival time and the duration of each pod; empty in fill mode.
    times: Vec<(Timestamp, Duration)>,
    ends: BinaryHeap<Reverse<(Timestamp, usize, u32)>>,
    creation: Creation,
}

pub(super) fn run(
    replay: &mut Replay<'_>,
    simulation: Simulation,
    frameworks: Profiles<Arc<Framework>>,
    source: &Source,
) -> Result<(), CommandError> {
    let workload = replay.workload;
    let pods: Vec<&Pod> =
        workload.arrivals.iter().map(|arrival| &arrival.pod).chain(&workload.placed).collect();
    let mut histories: Vec<History> = pods.iter().map(|_| History::default()).collect();
    for (history, pod) in histories.iter_mut().zip(&pods).skip(workload.arrivals.len()) {
        (history.has_arrived, history.node) = (true, pod.placed_on().cloned());
    }
    let record = Record {
        by_uid: pods.iter().enumerate().map(|(at, pod)| (pod.uid.clone(), at)).collect(),
        histories,
        pods,
        times: Vec::new(),
        ends: BinaryHeap::new(),
        creation: workload.creation.clone(),
        replay,
    };
    let mut queued = Queued { simulation, frameworks, record };
    let load = source.options.load.unwrap_or(1.0);
    match source.options.mode {
        Mode::Fill => queued.fill()?,
        Mode::Timed => {
            queued.record.times = workload.times(load)?;
            for (fate, (arrival, _)) in
                queued.record.replay.outcome.fates.iter_mut().zip(&queued.record.times)
            {
                fate.arrived = Some(seconds(*arrival));
            }
            queued.timed(load)?;
        }
    }
    queued.finish()
}

fn seconds(time: Timestamp) -> f64 {
    time.0 as f64 / 1e9
}

impl Queued<'_, '_> {
    /// Adds one pod after the other; the clock does not advance.
    fn fill(&mut self) -> Result<(), CommandError> {
        let arrivals = self.record.replay.arrivals;
        for at in 0..arrivals {
            self.lasts(at as f64, Some((at + 1) as f64))?;
            self.arrive(at)?;
            self.settle()?;
            self.sample((at + 1) as f64);
        }
        self.simulation.expire_permits(&mut self.record)?;
        self.lasts(arrivals as f64, None)
    }

    /// Reports how long the state lasts to the follower, if there is one.
    fn lasts(&self, at: f64, until: Option<f64>) -> Result<(), CommandError> {
        let Record { replay, pods, histories, creation, .. } = &self.record;
        replay.lasts(at, until, &|cluster| {
            let left = histories.iter().zip(pods).filter(|(history, pod)| {
                // A pod that waits for a permit is assumed.
                history.is_left() && cluster.pod(&pod.uid).is_none()
            });
            let pending = left.map(|(_, pod)| Pod { node_name: None, ..(*pod).clone() }).collect();
            let claims = self.simulation.claims.clone();
            State { cluster, pending, claims, creation: creation.clone() }
        })
    }

    /// At each moment ends are handled before arrivals, so that waiting pods find the freed
    /// capacity.
    fn timed(&mut self, load: f64) -> Result<(), CommandError> {
        let mut arrivals: Vec<usize> = (0..self.record.times.len()).collect();
        arrivals.sort_by_key(|at| self.record.times[*at].0);
        let first = arrivals.first().map(|at| self.record.times[*at].0);
        self.record.replay.outcome.began = self.record.replay.workload.began(first, load);
        let start = first.unwrap_or(Timestamp(0));
        let mut arrivals = arrivals.into_iter().peekable();
        let (mut until, mut elapsed) = (None, Duration::ZERO);
        loop {
            let arrives = arrivals.peek().map(|at| self.record.times[*at].0);
            let ends = self.record.ends.peek().map(|Reverse((end, ..))| *end);
            let Some(next) = [arrives, ends].into_iter().flatten().min() else { break };
            self.simulation.now = [Some(next), self.simulation.next_permit()]
                .into_iter()
                .flatten()
                .min()
                .unwrap_or(next);
            let before = elapsed.as_secs_f64();
            elapsed = self.simulation.now.since(start);
            self.lasts(before, Some(elapsed.as_secs_f64()))?;
            while let Some(Reverse((end, at, run))) = self.record.ends.peek().copied()
                && end <= self.simulation.now
            {
                self.record.ends.pop();
                self.end(at, run)?;
            }
            self.settle()?;
            while let Some(at) =
                arrivals.next_if(|at| self.record.times[*at].0 <= self.simulation.now)
            {
                self.arrive(at)?;
            }
            self.settle()?;
            self.record.replay.outcome.duration = Some(elapsed.as_secs_f64());
            if until.is_none() {
                self.record.replay.meter.advance(elapsed.as_secs_f64());
            }
            if until.is_none_or(|until| elapsed <= until) {
                self.sample(elapsed.as_secs_f64());
            }
            if until.is_none() && arrivals.peek().is_none() && self.waiting() == Waiting::default()
            {
                // From here on the cluster only drains, which may take a hundred times as long:
                // the samples end soon.
                until = Some(elapsed + elapsed / 10);
            }
        }
        self.simulation.expire_permits(&mut self.record)?;
        self.lasts(elapsed.as_secs_f64(), None)
    }

    fn arrive(&mut self, at: usize) -> Result<(), CommandError> {
        self.record.replay.bar.inc(1);
        self.record.histories[at].has_arrived = true;
        self.create(at)
    }

    /// Adds a pod to the queue, unless its controller does not create it yet or the API server refuses it.
    fn create(&mut self, at: usize) -> Result<(), CommandError> {
        let Record { creation, histories, pods, .. } = &mut self.record;
        let reader = self.simulation.engine.reader().map_err(closed)?;
        match creation.create(pods[at], false, || reader.snapshot()) {
            Ok(pod) => self.simulation.arrive(&pod),
            Err(why) => {
                histories[at].reasons = vec![why];
                Ok(())
            }
        }
    }

    /// Schedules pods, and creates those that waited for others, until nothing is left to do at this moment.
    fn settle(&mut self) -> Result<(), CommandError> {
        loop {
            self.simulation.settle(&mut self.record)?;
            let ready = self.record.creation.take_ready();
            if ready.is_empty() {
                return Ok(());
            }
            for pod in ready {
                if let Some(at) = self.record.by_uid.get(&pod.uid).copied() {
                    self.create(at)?;
                }
            }
        }
    }

    /// Ends a pod, unless it was placed again since this end was planned.
    fn end(&mut self, at: usize, run: u32) -> Result<(), CommandError> {
        let Record { replay, pods, histories, creation, .. } = &mut self.record;
        let history = &mut histories[at];
        if history.runs != run {
            return Ok(());
        }
        let Some(node) = history.node.take() else { return Ok(()) };
        history.has_ended = true;
        creation.is_gone(pods[at]);
        if let Some(fate) = replay.outcome.fates.get_mut(at) {
            fate.ended = Some(seconds(self.simulation.now));
        }
        replay.meter.remove_pod(pods[at], &node);
        self.simulation.remove(&pods[at].clone().on(node))
    }

    fn waiting(&self) -> Waiting {
        let figures = self.simulation.queue.with(|queue, _| queue.figures());
        let unschedulable = figures.active + figures.backoff + figures.unschedulable;
        Waiting { unschedulable, gated: figures.gated, permit: self.simulation.permits() }
    }

    fn sample(&mut self, at: f64) {
        let waiting = self.waiting();
        self.record.replay.meter.sample(at, || waiting);
    }

    fn finish(self) -> Result<(), CommandError> {
        let Queued { simulation, frameworks, record } = self;
        let Record { replay, histories, pods, .. } = record;
        if let Some(metrics) = replay.metrics {
            simulation.queue.with(|queue, _| metrics.queue(queue));
            metrics.cycles("0", simulation.scheduling.figures());
        }
        let arrived = replay.workload.arrivals.len();
        let mut unplaced = 0;
        for (at, (history, pod)) in histories.into_iter().zip(pods).enumerate() {
            if history.node.is_some() || history.has_ended {
                replay.outcome.placed += usize::from(at < arrived);
            } else if at >= arrived {
                unplaced += 1;
            } else if history.reasons.is_empty() {
                // The pod was never tried.
                let why = match frameworks.get(pod) {
                    _ if pod.deletion_time.is_some() => {
                        Some("the pod is being deleted: it has a deletionTimestamp".to_owned())
                    }
                    Some(framework) => {
                        framework.pre_enqueue(pod).err().map(|status| status.to_string())
                    }
                    None => {
                        Some(format!("no profile has schedulerName {:?}", pod.scheduler_name()))
                    }
                };
                replay.note_failed_at(at, why.into_iter().collect());
            } else {
                replay.note_failed_at(at, history.reasons);
            }
        }
        if unplaced > 0 {
            replay.outcome.notes.push(format!(
                "{} preempted and not placed again",
                count(unplaced, "initially placed pod")
            ));
        }
        Ok(())
    }
}

impl Observer for Record<'_, '_> {
    fn decided(&mut self, pod: &Pod, node: Option<&Name>, took: Duration) {
        if let Some(at) = self.by_uid.get(&pod.uid).copied().filter(|_| node.is_some()) {
            self.replay.meter.wait(at, None);
        }
        self.replay.note_cycle(pod, node, took);
    }

    fn placed(&mut self, pod: &Pod, node: &Name, now: Timestamp) {
        let Some(at) = self.by_uid.get(&pod.uid).copied() else { return };
        self.creation.runs(pod, node);
        let history = &mut self.histories[at];
        history.runs += 1;
        history.reasons.clear();
        history.node = Some(node.clone());
        let runs = history.runs;
        if let Some(fate) = self.replay.outcome.fates.get_mut(at) {
            fate.node = Some(node.clone());
            if !self.times.is_empty() {
                fate.placed = Some(seconds(now));
                fate.first_placed.get_or_insert(seconds(now));
            }
        }
        self.replay.meter.add_pod(self.pods[at], node);
        if let Some(first) = self.replay.outcome.placements.get_mut(at) {
            first.get_or_insert(node.clone());
        }
        let Some((arrival, runs_for)) = self.times.get(at).copied() else { return };
        let runs_for = i64::try_from(runs_for.as_nanos()).unwrap_or(i64::MAX);
        let end = Timestamp(now.0.saturating_add(runs_for));
        // A pod without an end stays.
        if end.0 < i64::MAX {
            self.ends.push(Reverse((end, at, runs)));
        }
        if let Some(waits) = self.replay.outcome.waits.as_mut().filter(|_| runs == 1) {
            waits.saturating_record(now.since(arrival).as_secs());
        }
    }

    fn rejected(&mut self, pod: &Pod, why: Rejection) {
        let Some(at) = self.by_uid.get(&pod.uid).copied() else { return };
        let reasons = Some(&*why.reasons).filter(|_| !why.is_final);
        self.replay.meter.wait(at, reasons);
        self.histories[at].reasons = why.reasons;
    }

    /// The pods of a workload are its tasks: each is submitted again, whether or not it has a controller.
    fn preempted(&mut self, pod: &Pod, _: &Pod) -> Replacement {
        if let Some(at) = self.by_uid.get(&pod.uid).copied() {
            if let Some(node) = self.histories[at].node.take() {
                self.replay.meter.remove_pod(self.pods[at], &node);
            }
            self.creation.stops(pod);
            *self.replay.outcome.preempted.get_or_insert(0) += 1;
        }
        Replacement::AtOnce
    }
}
