//! The rules of dynamic resource allocation that a scheduler's writes meet: those of claims, and of the claims in the
//! status of pods.
//!
//! The sources are `pkg/apis/resource` and `pkg/registry/resource` of Kubernetes 1.36. CEL expressions, names of drivers,
//! templates and slices are not validated.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::defaults::{absent, maps, section};
use crate::error::ApiError;
use crate::resources::{self, Resource};
use crate::store::{Key, Store};
use crate::verbs::is_deleted;

/// The label of namespaces whose claims may request administrative access.
const ADMIN_LABEL: &str = "resource.kubernetes.io/admin-access";

const MOST_REQUESTS: usize = 32;
const MOST_SUBREQUESTS: usize = 8;
const MOST_RESULTS: usize = 32;
const MOST_CONSUMERS: usize = 256;

/// Fills in absent fields of an object of resource.k8s.io.
pub(crate) fn fill(kind: &str, object: &mut Value) {
    match kind {
        "ResourceClaim" => {
            section(object, "status");
            drop_empty_lists(object);
            fill_requests(object.pointer_mut("/spec/devices/requests"));
            let results = object.pointer_mut("/status/allocation/devices/results");
            maps(results).for_each(fill_tolerations);
        }
        "ResourceClaimTemplate" => {
            drop_empty_lists(object);
            fill_requests(object.pointer_mut("/spec/spec/devices/requests"));
        }
        _ => {}
    }
}

/// Removes empty lists, which are not written. Only the terms of a node selector are required. The parameters and data
/// of drivers are not changed.
fn drop_empty_lists(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, value| {
                key == "nodeSelectorTerms" || value.as_array().is_none_or(|list| !list.is_empty())
            });
            let known =
                map.iter_mut().filter(|(key, _)| !["parameters", "data"].contains(&key.as_str()));
            known.for_each(|(_, value)| drop_empty_lists(value));
        }
        Value::Array(items) => items.iter_mut().for_each(drop_empty_lists),
        _ => {}
    }
}

fn fill_requests(requests: Option<&mut Value>) {
    for request in maps(requests) {
        request
            .get_mut("exactly")
            .and_then(Value::as_object_mut)
            .into_iter()
            .for_each(fill_request);
        maps(request.get_mut("firstAvailable")).for_each(fill_request);
    }
}

fn fill_request(request: &mut Map<String, Value>) {
    absent(request, "allocationMode", "ExactCount".into());
    if request.get("count").is_some_and(|count| *count == 0) {
        request.remove("count");
    }
    if request["allocationMode"] == "ExactCount" {
        absent(request, "count", 1.into());
    }
    fill_tolerations(request);
}

fn fill_tolerations(of: &mut Map<String, Value>) {
    maps(of.get_mut("tolerations"))
        .for_each(|toleration| absent(toleration, "operator", "Equal".into()));
}

/// Fields with the reasons for which they are refused.
#[derive(Default)]
struct Wrong(Vec<(String, String)>);

impl Wrong {
    fn add(&mut self, field: impl Into<String>, why: impl Into<String>) {
        self.0.push((field.into(), why.into()));
    }

    /// Adds an error if a list has too many elements. Returns whether its elements may be checked.
    fn count(&mut self, field: &str, list: &[Value], most: usize) -> bool {
        let number = list.len();
        if number > most {
            self.add(field, format!("Too many: {number}: must have at most {most} items"));
        }
        number <= most
    }

    fn require(&mut self, path: &str, of: &Value, fields: &[&str]) {
        for field in fields.iter().filter(|field| text(of, field).is_empty()) {
            self.add(format!("{path}.{field}"), "Required value");
        }
    }

    /// Adds an error if a field was changed.
    fn fixed(&mut self, path: &str, old: &Value, new: &Value) {
        if old != new {
            self.add(path, format!("Invalid value: {new}: field is immutable"));
        }
    }

