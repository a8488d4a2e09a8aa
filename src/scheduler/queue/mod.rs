//! The scheduling queue: decides which pod is tried next and when rejected pods are retried (kube-scheduler's
//! backend/queue, 1.36).
//!
//! A pod that fits on no node is not retried continuously. It waits until an event occurs that may make it schedulable.
//! The plugins that rejected it define these events ([`PluginInfo::events`](crate::plugin::PluginInfo::events),
//! [`Plugin::queueing_hint`](crate::plugin::Plugin::queueing_hint)), and a backoff that grows with the number of
//! failed attempts delays the retry.
//!
//! # The states of a pod
//!
//! ```text
//!   add ──▶ active ◀──────── backoff ◀────────┐
//!     │      │  ▲    backoff     ▲             │ an event helped meanwhile,
//!     ▼      │  │    is over     │             │ or the attempt was an error
//!   gated ───┘  │                │             │
//!   rejected by └── unschedulable┘◀── in flight ──▶ done
//!   PreEnqueue         an event helps,
//!                      or 5 minutes pass
//! ```
//!
//! When an event helps an unschedulable pod, the pod becomes active at once if its backoff is over or if a plugin
//! waited for that very event. Otherwise it backs off. If no pod is active, the first pod in backoff is popped early,
//! unless it is there because of an error.
//!
//! | kube-scheduler | this module |
//! |---|---|
//! | `PriorityQueue` | [`SchedulingQueue`], for one thread; [`QueueFront`] shares it |
//! | `activeQ`, `podBackoffQ`, `podErrorBackoffQ`, `unschedulablePods`, gated pods | [`Place`] |
//! | `Add`, `Update`, `Delete` | [`add`](SchedulingQueue::add), [`update`](SchedulingQueue::update), [`delete`](SchedulingQueue::delete) |
//! | `Pop`, `Done` | [`pop`](SchedulingQueue::pop), [`done`](SchedulingQueue::done); [`release`](SchedulingQueue::release) if `Done` is called before PreBind |
//! | `PopSpecificPod` for the pods of a group | `pop_together`; `return_group` if the group failed |
//! | `AddUnschedulableIfNotPresent` | [`add_unschedulable_if_not_present`](SchedulingQueue::add_unschedulable_if_not_present) |
//! | `Activate`, `AddNominatedPod` | [`activate`](SchedulingQueue::activate), [`nominate`](SchedulingQueue::nominate) |
//! | `MoveAllToActiveOrBackoffQueue` | [`move_all`](SchedulingQueue::move_all) at once; [`take`](SchedulingQueue::take) and [`step`](SchedulingQueue::step) incrementally |
//! | `flushBackoffQCompleted`, `flushUnschedulablePodsLeftover` | [`flush_backoff_completed`](SchedulingQueue::flush_backoff_completed), [`flush_unschedulable_leftover`](SchedulingQueue::flush_unschedulable_leftover); [`tick`](SchedulingQueue::tick) performs both when they are due |
//! | `pending_pods`, `queue_incoming_pods_total` | [`figures`](SchedulingQueue::figures), [`incoming`](SchedulingQueue::incoming) |
//! | `unschedulable_pods`, `inflight_events` | `rejections`, `events_in_flight` |
//!
//! The clock is an argument of every operation, and so is the version that queueing hints read. No operation waits or
//! looks anything up by itself.
//!
//! # Fed from the log
//!
//! Pods without a node go through the log like all other objects
//! ([`Event::PutPending`](crate::cache::Event::PutPending)), which orders them among the other events. A
//! [`Follower`](crate::cache::Follower) receives the effect of each event *after* the version that contains it is
//! published. Readers therefore see everything that the queue knows: a popped pod carries the
//! [`generation`](crate::plugin::QueuedPod::generation) of the event that queued it, and a reader that loads a
//! version after the pop sees that event without waiting. The writer never waits for a queue, and a pop never waits for
//! an event, because events are processed in steps of a few pods.
//!
//! # Deviations
//!
//! - Pods of equal rank are popped in the order in which they were queued. In kube-scheduler that order depends on the
//!   heap.
//! - A pod stays known while it is in flight. Adding it again is an update, so it cannot be in flight twice. If it is
//!   deleted while in flight, it is forgotten when it returns.
//! - A pod that leaves the node on which it was assumed is not woken by its own removal, whatever made it fail.
//! - A nominated pod that is bound to another node wakes the pods that may use the resources that it reserved. In
//!   kube-scheduler they wait for another event.
//! - A nomination that an attempt made outlives objects that are older than it, until an object names a node.
//! - The events that are kept for pods in flight are limited to 65,536, and in age to the time after which an
//!   unschedulable pod is retried. A pod that was in flight for longer backs off when it returns.
//! - An update of an unschedulable pod is checked like any other event. No state is kept across events:
//!   `moveRequestCycle` is not needed because hints are always on.
//! - Changes of node conditions and annotations are not events. The engine does not store them, and no plugin of
//!   kube-scheduler reads them.
//! - A pod group is ranked by the arrival of its first pod and keeps that rank when it returns, so later pods cannot
//!   overtake it repeatedly.
//! - All pods of a failed group back off for the same time, in the queue from which no pod is popped early. Otherwise
//!   the group would be retried continuously.
//! - A pod that arrives while other pods of its group are in flight is gated until they return.
//! - A group with a timeout is held once it has been tried for that long, counted from when the queue learned of it.
//!   Gödel counts from the group's creation, which may be much earlier.

mod backoff;
mod feed;
mod figures;
mod front;
mod groups;
mod heap;
mod in_flight;
mod moves;
#[cfg(feature = "metrics")]
mod observed;
mod operations;
mod pods;
mod scheduling_queue;
mod shards;

pub use backoff::QueueConfig;
pub use figures::{Cause, QueueFigures};
pub use front::{PopError, QueueFront};
pub(crate) use groups::Returned;
pub use groups::{PodGroupStatus, Popped};
pub use pods::Place;
pub use scheduling_queue::{QueueError, SchedulingQueue};
