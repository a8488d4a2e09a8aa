//! The record of each pod that a simulation has touched.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use portolan::cache::Cluster;
use portolan::model::{Name, Pod, Template, Timestamp, Uid};
use portolan::{AlgorithmConfig, Framework, Profiles};

use crate::cluster::{self, Godel};
use crate::creation::Creation;
use crate::error::CommandError;
use crate::policy;
use crate::replacement::{Replacement, Replacements};
use crate::simulation::{Observer, Rejection};
use crate::targets::Candidate;

use super::difference::{Fate, Outcome, Preempted, State};

/// The pods that the simulation has moved or tried to place, in the order of their arrival.
pub(super) struct Record {
    pub(super) profiles: Profiles<(Arc<Framework>, AlgorithmConfig)>,
    pub(super) replacements: Replacements,
    pub(super) creation: Creation,
    godel: Godel,
    /// The jobs that have failed because of pods that ended.
    pub(super) failed_jobs: Vec<(Name, Name)>,
    pods: Vec<History>,
    by_uid: HashMap<Uid, usize>,
    /// The pods that have no node and wait for one.
    waiting: BTreeSet<usize>,
    /// The pods that have ended or were placed since [`Record::take_changes`].
    changes: Vec<Change>,
    /// The pods that were rejected since [`Record::take_rejected`].
    rejected: Vec<Uid>,
    /// How many pods were preempted.
    pub(super) preemptions: usize,
}

/// A change of the pods that budgets count.
pub(super) enum Change {
    Placed(Arc<Template>),
    /// The pod has ended. `was_known` says whether the simulation had touched it before.
    Ended {
        uid: Uid,
        was_known: bool,
        template: Arc<Template>,
    },
}

/// One pod.
struct History {
    pod: Pod,
    /// The node at the start.
    start: Option<Name>,
    /// Whether the pod had no node when the change began.
    is_pending: bool,
    /// How often the change, and not a preemptor, has ended the pod.
    restarts: usize,
    preempted: Option<Preempted>,
    end: Option<End>,
    /// Why the last attempt failed.
    why: Option<String>,
}

/// Why a pod that has ended is not recreated.
#[derive(Clone)]
pub(super) enum End {
    /// The pod was deleted.
    Deleted,
    /// The pod has no controller that recreates it. Contains the reason why it ended.
    Lost(Name, String),
    /// The node has failed and the object of the pod still exists. Contains the reason why no other pod replaces it.
    Unreachable(String),
    /// The pod was being deleted before it had a node.
    Skipped,
    /// The pod is not created. Contains the reason.
    Uncreated(String),
}

impl Record {
    pub(super) fn new(
        profiles: Profiles<(Arc<Framework>, AlgorithmConfig)>,
        replacements: Replacements,
        creation: Creation,
        godel: &Godel,
    ) -> Record {
        Record {
            profiles,
            replacements,
            creation,
            godel: godel.clone(),
            failed_jobs: Vec::new(),
            pods: Vec::new(),
            by_uid: HashMap::new(),
            waiting: BTreeSet::new(),
            changes: Vec::new(),
            rejected: Vec::new(),
            preemptions: 0,
        }
    }

    /// Whether one of the profiles schedules the pod.
    pub(super) fn is_scheduled(&self, pod: &Pod) -> bool {
        self.profiles.get(pod).is_some()
    }

    /// The history of a pod, which begins on this node if the pod is new to the record.
    fn history(&mut self, pod: &Pod, start: Option<&Name>) -> usize {
        if let Some(at) = self.by_uid.get(&pod.uid) {
            return *at;
        }
        let at = self.pods.len();
        self.by_uid.insert(pod.uid.clone(), at);
        self.pods.push(History {
            pod: Pod { node_name: None, ..pod.clone() },
            start: start.cloned(),
            is_pending: false,
            restarts: 0,
            preempted: None,
            end: None,
            why: None,
        });
        at
    }

