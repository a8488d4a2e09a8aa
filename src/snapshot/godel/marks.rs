//! Preemption marks: which pods are the victims of which preemptors.
//!
//! A scheduler that nominates a pod to a node records in the annotation `nominated-node` which pods must be evicted
//! from the node first, so that other schedulers can regard those victims as gone
//! (cache/commonstores/preemption_store). Eviction code may consult the marks; DefaultPreemption follows
//! kube-scheduler's rules and does not. A mark exists while a preemptor is on the nominated node, assumed or bound.
//! If the preemptor was placed on another node, its nomination marks no pod.
//!
//! Marks are stored per node, like the pods that cause them, and copied with it. A separate index maps each victim to
//! the nodes on which it is marked, because a stale annotation may name a pod on a node where it never was.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::model::{Generation, Name, NominatedNode, Uid, hash_of};

use super::super::cost;
use super::super::hash_index::HashIndex;
use super::super::table::Table;

/// A victim on a node, and its preemptors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreemptionMark {
    /// The pod to be evicted.
    pub victim: Uid,
    preemptors: Box<[Uid]>,
}

impl PreemptionMark {
    /// Returns the pods that preempt the victim, sorted by uid. There is at least one.
    #[must_use]
    pub fn preemptors(&self) -> &[Uid] {
        &self.preemptors
    }
}

/// The marks on one node.
#[derive(Clone)]
struct MarkedNode {
    node: Name,
    /// Sorted by the victims' uids.
    marks: Vec<PreemptionMark>,
}

impl MarkedNode {
    /// Copies the marks with room for one more.
    fn copy(&self) -> MarkedNode {
        let preemptors: usize = self.marks.iter().map(|mark| mark.preemptors.len()).sum();
        let uids = preemptors * size_of::<Uid>();
        cost::copied_bytes(size_of::<MarkedNode>() + size_of_val(&*self.marks) + uids, 1);
        let mut marks = Vec::with_capacity(self.marks.len() + 1);
        marks.extend_from_slice(&self.marks);
        MarkedNode { node: self.node.clone(), marks }
    }

    /// Returns the index of a victim's mark, or the index at which to insert it.
    fn at(&self, victim: &Uid) -> Result<usize, usize> {
        self.marks.binary_search_by(|mark| mark.victim.cmp(victim))
    }
}

/// All preemption marks.
#[derive(Clone, Default)]
pub struct PreemptionMarks {
    nodes: Table<Arc<MarkedNode>>,
    by_name: HashIndex,
    /// The numbers of the nodes on which each victim is marked.
    victims: HashIndex,
    /// Numbers are never reused, so no other node's marks ever move.
    next: u32,
    len: usize,
    generation: Generation,
}

impl PreemptionMarks {
    /// Number of reference counts that a clone increments.
    pub(crate) const COUNTS: usize = 3;

    /// Returns the pods that preempt a victim on a node, sorted by uid (`GetPreemptorsByVictim`). O(log n).
    #[doc(hidden)]
    #[must_use]
    pub fn preemptors(&self, node: &str, victim: &Uid) -> &[Uid] {
        let marks = self.on(node);
        let mark = marks.binary_search_by(|mark| mark.victim.cmp(victim));
        mark.map_or(&[], |at| &marks[at].preemptors)
    }

    /// Returns the marks on a node, sorted by the victims' uids. O(log n).
    #[doc(hidden)]
    #[must_use]
    pub fn on(&self, node: &str) -> &[PreemptionMark] {
        let marked = self.number(node).and_then(|number| self.nodes.get(number));
        marked.map_or(&[], |marked| &marked.marks)
    }

    /// Returns whether a pod is marked as a victim on any node. O(log n).
    #[must_use]
    pub fn is_marked(&self, victim: &Uid) -> bool {
        let is_on = |number| self.nodes.get(number).is_some_and(|on| on.at(victim).is_ok());
        self.victims.find(hash_of(victim), is_on).is_some()
    }

