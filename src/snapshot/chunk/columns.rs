//! The columns of a chunk: what each lane has, and the rules by which chunks share or omit columns.
//!
//! A large cluster's columns do not fit into the caches of a core, and loading them takes longer than reading them. So
//! chunks whose nodes have the same allocatable amounts share one copy of these, and the columns that are usually zero
//! or equal to others exist only in the chunks where they differ.

use triomphe::Arc;

use crate::model::{Generation, HOSTNAME, Node};

use super::super::account::EPHEMERAL_STORAGE;
use super::super::cost;
use super::{Chunk, Column, LANES, ResourceId, SetId, Single};

/// The allocatable amounts of the resources that every node has. Lanes without a node have any amounts, such as those of
/// the chunk's first node or of a former one, so that chunks of equal nodes can share them.
#[derive(Clone)]
pub(super) struct Allocatable {
    pub(super) cpu: Column<i64>,
    pub(super) memory: Column<i64>,
    /// Reciprocals of cpu and memory, for the scores; the reciprocal of 0 is stored as 0.
    pub(super) reciprocal_cpu: Column<f64>,
    pub(super) reciprocal_memory: Column<f64>,
    pub(super) ephemeral_storage: Column<i64>,
    pub(super) allowed_pods: Column<i64>,
}

/// Amounts of one lane: cpu, memory, ephemeral storage and pods.
type AllocatableAt = [i64; 4];

/// The columns that pods change. [`Single::make_mut`] copies them, and counts the copies.
#[derive(Clone, Copy)]
pub(crate) struct Requested {
    pub(super) cpu: Column<i64>,
    pub(super) memory: Column<i64>,
    pub(crate) pods: Column<u32>,
    pub(crate) generation: Column<Generation>,
    /// See [`Chunk::balance`].
    pub(super) balance: Column<u8>,
}

/// Amounts requested in one lane: cpu, memory, ephemeral storage, and cpu and memory with Kubernetes' defaults for
/// containers that request none.
type RequestedAt = [i64; 5];

/// Requested cpu and memory with Kubernetes' defaults for containers that request none.
#[derive(Clone, Copy)]
pub(super) struct NonZeroRequested {
    pub(super) cpu: Column<i64>,
    pub(super) memory: Column<i64>,
}

/// The column of an amount that is zero in all lanes.
pub(in crate::snapshot) static NOTHING: Column<i64> = [0; LANES];

/// The amounts of one scalar resource.
#[derive(Clone)]
pub(crate) struct ScalarColumn {
    pub(crate) resource: ResourceId,
    pub(crate) amount: Column<i64>,
}

impl Allocatable {
    /// Returns columns in which all lanes have these amounts.
    pub(super) fn of_all(amounts: AllocatableAt) -> Allocatable {
        let [cpu, memory, ephemeral_storage, allowed_pods] = amounts;
        Allocatable {
            cpu: [cpu; LANES],
            memory: [memory; LANES],
            reciprocal_cpu: [reciprocal(cpu); LANES],
            reciprocal_memory: [reciprocal(memory); LANES],
            ephemeral_storage: [ephemeral_storage; LANES],
            allowed_pods: [allowed_pods; LANES],
        }
    }

    fn at(&self, at: usize) -> AllocatableAt {
        [self.cpu[at], self.memory[at], self.ephemeral_storage[at], self.allowed_pods[at]]
    }

    fn set(&mut self, at: usize, amounts: AllocatableAt) {
        [self.cpu[at], self.memory[at], self.ephemeral_storage[at], self.allowed_pods[at]] =
            amounts;
        self.reciprocal_cpu[at] = reciprocal(self.cpu[at]);
        self.reciprocal_memory[at] = reciprocal(self.memory[at]);
    }
}

fn reciprocal(whole: i64) -> f64 {
    if whole == 0 { 0.0 } else { 1.0 / whole as f64 }
}

/// Returns the allocatable amounts of a node, or zeros.
fn allocatable_of(node: Option<&Node>) -> AllocatableAt {
    node.map_or([0; 4], |Node { allocatable, allowed_pods, .. }| {
        [allocatable.cpu.0, allocatable.memory.0, allocatable.ephemeral_storage.0, *allowed_pods]
    })
}

