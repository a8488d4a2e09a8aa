//! Refuses versions of an API group that no supported Kubernetes release serves, and whose objects would be read
//! wrongly.
//!
//! Deployments and their relatives of the versions before `apps/v1` lack the required selector, which the API server
//! derived from the template. Beta versions of other groups have the fields of their successors and are read as those,
//! since dumps of older clusters contain them.

use super::error::{Cause, Path, ReadError};

/// The kinds that moved to `apps/v1` in Kubernetes 1.16.
const APPS: [&str; 4] = ["Deployment", "DaemonSet", "ReplicaSet", "StatefulSet"];

/// Returns an error if the version of the kind is no longer served.
pub(super) fn check(api_version: &str, kind: &str, path: &Path<'_>) -> Result<(), ReadError> {
    let is_old = matches!(api_version, "extensions/v1beta1" | "apps/v1beta1" | "apps/v1beta2");
    let known = APPS.iter().find(|known| is_old && **known == kind);
    let Some(known) = known else { return Ok(()) };
    let cause =
        Cause::ApiVersion { api_version: api_version.to_owned(), kind: known, instead: "apps/v1" };
    Err(ReadError::new(&path.key("apiVersion"), cause))
}
