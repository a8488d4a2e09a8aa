//! Errors of the log. Each error returns the caller's value.

use std::fmt;

use super::Ticket;

/// The log refused an operation. Returns the event, if there was one.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable<E = ()> {
    /// The log accepts no more events: it was closed, or its fold panicked.
    #[error("the log is closed: start a new engine to continue")]
    Closed(E),
    /// The calling thread already holds the log's writer, further up its stack, and would wait for itself.
    #[error("this thread holds the writer and would wait for itself: return from the writer first")]
    OwnThread(E),
}

impl<E> Unavailable<E> {
    /// Converts the value that the error gives back.
    pub fn map<T>(self, convert: impl FnOnce(E) -> T) -> Unavailable<T> {
        match self {
            Unavailable::Closed(value) => Unavailable::Closed(convert(value)),
            Unavailable::OwnThread(value) => Unavailable::OwnThread(convert(value)),
        }
    }
}

/// The event could not be accepted without waiting. Returns the event.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TrySubmitError<E> {
    /// The log is full.
    #[error("the log is full: try again later, or use `submit`, which waits")]
    Full(E),
    /// The log accepts no more events.
    #[error("the log is closed: start a new engine to continue")]
    Closed(E),
}

/// The reason a ticket gave no outcome.
#[derive(thiserror::Error)]
pub enum TryWaitError<O> {
    /// There is no outcome yet. Returns the ticket.
    #[error("the event has no outcome yet: wait longer")]
    Pending(Ticket<O>),
    /// The event was accepted but not folded, because the fold panicked.
    #[error("the fold panicked before this event was folded: start a new engine to continue")]
    Closed,
    /// The calling thread already holds the log's writer, further up its stack, and would wait for itself. Returns the
    /// ticket.
    #[error("this thread holds the writer and would wait for itself: return from the writer first")]
    OwnThread(Ticket<O>),
}

impl<E> TrySubmitError<E> {
    pub(super) fn map<T>(self, give_back: impl FnOnce(E) -> T) -> TrySubmitError<T> {
        match self {
            Self::Full(event) => TrySubmitError::Full(give_back(event)),
            Self::Closed(event) => TrySubmitError::Closed(give_back(event)),
        }
    }
}

// Implemented by hand, so that errors can be unwrapped and boxed for any event type.
impl<E> fmt::Debug for Unavailable<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed(_) => "Closed(..)",
            Self::OwnThread(_) => "OwnThread(..)",
        })
    }
}

impl<E> fmt::Debug for TrySubmitError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "Full(..)",
            Self::Closed(_) => "Closed(..)",
        })
    }
}

impl<O> fmt::Debug for TryWaitError<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pending(_) => "Pending(..)",
            Self::Closed => "Closed",
            Self::OwnThread(_) => "OwnThread(..)",
        })
    }
}
