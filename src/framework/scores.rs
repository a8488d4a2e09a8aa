//! PreScore and Score: rating feasible nodes for a pod.

use std::cell::Cell;

use crate::snapshot::{Column, NodeInfo};

use super::dispatch;
use super::evaluations::{Evaluations, NodeCount, count};
use super::recorder::{Step, Watch, timed_step};
use super::runtime::Entry;
use super::status::code;
use super::{Code, Cycle, Feasible, Framework, PreScore, Score, ScoredNodes, Status};

/// The lowest normalized score that a plugin may give a node.
pub const MIN_NODE_SCORE: i64 = 0;

/// The highest normalized score that a plugin may give a node.
pub const MAX_NODE_SCORE: i64 = 100;

/// The greatest sum of a node's weighted scores. A framework whose plugins could exceed it is refused
/// ([`FrameworkError::TotalScore`](super::FrameworkError::TotalScore)), and the scores of extenders saturate at it.
pub(crate) const MAX_TOTAL_SCORE: i64 = i64::MAX;

/// The scores of all plugins for one pod, as [`Framework::pre_score`] returns them.
pub struct Scores<'a> {
    pub(super) watch: Watch<'a>,
    pub(super) each: Vec<Scorer<'a>>,
    /// The nodes whose local scores were computed.
    pub(super) scored: NodeCount,
}

/// The score of one plugin for one pod.
pub(super) struct Scorer<'a> {
    pub(super) plugin: &'static str,
    /// The plugin's position among the scoring plugins. PreScore calls them in another order.
    position: usize,
    pub(super) weight: i64,
    pub(super) is_local: bool,
    pub(super) needs_normalize: bool,
    pub(super) score: Given<'a>,
    evaluations: Option<&'a Evaluations>,
}

/// One score for all nodes, or a score computed per node.
pub(super) enum Given<'a> {
    All(i64),
    Each(Box<dyn Score + 'a>),
}

/// The score that one plugin gives one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeScore {
    /// The plugin.
    pub plugin: &'static str,
    /// The plugin's score before it is normalized.
    pub raw: i64,
    /// The score, normalized to the range from 0 to 100.
    pub normalized: i64,
    /// The normalized score times the plugin's weight.
    pub weighted: i64,
}

impl Framework {
    /// Asks every plugin for its score for this pod.
    ///
    /// # Errors
    ///
    /// Returns the status of the first plugin that does not succeed.
    pub fn pre_score<'a>(
        &'a self,
        cycle: Cycle<'a>,
        feasible: &'a Feasible<'a>,
    ) -> Result<Scores<'a>, Status> {
        let watch = self.watch(cycle);
        timed_step(self.recorder(), Step::PreScore, code, || {
            let asked = |plugin: &Cell<_>| self.scorers(cycle, feasible, plugin);
            let each = watch.panics.guard_all(Step::PreScore.as_str(), asked);
            let each = each.unwrap_or_else(|status| Err(not_prepared(status.plugin, status)))?;
            Ok(Scores { watch, each, scored: NodeCount::default() })
        })
    }

    /// Returns the plugins' scores in order of their positions. Sets `asked` to each plugin's name before calling the
    /// plugin.
    fn scorers<'a>(
        &'a self,
        cycle: Cycle<'a>,
        feasible: &'a Feasible<'a>,
        asked: &Cell<&'static str>,
    ) -> Result<Vec<Scorer<'a>>, Status> {
        type Answer<'a> = Result<PreScore<'a>, Status>;
        let watch = self.watch(cycle);
        let outcome = |answer: &Answer<'_>| match answer {
            Ok(PreScore::Skip) => Some(Code::Skip),
            Ok(_) => None,
            Err(status) => Some(status.code),
        };
        let order = self.pre_score_order();
        let mut each: Vec<Scorer<'a>> = Vec::with_capacity(order.len());
        for (Entry { plugin, info, weight, evaluations }, position, is_alone) in order {
            let name = info.name;
            asked.set(name);
            let answer = match is_alone {
                true => {
                    let alone = || plugin.score_alone(cycle, feasible);
                    watch.ask((name, Step::Score), outcome, alone)
                }
                false => {
                    let prepare = || plugin.pre_score(cycle, feasible);
                    watch.time((name, Step::PreScore), outcome, prepare)
                }
            };
            if !is_alone && !matches!(answer, Ok(PreScore::Skip)) {
                count(evaluations.pre_score.as_ref(), 1);
            }
            let score = match answer {
                Ok(PreScore::Skip) if is_alone => Given::All(0),
                Ok(PreScore::Skip) => continue,
                Ok(PreScore::All(score)) => Given::All(in_range(name, score)?),
                Ok(PreScore::Score(score)) => Given::Each(score),
                Err(status) if is_alone => return Err(not_scored(name, status)),
                Err(status) => return Err(not_prepared(name, status)),
            };
            if let Some(position) = position {
                let needs_normalize = match &score {
                    Given::All(_) => false,
                    Given::Each(score) => score.needs_normalize(),
                };
                let at = each.partition_point(|before| before.position < position);
                let plugin = name;
                let scorer = Scorer {
                    plugin,
                    position,
                    weight: *weight,
                    is_local: info.is_local,
                    needs_normalize,
                    score,
                    evaluations: evaluations.score.as_ref(),
                };
                each.insert(at, scorer);
            }
        }
        Ok(each)
    }
}

