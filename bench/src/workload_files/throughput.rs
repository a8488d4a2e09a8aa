//! Measures the throughput of scheduling as scheduler_perf does (util.go, throughputCollector): once a second the pods
//! scheduled since the last sample are divided by the time since then.

use std::time::{Duration, Instant};

use super::board::ScheduledCount;
use super::stop::Stop;

/// The time between two samples.
const EVERY: Duration = Duration::from_secs(1);

/// The samples of a collection. Sampling needs no clock, so that tests pass the time in.
#[derive(Debug)]
pub(super) struct Samples {
    rates: Vec<f64>,
    last: Option<(Instant, usize)>,
    skipped: usize,
}

/// The measurement of one collection, from its start to its end.
#[derive(Debug)]
pub(super) struct Measured {
    /// The name in the file, or the namespace of the pods.
    pub(super) name: String,
    /// The pods that were scheduled.
    pub(super) pods: usize,
    /// The time from the start to the last of them.
    pub(super) until_last: Duration,
    /// The sampled rates in pods per second, in ascending order.
    pub(super) rates: Vec<f64>,
}

impl Samples {
    pub(super) fn new() -> Samples {
        Samples { rates: Vec::new(), last: None, skipped: 0 }
    }

    /// Takes a sample of the pods scheduled so far. The first sample with pods only starts the measurement. If no pod
    /// was scheduled in between, the interval counts towards the next sample, whose rate is recorded for each of them.
    pub(super) fn take(&mut self, now: Instant, scheduled: usize) {
        if scheduled == 0 {
            return;
        }
        let Some((at, before)) = self.last else {
            self.last = Some((now, scheduled));
            return;
        };
        let new = scheduled.saturating_sub(before);
        if new == 0 {
            self.skipped += 1;
            return;
        }
        let rate = new as f64 / now.saturating_duration_since(at).as_secs_f64().max(1e-9);
        self.rates.extend(std::iter::repeat_n(rate, self.skipped + 1));
        self.skipped = 0;
        self.last = Some((now, scheduled));
    }
}

impl Measured {
    /// The mean of the sampled rates.
    pub(super) fn average(&self) -> Option<f64> {
        let sum: f64 = self.rates.iter().sum();
        (!self.rates.is_empty()).then(|| sum / self.rates.len() as f64)
    }

    /// A percentile of the sampled rates: the least rate that this share of the samples does not exceed.
    pub(super) fn percentile(&self, percent: usize) -> Option<f64> {
        let rank = (self.rates.len() * percent).div_ceil(100);
        self.rates.get(rank.checked_sub(1)?).copied()
    }

    /// The value that thresholds of `SchedulingThroughput` concern, by the name of its bucket.
    pub(super) fn bucket(&self, name: &str) -> Option<f64> {
        match name {
            "Average" => self.average(),
            name => self.percentile(name.strip_prefix("Perc")?.parse().ok().filter(|p| *p <= 100)?),
        }
    }

    /// All pods divided by the time until the last one was scheduled.
    pub(super) fn overall(&self) -> Option<f64> {
        (self.pods > 0).then(|| self.pods as f64 / self.until_last.as_secs_f64().max(1e-9))
    }
}

/// Samples a count from `start` until the collection stops.
pub(super) fn collect(
    start: Instant,
    name: String,
    mut count: ScheduledCount<'_>,
    stop: &Stop,
) -> Measured {
    let (mut samples, mut tick) = (Samples::new(), 1);
    while !stop.sleep_until(start + EVERY * tick) {
        samples.take(Instant::now(), count.read().0);
        tick += 1;
    }
    let (pods, last) = count.read();
    let mut rates = samples.rates;
    rates.sort_by(f64::total_cmp);
    let until_last = last.map_or(Duration::ZERO, |last| last.saturating_duration_since(start));
    Measured { name, pods, until_last, rates }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sample_starts_and_empty_intervals_share_the_next_rate() {
        let start = Instant::now();
        let mut samples = Samples::new();
        for (second, scheduled) in [(1, 0), (2, 50), (3, 150), (4, 150), (5, 150), (6, 450)] {
            samples.take(start + Duration::from_secs(second), scheduled);
        }
        assert_eq!(samples.rates, [100.0, 100.0, 100.0, 100.0]);
        samples.take(start + Duration::from_secs(8), 500);
        assert_eq!(samples.rates[4], 25.0);
    }

    #[test]
    fn percentiles_are_the_nearest_ranks() {
        let rates: Vec<f64> = (1..=10).map(f64::from).collect();
        let time = Duration::from_secs(2);
        let name = String::new();
        let measured = Measured { name, pods: 30, until_last: time, rates };
        let buckets = ["Average", "Perc50", "Perc90", "Perc95", "Perc99"];
        let values = buckets.map(|bucket| measured.bucket(bucket));
        assert_eq!(values, [Some(5.5), Some(5.0), Some(9.0), Some(10.0), Some(10.0)]);
        assert_eq!((measured.overall(), measured.bucket("Max")), (Some(15.0), None));
        let none = Measured { rates: Vec::new(), ..measured };
        assert_eq!((none.average(), none.percentile(50)), (None, None));
    }
}
