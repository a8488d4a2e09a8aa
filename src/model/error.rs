//! Why an event was rejected.

use super::{Name, Uid};

/// Why an event was rejected. It left no trace but its number in the log.
///
/// Where kube-scheduler has a message for the case, this is its text
/// (backend/cache/cache.go); the cases in which it exits or panics are errors
/// here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EventError {
    /// A pod without uid.
    #[error("cannot get cache key for pod with empty UID")]
    EmptyUid,
    /// An assumed pod that is known already.
    #[error("pod {uid} is in the cache, so can't be assumed")]
    AlreadyInCache {
        /// The pod.
        uid: Uid,
    },
    /// A pod that was added before.
    #[error("pod {uid} was already in added state")]
    AlreadyAdded {
        /// The pod.
        uid: Uid,
    },
    /// An update of a pod that is not known.
    #[error("pod {uid} is not added to scheduler cache, so cannot be updated")]
    NotAdded {
        /// The pod.
        uid: Uid,
    },
    /// An update of an assumed pod.
    #[error("assumed pod {uid} should not be updated")]
    AssumedNotUpdated {
        /// The pod.
        uid: Uid,
    },
    /// The removal of a pod that is not known.
    #[error("pod {uid} is not found in scheduler cache, so cannot be removed from it")]
    NotFound {
        /// The pod.
        uid: Uid,
    },
    /// A pod to forget that is not assumed.
    #[error("pod {uid} wasn't assumed so cannot be forgotten")]
    NotAssumed {
        /// The pod.
        uid: Uid,
    },
    /// The pod is on another node than the event says.
    #[error("pod {uid} was assumed on {known} but assigned to {given}")]
    OtherNode {
        /// The pod.
        uid: Uid,
        /// The node that it is on.
        known: Name,
        /// The node that the event says.
        given: Name,
    },
    /// A pod to be placed that names no node.
    #[error("pod {uid} has no node name: set spec.nodeName to place it")]
    NoNodeName {
        /// The pod.
        uid: Uid,
    },
    /// A pod that is to be pending and names a node.
    #[error("pod {uid} is on node {node}: add it to place it")]
    HasNodeName {
        /// The pod.
        uid: Uid,
        /// The node.
        node: Name,
    },
    /// A node that is not known, or only as a ghost.
    #[error("node {name} is not found")]
    NodeNotFound {
        /// The node.
        name: Name,
    },
    /// An object that is not known.
    #[error("{kind} {key} is not found")]
    ObjectNotFound {
        /// Its kind.
        kind: &'static str,
        /// Namespace and name.
        key: String,
    },
    /// The requests on a node would exceed 64 bits.
    #[error("pod {uid} is refused: the requests on node {node} would exceed 64 bits")]
    Overflow {
        /// The pod.
        uid: Uid,
        /// The node.
        node: Name,
    },
    /// A negative amount of a resource.
    #[error("{resource} of {object} is negative: set it to 0 or more, or leave it out")]
    Negative {
        /// The resource.
        resource: Name,
        /// The pod, or the node or part of a node.
        object: String,
    },
    /// A node or another object without a name.
    #[error("a {kind} has no name: set metadata.name")]
    EmptyName {
        /// Its kind.
        kind: &'static str,
    },
    /// A name or a list that is longer than the engine holds.
    #[error("{what} of {name} is too long")]
    TooLong {
        /// What is too long.
        what: &'static str,
        /// Of which object.
        name: String,
    },
    /// A pod that is to be placed here and has a resource claim (DRA). One that another
    /// scheduler has placed is added, and counts on its node.
    #[error("pod {uid} has resource claims, which are not supported: remove spec.resourceClaims")]
    Unsupported {
        /// The pod.
        uid: Uid,
    },
    /// An assumed placement that no longer fits the state as it is.
    #[error("pod {uid} no longer fits on {node}: {reason}")]
    Conflict {
        /// The pod.
        uid: Uid,
        /// The node.
        node: Name,
        /// What does not fit.
        reason: String,
    },
    /// One of several pods to be assumed together was refused, so none was.
    #[error("none of the pods was assumed: {0}")]
    Together(Box<EventError>),
    /// A Reservation with a pod that is none to hold a place.
    #[error("pod {uid} is no placeholder: make one of it with Pod::to_placeholder")]
    NoPlaceholder {
        /// The pod.
        uid: Uid,
    },
    /// A pod that holds a place for others: it goes with its reservation.
    #[error("pod {uid} holds a reserved place: delete its Reservation, or let it expire")]
    HoldsPlace {
        /// The pod.
        uid: Uid,
    },
    /// A pod to be marked for deletion that is not known as bound.
    #[error("pod {uid} is not bound, so it cannot be marked for deletion: add it first")]
    NotBound {
        /// The pod.
        uid: Uid,
    },
    /// A mark that another preemptor has set.
    #[error("pod {victim} is marked for deletion by {preemptor}, which alone can unmark it")]
    MarkedByAnother {
        /// The pod that is marked.
        victim: Uid,
        /// The pod that it is marked for.
        preemptor: Uid,
    },
    /// An event for a store that the engine does not keep.
    #[error("{store} are not kept: set GodelConfig::{field}")]
    NotKept {
        /// The store.
        store: &'static str,
        /// The field of the configuration that enables it.
        field: &'static str,
    },
    /// An event for a store that was not registered when the engine was made.
    #[error("store {store:?} is not registered: add it with Config::with_store")]
    UnknownStore {
        /// The store's name.
        store: &'static str,
    },
    /// A store's own check refuses an event for it.
    #[error("{store}: {reason}")]
    StoreRefused {
        /// The store's name.
        store: &'static str,
        /// Why, in the store's words.
        reason: String,
    },
    /// A store panicked when it was to check or apply an event, which is refused.
    #[error("store {store:?} panicked in {step}: {text}")]
    StorePanicked {
        /// The store's name.
        store: &'static str,
        /// The method.
        step: &'static str,
        /// The panic's message; empty if its payload is not a string.
        text: String,
    },
    /// An event for a store that failed before, see [`Cluster::failed_stores`](crate::Cluster::failed_stores).
    #[error("store {store:?} has failed: it panicked in {step}: {text}")]
    StoreFailed {
        /// The store's name.
        store: &'static str,
        /// The method.
        step: &'static str,
        /// The panic's message.
        text: String,
    },
    /// All numbers of 32 bits for one kind of thing are in use.
    #[error("the engine is full: no number is left for another object")]
    Full,
}
