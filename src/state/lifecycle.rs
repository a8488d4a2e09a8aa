//! The fold: each event checked, then applied to the draft.
//!
//! A pod is absent, assumed or added; kube-scheduler's `Cache` interface
//! (backend/cache/cache.go, 1.35.4) says which operation leads where. Where it
//! ends its process because the cache is corrupt, the event is refused here.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::freeing;
use crate::log::{Applied, Event, Fact, Outcome};
use crate::model::{EventError, Generation, Name, Pod, Timestamp, Uid};
use crate::snapshot::draft::{Draft, check_supported};
use crate::snapshot::godel::Leaving;
use crate::snapshot::{Cluster, CustomStores, GodelConfig, NodeSlot, PodRef, Snapshot};
use crate::sync::mutated;

use super::commit::CommitPolicy;
use super::godel::{PlaceClocks, UnboundMembers};

/// Told of what events do, as it happens.
pub trait Observer {
    /// A pod is on a node, or its state there changed.
    fn placed(&mut self, _pod: &Pod, _slot: NodeSlot, _assumed: bool) {}
    /// A pod is gone.
    fn gone(&mut self, _uid: &Uid) {}
    /// Whether [`Observer::note`] is to be called: what it is told takes copies of
    /// objects.
    fn takes_notes(&self) -> bool {
        false
    }
    /// What the event of this generation did.
    fn note(&mut self, _generation: Generation, _fact: Fact) {}
}

impl Observer for () {}

/// How old the version is that a placement was decided on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Age {
    /// Nothing has happened since.
    Current,
    Stale,
    /// The assume does not name the version.
    Unknown,
}

/// The writer's state.
pub struct State {
    pub(super) draft: Draft,
    pub(super) generation: Generation,
    /// How long an assumed pod lives after its binding finished; none for ever.
    ttl: Option<Duration>,
    /// How long an assumed pod lives whose binding has not finished; none for ever.
    unfinished_ttl: Option<Duration>,
    /// The assumed pods to which that applies and whose clock has not started.
    unfinished: BTreeSet<Uid>,
    /// Members of pod groups that are not bound yet; with [`GodelConfig::unit_status`] alone.
    pub(super) unbound_members: UnboundMembers,
    /// When assumed pods whose binding finished expire.
    pub(super) deadlines: BTreeMap<Uid, Timestamp>,
    pub(super) by_deadline: BTreeSet<(Timestamp, Uid)>,
    pub(super) places: PlaceClocks,
    commit_policy: CommitPolicy,
}

impl State {
    /// An empty state. Assumed pods expire `ttl` after their binding finished;
    /// a ttl of zero, or none, means never. Placements are checked as the policy says.
    #[must_use]
    pub fn new(ttl: Option<Duration>, commit_policy: CommitPolicy) -> State {
        State {
            draft: Draft::new(),
            generation: Generation::ZERO,
            ttl: ttl.filter(|ttl| !ttl.is_zero()),
            unfinished_ttl: None,
            unfinished: BTreeSet::new(),
            unbound_members: UnboundMembers::default(),
            deadlines: BTreeMap::new(),
            by_deadline: BTreeSet::new(),
            places: PlaceClocks::default(),
            commit_policy,
        }
    }

    /// The same state, still empty, as one of Gödel's schedulers.
    #[must_use]
    pub fn with_godel(mut self, config: GodelConfig) -> State {
        // A place that nobody confirms is held for the shorter of both times
        // (reservation_store.go `AssumePlaceholderPod`).
        let limited = |ttl: Duration| Some(ttl).filter(|ttl| !ttl.is_zero());
        self.places = PlaceClocks::new(match config.reservations {
            Some(ttl) => limited(ttl).into_iter().chain(self.ttl).min(),
            None => None,
        });
        self.unfinished_ttl = config.unfinished_ttl.and_then(limited);
        self.draft.keep_stores(config);
        self
    }

    /// The same state, still empty, with these stores of a user's own.
    #[must_use]
    pub fn with_stores(mut self, stores: CustomStores) -> State {
        self.draft.keep_custom_stores(stores);
        self
    }

