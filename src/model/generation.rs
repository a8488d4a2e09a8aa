//! Generations: positions in the log, which number every version of the state.

use std::fmt;

/// A position in the log: generation g is the state after the first g events.
///
/// Rejected events are numbered too, so generations are dense. Generations are not counted per object, so an object
/// that is removed and created again never repeats one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Generation(pub u64);

impl Generation {
    /// The generation before the first event.
    pub const ZERO: Generation = Generation(0);

    /// Returns the next generation. The highest generation, which no log reaches, is returned unchanged.
    #[must_use]
    pub fn next(self) -> Generation {
        // Events may carry any generation, also the highest one.
        Generation(self.0.saturating_add(1))
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