    /// Returns all marks with their nodes, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&Name, &PreemptionMark)> {
        let nodes = self.nodes.iter();
        nodes.flat_map(|(_, marked)| marked.marks.iter().map(|mark| (&marked.node, mark)))
    }

    /// Returns the marked pods, sorted by uid. O(marks × log n).
    pub(crate) fn victims(&self) -> impl Iterator<Item = &Uid> {
        let victims: BTreeSet<&Uid> = self.iter().map(|(_, mark)| &mark.victim).collect();
        victims.into_iter()
    }

    /// Returns the number of marks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no marks.
    #[doc(hidden)]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the generation in which a mark last changed. It is a position in the log, so a store that is dropped and
    /// created again never repeats one.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Returns whether `more` marks can be added.
    pub(crate) fn has_room(&self, more: usize) -> bool {
        self.len.saturating_add(more) < u32::MAX as usize && self.next < u32::MAX
    }

    /// Adds the marks of a preemptor that was placed on its nominated node. O(victims × log n + marks of the node).
    pub(crate) fn mark(&mut self, nominated: &NominatedNode, by: &Uid, generation: Generation) {
        let known = self.number(&nominated.node);
        let mut marked = match known.and_then(|known| self.nodes.get(known)) {
            Some(marked) => marked.copy(),
            None => MarkedNode { node: nominated.node.clone(), marks: Vec::new() },
        };
        let number = known.unwrap_or(self.next);
        for victim in uids(nominated) {
            match marked.at(&victim) {
                Ok(at) => add(&mut marked.marks[at].preemptors, by),
                Err(at) => {
                    self.victims.insert(hash_of(&victim), number);
                    let mark = PreemptionMark { victim, preemptors: Box::new([by.clone()]) };
                    marked.marks.insert(at, mark);
                    self.len += 1;
                }
            }
        }
        if marked.marks.is_empty() {
            return;
        }
        if known.is_none() {
            self.by_name.insert(hash_of(&*marked.node), number);
            self.next += 1;
        }
        self.nodes.set(number, Arc::new(marked));
        self.generation = generation;
    }

    /// Removes the marks of a preemptor that left its nominated node. O(victims × log n + marks of the node).
    pub(crate) fn unmark(&mut self, nominated: &NominatedNode, by: &Uid, generation: Generation) {
        let Some(number) = self.number(&nominated.node) else { return };
        let Some(mut marked) = self.nodes.get(number).map(|marked| marked.copy()) else { return };
        for victim in uids(nominated) {
            let Ok(at) = marked.at(&victim) else { continue };
            let preemptors = &mut marked.marks[at].preemptors;
            *preemptors = preemptors.iter().filter(|uid| *uid != by).cloned().collect();
            if preemptors.is_empty() {
                marked.marks.remove(at);
                self.len -= 1;
                self.victims.remove(hash_of(&victim), number);
            }
        }
        if marked.marks.is_empty() {
            self.by_name.remove(hash_of(&*marked.node), number);
            self.nodes.remove(number);
        } else {
            self.nodes.set(number, Arc::new(marked));
        }
        self.generation = generation;
    }

    fn number(&self, node: &str) -> Option<u32> {
        let is_match = |number| self.nodes.get(number).is_some_and(|marked| *marked.node == *node);
        self.by_name.find(hash_of(node), is_match)
    }
}

/// Returns the uids of the victims. An entry without a uid does not identify a pod and is skipped.
fn uids(nominated: &NominatedNode) -> impl Iterator<Item = Uid> {
    let identified = nominated.victims.iter().filter(|victim| !victim.uid.is_empty());
    identified.map(|victim| Uid::new(&victim.uid))
}

fn add(preemptors: &mut Box<[Uid]>, by: &Uid) {
    let Err(at) = preemptors.binary_search(by) else { return };
    let (before, after) = preemptors.split_at(at);
    *preemptors = before.iter().chain([by]).chain(after).cloned().collect();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nominated(node: u32) -> NominatedNode {
        let victim = |n: u32| crate::model::Victim {
            namespace: "default".into(),
            name: format!("v{n}").into(),
            uid: format!("v{n}").into(),
        };
        NominatedNode {
            node: format!("n{node}").into(),
            victims: Box::new([victim(node), victim(node + 1)]),
        }
    }

    #[test]
    fn the_indexes_match_the_marks_and_end_up_empty() {
        const NODES: u32 = 200;
        let by = Uid::new("p");
        let mut marks = PreemptionMarks::default();
        for n in 0..NODES {
            marks.mark(&nominated(n), &by, Generation(1));
        }
        // 7 and 200 are coprime, so this permutes the numbers.
        for n in 0..NODES {
            let gone = n * 7 % NODES;
            marks.unmark(&nominated(gone), &by, Generation(2));
            assert!(marks.victims().all(|victim| marks.is_marked(victim)));
        }
        assert!(marks.is_empty() && marks.victims.is_empty() && marks.by_name.is_empty());
        assert_eq!(marks.nodes.iter().count(), 0);
    }
}
