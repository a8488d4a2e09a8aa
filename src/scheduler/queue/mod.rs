//! The scheduling queue: which pod is tried next, and when again the others
//! (kube-scheduler's backend/queue, 1.36).
//!
//! A pod that no node will do for is not tried again and again: it waits until
//! something happens that may help. The plugins that rejected it say what that is
//! ([`Plugin::events`](crate::framework::Plugin::events),
//! [`Plugin::queueing_hint`](crate::framework::Plugin::queueing_hint)), and how often
//! it was tried in vain says how long it is left alone even then.
//!
//! # The way of a pod
//!
//! ```text
//!   add ──▶ active ◀──────── backoff ◀────────┐
//!     │      │  ▲    time is     ▲             │ an event helped meanwhile,
//!     ▼      │  │      over      │             │ or it was an error
//!   gated ───┘  │                │             │
//!    a plugin   └── unschedulable┘◀── in flight ──▶ done
//!    says no          an event helps,
//!                     or 5 minutes pass
//! ```
//!
//! An unschedulable pod that an event helps is active at once if its backoff is over
//! already, or if a plugin waited for that very event; else it backs off. Where no pod
//! is active, the first one of backoff is popped before its time, if no error put it
//! there.
//!
//! | there | here |
//! |---|---|
//! | `PriorityQueue` | [`SchedulingQueue`], of one thread; [`QueueFront`] shares it |
//! | `activeQ`, `podBackoffQ`, `podErrorBackoffQ`, `unschedulablePods`, gated ones | [`Place`] |
//! | `Add`, `Update`, `Delete` | [`add`](SchedulingQueue::add), [`update`](SchedulingQueue::update), [`delete`](SchedulingQueue::delete) |
//! | `Pop`, `Done` | [`pop`](SchedulingQueue::pop), [`done`](SchedulingQueue::done); [`release`](SchedulingQueue::release) where its `Done` comes before PreBind |
//! | `PopSpecificPod` for the pods of a group | [`pop_together`](SchedulingQueue::pop_together); [`return_group`](SchedulingQueue::return_group) where the group failed |
//! | `AddUnschedulableIfNotPresent` | [the same](SchedulingQueue::add_unschedulable_if_not_present) |
//! | `Activate`, `AddNominatedPod` | [`activate`](SchedulingQueue::activate), [`nominate`](SchedulingQueue::nominate) |
//! | `MoveAllToActiveOrBackoffQueue` | [`move_all`](SchedulingQueue::move_all), all at once; [`take`](SchedulingQueue::take) and [`step`](SchedulingQueue::step), bit by bit |
//! | `flushBackoffQCompleted`, `flushUnschedulablePodsLeftover` | [the](SchedulingQueue::flush_backoff_completed) [same](SchedulingQueue::flush_unschedulable_leftover); [`tick`](SchedulingQueue::tick) does both when they are due |
//! | `pending_pods`, `queue_incoming_pods_total` | [`figures`](SchedulingQueue::figures), [`incoming`](SchedulingQueue::incoming) |
//! | `unschedulable_pods`, `inflight_events` | [`rejections`](SchedulingQueue::rejections), [`events_in_flight`](SchedulingQueue::events_in_flight) |
//!
//! The clock is an argument of every operation, and so is the version that hints look
//! at: nothing here waits or looks anything up.
//!
//! # Fed from the log
//!
//! Pods that are on no node go through the log like everything else
//! ([`Event::PutPending`](crate::log::Event::PutPending)), so a pod has a place among
//! the events before and after it. A [`Follower`](crate::log::Follower) is told what
//! each event did *after* the version that contains it is published. So whatever the
//! queue knows, every reader sees: a popped pod carries the
//! [`generation`](crate::framework::QueuedPod::generation) of what queued it, and a
//! reader that looks after popping has it, without waiting. The writer never waits for a
//! queue, and a pop waits for no event: events are acted on in steps of a few pods.
//!
//! # Deviations
//!
//! - Pods of equal rank go in the order in which they queued, where kube-scheduler
//!   leaves it to its heap.
//! - A pod stays known while it is in flight. Adding it again is an update, so it cannot
//!   be in flight twice; deleting it then makes its return a farewell.
//! - A pod that leaves the node on which it was assumed is not woken by that itself,
//!   whichever way it failed.
//! - An update in the pool is asked about as any event is. Nothing is remembered across
//!   events: there is no `moveRequestCycle`, since hints are always on.
//! - Changes of conditions and annotations of nodes are no events: the engine does not
//!   keep them, and no plugin of kube-scheduler's asks.
//! - A pod group is ranked by when its first pod came, and keeps that rank when it comes
//!   back; so it is not overtaken again and again by what came later.
//! - All pods of a group that failed back off for the same time, where no pod is popped
//!   before its time: else the group would be, all the time.
//! - A pod that comes while others of its group are being tried waits for them.
//! - A group with a timeout is left alone when it was tried for that long, counted from
//!   when the queue knew of it (Gödel: from its creation, which may be long before).

mod backoff;
mod feed;
mod figures;
mod front;
mod groups;
mod heap;
mod in_flight;
mod moves;
mod observed;
mod operations;
mod pods;
mod scheduling_queue;

pub use backoff::QueueConfig;
pub use figures::{Cause, QueueFigures};
pub use front::{PopError, QueueFront};
pub use groups::{PodGroupStatus, Popped, Returned};
pub use moves::PreCheck;
pub use pods::Place;
pub use scheduling_queue::{QueueError, SchedulingQueue};
