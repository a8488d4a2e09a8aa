//! Hard constraints (podtopologyspread/filtering.go).

use std::sync::Arc;

use crate::framework::{Code, Cycle, Filter, Reads, Reasons, Status};
use crate::model::Pod;
use crate::snapshot::{Chunk, Cluster, NodeInfo};

use super::super::topology::{Domain, Keys, Sums};
use super::NAME;
use super::constraints::Constraint;

const TOO_MANY: &str = "node(s) didn't match pod topology spread constraints";
const NO_LABEL: &str =
    "node(s) didn't match pod topology spread constraints (missing required label)";

/// A hard constraint with its counts.
#[derive(Clone)]
struct Hard<'a> {
    constraint: Arc<Constraint<'a>>,
    sums: Sums,
    /// The number of nodes in each domain; a domain without nodes does not exist.
    nodes: Sums,
    /// The two existing domains with the smallest counts.
    smallest: [Option<(Domain, i64)>; 2],
    /// The smallest count, or 0 if there are fewer domains than `minDomains`.
    least: i64,
    /// 1 if the constraint counts the pod itself, 0 otherwise.
    itself: i64,
}

/// Why a constraint rejects a node.
enum Violation {
    /// The node lacks the topology key.
    NoLabel,
    /// The skew would exceed the limit.
    TooMany,
}

/// The hard constraints of a pod.
#[derive(Clone)]
pub(super) struct Skew<'a> {
    cycle: Cycle<'a>,
    hard: Vec<Hard<'a>>,
}

/// Returns the two existing domains with the smallest sums.
fn smallest(sums: &Sums, nodes: &Sums) -> [Option<(Domain, i64)>; 2] {
    let mut smallest: [Option<(Domain, i64)>; 2] = [None, None];
    for domain in (0..nodes.topology.bound() as Domain).filter(|domain| nodes.get(*domain) > 0) {
        let found = Some((domain, sums.get(domain)));
        let is_below = |known: &Option<(Domain, i64)>| {
            known.is_none_or(|known| found.is_some_and(|found| found.1 < known.1))
        };
        if is_below(&smallest[0]) {
            smallest = [found, smallest[0]];
        } else if is_below(&smallest[1]) {
            smallest[1] = found;
        }
        // No counted sum is smaller. The changes of a clone may be.
        if sums.changed().next().is_none()
            && smallest.iter().all(|found| found.is_some_and(|(_, sum)| sum == 0))
        {
            break;
        }
    }
    smallest
}

impl Hard<'_> {
    fn find_least(&mut self) {
        let (all, enough) = (0..self.nodes.topology.bound() as Domain, self.constraint.min_domains);
        let domains = all.filter(|domain| self.nodes.get(*domain) > 0).take(enough).count();
        self.least = match domains < enough {
            true => 0,
            false => self.smallest[0].map_or(0, |(_, sum)| sum),
        };
    }

    /// Returns why the domain is rejected, or `None` if it is accepted.
    fn reject(&self, domain: Option<Domain>) -> Option<Violation> {
        let Some(domain) = domain else { return Some(Violation::NoLabel) };
        let skew = self.sums.get(domain) + self.itself - self.least;
        (skew > self.constraint.max_skew).then_some(Violation::TooMany)
    }
}

impl<'a> Skew<'a> {
    /// Creates the filter from the sums that [`follow`](super::counting::follow) returned.
    pub(super) fn new(
        cycle: Cycle<'a>,
        constraints: Vec<Constraint<'a>>,
        pods: &Keys,
        nodes: &Keys,
    ) -> Skew<'a> {
        let sums = pods.0.iter().zip(&nodes.0);
        let hard = constraints.into_iter().zip(sums).map(|(constraint, (sums, nodes))| {
            let itself = i64::from(constraint.selector.matches(&cycle.pod.template.labels));
            let mut hard = Hard {
                constraint: Arc::new(constraint),
                sums: sums.clone(),
                nodes: nodes.clone(),
                smallest: smallest(sums, nodes),
                least: 0,
                itself,
            };
            hard.find_least();
            hard
        });
        Skew { cycle, hard: hard.collect() }
    }
}

