//! The requests of the claims to allocate, and the checks before the search.

use std::sync::Arc;

use portolan::model::Node;

use crate::model::{
    AllocationMode, CelSelector, DeviceClass, DeviceRequest, ExactRequest, ResourceClaim, Selector,
};
use crate::store::PoolState;

use super::capacity;
use super::constraint::Constraint;
use super::pools::Candidate;
use super::{AllocateError, Allocator, MAX_RESULTS, NodePools};

/// What one allocation on one node reads.
pub(super) struct Scope<'a> {
    pub(super) allocator: &'a Allocator<'a>,
    pub(super) node: &'a Node,
    pub(super) pools: &'a NodePools,
    pub(super) candidates: &'a [Candidate<'a>],
}

/// A claim whose requests were checked.
pub(super) struct ClaimPlan<'a> {
    pub(super) claim: &'a ResourceClaim,
    pub(super) requests: Vec<RequestPlan<'a>>,
    pub(super) constraints: Vec<Constraint<'a>>,
}

/// A request with its choices: one if the request is exact.
pub(super) struct RequestPlan<'a> {
    pub(super) request: &'a DeviceRequest,
    pub(super) choices: Vec<Choice<'a>>,
}

/// A request for devices of one class.
pub(super) struct Choice<'a> {
    /// The name of the request or subrequest.
    pub(super) name: &'a str,
    /// `request` or `request/subrequest`.
    pub(super) full_name: Arc<str>,
    pub(super) class: &'a DeviceClass,
    pub(super) exactly: &'a ExactRequest,
    /// The number of devices.
    pub(super) count: usize,
    /// In mode All, the devices as indexes of candidates.
    pub(super) all: Option<Vec<usize>>,
}

impl RequestPlan<'_> {
    /// Returns whether the request has alternatives.
    pub(super) fn has_alternatives(&self) -> bool {
        self.request.exactly.is_none()
    }
}

impl<'a> ClaimPlan<'a> {
    /// Checks the requests and constraints of a claim.
    ///
    /// # Errors
    ///
    /// Returns an error if the claim cannot be allocated on any node, if a selector fails, or if all devices are
    /// requested and a pool of the node is not complete.
    pub(super) fn new(
        scope: &Scope<'a>,
        claim: &'a ResourceClaim,
    ) -> Result<ClaimPlan<'a>, AllocateError> {
        let (key, devices) = (claim.key(), &claim.spec.devices);
        let mut requests = Vec::with_capacity(devices.requests.len());
        let mut total = 0;
        for request in &devices.requests {
            let exact = request.exactly.iter().map(|of| (&request.name, of, request.name.clone()));
            let choices = exact.chain(request.first_available.iter().map(|sub| {
                let full_name = format!("{}/{}", request.name, sub.name);
                (&sub.name, &sub.exactly, full_name.into())
            }));
            let choices: Vec<Choice<'a>> = choices
                .map(|(name, exactly, full)| Choice::new(scope, claim, name, exactly, full))
                .collect::<Result<_, _>>()?;
            let least = choices.iter().map(|choice| choice.count).min().unwrap_or(0);
            total = usize::saturating_add(total, least);
            requests.push(RequestPlan { request, choices });
        }
        if total > MAX_RESULTS {
            return Err(AllocateError::Failed(format!(
                "claim {key}: number of requested devices {total} exceeds the claim limit of \
                 {MAX_RESULTS}"
            )));
        }
        let mut constraints = Vec::with_capacity(devices.constraints.len());
        for (at, constraint) in devices.constraints.iter().enumerate() {
            constraints.push(Constraint::new(constraint).ok_or_else(|| {
                AllocateError::Failed(format!(
                    "claim {key}, constraint #{at}: empty constraint (unsupported constraint \
                     type?)"
                ))
            })?);
        }
        Ok(ClaimPlan { claim, requests, constraints })
    }
}

