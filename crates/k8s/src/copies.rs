//! Removes further copies of objects: the files of a dump contain some objects more than once, such as a pod in the list
//! of its namespace and in a file of its own.

use std::collections::HashSet;

use super::collect::Entry;
use super::read::Reader;
use portolan::model::Pod;

/// The number of objects that a [`Reader`] had read at some time.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    nodes: usize,
    pods: usize,
    controllers: usize,
}

impl Reader {
    /// Returns a mark of the objects read so far, for [`Reader::remove_copies`].
    #[must_use]
    pub fn mark(&self) -> Mark {
        let read = &self.collected;
        Mark {
            nodes: read.nodes.len(),
            pods: read.pods.len(),
            controllers: read.controllers.len(),
        }
    }

    /// Removes the objects read since the mark that were read before since the mark, and returns their number. Two pods
    /// or controllers are the same object if they have the same uid, namespace and name; two nodes, which are known by
    /// name, if they are equal.
    ///
    /// Objects without a uid are kept, because two of them are a mistake in the input. Objects of the other kinds need
    /// not be removed: an engine replaces an object by a later one of its name. O(objects since the mark).
    pub fn remove_copies(&mut self, since: &Mark) -> usize {
        let read = &mut self.collected;
        let before = read.nodes.len() + read.pods.len() + read.controllers.len();
        let mut seen = HashSet::new();
        retain_since(&mut read.pods, since.pods, |entry| {
            let (uid, namespace, name) = match entry {
                Entry::Done(Pod { uid, name, template, .. }) => {
                    (uid.to_string(), &template.namespace, name)
                }
                Entry::Open(draft) => (draft.uid.clone(), &draft.spec.namespace, &draft.name),
            };
            // A pod without a uid gets its namespace and name as uid.
            uid == format!("{namespace}/{name}")
                || seen.insert((uid, namespace.clone(), name.clone()))
        });
        let mut seen = HashSet::new();
        retain_since(&mut read.controllers, since.controllers, |it| {
            it.uid.is_empty()
                || seen.insert((it.uid.to_string(), it.namespace.clone(), it.name.clone()))
        });
        let mut kept: Vec<portolan::model::Node> = Vec::new();
        let mut names = std::collections::HashMap::new();
        let later = read.nodes.split_off(since.nodes.min(read.nodes.len()));
        for node in later {
            match names.get(&node.name) {
                Some(&at) if kept[at] == node => {}
                _ => {
                    names.insert(node.name.clone(), kept.len());
                    kept.push(node);
                }
            }
        }
        read.nodes.extend(kept);
        before - (read.nodes.len() + read.pods.len() + read.controllers.len())
    }
}

/// Keeps the elements before an index, and those behind it for which `keep` returns true.
fn retain_since<T>(list: &mut Vec<T>, since: usize, mut keep: impl FnMut(&T) -> bool) {
    let mut index = 0;
    list.retain(|element| {
        index += 1;
        index <= since || keep(element)
    });
}
