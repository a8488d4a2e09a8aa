//! Searches the feasible nodes of one pod, chunk by chunk.
//!
//! Each chunk is judged in two steps: first by the local filters, whose verdicts depend only on the node and the pod's
//! template ([`PluginInfo::local`](super::PluginInfo::local)) and may be in the [`VerdictCache`]; then by the other
//! filters, and with the pods that are nominated to nodes of the chunk. If the other filters have the same versions as
//! in an earlier cycle ([`Filter::version`](super::Filter::version)), the cache has this verdict, too.

use std::collections::HashMap;
use std::ptr;
use std::time::Instant;

use crate::model::Generation;
use crate::snapshot::{Chunk, Cluster, NodeInfo};

use super::dispatch;
use super::filters::{Filters, Scope, nodes_of};
use super::memo::VerdictCache;
use super::parallel::{Threads, Timed};
use super::sampling::{Following, Found, Judge, Order};
use super::{Cycle, Status};

/// A chunk with its number and the generation of its last change.
#[derive(Clone, Copy)]
pub(super) struct Listed<'a> {
    pub(super) id: u32,
    pub(super) at: Generation,
    pub(super) chunk: &'a Chunk,
}

/// Chunks with their feasible lanes. No mask is empty.
pub(super) type FoundChunks<'a> = Found<(Listed<'a>, u64)>;

pub(super) struct Chosen<'a> {
    pub(super) chunk: &'a Chunk,
    pub(super) lane: usize,
    pub(super) score: i64,
}

impl<'a> FoundChunks<'a> {
    /// Returns the chunks with their feasible lanes.
    pub(super) fn lanes(&self) -> Vec<(&'a Chunk, u64)> {
        self.nodes.iter().map(|(of, mask)| (of.chunk, *mask)).collect()
    }

    /// Returns the feasible nodes in chunk order.
    pub(super) fn nodes(&self, cluster: &'a Cluster) -> Vec<NodeInfo<'a>> {
        let nodes = self.nodes.iter().flat_map(|(of, mask)| nodes_of(cluster, of.chunk, *mask));
        nodes.map(|(_, node)| node).collect()
    }

    /// Removes all nodes but these.
    pub(super) fn keep(&mut self, kept: &[NodeInfo<'_>]) {
        if kept.len() == self.feasible {
            return;
        }
        let mut lanes: HashMap<*const Chunk, u64> = HashMap::new();
        for (chunk, lane) in kept.iter().map(|node| node.place()) {
            *lanes.entry(chunk).or_default() |= 1 << lane;
        }
        for (of, mask) in &mut self.nodes {
            *mask &= lanes.get(&ptr::from_ref(of.chunk)).copied().unwrap_or(0);
        }
        self.nodes.retain(|(_, mask)| *mask != 0);
        self.feasible = kept.len();
    }

    /// Returns the first feasible node, without a score.
    pub(super) fn first(&self) -> Option<Chosen<'a>> {
        let (of, mask) = self.nodes.first()?;
        Some(Chosen { chunk: of.chunk, lane: mask.trailing_zeros() as usize, score: 0 })
    }
}

/// Begins to load the columns that most searches read: resources and numbers of pods. In a large cluster, they are not
/// in the caches of the core, and loading them takes longer than judging them. Columns that the chunk shares with
/// `loaded` are left out.
fn prefetch(chunk: &Chunk, loaded: &Chunk) {
    dispatch::prefetch(&chunk.fixed.unschedulable);
    dispatch::prefetch(chunk.pods());
    dispatch::prefetch(chunk.requested_cpu());
    dispatch::prefetch(chunk.requested_memory());
    dispatch::prefetch(chunk.balance());
    if !ptr::eq(chunk.non_zero_cpu(), chunk.requested_cpu()) {
        dispatch::prefetch(chunk.non_zero_cpu());
        dispatch::prefetch(chunk.non_zero_memory());
    }
    if !ptr::eq(chunk.allocatable_cpu(), loaded.allocatable_cpu()) {
        let (cpu, memory) = chunk.reciprocals();
        dispatch::prefetch(chunk.allowed_pods());
        dispatch::prefetch(chunk.allocatable_cpu());
        dispatch::prefetch(chunk.allocatable_memory());
        dispatch::prefetch(cpu);
        dispatch::prefetch(memory);
    }
}

pub(super) struct Search<'a, 'c> {
    cycle: Cycle<'a>,
    filters: &'c Filters<'a>,
    threads: Threads<'c>,
    cache: &'c mut VerdictCache,
    /// Whether the verdicts depend on the local filters alone.
    is_local: bool,
}

/// A chunk to be judged, and its verdict.
struct Job<'a> {
    of: Listed<'a>,
    /// The lanes that the local filters have to judge.
    unjudged: u64,
    /// The other lanes that pass the local filters.
    passed: u64,
    /// The lanes that pass the local filters, once they have judged the chunk.
    local: Option<u64>,
    /// The lanes that pass all filters.
    judged: Result<u64, Status>,
}

