//! The parts of a node that are not stored in columns: its identity and its pods.
//!
//! A pod placed on a node is a record, stored by value in a block of the node's lane; the names of a block's pods share
//! one string. No pod has a reference count, and the pods of a block are contiguous in memory for code that visits all
//! of them (eviction, what-if, audit). Versions share full blocks, so placing a pod copies only the last block, and
//! removing one at most two more, for any number of pods.

use std::mem;
use std::ops::Range;
use std::sync::Arc;

use crate::model::{
    CustomNodeResource, Generation, HostPort, Name, NmNode, Node, Pod, Timestamp, Uid,
};

use super::cost;
use super::tree::{Marked, Tree};

/// The number of a template in the snapshot's template table.
pub(crate) type TemplateId = u32;

/// The part of a pod that its lane stores; the rest is in the pod's template.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PodRecord {
    pub(crate) key: [u8; 16],
    pub(crate) resource_version: u64,
    start: i64,
    deletion: i64,
    pub(crate) template: TemplateId,
    /// The length of the name. The uid follows it in the text if it is not a UUID.
    name_len: u16,
    uid_len: u16,
}

const NO_TIME: i64 = i64::MIN;

const _: () = assert!(BLOCK <= u8::BITS as usize, "a bit per pod");
const _: () = assert!(size_of::<PodRecord>() == 48, "a placement copies up to eight records");

/// Number of pods in a full block. A placement copies at most this many. In larger blocks, a pod takes less memory.
const BLOCK: usize = 8;

/// The pods of one node.
#[derive(Clone, Default)]
pub(crate) struct Pods {
    full: Tree<Block>,
    full_blocks: u32,
    /// The last block, which is empty only if the node has no pods.
    last: Block,
}

/// Up to [`BLOCK`] pods.
#[derive(Debug, Default)]
struct Block {
    records: Vec<PodRecord>,
    /// The texts of the pods, one after the other.
    text: String,
    /// One bit per pod: whether it is assumed.
    assumed: u8,
}

impl Marked for Block {}

impl Clone for Block {
    /// Reserves room for one more pod, because a copied block is about to change.
    fn clone(&self) -> Block {
        cost::copied_bytes(size_of_val(&*self.records) + self.text.len(), 0);
        let mut records = Vec::with_capacity((self.records.len() + 1).min(BLOCK));
        records.extend_from_slice(&self.records);
        let mut text = String::with_capacity(self.text.len() + 24);
        text.push_str(&self.text);
        Block { records, text, assumed: self.assumed }
    }
}

impl Pods {
    const EMPTY: Pods = Pods {
        full: Tree::EMPTY,
        full_blocks: 0,
        last: Block { records: Vec::new(), text: String::new(), assumed: 0 },
    };

    pub(crate) fn len(&self) -> usize {
        self.full_blocks as usize * BLOCK + self.last.records.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.last.records.is_empty()
    }

    /// Returns the records in the order of their indexes, a slice per block.
    pub(crate) fn record_blocks(&self) -> impl Iterator<Item = &[PodRecord]> {
        self.blocks().map(|block| &*block.records)
    }

    fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.full.iter().map(|(_, block)| block).chain([&self.last])
    }

    /// Returns the record of the pod at this index, if there is one. O(log n).
    pub(crate) fn get(&self, at: usize) -> Option<&PodRecord> {
        if at >= self.len() {
            return None;
        }
        self.block(at).records.get(at % BLOCK)
    }

    /// Returns the block of the pod at this index, or the last one.
    fn block(&self, at: usize) -> &Block {
        self.full.get((at / BLOCK) as u32).unwrap_or(&self.last)
    }

    /// Changes the block of the pod at this index, which is copied first if another version shares it.
    fn change<R>(&mut self, at: usize, change: impl FnOnce(&mut Block, usize) -> R) -> R {
        debug_assert!(at < self.len(), "there is no pod with this index");
        let number = (at / BLOCK) as u32;
        if number < self.full_blocks {
            let changed =
                self.full.update(number, Generation::ZERO, |block| change(block, at % BLOCK));
            return match changed {
                Some(changed) => changed,
                None => unreachable!("every full block is in the tree"),
            };
        }
        change(&mut self.last, at % BLOCK)
    }

    /// Returns the index of the pod with this uid. O(pods of the node).
    pub(crate) fn find(&self, key: [u8; 16], text: Option<&str>) -> Option<usize> {
        self.blocks().enumerate().find_map(|(number, block)| {
            let at = (0..block.records.len()).find(|at| block.has_uid(*at, (key, text)))?;
            Some(number * BLOCK + at)
        })
    }

    /// Returns the name of the pod at this index.
    pub(crate) fn name(&self, at: usize) -> &str {
        let block = self.block(at);
        if at % BLOCK < block.records.len() { block.name(at % BLOCK) } else { "" }
    }

    /// Returns the uid of the pod at this index, whose record this is.
    pub(crate) fn uid(&self, at: usize, record: &PodRecord) -> Uid {
        Uid::from_key(record.key, self.block(at).uid_text(at % BLOCK))
    }

    /// Returns whether the pod at this index is assumed.
    pub(crate) fn is_assumed(&self, at: usize) -> bool {
        self.block(at).is_assumed(at % BLOCK)
    }

    /// Reserves room for one more pod only: a load adds many pods to each lane, and the first placement after it copies
    /// the last block anyway.
    pub(crate) fn reserve_for(&mut self, pod: &Pod) {
        let Block { records, text, .. } = &mut self.last;
        if records.len() == BLOCK {
            return;
        }
        if records.len() == records.capacity() {
            records.reserve_exact(1);
        }
        text.reserve_exact(pod.name.len() + pod.uid.key().1.map_or(0, str::len));
    }

    /// Adds a pod. Callers have checked that the lengths of its name and uid fit in 16 bits each.
    pub(crate) fn push(&mut self, pod: &Pod, template: TemplateId, assumed: bool) {
        if self.last.records.len() == BLOCK {
            let full = mem::take(&mut self.last);
            self.full.insert(self.full_blocks, full, Generation::ZERO);
            self.full_blocks += 1;
        }
        self.last.push(pod, template, assumed);
    }

    /// Replaces a pod by another object with the same name, uid and template. Returns `false` and changes nothing if
    /// one of them differs.
    pub(crate) fn revise(
        &mut self,
        at: usize,
        pod: &Pod,
        template: TemplateId,
        assumed: bool,
    ) -> bool {
        let (block, uid) = (self.block(at), pod.uid.key());
        let is_same = block.records.get(at % BLOCK).is_some_and(|record| {
            record.template == template
                && block.has_uid(at % BLOCK, uid)
                && block.name(at % BLOCK) == &*pod.name
        });
        if is_same {
            self.change(at, |block, at| {
                block.records[at].set_object(pod);
                block.set_assumed(at, assumed);
            });
        }
        is_same
    }

    /// Sets the number of a pod's template.
    pub(crate) fn set_template(&mut self, at: usize, template: TemplateId) {
        self.change(at, |block, at| block.records[at].template = template);
    }

    /// Removes a pod, which exists; the last pod takes its index. Returns the key of its uid.
    pub(crate) fn swap_remove(&mut self, at: usize) -> [u8; 16] {
        let is_in_last = at / BLOCK >= self.full_blocks as usize;
        let removed = match is_in_last {
            true => self.last.swap_remove(at % BLOCK),
            false => {
                let end = self.last.pop();
                self.change(at, |block, at| block.replace(at, end))
            }
        };
        if self.last.records.is_empty()
            && let Some(number) = self.full_blocks.checked_sub(1)
        {
            self.last = self.full.get(number).cloned().unwrap_or_default();
            self.full.remove(number, Generation::ZERO);
            self.full_blocks = number;
        }
        removed.key
    }
}

impl std::fmt::Debug for Pods {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.blocks()).finish()
    }
}

impl Block {
    /// Returns the range of the text of the pod at this index. O([`BLOCK`]).
    fn range(&self, at: usize) -> Range<usize> {
        let start = self.records[..at].iter().map(PodRecord::text_len).sum();
        start..start + self.records[at].text_len()
    }

    fn name(&self, at: usize) -> &str {
        let start = self.range(at).start;
        &self.text[start..start + usize::from(self.records[at].name_len)]
    }

    fn uid_text(&self, at: usize) -> Option<&str> {
        let record = &self.records[at];
        (record.uid_len > 0).then(|| {
            let Range { start, end } = self.range(at);
            &self.text[start + usize::from(record.name_len)..end]
        })
    }

    fn has_uid(&self, at: usize, (key, text): ([u8; 16], Option<&str>)) -> bool {
        self.records[at].key == key && self.uid_text(at) == text
    }

    fn is_assumed(&self, at: usize) -> bool {
        self.assumed >> at & 1 == 1
    }

    fn set_assumed(&mut self, at: usize, assumed: bool) {
        self.assumed = self.assumed & !(1 << at) | u8::from(assumed) << at;
    }

    fn push(&mut self, pod: &Pod, template: TemplateId, assumed: bool) {
        let (key, uid_text) = pod.uid.key();
        let uid_text = uid_text.unwrap_or_default();
        let mut record = PodRecord {
            key,
            resource_version: 0,
            start: NO_TIME,
            deletion: NO_TIME,
            template,
            name_len: pod.name.len() as u16,
            uid_len: uid_text.len() as u16,
        };
        record.set_object(pod);
        let len = self.records.len();
        if len == self.records.capacity() {
            self.records.reserve_exact((len / 4 + 1).min(BLOCK - len));
        }
        self.set_assumed(len, assumed);
        self.records.push(record);
        let new = record.text_len();
        if self.text.len() + new > self.text.capacity() {
            self.text.reserve_exact(new + self.text.len() / 4);
        }
        self.text.push_str(&pod.name);
        self.text.push_str(uid_text);
    }

