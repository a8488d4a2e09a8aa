//! The readings of the last hour.
//!
//! The newest reading is in memory. Each of the others is held as the [`Steps`] from the reading before it, and is rebuilt
//! from them when it is read. At least one reading in 601 is whole: it is held as the steps from an empty cluster, so that
//! older readings can be dropped. It would share little memory with the newest one, and its steps take a third of that.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::difference::Difference;
use super::steps::{NotRebuilt, Steps};
use super::view::{Reading, State, Uncoupled, View};
use crate::alloc::live_bytes;

/// The time that a reading of a cluster is held.
pub(super) const LIFETIME: Duration = Duration::from_secs(60 * 60);

/// The number of readings, one a second, beyond which the oldest whole reading is dropped with all that are rebuilt from
/// it.
const MOST: usize = 3_600;

/// The most readings in a row that are held as steps from the one before. Rows are dropped as a whole, so longer ones
/// would hold more readings than needed, and save few whole ones.
const MOST_IN_A_ROW: usize = 600;

/// The number of steps in a row that is allowed in a cluster of any size: a step takes a few microseconds.
const FEW_STEPS: usize = 50_000;

/// The number of further steps for each pod: these take more memory than another whole reading, and a reading is rebuilt
/// in at most four times the time of a whole one.
const STEPS_PER_POD: usize = 3;

/// How much the heap may grow after the first reading before older readings are dropped, in bytes.
const MOST_BYTES: i64 = 1 << 30;

/// The shortest time between two times of dropping readings because of the heap: simulations fill it, too, and free it
/// soon.
const PAUSE: Duration = Duration::from_secs(60);

/// The number of older readings that are ready for simulations.
const MOST_OPENED: usize = 4;

/// The newest readings.
pub(super) struct History {
    readings: Mutex<Readings>,
    /// The time that a reading is held; without one, until there are too many.
    lifetime: Option<Duration>,
    /// The heap beyond which older readings are dropped, in bytes.
    most_bytes: i64,
}

struct Readings {
    /// Never empty. The first one is whole, and the last one in memory.
    held: VecDeque<Held>,
    /// The steps that replace the newest reading when it no longer is the newest one, unless it stays whole.
    next: Option<Arc<Steps>>,
    most_in_a_row: usize,
    /// The readings that were read last.
    opened: VecDeque<Arc<View>>,
    /// When readings were dropped because of the heap.
    thinned: Option<Instant>,
}

struct Held {
    reading: Uncoupled,
    state: Stored,
    /// The numbers of nodes and pods that differ from the reading before it, which may no longer be held.
    changed: Value,
}

/// The state of a reading's cluster. It is whole unless it needs the reading before.
enum Stored {
    /// The newest reading, and those that are not rebuilt exactly.
    State(State),
    /// An empty state, and the steps from it.
    FromEmpty(State, Arc<Steps>),
    /// The steps from the state of the reading before.
    FromBefore(Arc<Steps>),
}

/// Why there is no reading of a generation.
pub(super) enum NotHeld {
    /// It is not held; the others are the generations of the oldest and newest reading.
    Gone { generation: u64, oldest: u64, newest: u64 },
    /// A step could not be applied, although all were tried when the reading was taken.
    NotRebuilt { generation: u64, error: NotRebuilt },
}

impl std::fmt::Display for NotHeld {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NotHeld::Gone { generation, newest, .. } if generation > newest => {
                write!(f, "generation {generation} is not held: the newest is {newest}")
            }
            NotHeld::Gone { generation, oldest, .. } if generation < oldest => {
                write!(f, "generation {generation} is not held: the oldest is {oldest}")
            }
            NotHeld::Gone { generation, .. } => {
                let why = "it was dropped to free memory: see /api/v1/generations";
                write!(f, "generation {generation} is not held: {why}")
            }
            NotHeld::NotRebuilt { generation, error } => {
                write!(f, "generation {generation} could not be rebuilt: {error}: report a bug")
            }
        }
    }
}

impl Held {
    fn new(reading: Reading, changed: Value) -> Held {
        let (reading, state) = reading.into_parts();
        Held { reading, state: Stored::State(state), changed }
    }

    fn is_whole(&self) -> bool {
        self.steps_from_before().is_none()
    }

    fn steps_from_before(&self) -> Option<&Arc<Steps>> {
        match &self.state {
            Stored::State(_) | Stored::FromEmpty(..) => None,
            Stored::FromBefore(steps) => Some(steps),
        }
    }
}

impl Readings {
    /// The index of a reading.
    fn find(&self, generation: u64) -> Option<usize> {
        self.held.binary_search_by_key(&generation, |held| held.reading.generation).ok()
    }

