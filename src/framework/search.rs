//! Searches the feasible nodes of one pod, chunk by chunk.
//!
//! Each chunk is judged in two steps: first by the local filters, whose verdicts depend only on the node and the pod's
//! template ([`PluginInfo::local`](super::PluginInfo::local)) and may be in the [`VerdictCache`]; then by the other
//! filters, and with the pods that are nominated to nodes of the chunk. If the other filters have the same versions as
//! in an earlier cycle ([`Filter::version`](super::Filter::version)), the cache has this verdict, too.

use std::collections::HashMap;

use crate::model::Generation;
use crate::snapshot::{Chunk, Cluster, NodeInfo};

use super::dispatch;
use super::filters::{Filters, Scope, nodes_of};
use super::memo::VerdictCache;
use super::parallel::Threads;
use super::sampling::{Following, Found, Order};
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

/// The chosen node.
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
            *mask &= lanes.get(&std::ptr::from_ref(of.chunk)).copied().unwrap_or(0);
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
/// in the caches of the core, and loading them takes longer than judging them.
fn prefetch(chunk: &Chunk) {
    dispatch::prefetch(&chunk.fixed.unschedulable);
    dispatch::prefetch(chunk.allowed_pods());
    dispatch::prefetch(chunk.pods());
    for column in [
        chunk.allocatable_cpu(),
        chunk.requested_cpu(),
        chunk.allocatable_memory(),
        chunk.requested_memory(),
        chunk.non_zero_cpu(),
        chunk.non_zero_memory(),
    ] {
        dispatch::prefetch(column);
    }
    let (cpu, memory) = chunk.reciprocals();
    dispatch::prefetch(cpu);
    dispatch::prefetch(memory);
    dispatch::prefetch(chunk.balance());
}

/// The search for one pod.
pub(super) struct Search<'a, 'c> {
    cycle: Cycle<'a>,
    filters: &'c Filters<'a>,
    threads: Threads<'c>,
    cache: &'c mut VerdictCache,
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
        Search { cycle, filters, threads, cache }
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
        let mut failed = None;
        let is_local = self.is_local();
        let found = order.sample(enough, |id, following| {
            // The list was refreshed for this version, so the chunk exists.
            let of = self.listed(id)?;
            let judged = if is_local {
                self.cached(of, &following)
            } else {
                match self.cache.all(of.id, of.at) {
                    Some(all) => Ok(all),
                    None => self.cached(of, &following).and_then(|mask| self.judge_all(of, mask)),
                }
            };
            match judged {
                Ok(mask) => Some((of, mask)),
                Err(status) => {
                    failed.get_or_insert(status);
                    None
                }
            }
        });
        failed.map_or(Ok(found), Err)
    }

    /// Returns all feasible nodes of a list. Judges the chunks on several threads.
    fn find_all(&mut self, order: &Order) -> Result<FoundChunks<'a>, Status> {
        let listed = order.chunks().filter_map(|(id, lanes)| Some((self.listed(id)?, lanes)));
        let mut nodes: Vec<(Listed<'a>, u64)> = listed.collect();
        let unknown = nodes.iter().filter(|(of, _)| self.cache.get(of.id, of.at).is_none());
        let unknown: Vec<Listed<'a>> = unknown.map(|(of, _)| *of).collect();
        let masks =
            self.threads.try_map(&unknown, |of| self.judge_locally(of.chunk, of.chunk.live()))?;
        for (of, mask) in unknown.iter().zip(masks) {
            self.cache.set_mask(of.id, of.at, mask);
        }
        for (of, mask) in &mut nodes {
            *mask &= self.cache.get(of.id, of.at).map_or(0, |known| known.mask);
        }
        if !self.is_local() {
            let unknown = nodes.iter().filter(|(of, _)| self.cache.all(of.id, of.at).is_none());
            let unknown: Vec<Listed<'a>> = unknown.map(|(of, _)| *of).collect();
            let masks = self.threads.try_map(&unknown, |of| {
                let mask = self.cache.get(of.id, of.at).map_or(0, |known| known.mask);
                self.judge_globally(of.chunk, mask)
            })?;
            let mut judged = masks.iter();
            for (of, mask) in &mut nodes {
                let known = self.cache.all(of.id, of.at);
                *mask &= known.or_else(|| judged.next().copied()).unwrap_or(0);
            }
            for (of, all) in unknown.iter().zip(masks) {
                self.cache.set_all(of.id, of.at, all);
            }
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
            self.cache.set_mask(id, at, *lanes);
        }
        // Ties are counted in this order.
        found.nodes.sort_by_key(|(of, _)| of.chunk.chunk_order());
        Ok(found)
    }

    /// Returns whether the verdicts depend on the local filters alone.
    fn is_local(&self) -> bool {
        !self.filters.has(Scope::Global) && self.filters.nominated().next().is_none()
    }

    /// Begins to load the next chunk, unless it is cached, and the pointers to the columns of the one after it.
    fn prefetch(&self, following: &Following<'_>) {
        let [next, second] = following.ids().map(|next| self.listed(next?));
        if let Some(next) = next.filter(|next| self.cache.get(next.id, next.at).is_none()) {
            prefetch(next.chunk);
        }
        if let Some(second) = second {
            dispatch::prefetch(second.chunk);
        }
    }

    /// Returns the lanes of a chunk that pass the local filters, from the cache if it knows them. Otherwise judges the
    /// chunk, and prefetches the chunks that follow, which are then probably not cached either.
    fn cached(&mut self, of: Listed<'_>, following: &Following<'_>) -> Result<u64, Status> {
        if let Some(known) = self.cache.get(of.id, of.at) {
            return Ok(known.mask);
        }
        self.prefetch(following);
        let mask = self.judge_locally(of.chunk, of.chunk.live())?;
        self.cache.set_mask(of.id, of.at, mask);
        Ok(mask)
    }

    /// Returns the lanes of `mask` that pass the local filters.
    fn judge_locally(&self, chunk: &Chunk, mask: u64) -> Result<u64, Status> {
        self.filters.judge_chunk(Scope::Local, self.cycle.cluster, chunk, mask)
    }

    /// Returns the lanes of `mask`, which has all lanes that pass the local filters, that also pass the other ones, and
    /// caches them.
    fn judge_all(&mut self, of: Listed<'_>, mask: u64) -> Result<u64, Status> {
        let all = self.judge_globally(of.chunk, mask)?;
        self.cache.set_all(of.id, of.at, all);
        Ok(all)
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
