//! The two accounts of a node: allocatable and requested resources by class of pods.
//!
//! Guaranteed pods use the columns that every chunk has, and one for ephemeral storage. Best-effort pods use columns of
//! the kind that scalar resources use, under numbers that no scalar has. Such a column exists only in chunks with a
//! non-zero amount, moves and disappears with its lane as a scalar's column does, and costs nothing if there is none.

use crate::model::{Bytes, MilliCpu, NonZero, PodClass, PodResources, Resources, Scalars};

use super::chunk::{Chunk, Column, NOTHING, ResourceId};
use super::cluster::Cluster;
use super::pod_index::MAX_SLOTS;

/// The bit set in the numbers of the best-effort account's columns.
const BEST_EFFORT: ResourceId = 1 << 31;

/// The number of the column of the ephemeral storage that guaranteed pods request. No scalar has it, nor has a column
/// of the best-effort account without its bit.
pub(super) const EPHEMERAL_STORAGE: ResourceId = BEST_EFFORT - 64;

/// The best-effort account's columns for the resources that every node has. They are numbered downwards from
/// `u32::MAX`, far above the number of any scalar.
#[derive(Clone, Copy)]
enum Amount {
    Cpu,
    Memory,
    EphemeralStorage,
    /// Allocatable: the allowed number of pods. Requested: unused, because pods are counted over all classes.
    Pods,
    NonZeroCpu,
    NonZeroMemory,
}

impl Amount {
    const fn number(self) -> ResourceId {
        u32::MAX - self as u32
    }
}

const _: () = assert!(MAX_SLOTS < EPHEMERAL_STORAGE);
const _: () = assert!(Amount::NonZeroMemory.number() > BEST_EFFORT | EPHEMERAL_STORAGE);

/// Returns whether a column belongs to the best-effort account.
pub(crate) fn is_best_effort(column: ResourceId) -> bool {
    column >= BEST_EFFORT
}

/// A view of the columns of one class of pods in a chunk. Copying it is cheap.
#[derive(Clone, Copy)]
pub(crate) struct Account<'a> {
    chunk: &'a Chunk,
    class: PodClass,
}

impl Chunk {
    /// Returns the allocatable and requested columns of one class of pods.
    #[must_use]
    pub(crate) fn account(&self, class: PodClass) -> Account<'_> {
        Account { chunk: self, class }
    }
}

