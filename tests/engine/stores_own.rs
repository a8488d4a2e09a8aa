//! Custom stores: in each version, a store equals the fold of its own events and of the version's pods. A store that
//! refuses an event affects no pod. Stores that panic are in `stores_failing.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use portolan::Unplaced;
use portolan::cache::{
    Cluster, Config, Engine, Event, GodelConfig, Keyed, NodeInfo, ObjectEvent, ObjectStore,
    PlacedPod, Relist, Snapshot, Store, StoreError, Writer, cost,
};
use portolan::model::{
    Change, EventError, Fact, Generation, LabelSelector, Name, NoNote, Pod, PodBuilder, Timestamp,
    node, pod,
};
use portolan::plugin::{
    Actions, ClusterEvent, Code, Cycle, EventResource, Filter, Hint, Interest, Notes, Plugin,
    PreFilter, Status, default_plugins,
};
use portolan::scheduler::drain::{Budgets, DrainOptions};
use portolan::{
    Algorithm, AlgorithmConfig, Attempt, Failure, Framework, Profiles, Scheduler, Schedulers,
    WhatIf,
};
use portolan_testkit::events;
use portolan_testkit::plugin;
use proptest::prelude::*;
use proptest_derive::Arbitrary;

/// Few and short cases under an interpreter.
const CASES: u32 = if cfg!(miri) { 2 } else { 96 };
const STEPS: usize = if cfg!(miri) { 12 } else { 100 };

/// The pods of each application with their nodes, and a limit for each application, which the store's events set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Apps<const RENEWS: bool> {
    limits: BTreeMap<String, u32>,
    pods: BTreeMap<String, BTreeSet<(String, String)>>,
}

/// Limits application `.0` to `.1` pods. Refused if more pods of the application are placed.
struct Limit(String, u32);

fn app<'p>(pod: &PlacedPod<'p>) -> Option<&'p str> {
    pod.template.labels.get("app").filter(|app| !app.is_empty())
}

fn place(pod: &PlacedPod<'_>) -> (String, String) {
    (pod.uid.to_string(), pod.node.to_string())
}

impl<const RENEWS: bool> Store for Apps<RENEWS> {
    type Event = Limit;

    const NAME: &'static str = if RENEWS { "renewed apps" } else { "apps" };

    fn check(&self, Limit(app, most): &Limit, _: &Cluster) -> Result<(), String> {
        let placed = self.pods.get(app).map_or(0, BTreeSet::len);
        if placed > *most as usize { Err(format!("{placed} pods of {app}")) } else { Ok(()) }
    }

    fn apply(&mut self, Limit(app, most): &Limit, _: Generation) {
        self.limits.insert(app.clone(), *most);
    }

    fn tracks(&self, pod: &PlacedPod<'_>) -> bool {
        app(pod).is_some()
    }

    fn pod_placed(&mut self, pod: &PlacedPod<'_>, _: Generation) {
        let known = self.pods.entry(app(pod).unwrap().to_owned()).or_default();
        assert!(known.insert(place(pod)), "{pod:?} was placed twice");
    }

    fn pod_removed(&mut self, pod: &PlacedPod<'_>, _: Generation) {
        let app = app(pod).unwrap();
        let known = self.pods.get_mut(app).unwrap();
        assert!(known.remove(&place(pod)), "{pod:?} was not placed");
        if known.is_empty() {
            self.pods.remove(app);
        }
    }

    fn without_pods(&self) -> Option<Self> {
        RENEWS.then(|| Apps { limits: self.limits.clone(), pods: BTreeMap::new() })
    }

    fn dump(&self) -> String {
        format!("{self:?}")
    }
}

struct Rack {
    name: Name,
    watts: u32,
}

impl Keyed for Rack {
    const KIND: &'static str = "Rack";

    fn name(&self) -> &str {
        &self.name
    }
}

type Racks = ObjectStore<Rack>;

fn rack([name, watts]: [u8; 2]) -> Rack {
    // One rack in eight has no name.
    let name = if name % 8 == 0 { String::new() } else { format!("r{}", name % 8) };
    Rack { name: name.into(), watts: watts.into() }
}

/// The expected contents of the stores.
#[derive(Clone, Default)]
struct Naive {
    limits: BTreeMap<String, u32>,
    racks: BTreeMap<String, u32>,
}