    /// The history of a pod that leaves this node, if any.
    fn leaves(&mut self, pod: &Pod, from: Option<&Name>) -> usize {
        let was_known = self.by_uid.contains_key(&pod.uid);
        let at = self.history(pod, from);
        if from.is_some() {
            self.creation.stops(pod);
        }
        if from.is_some() && self.pods[at].end.is_none() && pod.deletion_time.is_none() {
            let (uid, template) = (pod.uid.clone(), pod.template.clone());
            self.changes.push(Change::Ended { uid, was_known, template });
        }
        at
    }

    /// Records a pod that enters the queue, after it has left a node or for the first time.
    pub(super) fn arrives(&mut self, pod: &Pod, from: Option<&Name>) {
        let at = self.leaves(pod, from);
        self.pods[at].pod = Pod { node_name: None, ..pod.clone() };
        self.pods[at].end = None;
        self.pods[at].restarts += usize::from(from.is_some());
        self.waiting.insert(at);
    }

    /// Records that a pod has left its node, or the queue, and is not recreated now.
    pub(super) fn ends(&mut self, pod: &Pod, from: Option<&Name>, end: End) {
        let at = self.leaves(pod, from);
        if matches!(end, End::Deleted | End::Lost(..)) {
            self.creation.is_gone(pod);
            self.creation.forget(pod);
        }
        self.pods[at].end = Some(end);
        self.waiting.remove(&at);
    }

    /// The changes since the last call.
    pub(super) fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// The pods that were rejected since the last call, in their order.
    pub(super) fn take_rejected(&mut self) -> Vec<Uid> {
        std::mem::take(&mut self.rejected)
    }

    /// Whether the pod has ended, although it may still be on its node.
    pub(super) fn has_ended(&self, uid: &Uid) -> bool {
        let end = self.by_uid.get(uid).and_then(|at| self.pods[*at].end.as_ref());
        end.is_some_and(|end| !matches!(end, End::Uncreated(_)))
    }

    /// The pods that are not created.
    pub(super) fn uncreated(&self) -> impl Iterator<Item = &Pod> {
        let uncreated = |it: &&History| matches!(it.end, Some(End::Uncreated(_)));
        self.pods.iter().filter(uncreated).map(|history| &history.pod)
    }

    /// Whether the pod is not created.
    pub(super) fn is_uncreated(&self, uid: &Uid) -> bool {
        let end = self.by_uid.get(uid).and_then(|at| self.pods[*at].end.as_ref());
        matches!(end, Some(End::Uncreated(_)))
    }

    /// Records that a pod runs without a scheduler.
    pub(super) fn runs(&mut self, pod: &Pod, node: &Name) {
        self.creation.runs(pod, node);
        if let Some(at) = self.by_uid.get(&pod.uid).copied() {
            self.pods[at].why = None;
            self.waiting.remove(&at);
            self.changes.push(Change::Placed(self.pods[at].pod.template.clone()));
        }
    }

    /// Records why a pod cannot run.
    pub(super) fn is_refused(&mut self, uid: &Uid, why: String) {
        if let Some(at) = self.by_uid.get(uid) {
            self.pods[*at].why = Some(why);
        }
    }

    /// Whether the simulation has moved the pod or tried to place it.
    pub(super) fn has_arrived(&self, uid: &Uid) -> bool {
        self.by_uid.contains_key(uid)
    }