impl<'a> Account<'a> {
    /// Returns the allocatable cpu, in milli-cores.
    #[must_use]
    pub(crate) fn allocatable_cpu(&self) -> &'a Column<i64> {
        self.allocatable(Chunk::allocatable_cpu, Amount::Cpu)
    }

    /// Returns the allocatable memory, in bytes.
    #[must_use]
    pub(crate) fn allocatable_memory(&self) -> &'a Column<i64> {
        self.allocatable(Chunk::allocatable_memory, Amount::Memory)
    }

    /// Returns the allocatable ephemeral storage, in bytes.
    #[must_use]
    pub(crate) fn allocatable_ephemeral_storage(&self) -> &'a Column<i64> {
        self.allocatable(Chunk::allocatable_ephemeral_storage, Amount::EphemeralStorage)
    }

    /// Returns how many pods of all classes each node may run if it is to run one of this class.
    #[must_use]
    pub(crate) fn allowed_pods(&self) -> &'a Column<i64> {
        self.allocatable(Chunk::allowed_pods, Amount::Pods)
    }

    /// Returns the requested cpu, in milli-cores.
    #[must_use]
    pub(crate) fn requested_cpu(&self) -> &'a Column<i64> {
        self.requested(Chunk::requested_cpu, Amount::Cpu)
    }

    /// Returns the requested memory, in bytes.
    #[must_use]
    pub(crate) fn requested_memory(&self) -> &'a Column<i64> {
        self.requested(Chunk::requested_memory, Amount::Memory)
    }

    /// Returns the requested ephemeral storage, in bytes.
    #[must_use]
    pub(crate) fn requested_ephemeral_storage(&self) -> &'a Column<i64> {
        self.requested(Chunk::requested_ephemeral_storage, Amount::EphemeralStorage)
    }

    /// Returns the requested cpu in milli-cores, with Kubernetes' default for containers that request none.
    #[must_use]
    pub(crate) fn non_zero_cpu(&self) -> &'a Column<i64> {
        self.requested(Chunk::non_zero_cpu, Amount::NonZeroCpu)
    }

    /// Returns the requested memory in bytes, with Kubernetes' default for containers that request none.
    #[must_use]
    pub(crate) fn non_zero_memory(&self) -> &'a Column<i64> {
        self.requested(Chunk::non_zero_memory, Amount::NonZeroMemory)
    }

    /// Returns the allocatable amounts of the scalar resource with this number, see [`Cluster::resource_id`], or `None`
    /// if no node of the chunk has any.
    #[must_use]
    pub(crate) fn allocatable_scalar(&self, resource: u32) -> Option<&'a Column<i64>> {
        self.chunk.allocatable_scalar(self.scalar(resource))
    }

    /// Returns the requested amounts of the scalar resource with this number, or `None` if no pod of the chunk requests
    /// any.
    #[must_use]
    pub(crate) fn requested_scalar(&self, resource: u32) -> Option<&'a Column<i64>> {
        self.chunk.requested_scalar(self.scalar(resource))
    }

    /// Returns the number of a scalar's column in this account.
    fn scalar(&self, resource: ResourceId) -> ResourceId {
        match self.class {
            PodClass::Guaranteed => resource,
            PodClass::BestEffort => resource | BEST_EFFORT,
        }
    }

    fn allocatable(&self, own: fn(&Chunk) -> &Column<i64>, which: Amount) -> &'a Column<i64> {
        match self.class {
            PodClass::Guaranteed => own(self.chunk),
            PodClass::BestEffort => {
                self.chunk.allocatable_scalar(which.number()).unwrap_or(&NOTHING)
            }
        }
    }

    fn requested(&self, own: fn(&Chunk) -> &Column<i64>, which: Amount) -> &'a Column<i64> {
        match self.class {
            PodClass::Guaranteed => own(self.chunk),
            PodClass::BestEffort => self.chunk.requested_scalar(which.number()).unwrap_or(&NOTHING),
        }
    }

    /// Returns the requests of the class's pods on one node. Scalars that are zero are omitted.
    pub(crate) fn requested_at(&self, cluster: &Cluster, at: usize) -> Resources {
        let columns = self.chunk.scalars.iter().flat_map(|columns| columns.iter());
        Resources {
            cpu: MilliCpu(self.requested_cpu()[at]),
            memory: Bytes(self.requested_memory()[at]),
            ephemeral_storage: Bytes(self.requested_ephemeral_storage()[at]),
            scalars: self.scalars(cluster, columns.map(|c| (c.resource, c.amount[at]))),
        }
    }

    /// Returns the resources of one node that are allocatable to the class, read from the columns.
    pub(crate) fn allocatable_at(&self, cluster: &Cluster, at: usize) -> Resources {
        let columns = self.chunk.fixed.scalars.iter();
        Resources {
            cpu: MilliCpu(self.allocatable_cpu()[at]),
            memory: Bytes(self.allocatable_memory()[at]),
            ephemeral_storage: Bytes(self.allocatable_ephemeral_storage()[at]),
            scalars: self.scalars(cluster, columns.map(|c| (c.resource, c.amount[at]))),
        }
    }

    /// Selects the account's columns from all scalar columns, by name.
    fn scalars(
        &self,
        cluster: &Cluster,
        columns: impl Iterator<Item = (ResourceId, i64)>,
    ) -> Scalars {
        let mine = columns.filter(|(column, amount)| {
            *amount != 0 && is_best_effort(*column) == (self.class == PodClass::BestEffort)
        });
        Scalars::new(mine.filter_map(|(column, amount)| {
            Some((cluster.resource_name(column & !BEST_EFFORT)?.clone(), amount))
        }))
    }

    /// Returns the requests with Kubernetes' defaults for containers that request nothing.
    pub(crate) fn non_zero_at(&self, at: usize) -> NonZero {
        NonZero {
            cpu: MilliCpu(self.non_zero_cpu()[at]),
            memory: Bytes(self.non_zero_memory()[at]),
        }
    }

    /// Returns whether all sums of one node stay within 64 bits if one pod of the class is replaced by another.
    pub(crate) fn has_room_in_64_bits(
        &self,
        cluster: &Cluster,
        at: usize,
        old: &PodResources,
        coming: &PodResources,
    ) -> bool {
        let fits = |has: i64, old: i64, new: i64| {
            has.checked_sub(old).and_then(|rest| rest.checked_add(new)).is_some()
        };
        let (was, is) = (&old.placed, &coming.placed);
        let (was_non_zero, is_non_zero) = (&old.placed_non_zero, &coming.placed_non_zero);
        fits(self.requested_cpu()[at], was.cpu.0, is.cpu.0)
            && fits(self.requested_memory()[at], was.memory.0, is.memory.0)
            && fits(
                self.requested_ephemeral_storage()[at],
                was.ephemeral_storage.0,
                is.ephemeral_storage.0,
            )
            && fits(self.non_zero_cpu()[at], was_non_zero.cpu.0, is_non_zero.cpu.0)
            && fits(self.non_zero_memory()[at], was_non_zero.memory.0, is_non_zero.memory.0)
            && is.scalars.iter().all(|(name, amount)| {
                let id = cluster.resource_id(name);
                let has =
                    id.and_then(|id| self.requested_scalar(id)).map_or(0, |column| column[at]);
                fits(has, was.scalars.get(name).unwrap_or(0), amount)
            })
    }
}

