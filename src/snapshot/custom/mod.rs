//! Stores of a user's own: licences, racks, power budgets, quotas.
//!
//! A scheduler that keeps such state in a plugin keeps it beside the versions: the plugin does not learn that a pod was
//! deleted, and forks do not see what it knows. A [`Store`] is kept under the root of every version instead, and
//! changes with the log. So readers, gangs, what-if questions, dry runs of preemption and commit checks see the same
//! state.
//!
//! | file | contents |
//! |---|---|
//! | `mod.rs` | [`Store`], and the pods that it is notified of |
//! | `registry.rs` | [`CustomStores`]: the stores of one version, their types erased |
//!
//! The stores of a version are behind one pointer, which is null if none is registered: an engine without stores of its
//! own compares that pointer and does nothing more. With stores, placing or removing a pod asks each store whether it
//! tracks the pod, and a store that a pod changes is cloned first if a version shares it, once for each publish. An
//! event of its own is applied to a clone.
//!
//! # Panics
//!
//! Stores are users' code and run in the writer, so each call is guarded:
//!
//! - A panic in [`Store::check`] or [`Store::apply`] refuses the event, and nothing changes: an event is applied to a
//!   clone of the store.
//! - A panic in a method about pods must not lose the pod. The pod's event is applied, and the store has
//!   *failed*: [`Cluster::store`] returns [`StoreError::Failed`] from then on, later events for the store are refused,
//!   [`Cluster::failed_stores`] names the panic, and so does [`Cluster::audit`].
//!   [`Writer::rebuild`](crate::Writer::rebuild) makes a failed store anew if it has [`Store::without_pods`].
//!
//! A fork follows the same rules, for itself. Panics in `Drop` are not caught, nor is anything in a build with
//! `panic = "abort"`.

mod registry;

use std::any::{Any, TypeId};
use std::sync::Arc;

use crate::model::{AnyEvent, CustomEvent, Generation, Name, Pod, Template, Uid};

use super::cluster::Cluster;

pub(super) use registry::PodChange;
pub use registry::{CustomStores, StoreError, StoreFailure};

/// A part of the cluster's state that the engine does not know: registered with
/// [`Config::with_store`](crate::Config::with_store), changed by events of its own
/// ([`Event::custom`](crate::log::Event::custom)) and by pods that come and go, and read by [`Cluster::store`].
///
/// **A clone must be cheap**: O(1) or O(log n), since each version keeps the store as it was. Keep large state in
/// persistent structures: an [`ObjectStore`](super::ObjectStore), a map behind an `Arc` that seldom changes, or a map
/// of the crate `imbl`. A `BTreeMap` will do for some dozens of entries.
///
/// **A store is a fold**: what it becomes may depend on its state, the event and the generation alone, never on a
/// clock, a random number or another thread. Its methods run in the writer and in forks, so they must not block.
///
/// A kind that consists of objects alone needs no implementation: [`ObjectStore`](super::ObjectStore) is one. Licences
/// that pods use need one:
///
/// ```
/// use std::collections::BTreeMap;
/// use portolan::model::{Generation, node, pod};
/// use portolan::snapshot::{PlacedPod, Store};
/// use portolan::{Cluster, Config, Engine};
///
/// /// Seats of each licence: how many there are, and how many placed pods use.
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
///         if *seats < used { Err(format!("{used} seats of {licence} are in use")) } else { Ok(()) }
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
/// assert_eq!(refused.to_string(), "Seats: 1 seats of solver are in use");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Store: Clone + Send + Sync + 'static {
    /// What changes it, beside pods.
    type Event: Send + Sync + 'static;

    /// Its name in errors and dumps. Give each store another one.
    const NAME: &'static str;

    /// Whether the event can be applied. `cluster` is the state before the event, this store included.
    ///
    /// # Errors
    ///
    /// Why it cannot be applied, in the words of its users; nothing has changed then.
    fn check(&self, event: &Self::Event, cluster: &Cluster) -> Result<(), String>;

    /// Applies an event that [`Store::check`] accepted in this very state.
    fn apply(&mut self, event: &Self::Event, generation: Generation);

    /// Whether the store tracks this pod. All pods by default; a store is cloned less often, and changes its generation
    /// less often, if it returns `false` for pods that do not concern it.
    ///
    /// The answer must be the same when the pod comes and when it goes, so it should depend on the pod alone.
    fn tracks(&self, pod: &PlacedPod<'_>) -> bool {
        let _ = pod;
        true
    }

    /// A pod was placed, assumed or bound, by the writer or in a fork.
    ///
    /// An assumed pod that is confirmed on its node was placed before, and is not placed again. A pod whose object
    /// changes, in its template or its node, is removed and placed. A node that is removed keeps its pods, and they
    /// come to no other.
    fn pod_placed(&mut self, pod: &PlacedPod<'_>, generation: Generation) {
        let _ = (pod, generation);
    }

    /// A placed pod is gone: deleted, forgotten, expired, preempted, or missing in a relist.
    fn pod_removed(&mut self, pod: &PlacedPod<'_>, generation: Generation) {
        let _ = (pod, generation);
    }

    /// The store as it would be if no pod had ever been placed. If there is one, [`Cluster::audit`] and
    /// [`Writer::rebuild`](crate::Writer::rebuild) place all pods in it, in no particular order: the audit compares the
    /// texts of [`Store::dump`], and the rebuild continues with the result. Without it, a rebuild carries the store on
    /// as it is.
    fn without_pods(&self) -> Option<Self> {
        None
    }

    /// The store in words, for [`Dump::stores`](super::Dump::stores) and the audit; empty by default.
    fn dump(&self) -> String {
        String::new()
    }
}

/// A pod that is placed on a node or removed from it, as a [`Store`] sees it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PlacedPod<'a> {
    /// The pod.
    pub uid: &'a Uid,
    /// Its name.
    pub name: &'a str,
    /// Everything that it shares with others: namespace, labels, requests.
    pub template: &'a Arc<Template>,
    /// The node, which need not be known.
    pub node: &'a Name,
}

impl<'a> PlacedPod<'a> {
    /// A pod on the node that it names, for tests of stores; `None` if it names none.
    #[must_use]
    pub fn of(pod: &'a Pod) -> Option<PlacedPod<'a>> {
        Some(PlacedPod::on(pod, pod.node_name.as_ref()?))
    }

    pub(super) fn on(pod: &'a Pod, node: &'a Name) -> PlacedPod<'a> {
        PlacedPod { uid: &pod.uid, name: &pod.name, template: &pod.template, node }
    }

    /// Its namespace.
    #[must_use]
    pub fn namespace(&self) -> &'a Name {
        &self.template.namespace
    }
}

/// An event with the type of its store.
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
}

impl CustomEvent {
    /// An event for the store of this type.
    #[must_use]
    pub fn new<S: Store>(event: S::Event) -> CustomEvent {
        CustomEvent::from_any(Arc::new(Typed::<S>(event)))
    }

    /// The event, if it is one for the store of this type.
    #[must_use]
    pub fn event<S: Store>(&self) -> Option<&S::Event> {
        // Two stores may have one type of events.
        self.any().downcast_ref().filter(|_| self.store() == TypeId::of::<S>())
    }
}
