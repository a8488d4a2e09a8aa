//! Balance between resources (noderesources/balanced_allocation.go, 1.36.2).

use crate::framework::dispatch::{self, Amounts};
use crate::framework::{Plugin, PreScore, Score, each_lane};
use crate::model::Pod;
use crate::snapshot::{Chunk, Cluster, Column, NodeInfo};

/// Prefers nodes on which the pod brings the used shares of cpu and memory
/// nearer to each other.
#[derive(Clone, Copy, Debug)]
pub struct NodeResourcesBalancedAllocation;

struct Balance {
    cpu: i64,
    memory: i64,
}

impl Plugin for NodeResourcesBalancedAllocation {
    fn name(&self) -> &'static str {
        "NodeResourcesBalancedAllocation"
    }

    fn pre_score<'a>(&'a self, _: &'a Cluster, pod: &'a Pod) -> PreScore<'a> {
        let incoming = &pod.template.resources.incoming;
        let balance = Balance { cpu: incoming.cpu.0, memory: incoming.memory.0 };
        if balance.cpu == 0 && balance.memory == 0 {
            return PreScore::Skip;
        }
        PreScore::Score(Box::new(balance))
    }
}

/// How balanced the used shares are, 50 to 100; fewer than two resources are
/// always in balance.
fn balance(cpu: (i64, i64), memory: (i64, i64)) -> i64 {
    let share =
        |(requested, allocatable): (i64, i64)| (requested as f64 / allocatable as f64).min(1.0);
    if cpu.1 == 0 || memory.1 == 0 {
        return 100;
    }
    let deviation = ((share(cpu) - share(memory)) / 2.0).abs();
    ((1.0 - deviation) * 100.0) as i64
}

impl Balance {
    fn lane(&self, chunk: &Chunk, at: usize) -> i64 {
        let (cpu, memory) = (chunk.allocatable_cpu()[at], chunk.allocatable_memory()[at]);
        let (used_cpu, used_memory) = (chunk.requested_cpu()[at], chunk.requested_memory()[at]);
        let with = balance(
            (used_cpu.saturating_add(self.cpu), cpu),
            (used_memory.saturating_add(self.memory), memory),
        );
        let without = balance((used_cpu, cpu), (used_memory, memory));
        50 + (50 + with - without) / 2
    }
}

impl Score for Balance {
    fn score(&self, node: NodeInfo<'_>) -> i64 {
        let (chunk, at) = node.place();
        self.lane(chunk, at)
    }

    fn score_chunk(&self, _: &Cluster, chunk: &Chunk, mask: u64, scores: &mut Column<i64>) {
        let (reciprocal_cpu, reciprocal_memory) = chunk.reciprocals();
        let cpu = Amounts {
            pod: self.cpu,
            requested: chunk.requested_cpu(),
            allocatable: chunk.allocatable_cpu(),
            reciprocal: reciprocal_cpu,
        };
        let memory = Amounts {
            pod: self.memory,
            requested: chunk.requested_memory(),
            allocatable: chunk.allocatable_memory(),
            reciprocal: reciprocal_memory,
        };
        if !dispatch::balanced_allocation(cpu, memory, scores) {
            each_lane(mask, |at| {
                scores[at] = self.lane(chunk, at);
                false
            });
        }
    }
}
