//! Custom stores, which users add to the engine: licences, racks, power budgets, quotas.
//!
//! If a plugin keeps such state in its own fields, it does not learn that a pod was deleted, and forks do not see the
//! state. A [`Store`] is part of every version instead, and it changes with the log. Readers, gangs, what-if questions,
//! dry runs of preemption and commit checks therefore see consistent state.
//!
//! | file | contents |
//! |---|---|
//! | `mod.rs` | [`Store`], and [`PlacedPod`], the pod that a store is notified of |
//! | `registry.rs` | [`CustomStores`], the type-erased stores of one version |
//!
//! The stores of a version are behind one pointer, which is null if no store is registered. An engine without custom
//! stores pays for one comparison of that pointer. With stores, placing or removing a pod asks each store whether it
//! tracks the pod, and a commit whether the pod [concerns](Store::concerns) it. A store that a pod changes is cloned
//! first if a version shares it, which happens at most once per publish. A store's own event is always applied to a clone.
//!
//! # Panics
//!
//! Stores are user code that runs in the writer, so every call is guarded:
//!
//! - If [`Store::check`] or [`Store::apply`] panics, the event is rejected. Nothing changes, because the event is
//!   applied to a clone of the store.
//! - If a method about pods panics, the pod must not be lost. The pod's event is applied, and the store has *failed*:
//!   from then on, [`Cluster::store`] returns [`StoreError::Failed`], events for the store are rejected, and
//!   [`Cluster::failed_stores`] and [`Cluster::audit`] report the panic.
//!   [`Writer::rebuild`](crate::cache::Writer::rebuild) restores a failed store that implements
//!   [`Store::without_pods`].
//! - If [`Store::without_pods`] panics during a rebuild, the store has failed, too, even if it had not before: its pods
//!   cannot be checked.
//! - If [`Store::dump`] panics, the store has not failed, but [`Cluster::audit`] reports the panic.
//!
//! The same rules apply to each fork separately. A panic in the destructor of a store or of its event is not caught:
//! in the writer it closes the engine. No panic is caught in a build with `panic = "abort"`.

mod registry;

use std::any::{Any, TypeId};
use std::sync::Arc;

use crate::model::{AnyEvent, CustomEvent, Generation, Name, Pod, Template, Uid};

use super::cluster::Cluster;

pub(super) use registry::PodChange;
pub use registry::{CustomStores, StoreError, StoreFailure};

