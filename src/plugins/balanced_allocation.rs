//! Balance between the utilizations of resources (noderesources/balanced_allocation.go, 1.36.2).

use crate::framework::dispatch::{self, Amounts};
use crate::framework::{
    Cycle, Feasible, Plugin, PluginInfo, Point, PreScore, Score, Status, each_lane,
};
use crate::model::{Pod, PodClass};
use crate::snapshot::{Chunk, Cluster, Column, NodeInfo, balanced};

use super::scored::{self, ResourceWeight, Scored, is_default};

/// Prefers nodes on which the pod evens out the utilization of different resources.
#[derive(Clone, Debug)]
pub struct NodeResourcesBalancedAllocation {
    /// The resources to balance; their weights are ignored.
    pub resources: Vec<ResourceWeight>,
}

impl Default for NodeResourcesBalancedAllocation {
    fn default() -> NodeResourcesBalancedAllocation {
        NodeResourcesBalancedAllocation { resources: ResourceWeight::cpu_and_memory() }
    }
}

struct Balance {
    class: PodClass,
    cpu: i64,
    memory: i64,
}

impl Plugin for NodeResourcesBalancedAllocation {
    fn info(&self) -> PluginInfo {
        PluginInfo::new("NodeResourcesBalancedAllocation", &[Point::PreScore, Point::Score]).local()
    }

    fn treats_template_alike(&self, _: &Pod) -> bool {
        true
    }

    fn pre_score<'a>(
        &'a self,
        cycle: Cycle<'a>,
        _: &'a Feasible<'a>,
    ) -> Result<PreScore<'a>, Status> {
        let (cluster, pod) = (cycle.cluster, cycle.pod);
        let (class, incoming) = (pod.template.class, &pod.template.resources.incoming);
        if !is_default(&self.resources) {
            let resources = scored::scored(cluster, &self.resources, incoming);
            return match resources.iter().all(|resource| resource.pod == 0) {
                true => Ok(PreScore::Skip),
                false => Ok(PreScore::Score(Box::new(Shares { class, resources }))),
            };
        }
        let balance = Balance { class, cpu: incoming.cpu.0, memory: incoming.memory.0 };
        if balance.cpu == 0 && balance.memory == 0 {
            return Ok(PreScore::Skip);
        }
        Ok(PreScore::Score(Box::new(balance)))
    }
}

/// Balances any resources.
struct Shares {
    class: PodClass,
    resources: Vec<Scored>,
}

impl Shares {
    fn lane(&self, chunk: &Chunk, at: usize) -> i64 {
        let account = chunk.account(self.class);
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for resource in &self.resources {
            let Some((whole, taken)) = resource.on(account, at, false) else { continue };
            let share = |used: i64| (used as f64 / whole as f64).min(1.0);
            with.push(share(taken.saturating_add(resource.pod)));
            without.push(share(taken));
        }
        50 + (50 + balance(&with) - balance(&without)) / 2
    }
}

/// Returns how even these utilizations are, in percent: one minus their standard deviation.
fn balance(shares: &[f64]) -> i64 {
    let deviation = match shares {
        [] | [_] => 0.0,
        [a, b] => ((a - b) / 2.0).abs(),
        all => {
            let count = all.len() as f64;
            let mean = all.iter().sum::<f64>() / count;
            (all.iter().map(|share| (share - mean) * (share - mean)).sum::<f64>() / count).sqrt()
        }
    };
    ((1.0 - deviation) * 100.0) as i64
}

impl Score for Shares {
    fn score(&self, node: NodeInfo<'_>) -> Result<i64, Status> {
        let (chunk, at) = node.place();
        Ok(self.lane(chunk, at))
    }
}

impl Balance {
    fn lane(&self, chunk: &Chunk, at: usize) -> i64 {
        let account = chunk.account(self.class);
        let (cpu, memory) = (account.allocatable_cpu()[at], account.allocatable_memory()[at]);
        let (used_cpu, used_memory) = (account.requested_cpu()[at], account.requested_memory()[at]);
        let with = balanced(
            (used_cpu.saturating_add(self.cpu), cpu),
            (used_memory.saturating_add(self.memory), memory),
        );
        let without = match self.class {
            PodClass::Guaranteed => i64::from(chunk.balance()[at]),
            PodClass::BestEffort => balanced((used_cpu, cpu), (used_memory, memory)),
        };
        50 + (50 + with - without) / 2
    }
}

impl Score for Balance {
    fn score(&self, node: NodeInfo<'_>) -> Result<i64, Status> {
        let (chunk, at) = node.place();
        Ok(self.lane(chunk, at))
    }

    fn score_chunk(
        &self,
        _: &Cluster,
        chunk: &Chunk,
        mask: u64,
        scores: &mut Column<i64>,
    ) -> Result<(), Status> {
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
        // The kernel reads columns that chunks store only for guaranteed pods.
        let by_kernel = self.class == PodClass::Guaranteed
            && dispatch::balanced_allocation(cpu, memory, chunk.balance(), scores);
        if !by_kernel {
            each_lane(mask, |at| {
                scores[at] = self.lane(chunk, at);
                false
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::snapshot::LANES;

    /// Generates realistic amounts: round ones, whose utilizations are exact ratios, and any amount up to the kernel's
    /// limit.
    fn amount() -> impl Strategy<Value = i64> {
        prop_oneof![
            (0..200_i64).prop_map(|n| n * 500),
            (0..64_i64).prop_map(|n| n << 30),
            (0..46_u32).prop_map(|shift| (1 << shift) - 1),
            0..1_i64 << 46,
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

        #[test]
        fn the_kernel_and_per_node_scores_agree(
            lanes in prop::collection::vec((amount(), amount(), amount(), amount()), LANES),
            (pod_cpu, pod_memory) in (amount(), amount()),
        ) {
            let column = |of: fn(&(i64, i64, i64, i64)) -> i64| -> Column<i64> {
                std::array::from_fn(|at| of(&lanes[at]))
            };
            let (cpu, memory) = (column(|l| l.0), column(|l| l.1));
            let (used_cpu, used_memory) = (column(|l| l.2), column(|l| l.3));
            let reciprocal = |of: &Column<i64>| of.map(|n| if n == 0 { 0.0 } else { 1.0 / n as f64 });
            let (reciprocal_cpu, reciprocal_memory) = (reciprocal(&cpu), reciprocal(&memory));
            let now: Column<u8> = std::array::from_fn(|at| {
                balanced((used_cpu[at], cpu[at]), (used_memory[at], memory[at])) as u8
            });
            let mut scores = [0; LANES];
            let exact = dispatch::balanced_allocation(
                Amounts {
                    pod: pod_cpu,
                    requested: &used_cpu,
                    allocatable: &cpu,
                    reciprocal: &reciprocal_cpu,
                },
                Amounts {
                    pod: pod_memory,
                    requested: &used_memory,
                    allocatable: &memory,
                    reciprocal: &reciprocal_memory,
                },
                &now,
                &mut scores,
            );
            let small = |used: &Column<i64>, pod: i64| used.iter().all(|n| n + pod < 1 << 46);
            prop_assert_eq!(exact, small(&used_cpu, pod_cpu) && small(&used_memory, pod_memory));
            for at in (0..LANES).filter(|_| exact) {
                let with = balanced(
                    (used_cpu[at] + pod_cpu, cpu[at]),
                    (used_memory[at] + pod_memory, memory[at]),
                );
                let without = i64::from(now[at]);
                prop_assert_eq!(scores[at], 50 + (50 + with - without) / 2, "{:?}", lanes[at]);
            }
        }
    }
}
