//! The objects: one collection per kind, each with a watch cache, and one clock for all collections.
//!
//! A version of an object is serialized once, when it is written. Lists and watches copy these bytes. The latest
//! version is also kept in parsed form for updates. Bodies are stored without `kind` and `apiVersion`, because items of
//! lists have neither.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::watch;

use crate::clock::Clock;
use crate::error::ApiError;
use crate::history::{Event, Happening, History, TooOld};
use crate::resources::{Resource, TABLE};
use crate::selectors::field;

/// The namespace and name of an object. The namespace of a cluster-scoped object is empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Key { namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

/// One version of one object, in serialized form.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) version: u64,
    pub(crate) key: Key,
    /// JSON without `kind` and `apiVersion`.
    pub(crate) body: Bytes,
    /// The values of the fields that a selector may name, in the order of `Resource::fields`.
    pub(crate) fields: Vec<String>,
}

impl Version {
    fn new(resource: &Resource, version: u64, key: Key, object: &Value) -> Self {
        Version {
            version,
            key,
            body: object.to_string().into(),
            fields: resource.fields.iter().map(|path| field(object, path)).collect(),
        }
    }

    #[cfg(test)]
    pub(crate) fn sample(version: u64, name: &str) -> Self {
        let object =
            serde_json::json!({"metadata": {"name": name, "resourceVersion": version.to_string()}});
        Version::new(crate::resources::nodes(), version, Key::new("", name), &object)
    }
}

/// The latest version of an object, parsed and as bytes.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    /// Without `kind` and `apiVersion`.
    pub(crate) value: Arc<Value>,
    pub(crate) version: Arc<Version>,
}

/// The decision of a write.
#[derive(Debug)]
pub(crate) enum Change {
    /// Store the value with a new version, unless it equals the present value.
    Put(Value),
    /// Remove the object. The value is its last state.
    Remove(Value),
    /// Write nothing.
    Keep,
}

#[derive(Debug)]
struct State {
    objects: BTreeMap<Key, Object>,
    history: History,
    /// The version at which the watch cache is stalled.
    stalled: Option<u64>,
}

/// The objects of one kind.
#[derive(Debug)]
pub(crate) struct Collection {
    pub(crate) resource: &'static Resource,
    state: RwLock<State>,
    news: watch::Sender<u64>,
    /// The clock of all collections.
    clock: Arc<Clock>,
}

/// Versions of objects, and the version of the store at which they were read.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) version: u64,
    pub(crate) items: Vec<Arc<Version>>,
}

impl Collection {
    fn new(resource: &'static Resource, watch_cache: usize, clock: Arc<Clock>) -> Self {
        let state =
            State { objects: BTreeMap::new(), history: History::new(watch_cache), stalled: None };
        Collection { resource, state: RwLock::new(state), news: watch::Sender::new(0), clock }
    }

    // A panic while the lock is held leaves the maps consistent.
    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Object> {
        self.read().objects.get(key).cloned()
    }

    /// Calls `decide` with the present object and performs the returned change atomically. Returns the object
    /// afterwards, or the removed object. `decide` must not use this collection.
    pub(crate) fn change(
        &self,
        key: &Key,
        decide: impl FnOnce(Option<&Value>) -> Result<Change, ApiError>,
    ) -> Result<Option<Object>, ApiError> {
        let mut state = self.write();
        let present = state.objects.get(key).cloned();
        let (happening, mut value) = match decide(present.as_ref().map(|object| &*object.value))? {
            Change::Keep => return Ok(present),
            Change::Put(value) if present.as_ref().is_some_and(|object| *object.value == value) => {
                return Ok(present);
            }
            Change::Put(value) if present.is_some() => (Happening::Modified, value),
            Change::Put(value) => (Happening::Added, value),
            Change::Remove(value) => (Happening::Deleted, value),
        };
        let number = self.clock.next_version();
        value["metadata"]["resourceVersion"] = number.to_string().into();
        let version = Arc::new(Version::new(self.resource, number, key.clone(), &value));
        let object = Object { value: Arc::new(value), version: version.clone() };
        match happening {
            Happening::Deleted => drop(state.objects.remove(key)),
            _ => drop(state.objects.insert(key.clone(), object.clone())),
        }
        state.history.push(Arc::new(Event::new(
            happening,
            version,
            present.map(|object| object.version),
        )));
        drop(state);
        self.news.send_replace(number);
        Ok(Some(object))
    }

