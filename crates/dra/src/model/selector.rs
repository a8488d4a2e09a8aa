//! Selectors of devices (CEL) and of nodes.

use std::sync::Arc;

use portolan::model::{LabelLookup, Node};
use serde::{Deserialize, Serialize};

use super::nullable;

/// A selector of devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Selector {
    /// A CEL expression. Kubernetes has no other kind of selector yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cel: Option<CelSelector>,
}

/// A selector of devices by a CEL expression.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CelSelector {
    /// The expression, whose variable is `device`.
    pub expression: Arc<str>,
}

/// A selector of nodes: a node matches if one of the terms matches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelector {
    /// The terms.
    #[serde(deserialize_with = "nullable")]
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

/// A term of a node selector, which matches if all of its requirements are met. A term without requirements matches no
/// node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelectorTerm {
    /// The requirements on labels.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub match_expressions: Vec<Requirement>,
    /// The requirements on fields, of which `metadata.name` is the only one.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub match_fields: Vec<Requirement>,
}

/// A requirement on the value of a label or field.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Requirement {
    /// The label or field.
    pub key: Arc<str>,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`.
    pub operator: Arc<str>,
    /// The values.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub values: Vec<Arc<str>>,
}

impl Requirement {
    fn is_met(&self, value: Option<&str>) -> bool {
        let listed = |value: &str| self.values.iter().any(|listed| **listed == *value);
        let compare = |holds: fn(i64, i64) -> bool| {
            let number = value.and_then(|value| value.parse::<i64>().ok());
            match (number, &*self.values) {
                (Some(number), [limit]) => {
                    limit.parse::<i64>().is_ok_and(|limit| holds(number, limit))
                }
                _ => false,
            }
        };
        match &*self.operator {
            "In" => value.is_some_and(listed),
            "NotIn" => !value.is_some_and(listed),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            "Gt" => compare(|number, limit| number > limit),
            "Lt" => compare(|number, limit| number < limit),
            _ => false,
        }
    }

    /// Returns whether both require the same: the same key and operator, and the same set of values.
    pub(crate) fn is_same(&self, other: &Requirement) -> bool {
        let within = |some: &[Arc<str>], all: &[Arc<str>]| some.iter().all(|v| all.contains(v));
        self.key == other.key
            && self.operator == other.operator
            && within(&self.values, &other.values)
            && within(&other.values, &self.values)
    }
}

impl NodeSelector {
    /// Returns whether the node matches.
    #[must_use]
    pub fn matches(&self, node: &Node) -> bool {
        self.node_selector_terms.iter().any(|term| term.matches(node))
    }

    /// Creates a selector for the node of this name.
    #[must_use]
    pub fn of_node(name: &str) -> NodeSelector {
        let requirement = Requirement {
            key: "metadata.name".into(),
            operator: "In".into(),
            values: vec![name.into()],
        };
        let term = NodeSelectorTerm { match_fields: vec![requirement], ..Default::default() };
        NodeSelector { node_selector_terms: vec![term] }
    }
}

impl NodeSelectorTerm {
    fn matches(&self, node: &Node) -> bool {
        let is_empty = self.match_expressions.is_empty() && self.match_fields.is_empty();
        !is_empty
            && (self.match_expressions.iter())
                .all(|required| required.is_met(LabelLookup::get(&node.labels, &required.key)))
            && self.match_fields.iter().all(|required| {
                let value = (&*required.key == "metadata.name").then_some(&*node.name);
                required.is_met(value)
            })
    }
}