impl Chunk {
    /// Adds a best-effort pod's requests to a lane (`sign` 1), or subtracts them (`sign` -1). `scalars` are given by
    /// number. The sums were checked for overflow before the pod was placed.
    pub(crate) fn add_best_effort(
        &mut self,
        at: usize,
        resources: &PodResources,
        scalars: &[(ResourceId, i64)],
        sign: i64,
    ) {
        let (placed, non_zero) = (&resources.placed, &resources.placed_non_zero);
        let fixed = [
            (Amount::Cpu, placed.cpu.0),
            (Amount::Memory, placed.memory.0),
            (Amount::EphemeralStorage, placed.ephemeral_storage.0),
            (Amount::NonZeroCpu, non_zero.cpu.0),
            (Amount::NonZeroMemory, non_zero.memory.0),
        ];
        let fixed = fixed.into_iter().map(|(which, amount)| (which.number(), amount));
        let scalars = scalars.iter().map(|(id, amount)| (id | BEST_EFFORT, *amount));
        for (column, amount) in fixed.chain(scalars).filter(|(_, amount)| *amount != 0) {
            let has = self.requested_scalar(column).map_or(0, |column| column[at]);
            let sum = has.wrapping_add(amount.wrapping_mul(sign));
            self.set_requested_scalar(at, column, sum);
        }
    }

    /// Overwrites all resources of a lane that are allocatable to best-effort pods. `scalars` are given by number.
    pub(crate) fn set_best_effort_allocatable(
        &mut self,
        at: usize,
        (resources, pods): (&Resources, i64),
        scalars: &[(ResourceId, i64)],
    ) {
        let old: Vec<ResourceId> = (self.fixed.scalars.iter())
            .filter(|c| is_best_effort(c.resource) && c.amount[at] != 0)
            .map(|c| c.resource)
            .collect();
        for column in old {
            self.set_allocatable_scalar(at, column, 0);
        }
        let fixed = [
            (Amount::Cpu, resources.cpu.0),
            (Amount::Memory, resources.memory.0),
            (Amount::EphemeralStorage, resources.ephemeral_storage.0),
            (Amount::Pods, pods),
        ];
        for (which, amount) in fixed {
            self.set_allocatable_scalar(at, which.number(), amount);
        }
        for (id, amount) in scalars {
            self.set_allocatable_scalar(at, id | BEST_EFFORT, *amount);
        }
    }
}
