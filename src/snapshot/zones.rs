//! The list order of nodes: round robin over the zones, in the order in which the zones were first seen
//! (backend/cache/node_tree.go).

use std::collections::BTreeSet;

use crate::model::ZoneKey;

use super::chunk::{Chunk, ZoneId, lanes};
use super::cluster::{Cluster, ZoneInfo};
use super::hash_index::HashIndex;
use super::node_info::NodeInfo;
use super::table::Table;

/// The pseudo-zone of the ghosts' chunks, which appears in no list.
pub(crate) const GHOSTS: ZoneId = 0;

/// A zone, with its chunks in order.
#[derive(Clone, Default)]
pub(crate) struct Zone {
    pub(crate) key: ZoneKey,
    pub(crate) nodes: usize,
    /// Chunk numbers by position in the zone.
    pub(crate) chunks: Table<u32>,
    /// The position of the next chunk, which is greater than all others.
    pub(crate) next: u32,
}

/// All zones.
#[derive(Clone, Default)]
pub(crate) struct Zones {
    /// Zones by number. Numbers are assigned in increasing order and never reused, so their order is first-seen order.
    zones: Table<Zone>,
    index: HashIndex,
    last: ZoneId,
}

impl Zones {
    pub(crate) fn list(&self) -> impl Iterator<Item = &Zone> + Clone {
        self.listed().map(|(_, zone)| zone)
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = ZoneId> {
        self.listed().map(|(id, _)| id)
    }

    fn listed(&self) -> impl Iterator<Item = (ZoneId, &Zone)> + Clone {
        self.zones.iter().filter(|(id, _)| *id != GHOSTS)
    }

    pub(crate) fn get(&self, id: ZoneId) -> Option<&Zone> {
        self.zones.get(id)
    }

    pub(crate) fn find(&self, key: &ZoneKey) -> Option<ZoneId> {
        self.index.find(key.hash64(), |id| self.get(id).is_some_and(|zone| zone.key == *key))
    }

    /// Returns the zone with this key, and appends it if it is unknown. `None` if no number is left.
    pub(crate) fn find_or_insert(&mut self, key: &ZoneKey) -> Option<ZoneId> {
        if let Some(id) = self.find(key) {
            return Some(id);
        }
        self.last = self.last.checked_add(1)?;
        self.zones.set(self.last, Zone { key: key.clone(), ..Zone::default() });
        self.index.insert(key.hash64(), self.last);
        Some(self.last)
    }

    pub(crate) fn ghosts(&mut self) -> ZoneId {
        if self.zones.get(GHOSTS).is_none() {
            self.zones.set(GHOSTS, Zone::default());
        }
        GHOSTS
    }

    pub(crate) fn update<R>(
        &mut self,
        id: ZoneId,
        change: impl FnOnce(&mut Zone) -> R,
    ) -> Option<R> {
        self.zones.update(id, change)
    }

    /// Removes an empty zone. If it is seen again, it is appended at the end.
    pub(crate) fn remove(&mut self, id: ZoneId) {
        if let Some(zone) = self.zones.get(id) {
            self.index.remove(zone.key.hash64(), id);
            self.zones.remove(id);
        }
    }
}

impl Chunk {
    pub(crate) fn is_ghosts(&self) -> bool {
        self.zone == GHOSTS
    }
}

/// Returns the nodes that a mask selects in the chunks of these zones, in list order.
/// O(found × log found + chunks of the zones × log n).
pub(crate) fn in_list_order<'a>(
    cluster: &'a Cluster,
    zones: impl Iterator<Item = ZoneId>,
    mask: impl Fn(&'a Chunk) -> u64,
) -> std::vec::IntoIter<NodeInfo<'a>> {
    let mut found = Vec::new();
    for id in zones.collect::<BTreeSet<_>>() {
        let Some(zone) = cluster.rest.zones.get(id) else { continue };
        let mut round = 0;
        for chunk in (ZoneInfo { cluster, zone }).chunks() {
            let rounds = lanes(mask(chunk)).map(|at| {
                let before = chunk.live & ((1 << at) - 1);
                (round + before.count_ones(), at)
            });
            found.extend(rounds.filter_map(|(round, at)| {
                NodeInfo::new(cluster, chunk, at).map(|node| (round, id, node))
            }));
            round += chunk.live.count_ones();
        }
    }
    found.sort_by_key(|(round, id, _)| (*round, *id));
    let nodes: Vec<NodeInfo<'a>> = found.into_iter().map(|(_, _, node)| node).collect();
    nodes.into_iter()
}

/// An iterator over all nodes, round robin over the zones.
pub(crate) struct Round<'a> {
    cursors: Vec<Cursor<'a>>,
    next: usize,
}

type Cursor<'a> = Box<dyn Iterator<Item = NodeInfo<'a>> + 'a>;

impl<'a> Round<'a> {
    pub(crate) fn new(cluster: &'a Cluster) -> Round<'a> {
        let cursors = cluster.zones().map(|zone| Box::new(zone.nodes()) as Cursor<'a>);
        Round { cursors: cursors.collect(), next: 0 }
    }
}

impl<'a> Iterator for Round<'a> {
    type Item = NodeInfo<'a>;

    fn next(&mut self) -> Option<NodeInfo<'a>> {
        while !self.cursors.is_empty() {
            if self.next >= self.cursors.len() {
                self.next = 0;
            }
            match self.cursors[self.next].next() {
                Some(node) => {
                    self.next += 1;
                    return Some(node);
                }
                // The zone is exhausted. The next one moves to its index.
                None => {
                    drop(self.cursors.remove(self.next));
                }
            }
        }
        None
    }
}
