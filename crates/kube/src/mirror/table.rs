//! Stores the data of each pod in about 120 bytes plus its name.
//!
//! Entries are in blocks that are never moved, because a vector that doubles would waste up to half of its memory.
//! Namespaces and nodes are numbers of interned names. The two hash tables, by uid and by name, contain numbers of
//! entries.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;
use portolan::model::{Name, Uid};
use portolan_k8s::Digest;

use super::pods::{KnownPod, PendingStatus};

const BLOCK: usize = 1024;
const NO_NODE: u32 = u32::MAX;

/// The number of an entry.
pub(super) type Number = u32;

/// The data of a pod.
pub(super) struct Entry {
    uid: Uid,
    name: Box<str>,
    pub(super) resource_version: u64,
    /// The version of the last object that was passed on. Later versions had the same digest.
    pub(super) passed_on: u64,
    /// The digest of that object, if a later one with the same digest need not be passed on.
    pub(super) digest: Option<Digest>,
    pub(super) generation: i64,
    pending: Option<Box<PendingStatus>>,
    namespace: u32,
    node: u32,
    /// The list in which the pod was last seen.
    pub(super) seen: u32,
    is_terminating: bool,
    /// Whether the pod names one of our schedulers.
    is_ours: bool,
}

const _: () = assert!(size_of::<Option<Entry>>() <= 96);

/// The relation of a pod to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// The pod is on a node.
    Placed,
    /// The pod waits for one of our schedulers.
    Pending,
    /// The pod waited for one of our schedulers when it was deleted, and has not ended.
    Ending,
    /// The pod waits for another scheduler.
    Foreign,
}

/// The pods, by number, uid, and namespace and name.
#[derive(Default)]
pub(super) struct Table {
    blocks: Vec<Vec<Option<Entry>>>,
    free: Vec<Number>,
    by_uid: HashTable<Number>,
    by_name: HashTable<Number>,
    names: Names,
    hasher: RandomState,
    /// The number of the current list.
    list: u32,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.by_uid.len()
    }

    pub(super) fn get(&self, number: Number) -> Option<&Entry> {
        self.blocks.get(number as usize / BLOCK)?.get(number as usize % BLOCK)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, number: Number) -> Option<&mut Entry> {
        self.blocks.get_mut(number as usize / BLOCK)?.get_mut(number as usize % BLOCK)?.as_mut()
    }

    pub(super) fn find(&self, uid: &Uid) -> Option<Number> {
        let is_it = |number: &Number| self.get(*number).is_some_and(|entry| entry.uid == *uid);
        self.by_uid.find(self.hasher.hash_one(uid), is_it).copied()
    }

    pub(super) fn find_name(&self, namespace: &str, name: &str) -> Option<Number> {
        let namespace = self.names.number(namespace)?;
        let is_it = |number: &Number| {
            let entry = self.get(*number);
            entry.is_some_and(|entry| entry.namespace == namespace && *entry.name == *name)
        };
        self.by_name.find(self.hasher.hash_one((namespace, name)), is_it).copied()
    }

    /// Begins another list. No pod has been seen in it yet.
    pub(super) fn begin_list(&mut self) {
        self.list = self.list.wrapping_add(1);
    }

    /// Returns the number of the current list.
    pub(super) fn list(&self) -> u32 {
        self.list
    }

    /// Records that the pod is in the current list.
    pub(super) fn see(&mut self, number: Number) {
        let list = self.list;
        if let Some(entry) = self.get_mut(number) {
            entry.seen = list;
        }
    }

    /// Returns the pods that have not been seen in the current list. O(pods).
    pub(super) fn unseen(&self) -> Vec<Number> {
        let numbered = self.blocks.iter().flatten().zip(0..);
        let unseen = numbered.filter_map(|(entry, number)| Some((entry.as_ref()?, number)));
        unseen.filter(|(entry, _)| entry.seen != self.list).map(|(_, number)| number).collect()
    }

    /// Adds a pod, or replaces the entry of the pod with the same uid. The digest is kept for a pod on a node.
    pub(super) fn put(&mut self, pod: KnownPod, is_ours: bool, digest: Option<Digest>) {
        if let Some(number) = self.find(&pod.uid) {
            self.take(number);
        }
        let namespace = self.names.intern(&pod.namespace);
        let entry = Entry {
            uid: pod.uid,
            name: (*pod.name).into(),
            resource_version: pod.resource_version,
            passed_on: pod.resource_version,
            digest: digest.filter(|_| pod.node.is_some()),
            generation: pod.generation,
            pending: pod.pending,
            namespace,
            node: pod.node.map_or(NO_NODE, |node| self.names.intern(&node)),
            seen: self.list,
            is_terminating: pod.is_terminating,
            is_ours,
        };
        let by_uid = self.hasher.hash_one(&entry.uid);
        let by_name = self.hasher.hash_one((namespace, &*entry.name));
        let number = self.store(entry);
        let Table { blocks, by_uid: uids, by_name: names, hasher, .. } = self;
        let at =
            |number: &Number| blocks[*number as usize / BLOCK][*number as usize % BLOCK].as_ref();
        // Entries of the tables exist, so the default hash is never used.
        uids.insert_unique(by_uid, number, |number| {
            at(number).map_or(0, |entry| hasher.hash_one(&entry.uid))
        });
        names.insert_unique(by_name, number, |number| {
            at(number).map_or(0, |entry| hasher.hash_one((entry.namespace, &*entry.name)))
        });
    }

    fn store(&mut self, entry: Entry) -> Number {
        if let Some(number) = self.free.pop() {
            self.blocks[number as usize / BLOCK][number as usize % BLOCK] = Some(entry);
            return number;
        }
        // All blocks but the last are full.
        let number = self.by_uid.len();
        if number / BLOCK == self.blocks.len() {
            self.blocks.push(Vec::with_capacity(BLOCK));
        }
        self.blocks[number / BLOCK].push(Some(entry));
        number as Number
    }

    /// Removes a pod and returns its uid.
    pub(super) fn take(&mut self, number: Number) -> Option<Uid> {
        let place = self.blocks.get_mut(number as usize / BLOCK)?;
        let entry = place.get_mut(number as usize % BLOCK)?.take()?;
        let by_uid = self.hasher.hash_one(&entry.uid);
        if let Ok(found) = self.by_uid.find_entry(by_uid, |other| *other == number) {
            found.remove();
        }
        let by_name = self.hasher.hash_one((entry.namespace, &*entry.name));
        if let Ok(found) = self.by_name.find_entry(by_name, |other| *other == number) {
            found.remove();
        }
        self.names.release(entry.namespace);
        if entry.node != NO_NODE {
            self.names.release(entry.node);
        }
        self.free.push(number);
        Some(entry.uid)
    }

    /// Returns the pod with its interned names resolved.
    pub(super) fn known(&self, number: Number) -> Option<KnownPod> {
        let entry = self.get(number)?;
        Some(KnownPod {
            namespace: self.names.name(entry.namespace)?,
            name: Name::from(&*entry.name),
            uid: entry.uid.clone(),
            resource_version: entry.resource_version,
            generation: entry.generation,
            node: self.names.name(entry.node),
            is_terminating: entry.is_terminating,
            pending: entry.pending.clone(),
        })
    }
}

