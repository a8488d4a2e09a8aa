//! The cycle: filter, score, choose.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use rayon::prelude::*;

use crate::model::{Generation, Name, Pod, hash_of};
use crate::plugins;
use crate::snapshot::{Chunk, Cluster, Column, LANES, NodeInfo, NodeSlot, lanes};

use super::dispatch;
use super::memo::{Memo, Sheet};
use super::sampling::{Sample, num_feasible_nodes_to_find, sample};
use super::{Code, Feasible, Filter, Plugin, PreFilter, PreScore, Reasons, Score, Status};

/// From so many chunks on the pool is worth its call: measured, 512 nodes take
/// longer through it than alone.
const WORTH_THE_POOL: usize = 64;

/// Plugins, which of them filter and which score, each in its order.
pub struct Framework {
    plugins: Vec<Box<dyn Plugin>>,
    filters: Vec<usize>,
    scores: Vec<(usize, i64)>,
}

impl Framework {
    /// A framework of these plugins: all of them filter in this order, and those
    /// with a weight score.
    #[must_use]
    pub fn new(plugins: Vec<(Box<dyn Plugin>, i64)>) -> Framework {
        let filters = (0..plugins.len()).collect();
        let weights = plugins.iter().map(|(_, weight)| *weight).enumerate();
        let scores = weights.filter(|(_, weight)| *weight > 0).collect();
        let plugins = plugins.into_iter().map(|(plugin, _)| plugin).collect();
        Framework { plugins, filters, scores }
    }

    /// A framework of these plugins. Those at the positions `filters` filter, in
    /// that order; those at the positions of `scores` score with these weights. A
    /// position that is none is left out.
    #[must_use]
    pub fn with_order(
        plugins: Vec<Box<dyn Plugin>>,
        mut filters: Vec<usize>,
        mut scores: Vec<(usize, i64)>,
    ) -> Framework {
        filters.retain(|at| *at < plugins.len());
        scores.retain(|(at, weight)| *at < plugins.len() && *weight > 0);
        Framework { plugins, filters, scores }
    }

    /// The plugins of kube-scheduler's default profile, in its order and with
    /// its weights.
    #[must_use]
    pub fn default_profile() -> Framework {
        Framework::new(vec![
            (Box::new(plugins::NodeUnschedulable), 0),
            (Box::new(plugins::NodeName), 0),
            (Box::new(plugins::TaintToleration), 3),
            (Box::new(plugins::NodeAffinity::default()), 2),
            (Box::new(plugins::NodePorts), 0),
            (Box::new(plugins::NodeResourcesFit::default()), 1),
            (Box::new(plugins::VolumeRestrictions), 0),
            (Box::new(plugins::NodeVolumeLimits), 0),
            (Box::new(plugins::VolumeBinding), 0),
            (Box::new(plugins::VolumeZone), 0),
            (Box::new(plugins::PodTopologySpread::default()), 2),
            (Box::new(plugins::InterPodAffinity::default()), 2),
            (Box::new(plugins::NodeResourcesBalancedAllocation::default()), 1),
            (Box::new(plugins::ImageLocality), 1),
            (Box::new(plugins::NodeDeclaredFeatures), 0),
        ])
    }

    /// The plugins that filter, in their order.
    pub fn filters(&self) -> impl Iterator<Item = &dyn Plugin> {
        self.filters.iter().map(|at| &*self.plugins[*at])
    }

    /// The plugins that score, in their order, with their weights.
    pub fn scores(&self) -> impl Iterator<Item = (&dyn Plugin, i64)> {
        self.scores.iter().map(|(at, weight)| (&*self.plugins[*at], *weight))
    }

