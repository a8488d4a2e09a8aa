//! Replay through the scheduling queue, on a simulated clock: pods wait by priority, are
//! retried after events that may help, are preempted, and wait for their pod group.
//!
//! Decisions take no simulated time. At each moment all possible work is done sequentially,
//! so the result depends only on the workload, the configuration and the seed. A preempted
//! pod is requeued at once, as its controller would recreate it, and runs for its whole
//! duration again. Pods are retried only after events: the simulation misses none, so there
//! is no retry after five minutes. Errors other than rejections are permanent: the pod is
//! not retried.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use portolan::Engine;
use portolan::framework::{Eviction, Evictor, Framework, Handle};
use portolan::log::Event;
use portolan::metrics::Metrics;
use portolan::model::{Name, Pod, Timestamp, Uid};
use portolan::scheduler::queue::{PopError, QueueConfig, QueueFront, SchedulingQueue};
use portolan::scheduler::{
    Attempt, BindError, BindingCycle, CycleError, InMemoryBinder, InMemoryVolumeBinder, Placement,
    Profiles, SchedulingLoop, Unplaced,
};

use crate::error::Failure;
use crate::text::count;

use super::meter::Waiting;
use super::run::{Decider, Replay, closed, refused};
use super::{Mode, Source};

/// Evicted pods that are not requeued yet.
#[derive(Clone, Default)]
pub(super) struct Victims(Arc<Mutex<Vec<Uid>>>);

impl Victims {
    fn take(&self) -> Vec<Uid> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Removes victims at once and records them.
struct Evicts {
    engine: Engine,
    victims: Victims,
}

impl Evictor for Evicts {
    fn evict(&self, eviction: Eviction) {
        let evicted = eviction.run(|victim| {
            let ticket = self
                .engine
                .submit(Event::remove_pod(victim))
                .map_err(|closed| closed.to_string())?;
            let outcome = ticket.wait().map_err(|closed| closed.to_string())?;
            outcome.map_err(|error| error.to_string())?;
            let mut victims = self.victims.0.lock().unwrap_or_else(PoisonError::into_inner);
            victims.push(victim.uid.clone());
            Ok(())
        });
        // The preemptor is retried whether or not the eviction succeeded.
        drop(evicted);
    }
}

/// The plugins' handle, with in-memory binders and evictor.
pub(super) fn handle(engine: &Engine, victims: &Victims, metrics: Option<&Metrics>) -> Handle {
    let evictor: Arc<dyn Evictor> =
        Arc::new(Evicts { engine: engine.clone(), victims: victims.clone() });
    let evictor = match metrics {
        Some(metrics) => metrics.evictor(evictor),
        None => evictor,
    };
    Handle::default()
        .with_binder(Arc::new(InMemoryBinder::new(engine.clone())))
        .with_volume_binder(Arc::new(InMemoryVolumeBinder::new(engine.clone())))
        .with_evictor(evictor)
}

/// The placements of a pod so far.
#[derive(Default)]
struct History {
    node: Option<Name>,
    /// The number of placements; an end event applies only to the latest one.
    runs: u32,
    has_ended: bool,
    /// The reasons of the last failed attempt.
    reasons: Vec<String>,
}

struct Simulation<'r, 'w> {
    replay: &'r mut Replay<'w>,
    queue: Arc<QueueFront>,
    scheduling: SchedulingLoop,
    framework: Arc<Framework>,
    handle: Handle,
    victims: Victims,
    now: Timestamp,
    /// The arriving pods, then the pods placed before the replay.
    pods: Vec<&'w Pod>,
    by_uid: HashMap<Uid, usize>,
    histories: Vec<History>,
    /// The arrival time and the duration of each pod; empty in fill mode.
    times: Vec<(Timestamp, Duration)>,
    ends: BinaryHeap<Reverse<(Timestamp, usize, u32)>>,
    /// Placements that wait for a permit.
    permits: Vec<Placement>,
}

pub(super) fn run(
    replay: &mut Replay<'_>,
    decider: Decider,
    victims: Victims,
    source: &Source,
) -> Result<(), Failure> {
    let Decider { scheduler, handle, queue } = decider;
    let framework = scheduler.framework().clone();
    let config = QueueConfig {
        unschedulable_timeout: Duration::MAX,
        leftover_period: Duration::MAX,
        ..queue
    };
    let queue = SchedulingQueue::new(framework.clone(), config);
    let follower = replay.engine.follow().map_err(closed)?;
    let reader = replay.engine.reader().map_err(closed)?;
    let queue = Arc::new(QueueFront::new(queue, follower, reader));
    let profiles = Profiles::one(scheduler);
    let scheduling =
        SchedulingLoop::new(replay.engine.clone(), queue.clone(), profiles).map_err(closed)?;
    let workload = replay.workload;
    let pods: Vec<&Pod> =
        workload.arrivals.iter().map(|arrival| &arrival.pod).chain(&workload.placed).collect();
    let mut histories: Vec<History> = pods.iter().map(|_| History::default()).collect();
    for (history, pod) in histories.iter_mut().zip(&pods).skip(workload.arrivals.len()) {
        history.node = pod.placed_on().cloned();
    }
    let mut simulation = Simulation {
        by_uid: pods.iter().enumerate().map(|(at, pod)| (pod.uid.clone(), at)).collect(),
        histories,
        pods,
        times: Vec::new(),
        ends: BinaryHeap::new(),
        permits: Vec::new(),
        now: Timestamp(0),
        replay,
        queue,
        scheduling,
        framework,
        handle,
        victims,
    };
    match source.mode {
        Mode::Fill => simulation.fill()?,
        Mode::Timed => {
            simulation.times = simulation.replay.workload.times(source.load.unwrap_or(1.0))?;
            simulation.timed()?;
        }
    }
    simulation.finish()
}

impl Simulation<'_, '_> {
    /// Adds one pod after the other; the clock does not advance.
    fn fill(&mut self) -> Result<(), Failure> {
        for at in 0..self.replay.workload.arrivals.len() {
            self.arrive(at)?;
            self.settle()?;
            self.sample((at + 1) as f64);
        }
        self.let_permits_end()
    }

