//! The cluster's events, and those who follow them.
//!
//! The log itself (its order, the writer's token, tickets) knows nothing of clusters: it is
//! [`publish::log`](crate::publish::log), and its types are shown here, too.
//!
//! | file | what it is |
//! |---|---|
//! | `event` | what can happen, and what came of it |
//! | `constructors` | a function for each event, with its refusals |
//! | `follow` | what events did, for those who act on it |

mod constructors;
mod event;
mod follow;

pub use portolan_publish::log::{
    Attendant, Fold, Log, SpawnError, Ticket, TrySubmitError, TryWaitError, Unavailable,
};

pub use self::event::{Applied, Event, ObjectKey, Outcome, Relist};
pub use self::follow::Follower;
pub(crate) use self::follow::Followers;
pub use crate::model::{Fact, NoNote, Note};
pub(crate) use portolan_publish::log::stream::Bell;
