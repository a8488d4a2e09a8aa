//! The scheduling cycle: filter, score, choose (schedule_one.go).

use std::sync::{Arc, Mutex, PoisonError};

use rayon::prelude::*;

use crate::model::{Generation, Name, Pod, stable_hash_of};
use crate::snapshot::{Chunk, Cluster, Column, LANES, NodeInfo, NodeSlot, lanes};

use super::dispatch;
use super::filters::{Filters, code};
use super::godel::preferred::preferred;
use super::godel::workflow::Admission;
use super::godel::{Partition, Preferred, SubCluster};
use super::memo::{Memo, VerdictCache};
use super::recorder::{Step, timed_step};
use super::sampling::{Order, Sample, num_feasible_nodes_to_find};
use super::scores::{Given, Scorer, Scores, in_range};
use super::{
    Cycle, CycleState, Diagnosis, Feasible, FitError, Framework, Point, Score, ScoredNodes, Status,
};

/// From so many chunks on the pool is worth its call: measured, 512 nodes take
/// longer through it than alone.
const WORTH_THE_POOL: usize = 64;

/// How an [`Algorithm`] decides.
#[derive(Clone, Debug, Default)]
pub struct AlgorithmConfig {
    /// `percentageOfNodesToScore`; 0 adapts to the number of nodes.
    pub percentage_of_nodes: u8,
    /// Breaks ties: the same seed gives the same choice, whatever the threads.
    pub seed: u64,
}

/// Decides for one pod after another.
///
/// Which nodes are looked at, their scores and the choice among equals depend
/// on the cluster, the pods before and the seed, never on the number of
/// threads.
pub struct Algorithm {
    framework: Arc<Framework>,
    config: AlgorithmConfig,
    pool: Option<Arc<rayon::ThreadPool>>,
    /// How many cycles there were.
    cycles: u64,
    memo: Memo,
    partition: Option<Partition>,
    admission: Option<Admission>,
    /// All nodes, or those of the sub-cluster; where there is a partition its own, and the others.
    orders: Vec<Order>,
}

/// A node for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The node.
    pub node: Name,
    /// Its number.
    pub slot: NodeSlot,
    /// Its total score; 0 where it was the only one.
    pub score: i64,
    /// How many nodes would do, of those looked at.
    pub feasible: usize,
    /// How many were looked at.
    pub looked_at: usize,
    /// Why it came before all others, if it did.
    pub preferred: Option<Preferred>,
}

/// Why a pod cannot be placed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// The cluster has no node.
    #[error("no nodes available to schedule pods")]
    NoNodes,
    /// No node will do.
    #[error(transparent)]
    Fit(Box<FitError>),
    /// A plugin failed, and nothing is decided.
    #[error(transparent)]
    Plugin(#[from] Status),
}

