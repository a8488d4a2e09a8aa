//! Builds the framework of a profile, in the steps of kube-scheduler's `NewFramework` (framework/runtime/framework.go).
//!
//! 1. The plugins that run at all points are those of the default profile, changed by `multiPoint`.
//! 2. Every plugin that is enabled somewhere is made once, from its arguments.
//! 3. Each point gets its own plugins and those of `multiPoint` that extend it.
//! 4. The weights of scores are checked, because their sum must not overflow.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::{Map, Value};

use portolan::plugin::{Handle, Plugin, Point};
use portolan::{Framework, FrameworkError};

use super::registry::{PluginArgs, Registry};
use super::{ConfigError, at};
use crate::yaml::At;

/// A plugin that is enabled.
#[derive(Clone, Copy)]
struct Enabled<'a> {
    name: &'a str,
    /// The configured weight, 0 if absent.
    weight: i64,
    /// The line that enables the plugin, 0 for a default.
    line: u64,
}

impl WireProfile {
    /// Builds the framework from the default plugins and the changes of the profile, whose name is at `line`.
    /// NodeResourcesFit ignores the resources `ignored`, if there are any, instead of those in its arguments. The line
    /// of an error is 0 if the error concerns the whole profile.
    pub(super) fn framework(
        &self,
        (name, line): (&str, u64),
        registry: &Registry,
        handle: &Handle,
        ignored: &[String],
    ) -> Result<Framework, ConfigError> {
        for (point, set) in self.plugins.all() {
            set.check(point, registry)?;
        }
        let multi_point = self.plugins.multi_point(registry)?;
        let args = self.args(registry)?;
        let listed = self.plugins.all().into_iter().flat_map(|(_, set)| set.listed());
        let enabled = multi_point.iter().copied().chain(listed);
        let plugins = Plugins::make(enabled, (&args, ignored), registry, handle)?;
        if !ignored.is_empty() && plugins.get(FIT).is_none() && !args.contains_key(FIT) {
            let what = "couldn't build extenders: can't find NodeResourcesFitArgs in plugin config";
            return Err(ConfigError::new(0, what));
        }
        let points = plugins.points(&self.plugins, &multi_point)?;
        check_counts(&points, name).map_err(|what| ConfigError::new(line, what))?;
        // A weight at the score extension point takes precedence over the weight at `multiPoint`.
        let weights = plugins.weights(self.plugins.score.listed().chain(multi_point))?;
        let built = plugins.build(&points, &weights, handle);
        built.map_err(|error| ConfigError::new(line, error.to_string()))
    }

    /// Replaces plugins of other projects by those that do the same here, and returns notes about these and about
    /// plugins that are ignored.
    pub(super) fn replace_plugins(&mut self, registry: &Registry) -> Vec<String> {
        let mut notes = BTreeSet::new();
        let mut unknown: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for (point, set) in self.plugins.all_mut() {
            let known: Vec<String> =
                set.enabled.iter().map(|plugin| plugin.name.value.clone()).collect();
            set.enabled.retain_mut(|plugin| {
                let name = &mut plugin.name.value;
                if let Some(here) = registry.equivalent(name) {
                    notes.insert(format!("{here} replaces {name}, which does the same"));
                    plugin.is_replaced = true;
                    here.clone_into(name);
                    return !known.contains(name);
                }
                if registry.is_unknown(name) {
                    let points = unknown.entry(name.clone()).or_default();
                    points.push(point.map_or("multiPoint", Point::as_str));
                }
                true
            });
        }
        self.plugin_config.retain(|args| {
            let name = &args.name.value;
            if registry.equivalent(name).is_some() {
                notes.insert(format!("the arguments of {name} are ignored"));
                return false;
            }
            if registry.is_unknown(name) {
                unknown.entry(name.clone()).or_default();
            }
            true
        });
        let ignored = unknown.into_iter().map(|(name, points)| match points.is_empty() {
            true => format!("plugin {name} does not exist: its arguments are ignored"),
            false => format!("plugin {name} does not exist: ignored at {}", points.join(", ")),
        });
        notes.into_iter().chain(ignored).collect()
    }

