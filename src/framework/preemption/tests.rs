//! Properties of the dry run: sums and forks agree, and disruption budgets protect the same pods as a naive check.

use proptest::prelude::*;
use proptest_derive::Arbitrary;

use super::dry_run::{DryRun, Found};
use crate::cache::{Config, Engine, Writer};
use crate::framework::{
    Code, Cycle, CycleState, Diagnosis, Filter, Framework, Plugin, PluginInfo, Point, PreFilter,
    Status, Without,
};
use crate::model::{
    HOSTNAME, LabelSelector, Operator, Pod, PodAffinity, PodAffinityTerm, PodBuilder,
    PodDisruptionBudget, Quantity, Requirement, Taint, TaintEffect, Timestamp, node, pod,
};
use crate::snapshot::{Cluster, NodeInfo, PodInfo};

#[derive(Clone, Debug, Arbitrary)]
struct NodeSeed {
    cpu: u8,
    pods: u8,
    gpus: u8,
    is_tainted: bool,
}

#[derive(Clone, Debug, Arbitrary)]
struct PodSeed {
    node: u8,
    cpu: u8,
    gpus: u8,
    priority: u8,
    start: Option<u8>,
    color: u8,
    shape: u8,
}

const NODES: usize = 5;
const ZONE: &str = "topology.kubernetes.io/zone";

fn colored(color: u8) -> &'static str {
    ["red", "green", "blue"][usize::from(color % 3)]
}

fn apart(color: u8) -> PodAffinity {
    let term = PodAffinityTerm {
        topology_key: [HOSTNAME, ZONE][usize::from(color / 3 % 2)].into(),
        selector: LabelSelector::from_labels([("color", colored(color))]),
        namespaces: ["default".into()].into(),
        namespace_selector: LabelSelector::Nothing,
    };
    PodAffinity { required: Box::new([term]), ..PodAffinity::default() }
}

fn made(name: String, seed: &PodSeed) -> PodBuilder {
    let mut made = pod(name).cpu(i64::from(seed.cpu % 8) * 100);
    made = made.priority(i32::from(seed.priority % 5));
    if !seed.gpus.is_multiple_of(4) {
        made = made.request("example.com/gpu", Quantity::whole(i64::from(seed.gpus % 4)));
    }
    if !seed.color.is_multiple_of(4) {
        made = made.label("color", colored(seed.color));
    }
    if let Some(start) = seed.start {
        made = made.started(Timestamp(i64::from(start % 3)));
    }
    match seed.shape % 16 {
        0 => made.host_port(80),
        1 | 3 => made.pod_anti_affinity(apart(seed.shape >> 4)),
        2 => made.cpu(i64::from(i8::MAX)),
        _ => made,
    }
}

fn clustered(nodes: &[NodeSeed; NODES], pods: &[PodSeed], budgets: &[u8; 2]) -> Writer {
    let (mut writer, _) = Engine::inline(Config::default());
    for (n, seed) in nodes.iter().enumerate() {
        let mut made = node(format!("n{n}"))
            .hostname()
            .zone(format!("z{}", n / 2))
            .cpu(i64::from(seed.cpu % 32) * 100);
        made = made.pods(i64::from(seed.pods % 12));
        if seed.gpus % 3 > 0 {
            made = made.resource("example.com/gpu", Quantity::whole(i64::from(seed.gpus % 8)));
        }
        if seed.is_tainted && n == 0 {
            made = made.taint(Taint::new("k", "v", TaintEffect::NoSchedule));
        }
        writer.add_node(made.build()).unwrap();
    }
    for (n, seed) in pods.iter().enumerate() {
        let on = format!("n{}", usize::from(seed.node) % NODES);
        writer.add_pod(made(format!("p{n}"), seed).on(on).build()).unwrap();
    }
    for (color, allowed) in budgets.iter().enumerate().filter(|(_, allowed)| *allowed % 3 > 0) {
        let budget = PodDisruptionBudget {
            namespace: "default".into(),
            name: format!("b{color}").into(),
            selector: LabelSelector::from_labels([("color", colored(color as u8))]),
            disruptions_allowed: i32::from(*allowed % 3) - 1,
            ..PodDisruptionBudget::default()
        };
        writer.put_object(budget).unwrap();
    }
    writer
}

