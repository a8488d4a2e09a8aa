//! Resource fit and the scores by allocation (noderesources/fit.go, least_allocated.go, most_allocated.go,
//! requested_to_capacity_ratio.go).

use std::borrow::Cow;

use crate::framework::dispatch::{self, Usage};
use crate::framework::{
    Code, Cycle, Feasible, Filter, Plugin, PluginInfo, Point, PreFilter, PreScore, Reads, Reasons,
    ScoreKernel, Status, each_lane,
};
use crate::model::{Name, Pod, PodClass, PodResources, Resources, is_extended};
use crate::snapshot::{Chunk, Cluster, Column, Freed, LANES, NodeInfo};

use super::hints::{self, ClusterEvent, Hint};
use super::scored::{self, ByLane, LaneScore, ResourceWeight, Scored, is_default};

/// Rejects nodes without enough free resources for the pod, and scores the others by the allocation of some resources.
#[derive(Clone, Debug)]
pub struct NodeResourcesFit {
    /// How nodes are scored.
    pub strategy: ScoringStrategy,
    /// The resources that are scored.
    pub resources: Vec<ResourceWeight>,
    /// Extended resources that the filter ignores.
    pub ignored_resources: Vec<Name>,
    /// Domains whose extended resources the filter ignores.
    pub ignored_resource_groups: Vec<Name>,
}

/// How NodeResourcesFit scores nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScoringStrategy {
    /// Prefers nodes with the largest share of free resources.
    #[default]
    LeastAllocated,
    /// Prefers nodes with the smallest share of free resources.
    MostAllocated,
    /// Scores the utilization by a piecewise linear function. It is given by points (utilization in percent, score from
    /// 0 to 10), ordered by utilization.
    RequestedToCapacityRatio(Vec<(i64, i64)>),
}

impl Default for NodeResourcesFit {
    fn default() -> NodeResourcesFit {
        NodeResourcesFit {
            strategy: ScoringStrategy::LeastAllocated,
            resources: ResourceWeight::cpu_and_memory(),
            ignored_resources: Vec::new(),
            ignored_resource_groups: Vec::new(),
        }
    }
}

impl NodeResourcesFit {
    fn ignores(&self, name: &str) -> bool {
        let group = name.split_once('/').map_or("", |(group, _)| group);
        is_extended(name)
            && (self.ignored_resources.iter().any(|ignored| **ignored == *name)
                || self.ignored_resource_groups.iter().any(|ignored| **ignored == *group))
    }
}

const NAME: &str = "NodeResourcesFit";

struct Room<'a> {
    pod: &'a Resources,
    /// The pod's class, which selects the account that is checked.
    class: PodClass,
    /// Whether the pod requests no resources, so that only the number of pods is checked.
    nothing: bool,
    scalars: Vec<Scalar<'a>>,
    /// Whether the pod takes from its node what it requests before it is placed.
    takes_requests: bool,
}

/// A scalar resource that the pod requests.
struct Scalar<'a> {
    name: &'a Name,
    /// The id in the version.
    id: Option<u32>,
    amount: i64,
    /// Whether a plugin supplies the resource on nodes that do not offer it
    /// ([`Store::supplies`](crate::cache::Store::supplies)).
    is_supplied: bool,
}

struct LeastAllocated {
    class: PodClass,
    cpu: i64,
    memory: i64,
}

impl Plugin for NodeResourcesFit {
    fn info(&self) -> PluginInfo {
        PluginInfo::new(NAME, &[Point::PreFilter, Point::Filter, Point::PreScore, Point::Score])
            .events(hints::fit::EVENTS)
            .local()
    }

    fn queueing_hint(
        &self,
        pod: &Pod,
        event: &ClusterEvent<'_>,
        _: &Cluster,
    ) -> Result<Hint, Status> {
        Ok(hints::fit::hint(pod, event, |name| self.ignores(name)))
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        let (cluster, class) = (cycle.cluster, cycle.pod.template.class);
        let PodResources { incoming: pod, placed, .. } = &cycle.pod.template.resources;
        let requested =
            pod.scalars.iter().filter(|(name, amount)| *amount > 0 && !self.ignores(name));
        let scalars = requested.map(|(name, amount)| {
            let (id, is_supplied) = (cluster.resource_id(name), cluster.supplies(name));
            Scalar { name, id, amount, is_supplied }
        });
        Ok(PreFilter::Filter(Box::new(Room {
            pod,
            class,
            nothing: pod.cpu.0 == 0
                && pod.memory.0 == 0
                && pod.ephemeral_storage.0 == 0
                && pod.scalars.is_empty(),
            scalars: scalars.collect(),
            takes_requests: pod == placed,
        })))
    }

