//! Passes device classes, resource slices and resource claims to the engine's store of devices.
//!
//! The store also gets claims from the plugin's writes, so it may be ahead of the watch. Versions decide: an object is
//! passed on if the store has another version, and removed if the store has no newer one. A claim that was created
//! after a list therefore survives the list.

use std::collections::HashSet;
use std::sync::Arc;

use portolan::cache::{Event, Reader, Snapshot};
use portolan_dra::Devices;
use portolan_dra::model::Metadata;
use portolan_dra::store::DeviceEvent;
use serde_json::value::RawValue;

use super::figures::KindState;
use super::sink::{NotPut, Sink};
use super::submit::{Events, Stopped};
use super::wire::Meta;
use crate::api::Resource;

/// A kind of resource.k8s.io.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeviceKind {
    Class,
    Slice,
    Claim,
}

/// The namespace and name of an object.
type Key = (Arc<str>, Arc<str>);

/// Returns whether the engine of a version has the store of devices.
pub(super) fn are_stored(version: &Snapshot) -> bool {
    version.store::<Devices>().is_ok()
}

impl DeviceKind {
    /// Returns the kind of a resource, or `None` if it is none of these.
    pub(super) fn of(resource: &Resource) -> Option<DeviceKind> {
        match *resource {
            Resource::DEVICE_CLASSES => Some(DeviceKind::Class),
            Resource::RESOURCE_SLICES => Some(DeviceKind::Slice),
            Resource::RESOURCE_CLAIMS => Some(DeviceKind::Claim),
            _ => None,
        }
    }

    fn put(self, json: &str) -> Result<DeviceEvent, serde_json::Error> {
        Ok(match self {
            DeviceKind::Class => DeviceEvent::PutClass(serde_json::from_str(json)?),
            DeviceKind::Slice => DeviceEvent::PutSlice(serde_json::from_str(json)?),
            DeviceKind::Claim => DeviceEvent::PutClaim(serde_json::from_str(json)?),
        })
    }

    fn delete(self, (namespace, name): Key) -> DeviceEvent {
        match self {
            DeviceKind::Class => DeviceEvent::DeleteClass(name),
            DeviceKind::Slice => DeviceEvent::DeleteSlice(name),
            DeviceKind::Claim => DeviceEvent::DeleteClaim { namespace, name, uid: None },
        }
    }

    /// Returns the metadata of an object in the store.
    fn known<'a>(self, devices: &'a Devices, (namespace, name): &Key) -> Option<&'a Metadata> {
        match self {
            DeviceKind::Class => devices.classes().get(name).map(|class| &class.metadata),
            DeviceKind::Slice => devices.slices().get(name).map(|slice| &slice.metadata),
            DeviceKind::Claim => devices.claims().get(namespace, name).map(|claim| &claim.metadata),
        }
    }

    /// Returns the metadata of all objects in the store.
    fn all(self, devices: &Devices) -> Vec<&Metadata> {
        match self {
            DeviceKind::Class => devices.classes().iter().map(|class| &class.metadata).collect(),
            DeviceKind::Slice => devices.slices().iter().map(|slice| &slice.metadata).collect(),
            DeviceKind::Claim => devices.claims().iter().map(|claim| &claim.metadata).collect(),
        }
    }

    /// Returns the objects in the store that are not listed, although they are not newer than the list. O(objects).
    fn missing(self, devices: &Devices, listed: &HashSet<Key>, version: u64) -> Vec<Key> {
        let is_missing = |metadata: &&Metadata| {
            !listed.contains(&key(metadata)) && metadata.version() <= Some(version)
        };
        self.all(devices).into_iter().filter(is_missing).map(key).collect()
    }
}

fn key(metadata: &Metadata) -> Key {
    (metadata.namespace.clone(), metadata.name.clone())
}

fn key_of(meta: &Meta<'_>) -> Key {
    ((&*meta.namespace).into(), (&*meta.name).into())
}

