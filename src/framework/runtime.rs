//! The cycle: filter, score, choose.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use rayon::prelude::*;

use crate::model::{Name, Pod, hash_of};
use crate::plugins;
use crate::snapshot::{Chunk, Cluster, Column, LANES, NodeInfo, NodeSlot, lanes};

use super::dispatch;
use super::sampling::{Sample, num_feasible_nodes_to_find, sample};
use super::{Code, Filter, Plugin, PreFilter, PreScore, Reasons, Score, Status};

/// From so many chunks on the pool is worth its call: measured, 512 nodes take
/// longer through it than alone.
const WORTH_THE_POOL: usize = 64;

/// Plugins in their order, each with its weight as a score.
pub struct Framework {
    plugins: Vec<(Box<dyn Plugin>, i64)>,
}

impl Framework {
    /// A framework of these plugins.
    #[must_use]
    pub fn new(plugins: Vec<(Box<dyn Plugin>, i64)>) -> Framework {
        Framework { plugins }
    }

    /// The plugins of kube-scheduler's default profile that there are, in its
    /// order and with its weights.
    #[must_use]
    pub fn default_profile() -> Framework {
        Framework::new(vec![
            (Box::new(plugins::NodeUnschedulable), 0),
            (Box::new(plugins::NodeName), 0),
            (Box::new(plugins::TaintToleration), 3),
            (Box::new(plugins::NodeAffinity), 2),
            (Box::new(plugins::NodePorts), 0),
            (Box::new(plugins::NodeResourcesFit), 1),
            (Box::new(plugins::NodeResourcesBalancedAllocation), 1),
        ])
    }

