//! `KubeSchedulerConfiguration` v1: profiles from YAML.
//!
//! Defaults, the expansion of `multiPoint` and what is refused are those of
//! kube-scheduler (pkg/scheduler/apis/config, framework/runtime). Every error
//! names the line.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_saphyr::Spanned;

use crate::model::{LabelSelector, Name, TopologySpreadConstraint, UnsatisfiableAction, k8s};
use crate::plugins::{self, ResourceWeight, ScoringStrategy};

use super::{Framework, Plugin};

/// A configuration cannot be used; nothing of it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    line: u64,
    what: String,
}

impl ConfigError {
    fn new(line: u64, what: impl Into<String>) -> ConfigError {
        ConfigError { line, what: what.into() }
    }

    /// What is wrong there.
    #[must_use]
    pub fn what(&self) -> &str {
        &self.what
    }

    /// The line, counted from 1; 0 where the whole text is meant.
    #[must_use]
    pub fn line(&self) -> u64 {
        self.line
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.what),
            line => write!(f, "line {line}: {}", self.what),
        }
    }
}

impl std::error::Error for ConfigError {}

/// Makes a plugin of its arguments, none of them given where there are none.
///
/// The error says what is wrong with which of them.
pub type Factory = Box<dyn Fn(Option<&Value>) -> Result<Box<dyn Plugin>, String> + Send + Sync>;

/// Plugins by name, as factories.
#[derive(Default)]
pub struct Registry(BTreeMap<String, Factory>);

/// A name is taken already, or is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// There is a plugin of this name: take another, or unregister it.
    #[error("a plugin named {0} already exists: take another name, or unregister it first")]
    Exists(String),
    /// There is no plugin of this name.
    #[error("no plugin named {0} exists")]
    NotFound(String),
}

impl Registry {
    /// Kube-scheduler's plugins, as far as they filter or score.
    #[must_use]
    pub fn in_tree() -> Registry {
        let mut registry = Registry::default();
        let mut add = |name: &str, factory: Factory| {
            registry.0.insert(name.to_owned(), factory);
        };
        add("NodeUnschedulable", Box::new(|args| none(args, plugins::NodeUnschedulable)));
        add("NodeDeclaredFeatures", Box::new(|args| none(args, plugins::NodeDeclaredFeatures)));
        add("NodeName", Box::new(|args| none(args, plugins::NodeName)));
        add("TaintToleration", Box::new(|args| none(args, plugins::TaintToleration)));
        add("NodePorts", Box::new(|args| none(args, plugins::NodePorts)));
        add("ImageLocality", Box::new(|args| none(args, plugins::ImageLocality)));
        add("VolumeRestrictions", Box::new(|args| none(args, plugins::VolumeRestrictions)));
        add("NodeVolumeLimits", Box::new(|args| none(args, plugins::NodeVolumeLimits)));
        add("VolumeZone", Box::new(|args| none(args, plugins::VolumeZone)));
        add("VolumeBinding", Box::new(volume_binding));
        add("NodeAffinity", Box::new(node_affinity));
        add("NodeResourcesFit", Box::new(fit));
        add("NodeResourcesBalancedAllocation", Box::new(balanced));
        add("PodTopologySpread", Box::new(spread));
        add("InterPodAffinity", Box::new(inter_pod));
        registry
    }

    /// Adds a plugin.
    ///
    /// # Errors
    ///
    /// The name is taken.
    pub fn register(&mut self, name: &str, factory: Factory) -> Result<(), RegistryError> {
        if self.0.contains_key(name) {
            return Err(RegistryError::Exists(name.to_owned()));
        }
        self.0.insert(name.to_owned(), factory);
        Ok(())
    }

    /// Takes a plugin away.
    ///
    /// # Errors
    ///
    /// There is none of this name.
    pub fn unregister(&mut self, name: &str) -> Result<(), RegistryError> {
        match self.0.remove(name) {
            Some(_) => Ok(()),
            None => Err(RegistryError::NotFound(name.to_owned())),
        }
    }

