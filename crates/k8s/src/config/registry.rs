//! A registry of plugin factories by name.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use portolan::plugin::{Handle, Plugin, default_plugin, default_plugins};
use portolan_dra::plugin::{self as dra, Backend};

use super::args;
use crate::error::Path;
use crate::yaml::{Origin, Typed};

/// Creates a plugin from its arguments.
pub(super) type Factory =
    Box<dyn Fn(PluginArgs<'_>, &Handle) -> Result<Box<dyn Plugin>, ArgsError> + Send + Sync>;

/// The arguments of one plugin in `pluginConfig`.
///
/// A factory reads them as any type that implements [`serde::Deserialize`]. The fields `apiVersion` and `kind`, which
/// the arguments of kube-scheduler's plugins may have, are not treated specially.
#[derive(Clone, Copy, Debug)]
pub struct PluginArgs<'a> {
    plugin: &'a str,
    value: Option<&'a Value>,
}

impl<'a> PluginArgs<'a> {
    /// Creates the arguments of a plugin. `null` is treated as absent.
    pub(super) fn new(plugin: &'a str, value: Option<&'a Value>) -> PluginArgs<'a> {
        PluginArgs { plugin, value: value.filter(|value| !value.is_null()) }
    }

    /// Returns the name under which the plugin is registered.
    #[must_use]
    pub fn plugin(&self) -> &'a str {
        self.plugin
    }

    /// Returns whether the configuration specifies arguments.
    pub(super) fn are_given(&self) -> bool {
        self.value.is_some()
    }

    /// Reads the arguments. Absent arguments are read as an empty object, so that fields with a serde default get it
    /// and other fields are missing.
    ///
    /// # Errors
    ///
    /// A field is missing, has the wrong type, or is unknown to a type that denies unknown fields.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, ArgsError> {
        let empty = Value::Object(Map::new());
        let value = self.value.unwrap_or(&empty);
        Typed::new(&value.into(), Path::Root, Origin::default())
            .read()
            .map_err(|error| self.invalid(error.path(), error.cause().to_string()))
    }

    /// Like [`PluginArgs::parse`], but accepts the fields `apiVersion` and `kind`, which in-tree plugins allow.
    pub(super) fn parse_versioned<T: DeserializeOwned>(&self) -> Result<T, ArgsError> {
        let mut value = self.value.cloned();
        for field in ["apiVersion", "kind"] {
            let removed =
                value.as_mut().and_then(Value::as_object_mut).and_then(|all| all.remove(field));
            if removed.is_some_and(|value| !value.is_string() && !value.is_null()) {
                return Err(self.invalid(field, "expected a text"));
            }
        }
        PluginArgs { value: value.as_ref(), ..*self }.parse()
    }

    /// Checks that there are no arguments, for a plugin that takes none.
    ///
    /// # Errors
    ///
    /// The configuration specifies arguments.
    pub fn none(&self) -> Result<(), ArgsError> {
        match self.value {
            None => Ok(()),
            Some(_) => Err(self.invalid("", "the plugin takes none")),
        }
    }

    /// Creates the error for a field whose value the plugin cannot use. An empty field stands for the arguments as a
    /// whole.
    #[must_use]
    pub fn invalid(&self, field: impl Into<String>, reason: impl Into<String>) -> ArgsError {
        ArgsError { plugin: self.plugin.to_owned(), field: field.into(), reason: reason.into() }
    }
}

/// A plugin rejects its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgsError {
    plugin: String,
    field: String,
    reason: String,
}

impl ArgsError {
    /// Returns the name of the plugin.
    #[must_use]
    pub fn plugin(&self) -> &str {
        &self.plugin
    }

    /// Returns the field, as in `scoringStrategy.resources[0].weight`. Empty if the error concerns the arguments as a
    /// whole.
    #[must_use]
    pub fn field(&self) -> &str {
        &self.field
    }

    /// Returns why the field is rejected.
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

/// Factories of plugins by name, and the plugins that run unless a configuration disables them.
///
/// A factory reads its arguments as a type of its own:
///
/// ```
/// use portolan::plugin::{Handle, Plugin, PluginInfo};
/// use portolan_k8s::config::{Configuration, Registry};
///
/// struct Racks { size: u32 }
/// impl Plugin for Racks {
///     fn info(&self) -> PluginInfo { PluginInfo::new("Racks", &[]) }
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
    /// Names of plugins elsewhere that do what a plugin here does, with the name of that plugin.
    equivalents: BTreeMap<String, String>,
    ignores_unknown: bool,
}

/// A plugin name is already registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// The name is already registered: choose another name.
    #[error("a plugin named {0} already exists: take another name")]
    Exists(String),
}

/// In-tree plugins that a configuration may name and that need more than a handle ([`Registry::of_cluster`]).
const LEFT_OUT: [&str; 1] = [dra::NAME];

/// Plugins of other projects whose part is done by a plugin here: Coscheduling of sigs.k8s.io/scheduler-plugins.
const EQUIVALENTS: [(&str, &str); 1] = [("Coscheduling", "GangScheduling")];

