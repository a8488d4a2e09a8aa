//! The disruptions that budgets allow during a simulation, as the disruption controller would compute them.
//!
//! They are computed at the start and after each part of the change. In between, they follow the pods that end and the
//! pods that are placed.

use std::collections::HashMap;
use std::sync::Arc;

use portolan::cache::{Cluster, Event, PodInfo};
use portolan::model::{Name, PodDisruptionBudget, Template};
use portolan::scheduler::drain::Stays;
use portolan_k8s::{BudgetLimit, Health, PodCounts, PodFacts};

use crate::error::CommandError;

use super::record::{Change, Record};
use super::world::World;

/// The budgets of the cluster.
pub(super) struct Limits<'c> {
    limits: &'c [BudgetLimit],
    facts: &'c PodFacts,
    /// One for each limit.
    states: Vec<State>,
    numbers: HashMap<(&'c Name, &'c Name), usize>,
    /// The limits whose selector is empty, which matches all pods of the namespace.
    of_all: Vec<usize>,
    /// The limits that cover the pods of a template.
    covering: HashMap<Arc<Template>, Arc<[usize]>>,
}

/// What a budget allows.
#[derive(Clone, Copy)]
struct State {
    /// The healthy pods, or `None` if none may be disrupted, whichever are healthy.
    health: Option<Health>,
    /// The number of its status, changed by as much as the margin since then.
    allowed: i64,
}

/// Why the API server refuses an eviction.
pub(super) enum Refused {
    /// The budget with this number allows no disruption.
    Budget(usize),
    /// Several budgets cover the pod.
    SeveralBudgets,
}

impl<'c> Limits<'c> {
    /// The budgets at the start of a simulation. O(pods + budgets).
    pub(super) fn new(
        limits: &'c [BudgetLimit],
        facts: &'c PodFacts,
        cluster: &Cluster,
        record: &Record,
    ) -> Limits<'c> {
        let number = |(at, limit): (usize, &'c BudgetLimit)| ((&limit.namespace, &limit.name), at);
        let is_for_all = |at: &usize| limits[*at].selector.is_empty();
        let mut budgets = Limits {
            limits,
            facts,
            states: Vec::new(),
            numbers: limits.iter().enumerate().map(number).collect(),
            of_all: (0..limits.len()).filter(is_for_all).collect(),
            covering: HashMap::new(),
        };
        let healths = budgets.healths(cluster, record);
        let store = &cluster.objects().pod_disruption_budgets;
        let states = limits.iter().zip(healths).map(|(limit, health)| {
            let status = store.get(&limit.namespace, &limit.name);
            let status = status.map_or(0, |budget| i64::from(budget.disruptions_allowed));
            let margin = health.map_or(0, Health::margin);
            State { health, allowed: if limit.has_status { status } else { margin } }
        });
        budgets.states = states.collect();
        budgets
    }

    /// Why the pod stays, in the terms of a drain.
    pub(super) fn stays(&self, refused: &Refused) -> Stays {
        match refused {
            Refused::Budget(at) => Stays::Budget(self.limits[*at].name.clone()),
            Refused::SeveralBudgets => Stays::SeveralBudgets,
        }
    }

    /// The name of a budget: NAMESPACE/NAME.
    pub(super) fn name(&self, at: usize) -> String {
        format!("{}/{}", self.limits[at].namespace, self.limits[at].name)
    }

    /// Computes the numbers from the current pods, and writes those that have changed. O(pods + budgets).
    pub(super) fn update(&mut self, world: &mut World) -> Result<(), CommandError> {
        if self.limits.is_empty() {
            return Ok(());
        }
        let cluster = world.cluster()?;
        world.record.take_changes();
        let healths = self.healths(&cluster, &world.record);
        let store = &cluster.objects().pod_disruption_budgets;
        for ((limit, state), health) in self.limits.iter().zip(&mut self.states).zip(healths) {
            state.allowed = match (limit.has_status, state.health, health) {
                (true, Some(before), Some(now)) => state.allowed + now.margin() - before.margin(),
                (true, ..) => state.allowed,
                (false, _, now) => now.map_or(0, Health::margin),
            };
            state.health = health;
            let Some(budget) = store.get(&limit.namespace, &limit.name) else { continue };
            let allowed = i32::try_from(state.allowed.max(0)).unwrap_or(i32::MAX);
            if allowed != budget.disruptions_allowed {
                let name = budget.name.clone();
                let budget = PodDisruptionBudget {
                    disruptions_allowed: allowed,
                    ..PodDisruptionBudget::clone(budget)
                };
                world.apply(Event::put_object(budget), || format!("budget {name}"))?;
            }
        }
        Ok(())
    }