    /// Adds all of another's plugins.
    ///
    /// # Errors
    ///
    /// One of its names is taken; nothing is added then.
    pub fn merge(&mut self, other: Registry) -> Result<(), RegistryError> {
        if let Some(name) = other.0.keys().find(|name| self.0.contains_key(*name)) {
            return Err(RegistryError::Exists(name.clone()));
        }
        self.0.extend(other.0);
        Ok(())
    }
}

/// In-tree plugins that neither filter nor score here: a configuration may name
/// them.
const ELSEWHERE: [&str; 6] = [
    "SchedulingGates",
    "PrioritySort",
    "DefaultBinder",
    "DefaultPreemption",
    "DynamicResources",
    "GangScheduling",
];

/// The default profile: names in order, and weights.
const DEFAULT: [(&str, i64); 15] = [
    ("NodeUnschedulable", 0),
    ("NodeName", 0),
    ("TaintToleration", 3),
    ("NodeAffinity", 2),
    ("NodePorts", 0),
    ("NodeResourcesFit", 1),
    ("VolumeRestrictions", 0),
    ("NodeVolumeLimits", 0),
    ("VolumeBinding", 0),
    ("VolumeZone", 0),
    ("PodTopologySpread", 2),
    ("InterPodAffinity", 2),
    ("NodeResourcesBalancedAllocation", 1),
    ("ImageLocality", 1),
    ("NodeDeclaredFeatures", 0),
];

/// A configuration that was read.
pub struct Configuration {
    /// `percentageOfNodesToScore`, 0 where it adapts.
    pub percentage_of_nodes: u8,
    /// `parallelism`.
    pub parallelism: u32,
    /// The profiles, by the names of their schedulers; at least one.
    pub profiles: Vec<Profile>,
}

/// What one scheduler does.
pub struct Profile {
    /// Pods name it in `spec.schedulerName`.
    pub scheduler_name: String,
    /// Its own `percentageOfNodesToScore`.
    pub percentage_of_nodes: Option<u8>,
    /// Its plugins.
    pub framework: Framework,
}