    /// Asks every plugin what it filters for this pod.
    fn pre_filter<'a>(&'a self, cluster: &'a Cluster, pod: &'a Pod) -> Result<Filters<'a>, Status> {
        let mut filters = Filters { each: Vec::with_capacity(self.filters.len()), only: None };
        for plugin in self.filters() {
            match plugin.pre_filter(cluster, pod) {
                PreFilter::Skip => {}
                PreFilter::Filter(filter) => {
                    filters.each.push(Judge { filter, is_local: plugin.is_local() });
                }
                PreFilter::Only(names, filter) => {
                    filters.each.push(Judge { filter, is_local: plugin.is_local() });
                    filters.only = Some(match filters.only.take() {
                        None => (plugin.name(), names),
                        Some((first, known)) => {
                            (first, known.into_iter().filter(|n| names.contains(n)).collect())
                        }
                    });
                }
                PreFilter::Reject(status) => return Err(status),
            }
        }
        Ok(filters)
    }

    /// Why the node is rejected for the pod, by the first plugin that does;
    /// none where it passes.
    #[must_use]
    pub fn filter(&self, cluster: &Cluster, pod: &Pod, node: NodeInfo<'_>) -> Option<Status> {
        match self.pre_filter(cluster, pod) {
            Err(status) => Some(status),
            Ok(filters) => filters.judge(node),
        }
    }

    /// What every plugin says of every node, asked node by node: for people and
    /// tests, not for decisions. O(nodes × plugins).
    #[must_use]
    pub fn evaluate(&self, cluster: &Cluster, pod: &Pod) -> Evaluation {
        let filters = match self.pre_filter(cluster, pod) {
            Ok(filters) => filters,
            Err(status) => {
                let error = rejected_at_once(cluster, &status);
                return Evaluation { rejected: Some(error), ..Evaluation::default() };
            }
        };
        let mut evaluation = Evaluation::default();
        let mut feasible: Vec<(&Chunk, u64)> = Vec::new();
        for chunk in cluster.zones().flat_map(|zone| zone.chunks()) {
            let mut mask = 0;
            for (at, node) in
                lanes(chunk.live()).filter_map(|at| Some((at, cluster.node_in(chunk, at)?)))
            {
                let mut rejections = filters.judge_all(node);
                let status = (!rejections.is_empty()).then(|| rejections.remove(0));
                mask |= u64::from(status.is_none()) << at;
                let verdict = Verdict { status, further: rejections, scores: Vec::new() };
                evaluation.nodes.insert(node.name().clone(), verdict);
            }
            feasible.push((chunk, mask));
        }
        let feasible = Feasible::new(cluster, feasible);
        if feasible.is_empty() {
            evaluation.rejected = Some(fit_error(cluster, &filters));
            return evaluation;
        }
        let nodes: Vec<NodeInfo<'_>> = feasible.nodes().collect();
        for (plugin, weight) in self.scores() {
            let (raw, normalized) = match plugin.pre_score(cluster, pod, &feasible) {
                PreScore::Skip => continue,
                PreScore::All(score) => (vec![score; nodes.len()], vec![score; nodes.len()]),
                PreScore::Score(score) => {
                    let raw = nodes.iter().map(|node| score.score(*node)).collect::<Vec<_>>();
                    let mut column = raw.clone();
                    if score.needs_normalize() {
                        score.normalize(&mut column);
                    }
                    (raw, column)
                }
            };
            for (node, (raw, normalized)) in nodes.iter().zip(raw.into_iter().zip(normalized)) {
                if let Some(verdict) = evaluation.nodes.get_mut(node.name()) {
                    let weighted = normalized * weight;
                    let plugin = plugin.name();
                    verdict.scores.push(NodeScore { plugin, raw, normalized, weighted });
                }
            }
        }
        evaluation
    }
}

/// What all plugins say of all nodes for one pod.
#[derive(Clone, Debug, Default)]
pub struct Evaluation {
    /// Why the pod fits nowhere, if so.
    pub rejected: Option<FitError>,
    /// Node by node; none where the pod was rejected before any was looked at.
    pub nodes: BTreeMap<Name, Verdict>,
}

/// What all plugins say of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Why the node is rejected, by the first plugin that does.
    pub status: Option<Status>,
    /// What plugins after the first would say, were they asked.
    pub further: Vec<Status>,
    /// The scores of a node that passed, by plugins that score the pod.
    pub scores: Vec<NodeScore>,
}

