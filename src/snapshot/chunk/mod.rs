//! A chunk: 64 nodes of one zone, in columns.
//!
//! The quantities that filters and scores read in their inner loops are stored in arrays of 64, one per quantity. The
//! columns that pods cannot change are a separate allocation, so placing a pod copies only the other half. Data that is
//! rarely read is stored below in groups of eight, so that copying any one level bumps at most about a dozen reference
//! counts.

mod columns;

use std::ops::Deref;

use triomphe::Arc;

use crate::freeing::{self, Counted, Part};
use crate::model::Generation;

use super::account::EPHEMERAL_STORAGE;
use super::cluster::Cluster;
use super::cost;
use super::lane::{EMPTY, Identity, Lane};
use super::node_info::NodeInfo;
use super::tally::{Tallied, Tally};
use super::victims::VictimIndex;
use columns::{Allocatable, NonZeroRequested, Requested, ScalarColumn, column};

pub(super) use columns::NOTHING;
pub(crate) use columns::{Columns, set};

/// Number of nodes in a chunk.
pub const LANES: usize = 64;

const GROUP: usize = 8;

/// One value per node of a chunk.
pub type Column<T> = [T; LANES];

/// The number of a node. It is stable from the node's first appearance under a name to its removal, and is reused only
/// after every version that could refer to the node has been freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeSlot(pub u32);

/// The location of a node: its chunk and lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) chunk: u32,
    /// A byte, because there is a place per node.
    lane: u8,
}

impl Place {
    pub(crate) fn new(chunk: u32, lane: usize) -> Place {
        Place { chunk, lane: lane as u8 }
    }

    pub(crate) fn lane(self) -> usize {
        usize::from(self.lane)
    }
}

/// The number, within the snapshot, of a set that nodes with equal taints or labels share.
pub(crate) type SetId = u32;
/// The number of a scalar resource in the snapshot.
pub(crate) type ResourceId = u32;
/// The number of a zone, assigned in the order in which zones were first seen.
pub(crate) type ZoneId = u32;

/// 64 nodes of one zone in order of arrival, with holes where nodes were removed.
///
/// A column's value is meaningful only in the lanes set in [`Chunk::live`]. The allocatable and requested columns of
/// this type are those of guaranteed pods, which without Gödel semantics is every pod. An internal view has the
/// columns of each class.
#[derive(Clone)]
pub struct Chunk {
    pub(crate) zone: ZoneId,
    /// The chunk's position among the chunks of its zone.
    pub(crate) sequence: u32,
    pub(crate) live: u64,
    pub(crate) fixed: Arc<Fixed>,
    pub(crate) requested: Single<Requested>,
    /// `None` if the amounts equal those in `requested`, because every container requests cpu and memory.
    non_zero: Option<Single<NonZeroRequested>>,
    /// The requested scalar resources that are non-zero in some lane, and likewise ephemeral storage.
    pub(crate) scalars: Option<Arc<Vec<ScalarColumn>>>,
    groups: [Option<Arc<Group<Lane>>>; LANES / GROUP],
    pub(crate) affinity: u64,
    pub(crate) required_anti_affinity: u64,
    pub(crate) ports: u64,
    pub(crate) claims: u64,
    tally: Tallied,
}

/// The columns that pods cannot change.
pub(crate) struct Fixed {
    pub(crate) slot: Column<NodeSlot>,
    allocatable: Arc<Allocatable>,
    pub(crate) taints: Column<SetId>,
    pub(crate) labels: Column<SetId>,
    pub(crate) unschedulable: u64,
    pub(crate) tainted: u64,
    hosts: u64,
    pub(crate) scalars: Vec<ScalarColumn>,
    identities: [Option<Arc<Group<Identity>>>; LANES / GROUP],
}

/// The values of eight neighbouring lanes.
struct Group<T: Part>([Option<Arc<T>>; GROUP], Counted<GROUP>);

