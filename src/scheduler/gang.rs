//! Pods that are placed together or not at all.
//!
//! A gang is decided on a fork: each pod with those before it in place, so that its
//! members see each other. If enough of them find a node, all that did are assumed
//! by one event, which the writer accepts whole or refuses whole; nobody ever sees
//! half of a gang. What another scheduler did meanwhile makes the writer refuse,
//! and the gang is decided on anew.
//!
//! Members do not preempt: one after the other would evict pods for a gang of which
//! the next member may fit nowhere whatever goes, so that its victims went in vain
//! (kube-scheduler's WorkloadAwarePreemption, off by default, removes victims for the
//! group as a whole). A group that has its minimum, or once had it, as its phase says, is
//! a gang no more: its further pods are scheduled one by one, and preempt as any pod does.
//!
//! The rules about pod groups have these owners:
//!
//! | rule | owner |
//! |---|---|
//! | how many pods a group wants and lacks, its timeout, its state | [`PodGroup`](crate::model::PodGroup) |
//! | how many pods of a group are placed | [`Cluster::placed_members`] |
//! | how many pods of a group exist, whether they are held, their backoff and timeout | the queue, `src/scheduler/queue/groups.rs` |
//! | whether the pods of a group may queue, as the queue told plugins | [`GroupStatus`](crate::framework::GroupStatus) |
//! | the reasons of gated pods, and permits | [`GangScheduling`](crate::plugins::GangScheduling) |
//! | placing the pods that a group lacks at once | this file |

use std::sync::Arc;

use crate::framework::{Algorithm, Cycle, CycleState, Decision, Permit};
use crate::log::Event;
use crate::model::{EventError, Generation, Pod, Timestamp};
use crate::plugins::gang_scheduling::{WAITING, unknown};
use crate::snapshot::Cluster;
use crate::snapshot::draft::check_supported;

use super::cycle::{MOST_CONFLICTS, tell_waits};
use super::{CycleError, Placement, Profiles, Scheduler};

/// What became of a gang whose members found enough nodes.
#[derive(Debug)]
pub struct GangPlacement {
    /// The members that are assumed on their nodes, in the order of the pods.
    pub placed: Vec<Placement>,
    /// The members that found none and were not needed, each with its position among
    /// the pods.
    pub left_over: Vec<(usize, CycleError)>,
}

/// Why a gang was not placed: nothing of it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GangError {
    /// Too few members found a node.
    #[error("{found} of {wanted} members find a node{}", because(.first))]
    TooFew {
        /// Members that found a node.
        found: usize,
        /// Members required.
        wanted: usize,
        /// The error of the first member that did not.
        first: Option<Box<CycleError>>,
    },
    /// There are fewer members than have to be placed.
    #[error("waiting for minCount pods from a gang to appear in scheduling queue: {0} of {1}")]
    Incomplete(usize, usize),
    /// Members name different schedulers.
    #[error(
        "members name the schedulers {0:?} and {1:?}: give all pods of a group the same \
         schedulerName"
    )]
    SeveralSchedulers(String, String),
    /// A member could not be decided on, or its plugins did not permit it.
    #[error("pod {name:?}: {error}")]
    Member {
        /// Its position among the pods given.
        position: usize,
        /// Its namespace and name.
        name: String,
        /// What is wrong with it.
        error: CycleError,
    },
    /// The error concerns the engine, the group or the whole gang.
    #[error(transparent)]
    Together(CycleError),
}

impl GangError {
    fn member(position: usize, pod: &Pod, error: CycleError) -> GangError {
        let name = format!("{}/{}", pod.namespace(), pod.name);
        GangError::Member { position, name, error }
    }
}

fn because(first: &Option<Box<CycleError>>) -> String {
    first.as_ref().map(|first| format!(": {first}")).unwrap_or_default()
}

impl<E: Into<CycleError>> From<E> for GangError {
    fn from(error: E) -> GangError {
        GangError::Together(error.into())
    }
}

/// A gang that was not placed, and the errors of the members at fault, each with its position
/// among the pods.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) why: GangError,
    pub(super) members: LeftOver,
}

impl Refused {
    /// What a member is told that is not to blame.
    pub(super) fn told(&self) -> CycleError {
        CycleError::PodGroup(match &self.why {
            GangError::TooFew { .. } => WAITING.to_owned(),
            GangError::Member { error, .. } => error.to_string(),
            why => why.to_string(),
        })
    }
}

impl<E: Into<GangError>> From<E> for Refused {
    fn from(error: E) -> Refused {
        Refused { why: error.into(), members: Vec::new() }
    }
}

/// Members that are not placed, each with its position among the pods.
type LeftOver = Vec<(usize, CycleError)>;