/// What one plugin gives one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeScore {
    /// The plugin.
    pub plugin: &'static str,
    /// What it said of the node.
    pub raw: i64,
    /// That, from 0 to 100.
    pub normalized: i64,
    /// That, times the plugin's weight.
    pub weighted: i64,
}

impl Verdict {
    /// The sum of the scores.
    #[must_use]
    pub fn total(&self) -> i64 {
        self.scores.iter().map(|score| score.weighted).sum()
    }
}

/// The error of a pod that was rejected before any node was looked at.
fn rejected_at_once(cluster: &Cluster, status: &Status) -> FitError {
    let nodes = cluster.len();
    let reasons = status.reasons.iter().map(|reason| (reason.clone(), nodes)).collect();
    FitError { nodes, reasons, pre_filter: Some(status.clone()) }
}

/// What one plugin filters for one pod.
struct Judge<'a> {
    filter: Box<dyn Filter + 'a>,
    is_local: bool,
}

/// What all plugins filter for one pod.
struct Filters<'a> {
    each: Vec<Judge<'a>>,
    /// The plugin that named them, and the only nodes that will do.
    only: Option<(&'static str, Vec<Name>)>,
}

impl Filters<'_> {
    fn judge(&self, node: NodeInfo<'_>) -> Option<Status> {
        if let Some((plugin, names)) = &self.only
            && !names.contains(node.name())
        {
            let reason = format!("node(s) didn't satisfy plugin(s) [{plugin}]");
            return Some(Status::new(Code::UnschedulableAndUnresolvable, "", reason));
        }
        self.each.iter().find_map(|judge| judge.filter.filter(node))
    }

    /// What every plugin has against the node.
    fn judge_all(&self, node: NodeInfo<'_>) -> Vec<Status> {
        if let Some((_, names)) = &self.only
            && !names.contains(node.name())
        {
            return self.judge(node).into_iter().collect();
        }
        self.each.iter().filter_map(|judge| judge.filter.filter(node)).collect()
    }

    /// Asks the filters that are local, or those that are not.
    fn judge_chunk(&self, local: bool, cluster: &Cluster, chunk: &Chunk, mask: u64) -> u64 {
        let asked = self.each.iter().filter(|judge| judge.is_local == local);
        asked.fold(mask, |mask, judge| match mask {
            0 => 0,
            mask => judge.filter.filter_chunk(cluster, chunk, mask),
        })
    }
}

/// How a [`Scheduler`] decides.
#[derive(Clone, Debug, Default)]
pub struct SchedulerConfig {
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
pub struct Scheduler {
    framework: Framework,
    config: SchedulerConfig,
    pool: Option<Arc<rayon::ThreadPool>>,
    /// Where in the list the next cycle starts.
    next_start: usize,
    memo: Memo,
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
    Fit(#[from] FitError),
}

/// No node will do: how many for which reason (framework/types.go `FitError`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FitError {
    /// How many nodes there are.
    pub nodes: usize,
    /// How many nodes gave each reason; a node may give several.
    pub reasons: BTreeMap<String, usize>,
    /// What a plugin said before any node was looked at.
    pub pre_filter: Option<Status>,
}

impl fmt::Display for FitError {
    /// Kube-scheduler's text, without what preemption would append.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0/{} nodes are available", self.nodes)?;
        if let Some(status) = &self.pre_filter {
            return write!(f, ": {}.", status.reasons.join(", "));
        }
        let mut reasons: Vec<String> =
            self.reasons.iter().map(|(reason, n)| format!("{n} {reason}")).collect();
        reasons.sort();
        if !reasons.is_empty() {
            write!(f, ": {}", reasons.join(", "))?;
        }
        f.write_str(".")
    }
}

impl std::error::Error for FitError {}