impl Algorithm {
    /// A scheduler that evaluates on the calling thread, and on `pool` where
    /// there is much to evaluate.
    ///
    /// ```
    /// use portolan::framework::{Algorithm, AlgorithmConfig, Framework};
    /// use portolan::model::{node, pod};
    /// use portolan::{Config, Engine};
    ///
    /// let (mut writer, reader) = Engine::inline(Config::default());
    /// writer.add_node(node("small").cpu(1_000).memory(1 << 30).build())?;
    /// writer.add_node(node("large").cpu(8_000).memory(8 << 30).build())?;
    /// writer.publish();
    ///
    /// let mut scheduler =
    ///     Algorithm::new(Framework::default_profile(), AlgorithmConfig::default(), None);
    /// let pod = pod("web-0").cpu(2_000).memory(1 << 20).build();
    /// let decision = scheduler.schedule(&reader.snapshot(), &pod)?;
    /// writer.assume_pod(pod.on(decision.node))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn new(
        framework: impl Into<Arc<Framework>>,
        config: AlgorithmConfig,
        pool: Option<Arc<rayon::ThreadPool>>,
    ) -> Algorithm {
        let framework = framework.into();
        Algorithm {
            framework,
            config,
            pool,
            cycles: 0,
            memo: Memo::default(),
            partition: None,
            admission: None,
            orders: vec![Order::default()],
        }
    }

    /// With a part of the nodes that is tried before the others.
    ///
    /// ```
    /// use std::num::NonZeroU32;
    /// use portolan::framework::{Algorithm, AlgorithmConfig, Framework, Partition};
    ///
    /// // Two schedulers of one engine.
    /// let of = NonZeroU32::new(2).ok_or("two")?;
    /// let schedulers = [0, 1].map(|index| {
    ///     Algorithm::new(Framework::default_profile(), AlgorithmConfig::default(), None)
    ///         .with_partition(Partition::Share { index, of })
    /// });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_partition(mut self, partition: Partition) -> Algorithm {
        self.partition = Some(partition);
        self.orders = vec![Order::default(), Order::default()];
        self
    }

    /// For the nodes of a sub-cluster: pods go there alone, as if their node selectors
    /// said it; so the profile has to have NodeAffinity, or what looks at all nodes
    /// (preemption, spread) does not know of it. A pod whose selector asks for another
    /// sub-cluster has no nodes.
    #[must_use]
    pub fn with_sub_cluster(mut self, sub_cluster: SubCluster) -> Algorithm {
        self.admission = Some(Admission::new(sub_cluster));
        self
    }

    /// The framework.
    #[must_use]
    pub fn framework(&self) -> &Arc<Framework> {
        &self.framework
    }

    /// How it decides.
    pub(super) fn config(&self) -> &AlgorithmConfig {
        &self.config
    }

    /// Which nodes are tried first.
    pub(super) fn partition(&self) -> Option<&Partition> {
        self.partition.as_ref()
    }

    /// The nodes that it has to do with; all where there is none.
    pub(super) fn sub_cluster(&self) -> Option<&SubCluster> {
        self.admission.as_ref().map(|admission| &admission.sub_cluster)
    }

    /// The lists of nodes, those that are tried first before the others.
    pub(super) fn orders(&self) -> &[Order] {
        &self.orders
    }

    /// The state of a new cycle, for [`Algorithm::decide`].
    pub fn state(&mut self) -> CycleState {
        self.cycles += 1;
        self.framework.state(self.cycles)
    }

    /// A node for the pod, by the version given. What plugins kept for the pod is
    /// gone with the call: see [`Algorithm::decide`] where they reserve and bind.
    ///
    /// # Errors
    ///
    /// There is no node, or none will do, with the reasons counted; or a plugin
    /// failed.
    pub fn schedule(&mut self, cluster: &Cluster, pod: &Pod) -> Result<Decision, ScheduleError> {
        let state = self.state();
        self.decide(Cycle::new(cluster, pod, &state))
    }

    /// A node for the pod of a cycle. A pod that is nominated to a node goes
    /// there if that node will do. Where none will do, plugins are asked to change
    /// that ([`Framework::post_filter`]).
    ///
    /// # Errors
    ///
    /// As of [`Algorithm::schedule`].
    pub fn decide(&mut self, cycle: Cycle<'_>) -> Result<Decision, ScheduleError> {
        self.decide_or(cycle, post_filter)
    }

    /// The same without PostFilter: nobody makes room for the pod.
    ///
    /// # Errors
    ///
    /// As of [`Algorithm::schedule`].
    pub fn decide_as_it_is(&mut self, cycle: Cycle<'_>) -> Result<Decision, ScheduleError> {
        let fits_nowhere = |_: &Framework, _: Cycle<'_>, filters: &Filters<'_>| {
            ScheduleError::Fit(Box::new(filters.fit_error()))
        };
        self.decide_or(cycle, fits_nowhere)
    }

    /// Brings the lists of nodes up to date.
    fn refresh(&mut self, cluster: &Cluster) {
        let partition = self.partition.as_ref();
        let sub_cluster = self.admission.as_ref().map(|admission| &admission.sub_cluster);
        for (at, order) in self.orders.iter_mut().enumerate() {
            order.refresh(cluster, |chunk| {
                let live = chunk.live();
                let all = sub_cluster.map_or(live, |of| of.lanes(cluster, chunk, live));
                let Some(own) = partition else { return all };
                let own = own.lanes(cluster, chunk, all);
                if at == 0 { own } else { all & !own }
            });
        }
    }

    fn decide_or(
        &mut self,
        cycle: Cycle<'_>,
        fits_nowhere: fn(&Framework, Cycle<'_>, &Filters<'_>) -> ScheduleError,
    ) -> Result<Decision, ScheduleError> {
        self.refresh(cycle.cluster);
        let sub_cluster = self.admission.as_ref().map(|admission| admission.sub_cluster.clone());
        let sub_cluster = sub_cluster.as_ref();
        if self.orders.iter().all(|order| order.nodes() == 0)
            || sub_cluster.is_some_and(|of| of.excludes(cycle.pod))
        {
            return Err(ScheduleError::NoNodes);
        }
        let is_within = |node: &NodeInfo<'_>| sub_cluster.is_none_or(|of| of.includes(*node));
        let admitted = self.admission.as_mut().and_then(|admission| admission.admit(cycle.pod));
        let cycle = Cycle { pod: admitted.as_ref().unwrap_or(cycle.pod), ..cycle };
        let filters = self.framework.pre_filter(cycle);
        match filters.rejected() {
            Some(status) if !status.code.is_rejection() => return Err(status.clone().into()),
            Some(_) => {
                self.framework.after_filter(cycle, &filters, Vec::new)?;
                return Err(fits_nowhere(&self.framework, cycle, &filters));
            }
            None => {}
        }
        let nominated = cycle.pod.nominated_node_name.as_ref();
        let nominated = nominated.and_then(|name| cycle.cluster.node(name)).filter(is_within);
        if let Some(node) = nominated.filter(|node| filters.filter_with_nominated(*node).is_none())
        {
            self.framework.after_filter(cycle, &filters, || lane_of(node))?;
            return Ok(Decision {
                node: node.name().clone(),
                slot: node.slot(),
                score: 0,
                feasible: 1,
                looked_at: 1,
                preferred: None,
            });
        }
        if let Some(decision) = preferred(&self.framework, cycle, &filters, is_within)? {
            let node = || cycle.cluster.node(&decision.node);
            self.framework
                .after_filter(cycle, &filters, || node().map_or_else(Vec::new, lane_of))?;
            return Ok(decision);
        }
        let chunks = self.orders.iter().map(|order| order.chunks().len()).sum();
        let keep = cycle.pod.node_name.is_none() && filters.names().is_none();
        let cache = self.memo.cache((cycle.cluster, chunks), &cycle.pod.template, keep);
        let search = Search {
            framework: &self.framework,
            pool: self.pool.as_deref(),
            cycle,
            sub_cluster,
            seed: self.config.seed,
        };
        let enough = |nodes: usize| match self.framework.has_plugins_at(Point::Score) {
            true => num_feasible_nodes_to_find(nodes, self.config.percentage_of_nodes),
            false => 1,
        };
        let recorder = self.framework.recorder();
        let (chunks, found) = timed_step(recorder, Step::Filter, code, || {
            if let Some(names) = filters.names() {
                let found = search.find_only(&filters, names, enough(names.len()), cache)?;
                // Kube-scheduler, too, goes on after them in its list of all nodes.
                self.orders[0].go_on(found.1.looked_at);
                return Ok(found);
            }
            let mut found = (Vec::new(), Sample::default());
            for order in &mut self.orders {
                let looked_at = found.1.looked_at;
                found = search.find(&filters, cache, order, enough(order.nodes()))?;
                order.go_on(found.1.looked_at);
                found.1.looked_at += looked_at;
                if found.1.feasible > 0 {
                    break;
                }
            }
            Ok(found)
        })?;
        let feasible = || {
            let masked = chunks.iter().zip(&found.masks).filter(|(_, mask)| **mask != 0);
            masked.map(|(of, mask)| (of.chunk, *mask)).collect()
        };
        self.framework.after_filter(cycle, &filters, feasible)?;
        if found.feasible == 0 {
            return Err(fits_nowhere(&self.framework, cycle, &filters));
        }
        let (chunk, lane, score) = if found.feasible == 1 {
            let at = found.masks.iter().position(|mask| *mask != 0).unwrap_or_default();
            (at, found.masks[at].trailing_zeros() as usize, 0)
        } else {
            timed_step(recorder, Step::Score, code, || search.choose(cache, &chunks, &found))?
        };
        let chunk = chunks[chunk].chunk;
        let node = cycle.cluster.node_in(chunk, lane);
        Ok(Decision {
            node: node.map(|node| node.name().clone()).unwrap_or_default(),
            slot: chunk.slot()[lane],
            score,
            feasible: found.feasible,
            looked_at: found.looked_at,
            preferred: None,
        })
    }
}