impl Chunk {
    /// Writes a node's own properties into its columns. If there is no node any more, its allocatable amounts stay: the
    /// chunk may share them.
    pub(crate) fn set_node(
        &mut self,
        at: usize,
        node: Option<&Node>,
        taints: SetId,
        labels: SetId,
    ) {
        if node.is_some() {
            self.set_allocatable(at, allocatable_of(node));
        }
        let fixed = self.fixed_mut();
        fixed.taints[at] = taints;
        fixed.labels[at] = labels;
        set(&mut fixed.unschedulable, at, node.is_some_and(|node| node.unschedulable));
        set(&mut fixed.tainted, at, node.is_some_and(|node| !node.taints.is_empty()));
        let is_host = |node: &Node| node.labels.get(HOSTNAME) == Some(&*node.name);
        set(&mut fixed.hosts, at, node.is_some_and(is_host));
    }

    fn set_allocatable(&mut self, at: usize, amounts: AllocatableAt) {
        if self.fixed.allocatable.at(at) != amounts {
            let is_only = self.live & !(1 << at) == 0;
            let shared = &mut self.fixed_mut().allocatable;
            if is_only {
                *shared = Arc::new(Allocatable::of_all(amounts));
            } else {
                if !shared.is_unique() {
                    cost::copied::<Allocatable>(0);
                }
                Arc::make_mut(shared).set(at, amounts);
            }
            self.rebalance(at);
        }
    }

    fn requested_at(&self, at: usize) -> RequestedAt {
        let Requested { cpu, memory, .. } = &*self.requested;
        let storage = self.requested_ephemeral_storage();
        let (non_zero_cpu, non_zero_memory) = (self.non_zero_cpu(), self.non_zero_memory());
        [cpu[at], memory[at], storage[at], non_zero_cpu[at], non_zero_memory[at]]
    }

    /// Adds amounts to those of a lane (`sign` 1), or subtracts them (`sign` -1). The sums must fit in 64 bits.
    pub(crate) fn add_requested(&mut self, at: usize, amounts: RequestedAt, sign: i64) {
        let mut sums = self.requested_at(at);
        for (sum, amount) in sums.iter_mut().zip(amounts) {
            *sum = sum.wrapping_add(amount.wrapping_mul(sign));
        }
        self.set_requested(at, sums);
    }

    fn set_requested(&mut self, at: usize, amounts: RequestedAt) {
        let [cpu, memory, storage, non_zero_cpu, non_zero_memory] = amounts;
        let [had_cpu, had_memory, _, had_non_zero_cpu, had_non_zero_memory] = self.requested_at(at);
        let differed = (had_cpu, had_memory) != (had_non_zero_cpu, had_non_zero_memory);
        if self.non_zero.is_none() && (cpu, memory) != (non_zero_cpu, non_zero_memory) {
            let Requested { cpu, memory, .. } = *self.requested;
            cost::copied::<NonZeroRequested>(0);
            self.non_zero = Some(Single::new(NonZeroRequested { cpu, memory }));
        }
        let requested = self.requested.make_mut();
        (requested.cpu[at], requested.memory[at]) = (cpu, memory);
        if let Some(non_zero) = &mut self.non_zero {
            let own = non_zero.make_mut();
            (own.cpu[at], own.memory[at]) = (non_zero_cpu, non_zero_memory);
            if differed && own.cpu == requested.cpu && own.memory == requested.memory {
                self.non_zero = None;
            }
        }
        if self.requested_ephemeral_storage()[at] != storage {
            self.set_requested_scalar(at, EPHEMERAL_STORAGE, storage);
        }
        self.rebalance(at);
    }

    /// Returns the columns of requested amounts that the chunk stores.
    pub(crate) fn amounts(&self) -> impl Iterator<Item = &Column<i64>> {
        let Requested { cpu, memory, .. } = &*self.requested;
        let non_zero = self.non_zero.iter().flat_map(|own| [&own.cpu, &own.memory]);
        let scalars = self.scalars.iter().flat_map(|columns| columns.iter());
        [cpu, memory].into_iter().chain(non_zero).chain(scalars.map(|scalar| &scalar.amount))
    }

    pub(crate) fn set_allocatable_scalar(&mut self, at: usize, resource: ResourceId, amount: i64) {
        if column(&self.fixed.scalars, resource).map_or(0, |c| c[at]) != amount {
            set_scalar(&mut self.fixed_mut().scalars, at, resource, amount);
        }
    }