    /// Returns the entries of `pluginConfig` by plugin.
    fn args(&self, registry: &Registry) -> Result<BTreeMap<&str, &WireArgs>, ConfigError> {
        let mut args = BTreeMap::new();
        for given in &self.plugin_config {
            let name = &given.name;
            if !registry.knows(&name.value) {
                return Err(unknown(name));
            }
            if args.insert(&*name.value, given).is_some() {
                return Err(at(name, format!("pluginConfig for {} is listed twice", name.value)));
            }
        }
        Ok(args)
    }
}

/// The plugins of a profile by name, in order.
struct Plugins<'a>(Vec<(&'a str, Box<dyn Plugin>)>);

impl<'a> Plugins<'a> {
    /// Makes each plugin once, except those that are left out.
    fn make(
        enabled: impl Iterator<Item = Enabled<'a>>,
        (args, ignored): (&BTreeMap<&str, &WireArgs>, &[String]),
        registry: &Registry,
        handle: &Handle,
    ) -> Result<Plugins<'a>, ConfigError> {
        let mut plugins = Plugins(Vec::new());
        for Enabled { name, line, .. } in enabled {
            let Some(factory) = registry.get(name) else { continue };
            if plugins.get(name).is_some() {
                continue;
            }
            let given = args.get(name);
            let line = given.map_or(line, |given| given.name.line);
            let mut value = given.and_then(|given| given.args.as_ref()).map(Cow::Borrowed);
            if name == FIT && !ignored.is_empty() {
                value = ignoring(value, ignored);
            }
            let plugin = factory(PluginArgs::new(name, value.as_deref()), handle)
                .map_err(|error| ConfigError::args_of(line, error))?;
            plugins.0.push((name, plugin));
        }
        Ok(plugins)
    }

    /// Returns a plugin, or `None` if it is left out.
    fn get(&self, name: &str) -> Option<&dyn Plugin> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, plugin)| &**plugin)
    }

    fn extends(&self, name: &str, point: Point) -> bool {
        self.get(name).is_some_and(|plugin| plugin.info().extends(point))
    }

    /// Returns the names of the plugins at each point.
    fn points(
        &self,
        sets: &'a WirePlugins,
        multi_point: &[Enabled<'a>],
    ) -> Result<Vec<(Point, Vec<&'a str>)>, ConfigError> {
        let mut points = Vec::new();
        for (point, set) in sets.points() {
            let extending = multi_point.iter().filter(|plugin| self.extends(plugin.name, point));
            let extending: Vec<Enabled<'a>> = extending.copied().collect();
            let mut names = Vec::new();
            for Enabled { name, line, .. } in set.expand(&extending) {
                if self.extends(name, point) {
                    names.push(name);
                } else if self.get(name).is_some() && !set.is_replacement(name) {
                    let what = format!("plugin {name:?} does not extend {point}Plugin plugin");
                    return Err(ConfigError::new(line, what));
                }
            }
            // Without the plugins that do not exist here, the point would have none, and the profile would be invalid.
            let is_left_alone = set.listed().any(|plugin| !names.contains(&plugin.name));
            if names.is_empty() && is_left_alone && matches!(point, Point::QueueSort | Point::Bind)
            {
                names.extend(extending.iter().map(|plugin| plugin.name));
            }
            points.push((point, names));
        }
        Ok(points)
    }

    /// Returns the weights of the plugins that score. The first of several weights of a plugin is used.
    fn weights(
        &self,
        enabled: impl Iterator<Item = Enabled<'a>>,
    ) -> Result<BTreeMap<&'a str, i64>, ConfigError> {
        let mut weights = BTreeMap::new();
        let mut total = 0_i64;
        for Enabled { name, weight, line } in enabled {
            if !self.extends(name, Point::Score) || weights.contains_key(name) {
                continue;
            }
            let weight = weight.max(1);
            let sum = weight.checked_mul(100).and_then(|score| total.checked_add(score));
            total = sum.ok_or_else(|| {
                ConfigError::new(line, "total score of Score plugins could overflow")
            })?;
            weights.insert(name, weight);
        }
        Ok(weights)
    }

    fn build(
        self,
        points: &[(Point, Vec<&str>)],
        weights: &BTreeMap<&str, i64>,
        handle: &Handle,
    ) -> Result<Framework, FrameworkError> {
        let weight = |name| weights.get(name).copied().unwrap_or(0);
        let plugins = self.0.into_iter().map(|(name, plugin)| (plugin, weight(name))).collect();
        Ok(Framework::with_points(plugins, points)?.with_handle(handle.clone()))
    }
}

