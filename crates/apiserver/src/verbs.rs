//! The rules of create, update and patch. HTTP requests, calls in the process, controllers and kubelets share them.

use serde_json::{Map, Value};

use crate::admission;
use crate::clock;
use crate::defaults::{self, section};
use crate::devices;
use crate::error::ApiError;
use crate::events;
use crate::patch::PatchKind;
use crate::resources::Resource;
use crate::store::{Change, Key, Object, Store};

/// Which part of an object a write changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// All but the status, if the kind has one.
    Main,
    /// The status alone.
    Status,
}

/// Returns the object in the form that clients see.
pub(crate) fn shown(resource: &Resource, object: &Value) -> Value {
    let mut object = object.clone();
    object["kind"] = resource.kind.into();
    object["apiVersion"] = resource.api_version().into();
    object
}

/// Removes `kind` and `apiVersion` from a body after checking them.
fn stored(resource: &Resource, mut body: Value) -> Result<Value, ApiError> {
    let Some(map) = body.as_object_mut() else {
        return Err(ApiError::bad_request("the body of the request is not a JSON object"));
    };
    let mut take =
        |field: &str| map.remove(field).and_then(|value| value.as_str().map(str::to_owned));
    let (kind, api_version) = (take("kind"), take("apiVersion"));
    if let Some(kind) = kind.filter(|kind| kind != resource.kind) {
        let message = format!(
            "the kind in the data ({kind}) does not match the expected kind ({})",
            resource.kind
        );
        return Err(ApiError::bad_request(message));
    }
    if let Some(version) = api_version.filter(|version| *version != resource.api_version()) {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({})",
            resource.api_version()
        )));
    }
    section(&mut body, "metadata");
    match MAPS
        .iter()
        .find(|path| body.pointer(path).is_some_and(|part| !part.is_object() && !part.is_null()))
    {
        Some(path) => Err(ApiError::bad_request(format!(
            "{}.{}: expected a map",
            resource.kind,
            path[1..].replace('/', ".")
        ))),
        None => Ok(body),
    }
}

/// The parts of objects that must be maps.
const MAPS: [&str; 11] = [
    "/metadata",
    "/metadata/labels",
    "/metadata/annotations",
    "/spec",
    "/spec/selector",
    "/spec/selector/matchLabels",
    "/spec/template",
    "/spec/template/metadata",
    "/spec/template/metadata/labels",
    "/spec/template/spec",
    "/status",
];

pub(crate) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// Checks that the body names the namespace of the path or none, and fills it in.
fn set_namespace(resource: &Resource, namespace: &str, object: &mut Value) -> Result<(), ApiError> {
    let given = text(object, "namespace").to_owned();
    if !given.is_empty() && given != namespace && resource.namespaced {
        let message =
            "the namespace of the provided object does not match the namespace sent on the request";
        return Err(ApiError::bad_request(message));
    }
    let metadata = section(object, "metadata");
    if resource.namespaced {
        metadata.insert("namespace".into(), namespace.into());
    } else {
        metadata.remove("namespace");
    }
    Ok(())
}

/// Returns what [`stored`] does, after checking that the body names the object of this key.
fn stored_at(resource: &Resource, key: &Key, body: Value) -> Result<Value, ApiError> {
    let mut object = stored(resource, body)?;
    set_namespace(resource, &key.namespace, &mut object)?;
    match text(&object, "name") {
        name if name == key.name => Ok(object),
        name => Err(ApiError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            key.name
        ))),
    }
}

pub(crate) fn get(store: &Store, resource: &Resource, key: &Key) -> Result<Object, ApiError> {
    store.of(resource).get(key).ok_or_else(|| ApiError::not_found(resource, &key.name))
}

/// The length to which `generateName` is cut, so that the name is a label.
const LONGEST_PREFIX: usize = 58;

