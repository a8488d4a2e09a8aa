//! Batches: scheduling cycles in a row with one commit.
//!
//! Submitting an event, waiting for its outcome and publishing a version cost about as much as a decision. A batch pays
//! for them once: its pods are decided on one after the other, on a plan that shows each pod the previous ones, and are
//! then assumed by one event. If nothing else was folded since the version that the plan starts at, the writer adopts
//! the plan instead of placing the pods again. Otherwise it checks each placement in the current state, as it does for
//! single pods, and the pods whose placements no longer hold are scheduled again, one by one (Omega's optimistic
//! concurrency control).
//!
//! A scheduler that is alone on its engine makes the same decisions in a batch as one by one. Therefore a batch ends
//! before a pod whose cycle could affect the next decision by more than its placement: a pod that fits nowhere, because
//! PostFilter may then nominate it; a nominated pod; and a pod for which a plugin has something to do at Reserve or
//! Permit ([`Plugin::acts_at_reserve`](crate::plugin::Plugin::acts_at_reserve)). A profile has no batches if it has
//! extenders, or a plugin that observes each cycle ([`Plugin::after_filter`](crate::plugin::Plugin::after_filter)).

use std::sync::Arc;
use std::time::Instant;

use crate::framework::{Failure, Planned};
use crate::log::{Event, Prepared};
use crate::model::{EventError, Pod, Timestamp};
use crate::snapshot::{Plan, Snapshot};

use super::{Placement, Scheduler};

/// The result of each pod of a batch.
type Results = Vec<Result<Placement, Failure>>;

/// The largest number of pods in one commit, which bounds the writer's step.
const LONGEST: usize = 1024;

/// The fewest pods to look ahead, for example after a batch whose first pod fits nowhere.
const SHORTEST: usize = 8;

