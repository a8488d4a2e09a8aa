//! Plugins by name, made from the arguments of a configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use portolan::framework::{Handle, Plugin};
use portolan::plugins::{default_plugin, default_plugins};

use super::args;

/// Makes a plugin from its arguments.
pub(super) type Factory =
    Box<dyn Fn(PluginArgs<'_>, &Handle) -> Result<Box<dyn Plugin>, ArgsError> + Send + Sync>;

/// The arguments of one plugin, as `pluginConfig` has them.
///
/// A factory reads them as any type that implements [`serde::Deserialize`]. The fields `apiVersion` and `kind`, which
/// kube-scheduler's arguments may have, are fields like any other.
#[derive(Clone, Copy, Debug)]
pub struct PluginArgs<'a> {
    plugin: &'a str,
    value: Option<&'a Value>,
}

impl<'a> PluginArgs<'a> {
    /// The arguments of the plugin of this name. `null` is the same as none.
    pub(super) fn new(plugin: &'a str, value: Option<&'a Value>) -> PluginArgs<'a> {
        PluginArgs { plugin, value: value.filter(|value| !value.is_null()) }
    }

    /// The name that the plugin is registered under.
    #[must_use]
    pub fn plugin(&self) -> &'a str {
        self.plugin
    }

    /// Whether the configuration gives arguments.
    #[must_use]
    pub fn are_given(&self) -> bool {
        self.value.is_some()
    }

    /// Reads the arguments; without any, an empty object is read, so that fields with a serde default have it and
    /// others are missing.
    ///
    /// # Errors
    ///
    /// A field is missing, has another type, or is unknown to a type that denies unknown fields.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, ArgsError> {
        let empty = Value::Object(Map::new());
        let value = self.value.unwrap_or(&empty);
        // Paths are tracked only once something is known to be wrong.
        T::deserialize(value).or_else(|_| {
            serde_path_to_error::deserialize(value).map_err(|error| {
                let field = error.path().to_string();
                self.invalid(field, error.into_inner().to_string())
            })
        })
    }

    /// Checks that there are no arguments, for a plugin that takes none.
    ///
    /// # Errors
    ///
    /// There are some.
    pub fn none(&self) -> Result<(), ArgsError> {
        match self.value {
            None => Ok(()),
            Some(_) => Err(self.invalid("", "it takes none")),
        }
    }

    /// The error of a field whose value the plugin cannot use. An empty field means the arguments as a whole.
    #[must_use]
    pub fn invalid(&self, field: impl Into<String>, reason: impl Into<String>) -> ArgsError {
        let field = field.into();
        let field = if field == "." { String::new() } else { field };
        ArgsError { plugin: self.plugin.to_owned(), field, reason: reason.into() }
    }
}

/// A plugin cannot use its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgsError {
    plugin: String,
    field: String,
    reason: String,
}

impl ArgsError {
    /// The plugin.
    #[must_use]
    pub fn plugin(&self) -> &str {
        &self.plugin
    }

    /// The field, as in `scoringStrategy.resources[0].weight`; empty if the arguments as a whole are meant.
    #[must_use]
    pub fn field(&self) -> &str {
        &self.field
    }

    /// Why the field cannot be used.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for ArgsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "arguments of {}: ", self.plugin)?;
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.reason)
    }
}

impl std::error::Error for ArgsError {}

/// Plugins by name, as factories; and which of them run unless a configuration disables them.
///
/// A factory reads its arguments as a type of its own:
///
/// ```
/// use portolan::framework::{Handle, Plugin, Point};
/// use portolan_k8s::config::{Configuration, Registry};
///
/// struct Racks { size: u32 }
/// impl Plugin for Racks {
///     fn name(&self) -> &'static str { "Racks" }
///     fn points(&self) -> &'static [Point] { &[] }
/// }
///
/// #[derive(serde::Deserialize)]
/// #[serde(rename_all = "camelCase", deny_unknown_fields)]
/// struct RacksArgs { rack_size: u32 }
///
/// let mut registry = Registry::in_tree();
/// registry.register("Racks", |args, _| {
///     let RacksArgs { rack_size } = args.parse()?;
///     if rack_size == 0 {
///         return Err(args.invalid("rackSize", "must be 1 or more"));
///     }
///     Ok(Box::new(Racks { size: rack_size }))
/// })?;
///
/// let read = |size: &str| {
///     let text = format!("
/// apiVersion: kubescheduler.config.k8s.io/v1
/// kind: KubeSchedulerConfiguration
/// profiles:
/// - plugins: {{multiPoint: {{enabled: [{{name: Racks}}]}}}}
///   pluginConfig: [{{name: Racks, args: {{rackSize: {size}}}}}]
/// ");
///     Configuration::read(&text, &registry, &Handle::default())
/// };
/// assert!(read("40").is_ok());
/// let error = read("many").err().unwrap();
/// let args = error.args().unwrap();
/// assert_eq!((error.line(), args.plugin(), args.field()), (6, "Racks", "rackSize"));
/// assert_eq!(read("0").err().unwrap().args().unwrap().reason(), "must be 1 or more");
/// # Ok::<(), portolan_k8s::config::RegistryError>(())
/// ```
#[derive(Default)]
pub struct Registry {
    factories: BTreeMap<String, Factory>,
    profile: Vec<(String, i64)>,
    left_out: BTreeSet<String>,
}

/// A name is taken already, or does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// A plugin of this name exists: take another name, or unregister it.
    #[error("a plugin named {0} already exists: take another name, or unregister it first")]
    Exists(String),
    /// No plugin of this name exists.
    #[error("no plugin named {0} exists")]
    NotFound(String),
}

