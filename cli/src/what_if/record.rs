//! The simulation's record of each pod.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use portolan::framework::{AlgorithmConfig, Framework};
use portolan::model::{Name, Pod, Timestamp, Uid};
use portolan::scheduler::Profiles;
use portolan::{Cluster, Engine};

use crate::cluster;
use crate::error::Failure;
use crate::policy;
use crate::simulation::{Observer, Rejection, closed};
use crate::targets::Candidate;

use super::Answer;

/// The pods that the simulation has moved or tried to place, in the order of their arrival.
pub(super) struct Record {
    pub(super) profiles: Profiles<(Arc<Framework>, AlgorithmConfig)>,
    pods: Vec<History>,
    by_uid: HashMap<Uid, usize>,
    preempted: Vec<(Pod, Option<Name>)>,
}

/// One pod.
struct History {
    pod: Pod,
    /// The node that the pod was moved from.
    from: Option<Name>,
    /// Whether the pod is pending without the change.
    is_pending: bool,
    /// Whether the pod was deleted, and no controller replaces it.
    is_gone: bool,
    /// Why the last attempt failed.
    why: Option<String>,
}

impl Record {
    pub(super) fn new(profiles: Profiles<(Arc<Framework>, AlgorithmConfig)>) -> Record {
        Record { profiles, pods: Vec::new(), by_uid: HashMap::new(), preempted: Vec::new() }
    }

    /// Whether one of the profiles schedules the pod.
    pub(super) fn is_scheduled(&self, pod: &Pod) -> bool {
        self.profiles.get(pod).is_some()
    }

    /// Records a pod that enters the queue, after it has left a node or for the first time.
    pub(super) fn arrives(&mut self, pod: Pod, from: Option<Name>) {
        if let Some(at) = self.by_uid.get(&pod.uid) {
            let known = &mut self.pods[*at];
            known.from = known.from.take().or(from);
            known.is_gone = false;
            return;
        }
        self.by_uid.insert(pod.uid.clone(), self.pods.len());
        self.pods.push(History { pod, from, is_pending: false, is_gone: false, why: None });
    }

    /// Records that a pod was deleted and is not replaced.
    pub(super) fn is_gone(&mut self, uid: &Uid) {
        if let Some(at) = self.by_uid.get(uid) {
            self.pods[*at].is_gone = true;
        }
    }

    /// Records why a pod cannot run.
    pub(super) fn is_refused(&mut self, uid: &Uid, why: String) {
        if let Some(at) = self.by_uid.get(uid) {
            self.pods[*at].why = Some(why);
        }
    }

    /// Whether the simulation has neither moved nor tried to place any pod.
    pub(super) fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// Whether the simulation has moved the pod or tried to place it.
    pub(super) fn has_arrived(&self, uid: &Uid) -> bool {
        self.by_uid.contains_key(uid)
    }

    /// The pods that have no node now.
    pub(super) fn waiting<'r>(&'r self, now: &'r Cluster) -> impl Iterator<Item = &'r Pod> {
        let waits = |it: &&History| !it.is_gone && now.pod(&it.pod.uid).is_none();
        self.pods.iter().filter(waits).map(|history| &history.pod)
    }

    /// The placed pods, and those that have no node now.
    pub(super) fn candidates<'r>(
        &'r self,
        now: &'r Cluster,
    ) -> impl Iterator<Item = Candidate<'r>> {
        let placed = now.nodes().flat_map(|node| node.pods()).map(Candidate::Placed);
        placed.chain(self.waiting(now).map(Candidate::Waiting))
    }

    /// The pods that have no node now, although they would have one without the change.
    pub(super) fn displaced<'r>(&'r self, now: &'r Cluster) -> impl Iterator<Item = &'r Pod> {
        let waits = |it: &&History| !it.is_gone && !it.is_pending && now.pod(&it.pod.uid).is_none();
        self.pods.iter().filter(waits).map(|history| &history.pod)
    }

    /// Records which pods are pending without the change.
    pub(super) fn end_of_baseline(&mut self, engine: &Engine) -> Result<(), Failure> {
        let now = engine.reader().map_err(closed)?.snapshot();
        for history in &mut self.pods {
            history.is_pending = now.pod(&history.pod.uid).is_none();
        }
        Ok(())
    }

    /// Refuses pods that the cluster already has, and pods that occur twice.
    pub(super) fn refuse_known(
        &self,
        pods: &[Pod],
        files: &[&Path],
        engine: &Engine,
    ) -> Result<(), Failure> {
        if pods.is_empty() {
            return Ok(());
        }
        let now = engine.reader().map_err(closed)?.snapshot();
        let mut names = std::collections::HashSet::new();
        let placed = now.nodes().flat_map(|node| node.pods());
        names.extend(placed.map(|pod| (pod.namespace().clone(), pod.name().to_owned())));
        let queued = self.pods.iter().map(|history| &history.pod);
        names.extend(queued.map(|pod| (pod.namespace().clone(), pod.name.to_string())));
        for pod in pods {
            if !names.insert((pod.namespace().clone(), pod.name.to_string())) {
                return Err(cluster::duplicate_pod(files, pod));
            }
        }
        Ok(())
    }

    /// Writes the outcome of each pod into the answer.
    pub(super) fn finish(&mut self, end: &Cluster, answer: &mut Answer) {
        answer.preempted = std::mem::take(&mut self.preempted);
        for History { pod, from, is_pending, is_gone, why } in std::mem::take(&mut self.pods) {
            if is_gone {
                continue;
            }
            if let Some(node) = end.pod(&pod.uid).and_then(|pod| pod.to_pod().node_name) {
                answer.placed.push((pod, from, node));
                continue;
            }
            let why = why.unwrap_or_else(|| self.why_untried(&pod));
            match is_pending {
                true => answer.pending.push((pod, why)),
                false => answer.unplaced.push((pod, from, why)),
            }
        }
    }

    /// Why a pod was never tried.
    fn why_untried(&self, pod: &Pod) -> String {
        let Some((framework, _)) = self.profiles.get(pod) else {
            return policy::no_profile(pod);
        };
        let why = policy::why_not_queued(framework, pod);
        why.unwrap_or_else(|| "the pod waits for its group".to_owned())
    }
}

impl Observer for Record {
    fn decided(&mut self, _: &Pod, _: Option<&Name>, _: Duration) {}

    fn placed(&mut self, pod: &Pod, _: &Name, _: Timestamp) {
        if let Some(at) = self.by_uid.get(&pod.uid) {
            self.pods[*at].why = None;
        }
    }

    fn rejected(&mut self, pod: &Pod, why: Rejection) {
        if let Some(at) = self.by_uid.get(&pod.uid) {
            self.pods[*at].why = Some(why.message);
        }
    }

    fn preempted(&mut self, pod: &Pod) {
        let from = pod.placed_on().cloned();
        self.preempted.push((pod.clone(), from.clone()));
        self.arrives(Pod { node_name: None, ..pod.clone() }, from);
    }
}