/// The plugin whose arguments name the resources that it ignores.
const FIT: &str = "NodeResourcesFit";

/// Replaces the ignored resources in the arguments of NodeResourcesFit. Arguments that are not an object are kept, and
/// are rejected when they are read.
fn ignoring<'a>(args: Option<Cow<'a, Value>>, ignored: &[String]) -> Option<Cow<'a, Value>> {
    let mut args = args.map_or(Value::Null, Cow::into_owned);
    if args.is_null() {
        args = Value::Object(Map::new());
    }
    if let Value::Object(fields) = &mut args {
        fields.insert("ignoredResources".to_owned(), ignored.into());
    }
    Some(Cow::Owned(args))
}

/// Checks the points that require a plugin. `profile` is the profile's name.
fn check_counts(points: &[(Point, Vec<&str>)], profile: &str) -> Result<(), String> {
    for (point, names) in points {
        match (point, names.len()) {
            (Point::QueueSort, 1) => {}
            (Point::QueueSort, count) => {
                return Err(format!(
                    "only one queue sort plugin required for profile with scheduler name \
                     {profile:?}, but got {count}"
                ));
            }
            (Point::Bind, 0) => {
                return Err(format!(
                    "at least one bind plugin is needed for profile with scheduler name {profile:?}"
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

fn unknown(name: &At<String>) -> ConfigError {
    let what =
        format!("plugin {:?} does not exist: register it, or check the spelling", name.value);
    ConfigError { unknown_plugin: Some(name.value.as_str().into()), ..at(name, what) }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct WireProfile {
    pub(super) scheduler_name: Option<At<String>>,
    pub(super) percentage_of_nodes_to_score: Option<At<i64>>,
    plugins: WirePlugins,
    plugin_config: Vec<WireArgs>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WireArgs {
    name: At<String>,
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
    name: At<String>,
    #[serde(default)]
    weight: i64,
    /// Whether it stands for a plugin of another project, which may extend other points.
    #[serde(skip)]
    is_replaced: bool,
}

/// The sets with their points, of which `multiPoint` has none.
macro_rules! sets {
    ($plugins:ident $(, $mutable:tt)?) => {
        [
            (None, &$($mutable)? $plugins.multi_point),
            (Some(Point::PreEnqueue), &$($mutable)? $plugins.pre_enqueue),
            (Some(Point::QueueSort), &$($mutable)? $plugins.queue_sort),
            (Some(Point::PreFilter), &$($mutable)? $plugins.pre_filter),
            (Some(Point::Filter), &$($mutable)? $plugins.filter),
            (Some(Point::PostFilter), &$($mutable)? $plugins.post_filter),
            (Some(Point::PreScore), &$($mutable)? $plugins.pre_score),
            (Some(Point::Score), &$($mutable)? $plugins.score),
            (Some(Point::Reserve), &$($mutable)? $plugins.reserve),
            (Some(Point::Permit), &$($mutable)? $plugins.permit),
            (Some(Point::PreBind), &$($mutable)? $plugins.pre_bind),
            (Some(Point::Bind), &$($mutable)? $plugins.bind),
            (Some(Point::PostBind), &$($mutable)? $plugins.post_bind),
        ]
    };
}

impl WirePlugins {
    fn points(&self) -> impl Iterator<Item = (Point, &WireSet)> {
        self.all().into_iter().filter_map(|(point, set)| Some((point?, set)))
    }

    fn all(&self) -> [(Option<Point>, &WireSet); Point::ALL.len() + 1] {
        sets!(self)
    }

    fn all_mut(&mut self) -> [(Option<Point>, &mut WireSet); Point::ALL.len() + 1] {
        sets!(self, mut)
    }

    /// Returns the plugins that run at all points that they extend.
    fn multi_point<'a>(&'a self, registry: &'a Registry) -> Result<Vec<Enabled<'a>>, ConfigError> {
        let defaults = registry.default_profile().iter();
        let defaults = defaults.map(|(name, weight)| Enabled { name, weight: *weight, line: 0 });
        let merged = self.multi_point.merge(defaults);
        // Plugins that the configuration names have been checked, so this is a default.
        match merged.iter().find(|plugin| !registry.knows(plugin.name)) {
            Some(Enabled { name, line, .. }) => Err(ConfigError::new(
                *line,
                format!(
                    "plugin {name:?} of the default profile does not exist: register it, or \
                     disable it in multiPoint"
                ),
            )),
            None => Ok(merged),
        }
    }
}

impl WireSet {
    fn check(&self, point: Option<Point>, registry: &Registry) -> Result<(), ConfigError> {
        let mut seen = BTreeSet::new();
        for plugin in &self.enabled {
            let name = &plugin.name.value;
            if !registry.knows(name) {
                return Err(unknown(&plugin.name));
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

    /// Returns whether the plugin is enabled in place of one of another project.
    fn is_replacement(&self, name: &str) -> bool {
        self.enabled.iter().any(|plugin| plugin.is_replaced && plugin.name.value == name)
    }

    fn disables(&self, name: &str) -> bool {
        self.disabled.iter().any(|plugin| plugin.name.value == name || plugin.name.value == "*")
    }

    fn listed(&self) -> impl Iterator<Item = Enabled<'_>> {
        self.enabled.iter().map(|plugin| Enabled {
            name: &plugin.name.value,
            weight: plugin.weight,
            line: plugin.name.line,
        })
    }

    /// Returns the defaults without the disabled plugins, with enabled defaults replaced in place, followed by the
    /// other enabled plugins (default_plugins.go `mergePluginSet`).
    fn merge<'a>(&'a self, defaults: impl Iterator<Item = Enabled<'a>>) -> Vec<Enabled<'a>> {
        let mut merged: Vec<Enabled<'a>> = defaults
            .filter(|default| !self.disables(default.name))
            .map(|default| self.listed().find(|p| p.name == default.name).unwrap_or(default))
            .collect();
        append_new(&mut merged, self.listed());
        merged
    }

    /// Returns the plugins of this extension point: first those listed for it that are also in `multiPoint`, then the
    /// rest of `multiPoint`, then the other listed plugins (framework.go `expandMultiPointPlugins`).
    fn expand<'a>(&'a self, multi_point: &[Enabled<'a>]) -> Vec<Enabled<'a>> {
        let is_multi = |name: &str| multi_point.iter().any(|known| known.name == name);
        let takes_multi = !self.disabled.iter().any(|plugin| plugin.name.value == "*");
        let mut expanded = Vec::new();
        if takes_multi {
            expanded.extend(self.listed().filter(|plugin| is_multi(plugin.name)));
            let rest = multi_point.iter().filter(|plugin| !self.disables(plugin.name));
            append_new(&mut expanded, rest.copied());
        }
        append_new(&mut expanded, self.listed());
        expanded
    }
}

/// Appends the plugins whose names are not in the list yet.
fn append_new<'a>(list: &mut Vec<Enabled<'a>>, plugins: impl Iterator<Item = Enabled<'a>>) {
    for plugin in plugins {
        if !list.iter().any(|known| known.name == plugin.name) {
            list.push(plugin);
        }
    }
}
