//! The reasons for which an event is rejected.

use std::borrow::Cow;

use super::{Name, Uid};

/// The reason for which an event was rejected. A rejected event changes nothing, but it still occupies a position in
/// the log.
///
/// If kube-scheduler has a message for the case (backend/cache/cache.go), the text here is identical. Cases in which
/// kube-scheduler exits or panics are errors here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub enum EventError {
    /// The pod's uid is empty.
    #[error("cannot get cache key for pod with empty UID")]
    EmptyUid,
    /// The pod to assume is already in the cache.
    #[error("pod {uid} is in the cache, so can't be assumed")]
    AlreadyInCache {
        /// The uid of the pod.
        uid: Uid,
    },
    /// The pod has already been added.
    #[error("pod {uid} was already in added state")]
    AlreadyAdded {
        /// The uid of the pod.
        uid: Uid,
    },
    /// The pod to update is not in the cache.
    #[error("pod {uid} is not added to scheduler cache, so cannot be updated")]
    NotAdded {
        /// The uid of the pod.
        uid: Uid,
    },
    /// The object of the pod is older than the known one, or than that of a later pod with its name.
    #[error("pod {uid} is refused: its resource version {given} is older than the known {known}")]
    Stale {
        /// The uid of the pod.
        uid: Uid,
        /// The greatest known resource version.
        known: u64,
        /// The resource version in the event.
        given: u64,
    },
    /// The pod to update is only assumed.
    #[error("assumed pod {uid} should not be updated")]
    AssumedNotUpdated {
        /// The uid of the pod.
        uid: Uid,
    },
    /// The pod to remove is not in the cache.
    #[error("pod {uid} is not found in scheduler cache, so cannot be removed from it")]
    NotFound {
        /// The uid of the pod.
        uid: Uid,
    },
    /// The pod to forget is not assumed.
    #[error("pod {uid} wasn't assumed so cannot be forgotten")]
    NotAssumed {
        /// The uid of the pod.
        uid: Uid,
    },
    /// The event names a different node from the one the cache has for the pod.
    #[error("pod {uid} was assumed on {known} but assigned to {given}")]
    OtherNode {
        /// The uid of the pod.
        uid: Uid,
        /// The name of the node in the cache.
        known: Name,
        /// The name of the node in the event.
        given: Name,
    },
    /// A pod to be placed names no node.
    #[error("pod {uid} has no node name: set spec.nodeName to place it")]
    NoNodeName {
        /// The uid of the pod.
        uid: Uid,
    },
    /// A pod to be recorded as pending names a node.
    #[error("pod {uid} names node {node}, so it is not pending: add it instead")]
    HasNodeName {
        /// The uid of the pod.
        uid: Uid,
        /// The name of the node.
        node: Name,
    },
    /// The node does not exist, or is a ghost: a node that is known only by its pods.
    #[error("node {name} is not found")]
    NodeNotFound {
        /// The name of the node.
        name: Name,
    },
    /// The object does not exist.
    #[error("{kind} {key} is not found")]
    ObjectNotFound {
        /// The kind of the object.
        kind: Cow<'static, str>,
        /// The object's namespace and name.
        key: String,
    },
    /// A relist contains two objects with this key. The first one counts.
    #[error("{kind} {key} is listed twice: list it once")]
    ListedTwice {
        /// The kind of the object.
        kind: Cow<'static, str>,
        /// The key: the uid of a pod, and the namespace and name of other objects.
        key: String,
    },
    /// Adding the pod would make the sum of the requests on the node exceed 64 bits.
    #[error("pod {uid} is refused: the requests on node {node} would exceed 64 bits")]
    Overflow {
        /// The uid of the pod.
        uid: Uid,
        /// The name of the node.
        node: Name,
    },
    /// A resource amount is negative.
    #[error("{resource} of {object} is negative: set it to 0 or more, or leave it out")]
    Negative {
        /// The name of the resource.
        resource: Name,
        /// The pod, node or part of a node that has the amount.
        object: String,
    },
    /// A node or another object has no name.
    #[error("a {kind} has no name: set metadata.name")]
    EmptyName {
        /// The kind of the object.
        kind: Cow<'static, str>,
    },
    /// A name or a list exceeds the longest that the engine stores.
    #[error("{what} of {name} is too long: shorten it")]
    TooLong {
        /// The name or list that is too long.
        what: Cow<'static, str>,
        /// The object that it belongs to.
        name: String,
    },
    /// A pod to be placed by this scheduler has a resource claim (DRA). A pod that another scheduler has placed is
    /// added and counted on its node.
    #[error("pod {uid} has resource claims, which are not supported: remove spec.resourceClaims")]
    Unsupported {
        /// The uid of the pod.
        uid: Uid,
    },
    /// An assumed placement no longer fits the current state.
    #[error("pod {uid} no longer fits on {node}: {reason}")]
    Conflict {
        /// The uid of the pod.
        uid: Uid,
        /// The name of the node.
        node: Name,
        /// The resource or constraint that does not fit.
        reason: String,
    },
    /// One of several pods to be assumed atomically was refused, so none of them was assumed.
    #[error("none of the pods was assumed: {0}")]
    Together(Box<EventError>),
    /// The pod of a Reservation is not a placeholder.
    #[error("pod {uid} is not a placeholder: convert it with Pod::to_placeholder")]
    NoPlaceholder {
        /// The uid of the pod.
        uid: Uid,
    },
    /// The pod is a placeholder, which can be removed only together with its Reservation.
    #[error(
        "pod {uid} is the placeholder of a Reservation: delete the Reservation, or let it expire"
    )]
    HoldsPlace {
        /// The uid of the pod.
        uid: Uid,
    },
    /// The pod to be marked for deletion is not bound.
    #[error("pod {uid} is not bound, so it cannot be marked for deletion: add it first")]
    NotBound {
        /// The uid of the pod.
        uid: Uid,
    },
    /// Another preemptor has marked the pod for deletion.
    #[error("pod {victim} is marked for deletion by {preemptor}, and only that pod can unmark it")]
    MarkedByAnother {
        /// The uid of the marked pod.
        victim: Uid,
        /// The uid of the preemptor that set the mark.
        preemptor: Uid,
    },
    /// The event belongs to a store that the configuration disables.
    #[error("{store} are disabled: enable GodelConfig::{field}")]
    NotKept {
        /// The store.
        store: Cow<'static, str>,
        /// The field of the configuration that enables it.
        field: Cow<'static, str>,
    },
    /// The event is for a store that was not registered when the engine was created.
    #[error("store {store:?} is not registered: add it with Config::with_store")]
    UnknownStore {
        /// The name of the store.
        store: Cow<'static, str>,
    },
    /// The store's own check rejected the event.
    #[error("{store}: {reason}")]
    StoreRefused {
        /// The name of the store.
        store: Cow<'static, str>,
        /// The reason that the store returned.
        reason: String,
    },
    /// The store panicked while it checked or applied the event. The store is unchanged.
    #[error("store {store:?} panicked in {step}: {text}")]
    StorePanicked {
        /// The name of the store.
        store: Cow<'static, str>,
        /// The name of the method that panicked.
        step: Box<str>,
        /// The message of the panic; empty if its payload is not a string.
        text: Box<str>,
    },
    /// The event is for a store that has already failed: see
    /// [`Cluster::failed_stores`](crate::cache::Cluster::failed_stores).
    #[error("store {store:?} has failed: it panicked in {step}: {text}")]
    StoreFailed {
        /// The name of the store.
        store: Cow<'static, str>,
        /// The name of the method that panicked.
        step: Box<str>,
        /// The message of the panic.
        text: Box<str>,
    },
    /// All 32-bit identifiers for one kind of object are in use.
    #[error("the engine is full: all 32-bit identifiers are in use")]
    Full,
}