/// Creates the object `body` in a namespace, which is empty for a cluster-scoped kind.
pub(crate) fn create(
    store: &Store,
    resource: &Resource,
    namespace: &str,
    body: Value,
) -> Result<Object, ApiError> {
    let mut object = stored(resource, body)?;
    set_namespace(resource, namespace, &mut object)?;
    let mut name = text(&object, "name").to_owned();
    if name.is_empty() && !text(&object, "generateName").is_empty() {
        let prefix: String = text(&object, "generateName").chars().take(LONGEST_PREFIX).collect();
        name = format!("{prefix}{}", store.clock.suffix());
    }
    let key = Key::new(namespace, &name);
    admission::namespace_accepts(store, resource, &key)?;
    check_name(resource, &object, &name)?;
    if !text(&object, "resourceVersion").is_empty() {
        let message = "resourceVersion should not be set on objects to be created";
        return Err(ApiError::new(500, "", message));
    }
    defaults::fill(resource, &mut object);
    check_fields(resource, &name, None, &object)?;
    admission::admit(store, resource, &key, &mut object)?;
    check_spec(store, resource, &key, &object)?;
    let metadata = section(&mut object, "metadata");
    for field in [
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "selfLink",
        "managedFields",
    ] {
        metadata.remove(field);
    }
    metadata.insert("name".into(), name.into());
    metadata.insert("uid".into(), store.clock.uid().into());
    metadata.insert("creationTimestamp".into(), clock::now().into());
    if resource.generation {
        metadata.insert("generation".into(), 1.into());
    }
    let created = store.of(resource).change(&key, |present| match present {
        Some(_) => Err(ApiError::already_exists(resource, &key.name)),
        None => Ok(Change::Put(object)),
    })?;
    created.ok_or_else(|| ApiError::not_found(resource, &key.name))
}

fn check_name(resource: &Resource, object: &Value, name: &str) -> Result<(), ApiError> {
    if name.is_empty() {
        let why = "Required value: name or generateName is required";
        return Err(ApiError::invalid(
            resource,
            text(object, "generateName"),
            "metadata.name",
            why,
        ));
    }
    match name_error(name) {
        Some(why) => Err(ApiError::invalid(resource, name, "metadata.name", why)),
        None => Ok(()),
    }
}

/// Returns why a name is not one of an object.
fn name_error(name: &str) -> Option<String> {
    let part = |part: &str| {
        let edge =
            |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        edge(part.chars().next()) && edge(part.chars().last()) && part.chars().all(inner)
    };
    if name.len() > 253 || !name.split('.').all(part) {
        let why = format!(
            "Invalid value: {name:?}: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
             characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', \
             regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
        );
        return Some(why);
    }
    None
}

/// Checks the fields of Events and Leases, and the nominations of pods, which schedulers write.
fn check_fields(
    resource: &Resource,
    name: &str,
    old: Option<&Value>,
    new: &Value,
) -> Result<(), ApiError> {
    let wrong = match resource.kind {
        "Event" => {
            check_times(new, &["/eventTime", "/series/lastObservedTime"])?;
            events::invalid(old, new)
        }
        "Lease" => {
            check_times(new, &["/spec/acquireTime", "/spec/renewTime"])?;
            lease_errors(new)?
        }
        "Pod" => old.map_or_else(Vec::new, |old| nomination_errors(old, new)),
        _ => Vec::new(),
    };
    if wrong.is_empty() { Ok(()) } else { Err(ApiError::all_invalid(resource, name, &wrong)) }
}

/// Checks the form of times in microseconds (`MicroTime`).
fn check_times(object: &Value, paths: &[&str]) -> Result<(), ApiError> {
    let form = "2006-01-02T15:04:05.000000";
    let is_time = |text: &str| {
        let at = |index: usize| text.as_bytes().get(index).copied().unwrap_or_default();
        let fits = |(index, byte): (usize, u8)| match byte.is_ascii_digit() {
            true => at(index).is_ascii_digit(),
            false => at(index) == byte,
        };
        text.len() > form.len() && form.bytes().enumerate().all(fits)
    };
    for path in paths {
        let time = object.pointer(path).filter(|time| !time.is_null());
        if let Some(time) = time.filter(|time| !time.as_str().is_some_and(is_time)) {
            let message = format!("parsing time {time} as \"{form}Z07:00\": cannot parse it");
            return Err(ApiError::bad_request(message));
        }
    }
    Ok(())
}

