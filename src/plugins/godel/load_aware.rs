//! Scores nodes by the load of their pods (Gödel: plugins/loadaware).
//!
//! The formula is the least-allocated strategy of NodeResourcesFit applied to another estimate of the used resources.
//! By default that is the sum of the pods' requests, with Kubernetes' defaults. Alternatively it is the measured usage
//! plus, for pods that were not measured, a share of their requests ([`NodeInfo::load`]). Gödel can also reject nodes
//! with an expired measurement. That is not supported here, because verdicts would then change with time alone, and
//! versions have no clock.

use crate::framework::{
    Code, Cycle, Feasible, Filter, Plugin, PluginInfo, Point, PreFilter, PreScore, Reads, Score,
    Status,
};
use crate::model::{Bytes, MilliCpu, NonZero, PodClass, Template, Usage};
use crate::plugins::ResourceWeight;
use crate::plugins::hints;
use crate::snapshot::NodeInfo;

/// Prefers nodes with the least load relative to what pods of the class may use, and rejects nodes whose load exceeds a
/// threshold. Not part of the default profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadAware {
    /// The resources scored for guaranteed pods. Empty by default, so guaranteed pods are not scored. Resources other
    /// than cpu and memory score 0.
    pub guaranteed: Vec<ResourceWeight>,
    /// The resources scored for best-effort pods: cpu and memory by default.
    pub best_effort: Vec<ResourceWeight>,
    /// Uses measurements (`nodeMetricEstimator`) if set, and requests (`defaultEstimator`) otherwise.
    pub measured: Option<Measured>,
}

/// How measurements are used. An unset percentage disables the threshold or the scaling of that resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// The measured usage above which a node is rejected, in percent of the allocatable amount (`usageThresholds`).
    pub most: Percent,
    /// The estimated usage of a pod that was not measured, in percent of its request (`estimatedScalingFactors`).
    pub used: Percent,
}

/// Percentages for cpu and memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Percent {
    /// The percentage for cpu.
    pub cpu: Option<i64>,
    /// The percentage for memory.
    pub memory: Option<i64>,
}

impl Default for LoadAware {
    fn default() -> LoadAware {
        let best_effort = ResourceWeight::cpu_and_memory();
        LoadAware { guaranteed: Vec::new(), best_effort, measured: None }
    }
}

const NAME: &str = "LoadAware";
const NOT_MEASURED: &str = "no metric info on this node";
const EXCEEDED: &str = "NodeMetricInfo usage exceeds threshold";

/// The assumed request of a pod that requests no amount (util/non_zero.go).
const DEFAULT: Usage = Usage { cpu: MilliCpu(100), memory: Bytes(200 << 20) };

impl LoadAware {
    fn resources(&self, class: PodClass) -> &[ResourceWeight] {
        match class {
            PodClass::Guaranteed => &self.guaranteed,
            PodClass::BestEffort => &self.best_effort,
        }
    }
}

impl Plugin for LoadAware {
    fn info(&self) -> PluginInfo {
        PluginInfo::new(NAME, &[Point::Filter, Point::Score]).events(hints::nodes::LOADS).local()
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        let Some(measured) = self.measured else { return Ok(PreFilter::Skip) };
        let class = cycle.pod.template.class;
        Ok(PreFilter::Filter(Box::new(Threshold { class, most: measured.most })))
    }

    fn pre_score<'a>(
        &'a self,
        cycle: Cycle<'a>,
        _: &'a Feasible<'a>,
    ) -> Result<PreScore<'a>, Status> {
        let template = &cycle.pod.template;
        let resources = self.resources(template.class);
        if resources.is_empty() {
            return Ok(PreScore::Skip);
        }
        let requested = requested(template);
        let pod = self.measured.map_or(requested, |measured| measured.used.of(requested));
        let class = template.class;
        Ok(PreScore::Score(Box::new(Least { class, resources, measured: self.measured, pod })))
    }
}

/// Returns a pod's requests, with the default for a resource without a request. An explicit zero stays zero if all
/// containers specify it.
fn requested(template: &Template) -> Usage {
    let (incoming, scored) = (&template.resources.incoming, &template.resources.scored);
    let or_default = |named: i64, scored: i64, default: i64| match (named, scored) {
        (0, 0) => 0,
        (0, _) => default,
        (named, _) => named,
    };
    Usage {
        cpu: MilliCpu(or_default(incoming.cpu.0, scored.cpu.0, DEFAULT.cpu.0)),
        memory: Bytes(or_default(incoming.memory.0, scored.memory.0, DEFAULT.memory.0)),
    }
}

