//! What the plugin reads of a pod in addition to its template.

use std::collections::BTreeMap;
use std::sync::Arc;

use portolan::model::Quantity;
use serde_json::Value;

use super::Amount;

/// The claims of a pod, and the requests of its containers, which extended resources are allocated for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodClaims {
    /// The uid of the pod.
    pub uid: Arc<str>,
    /// The entries of `spec.resourceClaims`, with the names that the pod's status adds.
    pub claims: Vec<PodClaim>,
    /// The init containers, followed by the other containers.
    pub containers: Vec<ContainerRequests>,
}

/// An entry of a pod's `spec.resourceClaims`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodClaim {
    /// The name of the entry.
    pub name: Arc<str>,
    /// The claim that the entry names.
    pub claim: Option<Arc<str>>,
    /// The template that the entry names.
    pub template: Option<Arc<str>>,
    /// The entry of this name in `status.resourceClaimStatuses`: the generated claim, or `None` if none is needed.
    pub generated: Option<Option<Arc<str>>>,
}

/// How long a container runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lifetime {
    /// Until the pod ends: a regular container or a sidecar.
    #[default]
    Pod,
    /// Until the next container starts: an init container.
    Init,
}

/// The requests of a container.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContainerRequests {
    /// The name.
    pub name: Arc<str>,
    /// How long the container runs.
    pub lifetime: Lifetime,
    /// The requests by resource.
    pub requests: BTreeMap<Arc<str>, Quantity>,
}

impl PodClaims {
    /// Reads a pod as Kubernetes JSON. Fields that are absent or of another type count as empty.
    #[must_use]
    pub fn read(pod: &Value) -> PodClaims {
        let (spec, status) = (&pod["spec"], &pod["status"]);
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(Arc::from);
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let statuses = list(&status["resourceClaimStatuses"]);
        let claims = list(&spec["resourceClaims"]).into_iter().map(|entry| PodClaim {
            name: text(&entry["name"]).unwrap_or_default(),
            claim: text(&entry["resourceClaimName"]),
            template: text(&entry["resourceClaimTemplateName"]),
            generated: (statuses.iter().find(|status| status["name"] == entry["name"]))
                .map(|status| text(&status["resourceClaimName"])),
        });
        let container = |container: &Value, is_init: bool| {
            let requests = container["resources"]["requests"].as_object().into_iter().flatten();
            let requests = requests.filter_map(|(name, amount)| {
                let amount: Amount = serde_json::from_value(amount.clone()).ok()?;
                Some((Arc::from(&**name), amount.quantity()))
            });
            ContainerRequests {
                name: text(&container["name"]).unwrap_or_default(),
                lifetime: match is_init && container["restartPolicy"] != "Always" {
                    true => Lifetime::Init,
                    false => Lifetime::Pod,
                },
                requests: requests.collect(),
            }
        };
        let init = list(&spec["initContainers"]).into_iter().map(|it| container(&it, true));
        let main = list(&spec["containers"]).into_iter().map(|it| container(&it, false));
        PodClaims {
            uid: text(&pod["metadata"]["uid"]).unwrap_or_default(),
            claims: claims.collect(),
            containers: init.chain(main).collect(),
        }
    }
}