    pub(crate) fn set_requested_scalar(&mut self, at: usize, resource: ResourceId, amount: i64) {
        let columns = self.scalars.get_or_insert_with(|| Arc::new(Vec::new()));
        if !columns.is_unique() {
            cost::copied_bytes(size_of_val(&***columns), 0);
        }
        let columns = Arc::make_mut(columns);
        set_scalar(columns, at, resource, amount);
        if columns.is_empty() {
            self.scalars = None;
        }
    }

    /// Copies all columns of a lane, to move them to another.
    pub(crate) fn columns(&self, at: usize) -> Columns {
        let scalars = |columns: &[ScalarColumn]| {
            columns
                .iter()
                .filter(|c| c.amount[at] != 0)
                .map(|c| (c.resource, c.amount[at]))
                .collect()
        };
        let (fixed, requested) = (&self.fixed, &self.requested);
        Columns {
            allocatable: fixed.allocatable.at(at),
            sets: [fixed.taints[at], fixed.labels[at]],
            requested: self.requested_at(at),
            pods: requested.pods[at],
            generation: requested.generation[at],
            flags: [
                fixed.unschedulable,
                fixed.tainted,
                fixed.hosts,
                self.affinity,
                self.required_anti_affinity,
                self.ports,
                self.claims,
            ]
            .map(|mask| mask >> at & 1 == 1),
            allocatable_scalars: scalars(&fixed.scalars),
            requested_scalars: self.scalars.as_deref().map_or_else(Vec::new, |c| scalars(c)),
        }
    }

    /// Zeroes the columns of a lane, except the allocatable amounts, which other chunks may share.
    pub(super) fn clear_columns(&mut self, at: usize) {
        let allocatable = self.fixed.allocatable.at(at);
        self.set_columns(at, &Columns { allocatable, ..Columns::default() });
    }

    /// Overwrites all columns of a lane.
    pub(crate) fn set_columns(&mut self, at: usize, from: &Columns) {
        for column in self.columns(at).allocatable_scalars {
            self.set_allocatable_scalar(at, column.0, 0);
        }
        for column in self.columns(at).requested_scalars {
            self.set_requested_scalar(at, column.0, 0);
        }
        self.set_allocatable(at, from.allocatable);
        let fixed = self.fixed_mut();
        [fixed.taints[at], fixed.labels[at]] = from.sets;
        set(&mut fixed.unschedulable, at, from.flags[0]);
        set(&mut fixed.tainted, at, from.flags[1]);
        set(&mut fixed.hosts, at, from.flags[2]);
        self.set_requested(at, from.requested);
        let requested = self.requested_mut();
        requested.pods[at] = from.pods;
        requested.generation[at] = from.generation;
        set(&mut self.affinity, at, from.flags[3]);
        set(&mut self.required_anti_affinity, at, from.flags[4]);
        set(&mut self.ports, at, from.flags[5]);
        set(&mut self.claims, at, from.flags[6]);
        for (resource, amount) in &from.allocatable_scalars {
            self.set_allocatable_scalar(at, *resource, *amount);
        }
        for (resource, amount) in &from.requested_scalars {
            self.set_requested_scalar(at, *resource, *amount);
        }
    }
}

/// The values of one lane in all columns of a chunk.
#[derive(Default)]
pub(crate) struct Columns {
    allocatable: AllocatableAt,
    sets: [SetId; 2],
    requested: RequestedAt,
    pods: u32,
    generation: Generation,
    flags: [bool; 7],
    allocatable_scalars: Vec<(ResourceId, i64)>,
    requested_scalars: Vec<(ResourceId, i64)>,
}

impl Columns {
    /// Returns the columns with the allocatable amounts of this node.
    pub(crate) fn with_allocatable(self, node: Option<&Node>) -> Columns {
        Columns { allocatable: allocatable_of(node), ..self }
    }
}

pub(crate) fn set(mask: &mut u64, at: usize, on: bool) {
    *mask = *mask & !(1 << at) | u64::from(on) << at;
}

pub(super) fn column(columns: &[ScalarColumn], resource: ResourceId) -> Option<&Column<i64>> {
    columns.iter().find(|c| c.resource == resource).map(|c| &c.amount)
}

