//! The disruptions that budgets allow during a simulation, as the disruption controller would compute them.
//!
//! They are computed at the start and after each part of the change. In between, they follow the pods that end and the
//! pods that are placed.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use portolan::cache::{ChangedSince, Cluster, Event, NodeInfo, PodInfo};
use portolan::model::{Generation, Name, PodDisruptionBudget, Template, Uid};
use portolan::scheduler::drain::Stays;
use portolan_k8s::{BudgetLimit, Health, PodCounts, PodFacts};

use crate::error::CommandError;

use super::record::{Change, Record};
use super::start::Checkpoint;
use super::world::World;

/// The pods that budgets cover in the cluster with which simulations begin.
pub(super) struct Covered {
    counts: HashMap<Arc<Template>, PodCounts>,
    /// The templates of each limit.
    templates: Vec<Vec<Arc<Template>>>,
    /// One for each limit.
    healths: Vec<Option<Health>>,
}

/// A pod on a node, as it was counted: its template, whether it is healthy, and whether it is being deleted.
type Counted = (Arc<Template>, bool, bool);

/// The budgets of the cluster.
pub(super) struct Limits<'c> {
    limits: &'c [BudgetLimit],
    facts: &'c PodFacts,
    from: Arc<Checkpoint>,
    /// The version that was counted last.
    at: Generation,
    /// The pods of the nodes that the simulation has changed.
    of_nodes: HashMap<Name, Vec<Counted>>,
    /// The counts of their templates.
    counts: HashMap<Arc<Template>, PodCounts>,
    /// The limits whose pods were not always those of the first cluster.
    touched: BTreeSet<usize>,
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
    /// The budgets at the start of a simulation. O(budgets), after a first count of all pods of the checkpoint.
    pub(super) fn new(
        limits: &'c [BudgetLimit],
        facts: &'c PodFacts,
        from: &Arc<Checkpoint>,
        record: &Record,
    ) -> Limits<'c> {
        let number = |(at, limit): (usize, &'c BudgetLimit)| ((&limit.namespace, &limit.name), at);
        let is_for_all = |at: &usize| limits[*at].selector.is_empty();
        let cluster = &*from.cluster;
        let mut budgets = Limits {
            limits,
            facts,
            from: from.clone(),
            at: cluster.generation(),
            of_nodes: HashMap::new(),
            counts: HashMap::new(),
            touched: BTreeSet::new(),
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

    /// Computes the numbers from the current pods, and writes those that have changed. O(budgets + waiting pods + pods
    /// of the nodes that have changed since the last call).
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
                world.apply(Event::PutObject(budget.into()), || format!("budget {name}"))?;
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
        let from = self.from.clone();
        let covered = from.covered.get_or_init(|| self.covered(&from.cluster));
        self.count(cluster, record, covered);
        let mut counts = self.counts.clone();
        for pod in record.waiting() {
            covered.counts_of(&pod.template, &mut counts).add(false, false);
        }
        let mut new: HashMap<usize, Vec<&Arc<Template>>> = HashMap::new();
        for template in counts.keys() {
            let is_new = !covered.counts.contains_key(template);
            for at in self.covering(cluster, template).iter() {
                self.touched.insert(*at);
                if is_new {
                    new.entry(*at).or_default().push(template);
                }
            }
        }
        let scales = &record.replacements.scales;
        if !Arc::ptr_eq(scales, from.scales()) {
            self.touched.extend(0..self.limits.len());
        }
        let mut healths = covered.healths.clone();
        for at in &self.touched {
            let new = new.get(at).into_iter().flatten().copied();
            let pods = covered.templates[*at].iter().chain(new).map(|template| {
                let now = counts.get(template).or_else(|| covered.counts.get(template));
                (&**template, now.copied().unwrap_or_default())
            });
            healths[*at] = self.limits[*at].health(pods, scales);
        }
        healths
    }

    /// Counts the pods of the cluster with which the simulation begins. O(pods).
    fn covered(&mut self, cluster: &Cluster) -> Covered {
        let mut counts: HashMap<Arc<Template>, PodCounts> = HashMap::new();
        for node in cluster.nodes() {
            for (template, is_healthy, is_terminating) in self.counted(node, None) {
                counts.entry(template).or_default().add(is_healthy, is_terminating);
            }
        }
        let mut templates = vec![Vec::new(); self.limits.len()];
        for template in counts.keys() {
            self.covering(cluster, template)
                .iter()
                .for_each(|at| templates[*at].push(template.clone()));
        }
        let healths = self.limits.iter().zip(&templates).map(|(limit, templates)| {
            let pods = templates.iter().map(|template| (&**template, counts[template]));
            limit.health(pods, self.from.scales())
        });
        let healths = healths.collect();
        Covered { counts, templates, healths }
    }

    /// The pods of a node. Without a record, the simulation has touched none of them.
    fn counted(&self, node: NodeInfo<'_>, record: Option<&Record>) -> Vec<Counted> {
        let is_healthy = |uid: &Uid| {
            let has_arrived = record.is_some_and(|record| record.has_arrived(uid));
            (has_arrived || self.facts.is_ready(uid))
                && !record.is_some_and(|record| record.has_ended(uid))
        };
        let pods = node.pods().map(|pod| {
            (pod.template().clone(), is_healthy(&pod.uid()), pod.deletion_time().is_some())
        });
        pods.collect()
    }

    /// Counts the pods of the nodes that have changed since the last call.
    fn count(&mut self, cluster: &Cluster, record: &Record, covered: &Covered) {
        let base = &self.from.clone().cluster;
        let changed: Vec<Name> = match cluster.changed_since(self.at) {
            Ok(ChangedSince::Changes(changes)) => changes.into_iter().map(|it| it.name).collect(),
            // All nodes, which the versions may name in different ways.
            _ => {
                let nodes = base.nodes().chain(cluster.nodes()).map(|node| node.name().clone());
                nodes.chain(self.of_nodes.keys().cloned()).collect()
            }
        };
        for name in changed {
            let before = match self.of_nodes.remove(&name) {
                Some(known) => known,
                None => base.node(&name).map_or_else(Vec::new, |node| self.counted(node, None)),
            };
            for (template, is_healthy, is_terminating) in &before {
                covered.counts_of(template, &mut self.counts).remove(*is_healthy, *is_terminating);
            }
            let node = cluster.node(&name);
            let now = node.map_or_else(Vec::new, |node| self.counted(node, Some(record)));
            for (template, is_healthy, is_terminating) in &now {
                covered.counts_of(template, &mut self.counts).add(*is_healthy, *is_terminating);
            }
            self.of_nodes.insert(name, now);
        }
        self.at = cluster.generation();
    }
}

