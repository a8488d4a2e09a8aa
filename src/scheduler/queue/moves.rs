//! From one queue to another: by events, by time, past the plugins that gate.
//!
//! An event is acted on in steps. It is noted for the pods in flight, and then pod
//! after pod of the pool is asked about it, from the last to the first: what leaves the
//! pool is replaced by its last pod, which was asked already, and what joins it is at
//! the end. Such a one is not asked: it knows the event from its flight. So between two
//! steps anything may be done with the queue, and the outcome is that of the event at
//! the moment at which it was begun.

use std::fmt;
use std::time::{Duration, Instant};

use crate::framework::{
    Actions, ClusterEvent, EventResource, Hint, Nominator, PodGroups, Recorder,
};
use crate::model::{Pod, Timestamp, Uid};
use crate::snapshot::Cluster;

use super::backoff::nanoseconds;
use super::figures::Cause;
use super::heap::Slot;
use super::in_flight::Happening;
use super::{Place, SchedulingQueue};

/// What becomes of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strategy {
    /// It stays.
    Skip,
    /// It is tried when its backoff is over.
    AfterBackoff,
    /// It is tried at once.
    Immediately,
}

/// Which pods an event is about, by a glance at each.
pub type PreCheck = Box<dyn Fn(&Pod) -> bool + Send + Sync>;

/// An event to be acted on.
pub(super) struct Move {
    what: What,
    pre_check: Option<PreCheck>,
    begun: Option<Begun>,
    /// How long it was acted on so far, where somebody hears of it.
    spent: Duration,
}

enum What {
    Happened(Happening),
    /// Pods that waited for too long are to be tried.
    TooLong,
}

/// How far it is acted on: these first pods of each pool were not asked yet.
struct Begun {
    number: u64,
    pool: usize,
    gated: usize,
}

impl fmt::Debug for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = match &self.what {
            What::Happened(happening) => happening.cause(),
            What::TooLong => Cause::Timeout,
        };
        f.debug_tuple("Move").field(&cause).finish()
    }
}