/// Sets one amount. A column that becomes all zero is removed, so that a reused resource number never finds an old
/// column.
fn set_scalar(columns: &mut Vec<ScalarColumn>, at: usize, resource: ResourceId, amount: i64) {
    match columns.iter().position(|c| c.resource == resource) {
        Some(i) => {
            columns[i].amount[at] = amount;
            if amount == 0 && columns[i].amount.iter().all(|a| *a == 0) {
                columns.swap_remove(i);
            }
        }
        None if amount != 0 => {
            let mut column = ScalarColumn { resource, amount: [0; LANES] };
            column.amount[at] = amount;
            columns.push(column);
        }
        None => {}
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::cache::{Config, Engine, Writer};
    use crate::model::{node, pod};

    /// The addresses and values of the allocatable cpu of all chunks.
    fn shared_cpu(writer: &Writer) -> Vec<(usize, Column<i64>)> {
        let cpu = |(_, chunk): (u32, &Chunk)| {
            let cpu = *chunk.allocatable_cpu();
            (std::ptr::from_ref(chunk.allocatable_cpu()).addr(), cpu)
        };
        writer.cluster().chunks.iter().map(cpu).collect()
    }

    fn in_zone(n: usize, cpu: i64) -> Node {
        node(format!("n{n}")).zone(["a", "b", "c"][n % 3]).cpu(cpu).pods(110).build()
    }

    #[test]
    fn chunks_of_equal_nodes_share_their_allocatable_amounts() {
        let (mut writer, _) = Engine::inline(Config::default());
        for n in 0..4 * LANES {
            // The pods of some nodes arrive before them.
            if n % 5 == 0 {
                writer.add_pod(pod(format!("p{n}")).cpu(1).on(format!("n{n}")).build()).unwrap();
            }
            writer.add_node(in_zone(n, 4_000)).unwrap();
        }
        // Each zone has two chunks. The chunk of the ghosts has no amounts.
        let all = shared_cpu(&writer);
        let has_nodes = |of: &&(usize, Column<i64>)| of.1[0] != 0;
        let first = *all.iter().find(has_nodes).unwrap();
        assert_eq!(all.iter().filter(has_nodes).collect::<Vec<_>>(), [&first; 6]);
        // Nodes that leave, with or without pods, and come back do not end the sharing, nor do nodes that move.
        for n in [12, 13, 15] {
            writer.remove_node(format!("n{n}")).unwrap();
            writer.add_node(in_zone(n, 4_000)).unwrap();
        }
        writer.update_node(Node { zone: in_zone(1, 1).zone, ..in_zone(30, 4_000) }).unwrap();
        let all = shared_cpu(&writer);
        assert!(all.iter().filter(has_nodes).all(|of| *of == first));
        // A node that differs ends it for its own chunk.
        cost::take();
        writer.update_node(in_zone(70, 8_000)).unwrap();
        assert!(cost::take().bytes >= size_of::<Allocatable>() as u64);
        let after = shared_cpu(&writer);
        let changed: Vec<_> = after.iter().filter(|of| !all.contains(of)).collect();
        let [(_, cpu)] = changed[..] else { panic!("one chunk") };
        assert_eq!(cpu.iter().filter(|cpu| **cpu == 8_000).count(), 1);
        assert_eq!(cpu.iter().filter(|cpu| **cpu == 4_000).count(), LANES - 1);
    }

    #[test]
    fn unusual_amounts_have_columns_only_while_a_pod_requests_them() {
        let usual = [7, 9, 0, 7, 9];
        let unusual = [[3, 1, 0, 100, 1], [1, 3, 0, 1, 200], [1, 1, 5, 1, 1]];
        for (first, second) in [(0, 1), (1, 0), (0, 2), (2, 1)] {
            let mut chunk = Chunk::new(0, 0, None);
            let stored = |chunk: &Chunk| chunk.amounts().count();
            chunk.add_requested(5, usual, 1);
            assert_eq!(stored(&chunk), 2);
            for pod in [first, second] {
                chunk.add_requested(pod, unusual[pod], 1);
            }
            let check = |chunk: &Chunk, of: [RequestedAt; 2]| {
                assert_eq!(chunk.requested_at(5), usual);
                assert_eq!([first, second].map(|pod| chunk.requested_at(pod)), of);
                assert_eq!([first, second].map(|pod| chunk.columns(pod).requested), of);
            };
            check(&chunk, [unusual[first], unusual[second]]);
            chunk.add_requested(first, unusual[first], -1);
            check(&chunk, [[0; 5], unusual[second]]);
            chunk.add_requested(second, unusual[second], -1);
            check(&chunk, [[0; 5]; 2]);
            assert_eq!(stored(&chunk), 2);
        }
    }
}
