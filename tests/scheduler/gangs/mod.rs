//! Gangs: the pods of a group move together from the queue to nodes, or back to the queue.

mod rules;
mod story;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use portolan::cache::{
    CommitPolicy, Config, Engine, Event, GodelConfig, ObjectKey, Snapshot, Writer,
};
use portolan::model::{
    EventError, GodelPod, Name, ObjectKind, Pod, PodBuilder, PodGroup, PodGroupPhase,
    PodGroupState, Timestamp, Uid, node, pod,
};
use portolan::plugin::Handle;
use portolan::scheduler::queue::{
    Place, PodGroupStatus, PopError, QueueConfig, QueueFront, SchedulingQueue,
};
use portolan::scheduler::{FilterCheck, InMemoryBinder, InMemoryEvictor};
use portolan::{
    Algorithm, AlgorithmConfig, Attempt, Binder, BinderError, Failure, Framework, Placement,
    Profiles, Scheduler, SchedulingLoop, Unplaced,
};
use proptest::prelude::*;

const GI: i64 = 1 << 30;

/// An engine, its queue, and a manually advanced clock.
struct Bench {
    engine: Engine,
    handle: Handle,
    queue: Arc<QueueFront>,
    now: Arc<AtomicI64>,
    /// If set, binding fails.
    fails: Arc<AtomicBool>,
    /// If set, bound pods are not confirmed.
    silent: Arc<AtomicBool>,
}

/// A binder that does not confirm bound pods if the flag is set.
struct Silent(InMemoryBinder, Arc<AtomicBool>);

impl Binder for Silent {
    fn bind(&self, pod: &Pod, node: &Name) -> Result<(), BinderError> {
        if self.1.load(Ordering::Relaxed) { Ok(()) } else { self.0.bind(pod, node) }
    }
}

impl Bench {
    fn new() -> Bench {
        let shared = Handle::default();
        let check = Arc::new(Framework::default_profile_with(&shared));
        let check = FilterCheck::new(Profiles::one(check));
        let config = Config {
            commit_check: check.into(),
            assumed_ttl: Some(Duration::from_secs(30)),
            // The tests sweep.
            sweep_period: Some(Duration::MAX),
            ..Config::default()
        };
        let engine = Engine::shared(config);
        let fails = Arc::new(AtomicBool::new(false));
        let failing = fails.clone();
        let binder = InMemoryBinder::new(engine.clone())
            .refusing(move |_, _| failing.load(Ordering::Relaxed).then(|| "away".to_owned()));
        let silent = Arc::new(AtomicBool::new(false));
        let handle = shared
            .with_binder(Arc::new(Silent(binder, silent.clone())))
            .with_evictor(Arc::new(InMemoryEvictor::new(engine.clone())));
        let framework = Arc::new(Framework::default_profile_with(&handle));
        let queue = SchedulingQueue::new(framework, QueueConfig::default());
        let (follower, reader) = (engine.follow().unwrap(), engine.reader().unwrap());
        let queue = Arc::new(QueueFront::new(queue, follower, reader));
        Bench { engine, handle, queue, now: Arc::new(AtomicI64::new(1_000)), fails, silent }
    }

    /// A bench with the node `n`.
    fn with_node(cpu: i64) -> Bench {
        let bench = Bench::new();
        bench.node("n", cpu);
        bench
    }

    fn decider(&self, seed: u64) -> Profiles<Algorithm> {
        let framework = Framework::default_profile_with(&self.handle);
        let config = AlgorithmConfig { percentage_of_nodes: 100, seed };
        Profiles::one(Algorithm::new(framework, config, None))
    }

    fn scheduling(&self, seed: u64) -> SchedulingLoop {
        SchedulingLoop::new(self.engine.clone(), self.queue.clone(), self.decider(seed)).unwrap()
    }

    fn clock(&self) -> impl Fn() -> Timestamp + use<> {
        let now = self.now.clone();
        move || Timestamp::from_secs(now.load(Ordering::Relaxed))
    }

    fn passes(&self, seconds: i64) {
        self.now.fetch_add(seconds, Ordering::Relaxed);
    }

    fn submit(&self, event: Event) -> bool {
        let outcome = self.engine.submit(event).unwrap().wait().unwrap();
        self.queue.tend(self.clock());
        outcome.is_ok()
    }

