//! Who would have to go from a node (default_preemption.go
//! `SelectVictimsOnNode`).

use std::cmp::Reverse;
use std::sync::Arc;

use crate::framework::{Code, Cycle, Filters, Status};
use crate::model::{Labels, Name, Pod, PodDisruptionBudget};
use crate::snapshot::{Fork, NodeInfo};

use super::{NAME, NO_VICTIMS};

/// A node that will do once these pods are gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The node.
    pub node: Name,
    /// The pods that have to go, the most important first.
    pub victims: Vec<Pod>,
    /// How many of them their disruption budgets do not let go.
    pub violations: usize,
}

/// Tries for one pod what would be if others were gone.
pub struct DryRun<'a> {
    cycle: Cycle<'a>,
    filters: &'a Filters<'a>,
    budgets: Vec<&'a Arc<PodDisruptionBudget>>,
}

/// The node, on a fork, with fewer pods than it has.
struct Trial<'f> {
    name: Name,
    fork: Fork,
    filters: Filters<'f>,
}

impl Trial<'_> {
    fn node(&self) -> Result<NodeInfo<'_>, Status> {
        let missing = || Status::error(NAME, format!("node {:?} not found", self.name));
        self.fork.node(&self.name).ok_or_else(missing)
    }

    fn remove(&mut self, pod: &Pod) -> Result<(), Status> {
        self.fork.remove_pod(&pod.uid).map_err(|error| Status::error(NAME, error.to_string()))?;
        let missing = || Status::error(NAME, format!("node {:?} not found", self.name));
        self.filters.remove_pod(pod, self.fork.node(&self.name).ok_or_else(missing)?)
    }

    fn add(&mut self, pod: &Pod) -> Result<(), Status> {
        self.fork.add_pod(pod).map_err(|error| Status::error(NAME, error.to_string()))?;
        let missing = || Status::error(NAME, format!("node {:?} not found", self.name));
        self.filters.add_pod(pod, self.fork.node(&self.name).ok_or_else(missing)?)
    }

    fn rejection(&self) -> Result<Option<Status>, Status> {
        Ok(self.filters.filter_with_nominated(self.node()?))
    }
}

impl<'a> DryRun<'a> {
    /// Of these filters' pod.
    #[must_use]
    pub fn new(cycle: Cycle<'a>, filters: &'a Filters<'a>) -> DryRun<'a> {
        let mut budgets: Vec<_> = cycle.cluster.objects().pod_disruption_budgets.iter().collect();
        budgets.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        DryRun { cycle, filters, budgets }
    }

    /// The pods that would have to go from the node. All pods of lower priority
    /// are taken away, and put back one by one as far as there is room: first
    /// those that their budgets protect, the most important first.
    ///
    /// O(pods of lower priority × filters); copies what changes of one node.
    ///
    /// # Errors
    ///
    /// Why the node will not do even without them; or a plugin failed.
    pub fn on(&self, node: NodeInfo<'_>) -> Result<Candidate, Status> {
        let priority = self.cycle.pod.template.priority;
        let lower = node.pods().filter(|pod| {
            let template = pod.template();
            template.priority < priority && !template.is_placeholder()
        });
        let mut pods: Vec<Pod> = lower.map(|pod| pod.to_pod()).collect();
        if pods.is_empty() {
            return Err(Status::new(Code::UnschedulableAndUnresolvable, NAME, NO_VICTIMS));
        }
        let mut trial = Trial {
            name: node.name().clone(),
            fork: node.cluster().fork(),
            filters: self.filters.extend(),
        };
        for pod in &pods {
            trial.remove(pod)?;
        }
        if let Some(status) = trial.rejection()? {
            return Err(status);
        }
        by_importance(&mut pods);
        let (protected, others) = self.split(pods);
        let both = !protected.is_empty() && !others.is_empty();
        let mut victims = Vec::new();
        let mut violations = 0;
        for (pods, is_protected) in [(protected, true), (others, false)] {
            for pod in pods {
                trial.add(&pod)?;
                if trial.rejection()?.is_some() {
                    trial.remove(&pod)?;
                    victims.push(pod);
                    violations += usize::from(is_protected);
                }
            }
        }
        if both {
            by_importance(&mut victims);
        }
        Ok(Candidate { node: trial.name, victims, violations })
    }

    /// The pods that their budgets would not let go if all went in this order,
    /// and the others (`filterPodsWithPDBViolation`).
    fn split(&self, pods: Vec<Pod>) -> (Vec<Pod>, Vec<Pod>) {
        let mut left: Vec<i32> = self.budgets.iter().map(|it| it.disruptions_allowed).collect();
        let mut violates = |pod: &Pod| {
            let mut violates = false;
            for (budget, left) in self.budgets.iter().zip(&mut left) {
                if counts(budget, pod) {
                    *left = left.saturating_sub(1);
                    violates |= *left < 0;
                }
            }
            violates
        };
        pods.into_iter().partition(|pod| violates(pod))
    }
}

/// Here a budget without a selector, or with an empty one, is nobody's, and a pod
/// without labels has none.
fn counts(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    let labels: &Labels = &pod.template.labels;
    !labels.is_empty()
        && !budget.selector.is_empty()
        && budget.counts(pod.namespace(), &pod.name, labels)
}

/// Sorts by priority, and then the pod that runs longest first
/// (`MoreImportantPod`). One that has not started does so now, as kube-scheduler
/// sees it, which asks the clock at every comparison: of two such the later one in
/// the list comes out first.
fn by_importance(pods: &mut Vec<Pod>) {
    pods.reverse();
    let unstarted_first = pods.iter().filter(|pod| pod.start_time.is_none()).cloned();
    let mut sorted: Vec<Pod> = unstarted_first.collect();
    sorted.extend(pods.iter().rev().filter(|pod| pod.start_time.is_some()).cloned());
    sorted.sort_by_key(|pod| {
        (Reverse(pod.template.priority), pod.start_time.is_none(), pod.start_time)
    });
    *pods = sorted;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Timestamp, pod};

    fn named(name: &str, priority: i32, start: Option<i64>) -> Pod {
        let mut pod = pod(name).priority(priority).build();
        pod.start_time = start.map(Timestamp);
        pod
    }

    #[test]
    fn pods_that_have_not_started_come_last_and_reversed() {
        let mut pods = vec![
            named("a", 1, None),
            named("b", 1, Some(7)),
            named("c", 2, None),
            named("d", 1, Some(3)),
            named("e", 1, None),
            named("f", 1, Some(3)),
        ];
        by_importance(&mut pods);
        let names: Vec<&str> = pods.iter().map(|pod| &*pod.name).collect();
        assert_eq!(names, ["c", "d", "f", "b", "e", "a"]);
    }
}
