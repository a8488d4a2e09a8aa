//! Arguments of kube-scheduler's plugins, as `pluginConfig` has them: their
//! defaults and what is refused (pkg/scheduler/apis/config).

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::framework::{Handle, Plugin};
use crate::model::{LabelSelector, Name, TopologySpreadConstraint, UnsatisfiableAction, k8s};

use super::{ResourceWeight, ScoringStrategy};

/// How a plugin that takes arguments is made of them.
pub(super) fn factory(plugin: &str) -> Option<fn(Option<&Value>, &Handle) -> Made> {
    Some(match plugin {
        "VolumeBinding" => volume_binding,
        "DefaultPreemption" => preemption,
        "NodeAffinity" => node_affinity,
        "NodeResourcesFit" => fit,
        "NodeResourcesBalancedAllocation" => balanced,
        "PodTopologySpread" => spread,
        "InterPodAffinity" => inter_pod,
        "LoadAware" => load_aware,
        _ => return None,
    })
}

pub(super) type Made = Result<Box<dyn Plugin>, String>;

pub(super) fn none(args: Option<&Value>, plugin: Box<dyn Plugin>) -> Made {
    match args {
        None | Some(Value::Null) => Ok(plugin),
        Some(_) => Err("it takes none".to_owned()),
    }
}

/// Reads arguments; without any the defaults.
fn arguments<T: DeserializeOwned + Default>(args: Option<&Value>) -> Result<T, String> {
    let Some(args) = args.filter(|args| !args.is_null()) else { return Ok(T::default()) };
    serde_path_to_error::deserialize(args).map_err(|error| {
        let path = error.path().to_string();
        format!("{path}: {}", error.into_inner())
    })
}

/// Its score is behind a gate.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct VolumeBindingArgs {
    api_version: Option<String>,
    kind: Option<String>,
    bind_timeout_seconds: Option<i64>,
    shape: Option<serde::de::IgnoredAny>,
}

