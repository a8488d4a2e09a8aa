//! Who would have to go from a node (default_preemption.go
//! `SelectVictimsOnNode`).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::framework::{Code, Cycle, Filters, PREEMPTION, Status, Sums, Without};
use crate::model::{Name, PodDisruptionBudget};
use crate::snapshot::{Fork, Freed, NodeInfo, PodInfo, Victims, importance};

use super::NO_VICTIMS;
use super::candidate::{self, Candidate, Key};

/// A [`Candidate`] whose pods are not written out: hundreds are found, and one is
/// chosen.
pub(crate) struct Found<'a> {
    /// Those of lower priority.
    lower: Victims<'a>,
    /// Those of them that have to go, by place, the most important first.
    victims: Vec<usize>,
    violations: usize,
    pub(super) key: Key,
}

impl<'a> Found<'a> {
    fn new(lower: Victims<'a>, victims: Vec<usize>, violations: usize) -> Found<'a> {
        let key = candidate::key(violations, victims.iter().map(|at| lower.rank(*at)));
        Found { lower, victims, violations, key }
    }

    /// Whether nobody goes against a disruption budget.
    pub(super) fn is_free(&self) -> bool {
        self.violations == 0
    }

    pub(crate) fn into_candidate(self) -> Candidate {
        let Found { lower, victims, violations, .. } = self;
        let victims = victims.into_iter().map(|at| lower.pod(at).to_pod()).collect();
        Candidate { node: lower.node().name().clone(), victims, violations }
    }
}

/// The best of candidates that are not written out, the first of several.
pub(crate) fn best_found<'a>(found: impl IntoIterator<Item = Found<'a>>) -> Option<Candidate> {
    // Of several equal ones the first is the least.
    found.into_iter().min_by_key(|found| found.key).map(Found::into_candidate)
}

/// Tries for one pod what would be if others were gone.
pub struct DryRun<'a> {
    cycle: Cycle<'a>,
    filters: &'a Filters<'a>,
    /// None if every node is tried on a fork.
    sums: Option<Sums<'a>>,
}

/// A node with fewer pods than it has.
trait Trial {
    /// Puts one of the pods back, by its place.
    fn put_back(&mut self, at: usize) -> Result<(), Status>;

    /// Takes one of them away.
    fn take(&mut self, at: usize) -> Result<(), Status>;

    fn passes(&self) -> Result<bool, Status>;
}

/// By what its pods take: where nothing else is in question.
struct ByAmounts<'f, 'n> {
    sums: &'f Sums<'f>,
    lower: Victims<'n>,
    freed: Freed<'n>,
}

