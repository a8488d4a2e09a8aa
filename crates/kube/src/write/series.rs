//! Counts events that repeat (client-go `events/event_broadcaster.go`).
//!
//! The first occurrence creates an event. The second turns the event into a series by a patch. Later ones are only
//! counted, and the count is written when the series is refreshed or ends. Occurrences are the same if their type,
//! action, reason, controller and object are equal, including the object's version. Notes are not compared.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use portolan::model::{Name, Uid};
use tokio::time::{Instant, Interval, interval_at};

use super::occurrence::{ObjectKind, Occurrence, SCHEDULED, Type};
use crate::lock::lock;

/// After this time without another occurrence, an event or series is over. Also the time between two sweeps.
const FINISH: Duration = Duration::from_secs(6 * 60);
/// The time after which the count of a series is written again, so that the API server does not expire the event.
const REFRESH: Duration = Duration::from_secs(30 * 60);

/// Identifies occurrences that are the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) kind: Type,
    pub(super) object: ObjectKind,
    pub(super) action: &'static str,
    pub(super) reason: &'static str,
    pub(super) controller: Name,
    pub(super) namespace: Name,
    pub(super) name: Name,
    pub(super) uid: Uid,
    pub(super) version: u64,
}

impl Key {
    /// Returns whether there may be another occurrence. A pod is bound once.
    fn may_repeat(&self) -> bool {
        self.reason != SCHEDULED
    }
}

/// How often an event has occurred, and when last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Series {
    pub(super) count: u32,
    pub(super) last: Timestamp,
}

/// An event to write, as a patch if it is a series.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub(super) event: Arc<Occurrence>,
    pub(super) series: Option<Series>,
}

/// The events of the last minutes, at most a given number. A further event is created, but its repetitions are separate
/// events.
pub(super) struct EventCache {
    events: Mutex<HashMap<Arc<Key>, Write>>,
    limit: usize,
}

impl EventCache {
    pub(super) fn new(limit: usize) -> EventCache {
        EventCache { events: Mutex::default(), limit }
    }

    /// Counts an occurrence, and returns the event to write, if any.
    pub(super) fn observe(&self, event: Occurrence, now: Timestamp) -> Option<Write> {
        let mut events = lock(&self.events);
        if let Some(known) = events.get_mut(&event.key) {
            if let Some(series) = &mut known.series {
                series.count = series.count.saturating_add(1);
                series.last = now;
                return None;
            }
            known.series = Some(Series { count: 2, last: now });
            return Some(known.clone());
        }
        let write = Write { event: Arc::new(event), series: None };
        if write.event.key.may_repeat() && events.len() < self.limit {
            events.insert(write.event.key.clone(), write.clone());
        }
        Some(write)
    }

    /// Forgets single events that are over, and returns the series that are.
    pub(super) fn finished(&self, now: Timestamp) -> Vec<Write> {
        let is_over = |last: Timestamp| now.duration_since(last).unsigned_abs() > FINISH;
        let mut events = lock(&self.events);
        events.retain(|_, write| write.series.is_some() || !is_over(write.event.time));
        let finished = |write: &&Write| write.series.is_some_and(|series| is_over(series.last));
        events.values().filter(finished).cloned().collect()
    }

    /// Forgets a series whose final count was written, unless it has continued meanwhile.
    pub(super) fn forget(&self, written: &Write) {
        let mut events = lock(&self.events);
        if events.get(&written.event.key).is_some_and(|known| known.series == written.series) {
            events.remove(&written.event.key);
        }
    }

    /// Returns all series.
    pub(super) fn series(&self) -> Vec<Write> {
        lock(&self.events).values().filter(|write| write.series.is_some()).cloned().collect()
    }
}

/// The action of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sweep {
    /// Ends events and series that are over.
    Finish,
    /// Writes the counts of all series.
    Refresh,
}

/// The times of sweeps.
pub(super) struct Sweeps {
    finish: Interval,
    refresh: Interval,
}