impl Entry {
    pub(super) fn standing(&self) -> Standing {
        match self {
            Entry { node, .. } if *node != NO_NODE => Standing::Placed,
            Entry { is_ours: false, .. } => Standing::Foreign,
            Entry { is_terminating: true, .. } => Standing::Ending,
            _ => Standing::Pending,
        }
    }
}

/// Interned names that many pods share. A name has a number while a pod uses it.
#[derive(Default)]
struct Names {
    numbers: HashMap<Name, u32>,
    /// Each name with its use count.
    names: Vec<(Name, u32)>,
    free: Vec<u32>,
}

impl Names {
    fn number(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    fn name(&self, number: u32) -> Option<Name> {
        self.names.get(number as usize).map(|(name, _)| name.clone())
    }

    fn intern(&mut self, name: &Name) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            self.names[*number as usize].1 += 1;
            return *number;
        }
        let entry = (name.clone(), 1);
        let number = match self.free.pop() {
            Some(number) => {
                self.names[number as usize] = entry;
                number
            }
            None => {
                self.names.push(entry);
                (self.names.len() - 1) as u32
            }
        };
        self.numbers.insert(name.clone(), number);
        number
    }

    fn release(&mut self, number: u32) {
        let Some((name, uses)) = self.names.get_mut(number as usize) else { return };
        *uses -= 1;
        if *uses == 0 {
            self.numbers.remove(&*name);
            *name = Name::from("");
            self.free.push(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(uid: &str, name: &str, node: Option<&str>) -> KnownPod {
        KnownPod {
            namespace: "shop".into(),
            name: name.into(),
            uid: uid.into(),
            resource_version: 7,
            generation: 1,
            node: node.map(Name::from),
            is_terminating: false,
            pending: None,
        }
    }

    #[test]
    fn a_pod_is_found_by_uid_and_by_name_until_it_is_taken() {
        let mut table = Table::default();
        table.put(pod("u-1", "web-0", Some("n1")), true, None);
        table.put(pod("u-2", "web-1", None), true, None);
        let number = table.find(&"u-1".into()).expect("put before");
        assert_eq!(table.find_name("shop", "web-0"), Some(number));
        assert_eq!(table.known(number), Some(pod("u-1", "web-0", Some("n1"))));
        assert_eq!(table.take(number), Some("u-1".into()));
        assert_eq!((table.find(&"u-1".into()), table.find_name("shop", "web-0")), (None, None));
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn numbers_and_names_of_removed_pods_are_reused() {
        let mut table = Table::default();
        for round in 0..5_000 {
            let uid = format!("u-{round}");
            table.put(pod(&uid, "web-0", Some(&format!("node-{round}"))), true, None);
            let number = table.find(&(*uid).into()).expect("put before");
            table.take(number);
        }
        assert_eq!((table.blocks.len(), table.free.len()), (1, 1));
        assert!(table.names.names.len() <= 2, "{} names", table.names.names.len());
    }

    #[test]
    fn pods_that_are_missing_from_a_list_are_unseen() {
        let mut table = Table::default();
        for i in 0..3_000 {
            table.put(pod(&format!("u-{i}"), &format!("web-{i}"), None), true, None);
        }
        table.begin_list();
        for i in (0..3_000).filter(|i| *i != 2_500) {
            let number = table.find(&(*format!("u-{i}")).into()).expect("put before");
            table.see(number);
        }
        let unseen = table.unseen();
        assert_eq!(unseen, [table.find(&"u-2500".into()).expect("put before")]);
    }
}
