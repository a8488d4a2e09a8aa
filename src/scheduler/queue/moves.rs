//! Transitions between the parts of the queue: by events, by time, and through the PreEnqueue plugins.
//!
//! An event is processed in steps. It is first recorded for the pods in flight, and then checked against the
//! unschedulable pods one by one, from the last to the first. A pod that leaves the pool is replaced by the pool's last
//! pod, which was checked already, and a pod that joins the pool is appended. A pod that joined later is not checked,
//! because the event was recorded for it while it was in flight. So any operation may run between two steps, and the
//! outcome is the same as if the event had been processed at once when it was begun.

use std::cell::LazyCell;
use std::fmt;
use std::time::{Duration, Instant};

use crate::framework::{
    Actions, Activation, ClusterEvent, EventResource, Hint, Measurement, Nominator, PluginSet,
    PodGroups, Recorder,
};
use crate::model::{Name, Pod, Timestamp, Uid};
use crate::snapshot::Cluster;

use super::backoff::nanoseconds;
use super::figures::Cause;
use super::heap::Slot;
use super::in_flight::QueueEvent;
use super::{Place, SchedulingQueue};

/// How an event affects a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strategy {
    /// The pod stays where it is.
    Skip,
    /// The pod is tried when its backoff is over.
    AfterBackoff,
    /// The pod is tried at once.
    Immediately,
}

/// A cheap check of whether an event may affect a pod.
pub(super) type PreCheck = Box<dyn Fn(&Pod) -> bool + Send + Sync>;

/// An event that is waiting to be processed.
pub(super) struct Move {
    kind: MoveKind,
    pre_check: Option<PreCheck>,
    begun: Option<Begun>,
    /// The processing time so far, measured only if a recorder is set.
    spent: Duration,
}

enum MoveKind {
    Event(QueueEvent),
    /// Pods that waited for too long must be retried.
    TooLong,
}

/// The progress of an event: the numbers of pods at the front of each pool that are not checked yet.
struct Begun {
    number: u64,
    pool: usize,
    gated: usize,
}

impl fmt::Debug for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = match &self.kind {
            MoveKind::Event(recorded) => recorded.cause(),
            MoveKind::TooLong => Cause::Timeout,
        };
        f.debug_tuple("Move").field(&cause).finish()
    }
}

impl QueueEvent {
    pub(super) fn cause(&self) -> Cause {
        match self {
            QueueEvent::Event { resource, action, .. } => Cause::Event(*resource, *action),
            QueueEvent::Activated(_) => Cause::Activate,
        }
    }
}

impl SchedulingQueue {
    pub(super) fn nominator(&self) -> &Nominator {
        self.profiles[0].framework.handle().nominator()
    }

    pub(super) fn pod_groups(&self) -> &PodGroups {
        self.profiles[0].framework.handle().pod_groups()
    }

    /// Returns whether any plugin of any profile is registered for such events.
    fn is_of_interest(&self, resource: EventResource, action: Actions) -> bool {
        let mut profiles = self.profiles.iter();
        profiles.any(|profile| !profile.hints.concerned(resource, action).is_empty())
    }

    /// Moves every pod that an event may make schedulable and that `pre_check` accepts
    /// (`MoveAllToActiveOrBackoffQueue`), and records the event for the pods in flight. Events taken in earlier are
    /// processed first. O(unschedulable pods).
    pub fn move_all(
        &mut self,
        event: &ClusterEvent<'_>,
        pre_check: Option<PreCheck>,
        cluster: &Cluster,
        now: Timestamp,
    ) {
        self.plan(event, pre_check);
        while self.step(usize::MAX, cluster, now) {}
    }

    /// Appends an event to the backlog if any plugin is interested in it.
    pub(super) fn plan(&mut self, event: &ClusterEvent<'_>, pre_check: Option<PreCheck>) {
        if self.is_of_interest(event.resource, event.action) {
            let kind = MoveKind::Event(QueueEvent::of(event));
            self.backlog.push_back(Move { kind, pre_check, begun: None, spent: Duration::ZERO });
        }
    }

    /// Processes the events that were taken in, checking at most `limit` pods but at least one, and returns whether
    /// more is left. O(limit).
    #[doc(hidden)]
    pub fn step(&mut self, limit: usize, cluster: &Cluster, now: Timestamp) -> bool {
        let mut left = limit.max(1);
        while let Some(mut event) = self.backlog.pop_front() {
            if left == 0 {
                self.backlog.push_front(event);
                return true;
            }
            let started = self.recorder().map(|_| Instant::now());
            let mut begun = match event.begun.take() {
                Some(begun) => begun,
                None => {
                    // Beginning an event is charged even if no pod waits.
                    left -= 1;
                    self.begin(&event.kind, now)
                }
            };
            while begun.gated + begun.pool > 0 && left > 0 {
                left -= 1;
                let slot = match begun.pool {
                    0 => {
                        begun.gated -= 1;
                        self.gated.get(begun.gated)
                    }
                    _ => {
                        begun.pool -= 1;
                        self.pool.get(begun.pool)
                    }
                };
                if let Some(slot) = slot {
                    self.ask(slot, &event, begun.number, cluster, now);
                }
            }
            event.spent += started.map_or(Duration::ZERO, |started| started.elapsed());
            if begun.gated + begun.pool > 0 {
                event.begun = Some(begun);
                self.backlog.push_front(event);
                return true;
            }
            self.record(&event);
        }
        false
    }

