//! The arguments of kube-scheduler's plugins in `pluginConfig`: defaults and validation as in
//! pkg/scheduler/apis/config.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use portolan::model::{LabelSelector, Name, TopologySpreadConstraint, UnsatisfiableAction};
use portolan::plugin::{self, Handle, Plugin, ResourceWeight, ScoringStrategy};

use portolan_dra::plugin::{Backend, DynamicResources};

use super::duration::go_duration;
use super::registry::{ArgsError, PluginArgs};

/// Returns the factory of an in-tree plugin that takes arguments.
pub(super) fn factory(plugin: &str) -> Option<fn(PluginArgs<'_>, &Handle) -> Made> {
    Some(match plugin {
        "VolumeBinding" => volume_binding,
        "DefaultPreemption" => preemption,
        "NodeAffinity" => node_affinity,
        "NodeResourcesFit" => fit,
        "NodeResourcesBalancedAllocation" => balanced,
        "PodTopologySpread" => spread,
        "InterPodAffinity" => inter_pod,
        _ => return None,
    })
}

type Made = Result<Box<dyn Plugin>, ArgsError>;

/// `shape` is rejected, because its score is behind a feature gate that is off.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct VolumeBindingArgs {
    bind_timeout_seconds: Option<i64>,
    shape: Option<serde::de::IgnoredAny>,
}