impl Percent {
    /// Returns this percentage of an amount, rounded as Gödel does, or the whole amount if the percentage is unset.
    fn of(self, usage: Usage) -> Usage {
        let part = |amount: i64, percent: Option<i64>| {
            percent.map_or(amount, |percent| (amount as f64 * percent as f64 / 100.0) as i64)
        };
        let (cpu, memory) = (part(usage.cpu.0, self.cpu), part(usage.memory.0, self.memory));
        Usage { cpu: MilliCpu(cpu), memory: Bytes(memory) }
    }

    fn is_exceeded(self, part: Usage, whole: Usage) -> bool {
        let exceeds = |part: i64, whole: i64, percent: Option<i64>| {
            percent.is_some_and(|percent| part as f64 > percent as f64 / 100.0 * whole as f64)
        };
        exceeds(part.cpu.0, whole.cpu.0, self.cpu)
            || exceeds(part.memory.0, whole.memory.0, self.memory)
    }
}

/// Returns what pods of a class may use on a node.
fn offered(node: NodeInfo<'_>, class: PodClass) -> Usage {
    let (chunk, at) = node.place();
    let account = chunk.account(class);
    let cpu = MilliCpu(account.allocatable_cpu()[at]);
    Usage { cpu, memory: Bytes(account.allocatable_memory()[at]) }
}

struct Threshold {
    class: PodClass,
    most: Percent,
}

impl Filter for Threshold {
    /// Gödel aborts the whole cycle at a node without measurements; here the node is rejected.
    fn filter(&self, node: NodeInfo<'_>) -> Option<Status> {
        let reason = if node.custom_node_resource().is_none() {
            NOT_MEASURED
        } else if self.most.is_exceeded(node.profiled(self.class), offered(node, self.class)) {
            EXCEEDED
        } else {
            return None;
        };
        Some(Status::new(Code::UnschedulableAndUnresolvable, NAME, reason))
    }

    /// Evicting pods does not change the measurements.
    fn reads(&self) -> Reads {
        Reads::Node
    }
}

struct Least<'a> {
    class: PodClass,
    resources: &'a [ResourceWeight],
    measured: Option<Measured>,
    pod: Usage,
}

impl Score for Least<'_> {
    fn score(&self, node: NodeInfo<'_>) -> Result<i64, Status> {
        let whole = offered(node, self.class);
        if whole.cpu.0 == 0 || whole.memory.0 == 0 {
            return Ok(0);
        }
        let taken = match self.measured {
            Some(measured) => {
                let load = node.load(self.class);
                load.profiled.plus(measured.used.of(load.requested))
            }
            None => {
                let NonZero { cpu, memory } = node.non_zero_requested_of(self.class);
                Usage { cpu, memory }
            }
        };
        let taken = taken.plus(self.pod);
        // Weights that are not from 1 to 100 may exceed 64 bits, so sums saturate.
        let (mut sum, mut weights) = (0_i64, 0_i64);
        for ResourceWeight { name, weight } in self.resources {
            let free = match &**name {
                "cpu" => free(taken.cpu.0, whole.cpu.0),
                "memory" => free(taken.memory.0, whole.memory.0),
                _ => 0,
            };
            sum = sum.saturating_add(weight.saturating_mul(free));
            weights = weights.saturating_add(*weight);
        }
        Ok(if weights == 0 { 0 } else { sum.saturating_div(weights) })
    }
}