fn lease_errors(lease: &Value) -> Result<Vec<(&'static str, String)>, ApiError> {
    let mut wrong = Vec::new();
    let fields = [
        ("leaseDurationSeconds", "spec.leaseDurationSeconds", 1, "must be greater than 0"),
        ("leaseTransitions", "spec.leaseTransitions", 0, "must be greater than or equal to 0"),
    ];
    for (field, path, least, why) in fields {
        match &lease["spec"][field] {
            Value::Null => {}
            value => match value.as_i64() {
                Some(number) if number < least => {
                    wrong.push((path, format!("Invalid value: {number}: {why}")));
                }
                Some(_) => {}
                None => {
                    return Err(ApiError::bad_request(format!(
                        "{path}: {value} is not an integer"
                    )));
                }
            },
        }
    }
    Ok(wrong)
}

fn nomination_errors(old: &Value, new: &Value) -> Vec<(&'static str, String)> {
    let field = "status.nominatedNodeName";
    let nominated =
        |pod: &Value| pod["status"]["nominatedNodeName"].as_str().unwrap_or_default().to_owned();
    let node = nominated(new);
    if node.is_empty() || node == nominated(old) {
        return Vec::new();
    }
    let mut wrong: Vec<_> = name_error(&node).into_iter().map(|why| (field, why)).collect();
    if old["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty()) {
        let why = "Forbidden: may not be set on pods that are already bound to a node";
        wrong.push((field, why.to_owned()));
    }
    wrong
}

/// Checks the fields that every specification must have.
fn check_spec(
    store: &Store,
    resource: &Resource,
    key: &Key,
    object: &Value,
) -> Result<(), ApiError> {
    let invalid = |field: &str, why: &str| Err(ApiError::invalid(resource, &key.name, field, why));
    match resource.kind {
        "Pod" => {
            let containers =
                object["spec"]["containers"].as_array().map(Vec::as_slice).unwrap_or_default();
            if containers.is_empty() {
                return invalid("spec.containers", "Required value");
            }
            let nameless =
                |container: &Value| container["name"].as_str().unwrap_or_default().is_empty();
            if let Some(at) = containers.iter().position(nameless) {
                return invalid(&format!("spec.containers[{at}].name"), "Required value");
            }
            if !object["spec"]["schedulingGates"].as_array().is_none_or(Vec::is_empty)
                && object["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty())
            {
                return invalid(
                    "spec.nodeName",
                    "Forbidden: cannot be set until all schedulingGates have been cleared",
                );
            }
        }
        "PriorityClass" if !object["value"].is_i64() => return invalid("value", "Required value"),
        "StorageClass" if object["provisioner"].as_str().unwrap_or_default().is_empty() => {
            return invalid("provisioner", "Required value");
        }
        _ => {}
    }
    devices::check_spec(store, resource, key, object)
}

/// Replaces an object, or creates it if the kind allows that. Returns whether it was created.
pub(crate) fn update(
    store: &Store,
    resource: &Resource,
    key: &Key,
    part: Part,
    body: Value,
) -> Result<(Object, bool), ApiError> {
    let mut new = stored_at(resource, key, body)?;
    if resource.create_on_update && part == Part::Main && store.of(resource).get(key).is_none() {
        let uid = text(&new, "uid");
        if !uid.is_empty() {
            return Err(uid_precondition(resource, key, uid, ""));
        }
        section(&mut new, "metadata").remove("resourceVersion");
        return create(store, resource, &key.namespace, new).map(|object| (object, true));
    }
    let updated = store.of(resource).change(key, |old| {
        let old = old.ok_or_else(|| ApiError::not_found(resource, &key.name))?;
        let uid = text(&new, "uid");
        if !uid.is_empty() && uid != text(old, "uid") {
            return Err(uid_precondition(resource, key, uid, text(old, "uid")));
        }
        revise(store, resource, key, old, new, part)
    })?;
    Ok((updated.ok_or_else(|| ApiError::not_found(resource, &key.name))?, false))
}

/// Applies a patch to the present object.
pub(crate) fn patch(
    store: &Store,
    resource: &Resource,
    key: &Key,
    part: Part,
    kind: PatchKind,
    patch: &Value,
) -> Result<Object, ApiError> {
    let updated = store.of(resource).change(key, |old| {
        let old = old.ok_or_else(|| ApiError::not_found(resource, &key.name))?;
        let mut new = shown(resource, old);
        kind.apply(&mut new, patch)?;
        let new = stored_at(resource, key, new)?;
        let uid = text(&new, "uid");
        if !uid.is_empty() && uid != text(old, "uid") {
            let why = format!("Invalid value: {uid:?}: field is immutable");
            return Err(ApiError::invalid(resource, &key.name, "metadata.uid", why));
        }
        revise(store, resource, key, old, new, part)
    })?;
    updated.ok_or_else(|| ApiError::not_found(resource, &key.name))
}

/// Returns the error for a precondition whose uid is not the stored object's.
pub(crate) fn uid_precondition(
    resource: &Resource,
    key: &Key,
    required: &str,
    present: &str,
) -> ApiError {
    let namespace = if resource.namespaced { format!("{}/", key.namespace) } else { String::new() };
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{}/{namespace}{}, ResourceVersion: 0, \
         AdditionalErrorMsg: Precondition failed: UID in precondition: {required}, UID in object meta: {present}",
        resource.plural, key.name
    );
    ApiError::conflict(resource.plural, resource.group, &key.name, why)
}

