//! Reads `KubeSchedulerConfiguration` v1 from YAML or JSON. The versions v1beta1 to v1beta3, whose fields are nearly
//! the same, are read as v1. The configuration may be one of several documents, or be in a ConfigMap.
//!
//! Defaults, validation and the expansion of `multiPoint` are those of kube-scheduler (pkg/scheduler/apis/config,
//! framework/runtime). An error names its line.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use serde::Deserialize;

use portolan::Framework;
use portolan::plugin::{Handle, Point};
use portolan::scheduler::queue::QueueConfig;

mod args;
mod document;
mod duration;
mod extenders;
mod process;
mod profile;
mod registry;

use extenders::{Extenders, WireExtender};
use process::{WireClientConnection, WireLeaderElection};
use profile::WireProfile;

use crate::error::{Cause, ReadError};
use crate::yaml::At;

#[cfg(feature = "strict")]
pub(crate) use extenders::is_subdomain;
pub use extenders::{ExtenderConfig, ExtenderTls};
pub use process::{ClientConnection, LeaderElection, ProcessSettings};
pub use registry::{ArgsError, PluginArgs, Registry, RegistryError};

/// A configuration is invalid. Nothing of it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    line: u64,
    what: String,
    args: Option<ArgsError>,
    unknown_plugin: Option<Box<str>>,
}

impl ConfigError {
    fn new(line: u64, what: impl Into<String>) -> ConfigError {
        ConfigError { line, what: what.into(), args: None, unknown_plugin: None }
    }

