//! The writer: folds events, publishes versions.

use std::num::NonZeroUsize;
use std::sync::Arc;

use crate::log::{Applied, Event, Fact, Follower, Followers, Outcome, Relist};
use crate::model::{
    EventError, Generation, Name, Node, Object, ObjectKind, Pod, PodGroupPhase, Timestamp, Uid,
};
use crate::publish::live::LiveIndex;
use crate::publish::{self, Publisher, Versioned};
use crate::snapshot::{Cluster, Dump, NodeSlot, PodInfo, Snapshot, Store};
use crate::state::{Difference, Observer, State};
use crate::sync::mutated;

use super::reader::{PodLocation, Reader, WriterThread};
use super::{Config, SweepObserver};

impl Versioned for Snapshot {
    fn version(&self) -> u64 {
        self.generation().0
    }

    fn made(&self) -> u64 {
        self.made
    }
}

/// Steps of [`Writer::reclaim_some`] in a sweep: half a millisecond at most.
const IDLE_STEPS: usize = 512;

/// What the engine keeps and publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Events folded.
    pub generation: Generation,
    /// The generation that readers see.
    pub published: Generation,
    /// Versions replaced and not freed: somebody holds them, or no publish has
    /// looked at them since.
    pub retired: usize,
    /// Versions freed since the start.
    pub freed: u64,
    /// Parts of such versions that still take memory; a part may be large. Each publish
    /// frees some, and [`Writer::reclaim_some`] does.
    pub backlog: usize,
    /// The oldest version that somebody may still look at.
    pub oldest_held: Generation,
    /// The oldest replaced version that a reader has pinned, or keeps for its
    /// next pin. A reader that forgot to let go, or stopped, shows here; it
    /// costs memory and holds nobody up.
    pub oldest_pinned: Option<Generation>,
}

/// What a rebuild found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebuilt {
    /// The generation that was published.
    pub generation: Generation,
    /// What the state said before and its objects do not.
    pub differences: Vec<Difference>,
}

/// The one that writes. Not `Clone`: one writer is a matter of types.
///
/// Every operation is folded at once, and has a generation; readers see it
/// with the next [`Writer::publish`]. What is refused changes nothing.
///
/// ```compile_fail,E0277
/// fn clone<T: Clone>() {}
/// clone::<portolan::Writer>();
/// ```
///
/// ```
/// fn send<T: Send>() {}
/// send::<portolan::Writer>();
/// ```
pub struct Writer {
    state: State,
    publisher: Publisher<Snapshot>,
    listeners: Listeners,
    sweep_observer: Option<Box<dyn SweepObserver>>,
    thread: WriterThread,
}

/// Those that are told of what events do.
struct Listeners {
    live: Option<LiveIndex<Uid, PodLocation>>,
    followers: Followers,
}

impl Observer for Listeners {
    fn placed(&mut self, pod: &Pod, slot: NodeSlot, assumed: bool) {
        if let Some(live) = &mut self.live {
            live.insert(pod.uid.clone(), PodLocation::new(slot, assumed));
        }
    }

    fn gone(&mut self, uid: &Uid) {
        if let Some(live) = &mut self.live {
            live.remove(uid.clone());
        }
    }

    fn takes_notes(&self) -> bool {
        self.followers.is_followed()
    }

    fn note(&mut self, generation: Generation, fact: Fact) {
        self.followers.note(generation, fact);
    }
}

impl Writer {
    pub(super) fn new(config: Config) -> Writer {
        let mut state = State::new(config.assumed_ttl, config.commit_check);
        state = state.with_stores(config.stores);
        if let Some(godel) = config.godel {
            state = state.with_godel(godel);
        }
        Writer {
            publisher: Publisher::new(Arc::new(state.freeze())),
            state,
            listeners: Listeners {
                live: config.live_index.then(LiveIndex::new),
                followers: Followers::default(),
            },
            sweep_observer: config.sweep_observer,
            thread: WriterThread::new(true),
        }
    }

