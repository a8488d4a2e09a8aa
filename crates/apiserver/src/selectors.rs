//! The field selectors of lists and watches, and the label selectors of objects.

use serde_json::Value;

use crate::error::ApiError;
use crate::resources::Resource;
use crate::store::Version;

/// The objects that a list or a watch includes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    /// Empty means all namespaces.
    pub(crate) namespace: String,
    fields: Vec<FieldRequirement>,
}

#[derive(Clone, Debug, PartialEq)]
enum Field {
    Name,
    Namespace,
    /// The index in `Resource::fields`.
    Other(usize),
}

#[derive(Clone, Debug, PartialEq)]
struct FieldRequirement {
    field: Field,
    equal: bool,
    value: String,
}

impl Selection {
    pub(crate) fn new(
        resource: &Resource,
        namespace: &str,
        fields: &str,
    ) -> Result<Self, ApiError> {
        let fields = parse_fields(resource, fields)?;
        Ok(Selection { namespace: namespace.to_owned(), fields })
    }

    pub(crate) fn selects(&self, object: &Version) -> bool {
        (self.namespace.is_empty() || object.key.namespace == self.namespace)
            && self.fields.iter().all(|requirement| requirement.holds(object))
    }
}

impl FieldRequirement {
    fn holds(&self, object: &Version) -> bool {
        let value = match self.field {
            Field::Name => &object.key.name,
            Field::Namespace => &object.key.namespace,
            Field::Other(index) => &object.fields[index],
        };
        (*value == self.value) == self.equal
    }
}

/// The value at a path of names joined by dots, as a field selector compares it. An absent field is empty.
pub(crate) fn field(object: &Value, path: &str) -> String {
    match path.split('.').fold(object, |value, name| &value[name]) {
        Value::String(text) => text.clone(),
        Value::Bool(value) => value.to_string(),
        Value::Number(value) => value.to_string(),
        // A boolean that is false is not stored.
        _ if path == "spec.unschedulable" => "false".into(),
        _ => String::new(),
    }
}

/// Whether `labels` satisfy a `LabelSelector` object. An empty selector selects everything, an absent one nothing.
pub(crate) fn label_selector_matches(selector: &Value, labels: &Value) -> bool {
    let Some(parts) = selector.as_object() else { return false };
    let label = |key: &str| labels[key].as_str();
    let equal = parts.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
    let expressions = parts.get("matchExpressions").and_then(Value::as_array).into_iter().flatten();
    equal.into_iter().all(|(key, value)| label(key) == value.as_str())
        && expressions.into_iter().all(|expression| {
            let value = expression["key"].as_str().and_then(label);
            let values = expression["values"].as_array().into_iter().flatten();
            let listed = values.into_iter().any(|listed| listed.as_str() == value);
            match expression["operator"].as_str() {
                Some("In") => value.is_some() && listed,
                Some("NotIn") => value.is_none() || !listed,
                Some("Exists") => value.is_some(),
                Some("DoesNotExist") => value.is_none(),
                _ => false,
            }
        })
}

fn parse_fields(resource: &Resource, text: &str) -> Result<Vec<FieldRequirement>, ApiError> {
    text.split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(|part| {
            let (name, equal, value) = if let Some((name, value)) = part.split_once("!=") {
                (name, false, value)
            } else if let Some((name, value)) =
                part.split_once("==").or_else(|| part.split_once('='))
            {
                (name, true, value)
            } else {
                return Err(ApiError::bad_request(format!(
                    "invalid selector: '{text}'; can't understand '{part}'"
                )));
            };
            let field = match name {
                "metadata.name" => Field::Name,
                "metadata.namespace" => Field::Namespace,
                _ => match resource.fields.iter().position(|field| *field == name) {
                    Some(index) => Field::Other(index),
                    None => {
                        return Err(ApiError::bad_request(format!(
                            "field label not supported: {name}"
                        )));
                    }
                },
            };
            Ok(FieldRequirement { field, equal, value: value.to_owned() })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources;
    use serde_json::json;

    #[test]
    fn label_selector_objects_compare_and_list() {
        let labels = json!({"app": "web"});
        let one = |operator: &str, key: &str, values: &[&str]| {
            let selector =
                json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
            label_selector_matches(&selector, &labels)
        };
        assert!(one("In", "app", &["web"]) && !one("In", "app", &["db"]) && !one("In", "x", &[]));
        assert!(one("NotIn", "x", &["web"]) && !one("NotIn", "app", &["web"]));
        assert!(one("Exists", "app", &[]) && !one("Exists", "x", &[]));
        assert!(one("DoesNotExist", "x", &[]) && !one("DoesNotExist", "app", &[]));
        assert!(label_selector_matches(&json!({}), &labels));
        assert!(!label_selector_matches(&json!(null), &labels));
        assert!(!label_selector_matches(&json!({"matchLabels": {"app": "db"}}), &labels));
    }

    #[test]
    fn unknown_fields_are_refused() {
        let error = Selection::new(resources::pods(), "", "spec.hostname=x").unwrap_err();
        assert_eq!(
            (error.code, error.message.as_str()),
            (400, "field label not supported: spec.hostname")
        );
        assert!(Selection::new(resources::pods(), "", "spec.nodeName").is_err());
        assert!(
            Selection::new(resources::pods(), "", "spec.nodeName=,status.phase!=Failed").is_ok()
        );
    }

    #[test]
    fn absent_fields_are_empty() {
        assert_eq!(field(&json!({"spec": {}}), "spec.nodeName"), "");
        assert_eq!(field(&json!({}), "spec.unschedulable"), "false");
        assert_eq!(field(&json!({"spec": {"unschedulable": true}}), "spec.unschedulable"), "true");
    }
}