impl Clone for Fixed {
    fn clone(&self) -> Fixed {
        cost::copied_bytes(size_of::<Fixed>() + size_of_val(&*self.scalars), LANES / GROUP);
        Fixed {
            allocatable: self.allocatable.clone(),
            scalars: self.scalars.clone(),
            identities: self.identities.clone(),
            ..*self
        }
    }
}

/// A shared value, stored as a slice of one element. `Arc::make_mut` copies the value to the stack first, whereas a
/// slice is copied straight to its new allocation. The first placement in a chunk after a publish makes such a copy.
/// The price is a wider pointer and a comparison per access.
#[derive(Clone)]
pub(crate) struct Single<T>(Arc<[T]>);

impl<T: Copy> Single<T> {
    fn new(value: T) -> Single<T> {
        Single(Arc::from(&[value][..]))
    }

    fn make_mut(&mut self) -> &mut T {
        if !self.0.is_unique() {
            cost::copied::<T>(0);
            self.0 = Arc::from(&*self.0);
        }
        let Some([value]) = Arc::get_mut(&mut self.0) else { unreachable!("a slice of one") };
        value
    }
}

impl<T> Deref for Single<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0[0]
    }
}

impl<T: Part> Clone for Group<T> {
    fn clone(&self) -> Group<T> {
        cost::copied::<Group<T>>(GROUP);
        // Plain reads fetch all counts at once; see `warm` in `tree.rs`.
        let counts = self.0.iter().flatten().fold(0, |sum, of| sum ^ Arc::strong_count(of));
        std::hint::black_box(counts);
        Group(self.0.clone(), self.1.clone())
    }
}

impl<T: Part> Drop for Group<T> {
    fn drop(&mut self) {
        freeing::drop_children(&mut self.0);
    }
}

/// Returns the value of lane `at`.
fn member<T: Part>(groups: &[Option<Arc<Group<T>>>; LANES / GROUP], at: usize) -> Option<&Arc<T>> {
    groups[at / GROUP].as_ref()?.0[at % GROUP].as_ref()
}

/// Sets or clears the value of lane `at`. A group without values is dropped.
fn set_member<T: Part>(
    groups: &mut [Option<Arc<Group<T>>>; LANES / GROUP],
    at: usize,
    to: Option<Arc<T>>,
) {
    let group = &mut groups[at / GROUP];
    if to.is_none() && group.is_none() {
        return;
    }
    let members =
        group.get_or_insert_with(|| Arc::new(Group([const { None }; GROUP], Counted::new())));
    let members = Arc::make_mut(members);
    members.0[at % GROUP] = to;
    if members.0.iter().all(Option::is_none) {
        *group = None;
    }
}

/// Returns how close the used shares of two resources are, in percent: 50 to 100. Each pair is (requested,
/// allocatable). Fewer than two resources are always in balance (noderesources/balanced_allocation.go
/// `balancedResourceScorer`).
pub(crate) fn balanced(cpu: (i64, i64), memory: (i64, i64)) -> i64 {
    let share =
        |(requested, allocatable): (i64, i64)| (requested as f64 / allocatable as f64).min(1.0);
    if cpu.1 == 0 || memory.1 == 0 {
        return 100;
    }
    let deviation = ((share(cpu) - share(memory)) / 2.0).abs();
    ((1.0 - deviation) * 100.0) as i64
}

/// Returns the lanes whose bits are set, lowest first.
pub(crate) fn lanes(mut mask: u64) -> impl Iterator<Item = usize> + Clone {
    std::iter::from_fn(move || {
        let lane = mask.trailing_zeros() as usize;
        (mask != 0).then(|| {
            mask &= mask - 1;
            lane
        })
    })
}

/// Returns the mask without its `n` lowest lanes.
pub(crate) fn without_lowest(mask: u64, n: usize) -> u64 {
    (0..n).fold(mask, |rest, _| rest & rest.wrapping_sub(1))
}

