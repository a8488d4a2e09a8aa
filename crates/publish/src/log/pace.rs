//! How long a waiter spins for the token's holder before it sleeps.
//!
//! Sleeping and waking costs the waiter some 50 µs and the holder a system call; most batches are folded in a tenth of
//! that. So a waiter spins for about the time of a few recent batches. It spins at least as long as a sleep costs, and
//! then pays at most twice the cost of the better choice. It stops spinning when the holder must have been descheduled.
//! If batches take longer than a sleep costs, the waiter sleeps at once.

use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicU64, Ordering};

/// The approximate cost of sleeping and waking.
const SLEEP: Duration = Duration::from_micros(50);

/// The longest spin. A holder that takes longer has been descheduled.
const MAX_SPIN: Duration = Duration::from_micros(200);

/// The number of batches a waiter spins for: its event may have missed the current batch, and batches vary.
const BATCHES: u64 = 4;

/// One batch in this many is timed.
const EVERY: u32 = 16;

/// The recent duration of a batch: a moving average, in nanoseconds.
pub(super) struct Pace(CachePadded<AtomicU64>);

/// Counts the holder's batches. Guarded by the token.
#[derive(Default)]
pub(super) struct Watch {
    batches: u32,
}

impl Pace {
    pub(super) fn new() -> Pace {
        Pace(CachePadded::new(AtomicU64::new(0)))
    }

    /// Returns how long to spin for an outcome.
    pub(super) fn patience(&self) -> Duration {
        // Relaxed: an estimate that guards no data.
        let batch = self.0.load(Ordering::Relaxed);
        if batch >= SLEEP.as_nanos() as u64 {
            return Duration::ZERO;
        }
        Duration::from_nanos(batch * BATCHES).clamp(SLEEP, MAX_SPIN)
    }

    /// Begins a batch. Returns the time if this batch is to be timed.
    pub(super) fn begin(&self, watch: &mut Watch) -> Option<Instant> {
        watch.batches = watch.batches.wrapping_add(1);
        // A platform without threads may have no clock either.
        let is_timed = watch.batches % EVERY == 1 && cfg!(not(target_family = "wasm"));
        is_timed.then(Instant::now)
    }

    /// Ends the batch that `begin` returned.
    pub(super) fn end(&self, begun: Option<Instant>) {
        if let Some(begun) = begun {
            self.note(begun.elapsed());
        }
    }

    fn note(&self, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        // Relaxed: only the holder of the token writes it.
        let before = self.0.load(Ordering::Relaxed);
        self.0.store(before - before / 4 + took / 4, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn after_batches_of(took: Duration) -> Duration {
        let pace = Pace::new();
        (0..100).for_each(|_| pace.note(took));
        pace.patience()
    }

    #[test]
    fn a_waiter_spins_for_a_few_batches_within_bounds() {
        assert_eq!(Pace::new().patience(), SLEEP);
        assert_eq!(after_batches_of(Duration::from_micros(2)), SLEEP);
        let long = after_batches_of(Duration::from_micros(30));
        assert!(long > SLEEP * 2 && long <= Duration::from_micros(120), "{long:?}");
        let longest = after_batches_of(Duration::from_micros(49));
        assert!(longest > long && longest <= MAX_SPIN, "{longest:?}");
    }

    #[test]
    fn a_waiter_sleeps_at_once_if_batches_take_longer_than_a_sleep() {
        assert_eq!(after_batches_of(SLEEP * 2), Duration::ZERO);
        assert_eq!(after_batches_of(Duration::MAX), Duration::ZERO);
    }

    #[test]
    fn one_long_batch_counts_for_a_quarter() {
        let pace = Pace::new();
        (0..100).for_each(|_| pace.note(SLEEP / 5));
        pace.note(SLEEP * 2);
        assert!(pace.patience() > SLEEP, "{:?}", pace.patience());
        (0..2).for_each(|_| pace.note(SLEEP * 2));
        assert_eq!(pace.patience(), Duration::ZERO);
    }

    #[test]
    fn a_batch_counts_when_it_ends() {
        let pace = Pace::new();
        let begun = Instant::now();
        while begun.elapsed() < SLEEP * 5 {
            std::hint::spin_loop();
        }
        assert_eq!(pace.patience(), SLEEP);
        pace.end(None);
        assert_eq!(pace.patience(), SLEEP);
        pace.end(Some(begun));
        assert_eq!(pace.patience(), Duration::ZERO);
    }

    #[test]
    fn one_batch_in_many_is_timed() {
        let (pace, mut watch) = (Pace::new(), Watch::default());
        let timed = (0..1_000).filter(|_| pace.begin(&mut watch).is_some()).count();
        assert_eq!(timed, 1_000_usize.div_ceil(EVERY as usize));
    }
}
