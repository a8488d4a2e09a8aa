//! Node taints and pod tolerations (`component-helpers` toleration.go).

use super::Name;

/// The effect of a taint on pods that do not tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum TaintEffect {
    /// New pods are not scheduled on the node.
    NoSchedule,
    /// The scheduler avoids the node if possible.
    PreferNoSchedule,
    /// New pods are not scheduled on the node, and running pods are evicted.
    NoExecute,
}

/// A taint on a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Taint {
    /// The key.
    pub key: Name,
    /// The value; may be empty.
    pub value: Name,
    /// The effect.
    pub effect: TaintEffect,
}

impl Taint {
    /// The key of the taint of a cordoned node.
    pub const UNSCHEDULABLE: &'static str = "node.kubernetes.io/unschedulable";
    /// The key of the taint of a node whose kubelet reports that it is not ready.
    pub const NOT_READY: &'static str = "node.kubernetes.io/not-ready";
    /// The key of the taint of a node whose kubelet does not respond.
    pub const UNREACHABLE: &'static str = "node.kubernetes.io/unreachable";
    /// The key of the taint of a node that lacks memory.
    pub const MEMORY_PRESSURE: &'static str = "node.kubernetes.io/memory-pressure";
    /// The key of the taint of a node that lacks disk space.
    pub const DISK_PRESSURE: &'static str = "node.kubernetes.io/disk-pressure";
    /// The key of the taint of a node that lacks process ids.
    pub const PID_PRESSURE: &'static str = "node.kubernetes.io/pid-pressure";
    /// The key of the taint of a node whose network is not set up.
    pub const NETWORK_UNAVAILABLE: &'static str = "node.kubernetes.io/network-unavailable";
    /// The key of the taint of a node that does not return: the objects of its pods are deleted (gc_controller.go
    /// `gcTerminating`).
    pub const OUT_OF_SERVICE: &'static str = "node.kubernetes.io/out-of-service";
}

/// How a toleration compares values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum TolerationOperator {
    /// Matches if the values are equal.
    #[default]
    Equal,
    /// Matches any value.
    Exists,
    /// A numeric comparison, `Lt` or `Gt`. Its feature gate is off by default, so it matches nothing.
    Numeric,
}

/// A pod's toleration of taints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Toleration {
    /// The key. `None` or an empty key matches every key.
    pub key: Option<Name>,
    /// The operator that compares the values.
    pub operator: TolerationOperator,
    /// The value; may be empty.
    pub value: Option<Name>,
    /// The effect. `None` matches every effect.
    pub effect: Option<TaintEffect>,
}

impl Toleration {
    /// Returns `true` if the toleration tolerates `taint` (`Toleration.ToleratesTaint`).
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
    fn an_effect_must_be_equal_or_absent() {
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