impl Job<'_> {
    /// Returns whether all lanes have to be judged.
    fn is_new(&self) -> bool {
        self.unjudged == u64::MAX
    }
}

impl<'a, 'c> Search<'a, 'c> {
    /// Begins a search with the cache of the pod's template.
    pub(super) fn new(
        cycle: Cycle<'a>,
        filters: &'c Filters<'a>,
        threads: Threads<'c>,
        cache: &'c mut VerdictCache,
    ) -> Search<'a, 'c> {
        cache.begin(filters.versions());
        let is_local = !filters.has(Scope::Global) && filters.nominated().next().is_none();
        Search { cycle, filters, threads, cache, is_local }
    }

    /// Returns the first `enough` feasible nodes of a list.
    ///
    /// # Errors
    ///
    /// Returns an error if a plugin fails.
    pub(super) fn find_listed(
        &mut self,
        order: &mut Order,
        enough: usize,
    ) -> Result<FoundChunks<'a>, Status> {
        match enough < order.nodes() {
            true => self.find_enough(order, enough),
            false => self.find_all(order),
        }
    }

    fn find_enough(&mut self, order: &mut Order, enough: usize) -> Result<FoundChunks<'a>, Status> {
        let ahead = Vec::new().into_iter();
        let mut sample = Sample { search: self, ahead, is_timed: false, failed: None };
        let found = order.sample(enough, &mut sample);
        sample.failed.map_or(Ok(found), Err)
    }

    /// Returns all feasible nodes of a list.
    fn find_all(&mut self, order: &Order) -> Result<FoundChunks<'a>, Status> {
        let (mut nodes, mut jobs) = (Vec::with_capacity(order.chunks().len()), Vec::new());
        for (id, lanes) in order.chunks() {
            let Some(of) = self.listed(id) else { continue };
            match self.known(of) {
                Some(all) => nodes.push((of, all & lanes)),
                None => {
                    jobs.push(self.job(of));
                    nodes.push((of, lanes));
                }
            }
        }
        self.threads.for_each(Timed::Filters, &mut jobs, |job| self.judge(job));
        let mut jobs = jobs.into_iter().peekable();
        let mut failed = None;
        for (of, mask) in &mut nodes {
            if let Some(job) = jobs.next_if(|job| job.of.id == of.id) {
                match self.store(job) {
                    Ok(all) => *mask &= all,
                    Err(status) => drop(failed.get_or_insert(status)),
                }
            }
        }
        if let Some(status) = failed {
            return Err(status);
        }
        nodes.retain(|(_, mask)| *mask != 0);
        let feasible = nodes.iter().map(|(_, mask)| mask.count_ones() as usize).sum();
        Ok(Found { nodes, feasible, looked_at: order.nodes() })
    }

    /// Returns the first `enough` feasible nodes among these.
    ///
    /// # Errors
    ///
    /// Returns an error if a plugin fails.
    pub(super) fn find_named(
        &mut self,
        named: &[NodeInfo<'a>],
        enough: usize,
    ) -> Result<FoundChunks<'a>, Status> {
        let mut found: FoundChunks<'a> = Found::default();
        for node in named {
            if found.feasible >= enough {
                break;
            }
            let Some((id, at, chunk)) = self.cycle.cluster.chunk_of(*node) else { continue };
            let (_, lane) = node.place();
            found.looked_at += 1;
            let mask = self.judge_locally(chunk, 1 << lane)?;
            let mask = self.judge_globally(chunk, mask)?;
            if mask == 0 {
                continue;
            }
            let known = found.nodes.iter().position(|(of, _)| of.id == id).unwrap_or_else(|| {
                found.nodes.push((Listed { id, at, chunk }, 0));
                found.nodes.len() - 1
            });
            let (_, lanes) = &mut found.nodes[known];
            found.feasible += usize::from(mask & !*lanes != 0);
            *lanes |= mask;
            self.cache.set_mask(id, at, *lanes, u64::MAX);
        }
        // Ties are counted in this order.
        found.nodes.sort_by_key(|(of, _)| of.chunk.chunk_order());
        Ok(found)
    }

    /// Returns the lanes of a chunk that pass all filters, if they are cached.
    fn known(&self, of: Listed<'_>) -> Option<u64> {
        match self.is_local {
            true => self.cache.get(of.id, of.at).map(|known| known.mask),
            false => self.cache.all(of.id, of.at),
        }
    }

    fn job(&self, of: Listed<'a>) -> Job<'a> {
        let (passed, unjudged) = match self.cache.get(of.id, of.at) {
            Some(known) => (known.mask, 0),
            None => self.cache.earlier(of.id, of.at, of.chunk).unwrap_or((0, u64::MAX)),
        };
        Job { of, unjudged, passed, local: None, judged: Ok(0) }
    }

    /// Judges a chunk.
    fn judge(&self, job: &mut Job<'_>) {
        let chunk = job.of.chunk;
        let local = self.judge_locally(chunk, chunk.live() & job.unjudged);
        let local = local.map(|passed| passed | job.passed);
        job.local = local.as_ref().ok().copied();
        job.judged = match self.is_local {
            true => local,
            false => local.and_then(|mask| self.judge_globally(chunk, mask)),
        };
    }

    /// Caches the verdict of a chunk, and returns the lanes that pass all filters.
    fn store(&mut self, job: Job<'_>) -> Result<u64, Status> {
        let Job { of, unjudged, local, judged, .. } = job;
        if let Some(local) = local.filter(|_| unjudged != 0) {
            self.cache.set_mask(of.id, of.at, local, unjudged);
        }
        if let (Ok(all), false) = (&judged, self.is_local) {
            self.cache.set_all(of.id, of.at, *all);
        }
        judged
    }

    /// Begins to load the chunk that follows this one, unless it is cached, and the pointers to the columns of the one
    /// after it.
    fn prefetch(&self, now: &Chunk, following: &Following<'_>) {
        let [next, second] = following.ids().map(|next| self.listed(next?));
        if let Some(next) = next.filter(|next| self.cache.get(next.id, next.at).is_none()) {
            prefetch(next.chunk, now);
        }
        if let Some(second) = second {
            dispatch::prefetch(second.chunk);
        }
    }

    /// Returns the lanes of `mask` that pass the local filters.
    fn judge_locally(&self, chunk: &Chunk, mask: u64) -> Result<u64, Status> {
        self.filters.judge_chunk(Scope::Local, self.cycle.cluster, chunk, mask)
    }

    /// Returns the lanes of `mask` that pass the other filters, also with the pods nominated to them.
    fn judge_globally(&self, chunk: &Chunk, mask: u64) -> Result<u64, Status> {
        let passed = self.filters.judge_chunk(Scope::Global, self.cycle.cluster, chunk, mask)?;
        self.filters.keep_with_nominated(chunk, passed)
    }

    fn listed(&self, id: u32) -> Option<Listed<'a>> {
        let (at, chunk) = self.cycle.cluster.listed_chunk(id)?;
        Some(Listed { id, at, chunk })
    }
}

