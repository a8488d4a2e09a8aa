//! The log: a total order of events, folded by one writer at a time.
//!
//! Any thread may submit events. Once [`Log::submit`] has accepted an event, the event has a place in a total order, is
//! folded exactly once, and has exactly one outcome, even if the log is closed. The log is bounded: if it is full,
//! `submit` waits for room and helps to fold, and [`Log::try_submit`] returns the event to the caller.
//!
//! The writer is not a thread but a *token*: the thread that holds the token folds the events in the log, publishes,
//! and answers the tickets. Handing an event to a writer thread costs more than folding most events; with the token, a
//! submitter usually folds its own event at once.
//!
//! | file | contents |
//! |---|---|
//! | `channel` | the bounded queue and its guarantees |
//! | `ticket` | how an outcome reaches its submitter |
//! | `token` | the lock, its hand-over, and why no event is stranded |
//! | `pace` | how long a waiter spins before it sleeps |
//! | `writer` | [`Log`] and [`Fold`]: batches, closing, panics |
//! | `stream` | the unbounded channel for notes about events, and its guarantees |

mod channel;
mod error;
mod pace;
#[doc(hidden)]
pub mod stream;
mod ticket;
mod token;
mod writer;

pub use self::error::{TrySubmitError, TryWaitError, Unavailable};
pub use self::ticket::Ticket;
pub use self::writer::{Fold, Log};

/// Internals of this module that the models use.
#[cfg(loom)]
pub(crate) mod model {
    use super::{Ticket, ticket};

    /// The log's end of a ticket.
    pub struct Answer<O>(ticket::Answer<O>);

    impl<O> Answer<O> {
        /// Delivers the outcome.
        pub fn complete(self, outcome: O) {
            self.0.complete(outcome);
        }
    }

    /// Both ends of a ticket.
    pub fn ticket<O>() -> (Ticket<O>, Answer<O>) {
        let (ticket, answer) = ticket::ticket();
        (ticket, Answer(answer))
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
