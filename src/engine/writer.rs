//! The writer, which folds events and publishes versions.

use std::num::NonZeroUsize;
use std::sync::Arc;

use portolan_publish::{Publisher, Versioned};
use rayon::prelude::*;

use crate::log::{Applied, Event, Follower, Outcome, Relist};
use crate::model::{EventError, Generation, Name, Node, Object, ObjectKind, Pod, Timestamp, Uid};
use crate::snapshot::{Cluster, NodeInfo, Snapshot, Store};
use crate::state::{Difference, LONGEST_RUN, State, Threads};
use crate::sync::mutated;

use super::Config;
use super::reader::{Reader, WriterThread};

impl Versioned for Snapshot {
    fn version(&self) -> u64 {
        self.generation().0
    }

    fn made(&self) -> u64 {
        self.made
    }
}

/// The steps of [`Writer::reclaim_some`] in a sweep, which take at most half a millisecond.
const IDLE_STEPS: usize = 512;

/// The progress of an engine, and the versions that it keeps in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// The current generation of the writer, which counts all events, accepted or rejected, and rebuilds.
    pub generation: Generation,
    /// The generation of the published version.
    pub published: Generation,
    /// The number of replaced versions that are not freed: they are held, or no publish has examined them since they
    /// were released.
    pub retired: usize,
    /// The number of versions freed since the engine was created.
    pub freed: u64,
    /// The number of rebuilds that repaired an inconsistent state ([`Writer::audit_and_rebuild`]). If it is not 0,
    /// please report a defect.
    pub rebuilds: u64,
    /// The number of parts of freed versions that still occupy memory. A part may be large. Each publish frees some of
    /// them, and so does [`Writer::reclaim_some`].
    pub backlog: usize,
    /// The oldest version that may still be in use.
    pub oldest_held: Generation,
    /// The oldest replaced version that a reader has pinned or keeps for its next pin. A reader that has stopped, or
    /// was not released, shows up here. It costs memory, but it blocks neither the writer nor other readers.
    pub oldest_pinned: Option<Generation>,
}

/// The result of [`Writer::rebuild`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebuilt {
    /// The generation of the published version.
    pub generation: Generation,
    /// The differences between the state before the rebuild and the state that follows from its objects.
    pub differences: Vec<Difference>,
}

/// The writer of an engine, which folds events into the state and publishes versions of it.
///
/// [`Writer::apply`] folds any [`Event`]; each other method that changes the cluster folds one event and returns its
/// generation. Readers see the change after
/// the next [`Writer::publish`]; [`Writer::cluster`] shows it immediately. If a method returns an error, nothing has
/// changed except that the event has taken a generation. No method waits for a reader or a follower.
///
/// An engine has exactly one writer, so the type is not `Clone`. It is `Send`, so it can move to another thread. In
/// a shared engine, [`Engine::with_writer`](super::Engine::with_writer) gives access to it.
///
/// ```compile_fail,E0277
/// fn clone<T: Clone>() {}
/// clone::<portolan::cache::Writer>();
/// ```
///
/// ```
/// fn send<T: Send>() {}
/// send::<portolan::cache::Writer>();
/// ```
pub struct Writer {
    state: State,
    publisher: Publisher<Snapshot>,
    thread: WriterThread,
    rebuilds: u64,
}

impl Writer {
    pub(super) fn new(config: Config) -> Writer {
        let mut state = State::new(config.assumed_ttl, config.commit_check);
        state = state.with_stores(config.stores);
        if config.pod_names {
            state = state.with_pod_names();
        }
        if let Some(godel) = config.godel {
            state = state.with_godel(godel);
        }
        Writer::of(state)
    }

    pub(super) fn at(version: &Cluster, config: Config) -> Writer {
        let state = State::at(version, config.assumed_ttl, config.commit_check);
        Writer::of(state)
    }

    fn of(mut state: State) -> Writer {
        Writer {
            publisher: Publisher::new(Arc::new(state.freeze())),
            state,
            thread: WriterThread::default(),
            rebuilds: 0,
        }
    }

