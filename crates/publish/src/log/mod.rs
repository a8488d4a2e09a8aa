//! The log: the one order of events, and the one writer that folds them.
//!
//! Events come from any thread. [`Log::submit`] puts one in, and from then on it has a place in a total order, is
//! folded exactly once, and has exactly one outcome, also when the log is closed. The log is bounded: who submits to a
//! full one waits for room (and helps to make it), who tries gets the event back.
//!
//! The writer is not a thread but a *token*: whoever holds it folds what is in the log, publishes, and answers. A hop to
//! a writer thread costs more than most events take to fold; with the token a thread that submits mostly folds its
//! event itself, at once. Where that is not wanted, an [`Attendant`] is a thread that always comes for the token, and
//! ticks.
//!
//! | file | what it is |
//! |---|---|
//! | `channel` | the bounded queue, and what it has to promise |
//! | `ticket` | the outcome's way back |
//! | `token` | the lock, its hand-over, and why no event is left lying |
//! | `pace` | how long to spin for the holder before sleeping |
//! | `writer` | [`Log`] and [`Fold`]: batches, closing, panics |
//! | `attendant` | a thread of its own |
//! | `stream` | a channel for notes about events, and what it has to promise |

mod attendant;
mod channel;
mod error;
mod pace;
#[doc(hidden)]
pub mod stream;
mod ticket;
mod token;
mod writer;

pub use self::attendant::Attendant;
pub use self::error::{SpawnError, TrySubmitError, TryWaitError, Unavailable};
pub use self::ticket::Ticket;
pub use self::writer::{Fold, Log};

/// What the models reach of this module beyond its public face.
#[cfg(loom)]
pub(crate) mod model {
    use std::sync::Arc;

    use super::{Fold, Log, Ticket, ticket};

    /// The log's end of a ticket.
    pub struct Answer<O>(ticket::Answer<O>);

    impl<O> Answer<O> {
        /// Gives the outcome.
        pub fn complete(self, outcome: O) {
            self.0.complete(outcome);
        }
    }

    /// Both ends of a ticket.
    pub fn ticket<O>() -> (Ticket<O>, Answer<O>) {
        let (ticket, answer) = ticket::ticket();
        (ticket, Answer(answer))
    }

    /// What an attendant's thread does, on the calling thread and without ticks.
    pub fn attend<F: Fold>(log: &Arc<Log<F>>) {
        log.attend(None);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
