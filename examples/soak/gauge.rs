//! The measurements and their limits.
//!
//! Live bytes are counted by the allocator, so they are exact and heap fragmentation cannot fail a check. The resident
//! memory is printed as well and has a wider limit.

use std::fmt;
use std::sync::LazyLock;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use portolan::cache::Figures;
use portolan_testkit::alloc::{Counting, OfProcess};
use portolan_testkit::measure::Sorted;

use super::crew::Counts;

#[global_allocator]
static ALLOCATOR: Counting<OfProcess> = Counting::of_process();

/// The part of the soak that a sample belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    Warm,
    Calm,
    Stalled,
    Freed,
    Lost,
}

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    figures: Figures,
    live: i64,
    resident: i64,
    used: Duration,
    events: u64,
    removed: u64,
}

const MIB: i64 = 1 << 20;
/// The allowed variation of live bytes: versions that readers and forks happen to hold.
const SWING: i64 = 8 * MIB;
/// The largest number of versions that all threads together hold at once.
const HELD: usize = 64;
/// The bytes that an event may retain while an older version is held and must still find its objects: an entry of the
/// pod index, a departure record, and a slot and a name that are not reused.
const BYTES_AN_EVENT: i64 = 96;
/// The bytes that one version shares with no other version after a long time: nearly all of it.
const BYTES_A_VERSION: i64 = 16 * MIB;

impl Sample {
    pub(crate) fn new(figures: Figures, counts: &Counts) -> Sample {
        Sample {
            figures,
            live: ALLOCATOR.live(),
            resident: resident(),
            used: used(),
            events: counts.events.load(Ordering::Relaxed),
            removed: counts.removed.load(Ordering::Relaxed),
        }
    }
}

/// Returns the resident bytes, or 0 if the system does not report them.
fn resident() -> i64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|text| text.split_whitespace().nth(1)?.parse::<i64>().ok());
    pages.unwrap_or(0) * 4096
}

/// Returns the processor time of all threads so far, or the wall-clock time if the system does not report it.
fn used() -> Duration {
    static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The program's name, in parentheses, is the only field that may contain spaces.
    let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace();
    // Time in user mode and in the kernel, in hundredths of a second: fields 14 and 15 of proc_pid_stat(5).
    let ticks: Option<u64> = fields.skip(11).take(2).map(|ticks| ticks.parse::<u64>().ok()).sum();
    match ticks {
        Some(ticks) if ticks > 0 => Duration::from_millis(10 * ticks),
        _ => STARTED.elapsed(),
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let oldest = match self.figures.oldest_pinned {
            Some(oldest) => format!("{} back", self.figures.published.0 - oldest.0),
            None => "none".to_owned(),
        };
        write!(
            f,
            "generation {:>9}  live {:>6.1} MiB  resident {:>6.1} MiB  retired {:>3}  oldest pin {oldest}",
            self.figures.published.0,
            self.live as f64 / MIB as f64,
            self.resident as f64 / MIB as f64,
            self.figures.retired,
        )
    }
}

fn median(samples: &[Sample], of: impl Fn(&Sample) -> i64) -> i64 {
    if samples.is_empty() { 0 } else { Sorted::new(samples.iter().map(of)).quantile(0.5) }
}

/// The number of samples in five seconds, which is long enough for a busy machine to run every thread.
const WINDOW: usize = 20;

/// Returns the events per second of processor time, at the upper end of the slowest quarter of all windows of five
/// seconds.
///
/// Processor time excludes the effect of other work on the machine. A writer that waits is still noticed, because the
/// readers consume processor time meanwhile.
fn slowest(samples: &[Sample]) -> u64 {
    let pace = |some: &[Sample]| {
        let (first, last) = (some.first()?, some.last()?);
        let used = (last.used - first.used).as_secs_f64();
        Some(((last.events - first.events) as f64 / used.max(0.01)) as u64)
    };
    let stretches = samples.windows(WINDOW.min(samples.len()).max(2));
    let paces = Sorted::new(stretches.filter_map(pace));
    if paces.values().is_empty() { 0 } else { paces.quantile(0.25) }
}

