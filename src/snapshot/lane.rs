//! What of a node lies outside the columns: who it is, and its pods.
//!
//! A pod placed on a node is a record by value in that node's lane, its name
//! in one text beside it: a lane is copied with two allocations however many
//! pods it has, no reference count of a pod is ever touched, and a node's pods
//! lie together for whoever looks at them (eviction, what-if, audit).

use std::sync::Arc;

use crate::model::{
    CustomNodeResource, Generation, HostPort, Name, NmNode, Node, Pod, Timestamp, Uid,
};

use super::cost;

/// The number of a template in the snapshot's table of templates.
pub(crate) type TemplateId = u32;

/// What a lane keeps of one pod; the rest is in its template.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PodRecord {
    pub(crate) key: [u8; 16],
    pub(crate) resource_version: u64,
    start: i64,
    deletion: i64,
    pub(crate) template: TemplateId,
    /// Where its text starts: the name, then the uid where that is no UUID. In two
    /// parts, 48 bits together, which fit into what alignment leaves free: more than
    /// a process can address.
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
    /// With room for one more, since copied pods are about to change.
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

    /// Where the pod with this uid is, if it is here. O(pods of the node).
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

    /// Adds a pod. Its name and uid fit in 16 bits each: checked before.
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

    /// Replaces a pod by another object of its name, uid and template; where it
    /// is none, nothing changes and the answer is `false`.
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

    /// Takes a pod away; the last one takes its place.
    pub(crate) fn swap_remove(&mut self, at: usize) -> PodRecord {
        let record = self.records.swap_remove(at);
        let len = usize::from(record.name_len) + usize::from(record.uid_len);
        self.text.drain(record.text_start()..record.text_start() + len);
        close_gap(&mut self.records, record.text_start(), len);
        record
    }
}

/// The text lost `len` bytes from `start` on: what came behind them starts earlier.
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

    /// What an object says that is neither name nor template.
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

/// What of a node lies outside the columns of its chunk and no pod changes: a
/// placed pod copies none of it and touches none of its counts.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// The node's name; it has one also while the node itself is unknown.
    pub(crate) name: Name,
    /// As scheduling reads it, made of its parts; `None` for a ghost, which has
    /// pods or a CustomNodeResource and is no node.
    pub(crate) node: Option<Arc<Node>>,
    /// What it is made of, where that is not a Node alone.
    pub(crate) parts: Option<Arc<Parts>>,
    /// When the node was put at the end of its zone.
    pub(crate) arrived: Generation,
    /// When a node of this name was last added.
    pub(crate) added: Generation,
}

/// What of a node lies outside the columns of its chunk and pods change; a node
/// without pods has none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lane {
    pub(crate) pods: Pods,
    /// Host ports in use, each with the number of pods that use it.
    pub(crate) ports: Vec<(HostPort, u32)>,
    /// How many pods have affinity, required anti-affinity, claims.
    pub(crate) with_affinity: u32,
    pub(crate) with_required_anti_affinity: u32,
    pub(crate) with_claims: u32,
}

impl Identity {
    /// A ghost that came at `arrived`.
    pub(crate) fn new(name: Name, arrived: Generation) -> Identity {
        Identity { name, node: None, parts: None, arrived, added: arrived }
    }

    /// What it is made of.
    pub(crate) fn parts(&self) -> Parts {
        match &self.parts {
            Some(parts) => Parts::clone(parts),
            None => Parts { node: self.node.clone(), ..Parts::default() },
        }
    }

    /// The Node that it is made of, if it is.
    pub(crate) fn kubelet_node(&self) -> Option<&Arc<Node>> {
        self.parts.as_ref().map_or(self.node.as_ref(), |parts| parts.node.as_ref())
    }
}

/// The objects of one name that a node is made of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parts {
    pub(crate) node: Option<Arc<Node>>,
    pub(crate) nm_node: Option<Arc<NmNode>>,
    pub(crate) custom: Option<Arc<CustomNodeResource>>,
}

impl Parts {
    /// The node that they make; `None` where there is neither Node nor NMNode.
    pub(crate) fn merged(&self) -> Option<Arc<Node>> {
        match &self.nm_node {
            Some(nm_node) => Some(Arc::new(nm_node.node(self.node.as_deref()))),
            None => self.node.clone(),
        }
    }

    /// Whose part of the nodes it is of, as the Node and the NMNode say.
    pub(crate) fn schedulers(&self) -> [Option<&Name>; 2] {
        let of_node = self.node.as_ref().and_then(|node| node.scheduler.as_ref());
        let of_nm_node = self.nm_node.as_ref().and_then(|node| node.scheduler.as_ref());
        [of_node, of_nm_node]
    }

    /// As they are kept: not at all where a Node alone, or nothing, says the same.
    pub(crate) fn kept(self) -> Option<Arc<Parts>> {
        (self.nm_node.is_some() || self.custom.is_some()).then(|| Arc::new(self))
    }
}

/// The lane of a node without pods.
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
    fn texts_are_found_behind_the_first_4_gib() {
        let mut pods = Pods::default();
        ["a", "b", "c"].into_iter().for_each(|name| pods.push(&pod(name).build(), 7, false));
        // Where they would start behind others that have 4 GiB of names.
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