/// The metadata that updates cannot change.
const FIXED: [&str; 8] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];

/// Decides how `old` changes when a client sends `new`.
fn revise(
    store: &Store,
    resource: &Resource,
    key: &Key,
    old: &Value,
    mut new: Value,
    part: Part,
) -> Result<Change, ApiError> {
    let version = text(&new, "resourceVersion");
    if version.is_empty() && !resource.unconditional_update {
        let why = "Invalid value: 0: must be specified for an update";
        let mut error = ApiError::invalid(resource, &key.name, "metadata.resourceVersion", why);
        // Refused by the storage, which names the resource and not the kind.
        let (name, what) = (&key.name, resource.qualified());
        error.message = format!("{what} \"{name}\" is invalid: metadata.resourceVersion: {why}");
        error.details["kind"] = resource.plural.into();
        return Err(error);
    }
    if !version.is_empty() && version != text(old, "resourceVersion") {
        return Err(ApiError::modified(resource, &key.name));
    }
    defaults::fill(resource, &mut new);
    check_fields(resource, &key.name, Some(old), &new)?;
    if part == Part::Status {
        let revised = with_status(resource, old, new);
        devices::check_status(store, resource, key, old, &revised)?;
        return Ok(Change::Put(revised));
    }
    admission::admit_update(store, resource, old, &mut new);
    let map = new.as_object_mut().expect("a stored body is a map");
    if resource.status {
        copy(old, map, "status");
    }
    let mut metadata = map.get_mut("metadata").map(Value::take).unwrap_or_default();
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.remove("managedFields");
        FIXED.iter().for_each(|field| copy(&old["metadata"], metadata, field));
    }
    map.insert("metadata".into(), metadata);
    check_change(resource, key, old, &new)?;
    if resource.generation && !same_specification(old, &new) {
        bump_generation(&mut new);
    }
    if is_deleted(old) {
        let before = finalizers(old);
        if let Some(added) = finalizers(&new).iter().find(|finalizer| !before.contains(finalizer)) {
            let why = format!(
                "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers \
                 []string{{{added}}}"
            );
            return Err(ApiError::invalid(resource, &key.name, "metadata.finalizers", why));
        }
        if is_finished(&new) {
            return Ok(Change::Remove(new));
        }
    }
    Ok(Change::Put(new))
}

