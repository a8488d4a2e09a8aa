//! The fold, which checks each event and then applies it to the draft.
//!
//! A pod is absent, assumed or added. The transitions are those of kube-scheduler's `Cache` interface
//! (backend/cache/cache.go, 1.35.4). In the cases in which kube-scheduler exits because its cache is corrupt, the event
//! is rejected here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::freeing;
use crate::log::{Applied, Event, Followers, Outcome, Prepared};
use crate::model::{EventError, Generation, Name, Pod, Timestamp, Uid};
use crate::snapshot::draft::{Draft, node_of};
use crate::snapshot::godel::Leaving;
use crate::snapshot::{
    Cluster, CustomStores, GodelConfig, NodeSlot, PlacedChunk, Plan, PodRef, Recheck, Snapshot,
};
use crate::sync::mutated;

use super::commit::CommitPolicy;
use super::godel::{PlaceClocks, UnboundMembers};

/// The age of the version on which a placement was decided.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Age {
    /// No event has been folded since.
    Current,
    /// Events have been folded since.
    Stale,
    /// Events have been folded since this generation, and the event assumes one pod only.
    Since(Generation),
    /// The event does not name the version.
    Unknown,
}

/// The writer's state.
pub(crate) struct State {
    pub(super) draft: Draft,
    pub(super) generation: Generation,
    /// The lifetime of an assumed pod after its binding has finished. `None` if it is unlimited.
    ttl: Option<Duration>,
    /// The lifetime of an assumed pod whose binding has not finished. `None` if it is unlimited.
    unfinished_ttl: Option<Duration>,
    /// The assumed pods to which `unfinished_ttl` applies and whose clock has not started.
    pub(super) unfinished: BTreeSet<Uid>,
    /// The members of pod groups that are not bound yet. Empty unless [`GodelConfig::unit_status`] is set.
    pub(super) unbound_members: UnboundMembers,
    /// The times at which assumed pods expire.
    pub(super) deadlines: BTreeMap<Uid, Timestamp>,
    pub(super) by_deadline: BTreeSet<(Timestamp, Uid)>,
    pub(super) places: PlaceClocks,
    commit_policy: CommitPolicy,
    pub(crate) followers: Followers,
}

