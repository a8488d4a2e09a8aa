//! Answers what-if questions on forks, from any number of threads at once.
//!
//! A [`WhatIf`] has its own lineage of versions, which starts at a snapshot of any age. Pods can be placed in it, nodes
//! added and removed, and whole steps undone; no other reader sees the changes. Creating one costs O(1), it is `Send`,
//! and any number may exist at a time.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::framework::preemption::{Candidate, DryRun, best_found};
use crate::framework::{
    Algorithm, AlgorithmConfig, Code, Cycle, CycleState, Decision, Diagnosis, Failure, FitError,
    Framework,
};
use crate::model::{Name, Pod, Uid};
use crate::snapshot::draft::{check_pod, check_supported};
use crate::snapshot::{Cluster, Fork, NodeInfo};

/// A fork of a cluster that a scheduler can place pods in.
///
/// ```
/// use std::sync::Arc;
/// use portolan::cache::{Config, Engine};
/// use portolan::model::{node, pod};
/// use portolan::{AlgorithmConfig, Framework, WhatIf};
///
/// let (mut writer, reader) = Engine::inline(Config::default());
/// writer.add_node(node("small").cpu(1_000).memory(4 << 30).build())?;
/// writer.publish();
///
/// let framework = Arc::new(Framework::default_profile());
/// let mut what_if = WhatIf::new(&reader.snapshot(), framework, AlgorithmConfig::default());
/// let web = pod("web").cpu(400).memory(1 << 30).build();
/// assert_eq!(what_if.fit_more(&web, 100)["small"], 2);
///
/// // Add a node, and undo it.
/// let kept = what_if.transaction(|what_if| {
///     what_if.fork().add_node(node("more").cpu(4_000).memory(16 << 30).build())?;
///     assert_eq!(what_if.fit_more(&web, 100)["more"], 10);
///     Err::<(), _>(portolan::model::EventError::Full)
/// });
/// assert!(kept.is_err());
/// assert_eq!(what_if.fit_more(&web, 100).len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct WhatIf {
    fork: Fork,
    scheduler: Algorithm,
}

impl WhatIf {
    /// Forks this version, and decides with this framework.
    #[must_use]
    pub fn new(from: &Cluster, framework: Arc<Framework>, config: AlgorithmConfig) -> WhatIf {
        WhatIf { fork: from.fork(), scheduler: Algorithm::new(framework, config, None) }
    }

    /// Returns the fork, to change nodes and pods directly.
    pub fn fork(&mut self) -> &mut Fork {
        &mut self.fork
    }

    /// Decides on a node for the pod without placing it.
    ///
    /// # Errors
    ///
    /// The pod fits nowhere, a plugin failed, or the engine would refuse the pod.
    pub fn can_schedule(&mut self, pod: &Pod) -> Result<Decision, Failure> {
        let state = self.scheduler.state();
        self.decide(pod, &state)
    }

    fn decide(&mut self, pod: &Pod, state: &CycleState) -> Result<Decision, Failure> {
        check_supported(&self.fork, pod).and_then(|()| check_pod(pod)).map_err(Failure::Refused)?;
        self.scheduler.decide_without_preemption(Cycle::new(&self.fork, pod, state))
    }

    /// Places a pod in the fork with what its plugins reserve.
    fn reserve(
        &mut self,
        pod: &Pod,
        state: &CycleState,
        victims: &[Uid],
        placed: &Pod,
    ) -> Result<(), Failure> {
        let Some(node) = &placed.node_name else { return Ok(()) };
        let cycle = Cycle::new(&self.fork, pod, state);
        let reserved = self.scheduler.framework().reserve_in_fork(cycle, node);
        let reserved = reserved.map_err(Failure::rejected)?;
        self.fork.reserve(placed, victims, &reserved).map_err(Failure::Refused)
    }

    /// Decides on a node for the pod and places it there.
    ///
    /// # Errors
    ///
    /// The pod fits nowhere, a plugin failed, or the engine would refuse the pod on its node.
    pub fn schedule(&mut self, pod: &Pod) -> Result<Decision, Failure> {
        let state = self.scheduler.state();
        let decision = self.decide(pod, &state)?;
        self.reserve(pod, &state, &[], &decision.place(pod.clone()))?;
        Ok(decision)
    }

    /// Returns how many copies of this pod fit on each node in addition to the existing pods, without the nodes that take
    /// none. None of the copies stays.
    ///
    /// If the filters' verdicts on a node depend on the node's labels, taints and free resources alone, the numbers are
    /// computed: O(nodes). Otherwise the scheduler decides on each copy in turn, so topology spread, affinity and host
    /// ports are respected, and stops after `limit` copies: O(copies × decision).
    pub fn fit_more(&mut self, like: &Pod, limit: usize) -> BTreeMap<Name, usize> {
        if let Some(known) = self.copies(&copy(like, 0)) {
            return known;
        }
        let before = self.fork.fork();
        let copies = (0..limit).map_while(|n| self.schedule(&copy(like, n)).ok());
        let mut fit = BTreeMap::new();
        copies.for_each(|decided| *fit.entry(decided.node).or_default() += 1);
        self.fork = before;
        fit
    }