impl Configuration {
    /// Reads a configuration with the plugins of a registry.
    ///
    /// ```
    /// use portolan::framework::config::{Configuration, Registry};
    ///
    /// let registry = Registry::in_tree();
    /// let read = |text| Configuration::read(text, &registry);
    /// let configuration = read("
    /// apiVersion: kubescheduler.config.k8s.io/v1
    /// kind: KubeSchedulerConfiguration
    /// profiles:
    /// - plugins: {score: {disabled: [{name: ImageLocality}]}}
    /// ")?;
    /// assert_eq!(configuration.profiles[0].scheduler_name, "default-scheduler");
    ///
    /// let error = read("
    /// apiVersion: kubescheduler.config.k8s.io/v1
    /// kind: KubeSchedulerConfiguration
    /// profiles:
    /// - plugins: {filter: {enabled: [{name: Nonesuch}]}}
    /// ").err().unwrap();
    /// assert_eq!(error.line(), 5);
    /// # Ok::<(), portolan::framework::config::ConfigError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// What kube-scheduler would refuse, with the line.
    pub fn read(text: &str, registry: &Registry) -> Result<Configuration, ConfigError> {
        let options = k8s::yaml_options(text.len());
        let read = serde_saphyr::from_str_with_options(text, options);
        let wire: WireConfiguration = read.map_err(|error| {
            let line = error.location().map_or(1, |at| at.line());
            let message = error.without_snippet().to_string();
            ConfigError::new(line, message.split(" at line ").next().unwrap_or_default())
        })?;
        let expected = ("kubescheduler.config.k8s.io/v1", "KubeSchedulerConfiguration");
        if (&*wire.api_version.value, &*wire.kind.value) != expected {
            let (version, kind) = expected;
            return Err(ConfigError::new(
                wire.api_version.referenced.line(),
                format!("only {kind} of {version} is read: convert the file to it"),
            ));
        }
        let percentage_of_nodes = percentage(wire.percentage_of_nodes_to_score.as_ref())?;
        let mut names = BTreeSet::new();
        let mut profiles = Vec::new();
        let default = WireProfile::default();
        let given = wire.profiles.iter().map(|given| (&given.value, given.referenced.line()));
        let one = wire.profiles.is_empty().then_some((&default, 0));
        for (profile, start) in given.chain(one) {
            let (name, line) = match &profile.scheduler_name {
                Some(name) => (&*name.value, name.referenced.line()),
                None => ("default-scheduler", start),
            };
            if !names.insert(name.to_owned()) {
                return Err(ConfigError::new(
                    line,
                    format!("schedulerName {name:?} is there twice"),
                ));
            }
            profiles.push(Profile {
                scheduler_name: name.to_owned(),
                percentage_of_nodes: match &profile.percentage_of_nodes_to_score {
                    None => None,
                    given => Some(percentage(given.as_ref())?.unwrap_or(0)),
                },
                // What a profile does not name itself fails on its first line.
                framework: framework(profile, registry).map_err(|error| match error.line {
                    0 => ConfigError { line: start, ..error },
                    _ => error,
                })?,
            });
        }
        Ok(Configuration {
            percentage_of_nodes: percentage_of_nodes.unwrap_or(0),
            parallelism: match &wire.parallelism {
                None => 16,
                Some(given) => u32::try_from(given.value)
                    .ok()
                    .filter(|n| *n > 0)
                    .ok_or_else(|| at(given, "parallelism must be greater than 0"))?,
            },
            profiles,
        })
    }
}

fn at<T>(value: &Spanned<T>, what: impl Into<String>) -> ConfigError {
    ConfigError::new(value.referenced.line(), what)
}

fn percentage(given: Option<&Spanned<i64>>) -> Result<Option<u8>, ConfigError> {
    let Some(given) = given else { return Ok(None) };
    match u8::try_from(given.value) {
        Ok(percentage @ 0..=100) => Ok(Some(percentage)),
        _ => Err(at(given, "percentageOfNodesToScore must be from 0 to 100")),
    }
}

/// The plugins of one extension point: names in order, each with the weight
/// that is given for it (0 for none) and its line.
type Enabled = Vec<(String, i64, u64)>;

/// One profile: the default plugins, changed as it says.
fn framework(profile: &WireProfile, registry: &Registry) -> Result<Framework, ConfigError> {
    let sets = &profile.plugins;
    for set in sets.all() {
        set.check(registry)?;
    }
    let defaults = DEFAULT.iter().map(|(name, weight)| ((*name).to_owned(), *weight, 0));
    let multi_point = sets.multi_point.merge(defaults.collect());
    let filters = sets.filter.expand(&multi_point);
    let scores = sets.score.expand(&multi_point);
    let mut args = BTreeMap::new();
    for given in &profile.plugin_config {
        let name = &given.name;
        if !registry.0.contains_key(&name.value) && !ELSEWHERE.contains(&&*name.value) {
            return Err(at(name, unknown(&name.value)));
        }
        if args.insert(&*name.value, given).is_some() {
            return Err(at(name, format!("pluginConfig for {} is there twice", name.value)));
        }
    }
    let mut made: Vec<(String, Box<dyn Plugin>)> = Vec::new();
    for (name, _, line) in filters.iter().chain(&scores) {
        let Some(factory) = registry.0.get(name) else { continue };
        if made.iter().any(|(known, _)| known == name) {
            continue;
        }
        let given = args.get(&**name);
        let line = given.map_or(*line, |given| given.name.referenced.line());
        let value = given.and_then(|given| given.args.as_ref());
        let plugin = factory(value)
            .map_err(|what| ConfigError::new(line, format!("arguments of {name}: {what}")))?;
        made.push((name.clone(), plugin));
    }
    let position = |name: &str| made.iter().position(|(known, _)| known == name);
    let filters = filters.iter().filter_map(|(name, _, _)| position(name)).collect();
    let mut weighted: Vec<(usize, i64)> = Vec::new();
    let mut total = 0_i64;
    for (name, weight, line) in &scores {
        let Some(at) = position(name) else { continue };
        // A weight that is not given for the score is the multi-point's.
        let from_multi = multi_point.iter().find(|(known, _, _)| known == name);
        let explicit = sets.score.enabled.iter().any(|e| e.name.value == *name);
        let weight = match (*weight, explicit) {
            (0, false) => from_multi.map_or(0, |(_, weight, _)| *weight),
            (weight, _) => weight,
        }
        .max(1);
        total = weight.checked_mul(100).and_then(|score| total.checked_add(score)).ok_or_else(
            || {
                let what = "score plugins: total score of Score plugins could overflow";
                ConfigError::new(*line, what)
            },
        )?;
        weighted.push((at, weight));
    }
    // Plugins that do not score at all have no weight in the default profile.
    let plugins = made.into_iter().map(|(_, plugin)| plugin).collect();
    Ok(Framework::with_order(plugins, filters, weighted))
}

