//! The watch cache of one collection: a bounded number of its latest events, in order.
//!
//! An event keeps the version before it, so that a watch with a selector can tell whether an object enters or leaves
//! the selection, and so that a list can be continued at the version of its first page.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::Value;

use crate::store::{Key, Version};

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happening {
    Added,
    Modified,
    Deleted,
}

/// One change of one object.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) happening: Happening,
    /// The object after the change. A deleted object has the version of the deletion.
    pub(crate) object: Arc<Version>,
    pub(crate) previous: Option<Arc<Version>>,
    left: OnceLock<Bytes>,
}

impl Event {
    pub(crate) fn new(
        happening: Happening,
        object: Arc<Version>,
        previous: Option<Arc<Version>>,
    ) -> Self {
        Event { happening, object, previous, left: OnceLock::new() }
    }

    pub(crate) fn version(&self) -> u64 {
        self.object.version
    }

    /// The body of the object before the change, with the resourceVersion of the change. A watch sends it with DELETED
    /// when the object leaves its selection.
    pub(crate) fn left(&self) -> Bytes {
        let Some(previous) = &self.previous else { return self.object.body.clone() };
        let body = self.left.get_or_init(|| {
            let Ok(mut object) = serde_json::from_slice::<Value>(&previous.body) else {
                return previous.body.clone();
            };
            object["metadata"]["resourceVersion"] = self.version().to_string().into();
            object.to_string().into()
        });
        body.clone()
    }
}

/// The requested version is older than the watch cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooOld {
    /// The oldest version from which a watch can resume.
    pub(crate) floor: u64,
}

#[derive(Debug)]
pub(crate) struct History {
    events: VecDeque<Arc<Event>>,
    capacity: usize,
    floor: u64,
}

impl History {
    pub(crate) fn new(capacity: usize) -> Self {
        History { events: VecDeque::new(), capacity, floor: 0 }
    }

    pub(crate) fn push(&mut self, event: Arc<Event>) {
        self.events.push_back(event);
        while self.events.len() > self.capacity {
            if let Some(gone) = self.events.pop_front() {
                self.floor = gone.version();
            }
        }
    }

    /// Drops all events up to `version`.
    pub(crate) fn forget(&mut self, version: u64) {
        while self.events.front().is_some_and(|event| event.version() <= version) {
            self.events.pop_front();
        }
        self.floor = self.floor.max(version);
    }

    /// At most `limit` events after `version`, in order. O(log n + limit).
    pub(crate) fn since(&self, version: u64, limit: usize) -> Result<Vec<Arc<Event>>, TooOld> {
        if version < self.floor {
            return Err(TooOld { floor: self.floor });
        }
        let first = self.events.partition_point(|event| event.version() <= version);
        Ok(self.events.range(first..).take(limit).cloned().collect())
    }

    /// The objects that have changed since `version`, in their state at that version. The value is `None` if the object
    /// did not exist. O(events since).
    pub(crate) fn undo(&self, version: u64) -> Result<BTreeMap<Key, Option<Arc<Version>>>, TooOld> {
        if version < self.floor {
            return Err(TooOld { floor: self.floor });
        }
        let newer = self.events.iter().rev().take_while(|event| event.version() > version);
        Ok(newer.map(|event| (event.object.key.clone(), event.previous.clone())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(version: u64, name: &str) -> Arc<Version> {
        Arc::new(Version::sample(version, name))
    }

    fn history(capacity: usize, versions: std::ops::Range<u64>) -> History {
        let mut history = History::new(capacity);
        for at in versions {
            history.push(Arc::new(Event::new(
                Happening::Added,
                version(at, &format!("o{at}")),
                None,
            )));
        }
        history
    }

    #[test]
    fn events_after_a_version_come_in_order_and_end_at_the_limit() {
        let history = history(10, 2..8);
        let versions = |from, limit| {
            history
                .since(from, limit)
                .unwrap()
                .iter()
                .map(|event| event.version())
                .collect::<Vec<_>>()
        };
        assert_eq!(versions(4, 10), [5, 6, 7]);
        assert_eq!(versions(0, 2), [2, 3]);
        assert_eq!(versions(9, 2), [0; 0]);
    }

    #[test]
    fn versions_older_than_the_cache_are_refused() {
        let mut history = history(3, 2..8);
        assert_eq!(history.since(3, 10).unwrap_err(), TooOld { floor: 4 });
        assert_eq!(history.since(4, 10).unwrap().len(), 3);
        history.forget(6);
        assert_eq!(history.since(5, 10).unwrap_err(), TooOld { floor: 6 });
        assert_eq!(history.since(6, 10).unwrap().len(), 1);
    }

    #[test]
    fn undo_restores_the_first_state_of_each_object() {
        let (a, b, c) = (version(2, "a"), version(3, "a"), version(4, "a"));
        let mut history = History::new(10);
        history.push(Arc::new(Event::new(Happening::Added, a.clone(), None)));
        history.push(Arc::new(Event::new(Happening::Modified, b.clone(), Some(a.clone()))));
        history.push(Arc::new(Event::new(Happening::Deleted, c, Some(b))));
        let at = |version| {
            history
                .undo(version)
                .unwrap()
                .into_values()
                .map(|o| o.map(|o| o.version))
                .collect::<Vec<_>>()
        };
        assert_eq!(at(1), [None]);
        assert_eq!(at(2), [Some(2)]);
        assert_eq!(at(3), [Some(3)]);
        assert!(at(4).is_empty());
    }
}