    /// The state as it is now.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.draft.cluster
    }

    /// The version as it is now, frozen. O(1).
    #[must_use]
    pub fn freeze(&self) -> Snapshot {
        self.draft.freeze()
    }

    /// Tells that nobody holds a version before `horizon`, so that numbers
    /// released before it can be used again. O(pods that went since the last time).
    pub fn set_horizon(&mut self, horizon: Generation) {
        self.counted(|state| state.draft.set_horizon(horizon));
    }

    /// The same, and forgets at most `most` of the pods that went; returns how many. O(`most`).
    pub fn settle(&mut self, horizon: Generation, most: usize) -> usize {
        self.counted(|state| state.draft.settle(horizon, most))
    }

    /// Counts the tree nodes that a change allocates, all on this thread.
    fn counted<R>(&mut self, change: impl FnOnce(&mut State) -> R) -> R {
        let made = freeing::made();
        let changed = change(self);
        self.draft.cluster.made += freeing::made().wrapping_sub(made);
        changed
    }

    /// Folds one event: applied to everything, or refused without a trace.
    ///
    /// # Errors
    ///
    /// Why the event was refused.
    pub fn apply(&mut self, event: &Event, observer: &mut impl Observer) -> Outcome {
        self.generation = self.generation.next();
        self.draft.begin(self.generation);
        let mut applied = Applied { generation: self.generation, ..Applied::default() };
        let outcome = self.counted(|state| {
            let outcome = state.fold(event, &mut applied, observer);
            state.tell_effects(observer);
            outcome
        });
        outcome.map(|()| applied)
    }

    fn fold(
        &mut self,
        event: &Event,
        applied: &mut Applied,
        observer: &mut impl Observer,
    ) -> Result<(), EventError> {
        match event {
            Event::AssumePod { pod, decided_on } => {
                let slot = self.check_assume(&self.draft, pod, self.age(*decided_on))?;
                self.place(pod, slot, true, observer);
                applied.added = 1;
            }
            Event::AssumeAll { pods, decided_on } => {
                self.assume_all(pods, self.age(*decided_on), observer)?;
                applied.added = pods.len();
            }
            Event::Preempt { pod, victims, decided_on } => {
                let age = self.age(*decided_on);
                applied.removed = self.preempt(pod, victims, age, observer)?;
                applied.added = 1;
            }
            Event::FinishBinding { uid, now } => self.finish_binding(uid, *now, observer)?,
            Event::ForgetPod { uid, node } => {
                applied.removed = usize::from(self.forget(uid, node.as_ref(), observer)?);
            }
            Event::AddPod(pod) => {
                let placed = self.draft.as_placed(pod);
                if self.add_pod(&placed, observer)? {
                    applied.updated = 1;
                } else {
                    applied.added = 1;
                }
            }
            Event::UpdatePod { old, pod } if self.has_pod_states() => {
                self.update_in_state(old, pod, applied, observer)?;
            }
            Event::UpdatePod { old, pod } => {
                self.update_pod(old, pod, observer)?;
                applied.updated = 1;
            }
            Event::RemovePod { uid, node } => {
                // Of Gödel's pods what is known counts, whatever an object says that is older.
                let node = node.as_ref().filter(|_| !self.has_pod_states());
                let known = self.check_known(uid, node, |uid| EventError::NotFound { uid })?;
                if self.assumed(uid).is_some() {
                    // Its scheduler is still binding it and must learn that the pod was deleted.
                    self.not_pending(uid, observer);
                }
                self.displace(uid, known, Leaving::Deleted, observer);
                applied.removed = 1;
            }
            Event::PutPending(pod) if self.has_pod_states() => {
                self.unplace(&pod.uid, pod, applied, observer)?;
            }
            Event::PutPending(pod) => self.put_pending(pod, observer)?,
            Event::RemovePending(uid) => {
                if uid.is_empty() {
                    return Err(EventError::EmptyUid);
                }
                self.not_pending(uid, observer);
                if let Some(spot) = self.assumed(uid) {
                    self.displace(uid, spot, Leaving::Deleted, observer);
                    applied.removed = 1;
                }
            }
            Event::AddNode(node) | Event::UpdateNode(node) => {
                self.draft.check_node(node)?;
                let known = self.put_node(node, observer);
                applied.updated = usize::from(known);
                applied.added = usize::from(!known);
            }
            Event::RemoveNode(name) => {
                self.draft.check_remove_node(name)?;
                self.remove_node(name, observer);
                applied.removed = 1;
            }
            Event::AssignNode { node, scheduler } => {
                self.assign_node(node, observer, |of| *of = Some(scheduler.clone()))?;
                applied.updated = 1;
            }
            Event::UnassignNode { node, scheduler } => {
                let release = |of: &mut Option<Name>| *of = of.take().filter(|of| of != scheduler);
                self.assign_node(node, observer, release)?;
                applied.updated = 1;
            }
            Event::PutObject(object) => {
                let known = self.put_object(object, observer)?;
                applied.updated = usize::from(known);
                applied.added = usize::from(!known);
            }
            Event::SetGroupPhase { namespace, name, phase } => {
                self.set_group_phase(namespace, name, *phase, observer)?;
                applied.updated = 1;
            }
            Event::DeleteObject(key) => {
                self.delete_object(key.kind, &key.namespace, &key.name, observer)?;
                applied.removed = 1;
            }
            Event::MarkForDeletion { victim, preemptor, now } => {
                self.mark_for_deletion(victim, preemptor, *now)?;
            }
            Event::UnmarkForDeletion { victim, preemptor } => {
                self.unmark_for_deletion(victim, preemptor)?;
            }
            Event::Expire(now) => applied.removed = self.expire(*now, observer),
            Event::Relist(relist) => self.relist(relist, applied, observer),
            Event::Custom(event) => {
                self.change_store(event, observer)?;
                applied.updated = 1;
            }
        }
        Ok(())
    }

    /// Where a pod is assumed, if it is.
    fn assumed(&self, uid: &Uid) -> Option<PodRef> {
        self.draft.pod(uid).filter(|pod| pod.is_assumed()).map(|pod| pod.spot())
    }

    /// How old the version is that was decided on.
    fn age(&self, decided_on: Option<Generation>) -> Age {
        match decided_on {
            None => Age::Unknown,
            Some(generation) if generation.next() == self.generation => Age::Current,
            Some(_) if mutated!("commit-takes-stale-for-fresh") => Age::Current,
            Some(_) => Age::Stale,
        }
    }

    pub(super) fn check_assume(
        &self,
        draft: &Draft,
        pod: &Pod,
        age: Age,
    ) -> Result<Option<NodeSlot>, EventError> {
        let uid = &pod.uid;
        if uid.is_empty() {
            return Err(EventError::EmptyUid);
        }
        if draft.pod(uid).is_some() {
            return Err(EventError::AlreadyInCache { uid: uid.clone() });
        }
        let node = node_of(pod)?;
        check_supported(pod)?;
        let slot = draft.check_place(pod, node, None)?;
        let conflict =
            |reason| EventError::Conflict { uid: uid.clone(), node: node.clone(), reason };
        if age == Age::Stale && draft.lacks_place(pod, node) {
            return Err(conflict("the place that it was to have is not held any more".to_owned()));
        }
        if age == Age::Stale && draft.lacks_suggestion(pod, node) {
            return Err(conflict("its movement wants no more pods there".to_owned()));
        }
        if age != Age::Current && !matches!(self.commit_policy, CommitPolicy::Unchecked) {
            // The pod that holds the place for it is no obstacle.
            let without = draft.place_for(pod, node).map(|holder| {
                let mut trial = Draft::fork(&draft.cluster);
                trial.displace(holder);
                trial
            });
            let cluster = without.as_ref().map_or(&draft.cluster, |trial| &trial.cluster);
            self.commit_policy.check(cluster, pod, (node, slot)).map_err(conflict)?;
        }
        Ok(slot)
    }

    /// Assumes each pod on top of those before it, on a fork first: a refusal
    /// leaves no trace.
    fn assume_all(
        &mut self,
        pods: &[Pod],
        age: Age,
        observer: &mut impl Observer,
    ) -> Result<(), EventError> {
        let together = |why| EventError::Together(Box::new(why));
        let mut trial = Draft::fork(self.cluster());
        for pod in pods {
            self.check_assume(&trial, pod, age).map_err(together)?;
            trial.place(pod, node_of(pod)?, None, true);
        }
        // Before the state copies whatever the trial shares with it.
        drop(trial);
        for pod in pods {
            self.place(pod, None, true, observer);
        }
        Ok(())
    }

    fn finish_binding(
        &mut self,
        uid: &Uid,
        now: Timestamp,
        observer: &mut impl Observer,
    ) -> Result<(), EventError> {
        if uid.is_empty() {
            return Err(EventError::EmptyUid);
        }
        self.schedule_unit_of(uid, observer)?;
        if self.draft.pod(uid).is_some_and(|pod| pod.is_assumed()) {
            self.clear_deadline(uid);
            if let Some(ttl) = self.ttl {
                self.set_deadline(uid.clone(), now, ttl);
            }
        }
        self.tick(now);
        Ok(())
    }

    /// It is `now`: starts the clocks of places and of assumed pods whose binding has not
    /// finished. O(clocks that start × log n).
    pub(super) fn tick(&mut self, now: Timestamp) {
        self.places.tick(now);
        let Some(ttl) = self.unfinished_ttl else { return };
        for uid in std::mem::take(&mut self.unfinished) {
            self.set_deadline(uid, now, ttl);
        }
    }

    fn set_deadline(&mut self, uid: Uid, now: Timestamp, ttl: Duration) {
        let ttl = i64::try_from(ttl.as_nanos()).unwrap_or(i64::MAX);
        let deadline = Timestamp(now.0.saturating_add(ttl));
        self.by_deadline.insert((deadline, uid.clone()));
        self.deadlines.insert(uid, deadline);
    }

    fn forget(
        &mut self,
        uid: &Uid,
        node: Option<&Name>,
        observer: &mut impl Observer,
    ) -> Result<bool, EventError> {
        if uid.is_empty() {
            return Err(EventError::EmptyUid);
        }
        let Some(pod) = self.draft.pod(uid) else { return Ok(false) };
        let known = pod.node().name();
        if let Some(given) = node.filter(|given| *given != known) {
            return Err(other_node(uid, known, given));
        }
        if !pod.is_assumed() {
            return Err(EventError::NotAssumed { uid: uid.clone() });
        }
        let spot = pod.spot();
        self.displace(uid, spot, Leaving::Withdrawn, observer);
        Ok(true)
    }

    /// Adds a pod, and says whether that confirmed an assumed one.
    pub(super) fn add_pod(
        &mut self,
        pod: &Pod,
        observer: &mut impl Observer,
    ) -> Result<bool, EventError> {
        let uid = &pod.uid;
        if uid.is_empty() {
            return Err(EventError::EmptyUid);
        }
        let known = self.draft.pod(uid);
        if known.is_some_and(|known| !known.is_assumed()) {
            return Err(EventError::AlreadyAdded { uid: uid.clone() });
        }
        let known = known.map(|known| known.spot());
        let slot = self.draft.check_place(pod, node_of(pod)?, known)?;
        match known {
            None => self.place(pod, slot, false, observer),
            Some(known) => {
                self.clear_deadline(uid);
                self.revise(known, pod, observer);
            }
        }
        Ok(known.is_some())
    }

    pub(super) fn update_pod(
        &mut self,
        old: &Uid,
        pod: &Pod,
        observer: &mut impl Observer,
    ) -> Result<(), EventError> {
        let spot = self.check_known(old, None, |uid| EventError::NotAdded { uid })?;
        let Some(known) = self.draft.pod_at(spot) else { return Ok(()) };
        if known.is_assumed() {
            return Err(EventError::AssumedNotUpdated { uid: old.clone() });
        }
        let node = node_of(pod)?;
        if node != known.node().name() {
            return Err(other_node(old, known.node().name(), node));
        }
        if pod.uid != *old && self.draft.pod(&pod.uid).is_some() {
            return Err(EventError::AlreadyAdded { uid: pod.uid.clone() });
        }
        // A place that is held takes what the pod took.
        let leaves = pod.uid == *old || !self.draft.is_succeeded(spot);
        self.draft.check_place(pod, node, leaves.then_some(spot))?;
        if pod.uid == *old {
            self.revise(spot, pod, observer);
        } else {
            self.displace(old, spot, Leaving::Deleted, observer);
            self.place(pod, None, false, observer);
        }
        Ok(())
    }

    /// Puts another object of a pod, which was checked, in its place: on
    /// another node than before, it may be.
    pub(super) fn revise(&mut self, spot: PodRef, pod: &Pod, observer: &mut impl Observer) {
        self.note_revised(spot, pod, observer);
        let given_up = self.draft.given_up(spot, pod);
        if self.draft.revise(spot, pod, false) {
            observer.placed(pod, spot.slot, false);
        } else {
            self.draft.leave(spot, Leaving::Gone);
            // A ghost goes with its last pod, so the slot may be another one.
            self.put_on(pod, None, false, observer);
        }
        if let Some(number) = given_up {
            self.draft.release_place(number);
        }
        self.draft.unmark_unless_bound(&pod.uid);
        self.count_member(pod, false);
    }

    fn check_known(
        &self,
        uid: &Uid,
        node: Option<&Name>,
        unknown: impl Fn(Uid) -> EventError,
    ) -> Result<PodRef, EventError> {
        if uid.is_empty() {
            return Err(EventError::EmptyUid);
        }
        let Some(pod) = self.draft.pod(uid) else { return Err(unknown(uid.clone())) };
        if self.draft.holds(&pod) {
            return Err(EventError::HoldsPlace { uid: uid.clone() });
        }
        let known = pod.node().name();
        match node.filter(|given| !given.is_empty() && *given != known) {
            Some(given) => Err(other_node(uid, known, given)),
            None => Ok(pod.spot()),
        }
    }

    fn expire(&mut self, now: Timestamp, observer: &mut impl Observer) -> usize {
        self.tick(now);
        let mut expired = 0;
        while let Some((deadline, uid)) = self.by_deadline.first().cloned() {
            if deadline >= now {
                break;
            }
            match self.draft.pod(&uid).map(|pod| pod.spot()) {
                Some(spot) => self.displace(&uid, spot, Leaving::Withdrawn, observer),
                // Only assumed pods have deadlines.
                None => self.clear_deadline(&uid),
            }
            expired += 1;
        }
        self.draft.expire_deletion_marks(now);
        expired + self.expire_places(now)
    }

    pub(super) fn place(
        &mut self,
        pod: &Pod,
        known: Option<NodeSlot>,
        assumed: bool,
        observer: &mut impl Observer,
    ) {
        if !assumed {
            self.note_placed(pod, observer);
        }
        self.put_on(pod, known, assumed, observer);
    }

    fn put_on(
        &mut self,
        pod: &Pod,
        known: Option<NodeSlot>,
        assumed: bool,
        observer: &mut impl Observer,
    ) {
        if let Some(node) = &pod.node_name
            && let Some(slot) = self.draft.place(pod, node, known, assumed)
        {
            observer.placed(pod, slot, assumed);
        }
        if assumed && self.unfinished_ttl.is_some() {
            self.unfinished.insert(pod.uid.clone());
        }
        self.count_member(pod, assumed);
    }

    pub(super) fn displace(
        &mut self,
        uid: &Uid,
        spot: PodRef,
        leaving: Leaving,
        observer: &mut impl Observer,
    ) {
        self.clear_deadline(uid);
        self.note_displaced(spot, observer);
        self.draft.leave(spot, leaving);
        self.draft.unmark_unless_bound(uid);
        observer.gone(uid);
    }

    pub(super) fn clear_deadline(&mut self, uid: &Uid) {
        if let Some(deadline) = self.deadlines.remove(uid) {
            self.by_deadline.remove(&(deadline, uid.clone()));
        }
        self.unfinished.remove(uid);
        self.unbound_members.remove(uid);
    }
}

pub(super) fn node_of(pod: &Pod) -> Result<&Name, EventError> {
    match &pod.node_name {
        Some(node) if !node.is_empty() => Ok(node),
        _ => Err(EventError::NoNodeName { uid: pod.uid.clone() }),
    }
}

pub(super) fn other_node(uid: &Uid, known: &Name, given: &Name) -> EventError {
    EventError::OtherNode { uid: uid.clone(), known: known.clone(), given: given.clone() }
}