impl Naive {
    /// Replaces the racks by the listed ones. Returns whether the list is accepted.
    fn replace(&mut self, listed: &[[u8; 2]]) -> bool {
        let listed = || listed.iter().map(|seed| rack(*seed));
        let names: BTreeSet<String> = listed().map(|rack| rack.name.to_string()).collect();
        let accepted = names.len() == listed().count() && !names.contains("");
        if accepted {
            self.racks = listed().map(|rack| (rack.name.to_string(), rack.watts)).collect();
        }
        accepted
    }
}

/// Returns the pods of each application in this version, with their nodes.
fn placed(cluster: &Cluster) -> BTreeMap<String, BTreeSet<(String, String)>> {
    let mut all: BTreeMap<String, BTreeSet<(String, String)>> = BTreeMap::new();
    for pod in cluster.pods(&LabelSelector::from_labels::<&str, &str>([]), |_| true) {
        if let Some(app) = pod.template().labels.get("app") {
            let key = (pod.uid().to_string(), pod.node().name().to_string());
            all.entry(app.to_owned()).or_default().insert(key);
        }
    }
    all
}

fn check(cluster: &Cluster, naive: &Naive) {
    assert_eq!(cluster.failed_stores().next(), None);
    let pods = placed(cluster);
    let (carried, renewed) =
        (cluster.store::<Apps<false>>().unwrap(), cluster.store::<Apps<true>>().unwrap());
    assert_eq!((&carried.pods, &carried.limits), (&pods, &naive.limits));
    assert_eq!(renewed.pods, pods);
    let racks = cluster.store::<Racks>().unwrap();
    let found: BTreeMap<String, u32> =
        racks.iter().map(|rack| (rack.name.to_string(), rack.watts)).collect();
    assert_eq!((found.len(), &found), (racks.len(), &naive.racks));
    for (name, watts) in &naive.racks {
        assert_eq!(racks.get("", name).map(|rack| rack.watts), Some(*watts));
    }
}

#[derive(Clone, Debug, Arbitrary)]
enum Step {
    #[proptest(weight = 14)]
    Event(events::Op),
    Limit(bool, u8),
    PutRack([u8; 2]),
    DeleteRack(u8),
    ReplaceRacks(
        #[proptest(strategy = "prop::collection::vec(any::<[u8; 2]>(), 0..4)")] Vec<[u8; 2]>,
    ),
    /// Forks the writer's state, applies these events to the fork, and changes its stores.
    Fork(
        #[proptest(strategy = "prop::collection::vec(any::<events::Op>(), 1..6)")] Vec<events::Op>,
        u8,
    ),
    Publish,
    Rebuild,
}

fn limit(which: bool, most: u8) -> Limit {
    Limit(if which { "a" } else { "b" }.to_owned(), u32::from(most % 16))
}