impl Registry {
    /// Creates a registry of kube-scheduler's plugins and Gödel's PodLauncher, which are the default profile, and of
    /// Gödel's LoadAware, which is not in the default profile.
    #[must_use]
    pub fn in_tree() -> Registry {
        let mut registry = Registry::default();
        for (plugin, weight) in default_plugins(&Handle::default()) {
            let name = plugin.info().name();
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
        registry.equivalents =
            EQUIVALENTS.map(|(name, here)| (name.to_owned(), here.to_owned())).into();
        registry
    }

    /// Like [`Registry::in_tree`], with DynamicResources before DefaultPreemption in the default profile, which writes
    /// claims with `backend`. The messages of pods that fit nowhere are then those of a cluster's scheduler.
    #[must_use]
    pub fn of_cluster(backend: Arc<dyn Backend>) -> Registry {
        let mut registry = Registry::in_tree();
        registry.left_out.remove(dra::NAME);
        let make = move |args: PluginArgs<'_>, handle: &Handle| {
            args::dynamic_resources(args, handle, backend.clone())
        };
        registry.factories.insert(dra::NAME.to_owned(), Box::new(make));
        let profile = &mut registry.profile;
        let before = profile.iter().position(|(name, _)| name == "DefaultPreemption");
        profile.insert(before.unwrap_or(profile.len()), (dra::NAME.to_owned(), dra::WEIGHT));
        registry
    }

    /// Registers a plugin under a name that configurations may use. `factory` creates the plugin, whose
    /// [`PluginInfo`](portolan::plugin::PluginInfo) must have the same name.
    ///
    /// # Errors
    ///
    /// The name is already registered.
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

    /// Sets the plugins that run unless a configuration disables them, in this order, each with the weight of its
    /// scores. A configuration is invalid if it does not disable a plugin of the default profile that is not registered.
    pub fn set_default_profile(&mut self, profile: Vec<(String, i64)>) {
        self.profile = profile;
    }

    /// Lets configurations name any plugin, and ignores unknown ones. The notes of a configuration name them. An unknown plugin alone at QueueSort or Bind is replaced by those of `multiPoint`.
    pub fn ignore_unknown(&mut self) {
        self.ignores_unknown = true;
    }

    /// Returns the plugin that does what a plugin of another project does, if that one is not registered itself.
    pub(super) fn equivalent(&self, name: &str) -> Option<&str> {
        let here = self.equivalents.get(name)?;
        let is_needed = !self.factories.contains_key(name) && self.factories.contains_key(here);
        is_needed.then_some(here)
    }

    /// Returns the names of all plugins.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.factories.keys().map(String::as_str)
    }

    pub(super) fn get(&self, name: &str) -> Option<&Factory> {
        self.factories.get(name)
    }

    /// Returns whether a configuration may name the plugin.
    pub(super) fn knows(&self, name: &str) -> bool {
        self.factories.contains_key(name) || self.left_out.contains(name) || self.ignores_unknown
    }

    /// Returns whether a plugin is ignored only because all unknown ones are.
    pub(super) fn is_unknown(&self, name: &str) -> bool {
        !self.factories.contains_key(name) && !self.left_out.contains(name)
    }

    /// Returns the plugins that run unless a configuration disables them, each with the weight of its scores.
    #[must_use]
    pub fn default_profile(&self) -> &[(String, i64)] {
        &self.profile
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[test]
    fn a_name_is_registered_once() {
        let mut registry = Registry::in_tree();
        let make = |_: PluginArgs<'_>, _: &Handle| -> Result<Box<dyn Plugin>, ArgsError> {
            Ok(default_plugin("NodeName", &Handle::default()).expect("a plugin"))
        };
        let exists = RegistryError::Exists("NodeName".to_owned());
        assert_eq!(registry.register("NodeName", make), Err(exists));
    }

    #[test]
    fn every_in_tree_plugin_is_made_without_arguments() {
        let registry = Registry::in_tree();
        for name in registry.names() {
            let factory = registry.get(name).unwrap();
            let made = factory(PluginArgs::new(name, None), &Handle::default());
            assert_eq!(made.map(|plugin| plugin.info().name()), Ok(name));
        }
    }

    #[test]
    fn absent_arguments_read_as_an_empty_object() {
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

    #[test]
    fn an_error_names_the_field_that_its_type_refuses() {
        #[derive(Debug, Deserialize)]
        struct Args {
            #[expect(dead_code, reason = "only its type matters")]
            count: std::num::NonZeroU32,
        }
        #[derive(Debug, Deserialize)]
        #[expect(dead_code, reason = "only the types matter")]
        struct Outer {
            inner: Args,
            pair: [u32; 2],
        }
        let error = |value: Value| {
            let args = PluginArgs::new("P", Some(&value));
            let error = args.parse::<Outer>().expect_err("an error");
            (error.field().to_owned(), error.reason().to_owned())
        };
        let (field, reason) = error(serde_json::json!({ "inner": { "count": 0 }, "pair": [1, 2] }));
        assert!(field == "inner.count" && reason.contains("a nonzero u32"), "{field}: {reason}");
        let (field, reason) =
            error(serde_json::json!({ "inner": { "count": 1 }, "pair": [1, 2, 3] }));
        assert!(field == "pair" && reason.contains("invalid length 3"), "{field}: {reason}");
    }
}