    /// Up to `limit` selected objects after `start`, and whether more follow. With `at`, the objects are those at that
    /// version. O(objects of the namespace).
    pub(crate) fn list(
        &self,
        namespace: &str,
        start: Option<&Key>,
        limit: usize,
        at: Option<u64>,
        select: impl Fn(&Version) -> bool,
    ) -> Result<(Read, bool), TooOld> {
        let state = self.read();
        // Versions are assigned under the lock, so the map contains all versions of this collection up to this one.
        let version = at.unwrap_or_else(|| self.clock.version());
        let first = match start {
            Some(key) => Bound::Excluded(key.clone()),
            None => Bound::Included(Key::new(namespace, "")),
        };
        let inside = |key: &Key| namespace.is_empty() || key.namespace == namespace;
        let mut items = Vec::new();
        let past = match at {
            Some(at) => state.history.undo(at)?,
            None => BTreeMap::new(),
        };
        let range = (first.clone(), Bound::Unbounded);
        let now = state.objects.range(range.clone()).take_while(|(key, _)| inside(key));
        if past.is_empty() {
            for (_, object) in now {
                if select(&object.version) {
                    if items.len() == limit {
                        return Ok((Read { version, items }, true));
                    }
                    items.push(object.version.clone());
                }
            }
            return Ok((Read { version, items }, false));
        }
        let mut then: BTreeMap<&Key, &Arc<Version>> =
            now.map(|(key, object)| (key, &object.version)).collect();
        for (key, object) in past.range(range).take_while(|(key, _)| inside(key)) {
            match object {
                Some(object) => drop(then.insert(key, object)),
                None => drop(then.remove(key)),
            }
        }
        let mut selected = then.into_values().filter(|object| select(object));
        items.extend(selected.by_ref().take(limit).cloned());
        let more = selected.next().is_some();
        Ok((Read { version, items }, more))
    }

    /// All objects, parsed, and the version of the store.
    pub(crate) fn objects(&self) -> (u64, Vec<Object>) {
        let state = self.read();
        (self.clock.version(), state.objects.values().cloned().collect())
    }

    /// Up to `limit` events after `version`, and the version up to which these are all events.
    pub(crate) fn since(
        &self,
        version: u64,
        limit: usize,
    ) -> Result<(Vec<Arc<Event>>, u64), TooOld> {
        let state = self.read();
        let events = state.history.since(version, limit)?;
        let seen = events.last().map_or_else(|| self.clock.version(), |event| event.version());
        Ok((events, seen))
    }

    /// The same from the watch cache, which may be stalled.
    pub(crate) fn cached_since(
        &self,
        version: u64,
        limit: usize,
    ) -> Result<(Vec<Arc<Event>>, u64), TooOld> {
        let (mut events, seen) = self.since(version, limit)?;
        let Some(stalled) = self.stalled() else { return Ok((events, seen)) };
        events.retain(|event| event.version() <= stalled);
        Ok((events, seen.min(stalled)))
    }

    /// Stops the watch cache at the present version, or lets it catch up.
    pub(crate) fn set_stalled(&self, stalled: bool) {
        let mut state = self.write();
        state.stalled = stalled.then(|| self.clock.version());
        drop(state);
        // Watches continue.
        self.news.send_replace(self.clock.version());
    }

    /// The version at which the watch cache is stalled.
    pub(crate) fn stalled(&self) -> Option<u64> {
        self.read().stalled
    }

    /// The version that the watch cache has reached.
    pub(crate) fn reached(&self) -> u64 {
        self.stalled().unwrap_or_else(|| self.clock.version())
    }

    fn forget(&self, version: u64) {
        self.write().history.forget(version);
    }

    /// Returns a receiver that is notified of each change.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }
}

/// All collections.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) clock: Arc<Clock>,
    /// Whether the admission plugin Priority runs.
    pub(crate) admits_priorities: bool,
    collections: Vec<Collection>,
}

impl Store {
    pub(crate) fn new(watch_cache: usize, admits_priorities: bool) -> Self {
        let clock = Arc::new(Clock::new());
        let collection = |resource| Collection::new(resource, watch_cache, clock.clone());
        let collections = TABLE.iter().map(collection).collect();
        Store { clock, admits_priorities, collections }
    }

