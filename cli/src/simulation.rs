//! A simulated cluster: an engine, schedulers with a queue, and a clock that only the caller
//! advances.
//!
//! Decisions take no simulated time. At each moment all possible work is done sequentially, so the result depends only
//! on the events, the configuration and the seed. A preempted pod ends at once, and the observer decides whether it is
//! recreated. A recreated pod is tried after its preemptor: in a cluster, the preemptor's backoff is over when its
//! victim has terminated. Pods are retried only after events: the simulation misses none, so there is no retry after
//! five minutes. Errors other than rejections are permanent: the pod is not retried.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use portolan::cache::{Engine, Event};
use portolan::metrics::Metrics;
use portolan::model::{EventError, Name, Pod, Template, Timestamp, Uid};
use portolan::plugin::{Eviction, Handle};
use portolan::scheduler::queue::{PopError, QueueConfig, QueueFront, SchedulingQueue};
use portolan::scheduler::{
    BindError, BindingCycle, InMemoryBinder, InMemoryVolumeBinder, SharedReader,
};
use portolan::{
    Algorithm, Attempt, Evictor, Failure, Framework, Placement, Profiles, SchedulingLoop, Unplaced,
};
use portolan_dra::Devices;
use portolan_dra::plugin::InMemoryBackend;
use portolan_dra::store::DeviceEvent;

use crate::error::CommandError;
use crate::replacement::{Replacement, recreated};
use crate::resource_claims::{ClaimController, react};

/// A cluster without schedulers.
pub(crate) struct Stage {
    pub(crate) engine: Engine,
    /// The handle for the plugins of the schedulers.
    pub(crate) handle: Handle,
    /// Writes the claims of pods.
    pub(crate) backend: Arc<InMemoryBackend>,
    pub(crate) claims: Option<ClaimController>,
    victims: Victims,
    is_wanted: Arc<AtomicBool>,
}

/// A cluster with its schedulers.
pub(crate) struct Simulation {
    pub(crate) engine: Engine,
    pub(crate) queue: Arc<QueueFront>,
    pub(crate) scheduling: SchedulingLoop,
    pub(crate) now: Timestamp,
    handle: Handle,
    backend: Arc<InMemoryBackend>,
    pub(crate) claims: Option<ClaimController>,
    victims: Victims,
    /// Placements that wait for a permit.
    permits: Vec<Placement>,
    /// The recreated pods that wait for the next attempt of their preemptor, with its uid.
    recreated: Vec<(Uid, Pod)>,
    /// How often each pod was preempted since the last call of [`Simulation::settle`].
    preempted: HashMap<Uid, u32>,
    /// Pods that were preempted too often, until the next call.
    set_aside: Vec<Pod>,
    is_wanted: Arc<AtomicBool>,
}

/// The maximum number of times that a preempted pod is requeued at one moment. Two pods may keep each other from their
/// nodes forever: one preempts the other, whose next placement makes the eviction useless. In a cluster the queue's
/// backoff slows them down.
const MOST_PREEMPTIONS: u32 = 16;

/// Receives the outcomes of pods during [`Simulation::settle`].
pub(crate) trait Observer {
    /// A cycle has decided on a node for the pod, or on none.
    fn decided(&mut self, pod: &Pod, node: Option<&Name>, took: Duration);
    /// The pod is bound.
    fn placed(&mut self, pod: &Pod, node: &Name, now: Timestamp);
    /// The pod was rejected.
    fn rejected(&mut self, pod: &Pod, why: Rejection);
    /// The pod was evicted for another pod. Returns when it is replaced.
    fn preempted(&mut self, pod: &Pod, by: &Pod) -> Replacement;
}

/// Why a pod was rejected.
pub(crate) struct Rejection {
    /// The whole text.
    pub(crate) message: String,
    /// One text for each kind of reason.
    pub(crate) reasons: Vec<String>,
    /// Whether the pod leaves the queue.
    pub(crate) is_final: bool,
}

/// Evicted pods that are not requeued yet, each with its preemptor.
#[derive(Clone, Default)]
struct Victims(Arc<Mutex<Vec<(Pod, Pod)>>>);