    /// Folds one event.
    ///
    /// # Errors
    ///
    /// Why it was refused; nothing has changed then but the generation.
    pub fn apply(&mut self, event: &Event) -> Outcome {
        self.thread.is_here();
        let (state, listeners) = (&mut self.state, &mut self.listeners);
        let outcome = self.publisher.defer_frees(|| state.apply(event, listeners));
        #[cfg(feature = "tracing")]
        trace_relist(event, &outcome);
        if matches!(event, Event::Expire(_)) {
            self.tell_swept();
        }
        outcome
    }

    /// As kube-scheduler's `cleanupAssumedPods` updates its metrics (backend/cache/cache.go).
    fn tell_swept(&mut self) {
        if let Some(mut observer) = self.sweep_observer.take() {
            observer.swept(&self.figures(), self.cluster());
            self.sweep_observer = Some(observer);
        }
    }

    fn generation_of(&mut self, event: &Event) -> Result<Generation, EventError> {
        self.apply(event).map(|applied| applied.generation)
    }

    /// Places a pod on the node that it names, ahead of the API server. The placement
    /// is checked as [`Config::commit_check`] says; an [`Event::AssumePod`] that names
    /// the version it was decided on is not, if that is the current one. O(log n).
    ///
    /// # Errors
    ///
    /// The pod is known already, names no node, has no uid or has resource claims, or
    /// the placement does not hold.
    pub fn assume_pod(&mut self, pod: impl Into<Arc<Pod>>) -> Result<Generation, EventError> {
        self.generation_of(&Event::assume(pod))
    }

    /// The same for several pods: all of them, or none.
    ///
    /// # Errors
    ///
    /// Why the first pod that does not go was refused.
    pub fn assume_all(&mut self, pods: impl Into<Arc<[Pod]>>) -> Result<Generation, EventError> {
        self.generation_of(&Event::assume_all(pods))
    }

    /// Places a pod on the node that it names and preempts pods there, in one step
    /// ([`Event::Preempt`]). O((1 + victims) × log n).
    ///
    /// # Errors
    ///
    /// As for [`Writer::assume_pod`]; or a victim is not known, is named twice, is on
    /// another node, or holds a reserved place. Nothing has changed then.
    pub fn preempt(
        &mut self,
        pod: impl Into<Arc<Pod>>,
        victims: impl Into<Arc<[Uid]>>,
    ) -> Result<Generation, EventError> {
        self.generation_of(&Event::preempt(pod, victims))
    }

    /// Puts a node in the partition of a scheduler instance, until its Node and its
    /// NMNode are next updated ([`Event::AssignNode`]; `SetNodeInPartition`). O(log n).
    ///
    /// # Errors
    ///
    /// The node is not known, or only as a ghost.
    pub fn assign_node(
        &mut self,
        node: impl Into<Name>,
        scheduler: impl Into<Name>,
    ) -> Result<Generation, EventError> {
        self.generation_of(&Event::assign_node(node, scheduler))
    }

    /// Takes a node out of the partition of a scheduler instance, likewise
    /// (`SetNodeOutOfPartition`). O(log n).
    ///
    /// # Errors
    ///
    /// The node is not known, or only as a ghost.
    pub fn unassign_node(
        &mut self,
        node: impl Into<Name>,
        scheduler: impl Into<Name>,
    ) -> Result<Generation, EventError> {
        self.generation_of(&Event::unassign_node(node, scheduler))
    }

    /// Sets the scheduling status of a pod group, until its object is next put
    /// ([`Event::SetGroupPhase`]; `SetUnitSchedulingStatus`). O(log n).
    ///
    /// # Errors
    ///
    /// The group is not known.
    pub fn set_group_phase(
        &mut self,
        namespace: impl Into<Name>,
        name: impl Into<Name>,
        phase: PodGroupPhase,
    ) -> Result<Generation, EventError> {
        self.generation_of(&Event::set_group_phase(namespace, name, phase))
    }

