//! The cache alone: one writer applies events, and readers take, hold and fork versions.
//!
//! | item | purpose |
//! |---|---|
//! | [`Engine`], [`Config`] | creates a cluster's log and its writer |
//! | [`Event`], [`Ticket`], [`Relist`] | a change, its outcome, and a complete listing after a gap |
//! | [`Writer`] | applies events and publishes versions on the caller's own thread |
//! | [`Reader`], [`Snapshot`], [`Pinned`] | takes a version, wait-free, and holds it |
//! | [`Cluster`], [`NodeInfo`], [`PodInfo`] | what a version or a fork contains |
//! | [`Fork`] | a private version that can be changed |
//! | [`Follower`] | the stream of effects for queues, caches and exporters |
//! | [`Store`] | a user's own objects beside the nodes and pods, in every version |
//! | [`CommitCheck`] | whether a placement still holds when it is assumed |

pub use portolan_publish::Pinned;

pub use crate::engine::{Config, Engine, Figures, ReadError, Reader, Rebuilt, WeakEngine, Writer};
pub use crate::log::{
    Applied, Event, Follower, ObjectKey, Outcome, Prepared, Relist, Ticket, TrySubmitError,
    TryWaitError, Unavailable,
};
#[doc(hidden)]
pub use crate::snapshot::cost;
pub use crate::snapshot::{
    AccountDump, ChangeKind, ChangedSince, Chunk, Cluster, Column, CustomStores, DeletionMark,
    DeletionMarks, Dump, Fork, Freed, FutureGeneration, GodelConfig, Keyed, LANES, Movements,
    NodeChange, NodeDump, NodeInfo, NodeLoad, NodeSlot, ObjectEvent, ObjectStore, Objects,
    PartCount, PlacedPod, PodInfo, PreemptionMark, PreemptionMarks, Recheck, Reservations,
    ReservedPlace, Snapshot, Store, StoreError, StoreFailure, SuggestedMovement, Suggestion,
    Victims, ZoneInfo,
};
pub use crate::state::{CommitCheck, CommitPolicy, Difference};
