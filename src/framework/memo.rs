//! A cache of the verdicts and scores of the local plugins ([`PluginInfo::local`](super::PluginInfo::local)), by pod
//! template and chunk. An entry is valid until its chunk changes. If few of its nodes changed, only these are judged and
//! scored again. The verdict of all filters is cached, too, and is valid until the chunk or the version of a filter
//! changes ([`Filter::version`](super::Filter::version)).

use std::sync::Arc;
use std::time::Duration;

use crate::model::{Generation, Template};
use crate::snapshot::{Chunk, Cluster, Column, LANES, PerChunk};

use super::by_template::ByTemplate;
use super::dispatch;
use super::filters::Versions;

/// The target size of all caches in bytes. One cache is always kept, even if it is larger.
const MAX_BYTES: usize = 4 << 20;

/// The cache entry of a chunk.
pub(super) struct Verdict {
    /// The lanes that pass the local filters.
    pub(super) mask: u64,
    /// The [layout](Cluster::layout) for which `mask` was computed.
    layout: u64,
    /// The lanes that pass all filters, and the epoch in which they were computed. Epoch 0: not computed.
    all: u64,
    epoch: u64,
    /// The lanes whose totals are stored.
    scored: u64,
    /// The largest total of the lanes that were in `mask` when they were last scored, and the lanes that have it. Some may
    /// have left `mask` since.
    largest: i64,
    best: u64,
    /// The weighted sums of the local scores that need no normalization.
    pub(super) totals: Column<i64>,
}

impl Verdict {
    /// Returns the largest total of the lanes in `mask`, and the lanes that have it.
    pub(super) fn best_among(&self, mask: u64) -> (i64, u64) {
        // The stored maximum covers more lanes if not all nodes were examined, or if some have been rejected since.
        match self.best & mask {
            0 => self.best_of(mask),
            best => (self.largest, best),
        }
    }

    /// Returns the lanes of `mask` whose totals are not stored.
    fn unscored(&self) -> u64 {
        self.mask & !self.scored
    }

    /// Returns the lanes to score: those of `mask` whose totals are not stored, or all of `mask` if these are not few.
    /// Until [`Verdict::find_best`], their totals do not count as stored: an error may leave a plugin's scores out.
    pub(super) fn begin_scoring(&mut self) -> u64 {
        let unscored = self.unscored();
        let unscored = if dispatch::are_few(unscored) { unscored } else { self.mask };
        self.scored &= !unscored;
        unscored
    }

    /// Marks the totals as stored, and finds the largest one.
    pub(super) fn find_best(&mut self) {
        self.scored = self.mask;
        (self.largest, self.best) = self.best_of(self.mask);
    }

    fn best_of(&self, mask: u64) -> (i64, u64) {
        let largest = dispatch::largest(&self.totals, mask);
        (largest, dispatch::equal(&self.totals, largest) & mask)
    }
}

/// The cache of one template. Memory for a chunk is allocated when the chunk is first examined.
#[derive(Default)]
pub(super) struct VerdictCache {
    chunks: PerChunk<Verdict>,
    /// The number of the current epoch. An epoch is a run of cycles whose filters have the same versions.
    epoch: u64,
    /// The versions of the filters that are not local.
    versions: Option<Versions>,
    /// How long the last timed chunk took to judge.
    pub(super) pace: Duration,
    /// The layout of the version that is followed.
    layout: u64,
}

impl VerdictCache {
    /// Returns the entry of a chunk, if it was computed for this generation of the chunk.
    #[inline]
    pub(super) fn get(&self, chunk: u32, at: Generation) -> Option<&Verdict> {
        self.chunks.get(chunk, at)
    }

    /// Returns the unchanged lanes that passed in an earlier state of the chunk, and the lanes that changed since. `None` if
    /// no earlier state is known, if the layout differs, or if no lane or more than a few changed.
    #[inline]
    pub(super) fn earlier(&self, chunk: u32, at: Generation, now: &Chunk) -> Option<(u64, u64)> {
        let (since, known) = self.chunks.earlier(chunk, at)?;
        let changed = dispatch::newer(now.generation(), since);
        // In another layout, a lane may hold another node, whose generation need not be newer.
        let is_known = known.layout == self.layout && changed != 0 && dispatch::are_few(changed);
        is_known.then_some((known.mask & !changed, changed))
    }

    /// Prepares the cache for a version.
    fn follow(&mut self, cluster: &Cluster) {
        self.chunks.follow(cluster);
        self.layout = cluster.layout();
    }

    /// Begins a cycle. `versions` are those of the filters that are not local, if all of them have one.
    pub(super) fn begin(&mut self, versions: Option<Versions>) {
        if versions.is_none() || versions != self.versions {
            self.epoch += 1;
        }
        self.versions = versions;
    }

    /// Returns the lanes of a chunk that pass all filters, if they are known for this cycle.
    #[inline]
    pub(super) fn all(&self, chunk: u32, at: Generation) -> Option<u64> {
        self.versions.as_ref()?;
        self.get(chunk, at).filter(|known| known.epoch == self.epoch).map(|known| known.all)
    }