    fn into_result(self, resource: &Resource, name: &str) -> Result<(), ApiError> {
        if self.0.is_empty() {
            return Ok(());
        }
        let wrong: Vec<(&str, String)> =
            self.0.iter().map(|(field, why)| (field.as_str(), why.clone())).collect();
        Err(ApiError::all_invalid(resource, name, &wrong))
    }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Checks a new claim.
pub(crate) fn check_spec(
    store: &Store,
    resource: &Resource,
    key: &Key,
    new: &Value,
) -> Result<(), ApiError> {
    let mut wrong = Wrong::default();
    if resource.kind == "ResourceClaim" {
        admin_request(&mut wrong, store, key, &new["spec"]);
        requests(&mut wrong, &new["spec"]);
    }
    wrong.into_result(resource, &key.name)
}

/// Refuses requests for administrative access, unless the namespace permits it.
fn admin_request(wrong: &mut Wrong, store: &Store, key: &Key, claim: &Value) {
    let is_admin = |request: &Value| request["exactly"]["adminAccess"] == true;
    if let Some(at) = list(&claim["devices"]["requests"]).iter().position(is_admin) {
        admin_access(wrong, store, key, &format!("spec.devices.requests[{at}]"));
    }
}

fn admin_access(wrong: &mut Wrong, store: &Store, key: &Key, path: &str) {
    let namespace = store.of(resources::namespaces()).get(&Key::new("", &key.namespace));
    let is_permitted =
        namespace.is_some_and(|of| of.value["metadata"]["labels"][ADMIN_LABEL] == "true");
    if !is_permitted {
        let why = format!(
            "Forbidden: admin access to devices requires the `{ADMIN_LABEL}: true` label on the containing namespace"
        );
        wrong.add(format!("{path}.adminAccess"), why);
    }
}

fn requests(wrong: &mut Wrong, claim: &Value) {
    let path = "spec.devices.requests";
    let requests = list(&claim["devices"]["requests"]);
    if !wrong.count(path, requests, MOST_REQUESTS) {
        return;
    }
    let mut names = BTreeSet::new();
    for (at, of) in requests.iter().enumerate() {
        let path = format!("{path}[{at}]");
        wrong.require(&path, of, &["name"]);
        match (of["exactly"].is_object(), list(&of["firstAvailable"])) {
            (true, []) => request(wrong, &format!("{path}.exactly"), &of["exactly"]),
            (true, _) => wrong.add(
                path.clone(),
                "Invalid value: null: exactly one of `exactly` or `firstAvailable` is required, but multiple fields \
                 are set",
            ),
            (false, []) => wrong.add(
                path.clone(),
                "Required value: exactly one of `exactly` or `firstAvailable` is required",
            ),
            (false, subrequests) => {
                let path = format!("{path}.firstAvailable");
                if wrong.count(&path, subrequests, MOST_SUBREQUESTS) {
                    for (at, of) in subrequests.iter().enumerate() {
                        let path = format!("{path}[{at}]");
                        wrong.require(&path, of, &["name"]);
                        request(wrong, &path, of);
                    }
                }
            }
        }
        unique(wrong, &path, &mut names, text(of, "name"));
    }
}

fn request(wrong: &mut Wrong, path: &str, of: &Value) {
    wrong.require(path, of, &["deviceClassName"]);
    let count = &of["count"];
    match text(of, "allocationMode") {
        "ExactCount" if count.as_i64().is_none_or(|count| count <= 0) => {
            let why = format!("Invalid value: {count}: must be greater than zero");
            wrong.add(format!("{path}.count"), why);
        }
        "ExactCount" => {}
        "All" if !count.is_null() => {
            let why = format!(
                "Invalid value: {count}: must not be specified when allocationMode is 'All'"
            );
            wrong.add(format!("{path}.count"), why);
        }
        "All" => {}
        other => {
            let why =
                format!("Unsupported value: {other:?}: supported values: \"All\", \"ExactCount\"");
            wrong.add(format!("{path}.allocationMode"), why);
        }
    }
}

fn unique<'a>(wrong: &mut Wrong, path: &str, known: &mut BTreeSet<&'a str>, key: &'a str) {
    if !known.insert(key) {
        wrong.add(path, format!("Duplicate value: {key:?}"));
    }
}

