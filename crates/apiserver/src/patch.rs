//! Patches: JSON merge patch (RFC 7386) and Kubernetes' strategic merge patch.
//!
//! A strategic merge patch merges some lists by a key of their elements; all others it replaces. The keys are those of
//! the API's types, found by the name of the field and, where one name has two meanings, by its parent. Directives are
//! those of schedulers: `$patch: delete` of an element, `$setElementOrder/FIELD`, `$deleteFromPrimitiveList/FIELD`.

use serde_json::{Map, Value};

use crate::error::ApiError;

/// The format of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PatchKind {
    /// `application/merge-patch+json`.
    Merge,
    /// `application/strategic-merge-patch+json`.
    StrategicMerge,
}

impl PatchKind {
    pub(crate) fn from_content_type(content_type: &str) -> Option<Self> {
        match content_type.split(';').next().unwrap_or_default().trim() {
            "application/merge-patch+json" => Some(PatchKind::Merge),
            "application/strategic-merge-patch+json" => Some(PatchKind::StrategicMerge),
            _ => None,
        }
    }

    /// Applies `patch` to `object`.
    pub(crate) fn apply(self, object: &mut Value, patch: &Value) -> Result<(), ApiError> {
        match (self, patch) {
            (_, Value::Object(_)) if self == PatchKind::Merge => merge(object, patch),
            (_, Value::Object(patch)) => {
                let Value::Object(object) = object else {
                    return Err(ApiError::bad_request("the object is not a map"));
                };
                strategic(object, patch, "")?;
            }
            _ => return Err(ApiError::bad_request("the patch must be a JSON object")),
        }
        Ok(())
    }
}

fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let Value::Object(object) = object else { return };
    for (key, value) in patch {
        if value.is_null() {
            object.remove(key);
        } else {
            merge(object.entry(key.as_str()).or_insert(Value::Null), value);
        }
    }
}

const ORDER: &str = "$setElementOrder/";
const DELETE_PRIMITIVES: &str = "$deleteFromPrimitiveList/";

/// How the lists of a field are merged.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Strategy {
    Replace,
    /// By this key of the elements.
    ByKey(&'static str),
    /// As a set of strings.
    Set,
}

fn strategy(parent: &str, field: &str) -> Strategy {
    use Strategy::{ByKey, Set};
    match (parent, field) {
        (_, "conditions" | "addresses") => ByKey("type"),
        (
            _,
            "containers"
            | "initContainers"
            | "ephemeralContainers"
            | "volumes"
            | "env"
            | "imagePullSecrets",
        ) => ByKey("name"),
        (_, "schedulingGates" | "drivers" | "secrets") => ByKey("name"),
        // The claims of a pod's spec and their statuses; those of a container's resources are a plain list.
        ("spec", "resourceClaims") | ("status", "resourceClaimStatuses") => ByKey("name"),
        (_, "ownerReferences" | "reservedFor") => ByKey("uid"),
        (_, "topologySpreadConstraints") => ByKey("topologyKey"),
        (_, "volumeMounts") => ByKey("mountPath"),
        (_, "volumeDevices") => ByKey("devicePath"),
        (_, "hostAliases" | "podIPs") => ByKey("ip"),
        ("containers" | "initContainers" | "ephemeralContainers", "ports") => {
            ByKey("containerPort")
        }
        ("spec", "ports") => ByKey("port"),
        ("metadata", "finalizers") | ("spec", "podCIDRs") => Set,
        _ => Strategy::Replace,
    }
}

fn strategic(
    object: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    parent: &str,
) -> Result<(), ApiError> {
    for (key, value) in patch {
        if let Some(field) = key.strip_prefix(ORDER) {
            let order = list(value, key)?;
            merge_list(object, patch.get(field), Some(order), field, strategy(parent, field))?;
        } else if let Some(field) = key.strip_prefix(DELETE_PRIMITIVES) {
            let gone = list(value, key)?;
            if let Some(Value::Array(items)) = object.get_mut(field) {
                items.retain(|item| !gone.contains(item));
            }
        } else if key.starts_with('$') {
            return Err(not_applied(format!("unknown patch type: {key}")));
        } else if value.is_null() {
            object.remove(key);
        } else if let Value::Object(inner) = value {
            if !object.get(key).is_some_and(Value::is_object) {
                object.insert(key.clone(), Value::Object(Map::new()));
            }
            if let Some(Value::Object(present)) = object.get_mut(key) {
                strategic(present, inner, key)?;
            }
        } else if value.is_array() && strategy(parent, key) != Strategy::Replace {
            if !patch.contains_key(&format!("{ORDER}{key}")) {
                merge_list(object, Some(value), None, key, strategy(parent, key))?;
            }
        } else {
            object.insert(key.clone(), value.clone());
        }
    }
    Ok(())
}

/// kube-apiserver answers a patch that cannot be applied with 500 and no reason.
fn not_applied(message: String) -> ApiError {
    ApiError::new(500, "", message)
}