    /// The newest reading.
    fn newest(&self) -> Option<Reading> {
        let held = self.held.back()?;
        let Stored::State(state) = &held.state else { return None };
        Some(held.reading.clone().with(state.clone()))
    }

    /// Whether the reading after the newest one may be held as these steps.
    fn may_follow(&self, steps: &Steps, pods: usize) -> bool {
        // Without steps, the newest reading stays whole and begins another row.
        let before = self.held.iter().rev().skip(1).map_while(Held::steps_from_before);
        let row = self.next.iter().flat_map(|next| before.clone().chain([next]));
        let (readings, taken) = row.fold((0, 0), |(n, sum), steps| (n + 1, sum + steps.len()));
        let most = FEW_STEPS.saturating_add(pods.saturating_mul(STEPS_PER_POD));
        readings < self.most_in_a_row && taken + steps.len() <= most
    }

    /// Adds a newer reading. The steps to it replace its state when it is no longer the newest one. Returns a replaced
    /// state, to be freed without the lock.
    fn push(&mut self, held: Held, steps: Option<Arc<Steps>>) -> Option<Stored> {
        let number = self.held.len();
        let replaced = match (self.held.back_mut(), self.next.take()) {
            // The oldest reading stays whole.
            (Some(last), Some(steps)) if 1 < number => {
                Some(std::mem::replace(&mut last.state, Stored::FromBefore(steps)))
            }
            _ => None,
        };
        self.held.push_back(held);
        self.next = steps;
        replaced
    }

    /// Takes out the oldest readings, at most this number: the oldest one that stays is whole.
    fn take_oldest(&mut self, most: usize) -> Vec<Held> {
        let most = most.min(self.held.len() - 1);
        let is_whole = |at: &usize| self.held[*at].is_whole();
        let taken = (0..=most).rev().find(is_whole).unwrap_or(0);
        let taken = self.held.drain(..taken).collect();
        let first = self.held.front().map_or(0, |held| held.reading.generation);
        self.opened.retain(|view| view.reading.generation >= first);
        taken
    }

    /// Takes out every other of the older groups, each of which is a whole reading and the steps after it.
    fn take_every_other(&mut self) -> Vec<Held> {
        let groups = self.held.iter().filter(|held| held.is_whole()).count();
        let mut group = 0;
        let all = std::mem::take(&mut self.held).into_iter();
        let (stay, taken) = all.partition(|held| {
            group += usize::from(held.is_whole());
            group > groups / 2 || group % 2 == 1
        });
        self.held = stay;
        taken.into()
    }

    /// The state and the steps from which a reading is rebuilt: from the nearest reading that is whole or was read lately.
    fn parts(&self, at: usize) -> Option<(State, Vec<Arc<Steps>>)> {
        let mut steps = VecDeque::new();
        for held in self.held.range(..=at).rev() {
            let is_it = |view: &&Arc<View>| view.reading.generation == held.reading.generation;
            let opened = || self.opened.iter().find(is_it);
            match (&held.state, opened()) {
                (Stored::State(state), _) => return Some((state.clone(), steps.into())),
                (_, Some(view)) => return Some((view.reading.state(), steps.into())),
                (Stored::FromEmpty(empty, these), None) => {
                    steps.push_front(these.clone());
                    return Some((empty.clone(), steps.into()));
                }
                (Stored::FromBefore(these), None) => steps.push_front(these.clone()),
            }
        }
        None
    }
}

impl History {
    pub(super) fn new(first: Reading, lifetime: Option<Duration>) -> History {
        let held = VecDeque::from([Held::new(first, Value::Null)]);
        let (opened, thinned) = (VecDeque::new(), None);
        let most_in_a_row = MOST_IN_A_ROW;
        let readings = Readings { held, next: None, most_in_a_row, opened, thinned };
        let readings = Mutex::new(readings);
        History { readings, lifetime, most_bytes: live_bytes().saturating_add(MOST_BYTES) }
    }

    fn lock(&self) -> MutexGuard<'_, Readings> {
        self.readings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a newer reading. The cost is proportional to the difference from the last one, and to the numbers of nodes,
    /// of objects other than pods, and of facts. Returns the reading before it if that stays whole.
    #[must_use = "compact it when the newer reading is shown"]
    pub(super) fn push(&self, reading: Reading) -> Option<Reading> {
        let last = self.lock().newest();
        let (changed, steps) = match &last {
            Some(last) => (
                Difference::between(last, &reading).summary(),
                Steps::between(&last.state(), &reading.state()),
            ),
            None => (Value::Null, None),
        };
        let pods = reading.cluster().pod_count();
        let held = Held::new(reading, changed);
        let mut readings = self.lock();
        let steps = steps.filter(|steps| readings.may_follow(steps, pods)).map(Arc::new);
        let replaced = readings.push(held, steps);
        let excess = readings.held.len().saturating_sub(MOST);
        let excess = readings.take_oldest(excess);
        drop(readings);
        drop(excess);
        self.expire(Timestamp::now());
        last.filter(|_| replaced.is_none())
    }