fn run(steps: &[Step], config: Config) {
    let config = config.with_store(Apps::<false>::default()).with_store(Apps::<true>::default());
    let (mut writer, reader) = Engine::inline(config.with_store(Racks::default()));
    let mut naive = Naive::default();
    let mut held: Vec<(Arc<Snapshot>, Naive)> = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        let before = writer.cluster().store::<Apps<false>>().unwrap().clone();
        let since = writer.cluster().generation();
        match step {
            Step::Event(op) => {
                let event = op.event(at as u64, writer.cluster().generation());
                drop(writer.apply(&event));
            }
            Step::Limit(which, most) => {
                let Limit(app, most) = limit(*which, *most);
                let placed = before.pods.get(&app).map_or(0, BTreeSet::len);
                let changed = writer.change::<Apps<false>>(Limit(app.clone(), most));
                assert_eq!(changed.is_ok(), placed <= most as usize);
                if changed.is_ok() {
                    naive.limits.insert(app, most);
                }
            }
            Step::PutRack(seed) => {
                let rack = rack(*seed);
                let (name, watts) = (rack.name.to_string(), rack.watts);
                let put = writer.change::<Racks>(ObjectEvent::put(rack));
                assert_eq!(put.is_ok(), !name.is_empty());
                if put.is_ok() {
                    naive.racks.insert(name, watts);
                }
            }
            Step::DeleteRack(n) => {
                let name = rack([*n, 0]).name;
                let deleted = writer.change::<Racks>(ObjectEvent::delete("", &*name));
                assert_eq!(deleted.is_ok(), naive.racks.remove(&*name).is_some());
            }
            Step::ReplaceRacks(listed) => {
                let all = ObjectEvent::replace(listed.iter().map(|seed| rack(*seed)));
                assert_eq!(writer.change::<Racks>(all).is_ok(), naive.replace(listed));
            }
            Step::Fork(ops, most) => {
                let mut fork = writer.cluster().fork();
                for op in ops {
                    events::apply_to_fork(&mut fork, &op.event(at as u64, Generation(at as u64)));
                    check(&fork, &naive);
                }
                let mut forked = naive.clone();
                if fork.change::<Apps<false>>(limit(true, *most)).is_ok() {
                    forked.limits.insert("a".to_owned(), u32::from(most % 16));
                }
                fork.change::<Racks>(ObjectEvent::replace([rack([1, *most])])).unwrap();
                forked.replace(&[[1, *most]]);
                check(&fork.snapshot(), &forked);
            }
            Step::Publish => {
                writer.publish();
                held.push((reader.snapshot(), naive.clone()));
            }
            Step::Rebuild => assert_eq!(writer.rebuild().differences, []),
        }
        let cluster = writer.cluster();
        check(cluster, &naive);
        if *cluster.store::<Apps<false>>().unwrap() != before {
            // An event that assumes several pods one after the other has a generation for each.
            let changed = cluster.store_generation::<Apps<false>>().unwrap();
            assert!(since < changed && changed <= cluster.generation(), "{changed:?}");
        }
    }
    assert_eq!(writer.cluster().audit(), []);
    held.iter().for_each(|(version, naive)| check(version, naive));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn custom_stores_equal_the_fold_of_their_events_and_of_the_placed_pods(
        steps in prop::collection::vec(any::<Step>(), 1..STEPS),
    ) {
        let assumed_ttl = Some(Duration::from_secs(30));
        run(&steps, Config { assumed_ttl, ..Config::default() });
    }

    #[test]
    fn custom_stores_track_placeholder_pods(
        steps in prop::collection::vec(any::<Step>(), 1..STEPS),
    ) {
        let godel = GodelConfig {
            reservations: Some(Duration::from_secs(60)),
            movements: true,
            preemption_marks: true,
            deletion_marks: true,
            ..GodelConfig::new("s")
        };
        run(&steps, Config { godel: Some(godel), ..Config::default() });
    }
}

/// The seats of a licence: their number, and the number of pods that use one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seats {
    pub(crate) all: usize,
    pub(crate) used: usize,
}

impl Store for Seats {
    type Event = usize;

    const NAME: &'static str = "seats";

    fn check(&self, all: &usize, _: &Cluster) -> Result<(), String> {
        if *all < self.used { Err(format!("{} are in use", self.used)) } else { Ok(()) }
    }

    fn apply(&mut self, all: &usize, _: Generation) {
        self.all = *all;
    }

    fn tracks(&self, pod: &PlacedPod<'_>) -> bool {
        pod.template.labels.get("licence").is_some()
    }

    fn pod_placed(&mut self, _: &PlacedPod<'_>, _: Generation) {
        self.used += 1;
    }

    fn pod_removed(&mut self, _: &PlacedPod<'_>, _: Generation) {
        self.used -= 1;
    }
}

/// Rejects pods that need a licence if no seat is free, either in PreFilter or in Filter.
struct Licences {
    by_node: bool,
}

fn wants(pod: &Pod) -> bool {
    pod.template.labels.get("licence").is_some()
}

fn free_seats(cluster: &Cluster) -> Result<(), Status> {
    let seats = cluster.store::<Seats>();
    let seats = seats.map_err(|error| Status::error("Licences", error.to_string()))?;
    let none = || Status::new(Code::Unschedulable, "Licences", "no seat is free");
    if seats.used < seats.all { Ok(()) } else { Err(none()) }
}

struct BySeats;

impl Filter for BySeats {
    fn filter(&self, node: NodeInfo<'_>) -> Option<Status> {
        free_seats(node.cluster()).err()
    }
}

impl Plugin for Licences {
    plugin!(
        "Licences", Filter;
        .events(&[Interest { resources: &[EventResource::Custom], actions: Actions::ALL }])
    );

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        match wants(cycle.pod) {
            false => Ok(PreFilter::Skip),
            true if self.by_node => Ok(PreFilter::Filter(Box::new(BySeats))),
            true => free_seats(cycle.cluster).map(|()| PreFilter::Skip),
        }
    }

    fn queueing_hint(
        &self,
        _: &Pod,
        event: &ClusterEvent<'_>,
        cluster: &Cluster,
    ) -> Result<Hint, Status> {
        let used = cluster.store::<Seats>().map_or(0, |seats| seats.used);
        Ok(Hint::queue_if(event.custom::<Seats>().is_some_and(|all| *all > used)))
    }
}

