//! Scores the feasible nodes of a pod and chooses one of them.
//!
//! A node's total is the weighted sum of its scores, computed in two steps:
//!
//! 1. *Local totals*: the scores of local plugins ([`PluginInfo::local`](super::PluginInfo::local)), which depend only
//!    on the node and the pod's template, if they need no normalization. One kernel computes those of LeastAllocated and
//!    BalancedAllocation together. They are kept in the [`VerdictCache`], so only chunks that have changed are scored.
//! 2. *Global scores*: the scores of the other plugins, computed in every cycle and normalized over all feasible
//!    nodes.
//!
//! Extenders' scores are added to these.
//!
//! A plugin that gives all nodes the same score takes part in neither step, because its score does not affect the
//! choice.

use std::collections::HashMap;

use crate::model::{Name, Pod, stable_hash_of};
use crate::snapshot::{Chunk, Column, LANES, lanes, nth_lane};

use super::dispatch::{self, Asked, Usage};
use super::extender;
use super::filters::nodes_of;
use super::memo::{Verdict, VerdictCache};
use super::parallel::{Threads, Timed};
use super::recorder::Step;
use super::scores::{Given, Scorer, Scores};
use super::search::{Chosen, FoundChunks};
use super::status::code;
use super::{Cycle, Feasible, Framework, Score, ScoreKernel, ScoredNodes, Status};

/// Chooses among the feasible nodes of one pod.
pub(super) struct Choice<'a, 'c> {
    pub(super) framework: &'c Framework,
    pub(super) cycle: Cycle<'a>,
    pub(super) threads: Threads<'c>,
    /// The seed for breaking ties.
    pub(super) seed: u64,
    pub(super) found: &'c FoundChunks<'a>,
}

/// A plugin that scores each node, and its score.
type PluginScore<'s> = (&'s Scorer<'s>, &'s dyn Score);

/// The plugins, split by the step in which their scores are added.
#[derive(Default)]
pub(super) struct PluginScores<'s> {
    /// The local plugins whose scores one kernel computes, and its input.
    by_kernel: Vec<PluginScore<'s>>,
    asked: (Asked, Asked),
    /// The other local plugins.
    local: Vec<PluginScore<'s>>,
    global: Vec<PluginScore<'s>>,
    /// The weighted sum of the scores that are the same for all nodes.
    common: i64,
}

/// The best lanes of a chunk: the largest total of a feasible lane, and the feasible lanes that have it.
struct Best<'a> {
    chunk: &'a Chunk,
    largest: i64,
    lanes: u64,
}

impl<'s> PluginScores<'s> {
    pub(super) fn new(scores: &'s Scores<'_>) -> PluginScores<'s> {
        let mut plugins = PluginScores::default();
        // Plugins that are timed are called one by one.
        let may_combine = !scores.watch.times_plugins();
        for scorer in &scores.each {
            match &scorer.score {
                Given::All(score) => plugins.common += score * scorer.weight,
                Given::Each(score) if scorer.is_in_local_total() => {
                    let kernel = score.kernel().filter(|_| may_combine);
                    plugins.add_local((scorer, &**score), kernel);
                }
                Given::Each(score) => plugins.global.push((scorer, &**score)),
            }
        }
        plugins
    }

    fn add_local(&mut self, plugin: PluginScore<'s>, kernel: Option<ScoreKernel>) {
        let (least, balanced) = &mut self.asked;
        let asked = match kernel {
            Some(kernel) if kernel.is_balance => balanced,
            Some(_) => least,
            None => return self.local.push(plugin),
        };
        // A weight is at least 1, so another plugin already uses this score of the kernel.
        if asked.weight != 0 {
            return self.local.push(plugin);
        }
        if let Some(ScoreKernel { cpu, memory, .. }) = kernel {
            *asked = Asked { cpu, memory, weight: plugin.0.weight };
        }
        self.by_kernel.push(plugin);
    }

    /// Returns whether the totals depend only on the nodes and the pod's template.
    pub(super) fn are_local(&self) -> bool {
        self.global.is_empty()
    }
}