    fn pre_score<'a>(
        &'a self,
        cycle: Cycle<'a>,
        _: &'a Feasible<'a>,
    ) -> Result<PreScore<'a>, Status> {
        let (cluster, pod) = (cycle.cluster, cycle.pod);
        let (class, scored) = (pod.template.class, &pod.template.resources.scored);
        if self.strategy != ScoringStrategy::LeastAllocated || !is_default(&self.resources) {
            let resources = scored::scored(cluster, &self.resources, scored);
            return Ok(PreScore::Score(Box::new(ByLane(Allocation {
                strategy: &self.strategy,
                class,
                resources,
            }))));
        }
        let (cpu, memory) = (scored.cpu.0, scored.memory.0);
        Ok(PreScore::Score(Box::new(ByLane(LeastAllocated { class, cpu, memory }))))
    }
}

/// Returns whether a request exceeds what is left on a node. A node's sums fit into 64 bits, but their difference may
/// not, so it saturates.
fn exceeds(request: i64, allocatable: i64, requested: i64) -> bool {
    request > 0 && request > allocatable.saturating_sub(requested)
}

/// Returns the reason for rejecting a node that does not have enough of a resource.
fn insufficient(name: &str) -> Cow<'static, str> {
    match name {
        "cpu" => "Insufficient cpu".into(),
        "memory" => "Insufficient memory".into(),
        "ephemeral-storage" => "Insufficient ephemeral-storage".into(),
        _ => format!("Insufficient {name}").into(),
    }
}

const TOO_MANY_PODS: &str = "Too many pods";

impl Room<'_> {
    /// Returns the requests of cpu and memory for the kernel, if the pod is guaranteed and requests nothing else;
    /// `i64::MIN` for none.
    fn kernel_requests(&self) -> Option<[i64; 2]> {
        let is_covered = self.class == PodClass::Guaranteed
            && self.pod.ephemeral_storage.0 == 0
            && self.scalars.is_empty();
        let wanted = [self.pod.cpu.0, self.pod.memory.0];
        is_covered.then(|| wanted.map(|request| if request > 0 { request } else { i64::MIN }))
    }

    /// Calls `enough` for each requirement of the pod, with its reason and the lanes that meet it, until `enough`
    /// returns true.
    fn each_need(
        &self,
        chunk: &Chunk,
        mut enough: impl FnMut(&dyn Fn() -> Cow<'static, str>, u64) -> bool,
    ) {
        let account = chunk.account(self.class);
        let place = dispatch::has_place(account.allowed_pods(), chunk.pods());
        if enough(&|| TOO_MANY_PODS.into(), place) || self.nothing {
            return;
        }
        let fixed = [
            ("cpu", self.pod.cpu.0, account.allocatable_cpu(), account.requested_cpu()),
            ("memory", self.pod.memory.0, account.allocatable_memory(), account.requested_memory()),
            (
                "ephemeral-storage",
                self.pod.ephemeral_storage.0,
                account.allocatable_ephemeral_storage(),
                account.requested_ephemeral_storage(),
            ),
        ];
        for (name, request, allocatable, requested) in fixed {
            if request > 0
                && enough(&|| insufficient(name), dispatch::fits(request, allocatable, requested))
            {
                return;
            }
        }
        const NONE: Column<i64> = [0; LANES];
        for Scalar { name, id, amount, is_supplied } in &self.scalars {
            let allocatable = (*id).and_then(|id| account.allocatable_scalar(id)).unwrap_or(&NONE);
            let requested = (*id).and_then(|id| account.requested_scalar(id)).unwrap_or(&NONE);
            let mut fits = dispatch::fits(*amount, allocatable, requested);
            if *is_supplied {
                fits |= each_lane(u64::MAX, |lane| allocatable[lane] == 0);
            }
            if enough(&|| insufficient(name), fits) {
                return;
            }
        }
    }
}

/// A resource: its name, the pod's request, the node's allocatable amount, and the amount requested by the node's pods.
type Need<'n> = (&'n str, i64, i64, i64);

