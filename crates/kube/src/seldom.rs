//! Warnings about failures that repeat, such as those of an API server that cannot be reached.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::lock::lock;

/// The pause after the first warning. It doubles with each further one.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// Limits the rate of the warnings of one place in the code.
pub(crate) struct Seldom(Mutex<Option<State>>);

struct State {
    next: Instant,
    pause: Duration,
    left_out: u64,
}

impl Seldom {
    pub(crate) const fn new() -> Seldom {
        Seldom(Mutex::new(None))
    }

    /// Returns how many warnings were left out since the last one that was printed, or `None` if this one is left out,
    /// too. The pauses begin anew when no warning came for as long as the last pause.
    pub(crate) fn may_warn(&self, now: Instant) -> Option<u64> {
        let mut state = lock(&self.0);
        let (pause, left_out) = match &mut *state {
            Some(State { next, left_out, .. }) if now < *next => {
                *left_out += 1;
                return None;
            }
            Some(State { next, pause, left_out }) if now < *next + *pause => {
                (LONGEST.min(*pause * 2), *left_out)
            }
            Some(State { left_out, .. }) => (FIRST, *left_out),
            None => (FIRST, 0),
        };
        *state = Some(State { next: now + pause, pause, left_out: 0 });
        Some(left_out)
    }
}

/// Like `tracing::warn!`, for a failure that may repeat many times a second. What is left out is logged at the level
/// `debug`.
macro_rules! warn_seldom {
    ($($fields:tt)+) => {{
        static SELDOM: $crate::seldom::Seldom = $crate::seldom::Seldom::new();
        if let Some(left_out) = SELDOM.may_warn(std::time::Instant::now()) {
            tracing::warn!(left_out, $($fields)+);
        } else {
            tracing::debug!($($fields)+);
        }
    }};
}
pub(crate) use warn_seldom;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_warning_is_printed_and_then_ever_fewer() {
        let (seldom, start) = (Seldom::new(), Instant::now());
        let at = |ms: u64| seldom.may_warn(start + Duration::from_millis(ms));
        assert_eq!(at(0), Some(0));
        // A warning each 10 ms: printed after 1, 3, 7, 15, 31 and 63 s, and then each minute.
        let printed: Vec<u64> =
            (1..=30_000).map(|n| n * 10).filter(|ms| at(*ms).is_some()).collect();
        assert_eq!(
            printed,
            [1_000, 3_000, 7_000, 15_000, 31_000, 63_000, 123_000, 183_000, 243_000]
        );
        assert_eq!(at(303_000), Some(5_700));
        assert_eq!(at(1_000_000), Some(0), "after a long silence");
        assert_eq!(at(1_000_500), None);
        assert_eq!(at(1_001_000), Some(1));
    }
}