    fn recorder(&self) -> Option<&dyn Recorder> {
        self.profiles[0].framework.recorder()
    }

    /// Reports an event's processing time if a recorder is set.
    fn record(&self, event: &Move) {
        if let (MoveKind::Event(QueueEvent::Event { resource, action, .. }), Some(recorder)) =
            (&event.kind, self.recorder())
        {
            recorder.record(Measurement::Event(*resource, *action), event.spent);
        }
    }

    fn begin(&mut self, kind: &MoveKind, now: Timestamp) -> Begun {
        self.begun += 1;
        let mut gated = 0;
        if let MoveKind::Event(recorded) = kind {
            self.note_in_flight(now, || recorded.clone());
            if let QueueEvent::Event { resource, action, .. } = recorded {
                let mut profiles = self.profiles.iter();
                let is_gates = profiles.any(|profile| {
                    let concerned = profile.hints.concerned(*resource, *action);
                    !concerned.intersection(profile.gates).is_empty()
                });
                gated = if is_gates { self.gated.len() } else { 0 };
            }
        }
        Begun { number: self.begun, pool: self.pool.len(), gated }
    }

    /// Records an event for the pods in flight. A pod that waits for longer than the unschedulable timeout is tried
    /// without an event, so older events decide nothing.
    pub(super) fn note_in_flight(&mut self, now: Timestamp, recorded: impl FnOnce() -> QueueEvent) {
        self.in_flight.note(now, self.config.unschedulable_timeout, recorded);
    }

    /// Checks one pod against an event, and moves the pod if the event helps.
    fn ask(&mut self, slot: Slot, event: &Move, number: u64, cluster: &Cluster, now: Timestamp) {
        let Some(entry) = self.pods.get(slot) else { return };
        let skipped = event.pre_check.as_ref().is_some_and(|check| !check(&entry.queued.pod));
        if entry.joined >= number || skipped {
            return;
        }
        let (strategy, cause) = match &event.kind {
            MoveKind::Event(recorded) => {
                (self.strategy_for_recorded(slot, recorded, cluster), recorded.cause())
            }
            MoveKind::TooLong => {
                let waited = now.0.saturating_sub(entry.queued.queued.0);
                match waited > nanoseconds(self.config.unschedulable_timeout) {
                    true => (Strategy::AfterBackoff, Cause::Timeout),
                    false => (Strategy::Skip, Cause::Timeout),
                }
            }
        };
        if strategy != Strategy::Skip {
            self.leave(slot);
            if cause == Cause::Timeout
                && let Some(entry) = self.pods.get_mut(slot)
            {
                entry.queued.was_flushed = true;
            }
            self.requeue(slot, strategy, cause, now);
        }
    }

    fn strategy_for_recorded(
        &self,
        slot: Slot,
        recorded: &QueueEvent,
        cluster: &Cluster,
    ) -> Strategy {
        match recorded {
            QueueEvent::Event { resource, action, change } => {
                let event = ClusterEvent { resource: *resource, action: *action, change };
                self.strategy_for(slot, &event, cluster)
            }
            QueueEvent::Activated(uid) => match self.pods.get(slot) {
                Some(entry) if entry.queued.pod.uid == *uid => Strategy::AfterBackoff,
                _ => Strategy::Skip,
            },
        }
    }

