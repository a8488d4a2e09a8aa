//! Keeps the disruptions that budgets allow up to date when the question adds, loses or
//! removes pods, as the disruption controller would.

use std::collections::HashMap;
use std::sync::Arc;

use portolan::Cluster;
use portolan::log::Event;
use portolan::model::{Name, Object, PodDisruptionBudget, Template, Uid};
use portolan_k8s::{BudgetLimit, PodFacts, Scales};

use crate::error::Failure;
use crate::simulation::{Simulation, closed, event};

use super::record::Record;

/// The budgets at the start of the question.
pub(super) struct Limits<'c> {
    limits: &'c [BudgetLimit],
    facts: &'c PodFacts,
    /// For each limit: how many disruptions its pods allow, and how many its status allows.
    /// Empty if the question changes no pods.
    before: Vec<(Option<i64>, i32)>,
}

/// How a budget treats the eviction of a pod that is not ready.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unready {
    /// The eviction is allowed without a charge.
    IsFree,
    /// The eviction is charged like that of any other pod.
    IsCharged,
}

impl<'c> Limits<'c> {
    /// The limits for a question that changes no pods.
    pub(super) fn new(limits: &'c [BudgetLimit], facts: &'c PodFacts) -> Limits<'c> {
        Limits { limits, facts, before: Vec::new() }
    }

    /// O(pods × budgets of their namespace).
    pub(super) fn of(
        limits: &'c [BudgetLimit],
        facts: &'c PodFacts,
        scales: &Scales,
        cluster: &Cluster,
        record: &Record,
    ) -> Limits<'c> {
        let states = Limits::new(limits, facts);
        let margins = states.margins(scales, cluster, record);
        let budgets = &cluster.objects().pod_disruption_budgets;
        let allowed = |limit: &BudgetLimit| {
            let budget = budgets.get(&limit.namespace, &limit.name);
            budget.map_or(0, |budget| budget.disruptions_allowed)
        };
        let before = margins.into_iter().zip(limits.iter().map(allowed)).collect();
        Limits { before, ..states }
    }

    /// Writes the numbers that follow from the current pods. A number from a status changes by as much as the computed
    /// number does.
    pub(super) fn update(
        &self,
        scales: &Scales,
        simulation: &Simulation,
        record: &Record,
    ) -> Result<(), Failure> {
        let cluster = simulation.engine.reader().map_err(closed)?.snapshot();
        if self.before.is_empty() {
            return Ok(());
        }
        let margins = self.margins(scales, &cluster, record);
        for ((limit, (before, status)), now) in self.limits.iter().zip(&self.before).zip(margins) {
            let store = &cluster.objects().pod_disruption_budgets;
            let Some(budget) = store.get(&limit.namespace, &limit.name) else { continue };
            let allowed = match (limit.has_status, before, now) {
                (true, Some(before), Some(now)) => i64::from(*status) + now - before,
                (true, ..) => continue,
                (false, _, now) => now.unwrap_or(0),
            };
            let allowed = i32::try_from(allowed.max(0)).unwrap_or(i32::MAX);
            if allowed != budget.disruptions_allowed {
                let budget = PodDisruptionBudget {
                    disruptions_allowed: allowed,
                    ..PodDisruptionBudget::clone(budget)
                };
                let name = budget.name.clone();
                let put = event(&simulation.engine, Event::PutObject(Object::from(budget)))?;
                put.map_err(|error| Failure::Refused { object: format!("budget {name}"), error })?;
            }
        }
        Ok(())
    }

    /// Whether a budget is charged for a pod that is not ready (registry/core/pod/storage/eviction.go): not if its
    /// policy is `AlwaysAllow`, and not if enough pods are healthy. O(pods).
    pub(super) fn unready(
        &self,
        budget: &PodDisruptionBudget,
        scales: &Scales,
        cluster: &Cluster,
        record: &Record,
    ) -> Unready {
        let mut limits = self.limits.iter();
        let is_it = |it: &&BudgetLimit| it.namespace == budget.namespace && it.name == budget.name;
        let Some(limit) = limits.find(is_it) else { return Unready::IsCharged };
        let one = Limits { limits: std::slice::from_ref(limit), ..Limits::new(&[], self.facts) };
        let is_healthy = || {
            let margin = one.margins(scales, cluster, record).pop().flatten();
            margin.is_some_and(|margin| margin >= 0)
        };
        match limit.evicts_unhealthy || is_healthy() {
            true => Unready::IsFree,
            false => Unready::IsCharged,
        }
    }

    /// Whether the pod was ready at the start, or is since the simulation has placed it.
    pub(super) fn is_ready(&self, pod: &Uid, record: &Record) -> bool {
        self.facts.is_ready(pod) || record.has_arrived(pod)
    }

    /// Whether budgets protect the pod: it has started.
    pub(super) fn is_protected(&self, pod: &Uid, record: &Record) -> bool {
        self.facts.has_started(pod) || record.has_arrived(pod)
    }

    fn margins(&self, scales: &Scales, cluster: &Cluster, record: &Record) -> Vec<Option<i64>> {
        let mut of: HashMap<&Name, Vec<(Arc<Template>, bool)>> =
            self.limits.iter().map(|limit| (&limit.namespace, Vec::new())).collect();
        if of.is_empty() {
            return Vec::new();
        }
        for pod in cluster.nodes().flat_map(|node| node.pods()) {
            let Some(pods) = of.get_mut(pod.namespace()) else { continue };
            let uid = pod.uid();
            let is_ready = self.is_ready(&uid, record);
            pods.push((pod.template().clone(), is_ready && pod.deletion_time().is_none()));
        }
        for pod in record.waiting(cluster) {
            if let Some(pods) = of.get_mut(pod.namespace()) {
                pods.push((pod.template.clone(), false));
            }
        }
        let margin = |limit: &BudgetLimit| {
            let pods = of.get(&limit.namespace).map(Vec::as_slice).unwrap_or_default();
            limit.margin(pods.iter().map(|(template, healthy)| (&**template, *healthy)), scales)
        };
        self.limits.iter().map(margin).collect()
    }
}