fn framework(by_node: bool) -> Arc<Framework> {
    let mut all = default_plugins(&Default::default());
    all.push((Box::new(Licences { by_node }), 0));
    Arc::new(Framework::new(all).unwrap())
}

pub(crate) fn licensed(name: &str) -> PodBuilder {
    pod(name).cpu(100).label("licence", "solver")
}

/// Creates a writer with two nodes and this many seats.
fn writer(seats: usize) -> Writer {
    let (mut writer, _) = Engine::inline(Config::default().with_store(Seats::default()));
    for name in ["n1", "n2"] {
        writer.add_node(node(name).cpu(4_000).memory(1 << 30).build()).unwrap();
    }
    writer.change::<Seats>(seats).unwrap();
    writer.publish();
    writer
}

fn what_if(writer: &Writer) -> WhatIf {
    WhatIf::new(writer.cluster(), framework(true), AlgorithmConfig::default())
}

#[test]
fn a_what_if_question_uses_up_the_seats_of_its_fork() {
    let writer = writer(3);
    let mut what_if = what_if(&writer);
    assert_eq!(what_if.fit_more(&licensed("p").build(), 10).into_values().sum::<usize>(), 3);
    what_if.fork().change::<Seats>(5).unwrap();
    assert_eq!(what_if.fit_more(&licensed("p").build(), 10).into_values().sum::<usize>(), 5);
    assert_eq!(writer.cluster().store::<Seats>().unwrap(), &Seats { all: 3, used: 0 });
}

#[test]
fn a_drain_frees_the_seats_of_evicted_pods() {
    let mut writer = writer(1);
    writer.add_pod(licensed("p").on("n1").build()).unwrap();
    let mut what_if = what_if(&writer);
    let waiting = licensed("q").build();
    assert!(what_if.can_schedule(&waiting).is_err());
    let mut budgets = Budgets::of(writer.cluster());
    let options = DrainOptions { force: true, ..DrainOptions::default() };
    let drained = what_if.drain("n1", &mut budgets, options).unwrap();
    assert_eq!(drained.evicted.len(), 1);
    assert_eq!(&*what_if.can_schedule(&waiting).unwrap().node, "n2");
}

#[test]
fn preemption_evicts_the_pod_that_holds_the_seat() {
    let mut writer = writer(1);
    writer.add_pod(pod("other").cpu(100).priority(1).on("n1").build()).unwrap();
    writer.add_pod(licensed("holder").priority(2).on("n2").build()).unwrap();
    let found = what_if(&writer).candidate(&licensed("urgent").priority(9).build()).unwrap();
    assert_eq!((&*found.node, &*found.victims[0].name), ("n2", "holder"));
    assert_eq!(found.victims.len(), 1);
}

#[test]
fn a_gang_takes_a_seat_for_each_member_or_no_seat() {
    let config = Config::default().with_store(Seats { all: 2, used: 0 });
    let engine = Engine::shared(config);
    submit(&engine, Event::add_node(node("n").cpu(4_000).build())).unwrap();
    let algorithm = Algorithm::new(framework(false), AlgorithmConfig::default(), None);
    let mut scheduler = Scheduler::new(engine.clone(), Profiles::one(algorithm)).unwrap();
    let gang: Vec<Arc<Pod>> =
        (0..3).map(|n| Arc::new(licensed(&format!("p{n}")).build())).collect();
    let now = Timestamp::from_secs(1);
    let refused = scheduler.schedule_gang(&gang, 3, now);
    assert!(matches!(refused, Err(Failure::TooFew { found: 2, wanted: 3, .. })), "{refused:?}");
    assert_eq!(used(&engine), 0);
    let placed = scheduler.schedule_gang(&gang, 2, now).unwrap().placed;
    assert_eq!((placed.len(), used(&engine)), (2, 2));
    // A placement that is dropped gives its seat back.
    drop(placed);
    assert_eq!(used(&engine), 0);
}

fn used(engine: &Engine) -> usize {
    engine.reader().unwrap().snapshot().store::<Seats>().unwrap().used
}

fn schedulers(seats: usize) -> Schedulers {
    let schedulers = Schedulers::builder()
        .config(Config::default().with_store(Seats { all: seats, used: 0 }))
        .profile("default-scheduler", |handle| {
            let mut all = default_plugins(handle);
            all.push((Box::new(Licences { by_node: false }), 0));
            Framework::new(all)
        })
        .build()
        .unwrap();
    let node = node("n").cpu(4_000).memory(1 << 30).build();
    submit(schedulers.engine(), Event::add_node(node)).unwrap();
    schedulers
}

