//! Balance between the utilizations of resources (noderesources/balanced_allocation.go, 1.36.2).

use crate::framework::{Cycle, Feasible, Plugin, PluginInfo, Point, PreScore, ScoreKernel, Status};
use crate::model::PodClass;
use crate::snapshot::{Chunk, balanced};

use super::scored::{self, ByLane, LaneScore, ResourceWeight, Scored, is_default};

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
                false => Ok(PreScore::Score(Box::new(ByLane(Shares { class, resources })))),
            };
        }
        let balance = Balance { class, cpu: incoming.cpu.0, memory: incoming.memory.0 };
        if balance.cpu == 0 && balance.memory == 0 {
            return Ok(PreScore::Skip);
        }
        Ok(PreScore::Score(Box::new(ByLane(balance))))
    }
}

/// Balances any resources.
struct Shares {
    class: PodClass,
    resources: Vec<Scored>,
}

impl LaneScore for Shares {
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

impl LaneScore for Balance {
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

    fn kernel(&self) -> Option<ScoreKernel> {
        // The kernel reads columns that chunks store only for guaranteed pods.
        let (cpu, memory) = (self.cpu, self.memory);
        let kernel = ScoreKernel { is_balance: true, cpu, memory };
        (self.class == PodClass::Guaranteed).then_some(kernel)
    }
}