impl Covered {
    /// The counts of a template, which are those of the first cluster unless the simulation has changed them.
    fn counts_of<'m>(
        &self,
        template: &Arc<Template>,
        changed: &'m mut HashMap<Arc<Template>, PodCounts>,
    ) -> &'m mut PodCounts {
        let first = || self.counts.get(template).copied().unwrap_or_default();
        changed.entry(template.clone()).or_insert_with(first)
    }
}

#[cfg(test)]
impl Limits<'_> {
    /// Fails if the counts are not those of all pods.
    pub(super) fn check(&mut self, world: &World) {
        let (cluster, record) = (world.cluster().expect("a cluster"), &world.record);
        let from = self.from.clone();
        let covered = from.covered.get_or_init(|| self.covered(&from.cluster));
        self.count(&cluster, record, covered);
        let mut known = covered.counts.clone();
        known.extend(self.counts.clone());
        known.retain(|_, counts| !counts.is_empty());
        let mut all: HashMap<Arc<Template>, PodCounts> = HashMap::new();
        for (template, is_healthy, is_terminating) in
            cluster.nodes().flat_map(|node| self.counted(node, Some(record)))
        {
            all.entry(template).or_default().add(is_healthy, is_terminating);
        }
        assert_eq!(known, all);
        let known = self.healths(&cluster, &world.record);
        self.touched.extend(0..self.limits.len());
        assert_eq!(known, self.healths(&cluster, &world.record));
    }
}