    /// Holds a reading that is not the newest one as the steps from an empty state if they rebuild it. O(cluster).
    pub(super) fn compact(&self, reading: &Reading) {
        let state = reading.state();
        let empty = state.empty();
        let Some(steps) = Steps::between(&empty, &state) else { return };
        let mut compacted = Stored::FromEmpty(empty, steps.into());
        let mut readings = self.lock();
        let found = readings.find(reading.generation);
        if let Some(held) = found.and_then(|at| readings.held.get_mut(at)) {
            std::mem::swap(&mut held.state, &mut compacted);
        }
        drop(readings);
        drop(compacted);
    }

    /// Drops the readings that are too old, except the newest one and those from which others are rebuilt.
    pub(super) fn expire(&self, now: Timestamp) {
        let Some(Ok(first)) = self.lifetime.map(|lifetime| now.checked_sub(lifetime)) else {
            return;
        };
        let mut readings = self.lock();
        // A reading is the newest one until the next is taken.
        let is_old = |next: &&Held| next.reading.taken < first;
        let old = readings.held.iter().skip(1).take_while(is_old).count();
        let old = readings.take_oldest(old);
        drop(readings);
        drop(old);
    }

    /// Whether the heap is larger than readings may make it.
    pub(super) fn is_full(&self) -> bool {
        live_bytes() > self.most_bytes
    }

    /// Drops readings if the heap is too large. Returns whether any was dropped.
    pub(super) fn relieve(&self, now: Instant) -> bool {
        if !self.is_full() {
            return false;
        }
        let last = self.lock().thinned.replace(now);
        if let Some(last) = last.filter(|last| now.saturating_duration_since(*last) < PAUSE) {
            self.lock().thinned = Some(last);
            return false;
        }
        self.thin()
    }

    /// Drops every other group of the older half: a whole reading and those that are rebuilt from it. Returns whether any
    /// was dropped, which needs at least four groups.
    fn thin(&self) -> bool {
        let mut readings = self.lock();
        let dropped = readings.take_every_other();
        let opened = std::mem::take(&mut readings.opened);
        drop(readings);
        drop(opened);
        !dropped.is_empty()
    }

    /// The reading of a generation if it was asked for lately.
    pub(super) fn ready(&self, generation: u64) -> Option<Arc<View>> {
        let readings = self.lock();
        readings.opened.iter().find(|view| view.reading.generation == generation).cloned()
    }

    /// The reading of a generation. O(steps + facts) unless it was asked for lately.
    pub(super) fn view(&self, generation: u64) -> Result<Arc<View>, NotHeld> {
        if let Some(view) = self.ready(generation) {
            return Ok(view);
        }
        let readings = self.lock();
        let found = readings.find(generation);
        let found = found.and_then(|at| Some((readings.held.get(at)?, readings.parts(at)?)));
        let Some((held, (from, steps))) = found else {
            let of = |held: Option<&Held>| held.map_or(0, |held| held.reading.generation);
            let (oldest, newest) = (of(readings.held.front()), of(readings.held.back()));
            return Err(NotHeld::Gone { generation, oldest, newest });
        };
        let reading = held.reading.clone();
        drop(readings);
        let rebuilt = Steps::rebuild(from, &steps)
            .map_err(|error| NotHeld::NotRebuilt { generation, error })?;
        let view = Arc::new(View::of(reading.with(rebuilt)));
        let mut readings = self.lock();
        let is_it = |view: &&Arc<View>| view.reading.generation == generation;
        if let Some(made_meanwhile) = readings.opened.iter().find(is_it) {
            return Ok(made_meanwhile.clone());
        }
        if readings.find(generation).is_none() {
            return Ok(view);
        }
        readings.opened.push_back(view.clone());
        let closed = (readings.opened.len() > MOST_OPENED).then(|| readings.opened.pop_front());
        drop(readings);
        drop(closed);
        Ok(view)
    }

    /// All readings, the oldest first.
    pub(super) fn list(&self) -> Value {
        let readings = self.lock();
        let list: Vec<Value> = readings.held.iter().map(|held| held.reading.json()).collect();
        json!({ "generations": list })
    }

    /// The readings after a generation as events report them, the oldest first.
    pub(super) fn since(&self, generation: u64) -> Vec<(u64, Value)> {
        let readings = self.lock();
        let first = readings.held.partition_point(|held| held.reading.generation <= generation);
        let newer = readings.held.iter().skip(first).map(|held| {
            let mut event = held.reading.json();
            event["changed"] = held.changed.clone();
            (held.reading.generation, event)
        });
        newer.collect()
    }
}

