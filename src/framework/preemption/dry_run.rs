//! Selects the victims on a node (default_preemption.go `SelectVictimsOnNode`).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::framework::being_evicted::BeingEvicted;
use crate::framework::{Code, Cycle, Filters, PREEMPTION, Reasons, Status, Sums, Without};
use crate::model::{Name, PodDisruptionBudget};
use crate::snapshot::{Fork, Freed, NodeInfo, PodInfo, Victims, importance};

use super::NO_VICTIMS;
use super::candidate::{self, Candidate, Key};

/// A [`Candidate`] whose pods are not copied yet, because hundreds of candidates are found and only one is chosen.
pub(crate) struct Found<'a> {
    /// The node's pods of lower priority.
    lower: Victims<'a>,
    /// The indices of the victims in `lower`, the most important first.
    victims: Vec<usize>,
    violations: usize,
    pub(super) key: Key,
}

impl<'a> Found<'a> {
    fn new(lower: Victims<'a>, victims: Vec<usize>, violations: usize) -> Found<'a> {
        let key = candidate::key(violations, victims.iter().map(|at| lower.rank(*at)));
        Found { lower, victims, violations, key }
    }

    /// Returns whether no victim violates a disruption budget.
    pub(super) fn is_free(&self) -> bool {
        self.violations == 0
    }

    /// Returns whether the node passes with all of its pods.
    pub(super) fn is_empty(&self) -> bool {
        self.victims.is_empty()
    }

    pub(crate) fn into_candidate(self) -> Candidate {
        let Found { lower, victims, violations, .. } = self;
        let victims = victims.into_iter().map(|at| lower.pod(at).to_pod()).collect();
        Candidate { node: lower.node().name().clone(), victims, violations }
    }
}

/// Returns the best of these candidates, or the first of several.
pub(crate) fn best_found<'a>(found: impl IntoIterator<Item = Found<'a>>) -> Option<Candidate> {
    // `min_by_key` returns the first of several minima.
    found.into_iter().min_by_key(|found| found.key).map(Found::into_candidate)
}

/// Tries for one pod whether nodes pass without some of their pods.
pub struct DryRun<'a> {
    cycle: Cycle<'a>,
    filters: &'a Filters<'a>,
    /// `None` if every node is tried on a fork.
    sums: Option<Sums<'a>>,
    being_evicted: Option<&'a BeingEvicted>,
}

/// Why a node is not a candidate.
enum NotFound<R> {
    /// The node has no pods of lower priority.
    NoVictims,
    /// The sums determine that the filters reject the node.
    BySums(R),
    /// The filters reject the node for its other pods, or a plugin failed.
    ByPods(Status),
}

/// A node without some of its pods.
trait Trial {
    /// Adds the pod with this index back to the node.
    fn put_back(&mut self, at: usize) -> Result<(), Status>;

    /// Removes the pod with this index from the node.
    fn take(&mut self, at: usize) -> Result<(), Status>;

    fn passes(&self) -> Result<bool, Status>;
}

/// A trial over the sums of the pods' requests, for filters that read nothing else.
struct ByAmounts<'f, 'n> {
    sums: &'f Sums<'f>,
    lower: Victims<'n>,
    freed: Freed<'n>,
}

struct OnFork<'f, 'n> {
    lower: Victims<'n>,
    fork: Fork,
    filters: Filters<'f>,
}

impl Trial for ByAmounts<'_, '_> {
    fn put_back(&mut self, at: usize) -> Result<(), Status> {
        self.freed.keep(self.lower, at);
        Ok(())
    }

    fn take(&mut self, at: usize) -> Result<(), Status> {
        self.freed.let_go(self.lower, at);
        Ok(())
    }

    fn passes(&self) -> Result<bool, Status> {
        Ok(self.sums.passes_without(self.lower.node(), &self.freed))
    }
}

impl OnFork<'_, '_> {
    fn node(&self) -> Result<NodeInfo<'_>, Status> {
        node_of(&self.fork, self.lower.node().name())
    }

    fn rejection(&self) -> Result<Option<Status>, Status> {
        Ok(self.filters.filter_with_nominated(self.node()?))
    }
}

impl Trial for OnFork<'_, '_> {
    fn put_back(&mut self, at: usize) -> Result<(), Status> {
        let pod = self.lower.pod(at).to_pod();
        self.fork.add_pod(&pod).map_err(|error| Status::error(PREEMPTION, error.to_string()))?;
        self.filters.add_pod(&pod, node_of(&self.fork, self.lower.node().name())?)
    }