/// Checks that versions are published continuously.
fn progress(samples: &[Sample]) -> Vec<String> {
    let published = |sample: &Sample| sample.figures.published;
    let stands = samples
        .windows(WINDOW.min(samples.len()).max(2))
        .any(|some| some.first().map(published) >= some.last().map(published));
    stands.then(|| "no version was published for five seconds".to_owned()).into_iter().collect()
}

/// Returns the largest number of versions that were retired in two consecutive samples. A single sample may show any
/// number, because a reader that the system suspends while it announces a pin may reach all versions until it runs
/// again.
fn retained(samples: &[Sample]) -> usize {
    let both = |pair: &[Sample]| pair.iter().map(|sample| sample.figures.retired).min();
    samples.windows(2).filter_map(both).max().unwrap_or(0)
}

/// Checks that memory does not grow while readers come, go and panic.
pub(crate) fn judge_calm(samples: &[Sample]) -> Vec<String> {
    let mut failed = progress(samples);
    let third = samples.len() / 3;
    let (first, last) = (&samples[..third], &samples[samples.len() - third..]);
    let live = |samples| median(samples, |sample| sample.live);
    let grown = live(last) - live(first);
    if grown > SWING {
        failed.push(format!("live bytes grew by {} KiB in the calm part", grown >> 10));
    }
    let resident = |samples| median(samples, |sample| sample.resident);
    if resident(last) - resident(first) > 4 * SWING {
        failed.push("resident memory grew in the calm part".to_owned());
    }
    let retired = retained(samples);
    if retired > HELD {
        failed.push(format!("{retired} versions were retired and not freed"));
    }
    println!(
        "calm: live bytes {:+} KiB from the first third to the last, at most {retired} versions retired in two consecutive samples, {} events per second of processor time",
        grown >> 10,
        slowest(samples),
    );
    failed
}

/// Checks that a permanent pin retains its version and a few bytes per event, and delays no thread.
pub(crate) fn judge_pinned(calm: &[Sample], samples: &[Sample]) -> Vec<String> {
    let mut failed = progress(samples);
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else { return failed };
    let (events, removed) = (last.events - first.events, last.removed - first.removed);
    let grown = last.live - median(calm, |sample| sample.live);
    if grown > SWING + BYTES_A_VERSION + BYTES_AN_EVENT * events as i64 {
        failed.push(format!("a pin retained {} KiB over {events} events", grown >> 10));
    }
    // Older pins were of versions that were current earlier; in the second half no other reader is this far behind.
    let late = &samples[samples.len() / 2..];
    let pinned = last.figures.oldest_pinned;
    if pinned.is_none_or(|pinned| pinned > first.figures.published)
        || late.iter().any(|sample| sample.figures.oldest_pinned != pinned)
    {
        failed.push("the oldest pin does not show the reader that stopped".to_owned());
    }
    let retired = retained(samples);
    if retired > HELD {
        failed.push(format!("{retired} versions were retired and not freed during one pin"));
    }
    if slowest(samples) * 4 < slowest(calm) {
        failed.push(
            "events took more than four times the processor time of the calm part".to_owned(),
        );
    }
    println!(
        "a reader stopped with a pin: {:+} KiB over {events} events, {removed} pods removed: {:.0} bytes per event; at \
        most {retired} versions retired, {} events per second of processor time",
        grown >> 10,
        grown as f64 / events.max(1) as f64,
        slowest(samples),
    );
    failed
}

/// Checks that the memory retained by a pin is freed.
pub(crate) fn judge_freed(calm: &[Sample], samples: &[Sample]) -> Vec<String> {
    let mut failed = progress(samples);
    // Held forks and versions vary by megabytes, so the median of the last third is used and not one sample.
    let late = &samples[samples.len() * 2 / 3..];
    let kept = median(late, |sample| sample.live) - median(calm, |sample| sample.live);
    if kept > SWING {
        failed.push(format!("{} KiB were not freed after the pin was released", kept >> 10));
    }
    println!("pin released: live bytes {:+} KiB compared with the calm part", kept >> 10);
    failed
}