/// A node as the only feasible one.
fn lane_of(node: NodeInfo<'_>) -> Vec<(&Chunk, u64)> {
    let (chunk, lane) = node.place();
    vec![(chunk, 1 << lane)]
}

/// The error of a pod for which no node will do, after plugins tried to change
/// that.
fn post_filter(framework: &Framework, cycle: Cycle<'_>, filters: &Filters<'_>) -> ScheduleError {
    let mut error = filters.fit_error();
    if framework.has_plugins_at(Point::PostFilter) {
        let (nomination, status) = framework.post_filter(cycle, &Diagnosis::new(filters));
        (error.nomination, error.post_filter) = (nomination, status);
    }
    ScheduleError::Fit(Box::new(error))
}

/// A chunk, its number, and when it was last touched.
#[derive(Clone, Copy)]
struct Listed<'a> {
    id: u32,
    at: Generation,
    chunk: &'a Chunk,
}

impl AsRef<Chunk> for Listed<'_> {
    fn as_ref(&self) -> &Chunk {
        self.chunk
    }
}

/// One pod's decision.
struct Search<'a> {
    framework: &'a Framework,
    pool: Option<&'a rayon::ThreadPool>,
    cycle: Cycle<'a>,
    sub_cluster: Option<&'a SubCluster>,
    seed: u64,
}

