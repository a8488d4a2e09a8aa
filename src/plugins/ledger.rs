//! Incrementally maintained sums: they are kept from one cycle to the next and updated by what has changed since.
//!
//! Typically only one of many chunks changes between two cycles. A ledger therefore stores each chunk's contribution to
//! the sums. When a chunk changes, its old contribution is subtracted and the chunk is counted again, so a cycle costs
//! as much as the change and not as much as the cluster. Everything is counted again if the layout changes, if an
//! object that the counting reads changes, or if the version belongs to another lineage.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex};

use foldhash::fast::FixedState;

use crate::model::{Generation, Template};
use crate::snapshot::{Chunk, Cluster, Lineage};

use super::topology::{Domain, Keys};

/// The contribution of a chunk: which sum, which domain, and how much.
#[derive(Clone, Debug, Default)]
pub(super) struct Part(Vec<(usize, Domain, i64)>);

impl Part {
    pub(super) fn add(&mut self, at: usize, domain: Domain, amount: i64) {
        // The lanes of a chunk are mostly in one domain, or each in its own.
        let mut last = self.0.iter_mut().rev().take(4);
        match last.find(|(sums, known, _)| (*sums, *known) == (at, domain)) {
            Some((_, _, known)) => *known += amount,
            None => self.0.push((at, domain, amount)),
        }
    }
}

/// The sums that one plugin keeps for one question about a cluster.
#[derive(Default)]
pub(super) struct Ledger {
    /// The lineage and layout of the versions counted, and the generation of the newest object that was read.
    lineage: Option<(Lineage, u64, Generation)>,
    /// The generation of the version that was counted last.
    at: Generation,
    keys: Keys,
    /// The contributions by chunk id.
    parts: Vec<Part>,
    /// The number of entries in all parts.
    entries: usize,
    spare: Part,
}

impl Ledger {
    /// Updates the sums to this version, and returns them with whether any chunk contributes anything. `reads` is the
    /// generation of the newest object that the counting reads, `start` creates the sums, and `count` adds a chunk's
    /// contribution to a part and may create more sums.
    pub(super) fn follow(
        &mut self,
        cluster: &Cluster,
        reads: Generation,
        start: impl FnOnce(&mut Keys),
        mut count: impl FnMut(&mut Keys, &Chunk, &mut Part),
    ) -> (&Keys, bool) {
        let lineage = (cluster.line(), cluster.layout(), reads);
        if self.lineage.as_ref() == Some(&lineage) && self.at <= cluster.generation() {
            for (id, chunk) in cluster.chunks_newer_than(self.at) {
                self.update(id, chunk, &mut count);
            }
        } else {
            *self = Ledger { lineage: Some(lineage), ..Ledger::default() };
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

/// The largest number of templates to cache values for.
const MAX_TEMPLATES: usize = 64;

/// Values that a plugin caches for the pods of each template from one cycle to the next. Decisions never depend on
/// whether a value is cached.
pub(super) struct Remembered<T>(Mutex<ByTemplate<T>>);

struct ByTemplate<T> {
    known: HashMap<Arc<Template>, T, FixedState>,
    /// The templates, least recently inserted first.
    turns: VecDeque<Arc<Template>>,
}

impl<T: Default> Remembered<T> {
    /// Calls `work` with the value cached for this template. Holds the lock meanwhile, so other threads wait.
    pub(super) fn with<R>(&self, template: &Arc<Template>, work: impl FnOnce(&mut T) -> R) -> R {
        let mut all = self.0.lock().unwrap_or_else(|poisoned| {
            // A panic may have left a value half updated.
            self.0.clear_poison();
            let mut all = poisoned.into_inner();
            *all = ByTemplate::default();
            all
        });
        let ByTemplate { known, turns } = &mut *all;
        if let Some(one) = known.get_mut(template) {
            return work(one);
        }
        if known.len() >= MAX_TEMPLATES
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

/// A cloned plugin starts with an empty cache.
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
