//! Random events over a small set of names, so that names collide. Proptest and the fuzz targets share this generator.
//!
//! An [`Op`] encodes an event in small numbers, and [`Op::event`] converts it to an [`Event`]. Proptest generates
//! operations directly (feature `proptest`), so that it can shrink failures. [`machine`](crate::machine) decodes the
//! fuzzer's bytes to the same operations, in a format that must not change because the corpus is written in it. A field
//! that the format lacks is decoded as 0 or `None`, which means the default everywhere.

mod objects;
mod seeds;

use std::sync::Arc;

use portolan::cache::{Event, Fork, ObjectKey, Relist};
use portolan::model::{Generation, Node, Object, ObjectKind, Pod, Timestamp};
#[cfg(feature = "proptest")]
use proptest::prelude::*;

pub use objects::{GroupSeed, ObjectSeed, ReservationSeed};
pub use seeds::{
    GodelSeed, MovementSeed, NodeSeed, NominationSeed, PlaceSeed, PodSeed, Traits, uid,
};

use objects::{
    delete_named, delete_part, group_key, make_budget, make_custom, make_group, make_nm_node,
    make_owner, make_reservation, owner_kind, phase, reservation_key,
};
use seeds::{movement_name, node_name, scheduler_name};

/// An event, encoded in small numbers. Most numbers select a name; see the seeds.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "proptest", derive(proptest_derive::Arbitrary))]
#[allow(missing_docs, reason = "the variants are named like the events")]
pub enum Op {
    /// If the flag is set, the decision names the current version, so that the fit is not checked again.
    Assume(PodSeed, bool),
    AssumeAll(
        #[cfg_attr(feature = "proptest", proptest(strategy = "three_pods()"))] [PodSeed; 3],
        bool,
    ),
    AssumeEach(
        #[cfg_attr(feature = "proptest", proptest(strategy = "three_pods()"))] [PodSeed; 3],
        bool,
    ),
    /// The preemptor and the uids of its victims.
    Preempt(
        PodSeed,
        #[cfg_attr(
            feature = "proptest",
            proptest(strategy = "prop::collection::vec(any::<u8>(), 0..3)")
        )]
        Vec<u8>,
    ),
    /// The uids of the victim and the preemptor.
    MarkForDeletion(u8, u8),
    UnmarkForDeletion(u8, u8),
    AssignNode(#[cfg_attr(feature = "proptest", proptest(strategy = "0..16_u8"))] u8, u8),
    UnassignNode(#[cfg_attr(feature = "proptest", proptest(strategy = "0..16_u8"))] u8, u8),
    Finish(u8),
    /// The uid and the node, if one is named.
    Forget(u8, #[cfg_attr(feature = "proptest", proptest(strategy = "named_node()"))] Option<u8>),
    Add(PodSeed),
    /// The uid of the known pod, and the new pod, which usually has the same uid.
    #[cfg_attr(feature = "proptest", proptest(strategy = "update()"))]
    Update(u8, PodSeed),
    /// The pod, and whether it is finished and terminating.
    Put(
        PodSeed,
        #[cfg_attr(feature = "proptest", proptest(strategy = "prop::bool::weighted(0.2)"))] bool,
        #[cfg_attr(feature = "proptest", proptest(strategy = "prop::bool::weighted(0.2)"))] bool,
    ),
    Remove(u8, #[cfg_attr(feature = "proptest", proptest(strategy = "named_node()"))] Option<u8>),
    #[cfg_attr(feature = "proptest", proptest(strategy = "pending()"))]
    Pending(PodSeed),
    PutNode(NodeSeed),
    UpdateNode(NodeSeed),
    RemoveNode(u8),
    Expire,
    RelistPods(#[cfg_attr(feature = "proptest", proptest(strategy = "few(12)"))] Vec<PodSeed>),
    RelistNodes(#[cfg_attr(feature = "proptest", proptest(strategy = "few(90)"))] Vec<NodeSeed>),
    PutReservation(ReservationSeed),
    DeleteReservation(u8),
    RelistReservations(
        #[cfg_attr(feature = "proptest", proptest(strategy = "few(12)"))] Vec<ReservationSeed>,
    ),
    PutMovement(MovementSeed),
    DeleteMovement(u8),
    RelistMovements(
        #[cfg_attr(feature = "proptest", proptest(strategy = "few(4)"))] Vec<MovementSeed>,
    ),
    PutNmNode(ObjectSeed),
    DeleteNmNode(u8),
    RelistNmNodes(
        #[cfg_attr(feature = "proptest", proptest(strategy = "few(12)"))] Vec<ObjectSeed>,
    ),
    PutCustom(ObjectSeed),
    DeleteCustom(u8),
    RelistCustom(#[cfg_attr(feature = "proptest", proptest(strategy = "few(12)"))] Vec<ObjectSeed>),
    PutBudget(ObjectSeed),
    DeleteBudget(u8),
    RelistBudgets(
        #[cfg_attr(feature = "proptest", proptest(strategy = "few(12)"))] Vec<ObjectSeed>,
    ),
    PutGroup(GroupSeed),
    /// The group and its phase.
    SetGroupPhase(u8, u8),
    DeleteGroup(u8),
    RelistGroups(#[cfg_attr(feature = "proptest", proptest(strategy = "few(3)"))] Vec<GroupSeed>),
    PutOwner(ObjectSeed),
    DeleteOwner(u8),
    /// Owners of any kind, listed as DaemonSets. If one of them is of another kind, the relist removes nothing.
    RelistDaemonSets(
        #[cfg_attr(feature = "proptest", proptest(strategy = "few(12)"))] Vec<ObjectSeed>,
    ),
}

/// Generates fewer than `n` values.
#[cfg(feature = "proptest")]
fn few<T: Arbitrary>(n: usize) -> impl Strategy<Value = Vec<T>> {
    prop::collection::vec(any::<T>(), 0..n)
}

/// Boxed, because without optimization the frames of strategies for arrays would fill the stack of a test.
#[cfg(feature = "proptest")]
fn three_pods() -> BoxedStrategy<[PodSeed; 3]> {
    any::<[PodSeed; 3]>().boxed()
}

/// Generates either no node or one of the 16 nodes that pods are placed on.
#[cfg(feature = "proptest")]
fn named_node() -> impl Strategy<Value = Option<u8>> {
    prop::option::of(0..16_u8)
}

#[cfg(feature = "proptest")]
fn update() -> impl Strategy<Value = Op> {
    (any::<u8>(), any::<PodSeed>(), prop::bool::weighted(0.75)).prop_map(|(old, pod, is_same)| {
        let uid = if is_same { old } else { pod.uid };
        Op::Update(old, PodSeed { uid, ..pod })
    })
}

#[cfg(feature = "proptest")]
fn pending() -> impl Strategy<Value = Op> {
    (any::<PodSeed>(), prop::bool::weighted(0.75)).prop_map(|(pod, is_unplaced)| {
        let node = if is_unplaced { PodSeed::NO_NODE } else { pod.node };
        Op::Pending(PodSeed { node, ..pod })
    })
}

impl Op {
    /// Returns the event. An event that carries a time carries `7 * step` seconds after the epoch. An assume that names
    /// the version of its decision names `current`.
    pub fn event(&self, step: u64, current: Generation) -> Event {
        let now = Timestamp::from_secs(step as i64 * 7);
        let name = |node: &u8| node_name(*node);
        let decided_on = |is_current: bool| is_current.then_some(current);
        match self {
            Op::Assume(seed, is_current) => match decided_on(*is_current) {
                Some(version) => Event::assume(seed.shared()).decided_on(version),
                None => Event::assume(seed.shared()),
            },
            Op::AssumeAll(seeds, is_current) => Event::AssumeAll {
                pods: seeds.iter().map(PodSeed::pod).collect(),
                decided_on: decided_on(*is_current),
            },
            Op::AssumeEach(seeds, is_current) => {
                let event = Event::assume_each(seeds.each_ref().map(PodSeed::shared));
                decided_on(*is_current).map_or(event.clone(), |version| event.decided_on(version))
            }
            Op::Preempt(seed, victims) => Event::Preempt {
                pod: seed.shared(),
                victims: victims.iter().map(|n| uid(*n)).collect(),
                decided_on: None,
            },
            Op::MarkForDeletion(victim, preemptor) => {
                Event::MarkForDeletion { victim: uid(*victim), preemptor: uid(*preemptor), now }
            }
            Op::UnmarkForDeletion(victim, preemptor) => {
                Event::UnmarkForDeletion { victim: uid(*victim), preemptor: uid(*preemptor) }
            }
            Op::AssignNode(node, to) => {
                Event::AssignNode { node: name(node), scheduler: scheduler_name(*to) }
            }
            Op::UnassignNode(node, from) => {
                Event::UnassignNode { node: name(node), scheduler: scheduler_name(*from) }
            }
            Op::Finish(n) => Event::FinishBinding { uid: uid(*n), now },
            Op::Forget(n, node) => Event::ForgetPod { uid: uid(*n), node: node.as_ref().map(name) },
            Op::Add(seed) => Event::AddPod(seed.shared()),
            Op::Update(old, seed) => Event::UpdatePod { old: uid(*old), pod: seed.shared() },
            Op::Put(seed, finished, is_terminating) => {
                let deletion_time = is_terminating.then_some(now);
                Event::put_pod(Pod { finished: *finished, deletion_time, ..seed.pod() })
            }
            Op::Remove(n, node) => Event::RemovePod { uid: uid(*n), node: node.as_ref().map(name) },
            Op::Pending(seed) => Event::PutPending(seed.shared()),
            Op::PutNode(seed) => Event::AddNode(Arc::new(seed.node())),
            Op::UpdateNode(seed) => Event::UpdateNode(Arc::new(seed.node())),
            Op::RemoveNode(n) => Event::RemoveNode(node_name(*n)),
            Op::Expire => Event::Expire(now),
            Op::RelistPods(seeds) => {
                Event::Relist(Arc::new(Relist::Pods(seeds.iter().map(PodSeed::pod).collect())))
            }
            Op::RelistNodes(seeds) => {
                let nodes = seeds.iter().map(|seed| Arc::new(seed.node()));
                Event::Relist(Arc::new(Relist::Nodes(nodes.collect())))
            }
            Op::PutReservation(seed) => Event::PutObject(make_reservation(seed)),
            Op::DeleteReservation(n) => Event::DeleteObject(Arc::new(reservation_key(*n))),
            Op::RelistReservations(seeds) => {
                relist(ObjectKind::Reservation, seeds.iter().map(make_reservation))
            }
            Op::PutMovement(seed) => Event::PutObject(seed.movement()),
            Op::DeleteMovement(n) => Event::DeleteObject(Arc::new(ObjectKey {
                kind: ObjectKind::Movement,
                namespace: String::new(),
                name: movement_name(*n).to_string(),
            })),
            Op::RelistMovements(seeds) => {
                relist(ObjectKind::Movement, seeds.iter().map(MovementSeed::movement))
            }
            Op::PutNmNode(seed) => Event::PutObject(make_nm_node(seed)),
            Op::DeleteNmNode(n) => delete_part(ObjectKind::NmNode, *n),
            Op::RelistNmNodes(seeds) => relist(ObjectKind::NmNode, seeds.iter().map(make_nm_node)),
            Op::PutCustom(seed) => Event::PutObject(make_custom(seed)),
            Op::DeleteCustom(n) => delete_part(ObjectKind::CustomNodeResource, *n),
            Op::RelistCustom(seeds) => {
                relist(ObjectKind::CustomNodeResource, seeds.iter().map(make_custom))
            }
            Op::PutBudget(seed) => Event::PutObject(make_budget(seed)),
            Op::DeleteBudget(n) => delete_named(ObjectKind::PodDisruptionBudget, *n),
            Op::RelistBudgets(seeds) => {
                relist(ObjectKind::PodDisruptionBudget, seeds.iter().map(make_budget))
            }
            Op::PutGroup(seed) => Event::PutObject(make_group(seed)),
            Op::SetGroupPhase(n, to) => {
                let key = group_key(*n);
                Event::SetGroupPhase {
                    namespace: key.namespace.into(),
                    name: key.name.into(),
                    phase: phase(*to),
                }
            }
            Op::DeleteGroup(n) => Event::DeleteObject(Arc::new(group_key(*n))),
            Op::RelistGroups(seeds) => relist(ObjectKind::PodGroup, seeds.iter().map(make_group)),
            Op::PutOwner(seed) => Event::PutObject(make_owner(seed)),
            Op::DeleteOwner(n) => delete_named(owner_kind(*n), *n),
            Op::RelistDaemonSets(seeds) => {
                relist(ObjectKind::DaemonSet, seeds.iter().map(make_owner))
            }
        }
    }

    /// Returns the pods of the operation.
    pub fn pods_mut(&mut self) -> &mut [PodSeed] {
        match self {
            Op::Assume(seed, _)
            | Op::Preempt(seed, _)
            | Op::Add(seed)
            | Op::Update(_, seed)
            | Op::Put(seed, ..)
            | Op::Pending(seed) => std::slice::from_mut(seed),
            Op::AssumeAll(seeds, _) | Op::AssumeEach(seeds, _) => seeds,
            Op::RelistPods(seeds) => seeds,
            _ => &mut [],
        }
    }
}

fn relist(kind: ObjectKind, objects: impl Iterator<Item = Object>) -> Event {
    Event::Relist(Arc::new(Relist::Objects(kind, objects.collect())))
}

/// Applies an event to a fork. Events without a counterpart in forks are ignored, and so are refusals.
pub fn apply_to_fork(fork: &mut Fork, event: &Event) {
    let outcome = match event {
        Event::AddPod(pod) | Event::AssumePod { pod, .. } | Event::UpdatePod { pod, .. } => {
            fork.add_pod(pod)
        }
        Event::Preempt { pod, victims, .. } => fork.preempt(pod, victims),
        Event::RemovePod { uid, .. } | Event::ForgetPod { uid, .. } => fork.remove_pod(uid),
        Event::AddNode(node) | Event::UpdateNode(node) => fork.add_node(Node::clone(node)),
        Event::RemoveNode(name) => fork.remove_node(name),
        Event::PutObject(object) => fork.put_object(object.clone()),
        Event::DeleteObject(key) => fork.delete_object(key.kind, &key.namespace, &key.name),
        _ => Ok(()),
    };
    drop(outcome);
}
