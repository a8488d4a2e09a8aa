//! Pods that are placed together or not at all.
//!
//! A gang is decided on a fork: each pod with those before it in place, so that its
//! members see each other. If enough of them find a node, all that did are assumed
//! by one event, which the writer accepts whole or refuses whole; nobody ever sees
//! half of a gang. What another scheduler did meanwhile makes the writer refuse,
//! and the gang is decided on anew.

use std::sync::Arc;

use crate::framework::{Cycle, CycleState, Decision, Permit, Scheduler};
use crate::log::Event;
use crate::model::{EventError, Generation, Pod, Timestamp};

use super::cycle::MOST_CONFLICTS;
use super::{CycleError, Placement, PodScheduler, Profiles};

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
        /// How many did.
        found: usize,
        /// How many have to.
        wanted: usize,
        /// Why the first one that did not.
        first: Option<Box<CycleError>>,
    },
    /// There are fewer members than have to be placed.
    #[error("waiting for minCount pods from a gang to appear in scheduling queue: {0} of {1}")]
    Incomplete(usize, usize),
    /// A member could not be decided on, or its plugins did not permit it.
    #[error(transparent)]
    Member(CycleError),
}

fn because(first: &Option<Box<CycleError>>) -> String {
    first.as_ref().map(|first| format!(": {first}")).unwrap_or_default()
}

impl<E: Into<CycleError>> From<E> for GangError {
    fn from(error: E) -> GangError {
        GangError::Member(error.into())
    }
}

/// A member with a node.
struct Member {
    position: usize,
    pod: Arc<Pod>,
    decision: Decision,
    state: CycleState,
}

impl PodScheduler {
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
        if pods.len() < least {
            return Err(GangError::Incomplete(pods.len(), least));
        }
        let mut order: Vec<usize> = (0..pods.len()).collect();
        order.sort_by_key(|at| std::cmp::Reverse(pods[*at].template.priority));
        let mut conflicts = 0;
        loop {
            let snapshot = self.reader.refresh().clone();
            let generation = snapshot.generation();
            let mut fork = snapshot.fork();
            let (mut members, mut left_over) = (Vec::new(), Vec::new());
            for position in &order {
                match decide(&mut self.profiles, &fork, &pods[*position]) {
                    Ok((decision, state)) => {
                        let pod = Pod::clone(&pods[*position]).on(decision.node.clone());
                        fork.add_pod(&pod).map_err(CycleError::Assume)?;
                        let pod = Arc::new(pod);
                        members.push(Member { position: *position, pod, decision, state });
                    }
                    Err(error) if error.fit().is_some() => left_over.push((*position, error)),
                    Err(error) => return Err(GangError::Member(error)),
                }
            }
            if members.len() < least {
                let found = members.len();
                let first = left_over.into_iter().min_by_key(|(position, _)| *position);
                let first = first.map(|(_, error)| Box::new(error));
                return Err(GangError::TooFew { found, wanted: least, first });
            }
            if let Some(conflict) = self.assume_all(&members, generation)? {
                if conflicts == MOST_CONFLICTS {
                    return Err(CycleError::Assume(conflict).into());
                }
                conflicts += 1;
                self.figures.conflicts += 1;
                continue;
            }
            members.sort_by_key(|member| member.position);
            left_over.sort_by_key(|(position, _)| *position);
            let placed = self.reserve_all(members, now)?;
            self.figures.placed += placed.len() as u64;
            return Ok(GangPlacement { placed, left_over });
        }
    }

    /// Assumes all members; what came in between, if something did.
    fn assume_all(
        &mut self,
        members: &[Member],
        generation: Generation,
    ) -> Result<Option<EventError>, CycleError> {
        let pods: Arc<[Pod]> = members.iter().map(|member| Pod::clone(&member.pod)).collect();
        let event = Event::AssumeAll { pods, decided_on: Some(generation) };
        let why = match self.engine().submit(event)?.wait()? {
            Ok(_) => return Ok(None),
            Err(EventError::Together(why)) => *why,
            Err(why) => why,
        };
        match why {
            EventError::Conflict { .. } => Ok(Some(why)),
            why => Err(CycleError::Assume(why)),
        }
    }

    /// Sets aside what each member needs; undoes all where one is refused.
    fn reserve_all(
        &mut self,
        members: Vec<Member>,
        now: Timestamp,
    ) -> Result<Vec<Placement>, CycleError> {
        let snapshot = self.reader.refresh().clone();
        let mut placed: Vec<Placement> = Vec::with_capacity(members.len());
        let mut refused = None;
        for member in members {
            let Member { pod, decision, state, .. } = member;
            let Some(framework) = self.framework(&pod).cloned() else { continue };
            framework.handle().nominator().remove(&pod.uid);
            let mut placement = Placement { pod, decision, state, waits: false, framework };
            if refused.is_none() {
                let Placement { pod, decision, state, framework, .. } = &placement;
                let cycle = Cycle::new(&snapshot, pod, state);
                let permitted = framework
                    .reserve(cycle, &decision.node)
                    .and_then(|()| framework.permit(cycle, &decision.node, now));
                match permitted {
                    Ok(permit) => placement.waits = permit != Permit::Allow,
                    Err(status) => refused = Some(status),
                }
            }
            placed.push(placement);
        }
        let Some(status) = refused else { return Ok(placed) };
        for Placement { pod, decision, state, framework, .. } in placed.iter().rev() {
            if framework.handle().waiting_pods().reject(&pod.uid) {
                // It was rejected just now: this does not wait.
                let _ = framework.wait_on_permit(pod, || now);
            }
            framework.unreserve(Cycle::new(&snapshot, pod, state), &decision.node);
            self.engine().forget_pod(pod)?.wait()?.map_err(CycleError::Assume)?;
        }
        Err(CycleError::rejected(status))
    }
}

fn decide(
    profiles: &mut Profiles<Scheduler>,
    cluster: &crate::snapshot::Cluster,
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
