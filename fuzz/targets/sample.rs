//! Which of its costly checks an input runs. A fuzzer that runs a few of them on each
//! input executes several times as many inputs; every check is still reached thousands
//! of times an hour. The choice is a function of the input, so that a failure repeats.
//!
//! A check must not change what follows it: an input that fails with some of the checks
//! then also fails with all of them.

/// The checks to run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Checks {
    /// Every one: for replays.
    All,
    /// A sample that this number determines: for fuzzers.
    Some(u64),
}

impl Checks {
    /// A sample for these bytes.
    pub(crate) fn for_input(data: &[u8]) -> Checks {
        // FNV-1a.
        Checks::Some(data.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        }))
    }

    /// Whether to run the check with this number, of which a sample has one in `n`.
    pub(crate) fn include(self, check: u64, n: u64) -> bool {
        self.drawn(check).is_none_or(|drawn| drawn.is_multiple_of(n))
    }

    /// All values, or the one that a sample has of them.
    pub(crate) fn choose<T>(self, check: u64, values: &[T]) -> &[T] {
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
        // SplitMix64: successive numbers give unrelated ones.
        let mut z = check.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Some(z ^ (z >> 31))
    }
}
