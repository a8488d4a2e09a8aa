//! Reads `KubeSchedulerConfiguration` v1 from YAML.
//!
//! Defaults, validation and the expansion of `multiPoint` are those of kube-scheduler (pkg/scheduler/apis/config,
//! framework/runtime). An error names its line.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use serde_saphyr::Spanned;

use portolan::framework::{Framework, FrameworkBuilder, Handle, Plugin, Point};
use portolan::scheduler::queue::QueueConfig;

mod args;
mod registry;

pub use registry::{ArgsError, PluginArgs, Registry, RegistryError};

/// A configuration is invalid. Nothing of it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    line: u64,
    what: String,
    args: Option<ArgsError>,
}

impl ConfigError {
    fn new(line: u64, what: impl Into<String>) -> ConfigError {
        ConfigError { line, what: what.into(), args: None }
    }

    fn args_of(line: u64, error: ArgsError) -> ConfigError {
        ConfigError { line, what: error.to_string(), args: Some(error) }
    }

    /// Returns a description of the error.
    #[must_use]
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Returns the line, counted from 1. 0 if the error concerns the whole text.
    #[must_use]
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Returns the plugin and the field, if the arguments of a plugin are invalid.
    #[must_use]
    pub fn args(&self) -> Option<&ArgsError> {
        self.args.as_ref()
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

impl std::error::Error for ConfigError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.args.as_ref().map(|error| error as _)
    }
}

/// The configuration of a scheduler.
#[non_exhaustive]
pub struct Configuration {
    /// The field `percentageOfNodesToScore`. 0 adapts it to the number of nodes.
    pub percentage_of_nodes: u8,
    /// The field `parallelism`.
    pub parallelism: u32,
    /// The queue's settings, with the fields `podInitialBackoffSeconds` and `podMaxBackoffSeconds`.
    pub queue: QueueConfig,
    /// The profiles, at least one, with distinct scheduler names.
    pub profiles: Vec<Profile>,
}

/// The profile of one scheduler.
#[non_exhaustive]
pub struct Profile {
    /// The name by which pods select the profile, in `spec.schedulerName`.
    pub scheduler_name: String,
    /// The field `percentageOfNodesToScore` of the profile itself.
    pub percentage_of_nodes: Option<u8>,
    /// The plugins of the profile.
    pub framework: Framework,
}

impl Configuration {
    /// Reads a configuration with the plugins of a registry, whose factories receive the handle.
    ///
    /// ```
    /// use portolan::framework::Handle;
    /// use portolan_k8s::config::{Configuration, Registry};
    ///
    /// let registry = Registry::in_tree();
    /// let read = |text| Configuration::read(text, &registry, &Handle::default());
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
    /// # Ok::<(), portolan_k8s::config::ConfigError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if kube-scheduler would reject the configuration, if a factory fails, or if the configuration
    /// uses something that is not supported here, such as extenders. The error has the line.
    pub fn read(
        text: &str,
        registry: &Registry,
        handle: &Handle,
    ) -> Result<Configuration, ConfigError> {
        let options = crate::yaml::options(text.len());
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
                format!("only {kind} of {version} is supported: convert the file to it"),
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
                    format!("schedulerName {name:?} is used twice"),
                ));
            }
            profiles.push(Profile {
                scheduler_name: name.to_owned(),
                percentage_of_nodes: match &profile.percentage_of_nodes_to_score {
                    None => None,
                    given => Some(percentage(given.as_ref())?.unwrap_or(0)),
                },
                // Errors without a line of their own are located at the start of the profile.
                framework: framework(profile, (name, line), registry, handle).map_err(|error| {
                    match error.line {
                        0 => ConfigError { line: start, ..error },
                        _ => error,
                    }
                })?,
            });
            let sort = |profile: &Profile| {
                let sorts = profile.framework.plugins_at(Point::QueueSort);
                sorts.map(|(plugin, _)| plugin.name()).next()
            };
            let (first, last) = (profiles.first().and_then(sort), profiles.last().and_then(sort));
            if first != last {
                let (first, last) = (first.unwrap_or_default(), last.unwrap_or_default());
                let what = format!(
                    "different queue sort plugins for profile {name:?}: {last:?}, first: {first:?}"
                );
                return Err(ConfigError::new(line, what));
            }
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
            queue: queue(&wire)?,
            profiles,
        })
    }
}

