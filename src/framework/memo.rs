//! A cache of the verdicts and scores of the local plugins ([`Plugin::is_local`](super::Plugin::is_local)), by pod
//! template and chunk. An entry is valid until its chunk changes.

use std::sync::Arc;

use crate::model::{Generation, Template};
use crate::snapshot::{Cluster, Column, LANES, PerChunk};

use super::by_template::ByTemplate;
use super::dispatch;

/// The maximum size of all caches in bytes.
const MAX_BYTES: usize = 4 << 20;

/// The cache entry of a chunk.
pub(super) struct Verdict {
    /// The lanes that pass the local filters.
    pub(super) mask: u64,
    /// Whether the following fields are set.
    pub(super) is_scored: bool,
    /// The largest total of the lanes in `mask`, and the lanes that have it.
    pub(super) largest: i64,
    pub(super) best: u64,
    /// The weighted sums of the local scores that need no normalization.
    pub(super) totals: Column<i64>,
}

impl Verdict {
    /// Returns the largest total of the lanes in `mask`, and the lanes that have it.
    pub(super) fn best_among(&self, mask: u64) -> (i64, u64) {
        // The stored maximum covers more lanes if not all nodes were examined.
        match self.best & mask {
            0 => self.best_of(mask),
            best => (self.largest, best),
        }
    }

    fn best_of(&self, mask: u64) -> (i64, u64) {
        let largest = dispatch::largest(&self.totals, mask);
        (largest, dispatch::equal(&self.totals, largest) & mask)
    }
}

/// The cache of one template. Memory for a chunk is allocated when the chunk is first examined.
#[derive(Default)]
pub(super) struct VerdictCache(PerChunk<Verdict>);

impl VerdictCache {
    /// Returns the entry of a chunk, if it was computed for this generation of the chunk.
    #[inline]
    pub(super) fn get(&self, chunk: u32, at: Generation) -> Option<&Verdict> {
        self.0.get(chunk, at)
    }

    /// Stores the lanes of a chunk that pass.
    pub(super) fn set_mask(&mut self, chunk: u32, at: Generation, mask: u64) {
        let new = || Verdict { mask, is_scored: false, largest: 0, best: 0, totals: [0; LANES] };
        let verdict = self.0.renew(chunk, at, new);
        (verdict.mask, verdict.is_scored) = (mask, false);
    }

    /// Stores the totals of a chunk whose mask is stored.
    pub(super) fn set_totals(&mut self, chunk: u32, at: Generation, totals: &Column<i64>) {
        let new = || Verdict { mask: 0, is_scored: true, largest: 0, best: 0, totals: *totals };
        let verdict = self.0.renew(chunk, at, new);
        verdict.is_scored = true;
        verdict.totals.copy_from_slice(totals);
        (verdict.largest, verdict.best) = verdict.best_of(verdict.mask);
    }
}

/// The caches of all templates.
#[derive(Default)]
pub(super) struct Memo {
    caches: ByTemplate<VerdictCache>,
    /// The cache for pods that are not cached. Only its memory is reused.
    uncached: VerdictCache,
}

impl Memo {
    /// Returns the cache of a template for a cluster of `chunks` chunks. If `keep` is false, returns an empty cache
    /// that is discarded with the next call.
    pub(super) fn cache(
        &mut self,
        (cluster, chunks): (&Cluster, usize),
        template: &Arc<Template>,
        keep: bool,
    ) -> &mut VerdictCache {
        if !keep {
            self.uncached.0.clear();
            return &mut self.uncached;
        }
        let bytes = PerChunk::<Verdict>::bytes(chunks, cluster.most_chunks());
        let most = (MAX_BYTES / bytes.max(1)).clamp(1, 4096);
        let (cache, is_new) = self.caches.get(template, most);
        if is_new {
            cache.0.clear();
        }
        cache.0.follow(cluster);
        // Chunks are removed together with their numbers, so most entries of such a large cache belong to chunks that
        // no longer exist.
        if cache.0.len() > 2 * chunks + 8 {
            cache.0 = PerChunk::default();
            cache.0.follow(cluster);
        }
        cache
    }
}