impl Drop for Scores<'_> {
    /// Counts the evaluations, and drops the scores one by one, as [`Filters`](super::Filters) do.
    fn drop(&mut self) {
        let nodes = self.scored.take();
        for scorer in self.each.iter().filter(|scorer| scorer.is_in_local_total()) {
            scorer.count(nodes);
        }
        while !self.each.is_empty() {
            let _ = self.watch.panics.guard_all(Step::Score.as_str(), |plugin| {
                while let Some(scorer) = self.each.pop() {
                    plugin.set(scorer.plugin);
                }
            });
        }
    }
}

impl Scores<'_> {
    /// Calls several plugins. A panic becomes the error of the plugin that panicked.
    pub(super) fn together<T>(
        &self,
        work: impl FnOnce(&Cell<&'static str>) -> Result<T, Status>,
    ) -> Result<T, Status> {
        let caught = self.watch.panics.guard_all(Step::Score.as_str(), work);
        caught.unwrap_or_else(|status| Err(not_scored(status.plugin, status)))
    }

    /// Returns the scores of every plugin for each of these nodes, computed one node at a time. `nodes` must contain
    /// all feasible nodes, since scores are normalized over them.
    ///
    /// # Errors
    ///
    /// Returns an error if a plugin fails, or if a normalized score is outside 0 to 100.
    pub fn score(&self, nodes: &[NodeInfo<'_>]) -> Result<Vec<Vec<NodeScore>>, Status> {
        let mut all = vec![Vec::with_capacity(self.each.len()); nodes.len()];
        for scorer in &self.each {
            let plugin = scorer.plugin;
            let (raw, normalized) = match &scorer.score {
                Given::All(score) => (vec![*score; nodes.len()], vec![*score; nodes.len()]),
                Given::Each(score) => {
                    scorer.count(nodes.len() as u64);
                    let raw = self.watch.ask((plugin, Step::Score), code, || {
                        nodes.iter().map(|node| score.score(*node)).collect::<Result<Vec<_>, _>>()
                    });
                    let raw = raw.map_err(|status| scorer.failed(status))?;
                    let mut normalized = raw.clone();
                    let nodes = ScoredNodes::listed(nodes);
                    scorer.normalize(&**score, self.watch, &nodes, &mut normalized)?;
                    (raw, normalized)
                }
            };
            for (scores, (raw, normalized)) in all.iter_mut().zip(raw.into_iter().zip(normalized)) {
                let weighted = in_range(plugin, normalized)? * scorer.weight;
                scores.push(NodeScore { plugin, raw, normalized, weighted });
            }
        }
        Ok(all)
    }
}

fn not_prepared(plugin: &'static str, status: Status) -> Status {
    status.failed(plugin, format_args!("running PreScore plugin {plugin:?}"))
}

fn not_scored(plugin: &'static str, status: Status) -> Status {
    let step = format_args!("running Score plugins: plugin {plugin:?} failed with");
    status.failed(plugin, step)
}

impl Scorer<'_> {
    /// Returns whether the score is part of the nodes' local totals.
    pub(super) fn is_in_local_total(&self) -> bool {
        matches!(self.score, Given::Each(_)) && self.is_local && !self.needs_normalize
    }

    /// Adds scored nodes to the plugin's counter.
    pub(super) fn count(&self, nodes: u64) {
        count(self.evaluations, nodes);
    }

    /// Converts the status of a plugin that failed to score.
    pub(super) fn failed(&self, status: Status) -> Status {
        not_scored(self.plugin, status)
    }

    /// Adds weighted scores to totals in the same order.
    ///
    /// # Errors
    ///
    /// A score is out of range.
    pub(super) fn add_weighted(&self, scores: &[i64], totals: &mut [i64]) -> Result<(), Status> {
        match dispatch::add_weighted(totals, scores, self.weight) {
            true => Ok(()),
            false => scores.iter().try_for_each(|score| in_range(self.plugin, *score).map(drop)),
        }
    }

    /// Adds the weighted scores of a chunk to its totals.
    ///
    /// # Errors
    ///
    /// The score of a lane in `mask` is out of range.
    pub(super) fn add_weighted_lanes(
        &self,
        scores: &mut Column<i64>,
        mask: u64,
        totals: &mut Column<i64>,
    ) -> Result<(), Status> {
        // Plugins may write any value to the other lanes, whose totals may be stored already.
        for (lane, score) in scores.iter_mut().enumerate() {
            *score = if mask >> lane & 1 == 1 { *score } else { 0 };
        }
        self.add_weighted(scores, totals)
    }

    pub(super) fn normalize(
        &self,
        score: &dyn Score,
        watch: Watch<'_>,
        nodes: &ScoredNodes<'_>,
        scores: &mut [i64],
    ) -> Result<(), Status> {
        if !self.needs_normalize {
            return Ok(());
        }
        let plugin = self.plugin;
        let step = Step::ScoreExtensionNormalize;
        watch.ask((plugin, step), code, || score.normalize(nodes, scores)).map_err(|status| {
            let step = "running Normalize on Score plugins";
            status.failed(plugin, format_args!("{step}: plugin {plugin:?} failed with"))
        })
    }
}

fn in_range(plugin: &'static str, score: i64) -> Result<i64, Status> {
    if (MIN_NODE_SCORE..=MAX_NODE_SCORE).contains(&score) {
        return Ok(score);
    }
    Err(Status::error(
        plugin,
        format!(
            "applying score defaultWeights on Score plugins: plugin {plugin:?} returns an invalid \
             score {score}, it should in the range of [{MIN_NODE_SCORE}, {MAX_NODE_SCORE}] after \
             normalizing"
        ),
    ))
}
