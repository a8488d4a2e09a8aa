//! The type-erased stores of one version.

use std::any::{Any, TypeId};
use std::borrow::Cow;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::model::{CustomEvent, EventError, Generation, Template};
use crate::sync::panic_message;

use super::super::cluster::Cluster;
use super::{PlacedPod, Store};

/// A set of custom stores, at most one of each type: see [`Store`]. A clone costs one reference count per store.
#[derive(Clone, Default)]
pub struct CustomStores(Vec<Entry>);

/// A store with the generation of its last change, and its failure if it has failed.
#[derive(Clone)]
struct Entry {
    id: TypeId,
    store: Arc<dyn AnyStore>,
    generation: Generation,
    failure: Option<Arc<StoreFailure>>,
}

/// The panic that made a store fail, in one of its methods about pods.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("store {store:?} panicked in {step} at generation {}: {text}", .generation.0)]
#[non_exhaustive]
pub struct StoreFailure {
    /// The name of the store.
    pub store: &'static str,
    /// The name of the method that panicked.
    pub step: &'static str,
    /// The message of the panic; empty if its payload is not a string.
    pub text: String,
    /// The generation of the event that placed or removed the pod.
    pub generation: Generation,
}

/// The reasons for which a version cannot return a store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store was not registered when the engine was created.
    #[error("store {store:?} is not registered: add it with Config::with_store")]
    Unknown {
        /// The name of the store.
        store: &'static str,
    },
    /// The store has panicked in a method about pods, so its contents may be wrong.
    #[error(transparent)]
    Failed(StoreFailure),
}

/// The object-safe form of [`Store`].
trait AnyStore: Any + Send + Sync {
    fn name(&self) -> &'static str;
    fn share(&self) -> Arc<dyn AnyStore>;
    fn check(&self, event: &dyn Any, cluster: &Cluster) -> Result<(), String>;
    fn apply(&mut self, event: &dyn Any, generation: Generation);
    fn tracks(&self, pod: &PlacedPod<'_>) -> bool;
    fn pod_placed(&mut self, pod: &PlacedPod<'_>, generation: Generation);
    fn pod_removed(&mut self, pod: &PlacedPod<'_>, generation: Generation);
    fn allocates_claims(&self) -> bool;
    fn supplies(&self, resource: &str) -> bool;
    fn concerns(&self, template: &Template, since: Generation) -> bool;
    fn without_pods(&self) -> Option<Arc<dyn AnyStore>>;
    fn dump(&self) -> String;
}

/// Wraps a store of a known type, because the methods of [`AnyStore`] have the same names as those of [`Store`].
struct Kept<S>(S);

impl<S: Store> AnyStore for Kept<S> {
    fn name(&self) -> &'static str {
        S::NAME
    }

    fn share(&self) -> Arc<dyn AnyStore> {
        Arc::new(Kept(self.0.clone()))
    }

    fn check(&self, event: &dyn Any, cluster: &Cluster) -> Result<(), String> {
        // The entry was looked up by the type of the event's store, so the cast cannot fail.
        event.downcast_ref().map_or(Ok(()), |event| self.0.check(event, cluster))
    }

    fn apply(&mut self, event: &dyn Any, generation: Generation) {
        if let Some(event) = event.downcast_ref() {
            self.0.apply(event, generation);
        }
    }

    fn tracks(&self, pod: &PlacedPod<'_>) -> bool {
        self.0.tracks(pod)
    }

    fn pod_placed(&mut self, pod: &PlacedPod<'_>, generation: Generation) {
        self.0.pod_placed(pod, generation);
    }

    fn pod_removed(&mut self, pod: &PlacedPod<'_>, generation: Generation) {
        self.0.pod_removed(pod, generation);
    }

    fn allocates_claims(&self) -> bool {
        self.0.allocates_claims()
    }

    fn supplies(&self, resource: &str) -> bool {
        self.0.supplies(resource)
    }

    fn concerns(&self, template: &Template, since: Generation) -> bool {
        self.0.concerns(template, since)
    }

    fn without_pods(&self) -> Option<Arc<dyn AnyStore>> {
        self.0.without_pods().map(|store| Arc::new(Kept(store)) as Arc<dyn AnyStore>)
    }

    fn dump(&self) -> String {
        self.0.dump()
    }
}

/// Calls a store. Returns the message of the panic if the store panics.
fn guarded<R>(work: impl FnOnce() -> R) -> Result<R, String> {
    // Unwind safe: `work` changes either a clone, which is dropped, or a store that is then marked as failed.
    catch_unwind(AssertUnwindSafe(work)).map_err(panic_message)
}

/// Changes a store, which is cloned first if a version shares it.
fn change(store: &mut Arc<dyn AnyStore>, change: impl FnOnce(&mut dyn AnyStore)) {
    if Arc::get_mut(store).is_none() {
        *store = store.share();
    }
    if let Some(store) = Arc::get_mut(store) {
        change(store);
    }
}

impl Entry {
    /// Returns an error if the store has failed.
    fn check_failure(&self) -> Result<(), EventError> {
        match self.failure.as_deref() {
            None => Ok(()),
            Some(StoreFailure { store, step, text, .. }) => Err(EventError::StoreFailed {
                store: Cow::Borrowed(store),
                step: (*step).into(),
                text: text.as_str().into(),
            }),
        }
    }

    #[cold]
    fn fail(&mut self, step: &'static str, text: String, generation: Generation) {
        let store = self.store.name();
        self.generation = generation;
        self.failure = Some(Arc::new(StoreFailure { store, step, text, generation }));
    }
}

/// The change of a pod that a store is notified of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::snapshot) enum PodChange {
    Placed,
    Removed,
}

/// The new state of a store after an event that it accepted.
pub(in crate::snapshot) struct Changed {
    at: usize,
    store: Arc<dyn AnyStore>,
}

impl CustomStores {
    /// Adds a store, which replaces a store of the same type.
    #[must_use]
    pub(crate) fn with<S: Store>(mut self, store: S) -> CustomStores {
        let id = TypeId::of::<S>();
        self.0.retain(|entry| entry.id != id);
        let store = Arc::new(Kept(store));
        self.0.push(Entry { id, store, generation: Generation::ZERO, failure: None });
        self
    }