impl Room<'_> {
    /// Calls `is_enough` for each resource that the pod requests, as if the pods counted in `freed` were removed, until
    /// it returns true. Returns whether it did.
    fn any_need(
        &self,
        node: NodeInfo<'_>,
        freed: Option<&Freed<'_>>,
        mut is_enough: impl FnMut(Need<'_>) -> bool,
    ) -> bool {
        if self.nothing {
            return false;
        }
        let (chunk, at) = node.place();
        let account = chunk.account(self.class);
        let less = |requested: i64, freed: Option<i64>| requested.wrapping_sub(freed.unwrap_or(0));
        let storage = account.requested_ephemeral_storage()[at];
        let cpu = less(account.requested_cpu()[at], freed.map(|freed| freed.cpu().0));
        let memory = less(account.requested_memory()[at], freed.map(|freed| freed.memory().0));
        let storage = less(storage, freed.map(|freed| freed.ephemeral_storage().0));
        if is_enough(("cpu", self.pod.cpu.0, account.allocatable_cpu()[at], cpu))
            || is_enough(("memory", self.pod.memory.0, account.allocatable_memory()[at], memory))
            || is_enough((
                "ephemeral-storage",
                self.pod.ephemeral_storage.0,
                account.allocatable_ephemeral_storage()[at],
                storage,
            ))
        {
            return true;
        }
        if self.scalars.is_empty() {
            return false;
        }
        let offered = node.node().filter(|_| self.class == PodClass::Guaranteed);
        let allocatable = match offered {
            Some(node) => Cow::Borrowed(&node.allocatable.scalars),
            None => Cow::Owned(node.allocatable_of(self.class).scalars),
        };
        self.scalars.iter().any(|Scalar { name, amount, is_supplied, .. }| {
            let has = allocatable.get(name).unwrap_or(0);
            if *is_supplied && has == 0 {
                return false;
            }
            // The node may belong to a fork, which numbers its resources differently.
            let resource = node.cluster().resource_id(name);
            let column = resource.and_then(|resource| account.requested_scalar(resource));
            let freed = resource.zip(freed).map(|(resource, freed)| freed.scalar(resource));
            is_enough((name, *amount, has, less(column.map_or(0, |column| column[at]), freed)))
        })
    }

    /// Returns whether the node may run one more pod.
    fn has_place(&self, node: NodeInfo<'_>, freed: Option<&Freed<'_>>) -> bool {
        let freed = freed.map_or(0, Freed::pods);
        ((node.pod_count() - freed) as i64) < node.allowed_pods_of(self.class)
    }

    /// Calls `add` with each reason why the node is rejected. Returns whether it would also be rejected without pods.
    fn each_lack(
        &self,
        node: NodeInfo<'_>,
        freed: Option<&Freed<'_>>,
        mut add: impl FnMut(Cow<'static, str>),
    ) -> bool {
        let mut never = false;
        if !self.has_place(node, freed) {
            add(TOO_MANY_PODS.into());
        }
        self.any_need(node, freed, |(name, request, allocatable, requested)| {
            if exceeds(request, allocatable, requested) {
                add(insufficient(name));
                never |= request > allocatable;
            }
            false
        });
        never
    }

    fn status(&self, node: NodeInfo<'_>, freed: Option<&Freed<'_>>) -> Option<Status> {
        let mut reasons = Vec::new();
        let never = self.each_lack(node, freed, |reason| reasons.push(reason.into_owned()));
        let code = if never { Code::UnschedulableAndUnresolvable } else { Code::Unschedulable };
        (!reasons.is_empty()).then_some(Status { code, plugin: NAME, reasons })
    }
}

impl Filter for Room<'_> {
    fn filter(&self, node: NodeInfo<'_>) -> Option<Status> {
        self.status(node, None)
    }

    fn filter_chunk(&self, _: &Cluster, chunk: &Chunk, mask: u64) -> Result<u64, Status> {
        if let Some(requests) = self.kernel_requests() {
            let (allowed, pods) = (chunk.allowed_pods(), chunk.pods());
            return Ok(mask & dispatch::has_room(allowed, pods, requests, Usage::of(chunk)));
        }
        let mut passed = mask;
        self.each_need(chunk, |_, fits| {
            passed &= fits;
            passed == 0
        });
        Ok(passed)
    }

    fn count_reasons(
        &self,
        _: &Cluster,
        chunk: &Chunk,
        mask: u64,
        reasons: &mut Reasons,
    ) -> Result<u64, Status> {
        let mut passed = mask;
        self.each_need(chunk, |reason, fits| {
            if mask & !fits != 0 {
                reasons.add(reason(), (mask & !fits).count_ones() as usize);
            }
            passed &= fits;
            false
        });
        Ok(passed)
    }

    fn reads(&self) -> Reads {
        match self.class {
            PodClass::Guaranteed => Reads::Amounts,
            // The victim index has no sums of the best-effort account.
            PodClass::BestEffort => Reads::Pods,
        }
    }

    fn filter_without(&self, node: NodeInfo<'_>, freed: &Freed<'_>) -> Option<Status> {
        self.status(node, Some(freed))
    }

    fn count_without(
        &self,
        node: NodeInfo<'_>,
        freed: &Freed<'_>,
        reasons: &mut Reasons,
    ) -> Result<bool, Status> {
        let mut passes = true;
        self.each_lack(node, Some(freed), |reason| {
            reasons.add(reason, 1);
            passes = false;
        });
        Ok(passes)
    }

    fn passes_without(&self, node: NodeInfo<'_>, freed: &Freed<'_>) -> bool {
        let lacks = |(_, request, allocatable, requested): Need<'_>| {
            exceeds(request, allocatable, requested)
        };
        self.has_place(node, Some(freed)) && !self.any_need(node, Some(freed), lacks)
    }

    fn copies(&self, node: NodeInfo<'_>) -> Option<usize> {
        let places = node.allowed_pods_of(self.class).saturating_sub(node.pod_count() as i64);
        let mut copies = places.max(0);
        self.any_need(node, None, |(_, request, allocatable, requested)| {
            if request > 0 {
                copies = copies.min(allocatable.saturating_sub(requested).max(0) / request);
            }
            copies == 0
        });
        // Numbers of several nodes are added up.
        let copies = u32::try_from(copies).unwrap_or(u32::MAX);
        self.takes_requests.then_some(copies as usize)
    }

    /// A node is resolvable if it offers enough of every resource when it is empty.
    fn resolvable(&self, _: &Cluster, chunk: &Chunk, rejected: u64) -> u64 {
        const NONE: Column<i64> = [0; LANES];
        if self.nothing {
            return rejected;
        }
        let account = chunk.account(self.class);
        let fixed = [
            (self.pod.cpu.0, account.allocatable_cpu()),
            (self.pod.memory.0, account.allocatable_memory()),
            (self.pod.ephemeral_storage.0, account.allocatable_ephemeral_storage()),
        ];
        let left = fixed.into_iter().filter(|(request, _)| *request > 0);
        let left =
            left.fold(rejected, |left, (request, has)| left & dispatch::fits(request, has, &NONE));
        self.scalars.iter().fold(left, |left, Scalar { id, amount, is_supplied, .. }| {
            let has = (*id).and_then(|id| account.allocatable_scalar(id)).unwrap_or(&NONE);
            let mut fits = dispatch::fits(*amount, has, &NONE);
            if *is_supplied {
                fits |= each_lane(u64::MAX, |lane| has[lane] == 0);
            }
            left & fits
        })
    }
}

