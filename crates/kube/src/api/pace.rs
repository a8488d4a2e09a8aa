//! Limits the rate of requests (`clientConnection.qps` and `burst`).

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::lock::lock;

/// Allows `qps` requests per second, and a burst of `burst` requests after a pause.
pub(super) struct Pace {
    interval: Duration,
    tolerance: Duration,
    /// When the next request would be due if requests were spread evenly.
    due: Mutex<Instant>,
}

impl Pace {
    pub(super) fn new(qps: f64, burst: u32) -> Pace {
        let interval = Duration::from_secs_f64(1.0 / qps);
        let tolerance = interval * burst.saturating_sub(1);
        Pace { interval, tolerance, due: Mutex::new(Instant::now()) }
    }

    pub(super) async fn wait(&self) {
        let allowed = {
            let mut due = lock(&self.due);
            let mine = (*due).max(Instant::now());
            *due = mine + self.interval;
            mine.checked_sub(self.tolerance)
        };
        if let Some(allowed) = allowed {
            sleep_until(allowed).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_at_once_and_later_requests_at_the_rate() {
        let pace = Pace::new(10.0, 5);
        let start = Instant::now();
        for _ in 0..5 {
            pace.wait().await;
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        for _ in 0..10 {
            pace.wait().await;
        }
        assert_eq!(start.elapsed().as_millis(), 1_000);
    }
}
