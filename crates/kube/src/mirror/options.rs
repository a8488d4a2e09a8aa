//! The options of a mirror.

use std::sync::Arc;

use portolan::model::{Name, ObjectKind};

use crate::api::Resource;

use super::{Pauses, RawObjects};

/// The pods that kube-scheduler reads: those that have not ended. The server reports a pod that ends as deleted.
pub(super) const UNFINISHED: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// The options of a mirror.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The names of the schedulers whose pending pods the engine receives (`spec.schedulerName`).
    pub schedulers: Arc<[Name]>,
    /// The kinds that are read: pods and nodes, which scheduling requires, and the kinds of the enabled plugins. Devices
    /// and resource claims are also read if the engine has the store [`Devices`](portolan_dra::Devices).
    pub resources: Vec<Resource>,
    /// How long to wait between requests.
    pub pauses: Pauses,
    /// Whether nothing is read before [`Mirror::resume`](super::Mirror::resume), as in a standby with
    /// `delayCacheUntilActive`.
    pub is_delayed: bool,
    /// The store of objects as the server sent them, if extenders need them.
    pub(crate) raw: Option<Arc<RawObjects>>,
}

impl Options {
    /// Returns the options for schedulers of these names and the kinds of the default profile.
    #[must_use]
    pub fn new<N: Into<Name>>(schedulers: impl IntoIterator<Item = N>) -> Options {
        Options {
            schedulers: schedulers.into_iter().map(Into::into).collect(),
            resources: DEFAULT.to_vec(),
            pauses: Pauses::default(),
            is_delayed: false,
            raw: None,
        }
    }
}

/// The kinds of the plugin DynamicResources.
const DEVICES: [Resource; 3] =
    [Resource::DEVICE_CLASSES, Resource::RESOURCE_SLICES, Resource::RESOURCE_CLAIMS];

/// The kinds that the plugins of kube-scheduler's default profile read.
const DEFAULT: [Resource; 15] = [
    Resource::PODS,
    Resource::NODES,
    Resource::NAMESPACES,
    Resource::SERVICES,
    Resource::REPLICATION_CONTROLLERS,
    Resource::REPLICA_SETS,
    Resource::STATEFUL_SETS,
    Resource::POD_DISRUPTION_BUDGETS,
    Resource::PERSISTENT_VOLUMES,
    Resource::PERSISTENT_VOLUME_CLAIMS,
    Resource::STORAGE_CLASSES,
    Resource::CSI_NODES,
    Resource::CSI_DRIVERS,
    Resource::CSI_STORAGE_CAPACITIES,
    Resource::VOLUME_ATTACHMENTS,
];

impl Options {
    /// Returns the kinds that are read from an engine that has the store of devices, or has it not.
    pub(super) fn with_devices(&self, has_devices: bool) -> Vec<Resource> {
        let mut resources = self.resources.clone();
        if has_devices {
            resources.extend(DEVICES.iter().filter(|kind| !self.resources.contains(kind)));
        }
        resources
    }
}

/// Returns the engine's kind of a resource other than pods and nodes, or `None` if the engine does not store it.
pub(super) fn object_kind(resource: &Resource) -> Option<ObjectKind> {
    ObjectKind::ALL.into_iter().find(|kind| kind.as_str() == resource.kind)
}