    /// Returns how many copies of this pod fit on each node, if a copy changes the verdicts on its own node only, and by
    /// as much as its requests.
    fn copies(&mut self, like: &Pod) -> Option<BTreeMap<Name, usize>> {
        check_supported(&self.fork, like).and_then(|()| check_pod(like)).ok()?;
        let state = self.scheduler.state();
        let framework = self.scheduler.framework();
        let is_simple = self.fork.godel().is_none()
            && framework.handle().extenders().is_empty()
            && framework.treats_template_alike(like, &self.fork)
            && !framework.acts_at_reserve(like, &self.fork);
        if !is_simple {
            return None;
        }
        let copies = framework.pre_filter(Cycle::new(&self.fork, like, &state)).copies()?;
        Some(copies.into_iter().map(|(node, copies)| (node.name().clone(), copies)).collect())
    }

    /// Preempts victims for a pod that fits nowhere and places the pod. Returns its node and the victims.
    /// [`WhatIf::transaction`] can undo the preemption.
    ///
    /// # Errors
    ///
    /// The pod fits without preemption, no eviction helps, or the engine would refuse the pod. The fork is then
    /// unchanged.
    pub fn preempt(&mut self, pod: &Pod) -> Result<Candidate, PreemptError> {
        let state = self.scheduler.state();
        let candidate = self.find_candidate(pod, &state)?;
        let victims: Vec<Uid> = candidate.victims.iter().map(|pod| pod.uid.clone()).collect();
        let placed = pod.clone().on(candidate.node.clone());
        self.reserve(pod, &state, &victims, &placed).map_err(PreemptError::Failed)?;
        Ok(candidate)
    }

    /// Returns the victims that preemption would choose for the pod and their node, without evicting them.
    ///
    /// # Errors
    ///
    /// Those of [`WhatIf::preempt`].
    pub fn candidate(&mut self, pod: &Pod) -> Result<Candidate, PreemptError> {
        let state = self.scheduler.state();
        self.find_candidate(pod, &state)
    }

    fn find_candidate(&mut self, pod: &Pod, state: &CycleState) -> Result<Candidate, PreemptError> {
        check_supported(&self.fork, pod)
            .and_then(|()| check_pod(pod))
            .map_err(|error| PreemptError::Failed(Failure::Refused(error)))?;
        let cycle = Cycle::new(&self.fork, pod, state);
        let filters = self.scheduler.framework().pre_filter(cycle);
        let diagnosis = Diagnosis::new(&filters);
        if let Err(why) =
            crate::plugins::eligible(cycle, &diagnosis, self.scheduler.framework().handle())
        {
            return Err(PreemptError::NotEligible(why));
        }
        let fits = |node: NodeInfo<'_>| diagnosis.status(node).is_none();
        if self.fork.nodes().any(fits) {
            return Err(PreemptError::Fits);
        }
        let run = DryRun::new(cycle, &filters);
        let mut candidates = Vec::new();
        for node in diagnosis.nodes_with(Code::Unschedulable) {
            match run.find(node) {
                Ok(found) => candidates.push(found),
                Err(status) if status.code.is_rejection() => {}
                Err(status) => return Err(PreemptError::Failed(status.into())),
            }
        }
        let nodes = self.fork.len();
        best_found(candidates)
            .ok_or_else(|| PreemptError::NoCandidate(Box::new(FitError::new(nodes))))
    }

    /// Runs `work`, and restores the fork as it was before if `work` fails. Transactions can be nested.
    ///
    /// # Errors
    ///
    /// Those of `work`.
    pub fn transaction<R, E>(
        &mut self,
        work: impl FnOnce(&mut WhatIf) -> Result<R, E>,
    ) -> Result<R, E> {
        let before = self.fork.fork();
        let done = work(self);
        if done.is_err() {
            self.fork = before;
        }
        done
    }
}

/// Why preemption was not possible.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PreemptError {
    /// The pod fits without preemption.
    #[error("the pod fits without preemption: schedule it")]
    Fits,
    /// The pod is not allowed to preempt.
    #[error("preemption: {0}")]
    NotEligible(&'static str),
    /// The pod fits on no node, whatever pods are evicted.
    #[error("preemption helps on none of {} nodes", .0.nodes)]
    NoCandidate(Box<FitError>),
    /// A plugin failed, or the fork refused the change.
    #[error(transparent)]
    Failed(Failure),
}

/// Returns copy number `n` of this pod.
fn copy(like: &Pod, n: usize) -> Pod {
    Pod {
        uid: Uid::new(&format!("{}/{n}", like.uid)),
        name: format!("{}-{n}", like.name).into(),
        node_name: None,
        ..like.clone()
    }
}

/// A what-if fork can be read like any version.
impl Deref for WhatIf {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.fork
    }
}

impl fmt::Debug for WhatIf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WhatIf").field("nodes", &self.fork.len()).finish_non_exhaustive()
    }
}