impl Scheduler {
    /// Runs the scheduling cycles of several pods in this order, and returns their results in the same order.
    /// Equivalent to a call of [`Scheduler::schedule`] for each pod, but cheaper, above all if pods of one template
    /// follow each other. Pods that other schedulers place meanwhile are seen by the next batch, or at the commit. At
    /// most 1,024 pods are committed at once.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use portolan::cache::{Config, Engine, Event};
    /// use portolan::model::{Timestamp, node, pod};
    /// use portolan::{Algorithm, AlgorithmConfig, Framework, Profiles, Scheduler};
    ///
    /// let engine = Engine::shared(Config::default());
    /// for name in ["n1", "n2"] {
    ///     engine.submit(Event::add_node(node(name).cpu(1_000).memory(1 << 30).build()))?.wait()??;
    /// }
    /// let algorithm = Algorithm::new(Framework::default_profile(), AlgorithmConfig::default(), None);
    /// let mut scheduler = Scheduler::new(engine, Profiles::one(algorithm))?;
    /// let pods = ["a", "b", "c"].map(|name| Arc::new(pod(name).cpu(600).build()));
    /// let placed = scheduler.schedule_batch(&pods, Timestamp::from_secs(1));
    /// assert_eq!(placed.iter().filter(|placed| placed.is_ok()).count(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn schedule_batch(&mut self, pods: &[Arc<Pod>], now: Timestamp) -> Results {
        let mut results = Results::with_capacity(pods.len());
        let mut most = LONGEST;
        while let [first, ..] = &pods[results.len()..] {
            let rest = &pods[results.len()..];
            let snapshot = self.reader.snapshot();
            let is_next = |pod: &&Arc<Pod>| {
                pod.scheduler_name() == first.scheduler_name()
                    && self.may_be_batched(pod, &snapshot)
            };
            let together = rest.iter().take(most).take_while(is_next).count();
            if together < 2 {
                results.push(self.schedule(first, now));
                continue;
            }
            let planned = self.place_batch(&rest[..together], (&snapshot, now), &mut results);
            // Pods that fit nowhere often follow each other. Looking at all pods after each of them would take
            // quadratic time.
            most = match planned == together {
                true => (2 * most).min(LONGEST),
                false => (2 * planned).clamp(SHORTEST, LONGEST),
            };
        }
        results
    }

    /// Returns whether the pod's cycle consists of a decision and a placement.
    fn may_be_batched(&self, pod: &Pod, snapshot: &Snapshot) -> bool {
        let Some(framework) = self.framework(pod) else { return false };
        let handle = framework.handle();
        pod.nominated_node_name.is_none()
            && handle.extenders().is_empty()
            && !framework.has_after_filter()
            && handle.nominator().node_of(&pod.uid).is_none()
            && !framework.acts_at_reserve(pod, snapshot)
            && !self.engine.is_within_writer()
    }

    /// Places pods up to the first one that fits nowhere, and that pod alone. Returns the number of pods before it. A
    /// failed attempt is reported with the time since the batch began.
    fn place_batch(
        &mut self,
        pods: &[Arc<Pod>],
        (snapshot, now): (&Snapshot, Timestamp),
        results: &mut Results,
    ) -> usize {
        trace_span!(_span, DEBUG, "batch", pods = pods.len());
        let started = self.start_of_attempt(&pods[0]);
        self.take_section();
        let mut plan = Plan::new(snapshot);
        let planned = match (self.profiles.get_mut(&pods[0]), &mut plan) {
            (Some(algorithm), Some(plan)) => algorithm.plan(plan, pods),
            _ => Vec::new(),
        };
        let count = planned.len();
        if let Some(plan) = plan.filter(|_| count > 0) {
            match self.commit(snapshot, &planned, Prepared::new(plan)) {
                Ok(rejected) => {
                    self.finish((pods, started), planned, rejected, (snapshot, now), results);
                }
                Err(error) => {
                    for planned in &planned {
                        self.count_failure(&planned.pod, &error, started);
                        results.push(Err(error.clone()));
                    }
                }
            }
        }
        if let Some(next) = pods.get(count) {
            results.push(self.schedule(next, now));
        }
        count
    }

    /// Assumes the pods. Returns the rejected ones, in order.
    fn commit(
        &self,
        version: &Snapshot,
        planned: &[Planned],
        prepared: Prepared,
    ) -> Result<Vec<(String, EventError)>, Failure> {
        let event = Event::AssumeEach {
            pods: planned.iter().map(|of| of.pod.clone()).collect(),
            decided_on: Some(version.generation()),
            // This thread drops a plan that was not adopted.
            prepared: prepared.clone(),
        };
        let applied = self.engine.submit(event)?.wait()?.map_err(Failure::Refused)?;
        Ok(applied.rejected)
    }

    /// Runs Reserve and Permit for the accepted pods, and schedules those again whose placement no longer held.
    fn finish(
        &mut self,
        (pods, started): (&[Arc<Pod>], Option<Instant>),
        planned: Vec<Planned>,
        rejected: Vec<(String, EventError)>,
        (version, now): (&Snapshot, Timestamp),
        results: &mut Results,
    ) {
        let mut rejected = rejected.into_iter().peekable();
        // All at once, so that a panic withdraws every pod.
        let assumed = planned.into_iter().map(|Planned { pod, decision, state }| {
            let is_rejected = rejected.peek().is_some_and(|(uid, _)| *uid == pod.uid.to_string());
            let why = rejected.next_if(|_| is_rejected).map(|(_, why)| why);
            match (why, self.framework(&pod).cloned()) {
                (None, Some(framework)) => {
                    let home = self.home.clone();
                    Ok(Placement::assumed(pod, (decision, state), framework, home, now))
                }
                (why, _) => Err(why),
            }
        });
        let assumed: Vec<Result<Placement, Option<EventError>>> = assumed.collect();
        for (pod, assumed) in pods.iter().zip(assumed) {
            let placed = match assumed {
                Ok(placed) => self.reserve(placed, pod, version, now),
                Err(Some(EventError::Conflict { .. }) | None) => {
                    self.figures.conflicts += 1;
                    results.push(self.schedule(pod, now));
                    continue;
                }
                Err(Some(why)) => Err(Failure::Refused(why)),
            };
            match &placed {
                Ok(_) => self.figures.placed += 1,
                Err(error) => self.count_failure(pod, error, started),
            }
            results.push(placed);
        }
    }
}
