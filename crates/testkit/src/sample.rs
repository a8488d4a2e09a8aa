//! Selects which of the expensive checks an input runs. A fuzzer that runs only a few of them on each input executes
//! several times as many inputs, and still runs every check thousands of times an hour. The selection is a function of
//! the input, so failures are reproducible.
//!
//! A check must not affect what runs after it, so that an input that fails with some of the checks also fails with all
//! of them.

use crate::random::Random;

/// The checks to run.
#[derive(Clone, Copy, Debug)]
pub enum Checks {
    /// All checks, for replays.
    All,
    /// A sample of the checks that this number determines, for fuzzers.
    Some(u64),
}

impl Checks {
    /// Returns the sample for these bytes.
    pub fn for_input(data: &[u8]) -> Checks {
        // FNV-1a.
        Checks::Some(data.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        }))
    }

    /// Returns whether to run the check with this number, which is in one of `n` samples.
    pub fn include(self, check: u64, n: u64) -> bool {
        self.drawn(check).is_none_or(|drawn| drawn.is_multiple_of(n))
    }

    /// Returns all values, or the one value that is in the sample.
    pub fn choose<T>(self, check: u64, values: &[T]) -> &[T] {
        match self.drawn(check) {
            Some(drawn) if !values.is_empty() => {
                let at = (drawn % values.len() as u64) as usize;
                &values[at..=at]
            }
            _ => values,
        }
    }

    fn drawn(self, check: u64) -> Option<u64> {
        let Checks::Some(seed) = self else { return None };
        Some(Random::nth(seed, check))
    }
}