impl<'a> Choice<'a, '_> {
    /// Returns the feasible node with the highest total, or `None` if no node is feasible. [`tie_break`] chooses among
    /// equal totals.
    ///
    /// # Errors
    ///
    /// Returns an error if a plugin fails or returns a score that is out of range.
    pub(super) fn choose(&self, cache: &mut VerdictCache) -> Result<Option<Chosen<'a>>, Status> {
        let feasible = Feasible::new(self.cycle.cluster, self.found.lanes());
        let scores = self.framework.pre_score(self.cycle, &feasible)?;
        let plugins = PluginScores::new(&scores);
        self.update_local_totals(&scores, &plugins, cache)?;
        let extended = self.extender_scores();
        if plugins.global.is_empty() && extended.is_none() {
            return Ok(self.pick_by_local_totals(&plugins, cache));
        }
        let mut totals = self.feasible_totals(cache);
        for asked in plugins.global {
            self.add_global_scores(&scores, asked, &feasible, &mut totals)?;
        }
        if let Some(extended) = extended {
            self.add_extender_scores(&extended, &mut totals);
        }
        Ok(self.pick_by_totals(&totals, plugins.common))
    }

    /// Like [`Choice::choose`], with scores that were prepared for another pod of the same template and that are all
    /// local.
    pub(super) fn choose_locally(
        &self,
        scores: &Scores<'_>,
        plugins: &PluginScores<'_>,
        cache: &mut VerdictCache,
    ) -> Result<Option<Chosen<'a>>, Status> {
        self.update_local_totals(scores, plugins, cache)?;
        Ok(self.pick_by_local_totals(plugins, cache))
    }

    /// Returns one of the nodes with the highest local total.
    fn pick_by_local_totals(
        &self,
        plugins: &PluginScores<'_>,
        cache: &VerdictCache,
    ) -> Option<Chosen<'a>> {
        let mut all = Vec::with_capacity(self.found.nodes.len());
        all.extend(self.found.nodes.iter().filter_map(|(of, mask)| {
            let (largest, lanes) = cache.get(of.id, of.at)?.best_among(*mask);
            Some(Best { chunk: of.chunk, largest, lanes })
        }));
        self.pick(&all, plugins.common)
    }

    /// Returns the extenders' scores, or `None` if no extender scores nodes.
    fn extender_scores(&self) -> Option<HashMap<Name, i64>> {
        let handle = self.framework.handle();
        if handle.extenders().iter().all(|extender| extender.weight().is_none()) {
            return None;
        }
        let nodes = self.found.nodes(self.cycle.cluster);
        Some(extender::scores(handle, self.cycle.pod, &nodes))
    }

    fn add_extender_scores(&self, scores: &HashMap<Name, i64>, totals: &mut [i64]) {
        let nodes = self.found.nodes.iter();
        let nodes = nodes.flat_map(|(of, mask)| nodes_of(self.cycle.cluster, of.chunk, *mask));
        for ((_, node), total) in nodes.zip(totals) {
            *total = total.saturating_add(scores.get(node.name()).copied().unwrap_or(0));
        }
    }

    /// Computes the local totals that are not cached, of all lanes that pass the local filters.
    fn update_local_totals(
        &self,
        scores: &Scores<'_>,
        plugins: &PluginScores<'_>,
        cache: &mut VerdictCache,
    ) -> Result<(), Status> {
        let nodes = &self.found.nodes;
        let mut trial = self.threads.try_alone(Timed::LocalScores);
        let mut scored = Ok(());
        for (at, (of, _)) in nodes.iter().enumerate() {
            let Some(verdict) = cache.unscored(of.id, of.at) else { continue };
            if let Some(each) = trial.should_share(nodes.len() - at) {
                let rest = nodes[at..].iter().map(|(of, _)| (of.id, of.at));
                let jobs = cache.unscored_each(rest).into_iter().zip(&nodes[at..]);
                let jobs = jobs.filter_map(|(verdict, (of, _))| Some((of.chunk, verdict?, Ok(()))));
                let mut jobs: Vec<_> = jobs.collect();
                self.threads.share(&mut jobs, each, |(chunk, verdict, scored)| {
                    *scored = self.score_locally(scores, plugins, chunk, verdict);
                });
                return jobs.into_iter().fold(scored, |all, (.., scored)| all.and(scored));
            }
            // As on several threads, an error does not keep the other chunks from being scored.
            scored = scored.and(self.score_locally(scores, plugins, of.chunk, verdict));
        }
        scored
    }

    /// Computes the local totals of a chunk that are not stored.
    fn score_locally(
        &self,
        scores: &Scores<'_>,
        plugins: &PluginScores<'_>,
        chunk: &Chunk,
        verdict: &mut Verdict,
    ) -> Result<(), Status> {
        let PluginScores { by_kernel, asked, local, .. } = plugins;
        let unscored = verdict.begin_scoring();
        if scores.watch.recorder.is_some() {
            scores.scored.add(unscored);
        }
        let (usage, balance, totals) = (Usage::of(chunk), chunk.balance(), &mut verdict.totals);
        let is_done = !by_kernel.is_empty()
            && dispatch::allocation_scores(usage, balance, *asked, unscored, totals);
        if !is_done {
            lanes(unscored).for_each(|lane| totals[lane] = 0);
            self.add_local_scores(scores, by_kernel, (chunk, unscored), totals)?;
        }
        self.add_local_scores(scores, local, (chunk, unscored), totals)?;
        verdict.find_best();
        Ok(())
    }

    /// Adds the weighted local scores of these lanes to their totals.
    fn add_local_scores(
        &self,
        scores: &Scores<'_>,
        local: &[PluginScore<'_>],
        (chunk, mask): (&Chunk, u64),
        totals: &mut Column<i64>,
    ) -> Result<(), Status> {
        if local.is_empty() {
            return Ok(());
        }
        scores.together(|plugin| {
            for (scorer, score) in local {
                plugin.set(scorer.plugin);
                let (asked, mut column) = ((scorer.plugin, Step::Score), [0; LANES]);
                let scored = scores.watch.time(asked, code, || {
                    score.score_chunk(self.cycle.cluster, chunk, mask, &mut column)
                });
                scored.map_err(|status| scorer.failed(status))?;
                scorer.add_weighted_lanes(&mut column, mask, totals)?;
            }
            Ok(())
        })
    }

    /// Returns the local totals of the feasible nodes, in list order.
    fn feasible_totals(&self, cache: &VerdictCache) -> Vec<i64> {
        let mut totals = Vec::with_capacity(self.found.feasible);
        for (of, mask) in &self.found.nodes {
            let known = cache.get(of.id, of.at).map_or(&[0; LANES], |known| &known.totals);
            extend_by_lanes(&mut totals, known, *mask);
        }
        totals
    }

    /// Adds one plugin's scores of the feasible nodes to the totals.
    fn add_global_scores(
        &self,
        scores: &Scores<'_>,
        (scorer, score): PluginScore<'_>,
        feasible: &Feasible<'_>,
        totals: &mut [i64],
    ) -> Result<(), Status> {
        let mut values = self.feasible_scores(scores, (scorer, score))?;
        let nodes = ScoredNodes::feasible(feasible);
        scorer.normalize(score, scores.watch, &nodes, &mut values)?;
        scorer.add_weighted(&values, totals)
    }

    /// Returns one plugin's scores of the feasible nodes, in list order.
    fn feasible_scores(
        &self,
        scores: &Scores<'_>,
        (scorer, score): PluginScore<'_>,
    ) -> Result<Vec<i64>, Status> {
        let column = |chunk: &Chunk, mask: u64| {
            let mut column = [0; LANES];
            let scored = scores.watch.ask((scorer.plugin, Step::Score), code, || {
                score.score_chunk(self.cycle.cluster, chunk, mask, &mut column)
            });
            scored.map(|()| column).map_err(|status| scorer.failed(status))
        };
        let nodes = &self.found.nodes;
        scorer.count(self.found.feasible as u64);
        let mut values = Vec::with_capacity(self.found.feasible);
        let mut trial = self.threads.try_alone(Timed::OtherScores);
        let mut scored = Ok(());
        // An error does not keep the other chunks from being scored.
        let mut add = |column, mask| match column {
            Ok(column) => extend_by_lanes(&mut values, &column, mask),
            Err(status) => {
                if scored.is_ok() {
                    scored = Err(status);
                }
            }
        };
        for (at, (of, mask)) in nodes.iter().enumerate() {
            if let Some(each) = trial.should_share(nodes.len() - at) {
                let jobs = nodes[at..].iter().map(|(of, mask)| (of.chunk, *mask, Ok([0; LANES])));
                let mut jobs: Vec<_> = jobs.collect();
                self.threads.share(&mut jobs, each, |(chunk, mask, scored)| {
                    *scored = column(chunk, *mask);
                });
                jobs.into_iter().for_each(|(_, mask, column)| add(column, mask));
                break;
            }
            add(column(of.chunk, *mask), *mask);
        }
        scored.map(|()| values)
    }

    /// Returns one of the nodes with the largest total. `totals` has those of the feasible nodes, in list order.
    fn pick_by_totals(&self, totals: &[i64], common: i64) -> Option<Chosen<'a>> {
        let (_, most) = dispatch::extremes(totals);
        let equals = dispatch::count(totals, most);
        let chosen = tie_break(self.seed, self.cycle.pod, equals as u64) as usize;
        let mut equals = totals.iter().enumerate().filter(|(_, total)| **total == most);
        let (mut skipped, _) = equals.nth(chosen)?;
        for (of, mask) in &self.found.nodes {
            let nodes = mask.count_ones() as usize;
            if skipped < nodes {
                let (chunk, lane) = (of.chunk, nth_lane(*mask, skipped as u32)?);
                return Some(Chosen { chunk, lane, score: most.saturating_add(common) });
            }
            skipped -= nodes;
        }
        None
    }

    /// Returns one of the nodes with the largest total. Adds `common` to its score.
    fn pick(&self, all: &[Best<'a>], common: i64) -> Option<Chosen<'a>> {
        let most = all.iter().map(|best| best.largest).max()?;
        let equals = all.iter().filter(|best| best.largest == most);
        let count = equals.clone().map(|best| u64::from(best.lanes.count_ones())).sum();
        let mut skipped = tie_break(self.seed, self.cycle.pod, count) as u32;
        for best in equals {
            if skipped < best.lanes.count_ones() {
                let lane = nth_lane(best.lanes, skipped)?;
                let score = most.saturating_add(common);
                return Some(Chosen { chunk: best.chunk, lane, score });
            }
            skipped -= best.lanes.count_ones();
        }
        None
    }
}

fn extend_by_lanes(values: &mut Vec<i64>, column: &Column<i64>, mut mask: u64) {
    while mask != 0 {
        let first = mask.trailing_zeros() as usize;
        let past = first + (mask >> first).trailing_ones() as usize;
        values.extend_from_slice(&column[first..past]);
        mask &= u64::MAX.checked_shl(past as u32).unwrap_or(0);
    }
}

/// Returns which of `equals` equal nodes, in the order of the chunks, the pod gets. The choice depends only on the seed
/// and the pod's uid, so a replay makes the same one. In kube-scheduler it depends on the order of a heap.
pub(super) fn tie_break(seed: u64, pod: &Pod, equals: u64) -> u64 {
    let random = u128::from(stable_hash_of(&(seed, pod.uid.stable_key())));
    ((random * u128::from(equals)) >> 64) as u64
}
