//! Reads label selectors and node selectors.
//!
//! Selectors that the API server would have rejected are treated in two ways. An invalid operator, key or value in a
//! label selector is an error for the whole input: kube-scheduler would drop all terms of the pod's list, which cannot
//! be intended. An invalid node selector term is kept and flagged, because kube-scheduler skips only that term.

use super::error::{Path, ReadError};
use super::wire::{self, Text};
use super::wire_pod;
use portolan::model::{
    LabelSelector, Name, NodeSelector, NodeSelectorTerm, Operator, Requirement, is_label_key,
    is_label_value,
};

const OPERATORS: &str = "one of In, NotIn, Exists, DoesNotExist";
const KEY: &str = "a label key";
const VALUE: &str = "a label value";
const ONE_OR_MORE: &str = "an operator that can be used without values";
const NONE: &str = "an operator that takes values";

/// `metav1.LabelSelectorAsSelector`: an absent selector matches nothing, and `{}` matches everything.
pub(super) fn label_selector(
    selector: Option<&wire::LabelSelector<'_>>,
    path: &Path<'_>,
) -> Result<LabelSelector, ReadError> {
    let Some(selector) = selector else { return Ok(LabelSelector::Nothing) };
    let mut all =
        Vec::with_capacity(selector.match_labels.len() + selector.match_expressions.len());
    let labels = path.key("matchLabels");
    for (key, value) in selector.match_labels.iter() {
        if !is_label_key(key) {
            return Err(ReadError::value(&labels, key, KEY));
        }
        if !is_label_value(value) {
            return Err(ReadError::value(&labels.key(key), value, VALUE));
        }
        all.push(Requirement::new(&**key, Operator::In, [&**value]));
    }
    // Go iterates over the map in key order.
    all.sort_by(|a, b| a.key.cmp(&b.key));
    let expressions = path.key("matchExpressions");
    for (i, expression) in selector.match_expressions.iter().enumerate() {
        all.push(label_requirement(expression, &expressions.index(i))?);
    }
    Ok(LabelSelector::All(all.into()))
}

fn label_requirement(
    expression: &wire::Requirement<'_>,
    path: &Path<'_>,
) -> Result<Requirement, ReadError> {
    let operator = match &*expression.operator {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        other => return Err(ReadError::value(&path.key("operator"), other, OPERATORS)),
    };
    if !is_label_key(&expression.key) {
        return Err(ReadError::value(&path.key("key"), &expression.key, KEY));
    }
    let takes_values = matches!(operator, Operator::In | Operator::NotIn);
    if takes_values == expression.values.is_empty() {
        let expected = if takes_values { ONE_OR_MORE } else { NONE };
        return Err(ReadError::value(&path.key("operator"), &expression.operator, expected));
    }
    if let Some(bad) = expression.values.iter().find(|value| !is_label_value(value)) {
        return Err(ReadError::value(&path.key("values"), bad, VALUE));
    }
    Ok(Requirement::new(&*expression.key, operator, names(&expression.values)))
}

/// Reads a node selector. Terms that cannot be parsed are flagged and cause no error.
pub(super) fn node_selector(selector: &wire_pod::NodeSelector<'_>) -> NodeSelector {
    NodeSelector { terms: selector.node_selector_terms.iter().map(node_selector_term).collect() }
}

/// Reads one term. O(expressions × values).
pub(super) fn node_selector_term(term: &wire_pod::NodeSelectorTerm<'_>) -> NodeSelectorTerm {
    let expressions: Vec<_> = term.match_expressions.iter().map(node_requirement).collect();
    let fields: Vec<_> = term.match_fields.iter().map(field_requirement).collect();
    NodeSelectorTerm {
        invalid: expressions.iter().chain(&fields).any(Option::is_none),
        match_expressions: expressions.into_iter().flatten().collect(),
        match_fields: fields.into_iter().flatten().collect(),
    }
}

fn node_requirement(expression: &wire::Requirement<'_>) -> Option<Requirement> {
    let values = &*expression.values;
    let integer = || matches!(values, [one] if one.parse::<i64>().is_ok());
    let (operator, right_values) = match &*expression.operator {
        "In" => (Operator::In, !values.is_empty()),
        "NotIn" => (Operator::NotIn, !values.is_empty()),
        "Exists" => (Operator::Exists, values.is_empty()),
        "DoesNotExist" => (Operator::DoesNotExist, values.is_empty()),
        "Gt" => (Operator::Gt, integer()),
        "Lt" => (Operator::Lt, integer()),
        _ => return None,
    };
    (right_values && is_label_key(&expression.key) && values.iter().all(|v| is_label_value(v)))
        .then(|| Requirement::new(&*expression.key, operator, names(values)))
}

fn field_requirement(expression: &wire::Requirement<'_>) -> Option<Requirement> {
    let operator = match &*expression.operator {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        _ => return None,
    };
    (expression.values.len() == 1)
        .then(|| Requirement::new(&*expression.key, operator, names(&expression.values)))
}

pub(super) fn names<'t>(texts: &'t [Text<'_>]) -> impl Iterator<Item = Name> + 't {
    texts.iter().map(|text| Name::from(&**text))
}