/// Returns the `n`-th lane of the mask, counted from 0.
pub(crate) fn nth_lane(mask: u64, n: u32) -> Option<usize> {
    let rest = without_lowest(mask, n as usize);
    (rest != 0).then(|| rest.trailing_zeros() as usize)
}

impl Chunk {
    /// Creates a chunk without nodes. It shares the allocatable amounts of another chunk as long as they are those of
    /// its own nodes.
    pub(crate) fn new(zone: ZoneId, sequence: u32, like: Option<&Chunk>) -> Chunk {
        let zeros = || Arc::new(Allocatable::of_all([0; 4]));
        Chunk {
            zone,
            sequence,
            live: 0,
            fixed: Arc::new(Fixed {
                slot: [NodeSlot(0); LANES],
                allocatable: like.map_or_else(zeros, |like| like.fixed.allocatable.clone()),
                taints: [0; LANES],
                labels: [0; LANES],
                unschedulable: 0,
                tainted: 0,
                hosts: 0,
                scalars: Vec::new(),
                identities: [const { None }; LANES / GROUP],
            }),
            requested: Single::new(Requested {
                cpu: [0; LANES],
                memory: [0; LANES],
                pods: [0; LANES],
                generation: [Generation::ZERO; LANES],
                balance: [100; LANES],
            }),
            non_zero: None,
            scalars: None,
            groups: [const { None }; LANES / GROUP],
            affinity: 0,
            required_anti_affinity: 0,
            ports: 0,
            claims: 0,
            tally: Tallied::default(),
        }
    }

    /// Returns a key by which chunks sort in the order of [`Cluster::chunk_ids`](super::Cluster::chunk_ids).
    pub(crate) fn chunk_order(&self) -> (ZoneId, u32) {
        (self.zone, self.sequence)
    }

    /// Returns the mask of the lanes that hold a node.
    #[must_use]
    pub fn live(&self) -> u64 {
        self.live
    }

    /// Returns the lanes whose node is cordoned.
    #[must_use]
    pub(crate) fn unschedulable(&self) -> u64 {
        self.fixed.unschedulable
    }

    /// Returns the lanes whose node has a taint.
    #[must_use]
    pub(crate) fn tainted(&self) -> u64 {
        self.fixed.tainted
    }

    /// Returns the lanes whose node's hostname label is the node's name.
    pub(crate) fn hosts(&self) -> u64 {
        self.fixed.hosts
    }

    /// Returns the lanes whose node has a pod with pod affinity or anti-affinity.
    #[must_use]
    pub(crate) fn with_affinity(&self) -> u64 {
        self.affinity
    }

    /// Returns the lanes whose node has a pod with required anti-affinity.
    #[must_use]
    pub(crate) fn with_required_anti_affinity(&self) -> u64 {
        self.required_anti_affinity
    }

    /// Returns the lanes whose node has a host port in use.
    #[must_use]
    pub(crate) fn with_ports(&self) -> u64 {
        self.ports
    }

    /// Returns the lanes whose node has a pod with a persistent volume claim.
    #[must_use]
    pub(crate) fn with_claims(&self) -> u64 {
        self.claims
    }

    /// Returns the slot of each node.
    #[must_use]
    pub(crate) fn slot(&self) -> &Column<NodeSlot> {
        &self.fixed.slot
    }

    /// Returns the allocatable cpu, in milli-cores.
    #[must_use]
    pub fn allocatable_cpu(&self) -> &Column<i64> {
        &self.fixed.allocatable.cpu
    }

    /// Returns the allocatable memory, in bytes.
    #[must_use]
    pub fn allocatable_memory(&self) -> &Column<i64> {
        &self.fixed.allocatable.memory
    }

    /// Returns the reciprocals of the allocatable cpu and memory; the reciprocal of 0 is 0.
    pub(crate) fn reciprocals(&self) -> (&Column<f64>, &Column<f64>) {
        (&self.fixed.allocatable.reciprocal_cpu, &self.fixed.allocatable.reciprocal_memory)
    }