    /// Removes a pod; the last pod of the block takes its index.
    fn swap_remove(&mut self, at: usize) -> PodRecord {
        if at + 1 == self.records.len() {
            self.text.truncate(self.range(at).start);
            return self.records.swap_remove(at);
        }
        let last = self.pop();
        self.replace(at, last)
    }

    /// Removes the last pod.
    fn pop(&mut self) -> Removed {
        let at = self.records.len() - 1;
        let (text, assumed) = (self.text.split_off(self.range(at).start), self.is_assumed(at));
        Removed { record: self.records.swap_remove(at), text, assumed }
    }

    /// Replaces a pod by one that was removed.
    fn replace(&mut self, at: usize, by: Removed) -> PodRecord {
        self.text.replace_range(self.range(at), &by.text);
        self.set_assumed(at, by.assumed);
        mem::replace(&mut self.records[at], by.record)
    }
}

/// A pod that was removed from a block.
struct Removed {
    record: PodRecord,
    text: String,
    assumed: bool,
}

impl PodRecord {
    fn text_len(&self) -> usize {
        usize::from(self.name_len) + usize::from(self.uid_len)
    }

    /// Stores the fields of an object that are neither in its name nor in its template.
    fn set_object(&mut self, pod: &Pod) {
        self.resource_version = pod.resource_version;
        self.start = pod.start_time.map_or(NO_TIME, |t| t.0);
        self.deletion = pod.deletion_time.map_or(NO_TIME, |t| t.0);
    }

    pub(crate) fn start_time(&self) -> Option<Timestamp> {
        (self.start != NO_TIME).then_some(Timestamp(self.start))
    }

    pub(crate) fn deletion_time(&self) -> Option<Timestamp> {
        (self.deletion != NO_TIME).then_some(Timestamp(self.deletion))
    }
}

/// The parts of a node that are outside of its chunk's columns and that pods do not change. Placing a pod neither
/// copies them nor touches their reference counts.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// The node's name, which is set even if the node itself is unknown.
    pub(crate) name: Name,
    /// The node as scheduling reads it, merged from its parts. `None` for a ghost, which has pods or a
    /// CustomNodeResource but is not a node.
    pub(crate) node: Option<Arc<Node>>,
    /// The node's parts; `None` if it consists of a Node alone, or of nothing.
    pub(crate) parts: Option<Arc<Parts>>,
    /// The generation in which the node was placed at the end of its zone.
    pub(crate) arrived: Generation,
    /// The generation in which a node of this name was last added.
    pub(crate) added: Generation,
}

/// The parts of a node that are outside of its chunk's columns and that pods change. A node without pods has no lane.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lane {
    pub(crate) pods: Pods,
    /// Host ports in use, each with the number of pods that use it.
    pub(crate) ports: Vec<(HostPort, u32)>,
    /// Number of pods with affinity, with required anti-affinity and with claims.
    pub(crate) with_affinity: u32,
    pub(crate) with_required_anti_affinity: u32,
    pub(crate) with_claims: u32,
}

impl Identity {
    pub(crate) fn new(name: Name, arrived: Generation) -> Identity {
        Identity { name, node: None, parts: None, arrived, added: arrived }
    }

    pub(crate) fn parts(&self) -> Parts {
        match &self.parts {
            Some(parts) => Parts::clone(parts),
            None => Parts { node: self.node.clone(), ..Parts::default() },
        }
    }

    /// Returns the Node among the parts, if there is one.
    pub(crate) fn kubelet_node(&self) -> Option<&Arc<Node>> {
        self.parts.as_ref().map_or(self.node.as_ref(), |parts| parts.node.as_ref())
    }
}

/// The objects of one name that make up a node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parts {
    pub(crate) node: Option<Arc<Node>>,
    pub(crate) nm_node: Option<Arc<NmNode>>,
    pub(crate) custom: Option<Arc<CustomNodeResource>>,
    /// The node as pods of a node manager see it, if it has a Node and an NMNode.
    pub(crate) managed: Option<Arc<Node>>,
}

impl Parts {
    /// Returns the node merged from the parts, or `None` if there is neither a Node nor an NMNode, and updates
    /// `managed`.
    pub(crate) fn merge(&mut self) -> Option<Arc<Node>> {
        self.managed = None;
        let Some(nm_node) = &self.nm_node else { return self.node.clone() };
        let merged = nm_node.node(self.node.as_deref());
        if self.node.is_some() {
            self.managed = Some(Arc::new(nm_node.managed(&merged)));
        }
        Some(Arc::new(merged))
    }

