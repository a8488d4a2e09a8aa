//! Samples of a replay over time, for a page: requested amounts by pool, nodes in use, and waiting pods by cause.
//!
//! A long replay has millions of moments and a chart a thousand points: the samples of one span of time are reduced to
//! the largest of their values, and to the last ones, which hold until the next sample.

use std::collections::{BTreeMap, HashMap};

use portolan::cache::Cluster;
use portolan::model::Name;
use serde_json::{Value, json};

use crate::columns::pool;

use super::meter::{Usage, Waiting, usage_of};

/// The number of spans of time, of which there are at most four times as many points.
const SPANS: usize = 360;

/// The most pools with lines of their own.
const MOST_POOLS: usize = 12;

/// The most resources with lines: more cannot be told apart.
const MOST_RESOURCES: usize = 5;

/// The most causes with lines; the others share one.
const MOST_CAUSES: usize = 5;

/// The most causes that are told apart while samples are taken.
const MOST_KNOWN_CAUSES: usize = 100;

const OTHER: &str = "other causes";

/// The causes that are no reasons of a rejection.
const STATES: [&str; 3] = ["not tried yet", "gated", "waiting for a permit"];

/// The values of one moment.
#[derive(Clone, Debug, PartialEq)]
struct Sample {
    /// Seconds since the first arrival, or pods that had arrived.
    at: f64,
    /// The requested amounts by group of nodes and resource.
    requested: Vec<i64>,
    /// The number of nodes in use.
    used: usize,
    /// The numbers of waiting pods: by state, then by the causes that were known.
    waiting: Vec<usize>,
}

impl Sample {
    /// Raises each value to that of another moment.
    fn raise(&mut self, other: &Sample) {
        for (value, other) in self.requested.iter_mut().zip(&other.requested) {
            *value = (*value).max(*other);
        }
        self.used = self.used.max(other.used);
        self.waiting.resize(self.waiting.len().max(other.waiting.len()), 0);
        for (value, other) in self.waiting.iter_mut().zip(&other.waiting) {
            *value = (*value).max(*other);
        }
    }
}

/// A bounded number of samples.
#[derive(Clone, Debug, Default)]
struct Points {
    /// The length of a span; 0 keeps all moments.
    width: f64,
    kept: Vec<Sample>,
    /// The largest values of the current span, and its last sample.
    open: Option<(Sample, Sample)>,
}

impl Points {
    fn push(&mut self, sample: Sample) {
        if let Some((most, last)) = &mut self.open {
            let span = |at: f64| if self.width > 0.0 { (at / self.width).floor() } else { at };
            if span(most.at) == span(sample.at) {
                most.raise(&sample);
                *last = sample;
                return;
            }
        }
        self.close();
        self.open = Some((sample.clone(), sample));
    }

    /// Ends the current span.
    fn close(&mut self) {
        let Some((most, last)) = self.open.take() else { return };
        let end = last.at;
        let is_same = Sample { at: most.at, ..last.clone() } == most;
        self.kept.push(most);
        if !is_same {
            self.kept.push(last);
        }
        // Spans of this width have at most two points each, so that this ends.
        if self.kept.len() > 4 * SPANS && end > 0.0 {
            let mut wider = Points { width: end / SPANS as f64, ..Points::default() };
            for sample in std::mem::take(&mut self.kept) {
                wider.push(sample);
            }
            wider.close();
            *self = wider;
        }
    }
}

/// The nodes of a pool, or all nodes.
#[derive(Clone, Debug)]
struct Group {
    /// `None` for all nodes.
    name: Option<String>,
    nodes: usize,
    /// The allocatable amounts, in the order of the resources.
    allocatable: Vec<i64>,
}

/// The samples of a replay, and the state from which the next one is taken.
#[derive(Clone, Debug)]
pub(crate) struct Samples {
    resources: Vec<String>,
    /// All nodes, then the largest pools by name.
    groups: Vec<Group>,
    /// The group of each node that is in a pool.
    of_node: HashMap<Name, usize>,
    requested: Vec<i64>,
    points: Points,
    causes: Vec<String>,
    /// The number of pods that wait for each cause.
    counts: Vec<usize>,
    /// The cause of each waiting pod, by its place in the workload.
    of_pod: HashMap<usize, usize>,
}