fn submit(engine: &Engine, event: Event) -> Result<(), EventError> {
    engine.submit(event).unwrap().wait().unwrap().map(drop)
}

/// Both pods are decided on a version with one free seat.
#[test]
fn the_commit_check_refuses_the_second_pod_for_the_last_seat() {
    let schedulers = schedulers(1);
    let engine = schedulers.engine();
    let version = engine.reader().unwrap().generation();
    let assume = |name: &str| {
        let pod = licensed(name).on("n").build();
        submit(engine, Event::assume(pod).decided_on(version))
    };
    assume("a").unwrap();
    let Err(EventError::Conflict { reason, .. }) = assume("b") else { panic!("a conflict") };
    assert_eq!(reason, "no seat is free");
    assert_eq!(used(engine), 1);
}

#[test]
fn a_pod_rejected_for_a_seat_is_retried_when_seats_are_added() {
    let schedulers = schedulers(0);
    let engine = schedulers.engine();
    submit(engine, Event::put_pending(licensed("p").build())).unwrap();
    let now = || Timestamp::from_secs(100);
    let soon = || Some(std::time::Instant::now());
    let mut scheduling = schedulers.scheduling_loop().unwrap();
    let tried = scheduling.schedule_one(None, now).unwrap();
    assert!(matches!(tried, Attempt::Failed(_)), "{tried:?}");
    // The hint reads the event, which adds no seat.
    submit(engine, Event::custom::<Seats>(0)).unwrap();
    assert!(scheduling.schedule_one(soon(), || Timestamp::from_secs(200)).is_err());
    submit(engine, Event::custom::<Seats>(1)).unwrap();
    let tried = scheduling.schedule_one(soon(), || Timestamp::from_secs(200)).unwrap();
    assert!(matches!(tried, Attempt::Placed(_)), "{tried:?}");
}

#[test]
fn a_follower_receives_custom_events_with_their_type() {
    let mut writer = writer(1);
    let follower = writer.follow();
    writer.change::<Seats>(7).unwrap();
    writer.change::<Seats>(usize::MAX).unwrap();
    writer.publish();
    let mut seen = Vec::new();
    while let Ok(note) = follower.try_next() {
        let Fact::Changed(Change::Custom(event)) = note.fact else { panic!("a custom event") };
        assert!(event.event::<Racks>().is_none());
        seen.push((event.store_name(), *event.event::<Seats>().unwrap()));
    }
    assert_eq!(seen, [("seats", 7), ("seats", usize::MAX)]);
}

#[test]
fn a_refused_event_changes_no_store() {
    let mut writer = writer(2);
    writer.add_pod(licensed("p").on("n1").build()).unwrap();
    let before = writer.cluster().store_generation::<Seats>();
    let refused = writer.change::<Seats>(0).unwrap_err();
    let reason = "1 are in use".to_owned();
    assert_eq!(refused, EventError::StoreRefused { store: "seats".into(), reason });
    let unknown = writer.change::<Racks>(ObjectEvent::delete("", "r")).unwrap_err();
    assert_eq!(unknown, EventError::UnknownStore { store: "Rack".into() });
    let unknown = writer.cluster().store::<Racks>().err();
    assert_eq!(unknown, Some(StoreError::Unknown { store: "Rack" }));
    assert_eq!(writer.cluster().store_generation::<Racks>(), None);
    assert_eq!(writer.cluster().store_generation::<Seats>(), before);
    assert_eq!(writer.cluster().store::<Seats>().unwrap(), &Seats { all: 2, used: 1 });
    let (mut plain, _) = Engine::inline(Config::default());
    assert_eq!(plain.change::<Seats>(1), Err(EventError::UnknownStore { store: "seats".into() }));
    let changed = plain.cluster().fork().change::<Seats>(1);
    assert_eq!(changed, Err(EventError::UnknownStore { store: "seats".into() }));
}

#[test]
fn the_last_of_two_stores_of_one_type_is_registered() {
    let config =
        Config::default().with_store(Seats { all: 1, used: 0 }).with_store(Racks::default());
    let config = config.with_store(Seats { all: 2, used: 0 });
    let (writer, _) = Engine::inline(config);
    assert_eq!(writer.cluster().store::<Seats>().unwrap().all, 2);
    assert!(writer.cluster().store::<Racks>().is_ok());
}

