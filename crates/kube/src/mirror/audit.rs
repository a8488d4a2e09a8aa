//! Compares an engine with an API server, object by object.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use portolan::cache::{Engine, Snapshot};
use portolan::model::{LabelSelector, Node, Object, Pod, Uid};
use portolan_dra::Devices;
use portolan_k8s::{ReadError, node_from_slice, object_from_slice, pod_from_slice};
use serde_json::value::RawValue;

use crate::api::{Api, ApiError, Resource};

use super::devices::{self, DeviceKind};
use super::options::{UNFINISHED, object_kind};
use super::pods::PodIndex;
use super::reflector::PAGE;
use super::wire::{Meta, Page, encode};
use super::{MirrorError, Options};

/// An object that differs between a server and an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Difference {
    /// The kind of the object.
    pub kind: &'static str,
    /// The namespace and name of the object, or its uid if the server does not have it.
    pub object: String,
    /// How it differs.
    pub what: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.kind, self.object, self.what)
    }
}

/// Lists the kinds of the options from the server and returns the differences from the engine's published version, and
/// from the index of pods if there is one. An object that cannot be read is a difference, since the mirror skips it.
///
/// The result is meaningful only while nothing changes and the mirror has caught up. An assumed pod is not a difference
/// while the server has it without a node. Kinds that the server does not serve are skipped. Lists one page at a time.
///
/// # Errors
///
/// A list fails, or the engine is unusable.
pub async fn compare(
    api: &Api,
    engine: &Engine,
    options: &Options,
    pods: Option<&PodIndex>,
) -> Result<Vec<Difference>, MirrorError> {
    let version = engine.reader().map_err(|_| MirrorError::Stopped)?.snapshot();
    let mut audit = Audit { version, pods, found: Vec::new() };
    let resources = options.with_devices(devices::are_stored(&audit.version));
    for resource in &resources {
        match audit.kind(api, resource).await {
            Err(MirrorError::Api(error)) if error.is_not_found() => {}
            done => done?,
        }
    }
    Ok(audit.found)
}

struct Audit<'a> {
    version: Arc<Snapshot>,
    pods: Option<&'a PodIndex>,
    found: Vec<Difference>,
}

