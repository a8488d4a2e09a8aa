//! Removes further copies of objects: the files of a dump contain some objects more than once, such as a pod in the
//! list of its namespace and in a file of its own.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::collect::Entry;
use super::read::Reader;
use portolan::model::{Node, Pod};

/// The number of objects that a [`Reader`] had read at some time.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    nodes: usize,
    pods: usize,
    finished: usize,
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
            finished: read.finished_uids.len(),
            controllers: read.controllers.len(),
        }
    }

    /// Removes each object that was read since the mark and of which another copy was read since the mark, and returns
    /// the number of removed objects. Two pods or controllers are copies if they have the same uid, namespace and name.
    /// Two nodes, which are identified by their names, are copies if they are equal.
    ///
    /// Objects without a uid are kept, because two of them are a mistake in the input. Objects of the other kinds need
    /// not be removed: an engine replaces an object by a later one of its name. O(objects since the mark).
    pub fn remove_copies(&mut self, since: &Mark) -> usize {
        let read = &mut self.collected;
        let mut removed: BTreeMap<&'static str, usize> = BTreeMap::new();
        let mut seen = HashSet::new();
        retain_since(&mut read.pods, since.pods, |entry| {
            let (uid, namespace, name) = match entry {
                Entry::Done(Pod { uid, name, template, .. }) => {
                    (uid.to_string(), &template.namespace, name)
                }
                Entry::Open(draft) => (draft.uid.clone(), &draft.spec.namespace, &draft.name),
            };
            // A pod without a uid gets its namespace and name as uid.
            let is_kept = uid == format!("{namespace}/{name}")
                || seen.insert((uid, namespace.clone(), name.clone()));
            *removed.entry("Pod").or_default() += usize::from(!is_kept);
            is_kept
        });
        let mut seen = HashSet::new();
        let mut finished = 0;
        retain_since(&mut read.finished_uids, since.finished, |uid| {
            let is_kept = uid.is_empty() || seen.insert(uid.clone());
            finished += usize::from(!is_kept);
            is_kept
        });
        read.finished_pods -= finished;
        *removed.entry("Pod").or_default() += finished;
        let mut seen = HashSet::new();
        retain_since(&mut read.controllers, since.controllers, |it| {
            let is_kept = it.uid.is_empty()
                || seen.insert((it.uid.clone(), it.namespace.clone(), it.name.clone()));
            *removed.entry(it.kind.as_str()).or_default() += usize::from(!is_kept);
            is_kept
        });
        let mut seen: HashMap<_, Node> = HashMap::new();
        retain_since(&mut read.nodes, since.nodes, |node| {
            let is_kept = seen.get(&node.name) != Some(node);
            if is_kept {
                seen.insert(node.name.clone(), node.clone());
            }
            *removed.entry("Node").or_default() += usize::from(!is_kept);
            is_kept
        });
        for (kind, number) in &removed {
            if let Some(read) = read.read.get_mut(kind) {
                *read = read.saturating_sub(*number);
            }
        }
        removed.values().sum()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, uid: &str, phase: &str) -> String {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, uid: '{uid}'}}\nstatus: {{phase: {phase}}}\n"
        )
    }

    #[test]
    fn only_copies_since_the_mark_are_removed() {
        let mut reader = Reader::new();
        let mut read = |text: &str| reader.read(text.as_bytes()).expect("a valid input");
        read(&pod("a", "u1", "Running"));
        let since = reader.mark();
        let mut read = |text: &str| reader.read(text.as_bytes()).expect("a valid input");
        for _ in 0..2 {
            read(&pod("a", "u1", "Running"));
            read(&pod("b", "u2", "Running"));
            read(&pod("b", "u3", "Running"));
            read(&pod("c", "", "Running"));
            read(&pod("d", "u4", "Succeeded"));
            read("apiVersion: v1\nkind: Node\nmetadata: {name: n}\n");
        }
        read("apiVersion: v1\nkind: Node\nmetadata: {name: n, labels: {a: b}}\n");
        assert_eq!(reader.remove_copies(&since), 5);
        let objects = reader.finish();
        // The pod without a uid stays twice, as does the one before the mark.
        let names: Vec<&str> = objects.pods.iter().map(|pod| &*pod.name).collect();
        assert_eq!(names, ["a", "a", "b", "b", "c", "c"]);
        assert_eq!((objects.nodes.len(), objects.finished_pods), (2, 1));
        assert_eq!(objects.read.get("Pod"), Some(&7));
    }
}
