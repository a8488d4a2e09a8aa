//! Soft constraints (podtopologyspread/scoring.go).

use crate::framework::{
    Cycle, Feasible, Score, ScoredNodes, Status, dispatch, each_run, each_same,
};
use crate::model::HOSTNAME;
use crate::snapshot::{Chunk, Cluster, Column, LANES, NodeInfo, lanes};

use super::super::topology::{Keys, Sums};
use super::constraints::Constraint;
use super::counting::Sets;

/// A soft constraint with its counts.
struct Soft {
    max_skew: i64,
    sums: Sums,
    weight: f64,
}

/// The pods of a chunk that constraints over single nodes count.
struct OnHosts {
    /// The lanes with such pods.
    lanes: u64,
    /// The number of pods in each lane, by constraint.
    counts: Vec<Column<i64>>,
}

/// The soft constraints of a pod.
pub(super) struct Spread<'a> {
    cluster: &'a Cluster,
    soft: Vec<Soft>,
    sets: Sets,
    /// The constraints over single nodes. Their pods are counted when the node is scored, whether or not the constraint
    /// includes the node.
    of_hosts: u64,
    /// Whether nodes that lack a key are excluded.
    all_keys: bool,
}

/// Returns the bit mask of the constraints over single nodes.
pub(super) fn of_hosts(constraints: &[Constraint<'_>]) -> u64 {
    let is_of_hosts = constraints.iter().map(|constraint| **constraint.key == *HOSTNAME);
    is_of_hosts.enumerate().fold(0, |bits, (at, is)| bits | u64::from(is) << at)
}

impl<'a> Spread<'a> {
    /// Creates the score from the sums that [`follow`](super::counting::follow) returned.
    pub(super) fn new(
        cycle: Cycle<'a>,
        feasible: &Feasible<'_>,
        (constraints, sets): (&[Constraint<'_>], Sets),
        keys: &Keys,
        all_keys: bool,
    ) -> Spread<'a> {
        let (cluster, of_hosts) = (cycle.cluster, of_hosts(constraints));
        let sums = &keys.0;
        // Marks the values that occur among the feasible nodes. The last entry stands for nodes that lack the key.
        let mut seen: Vec<Vec<bool>> = sums
            .iter()
            .map(|sums| match sums.topology.is_of_hosts() {
                true => Vec::new(),
                false => vec![false; sums.topology.bound() + 1],
            })
            .collect();
        let mut scored = 0;
        for (chunk, mut mask) in feasible.chunks() {
            for sums in sums.iter().filter(|_| all_keys) {
                mask = sums.topology.having(chunk, mask);
            }
            scored += mask.count_ones() as usize;
            for (sums, seen) in sums.iter().zip(&mut seen).filter(|(_, seen)| !seen.is_empty()) {
                let none = sums.topology.bound();
                sums.topology.each(chunk, mask, |domain, _| {
                    seen[domain.map_or(none, |domain| domain as usize)] = true;
                });
            }
        }
        let soft = constraints.iter().zip(sums).zip(&seen).map(|((constraint, sums), seen)| {
            let size = match sums.topology.is_of_hosts() {
                true => scored,
                false => seen.iter().filter(|seen| **seen).count(),
            };
            let weight = ((size + 2) as f64).ln();
            Soft { max_skew: constraint.max_skew, sums: sums.clone(), weight }
        });
        Spread { cluster, soft: soft.collect(), sets, of_hosts, all_keys }
    }
}

impl Spread<'_> {
    /// Counts the pods in each lane for the constraints over single nodes. Returns `None` if there are no such pods.
    fn on_hosts(&self, chunk: &Chunk, mask: u64) -> Option<OnHosts> {
        let mut counted: Option<OnHosts> = None;
        if self.of_hosts != 0 {
            self.sets.each(self.cluster, chunk, |bits, lane, living| {
                let bits = bits & self.of_hosts;
                if bits != 0 && mask >> lane & 1 == 1 {
                    let counted = counted.get_or_insert_with(|| OnHosts {
                        lanes: 0,
                        counts: vec![[0; LANES]; self.soft.len()],
                    });
                    counted.lanes |= 1 << lane;
                    lanes(bits).for_each(|at| counted.counts[at][lane] += living);
                }
            });
        }
        counted
    }

    /// Returns the lanes whose nodes have the keys of the constraints over single nodes.
    fn having(&self, chunk: &Chunk, mask: u64) -> u64 {
        lanes(self.of_hosts).fold(mask, |mask, at| self.soft[at].sums.topology.having(chunk, mask))
    }

    fn lane(&self, chunk: &Chunk, lane: usize, on_hosts: Option<&OnHosts>) -> i64 {
        let domain = |soft: &Soft| soft.sums.topology.domain_in(chunk, lane);
        if self.all_keys && self.soft.iter().any(|soft| domain(soft).is_none()) {
            return EXCLUDED;
        }
        let mut score = 0.0;
        for (at, soft) in self.soft.iter().enumerate() {
            let Some(domain) = domain(soft) else { continue };
            let count = match self.of_hosts >> at & 1 {
                1 => on_hosts.map_or(0, |on_hosts| on_hosts.counts[at][lane]),
                _ => soft.sums.get(domain),
            };
            score += count as f64 * soft.weight + (soft.max_skew - 1) as f64;
        }
        score.round() as i64
    }
}

/// The score of an excluded node.
const EXCLUDED: i64 = -1;

impl Score for Spread<'_> {
    fn score(&self, node: NodeInfo<'_>) -> Result<i64, Status> {
        let (chunk, lane) = node.place();
        Ok(self.lane(chunk, lane, self.on_hosts(chunk, 1 << lane).as_ref()))
    }

    fn score_chunk(
        &self,
        _: &Cluster,
        chunk: &Chunk,
        mask: u64,
        scores: &mut Column<i64>,
    ) -> Result<(), Status> {
        let on_hosts = self.on_hosts(chunk, mask);
        let on_hosts = on_hosts.as_ref();
        // Nodes without counted pods and with equal labels have equal scores. `having` excludes nodes without a
        // hostname.
        let uniform = self.having(chunk, mask) & !on_hosts.map_or(0, |on_hosts| on_hosts.lanes);
        each_same(chunk.label_set(), uniform, |lane, all| {
            let score = self.lane(chunk, lane, on_hosts);
            match all == mask {
                // Lanes outside of the mask may have any score.
                true => *scores = [score; LANES],
                false => lanes(all).for_each(|lane| scores[lane] = score),
            }
            0
        });
        lanes(mask & !uniform).for_each(|lane| scores[lane] = self.lane(chunk, lane, on_hosts));
        Ok(())
    }

    fn needs_normalize(&self) -> bool {
        true
    }

    fn normalize(&self, _: &ScoredNodes<'_>, scores: &mut [i64]) -> Result<(), Status> {
        let (mut min, max) = dispatch::extremes(scores);
        let max = max.max(0);
        if min == EXCLUDED {
            let counted = scores.iter().filter(|score| **score != EXCLUDED);
            min = counted.min().copied().unwrap_or(0);
        }
        each_run(scores, |score| match (score, max) {
            (EXCLUDED, _) => 0,
            (_, 0) => 100,
            (score, max) => 100 * (max + min - score) / max,
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::cache::{Config, Engine};
    use crate::framework::Framework;
    use crate::model::{LabelSelector, TopologySpreadConstraint, UnsatisfiableAction, node, pod};

    #[test]
    fn nodes_without_the_key_get_zero_and_do_not_affect_the_others() {
        let (mut writer, _) = Engine::inline(Config::default());
        for (name, zone) in [("a", Some("x")), ("b", Some("y")), ("c", None)] {
            let made = node(name).pods(110);
            let made = zone.into_iter().fold(made, |made, zone| made.zone(zone));
            writer.add_node(made.build()).unwrap();
        }
        for (name, on) in [("one", "a"), ("two", "a"), ("three", "b")] {
            writer.add_pod(pod(name).label("app", "web").on(on).build()).unwrap();
        }
        let spread = TopologySpreadConstraint {
            max_skew: 1,
            topology_key: "topology.kubernetes.io/zone".into(),
            when_unsatisfiable: UnsatisfiableAction::ScheduleAnyway,
            selector: LabelSelector::from_labels([("app", "web")]),
            min_domains: None,
            honor_node_affinity: true,
            honor_node_taints: false,
            match_label_keys: Box::default(),
        };
        let pod =
            pod("four").label("app", "web").spec(|spec| spec.topology_spread = [spread].into());
        let pod = pod.build();
        let found = Framework::default_profile().evaluate(writer.cluster(), &pod);
        let scores = found.nodes.values().map(|verdict| {
            let score = verdict.scores.iter().find(|score| score.plugin == "PodTopologySpread");
            score.map(|score| score.normalized)
        });
        // Two pods in one zone and one in the other, times ln(2 + 2), are 3 and 1 when rounded.
        assert_eq!(scores.collect::<Vec<_>>(), [Some(33), Some(100), Some(0)]);
    }
}
