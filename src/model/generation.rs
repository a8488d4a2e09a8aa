//! The position of an event in the log, which numbers every version.

use std::fmt;

/// A position in the log: generation g is the fold of the first g events.
///
/// A rejected event has a number too, so generations are dense. Nothing is
/// numbered per object: what is dropped and made again can repeat no number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Generation(pub u64);

impl Generation {
    /// Before the first event.
    pub const ZERO: Generation = Generation(0);

    /// The generation after this one.
    #[must_use]
    pub fn next(self) -> Generation {
        Generation(self.0 + 1)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