/// Refuses changes of the spec of a claim.
pub(crate) fn check_change(
    resource: &Resource,
    name: &str,
    old: &Value,
    new: &Value,
) -> Result<(), ApiError> {
    let mut wrong = Wrong::default();
    if resource.kind == "ResourceClaim" {
        wrong.fixed("spec", &old["spec"], &new["spec"]);
    }
    wrong.into_result(resource, name)
}

/// Checks the new status of a claim, and the claims in the new status of a pod.
pub(crate) fn check_status(
    store: &Store,
    resource: &Resource,
    key: &Key,
    old: &Value,
    new: &Value,
) -> Result<(), ApiError> {
    let mut wrong = Wrong::default();
    match resource.kind {
        "ResourceClaim" => {
            claim_status(&mut wrong, old, new);
            if let (None, Some(at)) = (admin_result(old), admin_result(new)) {
                let path = format!("status.allocation.devices.results[{at}]");
                admin_access(&mut wrong, store, key, &path);
            }
        }
        "Pod" => pod_status(&mut wrong, new),
        _ => {}
    }
    wrong.into_result(resource, &key.name)
}

/// Returns the position of the first device that is allocated with administrative access.
fn admin_result(claim: &Value) -> Option<usize> {
    let results = list(&claim["status"]["allocation"]["devices"]["results"]);
    results.iter().position(|result| result["adminAccess"] == true)
}

fn claim_status(wrong: &mut Wrong, old: &Value, new: &Value) {
    let (before, after) = (&old["status"], &new["status"]);
    let consumers = list(&after["reservedFor"]);
    if wrong.count("status.reservedFor", consumers, MOST_CONSUMERS) {
        let mut uids = BTreeSet::new();
        for (at, consumer) in consumers.iter().enumerate() {
            let path = format!("status.reservedFor[{at}]");
            wrong.require(&path, consumer, &["resource", "name", "uid"]);
            unique(wrong, &path, &mut uids, text(consumer, "uid"));
        }
    }
    let allocated = allocated(after);
    for (at, device) in list(&after["devices"]).iter().enumerate() {
        let id = DeviceId::of(device);
        if !allocated.contains(&id) {
            let (driver, pool, device) = (id.driver, id.pool, id.device);
            let why = "must be an allocated device in the claim";
            let why = format!("Invalid value: \"{driver}/{pool}/{device}\": {why}");
            wrong.add(format!("status.devices[{at}]"), why);
        }
    }
    if after["allocation"].is_null() {
        if !consumers.is_empty() {
            let why = "Forbidden: may not be specified when `allocated` is not set";
            wrong.add("status.reservedFor", why);
        }
        return;
    }
    let known = list(&before["reservedFor"]);
    if is_deleted(old) && consumers.iter().any(|consumer| !known.contains(consumer)) {
        let why = "Forbidden: new entries may not be added while `deallocationRequested` or `deletionTimestamp` are \
                   set";
        wrong.add("status.reservedFor", why);
    }
    match &before["allocation"] {
        Value::Null => allocation(wrong, &new["spec"], &after["allocation"]),
        before => wrong.fixed("status.allocation", before, &after["allocation"]),
    }
}

/// Checks a new allocation.
fn allocation(wrong: &mut Wrong, spec: &Value, allocation: &Value) {
    let names: BTreeSet<String> =
        list(&spec["devices"]["requests"]).iter().flat_map(request_names).collect();
    let path = "status.allocation.devices.results";
    let results = list(&allocation["devices"]["results"]);
    if !wrong.count(path, results, MOST_RESULTS) {
        return;
    }
    for (at, result) in results.iter().enumerate() {
        let path = format!("{path}[{at}]");
        let request = text(result, "request");
        if !names.contains(request) {
            let why = "must be the name of a request in the claim or the name of a request and a subrequest separated \
                       by '/'";
            wrong.add(format!("{path}.request"), format!("Invalid value: {request:?}: {why}"));
        }
        wrong.require(&path, result, &["driver", "pool", "device"]);
    }
}