    /// Returns `true` if there are no stores.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of stores.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Finds a store by its type. O(stores).
    fn find(&self, id: TypeId) -> Option<(usize, &Entry)> {
        self.0.iter().enumerate().find(|(_, entry)| entry.id == id)
    }

    /// Checks an event, applies it to a clone of its store, and returns the clone.
    pub(in crate::snapshot) fn changed(
        &self,
        event: &CustomEvent,
        cluster: &Cluster,
        generation: Generation,
    ) -> Result<Changed, EventError> {
        let name = event.store_name();
        let found = self.find(event.store());
        let (at, entry) = found.ok_or(EventError::UnknownStore { store: name.into() })?;
        entry.check_failure()?;
        let panicked = |step: &'static str| {
            move |text: String| EventError::StorePanicked {
                store: name.into(),
                step: step.into(),
                text: text.into(),
            }
        };
        guarded(|| entry.store.check(event.any(), cluster))
            .map_err(panicked("check"))?
            .map_err(|reason| EventError::StoreRefused { store: name.into(), reason })?;
        let apply = || {
            let mut store = entry.store.share();
            change(&mut store, |store| store.apply(event.any(), generation));
            store
        };
        Ok(Changed { at, store: guarded(apply).map_err(panicked("apply"))? })
    }

    pub(in crate::snapshot) fn put(
        &mut self,
        Changed { at, store }: Changed,
        generation: Generation,
    ) {
        if let Some(entry) = self.0.get_mut(at) {
            entry.store = store;
            entry.generation = generation;
        }
    }

    /// Returns whether a store tracks the pod and has not failed, or the message of its panic.
    pub(in crate::snapshot) fn tracks(
        &self,
        at: usize,
        pod: &PlacedPod<'_>,
    ) -> Result<bool, String> {
        match self.0.get(at).filter(|entry| entry.failure.is_none()) {
            Some(entry) => guarded(|| entry.store.tracks(pod)),
            None => Ok(false),
        }
    }

    /// Returns whether a store tracks the pod, or panics when asked. O(stores).
    pub(in crate::snapshot) fn track(&self, pod: &PlacedPod<'_>) -> bool {
        (0..self.len()).any(|at| self.tracks(at, pod) != Ok(false))
    }

    /// Notifies a store that tracks the pod. If the store panics, it is marked as failed.
    pub(in crate::snapshot) fn notify(
        &mut self,
        at: usize,
        pod: &PlacedPod<'_>,
        what: PodChange,
        generation: Generation,
    ) {
        let Some(entry) = self.0.get_mut(at) else { return };
        let done = guarded(|| {
            change(&mut entry.store, |store| match what {
                PodChange::Placed => store.pod_placed(pod, generation),
                PodChange::Removed => store.pod_removed(pod, generation),
            });
        });
        entry.generation = generation;
        if let Err(text) = done {
            let step = if what == PodChange::Placed { "pod_placed" } else { "pod_removed" };
            entry.fail(step, text, generation);
        }
    }

    pub(in crate::snapshot) fn fail(
        &mut self,
        at: usize,
        step: &'static str,
        text: String,
        generation: Generation,
    ) {
        if let Some(entry) = self.0.get_mut(at) {
            entry.fail(step, text, generation);
        }
    }