    /// Marks a bound pod as one that is about to be deleted for another
    /// ([`Event::MarkForDeletion`]; `MarkPodToDelete`). O(log n).
    ///
    /// # Errors
    ///
    /// The victim is not known as bound or holds a reserved place, a uid is empty, or
    /// [`GodelConfig::deletion_marks`](crate::GodelConfig::deletion_marks) is not set.
    pub fn mark_for_deletion(
        &mut self,
        victim: &Uid,
        preemptor: &Uid,
        now: Timestamp,
    ) -> Result<Generation, EventError> {
        self.generation_of(&Event::mark_for_deletion(victim, preemptor, now))
    }

    /// Removes a mark that this preemptor has set ([`Event::UnmarkForDeletion`];
    /// `RemoveDeletePodMarker`). O(log n).
    ///
    /// # Errors
    ///
    /// Another preemptor has set the mark, a uid is empty, or
    /// [`GodelConfig::deletion_marks`](crate::GodelConfig::deletion_marks) is not set.
    pub fn unmark_for_deletion(
        &mut self,
        victim: &Uid,
        preemptor: &Uid,
    ) -> Result<Generation, EventError> {
        self.generation_of(&Event::unmark_for_deletion(victim, preemptor))
    }

    /// Starts an assumed pod's time to live; nothing for any other pod.
    ///
    /// # Errors
    ///
    /// The uid is empty.
    pub fn finish_binding(&mut self, uid: &Uid, now: Timestamp) -> Result<Generation, EventError> {
        self.generation_of(&Event::finish_binding(uid, now))
    }

    /// Takes an assumed pod back; nothing for a pod that is not known.
    ///
    /// # Errors
    ///
    /// The pod is on another node than it names, or was added.
    pub fn forget_pod(&mut self, pod: &Pod) -> Result<Generation, EventError> {
        self.generation_of(&Event::forget(pod))
    }

    /// Adds a placed pod, or confirms an assumed one.
    ///
    /// # Errors
    ///
    /// The pod was added before, names no node, or has no uid.
    pub fn add_pod(&mut self, pod: impl Into<Arc<Pod>>) -> Result<Generation, EventError> {
        self.generation_of(&Event::add_pod(pod))
    }

    /// Replaces the added pod with uid `old`, on its node.
    ///
    /// # Errors
    ///
    /// No such pod was added, or the new object is on another node.
    pub fn update_pod(
        &mut self,
        old: &Uid,
        pod: impl Into<Arc<Pod>>,
    ) -> Result<Generation, EventError> {
        self.generation_of(&Event::update_pod(old, pod))
    }

    /// Removes a pod, assumed or added.
    ///
    /// # Errors
    ///
    /// The pod is not known, or is on another node than it names.
    pub fn remove_pod(&mut self, pod: &Pod) -> Result<Generation, EventError> {
        self.generation_of(&Event::remove_pod(pod))
    }

