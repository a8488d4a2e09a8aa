//! Resources as the scoring plugins see them: names, amounts and weights (noderesources/resource_allocation.go).

use crate::framework::{Score, ScoreKernel, Status, each_lane};
use crate::model::{Name, Resources};
use crate::snapshot::{Account, Chunk, Cluster, Column, NodeInfo};

/// A scored resource and its weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceWeight {
    /// The resource's name.
    pub name: Name,
    /// The resource's weight, 1 to 100.
    pub weight: i64,
}

impl ResourceWeight {
    /// Returns cpu and memory with weight 1 each, which are scored by default.
    #[must_use]
    pub fn cpu_and_memory() -> Vec<ResourceWeight> {
        ["cpu", "memory"].map(|name| ResourceWeight { name: name.into(), weight: 1 }).into()
    }
}

/// Returns whether these are cpu and memory with weight 1, for which kernels exist.
pub(super) fn is_default(resources: &[ResourceWeight]) -> bool {
    matches!(resources, [cpu, memory]
        if *cpu.name == *"cpu" && *memory.name == *"memory" && (cpu.weight, memory.weight) == (1, 1))
}

#[derive(Clone, Copy)]
enum Which {
    Cpu,
    Memory,
    EphemeralStorage,
    /// The resource's id in the version, or `None` if no node offers it.
    Scalar(Option<u32>),
    Pods,
}

/// One scored resource, for one pod.
#[derive(Clone, Copy)]
pub(super) struct Scored {
    which: Which,
    pub(super) pod: i64,
    pub(super) weight: i64,
}

/// Resolves these resources for a pod that requests `pod`.
pub(super) fn scored(
    cluster: &Cluster,
    resources: &[ResourceWeight],
    pod: &Resources,
) -> Vec<Scored> {
    let one = |resource: &ResourceWeight| {
        let (which, pod) = match &*resource.name {
            "cpu" => (Which::Cpu, pod.cpu.0),
            "memory" => (Which::Memory, pod.memory.0),
            "ephemeral-storage" => (Which::EphemeralStorage, pod.ephemeral_storage.0),
            // The number of pods on a node is not scored.
            "pods" => (Which::Pods, 0),
            name => (Which::Scalar(cluster.resource_id(name)), pod.scalars.get(name).unwrap_or(0)),
        };
        Scored { which, pod, weight: resource.weight }
    };
    resources.iter().map(one).collect()
}

impl Scored {
    /// Returns the allocatable and the requested amount in a lane, or `None` if the node offers nothing of the resource
    /// or if it is a scalar that the pod does not request. If `non_zero` is set, containers without a request count
    /// with the default request.
    pub(super) fn on(&self, account: Account<'_>, at: usize, non_zero: bool) -> Option<(i64, i64)> {
        let (allocatable, taken) = match self.which {
            Which::Cpu if non_zero => (account.allocatable_cpu()[at], account.non_zero_cpu()[at]),
            Which::Cpu => (account.allocatable_cpu()[at], account.requested_cpu()[at]),
            Which::Memory if non_zero => {
                (account.allocatable_memory()[at], account.non_zero_memory()[at])
            }
            Which::Memory => (account.allocatable_memory()[at], account.requested_memory()[at]),
            Which::EphemeralStorage => (
                account.allocatable_ephemeral_storage()[at],
                account.requested_ephemeral_storage()[at],
            ),
            Which::Scalar(id) if self.pod != 0 => {
                let at_lane = |column: Option<&[i64; 64]>| column.map_or(0, |column| column[at]);
                let id = id?;
                (at_lane(account.allocatable_scalar(id)), at_lane(account.requested_scalar(id)))
            }
            Which::Scalar(_) | Which::Pods => return None,
        };
        (allocatable != 0).then_some((allocatable, taken))
    }
}

/// A score that reads the columns of a chunk.
pub(super) trait LaneScore: Send + Sync {
    /// Returns the score of the node in lane `at`.
    fn lane(&self, chunk: &Chunk, at: usize) -> i64;

    /// See [`Score::kernel`].
    fn kernel(&self) -> Option<ScoreKernel> {
        None
    }
}

pub(super) struct ByLane<S>(pub(super) S);

impl<S: LaneScore> Score for ByLane<S> {
    fn score(&self, node: NodeInfo<'_>) -> Result<i64, Status> {
        let (chunk, at) = node.place();
        Ok(self.0.lane(chunk, at))
    }

    fn score_chunk(
        &self,
        _: &Cluster,
        chunk: &Chunk,
        mask: u64,
        scores: &mut Column<i64>,
    ) -> Result<(), Status> {
        each_lane(mask, |at| {
            scores[at] = self.0.lane(chunk, at);
            false
        });
        Ok(())
    }

    fn kernel(&self) -> Option<ScoreKernel> {
        self.0.kernel()
    }
}

/// Returns `part * 100 / whole`, rounded down exactly, for `0 <= part <= whole` and `whole > 0`. Products below 2^53
/// are divided as doubles, which is exact for them and many times faster.
pub(super) fn percent(part: i64, whole: i64) -> i64 {
    if part < 1 << 46 {
        ((part * 100) as f64 / whole as f64) as i64
    } else {
        (i128::from(part) * 100 / i128::from(whole)) as i64
    }
}
