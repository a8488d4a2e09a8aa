//! The search (`allocateOne`, `allocateDevice`).

use std::collections::BTreeMap;
use std::sync::Arc;

use portolan::model::Quantity;

use crate::model::Device;
use crate::store::PoolUsage;
use crate::store::counters::{self, Counters};

use super::capacity::{self, Amounts};
use super::constraint::Seen;
use super::plan::{Choice, ClaimPlan, RequestPlan, Scope};
use super::pools::Candidate;
use super::{AllocateError, MAX_RESULTS, taints};

/// Why the search does not go on.
enum Stop {
    /// The claim would have more than [`MAX_RESULTS`] results with this choice.
    TooManyResults,
    Failed(AllocateError),
}

impl From<AllocateError> for Stop {
    fn from(error: AllocateError) -> Stop {
        Stop::Failed(error)
    }
}

/// The choice of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct At {
    pub(super) claim: usize,
    pub(super) request: usize,
    pub(super) choice: usize,
}

/// A device that was taken for a request.
pub(super) struct Taken {
    pub(super) at: At,
    /// The index of the candidate.
    pub(super) position: usize,
    /// What the request consumes, if the device allows several allocations.
    pub(super) consumed: Option<Amounts>,
    reserves_counters: bool,
}

/// The state of a search on one node.
pub(super) struct Search<'a> {
    pub(super) scope: &'a Scope<'a>,
    pub(super) plans: &'a [ClaimPlan<'a>],
    /// The devices of each claim.
    pub(super) taken: Vec<Vec<Taken>>,
    seen: Vec<Vec<Seen<'a>>>,
    /// For each candidate, the claims that have taken it alone.
    owners: Vec<Vec<usize>>,
    /// For each candidate, what this attempt consumes of it, and by how many requests.
    shares: BTreeMap<usize, (usize, BTreeMap<Arc<str>, Quantity>)>,
    /// For each pool, what is left of its counters.
    counters: BTreeMap<usize, Counters<'a>>,
    /// The verdicts of the selectors of one choice on the candidates.
    selected: Vec<(At, Vec<Option<bool>>)>,
    steps: u64,
}