/// Passes the objects of a kind to the store. A list is passed on object by object.
pub(super) struct DeviceSink {
    kind: Arc<KindState>,
    device: DeviceKind,
    events: Events,
    reader: Reader,
    /// The objects of the server.
    keys: HashSet<Key>,
    /// The objects of a list that is not complete.
    listed: Option<HashSet<Key>>,
    /// Whether the list contains an object whose name cannot be read, and which could therefore be any object.
    is_partial: bool,
}

impl DeviceSink {
    pub(super) fn new(
        kind: Arc<KindState>,
        device: DeviceKind,
        events: Events,
        reader: Reader,
    ) -> DeviceSink {
        let keys = HashSet::new();
        DeviceSink { kind, device, events, reader, keys, listed: None, is_partial: false }
    }

    /// Reads the store of the published version, or returns `None` if it has failed.
    fn read<T>(&mut self, read: impl FnOnce(DeviceKind, &Devices) -> T) -> Option<T> {
        let result = self.reader.pin().store::<Devices>().ok().map(|of| read(self.device, of));
        // The next change may come much later.
        self.reader.release();
        result
    }

    /// Returns the version and uid that the store has under this name.
    fn known(&mut self, key: &Key) -> Option<(u64, Arc<str>)> {
        let version = |of: &Metadata| (of.version().unwrap_or(0), of.uid.clone());
        self.read(|device, devices| device.known(devices, key).map(version)).flatten()
    }

    fn note(&mut self, key: Key) {
        match &mut self.listed {
            Some(listed) => drop(listed.insert(key)),
            None => {
                self.keys.insert(key);
                self.count();
            }
        }
    }

    fn count(&self) {
        self.kind.count(|figures| figures.objects = self.keys.len());
    }

    async fn submit(&mut self, event: DeviceEvent) -> Result<(), Stopped> {
        self.events.send(&self.kind, Event::custom::<Devices>(event)).await
    }
}

impl Sink for DeviceSink {
    fn begin(&mut self) {
        self.listed = Some(HashSet::new());
        self.is_partial = false;
    }

    async fn put(&mut self, object: &RawValue, meta: &Meta<'_>) -> Result<(), NotPut> {
        if meta.name.is_empty() {
            return Err(NotPut::Lacks("metadata.name"));
        }
        let key = key_of(meta);
        let is_equal = |(version, uid): (u64, Arc<str>)| {
            version != 0 && version == meta.version() && *uid == *meta.uid
        };
        if self.known(&key).is_some_and(is_equal) {
            self.note(key);
            self.kind.count(|figures| figures.unchanged += 1);
            return Ok(());
        }
        let event = self.device.put(object.get()).map_err(NotPut::Malformed)?;
        self.note(key);
        Ok(self.submit(event).await?)
    }

    fn keep(&mut self, meta: &Meta<'_>) {
        self.is_partial |= meta.name.is_empty();
        self.note(key_of(meta));
    }

    async fn delete(&mut self, meta: &Meta<'_>) -> Result<(), Stopped> {
        let key = key_of(meta);
        match &mut self.listed {
            Some(listed) => drop(listed.remove(&key)),
            None => {
                self.keys.remove(&key);
                self.count();
            }
        }
        match self.known(&key) {
            // Another object has taken the name, or the store has been told of a later change.
            Some((version, _)) if version > meta.version() => Ok(()),
            _ => self.submit(self.device.delete(key)).await,
        }
    }

    async fn end(&mut self, version: u64) -> Result<(), Stopped> {
        let listed = self.listed.take().unwrap_or_default();
        self.events.flush().await?;
        if self.is_partial {
            self.keys.extend(listed);
        } else {
            let missing = self.read(|device, devices| device.missing(devices, &listed, version));
            for key in missing.unwrap_or_default() {
                self.submit(self.device.delete(key)).await?;
            }
            self.keys = listed;
        }
        self.count();
        self.events.flush().await
    }
}