fn list<'a>(value: &'a Value, key: &str) -> Result<&'a [Value], ApiError> {
    value
        .as_array()
        .map(Vec::as_slice)
        .ok_or_else(|| ApiError::bad_request(format!("{key}: expected a list")))
}

/// Merges the list `patch` into the field, and orders it: first come the elements in `order` (or, without `order`,
/// those of the patch) in that order. The other elements of the stored list keep their positions between them, as far
/// as those positions are known.
fn merge_list(
    object: &mut Map<String, Value>,
    patch: Option<&Value>,
    order: Option<&[Value]>,
    field: &str,
    strategy: Strategy,
) -> Result<(), ApiError> {
    let patch = match patch {
        None | Some(Value::Null) => &[],
        Some(patch) => list(patch, field)?,
    };
    if !object.contains_key(field) && patch.is_empty() {
        return Ok(());
    }
    if strategy == Strategy::Replace {
        let message = format!("{field}: lists of this field have no merge key");
        return Err(ApiError::bad_request(message));
    }
    let original = match object.get(field) {
        Some(Value::Array(items)) => items.clone(),
        _ => Vec::new(),
    };
    let (merged, mut named) = strategy.merge(&original, patch, field)?;
    if let Some(order) = order {
        let wanted =
            order.iter().map(|item| strategy.identity(item)).collect::<Result<Vec<_>, _>>()?;
        if let Some(stray) = named.iter().find(|id| !wanted.contains(id)) {
            return Err(not_applied(format!(
                "The order in patch list:\n{patch:?}\n doesn't match {ORDER}{field} list:\n{order:?}\n: \
                 {stray} is missing"
            )));
        }
        named = wanted;
    }
    let place = |item: &Value| {
        let id = strategy.identity(item).ok()?;
        named.iter().position(|name| *name == id)
    };
    let (mut ours, theirs): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|item| place(item).is_some());
    ours.sort_by_key(place);
    let position_before =
        |item: &Value| strategy.position(&original, &strategy.identity(item).ok()?);
    let result = interleave(ours, theirs, position_before);
    object.insert(field.to_owned(), Value::Array(result));
    Ok(())
}

impl Strategy {
    /// The value that identifies an element.
    fn identity(self, element: &Value) -> Result<Value, ApiError> {
        let Strategy::ByKey(key) = self else { return Ok(element.clone()) };
        element.get(key).cloned().ok_or_else(|| {
            not_applied(format!("map: {element} does not contain declared merge key: {key}"))
        })
    }

    fn position(self, items: &[Value], id: &Value) -> Option<usize> {
        items.iter().position(|item| self.identity(item).is_ok_and(|it| it == *id))
    }

    /// Applies a patch to a list. Returns the list, and what identifies the elements of the patch.
    fn merge(
        self,
        original: &[Value],
        patch: &[Value],
        field: &str,
    ) -> Result<(Vec<Value>, Vec<Value>), ApiError> {
        let mut merged = original.to_vec();
        let mut named = Vec::new();
        for element in patch {
            let id = self.identity(element)?;
            if element["$patch"] == "delete" {
                merged.retain(|item| !self.identity(item).is_ok_and(|it| it == id));
                continue;
            }
            match (self.position(&merged, &id), element) {
                (Some(at), Value::Object(inner)) => {
                    if let Value::Object(present) = &mut merged[at] {
                        strategic(present, inner, field)?;
                    }
                }
                (Some(_), _) => {}
                (None, Value::Object(inner)) => {
                    let mut fresh = Map::new();
                    strategic(&mut fresh, inner, field)?;
                    merged.push(Value::Object(fresh));
                }
                (None, plain) => merged.push(plain.clone()),
            }
            named.push(id);
        }
        Ok((merged, named))
    }
}

