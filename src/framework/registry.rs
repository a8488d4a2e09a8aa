//! Plugins by name.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Handle, Plugin};

/// Makes a plugin of its arguments, none of them given where there are none.
///
/// The error says what is wrong with which of them.
pub type Factory =
    Box<dyn Fn(Option<&Value>, &Handle) -> Result<Box<dyn Plugin>, String> + Send + Sync>;

/// Plugins by name, as factories; and which of them run unless a configuration
/// says otherwise.
#[derive(Default)]
pub struct Registry {
    factories: BTreeMap<String, Factory>,
    profile: Vec<(String, i64)>,
    left_out: BTreeSet<String>,
}

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
    /// Adds a plugin.
    ///
    /// # Errors
    ///
    /// The name is taken.
    pub fn register(&mut self, name: &str, factory: Factory) -> Result<(), RegistryError> {
        if self.factories.contains_key(name) {
            return Err(RegistryError::Exists(name.to_owned()));
        }
        self.left_out.remove(name);
        self.factories.insert(name.to_owned(), factory);
        Ok(())
    }

    /// Takes a plugin away.
    ///
    /// # Errors
    ///
    /// There is none of this name.
    pub fn unregister(&mut self, name: &str) -> Result<(), RegistryError> {
        match self.factories.remove(name) {
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

    /// A configuration may name this plugin, and does without it.
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
    use crate::plugins;

    #[test]
    fn names_are_taken_once() {
        let mut registry = Registry::in_tree();
        let factory = || -> Factory { Box::new(|_, _| Ok(Box::new(plugins::NodeName))) };
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