impl Sweeps {
    /// Starts now. The first sweep is after [`FINISH`].
    pub(super) fn start() -> Sweeps {
        let every = |period| interval_at(Instant::now() + period, period);
        Sweeps { finish: every(FINISH), refresh: every(REFRESH) }
    }

    /// Waits for the next sweep. Series that are over at the time of a refresh end first.
    pub(super) async fn next(&mut self) -> Sweep {
        tokio::select! {
            biased;
            _ = self.finish.tick() => Sweep::Finish,
            _ = self.refresh.tick() => Sweep::Refresh,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).expect("a time")
    }

    fn event(name: &str, version: u64, note: &str, seconds: i64) -> Occurrence {
        let key = Key {
            object: ObjectKind::Pod,
            kind: Type::Warning,
            action: "Scheduling",
            reason: "FailedScheduling",
            controller: "default-scheduler".into(),
            namespace: "default".into(),
            name: name.into(),
            uid: Uid::new(name),
            version,
        };
        Occurrence { key: Arc::new(key), note: note.into(), time: at(seconds) }
    }

    #[test]
    fn the_second_occurrence_makes_a_series_and_later_ones_are_counted_silently() {
        let cache = EventCache::new(9);
        let first = cache.observe(event("a", 1, "one", 0), at(0)).expect("created");
        assert_eq!(first.series, None);
        let second = cache.observe(event("a", 1, "two", 5), at(5)).expect("patched");
        assert_eq!(second.series, Some(Series { count: 2, last: at(5) }));
        assert_eq!(&*second.event.note, "one");
        assert!(cache.observe(event("a", 1, "three", 6), at(6)).is_none());
        assert_eq!(cache.series()[0].series, Some(Series { count: 3, last: at(6) }));
        // Another version of the pod is another event.
        assert_eq!(cache.observe(event("a", 2, "one", 7), at(7)).expect("created").series, None);
    }

    #[test]
    fn events_end_after_six_minutes_and_series_return_their_final_count() {
        let cache = EventCache::new(9);
        cache.observe(event("single", 1, "", 0), at(0));
        cache.observe(event("series", 1, "", 0), at(0));
        cache.observe(event("series", 1, "", 0), at(100));
        assert!(cache.finished(at(360)).is_empty());
        assert_eq!(lock(&cache.events).len(), 2);
        assert!(cache.finished(at(361)).is_empty());
        assert_eq!(lock(&cache.events).len(), 1);
        let over = cache.finished(at(461));
        assert_eq!(over.len(), 1);
        // The series continues while its count is written.
        cache.observe(event("series", 1, "", 0), at(462));
        cache.forget(&over[0]);
        assert_eq!(lock(&cache.events).len(), 1);
        cache.forget(&cache.finished(at(900))[0]);
        assert!(lock(&cache.events).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn series_end_every_6_minutes_and_are_refreshed_every_30() {
        let start = Instant::now();
        let mut sweeps = Sweeps::start();
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..12 {
            let sweep = sweeps.next().await;
            times[usize::from(sweep == Sweep::Refresh)].push(start.elapsed().as_secs() / 60);
        }
        assert_eq!(times, [vec![6, 12, 18, 24, 30, 36, 42, 48, 54, 60], vec![30, 60]]);
    }

    #[test]
    fn bindings_take_no_memory() {
        let cache = EventCache::new(9);
        let event = event("a", 1, "", 0);
        let key = Arc::new(Key { reason: SCHEDULED, ..Key::clone(&event.key) });
        assert!(cache.observe(Occurrence { key, ..event }, at(0)).is_some());
        assert!(lock(&cache.events).is_empty());
    }

    #[test]
    fn a_full_cache_creates_events_and_keeps_none() {
        let cache = EventCache::new(1);
        cache.observe(event("a", 1, "", 0), at(0));
        assert!(cache.observe(event("b", 1, "", 0), at(0)).is_some());
        let again = cache.observe(event("b", 1, "", 0), at(0)).expect("created again");
        assert_eq!((again.series, lock(&cache.events).len()), (None, 1));
    }
}