    /// Returns the schedulers that the Node and the NMNode assign the node to.
    pub(crate) fn schedulers(&self) -> [Option<&Name>; 2] {
        let node_scheduler = self.node.as_ref().and_then(|node| node.scheduler.as_ref());
        let nm_scheduler = self.nm_node.as_ref().and_then(|node| node.scheduler.as_ref());
        [node_scheduler, nm_scheduler]
    }

    /// Returns the parts in stored form: `None` if a Node alone, or nothing, is equivalent.
    pub(crate) fn stored(self) -> Option<Arc<Parts>> {
        (self.nm_node.is_some() || self.custom.is_some()).then(|| Arc::new(self))
    }
}

/// The lane of every node without pods.
pub(crate) static EMPTY: Lane = Lane {
    pods: Pods::EMPTY,
    ports: Vec::new(),
    with_affinity: 0,
    with_required_anti_affinity: 0,
    with_claims: 0,
};

impl Lane {
    pub(crate) fn take_ports(&mut self, ports: &[HostPort]) {
        for port in ports {
            match self.ports.iter_mut().find(|(used, _)| used == port) {
                Some((_, users)) => *users += 1,
                None => self.ports.push((port.clone(), 1)),
            }
        }
    }

    pub(crate) fn release_ports(&mut self, ports: &[HostPort]) {
        for port in ports {
            if let Some(at) = self.ports.iter().position(|(used, _)| used == port) {
                self.ports[at].1 -= 1;
                if self.ports[at].1 == 0 {
                    self.ports.swap_remove(at);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::pod;

    /// The name, the uid and the template of each pod, and whether it is assumed.
    type List = Vec<(String, Uid, u32, bool)>;

    fn seen(pods: &Pods) -> List {
        let all = (0..pods.len()).filter_map(|at| Some((at, pods.get(at)?)));
        let of = |(at, record): (usize, &PodRecord)| {
            let name = pods.name(at).to_owned();
            (name, pods.uid(at, record), record.template, pods.is_assumed(at))
        };
        all.map(of).collect()
    }

    /// Pods equal a list under any additions and removals, across the ends of blocks, and copies do not change.
    #[test]
    fn pods_are_added_and_removed_as_in_a_list() {
        let (mut pods, mut list) = (Pods::default(), Vec::new());
        let mut held: Vec<(Pods, List)> = Vec::new();
        let mut random = 7_u32;
        for step in 0..if cfg!(miri) { 500 } else { 3_000_u32 } {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Grows to 200 pods, then shrinks to none, and so on.
            let grows = step / 400 % 2 == 0;
            let adds_of_4 = if grows { 3 } else { 1 };
            if list.is_empty() || (random >> 16) % 4 < adds_of_4 {
                let name = format!("{}-{step}", "n".repeat(random as usize >> 28));
                let mut pod = pod(name.as_str()).build();
                if random >> 20 & 1 == 1 {
                    pod.uid = Uid::new(&format!("{random:08x}-0000-4000-8000-{step:012x}"));
                }
                let is_assumed = random >> 21 & 1 == 1;
                pods.push(&pod, step, is_assumed);
                list.push((name, pod.uid, step, is_assumed));
            } else {
                let at = random as usize % list.len();
                let (_, uid, ..) = list.swap_remove(at);
                assert_eq!(pods.swap_remove(at), uid.key().0);
            }
            if let Some((_, uid, ..)) = list.get(random as usize >> 8) {
                assert_eq!(pods.find(uid.key().0, uid.key().1), Some(random as usize >> 8));
            }
            if let Some(at) = (random as usize >> 4).checked_rem(list.len()) {
                pods.set_template(at, random);
                list[at].2 = random;
                let mut pod = pod(list[at].0.as_str()).build();
                pod.uid = list[at].1.clone();
                list[at].3 = random >> 22 & 1 == 1;
                assert!(pods.revise(at, &pod, random, list[at].3));
                assert!(!pods.revise(at, &pod, !random, !list[at].3));
            }
            assert_eq!(pods.is_empty(), list.is_empty());
            assert!(pods.get(list.len()).is_none() && pods.get(list.len() + BLOCK).is_none());
            if step % 97 == 0 {
                assert_eq!(seen(&pods), list);
                let parts: Vec<u32> =
                    pods.record_blocks().flatten().map(|record| record.template).collect();
                assert_eq!(parts, list.iter().map(|of| of.2).collect::<Vec<_>>());
                held.push((pods.clone(), list.clone()));
            }
        }
        assert!(held.iter().any(|(pods, _)| pods.full_blocks > 3));
        held.iter().for_each(|(pods, list)| assert_eq!(seen(pods), *list));
    }
}