/// The verdicts on some lanes of a chunk.
struct Judged {
    /// The lanes that pass.
    passed: u64,
    /// The rejected lanes whose first violated constraint is one whose key the node lacks.
    without_label: u64,
}

impl Skew<'_> {
    fn judge(&self, chunk: &Chunk, mask: u64) -> Judged {
        let mut judged = Judged { passed: mask, without_label: 0 };
        for hard in &self.hard {
            hard.sums.topology.each(chunk, judged.passed, |domain, lanes| {
                match hard.reject(domain) {
                    None => return,
                    Some(Violation::NoLabel) => judged.without_label |= lanes,
                    Some(Violation::TooMany) => {}
                }
                judged.passed &= !lanes;
            });
        }
        judged
    }

    /// Adds `by` to the counts for a pod that joins or leaves a node (`updateWithPod`). As in kube-scheduler, the pod
    /// counts even if it is being deleted or if the selector is empty.
    fn change(&mut self, pod: &Pod, node: NodeInfo<'_>, by: i64) {
        if pod.namespace() != self.cycle.pod.namespace()
            || self.hard.iter().any(|hard| hard.sums.topology.domain(node).is_none())
        {
            return;
        }
        for hard in &mut self.hard {
            let policy = hard.constraint.policy(self.cycle.pod);
            let (chunk, lane) = node.place();
            let Some(domain) = hard.sums.topology.domain(node) else { continue };
            if !hard.constraint.selector.matches(&pod.template.labels)
                || policy.includes(node.cluster(), chunk, 1 << lane) == 0
            {
                continue;
            }
            hard.sums.add(domain, by);
            // As long as all changes are in one domain, the smallest of the other domains is unchanged.
            let others = hard.sums.changed().all(|changed| changed == domain);
            let rest = hard.smallest.iter().flatten().find(|(other, _)| *other != domain);
            hard.smallest = match (others, rest) {
                (true, rest) if hard.nodes.get(domain) > 0 => {
                    let mine = (domain, hard.sums.get(domain));
                    match rest {
                        Some(rest) if rest.1 < mine.1 => [Some(*rest), Some(mine)],
                        rest => [Some(mine), rest.copied()],
                    }
                }
                _ => smallest(&hard.sums, &hard.nodes),
            };
            hard.find_least();
        }
    }
}

impl Filter for Skew<'_> {
    fn filter(&self, node: NodeInfo<'_>) -> Option<Status> {
        let mut verdicts =
            self.hard.iter().filter_map(|hard| hard.reject(hard.sums.topology.domain(node)));
        verdicts.next().map(|violation| match violation {
            Violation::NoLabel => Status::new(Code::UnschedulableAndUnresolvable, NAME, NO_LABEL),
            Violation::TooMany => Status::new(Code::Unschedulable, NAME, TOO_MANY),
        })
    }

    fn filter_chunk(&self, _: &Cluster, chunk: &Chunk, mask: u64) -> Result<u64, Status> {
        Ok(self.judge(chunk, mask).passed)
    }

    fn count_reasons(
        &self,
        _: &Cluster,
        chunk: &Chunk,
        mask: u64,
        reasons: &mut Reasons,
    ) -> Result<u64, Status> {
        let Judged { passed, without_label } = self.judge(chunk, mask);
        let too_many = mask & !passed & !without_label;
        reasons.add(NO_LABEL, without_label.count_ones() as usize);
        reasons.add(TOO_MANY, too_many.count_ones() as usize);
        Ok(passed)
    }

    fn reads(&self) -> Reads {
        Reads::Pods
    }

    fn extend<'s>(&'s self) -> Option<Box<dyn Filter + 's>> {
        Some(Box::new(self.clone()))
    }

    fn add_pod(&mut self, pod: &Pod, node: NodeInfo<'_>) -> Result<(), Status> {
        self.change(pod, node, 1);
        Ok(())
    }

    fn remove_pod(&mut self, pod: &Pod, node: NodeInfo<'_>) -> Result<(), Status> {
        self.change(pod, node, -1);
        Ok(())
    }

    fn resolvable(&self, _: &Cluster, chunk: &Chunk, rejected: u64) -> u64 {
        rejected & !self.judge(chunk, rejected).without_label
    }
}