#[cfg(test)]
mod tests {
    use portolan::cache::{NodeInfo, PodInfo};
    use portolan::model::{LabelSelector, Node, ObjectKind, Pod, Uid, node, pod};
    use portolan_dra::Devices;
    use portolan_k8s::PodFacts;
    use portolan_testkit::random::Random;

    use super::*;
    use crate::alloc::bytes_of_thread;
    use crate::cluster::random::{input as json_input, random_objects};
    use crate::cluster::{self, Godel, Input};
    use crate::policy::{ConfigFile, Rules};
    use crate::serve::api::App;
    use crate::serve::source::Source;

    const NODES: usize = 500;
    const PODS: usize = 2_500;

    fn nodes() -> Vec<Node> {
        (0..NODES).map(|n| node(format!("n{n}")).cpu(64_000).build()).collect()
    }

    fn pods() -> Vec<Pod> {
        (0..PODS).map(|p| one_pod(p, p % NODES)).collect()
    }

    fn one_pod(number: usize, node: usize) -> Pod {
        let mut uid = [7; 16];
        uid[..8].copy_from_slice(&number.to_le_bytes());
        let name = format!("deployment-6b7f9c8d5-{number:05}");
        pod(name).uid(Uid::from_bytes(uid).to_string()).cpu(100).on(format!("n{node}")).build()
    }

    fn input(nodes: &[Node], pods: &[Pod]) -> Input {
        input_with(nodes, pods, PodFacts::default())
    }

    fn input_with(nodes: &[Node], pods: &[Pod], facts: PodFacts) -> Input {
        let mut objects = portolan_k8s::Objects::default();
        (objects.nodes, objects.pods) = (nodes.to_vec(), pods.to_vec());
        objects.facts = facts;
        Input::of(objects)
    }

    /// The facts about these pods if none is ready.
    fn facts_of(pods: &[Pod]) -> PodFacts {
        let condition = json!({ "type": "Ready", "status": "False" });
        let object = |pod: &Pod| {
            json!({ "apiVersion": "v1", "kind": "Pod", "spec": { "containers": [] },
                "metadata": { "name": &*pod.name, "uid": pod.uid.to_string() },
                "status": { "phase": "Running", "conditions": [&condition] } })
        };
        let list = json!({ "apiVersion": "v1", "kind": "List",
            "items": pods.iter().map(object).collect::<Vec<Value>>() });
        portolan_k8s::read(list.to_string().as_bytes()).expect("valid pods").facts
    }

    fn read(generation: u64, readings: &mut cluster::Readings, input: Input) -> Reading {
        let loaded = readings.load(input, &Godel::default()).expect("a valid cluster");
        Reading::of(generation, loaded.expect("a change")).expect("no claims")
    }

    /// A number that environment variables change.
    fn number(variable: &str, default: usize) -> usize {
        std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    }

    /// The most bytes of a reading after 500 events.
    const OF_READING: i64 = 40_000;

    /// The most bytes a pod of a whole reading.
    const OF_POD: i64 = 80;

    // An hour at 500 events a second takes at most 300 MB with 150,000 pods. The readings of a row stay until none of them
    // is needed, and each event may also change facts.
    const _: () = {
        let row = (FEW_STEPS + 150_000 * STEPS_PER_POD) / (2 * 500);
        let row = if row < MOST_IN_A_ROW { row } else { MOST_IN_A_ROW };
        let (readings, whole) = ((MOST + row) as i64, ((MOST + row) / row + 1) as i64);
        assert!(readings * OF_READING + whole * 150_000 * OF_POD <= 300_000_000);
    };

    #[test]
    fn a_held_reading_takes_the_memory_of_its_steps() {
        let (nodes, mut pods) = (nodes(), pods());
        let mut readings = cluster::Readings::default();
        let history = History::new(read(1, &mut readings, input(&nodes, &pods)), Some(LIFETIME));
        let mut generation = 1;
        let mut facts: VecDeque<PodFacts> = VecDeque::new();
        let many = number("PORTOLAN_READINGS", 150);
        // The first readings have fewer facts.
        let first = (PODS / 167, 501, i64::MAX);
        for (number, changed, most) in [first, (many, 501, OF_READING), (20, 6, 5 << 10)] {
            let before = bytes_of_thread();
            for _ in 0..number {
                generation += 1;
                // A third of the events each creates, changes or deletes a pod, each on another node.
                for n in 0..changed / 3 {
                    pods.push(one_pod(PODS + generation * changed + n, n));
                }
                for pod in &mut pods[changed..2 * changed].iter_mut().step_by(3) {
                    pod.resource_version += 1;
                }
                pods.drain(..changed / 3);
                facts.push_back(facts_of(&pods[PODS - changed / 3..]));
                drop((facts.len() > PODS / (changed / 3)).then(|| facts.pop_front()));
                let mut known = PodFacts::default();
                facts.iter().for_each(|these| known.merge(these.clone()));
                let input = input_with(&nodes, &pods, known);
                push(&history, read(generation as u64, &mut readings, input));
                readings.reclaim();
            }
            let held = (bytes_of_thread() - before) / number as i64;
            println!("{changed} pods change: {held} bytes");
            assert!(held < most, "{changed} pods change: {held} bytes");
        }
    }

