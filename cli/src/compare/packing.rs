//! How a run packs its pods: nodes in use, their utilization and prices. In timed mode these are means over time.

use std::collections::{BTreeMap, HashMap};

use portolan::model::Name;

use super::shapes::requests;
use crate::replacement::is_of_node;
use crate::replay::run::Outcome;

/// Nodes in use, and prices per hour.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Used {
    pub(super) nodes: usize,
    /// The nodes in use; their mean number in timed mode.
    pub(super) used: f64,
    /// `None` if no prices are given.
    pub(super) price: Option<Price>,
}

/// The price per hour of all nodes, and of the nodes in use.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Price {
    pub(super) all: f64,
    pub(super) used: f64,
}

pub(super) struct Packing {
    pub(super) all: Used,
    /// By the value of the pool label; empty for nodes without it.
    pub(super) pools: BTreeMap<String, Used>,
    /// The requested shares of the nodes in use, in percent, by resource.
    pub(super) utilization: Vec<(String, f64)>,
    /// The requested share of each node at the end, in percent, the fullest first, by resource. Of many nodes, some.
    /// Empty in timed mode, whose pods have ended.
    pub(super) fill: Vec<(String, Vec<f64>)>,
}

/// The most nodes of a curve.
const MOST_POINTS: usize = 201;

impl Packing {
    pub(super) fn of(
        outcome: &Outcome,
        prices: Option<&HashMap<Name, f64>>,
        pool_label: Option<&str>,
    ) -> Packing {
        let none = Used { price: prices.map(|_| Price::default()), ..Used::default() };
        let (mut all, mut pools) = (none, BTreeMap::new());
        let mut sums: BTreeMap<String, (f64, f64)> = BTreeMap::new();
        let mut fill: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for node in outcome.end.nodes() {
            let share = match &outcome.busy {
                Some(busy) => busy.get(node.name()).copied().unwrap_or(0.0),
                None => f64::from(u8::from(node.pods().any(|pod| !is_of_node(pod.template())))),
            };
            let price = prices.and_then(|prices| prices.get(node.name())).copied().unwrap_or(0.0);
            let labels = node.node().map(|node| &node.labels);
            let pool = pool_label.map(|key| labels.and_then(|of| of.get(key)).unwrap_or_default());
            let pool = pool.map(|pool| pools.entry(pool.to_owned()).or_insert(none));
            for used in [Some(&mut all), pool].into_iter().flatten() {
                used.nodes += 1;
                used.used += share;
                if let Some(sum) = &mut used.price {
                    sum.all += price;
                    sum.used += share * price;
                }
            }
            let takes = node.requested();
            for (name, has) in requests(&node.allocatable()) {
                if outcome.busy.is_none() {
                    let share = takes.amount(&name) as f64 * 100.0 / has as f64;
                    fill.entry(name.clone()).or_default().push(share);
                }
                let takes = takes.amount(&name) as f64 * share;
                let sum = sums.entry(name).or_default();
                *sum = (sum.0 + takes, sum.1 + has as f64 * share);
            }
        }
        let requested = |name: &str, at_end: f64| match &outcome.busy {
            Some(_) => outcome.usage.iter().find(|of| of.resource == name).and_then(|of| of.mean),
            None => Some(at_end),
        };
        let utilization = sums.into_iter().filter_map(|(name, (at_end, has))| {
            let requested = requested(&name, at_end)?;
            (has > 0.0 && requested > 0.0).then(|| (name, requested * 100.0 / has))
        });
        let fill = fill.into_iter().filter(|(_, shares)| shares.iter().any(|share| *share > 0.0));
        let fill = fill.map(|(name, shares)| (name, curve(shares))).collect();
        Packing { all, pools, utilization: utilization.collect(), fill }
    }
}

/// The shares in descending order: all, or those at equal distances.
fn curve(mut shares: Vec<f64>) -> Vec<f64> {
    shares.sort_by(|a, b| b.total_cmp(a));
    let last = shares.len().saturating_sub(1);
    match shares.len() {
        0..=MOST_POINTS => shares,
        _ => (0..MOST_POINTS).map(|at| shares[at * last / (MOST_POINTS - 1)]).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_keeps_its_ends() {
        assert_eq!(curve(vec![1.0, 3.0, 2.0]), [3.0, 2.0, 1.0]);
        let long = curve((0..5_000).map(f64::from).collect());
        assert_eq!((long.len(), long[0], long[MOST_POINTS - 1]), (MOST_POINTS, 4_999.0, 0.0));
        assert!(long.is_sorted_by(|a, b| a > b));
    }
}
