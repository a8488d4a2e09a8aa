//! The objects of a cluster in process, with an API server's rules for creating, updating, binding and deleting them.
//!
//! A pod's events are submitted under the lock of its record, so the engine sees them in the order in which the objects
//! changed: a pod is not bound after it was deleted.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use portolan::cache::{Engine, Event, Outcome, Ticket, Unavailable, WeakEngine};
use portolan::model::{EventError, Name, ObjectKind, Pod, Timestamp};
use portolan::plugin::Eviction;
use portolan::{Binder, BinderError, Evictor};
use portolan_k8s::Reader;
use serde_json::Value;

use super::board::Board;
use super::steps::Stage;
use super::target::{Prepared, Refused, Update, is_gated, labels_of, metadata, shown};

/// A namespace and a name.
type Key = (String, String);

/// A pod that exists.
#[derive(Debug)]
struct Record {
    /// The JSON of the pod as it was created or updated.
    text: Box<str>,
    pod: Arc<Pod>,
    is_held: bool,
    /// The grace period in seconds.
    grace: u64,
}

/// All objects.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    pub(super) board: Board,
    pods: Mutex<HashMap<Key, Record>>,
    /// The other objects by kind, namespace and name, with the kind under which the engine stores them.
    others: Mutex<HashMap<(String, Key), Stored>>,
    /// The number of uids. Relaxed: each number is taken once, and orders no other memory.
    uids: AtomicU64,
}

/// How the engine stores an object.
#[derive(Clone, Copy, Debug)]
enum Stored {
    Node,
    Object(ObjectKind),
    /// Scheduling does not depend on the object.
    No,
}

type Submitted = Result<Ticket<Outcome>, Unavailable<Event>>;

/// Waits until the engine has applied an event.
fn done(object: String, submitted: Submitted) -> Result<(), Refused> {
    let failed = |what: &dyn std::fmt::Display| Refused::Other(format!("{object}: {what}"));
    let ticket = submitted.map_err(|error| failed(&error))?;
    let outcome = ticket.wait().map_err(|error| failed(&error))?;
    outcome.map(drop).map_err(|error: EventError| failed(&error))
}

impl Record {
    fn of(object: &Value, text: String, pod: Pod) -> Record {
        let finalizers = object["metadata"]["finalizers"].as_array();
        let grace = object["spec"]["terminationGracePeriodSeconds"].as_u64();
        Record {
            text: text.into(),
            pod: Arc::new(pod),
            is_held: finalizers.is_some_and(|held| !held.is_empty()),
            // The default of the API server.
            grace: grace.unwrap_or(30),
        }
    }

    /// The event that announces the present object.
    fn event(&self) -> Event {
        match self.pod.node_name {
            Some(_) => Event::update_pod(&self.pod.uid, self.pod.clone()),
            None => Event::put_pending(self.pod.clone()),
        }
    }
}

impl Cluster {
    fn pods(&self) -> MutexGuard<'_, HashMap<Key, Record>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads objects, with the defaults of an API server. Identical pods share their template.
    pub(super) fn prepare(&self, mut objects: Vec<Value>) -> Result<Vec<Prepared>, Refused> {
        let mut reader = Reader::new();
        for object in &mut objects {
            if object["kind"] == "Pod" {
                let uid = self.uids.fetch_add(1, Ordering::Relaxed);
                object["metadata"]["uid"] = format!("uid-{uid}").into();
                read(&mut reader, object)?;
            }
        }
        let mut pods = reader.finish().pods.into_iter();
        let prepared = objects.into_iter().map(|object| match object["kind"] == "Pod" {
            // Pods that have ended are not read, and none has.
            true => Prepared { pod: pods.next(), object },
            false => Prepared { pod: None, object },
        });
        Ok(prepared.collect())
    }

