//! The thread that judges bindings.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use portolan::Algorithm;
use portolan::cache::{Cluster, Reader};
use portolan::model::{Name, Pod};
use portolan::plugin::{Cycle, Handle, Status};
use tokio::sync::mpsc::UnboundedSender;

use super::assess::{Assessed, Standing, assess};
use super::counts::Counts;
use super::other_states::Around;
use super::recorder::{Binding, Nominated, Seen};
use super::verdict::{Judgement, Verdict};

/// The longest time for which the thread waits without looking at the clock.
const TICK: Duration = Duration::from_millis(100);

/// The maximum number of changes and bindings that are kept. Each holds a version, so the windows of a very busy
/// cluster end earlier.
pub(super) const KEPT: usize = 10_000;

/// One of the observed schedulers.
pub(super) struct Observed {
    pub(super) algorithm: Algorithm,
    /// `percentageOfNodesToScore` of its profile.
    pub(super) percentage: u8,
}

pub(super) struct Judge {
    pub(super) schedulers: HashMap<Name, Observed>,
    pub(super) window: Duration,
    /// The handle of all frameworks.
    pub(super) handle: Handle,
    /// The nominations that the handle has.
    pub(super) nominated: Nominated,
    pub(super) reader: Reader,
    /// Bindings and other changes, as the recorder reports them.
    pub(super) incoming: Receiver<Seen>,
    /// The next one, if it was received early for its version.
    pub(super) ahead: Option<Seen>,
    /// The changes and bindings so far, for as long as a binding may need them.
    pub(super) seen: VecDeque<Seen>,
    /// Bindings whose window is not over.
    pub(super) open: VecDeque<(Arc<Binding>, Judgement)>,
    pub(super) counts: Arc<Counts>,
    pub(super) judgements: UnboundedSender<Judgement>,
}

impl Judge {
    /// Judges until the channel is closed, and then the remaining bindings.
    pub(super) fn run(mut self) {
        loop {
            let next = match self.ahead.take() {
                Some(next) => Ok(next),
                None => self.incoming.recv_timeout(TICK),
            };
            let now = match next {
                Ok(next) => {
                    let at = next.at();
                    self.take(next);
                    // Earlier changes may still be in the channel.
                    let is_last = self.ahead.is_none() && self.incoming.is_empty();
                    if is_last { Instant::now() } else { at }
                }
                Err(RecvTimeoutError::Timeout) => Instant::now(),
                Err(RecvTimeoutError::Disconnected) => break,
            };
            self.close_windows(|binding, window| {
                now.saturating_duration_since(binding.at) >= window
            });
            self.forget(now);
        }
        self.close_windows(|_, _| true);
    }

    pub(super) fn take(&mut self, seen: Seen) {
        if let Seen::Binding(binding) = &seen {
            let judgement = self.judge(binding);
            let is_open = judgement.verdict.is_unexplained();
            match is_open {
                true => self.open.push_back((binding.clone(), judgement)),
                false => self.report(judgement),
            }
        }
        self.seen.push_back(seen);
        if self.seen.len() >= KEPT {
            self.drop_oldest();
        }
    }

    /// Settles the older half of the open bindings with the entries so far, and drops the oldest quarter of the
    /// entries.
    fn drop_oldest(&mut self) {
        let Some(half) = self.seen.get(KEPT / 2).map(Seen::at) else { return };
        self.close_windows(|binding, _| binding.at <= half);
        self.seen.drain(..KEPT / 4);
    }

    /// Judges a binding on the version right before it.
    fn judge(&mut self, binding: &Binding) -> Judgement {
        let Binding { pod, bound, node, scheduler, .. } = binding;
        let mut judgement = Judgement {
            namespace: pod.namespace().clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            resource_version: bound.resource_version,
            scheduler: scheduler.clone(),
            node: node.clone(),
            verdict: Verdict::Undecided,
            state: None,
            nodes: binding.version.len(),
            feasible: 0,
            best_nodes: 0,
            rank: None,
            theirs: None,
            best: None,
            reason: None,
            waited: binding.waited(),
            decision: Duration::ZERO,
        };
        if !pod.template.resource_claims.is_empty() {
            judgement.reason = Some("pods with resource claims are not judged".to_owned());
            return judgement;
        }
        if is_supplied_by_devices(binding) {
            judgement.reason = Some("pods with devices are not judged".to_owned());
            return judgement;
        }
        self.nominate(&binding.nominated);
        judgement.decision = self.decide(binding);
        let assessed = match self.assess(binding, &binding.version) {
            Ok(assessed) => assessed,
            Err(status) => {
                judgement.reason = Some(format!("{}: {status}", status.plugin));
                return judgement;
            }
        };
        let theirs = assessed.of(node).cloned();
        judgement.feasible = assessed.feasible.len();
        judgement.best_nodes = assessed.best().count();
        judgement.rank = assessed.rank(node);
        judgement.best = match assessed.standing {
            Standing::Best => theirs.clone(),
            _ => assessed.best().next().cloned(),
        };
        let is_nominated = binding.was_nominated && pod.nominated_node_name.as_ref() == Some(node);
        judgement.verdict = match assessed.standing {
            Standing::Best if judgement.best_nodes > 1 => Verdict::Tied,
            Standing::Best => Verdict::Agreed,
            Standing::BestOfSample | Standing::Worse if is_nominated => Verdict::Nominated,
            Standing::BestOfSample => Verdict::Sampled,
            Standing::Worse => Verdict::Disagreed,
            Standing::Infeasible => Verdict::Infeasible,
        };
        judgement.theirs = theirs;
        judgement.reason = assessed.reason;
        judgement
    }