/// Calls `ask` for each node that may pass without some of its pods.
fn each_node(
    framework: &Framework,
    cluster: &Cluster,
    pod: &Pod,
    mut ask: impl FnMut(&DryRun<'_>, &Diagnosis<'_>, NodeInfo<'_>),
) {
    let state = CycleState::default();
    let cycle = Cycle::new(cluster, pod, &state);
    let filters = framework.pre_filter(cycle);
    let diagnosis = Diagnosis::new(&filters);
    let run = DryRun::new(cycle, &filters);
    for node in diagnosis.nodes_with(Code::Unschedulable) {
        ask(&run, &diagnosis, node);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn sums_and_forks_find_the_same_candidates(
        nodes in any::<[NodeSeed; NODES]>(),
        pods in prop::collection::vec(any::<PodSeed>(), 0..40),
        wants in any::<PodSeed>(),
        nominated in prop::option::of(any::<PodSeed>()),
        budgets in any::<[u8; 2]>(),
    ) {
        let writer = clustered(&nodes, &pods, &budgets);
        let framework = Framework::default_profile();
        if let Some(seed) = nominated {
            let on = format!("n{}", usize::from(seed.node) % NODES);
            framework.handle().nominator().add(made("nominated".into(), &seed).build(), on.into());
        }
        let wants = made("wants".into(), &wants).build();
        let mut results = Vec::new();
        each_node(&framework, writer.cluster(), &wants, |run, _, node| {
            let lower = node.victims().below(wants.template.priority);
            if !lower.is_empty() {
                let tried = run.on_fork(lower).map(Found::into_candidate);
                results.push((run.on(node), tried));
            }
        });
        for (found, tried) in results {
            prop_assert_eq!(found, tried);
        }
    }
}

#[derive(Clone, Debug, Arbitrary)]
struct BudgetSeed {
    shape: u8,
    allowed: u8,
    disrupted: u8,
}

fn budget(n: usize, seed: &BudgetSeed) -> PodDisruptionBudget {
    let color = colored(seed.shape / 8);
    let is = |value: &str| Requirement::new("color", Operator::In, [value]);
    let requirements = match seed.shape % 8 {
        0 => None,
        1 => Some(Vec::new()),
        2 => Some(vec![Requirement::new("color", Operator::Exists, [""; 0])]),
        3 => Some(vec![Requirement::new("color", Operator::NotIn, [color])]),
        4 => Some(vec![Requirement::new("other", Operator::DoesNotExist, [""; 0]), is(color)]),
        5 => Some(vec![Requirement::new("color", Operator::In, ["red", "blue"])]),
        _ => Some(vec![is(color)]),
    };
    PodDisruptionBudget {
        namespace: if seed.allowed & 4 == 0 { "default".into() } else { "other".into() },
        // The order by name differs from the order of insertion.
        name: format!("b{}", n * 5 % 7).into(),
        selector: requirements.map_or(LabelSelector::Nothing, |all| LabelSelector::All(all.into())),
        disruptions_allowed: i32::from(seed.allowed % 4) - 1,
        disrupted_pods: Box::new([format!("p{}", seed.disrupted % 16).into()]),
    }
}

/// Checks every budget for every pod (`filterPodsWithPDBViolation`).
fn split_by_scan(cluster: &Cluster, pods: &[PodInfo<'_>]) -> (Vec<usize>, Vec<usize>) {
    let mut budgets: Vec<_> = cluster.objects().pod_disruption_budgets.iter().collect();
    budgets.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    let mut left: Vec<i32> = budgets.iter().map(|it| it.disruptions_allowed).collect();
    (0..pods.len()).partition(|at| {
        let pod = &pods[*at];
        let labels = &pod.template().labels;
        let mut violates = false;
        for (budget, left) in budgets.iter().zip(&mut left) {
            let matches_nothing = labels.is_empty() || budget.selector.is_empty();
            if !matches_nothing && budget.counts(pod.namespace(), pod.name(), labels) {
                *left -= 1;
                violates |= *left < 0;
            }
        }
        violates
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn indexed_budgets_protect_the_same_pods_as_a_scan(
        pods in prop::collection::vec(any::<PodSeed>(), 1..30),
        budgets in prop::collection::vec(any::<BudgetSeed>(), 0..9),
    ) {
        let (mut writer, _) = Engine::inline(Config::default());
        writer.add_node(node("n").hostname().cpu(100).build()).unwrap();
        for (n, seed) in pods.iter().enumerate() {
            let space = if seed.node & 1 == 0 { "default" } else { "other" };
            writer.add_pod(made(format!("p{n}"), seed).namespace(space).on("n").build()).unwrap();
        }
        for (n, seed) in budgets.iter().enumerate() {
            writer.put_object(budget(n, seed)).unwrap();
        }
        let framework = Framework::default_profile();
        let wants = pod("wants").cpu(1).priority(9).build();
        let state = CycleState::default();
        let cycle = Cycle::new(writer.cluster(), &wants, &state);
        let filters = framework.pre_filter(cycle);
        let lower = writer.cluster().node("n").unwrap().victims().below(9);
        let all: Vec<PodInfo<'_>> = lower.pods().collect();
        let found = DryRun::new(cycle, &filters).split(lower);
        prop_assert_eq!(found, split_by_scan(writer.cluster(), &all));
    }
}

/// A plugin whose filter does not declare what it reads.
struct Strange;

impl Plugin for Strange {
    fn info(&self) -> PluginInfo {
        PluginInfo::new("Strange", &[Point::Filter])
    }

    fn pre_filter<'a>(&'a self, _: Cycle<'a>) -> Result<PreFilter<'a>, Status> {
        Ok(PreFilter::Filter(Box::new(Fails)))
    }
}

/// Passes every node, and fails when a pod is removed.
struct Fails;

impl Filter for Fails {
    fn filter(&self, _: NodeInfo<'_>) -> Option<Status> {
        None
    }

    fn extend<'s>(&'s self) -> Option<Box<dyn Filter + 's>> {
        Some(Box::new(Fails))
    }

    fn remove_pod(&mut self, _: &Pod, _: NodeInfo<'_>) -> Result<(), Status> {
        Err(Status::error("Strange", "removed"))
    }
}

fn crowded() -> Writer {
    let (mut writer, _) = Engine::inline(Config::default());
    writer.add_node(node("n").hostname().cpu(1_000).pods(9).build()).unwrap();
    writer.add_pod(pod("low").cpu(400).priority(1).on("n").build()).unwrap();
    writer.add_pod(pod("high").cpu(500).priority(9).on("n").build()).unwrap();
    writer
}

#[test]
fn sums_suffice_if_only_resources_matter() {
    let writer = crowded();
    let verdicts = |pod: &Pod| {
        let mut verdicts = Vec::new();
        each_node(&Framework::default_profile(), writer.cluster(), pod, |_, diagnosis, node| {
            let freed = node.victims().below(5).freed();
            let sums = diagnosis.filters().sums();
            verdicts.push(match sums.map_or(Without::Unknown, |sums| sums.without(node, &freed)) {
                Without::Passes => "passes".to_owned(),
                Without::Rejected(status) => status.to_string(),
                Without::PassesSums => "passes sums".to_owned(),
                Without::Unknown => "unknown".to_owned(),
            });
        });
        verdicts
    };
    let wants = |cpu| pod("wants").cpu(cpu).priority(5);
    assert_eq!(verdicts(&wants(500).build()), ["passes"]);
    assert_eq!(verdicts(&wants(501).build()), ["Insufficient cpu"]);
    // The affinity requires a fork, unless the node is full anyway.
    let unlike = || apart(0);
    assert_eq!(verdicts(&wants(500).pod_anti_affinity(unlike()).build()), ["passes sums"]);
    assert_eq!(verdicts(&wants(501).pod_anti_affinity(unlike()).build()), ["Insufficient cpu"]);
}

#[test]
fn undeclared_filter_is_called_for_every_removed_pod() {
    let writer = crowded();
    let plugins: Vec<(Box<dyn Plugin>, i64)> =
        vec![(Box::new(crate::plugins::NodeResourcesFit::default()), 1), (Box::new(Strange), 1)];
    let wants = pod("wants").cpu(900).priority(5).build();
    let mut verdicts = Vec::new();
    each_node(&Framework::new(plugins).unwrap(), writer.cluster(), &wants, |run, _, node| {
        verdicts.push(run.on(node).map_err(|status| status.code));
    });
    assert_eq!(verdicts, [Err(Code::Error)]);
}