impl LeastAllocated {
    /// Returns the score and the weight of one resource.
    fn share(allocatable: i64, requested: i64) -> (i64, i64) {
        match allocatable {
            ..=0 => (0, 0),
            whole if requested > whole => (0, 1),
            whole => (scored::percent(whole.saturating_sub(requested.max(0)), whole), 1),
        }
    }
}

impl LaneScore for LeastAllocated {
    fn lane(&self, chunk: &Chunk, at: usize) -> i64 {
        let account = chunk.account(self.class);
        let cpu = Self::share(
            account.allocatable_cpu()[at],
            account.non_zero_cpu()[at].saturating_add(self.cpu),
        );
        let memory = Self::share(
            account.allocatable_memory()[at],
            account.non_zero_memory()[at].saturating_add(self.memory),
        );
        match cpu.1 + memory.1 {
            0 => 0,
            weights => (cpu.0 + memory.0) / weights,
        }
    }

    fn kernel(&self) -> Option<ScoreKernel> {
        // The kernel reads columns that chunks store only for guaranteed pods.
        let (cpu, memory) = (self.cpu, self.memory);
        let kernel = ScoreKernel { is_balance: false, cpu, memory };
        (self.class == PodClass::Guaranteed).then_some(kernel)
    }
}

/// Scores any resources by any strategy.
struct Allocation<'a> {
    strategy: &'a ScoringStrategy,
    class: PodClass,
    resources: Vec<Scored>,
}