impl Scheduler {
    /// A scheduler that evaluates on the calling thread, and on `pool` where
    /// there is much to evaluate.
    ///
    /// ```
    /// use portolan::framework::{Framework, Scheduler, SchedulerConfig};
    /// use portolan::model::{node, pod};
    /// use portolan::{Config, Engine};
    ///
    /// let (mut writer, reader) = Engine::inline(Config::default());
    /// writer.add_node(node("small").cpu(1_000).memory(1 << 30).build())?;
    /// writer.add_node(node("large").cpu(8_000).memory(8 << 30).build())?;
    /// writer.publish();
    ///
    /// let mut scheduler =
    ///     Scheduler::new(Framework::default_profile(), SchedulerConfig::default(), None);
    /// let pod = pod("web-0").cpu(2_000).memory(1 << 20).build();
    /// let decision = scheduler.schedule(&reader.snapshot(), &pod)?;
    /// writer.assume_pod(pod.on(decision.node))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn new(
        framework: Framework,
        config: SchedulerConfig,
        pool: Option<Arc<rayon::ThreadPool>>,
    ) -> Scheduler {
        Scheduler { framework, config, pool, next_start: 0, memo: Memo::default() }
    }

    /// The framework.
    #[must_use]
    pub fn framework(&self) -> &Framework {
        &self.framework
    }

    /// A node for the pod, by the version given.
    ///
    /// # Errors
    ///
    /// There is no node, or none will do, with the reasons counted.
    pub fn schedule(&mut self, cluster: &Cluster, pod: &Pod) -> Result<Decision, ScheduleError> {
        let nodes = cluster.len();
        if nodes == 0 {
            return Err(ScheduleError::NoNodes);
        }
        let filters = match self.framework.pre_filter(cluster, pod) {
            Ok(filters) => filters,
            Err(status) => {
                return Err(rejected_at_once(cluster, &status).into());
            }
        };
        let keep = pod.node_name.is_none() && filters.only.is_none();
        let sheet = self.memo.sheet(cluster, &pod.template, keep);
        let cycle = Cycle {
            framework: &self.framework,
            pool: self.pool.as_deref(),
            cluster,
            pod,
            seed: self.config.seed,
        };
        let enough = num_feasible_nodes_to_find(nodes, self.config.percentage_of_nodes);
        let (chunks, found) = cycle.find(&filters, sheet, self.next_start % nodes, enough);
        self.next_start = (self.next_start + found.looked_at) % nodes;
        if found.feasible == 0 {
            return Err(fit_error(cluster, &filters).into());
        }
        let (chunk, lane, score) = if found.feasible == 1 {
            let at = found.masks.iter().position(|mask| *mask != 0).unwrap_or_default();
            (at, found.masks[at].trailing_zeros() as usize, 0)
        } else {
            cycle.choose(sheet, &chunks, &found)
        };
        let chunk = chunks[chunk].chunk;
        let node = cluster.node_in(chunk, lane);
        Ok(Decision {
            node: node.map(|node| node.name().clone()).unwrap_or_default(),
            slot: chunk.slot()[lane],
            score,
            feasible: found.feasible,
            looked_at: found.looked_at,
        })
    }
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
struct Cycle<'a> {
    framework: &'a Framework,
    pool: Option<&'a rayon::ThreadPool>,
    cluster: &'a Cluster,
    pod: &'a Pod,
    seed: u64,
}

