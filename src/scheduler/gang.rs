//! Gang scheduling: pods that are placed together or not at all.
//!
//! A gang is scheduled on a fork. Each pod is decided on with the previous ones in place, so that the members see each
//! other. If enough members find a node, one event assumes all of these members. The writer accepts or rejects the
//! event as a whole, so no reader ever sees a part of a gang. If the event conflicts with a placement of another
//! scheduler, the gang is scheduled again.
//!
//! Members do not preempt. Otherwise each of them could evict pods for a gang whose next member fits nowhere, and the
//! evictions would be wasted. (Kube-scheduler's WorkloadAwarePreemption, which is off by default, selects victims for
//! the whole group.) A group that has its minimum of placed pods, or had it once according to its phase, is no longer a
//! gang: its further pods are scheduled one by one and preempt like any other pod.
//!
//! The rules for pod groups are implemented in these places:
//!
//! | rule | owner |
//! |---|---|
//! | how many pods a group requires and lacks, its timeout, its state | [`PodGroup`](crate::model::PodGroup) |
//! | how many pods of a group are placed | [`Cluster::placed_members`] |
//! | how many pods of a group exist, whether they are held, their backoff and timeout | the queue, `src/scheduler/queue/groups.rs` |
//! | whether the pods of a group may enter the queue, as the queue reports to plugins | `GroupStatus` |
//! | the reasons of gated pods, and permits | [`GangScheduling`](crate::plugins::GangScheduling) |
//! | placing the pods that a group lacks together | this file |

use std::sync::Arc;

use crate::framework::{Algorithm, Cycle, CycleState, Decision, Failure, Permit};
use crate::log::Event;
use crate::model::{CustomEvent, EventError, Generation, Pod, Timestamp};
use crate::plugins::gang_scheduling::{WAITING, unknown};
use crate::snapshot::Cluster;
use crate::snapshot::draft::check_supported;

use super::cycle::{MAX_CONFLICTS, notify_waiting};
use super::{Placement, Profiles, Scheduler};

/// The result of placing a gang.
#[derive(Debug)]
#[must_use = "placements that are dropped are withdrawn"]
pub struct GangPlacement {
    /// The members that are assumed on nodes, in the order of the given pods.
    pub placed: Vec<Placement>,
    /// The members that fit on no node and were not required, each with its index among the given pods.
    pub left_over: Vec<(usize, Failure)>,
}

/// A gang that was not placed, with the errors of the members that caused it, each with its index among the given pods.
#[derive(Debug)]
pub(super) struct RefusedGang {
    pub(super) why: Failure,
    pub(super) members: LeftOver,
}

impl RefusedGang {
    /// Returns the error of a member that did not cause the failure.
    pub(super) fn error_of_others(&self) -> Failure {
        Failure::PodGroup(match &self.why {
            Failure::TooFew { .. } => WAITING.to_owned(),
            Failure::Member { failure, .. } => failure.to_string(),
            why => why.to_string(),
        })
    }
}

impl<E: Into<Failure>> From<E> for RefusedGang {
    fn from(error: E) -> RefusedGang {
        RefusedGang { why: error.into(), members: Vec::new() }
    }
}

fn member_failed(position: usize, pod: &Pod, failure: Failure) -> Failure {
    Failure::Member { position, name: pod.key().to_string(), failure: Box::new(failure) }
}

/// Members that are not placed, each with its index among the given pods.
type LeftOver = Vec<(usize, Failure)>;

/// A member for which a node was found.
struct Member {
    position: usize,
    pod: Arc<Pod>,
    decision: Decision,
    state: CycleState,
}

/// Returns how many more pods of the pod's group must be placed together, including this pod: at least 1.
///
/// # Errors
///
/// Returns an error if the group does not exist.
fn lacking(cluster: &Cluster, pod: &Pod) -> Result<usize, Failure> {
    let Some((namespace, name)) = pod.group() else { return Ok(1) };
    let group = cluster.objects().pod_groups.get(namespace, name);
    let group = group.ok_or_else(|| Failure::rejected(unknown(name)))?;
    let placed = cluster.placed_members(namespace, name);
    Ok(group.lacking(placed).max(1))
}

impl Scheduler {
    /// Places at least `least` of these pods together, or none. Pods are decided on in order of priority, the highest
    /// first. Costs one decision per pod, on a fork.
    ///
    /// # Errors
    ///
    /// No pod is placed. Members do not preempt.
    pub fn schedule_gang(
        &mut self,
        pods: &[Arc<Pod>],
        least: usize,
        now: Timestamp,
    ) -> Result<GangPlacement, Failure> {
        self.place_gang(pods, |_| Ok(least), now).map_err(|refused| refused.why)
    }

    /// Like [`Scheduler::schedule_gang`], for pods of one group. Places as many pods as the group lacks in the version
    /// on which the decision is made.
    pub(super) fn schedule_group(
        &mut self,
        pods: &[Arc<Pod>],
        now: Timestamp,
    ) -> Result<GangPlacement, RefusedGang> {
        let least = |cluster: &Cluster| pods.first().map_or(Ok(0), |pod| lacking(cluster, pod));
        self.place_gang(pods, least, now)
    }

