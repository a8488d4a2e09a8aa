//! The search for devices (dynamic-resource-allocation/structured, `incubating`).
//!
//! For one node, [`Allocator::allocate`] finds devices for all claims of a pod. The search is exhaustive, depth first,
//! and returns the first solution, so the order of pools, devices and requests determines which devices are allocated:
//!
//! | file | contents |
//! |---|---|
//! | `pools.rs` | [`NodePools`], the pools of a node in the order of the search |
//! | `plan.rs` | the requests of the claims, checked before the search |
//! | `search.rs` | the search, with its undo |
//! | `constraint.rs`, `capacity.rs`, `taints.rs` | the checks of one device |
//! | `selectors.rs` | [`Selectors`], the verdicts of CEL expressions on devices |
//! | `outcome.rs` | the allocation results of a solution |

mod capacity;
mod constraint;
mod outcome;
mod plan;
mod pools;
mod search;
mod selectors;
mod taints;

use std::sync::Arc;

use portolan::model::Node;

use crate::model::{AllocationResult, ResourceClaim};
use crate::store::{Devices, PoolState};

pub use pools::NodePools;
pub use selectors::{SelectorError, Selectors};
pub use taints::are_tolerated;

/// The largest number of devices that one claim may be allocated.
pub const MAX_RESULTS: usize = 32;

/// Why claims cannot be allocated on a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocateError {
    /// There is no solution, but a pool of the node is invalid.
    #[error("invalid resource pools were encountered")]
    InvalidPools,
    /// The search was stopped because it took too many steps.
    #[error("timed out trying to allocate devices")]
    TooManySteps,
    /// The claims cannot be allocated on any node, or their selectors fail.
    #[error("{0}")]
    Failed(String),
}

/// Allocates devices for the claims of a pod.
#[derive(Clone, Copy)]
pub struct Allocator<'a> {
    /// The classes and the devices in use.
    pub devices: &'a Devices,
    /// The verdicts of selectors.
    pub selectors: &'a Selectors,
    /// The claims to allocate, in the pod's order.
    pub claims: &'a [Arc<ResourceClaim>],
    /// The number of devices that the search may try on one node.
    pub max_steps: u64,
}

/// The allocations of all claims on one node, in the order of the claims.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Allocation {
    /// The result of each claim.
    pub results: Vec<Arc<AllocationResult>>,
    /// 8 for each request with alternatives, less the index of the chosen one.
    pub score: i64,
}

impl Allocator<'_> {
    /// Returns the allocations for all claims on this node, or `None` if there is no solution.
    ///
    /// # Errors
    ///
    /// Returns an error if a claim is invalid, a selector fails, or a pool of the node is invalid and there is no
    /// solution.
    pub fn allocate(
        &self,
        node: &Node,
        pools: &NodePools,
    ) -> Result<Option<Allocation>, AllocateError> {
        self.solve(node, pools, |search| outcome::allocation(search, node.name.as_ref()))
    }

    /// Returns whether all claims can be allocated on this node: whether [`Allocator::allocate`] finds a solution.
    ///
    /// # Errors
    ///
    /// Those of [`Allocator::allocate`].
    pub fn fits(&self, node: &Node, pools: &NodePools) -> Result<bool, AllocateError> {
        Ok(self.solve(node, pools, |_| ())?.is_some())
    }

    fn solve<T>(
        &self,
        node: &Node,
        pools: &NodePools,
        outcome: impl FnOnce(&search::Search<'_>) -> T,
    ) -> Result<Option<T>, AllocateError> {
        let candidates = pools.candidates();
        let mut plans = Vec::with_capacity(self.claims.len());
        let scope = plan::Scope { allocator: self, node, pools, candidates: &candidates };
        for claim in self.claims {
            plans.push(plan::ClaimPlan::new(&scope, claim)?);
        }
        let mut search = search::Search::new(&scope, &plans);
        if search.run()? {
            return Ok(Some(outcome(&search)));
        }
        match pools.pools().iter().any(|pool| matches!(pool.state, PoolState::Invalid(_))) {
            true => Err(AllocateError::InvalidPools),
            false => Ok(None),
        }
    }
}