    fn take(&mut self, at: usize) -> Result<(), Status> {
        let pod = self.lower.pod(at).to_pod();
        self.fork
            .remove_pod(&pod.uid)
            .map_err(|error| Status::error(PREEMPTION, error.to_string()))?;
        self.filters.remove_pod(&pod, node_of(&self.fork, self.lower.node().name())?)
    }

    fn passes(&self) -> Result<bool, Status> {
        Ok(self.rejection()?.is_none())
    }
}

fn node_of<'f>(fork: &'f Fork, name: &Name) -> Result<NodeInfo<'f>, Status> {
    fork.node(name).ok_or_else(|| Status::error(PREEMPTION, format!("node {name:?} not found")))
}

impl<'a> DryRun<'a> {
    /// Creates a dry run for the pod of these filters.
    #[must_use]
    pub fn new(cycle: Cycle<'a>, filters: &'a Filters<'a>) -> DryRun<'a> {
        DryRun { cycle, filters, sums: filters.sums(), being_evicted: None }
    }

    /// Lets victims of earlier evictions leave in any case. Otherwise a pod that is being evicted could be spared for
    /// this preemptor, and more pods would be evicted than necessary.
    pub(super) fn with_being_evicted(self, being_evicted: &'a BeingEvicted) -> DryRun<'a> {
        DryRun { being_evicted: Some(being_evicted), ..self }
    }

    /// Returns the candidate for a node. First removes all pods of lower priority, then adds them back one by one as
    /// long as the node still passes: first those that disruption budgets protect, and the most important ones first.
    ///
    /// O(pods of lower priority × filters). Copies nothing if the filters read only sums of requests, and otherwise the
    /// changed parts of one node.
    ///
    /// # Errors
    ///
    /// Returns the node's status if the node does not pass even without these pods, or an error if a plugin fails.
    pub fn on(&self, node: NodeInfo<'_>) -> Result<Candidate, Status> {
        self.find(node).map(Found::into_candidate)
    }

    /// Returns the victims of [`DryRun::on`], without copying them.
    ///
    /// # Errors
    ///
    /// Those of [`DryRun::on`].
    pub fn victims_on<'n>(&self, node: NodeInfo<'n>) -> Result<Vec<PodInfo<'n>>, Status> {
        let Found { lower, victims, .. } = self.find(node)?;
        Ok(victims.into_iter().map(|at| lower.pod(at)).collect())
    }