fn copy(from: &Value, to: &mut Map<String, Value>, field: &str) {
    match from.get(field) {
        Some(value) => drop(to.insert(field.to_owned(), value.clone())),
        None => drop(to.remove(field)),
    }
}

fn with_status(resource: &Resource, old: &Value, mut new: Value) -> Value {
    let mut revised = old.clone();
    let Some(map) = revised.as_object_mut() else { return revised };
    match new.get_mut("status") {
        Some(status) => drop(map.insert("status".into(), status.take())),
        None => drop(map.remove("status")),
    }
    if resource.kind == "ResourceClaim" {
        devices::drop_deallocated(old, &mut revised);
    }
    if resource.kind == "PersistentVolume" && old["status"]["phase"] != revised["status"]["phase"] {
        revised["status"]["lastPhaseTransitionTime"] = clock::now().into();
    }
    revised
}

/// Returns `old` with the containers' resources of `new`. kube-apiserver drops all other changes, too.
fn same_specification(old: &Value, new: &Value) -> bool {
    let rest = |object: &Value| -> Vec<(String, Value)> {
        let fields = object.as_object().into_iter().flatten();
        fields
            .filter(|(key, _)| !["metadata", "status"].contains(&key.as_str()))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect()
    };
    rest(old) == rest(new)
}

pub(crate) fn bump_generation(object: &mut Value) {
    if let Some(generation) = object["metadata"]["generation"].as_u64() {
        object["metadata"]["generation"] = (generation + 1).into();
    }
}

pub(crate) fn finalizers(object: &Value) -> &[Value] {
    object["metadata"]["finalizers"].as_array().map(Vec::as_slice).unwrap_or_default()
}

pub(crate) fn is_deleted(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// Whether a pod is in a terminal phase.
pub(crate) fn has_ended(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// Whether a pod or a node is ready.
pub(crate) fn is_ready(object: &Value) -> bool {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Whether neither finalizers nor a grace period hold a terminating object.
pub(crate) fn is_finished(object: &Value) -> bool {
    let grace = object["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap_or(0);
    finalizers(object).is_empty() && grace == 0
}

/// Refuses changes of immutable fields.
fn check_change(resource: &Resource, key: &Key, old: &Value, new: &Value) -> Result<(), ApiError> {
    let invalid =
        |field: &str, why: String| Err(ApiError::invalid(resource, &key.name, field, why));
    if resource.kind != "Pod" {
        return devices::check_change(resource, &key.name, old, new);
    }
    let gates =
        |pod: &Value| pod["spec"]["schedulingGates"].as_array().cloned().unwrap_or_default();
    let (before, after) = (gates(old), gates(new));
    if let Some(at) = after.iter().position(|gate| !before.contains(gate)) {
        let gate = after[at]["name"].as_str().unwrap_or_default();
        let why =
            format!("Forbidden: only deletion is allowed, but found new scheduling gate '{gate}'");
        return invalid(&format!("spec.schedulingGates[{at}].name"), why);
    }
    let before_tolerations = old["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
    let after_tolerations = new["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
    if before_tolerations.iter().any(|toleration| !after_tolerations.contains(toleration)) {
        return invalid(
            "spec.tolerations",
            "Forbidden: existing toleration can not be modified except its tolerationSeconds"
                .into(),
        );
    }
    let fixed = |pod: &Value| {
        let mut spec = pod["spec"].clone();
        for list in ["containers", "initContainers"] {
            for container in
                spec[list].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut)
            {
                container.remove("image");
            }
        }
        if let Some(spec) = spec.as_object_mut() {
            for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
                spec.remove(field);
            }
            // kube-apiserver also checks that the change only narrows the set of nodes.
            if !before.is_empty() {
                spec.remove("nodeSelector");
                spec.remove("affinity");
            }
            spec.retain(|_, value| !value.is_null());
        }
        spec
    };
    if fixed(old) != fixed(new) {
        return invalid(
            "spec",
            "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,\
             `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to \
             existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
             previously negative)"
                .into(),
        );
    }
    Ok(())
}
