//! Passes nodes and objects of other kinds to the engine.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use portolan::cache::{Event, Reader, Relist, Snapshot};
use portolan::model::{Node, Object, ObjectKind};
use portolan_k8s::{Digest, ReadError, node_digest, node_from_slice, object_from_slice};
use serde_json::value::RawValue;

use super::figures::KindState;
use super::sink::{NotPut, Sink};
use super::submit::{Events, Stopped};
use super::wire::Meta;

/// A kind as the engine knows it.
pub(super) trait Model: Send + 'static {
    /// An object of the kind, shared with the engine.
    type Object: Send + Sync;

    /// Returns a digest of the fields that are read, if objects with equal digests are equal for the engine.
    fn digest(&self, _json: &RawValue) -> Option<Digest> {
        None
    }
    fn read(&self, json: &[u8]) -> Result<Self::Object, ReadError>;
    fn put(&self, object: Self::Object) -> Event;
    fn delete(&self, meta: &Meta<'_>) -> Event;
    fn relist(&self, objects: Vec<Self::Object>) -> Event;
    /// Returns the object that a version has under a name.
    fn known(&self, version: &Snapshot, meta: &Meta<'_>) -> Option<Self::Object>;
}

/// Nodes.
pub(super) struct Nodes;

impl Model for Nodes {
    type Object = Arc<Node>;

    fn digest(&self, json: &RawValue) -> Option<Digest> {
        node_digest(json)
    }

    fn read(&self, json: &[u8]) -> Result<Arc<Node>, ReadError> {
        node_from_slice(json).map(Arc::new)
    }

    fn put(&self, node: Arc<Node>) -> Event {
        Event::UpdateNode(node)
    }

    fn delete(&self, meta: &Meta<'_>) -> Event {
        Event::RemoveNode((&*meta.name).into())
    }

    fn relist(&self, nodes: Vec<Arc<Node>>) -> Event {
        Event::Relist(Relist::Nodes(nodes).into())
    }

    fn known(&self, version: &Snapshot, meta: &Meta<'_>) -> Option<Arc<Node>> {
        version.node(&meta.name)?.kubelet_node().cloned()
    }
}

/// Objects of a kind other than pods and nodes.
pub(super) struct Objects(pub(super) ObjectKind);

impl Model for Objects {
    type Object = Object;

    fn read(&self, json: &[u8]) -> Result<Object, ReadError> {
        object_from_slice(self.0.as_str(), json)
    }

    fn put(&self, object: Object) -> Event {
        Event::PutObject(object)
    }

    fn delete(&self, meta: &Meta<'_>) -> Event {
        Event::delete_object(self.0, &*meta.namespace, &*meta.name)
    }

    fn relist(&self, objects: Vec<Object>) -> Event {
        Event::Relist(Relist::Objects(self.0, objects).into())
    }

    fn known(&self, version: &Snapshot, meta: &Meta<'_>) -> Option<Object> {
        version.object(self.0, &meta.namespace, &meta.name)
    }
}

/// An object of a list.
struct Listed<O> {
    /// The hash of its key.
    key: u64,
    digest: Option<Digest>,
    object: O,
}

/// Passes the objects of a kind to the engine. A list is one event.
pub(super) struct ObjectSink<M: Model> {
    kind: Arc<KindState>,
    model: M,
    events: Events,
    reader: Reader,
    /// The objects of a list that is not complete.
    list: Option<Vec<Listed<M::Object>>>,
    /// Whether the list contains an object whose name cannot be read, and which could therefore be any object.
    is_partial: bool,
    /// The hashes of the keys of all objects, with the digests of those that the engine has. A digest covers the name,
    /// so a collision of keys has no effect on it.
    keys: HashMap<u64, Option<Digest>>,
    /// The number of refused changes for which the digests are valid. After a refusal, the engine may lack an object.
    refused: u64,
    hasher: RandomState,
}

impl<M: Model> ObjectSink<M> {
    pub(super) fn new(kind: Arc<KindState>, model: M, events: Events, reader: Reader) -> Self {
        let (keys, hasher) = (HashMap::new(), RandomState::new());
        let is_partial = false;
        ObjectSink { kind, model, events, reader, list: None, is_partial, keys, refused: 0, hasher }
    }

    fn key(&self, meta: &Meta<'_>) -> u64 {
        self.hasher.hash_one((&*meta.namespace, &*meta.name))
    }

    /// Returns whether the engine has an equal object. An object that it has lost is added again by its next version.
    fn is_known(&mut self, key: u64, digest: Option<Digest>, meta: &Meta<'_>) -> bool {
        let refused = self.kind.refusals();
        if refused != self.refused {
            self.refused = refused;
            self.keys.values_mut().for_each(|digest| *digest = None);
        }
        let is_equal = digest.is_some() && self.keys.get(&key) == Some(&digest);
        let is_known = is_equal && self.model.known(&self.reader.pin(), meta).is_some();
        // The next change may come much later.
        self.reader.release();
        is_known
    }
}

/// Returns the last version of each object, in the order of the first ones: an object may change while a watch streams
/// the list.
fn newest<O>(list: Vec<Listed<O>>) -> Vec<Listed<O>> {
    let mut first: HashMap<u64, usize> = HashMap::with_capacity(list.len());
    let mut whole: Vec<Listed<O>> = Vec::with_capacity(list.len());
    for listed in list {
        match first.entry(listed.key) {
            Entry::Occupied(at) => whole[*at.get()] = listed,
            Entry::Vacant(at) => {
                at.insert(whole.len());
                whole.push(listed);
            }
        }
    }
    whole
}

impl<M: Model> Sink for ObjectSink<M> {
    fn begin(&mut self) {
        self.list = Some(Vec::new());
        self.is_partial = false;
    }

    async fn put(&mut self, object: &RawValue, meta: &Meta<'_>) -> Result<(), NotPut> {
        let (key, digest) = (self.key(meta), self.model.digest(object));
        if self.list.is_none() && self.is_known(key, digest, meta) {
            self.kind.count(|figures| figures.unchanged += 1);
            return Ok(());
        }
        let object = self.model.read(object.get().as_bytes()).map_err(NotPut::Unreadable)?;
        match &mut self.list {
            Some(list) => list.push(Listed { key, digest, object }),
            None => {
                self.keys.insert(key, digest);
                self.kind.count(|figures| figures.objects = self.keys.len());
                self.events.send(&self.kind, self.model.put(object)).await?;
            }
        }
        Ok(())
    }

    fn keep(&mut self, meta: &Meta<'_>) {
        let key = self.key(meta);
        let Some(list) = &mut self.list else { return };
        self.is_partial |= meta.name.is_empty();
        let version = self.reader.snapshot();
        self.reader.release();
        if let Some(known) = self.model.known(&version, meta) {
            list.push(Listed { key, digest: None, object: known });
        }
    }

    async fn delete(&mut self, meta: &Meta<'_>) -> Result<(), Stopped> {
        let key = self.key(meta);
        match &mut self.list {
            Some(list) => {
                list.retain(|listed| listed.key != key);
                Ok(())
            }
            None => {
                self.keys.remove(&key);
                self.kind.count(|figures| figures.objects = self.keys.len());
                self.events.send(&self.kind, self.model.delete(meta)).await
            }
        }
    }

    async fn end(&mut self, _: u64) -> Result<(), Stopped> {
        let list = newest(self.list.take().unwrap_or_default());
        if !self.is_partial {
            self.keys.clear();
        }
        self.keys.extend(list.iter().map(|listed| (listed.key, listed.digest)));
        self.kind.count(|figures| figures.objects = self.keys.len());
        let objects = list.into_iter().map(|listed| listed.object);
        if self.is_partial {
            for object in objects {
                self.events.send(&self.kind, self.model.put(object)).await?;
            }
        } else {
            self.events.send(&self.kind, self.model.relist(objects.collect())).await?;
        }
        self.events.flush().await
    }
}