    /// Returns whether a pod can be placed on its own: it has no group, or its group lacks no other pod.
    pub(super) fn stands_alone(&mut self, pod: &Pod) -> bool {
        let has_groups = self.framework(pod).is_some_and(|of| of.gathers_groups());
        !has_groups || pod.group().is_none() || lacking(self.reader.refresh(), pod) == Ok(1)
    }

    fn place_gang(
        &mut self,
        pods: &[Arc<Pod>],
        least: impl Fn(&Cluster) -> Result<usize, Failure>,
        now: Timestamp,
    ) -> Result<GangPlacement, RefusedGang> {
        if self.engine().is_within_writer() {
            return Err(Failure::OwnThread.into());
        }
        trace_span!(
            span,
            DEBUG,
            "gang",
            first = pods.first().map(|pod| tracing::field::display(pod.key())),
            members = pods.len(),
            placed = tracing::field::Empty,
            refusal = tracing::field::Empty
        );
        let gang = self.try_gang(pods, least, now);
        match &gang {
            Ok(gang) => {
                self.figures.placed += gang.placed.len() as u64;
                self.figures.failed += gang.left_over.len() as u64;
                trace_record!(span, placed = gang.placed.len());
                trace_event!(DEBUG, "gang assumed");
            }
            Err(_refused) => {
                self.figures.failed += pods.len() as u64;
                trace_record!(span, refusal = &_refused.why);
                trace_event!(DEBUG, "gang refused");
            }
        }
        gang
    }

    fn try_gang(
        &mut self,
        pods: &[Arc<Pod>],
        least: impl Fn(&Cluster) -> Result<usize, Failure>,
        now: Timestamp,
    ) -> Result<GangPlacement, RefusedGang> {
        one_scheduler(pods)?;
        let mut order: Vec<usize> = (0..pods.len()).collect();
        order.sort_by_key(|at| std::cmp::Reverse(pods[*at].template.priority));
        let mut conflicts = 0;
        loop {
            let snapshot = self.reader.refresh().clone();
            let least = least(&snapshot).map_err(|error| {
                let members = (0..pods.len()).map(|position| (position, error.clone())).collect();
                RefusedGang { why: error, members }
            })?;
            if pods.len() < least {
                return Err(Failure::Incomplete(pods.len(), least).into());
            }
            let (mut members, mut left_over) = self.decide_all(&snapshot, pods, &order)?;
            left_over.sort_by_key(|(position, _)| *position);
            if members.len() < least {
                let found = members.len();
                let first = left_over.first().map(|(_, error)| Box::new(error.clone()));
                let why = Failure::TooFew { found, wanted: least, first };
                return Err(RefusedGang { why, members: left_over });
            }
            if let Some(conflict) = self.assume_all(&members, snapshot.generation())? {
                if conflicts == MAX_CONFLICTS {
                    return Err(Failure::Refused(conflict).into());
                }
                conflicts += 1;
                self.figures.conflicts += 1;
                trace_event!(DEBUG, %conflict, conflicts, "conflict");
                continue;
            }
            members.sort_by_key(|member| member.position);
            let (placed, refused) = self.reserve_all(members, least, now)?;
            left_over.extend(refused);
            left_over.sort_by_key(|(position, _)| *position);
            return Ok(GangPlacement { placed, left_over });
        }
    }

    /// Finds a node for each pod, with the previous pods in place. Returns the members with a node, and the errors of
    /// the others. An error other than a fit error ends the search.
    fn decide_all(
        &mut self,
        snapshot: &Cluster,
        pods: &[Arc<Pod>],
        order: &[usize],
    ) -> Result<(Vec<Member>, LeftOver), RefusedGang> {
        self.take_section();
        let mut fork = snapshot.fork();
        let (mut members, mut left_over) = (Vec::new(), Vec::new());
        for position in order {
            let position = *position;
            let decided = decide(&mut self.profiles, &fork, &pods[position]);
            let placed = decided.and_then(|(decision, state, reserved)| {
                let pod = decision.place(Pod::clone(&pods[position]));
                let added = check_supported(&fork, &pod);
                let added = added.and_then(|()| fork.reserve(&pod, &[], &reserved));
                added.map_err(Failure::Refused)?;
                Ok(Member { position, pod: Arc::new(pod), decision, state })
            });
            match placed {
                Ok(member) => members.push(member),
                Err(error) if error.fit().is_some() => left_over.push((position, error)),
                Err(error) => {
                    left_over.push((position, error.clone()));
                    let why = member_failed(position, &pods[position], error);
                    return Err(RefusedGang { why, members: left_over });
                }
            }
        }
        Ok((members, left_over))
    }