impl Samples {
    /// Begins with the current amounts. O(nodes).
    pub(super) fn of(cluster: &Cluster, resources: &[Usage]) -> Samples {
        let mut pools: BTreeMap<&str, usize> = BTreeMap::new();
        for node in cluster.nodes().filter_map(|info| info.node()) {
            *pools.entry(pool(node).unwrap_or_default()).or_default() += 1;
        }
        let mut largest: Vec<&str> = pools.keys().copied().collect();
        largest.sort_by_key(|name| std::cmp::Reverse(pools[name]));
        largest.truncate(if largest.len() > 1 { MOST_POOLS } else { 0 });
        largest.sort_unstable();
        let names = largest.iter().map(|name| Some((*name).to_owned()));
        let group = |name| Group { name, nodes: 0, allocatable: vec![0; resources.len()] };
        let mut samples = Samples {
            resources: resources.iter().map(|of| of.resource.clone()).collect(),
            groups: std::iter::once(None).chain(names).map(group).collect(),
            of_node: HashMap::new(),
            requested: vec![0; resources.len() * (largest.len() + 1)],
            points: Points::default(),
            causes: Vec::new(),
            counts: Vec::new(),
            of_pod: HashMap::new(),
        };
        for info in cluster.nodes() {
            let of = info.node().and_then(|node| pool(node)).unwrap_or_default();
            let of = largest.iter().position(|name| *name == of).map(|at| at + 1);
            samples.of_node.extend(of.map(|of| (info.name().clone(), of)));
            for group in [Some(0), of].into_iter().flatten() {
                samples.groups[group].nodes += 1;
                for (at, name) in samples.resources.iter().enumerate() {
                    let (requested, allocatable) = usage_of(info, name);
                    let sum = &mut samples.groups[group].allocatable[at];
                    *sum = sum.saturating_add(allocatable);
                    let sum = &mut samples.requested[group * resources.len() + at];
                    *sum = sum.saturating_add(requested);
                }
            }
        }
        samples
    }

    /// Adds to the requested amount of a resource, by its place, on a node.
    pub(super) fn add(&mut self, node: &Name, resource: usize, amount: i64) {
        for group in [Some(0), self.of_node.get(node).copied()].into_iter().flatten() {
            let sum = &mut self.requested[group * self.resources.len() + resource];
            *sum = sum.saturating_add(amount);
        }
    }

    /// Notes why a pod of the workload waits. `None` ends the wait.
    pub(super) fn wait(&mut self, pod: usize, reasons: Option<&[String]>) {
        if let Some(cause) = self.of_pod.remove(&pod) {
            self.counts[cause] -= 1;
        }
        let Some(reasons) = reasons else { return };
        let cause = reasons.join("; ");
        let known = self.causes.iter().position(|known| *known == cause);
        let at = known.unwrap_or_else(|| {
            let is_full = self.causes.len() >= MOST_KNOWN_CAUSES;
            let cause = if is_full { OTHER.to_owned() } else { cause };
            let known = self.causes.iter().position(|known| *known == cause);
            known.unwrap_or_else(|| {
                self.causes.push(cause);
                self.counts.push(0);
                self.counts.len() - 1
            })
        });
        self.counts[at] += 1;
        self.of_pod.insert(pod, at);
    }

    /// Records the values of a moment.
    pub(super) fn take(&mut self, at: f64, used: usize, waiting: Waiting) {
        let rejected: usize = self.counts.iter().sum();
        let untried = waiting.unschedulable.saturating_sub(rejected);
        let states = [untried, waiting.gated, waiting.permit];
        let waiting = states.into_iter().chain(self.counts.iter().copied()).collect();
        self.points.push(Sample { at, requested: self.requested.clone(), used, waiting });
    }

    /// The samples for a page. `began` is the date of the first arrival, and `duration` the seconds from there to the
    /// last event, which the samples may not reach.
    pub(super) fn json(
        &self,
        is_timed: bool,
        began: Option<jiff::Timestamp>,
        duration: Option<f64>,
    ) -> Value {
        let mut points = self.points.clone();
        points.close();
        let points = points.kept;
        let pools = (0..self.groups.len()).map(|group| self.pool(group, &points));
        json!({
            "clock": {
                "unit": if is_timed { "seconds" } else { "pods" },
                "began": began.map(|began| began.to_string()),
                "end": points.last().map_or(0.0, |last| last.at),
                "duration": duration,
            },
            "at": points.iter().map(|point| point.at).collect::<Vec<_>>(),
            "nodes_used": points.iter().map(|point| point.used).collect::<Vec<_>>(),
            "pools": pools.collect::<Vec<_>>(),
            "waiting": self.waiting(&points),
        })
    }

