//! Change notification for controllers and kubelets: a follower returns the keys of the objects that have changed since
//! its last call. Its user then reads the latest state of these objects.

use std::collections::BTreeSet;

use tokio::sync::watch;

use crate::resources::Resource;
use crate::store::{Key, Store};

#[derive(Debug)]
pub(crate) struct Follower {
    resource: &'static Resource,
    position: u64,
    known: BTreeSet<Key>,
    news: watch::Receiver<u64>,
}

impl Follower {
    /// The first call of `changed` returns all present objects.
    pub(crate) fn new(store: &Store, resource: &'static Resource) -> Self {
        let mut news = store.of(resource).subscribe();
        news.mark_changed();
        Follower { resource, position: 0, known: BTreeSet::new(), news }
    }

    /// The keys of created, updated and deleted objects since the last call.
    pub(crate) fn changed(&mut self, store: &Store) -> BTreeSet<Key> {
        self.news.borrow_and_update();
        let collection = store.of(self.resource);
        let since = if self.position == 0 {
            None
        } else {
            collection.since(self.position, usize::MAX).ok()
        };
        match since {
            Some((events, seen)) => {
                self.position = seen;
                let changed: BTreeSet<Key> =
                    events.iter().map(|event| event.object.key.clone()).collect();
                for key in &changed {
                    if collection.get(key).is_some() {
                        self.known.insert(key.clone());
                    } else {
                        self.known.remove(key);
                    }
                }
                changed
            }
            // At the start, or after events were dropped: every present object may have changed, and all other known
            // objects were deleted.
            None => {
                let (seen, objects) = collection.objects();
                self.position = seen;
                let present: BTreeSet<Key> =
                    objects.iter().map(|object| object.version.key.clone()).collect();
                let before = std::mem::replace(&mut self.known, present.clone());
                before.union(&present).cloned().collect()
            }
        }
    }

    /// The keys of all objects at the last call of `changed`.
    pub(crate) fn known(&self) -> &BTreeSet<Key> {
        &self.known
    }

    /// Waits for changes.
    pub(crate) async fn wait(&mut self) {
        // An error occurs only when the store is dropped.
        if self.news.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delete;
    use crate::resources;
    use crate::verbs;
    use serde_json::{Value, json};

    #[test]
    fn created_and_deleted_objects_are_reported_even_if_events_were_dropped() {
        let store = Store::new(10, true);
        let nodes = resources::nodes();
        let names = |keys: BTreeSet<Key>| keys.into_iter().map(|key| key.name).collect::<Vec<_>>();
        let create = |name: &str| {
            verbs::create(&store, nodes, "", json!({"metadata": {"name": name}})).unwrap()
        };
        create("a");
        let mut follower = Follower::new(&store, nodes);
        assert_eq!(names(follower.changed(&store)), ["a"]);
        create("b");
        assert_eq!(names(follower.changed(&store)), ["b"]);
        assert!(follower.changed(&store).is_empty());
        delete::delete(&store, nodes, &Key::new("", "a"), &Value::Null).unwrap();
        create("c");
        store.forget(store.clock.version());
        assert_eq!(names(follower.changed(&store)), ["a", "b", "c"]);
        assert_eq!(names(follower.known().clone()), ["b", "c"]);
    }
}
