//! Sums that follow the versions: kept from one cycle to the next, and brought up
//! to date by what has changed since.
//!
//! Between two cycles one chunk of many has changed. So a ledger keeps with each
//! chunk what it added to the sums; of a chunk that was touched this is taken back
//! and counted anew. What a cycle costs then follows the change, and not the
//! cluster. Where the layout changes, or an object that the counting reads, or
//! another line of versions is asked about, everything is counted anew.

use std::fmt;
use std::sync::{Arc, Mutex};

use crate::framework::ByTemplate;
use crate::model::{Generation, Template};
use crate::snapshot::{Chunk, Cluster, PerChunk};

use super::topology::{Domain, Keys};

/// What a chunk adds: to which of the sums, in which domain, how much.
#[derive(Debug, Default, PartialEq, Eq)]
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
    /// The layout of the versions, and when an object that is read last changed.
    of: Option<(u64, Generation)>,
    /// The version that was counted last.
    at: Generation,
    keys: Keys,
    parts: PerChunk<Part>,
    /// How many entries the parts have.
    entries: usize,
    spare: Part,
}

impl Ledger {
    /// The sums of this version, and whether any chunk adds to them, be it 0. `reads` is when an object that counting
    /// reads last changed; `start` makes the sums; `count` notes what a chunk adds, and may make more sums.
    pub(super) fn follow(
        &mut self,
        cluster: &Cluster,
        reads: Generation,
        start: impl FnOnce(&mut Keys),
        mut count: impl FnMut(&mut Keys, &Chunk, &mut Part),
    ) -> (&Keys, bool) {
        let of = Some((cluster.layout(), reads));
        let is_same_line = self.parts.follow(cluster);
        if is_same_line && self.of == of && self.at <= cluster.generation() {
            for (id, at, chunk) in cluster.chunks_newer_than(self.at) {
                self.update((id, at), chunk, &mut count);
            }
        } else {
            self.parts.clear();
            let parts = std::mem::take(&mut self.parts);
            *self = Ledger { of, parts, ..Ledger::default() };
            start(&mut self.keys);
            for (id, at, chunk) in cluster.chunk_list() {
                self.update((id, at), chunk, &mut count);
            }
        }
        self.at = cluster.generation();
        (&self.keys, self.entries > 0)
    }

    fn update(
        &mut self,
        (id, at): (u32, Generation),
        chunk: &Chunk,
        count: &mut impl FnMut(&mut Keys, &Chunk, &mut Part),
    ) {
        let mut new = std::mem::take(&mut self.spare);
        count(&mut self.keys, chunk, &mut new);
        let part = self.parts.renew(id, at, Part::default);
        if *part != new {
            self.entries = self.entries + new.0.len() - part.0.len();
            part.0.iter().for_each(|(sum, domain, n)| self.keys.0[*sum].count(*domain, -n));
            new.0.iter().for_each(|(sum, domain, n)| self.keys.0[*sum].count(*domain, *n));
            std::mem::swap(part, &mut new);
        }
        new.0.clear();
        self.spare = new;
    }
}

/// At most this many templates are remembered.
const MOST: usize = 64;

/// What a plugin remembers for pods of one template, from one cycle to the next.
/// Answers never depend on it.
pub(super) struct Remembered<T>(Mutex<ByTemplate<T>>);

impl<T: Default> Remembered<T> {
    /// Works with what is remembered for pods of this template. Other threads wait meanwhile.
    pub(super) fn with<R>(&self, template: &Arc<Template>, work: impl FnOnce(&mut T) -> R) -> R {
        let mut all = self.0.lock().unwrap_or_else(|poisoned| {
            // What a panic left behind may be half counted.
            self.0.clear_poison();
            let mut all = poisoned.into_inner();
            *all = ByTemplate::default();
            all
        });
        let (one, is_new) = all.get(template, MOST);
        if is_new {
            *one = T::default();
        }
        work(one)
    }
}

impl<T> Default for Remembered<T> {
    fn default() -> Remembered<T> {
        Remembered(Mutex::default())
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