    /// Like [`DryRun::on`], without copying the victims.
    pub(crate) fn find<'n>(&self, node: NodeInfo<'n>) -> Result<Found<'n>, Status> {
        self.find_or(node, |sums, freed| sums.without(node, freed)).map_err(|failed| match failed {
            NotFound::NoVictims => {
                Status::new(Code::UnschedulableAndUnresolvable, PREEMPTION, NO_VICTIMS)
            }
            NotFound::BySums(status) | NotFound::ByPods(status) => status,
        })
    }

    /// Like [`DryRun::find`], but returns `None` if the node is rejected, and adds the reasons to `reasons`.
    pub(super) fn find_or_count<'n>(
        &self,
        node: NodeInfo<'n>,
        reasons: &mut Reasons,
    ) -> Result<Option<Found<'n>>, Status> {
        match self.find_or(node, |sums, freed| sums.count_without(node, freed, reasons)) {
            Ok(found) => return Ok(Some(found)),
            Err(NotFound::NoVictims) => reasons.add(NO_VICTIMS, 1),
            Err(NotFound::BySums(None)) => {}
            Err(NotFound::ByPods(status)) if status.code.is_rejection() => {
                status.reasons.into_iter().for_each(|reason| reasons.add(reason, 1));
            }
            Err(NotFound::BySums(Some(status)) | NotFound::ByPods(status)) => return Err(status),
        }
        Ok(None)
    }

    /// Returns the candidate for a node. `without` returns the verdict on the node without all pods of lower priority.
    fn find_or<'n, R>(
        &self,
        node: NodeInfo<'n>,
        without: impl FnOnce(&Sums<'_>, &Freed<'_>) -> Without<R>,
    ) -> Result<Found<'n>, NotFound<R>> {
        let template = &self.cycle.pod.template;
        let victims = match self.cycle.cluster.godel() {
            // Gödel preempts only pods of the same class, because the classes have separate accounts.
            Some(_) => node.victims_of(template.class),
            None => node.victims(),
        };
        let lower = victims.below(template.priority);
        if lower.is_empty() {
            return Err(NotFound::NoVictims);
        }
        if let Some(sums) = self.sums.as_ref().filter(|_| lower.is_plain()) {
            let freed = lower.freed();
            match without(sums, &freed) {
                Without::Rejected(rejection) => return Err(NotFound::BySums(rejection)),
                Without::Passes => {
                    let trial = ByAmounts { sums, lower, freed };
                    return self.reprieve(lower, trial).map_err(NotFound::ByPods);
                }
                Without::PassesSums => {
                    if let Some(status) = sums.rejection_by_pods(lower) {
                        return Err(NotFound::ByPods(status));
                    }
                }
                Without::Unknown => {}
            }
        }
        self.on_fork(lower).map_err(NotFound::ByPods)
    }

    /// Like [`DryRun::find`], on a fork.
    pub(super) fn on_fork<'n>(&self, lower: Victims<'n>) -> Result<Found<'n>, Status> {
        let fork = lower.node().cluster().fork();
        let mut trial = OnFork { lower, fork, filters: self.filters.extend() };
        (0..lower.len()).try_for_each(|at| trial.take(at))?;
        match trial.rejection()? {
            Some(status) => Err(status),
            None => self.reprieve(lower, trial),
        }
    }

    /// Adds pods back as long as the node passes with them. The other pods are the victims.
    fn reprieve<'n>(&self, lower: Victims<'n>, mut trial: impl Trial) -> Result<Found<'n>, Status> {
        let (protected, others) = self.split(lower);
        let both = !protected.is_empty() && !others.is_empty();
        let mut victims = Vec::new();
        let mut violations = 0;
        for (indices, is_protected) in [(protected, true), (others, false)] {
            for at in indices {
                let leaves = |all: &BeingEvicted| all.contains(&lower.pod(at).uid());
                if self.being_evicted.is_some_and(leaves) {
                    victims.push(at);
                    continue;
                }
                trial.put_back(at)?;
                if !trial.passes()? {
                    trial.take(at)?;
                    victims.push(at);
                    violations += usize::from(is_protected);
                }
            }
        }
        if both {
            victims = by_importance(lower, victims);
        }
        Ok(Found::new(lower, victims, violations))
    }

    /// Splits the pods into those whose eviction would violate a disruption budget if all pods were evicted in this
    /// order, and the others (`filterPodsWithPDBViolation`). Returns their indices. O(pods + matching budgets); budgets
    /// are looked up once for pods with the same labels.
    pub(super) fn split(&self, lower: Victims<'_>) -> (Vec<usize>, Vec<usize>) {
        let objects = self.cycle.cluster.objects();
        if objects.pod_disruption_budgets.is_empty() {
            return (Vec::new(), (0..lower.len()).collect());
        }
        let mut left: Vec<Left<'_>> = Vec::new();
        // For each budget's number, its index in `left`.
        let mut indices: BTreeMap<u32, usize> = BTreeMap::new();
        // For each label set, the indices of its budgets in `left`.
        let mut known: BTreeMap<u32, Box<[usize]>> = BTreeMap::new();
        let mut violates = |pod: PodInfo<'_>| {
            let budgets = known.entry(pod.labels_id()).or_insert_with(|| {
                let found = objects.budgets_about(pod.namespace(), &pod.template().labels);
                let index = |(number, budget): (u32, &'a Arc<PodDisruptionBudget>)| {
                    *indices.entry(number).or_insert_with(|| {
                        left.push(Left { budget, allowed: budget.disruptions_allowed });
                        left.len() - 1
                    })
                };
                found.map(index).collect()
            });
            let mut violates = false;
            for index in budgets.iter() {
                violates |= left[*index].is_exceeded_by(pod);
            }
            violates
        };
        (0..lower.len()).partition(|at| violates(lower.pod(*at)))
    }
}

/// A disruption budget and its remaining number of allowed disruptions.
struct Left<'a> {
    budget: &'a PodDisruptionBudget,
    allowed: i32,
}

impl Left<'_> {
    /// Counts a pod that the budget's selector matches, unless the pod is already being disrupted. Returns whether the
    /// budget is exceeded.
    fn is_exceeded_by(&mut self, pod: PodInfo<'_>) -> bool {
        if self.budget.is_disrupted(pod.name()) {
            return false;
        }
        self.allowed = self.allowed.saturating_sub(1);
        self.allowed < 0
    }
}

/// Sorts victims by importance again, as kube-scheduler does, whose comparison reverses pods without a start time.
fn by_importance(lower: Victims<'_>, victims: Vec<usize>) -> Vec<usize> {
    let mut keyed: Vec<_> = victims
        .into_iter()
        .enumerate()
        .map(|(at, victim)| {
            let (priority, start) = lower.rank(victim);
            (importance(priority, start, at as u32), victim)
        })
        .collect();
    keyed.sort_unstable();
    keyed.into_iter().map(|(_, victim)| victim).collect()
}
