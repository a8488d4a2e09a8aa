//! Empties namespaces that are being deleted, and then removes them.

use super::{delete, is_deleted};
use crate::delete::finalize_namespace;
use crate::resources::{self, TABLE};
use crate::store::{Key, Store};

fn terminating(store: &Store) -> Vec<String> {
    let (_, namespaces) = store.of(resources::namespaces()).objects();
    let deleted = namespaces.into_iter().filter(|namespace| is_deleted(&namespace.value));
    deleted.map(|namespace| namespace.version.key.name.clone()).collect()
}

pub(super) fn any_terminating(store: &Store) -> bool {
    !terminating(store).is_empty()
}

pub(super) fn reconcile(store: &Store) {
    for namespace in terminating(store) {
        let mut empty = true;
        for resource in TABLE.iter().filter(|resource| resource.namespaced) {
            for key in content(store, resource, &namespace) {
                delete(store, resource, &key);
            }
            empty &= content(store, resource, &namespace).is_empty();
        }
        if empty {
            // The namespace may have been removed already.
            let _ = finalize_namespace(store, &namespace);
        }
    }
}

fn content(store: &Store, resource: &resources::Resource, namespace: &str) -> Vec<Key> {
    match store.of(resource).list(namespace, None, usize::MAX, None, |_| true) {
        Ok((read, _)) => read.items.iter().map(|item| item.key.clone()).collect(),
        // Only lists of an earlier version can fail.
        Err(_) => Vec::new(),
    }
}