/// Returns the free percentage of the whole (`leastRequestedScore`).
fn free(taken: i64, whole: i64) -> i64 {
    if whole <= 0 || taken > whole {
        return 0;
    }
    ((i128::from(whole) - i128::from(taken.max(0))) * 100 / i128::from(whole)) as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{Config, Engine, Writer};
    use crate::framework::CycleState;
    use crate::model::{
        CustomNodeResource, GroupMetric, NodeMetrics, Pod, PodBuilder, Quantity, ResourceList,
        node, pod,
    };

    const GI: i64 = 1 << 30;

    fn custom(name: &str, cpu: i64, memory: i64) -> CustomNodeResource {
        let list = [("cpu", Quantity::milli(cpu)), ("memory", Quantity::whole(memory))];
        CustomNodeResource::new(name, &ResourceList::new(list))
    }

    fn writer(nodes: impl IntoIterator<Item = CustomNodeResource>) -> Writer {
        let (mut writer, _) = Engine::inline(Config::default());
        for custom in nodes {
            writer.add_node(node(custom.name.clone()).cpu(4_000).memory(16 * GI).build()).unwrap();
            writer.put_object(custom).unwrap();
        }
        writer
    }

    fn best_effort(name: &str) -> PodBuilder {
        pod(name).spec(|spec| spec.class = PodClass::BestEffort)
    }

    fn plugin(measured: Option<Measured>) -> LoadAware {
        LoadAware { measured, ..LoadAware::default() }
    }

    fn scores(writer: &Writer, plugin: &LoadAware, pod: &Pod) -> Vec<i64> {
        let state = CycleState::default();
        let cycle = Cycle::new(writer.cluster(), pod, &state);
        let feasible = Feasible::new(writer.cluster(), Vec::new());
        let Ok(PreScore::Score(score)) = plugin.pre_score(cycle, &feasible) else {
            return Vec::new();
        };
        writer.cluster().nodes().map(|node| score.score(node).unwrap()).collect()
    }

    /// The cases of Gödel's load_aware_test.go.
    #[test]
    fn scores_by_requests_equal_those_of_godel() {
        let four = |name| custom(name, 4_000, 16 * GI);
        let sized = |pod: PodBuilder, n: i64| pod.cpu(n * 1_000).memory(n * GI);
        let mut writer = writer([four("n1"), four("n2")]);
        let wants = sized(best_effort("p"), 1).build();
        assert_eq!(scores(&writer, &plugin(None), &best_effort("e").build()), [97, 97]);
        for n in [1, 2] {
            writer.add_pod(sized(pod(format!("g{n}")), n).on(format!("n{n}")).build()).unwrap();
        }
        assert_eq!(scores(&writer, &plugin(None), &wants), [84, 84]);
        for n in [1, 2] {
            let pod = sized(best_effort(&format!("b{n}")), n).on(format!("n{n}")).build();
            writer.add_pod(pod).unwrap();
        }
        assert_eq!(scores(&writer, &plugin(None), &wants), [68, 53]);
        let guaranteed = sized(pod("g"), 1).build();
        assert!(scores(&writer, &plugin(None), &guaranteed).is_empty(), "not scored");
    }

    #[test]
    fn extreme_weights_do_not_overflow() {
        let writer = writer([custom("n", 4_000, 16 * GI)]);
        let pod = best_effort("p").build();
        for (cpu, other) in [(i64::MAX, i64::MAX), (i64::MIN, i64::MIN), (i64::MIN, i64::MAX)] {
            let weights = [("cpu", cpu), ("other", other)];
            let resources =
                weights.map(|(name, weight)| ResourceWeight { name: name.into(), weight });
            let plugin = LoadAware { best_effort: resources.into(), ..plugin(None) };
            assert_eq!(scores(&writer, &plugin, &pod).len(), 1, "{weights:?}");
        }
    }

    const SHARES: Percent = Percent { cpu: Some(70), memory: Some(70) };
    const THRESHOLDS: Percent = Percent { cpu: Some(80), memory: Some(80) };

    fn measured(usage: i64, pods: &[&str]) -> CustomNodeResource {
        let group = GroupMetric {
            class: PodClass::BestEffort,
            usage: Usage { cpu: MilliCpu(usage), memory: Bytes(usage) },
            pods: pods.iter().map(|pod| (*pod).into()).collect(),
        };
        let metrics = Some(Box::new(NodeMetrics::new(None, [group])));
        CustomNodeResource { metrics, ..custom("n", 1_000, 1_000) }
    }

    #[test]
    fn measured_usage_counts_in_full_and_requests_in_part() {
        let pods = ["default/p0", "default/p2", "default/p5"];
        let mut writer = writer([measured(250, &pods)]);
        let small = |name: &str| best_effort(name).cpu(100).memory(100);
        for n in 0..5 {
            writer.add_pod(small(&format!("p{n}")).on("n").build()).unwrap();
        }
        let plugin = plugin(Some(Measured { most: THRESHOLDS, used: SHARES }));
        assert_eq!(scores(&writer, &plugin, &small("p").build()), [47]);
    }

    #[test]
    fn unmeasured_nodes_and_nodes_above_the_threshold_are_rejected() {
        let threshold = Threshold { class: PodClass::BestEffort, most: THRESHOLDS };
        let mut writer = writer([measured(800, &[])]);
        let asked = |writer: &Writer| {
            let status = threshold.filter(writer.cluster().node("n").unwrap());
            status.map(|status| (status.code, status.message()))
        };
        assert_eq!(asked(&writer), None);
        writer.put_object(measured(801, &[])).unwrap();
        let code = Code::UnschedulableAndUnresolvable;
        assert_eq!(asked(&writer), Some((code, EXCEEDED.to_owned())));
        // A CustomNodeResource without measurements counts as no load.
        writer.put_object(custom("n", 1_000, 1_000)).unwrap();
        assert_eq!(asked(&writer), None);
        let kind = crate::model::ObjectKind::CustomNodeResource;
        writer.delete_object(kind, "", "n").unwrap();
        assert_eq!(asked(&writer), Some((code, NOT_MEASURED.to_owned())));
    }
}