/// Judges the chunks that a sample reaches.
struct Sample<'s, 'a, 'c> {
    search: &'s mut Search<'a, 'c>,
    /// The verdicts of the chunks that were judged together, in the order in which they are reached.
    ahead: std::vec::IntoIter<(u32, Result<u64, Status>)>,
    is_timed: bool,
    failed: Option<Status>,
}

impl<'a> Sample<'_, 'a, '_> {
    /// Judges a chunk that is not cached. Prefetches the chunks that follow, which are then probably not cached either.
    fn judge_now(&mut self, of: Listed<'a>, following: &Following<'_>) -> Result<u64, Status> {
        let search = &mut *self.search;
        let mut job = search.job(of);
        // A chunk of which few nodes changed takes less time than others.
        let is_timed = job.is_new() && search.threads.are_several() && !self.is_timed;
        let started = is_timed.then(Instant::now);
        if job.is_new() {
            search.prefetch(of.chunk, following);
        }
        search.judge(&mut job);
        if let Some(started) = started {
            search.cache.pace = started.elapsed();
            self.is_timed = true;
        }
        search.store(job)
    }
}

impl<'a> Judge<Listed<'a>> for Sample<'_, 'a, '_> {
    fn begin(&mut self, most: usize, chunks: impl Iterator<Item = u32>) {
        let search = &mut *self.search;
        let threads = search.threads;
        if !threads.are_worthwhile(search.cache.pace, most) {
            return;
        }
        let listed = chunks.filter_map(|id| search.listed(id));
        let unknown = listed.filter(|of| search.known(*of).is_none());
        let mut jobs: Vec<Job<'a>> = unknown.map(|of| search.job(of)).collect();
        let Some((first, rest)) = jobs.split_first_mut() else { return };
        // The pace may be that of another pod.
        let started = Instant::now();
        search.judge(first);
        if first.is_new() {
            search.cache.pace = started.elapsed();
            self.is_timed = true;
        }
        threads.share(rest, search.cache.pace, |job| search.judge(job));
        let judged = jobs.into_iter().map(|job| (job.of.id, search.store(job)));
        self.ahead = judged.collect::<Vec<_>>().into_iter();
    }

    fn judge(&mut self, id: u32, following: Following<'_>) -> Option<(Listed<'a>, u64)> {
        // The list was refreshed for this version, so the chunk exists.
        let of = self.search.listed(id)?;
        let judged = match self.ahead.as_slice() {
            [(next, _), ..] if *next == id => self.ahead.next()?.1,
            _ => match self.search.known(of) {
                Some(all) => Ok(all),
                None => self.judge_now(of, &following),
            },
        };
        match judged {
            Ok(mask) => Some((of, mask)),
            Err(status) => {
                self.failed.get_or_insert(status);
                None
            }
        }
    }
}