    /// Asks the plugins that rejected a pod whether an event helps (`isPodWorthRequeuing`). A gated pod is affected
    /// only by the events of the plugin that gates it.
    pub(super) fn strategy_for(
        &self,
        slot: Slot,
        event: &ClusterEvent<'_>,
        cluster: &Cluster,
    ) -> Strategy {
        let Some(entry) = self.pods.get(slot) else { return Strategy::Skip };
        let (queued, profile) = (&entry.queued, &self.profiles[entry.profile]);
        let rejectors = queued.rejectors();
        if rejectors.is_empty() {
            return Strategy::AfterBackoff;
        }
        let concerned = profile.hints.concerned(event.resource, event.action);
        if concerned.intersection(rejectors).is_empty()
            || (queued.is_gated() && concerned.intersection(queued.gating_plugin).is_empty())
            || is_end_of(event, &queued.pod.uid)
        {
            return Strategy::Skip;
        }
        let (framework, pod) = (&profile.framework, &queued.pod);
        // A local plugin's verdict has changed on the node that a pod has left, and on no other. The event does not
        // help if another plugin that rejected the pod still rejects that node: that plugin's own events wake the pod
        // later.
        let is_rejected = LazyCell::new(|| {
            let left = left_node(event).filter(|_| self.config.checks_left_nodes);
            let node = left.and_then(|name| cluster.node(name));
            let plugins = profile.hints.local_among(rejectors);
            node.is_some_and(|node| framework.rejects_without_victims(plugins, pod, node))
        });
        let helps = |plugins: PluginSet| {
            concerned.intersection(plugins).iter().any(|plugin| {
                profile.hints.ask(framework, plugin, pod, event, cluster) == Hint::Queue
                    && (profile.hints.local_among(plugin).is_empty() || !*is_rejected)
            })
        };
        if helps(queued.pending_plugins) {
            Strategy::Immediately
        } else if helps(queued.unschedulable_plugins) {
            Strategy::AfterBackoff
        } else {
            Strategy::Skip
        }
    }

    /// Like [`SchedulingQueue::strategy_for`], for all events since a pod was popped
    /// (`determineSchedulingHintForInFlightPod`). If some of them were dropped or are too old, they may have helped.
    pub(super) fn strategy_since(
        &self,
        slot: Slot,
        since: u64,
        cluster: &Cluster,
        now: Timestamp,
    ) -> Strategy {
        if self.pods.get(slot).is_some_and(|entry| entry.queued.rejectors().is_empty()) {
            return Strategy::AfterBackoff;
        }
        let recorded = self.in_flight.since(since, now, self.config.unschedulable_timeout);
        let Some(recorded) = recorded else { return Strategy::AfterBackoff };
        let mut best = Strategy::Skip;
        for recorded in recorded {
            match self.strategy_for_recorded(slot, recorded, cluster) {
                Strategy::Skip => {}
                Strategy::AfterBackoff => best = Strategy::AfterBackoff,
                Strategy::Immediately => return Strategy::Immediately,
            }
        }
        best
    }

    /// Puts a pod that is in no place where `strategy` requires it (`requeuePodWithQueueingStrategy`).
    pub(super) fn requeue(
        &mut self,
        slot: Slot,
        strategy: Strategy,
        cause: Cause,
        now: Timestamp,
    ) -> Place {
        match strategy {
            Strategy::Skip => self.settle(slot, Place::Unschedulable, cause),
            Strategy::AfterBackoff if self.is_backing_off(slot, now) => self.back_off(slot, cause),
            Strategy::AfterBackoff | Strategy::Immediately => self.make_active(slot, cause, now),
        }
    }

    fn is_backing_off(&self, slot: Slot, now: Timestamp) -> bool {
        let expires = self.pods.get(slot).and_then(|entry| self.config.backoff(&entry.queued));
        expires.is_some_and(|expires| self.config.is_ahead(expires, now))
    }

    pub(super) fn settle(&mut self, slot: Slot, place: Place, cause: Cause) -> Place {
        if place == Place::Gated
            && let Some(entry) = self.pods.get_mut(slot)
        {
            // The event that opens the gate queues the pod, not its long wait.
            entry.queued.was_flushed = false;
        }
        self.enter(slot, place);
        self.count_incoming(cause, place);
        place
    }

    fn back_off(&mut self, slot: Slot, cause: Cause) -> Place {
        // The PreEnqueue plugins run here because they do not run again when the pod is popped from backoff.
        if self.config.pop_from_backoff && self.run_gates(slot) {
            return self.settle(slot, Place::Gated, cause);
        }
        let generation = self.generation;
        let Some(entry) = self.pods.get_mut(slot) else { return Place::Backoff };
        let expires = self.config.backoff(&entry.queued);
        entry.queued.backoff_expiration = expires;
        entry.queued.generation = generation;
        let is_error = entry.queued.rejectors().is_empty() || entry.queued.group_failures > 0;
        let place = match is_error {
            true => Place::ErrorBackoff,
            false => Place::Backoff,
        };
        self.settle(slot, place, cause)
    }

    /// Makes a pod that is in no place active, unless a PreEnqueue plugin gates it.
    pub(super) fn make_active(&mut self, slot: Slot, cause: Cause, now: Timestamp) -> Place {
        let was_asked = self.config.pop_from_backoff && cause == Cause::BackoffComplete;
        if !was_asked && self.run_gates(slot) {
            return self.settle(slot, Place::Gated, cause);
        }
        let generation = self.generation;
        if let Some(entry) = self.pods.get_mut(slot) {
            entry.queued.first_attempt.get_or_insert(now);
            if cause != Cause::BackoffComplete {
                entry.queued.generation = generation;
            }
        }
        self.settle(slot, Place::Active, cause)
    }