impl<'a> Choice<'a> {
    fn new(
        scope: &Scope<'a>,
        claim: &'a ResourceClaim,
        name: &'a str,
        exactly: &'a ExactRequest,
        full_name: Arc<str>,
    ) -> Result<Choice<'a>, AllocateError> {
        let failed = |what: String| {
            AllocateError::Failed(format!("claim {}, request {name}{what}", claim.key()))
        };
        if let Some(at) = exactly.selectors.iter().position(|selector| selector.cel.is_none()) {
            return Err(failed(format!(
                ", selector #{at}: CEL expression empty (unsupported selector type?)"
            )));
        }
        let class = &exactly.device_class_name;
        let known = scope.allocator.devices.classes().get(class);
        let class = known.ok_or_else(|| {
            failed(format!(
                ": could not retrieve device class {class}: deviceclass.resource.k8s.io \
                 \"{class}\" not found"
            ))
        })?;
        let mut choice = Choice { name, full_name, class, exactly, count: 0, all: None };
        match exactly.allocation_mode {
            AllocationMode::ExactCount => {
                let count = exactly.count.unwrap_or(1);
                choice.count = match usize::try_from(count) {
                    Ok(count) if count > 0 => count,
                    _ => return Err(failed(format!(": exact count {count} is not positive"))),
                };
            }
            AllocationMode::All => {
                let all = choice.all(scope, claim, failed)?;
                choice.count = all.len();
                choice.all = Some(all);
            }
            AllocationMode::Unknown => {
                return Err(failed(": unsupported count mode".to_owned()));
            }
        }
        Ok(choice)
    }

    /// Returns the devices of all pools that match.
    fn all(
        &self,
        scope: &Scope<'a>,
        claim: &ResourceClaim,
        failed: impl Fn(String) -> AllocateError,
    ) -> Result<Vec<usize>, AllocateError> {
        let mut all = Vec::new();
        for (at, pool) in scope.pools.pools().iter().enumerate() {
            let why = match pool.state {
                PoolState::Complete => None,
                PoolState::Incomplete => Some("being updated"),
                PoolState::Invalid(_) => Some("invalid"),
            };
            if let Some(why) = why {
                return Err(failed(format!(
                    ": asks for all devices, but resource pool {}/{} is currently {why}",
                    pool.id.driver, pool.id.pool
                )));
            }
            let of_pool = scope.candidates.iter().enumerate().filter(|(_, of)| of.pool == at);
            for (position, candidate) in of_pool {
                let usage = scope.allocator.devices.claims().usage().pool(candidate.id);
                if self.selects(scope, claim, candidate)?
                    && capacity::consumption(
                        candidate.device,
                        self.exactly.capacity.as_ref(),
                        usage.map(|usage| &**usage),
                        None,
                    )
                    .is_some()
                {
                    all.push(position);
                }
            }
        }
        Ok(all)
    }

    /// Returns whether a device matches the selectors of the class and of the request, and belongs to the node.
    ///
    /// # Errors
    ///
    /// Returns an error if a selector fails.
    pub(super) fn selects(
        &self,
        scope: &Scope<'_>,
        claim: &ResourceClaim,
        candidate: &Candidate<'_>,
    ) -> Result<bool, AllocateError> {
        let matches = |at: usize, selector: &Selector, owner: &dyn Fn() -> String| {
            let Some(CelSelector { expression }) = &selector.cel else {
                return Err(AllocateError::Failed(format!(
                    "{}: selector #{at}: CEL expression empty (unsupported selector type?)",
                    owner()
                )));
            };
            let (slice, index) = (candidate.slice, candidate.index);
            let matched = scope.allocator.selectors.matches(expression, slice, index);
            matched.map_err(|error| {
                AllocateError::Failed(format!("{}: selector #{at}: {error}", owner()))
            })
        };
        let of_class = || format!("class {}", self.class.name());
        for (at, selector) in self.class.spec.selectors.iter().enumerate() {
            if !matches(at, selector, &of_class)? {
                return Ok(false);
            }
        }
        let of_claim = || format!("claim {}", claim.key());
        for (at, selector) in self.exactly.selectors.iter().enumerate() {
            if !matches(at, selector, &of_claim)? {
                return Ok(false);
            }
        }
        let by_device = candidate.slice.spec.per_device_node_selection == Some(true);
        Ok(!by_device || candidate.device.is_on(scope.node))
    }
}
