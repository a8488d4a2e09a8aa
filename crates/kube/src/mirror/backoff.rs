//! The pauses between failed requests, and the lengths of watches.

use std::time::Duration;

use tokio::time::Instant;

/// How long reflectors wait. The defaults of the backoff are client-go's; the other fields state the source of theirs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pauses {
    /// The shortest pause after a failure, which doubles with each further one.
    pub shortest: Duration,
    /// The longest pause after a failure.
    pub longest: Duration,
    /// The time without a failure after which pauses are short again.
    pub reset: Duration,
    /// The pause after the server reports that it does not serve a kind: a minute, since only an administrator can
    /// change that.
    pub slow: Duration,
    /// The longest duration of a watch. The server ends a watch after this time, less a random part of a sixth. About 5
    /// minutes, client-go's minimum.
    pub watch: Duration,
    /// A watch that ends within this time without an event counts as failed, so there is a pause before the next one.
    pub short_watch: Duration,
    /// The longest time without data before the end of a streamed list, after which lists are paginated. It is the
    /// longest time that an API server takes to answer a request.
    pub list_silence: Duration,
    /// The duration of a watch while somebody waits for a version ([`Mirror::refresh`](super::Mirror::refresh)). The
    /// server sends a bookmark 2 s before the end of a watch, so this is twice as long.
    pub hurried_watch: Duration,
    /// The longest time to wait for a version. Longer than the longest pause.
    pub refresh: Duration,
}

impl Default for Pauses {
    fn default() -> Pauses {
        Pauses {
            shortest: Duration::from_millis(800),
            longest: Duration::from_secs(30),
            reset: Duration::from_secs(120),
            slow: Duration::from_secs(60),
            watch: Duration::from_secs(290),
            short_watch: Duration::from_secs(1),
            list_silence: Duration::from_secs(60),
            hurried_watch: Duration::from_secs(4),
            refresh: Duration::from_secs(60),
        }
    }
}

impl Pauses {
    /// Returns the seconds that a watch should last.
    pub(super) fn watch_seconds(&self) -> u64 {
        let watch = self.watch.as_secs();
        watch - fastrand::u64(0..=watch / 6)
    }
}

/// Pauses that double with each failure.
pub(super) struct Backoff {
    shortest: Duration,
    longest: Duration,
    reset: Duration,
    next: Duration,
    last: Option<Instant>,
}

impl Backoff {
    pub(super) fn new(pauses: &Pauses) -> Backoff {
        let &Pauses { shortest, longest, reset, .. } = pauses;
        Backoff { shortest, longest, reset, next: shortest, last: None }
    }

    /// Returns the pause after a failure now: a random time between the last step and this one, so that clients that
    /// failed together do not retry together.
    pub(super) fn pause(&mut self) -> Duration {
        let now = Instant::now();
        if self.last.replace(now).is_none_or(|last| now - last > self.reset) {
            self.next = self.shortest;
        }
        let least = self.next.min(self.longest / 2);
        self.next = (self.next * 2).min(self.longest);
        least + self.next.saturating_sub(least).mul_f64(fastrand::f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_from_800_ms_to_30_s_and_shrink_after_two_minutes() {
        let mut backoff = Backoff::new(&Pauses::default());
        let seconds = |pause: Duration| pause.as_secs_f64();
        let first = seconds(backoff.pause());
        assert!((0.8..=1.6).contains(&first), "{first}");
        let pauses: Vec<f64> = (0..20).map(|_| seconds(backoff.pause())).collect();
        assert!(pauses.iter().all(|pause| (0.8..=30.0).contains(pause)), "{pauses:?}");
        assert!(pauses[5..].iter().all(|pause| *pause >= 15.0), "{pauses:?}");
        tokio::time::advance(Duration::from_secs(119)).await;
        assert!(seconds(backoff.pause()) >= 15.0);
        tokio::time::advance(Duration::from_secs(121)).await;
        assert!(seconds(backoff.pause()) <= 1.6);
    }

    #[test]
    fn watches_last_290_s_less_a_random_part() {
        let pauses = Pauses::default();
        let lengths: Vec<u64> = (0..200).map(|_| pauses.watch_seconds()).collect();
        assert!(lengths.iter().all(|length| (242..=290).contains(length)));
        assert!(lengths.iter().any(|length| *length != lengths[0]));
    }
}