impl Happening {
    pub(super) fn cause(&self) -> Cause {
        match self {
            Happening::Event { resource, action, .. } => Cause::Event(*resource, *action),
            Happening::Activated(_) => Cause::Activate,
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

    /// Whether any plugin of any profile wants to be told of such events.
    fn is_of_interest(&self, resource: EventResource, action: Actions) -> bool {
        let mut profiles = self.profiles.iter();
        profiles.any(|profile| !profile.hints.concerned(resource, action).is_empty())
    }

    /// Moves every pod that an event may make schedulable, of those that `pre_check`
    /// lets through (`MoveAllToActiveOrBackoffQueue`), and lets pods in flight know of
    /// it. Events that were taken in before come first. O(pods in the pool).
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

    /// An event is to be acted on after those that are already.
    pub(super) fn plan(&mut self, event: &ClusterEvent<'_>, pre_check: Option<PreCheck>) {
        if self.is_of_interest(event.resource, event.action) {
            let what = What::Happened(Happening::of(event));
            self.backlog.push_back(Move { what, pre_check, begun: None, spent: Duration::ZERO });
        }
    }

    /// Acts on the events that were taken in, asking about at most so many pods, and
    /// says whether there is more to do. O(most), and at least one is asked.
    pub fn step(&mut self, most: usize, cluster: &Cluster, now: Timestamp) -> bool {
        let mut left = most.max(1);
        while let Some(mut event) = self.backlog.pop_front() {
            if left == 0 {
                self.backlog.push_front(event);
                return true;
            }
            let started = self.recorder().map(|_| Instant::now());
            let mut begun = match event.begun.take() {
                Some(begun) => begun,
                None => {
                    // It costs something even where no pod waits.
                    left -= 1;
                    self.begin(&event.what)
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

    /// Tells how long an event was acted on, if somebody listens.
    fn record(&self, event: &Move) {
        if let (What::Happened(Happening::Event { resource, action, .. }), Some(recorder)) =
            (&event.what, self.recorder())
        {
            recorder.event(*resource, *action, event.spent);
        }
    }

    fn begin(&mut self, what: &What) -> Begun {
        self.begun += 1;
        let mut gated = 0;
        if let What::Happened(happening) = what {
            self.in_flight.note(|| happening.clone());
            if let Happening::Event { resource, action, .. } = happening {
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

    /// Asks about one pod of the pool, and moves it if the event helps.
    fn ask(&mut self, slot: Slot, event: &Move, number: u64, cluster: &Cluster, now: Timestamp) {
        let Some(entry) = self.pods.get(slot) else { return };
        let skipped = event.pre_check.as_ref().is_some_and(|check| !check(&entry.queued.pod));
        if entry.joined >= number || skipped {
            return;
        }
        let (strategy, cause) = match &event.what {
            What::Happened(happening) => {
                (self.worth_of(slot, happening, cluster), happening.cause())
            }
            What::TooLong => {
                let waited = now.0.saturating_sub(entry.queued.queued.0);
                match waited > nanoseconds(self.config.unschedulable_timeout) {
                    true => (Strategy::AfterBackoff, Cause::Timeout),
                    false => (Strategy::Skip, Cause::Timeout),
                }
            }
        };
        if strategy != Strategy::Skip {
            self.leave(slot);
            self.requeue(slot, strategy, cause, now);
        }
    }

    fn worth_of(&self, slot: Slot, happening: &Happening, cluster: &Cluster) -> Strategy {
        match happening {
            Happening::Event { resource, action, change } => {
                let event = ClusterEvent { resource: *resource, action: *action, change };
                self.worth(slot, &event, cluster)
            }
            Happening::Activated(uid) => match self.pods.get(slot) {
                Some(entry) if entry.queued.pod.uid == *uid => Strategy::AfterBackoff,
                _ => Strategy::Skip,
            },
        }
    }

    /// What the plugins that rejected a pod make of an event (`isPodWorthRequeuing`).
    /// A gated pod hears of those alone that concern the plugin which keeps it.
    pub(super) fn worth(
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
        let framework = &profile.framework;
        let helps = |plugins: crate::framework::PluginSet| {
            concerned.intersection(plugins).iter().any(|plugin| {
                profile.hints.ask(framework, plugin, &queued.pod, event, cluster) == Hint::Queue
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

    /// The same for all that happened since a pod was popped
    /// (`determineSchedulingHintForInFlightPod`).
    pub(super) fn worth_since(&self, slot: Slot, since: u64, cluster: &Cluster) -> Strategy {
        if self.pods.get(slot).is_some_and(|entry| entry.queued.rejectors().is_empty()) {
            return Strategy::AfterBackoff;
        }
        let mut best = Strategy::Skip;
        for happening in self.in_flight.since(since) {
            match self.worth_of(slot, happening, cluster) {
                Strategy::Skip => {}
                Strategy::AfterBackoff => best = Strategy::AfterBackoff,
                Strategy::Immediately => return Strategy::Immediately,
            }
        }
        best
    }

    /// Puts a pod that is nowhere where it belongs
    /// (`requeuePodWithQueueingStrategy`).
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
        self.enter(slot, place);
        self.count_incoming(cause, place);
        place
    }

    fn back_off(&mut self, slot: Slot, cause: Cause) -> Place {
        // Whoever is popped from here is not asked again.
        if self.config.pop_from_backoff && self.is_kept(slot) {
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

    /// Makes a pod active that is nowhere, unless a plugin keeps it.
    pub(super) fn make_active(&mut self, slot: Slot, cause: Cause, now: Timestamp) -> Place {
        let was_asked = self.config.pop_from_backoff && cause == Cause::BackoffComplete;
        if !was_asked && self.is_kept(slot) {
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

    /// Whether a plugin keeps the pod from queueing, which is noted.
    pub(super) fn is_kept(&mut self, slot: Slot) -> bool {
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

    /// Makes pods active whose backoff is over, at most so many, and says how many.
    /// O(moved × log n).
    pub fn flush_backoff_completed(&mut self, most: usize, now: Timestamp) -> usize {
        let mut moved = 0;
        while moved < most
            && let Some(slot) = self.backed_off(now)
        {
            self.leave(slot);
            self.make_active(slot, Cause::BackoffComplete, now);
            moved += 1;
        }
        moved
    }

    /// Pods that waited for an event for too long are to be tried.
    pub fn flush_unschedulable_leftover(&mut self, cluster: &Cluster, now: Timestamp) {
        self.backlog.push_back(Move {
            what: What::TooLong,
            pre_check: None,
            begun: None,
            spent: Duration::ZERO,
        });
        while self.step(usize::MAX, cluster, now) {}
    }

    /// Does what time has made due: pods whose backoff is over, at most so many, and
    /// once a period those that waited for too long, which later
    /// [`step`](SchedulingQueue::step)s act on. O(1) where nothing is due.
    pub fn tick(&mut self, most: usize, now: Timestamp) {
        self.rally(now);
        self.flush_backoff_completed(most, now);
        let period = nanoseconds(self.config.leftover_period);
        let next = Timestamp(now.0.saturating_add(period));
        let due = *self.next_leftover.get_or_insert(next);
        if now >= due {
            self.next_leftover = Some(next);
            self.backlog.push_back(Move {
                what: What::TooLong,
                pre_check: None,
                begun: None,
                spent: Duration::ZERO,
            });
        }
    }

    /// When [`SchedulingQueue::tick`] has something to do next, if nothing else
    /// happens.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        let groups = self.groups.next_retry();
        [self.next_backed_off(), self.next_leftover, groups].into_iter().flatten().min()
    }
}

/// Whether the event is that this very pod left a node, as one does that was assumed
/// there and could not be bound: it gains nothing by that.
fn is_end_of(event: &ClusterEvent<'_>, uid: &Uid) -> bool {
    event.action == Actions::DELETE
        && event.pod().and_then(|pod| pod.old.as_ref()).is_some_and(|old| old.uid == *uid)
}