/// The failure of what comes first in order, whoever met one first.
#[derive(Default)]
struct Failed(Mutex<Option<(usize, Status)>>);

impl Failed {
    /// The result, or nothing and the failure kept.
    fn keep<T: Default>(&self, at: usize, result: Result<T, Status>) -> T {
        result.unwrap_or_else(|status| {
            let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if first.as_ref().is_none_or(|(known, _)| at < *known) {
                *first = Some((at, status));
            }
            T::default()
        })
    }

    fn check(self) -> Result<(), Status> {
        match self.0.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some((_, status)) => Err(status),
            None => Ok(()),
        }
    }
}

impl<'a> Search<'a> {
    /// Looks for `enough` nodes of a list that will do. What local filters say is noted
    /// in the cache.
    fn find(
        &self,
        filters: &Filters<'_>,
        cache: &mut VerdictCache,
        order: &mut Order,
        enough: usize,
    ) -> Result<(Vec<Listed<'a>>, Sample), Status> {
        let cluster = self.cycle.cluster;
        let listed = |id| cluster.listed_chunk(id).map(|(at, chunk)| Listed { id, at, chunk });
        let locally =
            |of: Listed<'_>| filters.judge_chunk(true, cluster, of.chunk, of.chunk.live());
        let others = |of: Listed<'_>, mask: u64| {
            let passed = filters.judge_chunk(false, cluster, of.chunk, mask)?;
            filters.keep_with_nominated(of.chunk, passed)
        };
        let failed = Failed::default();
        if enough < order.nodes() {
            let mut at = 0;
            let judge = |id: u32| {
                // The order is this version's: the chunk is there.
                let Some(of) = listed(id) else { return (0, None) };
                at += 1;
                let mut mask = || {
                    let mask = match cache.mask(of.id, of.at) {
                        Some(mask) => mask,
                        None => {
                            let mask = locally(of)?;
                            cache.set_mask(of.id, of.at, mask);
                            mask
                        }
                    };
                    others(of, mask)
                };
                (failed.keep(at, mask()), Some(of))
            };
            let (chunks, found) = order.sample(enough, judge);
            failed.check()?;
            return Ok((chunks.into_iter().map_while(|of| of).collect(), found));
        }
        let chunks: Vec<Listed<'_>> = order.chunks().filter_map(|(id, _)| listed(id)).collect();
        let mut masks: Vec<u64> = Vec::with_capacity(chunks.len());
        let mut unknown: Vec<(usize, Listed<'_>)> = Vec::new();
        for (part, of) in chunks.iter().enumerate() {
            masks.push(cache.mask(of.id, of.at).unwrap_or_else(|| {
                unknown.push((part, *of));
                0
            }));
        }
        let judged = self.map(&unknown, |(part, of)| failed.keep(*part, locally(*of)));
        failed.check()?;
        for (mask, (part, of)) in judged.into_iter().zip(&unknown) {
            cache.set_mask(of.id, of.at, mask);
            masks[*part] = mask;
        }
        for (mask, (_, in_list)) in masks.iter_mut().zip(order.chunks()) {
            *mask &= in_list;
        }
        if filters.has(false) || filters.nominated().next().is_some() {
            let both: Vec<(usize, u64, Listed<'_>)> =
                masks.iter().zip(&chunks).enumerate().map(|(at, (m, of))| (at, *m, *of)).collect();
            let failed = Failed::default();
            masks = self.map(&both, |(at, mask, of)| failed.keep(*at, others(*of, *mask)));
            failed.check()?;
        }
        let feasible = masks.iter().map(|mask| mask.count_ones() as usize).sum();
        Ok((chunks, Sample { masks, looked_at: order.nodes(), feasible }))
    }

    /// Looks at the nodes that are named alone, until `enough` will do.
    fn find_only(
        &self,
        filters: &Filters<'_>,
        names: &[Name],
        enough: usize,
        cache: &mut VerdictCache,
    ) -> Result<(Vec<Listed<'a>>, Sample), Status> {
        let cluster = self.cycle.cluster;
        let mut chunks: Vec<Listed<'_>> = Vec::new();
        let mut found = Sample::default();
        let is_within = |node: &NodeInfo<'_>| self.sub_cluster.is_none_or(|of| of.includes(*node));
        for node in names.iter().filter_map(|name| cluster.node(name)).filter(is_within) {
            if found.feasible >= enough {
                break;
            }
            let Some((id, at, chunk)) = cluster.chunk_of(node) else { continue };
            let (_, lane) = node.place();
            found.looked_at += 1;
            let mask = filters.judge_chunk(true, cluster, chunk, 1 << lane)?;
            let bit = filters.judge_chunk(false, cluster, chunk, mask)?;
            let bit = filters.keep_with_nominated(chunk, bit)?;
            let part = chunks.iter().position(|known| known.id == id).unwrap_or_else(|| {
                chunks.push(Listed { id, at, chunk });
                found.masks.push(0);
                chunks.len() - 1
            });
            found.feasible += usize::from(bit & !found.masks[part] != 0);
            found.masks[part] |= bit;
            cache.set_mask(id, at, found.masks[part]);
        }
        Ok((chunks, found))
    }

    fn is_worth_the_pool(&self, chunks: usize) -> bool {
        let threads = self.pool.map_or(1, rayon::ThreadPool::current_num_threads);
        chunks >= WORTH_THE_POOL && threads > 1
    }

    /// Maps in order, through the pool where that is worth it.
    fn map<T: Sync, R: Send>(&self, items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
        match self.pool {
            Some(pool) if self.is_worth_the_pool(items.len()) => {
                let part = items.len().div_ceil(pool.current_num_threads() * 4);
                pool.install(|| items.par_iter().with_min_len(part).map(&work).collect())
            }
            _ => items.iter().map(work).collect(),
        }
    }

    /// The node with the highest total; among equals the one that the seed
    /// picks for this pod (kube-scheduler leaves it to the order of its heap).
    fn choose(
        &self,
        cache: &mut VerdictCache,
        chunks: &[Listed<'_>],
        found: &Sample,
    ) -> Result<(usize, usize, i64), Status> {
        let cluster = self.cycle.cluster;
        let live: Vec<usize> = (0..chunks.len()).filter(|at| found.masks[*at] != 0).collect();
        let feasible = live.iter().map(|at| (chunks[*at].chunk, found.masks[*at])).collect();
        let feasible = Feasible::new(cluster, feasible);
        let scores = self.framework.pre_score(self.cycle, &feasible)?;
        let mut all = 0;
        // What can be kept, and what is asked of these nodes alone.
        let (mut kept, mut asked) = (Vec::new(), Vec::new());
        for scorer in &scores.each {
            match &scorer.score {
                Given::All(score) => all += score * scorer.weight,
                Given::Each(score) if scorer.is_local && !scorer.needs_normalize => {
                    kept.push((scorer, &**score));
                }
                Given::Each(score) => asked.push((scorer, &**score)),
            }
        }
        let add_all = |of: Listed<'_>, mask: u64, totals: &mut Column<i64>| {
            scores.together(|plugin| {
                for (scorer, score) in &kept {
                    plugin.set(scorer.plugin);
                    let (asked, mut column) = ((scorer.plugin, Step::Score), [0; LANES]);
                    let work = || score.score_chunk(cluster, of.chunk, mask, &mut column);
                    let scored = scores.watch.time(asked, code, work);
                    scored.map_err(|status| scorer.failed(status))?;
                    let leaves = dispatch::add_weighted(totals, &column, scorer.weight) & mask;
                    lanes(leaves)
                        .try_for_each(|lane| in_range(scorer.plugin, column[lane]).map(drop))?;
                }
                Ok(())
            })
        };
        let unknown = || {
            let live = live.iter().map(|at| chunks[*at]);
            live.filter(|of| !cache.known_of(of.id).is_scored)
        };
        if self.is_worth_the_pool(unknown().count()) {
            let unknown: Vec<Listed<'_>> = unknown().collect();
            let masked = unknown.iter().enumerate();
            let masked: Vec<_> =
                masked.map(|(at, of)| (at, *of, cache.known_of(of.id).mask)).collect();
            let failed = Failed::default();
            let scored = self.map(&masked, |(at, of, mask)| {
                let mut totals = [0; LANES];
                failed.keep(*at, add_all(*of, *mask, &mut totals));
                totals
            });
            failed.check()?;
            for (totals, (_, of, _)) in scored.into_iter().zip(masked) {
                let known = cache.known(of.id);
                known.totals = totals;
                known.finish();
            }
        } else {
            for of in live.iter().map(|at| chunks[*at]) {
                let known = cache.known(of.id);
                if known.is_scored {
                    continue;
                }
                known.totals = [0; LANES];
                add_all(of, known.mask, &mut known.totals)?;
                known.finish();
            }
        }
        let cache = &*cache;
        if asked.is_empty() {
            let parts = live.iter().map(|at| {
                let (known, mask) = (cache.known_of(chunks[*at].id), found.masks[*at]);
                // Fewer lanes than are known: not all nodes were looked at.
                let largest = match mask == known.mask {
                    true => known.largest,
                    false => dispatch::largest(&known.totals, mask),
                };
                Part { at: *at, mask, totals: &known.totals, largest }
            });
            return Ok(self.pick(&parts.collect::<Vec<_>>(), all));
        }
        let mut totals: Vec<Column<i64>> =
            live.iter().map(|at| cache.known_of(chunks[*at].id).totals).collect();
        for (scorer, score) in asked {
            let failed = Failed::default();
            let columns = self.map(&live, |at| {
                let (of, mask, mut column) = (chunks[*at], found.masks[*at], [0; LANES]);
                let scored = self.score_chunk(&scores, (scorer, score), of, mask, &mut column);
                failed.keep(*at, scored);
                column
            });
            failed.check()?;
            if !scorer.needs_normalize {
                for ((total, column), at) in totals.iter_mut().zip(&columns).zip(&live) {
                    let leaves = dispatch::add_weighted(total, column, scorer.weight);
                    for lane in lanes(leaves & found.masks[*at]) {
                        in_range(scorer.plugin, column[lane])?;
                    }
                }
                continue;
            }
            // Each chunk's feasible lanes, one after the other.
            let mut all = Vec::with_capacity(found.feasible);
            for (at, column) in live.iter().zip(&columns) {
                match found.masks[*at] {
                    u64::MAX => all.extend_from_slice(column),
                    mask => all.extend(lanes(mask).map(|lane| column[lane])),
                }
            }
            scorer.normalize(score, scores.watch, &ScoredNodes::feasible(&feasible), &mut all)?;
            let mut values = &all[..];
            for (at, total) in live.iter().zip(&mut totals) {
                let mask = found.masks[*at];
                let (these, others) = values.split_at(mask.count_ones() as usize);
                values = others;
                let mut column = [0; LANES];
                match mask {
                    u64::MAX => column.copy_from_slice(these),
                    _ => lanes(mask).zip(these).for_each(|(lane, value)| column[lane] = *value),
                }
                let leaves = dispatch::add_weighted(total, &column, scorer.weight) & mask;
                lanes(leaves)
                    .try_for_each(|lane| in_range(scorer.plugin, column[lane]).map(drop))?;
            }
        }
        let parts = live.iter().zip(&totals).map(|(at, totals)| {
            let mask = found.masks[*at];
            Part { at: *at, mask, totals, largest: dispatch::largest(totals, mask) }
        });
        Ok(self.pick(&parts.collect::<Vec<_>>(), all))
    }

    /// What a plugin gives the lanes of a chunk.
    fn score_chunk(
        &self,
        scores: &Scores<'_>,
        (scorer, score): Asked<'_>,
        of: Listed<'_>,
        mask: u64,
        column: &mut Column<i64>,
    ) -> Result<(), Status> {
        let asked = (scorer.plugin, Step::Score);
        let scored = scores
            .watch
            .ask(asked, code, || score.score_chunk(self.cycle.cluster, of.chunk, mask, column));
        scored.map_err(|status| scorer.failed(status))
    }

    /// One of the lanes with the highest total: position of its chunk, lane,
    /// and that total with `all` added.
    fn pick(&self, parts: &[Part<'_>], all: i64) -> (usize, usize, i64) {
        let best = parts.iter().map(|part| part.largest).max().unwrap_or_default();
        let ties: Vec<(usize, u64)> = parts
            .iter()
            .filter(|part| part.largest == best)
            .map(|part| (part.at, dispatch::equal(part.totals, best) & part.mask))
            .collect();
        let count: u64 = ties.iter().map(|(_, ties)| u64::from(ties.count_ones())).sum();
        let random = u128::from(stable_hash_of(&(self.seed, self.cycle.pod.uid.stable_key())));
        let mut pick = ((random * u128::from(count)) >> 64) as u32;
        for (at, ties) in ties {
            if pick < ties.count_ones() {
                return (at, lanes(ties).nth(pick as usize).unwrap_or_default(), best + all);
            }
            pick -= ties.count_ones();
        }
        (0, 0, best + all)
    }
}

/// A plugin that scores, and how.
type Asked<'a> = (&'a Scorer<'a>, &'a dyn Score);

/// A chunk with feasible lanes, and their totals.
struct Part<'a> {
    at: usize,
    mask: u64,
    totals: &'a Column<i64>,
    largest: i64,
}
