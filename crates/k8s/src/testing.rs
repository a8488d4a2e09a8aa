//! Reads objects that tests write as values.

use portolan::model::{Node, Object, Pod};
use serde_json::Value;

use super::{ReadError, node_from_slice, object_from_slice, pod_from_slice};

pub(super) fn pod(value: &Value) -> Result<Pod, ReadError> {
    pod_from_slice(value.to_string().as_bytes())
}

pub(super) fn node(value: &Value) -> Result<Node, ReadError> {
    node_from_slice(value.to_string().as_bytes())
}

pub(super) fn object(kind: &str, value: &Value) -> Result<Object, ReadError> {
    object_from_slice(kind, value.to_string().as_bytes())
}
