//! The queue compared with a model: vectors and linear scans, in which the rules are implemented a second time. Both pop
//! the same pods in the same order, and every pod is in exactly one place at all times.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use portolan::Framework;
use portolan::cache::{Cluster, Config, Engine, Snapshot};
use portolan::model::{
    Change, Diff, Generation, Pod, Taint, TaintEffect, Timestamp, Uid, node, pod,
};
use portolan::plugin::{
    Actions, ClusterEvent, Code, EventResource, Hint, Interest, Plugin, PluginInfo, PluginSet,
    Point, QueuedPod, Status,
};
use portolan::scheduler::queue::{Place, QueueConfig, SchedulingQueue};
use portolan_testkit::in_tree;
use portolan_testkit::plugin;
use proptest::prelude::*;

const PODS: usize = 8;
const WANTS: [&str; 3] = ["a", "b", "c"];

/// A plugin that gates pods with the label `gate`.
struct Gate;
/// A plugin that rejects pods until the node that they want is added.
struct Rejects;
/// A plugin that waits until a taint or a pod is removed.
struct Waits;

impl Plugin for Gate {
    plugin!(
        "Gate", PreEnqueue;
        .events(&[Interest {
            resources: EventResource::PODS, actions: Actions::UPDATE_POD_LABEL
        }])
    );
    fn pre_enqueue(&self, pod: &Pod) -> Result<(), Status> {
        match is_gated(pod) {
            true => Err(Status::new(Code::UnschedulableAndUnresolvable, "Gate", "gated")),
            false => Ok(()),
        }
    }
    fn queueing_hint(
        &self,
        pod: &Pod,
        event: &ClusterEvent<'_>,
        _: &Cluster,
    ) -> Result<Hint, Status> {
        let new = event.pod().and_then(|diff| diff.new.as_ref());
        Ok(if new.is_some_and(|new| new.uid == pod.uid) { Hint::Queue } else { Hint::Skip })
    }
}

impl Plugin for Rejects {
    plugin!(
        "Rejects", Filter;
        .events(&[Interest { resources: &[EventResource::Node], actions: Actions::ADD }])
    );
    fn queueing_hint(
        &self,
        pod: &Pod,
        event: &ClusterEvent<'_>,
        _: &Cluster,
    ) -> Result<Hint, Status> {
        let name = event.node().and_then(|diff| diff.new.as_ref()).map(|node| node.name.clone());
        Ok(if name.as_deref() == pod.template.labels.get("want") {
            Hint::Queue
        } else {
            Hint::Skip
        })
    }
}

impl Plugin for Waits {
    plugin!("Waits", Reserve; .events(&[
        Interest { resources: &[EventResource::Node], actions: Actions::UPDATE_NODE_TAINT },
        Interest { resources: &[EventResource::AssignedPod], actions: Actions::DELETE },
    ]));
    fn queueing_hint(
        &self,
        pod: &Pod,
        event: &ClusterEvent<'_>,
        _: &Cluster,
    ) -> Result<Hint, Status> {
        match event.node().and_then(|diff| diff.new.as_ref()).map(|node| &*node.name) {
            Some("bad") => Err(Status::error("Waits", "the hint fails")),
            Some(name) if Some(name) == pod.template.labels.get("want") => Ok(Hint::Queue),
            Some(_) => Ok(Hint::Skip),
            None => Ok(Hint::Queue),
        }
    }
}

fn is_gated(pod: &Pod) -> bool {
    pod.template.labels.get("gate").is_some()
}

