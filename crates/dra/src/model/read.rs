//! Reads objects of all served versions of `resource.k8s.io`.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Why an object cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The version is not one of v1, v1beta2 and v1beta1.
    #[error("apiVersion {0:?} is not supported: use resource.k8s.io/v1, v1beta2 or v1beta1")]
    Version(String),
    /// A field has the wrong type.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// Converts an object of v1beta1 to v1; one of v1 does not change.
pub fn upgrade(object: &mut Value) {
    if let Some(devices) = object.pointer_mut("/spec/devices").and_then(Value::as_array_mut) {
        for device in devices.iter_mut().filter_map(Value::as_object_mut) {
            if let Some(Value::Object(basic)) = device.remove("basic") {
                device.extend(basic);
            }
        }
    }
    for path in ["/spec/devices/requests", "/spec/spec/devices/requests"] {
        let requests = object.pointer_mut(path).and_then(Value::as_array_mut);
        for request in requests.into_iter().flatten().filter_map(Value::as_object_mut) {
            upgrade_request(request);
        }
    }
}

/// Moves what a request contains into `exactly`, unless it has alternatives.
fn upgrade_request(request: &mut Map<String, Value>) {
    if request.contains_key("firstAvailable") {
        return;
    }
    let outer = |name: &str| matches!(name, "name" | "exactly");
    let (outer, exactly): (Map<_, _>, Map<_, _>) =
        std::mem::take(request).into_iter().partition(|(name, _)| outer(name));
    *request = outer;
    if !exactly.is_empty() {
        request.insert("exactly".to_owned(), Value::Object(exactly));
    }
}

/// Reads an object. Without an `apiVersion` it is one of v1.
///
/// # Errors
///
/// Returns an error if the version is not supported, or a field has the wrong type.
///
/// ```
/// use portolan_dra::model::{ResourceSlice, read};
/// use serde_json::json;
///
/// let slice: ResourceSlice = read(json!({
///     "apiVersion": "resource.k8s.io/v1beta1",
///     "metadata": {"name": "n1-gpu"},
///     "spec": {"driver": "gpu.example.com", "devices": [
///         {"name": "gpu-0", "basic": {"attributes": {"index": {"int": 0}}}},
///     ]},
/// }))?;
/// assert!(slice.spec.devices[0].attributes.contains_key("index"));
/// # Ok::<(), portolan_dra::model::ReadError>(())
/// ```
pub fn read<T: DeserializeOwned>(mut object: Value) -> Result<T, ReadError> {
    if needs_upgrade(object["apiVersion"].as_str())? {
        upgrade(&mut object);
    }
    Ok(serde_json::from_value(object)?)
}

/// Returns whether objects of a version must be [upgraded](upgrade) to v1.
///
/// # Errors
///
/// The version is not supported.
pub fn needs_upgrade(api_version: Option<&str>) -> Result<bool, ReadError> {
    match api_version {
        None | Some("resource.k8s.io/v1" | "resource.k8s.io/v1beta2") => Ok(false),
        Some("resource.k8s.io/v1beta1") => Ok(true),
        Some(other) => Err(ReadError::Version(other.to_owned())),
    }
}
