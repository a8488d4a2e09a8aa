//! What would be if: verbs over forks, for any number of askers at once.
//!
//! A [`WhatIf`] is a line of versions of its own that starts at a snapshot. Pods are
//! placed in it, nodes come and go, whole steps are undone; nobody else sees any of
//! it, and the snapshot that it starts from may be as old as one likes. Made in
//! O(1), `Send`, and as many as are wanted at a time.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::framework::preemption::{Candidate, DryRun, best_found};
use crate::framework::{
    Algorithm, AlgorithmConfig, Code, Cycle, Decision, Diagnosis, FitError, Framework,
    ScheduleError,
};
use crate::model::{EventError, Pod, Uid};
use crate::snapshot::draft::check_supported;
use crate::snapshot::{Cluster, Fork, NodeInfo};

/// A cluster to try things out in.
///
/// ```
/// use std::sync::Arc;
/// use portolan::framework::{AlgorithmConfig, Framework};
/// use portolan::model::{node, pod};
/// use portolan::scheduler::{Stop, WhatIf};
/// use portolan::{Config, Engine};
///
/// let (mut writer, reader) = Engine::inline(Config::default());
/// writer.add_node(node("small").cpu(1_000).memory(4 << 30).build())?;
/// writer.publish();
///
/// let framework = Arc::new(Framework::default_profile());
/// let mut what_if = WhatIf::new(&reader.snapshot(), framework, AlgorithmConfig::default());
/// let web = pod("web").cpu(400).memory(1 << 30).build();
/// assert_eq!(what_if.fit_more(&web, 100), 2);
///
/// // One node more, tried out and taken back.
/// let kept = what_if.transaction(|what_if| {
///     what_if.fork().add_node(node("more").cpu(4_000).memory(16 << 30).build())?;
///     assert_eq!(what_if.fit_more(&web, 100), 12);
///     Err::<(), _>(portolan::model::EventError::Full)
/// });
/// assert!(kept.is_err());
/// assert_eq!(what_if.fit_more(&web, 100), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct WhatIf {
    fork: Fork,
    scheduler: Algorithm,
}

/// When to stop placing pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// At the first that fits nowhere.
    AtFailure,
    /// At the last.
    AtEnd,
}

/// What became of pods, in their order: the node of each, or why it has none. Pods
/// after a stop are not in it.
pub type Placed = Vec<Result<Decision, ScheduleError>>;

impl WhatIf {
    /// What would be if, from this version on, decided by this framework.
    #[must_use]
    pub fn new(from: &Cluster, framework: Arc<Framework>, config: AlgorithmConfig) -> WhatIf {
        WhatIf { fork: from.fork(), scheduler: Algorithm::new(framework, config, None) }
    }

    /// The cluster as it would be, to be changed.
    pub fn fork(&mut self) -> &mut Fork {
        &mut self.fork
    }

    /// Where the pod would go; it does not go there.
    ///
    /// # Errors
    ///
    /// It would fit nowhere, a plugin failed, or the engine would refuse it anywhere.
    pub fn can_schedule(&mut self, pod: &Pod) -> Result<Decision, ScheduleError> {
        check_supported(pod).map_err(refused)?;
        let state = self.scheduler.state();
        self.scheduler.decide_as_it_is(Cycle::new(&self.fork, pod, &state))
    }

    /// Places the pod where it would go.
    ///
    /// # Errors
    ///
    /// It would fit nowhere, a plugin failed, or the engine would refuse it there.
    pub fn schedule(&mut self, pod: &Pod) -> Result<Decision, ScheduleError> {
        let decision = self.can_schedule(pod)?;
        let placed = decision.place(Pod { nominated_node_name: None, ..pod.clone() });
        self.fork.add_pod(&placed).map_err(refused)?;
        Ok(decision)
    }

    /// Places pods one after the other.
    pub fn schedule_all<'p>(
        &mut self,
        pods: impl IntoIterator<Item = &'p Pod>,
        stop: Stop,
    ) -> Placed {
        let mut placed = Placed::new();
        for pod in pods {
            let decided = self.schedule(pod);
            let failed = decided.is_err();
            placed.push(decided);
            if failed && stop == Stop::AtFailure {
                break;
            }
        }
        placed
    }

    /// How many pods like this one fit beside what is there, `most` at most; none
    /// of them stays. Each is placed by the scheduler's own choice, so spreading,
    /// affinity and ports count.
    ///
    /// O(answer × decision); placing is undone in O(1).
    pub fn fit_more(&mut self, like: &Pod, most: usize) -> usize {
        let before = self.fork.fork();
        let fit = (0..most).take_while(|n| self.schedule(&copy(like, *n)).is_ok()).count();
        self.fork = before;
        fit
    }

    /// Makes room for a pod that fits nowhere, as preemption would, and places it:
    /// its node, and who went. What it did can be undone with
    /// [`WhatIf::transaction`].
    ///
    /// # Errors
    ///
    /// The pod fits somewhere as it is, or no eviction helps.
    pub fn preempt(&mut self, pod: &Pod) -> Result<Candidate, PreemptError> {
        check_supported(pod).map_err(PreemptError::Refused)?;
        let candidate = self.candidate(pod)?;
        for victim in &candidate.victims {
            self.fork.remove_pod(&victim.uid).map_err(PreemptError::Refused)?;
        }
        let placed = Pod { nominated_node_name: None, ..pod.clone() }.on(candidate.node.clone());
        self.fork.add_pod(&placed).map_err(PreemptError::Refused)?;
        Ok(candidate)
    }

    /// Who would have to go for the pod, and from where; nobody goes.
    ///
    /// # Errors
    ///
    /// As of [`WhatIf::preempt`].
    pub fn candidate(&mut self, pod: &Pod) -> Result<Candidate, PreemptError> {
        let state = self.scheduler.state();
        let cycle = Cycle::new(&self.fork, pod, &state);
        let filters = self.scheduler.framework().pre_filter(cycle);
        let diagnosis = Diagnosis::new(&filters);
        if let Err(why) = crate::plugins::preemption::eligible(cycle, &diagnosis) {
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

    /// Does all of `work`, or none of it: where it fails everything is as before.
    /// Nests.
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

/// Why no room was made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PreemptError {
    /// The pod fits as it is.
    #[error("the pod fits without anybody going: schedule it")]
    Fits,
    /// The pod may not have others evicted.
    #[error("preemption: {0}")]
    NotEligible(&'static str),
    /// Whoever goes, the pod fits nowhere.
    #[error("preemption helps on none of {} nodes", .0.nodes)]
    NoCandidate(Box<FitError>),
    /// A plugin failed.
    #[error(transparent)]
    Failed(ScheduleError),
    /// The change was refused.
    #[error(transparent)]
    Refused(EventError),
}

/// Number `n` of pods like this one.
fn copy(like: &Pod, n: usize) -> Pod {
    Pod {
        uid: Uid::new(&format!("{}/{n}", like.uid)),
        name: format!("{}-{n}", like.name).into(),
        node_name: None,
        ..like.clone()
    }
}

fn refused(error: EventError) -> ScheduleError {
    crate::framework::Status::error("", error.to_string()).into()
}

/// Read like any version.
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