fn unknown(name: &str) -> String {
    format!("plugin {name:?} does not exist: register it, or see to its spelling")
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "what concerns the process around a scheduler is read and not used")]
struct WireConfiguration {
    api_version: Spanned<String>,
    kind: Spanned<String>,
    parallelism: Option<Spanned<i64>>,
    percentage_of_nodes_to_score: Option<Spanned<i64>>,
    #[serde(default)]
    profiles: Vec<Spanned<WireProfile>>,
    leader_election: Option<serde::de::IgnoredAny>,
    client_connection: Option<serde::de::IgnoredAny>,
    enable_profiling: Option<bool>,
    enable_contention_profiling: Option<bool>,
    pod_initial_backoff_seconds: Option<i64>,
    pod_max_backoff_seconds: Option<i64>,
    extenders: Option<serde::de::IgnoredAny>,
    delay_cache_until_active: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct WireProfile {
    scheduler_name: Option<Spanned<String>>,
    percentage_of_nodes_to_score: Option<Spanned<i64>>,
    plugins: WirePlugins,
    plugin_config: Vec<WireArgs>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WireArgs {
    name: Spanned<String>,
    args: Option<Value>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct WirePlugins {
    multi_point: WireSet,
    pre_enqueue: WireSet,
    queue_sort: WireSet,
    pre_filter: WireSet,
    filter: WireSet,
    post_filter: WireSet,
    pre_score: WireSet,
    score: WireSet,
    reserve: WireSet,
    permit: WireSet,
    pre_bind: WireSet,
    bind: WireSet,
    post_bind: WireSet,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct WireSet {
    enabled: Vec<WirePlugin>,
    disabled: Vec<WirePlugin>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WirePlugin {
    name: Spanned<String>,
    #[serde(default)]
    weight: i64,
}

impl WirePlugins {
    fn all(&self) -> [&WireSet; 13] {
        [
            &self.multi_point,
            &self.pre_enqueue,
            &self.queue_sort,
            &self.pre_filter,
            &self.filter,
            &self.post_filter,
            &self.pre_score,
            &self.score,
            &self.reserve,
            &self.permit,
            &self.pre_bind,
            &self.bind,
            &self.post_bind,
        ]
    }
}

impl WireSet {
    fn check(&self, registry: &Registry) -> Result<(), ConfigError> {
        let mut seen = BTreeSet::new();
        for plugin in &self.enabled {
            let name = &plugin.name.value;
            if !registry.0.contains_key(name) && !ELSEWHERE.contains(&&**name) {
                return Err(at(&plugin.name, unknown(name)));
            }
            if !seen.insert(name) {
                return Err(at(&plugin.name, format!("plugin {name:?} already registered")));
            }
            if plugin.weight < 0 {
                return Err(at(&plugin.name, format!("the weight of {name} is negative")));
            }
        }
        Ok(())
    }

    fn disables(&self, name: &str) -> bool {
        self.disabled.iter().any(|plugin| plugin.name.value == name || plugin.name.value == "*")
    }

    fn listed(&self) -> impl Iterator<Item = (String, i64, u64)> {
        self.enabled.iter().map(|p| (p.name.value.clone(), p.weight, p.name.referenced.line()))
    }

    /// The defaults without what is disabled, those enabled anew in their
    /// places, and then the others (default_plugins.go `mergePluginSet`).
    fn merge(&self, defaults: Enabled) -> Enabled {
        let mut merged: Enabled = Vec::new();
        for default in defaults.into_iter().filter(|(name, _, _)| !self.disables(name)) {
            merged.push(self.listed().find(|(name, _, _)| *name == default.0).unwrap_or(default));
        }
        for plugin in self.listed() {
            if !merged.iter().any(|(name, _, _)| *name == plugin.0) {
                merged.push(plugin);
            }
        }
        merged
    }

    /// The plugins of this point: those named for it that are in the
    /// multi-point too, then the rest of that, then the rest of those named
    /// (framework.go `expandMultiPointPlugins`).
    fn expand(&self, multi_point: &Enabled) -> Enabled {
        let is_multi = |name: &str| multi_point.iter().any(|(known, _, _)| known == name);
        let takes_multi = !self.disabled.iter().any(|plugin| plugin.name.value == "*");
        let mut expanded: Enabled = Vec::new();
        if takes_multi {
            expanded.extend(self.listed().filter(|(name, _, _)| is_multi(name)));
            for plugin in multi_point.iter().filter(|(name, _, _)| !self.disables(name)) {
                if !expanded.iter().any(|(known, _, _)| *known == plugin.0) {
                    expanded.push(plugin.clone());
                }
            }
        }
        for plugin in self.listed() {
            if !expanded.iter().any(|(known, _, _)| *known == plugin.0) {
                expanded.push(plugin);
            }
        }
        expanded
    }
}

type Made = Result<Box<dyn Plugin>, String>;

fn none(args: Option<&Value>, plugin: impl Plugin + 'static) -> Made {
    match args {
        None | Some(Value::Null) => Ok(Box::new(plugin)),
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

/// Its arguments concern binding and a score that is behind a gate.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct VolumeBindingArgs {
    api_version: Option<String>,
    kind: Option<String>,
    bind_timeout_seconds: Option<i64>,
    shape: Option<serde::de::IgnoredAny>,
}

fn volume_binding(args: Option<&Value>) -> Made {
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
    Ok(Box::new(plugins::VolumeBinding))
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct NodeAffinityArgs {
    api_version: Option<String>,
    kind: Option<String>,
    added_affinity: Option<Value>,
}

fn node_affinity(args: Option<&Value>) -> Made {
    let args: NodeAffinityArgs = arguments(args)?;
    let _ = (args.api_version, args.kind);
    let added = args.added_affinity.as_ref().map(k8s::node_affinity).transpose();
    let added = added.map_err(|error| format!("addedAffinity: {error}"))?.unwrap_or_default();
    Ok(Box::new(plugins::NodeAffinity { added }))
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

fn fit(args: Option<&Value>) -> Made {
    let args: FitArgs = arguments(args)?;
    let _ = (args.api_version, args.kind);
    if let Some(group) = args.ignored_resource_groups.iter().find(|group| group.contains('/')) {
        return Err(format!(
            "ignoredResourceGroups: resource group name can't contain '/': {group}"
        ));
    }
    let names = |names: Vec<String>| names.into_iter().map(Name::from).collect();
    let mut plugin = plugins::NodeResourcesFit {
        ignored_resources: names(args.ignored_resources),
        ignored_resource_groups: names(args.ignored_resource_groups),
        ..plugins::NodeResourcesFit::default()
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

fn balanced(args: Option<&Value>) -> Made {
    let args: BalancedArgs = arguments(args)?;
    let _ = (args.api_version, args.kind);
    let resources = resources(args.resources, "resources")?;
    Ok(Box::new(plugins::NodeResourcesBalancedAllocation { resources }))
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct InterPodArgs {
    api_version: Option<String>,
    kind: Option<String>,
    hard_pod_affinity_weight: Option<i64>,
    ignore_preferred_terms_of_existing_pods: bool,
}

fn inter_pod(args: Option<&Value>) -> Made {
    let args: InterPodArgs = arguments(args)?;
    let _ = (args.api_version, args.kind);
    let weight = args.hard_pod_affinity_weight.unwrap_or(1);
    if !(0..=100).contains(&weight) {
        return Err("hardPodAffinityWeight: not in valid range [0, 100]".to_owned());
    }
    Ok(Box::new(plugins::InterPodAffinity {
        hard_pod_affinity_weight: weight,
        ignore_preferred_terms_of_existing_pods: args.ignore_preferred_terms_of_existing_pods,
    }))
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

fn spread(args: Option<&Value>) -> Made {
    let args: SpreadArgs = arguments(args)?;
    let _ = (args.api_version, args.kind);
    let at = "defaultConstraints";
    if args.defaulting_type.unwrap_or(DefaultingType::System) == DefaultingType::System {
        return match args.default_constraints.is_empty() {
            true => Ok(Box::new(plugins::PodTopologySpread::default())),
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
    Ok(Box::new(plugins::PodTopologySpread::with_default_constraints(constraints)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: kubescheduler.config.k8s.io/v1\n\
                        kind: KubeSchedulerConfiguration\n";

    fn read(text: &str) -> Result<Configuration, ConfigError> {
        Configuration::read(&format!("{HEAD}{text}"), &Registry::in_tree())
    }

    fn error(text: &str) -> (u64, String) {
        let error = read(text).err().expect("it is refused");
        (error.line(), error.to_string())
    }

    fn scores(framework: &Framework) -> Vec<(&str, i64)> {
        framework.scores().map(|(plugin, weight)| (plugin.name(), weight)).collect()
    }

    fn filters(framework: &Framework) -> Vec<&str> {
        framework.filters().map(|plugin| plugin.name()).collect()
    }

    #[test]
    fn without_profiles_it_is_the_default_one() {
        let configuration = read("").unwrap();
        assert_eq!((configuration.percentage_of_nodes, configuration.parallelism), (0, 16));
        let [profile] = &configuration.profiles[..] else { panic!("one profile") };
        assert_eq!(profile.scheduler_name, "default-scheduler");
        let default = Framework::default_profile();
        assert_eq!(filters(&profile.framework), filters(&default));
        let weighted = |framework| {
            let mut scores = scores(framework);
            // Plugins that score nothing have a weight here, which changes no sum.
            scores.retain(|(name, _)| DEFAULT.iter().any(|(known, w)| known == name && *w > 0));
            scores.into_iter().map(|(name, weight)| (name.to_owned(), weight)).collect::<Vec<_>>()
        };
        assert_eq!(weighted(&profile.framework), weighted(&default));
    }

    #[test]
    fn plugins_of_a_point_come_before_those_of_the_multi_point() {
        let configuration = read(
            "profiles:
- plugins:
    multiPoint:
      disabled: [{name: NodePorts}]
      enabled: [{name: ImageLocality, weight: 5}]
    score:
      enabled: [{name: NodeResourcesFit, weight: 7}, {name: TaintToleration}]
      disabled: [{name: NodeAffinity}]
    filter:
      disabled: [{name: '*'}]
      enabled: [{name: NodeName}, {name: NodeResourcesFit}]
",
        )
        .unwrap();
        let framework = &configuration.profiles[0].framework;
        assert_eq!(filters(framework), ["NodeName", "NodeResourcesFit"]);
        let scores = scores(framework);
        assert_eq!(scores[..2], [("NodeResourcesFit", 7), ("TaintToleration", 1)]);
        let weight = |name: &str| scores.iter().find(|(known, _)| *known == name).map(|s| s.1);
        assert_eq!(weight("ImageLocality"), Some(5));
        assert_eq!((weight("NodeAffinity"), weight("NodePorts")), (None, None));
        assert_eq!(weight("PodTopologySpread"), Some(2));
    }

    #[test]
    fn what_cannot_be_used_names_its_line() {
        for (text, line, says) in [
            ("profiles:\n- plugins: {filter: {enabled: [{name: Nope}]}}", 4, "\"Nope\" does not"),
            (
                "profiles:\n- plugins:\n    score:\n      enabled:\n      - name: NodeName\n      - name: NodeName",
                8,
                "already registered",
            ),
            ("profiles:\n- schedulerName: a\n- schedulerName: a", 5, "twice"),
            ("percentageOfNodesToScore: 101", 3, "0 to 100"),
            ("parallelism: 0", 3, "greater than 0"),
            ("profiles:\n- pluginConfig:\n  - name: Nope", 5, "does not exist"),
            ("profiles:\n- pluginConfig:\n  - name: NodeName\n    args: {a: 1}", 5, "takes none"),
            (
                "profiles:\n- pluginConfig:\n  - name: InterPodAffinity\n    args: {hardPodAffinityWeight: 101}",
                5,
                "[0, 100]",
            ),
            (
                "profiles:\n- pluginConfig:\n  - name: NodeResourcesFit\n    args: {scoringStrategy: {type: Nope}}",
                5,
                "scoringStrategy.type",
            ),
            (
                "profiles:\n- pluginConfig:\n  - name: NodeResourcesFit\n    args: {scoringStrategy: {type: RequestedToCapacityRatio}}",
                5,
                "is required",
            ),
            (
                "profiles:\n- plugins:\n    score:\n      enabled:\n      - {name: ImageLocality, weight: 9223372036854775807}",
                7,
                "could overflow",
            ),
            (
                "profiles:\n- plugins:\n    multiPoint:\n      enabled:\n      - {name: NodeUnschedulable, weight: 92233720368547758}",
                4,
                "could overflow",
            ),
            ("profiles:\n- plugins: {}\n- plugins: {}", 5, "twice"),
            ("profiles: 7", 3, ""),
            ("nope: 7", 3, "nope"),
        ] {
            let (at, found) = error(text);
            assert!(at == line && found.contains(says), "{text}: {found}");
        }
        let other = Configuration::read("apiVersion: v1\nkind: Pod\n", &Registry::in_tree());
        assert!(other.err().is_some_and(|error| error.to_string().contains("convert")));
    }

    #[test]
    fn names_are_taken_once() {
        let mut registry = Registry::in_tree();
        let factory = || -> Factory { Box::new(|args| none(args, plugins::NodeName)) };
        let exists = RegistryError::Exists("NodeName".to_owned());
        assert_eq!(registry.register("NodeName", factory()), Err(exists.clone()));
        let mut mine = Registry::default();
        mine.register("Mine", factory()).unwrap();
        mine.register("NodeName", factory()).unwrap();
        assert_eq!(registry.merge(mine), Err(exists));
        assert_eq!(registry.unregister("Mine"), Err(RegistryError::NotFound("Mine".to_owned())));
        registry.unregister("NodeName").unwrap();
        registry.register("NodeName", factory()).unwrap();
    }
}
