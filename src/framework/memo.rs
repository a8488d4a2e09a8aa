//! What is known of the chunks for pods of one template.
//!
//! Pods come in crowds: a deployment's replicas ask for the same, and between
//! two of them one chunk of many has changed. A plugin that is *local*
//! ([`Plugin::is_local`](super::Plugin::is_local)) says of an unchanged chunk
//! what it said before, so its verdict and its scores are kept here, by chunk and
//! the generation that last touched it.
//!
//! Nothing here can change an answer, only who computes it: number and
//! generation name what is in a chunk, within a line of versions, and another
//! line finds nothing.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::model::{Generation, Template};
use crate::snapshot::{Cluster, Column, LANES, Lineage};

use super::dispatch;

/// Most bytes kept.
const MOST_BYTES: usize = 4 << 20;

/// What is known of one chunk.
#[derive(Clone)]
pub(super) struct Known {
    /// Of the chunk as this generation left it.
    at: Generation,
    /// The lanes that local filters pass.
    pub(super) mask: u64,
    /// Whether what follows is known, too.
    pub(super) is_scored: bool,
    /// The largest of the totals of those lanes.
    pub(super) largest: i64,
    /// Weighted sums of local scores that need no normalising.
    pub(super) totals: Column<i64>,
}

/// What is known of the chunks for one template. A pod whose like never comes
/// again costs what it looks at, and not a place for every chunk there is.
#[derive(Default)]
pub(super) struct VerdictCache {
    /// By the chunk's number, 1 more than its place among what is known.
    places: Vec<u32>,
    known: Vec<Known>,
    /// Whether it was asked for since its turn to go came last.
    is_used: bool,
}

impl VerdictCache {
    fn place(&self, chunk: u32) -> Option<usize> {
        let place = *self.places.get(chunk as usize)?;
        (place as usize).checked_sub(1)
    }

    /// The lanes that pass, if the chunk is the one that they were found in.
    pub(super) fn mask(&self, chunk: u32, at: Generation) -> Option<u64> {
        let known = &self.known[self.place(chunk)?];
        (known.at == at).then_some(known.mask)
    }

    /// Notes the lanes that pass.
    pub(super) fn set_mask(&mut self, chunk: u32, at: Generation, mask: u64) {
        if let Some(place) = self.place(chunk) {
            let known = &mut self.known[place];
            (known.at, known.mask, known.is_scored) = (at, mask, false);
            return;
        }
        let number = chunk as usize;
        if self.places.len() <= number {
            self.places.resize(number + 1, 0);
        }
        self.known.push(Known { at, mask, is_scored: false, largest: 0, totals: [0; LANES] });
        self.places[number] = self.known.len() as u32;
    }

    /// What is known of a chunk whose lanes were noted.
    pub(super) fn known(&mut self, chunk: u32) -> &mut Known {
        &mut self.known[self.places[chunk as usize] as usize - 1]
    }

    /// The same, to be read.
    pub(super) fn known_of(&self, chunk: u32) -> &Known {
        &self.known[self.places[chunk as usize] as usize - 1]
    }

    fn forget(&mut self) {
        self.is_used = false;
        self.places.clear();
        self.known.clear();
    }
}

impl Known {
    /// Notes the totals.
    pub(super) fn set_totals(&mut self, totals: Column<i64>) {
        self.totals = totals;
        self.is_scored = true;
        self.largest = dispatch::largest(&self.totals, self.mask);
    }
}

/// Sheets by template: those that were used lately, by second chance.
#[derive(Default)]
pub(super) struct Memo {
    line: Option<Lineage>,
    caches: HashMap<Arc<Template>, VerdictCache>,
    /// Who is the next to go.
    turns: VecDeque<Arc<Template>>,
    /// For pods of which nothing is to be kept; its memory is.
    loose: VerdictCache,
}

impl Memo {
    /// The cache of a template, for a cluster of so many chunks, if `keep` says that one
    /// is to be kept.
    pub(super) fn cache(
        &mut self,
        (cluster, chunks): (&Cluster, usize),
        template: &Arc<Template>,
        keep: bool,
    ) -> &mut VerdictCache {
        if !keep {
            self.loose.forget();
            return &mut self.loose;
        }
        let line = cluster.line();
        if self.line.as_ref() != Some(&line) {
            self.line = Some(line);
            self.caches.clear();
            self.turns.clear();
        }
        if !self.caches.contains_key(template) {
            let bytes = chunks * size_of::<Known>() + cluster.most_chunks() * size_of::<u32>();
            let most = (MOST_BYTES / bytes.max(1)).clamp(1, 4096);
            let mut cache = VerdictCache::default();
            while self.caches.len() >= most
                && let Some(gone) = self.least_used()
            {
                // Its memory stays.
                cache = gone;
            }
            cache.forget();
            self.caches.insert(template.clone(), cache);
            self.turns.push_back(template.clone());
        }
        let cache = self.caches.entry(template.clone()).or_default();
        // Chunks come and go with their numbers: of most of these there is none left.
        if cache.known.len() > 2 * chunks + 8 {
            *cache = VerdictCache::default();
        }
        cache.is_used = true;
        cache
    }

    /// Takes one away that was not used since its last turn.
    fn least_used(&mut self) -> Option<VerdictCache> {
        loop {
            let next = self.turns.pop_front()?;
            match self.caches.get_mut(&next) {
                Some(cache) if cache.is_used => {
                    cache.is_used = false;
                    self.turns.push_back(next);
                }
                _ => return self.caches.remove(&next),
            }
        }
    }
}
