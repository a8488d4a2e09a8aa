//! Amounts of resources, as integers in fixed units.
//!
//! As in kube-scheduler (framework/types.go `Resource`), cpu is in milli-cores, memory and ephemeral storage are in
//! bytes, and every scalar resource (extended resources, huge pages, prefixed native resources, attachable volumes) is
//! a whole number.

use std::fmt;

use super::Name;

/// An amount of cpu, in thousandths of a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MilliCpu(pub i64);

/// An amount of memory or storage, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Bytes(pub i64);

/// The error for a sum of resources that exceeds the range of a 64-bit integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sum of requested resources exceeds 64 bits")]
pub struct ResourceOverflow;

/// The amounts of all kinds of resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Resources {
    /// The cpu.
    pub cpu: MilliCpu,
    /// The memory.
    pub memory: Bytes,
    /// The local ephemeral storage.
    pub ephemeral_storage: Bytes,
    /// The scalar resources by name.
    pub scalars: Scalars,
}

/// Scalar resources: names with whole-number amounts, sorted by name.
///
/// An amount can be zero, which records that the resource was named.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Scalars(Box<[(Name, i64)]>);

impl Scalars {
    /// Creates scalars from `amounts`. If a name occurs several times, the last amount wins.
    pub fn new(amounts: impl IntoIterator<Item = (Name, i64)>) -> Scalars {
        let mut amounts: Vec<(Name, i64)> = amounts.into_iter().collect();
        amounts.sort_by(|a, b| a.0.cmp(&b.0));
        amounts.reverse();
        amounts.dedup_by(|a, b| a.0 == b.0);
        amounts.reverse();
        Scalars(amounts.into())
    }

    /// Returns the amount of `name`, or `None` if it was not named.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<i64> {
        self.0.binary_search_by(|(n, _)| (**n).cmp(name)).ok().map(|i| self.0[i].1)
    }

    /// Returns an iterator over the amounts in name order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Name, i64)> {
        self.0.iter().map(|(name, amount)| (name, *amount))
    }

    /// Returns `true` if no resource was named.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of named resources.
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
    /// Returns `true` if every amount is zero.
    #[doc(hidden)]
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.cpu.0 == 0
            && self.memory.0 == 0
            && self.ephemeral_storage.0 == 0
            && self.scalars.iter().all(|(_, amount)| amount == 0)
    }

    /// Returns the amount of the resource of this name, in the unit of its field; 0 if it is not named. O(log scalars).
    #[must_use]
    pub fn amount(&self, name: &str) -> i64 {
        match name {
            "cpu" => self.cpu.0,
            "memory" => self.memory.0,
            "ephemeral-storage" => self.ephemeral_storage.0,
            name => self.scalars.get(name).unwrap_or(0),
        }
    }
}

impl Resources {
    /// Returns the first resource with a negative amount, or `None` if there is none. O(scalars).
    pub(crate) fn negative(&self) -> Option<Name> {
        let fixed = [
            ("cpu", self.cpu.0),
            ("memory", self.memory.0),
            ("ephemeral-storage", self.ephemeral_storage.0),
        ];
        let fixed = fixed.into_iter().find(|(_, amount)| *amount < 0);
        let scalar = || self.scalars.iter().find(|(_, amount)| *amount < 0);
        fixed.map(|(name, _)| name.into()).or_else(|| scalar().map(|(name, _)| name.clone()))
    }
}

/// Returns `true` if the resource has a dedicated field and is therefore never a scalar.
pub(crate) fn is_native(name: &str) -> bool {
    matches!(name, "cpu" | "memory" | "ephemeral-storage" | "pods")
}

/// Returns whether kube-scheduler accounts for a resource of this name: cpu, memory, ephemeral storage and
/// pods; huge pages and attachable volumes; native names with `kubernetes.io/` in them; and extended
/// resources such as `example.com/gpu`. It ignores all others (framework/types.go `Resource.Add`).
///
/// ```
/// use portolan::model::is_scheduled_resource;
///
/// assert!(is_scheduled_resource("memory") && is_scheduled_resource("example.com/gpu"));
/// assert!(!is_scheduled_resource("gpu"));
/// ```
#[must_use]
pub fn is_scheduled_resource(name: &str) -> bool {
    is_native(name) || is_scalar(name)
}

/// Returns `true` if kube-scheduler treats a resource of this name as a scalar: an extended resource, huge pages, a
/// native resource whose name contains `kubernetes.io/`, or attachable volumes (kube-scheduler util/resource
/// `IsScalarResourceName`).
fn is_scalar(name: &str) -> bool {
    name.starts_with("hugepages-")
        || name.starts_with("attachable-volumes-")
        || name.contains("kubernetes.io/")
        || is_extended(name)
}

/// Implements component-helpers `IsExtendedResourceName`: the name must remain a qualified name when prefixed with
/// `requests.`, as resource quotas do.
pub(crate) fn is_extended(name: &str) -> bool {
    const QUOTA_PREFIX: &str = "requests.";
    name.contains('/')
        && !name.contains("kubernetes.io/")
        && !name.starts_with(QUOTA_PREFIX)
        && name.find('/').is_none_or(|slash| slash + QUOTA_PREFIX.len() <= MAX_SUBDOMAIN)
        && is_label_key(name)
}

const MAX_SUBDOMAIN: usize = 253;
const MAX_NAME: usize = 63;

/// Returns whether a text can be the key of a label: a name of at most 63 letters, digits, `-`, `_` and `.`,
/// with an optional DNS subdomain and `/` before it (apimachinery `validation.IsQualifiedName`). O(len).
#[must_use]
pub fn is_label_key(text: &str) -> bool {
    match text.split_once('/') {
        None => is_name_part(text),
        Some((prefix, name)) => is_subdomain(prefix) && is_name_part(name),
    }
}

/// Returns whether a text can be the value of a label: empty, or a name as in [`is_label_key`] without a
/// subdomain (apimachinery `validation.IsValidLabelValue`). O(len).
#[must_use]
pub fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_name_part(text)
}

/// Letters, digits, `-`, `_` and `.`, at most 63, the ends letters or digits.
fn is_name_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    let inner = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    matches!((bytes.first(), bytes.last()), (Some(first), Some(last))
        if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric())
        && bytes.len() <= MAX_NAME
        && bytes.iter().all(inner)
}

fn is_subdomain(text: &str) -> bool {
    let lower = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        matches!((bytes.first(), bytes.last()), (Some(&first), Some(&last))
            if lower(first) && lower(last))
            && bytes.iter().all(|&b| lower(b) || b == b'-')
    };
    text.len() <= MAX_SUBDOMAIN && text.split('.').all(is_label)
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

    #[test]
    fn scalars_are_extended_prefixed_huge_and_attachable_resources() {
        for name in [
            "nvidia.com/gpu",
            "hugepages-2Mi",
            "attachable-volumes-csi-x",
            "kubernetes.io/batch-cpu",
            "requests.kubernetes.io/x",
        ] {
            assert!(is_scalar(name), "{name}");
        }
        for name in [
            "cpu",
            "pods",
            "gpu",
            "requests.example.com/gpu",
            "Example.com/gpu",
            "a/b/c",
            "/x",
            "a/",
        ] {
            assert!(!is_scalar(name), "{name}");
        }
    }
}
