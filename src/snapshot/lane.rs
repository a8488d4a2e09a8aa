//! The parts of a node that are not stored in columns: its identity and its pods.
//!
//! A pod placed on a node is a record, stored by value in the node's lane; the names of the node's pods share one
//! string. Copying a lane therefore takes two allocations, regardless of the number of pods, no pod has a reference
//! count, and a node's pods are contiguous in memory for code that visits all of them (eviction, what-if, audit).

use std::sync::Arc;

use crate::model::{
    CustomNodeResource, Generation, HostPort, Name, NmNode, Node, Pod, Timestamp, Uid,
};

use super::cost;

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
    /// Start of the pod's text: the name, followed by the uid if that is not a UUID. The offset is split into two
    /// parts, 48 bits together, which is more than a process can address; they fill bytes that alignment leaves free.
    text: u32,
    text_high: u16,
    name_len: u16,
    uid_len: u16,
    pub(crate) assumed: bool,
}

const NO_TIME: i64 = i64::MIN;

const _: () = assert!(size_of::<PodRecord>() == 56, "lanes are copied with each placed pod");

/// The pods of one node.
#[derive(Debug, Default)]
pub(crate) struct Pods {
    records: Vec<PodRecord>,
    text: String,
}

impl Clone for Pods {
    /// Reserves room for one more pod, because copied pods are about to change.
    fn clone(&self) -> Pods {
        cost::copied_bytes(size_of_val(&*self.records) + self.text.len(), 0);
        let mut records = Vec::with_capacity(self.records.len() + 1);
        records.extend_from_slice(&self.records);
        let mut text = String::with_capacity(self.text.len() + 24);
        text.push_str(&self.text);
        Pods { records, text }
    }
}

impl Pods {
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(crate) fn records(&self) -> &[PodRecord] {
        &self.records
    }

    /// Returns the index of the pod with this uid. O(pods of the node).
    pub(crate) fn find(&self, key: [u8; 16], text: Option<&str>) -> Option<usize> {
        self.records.iter().position(|r| {
            r.key == key
                && match text {
                    None => r.uid_len == 0,
                    Some(text) => self.uid_text(r) == Some(text),
                }
        })
    }

    pub(crate) fn name(&self, record: &PodRecord) -> &str {
        let start = record.text_start();
        &self.text[start..start + usize::from(record.name_len)]
    }

    fn uid_text(&self, record: &PodRecord) -> Option<&str> {
        let start = record.text_start() + usize::from(record.name_len);
        (record.uid_len > 0).then(|| &self.text[start..start + usize::from(record.uid_len)])
    }

    pub(crate) fn uid(&self, record: &PodRecord) -> Uid {
        Uid::from_key(record.key, self.uid_text(record))
    }

    /// Reserves room for one more pod, and for few others: a load adds many pods to each lane, and the first placement
    /// after it copies the lane anyway.
    pub(crate) fn reserve_for(&mut self, pod: &Pod) {
        if self.records.len() == self.records.capacity() {
            self.records.reserve_exact(self.records.len() / 16 + 1);
        }
        let new = pod.name.len() + pod.uid.key().1.map_or(0, str::len);
        if self.text.len() + new > self.text.capacity() {
            self.text.reserve_exact(new + self.text.len() / 16);
        }
    }

    /// Adds a pod. Callers have checked that the lengths of its name and uid fit in 16 bits each.
    pub(crate) fn push(&mut self, pod: &Pod, template: TemplateId, assumed: bool) {
        let (key, uid_text) = pod.uid.key();
        let uid_text = uid_text.unwrap_or_default();
        let mut record = PodRecord {
            key,
            resource_version: 0,
            start: NO_TIME,
            deletion: NO_TIME,
            template,
            text: 0,
            text_high: 0,
            name_len: pod.name.len() as u16,
            uid_len: uid_text.len() as u16,
            assumed,
        };
        record.set_text_start(self.text.len());
        record.set_object(pod, assumed);
        if self.records.len() == self.records.capacity() {
            self.records.reserve_exact(self.records.len() / 4 + 1);
        }
        self.records.push(record);
        let new = pod.name.len() + uid_text.len();
        if self.text.len() + new > self.text.capacity() {
            self.text.reserve_exact(new + self.text.len() / 4);
        }
        self.text.push_str(&pod.name);
        self.text.push_str(uid_text);
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
        let record = &self.records[at];
        let (key, text) = pod.uid.key();
        if record.key != key
            || record.template != template
            || self.name(record) != &*pod.name
            || self.uid_text(record) != text
        {
            return false;
        }
        let record = &mut self.records[at];
        record.set_object(pod, assumed);
        true
    }