    /// Assumes all members with one event. Returns the conflict if the cluster has changed since the decision in a way
    /// that invalidates it.
    fn assume_all(
        &mut self,
        members: &[Member],
        generation: Generation,
    ) -> Result<Option<EventError>, RefusedGang> {
        let pods: Arc<[Pod]> = members.iter().map(|member| Pod::clone(&member.pod)).collect();
        let event = Event::AssumeAll { pods, decided_on: Some(generation) };
        let submitted = self.engine().submit(event).map_err(Failure::from);
        let outcome = submitted.and_then(|ticket| Ok(ticket.wait()?))?;
        let why = match outcome {
            Ok(_) => return Ok(None),
            Err(EventError::Together(why)) => *why,
            Err(why) => why,
        };
        if let EventError::Conflict { .. } = why {
            return Ok(Some(why));
        }
        let error = Failure::Refused(why);
        let is_known = |member: &&Member| match &error {
            Failure::Refused(EventError::AlreadyInCache { uid }) => member.pod.uid == *uid,
            _ => false,
        };
        let Some(known) = members.iter().find(is_known) else {
            return Err(RefusedGang { why: error, members: Vec::new() });
        };
        let why = member_failed(known.position, &known.pod, error.clone());
        Err(RefusedGang { why, members: vec![(known.position, error)] })
    }

    /// Runs Reserve and Permit for each member. Undoes the members that are rejected and returns them separately, if at
    /// least `least` members remain; otherwise undoes all members.
    fn reserve_all(
        &mut self,
        members: Vec<Member>,
        least: usize,
        now: Timestamp,
    ) -> Result<(Vec<Placement>, LeftOver), RefusedGang> {
        let snapshot = self.reader.refresh().clone();
        // All at once, so that a panic withdraws every member.
        let assumed = members.into_iter().filter_map(|member| {
            let Member { position, pod, decision, state } = member;
            let (framework, home) = (self.framework(&pod)?.clone(), self.home.clone());
            Some((position, Placement::assumed(pod, (decision, state), framework, home, now)))
        });
        let assumed: Vec<(usize, Placement)> = assumed.collect();
        let mut placed: Vec<Placement> = Vec::with_capacity(assumed.len());
        let mut refused = LeftOver::new();
        let mut why = None;
        let mut left = assumed.len();
        for (position, mut placement) in assumed {
            placement.framework.handle().nominator().remove(&placement.pod.uid);
            if left < least {
                placed.push(placement);
                continue;
            }
            let Placement { pod, decision, state, framework, .. } = &placement;
            let cycle = Cycle::new(&snapshot, pod, state);
            let permitted = framework
                .reserve(cycle, &decision.node)
                .and_then(|()| framework.permit(cycle, &decision.node, now));
            match permitted {
                Ok(permit) => {
                    placement.waits = permit != Permit::Allow;
                    placed.push(placement);
                }
                Err(status) => {
                    let error = Failure::rejected(status);
                    why.get_or_insert_with(|| member_failed(position, pod, error.clone()));
                    refused.push((position, error));
                    left -= 1;
                    match left < least {
                        true => placed.push(placement),
                        false => self.undo(&placement, &snapshot, now),
                    }
                }
            }
        }
        match why {
            Some(why) if left < least => {
                placed.iter().rev().for_each(|placement| self.undo(placement, &snapshot, now));
                return Err(RefusedGang { why, members: refused });
            }
            _ => {}
        }
        for Placement { pod, state, framework, .. } in
            placed.iter().filter(|placement| placement.waits)
        {
            notify_waiting(framework, Cycle::new(self.reader.refresh(), pod, state));
        }
        Ok((placed, refused))
    }

    /// Undoes a member. The other members must be undone even if this one cannot be.
    fn undo(&self, placement: &Placement, version: &Cluster, now: Timestamp) {
        let _ = placement.undo(version, Some(self.engine()), now);
    }
}

/// Returns an error unless all members name the same scheduler.
fn one_scheduler(pods: &[Arc<Pod>]) -> Result<(), Failure> {
    let name = |pod: &Arc<Pod>| pod.template.scheduler_name.clone().unwrap_or_default();
    let Some(first) = pods.first().map(name) else { return Ok(()) };
    match pods.iter().map(name).find(|other| *other != first) {
        Some(other) => Err(Failure::SeveralSchedulers(first.to_string(), other.to_string())),
        None => Ok(()),
    }
}

/// Decides on a node, and returns the events that show the next pods what this pod's plugins reserve.
fn decide(
    profiles: &mut Profiles<Algorithm>,
    cluster: &Cluster,
    pod: &Arc<Pod>,
) -> Result<(Decision, CycleState, Vec<CustomEvent>), Failure> {
    let Some(scheduler) = profiles.get_mut(pod) else {
        let name = pod.template.scheduler_name.as_deref().unwrap_or_default();
        return Err(Failure::NoProfile(name.to_owned()));
    };
    let state = scheduler.state();
    let cycle = Cycle::new(cluster, pod, &state);
    let decision = scheduler.decide_without_preemption(cycle)?;
    let reserved = scheduler.framework().reserve_in_fork(cycle, &decision.node);
    let reserved = reserved.map_err(Failure::rejected)?;
    Ok((decision, state, reserved))
}