impl State {
    /// Creates an empty state. Assumed pods expire `ttl` after their binding has finished, or never if `ttl` is zero or
    /// `None`. Placements are checked according to `commit_policy`.
    #[must_use]
    pub(crate) fn new(ttl: Option<Duration>, commit_policy: CommitPolicy) -> State {
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
            followers: Followers::default(),
        }
    }

    /// Creates a state that starts as a fork of a version, with its stores and its Gödel semantics. The clocks of what the
    /// version's writer had assumed start anew. O(1), or O(pods) if the status of pod groups is kept.
    pub(crate) fn at(base: &Cluster, ttl: Option<Duration>, commit_policy: CommitPolicy) -> State {
        let (draft, generation) = (Draft::fork(base), base.generation());
        let mut state = State { draft, generation, ..State::new(ttl, commit_policy) };
        let Some(config) = base.godel() else { return state };
        state.set_lifetimes(config);
        if let Some(places) = base.reservations() {
            state.places.begin(places);
        }
        if config.unit_status {
            for pod in base.everything().flat_map(|node| node.pods()) {
                // A version does not say whether the binding of an assumed pod has finished.
                state.count_member(&pod.to_pod(), false);
            }
        }
        state
    }

    /// Enables Gödel semantics. The state must still be empty.
    #[must_use]
    pub(crate) fn with_godel(mut self, config: GodelConfig) -> State {
        self.set_lifetimes(&config);
        self.draft.keep_stores(config);
        self
    }

    fn set_lifetimes(&mut self, config: &GodelConfig) {
        // An unconfirmed reservation is held for the shorter of both times (reservation_store.go
        // `AssumePlaceholderPod`).
        let limited = |ttl: Duration| Some(ttl).filter(|ttl| !ttl.is_zero());
        self.places = PlaceClocks::new(match config.reservations {
            Some(ttl) => limited(ttl).into_iter().chain(self.ttl).min(),
            None => None,
        });
        self.unfinished_ttl = config.unfinished_ttl.and_then(limited);
    }

    /// Indexes pods by name. The state must still be empty.
    #[must_use]
    pub(crate) fn with_pod_names(mut self) -> State {
        self.draft.index_names();
        self
    }

    /// Adds custom stores. The state must still be empty.
    #[must_use]
    pub(crate) fn with_stores(mut self, stores: CustomStores) -> State {
        self.draft.keep_custom_stores(stores);
        self
    }

    /// Returns the current state.
    #[must_use]
    pub(crate) fn cluster(&self) -> &Cluster {
        &self.draft.cluster
    }

    /// Returns a snapshot of the current state. O(1).
    #[must_use]
    pub(crate) fn freeze(&mut self) -> Snapshot {
        self.draft.turn();
        self.draft.freeze()
    }

    /// Declares that no version before `horizon` is held, so that numbers released before it can be reused.
    /// O(pods removed since the last call).
    pub(crate) fn set_horizon(&mut self, horizon: Generation) {
        self.counted(|state| state.draft.set_horizon(horizon));
    }

    /// Like [`State::set_horizon`], but drops at most `most` index entries of removed pods. Returns their number.
    /// O(`most`).
    pub(crate) fn settle(&mut self, horizon: Generation, most: usize) -> usize {
        self.counted(|state| state.draft.settle(horizon, most))
    }

    /// Performs a change, and counts the tree nodes that it allocates, which all happens on this thread.
    pub(super) fn counted<R>(&mut self, change: impl FnOnce(&mut State) -> R) -> R {
        let made = freeing::made();
        let changed = change(self);
        self.draft.cluster.made += freeing::made().wrapping_sub(made);
        changed
    }

    /// Folds one event: it is applied as a whole, or rejected without any effect except that it takes a generation.
    ///
    /// # Errors
    ///
    /// Returns the reason for which the event is rejected.
    pub(crate) fn apply(&mut self, event: &Event) -> Outcome {
        self.generation = self.generation.next();
        self.draft.begin(self.generation);
        let mut applied = Applied { generation: self.generation, ..Applied::default() };
        let outcome = self.counted(|state| {
            let outcome = state.fold(event, &mut applied);
            state.report_effects();
            outcome
        });
        outcome.map(|()| applied)
    }

    fn fold(&mut self, event: &Event, applied: &mut Applied) -> Result<(), EventError> {
        match event {
            Event::AssumePod { pod, decided_on, prepared } => {
                self.assume(pod, *decided_on, prepared)?;
                applied.added = 1;
            }
            Event::AssumeAll { pods, decided_on } => {
                self.assume_all(pods, self.age(*decided_on))?;
                applied.added = pods.len();
            }
            Event::AssumeEach { pods, decided_on, prepared } => {
                let plan = prepared.take::<Plan>();
                let plan = self.assume_batch(pods, *decided_on, plan, applied);
                if let Some(plan) = plan {
                    prepared.put_back(plan);
                }
            }
            Event::Preempt { pod, victims, decided_on } => {
                let age = self.age(*decided_on);
                applied.removed = self.preempt(pod, victims, age)?;
                applied.added = 1;
            }
            Event::FinishBinding { uid, now } => self.finish_binding(uid, *now)?,
            Event::ForgetPod { uid, node } => {
                applied.removed = usize::from(self.forget(uid, node.as_ref())?);
            }
            Event::AddPod(pod) => {
                let placed = self.draft.as_placed(pod);
                applied.put(self.add_pod(&placed)?);
            }
            Event::PutPod(pod) => self.put_pod(pod, applied)?,
            Event::UpdatePod { old, pod } if self.has_pod_states() => {
                self.update_in_state(old, pod, applied)?;
            }
            Event::UpdatePod { old, pod } => {
                self.update_pod(old, pod)?;
                applied.updated = 1;
            }
            Event::RemovePod { uid, node } => {
                self.remove_pod(uid, node.as_ref())?;
                applied.removed = 1;
            }
            Event::PutPending(pod) if self.has_pod_states() => {
                self.unplace(&pod.uid, pod, applied)?;
            }
            Event::PutPending(pod) => self.put_pending(pod)?,
            Event::RemovePending(uid) => {
                applied.removed = usize::from(self.remove_pending(uid)?);
            }
            Event::AddNode(_)
            | Event::UpdateNode(_)
            | Event::RemoveNode(_)
            | Event::AssignNode { .. }
            | Event::UnassignNode { .. } => self.fold_node(event, applied)?,
            Event::PutObject(object) => applied.put(self.put_object(object)?),
            Event::SetGroupPhase { namespace, name, phase } => {
                self.set_group_phase(namespace, name, *phase)?;
                applied.updated = 1;
            }
            Event::DeleteObject(key) => {
                self.delete_object(key.kind, &key.namespace, &key.name)?;
                applied.removed = 1;
            }
            Event::MarkForDeletion { victim, preemptor, now } => {
                self.mark_for_deletion(victim, preemptor, *now)?;
            }
            Event::UnmarkForDeletion { victim, preemptor } => {
                self.unmark_for_deletion(victim, preemptor)?;
            }
            Event::Expire(now) => applied.removed = self.expire(*now),
            Event::Relist(relist) => self.relist(relist, applied),
            Event::Custom(event) => {
                self.change_store(event)?;
                applied.updated = 1;
            }
        }
        Ok(())
    }

    fn fold_node(&mut self, event: &Event, applied: &mut Applied) -> Result<(), EventError> {
        match event {
            Event::AddNode(node) | Event::UpdateNode(node) => {
                self.draft.check_node(node)?;
                applied.put(self.put_node(node));
            }
            Event::RemoveNode(name) => {
                self.draft.check_remove_node(name)?;
                self.remove_node(name);
                applied.removed = 1;
            }
            Event::AssignNode { node, scheduler } => {
                self.assign_node(node, |assigned| *assigned = Some(scheduler.clone()))?;
                applied.updated = 1;
            }
            Event::UnassignNode { node, scheduler } => {
                let release = |assigned: &mut Option<Name>| {
                    *assigned = assigned.take().filter(|name| name != scheduler);
                };
                self.assign_node(node, release)?;
                applied.updated = 1;
            }
            _ => {}
        }
        Ok(())
    }

    fn assumed(&self, uid: &Uid) -> Option<PodRef> {
        self.draft.pod(uid).filter(|pod| pod.is_assumed()).map(|pod| pod.pod_ref())
    }

    /// Returns the age of the version on which a placement was decided.
    fn age(&self, decided_on: Option<Generation>) -> Age {
        match decided_on {
            None => Age::Unknown,
            Some(generation) if generation.next() == self.generation => Age::Current,
            Some(_) if mutated!("commit-takes-stale-for-fresh") => Age::Current,
            Some(_) => Age::Stale,
        }
    }

    /// Checks that a pod can be assumed on top of `draft`. Returns the slot of its node if the node is known.
    pub(super) fn check_assume(
        &self,
        draft: &Draft,
        pod: &Pod,
        age: Age,
    ) -> Result<Option<NodeSlot>, EventError> {
        let uid = &pod.uid;
        let slot = draft.check_assume(pod, None)?;
        let node = node_of(pod)?;
        let conflict =
            |reason| EventError::Conflict { uid: uid.clone(), node: node.clone(), reason };
        let is_stale = matches!(age, Age::Stale | Age::Since(_));
        if is_stale && draft.lacks_place(pod, node) {
            return Err(conflict("its reservation is no longer available".to_owned()));
        }
        if is_stale && draft.lacks_suggestion(pod, node) {
            return Err(conflict("its movement no longer suggests this node".to_owned()));
        }
        if age != Age::Current && !matches!(self.commit_policy, CommitPolicy::Unchecked) {
            // The placeholder pod whose reservation this pod takes does not compete with it.
            let without = draft.place_for(pod, node).map(|holder| {
                let mut trial = Draft::fork(&draft.cluster);
                trial.displace(holder);
                trial
            });
            let cluster = without.as_ref().map_or(&draft.cluster, |trial| &trial.cluster);
            let since = match age {
                Age::Since(since) => Some(since),
                _ => None,
            };
            self.commit_policy.check(cluster, pod, (node, slot), since).map_err(conflict)?;
        }
        Ok(slot)
    }

    /// Assumes a pod, by taking over the chunk that its scheduler has prepared if possible.
    fn assume(
        &mut self,
        pod: &Pod,
        decided_on: Option<Generation>,
        prepared: &Prepared,
    ) -> Result<(), EventError> {
        let age = match (self.age(decided_on), decided_on) {
            (Age::Stale, Some(since)) if since < self.generation => Age::Since(since),
            (age, _) => age,
        };
        if let Some(mut placed) = prepared.take::<PlacedChunk>() {
            let is_taken = self.draft.can_take_over(&placed, pod)
                && self.is_still_valid(&placed, age)
                && self.draft.take_over(&mut placed, pod);
            // The sender's thread drops what is left.
            prepared.put_back(placed);
            if is_taken {
                return Ok(());
            }
        }
        let slot = self.check_assume(&self.draft, pod, age)?;
        self.place(pod, slot, true);
        Ok(())
    }

    /// Returns whether a placement in a chunk that has not changed passes the commit check.
    fn is_still_valid(&self, placed: &PlacedChunk, age: Age) -> bool {
        let (cluster, (pod, node)) = (&self.draft.cluster, placed.placement());
        match age {
            Age::Current => true,
            // The scheduler need not have checked the resources.
            _ if matches!(self.commit_policy, CommitPolicy::Room) => {
                self.commit_policy.check(cluster, pod, ("", Some(node)), None).is_ok()
            }
            Age::Since(since) if !cluster.concerns_stores(&pod.template, since) => {
                match self.commit_policy.check_unchanged(cluster, pod, &[node]) {
                    Recheck::Valid => true,
                    Recheck::Each(valid) => valid == [true],
                    Recheck::OneByOne => false,
                }
            }
            _ => false,
        }
    }

    /// Assumes each pod on top of the pods before it. All pods are tried on a fork first, so that a rejection has no
    /// effect.
    fn assume_all(&mut self, pods: &[Pod], age: Age) -> Result<(), EventError> {
        let together = |why| EventError::Together(Box::new(why));
        let mut trial = Draft::fork(self.cluster());
        for pod in pods {
            self.check_assume(&trial, pod, age).map_err(together)?;
            // The caches of checks require a separate generation for each change.
            trial.begin(trial.cluster.generation().next());
            trial.place(pod, node_of(pod)?, None, true);
        }
        // Dropped first. Otherwise the state would copy everything that it shares with the trial.
        drop(trial);
        for pod in pods {
            self.place(pod, None, true);
        }
        Ok(())
    }

    /// Makes a plan the current state, if it starts at the state before this event and has exactly these placements.
    fn adopt(&mut self, plan: Box<Plan>, pods: &[Arc<Pod>]) -> Result<(), Box<Plan>> {
        self.draft.adopt(plan, pods)?;
        self.generation = self.draft.cluster.generation();
        Ok(())
    }

    /// Assumes each pod after those before it, by adopting the plan if possible. Returns what is left of the plan.
    fn assume_batch(
        &mut self,
        pods: &[Arc<Pod>],
        decided_on: Option<Generation>,
        plan: Option<Box<Plan>>,
        applied: &mut Applied,
    ) -> Option<Box<Plan>> {
        let left = match plan.map(|plan| self.adopt(plan, pods)) {
            Some(Ok(())) => {
                applied.added = pods.len();
                None
            }
            other => {
                let plan = other.and_then(Result::err);
                self.assume_each(pods, (self.age(decided_on), plan), applied)
            }
        };
        applied.generation = self.generation;
        left
    }

    /// Assumes the pods one by one, each as an event of its own. Placements of the plan that are still valid are taken
    /// over without another check. Returns what is left of the plan.
    fn assume_each(
        &mut self,
        pods: &[Arc<Pod>],
        (mut age, plan): (Age, Option<Box<Plan>>),
        applied: &mut Applied,
    ) -> Option<Box<Plan>> {
        let (mut grafts, mut refused) = (None, None);
        if let Some(plan) = plan {
            let check = |pod: &Pod, nodes: &[NodeSlot]| {
                self.commit_policy.check_unchanged(&self.draft.cluster, pod, nodes)
            };
            match self.draft.grafts(plan, pods, check) {
                Ok(found) => grafts = Some(found),
                Err(plan) => refused = Some(plan),
            }
        }
        for (n, pod) in pods.iter().enumerate() {
            if n > 0 {
                self.generation = self.generation.next();
                self.draft.begin(self.generation);
            }
            if grafts.as_mut().is_some_and(|grafts| self.draft.graft(grafts, n, pod)) {
                applied.added += 1;
                continue;
            }
            match self.check_assume(&self.draft, pod, age) {
                Ok(slot) => {
                    self.place(pod, slot, true);
                    applied.added += 1;
                }
                Err(why) => {
                    applied.rejected.push((pod.uid.to_string(), why));
                    // The later ones were decided on with this pod in place, so they must be checked.
                    if age == Age::Current {
                        age = Age::Unknown;
                    }
                }
            }
        }
        grafts.map(|grafts| grafts.finish(&self.draft)).or(refused)
    }

    pub(super) fn remove_pod(&mut self, uid: &Uid, node: Option<&Name>) -> Result<(), EventError> {
        // With Gödel semantics, the stored node is authoritative, because the object may be older.
        let node = node.filter(|_| !self.has_pod_states());
        let known = self.check_known(uid, node, |uid| EventError::NotFound { uid })?;
        if self.draft.pod_at(known).is_some_and(|pod| pod.is_assumed()) {
            // The scheduler is still binding the pod and must learn that it was deleted.
            self.not_pending(uid);
        }
        self.displace(uid, known, Leaving::Deleted);
        Ok(())
    }

    /// Removes a pending pod, and returns `true` if it was assumed.
    pub(super) fn remove_pending(&mut self, uid: &Uid) -> Result<bool, EventError> {
        if uid.is_empty() {
            return Err(EventError::EmptyUid);
        }
        self.not_pending(uid);
        let Some(pod_ref) = self.assumed(uid) else { return Ok(false) };
        self.displace(uid, pod_ref, Leaving::Deleted);
        Ok(true)
    }

    fn finish_binding(&mut self, uid: &Uid, now: Timestamp) -> Result<(), EventError> {
        if uid.is_empty() {
            return Err(EventError::EmptyUid);
        }
        self.schedule_unit_of(uid)?;
        if self.draft.pod(uid).is_some_and(|pod| pod.is_assumed()) {
            self.clear_deadline(uid);
            if let Some(ttl) = self.ttl {
                self.set_deadline(uid.clone(), now, ttl);
            }
        }
        self.tick(now);
        Ok(())
    }

    /// Advances the clock to `now`, which starts the clocks of new reservations and of assumed pods whose binding has
    /// not finished. O(clocks that start × log n).
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

    fn forget(&mut self, uid: &Uid, node: Option<&Name>) -> Result<bool, EventError> {
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
        let pod_ref = pod.pod_ref();
        self.displace(uid, pod_ref, Leaving::Withdrawn);
        Ok(true)
    }

    /// Adds a pod, and returns `true` if that confirmed an assumed pod.
    pub(super) fn add_pod(&mut self, pod: &Pod) -> Result<bool, EventError> {
        let uid = &pod.uid;
        if uid.is_empty() {
            return Err(EventError::EmptyUid);
        }
        let known = self.draft.pod(uid);
        if known.is_some_and(|known| !known.is_assumed()) {
            return Err(EventError::AlreadyAdded { uid: uid.clone() });
        }
        let known = known.map(|known| known.pod_ref());
        let slot = self.draft.check_place(pod, node_of(pod)?, known)?;
        match known {
            None => self.place(pod, slot, false),
            Some(known) => {
                self.clear_deadline(uid);
                self.revise(known, pod);
            }
        }
        Ok(known.is_some())
    }

    pub(super) fn update_pod(&mut self, old: &Uid, pod: &Pod) -> Result<(), EventError> {
        let pod_ref = self.check_known(old, None, |uid| EventError::NotAdded { uid })?;
        let Some(known) = self.draft.pod_at(pod_ref) else { return Ok(()) };
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
        if pod.uid == *old && self.draft.is_revision(pod_ref, pod) {
            // The pod takes as much of its node as before, so no other check can fail.
            self.replace(pod_ref, pod, true);
            return Ok(());
        }
        // If the pod's removal creates a reservation, that takes over the resources of the pod.
        let leaves = pod.uid == *old || !self.draft.is_succeeded(pod_ref);
        self.draft.check_place(pod, node, leaves.then_some(pod_ref))?;
        if pod.uid == *old {
            self.replace(pod_ref, pod, false);
        } else {
            self.displace(old, pod_ref, Leaving::Deleted);
            self.place(pod, None, false);
        }
        Ok(())
    }

    /// Replaces the object of a pod, possibly on another node. The caller has checked the new object.
    pub(super) fn revise(&mut self, pod_ref: PodRef, pod: &Pod) {
        let is_revision = self.draft.is_revision(pod_ref, pod);
        self.replace(pod_ref, pod, is_revision);
    }

    /// Like [`State::revise`], for a caller that knows whether the object is a [revision](Draft::is_revision).
    fn replace(&mut self, pod_ref: PodRef, pod: &Pod, is_revision: bool) {
        self.note_revised(pod_ref, pod);
        let given_up = self.draft.given_up(pod_ref, pod);
        if !(is_revision && self.draft.revise(pod_ref, pod, false)) {
            self.draft.leave(pod_ref, Leaving::Gone);
            // A ghost is removed with its last pod, so the slot may no longer be valid.
            self.put_on(pod, None, false);
        }
        if let Some(number) = given_up {
            self.draft.release_place(number);
        }
        self.draft.unmark_unless_bound(&pod.uid);
        self.count_member(pod, false);
    }

    /// Returns a reference to the pod with this uid, after checking that it is not a placeholder pod and, if `node` is
    /// given, that it is on that node.
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
            None => Ok(pod.pod_ref()),
        }
    }

    fn expire(&mut self, now: Timestamp) -> usize {
        self.tick(now);
        let mut expired = 0;
        while let Some((deadline, uid)) = self.by_deadline.first().cloned() {
            if deadline >= now {
                break;
            }
            match self.draft.pod(&uid).map(|pod| pod.pod_ref()) {
                Some(pod_ref) => self.displace(&uid, pod_ref, Leaving::Withdrawn),
                // Only assumed pods have deadlines, so this is not expected.
                None => self.clear_deadline(&uid),
            }
            expired += 1;
        }
        self.draft.expire_deletion_marks(now);
        expired + self.expire_places(now)
    }

    pub(super) fn place(&mut self, pod: &Pod, known: Option<NodeSlot>, assumed: bool) {
        if !assumed {
            self.note_placed(pod);
        }
        self.put_on(pod, known, assumed);
    }

    fn put_on(&mut self, pod: &Pod, known: Option<NodeSlot>, assumed: bool) {
        if let Some(node) = &pod.node_name {
            self.draft.place(pod, node, known, assumed);
        }
        if assumed && self.unfinished_ttl.is_some() {
            self.unfinished.insert(pod.uid.clone());
        }
        self.count_member(pod, assumed);
    }

    pub(super) fn displace(&mut self, uid: &Uid, pod_ref: PodRef, leaving: Leaving) {
        self.clear_deadline(uid);
        self.note_displaced(pod_ref);
        self.draft.leave(pod_ref, leaving);
        self.draft.unmark_unless_bound(uid);
    }

    pub(super) fn clear_deadline(&mut self, uid: &Uid) {
        if let Some(deadline) = self.deadlines.remove(uid) {
            self.by_deadline.remove(&(deadline, uid.clone()));
        }
        self.unfinished.remove(uid);
        self.unbound_members.remove(uid);
    }
}

pub(super) fn other_node(uid: &Uid, known: &Name, given: &Name) -> EventError {
    EventError::OtherNode { uid: uid.clone(), known: known.clone(), given: given.clone() }
}