    pub(crate) fn of(&self, resource: &Resource) -> &Collection {
        let of = |collection: &&Collection| std::ptr::eq(collection.resource, resource);
        self.collections.iter().find(of).expect("each resource of the table has a collection")
    }

    /// Forgets the events up to a version that the clock has reached, in all collections.
    pub(crate) fn forget(&self, version: u64) {
        let version = version.min(self.clock.version());
        self.collections.iter().for_each(|collection| collection.forget(version));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources;
    use serde_json::json;

    fn put(store: &Store, name: &str, labels: Value) {
        let nodes = store.of(resources::nodes());
        let object = json!({"metadata": {"name": name, "labels": labels}});
        nodes.change(&Key::new("", name), |_| Ok(Change::Put(object))).unwrap();
    }

    fn names(read: &Read) -> Vec<&str> {
        read.items.iter().map(|item| item.key.name.as_str()).collect()
    }

    #[test]
    fn a_write_without_a_change_gets_no_version() {
        let store = Store::new(10, true);
        put(&store, "a", json!({}));
        let nodes = store.of(resources::nodes());
        let before = nodes.get(&Key::new("", "a")).unwrap();
        nodes.change(&Key::new("", "a"), |now| Ok(Change::Put(now.unwrap().clone()))).unwrap();
        assert_eq!(nodes.get(&Key::new("", "a")).unwrap().version.version, before.version.version);
        assert_eq!(store.clock.version(), before.version.version);
    }

    #[test]
    fn the_versions_of_two_kinds_are_one_sequence() {
        let store = Store::new(10, true);
        put(&store, "a", json!({}));
        let pods = store.of(resources::pods());
        let object = json!({"metadata": {"name": "p"}});
        let pod = pods.change(&Key::new("x", "p"), |_| Ok(Change::Put(object))).unwrap().unwrap();
        put(&store, "b", json!({}));
        let node = store.of(resources::nodes()).get(&Key::new("", "b")).unwrap();
        assert_eq!(node.version.version, pod.version.version + 1);
    }

    #[test]
    fn a_list_can_be_read_as_of_an_earlier_version() {
        let store = Store::new(10, true);
        put(&store, "a", json!({"v": "1"}));
        put(&store, "b", json!({}));
        let then = store.clock.version();
        put(&store, "c", json!({}));
        put(&store, "a", json!({"v": "2"}));
        let nodes = store.of(resources::nodes());
        nodes.change(&Key::new("", "b"), |b| Ok(Change::Remove(b.unwrap().clone()))).unwrap();
        let (now, _) = nodes.list("", None, 10, None, |_| true).unwrap();
        assert_eq!(names(&now), ["a", "c"]);
        let (past, more) = nodes.list("", None, 10, Some(then), |_| true).unwrap();
        assert_eq!((names(&past), more), (vec!["a", "b"], false));
        let first: Value = serde_json::from_slice(&past.items[0].body).unwrap();
        assert_eq!(first["metadata"]["labels"]["v"], "1");
        let (page, more) = nodes.list("", None, 1, Some(then), |_| true).unwrap();
        assert_eq!((names(&page), more), (vec!["a"], true));
        let start = Key::new("", "a");
        let (page, more) = nodes.list("", Some(&start), 1, Some(then), |_| true).unwrap();
        assert_eq!((names(&page), more), (vec!["b"], false));
    }

    #[test]
    fn a_removed_object_ends_with_an_event_of_its_own_version() {
        let store = Store::new(10, true);
        put(&store, "a", json!({}));
        let nodes = store.of(resources::nodes());
        let from = store.clock.version();
        nodes.change(&Key::new("", "a"), |a| Ok(Change::Remove(a.unwrap().clone()))).unwrap();
        let (events, seen) = nodes.since(from, 10).unwrap();
        assert_eq!(
            (events[0].happening, events[0].version(), seen),
            (Happening::Deleted, from + 1, from + 1)
        );
        let body: Value = serde_json::from_slice(&events[0].object.body).unwrap();
        assert_eq!(body["metadata"]["resourceVersion"], (from + 1).to_string());
    }
}