    /// Returns how close the used shares of cpu and memory are, as NodeResourcesBalancedAllocation scores them: 50 to
    /// 100.
    pub(crate) fn balance(&self) -> &Column<u8> {
        &self.requested.balance
    }

    /// Recomputes the balance of a lane whose cpu or memory changed.
    pub(crate) fn rebalance(&mut self, at: usize) {
        let balance = balanced(
            (self.requested.cpu[at], self.allocatable_cpu()[at]),
            (self.requested.memory[at], self.allocatable_memory()[at]),
        );
        // The value is in 50..=100, unless a request is negative.
        let balance = balance.clamp(0, 100) as u8;
        if self.requested.balance[at] != balance {
            self.requested_mut().balance[at] = balance;
        }
    }

    /// Returns the allocatable ephemeral storage, in bytes.
    #[must_use]
    pub(crate) fn allocatable_ephemeral_storage(&self) -> &Column<i64> {
        &self.fixed.allocatable.ephemeral_storage
    }

    /// Returns how many pods each node may run.
    #[must_use]
    pub fn allowed_pods(&self) -> &Column<i64> {
        &self.fixed.allocatable.allowed_pods
    }

    /// Returns the number of each node's taint set, see [`Cluster::taint_set`]. Equal taints in equal order have the
    /// same number.
    #[must_use]
    pub(crate) fn taint_set(&self) -> &Column<u32> {
        &self.fixed.taints
    }

    /// Returns the number of each node's label set, see [`Cluster::label_set`].
    #[must_use]
    pub(crate) fn label_set(&self) -> &Column<u32> {
        &self.fixed.labels
    }

    /// Returns the requested cpu, in milli-cores.
    #[must_use]
    pub fn requested_cpu(&self) -> &Column<i64> {
        &self.requested.cpu
    }

    /// Returns the requested memory, in bytes.
    #[must_use]
    pub fn requested_memory(&self) -> &Column<i64> {
        &self.requested.memory
    }

    /// Returns the requested ephemeral storage, in bytes.
    #[must_use]
    pub(crate) fn requested_ephemeral_storage(&self) -> &Column<i64> {
        self.requested_scalar(EPHEMERAL_STORAGE).unwrap_or(&NOTHING)
    }

    /// Returns the requested cpu in milli-cores, with Kubernetes' default for containers that request none.
    #[must_use]
    pub(crate) fn non_zero_cpu(&self) -> &Column<i64> {
        self.non_zero.as_deref().map_or(&self.requested.cpu, |own| &own.cpu)
    }

    /// Returns the requested memory in bytes, with Kubernetes' default for containers that request none.
    #[must_use]
    pub(crate) fn non_zero_memory(&self) -> &Column<i64> {
        self.non_zero.as_deref().map_or(&self.requested.memory, |own| &own.memory)
    }

    /// Returns the number of pods on each node.
    #[must_use]
    pub fn pods(&self) -> &Column<u32> {
        &self.requested.pods
    }

    /// Returns the generation that last touched each node.
    #[must_use]
    pub(crate) fn generation(&self) -> &Column<Generation> {
        &self.requested.generation
    }

    /// Returns the allocatable amounts of the scalar resource with this number, see [`Cluster::resource_id`], or `None`
    /// if no node of the chunk has any.
    #[must_use]
    pub fn allocatable_scalar(&self, resource: u32) -> Option<&Column<i64>> {
        column(&self.fixed.scalars, resource)
    }

    /// Returns the requested amounts of the scalar resource with this number, or `None` if no pod of the chunk requests
    /// any.
    #[must_use]
    pub fn requested_scalar(&self, resource: u32) -> Option<&Column<i64>> {
        column(self.scalars.as_deref()?, resource)
    }

    /// Returns the identity of the lane's node.
    pub(crate) fn identity(&self, at: usize) -> Option<&Identity> {
        member(&self.fixed.identities, at).map(|identity| &**identity)
    }

    pub(crate) fn identity_ptr(&self, at: usize) -> Option<&Arc<Identity>> {
        member(&self.fixed.identities, at)
    }