    /// Stores the lanes of a chunk that pass all filters, if all filters have versions. Does nothing unless
    /// [`VerdictCache::set_mask`] was called for this generation of the chunk.
    pub(super) fn set_all(&mut self, chunk: u32, at: Generation, all: u64) {
        let epoch = self.epoch;
        if self.versions.is_some()
            && let Some(known) = self.chunks.get_mut(chunk, at)
        {
            (known.all, known.epoch) = (all, epoch);
        }
    }

    /// Stores the lanes of a chunk that pass. `judged` are the lanes that were judged again; the stored totals of the
    /// others remain valid.
    pub(super) fn set_mask(&mut self, chunk: u32, at: Generation, mask: u64, judged: u64) {
        let new = || Verdict {
            mask,
            layout: 0,
            all: 0,
            epoch: 0,
            scored: 0,
            largest: 0,
            best: 0,
            totals: [0; LANES],
        };
        let layout = self.layout;
        let verdict = self.chunks.renew(chunk, at, new);
        // A reused entry keeps `all` and `totals`, which `epoch` and `scored` mark as unset.
        (verdict.mask, verdict.layout, verdict.epoch) = (mask, layout, 0);
        verdict.scored &= !judged;
    }

    /// Returns the entries of these chunks whose masks are stored and some of whose totals are not. No chunk is named
    /// twice.
    pub(super) fn unscored_each(
        &mut self,
        chunks: impl Iterator<Item = (u32, Generation)>,
    ) -> Vec<Option<&mut Verdict>> {
        let mut all = self.chunks.get_each_mut(chunks);
        for of in &mut all {
            of.take_if(|verdict| verdict.unscored() == 0);
        }
        all
    }

    /// Returns the entry of a chunk if its mask is stored and some of its totals are not.
    pub(super) fn unscored(&mut self, chunk: u32, at: Generation) -> Option<&mut Verdict> {
        self.chunks.get_mut(chunk, at).filter(|verdict| verdict.unscored() != 0)
    }
}

/// Whether the cache of a template outlives the cycle.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    /// The cache is discarded: this pod's verdicts differ from those of its template.
    Never,
    /// The cache is kept if the template has been seen before. If each pod has a template of its own, all cycles use
    /// the same memory, and the caches of other templates stay.
    FromSecondPod,
    Always,
}

/// The number of templates that are remembered as seen once, a power of two.
const SEEN: usize = 1024;

/// The caches of all templates.
pub(super) struct Memo {
    caches: ByTemplate<VerdictCache>,
    /// The cache for pods that are not cached. Only its memory is reused.
    uncached: VerdictCache,
    /// Hashes of templates that were seen once. Several templates share an entry, which holds the latest one.
    seen: Box<[u64; SEEN]>,
}

impl Default for Memo {
    fn default() -> Memo {
        Memo {
            caches: ByTemplate::default(),
            uncached: VerdictCache::default(),
            seen: Box::new([0; SEEN]),
        }
    }
}

impl Memo {
    /// Returns the cache of a template for a cluster of `chunks` chunks, or, if it is not to be kept, an empty one that
    /// is discarded with the next such call.
    pub(super) fn cache(
        &mut self,
        (cluster, chunks): (&Cluster, usize),
        template: &Arc<Template>,
        keep: Keep,
    ) -> &mut VerdictCache {
        let is_kept = match keep {
            Keep::Never => false,
            Keep::FromSecondPod => self.caches.knows(template) || self.was_seen(template),
            Keep::Always => true,
        };
        if !is_kept {
            self.uncached.chunks.forget();
            self.uncached.follow(cluster);
            return &mut self.uncached;
        }
        self.kept((cluster, chunks), template)
    }

    /// Keeps the cache that was last returned for this template, if it was not to be kept.
    pub(super) fn keep(&mut self, of: (&Cluster, usize), template: &Arc<Template>) {
        if !self.caches.knows(template) {
            let last = std::mem::take(&mut self.uncached);
            *self.kept(of, template) = last;
        }
    }

    /// Returns the cache of a template, which outlives the cycle.
    fn kept(
        &mut self,
        (cluster, chunks): (&Cluster, usize),
        template: &Arc<Template>,
    ) -> &mut VerdictCache {
        let bytes = PerChunk::<Verdict>::bytes(chunks, cluster.chunk_bound());
        let most = (MAX_BYTES / bytes.max(1)).clamp(1, 4096);
        let (cache, is_new) = self.caches.get(template, most);
        if is_new {
            cache.chunks.forget();
        }
        cache.follow(cluster);
        // Chunks are removed together with their numbers, so most entries of such a large cache belong to chunks that
        // no longer exist.
        if cache.chunks.len() > 2 * chunks + 8 {
            cache.chunks = PerChunk::default();
            cache.follow(cluster);
        }
        cache
    }

    /// Returns whether the template was seen before, and remembers it. An earlier sighting may have been forgotten.
    fn was_seen(&mut self, template: &Template) -> bool {
        let hash = template.hash64();
        std::mem::replace(&mut self.seen[hash as usize % SEEN], hash) == hash
    }
}
