//! The readings of the last hour. Each shares all unchanged data with the one before it, and takes memory only for the
//! changes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::difference::Difference;
use super::view::{Reading, View};
use crate::alloc::live_bytes;

/// The time that a reading of a cluster is held.
pub(super) const LIFETIME: Duration = Duration::from_secs(60 * 60);

/// The most readings: one a second.
const MOST: usize = 3_600;

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
    /// Never empty.
    held: VecDeque<Held>,
    /// The readings that were asked for last.
    opened: VecDeque<Arc<View>>,
    /// When readings were dropped because of the heap.
    thinned: Option<Instant>,
}

struct Held {
    reading: Reading,
    /// The numbers of nodes and pods that differ from the reading before it, which may no longer be held.
    changed: Value,
}

/// Why a reading is not held: its generation, and those of the oldest and newest reading.
pub(super) struct NotHeld {
    generation: u64,
    oldest: u64,
    newest: u64,
}

impl std::fmt::Display for NotHeld {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let NotHeld { generation, oldest, newest } = self;
        write!(f, "generation {generation} is not held: ")?;
        if generation > newest {
            write!(f, "the newest is {newest}")
        } else if generation < oldest {
            write!(f, "the oldest is {oldest}")
        } else {
            f.write_str("it was dropped to free memory: see /api/v1/generations")
        }
    }
}

impl History {
    pub(super) fn new(first: Reading, lifetime: Option<Duration>) -> History {
        let changed = Value::Null;
        let held = VecDeque::from([Held { reading: first, changed }]);
        let readings = Mutex::new(Readings { held, opened: VecDeque::new(), thinned: None });
        History { readings, lifetime, most_bytes: live_bytes().saturating_add(MOST_BYTES) }
    }

    fn lock(&self) -> MutexGuard<'_, Readings> {
        self.readings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a newer reading. The cost is that of its difference to the last one.
    pub(super) fn push(&self, reading: Reading) {
        let last = self.lock().held.back().map(|held| held.reading.clone());
        let changed = last.map(|last| Difference::between(&last, &reading).summary());
        let changed = changed.unwrap_or_default();
        let mut readings = self.lock();
        readings.held.push_back(Held { reading, changed });
        let excess = readings.held.len().saturating_sub(MOST);
        let excess: Vec<Held> = readings.held.drain(..excess).collect();
        drop(readings);
        drop(excess);
        self.expire(Timestamp::now());
    }

    /// Drops the readings that are too old, except the newest one.
    pub(super) fn expire(&self, now: Timestamp) {
        let Some(Ok(first)) = self.lifetime.map(|lifetime| now.checked_sub(lifetime)) else {
            return;
        };
        let mut readings = self.lock();
        // A reading is the newest one until the next is taken.
        let old =
            readings.held.iter().skip(1).take_while(|next| next.reading.taken < first).count();
        let old: Vec<Held> = readings.held.drain(..old).collect();
        readings.opened.retain(|view| view.reading.taken >= first);
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

    /// Drops every other reading of the older half, so that fewer cover the same time. Returns whether any was dropped.
    /// The oldest reading stays.
    fn thin(&self) -> bool {
        let mut readings = self.lock();
        let older = readings.held.len() / 2;
        let mut at = 0;
        let mut dropped = Vec::new();
        readings.held.retain_mut(|held| {
            at += 1;
            let stays = at > older || at % 2 == 1;
            if !stays {
                dropped.push(held.reading.clone());
            }
            stays
        });
        readings.opened.clear();
        drop(readings);
        !dropped.is_empty()
    }

    /// The reading of a generation.
    pub(super) fn view(&self, generation: u64) -> Result<Arc<View>, NotHeld> {
        let mut readings = self.lock();
        let Readings { held, opened, .. } = &mut *readings;
        if let Some(view) = opened.iter().find(|view| view.reading.generation == generation) {
            return Ok(view.clone());
        }
        let found = held.binary_search_by_key(&generation, |held| held.reading.generation);
        let Some(found) = found.ok().and_then(|at| held.get(at)) else {
            let of = |held: Option<&Held>| held.map_or(0, |held| held.reading.generation);
            return Err(NotHeld { generation, oldest: of(held.front()), newest: of(held.back()) });
        };
        let view = Arc::new(View::of(found.reading.clone()));
        opened.push_back(view.clone());
        let closed = if opened.len() > MOST_OPENED { opened.pop_front() } else { None };
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
    use portolan::model::{Node, Pod, node, pod};

    use super::*;
    use crate::alloc::bytes_of_thread;
    use crate::cluster::{self, Godel, Input};

    const NODES: usize = 500;
    const PODS: usize = 2_500;

    fn nodes() -> Vec<Node> {
        (0..NODES).map(|n| node(format!("n{n}")).cpu(64_000).build()).collect()
    }

    fn pods() -> Vec<Pod> {
        let on = |p: usize| pod(format!("p{p}")).cpu(100).on(format!("n{}", p % NODES)).build();
        (0..PODS).map(on).collect()
    }

    fn input(nodes: &[Node], pods: &[Pod]) -> Input {
        let mut objects = portolan_k8s::Objects::default();
        (objects.nodes, objects.pods) = (nodes.to_vec(), pods.to_vec());
        Input::of(objects)
    }

    fn read(generation: u64, readings: &mut cluster::Readings, input: Input) -> Reading {
        let loaded = readings.load(input, &Godel::default()).expect("a valid cluster");
        Reading::of(generation, loaded.expect("a change")).expect("no claims")
    }

    #[test]
    fn a_held_reading_takes_the_memory_of_what_changed() {
        let (nodes, mut pods) = (nodes(), pods());
        let mut readings = cluster::Readings::default();
        let history = History::new(read(1, &mut readings, input(&nodes, &pods)), Some(LIFETIME));
        let mut generation = 1;
        for (number, changed, most) in [(200, 500, 2 << 20), (20, 5, 50 << 10)] {
            let before = bytes_of_thread();
            for _ in 0..number {
                generation += 1;
                for n in 0..changed {
                    // Pods that are next to each other in the list, each on another node.
                    let at = (generation * changed + n) % PODS;
                    pods[at].node_name = Some(format!("n{}", (at + generation) % NODES).into());
                    pods[at].resource_version += 1;
                }
                let reading = read(generation as u64, &mut readings, input(&nodes, &pods));
                history.push(reading);
                readings.reclaim();
            }
            let held = (bytes_of_thread() - before) / number;
            assert!(held < most, "{changed} pods change: {held} bytes");
        }
    }

    #[test]
    fn readings_of_more_than_an_hour_ago_are_dropped_except_the_newest() {
        let (nodes, mut pods) = (nodes(), pods());
        let mut readings = cluster::Readings::default();
        let history = History::new(read(1, &mut readings, input(&nodes, &pods)), Some(LIFETIME));
        pods.pop();
        history.push(read(2, &mut readings, input(&nodes, &pods)));
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
            history.push(read(generation, &mut readings, input(nodes, &pods)));
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
            history.push(read(generation, &mut readings, input(nodes, &pods)));
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