/// Custom state that is part of every version of the cluster.
///
/// A store is registered with [`Config::with_store`](crate::cache::Config::with_store). It changes by its own events
/// ([`Event::custom`](crate::cache::Event::custom)) and when pods are placed or removed. [`Cluster::store`] reads it
/// from a snapshot, from a fork or from the writer's state. Readers see a change together with the version that
/// contains it, and followers receive the store's own events as [`Change::Custom`](crate::model::Change::Custom).
///
/// **Clones must be cheap**, O(1) or O(log n), because every version keeps the store as it was: the store is cloned for
/// each of its own events, and once per publish in which pods change it. Keep large state in persistent structures,
/// such as an [`ObjectStore`](super::ObjectStore), a map behind an `Arc` that rarely changes, or a map of the crate
/// `imbl`. A `BTreeMap` is sufficient for a few dozen entries.
///
/// **Methods must be deterministic.** The new state may depend only on the previous state, the event and the
/// generation, never on a clock, a random number or another thread. Otherwise replays and forks diverge from the
/// writer. The methods run in the writer and in forks, so they must not block.
///
/// **Methods should not panic.** A panic does not take down the engine, but it rejects the event or marks the store as
/// failed. [`Cluster::failed_stores`] lists the failed stores.
///
/// State that consists only of objects needs no implementation: use [`ObjectStore`](super::ObjectStore). State that
/// depends on placed pods, such as licences in use, needs one:
///
/// ```
/// use std::collections::BTreeMap;
/// use portolan::cache::{Cluster, Config, Engine, PlacedPod, Store};
/// use portolan::model::{Generation, node, pod};
///
/// /// The seats of each licence: their total number, and the number that placed pods use.
/// #[derive(Clone, Default)]
/// struct Seats(BTreeMap<String, (u32, u32)>);
///
/// struct SetSeats(&'static str, u32);
///
/// impl Store for Seats {
///     type Event = SetSeats;
///     const NAME: &'static str = "Seats";
///
///     fn check(&self, SetSeats(licence, seats): &SetSeats, _: &Cluster) -> Result<(), String> {
///         let used = self.0.get(*licence).map_or(0, |(_, used)| *used);
///         if *seats < used { Err(format!("seats of {licence} in use: {used}")) } else { Ok(()) }
///     }
///
///     fn apply(&mut self, SetSeats(licence, seats): &SetSeats, _: Generation) {
///         self.0.entry((*licence).to_owned()).or_default().0 = *seats;
///     }
///
///     fn tracks(&self, pod: &PlacedPod<'_>) -> bool {
///         pod.template.labels.get("licence").is_some()
///     }
///
///     fn pod_placed(&mut self, pod: &PlacedPod<'_>, _: Generation) {
///         if let Some(licence) = pod.template.labels.get("licence") {
///             self.0.entry(licence.to_owned()).or_default().1 += 1;
///         }
///     }
///
///     fn pod_removed(&mut self, pod: &PlacedPod<'_>, _: Generation) {
///         if let Some(licence) = pod.template.labels.get("licence") {
///             self.0.entry(licence.to_owned()).or_default().1 -= 1;
///         }
///     }
/// }
///
/// let (mut writer, reader) = Engine::inline(Config::default().with_store(Seats::default()));
/// writer.change::<Seats>(SetSeats("solver", 2))?;
/// writer.add_node(node("n1").cpu(4_000).build())?;
/// writer.assume_pod(pod("a").label("licence", "solver").on("n1").build())?;
/// writer.publish();
///
/// let snapshot = reader.snapshot();
/// let mut fork = snapshot.fork();
/// fork.remove_pod(&pod("a").build().uid)?;
/// assert_eq!(fork.store::<Seats>()?.0["solver"], (2, 0));
/// assert_eq!(snapshot.store::<Seats>()?.0["solver"], (2, 1));
/// let refused = writer.change::<Seats>(SetSeats("solver", 0)).unwrap_err();
/// assert_eq!(refused.to_string(), "Seats: seats of solver in use: 1");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Store: Clone + Send + Sync + 'static {
    /// The type of the store's own events. Use `()` if only pods change the store. The destructor must not panic: the
    /// writer drops events, and a panic there closes the engine.
    type Event: Send + Sync + 'static;

    /// The store's name in errors and dumps, which should be unique among the stores of an engine.
    const NAME: &'static str;

    /// Checks whether an event can be applied. `cluster` is the state before the event, which includes this store.
    ///
    /// # Errors
    ///
    /// Returns the reason for which the event is rejected, as a message for users. The submitter receives it in
    /// [`EventError::StoreRefused`](crate::model::EventError::StoreRefused), and nothing changes.
    fn check(&self, event: &Self::Event, cluster: &Cluster) -> Result<(), String>;

    /// Applies an event that [`Store::check`] has accepted in the same state. `generation` is the first generation that
    /// contains the event.
    fn apply(&mut self, event: &Self::Event, generation: Generation);

    /// Returns `true` if the store is notified when this pod is placed or removed. The default is `true` for every pod.
    /// Return `false` for irrelevant pods, so that the store is cloned and its generation changes less often.
    ///
    /// The result must be the same when the pod is placed and when it is removed, so it should depend only on the pod.
    /// Called for every placed or removed pod, so it should be O(1).
    fn tracks(&self, pod: &PlacedPod<'_>) -> bool {
        let _ = pod;
        true
    }

    /// Called after a pod was placed on a node, whether assumed or bound, by the writer or in a fork. Does nothing by
    /// default.
    ///
    /// A pod that is assumed and later confirmed on the same node is placed only once. If a pod's template or node
    /// changes, the pod is removed and placed again. When a node is removed, its pods remain on a ghost, so no method
    /// is called for them.
    fn pod_placed(&mut self, pod: &PlacedPod<'_>, generation: Generation) {
        let _ = (pod, generation);
    }

    /// Called after a placed pod was removed: deleted, forgotten, expired, preempted, or missing from a relist. Does
    /// nothing by default.
    fn pod_removed(&mut self, pod: &PlacedPod<'_>, generation: Generation) {
        let _ = (pod, generation);
    }

    /// Returns `true` if a plugin allocates the pods' resource claims (DRA) from this store. The engine then places pods
    /// with claims, which it otherwise refuses. `false` by default. The result must not change.
    fn allocates_claims(&self) -> bool {
        false
    }

    /// Returns `true` if the store's plugin supplies this extended resource on nodes that do not offer it.
    /// NodeResourcesFit then leaves the resource to the plugin on these nodes. `false` by default.
    ///
    /// Called for each scalar resource that a pod requests, in each cycle, so it should be O(1).
    fn supplies(&self, resource: &str) -> bool {
        let _ = resource;
        false
    }

    /// Returns `true` if the store may begin to supply this extended resource with this event. NodeResourcesFit then
    /// requeues the pods that request the resource. `false` by default. O(1): called for each waiting pod.
    fn may_supply(event: &Self::Event, resource: &str) -> bool {
        let _ = (event, resource);
        false
    }

    /// Returns `true` if a verdict on a pod of this template, formed at generation `since` or later, may depend on the
    /// store. `true` by default. For pods that concern no store, the engine reuses the chunks of batches and checks
    /// node-local filters once, as it does without stores.
    ///
    /// Called for every committed pod, so it should be O(1).
    fn concerns(&self, template: &Template, since: Generation) -> bool {
        let _ = (template, since);
        true
    }

    /// Returns the store as it would be if no pod had ever been placed, or `None` (the default) if that is unknown.
    ///
    /// [`Cluster::audit`] and [`Writer::rebuild`](crate::cache::Writer::rebuild) place all pods in the returned store,
    /// in arbitrary order. The audit compares the result with the store by [`Store::dump`], and the rebuild replaces
    /// the store with it. If this returns `None`, the audit does not check the store, and a rebuild keeps it unchanged.
    /// If this panics, the audit reports a difference, and a rebuild marks the store as failed.
    fn without_pods(&self) -> Option<Self> {
        None
    }

    /// Returns the contents of the store as text, for [`Dump::stores`](super::Dump::stores) and for the audit. Empty by
    /// default. If this panics, the panic's message is dumped instead, and the audit reports it.
    fn dump(&self) -> String {
        String::new()
    }
}