    /// At each moment ends are handled before arrivals, so that waiting pods find the freed
    /// capacity.
    fn timed(&mut self) -> Result<(), Failure> {
        let mut arrivals: Vec<usize> = (0..self.times.len()).collect();
        arrivals.sort_by_key(|at| self.times[*at].0);
        let start = arrivals.first().map_or(Timestamp(0), |at| self.times[*at].0);
        let mut arrivals = arrivals.into_iter().peekable();
        let mut until = None;
        loop {
            let arrives = arrivals.peek().map(|at| self.times[*at].0);
            let ends = self.ends.peek().map(|Reverse((end, ..))| *end);
            let Some(next) = [arrives, ends].into_iter().flatten().min() else { break };
            self.now = [Some(next), self.next_permit()].into_iter().flatten().min().unwrap_or(next);
            while let Some(Reverse((end, at, run))) = self.ends.peek().copied()
                && end <= self.now
            {
                self.ends.pop();
                self.end(at, run)?;
            }
            self.settle()?;
            while let Some(at) = arrivals.next_if(|at| self.times[*at].0 <= self.now) {
                self.arrive(at)?;
            }
            self.settle()?;
            let elapsed = self.now.since(start);
            if until.is_none_or(|until| elapsed <= until) {
                self.sample(elapsed.as_secs_f64());
            }
            if until.is_none() && arrivals.peek().is_none() && self.waiting() == Waiting::default()
            {
                // From here on the cluster only drains, which may take a hundred times as long:
                // a chart shows the beginning.
                until = Some(elapsed + elapsed / 10);
            }
        }
        self.let_permits_end()
    }