    /// Follows the pods that have ended or were placed since the last call.
    pub(super) fn follow(&mut self, cluster: &Cluster, record: &mut Record) {
        for change in record.take_changes() {
            let (template, by) = match change {
                Change::Placed(template) => (template, 1),
                Change::Ended { uid, was_known, template } => {
                    let was_healthy = was_known || self.facts.is_ready(&uid);
                    (template, -i64::from(was_healthy))
                }
            };
            self.disrupt(cluster, &template, by);
        }
    }

    fn disrupt(&mut self, cluster: &Cluster, template: &Arc<Template>, by: i64) {
        for at in self.covering(cluster, template).iter() {
            let state = &mut self.states[*at];
            if let Some(health) = &mut state.health {
                health.healthy += by;
            }
            state.allowed += by;
        }
    }

    /// Whether the API server refuses to evict the pod (registry/core/pod/storage/eviction.go). `taken` is the number
    /// of healthy pods of each budget that are evicted together with it, and is increased.
    pub(super) fn evict(
        &mut self,
        pod: &PodInfo<'_>,
        cluster: &Cluster,
        record: &Record,
        taken: &mut HashMap<usize, i64>,
    ) -> Result<(), Refused> {
        let uid = pod.uid();
        let has_arrived = record.has_arrived(&uid);
        // No budget protects a pod that has not started.
        if !has_arrived && !self.facts.has_started(&uid) {
            return Ok(());
        }
        let at = match &*self.covering(cluster, pod.template()) {
            [] => return Ok(()),
            [at] => *at,
            _ => return Err(Refused::SeveralBudgets),
        };
        let State { health, allowed } = self.states[at];
        let before = taken.get(&at).copied().unwrap_or(0);
        // A pod that is not ready is free if its budget's policy is `AlwaysAllow`, or if enough others are healthy.
        if !has_arrived && !self.facts.is_ready(&uid) {
            let is_enough = |it: Health| it.desired > 0 && it.margin() - before >= 0;
            let is_free = self.limits[at].evicts_unhealthy || health.is_some_and(is_enough);
            if is_free {
                return Ok(());
            }
        }
        if allowed - before <= 0 {
            return Err(Refused::Budget(at));
        }
        *taken.entry(at).or_default() += 1;
        Ok(())
    }

    /// The limits that cover pods with this template.
    pub(super) fn covering(&mut self, cluster: &Cluster, template: &Arc<Template>) -> Arc<[usize]> {
        if let Some(known) = self.covering.get(template) {
            return known.clone();
        }
        let namespace = &template.namespace;
        let covers = |at: &usize| {
            let BudgetLimit { namespace: of, selector, .. } = &self.limits[*at];
            of == namespace && selector.matches(&template.labels)
        };
        // The index has budgets with labels only, for pods with labels.
        let found: Arc<[usize]> = match template.labels.is_empty() {
            true => (0..self.limits.len()).filter(covers).collect(),
            false => {
                let indexed = cluster.budgets_for(namespace, &template.labels).into_iter();
                let indexed =
                    indexed.filter_map(|it| self.numbers.get(&(&it.namespace, &it.name)).copied());
                indexed.chain(self.of_all.iter().copied().filter(covers)).collect()
            }
        };
        self.covering.insert(template.clone(), found.clone());
        found
    }

    fn healths(&mut self, cluster: &Cluster, record: &Record) -> Vec<Option<Health>> {
        if self.limits.is_empty() {
            return Vec::new();
        }
        let mut counts: HashMap<Arc<Template>, PodCounts> = HashMap::new();
        for pod in cluster.nodes().flat_map(|node| node.pods()) {
            let uid = pod.uid();
            let is_ready = record.has_arrived(&uid) || self.facts.is_ready(&uid);
            let is_healthy = is_ready && !record.has_ended(&uid);
            let counts = counts.entry(pod.template().clone()).or_default();
            counts.add(is_healthy, pod.deletion_time().is_some());
        }
        for pod in record.waiting() {
            counts.entry(pod.template.clone()).or_default().add(false, false);
        }
        let mut of: Vec<Vec<(&Template, PodCounts)>> = vec![Vec::new(); self.limits.len()];
        for (template, counts) in &counts {
            for at in self.covering(cluster, template).iter() {
                of[*at].push((template, *counts));
            }
        }
        let scales = &record.replacements.scales;
        self.limits.iter().zip(of).map(|(limit, pods)| limit.health(pods, scales)).collect()
    }
}