impl Audit<'_> {
    async fn kind(&mut self, api: &Api, resource: &Resource) -> Result<(), MirrorError> {
        let selector = match *resource {
            Resource::PODS => format!("fieldSelector={}&", encode(UNFINISHED)),
            _ => String::new(),
        };
        let mut listed = HashSet::new();
        let mut next = String::new();
        loop {
            let path = resource.collection(None);
            let path = format!("{path}?{selector}limit={PAGE}&continue={}", encode(&next));
            let body = api.get(&path).await?;
            let page: Page<'_> = serde_json::from_slice(&body)
                .map_err(|error| ApiError::Malformed(format!("a list: {error}")))?;
            for object in page.items.unwrap_or_default() {
                let meta = Meta::of(object, resource);
                listed.insert(match *resource {
                    Resource::PODS => (String::new(), meta.uid.to_string()),
                    _ => (meta.namespace.to_string(), meta.name.to_string()),
                });
                let unreadable = |error: String| Some(format!("cannot be read: {error}"));
                let what = match DeviceKind::of(resource) {
                    Some(kind) => self.device(kind, object, &meta),
                    None => {
                        let what = self.object(resource, object, &meta);
                        what.map_err(|error| error.to_string())
                    }
                };
                if let Some(what) = what.unwrap_or_else(unreadable) {
                    let object = format!("{}/{}", meta.namespace, meta.name);
                    self.found.push(Difference { kind: resource.kind, object, what });
                }
            }
            next = page.metadata.next;
            if next.is_empty() {
                break;
            }
        }
        self.extra(resource, &listed);
        Ok(())
    }

    /// Returns how an object of the server differs from the engine's.
    fn object(
        &self,
        resource: &Resource,
        object: &RawValue,
        meta: &Meta<'_>,
    ) -> Result<Option<String>, ReadError> {
        let json = object.get().as_bytes();
        match *resource {
            Resource::PODS => Ok(self.pod(&pod_from_slice(json)?)),
            Resource::NODES => {
                let node = node_from_slice(json)?;
                let known = self.version.node(&meta.name).and_then(|known| known.kubelet_node());
                Ok(differs(known.map(|known| {
                    // Updates that change no field that is read do not reach the engine.
                    let is_later = known.resource_version > node.resource_version;
                    let resource_version = known.resource_version;
                    !is_later && **known == Node { resource_version, ..node }
                })))
            }
            _ => {
                let read: Object = object_from_slice(resource.kind, json)?;
                let known = self.version.object(read.kind(), read.namespace(), read.name());
                Ok(differs(known.map(|known| known == read)))
            }
        }
    }

    /// Returns how an object of the server differs from that of the store of devices.
    fn device(
        &self,
        kind: DeviceKind,
        object: &RawValue,
        meta: &Meta<'_>,
    ) -> Result<Option<String>, String> {
        let devices = self.version.store::<Devices>().map_err(|failure| failure.to_string())?;
        let is_equal = kind.is_equal(devices, object.get(), meta);
        is_equal.map(differs).map_err(|error| error.to_string())
    }

    fn pod(&self, pod: &Pod) -> Option<String> {
        let known = self.version.pod(&pod.uid);
        let node = pod.node_name.as_deref().filter(|node| !node.is_empty());
        let what = match (node, known) {
            (None, Some(known)) if !known.is_assumed() => {
                return Some(format!("pending on the server, on node {}", known.node().name()));
            }
            (None, _) => None,
            (Some(node), None) => return Some(format!("on node {node} on the server, unknown")),
            (Some(_), Some(known)) => {
                let expected = (pod.resource_version, node, pod.deletion_time, pod.start_time);
                // Updates that change no field that is read do not reach the engine.
                let version = known.resource_version();
                let version = version.max(pod.resource_version);
                let node = Some(&**known.node().name());
                let found = (version, node, known.deletion_time(), known.start_time());
                if known.is_assumed() {
                    Some("bound on the server, assumed".to_owned())
                } else if found != expected {
                    Some(format!("{found:?}, expected {expected:?}"))
                } else {
                    (*known.template() != pod.template).then(|| "another template".to_owned())
                }
            }
        };
        what.or_else(|| self.indexed(pod, node))
    }

    /// Returns how the index differs from a pod of the server.
    fn indexed(&self, pod: &Pod, node: Option<&str>) -> Option<String> {
        let Some(known) = self.pods?.get(&pod.uid) else {
            return Some("missing from the index".to_owned());
        };
        let found = (known.resource_version, known.node.as_deref(), &*known.name);
        let expected = (pod.resource_version, node, &*pod.name);
        (found != expected).then(|| format!("indexed as {found:?}, expected {expected:?}"))
    }

    /// Reports the objects that only the engine has.
    fn extra(&mut self, resource: &Resource, listed: &HashSet<(String, String)>) {
        let mut extra: Vec<String> = Vec::new();
        let unlisted = |keys: Vec<(String, String)>| {
            let unknown = keys.into_iter().filter(|key| !listed.contains(key));
            unknown.map(|(namespace, name)| format!("{namespace}/{name}"))
        };
        let devices = DeviceKind::of(resource).zip(self.version.store::<Devices>().ok());
        match (object_kind(resource), devices) {
            (Some(kind), _) => extra.extend(unlisted(self.version.object_keys(kind))),
            (None, Some((kind, devices))) => extra.extend(unlisted(kind.keys(devices))),
            (None, None) if *resource == Resource::NODES => {
                let nodes = self.version.nodes().filter(|node| node.kubelet_node().is_some());
                let names = nodes.map(|node| node.name().to_string());
                extra.extend(names.filter(|name| !listed.contains(&(String::new(), name.clone()))));
            }
            (None, None) => {
                let is_listed = |uid: &Uid| listed.contains(&(String::new(), uid.to_string()));
                let everything = LabelSelector::everything();
                let placed = self.version.pods(&everything, |_| true).map(|pod| pod.uid());
                extra.extend(placed.filter(|uid| !is_listed(uid)).map(|uid| uid.to_string()));
                if self.pods.is_some_and(|pods| pods.len() > listed.len()) {
                    extra.push("more pods in the index than on the server".to_owned());
                }
            }
        }
        let what = || "not on the server".to_owned();
        let kind = resource.kind;
        let found = extra.into_iter().map(|object| Difference { kind, object, what: what() });
        self.found.extend(found);
    }
}

/// Describes the comparison of two objects, one of which may be missing.
fn differs(is_equal: Option<bool>) -> Option<String> {
    match is_equal {
        None => Some("missing from the engine".to_owned()),
        Some(false) => Some("another object".to_owned()),
        Some(true) => None,
    }
}