    /// Sets the number of a pod's template.
    pub(crate) fn set_template(&mut self, at: usize, template: TemplateId) {
        self.records[at].template = template;
    }

    /// Removes a pod; the last pod takes its index.
    pub(crate) fn swap_remove(&mut self, at: usize) -> PodRecord {
        let record = self.records.swap_remove(at);
        let len = usize::from(record.name_len) + usize::from(record.uid_len);
        self.text.drain(record.text_start()..record.text_start() + len);
        close_gap(&mut self.records, record.text_start(), len);
        record
    }
}

/// Adjusts the records after `len` bytes of text were removed at `start`.
fn close_gap(records: &mut [PodRecord], start: usize, len: usize) {
    for record in records {
        if record.text_start() > start {
            record.set_text_start(record.text_start() - len);
        }
    }
}

impl PodRecord {
    fn text_start(&self) -> usize {
        (u64::from(self.text_high) << 32 | u64::from(self.text)) as usize
    }

    fn set_text_start(&mut self, start: usize) {
        self.text = start as u32;
        self.text_high = (start as u64 >> 32) as u16;
    }

    /// Stores the fields of an object that are neither in its name nor in its template.
    fn set_object(&mut self, pod: &Pod, assumed: bool) {
        self.resource_version = pod.resource_version;
        self.start = pod.start_time.map_or(NO_TIME, |t| t.0);
        self.deletion = pod.deletion_time.map_or(NO_TIME, |t| t.0);
        self.assumed = assumed;
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
    /// Creates a ghost that arrived in generation `arrived`.
    pub(crate) fn new(name: Name, arrived: Generation) -> Identity {
        Identity { name, node: None, parts: None, arrived, added: arrived }
    }

    /// Returns the parts of the node.
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
    pods: Pods { records: Vec::new(), text: String::new() },
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

    #[test]
    fn names_and_uids_survive_removals() {
        let mut pods = Pods::default();
        for name in ["a", "bb", "ccc", "dddd"] {
            pods.push(&pod(name).build(), 7, false);
        }
        pods.swap_remove(1);
        pods.swap_remove(0);
        let seen: Vec<(&str, String)> =
            pods.records().iter().map(|r| (pods.name(r), pods.uid(r).to_string())).collect();
        assert_eq!(seen, [("ccc", "default/ccc".into()), ("dddd", "default/dddd".into())]);
        let uid = Uid::new("default/ccc");
        let (key, text) = uid.key();
        assert_eq!(pods.find(key, text), Some(0));
    }

    #[test]
    fn text_beyond_4_gib_is_addressed_correctly() {
        let mut pods = Pods::default();
        ["a", "b", "c"].into_iter().for_each(|name| pods.push(&pod(name).build(), 7, false));
        // The offsets that the texts would have after 4 GiB of other names.
        let four_gib = u32::MAX as usize + 1;
        let starts = [four_gib - 1, four_gib + 15, 9 * four_gib];
        for (record, start) in pods.records.iter_mut().zip(starts) {
            record.set_text_start(start);
        }
        close_gap(&mut pods.records, four_gib - 1, 16);
        let seen: Vec<usize> = pods.records.iter().map(PodRecord::text_start).collect();
        assert_eq!(seen, [four_gib - 1, four_gib - 1, 9 * four_gib - 16]);
    }
}