    /// Runs the PreEnqueue plugins, records which one gates the pod, and returns whether any does.
    pub(super) fn run_gates(&mut self, slot: Slot) -> bool {
        let Some(entry) = self.pods.get_mut(slot) else { return false };
        let profile = &self.profiles[entry.profile];
        if profile.gates.is_empty() {
            return false;
        }
        let queued = &mut entry.queued;
        let gate = profile.framework.gate(&queued.pod, queued.gating_plugin);
        let by = gate.map(|(by, _)| by).unwrap_or_default();
        queued.gating_plugin = by;
        queued.unschedulable_plugins = queued.unschedulable_plugins.union(by);
        !by.is_empty()
    }

    /// Activates at most `limit` pods whose backoff is over, and returns how many. O(moved × log n).
    #[doc(hidden)]
    pub fn flush_backoff_completed(&mut self, limit: usize, now: Timestamp) -> usize {
        let mut moved = 0;
        while moved < limit
            && let Some(slot) = self.backed_off(now)
        {
            self.leave(slot);
            self.make_active(slot, Cause::BackoffComplete, now);
            moved += 1;
        }
        moved
    }

    /// Requeues the pods that waited for an event for too long.
    #[doc(hidden)]
    pub fn flush_unschedulable_leftover(&mut self, cluster: &Cluster, now: Timestamp) {
        self.backlog.push_back(Move {
            kind: MoveKind::TooLong,
            pre_check: None,
            begun: None,
            spent: Duration::ZERO,
        });
        while self.step(usize::MAX, cluster, now) {}
    }

    /// Does what is due at `now`: activates at most `limit` pods whose backoff is over and, once per period, plans the
    /// retry of pods that waited for too long, which later [`step`](SchedulingQueue::step)s perform. O(1) if nothing is
    /// due.
    #[doc(hidden)]
    pub fn tick(&mut self, limit: usize, now: Timestamp) {
        self.update_groups(now);
        for Activation { uid, backs_off } in
            self.profiles[0].framework.handle().activations().take()
        {
            match self.pods.find(&uid).filter(|_| backs_off) {
                Some(slot) => self.retry(slot, uid, now),
                None => drop(self.activate(&uid, now)),
            }
        }
        self.flush_backoff_completed(limit, now);
        let period = nanoseconds(self.config.leftover_period);
        let next = Timestamp(now.0.saturating_add(period));
        let due = *self.next_leftover.get_or_insert(next);
        if now >= due {
            self.next_leftover = Some(next);
            self.backlog.push_back(Move {
                kind: MoveKind::TooLong,
                pre_check: None,
                begun: None,
                spent: Duration::ZERO,
            });
        }
    }

    /// Queues a pod whose eviction of others has failed when its backoff is over, as after an error. Only pods that
    /// were rejected are popped before their backoff is over.
    fn retry(&mut self, slot: Slot, uid: Uid, now: Timestamp) {
        match self.pods.get(slot).map(|entry| entry.place) {
            // The attempt that began the eviction has not returned yet.
            Some(Place::InFlight) => {
                let handle = self.profiles[0].framework.handle();
                handle.activations().request_after_backoff(uid);
            }
            Some(Place::Backoff | Place::Unschedulable | Place::Gated) => {
                self.leave(slot);
                if let Some(entry) = self.pods.get_mut(slot) {
                    entry.queued.forget_rejectors();
                }
                self.requeue(slot, Strategy::AfterBackoff, Cause::Activate, now);
            }
            _ => {}
        }
    }

    /// Returns when [`SchedulingQueue::tick`] has work next if no event arrives before.
    #[doc(hidden)]
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        let groups = self.groups.next_retry();
        [self.next_backed_off(), self.next_leftover, groups].into_iter().flatten().min()
    }
}

/// Returns the node that a pod has left, or on which it no longer reserves resources.
fn left_node<'e>(event: &ClusterEvent<'e>) -> Option<&'e Name> {
    let left = event.pod().filter(|pod| pod.new.is_none())?.old.as_deref()?;
    let mut names = [&left.node_name, &left.nominated_node_name].into_iter().flatten();
    names.find(|name| !name.is_empty())
}

/// Returns whether the event is the removal of this very pod from a node. A pod that was assumed on a node and could
/// not be bound gains nothing from its own removal.
fn is_end_of(event: &ClusterEvent<'_>, uid: &Uid) -> bool {
    event.action == Actions::DELETE
        && event.pod().and_then(|pod| pod.old.as_ref()).is_some_and(|old| old.uid == *uid)
}
