//! Taints of nodes, and what tolerates them (`component-helpers` toleration.go).

use super::Name;

/// What a taint does to pods that do not tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum TaintEffect {
    /// They are not scheduled there.
    NoSchedule,
    /// They are scheduled elsewhere if possible.
    PreferNoSchedule,
    /// They are not scheduled there, and evicted.
    NoExecute,
}

/// A taint of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Taint {
    /// Key.
    pub key: Name,
    /// Value, maybe empty.
    pub value: Name,
    /// Effect.
    pub effect: TaintEffect,
}

/// How a toleration compares values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum TolerationOperator {
    /// The values are equal.
    #[default]
    Equal,
    /// Any value.
    Exists,
    /// Numeric comparison, `Lt` or `Gt`: behind a gate that is off, so it
    /// matches nothing.
    Numeric,
}

/// A toleration of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Toleration {
    /// Key; none, or an empty one, matches every key.
    pub key: Option<Name>,
    /// Operator.
    pub operator: TolerationOperator,
    /// Value, maybe empty.
    pub value: Option<Name>,
    /// Effect; none matches every effect.
    pub effect: Option<TaintEffect>,
}

impl Toleration {
    /// Whether it tolerates a taint (`Toleration.ToleratesTaint`).
    #[must_use]
    pub fn tolerates(&self, taint: &Taint) -> bool {
        self.effect.is_none_or(|effect| effect == taint.effect)
            && self.key.as_ref().is_none_or(|key| key.is_empty() || *key == taint.key)
            && match self.operator {
                TolerationOperator::Exists => true,
                TolerationOperator::Equal => self.value.as_deref().unwrap_or("") == &*taint.value,
                TolerationOperator::Numeric => false,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toleration(key: &str, operator: TolerationOperator, value: &str) -> Toleration {
        Toleration { key: Some(key.into()), operator, value: Some(value.into()), effect: None }
    }

    #[test]
    fn an_empty_key_tolerates_every_key_and_still_compares_the_value() {
        let taint = Taint::new("gpu", "a", TaintEffect::NoSchedule);
        assert!(toleration("", TolerationOperator::Exists, "").tolerates(&taint));
        assert!(toleration("", TolerationOperator::Equal, "a").tolerates(&taint));
        assert!(!toleration("", TolerationOperator::Equal, "").tolerates(&taint));
        assert!(!toleration("cpu", TolerationOperator::Exists, "").tolerates(&taint));
    }

    #[test]
    fn an_effect_must_be_the_same_or_absent() {
        let taint = Taint::new("gpu", "", TaintEffect::NoExecute);
        let mut all = toleration("gpu", TolerationOperator::Equal, "");
        assert!(all.tolerates(&taint));
        all.effect = Some(TaintEffect::NoSchedule);
        assert!(!all.tolerates(&taint));
    }

    #[test]
    fn a_numeric_toleration_tolerates_nothing() {
        let taint = Taint::new("sla", "5", TaintEffect::NoSchedule);
        assert!(!toleration("sla", TolerationOperator::Numeric, "5").tolerates(&taint));
    }
}
