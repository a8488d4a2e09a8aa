//! Label selectors and their requirements.
//!
//! The rules are those of apimachinery `labels.Requirement.Matches` and `metav1.LabelSelectorAsSelector`.

use super::{LabelLookup, Name};

/// The operator of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Operator {
    /// The key is present and its value is one of the values.
    In,
    /// The key is absent, or its value is not one of the values.
    NotIn,
    /// The key is present.
    Exists,
    /// The key is absent.
    DoesNotExist,
    /// The label's value is an integer greater than the single value (nodes only).
    Gt,
    /// The label's value is an integer less than the single value (nodes only).
    Lt,
}

/// A requirement on one label key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(from = "super::serialized::Requirement"))]
pub struct Requirement {
    /// The label key.
    pub key: Name,
    /// The operator.
    pub operator: Operator,
    /// The values to compare with, sorted; empty for `Exists` and `DoesNotExist`.
    pub values: Box<[Name]>,
}

impl Requirement {
    /// Creates a requirement; the values are sorted and deduplicated.
    pub fn new<V: Into<Name>>(
        key: impl Into<Name>,
        operator: Operator,
        values: impl IntoIterator<Item = V>,
    ) -> Requirement {
        let mut values: Vec<Name> = values.into_iter().map(Into::into).collect();
        values.sort();
        values.dedup();
        Requirement { key: key.into(), operator, values: values.into() }
    }

    /// Returns `true` if `labels` satisfy the requirement. O(log labels + log values).
    pub fn matches(&self, labels: &(impl LabelLookup + ?Sized)) -> bool {
        let value = labels.get(&self.key);
        match self.operator {
            Operator::In => value.is_some_and(|v| self.has(v)),
            Operator::NotIn => value.is_none_or(|v| !self.has(v)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Gt => self.compare(value, |have, want| have > want),
            Operator::Lt => self.compare(value, |have, want| have < want),
        }
    }

    fn has(&self, value: &str) -> bool {
        self.values.binary_search_by(|v| (**v).cmp(value)).is_ok()
    }

    fn compare(&self, value: Option<&str>, holds: impl Fn(i64, i64) -> bool) -> bool {
        let have = value.and_then(|v| v.parse::<i64>().ok());
        let want = self.values.first().and_then(|v| v.parse::<i64>().ok());
        matches!((have, want), (Some(have), Some(want)) if holds(have, want))
    }
}

/// A selector over the labels of pods or namespaces, which matches if all its requirements are satisfied.
///
/// An absent selector ([`LabelSelector::Nothing`]) matches nothing; a selector without requirements matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum LabelSelector {
    /// Matches nothing: the field was absent.
    #[default]
    Nothing,
    /// Matches labels that satisfy every requirement.
    All(Box<[Requirement]>),
}

impl LabelSelector {
    /// Returns the selector that matches everything.
    #[must_use]
    pub fn everything() -> LabelSelector {
        LabelSelector::All(Box::default())
    }

    /// Returns the selector that requires exactly these labels, as `matchLabels` does.
    pub fn from_labels<K: AsRef<str>, V: AsRef<str>>(
        labels: impl IntoIterator<Item = (K, V)>,
    ) -> LabelSelector {
        LabelSelector::All(
            labels
                .into_iter()
                .map(|(k, v)| Requirement::new(k.as_ref(), Operator::In, [v.as_ref()]))
                .collect(),
        )
    }

    /// Returns `true` if the selector matches `labels`.
    pub fn matches(&self, labels: &(impl LabelLookup + ?Sized)) -> bool {
        match self {
            LabelSelector::Nothing => false,
            LabelSelector::All(requirements) => requirements.iter().all(|r| r.matches(labels)),
        }
    }

    /// Returns `true` if the selector has no requirements and so matches everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self, LabelSelector::All(r) if r.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Labels;

    fn holds(operator: Operator, values: &[&str], labels: &[(&str, &str)]) -> bool {
        let requirement = Requirement::new("k", operator, values.iter().copied());
        requirement.matches(&Labels::new(labels.iter().copied()))
    }

    #[test]
    fn an_absent_key_satisfies_not_in_and_does_not_exist() {
        assert!(holds(Operator::NotIn, &["a"], &[]));
        assert!(holds(Operator::DoesNotExist, &[], &[("other", "a")]));
        assert!(!holds(Operator::In, &["a", ""], &[]));
        assert!(!holds(Operator::Exists, &[], &[]));
    }

    #[test]
    fn an_empty_value_is_a_value() {
        assert!(holds(Operator::Exists, &[], &[("k", "")]));
        assert!(holds(Operator::In, &["a", ""], &[("k", "")]));
        assert!(!holds(Operator::NotIn, &["", "a"], &[("k", "")]));
    }

    #[test]
    fn numbers_are_compared_as_64_bit_integers() {
        assert!(holds(Operator::Gt, &["9"], &[("k", "10")]));
        assert!(holds(Operator::Lt, &["-1"], &[("k", "-2")]));
        assert!(!holds(Operator::Gt, &["9"], &[("k", "9")]));
        for not_an_integer in ["", "1.5", "x", " 10", "9223372036854775808"] {
            assert!(!holds(Operator::Gt, &["0"], &[("k", not_an_integer)]), "{not_an_integer}");
            assert!(!holds(Operator::Lt, &["0"], &[("k", not_an_integer)]), "{not_an_integer}");
        }
        assert!(!holds(Operator::Gt, &["0"], &[]));
    }

    #[test]
    fn an_absent_selector_matches_nothing_and_an_empty_one_everything() {
        let labels = Labels::new([("a", "b")]);
        assert!(!LabelSelector::Nothing.matches(&labels));
        assert!(LabelSelector::everything().matches(&labels));
        assert!(LabelSelector::from_labels([("a", "b")]).matches(&labels));
        assert!(!LabelSelector::from_labels([("a", "b"), ("c", "d")]).matches(&labels));
    }
}