#[test]
fn an_untracked_pod_does_not_change_the_generation_of_a_store() {
    let mut writer = writer(2);
    let before = writer.cluster().store_generation::<Seats>();
    writer.add_pod(pod("p").on("n1").build()).unwrap();
    assert_eq!(writer.cluster().store_generation::<Seats>(), before);
    let now = writer.add_pod(licensed("q").on("n1").build()).unwrap();
    assert_eq!(writer.cluster().store_generation::<Seats>(), Some(now));
}

/// Compares the bytes copied and the reference counts incremented.
#[test]
fn a_store_that_tracks_no_pods_is_not_copied_for_pods() {
    let costs = [Config::default(), Config::default().with_store(Racks::default())].map(|config| {
        let (mut writer, _) = Engine::inline(config);
        writer.add_node(node("n").cpu(4_000).build()).unwrap();
        writer.publish();
        cost::take();
        let placed = pod("p").cpu(100).on("n").build();
        writer.assume_pod(placed.clone()).unwrap();
        writer.publish();
        writer.apply(&Event::forget(&placed)).unwrap();
        writer.publish();
        let cost::Cost { bytes, counts, .. } = cost::take();
        (bytes, counts)
    });
    assert_eq!(costs[0], costs[1]);
}

/// A plugin that records the generations of the notes that it receives.
struct Listens(Mutex<Vec<Generation>>, Option<Box<dyn Notes>>);

impl Plugin for Listens {
    plugin!("Listens", PreFilter);

    fn pre_filter<'a>(&'a self, _: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        let mut seen = self.0.lock().unwrap();
        while let Some(Ok(note)) = self.1.as_ref().map(|notes| notes.try_next()) {
            seen.push(note.generation);
        }
        Err(Status::new(Code::Unschedulable, "Listens", format!("{} notes", seen.len())))
    }
}

#[test]
fn a_plugin_follows_the_log_of_its_engine() {
    let schedulers = Schedulers::builder()
        .profile("default-scheduler", |handle| {
            let notes = handle.follow(NonZeroUsize::new(3).unwrap());
            let mut all = default_plugins(handle);
            all.push((Box::new(Listens(Mutex::default(), notes)), 0));
            Framework::new(all)
        })
        .build()
        .unwrap();
    let engine = schedulers.engine();
    submit(engine, Event::add_node(node("n").build())).unwrap();
    submit(engine, Event::put_pending(pod("p").build())).unwrap();
    let mut scheduling = schedulers.scheduling_loop().unwrap();
    let tried = scheduling.schedule_one(None, || Timestamp::from_secs(1)).unwrap();
    let Attempt::Failed(Unplaced { error, .. }) = tried else { panic!("{tried:?}") };
    assert!(error.to_string().contains("2 notes"), "{error}");
    // A plugin that falls behind gets an error.
    let handle = schedulers.profiles().iter().next().unwrap().handle().clone();
    let late = handle.follow(NonZeroUsize::MIN).unwrap();
    let relist = |pods| Event::Relist(Relist::Pods(pods).into());
    submit(engine, relist(vec![pod("a").on("n").build(), pod("b").on("n").build()])).unwrap();
    assert!(late.try_next().is_ok());
    assert_eq!(late.try_next().unwrap_err(), NoNote::Overflowed);
    let within = engine.with_writer(|_| handle.follow(NonZeroUsize::MIN).is_none());
    assert!(within.unwrap(), "not from within the writer");
    drop((scheduling, schedulers));
    assert!(handle.follow(NonZeroUsize::MIN).is_none());
}

#[test]
fn a_load_notifies_stores_of_the_pods_that_they_track() {
    let nodes = || ["a", "b"].map(|name| node(name).cpu(100_000).pods(1_000).build());
    let pods = (0..600).map(|n| {
        let app = if n % 100 == 99 { "x" } else { "" };
        pod(format!("p{n}")).cpu(1).label("app", app).on(["a", "b"][n % 2]).build()
    });
    let pods: Vec<Pod> = pods.collect();
    let [mut one, mut other] =
        [0; 2].map(|_| Engine::inline(Config::default().with_store(Apps::<true>::default())).0);
    for node in nodes() {
        one.add_node(node).unwrap();
    }
    for pod in &pods {
        one.add_pod(pod.clone()).unwrap();
    }
    other.load([], nodes(), pods);
    let [expected, found] =
        [&one, &other].map(|writer| writer.cluster().store::<Apps<true>>().unwrap().clone());
    assert_eq!((found.pods["x"].len(), found), (6, expected));
    assert_eq!(other.cluster().audit(), vec![]);
}
