//! A store of objects by namespace and name, used for the kinds of Kubernetes and for custom kinds.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::model::{EventError, Generation, hash_of};

use super::cluster::Cluster;
use super::custom::{PlacedPod, Store};
use super::hash_index::HashIndex;
use super::table::Table;

/// An object that is stored by namespace and name.
pub trait Keyed: Send + Sync + 'static {
    /// The kind of the object, as it appears in errors and dumps.
    const KIND: &'static str;

    /// Returns the namespace of the object, which is empty (the default) if the object is cluster-scoped.
    fn namespace(&self) -> &str {
        ""
    }

    /// Returns the name of the object, which must not be empty.
    fn name(&self) -> &str;
}

/// An event of an [`ObjectStore`].
#[derive(Debug)]
#[non_exhaustive]
pub enum ObjectEvent<T> {
    /// Adds an object, or replaces the object with the same namespace and name.
    Put(Arc<T>),
    /// Removes an object. Rejected if the object is unknown.
    Delete {
        /// The namespace of the object; empty if the object is cluster-scoped.
        namespace: String,
        /// The name of the object.
        name: String,
    },
    /// Replaces all objects with a list (a relist), and removes the objects that are not in it. Rejected as a whole if
    /// the list contains two objects with the same namespace and name.
    Replace(Vec<Arc<T>>),
}

impl<T> ObjectEvent<T> {
    /// Creates an event that adds or replaces an object.
    pub fn put(object: impl Into<Arc<T>>) -> ObjectEvent<T> {
        ObjectEvent::Put(object.into())
    }

    /// Creates an event that removes an object.
    pub fn delete(namespace: impl Into<String>, name: impl Into<String>) -> ObjectEvent<T> {
        ObjectEvent::Delete { namespace: namespace.into(), name: name.into() }
    }

    /// Creates an event that replaces all objects.
    pub fn replace<O: Into<Arc<T>>>(objects: impl IntoIterator<Item = O>) -> ObjectEvent<T> {
        ObjectEvent::Replace(objects.into_iter().map(Into::into).collect())
    }
}

impl<T> Clone for ObjectEvent<T> {
    fn clone(&self) -> Self {
        match self {
            ObjectEvent::Put(object) => ObjectEvent::Put(object.clone()),
            ObjectEvent::Delete { namespace, name } => {
                ObjectEvent::Delete { namespace: namespace.clone(), name: name.clone() }
            }
            ObjectEvent::Replace(objects) => ObjectEvent::Replace(objects.clone()),
        }
    }
}

/// The objects of one kind, by namespace and name.
///
/// The store is a persistent tree: a clone costs O(1), a change costs O(log n) even if versions share the store, and
/// large stores are freed in bounded steps. It implements [`Store`] for custom kinds that consist only of objects:
///
/// ```
/// use portolan::cache::{Config, Engine, Keyed, ObjectEvent, ObjectStore};
/// use portolan::model::{EventError, Name};
///
/// struct Rack {
///     name: Name,
///     watts: u32,
/// }
///
/// impl Keyed for Rack {
///     const KIND: &'static str = "Rack";
///
///     fn name(&self) -> &str {
///         &self.name
///     }
/// }
///
/// type Racks = ObjectStore<Rack>;
///
/// let config = Config::default().with_store(Racks::default());
/// let (mut writer, reader) = Engine::inline(config);
/// writer.change::<Racks>(ObjectEvent::put(Rack { name: "r1".into(), watts: 9_000 }))?;
/// writer.publish();
/// let snapshot = reader.snapshot();
/// assert_eq!(snapshot.store::<Racks>()?.get("", "r1").map(|rack| rack.watts), Some(9_000));
///
/// let refused = writer.change::<Racks>(ObjectEvent::delete("", "r2"));
/// assert_eq!(refused.unwrap_err().to_string(), "Rack: r2 is not found");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ObjectStore<T: Send + Sync + 'static> {
    objects: Table<Arc<T>>,
    index: HashIndex,
    next: u32,
    len: usize,
    generation: Generation,
}

impl<T: Send + Sync + 'static> Clone for ObjectStore<T> {
    fn clone(&self) -> Self {
        ObjectStore { objects: self.objects.clone(), index: self.index.clone(), ..*self }
    }
}

impl<T: Send + Sync + 'static> Default for ObjectStore<T> {
    fn default() -> Self {
        ObjectStore {
            objects: Table::default(),
            index: HashIndex::default(),
            next: 0,
            len: 0,
            generation: Generation::ZERO,
        }
    }
}

impl<T: Keyed> ObjectStore<T> {
    /// Returns the object with this namespace and name, or `None` if it is unknown. The namespace of a cluster-scoped
    /// object is empty. O(log n).
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<T>> {
        self.objects.get(self.number(namespace, name)?)
    }

