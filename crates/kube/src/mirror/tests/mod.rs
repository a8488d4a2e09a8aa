//! The reflectors against a server with scripted answers, and the rules for pods against a model.

mod copies;
mod devices;
mod failures;
mod history;
mod lists;
mod memory;
mod pods;
mod server;
mod submit;
mod whole;

use portolan_k8s::{Digest, pod_digest};

fn digest_of(pod: &str) -> Option<Digest> {
    pod_digest(serde_json::from_str(pod).expect("JSON"))
}