fn volume_binding(given: PluginArgs<'_>, handle: &Handle) -> Made {
    let args: VolumeBindingArgs = given.parse_versioned()?;
    if args.bind_timeout_seconds.is_some_and(|seconds| seconds < 0) {
        let reason = "invalid BindTimeoutSeconds, should not be a negative value";
        return Err(given.invalid("bindTimeoutSeconds", reason));
    }
    if args.shape.is_some() {
        let reason = "unexpected field when feature StorageCapacityScoring is disabled";
        return Err(given.invalid("shape", reason));
    }
    let mut plugin = plugin::VolumeBinding::new(handle);
    if let Some(seconds) = args.bind_timeout_seconds {
        plugin.bind_timeout = Duration::from_secs(seconds.unsigned_abs());
    }
    Ok(Box::new(plugin))
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct DefaultPreemptionArgs {
    min_candidate_nodes_percentage: Option<i32>,
    min_candidate_nodes_absolute: Option<i32>,
}

fn preemption(given: PluginArgs<'_>, handle: &Handle) -> Made {
    let args: DefaultPreemptionArgs = given.parse_versioned()?;
    let mut plugin = plugin::DefaultPreemption::new(handle);
    if let Some(percentage) = args.min_candidate_nodes_percentage {
        let valid = u32::try_from(percentage).ok().filter(|percentage| *percentage <= 100);
        plugin.min_candidate_nodes_percentage = valid.ok_or_else(|| {
            given.invalid("minCandidateNodesPercentage", "not in valid range [0, 100]")
        })?;
    }
    if let Some(absolute) = args.min_candidate_nodes_absolute {
        plugin.min_candidate_nodes_absolute = u32::try_from(absolute).map_err(|_| {
            given.invalid("minCandidateNodesAbsolute", "not in valid range [0, inf)")
        })?;
    }
    if plugin.min_candidate_nodes_percentage == 0 && plugin.min_candidate_nodes_absolute == 0 {
        let fields = "minCandidateNodesPercentage, minCandidateNodesAbsolute";
        return Err(given.invalid(fields, "cannot both be zero"));
    }
    Ok(Box::new(plugin))
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct NodeAffinityArgs {
    added_affinity: Option<Value>,
}

fn node_affinity(given: PluginArgs<'_>, _: &Handle) -> Made {
    let args: NodeAffinityArgs = given.parse_versioned()?;
    let added = args.added_affinity.as_ref().map(crate::single::node_affinity).transpose();
    let added = added.map_err(|error| given.invalid("addedAffinity", error.to_string()))?;
    let added = added.unwrap_or_default();
    Ok(Box::new(plugin::NodeAffinity { added }))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ResourceSpec {
    name: String,
    #[serde(default)]
    weight: i64,
}

/// Returns the weights after validation. The default is CPU and memory.
fn resources(
    given: PluginArgs<'_>,
    specs: Vec<ResourceSpec>,
    at: &str,
) -> Result<Vec<ResourceWeight>, ArgsError> {
    if specs.is_empty() {
        return Ok(ResourceWeight::cpu_and_memory());
    }
    let mut resources = Vec::new();
    for (i, ResourceSpec { name, weight }) in specs.into_iter().enumerate() {
        let weight = if weight == 0 { 1 } else { weight };
        if !(1..=100).contains(&weight) {
            let reason = format!("the weight of {name} must be from 1 to 100");
            return Err(given.invalid(format!("{at}[{i}].weight"), reason));
        }
        if resources.iter().any(|known: &ResourceWeight| *known.name == *name) {
            return Err(given.invalid(format!("{at}[{i}].name"), format!("{name} is listed twice")));
        }
        resources.push(ResourceWeight { name: name.into(), weight });
    }
    Ok(resources)
}

/// The arguments of the plugin that allocates devices. `filterTimeout` is checked and has no effect: the search is bounded
/// by its steps, so that decisions repeat.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct DynamicResourcesArgs {
    filter_timeout: Option<String>,
    binding_timeout: Option<String>,
}

pub(super) fn dynamic_resources(
    given: PluginArgs<'_>,
    handle: &Handle,
    backend: Arc<dyn Backend>,
) -> Made {
    let args: DynamicResourcesArgs = given.parse_versioned()?;
    let duration = |field: &str, text: &Option<String>, least: Duration, reason: &str| {
        let Some(text) = text else { return Ok(None) };
        let nanos = go_duration(text).map_err(|error| given.invalid(field, error))?;
        let duration = u64::try_from(nanos).ok().map(Duration::from_nanos);
        let valid = duration.filter(|duration| *duration >= least);
        valid.map(Some).ok_or_else(|| given.invalid(field, reason))
    };
    duration("filterTimeout", &args.filter_timeout, Duration::ZERO, "must be zero or positive")?;
    let least = Duration::from_secs(1);
    let timeout =
        duration("bindingTimeout", &args.binding_timeout, least, "must be at least 1 second")?;
    let plugin = DynamicResources::new(handle, backend);
    Ok(Box::new(match timeout {
        Some(timeout) => plugin.with_binding_timeout(timeout),
        None => plugin,
    }))
}

/// The arguments of Gödel's plugin (pkg/scheduler/apis/config `LoadAwareArgs`).
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct LoadAwareArgs {
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

pub(super) fn load_aware(given: PluginArgs<'_>, _: &Handle) -> Made {
    if !given.are_given() {
        return Ok(Box::new(plugin::LoadAware::default()));
    }
    let args: LoadAwareArgs = given.parse_versioned()?;
    if args.filter_expired_node_metrics {
        let reason = "not supported: expiry depends on the time, and versions have no clock";
        return Err(given.invalid("filterExpiredNodeMetrics", reason));
    }
    if args.node_metric_expiration_seconds.is_some_and(|seconds| seconds < 0) {
        let reason = "invalid negative NodeMetricExpirationSeconds";
        return Err(given.invalid("nodeMetricExpirationSeconds", reason));
    }
    let (mut guaranteed, mut best_effort) = (Vec::new(), Vec::new());
    for (i, ClassSpec { name, weight, resource_type }) in args.resources.into_iter().enumerate() {
        if !(1..=100).contains(&weight) {
            let reason = format!("the weight of {name} must be from 1 to 100");
            return Err(given.invalid(format!("resources[{i}].weight"), reason));
        }
        let of_class = match &*resource_type {
            "guaranteed" => &mut guaranteed,
            "best-effort" => &mut best_effort,
            other => {
                let reason = format!("resource type {other} is invalid");
                return Err(given.invalid(format!("resources[{i}].resourceType"), reason));
            }
        };
        of_class.push(ResourceWeight { name: name.into(), weight });
    }
    let percent = |values: &BTreeMap<String, i64>| plugin::Percent {
        cpu: values.get("cpu").copied(),
        memory: values.get("memory").copied(),
    };
    let measured = plugin::Measured {
        most: percent(&args.usage_thresholds),
        used: percent(&args.estimated_scaling_factors),
    };
    // Every other name selects the default estimator.
    let measured = (args.estimator == "nodeMetricEstimator").then_some(measured);
    Ok(Box::new(plugin::LoadAware { guaranteed, best_effort, measured }))
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct FitArgs {
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

fn fit(given: PluginArgs<'_>, _: &Handle) -> Made {
    let args: FitArgs = given.parse_versioned()?;
    if let Some(group) = args.ignored_resource_groups.iter().find(|group| group.contains('/')) {
        let reason = format!("resource group name can't contain '/': {group}");
        return Err(given.invalid("ignoredResourceGroups", reason));
    }
    let names = |names: Vec<String>| names.into_iter().map(Name::from).collect();
    let mut plugin = plugin::NodeResourcesFit {
        ignored_resources: names(args.ignored_resources),
        ignored_resource_groups: names(args.ignored_resource_groups),
        ..plugin::NodeResourcesFit::default()
    };
    let Some(strategy) = args.scoring_strategy else { return Ok(Box::new(plugin)) };
    plugin.resources = resources(given, strategy.resources, "scoringStrategy.resources")?;
    let kind = strategy.kind.unwrap_or(StrategyKind::LeastAllocated);
    let at = "scoringStrategy.requestedToCapacityRatio";
    plugin.strategy = match (kind, strategy.requested_to_capacity_ratio) {
        (StrategyKind::RequestedToCapacityRatio, Some(ratio)) => {
            ScoringStrategy::RequestedToCapacityRatio(shape(given, ratio.shape, at)?)
        }
        (StrategyKind::RequestedToCapacityRatio, None) => {
            return Err(given.invalid(at, "is required for this type"));
        }
        (_, Some(_)) => {
            let reason = "must be nil when type is not RequestedToCapacityRatio";
            return Err(given.invalid(at, reason));
        }
        (StrategyKind::LeastAllocated, None) => ScoringStrategy::LeastAllocated,
        (StrategyKind::MostAllocated, None) => ScoringStrategy::MostAllocated,
    };
    Ok(Box::new(plugin))
}

fn shape(
    given: PluginArgs<'_>,
    points: Vec<Point>,
    at: &str,
) -> Result<Vec<(i64, i64)>, ArgsError> {
    if points.is_empty() {
        let reason = "at least one point must be specified";
        return Err(given.invalid(format!("{at}.shape"), reason));
    }
    let mut shape: Vec<(i64, i64)> = Vec::new();
    for (i, Point { utilization, score }) in points.into_iter().enumerate() {
        let invalid = |reason: &str| Err(given.invalid(format!("{at}.shape[{i}]"), reason));
        if !(0..=100).contains(&utilization) || !(0..=10).contains(&score) {
            return invalid("utilization must be from 0 to 100, and score from 0 to 10");
        }
        if shape.last().is_some_and(|(last, _)| *last >= utilization) {
            return invalid("utilization values must be sorted in increasing order");
        }
        shape.push((utilization, score));
    }
    Ok(shape)
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct BalancedArgs {
    resources: Vec<ResourceSpec>,
}

fn balanced(given: PluginArgs<'_>, _: &Handle) -> Made {
    let args: BalancedArgs = given.parse_versioned()?;
    let resources = resources(given, args.resources, "resources")?;
    Ok(Box::new(plugin::NodeResourcesBalancedAllocation { resources }))
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct InterPodArgs {
    hard_pod_affinity_weight: Option<i64>,
    ignore_preferred_terms_of_existing_pods: bool,
}

fn inter_pod(given: PluginArgs<'_>, _: &Handle) -> Made {
    let args: InterPodArgs = given.parse_versioned()?;
    let weight = args.hard_pod_affinity_weight.unwrap_or(1);
    if !(0..=100).contains(&weight) {
        return Err(given.invalid("hardPodAffinityWeight", "not in valid range [0, 100]"));
    }
    let ignores = args.ignore_preferred_terms_of_existing_pods;
    Ok(Box::new(plugin::InterPodAffinity::new(weight, ignores)))
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct SpreadArgs {
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

fn spread(given: PluginArgs<'_>, _: &Handle) -> Made {
    let args: SpreadArgs = given.parse_versioned()?;
    let at = "defaultConstraints";
    if args.defaulting_type.unwrap_or(DefaultingType::System) == DefaultingType::System {
        return match args.default_constraints.is_empty() {
            true => Ok(Box::new(plugin::PodTopologySpread::default())),
            false => Err(given.invalid(at, "when .defaultingType is System, must be empty")),
        };
    }
    let mut constraints: Vec<TopologySpreadConstraint> = Vec::new();
    for (i, constraint) in args.default_constraints.into_iter().enumerate() {
        let invalid =
            |field: &str, reason: &str| Err(given.invalid(format!("{at}[{i}].{field}"), reason));
        if constraint.max_skew <= 0 {
            return invalid("maxSkew", "must be greater than zero");
        }
        if constraint.topology_key.is_empty() {
            return invalid("topologyKey", "can not be empty");
        }
        if constraint.label_selector.is_some() {
            return invalid("labelSelector", "constraint must not define a selector");
        }
        if constraint.min_domains.is_some_and(|n| n <= 0) {
            return invalid("minDomains", "must be greater than zero");
        }
        let when_unsatisfiable = match constraint.when_unsatisfiable {
            Action::DoNotSchedule => UnsatisfiableAction::DoNotSchedule,
            Action::ScheduleAnyway => UnsatisfiableAction::ScheduleAnyway,
        };
        let is_there = |known: &TopologySpreadConstraint| {
            *known.topology_key == *constraint.topology_key
                && known.when_unsatisfiable == when_unsatisfiable
        };
        if constraints.iter().any(is_there) {
            return invalid("topologyKey", &format!("{} is listed twice", constraint.topology_key));
        }
        constraints.push(TopologySpreadConstraint {
            max_skew: constraint.max_skew,
            topology_key: constraint.topology_key.into(),
            when_unsatisfiable,
            selector: LabelSelector::Nothing,
            min_domains: constraint.min_domains,
            honor_node_affinity: true,
            honor_node_taints: false,
            match_label_keys: Box::default(),
        });
    }
    Ok(Box::new(plugin::PodTopologySpread::with_default_constraints(constraints)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arguments_may_name_their_version_and_kind_as_texts() {
        let made = |args: Value| {
            let args = PluginArgs::new("InterPodAffinity", Some(&args));
            inter_pod(args, &Handle::default()).err().map(|error| error.field().to_owned())
        };
        let version = "kubescheduler.config.k8s.io/v1";
        let args = json!({ "apiVersion": version, "kind": "InterPodAffinityArgs" });
        assert_eq!(made(args), None);
        assert_eq!(made(json!({ "apiVersion": 1 })), Some("apiVersion".to_owned()));
        let weight = json!({ "kind": "InterPodAffinityArgs", "hardPodAffinityWeight": "1" });
        assert_eq!(made(weight), Some("hardPodAffinityWeight".to_owned()));
        assert_eq!(made(json!({ "version": version })), Some("version".to_owned()));
    }

    #[test]
    fn load_aware_accepts_the_arguments_of_godel() {
        let made = |args: Value| {
            let args = PluginArgs::new("LoadAware", Some(&args));
            load_aware(args, &Handle::default()).err().map(|error| error.to_string())
        };
        let resource = |class: &str, weight: i64| json!([{ "name": "cpu", "weight": weight, "resourceType": class }]);
        let all = json!({
            "resources": resource("guaranteed", 2), "estimator": "nodeMetricEstimator",
            "usageThresholds": { "cpu": 80 }, "estimatedScalingFactors": { "memory": 70 },
        });
        assert_eq!(made(all), None);
        assert_eq!(made(Value::Null), None);
        let refused = |args: Value| made(args).unwrap_or_default();
        assert!(refused(json!({ "resources": resource("x", 1) })).contains("type x is invalid"));
        assert!(refused(json!({ "resources": resource("guaranteed", 0) })).contains("weight"));
        assert!(
            refused(json!({ "filterExpiredNodeMetrics": true })).contains("depends on the time")
        );
    }
}