/// A member with a node.
struct Member {
    position: usize,
    pod: Arc<Pod>,
    decision: Decision,
    state: CycleState,
}

/// How many more pods of its group have to be placed with this one, itself included:
/// at least 1.
///
/// # Errors
///
/// There is no such group.
fn lacking(cluster: &Cluster, pod: &Pod) -> Result<usize, CycleError> {
    let Some((namespace, name)) = pod.group() else { return Ok(1) };
    let group = cluster.objects().pod_groups.get(namespace, name);
    let group = group.ok_or_else(|| CycleError::rejected(unknown(name)))?;
    let placed = cluster.placed_members(namespace, name);
    Ok(group.lacking(placed).max(1))
}

impl Scheduler {
    /// Places at least `least` of these pods, at once, or none. They are tried in the
    /// order of their priorities, the highest first.
    ///
    /// Costs a decision for each pod, on a fork.
    ///
    /// # Errors
    ///
    /// No pod is placed. Preemption is not tried for members.
    pub fn schedule_gang(
        &mut self,
        pods: &[Arc<Pod>],
        least: usize,
        now: Timestamp,
    ) -> Result<GangPlacement, GangError> {
        self.place_gang(pods, |_| Ok(least), now).map_err(|refused| refused.why)
    }

    /// The same for pods of one group: as many as that lacks in the version decided on.
    pub(super) fn schedule_group(
        &mut self,
        pods: &[Arc<Pod>],
        now: Timestamp,
    ) -> Result<GangPlacement, Refused> {
        let least = |cluster: &Cluster| pods.first().map_or(Ok(0), |pod| lacking(cluster, pod));
        self.place_gang(pods, least, now)
    }

    /// Whether a pod can be placed by itself: it is of no group, or of one that lacks no
    /// other.
    pub(super) fn stands_alone(&mut self, pod: &Pod) -> bool {
        let has_groups = self.framework(pod).is_some_and(|of| of.gathers_groups());
        !has_groups || pod.group().is_none() || lacking(self.reader.refresh(), pod) == Ok(1)
    }