    /// The resources with the largest requested shares of the group, in percent; those without requests are left out.
    fn pool(&self, group: usize, points: &[Sample]) -> Value {
        let Group { name, nodes, allocatable } = &self.groups[group];
        let values = |at: usize| {
            let share = move |amount: i64| amount as f64 * 100.0 / allocatable[at] as f64;
            let column = group * self.resources.len() + at;
            points.iter().map(move |point| rounded(share(point.requested[column])))
        };
        let resources = self.resources.iter().enumerate();
        let drawn = resources.filter(|(at, name)| *name != "pods" && allocatable[*at] > 0);
        let drawn = drawn.map(|(at, name)| (at, name, values(at).fold(0.0, f64::max)));
        let mut drawn: Vec<_> = drawn.filter(|(.., most)| *most > 0.0).collect();
        drawn.sort_by(|(.., a), (.., b)| b.total_cmp(a));
        drawn.truncate(MOST_RESOURCES);
        // Extended resources, whose names contain a slash, come last.
        drawn.sort_by_key(|(at, name, _)| (name.contains('/'), *at));
        let requested = drawn.into_iter().map(
            |(at, name, _)| json!({ "resource": name, "values": values(at).collect::<Vec<_>>() }),
        );
        json!({ "name": name, "nodes": nodes, "requested": requested.collect::<Vec<_>>() })
    }

    /// The causes for which most pods wait at a time, and the others together.
    fn waiting(&self, points: &[Sample]) -> Vec<Value> {
        let value = |point: &Sample, at: usize| point.waiting.get(at).copied().unwrap_or(0);
        let names = STATES.into_iter().chain(self.causes.iter().map(String::as_str));
        let most = |at: usize| points.iter().map(|point| value(point, at)).max().unwrap_or(0);
        let causes = names.enumerate().map(|(at, name)| (at, name, most(at)));
        let mut causes: Vec<_> = causes.filter(|(.., most)| *most > 0).collect();
        causes.sort_by_key(|(.., most)| std::cmp::Reverse(*most));
        let others = causes.split_off(causes.len().min(MOST_CAUSES));
        let line = |name: &str, of: &[usize]| {
            let values = points.iter().map(|point| of.iter().map(|at| value(point, *at)).sum());
            json!({ "cause": name, "values": values.collect::<Vec<usize>>() })
        };
        let mut lines: Vec<Value> = causes.iter().map(|(at, name, _)| line(name, &[*at])).collect();
        if !others.is_empty() {
            let others: Vec<usize> = others.into_iter().map(|(at, ..)| at).collect();
            lines.push(line(OTHER, &others));
        }
        lines
    }
}

fn rounded(percent: f64) -> f64 {
    (percent * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: f64, used: usize) -> Sample {
        Sample { at, requested: vec![used as i64], used, waiting: vec![used] }
    }

    #[test]
    fn points_are_bounded_and_keep_the_largest_and_the_last_values() {
        let mut points = Points::default();
        for at in 0..100_000_u32 {
            let used = if at == 77_777 { 9 } else { usize::from(at < 50_000) };
            points.push(sample(f64::from(at), used));
        }
        points.close();
        let kept = points.kept;
        assert!((SPANS..=4 * SPANS).contains(&kept.len()), "{}", kept.len());
        assert!(kept.is_sorted_by_key(|point| point.at));
        assert_eq!(kept.iter().map(|point| point.used).max(), Some(9));
        assert_eq!(kept.last().map(|point| (point.used, point.requested[0])), Some((0, 0)));
        let after = kept.iter().find(|point| point.at > 77_777.0 && point.used == 0);
        assert!(after.is_some_and(|point| point.at < 78_500.0), "the peak ends with its span");
    }

    #[test]
    fn all_moments_of_a_short_replay_are_kept() {
        let mut points = Points::default();
        for (at, used) in [(0.0, 1), (0.0, 3), (0.0, 2), (5.0, 2), (9.0, 0)] {
            points.push(sample(at, used));
        }
        points.close();
        let kept: Vec<_> = points.kept.iter().map(|point| (point.at, point.used)).collect();
        assert_eq!(kept, [(0.0, 3), (0.0, 2), (5.0, 2), (9.0, 0)]);
    }
}