    /// Returns the identity of the lane's node for writing. It is copied first if another version shares it.
    pub(crate) fn identity_mut(&mut self, at: usize) -> Option<&mut Identity> {
        let group = Arc::make_mut(self.fixed_mut().identities[at / GROUP].as_mut()?);
        group.0[at % GROUP].as_mut().map(Arc::make_mut)
    }

    pub(crate) fn lane(&self, at: usize) -> &Lane {
        member(&self.groups, at).map_or(&EMPTY, |lane| lane)
    }

    pub(crate) fn lane_ptr(&self, at: usize) -> Option<&Arc<Lane>> {
        member(&self.groups, at)
    }

    /// Returns the lane for writing. It is created if it does not exist, and copied first if another version shares it.
    pub(crate) fn lane_mut(&mut self, at: usize) -> &mut Lane {
        self.tally.forget(at);
        let group = self.groups[at / GROUP]
            .get_or_insert_with(|| Arc::new(Group([const { None }; GROUP], Counted::new())));
        let lane = Arc::make_mut(group).0[at % GROUP].get_or_insert_with(Arc::default);
        if !lane.is_unique() {
            cost::copied::<Lane>(0);
        }
        Arc::make_mut(lane)
    }

    /// Returns the chunk's pods counted by labels. `cluster` is the cluster that this chunk belongs to.
    pub(crate) fn tally(&self, cluster: &Cluster) -> &Tally {
        self.tally.get(cluster, self)
    }

    /// Discards the cached counts of a lane whose pods stay but whose template or label numbers were provisional.
    pub(crate) fn forget_counts(&mut self, at: usize) {
        self.tally.forget(at);
    }

    /// Returns the pods of one of the chunk's nodes, ordered by importance.
    pub(crate) fn victims(&self, node: NodeInfo<'_>) -> &VictimIndex {
        self.tally.victims(node)
    }

    /// Drops the lane of a node that lost its last pod.
    pub(crate) fn drop_lane(&mut self, at: usize) {
        self.set_lane(at, None);
    }

    fn set_lane(&mut self, at: usize, to: Option<Arc<Lane>>) {
        self.tally.forget(at);
        set_member(&mut self.groups, at, to);
    }

    pub(crate) fn requested_mut(&mut self) -> &mut Requested {
        self.requested.make_mut()
    }

    pub(crate) fn fixed_mut(&mut self) -> &mut Fixed {
        Arc::make_mut(&mut self.fixed)
    }

    /// Returns the lane after the last one in use, if there is one.
    pub(crate) fn next_lane(&self) -> Option<usize> {
        let used = LANES - self.live.leading_zeros() as usize;
        (used < LANES).then_some(used)
    }

    /// Puts a node without requests into lane `at`.
    pub(crate) fn put(
        &mut self,
        at: usize,
        slot: NodeSlot,
        identity: Arc<Identity>,
        lane: Option<Arc<Lane>>,
    ) {
        self.live |= 1 << at;
        let fixed = self.fixed_mut();
        fixed.slot[at] = slot;
        set_member(&mut fixed.identities, at, Some(identity));
        self.set_lane(at, lane);
    }

    /// Empties a lane.
    pub(crate) fn clear(&mut self, at: usize) {
        self.clear_columns(at);
        let fixed = self.fixed_mut();
        fixed.slot[at] = NodeSlot(0);
        set_member(&mut fixed.identities, at, None);
        self.set_lane(at, None);
        self.live &= !(1 << at);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_shared_value_is_copied_and_counted_once() {
        let mut value = Single::new([1_u64; LANES]);
        let held = value.clone();
        cost::take();
        value.make_mut()[0] = 2;
        assert_eq!(cost::take().bytes, size_of::<[u64; LANES]>() as u64);
        value.make_mut()[1] = 3;
        assert_eq!(cost::take().bytes, 0);
        assert_eq!((held[0], value[0], value[1]), (1, 2, 3));
    }
}
