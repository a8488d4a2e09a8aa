//! A node's two accounts: what pods of a class may take, and what they take.
//!
//! Guaranteed pods have the columns that every chunk has. Best-effort pods have
//! columns of the kind that scalar resources have, under numbers that no scalar
//! has: they exist where a chunk has such an amount that is not zero, move and go
//! with the lane as scalars do, and cost nothing where there is none.

use crate::model::{Bytes, MilliCpu, NonZero, PodClass, PodResources, Resources, Scalars};

use super::chunk::{Chunk, Column, LANES, ResourceId};
use super::cluster::Cluster;
use super::pod_index::MOST_SLOTS;

/// Set in the numbers of the best-effort account's columns.
const BEST_EFFORT: ResourceId = 1 << 31;

/// The best-effort account's columns of what every node has, as numbers from the
/// top: no scalar's number comes near them.
#[derive(Clone, Copy)]
enum Amount {
    Cpu,
    Memory,
    EphemeralStorage,
    /// Allocatable: places for pods. Requested: nothing, since all pods count.
    Pods,
    NonZeroCpu,
    NonZeroMemory,
}

impl Amount {
    const fn number(self) -> ResourceId {
        u32::MAX - self as u32
    }
}

const _: () = assert!(MOST_SLOTS < BEST_EFFORT && Amount::NonZeroMemory.number() > BEST_EFFORT);

/// Whether a column is one of the best-effort account.
pub(crate) fn is_best_effort(column: ResourceId) -> bool {
    column >= BEST_EFFORT
}

static NOTHING: Column<i64> = [0; LANES];

/// The columns of one class of pods in a chunk: a view, free to copy.
#[derive(Clone, Copy)]
pub struct Account<'a> {
    chunk: &'a Chunk,
    class: PodClass,
}

impl Chunk {
    /// What pods of this class may take of its nodes, and what they take.
    #[must_use]
    pub fn account(&self, class: PodClass) -> Account<'_> {
        Account { chunk: self, class }
    }
}

impl<'a> Account<'a> {
    /// Allocatable cpu, in milli-cores.
    #[must_use]
    pub fn allocatable_cpu(&self) -> &'a Column<i64> {
        self.allocatable(Chunk::allocatable_cpu, Amount::Cpu)
    }

    /// Allocatable memory, in bytes.
    #[must_use]
    pub fn allocatable_memory(&self) -> &'a Column<i64> {
        self.allocatable(Chunk::allocatable_memory, Amount::Memory)
    }

    /// Allocatable ephemeral storage, in bytes.
    #[must_use]
    pub fn allocatable_ephemeral_storage(&self) -> &'a Column<i64> {
        self.allocatable(Chunk::allocatable_ephemeral_storage, Amount::EphemeralStorage)
    }

    /// How many pods each node may run, of whatever class, if one of this class is
    /// to be among them.
    #[must_use]
    pub fn allowed_pods(&self) -> &'a Column<i64> {
        self.allocatable(Chunk::allowed_pods, Amount::Pods)
    }

    /// Requested cpu, in milli-cores.
    #[must_use]
    pub fn requested_cpu(&self) -> &'a Column<i64> {
        self.requested(Chunk::requested_cpu, Amount::Cpu)
    }

    /// Requested memory, in bytes.
    #[must_use]
    pub fn requested_memory(&self) -> &'a Column<i64> {
        self.requested(Chunk::requested_memory, Amount::Memory)
    }

    /// Requested ephemeral storage, in bytes.
    #[must_use]
    pub fn requested_ephemeral_storage(&self) -> &'a Column<i64> {
        self.requested(Chunk::requested_ephemeral_storage, Amount::EphemeralStorage)
    }

    /// Requested cpu with Kubernetes' default where a container asks for none.
    #[must_use]
    pub fn non_zero_cpu(&self) -> &'a Column<i64> {
        self.requested(Chunk::non_zero_cpu, Amount::NonZeroCpu)
    }

    /// Requested memory with Kubernetes' default where a container asks for none.
    #[must_use]
    pub fn non_zero_memory(&self) -> &'a Column<i64> {
        self.requested(Chunk::non_zero_memory, Amount::NonZeroMemory)
    }

    /// Allocatable amounts of the scalar resource with this number, see
    /// [`Cluster::resource_id`]; none where no node of the chunk has any.
    #[must_use]
    pub fn allocatable_scalar(&self, resource: u32) -> Option<&'a Column<i64>> {
        self.chunk.allocatable_scalar(self.scalar(resource))
    }

    /// Requested amounts of the scalar resource with this number; none where
    /// nothing is requested in the chunk.
    #[must_use]
    pub fn requested_scalar(&self, resource: u32) -> Option<&'a Column<i64>> {
        self.chunk.requested_scalar(self.scalar(resource))
    }

    /// The number of a scalar's column in this account.
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

    /// What pods of the class take on one node. Scalars that are zero are left out.
    pub(crate) fn requested_at(&self, cluster: &Cluster, at: usize) -> Resources {
        let columns = self.chunk.scalars.iter().flat_map(|columns| columns.iter());
        Resources {
            cpu: MilliCpu(self.requested_cpu()[at]),
            memory: Bytes(self.requested_memory()[at]),
            ephemeral_storage: Bytes(self.requested_ephemeral_storage()[at]),
            scalars: self.scalars(cluster, columns.map(|c| (c.resource, c.amount[at]))),
        }
    }

    /// What pods of the class may take of one node, as the columns say.
    pub(crate) fn allocatable_at(&self, cluster: &Cluster, at: usize) -> Resources {
        let columns = self.chunk.fixed.scalars.iter();
        Resources {
            cpu: MilliCpu(self.allocatable_cpu()[at]),
            memory: Bytes(self.allocatable_memory()[at]),
            ephemeral_storage: Bytes(self.allocatable_ephemeral_storage()[at]),
            scalars: self.scalars(cluster, columns.map(|c| (c.resource, c.amount[at]))),
        }
    }

    /// Of all scalar columns those of the account, by name.
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

    /// The same with defaults.
    pub(crate) fn non_zero_at(&self, at: usize) -> NonZero {
        NonZero {
            cpu: MilliCpu(self.non_zero_cpu()[at]),
            memory: Bytes(self.non_zero_memory()[at]),
        }
    }

    /// Whether all sums of one node stay within 64 bits if of the class one pod
    /// leaves and another comes.
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
    /// Adds what a best-effort pod requests to a lane (`sign` 1), or takes it away
    /// (-1); scalars by number. Sums were checked before the pod was placed.
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

    /// Writes what best-effort pods may take of a lane: all of it; scalars by
    /// number.
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