/// An event of the model.
#[derive(Clone, Debug)]
enum Happened {
    NodeAdd(&'static str),
    NodeTaint(&'static str),
    PodGone,
    /// The labels of a pod changed.
    Labels(Uid),
    /// A pod in flight was updated, but not its labels, which helps none.
    Updated,
    Activated(Uid),
}

fn helps(plugin: &str, pod: &Pod, happened: &Happened) -> bool {
    let wants = |name: &str| pod.template.labels.get("want") == Some(name);
    match (plugin, happened) {
        ("Gate", Happened::Labels(uid)) => pod.uid == *uid,
        ("Rejects", Happened::NodeAdd(name)) => wants(name),
        // A plugin that waits for added nodes gets taint events without a hint.
        ("Rejects", Happened::NodeTaint(_)) => true,
        ("Waits", Happened::NodeTaint(name)) => *name == "bad" || wants(name),
        ("Waits", Happened::PodGone) => true,
        _ => false,
    }
}

fn change(happened: &Happened) -> Option<Change> {
    let plain = |name: &str| Arc::new(node(name).build());
    Some(match happened {
        Happened::NodeAdd(name) => Change::Node(Diff { old: None, new: Some(plain(name)) }),
        Happened::NodeTaint(name) => {
            let tainted = node(*name).taint(Taint::new("t", "", TaintEffect::NoSchedule));
            Change::Node(Diff { old: Some(Arc::new(tainted.build())), new: Some(plain(name)) })
        }
        Happened::PodGone => {
            Change::Pod(Diff { old: Some(Arc::new(pod("gone").on("n").build())), new: None })
        }
        Happened::Labels(_) | Happened::Updated | Happened::Activated(_) => return None,
    })
}

#[derive(Clone, Debug)]
struct Known {
    pod: Pod,
    place: Place,
    queued: i64,
    arrival: u64,
    attempts: u32,
    unschedulable: u32,
    errors: u32,
    expires: i64,
    rejectors: BTreeSet<&'static str>,
    pending: BTreeSet<&'static str>,
    since: usize,
    deleted: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Worth {
    Skip,
    Backoff,
    Now,
}

const SECOND: i64 = 1_000_000_000;

/// The queue, written as simply as possible.
#[derive(Default)]
struct Model {
    pods: BTreeMap<Uid, Known>,
    happened: Vec<(i64, Happened)>,
    arrivals: u64,
    now: i64,
}

impl Model {
    fn backoff(&self, known: &Known) -> i64 {
        let failures = if known.errors > 0 { known.errors } else { known.unschedulable };
        match failures {
            0 => i64::MIN,
            n => (known.queued + (SECOND << (n - 1).min(8)).min(10 * SECOND)) / SECOND * SECOND,
        }
    }

    fn is_ahead(&self, expires: i64) -> bool {
        expires >= self.now / SECOND * SECOND
    }

    fn worth(&self, known: &Known, happened: &Happened) -> Worth {
        let mut all = known.rejectors.union(&known.pending).peekable();
        if all.peek().is_none() {
            return Worth::Backoff;
        }
        if let Happened::Activated(uid) = happened {
            return if *uid == known.pod.uid { Worth::Backoff } else { Worth::Skip };
        }
        if known.place == Place::Gated && !matches!(happened, Happened::Labels(_)) {
            return Worth::Skip;
        }
        if known.pending.iter().any(|plugin| helps(plugin, &known.pod, happened)) {
            Worth::Now
        } else if known.rejectors.iter().any(|plugin| helps(plugin, &known.pod, happened)) {
            Worth::Backoff
        } else {
            Worth::Skip
        }
    }

    fn requeue(&self, known: &mut Known, worth: Worth) {
        let expires = self.backoff(known);
        known.place = match worth {
            Worth::Skip => Place::Unschedulable,
            _ if is_gated(&known.pod) => {
                known.rejectors.insert("Gate");
                Place::Gated
            }
            Worth::Backoff if self.is_ahead(expires) => {
                known.expires = expires;
                match known.rejectors.is_empty() && known.pending.is_empty() {
                    true => Place::ErrorBackoff,
                    false => Place::Backoff,
                }
            }
            _ => Place::Active,
        };
    }

    fn change(&mut self, uid: &Uid, change: impl FnOnce(&mut Model, &mut Known)) {
        if let Some(mut known) = self.pods.remove(uid) {
            change(self, &mut known);
            self.pods.insert(uid.clone(), known);
        }
    }

    fn put(&mut self, pod: Pod) {
        let uid = pod.uid.clone();
        if !self.pods.contains_key(&uid) {
            self.arrivals += 1;
            let mut known = Known {
                pod,
                place: Place::Active,
                queued: self.now,
                arrival: self.arrivals,
                attempts: 0,
                unschedulable: 0,
                errors: 0,
                expires: 0,
                rejectors: BTreeSet::new(),
                pending: BTreeSet::new(),
                since: 0,
                deleted: false,
            };
            self.requeue(&mut known, Worth::Now);
            self.pods.insert(uid, known);
            return;
        }
        self.change(&uid.clone(), |model, known| {
            let old = std::mem::replace(&mut known.pod, pod);
            known.deleted = false;
            let relabelled = old.template.labels != known.pod.template.labels;
            let happened = Happened::Labels(uid);
            match known.place {
                Place::InFlight if relabelled => model.note(happened),
                Place::InFlight => model.note(Happened::Updated),
                Place::Unschedulable | Place::Gated if relabelled => {
                    let worth = model.worth(known, &happened);
                    if worth != Worth::Skip {
                        model.requeue(known, worth);
                    }
                }
                _ => {}
            }
        });
    }

    fn delete(&mut self, uid: &Uid) {
        match self.pods.get_mut(uid) {
            Some(known) if matches!(known.place, Place::InFlight | Place::Binding) => {
                known.deleted = true;
            }
            _ => drop(self.pods.remove(uid)),
        }
    }

    fn pop(&mut self) -> Option<(Uid, u32)> {
        let first = |place: Place| {
            let there = self.pods.values().filter(|known| known.place == place);
            there.min_by_key(|known| {
                let expires = if place == Place::Active { 0 } else { known.expires };
                (expires, -known.pod.template.priority, known.queued, known.arrival)
            })
        };
        let uid = first(Place::Active).or_else(|| first(Place::Backoff))?.pod.uid.clone();
        let since = self.happened.len();
        let known = self.pods.get_mut(&uid)?;
        (known.place, known.since) = (Place::InFlight, since);
        known.attempts += 1;
        Some((uid, known.attempts))
    }

    fn fail(&mut self, uid: &Uid, rejectors: &[&'static str], pending: &[&'static str]) {
        self.arrivals += 1;
        let known = &self.pods[uid];
        if known.deleted {
            self.pods.remove(uid);
            return;
        }
        self.change(uid, |model, known| {
            known.rejectors = rejectors.iter().copied().collect();
            known.pending = pending.iter().copied().collect();
            if rejectors.is_empty() && pending.is_empty() {
                known.errors += 1;
            } else {
                known.unschedulable += 1;
                known.errors = 0;
            }
            known.queued = model.now;
            known.arrival = model.arrivals;
            let worth = match known.place {
                Place::Binding => Worth::Backoff,
                _ => {
                    let since = &model.happened[known.since..];
                    let all: Vec<Worth> =
                        since.iter().map(|(_, happened)| model.worth(known, happened)).collect();
                    let is_old = since.first().is_some_and(|(at, _)| model.now - at > 300 * SECOND);
                    if is_old || (rejectors.is_empty() && pending.is_empty()) {
                        Worth::Backoff
                    } else if all.contains(&Worth::Now) {
                        Worth::Now
                    } else if all.contains(&Worth::Backoff) {
                        Worth::Backoff
                    } else {
                        Worth::Skip
                    }
                }
            };
            model.requeue(known, worth);
        });
    }

    /// Keeps an event for the pods in flight.
    fn note(&mut self, happened: Happened) {
        self.happened.push((self.now, happened));
    }

    fn happen(&mut self, happened: Happened) {
        for uid in self.pods.keys().cloned().collect::<Vec<_>>() {
            self.change(&uid, |model, known| {
                if matches!(known.place, Place::Unschedulable | Place::Gated) {
                    let worth = model.worth(known, &happened);
                    if worth != Worth::Skip {
                        model.requeue(known, worth);
                    }
                }
            });
        }
        self.note(happened);
    }

    fn activate(&mut self, uid: &Uid) {
        use Place::{Backoff, ErrorBackoff, Gated, Unschedulable};
        match self.pods.get(uid).map(|known| known.place) {
            Some(Backoff | ErrorBackoff | Unschedulable | Gated) => {
                self.change(uid, |model, known| model.requeue(known, Worth::Now));
            }
            Some(Place::InFlight) => self.note(Happened::Activated(uid.clone())),
            _ => {}
        }
    }

    fn flush_backoff(&mut self) {
        for uid in self.pods.keys().cloned().collect::<Vec<_>>() {
            self.change(&uid, |model, known| {
                if matches!(known.place, Place::Backoff | Place::ErrorBackoff)
                    && !model.is_ahead(known.expires)
                {
                    known.place = Place::Active;
                }
            });
        }
    }

    fn flush_leftover(&mut self) {
        for uid in self.pods.keys().cloned().collect::<Vec<_>>() {
            self.change(&uid, |model, known| {
                if known.place == Place::Unschedulable && model.now - known.queued > 300 * SECOND {
                    model.requeue(known, Worth::Backoff);
                }
            });
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Put { which: usize, priority: i32, gate: bool, want: usize },
    Delete(usize),
    Pop,
    Done(usize),
    Release(usize),
    Fail { which: usize, rejectors: u8 },
    Activate(usize),
    Happen(usize, usize),
    Advance(i64),
    FlushBackoff,
    FlushLeftover,
}

fn op() -> impl Strategy<Value = Op> {
    let which = 0..PODS;
    prop_oneof![
        4 => (which.clone(), 0..3_i32, proptest::bool::weighted(0.2), 0..WANTS.len())
            .prop_map(|(which, priority, gate, want)| Op::Put { which, priority, gate, want }),
        1 => which.clone().prop_map(Op::Delete),
        4 => Just(Op::Pop),
        1 => which.clone().prop_map(Op::Done),
        1 => which.clone().prop_map(Op::Release),
        4 => (which.clone(), 0..8_u8).prop_map(|(which, rejectors)| Op::Fail { which, rejectors }),
        1 => which.prop_map(Op::Activate),
        3 => (0..3_usize, 0..4_usize).prop_map(|(kind, name)| Op::Happen(kind, name)),
        3 => (0..4_000_i64).prop_map(Op::Advance),
        1 => Just(Op::Advance(400_000)),
        1 => Just(Op::FlushBackoff),
        1 => Just(Op::FlushLeftover),
    ]
}

fn framework(keyed: bool) -> Framework {
    /// Sorts like PrioritySort, but without a key.
    struct Unkeyed;
    impl Plugin for Unkeyed {
        fn info(&self) -> PluginInfo {
            PluginInfo::new("Unkeyed", &[Point::QueueSort])
        }
        fn compare(&self, one: &QueuedPod, other: &QueuedPod) -> std::cmp::Ordering {
            in_tree("PrioritySort").compare(one, other)
        }
    }
    let sort: Box<dyn Plugin> = if keyed { in_tree("PrioritySort") } else { Box::new(Unkeyed) };
    Framework::new(vec![
        (sort, 0),
        (Box::new(Gate), 0),
        (Box::new(Rejects), 0),
        (Box::new(Waits), 0),
    ])
    .unwrap()
}

/// Returns an empty version, which these hints do not read.
fn empty() -> &'static Snapshot {
    static EMPTY: OnceLock<Arc<Snapshot>> = OnceLock::new();
    EMPTY.get_or_init(|| Engine::inline(Config::default()).1.snapshot())
}

fn uid(which: usize) -> Uid {
    Uid::new(&format!("default/p{which}"))
}

/// Applies an operation to both.
fn run(queue: &mut SchedulingQueue, model: &mut Model, sets: [PluginSet; 2], op: Op) {
    let cluster = empty();
    let now = Timestamp(model.now);
    match op {
        Op::Put { which, priority, gate, want } => {
            let mut made = pod(format!("p{which}")).priority(priority).label("want", WANTS[want]);
            if gate {
                made = made.label("gate", "yes");
            }
            let made = made.build();
            model.put(made.clone());
            queue.add(made, Generation(1), cluster, now).unwrap();
        }
        Op::Delete(which) => {
            model.delete(&uid(which));
            queue.delete(&uid(which));
        }
        Op::Pop => {
            let popped = queue.pop(now).map(|popped| (popped.pod.uid, popped.attempts));
            assert_eq!(popped, model.pop(), "the same pod is popped");
        }
        Op::Done(which) => {
            let uid = uid(which);
            let place = model.pods.get(&uid).map(|known| known.place);
            if matches!(place, Some(Place::InFlight | Place::Binding)) {
                model.pods.remove(&uid);
            }
            queue.done(&uid);
        }
        Op::Release(which) => {
            let uid = uid(which);
            if let Some(known) = model.pods.get_mut(&uid)
                && known.place == Place::InFlight
            {
                known.place = Place::Binding;
            }
            queue.release(&uid);
        }
        Op::Fail { which, rejectors } => {
            let uid = uid(which);
            let is_out = model
                .pods
                .get(&uid)
                .is_some_and(|known| matches!(known.place, Place::InFlight | Place::Binding));
            let (by, waits) = (rejectors & 1 != 0, rejectors & 2 != 0);
            let names = |on: bool, name| if on { vec![name] } else { Vec::new() };
            let pick = |on: bool, set| if on { set } else { PluginSet::EMPTY };
            let waits_as_pending = waits && rejectors & 4 != 0;
            let rejected = pick(by, sets[0]).union(pick(waits && !waits_as_pending, sets[1]));
            let failed = queue.add_unschedulable_if_not_present(
                &uid,
                rejected,
                pick(waits_as_pending, sets[1]),
                cluster,
                now,
            );
            assert_eq!(failed.is_ok(), is_out, "only popped pods can be returned");
            // A refused call changes nothing except for a sequence number that it uses up.
            if is_out {
                let mut all = names(by, "Rejects");
                all.extend(names(waits && !waits_as_pending, "Waits"));
                model.fail(&uid, &all, &names(waits_as_pending, "Waits"));
            }
        }
        Op::Activate(which) => {
            model.activate(&uid(which));
            queue.activate(&uid(which), now);
        }
        Op::Happen(kind, name) => {
            let name = ["a", "b", "c", "bad"][name];
            let happened = match kind {
                0 => Happened::NodeAdd(name),
                1 => Happened::NodeTaint(name),
                _ => Happened::PodGone,
            };
            let change = change(&happened).unwrap();
            for event in ClusterEvent::of(&change) {
                queue.move_all(&event, None, cluster, now);
            }
            model.happen(happened);
        }
        Op::Advance(millis) => model.now += millis * 1_000_000,
        Op::FlushBackoff => {
            queue.flush_backoff_completed(usize::MAX, now);
            model.flush_backoff();
        }
        Op::FlushLeftover => {
            queue.flush_unschedulable_leftover(cluster, now);
            model.flush_leftover();
        }
    }
}

/// Checks that every pod is in the place that the model has it in, and nowhere else.
fn compare(queue: &SchedulingQueue, model: &Model) {
    let places = [Place::InFlight, Place::Binding].into_iter().chain(Place::QUEUES);
    let mut found: Vec<(Uid, Place)> = places
        .flat_map(|place| queue.pods_in(place).map(move |pod| (pod.uid.clone(), place)))
        .collect();
    found.sort();
    let expected: Vec<(Uid, Place)> =
        model.pods.values().map(|known| (known.pod.uid.clone(), known.place)).collect();
    assert_eq!(found, expected);
    assert!(found.iter().all(|(uid, place)| queue.place(uid) == Some(*place)));
    assert_eq!(queue.figures().pods(), expected.len());
}

proptest! {
    #[test]
    fn the_queue_pops_the_same_pods_as_the_model_and_loses_none(
        ops in proptest::collection::vec(op(), 1..80),
        keyed in any::<bool>(),
    ) {
        let framework = framework(keyed);
        let sets = ["Rejects", "Waits"].map(|name| framework.plugin_set([name]));
        let mut queue = SchedulingQueue::new(framework, QueueConfig::default());
        let mut model = Model { now: 1_000 * SECOND, ..Model::default() };
        for op in ops {
            run(&mut queue, &mut model, sets, op);
            compare(&queue, &model);
        }
        // When all pods in flight are done, no events are kept for them.
        let out: Vec<Uid> = model.pods.values()
            .filter(|known| matches!(known.place, Place::InFlight | Place::Binding))
            .map(|known| known.pod.uid.clone())
            .collect();
        out.iter().for_each(|uid| queue.done(uid));
        prop_assert_eq!(queue.figures().in_flight_events, 0);
    }

    #[test]
    fn an_event_in_steps_moves_all_pods_that_were_waiting_at_its_start(
        waiting in 1..40_usize,
        gone in proptest::collection::vec(0..40_usize, 0..10),
        step in 1..7_usize,
    ) {
        let (mut writer, reader) = Engine::inline(Config::default());
        let follower = writer.follow();
        let framework = framework(true);
        let rejects = framework.plugin_set(["Rejects"]);
        let mut queue = SchedulingQueue::new(framework, QueueConfig::default());
        let now = Timestamp::from_secs(100);
        let wanting = |n: usize| pod(format!("p{n}")).label("want", "a").build();
        let fail = |queue: &mut SchedulingQueue, n: usize| {
            queue.add(wanting(n), Generation(1), &reader.pin(), now).unwrap();
            let popped = queue.pop(now).unwrap();
            let uid = popped.pod.uid;
            let none = PluginSet::EMPTY;
            queue.add_unschedulable_if_not_present(&uid, rejects, none, &reader.pin(), now).unwrap()
        };
        for n in 0..waiting {
            prop_assert_eq!(fail(&mut queue, n), Some(Place::Unschedulable));
        }
        writer.add_node(node("a").build()).unwrap();
        writer.publish();
        queue.take(&follower.try_next().unwrap(), &reader.pin(), now).unwrap();
        let mut gone = gone.into_iter();
        while queue.step(step, &reader.pin(), now) {
            if let Some(n) = gone.next() {
                queue.delete(&uid(n));
            }
        }
        prop_assert_eq!(queue.figures().unschedulable, 0);
        prop_assert_eq!(queue.figures().backlog, 0);
    }
}