impl Victims {
    fn take(&self) -> Vec<(Pod, Pod)> {
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
            victims.push((victim.clone(), eviction.preemptor().clone()));
            Ok(())
        });
        // The preemptor is retried whether or not the eviction succeeded.
        drop(evicted);
    }
}

impl Stage {
    /// The cluster of an engine, whose plugins bind and evict in memory.
    pub(crate) fn new(
        engine: Engine,
        claims: Option<ClaimController>,
        metrics: Option<&Metrics>,
    ) -> Result<Stage, CommandError> {
        let victims = Victims::default();
        let evictor: Arc<dyn Evictor> =
            Arc::new(Evicts { engine: engine.clone(), victims: victims.clone() });
        let evictor = match metrics {
            Some(metrics) => metrics.evictor(evictor),
            None => evictor,
        };
        let mut handle = Handle::default()
            .with_binder(Arc::new(InMemoryBinder::new(engine.clone())))
            .with_volume_binder(Arc::new(InMemoryVolumeBinder::new(engine.clone())))
            .with_evictor(evictor);
        if claims.is_some() {
            let reader = SharedReader::new(engine.reader().map_err(closed)?);
            handle = handle.with_snapshots(Arc::new(reader));
        }
        let backend = Arc::new(InMemoryBackend::new(&engine));
        let is_wanted = Arc::new(AtomicBool::new(true));
        Ok(Stage { engine, handle, backend, claims, victims, is_wanted })
    }

    /// The same stage, whose simulation fails with [`CommandError::Withdrawn`] soon after the flag was cleared.
    pub(crate) fn while_wanted(self, is_wanted: Arc<AtomicBool>) -> Stage {
        Stage { is_wanted, ..self }
    }

    /// Adds the schedulers: one for all pods if its name is empty, and otherwise each for
    /// the pods that name it.
    pub(crate) fn with_schedulers(
        self,
        schedulers: Vec<(Name, Algorithm)>,
        queue: QueueConfig,
    ) -> Result<Simulation, CommandError> {
        let Stage { engine, handle, backend, claims, victims, is_wanted } = self;
        let config = QueueConfig {
            unschedulable_timeout: Duration::MAX,
            leftover_period: Duration::MAX,
            ..queue
        };
        let framework = |(name, of): &(Name, Algorithm)| (name.clone(), of.framework().clone());
        let frameworks: Vec<(Name, Arc<Framework>)> = schedulers.iter().map(framework).collect();
        let queue = match &frameworks[..] {
            [(name, all)] if name.is_empty() => SchedulingQueue::new(all.clone(), config),
            _ => SchedulingQueue::with_profiles(frameworks, config)
                .map_err(|error| CommandError::Usage(error.to_string()))?,
        };
        let follower = engine.follow().map_err(closed)?;
        let reader = engine.reader().map_err(closed)?;
        let queue = Arc::new(QueueFront::new(queue, follower, reader));
        let profiles = Profiles::by_name(schedulers);
        let scheduling =
            SchedulingLoop::new(engine.clone(), queue.clone(), profiles).map_err(closed)?;
        Ok(Simulation {
            engine,
            queue,
            scheduling,
            now: Timestamp(0),
            handle,
            backend,
            claims,
            victims,
            permits: Vec::new(),
            recreated: Vec::new(),
            preempted: HashMap::new(),
            set_aside: Vec::new(),
            is_wanted,
        })
    }
}

pub fn closed(error: impl std::fmt::Display) -> CommandError {
    CommandError::Engine(error.to_string())
}

pub(crate) fn refused(pod: &Pod, error: EventError) -> CommandError {
    CommandError::Refused { object: format!("pod {}", pod.key()), error }
}

/// Applies an event and waits for its outcome.
pub fn event(engine: &Engine, event: Event) -> Result<portolan::cache::Outcome, CommandError> {
    engine.submit(event).map_err(|_| closed("the log is closed"))?.wait().map_err(closed)
}

impl Simulation {
    /// Adds a pod to the queue, as its controller creates it, with the claims of its templates.
    pub(crate) fn arrive(&mut self, pod: &Pod) -> Result<(), CommandError> {
        let mut new = Pod { node_name: None, ..pod.clone() };
        if !pod.template.resource_claims.is_empty() {
            new =
                self.control(&new, |claims, devices| claims.create(&new, devices))?.unwrap_or(new);
        }
        self.apply(pod, Event::PutPending(Arc::new(new)))
    }