    /// Asks every plugin what it filters for this pod.
    fn pre_filter<'a>(&'a self, cluster: &'a Cluster, pod: &'a Pod) -> Result<Filters<'a>, Status> {
        let mut filters = Filters { each: Vec::with_capacity(self.plugins.len()), only: None };
        for (plugin, _) in &self.plugins {
            match plugin.pre_filter(cluster, pod) {
                PreFilter::Skip => {}
                PreFilter::Filter(filter) => filters.each.push(filter),
                PreFilter::Only(names, filter) => {
                    filters.each.push(filter);
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

    /// Each score plugin's normalised score times its weight, for every node
    /// that passes, by node name.
    #[must_use]
    pub fn scores(&self, cluster: &Cluster, pod: &Pod) -> BTreeMap<Name, Vec<(&'static str, i64)>> {
        let Ok(filters) = self.pre_filter(cluster, pod) else { return BTreeMap::new() };
        let nodes: Vec<NodeInfo<'_>> =
            cluster.nodes().filter(|node| filters.judge(*node).is_none()).collect();
        let mut scores: BTreeMap<Name, Vec<(&'static str, i64)>> =
            nodes.iter().map(|node| (node.name().clone(), Vec::new())).collect();
        for (plugin, weight) in &self.plugins {
            let column = match plugin.pre_score(cluster, pod) {
                PreScore::Skip => continue,
                PreScore::All(score) => vec![score; nodes.len()],
                PreScore::Score(score) => {
                    let mut column =
                        nodes.iter().map(|node| score.score(*node)).collect::<Vec<_>>();
                    if score.needs_normalize() {
                        score.normalize(&mut column);
                    }
                    column
                }
            };
            for (node, value) in nodes.iter().zip(column) {
                if let Some(row) = scores.get_mut(node.name()) {
                    row.push((plugin.name(), value * weight));
                }
            }
        }
        scores
    }
}

/// What all plugins filter for one pod.
struct Filters<'a> {
    each: Vec<Box<dyn Filter + 'a>>,
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
        self.each.iter().find_map(|filter| filter.filter(node))
    }

    fn judge_chunk(&self, cluster: &Cluster, chunk: &Chunk, mask: u64) -> u64 {
        self.each.iter().fold(mask, |mask, filter| match mask {
            0 => 0,
            mask => filter.filter_chunk(cluster, chunk, mask),
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
        Scheduler { framework, config, pool, next_start: 0 }
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
                let reasons = status.reasons.iter().map(|r| (r.clone(), nodes)).collect();
                return Err(FitError { nodes, reasons, pre_filter: Some(status) }.into());
            }
        };
        let (chunks, found) = self.find(cluster, &filters);
        self.next_start = (self.next_start + found.looked_at) % nodes;
        if found.feasible == 0 {
            return Err(fit_error(cluster, &filters).into());
        }
        let (chunk, lane, score) = if found.feasible == 1 {
            let at = found.masks.iter().position(|mask| *mask != 0).unwrap_or_default();
            (at, found.masks[at].trailing_zeros() as usize, 0)
        } else {
            self.choose(cluster, pod, &chunks, &found)
        };
        let slot = chunks[chunk].slot()[lane];
        let node = cluster.node_in(chunks[chunk], lane);
        Ok(Decision {
            node: node.map(|node| node.name().clone()).unwrap_or_default(),
            slot,
            score,
            feasible: found.feasible,
            looked_at: found.looked_at,
        })
    }

    fn find<'a>(&self, cluster: &'a Cluster, filters: &Filters<'_>) -> (Vec<&'a Chunk>, Sample) {
        if let Some((_, names)) = &filters.only {
            return find_only(cluster, filters, names);
        }
        let chunks: Vec<&Chunk> = cluster.zones().flat_map(|zone| zone.chunks()).collect();
        let enough = num_feasible_nodes_to_find(cluster.len(), self.config.percentage_of_nodes);
        let judge = |chunk: &Chunk| filters.judge_chunk(cluster, chunk, chunk.live());
        let found = if enough >= cluster.len() {
            let masks: Vec<u64> = self.map(&chunks, |_, chunk| judge(chunk));
            let feasible = masks.iter().map(|mask| mask.count_ones() as usize).sum();
            Sample { masks, looked_at: cluster.len(), feasible }
        } else {
            sample(cluster, &chunks, self.next_start % cluster.len(), enough, judge)
        };
        (chunks, found)
    }

    /// Maps chunks in order, through the pool where that is worth it.
    fn map<'a, R: Send>(
        &self,
        chunks: &[&'a Chunk],
        work: impl Fn(usize, &'a Chunk) -> R + Sync,
    ) -> Vec<R> {
        match &self.pool {
            Some(pool) if chunks.len() >= WORTH_THE_POOL && pool.current_num_threads() > 1 => {
                let part = chunks.len().div_ceil(pool.current_num_threads() * 4);
                pool.install(|| {
                    chunks
                        .par_iter()
                        .enumerate()
                        .with_min_len(part)
                        .map(|(at, chunk)| work(at, chunk))
                        .collect()
                })
            }
            _ => chunks.iter().enumerate().map(|(at, chunk)| work(at, chunk)).collect(),
        }
    }

    /// The node with the highest total; among equals the one that the seed
    /// picks for this pod (kube-scheduler leaves it to the order of its heap).
    fn choose(
        &self,
        cluster: &Cluster,
        pod: &Pod,
        chunks: &[&Chunk],
        found: &Sample,
    ) -> (usize, usize, i64) {
        let mut all = 0;
        let mut plugins: Vec<(Box<dyn Score + '_>, i64)> = Vec::new();
        for (plugin, weight) in self.framework.plugins.iter().filter(|(_, weight)| *weight > 0) {
            match plugin.pre_score(cluster, pod) {
                PreScore::Skip => {}
                PreScore::All(score) => all += score * weight,
                PreScore::Score(score) => plugins.push((score, *weight)),
            }
        }
        let live: Vec<usize> = (0..chunks.len()).filter(|at| found.masks[*at] != 0).collect();
        let parts: Vec<&Chunk> = live.iter().map(|at| chunks[*at]).collect();
        let mask = |part: usize| found.masks[live[part]];
        let mut totals: Vec<Column<i64>> = self.map(&parts, |part, chunk| {
            let (mut total, mut scores) = ([all; LANES], [0; LANES]);
            for (score, weight) in plugins.iter().filter(|(score, _)| !score.needs_normalize()) {
                score.score_chunk(cluster, chunk, mask(part), &mut scores);
                dispatch::add_weighted(&mut total, &scores, *weight);
            }
            total
        });
        for (score, weight) in plugins.iter().filter(|(score, _)| score.needs_normalize()) {
            let columns = self.map(&parts, |part, chunk| {
                let mut scores = [0; LANES];
                score.score_chunk(cluster, chunk, mask(part), &mut scores);
                scores
            });
            // Each chunk's feasible lanes, one after the other.
            let mut column = Vec::with_capacity(found.feasible);
            for (part, scores) in columns.iter().enumerate() {
                column.extend(lanes(mask(part)).map(|lane| scores[lane]));
            }
            score.normalize(&mut column);
            let mut values = column.iter();
            for (part, total) in totals.iter_mut().enumerate() {
                for (lane, value) in lanes(mask(part)).zip(&mut values) {
                    total[lane] += value * weight;
                }
            }
        }
        let largest =
            totals.iter().enumerate().map(|(part, total)| dispatch::largest(total, mask(part)));
        let best = largest.max().unwrap_or_default();
        let ties = |part: usize| dispatch::equal(&totals[part], best) & mask(part);
        let count: u64 = (0..parts.len()).map(|part| u64::from(ties(part).count_ones())).sum();
        let random = u128::from(hash_of(&(self.config.seed, &pod.uid)));
        let mut pick = ((random * u128::from(count)) >> 64) as u32;
        for (part, at) in live.iter().enumerate() {
            let here = ties(part);
            if pick < here.count_ones() {
                let lane = lanes(here).nth(pick as usize).unwrap_or_default();
                return (*at, lane, best);
            }
            pick -= here.count_ones();
        }
        (0, 0, best)
    }
}

/// Looks at the nodes that are named alone.
fn find_only<'a>(
    cluster: &'a Cluster,
    filters: &Filters<'_>,
    names: &[Name],
) -> (Vec<&'a Chunk>, Sample) {
    let mut chunks: Vec<&Chunk> = Vec::new();
    let mut found = Sample::default();
    for node in names.iter().filter_map(|name| cluster.node(name)) {
        let (chunk, lane) = node.place();
        found.looked_at += 1;
        let bit = filters.judge_chunk(cluster, chunk, 1 << lane);
        let at = chunks.iter().position(|known| std::ptr::eq(*known, chunk)).unwrap_or_else(|| {
            chunks.push(chunk);
            found.masks.push(0);
            chunks.len() - 1
        });
        found.feasible += usize::from(bit & !found.masks[at] != 0);
        found.masks[at] |= bit;
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
            filters.each.iter().fold(chunk.live(), |mask, filter| match mask {
                0 => 0,
                mask => filter.count_reasons(cluster, chunk, mask, &mut reasons),
            });
        }
    }
    FitError { nodes: cluster.len(), reasons: reasons.into_map(), pre_filter: None }
}
