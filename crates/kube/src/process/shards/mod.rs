//! Several replicas that schedule at once, each for the shards of nodes and pods that it holds.
//!
//! Each shard has a Lease of its own, and nothing else coordinates the replicas:
//!
//! - A replica schedules the pods of its shards, and binds to the nodes of its shards alone, so no two replicas count on
//!   the same room. It tries these nodes first.
//! - If a pod fits on a node of another replica only, it is handed over: the replica nominates the pod to that node, and
//!   from then on the pod belongs to the node's shard.
//! - A pod that two replicas bind at once, because one has not seen the hand-over yet, is bound by one: the API server
//!   refuses the other with 409.
//! - Replicas that hold too few shards ask those with more, and shards of dead replicas are taken over.
//!
//! | file | contents |
//! |---|---|
//! | `plan` | which Leases to take, to ask for and to give up |
//! | `holder` | carries that out, and keeps the Leases |
//! | `slot` | a shard's Lease, and what this replica does with the shard |
//! | `hand_over` | gives pods to the replicas of their nodes |
//!
//! Which shard a node and a pod belong to is defined by [`ShardSet`](portolan::framework::ShardSet), since the scheduling
//! cycle and the queue need it, and bindings pass the [`ShardGate`](crate::write::ShardGate).

mod hand_over;
mod holder;
mod plan;
mod slot;

pub(super) use hand_over::HandOver;
pub use holder::ShardHolder;
