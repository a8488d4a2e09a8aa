//! Devices as selectors see them.

use std::borrow::Cow;

use crate::model::{Attribute, Capacity, Device};

use super::amount::Amount;
use super::error::Fault;
use super::value::Value;
use super::version::Version;

/// A device of a driver.
///
/// A name without a domain belongs to the domain of the driver, so `model` of the driver `gpu.example.com` is
/// `gpu.example.com/model`. Selectors read it as `device.attributes["gpu.example.com"].model`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given<'a> {
    pub(super) driver: &'a str,
    pub(super) device: &'a Device,
}

/// The two maps of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Attributes,
    Capacity,
}

/// An entry of one of them.
#[derive(Clone, Copy)]
enum Entry<'a> {
    Attribute(&'a Attribute),
    Capacity(&'a Capacity),
}

impl<'a> Given<'a> {
    /// Returns an error if an attribute is not the version that it claims to be.
    pub(super) fn check(self) -> Result<(), Fault> {
        for (name, attribute) in &self.device.attributes {
            if let Attribute::Version(text) = attribute
                && let Err(error) = text.parse::<Version>()
            {
                let reason = format!("attribute {name}: parse semantic version: {error}");
                return Err(Fault::text(reason));
            }
        }
        Ok(())
    }

    fn at(self, field: Field, name: &str) -> Option<Entry<'a>> {
        match field {
            Field::Attributes => self.device.attributes.get(name).map(Entry::Attribute),
            Field::Capacity => self.device.capacity.get(name).map(Entry::Capacity),
        }
    }

    fn entries(self, field: Field) -> impl Iterator<Item = (&'a str, Entry<'a>)> {
        let (attributes, capacities) = match field {
            Field::Attributes => (Some(&self.device.attributes), None),
            Field::Capacity => (None, Some(&self.device.capacity)),
        };
        let attributes = attributes.into_iter().flatten();
        let capacities = capacities.into_iter().flatten();
        let attributes = attributes.map(|(name, of)| (&**name, Entry::Attribute(of)));
        attributes.chain(capacities.map(|(name, of)| (&**name, Entry::Capacity(of))))
    }

    /// Returns the domain of a name, and the name within it.
    fn split(self, name: &'a str) -> (&'a str, &'a str) {
        name.split_once('/').unwrap_or((self.driver, name))
    }

    /// Returns a value by its domain and name. Of two that differ only in whether the driver's domain is written, it is
    /// the one without.
    pub(super) fn get(self, field: Field, domain: &str, id: &str) -> Option<Value<'a>> {
        let short = || self.at(field, id).filter(|_| domain == self.driver && !id.contains('/'));
        let qualified = || {
            // The lengths exclude most of them.
            let len = domain.len() + 1 + id.len();
            let is_it = |name: &str| name.len() == len && self.split(name) == (domain, id);
            self.entries(field).find(|(name, _)| is_it(name)).map(|(_, entry)| entry)
        };
        short().or_else(qualified).map(Value::from)
    }

    pub(super) fn has_domain(self, field: Field, domain: &str) -> bool {
        self.entries(field).any(|(name, _)| self.split(name).0 == domain)
    }

    /// Returns each domain once, in the order of the names.
    pub(super) fn domains(self, field: Field) -> Vec<&'a str> {
        let mut domains = Vec::new();
        for (name, _) in self.entries(field) {
            let (domain, _) = self.split(name);
            if !domains.contains(&domain) {
                domains.push(domain);
            }
        }
        domains
    }

    /// Returns the names and values of a domain, in the order of the names.
    pub(super) fn of_domain(
        self,
        field: Field,
        domain: &str,
    ) -> impl Iterator<Item = (&'a str, Value<'a>)> {
        self.entries(field).filter_map(move |(name, entry)| {
            let (of, id) = self.split(name);
            let is_shadowed =
                name.len() != id.len() && of == self.driver && self.at(field, id).is_some();
            (of == domain && !is_shadowed).then(|| (id, entry.into()))
        })
    }
}

impl<'a> From<Entry<'a>> for Value<'a> {
    fn from(entry: Entry<'a>) -> Value<'a> {
        match entry {
            Entry::Attribute(Attribute::Bool(value)) => Value::Bool(*value),
            Entry::Attribute(Attribute::Int(value)) => Value::Int(*value),
            Entry::Attribute(Attribute::String(text)) => Value::Str(Cow::Borrowed(text)),
            Entry::Attribute(Attribute::Version(text)) => match text.parse() {
                Ok(version) => Value::Version(Cow::Owned(version)),
                // Excluded by `check`.
                Err(_) => Value::Null,
            },
            Entry::Capacity(capacity) => {
                Value::Quantity(Amount::canonical(capacity.value.quantity()))
            }
        }
    }
}