    /// The pod with this uid, as the writer has it now.
    #[must_use]
    pub fn get_pod(&self, uid: &Uid) -> Option<PodInfo<'_>> {
        self.cluster().pod(uid)
    }

    /// Whether the pod with this uid is assumed.
    #[must_use]
    pub fn is_assumed_pod(&self, uid: &Uid) -> bool {
        self.get_pod(uid).is_some_and(|pod| pod.is_assumed())
    }

    /// A pod that is on no node appears or changes: followers are told.
    ///
    /// # Errors
    ///
    /// The pod has no uid, or names a node.
    pub fn put_pending(&mut self, pod: impl Into<Arc<Pod>>) -> Result<Generation, EventError> {
        self.generation_of(&Event::put_pending(pod))
    }

    /// A pod that was on no node is gone: followers are told.
    ///
    /// # Errors
    ///
    /// The uid is empty.
    pub fn remove_pending(&mut self, uid: &Uid) -> Result<Generation, EventError> {
        self.generation_of(&Event::remove_pending(uid))
    }

    /// Somebody who is told what events do, of those folded from now on.
    pub fn follow(&mut self) -> Follower {
        self.listeners.followers.follow(None)
    }

    /// Follows with a limit. If this many notes wait, later notes are lost and the follower gets
    /// [`NoNote::Overflowed`](crate::log::NoNote::Overflowed).
    pub fn follow_at_most(&mut self, notes: NonZeroUsize) -> Follower {
        self.listeners.followers.follow(Some(notes))
    }

    /// Adds a node, or replaces the one of its name.
    ///
    /// # Errors
    ///
    /// The node has more images or resources than the engine holds.
    pub fn add_node(&mut self, node: impl Into<Arc<Node>>) -> Result<Generation, EventError> {
        self.generation_of(&Event::add_node(node))
    }

    /// Replaces a node; one that is not known is added.
    ///
    /// # Errors
    ///
    /// As for [`Writer::add_node`].
    pub fn update_node(&mut self, node: impl Into<Arc<Node>>) -> Result<Generation, EventError> {
        self.generation_of(&Event::update_node(node))
    }

    /// Removes a node; while pods remain on it, it is a ghost.
    ///
    /// # Errors
    ///
    /// The node is not known.
    pub fn remove_node(&mut self, name: impl Into<Name>) -> Result<Generation, EventError> {
        self.generation_of(&Event::remove_node(name))
    }

    /// Adds or replaces an object of another kind, be it a plain one, a shared one or an
    /// [`Object`]. It is kept as it is, without a copy.
    ///
    /// # Errors
    ///
    /// The store of its kind is full.
    pub fn put_object(&mut self, object: impl Into<Object>) -> Result<Generation, EventError> {
        self.generation_of(&Event::put_object(object))
    }

    /// Removes an object of another kind.
    ///
    /// # Errors
    ///
    /// The object is not known.
    pub fn delete_object(
        &mut self,
        kind: ObjectKind,
        namespace: &str,
        name: &str,
    ) -> Result<Generation, EventError> {
        self.generation_of(&Event::delete_object(kind, namespace, name))
    }

    /// Changes a store that was registered with [`Config::with_store`](crate::Config::with_store)
    /// ([`Event::custom`]).
    ///
    /// # Errors
    ///
    /// The store is not registered, refuses the event, panicked, or has failed before.
    pub fn change<S: Store>(&mut self, event: S::Event) -> Result<Generation, EventError> {
        self.generation_of(&Event::custom::<S>(event))
    }

    /// Takes all there is of one kind, and removes what is missing.
    ///
    /// # Errors
    ///
    /// None today; objects that are refused are in the answer.
    pub fn relist(&mut self, relist: Relist) -> Result<Applied, EventError> {
        self.apply(&Event::relist(relist))
    }

    /// Removes the assumed pods whose time has passed at `now`, and says how
    /// many. O(expired × log n). Also does a part of [`Writer::reclaim`].
    ///
    /// # Errors
    ///
    /// None today.
    pub fn expire(&mut self, now: Timestamp) -> Result<usize, EventError> {
        self.reclaim_some(IDLE_STEPS);
        self.apply(&Event::expire(now)).map(|applied| applied.removed)
    }

    /// How many nodes there are, ghosts included.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.cluster().node_count()
    }

    /// How many pods there are, those on ghosts included.
    #[must_use]
    pub fn pod_count(&self) -> usize {
        self.cluster().pod_count()
    }

    /// The state as the writer has it now, published or not.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        self.state.cluster()
    }

    /// Everything, written out; O(n).
    #[must_use]
    pub fn dump(&self) -> Dump {
        self.cluster().dump()
    }

    /// Publishes what was folded, and returns the published generation. Costs
    /// what changed since the last publish, and waits for nobody.
    pub fn publish(&mut self) -> Generation {
        self.thread.is_here();
        let generation = self.cluster().generation();
        if mutated!("notes-before-publish") {
            self.listeners.followers.hand_over();
        }
        if generation.0 > self.publisher.published() {
            if mutated!("horizon-before-publish") {
                self.state.set_horizon(generation);
            }
            let version = Arc::new(self.state.freeze());
            // The state's generation only grows, so the version is newer.
            let published = self.publisher.publish(version);
            debug_assert!(published.is_ok());
            trace_event!(
                TRACE,
                generation = generation.0,
                retired = self.publisher.figures().retired,
                "version published"
            );
            // Only now: until it is replaced, readers may take the last version and fork it.
            self.state.set_horizon(Generation(self.publisher.oldest_held()));
        }
        if let Some(live) = &mut self.listeners.live {
            // Where a reader is in the way the changes wait for the next time.
            live.publish(generation.0);
        }
        // Only now: who has a note finds what it tells of in what readers see.
        self.listeners.followers.hand_over();
        generation
    }

    /// The version that is published.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.publisher.subscribe().snapshot()
    }

    /// Frees every replaced version that nobody holds, at once, and says how many there
    /// were. O(versions retired + what only they had): seconds for a million nodes.
    /// [`Writer::reclaim_some`] is bounded.
    pub fn reclaim(&mut self) -> usize {
        let freed = self.publisher.reclaim();
        self.state.settle(Generation(self.publisher.oldest_held()), usize::MAX);
        freed
    }

    /// The same in bounded steps, for an idle writer: examines at most `steps` replaced versions,
    /// drops at most `steps` references, and forgets at most `steps` of the pods that went.
    /// Returns whether to call it again: `false` once everything that nobody holds is freed, and
    /// every replaced version was examined since. A step takes up to half a microsecond.
    pub fn reclaim_some(&mut self, steps: usize) -> bool {
        let more = self.publisher.reclaim_some(steps);
        let settled = self.state.settle(Generation(self.publisher.oldest_held()), steps);
        settled == steps || more
    }

    /// Makes the state anew from the objects that it holds, and publishes it as one version under the next generation:
    /// for when [`Cluster::audit`] finds something. Assumed pods, their deadlines and the places of Reservations stay,
    /// and a rebuild of a state that is right changes nothing that a version says.
    ///
    /// The rebuild takes a number as an event does. Versions from before stay as they are. Node slots are given out
    /// anew, and [`Cluster::changed_since`] answers `Reset` for earlier generations. O(n log n), the audit included.
    pub fn rebuild(&mut self) -> Rebuilt {
        self.thread.is_here();
        let (state, listeners) = (&mut self.state, &mut self.listeners);
        let differences = self.publisher.defer_frees(|| state.rebuild(listeners));
        let generation = self.publish();
        trace_event!(DEBUG, %generation, differences = differences.len(), "state rebuilt");
        Rebuilt { generation, differences }
    }

    /// What is kept and published.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let publish::Figures { published, retired, freed, backlog, oldest_pinned, .. } =
            self.publisher.figures();
        Figures {
            generation: self.cluster().generation(),
            published: Generation(published),
            retired,
            freed,
            backlog,
            oldest_held: Generation(self.publisher.oldest_held()),
            oldest_pinned: oldest_pinned.map(Generation),
        }
    }

    /// Another reader.
    #[must_use]
    pub fn reader(&self) -> Reader {
        let live = self.listeners.live.as_ref().map(LiveIndex::reader);
        Reader::new(self.publisher.subscribe(), live, self.thread.clone())
    }

    pub(super) fn thread(&self) -> &WriterThread {
        &self.thread
    }

    pub(super) fn is_shared(&mut self) {
        self.thread = WriterThread::new(false);
    }
}