/// In-tree plugins that a configuration may name, and that do nothing here: pods
/// with resource claims are refused.
const LEFT_OUT: [&str; 1] = ["DynamicResources"];

impl Registry {
    /// Kube-scheduler's plugins and Gödel's PodLauncher, with the default profile; and
    /// Gödel's LoadAware, which is not in it.
    #[must_use]
    pub fn in_tree() -> Registry {
        let mut registry = Registry::default();
        for (plugin, weight) in default_plugins(&Handle::default()) {
            let name = plugin.name();
            let factory: Factory = match args::factory(name) {
                Some(factory) => Box::new(factory),
                None => Box::new(move |args, handle| {
                    args.none()?;
                    let missing = || args.invalid("", "the plugin does not exist");
                    default_plugin(name, handle).ok_or_else(missing)
                }),
            };
            registry.factories.insert(name.to_owned(), factory);
            registry.profile.push((name.to_owned(), weight));
        }
        registry.factories.insert("LoadAware".to_owned(), Box::new(args::load_aware));
        registry.left_out = LEFT_OUT.map(str::to_owned).into();
        registry
    }

    /// Adds a plugin: a configuration may name it, and `factory` makes it.
    ///
    /// # Errors
    ///
    /// The name is taken.
    pub fn register(
        &mut self,
        name: &str,
        factory: impl Fn(PluginArgs<'_>, &Handle) -> Result<Box<dyn Plugin>, ArgsError>
        + Send
        + Sync
        + 'static,
    ) -> Result<(), RegistryError> {
        if self.factories.contains_key(name) {
            return Err(RegistryError::Exists(name.to_owned()));
        }
        self.left_out.remove(name);
        self.factories.insert(name.to_owned(), Box::new(factory));
        Ok(())
    }

    /// Removes a plugin.
    ///
    /// # Errors
    ///
    /// No plugin of this name exists.
    pub fn unregister(&mut self, name: &str) -> Result<(), RegistryError> {
        match self.factories.remove(name) {
            Some(_) => Ok(()),
            None => Err(RegistryError::NotFound(name.to_owned())),
        }
    }

    /// Adds all plugins of another registry.
    ///
    /// # Errors
    ///
    /// One of its names is taken; nothing is added then.
    pub fn merge(&mut self, other: Registry) -> Result<(), RegistryError> {
        let taken = other.factories.keys().find(|name| self.factories.contains_key(*name));
        if let Some(name) = taken {
            return Err(RegistryError::Exists(name.clone()));
        }
        self.factories.extend(other.factories);
        Ok(())
    }

    /// The plugins that run unless a configuration disables them, in this order,
    /// each with the weight of its scores.
    pub fn set_default_profile(&mut self, profile: Vec<(String, i64)>) {
        self.profile = profile;
    }

    /// Lets a configuration name this plugin, which does not exist and is left out.
    pub fn leave_out(&mut self, name: &str) {
        self.left_out.insert(name.to_owned());
    }

    /// The names of all plugins.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.factories.keys().map(String::as_str)
    }

    pub(super) fn get(&self, name: &str) -> Option<&Factory> {
        self.factories.get(name)
    }

    /// Whether a configuration may name it.
    pub(super) fn knows(&self, name: &str) -> bool {
        self.factories.contains_key(name) || self.left_out.contains(name)
    }

    pub(super) fn default_profile(&self) -> &[(String, i64)] {
        &self.profile
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portolan::plugins::NodeName;
    use serde::Deserialize;

    #[test]
    fn names_are_taken_once() {
        let mut registry = Registry::in_tree();
        let make = |_: PluginArgs<'_>, _: &Handle| -> Result<Box<dyn Plugin>, ArgsError> {
            Ok(Box::new(NodeName))
        };
        let exists = RegistryError::Exists("NodeName".to_owned());
        assert_eq!(registry.register("NodeName", make), Err(exists.clone()));
        let mut mine = Registry::default();
        mine.register("Mine", make).unwrap();
        mine.register("NodeName", make).unwrap();
        assert_eq!(registry.merge(mine), Err(exists));
        assert_eq!(registry.unregister("Mine"), Err(RegistryError::NotFound("Mine".to_owned())));
        registry.unregister("NodeName").unwrap();
        registry.register("NodeName", make).unwrap();
    }

    #[test]
    fn every_in_tree_plugin_is_made_without_arguments() {
        let registry = Registry::in_tree();
        for name in registry.names() {
            let factory = registry.get(name).unwrap();
            let made = factory(PluginArgs::new(name, None), &Handle::default());
            assert_eq!(made.map(|plugin| plugin.name()), Ok(name));
        }
    }

    #[test]
    fn arguments_that_are_absent_read_as_an_empty_object() {
        #[derive(Debug, PartialEq, Eq, Deserialize)]
        struct Args {
            #[serde(default)]
            a: u32,
            b: Option<u32>,
        }
        #[derive(Debug, Deserialize)]
        struct Required {
            #[expect(dead_code, reason = "only its absence matters")]
            a: u32,
        }
        let none = PluginArgs::new("P", Some(&Value::Null));
        assert!(!none.are_given());
        assert_eq!(none.parse::<Args>(), Ok(Args { a: 0, b: None }));
        let error = none.parse::<Required>().unwrap_err();
        assert_eq!((error.plugin(), error.field()), ("P", ""));
        assert!(error.reason().contains("missing field `a`"), "{error}");
    }
}