    #[test]
    fn a_whole_reading_takes_the_memory_of_its_steps_from_an_empty_cluster() {
        let count = number("PORTOLAN_PODS", PODS);
        let nodes: Vec<Node> = (0..count / 30).map(|n| node(format!("n{n}")).build()).collect();
        let pods: Vec<Pod> = (0..count).map(|p| one_pod(p, p % nodes.len())).collect();
        let mut readings = cluster::Readings::default();
        let mut next = |generation, pods: &[Pod]| {
            let input = input_with(&nodes, pods, facts_of(pods));
            read(generation, &mut readings, input)
        };
        let history = History::new(next(1, &pods), Some(LIFETIME));
        push(&history, next(2, &[]));
        let first = history.lock().held.pop_front().expect("a reading");
        assert!(matches!(first.state, Stored::FromEmpty(..)), "it is rebuilt exactly");
        let before = bytes_of_thread();
        drop(first);
        let held = (before - bytes_of_thread()) / pods.len() as i64;
        println!("{held} bytes a pod");
        assert!(held < OF_POD, "{held} bytes a pod");
    }

    /// An engine keeps the size of an image that it learns first, while any node has the image.
    #[test]
    fn whole_readings_have_the_image_sizes_that_were_learned_first() {
        fn with_sizes(sizes: [i64; 3]) -> Vec<Node> {
            let zones = ["x", "x", "y"].into_iter().enumerate();
            let with_image = |((n, zone), size)| {
                let node = node(format!("n{n}")).cpu(64_000).zone(zone);
                if size == 0 { node.build() } else { node.image(["image"], size).build() }
            };
            zones.zip(sizes).map(with_image).collect()
        }
        for (first, then) in
            [([0, 2, 3], [0, 2, 3]), ([1, 2, 0], [2, 2, 0]), ([1, 1, 0], [1, 1, 0])]
        {
            let mut readings = cluster::Readings::watched();
            let mut next = |generation, sizes, pods: &[Pod]| {
                read(generation, &mut readings, input(&with_sizes(sizes), pods))
            };
            next(1, first, &pods()[..2]);
            let taken = next(1, then, &pods()[..1]);
            let history = History::new(taken.clone(), Some(LIFETIME));
            push(&history, next(2, then, &[]));
            assert!(matches!(history.lock().held[0].state, Stored::FromEmpty(..)), "{then:?}");
            let rebuilt = history.view(1).ok().expect("held");
            assert_eq!(contents(&rebuilt.reading), contents(&taken));
        }
    }

    #[test]
    fn the_server_compacts_whole_readings() {
        let mut readings = cluster::Readings::default();
        let mut next =
            |generation, pods: &[Pod]| read(generation, &mut readings, input(&nodes(), pods));
        let config = ConfigFile::default().source().read().expect("the default profile");
        let rules = Rules { config: config.into(), godel: Godel::default().into(), seed: 1 };
        let app = App::new(rules, &Source::Example, next(1, &[]), None);
        app.show(next(2, &pods()[..1]), None);
        assert!(matches!(app.history.lock().held[0].state, Stored::FromEmpty(..)));
        assert_eq!(app.generation(), 2);
    }

    fn push(history: &History, reading: Reading) {
        history.push(reading).iter().for_each(|whole| history.compact(whole));
    }