/// Returns the settings of the queue, checked as kube-scheduler checks them.
fn queue(wire: &WireConfiguration) -> Result<QueueConfig, ConfigError> {
    if let Some(extenders) = wire.extenders.as_ref().filter(|extenders| !extenders.value.is_empty())
    {
        return Err(at(extenders, "extenders are not supported: use a plugin"));
    }
    let (initial, max) = (&wire.pod_initial_backoff_seconds, &wire.pod_max_backoff_seconds);
    let seconds = |given: &Spanned<i64>| u64::try_from(given.value).map(Duration::from_secs).ok();
    let mut queue = QueueConfig::default();
    if let Some(given) = initial {
        queue.initial_backoff = seconds(given)
            .filter(|backoff| !backoff.is_zero())
            .ok_or_else(|| at(given, "podInitialBackoffSeconds must be greater than 0"))?;
    }
    if let Some(given) = max {
        // A negative maximum is below every initial backoff.
        queue.max_backoff = seconds(given).unwrap_or(Duration::ZERO);
    }
    match max.as_ref().or(initial.as_ref()) {
        Some(given) if queue.max_backoff < queue.initial_backoff => Err(at(
            given,
            "podMaxBackoffSeconds (default 10) must be greater than or equal to \
             podInitialBackoffSeconds",
        )),
        _ => Ok(queue),
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

/// The plugins of one extension point, in order: the name, the configured weight (0 if absent) and the line.
type Enabled = Vec<(String, i64, u64)>;

/// Builds the framework of one profile from the default plugins and the changes of the profile.
fn framework(
    profile: &WireProfile,
    (name, line): (&str, u64),
    registry: &Registry,
    handle: &Handle,
) -> Result<Framework, ConfigError> {
    let sets = &profile.plugins;
    for (point, set) in sets.all() {
        set.check(point, registry)?;
    }
    let defaults = registry.default_profile().iter();
    let defaults = defaults.map(|(name, weight)| (name.clone(), *weight, 0));
    let multi_point = sets.multi_point.merge(defaults.collect());
    let mut args = BTreeMap::new();
    for given in &profile.plugin_config {
        let name = &given.name;
        if !registry.knows(&name.value) {
            return Err(at(name, unknown(&name.value)));
        }
        if args.insert(&*name.value, given).is_some() {
            return Err(at(name, format!("pluginConfig for {} is listed twice", name.value)));
        }
    }
    let named = sets.all().into_iter().flat_map(|(_, set)| set.listed().collect::<Enabled>());
    let mut made: Vec<(String, Box<dyn Plugin>)> = Vec::new();
    for (name, _, line) in multi_point.iter().cloned().chain(named) {
        let Some(factory) = registry.get(&name) else { continue };
        if made.iter().any(|(known, _)| *known == name) {
            continue;
        }
        let given = args.get(&*name);
        let line = given.map_or(line, |given| given.name.referenced.line());
        let value = given.and_then(|given| given.args.as_ref());
        let plugin = factory(PluginArgs::new(&name, value), handle)
            .map_err(|error| ConfigError::args_of(line, error))?;
        made.push((name, plugin));
    }
    let extends = |name: &str, point: Point| {
        made.iter()
            .find(|(known, _)| known == name)
            .map(|(_, plugin)| plugin.points().contains(&point))
    };
    let mut points: Vec<(Point, Vec<String>)> = Vec::new();
    for (point, set) in sets.points() {
        let extend = |(name, _, _): &&(String, i64, u64)| extends(name, point) == Some(true);
        let multi: Enabled = multi_point.iter().filter(extend).cloned().collect();
        let mut names = Vec::new();
        for (name, _, line) in set.expand(&multi) {
            match extends(&name, point) {
                None => {}
                Some(true) => names.push(name),
                Some(false) => {
                    let what = format!("plugin {name:?} does not extend {point}Plugin plugin");
                    return Err(ConfigError::new(line, what));
                }
            }
        }
        let count = names.len();
        if point == Point::QueueSort && count != 1 {
            let what = format!(
                "only one queue sort plugin required for profile with scheduler name {name:?}, but \
                 got {count}"
            );
            return Err(ConfigError::new(line, what));
        }
        if point == Point::Bind && count == 0 {
            let what = format!(
                "at least one bind plugin is needed for profile with scheduler name {name:?}"
            );
            return Err(ConfigError::new(line, what));
        }
        points.push((point, names));
    }
    // A weight at the score extension point takes precedence over the weight at `multiPoint`.
    let mut weights: BTreeMap<String, i64> = BTreeMap::new();
    let mut total = 0_i64;
    for (name, weight, line) in sets.score.listed().chain(multi_point) {
        if extends(&name, Point::Score) != Some(true) || weights.contains_key(&name) {
            continue;
        }
        let weight = weight.max(1);
        total = weight
            .checked_mul(100)
            .and_then(|score| total.checked_add(score))
            .ok_or_else(|| ConfigError::new(line, "total score of Score plugins could overflow"))?;
        weights.insert(name, weight);
    }
    let weighted = |(name, plugin): (String, _)| (plugin, weights.get(&name).copied().unwrap_or(0));
    let builder =
        made.into_iter().map(weighted).fold(
            Framework::builder_with(handle),
            |builder: FrameworkBuilder, (plugin, weight)| builder.plugin(plugin, weight),
        );
    let place = |builder: FrameworkBuilder, (point, names): &(Point, Vec<String>)| {
        builder.plugins_at(*point, names)
    };
    let built = points.iter().fold(builder, place).build();
    built.map_err(|error| ConfigError::new(line, error.to_string()))
}

fn unknown(name: &str) -> String {
    format!("plugin {name:?} does not exist: register it, or check the spelling")
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "settings of the scheduler's process are parsed but not used")]
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
    pod_initial_backoff_seconds: Option<Spanned<i64>>,
    pod_max_backoff_seconds: Option<Spanned<i64>>,
    extenders: Option<Spanned<Vec<serde::de::IgnoredAny>>>,
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
    fn points(&self) -> [(Point, &WireSet); Point::ALL.len()] {
        Point::ALL.map(|point| {
            let set = match point {
                Point::PreEnqueue => &self.pre_enqueue,
                Point::QueueSort => &self.queue_sort,
                Point::PreFilter => &self.pre_filter,
                Point::Filter => &self.filter,
                Point::PostFilter => &self.post_filter,
                Point::PreScore => &self.pre_score,
                Point::Score => &self.score,
                Point::Reserve => &self.reserve,
                Point::Permit => &self.permit,
                Point::PreBind => &self.pre_bind,
                Point::Bind => &self.bind,
                Point::PostBind => &self.post_bind,
            };
            (point, set)
        })
    }

    fn all(&self) -> Vec<(Option<Point>, &WireSet)> {
        let points = self.points().into_iter().map(|(point, set)| (Some(point), set));
        [(None, &self.multi_point)].into_iter().chain(points).collect()
    }
}