/// On a fork.
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
    /// Of these filters' pod.
    #[must_use]
    pub fn new(cycle: Cycle<'a>, filters: &'a Filters<'a>) -> DryRun<'a> {
        DryRun { cycle, filters, sums: filters.sums() }
    }

    /// The pods that would have to go from the node. All pods of lower priority are taken
    /// away, and put back one by one as far as there is room: first those that their
    /// budgets protect, the most important first.
    ///
    /// O(pods of lower priority × filters). Where it follows from amounts of resources
    /// alone nothing is copied; otherwise what changes of one node.
    ///
    /// # Errors
    ///
    /// Why the node will not do even without them; or a plugin failed.
    pub fn on(&self, node: NodeInfo<'_>) -> Result<Candidate, Status> {
        self.find(node).map(Found::into_candidate)
    }

    /// The same, its pods not written out.
    pub(crate) fn find<'n>(&self, node: NodeInfo<'n>) -> Result<Found<'n>, Status> {
        let wants = &self.cycle.pod.template;
        let victims = match self.cycle.cluster.godel() {
            // Gödel preempts within a class: the accounts are disjoint.
            Some(_) => node.victims_of(wants.class),
            None => node.victims(),
        };
        let lower = victims.below(wants.priority);
        if lower.is_empty() {
            return Err(Status::new(Code::UnschedulableAndUnresolvable, PREEMPTION, NO_VICTIMS));
        }
        if let Some(sums) = self.sums.as_ref().filter(|_| lower.is_plain()) {
            let freed = lower.freed();
            match sums.without(node, &freed) {
                Without::Rejected(status) => return Err(status),
                Without::Passes => return self.reprieve(lower, ByAmounts { sums, lower, freed }),
                Without::Unknown => {}
            }
        }
        self.on_fork(lower)
    }

    /// The same, on a fork.
    pub(super) fn on_fork<'n>(&self, lower: Victims<'n>) -> Result<Found<'n>, Status> {
        let fork = lower.node().cluster().fork();
        let mut trial = OnFork { lower, fork, filters: self.filters.extend() };
        (0..lower.len()).try_for_each(|at| trial.take(at))?;
        match trial.rejection()? {
            Some(status) => Err(status),
            None => self.reprieve(lower, trial),
        }
    }

    /// Puts pods back as far as the node passes with them.
    fn reprieve<'n>(&self, lower: Victims<'n>, mut trial: impl Trial) -> Result<Found<'n>, Status> {
        let (protected, others) = self.split(lower);
        let both = !protected.is_empty() && !others.is_empty();
        let mut victims = Vec::new();
        let mut violations = 0;
        for (places, is_protected) in [(protected, true), (others, false)] {
            for at in places {
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

    /// The places of the pods that their budgets would not let go if all went in
    /// this order, and of the others (`filterPodsWithPDBViolation`). O(pods + budgets
    /// about them), the budgets being looked for once for pods of the same labels.
    pub(super) fn split(&self, lower: Victims<'_>) -> (Vec<usize>, Vec<usize>) {
        let objects = self.cycle.cluster.objects();
        if objects.pod_disruption_budgets.is_empty() {
            return (Vec::new(), (0..lower.len()).collect());
        }
        let mut left: Vec<Left<'_>> = Vec::new();
        let mut places: BTreeMap<u32, usize> = BTreeMap::new();
        // By labels, the places of their budgets.
        let mut known: BTreeMap<u32, Box<[usize]>> = BTreeMap::new();
        let mut violates = |pod: PodInfo<'_>| {
            let budgets = known.entry(pod.labels_id()).or_insert_with(|| {
                let found = objects.budgets_about(pod.namespace(), &pod.template().labels);
                let place = |(number, budget): (u32, &'a Arc<PodDisruptionBudget>)| {
                    *places.entry(number).or_insert_with(|| {
                        left.push(Left { budget, allowed: budget.disruptions_allowed });
                        left.len() - 1
                    })
                };
                found.map(place).collect()
            });
            let mut violates = false;
            for place in budgets.iter() {
                violates |= left[*place].is_exceeded_by(pod);
            }
            violates
        };
        (0..lower.len()).partition(|at| violates(lower.pod(*at)))
    }
}

/// A budget, and how much of it is left.
struct Left<'a> {
    budget: &'a PodDisruptionBudget,
    allowed: i32,
}

impl Left<'_> {
    /// Counts a pod that the selector matches, unless it is on its way out already;
    /// whether that is more than is allowed.
    fn is_exceeded_by(&mut self, pod: PodInfo<'_>) -> bool {
        if self.budget.is_disrupted(pod.name()) {
            return false;
        }
        self.allowed = self.allowed.saturating_sub(1);
        self.allowed < 0
    }
}

/// Sorts places once more: pods that have not started change places then.
fn by_importance(lower: Victims<'_>, places: Vec<usize>) -> Vec<usize> {
    let mut keyed: Vec<_> = places
        .into_iter()
        .enumerate()
        .map(|(at, place)| {
            let (priority, start) = lower.rank(place);
            (importance(priority, start, at as u32), place)
        })
        .collect();
    keyed.sort_unstable();
    keyed.into_iter().map(|(_, place)| place).collect()
}