    fn place_gang(
        &mut self,
        pods: &[Arc<Pod>],
        least: impl Fn(&Cluster) -> Result<usize, CycleError>,
        now: Timestamp,
    ) -> Result<GangPlacement, Refused> {
        if self.engine().is_within_writer() {
            return Err(GangError::from(CycleError::OwnThread).into());
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
        least: impl Fn(&Cluster) -> Result<usize, CycleError>,
        now: Timestamp,
    ) -> Result<GangPlacement, Refused> {
        one_scheduler(pods)?;
        let mut order: Vec<usize> = (0..pods.len()).collect();
        order.sort_by_key(|at| std::cmp::Reverse(pods[*at].template.priority));
        let mut conflicts = 0;
        loop {
            let snapshot = self.reader.refresh().clone();
            let least = least(&snapshot).map_err(|error| {
                let members = (0..pods.len()).map(|position| (position, error.clone())).collect();
                Refused { why: GangError::Together(error), members }
            })?;
            if pods.len() < least {
                return Err(GangError::Incomplete(pods.len(), least).into());
            }
            let (mut members, mut left_over) = self.decide_all(&snapshot, pods, &order)?;
            left_over.sort_by_key(|(position, _)| *position);
            if members.len() < least {
                let found = members.len();
                let first = left_over.first().map(|(_, error)| Box::new(error.clone()));
                let why = GangError::TooFew { found, wanted: least, first };
                return Err(Refused { why, members: left_over });
            }
            if let Some(conflict) = self.assume_all(&members, snapshot.generation())? {
                if conflicts == MOST_CONFLICTS {
                    return Err(GangError::from(CycleError::Assume(conflict)).into());
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

    /// A node for each pod that there is one for, those before it in place; and why
    /// there is none for the others. A pod that cannot be decided on ends it.
    fn decide_all(
        &mut self,
        snapshot: &Cluster,
        pods: &[Arc<Pod>],
        order: &[usize],
    ) -> Result<(Vec<Member>, LeftOver), Refused> {
        let mut fork = snapshot.fork();
        let (mut members, mut left_over) = (Vec::new(), Vec::new());
        for position in order {
            let position = *position;
            let decided = decide(&mut self.profiles, &fork, &pods[position]);
            let placed = decided.and_then(|(decision, state)| {
                let pod = decision.place(Pod::clone(&pods[position]));
                let added = check_supported(&pod).and_then(|()| fork.add_pod(&pod));
                added.map_err(CycleError::Assume)?;
                Ok(Member { position, pod: Arc::new(pod), decision, state })
            });
            match placed {
                Ok(member) => members.push(member),
                Err(error) if error.fit().is_some() => left_over.push((position, error)),
                Err(error) => {
                    left_over.push((position, error.clone()));
                    let why = GangError::member(position, &pods[position], error);
                    return Err(Refused { why, members: left_over });
                }
            }
        }
        Ok((members, left_over))
    }

    /// Assumes all members; what came in between, if something did.
    fn assume_all(
        &mut self,
        members: &[Member],
        generation: Generation,
    ) -> Result<Option<EventError>, Refused> {
        let pods: Arc<[Pod]> = members.iter().map(|member| Pod::clone(&member.pod)).collect();
        let event = Event::AssumeAll { pods, decided_on: Some(generation) };
        let submitted = self.engine().submit(event).map_err(CycleError::from);
        let outcome = submitted.and_then(|ticket| Ok(ticket.wait()?)).map_err(GangError::from)?;
        let why = match outcome {
            Ok(_) => return Ok(None),
            Err(EventError::Together(why)) => *why,
            Err(why) => why,
        };
        if let EventError::Conflict { .. } = why {
            return Ok(Some(why));
        }
        let error = CycleError::Assume(why);
        let is_it = |member: &&Member| match &error {
            CycleError::Assume(EventError::AlreadyInCache { uid }) => member.pod.uid == *uid,
            _ => false,
        };
        let Some(known) = members.iter().find(is_it) else {
            return Err(Refused { why: GangError::Together(error), members: Vec::new() });
        };
        let why = GangError::member(known.position, &known.pod, error.clone());
        Err(Refused { why, members: vec![(known.position, error)] })
    }

    /// Reserves what each member needs. Members that are refused are undone and returned apart, if at least `least`
    /// are left; otherwise all are undone.
    fn reserve_all(
        &mut self,
        members: Vec<Member>,
        least: usize,
        now: Timestamp,
    ) -> Result<(Vec<Placement>, LeftOver), Refused> {
        let snapshot = self.reader.refresh().clone();
        let mut placed: Vec<Placement> = Vec::with_capacity(members.len());
        let mut refused = LeftOver::new();
        let mut why = None;
        let mut left = members.len();
        for member in members {
            let Member { position, pod, decision, state } = member;
            let Some(framework) = self.framework(&pod).cloned() else { continue };
            framework.handle().nominator().remove(&pod.uid);
            let mut placement = Placement { pod, decision, state, waits: false, framework };
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
                    let error = CycleError::rejected(status);
                    why.get_or_insert_with(|| GangError::member(position, pod, error.clone()));
                    refused.push((position, error));
                    left -= 1;
                    match left < least {
                        true => placed.push(placement),
                        false => self.undo(&snapshot, &placement, now),
                    }
                }
            }
        }
        match why {
            Some(why) if left < least => {
                placed.iter().rev().for_each(|placement| self.undo(&snapshot, placement, now));
                return Err(Refused { why, members: refused });
            }
            _ => {}
        }
        for Placement { pod, state, framework, .. } in placed.iter().filter(|it| it.waits) {
            tell_waits(framework, Cycle::new(self.reader.refresh(), pod, state));
        }
        Ok((placed, refused))
    }

    /// Undoes a member's reservation and forgets the pod.
    fn undo(&self, snapshot: &Cluster, placement: &Placement, now: Timestamp) {
        let Placement { pod, decision, state, framework, .. } = placement;
        // A sibling's permit may have let it go already. It is decided either way, so
        // that this does not wait.
        framework.handle().waiting_pods().reject(&pod.uid);
        let _ = framework.wait_on_permit(pod, || now);
        framework.unreserve(Cycle::new(snapshot, pod, state), &decision.node);
        // One that is gone or confirmed meanwhile is not to be forgotten, and none of
        // the others may stay for that.
        let _ = self.engine().submit(Event::forget(pod)).map(|ticket| ticket.wait());
    }
}

/// All members are to be one scheduler's.
fn one_scheduler(pods: &[Arc<Pod>]) -> Result<(), GangError> {
    let name = |pod: &Arc<Pod>| pod.template.scheduler_name.clone().unwrap_or_default();
    let Some(first) = pods.first().map(name) else { return Ok(()) };
    match pods.iter().map(name).find(|other| *other != first) {
        Some(other) => Err(GangError::SeveralSchedulers(first.to_string(), other.to_string())),
        None => Ok(()),
    }
}

fn decide(
    profiles: &mut Profiles<Algorithm>,
    cluster: &Cluster,
    pod: &Arc<Pod>,
) -> Result<(Decision, CycleState), CycleError> {
    let Some(scheduler) = profiles.get_mut(pod) else {
        let name = pod.template.scheduler_name.as_deref().unwrap_or_default();
        return Err(CycleError::NoProfile(name.to_owned()));
    };
    let state = scheduler.state();
    let decision = scheduler.decide_as_it_is(Cycle::new(cluster, pod, &state))?;
    Ok((decision, state))
}
