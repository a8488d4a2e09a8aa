//! The allocation results of a solution.

use std::sync::Arc;

use crate::model::{
    AllocationResult, ConfigSource, DeviceAllocation, DeviceConfig, DeviceResult, NodeSelector,
    NodeSelectorTerm, Requirement,
};

use super::Allocation;
use super::plan::{Choice, ClaimPlan, RequestPlan};
use super::search::{Search, Taken};

/// The score of a request whose first alternative was chosen.
const FIRST_CHOICE: i64 = 8;

/// Returns the allocations of a search that found a solution on the node of this name.
pub(super) fn allocation(search: &Search<'_>, node: &str) -> Allocation {
    let mut allocation = Allocation::default();
    for (plan, taken) in search.plans.iter().zip(&search.taken) {
        let chosen: Vec<(&RequestPlan<'_>, &Choice<'_>)> = (plan.requests.iter().enumerate())
            .filter_map(|(at, request)| {
                // A request without alternatives may have taken no device.
                let taken = taken.iter().find(|taken| taken.at.request == at);
                let choice = taken.map_or(0, |taken| taken.at.choice);
                Some((request, request.choices.get(choice)?))
            })
            .collect();
        let alternatives = taken.iter().enumerate().filter(|(at, one)| {
            let (request, _) = search.choice(one.at);
            let is_first = taken[..*at].iter().all(|other| other.at.request != one.at.request);
            request.has_alternatives() && is_first
        });
        allocation.score +=
            alternatives.map(|(_, one)| FIRST_CHOICE - one.at.choice as i64).sum::<i64>();
        let results = taken.iter().enumerate().map(|(at, one)| result(search, plan, one, at));
        let devices =
            DeviceAllocation { results: results.collect(), config: config(plan, &chosen) };
        let node_selector = node_selector(search, taken, node);
        let result = AllocationResult { devices, node_selector, allocation_timestamp: None };
        allocation.results.push(Arc::new(result));
    }
    allocation
}

fn result(search: &Search<'_>, plan: &ClaimPlan<'_>, taken: &Taken, at: usize) -> DeviceResult {
    let (_, choice) = search.choice(taken.at);
    let candidate = &search.scope.candidates[taken.position];
    let share_id = taken.consumed.as_ref().map(|_| share_id(&plan.claim.metadata.uid, at));
    DeviceResult {
        request: choice.full_name.clone(),
        driver: candidate.id.driver.clone(),
        pool: candidate.id.pool.clone(),
        device: candidate.device.name.clone(),
        admin_access: choice.exactly.admin_access.filter(|access| *access),
        tolerations: choice.exactly.tolerations.clone(),
        binding_conditions: candidate.device.binding_conditions.clone(),
        binding_failure_conditions: candidate.device.binding_failure_conditions.clone(),
        share_id,
        consumed_capacity: taken.consumed.clone().unwrap_or_default(),
    }
}

/// Returns the id of a share in the form of a UUID. Kube-scheduler draws it at random; here it follows from the claim,
/// so that a decision can be repeated.
fn share_id(claim: &str, at: usize) -> Arc<str> {
    // FNV-1a, with two offsets for 128 bits.
    let hash = |offset: u64| {
        let bytes = claim.bytes().chain(at.to_le_bytes());
        bytes.fold(offset, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    };
    let (high, low) = (hash(0xcbf2_9ce4_8422_2325), hash(0x6c62_272e_07bb_0142));
    let text = format!("{high:016x}{low:016x}");
    let parts = [&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]];
    parts.join("-").into()
}

/// Returns the configuration entries of the classes in the order of their first use, then those of the claim. As in
/// kube-scheduler 1.36, an entry of the claim is repeated for each request that it names.
fn config(plan: &ClaimPlan<'_>, chosen: &[(&RequestPlan<'_>, &Choice<'_>)]) -> Vec<DeviceConfig> {
    let mut all = Vec::new();
    for (at, (_, choice)) in chosen.iter().enumerate() {
        let is_same =
            |other: &&(&RequestPlan<'_>, &Choice<'_>)| other.1.class.name() == choice.class.name();
        if chosen[..at].iter().any(|other| is_same(&other)) {
            continue;
        }
        let requests = chosen.iter().filter(is_same).map(|(_, of)| of.full_name.clone());
        let requests: Vec<Arc<str>> = requests.collect();
        for config in &choice.class.spec.config {
            all.push(DeviceConfig {
                source: Some(ConfigSource::FromClass),
                requests: requests.clone(),
                opaque: config.opaque.clone(),
            });
        }
    }
    for config in &plan.claim.spec.devices.config {
        let named = |(request, choice): &&(&RequestPlan<'_>, &Choice<'_>)| {
            config.requests.contains(&request.request.name)
                || config.requests.contains(&choice.full_name)
        };
        let copies = match config.requests.is_empty() {
            true => 1,
            false => chosen.iter().filter(named).count(),
        };
        let config = DeviceConfig { source: Some(ConfigSource::FromClaim), ..config.clone() };
        all.extend(std::iter::repeat_n(config, copies));
    }
    all
}

/// Returns the nodes on which the devices can be used, or `None` if they can be used on all nodes.
fn node_selector(search: &Search<'_>, taken: &[Taken], node: &str) -> Option<NodeSelector> {
    let mut union = NodeSelectorTerm::default();
    for one in taken {
        let candidate = &search.scope.candidates[one.position];
        let (spec, device) = (&candidate.slice.spec, candidate.device);
        let (name, selector) = match spec.per_device_node_selection {
            Some(true) => (&device.node_name, &device.node_selector),
            _ => (&spec.node_name, &spec.node_selector),
        };
        if name.as_deref().is_some_and(|name| !name.is_empty())
            || device.binds_to_node == Some(true)
        {
            return Some(NodeSelector::of_node(node));
        }
        for term in selector.iter().flat_map(|selector| &selector.node_selector_terms) {
            add_new(&term.match_fields, &mut union.match_fields);
            add_new(&term.match_expressions, &mut union.match_expressions);
        }
    }
    let is_empty = union.match_fields.is_empty() && union.match_expressions.is_empty();
    (!is_empty).then(|| NodeSelector { node_selector_terms: vec![union] })
}

fn add_new(from: &[Requirement], to: &mut Vec<Requirement>) {
    for requirement in from {
        if !to.iter().any(|known| known.is_same(requirement)) {
            to.push(requirement.clone());
        }
    }
}