    /// Removes a pod from its node, and frees its claims.
    pub(crate) fn remove(&mut self, pod: &Pod) -> Result<(), CommandError> {
        self.apply(pod, Event::remove_pod(pod))?;
        self.free_claims(pod)
    }

    /// Frees the claims of a pod that has ended or was deleted.
    pub(crate) fn free_claims(&mut self, pod: &Pod) -> Result<(), CommandError> {
        let of: &Template = &pod.template;
        if of.resource_claims.is_empty() && of.container_requests.is_empty() {
            return Ok(());
        }
        self.control(pod, |claims, devices| ((), claims.release(pod, devices))).map(drop)
    }

    /// Lets the controller of claims, if there is one, react to a pod.
    fn control<T>(
        &mut self,
        pod: &Pod,
        reaction: impl FnOnce(&mut ClaimController, &Devices) -> (T, Vec<DeviceEvent>),
    ) -> Result<Option<T>, CommandError> {
        let Some(claims) = &mut self.claims else { return Ok(None) };
        react(&self.engine, pod, |devices| reaction(claims, devices)).map(Some)
    }

    /// Applies an event that concerns this pod.
    pub(crate) fn apply(&self, pod: &Pod, of: Event) -> Result<(), CommandError> {
        event(&self.engine, of)?.map(drop).map_err(|error| refused(pod, error))
    }

    /// Schedules and binds pods until nothing is left to do at this moment.
    pub(crate) fn settle(&mut self, observer: &mut impl Observer) -> Result<(), CommandError> {
        self.backend.set_time(self.now);
        self.preempted.clear();
        for pod in std::mem::take(&mut self.set_aside) {
            self.arrive(&pod)?;
        }
        loop {
            // Relaxed: a later turn sees it, and nothing else is passed by it.
            if !self.is_wanted.load(Ordering::Relaxed) {
                return Err(CommandError::Withdrawn);
            }
            let (started, now) = (Instant::now(), self.now);
            match self.scheduling.schedule_one(Some(started), || now) {
                Ok(attempt) => self.handle_attempt(attempt, started, observer)?,
                Err(PopError::Timeout) => {
                    let victims = std::mem::take(&mut self.recreated);
                    if !self.requeue_victims(victims, observer)?
                        && !self.bind_permitted(observer)?
                    {
                        return Ok(());
                    }
                }
                Err(error) => return Err(closed(error)),
            }
        }
    }

    /// Binds or records the pods of an attempt. Each pod counts as one cycle; the pods of a
    /// gang share its time equally.
    fn handle_attempt(
        &mut self,
        attempt: Attempt,
        started: Instant,
        observer: &mut impl Observer,
    ) -> Result<(), CommandError> {
        let (placed, failed) = attempt.into_parts();
        let pods = (placed.len() + failed.len()).max(1);
        let is_tried = |by: &Uid| {
            placed.iter().any(|placement| placement.pod.uid == *by)
                || failed.iter().any(|unplaced| unplaced.pod.uid == *by)
        };
        let victims = self.recreated.extract_if(.., |(by, _)| is_tried(by)).collect();
        let share = |started: Instant| started.elapsed() / u32::try_from(pods).unwrap_or(u32::MAX);
        for placement in placed {
            let bound = match placement.waits {
                true => None,
                false => Some(self.scheduling.bind(&placement, || self.now)),
            };
            observer.decided(&placement.pod, Some(placement.node()), share(started));
            match bound {
                None => self.permits.push(placement),
                Some(bound) => {
                    self.was_bound(&placement, bound.map_err(|(error, _)| error), observer)?;
                }
            }
        }
        for Unplaced { pod, error, .. } in failed {
            observer.decided(&pod, None, share(started));
            // A pod that only lacks group members can succeed later.
            let is_final = error.fit().is_none() && !matches!(error, Failure::PodGroup(_));
            let message = error.to_string();
            let reasons = match error.fit() {
                Some(fit) => fit.reasons.keys().cloned().collect(),
                None => vec![message.clone()],
            };
            self.record_rejection(&pod, Rejection { message, reasons, is_final }, observer)?;
        }
        self.requeue_victims(victims, observer)?;
        self.record_victims(observer)
    }