/// Interleaves two lists, each of which keeps its order. An element of `theirs` precedes an element of `ours` only if
/// both had a position before, and its position was the lower one.
fn interleave(
    ours: Vec<Value>,
    theirs: Vec<Value>,
    position_before: impl Fn(&Value) -> Option<usize>,
) -> Vec<Value> {
    let mut result = Vec::with_capacity(ours.len() + theirs.len());
    let (mut ours, mut theirs) = (ours.into_iter().peekable(), theirs.into_iter().peekable());
    loop {
        match (theirs.peek(), ours.peek()) {
            (None, None) => return result,
            (Some(their), Some(our)) => {
                let before = match (position_before(their), position_before(our)) {
                    (Some(their), Some(our)) => their < our,
                    _ => false,
                };
                result.extend(if before { theirs.next() } else { ours.next() });
            }
            (Some(_), None) => result.extend(theirs.next()),
            (None, Some(_)) => result.extend(ours.next()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn strategic(mut object: Value, patch: Value) -> Value {
        PatchKind::StrategicMerge.apply(&mut object, &patch).unwrap();
        object
    }

    fn merged(mut object: Value, patch: Value) -> Value {
        PatchKind::Merge.apply(&mut object, &patch).unwrap();
        object
    }

    #[test]
    fn merge_patch_removes_nulls_and_replaces_lists() {
        let object = json!({"a": {"b": 1, "c": 2}, "l": [1, 2]});
        assert_eq!(
            merged(object, json!({"a": {"b": null, "d": {"e": null, "f": 3}}, "l": [3]})),
            json!({"a": {"c": 2, "d": {"f": 3}}, "l": [3]})
        );
        assert_eq!(merged(json!({"a": [1]}), json!({"a": {"b": 1}})), json!({"a": {"b": 1}}));
    }

    #[test]
    fn conditions_merge_by_type() {
        let object = json!({"status": {"conditions": [{"type": "A", "status": "True", "reason": "R"}, {"type": "B"}]}});
        assert_eq!(
            strategic(
                object,
                json!({"status": {"conditions": [{"type": "B", "status": "False"}]}})
            ),
            json!({"status": {"conditions":
                [{"type": "A", "status": "True", "reason": "R"}, {"type": "B", "status": "False"}]}})
        );
    }

    #[test]
    fn a_field_of_an_element_is_removed_by_null() {
        let object = json!({"conditions": [{"type": "A", "reason": "R"}]});
        assert_eq!(
            strategic(object, json!({"conditions": [{"type": "A", "reason": null}]})),
            json!({"conditions": [{"type": "A"}]})
        );
    }

    #[test]
    fn new_elements_come_before_those_that_only_the_server_has() {
        let types = |object: Value| -> Vec<String> {
            object["conditions"]
                .as_array()
                .unwrap()
                .iter()
                .map(|c| c["type"].as_str().unwrap().into())
                .collect()
        };
        let object = json!({"conditions": [{"type": "PodScheduled"}]});
        let kubelet = json!({"conditions": [{"type": "Initialized"}, {"type": "Ready"}]});
        assert_eq!(types(strategic(object, kubelet)), ["Initialized", "Ready", "PodScheduled"]);
    }

    #[test]
    fn the_order_directive_places_elements() {
        let types = |order: Value, conditions: Value| -> Vec<String> {
            let object = json!({"conditions": [{"type": "A"}, {"type": "X"}, {"type": "B"}]});
            let mut patch = json!({"$setElementOrder/conditions": order});
            if !conditions.is_null() {
                patch["conditions"] = conditions;
            }
            let object = strategic(object, patch);
            object["conditions"]
                .as_array()
                .unwrap()
                .iter()
                .map(|c| c["type"].as_str().unwrap().into())
                .collect()
        };
        let t = |name: &str| json!({"type": name});
        assert_eq!(
            types(json!([t("A"), t("X"), t("B"), t("D")]), json!([t("D")])),
            ["A", "X", "B", "D"]
        );
        assert_eq!(types(json!([t("B"), t("A")]), Value::Null), ["X", "B", "A"]);
        assert_eq!(types(json!([t("A"), t("B")]), Value::Null), ["A", "X", "B"]);
    }

    #[test]
    fn an_element_outside_the_order_is_refused() {
        let patch =
            json!({"$setElementOrder/conditions": [{"type": "A"}], "conditions": [{"type": "B"}]});
        let error = PatchKind::StrategicMerge.apply(&mut json!({}), &patch).unwrap_err();
        assert_eq!(error.code, 500);
    }

    #[test]
    fn elements_are_deleted_by_directive() {
        let object = json!({"conditions": [{"type": "A"}, {"type": "B"}]});
        assert_eq!(
            strategic(object, json!({"conditions": [{"type": "A", "$patch": "delete"}]})),
            json!({"conditions": [{"type": "B"}]})
        );
    }

    #[test]
    fn tolerations_are_atomic_and_finalizers_a_set() {
        let object =
            json!({"spec": {"tolerations": [{"key": "a"}]}, "metadata": {"finalizers": ["x"]}});
        let patch = json!({"spec": {"tolerations": [{"key": "b"}]}, "metadata": {"finalizers": ["y", "x"]}});
        assert_eq!(
            strategic(object, patch),
            json!({"spec": {"tolerations": [{"key": "b"}]}, "metadata": {"finalizers": ["y", "x"]}})
        );
        assert_eq!(
            strategic(
                json!({"metadata": {"finalizers": ["x", "y"]}}),
                json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["x"]}})
            ),
            json!({"metadata": {"finalizers": ["y"]}})
        );
    }

    #[test]
    fn ports_have_the_key_of_their_parent() {
        let object =
            json!({"spec": {"containers": [{"name": "c", "ports": [{"containerPort": 80}]}]}});
        let ports = json!([{"containerPort": 80, "hostPort": 8080}]);
        let patch = json!({"spec": {"containers": [{"name": "c", "ports": ports}]}});
        assert_eq!(
            strategic(object, patch),
            json!({"spec": {"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 8080}]}]}})
        );
    }

    #[test]
    fn an_element_without_its_key_is_refused() {
        let patch = json!({"conditions": [{"status": "True"}]});
        assert_eq!(PatchKind::StrategicMerge.apply(&mut json!({}), &patch).unwrap_err().code, 500);
        assert_eq!(PatchKind::Merge.apply(&mut json!({}), &json!([])).unwrap_err().code, 400);
    }
}
