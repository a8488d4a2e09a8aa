//! Decides node by node: the reference that the decision over chunks, with its caches and threads, must match.

use crate::snapshot::{Chunk, Cluster, NodeInfo};

use super::algorithm::Algorithm;
use super::choose::tie_break;
use super::decision::Stages;
use super::extender::{self, ExtenderVerdicts};
use super::rejections::Rejections;
use super::sampling::Found;
use super::{Cycle, Decision, Diagnosis, Failure, Feasible, Filters, Status};

impl Algorithm {
    /// Returns the next result of [`Algorithm::decide`], computed by calling every plugin on one node after another.
    /// Intended for tests: it is about a hundred times slower and changes no state. Does not run PostFilter.
    ///
    /// # Errors
    ///
    /// Those of [`Algorithm::decide`].
    #[doc(hidden)]
    pub fn decide_by_nodes(&self, cycle: Cycle<'_>) -> Result<Decision, Failure> {
        let cluster = cycle.cluster;
        let is_within =
            |node: &NodeInfo<'_>| self.sub_cluster().is_none_or(|of| of.includes(*node));
        if self.sub_cluster().is_some_and(|of| of.excludes(cycle.pod))
            || !cluster.nodes().any(|node| is_within(&node))
        {
            return Err(Failure::NoNodes);
        }
        let admitted = self.sub_cluster().and_then(|of| of.admit(cycle.pod));
        let cycle = Cycle { pod: admitted.as_ref().unwrap_or(cycle.pod), ..cycle };
        let filters = self.framework().pre_filter(cycle);
        if let Some(status) = filters.rejected() {
            return Err(match status.code.is_rejection() {
                true => Failure::Fit(Box::new(Rejections::new(&filters).error)),
                false => status.clone().into(),
            });
        }
        let stages = Stages {
            framework: self.framework(),
            cycle,
            filters: &filters,
            sub_cluster: self.sub_cluster(),
            percentage_of_nodes: self.config.percentage_of_nodes,
        };
        let mut verdicts = ExtenderVerdicts::default();
        if let Some(decision) = stages.unscored(&mut verdicts)? {
            return Ok(decision);
        }
        let mut found = Found::default();
        let lists = stages.named().map_or_else(|| self.lists(cluster), |named| vec![named]);
        for list in lists {
            let before = found.looked_at;
            found = find(&filters, &list, stages.enough(list.len()))?;
            found.looked_at += before;
            let nodes = || found.nodes.clone();
            if let Some(passed) = stages.filter_by_extenders(&mut verdicts, nodes)? {
                (found.feasible, found.nodes) = (passed.len(), passed);
            }
            if found.feasible > 0 {
                break;
            }
        }
        let (mut feasible, looked_at) = (found.nodes, found.looked_at);
        let count = feasible.len();
        match feasible[..] {
            [] => {
                let diagnosis = Diagnosis::with_extenders(&filters, &verdicts);
                return Err(Failure::Fit(Box::new(diagnosis.fit_error_by_nodes())));
            }
            [node] => return Ok(Decision::of(node, 0, 1, looked_at)),
            _ => {}
        }
        let masks = in_chunk_order(cluster, &mut feasible);
        let masks = Feasible::new(cluster, masks);
        let scores = self.framework().pre_score(cycle, &masks)?;
        let scores = scores.score(&feasible)?;
        let extended = extender::scores(self.framework().handle(), cycle.pod, &feasible);
        let totals: Vec<i64> = feasible
            .iter()
            .zip(&scores)
            .map(|(node, scores)| {
                let total: i64 = scores.iter().map(|score| score.weighted).sum();
                total.saturating_add(extended.get(node.name()).copied().unwrap_or(0))
            })
            .collect();
        let best = totals.iter().copied().max().unwrap_or_default();
        let mut ties = feasible.iter().zip(&totals).filter(|(_, total)| **total == best);
        let equals = ties.clone().count() as u64;
        let chosen = tie_break(self.config.seed, cycle.pod, equals) as usize;
        let (node, _) = ties.nth(chosen).unwrap_or((&feasible[0], &0));
        Ok(Decision::of(*node, best, count, looked_at))
    }

    /// Returns the nodes of each list in the order in which the next search examines them.
    fn lists<'a>(&self, cluster: &'a Cluster) -> Vec<Vec<NodeInfo<'a>>> {
        let is_own =
            |node: &NodeInfo<'_>| self.partition.as_ref().is_none_or(|own| own.includes(*node));
        let is_within =
            |node: &NodeInfo<'_>| self.sub_cluster().is_none_or(|of| of.includes(*node));
        let (mut own, mut others) = (Vec::new(), Vec::new());
        for zone in cluster.zones() {
            let nodes: (Vec<_>, Vec<_>) = zone.nodes().filter(is_within).partition(is_own);
            own.push(nodes.0);
            others.push(nodes.1);
        }
        let lists = [own, others].map(round_robin).into_iter().zip(&self.orders).enumerate();
        let in_order = lists.map(|(at, (list, order)): (_, (Vec<NodeInfo<'_>>, _))| {
            let section = self.section(at).positions(cluster, list.len());
            let ranges = order.ranges(section, list.len());
            ranges.into_iter().flat_map(|range| list[range].to_vec()).collect()
        });
        in_order.collect()
    }
}

/// Interleaves the zones' nodes, round robin.
fn round_robin<'a>(zones: Vec<Vec<NodeInfo<'a>>>) -> Vec<NodeInfo<'a>> {
    let rounds = zones.iter().map(Vec::len).max().unwrap_or(0);
    let round = |at| zones.iter().filter_map(move |zone: &Vec<NodeInfo<'a>>| zone.get(at).copied());
    (0..rounds).flat_map(round).collect()
}

/// Sorts nodes by chunk and returns the chunks with their lanes. Ties are broken in chunk order, not in list order.
fn in_chunk_order<'a>(cluster: &'a Cluster, nodes: &mut [NodeInfo<'a>]) -> Vec<(&'a Chunk, u64)> {
    let order: Vec<*const Chunk> =
        cluster.zones().flat_map(|zone| zone.chunks()).map(std::ptr::from_ref).collect();
    nodes.sort_by_cached_key(|node| {
        let (chunk, lane) = node.place();
        (order.iter().position(|known| std::ptr::eq(*known, chunk)), lane)
    });
    let mut masks: Vec<(&Chunk, u64)> = Vec::new();
    for node in nodes {
        let (chunk, lane) = node.place();
        match masks.last_mut() {
            Some((last, mask)) if std::ptr::eq(*last, chunk) => *mask |= 1 << lane,
            _ => masks.push((chunk, 1 << lane)),
        }
    }
    masks
}

/// Returns the first `enough` nodes of a list that pass.
fn find<'a>(
    filters: &Filters<'_>,
    list: &[NodeInfo<'a>],
    enough: usize,
) -> Result<Found<NodeInfo<'a>>, Status> {
    let mut found = Found::default();
    for node in list {
        if found.feasible >= enough {
            break;
        }
        found.looked_at += 1;
        match filters.filter_with_nominated(*node) {
            None => {
                found.nodes.push(*node);
                found.feasible += 1;
            }
            Some(status) if status.code.is_rejection() => {}
            Some(status) => return Err(status),
        }
    }
    Ok(found)
}