    fn arrive(&mut self, at: usize) -> Result<(), Failure> {
        self.replay.bar.inc(1);
        self.put_pending(at)
    }

    fn put_pending(&self, at: usize) -> Result<(), Failure> {
        let pod = Pod { node_name: None, ..self.pods[at].clone() };
        self.replay
            .event(Event::PutPending(Arc::new(pod)))?
            .map_err(|error| refused(self.pods[at], error))?;
        Ok(())
    }

    /// Ends a pod, unless it was placed again since this end was planned.
    fn end(&mut self, at: usize, run: u32) -> Result<(), Failure> {
        let history = &mut self.histories[at];
        if history.runs != run {
            return Ok(());
        }
        let Some(node) = history.node.take() else { return Ok(()) };
        history.has_ended = true;
        let uid = self.pods[at].uid.clone();
        self.replay.meter.remove_pod(self.pods[at]);
        self.replay
            .event(Event::RemovePod { uid, node: Some(node) })?
            .map_err(|error| refused(self.pods[at], error))?;
        Ok(())
    }

    /// Schedules and binds pods until nothing is left to do at this moment.
    fn settle(&mut self) -> Result<(), Failure> {
        loop {
            let (started, now) = (Instant::now(), self.now);
            match self.scheduling.schedule_one(Some(started), || now) {
                Ok(attempt) => self.take_up(attempt, started)?,
                Err(PopError::Timeout) => {
                    if !self.bind_permitted()? {
                        return Ok(());
                    }
                }
                Err(error) => return Err(closed(error)),
            }
        }
    }

    /// Binds or records the pods of an attempt. Each pod counts as one cycle; the pods of a
    /// gang share its time equally.
    fn take_up(&mut self, attempt: Attempt, started: Instant) -> Result<(), Failure> {
        let (placed, failed) = attempt.into_parts();
        let pods = (placed.len() + failed.len()).max(1);
        let share = |started: Instant| started.elapsed() / u32::try_from(pods).unwrap_or(u32::MAX);
        for placement in placed {
            let bound = match placement.waits {
                true => None,
                false => Some(self.scheduling.bind(&placement, || self.now)),
            };
            let (pod, node) = (&placement.pod, Some(placement.node()));
            self.replay.note_cycle(pod, node, share(started));
            match bound {
                None => self.permits.push(placement),
                Some(bound) => self.was_bound(&placement, bound.map_err(|(error, _)| error))?,
            }
        }
        for Unplaced { pod, error, .. } in failed {
            self.replay.note_cycle(&pod, None, share(started));
            // A pod that only lacks group members can succeed later.
            let is_final = error.fit().is_none() && !matches!(error, CycleError::PodGroup(_));
            self.was_rejected(&pod.uid, reasons(&error), is_final)?;
        }
        self.requeue_victims()
    }

    fn was_bound(
        &mut self,
        placement: &Placement,
        bound: Result<(), BindError>,
    ) -> Result<(), Failure> {
        let uid = &placement.pod.uid;
        match bound {
            Ok(()) => {
                let Some(at) = self.by_uid.get(uid).copied() else { return Ok(()) };
                self.is_placed(at, placement.node().clone());
                Ok(())
            }
            Err(BindError::Rejected(fit)) => {
                self.was_rejected(uid, fit.reasons.into_keys().collect(), false)
            }
            Err(error) => self.was_rejected(uid, vec![error.to_string()], true),
        }
    }

    fn is_placed(&mut self, at: usize, node: Name) {
        let history = &mut self.histories[at];
        history.runs += 1;
        history.reasons.clear();
        history.node = Some(node.clone());
        let is_first = history.runs == 1;
        self.replay.meter.add_pod(self.pods[at]);
        if let Some(first) = self.replay.outcome.placements.get_mut(at) {
            first.get_or_insert(node);
        }
        let Some((arrival, runs_for)) = self.times.get(at).copied() else { return };
        let runs_for = i64::try_from(runs_for.as_nanos()).unwrap_or(i64::MAX);
        let end = Timestamp(self.now.0.saturating_add(runs_for));
        self.ends.push(Reverse((end, at, self.histories[at].runs)));
        if let Some(waits) = self.replay.outcome.waits.as_mut().filter(|_| is_first) {
            waits.saturating_record(self.now.since(arrival).as_secs());
        }
    }