    pub(super) fn create(&self, engine: &Engine, prepared: Prepared) -> Result<(), Refused> {
        let Prepared { object, pod } = prepared;
        let Some(pod) = pod else { return self.put(engine, &object, true) };
        let key = (pod.namespace().to_string(), pod.name.to_string());
        let name = shown("Pod", &key.0, &key.1);
        let mut pods = self.pods();
        if pods.contains_key(&key) {
            return Err(Refused::Exists(name));
        }
        let stage = match pod.node_name {
            Some(_) => Stage::Scheduled,
            None if is_gated(&object) => Stage::Attempted,
            None => Stage::Pending,
        };
        let record = Record::of(&object, object.to_string(), pod);
        let event = match stage {
            Stage::Scheduled => Event::add_pod(record.pod.clone()),
            _ => record.event(),
        };
        // Before the event, since a scheduling thread may bind the pod as soon as it is known.
        self.board.put(&key.0, &key.1, labels_of(&object).into(), stage);
        pods.insert(key, record);
        let submitted = engine.submit(event);
        drop(pods);
        done(name, submitted)
    }

    /// Creates or updates an object other than a pod.
    fn put(&self, engine: &Engine, object: &Value, is_new: bool) -> Result<(), Refused> {
        let kind = object["kind"].as_str().unwrap_or_default();
        let (namespace, name) = (metadata(object, "namespace"), metadata(object, "name"));
        let shown = shown(kind, namespace, name);
        let key = (kind.to_owned(), (namespace.to_owned(), name.to_owned()));
        let mut reader = Reader::new();
        read(&mut reader, object)?;
        let mut objects = reader.finish();
        let (stored, event) = if let Some(node) = objects.nodes.pop() {
            let event = if is_new { Event::add_node(node) } else { Event::update_node(node) };
            (Stored::Node, Some(event))
        } else if let Some(object) = objects.objects.pop() {
            (Stored::Object(object.kind()), Some(Event::put_object(object)))
        } else {
            (Stored::No, None)
        };
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        match (others.contains_key(&key), is_new) {
            (true, true) => return Err(Refused::Exists(shown)),
            (false, false) => return Err(Refused::NotFound(shown)),
            _ => others.insert(key, stored),
        };
        let submitted = event.map(|event| engine.submit(event));
        drop(others);
        submitted.map_or(Ok(()), |submitted| done(shown, submitted))
    }

    pub(super) fn update(
        &self,
        engine: &Engine,
        mut object: Value,
        how: Update,
    ) -> Result<(), Refused> {
        if object["kind"] != "Pod" {
            return self.put(engine, &object, false);
        }
        let text = |field| metadata(&object, field).to_owned();
        let key = (text("namespace"), text("name"));
        let name = shown("Pod", &key.0, &key.1);
        let mut pods = self.pods();
        let Some(record) = pods.get_mut(&key) else { return Err(Refused::NotFound(name)) };
        if how == Update::Resize {
            let other = |error: serde_json::Error| Refused::Other(format!("{name}: {error}"));
            let mut resized: Value = serde_json::from_str(&record.text).map_err(other)?;
            resize(&mut resized, &object);
            object = resized;
        } else {
            let node = object["spec"]["nodeName"].as_str();
            if node != record.pod.node_name.as_deref() {
                let what = "an update cannot change spec.nodeName";
                return Err(Refused::Other(format!("{name}: {what}")));
            }
            object["metadata"]["uid"] = record.pod.uid.to_string().into();
        }
        let mut reader = Reader::new();
        read(&mut reader, &object)?;
        let Some(pod) = reader.finish().pods.pop() else {
            return Err(Refused::Other(format!("{name}: the pod has ended")));
        };
        let (node_name, deletion_time) = (record.pod.node_name.clone(), record.pod.deletion_time);
        let pod = Pod { node_name, deletion_time, ..pod };
        *record = Record::of(&object, object.to_string(), pod);
        self.board.put(&key.0, &key.1, labels_of(&object).into(), Stage::Pending);
        let submitted = engine.submit(record.event());
        drop(pods);
        done(name, submitted)
    }

