//! Pods that make room for another (framework/preemption/executor.go).

use std::fmt;

use crate::model::{Name, Pod};

use super::Handle;

/// The plugin in whose name pods are preempted.
pub(crate) const PREEMPTION: &str = "DefaultPreemption";

/// Evicts pods: where preemption leaves the scheduler.
pub trait Evictor: Send + Sync {
    /// Has the victims evicted, by [`Eviction::run`], on this thread or another.
    /// The preemptor does not queue until the eviction is dropped.
    fn evict(&self, eviction: Eviction);
}

/// Pods that are to make room for one on a node.
pub struct Eviction {
    preemptor: Pod,
    node: Name,
    victims: Vec<Pod>,
    cleared: Vec<Pod>,
    handle: Handle,
    end: Option<Box<dyn FnOnce() + Send>>,
}

impl Eviction {
    /// The eviction of these victims; `cleared` were nominated to the node and
    /// are no more, and `end` is called when all is over.
    #[must_use]
    pub fn new(
        handle: &Handle,
        preemptor: Pod,
        node: Name,
        (victims, cleared): (Vec<Pod>, Vec<Pod>),
        end: impl FnOnce() + Send + 'static,
    ) -> Eviction {
        let (handle, end) = (handle.clone(), Some(Box::new(end) as Box<dyn FnOnce() + Send>));
        Eviction { preemptor, node, victims, cleared, handle, end }
    }

    /// The pod for which room is made.
    #[must_use]
    pub fn preemptor(&self) -> &Pod {
        &self.preemptor
    }

    /// On which node.
    #[must_use]
    pub fn node(&self) -> &Name {
        &self.node
    }

    /// The pods that go, the most important first.
    #[must_use]
    pub fn victims(&self) -> &[Pod] {
        &self.victims
    }

    /// Pods of lower priority that were nominated to the node and are no more:
    /// they may find another one sooner.
    #[must_use]
    pub fn cleared(&self) -> &[Pod] {
        &self.cleared
    }

    /// The message of the condition `DisruptionTarget` that victims get.
    #[must_use]
    pub fn message(&self) -> String {
        let scheduler = self.preemptor.template.scheduler_name.as_deref();
        let scheduler = scheduler.unwrap_or("default-scheduler");
        format!("{scheduler}: preempting to accommodate a higher priority pod")
    }

    /// Calls `evict` for every victim: the last one after the others, and not if
    /// one of those failed. A victim that waits for a permit is rejected instead, and one that
    /// was rejected before gives its room back already. One whose permits were all given
    /// may be bound by now, and is evicted. Victims that terminate
    /// already are left alone.
    ///
    /// # Errors
    ///
    /// The first failure.
    pub fn run(&self, mut evict: impl FnMut(&Pod) -> Result<(), String>) -> Result<(), String> {
        let Some((last, others)) = self.victims.split_last() else { return Ok(()) };
        let mut evict = |victim: &Pod| {
            if let Some(waiting) = self.handle.waiting_pods().get(&victim.uid)
                && (waiting.reject(PREEMPTION, "preempted") || !waiting.is_allowed())
            {
                return Ok(());
            }
            match victim.deletion_time {
                Some(_) => Ok(()),
                None => evict(victim),
            }
        };
        let mut failed = Ok(());
        for victim in others {
            failed = failed.and(evict(victim));
        }
        failed?;
        evict(last)
    }
}

impl Drop for Eviction {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            end();
        }
    }
}

impl fmt::Debug for Eviction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Eviction")
            .field("preemptor", &self.preemptor.uid)
            .field("node", &self.node)
            .field("victims", &self.victims.len())
            .finish_non_exhaustive()
    }
}
