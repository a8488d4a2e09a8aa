//! The events of a cluster, and the followers of the log.
//!
//! The log itself, with its order, its writer token and its tickets, is independent of clusters: it is
//! [`portolan_publish::log`], whose types are re-exported here.
//!
//! | file | contents |
//! |---|---|
//! | `event` | the events and their outcomes |
//! | `constructors` | a constructor for each event, with the reasons for rejection |
//! | `follow` | the stream of effects for queues, caches and exporters |

mod constructors;
mod event;
mod follow;

pub(crate) use portolan_publish::log::{Fold, Log};
pub use portolan_publish::log::{Ticket, TrySubmitError, TryWaitError, Unavailable};

pub use self::event::{Applied, Event, ObjectKey, Outcome, Prepared, Relist};
pub use self::follow::Follower;
pub(crate) use self::follow::Followers;
pub(crate) use portolan_publish::log::stream::Bell;