    /// The pods that have no node now and wait for one.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Pod> {
        self.waiting.iter().map(|at| &self.pods[*at].pod)
    }

    /// The waiting pods that had a node when the change began, or are part of it.
    pub(super) fn displaced(&self) -> impl Iterator<Item = &Pod> {
        let waiting = self.waiting.iter().map(|at| &self.pods[*at]);
        waiting.filter(|history| !history.is_pending).map(|history| &history.pod)
    }

    /// The placed pods, and those that have no node now.
    pub(super) fn candidates<'r>(
        &'r self,
        now: &'r Cluster,
    ) -> impl Iterator<Item = Candidate<'r>> {
        let placed = now.nodes().flat_map(|node| node.pods()).map(Candidate::Placed);
        placed.chain(self.waiting().chain(self.uncreated()).map(Candidate::Waiting))
    }

    /// Records that the change begins.
    pub(super) fn begin_change(&mut self) {
        for at in &self.waiting {
            self.pods[*at].is_pending = true;
        }
    }

    /// Refuses new pods with the name of a pod that exists.
    pub(super) fn refuse_known(
        &self,
        pods: &[Pod],
        files: &[&Path],
        now: &Cluster,
    ) -> Result<(), CommandError> {
        let is_known = |it: &&History| matches!(it.end, None | Some(End::Uncreated(_)));
        let known = self.pods.iter().filter(is_known).map(|it| &it.pod);
        let mut names: HashSet<(&Name, &str)> =
            known.map(|pod| (pod.namespace(), &*pod.name)).collect();
        for pod in pods {
            let is_placed = || now.pod_named(pod.namespace(), &pod.name).is_some();
            if !names.insert((pod.namespace(), &pod.name)) || is_placed() {
                return Err(cluster::duplicate_pod(files, pod));
            }
        }
        Ok(())
    }

    /// The current outcome of each pod.
    pub(super) fn outcome(&self, now: &Cluster) -> Outcome {
        let fates = self.pods.iter().map(|history| {
            let History { pod, start, restarts, preempted, end, why, .. } = history;
            let on = || now.pod(&pod.uid).map(|info| info.node().name().clone());
            let state = match end {
                Some(End::Deleted) => State::Gone,
                Some(End::Lost(from, how)) => State::Lost(from.clone(), how.clone()),
                Some(End::Unreachable(why)) => State::Waits(why.clone()),
                Some(End::Skipped) => State::Skipped,
                Some(End::Uncreated(why)) => State::Uncreated(why.clone()),
                None => match on() {
                    Some(node) => State::On(node),
                    None if !self.is_scheduled(pod) => State::Unsimulated(policy::no_profile(pod)),
                    None => State::Waits(why.clone().unwrap_or_else(|| self.why_untried(pod))),
                },
            };
            let (start, preempted) = (start.clone(), preempted.clone());
            Fate { pod: pod.clone(), start, state, restarts: *restarts, preempted }
        });
        Outcome::new(fates.collect())
    }

    /// Why a pod has no node.
    pub(super) fn why(&self, uid: &Uid) -> String {
        let Some(history) = self.by_uid.get(uid).map(|at| &self.pods[*at]) else {
            return String::new();
        };
        match (&history.end, &history.why) {
            (Some(End::Uncreated(why)), _) | (_, Some(why)) => why.clone(),
            _ => self.why_untried(&history.pod),
        }
    }

    /// Why a pod was never tried.
    fn why_untried(&self, pod: &Pod) -> String {
        let Some((framework, _)) = self.profiles.get(pod) else {
            return policy::no_profile(pod);
        };
        let why = policy::why_not_queued(framework, pod, &self.godel);
        why.unwrap_or_else(|| "the pod waits for its group".to_owned())
    }
}

impl Observer for Record {
    fn decided(&mut self, _: &Pod, _: Option<&Name>, _: Duration) {}

    fn placed(&mut self, pod: &Pod, node: &Name, _: Timestamp) {
        self.runs(pod, node);
    }

    fn rejected(&mut self, pod: &Pod, why: Rejection) {
        self.rejected.push(pod.uid.clone());
        self.is_refused(&pod.uid, why.message);
    }

    fn preempted(&mut self, pod: &Pod, by: &Pod) -> Replacement {
        let replacement = self.replacements.disrupted(pod);
        self.preemptions += 1;
        let from = pod.placed_on().cloned().unwrap_or_default();
        let at = self.leaves(pod, Some(&from));
        let history = &mut self.pods[at];
        let by = by.key().to_string();
        if let Replacement::Never(why) = replacement {
            history.end = Some(End::Lost(from.clone(), format!("preempted by {by}, {why}")));
            self.creation.is_gone(pod);
        } else {
            self.waiting.insert(at);
        }
        history.preempted = Some(Preempted { from, by });
        replacement
    }
}
