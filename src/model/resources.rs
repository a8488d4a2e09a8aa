//! Amounts of resources, as integers of a fixed unit.
//!
//! kube-scheduler framework/types.go `Resource`: cpu in milli-cores, memory and
//! ephemeral storage in bytes, and every scalar resource (extended resources,
//! huge pages, prefixed native ones, attachable volumes) as a whole number.

use std::fmt;

use super::Name;

/// An amount of cpu, in thousandths of a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MilliCpu(pub i64);

/// An amount of memory or storage, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub i64);

impl Bytes {
    /// Mebibytes as bytes.
    #[must_use]
    pub const fn mebi(n: i64) -> Bytes {
        Bytes(n * 1024 * 1024)
    }
}

/// A sum of resources left the range of a 64-bit integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sum of requested resources exceeds 64 bits")]
pub struct ResourceOverflow;

/// Amounts of all kinds of resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Resources {
    /// Cpu.
    pub cpu: MilliCpu,
    /// Memory.
    pub memory: Bytes,
    /// Local ephemeral storage.
    pub ephemeral_storage: Bytes,
    /// Scalar resources by name.
    pub scalars: Scalars,
}

/// Scalar resources: names and whole numbers, sorted by name.
///
/// A zero amount can be held: it says that the resource was named.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Scalars(Box<[(Name, i64)]>);

impl Scalars {
    /// The scalars with these amounts; amounts of one name are the last given.
    pub fn new(amounts: impl IntoIterator<Item = (Name, i64)>) -> Scalars {
        let mut amounts: Vec<(Name, i64)> = amounts.into_iter().collect();
        amounts.sort_by(|a, b| a.0.cmp(&b.0));
        amounts.reverse();
        amounts.dedup_by(|a, b| a.0 == b.0);
        amounts.reverse();
        Scalars(amounts.into())
    }

    /// The amount of `name`, if it was named.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<i64> {
        self.0.binary_search_by(|(n, _)| (**n).cmp(name)).ok().map(|i| self.0[i].1)
    }

    /// All amounts in the order of their names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Name, i64)> {
        self.0.iter().map(|(name, amount)| (name, *amount))
    }

    /// Whether none was named.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many were named.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Debug for Scalars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl Resources {
    /// Whether no resource is requested: all amounts are zero.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.cpu.0 == 0
            && self.memory.0 == 0
            && self.ephemeral_storage.0 == 0
            && self.scalars.iter().all(|(_, amount)| amount == 0)
    }
}

/// Whether a resource name is kept as a scalar: an extended resource, huge
/// pages, a native resource with the prefix `kubernetes.io/`, or attachable
/// volumes (kube-scheduler util/resource `IsScalarResourceName`).
#[must_use]
pub fn is_scalar(name: &str) -> bool {
    name.starts_with("hugepages-")
        || name.starts_with("attachable-volumes-")
        || (name.contains('/') && !name.starts_with("requests."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_amount_of_a_name_wins() {
        let s = Scalars::new([("b".into(), 1), ("a".into(), 2), ("b".into(), 3)]);
        assert_eq!(s.get("b"), Some(3));
        assert_eq!(s.len(), 2);
    }
}
