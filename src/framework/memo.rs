//! What the local plugins ([`Plugin::is_local`](super::Plugin::is_local)) answered for pods of one template: their
//! verdicts and scores, by chunk, until the chunk changes.

use std::sync::Arc;

use crate::model::{Generation, Template};
use crate::snapshot::{Cluster, Column, LANES, PerChunk};

use super::by_template::ByTemplate;
use super::dispatch;

/// At most this many bytes are kept.
const MOST_BYTES: usize = 4 << 20;

/// What is known of one chunk.
pub(super) struct Verdict {
    /// The lanes that local filters pass.
    pub(super) mask: u64,
    /// Whether the fields below are known, too.
    pub(super) is_scored: bool,
    /// The largest of the totals of those lanes.
    pub(super) largest: i64,
    /// Weighted sums of local scores that need no normalizing.
    pub(super) totals: Column<i64>,
}

/// What is known of the chunks for one template. A chunk takes memory from the first time that it is looked at.
#[derive(Default)]
pub(super) struct VerdictCache(PerChunk<Verdict>);

impl VerdictCache {
    /// What is known of a chunk as this generation left it.
    #[inline]
    pub(super) fn get(&self, chunk: u32, at: Generation) -> Option<&Verdict> {
        self.0.get(chunk, at)
    }

    /// Notes the lanes that pass.
    pub(super) fn set_mask(&mut self, chunk: u32, at: Generation, mask: u64) {
        let new = || Verdict { mask, is_scored: false, largest: 0, totals: [0; LANES] };
        let verdict = self.0.renew(chunk, at, new);
        (verdict.mask, verdict.is_scored) = (mask, false);
    }

    /// Notes the totals of a chunk whose lanes were noted.
    pub(super) fn set_totals(&mut self, chunk: u32, at: Generation, totals: &Column<i64>) {
        let new = || Verdict { mask: 0, is_scored: true, largest: 0, totals: *totals };
        let verdict = self.0.renew(chunk, at, new);
        verdict.is_scored = true;
        verdict.totals.copy_from_slice(totals);
        verdict.largest = dispatch::largest(&verdict.totals, verdict.mask);
    }
}

/// Verdicts by template.
#[derive(Default)]
pub(super) struct Memo {
    caches: ByTemplate<VerdictCache>,
    /// For pods of which nothing is kept but the memory.
    loose: VerdictCache,
}

impl Memo {
    /// The cache of a template, for a cluster of so many chunks. It is empty if `keep` is false: then nothing is kept
    /// for the next pod either.
    pub(super) fn cache(
        &mut self,
        (cluster, chunks): (&Cluster, usize),
        template: &Arc<Template>,
        keep: bool,
    ) -> &mut VerdictCache {
        if !keep {
            self.loose.0.clear();
            return &mut self.loose;
        }
        let bytes = PerChunk::<Verdict>::bytes(chunks, cluster.most_chunks());
        let most = (MOST_BYTES / bytes.max(1)).clamp(1, 4096);
        let (cache, is_new) = self.caches.get(template, most);
        if is_new {
            cache.0.clear();
        }
        cache.0.follow(cluster);
        // Chunks come and go with their numbers: most of these do not exist any more.
        if cache.0.len() > 2 * chunks + 8 {
            cache.0 = PerChunk::default();
            cache.0.follow(cluster);
        }
        cache
    }
}