/// The names by which a result may refer to a request.
fn request_names(request: &Value) -> Vec<String> {
    let name = text(request, "name");
    let subrequests = list(&request["firstAvailable"]).iter();
    let nested = subrequests.map(|subrequest| format!("{name}/{}", text(subrequest, "name")));
    std::iter::once(name.to_owned()).chain(nested).collect()
}

/// Identifies a device, or a share of it.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct DeviceId<'a> {
    driver: &'a str,
    pool: &'a str,
    device: &'a str,
    share: &'a str,
}

impl<'a> DeviceId<'a> {
    fn of(value: &'a Value) -> Self {
        let of = |field| text(value, field);
        DeviceId {
            driver: of("driver"),
            pool: of("pool"),
            device: of("device"),
            share: of("shareID"),
        }
    }
}

fn allocated(status: &Value) -> BTreeSet<DeviceId<'_>> {
    list(&status["allocation"]["devices"]["results"]).iter().map(DeviceId::of).collect()
}

/// Removes the reports about devices that are no longer allocated from the new status of a claim.
pub(crate) fn drop_deallocated(old: &Value, new: &mut Value) {
    let status = new["status"].clone();
    let after = allocated(&status);
    let before = allocated(&old["status"]);
    let devices = new.pointer_mut("/status/devices").and_then(Value::as_array_mut);
    let Some(devices) = devices else { return };
    devices.retain(|device| {
        let id = DeviceId::of(device);
        !before.contains(&id) || after.contains(&id)
    });
    if devices.is_empty() {
        section(new, "status").remove("devices");
    }
}

fn pod_status(wrong: &mut Wrong, pod: &Value) {
    let claims = list(&pod["spec"]["resourceClaims"]);
    let mut names = BTreeSet::new();
    for (at, status) in list(&pod["status"]["resourceClaimStatuses"]).iter().enumerate() {
        let (path, name) =
            (format!("status.resourceClaimStatuses[{at}].name"), text(status, "name"));
        if !claims.iter().any(|claim| claim["name"] == status["name"]) {
            let why = "must match the name of an entry in `spec.resourceClaims`";
            wrong.add(path.clone(), format!("Invalid value: {name:?}: {why}"));
        }
        unique(wrong, &path, &mut names, name);
    }
    let extended = &pod["status"]["extendedResourceClaimStatus"];
    if extended.is_null() {
        return;
    }
    let path = "status.extendedResourceClaimStatus";
    let mappings = list(&extended["requestMappings"]);
    if mappings.is_empty() {
        let why = "Required value: at least one request mapping is required";
        wrong.add(format!("{path}.requestMappings"), why);
    }
    let containers: Vec<&Value> = ["initContainers", "containers"]
        .into_iter()
        .flat_map(|field| list(&pod["spec"][field]))
        .collect();
    for (at, mapping) in mappings.iter().enumerate() {
        let path = format!("{path}.requestMappings[{at}]");
        let (name, resource) = (text(mapping, "containerName"), text(mapping, "resourceName"));
        match containers.iter().find(|container| container["name"] == name) {
            None => {
                let why = "must match the name of an entry in spec.initContainers.name or spec.containers.name";
                let why = format!("Invalid value: {name:?}: {why}");
                wrong.add(format!("{path}.containerName"), why);
            }
            Some(container) if container["resources"]["requests"][resource].is_null() => {
                let why = "must match the extended resource name of an entry in \
                           spec.initContainers.resources.requests or spec.containers.resources.requests";
                let why = format!("Invalid value: {resource:?}: {why}");
                wrong.add(format!("{path}.resourceName"), why);
            }
            Some(_) => {}
        }
    }
    wrong.require(path, extended, &["resourceClaimName"]);
}