    /// Deletes an object. A pod remains while finalizers or its grace period hold it: nothing here ends its containers.
    pub(super) fn delete(
        &self,
        engine: &Engine,
        kind: &str,
        (namespace, name): (&str, &str),
        grace: Option<u64>,
    ) -> Result<(), Refused> {
        let shown = shown(kind, namespace, name);
        let key = (namespace.to_owned(), name.to_owned());
        if kind != "Pod" {
            let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
            let event = match others.remove(&(kind.to_owned(), key)) {
                None => return Err(Refused::NotFound(shown)),
                Some(Stored::No) => return Ok(()),
                Some(Stored::Node) => Event::remove_node(name),
                Some(Stored::Object(kind)) => Event::delete_object(kind, namespace, name),
            };
            let submitted = engine.submit(event);
            drop(others);
            return done(shown, submitted);
        }
        let mut pods = self.pods();
        let Some(record) = pods.get_mut(&key) else { return Err(Refused::NotFound(shown)) };
        let is_bound = record.pod.node_name.is_some();
        let grace = if is_bound { grace.unwrap_or(record.grace) } else { 0 };
        let event = if record.is_held || grace > 0 {
            if record.pod.deletion_time.is_some() {
                return Ok(());
            }
            let pod = Pod { deletion_time: Some(Timestamp(1)), ..Pod::clone(&record.pod) };
            record.pod = Arc::new(pod);
            record.event()
        } else {
            self.board.remove(namespace, name);
            let event = match is_bound {
                true => Event::remove_pod(&record.pod),
                false => Event::remove_pending(&record.pod.uid),
            };
            pods.remove(&key);
            event
        };
        let submitted = engine.submit(event);
        drop(pods);
        done(shown, submitted)
    }

    /// Binds a pod that exists and is not being deleted.
    fn bind(&self, engine: &Engine, pod: &Pod, node: &Name) -> Result<(), BinderError> {
        let key = (pod.namespace().to_string(), pod.name.to_string());
        let mut pods = self.pods();
        let record = pods.get_mut(&key).filter(|record| {
            let known = &record.pod;
            known.uid == pod.uid && known.deletion_time.is_none() && known.node_name.is_none()
        });
        let gone = || BinderError::Conflict(format!("pods {:?} cannot be bound", pod.name));
        let record = record.ok_or_else(gone)?;
        let bound = Arc::new(Pod::clone(&record.pod).on(node.clone()));
        let submitted = engine.submit(Event::add_pod(bound.clone()));
        let name = shown("Pod", &key.0, &key.1);
        done(name, submitted).map_err(|refused| BinderError::from(refused.to_string()))?;
        record.pod = bound;
        drop(pods);
        self.board.advance(&key.0, &key.1, Stage::Scheduled);
        Ok(())
    }
}

/// Replaces the resources of containers by those of `given`.
fn resize(pod: &mut Value, given: &Value) {
    for list in ["containers", "initContainers"] {
        let given = given["spec"][list].as_array().map(Vec::as_slice).unwrap_or_default();
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            let same = given.iter().find(|given| given["name"] == container["name"]);
            if let Some(same) = same {
                container["resources"] = same["resources"].clone();
            }
        }
    }
}

fn read(reader: &mut Reader, object: &Value) -> Result<(), Refused> {
    reader.read_json(object.to_string().as_bytes()).map_err(|error| {
        let kind = object["kind"].as_str().unwrap_or_default();
        let (namespace, name) = (metadata(object, "namespace"), metadata(object, "name"));
        Refused::Other(format!("{}: {error}", shown(kind, namespace, name)))
    })
}

/// Writes the decisions of scheduling threads. Does not keep the engine alive.
pub(super) struct Writer {
    pub(super) cluster: Arc<Cluster>,
    pub(super) engine: WeakEngine,
}

impl Binder for Writer {
    fn bind(&self, pod: &Pod, node: &Name) -> Result<(), BinderError> {
        let engine = self.engine.upgrade().ok_or("the engine is gone")?;
        self.cluster.bind(&engine, pod, node)
    }
}

impl Evictor for Writer {
    fn evict(&self, eviction: Eviction) {
        let Some(engine) = self.engine.upgrade() else { return };
        let evicted = eviction.run(|victim| {
            let place = (&**victim.namespace(), &*victim.name);
            let deleted = self.cluster.delete(&engine, "Pod", place, None);
            deleted.map_err(|refused| refused.to_string())
        });
        // The preemptor is retried whether or not the eviction succeeded.
        drop(evicted);
    }
}