impl<'a> Cycle<'a> {
    /// Looks for `enough` nodes that will do, from number `start` of the list
    /// on. What local filters say is noted in the sheet.
    fn find(
        &self,
        filters: &Filters<'_>,
        sheet: &mut Sheet,
        start: usize,
        enough: usize,
    ) -> (Vec<Listed<'a>>, Sample) {
        let cluster = self.cluster;
        if let Some((_, names)) = &filters.only {
            return find_only(cluster, filters, names, sheet);
        }
        let listed = cluster.chunk_list().map(|(id, at, chunk)| Listed { id, at, chunk });
        let chunks: Vec<Listed<'_>> = listed.collect();
        let locally =
            |of: Listed<'_>| filters.judge_chunk(true, cluster, of.chunk, of.chunk.live());
        let others = filters.each.iter().any(|judge| !judge.is_local);
        if enough < cluster.len() {
            let judge = |of: Listed<'_>| {
                let mask = sheet.mask(of.id, of.at).unwrap_or_else(|| {
                    let mask = locally(of);
                    sheet.set_mask(of.id, of.at, mask);
                    mask
                });
                filters.judge_chunk(false, cluster, of.chunk, mask)
            };
            let found = sample(cluster, &chunks, start, enough, judge);
            return (chunks, found);
        }
        let mut masks: Vec<u64> = Vec::with_capacity(chunks.len());
        let mut unknown: Vec<(usize, Listed<'_>)> = Vec::new();
        for (part, of) in chunks.iter().enumerate() {
            masks.push(sheet.mask(of.id, of.at).unwrap_or_else(|| {
                unknown.push((part, *of));
                0
            }));
        }
        for (mask, (part, of)) in
            self.map(&unknown, |(_, of)| locally(*of)).into_iter().zip(&unknown)
        {
            sheet.set_mask(of.id, of.at, mask);
            masks[*part] = mask;
        }
        if others {
            let both: Vec<(u64, Listed<'_>)> =
                masks.iter().copied().zip(chunks.iter().copied()).collect();
            masks =
                self.map(&both, |(mask, of)| filters.judge_chunk(false, cluster, of.chunk, *mask));
        }
        let feasible = masks.iter().map(|mask| mask.count_ones() as usize).sum();
        (chunks, Sample { masks, looked_at: cluster.len(), feasible })
    }

    /// Maps in order, through the pool where that is worth it.
    fn map<T: Sync, R: Send>(&self, items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
        match self.pool {
            Some(pool) if items.len() >= WORTH_THE_POOL && pool.current_num_threads() > 1 => {
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
        sheet: &mut Sheet,
        chunks: &[Listed<'_>],
        found: &Sample,
    ) -> (usize, usize, i64) {
        let (cluster, pod) = (self.cluster, self.pod);
        let live: Vec<usize> = (0..chunks.len()).filter(|at| found.masks[*at] != 0).collect();
        let feasible = live.iter().map(|at| (chunks[*at].chunk, found.masks[*at])).collect();
        let feasible = Feasible::new(cluster, feasible);
        let mut all = 0;
        // What can be kept, and what is asked of these nodes alone.
        let (mut kept, mut asked) = (Scores::new(), Scores::new());
        for (plugin, weight) in self.framework.scores() {
            match plugin.pre_score(cluster, pod, &feasible) {
                PreScore::Skip => {}
                PreScore::All(score) => all += score * weight,
                PreScore::Score(score) if plugin.is_local() && !score.needs_normalize() => {
                    kept.push((score, weight));
                }
                PreScore::Score(score) => asked.push((score, weight)),
            }
        }
        let mut unknown = Vec::new();
        for of in live.iter().map(|at| chunks[*at]) {
            let known = sheet.known(of.id);
            if !known.is_scored {
                unknown.push((of, known.mask));
            }
        }
        let scored = self.map(&unknown, |(of, mask)| {
            let (mut totals, mut scores) = ([0; LANES], [0; LANES]);
            for (score, weight) in &kept {
                score.score_chunk(cluster, of.chunk, *mask, &mut scores);
                dispatch::add_weighted(&mut totals, &scores, *weight);
            }
            totals
        });
        for (totals, (of, mask)) in scored.into_iter().zip(unknown) {
            let known = sheet.known(of.id);
            known.largest = dispatch::largest(&totals, mask);
            (known.totals, known.is_scored) = (totals, true);
        }
        let sheet = &*sheet;
        if asked.is_empty() {
            let parts = live.iter().map(|at| {
                let (known, mask) = (sheet.known_of(chunks[*at].id), found.masks[*at]);
                // Fewer lanes than are known: not all nodes were looked at.
                let largest = match mask == known.mask {
                    true => known.largest,
                    false => dispatch::largest(&known.totals, mask),
                };
                Part { at: *at, mask, totals: &known.totals, largest }
            });
            return self.pick(&parts.collect::<Vec<_>>(), all);
        }
        let totals = live.iter().map(|at| sheet.known_of(chunks[*at].id).totals).collect();
        let totals = self.add_asked(&asked, totals, &live, chunks, found);
        let parts = live.iter().zip(&totals).map(|(at, totals)| {
            let mask = found.masks[*at];
            Part { at: *at, mask, totals, largest: dispatch::largest(totals, mask) }
        });
        self.pick(&parts.collect::<Vec<_>>(), all)
    }

    /// Adds scores to the totals of the chunks at `live`, normalised where they
    /// need it.
    fn add_asked(
        &self,
        asked: &Scores<'_>,
        mut totals: Vec<Column<i64>>,
        live: &[usize],
        chunks: &[Listed<'_>],
        found: &Sample,
    ) -> Vec<Column<i64>> {
        for (score, weight) in asked {
            let columns = self.map(live, |at| {
                let mut scores = [0; LANES];
                score.score_chunk(self.cluster, chunks[*at].chunk, found.masks[*at], &mut scores);
                scores
            });
            if !score.needs_normalize() {
                for (total, scores) in totals.iter_mut().zip(&columns) {
                    dispatch::add_weighted(total, scores, *weight);
                }
                continue;
            }
            // Each chunk's feasible lanes, one after the other.
            let mut column = Vec::with_capacity(found.feasible);
            for (at, scores) in live.iter().zip(&columns) {
                column.extend(lanes(found.masks[*at]).map(|lane| scores[lane]));
            }
            score.normalize(&mut column);
            let mut values = column.iter();
            for (at, total) in live.iter().zip(&mut totals) {
                for (lane, value) in lanes(found.masks[*at]).zip(&mut values) {
                    total[lane] += value * weight;
                }
            }
        }
        totals
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
        let random = u128::from(hash_of(&(self.seed, &self.pod.uid)));
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

/// Plugins that score, with their weights.
type Scores<'a> = Vec<(Box<dyn Score + 'a>, i64)>;

/// A chunk with feasible lanes, and their totals.
struct Part<'a> {
    at: usize,
    mask: u64,
    totals: &'a Column<i64>,
    largest: i64,
}

/// Looks at the nodes that are named alone.
fn find_only<'a>(
    cluster: &'a Cluster,
    filters: &Filters<'_>,
    names: &[Name],
    sheet: &mut Sheet,
) -> (Vec<Listed<'a>>, Sample) {
    let mut chunks: Vec<Listed<'_>> = Vec::new();
    let mut found = Sample::default();
    for node in names.iter().filter_map(|name| cluster.node(name)) {
        let Some((id, at, chunk)) = cluster.chunk_of(node) else { continue };
        let (_, lane) = node.place();
        found.looked_at += 1;
        let mask = filters.judge_chunk(true, cluster, chunk, 1 << lane);
        let bit = filters.judge_chunk(false, cluster, chunk, mask);
        let part = chunks.iter().position(|known| known.id == id).unwrap_or_else(|| {
            chunks.push(Listed { id, at, chunk });
            found.masks.push(0);
            chunks.len() - 1
        });
        found.feasible += usize::from(bit & !found.masks[part] != 0);
        found.masks[part] |= bit;
        sheet.set_mask(id, at, found.masks[part]);
    }
    (chunks, found)
}

/// Counts the reasons of all nodes.
fn fit_error(cluster: &Cluster, filters: &Filters<'_>) -> FitError {
    let mut reasons = Reasons::default();
    if filters.only.is_some() {
        let statuses = cluster.nodes().filter_map(|node| filters.judge(node));
        statuses.flat_map(|status| status.reasons).for_each(|reason| reasons.add(reason, 1));
    } else {
        for chunk in cluster.zones().flat_map(|zone| zone.chunks()) {
            filters.each.iter().fold(chunk.live(), |mask, judge| match mask {
                0 => 0,
                mask => judge.filter.count_reasons(cluster, chunk, mask, &mut reasons),
            });
        }
    }
    FitError { nodes: cluster.len(), reasons: reasons.into_map(), pre_filter: None }
}