/// A pod that was placed on a node or removed from it, as passed to a [`Store`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PlacedPod<'a> {
    /// The uid of the pod.
    pub uid: &'a Uid,
    /// The name of the pod.
    pub name: &'a str,
    /// The part of the pod that it shares with identical pods: namespace, labels, requests and the rest of its spec.
    pub template: &'a Arc<Template>,
    /// The name of the node, which may be a ghost: a node that is known only by its pods. Nothing else is known of the
    /// node here. A store that needs the node's rack or power must learn it from its own events.
    pub node: &'a Name,
}

impl<'a> PlacedPod<'a> {
    /// Creates a placed pod from a pod that names its node, for tests of stores. Returns `None` if the pod names no
    /// node.
    #[must_use]
    pub(crate) fn of(pod: &'a Pod) -> Option<PlacedPod<'a>> {
        Some(PlacedPod::on(pod, pod.node_name.as_ref()?))
    }

    pub(super) fn on(pod: &'a Pod, node: &'a Name) -> PlacedPod<'a> {
        PlacedPod { uid: &pod.uid, name: &pod.name, template: &pod.template, node }
    }

    /// Returns the namespace of the pod.
    #[must_use]
    pub fn namespace(&self) -> &'a Name {
        &self.template.namespace
    }
}

/// An event that knows the type of its store.
struct Typed<S: Store>(S::Event);

impl<S: Store> AnyEvent for Typed<S> {
    fn store(&self) -> TypeId {
        TypeId::of::<S>()
    }

    fn store_name(&self) -> &'static str {
        S::NAME
    }

    fn event(&self) -> &dyn Any {
        &self.0
    }

    fn may_supply(&self, resource: &str) -> bool {
        S::may_supply(&self.0, resource)
    }
}

impl CustomEvent {
    /// Creates an event for the store of type `S`.
    #[must_use]
    pub fn new<S: Store>(event: S::Event) -> CustomEvent {
        CustomEvent::from_any(Arc::new(Typed::<S>(event)))
    }

    /// Returns the event if it is for the store of type `S`, and `None` otherwise.
    #[must_use]
    pub fn event<S: Store>(&self) -> Option<&S::Event> {
        // Two stores may use the same event type, so the type of the event is not sufficient.
        self.any().downcast_ref().filter(|_| self.store() == TypeId::of::<S>())
    }
}