    /// Folds one event into the state. Most events cost O(log n); relists cost O(n log n). An event about a pod also
    /// copies up to 32 of its node's pods if it places one, and up to 65 if it removes one, some 75 bytes for each, unless
    /// they were copied since the last publish.
    /// Readers see the event after the next [`Writer::publish`].
    ///
    /// # Errors
    ///
    /// Returns the reason for which the event is rejected. Nothing has changed then except the generation.
    pub fn apply(&mut self, event: &Event) -> Outcome {
        let Writer { state, publisher, thread, .. } = self;
        let within = thread.enter();
        let outcome = publisher.defer_frees(|| state.apply(event));
        drop(within);
        #[cfg(feature = "tracing")]
        trace_relist(event, &outcome);
        outcome
    }

    /// Folds an event that nobody else needs. Its nodes may share memory with those of the cluster.
    pub(super) fn take(&mut self, mut event: Event) -> Outcome {
        match &mut event {
            Event::AddNode(node) | Event::UpdateNode(node) => self.cluster().share_with([node]),
            Event::Relist(relist) => {
                if let Some(Relist::Nodes(nodes)) = Arc::get_mut(relist) {
                    self.cluster().share_with(nodes);
                }
            }
            _ => {}
        }
        self.apply(&event)
    }

    fn generation_of(&mut self, event: &Event) -> Result<Generation, EventError> {
        self.apply(event).map(|applied| applied.generation)
    }

    /// Assumes a pod: places it on the node that it names, before the API server confirms the binding. The placement is
    /// checked according to [`Config::commit_check`]. To skip the check for a decision on the current version, apply an
    /// [`Event::assume`] with [`Event::decided_on`]. O(log n + pods of the node).
    ///
    /// # Errors
    ///
    /// Returns an error if the pod is already known, names no node, has no uid or has resource claims, or if it no
    /// longer fits on the node ([`Event::assume`]).
    pub fn assume_pod(&mut self, pod: impl Into<Arc<Pod>>) -> Result<Generation, EventError> {
        self.generation_of(&Event::assume(pod))
    }

    /// Adds a pod that is bound to a node, or confirms an assumed one, which moves if it is bound to another node. The
    /// placement is not checked. An unknown node becomes a ghost: it counts the pod, but it is not listed.
    /// O(log n + pods of the node).
    ///
    /// # Errors
    ///
    /// Returns an error if the pod has already been added, names no node, or has no uid.
    pub fn add_pod(&mut self, pod: impl Into<Arc<Pod>>) -> Result<Generation, EventError> {
        self.generation_of(&Event::add_pod(pod))
    }

    /// Replaces the object of the added pod with uid `old`, which stays on its node. The uid may change.
    /// O(log n + pods of the node).
    ///
    /// # Errors
    ///
    /// Returns an error if the pod is unknown, assumed or a placeholder pod, or if the new object names another node or
    /// the uid of another pod ([`Event::update_pod`]).
    pub fn update_pod(
        &mut self,
        old: &Uid,
        pod: impl Into<Arc<Pod>>,
    ) -> Result<Generation, EventError> {
        self.generation_of(&Event::update_pod(old, pod))
    }

    /// Removes a pod, assumed or added, from its node. O(log n + pods of the node).
    ///
    /// # Errors
    ///
    /// Returns an error if the pod is unknown, on a node other than the one it names, or a placeholder pod.
    pub fn remove_pod(&mut self, pod: &Pod) -> Result<Generation, EventError> {
        self.generation_of(&Event::remove_pod(pod))
    }

    /// Creates a follower, which receives the effects of all events that are folded from now on. Each effect is
    /// delivered after the version that contains it has been published.
    pub fn follow(&mut self) -> Follower {
        self.state.followers.follow(None)
    }

    /// Creates a follower with a limit. If this many notes are undelivered, the follower loses all later notes and
    /// receives [`NoNote::Overflowed`](crate::model::NoNote::Overflowed).
    pub fn follow_at_most(&mut self, notes: NonZeroUsize) -> Follower {
        self.state.followers.follow(Some(notes))
    }

