//! Several replicas that schedule at once, each for the shards of nodes and pods that it holds.
//!
//! Each shard has a Lease of its own, and nothing else coordinates the replicas:
//!
//! - A replica schedules the pods of its shards, and binds to the nodes of its shards alone, so no two replicas use the
//!   same free capacity. It tries the nominated node first, then these nodes, then the others, unless a PreFilter
//!   plugin restricts the search to named nodes. `percentageOfNodesToScore` applies to these nodes and to the others
//!   separately.
//! - If a pod fits on a node of another replica only, it is handed over: the replica nominates the pod to that node,
//!   and from then on the pod belongs to the node's shard.
//! - If two replicas bind a pod at once, because one has not seen the hand-over yet, the API server accepts one binding
//!   and refuses the other with 409.
//! - If a pod fits nowhere and cannot preempt, its nomination is cleared, and it returns to its first shard.
//! - The queue parks the pods of other shards, so a shard that is taken needs no list.
//! - Replicas that hold too few shards ask those with more, and shards of dead replicas are taken over.
//! - A Lease has the number of shards in an annotation. A replica that reads another number in the Lease of a live
//!   replica reports it, and neither takes shards nor asks for any.
//!
//! | file | contents |
//! |---|---|
//! | `plan` | decides which Leases to take, to ask for and to give up |
//! | `holder` | carries out the plan, and renews the Leases |
//! | `slot` | a shard's Lease, and the state of the shard in this replica |
//!
//! [`ShardSet`](portolan::plugin::ShardSet) defines the shard of each node and pod, since the scheduling cycle and
//! the queue need it. Bindings pass the [`ShardGate`](crate::write::ShardGate), and
//! [`HandOver`](crate::write::HandOver) hands pods over to the replicas of their nodes.

mod holder;
mod plan;
mod slot;

pub use holder::ShardHolder;
