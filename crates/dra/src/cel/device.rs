//! Devices as selectors see them.

use portolan::model::Quantity;

use super::version::Version;

/// A device of a driver, with its attributes and capacities by domain.
///
/// A name without a domain belongs to the domain of the driver, so `model` of the driver `gpu.example.com` is
/// `gpu.example.com/model`. Selectors read it as `device.attributes["gpu.example.com"].model`.
#[derive(Clone, Debug, Default)]
pub struct Device<'a> {
    pub(super) driver: &'a str,
    pub(super) allow_multiple_allocations: bool,
    pub(super) attributes: Names<'a, Attribute<'a>>,
    pub(super) capacities: Names<'a, Quantity>,
}

/// The value of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribute<'a> {
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A string.
    String(&'a str),
    /// A semantic version.
    Version(&'a Version),
}

impl<'a> Device<'a> {
    /// Returns a device without attributes and capacities.
    #[must_use]
    pub fn new(driver: &'a str) -> Device<'a> {
        Device { driver, ..Device::default() }
    }

    /// Sets `device.allowMultipleAllocations`, which is false by default.
    #[must_use]
    pub fn allow_multiple_allocations(mut self, allow: bool) -> Device<'a> {
        self.allow_multiple_allocations = allow;
        self
    }

    /// Adds an attribute, or replaces the one of this name.
    #[must_use]
    pub fn attribute(mut self, name: &'a str, value: Attribute<'a>) -> Device<'a> {
        self.attributes.set(name, self.driver, value);
        self
    }

    /// Adds a capacity, or replaces the one of this name.
    #[must_use]
    pub fn capacity(mut self, name: &'a str, value: Quantity) -> Device<'a> {
        self.capacities.set(name, self.driver, value);
        self
    }
}

/// Values by domain and name. A device has at most 32, so a scan beats a map.
#[derive(Clone, Debug)]
pub(super) struct Names<'a, T> {
    entries: Vec<(&'a str, &'a str, T)>,
}

impl<T> Default for Names<'_, T> {
    fn default() -> Self {
        Names { entries: Vec::new() }
    }
}

impl<'a, T> Names<'a, T> {
    fn set(&mut self, name: &'a str, driver: &'a str, value: T) {
        let (domain, id) = name.split_once('/').unwrap_or((driver, name));
        match self.entries.iter_mut().find(|entry| entry.1 == id && entry.0 == domain) {
            Some(entry) => entry.2 = value,
            None => self.entries.push((domain, id, value)),
        }
    }

    pub(super) fn get(&self, domain: &str, id: &str) -> Option<&T> {
        self.entries.iter().find(|entry| entry.1 == id && entry.0 == domain).map(|entry| &entry.2)
    }

    pub(super) fn has_domain(&self, domain: &str) -> bool {
        self.entries.iter().any(|entry| entry.0 == domain)
    }

    /// Returns each domain once, in the order in which they were added.
    pub(super) fn domains(&self) -> impl Iterator<Item = &'a str> {
        let first = |at: usize| self.entries[..at].iter().all(|e| e.0 != self.entries[at].0);
        (0..self.entries.len()).filter(move |at| first(*at)).map(|at| self.entries[at].0)
    }

    /// Returns the names and values of a domain, in the order in which they were added.
    pub(super) fn of_domain(&self, domain: &str) -> impl Iterator<Item = (&'a str, &T)> {
        self.entries.iter().filter(move |entry| entry.0 == domain).map(|entry| (entry.1, &entry.2))
    }
}