    /// Records why a pod was not placed; removes it from the queue if the error is final.
    fn was_rejected(
        &mut self,
        uid: &Uid,
        reasons: Vec<String>,
        is_final: bool,
    ) -> Result<(), Failure> {
        let Some(at) = self.by_uid.get(uid).copied() else { return Ok(()) };
        self.histories[at].reasons = reasons;
        if is_final {
            self.replay
                .event(Event::RemovePending(uid.clone()))?
                .map_err(|error| refused(self.pods[at], error))?;
        }
        Ok(())
    }

    /// Requeues the preempted pods.
    fn requeue_victims(&mut self) -> Result<(), Failure> {
        for uid in self.victims.take() {
            let Some(at) = self.by_uid.get(&uid).copied() else { continue };
            self.histories[at].node = None;
            self.replay.meter.remove_pod(self.pods[at]);
            *self.replay.outcome.preempted.get_or_insert(0) += 1;
            self.put_pending(at)?;
        }
        Ok(())
    }

    /// Binds the placements whose permit is decided; returns whether there were any.
    fn bind_permitted(&mut self) -> Result<bool, Failure> {
        let is_decided =
            |placement: &mut Placement| BindingCycle::is_permitted(placement, self.now).is_some();
        let decided: Vec<Placement> = self.permits.extract_if(.., is_decided).collect();
        for placement in &decided {
            let bound = self.scheduling.bind(placement, || self.now);
            self.was_bound(placement, bound.map_err(|(error, _)| error))?;
            self.requeue_victims()?;
        }
        Ok(!decided.is_empty())
    }

    /// The next deadline of a permit.
    fn next_permit(&self) -> Option<Timestamp> {
        let waiting = self.handle.waiting_pods();
        let mine = self.permits.iter().filter_map(|placement| waiting.get(&placement.pod.uid));
        mine.filter_map(|waiting| waiting.deadline()).min()
    }

    /// After the last arrival: advances the clock until the current permits expire. Pods
    /// that wait for a permit again after that would wait forever.
    fn let_permits_end(&mut self) -> Result<(), Failure> {
        let waiting = self.handle.waiting_pods();
        let mine = self.permits.iter().filter_map(|placement| waiting.get(&placement.pod.uid));
        let last = mine.filter_map(|waiting| waiting.deadline()).max();
        while let Some(next) = self.next_permit().filter(|next| Some(*next) <= last) {
            self.now = self.now.max(next);
            self.settle()?;
        }
        Ok(())
    }

    fn waiting(&self) -> Waiting {
        let figures = self.queue.with(|queue, _| queue.figures());
        let unschedulable = figures.active + figures.backoff + figures.unschedulable;
        Waiting { unschedulable, gated: figures.gated, permit: self.permits.len() }
    }

    fn sample(&mut self, at: f64) {
        let waiting = self.waiting();
        self.replay.meter.sample(at, || waiting);
    }

    fn finish(self) -> Result<(), Failure> {
        let Simulation { replay, histories, pods, framework, queue, .. } = self;
        if let Some(metrics) = replay.metrics {
            queue.with(|queue, _| metrics.queue(queue));
            metrics.cycles("0", self.scheduling.figures());
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
                let gate = framework.pre_enqueue(pod).err();
                replay.note_failed(gate.map(|status| status.to_string()));
            } else {
                replay.note_failed(history.reasons);
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

fn reasons(error: &CycleError) -> Vec<String> {
    match error.fit() {
        Some(fit) => fit.reasons.keys().cloned().collect(),
        None => vec![error.to_string()],
    }
}