    /// Makes portolan's own decision, as its scheduler would, and returns the time that it takes.
    fn decide(&mut self, binding: &Binding) -> Duration {
        let Some(Observed { algorithm, .. }) = self.schedulers.get_mut(&binding.scheduler) else {
            return Duration::ZERO;
        };
        let begun = Instant::now();
        let state = algorithm.state();
        // Only the time is used: the choice among equal nodes is random.
        let _ =
            algorithm.decide_without_preemption(Cycle::new(&binding.version, &binding.pod, &state));
        begun.elapsed()
    }

    fn assess(&self, binding: &Binding, cluster: &Cluster) -> Result<Assessed, Status> {
        let Some(Observed { algorithm, percentage }) = self.schedulers.get(&binding.scheduler)
        else {
            return Err(Status::error("", "no such scheduler"));
        };
        // The node that the pod is nominated to is compared with the others, too.
        let pod = Pod { nominated_node_name: None, ..(*binding.pod).clone() };
        assess(algorithm.framework(), cluster, &pod, &binding.node, *percentage)
    }

    /// Gives the frameworks the nominations at the time of a binding.
    fn nominate(&mut self, nominated: &Nominated) {
        if Arc::ptr_eq(&self.nominated, nominated) {
            return;
        }
        let nominator = self.handle.nominator();
        self.nominated.iter().for_each(|(pod, _)| drop(nominator.remove(&pod.uid)));
        nominated.iter().for_each(|(pod, node)| nominator.add((**pod).clone(), node.clone()));
        self.nominated = nominated.clone();
    }

    /// Settles the bindings whose window is over.
    fn close_windows(&mut self, is_over: impl Fn(&Binding, Duration) -> bool) {
        while self.open.front().is_some_and(|(binding, _)| is_over(binding, self.window))
            && let Some((binding, mut judgement)) = self.open.pop_front()
        {
            self.nominate(&binding.nominated);
            self.try_other_states(&binding, &mut judgement);
            self.report(judgement);
        }
    }

    /// Looks for a state on which the node is among the best ones.
    fn try_other_states(&mut self, binding: &Arc<Binding>, judgement: &mut Judgement) {
        let is_it = |seen: &Seen| matches!(seen, Seen::Binding(one) if Arc::ptr_eq(one, binding));
        let Some(at) = self.seen.iter().position(is_it) else { return };
        let window = self.window;
        let is_near = |seen: &&Seen| {
            let (one, other) = (seen.at(), binding.at);
            one.max(other) - one.min(other) <= window
        };
        let after: Vec<&Seen> = self.seen.iter().skip(at + 1).take_while(is_near).collect();
        // This thread may lag behind, so the newest version may be from after the window. The version at its end is the
        // one before the next change.
        let last = match self.seen.get(at + 1 + after.len()) {
            Some(beyond) => beyond.version().clone(),
            None => {
                let newest = self.reader.snapshot();
                self.reader.release();
                // The recorder sends before it submits. If nothing waits, all changes of the newest version were seen.
                if self.ahead.is_none() {
                    self.ahead = self.incoming.try_recv().ok();
                }
                self.ahead.as_ref().map_or(newest, |next| next.version().clone())
            }
        };
        let around = Around {
            binding,
            before: self.seen.iter().take(at).rev().take_while(is_near).collect(),
            after,
            last: &last,
        };
        let found = around.find(|state| {
            let assessed = self.assess(binding, &state.fork());
            // A sample in which the node is the best one exists on nearly every state, and would explain anything.
            assessed.is_ok_and(|assessed| assessed.standing == Standing::Best)
        });
        if let Some(state) = found {
            judgement.verdict = Verdict::Concurrent;
            judgement.state = Some(state.describe());
        }
    }

    /// Drops entries that no binding can need any more.
    fn forget(&mut self, now: Instant) {
        let oldest = self.open.front().map_or(now, |(binding, _)| binding.at);
        let window = self.window;
        while self
            .seen
            .front()
            .is_some_and(|seen| oldest.saturating_duration_since(seen.at()) > window)
        {
            self.seen.pop_front();
        }
    }

    fn report(&self, judgement: Judgement) {
        self.counts.judged(&judgement);
        // The receiver may be gone.
        let _ = self.judgements.send(judgement);
    }
}

/// Returns whether the pod requests an extended resource that its node does not offer: devices supply it.
fn is_supplied_by_devices(binding: &Binding) -> bool {
    let node = binding.version.node(&binding.node).and_then(|info| info.node());
    let mut requests = binding.pod.template.resources.incoming.scalars.iter();
    node.is_some_and(|node| {
        requests.any(|(name, _)| name.contains('/') && node.allocatable.scalars.get(name).is_none())
    })
}