impl<'a> Search<'a> {
    pub(super) fn new(scope: &'a Scope<'a>, plans: &'a [ClaimPlan<'a>]) -> Search<'a> {
        let seen = |plan: &ClaimPlan<'_>| vec![Seen::default(); plan.constraints.len()];
        Search {
            scope,
            plans,
            taken: plans.iter().map(|_| Vec::new()).collect(),
            seen: plans.iter().map(seen).collect(),
            owners: vec![Vec::new(); scope.candidates.len()],
            shares: BTreeMap::new(),
            counters: BTreeMap::new(),
            selected: Vec::new(),
            steps: scope.allocator.max_steps,
        }
    }

    /// Searches, and returns whether there is a solution, which is then in `taken`.
    pub(super) fn run(&mut self) -> Result<bool, AllocateError> {
        match self.next_request(0, 0) {
            Ok(found) => Ok(found),
            Err(Stop::TooManyResults) => Ok(false),
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    /// Allocates a request and everything after it.
    fn next_request(&mut self, claim: usize, request: usize) -> Result<bool, Stop> {
        let Some(plan) = self.plans.get(claim) else { return Ok(true) };
        let Some(of) = plan.requests.get(request) else { return self.next_request(claim + 1, 0) };
        if !of.has_alternatives() {
            return self.next_device(At { claim, request, choice: 0 }, 0, 0);
        }
        for choice in 0..of.choices.len() {
            match self.next_device(At { claim, request, choice }, 0, 0) {
                Ok(false) | Err(Stop::TooManyResults) => {}
                done => return done,
            }
        }
        Ok(false)
    }

    /// Allocates the devices of a request from this one on, and everything after them. The candidates before `from`
    /// were tried for the devices before.
    fn next_device(&mut self, at: At, device: usize, from: usize) -> Result<bool, Stop> {
        let (_, choice) = self.choice(at);
        if choice.all.as_ref().is_some_and(Vec::is_empty) {
            return Ok(false);
        }
        if device >= choice.count {
            return self.next_request(at.claim, at.request + 1);
        }
        let left = choice.count - device;
        if self.taken[at.claim].len().saturating_add(left) > MAX_RESULTS {
            return Err(Stop::TooManyResults);
        }
        if let Some(all) = &choice.all {
            // All of these devices are needed, so no other one is tried.
            return match all.get(device) {
                Some(position) if self.take(at, *position)? => self.go_on(at, device, 0),
                _ => Ok(false),
            };
        }
        for position in from..self.scope.candidates.len() {
            if self.take(at, position)? && self.go_on(at, device, position + 1)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Allocates the next device, and returns the last one if that fails.
    fn go_on(&mut self, at: At, device: usize, from: usize) -> Result<bool, Stop> {
        let found = self.next_device(at, device + 1, from);
        if !matches!(found, Ok(true)) {
            self.give_back(at.claim);
        }
        found
    }

    pub(super) fn choice(&self, at: At) -> (&'a RequestPlan<'a>, &'a Choice<'a>) {
        let request = &self.plans[at.claim].requests[at.request];
        (request, &request.choices[at.choice])
    }

    fn usage(&self, candidate: &Candidate<'_>) -> Option<&'a PoolUsage> {
        let usage = self.scope.allocator.devices.claims().usage();
        usage.pool(candidate.id).map(|usage| &**usage)
    }

    /// Takes a device for a request, and returns whether the request may have it.
    fn take(&mut self, at: At, position: usize) -> Result<bool, AllocateError> {
        self.steps = self.steps.checked_sub(1).ok_or(AllocateError::TooManySteps)?;
        let (request, choice) = self.choice(at);
        let candidate = &self.scope.candidates[position];
        let device = candidate.device;
        let usage = self.usage(candidate);
        // A device that allows several allocations has owners only if it did not allow them before.
        let owners = &self.owners[position];
        let is_taken = match choice.exactly.admin_access {
            Some(true) => owners.contains(&at.claim),
            _ => !owners.is_empty() || usage.is_some_and(|usage| is_in_use(device, usage)),
        };
        if is_taken {
            return Ok(false);
        }
        if choice.all.is_none() && !self.selects(at, position)? {
            return Ok(false);
        }
        let pending = self.shares.get(&position);
        let consumed = capacity::consumption(
            device,
            choice.exactly.capacity.as_ref(),
            usage,
            pending.map(|(_, amounts)| amounts),
        );
        let Some(consumed) = consumed else { return Ok(false) };
        // A device of which others consume capacity has its counters already.
        let has_counters = device.is_shared()
            && (pending.is_some() || usage.is_some_and(|usage| usage.has_consumed(&device.name)));
        let reserves_counters = !device.consumes_counters.is_empty() && !has_counters;
        if reserves_counters && !self.reserve_counters(candidate) {
            return Ok(false);
        }
        if !taints::are_tolerated(device, &choice.exactly.tolerations) {
            self.return_counters(candidate, reserves_counters);
            return Ok(false);
        }
        let plan = &self.plans[at.claim];
        let (constraints, seen) = (&plan.constraints, &mut self.seen[at.claim]);
        let mut each = constraints.iter().zip(seen.iter_mut());
        let broken =
            each.position(|(constraint, seen)| !constraint.add(seen, (request, choice), candidate));
        if let Some(broken) = broken {
            for (constraint, seen) in constraints.iter().zip(seen).take(broken) {
                constraint.remove(seen, (request, choice));
            }
            self.return_counters(candidate, reserves_counters);
            if choice.all.is_some() {
                return Err(AllocateError::Failed(format!(
                    "claim {}, request {}: cannot add device {}/{}/{} because a claim constraint \
                     would not be satisfied",
                    plan.claim.key(),
                    choice.name,
                    candidate.id.driver,
                    candidate.id.pool,
                    device.name
                )));
            }
            return Ok(false);
        }
        let consumed = device.is_shared().then_some(consumed);
        match &consumed {
            None => self.owners[position].push(at.claim),
            Some(amounts) => {
                let (requests, sums) = self.shares.entry(position).or_default();
                *requests += 1;
                for (name, amount) in amounts {
                    let sum = sums.entry(name.clone()).or_default();
                    *sum = *sum + amount.quantity();
                }
            }
        }
        self.taken[at.claim].push(Taken { at, position, consumed, reserves_counters });
        Ok(true)
    }

    /// Undoes the last `take` of a claim.
    fn give_back(&mut self, claim: usize) {
        let Some(Taken { at, position, consumed, reserves_counters }) = self.taken[claim].pop()
        else {
            return;
        };
        let of = self.choice(at);
        for (constraint, seen) in self.plans[claim].constraints.iter().zip(&mut self.seen[claim]) {
            constraint.remove(seen, of);
        }
        match consumed {
            None => drop(self.owners[position].pop()),
            Some(amounts) => {
                if let Some((requests, sums)) = self.shares.get_mut(&position) {
                    for (name, amount) in &amounts {
                        if let Some(sum) = sums.get_mut(name) {
                            *sum = *sum - amount.quantity();
                        }
                    }
                    *requests -= 1;
                    if *requests == 0 {
                        self.shares.remove(&position);
                    }
                }
            }
        }
        self.return_counters(&self.scope.candidates[position], reserves_counters);
    }

    /// Returns whether the selectors of a choice match a device.
    fn selects(&mut self, at: At, position: usize) -> Result<bool, AllocateError> {
        let known = self.selected.iter().position(|(of, _)| *of == at);
        let known = known.unwrap_or_else(|| {
            self.selected.push((at, vec![None; self.scope.candidates.len()]));
            self.selected.len() - 1
        });
        if let Some(verdict) = self.selected[known].1[position] {
            return Ok(verdict);
        }
        let (_, choice) = self.choice(at);
        let claim = self.plans[at.claim].claim;
        let verdict = choice.selects(self.scope, claim, &self.scope.candidates[position])?;
        self.selected[known].1[position] = Some(verdict);
        Ok(verdict)
    }

    /// Reserves the counters of a device if enough is left of each.
    fn reserve_counters(&mut self, candidate: &Candidate<'a>) -> bool {
        let usage = self.usage(candidate);
        let pool = &self.scope.pools.pools()[candidate.pool];
        let left = self.counters.entry(candidate.pool);
        let left = left.or_insert_with(|| counters::available(pool.current.iter(), usage));
        counters::take(left, candidate.device)
    }

    fn return_counters(&mut self, candidate: &Candidate<'a>, are_reserved: bool) {
        if are_reserved && let Some(left) = self.counters.get_mut(&candidate.pool) {
            counters::give_back(left, candidate.device);
        }
    }
}

/// Returns whether claims use a device such that no other claim can. A device that no longer allows several allocations
/// is not allocated while it is shared, as the store would refuse to reserve it; kube-scheduler allocates it.
fn is_in_use(device: &Device, usage: &PoolUsage) -> bool {
    match device.is_shared() {
        true => usage.is_dedicated(&device.name),
        false => usage.is_used(&device.name),
    }
}
