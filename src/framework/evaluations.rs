//! Counts how many nodes plugins evaluate (`scheduler_plugin_evaluation_total`; `instrumented_plugins.go`).
//!
//! kube-scheduler adds 1 at each call of a plugin. Here, a framework looks up its counters when it is built, cycles
//! count nodes by chunk, and each counter receives one addition per cycle. The filters of a scope judge the same nodes
//! one after the other, so a cycle counts the nodes of the first one, and those that each rejects.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of evaluations by one plugin at one step. Clones share the number.
#[derive(Clone, Debug, Default)]
pub struct Evaluations(Arc<AtomicU64>);

impl Evaluations {
    /// Adds evaluations, and returns their previous number.
    pub(crate) fn add(&self, count: u64) -> u64 {
        // Relaxed: pairs with nothing, because the number publishes no other data.
        self.0.fetch_add(count, Ordering::Relaxed)
    }

    /// Returns the number of evaluations.
    #[must_use]
    pub fn get(&self) -> u64 {
        // Relaxed: pairs with nothing, because the number publishes no other data.
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of one plugin. `None` for steps at which it is not enabled, and without a recorder that counts.
#[derive(Default)]
pub(super) struct PluginEvaluations {
    pub(super) pre_filter: Option<Evaluations>,
    pub(super) filter: Option<Evaluations>,
    pub(super) pre_score: Option<Evaluations>,
    pub(super) score: Option<Evaluations>,
}

/// A number of nodes in one cycle, to which several threads add.
#[derive(Default)]
pub(super) struct NodeCount(AtomicU64);

impl NodeCount {
    pub(super) fn add(&self, mask: u64) {
        // Relaxed: pairs with nothing, because the end of the threads' work orders the additions before `take`.
        self.0.fetch_add(u64::from(mask.count_ones()), Ordering::Relaxed);
    }

    /// Returns the number, and sets it to zero.
    pub(super) fn take(&mut self) -> u64 {
        std::mem::take(self.0.get_mut())
    }
}

/// Adds to a counter, if there is one.
pub(super) fn count(evaluations: Option<&Evaluations>, nodes: u64) {
    if let Some(evaluations) = evaluations.filter(|_| nodes > 0) {
        evaluations.add(nodes);
    }
}