    fn was_bound(
        &mut self,
        placement: &Placement,
        bound: Result<(), BindError>,
        observer: &mut impl Observer,
    ) -> Result<(), CommandError> {
        let error = match bound {
            Ok(()) => {
                observer.placed(&placement.pod, placement.node(), self.now);
                return Ok(());
            }
            Err(error) => error,
        };
        let message = error.to_string();
        let (reasons, is_final) = match error {
            BindError::Rejected(fit) => (fit.reasons.into_keys().collect(), false),
            _ => (vec![message.clone()], true),
        };
        self.record_rejection(&placement.pod, Rejection { message, reasons, is_final }, observer)
    }

    /// Reports why a pod was not placed; removes it from the queue if the error is final.
    fn record_rejection(
        &self,
        pod: &Pod,
        why: Rejection,
        observer: &mut impl Observer,
    ) -> Result<(), CommandError> {
        let is_final = why.is_final;
        observer.rejected(pod, why);
        if is_final {
            self.apply(pod, Event::RemovePending(pod.uid.clone()))?;
        }
        Ok(())
    }

    /// Records the preempted pods, and keeps those that are recreated.
    fn record_victims(&mut self, observer: &mut impl Observer) -> Result<(), CommandError> {
        for (pod, by) in self.victims.take() {
            self.free_claims(&pod)?;
            if !matches!(observer.preempted(&pod, &by), Replacement::Never(_)) {
                self.recreated.push((by.uid.clone(), recreated(pod)));
            }
        }
        Ok(())
    }

    /// Requeues recreated pods; sets aside those that were preempted too often. Returns whether there are any.
    fn requeue_victims(
        &mut self,
        victims: Vec<(Uid, Pod)>,
        observer: &mut impl Observer,
    ) -> Result<bool, CommandError> {
        let is_any = !victims.is_empty();
        for (_, pod) in victims {
            let times = self.preempted.entry(pod.uid.clone()).or_default();
            *times += 1;
            if *times <= MOST_PREEMPTIONS {
                self.arrive(&pod)?;
                continue;
            }
            let message = format!("the pod was preempted {times} times in a row");
            let reasons = vec![message.clone()];
            observer.rejected(&pod, Rejection { message, reasons, is_final: true });
            self.set_aside.push(pod);
        }
        Ok(is_any)
    }

    /// Binds the placements whose permit is decided; returns whether there were any.
    fn bind_permitted(&mut self, observer: &mut impl Observer) -> Result<bool, CommandError> {
        let is_decided =
            |placement: &mut Placement| BindingCycle::is_permitted(placement, self.now).is_some();
        let decided: Vec<Placement> = self.permits.extract_if(.., is_decided).collect();
        for placement in &decided {
            let bound = self.scheduling.bind(placement, || self.now);
            self.was_bound(placement, bound.map_err(|(error, _)| error), observer)?;
            self.record_victims(observer)?;
        }
        Ok(!decided.is_empty())
    }

    fn permit_deadlines(&self) -> impl Iterator<Item = Timestamp> {
        let waiting = self.handle.waiting_pods();
        let mine = self.permits.iter().filter_map(move |placement| waiting.get(&placement.pod.uid));
        mine.filter_map(|waiting| waiting.deadline())
    }

    /// The next deadline of a permit.
    pub(crate) fn next_permit(&self) -> Option<Timestamp> {
        self.permit_deadlines().min()
    }

    /// Advances the clock until the current permits expire. Pods that wait for a permit again
    /// after that would wait forever.
    pub(crate) fn expire_permits(
        &mut self,
        observer: &mut impl Observer,
    ) -> Result<(), CommandError> {
        let last = self.permit_deadlines().max();
        while let Some(next) = self.next_permit().filter(|next| Some(*next) <= last) {
            self.now = self.now.max(next);
            self.settle(observer)?;
        }
        Ok(())
    }

    /// The number of placements that wait for a permit.
    pub(crate) fn permits(&self) -> usize {
        self.permits.len()
    }
}