impl LaneScore for Allocation<'_> {
    fn lane(&self, chunk: &Chunk, at: usize) -> i64 {
        let ratio = matches!(self.strategy, ScoringStrategy::RequestedToCapacityRatio(_));
        let account = chunk.account(self.class);
        // Weights that are not from 1 to 100 may exceed 64 bits, so sums saturate.
        let (mut sum, mut weights) = (0_i64, 0_i64);
        for resource in &self.resources {
            let Some((whole, taken)) = resource.on(account, at, true) else { continue };
            let score = self.strategy.score(whole, taken.saturating_add(resource.pod));
            if !ratio || score > 0 {
                sum = sum.saturating_add(resource.weight.saturating_mul(score));
                weights = weights.saturating_add(resource.weight);
            }
        }
        match weights {
            0 => 0,
            // Rounds half away from zero, as kube-scheduler does.
            weights if ratio => (sum as f64 / weights as f64).round() as i64,
            weights => sum.saturating_div(weights),
        }
    }
}

impl ScoringStrategy {
    fn score(&self, whole: i64, requested: i64) -> i64 {
        match self {
            ScoringStrategy::LeastAllocated if requested > whole => 0,
            ScoringStrategy::LeastAllocated => {
                scored::percent(whole.saturating_sub(requested), whole)
            }
            ScoringStrategy::MostAllocated => scored::percent(requested.min(whole), whole),
            ScoringStrategy::RequestedToCapacityRatio(shape) => {
                let used = match requested > whole {
                    true => 100,
                    false => scored::percent(requested, whole),
                };
                on_shape(shape, used)
            }
        }
    }
}

/// Evaluates a piecewise linear function at `at`, saturating; the result is 0 to 100 if all scores are 0 to 10.
fn on_shape(shape: &[(i64, i64)], at: i64) -> i64 {
    let point = |i: usize| (shape[i].0, shape[i].1.saturating_mul(10));
    for i in 0..shape.len() {
        let (to, high) = point(i);
        if at <= to {
            let Some(before) = i.checked_sub(1) else { return high };
            let (from, low) = point(before);
            let rise = high.saturating_sub(low).saturating_mul(at.saturating_sub(from));
            return low.saturating_add(rise / to.saturating_sub(from).max(1));
        }
    }
    shape.last().map_or(0, |(_, score)| score.saturating_mul(10))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{Config, Engine};
    use crate::framework::CycleState;
    use crate::model::{node, pod};

    #[test]
    fn extreme_weights_do_not_overflow() {
        let (mut writer, _) = Engine::inline(Config::default());
        writer.add_node(node("n").cpu(1_000).memory(1 << 30).build()).unwrap();
        let pod = pod("p").cpu(500).memory(1 << 30).build();
        let (state, cluster) = (CycleState::default(), writer.cluster());
        let feasible = Feasible::new(cluster, Vec::new());
        for (cpu, memory) in [(i64::MAX, i64::MAX), (i64::MIN, i64::MIN), (i64::MIN, i64::MAX)] {
            let weights = [("cpu", cpu), ("memory", memory)];
            let resources =
                weights.map(|(name, weight)| ResourceWeight { name: name.into(), weight });
            let plugin = NodeResourcesFit { resources: resources.into(), ..Default::default() };
            let score = plugin.pre_score(Cycle::new(cluster, &pod, &state), &feasible);
            let Ok(PreScore::Score(score)) = score else { panic!("no score") };
            assert!(score.score(cluster.node("n").unwrap()).is_ok(), "{weights:?}");
        }
    }

    #[test]
    fn extreme_points_of_a_shape_do_not_overflow() {
        let rising = [(0, i64::MIN), (100, i64::MAX)];
        assert_eq!(on_shape(&rising, 0), i64::MIN);
        assert!(on_shape(&rising, 50) <= on_shape(&rising, 100));
        let wide = [(i64::MIN, 0), (i64::MAX, 10)];
        assert!((0..=100).contains(&on_shape(&wide, 50)));
        assert_eq!(on_shape(&[(0, i64::MAX)], 50), i64::MAX);
    }

    #[test]
    fn percent_is_exact_around_whole_percents() {
        for whole in [1_i64, 3, 7, 100, 4000, 32 << 30, (1 << 46) - 1, 1 << 46, 1 << 60] {
            for p in 0..=100_i128 {
                let part = (i128::from(whole) * p / 100) as i64;
                for part in [part - 1, part, part + 1] {
                    if (0..=whole).contains(&part) {
                        let exact = i128::from(part) * 100 / i128::from(whole);
                        assert_eq!(
                            i128::from(scored::percent(part, whole)),
                            exact,
                            "{part}/{whole}"
                        );
                    }
                }
            }
        }
    }
}
