//! Finds nodes that could be emptied: each node is considered on its own, and all its pods
//! must fit on the other nodes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use portolan::framework::{AlgorithmConfig, Framework};
use portolan::model::Name;
use portolan::scheduler::drain::{Budgets, DrainOptions};
use portolan::scheduler::{Stop, WhatIf};
use portolan::{Cluster, Snapshot};
use rayon::prelude::*;

/// The result for all candidates.
pub(super) struct Consolidation {
    /// In the cluster's node order.
    pub(super) nodes: Vec<Candidate>,
    pub(super) spent: Duration,
}

/// One candidate node.
pub(super) struct Candidate {
    pub(super) name: Name,
    pub(super) pods: usize,
    /// The cluster after the node is drained, or why it cannot be emptied.
    pub(super) after: Result<Arc<Snapshot>, String>,
}

/// Tries all nodes in parallel, each on its own fork.
pub(super) fn run(
    from: &Cluster,
    framework: &Arc<Framework>,
    config: &AlgorithmConfig,
    options: DrainOptions,
) -> Consolidation {
    let names: Vec<Name> = from.nodes().map(|node| node.name().clone()).collect();
    let started = Instant::now();
    let nodes = names.into_par_iter().map(|name| {
        let mut what_if = WhatIf::new(from, framework.clone(), config.clone());
        let pods = what_if.node(&name).map_or(0, |node| node.pod_count());
        let after = without(&mut what_if, &name, options).map(|()| what_if.fork().snapshot());
        Candidate { name, pods, after }
    });
    let nodes = nodes.collect();
    Consolidation { nodes, spent: started.elapsed() }
}

fn without(what_if: &mut WhatIf, name: &str, options: DrainOptions) -> Result<(), String> {
    let mut budgets = Budgets::of(what_if);
    let drained = what_if.drain(name, &mut budgets, options).map_err(|error| error.to_string())?;
    if let Some((pod, why)) = drained.stays.iter().find(|(_, why)| why.is_in_the_way()) {
        return Err(format!("pod {}/{} is blocked: {why}", pod.namespace(), pod.name));
    }
    let placed = what_if.schedule_all(&drained.evicted, Stop::AtFailure);
    match placed.into_iter().zip(&drained.evicted).find_map(|(it, pod)| Some((it.err()?, pod))) {
        None => Ok(()),
        Some((error, pod)) => {
            Err(format!("pod {}/{} is unschedulable: {error}", pod.namespace(), pod.name))
        }
    }
}