    /// Returns the stores that can be rebuilt, without any pods, and then the other stores, unchanged.
    pub(in crate::snapshot) fn renewed(
        &self,
        generation: Generation,
    ) -> (CustomStores, CustomStores) {
        let (mut empty, mut kept) = (CustomStores::default(), CustomStores::default());
        for entry in &self.0 {
            match guarded(|| entry.store.without_pods()) {
                Ok(Some(store)) => {
                    empty.0.push(Entry { store, generation, failure: None, ..*entry });
                }
                Ok(None) => kept.0.push(Entry { generation, ..entry.clone() }),
                Err(text) => {
                    let mut entry = entry.clone();
                    entry.fail("without_pods", text, generation);
                    kept.0.push(entry);
                }
            }
        }
        (empty, kept)
    }

    /// Returns the union of both sets, in the order of `like`.
    pub(in crate::snapshot) fn merged(mut self, other: CustomStores, like: &CustomStores) -> Self {
        self.0.extend(other.0);
        self.0.sort_by_key(|entry| like.find(entry.id).map(|(at, _)| at));
        self
    }

    /// Returns the name and dump of each store, or the panic's message if the store has failed or its dump panics.
    fn dumps(&self) -> impl Iterator<Item = (&'static str, Result<String, String>)> {
        let dump = |entry: &Entry| match &entry.failure {
            Some(failure) => Err(failure.to_string()),
            None => {
                guarded(|| entry.store.dump()).map_err(|text| format!("panicked in dump: {text}"))
            }
        };
        self.0.iter().map(move |entry| (entry.store.name(), dump(entry)))
    }

    /// Returns the name and dump of each store. The dump of a store that has failed or panics is the panic's message.
    pub(in crate::snapshot) fn dump(&self) -> Vec<(&'static str, String)> {
        self.dumps().map(|(name, dump)| (name, dump.unwrap_or_else(|panic| panic))).collect()
    }
}

impl Cluster {
    /// Returns the custom store of type `S`. O(stores).
    ///
    /// # Errors
    ///
    /// Returns an error if the store was not registered with [`Config::with_store`](crate::cache::Config::with_store),
    /// or if it has failed, because it panicked in a method about pods.
    pub fn store<S: Store>(&self) -> Result<&S, StoreError> {
        let unknown = || StoreError::Unknown { store: S::NAME };
        let found = self.custom.as_ref().and_then(|stores| stores.find(TypeId::of::<S>()));
        let (_, entry) = found.ok_or_else(unknown)?;
        if let Some(failure) = &entry.failure {
            return Err(StoreError::Failed(StoreFailure::clone(failure)));
        }
        let store: &dyn Any = &*entry.store;
        store.downcast_ref::<Kept<S>>().map(|kept| &kept.0).ok_or_else(unknown)
    }

    /// Returns the generation of the last event that changed a store, by its own event or by a pod, or `None` if the
    /// store is not registered. A plugin can cache values that it derives from the store until the generation changes.
    /// Generations are comparable within one [`Cluster::branch`] only. O(stores).
    #[doc(hidden)]
    #[must_use]
    pub fn store_generation<S: Store>(&self) -> Option<Generation> {
        let (_, entry) = self.custom.as_ref()?.find(TypeId::of::<S>())?;
        Some(entry.generation)
    }

    /// Returns whether a custom store allocates resource claims ([`Store::allocates_claims`]). A panic counts as
    /// `false`. O(stores).
    pub(crate) fn allocates_claims(&self) -> bool {
        let mut stores = self.custom.iter().flat_map(|stores| &stores.0);
        stores.any(|entry| guarded(|| entry.store.allocates_claims()).unwrap_or(false))
    }

    /// Returns whether a custom store supplies an extended resource ([`Store::supplies`]). A panic counts as `false`.
    /// O(stores).
    pub(crate) fn supplies(&self, resource: &str) -> bool {
        let mut stores = self.custom.iter().flat_map(|stores| &stores.0);
        stores.any(|entry| guarded(|| entry.store.supplies(resource)).unwrap_or(false))
    }

    /// Returns whether a verdict on a pod of this template since this generation may depend on a custom store
    /// ([`Store::concerns`]). A panic counts as `true`. O(stores).
    pub(crate) fn concerns_stores(&self, template: &Template, since: Generation) -> bool {
        let mut stores = self.custom.iter().flat_map(|stores| &stores.0);
        stores.any(|entry| guarded(|| entry.store.concerns(template, since)).unwrap_or(true))
    }

    /// Returns the failures of the custom stores that have panicked in a method about pods.
    pub fn failed_stores(&self) -> impl Iterator<Item = &StoreFailure> {
        let stores = self.custom.iter().flat_map(|stores| &stores.0);
        stores.filter_map(|entry| entry.failure.as_deref())
    }

    /// Returns the name and dump of each custom store, in the order of [`Dump::stores`](super::super::Dump::stores), or
    /// the panic's message if the store has failed or its dump panics.
    pub(crate) fn store_dumps(
        &self,
    ) -> impl Iterator<Item = (&'static str, Result<String, String>)> {
        self.custom.iter().flat_map(|stores| stores.dumps())
    }
}

impl fmt::Debug for CustomStores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|entry| entry.store.name())).finish()
    }
}
