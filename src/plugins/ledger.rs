//! Sums that follow the versions: kept from one cycle to the next, and brought up
//! to date by what has changed since.
//!
//! Between two cycles one chunk of many has changed. So a ledger keeps with each
//! chunk what it added to the sums; of a chunk that was touched this is taken back
//! and counted anew. What a cycle costs then follows the change, and not the
//! cluster. Where the layout changes, or an object that the counting reads, or
//! another line of versions is asked about, everything is counted anew.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex};

use foldhash::fast::FixedState;

use crate::model::{Generation, Template};
use crate::snapshot::{Chunk, Cluster, Lineage};

use super::topology::{Domain, Keys};

/// What a chunk adds: to which of the sums, in which domain, how much.
#[derive(Clone, Debug, Default)]
pub(super) struct Part(Vec<(usize, Domain, i64)>);

impl Part {
    pub(super) fn add(&mut self, at: usize, domain: Domain, amount: i64) {
        // Lanes of a chunk are mostly in one domain, or each in its own.
        let mut last = self.0.iter_mut().rev().take(4);
        match last.find(|(sums, known, _)| (*sums, *known) == (at, domain)) {
            Some((_, _, known)) => *known += amount,
            None => self.0.push((at, domain, amount)),
        }
    }
}

/// The sums that answer one question about a cluster.
#[derive(Default)]
pub(super) struct Ledger {
    /// The line of versions, its layout, and when an object that is read last
    /// changed.
    of: Option<(Lineage, u64, Generation)>,
    /// The version that was counted last.
    at: Generation,
    keys: Keys,
    /// By the number of the chunk.
    parts: Vec<Part>,
    /// How many entries the parts have.
    entries: usize,
    spare: Part,
}

impl Ledger {
    /// The sums of this version, and whether anything was added to any, were it to
    /// nothing. `reads` is when an object that counting reads last changed; `start`
    /// makes the sums; `count` tells what a chunk adds, and may make more of them.
    pub(super) fn follow(
        &mut self,
        cluster: &Cluster,
        reads: Generation,
        start: impl FnOnce(&mut Keys),
        mut count: impl FnMut(&mut Keys, &Chunk, &mut Part),
    ) -> (&Keys, bool) {
        let of = (cluster.line(), cluster.layout(), reads);
        if self.of.as_ref() == Some(&of) && self.at <= cluster.generation() {
            for (id, chunk) in cluster.chunks_newer_than(self.at) {
                self.update(id, chunk, &mut count);
            }
        } else {
            *self = Ledger { of: Some(of), ..Ledger::default() };
            start(&mut self.keys);
            for (id, _, chunk) in cluster.chunk_list() {
                self.update(id, chunk, &mut count);
            }
        }
        self.at = cluster.generation();
        (&self.keys, self.entries > 0)
    }

    fn update(
        &mut self,
        id: u32,
        chunk: &Chunk,
        count: &mut impl FnMut(&mut Keys, &Chunk, &mut Part),
    ) {
        let mut part = std::mem::take(&mut self.spare);
        count(&mut self.keys, chunk, &mut part);
        let id = id as usize;
        if self.parts.len() <= id {
            if part.0.is_empty() {
                self.spare = part;
                return;
            }
            self.parts.resize(id + 1, Part::default());
        }
        let mut old = std::mem::replace(&mut self.parts[id], part);
        self.entries = self.entries + self.parts[id].0.len() - old.0.len();
        if old.0 != self.parts[id].0 {
            old.0.iter().for_each(|(at, domain, n)| self.keys.0[*at].count(*domain, -n));
            let new = self.parts[id].0.iter();
            new.for_each(|(at, domain, n)| self.keys.0[*at].count(*domain, *n));
        }
        old.0.clear();
        self.spare = old;
    }
}

/// Most templates of which something is remembered.
const MOST: usize = 64;

/// What a plugin remembers for pods of one template, from one cycle to the next.
/// Answers never depend on it.
pub(super) struct Remembered<T>(Mutex<ByTemplate<T>>);

struct ByTemplate<T> {
    known: HashMap<Arc<Template>, T, FixedState>,
    /// The oldest first.
    turns: VecDeque<Arc<Template>>,
}

impl<T: Default> Remembered<T> {
    /// Works with what is remembered for pods of this template. Others wait so long.
    pub(super) fn with<R>(&self, template: &Arc<Template>, work: impl FnOnce(&mut T) -> R) -> R {
        let mut all = self.0.lock().unwrap_or_else(|poisoned| {
            // What a panic left behind may be half counted.
            self.0.clear_poison();
            let mut all = poisoned.into_inner();
            *all = ByTemplate::default();
            all
        });
        let ByTemplate { known, turns } = &mut *all;
        if let Some(one) = known.get_mut(template) {
            return work(one);
        }
        if known.len() >= MOST
            && let Some(oldest) = turns.pop_front()
        {
            known.remove(&oldest);
        }
        turns.push_back(template.clone());
        work(known.entry(template.clone()).or_default())
    }
}

impl<T> Default for ByTemplate<T> {
    fn default() -> ByTemplate<T> {
        ByTemplate { known: HashMap::default(), turns: VecDeque::new() }
    }
}

impl<T> Default for Remembered<T> {
    fn default() -> Remembered<T> {
        Remembered(Mutex::new(ByTemplate::default()))
    }
}

/// A copy of a plugin remembers nothing yet.
impl<T> Clone for Remembered<T> {
    fn clone(&self) -> Remembered<T> {
        Remembered::default()
    }
}

impl<T> fmt::Debug for Remembered<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Remembered")
    }
}