fn volume_binding(args: Option<&Value>, handle: &Handle) -> Made {
    let args: VolumeBindingArgs = arguments(args)?;
    let _ = (args.api_version, args.kind);
    if args.bind_timeout_seconds.is_some_and(|seconds| seconds < 0) {
        return Err(
            "bindTimeoutSeconds: invalid BindTimeoutSeconds, should not be a negative value".into(),
        );
    }
    if args.shape.is_some() {
        return Err(
            "shape: unexpected field when feature StorageCapacityScoring is disabled".into()
        );
    }
    let mut plugin = super::VolumeBinding::new(handle);
    if let Some(seconds) = args.bind_timeout_seconds {
        plugin.bind_timeout = Duration::from_secs(seconds.unsigned_abs());
    }
    Ok(Box::new(plugin))
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct DefaultPreemptionArgs {
    api_version: Option<String>,
    kind: Option<String>,
    min_candidate_nodes_percentage: Option<i32>,
    min_candidate_nodes_absolute: Option<i32>,
}

fn preemption(args: Option<&Value>, handle: &Handle) -> Made {
    let args: DefaultPreemptionArgs = arguments(args)?;
    let _ = (args.api_version, args.kind);
    let mut plugin = super::DefaultPreemption::new(handle);
    if let Some(percentage) = args.min_candidate_nodes_percentage {
        let valid = u32::try_from(percentage).ok().filter(|percentage| *percentage <= 100);
        plugin.min_candidate_nodes_percentage =
            valid.ok_or("minCandidateNodesPercentage: not in valid range [0, 100]")?;
    }
    if let Some(absolute) = args.min_candidate_nodes_absolute {
        plugin.min_candidate_nodes_absolute = u32::try_from(absolute)
            .map_err(|_| "minCandidateNodesAbsolute: not in valid range [0, inf)")?;
    }
    if plugin.min_candidate_nodes_percentage == 0 && plugin.min_candidate_nodes_absolute == 0 {
        let what = "minCandidateNodesPercentage, minCandidateNodesAbsolute: cannot both be zero";
        return Err(what.into());
    }
    Ok(Box::new(plugin))
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct NodeAffinityArgs {
    api_version: Option<String>,
    kind: Option<String>,
    added_affinity: Option<Value>,
}

fn node_affinity(args: Option<&Value>, _: &Handle) -> Made {
    let args: NodeAffinityArgs = arguments(args)?;
    let _ = (args.api_version, args.kind);
    let added = args.added_affinity.as_ref().map(k8s::node_affinity).transpose();
    let added = added.map_err(|error| format!("addedAffinity: {error}"))?.unwrap_or_default();
    Ok(Box::new(super::NodeAffinity { added }))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ResourceSpec {
    name: String,
    #[serde(default)]
    weight: i64,
}

/// Checked weights; cpu and memory where none are given.
fn resources(given: Vec<ResourceSpec>, at: &str) -> Result<Vec<ResourceWeight>, String> {
    if given.is_empty() {
        return Ok(ResourceWeight::cpu_and_memory());
    }
    let mut resources = Vec::new();
    for ResourceSpec { name, weight } in given {
        let weight = if weight == 0 { 1 } else { weight };
        if !(1..=100).contains(&weight) {
            return Err(format!("{at}: the weight of {name} must be from 1 to 100"));
        }
        if resources.iter().any(|known: &ResourceWeight| *known.name == *name) {
            return Err(format!("{at}: {name} is there twice"));
        }
        resources.push(ResourceWeight { name: name.into(), weight });
    }
    Ok(resources)
}

/// Of Gödel's plugin (pkg/scheduler/apis/config `LoadAwareArgs`).
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct LoadAwareArgs {
    api_version: Option<String>,
    kind: Option<String>,
    resources: Vec<ClassSpec>,
    estimator: String,
    filter_expired_node_metrics: bool,
    node_metric_expiration_seconds: Option<i64>,
    usage_thresholds: BTreeMap<String, i64>,
    estimated_scaling_factors: BTreeMap<String, i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ClassSpec {
    name: String,
    #[serde(default)]
    weight: i64,
    #[serde(default)]
    resource_type: String,
}

fn load_aware(args: Option<&Value>, _: &Handle) -> Made {
    let Some(args) = args.filter(|args| !args.is_null()) else {
        return Ok(Box::new(super::LoadAware::default()));
    };
    let args: LoadAwareArgs = arguments(Some(args))?;
    let _ = (args.api_version, args.kind);
    if args.filter_expired_node_metrics {
        return Err("filterExpiredNodeMetrics: no version has a clock: leave it out".into());
    }
    if args.node_metric_expiration_seconds.is_some_and(|seconds| seconds < 0) {
        return Err("invalid negative NodeMetricExpirationSeconds".into());
    }
    let (mut guaranteed, mut best_effort) = (Vec::new(), Vec::new());
    for ClassSpec { name, weight, resource_type } in args.resources {
        if !(1..=100).contains(&weight) {
            return Err(format!("resources: the weight of {name} must be from 1 to 100"));
        }
        let of_class = match &*resource_type {
            "guaranteed" => &mut guaranteed,
            "best-effort" => &mut best_effort,
            other => return Err(format!("resource type {other} is invalid")),
        };
        of_class.push(ResourceWeight { name: name.into(), weight });
    }
    let percent = |of: &BTreeMap<String, i64>| super::Percent {
        cpu: of.get("cpu").copied(),
        memory: of.get("memory").copied(),
    };
    let measured = super::Measured {
        most: percent(&args.usage_thresholds),
        used: percent(&args.estimated_scaling_factors),
    };
    // Every other name is the default's.
    let measured = (args.estimator == "nodeMetricEstimator").then_some(measured);
    Ok(Box::new(super::LoadAware { guaranteed, best_effort, measured }))
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct FitArgs {
    api_version: Option<String>,
    kind: Option<String>,
    ignored_resources: Vec<String>,
    ignored_resource_groups: Vec<String>,
    scoring_strategy: Option<Strategy>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Strategy {
    #[serde(rename = "type")]
    kind: Option<StrategyKind>,
    #[serde(default)]
    resources: Vec<ResourceSpec>,
    requested_to_capacity_ratio: Option<Ratio>,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
enum StrategyKind {
    LeastAllocated,
    MostAllocated,
    RequestedToCapacityRatio,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Ratio {
    #[serde(default)]
    shape: Vec<Point>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Point {
    #[serde(default)]
    utilization: i64,
    #[serde(default)]
    score: i64,
}

fn fit(args: Option<&Value>, _: &Handle) -> Made {
    let args: FitArgs = arguments(args)?;
    let _ = (args.api_version, args.kind);
    if let Some(group) = args.ignored_resource_groups.iter().find(|group| group.contains('/')) {
        return Err(format!(
            "ignoredResourceGroups: resource group name can't contain '/': {group}"
        ));
    }
    let names = |names: Vec<String>| names.into_iter().map(Name::from).collect();
    let mut plugin = super::NodeResourcesFit {
        ignored_resources: names(args.ignored_resources),
        ignored_resource_groups: names(args.ignored_resource_groups),
        ..super::NodeResourcesFit::default()
    };
    let Some(strategy) = args.scoring_strategy else { return Ok(Box::new(plugin)) };
    plugin.resources = resources(strategy.resources, "scoringStrategy.resources")?;
    let kind = strategy.kind.unwrap_or(StrategyKind::LeastAllocated);
    let at = "scoringStrategy.requestedToCapacityRatio";
    plugin.strategy = match (kind, strategy.requested_to_capacity_ratio) {
        (StrategyKind::RequestedToCapacityRatio, Some(ratio)) => {
            ScoringStrategy::RequestedToCapacityRatio(shape(ratio.shape, at)?)
        }
        (StrategyKind::RequestedToCapacityRatio, None) => {
            return Err(format!("{at}: is required for this type"));
        }
        (_, Some(_)) => {
            return Err(format!("{at}: must be nil when type is not RequestedToCapacityRatio"));
        }
        (StrategyKind::LeastAllocated, None) => ScoringStrategy::LeastAllocated,
        (StrategyKind::MostAllocated, None) => ScoringStrategy::MostAllocated,
    };
    Ok(Box::new(plugin))
}

fn shape(points: Vec<Point>, at: &str) -> Result<Vec<(i64, i64)>, String> {
    if points.is_empty() {
        return Err(format!("{at}.shape: at least one point must be specified"));
    }
    let mut shape: Vec<(i64, i64)> = Vec::new();
    for Point { utilization, score } in points {
        if !(0..=100).contains(&utilization) || !(0..=10).contains(&score) {
            return Err(format!("{at}.shape: utilization goes from 0 to 100, score from 0 to 10"));
        }
        if shape.last().is_some_and(|(last, _)| *last >= utilization) {
            return Err(format!(
                "{at}.shape: utilization values must be sorted in increasing order"
            ));
        }
        shape.push((utilization, score));
    }
    Ok(shape)
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct BalancedArgs {
    api_version: Option<String>,
    kind: Option<String>,
    resources: Vec<ResourceSpec>,
}

fn balanced(args: Option<&Value>, _: &Handle) -> Made {
    let args: BalancedArgs = arguments(args)?;
    let _ = (args.api_version, args.kind);
    let resources = resources(args.resources, "resources")?;
    Ok(Box::new(super::NodeResourcesBalancedAllocation { resources }))
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct InterPodArgs {
    api_version: Option<String>,
    kind: Option<String>,
    hard_pod_affinity_weight: Option<i64>,
    ignore_preferred_terms_of_existing_pods: bool,
}

fn inter_pod(args: Option<&Value>, _: &Handle) -> Made {
    let args: InterPodArgs = arguments(args)?;
    let _ = (args.api_version, args.kind);
    let weight = args.hard_pod_affinity_weight.unwrap_or(1);
    if !(0..=100).contains(&weight) {
        return Err("hardPodAffinityWeight: not in valid range [0, 100]".to_owned());
    }
    let ignores = args.ignore_preferred_terms_of_existing_pods;
    Ok(Box::new(super::InterPodAffinity::new(weight, ignores)))
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct SpreadArgs {
    api_version: Option<String>,
    kind: Option<String>,
    default_constraints: Vec<DefaultConstraint>,
    defaulting_type: Option<DefaultingType>,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
enum DefaultingType {
    System,
    List,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DefaultConstraint {
    max_skew: i32,
    topology_key: String,
    when_unsatisfiable: Action,
    label_selector: Option<Value>,
    min_domains: Option<i32>,
}

#[derive(Clone, Copy, Deserialize)]
enum Action {
    DoNotSchedule,
    ScheduleAnyway,
}

fn spread(args: Option<&Value>, _: &Handle) -> Made {
    let args: SpreadArgs = arguments(args)?;
    let _ = (args.api_version, args.kind);
    let at = "defaultConstraints";
    if args.defaulting_type.unwrap_or(DefaultingType::System) == DefaultingType::System {
        return match args.default_constraints.is_empty() {
            true => Ok(Box::new(super::PodTopologySpread::default())),
            false => Err(format!("{at}: when .defaultingType is System, must be empty")),
        };
    }
    let mut constraints: Vec<TopologySpreadConstraint> = Vec::new();
    for given in args.default_constraints {
        if given.max_skew <= 0 {
            return Err(format!("{at}: maxSkew must be greater than zero"));
        }
        if given.topology_key.is_empty() {
            return Err(format!("{at}: topologyKey can not be empty"));
        }
        if given.label_selector.is_some() {
            return Err(format!("{at}: constraint must not define a selector"));
        }
        if given.min_domains.is_some_and(|n| n <= 0) {
            return Err(format!("{at}: minDomains must be greater than zero"));
        }
        let when_unsatisfiable = match given.when_unsatisfiable {
            Action::DoNotSchedule => UnsatisfiableAction::DoNotSchedule,
            Action::ScheduleAnyway => UnsatisfiableAction::ScheduleAnyway,
        };
        let is_there = |known: &TopologySpreadConstraint| {
            *known.topology_key == *given.topology_key
                && known.when_unsatisfiable == when_unsatisfiable
        };
        if constraints.iter().any(is_there) {
            return Err(format!("{at}: {} is there twice", given.topology_key));
        }
        constraints.push(TopologySpreadConstraint {
            max_skew: given.max_skew,
            topology_key: given.topology_key.into(),
            when_unsatisfiable,
            selector: LabelSelector::Nothing,
            min_domains: given.min_domains,
            honor_node_affinity: true,
            honor_node_taints: false,
            match_label_keys: Box::default(),
        });
    }
    Ok(Box::new(super::PodTopologySpread::with_default_constraints(constraints)))
}