    /// All that a reading of a plain cluster has, in the orders on which decisions depend.
    fn contents(of: &Reading) -> Vec<String> {
        let cluster = of.cluster();
        let of_node = |node: NodeInfo<'_>| {
            let pods: Vec<Pod> = node.pods().map(|pod| pod.to_pod()).collect();
            format!("{:?} {pods:?}", node.node())
        };
        let mut all: Vec<String> = cluster.nodes().map(of_node).collect();
        all.push(format!("image: {:?}", cluster.image_size("image")));
        let everything = LabelSelector::everything();
        let is_on_ghost = |pod: &PodInfo<'_>| pod.node().node().is_none();
        let on_ghosts = cluster.pods(&everything, is_on_ghost);
        let mut others: Vec<String> = on_ghosts.map(|pod| format!("{:?}", pod.to_pod())).collect();
        for kind in ObjectKind::ALL {
            let object = |(space, name): (String, String)| cluster.object(kind, &space, &name);
            others.extend(
                cluster.object_keys(kind).into_iter().map(|it| format!("{:?}", object(it))),
            );
        }
        if let Ok(devices) = cluster.store::<Devices>() {
            others.push("devices".to_owned());
            others.extend(devices.claims().iter().map(|it| format!("{it:?}")));
            others.extend(devices.slices().iter().map(|it| format!("{it:?}")));
        }
        others.sort();
        all.extend(others);
        all.extend(of.pending().iter().map(|pod| format!("{pod:?}")));
        all
    }

    /// The generations that are whole.
    fn whole(history: &History) -> Vec<u64> {
        let readings = history.lock();
        let whole = readings.held.iter().filter(|held| held.is_whole());
        whole.map(|held| held.reading.generation).collect()
    }

    #[test]
    fn a_reading_that_is_rebuilt_is_the_one_that_was_taken() {
        let (mut from_before, mut from_empty) = (0, 0);
        for seed in 0..10 {
            let mut random = Random::new(seed);
            let mut readings = cluster::Readings::watched();
            let mut next = |generation, random: &mut Random| {
                let mut objects = random_objects(random);
                for node in objects.iter_mut().filter(|it| it["kind"] == "Node") {
                    if random.one_in(2) {
                        let size = 1 + random.below(2);
                        node["status"]["images"] =
                            json!([{ "names": ["image"], "sizeBytes": size }]);
                    }
                }
                read(generation, &mut readings, json_input(&objects))
            };
            let first = next(1, &mut random);
            let mut taken = vec![first.clone()];
            let history = History::new(first, Some(LIFETIME));
            history.lock().most_in_a_row = 3;
            for generation in 2..=30 {
                let reading = next(generation, &mut random);
                taken.push(reading.clone());
                push(&history, reading);
            }
            for held in &history.lock().held {
                match held.state {
                    Stored::FromBefore(_) => from_before += 1,
                    Stored::FromEmpty(..) => from_empty += 1,
                    Stored::State(_) => {}
                }
            }
            let mut order: Vec<u64> = (1..=30).collect();
            for at in (1..order.len()).rev() {
                order.swap(at, random.index(at + 1));
            }
            for generation in order {
                let view = history.view(generation).ok().expect("held");
                let (taken, rebuilt) = (&taken[generation as usize - 1], &view.reading);
                let summary = |before| Difference::between(before, rebuilt).summary();
                // These pods name no classes.
                let is_same = contents(taken) == contents(rebuilt)
                    && taken.facts() == rebuilt.facts()
                    && summary(taken) == summary(rebuilt);
                assert!(is_same, "seed {seed}: generation {generation} is another one");
            }
        }
        assert!(from_before > 100 && from_empty > 50, "{from_before} and {from_empty} of 300");
    }

    #[test]
    fn a_row_of_steps_ends_so_that_old_readings_can_be_dropped() {
        let (nodes, pods) = (&nodes()[..1], &pods()[..2]);
        let mut readings = cluster::Readings::default();
        let mut next = |generation: usize| {
            read(generation as u64, &mut readings, input(nodes, &pods[generation % 2..]))
        };
        let history = History::new(next(1), Some(LIFETIME));
        let last = 2 * MOST_IN_A_ROW + 10;
        (2..=last).for_each(|generation| push(&history, next(generation)));
        let row = MOST_IN_A_ROW as u64 + 1;
        assert_eq!(whole(&history), [1, 1 + row, 1 + 2 * row, last as u64]);
        let mut held = history.lock();
        assert_eq!(held.take_oldest(MOST_IN_A_ROW).len(), 0);
        assert_eq!(held.take_oldest(2 * MOST_IN_A_ROW).len(), MOST_IN_A_ROW + 1);
    }

    #[test]
    fn a_row_of_steps_is_as_long_as_the_cluster_allows() {
        let (nodes, mut pods) = (nodes(), pods());
        let mut readings = cluster::Readings::default();
        let history = History::new(read(1, &mut readings, input(&nodes, &pods)), Some(LIFETIME));
        for generation in 2..=26 {
            pods.iter_mut().for_each(|pod| pod.resource_version += 1);
            push(&history, read(generation, &mut readings, input(&nodes, &pods)));
        }
        let steps = FEW_STEPS + PODS * STEPS_PER_POD;
        assert_eq!(whole(&history), [1, 2 + (steps / PODS) as u64, 26]);
    }

    #[test]
    fn the_order_of_nodes_and_pods_is_that_of_the_reading() {
        let some = &nodes()[..3];
        let mut timed = pods()[..4].to_vec();
        for pod in &mut timed {
            pod.node_name = Some("n0".into());
        }
        let with = |at: usize, change: fn(&mut Pod)| {
            let mut pods = timed.clone();
            change(&mut pods[at]);
            pods
        };
        let changes = [
            (some, timed.clone()),
            (some, with(0, |pod| pod.resource_version += 1)),
            (some, with(1, |pod| pod.start_time = Some(portolan::model::Timestamp(1)))),
            (some, with(1, |pod| pod.deletion_time = Some(portolan::model::Timestamp(2)))),
            (some, [&timed[1..3], &[one_pod(7, 0), one_pod(8, 0)]].concat()),
            (some, with(2, |pod| pod.node_name = Some("n1".into()))),
            (some, with(3, |pod| pod.node_name = Some("n9".into()))),
            (&some[1..], timed.clone()),
            (some, timed[1..].to_vec()),
            (&some[..1], timed[..1].to_vec()),
        ];
        let mut readings = cluster::Readings::watched();
        let mut taken = Vec::new();
        let mut history: Option<History> = None;
        for (at, (nodes, pods)) in changes.iter().enumerate() {
            let reading = read(at as u64 + 1, &mut readings, input(nodes, pods));
            taken.push(contents(&reading));
            match &history {
                Some(history) => push(history, reading),
                None => history = Some(History::new(reading, Some(LIFETIME))),
            }
        }
        let history = history.expect("readings");
        assert_eq!(whole(&history), [1, 10], "the others are held as steps");
        for (at, taken) in taken.iter().enumerate() {
            let view = history.view(at as u64 + 1).ok().expect("held");
            assert_eq!(contents(&view.reading), *taken, "reading {}", at + 1);
        }
    }

    #[test]
    fn the_order_of_pods_is_kept_if_a_reading_was_lost() {
        let pods: Vec<Pod> = (0..3).map(|pod| one_pod(pod, 0)).collect();
        let nodes = &nodes()[..1];
        let mut readings = cluster::Readings::watched();
        let mut next =
            |generation, pods: &[Pod]| read(generation, &mut readings, input(nodes, pods));
        let first = next(1, &pods);
        let history = History::new(first.clone(), Some(LIFETIME));
        next(2, &pods[1..]);
        let taken = next(2, &pods);
        push(&history, taken.clone());
        push(&history, next(3, &[]));
        let rebuilt = history.view(2).ok().expect("held");
        assert_eq!(contents(&rebuilt.reading), contents(&taken));
        assert_ne!(contents(&taken), contents(&first), "the pods are in another order");
    }

    #[test]
    fn a_store_of_devices_appears_in_a_whole_reading() {
        let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n" } });
        let slice = |name: &str| {
            let pool = json!({ "name": name, "generation": 1, "resourceSliceCount": 1 });
            let spec = json!({ "driver": "x", "pool": pool, "allNodes": true, "devices": [{ "name": "d" }] });
            json!({ "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
                "metadata": { "name": name }, "spec": spec })
        };
        let mut readings = cluster::Readings::default();
        let mut next =
            |generation, objects: &[Value]| read(generation, &mut readings, json_input(objects));
        let history = History::new(next(1, std::slice::from_ref(&node)), Some(LIFETIME));
        push(&history, next(2, &[node.clone(), slice("a")]));
        push(&history, next(3, &[node.clone(), slice("a"), slice("b")]));
        let view = history.view(2).ok().expect("held");
        assert_eq!(
            view.reading.cluster().store::<Devices>().map(|it| it.slices().iter().count()),
            Ok(1)
        );
    }

    #[test]
    fn a_reading_is_current_until_the_next() {
        let nodes = &nodes()[..1];
        let mut readings = cluster::Readings::default();
        let history = History::new(read(1, &mut readings, input(nodes, &[])), Some(LIFETIME));
        push(&history, read(2, &mut readings, input(&[], &[])));
        let second = history.lock().held[1].reading.taken;
        history.expire(second + LIFETIME);
        assert!(history.view(1).is_ok(), "it was current an hour ago");
    }

    #[test]
    fn thinning_drops_whole_readings_with_those_that_are_rebuilt_from_them() {
        let nodes = &nodes()[..1];
        let mut readings = cluster::Readings::default();
        let mut next = |generation: u64| {
            let pods = &pods()[..20 - generation as usize];
            read(generation, &mut readings, input(nodes, pods))
        };
        let history = History::new(next(1), Some(LIFETIME));
        for generation in 2..=12 {
            let reading = next(generation);
            let last = history.lock().newest().expect("a reading");
            let steps =
                Steps::between(&last.state(), &reading.state()).filter(|_| generation % 3 != 1);
            history.lock().push(Held::new(reading, Value::Null), steps.map(Arc::new));
        }
        assert!(history.thin());
        let held: Vec<u64> = history.since(0).into_iter().map(|it| it.0).collect();
        assert_eq!(held, [1, 2, 3, 7, 8, 9, 10, 11, 12]);
        for generation in held {
            let view = history.view(generation).ok().expect("held");
            assert_eq!(view.reading.cluster().pod_count(), 20 - generation as usize);
        }
    }

    #[test]
    fn readings_from_which_others_are_rebuilt_stay() {
        let nodes = &nodes()[..1];
        let mut readings = cluster::Readings::default();
        let mut pods = pods();
        let mut next = |generation| {
            pods.truncate(40 - generation as usize);
            read(generation, &mut readings, input(nodes, &pods))
        };
        let history = History::new(next(1), Some(LIFETIME));
        let later = Timestamp::now() + 2 * LIFETIME;
        for generation in 2..=6 {
            push(&history, next(generation));
        }
        let taken = history.lock().take_oldest(3);
        assert!(taken.is_empty(), "the second to fifth reading are made from the first");
        let pods_of = |generation| {
            history.view(generation).ok().map(|view| view.reading.cluster().pod_count())
        };
        assert_eq!(
            (1..=7).map(pods_of).collect::<Vec<_>>(),
            [39, 38, 37, 36, 35, 34].map(Some).into_iter().chain([None]).collect::<Vec<_>>()
        );
        history.expire(later);
        assert_eq!(history.lock().held.len(), 1, "the newest one stays");
        for generation in 7..=9 {
            push(&history, next(generation));
        }
        assert_eq!([5, 6, 7, 8, 9].map(pods_of), [None, Some(34), Some(33), Some(32), Some(31)]);
    }

    #[test]
    fn readings_of_more_than_an_hour_ago_are_dropped_except_the_newest() {
        let (nodes, mut pods) = (nodes(), pods());
        let mut readings = cluster::Readings::default();
        let history = History::new(read(1, &mut readings, input(&nodes, &pods)), Some(LIFETIME));
        pods.pop();
        push(&history, read(2, &mut readings, input(&nodes, &pods)));
        assert!(history.view(1).is_ok());
        history.expire(Timestamp::now() + 2 * LIFETIME);
        let gone = history.view(1).err().expect("dropped").to_string();
        assert_eq!(gone, "generation 1 is not held: the oldest is 2");
        assert!(history.view(2).is_ok());
        let future = history.view(3).err().expect("not read yet").to_string();
        assert_eq!(future, "generation 3 is not held: the newest is 2");
    }

    #[test]
    fn a_full_heap_drops_readings_once_a_minute() {
        let nodes = &nodes()[..1];
        let mut readings = cluster::Readings::default();
        let mut pods = pods();
        pods.truncate(20);
        let mut history = History::new(read(1, &mut readings, input(nodes, &pods)), Some(LIFETIME));
        for generation in 2..=8 {
            pods.pop();
            let reading = read(generation, &mut readings, input(nodes, &pods));
            history.lock().push(Held::new(reading, Value::Null), None);
        }
        let now = Instant::now();
        assert!(!history.relieve(now), "the heap is small");
        history.most_bytes = i64::MIN;
        let seconds = [0, 1, 59, 60, 61, 120].map(|after| now + Duration::from_secs(after));
        let dropped = seconds.map(|at| history.relieve(at));
        assert_eq!(dropped, [true, false, false, true, false, true]);
    }

    #[test]
    fn thinning_keeps_the_newest_and_every_other_of_the_older_readings() {
        let nodes = &nodes()[..1];
        let mut readings = cluster::Readings::default();
        let mut pods = pods();
        pods.truncate(20);
        let history = History::new(read(1, &mut readings, input(nodes, &pods)), Some(LIFETIME));
        for generation in 2..=8 {
            pods.pop();
            let reading = read(generation, &mut readings, input(nodes, &pods));
            history.lock().push(Held::new(reading, Value::Null), None);
        }
        assert!(history.thin());
        let held: Vec<u64> =
            history.since(0).into_iter().map(|(generation, _)| generation).collect();
        assert_eq!(held, [1, 3, 5, 6, 7, 8]);
        let dropped = history.view(2).err().expect("dropped").to_string();
        assert!(dropped.contains("it was dropped to free memory"), "{dropped}");
        while history.thin() {}
        assert!(history.view(1).is_ok() && history.view(8).is_ok());
    }
}