    /// Adds a node, or replaces the node with the same name, whose pods stay. Returns the node as of this event, which
    /// is its [generation](NodeInfo::generation). O(log n).
    ///
    /// ```
    /// use portolan::cache::{Config, Engine};
    /// use portolan::model::{node, pod};
    ///
    /// let (mut writer, _) = Engine::inline(Config::default());
    /// writer.add_pod(pod("early").cpu(100).on("n1").build())?;
    /// let added = writer.add_node(node("n1").cpu(4_000).build())?;
    /// assert_eq!((added.requested().cpu.0, added.pod_count()), (100, 1));
    /// # Ok::<(), portolan::model::EventError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the node has no name, a negative amount, or too many images or resources.
    pub fn add_node(&mut self, node: impl Into<Arc<Node>>) -> Result<NodeInfo<'_>, EventError> {
        self.put_node(Event::AddNode, node.into())
    }

    /// Replaces a node, or adds it if it is unknown, and returns it as of this event. O(log n).
    ///
    /// # Errors
    ///
    /// Returns an error for the same reasons as [`Writer::add_node`].
    pub fn update_node(&mut self, node: impl Into<Arc<Node>>) -> Result<NodeInfo<'_>, EventError> {
        self.put_node(Event::UpdateNode, node.into())
    }

    fn put_node(
        &mut self,
        event: impl FnOnce(Arc<Node>) -> Event,
        node: Arc<Node>,
    ) -> Result<NodeInfo<'_>, EventError> {
        let name = node.name.clone();
        self.take(event(node))?;
        // An accepted node is listed.
        self.cluster().node(&name).ok_or(EventError::NodeNotFound { name })
    }

    /// Removes a node. A node that still has pods remains as a ghost until its last pod is removed. O(log n +
    /// pods of the node).
    ///
    /// # Errors
    ///
    /// Returns an error if the node is unknown.
    pub fn remove_node(&mut self, name: impl Into<Name>) -> Result<Generation, EventError> {
        self.generation_of(&Event::RemoveNode(name.into()))
    }

    /// Adds or replaces an object other than a pod or a Node. The object is passed by value, in an [`Arc`], or as an
    /// [`Object`], and is stored without a copy. O(log n) for most kinds.
    ///
    /// # Errors
    ///
    /// Returns an error if the object has no name, or for the reasons of its kind ([`Event::PutObject`]).
    pub fn put_object(&mut self, object: impl Into<Object>) -> Result<Generation, EventError> {
        self.generation_of(&Event::PutObject(object.into()))
    }

    /// Removes an object other than a pod or a Node. The namespace of a cluster-scoped object is empty. O(log n) for
    /// most kinds.
    ///
    /// # Errors
    ///
    /// Returns an error if the object is unknown.
    pub fn delete_object(
        &mut self,
        kind: ObjectKind,
        namespace: &str,
        name: &str,
    ) -> Result<Generation, EventError> {
        self.generation_of(&Event::delete_object(kind, namespace, name))
    }

    /// Applies an event to a store that was registered with [`Config::with_store`](crate::cache::Config::with_store).
    /// Costs one clone of the store, in addition to its own work.
    ///
    /// # Errors
    ///
    /// Returns an error if the store is not registered, rejects the event, panics, or has already failed
    /// ([`Event::custom`]).
    pub fn change<S: Store>(&mut self, event: S::Event) -> Result<Generation, EventError> {
        self.generation_of(&Event::custom::<S>(event))
    }

    /// Adds objects, nodes and pods, as [`Writer::put_object`], [`Writer::add_node`] and [`Writer::add_pod`] do one by
    /// one, but faster: to load a cluster, for example. Returns how many of them were added and how many replaced
    /// others; [`Applied::rejected`] has the others, each with its kind and key. Nothing is published.
    ///
    /// The state is the same as after adding them one by one, and so are the generations: each object takes one,
    /// whether it is added or rejected. Most pods that are new and on known nodes are placed on the threads of rayon's
    /// pool while the iterator `pods` prepares further ones on this thread. At most 262,144 of the iterator's pods are
    /// in memory at once. With [`Config::godel`], stores of your own, or in an engine that began with a
    /// version, all pods are added one by one. O(n log n).
    ///
    /// Unlike other methods, this one waits for threads, those of rayon's global pool. They must not wait for this
    /// engine meanwhile.
    ///
    /// ```
    /// use portolan::cache::{Config, Engine};
    /// use portolan::model::{node, pod};
    ///
    /// let (mut writer, _) = Engine::inline(Config::default());
    /// let nodes = (0..3).map(|n| node(format!("n{n}")).build());
    /// let pods = (0..1_000).map(|n| pod(format!("p{n}")).on(format!("n{}", n % 4)).build());
    /// let loaded = writer.load([], nodes, pods);
    /// assert_eq!((loaded.added, loaded.rejected.len()), (1_003, 0));
    /// writer.publish();
    /// ```
    pub fn load<N: Into<Arc<Node>>, P: Into<Arc<Pod>>>(
        &mut self,
        objects: impl IntoIterator<Item = Object>,
        nodes: impl IntoIterator<Item = N>,
        pods: impl IntoIterator<Item = P>,
    ) -> Applied {
        let thread = self.thread.clone();
        let _within = thread.enter();
        let mut applied = Applied::default();
        for object in objects {
            let name = |object: &Object| {
                format!("{} {}/{}", object.kind().as_str(), object.namespace(), object.name())
            };
            let put = Event::PutObject(object);
            if let (Err(why), Event::PutObject(object)) = (self.load_one(&put, &mut applied), put) {
                applied.rejected.push((name(&object), why));
            }
        }
        for node in nodes {
            let mut node = node.into();
            self.cluster().share_with([&mut node]);
            if let Err(why) = self.load_one(&Event::AddNode(node.clone()), &mut applied) {
                applied.rejected.push((format!("node {}", node.name), why));
            }
        }
        self.load_pods(pods.into_iter().map(Into::into), &mut applied);
        applied.generation = self.cluster().generation();
        applied
    }

    fn load_one(&mut self, event: &Event, applied: &mut Applied) -> Result<(), EventError> {
        let one = self.apply(event)?;
        applied.added += one.added;
        applied.updated += one.updated;
        Ok(())
    }

    fn load_pods(&mut self, mut pods: impl Iterator<Item = Arc<Pod>>, applied: &mut Applied) {
        let mut load = self.state.begin_load(Threads::Pool);
        let mut next: Vec<Arc<Pod>> = pods.by_ref().take(LONGEST_RUN).collect();
        while !next.is_empty() {
            let now = std::mem::take(&mut next);
            let state = &mut self.state;
            if !state.loads_in_parallel() {
                // Stores of users are called on the writer's thread.
                self.publisher.defer_frees(|| state.load_pods(&now, &mut load, applied));
                next.extend(pods.by_ref().take(LONGEST_RUN));
                continue;
            }
            rayon::in_place_scope(|scope| {
                scope.spawn(|_| {
                    state.load_pods(&now, &mut load, applied);
                    now.into_par_iter().for_each(drop);
                });
                next.extend(pods.by_ref().take(LONGEST_RUN));
            });
        }
    }

    /// Replaces all objects of one kind with a list, and removes the objects that are not in it. Assumed pods stay.
    /// Readers see the relist as a whole. O(n log n).
    ///
    /// # Errors
    ///
    /// Currently returns no errors. [`Applied::rejected`] contains the objects that were rejected.
    pub fn relist(&mut self, relist: Relist) -> Result<Applied, EventError> {
        self.take(Event::Relist(relist.into()))
    }

    /// Advances the clock to `now`, and removes the assumed pods, reservations and deletion marks that have expired.
    /// Returns the number of removed pods. Also performs some steps of [`Writer::reclaim_some`]. O(expired × log n).
    ///
    /// # Errors
    ///
    /// Currently returns no errors.
    pub fn expire(&mut self, now: Timestamp) -> Result<usize, EventError> {
        self.reclaim_some(IDLE_STEPS);
        self.apply(&Event::Expire(now)).map(|applied| applied.removed)
    }

    /// Returns the writer's current state, which includes events that are not published yet.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        self.state.cluster()
    }

    /// Publishes the current state as a version, and returns its generation. The followers then receive the effects of
    /// its events.
    ///
    /// Readers that take a version from now on see it. A version that is already held does not change. The cost is
    /// proportional to the changes since the last publish, and a publish never waits for a reader. Without new events,
    /// nothing is published.
    pub fn publish(&mut self) -> Generation {
        let generation = self.make_current();
        self.clean_up();
        generation
    }

    /// The part of [`Writer::publish`] that readers and followers see.
    pub(super) fn make_current(&mut self) -> Generation {
        let generation = self.cluster().generation();
        if mutated!("notes-before-publish") {
            self.state.followers.hand_over();
        }
        if generation.0 > self.publisher.published() {
            let version = Arc::new(self.state.freeze());
            // The state's generation only grows, so the version is newer.
            let published = self.publisher.replace(version);
            debug_assert!(published.is_ok());
            trace_event!(
                TRACE,
                generation = generation.0,
                retired = self.publisher.figures().retired,
                "version published"
            );
        }
        // Not before the publish: the effect that a note reports must be visible to readers.
        self.state.followers.hand_over();
        generation
    }

    /// The rest of [`Writer::publish`]: frees replaced versions, and moves the horizon.
    pub(super) fn clean_up(&mut self) {
        if self.publisher.free_replaced() {
            // After the replaced version is freed, so that it counts only if it is held.
            self.state.set_horizon(Generation(self.publisher.oldest_held()));
        }
    }

    /// Returns the published version.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.publisher.subscribe().snapshot()
    }

    /// Frees every replaced version that is no longer held, and returns the number of versions freed. O(versions
    /// retired + the data that only they contained), which can take seconds for a million nodes. Use
    /// [`Writer::reclaim_some`] for bounded steps.
    pub fn reclaim(&mut self) -> usize {
        let freed = self.publisher.reclaim();
        self.state.settle(Generation(self.publisher.oldest_held()), usize::MAX);
        freed
    }

    /// Like [`Writer::reclaim`], in bounded steps, for an idle writer. Examines at most `steps` replaced versions,
    /// drops at most `steps` references, and drops at most `steps` index entries of removed pods. A step takes up to
    /// half a microsecond.
    ///
    /// Returns `true` if there may be more to free, and `false` once every version that is no longer held has been
    /// freed and all others have been examined since.
    pub fn reclaim_some(&mut self, steps: usize) -> bool {
        let more = self.publisher.reclaim_some(steps);
        let settled = self.state.settle(Generation(self.publisher.oldest_held()), steps);
        settled == steps || more
    }

    /// Rebuilds the state from its objects, and publishes the result as one version. Use it if [`Cluster::audit`] finds
    /// a difference, or let [`Writer::audit_and_rebuild`] decide. Assumed pods, their deadlines and reservations are
    /// preserved, and rebuilding a correct state changes no visible data.
    ///
    /// A rebuild takes a generation, like an event. Earlier versions are unchanged. Node slots are renumbered, and
    /// [`Cluster::changed_since`] returns `Reset` for earlier generations. O(n log n), including the audit.
    pub fn rebuild(&mut self) -> Rebuilt {
        let differences = self.audit();
        self.rebuild_after(differences)
    }

    /// Audits the state. What this frees is not handed to another thread.
    fn audit(&mut self) -> Vec<Difference> {
        let state = &self.state;
        self.publisher.defer_frees(|| state.cluster().audit())
    }

    /// Rebuilds the state after an audit. What this frees is not handed to another thread.
    fn rebuild_after(&mut self, mut differences: Vec<Difference>) -> Rebuilt {
        let state = &mut self.state;
        differences.extend(self.publisher.defer_frees(|| state.rebuild()));
        let generation = self.publish();
        trace_event!(DEBUG, %generation, differences = differences.len(), "state rebuilt");
        Rebuilt { generation, differences }
    }

    /// Audits the state, and rebuilds it if the audit finds a difference, as kube-scheduler's `UpdateSnapshot` recovers
    /// from inconsistent lists. Returns the rebuild, or `None` if the state is consistent. [`Figures::rebuilds`] counts
    /// the rebuilds. O(n log n).
    ///
    /// ```
    /// use portolan::cache::{Config, Engine};
    ///
    /// let (mut writer, _) = Engine::inline(Config::default());
    /// assert_eq!(writer.audit_and_rebuild(), None);
    /// assert_eq!(writer.figures().rebuilds, 0);
    /// ```
    pub fn audit_and_rebuild(&mut self) -> Option<Rebuilt> {
        let differences = self.audit();
        if differences.is_empty() {
            return None;
        }
        self.rebuilds += 1;
        Some(self.rebuild_after(differences))
    }

    /// Returns the generation of the writer, and the number of versions that are kept in memory. O(versions retired +
    /// readers).
    #[must_use]
    pub fn figures(&self) -> Figures {
        let portolan_publish::Figures { published, retired, freed, backlog, oldest_pinned, .. } =
            self.publisher.figures();
        Figures {
            generation: self.cluster().generation(),
            published: Generation(published),
            retired,
            freed,
            rebuilds: self.rebuilds,
            backlog,
            oldest_held: Generation(self.publisher.oldest_held()),
            oldest_pinned: oldest_pinned.map(Generation),
        }
    }

    /// Creates a reader. May allocate, so create or clone one per thread and keep it.
    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader::new(self.publisher.subscribe(), self.thread.clone())
    }

    pub(super) fn thread(&self) -> &WriterThread {
        &self.thread
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

    /// Creates a pod on every second node.
    fn gang(cpu: i64) -> Vec<Pod> {
        let on = |n| pod(format!("p{n}")).cpu(cpu).on(format!("n{n}")).build();
        (0..NODES).step_by(2).map(on).collect()
    }

    #[test]
    fn a_gang_is_freed_in_place_without_a_thread_or_a_backlog() {
        let mut writer = writer(CommitPolicy::Room);
        let mut pods = gang(4_000);
        for round in 0..3 {
            writer.apply(&Event::assume_all(pods.clone())).unwrap();
            assert_eq!((take_handed_over(), writer.figures().backlog), (0, 0), "round {round}");
            pods.iter().for_each(|pod| drop(writer.apply(&Event::forget(pod))));
        }
        // The last pod is rejected after all others have been placed in the trial.
        pods.last_mut().unwrap().node_name = Some("unknown".into());
        assert!(writer.apply(&Event::assume_all(pods)).is_err());
        assert_eq!((take_handed_over(), writer.figures().backlog), (0, 0));
    }

    /// A commit check that drops the last handle to a version.
    #[derive(Clone, Default)]
    struct Drops(Arc<Mutex<Option<Arc<Snapshot>>>>);

    impl CommitCheck for Drops {
        fn check(&self, _: &Cluster, _: &Pod, _: &str) -> Result<(), String> {
            self.0.lock().unwrap().take();
            Ok(())
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri frees everything in place")]
    fn a_version_that_a_commit_check_drops_goes_to_the_backlog() {
        let drops = Drops::default();
        let mut writer = writer(drops.clone().into());
        let other = self::writer(CommitPolicy::Room);
        *drops.0.lock().unwrap() = Some(other.snapshot());
        // From now on, only the version holds its nodes.
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
    fn an_inconsistent_state_is_rebuilt_after_an_audit() {
        let (mut writer, reader) = Engine::inline(Config::default());
        writer.add_node(node("n1").cpu(4_000).build()).unwrap();
        writer.add_pod(pod("a").cpu(10).claim("c").on("n1").build()).unwrap();
        writer.publish();
        let whole = writer.cluster().dump();
        assert_eq!((writer.audit_and_rebuild(), writer.figures().rebuilds), (None, 0));
        for round in 1..3 {
            writer.state.damage().cluster.counts.pods += 1;
            let rebuilt = writer.audit_and_rebuild().expect("the count is wrong");
            assert_eq!(rebuilt.differences[0].place, "counts");
            assert_eq!((writer.figures().rebuilds, writer.cluster().pod_count()), (round, 1));
            assert_eq!(reader.snapshot().dump(), whole, "the rebuild is published");
        }
    }

    #[test]
    fn an_engine_that_begins_with_a_version_keeps_its_pods_indexed() {
        let mut first = writer(CommitPolicy::Room);
        let placed = pod("p").on("n1").build();
        first.add_pod(placed.clone()).unwrap();
        first.publish();
        let mut second = Writer::at(&first.snapshot(), Config::default());
        second.add_node(node("other").build()).unwrap();
        second.publish();
        first.remove_pod(&placed).unwrap();
        first.publish();
        first.reclaim();
        assert!(first.cluster().pod(&placed.uid).is_none());
        assert!(second.cluster().pod(&placed.uid).is_some());
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri frees everything in place")]
    fn a_rebuild_hands_nothing_to_a_thread() {
        let mut writer = writer(CommitPolicy::Room);
        // These nodes are in no published version, so only the state holds them.
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