    fn args_of(line: u64, error: ArgsError) -> ConfigError {
        ConfigError { args: Some(error.clone()), ..ConfigError::new(line, error.to_string()) }
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

    /// Returns the name of a plugin that does not exist, if that is the error. [`Registry::ignore_unknown`] avoids it.
    #[must_use]
    pub fn unknown_plugin(&self) -> Option<&str> {
        self.unknown_plugin.as_deref()
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
    /// The settings of the process.
    pub process: ProcessSettings,
    /// The queue's settings, with the fields `podInitialBackoffSeconds` and `podMaxBackoffSeconds`.
    pub queue: QueueConfig,
    /// The profiles, at least one, with distinct scheduler names.
    pub profiles: Vec<Profile>,
    /// The extenders, which all profiles share. The frameworks do not call them by themselves: see
    /// [`Handle::with_extenders`].
    pub extenders: Vec<ExtenderConfig>,
    /// What the reader should know about the configuration: an outdated version of the format, other documents in the
    /// text, and plugins that are ignored or replaced.
    pub notes: Vec<String>,
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
    /// The text of a configuration that sets nothing: kube-scheduler's, if it is started without one.
    pub const DEFAULT: &str =
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";

    /// Reads a configuration with the plugins of a registry, whose factories receive the handle.
    ///
    /// ```
    /// use portolan::plugin::Handle;
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
    /// Returns an error if kube-scheduler would reject the configuration, or if a factory fails. The error has the
    /// line.
    pub fn read(
        text: &str,
        registry: &Registry,
        handle: &Handle,
    ) -> Result<Configuration, ConfigError> {
        let (mut wire, note) = parse(text)?;
        let process = wire.process(note)?;
        let mut notes = process.notes.clone();
        let percentage_of_nodes = percentage(wire.percentage_of_nodes_to_score.as_ref())?;
        let extenders = Extenders::read(wire.extenders.as_deref().unwrap_or_default())?;
        let mut names = BTreeSet::new();
        let mut profiles = Vec::new();
        for At { value: profile, .. } in &mut wire.profiles {
            notes.extend(profile.replace_plugins(registry));
        }
        let default = WireProfile::default();
        let given = wire.profiles.iter().map(|given| (&given.value, given.line));
        let one = wire.profiles.is_empty().then_some((&default, 0));
        for (profile, start) in given.chain(one) {
            let (name, line) = match &profile.scheduler_name {
                Some(name) => (&*name.value, name.line),
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
                framework: profile
                    .framework((name, line), registry, handle, &extenders.ignored_resources)
                    .map_err(|error| match error.line {
                        0 => ConfigError { line: start, ..error },
                        _ => error,
                    })?,
            });
            let sort = |profile: &Profile| {
                let sorts = profile.framework.plugins_at(Point::QueueSort);
                sorts.map(|(plugin, _)| plugin.info().name()).next()
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
            process,
            queue: queue(&wire)?,
            profiles,
            extenders: extenders.all,
            notes,
        })
    }
}

const KIND: &str = "KubeSchedulerConfiguration";
/// The version that is read.
const V1: &str = "kubescheduler.config.k8s.io/v1";
/// Versions with nearly the same fields, which Kubernetes 1.25, 1.28 and 1.29 removed.
const BETAS: [&str; 3] = [
    "kubescheduler.config.k8s.io/v1beta1",
    "kubescheduler.config.k8s.io/v1beta2",
    "kubescheduler.config.k8s.io/v1beta3",
];

/// Parses the configuration in a text; returns it with a note about its surroundings.
fn parse(text: &str) -> Result<(WireConfiguration, Option<String>), ConfigError> {
    let parsed = document::find(text).and_then(|found| {
        let wire = crate::yaml::read(found.origin()).map_err(syntax)?;
        Ok((wire, found.note))
    });
    parsed.map_err(|error| match crate::framing::template(text) {
        Some((line, _)) => ConfigError::new(line, Cause::Template.to_string()),
        None => error,
    })
}

fn syntax(error: ReadError) -> ConfigError {
    let line = error.line().unwrap_or(1);
    let message = error.cause().to_string();
    // A list of all fields would hide the one that is wrong.
    match message.split_once(", expected one of ") {
        Some((what, expected)) if expected.len() > 100 => {
            ConfigError::new(line, format!("{what}: check the spelling"))
        }
        _ => ConfigError::new(line, message),
    }
}

impl WireConfiguration {
    /// Checks version and kind, and returns the settings of the process. `note` is one about the text.
    fn process(&self, note: Option<String>) -> Result<ProcessSettings, ConfigError> {
        let mut notes = Vec::from_iter(note);
        let addresses = [
            ("healthzBindAddress", &self.healthz_bind_address),
            ("metricsBindAddress", &self.metrics_bind_address),
        ];
        let addresses =
            addresses.into_iter().filter_map(|(name, given)| Some((name, given.as_ref()?)));
        match (&*self.api_version.value, &*self.kind.value) {
            (V1, KIND) => {
                if let Some((name, given)) = { addresses }.next() {
                    return Err(at(
                        given,
                        format!("unknown field `{name}`: {V1} does not have it"),
                    ));
                }
            }
            (beta, KIND) if BETAS.contains(&beta) => {
                notes.push(format!(
                    "{beta} is read as {V1}, with its defaults: change the apiVersion"
                ));
                notes.extend(addresses.map(|(name, _)| format!("{name} is ignored")));
            }
            _ => return Err(at(&self.api_version, document::unsupported())),
        }
        ProcessSettings::of(self, notes)
    }
}

/// Returns the settings of the queue, checked as kube-scheduler checks them.
fn queue(wire: &WireConfiguration) -> Result<QueueConfig, ConfigError> {
    let (initial, max) = (&wire.pod_initial_backoff_seconds, &wire.pod_max_backoff_seconds);
    let seconds = |given: &At<i64>| u64::try_from(given.value).map(Duration::from_secs).ok();
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

fn at<T>(value: &At<T>, what: impl Into<String>) -> ConfigError {
    ConfigError::new(value.line, what)
}

fn percentage(given: Option<&At<i64>>) -> Result<Option<u8>, ConfigError> {
    let Some(given) = given else { return Ok(None) };
    match u8::try_from(given.value) {
        Ok(percentage @ 0..=100) => Ok(Some(percentage)),
        _ => Err(at(given, "percentageOfNodesToScore must be from 0 to 100")),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WireConfiguration {
    api_version: At<String>,
    kind: At<String>,
    parallelism: Option<At<i64>>,
    percentage_of_nodes_to_score: Option<At<i64>>,
    #[serde(default)]
    profiles: Vec<At<WireProfile>>,
    leader_election: Option<At<WireLeaderElection>>,
    client_connection: Option<At<WireClientConnection>>,
    enable_profiling: Option<bool>,
    /// There is no profiling.
    #[serde(rename = "enableContentionProfiling")]
    _enable_contention_profiling: Option<bool>,
    pod_initial_backoff_seconds: Option<At<i64>>,
    pod_max_backoff_seconds: Option<At<i64>>,
    extenders: Option<Vec<At<WireExtender>>>,
    delay_cache_until_active: Option<bool>,
    /// Only versions before v1 have these two.
    healthz_bind_address: Option<At<String>>,
    metrics_bind_address: Option<At<String>>,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use portolan_dra::plugin::DryRunBackend;

    use super::*;

    const HEAD: &str = Configuration::DEFAULT;

    fn read(text: &str) -> Result<Configuration, ConfigError> {
        let text = format!("{HEAD}{text}");
        Configuration::read(&text, &Registry::in_tree(), &Handle::default())
    }

    fn error(text: &str) -> (u64, String) {
        let error = read(text).err().unwrap_or_else(|| panic!("not refused: {text}"));
        (error.line(), error.to_string())
    }

    fn at(framework: &Framework, point: Point) -> Vec<(&str, i64)> {
        framework.plugins_at(point).map(|(plugin, weight)| (plugin.info().name(), weight)).collect()
    }

    fn names(framework: &Framework, point: Point) -> Vec<&str> {
        framework.plugins_at(point).map(|(plugin, _)| plugin.info().name()).collect()
    }

    fn notes_of(text: &str) -> Vec<String> {
        read(text).unwrap_or_else(|error| panic!("{error}: {text}")).notes
    }

    #[test]
    fn coscheduling_is_replaced_by_gang_scheduling() {
        let text = "profiles:\n- schedulerName: a\n  plugins:\n    multiPoint: {enabled: [{name: Coscheduling}]}\n    \
                    queueSort: {enabled: [{name: Coscheduling}], disabled: [{name: '*'}]}\n  pluginConfig:\n  - \
                    {name: Coscheduling, args: {permitWaitingTimeSeconds: 10}}\n";
        let configuration = read(text).unwrap();
        let framework = &configuration.profiles[0].framework;
        assert_eq!(names(framework, Point::QueueSort), ["PrioritySort"]);
        assert!(names(framework, Point::Permit).contains(&"GangScheduling"));
        let notes = [
            "GangScheduling replaces Coscheduling, which does the same",
            "the arguments of Coscheduling are ignored",
        ];
        assert_eq!(configuration.notes, notes);
        // It is also enabled where the default profile is disabled.
        let text = "profiles:\n- plugins:\n    multiPoint: {disabled: [{name: '*'}], enabled: [{name: PrioritySort}, \
                    {name: DefaultBinder}, {name: GangScheduling}, {name: Coscheduling}]}\n";
        let framework = &read(text).unwrap().profiles[0].framework;
        assert_eq!(names(framework, Point::Permit), ["GangScheduling"]);
        let text = text.replace("{name: GangScheduling}, ", "");
        let framework = &read(&text).unwrap().profiles[0].framework;
        assert_eq!(names(framework, Point::Permit), ["GangScheduling"]);
    }

    #[test]
    fn profiles_of_a_cluster_allocate_devices_before_preemption() {
        let registry = Registry::of_cluster(Arc::new(DryRunBackend));
        let read = |text: &str| {
            let text = format!("{HEAD}profiles:\n- {text}\n");
            Configuration::read(&text, &registry, &Handle::default())
        };
        let framework = |text: &str| read(text).unwrap().profiles.remove(0).framework;
        let default = framework("schedulerName: a");
        let after = ["DynamicResources", "DefaultPreemption"];
        assert_eq!(names(&default, Point::PostFilter), after);
        assert!(at(&default, Point::Score).contains(&("DynamicResources", 2)));
        let without = framework("plugins: {multiPoint: {disabled: [{name: DynamicResources}]}}");
        assert!(!names(&without, Point::Filter).contains(&"DynamicResources"));
        let args = |args: &str| {
            read(&format!("pluginConfig: [{{name: DynamicResources, args: {{{args}}}}}]"))
                .map(drop)
                .map_err(|error| error.args().unwrap().field().to_owned())
        };
        assert_eq!(args("filterTimeout: 0s, bindingTimeout: 1s"), Ok(()));
        assert_eq!(args("filterTimeout: -1s"), Err("filterTimeout".to_owned()));
        assert_eq!(args("bindingTimeout: 999ms"), Err("bindingTimeout".to_owned()));
        assert_eq!(args("bindingTimeout: soon"), Err("bindingTimeout".to_owned()));
    }

    #[test]
    fn unknown_plugins_are_ignored_if_the_registry_allows_it() {
        let text = "profiles:\n- plugins:\n    queueSort: {enabled: [{name: Mine}], disabled: [{name: '*'}]}\n    \
                    bind: {enabled: [{name: Mine}], disabled: [{name: DefaultBinder}]}\n    score: {enabled: \
                    [{name: Other, weight: 5}]}\n  pluginConfig: [{name: Third, args: {a: 1}}]\n";
        let (line, what) = error(text);
        assert!(line == 5 && what.contains("plugin \"Mine\" does not exist"), "{line}: {what}");
        let mut registry = Registry::in_tree();
        registry.ignore_unknown();
        let text = format!("{HEAD}{text}");
        let read = Configuration::read(&text, &registry, &Handle::default());
        let configuration = read.unwrap_or_else(|error| panic!("{error}"));
        let framework = &configuration.profiles[0].framework;
        assert_eq!(names(framework, Point::QueueSort), ["PrioritySort"]);
        assert_eq!(names(framework, Point::Bind), ["DefaultBinder"]);
        let notes = [
            "plugin Mine does not exist: ignored at QueueSort, Bind",
            "plugin Other does not exist: ignored at Score",
            "plugin Third does not exist: its arguments are ignored",
        ];
        assert_eq!(configuration.notes, notes);
    }

    #[test]
    fn versions_before_v1_are_read_as_v1() {
        for version in ["v1beta1", "v1beta2", "v1beta3"] {
            let text = format!(
                "apiVersion: kubescheduler.config.k8s.io/{version}\nkind: KubeSchedulerConfiguration\n\
                 healthzBindAddress: 0.0.0.0:10251\n"
            );
            let read = Configuration::read(&text, &Registry::in_tree(), &Handle::default());
            let notes = read.unwrap_or_else(|error| panic!("{error}")).notes;
            assert!(notes[0].contains(version), "{notes:?}");
            assert_eq!(notes[1], "healthzBindAddress is ignored");
        }
        assert_eq!(notes_of(""), Vec::<String>::new());
        let (line, what) = error("metricsBindAddress: 0.0.0.0:10251\n");
        assert!(line == 3 && what.contains("unknown field `metricsBindAddress`"), "{what}");
        let policy = "apiVersion: v1\nkind: Policy\npredicates: [{name: PodFitsPorts}]\n";
        let read = Configuration::read(policy, &Registry::in_tree(), &Handle::default());
        let what = read.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(what.contains("removed the kind Policy"), "{what}");
    }

    #[test]
    fn backoffs_are_read() {
        let queue = read("podInitialBackoffSeconds: 2\npodMaxBackoffSeconds: 60\n").unwrap().queue;
        let seconds = |of: Duration| of.as_secs();
        assert_eq!((seconds(queue.initial_backoff), seconds(queue.max_backoff)), (2, 60));
        for (text, what) in [
            ("podInitialBackoffSeconds: 0\n", "greater than 0"),
            ("podInitialBackoffSeconds: 5\npodMaxBackoffSeconds: 4\n", "or equal to"),
            ("podMaxBackoffSeconds: -1\n", "or equal to"),
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
    fn a_default_plugin_must_be_registered_unless_it_is_disabled() {
        let mut registry = Registry::in_tree();
        let mut default = registry.default_profile().to_vec();
        default.push(("Nope".to_owned(), 0));
        registry.set_default_profile(default);
        let read = |text: &str| {
            Configuration::read(&format!("{HEAD}{text}"), &registry, &Handle::default())
                .map_err(|error| (error.line(), error.to_string()))
        };
        for (text, at) in [("", 0), ("profiles:\n- schedulerName: a\n", 4)] {
            let (line, error) = read(text).err().unwrap();
            assert!(line == at && error.contains("\"Nope\""), "{line}: {error}");
        }
        assert!(read("profiles:\n- plugins: {multiPoint: {disabled: [{name: Nope}]}}\n").is_ok());
    }

    #[test]
    fn a_configuration_without_profiles_has_the_default_profile() {
        let configuration = read("").unwrap();
        assert_eq!(configuration.percentage_of_nodes, 0);
        assert_eq!(configuration.process, ProcessSettings::default());
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