#[cfg(feature = "tracing")]
impl Drop for Writer {
    fn drop(&mut self) {
        trace_event!(DEBUG, generation = %self.cluster().generation(), "engine dropped");
    }
}

#[cfg(feature = "tracing")]
fn trace_relist(event: &Event, outcome: &Outcome) {
    let (Event::Relist(relist), Ok(applied)) = (event, outcome) else { return };
    let kind = match &**relist {
        Relist::Pods(_) => "Pod",
        Relist::Nodes(_) => "Node",
        Relist::Objects(kind, _) => kind.as_str(),
    };
    trace_event!(
        DEBUG,
        kind,
        added = applied.added,
        updated = applied.updated,
        removed = applied.removed,
        rejected = applied.rejected.len(),
        "relist applied"
    );
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("figures", &self.figures()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Mutex;

    use super::super::Engine;
    use super::*;
    use crate::freeing::take_handed_over;
    use crate::model::{node, pod};
    use crate::state::{CommitCheck, CommitPolicy};

    const NODES: usize = if cfg!(miri) { 8 } else { 2_000 };

    fn writer(commit_check: CommitPolicy) -> Writer {
        let (mut writer, _) = Engine::inline(Config { commit_check, ..Config::default() });
        for n in 0..NODES {
            writer.add_node(node(format!("n{n}")).hostname().cpu(4_000).build()).unwrap();
        }
        writer.publish();
        writer.reclaim();
        take_handed_over();
        writer
    }

    /// A pod on every second node.
    fn gang(cpu: i64) -> Vec<Pod> {
        let on = |n| pod(format!("p{n}")).cpu(cpu).on(format!("n{n}")).build();
        (0..NODES).step_by(2).map(on).collect()
    }

    #[test]
    fn a_gang_leaves_nothing_to_a_thread_and_no_backlog() {
        let mut writer = writer(CommitPolicy::Room);
        let mut pods = gang(4_000);
        for round in 0..3 {
            writer.assume_all(pods.clone()).unwrap();
            assert_eq!((take_handed_over(), writer.figures().backlog), (0, 0), "round {round}");
            pods.iter().for_each(|pod| drop(writer.forget_pod(pod)));
        }
        // The last one is refused, after the trial has all others.
        pods.last_mut().unwrap().node_name = Some("unknown".into());
        assert!(writer.assume_all(pods).is_err());
        assert_eq!((take_handed_over(), writer.figures().backlog), (0, 0));
    }

    /// Drops the last handle to a version while it checks a placement.
    #[derive(Clone, Default)]
    struct Drops(Arc<Mutex<Option<Arc<Snapshot>>>>);

    impl CommitCheck for Drops {
        fn check(&self, _: &Cluster, _: &Pod, _: &str) -> Result<(), String> {
            self.0.lock().unwrap().take();
            Ok(())
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "all is freed in place there")]
    fn a_version_that_a_commit_check_drops_goes_to_the_backlog() {
        let drops = Drops::default();
        let mut writer = writer(drops.clone().into());
        let other = self::writer(CommitPolicy::Room);
        *drops.0.lock().unwrap() = Some(other.snapshot());
        // Its nodes are those of the version alone from now on.
        drop(other);
        take_handed_over();
        writer.assume_pod(pod("p").on("n1").build()).unwrap();
        assert!(drops.0.lock().unwrap().is_none());
        assert_eq!(take_handed_over(), 0);
        assert!(writer.figures().backlog > 0);
        while writer.reclaim_some(1_000) {}
        assert_eq!(writer.figures().backlog, 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "all is freed in place there")]
    fn a_rebuild_hands_nothing_to_a_thread() {
        let mut writer = writer(CommitPolicy::Room);
        // Not in any version, so the state alone has them.
        for n in 0..NODES {
            let node = node(format!("n{n}")).hostname().cpu(8_000).build();
            writer.update_node(node).unwrap();
        }
        take_handed_over();
        assert_eq!(writer.rebuild().differences, []);
        assert_eq!(take_handed_over(), 0);
        while writer.reclaim_some(1_000) {}
        assert_eq!((writer.figures().retired, writer.figures().backlog), (0, 0));
    }
}