    /// Returns all objects, in arbitrary order. O(objects) for the whole iteration.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        self.objects.iter().map(|(_, object)| object)
    }

    /// Returns the number of objects. O(1).
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if the store contains no objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the generation of the last event that changed the store.
    #[must_use]
    pub(crate) fn generation(&self) -> Generation {
        self.generation
    }

    /// Returns the object with this number, which identifies the object until it is removed.
    pub(crate) fn at(&self, number: u32) -> Option<&Arc<T>> {
        self.objects.get(number)
    }

    pub(crate) fn number(&self, namespace: &str, name: &str) -> Option<u32> {
        self.index.find(hash_of(&(namespace, name)), |number| {
            self.objects
                .get(number)
                .is_some_and(|object| object.namespace() == namespace && object.name() == name)
        })
    }

    /// Returns a store with the same objects and a rebuilt index. O(n log n).
    pub(super) fn renewed(&self, generation: Generation) -> ObjectStore<T> {
        let mut renewed = ObjectStore { generation, ..ObjectStore::default() };
        for object in self.iter() {
            renewed.put(object.clone(), generation);
        }
        renewed
    }

    /// Empties the index, for tests.
    #[cfg(test)]
    pub(crate) fn damage_index(&mut self) {
        self.index = HashIndex::default();
    }

    pub(super) fn check_room(&self) -> Result<(), EventError> {
        if self.next == u32::MAX { Err(EventError::Full) } else { Ok(()) }
    }

    /// Adds or replaces an object. Returns its number and the object that it replaces.
    pub(super) fn put(&mut self, object: Arc<T>, generation: Generation) -> (u32, Option<Arc<T>>) {
        self.generation = generation;
        if let Some(number) = self.number(object.namespace(), object.name()) {
            let old = self.objects.get(number).cloned();
            self.objects.set(number, object);
            return (number, old);
        }
        let number = self.next;
        self.next += 1;
        self.len += 1;
        self.index.insert(hash_of(&(object.namespace(), object.name())), number);
        self.objects.set(number, object);
        (number, None)
    }

    /// Removes the object with this kind, namespace and name. Returns its number and the object.
    pub(super) fn remove(
        &mut self,
        key: (&'static str, &str, &str),
        generation: Generation,
    ) -> Result<(u32, Arc<T>), EventError> {
        let known = self.number(key.1, key.2);
        let known = known.and_then(|number| Some((number, self.objects.get(number)?.clone())));
        let (number, object) = known.ok_or_else(|| not_found(key))?;
        self.generation = generation;
        self.index.remove(hash_of(&(key.1, key.2)), number);
        self.objects.remove(number);
        self.len -= 1;
        Ok((number, object))
    }
}

/// The store rejects objects without a name, removals of unknown objects, and lists with duplicate names. It tracks no
/// pods.
impl<T: Keyed> Store for ObjectStore<T> {
    type Event = ObjectEvent<T>;

    const NAME: &'static str = T::KIND;

    fn check(&self, event: &ObjectEvent<T>, _: &Cluster) -> Result<(), String> {
        let has_name = |object: &T| match object.name().is_empty() {
            true => Err("an object has no name".to_owned()),
            false => Ok(()),
        };
        match event {
            ObjectEvent::Put(object) => has_name(object)?,
            ObjectEvent::Delete { namespace, name } => match self.number(namespace, name) {
                Some(_) => return Ok(()),
                None => return Err(format!("{} is not found", key(namespace, name))),
            },
            ObjectEvent::Replace(objects) => {
                let mut names = BTreeSet::new();
                for object in objects {
                    has_name(object)?;
                    let (namespace, name) = (object.namespace(), object.name());
                    if !names.insert((namespace, name)) {
                        return Err(format!("{} is listed twice", key(namespace, name)));
                    }
                }
            }
        }
        let coming = match event {
            ObjectEvent::Replace(objects) => objects.len(),
            _ => 1,
        };
        let left = usize::try_from(u32::MAX - self.next).unwrap_or(usize::MAX);
        if coming <= left { Ok(()) } else { Err(EventError::Full.to_string()) }
    }

    fn apply(&mut self, event: &ObjectEvent<T>, generation: Generation) {
        self.generation = generation;
        match event {
            ObjectEvent::Put(object) => drop(self.put(object.clone(), generation)),
            // `check` has verified that the object exists.
            ObjectEvent::Delete { namespace, name } => {
                drop(self.remove((T::KIND, namespace, name), generation));
            }
            ObjectEvent::Replace(objects) => {
                let listed: BTreeSet<_> =
                    objects.iter().map(|object| (object.namespace(), object.name())).collect();
                let is_gone = |o: &&Arc<T>| !listed.contains(&(o.namespace(), o.name()));
                let gone: Vec<Arc<T>> = self.iter().filter(is_gone).cloned().collect();
                for object in gone {
                    let key = (T::KIND, object.namespace(), object.name());
                    drop(self.remove(key, generation));
                }
                for object in objects {
                    self.put(object.clone(), generation);
                }
            }
        }
    }

    fn tracks(&self, _: &PlacedPod<'_>) -> bool {
        false
    }
}

/// Formats the key of an object for messages.
fn key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

/// Returns the error for an unknown object with this kind, namespace and name.
pub(super) fn not_found((kind, namespace, name): (&'static str, &str, &str)) -> EventError {
    EventError::ObjectNotFound { kind: kind.into(), key: format!("{namespace}/{name}") }
}