impl WireSet {
    fn check(&self, point: Option<Point>, registry: &Registry) -> Result<(), ConfigError> {
        let mut seen = BTreeSet::new();
        for plugin in &self.enabled {
            let name = &plugin.name.value;
            if !registry.knows(name) {
                return Err(at(&plugin.name, unknown(name)));
            }
            if !seen.insert(name) {
                let point = point.map_or("MultiPoint", Point::as_str);
                let what = format!("plugin {name:?} already registered as \"{point}Plugin\"");
                return Err(at(&plugin.name, what));
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

    /// Returns the defaults without the disabled plugins, with enabled defaults replaced in place, followed by the
    /// other enabled plugins (default_plugins.go `mergePluginSet`).
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

    /// Returns the plugins of this extension point: first those listed for it that are also in `multiPoint`, then the
    /// rest of `multiPoint`, then the other listed plugins (framework.go `expandMultiPointPlugins`).
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

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: kubescheduler.config.k8s.io/v1\n\
                        kind: KubeSchedulerConfiguration\n";

    fn read(text: &str) -> Result<Configuration, ConfigError> {
        let text = format!("{HEAD}{text}");
        Configuration::read(&text, &Registry::in_tree(), &Handle::default())
    }

    fn error(text: &str) -> (u64, String) {
        let error = read(text).err().unwrap_or_else(|| panic!("not refused: {text}"));
        (error.line(), error.to_string())
    }

    fn at(framework: &Framework, point: Point) -> Vec<(&str, i64)> {
        framework.plugins_at(point).map(|(plugin, weight)| (plugin.name(), weight)).collect()
    }

    fn names(framework: &Framework, point: Point) -> Vec<&str> {
        framework.plugins_at(point).map(|(plugin, _)| plugin.name()).collect()
    }

    #[test]
    fn backoffs_are_read_and_extenders_are_refused() {
        let queue = read("podInitialBackoffSeconds: 2\npodMaxBackoffSeconds: 60\n").unwrap().queue;
        let seconds = |of: Duration| of.as_secs();
        assert_eq!((seconds(queue.initial_backoff), seconds(queue.max_backoff)), (2, 60));
        assert!(read("extenders: []\n").is_ok());
        for (text, what) in [
            ("podInitialBackoffSeconds: 0\n", "greater than 0"),
            ("podInitialBackoffSeconds: 5\npodMaxBackoffSeconds: 4\n", "or equal to"),
            ("podMaxBackoffSeconds: -1\n", "or equal to"),
            ("extenders: [{urlPrefix: http://localhost}]\n", "extenders are not supported"),
        ] {
            let (line, error) = error(text);
            assert!(error.contains(what), "{error}");
            assert_eq!(line, 2 + text.lines().count() as u64);
        }
    }

    #[test]
    fn an_initial_backoff_above_the_default_maximum_requires_a_maximum() {
        assert!(read("podInitialBackoffSeconds: 10\n").is_ok());
        assert!(read("podInitialBackoffSeconds: 20\npodMaxBackoffSeconds: 20\n").is_ok());
        let (line, error) = error("podInitialBackoffSeconds: 20\n");
        assert!(line == 3 && error.contains("podMaxBackoffSeconds (default 10)"), "{error}");
    }

    #[test]
    fn a_configuration_without_profiles_has_the_default_profile() {
        let configuration = read("").unwrap();
        assert_eq!((configuration.percentage_of_nodes, configuration.parallelism), (0, 16));
        let [profile] = &configuration.profiles[..] else { panic!("one profile") };
        assert_eq!(profile.scheduler_name, "default-scheduler");
        let default = Framework::default_profile();
        for point in Point::ALL {
            assert_eq!(at(&profile.framework, point), at(&default, point), "{point}");
        }
        assert_eq!(names(&default, Point::QueueSort), ["PrioritySort"]);
        assert_eq!(names(&default, Point::Bind), ["DefaultBinder"]);
    }

    #[test]
    fn plugins_of_a_point_precede_those_of_the_multi_point() {
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
        assert_eq!(names(framework, Point::Filter), ["NodeName", "NodeResourcesFit"]);
        let scores = at(framework, Point::Score);
        assert_eq!(scores[..2], [("NodeResourcesFit", 7), ("TaintToleration", 1)]);
        let weight = |name: &str| scores.iter().find(|(known, _)| *known == name).map(|s| s.1);
        assert_eq!(weight("ImageLocality"), Some(5));
        assert_eq!((weight("NodeAffinity"), weight("NodePorts")), (None, None));
        assert_eq!(weight("PodTopologySpread"), Some(2));
    }

    #[test]
    fn invalid_configurations_name_the_line() {
        for (text, line, says) in [
            ("profiles:\n- plugins: {filter: {enabled: [{name: Nope}]}}", 4, "\"Nope\" does not"),
            (
                "profiles:\n- plugins:\n    score:\n      enabled:\n      - name: NodeName\n      - name: NodeName",
                8,
                "\"NodeName\" already registered as \"ScorePlugin\"",
            ),
            (
                "profiles:\n- plugins:\n    score:\n      enabled:\n      - name: NodeName",
                7,
                "plugin \"NodeName\" does not extend ScorePlugin plugin",
            ),
            (
                "profiles:\n- schedulerName: a\n  plugins: {queueSort: {disabled: [{name: '*'}]}}",
                4,
                "only one queue sort plugin required for profile with scheduler name \"a\", but got 0",
            ),
            (
                "profiles:\n- schedulerName: a\n  plugins: {bind: {disabled: [{name: '*'}]}}",
                4,
                "at least one bind plugin is needed for profile with scheduler name \"a\"",
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
                "profiles:\n- plugins:\n    multiPoint:\n      enabled:\n      - {name: TaintToleration, weight: 92233720368547758}",
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
        let text = "apiVersion: v1\nkind: Pod\n";
        let other = Configuration::read(text, &Registry::in_tree(), &Handle::default());
        assert!(other.err().is_some_and(|error| error.to_string().contains("convert")));
    }
}