    fn node(&self, name: &str, cpu: i64) {
        let node = node(name).hostname().cpu(cpu).memory(64 * GI).build();
        assert!(self.submit(Event::AddNode(Arc::new(node))));
    }

    fn group(&self, group: PodGroup) {
        assert!(self.submit(Event::PutObject(group.into())));
    }

    fn gang(&self, name: &str, min_members: u32) {
        self.group(PodGroup::new("default", name, min_members));
    }

    fn delete_group(&self, name: &str) {
        let (namespace, name) = ("default".to_owned(), name.to_owned());
        let key = ObjectKey { kind: ObjectKind::PodGroup, namespace, name };
        assert!(self.submit(Event::DeleteObject(Arc::new(key))));
    }

    /// Why a member of a group is gated, or nothing.
    fn gated(&self, group: &str, n: usize) -> String {
        let framework = Framework::default_profile_with(&self.handle);
        let gated = framework.pre_enqueue(&member(group, n, 100).build());
        gated.map_or_else(|status| status.message(), |()| String::new())
    }

    fn pending(&self, pod: PodBuilder) -> Uid {
        let pod = pod.build();
        let uid = pod.uid.clone();
        assert!(self.submit(Event::PutPending(Arc::new(pod))));
        uid
    }

    /// Creates pending members of a group, all of one size.
    fn members(&self, group: &str, count: usize, size: i64) -> Vec<Uid> {
        (0..count).map(|n| self.pending(member(group, n, size))).collect()
    }

    fn remove(&self, uid: &Uid) -> bool {
        self.submit(Event::RemovePod { uid: uid.clone(), node: None })
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        self.engine.reader().unwrap().snapshot()
    }

    fn placed(&self, group: &str) -> usize {
        self.snapshot().placed_members("default", group)
    }

    fn place(&self, uid: &Uid) -> Option<Place> {
        self.queue.with(|queue, _| queue.place(uid))
    }

    fn places(&self, uids: &[Uid]) -> Vec<Option<Place>> {
        uids.iter().map(|uid| self.place(uid)).collect()
    }

    fn status(&self, group: &str) -> PodGroupStatus {
        self.queue.group_status("default", group, self.clock()())
    }

    fn state(&self, group: &str) -> PodGroupState {
        self.status(group).state
    }

    /// Returns the next attempt, if a pod is ready.
    fn attempt(&self, scheduling: &mut SchedulingLoop) -> Option<Attempt> {
        match scheduling.schedule_one(Some(Instant::now()), self.clock()) {
            Ok(attempt) => Some(attempt),
            Err(PopError::Timeout) => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Returns the outcome of the next attempt, which must be that of a gang.
    fn gang_attempt(&self, scheduling: &mut SchedulingLoop) -> (Vec<Placement>, Vec<Unplaced>) {
        match self.attempt(scheduling) {
            Some(Attempt::Gang { placed, failed }) => (placed, failed),
            other => panic!("not a gang: {other:?}"),
        }
    }

    fn bind_all(&self, scheduling: &mut SchedulingLoop, placed: &[Placement]) -> usize {
        let mut bind = |placement| scheduling.bind(placement, self.clock()).is_ok();
        let bound = placed.iter().map(&mut bind).filter(|bound| *bound).count();
        self.queue.tend(self.clock());
        bound
    }

    /// Schedules and binds until every ready pod has failed once, and returns the number of bound pods.
    fn settle(&self, scheduling: &mut SchedulingLoop) -> usize {
        let (mut bound, mut failed) = (0, BTreeSet::new());
        while let Some(attempt) = self.attempt(scheduling) {
            let (placed, unplaced) = attempt.into_parts();
            bound += self.bind_all(scheduling, &placed);
            let again = unplaced.iter().any(|failure| !failed.insert(failure.pod.uid.clone()));
            if again && placed.is_empty() {
                break;
            }
        }
        bound
    }
}

fn member(group: &str, n: usize, size: i64) -> PodBuilder {
    pod(format!("{group}-{n}")).group(group).cpu(size).memory(GI)
}

/// The pods of these tests belong to their group.
#[test]
fn members_belong_to_their_group() {
    let pod: Pod = member("g", 0, 100).build();
    assert!(PodGroup::new("default", "g", 1).has(&pod));
    assert!(!PodGroup::new("other", "g", 1).has(&pod));
}
